"""Clients that connect and vanish at random moments, and more load than there is room for."""

import json
import os
import socket
import struct
import subprocess
import threading
from statistics import median

from jobclient import JobClient, JobError
from service import BUILD, DEMO, eventually, marked

PROMPT = "Once upon a time"


def memory(s):
    """Resident bytes of controller and workers."""
    total = 0
    for pid, name in marked(s.mark).items():
        if name.startswith(("quern-contr", "quern-worker")):
            with open(f"/proc/{pid}/statm") as f:
                total += int(f.read().split()[1]) * 4096
    return total


def descriptors(s):
    """Open ones of the controller."""
    (pid,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-contr")]
    return len(os.listdir(f"/proc/{pid}/fd"))


def endpoint(text):
    host, port = text.split("//")[-1].rsplit(":", 1)
    return host, int(port)


def reset(sock):
    """Closed with RST instead of FIN."""
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
    """To the state in which a service stays that has worked for a while: the table of finished jobs is
    full, every block has been written once (a pool takes memory as it fills), and storms have passed."""
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
    """Waits until the last of the connections is closed, too; the status of the idle service."""
    eventually(lambda: descriptors(s) <= s.n_descriptors, 60, "the descriptors from before the clients")
    return s.idle()


def test_clients_that_vanish_leave_every_block_free(start, dice, long, figures):
    """Memory is within 1% after 1,000 clients, and no more after 3,000: what grows is not the number of
    clients that were there."""
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


FLOOD = BUILD / "tests" / "tools" / "flood"


def cpu_s(pid):
    """Processor time that a process has used."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pin(pid, cores):
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


def flood(s, at_once, tokens, warm_s, seconds, cores, worker, controller):
    """What the tool says, and what the processes used meanwhile."""
    argv = [FLOOD, s.jobs, at_once, tokens, warm_s, seconds]
    with subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, text=True) as p:
        os.sched_setaffinity(p.pid, cores)
        assert p.stdout.readline() == "begin\n"
        before = cpu_s(worker), cpu_s(controller)
        r = json.loads(p.stdout.readline())
        r["worker_s"], r["controller_s"] = cpu_s(worker) - before[0], cpu_s(controller) - before[1]
    assert p.returncode == 0
    s.idle()
    return r


def test_overload_is_refused_and_what_was_accepted_goes_on(start, long, figures):
    """Ten times what there is room for, in turns with as much as there is.  The worker has a core of its
    own where there are two; what other programs take from it shows in the tokens per second, not in the
    tokens per second of its processor time.  The figures are told, not judged."""
    assert FLOOD.exists(), f"{FLOOD} is not built; run: make tests"
    slots, queued, tokens = 16, 16, 32
    s = start(DEMO, "--max-seqs", slots, "--max-queued-jobs", queued, "--threads", 1)
    (worker,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-work")]
    (controller,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-contr")]
    cores = sorted(os.sched_getaffinity(0))
    pin(worker, cores[:1])
    pin(controller, cores[1:2] or cores)
    turns, warm_s, seconds = (8, 1, 5) if long else (1, 0.3, 1)
    peaks, overs = [], []
    for _ in range(turns):
        peaks.append(flood(s, slots + queued // 2, tokens, warm_s, seconds, cores[1:2] or cores, worker, controller))
        overs.append(flood(s, 10 * (slots + queued), tokens, warm_s, seconds, cores[1:2] or cores, worker, controller))
    assert all(r["done"] for r in peaks + overs)
    assert all(r["refused"] for r in overs)
    if not long:
        return
    wall = [100 * o["tokens"] / o["seconds"] / (p["tokens"] / p["seconds"]) for p, o in zip(peaks, overs)]
    per_cpu = [100 * o["tokens"] / o["worker_s"] / (p["tokens"] / p["worker_s"]) for p, o in zip(peaks, overs)]
    refusal_us = [1e6 * (o["controller_s"] / o["seconds"] - p["controller_s"] / p["seconds"]) / (o["refused"] / o["seconds"])
                  for p, o in zip(peaks, overs)]
    rate = [r["tokens"] / r["seconds"] for r in peaks]
    figures(f"{turns} turns of {seconds} s: peak {median(rate):.0f} tokens/s (best {max(rate):.0f}); at ten times the load, "
            f"of the peak beside it: {median(per_cpu):.1f}% per second of the worker's processor time "
            f"({min(per_cpu):.1f} to {max(per_cpu):.1f}), {median(wall):.1f}% per second ({min(wall):.1f} to {max(wall):.1f})")
    figures(f"{sum(o['refused'] for o in overs)} refusals: p50 {median([o['p50_ms'] for o in overs]):.1f} ms, p99 "
            f"{median([o['p99_ms'] for o in overs]):.1f} ms, longest {max(o['max_ms'] for o in overs):.1f} ms; each costs the controller "
            f"{median(refusal_us):.0f} us")
