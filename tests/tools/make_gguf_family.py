#!/usr/bin/env python3
"""make_gguf_family.py - tiny models of the newer families as GGUF files, with llama.cpp's names and keys.

    make_gguf_family.py NAME OUT.gguf          NAME: also those of make_gguf_types.py

Random weights of make_model.py in F32, as llama.cpp's converter writes them: fused tensors stay fused, 1 is added to
Gemma's norms, q and k of SmolLM3 are permuted.  tests/golden/make_gguf_family_golden.py checks the names against the
package gguf.  Needs numpy only.
"""
import json
import math
import os
import struct
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_gguf_types  # noqa: E402
import make_model  # noqa: E402
from make_model import family, gemma  # noqa: E402

LONG = dict(type="longrope", short_factor=[1 + i / 16 for i in range(12)],
            long_factor=[1.1 + i * i / 20 for i in range(12)])
FAMILIES = {
    "gemma2": gemma(2, 96, 160, 3, 4, 2, 331, 128, sliding_window=9, query_pre_attn_scalar=32,
                    attn_logit_softcapping=2.0, final_logit_softcapping=8.0),
    "gemma2-caps": gemma(2, 96, 160, 2, 4, 2, 331, 128, sliding_window=4096, query_pre_attn_scalar=32),
    "gemma3": gemma(3, 64, 96, 7, 4, 2, 331, 128, sliding_window=9, sliding_window_pattern=6, query_pre_attn_scalar=32,
                    rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling=dict(rope_type="linear", factor=8.0)),
    "phi3": family("Phi3ForCausalLM", "phi3", 64, 120, 2, 4, 2, 331, 128, sliding_window=9),
    "phi3-long": family("Phi3ForCausalLM", "phi3", 128, 120, 2, 4, 2, 331, 128, partial_rotary_factor=0.75,
                        original_max_position_embeddings=48, rope_scaling=LONG),
    "glm4": family("Glm4ForCausalLM", "glm4", 64, 120, 2, 4, 2, 331, 128, head_dim=32, attention_bias=True),
    "olmo2": family("Olmo2ForCausalLM", "olmo2", 64, 120, 2, 4, 2, 331, 128),
    "smollm3": family("SmolLM3ForCausalLM", "smollm3", 64, 120, 5, 4, 2, 331, 128, tie_word_embeddings=True,
                      rope_theta=5e4, no_rope_layer_interval=4),
}
PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
}
ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def arch_of(name):
    return name.split("-")[0]


def name_of(arch, hf):
    """A tensor's name in GGUF."""
    module, _, suffix = hf.rpartition(".")
    if module in ENDS:
        return f"{ENDS[module]}.{suffix}"
    _, _, layer, part = module.split(".", 3)
    if part == "post_attention_layernorm" and arch in ("gemma2", "gemma3", "olmo2"):
        return f"blk.{layer}.post_attention_norm.{suffix}"
    return f"blk.{layer}.{PARTS[part]}.{suffix}"


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {k: np.frombuffer(data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]], np.float32).reshape(t["shape"])
            for k, t in header.items()}


def permuted(x, heads):
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def tensors(name, config, folder):
    arch, out = arch_of(name), {}
    for hf, x in read(os.path.join(folder, "model.safetensors")).items():
        if arch.startswith("gemma") and "norm" in hf:
            x = x + np.float32(1)
        if arch == "smollm3" and (".q_proj." in hf or ".k_proj." in hf):
            x = permuted(x, config["num_attention_heads" if ".q_proj." in hf else "num_key_value_heads"])
        out[name_of(arch, hf)] = x
    if "rope_scaling" in config and config["rope_scaling"].get("type") == "longrope":
        for kind in ("short", "long"):
            out[f"rope_factors_{kind}.weight"] = np.array(config["rope_scaling"][f"{kind}_factor"], np.float32)
    return out


def keys(name, config):
    arch, heads = arch_of(name), config["num_attention_heads"]
    head = config.get("head_dim", config["hidden_size"] // heads)
    out = {
        "block_count": config["num_hidden_layers"], "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"], "context_length": config["max_position_embeddings"],
        "attention.head_count": heads, "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
    }
    if "head_dim" in config:
        out |= {"attention.key_length": head, "attention.value_length": head}
    if "rope_theta" in config:
        out["rope.freq_base"] = float(config["rope_theta"])
    if config.get("sliding_window") and name != "gemma2-caps":
        out["attention.sliding_window"] = config["sliding_window"]
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if key in config:
            out[key] = float(config[key])
    if arch in ("phi3", "glm4"):
        out["rope.dimension_count"] = int(head * config.get("partial_rotary_factor", 0.5 if arch == "glm4" else 1))
    scaling = config.get("rope_scaling", {})
    if scaling.get("rope_type") == "linear":
        out |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(scaling["factor"])}
    if scaling.get("type") == "longrope":
        original = config["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        out |= {"rope.scaling.original_context_length": original,
                "rope.scaling.attn_factor": math.sqrt(1 + math.log(scale) / math.log(original))}
    return {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in out.items()}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def key(name, value):
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    return text(name) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def make(name, out):
    config = FAMILIES[name]
    with tempfile.TemporaryDirectory() as tmp:
        make_model.make(os.path.join(tmp, "hf"), config, "F32", 1)
        found = tensors(name, config, os.path.join(tmp, "hf"))
    meta = keys(name, config)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(found), len(meta)) + b"".join(key(k, v) for k, v in meta.items())
    at = 0
    for n, x in found.items():
        head += text(n) + struct.pack("<I", x.ndim) + struct.pack(f"<{x.ndim}Q", *reversed(x.shape)) + struct.pack("<IQ", 0, at)
        at += -(-x.nbytes // 32) * 32
    part = f"{out}.part{os.getpid()}"
    with open(part, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for x in found.values():
            f.write(np.ascontiguousarray(x, np.float32).tobytes() + bytes(-x.nbytes % 32))
    os.rename(part, out)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in [*FAMILIES, *make_gguf_types.NAMES]:
        sys.exit(__doc__ + "\nNAME: " + " ".join(FAMILIES))
    (make if sys.argv[1] in FAMILIES else make_gguf_types.make)(*sys.argv[1:])
