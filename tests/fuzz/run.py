#!/usr/bin/env python3
"""Run libFuzzer targets, SECONDS of CPU time each, one per core at a time.

    run.py BUILD/fuzz SECONDS [TARGET...]        TARGET: fuzz_bus, ...; default: all

A target starts from its seeds (tests/fuzz/seeds/TARGET), its dictionary (TARGET.dict next to the source) and the
corpus of earlier runs (TARGET.corpus next to the program).  A large corpus is reduced to the inputs that add coverage.
Prints a line per target: executions, CPU seconds, inputs of the corpus.  A finding is printed in full and its input
is kept as TARGET.found-* next to the program; the other targets continue, and the exit status is 1.
CPU time, not elapsed time, is limited, so that results on a busy machine can be compared.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROUND = 120  # CPU seconds of one process; then its new inputs are in the corpus, and a line is printed
CORPUS = 5000  # a corpus with more inputs is merged
HERE = Path(__file__).resolve().parent
TARGETS = {p.stem: p.relative_to(HERE).with_suffix("") for p in sorted(HERE.rglob("fuzz_*.c"))}


def command(folder, name, seconds):
    program = os.path.join(folder, TARGETS[name])
    os.makedirs(program + ".corpus", exist_ok=True)
    args = [program, f"-max_total_time={max(1, round(seconds))}", "-rss_limit_mb=4096", "-timeout=20", "-verbosity=0",
            "-print_final_stats=1", f"-artifact_prefix={program}.found-"]
    words, seeds = HERE / TARGETS[name].with_suffix(".dict"), HERE / "seeds" / name
    if words.exists():
        args.append(f"-dict={words}")
    return args + [program + ".corpus"] + ([str(seeds)] if seeds.is_dir() else [])


def bound(folder, name):
    """Merge a corpus of too many inputs, most of which later inputs have made superfluous."""
    program = os.path.join(folder, TARGETS[name])
    corpus, merged = Path(program + ".corpus"), Path(program + ".merged")
    if not corpus.is_dir() or len(list(corpus.iterdir())) <= CORPUS:
        return
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir()
    if subprocess.run([program, "-merge=1", "-rss_limit_mb=4096", "-timeout=20", merged, corpus], stdin=subprocess.DEVNULL,
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        shutil.rmtree(corpus)
        merged.rename(corpus)


def one_round(folder, name, seconds):
    """Run a target once; return (exit status, output, CPU seconds)."""
    with tempfile.TemporaryFile() as out:
        env = {"ASAN_OPTIONS": "detect_leaks=1", **os.environ}
        p = subprocess.Popen(command(folder, name, seconds), stdin=subprocess.DEVNULL, stdout=out,
                             stderr=subprocess.STDOUT, env=env)
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return p.returncode, out.read().decode(errors="replace"), used.ru_utime + used.ru_stime


def fuzz(folder, name, seconds):
    """Run a target for its time; True: no finding."""
    cpu, runs = 0.0, 0
    bound(folder, name)
    while cpu < seconds:
        if cpu:
            print(f"{name:22} {runs:12,} runs {cpu:7.0f} s of CPU so far", flush=True)
        status, text, used = one_round(folder, name, min(seconds - cpu, ROUND))
        cpu += used
        found = re.search(r"number_of_executed_units:\s*(\d+)", text)
        runs += int(found[1]) if found else 0
        if status:
            print(f"{name}: FOUND after {runs} runs, {cpu:.0f} s of CPU\n{text}", flush=True)
            return False
    corpus = len(os.listdir(os.path.join(folder, f"{TARGETS[name]}.corpus")))
    print(f"{name:22} {runs:12,} runs {cpu:7.0f} s of CPU {corpus:6} inputs kept, no finding", flush=True)
    return True


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, seconds, names = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        sys.exit(f"no target {unknown[0]}; there are: {' '.join(sorted(TARGETS))}")
    names = names or sorted(TARGETS)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        good = list(pool.map(lambda name: fuzz(folder, name, seconds), names))
    if not all(good):
        sys.exit("an input that was found belongs to tests/fuzz/seeds/TARGET, with what mends it")


if __name__ == "__main__":
    main()
