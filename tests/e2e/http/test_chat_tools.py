"""Tool calls and reasoning with the official client, with models of scripted output."""

import json
import sys

import openai
import pytest

from service import ROOT
from test_http import ask

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_script_model  # noqa: E402

# The parts of Qwen3's template that matter here.
TEMPLATE = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()

ARGUMENTS = '{"city": "Paris, France", "unit": "C"}'
SAYS = ("<think>\nThe user wants the weather.\n</think>\n\nLet me look.\n<tool_call>\n"
        '{"name": "get_weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>")
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}, "required": ["city"]}}}
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory, service):
    """A model that says SAYS. After a call that the prompt has begun, it generates the call's arguments."""
    tokens = ask(service, "/tokenize", {"prompt": 'x", "arguments":', "add_special_tokens": False})[2]["tokens"]
    newline = ask(service, "/tokenize", {"prompt": "a\n", "add_special_tokens": False})[2]["tokens"][-1]
    says = {newline: SAYS, tokens[-1]: " " + ARGUMENTS + "}\n</tool_call>\n<tool_call>"}
    return make_script_model.make(tmp_path_factory.mktemp("model") / "script", says, TEMPLATE)


@pytest.fixture(scope="module")
def script(model):
    from service import Service
    s = Service(model)
    yield s
    s.stop()
    Service.used.remove(s)


@pytest.fixture(scope="module")
def chat(script):
    with openai.OpenAI(base_url=script.http + "/v1", api_key="none", max_retries=0) as c:
        yield lambda **kw: c.chat.completions.create(**{"model": "script", "temperature": 0, "messages": ASK, **kw})


def added_up(stream):
    """Merge a stream's message: (reasoning, content, {index: [id, name, arguments]}, finish_reason)."""
    reasoning, content, calls, finish = "", "", {}, None
    for chunk in stream:
        for choice in chunk.choices:
            d = choice.delta
            reasoning += getattr(d, "reasoning_content", None) or ""
            content += d.content or ""
            for c in d.tool_calls or []:
                call = calls.setdefault(c.index, [c.id, c.function.name, ""])
                assert c.id in (None, call[0])
                call[2] += c.function.arguments or ""
            finish = choice.finish_reason or finish
    return reasoning, content, calls, finish


