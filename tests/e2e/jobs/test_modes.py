"""Tokens and log-probabilities are the same in every compute mode, whatever happens.

`make check` runs a sample for each mode: many jobs at once, and a killed worker.  `make check-full` (QUERN_TEST_LONG=1)
also runs each option alone."""

import os
import signal

import pytest

from jobclient import JobError
from service import DEMO, eventually, served
from test_same_tokens import JOBS, STORY, answer

# --compute, and options that make separate numerics classes.
MODES = ["f32", "bf16", "int16", "int8", "int16 --head-dtype int8 --kv-cache-dtype int16",
         "int8 --head-dtype stored --kv-cache-dtype int8"]
LONG = os.environ.get("QUERN_TEST_LONG") == "1"
if LONG:
    MODES = [f"{mode} --head-dtype {head} --kv-cache-dtype {kv}" for mode in ("f32", "bf16", "int16", "int8")
             for head in ("stored", "int8") for kv in ("f32", "bf16", "int16", "int8")]

AT_ONCE = "--chunk 7 --threads 3 --kv-bytes 2M"
ALONE = ["--chunk 1", "--chunk 7", "--chunk 64", "--threads 1", "--threads 2", "--threads 3", "--block-size 64",
         "--max-seqs 2 --max-batch-tokens 24", "--prefill separate", "--no-prefix-cache", "--max-step-ms 0", "--max-step-ms 1",
         "--kv-bytes 2M", "--kv-bytes 2M --no-prefix-cache"]

# With JOBS they need several times the blocks of 2 MB.
CROWD = JOBS + [dict(prompt=STORY[i:], temperature=1.0, seed=i, max_tokens=100, ignore_eos=True, logprobs=1, n=1 + i % 2)
                for i in range(8)]
LASTING = [dict(prompt=f"Once upon a time {i}", max_tokens=1200, ignore_eos=True, temperature=1.0, seed=4, logprobs=1)
           for i in range(3)]


def words(mode, more=""):
    return ["--compute", *mode.split(), *more.split()]


def numerics(service):
    with service.client() as c:
        return c.call("status")["replicas"][0]["numerics"]


def together(service, jobs):
    with service.client() as c:
        return [answer(j.done()) for j in service.submit_together(c, jobs)]


class Known:
    """Results of the jobs, run one by one in a mode."""

    def __init__(self, mode, service):
        self.mode, self.numerics = mode, numerics(service)
        with service.client() as c:
            self.crowd, self.lasting = ([answer(c.generate(**job)) for job in jobs] for jobs in (CROWD, LASTING))


@pytest.fixture(scope="module", params=MODES)
def known(request):
    for service in served(DEMO, words(request.param)):
        found = Known(request.param, service)
    return found


@pytest.mark.parametrize("options", ALONE if LONG else [AT_ONCE])
def test_options_change_nothing(start, known, options):
    if "kv-cache-dtype int8" in known.mode:     # a block has half of the bytes
        options = options.replace("--kv-bytes 2M", "--kv-bytes 1M")
    service = start(DEMO, *words(known.mode, options))
    assert numerics(service) == known.numerics
    assert together(service, CROWD) == known.crowd
    status = service.idle()
    if "--kv-bytes" in options:
        assert status["preemptions"] > 0 and status["swap_preemptions"] == 0    # a CPU has one pool


@pytest.mark.parametrize("isa", ["avx2", "plain"] if LONG else ["avx2"])
def test_another_instruction_set_of_the_class_changes_nothing(start, known, isa):
    service = start(DEMO, *words(known.mode, f"--isa {isa}"))
    if not known.mode.startswith("f32"):        # one class for all
        assert numerics(service) == known.numerics
    if numerics(service) == known.numerics:
        assert together(service, CROWD) == known.crowd


def test_a_killed_worker_changes_nothing(start, known):
    service = start(DEMO, *words(known.mode))
    with service.client() as c:
        for _ in range(5):      # on a slow machine the jobs may end before the worker is stopped
            jobs = [c.submit(**job) for job in LASTING]
            for j in jobs:
                j.first_delta()
            (worker,) = c.workers()
            os.kill(worker["pid"], signal.SIGSTOP)
            try:
                c.result(jobs[0].job)
            except JobError as e:
                assert "E_NOT_READY" in str(e)
                running = True
                break
            os.kill(worker["pid"], signal.SIGCONT)
            running = False
        assert running
        os.kill(worker["pid"], signal.SIGKILL)
        assert [answer(j.done()) for j in jobs] == known.lasting
        eventually(lambda: worker["pid"] not in [w["pid"] for w in c.workers()], what="the worker's end")


def test_modes_differ(request):
    """A mode that is ignored would pass every other test here."""
    classes = set()
    for mode in MODES:
        for service in served(DEMO, words(mode)):
            classes.add(numerics(service))
    assert len(classes) == len(MODES)
