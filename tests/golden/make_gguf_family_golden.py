#!/usr/bin/env python3
"""make_gguf_family_golden.py - logits and tokens of tests/tools/make_gguf_family.py's models.

Runs Hugging Face transformers (float32, CPU) on the models that those files are made of, checks the names of their
tensors and keys against the package gguf, which also reads each file, and writes tests/golden/gguf_family.json in the form of models.json.  Needs torch,
transformers and gguf; the tests need only its output.

    python tests/golden/make_gguf_family_golden.py [NAME ...]
"""
import json
import os
import sys
import tempfile

import gguf
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import make_model_golden  # noqa: E402
import make_gguf_family  # noqa: E402


def check_names(name, config, path):
    arch = make_gguf_family.arch_of(name)
    number = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch)
    names = gguf.get_tensor_name_map(number, config["num_hidden_layers"])
    for hf in make_gguf_family.parts(arch, path):
        want = names.get_name(hf.replace("e_score_correction_bias", "e_score_correction.bias"),
                              try_suffixes=(".weight", ".bias"))
        assert want == make_gguf_family.name_of(arch, hf), (name, hf, want)


def check_file(name, config, path):
    """What the package reads of the file: keys that it knows, and tensors of the model's sizes, stacked experts too."""
    arch = make_gguf_family.arch_of(name)
    keys = {v.replace("{arch}", arch) for group in vars(gguf.Keys).values() if isinstance(group, type)
            for v in vars(group).values() if isinstance(v, str)}
    reader = gguf.GGUFReader(path)
    unknown = {k for k in reader.fields if not k.startswith("GGUF.")} - keys
    assert not unknown, (name, unknown)
    found = {t.name: t.data for t in reader.tensors}
    experts = next((config[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if k in config), None)
    for tensor, data in found.items():
        stacked = tensor.endswith("_exps.weight")
        assert stacked == (data.ndim == 3) and (not stacked or data.shape[0] == experts), tensor


def main():
    torch.set_num_threads(2)
    names = sys.argv[1:] or list(make_gguf_family.FAMILIES)
    cases = []
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            config = make_gguf_family.FAMILIES[name]
            path = os.path.join(tmp, name)
            make_gguf_family.make_model.make(path, config, "F32", 1)
            check_names(name, config, path)
            make_gguf_family.make(name, path + ".gguf")
            check_file(name, config, path + ".gguf")
            for context in [48, 128] if name == "phi3-long" else [128]:
                cases.append(make_model_golden.case(name, path, context, min(40, context - make_model_golden.NEW)))
    if sys.argv[1:]:        # the others as they are
        with open(os.path.join(HERE, "gguf_family.json"), encoding="utf-8") as f:
            cases = [c for c in json.load(f) if c["name"] not in names] + cases
    with open(os.path.join(HERE, "gguf_family.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
