#!/usr/bin/env python3
"""Random regular expressions, with texts that Python's re matches and texts that it does not: regex.json.

    python3 tests/golden/make_regex_golden.py

Only what means the same in ECMA-262 and in Python: no line ends in texts, re.ASCII for the classes."""
import json
import random
import re
from pathlib import Path

ALPHABET = "abcA19_- .\u00e4\u4e2d\U0001f600\""
ATOMS = ["a", "b", "c", "ab", "A", "1", "-", ".", "[a-c]", "[^a-b]", "\\d", "\\w", "\\S", "\\W", "\u00e4", "[\u00e4-\u4e2d]",
         "\\.", "[\\w.-]", "[^\\d\u4e2d]", "\U0001f600", "\""]
REPEATS = ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "{12,40}"]


def pattern(r, depth, repeats=True):
    """repeats: no repeat within a repeat, of which Python's re tries all ways."""
    kind = r.randrange(8 if repeats else 6) if depth else 0
    if kind < 3:
        return r.choice(ATOMS)
    if kind < 5:
        return pattern(r, depth - 1, repeats) + pattern(r, depth - 1, repeats)
    if kind == 5:
        return "(" + pattern(r, depth - 1, repeats) + "|" + pattern(r, depth - 1, repeats) + ")"
    inner = pattern(r, depth - 1, False)
    return ("(?:" + inner + ")" if len(inner) > 1 else inner) + r.choice(REPEATS)


def mutated(r, text):
    chars = list(text)
    for _ in range(r.randrange(1, 3)):
        at = r.randrange(len(chars) + 1)
        what = r.randrange(3)
        if what and at < len(chars):
            del chars[at]
        if what != 1:
            chars.insert(at, r.choice(ALPHABET))
    return "".join(chars)


def texts(r, compiled, search):
    """Random ones, and changes of those that match: a walk from text to text."""
    match = compiled.search if search else compiled.fullmatch
    yes, no, known = [], [], [""]
    for _ in range(200):
        base = r.choice(known)
        text = mutated(r, base) if r.random() < 0.7 else "".join(r.choices(ALPHABET, k=r.randrange(6)))
        if text in yes or text in no or len(text) > 24:
            continue
        if match(text):
            known.append(text)
            yes.append(text)
        else:
            no.append(text)
            if r.random() < 0.2:
                known.append(text)
    return yes[:8], no[-8:]


def main():
    r = random.Random(17)
    cases = []
    while len(cases) < 400:
        search = r.random() < 0.3
        p = pattern(r, 4)
        if search and r.random() < 0.5:
            p = r.choice(["^", "", "^("]) + p
            p = p + (")" if p.startswith("^(") and p.count("(") > p.count(")") else "") + r.choice(["$", ""])
        try:
            compiled = re.compile(p, re.ASCII)
        except re.error:
            continue
        yes, no = texts(r, compiled, search)
        if yes and no:
            cases.append({"pattern": p, "search": search, "yes": yes, "no": no})
    out = Path(__file__).with_name("regex.json")
    out.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


main()
