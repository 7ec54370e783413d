"""The start of a service: its messages, and their times."""

import http.client
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import uuid

import msgpack
import pytest
import zmq

from service import BIN, BUS_VERSION, DEMO, QUERN, eventually, free_port, no_processes_left, spawn

F32 = ("--compute", "f32")
SMALL = (*F32, "--kv-bytes", "4M")    # 51 blocks of 16 tokens


def banner(*options):
    """Return the text that `quern serve` prints for people."""
    mark = uuid.uuid4().hex
    p = spawn([QUERN, "serve", DEMO, "--http", "none", "--jobs", "tcp://127.0.0.1:*", *options], mark, stdin=subprocess.DEVNULL,
              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    text = p.stdout.readline()
    p.send_signal(signal.SIGTERM)
    text += p.stdout.read()
    assert p.wait(60) == 0
    p.stdout.close()
    no_processes_left(mark)
    return text


def failing(*arguments):
    """Return the output of a `quern serve` that cannot start."""
    mark = uuid.uuid4().hex
    p = spawn([QUERN, "serve", *arguments, "--http", "none", "--jobs", "tcp://127.0.0.1:*"], mark, stdin=subprocess.DEVNULL,
              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = p.communicate(timeout=60)[0]
    assert p.returncode == 1
    no_processes_left(mark)
    return text


@pytest.mark.parametrize("options", [(), ("--tp", "2"), ("--log-format", "json")], ids=" ".join)
def test_the_reason_of_a_failed_start_is_printed_once(options):
    """Only one of the four processes prints it."""
    text = failing(DEMO, "--kv-bytes", "900T", *options)
    assert text.count("a KV pool of") == 1, text
    assert "a KV pool of" in text.splitlines()[-1]


def test_every_start_names_the_context_that_clients_get(start):
    for _ in range(5):
        s = start(DEMO, *SMALL)
        assert s.ready["max_context"] == 816 and s.ready["model_context"] == 2048
        assert s.status()["max_context"] == 816
        s.end()


def test_a_context_that_the_pool_cuts_is_named_with_what_gives_all_of_it(start):
    s = start(DEMO, *SMALL)
    full = s.ready["full_kv_bytes"]
    assert f"max_context=816 wanted=2048 full_kv_bytes={full}" in s.log()
    text = banner(*SMALL)
    assert "(context 816 tokens," in text
    size = re.search(r"whole context of 2048 tokens, which takes --kv-bytes (\d+[MG])\n", text)[1]
    for enough in (str(full), size):
        s = start(DEMO, *F32, "--kv-bytes", enough)
        assert (s.ready["max_context"], s.ready["full_kv_bytes"]) == (2048, 0)
        assert "context reduced" not in s.log()
    assert "whole context" not in banner(*F32)
    s = start(DEMO, *F32, "--kv-bytes", str(full - 1))
    assert s.ready["max_context"] < 2048


def test_a_log_in_json_is_json_on_every_line_of_every_program(start):
    s = start(DEMO, "--log-format", "json")
    s.end()
    lines = [json.loads(line) for line in s.log().splitlines()]
    assert {"controller", "worker", "quern"} == {line["program"] for line in lines}
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d")
    for line in lines:
        assert stamp.fullmatch(line["time"]) and line["level"] in ("info", "warn") and line["message"], line


def test_a_log_that_is_not_for_a_terminal_has_dates_on_every_line(start):
    s = start(DEMO)
    s.end()
    assert "quern/serve: ending" in s.log()
    for line in s.log().splitlines():
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d [a-z]+ (controller|worker|quern)/", line), line


class LoadingWorker(threading.Thread):
    """A worker that never finishes loading its weights and sends only heartbeats."""

    HELLO, LOAD, BEAT, LOADING, PACKING = 1, 2, 7, 1, 2

    def __init__(self, bus):
        super().__init__()
        self.bus, self.ended = bus, threading.Event()

    def run(self):
        context = zmq.Context()
        with context.socket(zmq.DEALER) as s:
            s.linger = 0
            s.connect(self.bus)
            self.send(s, self.HELLO, {"device": "cpu", "host": socket.gethostname(), "pid": os.getpid(), "meet": "", "token": ""})
            epoch = 0
            while not self.ended.wait(0.1):
                while s.poll(0):
                    _, kind, body = msgpack.unpackb(s.recv())
                    epoch = body["epoch"] if kind == self.LOAD else epoch
                if epoch:
                    self.send(s, self.BEAT, {"epoch": epoch, "state": self.LOADING, "progress": 250, "expected": 1, "moves": 1,
                                             "doing": self.PACKING, "done": 512 << 20, "total": 2 << 30})
        context.term()

    def send(self, s, kind, body):
        s.send(msgpack.packb([BUS_VERSION, kind, body]))


def test_a_service_that_loads_says_what_and_how_far(tmp_path):
    """Progress is reported in its log, to its supervisor, and to probes."""
    mark, bus = uuid.uuid4().hex, f"ipc://{tmp_path}/bus"
    address = f"127.0.0.1:{free_port()}"
    out, to_supervisor = os.pipe()
    with open(tmp_path / "log", "wb") as log:
        p = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", bus, "--jobs", "none", "--http", address, "--ready-fd",
                   str(to_supervisor)], mark, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(to_supervisor,))
    os.close(to_supervisor)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(json.loads(line) for line in os.fdopen(out)))
    reader.start()

    def waits_for(text):
        def answer():
            connection = http.client.HTTPConnection(address, timeout=30)
            try:
                connection.request("GET", "/readyz")
                reply = connection.getresponse()
                return reply.status == 503 and text in json.load(reply)["error"]["message"]
            except ConnectionRefusedError:
                return False
            finally:
                connection.close()
        return eventually(answer, what=f"'{text}'")
    worker = LoadingWorker(bus)
    try:
        waits_for("no worker has connected yet")
        worker.start()
        waits_for("1 worker loads: packing weights, 512 of 2048 MiB, ")
        eventually(lambda: 'loading worker=1 device=cpu doing="packing weights" mib=512 total_mib=2048 seconds=' in
                   (tmp_path / "log").read_text(), what="a line of the log")
        worker.ended.set()
        waits_for("the last loss: ")
    finally:
        worker.ended.set()
        p.send_signal(signal.SIGTERM)
        assert p.wait(60) == 0
        reader.join()
    loads = [line["loading"] for line in lines if "loading" in line]
    assert loads[0]["workers"] == 1 and {"doing": "packing weights", "done": 512 << 20, "total": 2 << 30}.items() <= loads[-1].items()
    no_processes_left(mark)


def on_a_terminal(*argv):
    """Return the output of a command on a terminal."""
    mark, (mine, theirs) = uuid.uuid4().hex, pty.openpty()
    p = spawn([QUERN, *argv], mark, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(mine, 4096):
            text += part
    except OSError:     # the other end is closed
        pass
    assert p.wait(60) == 0
    os.close(mine)
    no_processes_left(mark)
    return text.decode()


def test_loading_is_a_bar_on_a_terminal_which_is_removed():
    text = on_a_terminal("run", DEMO, "Once upon a time", "-n", "1")
    assert re.search(r"\r\[[#.]{20}\] .*\d+ s, [a-z]", text), text
    assert text.endswith("\r\x1b[K")
