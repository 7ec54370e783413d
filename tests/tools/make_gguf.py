#!/usr/bin/env python3
"""Writes a GGUF file with random weights of one type, for measurements: the shape of a Qwen3 model, or a smaller one.

    tests/tools/make_gguf.py OUT.gguf --type Q4_K [--embedding Q6_K] [--shape 0.6B|30B-A3B] [--layers N]

Blocks are random bytes with fixed scales, so that weights are about 0.05 and files of several GB are made in
seconds.  Needs numpy only.
"""

import argparse
import pathlib
import struct

import numpy as np

SHAPES = {
    "0.6B": {"hidden": 1024, "inter": 3072, "layers": 28, "heads": 16, "kv": 8, "head": 128, "vocab": 151936},
    "30B-A3B": {
        "hidden": 2048, "inter": 768, "layers": 48, "heads": 32, "kv": 4, "head": 128, "vocab": 151936, "experts": 128, "chosen": 8,
    },
    "tiny": {"hidden": 256, "inter": 512, "layers": 2, "heads": 4, "kv": 2, "head": 64, "vocab": 512},
    "tiny-moe": {
        "hidden": 256, "inter": 256, "layers": 2, "heads": 4, "kv": 2, "head": 64, "vocab": 512, "experts": 8, "chosen": 2,
    },
}

# type: number, values and bytes of a block, [(offset of an F16, its bits)], general.file_type of such files
TYPES = {
    "F32": (0, 1, 4, [], 0),
    "F16": (1, 1, 2, [], 1),
    "Q4_0": (2, 32, 18, [(0, 0x2400)], 2),
    "Q4_1": (3, 32, 20, [(0, 0x2400), (2, 0xAF80)], 3),
    "Q5_0": (6, 32, 22, [(0, 0x2000)], 8),
    "Q5_1": (7, 32, 24, [(0, 0x2000), (2, 0xAFC0)], 9),
    "Q8_0": (8, 32, 34, [(0, 0x1400)], 7),
    "Q2_K": (10, 256, 84, [(80, 0x2000), (82, 0x2200)], 10),
    "Q3_K": (11, 256, 110, [(108, 0x1400)], 12),
    "Q4_K": (12, 256, 144, [(0, 0x0800), (2, 0x1380)], 15),
    "Q5_K": (13, 256, 176, [(0, 0x0400), (2, 0x13C0)], 17),
    "Q6_K": (14, 256, 210, [(208, 0x0200)], 18),
    "IQ4_NL": (20, 32, 18, [(0, 0x1400)], 25),
    "IQ4_XS": (23, 256, 136, [(0, 0x0200)], 30),
}


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def feed_forward(z):
    h, inter, n = z["hidden"], z["inter"], z.get("experts")
    if n is None:
        return ("ffn_gate", (inter, h)), ("ffn_up", (inter, h)), ("ffn_down", (h, inter))
    return ("ffn_gate_exps", (n, inter, h)), ("ffn_up_exps", (n, inter, h)), ("ffn_down_exps", (n, h, inter))


def tensors(z, kind, embedding):
    h, q, kv = z["hidden"], z["heads"] * z["head"], z["kv"] * z["head"]
    yield "token_embd.weight", (z["vocab"], h), embedding
    yield "output_norm.weight", (h,), "F32"
    for i in range(z["layers"]):
        for name, shape in (
            ("attn_q", (q, h)),
            ("attn_k", (kv, h)),
            ("attn_v", (kv, h)),
            ("attn_output", (h, q)),
            *feed_forward(z),
        ):
            yield f"blk.{i}.{name}.weight", shape, kind
        for name, n in (("attn_norm", h), ("ffn_norm", h), ("attn_q_norm", z["head"]), ("attn_k_norm", z["head"])):
            yield f"blk.{i}.{name}.weight", (n,), "F32"
        if "experts" in z:
            yield f"blk.{i}.ffn_gate_inp.weight", (z["experts"], h), "F32"


def size(shape, kind):
    _, values, width, *_ = TYPES[kind]
    return int(np.prod(shape)) // values * width


def data(rng, shape, kind):
    _, _, width, scales, _ = TYPES[kind]
    if kind in ("F32", "F16"):
        ones = 1.0 if len(shape) == 1 else 0.0
        return (ones + 0.05 * rng.standard_normal(shape, np.float32)).astype(np.float32 if kind == "F32" else np.float16)
    blocks = rng.integers(0, 256, (size(shape, kind) // width, width), np.uint8)
    for at, bits in scales:
        blocks[:, at] = bits & 255
        blocks[:, at + 1] = bits >> 8
    return blocks


def key(name, value):
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        head = text(name) + struct.pack("<I", 9)
        if isinstance(value[0], str):
            return head + struct.pack("<IQ", 8, len(value)) + b"".join(text(v) for v in value)
        return head + struct.pack("<IQ", 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    return text(name) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def vocabulary(n):
    """GPT-2's 256 bytes, then words with a number."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    names = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(other)}
    return [names[b] for b in range(256)] + [f"word{i}" for i in range(n - 257)] + ["<end>"]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--type", choices=TYPES, default="Q4_0")
    p.add_argument("--embedding", choices=TYPES, help="of the embedding, which is the head too (as --type)")
    p.add_argument("--shape", choices=SHAPES, default="0.6B")
    p.add_argument("--layers", type=int, help="fewer layers than the shape has")
    a = p.parse_args()
    z = dict(SHAPES[a.shape])
    z["layers"] = a.layers or z["layers"]
    list_ = list(tensors(z, a.type, a.embedding or a.type))
    arch = "qwen3moe" if "experts" in z else "qwen3"
    keys = {
        "general.architecture": arch,
        "general.file_type": TYPES[a.type][4],    # OpenVINO GenAI opens no file without it
        "general.quantization_version": 2,
        f"{arch}.block_count": z["layers"],
        f"{arch}.embedding_length": z["hidden"],
        f"{arch}.feed_forward_length": z["inter"],
        f"{arch}.attention.head_count": z["heads"],
        f"{arch}.attention.head_count_kv": z["kv"],
        f"{arch}.attention.key_length": z["head"],
        f"{arch}.attention.value_length": z["head"],
        f"{arch}.context_length": 4096,
        f"{arch}.rope.freq_base": 1e6,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": vocabulary(z["vocab"]),
        "tokenizer.ggml.token_type": [1] * (z["vocab"] - 1) + [3],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": z["vocab"] - 1,
    }
    if "experts" in z:
        keys |= {
            f"{arch}.expert_count": z["experts"],
            f"{arch}.expert_used_count": z["chosen"],
            f"{arch}.expert_feed_forward_length": z["inter"],
        }
    keys["tokenizer.ggml.tokens"][256] = "ab"
    head = b"GGUF" + struct.pack("<IQQ", 3, len(list_), len(keys)) + b"".join(key(k, v) for k, v in keys.items())
    at = 0
    for name, shape, kind in list_:
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", TYPES[kind][0], at)
        at += -(-size(shape, kind) // 32) * 32
    rng = np.random.default_rng(1)
    with a.out.open("wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for _, shape, kind in list_:
            d = data(rng, shape, kind).tobytes()
            f.write(d + bytes(-len(d) % 32))


if __name__ == "__main__":
    main()
