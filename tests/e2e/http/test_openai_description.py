"""Requests and replies compared with OpenAI's own description of its API, and with samples of other servers."""

import gzip
import json
import sys

import jsonschema
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from service import ROOT, SHARED
from test_http import ask, stream

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_script_model  # noqa: E402

CONFORMANCE = SHARED / "conformance"
PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SAYS = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def nullable(schema):
    """Convert OpenAPI 3.0's `nullable` to JSON Schema."""
    if isinstance(schema, list):
        return [nullable(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    new = {k: nullable(v) for k, v in schema.items() if k not in ("nullable", "discriminator", "example")}
    return {"anyOf": [{"type": "null"}, new]} if schema.get("nullable") is True else new


class Description:
    def __init__(self, path):
        with gzip.open(path) as f:
            document = json.load(f)
        self.raw = document["components"]["schemas"]
        self.registry = Registry().with_resource(
            "urn:openai", Resource(nullable({"components": document["components"]}), DRAFT202012))

    def validate(self, value, name):
        schema = {"$ref": f"urn:openai#/components/schemas/{name}"}
        jsonschema.Draft202012Validator(schema, registry=self.registry).validate(value)

    def properties(self, name):
        """Return {property: schema} of an object, inherited properties included."""
        found = {}

        def walk(s):
            if "$ref" in s:
                return walk(self.raw[s["$ref"].rsplit("/", 1)[1]])
            for part in s.get("allOf", []):
                walk(part)
            found.update(s.get("properties", {}))
        walk(self.raw[name])
        return found


@pytest.fixture(scope="module")
def described():
    path = CONFORMANCE / "openai-openapi.json.gz"
    if not path.exists():
        pytest.skip("OpenAI's description is not there")
    return Description(path)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """A model that calls a tool."""
    from service import Service
    template = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "script", SAYS, template))
    yield s
    s.stop()
    Service.used.remove(s)


@pytest.mark.parametrize("path, schema, body", [
    ("/v1/models", "ListModelsResponse", None),
    ("/v1/models/demo", "Model", None),
    ("/v1/completions", "CreateCompletionResponse", {"prompt": PROMPT, "max_tokens": 3}),
    ("/v1/completions", "CreateCompletionResponse", {"prompt": [PROMPT, "A"], "max_tokens": 3, "n": 2, "logprobs": 2}),
    ("/v1/completions", "CreateCompletionResponse", {"prompt": PROMPT, "max_tokens": 1, "echo": True}),
    ("/v1/chat/completions", "CreateChatCompletionResponse", {"messages": MESSAGES, "max_tokens": 3, "n": 2}),
    ("/v1/chat/completions", "CreateChatCompletionResponse",
     {"messages": MESSAGES, "max_tokens": 3, "logprobs": True, "top_logprobs": 2}),
    ("/v1/completions", "ErrorResponse", {"prompt": PROMPT, "model": "no-such-model"}),
    ("/v1/completions", "ErrorResponse", {}),
    ("/nothing", "ErrorResponse", None),
])
def test_replies_are_as_described(service, described, path, schema, body):
    described.validate(ask(service, path, body)[2], schema)


@pytest.mark.parametrize("more", [{}, {"logprobs": True, "top_logprobs": 1}, {"n": 2},
                                  {"stream_options": {"include_usage": True}}])
def test_chat_chunks_are_as_described(service, described, more):
    chunks = stream(service, "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 4, **more})
    assert chunks
    for c in chunks:
        described.validate(c, "CreateChatCompletionStreamResponse")


def test_completion_chunks_are_as_described(service, described):
    for c in stream(service, "/v1/completions", {"prompt": PROMPT, "max_tokens": 4, "logprobs": 1}):
        # The description has one schema for both, but only a stream's last chunk has a reason.
        for choice in c["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        described.validate(c, "CreateCompletionResponse")


def test_calls_of_tools_are_as_described(script, described):
    body = {"messages": MESSAGES, "tools": [TOOL], "temperature": 0}
    _, _, whole = ask(script, "/v1/chat/completions", body)
    assert whole["choices"][0]["message"]["tool_calls"]
    described.validate(whole, "CreateChatCompletionResponse")
    status, _, text = ask(script, "/v1/chat/completions", {**body, "stream": True})
    chunks = [json.loads(x[6:]) for x in text.splitlines() if x.startswith("data: {")]
    assert any(d.get("tool_calls") for c in chunks for d in [c["choices"][0]["delta"]])
    for c in chunks:
        described.validate(c, "CreateChatCompletionStreamResponse")
    message = whole["choices"][0]["message"]
    described.validate({"model": "demo", "messages": [*MESSAGES, {k: v for k, v in message.items() if v is not None}]},
                       "CreateChatCompletionRequest")


# --- every field of a request is honoured, or ignored and named, or refused by name ---

# Values with an effect. A field that is missing here has an example in the description, or a default.
ASKS = {
    "metadata": {"a": "b"}, "temperature": 0.5, "top_p": 0.5, "user": "me", "safety_identifier": "me",
    "prompt_cache_key": "k", "prompt_cache_retention": "24h", "prompt_cache_options": {"ttl": "30m"},
    "service_tier": "flex", "modalities": ["text", "audio"], "verbosity": "high", "reasoning_effort": "high",
    "max_completion_tokens": 2, "frequency_penalty": 0.5, "presence_penalty": 0.5, "web_search_options": {"a": 1},
    "response_format": {"type": "json_object"}, "audio": {"voice": "alloy", "format": "wav"}, "store": True,
    "moderation": {"model": "omni"}, "stream": True, "stop": ["x"], "logit_bias": {"5": 1}, "logprobs": True,
    "top_logprobs": 1, "max_tokens": 2, "n": 2, "prediction": {"type": "content", "content": "x"}, "seed": 5,
    "stream_options": {"include_usage": True}, "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False,
    "function_call": {"name": "f"}, "functions": [{"name": "f"}], "best_of": 2, "echo": True, "suffix": "x",
}
NEEDS = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True}}
HONOURED = {"temperature", "top_p", "user", "max_completion_tokens", "frequency_penalty", "presence_penalty", "stream",
            "stop", "logit_bias", "logprobs", "top_logprobs", "max_tokens", "n", "seed", "stream_options", "tool_choice",
            "parallel_tool_calls", "best_of", "echo", "model", "messages", "prompt", "response_format"}
