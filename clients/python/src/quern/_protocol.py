"""The job socket's protocol without I/O: what to send for the calls that are open, and what replies mean.

    a shell (_connection.py)                   Session
    start, forget, cancel, abandon   ----->    calls
    came_up, went_down, refused      ----->      |
    receive(frame)                   ----->      v
    sends what is in outbox          <-----    outbox of frames
    tick() when next_at has come     ----->    timers, by the clock it was given
                                               sink(event) of a call

Nothing here blocks, and a session belongs to one thread.  Events are Accepted, Delta, Result, the map of an `ok`, or
an exception.

A request is sent only while the connection is up.  After a loss each open call decides what to send again, under a new
id, so that no reply of the old connection is taken for one of the new.  A job continues where it was:

    submit, no `accepted` yet   submit again: its idempotency key makes it the same job
    a stream, accepted          attach, from the number of tokens that were handed on
    without a stream            submit again: the key finds the job, or its result
    the job is gone, or was     submit again under a new key with the same seed, which gives the same tokens; a
    cancelled by the loss or    stream then attaches to the new job from the number of tokens handed on
    the end of the service
    durable                     attach, until the service has read its journal
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Union

import msgpack

from .errors import ConnectionLost, InternalError, NoSuchJob, NotReady, Overloaded, ProtocolError, QuernError, \
    ServiceError, TooLong, WorkerLost, error_from
from .outputs import Delta, Result, delta_from, result_from
from .params import N_MAX

RETRY_S, RETRY_MAX_S = 0.05, 1.0
SEED_BITS = 63
REQUEST_MAX = 16 << 20  # bytes; more is refused by the service, and much more ends the connection
_FINAL = ("done", "ok", "error")


@dataclass(frozen=True)
class Accepted:
    """The service has taken a job."""

    job: str
    prompt_tokens: int


Reply = Dict[str, Any]
Event = Union[Accepted, Delta, Result, Reply, QuernError]
Sink = Callable[[Event], None]


def pack(request: Dict[str, Any]) -> bytes:
    """The request as msgpack; ValueError names what cannot be sent."""
    try:
        return bytes(msgpack.packb(request))
    except (TypeError, ValueError, OverflowError, RecursionError) as e:
        for name, value in request.items():
            try:
                msgpack.packb(value)
            except (TypeError, ValueError, OverflowError, RecursionError):
                raise ValueError(f"{name}: cannot be sent: {e}") from None
        raise ValueError(f"the request cannot be sent: {e}") from None


def event_of(reply: Reply) -> Event:
    """What a reply says; any exception but an event means that it is malformed."""
    op = reply["op"]
    if op == "ok":
        return reply
    if op == "delta":
        return delta_from(reply)
    if op == "done":
        return result_from(reply)
    if op == "accepted":
        if not isinstance(reply["job"], str):
            raise TypeError(f"job is {reply['job']!r}")
        return Accepted(reply["job"], int(reply["prompt_tokens"]))
    if op == "error":
        return error_from(reply)
    raise ValueError(f"op is {op!r}")


class Call:
    """A request with one reply.  All but the constructor belongs to the session.

    again: whether it may be sent a second time after the connection was lost."""

    def __init__(self, request: Dict[str, Any], sink: Sink, again: bool = True) -> None:
        size = len(pack({"id": 1 << 32, **request}))
        if size > REQUEST_MAX:
            raise TooLong("E_TOO_LONG", f"the request has {size} bytes, and may have {REQUEST_MAX}")
        self.request = request
        self.sink = sink
        self.again = again
        self.id: Optional[int] = None   # under which it was sent; None: it waits for a connection
        self.created: Optional[float] = None
        self.lost_at: Optional[float] = None    # the first of the losses since its last reply
        self.ended = False

    def send(self, s: "Session") -> None:
        s.send(self, self.request)

    def lost(self, s: "Session") -> None:
        """The connection was lost after it was sent."""
        if not self.again:
            s.end(self, ConnectionLost(f"the connection to {s.address} was lost; whether {self.request['op']} was "
                                       "carried out is not known"))

    def take(self, s: "Session", event: Event) -> None:
        s.end(self, event)


class JobCall(Call):
    """A submit or an attach, followed to its end through any number of connections.

    sink gets Accepted (of a submit), Deltas if stream, and a Result or an exception."""

    def __init__(self, request: Dict[str, Any], sink: Sink) -> None:
        self.stream = request["op"] == "attach" or bool(request.get("stream"))
        self.durable = bool(request.get("durable"))
        self.own_key = False
        if request["op"] == "submit":
            self.own_key = request.get("key") is None
            request = _repeatable(request)
        super().__init__(request, sink)
        self.job: Optional[str] = request.get("job")
        self.accepted = False
        self.cancelled = False
        self.doubtful = False       # the job may be gone, or cancelled, since a connection to it was lost
        self.recovering = False     # the service comes back: refusals are temporary, until retry_until
        self.retry_until: Optional[float] = None
        self.wait_s = RETRY_S
        self.rejoin = False         # sent again without a stream: attach when it is accepted
        start = request.get("from") or 0
        self.have: Dict[int, int] = dict(enumerate(start)) if isinstance(start, list) else {}
        self.have_all = 0 if isinstance(start, list) else int(start)
        self.n_outputs = len(start) if isinstance(start, list) else int((request.get("params") or {}).get("n") or 1) \
            if request["op"] == "submit" else 0

    def offsets(self, have: Dict[int, int]) -> Union[int, List[int]]:
        """The number of tokens of each output, as `from` of an attach.  have: those that are known, by output."""
        if not have:
            return self.have_all
        n = max(self.n_outputs, max(have) + 1)
        return [have.get(i, self.have_all) for i in range(n)]

    def send(self, s: "Session") -> None:
        if self.job is not None and (self.stream or self.request["op"] == "attach"):
            if self.have and not self.n_outputs:
                s.send(self, {"op": "jobs"})    # an attach to a job of unknown size: see _counted()
            else:
                s.send(self, {"op": "attach", "job": self.job, "from": self.offsets(self.have)})
        else:
            s.send(self, {**self.request, "stream": False} if self.rejoin else self.request)

    def lost(self, s: "Session") -> None:
        self.doubtful = self.recovering = True
        self.retry_until = None
        self.wait_s = RETRY_S

    def take(self, s: "Session", event: Event) -> None:
        if isinstance(event, Delta):
            self.have[event.index] = event.offset + len(event.tokens)
            self.recovering = False
            self.sink(event)
        elif isinstance(event, Accepted):
            self._accepted(s, event)
        elif isinstance(event, Result):
            self._done(s, event)
        elif isinstance(event, ServiceError):
            self._error(s, event)
        elif isinstance(event, QuernError):
            s.end(self, event)
        elif self.have and not self.n_outputs and isinstance(event.get("jobs"), list):
            self._counted(event["jobs"])
            self.send(s)
        else:
            s.end(self, ProtocolError(f"{s.address} sent an ok to {self.request['op']}"))

    def _counted(self, rows: List[Any]) -> None:
        least = max(self.have) + 1
        mine = [r.get("n") for r in rows if isinstance(r, dict) and r.get("job") == self.job]
        n = mine[0] if mine else None
        self.n_outputs = n if isinstance(n, int) and least <= n <= N_MAX else least

    def _accepted(self, s: "Session", event: Accepted) -> None:
        self.job = event.job
        self.recovering = False
        if not self.accepted:
            self.accepted = True
            self.sink(event)
        if self.cancelled:
            s.cancel_job(self.job)
        if self.rejoin:
            self.rejoin = False
            self.send(s)

    def _done(self, s: "Session", result: Result) -> None:
        if self.cancelled:
            s.end(self, result)
        elif result.service_ended:
            self._cut(s, result)
        elif any(o.finish_reason == "abort" for o in result.outputs) and self.doubtful and self._renew():
            self.send(s)
        else:
            s.end(self, result)

    def _cut(self, s: "Session", result: Result) -> None:
        """The service ended before the job did: it is run again when the service is back."""
        if self._renew():
            self.lost(s)
            s.later(self, self.wait_s)
        else:
            s.end(self, NotReady("E_NOT_READY", "the service ended before the job did; submit it again when it is back",
                                 job=result.job))

    def _renew(self) -> bool:
        """Makes it a new job with the same tokens.  False: it cannot be submitted again."""
        if self.request["op"] != "submit" or not self.own_key or self.durable:
            return False
        self.request["key"] = uuid.uuid4().hex
        self.job = None
        self.rejoin = self.stream
        self.doubtful = False
        return True

    def _error(self, s: "Session", e: ServiceError) -> None:
        if self.cancelled:
            s.end(self, e)
        elif isinstance(e, NoSuchJob) and self.doubtful and self._renew():
            self.send(s)
        elif self._passes(s, e):
            s.later(self, self.wait_s)
            self.wait_s = min(2 * self.wait_s, RETRY_MAX_S)
        else:
            s.end(self, e)

    def _passes(self, s: "Session", e: ServiceError) -> bool:
        """Whether it is worth asking again later."""
        goes_on = self.request["op"] == "attach" or (self.durable and self.accepted)
        if isinstance(e, NotReady) and goes_on and not self.recovering:
            self.lost(s)    # the service ends gracefully; the job goes on when it is back
        if not self.recovering:
            return False
        if self.retry_until is None:
            self.retry_until = s.clock() + s.reconnect_timeout
        if s.clock() > self.retry_until:
            return False
        if isinstance(e, (WorkerLost, InternalError)):  # the job has ended, if it was accepted
            return self.durable or self.job is None or self._renew()
        return isinstance(e, (NotReady, Overloaded))


def _repeatable(request: Dict[str, Any]) -> Dict[str, Any]:
    """The submit with a key and a seed, so that it can be sent again."""
    params = dict(request.get("params") or {})
    if params.get("seed") is None:
        params["seed"] = random.SystemRandom().getrandbits(SEED_BITS)
    return {**request, "params": params, "key": request.get("key") or uuid.uuid4().hex}


class Session:
    """The calls of a client, over any number of connections to one address.

    Attributes:
        outbox: frames to be sent, in this order; empty while there is no connection.
        up: whether there is a connection.
        reached: whether there was one ever.
        why: what is known of why there is none.
    """

    def __init__(self, address: str, connect_timeout: float, reconnect_timeout: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.address = address
        self.reconnect_timeout = reconnect_timeout
        self.clock = clock
        self.outbox: Deque[bytes] = deque()
        self.up = self.reached = False
        self.why = ""
        self._connect_timeout = connect_timeout
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._ids = itertools.count(1)
        self._sent: Dict[int, Call] = {}    # by id
        self._open: Dict[int, Call] = {}    # all that have not ended, by id(call)
        self._down_since = clock()
        self._generation = 0

    # --- calls ---

    def start(self, call: Call) -> None:
        """Sends the call as soon as there is a connection."""
        if call.request["op"] == "cancel":
            self._mark_cancelled(call.request["job"])
        self._begin(call)

    def _begin(self, call: Call) -> None:
        call.created = self.clock()
        self._open[id(call)] = call
        if self.up:
            call.send(self)
        else:
            self._watch(call)

    def forget(self, call: Call) -> None:
        """Its replies are not wanted any more."""
        call.ended = True
        self._open.pop(id(call), None)
        self._unsend(call)

    def cancel(self, call: JobCall) -> None:
        """Cancels the job of the call, once it is accepted."""
        call.cancelled = True
        if call.job is not None and not call.ended:
            self.cancel_job(call.job)

    def abandon(self, call: JobCall) -> None:
        """Cancels the job; its replies are not wanted any more."""
        if call.ended:
            return
        call.cancelled = True
        call.sink = lambda _: None
        if call.job is not None:
            self.cancel_job(call.job)
        if call.job is not None or call.id is None:
            self.forget(call)   # else it is cancelled when it is accepted

    def cancel_job(self, job: str) -> None:
        """Cancels a job; the reply is of no interest."""
        self._begin(Call({"op": "cancel", "job": job}, lambda _: None))

    def _mark_cancelled(self, job: Any) -> None:
        """The end of a job that the caller cancels by its id is not taken for the work of a lost connection."""
        for call in self._open.values():
            if isinstance(call, JobCall) and call.job == job:
                call.cancelled = True

    def fail_all(self, e: QuernError) -> None:
        """Ends all open calls."""
        for call in list(self._open.values()):
            self.end(call, e)

    # --- what calls do ---

    def send(self, call: Call, request: Dict[str, Any]) -> None:
        self._unsend(call)
        if self.up and not call.ended:
            call.id = next(self._ids)
            self._sent[call.id] = call
            self.outbox.append(pack({**request, "id": call.id}))

    def end(self, call: Call, event: Event) -> None:
        if not call.ended:
            self.forget(call)
            call.sink(event)

    def later(self, call: Call, delay: float) -> None:
        """Sends the call again after a while."""
        self._unsend(call)
        self._at(self.clock() + delay, lambda: self._resend(call))

    def _resend(self, call: Call) -> None:
        if not call.ended and call.id is None:
            call.send(self)

    def _unsend(self, call: Call) -> None:
        if call.id is not None:
            self._sent.pop(call.id, None)
            call.id = None

    # --- the connection ---

    def came_up(self) -> None:
        """There is a connection."""
        self.up = self.reached = True
        self.why = ""
        self._generation += 1
        for call in list(self._open.values()):
            call.send(self)

    def went_down(self) -> None:
        """It was lost; all that had arrived was received before."""
        self.up = False
        self.outbox.clear()
        self._generation += 1
        self._down_since = now = self.clock()
        self._sent.clear()
        for call in list(self._open.values()):
            if call.id is not None:
                call.id = None
                call.lost_at = now if call.lost_at is None else call.lost_at
                if now - call.lost_at > self.reconnect_timeout:
                    self.end(call, ConnectionLost(f"{self.address}: the connection is lost whenever "
                                                  f"{call.request['op']} is sent"))
                    continue
                call.lost(self)
            if not call.ended:
                self._watch(call)

    def _watch(self, call: Call) -> None:
        """Fails a call that waits for a connection for too long."""
        limit = self.reconnect_timeout if self.reached else self._connect_timeout
        generation = self._generation

        def check() -> None:
            if not call.ended and not self.up and generation == self._generation:
                self.end(call, ConnectionLost(self.no_service()))
        self._at(max(call.created or 0.0, self._down_since) + limit, check)

    def no_service(self) -> str:
        """Why there is no connection."""
        if self.reached:
            return f"{self.address}: the service went away and did not come back within {self.reconnect_timeout:g} s"
        if self.why:
            return f"{self.address}: {self.why}"
        return f"no service answers at {self.address}; start one with: quern serve MODEL"

    def receive(self, frame: bytes) -> None:
        """A message came."""
        try:
            reply = msgpack.unpackb(frame)
            call = self._sent.get(reply["id"])
            op = reply["op"]
        except (ValueError, KeyError, TypeError, msgpack.UnpackException) as e:
            self.fail_all(ProtocolError(f"{self.address} sent what is not a reply of quern: {e!r}"))
            return
        if call is None:
            return
        call.lost_at = None
        if op in _FINAL:
            self._unsend(call)
        try:
            event = event_of(reply)
        except Exception as e:  # whatever it has, it ends this call alone
            self.end(call, ProtocolError(f"{self.address} sent a malformed {op!s:.40}: {e!r:.200}"))
            return
        call.take(self, event)

    # --- time ---

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (when, next(self._ids), what))

    @property
    def next_at(self) -> Optional[float]:
        """When tick() has something to do, by the clock; None: not before something happens."""
        return self._timers[0][0] if self._timers else None

    def tick(self) -> None:
        """Does what is due."""
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
