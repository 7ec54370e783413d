"""`quern convert`: converting a model to another format and back keeps tensors, tokens and stories. Data that a format
cannot hold is named. Files are read by numpy here, and compared with those of tests/tools/make_gguf_family.py, an
independent writer of GGUF."""

import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import uuid

import numpy as np
import pytest

from model_files import gguf, safetensors, write_gguf
from service import DEMO, QUERN, ROOT, SHARED, SLOW, spawn

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_gguf_family  # noqa: E402
import make_model  # noqa: E402
from make_model import llama, mistral, qwen2, qwen3  # noqa: E402

WEIGHTS = SHARED / "weights"
PROMPT = "Once upon a time"
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
CHECKED = {k: v for k, v in make_gguf_family.FAMILIES.items() if k != "gpt-oss"}    # another program writes them too
MIXTURES = [k for k, v in CHECKED.items() if "num_experts_per_tok" in v]
FAMILIES = {
    "llama": llama(64, 96, 2, 4, 2, 331, 128), "llama3": llama(64, 96, 2, 4, 2, 331, 512, rope_scaling=LLAMA3, tie_word_embeddings=True),
    "mistral": mistral(64, 96, 2, 4, 2, 331, 128, sliding_window=32), "qwen2": qwen2(64, 96, 2, 4, 2, 331, 128),
    "qwen3": qwen3(64, 96, 2, 4, 2, 331, 128, head_dim=32), **CHECKED,
}


def made(folder, config, dtype="F32", seed=1):
    make_model.make(str(folder), config, dtype, seed)
    return folder


def convert(run, src, dst, to, *options):
    r = run("convert", src, dst, "--to", to, *options)
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")
    return dst


def story(run, model, *options):
    r = run("run", model, PROMPT, "--raw", "--temperature", "0", "-m", "48", *options)
    assert r.returncode == 0, r.stderr
    return r.stdout


def ids(run, model, text):
    r = run("tokenize", model, "--ids", input=text)
    assert r.returncode == 0, r.stderr
    return r.stdout


def weights(name):
    if not (WEIGHTS / name).exists():
        pytest.skip(f"weights/{name} is not there")
    return WEIGHTS / name


def made_family(folder, name, dtype="F32"):
    """Gemma's norms are such that adding 1 is exact, as in a trained model."""
    made(folder, FAMILIES[name], dtype)
    if name.startswith("gemma"):
        path = folder / "model.safetensors"
        data = bytearray(path.read_bytes())
        n = int.from_bytes(data[:8], "little")
        for tensor, t in json.loads(data[8:8 + n]).items():
            a, b = (8 + n + x for x in t.get("data_offsets", (0, 0)))
            if "norm" in tensor:
                data[a:b] = (np.round(np.frombuffer(data[a:b], np.float32) * 1024) / 1024 + 0.0).astype(np.float32).tobytes()
        path.write_bytes(data)
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_comes_back_from_gguf(run, tmp_path, name):
    dtype = "F16" if name in ("qwen2", "olmoe") else "F32" if name in CHECKED and name not in MIXTURES else "BF16"
    src = made_family(tmp_path / "src", name, dtype)
    convert(run, src, tmp_path / "m.gguf", "gguf")
    back = convert(run, tmp_path / "m.gguf", tmp_path / "back", "safetensors")
    assert safetensors(back) == safetensors(src)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (back / file).read_bytes() == (src / file).read_bytes()


@pytest.mark.parametrize("name", CHECKED)
def test_a_gguf_file_is_as_an_independent_writer_has_it(run, tmp_path, name):
    config, src = FAMILIES[name], made_family(tmp_path / "src", name)
    keys, tensors = gguf(convert(run, src, tmp_path / "m.gguf", "gguf"))
    want = make_gguf_family.tensors(name, config, str(src))
    assert tensors == {k: (0, list(x.shape), np.ascontiguousarray(x, np.float32).tobytes()) for k, x in want.items()}
    want_keys = make_gguf_family.keys(name, config)
    assert {k: keys.get(k) for k in want_keys} == pytest.approx(want_keys)


def without(path, *prefixes):
    """Copy the file without these keys, as another program writes it."""
    keys, tensors = gguf(path)
    return write_gguf(path, {k: v for k, v in keys.items() if not k.startswith(prefixes)}, tensors)


