#!/usr/bin/env python3
"""make_gguf_family.py - tiny models of the newer families as GGUF files, with llama.cpp's names and keys.

    make_gguf_family.py NAME OUT.gguf          NAME: also those of make_gguf_types.py

make_model.py's random weights in F32 (gpt-oss's experts in MXFP4), as llama.cpp's converter writes them: fused tensors
stay fused, 1 is added to Gemma's norms, q and k of SmolLM3 are permuted.  tests/golden/make_gguf_family_golden.py checks the names against the
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
from make_model import TINY, family, gemma  # noqa: E402

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
    # llama.cpp does not support dense layers in these two.
    "qwen3moe": TINY["qwen3-moe"][0] | {"mlp_only_layers": []}, "qwen2moe": TINY["qwen2-moe"][0] | {"decoder_sparse_step": 1},
    "olmoe": TINY["olmoe"][0],
    "glm4moe": TINY["glm4-moe"][0] | {"num_hidden_layers": 2}, "llama-mixtral": TINY["mixtral"][0],
    "gpt-oss": TINY["gpt-oss"][0] | {"swiglu_limit": 7.0},
}
MXFP4 = 39  # the type; blocks of 32 values in 17 bytes
PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
    "mlp.router": "ffn_gate_inp", "self_attn.sinks": "attn_sinks", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
} | {
    f"mlp.{module}.{name}_proj": f"ffn_{name}_{to}" for name in ("gate", "up", "down")
    for module, to in (("shared_expert", "shexp"), ("shared_experts", "shexp"), ("experts", "exps"))
} | {
    f"block_sparse_moe.experts.{w}": f"ffn_{name}_exps" for w, name in (("w1", "gate"), ("w3", "up"), ("w2", "down"))
}
ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def arch_of(name):
    return name if name == "gpt-oss" else name.split("-")[0]


def name_of(arch, hf):
    """Return a tensor's name in GGUF."""
    module, _, suffix = hf.rpartition(".")
    if module in ENDS:
        return f"{ENDS[module]}.{suffix}"
    _, _, layer, part = module.split(".", 3)
    if suffix == "e_score_correction_bias":
        return f"blk.{layer}.exp_probs_b.bias"
    if part == "post_attention_layernorm" and arch in ("gemma2", "gemma3", "olmo2", "glm4moe", "gpt-oss"):
        return f"blk.{layer}.post_attention_norm.{suffix}"
    return f"blk.{layer}.{PARTS[part]}.{suffix}"


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    types = {"F32": np.float32, "U8": np.uint8}
    return {k: np.frombuffer(data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]],
                             types[t["dtype"]]).reshape(t["shape"]) for k, t in header.items()}


def stacked(found):
    """Stack the tensors of all experts into one, which replaces the first expert's tensor."""
    out = {}
    for name, x in found.items():
        head, experts, tail = name.partition(".experts.")
        expert, _, rest = tail.partition(".")
        if experts:
            out.setdefault(f"{head}.experts.{rest}", []).append((int(expert), x))
        else:
            out[name] = x
    return {k: np.stack([x for _, x in sorted(v, key=lambda at: at[0])]) if isinstance(v, list) else v
            for k, v in out.items()}


def mxfp4(blocks, scales):
    """Convert to GGUF blocks: the exponent, then bytes that hold values i and i + 16."""
    codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*blocks.shape[:-1], 32)
    out = np.concatenate([scales[..., None], codes[..., :16] | codes[..., 16:] << 4], -1)
    return out.reshape(*out.shape[:-2], -1)


def unfused(found):
    """gpt-oss: split gate and up, convert to GGUF's MXFP4, and add the suffix to module names."""
    out = {}
    for name, x in found.items():
        base, _, kind = name.rpartition("_")
        if name.endswith("_blocks"):
            kind, x = "weight", mxfp4(x, found[base + "_scales"])
        elif name.endswith(".sinks"):
            out[name + ".weight"] = x
            continue
        elif ".experts." not in name:
            out[name] = x
            continue
        elif kind == "scales":
            continue
        if base.endswith("gate_up_proj"):
            out[base.replace("gate_up", "gate") + "." + kind], out[base.replace("gate_up", "up") + "." + kind] = \
                x[:, 0::2], x[:, 1::2]
        else:
            out[f"{base}.{kind}"] = x
    return out


