#!/usr/bin/env python3
"""http_hostile.py - the effect of clients with costly requests on another client, and on memory.

    http_hostile.py [--seconds S] [--many N] [--values N] [--shared] [--json]

Starts a service with the demo model, and clients with their own addresses (127.0.0.2, ...; --shared: with the address
of the measured client):
  --many N     clients that send 2,000 prompts and 1,000 unknown fields, 15.7 KB, again and again (default 8)
  --values N   clients that send 12.6 MB of "[],[],...", again and again (default 6)
Half of the --values clients send a body that is just accepted, a tree of 62 MiB.  Meanwhile a client at another address
measures the first byte of /health, every 10 ms, and once a second the reply to a /tokenize of 20 KB, which the same
threads prepare.  wall: time that the client sees, affected by other programs on the machine.  cpu: processor time of the
busiest libmicrohttpd thread meanwhile, which is the service's own share of wall.
Memory: resident 40 s after the last job of a first flood of 5 seconds has ended; the maximum (VmHWM); and resident 40 s
after the last job of the measured flood.
"""
import argparse
import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = 62 << 20     # of a body that is just accepted
ARRAY = 144         # bytes of memory for "[],"


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else None


def post(path, body):
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def many_prompts():
    fields = ",".join(f'"{i}":0' for i in range(1000))
    return post("/v1/completions", f'{{"max_tokens":1,"prompt":[{",".join(["[1]"] * 2000)}],{fields}}}'.encode())


def many_values(accepted):
    n = TREE // ARRAY if accepted else 12_600_000 // 3
    return post("/v1/completions", b'{"prompt":[' + b"[]," * n + b"1]}")


def ask(address, source, request):
    """Send a request; return the status, or b"" if the connection was closed."""
    with socket.socket() as s:
        s.bind((source, 0))
        s.settimeout(120)
        s.connect(address)
        try:
            s.sendall(request)
            first = s.recv(12)
            while s.recv(1 << 16):
                pass
        except OSError:
            return b""
        return first[9:12]


def repeat(address, source, request, until, counts):
    seen = {}
    while time.monotonic() < until:
        status = ask(address, source, request).decode()
        seen[status] = seen.get(status, 0) + 1
    counts.put(seen)


def await_quiet(address):
    """Wait until no job waits or runs."""
    while True:
        with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/metrics") as reply:
            found = re.findall(r"^quern:num_requests_(?:running|waiting|swapped)\S* (\d+)", reply.read().decode(), re.M)
        if found and not any(int(n) for n in found):
            return
        time.sleep(0.2)


class Threads:
    """CPU time of a process's libmicrohttpd threads, in ms."""

    def __init__(self, pid):
        tasks = Path(f"/proc/{pid}/task")
        self.files = [open(t / "schedstat") for t in tasks.iterdir() if (t / "comm").read_text().startswith("MHD")]

    def read(self):
        out = []
        for f in self.files:
            f.seek(0)
            out.append(int(f.read().split()[0]) / 1e6)
        return out


def status_kib(pid, name):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0


def measure(address, source, pid, until):
    threads = Threads(pid)
    large = post("/tokenize", json.dumps({"prompt": "a " * 60, "metadata": "x" * 20000}).encode())
    health = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    wall, cpu, larges, failed = [], [], [], 0
    next_large = time.monotonic()
    with multiprocessing.Pool(1) as pool:
        pending = None
        while time.monotonic() < until:
            before = threads.read()
            began = time.monotonic()
            failed += ask(address, source, health) != b"200"
            wall.append(1000 * (time.monotonic() - began))
            cpu.append(max((b - a for a, b in zip(before, threads.read())), default=0))
            if pending and pending.ready():
                larges.append(pending.get())
                pending = None
            if not pending and time.monotonic() >= next_large:
                next_large = time.monotonic() + 1
                pending = pool.apply_async(timed, (address, source, large))
            time.sleep(0.01)
    return wall, cpu, larges, failed


def timed(address, source, request):
    began = time.monotonic()
    ok = ask(address, source, request) == b"200"
    return 1000 * (time.monotonic() - began) if ok else None


def summary(values):
    good = [v for v in values if v is not None]
    return {"n": len(values), "failed": len(values) - len(good),
            **{f"p{p}": round(percentile(good, p), 2) for p in (50, 99) if good},
            **({"max": round(max(good), 2)} if good else {})}


def flood(address, pid, seconds, many, values, shared):
    """Run hostile clients for this long. Return the result of measure() meanwhile, and the clients' replies by
    status."""
    counts = multiprocessing.Queue()
    until = time.monotonic() + seconds
    requests = [many_prompts()] * many + [many_values(i % 2 == 1) for i in range(values)]
    hostile = [multiprocessing.Process(target=repeat, args=(address, "127.0.0.1" if shared else f"127.0.0.{i + 2}", r,
                                                            until, counts)) for i, r in enumerate(requests)]
    for h in hostile:
        h.start()
    found = measure(address, "127.0.0.1", pid, until)
    replies = {}
    for _ in hostile:
        for status, n in counts.get().items():
            replies[status] = replies.get(status, 0) + n
    for h in hostile:
        h.join()
    await_quiet(address)
    time.sleep(40)  # memory is given back within 32 s
    return found, replies


def run(address, pid, seconds, many, values, shared):
    quiet = measure(address, "127.0.0.1", pid, time.monotonic() + 3)
    flood(address, pid, 5, many, values, shared)  # the tables of as many jobs as may wait stay in memory
    before = status_kib(pid, "VmRSS")
    (wall, cpu, larges, failed), seen = flood(address, pid, seconds, many, values, shared)
    return {"many": many, "values": values, "load": round(os.getloadavg()[0], 1), "replies": seen,
            "health_alone_wall_ms": summary(quiet[0]), "health_alone_cpu_ms": summary(quiet[1]),
            "health_wall_ms": summary(wall), "health_cpu_ms": summary(cpu), "health_failed": failed,
            "large_alone_wall_ms": summary(quiet[2]), "large_wall_ms": summary(larges),
            "rss_before_kib": before, "rss_most_kib": status_kib(pid, "VmHWM"), "rss_after_kib": status_kib(pid, "VmRSS")}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seconds", 20), ("many", 8), ("values", 6)):
        a.add_argument("--" + name, type=int, default=default)
    a.add_argument("--shared", action="store_true")
    a.add_argument("--json", action="store_true")
    o = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service = subprocess.Popen([ROOT / "build/bin/quern", "serve", ROOT / "models/demo", "--json", "--http",
                                    "127.0.0.1:0", "--jobs", f"ipc://{folder}/jobs", "--log-level", "warn", "--keep", "1"],
                                   stdout=subprocess.PIPE)
        try:
            host, port = json.loads(service.stdout.readline())["http"].split(":")
            children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
            pid = next(int(c) for c in children if Path(f"/proc/{c}/comm").read_text().startswith("quern-contr"))
            result = run((host, int(port)), pid, o.seconds, o.many, o.values, o.shared)
        finally:
            service.terminate()
            service.wait(60)
    print(json.dumps(result) if o.json else "\n".join(f"{k:22} {v}" for k, v in result.items()))
    return 1 if result["health_failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
