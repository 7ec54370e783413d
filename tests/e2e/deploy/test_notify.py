"""Messages of `quern serve` to a service manager by sd_notify's protocol: ready, alive, ending."""

import socket
import subprocess

import pytest

from service import DEMO, QUERN, Service


@pytest.fixture
def manager(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(tmp_path / "notify"))
        s.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        yield s


def test_ready_alive_and_stopping(manager):
    told = []

    def until(line):
        while line not in told:
            told.extend(manager.recv(4096).decode().split("\n"))
    s = Service(DEMO)
    try:
        until("READY=1")
        assert told[-1] == "STATUS=serves demo"
        told.clear()
        until("WATCHDOG=1")
        s.process.terminate()
        until("STOPPING=1")
        assert s.process.wait(30) == 0
    finally:
        s.stop()


def test_a_start_that_fails_says_why(manager, tmp_path):
    done = subprocess.run([QUERN, "serve", tmp_path / "nothing"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert manager.recv(4096).decode() == "STATUS=" + done.stderr.removeprefix("quern: ").strip()


def test_a_socket_that_cannot_be_is_named(monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "here")
    done = subprocess.run([QUERN, "serve", DEMO, "--jobs", "tcp://127.0.0.1:*", "--http", "none"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and 'NOTIFY_SOCKET is "here"' in done.stderr
