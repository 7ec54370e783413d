"""The life of a job: cancel, attach, result, idempotency keys, clients that disconnect, limits."""

import pytest

from jobclient import JobError
from service import DEMO

PROMPT = "Once upon a time"
# Far longer than any test waits: only a cancel ends it.
ENDLESS = dict(max_tokens=2000, n=64, ignore_eos=True, seed=1)


# --- cancel ---

def test_a_running_job_is_cancelled(service, client):
    job = client.submit(PROMPT, **ENDLESS)
    job.first_delta()
    assert job.cancel()["op"] == "ok"
    done = job.done()
    assert {o["finish_reason"] for o in done.outputs} == {"abort"}
    assert len(done.tokens) < 2000
    service.idle()


def test_a_cancelled_job_keeps_its_text(client):
    job = client.submit(PROMPT, **ENDLESS)
    job.first_delta()
    job.cancel()
    done = job.done()
    seen = sum((d["tokens"] for d in job.deltas if d["index"] == 0), [])
    assert done.tokens == seen
    assert client.result(job.job).tokens == seen


@pytest.mark.parametrize("service", [("--max-seqs", "64")], indirect=True)
def test_a_queued_job_is_cancelled(service, client):
    running = client.submit(PROMPT, **ENDLESS)
    running.first_delta()
    queued = client.submit(PROMPT, max_tokens=5).accepted()
    queued.cancel()
    done = queued.done()
    assert (done.finish_reason, done.tokens) == ("abort", [])
    running.cancel()
    running.done()
    service.idle()


def test_cancelling_a_finished_job_changes_nothing(client):
    done = client.generate(PROMPT, max_tokens=3, temperature=0)
    assert client.cancel(done.job)["op"] == "ok"
    assert client.result(done.job).tokens == done.tokens


def test_another_client_may_cancel(service, client):
    job = client.submit(PROMPT, **ENDLESS)
    job.first_delta()
    with service.client() as other:
        other.cancel(job.job)
    assert job.done().finish_reason == "abort"


# --- attach and result ---

def follow(job):
    """Join an attached job's deltas; return the text and the `done`."""
    done = job.done()
    return sum((d["tokens"] for d in job.deltas), []), "".join(d["text"] for d in job.deltas), done


def test_attach_after_the_end_gets_everything(service, client):
    done = client.generate(PROMPT, max_tokens=30, temperature=0, ignore_eos=True)
    with service.client() as other:
        tokens, text, again = follow(other.attach(done.job))
    assert (tokens, text) == (done.tokens, done.text)
    assert again.tokens == done.tokens


def test_attach_while_it_runs_misses_nothing(service, client):
    job = client.submit(PROMPT, max_tokens=400, temperature=0, ignore_eos=True)
    job.first_delta()
    with service.client() as other:
        tokens, text, done = follow(other.attach(job.job))
    assert (tokens, text) == (done.tokens, done.text)
    assert done.tokens == job.done().tokens


def test_attach_from_an_offset_continues_there(service, client):
    done = client.generate(PROMPT, max_tokens=30, temperature=0, ignore_eos=True)
    with service.client() as other:
        attached = other.attach(done.job, **{"from": 12})
        tokens, text, _ = follow(attached)
    assert attached.deltas[0]["offset"] == 12
    assert tokens == done.tokens[12:]
    assert done.text.endswith(text) and len(text) < len(done.text)


def test_attach_from_an_offset_while_it_runs(service, client):
    job = client.submit(PROMPT, max_tokens=300, temperature=0, ignore_eos=True)
    job.first_delta()
    with service.client() as other:
        attached = other.attach(job.job, **{"from": 100})
        tokens, text, done = follow(attached)
    assert attached.deltas[0]["offset"] == 100
    assert tokens == done.tokens[100:]
    assert done.text.endswith(text)
    job.done()


