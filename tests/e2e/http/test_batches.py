"""/v1/files and /v1/batches with OpenAI's own client."""

import io
import json
import os
import signal
import sqlite3
import time
import urllib.error
import urllib.request

import openai
import pytest

from service import DEMO, Service, eventually, marked

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    s = Service(DEMO, "--journal", tmp_path_factory.mktemp("batches") / "journal")
    yield s
    s.stop()


ALICE = "sk-alice-0123456789abcdef"


@pytest.fixture(params=["", ALICE], ids=["open", "keyed"])
def key(request):
    """Run without keys, and with a key: jobs then have an owner."""
    return request.param


def options_of(key, d):
    """Return --journal, and --api-key-file if there is a key."""
    if key:
        (d / "keys").write_text(key + " name=alice\n")
        (d / "keys").chmod(0o600)
    return ("--journal", d / "j", *(("--api-key-file", d / "keys") if key else ()))


def client_of(service, key=None):
    return openai.OpenAI(base_url=service.http + "/v1", api_key=key or "none", max_retries=0, timeout=60)


@pytest.fixture
def client(served):
    with client_of(served) as c:
        yield c


def line(i, url="/v1/chat/completions", **body):
    if url.endswith("chat/completions"):
        body = {"messages": [{"role": "user", "content": f"{PROMPT} {i}"}], **body}
    else:
        body = {"prompt": f"{PROMPT} {i}", **body}
    return {"custom_id": f"request-{i}", "method": "POST", "url": url,
            "body": {"model": "demo", "max_tokens": 8, "seed": i, **body}}


def upload(client, lines, purpose="batch", name="input.jsonl"):
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
    return client.files.create(file=(name, io.BytesIO(text.encode())), purpose=purpose)


def create(client, lines, endpoint="/v1/chat/completions", window="24h", **more):
    return client.batches.create(input_file_id=upload(client, lines).id, endpoint=endpoint,
                                 completion_window=window, **more)


ENDED = {"completed", "failed", "expired", "cancelled"}


def ended(client, batch, timeout=120):
    def look():
        b = client.batches.retrieve(batch.id)
        return b if b.status in ENDED else None
    return eventually(look, timeout, "the end of the batch")


def results(client, file_id):
    return [json.loads(x) for x in client.files.content(file_id).text.splitlines()] if file_id else []


# --- files ---

def test_a_file_comes_back_as_it_was(client):
    data = bytes(range(256)) * 5000
    f = client.files.create(file=("all bytes.bin", io.BytesIO(data)), purpose="batch")
    assert (f.object, f.bytes, f.filename, f.purpose, f.status) == \
        ("file", len(data), "all bytes.bin", "batch", "processed")
    assert f.id.startswith("file-") and abs(f.created_at - time.time()) < 60
    assert client.files.retrieve(f.id) == f
    assert client.files.content(f.id).content == data
    assert client.files.delete(f.id).deleted is True
    for gone in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            gone(f.id)


def test_an_empty_file_is_a_file(client):
    f = client.files.create(file=("empty", io.BytesIO(b"")), purpose="batch")
    assert f.bytes == 0 and client.files.content(f.id).content == b""


def test_files_are_listed_youngest_first_in_pages(client):
    made = [upload(client, [line(i)], name=f"{i}.jsonl").id for i in range(5)]
    listed = [f.id for f in client.files.list(limit=2)]     # the client requests page after page
    assert [i for i in listed if i in made] == made[::-1]
    assert [f.id for f in client.files.list(order="asc", limit=3) if f.id in made] == made
    assert all(f.purpose == "batch" for f in client.files.list(purpose="batch"))
    assert not client.files.list(purpose="vision").data


def test_expiry_of_a_file(client):
    f = client.files.create(file=("x", io.BytesIO(b"x")), purpose="batch",
                            expires_after={"anchor": "created_at", "seconds": 3600})
    assert f.expires_at == f.created_at + 3600


def post(service, body, content_type):
    """POST to /v1/files: (status, JSON)."""
    r = urllib.request.Request(service.http + "/v1/files", body, {"Content-Type": content_type})
    try:
        with urllib.request.urlopen(r, timeout=30) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def form(**fields):
    """Build a multipart body; a field that is a pair is a file's name and content."""
    parts = b""
    for name, value in fields.items():
        file, text = (f'; filename="{value[0]}"', value[1]) if isinstance(value, tuple) else ("", value)
        parts += f'--xyz\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{text}\r\n'.encode()
    return parts + b"--xyz--\r\n"


