"""The job socket, for asyncio."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import Any, AsyncIterator, Deque, Dict, List, Mapping, Optional, Sequence, Union

from . import _requests
from ._connection import Call, Connection, JobCall, Reply, Sink
from ._requests import Offsets, Params
from .client import TIMEOUT_S, _plain
from .errors import QuernError, RequestTimeout
from .keys import Keys, default_address
from .outputs import Delta, Result, delta_from, result_from


def _on_loop(put: Any) -> Sink:
    """A sink that runs put() on the caller's event loop."""
    loop = asyncio.get_running_loop()

    def sink(reply: Union[Reply, QuernError]) -> None:
        try:
            loop.call_soon_threadsafe(put, reply)
        except RuntimeError:
            pass    # the loop is closed: its calls are not waited for
    return sink


class AsyncJob:
    """A job under way: `async for` over its deltas, or await its result.  `async with` cancels it when the block is
    left before its end."""

    def __init__(self, connection: Connection, request: Dict[str, Any], timeout: Optional[float]) -> None:
        self._connection = connection
        self._events: "asyncio.Queue[Union[Reply, QuernError]]" = asyncio.Queue()
        self._timeout = timeout
        self._end: Union[Result, QuernError, None] = None
        self._id: Optional[str] = request.get("job")
        self._prompt_tokens: Optional[int] = None
        self._waiting: Deque[Delta] = deque()
        self._call = JobCall(request, _on_loop(self._events.put_nowait))
        self._read: Dict[int, int] = dict(self._call.have)  # tokens that the caller has of each output
        connection.start(self._call)

    async def _next(self) -> None:
        try:
            event = await asyncio.wait_for(self._events.get(), self._timeout)
        except asyncio.TimeoutError:
            raise RequestTimeout(f"job {self._id or '(not accepted yet)'}: nothing came within {self._timeout:g} s") \
                from None
        if isinstance(event, QuernError):
            self._end = event
        elif event["op"] == "accepted":
            self._id, self._prompt_tokens = event["job"], event["prompt_tokens"]
        elif event["op"] == "delta":
            self._waiting.append(delta_from(event))
        else:
            self._id = event["job"]
            self._end = result_from(event)

    async def accepted(self) -> str:
        """Waits until the service has accepted it; its id."""
        while self._id is None and self._end is None:
            await self._next()
        if self._id is None:
            assert isinstance(self._end, QuernError)
            raise self._end
        return self._id

    @property
    def id(self) -> Optional[str]:
        """The job's id; None until it is accepted."""
        return self._id

    @property
    def prompt_tokens(self) -> Optional[int]:
        """The number of tokens of the prompt; None until it is accepted, and for one that was attached to."""
        return self._prompt_tokens

    @property
    def offsets(self) -> Union[int, List[int]]:
        """How many tokens of each output were read: the offset for attach() in another process.  Of a job that was
        attached to, only outputs are counted that are known: those that the offset names, or that have come."""
        return self._call.offsets(self._read)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        while not self._waiting:
            if isinstance(self._end, QuernError):
                raise self._end
            if self._end is not None:
                raise StopAsyncIteration
            await self._next()
        delta = self._waiting.popleft()
        self._read[delta.index] = delta.offset + len(delta.tokens)
        return delta

    async def result(self) -> Result:
        """Waits for the end.  Deltas that were not read stay readable."""
        while self._end is None:
            await self._next()
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

    async def __aenter__(self) -> "AsyncJob":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()


