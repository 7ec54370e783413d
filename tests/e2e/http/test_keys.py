"""--api-key-file: keys and their limits, and the last events of a service that ends."""

import hashlib
import json
import re
import socket
import stat
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import openai
import pytest

from jobclient import JobError
from service import DEMO, eventually
from test_http import ask

ALICE, BOB, CAROL = "sk-alice-0123456789abcdef", "sk-bob-0123456789abcdef", "sk-carol-0123456789abcdef"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A service with keys; tests may rewrite .file."""
    from service import Service
    d = tmp_path_factory.mktemp("keys")
    file = d / "keys"
    hashed = hashlib.sha256(BOB.encode()).hexdigest()
    file.write_text(f"{ALICE} name=alice max-jobs=2\nsha256:{hashed} name=bob requests-per-minute=3\n"
                    f"{CAROL} name=carol tokens-per-minute=20\n")
    file.chmod(0o600)
    s = Service(DEMO, "--api-key-file", file, "--access-log", d / "access", "--metrics-http", "127.0.0.1:0")
    s.file, s.access = file, d / "access"
    yield s
    s.stop()
    Service.used.remove(s)


def by(key):
    return {"Authorization": f"Bearer {key}"}


def complete(service, key, **body):
    return ask(service, "/v1/completions", {"prompt": "Once", "max_tokens": 2, **body}, headers=by(key))


def live_jobs(service, key):
    """Return the jobs in the first event of /api/live."""
    request = urllib.request.Request(service.http + "/api/live", headers=by(key))
    with urllib.request.urlopen(request, timeout=30) as r:
        return json.loads(r.readline().removeprefix(b"data: "))["jobs"]["rows"]


def test_without_a_key_nothing_is_disclosed(keys):
    for path in ("/v1/models", "/metrics", "/v1/files", "/nothing", "/api/live"):
        status, headers, reply = ask(keys, path)
        assert status == 401, path
        assert headers["WWW-Authenticate"] == "Bearer"
        assert reply["error"]["code"] == "missing_api_key" and reply["error"]["type"] == "invalid_request_error"
    for path in ("/health", "/ready", "/version"):
        assert ask(keys, path)[0] == 200


def test_metrics_have_an_address_without_keys(keys):
    def get(path):
        try:
            with urllib.request.urlopen(f"http://{keys.ready['metrics_http']}{path}", timeout=30) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, ""
    status, text = get("/metrics")
    assert status == 200 and "\nquern:num_requests_running{" in text
    assert get("/livez")[0] == get("/readyz")[0] == 200
    assert get("/v1/models")[0] == get("/")[0] == get("/api/live")[0] == 404


def test_a_wrong_key_is_401_before_the_body_is_read(keys):
    status, _, reply = complete(keys, "sk-mallory-0123456789")
    assert (status, reply["error"]["code"]) == (401, "invalid_api_key")
    assert ask(keys, "/v1/completions", b"{nonsense", headers=by("x"))[0] == 401
    assert "mallory" not in keys.log() and "mallory" not in keys.access.read_text()


def test_the_openai_client_raises_its_class(keys):
    with pytest.raises(openai.AuthenticationError) as e:
        openai.OpenAI(base_url=keys.http + "/v1", api_key="sk-wrong-0123456789ab", max_retries=0).models.list()
    assert e.value.code == "invalid_api_key"
    assert openai.OpenAI(base_url=keys.http + "/v1", api_key=ALICE).models.list().data


def test_a_key_is_named_in_the_access_log_and_never_shown(keys):
    assert complete(keys, ALICE)[0] == 200
    eventually(lambda: '"key":"alice"' in keys.access.read_text(), what="a line of alice's")
    for text in (keys.access.read_text(), keys.log()):
        assert ALICE not in text and BOB not in text


def test_a_job_is_served_from_its_keys_share(keys):
    complete(keys, ALICE, user="bob")
    assert {row["user"] for row in live_jobs(keys, ALICE)} == {"alice"}


def test_a_keys_jobs_are_not_there_for_others(keys):
    """Neither other keys nor the job socket see them, not even with a name that a client gives as its user."""
    before = {row["job"] for row in live_jobs(keys, ALICE)}
    mine = Reader(keys, {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "n": 8, "stream": True}, ALICE)
    (job,) = eventually(lambda: {row["job"] for row in live_jobs(keys, ALICE)} - before, what="the job")
    assert ask(keys, "/api/cancel", {"job": job}, headers=by(CAROL))[2]["error"]["code"] == "not_found"
    with keys.client() as c:
        other = c.submit("Once", max_tokens=2000, ignore_eos=True, n=8, stream=True, user="alice")
        assert [row["job"] for row in c.jobs()] == [other.accepted().job]
        for op in ("attach", "cancel", "result"):
            with pytest.raises(JobError) as e:
                c.call(op, job=job)
            assert e.value.code == "E_NO_SUCH_JOB", op
        assert {row["job"] for row in live_jobs(keys, ALICE)} >= {job}
        assert not {row["job"] for row in live_jobs(keys, ALICE) + live_jobs(keys, CAROL)} & {other.accepted().job}
        assert ask(keys, "/api/cancel", {"job": other.accepted().job}, headers=by(ALICE))[0] == 404
        c.cancel(other.accepted().job)
    assert ask(keys, "/api/cancel", {"job": job}, headers=by(ALICE))[0] == 200
    mine.join(60)
    assert b"200 OK" in mine.got


def test_keys_share_no_prefixes(keys):
    prompt = "Once upon a time there was a little girl who liked to play in the park with her red ball."

    def cached(key):
        return complete(keys, key, prompt=prompt, max_tokens=1)[2]["usage"]["prompt_tokens_details"]["cached_tokens"]
    cached(ALICE)
    assert cached(ALICE) > 0
    assert cached(CAROL) == 0


def test_jobs_at_once_are_bounded(keys):
    status, _, reply = complete(keys, ALICE, prompt=["a", "b", "c"])
    assert (status, reply["error"]["code"]) == (429, "rate_limit_exceeded")
    assert "2 jobs" in reply["error"]["message"]
    for _ in range(4):      # finished jobs no longer count
        assert complete(keys, ALICE, prompt=["a", "b"])[0] == 200


def test_requests_per_minute_are_bounded(keys):
    replies = [complete(keys, BOB) for _ in range(5)]
    assert 429 in [r[0] for r in replies] and replies[0][0] == 200
    status, headers, reply = next(r for r in replies if r[0] == 429)
    assert reply["error"]["code"] == "rate_limit_exceeded" and 1 <= int(headers["Retry-After"]) <= 60
    assert headers["x-ratelimit-limit-requests"] == "3" and headers["x-ratelimit-remaining-requests"] == "0"
    assert ask(keys, "/v1/models", headers=by(BOB))[0] == 200      # only valid requests count


def test_tokens_per_minute_are_bounded(keys):
    replies = []
    for _ in range(20):
        replies.append(complete(keys, CAROL, max_tokens=8, ignore_eos=True))
        if replies[-1][0] == 429:
            break
        time.sleep(0.05)
    assert replies[-1][0] == 429
    assert "tokens per minute" in replies[-1][2]["error"]["message"]


def test_a_changed_file_is_read_again(keys):
    new = "sk-dave-0123456789abcdef"
    assert complete(keys, new)[0] == 401
    text = keys.file.read_text()
    keys.file.write_text(text + f"{new} name=dave\n")
    eventually(lambda: complete(keys, new)[0] == 200, what="the new key")
    # Replace the file in one step: between two steps no key would be known, and the next test uses a key.
    whole = keys.file.with_name("whole")
    whole.write_text(text)
    whole.chmod(0o600)
    whole.replace(keys.file)
    eventually(lambda: complete(keys, new)[0] == 401, what="the key's end")


def test_an_invalid_file_is_named(start, tmp_path):
    (tmp_path / "keys").write_text("short\n")
    with pytest.raises(AssertionError, match="keys: line 1: the key has 5 bytes"):
        start(DEMO, "--api-key-file", tmp_path / "keys")


# --- the job socket of a service with keys ---

@pytest.fixture
def runtime_dir(monkeypatch):
    """An XDG_RUNTIME_DIR for services and commands, with a file of keys."""
    with tempfile.TemporaryDirectory(prefix="quern-x-") as d:
        monkeypatch.setenv("XDG_RUNTIME_DIR", d)
        file = Path(d) / "keys"
        file.write_text(f"{ALICE} name=alice\n")
        file.chmod(0o600)
        yield Path(d)


def test_with_keys_the_job_socket_is_for_its_user_alone(runtime_dir, start, run):
    keys = ("--api-key-file", runtime_dir / "keys")
    s = start(DEMO, *keys, default=("--jobs",))
    path = runtime_dir / "quern" / "jobs"
    assert s.jobs == f"ipc://{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert re.search(rf"job socket is for this user only jobs=ipc://{path} instead_of=tcp://127.0.0.1:7420", s.log())
    # The commands find it without --to, and may do everything that the service's user may do.
    assert run("submit", "--raw", "Once", "--max-tokens", "2").returncode == 0
    assert json.loads(run("status", "--json").stdout)["model"] == "demo"
    r = run("scale", "1")
    assert r.returncode == 0, r.stderr
    with pytest.raises(AssertionError, match="another service listens there"):
        start(DEMO, *keys, default=("--jobs",))
    assert run("status").returncode == 0, "the first service has kept its socket"
    assert s.end() == 0


def test_a_job_socket_on_tcp_beside_keys_takes_no_orders(keys, run):
    assert "job socket is not protected jobs=" in keys.log()
    r = run("scale", "2", "--to", keys.jobs)
    assert r.returncode != 0 and "ipc://PATH" in r.stderr and "E_AUTH" in r.stderr
    with keys.client() as c:
        for order in ({"op": "scale", "replicas": 2}, {"op": "drain", "worker": 1}):
            with pytest.raises(JobError) as e:
                c.call(order.pop("op"), **order)
            assert e.value.code == "E_AUTH"
        assert len(c.workers()) == 1


def test_without_keys_the_job_socket_takes_orders(service, run):
    assert run("scale", "1", "--to", service.jobs).returncode == 0


# --- deadlines, and the end ---

def test_a_deadline_is_a_504(service):
    status, _, reply = ask(service, "/v1/completions", {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True,
                                                        "n": 16, "deadline_ms": 1})
    assert (status, reply["error"]["code"]) == (504, "deadline_exceeded")


class Reader(threading.Thread):
    """Read a stream to its end, as bytes."""

    def __init__(self, service, body, key=None):
        super().__init__()
        host, port = service.http.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        data = json.dumps(body).encode()
        secret = b"Authorization: Bearer %s\r\n" % key.encode() if key else b""
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                            b"%sContent-Length: %d\r\n\r\n%s" % (secret, len(data), data))
        self.got = b""
        self.start()

    def run(self):
        while part := self.socket.recv(65536):
            self.got += part
        self.socket.close()


def test_a_service_that_ends_closes_open_streams_with_an_error(start):
    s = start(DEMO)
    long = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "n": 16, "temperature": 1}
    streams = [Reader(s, {**long, "stream": True}) for _ in range(3)]
    waiting = Reader(s, long)
    eventually(lambda: all(r.got.count(b"data: ") > 20 for r in streams), what="streams under way")
    assert s.end() == 0
    for r in streams:
        r.join(20)
        *_, last, done, rest = re.sub(rb"\r\n[0-9a-f]+\r\n", b"", r.got).split(b"\n\n")
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "service_stopping"
        assert done == b"data: [DONE]"
        assert r.got.endswith(b"0\r\n\r\n"), "the chunked coding ends in order"
    waiting.join(20)
    assert b" 503 " in waiting.got[:20] and b"service_stopping" in waiting.got
