"""The connection to a job socket: a thread that owns the ZeroMQ socket, sends requests, and hands replies on.

    caller's thread --start(call)--> todo --+
                                            v
    service <--DEALER-- the connection's thread --sink(reply or exception)--> caller (queue, event loop)
                              ^
    monitor: up, down --------+

A request is sent only while the connection is up, and never left to ZeroMQ's own queue: after a loss the socket is
replaced, and each open call decides what to send again, under a new id, so that no reply of the old connection is
taken for one of the new.  A job continues where it was:

    submit, no `accepted` yet   submit again: its idempotency key makes it the same job
    a stream, accepted          attach, from the number of tokens that were handed on
    without a stream            submit again: the key finds the job, or its result
    the job is gone, or was     submit again under a new key with the same seed, which gives the same tokens; a
    cancelled by the loss       stream then attaches to the new job from the number of tokens handed on
    durable                     attach, until the service has read its journal
"""

from __future__ import annotations

import heapq
import itertools
import random
import socket
import threading
import time
import uuid
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Union

import msgpack
import zmq
from zmq.utils.monitor import recv_monitor_message

from .errors import AuthError, ConnectionLost, InternalError, NoSuchJob, NotReady, Overloaded, ProtocolError, \
    QuernError, ServiceError, TooLong, WorkerLost, error_from
from .keys import Keys

Reply = Dict[str, Any]
Sink = Callable[[Union[Reply, QuernError]], None]

HEARTBEAT_MS = 2000
HEARTBEAT_TIMEOUT_MS = 10000
RETRY_S, RETRY_MAX_S = 0.05, 1.0
READS_PER_TURN = 256    # before todo and timers are looked at again
SEED_BITS = 63
REQUEST_MAX = 16 << 20  # bytes; more is refused by the service, and much more ends the connection
_FINAL = ("done", "ok", "error")


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


class Call:
    """A request with one reply.  All but the constructor runs on the connection's thread.

    again: whether it may be sent a second time after the connection was lost."""

    def __init__(self, request: Dict[str, Any], sink: Sink, again: bool = True) -> None:
        size = len(pack({"id": 1 << 32, **request}))
        if size > REQUEST_MAX:
            raise TooLong("E_TOO_LONG", f"the request has {size} bytes, and may have {REQUEST_MAX}")
        self.request = request
        self.sink = sink
        self.again = again
        self.id: Optional[int] = None   # under which it was sent; None: it waits for a connection
        self.created = time.monotonic()
        self.ended = False

    def send(self, c: "Connection") -> None:
        c.send(self, self.request)

    def lost(self, c: "Connection") -> None:
        """The connection was lost after it was sent."""
        if not self.again:
            c.end(self, ConnectionLost(f"the connection to {c.address} was lost; whether {self.request['op']} was "
                                       "carried out is not known"))

    def reply(self, c: "Connection", reply: Reply) -> None:
        c.end(self, error_from(reply) if reply["op"] == "error" else reply)


