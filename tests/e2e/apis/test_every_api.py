"""What holds for every API alike: errors in its own shape, keys, limits, the access log, attacks, clients that go or
do not read."""

import json
import socket
import sys
from urllib.parse import urlsplit

import pytest

from service import DEMO, ROOT, eventually

sys.path.insert(0, str(ROOT / "tests" / "e2e" / "http"))
from test_http import ask  # noqa: E402

MESSAGES = [{"role": "user", "content": "Once upon a time"}]
ALICE, BOB = "sk-alice-0123456789abcdef", "sk-bob-0123456789abcdef"


def anthropic_error(reply):
    assert set(reply) == {"type", "error", "request_id"} and reply["type"] == "error"
    assert set(reply["error"]) == {"type", "message"}
    return reply["error"]["message"]


def ollama_error(reply):
    assert set(reply) == {"error"}
    return reply["error"]


def llamacpp_error(reply):
    assert set(reply) == {"error"} and set(reply["error"]) == {"code", "message", "type"}
    assert isinstance(reply["error"]["code"], int)
    return reply["error"]["message"]


def openai_error(reply):
    assert set(reply) == {"error"} and set(reply["error"]) == {"message", "type", "param", "code"}
    return reply["error"]["message"]


# A path that generates: a request that is taken, one that streams for long, the message of an error, a field for the
# number of tokens, a field that has text or messages.
APIS = {
    "/v1/chat/completions": ({"messages": MESSAGES, "max_tokens": 2}, {"max_tokens": 1900, "stream": True}, openai_error,
                             "max_tokens", "messages"),
    "/v1/messages": ({"messages": MESSAGES, "max_tokens": 2}, {"max_tokens": 1900, "stream": True}, anthropic_error,
                     "max_tokens", "messages"),
    "/api/chat": ({"model": "demo", "messages": MESSAGES, "stream": False, "options": {"num_predict": 2}},
                  {"stream": True, "options": {"num_predict": 1900}}, ollama_error, "options", "messages"),
    "/api/generate": ({"model": "demo", "prompt": "Once", "raw": True, "stream": False, "options": {"num_predict": 2}},
                      {"stream": True, "options": {"num_predict": 1900}}, ollama_error, "options", "prompt"),
    "/completion": ({"prompt": "Once", "n_predict": 2}, {"n_predict": 1900, "stream": True}, llamacpp_error, "n_predict",
                    "prompt"),
}
# Further paths that take a body.
OTHERS = {
    "/v1/messages/count_tokens": ({"messages": MESSAGES}, anthropic_error),
    "/api/show": ({"model": "demo"}, ollama_error),
    "/api/embed": ({"model": "demo", "input": "Once"}, ollama_error),
    "/api/embeddings": ({"model": "demo", "prompt": "Once"}, ollama_error),
    "/apply-template": ({"messages": MESSAGES}, llamacpp_error),
    "/embedding": ({"content": "Once"}, llamacpp_error),
}
BODIES = {**{path: (api[0], api[2]) for path, api in APIS.items()}, **OTHERS}
every = pytest.mark.parametrize("path", APIS)
every_body = pytest.mark.parametrize("path", BODIES)


def serves(service, path):
    """The API answers as ever."""
    status, _, reply = ask(service, path, BODIES[path][0])
    assert status == 200, reply


def refused(service, path, body, status, **kwargs):
    """The message of the error, which has the API's shape."""
    got, _, reply = ask(service, path, body, **kwargs)
    assert got == status, reply
    message = BODIES[path][1](reply)
    assert message
    return message


@every_body
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"prompt": "\xff"}', b"[" * 100000,
                                  b'{"a":' * 50000, b'{"prompt": "a", "temperature": NaN}'], ids=lambda b: repr(b[:20]))
def test_a_body_that_is_no_object_is_400(service, path, body):
    refused(service, path, body, 400)
    serves(service, path)


@every_body
def test_values_of_wrong_types_are_400_and_name_the_field(service, path):
    for name in BODIES[path][0]:
        for value in (5.5, [[[]]], {"a": {"b": []}}, True, "\0"):
            if name == "stream" and value is True:
                continue    # it is one
            status, _, reply = ask(service, path, {**BODIES[path][0], name: value})
            assert status in (200, 400, 404), reply
            if status != 200:
                assert BODIES[path][1](reply)
    serves(service, path)


@every
def test_deep_and_wide_values_are_400(service, path):
    good, _, _, _, text = APIS[path]
    deep = json.loads("[" * 100 + "]" * 100)
    refused(service, path, {**good, text: deep}, 400)
    refused(service, path, b'{"%s": [' % text.encode() + b"[]," * 1_500_000 + b"[]]}", 400)
    refused(service, path, {**good, text: [{}] * 70_000}, 400)
    serves(service, path)


