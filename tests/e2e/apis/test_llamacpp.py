"""The API of llama.cpp's server: /completion, /infill, /props and related paths, as its users' scripts call them."""

import json
import shutil
import signal
import sys
import urllib.request

import pytest

from service import DEMO, ROOT, served

sys.path.insert(0, str(ROOT / "tests" / "e2e" / "http"))
from test_http import ask  # noqa: E402

GREEDY = {"temperature": 0, "n_predict": 12}
KEY = "sk-alice-0123456789abcdef"
FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
FILES = ["<|repo_name|>", "<|file_sep|>"]


def complete(service, path="/completion", **keys):
    status, headers, reply = ask(service, path, {**GREEDY, **keys})
    assert status == 200, reply
    return reply


def events(service, **keys):
    body = json.dumps({**GREEDY, "stream": True, **keys}).encode()
    with urllib.request.urlopen(service.http + "/completion", body) as r:    # no Content-Type: JSON, as for curl -d
        assert r.headers["Content-Type"].startswith("text/event-stream")
        text = r.read().decode()
    return [json.loads(e.removeprefix("data: ")) for e in text.split("\n\n") if e]


def openai(service, **keys):
    return ask(service, "/v1/completions", {"temperature": 0, "max_tokens": 12, **keys})[2]


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_a_completion_is_the_completions_s(service, path):
    want = openai(service, prompt="Once upon", return_token_ids=True)
    r = complete(service, path, prompt="Once upon", return_tokens=True)
    assert r["content"] == want["choices"][0]["text"] and r["tokens"] == want["choices"][0]["token_ids"]
    assert (r["stop"], r["stop_type"], r["stopping_word"], r["truncated"]) == (True, "limit", "", False)
    assert (r["tokens_evaluated"], r["tokens_predicted"]) == (want["usage"]["prompt_tokens"], 12)
    assert r["prompt"] == "Once upon" and r["model"] == "demo"
    assert r["timings"]["predicted_n"] == 12 and r["timings"]["predicted_per_second"] > 0
    assert r["timings"]["prompt_n"] + r["timings"]["cache_n"] == r["tokens_evaluated"]
    assert r["generation_settings"]["temperature"] == 0 and r["generation_settings"]["n_predict"] == 12
    assert complete(service, path, prompt="Once upon")["tokens"] == []


def test_prompts_are_texts_ids_or_several(service):
    ids = ask(service, "/tokenize", {"content": "Once upon"})[2]["tokens"]
    one, other = complete(service, prompt=ids), complete(service, prompt="There was")
    both = complete(service, prompt=["Once upon", "There was"])
    assert [r["content"] for r in both] == [one["content"], other["content"]]
    assert [r["prompt"] for r in both] == ["Once upon", "There was"] and [r["index"] for r in both] == [0, 1]
    assert one["prompt"] == "Once upon"
    assert [r["content"] for r in complete(service, prompt=["Once upon"])] == [one["content"]]


def test_settings_are_those_of_each_prompt(service):
    a, b = complete(service, prompt=["Once upon", "Once upon"], temperature=2, return_tokens=True)
    seeds = [r["generation_settings"]["seed"] for r in (a, b)]
    assert seeds[0] != seeds[1]
    for r, seed in zip((a, b), seeds):
        assert complete(service, prompt="Once upon", temperature=2, seed=seed, return_tokens=True)["tokens"] == r["tokens"]


def test_a_stream_of_an_array_of_one_prompt(service):
    assert events(service, prompt=["Once upon"])[-1]["prompt"] == "Once upon"
    assert events(service, prompt=[[5, 6]])[-1]["tokens_evaluated"] == 2


def test_a_stream_adds_up_and_its_last_event_has_the_rest(service):
    whole = complete(service, prompt="Once upon", return_tokens=True)
    *parts, last = events(service, prompt="Once upon")
    assert "".join(p["content"] for p in parts) == whole["content"]
    assert [t for p in parts for t in p["tokens"]] == whole["tokens"]
    assert not any(p["stop"] for p in parts) and last["stop"] and last["content"] == "" and last["tokens"] == []
    for name in ("stop_type", "stopping_word", "tokens_predicted", "tokens_evaluated", "prompt", "has_new_line", "model"):
        assert last[name] == whole[name], name
    assert last["timings"]["predicted_n"] == 12 and last["generation_settings"]["stream"]


