"""Offline batches with vLLM's names: LLM, over a private service or a running one."""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import time
from collections import deque
from functools import partial
from typing import Any, Callable, Deque, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypedDict, \
    Union

from . import _ops
from ._protocol import Accepted, Call, Event, JobCall
from ._http import Http
from ._service import PrivateService
from .client import Client
from .errors import NotReady, Overloaded, QuernError, ServiceError, Unsupported
from .keys import Keys
from .outputs import BeamSearchOutput, BeamSearchSequence, CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, \
    Output, RequestMetrics, RequestOutput, Result, SampleLogprobs, ScoringOutput, ScoringRequestOutput, ids_of, \
    logprobs_at
from .params import BeamSearchParams, SamplingParams, one_each

IN_FLIGHT = 512             # requests at a time, unless told otherwise
RETRY_S, RETRY_MAX_S = 0.05, 2.0
PIECES_AT_ONCE = 10000      # ids of a request for their texts
EMBED_AT_ONCE = 256
SEED_BITS = 63


class TextPrompt(TypedDict):
    """A text."""

    prompt: str


class _TokensPrompt(TypedDict):
    prompt_token_ids: List[int]


class TokensPrompt(_TokensPrompt, total=False):
    """Token ids, and optionally the text that they were."""

    prompt: str


Prompt = Union[str, Sequence[int], TextPrompt, TokensPrompt, Mapping[str, Any]]
Message = Mapping[str, Any]
Progress = Union[bool, Callable[..., Any]]


class _Bar:
    """tqdm where it is installed and wanted, else nothing."""

    def __init__(self, wanted: Progress, total: int, desc: str) -> None:
        self._bar: Any = None
        if callable(wanted):
            self._bar = wanted(total=total, desc=desc)
        elif wanted:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, desc=desc, dynamic_ncols=True)

    def step(self) -> None:
        if self._bar is not None:
            self._bar.update(1)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Item:
    """A prompt on its way: steps of it are requests, one after the other, of which the last is its result."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.text: Optional[str] = None
        self.tokens: List[int] = []
        self.params: Dict[str, Any] = {}
        self.arrival = 0.0
        self.wait_s = RETRY_S
        self.refused_at: Optional[float] = None     # first of the refusals since the last reply
        self.request: Dict[str, Any] = {}
        self.call: Optional[Call] = None
        self.result: Optional[Result] = None
        self.ended = 0.0


# What comes after a reply to the item's request: the next request, or None at the end.
Step = Callable[[_Item, Any], Optional[Dict[str, Any]]]


class _Pipeline:
    """Keeps a bounded number of requests under way, and goes on where the service's queue is full."""

    def __init__(self, client: Client, most: int) -> None:
        self._connection = client._connection
        self._most = most
        self._window = float(most)
        self._replies: "queue.SimpleQueue[Tuple[_Item, Event]]" = queue.SimpleQueue()
        self._running: Dict[int, _Item] = {}

    def run(self, items: Iterable[_Item], step: Step, bar: _Bar) -> None:
        """Takes each item through its steps; an error cancels all that are under way, and is raised."""
        source = iter(items)
        again: Deque[_Item] = deque()
        waiting: List[Tuple[float, int, _Item]] = []
        order = itertools.count()
        exhausted = False
        try:
            while True:
                now = time.monotonic()
                while waiting and waiting[0][0] <= now:
                    again.append(heapq.heappop(waiting)[2])
                while len(self._running) < int(self._window) and (again or not exhausted and not waiting):
                    item = again.popleft() if again else next(source, None)
                    if item is None:
                        exhausted = True
                        break
                    self._send(item, item.request or step(item, None))
                if exhausted and not self._running and not waiting and not again:
                    return
                try:
                    item, reply = self._replies.get(timeout=max(0.0, waiting[0][0] - now) if waiting else None)
                except queue.Empty:
                    continue
                if isinstance(reply, QuernError):
                    self._refused(item, reply)
                    heapq.heappush(waiting, (time.monotonic() + item.wait_s, next(order), item))
                    item.wait_s = min(2 * item.wait_s, RETRY_MAX_S)
                    continue
                if isinstance(reply, Accepted):
                    continue
                del self._running[item.index]
                self._window = min(float(self._most), self._window + 0.25)
                item.wait_s, item.refused_at = RETRY_S, None
                following = step(item, reply)
                if following is not None:
                    item.request = following
                    again.appendleft(item)
                else:
                    item.request = {}
                    bar.step()
        finally:
            for item in self._running.values():
                if isinstance(item.call, JobCall):
                    self._connection.abandon(item.call)
                elif item.call is not None:
                    self._connection.forget(item.call)
            self._running.clear()

    def _send(self, item: _Item, request: Optional[Dict[str, Any]]) -> None:
        assert request is not None
        item.request = request
        self._running[item.index] = item

        def sink(reply: Event) -> None:
            self._replies.put((item, reply))
        try:
            item.call = JobCall(request, sink) if request["op"] == "submit" else Call(request, sink)
        except ValueError as e:
            raise ValueError(f"prompt {item.index}: {e}") from None
        self._connection.start(item.call)

    def _refused(self, item: _Item, e: QuernError) -> None:
        """Takes an item that is refused for now off the list; raises any other error."""
        del self._running[item.index]
        now = time.monotonic()
        item.refused_at = item.refused_at or now
        passing = isinstance(e, Overloaded) or (isinstance(e, NotReady) and
                                                now - item.refused_at < self._connection.reconnect_timeout)
        if not passing:
            if isinstance(e, ServiceError):
                e.prompt_index = item.index
            raise e
        self._window = max(1.0, min(self._window, float(len(self._running))) / 2 if isinstance(e, Overloaded)
                           else self._window)


