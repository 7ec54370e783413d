#!/usr/bin/env python3
"""http_scale.py - how many simultaneous connections affect each other.

    http_scale.py [--streams N] [--tokens K] [--slow N | --brisk N] [--idle N] [--url U --pid P] [--json]

Opens N streams of K tokens each and measures the gaps between their chunks.  Optional, at the same time:
streams with clients that read 256 bytes a second (--slow), the same streams with fast clients (--brisk, the
baseline for --slow with the same load on the engine), and idle connections.  Without --url it starts a
service with the demo model.  CPU time is the controller's (--pid), per token of all streams.
"""
import argparse
import json
import re
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else None


def request(prompt, tokens):
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "stream": True, "ignore_eos": True,
                       "stream_options": {"include_usage": True}, "temperature": 0}).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


class Stream:
    """A request; counts its chunks and records their times."""

    def __init__(self, address, tokens, number, slow=False):
        self.socket = socket.socket()
        if slow:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.setblocking(False)
        self.socket.connect_ex(address)
        self.out = request(f"Story {number}: once upon a time", tokens)
        self.times, self.tail, self.failed, self.done = [], b"", "", False
        self.began = time.monotonic()

    def write(self):
        self.out = self.out[self.socket.send(self.out):]

    def read(self, most=65536):
        """Read from the stream. Return False if it has ended."""
        try:
            part = self.socket.recv(most)
        except BlockingIOError:
            return True
        except OSError as e:
            self.failed = str(e)
            return False
        text = self.tail + part
        if b"data: {" in text:
            self.times.append(time.monotonic())
        self.done = self.done or b"data: [DONE]" in text
        if b'"error":' in text or (text.startswith(b"HTTP/1.1 ") and not text.startswith(b"HTTP/1.1 200")):
            self.failed = text[:300].decode(errors="replace")
        self.tail = text[-600:]
        if self.done or not part:
            self.failed = self.failed or ("" if self.done else "the stream was cut")
            return False
        return True


    def tokens(self):
        """Return the token count from the last chunk."""
        found = re.search(rb'"completion_tokens":(\d+),', self.tail)
        return int(found[1]) if found else 0


def open_idle(address, n):
    found = []
    for _ in range(n):
        s = socket.socket()
        s.connect(address)
        found.append(s)
    if n:
        time.sleep(1)   # a connected socket may not be accepted yet
    return found


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def run(address, streams=100, tokens=50, slow=0, brisk=0, idle=0, pid=None):
    """{"failed", "ttft_ms", "itl_ms", "cpu_us_per_token", ...}"""
    idles = open_idle(address, idle)
    before = cpu_s(pid) if pid else 0
    measured = [Stream(address, tokens, i) for i in range(streams)]
    others = [Stream(address, tokens, streams + i, slow=bool(slow)) for i in range(slow or brisk)]
    began = time.monotonic()
    open_now = set(measured) | set(others)
    with selectors.DefaultSelector() as sel:
        for s in open_now:
            sel.register(s.socket, selectors.EVENT_WRITE, s)
        lazy, next_sip = [], time.monotonic() + 1
        while any(not s.done and not s.failed for s in measured) or (not slow and open_now):
            for key, events in sel.select(0.2):
                s = key.data
                if events & selectors.EVENT_WRITE:
                    s.write()
                    if s.out:
                        continue
                    if slow and s in others:
                        sel.unregister(s.socket)
                        lazy.append(s)
                    else:
                        sel.modify(s.socket, selectors.EVENT_READ, s)
                elif not s.read():
                    sel.unregister(s.socket)
                    s.socket.close()
                    open_now.discard(s)
            if time.monotonic() >= next_sip:
                next_sip += 1
                for s in lazy:
                    if not s.done and not s.failed:
                        s.read(256)
    seconds = time.monotonic() - began
    # Slow readers must still receive the rest of their streams.
    for s in others if slow else ():
        s.socket.setblocking(True)
        s.socket.settimeout(120)
        while not s.done and not s.failed and s.read():
            pass
        s.socket.close()
    used = cpu_s(pid) - before if pid else None
    alive = sum(s.send(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n") > 0 and s.recv(15) == b"HTTP/1.1 200 OK"
                for s in idles)
    for s in idles:
        s.close()
    gaps = [1000 * (b - a) for s in measured for a, b in zip(s.times, s.times[1:])]
    everyone = measured + others
    total = sum(s.tokens() for s in everyone)
    return {"streams": streams, "slow": slow, "brisk": brisk, "idle": idle, "idle_alive": alive, "tokens": total,
            "seconds": round(seconds, 3), "tokens_per_s": round(total / seconds),
            "failed": sum(bool(s.failed) for s in everyone),
            "why": next((s.failed for s in everyone if s.failed), None),
            "short": sum(s.tokens() != tokens for s in everyone),
            "ttft_ms": {p: round(percentile([1000 * (s.times[0] - s.began) for s in measured if s.times], p), 1)
                        for p in (50, 99)} if any(s.times for s in measured) else None,
            "itl_ms": {p: round(percentile(gaps, p), 1) for p in (50, 99)} if gaps else None,
            "cpu_us_per_token": round(used * 1e6 / total, 1) if pid and total else None}


def raise_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("streams", 100), ("tokens", 50), ("slow", 0), ("brisk", 0), ("idle", 0)):
        a.add_argument("--" + name, type=int, default=default)
    a.add_argument("--url")
    a.add_argument("--pid", type=int)
    a.add_argument("--json", action="store_true")
    o = a.parse_args()
    raise_limit()
    service = None
    if not o.url:
        run_dir = tempfile.TemporaryDirectory()
        service = subprocess.Popen([ROOT / "build/bin/quern", "serve", ROOT / "models/demo", "--json", "--http",
                                    "127.0.0.1:0", "--jobs", f"ipc://{run_dir.name}/jobs", "--max-seqs", "1200",
                                    "--log-level", "warn"], stdout=subprocess.PIPE)
        o.url = "http://" + json.loads(service.stdout.readline())["http"]
        children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
        o.pid = next(int(c) for c in children if Path(f"/proc/{c}/comm").read_text().startswith("quern-contr"))
    u = urlsplit(o.url)
    try:
        result = run((u.hostname, u.port), o.streams, o.tokens, o.slow, o.brisk, o.idle, o.pid)
    finally:
        if service:
            service.terminate()
            service.wait(30)
    print(json.dumps(result) if o.json else "\n".join(f"{k:18} {v}" for k, v in result.items()))
    return 1 if result["failed"] or result["short"] or result["idle_alive"] != o.idle else 0


if __name__ == "__main__":
    sys.exit(main())
