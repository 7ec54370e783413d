#!/usr/bin/env python3
"""make_rank_model.py - tiny models of random weights with the layout of Qwen3-Embedding and Qwen3-Reranker.

    make_rank_model.py KIND OUT TOKENIZER

KIND: embedding, mean (pooled by the mean, not normalized), headless (untied, without a head), reranker.
TOKENIZER: the folder of Qwen3's tokenizer.json[.gz].  OUT appears when it is complete.
"""
import gzip
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_model  # noqa: E402

KINDS = ("embedding", "mean", "headless", "reranker")


def read(path):
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            return f.read()
    with gzip.open(path + ".gz", "rt", encoding="utf-8") as f:
        return f.read()


def write(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False)


def add_eos(tokenizer):
    """Add <|endoftext|> after every text, as Qwen3-Embedding does."""
    eos, seq = "<|endoftext|>", {"Sequence": {"id": "A", "type_id": 0}}
    number = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == eos)
    tokenizer["post_processor"] = {"type": "Sequence", "processors": [tokenizer["post_processor"], {
        "type": "TemplateProcessing", "single": [seq, {"SpecialToken": {"id": eos, "type_id": 0}}],
        "pair": [seq, {"SpecialToken": {"id": eos, "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
                 {"SpecialToken": {"id": eos, "type_id": 1}}],
        "special_tokens": {eos: {"id": eos, "ids": [number], "tokens": [eos]}}}]}


def write_pooling(out, kind):
    module = "sentence_transformers.models."
    modules = [dict(idx=0, name="0", path="", type=module + "Transformer"),
               dict(idx=1, name="1", path="1_Pooling", type=module + "Pooling"),
               dict(idx=2, name="2", path="2_Normalize", type=module + "Normalize")]
    write(os.path.join(out, "modules.json"), modules[:2] if kind == "mean" else modules)
    write(os.path.join(out, "1_Pooling", "config.json"), dict(
        word_embedding_dimension=64, pooling_mode_cls_token=False, pooling_mode_mean_tokens=kind == "mean",
        pooling_mode_max_tokens=False, pooling_mode_lasttoken=kind != "mean", include_prompt=True))


def drop_head(out):
    """Save the checkpoint of the decoder alone: names without "model.", no lm_head."""
    path = os.path.join(out, "model.safetensors")
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header, data = json.loads(f.read(n)), f.read()
    kept, at = {}, b""
    for name, t in header.items():
        if name in ("__metadata__", "lm_head.weight"):
            continue
        a, b = t["data_offsets"]
        kept[name.removeprefix("model.")] = dict(t, data_offsets=[len(at), len(at) + b - a])
        at += data[a:b]
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + at)


def make(kind, out, tokenizer):
    part = f"{out}.part{os.getpid()}"
    config = make_model.qwen3(64, 96, 2, 4, 2, 151936, 512, head_dim=16, tie_word_embeddings=kind != "headless")
    with tempfile.TemporaryDirectory() as tmp:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            value = json.loads(read(os.path.join(tokenizer, name)))
            if name == "tokenizer.json" and kind != "reranker":
                add_eos(value)
            write(os.path.join(tmp, name), value)
        make_model.make(part, config, "F32", 1, tmp)
    if kind != "reranker":
        write_pooling(part, kind)
    if kind == "headless":
        drop_head(part)
    shutil.rmtree(out, ignore_errors=True)
    os.rename(part, out)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    make(*sys.argv[1:])
