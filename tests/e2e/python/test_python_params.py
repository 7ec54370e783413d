"""SamplingParams and the other parameter classes: vLLM's checks, and the fields of the request. No service is
needed."""

import ast
import dataclasses
import json
import re

import pytest

from quern import BeamSearchParams, GuidedDecodingParams, SamplingParams, StructuredOutputsParams, Unsupported
from quern.params import params_of
from service import ROOT


@pytest.mark.parametrize("wrong, word", [
    ({"n": 0}, "n must be"), ({"n": 65}, "n must be"), ({"n": 3, "best_of": 2}, "best_of"), ({"max_tokens": 0}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"), ({"min_tokens": 17}, "min_tokens"), ({"temperature": -0.1}, "temperature"),
    ({"temperature": float("nan")}, "temperature"), ({"top_p": 0}, "top_p"), ({"top_p": 1.1}, "top_p"), ({"top_k": -2}, "top_k"),
    ({"min_p": 2}, "min_p"), ({"presence_penalty": 3}, "presence_penalty"), ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logprobs": -1}, "logprobs"), ({"prompt_logprobs": 65}, "prompt_logprobs"), ({"seed": 1 << 63}, "seed"),
    ({"stop": [""]}, "stop"), ({"stop": "a", "detokenize": False}, "detokenize"), ({"truncate_prompt_tokens": 0}, "truncate"),
    ({"best_of": 2, "temperature": 0}, "best_of"), ({"allowed_token_ids": []}, "allowed_token_ids"),
])
def test_values_out_of_range_are_named(wrong, word):
    with pytest.raises(ValueError, match=word):
        SamplingParams(**wrong)


@pytest.mark.parametrize("make, field", [
    (lambda: SamplingParams(logits_processors=[print]), "logits_processors"),
    (lambda: SamplingParams(spaces_between_special_tokens=False), "spaces_between_special_tokens"),
    (lambda: BeamSearchParams(2, 5, temperature=0.5), "temperature"),
    (lambda: params_of(SamplingParams(truncate_prompt_tokens=3)), "truncate_prompt_tokens"),
    (lambda: params_of(SamplingParams(detokenize=False)), "detokenize"),
])
def test_what_is_not_supported_is_named(make, field):
    with pytest.raises(Unsupported) as e:
        make()
    assert e.value.field == field


def test_a_request_has_what_generation_config_would_set():
    """vLLM's defaults take precedence, so they are sent."""
    assert SamplingParams().to_request() == {"repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0, "min_p": 0.0,
                                             "max_tokens": 16, "top_k": 0}
    assert "max_tokens" not in SamplingParams(max_tokens=None).to_request()


def test_a_request_has_each_parameter():
    given = {"n": 2, "presence_penalty": 0.5, "seed": 4, "stop_token_ids": [3], "bad_words": ["b"], "ignore_eos": True,
             "min_tokens": 2, "logprobs": 0, "prompt_logprobs": 1, "include_stop_str_in_output": True, "typical_p": 0.9,
             "dry_multiplier": 0.8, "dry_sequence_breakers": [], "allowed_token_ids": [1, 2], "skip_special_tokens": False}
    request = SamplingParams(stop="x", logit_bias={5: 1.5}, extra_args={"response_format": {"type": "text"}}, **given).to_request()
    for name, value in {**given, "stop": ["x"], "logit_bias": {"5": 1.5}, "response_format": {"type": "text"}}.items():
        assert request[name] == value
    assert SamplingParams(**given).clone() == SamplingParams(**given)
    assert "seed" not in SamplingParams(seed=-1).to_request()   # as in vLLM


def table():
    """Read name -> (type, lo, hi, neutral, above) from proto/params.c, for the parameters that a request may have."""
    header = (ROOT / "proto" / "params.h").read_text()
    constant = {m[1]: int(m[2]) for m in re.finditer(r"(PARAMS_\w+) = (\d+)[,\s]", header)} | {"INT_MAX_D": 2**31 - 1}
    rows = re.findall(r'\{"(\w+)", AT\(\w+\), PARAMS_(\w+), ([\w\s|]+), \d+, ([^,]+), ([^,]+), ([^,]+),([^}]*)\}',
                      (ROOT / "proto" / "params.c").read_text())
    assert len(rows) == (ROOT / "proto" / "params.c").read_text().count('", AT(') - 7    # except the lists
    return {name: (type_, *(constant[x] if x in constant else float(x) for x in (low, high, neutral)), "PARAMS_ABOVE" in flags, "PARAMS_OFF_BELOW" in flags)
            for name, type_, flags, low, high, neutral, rest in rows if not rest.endswith("NULL")}


def test_numbers_are_those_of_the_services_table():
    ours = {f.name: f for f in dataclasses.fields(SamplingParams) if "lo" in f.metadata}
    theirs = {name: row for name, row in table().items() if row[0] != "BOOL" and name != "length_penalty"}
    assert ours.keys() == theirs.keys()
    for name, (type_, low, high, neutral, above, below) in theirs.items():
        m = ours[name].metadata
        assert (m["lo"], m["hi"], m["above"]) == (-1 if below else low, high, above), name
        assert ours[name].default == neutral and isinstance(ours[name].default, float if type_ == "FLOAT" else int), name


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(SamplingParams) if "lo" in f.metadata])
def test_each_number_is_sent_and_kept_within_its_range(name):
    f = next(f for f in dataclasses.fields(SamplingParams) if f.name == name)
    kind, high = type(f.default), f.metadata["hi"]
    given = kind(high) if f.default != high else kind(high) / 2
    assert SamplingParams(max_tokens=None, **{name: given}).to_request()[name] == given
    assert (name in SamplingParams().to_request()) == f.metadata["always"]
    for wrong in (high + 1, f.metadata["lo"] - 1, float("nan"), "1", *([f.metadata["lo"]] if f.metadata["above"] else [])):
        with pytest.raises(ValueError, match=name):
            SamplingParams(max_tokens=None, **{name: wrong})


