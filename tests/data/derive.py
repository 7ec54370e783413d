"""derive.py - makes test data from other test data: bytes that sources.toml has the checksums of.

    stories260K-hf-f32, -hf-bf16    llama2.c's checkpoint as a directory in Hugging Face layout
    stories260K-gguf                the same as GGUF files
    tiny_qwen3-awq-w4g32            tiny_qwen3 in AWQ's packing, rounded to nearest
    vocab-qwen3.gguf.gz             the vocabulary of Qwen3's tokenizer.json as a GGUF file without tensors"""
import gzip
import json
import struct
from array import array

DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCAB = 64, 172, 5, 8, 4, 512     # of stories260K
HEAD = DIM // HEADS


def f32(x):
    """Round to single precision."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


# ---- element types ----

def to_f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def to_f16(values):
    return struct.pack(f"<{len(values)}e", *values)


def to_bf16(values):
    bits = array("I", to_f32(values))
    return struct.pack(f"<{len(bits)}H", *((b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits))


def to_q8_0(values):
    """Blocks of 32: scale F16, codes of 8 bits, rounded half away from zero."""
    out = bytearray()
    for at in range(0, len(values), 32):
        block = values[at:at + 32]
        d = f32(max(map(abs, block)) / 127)
        inverse = f32(1 / d) if d else 0.0
        out += struct.pack("<e", d)
        for x in block:
            y = f32(x * inverse)
            out += struct.pack("<b", int(abs(y) + 0.5) * (1 if y >= 0 else -1))
    return bytes(out)


def to_q4_0(values):
    """Blocks of 32: scale F16, codes of 4 bits; the value of the largest magnitude becomes -8."""
    out = bytearray()
    for at in range(0, len(values), 32):
        block = values[at:at + 32]
        d = f32(max(block, key=abs) / -8)
        inverse = f32(1 / d) if d else 0.0
        codes = [min(15, int(f32(f32(x * inverse) + 8.5))) for x in block]
        out += struct.pack("<e", d) + bytes(codes[i] | codes[i + 16] << 4 for i in range(16))
    return bytes(out)


# ---- GGUF ----

U32, I32, F32, BOOL, TEXT, LIST = 4, 5, 6, 7, 8, 9      # types of GGUF's keys
PACK = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}


def gguf_value(kind, value):
    if kind == TEXT:
        text = value.encode()
        return struct.pack("<Q", len(text)) + text
    return struct.pack(PACK[kind], value)


def gguf_head(keys, n_tensors):
    """Return the beginning of a GGUF file, up to the tensors.  keys: (name, type, value); a list's type is (type of values,)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, n_tensors, len(keys))
    for key, kind, value in keys:
        head += gguf_value(TEXT, key)
        if isinstance(kind, tuple):
            head += struct.pack("<IIQ", LIST, kind[0], len(value)) + b"".join(gguf_value(kind[0], v) for v in value)
        else:
            head += struct.pack("<I", kind) + gguf_value(kind, value)
    return head


# ---- stories260K ----

def checkpoint(folder):
    """Return {name: values} of llama2.c's file, its layers as lists; rows of q and k are in its order (pairs)."""
    data = (folder / "weights/stories260K/stories260K.bin").read_bytes()
    at, out = 28, {}
    kv = KV_HEADS * HEAD
    for name, n, count in (("embed", VOCAB * DIM, 1), ("attn_norm", DIM, LAYERS), ("q", DIM * DIM, LAYERS),
                           ("k", kv * DIM, LAYERS), ("v", kv * DIM, LAYERS), ("o", DIM * DIM, LAYERS),
                           ("ffn_norm", DIM, LAYERS), ("gate", HIDDEN * DIM, LAYERS), ("down", DIM * HIDDEN, LAYERS),
                           ("up", HIDDEN * DIM, LAYERS), ("norm", DIM, 1)):
        out[name] = []
        for _ in range(count):
            out[name].append(struct.unpack_from(f"<{n}f", data, at))
            at += 4 * n
    return out


