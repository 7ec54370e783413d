"""Offline batches with vLLM's names: LLM, over a private service or a running one."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any, Callable, Dict, Generator, Iterable, List, Mapping, NoReturn, Optional, Sequence, Type, TypedDict, Union

from . import _ops, _vllm
from ._http import Http
from ._pipeline import Bar, Item, Pipeline, Progress, Request
from ._service import PrivateService
from .client import Client
from .errors import ProtocolError, ServiceError, Unsupported
from .keys import Keys
from .metrics import Metric, read_metrics
from .outputs import BeamSearchOutput, BeamSearchSequence, CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, \
    Output, RequestMetrics, RequestOutput, Result, SampleLogprobs, ScoringOutput, ScoringRequestOutput, ids_of, \
    logprobs_at
from .params import BeamSearchParams, PoolingParams, SamplingParams, one_each

IN_FLIGHT = 512             # requests at a time, unless told otherwise
PIECES_AT_ONCE = 10000      # ids of a request for their texts
EMBED_AT_ONCE = 64          # texts of a request
SEED_BITS = 63


class _TextPrompt(TypedDict):
    prompt: str


class TextPrompt(_TextPrompt, total=False):
    """A text; cached prefixes are shared with prompts of the same cache_salt only."""

    cache_salt: str


class _TokensPrompt(TypedDict):
    prompt_token_ids: List[int]


class TokensPrompt(_TokensPrompt, total=False):
    """Token ids, and optionally the text that they were."""

    prompt: str
    cache_salt: str


Prompt = Union[str, Sequence[int], TextPrompt, TokensPrompt, Mapping[str, Any]]
Message = Mapping[str, Any]
Params = Union[SamplingParams, BeamSearchParams, None]
Ids = Generator[Request, Any, List[int]]


class Cut:
    """What tokenization_kwargs ask: tokens that the tokenizer adds, and the most that are left of a prompt."""

    def __init__(self, method: str, kwargs: Optional[Mapping[str, Any]], side: str, chat: bool = False) -> None:
        given = dict(kwargs or {})
        self.add_special = given.pop("add_special_tokens", True) is not False or chat
        self.keep: Optional[int] = given.pop("truncate_prompt_tokens", None)
        self.side = given.pop("truncation_side", None) or side
        if given or (chat and "add_special_tokens" in (kwargs or {})):
            name = next(iter(given), "add_special_tokens")
            raise Unsupported(f"tokenization_kwargs.{name}", f"{method}() has truncate_prompt_tokens, truncation_side"
                              + ("" if chat else ", add_special_tokens"))
        if self.side not in ("left", "right"):
            raise ValueError(f"truncation_side must be left or right, got {self.side!r}")
        if self.keep is not None and (not isinstance(self.keep, int) or self.keep < 1):
            raise Unsupported("tokenization_kwargs.truncate_prompt_tokens", f"must be at least 1, got {self.keep}")

    def shorten(self, ids: List[int], keep: int) -> List[int]:
        """The last ids, or the first."""
        return ids if len(ids) <= keep else ids[:keep] if self.side == "right" else ids[len(ids) - keep:]

    def text(self, text: str) -> Ids:
        """The ids of a text; those that the tokenizer adds are not cut."""
        whole: List[int] = yield from _asked(_ops.tokenize(text, self.add_special))
        if self.keep is None or len(whole) <= self.keep or not self.add_special:
            return whole if self.keep is None else self.shorten(whole, self.keep)
        own: List[int] = yield from _asked(_ops.tokenize(text, False))
        added = len(whole) - len(own)
        before = next((i for i in range(added + 1) if whole[i:i + len(own)] == own), 0)
        if added >= self.keep:
            raise ValueError(f"truncate_prompt_tokens is {self.keep}, and the tokenizer adds {added}")
        return whole[:before] + self.shorten(own, self.keep - added) + whole[before + len(own):]


def _asked(op: "_ops.Op[_ops.T]") -> Generator[Request, Any, _ops.T]:
    """A step of an item: the request, and what its reply has."""
    reply = yield op.request
    return op.result(reply)


class Prompted:
    """A prompt on its way to its result."""

    def __init__(self, index: int, source: Any, cut: Cut, params: Params, priority: Optional[int],
                 chat: Optional[Mapping[str, Any]] = None) -> None:
        self.text: Optional[str] = None
        self.tokens: List[int] = []
        self.params = params
        self.request_id = ""
        self.arrival = self.ended = 0.0
        self.result: Optional[Result] = None
        self.error: Optional[ServiceError] = None   # instead of a result
        self._index, self._source, self._cut, self.priority, self._chat = index, source, cut, priority, chat
        self.salt: Optional[str] = None     # of the prefix cache
        self._ids: Optional[List[int]] = None
        if chat is None:
            self._read(source)
        else:
            _messages(source)

    def _read(self, source: Any) -> None:
        """The text, or the ids and perhaps their text."""
        what, given = source, None
        if isinstance(source, Mapping):
            unknown = set(source) - {"prompt", "prompt_token_ids", "cache_salt"}
            if unknown:
                raise Unsupported(f"prompts[{self._index}].{sorted(unknown)[0]}", "is not supported")
            self.salt = source.get("cache_salt")
            what, given = source.get("prompt_token_ids", source.get("prompt")), source.get("prompt")
        if _is_ids(what) and len(what) > 0:
            self._ids, self.text = list(what), given
        elif isinstance(what, str):
            self.text = what
        else:
            raise ValueError(f"prompts[{self._index}] must be a text, token ids, {{\"prompt\"}} or "
                             "{\"prompt_token_ids\"}, and not empty")

    def find_tokens(self) -> Generator[Request, Any, None]:
        """Sets tokens and text."""
        self.arrival = time.time()
        if self._chat is not None:
            self.tokens = yield from _asked(_ops.tokenize_chat(self._source, self._chat))
            self.text = yield from _asked(_ops.detokenize(self.tokens))
        elif self._ids is None:
            assert self.text is not None
            self.tokens = yield from self._cut.text(self.text)
        else:
            self.tokens = self._ids
        if self._cut.keep is not None and (self._chat is not None or self._ids is not None):
            self.tokens = self._cut.shorten(self.tokens, self._cut.keep)
        last = getattr(self.params, "truncate_prompt_tokens", None)
        if last is not None:
            self.tokens = self.tokens[-last:]

    def run(self, params: Dict[str, Any]) -> Generator[Request, Any, None]:
        """Sets the result, too."""
        yield from self.find_tokens()
        options = {"priority": self.priority, "cache_salt": self.salt}
        reply = yield _ops.submit(None, self.tokens, None, params, False, options)
        if not isinstance(reply, Result):
            raise ProtocolError("a job ended without outputs")
        self.result, self.ended = reply, time.time()

    @property
    def done(self) -> Result:
        """The result, which is there."""
        assert self.result is not None
        return self.result


class OutputMaker:
    """Makes vLLM's outputs of the service's results; knows the texts of tokens that log-probabilities name."""

    def __init__(self, seed: Optional[int]) -> None:
        self._seeds = random.Random(seed) if seed is not None else random.SystemRandom()
        self._requests = itertools.count()
        self._pieces: Dict[int, str] = {}

    def _fields(self, params: Params) -> Dict[str, Any]:
        """`params` of a submit, with a seed drawn where none is given."""
        fields = params.to_request() if params is not None else {"max_tokens": 16}
        if fields.get("seed") is None and "use_beam_search" not in fields:
            fields["seed"] = self._seeds.getrandbits(SEED_BITS)
        return fields

    def _unknown(self, lists: Iterable[Any]) -> List[int]:
        """The tokens of these lists of places that have no text yet, once each."""
        new: Dict[int, None] = {}
        for places in lists:
            if places is not None:
                new.update((t, None) for t in ids_of(places) if t not in self._pieces)
        return list(new)

    def _output(self, p: Prompted) -> RequestOutput:
        if p.error is not None:
            return RequestOutput(p.request_id or str(next(self._requests)), p.text, p.tokens, None, [], True, error=p.error)
        r = p.done
        shown = getattr(p.params, "detokenize", True)
        outputs = [CompletionOutput(o.index, o.text if shown else "", o.tokens, o.cumulative_logprob,
                                    self._logprobs(o.logprobs), finish_reason=o.finish_reason, stop_reason=o.stop_reason)
                   for o in r.outputs]
        prompt_logprobs = None
        if r.prompt_logprobs is not None:
            prompt_logprobs = [None if t is None else logprobs_at(t, self._pieces) for t in r.prompt_logprobs]
        queued, first = r.timing.get("queued_us"), r.timing.get("first_token_us")
        began = p.ended - r.timing.get("total_us", 0) / 1e6
        metrics = RequestMetrics(p.arrival, p.ended, None if queued is None else began + queued / 1e6,
                                 None if first is None else began + first / 1e6,
                                 None if queued is None else queued / 1e6, p.ended)
        return RequestOutput(p.request_id or str(next(self._requests)), p.text, p.tokens, prompt_logprobs, outputs, True,
                             metrics, num_cached_tokens=r.cached_tokens)

    def _logprobs(self, places: Optional[List[Dict[str, Any]]]) -> Optional[SampleLogprobs]:
        return None if places is None else [logprobs_at(t, self._pieces) for t in places]


class Tokenizer:
    """The model's tokenizer, as the service has it: each call is a request."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def encode(self, text: str, add_special_tokens: bool = True) -> List[int]:
        """The ids of a text."""
        return self._client.tokenize(text, add_special=add_special_tokens)

    def decode(self, token_ids: Union[int, Sequence[int]], skip_special_tokens: bool = False) -> str:
        """The text of ids."""
        return self._client.detokenize([token_ids] if isinstance(token_ids, int) else token_ids,
                                       skip_special_tokens=skip_special_tokens)

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