class Tokenizer:
    """The model's tokenizer, as the service has it: each call is a request."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def encode(self, text: str, add_special_tokens: bool = True) -> List[int]:
        """The ids of a text."""
        return self._client.tokenize(text, add_special=add_special_tokens)

    def decode(self, token_ids: Union[int, Sequence[int]], skip_special_tokens: bool = False) -> str:
        """The text of ids."""
        if skip_special_tokens:
            raise Unsupported("skip_special_tokens", "the service shows special tokens")
        return self._client.detokenize([token_ids] if isinstance(token_ids, int) else token_ids)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> List[str]:
        """The text of each id."""
        return self._client.pieces(ids)

    def apply_chat_template(self, conversation: Sequence[Message], *, tools: Optional[Sequence[Mapping[str, Any]]] = None,
                            add_generation_prompt: bool = False, continue_final_message: bool = False,
                            tokenize: bool = True, **kwargs: Any) -> Union[List[int], str]:
        """A conversation as the model's template writes it: ids, or with tokenize=False its text."""
        ids = self._client.tokenize_chat(conversation, tools=tools, add_generation_prompt=add_generation_prompt,
                                         continue_final_message=continue_final_message,
                                         chat_template_kwargs=kwargs or None)
        return ids if tokenize else self._client.detokenize(ids)


