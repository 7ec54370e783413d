#!/usr/bin/env python3
"""accuracy.py - the effect of a CPU compute mode on a model's log-probabilities of a text.

    accuracy.py [--model DIR] [--text FILE] [--tokens N] [--window N] [MODE...]

Serves the model in f32 and in each MODE, sends N tokens of the text in windows, and compares the log-probability of
every next token: the mean negative log-likelihood, its change, the root mean square of the changes, and the share of
positions at which the most likely token is the same.  A MODE is a value of --compute, optionally followed by options:
"int8 --head-dtype stored".  Prints a table in Markdown."""
import argparse
import math
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "models")]

import demo_data                            # noqa: E402
from jobclient import JobClient             # noqa: E402
from service import DEMO, Service           # noqa: E402


def pieces(text, size=4000):
    """Split the text into windows, at ends of lines if the lines are short: a request for a short context holds no
    more."""
    at = 0
    while at < len(text):
        end = len(text) if len(text) - at <= size else text.rfind("\n", at, at + size) + 1
        end = end if end > at else at + size
        yield text[at:end]
        at = end


def score(model, mode, text, n, window):
    """Return ([(log-probability, most likely token)] of the tokens after the first of each window, the numerics
    class)."""
    out = []
    service = Service(model, "--compute", *mode.split(), "--no-prefix-cache")
    try:
        client = JobClient(service.jobs)
        numerics = client.call("status")["replicas"][0]["numerics"]
        window = min(window, service.ready["max_context"] - 1)
        tokens = [t for piece in pieces(text) for t in client.tokenize(piece)][:n]
        for at in range(0, len(tokens) - 1, window):
            part = tokens[at:at + window]
            done = client.generate(tokens=part, max_tokens=1, prompt_logprobs=1)
            for e in done.reply["prompt_logprobs"][1:]:
                out.append((e["logprob"], e["top"][0]["token"] if e["top"] else None))
        client.close()
    finally:
        service.stop()
    return out, numerics


def stories(n_tokens):
    """Return texts like the demo model's training data (models/demo_data.py), with at least this many tokens."""
    rng, out = random.Random(20), []
    while sum(map(len, out)) < 6 * n_tokens:
        out.append("".join(text for text, _ in demo_data.story(rng)))
    return "\n".join(out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default=DEMO)
    p.add_argument("--text", type=Path, metavar="FILE", help="default: stories of the kind that the demo model tells")
    p.add_argument("--tokens", default=4096, type=int)
    p.add_argument("--window", default=512, type=int)
    p.add_argument("modes", nargs="*", default=["bf16", "int16", "int8"], metavar="MODE")
    a = p.parse_args()
    text = a.text.read_text()[:a.tokens * 16] if a.text else stories(a.tokens)
    base, numerics = score(a.model, "f32", text, a.tokens, a.window)
    nll = -sum(x for x, _ in base) / len(base)
    print(f"{len(base)} tokens of {a.text.name if a.text else 'stories'}\n")
    print("| mode | class | mean NLL | change | RMS change of log-probability | same argmax |\n|---|---|---|---|---|---|")
    print(f"| f32 | {numerics} | {nll:.4f} | | | |")
    for mode in a.modes:
        got, numerics = score(a.model, mode, text, a.tokens, a.window)
        mean = -sum(x for x, _ in got) / len(got)
        rms = math.sqrt(sum((x - y) ** 2 for (x, _), (y, _) in zip(got, base)) / len(base))
        same = sum(x == y for (_, x), (_, y) in zip(got, base)) / len(base)
        print(f"| {mode} | {numerics} | {mean:.4f} | {mean - nll:+.4f} | {rms:.4f} | {100 * same:.2f}% |")


if __name__ == "__main__":
    main()
