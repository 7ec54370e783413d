#!/usr/bin/env python3
"""config_mutants.py - what quern does with config.json files that were changed by hand.

    config_mutants.py make OUT N SEED MODELS...    # MODELS: directories of tiny models with reference.json
    config_mutants.py run OUT                      # needs the built programs (QUERN_BUILD)
    config_mutants.py check OUT [-v]               # needs torch and transformers (5.24)

`make` takes a model and deletes, renames or changes one key of its config.json.  `run` starts quern with each such
model: quern refuses it with a message, or gives greedy tokens for two prompts.  `check` computes the logits of these
tokens with transformers, in one pass for each prompt: each token must have the largest logit, up to a margin of 0.002.
Where transformers itself fails, or invents weights that the files lack, tokens are not compared; such models are
counted.  A run that was stopped goes on where it was.
"""
import json
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

N_PROMPTS, NEW_TOKENS, MARGIN = 2, 24, 0.002


def change(config, rng):
    """Change one key of config.json, or of an object in it.  Returns what was done, or None."""
    objects = [config] + [v for v in config.values() if isinstance(v, dict)]
    at = rng.choice(objects)
    if not at:
        return None
    key = rng.choice(sorted(at))
    if key in ("architectures", "model_type", "dtype", "torch_dtype", "transformers_version"):
        return None
    value, how = at[key], rng.choice(["delete", "rename", "change", "change", "change"])
    if how == "delete":
        del at[key]
        return f"delete {key}"
    if how == "rename":
        at[key + "_x"] = at.pop(key)
        return f"rename {key}"
    if isinstance(value, bool):
        new = not value
    elif isinstance(value, int):
        new = rng.choice([value + 1, value - 1, value * 2, value // 2, 0])
    elif isinstance(value, float):
        new = rng.choice([value * 2, value / 2, value * 0.9, 0.0])
    elif isinstance(value, list) and value:
        new = rng.choice([value[1:] + value[:1], value[:-1], value + value[-1:]])
    elif isinstance(value, str):
        new = rng.choice(["silu", "gelu", "relu", "default", "full_attention", value + "x"])
    else:
        new = rng.choice([1, 16, True])
    if new == value:
        return None
    at[key] = new
    return f"{key}: {json.dumps(value)[:40]} -> {json.dumps(new)[:40]}"


def make(out, n, seed, models):
    rng, made, models = random.Random(seed), 0, sorted(models, key=lambda m: Path(m).name)
    while made < n:
        source = Path(rng.choice(models))
        config = json.loads((source / "config.json").read_text())
        done = change(config, rng)
        if not done:
            continue
        folder = Path(out) / f"{made:04}-{source.name}"
        folder.mkdir(parents=True)
        for f in source.iterdir():
            if f.name not in ("config.json", "reference.json"):
                (folder / f.name).symlink_to(f.resolve())
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        prompts = [c["prompt"] for c in json.loads((source / "reference.json").read_text())][:N_PROMPTS]
        (folder / "mutant.json").write_text(json.dumps({"change": done, "prompts": prompts}))
        made += 1


# ---- quern ----

def answer(folder, prompts):
    """Return quern's verdict on a model: {"ids": tokens of each prompt}, or {"refused" or "CRASHED": message}."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
    from service import BIN, served
    shown = subprocess.run([BIN / "quern", "inspect", folder, "--json", "--no-probe"], capture_output=True, text=True)
    if shown.returncode:
        refused = shown.returncode == 1 and shown.stderr.strip()
        return {"refused" if refused else "CRASHED": shown.stderr.strip()}
    try:
        for service in served(folder, ("--compute", "f32", "--kv-cache-dtype", "f32", "--kv-bytes", "64M", "--threads", "1")):
            with service.client() as client:
                jobs = [client.submit(None, tokens=p, max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True) for p in prompts]
                return {"ids": [job.done().tokens for job in jobs]}
    except AssertionError as e:
        text = str(e)
        return {"refused" if re.search(r"ended with 1\b", text) else "CRASHED": text[-600:]}


def run(out):
    for folder in sorted(Path(out).iterdir()):
        to = folder / "quern.json"
        if not to.exists():
            to.write_text(json.dumps(answer(folder, json.loads((folder / "mutant.json").read_text())["prompts"])))


# ---- transformers ----

def load(folder):
    """Return transformers' model, or why there is none to compare with."""
    import torch
    import transformers
    config = json.loads((folder / "config.json").read_text())
    auto = transformers.AutoModelForImageTextToText if "vision_config" in config else transformers.AutoModelForCausalLM
    if config.get("model_type") == "emu3_text_model":     # not among them
        auto = transformers.Emu3ForCausalLM
    # transformers' eager attention adds Falcon's ALiBi twice.
    how = "sdpa" if config.get("model_type") == "falcon" else "eager"
    model, info = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation=how, output_loading_info=True)
    if info["missing_keys"] or info.get("mismatched_keys"):
        return f"it invents {sorted(info['missing_keys'])[:2] or 'weights of another shape'}"
    return model.eval()


def compare(model, prompt, ids):
    """Return "" if each token has the largest logit after those before it, else the first that has not."""
    import torch
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids[:-1]]), use_cache=False).logits[0, len(prompt) - 1:].float()
    best = logits.max(-1)
    for i, token in enumerate(ids):
        behind = float(best.values[i] - logits[i, token])
        if not behind < MARGIN:
            return f"token {i} is {token}, not {int(best.indices[i])} (margin {behind:.3f})"
    return ""


def judge(folder):
    """Return the verdict on one model, and its reason."""
    if not (folder / "quern.json").exists():
        return "not run", ""
    got = json.loads((folder / "quern.json").read_text())
    if "ids" not in got:
        return next(iter(got.items()))
    try:
        model = load(folder)
        if isinstance(model, str):
            return "loaded, without a reference", model
        for prompt, ids in zip(json.loads((folder / "mutant.json").read_text())["prompts"], got["ids"]):
            other = compare(model, prompt, ids)
            if other:
                return "OTHER TOKENS", other
    except Exception as e:      # any of transformers' own errors
        return "loaded, without a reference", f"{type(e).__name__}: {str(e)[:200]}"
    return "same tokens", ""


def check(out):
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    counts, bad = Counter(), 0
    for folder in sorted(Path(out).iterdir()):
        verdict, reason = judge(folder)
        counts[verdict] += 1
        bad += verdict in ("CRASHED", "OTHER TOKENS")
        if verdict in ("CRASHED", "OTHER TOKENS") or "-v" in sys.argv:
            done = json.loads((folder / "mutant.json").read_text())["change"]
            print(f"{folder.name}: {done}: {verdict}: {reason}", flush=True)
    print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))
    return bad


if __name__ == "__main__":
    if len(sys.argv) > 5 and sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
    elif len(sys.argv) > 2 and sys.argv[1] == "run":
        run(sys.argv[2])
    elif len(sys.argv) > 2 and sys.argv[1] == "check":
        sys.exit(1 if check(sys.argv[2]) else 0)
    else:
        sys.exit(__doc__)
