"""Commands of the pages of docs/: read from the pages, run, and checked against each program's --help.

In a page with fences, all ```sh blocks are run in order by bash, in one folder that has only models/demo, with the
programs in PATH.  A block that begins with `quern serve` starts the page's service and replaces the previous service.
A ```text block after a ```sh block is its expected output; there `..` stands for any text, and a line `..` for any
lines.  A ```python block is a program.  A first line `# needs REASON` means that a block cannot be run here:

    ```sh
    # needs a GPU
    quern serve MODEL --device cuda:0
    ```

Such blocks, and the indented blocks of all other pages, are only parsed by bash.  On every page, each option after a
`quern COMMAND` must be in the command's --help."""

import functools
import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

from service import BIN, ROOT, SLOW, Service

DOCS = ROOT / "docs"
ALL = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
NEEDS = "# needs "
# Allowed beginnings of the reason after "# needs ".
REASONS = ("a GPU", "root", "the network", "a cluster", "a container engine", "other machines", "a model", "a terminal",
           "an idle machine")
# Pages that take a minute: run by `make deploy-check PARTS=documents`, or with QUERN_TEST_LONG=1.
LONG = ("QUANTIZE.md",)
RUN_S = 60 * SLOW
PROGRAMS = ("quern-controller", "quern-worker", "quern-quantize")


class Block:
    def __init__(self, page, line, kind, text):
        self.page, self.line, self.kind, self.text = page, line, kind, text
        first = text.split("\n", 1)[0]
        self.needs = first.removeprefix(NEEDS) if first.startswith(NEEDS) else None

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page):
    """Return the fenced blocks of a page, in order."""
    found, inside = [], None
    for number, line in enumerate(page.read_text().split("\n"), 1):
        if line.startswith("```"):
            if inside is None:
                inside = (number, line[3:].strip(), [])
            else:
                found.append(Block(page, inside[0], inside[1], "\n".join(inside[2])))
                inside = None
        elif inside is not None:
            inside[2].append(line)
    assert inside is None, f"{page}: the fence of line {inside[0]} has no end"
    return found


def indented(page):
    """Return (line number, text) of a page's indented lines, with their continuation lines."""
    found, fenced = [], False
    for number, line in enumerate(page.read_text().split("\n"), 1):
        fenced ^= line.startswith("```")
        if fenced or not line.startswith("    "):
            continue
        if found and found[-1][1].endswith("\\") and found[-1][0] + found[-1][1].count("\n") + 1 == number:
            found[-1] = (found[-1][0], found[-1][1] + "\n" + line.strip())
        else:
            found.append((number, line.strip()))
    return found


def matches(wanted, text):
    """Return true if a page's output, with its `..`, matches the text."""
    pattern = []
    for line in wanted.strip().split("\n"):
        pattern.append(r"(?:.*\n)*" if line.strip() == ".." else
                       ".*".join(re.escape(part) for part in line.rstrip().split("..")) + r"[ ]*\n")
    return re.fullmatch("".join(pattern), text.strip() + "\n") is not None


@functools.cache
def options(program, command=None):
    """Return the options that a command's --help lists, also letters: {"--name": takes a value}."""
    done = subprocess.run([BIN / program, *([command] if command else []), "--help"], capture_output=True, text=True,
                          timeout=RUN_S)
    assert done.returncode == 0, f"{program} {command or ''} --help: {done.stderr}"
    found = {"--help": False}
    for line in done.stdout.split("\n"):
        row = re.match(r"\s+(?:(-[a-zA-Z0-9]), )?(--[a-z0-9-]+)( [^\s].*?)?(?:  |$)", line)
        if row:
            for name in filter(None, row.group(1, 2)):
                found[name] = bool(row.group(3))
    return found


@functools.cache
def commands():
    text = subprocess.run([BIN / "quern", "--help"], capture_output=True, text=True, timeout=RUN_S).stdout
    return set(re.findall(r"^  ([a-z]+) ", text, re.M)) - {"quern"}


SEPARATORS = {"|", "||", "&&", ";", "&", "(", ")", ">", ">>", "<", "2>"}


def calls(text):
    """Return the words of each call of a quern program in a script."""
    for line in text.replace("\\\n", " ").split("\n"):
        line = re.sub(r"\$\([^()]*\)", "X", line)
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        try:
            words = list(lexer)
        except ValueError:    # prose, or a quote over several lines
            words = line.split()
        i = 0
        while i < len(words):
            program = words[i].rsplit("/", 1)[-1]
            start = i == 0 or words[i - 1] in SEPARATORS or re.match(r"[A-Z_]+=|sudo$|srun$|time$|do$|\$$|exec$", words[i - 1])
            i += 1
            if start and (program == "quern" or program in PROGRAMS):
                end = i
                while end < len(words) and words[end] not in SEPARATORS:
                    end += 1
                yield program, words[i:end]
                i = end


