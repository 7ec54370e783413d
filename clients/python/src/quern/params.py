"""Parameters with vLLM's names and checks, and how a request has them."""

from __future__ import annotations

import json as _json
import math
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _vllm
from .errors import Unsupported

N_MAX = 64
Json = Union[str, Dict[str, Any], type]


def _check(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


def _is_int(v: object) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def _is_number(v: object) -> bool:
    return isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)


def schema_of(value: Any, name: str) -> Union[str, Dict[str, Any]]:
    """A JSON schema: a dictionary, its text, or a pydantic model."""
    if hasattr(value, "model_json_schema"):
        value = value.model_json_schema()
    if isinstance(value, str):
        try:
            _json.loads(value)
        except ValueError as e:
            raise ValueError(f"{name} is not JSON: {e}") from None
        return value
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON schema: a dict, its text, or a pydantic model")
    return value


@dataclass
class StructuredOutputsParams:
    """What outputs must look like: one of json, regex, choice, grammar, json_object, structural_tag.

    Attributes:
        json: a JSON schema: a dict, its text, or a pydantic model.
        regex: a pattern that the whole output matches.
        choice: strings, one of which is the output.
        grammar: GBNF where a rule is written with "::=", else Lark.
        json_object: any JSON object.
        structural_tag: the JSON text of a structural tag.
        whitespace_pattern: what stands wherever JSON has whitespace, of blanks, tabs, newlines and returns, at most 20.
    """

    json: Optional[Json] = None
    regex: Optional[str] = None
    choice: Optional[List[str]] = None
    grammar: Optional[str] = None
    json_object: Optional[bool] = None
    disable_fallback: bool = False
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: Optional[str] = None
    structural_tag: Optional[str] = None

    _forms = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")

    def __post_init__(self) -> None:
        given = [n for n in self._forms if getattr(self, n) not in (None, False)]
        _check(len(given) == 1, f"exactly one of {', '.join(self._forms)} must be given, not "
                                f"{' and '.join(given) or 'none'}")
        _vllm.check("StructuredOutputsParams", vars(self))
        if self.whitespace_pattern:
            _check(self.json is not None or bool(self.json_object), "whitespace_pattern goes with json or json_object")
            _check(not self.disable_any_whitespace, "whitespace_pattern and disable_any_whitespace: only one may be given")
        if self.choice is not None:
            _check(len(self.choice) > 0 and all(isinstance(c, str) for c in self.choice), "choice must be a list of strings")

    def to_request(self) -> Dict[str, Any]:
        """As `structured_outputs` of a request."""
        flags: Dict[str, Any] = {n: True for n in ("disable_any_whitespace", "disable_additional_properties") if getattr(self, n)}
        if self.whitespace_pattern:
            flags["whitespace_pattern"] = self.whitespace_pattern
        if self.json is not None:
            return {"json": schema_of(self.json, "json"), **flags}
        name = next(n for n in self._forms if getattr(self, n) not in (None, False))
        value = getattr(self, name)
        return {name: list(value) if name == "choice" else value, **flags}


@dataclass
class GuidedDecodingParams(StructuredOutputsParams):
    """StructuredOutputsParams by its older name.

    Attributes:
        backend: which engine should guide; the service has its own, and the value has no effect.
    """

    backend: Optional[str] = None
    backend_was_auto: bool = False


