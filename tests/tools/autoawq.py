#!/usr/bin/env python3
"""autoawq.py - AutoAWQ's result on a calibration text, to compare `quern quantize --type awq4` with.

    autoawq.py MODEL OUT TEXT [--group 128] [--tokens 8192]

Needs a virtual environment of its own: pip install torch==2.6.0 transformers==4.51.3 autoawq==0.2.9 "numpy<2"
"datasets==3.2.0" "pyarrow<19".  On a CPU, which takes minutes even for the demo model.  Then

    quern quantize MODEL OURS --type awq4 --calibrate TEXT --group 128 --tokens 8192
    quern quantize --compare MODEL OUT OTHER-TEXT
    quern quantize --compare MODEL OURS OTHER-TEXT"""
import argparse
import shutil
from pathlib import Path

import torch
from awq import AutoAWQForCausalLM
from transformers import AutoTokenizer

WINDOW = 512


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("text", type=Path)
    p.add_argument("--group", type=int, default=128)
    p.add_argument("--tokens", type=int, default=8192)
    a = p.parse_args()
    model = AutoAWQForCausalLM.from_pretrained(str(a.model), device_map="cpu", torch_dtype=torch.float32, safetensors=True,
                                               low_cpu_mem_usage=False)
    tokenizer = AutoTokenizer.from_pretrained(str(a.model))
    ids = tokenizer(a.text.read_text())["input_ids"][:a.tokens]
    windows = [tokenizer.decode(ids[i:i + WINDOW]) for i in range(0, len(ids), WINDOW)]
    model.quantize(tokenizer, quant_config={"zero_point": True, "q_group_size": a.group, "w_bit": 4, "version": "GEMM"},
                   calib_data=windows, max_calib_samples=len(windows), max_calib_seq_len=WINDOW)
    model.save_quantized(str(a.out))
    for f in a.model.glob("tokenizer*"):
        shutil.copyfile(f, a.out / f.name)


if __name__ == "__main__":
    main()
