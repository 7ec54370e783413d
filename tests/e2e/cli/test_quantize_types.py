"""`quern quantize` to types that round to nearest: the files are compared with those of other programs and with the
specifications, and the models are served."""

import json
import struct
import sys

import numpy as np
import pytest

from model_files import gguf, safetensors
from service import DEMO, ROOT, SHARED

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_model  # noqa: E402
from make_model import family, qwen3  # noqa: E402

WEIGHTS = SHARED / "weights"
CONFIG = qwen3(256, 512, 2, 4, 2, 331, 128, head_dim=64)
F32, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K, IQ4_XS = 0, 8, 2, 12, 13, 14, 23


def made(folder, dtype="BF16", **config):
    make_model.make(str(folder), CONFIG | config, dtype, 1)
    return folder


def quantize(run, src, dst, kind):
    r = run("quantize", src, dst, "--type", kind)
    assert (r.returncode, r.stdout) == (0, ""), r.stderr
    return dst


def story(run, model):
    r = run("run", model, "Once upon a time", "--raw", "--temperature", "0", "-m", "32")
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_a_file_has_the_blocks_of_another_programs(run, tmp_path, kind):
    want_path = WEIGHTS / "stories260K-gguf" / f"stories260K-{kind}.gguf"
    if not want_path.exists():
        pytest.skip("the GGUF files of stories260K are not there")
    _, found = gguf(quantize(run, WEIGHTS / "stories260K-hf-f32", tmp_path / "m.gguf", kind))
    _, want = gguf(want_path)
    assert found.keys() == want.keys()
    # The embedding is the output head, and has a finer type here.
    assert [n for n in want if found[n] != want[n]] == (["token_embd.weight"] if kind == "q4_0" else [])
    assert story(run, tmp_path / "m.gguf").startswith(", there was a little girl named Lily.")


@pytest.mark.parametrize("kind, matrix, head", [("q8_0", Q8_0, Q8_0), ("q4_0", Q4_0, Q6_K), ("q4_k", Q4_K, Q6_K), ("q5_k", Q5_K, Q6_K), ("q6_k", Q6_K, Q6_K),
                                                ("iq4_xs", IQ4_XS, Q6_K)])
def test_the_head_of_a_4_bit_file_is_finer(run, tmp_path, kind, matrix, head):
    for tied in (False, True):
        src = made(tmp_path / f"src{tied}", tie_word_embeddings=tied)
        keys, tensors = gguf(quantize(run, src, tmp_path / f"m{tied}.gguf", kind))
        kinds = {n: t[0] for n, t in tensors.items()}
        assert kinds.pop("token_embd.weight") == (head if tied else matrix)
        assert kinds.pop("output.weight", head) == head
        for name, t in kinds.items():
            assert t == (F32 if "norm" in name else matrix), name
        assert keys["general.quantization_version"] == 2
        story(run, tmp_path / f"m{tied}.gguf")


