"""Quotas of files, bytes and number, from a key or from the service's options."""

import json
import urllib.error
import urllib.request
import uuid

import pytest

from service import DEMO, Service

KIB = 1 << 10
ALICE, BOB, CAROL = "sk-alice-0123456789abcdef", "sk-bob-0123456789abcdef", "sk-carol-0123456789abcdef"


def ask(s, method, path, key, body=None, kind=None):
    """Send a request: (status, object)."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if kind:
        headers["Content-Type"] = kind
    r = urllib.request.Request(s.http + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(r, timeout=60) as f:
            return f.status, json.load(f)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def upload(s, key, size):
    mark = uuid.uuid4().hex
    head = (f'--{mark}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{mark}\r\n'
            'Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n')
    body = head.encode() + b"x" * size + f"\r\n--{mark}--\r\n".encode()
    return ask(s, "POST", "/v1/files", key, body, f"multipart/form-data; boundary={mark}")


def refused(answer, *words):
    status, o = answer
    assert status == 429 and o["error"]["code"] == o["error"]["type"] == "insufficient_quota", answer
    for word in words:
        assert word in o["error"]["message"], o


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(keys, *options):
        more = ()
        if keys:
            file = tmp_path / "keys"
            file.write_text(keys)
            file.chmod(0o600)
            more = ("--api-key-file", file)
        started.append(Service(DEMO, "--journal", tmp_path / "j", *more, *options))
        return started[-1]
    yield start
    for s in started:
        s.stop()


def test_a_key_is_held_to_its_quota_and_others_are_not(serve):
    s = serve(f"{ALICE} name=alice max-stored-bytes=1M\n{BOB} name=bob max-files=2 max-stored-bytes=0\n"
              f"{CAROL} name=carol\n", "--max-stored-bytes", "2M", "--max-files", "5")
    status, first = upload(s, ALICE, 700 * KIB)
    assert status == 200
    refused(upload(s, ALICE, 400 * KIB), "1048576 bytes", "max-stored-bytes", "716800 are stored", "delete")
    assert upload(s, ALICE, 300 * KIB)[0] == 200
    assert ask(s, "DELETE", f"/v1/files/{first['id']}", ALICE)[0] == 200
    assert upload(s, ALICE, 700 * KIB)[0] == 200

    assert [upload(s, BOB, 3 << 20)[0] for _ in range(2)] == [200, 200]
    refused(upload(s, BOB, 1), "2 files", "max-files", "2 are stored")

    # The key has no quota: the service's quota applies.
    assert upload(s, CAROL, 1900 * KIB)[0] == 200
    refused(upload(s, CAROL, 200 * KIB), "2097152 bytes")
    assert [upload(s, CAROL, 1)[0] for _ in range(4)] == [200] * 4
    refused(upload(s, CAROL, 1), "5 files")
    assert [len(ask(s, "GET", "/v1/files", k)[1]["data"]) for k in (ALICE, BOB, CAROL)] == [2, 2, 5]


def test_without_keys_the_options_bound_all_files(serve):
    s = serve(None, "--max-files", "1")
    assert upload(s, None, 1)[0] == 200
    refused(upload(s, None, 1), "1 files")
    assert s.end() == 0
    s = serve(None)
    assert upload(s, None, 1)[0] == 200
