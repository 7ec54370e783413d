"""A pool so small that groups are preempted, recomputed, evicted and copied all the time: each of 200 jobs of every kind
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
    ("--kv-bytes", "1300K", "--swap-bytes", "700K", "--preempt", "swap"),      # one pool of 2 MB
    ("--kv-bytes", "2M", "--chunk", "16"),
    ("--kv-bytes", "2M", "--no-prefix-cache", "--preempt", "recompute", "--max-seqs", "24"),
], ids=" ".join)
def test_200_jobs_have_the_tokens_that_each_has_alone(start, alone, options):
    # 25 blocks of 80 KiB: hardly more than the largest group needs.
    s = start(DEMO, *F32, "--context", "300", *options)
    with s.client() as c:
        running = [c.submit(**job, **identity, stream=i % 3 == 0) for i, (job, identity) in enumerate(JOBS)]
        for (job, _), known, r in zip(JOBS, alone, running):
            assert answer(r.done()) == known, job
        status = s.idle()
    blocks, host = status["blocks"], status["host_blocks"]
    assert blocks["free"] + blocks["cached"] + blocks["held"] == blocks["total"]
    assert blocks["held"] == blocks["retained"] == 0 and blocks["total"] == 25
    assert host == {"total": 0, "free": 0} and status["swap_preemptions"] == 0
    assert status["preemptions"] > 50
    # Less than the whole of every job that was preempted.
    assert 0 < status["recomputed_tokens"] < 100 * status["preemptions"]
    assert (status["prefix_cache"]["hit_tokens"] > 1000) == ("--no-prefix-cache" not in options)


def test_memory_of_a_swap_pool_holds_tokens(start):
    """On a CPU `--swap-bytes` is a part of the one pool: a quarter more memory holds 1.2 times the tokens."""
    tokens = [start(DEMO, *F32, "--kv-bytes", "2M", *more).status()["blocks"]["total"]
              for more in ((), ("--swap-bytes", "512K"))]
    assert tokens[1] >= 1.2 * tokens[0]


def test_preempting_and_coming_back_copies_and_recomputes_nothing(start):
    """The preempted job's blocks fit beside those of the job that takes its slot."""
    s = start(DEMO, *F32, "--max-seqs", "1", "--kv-bytes", "4M")
    job = dict(prompt="Once upon a time", max_tokens=300, ignore_eos=True, temperature=1.0, seed=3)
    with s.client() as c:
        known = answer(c.generate(**job))
        before = s.status()
        long = c.submit(**job, priority=5, stream=True)
        long.first_delta()
        c.generate("2 + 2 =", max_tokens=4, priority=-5)
        assert answer(long.done()) == known
    status = s.idle()
    assert status["preemptions"] == before["preemptions"] + 1
    assert status["recomputed_tokens"] == status["swap_preemptions"] == 0
    assert status["host_blocks"]["total"] == 0


def test_jobs_cancelled_in_between_leave_nothing_behind(start, alone):
    s = start(DEMO, *F32, "--kv-bytes", "2M")
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
    assert status["blocks"]["retained"] == 0
