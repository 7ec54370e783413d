#!/usr/bin/env python3
"""Mutation tests: edits that break a promise, one at a time. A named test must fail for each; `make mutate` runs them.

    python3 tests/mutate [--build DIR] [--list] [--stale] [PATTERN...]

The mutants are in tests/mutate/*.toml:

    [[mutant]]
    promise = "a plan of an old epoch is passed over"
    file = "worker/step.c"
    old = "if (plan->epoch != s->epoch)"      # occurs once in the file (`make lint` looks)
    new = "if (plan->epoch > s->epoch)"
    test = "unit/worker/test_step:step/a_plan_of_an_old_epoch*"

`test` is a Criterion program below tests/ with a filter, or a pytest file with a test's name
(`e2e/http/test_keys.py::name`).  The optional `table = "cudasim"` or `"cudarace"` runs a kernel test on the
emulated device, without or with its race detector.  The sources are copied to DIR/tree, where each test must pass
before it must fail.  PATTERN: part of a file's name or of a promise.  A mutant that does not compile proves nothing,
even if its test does not build the file.  Exit status 1: a mutant lived, or could not be tried."""
import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FIELDS = {"promise", "file", "old", "new", "test"}
TABLES = {"cudasim": "build/lib/libquern-cudasim.so", "cudarace": "build/lib/libquern-cudarace.so"}
TEST_SECONDS = 600
DOES_NOT_COMPILE = "does not compile"


def read_mutants():
    out = []
    for path in sorted(HERE.glob("*.toml")):
        for m in tomllib.loads(path.read_text())["mutant"]:
            if set(m) - {"table"} != FIELDS or m.get("table", "cudarace") not in TABLES:
                sys.exit(f"{path}: a mutant has the fields {sorted(FIELDS)}, not {sorted(m)}")
            out.append(m)
    return out


def stale(mutants, root=ROOT):
    """Return one line for each mutant that no longer fits the sources."""
    out = []
    for m in mutants:
        path = root / m["file"]
        n = path.read_text().count(m["old"]) if path.exists() else 0
        program, name = split_test(m["test"])
        sources = [root / "tests" / f"{program}{end}" for end in ("", ".c", ".cc")]
        source = next((s for s in sources if s.is_file()), None)
        if n != 1:
            out.append(f"{m['file']}: the text of the mutant '{m['promise']}' occurs {n} times, not once")
        elif not source:
            out.append(f"{m['file']}: tests/{program}, named by the mutant '{m['promise']}', is not there")
        elif name.split("/")[-1].rstrip("*") not in source.read_text():
            out.append(f"{m['file']}: {program} has no test '{name}', which the mutant '{m['promise']}' names")
    return out


def split_test(test):
    """Return (file below tests/, name of the test in it)."""
    program, _, name = test.partition("::" if ".py::" in test else ":")
    return program, name


def copy_tree(tree):
    files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                           check=True, capture_output=True).stdout.decode().split("\0")
    wanted = {f for f in files if f and (ROOT / f).is_file()}
    for f in wanted:
        to = tree / f
        if not to.exists() or to.read_bytes() != (ROOT / f).read_bytes():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / f, to)
    for old in tree.rglob("*"):
        name = old.relative_to(tree).as_posix()
        if old.is_file() and not name.startswith("build/") and name not in wanted:
            old.unlink()
    (tree / "build").mkdir(exist_ok=True)
    for link, to in ((tree / "build/venv", ROOT / "build/venv"), (tree.parent / "shared", ROOT.parent / "shared")):
        if not link.is_symlink() and to.exists():
            link.symlink_to(to.resolve())


