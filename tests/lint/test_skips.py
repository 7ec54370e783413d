"""Skips: tests/run.py fails for a planted skip that tests/skips.toml does not list or with a condition that does not hold,
and lists every reason that a test of this tree may give."""
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
run = importlib.import_module("run")
skips = importlib.import_module("skips")

ROWS = [{"tests": ["unit/x/*", "e2e/x/test_x.py"], "says": "no (?P<name>[a-z-]+) here", "needs": ["program {name}"],
         "remedy": "{name} is installed"},
        {"tests": ["unit/x/*"], "says": "never", "needs": [], "remedy": "build it"}]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """An empty checkout that run.py uses as its own."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build/venv").symlink_to(Path(sys.prefix))
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(skips, "rows", lambda: ROWS)
    return tmp_path


def criterion(tree, *options, **reasons):
    """Return the result of a program with one test that passes, and one skip for each reason, given as
    TEST="REASON"."""
    source, program = tree / "test_y.c", tree / "build/test_y"
    tests = "".join(f'Test(y, {test}) {{ cr_skip_test("{reason}"); }}\n' for test, reason in reasons.items() if reason)
    tests += "".join(f"Test(y, {test}, .disabled = true) {{}}\n" for test, reason in reasons.items() if not reason)
    source.write_text(f"#include <criterion/criterion.h>\nTest(y, passes) {{ cr_assert(1); }}\n{tests}")
    subprocess.run(["cc", source, "-lcriterion", "-o", program], check=True)
    return run.criterion("unit/x/test_y, elsewhere", program, *options, build=tree / "build", env={})


def pytests(tree, text):
    folder = tree / "tests/e2e/x"
    folder.mkdir(parents=True)
    (folder / "test_x.py").write_text(text)
    return run.pytests("x", [str(folder)], build=tree / "build")


def test_a_skip_in_c_that_holds_is_allowed(tree):
    r = criterion(tree, wants="no no-such-program here")
    assert (r.passed, r.failed, r.skipped, r.bad) == (1, 0, 1, [])


def test_planted_skips_in_c_fail_with_the_test_and_the_remedy(tree):
    r = criterion(tree, other="another reason", wants="no sh here", absent="never", off=None)
    assert (r.passed, r.failed, r.skipped) == (1, 4, 4)
    said = "\n".join(sorted(r.bad))
    assert "test_y, elsewhere:y::other is skipped for a reason that tests/skips.toml does not list ('another reason')" in said
    assert "y::wants is skipped ('no sh here'), although this is here: program sh: sh is installed" in said
    assert "y::absent is skipped ('never'), which no machine may skip: build it" in said
    assert "y::off is skipped for a reason that tests/skips.toml does not list ('Test is disabled')" in said


def test_tests_that_a_filter_leaves_out_are_not_skipped(tree):
    r = criterion(tree, "--filter", "y/passes", wants="no sh here")
    assert (r.passed, r.failed, r.skipped) == (1, 0, 0)


def test_planted_skips_in_python_fail_too(tree):
    r = pytests(tree, "import pytest\n\ndef test_a():\n    pass\n\n\ndef test_b():\n    pytest.skip('no no-such-program here')\n\n\n"
                      "@pytest.mark.skipif(True, reason='no sh here')\ndef test_c():\n    pass\n\n\n"
                      "@pytest.fixture\ndef f():\n    pytest.skip('unlisted')\n\n\ndef test_d(f):\n    pass\n\n\n"
                      "@pytest.mark.parametrize('n', [])\ndef test_e(n):\n    pass\n")
    assert (r.passed, r.failed, r.skipped) == (1, 3, 4)
    said = "\n".join(r.bad)
    assert "e2e/x/test_x.py::test_c is skipped ('no sh here'), although" in said
    assert "e2e/x/test_x.py::test_d is skipped for a reason that tests/skips.toml does not list ('unlisted')" in said
    assert "e2e/x/test_x.py::test_e" in said and "empty parameter set" in said


def test_a_whole_file_that_is_skipped_is_named(tree):
    r = pytests(tree, "import pytest\npytest.importorskip('no_such_module')\n\ndef test_a():\n    pass\n")
    assert (r.failed, r.skipped) == (1, 1) or r.failed == 2     # pytest itself exits with a status if it ran no test
    assert any("e2e/x/test_x.py" in b and "could not import 'no_such_module'" in b for b in r.bad)


def test_a_fault_fails_the_whole_run(monkeypatch, capsys):
    r = run.Result("some tests", passed=2, skipped=1)
    monkeypatch.setattr(run, "results", lambda build, only: [r])
    assert run.main("build") == 0
    r.check_skips(skips.Machine("build"), [("unit/x/test_y", "y::z", "no list has this reason")])
    assert run.main("build") == 1
    assert "what failed:\ny::z is skipped for a reason" in capsys.readouterr().out


def test_the_cpu_time_of_a_command_and_of_its_children_is_counted():
    spin = "import time\nwhile time.process_time() < 0.5: pass"
    status, lines, _, cpu = run.output_of(["sh", "-c", f"echo a; '{sys.executable}' -c '{spin}'; exit 3"], {})
    assert (status, lines) == (3, ["a"]) and 0.5 <= cpu < 5
    assert run.output_of(["sh", "-c", "kill -9 $$"], {})[0] == -9


# ---- the list ----

def literals():
    """Return (file, reason) of each skip in the tests, with x for inserted values. Tests that test other runners are
    left out: this file, and cases of the pack's."""
    others = {Path(__file__).resolve(), TESTS / "gpu/suites_cases.c"}
    for path in sorted(p for p in TESTS.rglob("*.[chp]*") if p.suffix in (".c", ".h", ".py") and p not in others):
        text, file = path.read_text(), str(path.relative_to(TESTS))
        for m in re.finditer(r'cr_skip_test\(\s*"([^"]+)"', text):
            yield file.removesuffix(".c"), re.sub("%[a-z]+", "x", m[1])
        for m in re.finditer(r'pytest\.skip\(\s*f?"([^"]+)"|skipif\([^@]*?reason="([^"]+)"', text):
            yield file, re.sub(r"{.*?}", "x", m[1] or m[2]).replace("a process may open x", "a process may open 9")


