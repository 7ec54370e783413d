"""The connection to a job socket: a thread that owns the ZeroMQ socket and the session (_protocol.py).

    caller's thread --start(call)--> todo --+
                                            v
    service <--DEALER-- the connection's thread --sink(event)--> caller (queue, event loop)
                              ^
    monitor: up, down --------+

A request is never left to ZeroMQ's own queue: after a loss the socket is replaced, and the session says what is sent
over the next one."""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import Callable, Deque, Optional

import zmq
from zmq.utils.monitor import recv_monitor_message

from ._protocol import Call, JobCall, Session
from .errors import AuthError, ConnectionLost, QuernError
from .keys import Keys

HEARTBEAT_MS = 2000
HEARTBEAT_TIMEOUT_MS = 10000
READS_PER_TURN = 256    # before todo and timers are looked at again


class Connection:
    """A connection to one address.  Thread-safe: start(), forget(), cancel(), abandon(), close()."""

    def __init__(self, address: str, keys: Optional[Keys] = None, connect_timeout: float = 10.0,
                 reconnect_timeout: float = 120.0) -> None:
        self.address = address
        self.reconnect_timeout = reconnect_timeout
        self._keys = keys
        self._session = Session(address, connect_timeout, reconnect_timeout)
        self._context: "zmq.Context[zmq.Socket[bytes]]" = zmq.Context()
        self._todo: Deque[Callable[[], None]] = deque()
        self._closing = False
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
        def do() -> None:
            if self._refused and not self._closing:
                self._connect()
            self._session.start(call)
        self._do(do)

    def forget(self, call: Call) -> None:
        """Its replies are not wanted any more."""
        self._do(lambda: self._session.forget(call))

    def cancel(self, call: JobCall) -> None:
        """Cancels the job of the call, once it is accepted."""
        self._do(lambda: self._session.cancel(call))

    def abandon(self, call: JobCall) -> None:
        """Cancels the job; its replies are not wanted any more."""
        self._do(lambda: self._session.abandon(call))

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
        self._do_all()
        self._session.fail_all(ConnectionLost("the client is closed"))

    def _do_all(self) -> None:
        while self._todo:
            try:
                self._todo.popleft()()
            except IndexError:
                break

    # --- the connection's thread ---

    def _connect(self) -> None:
        self._refused = False   # for good: ZeroMQ does not connect again; the next call does
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

    def _refuse(self, e: QuernError) -> None:
        """The service was reached and said no."""
        self._drop_socket()
        self._refused = True
        self._session.fail_all(e)

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
            self._do_all()
            self._session.fail_all(ConnectionLost("the client is closed"))
            self._wake_r.close()
            self._wake_w.close()

    def _turn(self) -> None:
        at = self._session.next_at
        wait = None if at is None else max(0, int((at - self._session.clock()) * 1000) + 1)
        ready = dict(self._poller.poll(wait))
        if self._wake_r.fileno() in ready:
            try:
                self._wake_r.recv(4096)
            except BlockingIOError:
                pass
        self._do_all()
        self._receive(READS_PER_TURN)
        if self._monitor in ready:
            self._events()
        self._session.tick()
        self._flush()

    def _flush(self) -> None:
        outbox = self._session.outbox
        while outbox and self._socket is not None:
            try:
                self._socket.send(outbox.popleft(), zmq.NOBLOCK)
            except zmq.ZMQError:
                outbox.clear()  # the loss of the connection is on its way

    def _receive(self, most: int) -> bool:
        """Hands replies on; True: there may be more."""
        for _ in range(most):
            if self._socket is None:
                return False
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return False
            self._session.receive(frames[-1])
        return True

    def _events(self) -> None:
        while self._monitor is not None and self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._session.came_up()
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._refuse(AuthError("E_AUTH", f"the service at {self.address} does not accept this key: its "
                                       "public half must be in the service's --allow file"))
            elif event == zmq.EVENT_DISCONNECTED and self._session.up:
                while self._receive(READS_PER_TURN):    # what had arrived before
                    pass
                self._drop_socket()
                self._session.went_down()
                self._connect()
            elif event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
                           zmq.EVENT_DISCONNECTED, zmq.EVENT_CONNECTED):
                self._session.why = "something answers, but not as a job socket of quern " + (
                    "with this server key" if self._keys is not None else "without keys")
                if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and not self._session.reached:
                    self._refuse(ConnectionLost(self._session.no_service()))
                elif event != zmq.EVENT_CONNECTED and not self._session.reached:
                    self._session.fail_all(ConnectionLost(self._session.no_service()))
