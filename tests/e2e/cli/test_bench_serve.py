"""`quern bench serve` against the demo model, and against servers that misbehave."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

VLLM_KEYS = {
    "date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    "burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens",
    "total_output_tokens", "request_throughput", "request_goodput", "output_throughput",
    "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests",
    *(f"{what}_{metric}_ms" for what in ("mean", "median", "std", "p99")
      for metric in ("ttft", "tpot", "itl", "e2el")),
}


def bench(run, url, *options, expect=0, env_key=None):
    p = run("bench", "serve", "--base-url", url, "--json", *options)
    assert p.returncode == expect, p.stderr
    return json.loads(p.stdout) if p.stdout else None, p.stderr


# ---- the demo model ----

def test_the_report_has_the_keys_of_vllm_and_counts_every_token(service, run):
    r, _ = bench(run, service.http, "-n", "20", "--input-len", "30", "--output-len", "12", "--ignore-eos")
    assert VLLM_KEYS <= set(r)
    assert (r["completed"], r["failed"]) == (20, 0)
    assert r["total_input_tokens"] == 20 * 30, "prompts of ids have their exact length"
    assert r["total_output_tokens"] == 20 * 12
    assert r["model_id"] == "demo"
    assert r["request_rate"] == "inf"
    assert r["max_concurrent_requests"] == 20
    assert r["request_goodput"] is None
    assert r["request_throughput"] == pytest.approx(20 / r["duration"])
    assert 0 < r["mean_ttft_ms"] <= r["mean_e2el_ms"]
    assert r["p99_e2el_ms"] <= r["duration"] * 1000


@pytest.mark.parametrize("option", ["--save", "--plot"])
def test_an_unwritable_result_is_reported_before_the_run(fake, run, tmp_path, option):
    for path, word in ((tmp_path, "directory"), (tmp_path / "nowhere" / "x", "No such file")):
        r, err = bench(run, fake.url, "-n", "3", "--input-len", "3", option, str(path), expect=1)
        assert r is None and str(path) in err and word in err
    assert fake.requests == []
    fake.reply = lambda body: GOOD
    good = tmp_path / "x"
    bench(run, fake.url, "-n", "1", "--input-len", "3", "--output-len", "4", option, str(good))
    assert good.stat().st_size


def test_max_concurrency_bounds_the_requests_in_flight(service, run):
    r, _ = bench(run, service.http, "-n", "12", "-c", "3", "--input-len", "8", "--output-len", "8")
    assert r["max_concurrent_requests"] <= 3
    assert r["max_concurrency"] == 3
    assert r["completed"] == 12


def test_chats_are_measured_and_saved_in_detail(service, run, tmp_path):
    saved = tmp_path / "result.json"
    r, _ = bench(run, service.http, "--endpoint", "chat", "-n", "5", "--input-len", "20", "--output-len", "9",
                 "--ignore-eos", "--save-detailed", "--save", str(saved), "--goodput", "ttft:100000,e2el:100000",
                 "--percentiles", "50,99.9")
    assert r == json.loads(saved.read_text())
    assert r["backend"] == "openai-chat"
    assert r["output_lens"] == [9] * 5
    assert all(r["generated_texts"]) and not any(r["errors"])
    assert all(len(gaps) <= 8 for gaps in r["itls"]), "a chunk may bring several tokens"
    assert r["request_goodput"] == pytest.approx(r["request_throughput"])
    assert r["p50_itl_ms"] == r["median_itl_ms"] and "p99.9_ttft_ms" in r


def test_the_same_seed_sends_the_same_requests(service, run):
    texts = [bench(run, service.http, "-n", "4", "--input-len", "20", "--output-len", "8", "--save-detailed",
                   "--seed", seed)[0]["generated_texts"] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_a_trace_is_played(service, run, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,11,3\n0.2,12,4\n0.4,500,500\n")
    plot = tmp_path / "plot.svg"
    r, _ = bench(run, service.http, "--trace", str(trace), "--trace-speed", "2", "--max-input-len", "50",
                 "--max-output-len", "6", "--ignore-eos", "--save-detailed", "--plot", str(plot))
    assert r["input_lens"] == [11, 12, 50]
    assert r["output_lens"] == [3, 4, 6]
    assert r["start_times"][1] >= 0.1 and r["start_times"][2] >= 0.2
    assert r["duration"] >= 0.2
    assert "TTFT" in plot.read_text() and plot.read_text().startswith("<svg")


def test_the_report_lists_every_metric(service, run):
    p = run("bench", "serve", "--to", service.http + "/v1/", "-n", "3", "--input-len", "5", "--output-len", "4",
            "--request-rate", "50", "--goodput", "ttft:100000")
    assert p.returncode == 0, p.stderr
    for word in ("3 requests completed, 0 failed", "TTFT ms", "E2EL ms", "P99", "goodput", "of CPU per output token"):
        assert word in p.stdout
    assert p.stderr == "", "no progress but on a terminal"


@pytest.mark.parametrize("options,reason", [
    (("--request-rate", "0"), "--request-rate"),
    (("--endpoint", "embeddings"), "neither completions nor chat"),
    (("--goodput", "itl:5"), "--goodput"),
    (("--percentiles", "101"), "--percentiles"),
    (("--lengths", "sharegpt", "--input-len", "5"), "either --lengths or --input-len"),
    (("--trace", "x", "--request-rate", "5"), "no --request-rate"),
    (("--replay", "x", "--input-len", "5"), "no --input-len"),
    (("--extra-body", "[]"), "--extra-body"),
    (("--burstiness", "0"), "--burstiness"),
    (("--prompts", "ids:5,4"), "--prompts"),
    (("--base-url", "ftp://x"), "http://"),
    (("--base-url", "unix:"), "unix:PATH"),
])
def test_wrong_usage_is_named(run, options, reason):
    p = run("bench", "serve", *options)
    assert p.returncode == 2
    assert reason in p.stderr and p.stderr.count("\n") == 1


def test_a_missing_server_is_named(run):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        p = run("bench", "serve", "--to", f"http://127.0.0.1:{s.getsockname()[1]}")
    assert p.returncode == 1 and "127.0.0.1" in p.stderr
    p = run("bench", "serve", "--base-url", "unix:/no/such.sock")
    assert p.returncode == 1 and "unix:/no/such.sock" in p.stderr


# ---- a fake server with scripted replies ----

def chunk(text, finish=None):
    return b"data: " + json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": finish}]}).encode() + b"\n\n"


def usage(prompt, completion):
    return b"data: " + json.dumps({"choices": [], "usage": {"prompt_tokens": prompt,
                                                            "completion_tokens": completion}}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class Fake(BaseHTTPRequestHandler):
    """Answer with self.server.replies[nth request]: (status, type, chunks)."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _json(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self._json(200, {"data": [{"id": "fake"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            nth = len(self.server.requests)
            self.server.requests.append((self.path, dict(self.headers), body))
        if self.path == "/tokenize":
            return self._json(404, {"error": "no such thing"})
        status, kind, pieces = self.server.reply(body)
        if kind == "json":
            return self._json(status, pieces)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for p in pieces:
            if p is None:       # cut off
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return None
            if isinstance(p, float):
                time.sleep(p)
                continue
            self.wfile.write(b"%x\r\n%s\r\n" % (len(p), p))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        return nth


