"""Test the archive of `make gpu-pack` and its command with the emulated device instead of a GPU: unpacked at another
path, with a stand-in for nvidia-smi. No check depends on a time.

`make gpu-pack-long` (QUERN_TEST_LONG=1) runs all phases; `make check` the short ones."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from service import BUILD, ROOT, SLOW

PARTS = [BUILD / "gpu" / n for n in ("together", "make_weights", "report", "sim_bench_step", "sim_test_parts", "sim_probes", "references/small")]
LONG = os.environ.get("QUERN_TEST_LONG") == "1"
long_only = pytest.mark.skipif(not LONG, reason="make gpu-pack-long")
FIRST = ["machine", "probes", "device", "shapes", "steps", "inside", "linear", "attention", "prompt"]
SECOND = ["machine", "kernels", "models", "service", "batches", "serving", "rows", "contexts", "sampler", "f16", "bf16", "sanitizer",
          "ncu"]

SMI = """#!/bin/sh
case "$*" in
*query-gpu=driver_version*) echo DRIVER ;;
*" -l "*) exec sleep 900 ;;
*) echo "emulated GPU, DRIVER, 4096 MiB, 345 MHz, 1980 MHz, 3201 MHz, 700.00 W, 5, 16, 30" ;;
esac
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    if not (BUILD / "gpu").is_dir():
        pytest.skip("the parts of the pack are not built; make gpu-pack-parts")
    missing = [p.name for p in PARTS if not p.exists()]
    assert not missing, f"make gpu-pack-parts makes no {missing}"
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
    """A separate copy of the unpacked archive that a test may damage."""
    return shutil.copytree(unpacked, tmp_path / "copy", symlinks=True)


def gpu_run(top, tmp_path, *options, driver="580.95.05", timeout=190):
    """Run the archive's command: (exit status, output, results, page)."""
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
    assert path.stat().st_size <= 37_000_000
    assert re.findall(r"^ *\d+  (\w[\w-]*)(?:\.json)?$", output, re.M)[:9] == [
        "bin", "built", "commit", "data", "estimates", "gpu", "gpu-run", "lib", "models"] or "data" not in output
    assert re.search(r"^ *\d+  tests$", output, re.M) and re.search(r"^ *\d+  unpacked$", output, re.M)


@pytest.mark.parametrize("options, names, limit", [([], FIRST, 200), (["--second"], SECOND, 570)])
def test_a_dry_run_loads_every_program_and_prints_the_plan(unpacked, options, names, limit):
    r = subprocess.run([unpacked / "gpu-run", "--dry", *options], capture_output=True, text=True, check=False, cwd="/")
    assert r.returncode == 0, r.stdout + r.stderr
    assert "not found" not in r.stdout
    tests = dict(re.findall(r"^(\S*test_\w+): (\d+) tests$", r.stdout, re.M))
    assert len(tests) == 10 and "tests/kernels/test_sample_golden" in tests and all(int(n) > 0 for n in tests.values())
    phases = re.findall(r"^(\w+) +(\d+) s  ", r.stdout, re.M)
    assert [n for n, _ in phases] == names
    # Each phase of the first call can take its full time: the overall limit cuts nothing.
    assert limit != 200 or sum(int(n) for _, n in phases) + 6 <= limit
    assert f"within {limit} s" in r.stdout


def test_libraries_that_are_never_called_are_stand_ins(unpacked):
    """The stand-in libraries define the symbols imported from them, so that programs start with all symbols bound, and
    report each call."""
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(unpacked / "lib"), "LD_BIND_NOW": "1"}
    for program, option in (("quern", "--version"), ("quern-controller", "--help"), ("quern-bench", "--help"), ("quern-worker", "--help")):
        r = subprocess.run([unpacked / "bin" / program, option], capture_output=True, text=True, check=False, env=env)
        assert "symbol" not in r.stderr and "version information" not in r.stderr and r.returncode in (0, 2), r.stderr
    names = {p.name for p in (unpacked / "lib").iterdir()}
    assert {"libcurl.so.4", "libssl.so.3", "libcrypto.so.3"} <= names and not [n for n in names if "krb5support" in n or "sasl" in n]
    assert (unpacked / "lib" / "libcrypto.so.3").stat().st_size < 100_000
    call = "import ctypes; ctypes.CDLL('libssl.so.3').SSL_new(None)"
    r = subprocess.run(["python3", "-c", call], capture_output=True, text=True, check=False, env=env)
    assert r.returncode == -signal.SIGABRT and r.stderr == "SSL_new: libssl.so.3 is not in this archive\n"


