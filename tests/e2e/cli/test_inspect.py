"""`quern inspect MODEL`: storage in words, statistics that match numpy's, memory and speed that follow from the
sizes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from service import DEMO, ROOT, SHARED

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_flat  # noqa: E402
import make_gguf  # noqa: E402

AWQ = SHARED / "weights" / "tiny_qwen3-awq-w4g32"
FLAT = ROOT / "tests" / "golden" / "flat"


def inspect(run, model, *options):
    r = run("inspect", model, "--json", *options)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def check(shown, x):
    x = x.astype(np.float64)
    v = shown["values"]
    assert v["count"] == x.size and v["zeros"] == (x == 0).sum() and v["not_finite"] == 0
    for key, want in (("min", x.min()), ("max", x.max()), ("mean", x.mean())):
        assert v[key] == pytest.approx(want, rel=1e-6, abs=1e-9), (shown["name"], key)


def awq_floats(t, name):
    """Read the layout of formats/weights.h."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def columns(words):
        out = np.empty((len(words), words.shape[1] * 8), np.int64)
        for b in range(8):
            out[:, order[b]::8] = words.view("<u4") >> 4 * b & 15
        return out
    q, z, s = columns(t[name + ".qweight"]), columns(t[name + ".qzeros"]), t[name + ".scales"].astype("<f4")
    g = np.arange(len(q)) // (len(q) // len(z))
    return s[g] * (q - z[g]).astype("<f4")


def test_statistics_of_floats_are_numpys(run, stories_model):
    tensors = make_flat.read_safetensors(stories_model)
    shown = inspect(run, stories_model, "--tensors", "--no-probe")["tensors"]
    assert {t["name"] for t in shown} == set(tensors)
    for t in shown:
        assert t["shape"] == list(tensors[t["name"]].shape) and t["bytes"] == tensors[t["name"]].nbytes
        check(t, tensors[t["name"]])


def test_statistics_of_awq_are_of_its_dequantized_values(run):
    if not AWQ.is_dir():
        pytest.skip("the AWQ weights are not there")
    tensors = make_flat.read_safetensors(AWQ)
    n = 0
    for t in inspect(run, AWQ, "--tensors", "--no-probe")["tensors"]:
        if t["name"].endswith(".qweight"):
            check(t, awq_floats(tensors, t["name"].removesuffix(".qweight")))
            n += 1
        elif t["name"].endswith(".qzeros"):
            assert "values" not in t
    assert n == 14