def test_attach_from_an_offset_per_output(service, client):
    done = client.generate(PROMPT, max_tokens=10, n=2, seed=1, ignore_eos=True)
    with service.client() as other:
        attached = other.attach(done.job, **{"from": [3, 7]})
        attached.done()
    got = {i: sum((d["tokens"] for d in attached.deltas if d["index"] == i), []) for i in (0, 1)}
    assert got == {0: done.outputs[0]["tokens"][3:], 1: done.outputs[1]["tokens"][7:]}


def test_attach_from_beyond_the_end_is_just_done(service, client):
    done = client.generate(PROMPT, max_tokens=5, ignore_eos=True)
    tokens, text, again = follow(client.attach(done.job, **{"from": 1000}))
    assert (tokens, text) == ([], "")
    assert again.tokens == done.tokens


def test_a_job_has_a_result_when_it_has_ended(client):
    job = client.submit(PROMPT, **ENDLESS)
    job.first_delta()
    with pytest.raises(JobError) as e:
        client.result(job.job)
    assert e.value.code == "E_NOT_READY"
    job.cancel()
    done = job.done()
    assert client.result(job.job).outputs == done.outputs


def test_the_table_lists_jobs_with_their_state(client):
    running = client.submit(PROMPT, user="anna", **ENDLESS)
    running.first_delta()
    ended = client.generate(PROMPT, max_tokens=1)
    rows = {j["job"]: j for j in client.jobs()}
    assert rows[running.job]["state"] == "running"
    assert rows[running.job]["user"] == "anna"
    assert rows[running.job]["n"] == 64
    assert rows[ended.job]["state"] != "running"
    assert rows[ended.job]["completion_tokens"] == 1
    running.cancel()
    running.done()


# --- idempotency keys ---

def test_a_second_submit_with_the_same_key_is_the_same_job(client):
    first = client.generate(PROMPT, key="once", max_tokens=20, temperature=1.0)
    again = client.generate(PROMPT, key="once", max_tokens=20, temperature=1.0)
    assert again.job == first.job
    assert again.tokens == first.tokens


def test_a_key_joins_a_job_that_still_runs(service, client):
    job = client.submit(PROMPT, key="joined", max_tokens=300, ignore_eos=True, temperature=1.0)
    job.first_delta()
    with service.client() as other:
        done = other.generate(PROMPT, key="joined", max_tokens=300, ignore_eos=True, temperature=1.0)
    assert done.job == job.job
    assert done.tokens == job.done().tokens


def test_other_keys_are_other_jobs(client):
    assert client.generate(PROMPT, key="a", max_tokens=1).job != client.generate(PROMPT, key="b", max_tokens=1).job


# --- clients that disconnect ---

def test_disconnecting_cancels_a_running_job(service):
    gone = service.client()
    job = gone.submit(PROMPT, **ENDLESS)
    job.first_delta()
    assert service.status()["blocks"]["held"] > 0
    gone.close()
    service.idle()
    with service.client() as c:
        assert c.result(job.job).finish_reason == "abort"


def test_disconnecting_cancels_a_queued_job(service):
    with service.client() as stays:
        for _ in range(5):
            gone = service.client()
            gone.submit(PROMPT, **ENDLESS)
            stays.ping()
            gone.socket.linger = 1000
            gone.close()
    service.idle()


def test_a_kept_job_continues_without_its_client(service, client):
    gone = service.client()
    job = gone.submit(PROMPT, on_disconnect="keep", max_tokens=500, temperature=0, ignore_eos=True)
    job.first_delta()
    gone.close()
    done = client.attach(job.job).done()
    assert done.finish_reason == "length"
    assert len(done.tokens) == 500


def test_a_job_with_another_listener_continues(service, client):
    gone = service.client()
    job = gone.submit(PROMPT, max_tokens=500, temperature=0, ignore_eos=True)
    job.first_delta()
    followed = client.attach(job.job)
    assert followed.event()["op"] == "delta"
    gone.close()
    assert followed.done().finish_reason == "length"


