#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/spm_*/tokenizer.model, small SentencePiece models of every kind that the C
tokenizer supports, and spm.json: the ids of the package sentencepiece (made by 0.2.3) for texts that are
hard to split.
    python3 tests/golden/make_spm_golden.py [--retrain]
Without --retrain the models are kept, and spm.json comes out the same, byte for byte."""
import io
import json
import random
import sys
from pathlib import Path

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb


TEXT_FROM = Path(__file__).resolve().parent / "make_tokenizer_golden.py"
OUT = Path(__file__).resolve().parent / "tokenizer"

# From, to: code points in hexadecimal.  Longest match, deletion, one to many, white space.
RULES = [("FB01", "66 69"), ("41 30A", "C5"), ("41", "61"), ("42", "62"), ("43 44 45", "63 64 65"), ("43", "63"),
         ("200B", ""), ("A0", "20"), ("3000", "20"), ("9", "20"), ("BC", "20 31 2044 34"), ("D", ""), ("FF21", "41")]


def training_text():
    """The text of the other tokenizers of tests/golden, which needs no import of their packages."""
    source = TEXT_FROM.read_text(encoding="utf-8")
    text = source.split('TEXT = """', 1)[1].split('"""', 1)[0]
    return [line for line in text.encode().decode("utf-8").split("\n") if line.strip()] * 4


def train(**options):
    model = io.BytesIO()
    rules = options.pop("rules", None)
    path = Path("/tmp/quern-spm-rules.tsv")
    if rules:
        path.write_text("".join(f"{a}\t{b}\n" for a, b in rules), encoding="utf-8")
        options["normalization_rule_tsv"] = str(path)
    else:
        options["normalization_rule_name"] = "identity"
    spm.SentencePieceTrainer.train(sentence_iterator=iter(training_text()), model_writer=model,
                                   minloglevel=2, num_threads=1, **options)
    m = pb.ModelProto()
    m.ParseFromString(model.getvalue())
    m.normalizer_spec.normalization_rule_tsv = ""
    return m


def unused(m, every):
    """Marks some of the pieces that others are made of."""
    for i, p in enumerate(m.pieces):
        if p.type == p.NORMAL and i % every == 0 and len(p.piece) > 1:
            p.type = p.UNUSED
    return m


def same_scores(m, width):
    """As of pieces that were added later: several have one score, and the leftmost pair wins."""
    for i, p in enumerate(m.pieces):
        if p.type == p.NORMAL:
            p.score = float(-(i // width))
    return m


USER = ["<|user|>", "donkey", "\u2581and\u2581", "  ", "\u00e9t"]
MODELS = {
    "spm_bpe": lambda: train(model_type="bpe", vocab_size=500, byte_fallback=True, remove_extra_whitespaces=False,
                             character_coverage=0.98),
    "spm_bpe_user": lambda: train(model_type="bpe", vocab_size=460, byte_fallback=True, add_dummy_prefix=False,
                                  user_defined_symbols=USER, rules=RULES, control_symbols=["<|im_start|>"]),
    "spm_bpe_unused": lambda: unused(train(model_type="bpe", vocab_size=200, character_coverage=0.98), 3),
    "spm_bpe_ties": lambda: same_scores(train(model_type="bpe", vocab_size=500, byte_fallback=True), 7),
    "spm_bpe_unused_ties": lambda: unused(same_scores(train(model_type="bpe", vocab_size=300, character_coverage=0.98), 60), 2),
    "spm_unigram_ties": lambda: same_scores(train(model_type="unigram", vocab_size=190, character_coverage=0.98), 60),
    "spm_unigram": lambda: train(model_type="unigram", vocab_size=200, rules=RULES, character_coverage=0.98,
                                 user_defined_symbols=USER),
    "spm_unigram_bytes": lambda: unused(train(model_type="unigram", vocab_size=420, byte_fallback=True,
                                              remove_extra_whitespaces=False, character_coverage=0.98), 5),
    "spm_suffix": lambda: train(model_type="unigram", vocab_size=180, treat_whitespace_as_suffix=True,
                                character_coverage=0.98, bos_piece="[B]", eos_piece="[E]"),
}

FIXED = ["", " ", "  ", "   a  b   ", "a", " a", "a ", "\n", "\r\n \r\n", "don't", "\u2581a\u2581\u2581b \u2581", "A\u030aB CDE CD C",
         "\ufb01x \u00bc\u00bc \u200b x\u200b", "\u00a0x\u3000y\t z", "<s>x</s><unk> <0x0A>", "<|user|>donkeydonkey and and the",
         "  \u00e9t\u00e9  ", "x\ufffdy", "\U0001f999\U0001f999 \U0001f468\u200d\U0001f469", "\ud55c\uad6d\uc5b4 \u65e5\u672c\u8a9e", "a" * 200,
         " " * 70 + "x", "the cat  and   the    donkey", "\u0001\u007f", "ThedonkeyAndtheCAT"]


def texts(rng, n):
    bits = [lambda: chr(rng.randrange(32, 127)), lambda: rng.choice("  \t\n\r\u00a0\u3000"),
            lambda: rng.choice(["the", " the", "cat", "donkey", " and", " and ", "\u2581", "\u00e9t", "M\u00fcller", "mill", "er", "CDE"]),
            lambda: chr(rng.choice([rng.randrange(0xa0, 0x500), rng.randrange(0x3040, 0x3100), rng.randrange(0xac00, 0xad00),
                                    rng.randrange(0x1f300, 0x1f700)])),
            lambda: rng.choice(USER + ["<s>", "<|im_start|>", "\ufb01", "\u200b", "A\u030a"]), lambda: " " * rng.randrange(1, 6)]
    for _ in range(n):
        weights = [rng.random() ** 2 + 0.01 for _ in bits]
        yield "".join(f() for f in rng.choices(bits, weights, k=rng.randrange(1, 24)))


def main():
    lines = []
    for name, make in MODELS.items():
        path = OUT / name / "tokenizer.model"
        if "--retrain" in sys.argv[1:] or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(make().SerializeToString(deterministic=True))
        tok = spm.SentencePieceProcessor(model_file=str(path))
        rng = random.Random(name)
        # Runs of common letters: one unused piece is made in several ways.
        runs = ["".join(rng.choice("thersndoa ") for _ in range(60)) for _ in range(30 * ("unused" in name))]
        for text in FIXED + list(texts(rng, 60)) + runs:
            lines.append(json.dumps({"tokenizer": name, "text": text, "ids": tok.encode(text)}, ensure_ascii=True,
                                    separators=(",", ":")))
    (OUT / "spm.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="ascii")


if __name__ == "__main__":
    main()