@pytest.mark.parametrize("body, word", [
    (form(purpose="assistants", file=("a", "x")), "purpose"),
    (form(file=("a", "x")), "purpose"),
    (form(purpose="p" * 100, file=("a", "x")), "too long"),
    (form(purpose="batch", other=("a", "x")), "file is missing"),
    (form(purpose="batch", file=("a", "x"), **{"expires_after[anchor]": "created_at", "expires_after[seconds]": "1"}),
     "expires_after"),
    (b"--abc\r\nnonsense", "file is missing"),
    (form(purpose="batch", file=("a", "x"))[:-30], "multipart"),
])
def test_an_invalid_upload_is_named(served, client, body, word):
    before = len(list(client.files.list()))
    status, reply = post(served, body, "multipart/form-data; boundary=xyz")
    assert status == 400 and word in reply["error"]["message"], reply
    assert len(list(client.files.list())) == before


def test_an_upload_must_be_a_form(served):
    assert post(served, b"{}", "application/json")[0] == 415


def test_a_file_that_is_too_large_is_refused(tmp_path):
    s = Service(DEMO, "--journal", tmp_path / "j", "--max-file-bytes", "1M")
    try:
        with client_of(s) as c:
            with pytest.raises(openai.APIStatusError) as e:
                c.files.create(file=("a", io.BytesIO(b"x" * (3 << 20))), purpose="batch")
            assert e.value.status_code == 413
            assert c.files.create(file=("a", io.BytesIO(b"x" * (1 << 20))), purpose="batch").bytes == 1 << 20
            assert len(list(c.files.list())) == 1
    finally:
        s.stop()


def test_a_full_journal_refuses_files(tmp_path):
    s = Service(DEMO, "--journal", tmp_path / "j", "--journal-bytes", "4M")
    try:
        with client_of(s) as c:
            kept = []
            with pytest.raises(openai.RateLimitError) as e:
                for _ in range(20):
                    kept.append(c.files.create(file=("a", io.BytesIO(b"x" * (1 << 20))), purpose="batch").id)
            assert 4 <= len(kept) < 10 and "--journal-bytes" in e.value.message
            for f in kept:
                c.files.delete(f)

            def taken():
                try:
                    return c.files.create(file=("a", io.BytesIO(b"x")), purpose="batch")
                except openai.RateLimitError:
                    return None
            eventually(taken, 30, "room for a file")
    finally:
        s.stop()


def test_without_a_journal_files_are_not_implemented(service):
    with client_of(service) as c, pytest.raises(openai.APIStatusError) as e:
        c.files.list()
    assert e.value.status_code == 501 and "--journal" in e.value.message


# --- batches ---

def test_a_batch_of_chats(client):
    n = 20
    b = create(client, [line(i, temperature=1.0) for i in range(n)], metadata={"team": "me"})
    assert (b.object, b.endpoint, b.completion_window) == ("batch", "/v1/chat/completions", "24h")
    assert b.status == "validating" and b.metadata == {"team": "me"} and b.expires_at == b.created_at + 86400
    b = ended(client, b)
    assert b.status == "completed" and b.error_file_id is None and b.errors is None
    assert (b.request_counts.total, b.request_counts.completed, b.request_counts.failed) == (n, n, 0)
    assert b.created_at <= b.in_progress_at <= b.finalizing_at <= b.completed_at
    got = results(client, b.output_file_id)
    assert [r["custom_id"] for r in got] == [f"request-{i}" for i in range(n)]
    for i in (0, 7, n - 1):
        assert got[i]["error"] is None and got[i]["response"]["status_code"] == 200
        body = got[i]["response"]["body"]
        direct = client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": f"{PROMPT} {i}"}], max_tokens=8, seed=i, temperature=1.0)
        assert body["object"] == "chat.completion"
        assert body["choices"][0]["message"]["content"] == direct.choices[0].message.content
        assert body["usage"]["completion_tokens"] == direct.usage.completion_tokens
    output = client.files.retrieve(b.output_file_id)
    assert output.purpose == "batch_output" and output.filename.endswith("_output.jsonl")


def test_a_batch_of_completions_with_several_prompts_and_choices(client):
    url = "/v1/completions"
    b = ended(client, create(client, [line(0, url), line(1, url, prompt=["The dog", "The cat"], n=2)], endpoint=url))
    got = results(client, b.output_file_id)
    assert b.status == "completed" and len(got) == 2
    assert len(got[0]["response"]["body"]["choices"]) == 1
    assert [c["index"] for c in got[1]["response"]["body"]["choices"]] == [0, 1, 2, 3]


