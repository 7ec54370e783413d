"""The demo model gives the answers of models/demo/checks.json, which were computed in FP32."""

import json

import pytest

from service import DEMO, served

PATH = DEMO / "checks.json"


@pytest.fixture(scope="module")
def service():
    yield from served(DEMO, ("--compute", "f32"))


@pytest.fixture(scope="module")
def known():
    return json.loads(PATH.read_text())


def ask_all(service, checks, **keys):
    """Submit all questions at once; return the answers in the order of the questions."""
    with service.client() as c:
        jobs = [c.submit(k["prompt"], temperature=0, max_tokens=len(k["tokens"]) + 4, **keys) for k in checks]
        return [j.done() for j in jobs]


def assert_right(checks, answers):
    wrong = [(k["prompt"][-80:], k["expect"], a.text) for k, a in zip(checks, answers) if k["expect"] != a.text]
    assert not wrong, f"{len(wrong)} of {len(checks)}: {wrong[:5]}"
    for k, a in zip(checks, answers):
        assert a.tokens == k["tokens"]
        assert a.usage["prompt_tokens"] == k["prompt_tokens"]
        assert a.finish_reason == "stop"


@pytest.mark.parametrize("kind", ["sum", "list", "code"])
def test_every_check_is_answered_exactly(service, known, kind):
    checks = [k for k in known["checks"] if k["kind"] == kind]
    assert checks
    assert_right(checks, ask_all(service, checks))


def test_facts_far_back_are_found_with_small_chunks(start, known):
    """The answer depends on the KV cache of earlier chunks."""
    checks = [k for k in known["checks"] if k["kind"] == "code" and k["prompt_tokens"] > 1000][:6]
    assert checks
    s = start(DEMO, "--compute", "f32", "--chunk", "48")
    assert_right(checks, ask_all(s, checks))


def test_stories_continue_as_in_the_reference(service, known):
    with service.client() as c:
        jobs = [c.submit(k["prompt"], temperature=0, max_tokens=k["max_tokens"]) for k in known["stories"]]
        answers = [j.done() for j in jobs]
    for k, a in zip(known["stories"], answers):
        if k["min_margin"] < 0.02:      # a near tie: another order of sums may choose the other token
            continue
        assert a.tokens == k["tokens"]
        assert a.text == k["expect"]


def test_chats_are_answered_as_in_the_reference(service, known):
    with service.client() as c:
        jobs = [c.submit(messages=k["messages"], temperature=0, max_tokens=len(k["tokens"])) for k in known["chats"]]
        answers = [j.done() for j in jobs]
    for k, a in zip(known["chats"], answers):
        assert a.usage["prompt_tokens"] == len(k["prompt_ids"])
        if k["min_margin"] >= 0.02:
            assert a.tokens == k["tokens"]
            assert a.text == k["expect"]
