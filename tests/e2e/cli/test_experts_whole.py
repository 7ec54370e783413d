"""A mixture with its experts divided among the ranks of a group: `--tp N --ep`."""

import os
import signal

import pytest
from service import DEMO, eventually, served

PROMPTS = [list(range(40)), list(range(7, 20)), [5, 3, 300], list(range(100, 160, 2))]
OPTIONS = {"max_tokens": 40, "seed": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tiny):
    """A model with a shared expert, and five experts that two ranks cannot divide evenly."""
    return tiny("qwen2-moe")


def outputs(client, **more):
    jobs = [client.submit(None, tokens=p, **(OPTIONS | more)) for p in PROMPTS]
    return [j.done() for j in jobs]


@pytest.fixture(scope="module")
def whole(model):
    """One worker: greedy tokens and log-probabilities."""
    for s in served(model, ("--threads", "1", "--compute", "f32")):
        with s.client() as c:
            done = outputs(c, temperature=0, logprobs=0)
        yield [d.tokens for d in done], [d.cumulative_logprob for d in done]


def test_a_lost_rank_changes_no_token(start, model):
    """Other jobs and the chunks of a prompt do not change a token either."""
    s = start(model, "--tp", 2, "--ep", "--threads", 1, "--chunk", 9, step_ms=5)
    with s.client() as c:
        alone = [c.generate(None, tokens=p, **OPTIONS).tokens for p in PROMPTS]
        [replica] = c.status()["replicas"]
        assert replica["tp"] == 2 and " tp=2 ep" in replica["numerics"]
        first, second = (w["weights_bytes"] for w in sorted(c.workers(), key=lambda w: w["rank"]))
        assert first > second + 3 * 64 * 56 * 4, "three experts of each of two layers, and two"
        jobs = [c.submit(None, tokens=p, **(OPTIONS | {"max_tokens": 80})) for p in PROMPTS]
        for j in jobs:
            j.first_delta()
        victim = s.workers()[1]["pid"]
        os.kill(victim, signal.SIGKILL)
        assert [j.done().tokens[:40] for j in jobs] == alone
        eventually(lambda: victim not in [w["pid"] for w in s.workers()], what="the loss of the worker")


@pytest.mark.parametrize("tp", [2, 4])
def test_ranks_agree_with_one_worker(start, model, whole, tp):
    s = start(model, "--tp", tp, "--ep", "--threads", 1, "--compute", "f32")
    with s.client() as c:
        done = outputs(c, temperature=0, logprobs=0)
    assert [d.tokens for d in done] == whole[0]
    assert [d.cumulative_logprob for d in done] == pytest.approx(whole[1], abs=2e-3)


def test_a_group_of_experts_is_measured(run, model):
    p = run("bench", "engine", model, "--tp", 2, "--ep", "--threads", 1, "--batch", "1", "--prompt-tokens", 20,
            "--max-tokens", 10, "--runs", 1, timeout=60)
    assert p.returncode == 0, p.stderr


@pytest.mark.parametrize("arguments, why", [
    ((DEMO, "--tp", "2"), "--ep: the model is no mixture of experts"),
    (("MODEL",), "give --tp N"),
    (("MODEL", "--tp", "8"), "--tp 8 --ep: num_attention_heads is 4, not a multiple of 8; possible: --tp 2, 4"),
])
def test_what_cannot_be_is_refused_before_workers_start(run, model, arguments, why):
    p = run("serve", *[model if a == "MODEL" else a for a in arguments], "--ep", "--http", "none", timeout=60)
    assert p.returncode in (1, 2) and why in p.stderr, p.stderr


def test_vllm_s_name_is_taken(run, model):
    p = run("serve", model, "--enable-expert-parallel", "--http", "none", timeout=60)
    assert p.returncode == 2 and "give --tp N" in p.stderr, p.stderr
