"""Rules that hold for every API: errors in its own format, keys, limits, the access log, attacks, and clients that
disconnect or do not read."""

import json
import socket
import sys
from urllib.parse import urlsplit

import pytest

from service import DEMO, ROOT, eventually, whole_lines

sys.path.insert(0, str(ROOT / "tests" / "e2e" / "http"))
from test_http import ask  # noqa: E402

MESSAGES = [{"role": "user", "content": "Once upon a time"}]
ALICE, BOB, CAROL = "sk-alice-0123456789abcdef", "sk-bob-0123456789abcdef", "sk-carol-0123456789abcdef"
DAVE = "sk-dave-0123456789abcdef"


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


# Per path that generates: an accepted request, a request that streams for long, the message of an error, the field for
# the number of tokens, a field that holds text or messages.
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
    "/v1/completions": ({"prompt": "Once", "max_tokens": 2}, {"max_tokens": 1900, "stream": True}, openai_error, "max_tokens",
                        "prompt"),
    "/v1/responses": ({"input": "Once", "max_output_tokens": 2}, {"max_output_tokens": 1900, "stream": True}, openai_error,
                      "max_output_tokens", "input"),
}
# Other paths that take a body.
OTHERS = {
    "/v1/messages/count_tokens": ({"messages": MESSAGES}, anthropic_error),
    "/api/show": ({"model": "demo"}, ollama_error),
    "/api/embed": ({"model": "demo", "input": "Once"}, ollama_error),
    "/api/embeddings": ({"model": "demo", "prompt": "Once"}, ollama_error),
    "/apply-template": ({"messages": MESSAGES}, llamacpp_error),
    "/embedding": ({"content": "Once"}, llamacpp_error),
    "/embeddings": ({"input": "Once"}, llamacpp_error),
    "/completions": ({"prompt": "Once", "n_predict": 1}, llamacpp_error),
    "/v1/chat/completions/input_tokens": ({"messages": MESSAGES}, openai_error),
    "/v1/embeddings": ({"input": "Once"}, openai_error),
    "/chat/completions": ({"messages": MESSAGES, "max_tokens": 2}, openai_error),
    "/responses": ({"input": "Once", "max_output_tokens": 2}, openai_error),
    "/tokenize": ({"prompt": "Once"}, openai_error),
    "/detokenize": ({"tokens": [5]}, openai_error),
}
# Paths where valid requests need another model, keys or a journal, and the files that test them.
ELSEWHERE = {"/infill", "/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/v1/reranking", "/score", "/v1/score",
             "/v1/batches", "/v1/files", "/v1/conversations", "/v1/conversations/{conversation_id}",
             "/v1/conversations/{conversation_id}/items"}
# These paths parse every body as JSON, whatever its Content-Type, because `curl -d` sends another.
ANY_TYPE = ("/api/", "/completion", "/embedding", "/apply-template")
BODIES = {**{path: (api[0], api[2]) for path, api in APIS.items()}, **OTHERS}
every = pytest.mark.parametrize("path", APIS)
every_body = pytest.mark.parametrize("path", BODIES)


def serves(service, path):
    """The API still answers."""
    status, _, reply = ask(service, path, BODIES[path][0])
    assert status == 200, reply


def refused(service, path, body, status, **kwargs):
    """Return the message of the error, which must have the API's format."""
    got, _, reply = ask(service, path, body, **kwargs)
    assert got == status, reply
    message = BODIES[path][1](reply)
    assert message
    return message


def test_every_path_that_takes_a_body_is_here(service):
    """A new path must be added to the tables above."""
    paths = ask(service, "/openapi.json")[2]["paths"]
    assert {path for path, operations in paths.items() if "requestBody" in operations.get("post", {})} == set(BODIES) | ELSEWHERE


@every_body
def test_content_types_and_codings(service, path):
    good = BODIES[path][0]
    status, _, reply = ask(service, path, good, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 200 if path.startswith(ANY_TYPE) else status == 415 and BODIES[path][1](reply)
    refused(service, path, good, 415, headers={"Content-Encoding": "gzip"})


@every_body
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"prompt": "\xff"}', b"[" * 100000,
                                  b'{"a":' * 50000, b'{"prompt": "a", "temperature": NaN}'], ids=lambda b: repr(b[:20]))
def test_a_body_that_is_no_object_is_400(service, path, body):
    refused(service, path, body, 400)
    serves(service, path)


# Every field of any server or release that requests structured output, each with a constraint that allows "yes" or
# "no", in JSON or not.
GBNF, LARK = 'root ::= "yes" | "no"', 'start: "yes" | "no"'
FORMS = [("guided_choice", ["yes", "no"]), ("guided_regex", "yes|no"), ("regex", "yes|no"), ("guided_grammar", LARK),
         ("ebnf", GBNF), ("ebnf", "%llguidance {}\n" + LARK), ("grammar", GBNF), ("structured_outputs", {"choice": ["yes", "no"]}),
         ("guided_json", {"enum": ["yes", "no"]}), ("json_schema", {"enum": ["yes", "no"]}), ("schema", {"enum": ["yes", "no"]}),
         ("schema", '{"enum": ["yes", "no"]}'), ("format", {"enum": ["yes", "no"]}),
         ("response_format", {"type": "json_object", "schema": {"enum": ["yes", "no"]}}),
         ("response_format", {"type": "regex", "pattern": "yes|no"})]
