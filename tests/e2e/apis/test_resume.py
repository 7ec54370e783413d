"""Streams of every API that are cut and resumed with the same key and Last-Event-ID."""

import http.client
import json
import os
import signal
import sys
from urllib.parse import urlsplit

import pytest

from service import DEMO, ROOT, Service, eventually, marked
from test_every_api import APIS as ERRORS
from test_every_api import openai_error

sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "tests" / "e2e" / "http")]
import make_script_model  # noqa: E402

MESSAGES = [{"role": "user", "content": "Tell me a story."}]
TOOL = {"type": "object", "properties": {"a": {"type": "integer"}}}
SAYS = '<think>\nhm so\n</think>\n\nLook:\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
CHAT, TEXT, MESSAGE = "/v1/chat/completions", "/v1/completions", "/v1/messages"
FUNCTION = {"tools": [{"type": "function", "function": {"name": "f", "parameters": TOOL}}]}
LONG = {"ignore_eos": True, "temperature": 1}

# For the demo model: a path and a request. Requests without a seed draw the seed from the key.
STREAMS = {
    "chat": (CHAT, {"messages": MESSAGES, "max_tokens": 12, **LONG}),
    "chat, usage and times": (CHAT, {
        "messages": MESSAGES, "max_tokens": 8, "seed": 3, "return_timing": True, "return_token_ids": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    "chat, three choices with probabilities": (CHAT, {
        "messages": MESSAGES, "max_tokens": 6, "n": 3, "logprobs": True, "top_logprobs": 3, **LONG}),
    "chat, beams": (CHAT, {"messages": MESSAGES, "max_tokens": 6, "n": 2, "use_beam_search": True, "best_of": 4,
                           "temperature": 0}),
    "chat, best of": (CHAT, {"messages": MESSAGES, "max_tokens": 6, "n": 2, "best_of": 4, **LONG}),
    "chat, a stop string": (CHAT, {"messages": MESSAGES, "max_tokens": 40, "stop": ["a", "ily was", ". S"], "n": 2, **LONG}),
    "completions": (TEXT, {"prompt": "Once upon a time", "max_tokens": 12, **LONG}),
    "completions, prompts with echo and probabilities": (TEXT, {
        "prompt": ["Once upon", "A \U0001f600", "One day"], "max_tokens": 5, "n": 2, "echo": True, **LONG}),
    "completions, probabilities": (TEXT, {"prompt": "Once", "max_tokens": 9, "logprobs": 2, **LONG}),
    "messages": (MESSAGE, {"messages": MESSAGES, "max_tokens": 12, "temperature": 1, "stop_sequences": ["cat"]}),
    "ollama's chat": ("/api/chat", {"model": "demo", "messages": MESSAGES, "options": {"num_predict": 12}}),
    "ollama's generate": ("/api/generate", {"model": "demo", "prompt": "Once", "raw": True, "logprobs": True,
                                            "options": {"num_predict": 12}}),
    "llama.cpp": ("/completion", {"prompt": "Once", "n_predict": 12, "n_probs": 2, "ignore_eos": True}),
}
# For a model that thinks, speaks and calls a tool.
SCRIPTS = {
    "chat": (CHAT, {"messages": MESSAGES, "temperature": 0, **FUNCTION}),
    "chat, a call by name": (CHAT, {"messages": MESSAGES, "temperature": 0, "max_tokens": 6, **FUNCTION,
                                    "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    "messages": (MESSAGE, {"messages": MESSAGES, "max_tokens": 200, "temperature": 0, "thinking": {"type": "adaptive"},
                           "tools": [{"name": "f", "input_schema": TOOL}]}),
    "ollama": ("/api/chat", {"model": "script", "messages": MESSAGES, "think": True, "options": {"temperature": 0}, **FUNCTION}),
}


class Stream:
    """A streamed reply, event by event, with or without its ids."""

    def __init__(self, service, path, body, key=None, after=None, token=None, stream=True):
        head = {"Content-Type": "application/json", "Idempotency-Key": key, "Last-Event-ID": after,
                "Authorization": token and f"Bearer {token}"}
        self.conn = http.client.HTTPConnection(urlsplit(service.http).netloc, timeout=90)
        self.conn.request("POST", path, json.dumps({"stream": stream, **body}),
                          {k: str(v) for k, v in head.items() if v is not None})
        self.reply = self.conn.getresponse()
        self.status = self.reply.status
        self.lines = path.startswith("/api/")

    def __iter__(self):
        event = b""
        while line := self.reply.readline():
            event += line
            if self.lines or line == b"\n":
                yield event.decode()
                event = b""
        assert not event

    def events(self):
        assert self.status == 200, self.reply.read()
        return list(self)

    def some(self, n):
        return [e for _, e in zip(range(n), self)]

    def json(self):
        return json.loads(self.reply.read())

    def close(self):
        self.reply.close()
        self.conn.close()


def data(event):
    """Parse the JSON of an event."""
    line = next(ln for ln in event.split("\n") if ln.startswith(("data: ", "{")))
    return line if line == "data: [DONE]" else json.loads(line.removeprefix("data: "))


def without_ids(x):
    """Remove ids and times from a stream's event, so that streams can be compared."""
    beside = {"id", "created", "created_at", "timing", "timings", "seed", "signature", "cached_tokens", "cache_read_input_tokens",
              "input_tokens", "total_duration", "prompt_eval_duration", "eval_duration", "tokens_cached"}
    if isinstance(x, dict):
        return {k: without_ids(v) for k, v in x.items() if k not in beside}
    return [without_ids(v) for v in x] if isinstance(x, list) else x


@pytest.fixture(scope="module")
def durable(tmp_path_factory):
    s = Service(DEMO, "--journal", tmp_path_factory.mktemp("resume") / "j")
    yield s
    s.stop()
    Service.used.remove(s)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    template = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "script", SAYS, template),
                "--reasoning-parser", "qwen3", "--journal", tmp_path_factory.mktemp("resume") / "j")
    yield s
    s.stop()
    Service.used.remove(s)