TOLD = ["llama3", "gemma3", "phi3-long", "glm4moe"]   # stories take most of the time


@pytest.mark.parametrize("name", FAMILIES)
def test_a_gguf_file_of_another_program_becomes_a_directory(run, tmp_path, name):
    """Without the keys that quern adds, configuration and tokenizer are made from GGUF's own keys."""
    src = made_family(tmp_path / "src", name)
    file = without(convert(run, src, tmp_path / "m.gguf", "gguf"), "quern.", "tokenizer.huggingface.")
    back = convert(run, file, tmp_path / "back", "safetensors")
    assert safetensors(back) == safetensors(src)
    if name in TOLD or os.environ.get("QUERN_TEST_LONG"):
        assert story(run, back) == story(run, file) == story(run, src)


STORIES = ["stories260K-hf-bf16", "stories260K-hf-f32"]


@pytest.mark.parametrize("name", STORIES)
def test_a_sentencepiece_model_comes_back_with_the_same_tokens(run, tmp_path, name):
    src = weights(name)
    file = convert(run, src, tmp_path / "m.gguf", "gguf")
    text = "One day, Lily\n  saw a caf\u00e9  \U0001f600 in <s>the</s> park."
    assert ids(run, file, text) == ids(run, src, text)
    assert story(run, file) == story(run, src)
    assert safetensors(convert(run, file, tmp_path / "back", "safetensors")) == safetensors(src)
    foreign = convert(run, without(file, "quern.", "tokenizer.huggingface."), tmp_path / "foreign", "safetensors")
    assert (foreign / "tokenizer.model").exists()
    assert ids(run, foreign, text) == ids(run, src, text)


def test_a_foreign_gguf_file_of_stories_is_the_model_that_it_was_made_of(run, tmp_path):
    src = weights("stories260K-gguf") / "stories260K-f32.gguf"
    back = convert(run, src, tmp_path / "back", "safetensors")
    assert story(run, back) == story(run, src)


@pytest.mark.parametrize("name", ["tiny_llama3", "tiny_mistral", "tiny_qwen3"])
def test_tiny_models_without_a_tokenizer_come_back(run, tmp_path, name):
    src = weights(f"tiny-random/{name}")
    back = convert(run, convert(run, src, tmp_path / "m.gguf", "gguf"), tmp_path / "back", "safetensors")
    assert safetensors(back) == safetensors(src)


def awq_demo(folder):
    """The demo model with the RoPE base that ak48 files imply."""
    shutil.copytree(DEMO, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 1e6}))
    return folder


def test_awq_comes_back_from_ak48(run, tmp_path):
    src = awq_demo(tmp_path / "src")
    ak48 = convert(run, src, tmp_path / "ak48", "ak48")
    assert story(run, ak48 / "model.ak48") == story(run, src)
    subprocess.run([sys.executable, ROOT / "tests" / "tools" / "make_flat.py", src, tmp_path / "want.bin", "ak48"], check=True)
    assert (ak48 / "model.ak48").read_bytes() == (tmp_path / "want.bin").read_bytes()
    back = convert(run, ak48 / "model.ak48", tmp_path / "back", "safetensors")
    assert safetensors(back) == safetensors(src)
    assert story(run, back) == story(run, src)
    assert ids(run, back, PROMPT) == ids(run, src, PROMPT)


def test_shards_have_at_most_the_size_that_was_asked_for(run, tmp_path):
    back = convert(run, DEMO, tmp_path / "back", "safetensors", "--shard-size", "1M")
    shards = list(back.glob("*.safetensors"))
    assert len(shards) > 2 and all(f.stat().st_size < 1100000 for f in shards)
    assert safetensors(back) == safetensors(DEMO)
    assert story(run, back) == story(run, DEMO)


def refused(run, src, dst, to, *words):
    r = run("convert", src, dst, "--to", to)
    assert (r.returncode, r.stdout) == (1, "") and len(r.stderr.splitlines()) == 1
    for word in words:
        assert word in r.stderr
    assert not dst.exists() and not dst.with_name(dst.name + ".partial").exists()


