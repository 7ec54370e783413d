#!/usr/bin/env python3
"""train_demo.py - makes models/demo: its texts, tokenizer, weights, INT4 form and checks.

Needs torch, tokenizers, safetensors, and (to verify the result) transformers.
A checkpoint under --work lets a run be stopped and resumed at any time.

    python3 models/train_demo.py --minutes 60
    python3 models/train_demo.py --minutes 90 --resume
    python3 models/train_demo.py --export-only
"""
import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

import demo_awq
import demo_data as data

HERE = Path(__file__).resolve().parent

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 1664,
    "hidden_size": 256,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float16",
    "use_cache": True,
}
GROUP = 32                     # weights per INT4 scale

SEED = 20240607
# Rows of a step: rows of 320 hold packed short documents, longer rows one document each.
SHORT = 320
ROWS = {320: 10, 512: 6, 1024: 3, 1536: 2}
# From this part of the run on: how often each row length comes.
CURRICULUM = [(0.00, {320: 1}),
              (0.20, {320: 7, 512: 3}),
              (0.40, {320: 5, 512: 3, 1024: 2}),
              (0.60, {320: 12, 1024: 4, 1536: 4})]
LR_MATRIX, LR_OTHER = 0.02, 0.004
WARMUP_STEPS = 60
DECAY_FROM = 0.55              # part of the run after which the rates fall to 0
INT4_FROM = 0.80               # part of the run after which the forward pass uses INT4 weights

# ------------------------------------------------------------------ tokenizer

QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
              r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = [data.END, data.IM_START, data.IM_END]


