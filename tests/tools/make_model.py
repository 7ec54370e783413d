#!/usr/bin/env python3
"""make_model.py - make model directories with random weights, for tests and measurements.

    make_model.py OUT --shape qwen3-0.6b --type awq       # a real model's shape
    make_model.py OUT --tiny qwen3-awq-g32                # one of the tests' tiny models
    make_model.py OUT --shape qwen3-8b --type awq --empty # of full size, without taking disk space
    make_model.py --list

Needs numpy only.  The weights come from a counter-based generator keyed by the seed and the
tensor's name, so the same call writes the same bytes on every machine; tensors are written
piece by piece, so that an 8B model needs little memory.
"""
import argparse
import json
import os
import re
import shutil
import struct
import sys
import zlib

import numpy as np

PIECE = 1 << 22         # values made at a time

# ---------------------------------------------------------------- shapes


def llama(hidden, inter, layers, heads, kv, vocab, context, **more):
    return dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden,
                intermediate_size=inter, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv, vocab_size=vocab, max_position_embeddings=context,
                rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False) | more


def mistral(*args, **more):
    return llama(*args, **dict(architectures=["MistralForCausalLM"], model_type="mistral",
                               sliding_window=None) | more)


def qwen2(*args, **more):
    return llama(*args, **dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", rms_norm_eps=1e-6,
                               rope_theta=1e6, use_sliding_window=False) | more)


def qwen3(*args, **more):
    return qwen2(*args, **dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", head_dim=128) | more)


def family(arch, kind, *args, **more):
    """A family without special keys: a key missing in config.json has the family's default."""
    config = llama(*args, **dict(architectures=[arch], model_type=kind, pad_token_id=0) | more)
    return {k: v for k, v in config.items() if v is not ...}


def gemma(version, *args, **more):
    names = {2: ("Gemma2ForCausalLM", "gemma2"), 3: ("Gemma3ForCausalLM", "gemma3_text")}
    return family(*names[version], *args, **dict(rms_norm_eps=1e-6, hidden_act=..., tie_word_embeddings=...,
                                                 hidden_activation="gelu_pytorch_tanh", head_dim=32) | more)


def moe(arch, kind, *args, **more):
    """A mixture: experts of `moe_intermediate_size`, in every layer unless `more` says otherwise."""
    return family(arch, kind, *args, **dict(rms_norm_eps=1e-6, rope_theta=1e6) | more)


def qwen3_moe(*args, **more):
    return moe("Qwen3MoeForCausalLM", "qwen3_moe", *args, **dict(head_dim=128, norm_topk_prob=True, mlp_only_layers=[],
               decoder_sparse_step=1) | more)


def gpt_oss(*args, **more):
    scaling = dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                   original_max_position_embeddings=4096)
    layers = args[2]
    return moe("GptOssForCausalLM", "gpt_oss", *args, **dict(
        rms_norm_eps=1e-5, rope_theta=150000, head_dim=64, attention_bias=True, sliding_window=128, swiglu_limit=7.0,
        num_local_experts=32, num_experts_per_tok=4, rope_scaling=scaling,
        layer_types=["full_attention" if i % 2 else "sliding_attention" for i in range(layers)],
        quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])) | more)


LLAMA3 = dict(rope_theta=500000.0, rope_scaling=dict(
    rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=8192))

SHAPES = {
    "qwen3-0.6b": qwen3(1024, 3072, 28, 16, 8, 151936, 40960, tie_word_embeddings=True),
    "qwen3-1.7b": qwen3(2048, 6144, 28, 16, 8, 151936, 40960, tie_word_embeddings=True),
    "qwen3-4b": qwen3(2560, 9728, 36, 32, 8, 151936, 40960, tie_word_embeddings=True),
    "qwen3-8b": qwen3(4096, 12288, 36, 32, 8, 151936, 40960),
    "qwen3-14b": qwen3(5120, 17408, 40, 40, 8, 151936, 40960),
    "qwen3-32b": qwen3(5120, 25600, 64, 64, 8, 151936, 40960),
    "qwen2.5-0.5b": qwen2(896, 4864, 24, 14, 2, 151936, 32768, tie_word_embeddings=True),
    "qwen2.5-1.5b": qwen2(1536, 8960, 28, 12, 2, 151936, 32768, tie_word_embeddings=True),
    "qwen2.5-7b": qwen2(3584, 18944, 28, 28, 4, 152064, 32768),
    "llama-3.2-1b": llama(2048, 8192, 16, 32, 8, 128256, 131072, tie_word_embeddings=True, head_dim=64, **LLAMA3),
    "llama-3.2-3b": llama(3072, 8192, 28, 24, 8, 128256, 131072, tie_word_embeddings=True, head_dim=128, **LLAMA3),
    "llama-3.1-8b": llama(4096, 14336, 32, 32, 8, 128256, 131072, **LLAMA3),
    "llama-2-7b": llama(4096, 11008, 32, 32, 32, 32000, 4096),
    "mistral-7b": mistral(4096, 14336, 32, 32, 8, 32768, 32768, rope_theta=1e6),
    "gpt-oss-20b": gpt_oss(2880, 2880, 24, 64, 8, 201088, 131072),
    "qwen3-30b-a3b": qwen3_moe(2048, 6144, 48, 32, 4, 151936, 40960, num_experts=128, num_experts_per_tok=8,
                               moe_intermediate_size=768),
    "mixtral-8x7b": moe("MixtralForCausalLM", "mixtral", 4096, 14336, 32, 32, 8, 32000, 32768, rms_norm_eps=1e-5,
                        num_local_experts=8, num_experts_per_tok=2),
    # Small shapes for quick runs of a whole service.
    "small-3m": qwen3(192, 512, 4, 6, 2, 2048, 2048, tie_word_embeddings=True, head_dim=32),
    "small-25m": qwen3(512, 1536, 6, 8, 4, 8192, 4096, tie_word_embeddings=True, head_dim=64),
}


def awq(group, *skip):
    return dict(quantization_config=dict(quant_method="awq", version="gemm", bits=4, group_size=group,
                                         zero_point=True, modules_to_not_convert=list(skip) or None))


def quantized(method, **more):
    return dict(quantization_config=dict(quant_method=method, **more))


def gptq(bits, group, **more):
    return quantized("gptq", **dict(bits=bits, group_size=group, desc_act=False, sym=False, lm_head=False) | more)


