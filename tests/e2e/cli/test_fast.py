"""`--fast` and `bench kernels --tune`, with `--device cuda:0` on the emulated device (tests/cudasim)."""

import json

import pytest

from service import DEMO

# Few rows and sequences, because the worker's trial runs and captures at load take long in the emulator.
SMALL = "--device", "cuda:0", "--kv-bytes", "2M", "--max-batch-tokens", "32", "--max-seqs", "4", "--swap-bytes", "1M"

pytestmark = pytest.mark.usefixtures("emulated")


@pytest.fixture(scope="module")
def tiny_awq(tiny):
    """Two layers, AWQ in groups of 32."""
    return tiny("qwen3-awq-g32")


def test_fast_is_a_numerics_class_of_its_own(run, start):
    """A prompt below every crossover gives the same tokens with and without --fast."""
    services = start(DEMO, *SMALL), start(DEMO, *SMALL, "--fast")
    plain, fast = (s.client() for s in services)
    tokens = [c.generate("Once upon", max_tokens=4, seed=3).tokens for c in (plain, fast)]
    assert tokens[0] == tokens[1]
    classes = [c.call("status")["replicas"][0]["numerics"] for c in (plain, fast)]
    assert "fast" not in classes[0]
    assert classes[1] == classes[0].replace(" grammar=", " fast grammar=")
    status = run("status", "--to", services[1].jobs).stdout
    assert f"numerics   {classes[1]}\n" in status


def test_a_fast_worker_uses_the_tuned_crossovers(run, start, tiny_awq, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    r = run("bench", "kernels", "--tune", "--device", "cuda:0", "--model", tiny_awq, "--rows", "1,16,40", "--json")
    assert r.returncode == 0, r.stderr
    report = json.loads(r.stdout)
    written = tmp_path / "cache/quern/tune-emulated-gpu.json"
    assert report["written"] == str(written)
    assert report["fast"] == report["default"] + " fast"
    assert {(x["layer"], x["type"]) for x in report["layers"]} >= {("qkv", "awq"), ("gate+up", "awq"), ("down", "awq")}
    for layer in report["layers"]:
        assert [m["rows"] for m in layer["measured"]] == [1, 16, 40]
        assert all(m["default_us"] > 0 and m["fast_us"] > 0 for m in layer["measured"])
    file = json.loads(written.read_text())
    assert file["device"] == report["device"] and file["build"] == report["build"]
    assert len(file["layers"]) == len(report["layers"])

    # The file's crossovers are used: with 0, every step uses the other kernels.
    for layer in file["layers"]:
        layer["above"] = 0
    written.write_text(json.dumps(file))
    s = start(tiny_awq, *SMALL, "--fast")
    s.client().generate(tokens=[5, 6, 7], max_tokens=2, seed=1)
    assert f"crossovers={written} layers={len(file['layers'])}" in s.log()

    # Crossovers of another build are ignored. The worker refuses a damaged file by name.
    written.write_text(json.dumps(file | {"build": "another"}))
    s = start(tiny_awq, *SMALL, "--fast")
    assert "crossovers=built-in" in s.log() and "another" in s.log()
    written.write_text("{}")
    r = run("run", tiny_awq, "x", "--device", "cuda:0", "--fast", "--tune", written)
    assert r.returncode == 1 and "quern_tune" in r.stderr


def test_a_device_without_fast_kernels_cannot_be_tuned(run):
    r = run("bench", "kernels", "--tune", "--rows", "1")
    assert r.returncode == 1 and "cuda" in r.stderr
    assert run("bench", "kernels", "--out", "x").returncode == 2
    assert run("bench", "kernels", "--tune", "--fast").returncode == 2
    assert run("bench", "kernels", "--tune", "--model", "none-such").returncode == 2