def test_why_it_stops(service):
    full = complete(service, prompt="Once upon")["content"]
    word = full[5:8]
    r = complete(service, prompt="Once upon", stop=[word])
    assert (r["stop_type"], r["stopping_word"], r["content"]) == ("word", word, full[:full.index(word)])
    chat = ask(service, "/apply-template", {"messages": [{"role": "user", "content": "Once upon a time"}]})[2]["prompt"]
    assert chat == "<|im_start|>user\nOnce upon a time<|im_end|>\n<|im_start|>assistant\n"
    assert complete(service, prompt=chat, n_predict=100)["stop_type"] == "eos"
    *_, last = events(service, prompt="Once upon", stop=[word])
    assert (last["stop_type"], last["stopping_word"]) == ("word", word)


def test_probabilities(service):
    r = complete(service, prompt="Once upon", n_probs=2)
    assert len(r["completion_probabilities"]) == 12
    for p in r["completion_probabilities"]:
        assert len(p["top_logprobs"]) == 2 and p["logprob"] == p["top_logprobs"][0]["logprob"]
        assert bytes(p["bytes"]).decode(errors="replace") == p["token"] and p["id"] == p["top_logprobs"][0]["id"]
    *parts, _ = events(service, prompt="Once upon", n_probs=2)
    assert [q["id"] for p in parts for q in p["completion_probabilities"]] == \
        [q["id"] for q in r["completion_probabilities"]]


def test_forms_and_biases(service):
    assert complete(service, prompt="Once", grammar='root ::= "a" "b"')["content"] == "ab"
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    assert json.loads(complete(service, prompt="Once", json_schema=schema, n_predict=60)["content"])["n"] in (1, 2)
    first = complete(service, prompt="Once", n_predict=1, return_tokens=True)["tokens"][0]
    assert complete(service, prompt="Once", n_predict=1, return_tokens=True,
                    logit_bias=[[first, False]])["tokens"] != [first]


@pytest.mark.parametrize("bound", [{}, {"n_predict": -1}, {"n_predict": -2}])
def test_without_a_bound_the_context_is_filled(service, bound):
    prompt = ask(service, "/tokenize", {"content": "Once upon a time " * 500})[2]["tokens"][:2000]
    r = ask(service, "/completion", {"prompt": prompt, "ignore_eos": True, "temperature": 0, **bound})[2]
    assert (r["tokens_evaluated"], r["tokens_predicted"], r["stop_type"]) == (2000, 48, "limit")
    assert r["generation_settings"]["n_predict"] == 48
    assert len(openai(service, prompt=prompt, max_tokens=None, return_token_ids=True)["choices"][0]["token_ids"]) <= 16


def test_infill_needs_the_vocabulary(service):
    status, _, reply = ask(service, "/infill", {"input_prefix": "a", "input_suffix": "b", **GREEDY})
    assert status == 400 and "FIM" in reply["error"]["message"] and reply["error"]["code"] == 400


def fills_gaps(model, names=FIM):
    """Serve the demo model with special tokens for filling in the middle."""
    shutil.copytree(DEMO, model)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    added, vocab = tokenizer["added_tokens"], tokenizer["model"]["vocab"]
    for i, name in enumerate(names):
        if i == len(added):    # replaces a word
            word = max(vocab, key=vocab.get)
            added.append({**added[0], "id": vocab.pop(word)})
            merges = tokenizer["model"]["merges"]
            tokenizer["model"]["merges"] = [m for m in merges if "".join(m if isinstance(m, list) else m.split(" ")) != word]
        added[i]["content"] = name
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model / "tokenizer_config.json").write_text("{}")
    yield from served(model, ())


@pytest.fixture(scope="module")
def fim(tmp_path_factory):
    yield from fills_gaps(tmp_path_factory.mktemp("fim") / "fim")


@pytest.fixture
def fim_files(tmp_path):
    yield from fills_gaps(tmp_path / "files", FIM + FILES)


def test_infill(fim):
    r = complete(fim, "/infill", input_prefix="Once upon", input_suffix=" a time", prompt=" there")
    assert r["prompt"] == "<|fim_prefix|>Once upon<|fim_suffix|> a time<|fim_middle|> there"
    assert r["content"] == complete(fim, prompt=r["prompt"])["content"]
    # Special tokens in a client's text are encoded as plain text.
    forged = complete(fim, "/infill", input_prefix="<|fim_middle|>", input_suffix="")
    assert forged["tokens_evaluated"] > 4


def test_a_gap_with_other_files(fim, fim_files):
    extra = [{"filename": "a.py", "text": "x = 1"}, {"text": "y = 2"}]
    gap = {"input_prefix": "Once", "input_suffix": " time", "input_extra": extra}
    assert complete(fim, "/infill", **gap)["prompt"] == \
        "x = 1\ny = 2\n<|fim_prefix|>Once<|fim_suffix|> time<|fim_middle|>"
    assert complete(fim_files, "/infill", **gap)["prompt"] == (
        "<|repo_name|>myproject\n<|file_sep|>a.py\nx = 1\n<|file_sep|>tmp\ny = 2\n<|file_sep|>filename\n"
        "<|fim_prefix|>Once<|fim_suffix|> time<|fim_middle|>")
    for wrong in ([5], [{}], [{"text": 5}], [{"text": "a", "filename": 5}], [{"text": "a "}] * 5000):
        status, _, reply = ask(fim, "/infill", {**gap, "input_extra": wrong})
        assert status == 400 and "input_extra" in reply["error"]["message"]


