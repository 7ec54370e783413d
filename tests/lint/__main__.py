#!/usr/bin/env python3
"""Checks the style rules that a script can check; `make lint` calls it.

    python3 tests/lint [--root DIR] [--objects DIR] [--no-format]

--objects: the compiled objects (build/obj); without it, calls between files are not checked.
Prints file:line and the rule of each violation; exit status 1 if there is one."""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import families  # noqa: E402
import includes  # noqa: E402
import logs      # noqa: E402
import objects   # noqa: E402
import text      # noqa: E402
import words     # noqa: E402


def main():
    ap = argparse.ArgumentParser(description="checks the house rules (docs/CONTRIBUTING.md)")
    ap.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    ap.add_argument("--objects", type=Path)
    ap.add_argument("--no-format", action="store_true", help="do not compare with clang-format's layout")
    ap.add_argument("--format", action="store_true", help="lay every source out, and check nothing")
    ap.add_argument("--lines", action="store_true", help="write the folders' lines into docs/ARCHITECTURE.md")
    args = ap.parse_args()
    if args.lines:
        return text.write_lines(args.root)
    if args.format:
        return text.format_all(args.root)
    found = [*includes.check(args.root), *text.check(args.root), *words.check(args.root), *logs.check(args.root), *families.check(args.root),
             *text.check_commits(args.root)]
    if not args.no_format:
        found += text.check_format(args.root)
    if args.objects:
        found += objects.check(args.root, args.objects)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
