"""Tokens do not depend on other batches, chunks, threads, preemption and cached prompts."""

import pytest

from service import DEMO

STORY = ("Once upon a time there was a little dog. The dog lived in a small house near the woods. Every day "
         "the dog went to the river to look for fish. One day the dog met a cat who was very sad. ")
# Greedy and sampled, short and long, with and without penalties.
JOBS = [
    dict(prompt="Once upon a time", temperature=0, max_tokens=50, ignore_eos=True, logprobs=2),
    dict(prompt=STORY, temperature=1.0, top_k=0, top_p=1.0, seed=1, max_tokens=60, ignore_eos=True, logprobs=2),
    dict(prompt=STORY * 4, temperature=0.8, seed=2, max_tokens=40, ignore_eos=True, logprobs=2),
    dict(prompt="12 + 10 =", temperature=0, max_tokens=20, logprobs=2),
    dict(prompt="A cat", temperature=1.1, top_p=0.95, top_k=50, seed=3, n=3, max_tokens=30, ignore_eos=True,
         repetition_penalty=1.2, frequency_penalty=0.3, logprobs=2),
]


def answer(done):
    """Return everything that must not change: tokens, and logprobs to the last bit."""
    return [(o["tokens"], o["text"], o["finish_reason"], o["logprobs"]) for o in done.outputs]


def alone(service):
    with service.client() as c:
        return [answer(c.generate(**job)) for job in JOBS]


def together(service, copies=1):
    with service.client() as c:
        return [answer(j.done()) for j in service.submit_together(c, JOBS * copies)]


@pytest.fixture(scope="module")
def expected(service):
    return alone(service)


def test_repeated_requests_have_the_same_output(service, expected):
    assert alone(service) == expected


def test_jobs_together_are_the_same_as_alone(service, expected):
    assert together(service, copies=2) == expected * 2


def test_a_job_among_31_others_is_the_same_to_the_bit(service, expected):
    with service.client() as c:
        others = [c.submit(f"{i} little dogs " + STORY[:i * 5], temperature=1.0, seed=i, max_tokens=60,
                           ignore_eos=True) for i in range(31)]
        for o in others:
            o.first_delta()
        for job, known in zip(JOBS, expected):
            assert answer(c.generate(**job)) == known
        for o in others:
            assert len(o.done().tokens) == 60


@pytest.mark.parametrize("options", [("--chunk", "1"), ("--chunk", "7"), ("--chunk", "64"),
                                     ("--threads", "1"), ("--threads", "2"), ("--block-size", "32"),
                                     ("--max-seqs", "2", "--max-batch-tokens", "24")], ids=" ".join)
def test_options_do_not_change_the_answers(start, expected, options):
    assert together(start(DEMO, *options)) == expected


def test_a_prompt_seen_before_gives_the_same_answer(service):
    """The output is the same whether the prompt is read from the cache or recomputed."""
    job = dict(prompt=STORY * 3, temperature=0.9, seed=5, max_tokens=30, ignore_eos=True, logprobs=2)
    with service.client() as c:
        first, again = c.generate(**job, cache_salt="one"), c.generate(**job, cache_salt="one")
        assert first.usage["cached_tokens"] == 0
        assert 0 < again.usage["cached_tokens"] < again.usage["prompt_tokens"]
        assert answer(again) == answer(first)


def test_another_salt_shares_no_cached_prompt(service):
    job = dict(prompt=STORY * 3 + "Then", temperature=0, max_tokens=2)
    with service.client() as c:
        c.generate(**job, cache_salt="two")
        assert c.generate(**job, cache_salt="three").usage["cached_tokens"] == 0


def test_without_a_prefix_cache_nothing_is_found_and_nothing_changes(start, expected):
    s = start(DEMO, "--no-prefix-cache")
    assert together(s) == expected
    assert together(s) == expected
    assert s.idle()["prefix_cache"]["hit_tokens"] == 0


@pytest.mark.parametrize("options", [("--kv-bytes", "2M"), ("--kv-bytes", "1500K", "--swap-bytes", "500K"),
                                     ("--kv-bytes", "2M", "--no-prefix-cache"),
                                     ("--kv-bytes", "2M", "--prefill", "separate")], ids=" ".join)
def test_preempted_jobs_have_the_same_tokens(service, start, options):
    """Eight jobs that together need several times the blocks of the pool."""
    jobs = [dict(prompt=STORY[i:], temperature=1.0, seed=i, max_tokens=100, ignore_eos=True, logprobs=1)
            for i in range(8)]
    jobs[3]["n"] = 3
    with service.client() as c:
        known = [answer(c.generate(**job)) for job in jobs]
    small = start(DEMO, *options)
    with small.client() as c:
        assert [answer(j.done()) for j in small.submit_together(c, jobs)] == known
        status = small.idle()
        assert status["preemptions"] > 0
        assert status["blocks"]["free"] + status["blocks"]["cached"] == status["blocks"]["total"]
        assert status["host_blocks"]["total"] == status["swap_preemptions"] == status["blocks"]["retained"] == 0


def test_lower_priorities_run_first(start):
    """One sequence at a time: waiting jobs run in the order of priority."""
    s = start(DEMO, "--max-seqs", "1")
    with s.client() as c:
        before = [c.submit(STORY, max_tokens=1500, ignore_eos=True, priority=-100) for _ in range(8)]
        for job in before:
            job.accepted()
        late = [c.submit(**{"stream": False}, prompt=STORY, max_tokens=40, ignore_eos=True, priority=p)
                for p in (5, 0, -5)]
        for job in late:
            job.accepted()
        for job in before:      # all of them wait: now they may begin
            job.cancel()
        times = [job.done().timing["total_us"] for job in late]
        assert times[2] < times[1] < times[0]
