"""OpenAI's Responses API: the official client, and replies and events compared with OpenAI's description."""

import json
import sys

import openai
import pytest

from service import ROOT, Service

sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "tests" / "e2e" / "http")]
import make_script_model  # noqa: E402
from test_http import ask  # noqa: E402
from test_openai_description import described  # noqa: E402, F401

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
SAYS = '<think>\nhm so\n</think>\n\nLook:\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
EVENTS = {
    "response.created": "ResponseCreatedEvent", "response.in_progress": "ResponseInProgressEvent",
    "response.output_item.added": "ResponseOutputItemAddedEvent",
    "response.output_item.done": "ResponseOutputItemDoneEvent",
    "response.content_part.added": "ResponseContentPartAddedEvent",
    "response.content_part.done": "ResponseContentPartDoneEvent",
    "response.output_text.delta": "ResponseTextDeltaEvent", "response.output_text.done": "ResponseTextDoneEvent",
    "response.reasoning_text.delta": "ResponseReasoningTextDeltaEvent",
    "response.reasoning_text.done": "ResponseReasoningTextDoneEvent",
    "response.function_call_arguments.delta": "ResponseFunctionCallArgumentsDeltaEvent",
    "response.function_call_arguments.done": "ResponseFunctionCallArgumentsDoneEvent",
    "response.completed": "ResponseCompletedEvent", "response.incomplete": "ResponseIncompleteEvent",
}


