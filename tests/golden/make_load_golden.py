#!/usr/bin/env python3
"""Expected figures of a load test: load.json, computed with numpy by the definitions of `vllm bench
serve`, implemented independently.  Times are integers in microseconds, as the load generator keeps them.

    python3 tests/golden/make_load_golden.py > tests/golden/load.json
"""
import json

import numpy as np

PERCENTILES = [1, 50, 90, 99, 99.9]
SLO = {"ttft": 150.0, "tpot": 30.0, "e2el": 1500.0}


def requests(rng, n):
    out = []
    at = 0
    for i in range(n):
        at += int(rng.exponential(20000))
        first = int(rng.lognormal(11.5, 0.6))
        gaps = rng.lognormal(10, 0.5, size=int(rng.integers(0, 60))).astype(int)
        chunks = np.cumsum(np.concatenate([[first], gaps])).tolist()
        r = {"sent_us": at, "n_prompt": int(rng.integers(1, 500)), "chunk_us": chunks,
             "last_us": chunks[-1] + int(rng.integers(0, 3)) * 100, "got_prompt": 0, "got_output": 0}
        if i % 3:       # the server reports its counts; a chunk may bring several tokens
            r["got_prompt"] = r["n_prompt"] + 1
            r["got_output"] = len(chunks) + int(rng.integers(0, 4))
        if i % 10 == 7:
            r["error"] = ["HTTP 429: full", "cut"][i % 20 == 7]
        out.append(r)
    out.append({"sent_us": -1, "n_prompt": 5, "chunk_us": [], "last_us": 0, "got_prompt": 0, "got_output": 0})
    return out


def figures(reqs, duration_us):
    done = [r for r in reqs if r["sent_us"] >= 0 and "error" not in r]
    n_out = [r["got_output"] or len(r["chunk_us"]) for r in done]
    n_in = [r["got_prompt"] or r["n_prompt"] for r in done]
    ttft = np.array([r["chunk_us"][0] for r in done]) / 1000
    e2el = np.array([r["last_us"] for r in done]) / 1000
    tpot_all = [(e - t) / (n - 1) if n > 1 else 0.0 for e, t, n in zip(e2el, ttft, n_out)]
    metrics = {
        "ttft": ttft,
        "tpot": np.array([x for x, n in zip(tpot_all, n_out) if n > 1]),
        "itl": np.concatenate([np.diff(r["chunk_us"]) for r in done]) / 1000,
        "e2el": e2el,
    }
    seconds = np.zeros(int(duration_us // 1_000_000) + 1)
    for r, n in zip(done, n_out):
        for c in r["chunk_us"]:
            seconds[(r["sent_us"] + c) // 1_000_000] += n / len(r["chunk_us"])
    good = sum(t <= SLO["ttft"] and p <= SLO["tpot"] and e <= SLO["e2el"]
               for t, p, e in zip(ttft, tpot_all, e2el))
    s = duration_us / 1e6
    out = {
        "duration": s,
        "completed": len(done),
        "failed": sum("error" in r for r in reqs),
        "total_input_tokens": sum(n_in),
        "total_output_tokens": sum(n_out),
        "request_throughput": len(done) / s,
        "request_goodput": good / s,
        "output_throughput": sum(n_out) / s,
        "total_token_throughput": (sum(n_in) + sum(n_out)) / s,
        "max_output_tokens_per_s": float(seconds.max()),
    }
    for name, x in metrics.items():
        out[f"mean_{name}_ms"] = float(x.mean())
        out[f"median_{name}_ms"] = float(np.median(x))
        out[f"std_{name}_ms"] = float(x.std())
        for p in PERCENTILES:
            out[f"p{p:g}_{name}_ms"] = float(np.percentile(x, p))
    return out


def main():
    rng = np.random.default_rng(20240607)
    reqs = requests(rng, 80)
    duration_us = max(r["sent_us"] + r["last_us"] for r in reqs) + 1234
    print(json.dumps({"percentiles": PERCENTILES, "slo": SLO, "duration_us": duration_us,
                      "requests": reqs, "expected": figures(reqs, duration_us)}, indent=None))


main()
