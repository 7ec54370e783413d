#!/usr/bin/env python3
"""make_gguf_encode_golden.py - checksums of blocks that the package gguf makes, for tests/unit/quant/test_gguf_encode.c,
and of a file that it reads, for tests/e2e/cli/test_convert.py.

    make_gguf_encode_golden.py QUERN      QUERN: the built program, which converts a model that this script then reads

Writes tests/golden/gguf_encode.json.  Needs the packages gguf and numpy; the tests need only its output.
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))
import make_model  # noqa: E402

N = 1 << 14
CONFIG = make_model.llama(64, 96, 2, 4, 2, 331, 128)


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


def checksum(data):
    h = 14695981039346656037
    for b in data:
        h = ((h ^ b) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def check_file(quern):
    """The package reads what `quern convert` writes; its checksum."""
    with tempfile.TemporaryDirectory() as tmp:
        src, dst = os.path.join(tmp, "src"), os.path.join(tmp, "m.gguf")
        make_model.make(src, CONFIG, "BF16", 1)
        subprocess.run([quern, "convert", src, dst, "--to", "gguf"], check=True)
        r = gguf.GGUFReader(dst)
        assert r.get_field("general.architecture").contents() == "llama"
        assert r.get_field("llama.block_count").contents() == 2
        assert r.get_field("tokenizer.ggml.model").contents() == "gpt2"
        tokens = r.get_field("tokenizer.ggml.tokens").contents()
        assert len(tokens) == 331
        found = {t.name: t for t in r.tensors}
        assert len(found) == 21 and found["blk.1.attn_q.weight"].tensor_type == gguf.GGMLQuantizationType.BF16
        with open(os.path.join(src, "model.safetensors"), "rb") as f:
            data = f.read()
        n = int.from_bytes(data[:8], "little")
        a, b = json.loads(data[8:8 + n])["model.layers.1.self_attn.q_proj.weight"]["data_offsets"]
        q = np.frombuffer(data[8 + n + a:8 + n + b], np.uint16).reshape(64, 64)
        want = q.reshape(4, 2, 8, 64).swapaxes(1, 2).reshape(64, 64)
        assert np.array_equal(np.asarray(found["blk.1.attn_q.weight"].data).view(np.uint16).reshape(64, 64), want)
        with open(dst, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()


def main():
    x = values()
    kinds = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_0": gguf.GGMLQuantizationType.Q4_0}
    out = {name: checksum(gguf.quants.quantize(x, kind).tobytes()) for name, kind in kinds.items()}
    out["file"] = check_file(sys.argv[1])
    with open(os.path.join(HERE, "gguf_encode.json"), "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
