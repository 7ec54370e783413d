"""The start of a service: what it says, and when."""

import re
import signal
import subprocess
import uuid

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
