#!/usr/bin/env python3
"""autoawq.py - other programs' AWQ on a calibration text, and its error compared with `quern quantize --type awq4`.

    autoawq.py make MODEL OUT TEXT [--tool autoawq | llm-compressor] [--group 128] [--tokens 8192]
    autoawq.py compare MODEL TEXT RESULT... [--tokens 4096]     a table: perplexity, KL, error of each layer's output
    autoawq.py families DIR [--quern build/bin/quern]           tiny models of families that AutoAWQ refuses, trained
                                                                for a minute, by llm-compressor; compared

Each tool needs its own virtual environment, in which `compare` works too.  Runs on a CPU, which takes minutes even for
the demo model.

    autoawq         pip install torch==2.6.0 transformers==4.51.3 autoawq==0.2.9 "numpy<2" "datasets==3.2.0" "pyarrow<19"
    llm-compressor  pip install llmcompressor==0.14.0.1

MODEL is a directory with floats in one file; RESULT a directory with AWQ "gemm" or packed 4-bit compressed-tensors."""
import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent))
from from_awq import floats, stories  # noqa: E402
from make_model import llama, make, moe, qwen2, qwen3_moe  # noqa: E402
from to_awq import read_raw, write  # noqa: E402

WINDOW = 512
# The tests' tiny models in sizes that are multiples of 32.
FAMILIES = {
    "llama2": llama(128, 256, 2, 4, 4, 331, 512, attention_bias=True, mlp_bias=True),
    "qwen2": qwen2(128, 256, 2, 4, 2, 331, 512),
    "qwen2-moe": moe("Qwen2MoeForCausalLM", "qwen2_moe", 128, 256, 2, 4, 2, 331, 512, num_experts=4, num_experts_per_tok=2,
                     moe_intermediate_size=64, shared_expert_intermediate_size=128, decoder_sparse_step=1),
    "qwen3-moe": qwen3_moe(128, 256, 2, 4, 2, 331, 512, head_dim=32, num_experts=4, num_experts_per_tok=2,
                           moe_intermediate_size=64),
}


def load(folder):
    return AutoModelForCausalLM.from_pretrained(str(folder), torch_dtype=torch.float32, low_cpu_mem_usage=False).eval()


def token_windows(model, text, n):
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    ids = tokenizer(text.read_text())["input_ids"][:n]
    return tokenizer, [ids[i:i + WINDOW] for i in range(0, len(ids) - 1, WINDOW)]


# ---------------------------------------------------------------- results of other programs


def autoawq(model, out, windows, tokenizer, group):
    from awq import AutoAWQForCausalLM
    m = AutoAWQForCausalLM.from_pretrained(str(model), device_map="cpu", torch_dtype=torch.float32, safetensors=True,
                                           low_cpu_mem_usage=False)
    texts = [tokenizer.decode(w) for w in windows]
    m.quantize(tokenizer, quant_config={"zero_point": True, "q_group_size": group, "w_bit": 4, "version": "GEMM"},
               calib_data=texts, max_calib_samples=len(texts), max_calib_seq_len=WINDOW)
    m.save_quantized(str(out))


def llm_compressor(model, out, windows, tokenizer, group):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
        num_bits=4, type="int", symmetric=False, strategy="group", group_size=group))
    recipe = [AWQModifier(), QuantizationModifier(
        config_groups={"group_0": scheme}, ignore=["lm_head", "re:.*mlp.gate$", "re:.*shared_expert_gate$"])]
    data = Dataset.from_dict({"input_ids": windows, "attention_mask": [[1] * len(w) for w in windows]})
    m = load(model)
    if not torch.cuda.is_available():       # it pins memory nevertheless
        torch.Tensor.pin_memory = lambda x, *_: x
    oneshot(model=m, tokenizer=tokenizer, dataset=data, recipe=recipe, max_seq_length=WINDOW,
            num_calibration_samples=len(windows), shuffle_calibration_samples=False)
    m.save_pretrained(str(out), save_compressed=True)


