"""`quern plan`: the hardware that a model and a rate need, by the cost model and the real scheduler in simulated
time."""

import json
import shlex

import pytest

from service import DEMO, Service


def plan(run, *options):
    r = run("plan", DEMO, *options, "--json")
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


SLOW = ("--lengths", "fixed:300,40", "--slo", "ttft:1000,tpot:50")


@pytest.fixture
def slow(tmp_path):
    """Costs of a slow device: 20 ms per step plus 1 ms per output; 2,000 prompt tokens a second."""
    rows = [{"batch": b, "decode_tokens_per_s": 1000 * b / (19 + b), "prefill_tokens_per_s": 2000} for b in (1, 16)]
    path = tmp_path / "engine.json"
    path.write_text(json.dumps({"results": rows}))
    return ("--measured", path)


def test_memory_is_what_the_weights_leave(run, slow):
    p = plan(run, "--device", "h100", *slow, *SLOW, "--context", "1024")
    shape = json.loads((DEMO / "config.json").read_text())
    head = shape.get("head_dim") or shape["hidden_size"] // shape["num_attention_heads"]
    kv = 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head * 2
    m = p["memory"]
    assert m["kv_token_bytes"] == kv
    inspected = json.loads(run("inspect", DEMO, "--json", "--no-probe").stdout)
    assert m["weights_bytes"] == inspected["memory"]["weights"]
    scratch = 64 * 2048 * 1024
    assert m["kv_bytes"] == pytest.approx(0.9 * 80e9 - m["weights_bytes"] - scratch, rel=1e-6)
    assert m["tokens"] == pytest.approx(min(m["kv_bytes"] // (16 * kv), 1 << 24) * 16, rel=1e-6)
    assert m["sequences_of_context"] == pytest.approx(m["tokens"] / 1024)


def test_a_rate_beyond_the_highest_is_not_served(run, slow):
    slo = ("--device", "4090", *slow, *SLOW)
    p = plan(run, "--rate", "0.5", *slo)
    assert p["served"] and p["good_share"] >= 0.95 and p["highest_rate"] > 0.5
    # A prompt of 300 tokens takes 0.15 s; 40 outputs take at least 20 ms each. Prompts alone limit the rate.
    assert p["highest_rate"] < 1 / 0.15
    assert 150 <= p["ttft_ms"]["p50"] < 400 and 19 <= p["tpot_ms"]["p50"] < 50
    beyond = plan(run, "--rate", str(2 * p["highest_rate"]), *slo)
    assert not beyond["served"] and beyond["devices_enough"] >= 2
    assert beyond["goodput_per_s"] < 2 * p["highest_rate"]
    assert beyond["ttft_ms"]["p99"] > p["ttft_ms"]["p99"]


def test_two_devices_serve_twice_as_much(run, slow):
    slo = (*slow, *SLOW)
    one, two = plan(run, "--device", "4090", "--rate", "1", *slo), plan(run, "--device", "4090x2", "--rate", "2", *slo)
    assert (two["replicas"], two["tp"]) == (2, 1)
    assert two["highest_rate"] == pytest.approx(2 * one["highest_rate"], rel=0.1)
    assert "--device cuda:0,cuda:1" in two["serve"]


def test_the_same_seed_gives_the_same_plan(run, slow):
    options = ("--device", "a100", *slow, *SLOW, "--seed", "3")
    assert plan(run, *options)["costs"] == "measured"
    assert plan(run, *options) == plan(run, *options)


def test_its_options_start_a_service_on_this_machine(run):
    p = plan(run, "--rate", "2", "--lengths", "fixed:50,10", "--context", "512", "--slo", "ttft:20")
    assert p["costs"] == "probed" and p["device"] == "cpu"
    words = shlex.split(p["serve"])
    assert words[:3] == ["quern", "serve", str(DEMO)] and "--context" in words
    service = Service(DEMO, *words[3:])
    try:
        with service.client() as client:
            assert client.generate("Once upon a time", max_tokens=3).finish_reason in ("length", "stop")
            assert client.status()["max_context"] == 512
    finally:
        service.stop()


@pytest.mark.parametrize("options, words", [
    (("--device", "h999"), ("h999", "h200")), (("--device", "h100x0"), ("1 to 4096",)), (("--rate", "0"), ("--rate",)),
    (("--slo", "speed:3"), ("--slo",)), (("--lengths", "long"), ("--lengths",)), (("--device", "h100", "--context", "999999"), ("--context",)),
    (("--device", "h100", "--tp", "2"), ("--tp",)), (("--device", "h100", "--memory-fraction", "2"), ("--memory-fraction",)),
    (("--device", "h100", "--memory-fraction", "0.01", "--measured", "/nothing"), ("/nothing",))], ids=str)
def test_what_makes_no_plan_is_named(run, options, words):
    r = run("plan", DEMO, *options)
    assert r.returncode in (1, 2) and r.stdout == ""
    for word in words:
        assert word in r.stderr, r.stderr


def test_a_group_larger_than_the_devices_is_refused(run):
    r = run("plan", DEMO, "--device", "h100", "--tp", "64")
    assert r.returncode == 1 and "--tp 64: there are 1 devices" in r.stderr
