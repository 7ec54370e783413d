"""The examples of each API's own documentation run, or are refused by name (documented.py)."""

import json
import sys

import anthropic.types
import ollama
import openai.types.chat
import openai.types.responses
import pydantic
import pytest

import documented
import of_responses
from outcomes import status_of
from service import ROOT, Service

sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "tests" / "e2e" / "http")]
import make_script_model  # noqa: E402
from test_http import ask  # noqa: E402

SAYS = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Paris"}}\n</tool_call>'
WORDS = ["yes", "no", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


def with_words(model):
    """A model with a token for each word, to rank documents and fill in the middle."""
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    added = tokenizer["added_tokens"]
    first = 1 + max(max(t["id"] for t in added), *tokenizer["model"]["vocab"].values())
    for i, word in enumerate(WORDS):
        added.append({**added[-1], "id": first + i, "content": word, "special": word.startswith("<")})
    assert first + len(WORDS) <= json.loads((model / "config.json").read_text())["vocab_size"]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    return model


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    """A model that calls a tool, with a template that supports tools."""
    template = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
    model = make_script_model.make(tmp_path_factory.mktemp("model") / "script", SAYS, template)
    s = Service(with_words(model), "--name", "gpt", "--journal", tmp_path_factory.mktemp("journal") / "j")
    yield s
    s.stop()
    Service.used.remove(s)


def test_the_page_has_the_examples():
    """`python tests/e2e/documented/documented.py` regenerates the page."""
    assert documented.PAGE.read_text() == documented.page()


def test_no_example_is_there_twice():
    for examples in documented.APIS.values():
        titles = [e[0] for e in examples]
        assert len(set(titles)) == len(titles)


def last_of(text):
    """Return the last event or line of a stream that holds JSON; "[DONE]" does not count."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: {", "{"))]
    return json.loads(lines[-1])


# Types of an API's official client for a reply, and for an event or line of a stream.
TYPES = {
    "/v1/messages": (anthropic.types.Message, anthropic.types.RawMessageStreamEvent),
    "/v1/messages/count_tokens": (anthropic.types.MessageTokensCount, None),
    "/api/chat": (ollama.ChatResponse, ollama.ChatResponse),
    "/api/generate": (ollama.GenerateResponse, ollama.GenerateResponse),
    "/api/embed": (ollama.EmbedResponse, None), "/api/embeddings": (ollama.EmbeddingsResponse, None),
    "/api/tags": (ollama.ListResponse, None), "/api/ps": (ollama.ProcessResponse, None),
    "/api/show": (ollama.ShowResponse, None),
    "/v1/chat/completions": (openai.types.chat.ChatCompletion, openai.types.chat.ChatCompletionChunk),
    "/v1/completions": (openai.types.Completion, None),
    "/v1/embeddings": (openai.types.CreateEmbeddingResponse, None),
    "/v1/responses": (openai.types.responses.Response, openai.types.responses.ResponseStreamEvent),
}


def is_of_its_type(path, reply):
    """Validate the reply, or each event of the stream, as the type of the official client."""
    whole, event = TYPES.get(path, (None, None))
    if isinstance(reply, str) and event:
        for line in reply.splitlines():
            if line.startswith(("data: {", "{")) and '"type":"ping"' not in line:    # the client skips it
                pydantic.TypeAdapter(event).validate_json(line.removeprefix("data: "), strict=path.startswith("/v1"))
    elif whole and not isinstance(reply, str):
        pydantic.TypeAdapter(whole).validate_json(json.dumps(reply), strict=path.startswith("/v1"))


def ends_well(path, reply):
    """Return true if a reply with status 200 is complete, in its API's format."""
    if isinstance(reply, str) and path == "/metrics":
        return "quern" in reply
    if isinstance(reply, str):
        last = last_of(reply)
        return "error" not in last and {
            "/v1/messages": last.get("type") == "message_stop", "/api/generate": last.get("done"),
            "/api/chat": last.get("done"), "/completion": last.get("stop") is True}.get(path, True)
    if path == "/v1/messages":
        return reply["type"] == "message" and reply["stop_reason"]
    if path in ("/api/generate", "/api/chat"):
        return reply["done"] and reply["done_reason"]
    return reply


def with_ids(service, path, body):
    """Insert the ids of a response, a conversation and an item into path and body, if the example names one."""
    text = json.dumps([path, body])
    if "RESPONSE" in text:
        text = text.replace("RESPONSE", ask(service, "/v1/responses", {"input": "Hello!", "max_output_tokens": 8})[2]["id"])
    if "CONVERSATION" in text:
        made = ask(service, "/v1/conversations", of_responses.ITEMS)[2]["id"]
        item = ask(service, f"/v1/conversations/{made}/items", None, "GET")[2]["first_id"]
        text = text.replace("CONVERSATION", made).replace("ITEM", item)
    return json.loads(text)


@pytest.mark.parametrize("api, title", [(api, e[0]) for api, examples in documented.APIS.items() for e in examples])
def test_an_example_has_its_outcome(speaker, api, title):
    _, path, body, (what, fields) = next(e for e in documented.APIS[api] if e[0] == title)
    method, _, path = path.rpartition(" ")
    path, body = with_ids(speaker, path, body)
    by = {"anthropic-version": "2023-06-01"} if api.startswith("Anthropic") else {}
    status, headers, reply = ask(speaker, path, body, method or "POST", by)
    if status_of(what):
        assert status == status_of(what), reply
        error = reply["error"]
        message = error if isinstance(error, str) else error["message"]
        assert fields[0] == (error.get("param") if isinstance(error, dict) else None) or fields[0] in message
        return
    assert status == 200, reply
    assert (headers["x-quern-ignored"] or "") == ", ".join(fields)
    assert ends_well(path, reply), reply
    is_of_its_type(path, reply)


def test_calls_are_called(speaker):
    """The examples with tools are answered by a call, and by nothing else."""
    for path, call in (("/v1/chat/completions", lambda r: r["choices"][0]["message"]["tool_calls"][0]["function"]["name"]),
                       ("/v1/messages", lambda r: next(b["name"] for b in r["content"] if b["type"] == "tool_use")),
                       ("/api/chat", lambda r: r["message"]["tool_calls"][0]["function"]["name"])):
        bodies = [e[2] for examples in documented.APIS.values() for e in examples
                  if e[1] == path and e[2].get("tools") and e[3][0] == "runs" and not e[2].get("stream", path == "/api/chat")
                  and (e[2].get("tool_choice") or {"type": "auto"}) != {"type": "none"}]
        assert bodies
        for body in bodies:
            _, _, reply = ask(speaker, path, {**body, "temperature": 0} if path != "/api/chat" else body)
            assert call(reply) == "get_weather", body
