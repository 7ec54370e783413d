"""Processes: start and end of a service, and the death of its processes."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

import pytest

from jobclient import JobClient, JobError
from service import BIN, DEMO, QUERN, eventually, free_port, marked, no_processes_left, spawn

PROMPT = "Once upon a time"
LONG = dict(max_tokens=500, ignore_eos=True, temperature=1.0, seed=4)
ENDLESS = dict(max_tokens=2000, n=64, ignore_eos=True, seed=1)


def worker_pid(client):
    (w,) = client.workers()
    return w["pid"]


def unfinished(client, job):
    try:
        client.result(job.job)
        return False
    except JobError as e:
        assert e.code == "E_NOT_READY"
        return True


def strike(client, sig, prompts):
    """Signal the worker while jobs are running; return those jobs and the worker's pid."""
    for _ in range(20):
        jobs = [client.submit(p, **LONG) for p in prompts]
        for j in jobs:
            j.first_delta()
        pid = worker_pid(client)
        os.kill(pid, signal.SIGSTOP)    # from here on no job ends
        if all(unfinished(client, j) for j in jobs):
            os.kill(pid, sig)
            return jobs, pid
        os.kill(pid, signal.SIGCONT)    # too late: try again
        for j in jobs:
            j.done()
    pytest.fail("every job ended before it could be disturbed")


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_signal_ends_the_service_cleanly(start, sig):
    s = start(DEMO)
    assert len(marked(s.mark)) == 3
    assert s.end(sig) == 0
    no_processes_left(s.mark)


def test_ctrl_c_ends_the_service_while_jobs_run(start):
    s = start(DEMO)
    job = s.client().submit(PROMPT, **ENDLESS)
    job.first_delta()
    assert s.end(signal.SIGINT) == 0
    no_processes_left(s.mark)


def test_client_of_a_running_job_gets_an_error_when_the_service_ends(start):
    s = start(DEMO)
    job = s.client().submit(PROMPT, **ENDLESS)
    job.first_delta()
    s.process.send_signal(signal.SIGINT)
    assert {o["finish_reason"] for o in job.done().outputs} == {"abort"}


def test_second_ctrl_c_kills(start):
    s = start(DEMO)
    with s.client() as c:
        os.kill(worker_pid(c), signal.SIGSTOP)
    s.process.send_signal(signal.SIGINT)
    while s.process.poll() is None:
        s.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    no_processes_left(s.mark)


def test_run_directory_is_removed_with_the_service(start, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="quern-run-") as base:
        monkeypatch.setenv("XDG_RUNTIME_DIR", base)
        s = start(DEMO)
        (directory,) = Path(base).iterdir()
        assert directory.stat().st_mode & 0o777 == 0o700
        s.end()
        assert list(Path(base).iterdir()) == []


def test_sigkill_of_serve_leaves_no_process(start):
    s = start(DEMO)
    job = s.client().submit(PROMPT, **ENDLESS)
    job.first_delta()
    s.process.kill()
    s.process.wait(10)
    no_processes_left(s.mark)


