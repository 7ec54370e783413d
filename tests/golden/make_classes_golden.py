#!/usr/bin/env python3
"""make_classes_golden.py [NAME ...] - tiny models of transformers' classes, with expected logits and tokens.
make_classes_golden.py --out DIR/ANY NAME KEY=JSON ... - one of them with other values in config.json.

Writes tests/golden/classes.json: config.json and the tensors' shapes as transformers saves them, and what the model
answers in float32 with the weights of tests/tools/make_class.py.  Needs torch and transformers (5.24); the tests need
only the output.  Prompt, logits and tokens are those of make_model_golden.py.

With --out, nothing is committed: the directory has the model, and transformers' answer in reference.json.
QUERN_TEST_FAMILIES=DIR of tests/unit/worker/test_model.c compares quern with all models in DIR.
"""
import json
import math
import os
import struct
import sys
import tempfile

import numpy as np
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))
import make_class  # noqa: E402

NEW, CUT, STRIDE, PROMPT, VOCAB = 32, 7, 5, 40, 320
CONTEXT = 256 if sys.argv[1:2] == ["--out"] else 128        # the test of QUERN_TEST_FAMILIES serves 256
SIZES = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=CONTEXT, bos_token_id=1, eos_token_id=2, pad_token_id=0)
GPT = dict(n_embd=64, n_head=4, n_layer=2, n_positions=CONTEXT)
GRANITE = dict(embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.6, attention_multiplier=0.2)
FULL, SLIDING = "full_attention", "sliding_attention"
FEW = dict(num_experts_per_tok=2, moe_intermediate_size=16)
# Name: model type, and what differs from SIZES.
CLASSES = {
    "xglm": ("xglm", dict(d_model=64, ffn_dim=128, num_layers=2, attention_heads=4)),
    "ctrl": ("ctrl", GPT | dict(dff=128)),
    "openai-gpt": ("openai-gpt", GPT),
    "gpt-neox-japanese": ("gpt_neox_japanese", dict(intermediate_multiple_size=3)),
    "nanochat": ("nanochat", dict(final_logit_softcapping=8.0)),
    "emu3": ("emu3_text_model", {}),
    "granite-swa": ("granite_swa", GRANITE | dict(num_hidden_layers=3, sliding_window=16,
                                                  layer_types=[FULL, SLIDING, SLIDING],
                                                  layer_rope_theta=[0, 10000.0, 500.0])),
    "granitemoe-swa": ("granitemoe_swa", GRANITE | dict(
        sliding_window=16, layer_types=[FULL, SLIDING], layer_rope_theta=[10000.0, 10000.0], num_local_experts=4,
        num_experts_per_tok=2, intermediate_size=32)),
    "flint": ("flint", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, sliding_window=17,
                            layer_types=[FULL, SLIDING, FULL], mlp_only_layers=[0], num_hidden_layers=3,
                            shared_expert_intermediate_size=32)),
    "bloom": ("bloom", dict(n_head=6, hidden_size=96, n_layer=2)),       # slopes of a number that is no power of two
    "mpt": ("mpt", dict(d_model=64, n_heads=4, n_layers=2, max_seq_len=CONTEXT,
                        attn_config=dict(clip_qkv=1.5))),
    "falcon-rw": ("falcon", dict(multi_query=False, parallel_attn=False, alibi=True, bias=True, ffn_hidden_size=128,
                                 new_decoder_architecture=False)),
    "cohere2-moe": ("cohere2_moe", dict(
        num_experts=4, num_experts_per_tok=2, intermediate_size=16, num_shared_experts=1, logit_scale=1.0,
        num_hidden_layers=3, sliding_window=16, layer_types=[FULL, SLIDING, FULL],
        mlp_layer_types=["dense", "sparse", "sparse"], prefix_dense_intermediate_size=48)),
    "cohere2-moe-sum": ("cohere2_moe", dict(
        num_experts=4, num_experts_per_tok=2, intermediate_size=16, num_shared_experts=2, logit_scale=1.0,
        sliding_window=16, layer_types=[SLIDING, FULL], mlp_layer_types=["sparse", "sparse"],
        expert_selection_fn="sigmoid", norm_topk_prob=False, shared_expert_combination_strategy="sum")),
    "dbrx": ("dbrx", dict(d_model=64, n_heads=4, n_layers=2, max_seq_len=CONTEXT,
                          attn_config=dict(kv_n_heads=2, clip_qkv=1.5, rope_theta=10000.0),
                          ffn_config=dict(ffn_hidden_size=32, moe_num_experts=4, moe_top_k=2))),
    "cohere-compass": ("cohere_compass_text", dict(
        num_hidden_layers=3, sliding_window=16, layer_types=[SLIDING, FULL, SLIDING], logit_scale=0.5,
        rope_parameters={FULL: None, SLIDING: dict(rope_type="default", rope_theta=10000.0, mrope_section=[3, 3, 2])})),
    "phimoe": ("phimoe", dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=32, attention_bias=True,
                              lm_head_bias=True, router_jitter_noise=0.2, sliding_window=17,
                              rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, short_mscale=1.25,
                                                   long_mscale=1.25, short_factor=[1.0 + i / 8 for i in range(8)],
                                                   long_factor=[1.0 + i / 8 for i in range(8)],
                                                   original_max_position_embeddings=64))),
    "falcon-2": ("falcon", dict(num_kv_heads=2, alibi=False, bias=False, ffn_hidden_size=128, new_decoder_architecture=True,
                                num_ln_in_parallel_attn=1)),
    "aria-bias": ("aria_text", dict(moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1, intermediate_size=16,
                                    attention_bias=True, mlp_bias=True)),
    "hy-v3-own": ("hy_v3", FEW | dict(num_experts=4, num_shared_experts=1, mlp_layer_types=["dense", "sparse"],
                                      router_scaling_factor=1.5)),
    "granitemoeshared-own": ("granitemoeshared", GRANITE | dict(num_local_experts=4, num_experts_per_tok=2,
                                                                intermediate_size=32, shared_intermediate_size=32)),
    "exaone-moe-own": ("exaone_moe", FEW | dict(num_experts=4, num_shared_experts=1, sliding_window=16,
                                                layer_types=[SLIDING, FULL], mlp_layer_types=["dense", "sparse"])),
    "ernie-moe-own": ("ernie4_5_moe", dict(intermediate_size=64, moe_intermediate_size=32, moe_k=2, moe_num_experts=4,
                                           moe_num_shared_experts=1, moe_layer_start_index=1, moe_layer_end_index=1,
                                           moe_layer_interval=1)),
    "minimax-m2-own": ("minimax_m2", dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=16,
                                          rope_parameters=dict(rope_type="default", rope_theta=5e6,
                                                               partial_rotary_factor=0.5))),
    "qwen2-moe-own": ("qwen2_moe", FEW | dict(num_experts=4, shared_expert_intermediate_size=32)),
}
MODELS = {"emu3_text_model": "Emu3ForCausalLM"}     # classes that AutoModelForCausalLM does not know
SMALL = {"xglm": 0.03, "ctrl": 0.05, "openai-gpt": 0.12, "granite_swa": 0.04}        # of embeddings that are scaled, or of rows that no norm precedes
NOTES = ("transformers_version", "id2label", "label2id", "use_cache", "_name_or_path", "return_dict", "dtype",
         "output_hidden_states", "output_attentions", "chunk_size_feed_forward", "architectures")


