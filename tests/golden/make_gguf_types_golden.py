#!/usr/bin/env python3
"""make_gguf_types_golden.py - logits and tokens of tests/tools/make_gguf_types.py's models: three families in every type.

The package gguf reads each file and dequantizes its tensors; transformers (float32, CPU) computes with those weights.
Writes tests/golden/gguf_models.json: the form of models.json, and per linear layer the CRC-32 of its weights in float32,
in the order of the file.  Needs torch, transformers and gguf; the tests need only its output.

    python tests/golden/make_gguf_types_golden.py [NAME ...]      NAME: llama-Q4_K, ...; then nothing is written
"""
import json
import os
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers
from gguf import GGUFReader
from gguf.quants import dequantize

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import make_model_golden as golden  # noqa: E402
import make_gguf_types as made  # noqa: E402

HF = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
      "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
      "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
      "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
      "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CLASSES = {"llama": "LlamaConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config"}


def hf_name(name):
    module, _, suffix = name.rpartition(".")
    if module.startswith("blk."):
        _, layer, part = module.split(".")
        return f"model.layers.{layer}.{HF[part]}", suffix
    return HF[module], suffix


def halves(x, heads):
    """Rows from rotating neighbours to rotating halves."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def read(path, family):
    state, crcs = {}, {}
    for t in GGUFReader(path).tensors:
        x = dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(n) for n in reversed(t.shape)])
        module, suffix = hf_name(t.name)
        if x.ndim == 2:
            crcs[t.name.removesuffix(".weight")] = zlib.crc32(np.ascontiguousarray(x).tobytes())
        if family == "llama" and ("q_proj" in module or "k_proj" in module):
            x = halves(x, made.HEADS if "q_proj" in module else made.KV)
        state[f"{module}.{suffix}"] = torch.from_numpy(np.ascontiguousarray(x))
    return state, crcs


def model_of(family, state):
    config = getattr(transformers, CLASSES[family])(
        hidden_size=made.HIDDEN, intermediate_size=made.INTER, num_hidden_layers=made.LAYERS,
        num_attention_heads=made.HEADS, num_key_value_heads=made.KV, head_dim=made.HEAD, vocab_size=made.VOCAB,
        max_position_embeddings=made.CONTEXT, rope_theta=1e4, rms_norm_eps=1e-6, hidden_act="silu",
        tie_word_embeddings=family != "llama", use_sliding_window=False, attention_bias=False)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


def main():
    torch.set_num_threads(1)
    golden.NEW, golden.STRIDE = 64, 13
    cases = []
    with tempfile.TemporaryDirectory() as tmp:
        for name in sys.argv[1:] or made.NAMES:
            family = name.split("-")[0]
            path = os.path.join(tmp, name + ".gguf")
            made.make(name, path)
            state, crcs = read(path, family)
            model = model_of(family, state)
            golden.hf_model = lambda path, context, model=model: model
            c = golden.case(name, path, made.CONTEXT, 40)
            c["tensors"] = crcs
            largest = max(abs(x) for x in c["logits"])
            print(name, "margin", min(c["margins"]), "largest", largest, "tokens", len(set(c["greedy"])))
            cases.append({k: v for k, v in c.items() if k not in ("margins", "logits_cut", "cut")})
            os.unlink(path)
    if not sys.argv[1:]:
        with open(os.path.join(HERE, "gguf_models.json"), "w", encoding="utf-8") as f:
            f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
