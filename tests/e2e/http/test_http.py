"""HTTP as curl sees it: routes, formats, errors, clients that disconnect."""

import http.client
import json
import socket
import subprocess
import tempfile
import types
import urllib.error
import urllib.request
import uuid
from urllib.parse import urlsplit

import pytest

from jobclient import JobError
from service import BIN, DEMO, eventually, free_port, no_processes_left, spawn

PROMPT = "Once upon a time"


def ask(service, path, body=None, method=None, headers=None):
    """Send a request: (status, headers, JSON or text)."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(service.http + path, data, {"Content-Type": "application/json", **(headers or {})},
                                     method=method)
    try:
        reply = urllib.request.urlopen(request, timeout=90)
    except urllib.error.HTTPError as e:
        reply = e
    with reply:
        text = reply.read().decode()
        is_json = reply.headers.get("Content-Type", "").startswith("application/json")
        return reply.status, reply.headers, json.loads(text) if is_json else text


def complete(service, **keys):
    status, _, reply = ask(service, "/v1/completions", {"model": "demo", "prompt": PROMPT, "temperature": 0, **keys})
    assert status == 200, reply
    return reply


def chat(service, content, **keys):
    status, _, reply = ask(service, "/v1/chat/completions",
                           {"model": "demo", "messages": [{"role": "user", "content": content}], "temperature": 0, **keys})
    assert status == 200, reply
    return reply


def stream(service, path, body):
    """Return the events of a streamed reply, without [DONE]."""
    status, headers, text = ask(service, path, {"model": "demo", "stream": True, **body})
    assert status == 200
    assert headers["Content-Type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert all(line.startswith("data: ") for line in text.splitlines() if line)
    assert events[-1] == "[DONE]"
    return [json.loads(e) for e in events[:-1]]


def connection(service):
    u = urlsplit(service.http)
    return http.client.HTTPConnection(u.hostname, u.port, timeout=60)


# --- the service ---

@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_is_200_while_a_worker_serves(service, path):
    assert ask(service, path)[0] == 200


def test_models_lists_the_model(service):
    status, _, reply = ask(service, "/v1/models")
    assert (status, reply["object"]) == (200, "list")
    (model,) = reply["data"]
    assert (model["id"], model["object"]) == ("demo", "model")
    assert ask(service, "/v1/models/demo")[2]["id"] == "demo"


# --- completions ---

def test_a_completion_has_openais_shape(service, client):
    reply = complete(service, max_tokens=12)
    done = client.generate(PROMPT, temperature=0, max_tokens=12)
    assert reply["object"] == "text_completion" and reply["id"].startswith("cmpl-") and reply["model"] == "demo"
    (choice,) = reply["choices"]
    assert (choice["text"], choice["index"], choice["finish_reason"]) == (done.text, 0, done.finish_reason)
    usage = reply["usage"]
    assert usage["prompt_tokens"] == done.usage["prompt_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_completions_end_after_16_tokens_by_default(service):
    assert complete(service, ignore_eos=True)["usage"]["completion_tokens"] == 16


def test_several_prompts_and_outputs_are_numbered(service):
    reply = complete(service, prompt=[PROMPT, "A cat"], n=2, max_tokens=4, temperature=1, seed=1)
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2, 3]


def test_a_prompt_may_be_token_ids(service, client):
    ids = client.tokenize(PROMPT, add_special=True)
    assert complete(service, prompt=ids, max_tokens=6)["choices"] == complete(service, max_tokens=6)["choices"]


def test_a_stream_joins_to_the_whole(service):
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 30}
    events = stream(service, "/v1/completions", body)
    assert len({e["id"] for e in events}) == 1
    assert "".join(e["choices"][0]["text"] for e in events) == complete(service, max_tokens=30)["choices"][0]["text"]
    assert events[-1]["choices"][0]["finish_reason"] in ("length", "stop")


def test_a_stream_ends_with_usage_on_request(service):
    events = stream(service, "/v1/completions", {"prompt": PROMPT, "max_tokens": 5, "ignore_eos": True,
                                                 "stream_options": {"include_usage": True}})
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 5


def test_the_same_seed_gives_the_same_text(service):
    keys = dict(temperature=1.0, seed=3, max_tokens=30)
    assert complete(service, **keys)["choices"] == complete(service, **keys)["choices"]


def test_logprobs_have_openais_shape(service):
    choice = complete(service, max_tokens=5, logprobs=2, ignore_eos=True)["choices"][0]
    logprobs = choice["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"]) == 5
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert logprobs["text_offset"][0] == 0


def test_stop_strings_are_cut(service):
    text = complete(service, max_tokens=30)["choices"][0]["text"]
    reply = complete(service, max_tokens=30, stop=text[10:14])["choices"][0]
    assert reply["text"] == text[:text.index(text[10:14])]
    assert reply["finish_reason"] == "stop"


# --- chat ---

def test_a_chat_completion_has_openais_shape(service, client):
    reply = chat(service, "Hello!", max_tokens=20)
    done = client.generate(messages=[{"role": "user", "content": "Hello!"}], temperature=0, max_tokens=20)
    assert reply["object"] == "chat.completion" and reply["id"].startswith("chatcmpl-")
    (choice,) = reply["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == done.text
    assert reply["usage"]["prompt_tokens"] == done.usage["prompt_tokens"]


def test_a_chat_stream_begins_with_the_role(service):
    messages = [{"role": "user", "content": "Hello!"}]
    events = stream(service, "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 20})
    assert events[0]["object"] == "chat.completion.chunk"
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events)
    assert text == chat(service, "Hello!", max_tokens=20)["choices"][0]["message"]["content"]


def test_content_may_come_in_parts(service):
    parts = [{"type": "text", "text": "Hello!"}]
    assert chat(service, parts, max_tokens=5)["choices"] == chat(service, "Hello!", max_tokens=5)["choices"]


# --- tokens ---

def test_tokens_there_and_back(service):
    _, _, reply = ask(service, "/tokenize", {"prompt": "Once upon a time", "add_special_tokens": False})
    assert reply["count"] == len(reply["tokens"])
    assert ask(service, "/detokenize", {"tokens": reply["tokens"]})[2]["prompt"] == "Once upon a time"


# --- errors ---

def assert_error(reply, status, param=None, word=""):
    got, _, body = reply
    assert got == status, body
    assert set(body["error"]) >= {"message", "type", "param", "code"}
    assert word in body["error"]["message"]
    if param:
        assert body["error"]["param"] == param


@pytest.mark.parametrize("path, body, param", [
    ("/v1/completions", {"prompt": PROMPT, "temperature": "hot"}, "temperature"),
    ("/v1/completions", {"prompt": PROMPT, "temperature": -1}, "temperature"),
    ("/v1/completions", {"prompt": PROMPT, "max_tokens": -5}, "max_tokens"),
    ("/v1/completions", {"prompt": PROMPT, "n": 1000}, "n"),
    ("/v1/completions", {"prompt": PROMPT, "max_tokens": 10**6}, "max_tokens"),
    ("/v1/completions", {"prompt": ""}, "prompt"),
    ("/v1/completions", {"prompt": []}, "prompt"),
    ("/v1/completions", {}, "prompt"),
    ("/v1/completions", {"prompt": "word " * 4000}, "prompt"),
    ("/v1/completions", {"prompt": PROMPT, "best_of": 3, "n": 4}, "best_of"),
    ("/v1/completions", {"prompt": PROMPT, "response_format": {"type": "json_schema"}}, "response_format"),
    ("/v1/chat/completions", {}, "messages"),
    ("/v1/chat/completions", {"messages": []}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user"}]}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                              "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, "top_logprobs"),
], ids=lambda x: str(x)[-50:] if not isinstance(x, dict) else None)
def test_a_bad_request_names_the_parameter(service, path, body, param):
    assert_error(ask(service, path, body), 400, param)


def test_an_unknown_model_is_404(service):
    assert_error(ask(service, "/v1/completions", {"model": "gpt-9", "prompt": PROMPT}), 404, "model", "gpt-9")
    assert_error(ask(service, "/v1/models/gpt-9"), 404)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"prompt": "\xff"}', b"[" * 100000,
                                  b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "a"} x', b'{"a":' * 50000],
                         ids=lambda b: repr(b[:20]))
def test_a_body_that_is_not_a_json_object_is_400(service, body):
    assert_error(ask(service, "/v1/completions", body), 400)


def test_an_unknown_path_is_404(service):
    assert_error(ask(service, "/v1/everything"), 404)


@pytest.mark.parametrize("path, method", [("/v1/completions", "GET"), ("/health", "POST"), ("/v1/models", "DELETE"),
                                          ("/v1/chat/completions", "PUT")])
def test_a_wrong_method_is_405_and_names_the_right_ones(service, path, method):
    status, headers, _ = ask(service, path, b"{}" if method in ("POST", "PUT") else None, method)
    assert status == 405
    assert headers["Allow"]


def test_a_body_that_is_too_large_is_413(service):
    u = urlsplit(service.http)
    with socket.create_connection((u.hostname, u.port), 30) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{")
        assert s.recv(1000).split()[1] == b"413"


def test_17_megabytes_are_413(service):
    c = connection(service)
    try:
        c.request("POST", "/v1/completions", json.dumps({"prompt": "x" * (17 << 20)}), {"Content-Type": "application/json"})
        reply = c.getresponse()
        assert reply.status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass        # refused before all of it was sent
    finally:
        c.close()
    assert ask(service, "/health")[0] == 200


def test_unknown_fields_are_ignored_and_named(service):
    status, headers, _ = ask(service, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1, "colour": "red"})
    assert status == 200
    assert "colour" in headers["x-quern-ignored"]


@pytest.mark.parametrize("service", [("--strict",)], indirect=True)
def test_strict_refuses_unknown_fields(service):
    assert_error(ask(service, "/v1/completions", {"prompt": PROMPT, "colour": "red"}), 400, "colour")


@pytest.mark.parametrize("service", [("--max-seqs", "64", "--max-queued-jobs", "1")], indirect=True)
def test_overload_is_429(service, client):
    # The first request runs on all sequences, the second request waits, and the third is refused.
    client.submit(PROMPT, max_tokens=2000, n=64, ignore_eos=True).first_delta()
    for job in [client.submit(PROMPT, max_tokens=2000, n=64, ignore_eos=True) for _ in range(3)]:
        try:
            job.accepted()
        except JobError as e:
            assert e.code == "E_OVERLOADED"
    status, headers, body = ask(service, "/v1/completions", {"prompt": PROMPT})
    assert status == 429
    assert headers["Retry-After"]
    assert body["error"]["message"]


# --- clients that disconnect ---

@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "waiting for all"])
def test_closing_the_connection_cancels(service, streaming):
    c = connection(service)
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": 2000, "n": 32, "ignore_eos": True, "stream": streaming}
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    if streaming:
        assert c.getresponse().read(10)
    else:
        with service.client() as watcher:
            eventually(lambda: watcher.status()["running"], what="the job's beginning")
    c.close()
    status = service.idle()
    assert status["blocks"]["free"] + status["blocks"]["cached"] == status["blocks"]["total"]


# --- odd peers ---

@pytest.mark.parametrize("data", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 5000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
], ids=range(11))
def test_bytes_that_are_not_http_do_no_harm(service, data):
    u = urlsplit(service.http)
    with socket.create_connection((u.hostname, u.port), 30) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            s.settimeout(0.5)
            first = s.recv(100)
            assert not first or first.startswith(b"HTTP/1."), first
        except OSError:
            pass
    assert ask(service, "/health")[0] == 200
    assert complete(service, max_tokens=2)["choices"]


def test_three_megabytes_in_chunks_of_one_byte(service):
    u = urlsplit(service.http)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection((u.hostname, u.port), 60) as s:
        s.sendall(head + b"1\r\n \r\n" * (3 << 20) + b"0\r\n\r\n")
        assert s.recv(100).split()[1] == b"400"
    assert complete(service, max_tokens=2)["choices"]


def test_health_is_503_while_nothing_can_serve():
    """A controller without workers."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="quern-bus-") as d:
        address = f"127.0.0.1:{free_port()}"
        p = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", f"ipc://{d}/bus", "--jobs", "none", "--http", address], mark,
                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        alone = types.SimpleNamespace(http="http://" + address)

        def answers():
            try:
                return ask(alone, "/v1/models")[0] == 200
            except urllib.error.URLError:
                return False
        try:
            eventually(answers, what="an HTTP server")
            for path in ("/health", "/ready"):
                assert ask(alone, path)[0] == 503
        finally:
            p.terminate()
            assert p.wait(30) == 0
        no_processes_left(mark)


@pytest.mark.parametrize("path", ["/v1/models/", "/v1//models", "//v1/models//"])
def test_slashes_beyond_need_change_nothing(service, path):
    with urllib.request.urlopen(service.http + path, timeout=60) as reply:
        assert [m["id"] for m in json.load(reply)["data"]] == ["demo"]


def test_more_of_a_path_is_another_path(service):
    for path in ("/v1/modelsx", "/v1/models/x/", "/livez/x", "/v1/completions/x"):
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(service.http + path, timeout=60)
        assert e.value.code == 404, path


def test_a_chat_without_v1_and_a_byte_order_mark(service):
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "seed": 1}
    replies = []
    for path, mark in (("/v1/chat/completions", b""), ("/chat/completions", b"\xef\xbb\xbf")):
        r = urllib.request.Request(service.http + path, mark + json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(r, timeout=60) as reply:
            replies.append(json.load(reply)["choices"])
    assert replies[0] == replies[1]