def test_a_gap_of_a_client_without_a_place_costs_nothing(tmp_path, fim):
    """The key's limit on jobs is checked before any text is encoded."""
    from service import Service
    (tmp_path / "keys").write_text(f"{KEY} name=a max-jobs=1\n")
    (tmp_path / "keys").chmod(0o600)
    s = Service(fim.argv[2], "--api-key-file", tmp_path / "keys", step_ms=20)      # the job takes 38 s
    try:
        by = {"Authorization": f"Bearer {KEY}"}
        too_long = {"input_prefix": "a " * 5000, "input_suffix": "b"}
        assert ask(s, "/infill", too_long, headers=by)[0] == 400
        body = json.dumps({"prompt": "Once", "stream": True, "n_predict": 1900, "ignore_eos": True}).encode()
        with urllib.request.urlopen(urllib.request.Request(s.http + "/completion", body, by)) as r:
            r.readline()
            assert ask(s, "/infill", too_long, headers=by)[0] == 429
    finally:
        s.stop(signal.SIGKILL)
        Service.used.remove(s)


def test_a_gap_between_texts_that_do_not_fit_is_refused(fim):
    status, _, reply = ask(fim, "/infill", {"input_prefix": "a " * 5000, "input_suffix": "b"})
    assert status == 400 and "input_prefix" in reply["error"]["message"] and "2048" in reply["error"]["message"]


def test_props_slots_and_health(service):
    props = ask(service, "/props")[2]
    assert props["total_slots"] == 256 and props["model_alias"] == "demo"
    assert props["default_generation_settings"]["n_ctx"] == 2048 and props["eos_token"] == "<|im_end|>"
    slots = ask(service, "/slots")[2]
    assert len(slots) == 256 and not any(s["is_processing"] for s in slots)
    assert ask(service, "/v1/health")[2] == {"status": "ok"}


def test_tokens(service):
    text = "Once upon a time, héllo"
    tokens = ask(service, "/tokenize", {"content": text})[2]["tokens"]
    assert tokens == ask(service, "/tokenize", {"prompt": text, "add_special_tokens": False})[2]["tokens"]
    assert ask(service, "/detokenize", {"tokens": tokens})[2]["content"] == text
    pieces = ask(service, "/tokenize", {"content": text, "with_pieces": True})[2]["tokens"]
    assert [p["id"] for p in pieces] == tokens
    assert b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces).decode() == text


def test_embedding(service):
    want = ask(service, "/v1/embeddings", {"input": ["Once", "upon"]})[2]["data"]
    assert ask(service, "/embedding", {"content": ["Once", "upon"]})[2] == \
        [{"index": i, "embedding": [d["embedding"]]} for i, d in enumerate(want)]
    assert len(ask(service, "/embedding", {"content": "Once"})[2]) == 1


@pytest.mark.parametrize("change, words", [
    ({"n_predict": 0}, "n_predict"),
    ({"repeat_penalty": 0}, "repeat_penalty"),
    ({"n_probs": 99}, "n_probs"),
    ({"mirostat": 3}, "mirostat"),
    ({"grammar": "root ::= ("}, "grammar"),
    ({"logit_bias": [["Hello", 1]]}, "logit_bias"),
    ({"prompt": ["a", "b"], "stream": True}, "prompt"),
    ({"prompt": [1, "b"]}, "prompt"),
    ({"prompt": None}, "prompt"),
])
def test_errors_name_the_field(service, change, words):
    status, _, reply = ask(service, "/completion", {"prompt": "Once", **GREEDY, **change})
    assert status == 400 and words in reply["error"]["message"]
    assert (reply["error"]["code"], reply["error"]["type"]) == (400, "invalid_request_error")


def test_ignored_fields_are_named(service):
    headers = ask(service, "/completion", {"prompt": "Once", "n_predict": 1, "cache_prompt": True, "brand_new": 1})[1]
    assert headers["x-quern-ignored"] == "cache_prompt, brand_new"


def test_a_client_that_goes_ends_its_job(service):
    body = json.dumps({"prompt": "Once", "stream": True, "n_predict": 1900, "ignore_eos": True}).encode()
    with urllib.request.urlopen(service.http + "/completion", body) as r:
        r.readline()
    service.idle()
