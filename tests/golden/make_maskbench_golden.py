#!/usr/bin/env python3
"""Writes tests/golden/maskbench.json: 200 of MaskBench's schemas with texts that each must accept or refuse.

    make_maskbench_golden.py DIR > tests/golden/maskbench.json

DIR: maskbench/data of github.com/guidance-ai/jsonschemabench (MIT).  [{"id": ..., "schema": ..., "texts":
[[text, valid], ...]}, ...]: of every group of schemas the same number, evenly spaced among those that take less
than 2,000 bytes with their texts, with and without texts to be refused."""
import json
import os
import sys

SCHEMAS, BYTES = 200, 2000


def read(path):
    with open(path) as f:
        data = json.load(f)
    texts = [[json.dumps(t["data"], ensure_ascii=False), t["valid"]] for t in data["tests"]]
    return {"id": os.path.basename(path), "schema": data["schema"], "texts": texts}


def spread(items, n):
    return [items[i * len(items) // n] for i in range(min(n, len(items)))]


def main():
    groups = {}
    for name in sorted(os.listdir(sys.argv[1])):
        case = read(os.path.join(sys.argv[1], name))
        if case["texts"] and len(json.dumps(case, ensure_ascii=False)) < BYTES:
            group = name.split("---")[0] if "---" in name else name.split("_")[0]
            refuses = any(not valid for _, valid in case["texts"])
            groups.setdefault((group, refuses), []).append(case)
    chosen, left = [], SCHEMAS
    by_size = sorted(groups.values(), key=len)
    for i, group in enumerate(by_size):
        chosen += spread(group, left // (len(by_size) - i))
        left = SCHEMAS - len(chosen)
    print("[")
    print(",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in chosen))
    print("]")


if __name__ == "__main__":
    main()
