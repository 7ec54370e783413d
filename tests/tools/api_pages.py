#!/usr/bin/env python3
"""Writes the tables of fields in docs/apis/*.md, from the service's own description of itself.

    api_pages.py ADDRESS            write the tables; ADDRESS: http://127.0.0.1:8080 of a running service
    api_pages.py ADDRESS --check    print the pages that differ; exit status 1

A page has the table of a request between two lines:

    <!-- fields: POST /v1/completions -->
    <!-- end -->
"""
import argparse
import json
import pathlib
import re
import sys
import urllib.request

PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "apis"
PLACE = re.compile(r"(<!-- fields: (\w+) (\S+) -->\n)(.*?)(<!-- end -->)", re.S)
ORDER = "honoured", "only neutral values", "ignored", "refused"


def type_of(schema):
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(v)}`" for v in schema["enum"])
    types = schema.get("type", [])
    text = " or ".join([types] if isinstance(types, str) else types)
    if "minimum" not in schema:
        return text
    low, high = schema["minimum"], schema["maximum"]
    bounds = ("" if low <= -2**31 else f"{low}") + ".." + ("" if high >= 2**31 - 1 else f"{high}")
    return text if bounds == ".." else f"{text}, {bounds}"


def table(operation):
    content = operation["requestBody"]["content"]
    fields = content["application/json"]["schema"]["properties"]
    lines = ["| field | value | | |", "|---|---|---|---|"]
    for name, schema in sorted(fields.items(), key=lambda f: ORDER.index(f[1]["x-quern"])):
        about = schema.get("description", "").replace("|", "\\|")
        lines.append(f"| `{name}` | {type_of(schema)} | {schema['x-quern']} | {about} |")
    return "\n".join(lines) + "\n"


def pages(document):
    """Return (path, current text, correct text) of each page."""
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text()
        yield path, text, PLACE.sub(
            lambda m: m[1] + table(document["paths"][m[3]][m[2].lower()]) + m[5], text)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("address")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    try:
        with urllib.request.urlopen(a.address + "/openapi.json") as f:
            document = json.load(f)
    except OSError as e:
        sys.exit(f"api_pages.py: {a.address}: {e}; start a service with `quern serve MODEL`")
    differ = [(path, text) for path, old, text in pages(document) if old != text]
    for path, text in differ:
        print(("differs: " if a.check else "written: ") + path.name)
        if not a.check:
            path.write_text(text)
    sys.exit(a.check and len(differ) > 0)


if __name__ == "__main__":
    main()
