"""The whole service with `--device cuda:0`, on the emulated device (tests/cudasim)."""

import json

import pytest

from service import BIN, DEMO, SHARED

LIBRARY = BIN.parent / "lib" / "libquern-cudasim.so"


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    if not LIBRARY.exists():
        pytest.skip("the emulated CUDA device is not built; make cudasim-tests")
    monkeypatch.setenv("QUERN_CUDA_LIBRARY", str(LIBRARY))


def test_a_job_gets_the_same_tokens_alone_and_among_others(start):
    s = start(DEMO, "--device", "cuda:0", "--chunk", "5", "--kv-bytes", "2M")
    prompts = ["Once upon a time", "2 + 2 =", "The little dog", "One day, a girl named"]
    client = s.client()
    alone = [client.generate(p, max_tokens=6, seed=3).tokens for p in prompts]
    jobs = [client.submit(p, max_tokens=6, seed=3) for p in prompts]
    assert [j.done().tokens for j in jobs] == alone
    assert [w["device"] for w in client.workers()] == ["cuda:0"]


def test_the_reference_story_is_told(start, stories_model):
    reference = json.loads((SHARED / "weights" / "stories260K-reference.json").read_text())["hf-f32"]
    s = start(stories_model, "--device", "cuda:0")
    done = s.client().generate(reference["prompt"], temperature=0, max_tokens=12)
    assert done.tokens == reference["greedy_ids"][:12]
