"""A mixture of experts that is served: what the counters say of it, and experts by chance for measurements."""

import json
import time
import urllib.request

import pytest

LAYERS, EXPERTS, CHOSEN = 2, 32, 4


@pytest.fixture(scope="module")
def model(tiny):
    """gpt-oss's form, with random weights."""
    return tiny("gpt-oss-tp")


def counters(service):
    with urllib.request.urlopen(service.http + "/metrics") as reply:
        lines = reply.read().decode().splitlines()
    return {name: sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"quern:expert_{name}_total"))
            for name in ("rows", "reads", "busiest_rows")}


def test_counters_grow_by_the_rows_that_were_computed(start, model):
    service = start(model)
    client = service.client()
    before = counters(service)
    client.generate(tokens=list(range(40)), max_tokens=9, ignore_eos=True)
    least = (40 + 8) * CHOSEN * LAYERS      # the last token is not computed
    deadline = time.monotonic() + 20
    while (grown := {k: v - before[k] for k, v in counters(service).items()})["rows"] < least:
        assert time.monotonic() < deadline, grown
        time.sleep(0.1)
    assert grown["rows"] == least
    assert 8 * CHOSEN * LAYERS < grown["reads"] <= 8 * CHOSEN * LAYERS + EXPERTS * LAYERS
    status = client.call("status")["experts"]
    assert status["rows"] >= grown["rows"] and status["rows"] / EXPERTS <= status["busiest_rows"] <= status["rows"]


def read_of(trace):
    """Experts that the steps of three outputs read, in the mean; those of one output."""
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert lines[0]["experts"] == CHOSEN * LAYERS and lines[0]["expert_bytes"] > 0
    three, one = ([x["experts"] for x in lines if x.get("rows") == n == x.get("samples")] for n in (3, 1))
    assert set(one) == {CHOSEN * LAYERS}
    return sum(three) / len(three)


def test_a_skewed_router_reads_fewer_experts_than_a_uniform_one(run, model, tmp_path):
    read = {}
    for skew in ("uniform", "zipf"):
        trace = tmp_path / skew
        p = run("bench", "engine", model, "--batch", "1,3", "--prompt-tokens", "40", "--max-tokens", "40", "--runs", "1",
                "--experts-skew", skew, "--trace-steps", trace, "--json", timeout=60)
        assert p.returncode == 0, p.stderr
        read[skew] = read_of(trace)
    # Of 32, three rows with four each have 10.6 by even chances.
    assert 9.8 * LAYERS < read["uniform"] < 11.4 * LAYERS
    assert read["zipf"] < read["uniform"] - 1


@pytest.mark.parametrize("arguments, why", [
    (("models/demo", "--experts-skew", "zipf"), "the model is no mixture of experts"),
    (("models/demo", "--experts-skew", "some"), "--experts-skew must be uniform or zipf"),
])
def test_a_skew_that_cannot_be_is_named(run, arguments, why):
    p = run("bench", "engine", *arguments, timeout=60)
    assert p.returncode == 1 and why in p.stderr
