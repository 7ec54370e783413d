"""best_of returns the likeliest of the sampled outputs."""

import json
import urllib.request

import pytest

PROMPT = "Once upon a time"
SAMPLED = dict(prompt=PROMPT, temperature=1.0, seed=11, max_tokens=25)


def ranked(outputs):
    return sorted(outputs, key=lambda o: -o["cumulative_logprob"])


def texts_of(outputs):
    return [(o["tokens"], o["text"], o["finish_reason"]) for o in outputs]


@pytest.fixture(scope="module")
def six(service):
    """All outputs, and the score of each."""
    with service.client() as c:
        outputs = c.generate(**SAMPLED, n=6, logprobs=0).outputs
    scores = [o["cumulative_logprob"] for o in outputs]
    assert len(set(scores)) == 6 and scores != sorted(scores, reverse=True)
    return outputs


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_likeliest_of_the_sampled_outputs_are_returned(client, six, n):
    done = client.generate(**SAMPLED, n=n, best_of=6)
    assert texts_of(done.outputs) == texts_of(ranked(six)[:n])
    assert [o["index"] for o in done.outputs] == list(range(n))
    assert [o["cumulative_logprob"] for o in done.outputs] == [o["cumulative_logprob"] for o in ranked(six)[:n]]
    assert all(o.get("logprobs") is None for o in done.outputs)
    assert done.usage["completion_tokens"] == sum(len(o["tokens"]) for o in done.outputs)


def test_best_of_equal_to_n_chooses_nothing(client, six):
    assert texts_of(client.generate(**SAMPLED, n=6, best_of=6).outputs) == texts_of(six)


def test_logprobs_are_returned_when_requested(client, six):
    done = client.generate(**SAMPLED, n=2, best_of=6, logprobs=0)
    assert [o["logprobs"] for o in done.outputs] == [o["logprobs"] for o in ranked(six)[:2]]


def test_a_stream_has_each_output_whole_at_the_end(client, six):
    job = client.submit(**SAMPLED, n=2, best_of=6)
    done = job.done()
    assert [d["index"] for d in job.deltas] == [0, 1]
    assert [(d["tokens"], d["text"]) for d in job.deltas] == [(o["tokens"], o["text"]) for o in done.outputs]
    assert texts_of(done.outputs) == texts_of(ranked(six)[:2])


def test_stop_strings_end_the_outputs_that_have_them(client, six):
    best = ranked(six)[0]
    stop = best["text"][10:14]
    done = client.generate(**SAMPLED, n=1, best_of=6, stop=[stop])
    assert stop not in done.text


def test_cancelled_before_the_choice(client):
    job = client.submit(**{**SAMPLED, "max_tokens": 2000}, n=2, best_of=64, ignore_eos=True)
    job.accepted().cancel()
    assert {o["finish_reason"] for o in job.done().outputs} == {"abort"}


def completion(service, **body):
    request = urllib.request.Request(service.http + "/v1/completions", json.dumps({**SAMPLED, **body}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=90) as reply:
        return reply.read().decode()


def test_over_http(service, six):
    choices = json.loads(completion(service, n=2, best_of=6))["choices"]
    assert [c["text"] for c in choices] == [o["text"] for o in ranked(six)[:2]]
    assert [c["index"] for c in choices] == [0, 1]


def test_over_an_http_stream(service, six):
    lines = [line[6:] for line in completion(service, n=2, best_of=6, stream=True).splitlines() if line]
    assert lines[-1] == "[DONE]"
    text = {0: "", 1: ""}
    for line in lines[:-1]:
        for choice in json.loads(line)["choices"]:
            text[choice["index"]] += choice["text"]
    assert list(text.values()) == [o["text"] for o in ranked(six)[:2]]
