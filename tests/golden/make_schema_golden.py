#!/usr/bin/env python3
"""Writes tests/golden/schema.json: random JSON schemas and texts, judged by the Python package jsonschema.

    make_schema_golden.py > tests/golden/schema.json

[{"schema": ..., "texts": [[text, valid], ...]}, ...]: draft 2020-12, without formats.  Members of a text are in the
order of the schema's properties.  Texts are random values, and what becomes of them by small changes; each
schema has at most six that are valid and six that are not."""
import json
import random
import sys

import jsonschema

SCHEMAS, TEXTS, TRIES = 400, 6, 400
NAMES = ["a", "b", "c", "ab", "x1"]
PATTERNS = ["^a", "b$", "^[a-c]+$", "1", "^x[0-9]$", "\\w{2}", "^$|é"]
STRINGS = ["", "a", "b", "ab", "abc", "x1", "é", "a\"b", "\t", "1", "😀", "b\\a"]
NUMBERS = [0, 1, -1, 2, 3, 5, 10, 12, -7, 100, 0.5, 1.5, -2.25, 0.1, 99.99, 7.125]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def value(self, depth):
        kind = self.r.randrange(8 if depth else 6)
        if kind < 2:
            return self.r.choice([None, True, False])
        if kind < 4:
            return self.r.choice(NUMBERS)
        if kind < 6:
            return self.r.choice(STRINGS)
        n = self.r.randrange(4)
        if kind == 6:
            return [self.value(depth - 1) for _ in range(n)]
        return {k: self.value(depth - 1) for k in NAMES if self.r.random() < 0.4}

    def scalars(self):
        r, s = self.r, {}
        kind = r.randrange(4)
        if kind == 0:
            s["type"] = r.choice(["integer", "number"])
            if r.random() < 0.5:
                s[r.choice(["minimum", "exclusiveMinimum"])] = r.choice(NUMBERS)
            if r.random() < 0.4:
                s[r.choice(["maximum", "exclusiveMaximum"])] = r.choice(NUMBERS)
            if r.random() < 0.2:
                s["multipleOf"] = r.choice([1, 2, 3, 5, 7, 10, 0.5, 0.25])
        elif kind == 1:
            s["type"] = "string"
            if r.random() < 0.4:
                s["pattern"] = r.choice(PATTERNS)
            if r.random() < 0.3:
                s["minLength"] = r.randrange(3)
            if r.random() < 0.3:
                s["maxLength"] = r.randrange(4)
        elif kind == 2:
            s["enum"] = [self.value(1) for _ in range(r.randrange(1, 4))]
        else:
            s["type"] = r.choice(TYPES) if r.random() < 0.7 else r.sample(TYPES, 2)
        return s

    def object(self, depth):
        r, s = self.r, {}
        if r.random() < 0.85:
            s["type"] = "object"
        names = [n for n in NAMES if r.random() < 0.5]
        if names:
            s["properties"] = {n: self.schema(depth - 1) for n in names}
        if r.random() < 0.5:
            s["required"] = r.sample(NAMES, r.randrange(1, 3))
        if r.random() < 0.4:
            s["additionalProperties"] = r.choice([False, False, self.schema(depth - 1)])
        if r.random() < 0.2:
            s["patternProperties"] = {r.choice(PATTERNS): self.schema(depth - 1)}
        if r.random() < 0.1:
            s["propertyNames"] = {"pattern": r.choice(PATTERNS)}
        if r.random() < 0.1:
            s["minProperties"] = r.randrange(3)
        if r.random() < 0.1:
            s["maxProperties"] = r.randrange(4)
        if r.random() < 0.15:
            s["dependentRequired"] = {r.choice(NAMES): [r.choice(NAMES)]}
        return s

    def array(self, depth):
        r, s = self.r, {}
        if r.random() < 0.85:
            s["type"] = "array"
        if r.random() < 0.3:
            s["prefixItems"] = [self.schema(depth - 1) for _ in range(r.randrange(1, 3))]
        if r.random() < 0.7:
            s["items"] = r.choice([False, self.schema(depth - 1), self.schema(depth - 1)])
        if r.random() < 0.3:
            s["minItems"] = r.randrange(3)
        if r.random() < 0.3:
            s["maxItems"] = r.randrange(4)
        if r.random() < 0.2:
            s["contains"] = self.schema(0)
        return s

    def schema(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.3:
            return self.scalars()
        kind = r.randrange(10)
        if kind < 4:
            return self.object(depth)
        if kind < 6:
            return self.array(depth)
        parts = [self.schema(depth - 1) for _ in range(r.randrange(1, 4))]
        if kind == 6:
            return {**self.scalars(), "not": parts[0]}
        if kind == 7 and len(parts) > 1:
            return {"if": parts[0], "then": parts[1], **({"else": parts[2]} if len(parts) > 2 else {})}
        return {r.choice(["anyOf", "oneOf", "allOf"]): parts}

    def fit(self, schema, depth=0):
        """A value that may satisfy the schema: follows its keywords, most of the time."""
        r = self.r
        if not isinstance(schema, dict) or depth > 4 or r.random() < 0.1:
            return self.value(2)
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                return self.fit(r.choice(schema[key]), depth + 1)
        if "enum" in schema:
            return r.choice(schema["enum"])
        if "if" in schema:
            return self.fit(schema[r.choice(["if", "then"])], depth + 1)
        kind = schema.get("type")
        if kind == "object" or "properties" in schema or "required" in schema:
            names = list(schema.get("properties", {}))
            names += [n for n in schema.get("required", []) + NAMES if n not in names]
            return {n: self.fit(schema.get("properties", {}).get(n, {}), depth + 1) for n in names
                    if r.random() < (0.9 if n in schema.get("required", []) else 0.35)}
        if kind == "array" or "items" in schema:
            prefix = schema.get("prefixItems", [])
            n = r.randrange(schema.get("minItems", 0), schema.get("minItems", 0) + 4)
            return [self.fit(prefix[i] if i < len(prefix) else schema.get("items", {}), depth + 1) for i in range(n)]
        if kind in ("integer", "number"):
            return r.choice(NUMBERS)
        return r.choice(STRINGS) if kind == "string" else self.value(1)


def whole_reals(v):
    """1.0 is an integer, which a grammar does not write so."""
    if isinstance(v, float):
        return v == int(v)
    return any(map(whole_reals, v.values() if isinstance(v, dict) else v if isinstance(v, list) else []))


def case(seed):
    maker = Maker(seed)
    schema = maker.schema(3)
    validator = jsonschema.Draft202012Validator(schema)
    found = {True: [], False: []}
    for _ in range(TRIES):
        value = maker.fit(schema) if maker.r.random() < 0.8 else maker.value(3)
        valid, text = validator.is_valid(value), json.dumps(value, ensure_ascii=False)
        if not whole_reals(value) and len(found[valid]) < TEXTS and [text, valid] not in found[valid]:
            found[valid].append([text, valid])
    return {"schema": schema, "texts": found[True] + found[False]}


def main():
    cases = [case(seed) for seed in range(SCHEMAS)]
    sys.stdout.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