class FakeServer(ThreadingHTTPServer):
    request_queue_size = 1024   # all connections arrive at once
    daemon_threads = True

    def handle_error(self, request, address):
        """Ignore a client that disconnects, which some tests cause."""


@pytest.fixture
def fake():
    server = FakeServer(("127.0.0.1", 0), Fake)
    server.lock, server.requests = threading.Lock(), []
    server.url = "http://127.0.0.1:%d" % server.server_address[1]
    t = threading.Thread(target=server.serve_forever, daemon=True)
    t.start()
    yield server
    server.shutdown()
    server.server_close()


STREAM = "text/event-stream; charset=utf-8"
GOOD = (200, STREAM, [chunk("a"), chunk("b"), chunk("c", "stop"), usage(7, 5), DONE])


def one(fake, run, reply, *options, expect=1):
    """Run two requests: one that succeeds, and one with this reply."""
    def reply_to(body):
        with fake.lock:
            first = sum(r[0] != "/tokenize" for r in fake.requests) == 1
        return GOOD if first else reply
    fake.reply = reply_to
    r, err = bench(run, fake.url, "-n", "2", "-c", "1", "--warmups", "0", "--input-len", "3", "--output-len", "4",
                   *options, expect=0)
    assert (r["completed"], r["failed"]) == (1, 1)
    assert r["total_output_tokens"] == 5
    (cause, n), = r["failures"].items()
    assert n == 1
    return cause


