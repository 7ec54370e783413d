"""`quern bench engine`: its measurements of a private service with the demo model."""

import json

import pytest

PARTS = {"linear", "norm_rope", "attention", "head", "masks", "sampling", "group", "waiting"}


def bench(run, *options):
    p = run("bench", "engine", "models/demo", "--batch", "1,3", "--prompt-tokens", "40", "--max-tokens", "24",
            "--runs", "1", *options, timeout=60)
    assert p.returncode == 0, p.stderr
    return p.stdout


def test_json_has_where_a_steps_time_goes_and_its_shares(run, tmp_path):
    trace = tmp_path / "steps.jsonl"
    # The jobs of a batch are sent one by one: the first one has to go on while the last one is on its way.
    r = json.loads(bench(run, "--json", "--trace-steps", str(trace), "--max-tokens", "200"))
    assert [row["batch"] for row in r["results"]] == [1, 3]
    for row in r["results"]:
        for kind in ("decode", "prompt"):
            s = row["steps"][kind]
            assert set(s["ms"]) == PARTS
            assert sum(s["ms"].values()) == pytest.approx(s["step_ms"])
            for part in ("linear", "norm_rope", "attention", "head", "sampling"):
                assert s["ms"][part] > 0, part
            assert s["memory_percent"] > 0 and s["peak_percent"] > 0
        assert row["steps"]["decode"]["ms"]["waiting"] > 0
        assert row["steps"]["prompt"]["ms"]["waiting"] == 0
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert lines[0]["device"] == "cpu"
    assert any(line.get("rows") == 3 for line in lines)


def test_an_embedding_beside_the_head_is_not_counted_as_read(run):
    """The demo's embedding is its output head. In mode int8 the head is a second copy."""
    tied, apart = (json.loads(bench(run, "--json", "--compute", mode)) for mode in ("int16", "int8"))
    table = 1664 * 256 * 2
    assert apart["weights_bytes"] - apart["read_bytes"] > table > tied["weights_bytes"] - tied["read_bytes"] >= 0
    for r in (tied, apart):
        for row in r["results"]:
            assert row["weights_gb_per_s"] == pytest.approx(r["read_bytes"] * row["decode_tokens_per_s"] / row["batch"] / 1e9)
    r = json.loads(bench(run, "--json", "--no-steps"))
    assert r["read_bytes"] == r["weights_bytes"]


def test_the_table_shows_the_step_and_no_steps_leaves_it_out(run):
    text = bench(run)
    assert "WAITING" in text and "of memory" in text
    assert "WAITING" not in bench(run, "--no-steps")


def test_engine_measures_outputs_with_a_form_beside_others(run, tmp_path):
    """Runs come in pairs. The steps of guided outputs are counted, and their masks take time."""
    (tmp_path / "schema.json").write_text(json.dumps({"type": "array", "minItems": 50, "items": {"type": "integer"}}))
    p = run("bench", "engine", "models/demo", "--batch", "3", "--prompt-tokens", "20", "--max-tokens", "24",
            "--runs", "2", "--json", "--guided", tmp_path / "schema.json", timeout=120)
    [row] = json.loads(p.stdout)["results"]
    assert row["guided"]["decode_tokens_per_s"] > 0 and row["guided"]["step_ratio"] > 0
    assert row["steps"]["decode"]["ms"]["masks"] > 0


def test_engine_names_a_schema_that_cannot_be_read(run, tmp_path):
    p = run("bench", "engine", "models/demo", "--guided", tmp_path / "none.json")
    assert p.returncode == 1 and "none.json" in p.stderr


def test_a_step_may_take_as_long_as_it_takes(run):
    """A step may take longer than the bench waits before it checks that the service still runs."""
    p = run("bench", "engine", "models/demo", "--batch", "1", "--prompt-tokens", "8", "--max-tokens", "2", "--runs", "1",
            "--least-step-ms", "700", "--json", timeout=120)
    assert p.returncode == 0, p.stderr
    [row] = json.loads(p.stdout)["results"]
    assert row["ttft_ms"]["p50"] >= 700