def compressed(fmt, *schemes, **more):
    """Config groups: {targets: weights} in pairs."""
    groups = {f"group_{i}": dict(targets=targets, weights=weights, input_activations=None)
              for i, (targets, weights) in enumerate(schemes)}
    return quantized("compressed-tensors", **dict(format=fmt, quantization_status="compressed", ignore=["lm_head"],
                                                  config_groups=groups) | more)


def ints(bits, group, symmetric=True, strategy=None, actorder=None):
    return dict(num_bits=bits, type="int", symmetric=symmetric, group_size=group if group > 0 else None,
                strategy=strategy or ("group" if group > 0 else "channel"), actorder=actorder, dynamic=False)


def floats(strategy, **more):
    return dict(num_bits=8, type="float", symmetric=True, strategy=strategy, dynamic=False) | more


def fp4(group, **more):
    """Weights in E2M1: NVFP4 in groups of 16, MXFP4 in groups of 32."""
    return dict(num_bits=4, type="float", symmetric=True, group_size=group, dynamic=False,
                strategy="tensor_group" if group == 16 else "group") | more


def mixed(*schemes):
    """Config groups of several formats: (targets, format, weights)."""
    return quantized("compressed-tensors", format="mixed-precision", quantization_status="compressed",
                     ignore=["lm_head"], config_groups={
                         f"group_{i}": dict(targets=targets, format=fmt, weights=weights, input_activations=None)
                         for i, (targets, fmt, weights) in enumerate(schemes)})


def modelopt(algo, **more):
    return quantized("modelopt", **dict(quant_algo=algo, ignore=["lm_head", "model.embed*"], producer=dict(
        name="modelopt")) | more)


def bnb4(kind, nested):
    return quantized("bitsandbytes", load_in_4bit=True, load_in_8bit=False, bnb_4bit_quant_type=kind,
                     bnb_4bit_use_double_quant=nested, bnb_4bit_compute_dtype="bfloat16")


def bnb8():
    return quantized("bitsandbytes", load_in_8bit=True, load_in_4bit=False, llm_int8_threshold=6.0)


MIXED = mixed((["re:.*self_attn[.].*"], "float-quantized", floats("channel")),
              (["re:.*down_proj"], "pack-quantized", ints(4, 32)), (["Linear"], "nvfp4-pack-quantized", fp4(16)))


def scaled(kind, factor, **more):
    return dict(rope_scaling=dict(rope_type=kind, factor=factor) | more)


