#!/usr/bin/env python3
"""make_gguf.py - a GGUF file with made-up weights in a real model's shape, for measurements beside other engines.

    make_gguf.py OUT.gguf --shape qwen3-0.6b              # --layers N for fewer; shapes: make_model.py --list

Linear layers are Q4_0, embeddings and head (one tensor if the shape ties them) Q6_K, norms F32, as llama.cpp's own
Q4_0 files are.  Needs numpy and gguf (PyPI).  The tokenizer is the one that make_model.py writes."""
import argparse
import json
import os
import sys
import tempfile

import numpy as np

import make_model

NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    """model.layers.3.mlp.up_proj.weight: blk.3.ffn_up.weight."""
    flat = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
            "lm_head.weight": "output.weight"}
    if name in flat:
        return flat[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def raw(source, n):
    """n random bytes."""
    return source.random_raw((n + 7) // 8).view(np.uint8)[:n]


def scales(source, n, size):
    """n F16 scales around `size`, as bytes [n][2]."""
    return (make_model.uniform(source, n, 0.12 * size) + np.float32(size)).astype(np.float16).view(np.uint8).reshape(n, 2)


def q4_0(source, rows, k, std):
    """Blocks of 32: a scale, and 16 bytes of codes -8 to 7."""
    blocks = rows * k // 32
    codes = raw(source, blocks * 16).reshape(blocks, 16)
    return np.concatenate([scales(source, blocks, std / 4.61), codes], axis=1).reshape(rows, k // 32 * 18)


def q6_k(source, rows, k, std):
    """Blocks of 256: 192 bytes of codes -32 to 31, 16 scales of a byte, and theirs."""
    blocks = rows * k // 256
    codes = raw(source, blocks * 192).reshape(blocks, 192)
    mine = (raw(source, blocks * 16) % 16 + 56).reshape(blocks, 16)
    return np.concatenate([codes, mine, scales(source, blocks, std / 18.5 / 63.5)], axis=1).reshape(rows, k // 256 * 210)


def tensor_bytes(seed, tensor, types):
    """(the tensor as bytes or floats, its type)."""
    name, _, shape, _, std, mean = tensor
    source = make_model.bits(seed, name)
    if len(shape) == 1:
        return make_model.uniform(source, shape[0], std) + np.float32(mean), types.F32
    if name in ("model.embed_tokens.weight", "lm_head.weight"):
        return q6_k(source, *shape, std), types.Q6_K
    return q4_0(source, *shape, std), types.Q4_0


def add_config(w, c):
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_rope_dimension_count(dim)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c.get("rope_theta", 10000.0))
    w.add_vocab_size(c["vocab_size"])
    w.add_file_type(2)      # mostly Q4_0


def add_tokenizer(w, n_vocab):
    with tempfile.TemporaryDirectory() as d:
        special = make_model.write_tokenizer(d, n_vocab)
        with open(os.path.join(d, "tokenizer.json"), encoding="utf-8") as f:
            model = json.load(f)["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get) + make_model.SPECIAL
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([1] * special + [3] * len(make_model.SPECIAL))     # normal, control
    w.add_token_merges([" ".join(pair) for pair in model["merges"]])
    w.add_eos_token_id(special)
    w.add_pad_token_id(special)
    w.add_add_bos_token(False)
    w.add_chat_template(make_model.CHAT)


def make(out, config, seed):
    import gguf
    w = gguf.GGUFWriter(out, config["model_type"] if config["model_type"] != "mistral" else "llama")
    w.add_name("made-up weights")
    add_config(w, config)
    add_tokenizer(w, config["vocab_size"])
    for t in make_model.tensors(config, "F32"):
        data, kind = tensor_bytes(seed, t, gguf.GGMLQuantizationType)
        w.add_tensor(gguf_name(t[0]), data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", help="the file to make; must not exist")
    p.add_argument("--shape", default="qwen3-0.6b", help="a real model's shape (qwen3-0.6b)")
    p.add_argument("--layers", type=int, help="fewer layers than the shape has")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if a.shape.lower() not in make_model.SHAPES:
        p.error(f"unknown shape: {a.shape}")
    config = dict(make_model.SHAPES[a.shape.lower()])
    if config["hidden_size"] % 256 or config["intermediate_size"] % 32 or config.get("rope_scaling"):
        p.error(f"{a.shape}: rows of whole blocks only, and plain RoPE")
    if a.layers:
        config["num_hidden_layers"] = a.layers
    if os.path.exists(a.out):
        sys.exit(f"make_gguf.py: {a.out} exists already")
    make(a.out, config, a.seed)
    print(f"{a.out}: {os.path.getsize(a.out) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
