#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/: small tokenizers of every kind that the C tokenizer supports, and
golden.json (the ids of Hugging Face's tokenizers for texts that are hard to split).
Needs the package tokenizers (the files were made by 0.23):
    python3 tests/golden/make_tokenizer_golden.py [--retrain]
Without --retrain the vocabularies are kept, and golden.json comes out the same, byte for byte;
training breaks ties randomly."""
import json
import random
import sys
from pathlib import Path

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

HERE = Path(__file__).resolve().parent
OUT = HERE / "tokenizer"
DEMO = HERE.parent.parent / "models" / "demo"

QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
              r"\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA_SPLIT = QWEN_SPLIT.replace(r"\p{N}|", r"\p{N}{1,3}|")
# A pattern without a hand-written matcher.
OTHER_SPLIT = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*[\p{Ll}\p{M}]+(?i:'s|'t)?|[^\r\n\p{L}\p{N}]?\p{Lu}+|"
               r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+|\w")

# The training text of the small vocabularies, written for this purpose.
TEXT = """
The miller had three sons, a mill, a donkey and a cat. The sons had to grind the grain, the donkey had
to carry the flour, and the cat had to chase the mice. When the miller died, the three sons shared what
he left: the eldest got the mill, the second got the donkey, and the youngest got the cat; there was
nothing else for him. "What shall I do with a cat?" he said. "I'll have a pair of gloves made of its fur,
and that's all." The cat heard it, and it didn't like it at all. "Don't kill me," it said, "have a pair of
boots made for me, and you'll see that you've done well, you're going to be rich, and we'd both be glad!"
1 2 3 10 100 1000 2024 3.14159 50% #hash @name http://example.org/a/b?c=d&e=f {"key": [1, 2, null]}
Der Müller hatte drei Söhne, eine Mühle, einen Esel und eine Katze. Le meunier avait trois fils; été, garçon.
Мельник имел трёх сыновей. 粉屋には三人の息子がいました。 제분업자에게는 세 아들이 있었습니다. \u0939\u093f\u0928\u094d\u0926\u0940
    int main(void)\n    {\n\t\treturn 0;\n    }\n\n\n  for (i = 0; i < n; i++)   x += y;
""" * 4


def train(tok, size, **more):
    tok.train_from_iterator(TEXT.split("\n"), trainers.BpeTrainer(vocab_size=size, show_progress=False, **more))
    return tok


def byte_level(size, split, normalizer=None, prefix_space=False, digits=False):
    tok = Tokenizer(models.BPE())
    if normalizer:
        tok.normalizer = normalizer
    if split is None:
        steps = [pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=True)]
    else:
        steps = [pre_tokenizers.Split(Regex(split), "isolated"),
                 pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)]
    if digits:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=False))
    tok.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tok.decoder = decoders.ByteLevel()
    return train(tok, size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))


def gpt2():
    tok = byte_level(400, None, prefix_space=True, digits=True)
    tok.add_special_tokens(["<|endoftext|>"])
    return tok


def qwen():
    """NFC, and added tokens with every flag."""
    tok = byte_level(420, QWEN_SPLIT, normalizers.NFC())
    tok.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>"), AddedToken("<|im_end|>x"),
                            AddedToken("<mask>", lstrip=True), AddedToken("<r>", rstrip=True),
                            AddedToken("<n\u00e9>", normalized=True), AddedToken("\u24b6")])
    tok.add_tokens([AddedToken("<think>"), AddedToken("donk", single_word=True, normalized=False),
                    AddedToken("both", lstrip=True, rstrip=True), AddedToken("e\u0301t", normalized=True),
                    AddedToken("   ", normalized=False)])
    return tok


def llama3():
    tok = byte_level(400, LLAMA_SPLIT)
    tok.add_special_tokens(["<|begin|>", "<|end|>"])
    b, e = tok.token_to_id("<|begin|>"), tok.token_to_id("<|end|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A <|end|>", pair="<|begin|> $A $B",
                                      special_tokens=[("<|begin|>", b), ("<|end|>", e)])])
    spec = json.loads(tok.to_str())
    spec["model"]["ignore_merges"] = True
    # Without its merges, a piece is found only as a whole word.
    spec["model"]["merges"] = spec["model"]["merges"][:-40]
    return Tokenizer.from_str(json.dumps(spec))


def other():
    return byte_level(380, OTHER_SPLIT, normalizers.NFKC())


def spm(normalized=False, scheme=None, fallback=True, size=400):
    """Llama 2's shape; with scheme, the newer form of it, where pre_tokenizer does the work."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=scheme != "first", byte_fallback=fallback))
    if scheme:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme == "first")
        tok.decoder = decoders.Metaspace(prepend_scheme=scheme) if not fallback else decoders.Sequence([
            decoders.Metaspace(prepend_scheme=scheme), decoders.ByteFallback(), decoders.Fuse()])
    else:
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                         decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    scratch = Tokenizer(models.BPE(unk_token="<unk>"))
    scratch.pre_tokenizer = pre_tokenizers.Metaspace()
    train(scratch, size + len(special), special_tokens=special, limit_alphabet=70)
    spec = json.loads(tok.to_str())
    trained = json.loads(scratch.to_str())
    spec["model"]["vocab"], spec["model"]["merges"] = trained["model"]["vocab"], trained["model"]["merges"]
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.add_special_tokens([AddedToken(t, normalized=normalized) for t in special[:3]])
    tok.add_tokens([AddedToken("<|user|>", rstrip=True, normalized=False)])
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tok.token_to_id("<s>"))])
    return tok


