"""The archive of `make gpu-pack` and its command, with the emulated device in the place of a GPU: unpacked in a
folder of another path, with a stand-in for nvidia-smi.  No pass condition is a time.

`make gpu-pack-long` (QUERN_TEST_LONG=1) runs all phases; `make check` the short ones."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from service import BUILD, ROOT, SLOW

PARTS = [BUILD / "gpu" / n for n in ("shapes", "measure", "make_weights", "report", "sim_bench_step", "sim_test_parts")]
LONG = os.environ.get("QUERN_TEST_LONG") == "1"
long_only = pytest.mark.skipif(not LONG, reason="make gpu-pack-long")
NAMES = ["machine", "shapes", "kernels", "models", "service", "weights", "steps", "linear", "serving", "prefill", "attention",
         "sampler", "f16", "bf16", "sanitizer", "ncu"]

SMI = """#!/bin/sh
case "$*" in
*query-gpu=driver_version*) echo DRIVER ;;
*" -l "*) exec sleep 900 ;;
*) echo "emulated GPU, DRIVER, 4096 MiB, 345 MHz, 1980 MHz, 3201 MHz, 700.00 W, 5, 16, 30" ;;
esac
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    if not all(p.exists() for p in PARTS):
        pytest.skip("the parts of the pack are not built; make gpu-pack-parts")
    path = tmp_path_factory.mktemp("archive") / "pack.tar.gz"
    r = subprocess.run([ROOT / "tests/gpu/pack.sh", BUILD, path], capture_output=True, text=True, check=False)
    assert r.returncode == 0, r.stdout + r.stderr
    return path, r.stdout


@pytest.fixture(scope="module")
def unpacked(archive, tmp_path_factory):
    folder = tmp_path_factory.mktemp("another place")
    subprocess.run(["tar", "-C", folder, "-xzf", archive[0]], check=True)
    return folder / "quern-gpu"


@pytest.fixture
def copy(unpacked, tmp_path):
    """A folder of its own, to be spoiled."""
    return shutil.copytree(unpacked, tmp_path / "copy", symlinks=True)


def gpu_run(top, tmp_path, *options, driver="580.95.05", timeout=190):
    """Exit status, output, results, page."""
    smi = tmp_path / "tools"
    smi.mkdir(exist_ok=True)
    (smi / "nvidia-smi").write_text(SMI.replace("DRIVER", driver))
    (smi / "nvidia-smi").chmod(0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith("QUERN_")}
    env["PATH"] = f"{smi}:{env['PATH']}"
    out = tmp_path / "out"
    p = subprocess.Popen([top / "gpu-run", "--out", out, *map(str, options)], env=env, cwd="/", text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = p.communicate(timeout=timeout * SLOW * (5 if LONG else 1))
    finally:
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGTERM)
            p.wait()
    results = json.loads((out / "gpu-results.json").read_text()) if out.exists() else None
    return p.returncode, output, results, (out / "gpu-results.md").read_text() if out.exists() else ""


def where(link):
    try:
        return os.readlink(link)
    except OSError:
        return None     # the process has ended


def status(results):
    return {p["name"]: p["status"] for p in results["phases"]}


def test_the_archive_names_its_parts_and_is_small_enough(archive):
    path, output = archive
    assert path.stat().st_size <= 32_000_000
    assert re.findall(r"^ *\d+  (\w[\w-]*)(?:\.json)?$", output, re.M)[:9] == [
        "bin", "built", "commit", "data", "estimates", "gpu", "gpu-run", "lib", "models"] or "data" not in output
    assert re.search(r"^ *\d+  tests$", output, re.M) and re.search(r"^ *\d+  unpacked$", output, re.M)


def test_a_dry_run_loads_every_program_and_prints_the_plan(unpacked):
    r = subprocess.run([unpacked / "gpu-run", "--dry"], capture_output=True, text=True, check=False, cwd="/")
    assert r.returncode == 0, r.stdout + r.stderr
    assert "not found" not in r.stdout
    tests = dict(re.findall(r"^(\S*test_\w+): (\d+) tests$", r.stdout, re.M))
    assert len(tests) == 10 and "tests/kernels/test_sample_golden" in tests and all(int(n) > 0 for n in tests.values())
    assert [n for n, _ in re.findall(r"^(\w+) +(\d+) s  ", r.stdout, re.M)] == NAMES


def test_a_dry_run_names_what_does_not_load(copy):
    (copy / "lib" / "libjansson.so.4").unlink()
    (copy / "lib" / "libzmq.so.5").write_bytes(b"not a library")
    r = subprocess.run([copy / "gpu-run", "--dry"], capture_output=True, text=True, check=False, cwd="/")
    assert r.returncode == 1


def test_options_that_make_no_sense_are_refused(unpacked):
    for options in (["--phases", "weather"], ["--limit", "soon"], ["--fast"], ["--phases", "steps:now"]):
        r = subprocess.run([unpacked / "gpu-run", *options], capture_output=True, text=True, check=False, cwd="/")
        assert r.returncode == 2, options


