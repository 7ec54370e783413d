"""quern.LLM with other kinds of models: rerankers and embedding models, compared with transformers
(tests/golden/rank.json) and HTTP; tools in chats, with a model of scripted output."""

import json
import sys

import pytest

import quern
from quern import PoolingParams, SamplingParams
from service import ROOT, SHARED

sys.path.insert(0, str(ROOT / "tests" / "tools"))
GOLDEN = json.loads((ROOT / "tests" / "golden" / "rank.json").read_text())
TEXTS = GOLDEN["texts"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """models(KIND): an LLM with a model made by make_rank_model.py."""
    tokenizer = SHARED / "tokenizers" / "qwen3"
    if not tokenizer.is_dir():
        pytest.skip("Qwen3's tokenizer is not there")
    import make_rank_model
    folder = tmp_path_factory.mktemp("rank")
    made = {}

    def model(kind):
        if kind not in made:
            make_rank_model.make(kind, str(folder / kind), str(tokenizer))
            made[kind] = quern.LLM(str(folder / kind), compute="f32", max_model_len=512)
        return made[kind]
    yield model
    for llm in made.values():
        llm.close()


def near(a, b, off=2e-5):
    return len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < off


def scores(outputs):
    return [o.outputs.score for o in outputs]


def test_scores_are_those_of_transformers(models):
    llm = models("reranker")
    want = [w["score"] for w in GOLDEN["reranker"]]
    got = llm.score(TEXTS[0], TEXTS[1:3])
    assert near(scores(got), want) and [o.finished for o in got] == [True, True]
    assert scores(llm.score([TEXTS[0]] * 2, TEXTS[1:3])) == scores(got)
    assert scores(llm.score(TEXTS[0], TEXTS[1])) == scores(got)[:1]
    assert scores(llm.score(TEXTS[0], TEXTS[1:3] * 150, pooling_params=PoolingParams(use_activation=True))) == scores(got) * 150
    with pytest.raises(ValueError, match="data_1 has 2 texts and data_2 3"):
        llm.score(["a", "b"], ["a", "b", "c"])
    with pytest.raises(quern.BadRequest) as e:
        llm.score(TEXTS[0], TEXTS[1:3], tokenization_kwargs={"truncate_prompt_tokens": 8})
    assert e.value.field == "truncate_prompt_tokens"


def test_vectors_are_those_of_transformers(models):
    llm = models("embedding")
    got, want = llm.embed(TEXTS), GOLDEN["embedding"]
    for o, w in zip(got, want):
        assert near(o.outputs.embedding, w["vector"]) and len(o.prompt_token_ids) == w["tokens"]
    cosines = [sum(x * y for x, y in zip(got[0].outputs.embedding, o.outputs.embedding)) for o in got[1:]]
    assert near(scores(llm.score(TEXTS[0], TEXTS[1:])), cosines)
    many = llm.embed([TEXTS[i % 4] for i in range(1000)])
    assert all(o.outputs == got[i % 4].outputs for i, o in enumerate(many))
    length = sum(x * x for x in llm.embed(TEXTS[0], pooling_params=PoolingParams(use_activation=True))[0].outputs.embedding)
    assert abs(length - 1) < 1e-5


def test_what_the_tokenizer_adds_is_not_cut(models):
    """The model's own end token, from which its vector is read."""
    llm = models("embedding")
    ids = llm.get_tokenizer().encode(TEXTS[0])
    for side, kept in (("right", ids[:3] + ids[-1:]), ("left", ids[-4:])):
        o = llm.embed(TEXTS[0], tokenization_kwargs={"truncate_prompt_tokens": 4, "truncation_side": side})[0]
        assert o.prompt_token_ids == kept
        assert o.outputs.embedding == llm.embed([kept])[0].outputs.embedding
    plain = llm.embed(TEXTS[0], tokenization_kwargs={"add_special_tokens": False})[0]
    assert plain.prompt_token_ids == ids[:-1]
    with pytest.raises(ValueError, match="truncate_prompt_tokens is 1, and the tokenizer adds 1"):
        llm.embed(TEXTS[0], truncate_prompt_tokens=1)


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def test_tools_reach_the_template_and_calls_are_the_models_own_text(tmp_path):
    import make_script_model
    template = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
    model = make_script_model.make(tmp_path / "script", CALL, template)
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    with quern.LLM(str(model)) as llm:
        answer = llm.chat(ask, SamplingParams(temperature=0, max_tokens=100), tools=[TOOL])[0]
        assert '"get_weather"' in answer.prompt and CALL in answer.outputs[0].text
        result = [{"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function", "function": {
            "name": "get_weather", "arguments": {"city": "Paris"}}}]}, {"role": "tool", "content": "rain"}]
        second = llm.chat(ask + result, SamplingParams(max_tokens=1), tools=[TOOL])[0]
        assert "<tool_call>" in second.prompt and "rain" in second.prompt
        assert "get_weather" not in llm.chat(ask, SamplingParams(max_tokens=1))[0].prompt
        parts = [{"role": "user", "content": [{"type": "text", "text": "What is the "}, {"type": "text", "text": "weather?"}]}]
        assert "What is the" in llm.chat(parts, SamplingParams(max_tokens=1))[0].prompt