def faults(text):
    """Return the errors in a script's calls: commands and options that do not exist."""
    for program, words in calls(text):
        command = None
        if program == "quern":
            if not words or words[0].startswith(("-", "..", "…")) or not re.fullmatch("[a-z]+", words[0]):
                continue
            command = words.pop(0)
            if command not in commands():
                yield f"quern {command}: there is no such command"
                continue
            if command == "bench" and words and re.fullmatch("[a-z]+", words[0]):
                command = ("bench", words.pop(0))
        known = bench_options(command[1]) if isinstance(command, tuple) else options(program, command)
        for word in words:
            if word == "--":
                break
            name = word.split("=")[0]
            if re.fullmatch(r"--[a-z][a-z0-9-]*|-[a-zA-Z]", name) and name not in known:
                yield f"{program} {command or ''}: there is no option {name}"


@functools.cache
def bench_options(what):
    done = subprocess.run([BIN / "quern", "bench", what, "--help"], capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"(?<![\w-])(--[a-z][a-z0-9-]*|-[a-zA-Z])(?![\w-])", done.stdout)) | {"--help"}


class Run:
    """Run the blocks of a page in a folder. The port and the job socket of the page's service replace the defaults."""

    def __init__(self, folder):
        self.folder, self.service = Path(folder), None
        (self.folder / "models").mkdir()
        (self.folder / "models" / "demo").symlink_to(ROOT / "models" / "demo")
        for name in ("docs", "deploy"):
            (self.folder / name).symlink_to(ROOT / name)
        self.floats = None

    def made(self):
        """A model with floats, for MODEL in QUANTIZE.md, and a text next to it."""
        if not self.floats:
            self.floats = "models/floats"
            subprocess.run([sys.executable, ROOT / "tests" / "tools" / "make_model.py", self.folder / self.floats, "--shape", "small-3m",
                            "--type", "bf16"], check=True, capture_output=True, timeout=RUN_S)
            (self.folder / "text.txt").write_text("".join(p.read_text() for p in sorted(DOCS.glob("*.md"))))
        return self.floats

    def env(self):
        env = {**os.environ, "PATH": f"{BIN}:{ROOT / 'build' / 'venv' / 'bin'}:{os.environ['PATH']}",
               "HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder), "QUERN_MODELS": str(self.folder / "pulled")}
        if self.service:
            env["QUERN_TO"] = self.service.jobs
        return env

    def here(self, text, page=None):
        """Replace the addresses in the text by those of the page's service, and the page's placeholders by real
        values."""
        if page and page.name == "QUANTIZE.md":
            text = re.sub(r"\bMODEL\b", lambda _: self.made(), text)
        if self.service:
            address = self.service.http.removeprefix("http://")
            text = re.sub(r"(127\.0\.0\.1|localhost):8080", address, text)
            text = text.replace("tcp://127.0.0.1:7420", self.service.jobs)
        return text

    def serve(self, block):
        """Start the block's `quern serve` in the folder, on free ports."""
        words = shlex.split(block.text.replace("\\\n", " "), comments=True)
        assert words[:2] == ["quern", "serve"], f"{block}: a service is a block of its own"
        self.stop()
        words = [w.replace("tcp://0.0.0.0:7420", "tcp://127.0.0.1:*") for w in words]
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            self.service = Service(words[2], *words[3:])
        finally:
            os.chdir(before)

    def run(self, block):
        """Run a block, which must succeed, and return its output."""
        if block.text.startswith("quern serve "):
            self.serve(block)
            return None
        argv = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": ["python", "-c"]}[block.kind]
        done = subprocess.run([*argv, self.here(block.text, block.page)], cwd=self.folder, env=self.env(), capture_output=True,
                              text=True, timeout=RUN_S, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{block}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def stop(self):
        if self.service:
            self.service.stop()
            Service.used.remove(self.service)
        self.service = None


def run_page(page, folder):
    """Run a page; an AssertionError names the failing block."""
    run, printed = Run(folder), None
    try:
        for block in blocks(page):
            if block.kind in ("sh", "python") and block.needs is None:
                printed = run.run(block)
            elif block.kind == "text" and printed is not None:
                assert matches(block.text, printed), f"{block}: the command printed\n{printed}"
                printed = None
            else:
                printed = None
    finally:
        run.stop()


def openapi(http):
    with urllib.request.urlopen(f"{http}/openapi.json", timeout=30) as reply:
        return json.load(reply)
