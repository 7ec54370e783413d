#!/usr/bin/env python3
"""Checks the house rules that a script can see:
who may include whom (docs/ARCHITECTURE.md), header guards, file sizes, and the odd habits.
Prints file:line and the rule; exit 1 when there is anything to say."""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAY = {
    "base": set(),
    "proto": {"base"},
    "formats": {"base"},
    "kernels": {"base"},
    "worker": {"base", "proto", "formats", "kernels"},
    "controller": {"base", "proto", "formats"},
    "cli": {"base", "proto", "formats", "kernels", "worker", "controller"},
    "tests": None,  # anything
}
# Of the controller, cli may include only the pure modules (its offline tools).
CLI_CONTROLLER = {"tokenizer", "detok", "chat", "sched", "blocks", "seq", "batch_lines"}
MAX_LINES = 900


def sources():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h", "*.cu", "*.cuh"],
                         cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [Path(p) for p in out if (ROOT / p).exists()]


def main():
    said = []
    for path in sources():
        folder = path.parts[0]
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        if len(lines) > MAX_LINES:
            said.append(f"{path}: {len(lines)} lines: more than one idea? (at most {MAX_LINES})")
        for no, line in enumerate(lines, 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if m:
                target = m.group(1)
                if not (ROOT / target).exists():
                    said.append(f"{path}:{no}: include \"{target}\" is not a path from the root")
                    continue
                to = target.split("/")[0]
                allowed = MAY.get(folder)
                # The emulator's forms of what a GPU does are a test's, chosen by QUERN_CUDASIM.
                if target.startswith("tests/cudasim/") and folder == "kernels":
                    continue
                if allowed is not None and to != folder and to not in allowed:
                    said.append(f"{path}:{no}: {folder} must not include {to}")
                if folder == "cli" and to == "controller" and Path(target).stem not in CLI_CONTROLLER:
                    said.append(f"{path}:{no}: cli may include only the controller's pure modules")
            if re.search(r"\bgetenv\s*\(", line) and str(path) not in (
                    "cli/environment.c", "worker/main.c", "kernels/kern.c") and folder != "tests":
                said.append(f"{path}:{no}: getenv outside the places for it")
            if folder != "tests" and re.search(r"\b(strcpy|strcat|sprintf|gets|alloca)\s*\(", line):
                said.append(f"{path}:{no}: an unbounded string function")
            if line.rstrip() != line:
                said.append(f"{path}:{no}: space at the end of the line")
        if path.suffix == ".h":
            guard = "QUERN_" + re.sub(r"[^A-Za-z0-9]", "_", str(path.with_suffix(""))).upper() + "_H"
            template = any("Included once by each" in line for line in lines[:20])
            if not template and f"#ifndef {guard}" not in lines:
                said.append(f"{path}: header guard is not {guard}")
    for s in said:
        print(s)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
