"""Ollama's official client, unmodified: /api/chat, /api/generate and the requests about models."""

import json
import sys
import urllib.request

import ollama
import pytest

from service import ROOT

sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "tests" / "e2e" / "http")]
import make_script_model  # noqa: E402
from test_anthropic_client import SAYS, TEMPLATE  # noqa: E402
from test_http import ask  # noqa: E402

ONCE = [{"role": "user", "content": "Once upon a time"}]
GREEDY = {"temperature": 0, "num_predict": 12}
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


@pytest.fixture
def demo(service):
    return ollama.Client(host=service.http)


@pytest.fixture(scope="module")
def script(tmp_path_factory, service):
    from service import Service
    newline = ask(service, "/tokenize", {"prompt": "a\n", "add_special_tokens": False})[2]["tokens"][-1]
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "script", {newline: SAYS}, TEMPLATE))
    yield ollama.Client(host=s.http)
    s.stop()
    Service.used.remove(s)


def reply_of(service, **keys):
    """Send the same request in OpenAI's format: (text, finish_reason, usage)."""
    path = "/v1/completions" if "prompt" in keys else "/v1/chat/completions"
    reply = ask(service, path, {"temperature": 0, "max_tokens": 12, **keys})[2]
    choice = reply["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"], choice["finish_reason"], reply["usage"]


def test_a_chat_is_the_chat_s(demo, service):
    text, finish, usage = reply_of(service, messages=ONCE)
    r = demo.chat("demo", messages=ONCE, options=GREEDY)
    assert (r.message.content, r.done, r.done_reason, r.model) == (text, True, finish, "demo")
    assert (r.prompt_eval_count, r.eval_count) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert r.total_duration >= r.eval_duration > 0 and r.prompt_eval_duration > 0


def test_a_stream_is_lines_of_json_that_add_up(demo, service):
    text = reply_of(service, messages=ONCE)[0]
    parts = list(demo.chat("demo:latest", messages=ONCE, options=GREEDY, stream=True))
    assert "".join(p.message.content for p in parts) == text
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count and parts[-1].done_reason in ("stop", "length")
    body = json.dumps({"model": "demo", "messages": ONCE, "options": GREEDY}).encode()
    with urllib.request.urlopen(service.http + "/api/chat", body) as r:    # no Content-Type: JSON, as curl -d sends it
        assert r.headers["Content-Type"] == "application/x-ndjson"
        assert all(json.loads(line) for line in r)


def test_a_prompt_is_a_chat_unless_it_is_raw(demo, service):
    assert demo.generate("demo", "Once upon a time", options=GREEDY).response == reply_of(service, messages=ONCE)[0]
    raw = demo.generate("demo", "Once upon a time", raw=True, options=GREEDY)
    assert raw.response == reply_of(service, prompt="Once upon a time")[0]
    system = [{"role": "system", "content": "Be brief."}, *ONCE]
    assert demo.generate("demo", "Once upon a time", system="Be brief.", options=GREEDY).response == \
        reply_of(service, messages=system)[0]
    parts = list(demo.generate("demo", "Once upon a time", raw=True, options=GREEDY, stream=True))
    assert "".join(p.response for p in parts) == raw.response


def test_options_are_honoured(demo, service):
    assert demo.generate("demo", "Once", raw=True, options={**GREEDY, "num_predict": 2}).eval_count == 2
    full = demo.generate("demo", "Once", raw=True, options=GREEDY).response
    stop = full[4:7]
    assert demo.generate("demo", "Once", raw=True, options={**GREEDY, "stop": [stop]}).response == full[:full.index(stop)]
    # Without a limit, raw prompts are continued as chats are: to the end of the text or of the context.
    assert demo.generate("demo", "Once", raw=True, options={"temperature": 0}).eval_count > 16
    seeded = {"num_predict": 12, "temperature": 1.5, "seed": 5}
    assert demo.generate("demo", "Once", raw=True, options=seeded).response == \
        demo.generate("demo", "Once", raw=True, options=seeded).response == \
        reply_of(service, prompt="Once", temperature=1.5, seed=5)[0]


def test_thinking_and_calls(script):
    ask_it = [{"role": "user", "content": "What is the weather in Paris?"}]
    r = script.chat("script", messages=ask_it, tools=[TOOL], options={"temperature": 0, "num_predict": 400})
    assert (r.message.thinking, r.message.content) == ("The user wants the weather.", "Let me look.")
    (call,) = r.message.tool_calls
    assert call.function.name == "get_weather" and call.function.arguments == {"city": "Paris, France", "unit": "C"}
    parts = list(script.chat("script", messages=ask_it, tools=[TOOL], stream=True,
                             options={"temperature": 0, "num_predict": 400}))
    assert "".join(p.message.thinking or "" for p in parts) == r.message.thinking
    assert "".join(p.message.content for p in parts) == r.message.content
    assert [c for p in parts for c in p.message.tool_calls or []] == r.message.tool_calls
    again = [*ask_it, r.message, {"role": "tool", "tool_name": "get_weather", "content": "21 degrees"}]
    assert script.chat("script", messages=again, tools=[TOOL], options={"num_predict": 3}).eval_count == 3