def test_many_disconnected_clients_leave_nothing(service):
    before = service.idle()["blocks"]
    clients = [service.client() for _ in range(16)]
    jobs = [c.submit(f"{PROMPT} {i}", max_tokens=1500, ignore_eos=True) for i, c in enumerate(clients)]
    for i, (c, j) in enumerate(zip(clients, jobs)):
        if i % 2:
            j.first_delta()
        else:
            j.accepted()
        c.close()
    after = service.idle()["blocks"]
    assert after["free"] + after["cached"] == before["free"] + before["cached"] == after["total"]


def test_a_client_that_does_not_read_delays_no_other(service, client):
    lazy = service.client()
    lazy.socket.rcvhwm = 1
    lazy.submit(PROMPT, **ENDLESS, logprobs=20)
    for i in range(5):
        assert len(client.generate(PROMPT, max_tokens=20, ignore_eos=True).tokens) == 20
    lazy.close()
    service.idle()


# --- limits ---

def test_a_deadline_ends_a_job(service, client):
    with pytest.raises(JobError) as e:
        client.submit(PROMPT, deadline_ms=50, **ENDLESS).done()
    assert e.value.code == "E_DEADLINE"
    service.idle()


def test_a_deadline_that_is_met_changes_nothing(client):
    assert len(client.generate(PROMPT, deadline_ms=600000, max_tokens=5, ignore_eos=True).tokens) == 5


@pytest.mark.parametrize("service", [("--max-seqs", "64", "--max-queued-jobs", "2")], indirect=True)
def test_jobs_beyond_the_queue_are_refused_at_once(service, client):
    jobs = [client.submit(PROMPT, **ENDLESS) for _ in range(8)]
    accepted, refused = [], []
    for job in jobs:
        try:
            accepted.append(job.accepted())
        except JobError as e:
            refused.append(e.code)
    assert 1 <= len(accepted) <= 4
    assert refused == ["E_OVERLOADED"] * (8 - len(accepted))
    for job in accepted:
        job.cancel()
        job.done()
    service.idle()
    assert client.generate(PROMPT, max_tokens=2, ignore_eos=True).finish_reason == "length"


@pytest.mark.parametrize("service", [("--max-seqs", "64", "--max-queued-tokens", "1000")], indirect=True)
def test_prompt_tokens_beyond_the_queue_are_refused(service, client):
    jobs = [client.submit(tokens=[20 + i] * 300, max_tokens=1500, n=64, ignore_eos=True) for i in range(8)]
    codes = []
    for job in jobs:
        try:
            job.accepted()
        except JobError as e:
            codes.append(e.code)
    assert codes and set(codes) == {"E_OVERLOADED"}
    for job in jobs:
        if job.job:
            job.cancel()
            job.done()
    service.idle()


def test_a_prompt_that_fills_the_context_leaves_room_for_one_token(client):
    context = client.status()["max_context"]
    done = client.generate(tokens=[50] * (context - 1), max_tokens=1)
    assert done.usage["completion_tokens"] == 1
    with pytest.raises(JobError) as e:
        client.generate(tokens=[50] * context, max_tokens=1)
    assert e.value.code == "E_TOO_LONG"


def test_a_shorter_context_is_enforced(start):
    s = start(DEMO, "--context", "64")
    with s.client() as c:
        assert c.status()["max_context"] == 64
        done = c.generate(PROMPT, ignore_eos=True)
    assert done.usage["prompt_tokens"] + done.usage["completion_tokens"] == 64


def test_the_context_is_what_the_cache_can_hold(start):
    s = start(DEMO, "--kv-bytes", "1M")
    with s.client() as c:
        status = c.status()
        assert status["max_context"] <= status["blocks"]["total"] * status["blocks"]["size"] < 2048
        with pytest.raises(JobError) as e:
            c.generate(tokens=[50] * (status["max_context"] + 1), max_tokens=1)
        assert e.value.code == "E_TOO_LONG"
        full = c.generate(tokens=[50] * (status["max_context"] - 10), max_tokens=10, ignore_eos=True)
        assert len(full.tokens) == 10
    s.idle()
