"""Structured outputs satisfy their constraints, and are the same tokens whatever happens to the job."""

import os
import signal
import sys
import time

import pytest

from jobclient import JobError
from service import DEMO, ROOT, TRIES, Service, eventually

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import guided_outputs  # noqa: E402

STORY = ("Once upon a time there was a little dog. The dog lived in a small house near the woods. Every day "
         "the dog went to the river to look for fish. ")
PERSON = {"type": "object", "required": ["name", "age", "friends"], "additionalProperties": False, "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "friends": {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 9}}}}
WORDS = 'root ::= word (" " word){20,90} "."\nword ::= [a-z]{1,9}'
LINES = 'root ::= line{300}\nline ::= [a-z]{1,9} " " [0-9]{2} "\\n"'

# Greedy and sampled, several outputs, beams, and one output without a constraint in the same batch.
JOBS = [
    dict(prompt=STORY, guided_json=PERSON, temperature=0, max_tokens=150, logprobs=2),
    dict(prompt=STORY * 3, guided_json=PERSON, temperature=1.0, seed=1, max_tokens=150, logprobs=2),
    dict(prompt="12 + 10 =", guided_regex=r"[0-9]{1,3}( [+*] [0-9]{1,3}){3,9}", temperature=1.0, seed=2, max_tokens=60,
         logprobs=1),
    dict(prompt="A cat", guided_grammar=WORDS, temperature=1.1, top_p=0.95, top_k=50, seed=3, n=3, max_tokens=90,
         repetition_penalty=1.2, frequency_penalty=0.3, logprobs=2),
    dict(prompt=STORY, guided_grammar=WORDS, use_beam_search=True, n=2, beam_width=4, max_tokens=30, logprobs=1),
    dict(prompt=STORY[:60], temperature=1.0, seed=4, max_tokens=60, ignore_eos=True, logprobs=2),
    # Mirostat has its own state.
    dict(prompt=STORY[:60], temperature=1.0, seed=5, n=3, mirostat=2, mirostat_tau=3, mirostat_eta=0.7, max_tokens=90,
         ignore_eos=True, logprobs=2),
    dict(prompt="A cat", guided_grammar=WORDS, temperature=1.0, seed=6, mirostat=1, max_tokens=90, logprobs=2),
]


def answer(done):
    return [(o["tokens"], o["text"], o["finish_reason"], o["logprobs"]) for o in done.outputs]


def together(service, copies=1, jobs=JOBS):
    with service.client() as c:
        return [answer(j.done()) for j in service.submit_together(c, jobs * copies)]


@pytest.fixture(scope="module")
def expected(service):
    with service.client() as c:
        return [answer(c.generate(**job)) for job in JOBS]


# ---- constraints are satisfied ----

def test_outputs_keep_their_forms(service):
    counts = guided_outputs.generate(service, 23 * guided_outputs.N)
    assert [w for c in counts.values() for w in c.wrong] == []
    stop, length = (sum(getattr(c, kind) for c in counts.values()) for kind in ("stop", "length"))
    assert stop > 20 * length


def test_those_of_a_model_with_made_up_weights_do_too(start, tmp_path):
    s = start(guided_outputs.random_model("qwen3-tied", tmp_path))
    counts = guided_outputs.generate(s, 23 * guided_outputs.N, seed=1000)
    assert [w for c in counts.values() for w in c.wrong] == []
    assert sum(c.stop for c in counts.values()) > sum(c.length for c in counts.values())


def test_hypotheses_keep_their_form(client):
    job = dict(prompt=STORY, guided_json=PERSON, use_beam_search=True, n=4, max_tokens=120)
    check = guided_outputs.schema(**PERSON)[1]
    outputs = client.generate(**job).outputs
    assert len({tuple(o["tokens"]) for o in outputs}) == 4
    for o in outputs:
        assert o["finish_reason"] == "stop"
        check(o["text"])


def test_where_only_the_end_may_follow_min_tokens_does_not_hold_it_back(client):
    done = client.generate("Once", guided_choice=["yes", "no"], min_tokens=20, max_tokens=40)
    assert done.text in ("yes", "no")


def test_an_output_that_may_not_end_has_its_text_and_nothing_else(client):
    done = client.generate("Once", guided_choice=["yes", "no"], ignore_eos=True, max_tokens=12)
    assert done.text in ("yes", "no")


def test_log_probabilities_are_those_among_what_is_allowed(client):
    done = client.generate("Once", guided_choice=["a", "b"], temperature=0, max_tokens=3, logprobs=5)
    first = done.logprobs[0]
    assert 1 <= len(first["top"]) <= 2
    assert first["rank"] == 1


def test_an_output_that_meets_a_bound_fails_alone(service):
    """A letter may begin, continue or end any of the levels: the number of grammar states keeps growing."""
    with service.client() as c:
        other = c.submit("A cat", max_tokens=1500, ignore_eos=True)
        wide = c.submit("A dog", max_tokens=1500, min_tokens=1500, seed=1,
                        guided_grammar='root ::= "" | [a-z] root [a-z] | [a-z] root')
        wide.accepted()
        with pytest.raises(JobError) as e:
            wide.done()
        assert e.value.code == "E_BAD_REQUEST" and "too many positions in the grammar" in e.value.message
        assert len(other.done().tokens) == 1500


# ---- the same tokens ----

def test_jobs_together_are_the_same_as_alone(service, expected):
    assert together(service, copies=2) == expected * 2


@pytest.mark.parametrize("options", [("--chunk", "7"), ("--threads", "1"), ("--max-seqs", "2", "--max-batch-tokens", "24"),
                                     ("--no-prefix-cache",)], ids=" ".join)
def test_options_do_not_change_the_answers(start, expected, options):
    assert together(start(DEMO, *options)) == expected


@pytest.mark.parametrize("options", [("--kv-bytes", "1M"), ("--kv-bytes", "1M", "--no-prefix-cache"),
                                     ("--kv-bytes", "700K", "--swap-bytes", "300K")], ids=" ".join)
def test_preempted_jobs_have_the_same_tokens(service, start, options):
    """Eight jobs that together need several times the blocks of the pool."""
    jobs = [dict(prompt=STORY[i:], guided_grammar=WORDS, temperature=1.0, seed=i, max_tokens=150, logprobs=1)
            for i in range(8)]
    jobs[3]["n"] = 3
    jobs[5] = dict(prompt=STORY, guided_grammar=WORDS, use_beam_search=True, n=3, beam_width=4, max_tokens=60, logprobs=1)
    known = [answer_alone(service, job) for job in jobs]
    small = start(DEMO, *options)
    assert together(small, jobs=jobs) == known
    assert small.idle()["preemptions"] > 0


def answer_alone(service, job):
    with service.client() as c:
        return answer(c.generate(**job))


def killed(service, times, jobs, known):
    """Kill this many workers while the jobs run. The answers must be these."""
    with service.client() as c:
        for _ in range(TRIES):
            sent = [c.submit(**job, stream=False).accepted() for job in jobs]
            all_hit = all(service.kill_amid(c, sent, 20) for _ in range(times))
            assert [answer(j.done()) for j in sent] == known
            if all_hit:
                return
    pytest.fail("the jobs ended before their workers were killed")


def test_a_killed_worker_does_not_change_the_tokens(start, service):
    jobs = [dict(prompt=STORY[i:], guided_grammar=LINES, temperature=1.0, seed=i, max_tokens=700, logprobs=0, n=1 + i % 2)
            for i in range(4)]
    known = [answer_alone(service, job) for job in jobs]
    killed(start(DEMO), 2, jobs, known)


def test_a_killed_worker_does_not_change_a_search(start, service):
    job = dict(prompt=STORY, guided_grammar=LINES, use_beam_search=True, n=3, beam_width=4, max_tokens=600, logprobs=1)
    killed(start(DEMO), 1, [job], [answer_alone(service, job)])


def test_after_killing_every_process_a_form_is_kept_token_for_token(tmp_path):
    job = dict(prompt=STORY, guided_grammar=LINES, temperature=1.0, seed=7, max_tokens=1200)
    s = Service(DEMO, "--journal", tmp_path / "journal")
    again = None
    try:
        with s.client() as c:
            reference = c.generate(**job)
            sent = c.submit(durable=True, **job).accepted()
            for _ in range(30):
                sent.event()
        time.sleep(0.4)
        s.kill()
        again = Service(DEMO, "--journal", tmp_path / "journal")
        with again.client() as c:
            done = c.attach(sent.job).done()
        assert done.tokens == reference.tokens and done.text == reference.text
        assert done.finish_reason == reference.finish_reason
    finally:
        s.stop()
        if again:
            again.stop()


# ---- sequences that skip steps because their mask is not ready ----

def slow(k, **more):
    """A separate constraint. Each of its masks takes some hundredths of a second."""
    nots = [{"not": {"pattern": f"{chr(97 + (i + k) % 26)}.{{{6 + i}}}$"}} for i in range(4)]
    a = {"type": "string", "minLength": 60 + k, "allOf": nots}
    form = {"type": "object", "properties": {"a": a}, "required": ["a"]}
    return {**dict(prompt="Once", guided_json=form, temperature=1.0, seed=k, max_tokens=8, logprobs=1), **more}


def amid_held(service, client, first, act):
    """Submit two slow jobs. While one of them skips steps and no worker runs, call act(pids of the workers). Return the
    jobs in order, and the result of act()."""
    def is_held():
        return client.status()["masks"]["waiting"] > 0
    for k in range(first, first + 2 * TRIES, 2):
        jobs = [slow(k), slow(k + 1)]
        sent = [client.submit(**job, stream=False).accepted() for job in jobs]
        eventually(lambda: is_held() or not any(j.unfinished() for j in sent), what="a sequence that sits out")
        with service.paused() as pids:
            if is_held():
                return jobs, sent, act(pids)
        for job in sent:    # the jobs ended before they were seen
            job.done()
    raise AssertionError("no sequence was seen to sit out")


def test_what_sits_out_and_what_goes_on_have_the_tokens_that_they_have_alone(service, expected):
    with service.client() as c:
        jobs, sent, others = amid_held(service, c, 0, lambda _: [c.submit(**job, stream=False).accepted() for job in JOBS])
        assert [answer(j.done()) for j in others] == expected
        done = [answer(j.done()) for j in sent]
    assert service.idle()["masks"]["waiting"] == 0
    assert [answer_alone(service, job) for job in jobs] == done


def test_a_worker_killed_while_sequences_sit_out_does_not_change_the_tokens(service):
    with service.client() as c:
        jobs, sent, _ = amid_held(service, c, 2 * TRIES, lambda pids: os.kill(pids[0], signal.SIGKILL))
        done = [answer(j.done()) for j in sent]
    assert done == [answer_alone(service, job) for job in jobs]


def test_two_ranks_give_the_tokens_of_one(start, expected):
    """Greedy only: two ranks round differently."""
    greedy = [dict(prompt=STORY[i:], guided_json=PERSON, temperature=0, max_tokens=150) for i in range(4)]
    greedy.append(slow(4, temperature=0))
    one = [[o["tokens"] for o in d.outputs] for d in all_of(start(DEMO, "--compute", "f32"), greedy)]
    two = start(DEMO, "--compute", "f32", "--tp", "2", "--threads", "1")
    assert [[o["tokens"] for o in d.outputs] for d in all_of(two, greedy)] == one
    assert two.status()["masks"]["held"] > 0
    # Two runs with two ranks are equal throughout, also around the loss of a rank.
    known = together(two)
    with two.client() as c:
        sent = [c.submit(**{"stream": False, **job}).accepted() for job in JOBS]
        os.kill(c.workers()[1]["pid"], signal.SIGKILL)
        assert [answer(j.done()) for j in sent] == known


def all_of(service, jobs):
    with service.client() as c:
        sent = [c.submit(**job, stream=False) for job in jobs]
        return [j.done() for j in sent]
