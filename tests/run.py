#!/usr/bin/env python3
"""Runs the tests that were built and adds up their results:  run.py BUILD [unit|sample|e2e]

    unit     the tests in C
    sample   the same, with few programs on the emulated GPU instead of all: sanitizers make those five times as slow
    e2e      the programs, driven from Python

Criterion runs each test in its own process with a time limit; two programs run at a time, since many tests wait.
pytest drives the programs.  A skip that tests/skips.toml does not allow on this machine counts as a failure.  Closes
with the names of failed tests, and "N passed, N failed, N skipped"; exit 1 if any failed or none ran.
"""
import ast
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import skips

ROOT = Path(__file__).resolve().parent.parent
# Other programs whose kernels the emulated GPU runs for minutes under sanitizers: a sample leaves them out.
LONG_ON_CUDA = ("cudasim/test_graph", "cudasim/test_linear_plans", "unit/worker/test_host_experts", "unit/worker/test_prefetch")
ON_CUDA = ("kernels/test_attention", "kernels/test_rows", "unit/worker/test_step", "kernels/test_experts",
           "kernels/test_linear", "kernels/test_sample", "kernels/test_sample_golden", "unit/worker/test_model")


@dataclass
class Result:
    """Of one line: counts, the output that the line is followed by, and the names of failed tests."""
    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    cpu: float = 0
    shown: list = field(default_factory=list)
    bad: list = field(default_factory=list)

    def check_skips(self, machine, all_skips):
        """Count each (file, test, reason) that tests/skips.toml does not allow as a failure."""
        rows = skips.rows()
        faults = [f for skip in all_skips if (f := skips.fault(rows, machine, *skip))]
        self.failed += len(faults)
        self.bad += faults


RUNNING = set()     # process groups of commands


def end_all(number, _frame):
    """Ctrl-C does not reach the groups: end them, and this program."""
    for group in list(RUNNING):
        os.killpg(group, signal.SIGKILL)
    os._exit(128 + number)


def output_of(argv, env, limit=1800):
    """(exit status, lines without colours, seconds, seconds of CPU time of the command and of what it has waited for).  A
    command that runs for more than `limit` seconds is killed with what it has started: Criterion does not end every test
    that hangs."""
    start = time.monotonic()
    with subprocess.Popen(argv, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True) as p:
        timer = threading.Timer(limit, os.killpg, (p.pid, signal.SIGKILL))
        timer.start()
        RUNNING.add(p.pid)
        text = re.sub(r"\x1b\[[0-9;]*m", "", p.stdout.read().decode(errors="replace"))
        timer.cancel()
        RUNNING.discard(p.pid)
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    return p.returncode, text.splitlines(), time.monotonic() - start, used.ru_utime + used.ru_stime


def criterion(name, program, *options, build, env):
    """A Criterion program; NAME begins with its path below tests/."""
    status, lines, *times = output_of([program, "--timeout", os.environ.get("QUERN_TEST_TIMEOUT", "240"), "--jobs", "2",
                                       "--verbose", *options], env)
    total = [m for line in lines if (m := re.search(r"Synthesis:.*Passing: *(\d+).*Failing: *(\d+)", line))]
    passed, failed = map(int, total[-1].groups()) if total else (0, 0)  # crashes among the failed
    skipped = [(test, reason) for test, reason in re.findall(r"^\[SKIP\] (\S+::\S+?): (.*)$", "\n".join(lines), re.M)
               if not ("--filter" in options and reason == "Test is disabled")]  # those that the filter leaves out
    r = Result(name, passed, failed or int(status != 0), len(skipped), *times)
    r.shown = [f"{n:7} {text}" for text, n in sorted(Counter(reason for _, reason in skipped).items())[:20]]
    if r.failed:
        r.shown += ["    " + line for line in lines if not re.search("RUN |PASS|SKIP", line)]
        r.bad = [f"{name}:{line[6:]}" for line in lines if line.startswith("[FAIL]")] or [f"{name}: exit status {status}"]
    r.check_skips(skips.Machine(build, env), [(name.split(",")[0], f"{name}:{test}", reason) for test, reason in skipped])
    return r


def failing_calls(program):
    """A few of the calls that `make inject` lets fail one by one; without sanitizers."""
    status, lines, *times = output_of([program, "--most", "16"], {})
    bad = [line for line in lines if re.search(r"findings [1-9]\d*$", line)]
    r = Result("failing calls, a sample", sum(line.endswith("findings 0") for line in lines), len(bad) or int(status != 0), 0,
               *times)
    if r.failed:
        r.shown = ["    " + line for line in lines]
        r.bad = ["failing calls: " + line for line in bad] or [f"failing calls: exit status {status}"]
    return r


def skipped_in(report):
    """(file below tests/, test, reason) of each skip in a JUnit report of pytest."""
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is None:
            continue
        where, reason = case.get("classname") or case.get("name"), skipped.get("message")
        if reason == "collection skipped":  # a whole file; the text is the tuple (file, line, 'Skipped: REASON')
            reason = ast.literal_eval(skipped.text)[2]
        module = re.search(r"tests\.(.*?test_\w+)", where)
        file = module[1].replace(".", "/") + ".py" if module else where
        yield file, f"{file}::{case.get('name')}", reason.removeprefix("Skipped: ")


def slowest(report, n=12):
    """A line for each of the files in a JUnit report of pytest that took longest, with the seconds of its slowest test."""
    files = {}
    for case in ElementTree.parse(report).iter("testcase"):
        files.setdefault(case.get("classname") or case.get("name"), []).append((float(case.get("time")), case.get("name")))
    longest = sorted(((sum(s for s, _ in tests), len(tests), max(tests), file) for file, tests in files.items()), reverse=True)
    return [f"    {s:5.0f}s {file.removeprefix('tests.')}: {k} tests, {most:.0f}s {test}"
            for s, k, (most, test), file in longest[:n]]


