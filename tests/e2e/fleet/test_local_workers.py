"""On TCP any peer can claim any host and pid. Only workers with the supervisor's token count as local."""

import os
import socket
import subprocess

import msgpack
import pytest
import zmq

from jobclient import CONTEXT
from service import BIN, BUS_VERSION, DEMO, eventually, free_port, marked, spawn

PROMPT = "Once upon a time"


@pytest.fixture
def on_tcp(start):
    port = free_port()
    s = start(DEMO, "--bus", f"tcp://127.0.0.1:{port}", "--threads", "1")
    s.bus = f"tcp://127.0.0.1:{port}"
    return s


def workers(s):
    return sorted(pid for pid, name in marked(s.mark).items() if name.startswith("quern-work"))


def stranger_is_lost(bus, **hello):
    """A peer says hello, then sends garbage until it is told to stop."""
    peer = CONTEXT.socket(zmq.DEALER)
    peer.linger, peer.rcvtimeo = 0, 60000
    peer.connect(bus)
    peer.send(msgpack.packb([BUS_VERSION, 1, {"device": "cpu", "host": socket.gethostname(), "meet": "", **hello}]))
    while msgpack.unpackb(peer.recv())[1] != 2:     # its load message
        pass
    peer.send(b"garbage")
    while msgpack.unpackb(peer.recv())[1] != 8:
        pass
    peer.close()


@pytest.mark.parametrize("claim", [{}, {"token": "0" * 64}], ids=["no token", "another token"])
def test_a_stranger_cannot_have_a_worker_killed(on_tcp, claim):
    with on_tcp.client() as c:
        (pid,) = workers(on_tcp)
        stranger_is_lost(on_tcp.bus, pid=pid, **claim)
        # The supervisor reads the order for another worker after the report of the loss.
        c.call("scale", replicas=2)
        assert pid in workers(on_tcp)
        assert len(c.generate(PROMPT, max_tokens=3).tokens) == 3


def test_workers_on_tcp_are_scaled_as_the_supervisors_own(on_tcp):
    with on_tcp.client() as c:
        c.call("scale", replicas=2)
        assert len(workers(on_tcp)) == 2
        w = spawn([BIN / "quern-worker", "--bus", on_tcp.bus, "--threads", "1"], on_tcp.mark, stdin=subprocess.DEVNULL,
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: len([x for x in c.workers() if x["state"] == "serving"]) == 3, 60, "the third worker")
        c.call("scale", replicas=1)
        eventually(lambda: len(workers(on_tcp)) == 1, 60, "the end of two workers")
        assert len(c.generate(PROMPT, max_tokens=3).tokens) == 3
        if w.poll() is None:    # the worker that stayed
            os.kill(w.pid, 15)
        w.wait(60)
