#!/usr/bin/env python3
"""from_awq.py - convert an AWQ checkpoint (version "gemm", one file) to plain floats, for tests of the quantizer: the
demo model as it was before it was packed.

    from_awq.py models/demo OUT [--type f32] [--plant model.layers.2.mlp.down_proj] [--text OUT.txt --chars N]

--plant makes a layer sensitive without changing what the model computes with floats: pairs of its inputs are given
weights of opposite sign that are far larger than the others, on inputs that become equal.  --text writes stories
of the kind that the demo model was trained on.  Needs numpy only."""
import argparse
import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "models"))
import demo_data  # noqa: E402
from to_awq import NIBBLE, read_raw, write  # noqa: E402


def unpack(words):
    """Unpack int32 [rows, n / 8] to [rows, n] of 0..15."""
    words = words.view(np.uint32)
    return np.stack([words >> (4 * NIBBLE[c]) & 15 for c in range(8)], -1).reshape(words.shape[0], -1)


def dequantize(t, name, group):
    """[outputs, inputs]"""
    q, z = (unpack(t[f"{name}.{x}"]).astype(np.float32) for x in ("qweight", "qzeros"))
    scales = t[f"{name}.scales"].astype(np.float32)
    z, scales = (np.repeat(x, group, 0) for x in (z, scales))
    return np.ascontiguousarray(((q - z) * scales).T)


def plant(tensors, name):
    """In each group of 32 inputs of `name` (a down_proj), make the input with the smallest weights a copy of the input
    with the largest weights, by copying its rows of gate and up. Then +64 and -64 on the two inputs cancel with floats,
    and are the group's range."""
    mlp = name.rsplit(".", 1)[0]
    gate, up, down = (tensors[f"{mlp}.{x}_proj.weight"] for x in ("gate", "up", "down"))
    for at in range(0, down.shape[1], 32):
        copy, of = at + np.argsort(np.abs(down[:, at:at + 32]).sum(0))[[0, -1]]
        gate[copy], up[copy] = gate[of], up[of]
        sign = np.where(np.arange(len(down)) % 2, 64, -64).astype(np.float32)
        down[:, copy] = sign
        down[:, of] -= sign


def stories(seed, n_chars):
    rng, out, n = random.Random(seed), [], 0
    while n < n_chars:
        out.append("\n".join(demo_data.story_lines(rng)))
        n += len(out[-1]) + 2
    return "\n\n".join(out)


def floats(source, dtype=np.float32):
    """Return the tensors of an AWQ checkpoint as floats."""
    group = json.loads((source / "config.json").read_text())["quantization_config"]["group_size"]
    t, out = read_raw(source / "model.safetensors"), {}
    for name, x in t.items():
        module, kind = name.rsplit(".", 1)
        if kind == "qweight":
            out[f"{module}.weight"] = dequantize(t, module, group)
        elif kind not in ("qzeros", "scales"):
            out[name] = x.astype(np.float32)
    return {k: v.astype(dtype) for k, v in out.items()}


def write_model(source, out, tensors, kind):
    config = json.loads((source / "config.json").read_text())
    del config["quantization_config"]
    config["torch_dtype"] = {"f32": "float32", "f16": "float16"}[kind]
    out.mkdir()
    for f in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / f, out / f)
    (out / "config.json").write_text(json.dumps(config))
    write(out / "model.safetensors", tensors)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=Path)
    p.add_argument("out", type=Path, help="must not exist")
    p.add_argument("--type", choices=["f32", "f16"], default="f32")
    p.add_argument("--plant", metavar="MODULE", help="a down_proj that is to be sensitive")
    p.add_argument("--text", type=Path, help="write stories there")
    p.add_argument("--chars", type=int, default=200_000, help="of the stories")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    tensors = floats(a.model)
    if a.plant:
        plant(tensors, a.plant)
    write_model(a.model, a.out, {k: v.astype({"f32": "<f4", "f16": "<f2"}[a.type]) for k, v in tensors.items()}, a.type)
    if a.text:
        a.text.write_text(stories(a.seed, a.chars))


if __name__ == "__main__":
    main()