def config_of(kind, over):
    cls = CONFIG_MAPPING[kind] if kind in CONFIG_MAPPING else getattr(transformers, "Emu3TextConfig")
    known = set(cls().to_dict())
    renamed = {a for a, b in (getattr(cls, "attribute_map", None) or {}).items() if b in over}
    return cls(**{k: v for k, v in SIZES.items() if k in known and k not in renamed} | over)


def saved(config, own):
    """Return config.json, and the names and shapes of the tensors, as transformers saves them.  own: in its own form, as with
    save_original_format=False, else in that of the class's first models."""
    kinds = getattr(transformers, MODELS.get(config.model_type, ""), None)
    with tempfile.TemporaryDirectory() as tmp:
        model = kinds(config) if kinds else transformers.AutoModelForCausalLM.from_config(config)
        model.save_pretrained(tmp, save_original_format=not own)
        with open(os.path.join(tmp, "model.safetensors"), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        with open(os.path.join(tmp, "config.json"), encoding="utf-8") as f:
            written = json.load(f)

    def plain(o, null=False):       # null in an object says something, as in rope_parameters
        return {k: plain(v, True) if isinstance(v, dict) else v for k, v in o.items()
                if k not in NOTES and (null or v is not None)}
    header.pop("__metadata__", None)
    return plain(written) | {"architectures": written["architectures"]}, {k: v["shape"] for k, v in header.items()}


def spread(kind, name, shape, tied):
    """Return standard deviation and mean of a tensor's values."""
    embeds = any(x in name for x in ("embed", "wte", "transformer.w.", "wpe"))
    if name.endswith("sinks") or name.endswith("softmax_offset"):
        return 1.0, 1.0
    if len(shape) == 1 and name.endswith("weight"):     # a tied head has small rows
        inside = any(x in name for x in (".layers.", ".h.", ".blocks.", "embed"))
        return 0.1, 1.0 if inside or not tied else 5.0
    if len(shape) < 2:
        return 0.2, 0.0
    if "position" in name or embeds and "norm" not in name:
        return (SMALL.get(kind, 0.1) if tied else 1.0), 0.0
    if "head" in name or "embed_out" in name:
        return 4 / math.sqrt(shape[-1]), 0.0
    first = shape[0] if "c_" in name or name.endswith("w2") else shape[-1]     # stored as [inputs, outputs]
    if "w2" in name:
        first = 32
    gain = 1.5 if any(x in name for x in ("q_proj", "k_proj", "qkv", "query", "Wq", "Wk", "c_attn")) else 1.0
    return round(gain / math.sqrt(first), 5), 0.0


def tiny(name, over):
    """Return the model that make_class.py makes of a line of CLASSES, with other values for some keys."""
    kind, usual = CLASSES[name]
    config, shapes = saved(config_of(kind, usual | over), name.endswith("-own"))
    tied = config.get("tie_word_embeddings", False)
    return dict(name=name, config=config, tensors=[[n, s, *spread(kind, n, s, tied)] for n, s in shapes.items()])


@torch.no_grad()
def answer(name, path):
    """Return the prompt, the logits of all its rows, and the greedy tokens behind it with their margins."""
    kind = CLASSES[name][0]
    cls = getattr(transformers, MODELS.get(kind, "AutoModelForCausalLM"))
    # transformers' eager attention adds Falcon's ALiBi twice.
    how = "sdpa" if kind == "falcon" else "eager"
    model, info = cls.from_pretrained(path, dtype=torch.float32, attn_implementation=how, output_loading_info=True)
    assert not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert set(info["missing_keys"]) <= {"lm_head.weight"}, info
    model.eval()
    ids = [(i * 37 + 11 + i * i) % VOCAB for i in range(PROMPT)]
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    greedy, margins, seq = [], [], list(ids)
    for _ in range(NEW):
        top = torch.topk(model(torch.tensor([seq]), use_cache=False).logits[0, -1], 2)
        greedy.append(int(top.indices[0]))
        margins.append(round(float(top.values[0] - top.values[1]), 4))
        seq.append(greedy[-1])
    return ids, logits, greedy, margins


def case(name):
    out = tiny(name, {})
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "model")
        make_class.make(out, path)
        ids, logits, greedy, margins = answer(name, path)
    rows = [[round(float(x), 5) for x in row[::STRIDE]] for row in (logits[CUT - 1], logits[-1])]
    return out | dict(context=CONTEXT, prompt=ids, cut=CUT, stride=STRIDE, logits_cut=rows[0], logits=rows[1],
                      greedy=greedy, margins=margins)