class JobCall(Call):
    """A submit or an attach, followed to its end through any number of connections.

    sink gets `accepted` (of a submit), `delta`s if stream, and `done` or an exception."""

    def __init__(self, request: Dict[str, Any], sink: Sink) -> None:
        self.stream = request["op"] == "attach" or bool(request.get("stream"))
        self.durable = bool(request.get("durable"))
        self.own_key = False
        if request["op"] == "submit":
            request = _repeatable(request)
            self.own_key = request.pop("_own_key")
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

    def send(self, c: "Connection") -> None:
        if self.job is not None and (self.stream or self.request["op"] == "attach"):
            if self.have and not self.n_outputs:
                c.send(self, {"op": "jobs"})    # an attach to a job of unknown size: see reply()
            else:
                c.send(self, {"op": "attach", "job": self.job, "from": self.offsets(self.have)})
        else:
            c.send(self, {**self.request, "stream": False} if self.rejoin else self.request)

    def lost(self, c: "Connection") -> None:
        self.doubtful = self.recovering = True
        self.retry_until = None
        self.wait_s = RETRY_S

    def reply(self, c: "Connection", reply: Reply) -> None:
        op = reply["op"]
        if op == "delta":
            self._delta(reply)
        elif op == "accepted":
            self._accepted(c, reply)
        elif op == "ok":
            rows = [r for r in reply.get("jobs", []) if r.get("job") == self.job]
            self.n_outputs = int(rows[0]["n"]) if rows else max(self.have) + 1
            self.send(c)
        elif op == "done":
            self._done(c, reply)
        else:
            self._error(c, error_from(reply))

    def _delta(self, reply: Reply) -> None:
        index, offset = int(reply["index"]), int(reply["offset"])
        self.have[index] = offset + len(reply["tokens"])
        self.recovering = False
        self.sink(reply)

    def _accepted(self, c: "Connection", reply: Reply) -> None:
        self.job = str(reply["job"])
        self.recovering = False
        if not self.accepted:
            self.accepted = True
            self.sink(reply)
        if self.cancelled:
            c.start(Call({"op": "cancel", "job": self.job}, lambda _: None))
        if self.rejoin:
            self.rejoin = False
            self.send(c)

    def _done(self, c: "Connection", reply: Reply) -> None:
        aborted = any(o.get("finish_reason") == "abort" for o in reply["outputs"])
        if not (aborted and self.doubtful and not self.cancelled and self._renew()):
            c.end(self, reply)
        else:
            self.send(c)

    def _renew(self) -> bool:
        """Makes it a new job with the same tokens.  False: it cannot be submitted again."""
        if self.request["op"] != "submit" or not self.own_key or self.durable:
            return False
        self.request["key"] = uuid.uuid4().hex
        self.job = None
        self.rejoin = self.stream
        self.doubtful = False
        return True

    def _error(self, c: "Connection", e: ServiceError) -> None:
        if self.cancelled:
            c.end(self, e)
        elif isinstance(e, NoSuchJob) and self.doubtful and self._renew():
            self.send(c)
        elif self._passes(c, e):
            c.later(self, self.wait_s)
            self.wait_s = min(2 * self.wait_s, RETRY_MAX_S)
        else:
            c.end(self, e)

    def _passes(self, c: "Connection", e: ServiceError) -> bool:
        """Whether it is worth asking again later."""
        goes_on = self.request["op"] == "attach" or (self.durable and self.accepted)
        if isinstance(e, NotReady) and goes_on and not self.recovering:
            self.lost(c)    # the service ends gracefully; the job goes on when it is back
        if not self.recovering:
            return False
        if self.retry_until is None:
            self.retry_until = time.monotonic() + c.reconnect_timeout
        if time.monotonic() > self.retry_until:
            return False
        if isinstance(e, (WorkerLost, InternalError)):  # the job has ended, if it was accepted
            return self.durable or self.job is None or self._renew()
        return isinstance(e, (NotReady, Overloaded))


def _repeatable(request: Dict[str, Any]) -> Dict[str, Any]:
    """The submit with a key and a seed, so that it can be sent again."""
    params = dict(request.get("params") or {})
    if params.get("seed") is None:
        params["seed"] = random.SystemRandom().getrandbits(SEED_BITS)
    own = request.get("key") is None
    return {**request, "params": params, "key": uuid.uuid4().hex if own else request["key"], "_own_key": own}


