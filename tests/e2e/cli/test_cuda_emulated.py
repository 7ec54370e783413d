"""The whole service with `--device cuda:0` on the emulated device (tests/cudasim)."""

import json

import pytest

from service import BIN, DEMO, SHARED, eventually

LIBRARY = BIN.parent / "lib" / "libquern-cudasim.so"

# The emulated device is slow, and when it starts a worker runs a step of every size.
SMALL = "--max-batch-tokens", "32", "--max-seqs", "4", "--swap-bytes", "1M"


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    if not LIBRARY.exists():
        pytest.skip("the emulated CUDA device is not built; make cudasim-tests")
    monkeypatch.setenv("QUERN_CUDA_LIBRARY", str(LIBRARY))


def test_a_job_gets_the_same_tokens_alone_and_among_others(start):
    s = start(DEMO, "--device", "cuda:0", "--chunk", "5", "--kv-bytes", "2M", *SMALL)
    prompts = ["Once upon a time", "2 + 2 =", "The little dog", "One day, a girl named"]
    client = s.client()
    alone = [client.generate(p, max_tokens=6, seed=3).tokens for p in prompts]
    jobs = [client.submit(p, max_tokens=6, seed=3) for p in prompts]
    assert [j.done().tokens for j in jobs] == alone
    assert [w["device"] for w in client.workers()] == ["cuda:0"]


def test_a_job_that_was_swapped_out_gets_the_same_tokens(start):
    """A slot is needed for a job of a higher priority."""
    small = "--max-batch-tokens", "32", "--max-seqs", "1", "--swap-bytes", "2M", "--preempt", "swap"
    s = start(DEMO, "--device", "cuda:0", "--kv-bytes", "2M", *small)
    job = dict(prompt="Once upon a time", max_tokens=30, ignore_eos=True, temperature=1.0, seed=3)
    with s.client() as client:
        alone = client.generate(**job).tokens
        away = client.submit(**job, priority=5, stream=True)
        away.first_delta()
        client.generate("2 + 2 =", max_tokens=2, priority=-5)
        assert away.done().tokens == alone
    assert s.idle()["swap_preemptions"] == 1


@pytest.mark.parametrize("options", [(), ("--experts", "cpu")], ids=["all on it", "experts beside it"])
def test_a_mixture_of_gpt_oss_gives_the_same_tokens_alone_and_among_others(start, tiny, options):
    """Sinks, alternating windows, biases, clamped gates, and experts in MXFP4."""
    s = start(tiny("gpt-oss-tp"), "--device", "cuda:0", "--chunk", "7", "--kv-bytes", "2M", *SMALL, *options)
    client = s.client()
    prompts = [list(range(40)), [5, 3, 300], list(range(100, 160, 2)), [7]]
    args = {"max_tokens": 6, "seed": 3, "ignore_eos": True}
    alone = [client.generate(None, tokens=p, **args).tokens for p in prompts]
    jobs = [client.submit(None, tokens=p, **args) for p in prompts]
    assert [j.done().tokens for j in jobs] == alone
    assert "weights unpacked matrix=" not in s.log()


def test_the_reference_story_is_generated(start, stories_model):
    reference = json.loads((SHARED / "weights" / "stories260K-reference.json").read_text())["hf-f32"]
    s = start(stories_model, "--device", "cuda:0", "--kv-bytes", "8M", *SMALL)
    done = s.client().generate(reference["prompt"], temperature=0, max_tokens=12)
    assert done.tokens == reference["greedy_ids"][:12]


def test_workers_of_one_device_share_it(start, monkeypatch):
    """The memory fraction is divided among the workers, including weights and scratch memory."""
    monkeypatch.setenv("QUERN_CUDASIM_MIB", "256")
    s = start(DEMO, "--device", "cuda:0,cuda:0", "--memory-fraction", "0.8", *SMALL)

    def serving():
        workers = [w for w in s.workers() if w["state"] == "serving"]
        return workers if len(workers) == 2 else None

    half = 0.4 * 256 * 2**20
    for w in eventually(serving, 60, "two workers"):
        assert 0.9 * half < w["weights_bytes"] + w["scratch_bytes"] + w["kv_bytes"] <= half
        assert w["device_bytes"] == 256 * 2**20 and 0 < w["device_used"] < w["device_bytes"]


@pytest.mark.parametrize("options, graphs", [((), True), (("--no-graphs",), False)])
def test_graphs_are_captured_unless_disabled(start, options, graphs):
    s = start(DEMO, "--device", "cuda:0", "--kv-bytes", "2M", *SMALL, *options)
    assert s.client().generate("Once", max_tokens=2).tokens
    assert ("worker/graphs: ready" in s.log()) == graphs


def test_a_new_replica_may_have_its_own_memory_fraction(start, run, monkeypatch):
    monkeypatch.setenv("QUERN_CUDASIM_MIB", "256")
    s = start(DEMO, "--device", "cuda:0", "--memory-fraction", "0.5", *SMALL)
    assert run("scale", "2", "--memory-fraction", "0.25", "--to", s.jobs).returncode == 0
    total = [(w["weights_bytes"] + w["scratch_bytes"] + w["kv_bytes"]) / 2**28 for w in s.workers()]
    # The driver's memory for graphs, captured once there is a pool, comes on top of the share.
    assert [0.9 * part < t <= 1.01 * part for t, part in zip(sorted(total), [0.25, 0.5])] == [True, True], total


def test_a_device_without_room_for_a_pool_is_refused_with_figures(run, monkeypatch):
    monkeypatch.setenv("QUERN_CUDASIM_MIB", "256")
    r = run("run", DEMO, "Once upon a time", "--device", "cuda:0", "--memory-fraction", "0.02", *SMALL)
    assert r.returncode == 1
    assert "no room for a KV pool" in r.stderr and "256 MiB" in r.stderr and "--memory-fraction" in r.stderr


@pytest.mark.parametrize("fraction", ["0", "1.1", "-0.5", "nan", "half"])
def test_a_memory_fraction_beyond_its_range_is_refused(run, fraction):
    r = run("serve", DEMO, f"--memory-fraction={fraction}")
    assert r.returncode == 2 and "--memory-fraction" in r.stderr