def client(service):
    return openai.OpenAI(base_url=service.http + "/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """A model that thinks, speaks and calls a tool."""
    template = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "script", SAYS, template),
                "--reasoning-parser", "qwen3")
    yield s
    s.stop()
    Service.used.remove(s)


def events_of(service, body):
    """Return the events of a stream as (event, data) pairs. The names of both must agree."""
    status, headers, text = ask(service, PATH, {**body, "stream": True})
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), text
    found = []
    for part in text.split("\n\n")[:-1]:
        name, data = part.split("\n")
        data = json.loads(data.removeprefix("data: "))
        assert name == "event: " + data["type"]
        found.append(data)
    return found


def without_times(response):
    return {k: v for k, v in response.items() if k not in ("id", "created_at", "completed_at")} | {
        "usage": {**response["usage"], "input_tokens_details": None},
        "output": [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in response["output"]]}


def put_together(events):
    """Build a response's output from its deltas alone."""
    items = []
    for e in events:
        if e["type"] == "response.output_item.added":
            assert e["output_index"] == len(items)
            items.append({"type": e["item"]["type"], "text": ""})
        elif e["type"].endswith(".delta"):
            items[e["output_index"]]["text"] += e["delta"]
    return items


def shown(response):
    return [{"type": i["type"], "text": i["arguments"] if i["type"] == "function_call" else i["content"][0]["text"]}
            for i in response["output"]]


def test_a_response_is_as_described(service, described):  # noqa: F811
    status, _, r = ask(service, PATH, {"input": "Tell me a story.", "max_output_tokens": 4, "seed": 1,
                                       "instructions": "Be brief.", "metadata": {"a": "b"}})
    assert status == 200, r
    described.validate(r, "Response")
    assert r["status"] == "incomplete" and r["incomplete_details"] == {"reason": "max_output_tokens"}
    assert r["usage"]["output_tokens"] == 4 and r["metadata"] == {"a": "b"} and r["instructions"] == "Be brief."
    assert r["max_output_tokens"] == 4 and r["store"] is False


def test_a_response_says_what_a_chat_says(service):
    keys = {"seed": 5, "temperature": 0.7}
    _, _, r = ask(service, PATH, {"input": "Tell me a story.", "instructions": "Short.", "max_output_tokens": 12, **keys})
    _, _, c = ask(service, "/v1/chat/completions", {
        "messages": [{"role": "system", "content": "Short."}, {"role": "user", "content": "Tell me a story."}],
        "max_tokens": 12, **keys})
    assert r["output"][0]["content"][0]["text"] == c["choices"][0]["message"]["content"]
    assert r["usage"]["input_tokens"] == c["usage"]["prompt_tokens"] and r["temperature"] == 0.7


def test_events_are_as_described_and_add_up(service, script, described):  # noqa: F811
    for s, body in ((service, {"input": "Tell me a story.", "max_output_tokens": 12, "seed": 3}),
                    (script, {"input": "Go.", "tools": [TOOL], "temperature": 0})):
        events = events_of(s, body)
        for i, e in enumerate(events):
            assert e["sequence_number"] == i
            described.validate(e, EVENTS[e["type"]])
        whole = events[-1]["response"]
        assert put_together(events) == shown(whole)
        _, _, unstreamed = ask(s, PATH, body)
        assert without_times(whole) == without_times(unstreamed)


def test_reasoning_text_and_calls_are_items(script):
    _, _, r = ask(script, PATH, {"input": "Go.", "tools": [TOOL], "temperature": 0})
    assert [i["type"] for i in r["output"]] == ["reasoning", "message", "function_call"], r
    assert r["output"][0]["content"][0]["text"].strip() == "hm so"
    assert json.loads(r["output"][2]["arguments"]) == {"a": 1} and r["output"][2]["name"] == "f"
    assert r["status"] == "completed" and 0 < r["usage"]["output_tokens_details"]["reasoning_tokens"]
    kinds = [e["type"] for e in events_of(script, {"input": "Go.", "tools": [TOOL], "temperature": 0})]
    assert [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k] == [
        "response.created", "response.in_progress",
        "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
        "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
        "response.output_item.added", "response.content_part.added", "response.output_text.delta",
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.output_item.added", "response.function_call_arguments.delta",
        "response.function_call_arguments.done", "response.output_item.done", "response.completed"]


def test_a_conversation_with_tools_goes_on_by_its_items(script):
    with client(script) as api:
        first = api.responses.create(model="script", input="Go.", tools=[TOOL], temperature=0)
        call = next(i for i in first.output if i.type == "function_call")
        items = [{"role": "user", "content": "Go."}, *[i.model_dump(exclude_none=True) for i in first.output],
                 {"type": "function_call_output", "call_id": call.call_id, "output": "42"}]
        second = api.responses.create(model="script", input=items, tools=[TOOL], temperature=0)
        assert second.status == "completed"
        said = [{"role": "user", "content": "Go."},
                {"role": "assistant", "content": first.output[1].content[0].text,
                 "reasoning_content": first.output[0].content[0].text,
                 "tool_calls": [{"id": call.call_id, "type": "function",
                                 "function": {"name": "f", "arguments": call.arguments}}]},
                {"role": "tool", "tool_call_id": call.call_id, "content": "42"}]
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        _, _, c = ask(script, "/v1/chat/completions", {"messages": said, "tools": [tool], "temperature": 0})
        assert second.usage.input_tokens == c["usage"]["prompt_tokens"]


def test_the_official_client_streams(service):
    with client(service) as api:
        whole = api.responses.create(model="demo", input="Tell me a story.", max_output_tokens=8, temperature=0)
        with api.responses.stream(model="demo", input="Tell me a story.", max_output_tokens=8, temperature=0) as s:
            text = "".join(e.delta for e in s if e.type == "response.output_text.delta")
        assert text == whole.output_text != ""


def test_calls_are_of_the_allowed_tools(script):
    """The model writes a call of f. Since only f is allowed, it must."""
    other = {**TOOL, "name": "g"}
    with client(script) as api:
        for name in "fg":
            choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": name}]}
            r = api.responses.create(model="script", input="Go.", tools=[TOOL, other], tool_choice=choice,
                                     temperature=0, max_output_tokens=200)
            assert r.tool_choice.model_dump() == choice
            assert {i.name for i in r.output if i.type == "function_call"} == {name}, r.output


def test_a_form_is_kept(service):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
              "additionalProperties": False}
    with client(service) as api:
        r = api.responses.create(model="demo", input="A number.", max_output_tokens=200, temperature=0, text={
            "format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}})
    assert r.status == "incomplete" or isinstance(json.loads(r.output_text)["n"], int)
    assert r.text.format.type == "json_schema"


@pytest.mark.parametrize("body, param, says", [
    ({}, "input", "input is missing"),
    ({"input": []}, "input", ""),
    ({"input": "a", "tools": [{"type": "web_search"}]}, "tools[0]", "web_search"),
    ({"input": [{"type": "computer_call", "id": "a"}]}, "input[0].type", "computer_call"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content",
     "input_image"),
    ({"input": [{"role": "king", "content": "a"}]}, "input[0].role", "must be"),
    ({"input": "a", "previous_response_id": "resp_1"}, "previous_response_id", ""),
    ({"input": "a", "conversation": "conv_1"}, "conversation", ""),
    ({"input": "a", "background": True}, "background", ""),
    ({"input": "a", "prompt": {"id": "x"}}, "prompt", ""),
    ({"input": "a", "truncation": "auto"}, "truncation", ""),
    ({"input": "a", "include": ["file_search_call.results"]}, "include", ""),
    ({"input": "a", "max_output_tokens": 0}, "max_output_tokens", "max_output_tokens is 0"),
    ({"input": "a", "max_output_tokens": 2, "min_tokens": "x", "text": {"format": {"type": "xml"}}}, "text.format", ""),
    ({"input": "a", "max_output_tokens": 10**8}, "max_output_tokens", "max_output_tokens"),
    ({"input": "a", "temperature": -1}, "temperature", "temperature"),
    ({"input": "a", "model": "other"}, "model", "other"),
])
def test_what_is_refused_names_the_clients_field(service, body, param, says):
    status, _, r = ask(service, PATH, body)
    assert status in (400, 404) and r["error"]["param"] == param and says in r["error"]["message"], r


def test_no_field_of_a_response_is_ignored_silently(service, described):  # noqa: F811
    values = {"metadata": {"a": "b"}, "temperature": 0.5, "top_p": 0.5, "user": "me", "safety_identifier": "me",
              "prompt_cache_key": "k", "prompt_cache_retention": "24h", "prompt_cache_options": {"ttl": "30m"},
              "service_tier": "flex", "top_logprobs": 1, "reasoning": {"effort": "low"}, "background": True,
              "max_tool_calls": 3, "text": {"format": {"type": "text"}}, "tools": [], "tool_choice": "auto",
              "prompt": {"id": "x"}, "truncation": "auto", "include": ["code_interpreter_call.outputs"],
              "parallel_tool_calls": True, "store": True, "instructions": "Be brief.", "moderation": {"model": "x"},
              "stream": False, "stream_options": {"include_obfuscation": False}, "conversation": "c",
              "context_management": [{"type": "compaction"}], "max_output_tokens": 3,
              "previous_response_id": "resp_1"}
    refused = {"top_logprobs", "background", "prompt", "truncation", "include", "moderation", "conversation",
               "context_management", "previous_response_id"}
    ignored = {"safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
               "service_tier", "max_tool_calls", "stream_options", "reasoning.effort"}
    for name in described.properties("CreateResponse"):
        if name in ("model", "input"):
            continue
        status, headers, r = ask(service, PATH, {"input": "Hi", "max_output_tokens": 2, name: values[name]})
        named = set((headers["x-quern-ignored"] or "").split(", ")) - {""}
        if name in refused:
            assert status == 400 and r["error"]["param"] == name, (name, r)
        else:
            assert status == 200 and named == ({name, name + ".effort"} & ignored), (name, named, r)
