#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/gguf_*.gguf: vocabularies of tests/golden/tokenizer in GGUF, without tensors, written
by the package gguf (made by 0.19), for tests that compare their ids with those of the file they come from.
    python3 tests/golden/make_gguf_vocab_golden.py"""
import json
from pathlib import Path

import gguf
from sentencepiece import sentencepiece_model_pb2 as pb

OUT = Path(__file__).resolve().parent / "tokenizer"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def write(name, model, pre, tokens, types, scores=None, merges=None, **more):
    w = gguf.GGUFWriter(OUT / f"gguf_{name}.gguf", "llama")
    w.add_tokenizer_model(model)
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    if scores is not None:
        w.add_token_scores(scores)
    if merges is not None:
        w.add_token_merges(merges)
    for key, value in more.items():
        getattr(w, key)(value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def from_json(name, source, pre, **more):
    spec = json.loads((OUT / source / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = {i: (t, NORMAL) for t, i in spec["model"]["vocab"].items()}
    for a in spec["added_tokens"]:
        vocab[a["id"]] = (a["content"], CONTROL if a["special"] else USER)
    rows = [vocab.get(i, (f"[PAD{i}]", UNUSED)) for i in range(max(vocab) + 3)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    write(name, "gpt2", pre, [t for t, _ in rows], [k for _, k in rows], merges=merges, **more)


def from_model(name, source, model):
    m = pb.ModelProto()
    m.ParseFromString((OUT / source / "tokenizer.model").read_bytes())
    # U+2581 of user-defined pieces is written as the space that it stands for, as converters do.
    text = [p.piece.replace("\u2581", " ") if p.type == p.USER_DEFINED else p.piece for p in m.pieces]
    more = {"add_add_space_prefix": m.normalizer_spec.add_dummy_prefix, "add_unk_token_id": 0}
    if model == "t5":
        more["add_remove_extra_whitespaces"] = m.normalizer_spec.remove_extra_whitespaces
        if m.normalizer_spec.precompiled_charsmap:
            more["add_precompiled_charsmap"] = m.normalizer_spec.precompiled_charsmap
        more |= {"add_bos_token_id": 1, "add_eos_token_id": 2, "add_add_eos_token": False, "add_add_bos_token": True}
    write(name, model, "default", text, [p.type for p in m.pieces], [p.score for p in m.pieces], **more)


def main():
    from_json("llama3", "llama3", "llama-bpe", add_bos_token_id=400, add_eos_token_id=401, add_add_eos_token=True,
              add_chat_template="{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}"
                                "{% endfor %}")
    from_model("spm", "spm_bpe", "llama")
    from_model("unigram", "spm_unigram_bytes", "t5")


if __name__ == "__main__":
    main()
