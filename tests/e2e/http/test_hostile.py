"""Clients with requests that are small to send and costly to prepare: their effect on other clients and on memory
(tests/tools/http_hostile.py measures the same)."""

import re
import sys
import threading
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service import eventually, marked

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import http_hostile as hostile  # noqa: E402

ROUNDS = 3


def quiet(service):
    """Wait until no job waits or runs."""
    with urllib.request.urlopen(service.http + "/metrics") as reply:
        text = reply.read().decode()
    found = re.findall(r"^quern:num_requests_(?:running|waiting|swapped)\S* (\d+)", text, re.M)
    return len(found) == 3 and not any(int(n) for n in found)


@pytest.mark.parametrize("service", [("--keep", "1")], indirect=True)
def test_costly_requests_harm_neither_others_nor_memory(service):
    url = urlsplit(service.http)
    address = url.hostname, url.port
    (pid,) = [pid for pid, name in marked(service.mark).items() if name.startswith("quern-contr")]
    kinds = [hostile.many_prompts()] * 8 + [hostile.many_values(False), hostile.many_values(True)] * 3

    def resident():
        return hostile.status_kib(pid, "VmRSS")

    # The tables of as many jobs as may wait are kept in memory.
    assert hostile.ask(address, "127.0.0.1", kinds[0]) == hostile.ask(address, "127.0.0.1", kinds[0]) == b"200"
    assert hostile.ask(address, "127.0.0.1", kinds[-1]) == b"400"
    eventually(lambda: quiet(service), 120, "no jobs")
    before = eventually(lambda: resident() < 40 << 10 and resident(), 90, "less than 40 MB resident")

    replies, others = [], []

    def repeat(i, request):
        for _ in range(ROUNDS):
            replies.append(hostile.ask(address, f"127.0.0.{i + 2}", request))

    threads = [threading.Thread(target=repeat, args=(i, r)) for i, r in enumerate(kinds)]
    for t in threads:
        t.start()
    health = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    large = hostile.post("/tokenize", b'{"prompt":"Once","metadata":"%s"}' % (b"x" * 20000))
    while any(t.is_alive() for t in threads):
        others.append(hostile.ask(address, "127.0.0.1", health))
        others.append(hostile.ask(address, "127.0.0.1", large))
    for t in threads:
        t.join()
    assert set(others) == {b"200"}
    assert set(replies) <= {b"200", b"400", b"429"}, replies
    # The bodies, and a tree for each thread that prepares them.
    assert hostile.status_kib(pid, "VmHWM") < 600 << 10
    eventually(lambda: quiet(service), 120, "no jobs")
    after = eventually(lambda: resident() < before * 1.25 + (8 << 10) and resident(), 90,
                       f"as much resident as before: {before} KiB")
    assert after