def cut_at_every_event(service, name, path, body):
    whole = Stream(service, path, body, key=name).events()
    assert len(whole) > 3
    if path.startswith("/api/"):
        assert all(json.loads(e) for e in whole)
    else:
        assert [e.split("\n")[0] for e in whole] == [f"id: {i + 1}" for i in range(len(whole))]
    for n in range(len(whole) + 1):
        assert Stream(service, path, body, key=name, after=n).events() == whole[n:], n
    assert Stream(service, path, body, key=name).events() == whole
    return whole


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_cut_at_every_event_and_goes_on(durable, name):
    path, body = STREAMS[name]
    cut_at_every_event(durable, f"of:{name}".replace(" ", "_"), path, body)


@pytest.mark.parametrize("name", SCRIPTS)
def test_thoughts_and_calls_go_on(script, name):
    path, body = SCRIPTS[name]
    whole = cut_at_every_event(script, f"of:{name}".replace(" ", "_"), path, body)
    assert '"f"' in "".join(whole), whole
    plain = Stream(script, path, body).events()
    assert "".join(plain).count("id: ") == 0
    if name != "ollama":    # Ollama may put two tokens in one line if they arrive together
        assert [without_ids(data(e)) for e in plain][-3:] == [without_ids(data(e)) for e in whole][-3:]


def test_the_header_changes_ids_and_nothing_else(durable):
    body = {"messages": MESSAGES, "max_tokens": 12, "seed": 5, "stream_options": {"include_usage": True}}
    plain, numbered = Stream(durable, CHAT, body).events(), Stream(durable, CHAT, body, key="beside").events()
    said = lambda events: "".join(c["delta"].get("content") or "" for e in events[:-1] for c in data(e)["choices"])
    assert said(plain) == said(numbered) and not any(e.startswith("id:") for e in plain)
    assert without_ids(data(plain[-2])) == without_ids(data(numbered[-2]))
    assert plain[-1] == "data: [DONE]\n\n" and numbered[-1] == f"id: {len(numbered)}\ndata: [DONE]\n\n"


