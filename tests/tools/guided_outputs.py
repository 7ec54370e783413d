#!/usr/bin/env python3
"""Structured outputs at temperature 1, each checked without the grammar engine.

    tests/tools/guided_outputs.py [--outputs 100000] [--model DIR ...]

Schemas are checked by jsonschema, regular expressions by Python's re, grammars by small parsers here.  An output
that ends by its length is counted separately, because it is incomplete.  Exit status 1: an output violates its
constraint, or fewer than half of all outputs ended by themselves.
"""
import argparse
import ast
import datetime
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from service import DEMO, Service  # noqa: E402

MAX_TOKENS = 160
N = 32              # outputs of a job
UNDER_WAY = 8       # jobs in flight
RANDOM = ["llama3", "qwen3-tied"]   # tiny models of make_model.py with random weights


FORMATS = jsonschema.FormatChecker()


@FORMATS.checks("date", ValueError)
def is_date(value):
    """RFC 3339 allows the year 0000, Python does not; the calendar repeats after 400 years."""
    if isinstance(value, str):
        datetime.date.fromisoformat(value.replace("0000-", "0400-", 1))
    return True


def schema(**of):
    checker = jsonschema.Draft202012Validator(of, format_checker=FORMATS)

    def check(text):
        value = json.loads(text)
        checker.validate(value)
    return {"guided_json": of}, check


def pattern(of, python=None):
    compiled = re.compile(python or of)

    def check(text):
        assert compiled.fullmatch(text), "it does not match"
    return {"guided_regex": of}, check


def grammar(of, check):
    return {"guided_grammar": of}, check


def choice(*of):
    def check(text):
        assert text in of, "it is none of the choices"
    return {"guided_choice": list(of)}, check


def arithmetic(text):
    """Sums and products of integers: the same language as Python's, except for leading zeros."""
    assert re.fullmatch(r"[0-9+*() -]+", text), "other characters"
    ast.parse(re.sub(r"\b0+(?=\d)", "", text), mode="eval")


def balanced(text):
    depth = 0
    for c in text:
        depth += {"[": 1, "]": -1, ".": 0}[c]
        assert depth >= 0, "closed too early"
    assert depth == 0, "not closed"


def csv(text):
    rows = text.split("\n")
    assert 1 <= len(rows) <= 4, "rows"
    for row in rows:
        assert re.fullmatch(r"[a-z]{1,6}(,[0-9]{1,4}){2}", row), row


def settings(text):
    for line in text.split(";"):
        key, value = line.split(" = ")
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,7}", key), key
        assert value in ("on", "off") or re.fullmatch(r"-?\d{1,3}(\.\d{1,3})?", value), value


def short(n):
    return {"type": "string", "maxLength": n}


TREE = {"type": "object", "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 9},
                                         "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
        "required": ["v", "next"], "additionalProperties": False}

