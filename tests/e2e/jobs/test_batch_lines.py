"""A line of a batch gets the reply of a request to its url: quern submit --batch, /v1/batches and HTTP are compared
field by field."""

import io
import json
import subprocess
import urllib.error
import urllib.request

import openai
import pytest

from jobclient import JobError
from service import DEMO, QUERN, Service, demo_with, eventually

CHAT, TEXT, RESPONSES, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"
IMAGE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {
    "type": "object", "properties": {"location": {"type": "string", "maxLength": 3}}, "required": ["location"],
    "additionalProperties": False}}}
TEMPLATE = ("{% if tools %}tools: {{ tools | tojson }}\n{% endif %}{% if enable_thinking is defined %}thinking: "
            "{{ enable_thinking }}\n{% endif %}{% for m in messages %}{{ m['role'] }}{% if m.name %} {{ m.name }}{% endif %}: "
            "{{ m['content'] }}\n{% endfor %}assistant:")


def user(content, **more):
    return [{"role": "user", "content": content, **more}]


def chat(messages=None, **body):
    return CHAT, {"model": "served", "max_tokens": 6, "temperature": 0, "messages": messages or user("Once upon"), **body}


def text(prompt="Once upon a time", **body):
    return TEXT, {"max_tokens": 6, "temperature": 0, "prompt": prompt, **body}


# name: the line's url and body. A string is the body's text, unchanged.
LINES = {
    "plain": chat(),
    "parts": chat(user([{"type": "text", "text": "Once"}, {"type": "text", "text": "upon"}])),
    "image": chat(user([{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": IMAGE}}])),
    "image only": chat(user([{"type": "image_url", "image_url": {"url": IMAGE}}])),
    "audio": chat(user([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}])),
    "file": chat(user([{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}}])),
    "tools": chat(tools=[TOOL], max_tokens=60),
    "tool choice": chat(tools=[TOOL], tool_choice="required", max_tokens=60),
    "past calls": chat(user("x") + [{"role": "assistant", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"location\": \"Oslo\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "cold"}], tools=[TOOL]),
    "another model": chat(model="gpt-4o"),
    "no model": (CHAT, {k: v for k, v in chat()[1].items() if k != "model"}),
    "schema": chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {
        "type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}}},
        max_tokens=30),
    "n": chat(n=3, temperature=1, seed=5),
    "logprobs": chat(logprobs=True, top_logprobs=2),
    "stop": chat(stop=["e"], max_tokens=20),
    "seed": chat(seed=7, temperature=1),
    "effort": chat(reasoning_effort="low"),
    "template arguments": chat(chat_template_kwargs={"enable_thinking": False}),
    "name": chat(user("x", name="bob")),
    "developer": chat([{"role": "developer", "content": "Be brief."}, *user("x")]),
    "usage of a stream": chat(stream_options={"include_usage": True}),
    "user": chat(user=7),
    "wrong temperature": chat(temperature=-1),
    "no messages": (CHAT, {"model": "served"}),
    "wrong role": chat([{"role": "robot", "content": "x"}]),
    "unknown field": chat(no_such_field=1),
    "too long": chat(user("a " * 5000)),
    "numbers": (CHAT, '{"messages":[{"role":"user","content":"x"}],"max_tokens":6.0,"temperature":0.1e-0,"seed":'
                '1234567890123456789,"top_p":1.00000000000000000001}'),
    "names twice": (CHAT, '{"max_tokens":2,"max_tokens":4,"temperature":0,"messages":[{"role":"user","content":"x}\\"]"}]}'),
    "text": text(),
    "text defaults": (TEXT, {"prompt": "Once", "temperature": 0}),
    "texts": text(["Once", "There was"], n=2, temperature=1, seed=3),
    "token ids": text([1, 2, 3]),
    "lists of ids": text([[1, 2], [3]]),
    "text logprobs": text(logprobs=2, echo=True),
    "no prompt": (TEXT, {"max_tokens": 3}),
    "an empty list": text([]),
    "response": (RESPONSES, {"input": "Once upon a time", "max_output_tokens": 16, "temperature": 0}),
    "response of items": (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Once"}]}],
                                      "max_output_tokens": 16, "temperature": 0, "instructions": "Be brief."}),
    "response with an image": (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image",
                                                                                   "image_url": IMAGE}]}]}),
    "response of nothing": (RESPONSES, {"max_output_tokens": 16}),
    "embedding": (EMBEDDINGS, {"input": "Once upon a time"}),
    "embeddings": (EMBEDDINGS, {"input": ["Once", [1, 2, 3]], "encoding_format": "base64", "dimensions": 8}),
    "embedding of nothing": (EMBEDDINGS, {"input": []}),
    "scores": ("/v1/score", {"text_1": "Once", "text_2": ["upon", "a time"]}),
    "ranks": ("/v1/rerank", {"query": "Once", "documents": ["upon", "a time"]}),
}
URLS = list(dict.fromkeys(url for url, _ in LINES.values()))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    d = tmp_path_factory.mktemp("lines")
    s = Service(demo_with(d, TEMPLATE), "--journal", d / "journal", "--name", "served", "--tool-parser", "hermes")
    yield s
    s.stop()


