#!/usr/bin/env python3
"""Draws random comments of each top folder, for a reader who did not write them.

    python3 tests/lint/draw_comments.py [--seed N] [--count N] [--root DIR] [FOLDER...]

The reader restates each comment in one sentence without opening the file.  A comment that is restated wrongly, or that
took two readings, is rewritten.  The same tree, seed and count give the same comments.  Folders are those at the top of
the tree (base, controller, tests, ...); without any, all that have comments.  Labels (short comments) and rulers
("---- options ----") are left out."""
import argparse
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import tree    # noqa: E402
import words   # noqa: E402


RULER = re.compile(r"-{3,}.*-{3,}")


def comments(root):
    """Return {top folder: [(path, line, words)]}, in the order of the files."""
    found = {}
    for path in tree.sources(root):
        for line, said in words.comments(tree.read(root, path)):
            if len(said) > words.LONGER_THAN and not RULER.fullmatch(said):
                found.setdefault(path.parts[0], []).append((path, line, said))
    return found


def draw(all_comments, seed, count):
    """Return at most `count` of a folder's comments, in their order; a folder's draw depends on no other folder."""
    return sorted(random.Random(seed).sample(all_comments, min(count, len(all_comments))))


def main():
    ap = argparse.ArgumentParser(description="draws random comments of each top folder")
    ap.add_argument("folders", nargs="*", metavar="FOLDER")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--count", type=int, default=10, help="comments per folder (default 10)")
    ap.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    args = ap.parse_args()
    found = comments(args.root)
    for folder in args.folders or sorted(found):
        if folder not in found:
            ap.error(f"{folder}: no top folder with comments; there are {', '.join(sorted(found))}")
        drawn = draw(found[folder], args.seed, args.count)
        print(f"{folder}: {len(drawn)} of {len(found[folder])} comments")
        for path, line, said in drawn:
            print(f"  {path}:{line}: {said}")


if __name__ == "__main__":
    main()