class LLM(OutputMaker):
    """A model for offline batches, as vLLM's LLM.

    With a model, a private service is started, reachable for this user only, and ended with this object, by close(),
    or with this process, however it ends.  With an address, a running service is joined.

        with LLM("models/demo") as llm:
            for output in llm.generate(["Once upon a time"], SamplingParams(max_tokens=20)):
                print(output.outputs[0].text)

    Outputs depend on the prompt, its parameters and the seed alone: the order of prompts, what runs beside them and
    the death of a process of the service change nothing.

    vLLM's names are honoured, or refused by name with what to do instead: docs/apis/python.md has all of them.

    Args:
        model: what `quern serve` takes: a directory, a file, the name of a model that `quern pull` fetched.
        address: the job socket of a running service, instead of a model.
        http: its HTTP address, "http://HOST:PORT" or "unix:PATH", for embed() and score().
        api_key: the key that HTTP requires.
        keys: CURVE keys that the job socket requires.
        seed: prompts without a seed in their parameters get theirs drawn from it; None: at random.
        bin: the program quern, or its directory; else QUERN_BIN, PATH, or the repository of this package.
        start_timeout: seconds until the private service must be ready.
        log_file: where its log goes; else it is shown if it does not start.
        max_in_flight: requests in flight at a time.
        errors: "raise": the first prompt that the service refuses or that fails ends the call; "return": its output has
            the error and no outputs, and the others go on (generate, chat, beam_search, wait_for_completion).
        reconnect_timeout: seconds for a service that went away to come back.
        options: of `quern serve`, by vLLM's names (tensor_parallel_size, max_model_len, ...) or its own
            (max_seqs=64, no_prefix_cache=True).
    """

    def __init__(self, model: Optional[str] = None, *, address: Optional[str] = None, http: Optional[str] = None,
                 api_key: Optional[str] = None, keys: Optional[Keys] = None, seed: Optional[int] = None,
                 bin: Optional[str] = None, start_timeout: float = 1800.0, log_file: Optional[str] = None,
                 max_in_flight: int = IN_FLIGHT, reconnect_timeout: float = 120.0, errors: str = "raise",
                 **options: Any) -> None:
        if errors not in ("raise", "return"):
            raise ValueError(f"errors must be \"raise\" or \"return\", got {errors!r}")
        if (model is None) == (address is None):
            raise ValueError("exactly one of model and address must be given")
        if address is not None and options:
            raise Unsupported(next(iter(options)), "a running service is joined as it is")
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, got {max_in_flight}")
        super().__init__(seed)
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
        self._most = max_in_flight
        self._returns_errors = errors == "return"
        self._patience = reconnect_timeout
        self._queued: List[Prompted] = []

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

    def __getattr__(self, name: str) -> NoReturn:
        row = _vllm.TABLE["LLM"].get(name)
        if row is not None and not row.honoured:
            raise _Missing(name, row.note)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # --- generation ---

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
                 use_tqdm: Progress = True, lora_request: None = None, priority: Union[int, Sequence[int], None] = None,
                 tokenization_kwargs: Optional[Mapping[str, Any]] = None, mm_processor_kwargs: None = None
                 ) -> List[RequestOutput]:
        """The outputs of prompts, in their order.

        Args:
            prompts: a text, ids, {"prompt": ...} or {"prompt_token_ids": ...}, or a sequence of these.
            sampling_params: for all, or one for each; None: the model's defaults, with 16 tokens.
            use_tqdm: a progress bar, where tqdm is installed; or a function that makes one.
            priority: for all, or for each prompt; lower runs first.
            tokenization_kwargs: add_special_tokens, truncate_prompt_tokens, truncation_side ("left").
        """
        _vllm.check("LLM.generate", {"lora_request": lora_request, "mm_processor_kwargs": mm_processor_kwargs})
        return self._outputs(self._prompts("generate", _each(prompts), sampling_params, priority, tokenization_kwargs),
                             use_tqdm)

    def chat(self, messages: Union[Sequence[Message], Sequence[Sequence[Message]]],
             sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, use_tqdm: Progress = True,
             lora_request: None = None, priority: Union[int, Sequence[int], None] = None,
             chat_template: Optional[str] = None, chat_template_content_format: str = "auto",
             add_generation_prompt: bool = True, continue_final_message: bool = False,
             tools: Optional[Sequence[Mapping[str, Any]]] = None,
             chat_template_kwargs: Optional[Mapping[str, Any]] = None,
             tokenization_kwargs: Optional[Mapping[str, Any]] = None, mm_processor_kwargs: None = None
             ) -> List[RequestOutput]:
        """The answers to one conversation or to many, in their order.

        Args:
            messages: {"role", "content"} and what the model's template shows beside; or a list of conversations.
            add_generation_prompt: the beginning of an answer follows the messages.
            continue_final_message: the last message goes on; needs add_generation_prompt=False.
            tools: for the template; the output is the model's own text, calls in it are not parsed.
            chat_template_kwargs: variables for the template.
            tokenization_kwargs: truncate_prompt_tokens, truncation_side ("left").
        """
        _vllm.check("LLM.chat", {"lora_request": lora_request, "chat_template": chat_template,
                                 "chat_template_content_format": chat_template_content_format,
                                 "mm_processor_kwargs": mm_processor_kwargs})
        return self._outputs(self._chats(messages, sampling_params, priority, add_generation_prompt,
                                         continue_final_message, tools, chat_template_kwargs, tokenization_kwargs), use_tqdm)

    def enqueue(self, prompts: Union[Prompt, Sequence[Prompt]],
                sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, lora_request: None = None,
                priority: Union[int, Sequence[int], None] = None, use_tqdm: Progress = True,
                tokenization_kwargs: Optional[Mapping[str, Any]] = None, mm_processor_kwargs: None = None) -> List[str]:
        """Puts prompts aside for wait_for_completion(); their request ids.  Arguments as generate() has them."""
        del use_tqdm
        _vllm.check("LLM.generate", {"lora_request": lora_request, "mm_processor_kwargs": mm_processor_kwargs})
        return self._put(self._prompts("enqueue", _each(prompts), sampling_params, priority, tokenization_kwargs))

    def enqueue_chat(self, messages: Union[Sequence[Message], Sequence[Sequence[Message]]],
                     sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, use_tqdm: Progress = True,
                     lora_request: None = None, priority: Union[int, Sequence[int], None] = None,
                     chat_template: Optional[str] = None, chat_template_content_format: str = "auto",
                     add_generation_prompt: bool = True, continue_final_message: bool = False,
                     tools: Optional[Sequence[Mapping[str, Any]]] = None,
                     chat_template_kwargs: Optional[Mapping[str, Any]] = None,
                     tokenization_kwargs: Optional[Mapping[str, Any]] = None, mm_processor_kwargs: None = None) -> List[str]:
        """Puts conversations aside for wait_for_completion(); their request ids.  Arguments as chat() has them."""
        del use_tqdm
        _vllm.check("LLM.chat", {"lora_request": lora_request, "chat_template": chat_template,
                                 "chat_template_content_format": chat_template_content_format,
                                 "mm_processor_kwargs": mm_processor_kwargs})
        return self._put(self._chats(messages, sampling_params, priority, add_generation_prompt, continue_final_message,
                                     tools, chat_template_kwargs, tokenization_kwargs))

    def wait_for_completion(self, output_type: Optional[Type[Any]] = None, *, use_tqdm: Progress = True
                            ) -> List[RequestOutput]:
        """The outputs of all that enqueue() and enqueue_chat() put aside, in their order."""
        if output_type not in (None, RequestOutput):
            raise Unsupported("output_type", "outputs are RequestOutput")
        prompts, self._queued = self._queued, []
        return self._outputs(prompts, use_tqdm)

    def beam_search(self, prompts: Union[Prompt, Sequence[Prompt]], params: BeamSearchParams, lora_request: None = None,
                    use_tqdm: Progress = False, concurrency_limit: Optional[int] = None,
                    priority: Union[int, Sequence[int], None] = None) -> List[BeamSearchOutput]:
        """The best hypotheses of each prompt, best first.  Their tokens and text begin with the prompt's."""
        _vllm.check("LLM.beam_search", {"lora_request": lora_request})
        found = self._prompts("beam_search", _each(prompts), [params] * len(_each(prompts)), priority, None)
        self._run(found, use_tqdm, concurrency_limit)
        self._learn_pieces(found)
        return [BeamSearchOutput([] if p.error else [self._beam(p, o, params) for o in p.done.outputs], p.error)
                for p in found]

    def _beam(self, p: Prompted, o: Output, params: BeamSearchParams) -> BeamSearchSequence:
        drop = o.finish_reason == "stop" and not params.include_stop_str_in_output
        tokens = p.tokens + (o.tokens[:-1] if drop else o.tokens)
        text = self.client.detokenize(tokens, skip_special_tokens=params.skip_special_tokens)
        return BeamSearchSequence({"type": "token", "prompt_token_ids": p.tokens, "prompt": p.text}, tokens,
                                  self._logprobs(o.logprobs) or [], None, o.cumulative_logprob or 0.0, text,
                                  o.finish_reason, o.stop_reason)

    def _prompts(self, method: str, sources: Sequence[Any], params: Any, priority: Any,
                 tokenization_kwargs: Optional[Mapping[str, Any]], chat: Optional[Mapping[str, Any]] = None) -> List[Prompted]:
        cut = Cut(method, tokenization_kwargs, "left", chat is not None)
        rows = zip(sources, one_each(params, len(sources), "sampling_params"), one_each(priority, len(sources), "priority"))
        return [Prompted(i, source, cut, p, order, chat) for i, (source, p, order) in enumerate(rows)]

    def _chats(self, messages: Any, params: Any, priority: Any, add_generation_prompt: bool, continue_final_message: bool,
               tools: Any, chat_template_kwargs: Any, tokenization_kwargs: Optional[Mapping[str, Any]]) -> List[Prompted]:
        if continue_final_message and add_generation_prompt:
            raise ValueError("continue_final_message needs add_generation_prompt=False")
        fields = _ops.given({"tools": tools, "chat_template_kwargs": chat_template_kwargs,
                             "add_generation_prompt": add_generation_prompt,
                             "continue_final_message": continue_final_message})
        many = [messages] if messages and isinstance(messages[0], Mapping) else messages
        return self._prompts("chat", many, params, priority, tokenization_kwargs, fields)

    def _put(self, prompts: List[Prompted]) -> List[str]:
        for p in prompts:
            p.request_id = str(next(self._requests))
        self._queued.extend(prompts)
        return [p.request_id for p in prompts]

    def _run(self, prompts: Sequence[Prompted], use_tqdm: Progress, most: Optional[int] = None) -> None:
        items = []
        for i, p in enumerate(prompts):
            params = p.params.to_request() if p.params is not None else {"max_tokens": 16}
            if params.get("seed") is None and "use_beam_search" not in params:
                params["seed"] = self._seeds.getrandbits(SEED_BITS)
            items.append(Item(i, p.run(params)))
        def failed(index: int, error: ServiceError) -> None:
            prompts[index].error = error
        self._work(items, use_tqdm, "Processed prompts", most, failed if self._returns_errors else None)

    def _work(self, items: Sequence[Item], use_tqdm: Progress, desc: str, most: Optional[int] = None,
              failed: Optional[Callable[[int, ServiceError], None]] = None) -> None:
        bar = Bar(use_tqdm, len(items), desc)
        try:
            Pipeline(self.client, min(self._most, most or self._most), failed).run(items, bar)
        finally:
            bar.close()

    def _outputs(self, prompts: Sequence[Prompted], use_tqdm: Progress) -> List[RequestOutput]:
        self._run(prompts, use_tqdm)
        self._learn_pieces(prompts)
        return [self._output(p) for p in prompts]

    def _learn_pieces(self, prompts: Sequence[Prompted]) -> None:
        """The texts of all tokens that logprobs name."""
        ids = self._unknown(places for p in prompts if p.error is None
                            for places in (*(o.logprobs for o in p.done.outputs), p.done.prompt_logprobs))
        for i in range(0, len(ids), PIECES_AT_ONCE):
            part = ids[i:i + PIECES_AT_ONCE]
            self._pieces.update(zip(part, self.client.pieces(part)))

    # --- vectors and scores ---

    def embed(self, prompts: Union[Prompt, Sequence[Prompt]], *, use_tqdm: Progress = True,
              pooling_params: Union[PoolingParams, Sequence[PoolingParams], None] = None, lora_request: None = None,
              tokenization_kwargs: Optional[Mapping[str, Any]] = None, truncate_prompt_tokens: Optional[int] = None,
              dimensions: Optional[int] = None, normalize: Optional[bool] = None) -> List[EmbeddingRequestOutput]:
        """The vector of each prompt, in their order.

        Args:
            pooling_params: PoolingParams for all, or one for each.
            tokenization_kwargs: add_special_tokens, truncate_prompt_tokens, truncation_side ("right").
            truncate_prompt_tokens, dimensions, normalize: the same, of all prompts.
        """
        _vllm.check("LLM.embed", {"lora_request": lora_request})
        http = self._with_http("embed")
        sources = _each(prompts)
        cut = Cut("embed", {**_ops.given({"truncate_prompt_tokens": truncate_prompt_tokens}),
                             **(tokenization_kwargs or {})}, "right")
        found = [Prompted(i, source, cut, None, None) for i, source in enumerate(sources)]
        each = [_pooled(p, "embed", {"dimensions": dimensions, "normalize": normalize})
                for p in one_each(pooling_params, len(found), "pooling_params")]
        self._work([Item(i, p.find_tokens()) for i, p in enumerate(found)], False, "")
        vectors: List[List[float]] = [[] for _ in found]
        bar = Bar(use_tqdm, len(found), "Processed prompts")
        try:
            parts = _alike(each, EMBED_AT_ONCE)
            bodies = [{"input": [found[i].tokens for i in part], **each[part[0]]} for part in parts]
            for part, reply in zip(parts, http.post_all("/v1/embeddings", bodies, self._patience)):
                for row in reply["data"]:
                    vectors[part[int(row["index"])]] = row["embedding"]
                    bar.step()
        finally:
            bar.close()
        return [EmbeddingRequestOutput(str(next(self._requests)), EmbeddingOutput(v), p.tokens)
                for v, p in zip(vectors, found)]

    def encode(self, prompts: Union[Prompt, Sequence[Prompt]],
               pooling_params: Union[PoolingParams, Sequence[PoolingParams], None] = None, *,
               pooling_task: Optional[str] = None, **options: Any) -> List[EmbeddingRequestOutput]:
        """embed(); the service has no other poolers."""
        _vllm.check("LLM.encode", {"pooling_task": pooling_task})
        return self.embed(prompts, pooling_params=pooling_params, **options)

    def score(self, data_1: Union[str, Sequence[str]], data_2: Union[str, Sequence[str]], *, use_tqdm: Progress = True,
              pooling_params: Optional[PoolingParams] = None, lora_request: None = None,
              tokenization_kwargs: Optional[Mapping[str, Any]] = None, chat_template: Optional[str] = None
              ) -> List[ScoringRequestOutput]:
        """How well texts fit: one against any number, or as many on both sides."""
        _vllm.check("LLM.score", {"lora_request": lora_request, "chat_template": chat_template})
        http = self._with_http("score")
        if _pooled(pooling_params, "score", {}).get("use_activation") is False:
            raise Unsupported("pooling_params.use_activation", "scores are what the service makes them")
        if pooling_params is not None and pooling_params.dimensions is not None:
            raise Unsupported("pooling_params.dimensions", "scores have none")
        options = dict(tokenization_kwargs or {})
        for name in options:
            if name not in ("add_special_tokens", "truncate_prompt_tokens"):
                raise Unsupported(f"tokenization_kwargs.{name}", "score() has add_special_tokens, truncate_prompt_tokens")
        one, two = ([d] if isinstance(d, str) else list(d) for d in (data_1, data_2))
        if len(one) not in (1, len(two)):
            raise ValueError(f"data_1 has {len(one)} texts and data_2 {len(two)}: one, or as many")
        scores: List[float] = []
        bar = Bar(use_tqdm, len(two), "Processed pairs")
        try:
            bodies = [{"text_1": one if len(one) == 1 else one[i:i + EMBED_AT_ONCE], "text_2": two[i:i + EMBED_AT_ONCE],
                       **options} for i in range(0, len(two), EMBED_AT_ONCE)]
            for reply in http.post_all("/v1/score", bodies, self._patience):
                for row in reply["data"]:
                    scores.append(float(row["score"]))
                    bar.step()
        finally:
            bar.close()
        return [ScoringRequestOutput(str(next(self._requests)), ScoringOutput(s), []) for s in scores]

    # --- the model ---

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer; its calls go to the service."""
        return Tokenizer(self.client)

    def get_default_sampling_params(self) -> SamplingParams:
        """What generation_config.json sets, over vLLM's defaults."""
        return SamplingParams.from_optional(**self.client.ping()["sampling_defaults"])

    def get_metrics(self) -> List[Metric]:
        """The service's counters, gauges and histograms: what GET /metrics has (docs/OPTIONS.md)."""
        return read_metrics(self._with_http("get_metrics").get("/metrics"))

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Empties the prefix cache; always True, since what running requests hold is no longer found either.  The arguments
        are vLLM's; there is nothing else to reset."""
        del reset_running_requests, reset_connector
        self.client.reset_prefix_cache()
        return True

    def get_world_size(self, include_dp: bool = True) -> int:
        """How many workers there are; include_dp=False: of one replica."""
        groups = [r["tp"] for r in self.client.status()["replicas"]]
        return int(sum(groups) if include_dp else max(groups, default=0))

    def _with_http(self, method: str) -> Http:
        if self._http is None:
            raise Unsupported("http", f"{method}() needs the service's HTTP address: LLM(address=..., http=...)")
        return self._http


