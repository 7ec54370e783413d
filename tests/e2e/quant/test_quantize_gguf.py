"""`quern quantize` and `quern convert` of GGUF files: the result has the blocks and keys of the same model quantized from
its directory. And importance matrices. Files are read by numpy here."""

import json
import struct
import subprocess
import sys

import numpy as np
import pytest

from model_files import gguf, safetensors, write_gguf
from service import QUERN, ROOT

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_model  # noqa: E402
from make_model import family, llama, qwen3  # noqa: E402

CONFIG = qwen3(256, 512, 2, 4, 2, 331, 128, head_dim=64)
F32, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K, IQ4_XS, BF16 = 0, 8, 2, 12, 13, 14, 23, 30
KINDS = {"q8_0": Q8_0, "q4_0": Q4_0, "q4_k": Q4_K, "q5_k": Q5_K, "q6_k": Q6_K, "iq4_xs": IQ4_XS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp("gguf")
    make_model.make(str(d / "qwen3"), CONFIG, "BF16", 1)
    make_model.make(str(d / "llama"), llama(256, 512, 1, 4, 2, 331, 128), "F32", 1)
    shape = dict(head_dim=64, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=256, norm_topk_prob=True)
    make_model.make(str(d / "mixture"), family("Qwen3MoeForCausalLM", "qwen3_moe", 256, 512, 1, 4, 2, 331, 128, **shape), "F16", 1)
    return d


def command(run, *words):
    r = run(*words)
    assert (r.returncode, r.stdout) == (0, ""), r.stderr


@pytest.fixture(scope="module")
def as_floats(folder):
    for name in ("qwen3", "llama", "mixture"):
        subprocess.run([QUERN, "convert", folder / name, folder / f"{name}.gguf", "--to", "gguf"], check=True)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["qwen3", "llama", "mixture"])
def test_a_file_gives_what_its_directory_gives(run, as_floats, tmp_path, name, kind):
    command(run, "quantize", as_floats / name, tmp_path / "a.gguf", "--type", kind)
    command(run, "quantize", as_floats / f"{name}.gguf", tmp_path / "b.gguf", "--type", kind)
    (keys, want), (got_keys, got) = gguf(tmp_path / "a.gguf"), gguf(tmp_path / "b.gguf")
    assert keys == got_keys and list(got_keys)[0] == "general.architecture"
    assert want.keys() == got.keys() and not [n for n in want if want[n] != got[n]]
    assert got["blk.0.attn_q.weight"][0] == KINDS[kind]


def q8_0_floats(t):
    _, shape, raw = t
    b = np.frombuffer(raw, np.uint8).reshape(-1, 34)
    d = b[:, :2].copy().view(np.float16).astype(np.float32)
    return (b[:, 2:].view(np.int8).astype(np.float32) * d).reshape(shape)


def test_q8_0_is_quantized_as_its_values(run, as_floats, tmp_path):
    command(run, "quantize", as_floats / "qwen3", tmp_path / "q8.gguf", "--type", "q8_0")
    command(run, "quantize", tmp_path / "q8.gguf", tmp_path / "got.gguf", "--type", "q5_k")
    keys, tensors = gguf(tmp_path / "q8.gguf")
    floats = {n: (F32, t[1], q8_0_floats(t).tobytes()) if t[0] == Q8_0 else t for n, t in tensors.items()}
    keys.pop("general.file_type")
    write_gguf(tmp_path / "f32.gguf", {k: v for k, v in keys.items() if not k.startswith("quern.")}, floats)
    command(run, "quantize", tmp_path / "f32.gguf", tmp_path / "want.gguf", "--type", "q5_k")
    got, want = gguf(tmp_path / "got.gguf")[1], gguf(tmp_path / "want.gguf")[1]
    assert not [n for n in want if want[n] != got[n]] and got["blk.1.ffn_up.weight"][0] == Q5_K
    r = run("run", tmp_path / "got.gguf", "Once", "--raw", "--temperature", "0", "-m", "8")
    assert r.returncode == 0 and r.stdout, r.stderr


def test_shards_become_one_file(run, as_floats, tmp_path):
    keys, tensors = gguf(as_floats / "llama.gguf")
    names = sorted(tensors)
    for i, some in enumerate((names[:5], names[5:9], names[9:])):
        split = {"split.no": i, "split.count": 3, "split.tensors.count": len(names)}
        write_gguf(tmp_path / f"m-0000{i + 1}-of-00003.gguf", (keys if i == 0 else {}) | split, {n: tensors[n] for n in some})
    command(run, "convert", tmp_path / "m-00001-of-00003.gguf", tmp_path / "one.gguf", "--to", "gguf")
    command(run, "quantize", tmp_path / "m-00002-of-00003.gguf", tmp_path / "q.gguf", "--type", "q4_k")
    command(run, "quantize", as_floats / "llama.gguf", tmp_path / "want.gguf", "--type", "q4_k")
    one_keys, one = gguf(tmp_path / "one.gguf")
    assert one_keys == keys and one == tensors
    assert gguf(tmp_path / "q.gguf") == gguf(tmp_path / "want.gguf")


