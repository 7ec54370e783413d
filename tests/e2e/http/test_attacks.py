"""Attacks that hurt other services of this kind, replayed here, one test each. After each attack the service must serve
other clients as before. (Attacks on keys are in test_curve.py too, on files in test_bad_models.py and
tests/unit/formats/test_safetensors.c, on HTTP's framing in tests/wire/test_http_framing.c.)"""

import json
import os
import pickle
import resource
import signal
import socket
import struct
import time
import urllib.error
import urllib.request
import uuid
import subprocess
import tempfile

import msgpack
import pytest

from jobclient import JobClient, JobError
from service import BIN, DEMO, eventually, free_port, marked, no_processes_left, spawn

PROMPT = "Once upon a time"
SHORT = dict(max_tokens=6, temperature=0, ignore_eos=True)


def resident(service):
    (pid,) = [pid for pid, name in marked(service.mark).items() if name.startswith("quern-contr")]
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096


@pytest.fixture
def others(service, client):
    """Check that other clients are served after the attack as before, by a controller that did not die."""
    known = client.generate(PROMPT, **SHORT).tokens
    before = [p for p, name in marked(service.mark).items() if name.startswith("quern-contr")]
    yield
    with service.client() as c:
        assert c.generate(PROMPT, **SHORT).tokens == known
    assert [p for p, name in marked(service.mark).items() if name.startswith("quern-contr")] == before
    service.idle()


def http_post(service, path, body, timeout=60):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(service.http + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as r:
            return r.status, json.load(r)
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read() or b"{}")


def refused(client, request):
    client.send_frames(msgpack.packb({"id": 1, **request}) if isinstance(request, dict) else request)
    reply = msgpack.unpackb(client.recv_frames()[-1])
    assert reply["op"] == "error", reply
    return reply


# --- code from a socket (vLLM, SGLang, Meta: pickle, method names) ---

class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/quern-was-here",)


def test_pickles_are_bytes_like_any_other(service, client, others):
    for data in (pickle.dumps(Evil()), pickle.dumps({"op": "ping", "id": 1}, 0)):
        assert refused(client, data)["code"] == "E_BAD_REQUEST"
    assert not os.path.exists("/tmp/quern-was-here")


@pytest.mark.parametrize("op", ["__reduce__", "eval", "execute_method", "os.system", "shutdown", "load", "../../ping", "ping\0"])
def test_a_method_s_name_is_not_an_op(client, others, op):
    assert refused(client, {"op": op})["code"] == "E_BAD_REQUEST"


# --- headers that claim more data than follows (msgpack, GGUF) ---

PROMISES = {
    "an array of four billion": b"\xdd\xff\xff\xff\xff",
    "a map of four billion": b"\xdf\xff\xff\xff\xff",
    "a string of four gigabytes": b"\x81\xa2op\xdb\xff\xff\xff\xff",
    "a binary of four gigabytes": b"\x81\xa2op\xc6\xff\xff\xff\xff",
    "arrays in arrays": b"\x91" * 1_000_000,
    "maps in maps": b"\x81\xa1a" * 300_000,
    "arrays of four billion in each other": b"\xdd\xff\xff\xff\xff" * 100_000,
    "an extension": b"\x81\xa2op\xc9\xff\xff\xff\xff\x01",
    "half a string": b"\x81\xa2op\xa9sub",
    "two million nils": b"\xdd\x00\x1e\x84\x80" + b"\xc0" * 2_000_000,
}


@pytest.mark.parametrize("data", PROMISES.values(), ids=PROMISES.keys())
def test_a_header_allocates_nothing(service, client, others, data):
    before = resident(service)
    assert refused(client, data)["code"] == "E_BAD_REQUEST"
    assert resident(service) < before + (256 << 20)


# --- huge counts (CVE-2026-34756, CVE-2026-21869) ---

HUGE = [2**31, 2**32, 2**63 - 1, 2**64 - 1, -1, -2**31, -2**63, 10**6]


@pytest.mark.parametrize("name", ["n", "best_of", "logprobs", "prompt_logprobs", "max_tokens", "min_tokens"])
@pytest.mark.parametrize("count", HUGE)
def test_a_huge_count_is_refused(client, others, name, count):
    assert refused(client, {"op": "submit", "prompt": PROMPT, "params": {name: count}})["code"] in ("E_BAD_REQUEST", "E_TOO_LONG")


