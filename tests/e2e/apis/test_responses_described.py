"""Validate every reply and event of Responses, for every end that a response can have, against OpenAI's description and
strictly against the types of its client (as validated data, not as the client reads them)."""

import json
import signal
import sys

import pydantic
import pytest
from openai.types import responses as types

from service import DEMO, ROOT, Service, eventually

sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "tests" / "e2e" / "http")]
import make_script_model  # noqa: E402
from test_http import ask  # noqa: E402
from test_openai_description import described  # noqa: E402, F401
from test_responses import EVENTS, PATH, SAYS, TOOL, events_of  # noqa: E402

EVENT = pydantic.TypeAdapter(types.ResponseStreamEvent)
RESPONSE = pydantic.TypeAdapter(types.Response)
ITEMS = pydantic.TypeAdapter(types.ResponseItemList)
EVENTS = {**EVENTS, "response.failed": "ResponseFailedEvent", "response.queued": "ResponseQueuedEvent",
          "error": "ResponseErrorEvent"}
STORY = {"input": "Tell me a story.", "max_output_tokens": 6}
FORM = {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}}}
CALLED = [{"role": "user", "content": "Go."}, {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
    {"type": "reasoning_text", "text": "Hm."}]}, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "42"}]
# Request fields that a response repeats, and fields that change its output.
BODIES = {
    "text": STORY,
    "instructions, metadata and sampling": {**STORY, "instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5,
                                            "top_p": 0.9, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
    "a message of parts": {**STORY, "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]},
    "a form": {**STORY, "text": FORM},
    "any JSON": {**STORY, "text": {"format": {"type": "json_object"}}},
    "reasoning and a call": {"input": "Go.", "tools": [TOOL], "temperature": 0},
    "a call that must be": {"input": "Go.", "tools": [TOOL], "temperature": 0, "tool_choice": "required"},
    "a tool by its name": {"input": "Go.", "tools": [TOOL], "temperature": 0, "tool_choice": {"type": "function", "name": "f"}},
    "no tool": {"input": "Go.", "tools": [TOOL], "tool_choice": "none", "temperature": 0},
    "a strict tool": {"input": "Go.", "temperature": 0, "tools": [{
        **TOOL, "description": "F", "strict": True, "parameters": {"type": "object", "properties": {
            "a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}}]},
    "one call at most": {"input": "Go.", "tools": [TOOL], "parallel_tool_calls": False, "temperature": 0},
    "reasoning that is cut": {"input": "Go.", "max_output_tokens": 5, "temperature": 0},
    "a text that is cut": {"input": "Go.", "max_output_tokens": 12, "temperature": 0},
    "a call that is cut": {"input": "Go.", "tools": [TOOL], "max_output_tokens": 25, "temperature": 0},
    "items of earlier turns": {"input": CALLED, "tools": [TOOL], "max_output_tokens": 4},
    "not stored": {**STORY, "store": False},
}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    """A model that thinks, speaks and calls a tool; the service stores its responses."""
    d = tmp_path_factory.mktemp("described")
    template = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
    s = Service(make_script_model.make(d / "script", SAYS, template), "--reasoning-parser", "qwen3", "--journal", d / "j")
    yield s
    s.stop()
    Service.used.remove(s)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    s = Service(DEMO, "--journal", tmp_path_factory.mktemp("stored") / "j")
    yield s
    s.stop(signal.SIGKILL)
    Service.used.remove(s)


@pytest.fixture
def valid(described):  # noqa: F811
    """valid(value, schema, type): validate against the description and against the client's type."""
    def check(value, schema, type):
        described.validate(value, schema)
        type.validate_json(json.dumps(value), strict=True)
        return value
    return check


def good(valid, service, path, body=None, **kwargs):
    status, _, reply = ask(service, path, body, **kwargs)
    assert status == 200, reply
    return valid(reply, "Response", RESPONSE)


def good_events(valid, events):
    for e in events:
        valid(e, EVENTS[e["type"]], EVENT)
        if "response" in e:
            valid(e["response"], "Response", RESPONSE)
    return events


@pytest.mark.parametrize("name", BODIES)
def test_whole_and_as_events(thinker, valid, name):
    whole = good(valid, thinker, PATH, BODIES[name])
    events = good_events(valid, events_of(thinker, BODIES[name]))
    assert events[-1]["response"]["status"] == whole["status"] in ("completed", "incomplete")
    if BODIES[name].get("store", True):
        assert good(valid, thinker, f"{PATH}/{whole['id']}") == whole


def test_what_is_cut_is_incomplete(thinker, valid):
    for name, kind in (("reasoning that is cut", "reasoning"), ("a text that is cut", "message"),
                       ("a call that is cut", "function_call")):
        r = good(valid, thinker, PATH, BODIES[name])
        assert (r["status"], r["output"][-1]["type"], r["output"][-1]["status"]) == ("incomplete", kind, "incomplete"), r


def test_what_follows_another(stored, valid):
    first = good(valid, stored, PATH, STORY)
    second = good(valid, stored, PATH, {**STORY, "previous_response_id": first["id"]})
    assert second["previous_response_id"] == first["id"]
    good_events(valid, events_of(stored, {**STORY, "previous_response_id": second["id"]}))


def read_events(service, path):
    status, _, text = ask(service, path)
    assert status == 200, text
    return [json.loads(part.split("data: ", 1)[1]) for part in text.split("\n\n")[:-1]]


def test_in_the_background(stored, valid):
    begun = good(valid, stored, PATH, {**STORY, "background": True})
    path = f"{PATH}/{begun['id']}"
    assert begun["background"] is True and begun["status"] in ("queued", "in_progress")

    def ended():
        r = good(valid, stored, path)
        return r if r["status"] not in ("queued", "in_progress") else None
    assert eventually(ended, what="the end of the response")["status"] == "incomplete"
    events = good_events(valid, read_events(stored, path + "?stream=true"))
    assert good_events(valid, read_events(stored, path + "?stream=true&starting_after=3")) == events[4:]
    assert events[4:]
    good_events(valid, events_of(stored, {**STORY, "background": True}))


def test_cancelled_deleted_and_its_input(stored, valid):
    with stored.paused():     # it must not end by itself
        begun = good(valid, stored, PATH, {"input": CALLED[:1], "background": True})
        path = f"{PATH}/{begun['id']}"
        assert good(valid, stored, path)["status"] in ("queued", "in_progress")
        assert good(valid, stored, path + "/cancel", {})["status"] in ("in_progress", "cancelled")
    eventually(lambda: good(valid, stored, path)["status"] == "cancelled", what="a cancelled response")
    _, _, items = ask(stored, path + "/input_items")
    valid(items, "ResponseItemList", ITEMS)
    status, _, reply = ask(stored, path, method="DELETE")
    assert status == 200 and reply == {"id": begun["id"], "object": "response", "deleted": True}


def test_errors(stored, described):  # noqa: F811
    for path, body, method, want in (
            (PATH, {}, None, 400), (PATH, {"input": "a", "model": "other"}, None, 404), (PATH, b"{", None, 400),
            (f"{PATH}/resp_1", None, None, 404), (f"{PATH}/resp_1/cancel", {}, None, 404),
            (f"{PATH}/resp_1/input_items", None, None, 404), (f"{PATH}/resp_1", None, "DELETE", 404),
            (PATH, None, "PUT", 405)):
        status, _, reply = ask(stored, path, body, method=method)
        assert status == want, reply
        described.validate(reply, "ErrorResponse")