def test_results_name_their_calls_and_fields_of_the_client_are_named(script, service):
    call = {"id": "c1", "function": {"name": "get_weather", "arguments": {}}}
    asked = [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [call]}]

    def ignored(result):
        body = {"model": "script", "stream": False, "options": {"num_predict": 1}, "tools": [TOOL],
                "messages": [*asked, {"role": "tool", "content": "21 degrees", **result}]}
        request = urllib.request.Request(str(script._client.base_url) + "/api/chat", json.dumps(body).encode())
        with urllib.request.urlopen(request) as r:
            return r.headers["x-quern-ignored"]
    # The template does not use ids of results. Fields that the client has not sent are not reported as ignored.
    assert ignored({}) is None and ignored({"tool_name": "get_weather"}) is None
    assert ignored({"tool_call_id": "c1"}) == "messages.tool_call_id"
    assert ignored({"mood": 1}) == "messages.mood"


def test_a_thought_that_is_not_wanted_is_not_shown(tmp_path_factory, service):
    """The template has no switch for thinking."""
    from service import Service
    newline = ask(service, "/tokenize", {"prompt": "a\n", "add_special_tokens": False})[2]["tokens"][-1]
    template = TEMPLATE[:TEMPLATE.index("{% if enable_thinking")] + "{% endif %}"
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "thinker", {newline: SAYS}, template),
                "--reasoning-parser", "qwen3")
    body = {"model": "thinker", "messages": ONCE, "stream": False, "options": {"temperature": 0, "num_predict": 400}}
    shown = ask(s, "/api/chat", {**body, "think": True})
    assert shown[2]["message"]["thinking"] and shown[1]["x-quern-ignored"] == "think"
    _, headers, reply = ask(s, "/api/chat", {**body, "think": False})
    assert headers["x-quern-ignored"] is None and "thinking" not in reply["message"]
    assert reply["message"]["content"] == shown[2]["message"]["content"]


def test_a_form(demo):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"],
              "additionalProperties": False}
    r = demo.chat("demo", messages=ONCE, format=schema, options={"temperature": 0, "num_predict": 100})
    assert r.message.content.startswith("{")
    if r.done_reason == "stop":
        assert json.loads(r.message.content)["n"] <= 99


def test_logprobs(demo):
    r = demo.chat("demo", messages=ONCE, logprobs=True, top_logprobs=2, options=GREEDY)
    assert len(r.logprobs) == r.eval_count and all(len(x.top_logprobs) == 2 for x in r.logprobs)
    assert all(x.logprob == x.top_logprobs[0].logprob for x in r.logprobs)


def test_models(demo):
    assert [m.model for m in demo.list().models] == ["demo"] == [m.model for m in demo.ps().models]
    show = demo.show("demo:latest")
    assert "completion" in show.capabilities and show.modelinfo["general.architecture"] == show.details.family
    assert (show.details.format, show.details.quantization_level) == ("safetensors", "AWQ")
    assert all(v not in ("", []) for k, v in show.model_dump(exclude_none=True).items()), "no blanks"
    with pytest.raises(ollama.ResponseError) as e:
        demo.show("other")
    assert e.value.status_code == 404
    assert demo.generate("demo").done_reason == "load"
    assert demo.generate("demo", keep_alive=0).done_reason == "unload"
    assert demo.chat("demo").done_reason == "load"


def test_embeddings(demo, service):
    reply = ask(service, "/v1/embeddings", {"input": ["Once", "upon"]})[2]
    want = reply["data"]
    got = demo.embed("demo", ["Once", "upon"])
    assert got.embeddings == [d["embedding"] for d in want] and got.prompt_eval_count == reply["usage"]["prompt_tokens"]
    assert demo.embed("demo", "Once").embeddings == [want[0]["embedding"]]
    assert len(demo.embed("demo", "Once", dimensions=7).embeddings[0]) == 7
    assert len(demo.embed("demo", "Once " * 3000).embeddings) == 1
    with pytest.raises(ollama.ResponseError, match="Once|tokens|context"):
        demo.embed("demo", "Once " * 3000, truncate=False)
    assert len(demo.embeddings("demo", "Once").embedding) == len(want[0]["embedding"])


@pytest.mark.parametrize("call", [
    lambda c: c.pull("x"), lambda c: c.push("x"), lambda c: c.create("x", from_="y"), lambda c: c.copy("x", "y"),
    lambda c: c.delete("x"),
])
def test_what_changes_models_is_refused_by_name(demo, call):
    with pytest.raises(ollama.ResponseError, match="is not served") as e:
        call(demo)
    assert e.value.status_code == 501


@pytest.mark.parametrize("change, words", [
    ({"template": "{{ .Prompt }}"}, "template"),
    ({"suffix": "x"}, "suffix"),
    ({"images": [b"x"]}, "images"),
    ({"context": [1, 2]}, "context"),
    ({"options": {"num_predict": 0}}, "options.num_predict"),
    ({"options": {"repeat_penalty": 0}}, "options.repeat_penalty"),
    ({"options": {"temperature": -1}}, "options.temperature"),
    ({"options": {"mirostat": 3}}, "options.mirostat"),
    ({"format": {"type": "no such type"}}, "format"),
])
def test_errors_name_the_client_s_field(demo, change, words):
    with pytest.raises(ollama.ResponseError) as e:
        demo.generate("demo", "Once", **change)
    assert e.value.status_code == 400 and words in e.value.error


def test_ignored_fields_are_named(service):
    headers = ask(service, "/api/chat", {"model": "demo", "messages": ONCE, "stream": False, "keep_alive": "5m",
                                         "options": {"num_predict": 1, "num_ctx": 4096, "brand_new": 1}})[1]
    assert headers["x-quern-ignored"] == "keep_alive, options.num_ctx, options.brand_new"


def test_a_client_that_goes_ends_its_job(service):
    c = ollama.Client(host=service.http)
    stream = c.generate("demo", "Once", raw=True, stream=True, options={"num_predict": 1900, "temperature": 2})
    next(iter(stream))
    stream.close()
    service.idle()
