#!/usr/bin/env python3
"""make_model_golden.py - expected logits and tokens of the tests' tiny models.

Runs Hugging Face transformers (float32, CPU) on the models of tests/tools/make_model.py and writes
tests/golden/models.json.  Needs torch and transformers; the tests need only its output.

    python tests/golden/make_model_golden.py [NAME ...]

Of each case: the prompt, the logits (every STRIDE-th) after the prompt and after its first
CUT tokens, and greedy tokens with their margins over the second best.

And tests/golden/rope.json: cos and sin of real models' RoPE scalings at some positions.
"""
import json
import os
import sys
import tempfile

import numpy as np
import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))
import make_model  # noqa: E402

NEW, CUT, STRIDE = 32, 7, 5
NIBBLE = np.array([0, 4, 1, 5, 2, 6, 3, 7])


def read_tensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    kinds = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I32": np.uint32, "U8": np.uint8}
    out = {}
    for name, t in header.items():
        a, b = t["data_offsets"]
        x = np.frombuffer(data[8 + n + a:8 + n + b], kinds[t["dtype"]]).reshape(t["shape"])
        if t["dtype"] == "BF16":
            x = (x.astype(np.uint32) << 16).view(np.float32)
        out[name] = x
    return out


def unpack(words):
    """[rows, N/8] words to [rows, N] of 0..15, columns in order."""
    return ((words[..., None] >> (4 * NIBBLE).astype(np.uint32)) & 15).reshape(words.shape[0], -1)


def dequantize(tensors, group):
    """Plain float32 weights, [N, K]."""
    out = {}
    for name, x in tensors.items():
        if name.endswith(".qweight"):
            base = name[:-len(".qweight")]
            q = unpack(x).astype(np.float32)
            g = group if group > 0 else q.shape[0]
            z = np.repeat(unpack(tensors[base + ".qzeros"]), g, 0)[:q.shape[0]].astype(np.float32)
            s = np.repeat(tensors[base + ".scales"], g, 0)[:q.shape[0]].astype(np.float32)
            out[base + ".weight"] = ((q - z) * s).T
        elif not name.endswith((".qzeros", ".scales")):
            out[name] = x.astype(np.float32)
    return {k: torch.tensor(np.ascontiguousarray(v)) for k, v in out.items()}


def fuse_experts(state, model):
    """Experts as transformers keeps them since version 5: gate and up of all in one tensor, down in another."""
    wanted = model.state_dict()
    for name in [n for n in wanted if n.endswith("experts.gate_up_proj") and n not in state]:
        base = name[:-len("gate_up_proj")]
        at = base if base + "0.gate_proj.weight" in state else base.replace(".mlp.", ".block_sparse_moe.")
        parts = ("w1", "w3", "w2") if at != base else ("gate_proj", "up_proj", "down_proj")
        each = [[state.pop(f"{at}{e}.{part}.weight") for part in parts] for e in range(wanted[name].shape[0])]
        state[name] = torch.stack([torch.cat(x[:2]) for x in each])
        state[base + "down_proj"] = torch.stack([x[2] for x in each])
        gate = at.replace("experts.", "gate.weight")
        state[base.replace("experts.", "gate.weight")] = state.pop(gate)
    return state


def unpack_mxfp4(state):
    """The experts of gpt-oss in floats, by transformers' own function."""
    for name in [n for n in state if n.endswith("_blocks")]:
        base = name[:-len("_blocks")]
        state[base] = convert_moe_packed_tensors(state.pop(name).to(torch.uint8), state.pop(base + "_scales").to(torch.uint8),
                                                 dtype=torch.float32)
    return state


