"""The installed package: the contents of its wheel, and help() for its names."""

import importlib.util
import inspect
import os
import subprocess
import sys

import pytest

import quern
from quern import _service
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


def install(folder, *options, **env):
    """Install the package into an environment; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=100)
    python = folder / "venv" / "bin" / "python"
    r = subprocess.run([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *options, PACKAGE],
                       capture_output=True, text=True, timeout=250, env={**os.environ, **env})
    if r.returncode and ("No matching distribution" in r.stderr or "Could not find a version" in r.stderr):
        pytest.skip("there is no package index to take hatchling, pyzmq and msgpack from")
    assert r.returncode == 0, r.stderr
    return python


def test_a_wheel_has_the_programs_inside(tmp_path):
    """Programs are staged as `make wheel` does it (deploy/wheel/wheel.py); make deploy-check PARTS=wheel tests the real
    wheel."""
    script = "#!/bin/sh\necho \"$(dirname \"$0\") has $*\"\n"
    spec = importlib.util.spec_from_file_location("wheel_py", ROOT / "deploy" / "wheel" / "wheel.py")
    wheel_py = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wheel_py)
    for folder, text in (("programs", script), ("commands", wheel_py.COMMAND.format(name="quern"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "quern").write_text(text)
        (tmp_path / folder / "quern").chmod(0o755)
    python = install(tmp_path, "--no-deps", QUERN_WHEEL=str(tmp_path))
    package, = (tmp_path / "venv").glob("lib/python3*/site-packages/quern")
    env = {k: v for k, v in os.environ.items() if k != "QUERN_BIN"}
    r = subprocess.run([python.parent / "quern", "one", "two words"], capture_output=True, text=True, timeout=60, env=env)
    assert r.stdout == f"{package}/programs has one two words\n", r.stderr
    tags = next(package.parent.glob("quern-*.dist-info/WHEEL")).read_text()
    assert "Root-Is-Purelib: false" in tags and "Tag: py3-none-linux_" in tags


def test_without_programs_the_error_says_where_to_take_them_from(monkeypatch, tmp_path):
    monkeypatch.delenv("QUERN_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_service, "__file__", str(tmp_path / "site-packages" / "quern" / "_service.py"))
    with pytest.raises(quern.StartError, match="make wheel.*QUERN_BIN.*make install"):
        _service.find_program()
    inside = tmp_path / "programs"
    inside.mkdir()
    (inside / "quern").touch(0o755)
    (tmp_path / "quern").touch(0o755)
    assert _service.find_program() == str(tmp_path / "quern")
    monkeypatch.setattr(_service, "PROGRAMS", inside)
    assert _service.find_program() == str(inside / "quern"), "the package's own programs come before those of PATH"


def test_it_installs_into_a_bare_environment(tmp_path):
    python = install(tmp_path)
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
