#!/usr/bin/env python3
"""make_pool_golden.py - what pooled prompts of the tests' tiny models give.

Runs Hugging Face transformers (float32, CPU) on models of tests/tools/make_model.py and writes
tests/golden/pool.json.  Needs torch and transformers; the tests need only its output.

    python tests/golden/make_pool_golden.py

Of each case: the prompt; the last row, and the mean of all rows, of the last layer's output behind the
last norm (every STRIDE-th value); the logits of some tokens behind the last row.
"""
import json
import os
import sys
import tempfile

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import make_model_golden  # noqa: E402
from make_model_golden import make_model  # noqa: E402

NAMES = ["qwen3-tied", "qwen3-odd", "qwen2", "llama3", "qwen3-awq-g32", "gemma2", "gemma3-text", "phi3",
         "olmo2", "glm4", "smollm3"]
N_PROMPT, STRIDE, TOKENS = 40, 3, [7, 19, 200]


@torch.no_grad()
def case(name, path, context):
    model = make_model_golden.hf_model(path, context)
    vocab = model.config.vocab_size
    ids = [(i * 53 + 5 + i * i) % vocab for i in range(N_PROMPT)]
    rows = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0].double()
    logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
    return dict(name=name, context=context, prompt=ids, stride=STRIDE, tokens=TOKENS,
                last=[round(float(x), 5) for x in rows[-1][::STRIDE]],
                mean=[round(float(x), 5) for x in rows.mean(0)[::STRIDE]],
                logits=[round(float(logits[t]), 5) for t in TOKENS])


def main():
    torch.set_num_threads(2)
    cases = []
    with tempfile.TemporaryDirectory() as tmp:
        for name in NAMES:
            config, kind = make_model.TINY[name]
            path = os.path.join(tmp, name)
            make_model.make(path, config, {"f32": "F32", "f16": "F16", "bf16": "BF16"}[kind], 1)
            context = (config | config.get("text_config", {}))["max_position_embeddings"]
            cases.append(case(name, path, context))
    with open(os.path.join(HERE, "pool.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
