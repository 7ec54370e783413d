"""The requests of the job socket (docs/PROTOCOL.md), as Client and AsyncClient send them."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from .params import BeamSearchParams, SamplingParams, params_of

Params = Union[SamplingParams, BeamSearchParams, Mapping[str, Any], None]
Offsets = Union[int, Sequence[int]]


def submit(prompt: Optional[str], tokens: Optional[Sequence[int]], messages: Optional[Sequence[Mapping[str, Any]]],
           params: Params, stream: bool, options: Mapping[str, Any]) -> Dict[str, Any]:
    """A submit; options: durable, priority, user, cache_salt, deadline_ms, key, on_disconnect; None: not given."""
    given = [n for n, v in (("prompt", prompt), ("tokens", tokens), ("messages", messages)) if v is not None]
    if len(given) != 1:
        raise ValueError(f"exactly one of prompt, tokens and messages must be given, not {' and '.join(given) or 'none'}")
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


def tokenize_chat(messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> Dict[str, Any]:
    """A tokenize of a conversation; fields that are None are not given."""
    request: Dict[str, Any] = {"op": "tokenize", "messages": [dict(m) for m in messages]}
    request.update({k: v for k, v in fields.items() if v is not None})
    return request


def scale(replicas: int, devices: Optional[Sequence[str]], memory_fraction: Optional[float],
          timeout_s: Optional[int]) -> Dict[str, Any]:
    """A scale."""
    fields: Dict[str, Any] = {"op": "scale", "replicas": replicas, "memory_fraction": memory_fraction,
                              "timeout_s": timeout_s, "devices": None if devices is None else list(devices)}
    return {k: v for k, v in fields.items() if v is not None}


def drain(worker: int, timeout_s: Optional[int]) -> Dict[str, Any]:
    """A drain."""
    return {"op": "drain", "worker": worker, **({} if timeout_s is None else {"timeout_s": timeout_s})}


def ids(reply: Mapping[str, Any]) -> List[int]:
    """The tokens of a reply."""
    return [int(t) for t in reply["tokens"]]
