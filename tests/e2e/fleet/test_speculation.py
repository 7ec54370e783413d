"""Speculation: with drafts a service gives the tokens and log-probabilities that it gives without, and needs fewer
steps where text repeats. Also when sequences are preempted, or the worker is killed."""

from service import DEMO, Service, eventually

STORY = "One day, a girl named Lily found a big red ball. "
PARAMS = [
    {"temperature": 0},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.7, "logprobs": 2, "n": 4},
    {"temperature": 1.0, "repetition_penalty": 1.1, "presence_penalty": 0.3},
    {"temperature": 1.3, "top_p": 0.9, "min_p": 0.02, "frequency_penalty": 0.2},
    {"temperature": 0.7, "dry_multiplier": 0.8, "bad_words": ["ball"], "min_tokens": 30, "ignore_eos": False},
    {"temperature": 0.3, "stop": ["the end"]},
    {"temperature": 0.7, "mirostat": 2},
    {"temperature": 0.7, "guided_regex": "([A-Z][a-z ,]*[.] ?)*"},
]
JOBS = [{"prompt": STORY * 4, "max_tokens": 150, "ignore_eos": True, "seed": 7 + i, **p} for i, p in enumerate(PARAMS)]


def outputs(done):
    return [(o["tokens"], o["text"], o.get("logprobs"), o["finish_reason"]) for o in done.outputs]


def test_no_token_or_log_probability_differs_and_repetitions_take_fewer_steps():
    # Few blocks: sequences are preempted while plans with drafts are in flight.
    few = ["--kv-bytes", "3M", "--compute", "int8"]
    runs = {}
    for mode in ("off", "ngram"):
        s = Service(DEMO, *few, "--speculate", mode)
        try:
            c = s.client()
            jobs = s.submit_together(c, JOBS)
            got = [outputs(j.done()) for j in jobs]
            before = c.status()["steps"]
            got.append(outputs(c.generate(**JOBS[0])))
            steps = c.status()["steps"] - before
            if mode == "ngram":    # heartbeats bring the counters
                eventually(lambda: c.status()["drafts"]["accepted"] > 50, what="accepted drafts")
            runs[mode] = got, steps, c.status()
        finally:
            s.stop()
            Service.used.remove(s)
    (want, steps_off, off), (got, steps_on, on) = runs["off"], runs["ngram"]
    for job, a, b in zip([*JOBS, JOBS[0]], want, got):
        assert a == b, job
    assert off["drafts"]["tokens"] == 0 and off["preemptions"] > 0
    assert on["drafts"]["runs"] <= on["drafts"]["accepted"] <= on["drafts"]["tokens"] and on["preemptions"] > 0
    assert steps_on < 0.9 * steps_off, (steps_on, steps_off)


def test_a_killed_worker_changes_no_token():
    s = Service(DEMO, "--speculate", "ngram", step_ms=10)
    try:
        c = s.client()
        jobs = [{**j, "max_tokens": 300} for j in JOBS[:4]]
        want = [outputs(c.generate(**j)) for j in jobs]
        for _ in range(5):
            again = [c.submit(**j) for j in jobs]
            killed = s.kill_amid(c, again)
            assert [outputs(j.done()) for j in again] == want
            if killed:
                return
        raise AssertionError("the jobs always ended before the worker was killed")
    finally:
        s.stop()
        Service.used.remove(s)