def test_the_suites_of_a_program_share_a_process_until_a_test_fails():
    program = BUILD / "gpu" / "suites_cases"
    r = subprocess.run([program, "--timeout", "2"], capture_output=True, text=True, check=False, timeout=300)
    assert r.returncode == 1
    lines = re.findall(r"^\[(PASS|FAIL|SKIP)\] ([^:]*):", r.stdout, re.M)
    assert {n.removeprefix("cases/"): v for v, n in lines} == {
        "a_first": "PASS", "b_has_the_same_process": "PASS", "c_asserts": "FAIL", "d_has_a_new_process": "PASS", "e_expects": "FAIL",
        "f_crashes": "FAIL", "g_skips": "SKIP", "h_aborts_as_it_says": "PASS", "i_should_abort": "FAIL", "j_exits": "FAIL",
        "k_hangs": "FAIL", "l_parameters 1": "PASS", "l_parameters 2": "FAIL", "l_parameters 3": "PASS", "other/last": "PASS"}
    assert r.stdout.endswith("Synthesis: Tested: 15 | Passing: 7 | Failing: 7 | Skipped: 1\n")
    for text in ("a failed assertion, 3", 'crashed: Segmentation fault', "not done in time", "nothing to do", '("one") == ("another")'):
        assert text in r.stdout
    each = subprocess.run([program, "--each", "--filter", "cases/@(a|b)_*"], capture_output=True, text=True, check=False, timeout=300)
    assert each.returncode == 1 and "Passing: 1 | Failing: 1" in each.stdout
    assert subprocess.run([program, "--filter", "no/such"], capture_output=True, check=False, timeout=300).returncode == 2


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
    code, output, results, page = gpu_run(unpacked, tmp_path, "--small", "--slow", 10, "--phases", "device shapes models sanitizer ncu")
    assert code == 0, output + page
    assert set(results) == {"run", "machine", "phases", "tests", "goals", "data"}
    assert status(results) == {"machine": "ok", "device": "ok", "shapes": "ok", "models": "ok", "sanitizer": "skipped", "ncu": "skipped"}
    assert {p["name"]: p["reason"] for p in results["phases"]}["ncu"].strip() == "ncu is not here"
    checks = results["data"]["shapes-small"]
    assert len(checks) > 100 and all(c["ok"] for c in checks)
    assert {"qkv", "o", "gate+up", "down", "head", "embed", "gather", "rmsnorm", "sampler", "attention, padded"} <= {c["op"] for c in checks}
    assert [t["verdict"] for t in results["tests"]] == ["ok", "ok", "ok"] and all(int(t["passed"]) > 0 for t in results["tests"])
    assert all(g["verdict"] == "not measured" and g["measured"] is None for g in results["goals"])
    for heading in ("# Measured on emulated GPU", "## Goals", "## Machine", "## Phases", "## Every kernel in real shapes", "## Tests"):
        assert heading in page
    assert "Made-up shapes" in page and "(phase steps: not run)" in page
    assert (tmp_path / "out" / "logs.tar.gz").stat().st_size > 0


