#!/usr/bin/env python3
"""api_cpu.py - the controller's CPU time per token of each API's streams, and of all APIs at once.

    api_cpu.py [--streams N] [--tokens K] [--pairs P] [--each] [--json]

Starts a service with the demo model.  A round is N streams of K tokens each, open at once.  Rounds of chat alone and of all
APIs mixed alternate, P pairs of them.  --each: also a round of each API alone.  CPU time is that of the controller's
threads; token counts are those of the streams' last events.
"""
import argparse
import json
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from http_scale import ROOT, raise_limit

CHAT = [{"role": "user", "content": "Tell me a story."}]
APIS = {
    "chat": ("/v1/chat/completions", lambda k: {"messages": CHAT, "max_tokens": k, "ignore_eos": True,
                                                "stream_options": {"include_usage": True}}),
    "completions": ("/v1/completions", lambda k: {"prompt": "Once upon a time", "max_tokens": k, "ignore_eos": True,
                                                  "stream_options": {"include_usage": True}}),
    "responses": ("/v1/responses", lambda k: {"input": "Tell me a story.", "max_output_tokens": k, "ignore_eos": True}),
    "anthropic": ("/v1/messages", lambda k: {"messages": CHAT, "max_tokens": k}),
    "ollama": ("/api/chat", lambda k: {"model": "demo", "messages": CHAT, "options": {"num_predict": k}}),
    "llama.cpp": ("/completion", lambda k: {"prompt": "Once upon a time", "n_predict": k, "ignore_eos": True}),
}
COUNTS = re.compile(rb'"(?:completion_tokens|output_tokens|eval_count|tokens_predicted)":(\d+)')


class Stream:
    def __init__(self, address, api, tokens):
        path, body = APIS[api]
        text = json.dumps({"stream": True, **body(tokens)}).encode()
        self.out = (b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (path.encode(), len(text), text))
        self.head, self.tail = b"", b""
        self.socket = socket.create_connection(address)
        self.socket.setblocking(False)

    def write(self):
        self.out = self.out[self.socket.send(self.out):]
        return bool(self.out)

    def read(self):
        """Read from the stream. Return False if it has ended."""
        part = self.socket.recv(65536)
        self.head = self.head or part[:20]
        self.tail = (self.tail + part)[-8000:]
        return bool(part)

    def tokens(self):
        found = COUNTS.findall(self.tail)
        if not self.head.startswith(b"HTTP/1.1 200") or not found:
            sys.exit(f"a stream failed: {self.head + self.tail[-500:]!r}")
        return int(found[-1])


def cpu_ns(pid):
    return sum(int((t / "schedstat").read_text().split()[0]) for t in Path(f"/proc/{pid}/task").iterdir())


def round_of(address, pid, apis, n, tokens):
    """Return the CPU microseconds of the controller per token."""
    before = cpu_ns(pid)
    streams = [Stream(address, apis[i % len(apis)], tokens) for i in range(n)]
    with selectors.DefaultSelector() as sel:
        for s in streams:
            sel.register(s.socket, selectors.EVENT_WRITE, s)
        while sel.get_map():
            for key, events in sel.select():
                s = key.data
                if events & selectors.EVENT_WRITE:
                    if not s.write():
                        sel.modify(s.socket, selectors.EVENT_READ, s)
                elif not s.read():
                    sel.unregister(s.socket)
                    s.socket.close()
    each = (cpu_ns(pid) - before) / 1000 / sum(s.tokens() for s in streams)
    print(f"{', '.join(apis)}: {each:.2f} us per token", file=sys.stderr, flush=True)
    return each


def measure(address, pid, o):
    everyone = list(APIS)
    round_of(address, pid, everyone, 100, 8)
    rows = {"chat": [], "all, mixed": []}
    for _ in range(o.pairs):
        rows["chat"].append(round_of(address, pid, ["chat"], o.streams, o.tokens))
        rows["all, mixed"].append(round_of(address, pid, everyone, o.streams, o.tokens))
    for api in everyone[1:] if o.each else []:
        rows[api] = [round_of(address, pid, [api], o.streams, o.tokens)]
    return rows


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("streams", 1000), ("tokens", 32), ("pairs", 3)):
        a.add_argument("--" + name, type=int, default=default)
    a.add_argument("--each", action="store_true")
    a.add_argument("--json", action="store_true")
    o = a.parse_args()
    raise_limit()
    with tempfile.TemporaryDirectory() as folder:
        service = subprocess.Popen([ROOT / "build/bin/quern", "serve", ROOT / "models/demo", "--json", "--http", "127.0.0.1:0",
                                    "--jobs", f"ipc://{folder}/jobs", "--max-seqs", "1200", "--log-level", "warn"],
                                   stdout=subprocess.PIPE)
        try:
            host, port = json.loads(service.stdout.readline())["http"].split(":")
            children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
            pid = next(int(c) for c in children if Path(f"/proc/{c}/comm").read_text().startswith("quern-contr"))
            rows = measure((host, int(port)), pid, o)
        finally:
            service.terminate()
            service.wait(30)
    base = statistics.median(rows["chat"])
    shown = {name: {"cpu_us_per_token": round(statistics.median(v), 2), "to_chat": round(statistics.median(v) / base, 3),
                    "rounds": [round(x, 2) for x in v]} for name, v in rows.items()}
    print(json.dumps(shown) if o.json else "\n".join(f"{k:12} {v}" for k, v in shown.items()))


if __name__ == "__main__":
    main()