@pytest.mark.parametrize("name", ["n", "logprobs", "max_tokens", "top_logprobs", "min_tokens", "prompt_logprobs"])
@pytest.mark.parametrize("count", [2**31, 10**18, -5, 1e300])
def test_a_huge_count_is_400_over_http(service, others, name, count):
    path = "/v1/chat/completions" if name == "top_logprobs" else "/v1/completions"
    body = {"messages": [{"role": "user", "content": "x"}], "logprobs": True} if name == "top_logprobs" else {"prompt": "x"}
    status, reply = http_post(service, path, {**body, name: count})
    assert status == 400 and name in json.dumps(reply)


def test_huge_token_ids_are_refused(client, others):
    for tokens in ([2**31], [-1], [2**63 - 1], [1] * 1_000_000):
        assert refused(client, {"op": "submit", "tokens": tokens})["code"] in ("E_BAD_REQUEST", "E_TOO_LONG")


def test_logprobs_of_the_whole_vocabulary_are_refused(client, others):
    assert refused(client, {"op": "submit", "prompt": PROMPT, "params": {"logprobs": 1664}})["code"] == "E_BAD_REQUEST"


def test_lists_as_long_as_fit_are_refused_or_served(client, others):
    for params in ({"logit_bias": {str(i): 1 for i in range(100_000)}}, {"stop": ["x"] * 100_000},
                   {"bad_words": ["x"] * 100_000}, {"stop_token_ids": [1] * 100_000}):
        assert refused(client, {"op": "submit", "prompt": PROMPT, "params": params})["code"] in ("E_BAD_REQUEST", "E_TOO_LONG")


# --- very long prompts ---

def test_a_prompt_longer_than_the_model_takes(client, others):
    assert refused(client, {"op": "submit", "prompt": "a b " * 100_000})["code"] == "E_TOO_LONG"


@pytest.mark.parametrize("service", [("--kv-bytes", "1M")], indirect=True)
def test_a_prompt_that_fills_all_blocks(service, client, others):
    """The prompt runs when the others have finished, or is refused; no request waits forever."""
    status = service.status()
    room = status["max_context"]
    ids = [5] * (room - 8)
    jobs = [client.submit(tokens=ids, stream=False, max_tokens=8, ignore_eos=True) for _ in range(4)]
    jobs += [client.submit(PROMPT, stream=False, **SHORT) for _ in range(4)]
    assert all(len(j.done().tokens) in (6, 8) for j in jobs)


# --- patterns and templates that explode (CVE-2025-48943) ---

@pytest.mark.parametrize("text", ["a" * 200_000, " " * 200_000, "\n" * 200_000, "'s" * 100_000, "aA1!" * 50_000, "\u0301" * 50_000])
def test_a_text_made_to_slow_down_a_pattern_delays_no_other_request(service, client, text):
    with service.client() as slow:
        request = slow.send({"op": "tokenize", "text": text})
        assert len(client.generate(PROMPT, **SHORT).tokens) == SHORT["max_tokens"]
        try:
            slow.recv(request)
        except JobError as e:
            assert e.code in ("E_TOO_LONG", "E_BAD_REQUEST")


@pytest.mark.parametrize("field", [{"guided_regex": "(a+)+b"}, {"structured_outputs": {"regex": "(a+)+$"}},
                                   {"chat_template": "{% for i in range(10**9) %}{% endfor %}"}])
def test_a_client_s_patterns_and_templates_are_bounded(service, others, field):
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **field}
    t = time.monotonic()
    status, _ = http_post(service, "/v1/chat/completions", body, timeout=100)
    assert status in (200, 400), time.monotonic() - t


# --- HTTP (CVE-2025-23310/23311, smuggling, slow loris) ---

def raw_http(service, data, want=b"HTTP/1.1 "):
    """Return the first bytes of the reply; want None: all bytes until the connection is closed."""
    host, port = service.http.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 60) as s:
        try:
            s.sendall(data)
        except OSError:
            pass
        got = b""
        while True:
            try:
                part = s.recv(65536)
            except OSError:
                break
            if not part:
                break
            got += part
            if want and b"\r\n\r\n" in got and got.startswith(want):
                break
        return got


