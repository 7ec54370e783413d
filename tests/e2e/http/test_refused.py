"""Invalid, unknown and unsupported fields are refused by name; other requests are not affected."""

import socket
import struct

import msgpack
import pytest

from jobclient import JobError

PROMPT = "Once upon a time"


@pytest.fixture(autouse=True)
def _still_well(service):
    """After each test the service answers, and completes a job."""
    yield
    with service.client() as c:
        assert c.ping()["ready"] is True
        assert len(c.generate(PROMPT, max_tokens=2, ignore_eos=True).tokens) == 2


def refusal(client, request):
    """Return the error of a request as (code, message)."""
    with pytest.raises(JobError) as e:
        client.recv(client.send(request))
    return e.value.code, e.value.message


def submit(**keys):
    return {"op": "submit", "prompt": PROMPT, **keys}


def with_params(**params):
    return submit(params={"max_tokens": 2, **params})


# --- structured output ---

@pytest.mark.parametrize("params, place", [
    ({"response_format": {"type": "xml"}}, "xml"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "schema"),
    ({"guided_regex": "(a"}, "byte 2"),
    ({"guided_json": {"properties": {"a": {"$ref": "#/none"}}}}, "#/properties/a"),
], ids=str)
def test_a_form_is_refused_with_its_place(client, params, place):
    code, message = refusal(client, with_params(**params))
    assert code == "E_BAD_REQUEST"
    assert next(iter(params)) in message and place in message


@pytest.mark.parametrize("params", [
    {"use_beam_search": False}, {"beam_width": 1}, {"best_of": 1}, {"length_penalty": 1.0}, {"early_stopping": False},
    {"response_format": {"type": "text"}},
], ids=str)
def test_values_without_effect_are_accepted(client, params):
    assert client.recv(client.send(with_params(**params)))["op"] == "accepted"


# --- unknown ---

@pytest.mark.parametrize("request_, name", [
    (submit(colour="red"), "colour"), (with_params(colour="red"), "colour"), ({"op": "ping", "colour": 1}, "colour"),
    ({"op": "tokenize", "text": "a", "colour": 1}, "colour"), ({"op": "fly"}, "fly"), (submit(max_tokens=5), "max_tokens"),
], ids=["submit", "params", "ping", "tokenize", "op", "a parameter outside params"])
def test_unknown_fields_are_named(client, request_, name):
    code, message = refusal(client, request_)
    assert code == "E_BAD_REQUEST"
    assert name in message


# --- wrong types and values ---

@pytest.mark.parametrize("keys", [
    {"stream": "yes"}, {"stream": 1}, {"user": 5}, {"key": ["a"]}, {"cache_salt": {}},
    {"deadline_ms": -5}, {"deadline_ms": 0}, {"deadline_ms": "soon"}, {"deadline_ms": 2**63}, {"on_disconnect": "panic"},
    {"params": []}, {"params": "hot"}, {"tokens": "abc", "prompt": None}, {"durable": 1}, {"priority": "high"},
], ids=str)
def test_wrong_values_of_a_submit(client, keys):
    code, message = refusal(client, submit(**keys))
    assert code == "E_BAD_REQUEST"
    assert next(iter(keys)) in message


