"""A mixture with its attention on a GPU, which is the emulated one, and its experts in the host's memory."""

import json
import os
import signal
import subprocess
import sys

import pytest

from service import BIN, DEMO, ROOT

LIBRARY = BIN.parent / "lib" / "libquern-cudasim.so"

# The emulated device is slow, and at the start it runs a step of every size.
SMALL = "--max-batch-tokens", "32", "--max-seqs", "4", "--swap-bytes", "1M", "--kv-bytes", "2M"
PROMPTS = [list(range(40)), list(range(7, 20)), [5, 3, 300], list(range(100, 160, 2))]


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    if not LIBRARY.exists():
        pytest.skip("the emulated CUDA device is not built; make cudasim-tests")
    monkeypatch.setenv("QUERN_CUDA_LIBRARY", str(LIBRARY))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "tiny"
    made = subprocess.run([sys.executable, ROOT / "tests/tools/make_model.py", out, "--tiny", "qwen2-moe"],
                          capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"tiny models need Python with numpy: {made.stderr[-200:]}")
    return out


def test_a_killed_worker_changes_no_token(start, model):
    """Nor do other jobs, nor the chunks of the prompt."""
    s = start(model, "--device", "cuda:0", "--experts", "cpu", "--experts-compute", "int8", "--chunk", "9", *SMALL)
    client = s.client()
    options = {"max_tokens": 24, "seed": 3, "ignore_eos": True}
    alone = [client.generate(None, tokens=p, **options).tokens for p in PROMPTS]
    worker, = s.workers()
    assert worker["device"] == "cuda:0" and worker["host_weights_bytes"] > 0
    jobs = [client.submit(None, tokens=p, **options) for p in PROMPTS]
    jobs[0].first_delta()
    os.kill(worker["pid"], signal.SIGKILL)
    assert [j.done().tokens for j in jobs] == alone
    assert [w["pid"] for w in s.workers()] != [worker["pid"]]


def test_inspect_tells_what_a_placement_keeps_off_the_gpu(run, model):
    experts = 2 * 5 * 3 * 64 * 56 * 4       # layers, experts, matrices, F32
    o = json.loads(run("inspect", model, "--json").stdout)
    assert o["experts"]["bytes"] == experts < o["memory"]["weights"]
    assert "--experts cpu keeps 420 KiB of the files" in run("inspect", model).stdout


@pytest.mark.parametrize("arguments, why", [
    (("--experts", "gpu"), "must be cpu or device"),
    (("--experts", "cpu", "--place", "*.experts=cpu"), "leave one out"),
    (("--place", "layers.9.experts=cpu"), "the model has 4 layers"),
    (("--place", "*.experts=cuda:1"), "on cpu or on cuda,"),
    (("--experts", "cpu", "--device", "cuda:0,cuda:0", "--tp", "2"), "--tp"),
])
def test_a_placement_that_cannot_be_is_named(run, model, arguments, why):
    p = run("run", model, "x", "--device", "cuda:0", *arguments, timeout=60)
    assert p.returncode in (1, 2) and why in p.stderr, p.stderr


def test_a_dense_model_has_no_experts_to_place(run):
    p = run("run", DEMO, "x", "--device", "cuda:0", "--experts", "cpu", timeout=60)
    assert p.returncode in (1, 2) and "no mixture of experts" in p.stderr
