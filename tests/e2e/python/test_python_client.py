"""quern.Client: jobs, streams that survive any loss, refusals, time limits, keys, and peers that are not quern."""

import os
import random
import re
import signal
import socket
import subprocess
import threading
import time

import msgpack
import pytest
import zmq

import quern
from service import DEMO, QUERN, eventually, free_port

PROMPT = "Once upon a time"
LONG = {"max_tokens": 1200, "seed": 5, "ignore_eos": True, "n": 2, "logprobs": 1}
# Far longer than a test waits: only a cancel or a loss ends it.
ENDLESS = {"max_tokens": 2000, "n": 64, "ignore_eos": True}


def joined(deltas, result):
    """Check that the joined deltas of each output equal the outputs of the result."""
    for o in result.outputs:
        mine = [d for d in deltas if d.index == o.index]
        at = 0
        for d in mine:
            assert d.offset == at
            at += len(d.tokens)
        assert [t for d in mine for t in d.tokens] == o.tokens
        assert "".join(d.text for d in mine) == o.text
        if o.logprobs is not None:
            assert [p for d in mine for p in d.logprobs] == o.logprobs


def same(a, b):
    assert a.outputs == b.outputs and a.prompt_logprobs == b.prompt_logprobs


# --- jobs ---

def test_deltas_join_to_the_result(py):
    job = py.submit(PROMPT, quern.SamplingParams(n=3, max_tokens=30, seed=4, logprobs=2, temperature=1.0))
    deltas = list(job)
    result = job.result()
    joined(deltas, result)
    assert len(result.outputs) == 3 and job.id == result.job and job.prompt_tokens == result.prompt_tokens == 4
    assert result.completion_tokens == sum(len(o.tokens) for o in result.outputs)
    assert list(job) == [] and py.result(job.id).outputs == result.outputs


def test_a_result_leaves_deltas_to_be_read(py):
    job = py.submit(PROMPT, {"max_tokens": 9, "seed": 1})
    result = job.result()
    joined(list(job), result)


def test_the_same_as_by_the_tests_own_client(py, client):
    keys = dict(max_tokens=20, seed=11, n=2, logprobs=1, prompt_logprobs=1, stop=["a"])
    got, want = py.generate(PROMPT, keys), client.generate(PROMPT, **keys)
    assert [(o.text, o.tokens, o.finish_reason, o.stop_reason, o.logprobs) for o in got.outputs] == \
        [(o["text"], o["tokens"], o["finish_reason"], o["stop_reason"], o["logprobs"]) for o in want.outputs]
    assert got.prompt_logprobs == want.reply["prompt_logprobs"]


def test_prompts_tokens_and_messages(py):
    ids = py.tokenize(PROMPT, add_special=True)
    assert py.generate(PROMPT, {"max_tokens": 5, "seed": 1}).text == \
        py.generate(tokens=ids, params={"max_tokens": 5, "seed": 1}).text
    chat = [{"role": "user", "content": "Hi"}]
    assert py.generate(messages=chat, params={"max_tokens": 5, "seed": 1}).text == \
        py.generate(tokens=py.tokenize_chat(chat), params={"max_tokens": 5, "seed": 1}).text
    for wrong in ({}, {"prompt": "a", "tokens": [1]}):
        with pytest.raises(ValueError, match="exactly one of prompt, tokens and messages"):
            py.submit(**wrong)


def test_calls_with_one_reply(py):
    assert py.ping()["model"] == "demo" and py.status()["ready"] is True
    assert [w["state"] for w in py.workers()] == ["serving"]
    ids = py.tokenize("One two")
    assert py.detokenize(ids) == "".join(py.pieces(ids)) == "One two"
    job = py.submit(PROMPT, {"max_tokens": 3})
    job.result()
    assert job.id in [row["job"] for row in py.jobs()]
    py.cancel(job.id)


def test_a_block_that_is_left_cancels_its_job(py, service):
    with py.submit(PROMPT, ENDLESS) as job:
        next(job)
    assert eventually(lambda: [r for r in py.jobs() if r["job"] == job.id and r["state"] == "done"])[0]["cancelled"]