@pytest.mark.parametrize("fields", [b"Content-Length: %d\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: %d",
                                    b"Content-Length: 5\r\nContent-Length: %d", b"Content-Length: %d\r\nTransfer-Encoding : chunked",
                                    b"Content-Length: %d\r\nX: 1\r\n Transfer-Encoding: chunked", b"Content-Length: %d\0",
                                    b"Content-Length: 5\r\nX: 1\nContent-Length: %d"])
def test_a_request_behind_two_framings_is_not_answered(service, others, fields):
    """Request smuggling: one reader's body is another reader's request. Every byte is read until the connection is
    closed."""
    inner = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    got = raw_http(service, head + fields.replace(b"%d", b"%d" % (len(inner) + 5)) + b"\r\n\r\n0\r\n\r\n" + inner + inner, want=None)
    assert got.startswith(b"HTTP/1.1 400 "), got
    assert b"HTTP/1.1 2" not in got and b'"version"' not in got, got


def test_endless_headers(service, others):
    got = raw_http(service, b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 100) for i in range(20000)))
    assert not got.startswith(b"HTTP/1.1 200")


def test_a_chunk_size_beyond_64_bits(service, others):
    got = raw_http(service, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nffffffffffffffffffffff\r\n{}\r\n")
    assert not got.startswith(b"HTTP/1.1 200")


def test_many_slow_requests_delay_no_other_request(service, client, others):
    host, port = service.http.removeprefix("http://").split(":")
    lorises = [socket.create_connection((host, int(port)), 30) for _ in range(200)]
    for s in lorises:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n")
    for _ in range(3):
        for s in lorises:
            s.sendall(b"X")
        assert len(client.generate(PROMPT, **SHORT).tokens) == SHORT["max_tokens"]
    for s in lorises:
        s.close()


# --- the worker bus (llama.cpp RPC CVE-2024-42478/42479, CVE-2026-34159) ---

def test_a_stranger_on_the_bus_writes_nowhere(start):
    """A peer that never was a worker sends results and tables with absurd numbers."""
    port = free_port()
    s = start(DEMO, "--bus", f"tcp://127.0.0.1:{port}")
    words = struct.pack("<8I", *[0xffffffff] * 8)
    result = [1, 6, [1, 1, 1, words, words * 4, words, words]]
    plan = [1, 5, [1, 1, words, [], words[:12], words[:12], words[:8], words[:8], words[:8], words[:12], words[:4]]]
    ready = [1, 3, {"epoch": 1, "numerics": "x" * 255, "n_blocks": 2**32 - 1, "n_host_blocks": 2**32 - 1, "n_vocab": 2**32 - 1}]
    with s.client() as c:
        known = c.generate(PROMPT, **SHORT).tokens
        with JobClient(f"tcp://127.0.0.1:{port}") as stranger:
            stranger.socket.linger = 1000
            for message in (result, plan, ready, [1, 7, {"epoch": 1, "state": 2, "progress": 2**63, "expected": 2**63}],
                            [1, 4, {"epoch": 1, "why": "w" * 100000}], [2**63, 2**63, {}], [1, 8, {}]):
                stranger.send_frames(msgpack.packb(message))
            assert c.generate(PROMPT, **SHORT).tokens == known
        assert len([w for w in c.workers() if w["state"] == "serving"]) == 1
    s.idle()


# A greeting without keys, and READY: from here on, ZeroMQ waits for messages without a time limit.
SHAKEN_HANDS = (b"\xff" + b"\0" * 8 + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" * 32
                + b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")


@pytest.fixture
def many_descriptors():
    """Allow enough descriptors for a thousand connections of the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip(f"a process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("sent", [b"", SHAKEN_HANDS], ids=["silent", "after the handshake"])
def test_a_thousand_connections_to_the_bus_keep_no_worker_out(start, many_descriptors, sent):
    port = free_port()
    s = start(DEMO, "--bus", f"tcp://127.0.0.1:{port}", "--threads", "1")
    (pid,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-contr")]
    before = len(os.listdir(f"/proc/{pid}/fd"))
    idle = []
    try:
        for _ in range(1000):
            idle.append(socket.create_connection(("127.0.0.1", port), 30))
            idle[-1].sendall(sent)
        eventually(lambda: len(os.listdir(f"/proc/{pid}/fd")) < before + 300, what="a bound on the connections")
        w = spawn([BIN / "quern-worker", "--bus", f"tcp://127.0.0.1:{port}", "--threads", "1"], s.mark,
                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with s.client() as c:
            eventually(lambda: [x["pid"] for x in c.workers() if x["state"] == "serving" and x["pid"] == w.pid], 60,
                       "the worker that came last")
            assert len(c.generate(PROMPT, **SHORT).tokens) == SHORT["max_tokens"]
            # Connections that are not a worker's are closed.
            eventually(lambda: len(os.listdir(f"/proc/{pid}/fd")) < before + 10, 60, "the strangers' end")
            # The worker is told to stop, and has confirmed it when the order is done.
            (last,) = [x["worker"] for x in c.workers() if x["pid"] == w.pid]
            c.call("drain", worker=last)
            assert w.wait(60) == 0
    finally:
        for sock in idle:
            sock.close()
    s.idle()
    assert s.end() == 0


def test_idle_connections_to_the_job_socket_keep_no_client_out(many_descriptors):
    """The test opens more connections than the limit: those that sent nothing are closed, the others stay."""
    with tempfile.TemporaryDirectory(prefix="quern-jobs-") as d:
        port = free_port()
        mark, jobs = uuid.uuid4().hex, f"tcp://127.0.0.1:{port}"
        p = spawn(["prlimit", "--nofile=1100:1100", BIN / "quern-controller", "--model", DEMO, "--bus", f"ipc://{d}/bus", "--jobs", jobs,
                   "--http", "none"], mark, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        idle = []
        try:
            with JobClient(jobs) as first:
                assert first.ping()["op"] == "ok"
                for _ in range(600):
                    idle.append(socket.create_connection(("127.0.0.1", port), 30))
                    idle[-1].sendall(SHAKEN_HANDS)
                eventually(lambda: len(os.listdir(f"/proc/{p.pid}/fd")) < 400, what="a bound on the connections")
                with JobClient(jobs) as last:
                    assert last.ping()["op"] == "ok"
                assert first.ping()["op"] == "ok"
        finally:
            for sock in idle:
                sock.close()
            p.terminate()
            assert p.wait(60) == 0
    no_processes_left(mark)


# --- a health check that says OK while nothing serves ---

@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP], ids=lambda s: s.name)
def test_health_is_not_ok_while_the_only_worker_is_gone(sig):
    """The worker is started by hand, so that no supervisor restarts it."""
    with tempfile.TemporaryDirectory(prefix="quern-bus-") as d:
        address = f"127.0.0.1:{free_port()}"
        mark, quiet = uuid.uuid4().hex, dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        controller = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", f"ipc://{d}/bus", "--jobs", f"ipc://{d}/jobs",
                            "--http", address], mark, **quiet)
        worker = spawn([BIN / "quern-worker", "--bus", f"ipc://{d}/bus"], mark, **quiet)

        def health():
            try:
                with urllib.request.urlopen(f"http://{address}/health", timeout=10) as r:
                    return r.status
            except urllib.error.HTTPError as e:
                return e.code
            except OSError:
                return None
        try:
            eventually(lambda: health() == 200, 60, "health")
            os.kill(worker.pid, sig)
            eventually(lambda: health() == 503, 30, "no health")
            with JobClient(f"ipc://{d}/jobs") as c:
                assert c.ping()["ready"] is False and c.status()["ready"] is False
            assert health() == 503
        finally:
            worker.kill()
            worker.wait(30)
            controller.terminate()
            assert controller.wait(30) == 0
        no_processes_left(mark)


# --- contents are private ---

def test_prompts_and_outputs_are_in_no_log(start):
    s = start(DEMO, "--log-level", "debug")
    word = f"xylophone{uuid.uuid4().hex}"
    with s.client() as c:
        done = c.generate(f"The {word} said", max_tokens=20, seed=1, user="anna")
        with pytest.raises(JobError):
            c.generate(f"The {word} said", temperature=-1)
    http_post(s, "/v1/completions", {"prompt": word, "max_tokens": 3, "temperature": -7})
    s.end()
    assert word not in s.log() and done.text.strip()[:30] not in s.log()
