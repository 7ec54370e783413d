"""`quern scale` and `quern drain`: their requests and output, with a job socket of the test."""

import json
import os
import pty
import subprocess
import threading
import uuid

import msgpack
import pytest
import zmq

from service import QUERN, spawn


class Socket:
    """Answer each op: replies[op] is called with the request and returns the reply, or None to reply later."""

    def __init__(self, **replies):
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.linger = 0
        port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.replies, self.seen, self.ending = replies, [], False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        waiting = []
        while not self.ending:
            if not self.router.poll(20):
                continue
            route, body = self.router.recv_multipart()
            request = msgpack.unpackb(body)
            self.seen.append(request)
            waiting.append((route, request))
            still = []
            for r, q in waiting:
                reply = self.replies[q["op"]](q, self.seen)
                if reply is None:
                    still.append((r, q))
                else:
                    self.router.send_multipart([r, msgpack.packb({"op": "ok", **reply, "id": q["id"]})])
            waiting = still
        self.router.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.ending = True
        self.thread.join()
        self.context.term()


def status(*states):
    return {"replicas": [{"id": i + 1, "state": s} for i, s in enumerate(states)],
            "workers": [{"worker": i + 1, "state": s, "progress": 0.25} for i, s in enumerate(states)]}


def test_scale_requests_replicas_and_prints_how_many_serve(run):
    with Socket(scale=lambda q, seen: {}, status=lambda q, seen: status("serving", "serving")) as s:
        r = run("scale", "2", "--device", "cpu:0,cpu:1", "--to", s.endpoint)
    assert (r.returncode, r.stdout, r.stderr) == (0, "2 replicas serve\n", "")
    assert {k: v for k, v in s.seen[0].items() if k != "id"} == {"op": "scale", "replicas": 2, "devices": ["cpu:0", "cpu:1"]}


def test_scale_without_devices_names_none(run):
    with Socket(scale=lambda q, seen: {}, status=lambda q, seen: status("serving")) as s:
        assert run("scale", "1", "--to", s.endpoint).stdout == "1 replica serves\n"
    assert "devices" not in s.seen[0]


def test_new_replicas_may_have_a_memory_fraction(run):
    with Socket(scale=lambda q, seen: {}, status=lambda q, seen: status("serving")) as s:
        assert run("scale", "1", "--memory-fraction", "0.25", "--to", s.endpoint).returncode == 0
        assert run("scale", "1", "--memory-fraction", "1.5", "--to", s.endpoint).returncode == 2
    assert [q["memory_fraction"] for q in s.seen if q["op"] == "scale"] == [0.25]


def test_drain_names_the_worker(run):
    with Socket(drain=lambda q, seen: {}, status=lambda q, seen: status("serving")) as s:
        r = run("drain", "7", "--to", s.endpoint)
    assert (r.returncode, r.stdout) == (0, "worker 7 has ended; 1 replica serves\n")
    assert (s.seen[0]["op"], s.seen[0]["worker"]) == ("drain", 7)


@pytest.mark.parametrize("command", [("scale", "2"), ("drain", "2")])
def test_timeout_is_part_of_the_request(run, command):
    with Socket(scale=lambda q, seen: {}, drain=lambda q, seen: {}, status=lambda q, seen: status("serving")) as s:
        assert run(*command, "--timeout", "7", "--to", s.endpoint).returncode == 0
        assert run(*command, "--timeout", "0", "--to", s.endpoint).returncode == 2
    assert s.seen[0]["timeout_s"] == 7


def test_json_is_the_reply(run):
    with Socket(scale=lambda q, seen: {"replicas": 3}) as s:
        r = run("scale", "3", "--json", "--to", s.endpoint)
    assert json.loads(r.stdout) == {"replicas": 3}


@pytest.mark.parametrize("command", [("scale", "9"), ("drain", "9")])
def test_refusal_is_a_failure_with_its_reason(run, command):
    no = {"op": "error", "code": "E_BAD_REQUEST", "message": "there is no such thing"}
    with Socket(scale=lambda q, seen: no, drain=lambda q, seen: no) as s:
        r = run(*command, "--to", s.endpoint)
    assert (r.returncode, r.stdout) == (1, "")
    assert "there is no such thing" in r.stderr and "E_BAD_REQUEST" in r.stderr


def test_terminal_shows_progress():
    """The reply is sent after two status requests have been answered."""
    def scale(q, seen):
        return {} if sum(r["op"] == "status" for r in seen) >= 3 else None

    def ask(q, seen):
        n = sum(r["op"] == "status" for r in seen)
        return status("serving", "loading") if n == 1 else status("serving", "draining") if n == 2 else status("serving", "serving")

    master, slave = pty.openpty()
    with Socket(scale=scale, status=ask) as s:
        p = spawn([QUERN, "scale", "2", "--to", s.endpoint], uuid.uuid4().hex, stdin=subprocess.DEVNULL,
                  stdout=subprocess.PIPE, stderr=slave, text=True)
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:     # the other side is closed
                break
            if not part:
                break
            shown += part
        assert p.wait(60) == 0
        assert p.stdout.read() == "2 replicas serve\n"
        p.stdout.close()
    os.close(master)
    assert b"1 serving, 1 loading (25%)" in shown
    assert b"1 serving, 1 draining" in shown