@pytest.mark.parametrize("params", [
    {"temperature": -1}, {"temperature": "hot"}, {"temperature": float("nan")}, {"temperature": float("inf")},
    {"temperature": True}, {"temperature": [1]}, {"temperature": 1e300},
    {"top_p": 0}, {"top_p": 1.5}, {"top_p": -0.1}, {"top_p": float("nan")},
    {"top_k": -2}, {"top_k": 1.5}, {"top_k": 2**40}, {"min_p": 2}, {"min_p": float("-inf")},
    {"n": 0}, {"n": -1}, {"n": 65}, {"n": 2**31}, {"n": 2**63}, {"n": 1.5}, {"n": "2"},
    {"max_tokens": 0}, {"max_tokens": -1}, {"max_tokens": 2**31}, {"max_tokens": 2**64 - 1}, {"max_tokens": -2**63},
    {"max_tokens": 1.5}, {"min_tokens": -1}, {"min_tokens": 3}, {"min_tokens": 2**33},
    {"presence_penalty": 3}, {"frequency_penalty": -2.5}, {"repetition_penalty": 0}, {"repetition_penalty": -1},
    {"repetition_penalty": float("nan")},
    {"logprobs": 65}, {"logprobs": -1}, {"logprobs": True}, {"logprobs": 2**31}, {"prompt_logprobs": 65},
    {"seed": "x"}, {"seed": 1.5}, {"seed": 2**64 - 1},
    {"stop": 5}, {"stop": [5]}, {"stop": [""]}, {"stop": ["x"] * 17}, {"stop": ["x" * 257]}, {"stop": ["a\0b"]},
    {"stop_token_ids": [-1]}, {"stop_token_ids": [10**6]}, {"stop_token_ids": 5}, {"stop_token_ids": ["a"]},
    {"ignore_eos": 1}, {"include_stop_str_in_output": "x"}, {"skip_special_tokens": []},
    {"logit_bias": {"99999999": 1}}, {"logit_bias": {"x": 1}}, {"logit_bias": {"5": "much"}}, {"logit_bias": [1]},
    {"logit_bias": {"-1": 1}}, {"logit_bias": {"5": float("nan")}},
    {"allowed_token_ids": []}, {"allowed_token_ids": [-5]}, {"allowed_token_ids": [2**40]},
    {"bad_words": [5]}, {"bad_words": [""]}, {"bad_words": "bad"},
    {"response_format": "json"}, {"best_of": 1000}, {"best_of": 2, "n": 3}, {"best_of": 0}, {"best_of": 2.5},
    {"beam_width": 4}, {"length_penalty": 2.0}, {"early_stopping": True}, {"use_beam_search": 1},
    {"beam_width": 65, "use_beam_search": True}, {"beam_width": 0, "use_beam_search": True},
    {"temperature": 0.5, "use_beam_search": True, "n": 2}, {"top_p": 0.5, "use_beam_search": True, "n": 2},
    {"logit_bias": {"5": 1}, "use_beam_search": True, "n": 2}, {"early_stopping": "x", "use_beam_search": True},
    {"length_penalty": float("nan"), "use_beam_search": True}, {"bad_words": ["a"], "use_beam_search": True, "n": 2},
    {"stop_token_ids": list(range(70)), "use_beam_search": True, "n": 2},
], ids=lambda p: str(p)[:60])
def test_wrong_values_of_parameters(client, params):
    code, message = refusal(client, with_params(**params))
    assert code in ("E_BAD_REQUEST", "E_TOO_LONG")
    assert next(iter(params)) in message