@every
@pytest.mark.parametrize("count", [2**31, 2**63 - 1, 10**18, -5, 1e300])
def test_huge_counts_are_400(service, path, count):
    good, _, _, field, _ = APIS[path]
    assert refused(service, path, {**good, field: {"num_predict": count} if field == "options" else count}, 400)


@every_body
def test_another_model_is_404(service, path):
    assert "no-such-model" in refused(service, path, {**BODIES[path][0], "model": "no-such-model"}, 404)


@every
def test_a_prompt_that_does_not_fit_is_400(service, path):
    good, _, _, _, text = APIS[path]
    long = "a b " * 3000
    refused(service, path, {**good, text: [{"role": "user", "content": long}] if text == "messages" else long}, 400)


@every_body
def test_other_methods_are_405_and_too_large_is_413(service, path):
    refused(service, path, None, 405, method="GET")
    u = urlsplit(service.http)
    with socket.create_connection((u.hostname, u.port), 30) as s:
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{"
                  % path.encode())
        head, _, body = s.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.split()[1] == b"413" and BODIES[path][1](json.loads(body))


@every_body
def test_pages_of_other_origins_may_not_write(service, path):
    """Routes that take any Content-Type, too: a form needs no preflight."""
    for kind in ("text/plain", "application/json"):
        refused(service, path, BODIES[path][0], 403, headers={"Origin": "https://evil.example", "Content-Type": kind})


@pytest.mark.parametrize("path", ["/v1/messages/batches", "/api/everything", "/completion/1", "/infill/"])
def test_unknown_paths_are_404(service, path):
    assert ask(service, path, {})[0] == 404


@pytest.mark.parametrize("path", ["/api/pull", "/api/push", "/api/create", "/api/copy"])
def test_models_are_not_changed(service, path):
    status, _, reply = ask(service, path, {"model": "x"})
    assert status == 501 and "is not served" in ollama_error(reply)


@every
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not read"])
def test_a_client_that_goes_ends_its_job(service, path, reads):
    good, long, _, _, _ = APIS[path]
    body = json.dumps({**good, **long, "ignore_eos": True}).encode()
    u = urlsplit(service.http)
    with socket.create_connection((u.hostname, u.port), 30) as s:
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                  % (path.encode(), len(body)) + body)
        if reads:
            assert s.recv(100).split()[1] == b"200"
        serves(service, path)
    status = service.idle()
    assert status["blocks"]["free"] + status["blocks"]["cached"] == status["blocks"]["total"]


# --- keys and the access log ---

@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    from service import Service
    d = tmp_path_factory.mktemp("keys")
    (d / "keys").write_text(f"{ALICE} name=alice\n{BOB} name=bob requests-per-minute=1\n")
    (d / "keys").chmod(0o600)
    s = Service(DEMO, "--api-key-file", d / "keys", "--access-log", d / "access")
    s.access = d / "access"
    yield s
    s.stop()
    Service.used.remove(s)


@every_body
def test_without_a_key_nothing_is_disclosed(keys, path):
    for headers in ({}, {"Authorization": "Bearer sk-wrong-0123456789abcdef"}, {"x-api-key": "sk-wrong-0123456789abcdef"},
                    {"x-api-key": "k" * 5000}, {"x-api-key": ""}):
        refused(keys, path, {"model": "no-such-model"}, 401, headers=headers)


@pytest.mark.parametrize("path", ["/api/tags", "/api/ps", "/props", "/slots", "/api/pull"])
def test_what_tells_of_the_service_needs_a_key(keys, path):
    assert ask(keys, path, method="POST" if path == "/api/pull" else None)[0] == 401


@every
def test_a_key_s_requests_are_in_the_access_log(keys, path):
    for headers in ({"Authorization": f"Bearer {ALICE}"}, {"x-api-key": ALICE}):
        assert ask(keys, path, APIS[path][0], headers=headers)[0] == 200

    def logged():
        lines = [json.loads(line) for line in keys.access.read_text().splitlines()]
        found = [x for x in lines if x["path"] == path and x["status"] == 200]
        return len(found) == 2 and found
    for line in eventually(logged, what="two lines of the access log"):
        assert line["key"] == "alice" and line["completion_tokens"] == 2 and line["n_jobs"] == 1 and line["prompt_tokens"]
    assert ALICE not in keys.access.read_text()


def test_a_key_s_limits_are_those_of_all_apis_together(keys):
    by = {"Authorization": f"Bearer {BOB}"}
    assert ask(keys, "/api/chat", APIS["/api/chat"][0], headers=by)[0] == 200
    for path in BODIES:
        if path != "/api/show":    # it is not counted: nothing is computed
            status, headers, reply = ask(keys, path, BODIES[path][0], headers=by)
            assert status == 429 and headers["Retry-After"] and BODIES[path][1](reply), path