FORMS = {
    "object": schema(type="object", properties={"name": short(12), "age": {"type": "integer", "minimum": 0, "maximum": 130},
                                                "member": {"type": "boolean"}},
                     required=["name", "age", "member"], additionalProperties=False),
    "optional": schema(type="object", properties={"a": {"type": "null"}, "b": short(5), "c": {"enum": [1, "two", None, [3]]}},
                       additionalProperties=False),
    "array": schema(type="array", minItems=1, maxItems=4, items={"type": "integer", "minimum": -99, "maximum": 99}),
    "tuple": schema(type="array", prefixItems=[{"type": "boolean"}, short(4), {"const": {"k": [1]}}], items=False,
                    minItems=3),
    "nested": schema(type="object", properties={"list": {"type": "array", "maxItems": 3, "items": {
        "type": "object", "properties": {"x": {"enum": ["red", "green"]}, "y": {"type": "integer", "minimum": 0, "maximum": 999}},
        "required": ["x", "y"], "additionalProperties": False}}}, required=["list"], additionalProperties=False),
    "any of": schema(anyOf=[{"type": "integer", "minimum": 100, "maximum": 200}, short(6), {"const": False}]),
    "pattern": schema(type="string", pattern="^[A-Z]{2}-[0-9]{3,5}$"),
    "date": schema(type="string", format="date"),
    "uuid": schema(type="string", format="uuid"),
    "ipv4": schema(type="string", format="ipv4"),
    "keys": schema(type="object", patternProperties={"^k[0-9]$": {"type": "integer", "minimum": 0, "maximum": 9}},
                   additionalProperties=False, maxProperties=3),
    "tree": schema(**{"$defs": {"tree": TREE}, "$ref": "#/$defs/tree"}),
    "unicode": schema(type="string", minLength=3, maxLength=5),
    "words": pattern(r"[a-z]{2,7}( [a-z]{2,7}){1,4}\."),
    "time": pattern(r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"),
    "mail": pattern(r"[a-z][a-z0-9]{1,7}@[a-z]{3,8}\.(com|org|net)"),
    "letters": pattern(r"[^\x00-\x7f]{2,4}|\w{3}|[é-ü]x?"),
    "classes": pattern(r"(?:\d{1,3}|\s\S|[^a-z]{2})!"),
    "choice": choice("yes", "no", "not at all", "perhaps", "größer"),
    "arithmetic": grammar('root ::= term (" + " term){0,3}\nterm ::= number (" * " number){0,2} | "(" root ")"\n'
                          'number ::= [0-9]{1,3}', arithmetic),
    "balanced": grammar('root ::= item{1,4}\nitem ::= "." | "[" item{0,2} "]"', balanced),
    "csv": grammar('root ::= row ("\\n" row){0,3}\nrow ::= [a-z]{1,6} ("," [0-9]{1,4}){2}', csv),
    "settings": grammar('start: setting (";" setting)~0..2\nsetting: KEY " = " value\nvalue: "on" | "off" | NUMBER\n'
                        'KEY: /[A-Za-z_][A-Za-z0-9_]{0,7}/\nNUMBER: /-?[0-9]{1,3}(\\.[0-9]{1,3})?/', settings),
}


class Counts:
    def __init__(self):
        self.stop = self.length = 0
        self.wrong = []     # (constraint, text, reason) of some invalid outputs
        self.n_wrong = 0

    def take(self, name, check, output):
        if output["finish_reason"] == "length":
            self.length += 1
            return
        try:
            assert output["finish_reason"] == "stop", output["finish_reason"]
            check(output["text"])
            self.stop += 1
        except Exception as e:  # any error of a checker
            self.n_wrong += 1
            if len(self.wrong) < 20:
                self.wrong.append((name, output["text"], str(e).split("\n")[0]))

    def all(self):
        return self.stop + self.length + self.n_wrong


def generate(service, n_outputs, seed=0, forms=FORMS):
    """Generate about n_outputs, cycling through the constraints; return {constraint: counts}."""
    counts = {name: Counts() for name in forms}
    jobs, names = [], list(forms)
    with service.client() as c:
        for k in range(-(-n_outputs // N)):
            name = names[k % len(names)]
            job = c.submit(f"{k}: the {name} is ", stream=False, **forms[name][0], n=N, temperature=1.0, top_p=1.0, top_k=0,
                           seed=seed + k, max_tokens=MAX_TOKENS)
            jobs.append((name, job))
            if len(jobs) == UNDER_WAY:
                finish(counts, forms, *jobs.pop(0))
        for name, job in jobs:
            finish(counts, forms, name, job)
    return counts


def finish(counts, forms, name, job):
    for output in job.done(600).outputs:
        counts[name].take(name, forms[name][1], output)


def random_model(name, folder):
    out = Path(folder) / name
    subprocess.run([sys.executable, ROOT / "tests" / "tools" / "make_model.py", out, "--tiny", name], check=True,
                   stdout=subprocess.DEVNULL)
    return out


def report(model, counts, seconds):
    total = sum(c.all() for c in counts.values())
    print(f"{model}: {total} outputs in {seconds:.0f} s")
    for name, c in counts.items():
        print(f"  {name:12} {c.stop:7} whole {c.length:7} cut by length {c.n_wrong:4} wrong")
        for _, text, why in c.wrong:
            print(f"    {text!r}: {why}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--outputs", type=int, default=100000)
    p.add_argument("--model", action="append", help="a model's directory (default: the demo model and random ones)")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    stop = length = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        models = a.model or [DEMO, *(random_model(m, folder) for m in RANDOM)]
        for model in models:
            service, begin = Service(model, "--max-seqs", "128"), time.monotonic()
            try:
                counts = generate(service, -(-a.outputs // len(models)), a.seed)
            finally:
                service.stop()
            report(model, counts, time.monotonic() - begin)
            stop += sum(c.stop for c in counts.values())
            length += sum(c.length for c in counts.values())
            wrong += sum(c.n_wrong for c in counts.values())
    print(f"all: {stop} whole, {length} cut by length, {wrong} wrong")
    return 1 if wrong or stop < length else 0


if __name__ == "__main__":
    sys.exit(main())
