"""Makes tests/golden/flat/: tiny models in the forms of formats/llama2c.h, kuiper.h and ak48.h, and flat.json, the SHA-256
of every tensor as it reads, in F32, by numpy.  Needs numpy only:

    python tests/golden/make_flat_golden.py
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tools"))
import make_flat  # noqa: E402

# The order of a word's eight columns (formats/weights.h).
ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
CONFIG = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 4, "vocab_size": 40, "max_position_embeddings": 32}
NORMS = ["input_layernorm", "post_attention_layernorm"]


def shapes(c, head_dim):
    d, q, kv = c["hidden_size"], c["num_attention_heads"] * head_dim, c["num_key_value_heads"] * head_dim
    return {"self_attn.q_proj": (q, d), "self_attn.k_proj": (kv, d), "self_attn.v_proj": (kv, d), "self_attn.o_proj": (d, q),
            "mlp.gate_proj": (c["intermediate_size"], d), "mlp.up_proj": (c["intermediate_size"], d),
            "mlp.down_proj": (d, c["intermediate_size"])}


def tensors(c, rng):
    t = {"model.embed_tokens.weight": (c["vocab_size"], c["hidden_size"]), "model.norm.weight": (c["hidden_size"],),
         "lm_head.weight": (c["vocab_size"], c["hidden_size"])}
    for i in range(c["num_hidden_layers"]):
        t |= {f"model.layers.{i}.{n}.weight": (c["hidden_size"],) for n in NORMS}
        t |= {f"model.layers.{i}.{n}.weight": s for n, s in shapes(c, c["head_dim"]).items()}
    t = {n: rng.standard_normal(s).astype("<f4") for n, s in t.items()}
    t["model.layers.0.self_attn.v_proj.weight"][:2] = 0          # a group of zeros
    t["model.layers.1.self_attn.v_proj.weight"][0, 0] = 3e38     # and of the largest
    return t


def awq_tensors(c, rng, group):
    t, floats = {}, {}

    def halves(name, *shape):
        t[name] = rng.standard_normal(shape).astype("<f2")
        floats[name] = t[name].astype("<f4")
    halves("model.embed_tokens.weight", c["vocab_size"], c["hidden_size"])
    halves("model.norm.weight", c["hidden_size"])
    halves("lm_head.weight", c["vocab_size"], c["hidden_size"])
    for i in range(c["num_hidden_layers"]):
        for n in NORMS:
            halves(f"model.layers.{i}.{n}.weight", c["hidden_size"])
        for n in ("q_norm", "k_norm"):
            halves(f"model.layers.{i}.self_attn.{n}.weight", c["head_dim"])
        for n, (rows, cols) in shapes(c, c["head_dim"]).items():
            name, groups = f"model.layers.{i}.{n}", -(-cols // group)
            q, z = rng.integers(0, 16, (cols, rows)), rng.integers(0, 16, (groups, rows))
            scales = (rng.random((groups, rows)) * 0.1).astype("<f2")
            for part, x in (("qweight", q), ("qzeros", z)):
                words = sum(x.reshape(len(x), -1, 8)[:, :, ORDER[b]].astype(np.uint32) << (4 * b) for b in range(8))
                t[f"{name}.{part}"] = words.astype("<u4").view("<i4")
            t[f"{name}.scales"] = scales
            g = np.arange(cols) // group
            floats[name + ".weight"] = (scales[g].astype("<f4") * (q - z[g]).astype("<f4")).T
    return t, floats


def digest(x):
    return hashlib.sha256(np.ascontiguousarray(x, "<f4").tobytes()).hexdigest()


def main():
    (HERE / "flat").mkdir(exist_ok=True)
    found = {}
    for name, form, group, tied in [("llama2c0", "llama2c0", 0, True), ("llama2c0-head", "llama2c0", 0, False), ("llama2c1", "llama2c1", 0, False),
                                    ("llama2c1-tied", "llama2c1", 0, True), ("llama2c2", "llama2c2", 8, True), ("llama2c2-head", "llama2c2", 8, False),
                                    ("llama2c2-crossed", "llama2c2", 16, True), ("kuiper", "kuiper", 8, False),
                                    ("kuiper-crossed", "kuiper", 64, True), ("ak48", "ak48", 8, False), ("ak48-tied", "ak48", 8, True)]:
        rng = np.random.default_rng(len(found))
        c = CONFIG | {"tie_word_embeddings": tied}
        if form == "ak48":
            c |= {"head_dim": 8, "quantization_config": {"group_size": group}}
            t, back = awq_tensors(c, rng, group)
            data, _ = make_flat.encode(c, t, form)
        else:
            t = tensors(c, rng)
            data, back = make_flat.encode(c, t, form, group)
            for n in back:      # rows as the file has them
                heads = 4 if "q_proj" in n else 2 if "k_proj" in n else 0
                back[n] = make_flat.to_pairs(back[n], heads) if heads else back[n]
        (HERE / "flat" / f"{name}.bin").write_bytes(data)
        found[name] = {"tied": tied, "head_dim": c["head_dim"], "pairs": form != "ak48",
                       "tensors": {n.removeprefix("model."): digest(x) for n, x in sorted(back.items()) if n != "lm_head.weight" or not tied}}
    (HERE / "flat.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