TOOLS = {"autoawq": autoawq, "llm-compressor": llm_compressor}


def make_result(model, out, text, tool, group, n_tokens):
    tokenizer, windows = token_windows(model, text, n_tokens)
    TOOLS[tool](model, out, windows, tokenizer, group)
    for f in model.glob("tokenizer*"):
        shutil.copyfile(f, out / f.name)


# ---------------------------------------------------------------- results as floats


def nibbles(words):
    """Unpack int32 [rows, n] to [rows, 8 n] of 0..15, the lowest bits first."""
    return (words.view(np.uint32)[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).reshape(len(words), -1)


def unpacked(folder):
    """Unpack compressed-tensors: weight_packed [outputs, inputs / 8], weight_zero_point [outputs / 8, groups]."""
    t, out = read_raw(folder / "model.safetensors"), {}
    for name, x in t.items():
        if name.endswith(".weight_packed"):
            module = name.removesuffix("_packed")
            n, k = (int(v) for v in t[f"{module}_shape"])
            scale, q = t[f"{module}_scale"].astype(np.float32), nibbles(x)[:n, :k].astype(np.float32)
            zero = nibbles(np.ascontiguousarray(t[f"{module}_zero_point"].T)).T[:n].astype(np.float32)
            each = k // scale.shape[1]
            out[module] = (q - np.repeat(zero, each, 1)) * np.repeat(scale, each, 1)
        elif not name.endswith(("_scale", "_zero_point", "_shape")):
            out[name] = x.astype(np.float32)
    return out


def as_floats(source, result, out):
    config = json.loads((result / "config.json").read_text())
    packed = config["quantization_config"]["quant_method"] == "compressed-tensors"
    out.mkdir()
    shutil.copyfile(source / "config.json", out / "config.json")
    write(out / "model.safetensors", (unpacked if packed else floats)(result))
    return out


# ---------------------------------------------------------------- errors


def decibels(signal, noise):
    return 10 * math.log10(signal / noise) if noise else math.inf


class Watch:
    """The layers of a model, with their inputs and outputs in the last step."""

    def __init__(self, model):
        self.layers = model.model.layers
        self.inputs, self.outputs = [None] * len(self.layers), [None] * len(self.layers)
        for i, layer in enumerate(self.layers):
            layer.register_forward_hook(lambda _, args, kwargs, out, i=i: self.keep(i, args, kwargs, out), with_kwargs=True)

    def keep(self, i, args, kwargs, out):
        self.inputs[i], self.outputs[i] = (args, kwargs), first(out)


def first(out):
    return out[0] if isinstance(out, tuple) else out


@torch.no_grad()
def measure(source, result, windows):
    """Return perplexities, KL, and for each layer the error of its contribution to the residual stream: alone, on the
    inputs of the source, and accumulated."""
    a, watch_a, watch_b = source, Watch(source), Watch(result)
    n, nll, kl, layers = 0, [0.0, 0.0], 0.0, [[0.0] * 4 for _ in watch_a.layers]
    for ids in windows:
        x = torch.tensor([ids])
        p, q = (torch.log_softmax(m(x, use_cache=False).logits[0, :-1].double(), -1) for m in (a, result))
        outputs = list(watch_b.outputs)
        for i, ((args, kwargs), y) in enumerate(zip(list(watch_a.inputs), list(watch_a.outputs))):
            entered = args[0] if args else kwargs["hidden_states"]
            alone = first(watch_b.layers[i](*args, **kwargs))
            for at, v in enumerate(((y - entered), (alone - y), y, (outputs[i] - y))):
                layers[i][at] += float((v.double() ** 2).sum())
        next_ids = x[0, 1:, None]
        nll = [s - float(m.gather(1, next_ids).sum()) for s, m in zip(nll, (p, q))]
        kl += float((p.exp() * (p - q)).sum())
        n += len(ids) - 1
    return {"perplexity": [math.exp(s / n) for s in nll], "kl": kl / n, "tokens": n,
            "alone": [decibels(v[0], v[1]) for v in layers], "accumulated": [decibels(v[2], v[3]) for v in layers]}


def compare(model, text, results, n_tokens):
    found = {}
    _, windows = token_windows(model, text, n_tokens)
    for r in results:
        with tempfile.TemporaryDirectory() as tmp:
            found[r] = measure(load(model), load(as_floats(model, r, Path(tmp) / "floats")), windows)
    return found


def show(found):
    for name, m in found.items():
        print(f"{name}: perplexity {m['perplexity'][1]:.4f} (original {m['perplexity'][0]:.4f}), KL {m['kl']:.5f}, "
              f"{m['tokens']} tokens")
        for kind in ("alone", "accumulated"):
            print(f"    layers {kind}, dB: " + ", ".join(f"{v:.1f}" for v in m[kind]))


# ---------------------------------------------------------------- families


def train(config, out, text, steps=300):
    """Train a model on stories, with a byte-level tokenizer, so that errors have an effect."""
    with tempfile.TemporaryDirectory() as tmp:
        make(f"{tmp}/m", config, "F32", 1)
        shutil.copytree(f"{tmp}/m", out, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(str(out)))
    ids = torch.tensor(AutoTokenizer.from_pretrained(str(out))(text)["input_ids"])
    best = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        at = torch.randint(len(ids) - 128, (8,))
        x = torch.stack([ids[i:i + 128] for i in at])
        loss = model(x, labels=x, use_cache=False).loss
        best.zero_grad()
        loss.backward()
        best.step()
    saved = out.with_name(out.name + "-saved")
    model.save_pretrained(str(saved))
    shutil.move(saved / "model.safetensors", out / "model.safetensors")
    shutil.rmtree(saved)


def families(folder, quern, group=32, n_tokens=8192):
    folder.mkdir()
    text, other = folder / "text", folder / "other"
    text.write_text(stories(1, 60_000))
    other.write_text(stories(2, 30_000))
    for name, config in FAMILIES.items():
        model, ours, theirs = (folder / f"{name}{s}" for s in ("", "-quern", "-llm-compressor"))
        train(config, model, stories(3, 200_000))
        subprocess.run([quern, "quantize", model, ours, "--type", "awq4", "--calibrate", text, "--group", str(group),
                        "--tokens", str(n_tokens), "--eval-tokens", "0"], check=True, stdout=subprocess.DEVNULL)
        made = [ours]
        try:
            make_result(model, theirs, text, "llm-compressor", group, n_tokens)
            made.append(theirs)
        except Exception as e:  # the error is the result
            print(f"{theirs.name}: refused: {type(e).__name__}: {e}")
        show({r.name: m for r, m in compare(model, other, made, 4096).items()})


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    c = commands.add_parser("make")
    c.add_argument("model", type=Path)
    c.add_argument("out", type=Path)
    c.add_argument("text", type=Path)
    c.add_argument("--tool", choices=sorted(TOOLS), default="autoawq")
    c.add_argument("--group", type=int, default=128)
    c.add_argument("--tokens", type=int, default=8192)
    c = commands.add_parser("compare")
    c.add_argument("model", type=Path)
    c.add_argument("text", type=Path)
    c.add_argument("results", type=Path, nargs="+")
    c.add_argument("--tokens", type=int, default=4096)
    c = commands.add_parser("families")
    c.add_argument("dir", type=Path, help="must not exist")
    c.add_argument("--quern", default="build/bin/quern")
    a = p.parse_args()
    if a.command == "make":
        make_result(a.model, a.out, a.text, a.tool, a.group, a.tokens)
    elif a.command == "compare":
        show(compare(a.model, a.text, a.results, a.tokens))
    else:
        families(a.dir, a.quern)


if __name__ == "__main__":
    main()
