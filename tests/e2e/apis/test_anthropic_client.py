"""Anthropic's official client, unmodified, against /v1/messages: replies, streams, tools, thinking, errors."""

import json
import sys

import anthropic
import pytest

from service import ROOT

sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "tests" / "e2e" / "http")]
import make_script_model  # noqa: E402
from test_http import ask  # noqa: E402

TEMPLATE = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
INPUT = {"city": "Paris, France", "unit": "C"}
SAYS = ("<think>\nThe user wants the weather.\n</think>\n\nLet me look.\n<tool_call>\n"
        '{"name": "get_weather", "arguments": ' + json.dumps(INPUT) + "}\n</tool_call>")
TOOL = {"name": "get_weather", "description": "Weather of a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}, "required": ["city"]}}
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
ONCE = [{"role": "user", "content": "Once upon a time"}]


def client_of(service, **kwargs):
    return anthropic.Anthropic(base_url=service.http, **{"api_key": "none", "max_retries": 0, **kwargs})


@pytest.fixture(scope="module")
def demo(service):
    with client_of(service) as c:
        yield lambda **kw: c.messages.create(**{"model": "demo", "max_tokens": 12, "messages": ONCE, **sampled(kw)})


def sampled(kw):
    """The client passes sampling parameters on unchanged."""
    return {**kw, "extra_body": {"temperature": 0, **kw.get("extra_body", {})}}


@pytest.fixture(scope="module")
def script(tmp_path_factory, service):
    """A service with a model that says SAYS. After a call that the prompt has begun, it generates the call's arguments."""
    from service import Service
    tokens = ask(service, "/tokenize", {"prompt": 'x", "arguments":', "add_special_tokens": False})[2]["tokens"]
    newline = ask(service, "/tokenize", {"prompt": "a\n", "add_special_tokens": False})[2]["tokens"][-1]
    says = {newline: SAYS, tokens[-1]: " " + json.dumps(INPUT) + "}\n</tool_call>\n<tool_call>"}
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "script", says, TEMPLATE))
    yield s
    s.stop()
    Service.used.remove(s)


@pytest.fixture(scope="module")
def messages(script):
    with client_of(script) as c:
        yield c.messages


def request(**kw):
    return {"model": "script", "max_tokens": 400, "messages": ASK, **sampled(kw)}


def test_a_reply_is_the_chat_s(demo, service):
    chat = ask(service, "/v1/chat/completions", {"messages": ONCE, "max_tokens": 12, "temperature": 0})[2]
    m = demo()
    assert m.id.startswith("msg_") and m.role == "assistant" and m.model == "demo"
    assert [b.type for b in m.content] == ["text"]
    assert m.content[0].text == chat["choices"][0]["message"]["content"]
    assert m.usage.output_tokens == chat["usage"]["completion_tokens"]
    assert m.usage.input_tokens + m.usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"]
    assert m.stop_reason == {"stop": "end_turn", "length": "max_tokens"}[chat["choices"][0]["finish_reason"]]


def test_why_a_reply_ends(demo):
    full = demo(max_tokens=5, extra_body={"temperature": 0}).content[0].text
    cut = demo(max_tokens=1)
    assert (cut.stop_reason, cut.stop_sequence) == ("max_tokens", None)
    stop = full[2:4]
    stopped = demo(stop_sequences=[stop])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stop)
    assert "".join(b.text for b in stopped.content) == full[:full.index(stop)]


