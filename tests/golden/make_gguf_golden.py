#!/usr/bin/env python3
"""Writes tests/golden/gguf_types.json: what the gguf package (PyPI) makes of blocks of every quantized type.

The bytes come from a generator that the test has too (splitmix64), so that only a hash of each row of floats
is kept: FNV-1a of their bits, with one bit pattern for NaN.  Rows: random bytes (with every F16 among the
scales: NaN, infinite, subnormal), zeros, and bytes of ff, 7b, 80 and 01.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install gguf==0.19.0 && /tmp/v/bin/python tests/golden/make_gguf_golden.py
"""

import json
import pathlib

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
         "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
COLUMNS = 512
FILLED = [0x00, 0xFF, 0x7B, 0x80, 0x01]
RANDOM = 27


def splitmix(seed, n):
    mask = (1 << 64) - 1
    out = bytearray()
    while len(out) < n:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        out += (z ^ (z >> 31)).to_bytes(8, "little")
    return bytes(out[:n])


def fnv(words):
    h = 0xCBF29CE484222325
    for b in words.astype("<u4").tobytes():
        h = ((h ^ b) * 0x100000001B3) & ((1 << 64) - 1)
    return f"{h:016x}"


def main():
    out = {}
    np.seterr(all="ignore")
    for name in TYPES:
        kind = GGMLQuantizationType[name]
        values, size = GGML_QUANT_SIZES[kind]
        row = COLUMNS // values * size
        data = splitmix(int(kind), RANDOM * row) + b"".join(bytes([b]) * row for b in FILLED)
        blocks = np.frombuffer(data, np.uint8).reshape(RANDOM + len(FILLED), row)
        floats = dequantize(blocks, kind).astype(np.float32)
        bits = floats.view(np.uint32).copy()
        bits[np.isnan(floats)] = 0x7FC00000
        out[name] = {"type": int(kind), "bytes": row, "rows": [fnv(r) for r in bits]}
    path = pathlib.Path(__file__).with_name("gguf_types.json")
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