def test_a_job_that_is_left_before_it_is_accepted_is_cancelled(py, service):
    for _ in range(20):
        py.submit(PROMPT, ENDLESS, user="left").close()
    py.ping()
    service.idle()      # jobs abandoned before they were sent are unknown to the service
    assert all(r["cancelled"] for r in py.jobs() if r.get("user") == "left")


def test_a_cancelled_job_ends_in_abort(py):
    job = py.submit(PROMPT, ENDLESS)
    job.cancel()
    assert job.result().finish_reason == "abort"


def test_a_client_that_closes_leaves_nothing_running(service):
    client = quern.Client(service.jobs)
    jobs = [client.submit(PROMPT, {**ENDLESS, "n": 4}) for _ in range(10)]     # the jobs run together
    next(jobs[-1])
    client.close()
    service.idle()
    with pytest.raises(quern.ConnectionLost, match="closed"):
        jobs[0].result()
    with pytest.raises(quern.ConnectionLost, match="closed"):
        client.ping()


def test_a_key_is_one_job(py):
    first = py.generate(PROMPT, {"max_tokens": 4, "seed": 1}, key="mine")
    assert py.generate(PROMPT, {"max_tokens": 4, "seed": 1}, key="mine").job == first.job
    with pytest.raises(quern.BadRequest, match="mine"):
        py.generate("Another", {"max_tokens": 4, "seed": 1}, key="mine")


def test_threads_share_a_client(py):
    texts = {}

    def work(i):
        texts[i] = [py.generate(f"{PROMPT} {i}", {"max_tokens": 6, "seed": i}).text for _ in range(5)]
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(8):
        assert set(texts[i]) == {py.generate(f"{PROMPT} {i}", {"max_tokens": 6, "seed": i}).text}


# --- errors ---

def test_an_error_names_code_field_and_reason(py):
    with pytest.raises(quern.BadRequest) as e:
        py.generate(PROMPT, {"temperature": -1})
    assert (e.value.code, e.value.field, e.value.reason) == \
        ("E_BAD_REQUEST", "temperature", "temperature is -1, must be from 0 to 1000")
    assert isinstance(e.value, ValueError) and isinstance(e.value, quern.QuernError)
    with pytest.raises(quern.BadRequest) as e:
        py.generate(PROMPT, {"nonsense": 1})
    assert e.value.field == "nonsense"
    with pytest.raises(quern.TooLong) as e:
        py.generate(PROMPT, {"max_tokens": 100000})
    assert e.value.code == "E_TOO_LONG"
    with pytest.raises(quern.NoSuchJob):
        py.attach("0" * 32).result()
    with pytest.raises(quern.NoSuchJob):
        py.result("0" * 32)
    job = py.submit(PROMPT, {"max_tokens": 2000, "ignore_eos": True, "n": 64})
    with pytest.raises(quern.NotReady):
        py.result(job.id)
    job.close()
    with pytest.raises(quern.DeadlineExceeded) as e:
        py.generate(PROMPT, {"max_tokens": 2000, "ignore_eos": True, "n": 8}, deadline_ms=1)
    assert e.value.job


@pytest.mark.parametrize("params", [{"seed": 1 << 80}, {"stop": [object()]}, {"stop": ["\ud800"]}])
def test_what_cannot_be_packed_is_an_error_of_the_caller(py, params):
    with pytest.raises(ValueError, match="params: cannot be sent"):
        py.generate(PROMPT, params)


@pytest.mark.parametrize("mib", [17, 40])
def test_a_request_that_is_too_large_is_refused_once(py, mib):
    """Otherwise the service would disconnect its client, which would send the request again and again."""
    with pytest.raises(quern.TooLong, match="may have 16777216"):
        py.generate("x" * (mib << 20), {"max_tokens": 1})
    assert py.ping()["ready"]


def test_no_service():
    address = f"tcp://127.0.0.1:{free_port()}"
    with quern.Client(address, connect_timeout=0.3) as c, pytest.raises(quern.ConnectionLost, match="quern serve MODEL"):
        c.ping()
    with pytest.raises(ValueError, match="not an address"):
        quern.Client("nonsense")


