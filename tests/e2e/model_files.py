"""Read and write tensors and keys of model files without quern."""

import json
import struct
import sys

import numpy as np

from service import ROOT

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_gguf  # noqa: E402


def safetensors(folder):
    out = {}
    for path in folder.glob("*.safetensors"):
        data = path.read_bytes()
        n = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + n])
        header.pop("__metadata__", None)
        for name, t in header.items():
            a, b = t["data_offsets"]
            out[name] = (t["dtype"], t["shape"], data[8 + n + a:8 + n + b])
    return out


def gguf(path):
    """Read the keys of a GGUF file, and its tensors as (type, shape, bytes). Types: F32, F16, BF16, Q8_0, Q4_0, Q4_K,
    Q5_K, Q6_K, IQ4_XS."""
    data, at = path.read_bytes(), 24
    sizes = {0: (1, 4), 1: (1, 2), 30: (1, 2), 8: (32, 34), 2: (32, 18), 12: (256, 144), 13: (256, 176), 14: (256, 210), 23: (256, 136)}
    simple = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(code):
        nonlocal at
        v, = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize("<" + code)
        return v

    def value(kind):
        nonlocal at
        if kind == 8:
            n = take("Q")
            at += n
            return data[at - n:at].decode()
        if kind == 9:
            inner, n = take("I"), take("Q")
            return [value(inner) for _ in range(n)]
        return take(simple[kind])

    assert data[:8] == b"GGUF\3\0\0\0"
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    keys = {}
    for _ in range(n_keys):
        name = value(8)
        keys[name] = value(take("I"))
    infos = []
    for _ in range(n_tensors):
        name = value(8)
        shape = [take("Q") for _ in range(take("I"))][::-1]
        infos.append((name, shape, take("I"), take("Q")))
    base = -(-at // 32) * 32
    tensors = {}
    for name, shape, kind, offset in infos:
        values, size = sizes[kind]
        assert offset % 32 == 0
        tensors[name] = (kind, shape, data[base + offset:base + offset + int(np.prod(shape)) // values * size])
    return keys, tensors


def write_safetensors(folder, tensors):
    """Write the only file of a directory from the result of safetensors()."""
    header, body = {}, b""
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    return folder


def write_gguf(path, keys, tensors):
    """Write a file from the result of gguf(); integers become UINT32."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for k, v in keys.items():
        if isinstance(v, bool):
            out += make_gguf.text(k) + struct.pack("<IB", 7, v)
        elif isinstance(v, list) and isinstance(v[0], float):
            out += make_gguf.text(k) + struct.pack("<IIQ", 9, 6, len(v)) + struct.pack(f"<{len(v)}f", *v)
        elif isinstance(v, list) and isinstance(v[0], bool):
            out += make_gguf.text(k) + struct.pack("<IIQ", 9, 7, len(v)) + bytes(v)
        else:
            out += make_gguf.key(k, v)
    body = b""
    for name, (kind, shape, raw) in tensors.items():
        out += make_gguf.text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        out += struct.pack("<IQ", kind, len(body))
        body += raw + bytes(-len(raw) % 32)
    path.write_bytes(out + bytes(-len(out) % 32) + body)
    return path
