#!/usr/bin/env python3
"""make_class.py NAME OUT - make the tiny model of a class in tests/golden/classes.json.

Needs numpy only.  The file has the model's config.json, and for each tensor its name, shape, and the standard deviation
and mean of its values, which come from make_model.py's generator.
"""
import json
import os
import shutil
import sys

import make_model

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "classes.json")
SEED = 1


def make(case, out):
    """Write the directory; it appears under its name only when it is complete."""
    config = dict(case["config"])
    part = f"{out.rstrip('/')}.part{os.getpid()}"
    os.makedirs(part)
    end = make_model.write_tokenizer(part, config["vocab_size"])
    make_model.write_json(part, "config.json", config | {"torch_dtype": "float32", "eos_token_id": end})
    make_model.write_json(part, "generation_config.json", {"eos_token_id": end})
    tensors = [(name, "F32", shape, "value", std, mean) for name, shape, std, mean in case["tensors"]]
    make_model.write_file(os.path.join(part, "model.safetensors"), SEED, tensors, False)
    try:
        os.rename(part, out)
    except OSError:
        if not os.path.exists(os.path.join(out, "config.json")):
            raise
        shutil.rmtree(part)     # another process has made the same directory first


def main():
    with open(GOLDEN, encoding="utf-8") as f:
        cases = {c["name"]: c for c in json.load(f)}
    if len(sys.argv) != 3 or sys.argv[1] not in cases:
        sys.exit(__doc__ + "\nNAME: " + " ".join(cases))
    make(cases[sys.argv[1]], sys.argv[2])


if __name__ == "__main__":
    main()