def test_a_request_has_the_form():
    class Model:
        @staticmethod
        def model_json_schema():
            return {"type": "object"}
    for json_, want in (({"a": 1}, {"a": 1}), ('{"a": 1}', '{"a": 1}'), (Model, {"type": "object"})):
        assert StructuredOutputsParams(json=json_).to_request() == {"json": want}
    assert SamplingParams(guided_decoding=GuidedDecodingParams(choice=["a"])).to_request()["structured_outputs"] == {"choice": ["a"]}
    strict = GuidedDecodingParams(json={}, disable_any_whitespace=True, disable_additional_properties=True)
    assert strict.to_request() == {"json": {}, "disable_any_whitespace": True, "disable_additional_properties": True}
    assert StructuredOutputsParams(json={}, whitespace_pattern="").to_request() == {"json": {}}
    assert StructuredOutputsParams(json_object=True, whitespace_pattern=r"\n?").to_request() == {
        "json_object": True, "whitespace_pattern": r"\n?"}
    for wrong in ({"regex": "a"}, {"json": {}, "disable_any_whitespace": True}):
        with pytest.raises(ValueError, match="whitespace_pattern"):
            StructuredOutputsParams(**wrong, whitespace_pattern=" ")
    for wrong in ({}, {"regex": "a", "choice": ["b"]}, {"choice": []}):
        with pytest.raises(ValueError):
            StructuredOutputsParams(**wrong)
    with pytest.raises(ValueError, match="only one"):
        SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"), guided_decoding=GuidedDecodingParams(regex="a"))
    with pytest.raises(ValueError, match="not JSON"):
        StructuredOutputsParams(json="{").to_request()
    assert json.loads(json.dumps(BeamSearchParams(3, 5).to_request()))["beam_width"] == 3


def test_the_sources_are_python_3_9s():
    files = sorted((ROOT / "clients" / "python" / "src" / "quern").glob("*.py"))
    assert len(files) > 8
    for f in files:
        ast.parse(f.read_text(), str(f), feature_version=(3, 9))
        assert ast.get_docstring(ast.parse(f.read_text())), f"{f} does not say what it is"
