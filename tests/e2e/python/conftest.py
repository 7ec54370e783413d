"""The Python package (clients/python) is tested from its sources; QUERN_BIN names the programs under test."""

import sys
from pathlib import Path

import pytest

from service import BIN, DEMO, ROOT, served

PACKAGE = ROOT / "clients" / "python"
sys.path.insert(0, str(PACKAGE / "src"))


@pytest.fixture(autouse=True)
def _programs(monkeypatch):
    monkeypatch.setenv("QUERN_BIN", str(BIN))


@pytest.fixture(scope="module")
def journaled(tmp_path_factory):
    """A service with a journal."""
    yield from served(DEMO, ("--journal", tmp_path_factory.mktemp("journal") / "j"))


@pytest.fixture
def py(service):
    """A client of the package."""
    import quern
    with quern.Client(service.jobs) as c:
        yield c


@pytest.fixture(scope="module")
def llm():
    """The LLM of a private service, for tests that do not change it."""
    import quern
    with quern.LLM(str(DEMO), bin=str(BIN)) as model:
        yield model
