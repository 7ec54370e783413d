"""Many connections at once: none fails or loses a token."""

import os
import resource
import sys

import pytest

from service import ROOT, DEMO, eventually

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import http_scale  # noqa: E402

STREAMS = int(os.environ.get("QUERN_STREAMS", "200"))


@pytest.fixture(scope="module")
def wide():
    from service import Service
    http_scale.raise_limit()
    s = Service(DEMO, "--max-seqs", "512")
    host, port = s.http.removeprefix("http://").split(":")
    s.address = host, int(port)
    yield s
    s.stop()
    Service.used.remove(s)


def check(result):
    assert result["failed"] == 0, result["why"]
    assert result["short"] == 0, "tokens are missing"


def test_many_streams_at_once(wide):
    check(http_scale.run(wide.address, streams=STREAMS, tokens=20))
    wide.idle()


def test_slow_readers_get_the_whole_stream(wide):
    check(http_scale.run(wide.address, streams=20, tokens=30, slow=STREAMS // 2))
    wide.idle()


def test_idle_connections_are_kept_while_others_work(wide):
    n = min(2000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - 200)
    result = http_scale.run(wide.address, streams=20, tokens=20, idle=n)
    check(result)
    assert result["idle_alive"] == n


def test_clients_that_disconnect_at_once_leave_nothing_behind(wide):
    streams = [http_scale.Stream(wide.address, 1500, i) for i in range(STREAMS)]
    for s in streams:
        s.socket.setblocking(True)
        s.socket.sendall(s.out)
    for i, s in enumerate(streams):
        if i % 2:
            s.socket.recv(300)
        s.socket.close()
    eventually(lambda: wide.status()["running"] == 0 and wide.status()["waiting"] == 0, 60, "an idle service")
    wide.idle()
