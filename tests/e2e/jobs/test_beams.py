"""Beam search gives the hypotheses of Hugging Face transformers, also with other jobs in the batch and after faults."""

import json
import urllib.request

import pytest

from service import DEMO, ROOT, TRIES, served

STORY = ("Once upon a time there was a little dog. The dog lived in a small house near the woods. Every day "
         "the dog went to the river to look for fish. ")
GOLDEN = json.loads((ROOT / "tests" / "golden" / "beams_models.json").read_text())


# If two hypotheses are nearly equally likely, a mode with other rounding may keep the other hypothesis.
F32 = ("--compute", "f32")


@pytest.fixture(scope="module")
def service():
    yield from served(DEMO, F32)


@pytest.fixture(scope="module")
def stories(stories_model):
    yield from served(stories_model, F32)


def request_of(case):
    """Convert a case of make_beams_golden.py to a request."""
    keys = dict(tokens=case["prompt"], use_beam_search=True, n=case["width"], max_tokens=case["max_tokens"],
                min_tokens=case["min_tokens"], length_penalty=case["length_penalty"],
                early_stopping=case["early_stopping"], ignore_eos=case["ignore_eos"])
    return keys | ({"stop_token_ids": case["extra_stop"]} if case["extra_stop"] else {})


def check(service, cases):
    with service.client() as c:
        jobs = [c.submit(**request_of(case), stream=False) for case in cases]
        for case, job in zip(cases, jobs):
            done = job.done()
            assert [o["tokens"] for o in done.outputs] == case["tokens"], case
            for o, score in zip(done.outputs, case["scores"]):
                length = len(o["tokens"]) ** case["length_penalty"]
                assert o["cumulative_logprob"] / length == pytest.approx(score, abs=2e-3)


def cases_of(model):
    return [c for c in GOLDEN if c["model"] == model]


def test_finds_what_transformers_finds(service):
    cases = cases_of("demo")
    assert len(cases) > 30
    check(service, cases)


def test_finds_what_transformers_finds_in_another_model(stories):
    check(stories, cases_of("stories260K-hf-f32"))


# Pools and steps so small that hypotheses take turns, and are preempted, copied and recomputed.
@pytest.mark.parametrize("options", [
    ("--kv-bytes", "1M"), ("--kv-bytes", "1300K", "--chunk", "3"), ("--kv-bytes", "1M", "--no-prefix-cache"),
    ("--max-seqs", "3"), ("--max-seqs", "1"), ("--no-prefix-cache", "--max-seqs", "5", "--max-batch-tokens", "7"),
], ids=" ".join)
def test_finds_the_same_where_hypotheses_cannot_run_together(start, options):
    s = start(DEMO, *F32, *options)
    check(s, cases_of("demo")[::3])
    status = s.idle()
    assert status["blocks"]["free"] + status["blocks"]["cached"] == status["blocks"]["total"]
    assert status["blocks"]["retained"] == 0


def test_n_of_the_beams_are_returned(client):
    job = dict(prompt=STORY, use_beam_search=True, max_tokens=12)
    all_of_them = client.generate(**job, n=5).outputs
    for keys in (dict(n=2, beam_width=5), dict(n=2, best_of=5)):
        some = client.generate(**job, **keys).outputs
        assert [o["tokens"] for o in some] == [o["tokens"] for o in all_of_them[:2]]
    scores = [o["cumulative_logprob"] / len(o["tokens"]) for o in all_of_them]
    assert scores == sorted(scores, reverse=True)


def test_beam_width_1_is_greedy(client):
    job = dict(prompt=STORY, max_tokens=20)
    assert client.generate(**job, use_beam_search=True).tokens == client.generate(**job, temperature=0).tokens


def test_logprobs_are_those_of_the_same_tokens_sampled(client):
    """Reference: the same tokens as a prompt, with prompt_logprobs."""
    job = dict(prompt=STORY, use_beam_search=True, n=3, max_tokens=12, logprobs=4)
    done = client.generate(**job)
    prompt = client.tokenize(STORY)
    for o in done.outputs:
        assert o["cumulative_logprob"] == pytest.approx(sum(e["logprob"] for e in o["logprobs"]), abs=1e-5)
        known = client.generate(tokens=prompt + o["tokens"], max_tokens=1, prompt_logprobs=4)
        for sampled, known_ in zip(o["logprobs"], known.reply["prompt_logprobs"][len(prompt):]):
            assert sampled == known_


def test_a_stream_has_the_outputs_at_the_end(client):
    job = client.submit(STORY, use_beam_search=True, n=2, beam_width=4, max_tokens=12)
    done = job.done()
    assert [d["index"] for d in job.deltas] == [0, 1]
    assert [d["tokens"] for d in job.deltas] == [o["tokens"] for o in done.outputs]


def test_texts_are_cut_at_stop_strings(client):
    job = dict(prompt=STORY, use_beam_search=True, n=3, max_tokens=24)
    whole = client.generate(**job).outputs
    stop = whole[0]["text"][12:16]
    cut = client.generate(**job, stop=[stop]).outputs
    assert [o["text"] for o in cut] == [o["text"].split(stop)[0] for o in whole]
    assert cut[0]["finish_reason"] == "stop" and cut[0]["stop_reason"] == stop


def test_a_cancelled_search_has_empty_outputs(client):
    job = client.submit(STORY, use_beam_search=True, n=2, beam_width=8, max_tokens=1000, ignore_eos=True)
    job.accepted().cancel()
    assert [(o["finish_reason"], o["tokens"]) for o in job.done().outputs] == [("abort", [])] * 2


def test_other_jobs_change_nothing(client):
    beams = dict(prompt=STORY, use_beam_search=True, n=4, max_tokens=30)
    sampled = dict(prompt=STORY[:50], temperature=1.0, seed=4, n=2, max_tokens=60, ignore_eos=True)
    alone = [[o["tokens"] for o in client.generate(**job).outputs] for job in (beams, sampled)]
    jobs = [client.submit(**job, stream=False) for _ in range(6) for job in (beams, sampled)]
    assert [[o["tokens"] for o in j.done().outputs] for j in jobs] == alone * 6


def test_a_killed_worker_does_not_change_the_hypotheses(start, client):
    job = dict(prompt=STORY, use_beam_search=True, n=3, beam_width=6, max_tokens=400, ignore_eos=True, logprobs=1)
    known = client.generate(**job).outputs
    s = start(DEMO, *F32)
    with s.client() as c:
        for _ in range(TRIES):
            searches = [c.submit(**job, stream=False).accepted() for _ in range(2)]
            killed = all(s.kill_amid(c, searches) for _ in range(3))
            assert [r.done().outputs for r in searches] == [known] * 2
            if killed:
                return
    pytest.fail("the searches ended before their workers were killed")


def test_over_http(service, client):
    known = client.generate(STORY, use_beam_search=True, n=2, beam_width=4, max_tokens=12).outputs
    body = dict(prompt=STORY, use_beam_search=True, n=2, beam_width=4, max_tokens=12)
    request = urllib.request.Request(service.http + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=90) as reply:
        choices = json.loads(reply.read())["choices"]
    assert [c["text"] for c in choices] == [o["text"] for o in known]