def test_jobs_of_a_line_leave_the_journal_with_its_result(tmp_path, key):
    """Also the jobs of a line with several prompts: each prompt is its own job."""
    s = Service(DEMO, *options_of(key, tmp_path))
    try:
        with client_of(s, key) as c:
            url = "/v1/completions"
            lines = [line(0, url), line(1, url, prompt=["Once", "Twice", "Thrice"])]
            assert ended(c, create(c, lines, url)).status == "completed"
        db = sqlite3.connect(tmp_path / "j")
        assert db.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
        db.close()
    finally:
        s.stop()


def test_lines_that_fail_go_to_the_error_file(client):
    lines = [line(0), line(1, max_tokens=-1), line(2, model="other"), line(3, stream=True), line(4)]
    b = ended(client, create(client, lines))
    assert b.status == "completed"
    assert (b.request_counts.completed, b.request_counts.failed) == (2, 3)
    assert [r["custom_id"] for r in results(client, b.output_file_id)] == ["request-0", "request-4"]
    bad = results(client, b.error_file_id)
    assert [(r["custom_id"], r["response"]["status_code"]) for r in bad] == \
        [("request-1", 400), ("request-2", 404), ("request-3", 400)]
    assert "max_tokens" in bad[0]["response"]["body"]["error"]["message"]


@pytest.mark.parametrize("lines, code, number", [
    ([line(0), "{nonsense"], "invalid_json_line", 2),
    ([line(0), line(0)], "duplicate_custom_id", 2),
    ([{**line(0), "url": "/v1/completions"}], "invalid_url", 1),
    ([{**line(0), "method": "GET"}], "invalid_method", 1),
    ([{k: v for k, v in line(0).items() if k != "custom_id"}], "missing_required_parameter", 1),
    ([{k: v for k, v in line(0).items() if k != "body"}], "missing_required_parameter", 1),
    ([], "empty_file", 0),
])
def test_an_invalid_input_file_fails_with_the_line(client, lines, code, number):
    b = ended(client, create(client, lines))
    assert b.status == "failed" and b.output_file_id is None
    assert [(e.code, e.line) for e in b.errors.data] == [(code, number)]


@pytest.mark.parametrize("change, word", [
    ({"endpoint": "/v1/messages"}, "endpoint"), ({"completion_window": "soon"}, "completion_window"),
    ({"input_file_id": "file-none"}, "input_file_id"), ({"metadata": {"k": "v" * 600}}, "metadata"),
])
def test_an_invalid_batch_is_refused_by_name(client, change, word):
    keys = {"input_file_id": upload(client, [line(0)]).id, "endpoint": "/v1/chat/completions",
            "completion_window": "24h", **change}
    with pytest.raises(openai.BadRequestError) as e:
        client.batches.create(**keys)
    assert word in e.value.message and e.value.param == word


def test_batches_are_listed_youngest_first(client):
    made = [create(client, [line(i)]).id for i in range(4)]
    listed = [b.id for b in client.batches.list(limit=3)]
    assert [i for i in listed if i in made] == made[::-1]
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("batch_none")


def test_a_cancelled_batch_ends(client):
    b = create(client, [line(i, max_tokens=1500, ignore_eos=True) if i else line(i) for i in range(300)])
    eventually(lambda: client.batches.retrieve(b.id).status == "in_progress", 60, "a batch that runs")
    eventually(lambda: client.batches.retrieve(b.id).request_counts.completed, 60, "a line that is done")
    assert client.batches.cancel(b.id).status in ("cancelling", "cancelled")
    b = ended(client, b)
    assert b.status == "cancelled" and b.cancelling_at <= b.cancelled_at
    got = results(client, b.output_file_id)
    assert len(got) == b.request_counts.completed < 300
    assert "request-0" in [r["custom_id"] for r in got]
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(b.id)


def test_a_batch_that_is_late_expires(client):
    lines = [line(0)] + [line(i, max_tokens=1900, ignore_eos=True) for i in range(1, 600)]
    b = ended(client, create(client, lines, window="3s"))
    assert b.status == "expired"
    assert b.request_counts.completed + b.request_counts.failed == b.request_counts.total == 600
    late = results(client, b.error_file_id)
    assert len(late) == b.request_counts.failed > 0
    assert late[-1]["response"] is None and late[-1]["error"]["code"] == "batch_expired"


def test_interactive_requests_are_not_delayed(served, client):
    b = create(client, [line(i, max_tokens=400, ignore_eos=True) for i in range(400)])
    eventually(lambda: client.batches.retrieve(b.id).status == "in_progress", 60, "a batch that runs")
    assert served.status()["waiting"] <= 64, "the batch fills the queue"
    client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "hi"}], max_tokens=4)
    assert client.batches.retrieve(b.id).status == "in_progress"
    client.batches.cancel(b.id)
    ended(client, b)


