"""The job socket, for asyncio."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Callable, Dict, List, Mapping, Optional, Sequence

from . import _ops
from ._base import BaseClient, BaseJob
from ._connection import Connection
from ._ops import Op, Params, T
from ._protocol import Call, Event, Sink
from .outputs import Delta, Result


def _on_loop(put: Callable[[Event], None]) -> Sink:
    """A sink that runs put() on the caller's event loop."""
    loop = asyncio.get_running_loop()

    def sink(event: Event) -> None:
        try:
            loop.call_soon_threadsafe(put, event)
        except RuntimeError:
            pass    # the loop is closed: its calls are not waited for
    return sink


class AsyncJob(BaseJob):
    """A job under way: `async for` over its deltas, or await its result.  `async with` cancels it when the block is
    left before its end."""

    def __init__(self, connection: Connection, request: Dict[str, Any], timeout: Optional[float]) -> None:
        self._events: "asyncio.Queue[Event]" = asyncio.Queue()
        super().__init__(connection, request, timeout, _on_loop(self._events.put_nowait))

    async def _next(self) -> None:
        try:
            self._take(await asyncio.wait_for(self._events.get(), self._timeout))
        except asyncio.TimeoutError:
            raise self._late(self._timeout) from None

    async def accepted(self) -> str:
        """Waits until the service has accepted it; its id."""
        while self._id is None and self._ended() is None:
            await self._next()
        assert self._id is not None
        return self._id

    @property
    def id(self) -> Optional[str]:
        """The job's id; None until it is accepted."""
        return self._id

    @property
    def prompt_tokens(self) -> Optional[int]:
        """The number of tokens of the prompt; None until it is accepted, and for one that was attached to."""
        return self._prompt_tokens

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        while True:
            delta = self._pop()
            if delta is not None:
                return delta
            if self._end is not None:
                raise StopAsyncIteration
            await self._next()

    async def result(self) -> Result:
        """Waits for the end.  Deltas that were not read stay readable."""
        while True:
            result = self._ended()
            if result is not None:
                return result
            await self._next()

    async def __aenter__(self) -> "AsyncJob":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()


class AsyncClient(BaseClient[AsyncJob]):
    """A client of a running service's job socket, for asyncio: as Client, with its calls awaited; submit() and
    attach() return at once, within a running loop.  To be made within a loop or outside; its calls may come from one
    loop or several."""

    async def aclose(self) -> None:
        """Closes the connection.  Its jobs are cancelled, unless they are durable or on_disconnect is "keep"."""
        await asyncio.get_running_loop().run_in_executor(None, self._finalizer)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def _job(self, request: Dict[str, Any], timeout: Optional[float]) -> AsyncJob:
        return AsyncJob(self._connection, request, timeout)

    async def _call(self, op: "Op[T]") -> T:
        future: "asyncio.Future[Event]" = asyncio.get_running_loop().create_future()

        def put(event: Event) -> None:
            if not future.done():
                future.set_result(event)
        call = Call(op.request, _on_loop(put), op.again)
        self._connection.start(call)
        limit = self.timeout if op.timeout is None else op.timeout
        try:
            event = await asyncio.wait_for(future, limit)
        except asyncio.TimeoutError:
            raise self._no_reply(op, limit) from None
        finally:
            self._connection.forget(call)
        return op.result(event)

    async def generate(self, prompt: Optional[str] = None, params: Params = None, **options: Any) -> Result:
        """Submits a job and waits for its result; a cancelled task cancels the job."""
        async with self.submit(prompt, params, **{"stream": False, **options}) as job:
            return await job.result()

    async def cancel(self, job: str) -> None:
        """Ends a job; no effect on one that has ended."""
        await self._call(_ops.cancel(job))

    async def result(self, job: str) -> Result:
        """The result of a job that has ended; NotReady while it runs."""
        return await self._call(_ops.result(job))

    async def jobs(self) -> List[Dict[str, Any]]:
        """The service's jobs that belong to this client's key, youngest first."""
        return await self._call(_ops.jobs())

    async def ping(self) -> Dict[str, Any]:
        """version, model, ready, chat, reasoning."""
        return await self._call(_ops.ping())

    async def status(self) -> Dict[str, Any]:
        """What `quern status --json` shows."""
        return await self._call(_ops.status())

    async def workers(self) -> List[Dict[str, Any]]:
        """The workers, one row each."""
        return await self._call(_ops.workers())

    async def scale(self, replicas: int, *, devices: Optional[Sequence[str]] = None,
                    memory_fraction: Optional[float] = None, timeout_s: int = 600) -> None:
        """Returns when exactly so many replicas serve."""
        await self._call(_ops.scale(replicas, devices, memory_fraction, timeout_s))

    async def drain(self, worker: int, *, timeout_s: int = 600) -> None:
        """Returns when the worker's jobs have moved and it has ended."""
        await self._call(_ops.drain(worker, timeout_s))

    async def reset_prefix_cache(self) -> None:
        """Empties the prefix cache of every replica: later prompts find nothing that was computed before."""
        await self._call(_ops.reset_prefix_cache())

    async def tokenize(self, text: str, *, add_special: bool = False) -> List[int]:
        """The ids of a text; special tokens in it are recognized."""
        return await self._call(_ops.tokenize(text, add_special))

    async def tokenize_chat(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> List[int]:
        """The ids of a conversation, as the model's chat template writes it; fields: as Client.tokenize_chat()."""
        return await self._call(_ops.tokenize_chat(messages, fields))

    async def detokenize(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of ids."""
        return await self._call(_ops.detokenize(tokens, skip_special_tokens))

    async def pieces(self, tokens: Sequence[int]) -> List[str]:
        """The text of each token alone; bytes that are not a character by themselves are U+FFFD."""
        return await self._call(_ops.pieces(tokens))