def hf_model(path, context):
    """The model with the RoPE of a service with a context of `context` tokens."""
    config = transformers.AutoConfig.from_pretrained(path)
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        dtype = getattr(torch, json.load(f)["torch_dtype"])
    config = getattr(config, "text_config", config)
    quant = getattr(config, "quantization_config", None)
    if quant is not None:
        del config.quantization_config
    config.dtype = torch.float32
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    group = (quant or {}).get("group_size", 0)
    state = dequantize(read_tensors(os.path.join(path, "model.safetensors")), group)
    state = {k.removeprefix("language_model."): v for k, v in state.items()}
    missing, unexpected = model.load_state_dict(fuse_experts(unpack_mxfp4(state), model), strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    if hasattr(model.model.embed_tokens, "embed_scale"):    # as it is where the model runs in its own type
        scale = model.model.embed_tokens.embed_scale
        scale.copy_(scale.to(dtype).float())
    rope = model.model.rotary_emb
    if isinstance(rope.rope_type, str) and rope.rope_type in ("dynamic", "longrope"):
        rope.inv_freq, rope.attention_scaling = ROPE_INIT_FUNCTIONS[rope.rope_type](config, "cpu", seq_len=context)
        rope.rope_type = "default"      # or forward() would choose again by the length of each sequence
    return model


@torch.no_grad()
def case(name, path, context, n_prompt):
    model = hf_model(path, context)
    vocab = model.config.vocab_size
    ids = [(i * 37 + 11 + i * i) % vocab for i in range(n_prompt)]
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    rows = [logits[CUT - 1], logits[-1]]
    out, margins, seq = [], [], list(ids)
    for _ in range(NEW):
        top = torch.topk(model(torch.tensor([seq]), use_cache=False).logits[0, -1], 2)
        out.append(int(top.indices[0]))
        margins.append(float(top.values[0] - top.values[1]))
        seq.append(out[-1])
    return dict(name=name, context=context, prompt=ids, cut=CUT, stride=STRIDE,
                logits_cut=[round(float(x), 5) for x in rows[0][::STRIDE]],
                logits=[round(float(x), 5) for x in rows[1][::STRIDE]],
                greedy=out, margins=[round(m, 4) for m in margins])


ROPES = [
    dict(model_type="qwen3", head_dim=128, max_position_embeddings=40960, rope_theta=1e6),
    dict(model_type="llama", head_dim=128, max_position_embeddings=131072, rope_theta=5e5, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192)),
    dict(model_type="qwen3", head_dim=128, max_position_embeddings=40960, rope_theta=1e6, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)),
    dict(model_type="qwen2", max_position_embeddings=131072, rope_theta=1e6, rope_scaling=dict(
        type="yarn", factor=4.0, original_max_position_embeddings=32768, attention_factor=1.25, beta_fast=24.0,
        beta_slow=2.0)),
    dict(model_type="llama", max_position_embeddings=4096, rope_scaling=dict(type="linear", factor=4.0)),
    dict(model_type="llama", max_position_embeddings=4096, rope_scaling=dict(type="dynamic", factor=2.0)),
    dict(model_type="mistral", head_dim=96, max_position_embeddings=131072, original_max_position_embeddings=4096,
         rope_scaling=dict(type="longrope", short_factor=[1 + i / 64 for i in range(48)],
                           long_factor=[1 + i * i / 40 for i in range(48)])),
    dict(model_type="llama", max_position_embeddings=8192, rope_parameters=dict(
        rope_type="llama3", rope_theta=25000.0, factor=2.0, low_freq_factor=2.0, high_freq_factor=8.0,
        original_max_position_embeddings=1024)),
]
COMMON = dict(hidden_size=1024, intermediate_size=2048, num_hidden_layers=1, num_attention_heads=8,
              num_key_value_heads=8, vocab_size=320)


@torch.no_grad()
def rope_case(config, context):
    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}
    cls = getattr(transformers, names[config["model_type"]] + "Config")
    hf = cls(**COMMON, **{k: v for k, v in config.items() if k != "model_type"})
    module = __import__(f"transformers.models.{config['model_type']}.modeling_{config['model_type']}",
                        fromlist=["x"])
    rope = getattr(module, names[config["model_type"]] + "RotaryEmbedding")(hf)
    if rope.rope_type in ("dynamic", "longrope"):
        rope.inv_freq, rope.attention_scaling = ROPE_INIT_FUNCTIONS[rope.rope_type](hf, "cpu", seq_len=context)
        rope.rope_type = "default"
    positions = [0, 1, 100, 4000, context - 1]
    cos, sin = rope(torch.zeros(1, dtype=torch.float32), torch.tensor([positions]))
    half = cos.shape[-1] // 2
    return dict(config=COMMON | config, context=context, positions=positions, stride=5,
                cos=[[round(float(x), 6) for x in row[:half:5]] for row in cos[0]],
                sin=[[round(float(x), 6) for x in row[:half:5]] for row in sin[0]])


def rope_cases():
    for config in ROPES:
        kind = (config.get("rope_scaling") or {}).get("type")
        contexts = [4096, 131072] if kind == "longrope" else [4096, 8192] if kind == "dynamic" else [
            config["max_position_embeddings"]]
        for context in contexts:
            yield rope_case(config, context)


def main():
    torch.set_num_threads(2)
    names = sys.argv[1:] or [n for n in make_model.TINY if "-form-" not in n]
    cases = []
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            config, kind = make_model.TINY[name]
            path = os.path.join(tmp, name)
            make_model.make(path, config, {"f32": "F32", "f16": "F16", "bf16": "BF16"}[kind], 1)
            contexts = [(config | config.get("text_config", {}))["max_position_embeddings"]]
            if name == "llama2-dynamic":
                contexts = [48, 160]
            if name in ("llama-longrope", "phi3-longrope"):
                contexts = [48, 128]
            for context in contexts:
                n_prompt = min(40, context - NEW)
                cases.append(case(name, path, context, n_prompt))
                c = cases[-1]
                print(name, context, "margin", min(c["margins"]), "spread", np.std(c["logits"]), c["greedy"][:12])
    if sys.argv[1:]:        # in their places, the others as they are
        with open(os.path.join(HERE, "models.json"), encoding="utf-8") as f:
            cases = [c for c in json.load(f) if c["name"] not in names] + cases
    else:
        with open(os.path.join(HERE, "rope.json"), "w", encoding="utf-8") as f:
            f.write("[\n" + ",\n".join(json.dumps(c) for c in rope_cases()) + "\n]\n")
    with open(os.path.join(HERE, "models.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
