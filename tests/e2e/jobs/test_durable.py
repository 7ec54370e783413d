"""Durable jobs: an accepted job is on disk, and after any crash each job has exactly one output, that of an undisturbed
run. QUERN_CRASH_JOBS and QUERN_CRASH_KILLS make the storm longer (make crash)."""

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import time
import urllib.request

import msgpack
import pytest

from jobclient import JobClient, JobError
from service import DEMO, QUERN, Service, eventually

PROMPT = "Once upon a time"
LONG = {"max_tokens": 1200, "ignore_eos": True, "seed": 5, "temperature": 1.0}


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def serve(journal):
    """Start services on the journal; all are stopped at the end."""
    started = []

    def start(*options, **kwargs):
        started.append(Service(DEMO, "--journal", journal, *options, **kwargs))
        return started[-1]
    yield start
    for s in started:
        s.stop()


@pytest.fixture(scope="module", autouse=True)
def sweeps(tmp_path_factory):
    """A service that keeps no finished job; it had one when the first test began."""
    s = Service(DEMO, "--journal", tmp_path_factory.mktemp("sweeps") / "j", "--keep", "0", "--keep-durable", "0")
    with s.client() as c:
        s.finished = c.generate(PROMPT, durable=True, max_tokens=2).job
    yield s
    s.stop()
    Service.used.remove(s)


def patiently(service, ask, timeout=90):
    """Call ask(client), again with a new client while the controller is down or does not have all jobs yet."""
    end = time.monotonic() + timeout
    while True:
        try:
            with JobClient(service.jobs) as c:
                return ask(c)
        except (TimeoutError, JobError) as e:
            if isinstance(e, JobError) and e.code not in ("E_NOT_READY", "E_INTERNAL", "E_WORKER_LOST"):
                raise
            if time.monotonic() > end:
                raise


def saved(journal, job):
    """Return true if the journal has tokens of the job, or its end."""
    with contextlib.closing(sqlite3.connect(journal)) as db:
        return db.execute("SELECT 1 FROM jobs WHERE id = ? AND (state = 1 OR EXISTS (SELECT 1 FROM tokens WHERE job = n AND output = 0))",
                          (job,)).fetchone()


def outputs(done):
    return [{k: v for k, v in o.items() if k != "index"} for o in done["outputs"]]


def test_without_a_journal_durable_is_refused(service):
    with service.client() as c, pytest.raises(JobError) as e:
        c.generate(PROMPT, durable=True, max_tokens=2)
    assert e.value.code == "E_BAD_REQUEST" and "durable" in e.value.message and "--journal" in e.value.message


