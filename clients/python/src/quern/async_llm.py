"""AsyncLLM: a model for servers and agents that run on asyncio, with vLLM's names."""

from __future__ import annotations

import asyncio
import time
from typing import Any, AsyncGenerator, Dict, Mapping, Optional, Sequence, Union

from . import _vllm
from ._ops import Op
from ._service import PrivateService
from .aio import AsyncClient, AsyncJob
from .errors import NotReady, Overloaded, Unsupported
from .keys import Keys
from .llm import Cut, OutputMaker, Prompt, Prompted
from .outputs import CompletionOutput, Delta, RequestOutput
from .params import RequestOutputKind, SamplingParams

RETRY_S, RETRY_MAX_S = 0.05, 2.0


class AsyncEngineArgs:
    """The arguments of AsyncLLM by keyword, as vLLM's: AsyncLLM.from_engine_args(AsyncEngineArgs(model=...))."""

    def __init__(self, model: str, **options: Any) -> None:
        self.model = model
        self.options = options


class AsyncLLM(OutputMaker):
    """A model whose requests run at the same time, as vLLM's AsyncLLM.

        async with AsyncLLM("models/demo") as llm:
            async for output in llm.generate("Once upon a time", SamplingParams(max_tokens=20), "story-1"):
                print(output.outputs[0].text)

    A private service is started for a model, which blocks until it is ready, or a running one is joined by its address; the
    arguments are those of LLM.  A generator that is left, or a task that is cancelled, cancels its request.
    """

    def __init__(self, model: Optional[str] = None, *, address: Optional[str] = None, keys: Optional[Keys] = None,
                 seed: Optional[int] = None, bin: Optional[str] = None, start_timeout: float = 1800.0,
                 log_file: Optional[str] = None, reconnect_timeout: float = 120.0, **options: Any) -> None:
        if (model is None) == (address is None):
            raise ValueError("exactly one of model and address must be given")
        if address is not None and options:
            raise Unsupported(next(iter(options)), "a running service is joined as it is")
        super().__init__(seed)
        self._service: Optional[PrivateService] = None
        if model is not None:
            self._service = PrivateService(str(model), options, bin, start_timeout, log_file)
            address = self._service.address
        self.client = AsyncClient(address, keys=keys, timeout=None, reconnect_timeout=reconnect_timeout)
        self._jobs: Dict[str, AsyncJob] = {}

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs) -> "AsyncLLM":
        """As AsyncLLM(model, ...) with these arguments."""
        return cls(engine_args.model, **engine_args.options)

    async def generate(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None,
                       request_id: Optional[str] = None, *, lora_request: None = None, priority: Optional[int] = None,
                       tokenization_kwargs: Optional[Mapping[str, Any]] = None) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of a prompt while they grow; the last one is finished.

        Args:
            prompt: a text, ids, {"prompt": ...} or {"prompt_token_ids": ...}.
            sampling_params: output_kind says what each RequestOutput has: all of an output's text so far (CUMULATIVE), what is
                new of it (DELTA), or only the end comes (FINAL_ONLY).  Before the end each names one of the n outputs.
            request_id: for abort(); one in flight at a time.
            priority: lower runs first.
            tokenization_kwargs: add_special_tokens, truncate_prompt_tokens, truncation_side ("left").
        """
        _vllm.check("LLM.generate", {"lora_request": lora_request})
        p = Prompted(0, prompt, Cut("generate", tokenization_kwargs, "left"), sampling_params, priority)
        p.request_id = request_id or str(next(self._requests))
        if p.request_id in self._jobs:
            raise ValueError(f"request_id {p.request_id!r} is in flight")
        await self._find_tokens(p)
        kind = getattr(sampling_params, "output_kind", RequestOutputKind.CUMULATIVE)
        fields, wait_s = self._fields(sampling_params), RETRY_S
        while True:
            try:
                async for output in self._stream(p, fields, kind):
                    yield output
                return
            except Overloaded:      # refused before anything came: the queue is full
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_MAX_S)

    async def _stream(self, p: Prompted, fields: Dict[str, Any], kind: RequestOutputKind
                      ) -> AsyncGenerator[RequestOutput, None]:
        shown = getattr(p.params, "detokenize", True)
        parts: Dict[int, CompletionOutput] = {}
        job = self.client.submit(None, fields, tokens=p.tokens, stream=kind is not RequestOutputKind.FINAL_ONLY,
                                 priority=p.priority, cache_salt=p.salt)
        self._jobs[p.request_id] = job
        try:
            async with job:
                async for delta in job:
                    if kind is RequestOutputKind.FINAL_ONLY:
                        continue
                    await self._learn([delta.logprobs])
                    yield self._part(p, delta, parts, kind, shown)
                p.result, p.ended = await job.result(), time.time()
        finally:
            del self._jobs[p.request_id]
        await self._learn([*(o.logprobs for o in p.done.outputs), p.done.prompt_logprobs])
        last = self._output(p)
        if kind is RequestOutputKind.DELTA:
            for o in last.outputs:
                seen = parts.get(o.index)
                if seen is not None:
                    o.text, o.token_ids = o.text[len(seen.text):], o.token_ids[len(seen.token_ids):]
                    o.logprobs = o.logprobs and o.logprobs[len(seen.token_ids):]
        yield last

    def _part(self, p: Prompted, delta: Delta, parts: Dict[int, CompletionOutput], kind: RequestOutputKind, shown: bool
              ) -> RequestOutput:
        """The output that has grown: all of it so far, or what is new."""
        new = CompletionOutput(delta.index, delta.text if shown else "", list(delta.tokens), None,
                               self._logprobs(delta.logprobs))
        so_far = parts.setdefault(delta.index, CompletionOutput(delta.index, "", [], None, None))
        so_far.text += new.text
        so_far.token_ids += new.token_ids
        if new.logprobs is not None:
            so_far.logprobs = (so_far.logprobs or []) + new.logprobs
        if kind is not RequestOutputKind.DELTA:
            new = CompletionOutput(so_far.index, so_far.text, list(so_far.token_ids), None,
                                   so_far.logprobs and list(so_far.logprobs))
        return RequestOutput(p.request_id, p.text, p.tokens, None, [new], False)

    async def _find_tokens(self, p: Prompted) -> None:
        steps = p.find_tokens()
        reply: Any = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration:
                return
            reply = await self.client._call(Op(request, lambda r: r))

    async def _learn(self, lists: Sequence[Any]) -> None:
        new = self._unknown(lists)
        if new:
            texts = await self.client.pieces(new)
            self._pieces.update(zip(new, texts))

    async def abort(self, request_id: Union[str, Sequence[str]]) -> None:
        """Ends requests: their generators end with finish_reason "abort"; no effect on one that is not in flight."""
        for name in [request_id] if isinstance(request_id, str) else request_id:
            if name in self._jobs:
                self._jobs[name].cancel()

    async def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """As LLM.reset_prefix_cache()."""
        del reset_running_requests, reset_connector
        await self.client.reset_prefix_cache()
        return True

    async def check_health(self) -> None:
        """NotReady if no replica serves."""
        if not (await self.client.ping())["ready"]:
            raise NotReady("E_NOT_READY", "no replica serves")

    def shutdown(self) -> None:
        """Closes the connection, which cancels what is in flight, and ends a private service."""
        self.client._finalizer()
        if self._service is not None:
            self._service.close()

    async def __aenter__(self) -> "AsyncLLM":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.shutdown)
