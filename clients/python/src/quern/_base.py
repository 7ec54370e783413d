"""What Client and AsyncClient, Job and AsyncJob have in common: everything but how they wait."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Deque, Dict, Generic, List, Mapping, Optional, Sequence, TypeVar, Union

from . import _ops
from ._connection import Connection
from ._ops import Offsets, Params
from ._protocol import Accepted, Event, JobCall, Sink
from .errors import ProtocolError, QuernError, RequestTimeout
from .keys import Keys, default_address, whole_address
from .outputs import Delta, Result

J = TypeVar("J")


class BaseJob:
    """A job under way."""

    def __init__(self, connection: Connection, request: Dict[str, Any], timeout: Optional[float], sink: Sink) -> None:
        self._connection = connection
        self._timeout = timeout
        self._end: Union[Result, QuernError, None] = None
        self._id: Optional[str] = request.get("job")
        self._prompt_tokens: Optional[int] = None
        self._waiting: Deque[Delta] = deque()
        self._call = JobCall(request, sink)
        self._read: Dict[int, int] = dict(self._call.have)  # tokens that the caller has of each output
        connection.start(self._call)

    def _take(self, event: Event) -> None:
        if isinstance(event, QuernError):
            self._end = event
        elif isinstance(event, Accepted):
            self._id, self._prompt_tokens = event.job, event.prompt_tokens
        elif isinstance(event, Delta):
            self._waiting.append(event)
        elif isinstance(event, Result):
            self._id = event.job
            self._end = event
        else:
            self._end = ProtocolError("a job's reply is none of accepted, delta, done and error")

    def _late(self, seconds: Optional[float]) -> RequestTimeout:
        return RequestTimeout(f"job {self._id or '(not accepted yet)'}: nothing came within {seconds or 0:g} s")

    def _pop(self) -> Optional[Delta]:
        """The next delta that has come; None: there is none now.  Raises how the job failed, behind its deltas."""
        try:
            delta = self._waiting.popleft()
        except IndexError:
            if isinstance(self._end, QuernError):
                raise self._end from None
            return None
        self._read[delta.index] = delta.offset + len(delta.tokens)
        return delta

    def _ended(self) -> Optional[Result]:
        """The result, if there is one yet.  Raises how the job failed."""
        if isinstance(self._end, QuernError):
            raise self._end
        return self._end

    @property
    def offsets(self) -> Union[int, List[int]]:
        """How many tokens of each output were read: the offset for attach() in another process.  Of a job that was
        attached to, only outputs are counted that are known: those that the offset names, or that have come."""
        return self._call.offsets(self._read)

    def cancel(self) -> None:
        """Ends the job, with finish_reason "abort"; no effect on one that has ended."""
        self._connection.cancel(self._call)

    def close(self) -> None:
        """Cancels the job unless it has ended, and gives up its replies."""
        if self._end is None:
            self._connection.abandon(self._call)


class BaseClient(Generic[J]):
    """A client of a running service's job socket."""

    def __init__(self, address: Optional[str] = None, *, keys: Optional[Keys] = None,
                 timeout: Optional[float] = _ops.TIMEOUT_S, connect_timeout: float = 10.0,
                 reconnect_timeout: float = 120.0) -> None:
        self.address = whole_address(address) if address else default_address()
        self.timeout = timeout
        self._connection = Connection(self.address, keys, connect_timeout, reconnect_timeout)
        self._finalizer = weakref.finalize(self, self._connection.close)

    def _job(self, request: Dict[str, Any], timeout: Optional[float]) -> J:
        raise NotImplementedError

    def _no_reply(self, op: "_ops.Op[Any]", seconds: Optional[float]) -> RequestTimeout:
        return RequestTimeout(f"{self.address}: no reply to {op.request['op']} within {seconds or 0:g} s")

    def submit(self, prompt: Optional[str] = None, params: Params = None, *, tokens: Optional[Sequence[int]] = None,
               messages: Optional[Sequence[Mapping[str, Any]]] = None, stream: bool = True, durable: bool = False,
               priority: Optional[int] = None, user: Optional[str] = None, cache_salt: Optional[str] = None,
               deadline_ms: Optional[int] = None, key: Optional[str] = None, on_disconnect: Optional[str] = None,
               timeout: Optional[float] = None) -> J:
        """Submits a job and returns at once.

        Args:
            prompt, tokens, messages: exactly one: a text, token ids, or a conversation.
            params: SamplingParams, BeamSearchParams, or a dict with the names of docs/PROTOCOL.md.
            stream: deltas come; else only the result.
            durable: accepted means on disk; the job survives the death of any process (quern serve --journal).
            priority: lower runs first.
            user: shares of an owner's users are equal.
            cache_salt: prefixes are shared only between jobs with the same salt.
            deadline_ms: DeadlineExceeded after this time.
            key: idempotency: a second submit with it is the same job.  Without one, the client makes one, so that a
                job that a lost connection or the end of the service has cut can be run again; with the caller's key
                the first ends in finish_reason "abort", the second in NotReady.
            on_disconnect: "cancel" or "keep": what the job does when its last listener has gone.
            timeout: seconds between two events, RequestTimeout beyond it; None: no limit.
        """
        options = {"durable": durable, "priority": priority, "user": user, "cache_salt": cache_salt,
                   "deadline_ms": deadline_ms, "key": key, "on_disconnect": on_disconnect}
        return self._job(_ops.submit(prompt, tokens, messages, params, stream, options), timeout)

    def attach(self, job: str, offset: Offsets = 0, *, timeout: Optional[float] = None) -> J:
        """The stream of a job, from the number of tokens that the caller has: one for all outputs, or one for each."""
        return self._job(_ops.attach(job, offset), timeout)
