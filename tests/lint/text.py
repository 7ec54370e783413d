"""What the text of a file shows: its size, its functions' lengths, its guard, its layout, its words."""
import os
import re
import shutil
import subprocess
from collections import Counter

import table
import tree


def check(root):
    for path in tree.sources(root):
        text = tree.read(root, path)
        lines = text.splitlines()
        if len(lines) > table.MAX_LINES:
            yield f"{path}: {len(lines)} lines: more than one idea? (at most {table.MAX_LINES})"
        yield from _lines(path, lines)
        yield from _functions(path, lines)
        if path.suffix == ".h":
            yield from _guard(path, lines)
    yield from _folders(root)
    yield from _shares(root)
    yield from _persons(root)


def _lines(path, lines):
    test = path.parts[0] == "tests"
    for no, line in enumerate(lines, 1):
        if not test and re.search(r"\bgetenv\s*\(", line) and str(path) not in table.GETENV:
            yield f"{path}:{no}: getenv outside {', '.join(sorted(table.GETENV))}"
        if not test and re.search(r"\b(strcpy|strcat|sprintf|gets|alloca)\s*\(", line):
            yield f"{path}:{no}: an unbounded string function"
        if line.rstrip() != line:
            yield f"{path}:{no}: space at the end of the line"


def _functions(path, lines):
    """A function's body is between braces in the first column: clang-format sees to that."""
    start = None
    for no, line in enumerate(lines, 1):
        if line == "{":
            start = no
        elif line == "}" and start is not None:
            if no - start - 1 > table.MAX_FUNCTION_LINES:
                yield f"{path}:{start}: a function of {no - start - 1} lines (at most {table.MAX_FUNCTION_LINES})"
            start = None


def _guard(path, lines):
    guard = "QUERN_" + re.sub(r"[^A-Za-z0-9]", "_", str(path.with_suffix(""))).upper() + "_H"
    template = any("Included once by each" in line for line in lines[:20])
    if not template and f"#ifndef {guard}" not in lines:
        yield f"{path}: header guard is not {guard}"


def _folders(root):
    count = Counter(p.parent for p in tree.files(root) if p.suffix in {".c", ".cc", ".cu", ".py"})
    for folder, n in sorted(count.items()):
        if n > table.MAX_FOLDER_SOURCES:
            yield f"{folder}: {n} sources in one folder (at most {table.MAX_FOLDER_SOURCES})"


def lines_of_folders(root):
    """{folder: lines of .c, .h, .cu and .cuh in it and below}, of the folders that the Makefile names."""
    may = table.may(root)
    n = Counter()
    for path in tree.sources(root):
        if tree.folder(path) in may:
            n[tree.folder(path)] += tree.read(root, path).count("\n")
    return n


def _shares(root):
    """No folder with too large a part of the code; the table of folders in docs/ARCHITECTURE.md is of this tree."""
    n, doc = lines_of_folders(root), root / "docs/ARCHITECTURE.md"
    written = dict(re.findall(r"^\| `([^`]+)/` \|.*\| ([\d,]+) \|$", doc.read_text(), re.M)) if doc.exists() else {}
    for folder, lines in sorted(n.items()):
        if len(n) > 5 and lines > sum(n.values()) * table.MAX_FOLDER_SHARE:
            yield f"{folder}: {lines} of {sum(n.values())} lines of code: more than a fifth"
        if written and abs(int(written.get(folder, "0").replace(",", "")) - lines) > max(200, lines // 5):
            yield (f"docs/ARCHITECTURE.md: {folder} has {lines} lines, the table says {written.get(folder)} "
                   "(run: python3 tests/lint --lines)")


def write_lines(root):
    """The column of lines in docs/ARCHITECTURE.md, to hundreds."""
    n, doc = lines_of_folders(root), root / "docs/ARCHITECTURE.md"
    doc.write_text(re.sub(r"^(\| `([^`]+)/` \|.*\| )[\d,]+( \|)$",
                          lambda m: f"{m.group(1)}{round(n[m.group(2)], -2):,}{m.group(3)}", doc.read_text(), flags=re.M))


def _persons(root):
    found, n_lines = [], 0
    for path in tree.files(root):
        if path.suffix not in tree.CODE | {".md"}:
            continue
        lines = tree.read(root, path).splitlines()
        n_lines += len(lines)
        found += [f"{path}:{no}" for no, line in enumerate(lines, 1) if re.search(table.PERSONS, line, re.I)]
    if len(found) * table.LINES_PER_PERSON > max(n_lines, table.LINES_PER_PERSON):
        yield (f"{len(found)} lines of {n_lines} speak of who, whom, whose, nobody or somebody (at most one in "
               f"{table.LINES_PER_PERSON}): name the sequence, the worker, the request; the last: "
               + ", ".join(found[-3:]))


MISSING = (f"clang-format {table.CLANG_FORMAT} is not here (another version lays code out differently): "
           "`make lint` installs it, or set CLANG_FORMAT to it")


def format_all(root):
    tool = _clang_format(root)
    if not tool:
        print(MISSING)
        return 1
    return subprocess.run([tool, "-i", *map(str, tree.sources(root))], cwd=root).returncode


def check_format(root):
    """Every source as clang-format of the pinned version leaves it."""
    tool = _clang_format(root)
    if not tool:
        yield MISSING
        return
    names = [str(p) for p in tree.sources(root)]
    for at in range(0, len(names), 200):
        got = subprocess.run([tool, "--dry-run", *names[at:at + 200]], cwd=root, capture_output=True, text=True)
        bad = re.findall(r"^([^\s:]+):(\d+):\d+: warning: code should be clang-formatted", got.stderr, re.M)
        for path, no in dict(reversed(bad)).items():
            yield f"{path}:{no}: not as clang-format leaves it (run: make format)"
        if got.returncode and not bad:
            yield f"{tool}: {got.stderr.strip()[:300]}"


def _clang_format(root):
    for name in (os.environ.get("CLANG_FORMAT"), root / "build/venv-lint/bin/clang-format", "clang-format-14",
                 "clang-format"):
        tool = name and shutil.which(str(name))
        if tool and table.CLANG_FORMAT in subprocess.run([tool, "--version"], capture_output=True, text=True).stdout:
            return tool
    return None


def check_commits(root):
    got = subprocess.run(["git", "log", f"--since={table.SUBJECTS_SINCE}", "--format=%H %s"], cwd=root,
                         capture_output=True, text=True)
    for line in got.stdout.splitlines():
        name, _, subject = line.partition(" ")
        if len(subject) > table.MAX_SUBJECT_COLUMNS and name not in table.SUBJECTS_EXCEPT:
            yield f"commit {name[:7]}: a subject of {len(subject)} columns (at most {table.MAX_SUBJECT_COLUMNS})"
