"""A mixture with its attention on a (simulated) GPU and its experts in host memory (CPU offload)."""

import json
import os
import signal
import subprocess
import urllib.request

import pytest

from service import BIN, DEMO, eventually, spawn

# The emulated device is slow, and when it starts a worker runs a step of every size.
SMALL = "--max-batch-tokens", "32", "--max-seqs", "4", "--swap-bytes", "1M", "--kv-bytes", "2M"
PROMPTS = [list(range(40)), list(range(7, 20)), [5, 3, 300], list(range(100, 160, 2))]


pytestmark = pytest.mark.usefixtures("emulated")


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("qwen2-moe")


def test_a_killed_worker_changes_no_token(start, model):
    """Other jobs and the chunks of the prompt do not change a token either."""
    s = start(model, "--device", "cuda:0", "--experts", "cpu", "--experts-compute", "int8", "--chunk", "9", *SMALL)
    client = s.client()
    options = {"max_tokens": 24, "seed": 3, "ignore_eos": True}
    alone = [client.generate(None, tokens=p, **options).tokens for p in PROMPTS]
    worker, = s.workers()
    assert worker["device"] == "cuda:0" and worker["host_weights_bytes"] > 0
    # The sizes that were compared with the free memory.
    assert f'mode="int8 by' in s.log() and f"bytes={worker['host_weights_bytes']}\n" in s.log()
    jobs = [client.submit(None, tokens=p, **options) for p in PROMPTS]
    jobs[0].first_delta()
    os.kill(worker["pid"], signal.SIGKILL)
    assert [j.done().tokens for j in jobs] == alone
    eventually(lambda: worker["pid"] not in [w["pid"] for w in s.workers()], what="the loss of the worker")


def counts_of(service):
    """Return the experts' counters in /metrics (docs/OPTIONS.md), once workers have reported all rows of earlier
    jobs."""
    def complete():
        with urllib.request.urlopen(service.http + "/metrics") as reply:
            text = reply.read().decode()
        rows = sum_of(text, "quern:expert_layer_rows_total")
        return text if 0 < rows == sum_of(text, "quern:expert_rows_total") else None
    return eventually(complete, what="counts of all rows")


def sum_of(text, name):
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + "{"))


# 16-bit weights on the GPU; each of the two layers has five experts.
EXPERT = 3 * 64 * 56 * 2
HOT = "--device", "cuda:0", "--experts", "cpu", "--experts-compute", "int8", "--chunk", "9"


def test_hot_experts_outlive_a_worker_and_their_file(start, model, tmp_path):
    """A worker that takes over keeps the same experts on the GPU, even if the counts file has since been removed. The
    file is made as the manual says, from a service that has run prompts."""
    options = {"max_tokens": 24, "seed": 3, "ignore_eos": True}
    own = tmp_path / "metrics.txt"
    s = start(model, *HOT, "--expert-metrics", *SMALL)
    with s.client() as c:
        for p in PROMPTS:
            c.generate(None, tokens=p, **options)
        worker, = s.workers()
        weights, host = worker["weights_bytes"], worker["host_weights_bytes"]
        own.write_text(counts_of(s))
    s.stop()
    s = start(model, *HOT, "--hot-experts", 5 * EXPERT - 1, "--expert-counts", own, *SMALL)
    own.unlink()
    client = s.client()
    alone = [client.generate(None, tokens=p, **options).tokens for p in PROMPTS]
    worker, = s.workers()
    assert worker["weights_bytes"] == weights + 4 * EXPERT
    assert worker["host_weights_bytes"] == host * 6 // 10
    assert f"GPU-resident experts experts=4 total=10 bytes={4 * EXPERT}\n" in s.log()
    assert f"bytes={worker['host_weights_bytes']}\n" in s.log()
    numerics = client.status()["replicas"][0]["numerics"]
    assert " hot=4:" in numerics
    jobs = [client.submit(None, tokens=p, **options) for p in PROMPTS]
    jobs[0].first_delta()
    os.kill(worker["pid"], signal.SIGKILL)
    assert [j.done().tokens for j in jobs] == alone
    eventually(lambda: worker["pid"] not in [w["pid"] for w in s.workers()], what="the loss of the worker")
    eventually(lambda: client.ping()["ready"], what="another worker")
    assert client.status()["replicas"][0]["numerics"] == numerics


