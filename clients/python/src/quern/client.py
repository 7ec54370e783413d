"""The job socket, synchronously."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from . import _ops
from ._base import BaseClient, BaseJob
from ._connection import Connection
from ._ops import Op, Params, T
from ._protocol import Call, Event
from .outputs import Delta, Result


class Job(BaseJob):
    """A job under way: iterate over its deltas, or wait for its result.  As a context manager it is cancelled when
    the block is left before its end."""

    def __init__(self, connection: Connection, request: Dict[str, Any], timeout: Optional[float]) -> None:
        self._events: "queue.SimpleQueue[Event]" = queue.SimpleQueue()
        super().__init__(connection, request, timeout, self._events.put)

    def _next(self, timeout: Optional[float]) -> None:
        """Takes one event."""
        try:
            self._take(self._events.get(timeout=timeout))
        except queue.Empty:
            raise self._late(timeout) from None

    def _accepted(self) -> None:
        while self._id is None and self._ended() is None:
            self._next(self._timeout)

    @property
    def id(self) -> str:
        """The job's id; waits until the service has accepted it."""
        self._accepted()
        assert self._id is not None
        return self._id

    @property
    def prompt_tokens(self) -> Optional[int]:
        """The number of tokens of the prompt; None for one that was attached to."""
        self._accepted()
        return self._prompt_tokens

    def __iter__(self) -> Iterator[Delta]:
        return self

    def __next__(self) -> Delta:
        while True:
            delta = self._pop()
            if delta is not None:
                return delta
            if self._end is not None:
                raise StopIteration
            self._next(self._timeout)

    def result(self, timeout: Optional[float] = None) -> Result:
        """Waits for the end.  Deltas that were not read stay readable."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            result = self._ended()
            if result is not None:
                return result
            self._next(self._timeout if until is None else max(0.0, until - time.monotonic()))

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Client(BaseClient[Job]):
    """A client of a running service's job socket.  Thread-safe.

    The connection is kept by a thread of its own.  When it is lost, because the network failed or the service was
    restarted, open calls go on: a stream is attached to from the tokens that it has, so that nothing is lost and
    nothing comes twice.

    Args:
        address: tcp://HOST:PORT or ipc://PATH; None: where `quern serve` listens by default.
        keys: CURVE keys, for a service that requires them.
        timeout: seconds for calls with one reply, RequestTimeout beyond it; None: no limit.
        connect_timeout: seconds until the first connection, ConnectionLost beyond it.
        reconnect_timeout: seconds for a service that went away to come back.
    """

    def close(self) -> None:
        """Closes the connection.  Its jobs are cancelled, unless they are durable or on_disconnect is "keep"."""
        self._finalizer()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _job(self, request: Dict[str, Any], timeout: Optional[float]) -> Job:
        return Job(self._connection, request, timeout)

    def _call(self, op: "Op[T]") -> T:
        done = threading.Event()
        events: List[Event] = []

        def sink(event: Event) -> None:
            events.append(event)
            done.set()
        call = Call(op.request, sink, op.again)
        self._connection.start(call)
        limit = self.timeout if op.timeout is None else op.timeout
        try:
            if not done.wait(limit):
                raise self._no_reply(op, limit)
        finally:
            if not events:
                self._connection.forget(call)
        return op.result(events[0])

    # --- jobs ---

    def generate(self, prompt: Optional[str] = None, params: Params = None, **options: Any) -> Result:
        """Submits a job and waits for its result; options are those of submit()."""
        with self.submit(prompt, params, **{"stream": False, **options}) as job:
            return job.result()

    def cancel(self, job: str) -> None:
        """Ends a job; no effect on one that has ended."""
        self._call(_ops.cancel(job))

    def result(self, job: str) -> Result:
        """The result of a job that has ended; NotReady while it runs."""
        return self._call(_ops.result(job))

    def jobs(self) -> List[Dict[str, Any]]:
        """The service's jobs that belong to this client's key, youngest first."""
        return self._call(_ops.jobs())

    # --- the service ---

    def ping(self) -> Dict[str, Any]:
        """version, model, ready, chat, reasoning."""
        return self._call(_ops.ping())

    def status(self) -> Dict[str, Any]:
        """What `quern status --json` shows."""
        return self._call(_ops.status())

    def workers(self) -> List[Dict[str, Any]]:
        """The workers, one row each."""
        return self._call(_ops.workers())

    def scale(self, replicas: int, *, devices: Optional[Sequence[str]] = None, memory_fraction: Optional[float] = None,
              timeout_s: int = 600) -> None:
        """Returns when exactly so many replicas serve."""
        self._call(_ops.scale(replicas, devices, memory_fraction, timeout_s))

    def drain(self, worker: int, *, timeout_s: int = 600) -> None:
        """Returns when the worker's jobs have moved and it has ended."""
        self._call(_ops.drain(worker, timeout_s))

    def reset_prefix_cache(self) -> None:
        """Empties the prefix cache of every replica: later prompts find nothing that was computed before."""
        self._call(_ops.reset_prefix_cache())

    # --- texts and tokens ---

    def tokenize(self, text: str, *, add_special: bool = False) -> List[int]:
        """The ids of a text; special tokens in it are recognized."""
        return self._call(_ops.tokenize(text, add_special))

    def tokenize_chat(self, messages: Sequence[Mapping[str, Any]], *, tools: Optional[Sequence[Mapping[str, Any]]] = None,
                      documents: Optional[Sequence[Mapping[str, Any]]] = None,
                      chat_template_kwargs: Optional[Mapping[str, Any]] = None, add_generation_prompt: bool = True,
                      continue_final_message: bool = False) -> List[int]:
        """The ids of a conversation, as the model's chat template writes it."""
        fields = {"tools": tools, "documents": documents, "chat_template_kwargs": chat_template_kwargs,
                  "add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message}
        return self._call(_ops.tokenize_chat(messages, fields))

    def detokenize(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of ids."""
        return self._call(_ops.detokenize(tokens, skip_special_tokens))

    def pieces(self, tokens: Sequence[int]) -> List[str]:
        """The text of each token alone; bytes that are not a character by themselves are U+FFFD."""
        return self._call(_ops.pieces(tokens))