def test_an_http_address_is_not_a_job_socket(service):
    with quern.Client(service.http.replace("http", "tcp"), connect_timeout=7) as c, \
            pytest.raises(quern.ConnectionLost, match="not as a job socket"):
        c.ping()


class Fake:
    """A peer that answers each request with the frames that a function returns."""

    def __init__(self, answer):
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.linger = 0
        self.address = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.answer, self.over = answer, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over:
            if self.socket.poll(20):
                route, body = self.socket.recv_multipart()
                for frame in self.answer(msgpack.unpackb(body)):
                    self.socket.send_multipart([route, frame])

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.over = True
        self.thread.join()
        self.socket.close()


def test_a_call_has_a_time_limit():
    with Fake(lambda r: []) as peer, quern.Client(peer.address, timeout=0.2) as c:
        with pytest.raises(quern.RequestTimeout, match="ping within 0.2 s"):
            c.ping()
        with pytest.raises(TimeoutError):
            next(c.submit(PROMPT, timeout=0.2))
        with pytest.raises(quern.RequestTimeout):
            c.submit(PROMPT).result(timeout=0.1)


@pytest.mark.parametrize("frame", [
    b"", b"\xc1", b"\x01", b"\x81\xa2id", msgpack.packb([1, 2]), msgpack.packb({"op": "ok"}), msgpack.packb({"id": [1], "op": "ok"}),
    b"\x81\xa2op\xa2\xff\xff",
])
def test_a_peer_that_sends_nonsense(frame):
    with Fake(lambda r: [frame]) as peer, quern.Client(peer.address) as c, pytest.raises(quern.ProtocolError):
        c.ping()


@pytest.mark.parametrize("reply", [
    {"op": "done"}, {"op": "done", "job": "a", "outputs": None, "usage": {}}, {"op": "delta", "index": "x"},
    {"op": "accepted"}, {"op": "delta", "index": 0, "offset": 0, "tokens": 7},
])
def test_a_peer_that_sends_malformed_replies(reply):
    with Fake(lambda r: [msgpack.packb({**reply, "id": r["id"]})]) as peer, quern.Client(peer.address) as c, \
            pytest.raises((quern.ProtocolError, KeyError, TypeError)) as e:
        c.submit(PROMPT).result(timeout=5)
    assert isinstance(e.value, quern.ProtocolError)


# --- losses ---