def test_both_connections_get_all_of_it(durable):
    path, body = CHAT, {"messages": MESSAGES, "max_tokens": 300, **LONG}
    first = Stream(durable, path, body, key="both")
    begun = first.some(3)
    second, third = Stream(durable, path, body, key="both"), Stream(durable, path, body, key="both", after=3)
    whole = begun + first.events()
    assert second.events() == whole and third.events() == whole[3:]


def test_more_than_is_written_ahead_of_the_client(durable):
    body = {"prompt": "Once", "max_tokens": 1500, "logprobs": 5, "seed": 1, **LONG}
    whole = Stream(durable, TEXT, body, key="long").events()
    assert len("".join(whole)) > 1 << 19
    assert Stream(durable, TEXT, body, key="long").events() == whole
    assert Stream(durable, TEXT, body, key="long", after=700).events() == whole[700:]


def worker_of(service):
    (pid,) = [p for p, name in marked(service.mark).items() if name.startswith("quern-worker")]
    return pid


def controller_of(service):
    (pid,) = [p for p, name in marked(service.mark).items() if name.startswith("quern-contr")]
    return pid


def again(service, path, body, key, after):
    """Resume the stream once the service is back."""
    def look():
        try:
            s = Stream(service, path, body, key=key, after=after)
            return s.events() if s.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
    return eventually(look, 90, "the rest of the stream")


KILLED = {"chat": (CHAT, {"messages": MESSAGES, "max_tokens": 400, "n": 2, **LONG}),
          "messages": (MESSAGE, {"messages": MESSAGES, "max_tokens": 400}),
          "ollama": ("/api/chat", {"model": "demo", "messages": MESSAGES, "options": {"num_predict": 400}}),
          "llama.cpp": ("/completion", {"prompt": "Once", "n_predict": 400, "ignore_eos": True})}


def test_streams_go_on_after_the_death_of_anything(tmp_path):
    """Kill the worker alone, the controller alone, and everything, with streams of all APIs at once."""
    s = Service(DEMO, "--journal", tmp_path / "j")
    try:
        for victim in (worker_of, controller_of, None):
            streams = {name: Stream(s, *KILLED[name], key=f"{victim}{name}".replace(" ", "")) for name in KILLED}
            os.kill(worker_of(s), signal.SIGSTOP)    # no job may end before the kill
            got = {name: x.some(2) for name, x in streams.items()}
            if victim:
                os.kill(victim(s), signal.SIGKILL)
            else:
                s.kill()
            if victim is worker_of:
                whole = {name: got[name] + list(x) for name, x in streams.items()}
            if not victim:
                s.stop()
                s = Service(DEMO, "--journal", tmp_path / "j")
            for name, x in streams.items():
                x.close()
                path, body = KILLED[name]
                key = f"{victim}{name}".replace(" ", "")
                rest = again(s, path, body, key, len(got[name]))
                full = Stream(s, path, body, key=key).events()
                assert got[name] + rest == full, name
                assert victim is not worker_of or whole[name] == full
    finally:
        s.stop()


# Responses have their own background mode.
@pytest.mark.parametrize("path", sorted({*ERRORS, TEXT} - {"/v1/responses"}))
def test_what_is_refused(durable, path):
    body, _, message, *_ = ERRORS.get(path, ({"prompt": "Once", "max_tokens": 2}, {}, openai_error))
    body = {k: v for k, v in body.items() if k != "stream"}
    key = "refused" + path
    Stream(durable, path, body, key=key).events()
    another = {"options": {"num_predict": 3}} if path.startswith("/api/") else {"seed": 1}
    other = Stream(durable, path, {**body, "model": "demo", **another}, key=key)
    assert other.status == 422 and "Idempotency-Key" in message(other.json())
    for after in (0, 1):
        unknown = Stream(durable, path, body, key="unknown", after=after)
        assert unknown.status == 404 and "Last-Event-ID" in message(unknown.json())
    for head, named in (({"after": 1}, "Last-Event-ID"), ({"key": "a b"}, "Idempotency-Key"), ({"key": "a" * 256}, "Idempotency-Key"),
                        ({"key": key, "after": "x"}, "Last-Event-ID"), ({"key": key, "after": -1}, "Last-Event-ID"),
                        ({"key": key, "after": 1, "stream": False}, "Last-Event-ID")):
        x = Stream(durable, path, body, **head)
        assert x.status == 400 and message(x.json()).startswith(named), head
    behind = Stream(durable, path, body, key=key, after=1000).events()
    assert len(behind) == (2 if path.startswith("/v1/c") else 1) and "fewer events" in behind[0]


