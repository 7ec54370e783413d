#!/usr/bin/env python3
"""config_mutants.py - what quern does with config.json files that were changed by hand.

    config_mutants.py make OUT N SEED MODELS...    # needs torch and transformers; MODELS: directories of tiny models
    config_mutants.py check OUT                    # needs the built programs (QUERN_BUILD)

`make` takes a model, deletes, renames or changes one key of its config.json, and lets transformers compute greedy tokens
for the same prompts with it.  `check` starts quern with each: it must give these tokens, up to a margin of 0.002 between
the two best logits, or refuse the model with a message.  Where transformers itself fails, or invents weights that the
files lack, any refusal is right and tokens are not compared; such models are counted.
"""
import json
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

NEW_TOKENS, MARGIN = 24, 0.002


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


def reference(folder, prompts):
    """Return transformers' greedy tokens and margins for each prompt, or why there are none."""
    import torch
    import transformers
    config = json.loads((folder / "config.json").read_text())
    auto = transformers.AutoModelForImageTextToText if "vision_config" in config else transformers.AutoModelForCausalLM
    model, info = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if info["missing_keys"] or info.get("mismatched_keys"):
        return f"it invents {sorted(info['missing_keys'])[:2] or 'weights of another shape'}"
    out = []
    for prompt in prompts:
        ids, margins = list(prompt), []
        for _ in range(NEW_TOKENS):
            with torch.no_grad():
                best = torch.topk(model.eval()(torch.tensor([ids]), use_cache=False).logits[0, -1].float(), 2)
            margins.append(float(best.values[0] - best.values[1]))
            ids.append(int(best.indices[0]))
        out.append({"prompt": prompt, "ids": ids[len(prompt):], "margins": margins})
    return out


def make(out, n, seed, models):
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    rng, made = random.Random(seed), 0
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
        prompts = [c["prompt"] for c in json.loads((source / "reference.json").read_text())][:2]
        try:
            known = reference(folder, prompts)
        except Exception as e:      # any of transformers' own errors
            known = f"{type(e).__name__}: {str(e)[:200]}"
        (folder / "mutant.json").write_text(json.dumps({"change": done, "reference": known}))
        made += 1


def judge(folder):
    """Return the verdict on one model, and its reason."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
    from service import BIN, served
    mutant = json.loads((folder / "mutant.json").read_text())
    shown = subprocess.run([BIN / "quern", "inspect", folder, "--json", "--no-probe"], capture_output=True, text=True)
    if shown.returncode:
        return ("refused" if shown.returncode == 1 and shown.stderr.strip() else "CRASHED"), shown.stderr.strip()
    if isinstance(mutant["reference"], str):
        return "loaded, without a reference", mutant["reference"]
    try:
        for service in served(folder, ("--compute", "f32", "--kv-cache-dtype", "f32", "--context", "256")):
            with service.client() as client:
                for case in mutant["reference"]:
                    got = client.generate(tokens=case["prompt"], max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True).tokens
                    for i, (mine, theirs) in enumerate(zip(got, case["ids"])):
                        if mine != theirs and case["margins"][i] < MARGIN:
                            break
                        if mine != theirs:
                            return "OTHER TOKENS", f"token {i} is {mine}, not {theirs} (margin {case['margins'][i]:.3f})"
    except AssertionError as e:
        text = str(e)
        refused = re.search(r"ended with 1\b", text)
        return ("refused" if refused else "CRASHED"), text[-300:]
    return "same tokens", ""


def check(out):
    counts, bad = Counter(), 0
    for folder in sorted(Path(out).iterdir()):
        verdict, reason = judge(folder)
        counts[verdict] += 1
        if verdict.isupper() or verdict == "OTHER TOKENS":
            bad += 1
            print(f"{folder.name}: {json.loads((folder / 'mutant.json').read_text())['change']}: {verdict}: {reason}", flush=True)
        elif "-v" in sys.argv:
            print(f"{folder.name}: {json.loads((folder / 'mutant.json').read_text())['change']}: {verdict}: {reason[:150]}", flush=True)
    print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))
    return bad


if __name__ == "__main__":
    if len(sys.argv) > 4 and sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
    elif len(sys.argv) > 2 and sys.argv[1] == "check":
        sys.exit(1 if check(sys.argv[2]) else 0)
    else:
        sys.exit(__doc__)
