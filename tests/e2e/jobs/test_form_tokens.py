"""Outputs with a form have the same tokens whatever happens on the way: other batches and chunks, preemption by
recomputation and by swapping, workers and services that are killed, two ranks."""

import re
import time

import pytest

from jobclient import JobError
from service import DEMO
from test_durable import journal, kill, patiently, serve  # noqa: F401
from test_same_tokens import STORY, answer

LINES = "([A-Z][a-z ,]{8,30}[.!] ){14,16}End"
LIST = {"type": "array", "minItems": 12, "maxItems": 14, "items": {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"type": "integer", "maximum": 99}},
    "required": ["name", "n"], "additionalProperties": False}}
NEST = 'root ::= "(" [a-z]{1,4} ("," root){0,2} ")"'
FORMS = [{"guided_regex": LINES}, {"guided_json": LIST}, {"guided_grammar": NEST}, {}]
JOBS = [dict(prompt=STORY[i:], temperature=1.0, seed=i, max_tokens=220, logprobs=1, **FORMS[i % 4]) for i in range(8)]
JOBS[1]["n"] = 3
JOBS[4] |= {"temperature": 0.7, "repetition_penalty": 1.1}


@pytest.fixture(scope="module")
def known(service):
    with service.client() as c:
        answers = [answer(c.generate(**job)) for job in JOBS]
    for o in answers[0]:
        assert o[2] == "length" or re.fullmatch(LINES, o[1])
    return answers


def run(service):
    with service.client() as c:
        waiting = [c.submit(**{"stream": False, **job}) for job in JOBS]
        return [answer(w.done()) for w in waiting]


@pytest.mark.parametrize("options", [("--chunk", "7"), ("--max-seqs", "3", "--max-batch-tokens", "24")], ids=" ".join)
def test_together_and_in_parts(service, start, known, options):
    assert run(service) == known
    assert run(start(DEMO, *options)) == known


@pytest.mark.parametrize("options", [("--preempt", "recompute"), ("--preempt", "swap", "--swap-bytes", "8M")], ids=" ".join)
def test_over_preemption(start, known, options):
    small = start(DEMO, "--kv-bytes", "2M", *options)
    assert run(small) == known
    assert small.idle()["preemptions"] > 0


def test_over_the_death_of_a_worker(serve, known):  # noqa: F811
    s = serve()
    with s.client() as c:
        jobs = [c.submit(**job) for job in JOBS]
        for job in jobs:
            job.first_delta()
        kill(s, "quern-worker")
        assert [answer(j.done()) for j in jobs] == known


def test_over_the_death_of_everything(serve, known):  # noqa: F811
    s = serve()
    jobs = [s.client().submit(durable=True, **job).accepted() for job in JOBS]
    for job in jobs:
        job.first_delta()
    time.sleep(0.3)
    kill(s)
    s = serve()
    assert [answer(s.client().attach(job.job).done()) for job in jobs] == known


def test_a_search_has_the_same_outputs_after_a_death(serve):  # noqa: F811
    search = dict(prompt=STORY, use_beam_search=True, n=3, beam_width=4, temperature=0, max_tokens=150, guided_json=LIST)
    s = serve()
    with s.client() as c:
        want = c.generate(**search)
        job = c.submit(**search).accepted()
        time.sleep(0.1)
        kill(s, "quern-worker")
        got = job.done()
    assert [o["tokens"] for o in got.outputs] == [o["tokens"] for o in want.outputs]


def test_an_output_that_meets_a_bound_fails_alone(service):
    """A letter of it may begin, continue or end any of the levels: ever more places in the grammar."""
    with service.client() as c:
        other = c.submit("A cat", max_tokens=1500, ignore_eos=True)
        wide = c.submit("A dog", max_tokens=1500, min_tokens=1500, seed=1,
                        guided_grammar='root ::= "" | [a-z] root [a-z] | [a-z] root')
        wide.accepted()
        with pytest.raises(JobError) as e:
            wide.done()
        assert e.value.code == "E_BAD_REQUEST" and "too many positions in the grammar" in e.value.message
        assert len(other.done().tokens) == 1500
