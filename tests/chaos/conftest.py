"""Fixtures of the tests that try to break the service. The tests have two lengths: short in `make check`, long in `make
chaos` (QUERN_CHAOS=long), which writes its figures to $QUERN_BUILD/chaos.txt."""

import importlib.util
import os
import random
import signal
import sys
from pathlib import Path

import pytest

E2E = Path(__file__).resolve().parents[1] / "e2e"
sys.path.insert(0, str(E2E))

_spec = importlib.util.spec_from_file_location("e2e_conftest", E2E / "conftest.py")
_e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_e2e)
start, run = _e2e.start, _e2e.run
pytest_configure, pytest_runtest_makereport = _e2e.pytest_configure, _e2e.pytest_runtest_makereport

from service import BUILD  # noqa: E402

LONG = os.environ.get("QUERN_CHAOS") == "long"


@pytest.fixture(autouse=True)
def _time_limit():
    def expired(signum, frame):
        raise TimeoutError("the test took too long")
    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(3600 if LONG else 300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def long():
    """True if the tests run at full length."""
    return LONG


@pytest.fixture
def figures(request):
    """figures("text"): print the text; a long run also saves it."""
    def note(text):
        line = f"{request.node.name}: {text}"
        print(line)
        if LONG:
            with open(BUILD / "chaos.txt", "a") as f:
                f.write(line + "\n")
    return note


@pytest.fixture
def dice(request):
    """Random numbers from a printed seed, which QUERN_CHAOS_SEED sets again."""
    seed = int(os.environ.get("QUERN_CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"QUERN_CHAOS_SEED={seed}")
    return random.Random(seed)
