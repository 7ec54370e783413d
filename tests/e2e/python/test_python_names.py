"""Each of vLLM's names (tests/golden/vllm.json) is supported by the package, or refused by name. No service is
needed."""

import ast
import dataclasses
import inspect
import json
import re
import subprocess
import sys

import pytest

import quern
from quern import _service, _vllm
from service import QUERN, ROOT

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import python_page     # noqa: E402

VLLM = json.loads((ROOT / "tests" / "golden" / "vllm.json").read_text())
ENGINE = {**VLLM["EngineArgs"], **VLLM["LLM.__init__"]}
NEEDED = {"StructuredOutputsParams": {"regex": "a"}, "BeamSearchParams": {"beam_width": 2, "max_tokens": 3}}
PARAMS = ["SamplingParams", "BeamSearchParams", "StructuredOutputsParams", "PoolingParams"]
OUTPUTS = ["RequestOutput", "CompletionOutput", "PoolingRequestOutput", "EmbeddingOutput", "ScoringOutput", "BeamSearchOutput",
           "BeamSearchSequence", "Logprob"]
METHODS = ["LLM.generate", "LLM.chat", "LLM.beam_search", "LLM.embed", "LLM.encode", "LLM.score"]
ODD = object()


def refused(table):
    return [(n, r) for n, r in _vllm.TABLE[table].items() if not r.honoured and not r.note.startswith("always ")]


def default(text):
    """Return a default as a value; None if it is no literal."""
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError):
        return None


def test_the_tables_have_vllms_names():
    assert _vllm.VERSION == VLLM["version"]
    assert set(_vllm.TABLE) == set(PARAMS + OUTPUTS + METHODS + ["LLM", "EngineArgs"])
    assert set(_vllm.TABLE["EngineArgs"]) == set(ENGINE)
    for table in PARAMS + OUTPUTS + METHODS + ["LLM"]:
        assert set(_vllm.TABLE[table]) == set(VLLM[table]), table


def test_the_page_has_the_tables():
    assert (ROOT / "docs" / "apis" / "python.md").read_text() == python_page.page()


@pytest.mark.parametrize("name", PARAMS + OUTPUTS)
def test_a_class_has_vllms_fields_with_vllms_defaults(name):
    mine = {f.name: f.default for f in dataclasses.fields(getattr(quern, name))}
    for field, text in VLLM[name].items():
        assert field in mine, field
        if text is not None and mine[field] is not dataclasses.MISSING:
            assert mine[field] == (default(text) if "RequestOutputKind" not in text else
                                   quern.RequestOutputKind[text.split(".")[1]]), field


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_vllms_parameters(name):
    mine = inspect.signature(getattr(quern.LLM, name.split(".")[1])).parameters
    for parameter, text in VLLM[name].items():
        if any(p.kind is p.VAR_KEYWORD for p in mine.values()) and parameter not in mine:
            mine = {**mine, **inspect.signature(quern.LLM.embed).parameters}    # encode() passes the rest to embed()
        assert parameter in mine, parameter
        assert mine[parameter].default == (inspect.Parameter.empty if text is None else default(text)), parameter


@pytest.mark.parametrize("table, name, row", [(t, n, r) for t in PARAMS for n, r in refused(t)],
                         ids=lambda v: v if isinstance(v, str) else "")
def test_a_parameter_is_refused_by_name(table, name, row):
    make = getattr(quern, table)
    with pytest.raises(quern.Unsupported) as e:
        make(**{**NEEDED.get(table, {}), name: ODD})
    assert (e.value.field, e.value.reason) == (name, row.note)
    for value in row.neutral:
        make(**{**NEEDED.get(table, {}), name: value})


@pytest.mark.parametrize("table, name, row", [(t, n, r) for t in METHODS for n, r in refused(t)],
                         ids=lambda v: v if isinstance(v, str) else "")
def test_an_argument_is_refused_by_name(table, name, row):
    method = getattr(object.__new__(quern.LLM), table.split(".")[1])
    needed = {p: [] for p, text in VLLM[table].items() if text is None}
    with pytest.raises(quern.Unsupported) as e:
        method(**{**needed, name: ODD})
    assert (e.value.field, e.value.reason) == (name, row.note)


@pytest.mark.parametrize("name", sorted(ENGINE))
def test_an_option_of_vllm_is_one_of_the_service_or_refused(name):
    row, text = _vllm.TABLE["EngineArgs"][name], ENGINE[name]
    if name in ("model", "seed"):
        assert name in inspect.signature(quern.LLM).parameters
        return
    if row.honoured:
        value = {"quantization": "awq", "dtype": "float32", "kv_cache_dtype": "int8", "enable_prefix_caching": False}.get(name, 3)
        arguments = _service.serve_options({name: value})
        help_ = subprocess.run([QUERN, "serve", "--help"], capture_output=True, text=True, timeout=30).stdout
        assert all(f"      {a} " in help_ for a in arguments[:1]) and (arguments == []) == (name in _service._NO_EFFECT)
        return
    for value in row.neutral + row.done + ((default(text),) if name in VLLM["LLM.__init__"] else ()):
        assert _service.serve_options({name: value}) == []
    with pytest.raises(quern.Unsupported) as e:
        _service.serve_options({name: ODD})
    assert (e.value.field, e.value.reason) == (name, row.note)


def test_methods_of_vllm_are_there_or_refused():
    llm = object.__new__(quern.LLM)
    for name, row in _vllm.TABLE["LLM"].items():
        assert row.honoured == (callable(getattr(quern.LLM, name, None))) == hasattr(llm, name), name
        if not row.honoured:
            with pytest.raises(quern.Unsupported, match=re.escape(f"{name}: {row.note}")):
                getattr(llm, name)()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        llm.nonsense()


def test_every_refusal_says_what_to_do_instead():
    for table, rows in _vllm.TABLE.items():
        for name, row in rows.items():
            assert row.honoured or row.note and row.note == row.note.strip(" ."), (table, name)


def test_parameters_of_the_default():
    given = quern.SamplingParams.from_optional(temperature=None, top_k=40, max_tokens=None, logprobs=True)
    assert (given.temperature, given.top_k, given.max_tokens, given.logprobs) == (1.0, 40, None, 1)