# --- kills and restarts ---

def test_a_batch_survives_everything(tmp_path):
    n = 60
    lines = [line(i, max_tokens=120, ignore_eos=True, temperature=1.0) for i in range(n)]
    start = lambda: Service(DEMO, "--journal", tmp_path / "j")
    s = start()
    try:
        with client_of(s) as c:
            reference = ended(c, create(c, lines))
            expected = {r["custom_id"]: r["response"]["body"]["choices"] for r in results(c, reference.output_file_id)}
            b = create(c, lines)
            time.sleep(0.3)
        kill_all(s)
        s = start()
        (pid,) = [p for p, name in marked(s.mark).items() if name.startswith("quern-contr")]
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: [p for p, name in marked(s.mark).items() if name.startswith("quern-contr") and p != pid],
                   60, "a new controller")

        def look():
            try:
                with client_of(s) as c:
                    return ended(c, b)
            except (openai.APIConnectionError, openai.InternalServerError):     # or it does not know its batches yet
                return None
        b = eventually(look, 120, "the end of the batch")
        with client_of(s) as c:
            got = results(c, b.output_file_id)
            assert [r["custom_id"] for r in got] == [f"request-{i}" for i in range(n)]
            assert {r["custom_id"]: r["response"]["body"]["choices"] for r in got} == expected
            assert c.batches.retrieve(reference.id).status == "completed"
            assert len(results(c, reference.output_file_id)) == n
            rows = s.client().call("jobs")["jobs"]
            assert not [r for r in rows if r["state"] in ("queued", "running")]
    finally:
        s.stop()


def test_a_batch_waits_for_the_next_start_while_a_service_ends(tmp_path):
    """A long request delays the end of a service for seconds, during which new lines would be refused. No line may fail
    because of it."""
    n = 300
    start = lambda *options, **kwargs: Service(DEMO, "--journal", tmp_path / "j", *options, **kwargs)
    # Slow on any machine: 300 lines of 100 tokens, 8 at a time, take 15 s.
    s = start("--drain-timeout", "600", "--max-seqs", "8", step_ms=4)
    try:
        with client_of(s) as c, s.client() as jobs:
            b = create(c, [line(i, max_tokens=100, ignore_eos=True) for i in range(n)])
            eventually(lambda: c.batches.retrieve(b.id).request_counts.completed >= 10, 60, "lines that are done")
            request = jobs.submit(PROMPT, max_tokens=250, ignore_eos=True, n=2)
            request.first_delta()
            s.process.send_signal(signal.SIGTERM)
            eventually(lambda: "waiting for running requests" in s.log(), what="a service that waits")
            before = c.batches.retrieve(b.id).request_counts.completed
            assert before < n
            assert {o["finish_reason"] for o in request.done().outputs} == {"length"}
        assert s.process.wait(60) == 0
        s.stop()
        s = start()
        with client_of(s) as c:
            b = ended(c, b)
            assert (b.status, b.request_counts.completed, b.request_counts.failed) == ("completed", n, 0)
            assert b.error_file_id is None and len(results(c, b.output_file_id)) == n
    finally:
        s.stop()


def half_done(client, **more):
    """A batch of which 10 lines are done, and 100 lines take long."""
    b = create(client, [line(i, **({"max_tokens": 1900, "ignore_eos": True} if i >= 10 else {})) for i in range(110)])
    eventually(lambda: client.batches.retrieve(b.id).request_counts.completed >= 10, 60, "lines that are done")
    return b


def kill_all(service):
    service.kill()
    service.stop()


def test_the_input_of_a_live_batch_stays(tmp_path):
    s = Service(DEMO, "--journal", tmp_path / "j")
    try:
        with client_of(s) as c:
            b = half_done(c)
            with pytest.raises(openai.ConflictError) as e:
                c.files.delete(b.input_file_id)
            assert b.id in e.value.message and "cancel" in e.value.message
            assert len(c.files.content(b.input_file_id).text.splitlines()) == 110
            unused = upload(c, [line(0)]).id
        kill_all(s)
        db = sqlite3.connect(tmp_path / "j")
        with db:    # time passes
            db.execute("UPDATE files SET expires_at = 1000000000")
        db.close()
        s = Service(DEMO, "--journal", tmp_path / "j")
        with client_of(s) as c:
            db = sqlite3.connect(tmp_path / "j")
            there = lambda table, name, id: db.execute(f"SELECT 1 FROM {table} WHERE {name} = ?", (id,)).fetchone()
            eventually(lambda: not there("files", "id", unused), 60, "the sweep of an unused file")
            assert there("files", "id", b.input_file_id) and there("chunks", "file", b.input_file_id)
            db.close()
            c.batches.cancel(b.id)
            b = ended(c, b)
            assert b.status == "cancelled" and b.request_counts.total == 110 and b.error_file_id is None
            assert {f"request-{i}" for i in range(10)} <= {r["custom_id"] for r in results(c, b.output_file_id)}
        kill_all(s)
        s = Service(DEMO, "--journal", tmp_path / "j")
        db = sqlite3.connect(tmp_path / "j")
        eventually(lambda: not db.execute("SELECT 1 FROM files WHERE id = ?", (b.input_file_id,)).fetchone(), 60,
                   "the sweep of an unused input")
        db.close()
    finally:
        s.stop()