def test_probes_say_what_the_estimate_assumes(unpacked, tmp_path):
    """On the emulated device every probe runs, and mma and wgmma agree, as the estimate assumes."""
    code, output, results, page = gpu_run(unpacked, tmp_path, "--small", "--slow", 10, "--phases", "probes")
    assert code == 0 and status(results)["probes"] == "ok", output
    probes = results["data"]["probes"]
    assert {p["probe"] for p in probes} == {"device", "launch", "graph", "read", "ramp", "peak", "bits", "l2", "chase", "stream_l2"}
    assert {(p["how"], p["smem_kb"]) for p in probes if p["probe"] == "launch"} == {
        (how, kb) for how in ("plain", "early") for kb in (0, 32, 64, 96)}
    bits = [p for p in probes if p["probe"] == "bits"]
    assert {(p["type"], p["exponents"]) for p in bits} == {(t, e) for t in ("f16", "bf16") for e in ("narrow", "wide")} and len(bits) == 8
    assert all(p["verdict"] == "equal" and p["differing"] == 0 and p["results"] == 512 and p["largest"] > 0 for p in bits)
    assert {p["how"] for p in probes if p["probe"] == "l2"} == {"cold", "warm", "fetched", "again"}
    assert {p["how"] for p in probes if p["probe"] == "peak"} == {"mma", "wgmma"}
    assert {p["where"] for p in probes if p["probe"] == "chase"} == {"memory", "l2", "mapped"}
    assert {p["layer"] for p in probes if p["probe"] == "stream_l2"} == {"qkv", "o", "gate+up", "down"}
    assert "| bits | type=f16 n=8 steps=8 exponents=narrow verdict=equal" in page
    measured = json.loads((tmp_path / "out" / "measured.json").read_text())["assumed"]
    assert measured["sms"]["value"] == 4 and {"clock_ghz_1", "hbm_tbps", "mma_cycles", "trip_us", "mapped_us"} <= set(measured)
    assert all(set(m) == {"value", "date", "commit", "how"} and m["value"] > 0 and re.fullmatch(r"\d{4}-\d\d-\d\d", m["date"])
               for m in measured.values())


def test_a_changed_reference_fails(copy, tmp_path):
    """Devices are compared with the CPU results in the archive."""
    path = copy / "references" / "small"
    data = bytearray(path.read_bytes())
    data[data.index(b"down awq f16\0") + 13 + 5] ^= 0x80   # the sign of its first value
    path.write_bytes(data)
    code, _, results, _ = gpu_run(copy, tmp_path, "--small", "--slow", 10, "--phases", "shapes")
    assert code == 1 and status(results)["shapes"] == "FAILED"
    bad = [c for c in results["data"]["shapes-small"] if not c["ok"]]
    assert bad and {(c["op"], c["type"]) for c in bad} == {("down", "awq")} and all(c["same_bits"] for c in bad)
    path.write_bytes(data[:2000])
    code, _, results, _ = gpu_run(copy, tmp_path, "--small", "--slow", 10, "--phases", "shapes")
    assert code == 1 and status(results)["shapes"] == "FAILED"


def test_a_suite_that_crashes_leaves_the_others(copy, tmp_path):
    (copy / "gpu" / "test_parts").write_text("#!/bin/sh\nkill -SEGV $$\n")
    code, output, results, page = gpu_run(copy, tmp_path, "--small", "--slow", 10, "--phases", "device models")
    assert code == 1 and status(results) == {"machine": "ok", "device": "FAILED", "models": "ok"}, output
    assert {t["name"]: t["verdict"] for t in results["tests"]} == {"part device": "FAILED (139)", "golden models": "ok", "steps": "ok"}
    assert "| device | part device | FAILED (139) |" in page


def test_libraries_are_searched_for_a_few_seconds_at_most(unpacked):
    """A search that does not end is stopped."""
    script = (unpacked / "gpu-run").read_text()
    parts = [script[script.index(f"{name}() {{"):].split("\n}\n")[0] + "\n}\n" for name in ("known_lib", "find_libs")]
    limit = re.search(r"^FIND_S=(\d+)$", script, re.M)
    assert 0 < int(limit[1]) <= 5 and script.count("$FIND_S find ") == 1 == len(re.findall(r"\bfind /", script))
    tools = 'ldconfig() { :; }\ncompgen() { :; }\ntimeout() { printf "/a b/libcublas.so.12\\n/c/libnccl.so.2\\n%s" "$*"; }\n'
    r = subprocess.run(["bash", "-uc", f'{tools}FIND_S=7\n{"".join(parts)}find_libs; echo "$RUN_CUBLAS|$RUN_NCCL|"'], capture_output=True,
                       text=True, check=True)
    assert r.stdout.startswith("/a b|/c|")
    known = tools.replace("compgen() { :; }", 'compgen() { echo "/known/${2##*/}"; }').replace("timeout() {", "timeout() { echo searched >&2;")
    r = subprocess.run(["bash", "-uc", f'{known}FIND_S=7\n{"".join(parts)}find_libs; echo "$RUN_CUBLAS|$RUN_NCCL"'], capture_output=True,
                       text=True, check=True)
    assert (r.stdout, r.stderr) == ("/known|/known\n", "")


