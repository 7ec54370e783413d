#!/usr/bin/env python3
"""make_seeds.py - make the seeds of fuzz_convert, fuzz_hf_vocab and fuzz_imatrix in tests/fuzz/seeds, one of fuzz_gguf, and
those of the newer types of fuzz_safetensors: models of a few kilobytes with made-up weights, the tests' small tokenizers,
importance matrices.  Needs only numpy; writes the same bytes each time."""
import json
import struct
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SEEDS = ROOT / "tests/fuzz/seeds"
TOKENIZERS = ROOT / "tests/golden/tokenizer"
sys.path.insert(0, str(ROOT / "tests/tools"))
import make_flat  # noqa: E402
import make_gguf  # noqa: E402
import make_gguf_family  # noqa: E402
import make_gguf_types  # noqa: E402
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
QUANTIZED = {       # for fuzz_safetensors
    "nvfp4": make_model.compressed("nvfp4-pack-quantized", (["Linear"], make_model.fp4(16))),
    "nvfp4-modelopt": make_model.modelopt("NVFP4"),
    "mxfp4": make_model.compressed("mxfp4-pack-quantized", (["Linear"], make_model.fp4(32))),
    "mxfp8": make_model.compressed("mxfp8-quantized", (["Linear"], make_model.floats("group", group_size=32))),
    "mixed": make_model.MIXED,
    "fp8-modelopt": make_model.modelopt("FP8"),
    "nf4": make_model.bnb4("nf4", False),
    "nf4-nested": make_model.bnb4("nf4", True),
    "int8-bnb": make_model.bnb8(),
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


CODEBOOKS = {"attn_q": "IQ1_S", "attn_k": "IQ1_M", "attn_v": "IQ2_XXS", "ffn_gate": "IQ2_XS", "ffn_up": "IQ2_S",
             "ffn_down": "IQ3_XXS", "token_embd": "IQ3_S", "attn_output": "F16", "output": "F16"}


def codebooks(tmp):
    """A layer whose matrices have the types of codebooks."""
    t = make_gguf_types
    t.HIDDEN, t.INTER, t.LAYERS, t.HEADS, t.KV, t.HEAD, t.VOCAB, t.CONTEXT = 256, 256, 1, 1, 1, 16, 16, 64
    t.make("qwen3-F16", str(tmp / "model.gguf"), CODEBOOKS)
    put("fuzz_gguf", "qwen3-codebooks", (tmp / "model.gguf").read_bytes())


def matrices():
    """An importance matrix in both formats."""
    entries = [("blk.0.attn_q.weight", 1, [4.0, 0.0, 2.5, 1.0]), ("blk.0.ffn_up_exps.weight", 2, [1.0, 2.0, 3.0, 4.0])]
    legacy = struct.pack("<i", len(entries))
    for name, _, sums in entries:
        legacy += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii4f", 2, 4, *sums)
    put("fuzz_imatrix", "legacy", legacy + struct.pack("<ii", 3, 4) + b"text")
    head, data = b"", b""
    for name, parts, sums in entries:
        for end, columns, values in ((".in_sum2", 4 // parts, sums), (".counts", 1, [2.0] * parts)):
            head += make_gguf.text(name + end) + struct.pack("<IQQIQ", 2, columns, parts, 0, len(data))
            data += struct.pack(f"<{len(values)}f", *values).ljust(32, b"\0")
    keys = make_gguf.key("general.type", "imatrix") + make_gguf.key("imatrix.chunk_count", 3)
    out = b"GGUF" + struct.pack("<IQQ", 3, 4, 2) + keys + head
    put("fuzz_imatrix", "gguf", out + bytes(-len(out) % 32) + data)


def quantized(tmp):
    for name, quant in QUANTIZED.items():
        d = tmp / f"quant-{name}"
        make_model.make(str(d), llama(*SIZES, tie_word_embeddings=True, **quant), "BF16", 1)
        text = json.dumps(json.loads((d / "config.json").read_text())).encode()
        put("fuzz_safetensors", name, text + b"\0" + (d / "model.safetensors").read_bytes())
        put("fuzz_config", f"quant-{name}.json", text)


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
        codebooks(Path(tmp))
        quantized(Path(tmp))
    matrices()
    vocabularies()


if __name__ == "__main__":
    main()