def test_a_value_that_cannot_be_rounded_is_named(run, tmp_path):
    src = made(tmp_path / "src", "F32")
    path = src / "model.safetensors"
    data = bytearray(path.read_bytes())
    n = int.from_bytes(data[:8], "little")
    at = 8 + n + json.loads(data[8:8 + n])["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0] + 40
    for value, word in ((float("nan"), "nan"), (float("inf"), "inf"), (1e6, "1000000")):
        data[at:at + 4] = struct.pack("<f", value)
        path.write_bytes(data)
        r = run("quantize", src, tmp_path / "m.gguf", "--type", "q8_0")
        assert r.returncode == 1 and "model.layers.1.mlp.up_proj.weight has the value " + word in r.stderr and "number 10" in r.stderr
        assert not list(tmp_path.glob("m.gguf*"))


def test_a_quantized_model_is_not_quantized_again(run, tmp_path):
    r = run("quantize", DEMO, tmp_path / "m.gguf", "--type", "q8_0")
    assert r.returncode == 1 and "quantized (AWQ)" in r.stderr and not list(tmp_path.iterdir())


def test_experts_that_cannot_be_written_are_named(run, tmp_path):
    oss = make_model.gpt_oss(128, 128, 2, 8, 4, 331, 256, head_dim=16, sliding_window=20)
    oss.pop("quantization_config")
    make_model.make(str(tmp_path / "oss"), oss, "BF16", 1)
    for kind, word in (("q8_0", "experts in MXFP4"), ("int8", "within a tensor of several")):
        r = run("quantize", tmp_path / "oss", tmp_path / "out", "--type", kind)
        assert r.returncode == 1 and word in r.stderr, r.stderr
        assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("kind, matrix", [("q8_0", Q8_0), ("q4_0", Q4_0), ("q4_k", Q4_K), ("q6_k", Q6_K)])
def test_experts_have_the_blocks_of_dense_layers(run, tmp_path, kind, matrix):
    """An expert has the blocks of a dense model with the same matrix; routers stay floats."""
    shape = dict(head_dim=64, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=256, norm_topk_prob=True)
    src = tmp_path / "src"
    make_model.make(str(src), family("Qwen3MoeForCausalLM", "qwen3_moe", 256, 512, 1, 4, 2, 331, 128, **shape), "BF16", 1)
    _, found = gguf(quantize(run, src, tmp_path / "m.gguf", kind))
    assert {k: t[0] for k, t in found.items() if "_exps" in k or "_inp" in k} == {
        "blk.0.ffn_gate_exps.weight": matrix, "blk.0.ffn_up_exps.weight": matrix, "blk.0.ffn_down_exps.weight": matrix,
        "blk.0.ffn_gate_inp.weight": F32}
    tensors = safetensors(src)
    for e in range(3):
        dense, path = tmp_path / f"dense{e}", f"model.layers.0.mlp.experts.{e}."
        made(dense, intermediate_size=256, num_hidden_layers=1)
        put(dense, {k.replace(f"experts.{e}.", ""): t for k, t in tensors.items() if k.startswith(path)})
        _, want = gguf(quantize(run, dense, tmp_path / f"dense{e}.gguf", kind))
        for part in ("gate", "up", "down"):
            (_, shape, blocks), (_, one, alone) = found[f"blk.0.ffn_{part}_exps.weight"], want[f"blk.0.ffn_{part}.weight"]
            assert shape == [3, *one] and blocks[len(alone) * e:len(alone) * (e + 1)] == alone
    assert len(story(run, tmp_path / "m.gguf")) > 10


def put(folder, tensors):
    """Write other values for some tensors of the only file."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    for name, (kind, shape, raw) in tensors.items():
        assert (header[name]["dtype"], header[name]["shape"]) == (kind, shape)
        a, b = (8 + n + x for x in header[name]["data_offsets"])
        data[a:b] = raw
    path.write_bytes(data)


# --- directories ---

def floats(t):
    kind, shape, data = t
    x = np.frombuffer(data, np.uint16).astype(np.uint32) << 16 if kind == "BF16" else np.frombuffer(data, np.uint32)
    return x.view(np.float32).reshape(shape)


def e4m3_values():
    """The values of codes 0 to 126."""
    return np.array([m * 2.0**-9 if e == 0 else (1 + m / 8) * 2.0**(e - 7) for e in range(16) for m in range(8)][:127])


def nearest_e4m3(x):
    """Ties go to even codes, which have even mantissas."""
    values, size = e4m3_values(), np.minimum(np.abs(x), 448)
    at = np.clip(np.searchsorted(values, size), 1, 126)
    low, high = size - values[at - 1], values[at] - size
    code = np.where((low < high) | ((low == high) & (at % 2 == 1)), at - 1, at)
    return (code + np.where(np.signbit(x), 128, 0)).astype(np.uint8)


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_codes_of_8_bits_are_the_nearest(run, tmp_path, kind):
    src = made(tmp_path / "src")
    want, got = safetensors(src), safetensors(quantize(run, src, tmp_path / "q", kind))
    for name, t in want.items():
        if "_proj" not in name:
            assert got.pop(name) == t
            continue
        x = floats(t)
        top = np.float32(127 if kind == "int8" else 448)
        scale = (np.abs(x).max(axis=1, keepdims=True) / top).astype(np.float32)
        assert np.array_equal(floats(got.pop(name + "_scale")), scale)
        q = (x / scale).astype(np.float32)
        codes = np.rint(q).astype(np.int8) if kind == "int8" else nearest_e4m3(q)
        assert got.pop(name) == ("I8" if kind == "int8" else "F8_E4M3", list(x.shape), codes.tobytes())
    assert not got
    shown = json.loads(run("inspect", tmp_path / "q", "--no-probe", "--json").stdout)
    assert shown["layers"] == 2
    assert len(story(run, tmp_path / "q")) > 10


def test_int4_rtn_is_within_half_a_step(run, tmp_path):
    src = made(tmp_path / "src")
    want, got = safetensors(src), safetensors(quantize(run, src, tmp_path / "q", "int4-rtn"))
    places = [0, 4, 1, 5, 2, 6, 3, 7]

    def unpack(t):
        words = np.frombuffer(t[2], np.uint32).reshape(t[1])
        return np.stack([words >> (4 * p) & 15 for p in places], axis=-1).reshape(t[1][0], -1).astype(np.float32)

    for name, t in want.items():
        if "_proj" not in name:
            assert got.pop(name) == t
            continue
        module, x = name.removesuffix(".weight"), floats(t)
        codes, zeros = unpack(got.pop(module + ".qweight")), unpack(got.pop(module + ".qzeros"))
        kind, shape, data = got.pop(module + ".scales")
        scales = np.frombuffer(data, np.float16).astype(np.float32).reshape(shape)
        assert kind == "F16" and shape == [x.shape[1] // 128, x.shape[0]]
        wide = np.repeat(scales, 128, axis=0)
        back = ((codes - np.repeat(zeros, 128, axis=0)) * wide).T
        # Rounding of the value, of the zero, and of the scale to F16.
        assert (np.abs(back - x) <= 1.02 * wide.T).all() and np.abs(back - x).mean() < 0.3 * scales.mean()
    assert not got
    config = json.loads((tmp_path / "q" / "config.json").read_text())["quantization_config"]
    assert config == {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm",
                      "modules_to_not_convert": ["lm_head"]}
    assert len(story(run, tmp_path / "q")) > 10


@pytest.mark.parametrize("kind", ["int8", "int4-rtn"])
@pytest.mark.parametrize("name", ["phi3", "olmoe"])
def test_fused_layers_and_experts_are_quantized_too(run, tmp_path, name, kind):
    configs = {
        "phi3": family("Phi3ForCausalLM", "phi3", 64, 128, 2, 4, 2, 331, 128),
        "olmoe": family("OlmoeForCausalLM", "olmoe", 64, 32, 2, 4, 2, 331, 128, num_experts=4, num_experts_per_tok=2),
    }
    src = tmp_path / "src"
    make_model.make(str(src), configs[name], "BF16", 1)
    found = safetensors(quantize(run, src, tmp_path / "q", kind))
    for tensor, t in safetensors(src).items():
        assert (found.get(tensor) == t) == ("_proj" not in tensor), tensor
    assert len(story(run, tmp_path / "q")) > 10