def test_a_lost_input_costs_only_unfinished_lines(tmp_path):
    s = Service(DEMO, "--journal", tmp_path / "j")
    try:
        with client_of(s) as c:
            b = half_done(c)
        kill_all(s)
        db = sqlite3.connect(tmp_path / "j")
        with db:
            n_done = db.execute("SELECT count(*) FROM lines").fetchone()[0]
            db.execute("DELETE FROM files")
            db.execute("DELETE FROM chunks")
        db.close()
        s = Service(DEMO, "--journal", tmp_path / "j")
        with client_of(s) as c:
            b = ended(c, b)
            assert b.status == "completed"
            assert (b.request_counts.completed, b.request_counts.failed) == (n_done, 110 - n_done)
            assert {f"request-{i}" for i in range(10)} <= {r["custom_id"] for r in results(c, b.output_file_id)}
            bad = results(c, b.error_file_id)
            assert all("input file" in r["response"]["body"]["error"]["message"] for r in bad)
        k = s.client()
        eventually(lambda: all(j["state"] in ("done", "failed") for j in k.jobs()), 60, "the end of what was under way")
        assert all(j["completion_tokens"] < j["max_tokens"] for j in k.jobs() if j["max_tokens"] == 1900)
    finally:
        s.stop()


def test_a_batch_that_expired_while_the_service_was_down_leaves_no_jobs(tmp_path, key):
    s = Service(DEMO, *options_of(key, tmp_path))
    try:
        with client_of(s, key) as c:
            b = half_done(c)
        kill_all(s)
        db = sqlite3.connect(tmp_path / "j")
        with db:    # its window passes
            db.execute("UPDATE batches SET object = json_set(object, '$.expires_at', 1000000000)")
            left = {i for i, in db.execute("SELECT id FROM jobs WHERE state = 0")}
        db.close()
        assert left, "no job was under way"
        s = Service(DEMO, *options_of(key, tmp_path))
        with client_of(s, key) as c:
            assert ended(c, b).status == "expired"
        def ends():
            with sqlite3.connect(tmp_path / "j") as db:
                rows = db.execute("SELECT id, state, cancelled FROM jobs").fetchall()
            return [r for r in rows if r[0] in left]
        eventually(lambda: all(state == 1 for _, state, _ in ends()), 60, "the end of what was under way")
        assert {i for i, _, _ in ends()} == left and all(cancelled for _, _, cancelled in ends())
        jobs = [j for j in s.client().jobs() if j["job"] in left]
        assert {j["job"] for j in jobs} == (set() if key else left)
        assert all(j["completion_tokens"] < j["max_tokens"] for j in jobs)
    finally:
        s.stop()


def test_keys_do_not_see_each_other(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-alice-0123456789abcdef name=alice\nsk-bob-0123456789abcdef name=bob\n")
    keys.chmod(0o600)
    s = Service(DEMO, "--journal", tmp_path / "j", "--api-key-file", keys)
    try:
        alice, bob = (openai.OpenAI(base_url=s.http + "/v1", api_key=f"sk-{n}-0123456789abcdef", max_retries=0,
                                    timeout=60) for n in ("alice", "bob"))
        b = ended(alice, create(alice, [line(i) for i in range(3)]))
        assert b.status == "completed" and len(results(alice, b.output_file_id)) == 3
        assert not bob.files.list().data and not bob.batches.list().data
        for ask in (lambda: bob.files.retrieve(b.input_file_id), lambda: bob.files.content(b.output_file_id),
                    lambda: bob.batches.retrieve(b.id), lambda: bob.batches.cancel(b.id),
                    lambda: bob.files.delete(b.output_file_id)):
            with pytest.raises(openai.NotFoundError):
                ask()
        with pytest.raises(openai.BadRequestError):
            bob.batches.create(input_file_id=b.input_file_id, endpoint="/v1/chat/completions", completion_window="24h")
        alice.close(), bob.close()
    finally:
        s.stop()
