"""Integers beyond 64 bits keep their digits in arguments of calls, schemas and messages."""

import json
import sys
import urllib.error
import urllib.request

import pytest

from service import ROOT, Service

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_script_model  # noqa: E402

TEMPLATE = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
BIG = 12345678901234567890
SAYS = f'<tool_call>\n{{"name": "get", "arguments": {{"id": {BIG}}}}}\n</tool_call>'
CUT = '<tool_call>\n{"name": "remove", "arguments": {"path": "/data/scratch'
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 18446744073709551615}}, "required": ["id"]}
ASK = [{"role": "user", "content": "go"}]


@pytest.fixture(scope="module", params=["whole", "cut"])
def says(request, tmp_path_factory):
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "script", SAYS if request.param == "whole" else CUT, TEMPLATE))
    s.what = request.param
    yield s
    s.stop()
    Service.used.remove(s)


def post(s, path, body):
    r = urllib.request.Request(s.http + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(r, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def test_a_whole_reply_has_the_arguments_or_is_text(says):
    tool = {"name": "get", "input_schema": SCHEMA}
    status, m = post(says, "/v1/messages", {"model": "script", "max_tokens": 100, "temperature": 0, "messages": ASK, "tools": [tool]})
    assert status == 200, m
    status, o = post(says, "/api/chat", {"model": "script", "stream": False, "messages": ASK, "options": {"temperature": 0},
                                         "tools": [{"type": "function", "function": {"name": "get", "parameters": SCHEMA}}]})
    assert status == 200, o
    if says.what == "whole":
        assert [b.get("input") for b in m["content"]] == [{"id": BIG}] and m["stop_reason"] == "tool_use"
        assert o["message"]["tool_calls"][0]["function"]["arguments"] == {"id": BIG}
    else:   # never a call without its arguments
        assert m["content"] == [{"type": "text", "text": 'remove {"path": "/data/scratch'}] and m["stop_reason"] == "end_turn"
        assert not o["message"].get("tool_calls") and o["message"]["content"] == 'remove {"path": "/data/scratch'


def test_a_past_call_shows_the_model_the_same_digits(says):
    call = {"id": "1", "type": "function", "function": {"name": "get", "arguments": json.dumps({"id": BIG, "x": [BIG]})}}
    status, o = post(says, "/apply-template", {"messages": [*ASK, {"role": "assistant", "content": None, "tool_calls": [call]}],
                                               "tools": [{"type": "function", "function": {"name": "get", "parameters": SCHEMA}}]})
    assert status == 200, o
    assert f'"id": {BIG}, "x": [{BIG}]' in o["prompt"] and '"maximum": 18446744073709551615' in o["prompt"], o
    use = {"type": "tool_use", "id": "1", "name": "get", "input": {"id": BIG}}
    body = {"model": "script", "max_tokens": 4, "tools": [{"name": "get", "input_schema": SCHEMA}], "messages": [
        *ASK, {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "yes"}]}]}
    assert post(says, "/v1/messages", body)[0] == 200


def test_a_field_beyond_its_range_is_named(says):
    for field in ("max_tokens", "seed", "temperature"):
        status, o = post(says, "/v1/chat/completions", {"messages": ASK, field: 10 ** 30})
        assert status == 400 and o["error"]["param"] == field and str(10 ** 30) in o["error"]["message"], o


def test_a_field_without_a_reader_may_be_beyond_every_range(says):
    assert post(says, "/v1/chat/completions", {"messages": ASK, "max_tokens": 1, "x_unknown": 10 ** 30})[0] == 200


def test_a_schema_may_have_bounds_beyond_64_bits(says):
    status, o = post(says, "/v1/completions", {"prompt": "x", "max_tokens": 30, "structured_outputs": {
        "json": {"type": "integer", "minimum": 18446744073709551616, "maximum": 10 ** 24}}})
    assert status == 200, o
