#!/usr/bin/env python3
"""make_seeds.py - make the seeds of fuzz_convert and fuzz_hf_vocab in tests/fuzz/seeds: models of a few kilobytes with
made-up weights, and the tests' small tokenizers.  Needs only numpy; writes the same bytes each time."""
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SEEDS = ROOT / "tests/fuzz/seeds"
TOKENIZERS = ROOT / "tests/golden/tokenizer"
sys.path.insert(0, str(ROOT / "tests/tools"))
import make_flat  # noqa: E402
import make_gguf_family  # noqa: E402
import make_model  # noqa: E402
from make_model import awq, family, gemma, llama, moe, qwen2, qwen3, qwen3_moe  # noqa: E402

SIZES = (32, 32, 1, 2, 1, 16, 64)   # hidden, feed-forward, layers, heads, KV heads, vocabulary, context
LONG = dict(type="longrope", short_factor=[1 + i / 8 for i in range(8)], long_factor=[2 + i / 8 for i in range(8)])
DIRECTORIES = {
    "llama": (llama(*SIZES, tie_word_embeddings=True), "F32"),
    "llama3": (llama(*SIZES, rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                               original_max_position_embeddings=32)), "F16"),
    "qwen2": (qwen2(*SIZES), "F16"),
    "qwen3": (qwen3(*SIZES, head_dim=16), "BF16"),
    "gemma3": (gemma(3, *SIZES, head_dim=16, sliding_window=8, query_pre_attn_scalar=16), "BF16"),
    "phi3-long": (family("Phi3ForCausalLM", "phi3", *SIZES, original_max_position_embeddings=32, rope_scaling=LONG), "F32"),
    "glm4": (family("Glm4ForCausalLM", "glm4", *SIZES, head_dim=16, attention_bias=True), "F16"),
    "qwen3-moe": (qwen3_moe(*SIZES, head_dim=16, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=32), "F16"),
    "qwen2-moe": (moe("Qwen2MoeForCausalLM", "qwen2_moe", *SIZES, num_experts=2, num_experts_per_tok=1,
                      moe_intermediate_size=32, shared_expert_intermediate_size=32), "F32"),
    "awq": (qwen3(*SIZES, head_dim=16, tie_word_embeddings=True, **awq(32)), "F16"),
}
GGUF = {"llama": "llama", "gemma3": "gemma3", "qwen3-moe": "qwen3moe"}   # name above: GGUF architecture


def put(target, name, data):
    (SEEDS / target).mkdir(exist_ok=True)
    (SEEDS / target / name).write_bytes(data)


def models(tmp):
    for name, (config, dtype) in DIRECTORIES.items():
        d = tmp / name
        make_model.make(str(d), config, dtype, 1)
        text = json.dumps(json.loads((d / "config.json").read_text())).encode()
        put("fuzz_convert", f"{name}.dir", text + b"\0" + (d / "model.safetensors").read_bytes())
    for name, arch in GGUF.items():     # written by the tests' writer, not by the converter's
        make_gguf_family.write(arch, DIRECTORIES[name][0], str(tmp / "model.gguf"))
        put("fuzz_convert", f"{name}.gguf", (tmp / "model.gguf").read_bytes())
    config = json.loads((tmp / "awq/config.json").read_text())
    put("fuzz_convert", "awq.ak48", make_flat.encode(config, make_flat.read_safetensors(tmp / "awq"), "ak48")[0])


def vocabularies():
    for d in sorted(p for p in TOKENIZERS.iterdir() if p.is_dir()):
        for name in ("tokenizer.json", "tokenizer.model"):
            if (d / name).exists():
                beside = d / "tokenizer_config.json"
                data = (d / name).read_bytes()
                put("fuzz_hf_vocab", d.name, data + (b"\0" + beside.read_bytes() if beside.exists() else b""))


def main():
    with tempfile.TemporaryDirectory() as tmp:
        models(Path(tmp))
    vocabularies()


if __name__ == "__main__":
    main()
