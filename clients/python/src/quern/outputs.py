"""What comes back: of a job (Delta, Result), and of LLM, with vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Generic, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union

from .errors import QuernError
from .params import N_MAX

TokenLogprobs = List[Dict[str, Any]]


@dataclass(frozen=True)
class Delta:
    """A part of an output, as it comes.

    Attributes:
        index: of the output.
        offset: of the first token within the output.
        text: whole characters; the texts of an output's deltas are its text.
        tokens: their ids.
        logprobs: {token, logprob, rank, top: [{token, logprob}]} for each token; None unless asked for.
    """

    index: int
    offset: int
    text: str
    tokens: List[int]
    logprobs: Optional[TokenLogprobs] = None


@dataclass(frozen=True)
class Output:
    """One output of a job.

    Attributes:
        index: its number.
        text, tokens: what was generated; a stop token is the last of tokens and adds no text.
        finish_reason: "stop", "length", "abort" or "error".
        stop_reason: the stop string, or the id of the stop token, or None.
        cumulative_logprob: None unless logprobs were asked for, or outputs were chosen by it.
        logprobs: as in Delta.
    """

    index: int
    text: str
    tokens: List[int]
    finish_reason: str
    stop_reason: Union[str, int, None] = None
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[TokenLogprobs] = None


@dataclass(frozen=True)
class Result:
    """The end of a job.

    Attributes:
        job: its id.
        outputs: n of them.
        prompt_tokens, completion_tokens, cached_tokens: counts; cached: found in the prefix cache.
        timing: queued_us, first_token_us, total_us: microseconds from acceptance.
        prompt_logprobs: one element per token of the prompt, the first is None; None unless asked for.
        class_changed: the job continued in another numerics class (--allow-class-change).
        service_ended: the service ended before the job did, and cut its outputs; Job raises NotReady instead.
    """

    job: str
    outputs: List[Output]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    timing: Dict[str, int] = field(default_factory=dict)
    prompt_logprobs: Optional[List[Optional[Dict[str, Any]]]] = None
    class_changed: bool = False
    service_ended: bool = False

    @property
    def text(self) -> str:
        """The text of the first output."""
        return self.outputs[0].text

    @property
    def tokens(self) -> List[int]:
        """The tokens of the first output."""
        return self.outputs[0].tokens

    @property
    def finish_reason(self) -> str:
        """Why the first output ended."""
        return self.outputs[0].finish_reason


def _value(m: Any, name: str, *kinds: type) -> Any:
    v = m[name]
    if not isinstance(v, kinds) or isinstance(v, bool):
        raise TypeError(f"{name} is {v!r:.80}")
    return v


def _count(m: Any, name: str) -> int:
    v = _value(m, name, int)
    if v < 0:
        raise ValueError(f"{name} is {v}")
    return int(v)


def _index(m: Any) -> int:
    i = _count(m, "index")
    if i >= N_MAX:
        raise ValueError(f"index is {i}")
    return i


def _tokens(m: Any) -> List[int]:
    out: List[int] = _value(m, "tokens", list)
    if not all(type(t) is int for t in out):
        raise TypeError("tokens has other things than ids")
    return out


def _places(m: Any, name: str) -> Any:
    """Of logprobs, which may be absent, and the first of which may be nil in those of a prompt."""
    places = m.get(name)
    if places is not None:
        for p in _value(m, name, list):
            if p is not None:
                for token, logprob, _ in _entries(p):
                    if type(token) is not int or not isinstance(logprob, (int, float)):
                        raise TypeError(f"{name} has {token!r:.40}: {logprob!r:.40}")
    return places


def delta_from(reply: Mapping[str, Any]) -> Delta:
    """A `delta` reply; KeyError, TypeError, ValueError or AttributeError: it is malformed."""
    return Delta(_index(reply), _count(reply, "offset"), _value(reply, "text", str), _tokens(reply),
                 _places(reply, "logprobs"))


def _output(o: Any) -> Output:
    reason, total = o.get("stop_reason"), o.get("cumulative_logprob")
    if not isinstance(reason, (str, int, type(None))) or not isinstance(total, (float, int, type(None))):
        raise TypeError(f"stop_reason is {reason!r:.40}, cumulative_logprob {total!r:.40}")
    return Output(_index(o), _value(o, "text", str), _tokens(o), _value(o, "finish_reason", str), reason, total,
                  _places(o, "logprobs"))


def result_from(reply: Mapping[str, Any]) -> Result:
    """A `done` reply; exceptions as of delta_from()."""
    usage, timing = _value(reply, "usage", dict), reply.get("timing") or {}
    outputs = [_output(o) for o in _value(reply, "outputs", list)]
    if not outputs:
        raise ValueError("outputs is empty")
    return Result(_value(reply, "job", str), outputs, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"),
                  _count(usage, "cached_tokens"), {k: int(v) for k, v in timing.items()},
                  _places(reply, "prompt_logprobs"), bool(reply.get("class_changed")), bool(reply.get("service_ended")))


# --- of LLM ---

@dataclass
class Logprob:
    """The log-probability of a token at a place.

    Attributes:
        logprob: the model's own, before penalties and temperature.
        rank: 1 is the most likely token.
        decoded_token: its text.
    """

    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


SampleLogprobs = List[Dict[int, Logprob]]
PromptLogprobs = List[Optional[Dict[int, Logprob]]]


@dataclass
class CompletionOutput:
    """One output of a prompt."""

    index: int
    text: str
    token_ids: List[int]
    cumulative_logprob: Optional[float]
    logprobs: Optional[SampleLogprobs]
    routed_experts: None = None
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None
    lora_request: None = None
    sampling_mask: None = None
    spec_decode_metrics: None = None
    weight_versions: None = None

    def finished(self) -> bool:
        """Whether it has ended, which an output of LLM always has."""
        return self.finish_reason is not None


@dataclass
class RequestMetrics:
    """When things happened, in seconds of time.time(); queue and first token are measured by the service."""

    arrival_time: float
    last_token_time: float
    first_scheduled_time: Optional[float]
    first_token_time: Optional[float]
    time_in_queue: Optional[float]
    finished_time: Optional[float] = None


@dataclass
class RequestOutput:
    """The outputs of one prompt."""

    request_id: str
    prompt: Optional[str]
    prompt_token_ids: List[int]
    prompt_logprobs: Optional[PromptLogprobs]
    outputs: List[CompletionOutput]
    finished: bool
    metrics: Optional[RequestMetrics] = None
    lora_request: None = None
    encoder_prompt: None = None
    encoder_prompt_token_ids: None = None
    num_cached_tokens: Optional[int] = None
    num_cache_creation_tokens: None = None
    prompt_token_id_logprobs: None = None
    kv_transfer_params: None = None
    ec_transfer_params: None = None
    error: Optional[QuernError] = None      # of LLM(errors="return"): outputs is empty


@dataclass
class BeamSearchSequence:
    """A hypothesis: tokens of prompt and output, and their text."""

    orig_prompt: Mapping[str, Any]
    tokens: List[int]
    logprobs: SampleLogprobs = field(default_factory=list)
    lora_request: None = None
    cum_logprob: float = 0.0
    text: Optional[str] = None
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None


@dataclass
class BeamSearchOutput:
    """The hypotheses of a prompt, best first."""

    sequences: List[BeamSearchSequence]
    error: Optional[QuernError] = None      # as in RequestOutput


@dataclass
class EmbeddingOutput:
    """A vector."""

    embedding: List[float]

    @property
    def hidden_size(self) -> int:
        """Its length."""
        return len(self.embedding)


@dataclass
class ScoringOutput:
    """A score."""

    score: float


T = TypeVar("T")


@dataclass
class PoolingRequestOutput(Generic[T]):
    """What was made of a prompt, or of a pair."""

    request_id: str
    outputs: T
    prompt_token_ids: List[int]
    num_cached_tokens: int = 0
    finished: bool = True
    error: None = None
    late_chunking: None = None


@dataclass
class EmbeddingRequestOutput(PoolingRequestOutput[EmbeddingOutput]):
    """The vector of a prompt."""


@dataclass
class ScoringRequestOutput(PoolingRequestOutput[ScoringOutput]):
    """The score of a pair; prompt_token_ids is empty."""


def _entries(t: Mapping[str, Any]) -> Iterator[Tuple[int, float, Optional[int]]]:
    yield t["token"], t["logprob"], t.get("rank")
    for rank, top in enumerate(t.get("top") or [], 1):
        yield top["token"], top["logprob"], rank


def logprobs_at(t: Mapping[str, Any], names: Mapping[int, str]) -> Dict[int, Logprob]:
    """One place: the token that is there, then the most likely ones."""
    out: Dict[int, Logprob] = {}
    for token, logprob, rank in _entries(t):
        if token not in out:
            out[token] = Logprob(logprob, rank, names.get(token))
    return out


def ids_of(places: List[Optional[Dict[str, Any]]]) -> Iterator[int]:
    """All tokens that are named there."""
    for t in places:
        if t is not None:
            for token, _, _ in _entries(t):
                yield token
