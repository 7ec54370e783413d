#!/usr/bin/env python3
"""make_gguf_types.py - tiny models in GGUF, all linear layers and the embedding of one type.

    make_gguf_types.py FAMILY-TYPE OUT.gguf           llama-Q4_K, qwen2-Q8_0, qwen3-MXFP4, ...

Blocks are random bits of make_model.py's generator; only their scales are chosen, so that weights have a model's usual
size.  tests/golden/make_gguf_types_golden.py reads the files with the package gguf.  Needs numpy only.
"""
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_model import bits, to_bf16, uniform  # noqa: E402

HIDDEN, INTER, LAYERS, HEADS, KV, HEAD, VOCAB, CONTEXT = 256, 512, 2, 4, 2, 64, 320, 128
FAMILIES = ("llama", "qwen2", "qwen3")
# type: number, values and bytes of a block, [(offset of an F16, its smallest value's bits)]
TYPES = {
    "F32": (0, 1, 4, None), "F16": (1, 1, 2, None), "BF16": (30, 1, 2, None),
    "Q4_0": (2, 32, 18, [(0, 0x2400)]), "Q4_1": (3, 32, 20, [(0, 0x2400), (2, 0xAF80)]),
    "Q5_0": (6, 32, 22, [(0, 0x2000)]), "Q5_1": (7, 32, 24, [(0, 0x2000), (2, 0xAFC0)]),
    "Q8_0": (8, 32, 34, [(0, 0x1400)]),
    "Q2_K": (10, 256, 84, [(80, 0x2000), (82, 0x2200)]), "Q3_K": (11, 256, 110, [(108, 0x1400)]),
    "Q4_K": (12, 256, 144, [(0, 0x0800), (2, 0x1380)]), "Q5_K": (13, 256, 176, [(0, 0x0400), (2, 0x13C0)]),
    "Q6_K": (14, 256, 210, [(208, 0x0200)]),
    "IQ4_NL": (20, 32, 18, [(0, 0x1400)]), "IQ4_XS": (23, 256, 136, [(0, 0x0200)]),
    "MXFP4": (39, 32, 17, []),      # its scale is a power of two, the first byte
    "IQ1_S": (19, 256, 50, [(0, 0x2000)]), "IQ1_M": (29, 256, 56, []),      # its scale is in four nibbles
    "IQ2_XXS": (16, 256, 66, [(0, 0x1400)]), "IQ2_XS": (17, 256, 74, [(0, 0x1400)]), "IQ2_S": (22, 256, 82, [(0, 0x1400)]),
    "IQ3_XXS": (18, 256, 98, [(0, 0x1000)]), "IQ3_S": (21, 256, 110, [(0, 0x1000)]),
}
NAMES = [f"{f}-{t}" for t in TYPES for f in FAMILIES]


def tensors(family):
    """Return (name, shape) pairs; one dimension: F32."""
    yield "token_embd.weight", (VOCAB, HIDDEN)
    yield "output_norm.weight", (HIDDEN,)
    if family == "llama":           # the other families are tied
        yield "output.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        for part, n, k in (("attn_q", HEADS * HEAD, HIDDEN), ("attn_k", KV * HEAD, HIDDEN), ("attn_v", KV * HEAD, HIDDEN),
                           ("attn_output", HIDDEN, HEADS * HEAD), ("ffn_gate", INTER, HIDDEN), ("ffn_up", INTER, HIDDEN),
                           ("ffn_down", HIDDEN, INTER)):
            yield f"blk.{i}.{part}.weight", (n, k)
            if family == "qwen2" and part in ("attn_q", "attn_k", "attn_v"):
                yield f"blk.{i}.{part}.bias", (n,)
        for part in ("attn_norm", "ffn_norm"):
            yield f"blk.{i}.{part}.weight", (HIDDEN,)
        if family == "qwen3":
            for part in ("attn_q_norm", "attn_k_norm"):
                yield f"blk.{i}.{part}.weight", (HEAD,)


def data(name, shape, kind):
    source = bits(1, name + kind)
    power = 2 if ".attn_q." in name or ".attn_k." in name or name == "output.weight" else 0     # sharper attention
    if len(shape) == 1:
        return (uniform(source, shape[0], 0.1) + np.float32("norm" in name)).astype("<f4").tobytes()
    _, values, width, scales = TYPES[kind]
    n = shape[0] * shape[1]
    if scales is None:
        x = uniform(source, n, 0.05 * 2**power)
        return (x if kind == "F32" else x.astype("<f2") if kind == "F16" else to_bf16(x)).tobytes()
    size = n // values * width
    blocks = source.random_raw(-(-size // 8)).astype("<u8").view(np.uint8)[:size].reshape(-1, width).copy()
    if kind == "MXFP4":
        blocks[:, 0] = 120 + power + blocks[:, 0] % 2
    if kind == "IQ1_M":     # the highest nibble of each word of scales is one of the F16
        for i in range(4):
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] % 16 | (0x2000 + (power << 10) >> 4 * i & 15) << 4
    for at, least in scales:
        value = least + (power << 10) + blocks[:, at].astype(np.uint16) // (4 if least < 0x1000 else 1)
        blocks[:, at], blocks[:, at + 1] = value & 255, value >> 8
    return blocks.tobytes()


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def key(name, value):
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    return text(name) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def make(name, out, kinds=None):
    """Write a model.  kinds: other types, by a part of a tensor's name."""
    family, all_kinds = name.split("-")
    found = []
    for n, s in tensors(family):
        kind = "F32" if len(s) == 1 else next((k for part, k in (kinds or {}).items() if part in n), all_kinds)
        source = kind if len(s) > 1 else all_kinds      # the type of the model keys the norms of all
        found.append((n, s, data(n, s, source), TYPES[kind][0]))
    meta = {"general.architecture": family} | {f"{family}.{k}": v for k, v in {
        "block_count": LAYERS, "embedding_length": HIDDEN, "feed_forward_length": INTER, "attention.head_count": HEADS,
        "attention.head_count_kv": KV, "attention.key_length": HEAD, "context_length": CONTEXT, "rope.freq_base": 1e4,
        "attention.layer_norm_rms_epsilon": 1e-6}.items()}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(found), len(meta)) + b"".join(key(k, v) for k, v in meta.items())
    at = 0
    for n, shape, x, number in found:
        head += text(n) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", number, at)
        at += -(-len(x) // 32) * 32
    part = f"{out}.part{os.getpid()}"
    with open(part, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for _, _, x, _ in found:
            f.write(x + bytes(-len(x) % 32))
    os.rename(part, out)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in NAMES:
        sys.exit(__doc__ + "\nFAMILY-TYPE: " + " ".join(NAMES))
    make(*sys.argv[1:])
