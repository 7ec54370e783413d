"""Calls between files, read from the objects with nm. Calls between folders go only downward and have no cycle; a cycle
within a folder is allowed only among files that include the same *_impl.h."""
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import table
import tree

SOURCES = {".c", ".cu"}


def check(root, objects):
    may = table.may(root)
    sources = [p for p in tree.sources(root) if p.suffix in SOURCES and tree.folder(p, may) in may]
    defined, used = _symbols(root, objects, sources)
    missing = [p for p in sources if p not in used and p.suffix == ".c"]
    if missing:
        yield f"{missing[0]}: not compiled ({len(missing)} such files): build first (make objects)"
        return
    calls = defaultdict(lambda: defaultdict(set))   # file -> file -> names
    for path, names in used.items():
        for name in names:
            if name in defined and defined[name] != path:
                calls[path][defined[name]].add(name)
    yield from _arrows(calls, may)
    yield from _circles_of_folders(calls, may)
    yield from _circles_of_files(root, calls)


def _symbols(root, objects, sources):
    """Return ({name: file that defines it}, {file: names that it uses from other files})."""
    defined, used = {}, {}
    of = {}
    for path in sources:
        for name in (objects / path.with_suffix(".o"), objects / "sim" / path.with_suffix(".o")):
            if name.exists():
                of[str(name)] = path
                break
    if not of:
        return defined, used
    got = subprocess.run(["nm", "-A", "-g", "-C", *of], capture_output=True, text=True, check=True)
    for line in got.stdout.splitlines():
        m = re.match(r"(.*\.o):\s*[0-9a-f]*\s+([A-Za-z])\s+([\w~].*)$", line)
        if not m:
            continue
        path, kind, name = of[m.group(1)], m.group(2), re.sub(r"\(.*", "", m.group(3))   # C++: without arguments
        used.setdefault(path, set())
        if kind in "Uw":
            used[path].add(name)
        elif kind not in "VWuv" and name != "main":     # inline functions and templates are in many objects
            defined[name] = path
    for path in of.values():
        used.setdefault(path, set())
    return defined, used


def _arrows(calls, may):
    for path, to in sorted(calls.items()):
        mine = tree.folder(path, may)
        for other, names in sorted(to.items()):
            theirs = tree.folder(other, may)
            if theirs != mine and theirs not in may[mine]:
                yield f"{path}: {mine} must not call {theirs} ({other}: {_some(names)})"


def _circles_of_folders(calls, may):
    graph = defaultdict(set)
    for path, to in calls.items():
        for other in to:
            if tree.folder(other, may) != tree.folder(path, may):
                graph[tree.folder(path, may)].add(tree.folder(other, may))
    for circle in _circles(graph):
        yield f"folders that call each other in a circle: {', '.join(circle)}"


def _circles_of_files(root, calls):
    for folder in sorted({p.parent for p in calls}):
        graph = {p: {o for o in to if o.parent == folder} for p, to in calls.items() if p.parent == folder}
        for circle in _circles(graph):
            shared = set.intersection(*(_impl_headers(root, p) for p in circle))
            if not shared:
                ties = [f"{p.name} -> {o.name} ({_some(calls[p][o])})" for p in circle for o in circle if o in calls[p]]
                yield f"{folder}: files that call each other in a circle, and share no _impl.h: " + ", ".join(ties)


def _impl_headers(root, path, seen=None):
    """Return the *_impl.h (in CUDA also *.cuh) that a file includes, directly or through another header."""
    seen = set() if seen is None else seen
    out = set()
    for target in re.findall(r'^\s*#\s*include\s+"([^"]+)"', tree.read(root, path), re.M):
        if target in seen or not (root / target).exists():
            continue
        seen.add(target)
        if target.endswith(("_impl.h", "_impl.cuh")):
            out.add(target)
        out |= _impl_headers(root, Path(target), seen)
    return out


def _circles(graph):
    """Return the strongly connected components of more than one node (R. Tarjan, 1972), each sorted."""
    index, low, stack, out, on = {}, {}, [], [], set()

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in graph.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = []
            while True:
                w = stack.pop()
                on.discard(w)
                part.append(w)
                if w == v:
                    break
            if len(part) > 1:
                out.append(sorted(part))

    for v in sorted(graph):
        if v not in index:
            visit(v)
    return sorted(out)


def _some(names):
    names = sorted(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