def test_usage_overrides_the_number_of_chunks(fake, run):
    fake.reply = lambda body: GOOD
    r, _ = bench(run, fake.url, "-n", "3", "--input-len", "3", "--output-len", "4", "--save-detailed")
    assert r["total_output_tokens"] == 15 and r["total_input_tokens"] == 21
    assert r["generated_texts"] == ["abc"] * 3
    assert r["prompts"] == "words", "without /tokenize"
    assert len(fake.requests) == 1 + 1 + 3, "a look for /tokenize, a warm-up, three"


def test_without_usage_a_chunk_counts_as_a_token(fake, run):
    fake.reply = lambda body: (200, STREAM, [chunk("a"), chunk(""), chunk("c"), chunk("", "stop")])
    r, _ = bench(run, fake.url, "-n", "1", "--input-len", "3", "--output-len", "4", "--save-detailed")
    assert r["output_lens"] == [3] and len(r["itls"][0]) == 2


def test_a_request_has_the_options_and_the_key(fake, run, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-of-the-test")
    fake.reply = lambda body: GOOD
    bench(run, fake.url, "-n", "1", "--warmups", "0", "--input-len", "3", "--output-len", "4", "--ignore-eos",
          "--prompts", "ids:5,9", "--model", "m\"x", "--temperature", "0.5", "--extra-body", '{"top_k": 3}')
    (path, headers, body), = fake.requests
    assert path == "/v1/completions"
    assert headers["Authorization"] == "Bearer secret-of-the-test"
    assert all(5 <= i <= 9 for i in body.pop("prompt"))
    assert body == {"model": 'm"x', "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.5,
                    "ignore_eos": True, "top_k": 3, "max_tokens": 4}


def test_gaps_are_measured_between_chunks(fake, run):
    fake.reply = lambda body: (200, STREAM, [0.15, chunk("a"), 0.1, chunk("b"), 0.1, chunk("c", "stop"), DONE])
    r, _ = bench(run, fake.url, "-n", "2", "--warmups", "0", "--input-len", "3", "--output-len", "4",
                 "--save-detailed")
    assert all(t >= 0.149 for t in r["ttfts"])
    # If the machine delays a chunk, the gap after it becomes shorter, but never both gaps.
    assert all(sum(gaps) + t >= 0.349 for gaps, t in zip(r["itls"], r["ttfts"]))
    assert r["mean_tpot_ms"] == pytest.approx(1000 * sum(map(sum, r["itls"])) / 4, rel=1e-3)


def test_a_refused_request_fails_with_its_message(fake, run):
    cause = one(fake, run, (429, "json", {"error": {"message": "the queue is full"}}))
    assert cause == "HTTP 429: the queue is full"


def test_a_refused_request_without_json_fails_with_its_body(fake, run):
    assert one(fake, run, (503, "text/plain", [b"sorry"])) == "HTTP 503"


def test_a_connection_cut_within_the_stream_is_a_failure(fake, run):
    assert one(fake, run, (200, STREAM, [chunk("a"), None])).startswith("the stream was cut")


def test_a_stream_without_its_last_event_is_a_failure(fake, run):
    assert one(fake, run, (200, STREAM, [chunk("a")])) == "the stream ended without its last event"


def test_an_error_event_is_a_failure(fake, run):
    bad = b'data: {"error": {"message": "the worker died"}}\n\n'
    assert one(fake, run, (200, STREAM, [chunk("a"), bad, DONE])) == "error in the stream: the worker died"


def test_a_chunk_that_is_not_json_is_a_failure(fake, run):
    assert "not valid JSON" in one(fake, run, (200, STREAM, [b"data: {oops\n\n", DONE]))


def test_a_reply_that_is_not_a_stream_is_a_failure(fake, run):
    assert one(fake, run, (200, "json", {"choices": []})) == "the reply is not an event stream"


def test_a_stream_without_a_token_is_a_failure(fake, run):
    assert one(fake, run, (200, STREAM, [DONE])) == "the stream brought no token"


def test_a_batch_is_replayed(fake, run, tmp_path):
    fake.reply = lambda body: GOOD
    lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions",
              "body": {"model": "another", "temperature": 0.5, "messages": [{"role": "user", "content": str(i)}]}} for i in range(3)]
    batch = tmp_path / "batch.jsonl"
    batch.write_text("\n".join(map(json.dumps, lines)))
    r, _ = bench(run, fake.url, "--replay", str(batch), "--warmups", "0", "--max-output-len", "9", "--extra-body", '{"top_p": 0.25}')
    assert (r["completed"], r["backend"], r["prompts"]) == (3, "openai-chat", "batch")
    assert sorted(b["messages"][0]["content"] for _, _, b in fake.requests) == ["0", "1", "2"]
    for path, _, body in fake.requests:
        assert path == "/v1/chat/completions" and body["model"] == "fake" and body["stream"] is True
        assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.25, 9)
    r, err = bench(run, fake.url, "--replay", str(batch), "--output-len", "9", expect=1)
    assert r is None and "a batch has its own lengths" in err