class LLM:
    """A model for offline batches, as vLLM's LLM.

    With a model, a private service is started, reachable for this user only, and ended with this object, by close(),
    or with this process, however it ends.  With an address, a running service is joined.

        with LLM("models/demo") as llm:
            for output in llm.generate(["Once upon a time"], SamplingParams(max_tokens=20)):
                print(output.outputs[0].text)

    Outputs depend on the prompt, its parameters and the seed alone: the order of prompts, what runs beside them and
    the death of a process of the service change nothing.

    Args:
        model: what `quern serve` takes: a directory, a file, the name of a model that `quern pull` fetched.
        address: the job socket of a running service, instead of a model.
        http: its HTTP address, for embed() and score().
        api_key: the key that HTTP requires.
        keys: CURVE keys that the job socket requires.
        seed: prompts without a seed in their parameters get theirs drawn from it; None: at random.
        bin: the program quern, or its directory; else QUERN_BIN, PATH, or the repository of this package.
        start_timeout: seconds until the private service must be ready.
        log_file: where its log goes; else it is shown if it does not start.
        max_in_flight: requests under way at a time.
        reconnect_timeout: seconds for a service that went away to come back.
        options: of `quern serve`, by vLLM's names (tensor_parallel_size, max_model_len, ...) or its own
            (max_seqs=64, no_prefix_cache=True).
    """

    def __init__(self, model: Optional[str] = None, *, address: Optional[str] = None, http: Optional[str] = None,
                 api_key: Optional[str] = None, keys: Optional[Keys] = None, seed: Optional[int] = None,
                 bin: Optional[str] = None, start_timeout: float = 1800.0, log_file: Optional[str] = None,
                 max_in_flight: int = IN_FLIGHT, reconnect_timeout: float = 120.0, **options: Any) -> None:
        if (model is None) == (address is None):
            raise ValueError("exactly one of model and address must be given")
        if address is not None and options:
            raise Unsupported(next(iter(options)), "a running service is joined as it is")
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, got {max_in_flight}")
        self._service: Optional[PrivateService] = None
        if model is not None:
            self._service = PrivateService(str(model), options, bin, start_timeout, log_file)
            address, http, api_key = self._service.address, self._service.http, self._service.api_key
        try:
            self.client = Client(address, keys=keys, reconnect_timeout=reconnect_timeout)
            self.model = str(self.client.ping()["model"])
        except BaseException:
            if self._service is not None:
                self._service.close()
            raise
        self._http = Http(http, api_key) if http else None
        self._seeds = random.Random(seed) if seed is not None else random.SystemRandom()
        self._most = max_in_flight
        self._requests = itertools.count()
        self._pieces: Dict[int, str] = {}

    @property
    def address(self) -> str:
        """Of the job socket: for Client, or `quern status --to ADDRESS`."""
        return self.client.address

    def close(self) -> None:
        """Closes the connection, and ends a private service."""
        self.client.close()
        if self._service is not None:
            self._service.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- generation ---

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
                 use_tqdm: Progress = True, lora_request: None = None,
                 priority: Optional[Sequence[int]] = None) -> List[RequestOutput]:
        """The outputs of prompts, in their order.

        Args:
            prompts: a text, ids, {"prompt": ...} or {"prompt_token_ids": ...}, or a sequence of these.
            sampling_params: for all, or one for each; None: the model's defaults, with 16 tokens.
            use_tqdm: a progress bar, where tqdm is installed; or a function that makes one.
            priority: for each prompt; lower runs first.
        """
        _refuse("lora_request", lora_request)
        sources = _prompts(prompts)
        params = one_each(sampling_params, len(sources), "sampling_params")
        priorities = one_each(priority, len(sources), "priority")
        return self._generate([_ask_prompt(p, i) for i, p in enumerate(sources)], params, priorities, use_tqdm)

    def chat(self, messages: Union[Sequence[Message], Sequence[Sequence[Message]]],
             sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, use_tqdm: Progress = True,
             lora_request: None = None, chat_template: Optional[str] = None, chat_template_content_format: str = "auto",
             add_generation_prompt: bool = True, continue_final_message: bool = False,
             tools: Optional[Sequence[Mapping[str, Any]]] = None,
             chat_template_kwargs: Optional[Mapping[str, Any]] = None,
             mm_processor_kwargs: Optional[Mapping[str, Any]] = None) -> List[RequestOutput]:
        """The answers to one conversation or to many, in their order.

        Args:
            messages: {"role", "content"} and what the model's template shows beside; or a list of conversations.
            add_generation_prompt: the beginning of an answer follows the messages.
            continue_final_message: the last message goes on; needs add_generation_prompt=False.
            tools: for the template; the output is the model's own text, calls in it are not parsed.
            chat_template_kwargs: variables for the template.
        """
        for name, value in (("lora_request", lora_request), ("chat_template", chat_template),
                            ("mm_processor_kwargs", mm_processor_kwargs)):
            _refuse(name, value)
        if chat_template_content_format not in ("auto", "string"):
            raise Unsupported("chat_template_content_format", "contents are strings for the template")
        if continue_final_message and add_generation_prompt:
            raise ValueError("continue_final_message needs add_generation_prompt=False")
        many: Sequence[Any] = [messages] if messages and isinstance(messages[0], Mapping) else messages
        params = one_each(sampling_params, len(many), "sampling_params")
        fields = {"tools": tools, "chat_template_kwargs": chat_template_kwargs,
                  "add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message}
        asked = [_ops.tokenize_chat(m, fields).request for m in many]
        return self._generate(asked, params, [None] * len(many), use_tqdm)

    def beam_search(self, prompts: Union[Prompt, Sequence[Prompt]], params: BeamSearchParams, lora_request: None = None,
                    use_tqdm: Progress = False, concurrency_limit: Optional[int] = None) -> List[BeamSearchOutput]:
        """The best hypotheses of each prompt, best first.  Their tokens and text begin with the prompt's."""
        _refuse("lora_request", lora_request)
        asked = [_ask_prompt(p, i) for i, p in enumerate(_prompts(prompts))]
        items = self._run(asked, [params] * len(asked), [None] * len(asked), use_tqdm, concurrency_limit)
        self._learn_pieces(items)
        return [BeamSearchOutput([self._beam(item, o, params) for o in _done(item).outputs]) for item in items]

    def _beam(self, item: _Item, o: Output, params: BeamSearchParams) -> BeamSearchSequence:
        drop = o.finish_reason == "stop" and not params.include_stop_str_in_output
        tokens = item.tokens + (o.tokens[:-1] if drop else o.tokens)
        return BeamSearchSequence(tokens, o.cumulative_logprob or 0.0, self.client.detokenize(tokens),
                                  self._logprobs(o.logprobs) or [], o.finish_reason, o.stop_reason)

    def _generate(self, asked: Sequence[Dict[str, Any]], params: Sequence[Optional[SamplingParams]],
                  priorities: Sequence[Optional[int]], use_tqdm: Progress) -> List[RequestOutput]:
        items = self._run(asked, params, priorities, use_tqdm, None)
        self._learn_pieces(items)
        return [self._output(item, p) for item, p in zip(items, params)]

    def _run(self, asked: Sequence[Dict[str, Any]], params: Sequence[Any], priorities: Sequence[Optional[int]],
             use_tqdm: Progress, most: Optional[int]) -> List[_Item]:
        """asked: for each prompt, a tokenize request, or a detokenize one with its tokens."""
        items = [_Item(i) for i in range(len(asked))]
        for item, p in zip(items, params):
            item.params = p.to_request() if p is not None else {"max_tokens": 16}
            if item.params.get("seed") is None and "use_beam_search" not in item.params:
                item.params["seed"] = self._seeds.getrandbits(SEED_BITS)

        def step(item: _Item, reply: Any) -> Optional[Dict[str, Any]]:
            first = asked[item.index]
            if reply is None:
                item.arrival = time.time()
                if first["op"] == "tokenize":
                    return first
                item.tokens, item.text = list(first["tokens"]), first.get("text")
            elif isinstance(reply, Result):
                item.result, item.ended = reply, time.time()
                return None
            elif "tokens" in reply:
                item.tokens, item.text = _ops.ids(reply), first.get("text")
                if "messages" in first:
                    return {"op": "detokenize", "tokens": item.tokens}
            else:
                item.text = reply["text"]
            keep = getattr(params[item.index], "truncate_prompt_tokens", None)
            if keep is not None:
                item.tokens = item.tokens[-keep:]
            options = {"priority": priorities[item.index]}
            return _ops.submit(None, item.tokens, None, item.params, False, options)
        bar = _Bar(use_tqdm, len(items), "Processed prompts")
        try:
            _Pipeline(self.client, min(self._most, most or self._most)).run(items, step, bar)
        finally:
            bar.close()
        return items

    def _output(self, item: _Item, params: Optional[SamplingParams]) -> RequestOutput:
        r = _done(item)
        shown = params is None or params.detokenize
        outputs = [CompletionOutput(o.index, o.text if shown else "", o.tokens, o.cumulative_logprob,
                                    self._logprobs(o.logprobs), o.finish_reason, o.stop_reason) for o in r.outputs]
        prompt_logprobs = None
        if r.prompt_logprobs is not None:
            prompt_logprobs = [None if t is None else logprobs_at(t, self._pieces) for t in r.prompt_logprobs]
        queued, first = r.timing.get("queued_us"), r.timing.get("first_token_us")
        began = item.ended - r.timing.get("total_us", 0) / 1e6
        metrics = RequestMetrics(item.arrival, item.ended, None if queued is None else began + queued / 1e6,
                                 None if first is None else began + first / 1e6,
                                 None if queued is None else queued / 1e6, item.ended)
        return RequestOutput(str(next(self._requests)), item.text, item.tokens, prompt_logprobs, outputs, True, metrics,
                             num_cached_tokens=r.cached_tokens)

    def _logprobs(self, places: Optional[List[Dict[str, Any]]]) -> Optional[SampleLogprobs]:
        return None if places is None else [logprobs_at(t, self._pieces) for t in places]

    def _learn_pieces(self, items: Sequence[_Item]) -> None:
        """The texts of all tokens that logprobs name."""
        new: Dict[int, None] = {}
        for item in items:
            r = _done(item)
            lists: List[Any] = [o.logprobs for o in r.outputs] + [r.prompt_logprobs]
            for places in lists:
                if places is not None:
                    new.update((t, None) for t in ids_of(places) if t not in self._pieces)
        ids = list(new)
        for i in range(0, len(ids), PIECES_AT_ONCE):
            part = ids[i:i + PIECES_AT_ONCE]
            self._pieces.update(zip(part, self.client.pieces(part)))

    # --- vectors and scores ---

    def embed(self, prompts: Union[Prompt, Sequence[Prompt]], *, use_tqdm: Progress = True,
              truncate_prompt_tokens: Optional[int] = None, dimensions: Optional[int] = None,
              normalize: Optional[bool] = None, pooling_params: None = None, lora_request: None = None
              ) -> List[EmbeddingRequestOutput]:
        """The vector of each prompt, in their order."""
        _refuse("pooling_params", pooling_params)
        _refuse("lora_request", lora_request)
        http = self._with_http("embed")
        sources = _prompts(prompts)
        tokens = [r.tokens for r in self._tokenized([_ask_prompt(p, i) for i, p in enumerate(sources)])]
        options = {k: v for k, v in (("truncate_prompt_tokens", truncate_prompt_tokens), ("dimensions", dimensions),
                                     ("normalize", normalize)) if v is not None}
        vectors: List[List[float]] = []
        bar = _Bar(use_tqdm, len(tokens), "Processed prompts")
        try:
            for i in range(0, len(tokens), EMBED_AT_ONCE):
                part = tokens[i:i + EMBED_AT_ONCE]
                reply = _patiently(partial(http.post, "/v1/embeddings", {"input": part, **options}))
                for row in sorted(reply["data"], key=lambda row: int(row["index"])):
                    vectors.append(row["embedding"])
                    bar.step()
        finally:
            bar.close()
        return [EmbeddingRequestOutput(str(next(self._requests)), EmbeddingOutput(v), t) for v, t in zip(vectors, tokens)]

    def encode(self, prompts: Union[Prompt, Sequence[Prompt]], *, pooling_task: str = "embed", **options: Any
               ) -> List[EmbeddingRequestOutput]:
        """embed(), where pooling_task is "embed"; the service has no other poolers."""
        if pooling_task != "embed":
            raise Unsupported("pooling_task", f"{pooling_task!r} is not supported; \"embed\" is")
        return self.embed(prompts, **options)

    def score(self, data_1: Union[str, Sequence[str]], data_2: Union[str, Sequence[str]], *, use_tqdm: Progress = True,
              lora_request: None = None) -> List[ScoringRequestOutput]:
        """How well texts fit: one against any number, or as many on both sides."""
        _refuse("lora_request", lora_request)
        http = self._with_http("score")
        one, two = ([d] if isinstance(d, str) else list(d) for d in (data_1, data_2))
        if len(one) not in (1, len(two)):
            raise ValueError(f"data_1 has {len(one)} texts and data_2 {len(two)}: one, or as many")
        scores: List[float] = []
        bar = _Bar(use_tqdm, len(two), "Processed pairs")
        try:
            for i in range(0, len(two), EMBED_AT_ONCE):
                body = {"text_1": one if len(one) == 1 else one[i:i + EMBED_AT_ONCE], "text_2": two[i:i + EMBED_AT_ONCE]}
                for row in _patiently(partial(http.post, "/v1/score", body))["data"]:
                    scores.append(float(row["score"]))
                    bar.step()
        finally:
            bar.close()
        return [ScoringRequestOutput(str(next(self._requests)), ScoringOutput(s)) for s in scores]

    def classify(self, *args: Any, **kwargs: Any) -> None:
        """Refused: the service has no classifiers."""
        raise Unsupported("classify", "the service has no classifiers")

    def reward(self, *args: Any, **kwargs: Any) -> None:
        """Refused: the service has no reward models."""
        raise Unsupported("reward", "the service has no reward models")

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer; its calls go to the service."""
        return Tokenizer(self.client)

    def get_default_sampling_params(self) -> SamplingParams:
        """Refused: generate() without sampling_params uses the model's defaults, which the service knows."""
        raise Unsupported("get_default_sampling_params", "the model's defaults stay with the service: leave sampling_params "
                                                         "out, and they apply")

    def _with_http(self, method: str) -> Http:
        if self._http is None:
            raise Unsupported("http", f"{method}() needs the service's HTTP address: LLM(address=..., http=...)")
        return self._http

    def _tokenized(self, asked: Sequence[Dict[str, Any]]) -> List[_Item]:
        items = [_Item(i) for i in range(len(asked))]

        def step(item: _Item, reply: Any) -> Optional[Dict[str, Any]]:
            if reply is None:
                return asked[item.index] if asked[item.index]["op"] == "tokenize" else {"op": "ping"}
            item.tokens = _ops.ids(reply if "tokens" in reply else asked[item.index])
            return None
        _Pipeline(self.client, self._most).run(items, step, _Bar(False, 0, ""))
        return items


def _refuse(name: str, value: Any) -> None:
    if value is not None:
        raise Unsupported(name, "is not supported")


def _done(item: _Item) -> Result:
    assert item.result is not None
    return item.result


def _is_ids(p: Any) -> bool:
    return isinstance(p, (list, tuple)) and all(isinstance(t, int) and not isinstance(t, bool) for t in p)


def _prompts(prompts: Any) -> List[Any]:
    """One prompt or many, as a list."""
    if isinstance(prompts, (str, Mapping)) or (_is_ids(prompts) and len(prompts) > 0):
        return [prompts]
    return list(prompts)


def _ask_prompt(prompt: Any, index: int) -> Dict[str, Any]:
    """The request for a prompt's tokens; of ids, a `detokenize` that is not sent but has them."""
    text: Any = prompt
    if isinstance(prompt, Mapping):
        unknown = set(prompt) - {"prompt", "prompt_token_ids", "cache_salt"}
        if unknown:
            raise Unsupported(f"prompts[{index}].{sorted(unknown)[0]}", "is not supported")
        _refuse(f"prompts[{index}].cache_salt", prompt.get("cache_salt"))
        text = prompt.get("prompt_token_ids", prompt.get("prompt"))
    if isinstance(text, str):
        return {"op": "tokenize", "text": text, "add_special": True}
    if _is_ids(text) and len(text) > 0:
        given = prompt.get("prompt") if isinstance(prompt, Mapping) else None
        return {"op": "detokenize", "tokens": list(text), "text": given}
    raise ValueError(f"prompts[{index}] must be a text, token ids, {{\"prompt\"}} or {{\"prompt_token_ids\"}}, and not empty")


def _patiently(ask: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    """The reply, once the queue has room."""
    wait_s = RETRY_S
    while True:
        try:
            return ask()
        except Overloaded:
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_MAX_S)
