"""Checks of a file's text: size, lengths of functions, include guard, layout, words."""
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
        yield from _comments(path, lines)
        yield from _functions(path, lines)
        yield from _parameters(path, text)
        if path.suffix == ".h":
            yield from _guard(path, lines)
    yield from _shares(root)
    yield from _persons(root)
    yield from _options(root)
    yield from _pages(root)


def _lines(path, lines):
    test = path.parts[0] == "tests"
    for no, line in enumerate(lines, 1):
        if not test and re.search(r"\bgetenv\s*\(", line) and str(path) not in table.GETENV:
            yield f"{path}:{no}: getenv outside {', '.join(sorted(table.GETENV))}"
        if not test and re.search(r"\b(strcpy|strcat|sprintf|gets|alloca)\s*\(", line):
            yield f"{path}:{no}: an unbounded string function"
        if line.rstrip() != line:
            yield f"{path}:{no}: space at the end of the line"


def _comments(path, lines):
    """Check comments, which clang-format leaves alone: they fit the columns, and no line of a drawing continues as
    prose, as after a formatter has wrapped it."""
    inside, before = False, None
    for no, line in enumerate(lines, 1):
        inside = inside or line.lstrip().startswith("/*")
        m = inside and re.match(r"[ \t]*(?:/\*|\*(?!/))( *)[^ ]", line)
        columns = len(line.expandtabs(8))
        if columns > table.COMMENT_COLUMNS and (inside or "/*" in line):
            yield f"{path}:{no}: a comment of {columns} columns (at most {table.COMMENT_COLUMNS})"
        if before and m and len(m[1]) <= 1:
            yield f"{path}:{no}: a drawing that was wrapped? its line {no - 1} goes on at the margin"
        before = m if m and len(m[1]) >= 3 and columns >= table.DRAWING_IS_FULL else None
        if "*/" in line:
            inside, before = False, None


def _functions(path, lines):
    """Find functions: a body is between braces in the first column, which clang-format guarantees."""
    start = None
    for no, line in enumerate(lines, 1):
        if line == "{":
            start = no
        elif line == "}" and start is not None:
            if no - start - 1 > table.MAX_FUNCTION_LINES:
                yield f"{path}:{start}: a function of {no - start - 1} lines (at most {table.MAX_FUNCTION_LINES})"
            start = None


def _parameters(path, text):
    """A function, or one that a macro defines, has few parameters, and a reason for a person is one of them."""
    for m in re.finditer(r"\bchar \*\w*why,\s*size_t\b", text):
        yield f"{path}:{_line(text, m)}: a buffer and its size for a reason: struct why (base/err.h)"
    for m in re.finditer(r"\)[ \t]*\\?\n?[ \t]*\{", text):
        at, depth, n = m.start(), 1, 1
        while depth and at:   # back to the parenthesis that opens
            at -= 1
            depth += {")": 1, "(": -1}.get(text[at], 0)
            n += depth == 1 and text[at] == ","
        name = re.search(r"\w*$", text[:at][-80:])[0]
        if name and n > table.MAX_PARAMETERS and not name.isupper() and (str(path), name) not in table.PARAMETERS:
            yield (f"{path}:{text.count(chr(10), 0, at) + 1}: {name} has {n} parameters (at most "
                   f"{table.MAX_PARAMETERS}): give it a struct with named members")


def _guard(path, lines):
    guard = "QUERN_" + re.sub(r"[^A-Za-z0-9]", "_", str(path.with_suffix(""))).upper() + "_H"
    template = any("Included once by each" in line for line in lines[:20])
    if not template and f"#ifndef {guard}" not in lines:
        yield f"{path}: header guard is not {guard}"


def lines_of_folders(root):
    """Return {folder: lines of .c, .h, .cu and .cuh in it and below} for the folders that the Makefile names."""
    may = table.may(root)
    n = Counter()
    for path in tree.sources(root):
        if tree.folder(path, may) in may:
            n[tree.folder(path, may)] += tree.read(root, path).count("\n")
    return n


def _shares(root):
    """No folder has too large a share of the code, and the table of folders in docs/ARCHITECTURE.md matches this
    tree."""
    n, doc = lines_of_folders(root), root / "docs/ARCHITECTURE.md"
    written = dict(re.findall(r"^\| `([^`]+)/` \|.*\| ([\d,]+) \|$", doc.read_text(), re.M)) if doc.exists() else {}
    for folder, lines in sorted(n.items()):
        if len(n) > 5 and lines > sum(n.values()) * table.MAX_FOLDER_SHARE:
            yield f"{folder}: {lines} of {sum(n.values())} lines of code: more than a fifth"
        if written and abs(int(written.get(folder, "0").replace(",", "")) - lines) > max(200, lines // 5):
            yield (f"docs/ARCHITECTURE.md: {folder} has {lines} lines, the table says {written.get(folder)} "
                   "(run: python3 tests/lint --lines)")


def write_lines(root):
    """Update the column of lines in docs/ARCHITECTURE.md, rounded to hundreds."""
    n, doc = lines_of_folders(root), root / "docs/ARCHITECTURE.md"
    doc.write_text(re.sub(r"^(\| `([^`]+)/` \|.*\| )[\d,]+( \|)$",
                          lambda m: f"{m.group(1)}{round(n[m.group(2)], -2):,}{m.group(3)}", doc.read_text(), flags=re.M))


def _options(root):
    """An option is a row of table.OPTIONS, the only place of its default."""
    path = root / table.OPTIONS
    rows = re.findall(r'OPT\("([^"]+)", (.*?)\),\n(?=\s*OPT\(|\s*/\*|\};)', path.read_text() if path.exists() else "", re.S)
    without = {name for name, rest in rows if ".def =" not in rest}
    one = {name for name, _ in rows} - without
    for path in tree.sources(root):
        if path.parts[0] == "tests" or str(path) in {table.OPTIONS, "base/option_table.h", "base/options.h"}:
            continue
        text = tree.read(root, path)
        for m in re.finditer(r"\bOPT(?:_NOT_BUILT)?\(|\bstruct opt \w+\[|\bgetopt\w*\(", text):
            yield f"{path}:{_line(text, m)}: an option is a row of {table.OPTIONS}"
        for m in re.finditer(r'\bopts_\w+_or\([^,]+, "([^"]+)"|\bopts_has\([^,]+, "([^"]+)"\)\s*\?[^;:]*:\s*["\d]', text):
            if (name := m[1] or m[2]) in one:
                yield f"{path}:{_line(text, m)}: a second default of --{name}, which has one in {table.OPTIONS}"


def _line(text, match):
    return text.count("\n", 0, match.start()) + 1


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


def _pages(root):
    """The prose of pages fits table.PAGE_COLUMNS; tables and blocks of code may be wider."""
    for path in tree.files(root):
        if path.suffix != ".md":
            continue
        fenced = False
        for no, line in enumerate(tree.read(root, path).splitlines(), 1):
            fenced ^= line.startswith("```")
            if len(line) > table.PAGE_COLUMNS and not fenced and not re.match(r" *\||    ", line):
                yield f"{path}:{no}: {len(line)} columns (at most {table.PAGE_COLUMNS} outside tables and code)"


MISSING = (f"clang-format {table.CLANG_FORMAT} is not here (another version lays code out differently): "
           "`make lint` installs it, or set CLANG_FORMAT to it")


def format_all(root):
    tool = _clang_format(root)
    if not tool:
        print(MISSING)
        return 1
    return subprocess.run([tool, "-i", *map(str, tree.sources(root))], cwd=root).returncode


def check_format(root):
    """Check that every source is formatted as the pinned version of clang-format does it."""
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
