"""Fixtures of what runs on the emulated CUDA device, and of tiny models with random weights."""

import subprocess
import sys

import pytest

from service import BIN, ROOT

LIBRARY = BIN.parent / "lib" / "libquern-cudasim.so"


@pytest.fixture
def emulated(monkeypatch):
    """--device cuda:0 is the emulated one (tests/cudasim)."""
    if not LIBRARY.exists():
        pytest.skip("the emulated CUDA device is not built; make cudasim-tests")
    monkeypatch.setenv("QUERN_CUDA_LIBRARY", str(LIBRARY))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """tiny("qwen2-moe"): the directory of that model, of tests/tools/make_model.py."""
    made = {}

    def make(kind):
        if kind not in made:
            out = tmp_path_factory.mktemp("models") / "tiny"
            p = subprocess.run([sys.executable, ROOT / "tests/tools/make_model.py", out, "--tiny", kind],
                               capture_output=True, text=True)
            if p.returncode:
                pytest.skip(f"tiny models need Python with numpy: {p.stderr[-200:]}")
            made[kind] = out
        return made[kind]
    return make
