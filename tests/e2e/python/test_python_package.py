"""The package as it is installed: what its wheel has, and what help() says of its names."""

import inspect
import subprocess
import sys

import pytest

import quern
from service import BIN, DEMO, ROOT

PACKAGE = ROOT / "clients" / "python"
USE = """
import quern
from importlib.metadata import metadata, version
from importlib.resources import files
assert version("quern") == quern.__version__ and "Offline batches" in metadata("quern")["Description"]
assert (files("quern") / "py.typed").is_file() and "site-packages" in quern.__file__
with quern.LLM({model!r}, bin={bin!r}) as llm:
    print(len(llm.generate("Once", quern.SamplingParams(max_tokens=3))[0].outputs[0].token_ids))
"""


def test_it_installs_into_a_bare_environment(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=100)
    python = tmp_path / "venv" / "bin" / "python"
    r = subprocess.run([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", PACKAGE],
                       capture_output=True, text=True, timeout=250)
    if r.returncode and ("No matching distribution" in r.stderr or "Could not find a version" in r.stderr):
        pytest.skip("there is no package index to take hatchling, pyzmq and msgpack from")
    assert r.returncode == 0, r.stderr
    r = subprocess.run([python, "-W", "error", "-c", USE.format(model=str(DEMO), bin=str(BIN))], cwd=tmp_path, timeout=100,
                       capture_output=True, text=True)
    assert (r.returncode, r.stdout) == (0, "3\n"), r.stderr
    r = subprocess.run([python, "-m", "pydoc", "quern"], cwd=tmp_path, timeout=60, capture_output=True, text=True)
    assert r.returncode == 0 and "class LLM(" in r.stdout and "Offline batches" not in r.stderr


def test_every_public_name_says_what_it_is():
    for name in quern.__all__:
        thing = getattr(quern, name)
        assert inspect.getdoc(thing), name
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, (property, staticmethod, classmethod))):
                assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"
