#!/usr/bin/env python3
"""make_ggml_golden.py - checksums of blocks that ggml's quantizers make, for tests/unit/quant/test_gguf_encode.c.

    make_ggml_golden.py LIBRARY      LIBRARY: ggml's quantizers as a shared library

Writes tests/golden/ggml.json: by type, without and with an importance matrix.  LIBRARY is made from the sources of
ggml-org/ggml (commit d99724f2), without contracted products, so that every machine rounds alike; its backend functions
are not called and may be stubs:

    gcc -O2 -ffp-contract=off -fPIC -shared -Iinclude -Isrc -DGGML_VERSION='""' -DGGML_COMMIT='""' \\
        src/ggml.c src/ggml-quants.c stubs.c -lm -o libggml-quants.so

Needs numpy; the tests need only its output.
"""
import ctypes
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))

N, COLUMNS = 1 << 14, 512
TYPES = {"q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210), "iq4_xs": (256, 136)}


def values():
    """As make_values() in the test."""
    i = np.arange(N, dtype=np.uint64)
    h = (i * 2654435761 + 12345) & 0xFFFFFFFF
    h ^= h >> 15
    h = (h * 2246822519) & 0xFFFFFFFF
    h ^= h >> 13
    total = sum((h >> s & 255).astype(np.int64) for s in (0, 8, 16, 24)) - 510
    block = (i // 256).astype(np.int64)
    x = np.ldexp(total.astype(np.float32), (block % 16 - 20).astype(np.int32)).astype(np.float32)
    x[(block == 3) | ((block == 5) & (i % 256 != 77))] = 0
    x[block == 7] = 0.375
    x[block == 9] = np.abs(x[block == 9]) + 1
    return x


def importance():
    """As make_importance() in the test: a few inputs matter much, some not at all."""
    i = np.arange(COLUMNS, dtype=np.uint64)
    size = (i * 2654435761 & 0xFFFFFFFF) >> 22
    out = size.astype(np.float32) / 256
    out[i % 31 == 5] *= 64
    out[i % 13 == 7] = 0
    return out


def checksum(data):
    h = 14695981039346656037
    for b in data:
        h = ((h ^ b) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def quantize(lib, name, x, weights):
    block, size = TYPES[name]
    out = np.zeros(N // block * size, np.uint8)
    f = getattr(lib, "quantize_" + name.replace("_k", "_K"))
    f.restype = ctypes.c_size_t
    n = f(x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(N // COLUMNS),
          ctypes.c_int64(COLUMNS), None if weights is None else weights.ctypes.data_as(ctypes.c_void_p))
    assert n == len(out)
    return out


def main():
    lib = ctypes.CDLL(os.path.abspath(sys.argv[1]))
    x, weights = np.ascontiguousarray(values()), importance()
    out = {name: {"plain": checksum(quantize(lib, name, x, None).tobytes()),
                  "importance": checksum(quantize(lib, name, x, weights).tobytes())} for name in TYPES}
    with open(os.path.join(HERE, "ggml.json"), "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