class AsyncClient:
    """A client of a running service's job socket, for asyncio: as Client, with its calls awaited.  To be made within
    a running loop or outside; its calls may come from one loop or several."""

    def __init__(self, address: Optional[str] = None, *, keys: Optional[Keys] = None,
                 timeout: Optional[float] = TIMEOUT_S, connect_timeout: float = 10.0,
                 reconnect_timeout: float = 120.0) -> None:
        self.address = address or default_address()
        self.timeout = timeout
        self._connection = Connection(self.address, keys, connect_timeout, reconnect_timeout)
        self._finalizer = weakref.finalize(self, self._connection.close)

    async def aclose(self) -> None:
        """Closes the connection.  Its jobs are cancelled, unless they are durable or on_disconnect is "keep"."""
        await asyncio.get_running_loop().run_in_executor(None, self._finalizer)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def _call(self, request: Dict[str, Any], again: bool = True, timeout: Optional[float] = None) -> Reply:
        future: "asyncio.Future[Reply]" = asyncio.get_running_loop().create_future()

        def put(reply: Union[Reply, QuernError]) -> None:
            if future.done():
                return
            if isinstance(reply, QuernError):
                future.set_exception(reply)
            else:
                future.set_result(reply)
        call = Call(request, _on_loop(put), again)
        self._connection.start(call)
        limit = self.timeout if timeout is None else timeout
        try:
            return await asyncio.wait_for(future, limit)
        except asyncio.TimeoutError:
            raise RequestTimeout(f"{self.address}: no reply to {request['op']} within {limit:g} s") from None
        finally:
            self._connection.forget(call)

    def submit(self, prompt: Optional[str] = None, params: Params = None, *, tokens: Optional[Sequence[int]] = None,
               messages: Optional[Sequence[Mapping[str, Any]]] = None, stream: bool = True, durable: bool = False,
               priority: Optional[int] = None, user: Optional[str] = None, cache_salt: Optional[str] = None,
               deadline_ms: Optional[int] = None, key: Optional[str] = None, on_disconnect: Optional[str] = None,
               timeout: Optional[float] = None) -> AsyncJob:
        """Submits a job and returns at once, within a running loop; as Client.submit()."""
        options = {"durable": durable, "priority": priority, "user": user, "cache_salt": cache_salt,
                   "deadline_ms": deadline_ms, "key": key, "on_disconnect": on_disconnect}
        return AsyncJob(self._connection, _requests.submit(prompt, tokens, messages, params, stream, options), timeout)

    async def generate(self, prompt: Optional[str] = None, params: Params = None, **options: Any) -> Result:
        """Submits a job and waits for its result; a cancelled task cancels the job."""
        async with self.submit(prompt, params, **{"stream": False, **options}) as job:
            return await job.result()

    def attach(self, job: str, offset: Offsets = 0, *, timeout: Optional[float] = None) -> AsyncJob:
        """The stream of a job, from the number of tokens that the caller has."""
        return AsyncJob(self._connection, _requests.attach(job, offset), timeout)

    async def cancel(self, job: str) -> None:
        """Ends a job; no effect on one that has ended."""
        await self._call({"op": "cancel", "job": job})

    async def result(self, job: str) -> Result:
        """The result of a job that has ended; NotReady while it runs."""
        return result_from(await self._call({"op": "result", "job": job}))

    async def jobs(self) -> List[Dict[str, Any]]:
        """The service's jobs that belong to this client's key, youngest first."""
        return list((await self._call({"op": "jobs"}))["jobs"])

    async def ping(self) -> Dict[str, Any]:
        """version, model, ready, chat, reasoning."""
        return _plain(await self._call({"op": "ping"}))

    async def status(self) -> Dict[str, Any]:
        """What `quern status --json` shows."""
        return _plain(await self._call({"op": "status"}))

    async def workers(self) -> List[Dict[str, Any]]:
        """The workers, one row each."""
        return list((await self._call({"op": "workers"}))["workers"])

    async def scale(self, replicas: int, *, devices: Optional[Sequence[str]] = None,
                    memory_fraction: Optional[float] = None, timeout_s: int = 600) -> None:
        """Returns when exactly so many replicas serve."""
        await self._call(_requests.scale(replicas, devices, memory_fraction, timeout_s), timeout=timeout_s + TIMEOUT_S)

    async def drain(self, worker: int, *, timeout_s: int = 600) -> None:
        """Returns when the worker's jobs have moved and it has ended."""
        await self._call(_requests.drain(worker, timeout_s), again=False, timeout=timeout_s + TIMEOUT_S)

    async def tokenize(self, text: str, *, add_special: bool = False) -> List[int]:
        """The ids of a text; special tokens in it are recognized."""
        return _requests.ids(await self._call({"op": "tokenize", "text": text, "add_special": add_special}))

    async def tokenize_chat(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> List[int]:
        """The ids of a conversation, as the model's chat template writes it; fields: as Client.tokenize_chat()."""
        return _requests.ids(await self._call(_requests.tokenize_chat(messages, fields)))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        return str((await self._call({"op": "detokenize", "tokens": list(tokens)}))["text"])

    async def pieces(self, tokens: Sequence[int]) -> List[str]:
        """The text of each token alone; bytes that are not a character by themselves are U+FFFD."""
        return list((await self._call({"op": "detokenize", "tokens": list(tokens), "pieces": True}))["pieces"])
