"""The end of a service: running requests finish first, new requests are refused (--drain-timeout)."""

import contextlib
import http.client
import json
import os
import signal
import time
import urllib.error
import urllib.request

import pytest

from jobclient import JobClient, JobError
from service import DEMO, TRIES, Service, eventually, marked, no_processes_left
from terminal import Terminal

PROMPT = "Once upon a time"
LONG = dict(max_tokens=2000, n=4, ignore_eos=True, seed=1)     # seconds of work
ENDLESS = dict(LONG, n=64)              # far longer than a test waits
PATIENT = ("--drain-timeout", "600")    # longer than a test may take: never waited out


def ask(service, path, body=None):
    """Send a request: (status, headers, JSON)."""
    data = None if body is None else json.dumps({"model": "demo", **body}).encode()
    request = urllib.request.Request(service.http + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, r.headers, json.loads(r.read())
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.headers, json.loads(e.read())


class Stream:
    """A streamed completion after its reply has begun. first: its first event."""

    def __init__(self, service, **params):
        self.connection = http.client.HTTPConnection(service.http.removeprefix("http://"), timeout=150)
        body = {"model": "demo", "prompt": PROMPT, "stream": True, **params}
        self.connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})

    def begun(self):
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200
        self.first = self.event()
        return self

    def event(self):
        while not (line := self.reply.readline()).startswith(b"data: "):
            assert line == b"\n", line
        return line[6:-1]

    def rest(self):
        """Return all later events."""
        events = [self.event()]
        while events[-1] != b"[DONE]" and b'"error"' not in events[-1]:
            events.append(self.event())
        self.connection.close()
        return events


def finished(events):
    """Return the finish reasons of a stream's outputs."""
    return [c["finish_reason"] for e in events if e != b"[DONE]" for c in json.loads(e)["choices"] if c["finish_reason"]]


def drains(service):
    return eventually(lambda: "waiting for running requests" in service.log(), what="a service that waits")


def test_running_requests_finish_and_new_ones_are_refused(start):
    s = start(DEMO, *PATIENT)
    client = s.client()
    with s.paused():    # neither may end before all requests are sent
        streamed, job = Stream(s, **LONG), client.submit(PROMPT, **LONG).accepted()
        eventually(lambda: len(client.jobs()) == 2, what="both jobs")
        s.process.send_signal(signal.SIGTERM)
        drains(s)
        is_refused_everywhere(s, client)
    assert {o["finish_reason"] for o in job.done().outputs} == {"length"}
    events = streamed.begun().rest()
    assert events[-1] == b"[DONE]" and finished(events) == ["length"] * LONG["n"]
    assert s.process.wait(60) == 0
    no_processes_left(s.mark)


def is_refused_everywhere(s, client):
    for path in ("/health", "/ready", "/readyz"):
        status, headers, reply = ask(s, path)
        assert status == 503 and headers["Retry-After"], (path, reply)
        assert reply["error"]["message"] == "the service is ending: 2 jobs finish first"
    assert ask(s, "/livez")[0] == 200
    status, headers, reply = ask(s, "/v1/completions", {"prompt": PROMPT, "max_tokens": 4})
    assert status == 503 and reply["error"]["code"] == "service_stopping" and int(headers["Retry-After"]) >= 1
    assert headers["Connection"] == "close"
    with pytest.raises(JobError, match="E_NOT_READY.*ending"):
        client.generate(PROMPT, max_tokens=4)
    with JobClient(s.jobs) as admin, pytest.raises(JobError, match="E_NOT_READY.*ending"):
        admin.call("scale", replicas=2)
    assert client.ping()["ready"] is False


def test_a_waiting_job_runs_before_the_end(start):
    s = start(DEMO, *PATIENT, "--max-seqs", "1")
    with s.client() as c:
        first = c.submit(PROMPT, max_tokens=1500, ignore_eos=True)
        first.first_delta()
        second = c.submit(PROMPT, max_tokens=5, ignore_eos=True).accepted()
        s.process.send_signal(signal.SIGTERM)
        assert first.done().finish_reason == "length"
        assert len(second.done().tokens) == 5
    assert s.process.wait(60) == 0


def test_a_second_signal_cuts_running_requests(start):
    s = start(DEMO, *PATIENT)
    streamed = Stream(s, **ENDLESS).begun()
    s.process.send_signal(signal.SIGTERM)
    drains(s)
    time.sleep(0.2)     # two signals within 100 ms count as one
    s.process.send_signal(signal.SIGTERM)
    events = streamed.rest()
    assert json.loads(events[-1])["error"]["code"] == "service_stopping"
    assert s.process.wait(60) == 0
    no_processes_left(s.mark)