def test_what_a_format_cannot_hold_is_named(run, tmp_path):
    dst = tmp_path / "dst"
    refused(run, DEMO, dst, "gguf", "quantized (AWQ)")
    refused(run, DEMO, dst, "ak48", "base 10000", "1000000")
    src = made(tmp_path / "bf16", FAMILIES["qwen3"] | {"rope_theta": 1e6}, "BF16")
    refused(run, src, dst, "ak48", "layers.0.self_attn.q_proj", "AWQ")
    refused(run, made(tmp_path / "llama", FAMILIES["llama"]), dst, "ak48", "LlamaForCausalLM")
    zero = made_family(tmp_path / "zero", "gemma2")
    data = (zero / "model.safetensors").read_bytes()
    at = 8 + int.from_bytes(data[:8], "little") + json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["model.norm.weight"]["data_offsets"][0]
    for value in (-0.0, 2.0 ** -60):
        (zero / "model.safetensors").write_bytes(data[:at] + struct.pack("<f", value) + data[at + 4:])
        refused(run, zero, dst, "gguf", f"model.norm.weight has the value {value:.9g} ")
    refused(run, made(tmp_path / "gemma", FAMILIES["gemma3"]), dst, "gguf", "norm", "1 cannot be added without a loss")
    q8_0 = tmp_path / "q8_0.gguf"
    subprocess.run([sys.executable, ROOT / "tests" / "tools" / "make_gguf.py", q8_0, "--type", "Q8_0", "--shape", "tiny"], check=True)
    refused(run, q8_0, dst, "safetensors", "blk.0.attn_k.weight is Q8_0")
    refused(run, q8_0, dst, "ak48", "no directory of safetensors")
    refused(run, made(tmp_path / "oss", make_gguf_family.FAMILIES["gpt-oss"]), dst, "gguf", "MXFP4")
    subprocess.run([sys.executable, ROOT / "tests" / "tools" / "make_gguf_family.py", "gpt-oss", tmp_path / "oss.gguf"], check=True)
    refused(run, tmp_path / "oss.gguf", dst, "safetensors", "MXFP4")
    refused(run, made(tmp_path / "apart", make_model.TINY["qwen3-moe"][0]), dst, "gguf", "layers without experts")
    refused(run, made(tmp_path / "weighed", FAMILIES["olmoe"] | {"norm_topk_prob": True}), dst, "gguf", "has norm_topk_prob")
    refused(run, tmp_path / "none", dst, "safetensors", "none")
    config = json.loads((src / "config.json").read_text())
    (src / "config.json").write_text(json.dumps(config | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}))
    refused(run, src, dst, "gguf", "dynamic")


def edit(folder, change):
    """Edit the header of the only file and keep its length."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n:])
    return folder


def append(folder, name, x):
    """Append one tensor to the only file."""
    path = folder / "model.safetensors"
    n = path.stat().st_size - 8 - int.from_bytes(path.read_bytes()[:8], "little")
    with path.open("ab") as f:
        f.write(x.tobytes())
    edit(folder, lambda h: h.update({name: {"dtype": "F32", "shape": list(x.shape), "data_offsets": [n, n + x.nbytes]}}))


@pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj.weight", "model.norm.weight"])
def test_a_model_without_one_of_its_tensors_is_no_gguf_file(run, tmp_path, name):
    """Readers would refuse the result."""
    src = edit(made(tmp_path / "src", FAMILIES["llama"]), lambda h: h.update({"unused.weight": h.pop(name)}))
    refused(run, src, tmp_path / "m.gguf", "gguf", name)


TOKENIZERS = ROOT / "tests" / "golden" / "tokenizer"
TEXT = "The cat's  A\u030a \U0001f999  \u2581 12345\n\n donkey  \ufb01 x "


BYTE_FALLBACK = b"\x98\2"     # field 35 of a tokenizer.model's trainer_spec, a number


def with_tokenizer(folder, tokenizer, file):
    """A model with a vocabulary of the tokenizer's size."""
    n = 660 if file == "tokenizer.model" else 402
    made(folder, llama(64, 96, 2, 4, 2, n, 128))
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    shutil.copyfile(TOKENIZERS / tokenizer / file, folder / file)
    return folder


def special_ids(run, model):
    r = run("tokenize", model, "--ids", "--add-special", input=TEXT)
    assert r.returncode == 0, r.stderr
    return r.stdout.split()


