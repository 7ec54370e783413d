"""Several faults at once, from a fixed seed: a small cache, cancelled jobs, clients that disconnect, a killed worker.
Undisturbed jobs give the tokens of an idle service, and no block is lost."""

import os
import random
import signal

import pytest

from service import DEMO, served

WORDS = "little big dog cat bird house river tree sun happy sad went saw found said one day the a and".split()


def make_job(r):
    return dict(prompt=" ".join(r.choices(WORDS, k=r.randint(1, 60))), temperature=r.choice([0, 0.7, 1.2]),
                seed=r.randrange(1000), n=r.choice([1, 1, 1, 2, 3]), max_tokens=r.randint(1, 60), ignore_eos=r.random() < 0.7)


def tokens(done):
    return [(o["tokens"], o["finish_reason"]) for o in done.outputs]


F32 = ("--compute", "f32")    # the pool size below assumes it


@pytest.fixture(scope="module")
def service():
    yield from served(DEMO, F32)


@pytest.fixture(scope="module")
def jobs(service):
    r = random.Random(1)
    made = [make_job(r) for _ in range(48)]
    with service.client() as c:
        submitted = [c.submit(**{"stream": False, **job}) for job in made]
        return [(job, tokens(a.done())) for job, a in zip(made, submitted)]


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_changes_no_answer_and_loses_no_block(start, jobs, seed):
    r = random.Random(seed)
    s = start(DEMO, *F32, "--kv-bytes", "1200K", "--chunk", "16", "--max-seqs", "12", *(["--no-prefix-cache"] if seed == 2 else []))
    clients, kept, spoiled = [], [], []
    for job, known in r.sample(jobs, len(jobs)):
        c = s.client()
        clients.append(c)
        submitted = c.submit(**{"stream": r.random() < 0.5, **job})
        fate = r.random()
        if fate < 0.6:
            kept.append((submitted, known))
        elif fate < 0.8:
            submitted.accepted().cancel()
            spoiled.append((submitted, known))
        else:
            if fate < 0.9:
                submitted.accepted()
            c.close()
        if len(clients) == len(jobs) // 2:
            (worker,) = s.workers()
            os.kill(worker["pid"], signal.SIGKILL)
    for submitted, known in kept:
        assert tokens(submitted.done()) == known
    for submitted, known in spoiled:
        for (got, why), (whole, _) in zip(tokens(submitted.done()), known):
            assert got == whole[:len(got)]
            assert why == "abort" or got == whole
    blocks = s.idle()["blocks"]
    assert blocks["free"] + blocks["cached"] == blocks["total"]
