"""Writes a model in Hugging Face layout as a file of an older engine, as formats/llama2c.h, kuiper.h and ak48.h describe it:

    make_flat.py MODEL FILE llama2c0|llama2c1|llama2c2|kuiper|ak48 [--group N] [--own-head] [--dequantized DIR]

MODEL is a Llama of *.safetensors in F32, F16 or BF16; for ak48 a Qwen3 in AWQ "gemm".  --own-head writes the head
separately even if it is tied to the embedding.  --dequantized also writes DIR, a model in Hugging Face layout in F32 with
the weights that FILE represents, computed by numpy: FILE must give the same results."""

import argparse
import json
import shutil
import struct
from pathlib import Path

import numpy as np

TYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "I32": np.dtype("<i4"), "BF16": np.dtype("<u2")}
KINDS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"]


def read_safetensors(folder):
    tensors = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        data = path.read_bytes()
        (n,) = struct.unpack("<Q", data[:8])
        for name, t in json.loads(data[8:8 + n]).items():
            if name == "__metadata__":
                continue
            a, b = t["data_offsets"]
            x = np.frombuffer(data[8 + n + a:8 + n + b], TYPES[t["dtype"]]).reshape(t["shape"])
            if t["dtype"] == "BF16":
                x = (x.astype("<u4") << 16).view("<f4")
            tensors[name] = x
    return tensors


def write_safetensors(path, tensors):
    head, at, body = {}, 0, []
    for name, x in tensors.items():
        data = np.ascontiguousarray(x, "<f4").tobytes()
        head[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        body.append(data)
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(body))


def to_pairs(w, heads):
    """Reorder rows of q or k from rotating halves to rotating neighbours."""
    n, k = w.shape
    return w.reshape(heads, 2, n // heads // 2, k).swapaxes(1, 2).reshape(n, k)


def to_halves(w, heads):
    n, k = w.shape
    return w.reshape(heads, n // heads // 2, 2, k).swapaxes(1, 2).reshape(n, k)


def quantized(w, group):
    """Return (int8 values, F32 scales, the values they represent)."""
    x = w.astype("<f4").reshape(-1, group)
    scale = (np.abs(x).max(axis=1) / np.float32(127)).astype("<f4")
    q = np.round(x / np.where(scale == 0, 1, scale)[:, None]).astype(np.int8)
    return q, scale, (q.astype("<f4") * scale[:, None]).reshape(w.shape)


class Writer:
    def __init__(self, config, tensors):
        self.c, self.t, self.out, self.back = config, tensors, [], {}
        self.heads, self.kv = config["num_attention_heads"], config["num_key_value_heads"]

    def layers(self, name):
        return [f"model.layers.{i}.{name}" for i in range(self.c["num_hidden_layers"])]

    def stored(self, name):
        """Return a tensor as these files store it, in F32."""
        w = self.t[name].astype("<f4")
        heads = self.heads if "q_proj" in name else self.kv if "k_proj" in name else 0
        return to_pairs(w, heads) if heads else w

    def f32(self, *names):
        for name in names:
            self.out.append(self.stored(name).tobytes())
            self.back[name] = self.t[name].astype("<f4")

    def q8(self, group, *names):
        for name in names:
            q, scale, w = quantized(self.stored(name), group)
            self.out += [q.tobytes(), scale.tobytes()]
            heads = self.heads if "q_proj" in name else self.kv if "k_proj" in name else 0
            self.back[name] = to_halves(w, heads) if heads else w

    def raw(self, kind, *names):
        for name in names:
            assert self.t[name].dtype == TYPES[kind], (name, self.t[name].dtype)
            self.out.append(self.t[name].tobytes())


def encode(c, t, form, group=64, own_head=False):
    """Return (the file's bytes, {name: the values read from it, in Hugging Face's order of rows})."""
    w, t = Writer(c, t), t
    shared = c.get("tie_word_embeddings", False) and not own_head
    if not shared and "lm_head.weight" not in t:
        t["lm_head.weight"] = t["model.embed_tokens.weight"]
    dim, head_dim = c["hidden_size"], c.get("head_dim") or c["hidden_size"] // w.heads
    sizes = [dim, c["intermediate_size"], c["num_hidden_layers"], w.heads, w.kv, c["vocab_size"], c["max_position_embeddings"]]
    linears = [n + ".weight" for kind in KINDS for n in w.layers(kind)]
    norms = [w.layers("input_layernorm.weight"), w.layers("post_attention_layernorm.weight")]
    embed, norm, head = "model.embed_tokens.weight", "model.norm.weight", [] if shared else ["lm_head.weight"]
    signed = sizes[:5] + [sizes[5] if shared else -sizes[5], sizes[6]]
    if form == "llama2c0":
        w.out.append(struct.pack("<7i", *signed))
        n = 4 * c["num_hidden_layers"]
        w.f32(embed, *norms[0], *linears[:n], *norms[1], *linears[n:], norm)
        w.out.append(np.zeros(sizes[6] * head_dim, "<f4").tobytes())
        w.f32(*head)
    elif form in ("llama2c1", "llama2c2"):
        version = int(form[-1])
        w.out.append(struct.pack("<Ii7iBi", 0x616b3432, version, *sizes, shared, group if version == 2 else 0).ljust(256, b"\0"))
        w.f32(*norms[0], *norms[1], norm)
        (w.f32 if version == 1 else lambda *names: w.q8(group, *names))(embed, *linears, *head)
    elif form == "kuiper":
        w.out.append(struct.pack("<8i", *signed, group))
        w.q8(group, *linears, *head)
        w.f32(embed, *norms[0], *norms[1], norm)
    else:
        group = c["quantization_config"]["group_size"]
        t |= {n: x.astype("<f2") for n, x in t.items() if x.dtype != TYPES["I32"]}
        w.out.append(struct.pack("<Ii7iBii", 0x616b3438, 5, *sizes, shared, head_dim, group).ljust(256, b"\0"))
        w.raw("F16", *norms[0], *norms[1], norm, embed)
        for kind in KINDS:
            for n in w.layers(kind):
                w.raw("I32", n + ".qweight", n + ".qzeros")
                w.raw("F16", n + ".scales")
        w.raw("F16", *head, *w.layers("self_attn.q_norm.weight"), *w.layers("self_attn.k_norm.weight"))
    w.back.setdefault("lm_head.weight", w.back.get(embed))
    return b"".join(w.out), w.back


def write(args):
    source = Path(args.model)
    c = json.loads((source / "config.json").read_text())
    data, back = encode(c, read_safetensors(source), args.form, args.group, args.own_head)
    Path(args.file).write_bytes(data)
    if args.dequantized:
        folder = Path(args.dequantized)
        folder.mkdir(exist_ok=True)
        for f in source.glob("*.json"):
            if "safetensors" not in f.name:
                shutil.copy(f, folder)
        c["tie_word_embeddings"] = False
        (folder / "config.json").write_text(json.dumps(c))
        write_safetensors(folder / "model.safetensors", back)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("file")
    p.add_argument("form", choices=["llama2c0", "llama2c1", "llama2c2", "kuiper", "ak48"])
    p.add_argument("--group", type=int, default=64)
    p.add_argument("--own-head", action="store_true")
    p.add_argument("--dequantized")
    write(p.parse_args())


if __name__ == "__main__":
    main()
