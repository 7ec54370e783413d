#!/usr/bin/env python3
"""make_beams_golden.py - the results of Hugging Face transformers' beam search.

    python tests/golden/make_beams_golden.py [--shared DIR]

Needs torch and transformers; the tests need only the two files that it writes:

beams.json         searches over a table instead of a model: the log-probabilities of the next token
                   are row (last token * 5 + position * 3) mod ROWS.  For tests/unit/sched/test_beam.c.
beams_models.json  searches over the demo model (dequantized to float32) and, with --shared, over
                   the weights there.  For tests/e2e/jobs/test_beams.py.

Each case: the parameters, and the tokens and scores of all hypotheses, best first.  The margin is the
least difference between two sums that decided a choice; a case with a margin so small that another
order of additions could choose differently is omitted.
"""
import argparse
import json
import os
import sys
import types

import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import make_model_golden  # noqa: E402

VOCAB, ROWS = 40, 61
LEAST_MARGIN = 2e-4     # of models: what float32 in another order may differ by, and then some


class TableConfig(PretrainedConfig):
    model_type = "table"

    def __init__(self, **kw):
        super().__init__(**kw)
        self.vocab_size, self.num_hidden_layers, self.hidden_size, self.num_attention_heads = VOCAB, 1, 8, 1


class Table(PreTrainedModel, GenerationMixin):
    config_class = TableConfig

    def __init__(self, config, table):
        super().__init__(config)
        self.w = torch.nn.Parameter(torch.zeros(1))
        self.table = table
        self.post_init()

    def forward(self, input_ids, **kw):
        n = input_ids.shape[1]
        row = (input_ids * 5 + torch.arange(n)[None] * 3) % ROWS
        return CausalLMOutputWithPast(logits=self.table[row])


class Margin:
    """The least difference between sums around the cuts of a search."""

    def __init__(self):
        self.least = float("inf")

    def watch(self, model):
        seen, inner = self, type(model)._get_top_k_continuations

        def outer(this, accumulated_log_probs, *a, num_beams, beams_to_keep, **kw):
            top = torch.topk(accumulated_log_probs, beams_to_keep + 1)[0][0]
            gaps = (top[:-1] - top[1:])[top[:-1] > -1e8]
            seen.least = min(seen.least, float(gaps.min()))
            return inner(this, accumulated_log_probs, *a, num_beams=num_beams, beams_to_keep=beams_to_keep, **kw)
        model._get_top_k_continuations = types.MethodType(
            lambda this, *a, **kw: outer(this, kw.pop("accumulated_log_probs"), *a, **kw), model)


@torch.no_grad()
def search(model, prompt, case, stop):
    """stop: the tokens that end a hypothesis.  All `width` hypotheses are returned."""
    margin = Margin()
    margin.watch(model)
    config = GenerationConfig(
        num_beams=case["width"], num_return_sequences=case["width"], max_new_tokens=case["max_tokens"],
        min_new_tokens=case.get("min_tokens") or None, length_penalty=case["length_penalty"],
        early_stopping=case["early_stopping"], do_sample=False, eos_token_id=stop or None, pad_token_id=None,
        bos_token_id=None, use_cache=not isinstance(model, Table), return_dict_in_generate=True, output_scores=True)
    # Padding behind the end must not look like output: a token id of its own.
    config.pad_token_id = stop[0] if stop else None
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    found = []
    for row, beams in zip(out.sequences.tolist(), out.beam_indices.tolist()):
        n = sum(b >= 0 for b in beams)
        found.append(row[len(prompt):len(prompt) + n])
    return dict(case, tokens=found, scores=[round(float(s), 5) for s in out.sequences_scores]), margin.least


def cases(widths, lengths):
    penalties = [1.0, 0.0, 2.0, -0.7, 0.5]
    early = [False, True, "never"]
    i = 0
    for width in widths:
        for max_tokens in lengths:
            for k in range(3):
                yield dict(width=width, max_tokens=max_tokens, early_stopping=early[i % 3],
                           length_penalty=penalties[i % 5], min_tokens=[0, 0, 3][(i + k) % 3] if max_tokens > 3 else 0)
                i += 1


def table_cases():
    torch.manual_seed(3)
    table = torch.log_softmax(torch.randn(ROWS, VOCAB) * 1.7, -1)
    model = Table(TableConfig(), table).eval()
    stops = [[7], [], [7, 8, 9], [3, 30], list(range(20, 32))]
    out = []
    for i, case in enumerate(cases([2, 3, 4, 8, 13], [1, 4, 12, 40])):
        case["stop"] = stops[i % 5]
        prompt = [(i * 11 + k * 5) % VOCAB for k in range(1 + i % 4)]
        got, margin = search(model, prompt, case, case["stop"])
        if margin > 1e-6:
            out.append(dict(got, prompt=prompt))
    print("table:", len(out), "cases, hypotheses that stopped:",
          sum(t[-1] in c["stop"] for c in out for t in c["tokens"]))
    return dict(vocab=VOCAB, rows=ROWS, table=[float(f"{x:.9g}") for x in table.flatten().tolist()], cases=out)


def own_stops(path):
    """The tokens that end an output unless ignore_eos is set."""
    for name in ("generation_config.json", "config.json"):
        if os.path.exists(os.path.join(path, name)):
            with open(os.path.join(path, name), encoding="utf-8") as f:
                eos = json.load(f).get("eos_token_id")
            if eos is not None:
                return eos if isinstance(eos, list) else [eos]
    return []


def model_cases(name, path, prompts, extra, widths, lengths):
    own = own_stops(path)
    model = make_model_golden.hf_model(path, 2048)
    model.generation_config = GenerationConfig()
    out, dropped = [], 0
    for i, case in enumerate(cases(widths, lengths)):
        prompt = prompts[i % len(prompts)]
        case["extra_stop"] = [[], [extra]][i % 2]
        case["ignore_eos"] = i % 5 == 4
        ends = case["extra_stop"] + ([] if case["ignore_eos"] else own)
        got, margin = search(model, prompt, case, ends)
        if margin > LEAST_MARGIN:
            out.append(dict(got, model=name, prompt=prompt))
        else:
            dropped += 1
    print(name, len(out), "cases,", dropped, "too close; hypotheses that stopped:",
          sum(t[-1] in own + [extra] for c in out for t in c["tokens"]))
    return out


def demo_cases():
    tok = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(ROOT, "models/demo/tokenizer.json"))
    texts = ["Once upon a time", "12 + 10 =", "The little dog", "A cat sat"]
    prompts = [tok(t).input_ids for t in texts]
    return model_cases("demo", os.path.join(ROOT, "models/demo"), prompts, tok("a.").input_ids[-1],
                       [2, 3, 4, 6], [1, 5, 16, 40])


def stories_cases(shared):
    path = os.path.join(shared, "weights", "stories260K-hf-f32")
    prompts = [[1, 403, 407, 261, 378], [1], [1, 346, 261]]
    return model_cases("stories260K-hf-f32", path, prompts, 426, [2, 4, 5], [3, 12, 30])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared")
    args = parser.parse_args()
    torch.set_num_threads(2)
    with open(os.path.join(HERE, "beams.json"), "w", encoding="utf-8") as f:
        json.dump(table_cases(), f)
        f.write("\n")
    found = demo_cases()
    if args.shared:
        found += stories_cases(args.shared)
    with open(os.path.join(HERE, "beams_models.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in found) + "\n]\n")


if __name__ == "__main__":
    main()
