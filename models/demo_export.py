"""demo_export.py - writes the trained model in Hugging Face layout, verifies
it with transformers, and makes checks.json from it."""
import json
import random

import torch
from safetensors.torch import load_file, save_file

import demo_awq
import demo_data as data
import train_demo as demo

CHAT_TEMPLATE = (
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n")

PER_KIND = 20                  # checks of each kind
MARGIN = 0.5                   # what the likeliest token must lead by, in a check
# Approximate lengths, in tokens, of the texts that hold the codes.
CODE_LENGTHS = (0, 0, 60, 120, 200, 300, 400, 500, 600, 700, 800, 900, 1000,
                1100, 1150, 1200, 1300, 1400, 1500, 1550)
STORY_TOKENS = 60

# ------------------------------------------------------------ the model's files

def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def checkpoint(model):
    out = {}
    for name, p in model.state_dict().items():
        name = "model." + name
        if p.ndim == 2 and "embed_tokens" not in name:
            out.update(demo_awq.tensors_of(name.removesuffix(".weight"), p, demo.GROUP))
        else:
            out[name] = p.half().contiguous()
    return out


def write_files(model, tokenizer, out):
    out.mkdir(parents=True, exist_ok=True)
    end, im_start, im_end = (tokenizer.token_to_id(s) for s in demo.SPECIAL)
    save_file(checkpoint(model), str(out / "model.safetensors"), metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    write_json(out / "config.json", demo.CONFIG | {
        "bos_token_id": None, "eos_token_id": im_end, "pad_token_id": end,
        "quantization_config": {"bits": 4, "group_size": demo.GROUP, "modules_to_not_convert": None,
                                "quant_method": "awq", "version": "gemm", "zero_point": True}})
    write_json(out / "generation_config.json", {
        "do_sample": True, "eos_token_id": [im_end, end], "pad_token_id": end,
        "temperature": 0.7, "top_k": 40, "top_p": 0.9})
    tokenizer.save(str(out / "tokenizer.json"))
    added = {str(i): {"content": s, "lstrip": False, "normalized": False, "rstrip": False,
                      "single_word": False, "special": True}
             for i, s in zip((end, im_start, im_end), demo.SPECIAL)}
    write_json(out / "tokenizer_config.json", {
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": added,
        "additional_special_tokens": [data.IM_START, data.IM_END], "bos_token": None,
        "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False,
        "eos_token": data.IM_END, "errors": "replace",
        "model_max_length": demo.CONFIG["max_position_embeddings"], "pad_token": data.END,
        "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None})

# ----------------------------------------------------- reading the model back

def load_reference(out):
    """The written checkpoint, dequantized, in transformers' Qwen3, float32."""
    from transformers import Qwen3Config, Qwen3ForCausalLM
    config = json.loads((out / "config.json").read_text())
    group = config.pop("quantization_config")["group_size"]
    tensors = demo_awq.dequantize_checkpoint(load_file(str(out / "model.safetensors")), group)
    model = Qwen3ForCausalLM(Qwen3Config(**{k: v for k, v in config.items() if k != "torch_dtype"})).float().eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


def greedy(model, ids, n, stop):
    """At most n greedy tokens after ids, up to and including a stop token, and
    the smallest lead of a chosen token over the second (in logits)."""
    out, margin, past, x = [], float("inf"), None, torch.tensor([ids])
    with torch.no_grad():
        while len(out) < n:
            r = model(x, past_key_values=past, use_cache=True, logits_to_keep=1)
            past = r.past_key_values
            top = r.logits[0, -1].topk(2)
            margin = min(margin, (top.values[0] - top.values[1]).item())
            out.append(top.indices[0].item())
            if out[-1] in stop:
                break
            x = torch.tensor([[out[-1]]])
    return out, margin

# --------------------------------------------------------------------- checks

def prompt_and_answer(doc):
    """A document's given part and its answer, without the end token."""
    given = "".join(t for t, w in doc if w != data.W_ANSWER)
    answer = "".join(t for t, w in doc if w == data.W_ANSWER)
    return given, answer.replace(data.END, "")


def make_checks(model, tokenizer):
    """PER_KIND prompts of each kind, among those that the model answers rightly
    and clearly (lists and codes are ones that training never saw); and how many
    of those tried were answered rightly."""
    batches = demo.Batches(tokenizer)
    rng = random.Random("checks")
    stop = {tokenizer.token_to_id(data.END), tokenizer.token_to_id(data.IM_END)}

    def candidate(kind, kept):
        if kind == "sum":
            return data.sum_doc(rng)
        if kind == "list":
            return data.list_doc(rng, held_out=True)
        return data.code_doc(rng, batches.count, CODE_LENGTHS[kept], rng.randint(2, 4), held_out=True)

    checks, rates = [], {}
    for kind in ("sum", "list", "code"):
        kept = tried = right = 0
        while kept < PER_KIND and tried < 10 * PER_KIND:
            prompt, answer = prompt_and_answer(candidate(kind, kept))
            if any(c["prompt"] == prompt for c in checks):
                continue
            ids = tokenizer.encode(prompt).ids
            got, margin = greedy(model, ids, 64, stop)
            good = tokenizer.decode(got, skip_special_tokens=True) == answer and got[-1] in stop
            tried, right = tried + 1, right + good
            if good and margin >= MARGIN:
                checks.append({"kind": kind, "prompt": prompt, "prompt_tokens": len(ids), "expect": answer,
                               "tokens": got, "min_margin": round(margin, 3)})
                kept += 1
        rates[kind] = f"{right}/{tried}"
    return checks, rates


CHATS = ["What is 4 + 3?", "12 + 10 =", "Repeat: snow, king, egg, road.",
         "The code of the green door is 581.\nThe code of the black safe is 406.\n"
         "What is the code of the green door?",
         "Hello!", "What does a cow say?", "What is your name?"]


def make_chats(model, tokenizer):
    stop = {tokenizer.token_to_id(data.END), tokenizer.token_to_id(data.IM_END)}
    chats = []
    for ask in CHATS:
        prompt = f"{data.IM_START}user\n{ask}{data.IM_END}\n{data.IM_START}assistant\n"
        ids = tokenizer.encode(prompt).ids
        got, margin = greedy(model, ids, 64, stop)
        chats.append({"messages": [{"role": "user", "content": ask}], "prompt_ids": ids,
                      "expect": tokenizer.decode(got, skip_special_tokens=True), "tokens": got,
                      "min_margin": round(margin, 3)})
    return chats


def make_stories(model, tokenizer, n=5, tried=100):
    """Greedy continuations of story beginnings; those with the largest margins."""
    rng = random.Random("story checks")
    stop = {tokenizer.token_to_id(data.END), tokenizer.token_to_id(data.IM_END)}
    found = []
    for i in range(tried):
        words = "\n".join(data.story_lines(rng)[:2]).split(" ")
        prompt = " ".join(words[:rng.randint(6, 40)]).rstrip(".,!?\"\n") if i else "Once upon a time"
        ids = tokenizer.encode(prompt).ids
        got, margin = greedy(model, ids, STORY_TOKENS, stop)
        found.append({"prompt": prompt, "prompt_ids": ids, "max_tokens": STORY_TOKENS,
                      "expect": tokenizer.decode(got, skip_special_tokens=True),
                      "tokens": got, "min_margin": round(margin, 4)})
    first, rest = found[0], sorted(found[1:], key=lambda s: -s["min_margin"])
    return [first] + [s for s in rest if len(s["tokens"]) == STORY_TOKENS][:n - 1]


def export(model, tokenizer, out):
    """Write everything to `out` and print how good it is."""
    model.eval()
    write_files(model, tokenizer, out)
    reference = load_reference(out)
    batches = demo.Batches(tokenizer)

    probe = torch.tensor([tokenizer.encode("\n".join(data.story_lines(random.Random("probe")))).ids])
    with torch.no_grad():
        ours, theirs = model(probe, None, True, torch.float32), reference(probe).logits
    print(f"export: largest difference to transformers {(ours - theirs).abs().max():.2e} "
          f"(logits to {theirs.abs().max():.1f})", flush=True)
    for int4 in (False, True):
        print(f"export: {'int4' if int4 else 'float'} story_loss={demo.story_loss(model, batches, int4):.4f}", flush=True)
        kinds = demo.held_out_docs(batches, 100, (0, 100, 300, 600, 1000, 1400), seed=2)
        kinds["sum"] = [data.sum_doc(None, (a, b)) for a in range(data.SUM_MAX + 1) for b in range(data.SUM_MAX + 1)]
        for kind, docs in kinds.items():
            print(f"export:   {kind}: {demo.answers_right(model, batches, docs, int4):.3f} of {len(docs)}", flush=True)

    checks, rates = make_checks(reference, tokenizer)
    stories, chats = make_stories(reference, tokenizer), make_chats(reference, tokenizer)
    write_json(out / "checks.json", {
        "about": "Greedy completions of this model in float32 (transformers, INT4 weights dequantized). "
                 "tokens ends with the end token; expect is the text without it. "
                 "min_margin: smallest lead of a chosen token's logit over the second.",
        "checks": checks, "chats": chats, "stories": stories})
    print(f"export: checks {rates}, kept {len(checks)}; story margins {[s['min_margin'] for s in stories]}")
    for c in chats:
        print("export: chat", json.dumps([c["messages"][0]["content"][-60:], c["expect"], c["min_margin"]]))
    size = sum(f.stat().st_size for f in out.iterdir())
    print(f"export: {size} bytes in {out}", flush=True)