TEXTS = {"/v1/chat/completions": lambda r: r["choices"][0]["message"]["content"], "/v1/messages": lambda r: r["content"][0]["text"],
         "/api/chat": lambda r: r["message"]["content"], "/api/generate": lambda r: r["response"], "/completion": lambda r: r["content"],
         "/v1/completions": lambda r: r["choices"][0]["text"], "/v1/responses": lambda r: r["output"][-1]["content"][0]["text"]}
OWN = {"/v1/messages": "output_config.format", "/v1/responses": "text.format"}   # replaces response_format


@every
def test_no_field_that_asks_for_a_form_is_ignored(service, path):
    tokens = APIS[path][3]
    bound = {"options": {"num_predict": 40}} if tokens == "options" else {tokens: 40}
    for name, value in FORMS:
        if name == "response_format" and path in OWN:
            assert OWN[path] in refused(service, path, {**APIS[path][0], name: value}, 400)
            continue
        status, headers, reply = ask(service, path, {**APIS[path][0], **bound, name: value})
        assert status == 200, (name, reply)
        assert TEXTS[path](reply).strip('"') in ("yes", "no"), (name, reply)
        assert name not in headers.get("x-quern-ignored", ""), (name, headers)
    for name, value in (("regex", "("), ("ebnf", "root = 1"), ("schema", {"type": "int"}), ("format", {"type": "int"})):
        assert name in refused(service, path, {**APIS[path][0], name: value}, 400)
    both = {"guided_grammar": LARK, "structured_outputs": {"grammar": LARK}}
    assert ask(service, path, {**APIS[path][0], **bound, **both})[0] == 200
    assert "only one" in refused(service, path, {**APIS[path][0], "regex": "a", "guided_regex": "b"}, 400)


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
    """Also on routes that accept any Content-Type: a form needs no preflight."""
    for kind in ("text/plain", "application/json"):
        refused(service, path, BODIES[path][0], 403, headers={"Origin": "https://evil.example", "Content-Type": kind})


@pytest.mark.parametrize("path", ["/v1/messages/batches", "/api/everything", "/completion/1", "/infill/1"])
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
    (d / "keys").write_text(f"{ALICE} name=alice\n{BOB} name=bob requests-per-minute=1\n"
                            f"{CAROL} name=carol tokens-per-minute=2\n{DAVE} name=dave\n")
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
        lines = whole_lines(keys.access)
        found = [x for x in lines if x["path"] == path and x["status"] == 200]
        return len(found) == 2 and found
    for line in eventually(logged, what="two lines of the access log"):
        assert line["key"] == "alice" and line["completion_tokens"] == 2 and line["n_jobs"] == 1 and line["prompt_tokens"]
    assert ALICE not in keys.access.read_text()


@every
def test_errors_and_streams_are_lines_of_the_access_log_without_contents(keys, path):
    good, _, _, field, text = APIS[path]
    word = f"xylophone-{path.strip('/').replace('/', '-')}"
    asked = {**good, text: [{"role": "user", "content": word}] if text == "messages" else word}
    wrong = {"num_predict": -5} if field == "options" else -5
    by, mine = {"Authorization": f"Bearer {ALICE}"}, {"X-Request-Id": f"contents{path.replace('/', '-')}"}
    assert ask(keys, path, {**asked, field: wrong}, headers=by | mine)[0] == 400
    assert ask(keys, path, {**asked, "stream": True}, headers=by | mine)[0] == 200
    assert ask(keys, path, asked, headers=mine)[0] == 401

    def logged():
        lines = whole_lines(keys.access)
        found = {x["status"]: x for x in lines if x.get("id") == mine["X-Request-Id"]}
        return len(found) == 3 and found
    found = eventually(logged, what="the lines of the access log")
    assert found[400]["key"] == "alice" and found[400]["error"] and found[401]["error"] == "missing_api_key"
    assert "key" not in found[401] and found[200]["finish"] in ("stop", "length")
    assert word not in keys.access.read_text() and word not in keys.log()


@every
def test_keys_share_no_prefixes(keys, path):
    good, _, _, _, text = APIS[path]
    long = f"{path}: once upon a time there was a little girl who liked to play in the park with her red ball."
    asked = {**good, text: [{"role": "user", "content": long}] if text == "messages" else long}

    def cached(key, id):
        headers = {"Authorization": f"Bearer {key}", "X-Request-Id": id}
        assert ask(keys, path, asked, headers=headers)[0] == 200

        def logged():
            lines = whole_lines(keys.access)
            return [x["cached_tokens"] for x in lines if (x.get("id"), x["path"]) == (id, path)]
        return eventually(logged, what="a line of the access log")[0]
    assert cached(ALICE, "first") == 0 and cached(ALICE, "again") > 0
    assert cached(DAVE, "stranger") == 0


def test_tokens_of_all_apis_count_against_a_key(keys):
    """The first request uses more than one minute's tokens."""
    by = {"Authorization": f"Bearer {CAROL}"}
    told = set()
    for _ in range(20):
        for path in APIS:
            status, _, reply = ask(keys, path, APIS[path][0], headers=by)
            if status == 429:
                assert "tokens per minute" in APIS[path][2](reply)
                told.add(path)
        if told == set(APIS):
            return
    raise AssertionError(f"refused are only {told}")


def test_a_key_s_limits_are_those_of_all_apis_together(keys):
    by = {"Authorization": f"Bearer {BOB}"}
    assert ask(keys, "/api/chat", APIS["/api/chat"][0], headers=by)[0] == 200
    for path in BODIES:
        if path != "/api/show":    # it is not counted, since nothing is computed
            status, headers, reply = ask(keys, path, BODIES[path][0], headers=by)
            assert status == 429 and headers["Retry-After"] and BODIES[path][1](reply), path