@pytest.mark.parametrize("spoiled, verdicts", [("tests/golden/models.json", ["FAILED", "ok"]),
                                               ("tests/tiny/llama3/config.json", ["ok", "FAILED"])])
def test_the_tests_read_what_was_unpacked(copy, tmp_path, spoiled, verdicts):
    """No path leads back to the build folder."""
    (copy / spoiled).write_text("{}")
    code, output, results, _ = gpu_run(copy, tmp_path, "--small", "--slow", 10, "--phases", "device models")
    assert code == 1 and "FAILED" in status(results).values(), output
    assert [t["verdict"].split()[0] for t in results["tests"] if t["name"] != "part device"] == verdicts


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
                       'printf \'{"batch": 1, "how": "graphs", "tokens_per_s": 700}\\n{"batch": 16, "how"\' >"$2"\n'
                       ': >"$0.began"\nexec sleep 900\n')
    for limit in (2, 10, 50):   # on a busy machine the program may not have started by then
        code, output, results, page = gpu_run(copy, tmp_path, "--small", "--slow", 10, "--phases", f"shapes steps:{limit} ncu")
        if program.with_name("bench_step.began").exists():
            break
    assert code == 0, output
    assert status(results) == {"machine": "ok", "shapes": "ok", "steps": "cut off", "ncu": "skipped"}
    assert f"| steps | {limit} |" in page and f"ended by its limit of {limit} s" in page
    assert all(c["ok"] for c in results["data"]["shapes-small"])
    # Measurements made before the cut count; an incomplete line does not.
    assert results["data"]["steps-awq"] == [{"batch": 1, "how": "graphs", "tokens_per_s": 700}]
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
    (tmp_path / "run.tsv").write_text("date\t2026-12-01 10:20\ncommit\tabc\n")
    lines("device.jsonl", [{"name": "NVIDIA H200", "copy_gb_per_s": 4000, "small_kernel_replayed_us": 2.5}])
    lines("probes.jsonl", [
        {"probe": "device", "sms": 132}, {"probe": "launch", "how": "plain", "smem_kb": 0, "us": 1.2},
        {"probe": "launch", "how": "plain", "smem_kb": 96, "us": 9}, {"probe": "graph", "us": 5},
        {"probe": "read", "sms": 132, "gb_per_s": 4300, "clock_ghz": 1.9}, {"probe": "read", "sms": 132, "gb_per_s": 4400, "clock_ghz": 1.95},
        {"probe": "read", "sms": 8, "gb_per_s": 400}, {"probe": "ramp", "mb": 8.7, "us": 4, "ramp_us": 0.9},
        {"probe": "peak", "how": "wgmma", "mma_cycles": 1, "clock_ghz": 1.6}, {"probe": "peak", "how": "mma", "mma_cycles": 1.1, "clock_ghz": 1.7},
        {"probe": "l2", "how": "again", "gb_per_s": 5600}, {"probe": "chase", "where": "memory", "ns": 650},
        {"probe": "chase", "where": "mapped", "ns": 1400}, {"probe": "stream_l2", "layer": "o", "k": 4096, "n": 4096, "us": 6},
        {"probe": "stream_l2", "layer": "down", "k": 12288, "n": 4096, "us": 11}])
    lines("steps-awq.jsonl", [{"batch": 1, "how": "graphs", "tokens_per_s": 500, "step_us": 2000, "copies": 5, "host_begin_us": 30, "host_end_us": 30},
                              {"batch": 64, "how": "graphs", "device_idle_share": 0.02}])
    lines("steps-f16.jsonl", [{"batch": 1, "how": "graphs", "tokens_per_s": 200}])
    (data / "engine-awq.json").write_text(json.dumps({"results": [{"batch": 1, "decode_tokens_per_s": 620}]}))
    (data / "estimates.json").write_text(json.dumps({
        "kernels": {"linear_stream_kernel<false, 1, 1, 1>": {"instructions": 211.66, "mma": 8}}, "steps": {"decode 1": {"us": 1900}, "prompt 2048": {"us": 60000}}}))
    (data / "prefill-awq-default.json").write_text(json.dumps({"prompt_tokens": 2048, "results": [{"batch": 1, "ttft_ms": {"p50": 90}}]}))
    row = {"qkv": 10, "o": 10, "gate+up": 40, "down": 20}
    lines("linear.jsonl", [{"layer": k, "rows": 1, "type": "awq", "mode": "default", "us": v, "bytes": v * 3.2e6} for k, v in row.items()] +
          [{"layer": k, "rows": 1, "type": "f16", "mode": "cublas", "us": 3.5 * v} for k, v in row.items()] +
          # One layer is missing: no total is shown, since a sum without it would be too optimistic.
          [{"layer": k, "rows": 16, "type": "awq", "mode": "default", "us": v} for k, v in list(row.items())[:3]])
    subprocess.run([report, tmp_path, tmp_path], check=True)
    goals = {g["goal"]: (g["measured"], g["verdict"]) for g in json.loads((tmp_path / "gpu-results.json").read_text())["goals"]}
    assert goals["Qwen3-8B AWQ, batch 1, steps: estimated"] == (500, "missed")    # of 526
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
    measured = json.loads((tmp_path / "measured.json").read_text())
    assert {k: v for k, v in measured.items() if k != "assumed"} == {"decode 1": 2.0, "prompt 2048": 90.0}
    assumed = {k: v["value"] for k, v in measured["assumed"].items()}
    # o 4,096 x 4,096 and down 12,288 x 4,096 in units of 1,024: 32,768 more, 132 multiprocessors, 105.83 instructions each
    issue = 32768 * 211.66 / 2 / 132 / (4 * 5 * 1e3 * 1.95)
    assert assumed.pop("issue_4") == pytest.approx(issue, abs=1e-4)
    assert assumed == {"sms": 132, "clock_ghz_1": 1.95, "clock_ghz_256": 1.7, "hbm_tbps": 4.4, "l2_tbps": 5.6, "mma_cycles": 1.1,
                       "launch_us": 1.2, "ramp_us": 0.9, "row_us": 1.3, "trip_us": 0.65, "graph_us": 3.8, "mapped_us": 1.4}
    # The names that tests/sass reads: each is one of its assumptions.
    spec = importlib.util.spec_from_file_location("estimate", ROOT / "tests/sass/estimate.py")
    estimate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(estimate)
    estimate.assume(measured["assumed"])
    assert estimate.A["hbm_tbps"] == 4.4
    assert measured["assumed"]["sms"] == {"value": 132, "date": "2026-12-01", "commit": "abc", "how": "the device's properties"}