@pytest.mark.parametrize("request_, code, name", [
    ({"op": "submit"}, "E_BAD_REQUEST", "prompt"),
    (submit(tokens=[1]), "E_BAD_REQUEST", "exactly one"),
    ({"op": "submit", "prompt": 5}, "E_BAD_REQUEST", "prompt"),
    ({"op": "submit", "prompt": ["a"]}, "E_BAD_REQUEST", "prompt"),
    ({"op": "submit", "prompt": ""}, "E_BAD_REQUEST", "prompt"),
    ({"op": "submit", "tokens": []}, "E_BAD_REQUEST", "prompt"),
    ({"op": "submit", "tokens": [-1]}, "E_BAD_REQUEST", "tokens[0]"),
    ({"op": "submit", "tokens": [1, 2**32]}, "E_BAD_REQUEST", "tokens[1]"),
    ({"op": "submit", "tokens": [1, 1664]}, "E_BAD_REQUEST", "tokens[1]"),
    ({"op": "submit", "tokens": ["a"]}, "E_BAD_REQUEST", "tokens[0]"),
    ({"op": "submit", "tokens": [5] * 100000}, "E_TOO_LONG", "tokens"),
    ({"op": "submit", "messages": []}, "E_BAD_REQUEST", "messages"),
    ({"op": "submit", "messages": "hello"}, "E_BAD_REQUEST", "messages"),
    ({"op": "submit", "messages": ["hello"]}, "E_BAD_REQUEST", "messages[0]"),
    ({"op": "submit", "messages": [{"role": "user"}]}, "E_BAD_REQUEST", "messages[0].content"),
    ({"op": "submit", "messages": [{"content": "a"}]}, "E_BAD_REQUEST", "messages[0].role"),
    ({"op": "submit", "messages": [{"role": 1, "content": "a"}]}, "E_BAD_REQUEST", "messages[0].role"),
    ({"op": "submit", "messages": [{"role": "user", "content": "a", "tool_calls": [1]}]}, "E_BAD_REQUEST", "tool_calls"),
    ({"op": "submit", "prompt": "word " * 5000}, "E_TOO_LONG", "prompt"),
    ({"op": "submit", "prompt": "a", "params": {"max_tokens": 5000}}, "E_TOO_LONG", "max_tokens"),
    ({"op": "attach", "job": 5}, "E_BAD_REQUEST", "job"),
    ({"op": "cancel"}, "E_BAD_REQUEST", "job"),
    ({"op": "result", "job": None}, "E_BAD_REQUEST", "job"),
    ({"op": "attach", "job": "0" * 32, "from": -1}, "E_BAD_REQUEST", "from"),
    ({"op": "attach", "job": "0" * 32, "from": "start"}, "E_BAD_REQUEST", "from"),
    ({"op": "attach", "job": "0" * 32, "from": [0] * 65}, "E_BAD_REQUEST", "from"),
    ({"op": "tokenize"}, "E_BAD_REQUEST", "text"),
    ({"op": "tokenize", "text": 5}, "E_BAD_REQUEST", "text"),
    ({"op": "tokenize", "text": "a", "add_special": 1}, "E_BAD_REQUEST", "add_special"),
    ({"op": "detokenize"}, "E_BAD_REQUEST", "tokens"),
    ({"op": "detokenize", "tokens": [99999]}, "E_BAD_REQUEST", "tokens[0]"),
    ({"op": "detokenize", "tokens": 5}, "E_BAD_REQUEST", "tokens"),
    ({"op": 5}, "E_BAD_REQUEST", "op"),
    ({}, "E_BAD_REQUEST", "op"),
], ids=lambda x: str(x)[:70] if isinstance(x, dict) else "")
def test_wrong_requests(client, request_, code, name):
    got, message = refusal(client, request_)
    assert got == code
    assert name in message


def test_a_prompt_of_20_megabytes(client):
    code, message = refusal(client, submit(prompt="x" * (20 << 20)))
    assert code == "E_TOO_LONG"
    assert "bytes" in message


def test_a_prompt_of_15_megabytes_is_too_long_for_the_context(client):
    code, message = refusal(client, submit(prompt="x" * (15 << 20)))
    assert code == "E_TOO_LONG"
    assert "prompt" in message


def test_a_long_text_of_one_letter_is_tokenized_or_refused_quickly(client):
    code, _ = refusal(client, submit(prompt="a" * 100000))
    assert code == "E_TOO_LONG"


# --- bytes that are no request ---