@pytest.mark.parametrize("form", ["llama2c2", "llama2c2-head", "kuiper"])
def test_statistics_of_codes_are_of_their_dequantized_values(run, form):
    shown = {t["name"]: t for t in inspect(run, FLAT / f"{form}.bin", "--tensors", "--no-probe")["tensors"]}
    data, name = (FLAT / f"{form}.bin").read_bytes(), "layers.0.wq"
    at = 32 if form == "kuiper" else 256 + 4 * 16 * 5 + (40 * 16 + 40 * 16 // 8 * 4)    # the header, norms, the embedding
    q = np.frombuffer(data, np.int8, 256, at).reshape(-1, 8).astype("<f4")
    scale = np.frombuffer(data, "<f4", 32, at + 256)
    check(shown[name + ".weight"], q * scale[:, None])


def test_values_that_are_not_finite_are_counted(run, stories_model, tmp_path):
    tensors = dict(make_flat.read_safetensors(stories_model))
    x = tensors["model.norm.weight"].copy()
    x[[3, 4, 5]] = np.nan, np.inf, -np.inf
    make_flat.write_safetensors(tmp_path / "model.safetensors", tensors | {"model.norm.weight": x})
    for f in stories_model.glob("*.json"):
        (tmp_path / f.name).write_bytes(f.read_bytes())
    (t,) = [t for t in inspect(run, tmp_path, "--tensors", "--no-probe")["tensors"] if t["name"] == "model.norm.weight"]
    assert t["values"]["not_finite"] == 3 and np.isfinite([t["values"][k] for k in ("min", "max", "mean")]).all()
    assert "3 not finite" in run("inspect", tmp_path, "--tensors", "--no-probe").stdout


def test_storage_is_told_in_words(run):
    shown = inspect(run, DEMO, "--no-probe")
    (s,) = shown["storage"]
    assert (s["layers"], s["bits"], s["group"], s["zeros"]) == (35, 4, 32, "stored")
    text = run("inspect", DEMO, "--no-probe").stdout
    assert "35 linear layers in 4 bits (AWQ), a scale and a zero per 32 inputs; 4.62 bits per weight" in text
    text = run("inspect", FLAT / "llama2c2-crossed.bin", "--no-probe").stdout
    assert "in F32" in text and "in 8 bits" in text


def tiny(tmp_path, name):
    subprocess.run([sys.executable, ROOT / "tests/tools/make_model.py", tmp_path / name, "--tiny", name], check=True)
    return tmp_path / name


def test_types_of_a_mixed_quantization_are_named(run, tmp_path):
    model = tiny(tmp_path, "llama-mixed")
    q = inspect(run, model, "--no-probe")["quantization"]
    assert (q["method"], q["layers"], q["not_imitated"]) == ("mixed-precision", 14, [])
    assert {(t["type"], t["bits"], t["group"]) for t in q["types"]} == {("FP8", 8, -1), ("INT", 4, 32), ("NVFP4", 4, 16)}
    text = run("inspect", model, "--no-probe").stdout
    assert "NVFP4, 4 bits, groups of 16" in text and "4 linear layers in 4 bits (NVFP4)" in text


def test_what_is_not_imitated_is_named(run, tmp_path):
    model = tiny(tmp_path, "qwen3-moe-nvfp4")
    path = model / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["kv_cache_scheme"] = {"num_bits": 8, "type": "float"}
    path.write_text(json.dumps(config))
    assert inspect(run, model, "--no-probe")["quantization"]["not_imitated"] == ["activations as 4-bit float",
                                                                                "the KV cache's own type"]
    assert "not imitated  activations as 4-bit float: --compute" in run("inspect", model, "--no-probe").stdout


def test_memory_follows_from_the_sizes(run):
    shown = inspect(run, DEMO, "--no-probe")
    m, by = shown["memory"], shown["memory_by_context"]
    assert by["contexts"] == [1024, 2048]
    for i, context in enumerate(by["contexts"]):
        for j, batch in enumerate(by["batches"]):
            assert by["bytes"][i][j] == m["loaded"][m["compute"]] + m["kv_per_token"] * context * batch
    assert "tokens_per_second" not in shown["speed"] and shown["speed"]["bytes_per_token"] > 0


def test_a_tied_embedding_that_is_held_twice_is_told(run, tmp_path):
    assert list(inspect(run, DEMO, "--no-probe")["memory"]["second_copies"]) == ["int8"]
    text = run("inspect", DEMO, "--no-probe").stdout
    assert "--compute int8 takes" in text and "for a second copy of the embedding: its rows are read as they are stored" in text
    gguf = tmp_path / "q6k.gguf"
    subprocess.run([sys.executable, ROOT / "tests/tools/make_gguf.py", gguf, "--type", "Q6_K", "--shape", "tiny"], check=True)
    assert make_gguf.key("general.file_type", 18) in gguf.read_bytes(), "peers of quern open no file without it"
    assert inspect(run, gguf, "--no-probe")["memory"]["second_copies"] == {"bf16": 512 * 256 * 2}    # Q6_K becomes BF16 there
    assert "which the head has in the order of BF16 products" in run("inspect", gguf, "--no-probe").stdout
    assert inspect(run, FLAT / "llama2c2-head.bin", "--no-probe")["memory"]["second_copies"] == {}


@pytest.mark.parametrize("kind,compute", [("demo", "int8"), ("Q2_K", "int16"), ("Q6_K", "bf16"), ("IQ4_NL", "f32"),
                                          ("qwen3-nvfp4", "int16"), ("llama-mxfp4", "bf16"), ("qwen3-nf4", "int8")])
def test_what_a_worker_holds_is_what_inspect_says(run, tmp_path, kind, compute):
    model = DEMO
    if "-" in kind:
        model = tiny(tmp_path, kind)
    elif kind != "demo":
        model = tmp_path / f"{kind}.gguf"
        subprocess.run([sys.executable, ROOT / "tests/tools/make_gguf.py", model, "--type", kind, "--shape", "tiny"], check=True)
    memory = inspect(run, model, "--no-probe")["memory"]
    p = run("bench", "engine", model, "--batch", "1", "--prompt-tokens", "4", "--max-tokens", "2", "--runs", "1", "--no-steps",
            "--json", "--compute", compute)
    assert p.returncode == 0, p.stderr
    assert memory["loaded"][compute] == json.loads(p.stdout)["weights_bytes"]
    assert "when loaded" in run("inspect", model, "--no-probe").stdout


def test_speed_follows_from_the_bandwidth(run):
    shown = inspect(run, DEMO)
    s, kv = shown["speed"], shown["memory"]["kv_per_token"]
    assert s["compute"] == shown["memory"]["compute"] and s["mode"].startswith(s["compute"])
    for batch, rate in s["tokens_per_second"].items():
        n = int(batch)
        assert rate == pytest.approx(n * s["bandwidth"] / (s["bytes_per_token"] + n * kv * 1024), rel=1e-6)
    text = run("inspect", DEMO).stdout
    assert "tokens/s of 1 sequence" in text and s["mode"] in text


def test_a_tied_head_is_one_with_the_embedding(run):
    tied, apart = (inspect(run, FLAT / f, "--no-probe")["parameters"] for f in ("llama2c2.bin", "llama2c2-head.bin"))
    assert apart - tied == 40 * 16
