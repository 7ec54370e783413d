"""Clients that connect and vanish at random moments."""

import json
import os
import socket
import struct
import threading

from jobclient import JobClient, JobError
from service import DEMO, eventually, marked

PROMPT = "Once upon a time"


def memory(s):
    """Return the resident bytes of controller and workers."""
    total = 0
    for pid, name in marked(s.mark).items():
        if name.startswith(("quern-contr", "quern-worker")):
            with open(f"/proc/{pid}/statm") as f:
                total += int(f.read().split()[1]) * 4096
    return total


def descriptors(s):
    """Return the number of open descriptors of the controller."""
    (pid,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-contr")]
    return len(os.listdir(f"/proc/{pid}/fd"))


def endpoint(text):
    host, port = text.split("//")[-1].rsplit(":", 1)
    return host, int(port)


def reset(sock):
    """Close with RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def raw(s, dice):
    sock = socket.create_connection(endpoint(dice.choice([s.jobs, s.http])), 30)
    sock.sendall(dice.randbytes(dice.randrange(0, 200)) if dice.random() < 0.5 else b"\xff\0\0\0\0\0\0\0\1\x7f\3")
    reset(sock) if dice.random() < 0.5 else sock.close()


def job(s, dice):
    c = JobClient(s.jobs)
    try:
        j = c.submit(PROMPT, max_tokens=300, n=dice.choice([1, 1, 2, 5]), seed=1, ignore_eos=True)
        for _ in range(dice.choice([0, 0, 1, 2, 5])):
            j.event(30)
    except JobError as e:
        assert e.code == "E_OVERLOADED", e
    finally:
        c.close()


def stream(s, dice):
    sock = socket.create_connection(endpoint(s.http), 30)
    body = json.dumps({"prompt": PROMPT, "max_tokens": 300, "stream": True, "ignore_eos": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    cut = len(request) if dice.random() < 0.7 else dice.randrange(len(request))
    sock.sendall(request[:cut])
    if cut == len(request):
        for _ in range(dice.choice([0, 1, 3])):
            sock.recv(4096)
    reset(sock) if dice.random() < 0.5 else sock.close()


def storm(s, n, dice, threads=8):
    seeds, failures = [dice.randrange(1 << 32) for _ in range(n)], []

    def work(mine):
        import random
        for seed in mine:
            d = random.Random(seed)
            try:
                d.choice([job, job, stream, raw])(s, d)
            except Exception as e:
                failures.append(f"{type(e).__name__}: {e}")
    pool = [threading.Thread(target=work, args=(seeds[t::threads],)) for t in range(threads)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    assert not failures, failures[:3]


def warm_up(s, storms, dice):
    """Bring the service to its steady state: the table of finished jobs is full, every block has been written once (a
    pool takes memory as it fills), and storms have passed."""
    with JobClient(s.jobs) as c:
        for _ in range(9):
            for j in [c.submit(PROMPT, stream=False, max_tokens=1) for _ in range(500)]:
                j.done()
        for j in [c.submit(PROMPT, stream=False, max_tokens=300, n=4, seed=i, ignore_eos=True) for i in range(20)]:
            j.done()
    for _ in range(storms):
        storm(s, 1000, dice)
        settle(s)


def settle(s):
    """Wait until the last connection is closed; return the status of the idle service."""
    eventually(lambda: descriptors(s) <= s.n_descriptors, 60, "the descriptors from before the clients")
    return s.idle()


def test_clients_that_vanish_leave_every_block_free(start, dice, long, figures):
    """Memory after 1,000 clients and after 3,000 differs by at most 1%: it does not grow with the number of clients."""
    s = start(DEMO, "--no-prefix-cache", "--kv-bytes", "8M")
    waves, n = (3, 1000) if long else (1, 120)
    free = s.idle()["blocks"]["free"]
    s.n_descriptors = descriptors(s)
    if long:
        warm_up(s, 8, dice)
    before = memory(s)
    for wave in range(1, waves + 1):
        storm(s, n, dice)
        blocks = settle(s)["blocks"]
        after = memory(s)
        assert (blocks["free"], blocks["held"]) == (free, 0)
        figures(f"{wave * n} clients vanished, {free} of {free} blocks free, memory {before >> 10} to {after >> 10} KiB "
                f"({100 * (after - before) / before:+.2f}%)")
        if long:
            assert after <= before * 1.01
    with JobClient(s.jobs) as c:
        assert c.generate(PROMPT, max_tokens=5, ignore_eos=True).finish_reason == "length"