def test_the_token_that_ends_a_text_is_added_from_gguf_keys(run, tmp_path):
    src = with_tokenizer(tmp_path / "src", "llama3", "tokenizer.json")
    file = convert(run, src, tmp_path / "m.gguf", "gguf")
    assert special_ids(run, file) == special_ids(run, src) and special_ids(run, src)[-1] == "401"


def test_no_token_is_added_from_gguf_keys_where_the_tokenizer_has_none(run, tmp_path):
    src = with_tokenizer(tmp_path / "src", "spm_bpe", "tokenizer.model")
    path = src / "tokenizer.model"
    path.write_bytes(path.read_bytes().replace(b"<s>", b"<x>"))
    assert special_ids(run, convert(run, src, tmp_path / "m.gguf", "gguf")) == special_ids(run, src)


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_added_tokens_whose_flags_have_no_key_are_named(run, tmp_path, flag):
    src = with_tokenizer(tmp_path / "src", "llama3", "tokenizer.json")
    tree = json.loads((src / "tokenizer.json").read_text())
    tree["added_tokens"][1][flag] = True
    (src / "tokenizer.json").write_text(json.dumps(tree))
    r = run("convert", src, tmp_path / "m.gguf", "--to", "gguf")
    assert r.returncode == 0 and len(r.stderr.splitlines()) == 1, r.stderr
    assert f'tokens=1 first="{tree["added_tokens"][1]["content"]}"' in r.stderr
    back = convert(run, tmp_path / "m.gguf", tmp_path / "back", "safetensors")
    assert (back / "tokenizer.json").read_text() == (src / "tokenizer.json").read_text()


def test_a_byte_level_bpe_that_puts_a_space_before_the_text_is_refused(run, tmp_path):
    """With the flag, and without it, where the default applies."""
    src = with_tokenizer(tmp_path / "src", "llama3", "tokenizer.json")
    tree = json.loads((src / "tokenizer.json").read_text())
    (step,) = [s for s in tree["pre_tokenizer"]["pretokenizers"] if s["type"] == "ByteLevel"]
    assert step["add_prefix_space"] is False
    for change in (lambda: step.update(add_prefix_space=True), lambda: step.pop("add_prefix_space")):
        change()
        (src / "tokenizer.json").write_text(json.dumps(tree))
        refused(run, src, tmp_path / "m.gguf", "gguf", "tokenizer.json", "a space before the text")


@pytest.mark.parametrize("name", ["spm_unigram_bytes", "spm_unigram_ties"])
def test_a_unigram_model_has_the_same_tokens_from_gguf_keys(run, tmp_path, name):
    src = with_tokenizer(tmp_path / "src", name, "tokenizer.model")
    file = without(convert(run, src, tmp_path / "m.gguf", "gguf"), "quern.")
    assert special_ids(run, file) == special_ids(run, src)


def test_a_sentencepiece_model_that_gguf_keys_cannot_say_is_refused(run, tmp_path):
    for name, what in (("spm_suffix", "after a word"), ("spm_bpe_user", "normalizes"), ("spm_bpe_ties", "removes white space")):
        refused(run, with_tokenizer(tmp_path / name, name, "tokenizer.model"), tmp_path / "m.gguf", "gguf", "tokenizer.model", what)
    unused = with_tokenizer(tmp_path / "unused", "spm_unigram_bytes", "tokenizer.model")
    model = (unused / "tokenizer.model").read_bytes()
    assert model.count(BYTE_FALLBACK + b"\1") == 1
    (unused / "tokenizer.model").write_bytes(model.replace(BYTE_FALLBACK + b"\1", BYTE_FALLBACK + b"\0"))
    refused(run, unused, tmp_path / "m.gguf", "gguf", "tokenizer.model", "pieces of all bytes")
    empty = with_tokenizer(tmp_path / "empty", "spm_bpe", "tokenizer.model")
    (empty / "tokenizer.model").write_bytes(b"")
    refused(run, empty, tmp_path / "m.gguf", "gguf", "tokenizer.model", "no pieces")