@pytest.mark.parametrize("more", [{}, {"mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.5}],
                         ids=["plain", "mirostat"])
def test_after_killing_every_process_a_job_continues_token_for_token(serve, journal, more):
    s = serve()
    c = s.client()
    reference = c.generate(PROMPT, **LONG, **more)
    finished = c.generate("The dog", durable=True, max_tokens=20, seed=3)
    job = c.submit(PROMPT, durable=True, **LONG, **more).accepted()
    for _ in range(30):
        job.event()
    eventually(lambda: saved(journal, job.job), what="tokens in the journal")
    s.kill()

    s = serve()
    c = s.client()
    rows = {row["job"]: row for row in c.call("jobs")["jobs"]}
    assert rows[job.job]["state"] in ("running", "done") and rows[finished.job]["state"] == "done"
    assert rows[job.job]["completion_tokens"] > 0, "it started from the prompt again"
    have = sum(len(d["tokens"]) for d in job.deltas)
    rest = c.attach(job.job, **{"from": have})
    done = rest.done()
    assert done.tokens == reference.tokens and done.text == reference.text
    assert "".join(d["text"] for d in job.deltas + rest.deltas) == reference.text
    assert [t for d in job.deltas + rest.deltas for t in d["tokens"]] == reference.tokens
    assert c.call("result", job=finished.job)["outputs"] == finished.outputs


def test_a_killed_controller_restarts_with_its_jobs(serve):
    s = serve()
    reference = s.client().generate(PROMPT, **LONG)
    job = s.client().submit(PROMPT, durable=True, **LONG).accepted()
    s.kill("quern-contr")
    done = patiently(s, lambda c: c.attach(job.job).done())
    assert done.tokens == reference.tokens
    assert s.process.poll() is None


def test_jobs_continue_after_an_orderly_restart(serve):
    s = serve()
    reference = s.client().generate(PROMPT, **LONG)
    job = s.client().submit(PROMPT, durable=True, **LONG).accepted()
    job.event()
    assert s.end() == 0
    s = serve()
    assert s.client().attach(job.job).done().tokens == reference.tokens


def test_a_key_is_one_job_across_a_restart(serve):
    s = serve()
    first = s.client().generate(PROMPT, durable=True, key="once", max_tokens=20)
    s.kill()
    s = serve()
    c = s.client()
    again = c.generate(PROMPT, durable=True, key="once", max_tokens=20)
    assert (again.job, again.tokens) == (first.job, first.tokens)
    with pytest.raises(JobError) as e:
        c.generate(PROMPT, durable=True, key="once", max_tokens=21)
    assert e.value.code == "E_BAD_REQUEST" and '"once"' in e.value.message


def test_a_cancelled_job_stays_cancelled(serve):
    s = serve()
    c = s.client()
    job = c.submit(PROMPT, durable=True, **LONG)
    job.first_delta()
    job.cancel()
    assert job.done().finish_reason == "abort"
    s.kill()
    assert serve().client().call("result", job=job.job)["outputs"][0]["finish_reason"] == "abort"


def test_logprobs_and_several_outputs_survive(serve, journal):
    s = serve()
    keys = dict(LONG, n=3, logprobs=2, prompt_logprobs=1, stop=["zebra"])
    reference = s.client().generate(PROMPT, **keys)
    job = s.client().submit(PROMPT, durable=True, **keys).accepted()
    for _ in range(20):
        job.event()
    eventually(lambda: saved(journal, job.job), what="tokens in the journal")
    s.kill()
    done = serve().client().attach(job.job).done()
    assert outputs(done.reply) == outputs(reference.reply)
    assert done.reply["prompt_logprobs"] == reference.reply["prompt_logprobs"]


def test_a_durable_job_outlives_its_client(serve):
    s = serve()
    with s.client() as c:
        job = c.submit(PROMPT, durable=True, **LONG)
        job.first_delta()
    done = patiently(s, lambda c: c.attach(job.job).done())
    assert done.finish_reason == "length"


def test_a_journal_serves_one_controller(serve, journal):
    serve()
    r = subprocess.run([QUERN, "serve", DEMO, "--http", "none", "--jobs", "tcp://127.0.0.1:*", "--journal", journal],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode == 1
    assert f"{journal} is in use by process" in r.stderr


def test_a_full_disk_refuses_durable_jobs_and_nothing_else(tmp_path):
    """A limit on file sizes, which the controller inherits, simulates the full disk."""
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        s = Service(DEMO, "--journal", tmp_path / "j")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    try:
        c = s.client()
        running = c.submit(PROMPT, durable=True, **LONG).accepted()
        assert s.status()["journal"]["writes"] is True
        refused = None
        for i in range(1000):
            try:
                c.generate("a " * 1000, durable=True, max_tokens=1, user="u" * 200)
            except JobError as e:
                refused = e
                break
        assert refused and refused.code == "E_INTERNAL" and "cannot be written" in refused.message
        assert c.generate(PROMPT, max_tokens=5).text
        status = s.status()["journal"]
        assert status["writes"] is False and "cannot be written" in status["error"]
        with urllib.request.urlopen(s.http + "/health", timeout=30) as reply:
            assert "cannot be written" in json.load(reply)["journal"]
        text = subprocess.run([QUERN, "status", "--to", s.jobs], capture_output=True, text=True, timeout=60).stdout
        assert "durable jobs are refused" in text
        assert len(running.done().tokens) == LONG["max_tokens"]
        assert s.end() == 0
    finally:
        s.stop()


def test_another_file_is_refused_as_a_journal(tmp_path):
    letter = tmp_path / "letter"
    letter.write_text("Dear aunt,\n" * 100)
    r = subprocess.run([QUERN, "serve", DEMO, "--http", "none", "--jobs", "tcp://127.0.0.1:*", "--journal", letter],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode == 1
    assert "not a journal of quern" in r.stderr
    assert letter.read_text() == "Dear aunt,\n" * 100


def test_submit_durable_on_the_command_line(serve):
    s = serve()
    argv = [QUERN, "submit", "--raw", PROMPT, "--to", s.jobs, "--durable", "--max-tokens", "5", "--seed", "1"]
    job = subprocess.run(argv + ["--detach"], capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    text = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    s.kill()
    s = serve()
    attached = subprocess.run([QUERN, "attach", job, "--to", s.jobs], capture_output=True, text=True, timeout=60)
    assert attached.stdout == text, attached.stderr
    result = subprocess.run([QUERN, "result", job, "--to", s.jobs], capture_output=True, text=True, timeout=60)
    assert result.stdout == text, result.stderr
    table = subprocess.run([QUERN, "jobs", "--to", s.jobs], capture_output=True, text=True, timeout=60)
    assert job in table.stdout


# --- the storm ---

N_JOBS = int(os.environ.get("QUERN_CRASH_JOBS", "40"))
N_KILLS = int(os.environ.get("QUERN_CRASH_KILLS", "5"))
STARTS = ["Once upon a time", "The little dog", "A girl named Lily", "One day", "In the forest"]


def storm_job(i):
    r = random.Random(i)
    keys = {"prompt": f"{r.choice(STARTS)} {i}", "max_tokens": r.randint(20, 300), "temperature": 1.0, "seed": i,
            "ignore_eos": r.random() < 0.7}
    if i % 5 == 1:
        keys["n"] = 3
    if i % 5 == 2:
        keys |= {"logprobs": 2, "stop": ["the", "zebra"]}
    if i % 5 == 4:
        keys = {"prompt": keys["prompt"], "max_tokens": min(40, keys["max_tokens"]), "use_beam_search": True,
                "beam_width": 3, "n": 2}
    if i % 10 == 6:
        keys |= {"best_of": 3, "n": 2}
    if i % 5 == 3:
        keys["presence_penalty"] = 0.5
    return keys


def submit_storm(client, numbers):
    """Submit those jobs; return {request id: number}."""
    sent = {}
    for i in numbers:
        keys = storm_job(i)
        params = {k: v for k, v in keys.items() if k != "prompt"}
        sent[client.send({"op": "submit", "prompt": keys["prompt"], "durable": True, "key": f"storm {i}",
                          "params": params})] = i
    return sent


def gather(client, sent, jobs, until):
    """Record acceptances until that time, or until all jobs are accepted."""
    waiting = dict(sent)
    while waiting and time.monotonic() < until:
        try:
            reply = msgpack.unpackb(client.recv_frames(max(0, until - time.monotonic()))[-1])
        except TimeoutError:
            return
        if reply["op"] == "accepted" and reply["id"] in waiting:
            i = waiting.pop(reply["id"])
            assert jobs.setdefault(i, reply["job"]) == reply["job"], f"job {i} has two names"
        elif reply["op"] == "error" and reply["code"] not in ("E_INTERNAL", "E_NOT_READY", "E_OVERLOADED"):
            raise JobError(reply)


def test_every_output_exists_once_after_any_number_of_kills(serve):
    seed = int(os.environ.get("QUERN_CRASH_SEED", time.time_ns() % 10**6))
    print(f"QUERN_CRASH_SEED={seed}")
    r = random.Random(seed)
    s = serve("--keep-durable", "86400")
    with s.client() as c:
        running = [c.submit(stream=False, **storm_job(i)) for i in range(N_JOBS)]
        reference = [outputs(job.done(timeout=600).reply) for job in running]

    jobs, n_all = {}, 0
    for k in range(N_KILLS):
        due = [i for i in range((k + 1) * N_JOBS // N_KILLS) if i not in jobs]
        with JobClient(s.jobs) as c:
            gather(c, submit_storm(c, due), jobs, time.monotonic() + r.uniform(0.05, 1.2))
        target = r.choice(["quern-contr", "quern-worker", "quern-contr", ""])
        s.kill(target)
        if not target:
            n_all += 1
            s = serve("--keep-durable", "86400")
    for _ in range(50):
        due = [i for i in range(N_JOBS) if i not in jobs]
        if not due:
            break
        with JobClient(s.jobs) as c:
            gather(c, submit_storm(c, due), jobs, time.monotonic() + 5)
    assert len(set(jobs.values())) == len(jobs) == N_JOBS
    for i in range(N_JOBS):
        # A request that reached a dying controller is lost with it: submit it again.
        done = patiently(s, lambda c: c.attach(jobs[i]).done(timeout=20), timeout=240)
        assert outputs(done.reply) == reference[i], f"job {i} (seed {seed})"

    def table(c):
        return c.call("jobs")["jobs"]
    rows = [row for row in patiently(s, table) if row.get("key", "").startswith("storm ")]
    assert sorted(row["key"] for row in rows) == sorted(f"storm {i}" for i in range(N_JOBS))
    assert all(row["state"] == "done" for row in rows)
    print(f"{N_JOBS} jobs, {N_KILLS} kills, {n_all} of them of everything")


# --- the sweep ---

def test_finished_jobs_are_swept(sweeps):
    """The sweep runs every ten seconds, most of which the earlier tests take."""
    c = sweeps.client()

    def gone():
        try:
            c.call("result", job=sweeps.finished)
        except JobError as e:
            return e.code == "E_NO_SUCH_JOB"
    eventually(gone, 60, "a swept job")