def halves(rows, heads):
    """Reorder the rows of q or k for rotations of a head's halves instead of adjacent pairs."""
    out = []
    for h in range(heads):
        for half in range(2):
            for i in range(HEAD // 2):
                at = (h * HEAD + 2 * i + half) * DIM
                out += rows[at:at + DIM]
    return out


def safetensors(tensors):
    """Return a file of (name, type's name, shape, bytes)."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, kind, shape, data in tensors:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors)


def stories_hf(folder, kind, convert):
    c = checkpoint(folder)
    kv = KV_HEADS * HEAD
    named = [("model.embed_tokens", [VOCAB, DIM], c["embed"][0])]
    for i in range(LAYERS):
        layer = (("input_layernorm", [DIM], c["attn_norm"][i]), ("self_attn.q_proj", [DIM, DIM], halves(c["q"][i], HEADS)),
                 ("self_attn.k_proj", [kv, DIM], halves(c["k"][i], KV_HEADS)), ("self_attn.v_proj", [kv, DIM], c["v"][i]),
                 ("self_attn.o_proj", [DIM, DIM], c["o"][i]), ("post_attention_layernorm", [DIM], c["ffn_norm"][i]),
                 ("mlp.gate_proj", [HIDDEN, DIM], c["gate"][i]), ("mlp.down_proj", [DIM, HIDDEN], c["down"][i]),
                 ("mlp.up_proj", [HIDDEN, DIM], c["up"][i]))
        named += [(f"model.layers.{i}.{name}", shape, values) for name, shape, values in layer]
    named.append(("model.norm", [DIM], c["norm"][0]))
    return safetensors([(f"{name}.weight", kind, shape, convert(values)) for name, shape, values in named])


def vocabulary(folder):
    """Return (token, score) of each id: llama2.c's scores, and the texts with the mark of a blank."""
    data = (folder / "weights/stories260K/tok512.bin").read_bytes()
    at, out = 4, []
    while at < len(data):
        score, n = struct.unpack_from("<fi", data, at)
        out.append((data[at + 8:at + 8 + n].decode("utf-8", "replace").replace(" ", "\u2581"), score))
        at += 8 + n
    out[:3] = [(special, out[i][1]) for i, special in enumerate(("<unk>", "<s>", "</s>"))]
    out[3:259] = [(f"<0x{i:02X}>", out[3 + i][1]) for i in range(256)]
    return out


def stories_gguf(folder, file_type, type_id, convert):
    c, tokens = checkpoint(folder), vocabulary(folder)
    keys = [("general.architecture", TEXT, "llama"), ("general.name", TEXT, "stories260K"), ("general.alignment", U32, 32),
            ("general.file_type", U32, file_type), ("llama.context_length", U32, 512), ("llama.embedding_length", U32, DIM),
            ("llama.block_count", U32, LAYERS), ("llama.feed_forward_length", U32, HIDDEN),
            ("llama.attention.head_count", U32, HEADS), ("llama.attention.head_count_kv", U32, KV_HEADS),
            ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), ("llama.rope.dimension_count", U32, HEAD),
            ("llama.rope.freq_base", F32, 10000.0), ("llama.vocab_size", U32, VOCAB), ("tokenizer.ggml.model", TEXT, "llama"),
            ("tokenizer.ggml.pre", TEXT, "default"), ("tokenizer.ggml.tokens", (TEXT,), [t for t, _ in tokens]),
            ("tokenizer.ggml.scores", (F32,), [s for _, s in tokens]),
            ("tokenizer.ggml.token_type", (I32,), [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)),
            ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
            ("tokenizer.ggml.unknown_token_id", U32, 0), ("tokenizer.ggml.add_bos_token", BOOL, True),
            ("tokenizer.ggml.add_eos_token", BOOL, False)]
    kv = KV_HEADS * HEAD
    named = [("token_embd", [DIM, VOCAB], c["embed"][0])]
    for i in range(LAYERS):
        layer = (("attn_norm", [DIM], c["attn_norm"][i]), ("attn_q", [DIM, DIM], c["q"][i]), ("attn_k", [DIM, kv], c["k"][i]),
                 ("attn_v", [DIM, kv], c["v"][i]), ("attn_output", [DIM, DIM], c["o"][i]), ("ffn_norm", [DIM], c["ffn_norm"][i]),
                 ("ffn_gate", [DIM, HIDDEN], c["gate"][i]), ("ffn_up", [DIM, HIDDEN], c["up"][i]),
                 ("ffn_down", [HIDDEN, DIM], c["down"][i]))
        named += [(f"blk.{i}.{name}", dims, values) for name, dims, values in layer]
    named.append(("output_norm", [DIM], c["norm"][0]))
    head, data = gguf_head(keys, len(named)), b""
    for name, dims, values in named:
        whole = len(dims) == 2 and (type_id < 2 or dims[0] % 32 == 0)    # blocks have 32 values of a row
        head += gguf_value(TEXT, f"{name}.weight") + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", type_id if whole else 0, len(data))
        data += (convert if whole else to_f32)(values)
        data += bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + data


# ---- a vocabulary ----