def variant(path, name, values):
    over = {key: json.loads(text) for key, text in (v.split("=", 1) for v in values)}
    make_class.make(tiny(name, over), path)
    ids, logits, greedy, margins = answer(name, path)
    first = [round(float(x), 5) for x in logits[-1][:64]]
    with open(os.path.join(path, "reference.json"), "w", encoding="utf-8") as f:
        json.dump([dict(prompt=ids, ids=greedy, margins=margins, first_logits=first)], f)
    print(path, "margin", min(margins), "tokens", len(set(greedy)))


def main():
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--out"]:
        return variant(sys.argv[2], sys.argv[3], sys.argv[4:])
    names = sys.argv[1:] or list(CLASSES)
    path = os.path.join(HERE, "classes.json")
    cases = {}
    if sys.argv[1:] and os.path.exists(path):       # in their places, the others as they are
        with open(path, encoding="utf-8") as f:
            cases = {c["name"]: c for c in json.load(f)}
    for name in names:
        cases[name] = case(name)
        c = cases[name]
        print(name, c["config"]["architectures"][0], "margin", min(c["margins"]), "spread",
              round(float(np.std(c["logits"])), 2), "tokens", len(set(c["greedy"])), flush=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(cases[n]) for n in CLASSES if n in cases) + "\n]\n")


if __name__ == "__main__":
    main()
