"""`quern bench autoscale`: a service with autoscaling, in simulated time."""

import json

import pytest


@pytest.fixture
def trace(tmp_path):
    """A request every 4 s for one minute, four requests a second for two minutes, then as before."""
    times = [*range(0, 60, 4), *(60 + i / 4 for i in range(480)), *range(180, 300, 4)]
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{t},1500,150\n" for t in times))
    return path


def test_workers_follow_the_load(run, trace):
    r = run("bench", "autoscale", "--trace", trace, "--device", "4090", "--scale-at", "4", "--scale-period", "5",
            "--scale-down-after", "20", "--start", "5", "--max-replicas", "8", "--slot", "30", "--json")
    assert r.returncode == 0, r.stderr
    out = json.loads(r.stdout)
    assert out["requests"] == out["done"] == 525 and out["lost"] == 0
    slots = out["workers_by_slot"]
    assert slots[0] == 1 and 1 < max(slots) <= 8 and slots[8] == 1
    assert out["worker_seconds"] == pytest.approx(30 * sum(slots), rel=1e-6)
    text = run("bench", "autoscale", "--trace", trace, "--device", "4090", "--duration", "50").stdout
    assert "GOOD %" in text and "WORKER h" in text


@pytest.mark.parametrize("options, word", [
    ((), "--trace is missing"), (("--trace", "/nowhere.csv"), "/nowhere.csv"), (("--replicas", "3", "--max-replicas", "2"), "--max-replicas"),
    (("--scale-at", "0"), "--scale-at"), (("--start", "-1"), "--start"), (("--device", "x"), "--device")], ids=str)
def test_what_cannot_be_is_named(run, options, word):
    r = run("bench", "autoscale", *options)
    assert r.returncode in (1, 2) and word in r.stderr


# ---- bench scheduler: options for arrivals; times are simulated and depend only on the seed ----

ARRIVING = "--rate", "30", "--duration", "60", "--seed", "1", "--json"


def simulate(run, arrivals):
    r = run("bench", "scheduler", "--arrivals", arrivals, *ARRIVING)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_prompts_that_arrive_in_bursts_wait_longer(run):
    """A gamma distribution is burstier the smaller its shape; a Poisson process has shape 1."""
    bursts, plain, even = (simulate(run, a) for a in ("gamma:0.1", "poisson", "gamma:16"))
    assert bursts["ttft_ms"]["mean"] > 1.5 * plain["ttft_ms"]["mean"] > 1.5 * even["ttft_ms"]["mean"]
    assert all(1500 < r["done"] == r["requests"] < 2100 for r in (bursts, plain, even))
    assert simulate(run, "gamma:0.1")["ttft_ms"] == bursts["ttft_ms"]


def test_other_arrivals_are_refused_by_name(run):
    for arrivals in ("gamma:x", "gamma:0", "uniform"):
        r = run("bench", "scheduler", "--arrivals", arrivals, *ARRIVING)
        assert r.returncode != 0 and f'--arrivals: "{arrivals}" is neither poisson nor gamma:SHAPE' in r.stderr