def test_an_attached_stream_waits_for_a_service_that_ends_gracefully():
    asked = []

    def answer(r):
        asked.append(r)
        first = [{"op": "delta", "job": "a", "index": 0, "offset": 0, "text": "x", "tokens": [7]},
                 {"op": "error", "code": "E_NOT_READY", "message": "the service is stopping"}]
        end = [{"op": "done", "job": "a", "usage": {"prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0},
                "outputs": [{"index": 0, "text": "x", "tokens": [7], "finish_reason": "stop"}]}]
        return [msgpack.packb({**reply, "id": r["id"]}) for reply in (first if len(asked) == 1 else end)]
    with Fake(answer) as peer, quern.Client(peer.address) as c:
        job = c.attach("a", [0])
        assert [d.text for d in job] == ["x"] and job.result(timeout=5).text == "x"
    assert [r.get("from") for r in asked] == [[0], [1]]


def test_a_job_that_is_cancelled_by_its_id_after_a_loss_is_not_run_again(journaled):
    proxy = Cutter(journaled.jobs, [3000])
    try:
        with quern.Client(proxy.address) as c:
            job = c.submit(PROMPT, ENDLESS, on_disconnect="keep")
            while not proxy.cuts:
                next(job)
            c.cancel(job.id)
            assert job.result(timeout=30).finish_reason == "abort"
    finally:
        proxy.close()


@pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
@pytest.mark.parametrize("victim", ["quern-contr", "quern-worker"])
def test_a_stream_survives_kill_9(start, tmp_path, victim, durable):
    s = start(DEMO, "--journal", tmp_path / "j")
    with quern.Client(s.jobs) as c:
        reference = c.generate(PROMPT, LONG)
        job, deltas = c.submit(PROMPT, LONG, durable=durable), []
        for i, d in enumerate(job):
            deltas.append(d)
            if i == 100:
                s.kill(victim)
        result = job.result()
    joined(deltas, result)
    same(result, reference)


@pytest.mark.parametrize("graceful", [True, False], ids=["ended", "killed"])
def test_a_durable_stream_survives_a_restart_of_everything(start, tmp_path, graceful):
    options = ("--journal", tmp_path / "j", "--jobs", f"ipc://{tmp_path}/jobs")
    s = start(DEMO, *options)
    with quern.Client(s.jobs) as c:
        reference = c.generate(PROMPT, LONG)
        job = c.submit(PROMPT, LONG, durable=True)
        deltas = [next(job) for _ in range(100)]
        if graceful:
            s.end()
        else:
            s.kill()
        start(DEMO, *options)
        deltas += job
        joined(deltas, job.result())
        same(job.result(), reference)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_plain_job_goes_on_after_the_service_has_ended_and_is_back(start, tmp_path, stream):
    options = ("--jobs", f"ipc://{tmp_path}/jobs")
    s = start(DEMO, *options)
    with quern.Client(s.jobs) as c:
        reference = c.generate(PROMPT, LONG)
        pid = s.workers()[0]["pid"]
        mine = c.submit(PROMPT, ENDLESS, stream=stream, key="mine")
        job = c.submit(PROMPT, LONG, stream=stream)
        deltas = [next(job) for _ in range(3)] if stream else []
        os.kill(pid, signal.SIGSTOP)      # neither may end before the service does
        assert job.id and mine.id
        s.end()
        with pytest.raises(quern.NotReady, match="the service ended before the job did") as e:
            mine.result()
        assert e.value.job == mine.id
        start(DEMO, *options)
        deltas += job
        result = job.result()
    if stream:
        joined(deltas, result)
    same(result, reference)


def test_a_result_without_a_stream_survives_too(start, tmp_path):
    s = start(DEMO)
    with quern.Client(s.jobs) as c:
        reference = c.generate(PROMPT, LONG)
        job = c.submit(PROMPT, LONG, stream=False)
        assert job.id
        s.kill("quern-contr")
        same(job.result(), reference)


def test_calls_wait_for_the_service_to_come_back(start):
    s = start(DEMO)
    with quern.Client(s.jobs) as c:
        assert c.ping()
        for _ in range(3):
            s.kill("quern-contr")
            assert c.ping()["model"] == "demo"


def test_a_service_that_does_not_come_back(start):
    s = start(DEMO)
    with quern.Client(s.jobs, reconnect_timeout=0.5) as c:
        job = c.submit(PROMPT, ENDLESS)
        next(job)
        s.kill()
        with pytest.raises(quern.ConnectionLost, match="did not come back within 0.5 s"):
            job.result()


class Cutter:
    """A proxy to a TCP address that cuts each of its first connections after some bytes of replies."""

    def __init__(self, address, lengths):
        host, port = re.fullmatch(r"tcp://(.*):(\d+)", address).groups()
        self.to, self.lengths, self.cuts = (host, int(port)), list(lengths), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                a, _ = self.listener.accept()
            except OSError:
                return
            b = socket.create_connection(self.to)
            left = self.lengths.pop(0) if self.lengths else None
            threading.Thread(target=self.pump, args=(a, b, None), daemon=True).start()
            threading.Thread(target=self.pump, args=(b, a, left), daemon=True).start()

    def pump(self, source, sink, left):
        try:
            while data := source.recv(4096 if left is None else min(4096, left)):
                sink.sendall(data)
                if left is not None:
                    left -= len(data)
                    if left == 0:
                        self.cuts += 1
                        break
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


@pytest.mark.parametrize("options", [{}, {"durable": True}, {"on_disconnect": "keep"}], ids=["plain", "durable", "kept"])
def test_nothing_is_lost_and_nothing_comes_twice_over_a_connection_that_is_cut(journaled, options):
    params = {"max_tokens": 300, "seed": 9, "ignore_eos": True, "n": 3, "logprobs": 1}
    rng = random.Random(17)
    proxy = Cutter(journaled.jobs, [rng.randrange(200, 9000) for _ in range(25)])
    with quern.Client(journaled.jobs) as c:
        reference = c.generate(PROMPT, params)
    try:
        with quern.Client(proxy.address) as c:
            job = c.submit(PROMPT, params, **options)
            deltas = list(job)
            joined(deltas, job.result())
            same(job.result(), reference)
            assert proxy.cuts >= 5
            rest = list(c.attach(job.id, [100, 300, 7]))
            assert [sum(len(d.tokens) for d in rest if d.index == i) for i in range(3)] == [200, 0, 293]
            assert c.attach(job.id, 290).result() == c.result(job.id)
    finally:
        proxy.close()


def test_an_attach_to_a_job_of_unknown_size_is_resumed(journaled):
    params = {"max_tokens": 400, "seed": 9, "ignore_eos": True, "n": 3}
    with quern.Client(journaled.jobs) as c:
        done = c.generate(PROMPT, params)
        proxy = Cutter(journaled.jobs, [3000, 5000, 2500])
        try:
            with quern.Client(proxy.address) as cut:
                job = cut.attach(done.job, 20)
                deltas = list(job)
        finally:
            proxy.close()
        assert proxy.cuts >= 1
        for o in done.outputs:
            mine = [d for d in deltas if d.index == o.index]
            assert mine[0].offset == 20 and [t for d in mine for t in d.tokens] == o.tokens[20:]


def test_another_process_takes_a_stream_over(journaled):
    """Also if more has arrived than was read."""
    params = {**LONG, "max_tokens": 100, "n": 4}    # two deltas are at most two of the outputs
    with quern.Client(journaled.jobs) as c:
        job = c.submit(PROMPT, params, durable=True)
        assert job.offsets == 0
        head = [next(job)]
        job.result()
        head.append(next(job))
        job_id, offsets = job.id, job.offsets
        assert sum(offsets) == sum(len(d.tokens) for d in head) < 400 and len(offsets) == 4
    with quern.Client(journaled.jobs) as c:
        second = c.attach(job_id, offsets)
        joined(head + list(second), second.result())
        assert second.offsets == [100] * 4


# --- keys ---

@pytest.fixture
def keyed(tmp_path, start):
    for name in ("service", "alice", "mallory"):
        subprocess.run([QUERN, "keygen", "--out", tmp_path, "--name", name], check=True, capture_output=True, timeout=30)
    public = re.search(r"^public = (.*)$", (tmp_path / "alice.pub").read_text(), re.M)[1]
    (tmp_path / "allow").write_text(f"client {public} alice\n")
    (tmp_path / "allow").chmod(0o600)
    return start(DEMO, "--curve-key", tmp_path / "service.key", "--allow", tmp_path / "allow")


def test_keys(keyed, tmp_path):
    alice, mallory = (quern.Keys.load(tmp_path / f"{n}.key", tmp_path / "service.pub") for n in ("alice", "mallory"))
    assert alice.secret not in repr(alice)
    with quern.Client(keyed.jobs, keys=alice) as c:
        assert c.generate(PROMPT, {"max_tokens": 3}).completion_tokens == 3
        with pytest.raises(quern.AuthError):
            c.scale(2)
    began = time.monotonic()
    with quern.Client(keyed.jobs, keys=mallory) as c:
        for _ in range(2):    # the second request starts after the refusal
            with pytest.raises(quern.AuthError, match="--allow"):
                c.ping()
    with quern.Client(keyed.jobs, connect_timeout=5) as c, \
            pytest.raises(quern.ConnectionLost, match="not as a job socket of quern without keys"):
        c.ping()
    assert time.monotonic() - began < 60
    with pytest.raises(ValueError, match="no line \"secret"):
        quern.Keys.load(tmp_path / "alice.pub", tmp_path / "service.pub")
    with pytest.raises(ValueError, match="40 characters"):
        quern.Keys("a", "b", "c")


def test_where_a_service_listens_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "quern").mkdir(0o700)
    path = tmp_path / "quern" / "jobs"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
        s.listen()
        assert quern.default_address() == f"ipc://{path}"
        (tmp_path / "quern").chmod(0o755)
        assert quern.default_address() != f"ipc://{path}"