def vocab_qwen3(folder):
    tokenizer = folder / "tokenizers/qwen3"
    with gzip.open(tokenizer / "tokenizer.json.gz") as f:
        read = json.load(f)
    chat = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    n, normal, control, own, unused = 151936, 1, 3, 4, 5
    tokens, types = [f"[PAD{i}]" for i in range(n)], [unused] * n
    for token, i in read["model"]["vocab"].items():
        tokens[i], types[i] = token, normal
    for added in read["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], control if added["special"] else own
    keys = [("general.architecture", TEXT, "qwen2"), ("general.name", TEXT, "qwen3-vocab-only"), ("qwen2.block_count", U32, 24),
            ("qwen2.context_length", U32, 32768), ("qwen2.embedding_length", U32, 896),
            ("qwen2.feed_forward_length", U32, 4864), ("qwen2.attention.head_count", U32, 14),
            ("qwen2.attention.head_count_kv", U32, 2), ("qwen2.rope.freq_base", F32, 1e6),
            ("qwen2.attention.layer_norm_rms_epsilon", F32, 1e-6), ("general.file_type", U32, 1),
            ("tokenizer.ggml.model", TEXT, "gpt2"), ("tokenizer.ggml.pre", TEXT, "qwen2"),
            ("tokenizer.ggml.tokens", (TEXT,), tokens), ("tokenizer.ggml.token_type", (I32,), types),
            ("tokenizer.ggml.merges", (TEXT,), [" ".join(pair) for pair in read["model"]["merges"]]),
            ("tokenizer.ggml.eos_token_id", U32, 151645), ("tokenizer.ggml.padding_token_id", U32, 151643),
            ("tokenizer.ggml.bos_token_id", U32, 151643), ("tokenizer.ggml.add_bos_token", BOOL, False),
            ("tokenizer.chat_template", TEXT, chat)]
    return gzip.compress(gguf_head(keys, 0), mtime=0)


# ---- AWQ ----

GROUP = 32
NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)      # place of each of eight columns in a word


def read_bf16(path):
    """Return {name: (shape, values)}."""
    data = path.read_bytes()
    n = struct.unpack_from("<Q", data)[0]
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            a, b = (8 + n + at for at in t["data_offsets"])
            words = struct.unpack(f"<{(b - a) // 2}H", data[a:b])
            out[name] = t["shape"], array("f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words)))
    return out


def packed(rows):
    """Pack rows of codes, eight to a word."""
    words = []
    for row in rows:
        words += [sum(row[at + c] << 4 * NIBBLES[c] for c in range(8)) for at in range(0, len(row), 8)]
    return struct.pack(f"<{len(words)}I", *words)


def awq_layer(name, n_out, n_in, w):
    scales, zeros, codes = [], [], [[0] * n_out for _ in range(n_in)]
    for at in range(0, n_in, GROUP):
        scales.append([])
        zeros.append([])
        for o in range(n_out):
            group = w[o * n_in + at:o * n_in + at + GROUP]
            low, high = min(0.0, *group), max(0.0, *group)
            scale = f16(f32(f32(high - low) / 15))
            zero = min(15, max(0, round(f32(-low / scale))))
            scales[-1].append(scale)
            zeros[-1].append(zero)
            for i, x in enumerate(group):
                codes[at + i][o] = min(15, max(0, round(f32(x / scale)) + zero))
    groups = n_in // GROUP
    return [(f"{name}.qweight", "I32", [n_in, n_out // 8], packed(codes)),
            (f"{name}.qzeros", "I32", [groups, n_out // 8], packed(zeros)),
            (f"{name}.scales", "F16", [groups, n_out], to_f16([s for row in scales for s in row]))]


def tiny_awq(folder):
    tensors = []
    for name, (shape, values) in sorted(read_bf16(folder / "weights/tiny-random/tiny_qwen3/model.safetensors").items()):
        layer = name.removesuffix(".weight")
        tensors += (awq_layer(layer, *shape, values) if layer.endswith("_proj") else
                    [(name, "F16", shape, to_f16(values))])
    return safetensors(tensors)


# The files that this module makes: functions of the data's folder, which return their bytes.
MADE = {
    "weights/stories260K-hf-f32/model.safetensors": lambda folder: stories_hf(folder, "F32", to_f32),
    "weights/stories260K-hf-bf16/model.safetensors": lambda folder: stories_hf(folder, "BF16", to_bf16),
    "weights/stories260K-gguf/stories260K-f32.gguf": lambda folder: stories_gguf(folder, 0, 0, to_f32),
    "weights/stories260K-gguf/stories260K-f16.gguf": lambda folder: stories_gguf(folder, 1, 1, to_f16),
    "weights/stories260K-gguf/stories260K-q4_0.gguf": lambda folder: stories_gguf(folder, 2, 2, to_q4_0),
    "weights/stories260K-gguf/stories260K-q8_0.gguf": lambda folder: stories_gguf(folder, 7, 8, to_q8_0),
    "weights/tiny_qwen3-awq-w4g32/model.safetensors": tiny_awq,
    "tokenizers/ggml-vocab/vocab-qwen3.gguf.gz": vocab_qwen3,
}