class Connection:
    """A connection to one address.  Thread-safe: start(), forget(), cancel(), close()."""

    def __init__(self, address: str, keys: Optional[Keys] = None, connect_timeout: float = 10.0,
                 reconnect_timeout: float = 120.0) -> None:
        self.address = address
        self.reconnect_timeout = reconnect_timeout
        self._connect_timeout = connect_timeout
        self._keys = keys
        self._context: "zmq.Context[zmq.Socket[bytes]]" = zmq.Context()
        self._todo: Deque[Callable[[], None]] = deque()
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._ids = itertools.count(1)
        self._calls: Dict[int, Call] = {}   # sent, by id
        self._open: Dict[int, Call] = {}    # all that have not ended, by id(call)
        self._up = self._was_up = False
        self._down_since = time.monotonic()
        self._why = ""
        self._closing = False
        self._generation = 0
        self._wake_r, self._wake_w = socket.socketpair()
        self._wake_r.setblocking(False)
        self._wake_w.setblocking(False)
        self._poller = zmq.Poller()
        try:
            self._connect()
        except zmq.ZMQError as e:
            self._drop_socket()
            self._context.destroy(linger=0)
            self._wake_r.close()
            self._wake_w.close()
            raise ValueError(f"{address} is not an address ({e}); write tcp://HOST:PORT or ipc://PATH") from None
        self._poller.register(self._wake_r, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name="quern", daemon=True)
        self._thread.start()

    # --- any thread ---

    def start(self, call: Call) -> None:
        """Sends the call as soon as there is a connection."""
        self._do(lambda: self._add(call))

    def forget(self, call: Call) -> None:
        """Its replies are not wanted any more."""
        self._do(lambda: self._remove(call))

    def cancel(self, call: JobCall) -> None:
        """Cancels the job of the call, once it is accepted."""
        def do() -> None:
            call.cancelled = True
            if call.job is not None and not call.ended:
                self._add(Call({"op": "cancel", "job": call.job}, lambda _: None))
        self._do(do)

    def abandon(self, call: JobCall) -> None:
        """Cancels the job; its replies are not wanted any more."""
        def do() -> None:
            if call.ended:
                return
            call.cancelled = True
            call.sink = lambda _: None
            if call.job is not None:
                self._add(Call({"op": "cancel", "job": call.job}, lambda _: None))
            if call.job is not None or call.id is None:
                self._remove(call)  # else it is cancelled when it is accepted
        self._do(do)

    def close(self) -> None:
        """Ends the connection; the service cancels this client's jobs that are not kept.  Open calls fail."""
        def do() -> None:
            self._closing = True
        if self._thread.is_alive():
            self._do(do)
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def _do(self, what: Callable[[], None]) -> None:
        self._todo.append(what)
        try:
            self._wake_w.send(b"x")
        except (BlockingIOError, OSError):
            pass    # it is awake, or has ended
        if not self._thread.is_alive() or self._closing:
            self._fail_late()

    def _fail_late(self) -> None:
        """Calls that were started while the thread was ending."""
        if threading.current_thread() is self._thread:
            return
        self._thread.join()
        while self._todo:
            try:
                self._todo.popleft()()
            except IndexError:
                break
        self._fail_all(ConnectionLost("the client is closed"))

    # --- the connection's thread ---

    def send(self, call: Call, request: Dict[str, Any]) -> None:
        if call.id is not None:
            self._calls.pop(call.id, None)
            call.id = None
        if not self._up or self._socket is None or call.ended:
            return
        call.id = next(self._ids)
        self._calls[call.id] = call
        try:
            self._socket.send(pack({**request, "id": call.id}), zmq.NOBLOCK)
        except zmq.ZMQError:
            self._calls.pop(call.id, None)
            call.id = None  # the loss of the connection is on its way

    def end(self, call: Call, result: Union[Reply, QuernError]) -> None:
        if not call.ended:
            self._remove(call)
            call.sink(result)

    def later(self, call: Call, delay: float) -> None:
        """Sends the call again after a while."""
        if call.id is not None:
            self._calls.pop(call.id, None)
            call.id = None
        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._ids), lambda: self._resend(call)))

    def _resend(self, call: Call) -> None:
        if not call.ended and call.id is None:
            call.send(self)

    def _add(self, call: Call) -> None:
        self._open[id(call)] = call
        if call.request["op"] == "cancel":  # its end is not taken for the work of a lost connection
            for other in self._open.values():
                if isinstance(other, JobCall) and other.job == call.request["job"]:
                    other.cancelled = True
        if self._up:
            call.send(self)
        else:
            self._watch(call)

    def _remove(self, call: Call) -> None:
        call.ended = True
        self._open.pop(id(call), None)
        if call.id is not None:
            self._calls.pop(call.id, None)

    def _watch(self, call: Call) -> None:
        """Fails a call that waits for a connection for too long."""
        limit = self.reconnect_timeout if self._was_up else self._connect_timeout
        until = max(call.created, self._down_since) + limit
        generation = self._generation

        def check() -> None:
            if call.ended or self._up or generation != self._generation:
                return
            self.end(call, ConnectionLost(self._no_service()))
        heapq.heappush(self._timers, (until, next(self._ids), check))

    def _no_service(self) -> str:
        if self._was_up:
            return f"{self.address}: the service went away and did not come back within {self.reconnect_timeout:g} s"
        if self._why:
            return f"{self.address}: {self._why}"
        return f"no service answers at {self.address}; start one with: quern serve MODEL"

    def _connect(self) -> None:
        self._socket: "Optional[zmq.Socket[bytes]]" = None
        self._monitor: "Optional[zmq.Socket[bytes]]" = None
        s = self._context.socket(zmq.DEALER)
        self._socket = s
        for option, value in ((zmq.LINGER, 0), (zmq.HEARTBEAT_IVL, HEARTBEAT_MS), (zmq.SNDHWM, 0), (zmq.RCVHWM, 0),
                              (zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS), (zmq.RECONNECT_IVL, 50),
                              (zmq.RECONNECT_IVL_MAX, 1000)):
            s.setsockopt(option, value)
        if self._keys is not None and self.address.startswith("tcp://"):
            s.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.public.encode())
            s.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret.encode())
            s.setsockopt(zmq.CURVE_SERVERKEY, self._keys.server.encode())
        monitor = s.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED |
                                       zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                       zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        self._monitor = monitor
        s.connect(self.address)
        self._poller.register(s, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def _drop_socket(self) -> None:
        for s in (self._socket, self._monitor):
            if s is not None and s in self._poller:
                self._poller.unregister(s)
        if self._socket is not None:
            self._socket.disable_monitor()
            self._socket.close(linger=0)
        if self._monitor is not None:
            self._monitor.close(linger=0)
        self._socket = self._monitor = None

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        finally:
            self._closing = True
            self._drop_socket()
            self._context.destroy(linger=0)
            while self._todo:
                self._todo.popleft()()
            self._fail_all(ConnectionLost("the client is closed"))
            self._wake_r.close()
            self._wake_w.close()

    def _fail_all(self, e: QuernError) -> None:
        for call in list(self._open.values()):
            self.end(call, e)

    def _turn(self) -> None:
        wait: Optional[int] = None
        if self._timers:
            wait = max(0, int((self._timers[0][0] - time.monotonic()) * 1000) + 1)
        ready = dict(self._poller.poll(wait))
        if self._wake_r.fileno() in ready:
            try:
                self._wake_r.recv(4096)
            except BlockingIOError:
                pass
        while self._todo:
            self._todo.popleft()()
        self._receive(READS_PER_TURN)
        if self._monitor in ready:
            self._events()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _receive(self, most: int) -> bool:
        """Hands replies on; True: there may be more."""
        for _ in range(most):
            if self._socket is None:
                return False
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return False
            self._take(frames[-1])
        return True

    def _take(self, frame: bytes) -> None:
        try:
            reply = msgpack.unpackb(frame)
            call = self._calls.get(reply["id"])
            op = reply["op"]
        except (ValueError, KeyError, TypeError, msgpack.UnpackException) as e:
            self._fail_all(ProtocolError(f"{self.address} sent what is not a reply of quern: {e!r}"))
            return
        if call is None:
            return
        if op in _FINAL:
            self._calls.pop(reply["id"], None)
            call.id = None
        try:
            call.reply(self, reply)
        except (KeyError, TypeError, ValueError) as e:
            self.end(call, ProtocolError(f"{self.address} sent a malformed {op}: {e!r}"))

    def _events(self) -> None:
        while self._monitor is not None and self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._came_up()
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._refused(AuthError("E_AUTH", f"the service at {self.address} does not accept this key: its public "
                                        "half must be in the service's --allow file"))
            elif event == zmq.EVENT_DISCONNECTED and self._up:
                self._went_down()
            elif event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
                           zmq.EVENT_DISCONNECTED, zmq.EVENT_CONNECTED):
                self._why = "something answers, but not as a job socket of quern " + (
                    "with this server key" if self._keys is not None else "without keys")
                if event != zmq.EVENT_CONNECTED and not self._was_up:
                    self._refused(ConnectionLost(self._no_service()))

    def _came_up(self) -> None:
        self._up = self._was_up = True
        self._why = ""
        self._generation += 1
        for call in list(self._open.values()):
            call.send(self)

    def _went_down(self) -> None:
        while self._receive(READS_PER_TURN):    # what had arrived before
            pass
        self._drop_socket()
        self._up = False
        self._generation += 1
        self._down_since = time.monotonic()
        self._calls.clear()
        for call in list(self._open.values()):
            if call.id is not None:
                call.id = None
                call.lost(self)
            if not call.ended:
                self._watch(call)
        self._connect()

    def _refused(self, e: QuernError) -> None:
        for call in list(self._open.values()):
            self.end(call, e)
