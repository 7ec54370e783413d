#!/usr/bin/env python3
"""demo_bf16.py - the demo model in BF16, from its AWQ weights, so that `quern quantize` and `quern convert` can be tried:

    python3 models/demo_bf16.py OUT     # the same bytes as models/demo-bf16

Needs numpy only.  Every linear layer becomes scales * (codes - zeros), rounded to the nearest BF16; other tensors likewise.
"""
import json
import math
import shutil
import struct
import sys
from pathlib import Path

import numpy as np

DEMO = Path(__file__).resolve().parent / "demo"
ORDER = [0, 4, 1, 5, 2, 6, 3, 7]       # nibble of output n of a word of eight (formats/weights.h)
COPIED = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")


def read(path):
    raw = path.read_bytes()
    n, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + n])
    header.pop("__metadata__", None)
    types = {"F16": np.float16, "I32": np.int32}
    return {name: np.frombuffer(raw, types[t["dtype"]], math.prod(t["shape"]), 8 + n + t["data_offsets"][0]).reshape(t["shape"])
            for name, t in header.items()}


def unpacked(words):
    """Rows of words to rows of codes."""
    codes = words.view(np.uint32)[:, :, None] >> np.array(ORDER, np.uint32) * 4 & 15
    return codes.reshape(words.shape[0], -1).astype(np.float32)


def bf16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype("<u2")


def weights(stored):
    for name, t in stored.items():
        module, _, part = name.rpartition(".")
        if part == "qweight":
            codes = unpacked(t)
            group = codes.shape[0] // stored[module + ".scales"].shape[0]
            zeros, scales = (np.repeat(x, group, 0) for x in (unpacked(stored[module + ".qzeros"]),
                                                             stored[module + ".scales"].astype(np.float32)))
            yield module + ".weight", bf16((scales * (codes - zeros)).T)
        elif part not in ("qzeros", "scales"):
            yield name, bf16(t.astype(np.float32))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir()
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, t in sorted(weights(read(DEMO / "model.safetensors"))):
        header[name] = {"dtype": "BF16", "shape": list(t.shape), "data_offsets": [len(body), len(body) + t.nbytes]}
        body += t.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    config = json.loads((DEMO / "config.json").read_text())
    config.pop("quantization_config")
    config |= {"dtype" if "dtype" in config else "torch_dtype": "bfloat16"}
    (out / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    for name in COPIED:
        shutil.copyfile(DEMO / name, out / name)


main()
