"""`explain`: how a job spent its time."""

import json
import os
import signal
import urllib.error
import urllib.request

import pytest

from jobclient import JobError
from service import DEMO, eventually, whole_lines

PROMPT = "Once upon a time"
ENDLESS = dict(max_tokens=2000, n=64, ignore_eos=True, seed=1)


def phases(explained):
    return {p["phase"]: p for p in explained["phases"]}


def get(service, path, key=None):
    request = urllib.request.Request(service.http + path, headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


@pytest.mark.parametrize("service", [("--max-seqs", "64")], indirect=True)
def test_a_job_that_waits_tells_for_what(service, client):
    running = client.submit(PROMPT, **ENDLESS)
    running.first_delta()
    queued = client.submit(PROMPT, max_tokens=5).accepted()
    now = client.call("explain", job=queued.job)
    assert (now["state"], now["phase"]) == ("running", "queued")
    assert phases(now)["queued"]["us"] > 0 and "decode" not in phases(now)
    held = eventually(lambda: phases(client.call("explain", job=queued.job))["queued"]["held_us"].get("slots"))
    running.cancel()
    queued.done()
    after = client.call("explain", job=queued.job)
    p = phases(after)
    assert after["state"] == "done" and "phase" not in after
    assert p["queued"]["held_us"]["slots"] >= held
    assert sum(p["queued"]["held_us"].values()) <= p["queued"]["us"]
    assert p["decode"]["tokens"] == 5
    assert p["prefill"]["tokens"] + p["prefill"]["cached_tokens"] == after["prompt_tokens"]
    assert sum(x["us"] for x in after["phases"]) == after["total_us"]
    names = [s["phase"] for s in after["spans"]]
    assert names == ["queued", "prefill", "decode"]
    ends = [s["from_us"] + s["us"] for s in after["spans"]]
    assert ends[:-1] == [s["from_us"] for s in after["spans"]][1:]
    # HTTP returns the same explanation.
    http = get(service, f"/api/explain/{queued.job}")
    assert http["phases"] == after["phases"] and http["spans"] == after["spans"]
    running.done()


def test_what_is_no_job_is_refused(service, client):
    with pytest.raises(JobError) as e:
        client.call("explain", job="0" * 32)
    assert e.value.code == "E_NO_SUCH_JOB"
    with pytest.raises(JobError) as e:
        client.call("explain")
    assert e.value.code == "E_BAD_REQUEST"
    with pytest.raises(urllib.error.HTTPError) as e:
        get(service, "/api/explain/" + "0" * 32)
    assert e.value.code == 404


def test_the_command_prints_a_table_or_json(service, client, run):
    job = client.generate(PROMPT, max_tokens=9, ignore_eos=True)
    text = run("explain", job.job[:20], "--to", service.jobs).stdout
    assert f"job {job.job}: done" in text and "9 tokens" in text
    rows = [line.split()[0] for line in text.splitlines()[2:]]
    assert rows[:2] == ["PHASE", "prepare"] and {"queued", "prefill", "decode"} <= set(rows)
    explained = json.loads(run("explain", job.job, "--json", "--to", service.jobs).stdout)
    assert phases(explained)["decode"]["tokens"] == 9


def test_a_job_of_another_api_key_is_not_explained(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-alice-0123456789abcdef name=alice\nsk-bob-0123456789abcdefgh name=bob\n")
    keys.chmod(0o600)
    log = tmp_path / "access"
    service = start(DEMO, "--api-key-file", keys, "--access-log", log)
    body = json.dumps({"model": "demo", "prompt": PROMPT, "max_tokens": 3}).encode()
    urllib.request.urlopen(urllib.request.Request(service.http + "/v1/completions", body, {
        "Content-Type": "application/json", "Authorization": "Bearer sk-alice-0123456789abcdef"})).read()
    job = eventually(lambda: whole_lines(log) and whole_lines(log)[0].get("jobs"))[0]
    assert get(service, f"/api/explain/{job}", "sk-alice-0123456789abcdef")["job"] == job
    with pytest.raises(urllib.error.HTTPError) as e:
        get(service, f"/api/explain/{job}", "sk-bob-0123456789abcdefgh")
    assert e.value.code == 404


def kill_under(client):
    """Explain a job that lost its worker while it ran; on a slow machine it may end before that."""
    job = client.submit(PROMPT, max_tokens=1500, ignore_eos=True, seed=3, stream=True)
    job.first_delta()
    busy = [r["workers"][0] for r in client.status()["replicas"] if r["running"]]
    for pid in [w["pid"] for w in client.workers() if w["worker"] in busy]:
        os.kill(pid, signal.SIGKILL)
    job.done()
    return client.call("explain", job=job.job)


def test_a_lost_worker_is_a_move(start):
    service = start(DEMO, "--replicas", "2")
    with service.client() as client:
        for _ in range(5):
            explained = kill_under(client)
            if explained["moves"]:
                break
        assert explained["moves"] >= 1
        assert "moved" in phases(explained) and phases(explained)["recompute"]["tokens"] > 0


def test_a_durable_job_of_an_earlier_life_has_the_times_of_its_record(start, tmp_path):
    options = ("--journal", tmp_path / "journal")
    first = start(DEMO, *options)
    with first.client() as client:
        job = client.generate(PROMPT, max_tokens=5, durable=True).job
        assert client.call("explain", job=job)["in_memory"] is True
        assert "journal" in phases(client.call("explain", job=job))
    first.stop()
    with start(DEMO, *options).client() as client:
        explained = client.call("explain", job=job)
        assert explained["in_memory"] is False
        assert set(phases(explained)) == {"queued", "prefill", "decode"}
        assert sum(p["us"] for p in explained["phases"]) == explained["total_us"] > 0
