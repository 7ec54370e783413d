#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/pre.json: the words into which the pre-tokenizers behind the names of
tokenizer.ggml.pre split texts, by the package tokenizers (made by 0.23) with the steps that the models'
tokenizer.json have.
    python3 tests/golden/make_pre_golden.py"""
import json
import random
import unicodedata
from pathlib import Path

from tokenizers import Regex
from tokenizers.pre_tokenizers import Digits, Punctuation, Sequence, Split

OUT = Path(__file__).resolve().parent / "tokenizer" / "pre.json"


def split(pattern):
    return Split(Regex(pattern), "isolated")


GPT2 = split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN2 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
U, L = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{U}*{L}+%s|[^\r\n\p{{L}}\p{{N}}]?{U}+{L}*%s|%s"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def cased_letters():
    """The letters with case of Unicode 9 or so, as DeepSeek LLM's pattern lists them one range after another; those of
    later versions, and the second half of Armenian and all of Georgian's modern letters, are not among them."""
    ranges, last = [], -2
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000 or not listed(c):
            continue
        if c == last + 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
        last = c
    return "".join(rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in ranges)


def listed(c):
    blocks = [(0x41, 0x556), (0x10A0, 0x10C5), (0x13A0, 0x13FD), (0x1C90, 0x24B5), (0x2C00, 0x2CF3), (0xA640, 0xABBF),
              (0xFB00, 0xFF5A), (0x10400, 0x1044F), (0x104B0, 0x104FB), (0x10C80, 0x10CF2), (0x118A0, 0x118DF),
              (0x1E900, 0x1E943)]
    return any(a <= c <= b for a, b in blocks) and unicodedata.category(chr(c)) in ("Lu", "Ll", "Lt")


PUNCT = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
ROWS = {
    "llama-bpe": [split(LLAMA3)], "dbrx": [split(LLAMA3)], "glm4": [split(LLAMA3)],
    "qwen2": [split(QWEN2)], "hunyuan": [split(QWEN2)],
    "qwen35": [split(SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")],
    "minicpm5": [split(r"\p{N}{1,3}"), split(SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+" + TAIL)],
    "gpt-2": [GPT2], "mpt": [GPT2], "olmo": [GPT2],
    "starcoder": [Digits(True), GPT2], "smollm": [Digits(True), GPT2], "command-r": [Digits(True), GPT2],
    "falcon": [Punctuation("contiguous"), GPT2, split("[0-9][0-9][0-9]")],
    "deepseek-llm": [split(r"[\r\n]"), split(rf"\s?[{cased_letters()}]+"),
                     split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"), split(HAN),
                     Digits(True)],
    "deepseek-coder": [split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN), Digits(True)],
    "deepseek-v3": [split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                    split(PUNCT + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|"
                          r"\s+(?!\S)|\s+")],
    "tekken": [split(CASED % ("", "", r"\p{N}"))],
    "gpt-4o": [split(CASED % (SHORT + "?", SHORT + "?", r"\p{N}{1,3}"))],
    "bloom": [split(BLOOM.replace("[.,", ".,").replace("\u060c])", "\u060c)"))],
    "viking": [split(BLOOM.replace("[.,", ".,").replace("\u060c])", "\u060c)")), Digits(True)],
    "seed-coder": [split(SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+")],
    "bailingmoe": [split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
                         r"\s+(?!\S)|\s+")],
}

FIXED = ["", " ", "   ", "\n\n \n  x", "don't DON'T we'Ll", "1234567 12,345.678 \u0663\u00b2\u2167", "Hello World HELLOworld camelCase",
         "x = y+z; // comment\n\tif (a<=b) {}\r\n", "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8", "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8", "e\u0301t\u00e9 \u00c9T\u00c9 na\u00efve",
         "\u0939\u093f\u0928\u094d\u0926\u0940 \u0964 \u0645\u0631\u062d\u0628\u0627\u060c", "\U0001f999\U0001f468\u200d\U0001f469 :-) ... !!", "a  b   c    ", "`$x^2 + |y|~z`", "http://example.org/a/b?c=d&e=f",
         "\u00a0x\u3000y", "\u1d00\u03a9\u2126\u212a", "\uff21\uff42\uff0c\uff5e", "<|x|> [INST] #tag @name", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!"]


def texts(rng, n):
    bits = [lambda: chr(rng.randrange(32, 127)), lambda: rng.choice("  \t\n\r\u00a0\u3000"), lambda: str(rng.randrange(10 ** rng.randrange(1, 9))),
            lambda: rng.choice(["'s", "'S", "'ll", "'re", "'", "t'", "The", " the", "CAT", "Mill", "//", " ==", "...", "\u3002"]),
            lambda: chr(rng.choice([rng.randrange(0xa0, 0x500), rng.randrange(0x300, 0x370), rng.randrange(0x900, 0x980),
                                    rng.randrange(0x3040, 0x3100), rng.randrange(0x4e00, 0x9fa5), rng.randrange(0xac00, 0xd7a3),
                                    rng.randrange(0x2010, 0x2040), rng.randrange(0x1f300, 0x1f600)]))]
    for _ in range(n):
        weights = [rng.random() ** 2 + 0.01 for _ in bits]
        yield "".join(f() for f in rng.choices(bits, weights, k=rng.randrange(1, 20)))


def main():
    lines = []
    for name, steps in ROWS.items():
        pre = steps[0] if len(steps) == 1 else Sequence(steps)
        rng = random.Random(name)
        for text in FIXED + list(texts(rng, 12)):
            words = [w for w, _ in pre.pre_tokenize_str(text)]
            lines.append(json.dumps({"pre": name, "text": text, "words": words}, ensure_ascii=True, separators=(",", ":")))
    OUT.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="ascii")


if __name__ == "__main__":
    main()