REFUSED = {"modalities", "verbosity", "web_search_options", "audio", "moderation", "function_call",
           "functions", "suffix", "tools"}      # tools: the demo's template supports none


@pytest.mark.parametrize("path, schema, body", [
    ("/v1/completions", "CreateCompletionRequest", {"prompt": PROMPT}),
    ("/v1/chat/completions", "CreateChatCompletionRequest", {"messages": MESSAGES}),
])
def test_no_field_of_a_request_is_ignored_silently(service, described, path, schema, body):
    for name in described.properties(schema):
        if name in ("model", "messages", "prompt"):
            continue
        value = 1 if (name, path) == ("logprobs", "/v1/completions") else ASKS[name]
        status, headers, reply = ask(service, path, {"max_tokens": 2, **body, **NEEDS.get(name, {}), name: value})
        ignored = (headers["x-quern-ignored"] or "").split(", ")
        if name in REFUSED:
            assert status == 400 and reply["error"]["param"] == name, name
        elif name in HONOURED:
            assert status == 200 and name not in ignored, (name, reply)
        else:
            assert status == 200 and name in ignored, (name, reply)


# --- samples of other servers ---

def sample(name):
    path = CONFORMANCE / "openai-api-samples" / name
    if not path.exists():
        pytest.skip("the samples are not there")
    return json.loads(path.read_text())


@pytest.mark.parametrize("name, path", [("completion_req.json", "/v1/completions"),
                                        ("chat_req_string.json", "/v1/chat/completions")])
def test_sample_requests_are_taken(service, name, path):
    body = {**sample(name), "model": "demo"}
    status, _, reply = ask(service, path, body)
    assert status == 200, reply


def test_a_sample_with_tools_is_taken_and_one_with_images_refused(script):
    body = {**sample("chat_req_toolchoice_string.json"), "model": "script", "tool_choice": "auto"}
    assert ask(script, "/v1/chat/completions", body)[0] == 200
    status, _, reply = ask(script, "/v1/chat/completions", {**sample("chat_req_parts_tools.json"), "model": "script"})
    assert status == 400 and "messages[0].content[1]" in reply["error"]["message"]


def lacks(ours, theirs, at="$"):
    """Return a key of the sample that our reply lacks, or has with another type."""
    if isinstance(theirs, dict):
        for key, value in theirs.items():
            if not isinstance(ours, dict) or key not in ours:
                return f"{at}.{key}"
            if wrong := lacks(ours[key], value, f"{at}.{key}"):
                return wrong
    elif isinstance(theirs, list):
        if not isinstance(ours, list) or (theirs and not ours):
            return at
        return lacks(ours[0], theirs[0], at + "[0]") if theirs else None
    elif theirs is not None and ours is not None and type(ours) is not type(theirs) \
            and not {type(ours), type(theirs)} <= {int, float}:
        return at
    return None


def test_replies_have_all_that_the_samples_have(service, script):
    chat = "/v1/chat/completions"
    assert lacks(ask(service, "/v1/completions", {"prompt": PROMPT, "max_tokens": 3})[2],
                 sample("completion_resp.json")) is None
    body = {"messages": MESSAGES, "max_tokens": 3, "logprobs": True, "top_logprobs": 2}
    assert lacks(ask(service, chat, body)[2], sample("chat_resp_logprobs.json")) is None
    assert lacks(ask(script, chat, {"messages": MESSAGES, "tools": [TOOL], "temperature": 0})[2],
                 sample("chat_resp_tool_calls.json")) is None
    chunks = stream(service, chat, {"messages": MESSAGES, "max_tokens": 3, "stream_options": {"include_usage": True}})
    assert lacks(chunks[0], sample("chat_chunk_stream.json")) is None
    assert lacks(chunks[-1], sample("chat_chunk_final_usage.json")) is None
    assert lacks(ask(service, "/v1/models")[2], sample("models_list.json")) is None
    assert lacks(ask(service, "/v1/models/no-such-model")[2], sample("error_envelope.json")) is None