def pieces():
    """Every behavior of Split, with characters that may be unknown and are then dropped."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(";", "removed"), pre_tokenizers.Split(" ", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\p{P}"), "merged_with_previous"),
        pre_tokenizers.Split(Regex(r"\d"), "contiguous"),
        pre_tokenizers.Split(Regex(r"[a-z ]+"), "removed", invert=True)])
    tok.decoder = decoders.Fuse()
    train(tok, 300, limit_alphabet=60)
    tok.add_special_tokens(["<|end|>"])
    return tok


TOKENIZERS = {"gpt2": gpt2, "qwen": qwen, "llama3": llama3, "other": other, "llama2": spm,
              "llama2_normalized": lambda: spm(normalized=True), "metaspace_first": lambda: spm(scheme="first"),
              "metaspace_always": lambda: spm(scheme="always", fallback=False, size=300), "pieces": pieces}

FIXED = ["", " ", "  ", "a", " a", "a ", "\n", "\r\n \r\n", "  \n  x", "don't DON'T we'Ll '\u017f", "x'sy 's'S",
         "1234567 12,345.678 \u0663\u00b2\u2167", "e\u0301 \u1100\u1161\u11a8 A\u030a \u212b \ufb01 a\u0323\u0301\u0301",
         "\u00a0x\u3000y\u2003 z\u180ew\u0085", "\u0000\u0001\x1f\x7f", "\U0001f999\U0001f468\u200d\U0001f469\u200d\U0001f467",
         "a" * 300, " " * 70 + "x", "ab" * 100, "\u2581a\u2581\u2581b \u2581", "\ud55c\uad6d\uc5b4 \u65e5\u672c\u8a9e",
         "the cat  and   the    donkey", "int main(void)\n    {\n\t\treturn 0;\n    }\n", "\U000323af\U0002ebf0x",
         "donk donkx xdonk donk. <mask> x", "x \t<mask>\n<mask> <r>\n\n <mask>", "both  both\tx both"]


def texts(rng, special, n):
    bits = [lambda: chr(rng.randrange(32, 127)), lambda: rng.choice(" \t\n\r\u00a0\u3000"),
            lambda: rng.choice("0123456789\u00b2\u00bd\u2167\u0663"),
            lambda: rng.choice(["'s", "'S", "'ll", "'\u017f", "'re", "'", "t'"]),
            lambda: chr(rng.choice([rng.randrange(0xa0, 0x500), rng.randrange(0x300, 0x370),
                                    rng.randrange(0x900, 0x980), rng.randrange(0x3040, 0x3100),
                                    rng.randrange(0x1100, 0x1200), rng.randrange(0x1f300, 0x1f700)])),
            lambda: rng.choice(["the", " the", "cat", "donkey", " and", "\u2581", "\u00e9t", "e\u0301t", "M\u00fcller"]),
            lambda: rng.choice(special or ["<s>"]), lambda: rng.choice(special or ["<s>"])[:-1], lambda: " " * rng.randrange(1, 6)]
    for _ in range(n):
        weights = [rng.random() ** 2 + 0.01 for _ in bits]
        yield "".join(f() for f in rng.choices(bits, weights, k=rng.randrange(1, 16)))


def case(tok, text):
    """Missing keys are as `ids` (special, plain) or as `text` (out, out_skip)."""
    tok.encode_special_tokens = False
    ids = tok.encode(text, add_special_tokens=False).ids
    c = {"text": text, "ids": ids}
    special = tok.encode(text).ids
    tok.encode_special_tokens = True
    plain = tok.encode(text, add_special_tokens=False).ids
    for key, value in (("special", special), ("plain", plain)):
        if value != ids:
            c[key] = value
    # tokenizers 0.23 decodes a special token that is searched for in normalized text in its
    # normalized form, and does not skip it: a defect, not followed.
    added = {i: t.content for i, t in tok.get_added_tokens_decoder().items()}
    if any(i in added and tok.id_to_token(i) != added[i] for i in special):
        c["out"] = c["out_skip"] = None
        return c
    for key, skip in (("out", False), ("out_skip", True)):
        text_out = tok.decode(special, skip_special_tokens=skip)
        if text_out != text:
            c[key] = text_out
    return c


def load(name, make, retrain):
    path = OUT / name / "tokenizer.json" if name != "demo" else DEMO / "tokenizer.json"
    if name != "demo" and (retrain or not path.exists()):
        spec = json.loads(make().to_str())
        if name == "gpt2":   # the older way to write merges
            spec["model"]["merges"] = [" ".join(m) for m in spec["model"]["merges"]]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(spec, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    return Tokenizer.from_file(str(path)) if path.exists() else None


def main():
    golden = {}
    for name, make in [*TOKENIZERS.items(), ("demo", None)]:
        tok = load(name, make, "--retrain" in sys.argv[1:])
        if tok is None:
            continue
        special = [t.content for t in tok.get_added_tokens_decoder().values()]
        rng = random.Random(name)
        golden[name] = [case(tok, t) for t in FIXED + list(texts(rng, special, 40))]
    lines = ",\n".join(json.dumps({"tokenizer": n, **c}, ensure_ascii=True, separators=(",", ":"))
                       for n, cs in golden.items() for c in cs)
    (OUT / "golden.json").write_text("[\n" + lines + "\n]\n", encoding="ascii")


if __name__ == "__main__":
    main()