def test_a_stream_adds_up_to_the_reply(demo, service):
    whole = demo()
    with client_of(service) as c, c.messages.stream(model="demo", max_tokens=12, messages=ONCE,
                                                    extra_body={"temperature": 0}) as stream:
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert (final.stop_reason, final.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens == \
        whole.usage.input_tokens + whole.usage.cache_read_input_tokens


def test_events_in_their_order(messages):
    names, open_block = [], None
    for e in messages.create(**request(tools=[TOOL], stream=True)):
        names.append(e.type)
        if e.type == "content_block_start":
            assert open_block is None
            open_block = e.index
        elif e.type == "content_block_delta":
            assert e.index == open_block
        elif e.type == "content_block_stop":
            assert e.index == open_block
            open_block = None
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    assert open_block is None and names.count("content_block_start") == 3


def test_thinking_text_and_a_tool(messages):
    m = messages.create(**request(tools=[TOOL]))
    thinking, text, tool = m.content
    assert (thinking.type, thinking.thinking) == ("thinking", "The user wants the weather.")
    assert thinking.signature
    assert (text.type, text.text) == ("text", "Let me look.")
    assert (tool.type, tool.name, tool.input) == ("tool_use", "get_weather", INPUT)
    assert m.stop_reason == "tool_use"
    with messages.stream(**request(tools=[TOOL])) as stream:
        streamed = stream.get_final_message()
    assert [b.type for b in streamed.content] == ["thinking", "text", "tool_use"]
    assert streamed.content[0].thinking == thinking.thinking and streamed.content[0].signature
    assert streamed.content[1].text == text.text and streamed.content[2].input == INPUT
    assert streamed.stop_reason == "tool_use"


def test_the_answer_goes_back_with_the_tools_result(messages, script):
    first = messages.create(**request(tools=[TOOL]))
    again = [*ASK, {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in first.content]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first.content[2].id,
                                           "content": [{"type": "text", "text": "21 degrees"}]}]}]
    n = messages.count_tokens(model="script", messages=again, tools=[TOOL]).input_tokens
    m = messages.create(**request(messages=again, tools=[TOOL]))
    assert n == m.usage.input_tokens + m.usage.cache_read_input_tokens
    # OpenAI's format of the same conversation gives the same prompt.
    openai = [*ASK, {"role": "assistant", "content": "Let me look.",
                     "reasoning_content": "The user wants the weather.",
                     "tool_calls": [{"id": first.content[2].id, "type": "function", "function":
                                     {"name": "get_weather", "arguments": json.dumps(INPUT)}}]},
              {"role": "tool", "tool_call_id": first.content[2].id, "content": "21 degrees"}]
    tool = {"type": "function", "function": {"name": "get_weather", "description": TOOL["description"],
                                             "parameters": TOOL["input_schema"]}}
    assert n == ask(script, "/tokenize", {"messages": openai, "tools": [tool]})[2]["count"]


def test_a_tool_that_must_be_called(messages):
    m = messages.create(**request(tools=[TOOL], tool_choice={"type": "tool", "name": "get_weather"}))
    (tool,) = m.content
    assert (tool.type, tool.input, m.stop_reason) == ("tool_use", INPUT, "tool_use")
    m = messages.create(**request(tools=[TOOL], tool_choice={"type": "none"}))
    assert all(b.type != "tool_use" for b in m.content)


def test_thoughts_that_are_not_shown(messages):
    m = messages.create(**request(tools=[TOOL], thinking={"type": "adaptive", "display": "omitted"}))
    assert [b.type for b in m.content] == ["text", "tool_use"]


def test_an_output_with_a_form(demo):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
              "additionalProperties": False}
    m = demo(max_tokens=60, output_config={"format": {"type": "json_schema", "schema": schema}})
    if m.stop_reason == "end_turn":
        assert isinstance(json.loads(m.content[0].text)["n"], int)
    else:
        assert m.content[0].text.startswith("{")


def test_the_last_message_of_the_assistant_is_continued(demo, service):
    asked = [*ONCE, {"role": "assistant", "content": "You are"}]
    chat = ask(service, "/v1/chat/completions", {"messages": asked, "max_tokens": 5, "temperature": 0,
                                                 "continue_final_message": True, "add_generation_prompt": False})[2]
    m = demo(messages=asked, max_tokens=5)
    assert "".join(b.text for b in m.content) == chat["choices"][0]["message"]["content"]


def test_models_have_anthropic_s_shape_for_its_client(service):
    with client_of(service) as c:
        page = c.models.list()
        assert [m.id for m in page.data] == ["demo"] and page.data[0].type == "model" and not page.has_more
        assert c.models.retrieve("demo").id == "demo"
    assert ask(service, "/v1/models")[2]["object"] == "list"


@pytest.mark.parametrize("change, words", [
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
    ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "document"),
    ({"messages": []}, "messages"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"stop_sequences": ["a"] * 99}, "stop_sequences"),
    ({"extra_body": {"temperature": -1}}, "temperature"),
    ({"metadata": {"user_id": "u" * 300}}, "metadata.user_id"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"extra_body": {"mcp_servers": [{"url": "x"}]}}, "mcp_servers"),
])
def test_errors_name_the_client_s_field(demo, change, words):
    with pytest.raises(anthropic.BadRequestError) as e:
        demo(**change)
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "invalid_request_error"
    assert words in e.value.body["error"]["message"]


