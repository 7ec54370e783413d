#!/usr/bin/env python3
"""Writes docs/apis/routes.md: every path that HTTP serves, from the service's own description of itself.

    api_routes.py ADDRESS    write the page; ADDRESS: http://127.0.0.1:8080 of a running service
"""
import json
import pathlib
import sys
import urllib.request

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "apis" / "routes.md"
HEAD = """# Every path

This page lists every path that HTTP serves, by API. A path with `GET` also answers `HEAD`. "Refused" paths belong to
other servers; the reply says what to use instead. The [pages of the APIs](README.md) have the fields of requests, and
[PROTOCOL.md](../PROTOCOL.md#http) has what all APIs share. `GET /openapi.json` has all of this for programs.

Written by `tests/tools/api_routes.py`; a test compares it with the service, and with its table of routes.
"""


def page(document):
    groups = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method in ("get", "post", "delete", "put", "patch"):
                tag = (operation.get("tags") or ["Service"])[0]
                groups.setdefault(tag, []).append((path, method.upper(), operation["summary"]))
    out = [HEAD]
    for tag, rows in groups.items():
        out.append(f"## {tag}\n\n| path | method | |\n|---|---|---|")
        out += [f"| `{path}` | {method} | {summary} |" for path, method, summary in rows]
        out.append("")
    return "\n".join(out).rstrip() + "\n"


if __name__ == "__main__":
    with urllib.request.urlopen(sys.argv[1] + "/openapi.json") as f:
        PAGE.write_text(page(json.load(f)))
