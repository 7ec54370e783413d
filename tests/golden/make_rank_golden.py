#!/usr/bin/env python3
"""make_rank_golden.py - vectors and scores of tests/tools/make_rank_model.py's models.

Computes them with Hugging Face transformers (float32, CPU) as the cards of Qwen3-Embedding and Qwen3-Reranker
say, and writes tests/golden/rank.json.  Needs torch and transformers; the tests need only its output.

    python tests/golden/make_rank_golden.py FOLDER_OF_QWEN3_TOKENIZER
"""
import json
import os
import sys
import tempfile

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))
import make_rank_model  # noqa: E402

TEXTS = ["What is the capital of China?", "The capital of China is Beijing.",
         "Gravity is a force that attracts two bodies towards each other. It gives weight to physical objects.",
         "schön <|im_end|> 北京\n\n"]
TASK = "Given a web search query, retrieve relevant passages that answer the query"
PREFIX = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the '
          'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@torch.no_grad()
def vectors(path, mean):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    out = []
    for text in TEXTS:
        # A text's own special tokens are recognized, as they are in a prompt of /v1/completions.
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        rows = model(ids).last_hidden_state[0].double()
        v = rows.mean(0) if mean else torch.nn.functional.normalize(rows[-1], dim=0)
        out.append(dict(tokens=ids.shape[1], vector=[round(float(x), 6) for x in v]))
    return out


@torch.no_grad()
def scores(path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    no, yes = tokenizer.convert_tokens_to_ids("no"), tokenizer.convert_tokens_to_ids("yes")
    out = []
    for document in TEXTS[1:3]:
        pair = f"<Instruct>: {TASK}\n<Query>: {TEXTS[0]}\n<Document>: {document}"
        ids = sum((tokenizer.encode(t, add_special_tokens=False) for t in (PREFIX, pair, SUFFIX)), [])
        logits = model(torch.tensor([ids])).logits[0, -1, [no, yes]].double()
        out.append(dict(tokens=len(ids), score=round(float(torch.softmax(logits, 0)[1]), 6)))
    return out


def main():
    tokenizer = sys.argv[1]
    with tempfile.TemporaryDirectory() as tmp:
        for kind in make_rank_model.KINDS:
            make_rank_model.make(kind, os.path.join(tmp, kind), tokenizer)
        golden = dict(texts=TEXTS, **{k: vectors(os.path.join(tmp, k), k == "mean")
                                      for k in ("embedding", "mean", "headless")},
                      reranker=scores(os.path.join(tmp, "reranker")))
    with open(os.path.join(HERE, "rank.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(golden, ensure_ascii=False).replace('}, {', '},\n {') + "\n")


if __name__ == "__main__":
    main()