def test_checks_run_and_are_reported(unpacked, tmp_path):
    code, output, results, page = gpu_run(unpacked, tmp_path, "--small", "--slow", 10, "--phases", "shapes models sanitizer ncu")
    assert code == 0, output + page
    assert set(results) == {"run", "machine", "phases", "tests", "goals", "data"}
    assert status(results) == {"machine": "ok", "shapes": "ok", "models": "ok", "sanitizer": "skipped", "ncu": "skipped"}
    assert {p["name"]: p["reason"] for p in results["phases"]}["ncu"].strip() == "ncu is not here"
    checks = results["data"]["shapes-small"]
    assert len(checks) > 100 and all(c["ok"] for c in checks)
    assert {"qkv", "o", "gate+up", "down", "head", "embed", "gather", "rmsnorm", "sampler", "attention, padded"} <= {c["op"] for c in checks}
    assert [t["verdict"] for t in results["tests"]] == ["ok", "ok"] and all(int(t["passed"]) > 0 for t in results["tests"])
    assert all(g["verdict"] == "not measured" and g["measured"] is None for g in results["goals"])
    for heading in ("# Measured on emulated GPU", "## Goals", "## Machine", "## Phases", "## Every kernel in real shapes", "## Tests"):
        assert heading in page
    assert "Made-up shapes" in page and "(phase steps: not run)" in page
    assert (tmp_path / "out" / "logs.tar.gz").stat().st_size > 0


@pytest.mark.parametrize("spoiled, verdicts", [("tests/golden/models.json", ["FAILED"]),
                                               ("tests/tiny/llama3/config.json", ["ok", "FAILED"])])
def test_the_tests_read_what_was_unpacked(copy, tmp_path, spoiled, verdicts):
    """Nothing leads back to the folder in which they were built."""
    (copy / spoiled).write_text("{}")
    code, output, results, _ = gpu_run(copy, tmp_path, "--small", "--slow", 10, "--phases", "models")
    assert code == 1 and status(results)["models"] == "FAILED", output
    assert [t["verdict"].split()[0] for t in results["tests"]] == verdicts


def test_a_wrong_kernel_fails_the_checks(copy, tmp_path):
    program = copy / "gpu" / "shapes"
    program.write_text('#!/bin/sh\nwhile [ "$1" != --json ]; do shift; done\n'
                       'echo \'{"model": "small", "op": "gate+up", "type": "awq", "rows": 17, "error": 0.5, "limit": 1e-3, '
                       '"same_bits": false, "ok": false}\' >"$2"\nexit 1\n')
    code, _, results, page = gpu_run(copy, tmp_path, "--small", "--slow", 10, "--phases", "shapes")
    assert code == 1 and status(results)["shapes"] == "FAILED"
    assert "small: 1 checks, 1 failed." in page and "| gate+up | awq | 17 | 5.00e-01 | 1e-03 | no |" in page


def test_a_phase_that_is_cut_off_leaves_the_others(copy, tmp_path):
    program = copy / "gpu" / "bench_step"
    program.write_text('#!/bin/sh\nwhile [ "$1" != --json ]; do shift; done\n'
                       'printf \'{"batch": 1, "how": "graphs", "tokens_per_s": 455}\\n{"batch": 16, "how"\' >"$2"\n'
                       ': >"$0.began"\nexec sleep 900\n')
    for limit in (2, 10, 50):   # on a busy machine the program may not have begun by then
        code, output, results, page = gpu_run(copy, tmp_path, "--small", "--slow", 10, "--phases", f"shapes weights steps:{limit} ncu")
        if program.with_name("bench_step.began").exists():
            break
    assert code == 0, output
    assert status(results) == {"machine": "ok", "shapes": "ok", "weights": "ok", "steps": "cut off", "ncu": "skipped"}
    assert f"| steps | {limit} |" in page and f"ended by its limit of {limit} s" in page
    assert all(c["ok"] for c in results["data"]["shapes-small"])
    # What it had measured before counts; the half of a line does not.
    assert results["data"]["steps-awq"] == [{"batch": 1, "how": "graphs", "tokens_per_s": 455}]
    assert results["goals"][0]["verdict"] == "met"
    assert not [p for p in Path("/proc").glob("[0-9]*/cwd") if where(p) == str(copy)]


def test_no_time_left_is_said(unpacked, tmp_path):
    code, _, results, _ = gpu_run(unpacked, tmp_path, "--small", "--phases", "shapes", "--limit", 6)
    assert code == 3 and status(results) == {"machine": "not run"}


@pytest.mark.parametrize("driver, reason", [("535.183.01", "the driver is too old: 535.183.01"), ("", "no NVIDIA driver")])
def test_a_machine_without_a_usable_driver_ends_early(unpacked, tmp_path, driver, reason):
    code, output, results, page = gpu_run(unpacked, tmp_path, "--small", driver=driver)
    assert code == 3 and reason in output
    assert status(results) == {"machine": "FAILED"} and reason in page
    assert "580 or later" in page or not driver