def test_sigkill_of_run_leaves_no_process():
    mark = uuid.uuid4().hex
    p = spawn([QUERN, "run", DEMO, "--raw", PROMPT, "--ignore-eos", "-n", "32"], mark, stdin=subprocess.DEVNULL,
              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert p.stdout.read(1)
    p.kill()
    p.wait(10)
    p.stdout.close()
    no_processes_left(mark)


def test_ctrl_c_ends_run():
    mark = uuid.uuid4().hex
    p = spawn([QUERN, "run", DEMO, "--raw", PROMPT, "--ignore-eos", "-n", "32"], mark, stdin=subprocess.DEVNULL,
              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 1
    assert b"cancelled" in err
    no_processes_left(mark)


# --- the worker dies ---

def test_killed_worker_is_replaced_and_its_jobs_continue(start):
    s = start(DEMO)
    prompts = [f"{PROMPT} {i}" for i in range(3)]
    with s.client() as c:
        jobs, dead = strike(c, signal.SIGKILL, prompts)
        disturbed = [j.done().tokens for j in jobs]
        assert disturbed == [c.generate(p, **LONG).tokens for p in prompts]
        assert worker_pid(c) != dead
    s.idle()


def test_stream_of_a_killed_worker_has_no_gap_and_no_duplicate(start):
    s = start(DEMO)
    with s.client() as c:
        (job,), _ = strike(c, signal.SIGKILL, [PROMPT])
        done = job.done()
    seen = 0
    for d in job.deltas:
        assert d["offset"] == seen
        seen += len(d["tokens"])
    assert sum((d["tokens"] for d in job.deltas), []) == done.tokens
    assert "".join(d["text"] for d in job.deltas) == done.text


def test_worker_killed_repeatedly_loses_no_job(start):
    s = start(DEMO, step_ms=5)
    with s.client() as c:
        known = c.generate(PROMPT, **LONG).tokens
        job = c.submit(PROMPT, stream=True, **LONG)
        job.accepted()
        for _ in range(4):
            pid = eventually(lambda: next((w["pid"] for w in c.workers() if w["state"] == "serving"), None),
                             what="a worker that serves")
            progress = 0 # beyond the steps in flight when the last worker died, or else the job is blamed for the death
            while progress < 8:
                progress += len(job.event()["tokens"])
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: pid not in [w["pid"] for w in c.workers()], what="the worker's end")
        assert job.done().tokens == known


def test_stopped_worker_is_detected_and_replaced(start):
    s = start(DEMO)
    with s.client() as c:
        (job,), hung = strike(c, signal.SIGSTOP, [PROMPT])
        tokens = job.done().tokens
        assert tokens == c.generate(PROMPT, **LONG).tokens
        assert worker_pid(c) != hung
    assert hung not in marked(s.mark)


def test_job_submitted_without_a_worker_waits_for_one(start):
    s = start(DEMO)
    with s.client() as c:
        os.kill(worker_pid(c), signal.SIGKILL)
        assert len(c.generate(PROMPT, max_tokens=5, ignore_eos=True).tokens) == 5


# --- the controller dies ---

def processes(s, name):
    return [pid for pid, n in marked(s.mark).items() if n.startswith(name)]


def kill_controller(s, sig=signal.SIGKILL):
    (pid,) = processes(s, "quern-contr")
    os.kill(pid, sig)
    return pid


def again_ready(s, before):
    """Return a client of the controller that succeeded `before`, once it serves."""
    eventually(lambda: before not in processes(s, "quern-contr"), what="the controller's end")
    c = s.client()
    eventually(lambda: c.ping()["ready"], what="a service that is ready again")
    return c


def test_killed_controller_is_replaced_and_the_worker_keeps_its_weights(start):
    s = start(DEMO)
    with s.client() as c:
        known = c.generate(PROMPT, **LONG).tokens
        worker = worker_pid(c)
    c = again_ready(s, kill_controller(s))
    assert c.generate(PROMPT, **LONG).tokens == known
    assert worker_pid(c) == worker
    assert s.log().count("worker/link: load ") == 1
    s.idle()


def test_new_controller_listens_at_the_same_addresses(start):
    s = start(DEMO)     # on ports of the system's choice
    again_ready(s, kill_controller(s))
    with urllib.request.urlopen(s.http + "/health", timeout=30) as reply:
        assert reply.status == 200
    assert s.end() == 0
    no_processes_left(s.mark)


def test_controller_killed_repeatedly_during_jobs_serves_again(start):
    """These jobs are not durable: waiting clients are disconnected, and submit again."""
    s = start(DEMO)
    with s.client() as c:
        known = c.generate(PROMPT, **LONG).tokens
    for _ in range(4):
        with s.client() as c:
            job = c.submit(PROMPT, **ENDLESS)
            job.first_delta()
        c = again_ready(s, kill_controller(s))
        assert c.generate(PROMPT, **LONG).tokens == known
    assert len(processes(s, "quern-worker")) == 1
    assert s.end() == 0
    no_processes_left(s.mark)


def test_stopped_controller_is_detected_and_replaced(start):
    s = start(DEMO)
    with s.client() as c:
        worker = worker_pid(c)
    c = again_ready(s, kill_controller(s, signal.SIGSTOP))
    assert worker_pid(c) == worker


def test_controller_and_worker_killed_at_once_are_both_replaced(start):
    s = start(DEMO)
    with s.client() as c:
        known = c.generate(PROMPT, **LONG).tokens
        os.kill(worker_pid(c), signal.SIGKILL)
    c = again_ready(s, kill_controller(s))
    assert c.generate(PROMPT, **LONG).tokens == known


def test_workers_that_cannot_serve_end_the_service_not_the_controller(start, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for f in DEMO.iterdir():
        if f.is_file():
            shutil.copy(f, model / f.name)
    s = start(model)
    (tmp_path / "broken").write_bytes(b"no weights")
    os.replace(tmp_path / "broken", model / "model.safetensors")    # the mapped file stays intact
    controllers = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-contro")]
    with s.client() as c:
        victims = [worker_pid(c), *controllers]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    assert s.process.wait(60) == 1
    log = s.log()
    assert "a worker on cpu died 5 times" in log and "model.safetensors" in log
    assert log.count("the controller ended") == 1, log
    no_processes_left(s.mark)


def test_ctrl_c_ends_a_service_without_its_controller(start):
    s = start(DEMO)
    kill_controller(s)
    assert s.end() == 0
    no_processes_left(s.mark)


def test_sigkill_of_the_controller_ends_run():
    mark = uuid.uuid4().hex
    p = spawn([QUERN, "run", DEMO, "--raw", PROMPT, "--ignore-eos", "-n", "32"], mark, stdin=subprocess.DEVNULL,
              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.read(1)
    (controller,) = [pid for pid, name in marked(mark).items() if name.startswith("quern-contr")]
    os.kill(controller, signal.SIGKILL)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 1
    assert b"controller" in err or b"gone away" in err
    no_processes_left(mark)


def test_worker_without_a_controller_exits_with_a_reason():
    with tempfile.TemporaryDirectory(prefix="quern-bus-") as d:
        bus, jobs, mark = f"ipc://{d}/bus", f"ipc://{d}/jobs", uuid.uuid4().hex
        quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        controller = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", bus, "--jobs", jobs, "--http", "none"],
                           mark, **quiet)
        worker = spawn([BIN / "quern-worker", "--bus", bus, "--grace", "1"], mark, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        with JobClient(jobs) as c:
            c.submit(PROMPT, **LONG).first_delta()
        controller.kill()
        controller.wait(30)
        _, err = worker.communicate(timeout=60)
        assert worker.returncode == 1
        assert "no message from a controller" in err or "no message from the controller" in err
        no_processes_left(mark)


def test_service_continues_when_its_log_pipe_is_closed():
    with tempfile.TemporaryDirectory(prefix="quern-bus-") as d:
        jobs, mark = f"ipc://{d}/jobs", uuid.uuid4().hex
        p = spawn([QUERN, "serve", DEMO, "--jobs", jobs, "--http", "none", "--json"], mark, stdin=subprocess.DEVNULL,
                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert p.stdout.readline()
        p.stderr.close()
        with JobClient(jobs) as c:
            before = worker_pid(c)
            os.kill(before, signal.SIGKILL)     # supervisor, controller and the new worker all log
            eventually(lambda: c.status()["ready"] and worker_pid(c) != before)
            assert c.generate(PROMPT, max_tokens=4).tokens
        p.send_signal(signal.SIGTERM)
        assert p.wait(60) == 0
        no_processes_left(mark)


# --- addresses ---

def serve(*options):
    """Run a service that is expected to fail: (exit status, stdout, stderr)."""
    p = spawn([QUERN, "serve", DEMO, *options], "serve", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
              stderr=subprocess.PIPE, text=True)
    ready = p.stdout.readline()     # "" if it ends instead
    if ready:
        p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert not ready, f"quern serve {options} serves: {ready}{out}{err}"
    return p.returncode, out, err


def test_second_service_on_the_same_job_socket_is_a_plain_error(start):
    s = start(DEMO)
    code, _, err = serve("--jobs", s.jobs, "--http", "127.0.0.1:0")
    assert code == 1
    assert s.jobs in err and "in use" in err
    with s.client() as c:
        assert c.ping()["ready"]


def test_second_service_on_the_same_http_port_is_a_plain_error(start):
    s = start(DEMO)
    code, _, err = serve("--jobs", "tcp://127.0.0.1:*", "--http", s.http.removeprefix("http://"))
    assert code == 1
    assert s.http.removeprefix("http://") in err and "in use" in err
    no_processes_left("serve")


@pytest.mark.parametrize("option, value", [("--http", "0.0.0.0:0"), ("--jobs", "tcp://0.0.0.0:*"), ("--jobs", "tcp://*:*"),
                                           ("--http", "[::]:0"), ("--bus", "tcp://0.0.0.0:45917")])
def test_listening_beyond_loopback_without_keys_is_refused(option, value):
    addresses = {"--http": "none", "--jobs": "tcp://127.0.0.1:*", option: value}
    code, _, err = serve(*[word for pair in addresses.items() for word in pair])
    assert code == 1
    assert "--insecure" in err
    no_processes_left("serve")


def test_service_without_any_address_is_refused():
    code, _, err = serve("--http", "none", "--jobs", "none")
    assert code == 2 and "--http none and --jobs none" in err
    no_processes_left("serve")
    r = subprocess.run([BIN / "quern-controller", "--model", DEMO, "--bus", "inproc://bus", "--http", "none", "--jobs", "none"],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and "--http none and --jobs none" in r.stderr


@pytest.mark.parametrize("option, words", [("compute", "f32, bf16, int16, int8"), ("prefill", "mixed, separate"),
                                           ("preempt", "auto, swap, recompute")])
def test_a_choice_that_is_not_one_is_refused_by_the_controller(option, words, tmp_path):
    """The option is checked before the model is read: there is no model."""
    r = subprocess.run([BIN / "quern-controller", "--model", tmp_path, "--bus", f"ipc://{tmp_path}/bus", f"--{option}", "bogus"],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and f'--{option} "bogus": must be one of {words}' in r.stderr


@pytest.mark.parametrize("name", ["", "x" * 256, os.fsdecode(b"\xff")], ids=["empty", "long", "no UTF-8"])
def test_model_name_that_is_not_text_is_refused(name):
    code, _, err = serve("--http", "none", "--jobs", "tcp://127.0.0.1:*", "--name", name)
    assert code == 1 and "name" in err
    no_processes_left("serve")


def test_journal_that_is_not_a_file_is_refused_and_creates_nothing(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, _, err = serve("--http", "none", "--jobs", "tcp://127.0.0.1:*", "--journal", pipe)
    assert code == 1 and f"{pipe} is not a regular file" in err
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("option, value", [("--http", "nonsense"), ("--http", "127.0.0.1:99999"), ("--jobs", "nonsense"),
                                           ("--jobs", "tcp://127.0.0.1:99999"), ("--bus", "tcp://127.0.0.1:165535"),
                                           ("--jobs", "tcp://127.0.0.1"), ("--bus", "udp://x"), ("--jobs", "inproc://x")])
def test_invalid_addresses_are_named(option, value):
    rest = {"--http": "127.0.0.1:0", "--jobs": "tcp://127.0.0.1:*"}
    rest[option] = value
    code, _, err = serve(*[word for pair in rest.items() for word in pair])
    assert code in (1, 2)
    assert value in err
    no_processes_left("serve")


def test_job_socket_may_be_a_path(start):
    with tempfile.TemporaryDirectory(prefix="quern-ipc-") as d:
        s = start(DEMO, "--jobs", f"ipc://{d}/jobs", "--http", "none")
        assert s.jobs == f"ipc://{d}/jobs"
        with s.client() as c:
            assert c.ping()["ready"]
        s.end()


# --- parts started by hand ---

def test_worker_started_by_hand_serves():
    with tempfile.TemporaryDirectory(prefix="quern-bus-") as d:
        bus, jobs, mark = f"ipc://{d}/bus", f"ipc://{d}/jobs", uuid.uuid4().hex
        quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        controller = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", bus, "--jobs", jobs, "--http", "none"],
                           mark, **quiet)
        try:
            with JobClient(jobs) as c:
                assert c.ping()["ready"] is False
                job = c.submit(PROMPT, max_tokens=5, temperature=0, ignore_eos=True)
                worker = spawn([BIN / "quern-worker", "--bus", bus, "--device", "cpu"], mark, **quiet)
                assert len(job.done().tokens) == 5
                assert c.ping()["ready"] is True
                assert worker_pid(c) == worker.pid
        finally:
            controller.send_signal(signal.SIGTERM)
            assert controller.wait(30) == 0
        assert worker.wait(60) == 0     # stopped by the controller
        no_processes_left(mark)


def test_garbage_on_the_worker_bus_is_ignored(start):
    """Any process of this host can reach a bus on TCP."""
    port = free_port()
    s = start(DEMO, "--bus", f"tcp://127.0.0.1:{port}")
    with s.client() as c:
        job = c.submit(PROMPT, **LONG)
        for data in (b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x91" * 10000, b"x" * 100000, os.urandom(1000)):
            with JobClient(f"tcp://127.0.0.1:{port}") as stranger:
                stranger.socket.linger = 1000
                stranger.send_frames(data)
                stranger.send_frames(b"", data, data)
            with socket.create_connection(("127.0.0.1", port), 10) as raw:
                raw.sendall(data)
        assert len(job.done().tokens) == LONG["max_tokens"]
        assert c.ping()["ready"]


def test_serve_takes_its_options_from_a_file(start, tmp_path):
    path = tmp_path / "quern.ini"
    path.write_text("# a comment\n[serve]\nmax-seqs = 3\nname = from-a-file\n")
    s = start(DEMO, "--config", path)
    with s.client() as c:
        assert c.ping()["model"] == "from-a-file"


def test_unknown_option_in_the_file_is_named(tmp_path):
    path = tmp_path / "quern.ini"
    path.write_text("[serve]\ncolour = red\n")
    code, _, err = serve("--config", path)
    assert code == 1
    assert "colour" in err and str(path) in err