class _Missing(Unsupported, AttributeError):
    """A method of vLLM's that is not there; hasattr() says so."""


def _is_ids(p: Any) -> bool:
    return isinstance(p, (list, tuple)) and all(isinstance(t, int) and not isinstance(t, bool) for t in p)


def _each(prompts: Any) -> List[Any]:
    """One prompt or many, as a list."""
    if isinstance(prompts, (str, Mapping)) or (_is_ids(prompts) and len(prompts) > 0):
        return [prompts]
    return list(prompts)


def _messages(chat: Any) -> None:
    if not isinstance(chat, (list, tuple)) or not all(isinstance(m, Mapping) for m in chat):
        raise ValueError("messages must be a list of {\"role\", \"content\"}, or a list of such lists")


def _pooled(params: Optional[PoolingParams], task: str, options: Mapping[str, Any]) -> Dict[str, Any]:
    """Fields of a request for vectors."""
    if params is None:
        return _ops.given(options)
    if not isinstance(params, PoolingParams):
        raise TypeError(f"pooling_params must be PoolingParams, not {type(params).__name__}")
    if params.task not in (None, task) and (task, params.task) != ("score", "classify"):
        raise Unsupported("pooling_params.task", f"is {params.task!r}, and the method's is {task!r}")
    return {**_ops.given(options), **_ops.given({"dimensions": params.dimensions,
                                                 "use_activation": params.use_activation})}


def _alike(each: Sequence[Any], most: int) -> List[List[int]]:
    """Runs of equal elements, at most so many in each, as their places."""
    out: List[List[int]] = []
    for i, value in enumerate(each):
        if out and len(out[-1]) < most and each[out[-1][0]] == value:
            out[-1].append(i)
        else:
            out.append([i])
    return out