def test_turns_of_a_conversation_are_sent_one_after_another(fake, run, tmp_path):
    turns = [{"from": who, "value": f"{who} {i}"} for i in range(3) for who in ("human", "gpt")]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([{"conversations": turns}, {"conversations": turns[:2]}]))
    fake.reply = lambda body: GOOD
    r, _ = bench(run, fake.url, "--replay", str(file), "--warmups", "0", "--output-len", "6")
    assert (r["completed"], r["failed"], r["num_prompts"], r["prompts"]) == (4, 0, 4, "conversations")
    of_turns = [len(body["messages"]) for _, _, body in fake.requests if len(body["messages"]) > 1]
    assert of_turns == [3, 5], "in their order"
    assert all(body["max_tokens"] == 6 and body["temperature"] == 0 for _, _, body in fake.requests)
    assert fake.requests[-1][2]["messages"][1] == {"role": "assistant", "content": "gpt 0"}


def test_turns_after_a_failed_one_fail_with_it(fake, run, tmp_path):
    file = tmp_path / "conversations.jsonl"
    messages = [{"role": role, "content": "x"} for _ in range(3) for role in ("user", "assistant")]
    file.write_text(json.dumps({"messages": messages}) + "\n" + json.dumps({"messages": messages[:1]}))
    fake.reply = lambda body: GOOD if len(body["messages"]) == 1 else (429, "json", {"error": {"message": "full"}})
    r, _ = bench(run, fake.url, "--replay", str(file), "--warmups", "0")
    assert (r["completed"], r["failed"]) == (2, 2)
    assert r["failures"] == {"HTTP 429: full": 1, "a request before it, which it follows, failed": 1}
    assert len(fake.requests) == 3


def test_a_request_beyond_the_timeout_is_a_failure(fake, run):
    assert one(fake, run, (200, STREAM, [chunk("a"), 8.0, DONE]), "--timeout", "3") == "timed out"


def test_a_run_without_a_success_fails(fake, run):
    fake.reply = lambda body: (429, "json", {"error": {"message": "full"}})
    r, err = bench(run, fake.url, "-n", "3", "--warmups", "0", "--input-len", "3", "--output-len", "4", expect=1)
    assert r["failures"] == {"HTTP 429: full": 3} and r["completed"] == 0
    assert "no request was completed: HTTP 429: full" in err


def test_the_first_request_checks_the_server(fake, run):
    fake.reply = lambda body: (401, "json", {"error": {"message": "wrong key"}})
    p = run("bench", "serve", "--to", fake.url, "-n", "3")
    assert p.returncode == 1 and "HTTP 401: wrong key" in p.stderr and not p.stdout
    assert sum(r[0] == "/v1/completions" for r in fake.requests) == 1


def test_many_streams_at_once(fake, run):
    fake.reply = lambda body: GOOD
    r, _ = bench(run, fake.url, "-n", "300", "--input-len", "3", "--output-len", "4")
    assert (r["completed"], r["failed"]) == (300, 0)
