"""The operations of the job socket (docs/PROTOCOL.md): what Client and AsyncClient ask, and what they make of replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, TypeVar, Union

from ._protocol import Event
from .errors import ProtocolError, QuernError
from .outputs import Result
from .params import BeamSearchParams, SamplingParams, params_of

TIMEOUT_S = 30.0

Params = Union[SamplingParams, BeamSearchParams, Mapping[str, Any], None]
Offsets = Union[int, Sequence[int]]
T = TypeVar("T")


@dataclass(frozen=True)
class Op(Generic[T]):
    """A request with one reply.

    Attributes:
        request: the request.
        read: what its reply has; any exception means that it is malformed.
        again: whether it may be sent twice.
        timeout: seconds, instead of the client's.
    """

    request: Dict[str, Any]
    read: Callable[[Any], T]
    again: bool = True
    timeout: Optional[float] = None

    def result(self, event: Event) -> T:
        """The result that the event has; raises what it reports."""
        if isinstance(event, QuernError):
            raise event
        try:
            return self.read(event)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise ProtocolError(f"a malformed reply to {self.request['op']}: {e!r}") from None


def given(fields: Mapping[str, Any]) -> Dict[str, Any]:
    """Those that are not None."""
    return {k: v for k, v in fields.items() if v is not None}


def _plain(reply: Any) -> Dict[str, Any]:
    return {k: v for k, v in reply.items() if k not in ("op", "id")}


def _nothing(reply: Any) -> None:
    del reply


def _rows(name: str) -> Callable[[Any], List[Dict[str, Any]]]:
    return lambda reply: list(reply[name])


def ids(reply: Mapping[str, Any]) -> List[int]:
    """The tokens of a reply."""
    return [int(t) for t in reply["tokens"]]


def _as_result(event: Any) -> Result:
    if not isinstance(event, Result):
        raise TypeError("no outputs")
    return event


# --- jobs ---

def submit(prompt: Optional[str], tokens: Optional[Sequence[int]], messages: Optional[Sequence[Mapping[str, Any]]],
           params: Params, stream: bool, options: Mapping[str, Any]) -> Dict[str, Any]:
    """A submit; options: durable, priority, user, cache_salt, deadline_ms, key, on_disconnect; None: not given."""
    has = [n for n, v in (("prompt", prompt), ("tokens", tokens), ("messages", messages)) if v is not None]
    if len(has) != 1:
        raise ValueError(f"exactly one of prompt, tokens and messages must be given, not {' and '.join(has) or 'none'}")
    request: Dict[str, Any] = {"op": "submit", "stream": stream, "params": params_of(params)}
    if prompt is not None:
        request["prompt"] = prompt
    elif tokens is not None:
        request["tokens"] = list(tokens)
    else:
        request["messages"] = [dict(m) for m in messages or ()]
    request.update({k: v for k, v in options.items() if v is not None and v is not False})
    return request


def attach(job: str, offset: Offsets) -> Dict[str, Any]:
    """An attach from the number of tokens that the caller has, one for all outputs or one for each."""
    return {"op": "attach", "job": job, "from": offset if isinstance(offset, int) else list(offset)}


def cancel(job: str) -> Op[None]:
    """A cancel."""
    return Op({"op": "cancel", "job": job}, _nothing)


def result(job: str) -> Op[Result]:
    """The result of a job."""
    return Op({"op": "result", "job": job}, _as_result)


def jobs() -> Op[List[Dict[str, Any]]]:
    """The jobs."""
    return Op({"op": "jobs"}, _rows("jobs"))


# --- the service ---

def ping() -> Op[Dict[str, Any]]:
    """A ping."""
    return Op({"op": "ping"}, _plain)


def status() -> Op[Dict[str, Any]]:
    """The status."""
    return Op({"op": "status"}, _plain)


def workers() -> Op[List[Dict[str, Any]]]:
    """The workers."""
    return Op({"op": "workers"}, _rows("workers"))


def scale(replicas: int, devices: Optional[Sequence[str]], memory_fraction: Optional[float], timeout_s: int) -> Op[None]:
    """A scale."""
    fields = given({"op": "scale", "replicas": replicas, "memory_fraction": memory_fraction, "timeout_s": timeout_s,
                    "devices": None if devices is None else list(devices)})
    return Op(fields, _nothing, timeout=timeout_s + TIMEOUT_S)


def drain(worker: int, timeout_s: int) -> Op[None]:
    """A drain."""
    return Op({"op": "drain", "worker": worker, "timeout_s": timeout_s}, _nothing, again=False,
              timeout=timeout_s + TIMEOUT_S)


def reset_prefix_cache() -> Op[None]:
    """A reset of the prefix cache."""
    return Op({"op": "reset_prefix_cache"}, _nothing)


# --- texts and tokens ---

def tokenize(text: str, add_special: bool) -> Op[List[int]]:
    """The ids of a text."""
    return Op({"op": "tokenize", "text": text, "add_special": add_special}, ids)


def tokenize_chat(messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> Op[List[int]]:
    """The ids of a conversation; fields that are None are not given."""
    return Op({"op": "tokenize", "messages": [dict(m) for m in messages], **given(fields)}, ids)


def detokenize(tokens: Sequence[int], skip_special: bool = False) -> Op[str]:
    """The text of ids."""
    return Op({"op": "detokenize", "tokens": list(tokens), **({"skip_special_tokens": True} if skip_special else {})},
              lambda reply: str(reply["text"]))


def pieces(tokens: Sequence[int]) -> Op[List[str]]:
    """The text of each id."""
    return Op({"op": "detokenize", "tokens": list(tokens), "pieces": True}, lambda reply: list(reply["pieces"]))
