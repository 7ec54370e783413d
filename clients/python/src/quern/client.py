"""The job socket, synchronously."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from . import _requests
from ._connection import Call, Connection, JobCall, Reply
from ._requests import Offsets, Params
from .errors import QuernError, RequestTimeout
from .keys import Keys, default_address
from .outputs import Delta, Result, delta_from, result_from

TIMEOUT_S = 30.0


class Job:
    """A job under way: iterate over its deltas, or wait for its result.  As a context manager it is cancelled when
    the block is left before its end."""

    def __init__(self, connection: Connection, request: Dict[str, Any], timeout: Optional[float]) -> None:
        self._connection = connection
        self._events: "queue.SimpleQueue[Union[Reply, QuernError]]" = queue.SimpleQueue()
        self._timeout = timeout
        self._end: Union[Result, QuernError, None] = None
        self._id: Optional[str] = request.get("job")
        self._prompt_tokens: Optional[int] = None
        self._waiting: "queue.SimpleQueue[Delta]" = queue.SimpleQueue()
        self._call = JobCall(request, self._events.put)
        self._read: Dict[int, int] = dict(self._call.have)  # tokens that the caller has of each output
        connection.start(self._call)

    def _next(self, timeout: Optional[float]) -> None:
        """Takes one event."""
        if self._end is not None:
            return
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            raise RequestTimeout(f"job {self._id or '(not accepted yet)'}: nothing came within {timeout:g} s") from None
        if isinstance(event, QuernError):
            self._end = event
        elif event["op"] == "accepted":
            self._id, self._prompt_tokens = event["job"], event["prompt_tokens"]
        elif event["op"] == "delta":
            self._waiting.put(delta_from(event))
        else:
            self._id = event["job"]
            self._end = result_from(event)

    def _accepted(self) -> None:
        while self._id is None and self._end is None:
            self._next(self._timeout)
        if self._id is None and isinstance(self._end, QuernError):
            raise self._end

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

    @property
    def offsets(self) -> Union[int, List[int]]:
        """How many tokens of each output were read: the offset for attach() in another process.  Of a job that was
        attached to, only outputs are counted that are known: those that the offset names, or that have come."""
        return self._call.offsets(self._read)

    def __iter__(self) -> Iterator[Delta]:
        return self

    def __next__(self) -> Delta:
        while self._waiting.empty():
            if isinstance(self._end, QuernError):
                raise self._end
            if self._end is not None:
                raise StopIteration
            self._next(self._timeout)
        delta = self._waiting.get()
        self._read[delta.index] = delta.offset + len(delta.tokens)
        return delta

    def result(self, timeout: Optional[float] = None) -> Result:
        """Waits for the end.  Deltas that were not read stay readable."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._end is None:
            left = self._timeout if end is None else max(0.0, end - time.monotonic())
            self._next(left)
        if isinstance(self._end, QuernError):
            raise self._end
        return self._end

    def cancel(self) -> None:
        """Ends the job, with finish_reason "abort"; no effect on one that has ended."""
        self._connection.cancel(self._call)

    def close(self) -> None:
        """Cancels the job unless it has ended, and gives up its replies."""
        if self._end is None:
            self._connection.abandon(self._call)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Client:
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

    def __init__(self, address: Optional[str] = None, *, keys: Optional[Keys] = None,
                 timeout: Optional[float] = TIMEOUT_S, connect_timeout: float = 10.0,
                 reconnect_timeout: float = 120.0) -> None:
        self.address = address or default_address()
        self.timeout = timeout
        self._connection = Connection(self.address, keys, connect_timeout, reconnect_timeout)
        self._finalizer = weakref.finalize(self, self._connection.close)

    def close(self) -> None:
        """Closes the connection.  Its jobs are cancelled, unless they are durable or on_disconnect is "keep"."""
        self._finalizer()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _call(self, request: Dict[str, Any], again: bool = True, timeout: Optional[float] = None) -> Reply:
        done = threading.Event()
        replies: List[Union[Reply, QuernError]] = []

        def sink(reply: Union[Reply, QuernError]) -> None:
            replies.append(reply)
            done.set()
        call = Call(request, sink, again)
        self._connection.start(call)
        limit = self.timeout if timeout is None else timeout
        try:
            if not done.wait(limit):
                raise RequestTimeout(f"{self.address}: no reply to {request['op']} within {limit:g} s")
        finally:
            if not replies:
                self._connection.forget(call)
        if isinstance(replies[0], QuernError):
            raise replies[0]
        return replies[0]

    # --- jobs ---

    def submit(self, prompt: Optional[str] = None, params: Params = None, *, tokens: Optional[Sequence[int]] = None,
               messages: Optional[Sequence[Mapping[str, Any]]] = None, stream: bool = True, durable: bool = False,
               priority: Optional[int] = None, user: Optional[str] = None, cache_salt: Optional[str] = None,
               deadline_ms: Optional[int] = None, key: Optional[str] = None, on_disconnect: Optional[str] = None,
               timeout: Optional[float] = None) -> Job:
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
                job that a lost connection has ended can be run again; with the caller's key it ends in "abort".
            on_disconnect: "cancel" or "keep": what the job does when its last listener has gone.
            timeout: seconds between two events, RequestTimeout beyond it; None: no limit.
        """
        options = {"durable": durable, "priority": priority, "user": user, "cache_salt": cache_salt,
                   "deadline_ms": deadline_ms, "key": key, "on_disconnect": on_disconnect}
        return Job(self._connection, _requests.submit(prompt, tokens, messages, params, stream, options), timeout)

    def generate(self, prompt: Optional[str] = None, params: Params = None, **options: Any) -> Result:
        """Submits a job and waits for its result; options are those of submit()."""
        with self.submit(prompt, params, **{"stream": False, **options}) as job:
            return job.result()

    def attach(self, job: str, offset: Offsets = 0, *, timeout: Optional[float] = None) -> Job:
        """The stream of a job, from the number of tokens that the caller has: one for all outputs, or one for each."""
        return Job(self._connection, _requests.attach(job, offset), timeout)

    def cancel(self, job: str) -> None:
        """Ends a job; no effect on one that has ended."""
        self._call({"op": "cancel", "job": job})

    def result(self, job: str) -> Result:
        """The result of a job that has ended; NotReady while it runs."""
        return result_from(self._call({"op": "result", "job": job}))

    def jobs(self) -> List[Dict[str, Any]]:
        """The service's jobs that belong to this client's key, youngest first."""
        return list(self._call({"op": "jobs"})["jobs"])

    # --- the service ---

    def ping(self) -> Dict[str, Any]:
        """version, model, ready, chat, reasoning."""
        return _plain(self._call({"op": "ping"}))

    def status(self) -> Dict[str, Any]:
        """What `quern status --json` shows."""
        return _plain(self._call({"op": "status"}))

    def workers(self) -> List[Dict[str, Any]]:
        """The workers, one row each."""
        return list(self._call({"op": "workers"})["workers"])

    def scale(self, replicas: int, *, devices: Optional[Sequence[str]] = None, memory_fraction: Optional[float] = None,
              timeout_s: int = 600) -> None:
        """Returns when exactly so many replicas serve."""
        self._call(_requests.scale(replicas, devices, memory_fraction, timeout_s), timeout=timeout_s + TIMEOUT_S)

    def drain(self, worker: int, *, timeout_s: int = 600) -> None:
        """Returns when the worker's jobs have moved and it has ended."""
        self._call(_requests.drain(worker, timeout_s), again=False, timeout=timeout_s + TIMEOUT_S)

    # --- texts and tokens ---

    def tokenize(self, text: str, *, add_special: bool = False) -> List[int]:
        """The ids of a text; special tokens in it are recognized."""
        return _requests.ids(self._call({"op": "tokenize", "text": text, "add_special": add_special}))

    def tokenize_chat(self, messages: Sequence[Mapping[str, Any]], *, tools: Optional[Sequence[Mapping[str, Any]]] = None,
                      documents: Optional[Sequence[Mapping[str, Any]]] = None,
                      chat_template_kwargs: Optional[Mapping[str, Any]] = None, add_generation_prompt: bool = True,
                      continue_final_message: bool = False) -> List[int]:
        """The ids of a conversation, as the model's chat template writes it."""
        fields = {"tools": tools, "documents": documents, "chat_template_kwargs": chat_template_kwargs,
                  "add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message}
        return _requests.ids(self._call(_requests.tokenize_chat(messages, fields)))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        return str(self._call({"op": "detokenize", "tokens": list(tokens)})["text"])

    def pieces(self, tokens: Sequence[int]) -> List[str]:
        """The text of each token alone; bytes that are not a character by themselves are U+FFFD."""
        return list(self._call({"op": "detokenize", "tokens": list(tokens), "pieces": True})["pieces"])


def _plain(reply: Reply) -> Dict[str, Any]:
    return {k: v for k, v in reply.items() if k not in ("op", "id")}
