"""Tensor parallelism with the real controller. Workers started by hand or by systemd join and form tp_groups. 1, 2 and
4 ranks give the same tokens, and a lost rank costs only a pause."""

import os
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest
from jobclient import JobClient, JobError
from service import BIN, DEMO, END_S, eventually, marked, spawn

PROMPTS = ["Once upon a time", "The little dog", "One day, a girl named Lily found",
           "It was raining, so the cat and the bird"]
GREEDY = {"temperature": 0, "max_tokens": 60, "ignore_eos": True}


class Bare:
    """A controller and workers without a supervisor."""

    def __init__(self, tp, *options, device="cpu"):
        self.mark, self.device = uuid.uuid4().hex, device
        self.dir = tempfile.TemporaryDirectory(prefix="quern-test-")
        self.bus, self.jobs = f"ipc://{self.dir.name}/bus", f"ipc://{self.dir.name}/jobs"
        self.log_path = Path(self.dir.name) / "log"
        self.log = open(self.log_path, "wb")
        self.controller = self.start("quern-controller", "--model", DEMO, "--jobs", self.jobs, "--http", "none",
                                     "--tp", tp, *options)
        self.workers = [self.worker() for _ in range(tp)]

    def start(self, program, *options):
        return spawn([BIN / program, "--bus", self.bus, *options], self.mark, stdin=subprocess.DEVNULL,
                     stdout=self.log, stderr=self.log)

    def worker(self):
        return self.start("quern-worker", "--device", self.device, "--threads", 1, "--rank-timeout", 60)

    def __enter__(self):
        with JobClient(self.jobs) as c:
            eventually(lambda: c.ping()["ready"], 90, "a group that serves")
        return self

    def __exit__(self, failed, *_):
        for p in [self.controller, *self.workers]:
            if p.poll() is None:
                p.send_signal(signal.SIGCONT)
                p.send_signal(signal.SIGTERM)
        for p in [self.controller, *self.workers]:
            try:
                p.wait(END_S)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        self.log.close()
        if failed:
            print(self.log_path.read_text(errors="replace"))
        self.dir.cleanup()
        assert not marked(self.mark)


def texts(c, **more):
    jobs = [c.submit(p, **{"stream": False, **GREEDY, **more}) for p in PROMPTS]
    return [j.done() for j in jobs]


def greedy(tp):
    with Bare(tp) as b, JobClient(b.jobs) as c:
        return [d.tokens for d in texts(c)], [d.cumulative_logprob for d in texts(c, logprobs=0)]


@pytest.fixture(scope="module")
def alone():
    return greedy(1)


@pytest.mark.parametrize("tp", [2, 4])
def test_greedy_tokens_are_those_of_one_worker(alone, tp):
    tokens, logprobs = greedy(tp)
    assert tokens == alone[0]
    assert logprobs == pytest.approx(alone[1], abs=2e-3)


def test_every_rank_is_listed_with_its_shard(alone):
    with Bare(2) as b, JobClient(b.jobs) as c:
        c.generate(PROMPTS[0], **GREEDY)
        rows = c.workers()
        assert len(rows) == 2
        assert {r["pid"] for r in rows} == {w.pid for w in b.workers}
        assert len({r["blocks"] for r in rows}) == 1
        [replica] = c.status()["replicas"]
        assert replica["tp"] == 2 and " tp=2" in replica["numerics"]


SAMPLED = {"temperature": 1.0, "max_tokens": 120, "ignore_eos": True, "seed": 11}


def undisturbed(c):
    return [d.tokens for d in texts(c, **SAMPLED)]


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_lost_rank_costs_a_pause_and_no_token(victim, how):
    with Bare(2) as b, JobClient(b.jobs) as c:
        want = undisturbed(c)
        jobs = [c.submit(p, **SAMPLED) for p in PROMPTS]
        for j in jobs:
            j.first_delta()
        os.kill(b.workers[victim].pid, how)
        if how == signal.SIGKILL:
            b.workers[victim].wait(END_S)
            b.workers[victim] = b.worker()
        else:
            eventually(lambda: not c.ping()["ready"], 20, "the loss of a stopped rank")
            os.kill(b.workers[victim].pid, signal.SIGCONT)
        assert [j.done().tokens for j in jobs] == want
        for j in jobs:
            assert [t for d in j.deltas for t in d["tokens"]] == want[jobs.index(j)]


def test_surviving_rank_keeps_its_weights():
    with Bare(2) as b, JobClient(b.jobs) as c:
        want = c.generate(PROMPTS[0], **GREEDY).tokens
        b.workers[1].kill()
        b.workers[1].wait(END_S)
        b.workers[1] = b.worker()
        assert c.generate(PROMPTS[0], **GREEDY).tokens == want
        b.log.flush()
        loads = b.log_path.read_text(errors="replace").count("link: load model=")
        assert loads == 3, "two at the start, and the new one"


def test_serve_starts_a_tp_group_and_restarts_a_lost_rank(alone, start):
    s = start(DEMO, "--tp", 2, "--threads", 1)
    c = s.client()
    assert [d.tokens for d in texts(c)] == alone[0]
    jobs = [c.submit(p, **(GREEDY | {"stream": True, "max_tokens": 1500})) for p in PROMPTS]
    for j in jobs:
        j.first_delta()
    victim = s.workers()[1]["pid"]
    os.kill(victim, signal.SIGKILL)
    assert [j.done().tokens[:60] for j in jobs] == alone[0]
    eventually(lambda: victim not in [w["pid"] for w in s.workers()], what="the loss of the worker")
    eventually(lambda: s.status()["replicas"], what="the group that took its place")
    assert len(s.status()["replicas"]) == 1


def test_serve_refuses_dimensions_that_cannot_be_split():
    p = subprocess.run([BIN / "quern", "serve", DEMO, "--tp", "3"], capture_output=True, text=True, timeout=60,
                       check=False)
    assert p.returncode == 2
    assert "num_attention_heads is 4, not a multiple of 3; possible: --tp 1, 2, 4" in p.stderr


def test_dimension_that_cannot_be_split_is_named():
    b = Bare(3)
    try:
        def named():
            return "num_attention_heads is 4, not a multiple of 3; possible: --tp 1, 2, 4" in b.log_path.read_text(
                errors="replace")
        eventually(named, 60, "the reason in the log")
        with JobClient(b.jobs) as c:
            assert not c.ping()["ready"]
            with pytest.raises(JobError, match="E_|num_attention_heads"):
                c.generate(PROMPTS[0], deadline_ms=1000)
    finally:
        b.__exit__(None)


def test_cuda_ranks_give_the_tokens_of_one(monkeypatch):
    """On the emulated device, with a stand-in for NCCL."""
    library = BIN.parent / "lib" / "libquern-cudasim.so"
    if not library.exists():
        pytest.skip("the emulated CUDA device is not built; make cudasim-tests")
    monkeypatch.setenv("QUERN_CUDA_LIBRARY", str(library))
    tokens = []
    small = "--kv-bytes", "2M", "--swap-bytes", "1M", "--max-batch-tokens", "32", "--max-seqs", "4", "--chunk", "5"
    for tp in (1, 2):
        with Bare(tp, *small, device="cuda:0") as b, JobClient(b.jobs) as c:
            tokens.append([c.generate(p, **(GREEDY | {"max_tokens": 6})).tokens for p in PROMPTS[:2]])
            if tp == 2:
                assert " tp=2" in c.status()["replicas"][0]["numerics"]
    assert tokens[0] == tokens[1]