def test_a_key_is_of_its_path(durable):
    body = {"messages": MESSAGES, "max_tokens": 2}
    Stream(durable, CHAT, body, key="path").events()
    assert Stream(durable, MESSAGE, body, key="path").status == 422


def test_the_limit_of_a_key_holds_until_the_job_ends(tmp_path):
    (tmp_path / "keys").write_text("sk-alice-0123456789 name=alice max-jobs=1\nsk-bob-0123456789abc name=bob max-jobs=1\n")
    (tmp_path / "keys").chmod(0o600)
    s = Service(DEMO, "--journal", tmp_path / "j", "--api-key-file", tmp_path / "keys")
    alice, bob = {"token": "sk-alice-0123456789"}, {"token": "sk-bob-0123456789abc"}
    body, short = {"messages": MESSAGES, "max_tokens": 1500, **LONG}, {"messages": MESSAGES, "max_tokens": 1}
    try:
        with s.paused():    # the job must not end before its key is refused another job
            first = Stream(s, CHAT, body, key="a", **alice)
            begun = first.some(1)
            first.close()
            assert Stream(s, CHAT, short, **alice).status == 429
            assert Stream(s, CHAT, short, key="b", **alice).status == 429
            assert Stream(s, CHAT, {**short, "max_tokens": 2}, key="b", stream=False, **alice).status == 429
            rest = Stream(s, CHAT, body, key="a", after=1, **alice)    # the same job, with and without the header
            same = Stream(s, CHAT, body, key="a", **alice)
            assert rest.status == same.status == 200
            theirs = Stream(s, CHAT, body, key="a", after=1, **bob)    # bob's own key
            assert theirs.status == 404
        whole = same.events()
        assert begun + rest.events() == whole and len(whole) > 1000
        assert eventually(lambda: Stream(s, CHAT, short, **alice).status == 200, 30)
    finally:
        s.stop()


def test_without_a_journal_a_stream_outlives_its_connection(service):
    body = {"messages": MESSAGES, "max_tokens": 300, **LONG}
    first = Stream(service, CHAT, body, key="memory")
    begun = first.some(5)
    first.close()
    assert begun + Stream(service, CHAT, body, key="memory", after=5).events() == Stream(
        service, CHAT, body, key="memory").events()


def test_a_service_ends_while_streams_are_without_clients(tmp_path):
    (tmp_path / "keys").write_text("sk-alice-0123456789 name=alice\n")
    (tmp_path / "keys").chmod(0o600)
    s = Service(DEMO, "--journal", tmp_path / "j", "--api-key-file", tmp_path / "keys")
    body, alice = {"messages": MESSAGES, "max_tokens": 1500, **LONG}, {"token": "sk-alice-0123456789"}
    try:
        with s.paused():    # neither may end before the service does
            left, open_ = (Stream(s, CHAT, body, key=k, **alice) for k in "ab")
            begun = left.some(1), open_.some(1)
            left.close()
            s.process.send_signal(signal.SIGINT)
            last = list(open_)
        assert not last[-2].startswith("id:") and "error" in last[-2]    # an error has no number
        s.end()
        assert "still holds requests" not in s.log()
        s.stop()
        s = Service(DEMO, "--journal", tmp_path / "j", "--api-key-file", tmp_path / "keys")
        for key, had in zip("ab", (begun[0], begun[1] + last[:-2])):
            rest = Stream(s, CHAT, body, key=key, after=len(had), **alice).events()
            assert had + rest == Stream(s, CHAT, body, key=key, **alice).events()
    finally:
        s.stop()
