"""The start of a service: what it says, and when."""

import json
import re
import signal
import subprocess
import uuid

import pytest

from service import DEMO, QUERN, no_processes_left, spawn

SMALL = ("--kv-bytes", "4M")    # 51 blocks of 16 tokens


def banner(*options):
    """What `quern serve` prints for people."""
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
    """The output of a `quern serve` that cannot start."""
    mark = uuid.uuid4().hex
    p = spawn([QUERN, "serve", *arguments, "--http", "none", "--jobs", "tcp://127.0.0.1:*"], mark, stdin=subprocess.DEVNULL,
              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = p.communicate(timeout=60)[0]
    assert p.returncode == 1
    no_processes_left(mark)
    return text


@pytest.mark.parametrize("options", [(), ("--tp", "2"), ("--log-format", "json")], ids=" ".join)
def test_the_reason_of_a_failed_start_is_printed_once(options):
    """By no other of the four processes."""
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
    assert f"max_context=816 instead of 2048: its KV pool holds no more; all of it takes --kv-bytes {full}" in s.log()
    text = banner(*SMALL)
    assert "(context 816 tokens," in text
    size = re.search(r"whole context of 2048 tokens, which takes --kv-bytes (\d+[MG])\n", text)[1]
    for enough in (str(full), size):
        s = start(DEMO, "--kv-bytes", enough)
        assert (s.ready["max_context"], s.ready["full_kv_bytes"]) == (2048, 0)
        assert "its KV pool holds no more" not in s.log()
    assert "whole context" not in banner()
    s = start(DEMO, "--kv-bytes", str(full - 1))
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
