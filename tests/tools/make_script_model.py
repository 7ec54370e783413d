#!/usr/bin/env python3
"""make_script_model.py - make a model that generates a given text greedily.

    make_script_model.py OUT --say TEXT [--template FILE]

It has the demo's tokenizer with one more token per piece of the text, and weights that are a table
of successors: a layer that adds nothing, embeddings that are nearly orthogonal, and an lm_head in which
the row of a token is the embedding of the token before it.  After "<|im_start|>assistant\\n" comes the
text, then <|im_end|>.  For tests of the parsers of a model's output: tool calls, reasoning.
"""
import argparse
import json
import os
import struct
from pathlib import Path

import numpy as np

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
HIDDEN = 256


def pieces_of(text, taken):
    """Split the text into pieces of a few characters, each unique and not in the vocabulary."""
    pieces, at = [], 0
    while at < len(text):
        n = 3
        while at + n < len(text) and text[at:at + n] in taken:
            n += 1
        piece = text[at:at + n]
        if piece in taken:      # at the end: extend to the left
            piece = pieces.pop() + piece
        taken.add(piece)
        pieces.append(piece)
        at += n
    return pieces


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for t in tensors.values():
            f.write(t.tobytes())


def make(out, says, template=None):
    """says: a text, or {id of the preceding token: text}."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((DEMO / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    end = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == "<|im_end|>")
    next_id = max(t["id"] for t in tokenizer["added_tokens"]) + 1
    if isinstance(says, str):
        says = {vocab["\u010a"]: says}     # a newline
    letters = byte_letters()
    back = {c: b for b, c in letters.items()}
    taken = {bytes(back[c] for c in word).decode(errors="replace") for word in vocab}
    chains = []
    for trigger, text in says.items():
        ids = []
        for piece in pieces_of(text, taken):
            # In the vocabulary but not in a merge: no text is encoded to it.
            vocab["".join(letters[b] for b in piece.encode())] = next_id
            ids.append(next_id)
            next_id += 1
        chains.append((trigger, ids))
    n_vocab = -(-next_id // 64) * 64
    rng = np.random.default_rng(7)
    embed = rng.standard_normal((n_vocab, HIDDEN)).astype(np.float32)
    head = np.zeros((n_vocab, HIDDEN), np.float32)
    for trigger, ids in chains:
        before = trigger
        for id in ids:
            head[id] = embed[before]
            before = id
        head[end] += embed[before]
    kv = 64
    layer = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (kv, HIDDEN), "self_attn.v_proj": (kv, HIDDEN),
             "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (64, HIDDEN), "mlp.up_proj": (64, HIDDEN),
             "mlp.down_proj": (HIDDEN, 64)}
    tensors = {"model.embed_tokens.weight": embed, "lm_head.weight": head,
               "model.norm.weight": np.ones(HIDDEN, np.float32)}
    for name, shape in layer.items():
        tensors[f"model.layers.0.{name}.weight"] = np.zeros(shape, np.float32)
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"model.layers.0.{name}.weight"] = np.ones(HIDDEN, np.float32)
    write_safetensors(out / "model.safetensors", tensors)
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=n_vocab, hidden_size=HIDDEN,
                  num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1, head_dim=64,
                  intermediate_size=64, max_position_embeddings=2048, rms_norm_eps=1e-6, rope_theta=10000.0,
                  hidden_act="silu", tie_word_embeddings=False, torch_dtype="float32", bos_token_id=None,
                  eos_token_id=end)
    (out / "config.json").write_text(json.dumps(config))
    (out / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = json.loads((DEMO / "tokenizer_config.json").read_text())
    if template is not None:
        settings["chat_template"] = template
    (out / "tokenizer_config.json").write_text(json.dumps(settings))
    return out


def byte_letters():
    """GPT-2's alphabet: a printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {b: chr(b) for b in plain}, 256
    for b in range(256):
        if b not in letters:
            letters[b] = chr(more)
            more += 1
    return letters


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("out")
    a.add_argument("--say", required=True)
    a.add_argument("--template")
    o = a.parse_args()
    make(o.out, o.say, Path(o.template).read_text() if o.template else None)


if __name__ == "__main__":
    main()