def test_a_file_of_4_bits_is_not_quantized_again(run, as_floats, tmp_path):
    command(run, "quantize", as_floats / "qwen3.gguf", tmp_path / "q4.gguf", "--type", "q4_0")
    r = run("quantize", tmp_path / "q4.gguf", tmp_path / "out.gguf", "--type", "q4_k")
    assert r.returncode == 1 and "is Q4_0: quantize the model that it was made of" in r.stderr and "blk.0." in r.stderr
    assert not list(tmp_path.glob("out*"))
    command(run, "quantize", tmp_path / "q4.gguf", tmp_path / "same.gguf", "--type", "q4_0")
    assert gguf(tmp_path / "same.gguf") == gguf(tmp_path / "q4.gguf")


def test_parts_are_kept_by_either_name(run, as_floats, tmp_path):
    for i, pattern in enumerate(("ffn_down", "down_proj")):
        command(run, "quantize", as_floats / "mixture.gguf", tmp_path / f"{i}.gguf", "--type", "q8_0", "--keep", pattern)
    a, b = gguf(tmp_path / "0.gguf"), gguf(tmp_path / "1.gguf")
    assert a == b and a[1]["blk.0.ffn_down_exps.weight"][0] == 1 and a[1]["blk.0.ffn_up_exps.weight"][0] == Q8_0


def strip(linear):
    """Without the name, which is the one of the source's layout."""
    return {k: v for k, v in linear.items() if k != "name"}


def test_a_file_is_measured(run, as_floats, tmp_path):
    text = tmp_path / "text"
    text.write_text("The small dog ran to the tree. " * 40)
    reports = []
    for source in ("qwen3", "qwen3.gguf"):
        report = tmp_path / f"{source}.json"
        r = run("quantize", as_floats / source, tmp_path / f"{source}.q.gguf", "--type", "iq4_xs", "--eval", text, "--eval-tokens", "100",
                "--report", report, "--keep-worst", "1")
        assert r.returncode == 0, r.stderr
        reports.append(json.loads(report.read_text()))
    assert [strip(x) for x in reports[0]["linears"]] == [strip(x) for x in reports[1]["linears"]]
    assert sum(x["kept"] for x in reports[0]["linears"]) == 1 and reports[0]["network"] == reports[1]["network"]
    assert gguf(tmp_path / "qwen3.q.gguf")[1] == gguf(tmp_path / "qwen3.gguf.q.gguf")[1]


@pytest.mark.parametrize("kind", ["int8", "awq4"])
def test_types_of_directories_need_a_directory(run, as_floats, tmp_path, kind):
    options = ["--calibrate", __file__] if kind == "awq4" else []
    r = run("quantize", as_floats / "qwen3.gguf", tmp_path / "out", "--type", kind, *options)
    assert r.returncode == 1 and len(r.stderr.splitlines()) == 1, r.stderr
    assert not list(tmp_path.glob("out*"))


# --- importance matrices ---

def read_imatrix(path):
    """{tensor: (sums [parts, k], counts [parts])}"""
    keys, tensors = gguf(path)
    assert keys["general.type"] == "imatrix"
    f = {n: np.frombuffer(t[2], np.float32).reshape(t[1]) for n, t in tensors.items()}
    return keys, {n.removesuffix(".in_sum2"): (f[n], f[n.replace("in_sum2", "counts")][:, 0]) for n in f if n.endswith(".in_sum2")}


def write_legacy(path, entries, calls=3):
    """The older format, which has the means times the calls."""
    out = struct.pack("<i", len(entries))
    for name, (sums, counts) in entries.items():
        means = (sums / np.where(counts > 0, counts, 1)[:, None]).astype(np.float32)
        out += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", calls, sums.size)
        out += (means * np.float32(calls)).astype(np.float32).tobytes()
    path.write_bytes(out + struct.pack("<ii", 2, 4) + b"text")


TEXT = "The small dog ran to the tree. She said: look, a bird! " * 60
TOKENS = 300


@pytest.fixture(scope="module")
def calibrated(as_floats):
    """Each model quantized by its own statistic, which is saved."""
    (as_floats / "text").write_text(TEXT)
    for name in ("qwen3", "mixture"):
        subprocess.run([QUERN, "quantize", as_floats / name, as_floats / f"{name}.iq4.gguf", "--type", "iq4_xs", "--calibrate",
                        as_floats / "text", "--tokens", str(TOKENS), "--save-imatrix", as_floats / f"{name}.imatrix"], check=True)
    return as_floats


