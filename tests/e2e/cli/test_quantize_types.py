"""`quern quantize` to types that are rounded to nearest: the files, against those of other programs and against what their
specifications say; the models, served."""

import json
import struct
import sys

import pytest

from model_files import gguf
from service import DEMO, ROOT, SHARED

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_model  # noqa: E402
from make_model import qwen3  # noqa: E402

WEIGHTS = SHARED / "weights"
CONFIG = qwen3(256, 512, 2, 4, 2, 331, 128, head_dim=64)
F32, Q8_0, Q4_0, Q4_K, Q6_K = 0, 8, 2, 12, 14


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
    # The embedding, which is the head, is of a finer type here.
    assert [n for n in want if found[n] != want[n]] == (["token_embd.weight"] if kind == "q4_0" else [])
    assert story(run, tmp_path / "m.gguf").startswith(", there was a little girl named Lily.")


@pytest.mark.parametrize("kind, matrix, head", [("q8_0", Q8_0, Q8_0), ("q4_0", Q4_0, Q6_K), ("q4_k", Q4_K, Q6_K), ("q6_k", Q6_K, Q6_K)])
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
