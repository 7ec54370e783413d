"""`make proof`: its output for the service, and that it detects a text that differs."""
import os
import subprocess
from pathlib import Path

import pytest

from service import BIN, DEMO, no_processes_left

PROOF = Path(__file__).parent / "proof.sh"

# A service whose second and later texts have one more byte if TEXT says so; its job and worker are sleeping processes.
STUB = """#!/bin/sh
here=$(dirname "$0")
case $1 in
serve) echo $$ >>"$here/served"; exec sleep 60 ;;
status) exit 0 ;;
jobs) echo '{"jobs":[{"job":"1","state":"running","n":1,"completion_tokens":150}]}' ;;
workers) sleep 60 >/dev/null & echo '{"workers":[{"worker":1,"pid":'$!'}]}' ;;
submit) case "$*" in *--detach*) echo 1 ;; *) printf once; [ ! -e "$here/n" ] || printf "$STREAM"; : >"$here/n" ;; esac ;;
result) [ -e "$here/asked" ] || { : >"$here/asked"; exit 1; }; printf "once$JOB" ;;
esac
"""


def proof(bin_dir, model, **env):
    return subprocess.run([PROOF, bin_dir, model], capture_output=True, text=True, timeout=240, env={**os.environ, **env})


def test_texts_are_equal_whatever_is_killed(tmp_path):
    r = proof(BIN, DEMO, TMPDIR=str(tmp_path))
    assert r.returncode == 0, r.stdout + r.stderr
    assert r.stdout.count("equal") == 2 and "(the worker)" in r.stdout and "(every process)" in r.stdout
    assert len(r.stdout.split("kill -9 ")[2].split("(")[0].split()) >= 3      # quern, controller, worker
    assert list(tmp_path.iterdir()) == []
    no_processes_left(str(tmp_path))


@pytest.mark.parametrize("stream, job, differ", [("", "", 0), ("!", "", 1), ("", "!", 1), ("!", "!", 2)])
def test_a_text_that_differs_is_told(tmp_path, stream, job, differ):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/quern").write_text(STUB)
    (tmp_path / "bin/quern").chmod(0o755)
    r = proof(tmp_path / "bin", "model", STREAM=stream, JOB=job)
    assert (r.returncode, r.stdout.count("DIFFERENT"), r.stdout.count("equal")) == (1 if differ else 0, differ, 2 - differ), r.stdout + r.stderr


def test_a_service_that_does_not_start_is_told(tmp_path):
    r = proof(BIN, tmp_path / "none")
    assert r.returncode == 2 and "the service does not start" in r.stderr and "none" in r.stderr
