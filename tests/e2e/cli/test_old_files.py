"""Files of llama2.c, KuiperLLama and ak48 can be served: in each format and compute mode, stories260K tells the
reference story."""

import json
import shutil
import subprocess
import sys

import pytest

from service import DEMO, ROOT, SHARED

STORIES = SHARED / "weights" / "stories260K"
AWQ = SHARED / "weights" / "tiny_qwen3-awq-w4g32"
PROMPT = "Once upon a time"


def make(model, path, form, *options):
    subprocess.run([sys.executable, ROOT / "tests" / "tools" / "make_flat.py", model, path, form, *options], check=True, timeout=120)
    return path


@pytest.fixture(scope="module")
def reference(stories_model):
    return json.loads((SHARED / "weights" / "stories260K-reference.json").read_text())["f32"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, stories_model):
    """The model in each format, with a tokenizer.bin."""
    to = tmp_path_factory.mktemp("old")
    shutil.copy(STORIES / "tok512.bin", to / "tokenizer.bin")
    shutil.copy(STORIES / "stories260K.bin", to / "llama2c0.bin")
    shutil.copy(STORIES / "stories260K_v1.bin", to / "llama2c1.bin")
    for form in ("llama2c2", "kuiper"):
        make(stories_model, to / f"{form}.bin", form, "--dequantized", to / form)
    make(stories_model, to / "llama2c0-head.bin", "llama2c0", "--own-head")
    return to


def story(run, model, *options, tokens=64):
    r = run("run", model, "--raw", PROMPT, "--max-tokens", str(tokens), "--temperature", "0", *options)
    assert r.returncode == 0, r.stderr
    return r.stdout.removesuffix("\n")


def test_the_writer_makes_the_files_of_llama2c(folder, stories_model):
    made = make(stories_model, folder / "again.bin", "llama2c1")
    assert made.read_bytes() == (folder / "llama2c1.bin").read_bytes()


@pytest.mark.parametrize("compute", ["f32", "int16", "bf16", "int8"])
@pytest.mark.parametrize("form", ["llama2c0", "llama2c0-head", "llama2c1"])
def test_the_story_is_the_references(folder, reference, run, form, compute):
    want = reference["greedy_text"].removeprefix(PROMPT)
    got = story(run, folder / f"{form}.bin", "--compute", compute, tokens=len(reference["greedy_ids"]))
    n = len(want) if compute in ("f32", "int16") else 40    # the other modes round and may differ later
    assert len(got) > 100 and want[:n] == got[:n]


@pytest.mark.parametrize("form", ["llama2c2", "kuiper"])
def test_a_quantized_story_is_that_of_its_dequantized_weights(folder, run, form):
    want = story(run, folder / form, "--compute", "f32", "--kv-cache-dtype", "f32")
    for compute in ("f32", "int16"):
        assert story(run, folder / f"{form}.bin", "--compute", compute, "--kv-cache-dtype", "f32") == want


def test_the_tokenizer_can_be_named(folder, run, tmp_path):
    alone = tmp_path / "alone.bin"
    shutil.copy(folder / "llama2c1.bin", alone)
    r = run("run", alone, "--raw", PROMPT)
    assert r.returncode == 1 and "tokenizer" in r.stderr
    for tokenizer in (STORIES / "tok512.bin", SHARED / "weights" / "stories260K-hf-f32"):
        assert story(run, alone, "--tokenizer", tokenizer) == story(run, folder / "llama2c1.bin")


def test_inspect_shows_them(folder, run):
    shown = json.loads(run("inspect", folder / "llama2c2.bin", "--no-probe", "--json", "--tensors").stdout)
    assert shown["layers"] == 5 and shown["vocabulary"] == 512
    assert {t["dtype"] for t in shown["tensors"]} == {"F32", "I8"}


def test_ak48_has_the_tensors_of_its_awq_model(run, tmp_path):
    if not AWQ.is_dir():
        pytest.skip("the AWQ weights are not there")
    shown = json.loads(run("inspect", make(AWQ, tmp_path / "q.bin", "ak48"), "--no-probe", "--json").stdout)
    want = json.loads(run("inspect", AWQ, "--no-probe", "--json").stdout)
    for key in ("architecture", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary", "context", "rope_theta", "parameters"):
        assert shown[key] == want[key], key


@pytest.mark.parametrize("compute", ["f32", "int16", "bf16", "int8"])
def test_an_ak48_story_is_that_of_its_awq_model(run, tmp_path, compute):
    """The demo model, a Qwen3 in AWQ. The file format has no RoPE base; its engine uses Qwen3's."""
    folder = tmp_path / "awq"
    shutil.copytree(DEMO, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 1e6}))
    file = make(DEMO, tmp_path / "q.bin", "ak48")
    want = story(run, folder, "--compute", compute)
    assert len(want) > 100 and story(run, file, "--tokenizer", DEMO, "--compute", compute) == want


def test_a_file_that_was_cut_is_refused(folder, run, tmp_path):
    cut = tmp_path / "cut.bin"
    cut.write_bytes((folder / "llama2c1.bin").read_bytes()[:500000])
    for command in ("inspect", "run", "serve"):
        r = run(command, cut, *(["--tokenizer", STORIES / "tok512.bin"] if command != "inspect" else []))
        assert r.returncode == 1 and "byte 500000" in r.stderr and "layers." in r.stderr, r.stderr