class RequestOutputKind(Enum):
    """vLLM's; LLM returns whole outputs whatever it is, as vLLM's does."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


def _number(default: Any, lo: float, hi: float, above: bool = False, always: bool = False) -> Any:
    """A number of the service's table of parameters (proto/params.c; a test compares both): its neutral value and range.
    above: lo itself is refused.  always: sent even if it is neutral, since generation_config.json may have another."""
    return field(default=default, metadata={"lo": lo, "hi": hi, "above": above, "always": always})


INT_MAX = 2**31 - 1
# Not in the table as they are: sent unless they have these values.
_NEUTRAL = {"seed": None, "best_of": None, "max_tokens": None, "logprobs": None, "prompt_logprobs": None,
            "include_stop_str_in_output": False, "ignore_eos": False}


@dataclass
class SamplingParams:
    """How tokens are sampled, with vLLM's names, meaning and defaults, and llama.cpp's samplers beside them.

    A default counts, too: temperature is 1 unless given, whatever the model's generation_config.json has, as in
    vLLM.  max_tokens=None: the rest of the context.  What the service cannot do raises Unsupported.

    Attributes:
        n: outputs.
        best_of: outputs sampled, of which the n likeliest are returned.
        seed: the same seed gives the same tokens, whatever else runs; None, -1: one is drawn.
        logprobs, prompt_logprobs: of the token and of the N most likely (0 to 64); None: none.
        truncate_prompt_tokens: only the last N tokens of a prompt are used.
        structured_outputs, guided_decoding: what outputs must look like; one of them.
        extra_args: further parameters of the service by its own names.
    """

    n: int = _number(1, 1, N_MAX)
    best_of: Optional[int] = None
    presence_penalty: float = _number(0.0, -2, 2)
    frequency_penalty: float = _number(0.0, -2, 2)
    repetition_penalty: float = _number(1.0, 0, 1000, above=True, always=True)
    temperature: float = _number(1.0, 0, 1000, always=True)
    top_p: float = _number(1.0, 0, 1, above=True, always=True)
    top_k: int = _number(0, -1, INT_MAX, always=True)
    min_p: float = _number(0.0, 0, 1, always=True)
    seed: Optional[int] = None
    stop: Union[str, List[str], None] = None
    stop_token_ids: Optional[List[int]] = None
    bad_words: Optional[List[str]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    min_tokens: int = _number(0, 0, INT_MAX)
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logits_processors: Optional[Any] = None
    include_stop_str_in_output: bool = False
    truncate_prompt_tokens: Optional[int] = None
    structured_outputs: Optional[StructuredOutputsParams] = None
    guided_decoding: Optional[StructuredOutputsParams] = None
    logit_bias: Optional[Mapping[int, float]] = None
    allowed_token_ids: Optional[List[int]] = None
    extra_args: Optional[Dict[str, Any]] = None
    typical_p: float = _number(1.0, 0, 1, above=True)
    top_n_sigma: float = _number(0.0, -1, 1000)
    xtc_probability: float = _number(0.0, 0, 1)
    xtc_threshold: float = _number(0.1, 0, 1)
    dry_multiplier: float = _number(0.0, 0, 1000)
    dry_base: float = _number(1.75, 1, 1000)
    dry_allowed_length: int = _number(2, 0, 1024)
    dry_penalty_last_n: int = _number(-1, -1, INT_MAX)
    dry_sequence_breakers: Optional[List[str]] = None
    mirostat: int = _number(0, 0, 2)
    mirostat_tau: float = _number(5.0, 0, 100)
    mirostat_eta: float = _number(0.1, 0, 10)
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    skip_clone: bool = False
    prompt_logprob_token_ids: Optional[List[int]] = None
    prompt_logprob_start: Optional[int] = None
    logprob_token_ids: Optional[List[int]] = None
    flat_logprobs: bool = False
    stream_interval: Optional[int] = None
    output_text_buffer_length: int = 0
    skip_reading_prefix_cache: Optional[bool] = None
    thinking_token_budget: Optional[int] = None
    repetition_detection: Optional[Any] = None
    routed_experts_prompt_start: int = 0
    trace_decode_token_ids: Optional[List[int]] = None
    watermarking: Optional[Any] = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is True:
                setattr(self, name, 1)
        if self.seed == -1:     # vLLM's way to say None
            self.seed = None
        self._check_numbers()
        self._check_counts()
        self._check_supported()

    def _check_counts(self) -> None:
        _check(self.best_of is None or _is_int(self.best_of) and self.n <= self.best_of <= N_MAX,
               f"best_of must be from n={self.n} to {N_MAX}, got {self.best_of}")
        _check(self.max_tokens is None or _is_int(self.max_tokens) and self.max_tokens >= 1,
               f"max_tokens must be at least 1, got {self.max_tokens}")
        _check(self.max_tokens is None or self.min_tokens <= self.max_tokens,
               f"min_tokens must be at most max_tokens={self.max_tokens}, got {self.min_tokens}")
        for name in ("logprobs", "prompt_logprobs"):
            v = getattr(self, name)
            _check(v is None or _is_int(v) and 0 <= v <= N_MAX, f"{name} must be from 0 to {N_MAX}, got {v}")
        _check(self.seed is None or _is_int(self.seed) and -2**63 <= self.seed < 2**63,
               f"seed must be an integer of 64 bits, got {self.seed}")
        _check(self.truncate_prompt_tokens is None or _is_int(self.truncate_prompt_tokens) and self.truncate_prompt_tokens >= 1,
               f"truncate_prompt_tokens must be at least 1, got {self.truncate_prompt_tokens}")

    def _check_numbers(self) -> None:
        for f in fields(self):
            if "lo" not in f.metadata:
                continue
            v, lo, hi, above = getattr(self, f.name), f.metadata["lo"], f.metadata["hi"], f.metadata["above"]
            kind = _is_int(v) if isinstance(f.default, int) else _is_number(v)
            _check(kind and (lo < v if above else lo <= v) and v <= hi,
                   f"{f.name} must be {'above' if above else 'from'} {lo:g} to {hi:g}, got {v}")

    def _check_supported(self) -> None:
        stops = self.stop or []
        _check(all(isinstance(s, str) and s for s in stops), "stop must not hold an empty string")
        _check(self.detokenize or not stops, "stop needs detokenize=True")
        _check(self.allowed_token_ids is None or len(self.allowed_token_ids) > 0, "allowed_token_ids must not be empty")
        _check(self.structured_outputs is None or self.guided_decoding is None,
               "structured_outputs and guided_decoding: only one may be given")
        if self.logits_processors:
            raise Unsupported("logits_processors", "functions cannot be sent to the service")
        _vllm.check("SamplingParams", vars(self))
        if self.best_of is not None and self.best_of > self.n and self.temperature < 1e-5:
            raise ValueError("best_of above n needs a temperature above 0")

    def to_request(self) -> Dict[str, Any]:
        """As `params` of a submit."""
        out: Dict[str, Any] = {}
        for f in fields(self):
            v = getattr(self, f.name)
            if "lo" in f.metadata and (f.metadata["always"] or v != f.default):
                out[f.name] = v
        for name, neutral in _NEUTRAL.items():
            v = getattr(self, name)
            if v != neutral:
                out[name] = v
        if self.stop:
            out["stop"] = list(self.stop)
        for name in ("stop_token_ids", "bad_words", "allowed_token_ids", "dry_sequence_breakers"):
            v = getattr(self, name)
            if v is not None and (v or name == "dry_sequence_breakers"):
                out[name] = list(v)
        if not self.skip_special_tokens:
            out["skip_special_tokens"] = False
        if self.logit_bias:
            out["logit_bias"] = {str(k): v for k, v in self.logit_bias.items()}
        form = self.structured_outputs or self.guided_decoding
        if form is not None:
            out["structured_outputs"] = form.to_request()
        out.update(self.extra_args or {})
        return out

    @staticmethod
    def from_optional(**given: Any) -> "SamplingParams":
        """Parameters, where None means that the default counts."""
        return SamplingParams(**{k: v for k, v in given.items() if v is not None or k == "max_tokens"})

    def clone(self) -> "SamplingParams":
        """A copy that may be changed."""
        return type(self)(**{f.name: getattr(self, f.name) for f in fields(self)})


@dataclass
class BeamSearchParams:
    """Beam search: the beam_width best hypotheses, as Hugging Face transformers find them.

    Attributes:
        beam_width: hypotheses, 1 to 64.
        max_tokens: of each.
        ignore_eos: the model's own stop tokens do not end a hypothesis.
        length_penalty: score = sum of logprobs / length ^ length_penalty.
        early_stopping: True: at once when beam_width are finished; False, "never": docs/PROTOCOL.md.
        include_stop_str_in_output: keep the stop token.
        skip_special_tokens: leave them out of the texts.
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False
    structured_outputs: Optional[StructuredOutputsParams] = None
    skip_special_tokens: bool = True
    watermarking: Optional[Any] = None
    allowed_token_ids: Optional[List[int]] = None
    early_stopping: Union[bool, str] = False

    def __post_init__(self) -> None:
        _vllm.check("BeamSearchParams", vars(self))
        _check(_is_int(self.beam_width) and 1 <= self.beam_width <= N_MAX,
               f"beam_width must be from 1 to {N_MAX}, got {self.beam_width}")
        _check(_is_int(self.max_tokens) and self.max_tokens >= 1, f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.temperature not in (0, 1):
            raise Unsupported("temperature", f"a beam search has 0 or 1, got {self.temperature}")

    def to_request(self) -> Dict[str, Any]:
        """As `params` of a submit."""
        return {"use_beam_search": True, "beam_width": self.beam_width, "n": self.beam_width,
                "max_tokens": self.max_tokens, "ignore_eos": self.ignore_eos, "length_penalty": self.length_penalty,
                "early_stopping": self.early_stopping, "temperature": self.temperature, "logprobs": 0}


@dataclass
class PoolingParams:
    """How embed(), encode() and score() make vectors and scores, with vLLM's names.

    Attributes:
        use_activation: vectors of the length 1; None: as the model's files say.
        dimensions: the first so many values; None: all.
        task: "embed", "score" or "classify"; None: what the method asks.
    """

    use_activation: Optional[bool] = None
    dimensions: Optional[int] = None
    step_tag_id: Optional[int] = None
    returned_token_ids: Optional[List[int]] = None
    task: Optional[str] = None
    requires_token_ids: bool = False
    skip_reading_prefix_cache: Optional[bool] = None
    late_interaction_params: Optional[Any] = None
    extra_kwargs: Optional[Dict[str, Any]] = None
    output_kind: RequestOutputKind = RequestOutputKind.FINAL_ONLY
    late_chunking_params: Optional[Any] = None

    def __post_init__(self) -> None:
        _vllm.check("PoolingParams", vars(self))
        _check(self.dimensions is None or _is_int(self.dimensions) and self.dimensions >= 1,
               f"dimensions must be at least 1, got {self.dimensions}")


def params_of(params: "Union[SamplingParams, BeamSearchParams, Mapping[str, Any], None]") -> Dict[str, Any]:
    """Of any of these, `params` of a submit."""
    if params is None:
        return {}
    if isinstance(params, SamplingParams):
        if params.truncate_prompt_tokens is not None:
            raise Unsupported("truncate_prompt_tokens", "LLM cuts prompts, a client of the job socket sends them as they are")
        if not params.detokenize:
            raise Unsupported("detokenize", "the job socket always sends texts; LLM leaves them out")
    if isinstance(params, (SamplingParams, BeamSearchParams)):
        return params.to_request()
    if isinstance(params, Mapping):
        return dict(params)
    raise TypeError(f"params must be SamplingParams, BeamSearchParams or a dict, not {type(params).__name__}")


def one_each(params: Any, n: int, name: str) -> Sequence[Any]:
    """One for each of n prompts: a single one is for all."""
    if isinstance(params, (list, tuple)):
        if len(params) != n:
            raise ValueError(f"{name} has {len(params)} elements, and there are {n} prompts")
        return params
    return [params] * n