ID = b"\xa2id\x05"
# A map of three keys, one of which is missing.
PING = b"\x83\xa2op\xa4ping" + ID
SUBMIT = b"\x83\xa2op\xa6submit" + ID
GARBAGE = {
    "empty": b"",
    "not msgpack": b"hello, is there anybody?",
    "an unused byte": b"\xc1",
    "an integer": b"\x05",
    "nil": b"\xc0",
    "an array": b"\x93\x01\x02\x03",
    "array of 4 billion": b"\xdd\xff\xff\xff\xff",
    "map of 4 billion": b"\xdf\xff\xff\xff\xff",
    "array of 4 billion within": b"\x82" + ID + b"\xa6tokens\xdd\xff\xff\xff\xff",
    "string of 4 GB": b"\xdb\xff\xff\xff\xff" + b"x" * 100,
    "binary of 4 GB": b"\xc6\xff\xff\xff\xff" + b"x" * 100,
    "ext of 4 GB": b"\xc9\xff\xff\xff\xff\x05" + b"x" * 100,
    "truncated map": b"\x85\xa2op\xa4ping",
    "truncated string": b"\x81\xa2op\xafping",
    "truncated number": b"\x82\xa2op\xa4ping\xa2id\xcf\x00",
    "no value": b"\x81\xa2op",
    "something behind it": msgpack.packb({"op": "ping", "id": 5}) + b"\x00",
    "two requests": msgpack.packb({"op": "ping", "id": 5}) * 2,
    "deep arrays": b"\x91" * 100000 + b"\xc0",
    "deep maps": b"\x81\xa1a" * 50000 + b"\xc0",
    "deep value": PING + b"\xa1x" + b"\x91" * 5000 + b"\xc0",
    "ext type": PING + b"\xa1x" + msgpack.packb(msgpack.ExtType(5, b"abc")),
    "timestamp": PING + b"\xa1x" + msgpack.packb(msgpack.Timestamp(5)),
    "binary key": b"\x82" + ID + b"\xc4\x02op\xa4ping",
    "integer key": PING + b"\x05\x05",
    "the same key twice": PING + ID,
    "broken UTF-8 in a value": SUBMIT + b"\xa6prompt\xa3a\xff\xfe",
    "broken UTF-8 in a key": PING + b"\xa2\xff\xfe\x05",
    "surrogates in UTF-8": SUBMIT + b"\xa6prompt\xa3\xed\xa0\x80",
    "overlong UTF-8": SUBMIT + b"\xa6prompt\xa2\xc0\x80",
    "a million keys": msgpack.packb({"op": "ping", "id": 5} | {str(i): i for i in range(1000000)}),
    "a million elements": msgpack.packb({"op": "ping", "id": 5, "x": [[]] * 1000000}),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_bytes_that_are_not_a_request_get_an_error(client, name):
    client.send_frames(GARBAGE[name])
    reply = msgpack.unpackb(client.recv_frames()[-1])
    assert reply["op"] == "error"
    assert reply["code"] in ("E_BAD_REQUEST", "E_TOO_LONG")
    assert reply["message"]


def test_two_frames_are_refused(client):
    ping = msgpack.packb({"op": "ping", "id": 1})
    client.send_frames(ping, ping)
    reply = msgpack.unpackb(client.recv_frames()[-1])
    assert (reply["op"], reply["code"]) == ("error", "E_BAD_REQUEST")
    assert "frame" in reply["message"]


@pytest.mark.parametrize("frames", [(b"", b"", b"x"), (b"",), (b"x",) * 50, (b"", b"\x81", b"\x82", b"\x83")], ids=len)
def test_frames_of_any_kind_do_no_harm(client, frames):
    client.send_frames(*frames)
    reply = msgpack.unpackb(client.recv_frames()[-1])
    assert reply["op"] == "error"


def raw(endpoint):
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    return socket.create_connection((host, int(port)), 10)


@pytest.mark.parametrize("data", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 10000, b"\xff" + b"\0" * 8 + b"\x7f", b"\xff" * 64, b"",
    b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL" + b"\0" * 48 + b"\x06" + struct.pack(">Q", 2**63) + b"x" * 100,
    b"\xff\0\0\0\0\0\0\0\1\x7f\3\0CURVE" + b"\0" * 47 + b"\x04\xff" + b"x" * 255,
], ids=range(7))
def test_peers_that_do_not_speak_zeromq_do_no_harm(service, data):
    with raw(service.jobs) as s:
        s.sendall(data)
        s.settimeout(0.2)
        try:
            s.recv(1000)
        except OSError:
            pass


def test_many_idle_connections_do_no_harm(service, client):
    idle = [raw(service.jobs) for _ in range(200)]
    try:
        assert client.generate(PROMPT, max_tokens=3, ignore_eos=True).finish_reason == "length"
    finally:
        for s in idle:
            s.close()
