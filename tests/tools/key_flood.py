#!/usr/bin/env python3
"""key_flood.py - the time to the first token of one API key while another key floods the service.

    key_flood.py [--requests N] [--max-seqs N] [--flood N] [--prompt WORDS] [--json]

Starts a service with the demo model and two keys.  The light key sends N streams, one after another, first alone
and then during the flood: --flood connections of the other key, each sending one request after another, as any
of 49 users and at any priority from -5 to 5.
"""
import argparse
import http.client
import json
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from service import Service     # noqa: E402

LIGHT, FLOOD = "sk-light-0123456789abcdef", "sk-flood-0123456789abcdef"


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


def first_token_s(address, key, body):
    """Return the seconds until the first chunk of the stream; read it to its end."""
    c = http.client.HTTPConnection(address, timeout=600)
    began = time.monotonic()
    c.request("POST", "/v1/completions", json.dumps({**body, "stream": True, "ignore_eos": True}),
              {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
    reply = c.getresponse()
    if reply.status != 200:
        raise OSError(reply.read())
    reply.readline()
    took = time.monotonic() - began
    reply.read()
    c.close()
    return took


def flood(address, stop, served):
    rng = random.Random()
    while not stop.is_set():
        try:
            first_token_s(address, FLOOD, {
                "prompt": f"Story {rng.random()}: once", "max_tokens": 300, "user": f"user {rng.randrange(49)}",
                "priority": rng.randint(-5, 5)})
            served.append(1)
        except OSError:
            if not stop.is_set():
                raise


def measure(address, n, words, seed):
    rng = random.Random(seed)
    times = []
    for _ in range(n):
        prompt = " ".join(rng.choice(("ball", "girl", "dog", "park", "tree", "red")) for _ in range(words))
        times.append(first_token_s(address, LIGHT, {"prompt": prompt, "max_tokens": 8}) * 1000)
        time.sleep(rng.random() * 0.2)
    return times


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--requests", type=int, default=100)
    p.add_argument("--max-seqs", type=int, default=8)
    p.add_argument("--flood", type=int, default=40)
    p.add_argument("--prompt", type=int, default=400)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        keys = Path(d) / "keys"
        keys.touch(0o600)
        keys.write_text(f"{LIGHT} name=light\n{FLOOD} name=flood\n")
        s = Service("models/demo", "--api-key-file", keys, "--max-seqs", str(a.max_seqs))
        try:
            address = s.http.removeprefix("http://")
            measure(address, 5, a.prompt, 1)
            rows = {"alone": measure(address, a.requests, a.prompt, 2)}
            stop, served = threading.Event(), []
            crowd = [threading.Thread(target=flood, args=(address, stop, served), daemon=True)
                     for _ in range(a.flood)]
            for t in crowd:
                t.start()
            while len(served) < a.max_seqs:
                time.sleep(0.1)
            rows["beside the flood"] = measure(address, a.requests, a.prompt, 3)
            n_served = len(served)
            stop.set()
        finally:
            s.stop(signal.SIGINT)
    out = {name: {"p50_ms": percentile(t, 50), "p99_ms": percentile(t, 99)} for name, t in rows.items()}
    if a.json:
        print(json.dumps({**out, "flood_requests": n_served}))
        return
    for name, r in out.items():
        print(f"{name:18} TTFT p50 {r['p50_ms']:7.1f} ms   p99 {r['p99_ms']:7.1f} ms")
    print(f"the flood: {n_served} requests served meanwhile")


if __name__ == "__main__":
    main()