def test_requests_that_take_longer_than_the_time_limit_are_cut(start):
    s = start(DEMO, "--drain-timeout", "1")
    job = s.client().submit(PROMPT, max_tokens=2000, n=64, ignore_eos=True)
    job.first_delta()
    os.kill(s.workers()[0]["pid"], signal.SIGSTOP)      # stopped: no job ends until the worker is killed and restarted
    s.process.send_signal(signal.SIGINT)
    assert {o["finish_reason"] for o in job.done().outputs} == {"abort"}
    assert s.process.wait(60) == 0
    assert "--drain-timeout has passed, cutting jobs=1" in s.log()
    no_processes_left(s.mark)


def test_nothing_that_runs_is_nothing_to_wait_for(start):
    """A service does not wait for connections without a request, nor for the page's live stream, which has no end."""
    s = start(DEMO, *PATIENT)
    address = s.http.removeprefix("http://")
    idle, live = (http.client.HTTPConnection(address, timeout=60) for _ in range(2))
    idle.request("GET", "/version")
    assert idle.getresponse().read()
    live.request("GET", "/api/live")
    stream = live.getresponse()
    assert stream.readline()
    assert s.end(signal.SIGTERM) == 0
    assert "waiting for running requests" not in s.log()
    idle.close()
    live.close()
    no_processes_left(s.mark)


def test_a_worker_that_dies_meanwhile_is_replaced(start):
    s = start(DEMO, *PATIENT)
    with s.client() as c:
        known = c.generate(PROMPT, max_tokens=1500, ignore_eos=True, seed=7, temperature=1).tokens
        for _ in range(TRIES):
            others = c.submit(PROMPT, **LONG)
            job = c.submit(PROMPT, max_tokens=1500, ignore_eos=True, seed=7, temperature=1)
            others.first_delta()
            job.first_delta()
            with s.paused() as (worker,):
                if job.unfinished() and others.unfinished():
                    s.process.send_signal(signal.SIGTERM)
                    drains(s)
                    with contextlib.suppress(ProcessLookupError):   # stopped for too long, and already replaced
                        os.kill(worker, signal.SIGKILL)
                    break
            assert (job.done().tokens, len(others.done().outputs)) == (known, LONG["n"])
        else:
            pytest.fail("the jobs ended before their worker could die")
        assert job.done().tokens == known
        assert {o["finish_reason"] for o in others.done().outputs} == {"length"}
    assert s.process.wait(60) == 0
    no_processes_left(s.mark)


def test_durable_jobs_are_not_waited_for_and_continue_at_the_next_start(tmp_path):
    journal = tmp_path / "journal"
    endless = dict(max_tokens=1900, ignore_eos=True, seed=3, temperature=1.0, durable=True)
    s = Service(DEMO, *PATIENT, "--journal", journal, "--max-seqs", "1")
    try:
        with s.client() as c:
            jobs = [c.submit(PROMPT, **endless) for _ in range(3)]      # one after another
            jobs[0].first_delta()
            ids = [j.accepted().job for j in jobs]
            s.process.send_signal(signal.SIGTERM)
            assert s.process.wait(60) == 0
    finally:
        s.stop()
    s = Service(DEMO, "--journal", journal)
    try:
        with s.client() as c:
            outputs = [c.attach(i).done().tokens for i in ids]
        assert outputs[0] == outputs[1] == outputs[2] and len(outputs[0]) == endless["max_tokens"]
    finally:
        s.stop()


# --- SIGHUP ---

def pids(service):
    return {name: pid for pid, name in marked(service.mark).items()}


def test_sighup_ends_no_service_without_a_terminal():
    """The signal may arrive before the controller has requested it."""
    s = Service(DEMO, wait=False)
    try:
        eventually(lambda: len(pids(s)) > 1, what="a second process")
        s.process.send_signal(signal.SIGHUP)
        s.wait_ready()
        before = pids(s)
        for _ in range(20):
            s.process.send_signal(signal.SIGHUP)
        assert ask(s, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1})[0] == 200
        assert pids(s) == before and "died" not in s.log() and "ended" not in s.log(), s.log()
        assert s.end(signal.SIGTERM) == 0
    finally:
        s.stop()


def test_sighup_ends_a_service_of_a_terminal():
    """The end of the terminal sends the signal."""
    t = Terminal("serve", DEMO, "--http", "127.0.0.1:0", "--jobs", "tcp://127.0.0.1:*")
    try:
        t.expect("Ctrl-C ends it.")
        t.process.send_signal(signal.SIGHUP)
        t.expect("ending")
        t.rest()
        assert t.process.wait(60) == 0
    finally:
        t.end()