def pytests(name, folders, *options, build):
    """Tests in Python."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        status, lines, *times = output_of(
            ["build/venv/bin/python", "-m", "pytest", "-q", "-rfEs", "--maxfail=20", "-p", "no:cacheprovider",
             f"--rootdir={ROOT}", f"--junitxml={report}", *options, *folders], {"QUERN_BUILD": str(build)}, 7200)
        skipped = list(skipped_in(report)) if report.exists() else []
        took = slowest(report) if report.exists() else []
    closing = [line for line in lines if re.search(r"(passed|failed|skipped|error).* in [\d.]+s", line)][-1:]
    count = {word: int(n) for line in closing for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", line)}
    failed = count.get("failed", 0) + count.get("error", 0) or int(status != 0)
    r = Result(name, count.get("passed", 0), failed, count.get("skipped", 0), *times)
    r.shown = ["    " + line for line in lines] if failed else [line for line in lines if line.startswith("SKIPPED")] + took
    if failed:
        r.bad = [line for line in lines if re.match("(FAILED|ERROR) ", line)] or [f"pytest: exit status {status}"]
    r.check_skips(skips.Machine(build), skipped)
    return r


def built(build):
    """The names of Criterion programs whose sources are there."""
    tests = build / "tests"
    found = sorted(tests.glob("*/test_*")) + sorted(tests.glob("unit/*/test_*"))
    names = [str(p.relative_to(tests)) for p in found if p.suffix == "" and os.access(p, os.X_OK)]
    return [n for n in names if (ROOT / f"tests/{n}.c").is_file() or (ROOT / f"tests/{n}.cc").is_file()]


def programs(build, only):
    """(name, program, options, environment) of each Criterion program: on the CPU, then the kernels' cases and the
    worker as a whole on the emulated CUDA device, some with the detector of races (make cudarace has all)."""
    tests, sim, race = build / "tests", build / "lib/libquern-cudasim.so", build / "lib/libquern-cudarace.so"
    for name in built(build):
        if only != "sample" or name not in LONG_ON_CUDA:
            yield name, tests / name, (), {}
    if not sim.exists():
        return
    env = {"QUERN_TEST_DEVICE": "cuda:0", "QUERN_CUDA_LIBRARY": str(sim)}
    for name in ("kernels/test_rows",) if only == "sample" else ON_CUDA:
        yield f"{name}, emulated CUDA", tests / name, (), env
    if only == "sample":
        return
    worker, linear = tests / "unit/worker", tests / "kernels/test_linear"
    yield "unit/worker/test_tp, emulated CUDA", worker / "test_tp", ("--filter", "tp/@(agrees*|whole*)"), env
    yield "unit/worker/test_tp_group_ep, emulated CUDA", worker / "test_tp_group_ep", (), env
    yield ("unit/worker/test_model, emulated CUDA, --fast", worker / "test_model", ("--filter", "model/@(stories_bf16*|tiny*)"),
           {**env, "QUERN_TEST_FAST": "1"})
    yield ("kernels/test_linear, 132 multiprocessors, interleaved", linear, (),
           {**env, "QUERN_CUDASIM_SMS": "132", "QUERN_CUDASIM_RESIDENT": "0"})
    if race.exists():
        env = {**env, "QUERN_CUDA_LIBRARY": str(race)}
        yield "kernels/test_rows, race detector", tests / "kernels/test_rows", (), env
        yield ("kernels/test_sample, race detector", tests / "kernels/test_sample", ("--filter", "sample/any_parameters*"), env)
        yield ("kernels/test_experts, race detector", tests / "kernels/test_experts",
               ("--filter", "experts/@(all_of*|routers*)"), env)
        yield ("kernels/test_linear, race detector", linear,
               ("--filter", "linear/matches_a_double_precision_reference"), env)


def results(build, only):
    if only != "e2e":
        sweep = build / "inject/sweep"
        with ThreadPoolExecutor(2) as pool:
            # It waits most of the time, so it begins first, beside programs that compute.
            running = [pool.submit(failing_calls, sweep)] if sweep.exists() else []
            running += [pool.submit(criterion, name, program, *options, build=build, env=env)
                        for name, program, options, env in programs(build, only)]
            yield from (r.result() for r in running)
    if only in ("all", "e2e"):
        # Such a test waits more than half of its time: two files for each processor at a time.  Storms of kills and cut
        # links have the machine alone.
        at_once = os.environ.get("QUERN_TEST_JOBS") or str(min(2 * len(os.sched_getaffinity(0)), 8))
        yield pytests("end to end", ["tests/lint", "tests/sass", "tests/e2e"], "-n", at_once, "--dist", "loadfile", build=build)
        yield pytests("end to end, chaos", ["tests/chaos"], build=build)


def main(build, only="all"):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_all)
    total = Result("")
    for r in results(ROOT / build, only):
        print(f"{r.name:44} {r.passed:4} passed {r.failed:3} failed {r.skipped:3} skipped {r.seconds:4.0f}s {r.cpu:4.0f}s of CPU",
              *r.shown, sep="\n", flush=True)
        total.passed, total.failed, total.skipped = (total.passed + r.passed, total.failed + r.failed,
                                                     total.skipped + r.skipped)
        total.bad += r.bad
    if total.bad:
        print("what failed:", *(name[:600] for name in total.bad), sep="\n")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