def test_another_model_is_not_found(demo):
    with pytest.raises(anthropic.NotFoundError) as e:
        demo(model="claude")
    assert e.value.body["error"]["type"] == "not_found_error"


def test_ignored_fields_are_named(service):
    with client_of(service) as c:
        raw = c.messages.with_raw_response.create(model="demo", max_tokens=1, messages=ONCE, service_tier="auto",
                                                  extra_body={"brand_new": 1})
    assert raw.headers["x-quern-ignored"] == "service_tier, brand_new"


@pytest.mark.parametrize("service", [("--strict",)], indirect=True)
def test_unknown_fields_are_refused_where_strict(service):
    with client_of(service) as c, pytest.raises(anthropic.BadRequestError, match="brand_new"):
        c.messages.create(model="demo", max_tokens=1, messages=ONCE, extra_body={"brand_new": 1})


def test_members_without_effect_are_named(service):
    headers = ask(service, "/v1/messages", {
        "max_tokens": 1, "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}],
        "thinking": {"type": "adaptive", "depth": 1}})[1]
    assert headers["x-quern-ignored"] == "system.cache_control, messages.cache_control, thinking.depth"


def test_each_answer_has_a_request_id_of_the_service_s_own(service):
    with client_of(service, default_headers={"X-Request-Id": "mine"}) as c:
        ids = [c.messages.create(model="demo", max_tokens=1, messages=ONCE)._request_id,
               c.messages.count_tokens(model="demo", messages=ONCE)._request_id,
               c.models.list()._request_id, c.models.retrieve("demo")._request_id]
        with c.messages.stream(model="demo", max_tokens=1, messages=ONCE) as stream:
            ids.append(stream.response.headers["request-id"])
            assert stream.response.headers["x-request-id"] == "mine"
        for wrong in (lambda: c.messages.create(model="other", max_tokens=1, messages=ONCE),
                      lambda: c.messages.create(model="demo", max_tokens=0, messages=ONCE),
                      lambda: c.models.retrieve("other"), lambda: c.messages.batches.list(),
                      lambda: c.messages.batches.retrieve("msgbatch_1"),
                      lambda: c.post("/v1/complete", body={"prompt": "a"}, cast_to=object)):
            with pytest.raises(anthropic.APIStatusError) as e:
                wrong()
            assert e.value.body["type"] == "error" and e.value.body["request_id"] == e.value.request_id
            ids.append(e.value.request_id)
    assert len(set(ids)) == len(ids) and all(i.startswith("req_") and len(i) == 36 for i in ids)


def test_batches_are_refused_by_name(service):
    with client_of(service) as c, pytest.raises(anthropic.NotFoundError, match="/v1/batches takes batches of chats"):
        c.messages.batches.create(requests=[])


def test_a_key_may_come_as_x_api_key(tmp_path, start):
    from service import DEMO
    key = "sk-alice-0123456789abcdef"
    file = tmp_path / "keys"
    file.write_text(f"{key} name=alice requests-per-minute=2\n")
    file.chmod(0o600)
    s = start(DEMO, "--api-key-file", file)
    with client_of(s, api_key=key) as c:
        create = lambda: c.messages.create(model="demo", max_tokens=1, messages=ONCE)  # noqa: E731
        assert create().usage.output_tokens == 1
        create()
        with pytest.raises(anthropic.RateLimitError) as e:
            create()
        assert e.value.body["error"]["type"] == "rate_limit_error"
    with client_of(s, api_key="sk-wrong-0123456789abcdef") as c, pytest.raises(anthropic.AuthenticationError) as e:
        c.messages.create(model="demo", max_tokens=1, messages=ONCE)
    assert e.value.body["error"]["type"] == "authentication_error"


def test_a_client_that_goes_ends_its_job(service):
    with client_of(service) as c:
        stream = c.messages.create(model="demo", max_tokens=1900, messages=ONCE, stream=True,
                                   extra_body={"temperature": 0, "ignore_eos": True})
        next(iter(stream))
        stream.close()
    service.idle()
