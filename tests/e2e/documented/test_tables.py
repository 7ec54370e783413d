"""Tables and lists of the pages, compared with the programs' own output."""

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
    """Return the cells of each row of the tables in a text, without table heads."""
    found = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.split("\n") if line.startswith("|")]
    heads = {i for i, r in enumerate(found) if set(r[0]) == {"-"}}
    return [r for i, r in enumerate(found) if i not in heads and i + 1 not in heads]


def codes(text):
    return re.findall(r"`([^`]+)`", text)


def supported(run, model, change):
    """Return what `quern inspect` lists as supported for the demo model with another configuration."""
    shutil.copytree(DEMO, model)
    config = json.loads((model / "config.json").read_text())
    change(config)
    (model / "config.json").write_text(json.dumps(config))
    return re.search(r"supported: ([^)]*)\)", run("inspect", model, "--no-probe").stderr).group(1)


def test_quantizations(run, tmp_path):
    names = supported(run, tmp_path / "m", lambda c: c.update(quantization_config={"quant_method": "no_such"}))
    listed = [c for r in rows(section(MODELS, "Quantizations")) for c in codes(r[0])]
    assert listed == names.split(", ")


def test_types_of_gguf():
    floats = re.search('#define FLOATS *"([^"]*)"', (ROOT / "formats" / "gguf_weights.c").read_text()).group(1)
    coded = re.findall(r"^\t(?:READ|WRITE)\(\d+, (\w+),", (ROOT / "base" / "block_types.h").read_text(), re.M)
    listed = codes(section(MODELS, "Types of GGUF").split("They may be mixed")[0])
    assert listed == [*floats.split(", "), *coded]


def test_counters():
    """docs/PROTOCOL.md has each counter of `status`, docs/OPTIONS.md each that is a metric."""
    table = (ROOT / "proto" / "counts.h").read_text()
    keys, metrics = (re.findall(rf'\.{field} = "(\w+)"', table) for field in ("key", "metric"))
    assert len(keys) > 20 and len(metrics) > 10
    status = (ROOT / "docs" / "PROTOCOL.md").read_text().split("A row of `replicas` has")[1].split("A row of `workers`")[0]
    assert set(keys) <= set(re.findall(r"\w+", status)), set(keys) - set(re.findall(r"\w+", status))
    listed = codes(section((ROOT / "docs" / "OPTIONS.md").read_text(), "Metrics"))
    assert set(metrics) <= set(listed), set(metrics) - set(listed)


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


def test_defaults_of_serve(run):
    """The column "default" of docs/OPTIONS.md has the value that `quern serve --help` names."""
    text = (ROOT / "docs" / "OPTIONS.md").read_text()
    shown = dict(re.findall(r"^ +(?:-\w, )?--([\w-]+) .*\(default (.*)\)$", run("serve", "--help").stdout, re.M))
    rows_ = {c.split()[0].lstrip("-"): r[1].replace("`", "") for r in rows(section(text, "Options of `quern serve`")) for c in codes(r[0])}
    plain = {name: words.split(", ")[0] for name, words in shown.items() if re.fullmatch(r"[\w:./-]+", words.split(", ")[0])}
    wrong = [f"--{name}: {rows_[name]!r} is written, {value!r} is the default" for name, value in plain.items()
             if re.split(r"[,;]? (?!\d)|[,;]$", re.sub(r"(?<=\d),(?=\d)", "", rows_[name]))[0].rstrip(",;") != value]
    assert len(plain) > 30 and not wrong, "\n".join(wrong)
