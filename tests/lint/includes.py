"""Includes: paths from the root, dependencies only downward, pure folders without sockets, threads, HTTP, SQLite."""
import re
from pathlib import Path

import table
import tree

INCLUDE = re.compile(r'\s*#\s*include\s+(["<])([^">]+)[">]')


def check(root):
    may = table.may(root)
    for path in tree.sources(root):
        mine = tree.folder(path, may)
        for no, line in enumerate(tree.read(root, path).splitlines(), 1):
            m = INCLUDE.match(line)
            if not m:
                continue
            target = m.group(2)
            if m.group(1) == "<":
                if mine in table.PURE and re.match(table.IMPURE, target):
                    yield f"{path}:{no}: {mine} is pure and must not include <{target}>"
            elif not (root / target).exists():
                if not _generated(target):
                    yield f'{path}:{no}: include "{target}" is not a path from the root'
            else:
                theirs = tree.folder(Path(target), may)
                # The emulator's versions of GPU operations belong to the tests; QUERN_CUDASIM selects them.
                if mine == "kernels" and target.startswith("tests/cudasim/"):
                    continue
                if mine in may and theirs != mine and theirs not in may[mine]:
                    yield f"{path}:{no}: {mine} must not include {theirs}"


def _generated(target):
    return target == "cuda_build.h"
