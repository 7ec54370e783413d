#!/usr/bin/env python3
"""to_awq.py - convert a small float checkpoint to AWQ INT4 by rounding to nearest, for tests and measurements.

    to_awq.py MODEL OUT [--group 32]

Needs numpy only; one file of F32 or BF16.  If a group does not divide the inputs of the MLP's last layer, the inner
size is padded with zeros, which does not change the model's results."""
import argparse
import json
import shutil
import struct
import sys
from pathlib import Path

import numpy as np

NIBBLE = (0, 4, 1, 5, 2, 6, 3, 7)       # position of column c of eight


def read_raw(path):
    """{name: array as stored}; BF16 becomes F32."""
    data = path.read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    header, out = json.loads(data[8:8 + n]), {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        raw = data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            x = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            x = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2", "I32": "<i4", "I64": "<i8"}[t["dtype"]])
        out[name] = x.reshape(t["shape"])
    return out


def read(path):
    return {name: x.astype("<f4") for name, x in read_raw(path).items()}


def write(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    names = {"int32": "I32", "float16": "F16", "float32": "F32"}
    for name, x in tensors.items():
        header[name] = {"dtype": names[x.dtype.name], "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in tensors.values()))


def pack(q):
    """Pack [rows, n] of 0..15 to int32 [rows, n / 8]."""
    q = q.astype(np.uint32).reshape(q.shape[0], -1, 8)
    return sum(q[..., c] << (4 * NIBBLE[c]) for c in range(8)).astype(np.uint32).view(np.int32)


def quantize(name, w, group):
    """Return the three tensors of a layer [outputs, inputs]. A group's grid covers its minimum, its maximum, and
    zero."""
    n, k = w.shape
    w = w.reshape(n, k // group, group)
    low, high = np.minimum(w.min(-1, keepdims=True), 0), np.maximum(w.max(-1, keepdims=True), 0)
    scale = np.maximum(((high - low) / 15).astype(np.float16).astype(np.float32), 1e-6)
    zero = np.clip(np.round(-low / scale), 0, 15)
    q = np.clip(np.round(w / scale + zero), 0, 15).reshape(n, k)
    return {f"{name}.qweight": pack(q.T), f"{name}.qzeros": pack(zero[..., 0].T),
            f"{name}.scales": np.ascontiguousarray(scale[..., 0].T.astype(np.float16))}


def padded(name, w, inner, size):
    if name.endswith(("gate_proj", "up_proj")):
        return np.pad(w, ((0, size - inner), (0, 0)))
    return np.pad(w, ((0, 0), (0, size - inner))) if name.endswith("down_proj") else w


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=Path)
    p.add_argument("out", type=Path, help="must not exist")
    p.add_argument("--group", type=int, default=32)
    a = p.parse_args()
    config = json.loads((a.model / "config.json").read_text())
    if config["hidden_size"] % a.group:
        sys.exit(f"to_awq.py: groups of {a.group} do not divide {config['hidden_size']} inputs")
    inner = config["intermediate_size"]
    size = -(-inner // max(a.group, 8)) * max(a.group, 8)
    tensors = {}
    for name, w in read(a.model / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if layer.endswith("_proj"):
            tensors |= quantize(layer, padded(layer, w, inner, size), a.group)
        else:
            tensors[name] = w.astype(np.float16)
    a.out.mkdir()
    for f in a.model.iterdir():
        if f.suffix == ".json":
            shutil.copyfile(f, a.out / f.name)
    config |= {"intermediate_size": size, "torch_dtype": "float16", "quantization_config": {
        "quant_method": "awq", "version": "gemm", "bits": 4, "group_size": a.group, "zero_point": True}}
    (a.out / "config.json").write_text(json.dumps(config))
    write(a.out / "model.safetensors", tensors)


if __name__ == "__main__":
    main()