def test_the_second_call_runs_what_the_first_did_not(copy, tmp_path):
    """The second call runs a phase that failed, a phase that was cut, and its own phases. Results of the first call
    stay."""
    real = (copy / "gpu" / "measure").read_bytes()
    (copy / "gpu" / "measure").unlink()     # its other names stay
    (copy / "gpu" / "measure").write_text('#!/bin/sh\n[ "$1" = device ] || exit 1\nexit 0\n')
    (copy / "gpu" / "measure").chmod(0o755)
    code, output, results, _ = gpu_run(copy, tmp_path, "--small", "--slow", 3, "--limit", 60)
    first = status(results)
    assert list(first) == FIRST and first["linear"] == "FAILED" == first["attention"], output
    assert first["shapes"] == "ok" and results["data"]["shapes-small"]
    (copy / "gpu" / "measure").write_bytes(real)
    plan = subprocess.run([copy / "gpu-run", "--second", "--plan", "--out", tmp_path / "out"], capture_output=True, text=True, check=True)
    planned = re.findall(r"^(\w+) +\d+ s  ", plan.stdout, re.M)
    again = [n for n in FIRST if first[n] not in ("ok", "skipped")]
    assert {"linear", "attention"} <= set(again)
    assert planned == ["machine", *again, *SECOND[1:]]
    # However far the second call got, the page has the first call's results that were not measured again.
    _, output, results, page = gpu_run(copy, tmp_path, "--small", "--limit", 25, "--second")
    kept = [n for n in FIRST[1:] if n not in again]
    assert list(status(results)) == [*kept, "machine", *again, *SECOND[1:]], output
    assert {n: status(results)[n] for n in kept} == {n: first[n] for n in kept}
    assert {t["phase"] for t in results["tests"]} >= {"device"} & set(kept)
    assert len(results["data"]["shapes-small"]) > 100 and "| shapes |" in page


