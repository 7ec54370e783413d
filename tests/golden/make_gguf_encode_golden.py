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
import make_gguf_family  # noqa: E402
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


def check_mixture(quern):
    """The same of a mixture: experts are stacked, routers are F32, the keys are those of qwen2moe."""
    with tempfile.TemporaryDirectory() as tmp:
        src, dst, config = os.path.join(tmp, "src"), os.path.join(tmp, "m.gguf"), make_gguf_family.FAMILIES["qwen2moe"]
        make_model.make(src, config, "BF16", 1)
        subprocess.run([quern, "convert", src, dst, "--to", "gguf"], check=True)
        r = gguf.GGUFReader(dst)
        assert r.get_field("general.architecture").contents() == "qwen2moe"
        for key, want in (("expert_count", 5), ("expert_used_count", 3), ("expert_feed_forward_length", 56),
                          ("expert_shared_feed_forward_length", 88)):
            assert r.get_field("qwen2moe." + key).contents() == want
        with open(os.path.join(src, "model.safetensors"), "rb") as f:
            data = f.read()
        n = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + n])
        header.pop("__metadata__", None)

        def bf16(name):
            a, b = header[name]["data_offsets"]
            return np.frombuffer(data[8 + n + a:8 + n + b], np.uint16).reshape(header[name]["shape"])
        found, names = {t.name: t for t in r.tensors}, set(gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2MOE, 4).mapping)
        known = {gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2MOE, 4).get_name(k) for k in names}
        assert all(t.rpartition(".")[0] in known for t in found)
        experts = 0
        for name in header:
            layer = name.split(".")[2] if name.startswith("model.layers.") else None
            if ".experts." in name:
                e, part = int(name.split(".")[5]), name.split(".")[6].removesuffix("_proj")
                t = found[f"blk.{layer}.ffn_{part}_exps.weight"]
                assert t.tensor_type == gguf.GGMLQuantizationType.BF16
                assert np.array_equal(np.asarray(t.data).view(np.uint16).reshape(5, *header[name]["shape"])[e], bf16(name))
                experts += 1
            elif "mlp.gate." in name or "shared_expert_gate" in name:
                t = found[f"blk.{layer}.ffn_gate_inp{'_shexp' if 'shared' in name else ''}.weight"]
                assert t.tensor_type == gguf.GGMLQuantizationType.F32
                assert np.array_equal(np.asarray(t.data).ravel(), (bf16(name).astype(np.uint32) << 16).view(np.float32).ravel())
        assert experts == 4 * 5 * 3
        with open(dst, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()


def main():
    x = values()
    kinds = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_0": gguf.GGMLQuantizationType.Q4_0}
    out = {name: checksum(gguf.quants.quantize(x, kind).tobytes()) for name, kind in kinds.items()}
    out["file"] = check_file(sys.argv[1])
    out["mixture"] = check_mixture(sys.argv[1])
    with open(os.path.join(HERE, "gguf_encode.json"), "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