# Tiny models: every option of formats/config.h in some family; (config, type of the weights).
TINY = {
    "qwen3-tied": (qwen3(96, 168, 2, 6, 2, 331, 1024, head_dim=32, tie_word_embeddings=True), "bf16"),
    "qwen3-odd": (qwen3(56, 100, 3, 7, 1, 409, 128, head_dim=40, attention_bias=True), "f32"),
    "qwen3-window": (qwen3(64, 96, 3, 4, 2, 331, 128, head_dim=16, use_sliding_window=True, sliding_window=11,
                           max_window_layers=1), "f16"),
    "qwen3-types": (qwen3(64, 96, 3, 4, 4, 331, 128, head_dim=16, use_sliding_window=True, sliding_window=6,
                          layer_types=["sliding_attention", "full_attention", "sliding_attention"]), "f32"),
    "qwen3-yarn": (qwen3(64, 96, 2, 4, 2, 331, 128, head_dim=32, rope_theta=10000.0,
                         **scaled("yarn", 4.0, original_max_position_embeddings=32)), "f32"),
    "qwen3-awq-g32": (qwen3(128, 256, 2, 4, 2, 336, 128, head_dim=32,
                            **awq(32, "layers.1.self_attn.v_proj", "layers.0.mlp.down_proj")), "f16"),
    "qwen3-awq-g64": (qwen3(192, 320, 2, 4, 1, 336, 128, head_dim=64, tie_word_embeddings=True, **awq(64)), "f16"),
    "llama-awq-g128": (llama(256, 384, 2, 4, 2, 336, 128, **awq(128)), "f16"),
    "llama-awq-rows": (llama(96, 176, 2, 3, 3, 336, 128, **awq(-1, "layers.0.mlp.gate_proj")), "f16"),
    "llama-awq-even": (llama(96, 176, 2, 4, 4, 336, 128, **awq(-1, "layers.0.mlp.gate_proj")), "f16"),
    "qwen3-awq8": (qwen3(128, 256, 2, 4, 2, 336, 128, head_dim=32, **quantized(
        "awq", version="gemm", bits=8, group_size=64, zero_point=True)), "bf16"),
    "llama-awq-gemv": (llama(128, 256, 2, 4, 2, 336, 128, **quantized(
        "awq", version="gemv", bits=4, group_size=64, zero_point=True)), "f16"),
    "llama-awq-fast": (llama(128, 192, 2, 4, 4, 336, 128, **quantized(
        "awq", version="gemv_fast", bits=4, group_size=32, zero_point=True)), "f16"),
    "qwen3-gptq4-act": (qwen3(128, 224, 2, 4, 2, 336, 128, head_dim=32, **gptq(4, 32, desc_act=True)), "f16"),
    "llama-gptq3": (llama(128, 192, 2, 4, 2, 336, 128, **gptq(3, 64, checkpoint_format="gptq")), "f16"),
    "llama-gptq8-rows": (llama(96, 160, 2, 4, 4, 336, 128, **gptq(
        8, -1, checkpoint_format="gptq_v2", lm_head=True)), "bf16"),
    "qwen2-gptq2": (qwen2(128, 384, 2, 4, 2, 336, 128, **gptq(2, 32, dynamic={
        "-:.*layers.1.*o_proj": {}, r"+:.*\.down_proj": {"bits": 4, "group_size": 128}})), "bf16"),
    "qwen3-autoround": (qwen3(128, 256, 2, 4, 2, 336, 128, head_dim=32, **quantized(
        "auto-round", bits=4, group_size=32, sym=True, data_type="int", packing_format="auto_round:auto_gptq",
        extra_config={"model.layers.0.mlp.up_proj": {"bits": 8}, "lm_head": {"bits": 16}})), "f16"),
    "llama-autoround-awq": (llama(128, 256, 2, 4, 2, 336, 128, **quantized(
        "auto-round", bits=4, group_size=64, sym=False, packing_format="auto_round:auto_awq")), "f16"),
    "qwen3-w4a16": (qwen3(128, 256, 2, 4, 2, 331, 128, head_dim=32, **compressed(
        "pack-quantized", (["Linear"], ints(4, 32)))), "bf16"),
    "llama-w4a16-asym": (llama(128, 256, 2, 4, 2, 336, 128, **compressed(
        "pack-quantized", (["re:.*self_attn.*"], ints(4, 64, False)), (["re:.*mlp.*"], ints(8, 128, False)))), "bf16"),
    "llama-w4a16-act": (llama(128, 224, 2, 4, 2, 336, 128, **compressed(
        "pack-quantized", (["Linear"], ints(4, 32, actorder="group")))), "f16"),
    "qwen2-w3a16": (qwen2(120, 152, 2, 3, 1, 331, 128, **compressed(
        "pack-quantized", (["re:.*[qkv]_proj", "re:.*mlp"], ints(3, -1)), (["re:.*o_proj"], ints(
            5, -1, strategy="tensor")))), "f16"),
    "llama-w8a8": (llama(120, 152, 2, 3, 3, 331, 128, **compressed(
        "int-quantized", (["Linear"], ints(8, -1)))), "bf16"),
    "qwen3-fp8": (qwen3(192, 320, 2, 4, 2, 331, 128, head_dim=48, **quantized(
        "fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[128, 128])), "bf16"),
    "llama-fp8-tensor": (llama(96, 176, 2, 4, 4, 331, 128, **compressed(
        "float-quantized", (["Linear"], floats("tensor")))), "bf16"),
    "llama-fp8-channel": (llama(96, 176, 2, 4, 2, 331, 128, **compressed(
        "float-quantized", (["Linear"], floats("channel")))), "f16"),
    "qwen3-nvfp4": (qwen3(128, 256, 2, 4, 2, 331, 128, head_dim=32, **compressed(
        "nvfp4-pack-quantized", (["Linear"], fp4(16)))), "bf16"),
    "llama-mxfp4": (llama(128, 192, 2, 4, 2, 331, 128, **compressed(
        "mxfp4-pack-quantized", (["Linear"], fp4(32)))), "bf16"),
    "llama-mixed": (llama(128, 192, 2, 4, 2, 331, 128, **MIXED), "bf16"),
    "qwen3-fp8-modelopt": (qwen3(96, 176, 2, 4, 2, 331, 128, head_dim=24, **modelopt("FP8")), "bf16"),
    "qwen3-nf4": (qwen3(96, 192, 2, 3, 1, 331, 128, head_dim=32, **bnb4("nf4", True)), "bf16"),
    "llama-bnb8": (llama(120, 152, 2, 3, 3, 331, 128, **bnb8()), "f16"),
    "qwen2": (qwen2(80, 144, 2, 5, 1, 331, 128), "bf16"),
    "qwen2-yarn": (qwen2(64, 96, 2, 4, 2, 331, 64, rope_theta=10000.0, tie_word_embeddings=True,
                         rope_scaling=dict(type="yarn", factor=2.0, original_max_position_embeddings=64,
                                           beta_fast=16, beta_slow=2, mscale=0.7, mscale_all_dim=0.3,
                                           truncate=False)), "f32"),
    "llama2": (llama(72, 104, 2, 3, 3, 331, 128, attention_bias=True, mlp_bias=True), "f16"),
    "llama2-even": (llama(64, 96, 2, 4, 2, 331, 128, attention_bias=True, mlp_bias=True), "f16"),
    "llama2-linear": (llama(64, 88, 2, 4, 4, 331, 128, rope_scaling=dict(type="linear", factor=2.5)), "f32"),
    "llama2-dynamic": (llama(64, 88, 2, 4, 2, 331, 48, rope_scaling=dict(type="dynamic", factor=4.0)), "f32"),
    "llama3": (llama(128, 224, 2, 8, 2, 331, 256, rope_theta=500000.0, tie_word_embeddings=True, **scaled(
        "llama3", 8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)), "bf16"),
    "llama-longrope": (llama(64, 88, 2, 4, 2, 331, 128, rope_scaling=dict(
        rope_type="longrope", original_max_position_embeddings=48,
        short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0],
        long_factor=[1.1, 1.4, 1.9, 2.5, 3.5, 5.0, 7.0, 9.0])), "f32"),
    "mistral": (mistral(64, 120, 2, 4, 2, 331, 128, sliding_window=9), "f32"),
    "mistral-params": (mistral(64, 120, 2, 4, 2, 331, 128, head_dim=24, rope_parameters=dict(
        rope_type="default", rope_theta=20000.0)), "bf16"),
}

GEMMA3 = dict(sliding_window=9, sliding_window_pattern=2, query_pre_attn_scalar=40, rope_theta=50000.0,
              rope_local_base_freq=1000.0, rope_scaling=dict(rope_type="linear", factor=8.0))
TINY |= {
    "olmo2": (family("Olmo2ForCausalLM", "olmo2", 64, 120, 2, 4, 2, 331, 128), "f32"),
    "smollm3": (family("SmolLM3ForCausalLM", "smollm3", 64, 120, 3, 4, 2, 331, 128, tie_word_embeddings=...,
                       rope_theta=5e4, no_rope_layer_interval=2), "bf16"),
    "phi3": (family("Phi3ForCausalLM", "phi3", 64, 120, 2, 4, 2, 331, 128, sliding_window=9), "f32"),
    "phi3-longrope": (family(
        "Phi3ForCausalLM", "phi3", 128, 120, 2, 4, 2, 331, 128, partial_rotary_factor=0.75,
        original_max_position_embeddings=48, rope_scaling=dict(
            type="longrope", short_factor=[1 + i / 16 for i in range(12)],
            long_factor=[1.1 + i * i / 20 for i in range(12)])), "f16"),
    "phi3-nvfp4": (family("Phi3ForCausalLM", "phi3", 128, 192, 2, 4, 2, 331, 128, **modelopt("NVFP4")), "bf16"),
    "qwen3-moe-nvfp4": (qwen3_moe(64, 96, 2, 4, 2, 331, 128, head_dim=16, num_experts=6, num_experts_per_tok=2,
                                  moe_intermediate_size=48, **modelopt("NVFP4")), "bf16"),
    "phi3-awq-g32": (family("Phi3ForCausalLM", "phi3", 128, 192, 2, 4, 2, 336, 128, **awq(32)), "f16"),
    "glm": (family("GlmForCausalLM", "glm", 64, 120, 2, 4, 2, 331, 128, head_dim=32, rms_norm_eps=...), "bf16"),
    "glm4": (family("Glm4ForCausalLM", "glm4", 64, 120, 2, 4, 2, 331, 128, head_dim=32, attention_bias=False),
             "f32"),
    "gemma2": (gemma(2, 96, 160, 3, 4, 2, 331, 128, sliding_window=9, query_pre_attn_scalar=40,
                     attn_logit_softcapping=2.0, final_logit_softcapping=8.0), "bf16"),
    "gemma3": (gemma(3, 96, 160, 3, 4, 2, 331, 128, **GEMMA3), "bf16"),
    "gemma3-text": (dict(architectures=["Gemma3ForConditionalGeneration"], model_type="gemma3", vocab_size=331,
                         vision_config=dict(hidden_size=32), text_config=gemma(
                             3, 64, 96, 2, 8, 4, 331, 128, **GEMMA3 | dict(num_attention_heads=...,
                                                                          num_key_value_heads=...))), "f16"),
}

TINY |= {
    "qwen3-moe": (qwen3_moe(64, 120, 3, 4, 2, 331, 128, head_dim=32, num_experts=6, num_experts_per_tok=2,
                            moe_intermediate_size=40, mlp_only_layers=[1]), "bf16"),
    "qwen3-moe-awq": (qwen3_moe(128, 256, 2, 4, 2, 336, 128, head_dim=32, num_experts=8, num_experts_per_tok=3,
                                moe_intermediate_size=64, norm_topk_prob=False, **awq(32, "mlp.gate.")), "f16"),
    "qwen2-moe": (moe("Qwen2MoeForCausalLM", "qwen2_moe", 64, 104, 4, 4, 2, 331, 128, num_experts=5,
                      num_experts_per_tok=3, moe_intermediate_size=56, shared_expert_intermediate_size=88,
                      decoder_sparse_step=2), "f32"),
    "mixtral": (moe("MixtralForCausalLM", "mixtral", 64, 72, 2, 4, 2, 331, 128, rms_norm_eps=1e-5, num_local_experts=4,
                    num_experts_per_tok=2), "f16"),
    "olmoe": (moe("OlmoeForCausalLM", "olmoe", 64, 48, 2, 4, 4, 331, 128, num_experts=7, num_experts_per_tok=4), "f32"),
    "glm4-moe": (moe("Glm4MoeForCausalLM", "glm4_moe", 64, 120, 3, 4, 2, 331, 128, head_dim=32, n_routed_experts=8,
                     num_experts_per_tok=3, moe_intermediate_size=40, n_shared_experts=2, n_group=4, topk_group=2,
                     routed_scaling_factor=1.7, use_qk_norm=True, attention_bias=True), "bf16"),
}

# Every format of quantized checkpoints in three families: "llama-form-w8a16", ...
FORMS = {
    "awq-gemm": (awq(32), "f16"),
    "awq-rows": (awq(-1), "f16"),
    "awq-8bit": (quantized("awq", version="gemm", bits=8, group_size=64, zero_point=True), "f16"),
    "awq-gemv": (quantized("awq", version="gemv", bits=4, group_size=64, zero_point=True), "f16"),
    "awq-fast": (quantized("awq", version="gemv_fast", bits=4, group_size=32, zero_point=True), "f16"),
    "gptq2": (gptq(2, 32), "f16"),
    "gptq3": (gptq(3, 64), "f16"),
    "gptq4": (gptq(4, 128), "bf16"),
    "gptq4-v2": (gptq(4, 32, checkpoint_format="gptq_v2"), "f16"),
    "gptq4-act": (gptq(4, 32, desc_act=True), "f16"),
    "gptq8-rows": (gptq(8, -1), "bf16"),
    "gptq8-act": (gptq(8, 64, desc_act=True, checkpoint_format="gptq_v2"), "f16"),
    "autoround": (quantized("auto-round", bits=4, group_size=32, sym=True, data_type="int",
                            packing_format="auto_round:auto_gptq"), "f16"),
    "autoround-awq": (quantized("auto-round", bits=4, group_size=64, sym=False,
                                packing_format="auto_round:auto_awq"), "f16"),
    "w4a16": (compressed("pack-quantized", (["Linear"], ints(4, 32))), "bf16"),
    "w4a16-channel": (compressed("pack-quantized", (["Linear"], ints(4, -1))), "f16"),
    "w4a16-asym": (compressed("pack-quantized", (["Linear"], ints(4, 64, False))), "bf16"),
    "w4a16-asym-channel": (compressed("pack-quantized", (["Linear"], ints(4, -1, False))), "f16"),
    "w4a16-act": (compressed("pack-quantized", (["Linear"], ints(4, 32, actorder="group"))), "f16"),
    "w8a16": (compressed("pack-quantized", (["Linear"], ints(8, 128))), "bf16"),
    "w8a16-channel": (compressed("pack-quantized", (["Linear"], ints(8, -1))), "bf16"),
    "w8a16-asym": (compressed("pack-quantized", (["Linear"], ints(8, 32, False))), "f16"),
    "w8a8": (compressed("int-quantized", (["Linear"], ints(8, -1))), "bf16"),
    "fp8-block": (quantized("fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[128, 128]), "bf16"),
    "fp8-tensor": (compressed("float-quantized", (["Linear"], floats("tensor"))), "bf16"),
    "fp8-channel": (compressed("float-quantized", (["Linear"], floats("channel"))), "f16"),
    "nvfp4": (compressed("nvfp4-pack-quantized", (["Linear"], fp4(16))), "bf16"),
    "nvfp4-modelopt": (modelopt("NVFP4", group_size=16), "bf16"),
    "mxfp4": (compressed("mxfp4-pack-quantized", (["Linear"], fp4(32))), "f16"),
    "mxfp8": (compressed("mxfp8-quantized", (["Linear"], floats("group", group_size=32))), "bf16"),
    "fp8-modelopt": (modelopt("FP8"), "bf16"),
    "fp8-blocks-modelopt": (modelopt("FP8_PB_WO"), "bf16"),
    "mixed": (MIXED, "bf16"),
    "nf4": (bnb4("nf4", False), "bf16"),
    "nf4-nested": (bnb4("nf4", True), "bf16"),
    "fp4-bnb": (bnb4("fp4", False), "f16"),
    "int8-bnb": (bnb8(), "f16"),
}
TINY |= {
    "gpt-oss": (gpt_oss(96, 64, 2, 4, 2, 331, 256, head_dim=32, sliding_window=9, num_local_experts=6,
                        num_experts_per_tok=3, swiglu_limit=1.5, rope_scaling=dict(
                            rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                            original_max_position_embeddings=32)), "bf16"),
    "gpt-oss-tp": (gpt_oss(128, 128, 2, 8, 4, 331, 256, head_dim=16, sliding_window=20), "bf16"),
}
TINY |= {f"{name}-form-{form}": (make(128, 256, 2, 4, 2, 336, 128, **more, **quant), kind)
         for form, (quant, kind) in FORMS.items()
         for name, make, more in (("llama", llama, {}), ("qwen2", qwen2, {}), ("qwen3", qwen3, dict(head_dim=32)))}

# ---------------------------------------------------------------- random numbers


def bits(seed, name):
    """Raw 64-bit words of Philox, keyed by seed and name (numpy promises that these never change)."""
    return np.random.Philox(key=[seed, zlib.crc32(name.encode())])


def uniform(source, n, std):
    """n float32 values with mean 0: 24 random bits each, exact on every machine."""
    words = source.random_raw((n + 1) // 2).view(np.uint32)[:n]
    return ((words >> 8).astype(np.float32) - np.float32(1 << 23)) * np.float32(std * 3 ** 0.5 / (1 << 23))


def to_bf16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


# All non-negative values of E4M3, ascending: the codes 0 to 0x7e.
E4M3 = np.array([(c % 8 / 512 if c < 8 else (8 + c % 8) * 2.0 ** (c // 8 - 10)) for c in range(127)], np.float32)


def to_e4m3(x):
    at = np.searchsorted((E4M3[1:] + E4M3[:-1]) / 2, np.abs(x))
    return (at + np.where(np.signbit(x), 128, 0)).astype(np.uint8)


def encode(x, dtype):
    return {"F32": lambda: x, "F16": lambda: x.astype(np.float16), "BF16": lambda: to_bf16(x),
            "F8_E4M3": lambda: to_e4m3(x)}[dtype]()


def middle(words, bits):
    """Words of codes near the middle of 2^bits, so that quantized weights have a mean near 0."""
    if bits == 4:
        return (words & 0x33333333) + 0x66666666
    values = (1 << bits - 1) - 1 + (np.resize(words, -(-words.size * 32 // bits)) >> 7 & 1)
    stream = np.packbits(values[:, None] >> np.arange(bits) & 1, bitorder="little")
    return stream[:words.size * 4].view(np.uint32)


# ---------------------------------------------------------------- tensors
# A tensor is (name, dtype, shape, kind, std, mean).


def scales_of(std, bits):
    """Deviation and mean of the scales that give weights of this deviation if all codes are equally likely."""
    levels = 4.65 * 2.0 ** (bits - 4)
    return 0.12 * std / levels, std / levels


def awq_tensors(q, name, n, k, dtype, std):
    bits, version = q["bits"], q.get("version", "gemm")
    group = q["group_size"] if q["group_size"] > 0 else k
    groups, (dev, mean) = -(-k // group), scales_of(std, bits)
    words = (groups + 7) // 8
    words = -(-words // {32: 4, 64: 2}.get(group, 1)) * {32: 4, 64: 2}.get(group, 1)
    if version == "gemv":
        yield name + ".qweight", "I32", (n, k // 8), "words", 0, 0
        yield name + ".qzeros", "I32", (n, words), "zeros", 4, 0
        yield name + ".scales", "F16", (n, words * 8), "value", dev, mean
    elif version == "gemv_fast":
        yield name + ".qweight", "I16", (n // 4, k), "words", 0, 0
        yield name + ".qzeros", "F16", (words * 8, n), "value", 0.9 * mean, -7.5 * mean
        yield name + ".scales", "F16", (words * 8, n), "value", dev, mean
    else:
        yield name + ".qweight", "I32", (k, n * bits // 32), "words", 0, 0
        yield name + ".qzeros", "I32", (groups, n * bits // 32), "zeros", bits, 0
        yield name + ".scales", "BF16" if dtype == "BF16" else "F16", (groups, n), "value", dev, mean


def rule_of(rules, name, q):
    """The fields of a module: those of the first rule that matches its name (None: not quantized), else q's."""
    for pattern, rule in rules.items():
        if re.match(pattern.removeprefix("+:").removeprefix("-:"), name):
            return None if pattern.startswith("-:") or rule.get("bits", 4) >= 16 else q | rule
    return q


def gptq_tensors(q, name, n, k, dtype, std):
    bits, group = q["bits"], q["group_size"] if q["group_size"] > 0 else k
    groups, (dev, mean) = -(-k // group), scales_of(std, bits)
    yield name + ".qweight", "I32", (k * bits // 32, n), "words", 0, 0
    yield name + ".qzeros", "I32", (groups, n * bits // 32), "zeros", bits, 0
    yield name + ".scales", "BF16" if dtype == "BF16" else "F16", (groups, n), "value", dev, mean
    yield name + ".g_idx", "I32", (k,), "shuffled" if q["desc_act"] else "ordered", group, 0


def fp4_tensors(name, n, k, std, nv, ours):
    """Weights in E2M1, 2.93 on average; `ours`: names of the weight and of the scale of the tensor."""
    yield f"{name}.{ours[0]}", "U8", (n, k // 2), "bytes", 0, 256
    if not nv:
        yield name + ".weight_scale", "U8", (n, k // 32), "bytes", *exponents(std)
        return
    yield name + ".weight_scale", "F8_E4M3", (n, k // 16), "value", 8, 32
    whole = std / (32 * 2.93)
    yield f"{name}.{ours[1]}", "F32", (1,) if ours[1] == "weight_global_scale" else (), "value", 0, \
        1 / whole if ours[1] == "weight_global_scale" else whole


def modelopt_tensors(q, name, n, k, std):
    algo = q["quant_algo"]
    if algo.startswith("FP8"):
        blocks = algo == "FP8_PB_WO"
        yield name + ".weight", "F8_E4M3", (n, k), "value", 60.0, 0
        yield name + ".weight_scale", "F32", (-(-n // 128), 1, -(-k // 128), 1) if blocks else (), "value", \
            0.12 * std / 60, std / 60
        if blocks:
            return
    else:
        yield from fp4_tensors(name, n, k, std, algo == "NVFP4", ("weight", "weight_scale_2"))
    yield name + ".input_scale", "F32", (), "value", 0, 0.02


# The 16 values of bitsandbytes' 4-bit types.
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
       -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
       0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = [s * np.float32(v) / np.float32(12) for s in (1, -1) for v in (0, 0.0625, 8, 12, 4, 6, 2, 3)]


def bnb_tensors(q, name, n, k, std):
    if q["load_in_8bit"]:
        yield name + ".weight", "I8", (n, k), "words", 0, 0
        yield name + ".SCB", "F32", (n,), "value", 0.12 * std * 127 / 74, std * 127 / 74
        yield name + ".weight_format", "U8", (1,), "bytes", 0, 1
        return
    kind, nested, blocks = q["bnb_4bit_quant_type"], q["bnb_4bit_use_double_quant"], -(-n * k // 64)
    mean = std / 0.55
    yield name + ".weight", "U8", (n * k // 2, 1), "bytes", 0, 256
    yield name + ".weight.quant_map", "F32", (16,), "table", NF4 if kind == "nf4" else FP4, 0
    state = dict(quant_type=kind, blocksize=64, dtype="bfloat16", shape=[n, k])
    if nested:
        yield name + ".weight.absmax", "U8", (blocks,), "bytes", 0, 256
        yield name + ".weight.nested_absmax", "F32", (-(-blocks // 256),), "value", 0.01 * mean, 0.2 * mean
        yield name + ".weight.nested_quant_map", "F32", (256,), "table", np.arange(-127, 129) / 128, 0
        state |= dict(nested_blocksize=256, nested_dtype="float32", nested_offset=float(mean))
    else:
        yield name + ".weight.absmax", "F32", (blocks,), "value", 0.12 * mean, mean
    text = json.dumps(state).encode()
    yield f"{name}.weight.quant_state.bitsandbytes__{kind}", "U8", (len(text),), "text", text, 0


def group_of(q, name):
    """The first config group that names a module, or the first of the class Linear."""
    groups = list(q["config_groups"].values())
    named = [g for g in groups if any(t.startswith("re:") and re.match(t[3:], name) for t in g["targets"])]
    return (named or [g for g in groups if "Linear" in g["targets"]])[0]


def compressed_tensors(q, name, n, k, dtype, std):
    group = group_of(q, name)
    w, form = group["weights"], group.get("format") or q["format"]
    if form.endswith("fp4-pack-quantized"):
        yield from fp4_tensors(name, n, k, std, form.startswith("nv"), ("weight_packed", "weight_global_scale"))
        return
    if form == "mxfp8-quantized":
        yield name + ".weight", "F8_E4M3", (n, k), "value", 60.0, 0
        yield name + ".weight_scale", "U8", (n, k // 32), "bytes", 127 + round(np.log2(std / 60)), 2
        return
    bits, group = w["num_bits"], w.get("group_size") or k
    groups, (dev, mean) = -(-k // group), scales_of(std, bits)
    scales = (1,) if w["strategy"] == "tensor" else (n, groups)
    if w["type"] == "float":
        yield name + ".weight", "F8_E4M3", (n, k), "value", 60.0, 0
        mean = std / 60
    elif form == "int-quantized":
        yield name + ".weight", "I8", (n, k), "words", 0, 0
    else:
        yield name + ".weight_packed", "I32", (n, -(-k * bits // 32)), "words", 0, 0
        yield name + ".weight_shape", "I64", (2,), "shape", n, k
        if not w["symmetric"]:
            yield name + ".weight_zero_point", "I32", (-(-n * bits // 32), groups), "zeros", bits, 0
        if w["actorder"] == "group":
            yield name + ".weight_g_idx", "I32", (k,), "shuffled", group, 0
    yield name + ".weight_scale", dtype, scales, "value", 0.12 * mean, mean


def linear(config, name, n, k, dtype, bias, gain=1.0):
    quant = config.get("quantization_config")
    if quant and quant["quant_method"] == "mxfp4":
        quant = None        # only experts are quantized
    std = gain / k ** 0.5
    skip = (quant or {}).get("modules_to_not_convert") or []
    if quant and (name != "lm_head" or quant.get("lm_head")) and not any(s in name for s in skip):
        quant = rule_of(quant.get("dynamic") or quant.get("extra_config") or {}, name, dict(desc_act=False) | quant)
    elif quant:
        quant = None
    method = quant and quant["quant_method"]
    if method == "awq" or method == "auto-round" and quant["packing_format"].endswith("awq"):
        yield from awq_tensors(quant, name, n, k, dtype, std)
    elif method in ("gptq", "auto-round"):
        yield from gptq_tensors(quant, name, n, k, dtype, std)
    elif method == "compressed-tensors":
        yield from compressed_tensors(quant, name, n, k, dtype, std)
    elif method == "modelopt":
        yield from modelopt_tensors(quant, name, n, k, std)
    elif method == "bitsandbytes":
        yield from bnb_tensors(quant, name, n, k, std)
    elif method == "fp8":
        yield name + ".weight", "F8_E4M3", (n, k), "value", 60.0, 0
        yield name + ".weight_scale_inv", "F32", (-(-n // 128), -(-k // 128)), "value", 0.12 * std / 60, std / 60
    else:
        yield name + ".weight", dtype, (n, k), "value", std, 0
    if bias:
        yield name + ".bias", dtype, (n,), "value", 0.3, 0


def is_sparse(c, layer):
    if not any(k in c for k in ("num_experts", "num_local_experts", "n_routed_experts")):
        return False
    if layer in c.get("mlp_only_layers", []) or (layer + 1) % c.get("decoder_sparse_step", 1):
        return False
    return c["model_type"] != "glm4_moe" or layer >= c.get("first_k_dense_replace", 1)


def mxfp4(name, experts, n, k, dtype):
    yield name + "_blocks", "U8", (experts, n, k // 32, 16), "bytes", 0, 256
    yield name + "_scales", "U8", (experts, n, k // 32), "bytes", *exponents(1 / k ** 0.5)
    yield name + "_bias", dtype, (experts, n), "value", 0.3, 0


def exponents(std):
    """The lowest MXFP4 exponent, and the number of exponents: codes are 2.9 on average."""
    return 126 + round(np.log2(std / 2.9)), 2


def gpt_oss_experts(c, p, hidden, dtype):
    n, inter = c["num_local_experts"], c["intermediate_size"]
    yield p + "mlp.router.weight", dtype, (n, hidden), "value", 3 / hidden ** 0.5, 0
    yield p + "mlp.router.bias", dtype, (n,), "value", 0.5, 0
    yield from mxfp4(p + "mlp.experts.gate_up_proj", n, 2 * inter, hidden, dtype)
    yield from mxfp4(p + "mlp.experts.down_proj", n, hidden, inter, dtype)


def experts(c, p, hidden, dtype):
    """Router, experts and shared expert of a layer. A router's outputs are spread, so that choices are clear."""
    family = c["model_type"]
    n = next(c[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if k in c)
    inter = c.get("moe_intermediate_size", c["intermediate_size"])
    module, names = "mlp.", ("gate_proj", "up_proj", "down_proj")
    if family == "mixtral":
        module, names = "block_sparse_moe.", ("w1", "w3", "w2")
    yield p + module + "gate.weight", dtype, (n, hidden), "value", 3 / hidden ** 0.5, 0
    if family == "glm4_moe":
        yield p + module + "gate.e_score_correction_bias", "F32", (n,), "value", 0.2, 0
    for e in range(n):
        for name, outputs, inputs in zip(names, (inter, inter, hidden), (hidden, hidden, inter)):
            yield from linear(c, f"{p}{module}experts.{e}.{name}", outputs, inputs, dtype, False)
    shared = c.get("shared_expert_intermediate_size", c.get("n_shared_experts", 0) * inter)
    if family == "qwen2_moe":
        yield p + "mlp.shared_expert_gate.weight", dtype, (1, hidden), "value", 1 / hidden ** 0.5, 0
    for name, outputs, inputs in zip(names, (shared, shared, hidden), (hidden, hidden, shared)) if shared else ():
        at = "mlp.shared_expert." if family == "qwen2_moe" else "mlp.shared_experts."
        yield from linear(c, p + at + name, outputs, inputs, dtype, False)


def tensors(config, dtype):
    c = config | config.get("text_config", {})
    hidden, inter, heads = c["hidden_size"], c["intermediate_size"], c.get("num_attention_heads", 8)
    dim = c.get("head_dim") or hidden // heads
    q, kv = heads * dim, c.get("num_key_value_heads", 4) * dim
    family = c["model_type"]
    glm, gemma = family in ("glm", "glm4"), family.startswith("gemma")
    qkv_bias = family in ("qwen2", "qwen2_moe") or c.get("attention_bias", glm)
    o_bias = family not in ("qwen2", "qwen2_moe", "glm4_moe") and not glm and c.get("attention_bias", False)
    mlp_bias = c.get("mlp_bias", False)
    tied = c.get("tie_word_embeddings", True)
    norms = dict(olmo2=["post_attention", "post_feedforward"],
                 glm4=["input", "post_self_attn", "post_attention", "post_mlp"])
    norms = norms.get(family, ["input", "post_attention"])
    if gemma:
        norms = ["input", "post_attention", "pre_feedforward", "post_feedforward"]
    one = 0 if gemma else 1     # Gemma adds 1
    root = "language_model." if "text_config" in config else ""
    # Logits of a few units, so that the likeliest token has a clear lead.
    yield root + "model.embed_tokens.weight", dtype, (c["vocab_size"], hidden), "value", \
        0.05 if gemma else 0.35 if tied else 1.0, 0
    for i in range(c["num_hidden_layers"]):
        p = f"{root}model.layers.{i}."
        for name in norms:
            yield f"{p}{name}_layernorm.weight", dtype, (hidden,), "value", 0.1, one
        if family in ("qwen3", "qwen3_moe", "olmo2", "olmoe", "gemma3_text") or c.get("use_qk_norm"):
            wide = family in ("olmo2", "olmoe")
            yield p + "self_attn.q_norm.weight", dtype, (q if wide else dim,), "value", 0.2, one + 0.5
            yield p + "self_attn.k_norm.weight", dtype, (kv if wide else dim,), "value", 0.2, one + 0.5
        if family == "phi3":
            yield from linear(c, p + "self_attn.qkv_proj", q + 2 * kv, hidden, dtype, qkv_bias, 1.5)
        else:
            yield from linear(c, p + "self_attn.q_proj", q, hidden, dtype, qkv_bias, 1.5)
            yield from linear(c, p + "self_attn.k_proj", kv, hidden, dtype, qkv_bias, 1.5)
            yield from linear(c, p + "self_attn.v_proj", kv, hidden, dtype, qkv_bias)
        yield from linear(c, p + "self_attn.o_proj", hidden, q, dtype, o_bias)
        if family == "gpt_oss":
            yield p + "self_attn.sinks", dtype, (heads,), "value", 1.0, 1
        if is_sparse(c, i):
            yield from (gpt_oss_experts if family == "gpt_oss" else experts)(c, p, hidden, dtype)
            continue
        if family in ("phi3", "glm", "glm4"):
            yield from linear(c, p + "mlp.gate_up_proj", 2 * inter, hidden, dtype, mlp_bias)
        else:
            yield from linear(c, p + "mlp.gate_proj", inter, hidden, dtype, mlp_bias)
            yield from linear(c, p + "mlp.up_proj", inter, hidden, dtype, mlp_bias)
        yield from linear(c, p + "mlp.down_proj", hidden, inter, dtype, mlp_bias)
    yield root + "model.norm.weight", dtype, (hidden,), "value", 0.1, 3 if gemma else 1
    if not tied:
        yield from linear(c, "lm_head", c["vocab_size"], hidden, dtype, False, 4.0)


def pieces(seed, tensor):
    """Yield the tensor's bytes in chunks."""
    name, dtype, shape, kind, std, mean = tensor
    source = bits(seed, name)
    left = int(np.prod(shape, dtype=np.int64))
    while left:
        n = min(left, PIECE)
        left -= n
        if kind == "value":
            yield encode(uniform(source, n, std) + np.float32(mean), dtype).tobytes()
            continue
        if kind == "table":
            yield np.array(std, "<f4").tobytes()
            continue
        if kind == "text":
            yield std
            continue
        if kind == "shape":
            yield np.array([std, mean], "<i8").tobytes()
            continue
        if kind in ("ordered", "shuffled"):     # the group of each input; std: inputs of a group
            groups = np.arange(n, dtype="<i4") // std
            yield (groups[np.argsort(source.random_raw(n), kind="stable")] if kind == "shuffled" else groups).tobytes()
            continue
        if kind == "bytes":     # of `mean` kinds, starting at std
            yield (source.random_raw(n) % np.uint64(mean) + np.uint64(std)).astype(np.uint8).tobytes()
            continue
        size = n * SIZE[dtype]
        words = source.random_raw((size + 7) // 8).view(np.uint32)[:(size + 3) // 4]
        if kind == "zeros":         # zero points near the middle
            words = middle(words, std)
        yield words.astype("<u4").tobytes()[:size]


SIZE = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I16": 2, "I8": 1, "I64": 8, "F8_E4M3": 1, "U8": 1}


def write_file(path, seed, group, empty):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for t in group:
        size = int(np.prod(t[2], dtype=np.int64)) * SIZE[t[1]]
        header[t[0]] = {"dtype": t[1], "shape": list(t[2]), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in group if not empty else []:
            for piece in pieces(seed, t):
                f.write(piece)
        f.truncate(8 + len(text) + at)
    return at


def write_weights(out, config, dtype, seed, shard_bytes, empty):
    """Write one file, or several files of about shard_bytes with their index."""
    groups, size = [[]], 0
    for t in tensors(config, dtype):
        n = int(np.prod(t[2], dtype=np.int64)) * SIZE[t[1]]
        if groups[-1] and size + n > shard_bytes:
            groups.append([])
            size = 0
        groups[-1].append(t)
        size += n
    if len(groups) == 1:
        return write_file(os.path.join(out, "model.safetensors"), seed, groups[0], empty)
    total, where = 0, {}
    for i, group in enumerate(groups):
        name = f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors"
        total += write_file(os.path.join(out, name), seed, group, empty)
        where |= {t[0]: name for t in group}
    write_json(out, "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})
    return total


# ---------------------------------------------------------------- tokenizer

CHAT = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_letters():
    """The alphabet of byte-level vocabularies: a printable byte is its own letter, other bytes start at U+0100."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in plain}
    for b in range(256):
        letters.setdefault(b, chr(256 + len(letters) - len(plain)))
    return [letters[b] for b in range(256)]


def write_tokenizer(out, n_vocab):
    """Write a byte-level tokenizer of n_vocab ids: 256 bytes, pairs of letters, fillers, three special tokens."""
    letters = byte_letters()
    vocab = {c: i for i, c in enumerate(letters)}
    merges = []
    special0 = n_vocab - len(SPECIAL)
    alphabet = "etaoinshrdlucmfwypvbgk"
    for a in [letters[32], *alphabet]:
        for b in alphabet:
            if len(vocab) < special0:
                vocab[a + b] = len(vocab)
                merges.append([a, b])
    while len(vocab) < special0:
        vocab[f"{letters[32]}w{len(vocab)}"] = len(vocab)
    added = [dict(id=special0 + i, content=s, single_word=False, lstrip=False, rstrip=False, normalized=False,
                  special=True) for i, s in enumerate(SPECIAL)]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    write_json(out, "tokenizer.json", dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=level,
        post_processor=None, decoder=level,
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                   end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, vocab=vocab, merges=merges)))
    write_json(out, "tokenizer_config.json", dict(
        tokenizer_class="PreTrainedTokenizerFast", eos_token=SPECIAL[0], bos_token=None, add_bos_token=False,
        clean_up_tokenization_spaces=False, chat_template=CHAT))
    return special0


def copy_tokenizer(out, source):
    names = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt",
             "chat_template.jinja", "tokenizer.model"]
    found = [n for n in names if os.path.exists(os.path.join(source, n))]
    if "tokenizer.json" not in found:
        sys.exit(f"make_model.py: {source} has no tokenizer.json")
    for n in found:
        shutil.copyfile(os.path.join(source, n), os.path.join(out, n))


# ---------------------------------------------------------------- entry


def write_json(out, name, value):
    with open(os.path.join(out, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False)
        f.write("\n")


def make(out, config, dtype, seed, tokenizer=None, shard_bytes=1 << 62, empty=False):
    """Write the directory; it appears under its name only when it is complete."""
    config = dict(config)
    part = f"{out.rstrip('/')}.part{os.getpid()}"
    os.makedirs(part)
    generation = {}
    if tokenizer:
        copy_tokenizer(part, tokenizer)
    elif config["vocab_size"] >= 256 + len(SPECIAL):
        generation["eos_token_id"] = config["eos_token_id"] = write_tokenizer(part, config["vocab_size"])
    config["torch_dtype"] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]
    write_json(part, "config.json", config)
    write_json(part, "generation_config.json", generation)
    total = write_weights(part, config, dtype, seed, shard_bytes, empty)
    try:
        os.rename(part, out)
    except OSError:
        if not os.path.exists(os.path.join(out, "config.json")):
            raise
        shutil.rmtree(part)     # another process has made the same directory first
    return total


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", nargs="?", help="the directory to make; must not exist")
    p.add_argument("--shape", help="a real model's shape (see --list)")
    p.add_argument("--tiny", help="one of the tests' tiny models (see --list)")
    p.add_argument("--type", choices=["f32", "f16", "bf16", "awq"], default="bf16",
                   help="of the weights (bf16; awq: 4 bits, the rest f16)")
    p.add_argument("--group", type=int, default=128, help="AWQ: values per group, -1 for whole rows (128)")
    p.add_argument("--layers", type=int, help="fewer layers than the shape has")
    p.add_argument("--context", type=int, help="another max_position_embeddings")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tokenizer", metavar="DIR", help="copy the tokenizer's files from there (default: make one)")
    p.add_argument("--shard", type=float, metavar="GB", default=4, help="largest file (4)")
    p.add_argument("--empty", action="store_true", help="holes instead of weights: all are zero")
    p.add_argument("--list", action="store_true", help="list the shapes and tiny models")
    a = p.parse_args()
    if a.list:
        print("shapes:", *SHAPES, "\ntiny:  ", *TINY)
        return
    if not a.out or bool(a.shape) == bool(a.tiny):
        p.error("give OUT and one of --shape and --tiny")
    if (a.shape or "").lower() not in SHAPES and a.tiny not in TINY:
        p.error(f"unknown: {a.shape or a.tiny}; see --list")
    if a.tiny:
        config, kind = TINY[a.tiny]
    else:
        config, kind = dict(SHAPES[a.shape.lower()]), a.type
        if kind == "awq":
            config |= awq(a.group)
    config = dict(config)
    if a.layers:
        config["num_hidden_layers"] = a.layers
    if a.context:
        config["max_position_embeddings"] = a.context
    dtype = {"f32": "F32", "f16": "F16", "bf16": "BF16", "awq": "F16"}[kind]
    if os.path.exists(a.out):
        sys.exit(f"make_model.py: {a.out} exists already")
    total = make(a.out, config, dtype, a.seed, a.tokenizer, int(a.shard * 1e9), a.empty)
    print(f"{a.out}: {total / 1e6:.1f} MB of weights")


if __name__ == "__main__":
    main()
