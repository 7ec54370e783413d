"""The examples of each API's own documentation run, or are refused by name (documented.py)."""

import sys

import pytest

import documented
from service import ROOT, Service
from test_http import ask

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_script_model  # noqa: E402

SAYS = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Paris"}}\n</tool_call>'


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    """A model with a template that knows tools, and that calls one."""
    template = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "script", SAYS, template),
                "--name", "gpt")
    yield s
    s.stop()
    Service.used.remove(s)


def test_the_page_has_the_examples():
    """`python tests/e2e/http/documented.py` writes it anew."""
    assert documented.PAGE.read_text() == documented.page()


@pytest.mark.parametrize("api, title", [(api, e[0]) for api, examples in documented.APIS.items() for e in examples])
def test_an_example_has_its_outcome(speaker, api, title):
    _, path, body, (what, fields) = next(e for e in documented.APIS[api] if e[0] == title)
    status, headers, reply = ask(speaker, path, body)
    if what == "refused by name":
        assert status == 400, reply
        assert fields[0] in (reply["error"].get("param") or reply["error"]["message"])
        return
    assert status == 200, reply
    assert (headers["x-quern-ignored"] or "") == ", ".join(fields)
    assert reply, "an empty reply"
