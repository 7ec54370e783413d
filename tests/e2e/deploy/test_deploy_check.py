"""The driver of `make deploy-check`, run with test scripts: the result of each script, and the overall result."""

import os
import shutil
import subprocess

import pytest

from service import ROOT

CHECK = ROOT / "deploy" / "check"
PARTS = {
    "works": 'test -d "$WORK" && echo fine',
    "broken": "echo the reason; exit 3",
    "lacks": '. deploy/check/lib/check.sh; not_run "no fleet of ships here"',
    "mute": "exit 77",
}


@pytest.fixture
def run(tmp_path):
    """run(PART..., STRICT=): run the driver in its own tree."""
    shutil.copytree(CHECK / "lib", tmp_path / "deploy" / "check" / "lib")
    shutil.copy(CHECK / "run.sh", tmp_path / "deploy" / "check")
    for name, text in PARTS.items():
        script = tmp_path / "deploy" / "check" / f"{name}.sh"
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
    (tmp_path / "build").mkdir()

    def run(*parts, **env):
        return subprocess.run([tmp_path / "deploy" / "check" / "run.sh", *parts], capture_output=True, text=True,
                              timeout=60, env={"PATH": os.environ["PATH"], **env})
    return run


def test_a_part_passes(run):
    done = run("works")
    assert done.returncode == 0 and done.stdout.startswith("works        passed (")
    assert done.stdout.endswith("deploy-check: 1 passed, 0 failed, 0 not run\n")


def test_a_part_that_fails_shows_its_output(run):
    done = run("broken", "works")
    assert done.returncode == 1
    assert "broken       failed (exit status 3, " in done.stdout and "    the reason\n" in done.stdout
    assert "works        passed" in done.stdout


def test_a_part_that_cannot_run_names_what_is_missing(run):
    assert "lacks        not run: no fleet of ships here\n" in run("lacks").stdout
    assert run("lacks").returncode == 0
    assert run("lacks", STRICT="1").returncode == 1


def test_a_part_may_not_be_left_out_without_a_reason(run):
    done = run("mute")
    assert done.returncode == 1 and "mute         failed (exit status 77" in done.stdout


def test_all_parts_run_by_default(run):
    assert run().stdout.endswith("deploy-check: 1 passed, 2 failed, 1 not run\n")


def test_an_unknown_part_is_refused(run):
    done = run("nothing")
    assert done.returncode == 2 and "there is no part \"nothing\"; there are: broken lacks mute works" in done.stderr


def test_the_parts_are_scripts_that_can_be_started():
    for script in CHECK.glob("*.sh"):
        assert os.access(script, os.X_OK), script
        shell = script.read_text().split("\n")[0].removeprefix("#!")
        assert shell in ("/bin/sh", "/bin/bash"), script
        subprocess.run([shell, "-n", script], check=True, timeout=30)
