"""Tables and lists of the pages beside what the programs say of themselves."""

import json
import re
import shutil
import struct

import pages
from service import DEMO, ROOT

MODELS = (ROOT / "docs" / "MODELS.md").read_text()


def section(text, title):
    return re.split(r"^## ", text.split(f"\n## {title}\n", 1)[1], flags=re.M)[0]


def rows(text):
    """The cells of each row of the tables in a text, without heads."""
    found = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.split("\n") if line.startswith("|")]
    heads = {i for i, r in enumerate(found) if set(r[0]) == {"-"}}
    return [r for i, r in enumerate(found) if i not in heads and i + 1 not in heads]


def codes(text):
    return re.findall(r"`([^`]+)`", text)


def supported(run, model, change):
    """What `quern inspect` lists as supported, of the demo model with another configuration."""
    shutil.copytree(DEMO, model)
    config = json.loads((model / "config.json").read_text())
    change(config)
    (model / "config.json").write_text(json.dumps(config))
    return re.search(r"supported: ([^)]*)\)", run("inspect", model, "--no-probe").stderr).group(1)


def test_architectures(run, tmp_path):
    names = supported(run, tmp_path / "m", lambda c: c.update(architectures=["NoSuchForCausalLM"], model_type="no_such"))
    known = {f"{n}ForCausalLM" for n in names.removesuffix(", ...ForCausalLM").split(", ")}
    listed = [codes(r[1])[0] for r in rows(section(MODELS, "Architectures"))]
    assert len(set(listed)) == len(listed) and set(listed) == known, set(listed) ^ known


def test_architectures_of_gguf(run, tmp_path):
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.architecture") + struct.pack("<I", 8) + text("no"))
    known = re.search(r"supported in GGUF: ([^)]*)\)", run("inspect", gguf, "--no-probe").stderr).group(1).split(", ")
    listed = {name for r in rows(section(MODELS, "Architectures")) for name in codes(r[2])}
    assert listed == set(known), listed ^ set(known)


def test_quantizations(run, tmp_path):
    names = supported(run, tmp_path / "m", lambda c: c.update(quantization_config={"quant_method": "no_such"}))
    listed = [c for r in rows(section(MODELS, "Quantizations")) for c in codes(r[0])]
    assert listed == names.split(", ")


def test_types_of_gguf():
    source = (ROOT / "formats" / "gguf_weights.c").read_text()
    floats, coded = (re.search(rf'#define {name} .*?"([^"]*)"', source).group(1) for name in ("FLOATS", "CODED"))
    listed = codes(section(MODELS, "Types of GGUF").split("They may be mixed")[0])
    assert listed == (floats + coded).split(", ")


def test_formats_of_tools_and_reasoning(run):
    chat = {c for r in rows(section((ROOT / "docs" / "CHAT.md").read_text(), "Formats of tool calls")) for c in codes(r[0])}
    for option, more in (("--tool-parser", chat), ("--reasoning-parser", None)):
        said = run("serve", DEMO, option, "no-such").stderr
        known = set(re.split(", | or ", re.search(r"must be (.*)", said).group(1).strip())) - {"auto", "none"}
        part = section(MODELS, "Tools and reasoning").split("`--reasoning-parser`")[option != "--tool-parser"]
        listed = {c for c in codes(part) if not c.startswith("-")} - {"none"}
        assert listed == known, (option, listed ^ known)
        assert more is None or more == known, more ^ known


def test_options_of_serve():
    """docs/OPTIONS.md has each option of `quern serve --help`, and no other."""
    text = (ROOT / "docs" / "OPTIONS.md").read_text()
    listed = {code.split()[0] for r in rows(section(text, "Options of `quern serve`")) for code in codes(r[0])}
    assert listed - {"--served-model-name"} == {o for o in pages.options("quern", "serve") if o.startswith("--")} - {"--help"}