def body_text(body):
    return body if isinstance(body, str) else json.dumps(body)


def line_text(name):
    url, body = LINES[name]
    return f'{{"custom_id": {json.dumps(name)}, "method": "POST", "url": "{url}", "body": {body_text(body)}}}\n'


def post(service, url, body):
    r = urllib.request.Request(service.http + url, body_text(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(r, timeout=120) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def same(v, key=""):
    """Remove ids, times, and cached token counts."""
    if isinstance(v, dict):
        return {k: same(x, k) for k, x in v.items()
                if k not in ("id", "created", "created_at", "completed_at", "cached_tokens", "call_id")}
    return [same(x) for x in v] if isinstance(v, (list, tuple)) else v


def submit(service, path, *options):
    return subprocess.run([QUERN, "submit", "--batch", path, "--to", service.jobs, *options], capture_output=True, text=True,
                          timeout=300)


def results(text):
    return {r["custom_id"]: (r["response"]["status_code"], r["response"]["body"]) for r in map(json.loads, text.splitlines())}


@pytest.fixture(scope="module")
def direct(served):
    return {name: post(served, *LINES[name]) for name in LINES}


@pytest.fixture(scope="module")
def by_command(served, tmp_path_factory):
    path = tmp_path_factory.mktemp("command") / "in.jsonl"
    path.write_text("".join(map(line_text, LINES)))
    r = submit(served, path)
    assert r.returncode == 1 and "lines have failed" in r.stderr
    return results(path.with_name("in.out.jsonl").read_text())


@pytest.fixture(scope="module")
def by_batches(served):
    got = {}
    with openai.OpenAI(base_url=served.http + "/v1", api_key="none", max_retries=0, timeout=60) as c:
        for url in URLS:
            lines = "".join(line_text(name) for name in LINES if LINES[name][0] == url)
            file = c.files.create(file=("in.jsonl", io.BytesIO(lines.encode())), purpose="batch")
            b = c.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")
            eventually(lambda: c.batches.retrieve(b.id).status == "completed", 120, "the end of the batch")
            b = c.batches.retrieve(b.id)
            for f in (b.output_file_id, b.error_file_id):
                got.update(results(c.files.content(f).text) if f else {})
    return got


@pytest.mark.parametrize("name", LINES)
def test_a_line_gets_what_a_request_gets(name, direct, by_command, by_batches):
    assert same(by_command[name]) == same(direct[name])
    assert same(by_batches[name]) == same(direct[name])


def test_the_lines_try_what_they_should(direct):
    """Most lines are answered; requests that a text model cannot serve are refused."""
    refused = {name for name, (status, _) in direct.items() if status != 200}
    assert {"image", "image only", "audio", "file", "another model", "wrong temperature", "no messages", "too long",
            "response with an image", "embedding of nothing"} <= refused
    assert direct["another model"][0] == 404 and "gpt-4o" in direct["another model"][1]["error"]["message"]
    answered = {"plain", "parts", "tools", "schema", "n", "effort", "template arguments", "name", "numbers", "texts", "response",
                "embedding", "embeddings"}
    assert [(name, direct[name]) for name in LINES if name in refused & answered] == []


def test_a_line_is_no_stream(served, tmp_path, by_batches):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"custom_id": str(i), "method": "POST", "url": url, "body": {**body, "stream": True}}) + "\n"
                            for i, (url, body) in enumerate([chat(), text(), LINES["response"]])))
    assert submit(served, path).returncode == 1
    for status, body in results(path.with_name("in.out.jsonl").read_text()).values():
        assert status == 400 and body["error"]["param"] == "stream" and "streamed" in body["error"]["message"]