def permuted(x, heads):
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def parts(arch, folder):
    return (unfused if arch == "gpt-oss" else stacked)(read(os.path.join(folder, "model.safetensors")))


def tensors(name, config, folder):
    arch, out = arch_of(name), {}
    for hf, x in parts(arch, folder).items():
        if arch.startswith("gemma") and "norm" in hf:
            x = x + np.float32(1)
        if arch in ("smollm3", "llama") and (".q_proj." in hf or ".k_proj." in hf):
            x = permuted(x, config["num_attention_heads" if ".q_proj." in hf else "num_key_value_heads"])
        if "shared_expert_gate" in hf:
            x = x[0]
        out[name_of(arch, hf)] = x
    if "rope_scaling" in config and config["rope_scaling"].get("type") == "longrope":
        for kind in ("short", "long"):
            out[f"rope_factors_{kind}.weight"] = np.array(config["rope_scaling"][f"{kind}_factor"], np.float32)
    return out


def expert_keys(arch, config):
    n = [config[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if k in config]
    if not n:
        return {}
    out = {"expert_count": n[0], "expert_used_count": config["num_experts_per_tok"]}
    for key, hf in (("expert_feed_forward_length", "moe_intermediate_size"),
                    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
                    ("expert_shared_count", "n_shared_experts"), ("expert_group_count", "n_group"),
                    ("expert_group_used_count", "topk_group")):
        if hf in config:
            out[key] = config[hf]
    if arch == "gpt-oss":
        out["expert_feed_forward_length"] = config["intermediate_size"]
    if arch == "glm4moe":
        out |= {"expert_gating_func": 2, "expert_weights_norm": True, "leading_dense_block_count": 1,
                "expert_weights_scale": float(config["routed_scaling_factor"])}
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
    if arch in ("phi3", "glm4", "glm4moe"):
        part = config.get("partial_rotary_factor", 1 if arch == "phi3" else 0.5)
        out["rope.dimension_count"] = int(head * part)
    out |= expert_keys(arch, config)
    scaling = config.get("rope_scaling", {})
    if scaling.get("rope_type") == "linear":
        out |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(scaling["factor"])}
    if scaling.get("rope_type") == "yarn":
        out |= {"rope.scaling.type": "yarn", "rope.scaling.factor": float(scaling["factor"]),
                "rope.scaling.original_context_length": scaling["original_max_position_embeddings"]}
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
    if isinstance(value, bool):
        return text(name) + struct.pack("<I?", 7, value)
    return text(name) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def write(name, config, out):
    """Write a model of the family that the name begins with."""
    with tempfile.TemporaryDirectory() as tmp:
        make_model.make(os.path.join(tmp, "hf"), config, "F32", 1)
        found = tensors(name, config, os.path.join(tmp, "hf"))
    meta = keys(name, config)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(found), len(meta)) + b"".join(key(k, v) for k, v in meta.items())
    at = 0
    for n, x in found.items():
        blocks = x.dtype == np.uint8
        shape = (*x.shape[:-1], x.shape[-1] // 17 * 32) if blocks else x.shape
        head += text(n) + struct.pack("<I", x.ndim) + struct.pack(f"<{x.ndim}Q", *reversed(shape))
        head += struct.pack("<IQ", MXFP4 if blocks else 0, at)
        at += -(-x.nbytes // 32) * 32
    part = f"{out}.part{os.getpid()}"
    with open(part, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for x in found.values():
            f.write(np.ascontiguousarray(x, None if x.dtype == np.uint8 else np.float32).tobytes() + bytes(-x.nbytes % 32))
    os.rename(part, out)


def make(name, out):
    write(name, FAMILIES[name], out)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in [*FAMILIES, *make_gguf_types.NAMES]:
        sys.exit(__doc__ + "\nNAME: " + " ".join(FAMILIES))
    (make if sys.argv[1] in FAMILIES else make_gguf_types.make)(*sys.argv[1:])