def make_tokenizer():
    """Byte-level BPE, built like Qwen's; the special tokens have the last ids."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=CONFIG["vocab_size"] - len(SPECIAL), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    # The special tokens are cut out: they are added tokens, not merges.
    text = (part for doc in data.corpus(random.Random(SEED), 12000)
            for part in doc.replace(data.IM_START, "\0").replace(data.IM_END, "\0").replace(data.END, "\0").split("\0"))
    t.train_from_iterator(text, trainer)
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIAL])
    return t

# ---------------------------------------------------------------------- model

def rope_table(config, length):
    """cos and sin, [length, head_dim], for halves rotated as Hugging Face does."""
    d = config["head_dim"]
    freq = config["rope_theta"] ** (-torch.arange(0, d, 2).float() / d)
    angle = torch.outer(torch.arange(length).float(), freq)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        h = c["hidden_size"]
        self.q_proj = nn.Linear(h, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(h, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(h, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, h, bias=False)
        self.q_norm = Norm(self.dim, c["rms_norm_eps"])
        self.k_norm = Norm(self.dim, c["rms_norm_eps"])

    def forward(self, x, cos, sin, mask, weight):
        b, t, _ = x.shape
        w = torch.cat([weight(self.q_proj), weight(self.k_proj), weight(self.v_proj)])
        q, k, v = F.linear(x, w).view(b, t, -1, self.dim).split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        q = rotate(self.q_norm(q), cos, sin).to(x.dtype).transpose(1, 2)
        k = rotate(self.k_norm(k), cos, sin).to(x.dtype).transpose(1, 2)
        k, v = (y.repeat_interleave(self.heads // self.kv_heads, dim=1) for y in (k, v.transpose(1, 2)))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return F.linear(y.transpose(1, 2).reshape(b, t, -1), weight(self.o_proj))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, m = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(h, m, bias=False)
        self.up_proj = nn.Linear(h, m, bias=False)
        self.down_proj = nn.Linear(m, h, bias=False)

    def forward(self, x, weight):
        gate, up = F.linear(x, torch.cat([weight(self.gate_proj), weight(self.up_proj)])).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, weight(self.down_proj))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)


class Demo(nn.Module):
    """Qwen3 with tied embeddings; parameters are named as checkpoints name
    them, without the leading "model."."""

    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        cos, sin = rope_table(c, c["max_position_embeddings"])
        self.register_buffer("cos", cos[:, None], persistent=False)
        self.register_buffer("sin", sin[:, None], persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                std = 0.02
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= math.sqrt(2 * c["num_hidden_layers"])
                nn.init.normal_(p, std=std)

    def forward(self, ids, mask, int4, dtype):
        """ids [b, t] to logits [b, t, vocab].  mask: bool [b, 1, t, t], or None
        for causal.  Matrices are multiplied in `dtype`, the rest is FP32."""
        def weight(linear):
            w = linear.weight
            return (demo_awq.fake_quantize(w, GROUP) if int4 else w).to(dtype)
        t = ids.shape[1]
        cos, sin = self.cos[:t], self.sin[:t]
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = x + layer.self_attn(layer.input_layernorm(x).to(dtype), cos, sin, mask, weight)
            x = x + layer.mlp(layer.post_attention_layernorm(x).to(dtype), weight)
        return F.linear(self.norm(x).to(dtype), self.embed_tokens.weight.to(dtype))


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalized (Jordan et al. 2024): for the matrices of the
    layers.  Matrices of one shape are worked on together."""

    def __init__(self, params, lr, momentum=0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @staticmethod
    def orthogonal(g):
        x = g.bfloat16()
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        a, b, c = 3.4445, -4.7750, 2.0315
        for _ in range(5):
            s = x @ x.mT
            x = a * x + (b * s + c * s @ s) @ x
        return x.float()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                shapes.setdefault((min(p.shape), max(p.shape)), []).append(p)
            for params in shapes.values():
                update = []
                for p in params:
                    m = self.state[p].setdefault("m", torch.zeros_like(p))
                    m.lerp_(p.grad, 1 - group["momentum"])
                    u = p.grad.lerp(m, group["momentum"])
                    update.append(u if u.shape[0] <= u.shape[1] else u.T)
                for p, u in zip(params, self.orthogonal(torch.stack(update))):
                    u = u if p.shape[0] <= p.shape[1] else u.T
                    p.add_(u, alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)

# -------------------------------------------------------------------- batches

class Batches:
    """Batch `step` is a function of the seed, the step and the row length."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.lengths = {}
        self.end = tokenizer.token_to_id(data.END)

    def count(self, text):
        """Tokens of a line of text; lines come again and again."""
        n = self.lengths.get(text)
        if n is None:
            n = len(self.tokenizer.encode(text).ids)
            if len(self.lengths) < 200000:
                self.lengths[text] = n
        return n

    def encode(self, docs):
        """Documents to [(ids, weights)]."""
        out = []
        for doc, e in zip(docs, self.tokenizer.encode_batch(["".join(t for t, _ in d) for d in docs])):
            weights, end, at = [], 0, iter(doc)
            w = 0
            for start, _ in e.offsets:
                while start >= end:
                    text, w = next(at)
                    end += len(text)
                weights.append(w)
            out.append((e.ids, weights))
        return out

    def packed(self, rng):
        """Short documents in rows, each seeing only itself."""
        n, length = ROWS[SHORT], SHORT
        docs = []
        while sum(len(ids) for ids, _ in docs) < n * length * 1.05:
            docs += self.encode([data.short_doc(rng, self.count) for _ in range(40)])
        docs = [(ids[:length], w[:length]) for ids, w in docs]
        rows, room = [[] for _ in range(n)], [length] * n
        for ids, w in sorted(docs, key=lambda d: -len(d[0])):
            row = next((r for r in range(n) if room[r] >= len(ids)), None)
            if row is not None:
                rows[row].append((ids, w))
                room[row] -= len(ids)
        ids = torch.full((n, length), self.end)
        weights = torch.zeros(n, length)
        doc = torch.full((n, length), -1)
        for r, row in enumerate(rows):
            at = 0
            for i, (x, w) in enumerate(row):
                ids[r, at:at + len(x)] = torch.tensor(x)
                weights[r, at + 1:at + len(x)] = torch.tensor(w[1:])
                doc[r, at:at + len(x)] = i
                at += len(x)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = (doc[:, None, :] == doc[:, :, None]) & causal
        return ids, weights, mask[:, None]

    def long(self, rng, length):
        """One long document per row."""
        n = ROWS[length]
        ids, weights = torch.full((n, length), self.end), torch.zeros(n, length)
        docs = self.encode([data.long_doc(rng, self.count, length) for _ in range(n)])
        for r, (x, w) in enumerate(docs):
            x, w = x[:length], w[:length]
            ids[r, :len(x)] = torch.tensor(x)
            weights[r, 1:len(x)] = torch.tensor(w[1:])
        return ids, weights, None

    def get(self, step, part):
        rng = random.Random(SEED * 1000003 + step)
        menu = [m for start, m in CURRICULUM if part >= start][-1]
        length = rng.choices(list(menu), list(menu.values()))[0]
        return self.packed(rng) if length == SHORT else self.long(rng, length)

# ------------------------------------------------------------------- training

def answers_right(model, batches, docs, int4, dtype=torch.float32):
    """How many documents' answers greedy decoding gets right.  The answer is
    right exactly when every one of its tokens is the likeliest after the ones
    before it, so one pass over the whole document is enough."""
    right = 0
    with torch.no_grad():
        for ids, weights in batches.encode(docs):
            ids = torch.tensor(ids)
            answer = torch.tensor(weights) == data.W_ANSWER
            top = model(ids[None], None, int4, dtype)[0].argmax(-1)
            right += bool((top[:-1] == ids[1:])[answer[1:]].all())
    return right / len(docs)


def held_out_docs(batches, n, lengths, seed=1):
    """{name: documents}; the lists and codes among them training never sees."""
    rng = random.Random(f"held out {seed}")
    docs = {"sum": [data.sum_doc(rng) for _ in range(n)],
            "sum chat": [data.sum_turn(rng) for _ in range(n)],
            "list": [data.list_doc(rng, True) for _ in range(n)],
            "list chat": [data.list_turn(rng, True) for _ in range(n)]}
    for length in lengths:
        docs[f"code {length}"] = [data.code_doc(rng, batches.count, length, held_out=True) for _ in range(n)]
    return docs


def story_loss(model, batches, int4, n=48, dtype=torch.float32):
    """Nats per token of stories of a seed of their own."""
    rng, total, tokens = random.Random("held out stories"), 0.0, 0
    with torch.no_grad():
        for ids, _ in batches.encode([data.story(rng) for _ in range(n)]):
            ids = torch.tensor(ids)
            logits = model(ids[None, :-1], None, int4, dtype)[0].float()
            total += F.cross_entropy(logits, ids[1:], reduction="sum").item()
            tokens += len(ids) - 1
    return total / tokens


def sample(model, tokenizer, prompt, int4, n=120):
    """A greedy continuation, for the progress report."""
    ids = tokenizer.encode(prompt).ids
    stop = {tokenizer.token_to_id(data.END), tokenizer.token_to_id(data.IM_END)}
    start = len(ids)
    with torch.no_grad():
        while len(ids) < start + n and ids[-1] not in stop:
            ids.append(model(torch.tensor([ids]), None, int4, torch.bfloat16)[0, -1].argmax().item())
    return tokenizer.decode(ids[start:], skip_special_tokens=False)


def load_tokenizer(work, fresh):
    """The run's tokenizer; made first if the run begins."""
    from tokenizers import Tokenizer
    path = work / "tokenizer.json"
    if fresh:
        make_tokenizer().save(str(path))
    return Tokenizer.from_file(str(path))


def train(args, tokenizer):
    torch.manual_seed(SEED)
    torch.set_num_threads(args.threads)
    batches = Batches(tokenizer)
    model = Demo(CONFIG)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim == 1 or "embed" in n]
    optimizers = [Muon(matrices, lr=LR_MATRIX),
                  torch.optim.AdamW(others, lr=LR_OTHER, betas=(0.9, 0.95), weight_decay=0.0)]
    step, elapsed, path = 0, 0.0, args.work / "checkpoint.pt"
    if args.resume:
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        for o, s in zip(optimizers, saved["optimizers"]):
            o.load_state_dict(s)
        step, elapsed = saved["step"], saved["elapsed"]
    print(f"parameters={sum(p.numel() for p in model.parameters())} step={step} elapsed_s={elapsed:.0f}", flush=True)

    def save():
        torch.save({"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers],
                    "step": step, "elapsed": elapsed}, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)

    last_save, shown, losses = elapsed, step, []
    while True:
        part = max(step / args.steps, elapsed / (60 * args.minutes) if args.minutes else 0)
        if part >= 1:
            break
        began = time.monotonic()
        int4 = part >= INT4_FROM
        rate = min(1, (step + 1) / WARMUP_STEPS, (1 - part) / (1 - DECAY_FROM))
        for o, lr in zip(optimizers, (LR_MATRIX, LR_OTHER)):
            for g in o.param_groups:
                g["lr"] = lr * rate
        ids, weights, mask = batches.get(step, part)
        logits = model(ids, mask, int4, torch.bfloat16)
        w = weights[:, 1:].reshape(-1)
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]).float(), ids[:, 1:].reshape(-1), reduction="none")
        total = (loss * w).sum() / w.sum()
        total.backward()
        for o in optimizers:
            o.step()
            o.zero_grad()
        step += 1
        elapsed += time.monotonic() - began
        losses.append([loss.detach()[(w >= low) & (w <= high)].mean().item()
                       for low, high in ((data.W_TEXT / 2, data.W_TEXT), (data.W_ANSWER, data.W_ANSWER))])
        if step - shown >= args.report:
            text, answer = (torch.tensor(x).nanmean() for x in zip(*losses[-args.report:]))
            print(f"step={step} part={part:.3f} elapsed_s={elapsed:.0f} story_loss={text:.3f} answer_loss={answer:.4f} "
                  f"int4={int(int4)} s_per_step={time.monotonic() - began:.2f}", flush=True)
            shown = step
        if step % (args.report * 8) == 0:
            docs = held_out_docs(batches, 16, [l for l in (0, 100, 400, 900, 1400) if l <= 300 + 1600 * part])
            print("  right: " + " ".join(f"{k.replace(' ', '_')}={answers_right(model, batches, d, int4, torch.bfloat16):.2f}"
                                         for k, d in docs.items()))
            print("  " + json.dumps(sample(model, tokenizer, "Once upon a time", int4)), flush=True)
        if elapsed - last_save > 120:
            save()
            last_save = elapsed
    save()
    return model


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=HERE / "demo", help="where the model goes (default: models/demo)")
    p.add_argument("--work", type=Path, default=HERE.parent / "build" / "demo-train",
                   help="tokenizer and checkpoint of the run (default: build/demo-train)")
    p.add_argument("--steps", type=int, default=6000, help="steps of the whole run (default: 6000)")
    p.add_argument("--minutes", type=float, default=0, help="end the run, rates decayed, after this time; 0: steps alone count")
    p.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    p.add_argument("--export-only", action="store_true", help="no training: quantize and write the checkpoint as it is")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--report", type=int, default=20, help="steps between progress lines")
    args = p.parse_args()
    if (args.resume or args.export_only) and not (args.work / "checkpoint.pt").exists():
        p.error(f"no checkpoint in {args.work}")
    args.work.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(args.work, not (args.resume or args.export_only))
    if args.export_only:
        model = Demo(CONFIG)
        model.load_state_dict(torch.load(args.work / "checkpoint.pt")["model"])
    else:
        model = train(args, tokenizer)
    import demo_export
    demo_export.export(model, tokenizer, args.out)


if __name__ == "__main__":
    main()
