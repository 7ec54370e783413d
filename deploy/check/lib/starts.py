#!/usr/bin/env python3
"""Measures how long `quern serve` takes to be ready, and to answer: for docs/performance/deployment.md.

    starts.py [--runs N] [--cold] QUERN serve MODEL [OPTION...]

Each run starts the command with a free HTTP address, polls /readyz every 2 ms until it returns 200, requests one token
from /v1/completions, and ends the command with SIGTERM.  Prints median, minimum and maximum of the runs in milliseconds,
from the start of the process.  --cold: drop the model's files from the page cache before each run (posix_fadvise)."""

import argparse
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def forget(model):
    """Drop a model's files from the page cache, after writing dirty pages."""
    files = model.rglob("*") if model.is_dir() else [model]
    for f in filter(pathlib.Path.is_file, files):
        fd = os.open(f, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def ask(port, method, path, body=None):
    """Return the status of a reply, or None if nothing listens yet."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        c.request(method, path, body, {"Content-Type": "application/json"})
        reply = c.getresponse()
        reply.read()
        return reply.status
    except OSError:
        return None
    finally:
        c.close()


def start(command):
    """Return the milliseconds until /readyz is 200, and until the first token."""
    port = free_port()
    began = time.monotonic()
    p = subprocess.Popen([*command, "--http", f"127.0.0.1:{port}", "--jobs", f"tcp://127.0.0.1:{free_port()}"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while ask(port, "GET", "/readyz") != 200:
            if p.poll() is not None:
                raise SystemExit(f"starts.py: {' '.join(command)} ended with status {p.returncode}: run it to see why")
            time.sleep(0.002)
        ready = time.monotonic() - began
        status = ask(port, "POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 1}))
        if status != 200:
            raise SystemExit(f"starts.py: a completion was answered with status {status}")
        return ready * 1e3, (time.monotonic() - began) * 1e3
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if len(args.command) < 3 or args.command[1] != "serve":
        parser.error("the command is QUERN serve MODEL")
    times = []
    for _ in range(args.runs):
        if args.cold:
            forget(pathlib.Path(args.command[2]))
        times.append(start(args.command))
    for what, ms in zip(("ready", "first token"), zip(*times)):
        print(f"{what}: {statistics.median(ms):.0f} ms (median of {len(ms)} starts; {min(ms):.0f} to {max(ms):.0f} ms)")


if __name__ == "__main__":
    main()
