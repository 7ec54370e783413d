#!/usr/bin/env python3
"""make_gguf_family_golden.py - logits and tokens of tests/tools/make_gguf_family.py's models.

Runs Hugging Face transformers (float32, CPU) on the models that those files are made of, checks the names of their
tensors against the package gguf, and writes tests/golden/gguf_family.json in the form of models.json.  Needs torch,
transformers and gguf; the tests need only its output.
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
    for hf in make_gguf_family.read(os.path.join(path, "model.safetensors")):
        want = names.get_name(hf, try_suffixes=(".weight", ".bias"))
        assert want == make_gguf_family.name_of(arch, hf), (name, hf, want)


def main():
    torch.set_num_threads(2)
    cases = []
    with tempfile.TemporaryDirectory() as tmp:
        for name, config in make_gguf_family.FAMILIES.items():
            path = os.path.join(tmp, name)
            make_gguf_family.make_model.make(path, config, "F32", 1)
            check_names(name, config, path)
            for context in [48, 128] if name == "phi3-long" else [128]:
                cases.append(make_model_golden.case(name, path, context, min(40, context - make_model_golden.NEW)))
    with open(os.path.join(HERE, "gguf_family.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
