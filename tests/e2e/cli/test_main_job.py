"""The main use: a prompt in, the model's text out, without configuration."""

import json

import pytest

from service import DEMO, SHARED, served


@pytest.fixture(scope="module")
def reference(stories_model):
    path = SHARED / "weights" / "stories260K-reference.json"
    if not path.exists():
        pytest.skip("the reference texts are not there")
    return json.loads(path.read_text())["hf-f32"]


@pytest.fixture(scope="module")
def stories(stories_model):
    """In the compute mode of the references."""
    yield from served(stories_model, ("--compute", "f32"))


def test_run_prints_the_reference_story(run, stories_model, reference):
    r = run("run", stories_model, reference["prompt"], "--temperature", "0", "--compute", "f32")
    assert r.returncode == 0
    assert r.stdout.startswith(reference["greedy_text"])


def test_submit_returns_the_reference_token_ids(run, stories, reference):
    n = len(reference["greedy_ids"])
    r = run("submit", reference["prompt"], "--to", stories.jobs, "--temperature", "0", "-m", str(n), "--json")
    assert r.returncode == 0, r.stderr
    done = json.loads(r.stdout)
    assert done["outputs"][0]["tokens"] == reference["greedy_ids"]
    assert done["usage"]["prompt_tokens"] == len(reference["prompt_ids"])


def test_bf16_weights_return_the_reference_token_ids(start, stories_model):
    reference = json.loads((SHARED / "weights" / "stories260K-reference.json").read_text())["hf-bf16"]
    s = start(stories_model.with_name("stories260K-hf-bf16"), "--compute", "f32")
    done = s.client().generate(reference["prompt"], temperature=0, max_tokens=len(reference["greedy_ids"]))
    assert done.tokens == reference["greedy_ids"]


def test_run_prints_a_story_and_nothing_else(run):
    r = run("run", DEMO, "--raw", "Once upon a time", "--seed", "7")
    assert r.returncode == 0
    assert r.stderr == ""
    assert len(r.stdout.split()) > 20
    assert "\x1b" not in r.stdout and "<|" not in r.stdout
    assert r.stdout.endswith("\n")


def test_run_with_the_same_seed_prints_the_same_text(run):
    arguments = ("run", DEMO, "--raw", "Once upon a time", "--seed", "7", "-m", "60")
    assert run(*arguments).stdout == run(*arguments).stdout


def test_run_reads_the_prompt_from_stdin(run):
    word = run("run", DEMO, "--raw", "Once upon a time", "--temperature", "0", "-m", "20")
    piped = run("run", DEMO, "--raw", "-", "--temperature", "0", "-m", "20", input="Once upon a time\n")
    assert piped.returncode == 0
    assert piped.stdout == word.stdout


def test_run_with_json_prints_one_result(run):
    r = run("run", DEMO, "--raw", "Once upon a time", "-n", "2", "-m", "5", "--ignore-eos", "--seed", "1", "--json")
    done = json.loads(r.stdout)
    assert [len(o["tokens"]) for o in done["outputs"]] == [5, 5]
    assert [o["index"] for o in done["outputs"]] == [0, 1]


def test_run_prints_several_outputs_one_after_another(run):
    arguments = ("run", DEMO, "--raw", "Once upon a time", "-n", "3", "-m", "8", "--ignore-eos", "--seed", "1")
    texts = [o["text"] for o in json.loads(run(*arguments, "--json").stdout)["outputs"]]
    shown = run(*arguments).stdout
    assert all(t in shown for t in texts)
    assert shown.index(texts[0]) < shown.rindex(texts[2])