def test_an_expert_that_is_missing_or_unlike_the_others_is_named(run, tmp_path):
    at, dst = "model.layers.1.mlp.experts.{}.up_proj.weight", tmp_path / "m.gguf"
    made(tmp_path / "src", FAMILIES["qwen3moe"], "BF16")

    def of(name, change):
        shutil.copytree(tmp_path / "src", tmp_path / name)
        return edit(tmp_path / name, change)
    for e in (0, 3, 5):
        refused(run, of(f"without{e}", lambda h: h.update({at.format(e) + "x": h.pop(at.format(e))})), dst, "gguf",
                at.format(e))
    refused(run, of("type", lambda h: h[at.format(2)].update(dtype="F16")), dst, "gguf", at.format(2), "another type or shape")
    refused(run, of("shape", lambda h: h[at.format(2)].update(shape=h[at.format(2)]["shape"][::-1])), dst, "gguf", at.format(2))
    stray = made(tmp_path / "stray", FAMILIES["glm4moe"])     # its first layer has no experts
    append(stray, "model.layers.0.mlp.experts.3.up_proj.weight", np.zeros((2, 2), np.float32))
    refused(run, stray, dst, "gguf", "layers.0.mlp.experts.3.up_proj.weight has no place")
    for spelled in ("06", "6", "+1", "", "1.0"):
        refused(run, of(f"number{spelled}", lambda h: h.update({at.format(spelled): h.pop(at.format(5))})), dst, "gguf", ".experts.")


def test_a_result_that_exists_is_left_alone(run, tmp_path):
    (tmp_path / "dst").mkdir()
    (tmp_path / "dst" / "mine").write_text("mine")
    r = run("convert", DEMO, tmp_path / "dst", "--to", "safetensors")
    assert r.returncode == 1 and "exists already" in r.stderr
    assert [f.name for f in (tmp_path / "dst").iterdir()] == ["mine"]


def test_a_conversion_that_is_ended_leaves_no_model(run, tmp_path):
    src = made(tmp_path / "src", qwen3(1024, 3072, 4, 8, 2, 8192, 128, head_dim=128), "BF16")
    for sign, to, dst in ((signal.SIGKILL, "safetensors", tmp_path / "dst"), (signal.SIGINT, "gguf", tmp_path / "m.gguf")):
        p = spawn([QUERN, "convert", src, dst, "--to", to], uuid.uuid4().hex, stderr=subprocess.PIPE, text=True)
        partial = dst.with_name(dst.name + ".partial")
        while p.poll() is None and not partial.exists():
            pass
        p.send_signal(sign)
        err = p.communicate(timeout=60 * SLOW)[1]
        if p.returncode == 0:
            continue    # the command was faster
        assert not dst.exists()
        if sign == signal.SIGINT:
            assert p.returncode == 1 and "interrupted" in err and not partial.exists()
        else:
            assert p.returncode == -signal.SIGKILL
            assert run("inspect", partial).returncode != 0
        convert(run, src, dst, to)
        assert not partial.exists()


def test_memory_does_not_grow_with_the_model(run, tmp_path):
    """A larger model raises the peak resident memory by less than a quarter of the size difference."""
    def peak(layers, to):
        src = made(tmp_path / f"{layers}{to}", qwen3(512, 1024, layers, 4, 2, 512, 128, head_dim=128), "BF16")
        script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
                  "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)")
        r = subprocess.run([sys.executable, "-c", script, QUERN, "convert", src, tmp_path / f"{layers}.{to}", "--to", to],
                           capture_output=True, text=True, check=True)
        return int(r.stdout), sum(f.stat().st_size for f in src.glob("*.safetensors"))
    for to in ("safetensors", "gguf"):
        (small, small_bytes), (large, large_bytes) = peak(2, to), peak(10, to)
        assert large - small < (large_bytes - small_bytes) / 4


@pytest.mark.parametrize("name", ["llama", "qwen2moe"])
def test_the_package_gguf_has_read_this_file(run, tmp_path, name):
    """tests/golden/make_gguf_encode_golden.py read this file with the package gguf and compared tensors and keys."""
    config = llama(64, 96, 2, 4, 2, 331, 128) if name == "llama" else FAMILIES[name]
    convert(run, made(tmp_path / "src", config, "BF16"), tmp_path / "m.gguf", "gguf")
    want = json.loads((ROOT / "tests" / "golden" / "gguf_encode.json").read_text())["file" if name == "llama" else "mixture"]
    assert hashlib.sha256((tmp_path / "m.gguf").read_bytes()).hexdigest() == want