@long_only
def test_both_calls_on_the_emulated_device(unpacked, tmp_path):
    code, output, results, page = gpu_run(unpacked, tmp_path, "--small", "--slow", 20)
    assert code == 0, output + page
    assert list(status(results)) == FIRST and set(status(results).values()) == {"ok"}
    assert {s["batch"] for s in results["data"]["steps-awq"]} == {1, 3}
    calls = {o["operation"]: o["calls"] for o in results["data"]["inside"] if o["batch"] == 3}
    assert calls["attention"] == calls["rotate"] > 0 and calls["norm"] == 2 * calls["attention"] + 1 and calls["sample"] == 1
    assert {calls[name] for name in ("qkv", "o", "gate+up", "down")} == {calls["attention"]}
    assert all(o["us_each"] > 0 for o in results["data"]["inside"] if o["operation"] == "attention")
    assert {x["rows"] for x in results["data"]["linear"] if "rows" in x} == {1, 17}
    for heading in ("Steps of decoding, AWQ", "Operations within a step's graph, AWQ", "Linear layers, AWQ and f16", "Attention"):
        assert f"\n## {heading}\n" in page
    code, output, results, page = gpu_run(unpacked, tmp_path, "--small", "--slow", 20, "--second")
    assert code == 0, output + page
    assert list(status(results)) == [*FIRST[1:], *SECOND]
    assert {n: s for n, s in status(results).items() if s != "ok"} == {"sanitizer": "skipped", "ncu": "skipped"}
    reasons = {p["name"]: p["reason"] for p in results["phases"]}
    assert re.search(r"without cuBLAS: .* is here|without cuBLAS: .* is not here", reasons["rows"]), reasons
    assert results["data"]["service"][0]["open_at_kill"] > 0
    assert sorted((s["batch"], s["how"]) for s in results["data"]["steps-awq"]) == [
        (1, "graphs"), (1, "operations"), (2, "graphs"), (3, "graphs")]
    assert {x["rows"] for x in results["data"]["linear"] if "rows" in x} == {1, 17, 70}
    assert len(results["data"]["attention"]) == 3
    assert all(a["pad_to"] >= a["batch"] for a in results["data"]["attention"] if a["rows"] == 1)
    assert results["data"]["serving-1"]["completed"] == 4
    for heading in ("Steps of decoding, AWQ", "Steps of decoding, F16", "End to end", "Serving", "Linear layers, AWQ and f16",
                    "Linear layers, AWQ and bf16", "Attention", "Sampler"):
        assert f"\n## {heading}\n" in page


@long_only
def test_tokens_that_change_after_a_kill_fail_the_service_phase(copy, tmp_path):
    quern = copy / "bin" / "quern"
    quern.rename(copy / "bin" / "quern.real")
    # The second round of jobs uses other seeds.
    quern.write_text('#!/bin/bash\nn=$(dirname "$0")/rounds args=("$@")\n'
                     'if [ "$1" = submit ]; then\n\techo x >>"$n"\n'
                     '\t[ "$(wc -l <"$n")" -le 3 ] || args[4]=$((args[4] + 100))\nfi\n'
                     'exec "$0.real" "${args[@]}"\n')
    quern.chmod(0o755)
    code, output, results, _ = gpu_run(copy, tmp_path, "--small", "--slow", 20, "--phases", "service")
    assert code == 1 and status(results)["service"] == "FAILED", output
    assert "other tokens" in output
