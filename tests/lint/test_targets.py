"""The Makefile's targets that neither `make check` nor CI runs: make finds a rule for each prerequisite in a tree where
nothing is built, and the files that their commands name exist."""
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILES = [ROOT / "Makefile", ROOT / "kernels/cuda/rules.mk", ROOT / "deploy/rules.mk"]
UNRUN = """check-e2e tsan chaos crash mutate inject guided bench bench-http deb image wheel dist
    deploy-check cuda cudasim cudarace gpu-tests gpu-pack gpu-pack-sim gpu-pack-parts gpu-pack-long gpu-check gpu-bench
    sass-archs""".split()
# A path of the repository in a command, except build outputs.
NAMED = re.compile(r"(?<![\w./$-])(?:tests|deploy|clients|models|kernels|docs)/[\w./-]+\.(?:py|sh|toml|supp|txt|awk|c|cu|cc)\b")


def dry(*targets, makefile="Makefile", cwd=ROOT, build="build/none"):
    """Return (exit status, output) of a dry run with nothing built, as on a machine with nvcc."""
    r = subprocess.run(["make", "-n", "-k", "-f", makefile, f"BUILD={build}", "NVCC=nvcc", *targets], cwd=cwd, capture_output=True,
                       text=True, check=False)
    return r.returncode, r.stdout + r.stderr


def absent(output):
    return sorted({name for name in NAMED.findall(output) if not (ROOT / name).exists()})


@pytest.fixture(scope="module")
def unrun():
    return dry(*UNRUN)


def test_make_finds_a_rule_for_each_part(unrun):
    status, output = unrun
    assert status == 0, [line for line in output.splitlines() if "***" in line]


def test_files_that_commands_name_are_there(unrun):
    assert len(NAMED.findall(unrun[1])) > 1000
    assert absent(unrun[1]) == []


def test_a_part_without_a_rule_and_a_file_that_is_gone_are_found(tmp_path):
    (tmp_path / "Makefile").write_text(".PHONY: a b\na: build/none/part\nb:\n\tpython tests/tools/gone.py\n")
    status, output = dry("a", "b", cwd=tmp_path)
    assert status and "No rule to make target 'build/none/part'" in output
    assert absent(output) == ["tests/tools/gone.py"]


def test_every_target_of_the_help_is_a_target():
    text = "".join(p.read_text() for p in MAKEFILES)
    targets = set(" ".join(re.findall(r"^\.PHONY: *(.*)$", text, re.M)).split())
    lines = [line for line in (ROOT / "Makefile").read_text().split("\n\n")[0].splitlines() if line.startswith("#   ")]
    named = {t for line in lines for words in re.findall(r"make ((?:[a-z-]+ \| )*[a-z-]+)(?=\s|$)", line) for t in words.split(" | ")}
    assert len(named) > 25 and set(UNRUN) <= targets
    assert named - targets == set()


def test_make_run_builds_what_its_story_needs():
    status, output = dry("run")
    first, _, rest = output.partition("bin/quern run models/demo")
    compiled = re.findall(r"-c (\S+)\.c ", first)
    assert status == 0 and len(compiled) > 300
    assert compiled[0].startswith("kernels/")
    assert not [c for c in compiled if c.startswith(("bench/", "quant/"))]
    assert " -c " not in rest
    assert output.count(" -O2 -g -fno-var-tracking ") >= len(compiled)
