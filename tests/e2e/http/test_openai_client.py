"""The official OpenAI client with a running service, and replies compared with OpenAI's description."""

import asyncio
import json
import urllib.error
import urllib.request

import openai
import pytest

from service import eventually

PROMPT = "Once upon a time"


@pytest.fixture
def api(service):
    with openai.OpenAI(base_url=service.http + "/v1", api_key="none", max_retries=0, timeout=60) as c:
        yield c


@pytest.fixture
def model(api):
    return api.models.list().data[0].id


@pytest.fixture
def chat(api, model):
    """chat(**parameters): request a chat completion of one user message."""
    def create(**kw):
        kw.setdefault("messages", [{"role": "user", "content": "Tell me a story."}])
        return api.chat.completions.create(model=model, **kw)
    return create


def raw(service, path, body=None, headers=()):
    """Send a request without a library: (status, headers, parsed body)."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(service.http + path, data, dict(headers))
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, r.headers, json.load(r)
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.headers, json.load(e)


# The service.

def test_models_are_listed_and_retrieved(api, model):
    m = api.models.retrieve(model)
    assert m.id == model and m.object == "model" and m.created > 0 and m.owned_by


def test_health_and_version(service):
    assert raw(service, "/health")[0] == 200
    assert raw(service, "/ready")[0] == 200
    assert raw(service, "/version")[2]["version"]


# Completions.

def test_completion(api, model):
    r = api.completions.create(model=model, prompt=PROMPT, max_tokens=8, seed=1)
    assert r.object == "text_completion" and r.id.startswith("cmpl-") and r.model == model
    assert r.choices[0].text and r.choices[0].finish_reason in ("length", "stop")
    assert r.usage.completion_tokens <= 8
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens


def test_a_seed_gives_the_same_text_again_and_another_gives_another(api, model):
    def text(seed):
        return api.completions.create(model=model, prompt=PROMPT, max_tokens=24, seed=seed).choices[0].text
    assert text(5) == text(5)
    assert len({text(s) for s in range(4)}) > 1


def test_a_stream_adds_up_to_the_reply(api, model):
    kw = dict(model=model, prompt=PROMPT, max_tokens=32, seed=7)
    whole = api.completions.create(**kw)
    chunks = list(api.completions.create(**kw, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    finished = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    assert finished == [whole.choices[0].finish_reason]
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert all(c.usage is None for c in chunks[:-1])
    assert len({c.id for c in chunks}) == 1


def test_several_choices_streamed_together(api, model):
    kw = dict(model=model, prompt=PROMPT, max_tokens=12, seed=3, n=3)
    whole = api.completions.create(**kw)
    texts = ["", "", ""]
    for c in api.completions.create(**kw, stream=True):
        texts[c.choices[0].index] += c.choices[0].text
    assert texts == [c.text for c in whole.choices]
    assert len(set(texts)) > 1


def test_several_prompts_as_text_and_as_tokens(api, model, service):
    prompts = [PROMPT, "The little dog"]
    r = api.completions.create(model=model, prompt=prompts, max_tokens=6, temperature=0, n=1)
    assert [c.index for c in r.choices] == [0, 1]
    ids = [raw(service, "/tokenize", {"prompt": p})[2]["tokens"] for p in prompts]
    by_ids = api.completions.create(model=model, prompt=ids, max_tokens=6, temperature=0)
    assert [c.text for c in by_ids.choices] == [c.text for c in r.choices]
    alone = api.completions.create(model=model, prompt=ids[1], max_tokens=6, temperature=0)
    assert alone.choices[0].text == r.choices[1].text
    assert r.usage.prompt_tokens == sum(map(len, ids))


def test_completion_logprobs(api, model):
    r = api.completions.create(model=model, prompt=PROMPT, max_tokens=6, temperature=0, logprobs=3)
    lp = r.choices[0].logprobs
    n = r.usage.completion_tokens
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset)
    assert n - 1 <= len(lp.tokens) <= n     # an end token has no text
    for token, p, top in zip(lp.tokens, lp.token_logprobs, lp.top_logprobs):
        assert p <= 0 and top[token] == p and p == max(top.values()) and 3 <= len(top) <= 4
    assert lp.text_offset == sorted(lp.text_offset) and lp.text_offset[0] == 0


def test_echo_scores_the_prompt(api, model):
    r = api.completions.create(model=model, prompt=PROMPT, max_tokens=1, logprobs=1, echo=True, temperature=0)
    lp = r.choices[0].logprobs
    assert r.choices[0].text.startswith(PROMPT)
    assert len(lp.tokens) >= r.usage.prompt_tokens
    assert lp.token_logprobs[0] is None and all(p <= 0 for p in lp.token_logprobs[1:])


def test_stop_strings(api, model):
    kw = dict(model=model, prompt=PROMPT, max_tokens=48, temperature=0)
    text = api.completions.create(**kw).choices[0].text
    words = text.split()
    assert len(words) >= 4
    stop = words[3]
    r = api.completions.create(**kw, stop=[stop]).choices[0]
    assert r.finish_reason == "stop" and stop not in r.text and text.startswith(r.text)
    streamed = list(api.completions.create(**kw, stop=stop, stream=True))
    assert "".join(c.choices[0].text for c in streamed) == r.text
    assert streamed[-1].choices[0].finish_reason == "stop"
    kept = api.completions.create(**kw, stop=[stop], extra_body={"include_stop_str_in_output": True})
    assert kept.choices[0].text.endswith(stop)


def test_sampling_fields_beyond_openais(api, model):
    kw = dict(model=model, prompt=PROMPT, max_tokens=8)
    greedy = api.completions.create(**kw, temperature=0).choices[0].text
    assert api.completions.create(**kw, extra_body={"top_k": 1}).choices[0].text == greedy
    long = api.completions.create(**kw, extra_body={"ignore_eos": True, "min_tokens": 8})
    assert long.usage.completion_tokens == 8 and long.choices[0].finish_reason == "length"


# Chat.

def test_chat(chat):
    r = chat(max_completion_tokens=8, seed=1)
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-")
    assert r.choices[0].message.role == "assistant" and r.choices[0].message.content is not None
    assert r.usage.completion_tokens <= 8


def test_a_chat_stream_adds_up_to_the_reply(chat):
    kw = dict(max_tokens=24, seed=9, n=2)
    whole = chat(**kw)
    texts, roles, finished = ["", ""], [None, None], [None, None]
    usage = None
    for c in chat(**kw, stream=True, stream_options={"include_usage": True}):
        for choice in c.choices:
            roles[choice.index] = roles[choice.index] or choice.delta.role
            texts[choice.index] += choice.delta.content or ""
            finished[choice.index] = choice.finish_reason
        usage = c.usage
    assert roles == ["assistant"] * 2
    assert texts == [c.message.content for c in whole.choices]
    assert finished == [c.finish_reason for c in whole.choices]
    assert usage.total_tokens == whole.usage.total_tokens


def test_chat_logprobs(chat):
    r = chat(max_tokens=5, temperature=0, logprobs=True, top_logprobs=2)
    for t in r.choices[0].logprobs.content:
        assert t.logprob <= 0 and bytes(t.bytes).decode(errors="replace") == t.token
        assert len(t.top_logprobs) == 2 and t.top_logprobs[0].logprob == t.logprob


def test_contents_in_parts(chat):
    parts = [{"type": "text", "text": "Tell me"}, {"type": "text", "text": "a story."}]
    assert chat(messages=[{"role": "user", "content": parts}], max_tokens=2).choices
    with pytest.raises(openai.BadRequestError, match="text"):
        chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


# Refusals.

def test_errors_have_openais_classes(api, model):
    with pytest.raises(openai.NotFoundError) as e:
        api.completions.create(model="no-such-model", prompt=PROMPT)
    assert e.value.code == "model_not_found" and e.value.param == "model"
    with pytest.raises(openai.BadRequestError) as e:
        api.completions.create(model=model, prompt=PROMPT, temperature=-1)
    assert e.value.param == "temperature" and e.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as e:
        api.completions.create(model=model, prompt=PROMPT, max_tokens=10**8)
    assert e.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as e:
        api.completions.create(model=model, prompt=PROMPT, suffix="The end.")
    assert e.value.param == "suffix"
    with pytest.raises(openai.NotFoundError):
        api.models.retrieve("no-such-model")


def test_fields_that_cannot_be_honoured_are_refused_by_name(chat):
    with pytest.raises(openai.BadRequestError) as e:
        chat(response_format={"type": "xml"})
    assert e.value.param == "response_format"
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with pytest.raises(openai.BadRequestError) as e:
        chat(tools=[tool])
    assert e.value.param in ("tools", "tool_choice")


def test_unknown_fields_are_named_in_a_header(service):
    status, headers, _ = raw(service, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1, "flavour": 1})
    assert status == 200 and "flavour" in headers["x-quern-ignored"]


# Tokens.

def test_tokenize_and_detokenize(service):
    text = "Once upon a time, naïve \U0001f600."
    tokens = raw(service, "/tokenize", {"prompt": text, "add_special_tokens": False})[2]
    assert tokens["count"] == len(tokens["tokens"]) > 3 and tokens["max_model_len"] > 0
    assert raw(service, "/detokenize", {"tokens": tokens["tokens"]})[2]["prompt"] == text


# Many at once, and clients that disconnect.

def test_many_at_once_get_what_each_gets_alone(service, model):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=service.http + "/v1", api_key="none", max_retries=0) as c:
            async def one(i):
                stream = await c.completions.create(model=model, prompt=f"{PROMPT} {i}", max_tokens=12, seed=i,
                                                    stream=True)
                return "".join([chunk.choices[0].text async for chunk in stream])
            together = await asyncio.gather(*(one(i) for i in range(24)))
            return together, [await one(i) for i in range(0, 24, 8)]
    together, alone = asyncio.run(all_of_them())
    assert together[::8] == alone


def test_closing_a_stream_cancels_the_job(api, model, service):
    stream = api.completions.create(model=model, prompt=PROMPT, max_tokens=100, stream=True, n=8,
                                    extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    eventually(lambda: service.status()["running"] == 0, 20, "an idle service")
    service.idle()