def test_every_reason_in_the_tests_is_listed():
    rows, found = skips.rows(), list(literals())
    assert len(found) > 90
    unlisted = []
    for file, reason in found:
        test = Path(file).name.startswith("test_")
        if not any(re.fullmatch(row["says"], reason) and (not test or skips.listed([row], file, reason)[0]) for row in rows):
            unlisted.append(f"{file}: {reason}")
    assert not unlisted, "\n".join(unlisted)


def test_every_row_is_of_a_reason_in_the_tests():
    reasons = {reason for _, reason in literals()} | {"could not import 'x': x", "not compared: x"}
    assert [row["says"] for row in skips.rows() if not any(re.fullmatch(row["says"], r) for r in reasons)] == []


def test_every_need_can_be_looked_for():
    machine = skips.Machine(os.environ.get("QUERN_BUILD", "build"))
    for row in skips.rows():
        assert set(row) == {"tests", "says", "needs", "remedy"}
        for need in row["needs"]:
            assert machine.has(need.format(path="x", file="x", name="x", module="x")) in (True, False), need


def test_needs_follow_the_machine(tmp_path):
    machine = skips.Machine(tmp_path, {"QUERN_TEST_DEVICE": "cuda:0", "QUERN_CUDA_LIBRARY": "/x/libquern-cudasim.so",
                                       "QUERN_SHARED_DATA": str(tmp_path)})
    (tmp_path / "text").mkdir()
    (tmp_path / "bin").mkdir()
    worker = tmp_path / "bin/quern-worker"
    worker.write_bytes(b"\0plain\0")
    assert machine.has("device cuda") and not machine.has("device cpu") and not machine.has("gpu")
    assert machine.has("data text") and not machine.has("data weights/x")
    assert machine.has("no-cuda-library") and machine.has("plain-build")
    worker.write_bytes(b"\0__asan_init\0")
    assert not machine.has("plain-build")
    assert skips.Machine(tmp_path, {"QUERN_TEST_DEVICE": "cuda:1", "QUERN_CUDA_LIBRARY": "/x/libquern-cuda.so"}).has("gpu")
    assert not machine.has("cpu no_such_flag") and machine.has("processors 1") and not machine.has("processors 100000")