def test_goals_are_judged_by_what_was_measured(tmp_path):
    report = BUILD / "gpu" / "report"
    if not report.exists():
        pytest.skip("make gpu-pack-parts")
    data = tmp_path / "data"
    data.mkdir()

    def lines(name, rows):
        (data / name).write_text("".join(json.dumps(r) + "\n" for r in rows))
    lines("device.jsonl", [{"name": "NVIDIA H200", "copy_gb_per_s": 4000}])
    lines("steps-awq.jsonl", [{"batch": 1, "how": "graphs", "tokens_per_s": 500, "step_us": 2000, "copies": 5, "host_begin_us": 30, "host_end_us": 30},
                              {"batch": 64, "how": "graphs", "device_idle_share": 0.02}])
    lines("steps-f16.jsonl", [{"batch": 1, "how": "graphs", "tokens_per_s": 200}])
    (data / "engine-awq.json").write_text(json.dumps({"results": [{"batch": 1, "decode_tokens_per_s": 620}]}))
    (data / "estimates.json").write_text(json.dumps({"steps": {"decode 1": {"us": 1900}, "prompt 2048": {"us": 60000}}}))
    (data / "prefill-awq-default.json").write_text(json.dumps({"prompt_tokens": 2048, "results": [{"batch": 1, "ttft_ms": {"p50": 90}}]}))
    row = {"qkv": 10, "o": 10, "gate+up": 40, "down": 20}
    lines("linear.jsonl", [{"layer": k, "rows": 1, "type": "awq", "mode": "default", "us": v, "bytes": v * 3.2e6} for k, v in row.items()] +
          [{"layer": k, "rows": 1, "type": "f16", "mode": "cublas", "us": 3.5 * v} for k, v in row.items()] +
          # One layer is missing: a sum of the others would say too much.
          [{"layer": k, "rows": 16, "type": "awq", "mode": "default", "us": v} for k, v in list(row.items())[:3]])
    subprocess.run([report, tmp_path, tmp_path], check=True)
    goals = {g["goal"]: (g["measured"], g["verdict"]) for g in json.loads((tmp_path / "gpu-results.json").read_text())["goals"]}
    assert goals["Qwen3-8B AWQ, batch 1, steps: estimated"] == (500, "met")
    assert goals["Qwen3-8B AWQ, batch 1, served: first goal"] == (620, "met")
    assert goals["Qwen3-8B AWQ, batch 1, served: second goal"] == (620, "missed")
    assert goals["AWQ over F16, batch 1, steps"] == (2.5, "met")
    assert goals["AWQ linear, 1 row, of the copy's bandwidth"] == (80, "met")
    assert goals["AWQ over cuBLAS F16, 1 row"] == (3.5, "met")
    assert goals["AWQ over cuBLAS F16, 16 rows"] == (None, "not measured")
    assert goals["host time of a step, batch 1"] == (60, "missed")
    assert goals["batch 64: no kernel can run (between steps, copies)"] == (2, "met")
    assert goals["copies in a step of decoding"] == (5, "missed")
    page = (tmp_path / "gpu-results.md").read_text()
    assert "| decode 1 | 1900 | 2000 | 1.053 |" in page and "| prompt 2048 | 60000 | 90000 | 1.500 |" in page
    assert '`{"decode 1": 2.000, "prompt 2048": 90.000}`' in page


@long_only
def test_all_phases_on_the_emulated_device(unpacked, tmp_path):
    code, output, results, page = gpu_run(unpacked, tmp_path, "--small", "--slow", 20)
    assert code == 0, output + page
    assert list(status(results)) == NAMES
    assert {n: s for n, s in status(results).items() if s != "ok"} == {"sanitizer": "skipped", "ncu": "skipped"}
    reasons = {p["name"]: p["reason"] for p in results["phases"]}
    assert re.search(r"without cuBLAS: .* is here|without cuBLAS: .* is not here", reasons["linear"]), reasons
    assert results["data"]["service"][0]["open_at_kill"] > 0
    assert {s["how"] for s in results["data"]["steps-awq"]} == {"graphs"}
    assert all(a["pad_to"] >= a["batch"] for a in results["data"]["attention"] if a["rows"] == 1)
    assert results["data"]["serving-1"]["completed"] == 4
    for heading in ("Steps of decoding, AWQ", "Steps of decoding, F16", "End to end", "Serving", "Linear layers, AWQ and f16",
                    "Linear layers, AWQ and bf16", "Attention", "Sampler"):
        assert f"\n## {heading}\n" in page


@long_only
def test_tokens_that_change_after_a_kill_fail_the_service_phase(copy, tmp_path):
    quern = copy / "bin" / "quern"
    quern.rename(copy / "bin" / "quern.real")
    # Seeds of the second round of jobs differ.
    quern.write_text('#!/bin/bash\nn=$(dirname "$0")/rounds args=("$@")\n'
                     'if [ "$1" = submit ]; then\n\techo x >>"$n"\n'
                     '\t[ "$(wc -l <"$n")" -le 3 ] || args[4]=$((args[4] + 100))\nfi\n'
                     'exec "$0.real" "${args[@]}"\n')
    quern.chmod(0o755)
    code, output, results, _ = gpu_run(copy, tmp_path, "--small", "--slow", 20, "--phases", "service")
    assert code == 1 and status(results)["service"] == "FAILED", output
    assert "other tokens" in output
