"""Fixtures of the tests that run on the emulated CUDA device."""

import pytest

from service import BIN

LIBRARY = BIN.parent / "lib" / "libquern-cudasim.so"


@pytest.fixture
def emulated(monkeypatch):
    """Make --device cuda:0 the emulated device (tests/cudasim)."""
    if not LIBRARY.exists():
        pytest.skip("the emulated CUDA device is not built; make cudasim-tests")
    monkeypatch.setenv("QUERN_CUDA_LIBRARY", str(LIBRARY))