def test_long_prompts_have_their_experts_sent_to_the_gpu(start, model):
    """With --fast, experts are streamed for steps with more rows than the option says. Shorter steps give the same
    tokens as without it."""
    options = {"max_tokens": 8, "seed": 3, "ignore_eos": True}
    beside = "--device", "cuda:0", "--experts", "cpu", "--experts-compute", "int8", "--chunk", "32", *SMALL
    s = start(model, *beside)
    with s.client() as c:
        short = [c.generate(None, tokens=p, **options).tokens for p in PROMPTS[1:3]]
        host = s.workers()[0]["host_weights_bytes"]
    s.stop()
    s = start(model, *beside, "--fast", "--send-experts-above", "20")
    with s.client() as c:
        assert [c.generate(None, tokens=p, **options).tokens for p in PROMPTS[1:3]] == short
        assert "experts streamed above_rows=20 pinned_bytes=" in s.log()
        assert "expert streaming begins" not in s.log()
        assert len(c.generate(None, tokens=PROMPTS[0], **options).tokens) == 8
        assert "expert streaming begins rows=32 above_rows=20\n" in s.log()
        assert " fast " in c.status()["replicas"][0]["numerics"]
        jobs = [c.submit(None, tokens=PROMPTS[0], **options | {"max_tokens": 24}) for _ in range(2)]
        jobs[0].first_delta()
        os.kill(s.workers()[0]["pid"], signal.SIGKILL)
        assert [len(j.done().tokens) for j in jobs] == [24, 24]
        eventually(lambda: s.log().count("expert streaming begins rows=") == 2, what="the other worker's line")
        # A second copy of two layers of five experts.
        assert s.workers()[0]["host_weights_bytes"] - host >= 10 * EXPERT


@pytest.mark.parametrize("arguments", [("--experts", "cpu"), ("--fast",)])
def test_sending_experts_needs_fast_and_experts_on_the_cpu(run, model, arguments):
    p = run("run", model, "x", "--device", "cuda:0", "--send-experts-above", "9", *arguments, timeout=60)
    assert p.returncode in (1, 2) and "--send-experts-above is for --fast" in p.stderr, p.stderr


def test_a_worker_by_itself_sends_experts_only_from_the_cpu(run):
    """The controller decides about --fast, so a worker checks only that experts are on the CPU."""
    p = run("worker", "--bus", "ipc:///nonexistent/bus", "--device", "cuda:0", "--send-experts-above", "9", timeout=60)
    assert p.returncode == 2 and "--send-experts-above is for experts on the CPU (--experts cpu or --place)" in p.stderr, p.stderr


@pytest.fixture
def counts(tmp_path):
    """Counts for the model's two layers with five experts."""
    path = tmp_path / "COUNTS"
    path.write_text("".join(f'quern:expert_layer_rows_total{{model_name="m",layer="{layer}",expert="{e}"}} {e}\n'
                            for layer in (1, 3) for e in range(5)))
    return path


@pytest.mark.parametrize("arguments, why", [
    (("--hot-experts", "100K"), "--expert-metrics"),
    (("--expert-counts", "COUNTS"), "is for --hot-experts"),
    (("--hot-experts", "0", "--expert-counts", "COUNTS"), "more than 0 bytes"),
    (("--hot-experts", "100K", "--expert-counts", "/nonexistent/counts"), "/nonexistent/counts"),
    (("--hot-experts", "100K", "--expert-counts", "OTHER"), "another model"),
    (("--hot-experts", "100K", "--expert-counts", "EMPTY"), "has no rows of experts"),
    (("--hot-experts", "1T", "--expert-counts", "COUNTS"), "of the device: give less"),
    (("--hot-experts", "1M", "--expert-counts", "COUNTS"), "room for all experts"),
    (("--hot-experts", "1K", "--expert-counts", "COUNTS"), "one expert takes 21504"),
])
def test_hot_experts_that_cannot_be_are_named(run, model, tmp_path, counts, arguments, why):
    (tmp_path / "OTHER").write_text(counts.read_text().replace('expert="4"', 'expert="5"'))
    (tmp_path / "EMPTY").write_text("quern:tokens 1\n")
    arguments = [tmp_path / a if a.isupper() and a.isalpha() else a for a in arguments]
    p = run("run", model, "x", "--device", "cuda:0", "--experts", "cpu", *arguments, timeout=60)
    assert p.returncode in (1, 2) and why in p.stderr, p.stderr