def test_a_tool_is_called(chat):
    choice = chat(tools=[TOOL]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look."
    assert choice.message.reasoning_content == "The user wants the weather."
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.id.startswith("call_")
    assert (call.function.name, call.function.arguments) == ("get_weather", ARGUMENTS)


def test_a_call_is_streamed_in_parts_that_add_up(chat):
    chunks = list(chat(tools=[TOOL], stream=True))
    reasoning, content, calls, finish = added_up(chunks)
    assert (reasoning, content, finish) == ("The user wants the weather.", "Let me look.", "tool_calls")
    ((id, name, arguments),) = calls.values()
    assert id.startswith("call_") and (name, arguments) == ("get_weather", ARGUMENTS)
    parts = [c for c in chunks if c.choices and c.choices[0].delta.tool_calls]
    assert len(parts) > 3, "arguments flow before the call is complete"


def test_the_answer_goes_back_with_the_tools_result(chat, script):
    first = chat(tools=[TOOL]).choices[0].message
    again = [*ASK, first.model_dump(exclude_none=True),
             {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "21 degrees"}]
    assert chat(messages=again, tools=[TOOL]).choices[0].message.tool_calls
    status, _, reply = ask(script, "/tokenize", {"messages": again, "tools": [TOOL]})
    assert status == 200
    prompt = ask(script, "/detokenize", {"tokens": reply["tokens"]})[2]["prompt"]
    assert '{"name": "get_weather", "arguments": ' + json.dumps(json.loads(ARGUMENTS)) in prompt
    assert "<|im_start|>tool\n21 degrees<|im_end|>" in prompt
    assert '"description": "Weather of a city"' in prompt


def test_a_named_tool_is_called(chat):
    named = {"type": "function", "function": {"name": "get_weather"}}
    choice = chat(tools=[TOOL], tool_choice=named).choices[0]
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", ARGUMENTS)
    assert choice.finish_reason == "stop" and choice.message.content is None
    _, content, calls, finish = added_up(chat(tools=[TOOL], tool_choice=named, stream=True))
    assert (content, finish, calls[0][2]) == ("", "stop", ARGUMENTS) and len(calls) == 1


def test_without_tools_nothing_is_called(chat):
    for kw in ({}, {"tools": [TOOL], "tool_choice": "none"}):
        message = chat(**kw).choices[0].message
        assert message.tool_calls is None and "<tool_call>" in message.content


def test_reasoning_may_be_omitted(chat):
    message = chat(tools=[TOOL], extra_body={"include_reasoning": False}).choices[0].message
    assert not hasattr(message, "reasoning_content") and message.content == "Let me look."


def test_thinking_may_be_turned_off(script):
    def prompt(**kw):
        tokens = ask(script, "/tokenize", {"messages": ASK, **kw})[2]["tokens"]
        return ask(script, "/detokenize", {"tokens": tokens})[2]["prompt"]
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    assert prompt(**off).endswith("assistant\n<think>\n\n</think>\n\n")
    assert prompt().endswith("assistant\n")
    status, headers, _ = ask(script, "/v1/chat/completions", {"messages": ASK, "max_tokens": 1, **off})
    assert status == 200 and headers["x-quern-ignored"] is None


def tool_of(strict=None, **properties):
    """Make a tool with all of its arguments required."""
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    function = {"name": "get_weather", "parameters": schema}
    return {"type": "function", "function": function if strict is None else {**function, "strict": strict}}


NAMED = {"type": "function", "function": {"name": "get_weather"}}


def test_required_tools_are_called_with_arguments_of_their_schema(chat):
    """Without the constraint, the model would write a text and other arguments."""
    want = {"unit": "F"}
    tools = [tool_of(unit={"enum": ["F"]})]
    for kw in ({"tool_choice": "required"}, {"tool_choice": NAMED}):
        choice = chat(tools=tools, parallel_tool_calls=False, **kw).choices[0]
        (call,) = choice.message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", want)
        assert choice.message.content is None
        _, content, calls, finish = added_up(chat(tools=tools, parallel_tool_calls=False, stream=True, **kw))
        assert (content, json.loads(calls[0][2]), len(calls)) == ("", want, 1)
    required = chat(tools=tools, parallel_tool_calls=False, tool_choice="required").choices[0]
    assert required.message.reasoning_content == "The user wants the weather."
    assert required.finish_reason == "tool_calls"
    with pytest.raises(openai.BadRequestError) as e:
        chat(tool_choice="required")
    assert e.value.param == "tool_choice"


def test_strict_tools_that_the_model_calls_have_arguments_of_their_schema(chat):
    message = chat(tools=[tool_of(strict=True, city={"enum": ["Oslo"]})], parallel_tool_calls=False).choices[0].message
    assert message.content == "Let me look."
    assert [json.loads(c.function.arguments) for c in message.tool_calls] == [{"city": "Oslo"}]
    with pytest.raises(openai.BadRequestError, match="#/properties/city") as e:
        chat(tools=[tool_of(strict=True, city={"type": "string", "pattern": "(?=x)"})])
    assert e.value.param == "tools"


def test_a_budget_closes_the_thought(chat):
    def thought(budget):
        message = chat(max_tokens=100, extra_body={"thinking_token_budget": budget}).choices[0].message
        return getattr(message, "reasoning_content", None), message.content
    whole = "The user wants the weather."
    assert thought(90)[0] == whole
    cut, content = thought(8)
    assert cut and whole.startswith(cut) and cut != whole and content
    assert not thought(0)[0]


def test_parsers_may_be_turned_off(start, model):
    s = start(model, "--tool-parser", "none", "--reasoning-parser", "none")
    _, _, reply = ask(s, "/v1/chat/completions", {"messages": ASK, "temperature": 0})
    assert reply["choices"][0]["message"]["content"] == SAYS
    assert ask(s, "/v1/chat/completions", {"messages": ASK, "tools": [TOOL]})[0] == 400
