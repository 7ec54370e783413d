"""Serving a mixture of experts: its counters, and random experts for measurements."""

import json
import os
import re
import signal
import time
import urllib.request

import pytest

from service import eventually

LAYERS, EXPERTS, CHOSEN = 2, 32, 4


@pytest.fixture(scope="module")
def model(tiny):
    """A model with gpt-oss's architecture and random weights."""
    return tiny("gpt-oss-tp")


def by_expert(service):
    """Return the rows of each (layer, expert), and the imbalance of each layer."""
    with urllib.request.urlopen(service.http + "/metrics") as reply:
        text = reply.read().decode()
    rows = {(int(m[1]), int(m[2])): int(m[3]) for m in re.finditer(
        r'^quern:expert_layer_rows_total\{[^}]*layer="(\d+)",expert="(\d+)"\} (\d+)$', text, re.M)}
    return rows, {int(m[1]): float(m[2]) for m in
                  re.finditer(r'^quern:expert_imbalance\{[^}]*layer="(\d+)"\} (\S+)$', text, re.M)}


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
    deadline = time.monotonic() + 60
    while (grown := {k: v - before[k] for k, v in counters(service).items()})["rows"] < least:
        assert time.monotonic() < deadline, grown
        time.sleep(0.1)
    assert grown["rows"] == least
    assert 8 * CHOSEN * LAYERS < grown["reads"] <= 8 * CHOSEN * LAYERS + EXPERTS * LAYERS
    status = client.call("status")["experts"]
    assert status["rows"] >= grown["rows"] and status["rows"] / EXPERTS <= status["busiest_rows"] <= status["rows"]


ROWS = 40 + 8
# The emulated device is slow, and when it starts a worker runs a step of every size.
ON_GPU = "--device", "cuda:0", "--max-batch-tokens", "32", "--max-seqs", "4", "--swap-bytes", "1M", "--kv-bytes", "2M"


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("options", [(), ("--no-graphs",), ("--experts", "cpu"), ("--place", "layers.0.experts=cuda,*.experts=cpu")],
                         ids=["graphs", "no graphs", "beside", "both"])
def test_rows_of_experts_on_a_gpu_add_up(start, model, options):
    service = start(model, "--expert-metrics", "--threads", 1, *ON_GPU, *options)
    jobs = 3
    with service.client() as client:
        for seed in range(jobs):
            client.generate(tokens=list(range(seed, seed + 40)), max_tokens=9, ignore_eos=True, seed=seed)   # no prefix is shared

        def counted():
            rows, imbalance = by_expert(service)
            return sum(rows.values()) == jobs * ROWS * CHOSEN * LAYERS and (rows, imbalance)

        rows, imbalance = eventually(counted, what="all rows of the jobs")
    for layer in range(LAYERS):
        of_layer = [rows[layer, e] for e in range(EXPERTS)]
        assert sum(of_layer) == jobs * ROWS * CHOSEN and max(of_layer) <= jobs * ROWS
        assert imbalance[layer] == pytest.approx(max(of_layer) * EXPERTS / sum(of_layer))
    total = counters(service)
    assert total["rows"] == jobs * ROWS * CHOSEN * LAYERS
    assert total["rows"] / EXPERTS <= total["busiest_rows"] <= jobs * ROWS * LAYERS and total["reads"] <= total["rows"]


@pytest.mark.parametrize("options", [(), ("--tp", 2), ("--tp", 2, "--ep")], ids=["one worker", "columns", "whole experts"])
def test_rows_of_each_expert_add_up(start, model, options):
    """Each row counts once, also in a group of ranks and after the loss of a worker."""
    service = start(model, "--expert-metrics", "--threads", 1, *options)

    def all_counted(times):
        rows, imbalance = by_expert(service)
        return sum(rows.values()) == times * ROWS * CHOSEN * LAYERS and (rows, imbalance)

    with service.client() as client:
        client.generate(tokens=list(range(40)), max_tokens=9, ignore_eos=True, seed=1)
        rows, imbalance = eventually(lambda: all_counted(1), what="all rows of the job")
        assert set(rows) == {(layer, e) for layer in range(LAYERS) for e in range(EXPERTS)}
        for layer in range(LAYERS):
            of_layer = [rows[layer, e] for e in range(EXPERTS)]
            assert sum(of_layer) == ROWS * CHOSEN and max(of_layer) <= ROWS
            assert imbalance[layer] == pytest.approx(max(of_layer) * EXPERTS / sum(of_layer))
        victim = service.workers()[0]["pid"]
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: victim not in [w["pid"] for w in service.workers()], what="the loss of the worker")
        client.generate(tokens=list(range(40)), max_tokens=9, ignore_eos=True, seed=1)
        again, _ = eventually(lambda: all_counted(2), what="the rows of both jobs")
        assert again == {k: 2 * v for k, v in rows.items()}, "the same prompt has the same experts"


def test_each_expert_is_listed_only_where_it_is_asked_for(start, model):
    service = start(model)
    service.client().generate(tokens=list(range(40)), max_tokens=2, ignore_eos=True)
    imbalance = eventually(lambda: by_expert(service)[1], what="the imbalance of the layers")
    assert set(imbalance) == set(range(LAYERS)) and all(1 <= x <= EXPERTS for x in imbalance.values())
    assert by_expert(service)[0] == {}


def read_of(trace):
    """Return the mean number of experts read by steps of three outputs, and by steps of one output."""
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert lines[0]["experts"] == CHOSEN * LAYERS and lines[0]["expert_bytes"] > 0
    three, one = ([x["experts"] for x in lines if x.get("rows") == n == x.get("samples")] for n in (3, 1))
    assert set(one) == {CHOSEN * LAYERS}
    return sum(three) / len(three)


def test_a_skewed_router_reads_fewer_experts_than_a_uniform_one(run, model, tmp_path):
    read = {}
    for skew in ("uniform", "zipf"):
        trace = tmp_path / skew
        p = run("bench", "engine", model, "--batch", "1,3", "--prompt-tokens", "40", "--max-tokens", "40", "--runs", "6",
                "--experts-skew", skew, "--trace-steps", trace, "--json", timeout=60)
        assert p.returncode == 0, p.stderr
        read[skew] = read_of(trace)
    # If all 32 experts are equally likely, three rows with four experts each use 10.6 on average.
    assert 9.8 * LAYERS < read["uniform"] < 11.4 * LAYERS
    assert read["zipf"] < read["uniform"] - 1


@pytest.mark.parametrize("arguments, why", [
    (("models/demo", "--experts-skew", "zipf"), "the model is no mixture of experts"),
    (("models/demo", "--experts-skew", "some"), "--experts-skew must be uniform or zipf"),
])
def test_a_skew_that_cannot_be_is_named(run, arguments, why):
    p = run("bench", "engine", *arguments, timeout=60)
    assert p.returncode == 1 and why in p.stderr
