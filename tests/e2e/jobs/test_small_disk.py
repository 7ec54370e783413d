"""A journal on a disk of 16 MiB, filled by uploads or by other programs: the service keeps running and loses no durable
job, deletes always work, and a restart serves."""

import ctypes
import errno
import json
import os
import threading
import urllib.error
import urllib.request
import uuid

import pytest

from jobclient import JobError
from service import DEMO, Service, eventually

MIB = 1 << 20
LONG = {"max_tokens": 300, "ignore_eos": True, "seed": 5, "temperature": 1.0}
PROMPT = "Once upon a time"

_libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE, MS_REMOUNT, MS_RDONLY, MNT_DETACH = 0x20000, 0x4000, 1 << 18, 32, 1, 2


def _mount(source, target, kind, flags, data):
    if _libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), data):
        raise OSError(ctypes.get_errno(), "mount")


class Disk:
    """A file system in memory, visible to this process and its children only."""

    def __init__(self, path, mib=16):
        self.path = path
        if _libc.unshare(CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        _mount(None, "/", None, MS_REC | MS_PRIVATE, None)
        _mount(b"quern-test", path, b"tmpfs", 0, b"size=%dm" % mib)

    def free(self):
        st = os.statvfs(self.path)
        return st.f_bavail * st.f_frsize

    def fill(self, left=0):
        """Fill the disk until this many bytes are left, as other programs would."""
        try:
            with open(self.path / "others", "ab", buffering=0) as f:
                while self.free() > left:
                    f.write(bytes(4096))
        except OSError:
            pass
        assert self.free() <= left

    def empty(self):
        (self.path / "others").unlink()

    def read_only(self, on):
        """A killed process may hold its files a moment longer than its memory: the disk is busy until then."""
        def mounted():
            try:
                _mount(None, self.path, None, MS_REMOUNT | (MS_RDONLY if on else 0), None)
            except OSError as e:
                if e.errno != errno.EBUSY:
                    raise
                return False
            return True
        eventually(mounted, what="a disk that is not written to")

    def unmount(self):
        _libc.umount2(os.fsencode(self.path), MNT_DETACH)


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    try:
        d = Disk(path)
    except OSError as e:
        pytest.skip(f"a file system cannot be mounted here: {e}")
    yield d
    d.unmount()


@pytest.fixture
def serve(disk):
    started = []

    def start(*options):
        started.append(Service(DEMO, "--journal", disk.path / "journal", *options))
        return started[-1]
    yield start
    for s in started:
        s.stop()


def ask(s, method, path, body=None, kind="application/json"):
    """Send a request: (status, object)."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    r = urllib.request.Request(s.http + path, data, {"Content-Type": kind} if data else {}, method=method)
    try:
        with urllib.request.urlopen(r, timeout=120) as f:
            return f.status, json.load(f)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def upload(s, content):
    mark = uuid.uuid4().hex
    head = (f'--{mark}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{mark}\r\n'
            'Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n')
    body = head.encode() + content + f"\r\n--{mark}--\r\n".encode()
    return ask(s, "POST", "/v1/files", body, f"multipart/form-data; boundary={mark}")


def fill_with_uploads(s):
    """Upload files, the larger sizes first, until one is refused. Return the accepted ids in order, and the refusal."""
    ids = []
    for size in (MIB, MIB // 8):
        while (answer := upload(s, b"x" * size))[0] == 200:
            ids.append(answer[1]["id"])
            assert len(ids) < 64, "more than the disk can hold"
    return ids, *answer


def complete(s, prompt=PROMPT):
    return ask(s, "POST", "/v1/completions", {"model": "demo", "prompt": prompt, "max_tokens": 4})


class Interactive(threading.Thread):
    """A client that sends one request after another. errors: the refusals that it got."""

    def __init__(self, service):
        super().__init__()
        self.service, self.ended, self.errors, self.n = service, threading.Event(), [], 0
        self.start()

    def run(self):
        while not self.ended.is_set():
            status, o = complete(self.service)
            self.n += 1
            if status != 200:
                self.errors.append((status, o))

    def end(self):
        self.ended.set()
        self.join()
        assert not self.errors, self.errors[:3]
        return self.n


def test_a_disk_filled_by_uploads(serve, disk):
    s = serve()
    reference = s.client().generate(PROMPT, **LONG)
    interactive = Interactive(s)
    jobs = [s.client().submit(PROMPT, durable=True, **LONG).accepted().job for _ in range(3)]
    ids, status, refusal = fill_with_uploads(s)
    assert len(ids) >= 8 and status == 507, (len(ids), refusal)
    assert refusal["error"]["code"] == "insufficient_storage" and "--file-margin" in refusal["error"]["message"]
    size = sum(f["bytes"] for f in ask(s, "GET", "/v1/files")[1]["data"])
    status, refusal = upload(s, b"x" * 20 * MIB)
    assert status == 507, refusal
    status, health = ask(s, "GET", "/health")
    assert status == 200 and "KiB left" in health.get("journal", ""), health
    # Durable jobs have a separate margin.
    jobs.append(s.client().submit(PROMPT, durable=True, **LONG).accepted().job)
    disk.fill()
    jobs_now = {row["job"] for row in s.client().call("jobs")["jobs"]}
    assert set(jobs) <= jobs_now
    for id in ids[:4]:
        status, o = ask(s, "DELETE", f"/v1/files/{id}")
        assert status == 200 and o["deleted"], o
    assert interactive.end() > 0

    # The room that the deletes freed is filled too, and the machine fails.
    disk.fill()
    s.kill()
    disk.fill()
    s = serve()
    assert complete(s)[0] == 200
    for job in jobs:
        assert s.client().attach(job).done().tokens == reference.tokens
    for id in ids[4:]:
        status, o = ask(s, "DELETE", f"/v1/files/{id}")
        assert status == 200 and o["deleted"], o
    assert ask(s, "GET", "/v1/files")[1]["data"] == []

    disk.empty()
    eventually(lambda: "journal" not in ask(s, "GET", "/health")[1], what="a health without a complaint")
    again, status, refusal = fill_with_uploads(s)
    sizes = [sum(f["bytes"] for f in ask(s, "GET", "/v1/files")[1]["data"]), size]
    assert sizes[0] >= sizes[1] - MIB, f"deleted files hold their space: {sizes}"
    assert s.client().generate(PROMPT, durable=True, **LONG).tokens == reference.tokens
    assert s.end() == 0


def test_a_batch_waits_with_its_output_for_room(serve, disk):
    s = serve()
    line = {"custom_id": "1", "method": "POST", "url": "/v1/completions",
            "body": {"model": "demo", "prompt": PROMPT, "max_tokens": 4}}
    status, o = upload(s, json.dumps(line).encode() + b"\n")
    assert status == 200, o
    disk.fill(left=3 * MIB // 2)   # files leave 2 MiB, jobs 1 MiB
    status, batch = ask(s, "POST", "/v1/batches", {"input_file_id": o["id"], "endpoint": "/v1/completions",
                                                   "completion_window": "24h"})
    assert status == 200, batch
    eventually(lambda: "batch output waits for the disk" in s.log(), what="a line of the log")
    assert ask(s, "GET", f"/v1/batches/{batch['id']}")[1]["status"] == "finalizing"
    disk.empty()

    def ended():
        b = ask(s, "GET", f"/v1/batches/{batch['id']}")[1]
        return b if b["status"] == "completed" else None
    assert eventually(ended, what="a completed batch")["request_counts"]["completed"] == 1


@pytest.mark.parametrize("disk_state", ["read-only", "full"])
def test_a_start_without_the_journal_serves_and_opens_it_later(serve, disk, disk_state):
    s = serve()
    reference = s.client().generate(PROMPT, **LONG)
    finished = s.client().generate(PROMPT, durable=True, key="once", max_tokens=8, seed=1)
    status, file = upload(s, b"{}\n")
    jobs = [s.client().submit(PROMPT, durable=True, **LONG).accepted().job for _ in range(3)]
    s.kill()
    if disk_state == "full":
        (disk.path / "journal-ballast").unlink()
        (disk.path / "journal-shm").unlink()
        disk.fill()
    else:
        disk.read_only(True)

    s = serve()
    cause = "Read-only file system" if disk_state == "read-only" else "No space left on device"
    assert complete(s)[0] == 200
    assert "durable jobs refused" in s.log() and cause in s.log()
    status, health = ask(s, "GET", "/health")
    assert status == 200 and cause in health["journal"]
    assert not s.status()["journal"]["writes"]
    with s.client() as c:
        with pytest.raises(JobError) as e:
            c.generate(PROMPT, durable=True, max_tokens=2)
        assert e.value.code == "E_INTERNAL" and cause in e.value.message
        for job in jobs:
            with pytest.raises(JobError) as e:
                c.attach(job).done()
            assert e.value.code == "E_NOT_READY" and cause in e.value.message
    for method, path, body in (("GET", "/v1/files", None), ("DELETE", f"/v1/files/{file['id']}", None),
                               ("POST", "/v1/batches", {}), ("GET", "/v1/batches", None)):
        status, o = ask(s, method, path, body)
        assert status == 503 and cause in o["error"]["message"], (method, path, o)
    status, o = upload(s, b"{}\n")
    assert status == 503 and cause in o["error"]["message"]
    # New jobs do not get the numbers of jobs in the journal.
    running = [s.client().submit(PROMPT, **{**LONG, "seed": n}) for n in range(3)]

    if disk_state == "full":
        disk.empty()
    else:
        disk.read_only(False)
    eventually(lambda: "journal" not in ask(s, "GET", "/health")[1], what="an open journal")
    for job in running:
        assert job.done().finish_reason == "length"

    def known():
        return set(jobs) <= {row["job"] for row in s.client().call("jobs")["jobs"]}
    eventually(known, what="the journal's jobs")
    for job in jobs:
        assert s.client().attach(job).done().tokens == reference.tokens
    again = s.client().generate(PROMPT, durable=True, key="once", max_tokens=8, seed=1)
    assert (again.job, again.tokens) == (finished.job, finished.tokens)
    eventually(lambda: ask(s, "GET", "/v1/batches")[0] == 200, what="known batches")
    assert [f["id"] for f in ask(s, "GET", "/v1/files")[1]["data"]] == [file["id"]]
    assert ask(s, "DELETE", f"/v1/files/{file['id']}")[0] == 200
    assert upload(s, b"{}\n")[0] == 200
    assert s.end() == 0


def turn(s, conversation, text, **fields):
    body = {"input": text, "conversation": conversation, "max_output_tokens": 4, **fields}
    return ask(s, "POST", "/v1/responses", body)


def test_what_a_full_disk_cannot_store_is_refused_before_it_is_answered(serve, disk):
    s = serve()
    status, c = ask(s, "POST", "/v1/conversations", {})
    assert status == 200 and turn(s, c["id"], "first")[0] == 200
    disk.fill()
    for fields in ({}, {"store": False}, {"stream": True}, {"background": True}):
        status, o = turn(s, c["id"], "second", **fields)
        assert status == 507 and o["error"]["code"] == "insufficient_storage", (fields, o)
        assert "KiB left" in o["error"]["message"] or "No space left" in o["error"]["message"], o
    status, o = ask(s, "POST", "/v1/responses", {"input": "alone", "max_output_tokens": 4})
    assert status == 507 and '"store": false' in o["error"]["message"], o
    # Requests that store nothing are answered.
    assert ask(s, "POST", "/v1/responses", {"input": "alone", "max_output_tokens": 4, "store": False})[0] == 200
    assert complete(s)[0] == 200
    disk.empty()
    eventually(lambda: turn(s, c["id"], "third")[0] == 200, what="room again")
    items = ask(s, "GET", f"/v1/conversations/{c['id']}/items?limit=100&order=asc")[1]["data"]
    said = [i["content"][0]["text"] for i in items if i["role"] == "user"]
    assert said == ["first", "third"] and len(items) == 4, items


def test_a_disk_that_fills_while_answers_are_made_loses_none_that_was_promised(serve, disk):
    """Streams in conversations that begin while there is room: those that end as stored are stored."""
    s = serve()
    conversations = [ask(s, "POST", "/v1/conversations", {})[1]["id"] for _ in range(6)]
    ends = {}

    def stream(id):
        body = {"input": "Tell me a story.", "conversation": id, "max_output_tokens": 200, "stream": True}
        r = urllib.request.Request(s.http + "/v1/responses", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(r, timeout=120) as f:
            ends[id] = [line for line in f.read().decode().splitlines() if line.startswith("event: ")][-1]
    threads = [threading.Thread(target=stream, args=(id,)) for id in conversations]
    for t in threads:
        t.start()
    disk.fill()
    for t in threads:
        t.join()
    assert set(ends) == set(conversations)
    for id, last in ends.items():
        status, items = ask(s, "GET", f"/v1/conversations/{id}/items?limit=10")
        assert status == 200
        promised = last in ("event: response.completed", "event: response.incomplete")
        assert promised or last == "event: response.failed", last
        assert len(items["data"]) == (2 if promised else 0), (last, items)
    s.kill()
    disk.empty()
    s = serve()
    for id, last in ends.items():
        promised = last != "event: response.failed"
        assert len(ask(s, "GET", f"/v1/conversations/{id}/items?limit=10")[1]["data"]) == (2 if promised else 0)
