"""/openapi.json is a valid document, and each field behaves as the document says."""

import sys

import pytest
from openapi_spec_validator import validate

from service import ROOT
from test_http import ask

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import api_pages  # noqa: E402

MESSAGES = [{"role": "user", "content": "Hello"}]
# An accepted request for each path.
GOOD = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/completions": {"prompt": "Once", "max_tokens": 1},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 1},
    "/v1/embeddings": {"input": "Once"},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/tokenize": {"prompt": "Once"},
    "/detokenize": {"tokens": [5]},
}
# Values of each JSON type.
VALUES = {"string": "no such value", "number": 0.5, "integer": 7, "boolean": True, "array": [[[]]], "object": {"no": 1}}


@pytest.fixture(scope="module")
def document(service):
    status, headers, reply = ask(service, "/openapi.json")
    assert status == 200 and headers["content-type"].startswith("application/json")
    return reply


def post(service, path, body):
    """Send a POST: (status, the error's param, the ignored fields)."""
    status, headers, reply = ask(service, path, body)
    return status, (reply.get("error") or {}).get("param"), (headers["x-quern-ignored"] or "").split(", ")


def test_the_document_is_valid(document):
    validate(document)
    assert set(GOOD) < set(document["paths"])


def test_the_pages_have_its_tables(document):
    """tests/tools/api_pages.py writes the tables."""
    differ = [path.name for path, text, wanted in api_pages.pages(document) if text != wanted]
    assert not differ
    assert all(path.read_text().count("| `") > 1 for path in api_pages.PAGES.glob("*.md") if path.stem != "README")


@pytest.mark.parametrize("path", GOOD)
def test_fields_are_what_the_document_says(service, document, path):
    fields = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    status, param, ignored = post(service, path, GOOD[path])
    if path == "/v1/score":  # the model cannot score; fields are checked before that
        assert status == 400 and param != "text_1"
    else:
        assert status == 200 and ignored == [""]
    for name, field in fields.items():
        effect = field["x-quern"]
        if effect in ("only neutral values", "refused"):
            status, param, _ = post(service, path, GOOD[path] | {name: "no such value"})
            assert (status, param) == (400, name)
            for neutral in field.get("enum", []):
                assert post(service, path, GOOD[path] | {name: neutral})[0] == 200, (name, neutral)
        elif effect == "ignored":
            status, _, ignored = post(service, path, GOOD[path] | {name: "x"})
            assert (status, ignored) == (200, [name])
        elif "type" in field:
            types = field["type"] if isinstance(field["type"], list) else [field["type"]]
            wrong = [v for t, v in VALUES.items() if t not in types and not (t == "integer" and "number" in types)]
            for value in wrong:
                status, param, _ = post(service, path, GOOD[path] | {name: value})
                assert (status, param) == (400, name), (name, value)