def test_the_statistic_is_the_mean_square_of_inputs(run, calibrated):
    """Of the first layer: q, k and v read the normalized embeddings."""
    r = run("tokenize", calibrated / "qwen3", "--ids", "--add-special", input=TEXT)
    ids = np.array(r.stdout.split(), int)[:TOKENS]
    context = CONFIG["max_position_embeddings"]
    w = {n: (np.frombuffer(t[2], np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(t[1])
         for n, t in safetensors(calibrated / "qwen3").items()}
    x = w["model.embed_tokens.weight"][ids].astype(np.float64)
    x /= np.sqrt((x * x).mean(axis=1, keepdims=True) + CONFIG["rms_norm_eps"])
    x *= w["model.layers.0.input_layernorm.weight"]
    keys, entries = read_imatrix(calibrated / "qwen3.imatrix")
    assert keys["imatrix.chunk_size"] == min(context, 512) and keys["imatrix.chunk_count"] == -(-TOKENS // min(context, 512))
    assert keys["imatrix.datasets"] == [str(calibrated / "text")]
    for part in "qkv":
        sums, counts = entries[f"blk.0.attn_{part}.weight"]
        assert counts.tolist() == [TOKENS] and np.allclose(sums[0], (x * x).sum(axis=0), rtol=1e-4)
    assert len(entries) == 2 * 7 and entries["blk.1.ffn_down.weight"][0].shape == (1, 512)


def test_experts_have_a_part_each(run, calibrated):
    _, entries = read_imatrix(calibrated / "mixture.imatrix")
    for part, k in (("gate", 256), ("up", 256), ("down", 256)):
        sums, counts = entries[f"blk.0.ffn_{part}_exps.weight"]
        assert sums.shape == (3, k) and counts.sum() == 2 * TOKENS and (sums > 0).all()
    keys, _ = gguf(calibrated / "mixture.iq4.gguf")
    assert keys["quantize.imatrix.entries_count"] == len(entries) and keys["quantize.imatrix.chunks_count"] == 3


@pytest.mark.parametrize("name", ["qwen3", "mixture"])
def test_a_saved_matrix_gives_the_same_blocks(run, calibrated, tmp_path, name):
    _, want = gguf(calibrated / f"{name}.iq4.gguf")
    _, entries = read_imatrix(calibrated / f"{name}.imatrix")
    write_legacy(tmp_path / "legacy.dat", {n: (s, np.ones(len(c))) for n, (s, c) in entries.items()}, calls=1)
    for i, matrix in enumerate((calibrated / f"{name}.imatrix", tmp_path / "legacy.dat")):
        command(run, "quantize", calibrated / f"{name}.gguf", tmp_path / f"{i}.gguf", "--type", "iq4_xs", "--imatrix", matrix)
        keys, got = gguf(tmp_path / f"{i}.gguf")
        assert keys["quantize.imatrix.file"] == str(matrix)
        if i == 0:
            assert got == want
        else:           # sums without a count: the same proportions, so nearly all blocks are the same
            assert sum(got[n] == want[n] for n in want) > len(want) // 2
    command(run, "quantize", calibrated / f"{name}.gguf", tmp_path / "plain.gguf", "--type", "iq4_xs")
    plain = gguf(tmp_path / "plain.gguf")[1]
    assert {n for n in want if want[n] != plain[n]} == {n for n in entries if n in want}


@pytest.mark.parametrize("options, message", [
    (("--type", "q8_0", "--imatrix", "m"), "--imatrix goes with --type q4_k, q5_k, q6_k or iq4_xs"),
    (("--type", "q4_0", "--calibrate", "m"), "--calibrate goes with --type awq4, q4_k, q5_k, q6_k or iq4_xs"),
    (("--type", "q4_k", "--group", "64"), "--group goes with --type awq4"),
    (("--type", "q4_k", "--imatrix", "m", "--calibrate", "t"), "--imatrix does not go with --calibrate"),
    (("--type", "q4_k", "--imatrix", "m", "--save-imatrix", "o"), "--save-imatrix needs a text"),
    (("--type", "q4_k", "--tokens", "20"), "--tokens needs a text")])
def test_options_that_do_not_go_together(run, as_floats, tmp_path, options, message):
    r = run("quantize", as_floats / "qwen3.gguf", tmp_path / "out.gguf", *options)
    assert r.returncode == 2 and message in r.stderr, r.stderr


def test_a_matrix_of_another_model_is_refused(run, calibrated, tmp_path):
    _, entries = read_imatrix(calibrated / "qwen3.imatrix")
    write_legacy(tmp_path / "narrow", {"blk.0.attn_k.weight": (np.ones((1, 128)), np.ones(1))})
    write_legacy(tmp_path / "other", {"blk.7.attn_k.weight": (np.ones((1, 256)), np.ones(1))})
    (tmp_path / "cut").write_bytes((calibrated / "qwen3.imatrix").read_bytes()[:-64])
    for matrix, message in (("narrow", "128 values for tensor blk.0.attn_k.weight, which has 256 inputs"),
                            ("other", "other has no entry for any matrix of the model"),
                            ("cut", "cut: "), ("none", "none: ")):
        r = run("quantize", calibrated / "qwen3.gguf", tmp_path / "out.gguf", "--type", "q4_k", "--imatrix", tmp_path / matrix)
        assert r.returncode == 1 and message in r.stderr and len(r.stderr.splitlines()) == 1, r.stderr
        assert not list(tmp_path.glob("out*"))
    r = run("quantize", calibrated / "qwen3.gguf", tmp_path / "out.gguf", "--type", "q4_k", "--calibrate", calibrated / "text")
    assert r.returncode == 1 and "--tokens asks for 32768" in r.stderr, r.stderr
