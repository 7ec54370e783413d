#!/usr/bin/env python3
"""Run MaskBench with llguidance and print its table, for comparison with `quern bench grammar`.

    maskbench_llguidance.py DIR TOKENIZER [--every N] [--results FILE]

DIR: maskbench/data of github.com/guidance-ai/jsonschemabench; TOKENIZER: a tokenizer.json.  Needs the packages
llguidance, numpy and tokenizers.  Rules and times are those of `quern bench grammar`: a schema passes if it
compiles and each of its texts is accepted or rejected as expected.  Times are this thread's processor time in
microseconds; the time of a mask includes the token that follows it."""
import argparse
import json
import os
import sys
import time

import llguidance
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from tokenizers import Tokenizer

PERCENTILES = (25, 50, 75, 90, 95, 99, 99.9, 100)


def now():
    return time.thread_time_ns() / 1000


def follow(matcher, mask, ids, times):
    """Return True if every token is allowed."""
    for i in ids:
        begin = now()
        fill_next_token_bitmask(matcher, mask, 0)
        allowed = bool(int(mask[0, i // 32]) >> (i % 32) & 1)
        if allowed:
            matcher.consume_token(i)
        times.append(now() - begin)
        if not allowed:
            return False
    return True


def run_file(path, tokenizer, llg, mask, totals):
    with open(path) as f:
        data = json.load(f)
    begin = now()
    try:
        grammar = json.dumps({"grammars": [{"json_schema": data["schema"]}]})
        first = llguidance.LLMatcher(llg, grammar)
        error = first.get_error() if first.is_error() else None
    except ValueError as e:
        error = str(e)
    compile_us = now() - begin
    result = {"id": os.path.basename(path), "ttfm_us": compile_us}
    totals["schemas"] += 1
    if error:
        totals["compile error"] += 1
        return {**result, "compile_error": error[:500]}
    totals["TTFM"].append(compile_us)
    times, loose, strict = [], False, False
    for test in data["tests"]:
        text = json.dumps(test["data"], ensure_ascii=False)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        taken = follow(first.deep_copy(), mask, ids, times)
        loose |= taken and not test["valid"]
        strict |= test["valid"] and not taken
    totals["TBM"] += times
    totals["invalidation error" if loose else "validation error" if strict else "passing"] += 1
    if loose or strict:
        result["validation_error"] = "should reject" if loose else "should accept"
    return {**result, "max_mask_us": max(times, default=0), "masks_us": sum(times), "num_tokens": len(times)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("dir")
    parser.add_argument("tokenizer")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--results")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(args.tokenizer)
    llg = llguidance.LLTokenizer(args.tokenizer)
    mask = allocate_token_bitmask(1, llg.vocab_size)
    totals = {"TBM": [], "TTFM": [], "schemas": 0, "passing": 0, "compile error": 0, "validation error": 0,
              "invalidation error": 0}
    names = sorted(n for n in os.listdir(args.dir) if n.endswith(".json"))
    with open(args.results or os.devnull, "w") as out:
        for name in names[::args.every]:
            print(json.dumps(run_file(os.path.join(args.dir, name), tokenizer, llg, mask, totals)), file=out)
    print(f"| metric (us of CPU) | llguidance {llguidance.__version__ if hasattr(llguidance, '__version__') else ''} |")
    for name in ("TBM", "TTFM"):
        times = sorted(totals[name]) or [0]
        print(f"| {name} avg | {sum(times) / len(times):.0f} |")
        for p in PERCENTILES:
            print(f"| {name} p{p} | {times[min(len(times) - 1, int(len(times) * p / 100))]:.0f} |")
    print(f"| tokens | {len(totals['TBM'])} |")
    for name in ("schemas", "passing", "compile error", "validation error", "invalidation error"):
        print(f"| {name} | {totals[name]} |")


if __name__ == "__main__":
    sys.exit(main())
