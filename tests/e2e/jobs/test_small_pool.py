"""A pool so small that groups are swapped, recomputed, evicted and copied all the time: each of 200 jobs of every kind
gives the tokens that it gives alone."""

import random

import pytest

from service import DEMO, served

STORY = ("Once upon a time there was a little dog. The dog lived in a small house near the woods. Every day "
         "the dog went to the river to look for fish. One day the dog met a cat who was very sad. ")
CHAT = "A boy asks his mother: why is the sky blue? She says that the sun has many colours. "


def kinds(rng):
    """Make the parameters of one kind of job."""
    n = rng.randrange(1, 4)
    seed = rng.randrange(1000)
    return rng.choice([
        dict(temperature=0),
        dict(temperature=1.0, seed=seed),
        dict(temperature=0.9, seed=seed, n=n + 1, top_p=0.95),
        dict(temperature=1.0, seed=seed, n=n, best_of=n + 2),
        dict(temperature=1.2, seed=seed, top_k=30, repetition_penalty=1.1, logprobs=1),
        dict(use_beam_search=True, n=n, beam_width=n + rng.randrange(1, 4)),
        dict(use_beam_search=True, n=n, beam_width=n + 1, early_stopping=True, length_penalty=0.6, logprobs=2),
        dict(use_beam_search=True, n=4, early_stopping="never", length_penalty=2.0, min_tokens=4),
    ])


def make_jobs(how_many):
    rng = random.Random(5)
    jobs = []
    for i in range(how_many):
        text = 2 * rng.choice([STORY, CHAT])
        # Prefixes that other jobs share, with or without a suffix of their own.
        prompt = text[:rng.randrange(4, len(text))] + rng.choice(["", "", f"And {i}", " The"])
        jobs.append((dict(prompt=prompt, max_tokens=rng.randrange(4, 30), ignore_eos=rng.random() < 0.5, **kinds(rng)),
                     dict(priority=rng.randrange(-1, 2), user=f"user {rng.randrange(4)}")))
    return jobs


def answer(done):
    return [(o["tokens"], o["text"], o["finish_reason"], o["cumulative_logprob"], o.get("logprobs"))
            for o in done.outputs]


JOBS = make_jobs(200)


F32 = ("--compute", "f32")    # the pool sizes below assume it


@pytest.fixture(scope="module")
def service():
    yield from served(DEMO, F32)


@pytest.fixture(scope="module")
def alone(service):
    with service.client() as c:
        return [answer(c.generate(**job)) for job, _ in JOBS]


@pytest.mark.parametrize("options", [
    ("--preempt", "swap", "--swap-bytes", "700K"),
    ("--preempt", "auto", "--swap-bytes", "8M", "--chunk", "16"),
    ("--preempt", "recompute", "--max-seqs", "24"),
], ids=" ".join)
def test_200_jobs_have_the_tokens_that_each_has_alone(start, alone, options):
    # 25 blocks of 80 KiB: hardly more than the largest group needs.
    s = start(DEMO, *F32, "--kv-bytes", "2M", "--context", "300", *options)
    with s.client() as c:
        running = [c.submit(**job, **identity, stream=i % 3 == 0) for i, (job, identity) in enumerate(JOBS)]
        for (job, _), known, r in zip(JOBS, alone, running):
            assert answer(r.done()) == known, job
        status = s.idle()
    blocks, host = status["blocks"], status["host_blocks"]
    assert blocks["free"] + blocks["cached"] + blocks["held"] == blocks["total"]
    assert blocks["held"] == 0 and host["free"] == host["total"]
    assert status["preemptions"] > 50
    assert status["prefix_cache"]["hit_tokens"] > 1000
    if "swap" in options:
        assert 0 < status["swap_preemptions"] < status["preemptions"]     # some were recomputed
    if "recompute" in options:
        assert status["swap_preemptions"] == 0


def test_jobs_cancelled_in_between_leave_nothing_behind(start, alone):
    s = start(DEMO, *F32, "--kv-bytes", "2M", "--preempt", "swap", "--swap-bytes", "1500K")
    with s.client() as c:
        running = [c.submit(**job, **identity, stream=False) for job, identity in JOBS[:100]]
        for r in running[::3]:
            r.accepted().cancel()
        for i, (known, r) in enumerate(zip(alone, running)):
            done = r.done()
            if i % 3:
                assert answer(done) == known
    status = s.idle()
    assert status["blocks"]["free"] + status["blocks"]["cached"] == status["blocks"]["total"]
    assert status["host_blocks"]["free"] == status["host_blocks"]["total"]