def test_another_url_fails_alone_and_says_which_there_are(served, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(line_text("plain") + line_text("text").replace(TEXT, "/v1/files"))
    assert submit(served, path).returncode == 1
    got = results(path.with_name("in.out.jsonl").read_text())
    assert got["plain"][0] == 200 and got["text"][0] == 400
    message = got["text"][1]["error"]["message"]
    assert message.startswith("url must be /v1/completions, ") and all(url in message for url in URLS)


def test_a_byte_order_mark_begins_the_file(served, tmp_path, direct):
    path = tmp_path / "in.jsonl"
    path.write_text("\ufeff" + line_text("text") + line_text("plain"))
    assert submit(served, path).returncode == 0
    got = results(path.with_name("in.out.jsonl").read_text())
    assert {k: same(v) for k, v in got.items()} == {k: same(direct[k]) for k in ("text", "plain")}


def test_lines_need_no_listener_of_http(tmp_path, direct):
    s = Service(DEMO, "--http", "none")
    try:
        path = tmp_path / "in.jsonl"
        path.write_text("".join(line_text(n) for n in ("text", "texts", "embedding")))
        r = submit(s, path)
        assert (r.returncode, r.stderr) == (0, "")
        got = results(path.with_name("in.out.jsonl").read_text())
        assert got["text"][1]["choices"] == direct["text"][1]["choices"]
        assert got["embedding"][1]["data"] == direct["embedding"][1]["data"]
    finally:
        s.stop()


def test_without_its_client_a_request_is_cancelled_unless_it_is_kept():
    s = Service(DEMO, step_ms=20)
    try:
        body = json.dumps(text(max_tokens=300, ignore_eos=True)[1])
        with s.client() as other:
            def row(key):
                return next((j for j in other.jobs() if j.get("key") == key), None)
            with s.client() as c:
                for how in ("cancel", "keep"):
                    c.send({"op": "request", "url": TEXT, "body": body, "on_disconnect": how, "key": how})
                eventually(lambda: row("cancel") and row("keep"), what="both jobs")
            eventually(lambda: row("cancel")["state"] not in ("queued", "running"), what="the end of the one")
            eventually(lambda: row("keep")["state"] == "done", what="the end of the other")
            assert row("cancel")["completion_tokens"] < 300 == row("keep")["completion_tokens"]
    finally:
        s.stop()


@pytest.mark.parametrize("field, value", [("url", None), ("url", 7), ("url", ""), ("body", None), ("body", {"prompt": "x"}),
                                          ("key", "k" * 104), ("key", 1), ("priority", 1.5), ("priority", 1 << 31),
                                          ("durable", 1), ("on_disconnect", "stay"), ("stream", True)])
def test_a_wrong_request_is_refused_by_its_field(served, field, value):
    with served.client() as c, pytest.raises(JobError) as e:
        c.call(**{"op": "request", "url": TEXT, "body": "{}", field: value})
    assert (e.value.code, e.value.reply.get("field")) == ("E_BAD_REQUEST", field)
