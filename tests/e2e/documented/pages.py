"""Commands of the pages of docs/: read from the pages, run, and checked against each program's --help.

In a page with fences, a block ```sh is run: all of a page's blocks in order, each by bash in one empty folder that has
models/demo, with the programs in PATH.  A block that begins with `quern serve` starts the page's service, in place
of the one before.  A block ```text behind it is its output; in it `..` stands for any text, and a line `..` for any
lines.  A block ```python is a program.  A first line `# needs REASON` says that a block cannot be run here, and why:

    ```sh
    # needs a GPU
    quern serve MODEL --device cuda:0
    ```

Such blocks, and the indented ones of all other pages, are parsed by bash; and everywhere each option behind a
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
# What may stand behind "# needs ": the beginning of a reason.
REASONS = ("a GPU", "root", "the network", "a cluster", "a container engine", "other machines", "a model", "a terminal",
           "an idle machine")
# Pages that take a minute: run by `make deploy-check PARTS=documents`, or with QUERN_TEST_LONG=1.
LONG = ("OPERATING.md", "QUANTIZE.md")
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
    """The fenced blocks of a page, in order."""
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
    """(line number, text) of the indented lines of a page, with those that continue them."""
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
    """Whether a page's output, with its `..`, is that text."""
    pattern = []
    for line in wanted.strip().split("\n"):
        pattern.append(r"(?:.*\n)*" if line.strip() == ".." else
                       ".*".join(re.escape(part) for part in line.rstrip().split("..")) + r"[ ]*\n")
    return re.fullmatch("".join(pattern), text.strip() + "\n") is not None


@functools.cache
def options(program, command=None):
    """The options that a command's --help lists: {"--name": takes a value}, letters too."""
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
    """The words of each call of a program of quern in a script."""
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
    """What is wrong with the calls in a script: commands and options that do not exist."""
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
    """The blocks of a page in a folder; the port and the job socket of the page's service take the place of the defaults."""

    def __init__(self, folder):
        self.folder, self.service = Path(folder), None
        (self.folder / "models").mkdir()
        (self.folder / "models" / "demo").symlink_to(ROOT / "models" / "demo")
        for name in ("docs", "deploy"):
            (self.folder / name).symlink_to(ROOT / name)
        self.floats = None

    def made(self):
        """A model with floats, as MODEL stands for in QUANTIZE.md, and a text beside it."""
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
        """The text with the addresses of the page's service, and what words of the page stand for."""
        if page and page.name == "QUANTIZE.md":
            text = re.sub(r"\bMODEL\b", lambda _: self.made(), text)
        if self.service:
            address = self.service.http.removeprefix("http://")
            text = re.sub(r"(127\.0\.0\.1|localhost):8080", address, text)
            text = text.replace("tcp://127.0.0.1:7420", self.service.jobs)
        return text

    def serve(self, block):
        """The block's `quern serve`, in the folder, on ports of its own."""
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
        """What a block prints; it must succeed."""
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
    """Runs a page; AssertionError names the block."""
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