def test_without_experts_on_the_cpu_none_is_hot(run, model, counts):
    hot = "--hot-experts", "100K", "--expert-counts", counts
    p = run("run", model, "x", "--device", "cuda:0", *hot, timeout=60)
    assert p.returncode in (1, 2) and "--experts cpu or --place" in p.stderr, p.stderr
    p = run("run", model, "x", "--device", "cuda:0", "--place", "*.experts=cuda", *hot, timeout=60)
    assert p.returncode in (1, 2) and "leaves all experts on the device" in p.stderr, p.stderr


def test_inspect_tells_what_a_placement_keeps_off_the_gpu(run, model):
    experts = 2 * 5 * 3 * 64 * 56 * 4       # layers, experts, matrices, F32
    o = json.loads(run("inspect", model, "--no-probe", "--json").stdout)
    assert o["experts"]["bytes"] == experts < o["memory"]["weights"]
    assert "--experts cpu keeps 420 KiB of the files" in run("inspect", model, "--no-probe").stdout
    # 420 KiB of the files are the experts of two layers on the GPU, of which one fits with everything else.
    p = json.loads(run("inspect", model, "--no-probe", "--json", "--gpu-bytes", "650K").stdout)["placement"]
    assert (p["fits"], p["layers_on_gpu"], p["layers_on_host"]) == (True, 1, 1), p
    assert p["options"] in run("inspect", model, "--no-probe", "--gpu-bytes", "650K").stdout
    assert p["options"] == "--place layers.1-1.experts=cuda,*.experts=cpu"


def test_replicas_on_machines_that_differ_compute_experts_in_one_mode(start, model, tmp_path):
    """A replica without VNNI (simulated by the instruction set that hides it) uses the mode of the first replica."""
    bus = f"ipc://{tmp_path}/bus"
    s = start(model, "--device", "cuda:0", "--experts", "cpu", "--threads", "1", "--bus", bus, *SMALL)
    other = spawn([BIN / "quern-worker", "--bus", bus, "--device", "cuda:0", "--experts", "cpu", "--isa", "plain",
                   "--threads", "1"], s.mark, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with s.client() as c:
        replicas = eventually(lambda: [r for r in c.status()["replicas"] if r["state"] == "serving"][1:] and
                              c.status()["replicas"], what="two replicas that serve")
        assert len({r["numerics"] for r in replicas}) == 1 and "experts=all on" in replicas[0]["numerics"]
        tokens = c.generate(None, tokens=PROMPTS[0], max_tokens=8, seed=3, ignore_eos=True).tokens
        os.kill(next(w["pid"] for w in c.workers() if w["pid"] != other.pid), signal.SIGKILL)
        assert c.generate(None, tokens=PROMPTS[0], max_tokens=8, seed=3, ignore_eos=True).tokens == tokens
    s.stop()
    assert other.wait(60) is not None


def test_a_placement_is_checked_before_workers_start(run, model, monkeypatch):
    """A missing layer is found without a device."""
    monkeypatch.setenv("QUERN_CUDA_LIBRARY", "/nonexistent")
    p = run("serve", model, "--device", "cuda:0", "--http", "none", "--place", "layers.9.experts=cpu", timeout=60)
    assert p.returncode in (1, 2) and "layers.9.experts=cpu" in p.stderr and "nonexistent" not in p.stderr, p.stderr


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
