"""Every example of the package's README runs unchanged."""

import os
import re
import subprocess
import sys

import pytest

from service import BIN, DEMO, QUERN, ROOT, Service

PACKAGE = ROOT / "clients" / "python"
BLOCKS = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.S)
KEYED = [b for b in BLOCKS if "Keys.load" in b]


def run(block, cwd, service):
    if service is not None:
        block = block.replace("tcp://127.0.0.1:7420", service.jobs).replace("http://127.0.0.1:8080", service.http or "-")
    env = {**os.environ, "QUERN_BIN": str(BIN), "PYTHONPATH": str(PACKAGE / "src")}
    r = subprocess.run([sys.executable, "-W", "error", "-c", block], cwd=cwd, env=env, capture_output=True, text=True,
                       timeout=100)
    assert r.returncode == 0 and "Traceback" not in r.stderr, r.stderr
    assert r.stdout.strip(), "it printed nothing"
    return r.stdout


def test_there_are_examples():
    assert len(BLOCKS) >= 11 and len(KEYED) == 1


@pytest.mark.parametrize("block", [b for b in BLOCKS if b not in KEYED],
                         ids=lambda b: re.sub(r"\W+", "-", b.split("\n", 3)[2] or b.split("\n", 4)[3])[:40])
def test_example(block, journaled):
    out = run(block, ROOT, journaled)
    if "== whole.text" in block:
        assert out.split() == ["True", "True"]
    if "Unsupported as e" in block:
        assert out.startswith("logits_processors - ")
    if "BadRequest as e" in block:
        assert out.startswith("E_BAD_REQUEST temperature temperature is -1") and out.endswith("Once upon a time\n")


def test_example_with_keys(tmp_path, start):
    for name in ("service", "alice"):
        subprocess.run([QUERN, "keygen", "--out", tmp_path, "--name", name], check=True, capture_output=True, timeout=30)
    public = re.search(r"^public = (.*)$", (tmp_path / "alice.pub").read_text(), re.M)[1]
    (tmp_path / "allow").write_text(f"client {public} alice\n")
    (tmp_path / "allow").chmod(0o600)
    s = start(DEMO, "--curve-key", tmp_path / "service.key", "--allow", tmp_path / "allow")
    assert isinstance(s, Service)
    assert run(KEYED[0], tmp_path, s) == "True\n"
