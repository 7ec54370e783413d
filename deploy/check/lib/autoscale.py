#!/usr/bin/env python3
"""autoscale.py - a service with autoscaling of CPU workers, under a load that rises and falls.

    autoscale.py [--seconds N] [--peak R] [--low R] [--step-ms MS] [--seqs N] [--scale-at N] [--json]

Starts `quern serve models/demo --replicas 1 --max-replicas 4`.  Each worker has a thread and --seqs slots, and a step
takes --step-ms at least, so that four workers do four times the work of one although they share the
machine's cores.  `quern bench serve` sends requests as a Poisson process, at a rate that rises from --low to --peak and
back (a sine), each with 16 tokens of prompt and 64 of output.

Prints the share of good requests (TTFT below 1 s, TPOT below twice the step), the failed requests, the workers used
(running processes, sampled every 0.2 s), and the fewest workers that the load allows.  That minimum is computed for
slots of 5 s: the mean number of requests in flight if none ever waited, divided by the slots of a worker, rounded up,
at least 1.  No service can need fewer for long: the minimum assumes that workers start at once and the future is known.
"""
import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "e2e"))

from service import DEMO, QUERN, Service, eventually, marked     # noqa: E402

PROMPT, OUTPUT, SLOT_S = 16, 64, 5


def arrivals(seconds, low, peak, seed):
    """Return the times of a Poisson process with that rate."""
    rng, t, out = random.Random(seed), 0.0, []
    while True:
        t += rng.expovariate(peak)
        if t >= seconds:
            return out
        if rng.random() * peak < low + (peak - low) * math.sin(math.pi * t / seconds) ** 2:
            out.append(t)


def fewest_by_load(times, seconds, service_s, seqs):
    """Return the worker seconds, and the number of workers in each slot."""
    numbers = []
    for begin in range(0, math.ceil(seconds + service_s), SLOT_S):
        busy = sum(max(0.0, min(t + service_s, begin + SLOT_S) - max(t, begin)) for t in times)
        numbers.append(max(1, math.ceil(busy / SLOT_S / seqs - 1e-9)))
    return sum(numbers) * SLOT_S, numbers


class Watch(threading.Thread):
    """Sample the running workers."""

    def __init__(self, service):
        super().__init__(daemon=True)
        self.service, self.samples, self.over = service, [], threading.Event()

    def run(self):
        while not self.over.wait(0.2):
            n = sum(name.startswith("quern-worker") for name in marked(self.service.mark).values())
            self.samples.append((time.monotonic(), n))

    def workers(self, begin, end):
        """Return the worker seconds from begin to end."""
        inside = [n for t, n in self.samples if begin <= t <= end]
        return sum(inside) / len(inside) * (end - begin)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=int, default=240, help="of arrivals")
    p.add_argument("--low", type=float, default=1, help="requests a second at the beginning and the end")
    p.add_argument("--peak", type=float, default=18, help="in the middle")
    p.add_argument("--step-ms", type=int, default=20)
    p.add_argument("--seqs", type=int, default=8, help="slots of a worker")
    p.add_argument("--scale-at", type=float, default=8)
    p.add_argument("--scale-period", type=int, default=4)
    p.add_argument("--scale-down-after", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    times = arrivals(a.seconds, a.low, a.peak, a.seed)
    slo = {"ttft": 1000, "tpot": 2 * a.step_ms}
    s = Service(DEMO, "--max-replicas", "4", "--scale-at", str(a.scale_at), "--scale-period", str(a.scale_period),
                "--scale-down-after", str(a.scale_down_after), "--max-seqs", str(a.seqs), "--threads", "1",
                "--context", "1024", step_ms=a.step_ms)
    watch = Watch(s)
    with tempfile.TemporaryDirectory() as folder:
        trace, saved = Path(folder, "trace.csv"), Path(folder, "out.json")
        trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                         + "".join(f"{t:.6f},{PROMPT},{OUTPUT}\n" for t in times))
        watch.start()
        begin = time.monotonic()
        subprocess.run([QUERN, "bench", "serve", "--base-url", s.http, "--trace", trace, "--ignore-eos", "--goodput",
                        ",".join(f"{k}:{v}" for k, v in slo.items()), "--save", saved, "--percentiles", "50,95,99"],
                       check=True, stdout=subprocess.DEVNULL)
        end = time.monotonic()
        out = json.loads(saved.read_text())
    eventually(lambda: watch.samples[-1][1] == 1, 60 + a.scale_down_after, "one worker")
    watch.over.set()
    watch.join()
    s.stop()
    service_s = (OUTPUT + 1) * a.step_ms / 1000
    fewest, numbers = fewest_by_load(times, a.seconds, service_s, a.seqs)
    used = watch.workers(begin, end)
    result = {
        "requests": len(times), "completed": out["completed"], "lost": len(times) - out["completed"],
        "good_share": out["request_goodput"] * out["duration"] / len(times),
        "ttft_ms": {q: out[f"{q}_ttft_ms"] for q in ("p50", "p95", "p99")},
        "tpot_ms": {q: out[f"{q}_tpot_ms"] for q in ("p50", "p95", "p99")},
        "worker_seconds": used, "fewest_worker_seconds": fewest, "over_fewest": used / fewest,
        "most_workers": max(n for _, n in watch.samples), "fewest_by_slot": numbers,
        "workers_by_slot": [round(watch.workers(begin + i * SLOT_S, begin + (i + 1) * SLOT_S) / SLOT_S, 2)
                            for i in range(int((end - begin) // SLOT_S))],
    }
    if a.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{result['requests']} requests, {result['lost']} lost, {100 * result['good_share']:.2f} % good "
          f"(TTFT < {slo['ttft']} ms, TPOT < {slo['tpot']} ms)")
    for name in ("ttft_ms", "tpot_ms"):
        print(f"{name[:4].upper()} ms p50, p95, p99: " + ", ".join(f"{x:.1f}" for x in result[name].values()))
    print(f"workers at most {result['most_workers']}, {used:.0f} worker seconds; by the load at least {fewest}: "
          f"{result['over_fewest']:.2f} times")
    print("workers every 5 s:", *result["workers_by_slot"])
    print("fewest every 5 s: ", *numbers)


if __name__ == "__main__":
    main()
