"""`quern inspect MODEL --graph` draws the tensors of the model's files that a step reads."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from service import BIN, DEMO, ROOT

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_model  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def model_of(kind, folder):
    if kind == "demo":
        return DEMO
    if kind == "gguf":
        out = folder / "tiny.gguf"
        subprocess.run([sys.executable, ROOT / "tests/tools/make_gguf.py", out, "--type", "Q6_K", "--shape", "tiny"], check=True)
        return out
    out = folder / kind
    config, dtype = make_model.TINY[kind]
    make_model.make(str(out), config, dtype.upper(), seed=1)
    return out


def operations(model):
    r = subprocess.run([BIN / "quern-worker", "--operations", model], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def tensors_of(weight, tensors):
    """Return the names of the tensors that hold a weight: W.weight, W.qweight, W.experts.3..., W_blocks for all
    experts."""
    name = weight["name"] if weight["name"] != "embed_tokens" else "(model.)?(embed_tokens|token_embd)"
    at = re.compile(re.sub(r"\\?\.\*$", "", name).replace("experts.*", r"experts\.\d+") + r"[._](weight|bias|qweight|qzeros|scales|blocks)$")
    return {t for t in tensors if at.match(t)}


def draw(run, model, out, *options):
    r = run("inspect", model, "--graph", out, *options)
    assert r.returncode == 0, r.stderr
    return out.read_text()


def rows(svg):
    """Return the texts of the rows by position: {y: [name, shape, type, bytes, error]}."""
    at = {}
    for t in ElementTree.fromstring(svg).iter(SVG + "text"):
        at.setdefault(int(t.get("y")), []).append("".join(t.itertext()))
    return list(at.values())


@pytest.mark.parametrize("kind", ["demo", "gguf", "llama3", "gemma3", "olmo2", "qwen2-moe", "glm4-moe", "gpt-oss-tp"])
def test_operations_read_the_weights_of_the_files(run, tmp_path, kind):
    model = model_of(kind, tmp_path)
    shown = json.loads(run("inspect", model, "--json", "--tensors", "--no-probe").stdout)
    tensors = {t["name"]: t for t in shown["tensors"]}
    listed = operations(model)
    assert listed["layers"] == shown["layers"]
    found, total = set(), 0
    linear = {}     # gpt-oss uses one name for several weights; a tied head is the embedding
    for op in listed["operations"]:
        for w in op["weights"]:
            if len(w["shape"]) == 2 and not (op["op"] == "linear" and w["name"] == "embed_tokens"):
                linear.setdefault(w["name"], []).append(w)
    for name, parts in linear.items():
        of = tensors_of(parts[0], tensors)
        assert of, name
        assert sum(w["bytes"] for w in parts) == sum(tensors[t]["bytes"] for t in of), name
        found |= of
        total += sum(w["bytes"] for w in parts)
    rest = [t for name, t in tensors.items() if name not in found]
    assert all(len(t["shape"]) == 1 for t in rest), [t["name"] for t in rest]
    assert total + sum(t["bytes"] for t in rest) == shown["memory"]["weights"]


@pytest.mark.parametrize("kind,parts", [("phi3", ["self_attn.qkv_proj: q", "self_attn.qkv_proj: k", "self_attn.qkv_proj: v",
                                                  "self_attn.o_proj", "mlp.gate_up_proj: gate", "mlp.gate_up_proj: up", "mlp.down_proj"]),
                                        ("gpt-oss-tp", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                                        "mlp.router", "mlp.experts.gate_up_proj.*: gate",
                                                        "mlp.experts.gate_up_proj.*: up", "mlp.experts.down_proj.*"])])
def test_parts_of_one_tensor_are_told_apart(run, tmp_path, kind, parts):
    model = model_of(kind, tmp_path)
    names = [r[0] for r in rows(draw(run, model, tmp_path / "out.svg")) if len(r) > 1 and ("_proj" in r[0] or "router" in r[0])]
    assert names[:len(parts)] == parts
    assert "gate_up_proj" in draw(run, model, tmp_path / "out.dot") and len(set(names[:len(parts)])) == len(parts)


@pytest.mark.parametrize("kind", ["demo", "qwen2-moe", "gpt-oss-tp"])
def test_data_goes_from_an_operation_to_those_that_read_it(tmp_path, kind):
    listed = operations(model_of(kind, tmp_path))["operations"]
    read = {d["from"] for op in listed for d in op["in"]}
    for i, op in enumerate(listed):
        for d in op["in"]:
            assert {k: v for k, v in d.items() if k != "from"} in listed[d["from"]]["out"] and d["from"] < i
        assert op["in"] or i == 0
    assert read == set(range(len(listed) - 1))      # the last row is the logits
    assert listed[-1]["out"][0]["name"] == "logits" and listed[-1]["out"][0]["shape"][0] == "L"
    layers = [op["layer"] for op in listed if "layer" in op]
    assert layers == sorted(layers)
    for n in set(layers):
        ops = [op["op"] for op in listed if op.get("layer") == n]
        assert ops[:2] == ["rmsnorm", "linear"] and ops.count("attention") == 1 and ops[-1] in ("linear", "moe")


def test_equal_layers_are_drawn_once(run, tmp_path):
    svg, dot = (draw(run, DEMO, tmp_path / f"out.{suffix}") for suffix in ("svg", "dot"))
    shown = rows(svg)
    assert ["layers 2 to 4, as layer 1"] in shown
    assert [r[0] for r in shown].count("self_attn.q_proj") == 2
    assert ["mlp.down_proj", "256 x 512", "AWQ g32", "74 KiB", ""] in shown
    nodes, edges = set(re.findall(r"^\tn(\d+) \[", dot, re.M)), re.findall(r"n(\d+) -> n(\d+)", dot)
    assert edges and {n for e in edges for n in e} == nodes and len(nodes) == svg.count('class="box"') + svg.count('class="fold"')
    assert dot.count("{") == dot.count("}") and "layers 2 to 4" in dot


def types(model):
    return {w["type"] for op in operations(model)["operations"] for w in op["weights"] if len(w["shape"]) == 2}


@pytest.mark.parametrize("kind", ["Q6_K", "Q4_K", "Q8_0", "IQ4_XS"])
def test_a_type_of_gguf_has_its_own_name(tmp_path, kind):
    """Types of matrices, of the embedding, and of the head tied to it."""
    subprocess.run([sys.executable, ROOT / "tests/tools/make_gguf_family.py", f"llama-{kind}", tmp_path / "m.gguf"], check=True)
    found = types(tmp_path / "m.gguf")
    assert kind in found and not any("bit" in t or " g" in t for t in found), found


def test_a_type_of_a_directory_says_its_bits_and_groups(run, tmp_path):
    make_model.make(str(tmp_path / "floats"), make_model.TINY["llama3"][0], "F32", 1)
    for kind, name in (("fp8", "F8_E4M3"), ("int8", "8-bit")):
        r = run("quantize", tmp_path / "floats", tmp_path / kind, "--type", kind)
        assert r.returncode == 0, r.stderr
        assert name in types(tmp_path / kind), types(tmp_path / kind)


def test_the_type_of_experts_in_a_gguf_file_is_named(run, tmp_path):
    config = make_model.TINY["qwen3-moe"][0] | {"mlp_only_layers": [], "hidden_size": 128, "moe_intermediate_size": 64}
    make_model.make(str(tmp_path / "floats"), config, "F32", 1)
    r = run("quantize", tmp_path / "floats", tmp_path / "m.gguf", "--type", "q8_0")
    assert r.returncode == 0, r.stderr
    assert types(tmp_path / "m.gguf") == {"Q8_0", "F32"}      # routers are F32


def test_layers_in_turns_are_drawn_once(run, tmp_path):
    config, dtype = make_model.TINY["gpt-oss-tp"]
    config = dict(config, num_hidden_layers=9, layer_types=["sliding_attention", "full_attention"] * 4 + ["sliding_attention"])
    make_model.make(str(tmp_path / "long"), config, dtype.upper(), seed=1)
    shown = rows(draw(run, tmp_path / "long", tmp_path / "out.svg"))
    assert ["layers 3 to 8, as layers 1 to 2, in turn"] in shown
    assert [r[0] for r in shown].count("self_attn.q_proj") == 3


def report_of(model, db):
    """Write a report as the quantizer does. db(name) is a number, or None for a weight that is kept."""
    linears = []
    for op in operations(model)["operations"]:
        for w in op["weights"]:
            for e in range(w.get("count", 1)) if len(w["shape"]) == 2 and "layer" in op and op["op"] != "route" else ():
                name = w["name"].replace("*", str(e))
                error = db(f"{name}: {w['part']}" if "part" in w else name)
                linears.append({"name": name, **({"part": w["part"]} if "part" in w else {}), "layer": op["layer"], "kept": error is None,
                                "weights": {"snr_db": 3}, "outputs": {"snr_db": error or 2}})
    return json.dumps({"source": "its model", "linears": linears})


def test_errors_are_colours_of_the_parts_that_have_them(run, tmp_path):
    report = tmp_path / "report.json"
    errors = {"model.layers.3.mlp.up_proj": 12.34, "model.layers.3.self_attn.o_proj": None}
    report.write_text(report_of(DEMO, lambda name: errors.get(name, 22)))
    svg = draw(run, DEMO, tmp_path / "out.svg", "--errors", report)
    shown = rows(svg)
    assert ["mlp.up_proj", "512 x 256", "AWQ g32", "74 KiB", "12.3 dB"] in shown
    assert ["self_attn.o_proj", "256 x 256", "AWQ g32", "37 KiB", "kept in floats"] in shown
    assert "as layer 1" in svg.replace("layer 2, as layer 1", "as layer 1") and "layer 3, as" not in svg
    fills = [r.get("fill") for r in ElementTree.fromstring(svg).iter(SVG + "rect") if r.get("fill")]
    legend = fills[1:8]     # after the background
    assert [fills[8:].count(c) for c in legend] == [0, 1, 0, 4 * 7 - 2, 0, 0, 1]    # layer 2 equals layer 1
    dot = draw(run, DEMO, tmp_path / "out.dot", "--errors", report)
    assert re.search(rf'BGCOLOR="{legend[1]}">12.3 dB', dot)


def test_parts_of_one_tensor_have_errors_of_their_own(run, tmp_path):
    """Use a report written by the test, then one written by the quantizer."""
    model, report = model_of("phi3", tmp_path), tmp_path / "report.json"
    qkv, gateup = "model.layers.0.self_attn.qkv_proj", "model.layers.1.mlp.gate_up_proj"
    errors = {f"{qkv}: q": 11.5, f"{qkv}: k": None, f"{gateup}: up": 7.5}
    report.write_text(report_of(model, lambda name: errors.get(name, 28)))
    shown = [(r[0], r[-1]) for r in rows(draw(run, model, tmp_path / "out.svg", "--errors", report)) if len(r) > 3]
    want = [("q", "11.5 dB"), ("k", "kept in floats"), ("v", "28.0 dB"), ("q", "28.0 dB"), ("k", "28.0 dB"), ("v", "28.0 dB")]
    assert [r for r in shown if "qkv" in r[0]] == [(f"self_attn.qkv_proj: {part}", db) for part, db in want]
    assert [r[1] for r in shown if r[0] == "mlp.gate_up_proj: up"] == ["28.0 dB", "7.5 dB"]
    (tmp_path / "text").write_text("Once upon a time there was a little girl. " * 40)
    make_model.make(str(tmp_path / "floats"), make_model.TINY["phi3"][0] | {"hidden_size": 128, "intermediate_size": 128}, "F32", 1)
    r = run("quantize", tmp_path / "floats", tmp_path / "m.gguf", "--type", "q4_0", "--eval", tmp_path / "text", "--eval-tokens", "64",
            "--report", report)
    assert r.returncode == 0, r.stderr
    linears = json.loads(report.read_text())["linears"]
    assert [x["part"] for x in linears if x["name"] == qkv] == ["q", "k", "v"]
    shown = [(r[0], r[-1]) for r in rows(draw(run, tmp_path / "floats", tmp_path / "own.svg", "--errors", report)) if len(r) > 3]
    for x in linears:
        name = ".".join(x["name"].split(".")[3:]) + (": " + x["part"] if "part" in x else "")
        assert (name, f"{x['outputs']['snr_db']:.1f} dB") in shown


def test_of_experts_the_worst_error_is_shown(run, tmp_path):
    model, report = model_of("qwen2-moe", tmp_path), tmp_path / "report.json"
    report.write_text(report_of(model, lambda name: 7.5 if ".experts.2.down_proj" in name else 25))
    shown = rows(draw(run, model, tmp_path / "out.svg", "--errors", report))
    assert {r[-1] for r in shown if r[0] == "mlp.experts.*.down_proj"} == {"7.5 dB (worst)"}
    assert {r[-1] for r in shown if r[0] == "mlp.experts.*.up_proj"} == {"25.0 dB (worst)"}


def test_names_are_escaped(run, tmp_path):
    model = tmp_path / os.fsdecode(b'a<b>&"c"\x01\xff')
    model.symlink_to(DEMO)
    svg, dot = (draw(run, model, tmp_path / f"out.{suffix}") for suffix in ("svg", "dot"))
    assert any('a<b>&"c" \ufffd: ' in r[0] for r in rows(svg))
    assert "a&lt;b&gt;&amp;&quot;c&quot;" in dot


MEASURED = """
import resource, subprocess, sys
p = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(p.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_weights_are_not_read(tmp_path):
    """The file has a hole of 400 MB. If it were read, its pages would count as the process's memory."""
    config = dict(make_model.TINY["llama3"][0], hidden_size=1024, intermediate_size=65536, num_hidden_layers=1)
    make_model.make(str(tmp_path / "small"), make_model.TINY["llama3"][0], "BF16", seed=1)
    file, header, at = tmp_path / "small" / "model.safetensors", {}, 0
    heads = config["num_attention_heads"], config["num_key_value_heads"]
    d = config.get("head_dim") or 1024 // heads[0]
    shapes = {"model.embed_tokens": [config["vocab_size"], 1024], "model.norm": [1024], "lm_head": [config["vocab_size"], 1024]}
    shapes |= {f"model.layers.0.{k}": v for k, v in {
        "input_layernorm": [1024], "post_attention_layernorm": [1024], "self_attn.q_proj": [heads[0] * d, 1024],
        "self_attn.k_proj": [heads[1] * d, 1024], "self_attn.v_proj": [heads[1] * d, 1024],
        "self_attn.o_proj": [1024, heads[0] * d], "mlp.gate_proj": [65536, 1024], "mlp.up_proj": [65536, 1024],
        "mlp.down_proj": [1024, 65536]}.items()}
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    (tmp_path / "small" / "config.json").write_text(json.dumps(config))
    text = json.dumps(header).encode()
    with open(file, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + at)
    # Start it from a small process, because the memory of the process that forks counts as the child's.
    p = subprocess.run([sys.executable, "-c", MEASURED, BIN / "quern-worker", "--operations", tmp_path / "small"],
                       capture_output=True, text=True, timeout=60)
    status, kib = map(int, p.stdout.split())
    assert status == 0 and kib < at // 1024 // 2


def test_what_cannot_be_drawn_is_refused_with_a_remedy(run, tmp_path):
    def fails(status, text, *argv):
        r = run("inspect", *argv)
        assert r.returncode == status and text in r.stderr, (r.stdout, r.stderr)
    out, other = tmp_path / "out.svg", tmp_path / "other"
    out.write_text("as it was")
    fails(2, "must end in .svg, .dot or .json", DEMO, "--graph", tmp_path / "out.png")
    fails(2, "must end in .svg, .dot or .json", DEMO, "--graph", ".svg")
    fails(2, "give --graph FILE.svg", DEMO, "--errors", other)
    fails(2, "not a device: name a model", "cpu", "--graph", out)
    fails(2, "not given with --json", DEMO, "--graph", out, "--json")
    fails(1, "no such model", tmp_path / "missing", "--graph", out)
    fails(1, str(other), DEMO, "--graph", out, "--errors", other)
    other.write_text("<html>")
    fails(1, "is not JSON: --errors takes the report", DEMO, "--graph", out, "--errors", other)
    other.write_text('{"linears": [{"layer": 1}, 3, null]}')
    fails(1, "is not a report of the quantizer", DEMO, "--graph", out, "--errors", other)
    report = json.loads(report_of(DEMO, lambda name: 20))
    for linears in (report["linears"][:-7], report["linears"] + [{"name": "model.layers.4.mlp.experts.0.up_proj", "layer": 4}]):
        other.write_text(json.dumps(report | {"linears": linears}))
        fails(1, "is the report of another model (its model)", DEMO, "--graph", out, "--errors", other)
    fails(1, str(tmp_path / "no" / "folder"), DEMO, "--graph", tmp_path / "no" / "folder" / "out.svg")
    assert out.read_text() == "as it was"
    r = subprocess.run([BIN / "quern-worker", "--operations", tmp_path / "missing"], capture_output=True, text=True, timeout=30)
    assert r.returncode == 1 and "missing" in json.loads(r.stdout)["error"]