def run(tree, *command, env=None):
    try:
        return subprocess.run(command, cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=TEST_SECONDS, env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired as e:
        return subprocess.CompletedProcess(command, 124, e.stdout or b"")


def build(tree, mutants):
    programs = {split_test(m["test"])[0] for m in mutants}
    targets = {"gpu-pack-parts" if p.startswith("e2e/gpu/") else "all" if p.endswith(".py") else f"build/tests/{p}"
               for p in programs}
    targets |= {TABLES[m["table"]] for m in mutants if "table" in m}
    return run(tree, "make", "--no-print-directory", f"-j{os.cpu_count()}", "WERROR=", *sorted(targets))


def compile_alone(tree, file):
    """Compile a file and return the compiler's errors; "": it compiles, or is not compiled by itself."""
    if file.endswith(".py"):
        try:
            compile((tree / file).read_text(), file, "exec")
        except SyntaxError as e:
            return str(e)
    if file.endswith(".c"):
        r = run(tree, "make", "--no-print-directory", "WERROR=", f"build/obj/{file.removesuffix('.c')}.o")
        return r.stdout.decode(errors="replace") if r.returncode else ""
    return ""


def run_test(tree, m):
    """Return (passed, ran anything, output)."""
    program, name = split_test(m["test"])
    env = {"QUERN_TEST_DEVICE": "cuda:0", "QUERN_CUDA_LIBRARY": str(tree / TABLES[m["table"]])} if "table" in m else {}
    if program.endswith(".py"):
        r = run(tree, "build/venv/bin/python", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                f"tests/{program}" + (f"::{name}" if name else ""), env={"QUERN_BUILD": "build"})
        ran = r.returncode not in (4, 5) and b" skipped" not in r.stdout.splitlines()[-1:][0]
    else:
        r = run(tree, f"build/tests/{program}", "--timeout", "240", *(["--filter", name] if name else []),
                env=env)
        ran = b"Tested:" in r.stdout and b"Tested: \x1b[0;34m0" not in r.stdout and b"Tested: 0" not in r.stdout
    return r.returncode == 0, ran or r.returncode == 124, r.stdout.decode(errors="replace")


def tail(text, n=12):
    return "".join(f"    {line}\n" for line in text.splitlines()[-n:])


def try_mutant(tree, m):
    """Return the mutant's result: killed, lived, or the reason why it could not be tried."""
    path = tree / m["file"]
    whole = path.read_text()
    path.write_text(whole.replace(m["old"], m["new"]))
    try:
        # A test may be built without the file, and a script with a syntax error fails every test.
        why = compile_alone(tree, m["file"])
        if why:
            return DOES_NOT_COMPILE, why
        b = build(tree, [m])
        if b.returncode:
            return DOES_NOT_COMPILE, b.stdout.decode(errors="replace")
        passed, _, _ = run_test(tree, m)
        return ("lived", "") if passed else ("killed", "")
    finally:
        path.write_text(whole)


def main():
    ap = argparse.ArgumentParser(prog="tests/mutate", description="breaks promises one at a time: a test must fail")
    ap.add_argument("pattern", nargs="*", help="only mutants with this in their file or promise")
    ap.add_argument("--build", type=Path, default=ROOT / "build/mutate")
    ap.add_argument("--list", action="store_true", help="name them, and do nothing")
    ap.add_argument("--stale", action="store_true", help="only look whether they fit the sources")
    args = ap.parse_args()
    mutants = read_mutants()
    old = stale(mutants)
    if old:
        sys.exit("\n".join(old))
    if args.pattern:
        mutants = [m for m in mutants if any(p in m["file"] + " " + m["promise"] for p in args.pattern)]
    if args.list or args.stale:
        for m in mutants if args.list else []:
            print(f"{m['file']:<32} {m['promise']}  ({m['test']})")
        return 0
    tree = args.build.resolve() / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    tests = {(m["test"], m.get("table")): m for m in mutants}
    print(f"{len(mutants)} mutants, {len(tests)} tests: building", flush=True)
    b = build(tree, mutants)
    if b.returncode:
        sys.exit(f"the sources as they are do not build:\n{tail(b.stdout.decode(errors='replace'))}")
    for m in tests.values():
        passed, ran, out = run_test(tree, m)
        if not passed or not ran:
            sys.exit(f"{m['test']} {'fails' if ran else 'runs nothing'} without a mutant:\n{tail(out)}")
    bad = 0
    for i, m in enumerate(mutants):
        start = time.monotonic()
        became, why = try_mutant(tree, m)
        bad += became != "killed"
        print(f"{i + 1:>3}/{len(mutants)} {became:<16} {m['file']:<32} {m['promise']}  "
              f"({time.monotonic() - start:.0f} s)\n{tail(why) if why else ''}", end="", flush=True)
    print(f"{len(mutants) - bad} killed, {bad} not")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
