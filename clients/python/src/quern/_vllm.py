"""The names of vLLM's offline API (of the release in VERSION), and what each is here: honoured, or refused by name with
what to do instead.  The page docs/apis/python.md shows these tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Tuple

from .errors import Unsupported

VERSION = "0.33.0"


@dataclass(frozen=True)
class Name:
    """A parameter, a field or a method.

    Attributes:
        note: of an honoured one, how it differs or what it becomes; of a refused one, why, and what to do instead.
        honoured: else it is refused with any value but the neutral ones.
        neutral: values that ask for nothing.
        done: values that ask for what is done anyway: taken, and named in the log.
    """

    note: str = ""
    honoured: bool = True
    neutral: Tuple[Any, ...] = (None,)
    done: Tuple[Any, ...] = ()


def _no(note: str, *neutral: Any, done: Tuple[Any, ...] = ()) -> Name:
    return Name(note, False, neutral or (None,), done)


def _yes(*names: str) -> Dict[str, Name]:
    return {n: Name() for n in names}


_LORA = _no("there are no adapters: merge it into the model")
_IMAGES = _no("models here read text alone")
_MARKS = _no("outputs get no watermark")
_RAY = "groups of processes are the service's own"
_TOKENIZE = Name("add_special_tokens, truncate_prompt_tokens and truncation_side; others are refused")
_POOLING = Name("PoolingParams, for all or one for each")

TABLE: Dict[str, Dict[str, Name]] = {
    "SamplingParams": {
        **_yes("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k", "min_p",
               "stop", "stop_token_ids", "ignore_eos", "min_tokens", "include_stop_str_in_output", "logit_bias",
               "allowed_token_ids", "bad_words", "skip_special_tokens"),
        "n": Name("to 64; also with temperature 0"),
        "seed": Name("the same seed gives the same tokens, whatever runs beside; -1: drawn"),
        "max_tokens": Name("None: the rest of the context"),
        "logprobs": Name("0 to 64"),
        "prompt_logprobs": Name("0 to 64"),
        "detokenize": Name("of LLM: False leaves texts out; a Client refuses it"),
        "structured_outputs": Name("StructuredOutputsParams"),
        "extra_args": Name("further parameters of docs/PROTOCOL.md, by their names there"),
        "output_kind": Name("any: LLM returns whole outputs, a Client streams deltas, as vLLM's do"),
        "skip_clone": Name("any: parameters are never changed"),
        "spaces_between_special_tokens": _no("texts are as Hugging Face's tokenizers decode them", True),
        "prompt_logprob_token_ids": _no("use prompt_logprobs=N, the likeliest N at each place"),
        "prompt_logprob_start": _no("use prompt_logprobs=N, and the places that are wanted"),
        "logprob_token_ids": _no("use logprobs=N; with allowed_token_ids only these are sampled"),
        "flat_logprobs": _no("logprobs are a list of dictionaries", False),
        "stream_interval": _no("a Client's deltas come as tokens do; read several at a time"),
        "output_text_buffer_length": _no("vLLM sets it itself", 0),
        "skip_reading_prefix_cache": _no("give prompts a cache_salt of their own, or the service no_prefix_cache=True", None, False),
        "thinking_token_budget": _no("chats over HTTP have it", None, -1),
        "repetition_detection": _no("use dry_multiplier, repetition_penalty or stop"),
        "routed_experts_prompt_start": _no("experts are not reported", 0),
        "trace_decode_token_ids": _no("put the tokens into the prompt, with prompt_logprobs=0"),
        "watermarking": _MARKS,
    },
    "BeamSearchParams": {
        **_yes("beam_width", "max_tokens", "ignore_eos", "length_penalty", "include_stop_str_in_output",
               "skip_special_tokens"),
        "temperature": Name("0 or 1, which give the same"),
        "structured_outputs": _no("beams have no form: sample with SamplingParams(best_of=N, structured_outputs=...)"),
        "allowed_token_ids": _no("sample with SamplingParams(best_of=N, allowed_token_ids=...)"),
        "watermarking": _MARKS,
    },
    "StructuredOutputsParams": {
        **_yes("json", "regex", "choice", "json_object", "disable_any_whitespace", "disable_additional_properties",
               "structural_tag"),
        "grammar": Name("GBNF where a rule is written with \"::=\", else Lark"),
        "whitespace_pattern": Name("with json or json_object: blanks, tabs, newlines and returns, at most 20 at a place"),
    },
    "PoolingParams": {
        "dimensions": Name("the first so many values, normalized again"),
        "use_activation": Name("vectors of the length 1; of scores only True"),
        "task": Name("\"embed\" with embed(), \"score\" or \"classify\" with score()"),
        "output_kind": Name("any: there is one output"),
        "step_tag_id": _no("there are no step rewards"),
        "returned_token_ids": _no("there are no step rewards"),
        "requires_token_ids": _no("vLLM sets it itself", False),
        "skip_reading_prefix_cache": _no("start the service with no_prefix_cache=True", None, False),
        "late_interaction_params": _no("there are no vectors of single tokens"),
        "extra_kwargs": _no("there are none"),
        "late_chunking_params": _no("there are no vectors of single tokens"),
    },
    "LLM.generate": {
        **_yes("sampling_params", "priority"),
        "prompts": Name("texts, ids, {\"prompt\"} or {\"prompt_token_ids\"}, with cache_salt; other keys are refused"),
        "use_tqdm": Name("True where tqdm is installed"),
        "lora_request": _LORA, "tokenization_kwargs": _TOKENIZE, "mm_processor_kwargs": _IMAGES,
    },
    "LLM.chat": {
        **_yes("sampling_params", "use_tqdm", "priority", "add_generation_prompt", "continue_final_message",
               "chat_template_kwargs"),
        "messages": Name("contents are strings, or lists of text parts"),
        "tools": Name("for the template; calls in the output are not parsed"),
        "lora_request": _LORA,
        "chat_template": _no("the model's own counts: render another, and generate() its text"),
        "chat_template_content_format": _no("contents are strings for the template", "auto", "string"),
        "tokenization_kwargs": Name("truncate_prompt_tokens and truncation_side; others are refused"),
        "mm_processor_kwargs": _IMAGES,
    },
    "LLM.beam_search": {
        **_yes("prompts", "use_tqdm", "concurrency_limit", "priority"),
        "params": Name("hypotheses are those of Hugging Face transformers"),
        "lora_request": _LORA,
    },
    "LLM.embed": {**_yes("prompts", "use_tqdm"), "pooling_params": _POOLING, "lora_request": _LORA,
                  "tokenization_kwargs": _TOKENIZE},
    "LLM.encode": {
        **_yes("prompts", "use_tqdm"), "pooling_params": _POOLING, "lora_request": _LORA, "tokenization_kwargs": _TOKENIZE,
        "pooling_task": _no("only \"embed\" is there; pairs: score()", None, "embed"),
    },
    "LLM.score": {
        **_yes("use_tqdm"),
        "data_1": Name("a text or a list of them"), "data_2": Name("as many, or any number with one"),
        "pooling_params": Name("use_activation=True alone"),
        "lora_request": _LORA,
        "tokenization_kwargs": Name("add_special_tokens, and truncate_prompt_tokens of embedding models"),
        "chat_template": _no("the model's own counts"),
    },
    "LLM": {
        **_yes("generate", "chat", "beam_search", "embed", "encode", "score", "enqueue", "enqueue_chat",
               "wait_for_completion"),
        "get_tokenizer": Name("encode, decode, convert_ids_to_tokens, apply_chat_template: each is a request"),
        "get_default_sampling_params": Name("generation_config.json's"),
        "get_world_size": Name("workers; without replicas, those of one"),
        "classify": _no("there are no classifiers"),
        "from_engine_args": _no("call LLM(**vars(args))"),
        "apply_model": _no("the model is not a module of Python"),
        "collective_rpc": _no("workers take no functions"),
        "get_metrics": Name("Counter, Gauge and Histogram of GET /metrics, with the service's names"),
        "reset_mm_cache": _IMAGES,
        "reset_prefix_cache": Name("of all replicas; True"),
        "start_profile": _no("start the service with trace_steps=\"FILE\""),
        "stop_profile": _no("start the service with trace_steps=\"FILE\""),
        "sleep": _no("client.scale(0) gives the memory back"),
        "wake_up": _no("client.scale(1) loads the model again"),
        "release_kv_cache_memory": _no("client.scale(0) gives the memory back"),
        **{n: _no("weights are read once, from files: start another service") for n in (
            "init_weight_transfer_engine", "start_weight_update", "start_draft_weight_update", "update_weights",
            "finish_weight_update", "shutdown_weight_transfer_engine", "get_weight_version", "update_weight_version")},
    },
    "RequestOutput": {
        **_yes("request_id", "prompt", "prompt_token_ids", "prompt_logprobs", "outputs", "finished"),
        "metrics": Name("arrival, first scheduled, first and last token, in time.time()"),
        "num_cached_tokens": Name("of the prompt, found in the prefix cache"),
        **{n: _no("always None") for n in ("lora_request", "encoder_prompt", "encoder_prompt_token_ids",
                                           "num_cache_creation_tokens", "prompt_token_id_logprobs", "kv_transfer_params",
                                           "ec_transfer_params")},
    },
    "CompletionOutput": {
        **_yes("index", "text", "token_ids", "cumulative_logprob", "logprobs", "finish_reason"),
        "stop_reason": Name("the stop string or token; of the model's own end token its id"),
        **{n: _no("always None") for n in ("routed_experts", "lora_request", "sampling_mask", "spec_decode_metrics",
                                           "weight_versions")},
    },
    "PoolingRequestOutput": {
        **_yes("request_id", "outputs", "prompt_token_ids", "finished"),
        "num_cached_tokens": _no("always 0: it is not reported"),
        **{n: _no("always None") for n in ("error", "late_chunking")},
    },
    "EmbeddingOutput": _yes("embedding"),
    "ScoringOutput": _yes("score"),
    "BeamSearchOutput": _yes("sequences"),
    "BeamSearchSequence": {**_yes("orig_prompt", "tokens", "logprobs", "cum_logprob", "text", "finish_reason", "stop_reason"),
                           "lora_request": _no("always None")},
    "Logprob": _yes("logprob", "rank", "decoded_token"),
    "EngineArgs": {
        "model": Name("a directory, a file, or a name that quern pull fetched"),
        "tensor_parallel_size": Name("tp"), "data_parallel_size": Name("replicas"), "max_model_len": Name("context"),
        "gpu_memory_utilization": Name("memory_fraction"), "kv_cache_memory_bytes": Name("kv_bytes"),
        "max_num_seqs": Name("max_seqs"), "max_num_batched_tokens": Name("max_batch_tokens"),
        "long_prefill_token_threshold": Name("chunk; 0: the service's own"), "served_model_name": Name("name"),
        "max_num_queued_reqs": Name("max_queued_jobs"), "max_num_queued_tokens": Name("max_queued_tokens"),
        "enable_prefix_caching": Name("False: no_prefix_cache"), "enforce_eager": Name("no_graphs"),
        "enable_expert_parallel": Name("ep, with tensor_parallel_size"),
        "dtype": Name("compute: auto, float32, bfloat16, int16, int8; half and float16 are taken without effect: weights are "
                      "read as they are stored", done=("half", "float16")),
        "kv_cache_dtype": Name("auto, float32, bfloat16, int16, int8"),
        "block_size": Name("16 to 256"), "tokenizer": Name("a path"), "reasoning_parser": Name("by the service's names"),
        "seed": Name("prompts without a seed get theirs from it; None: at random"),
        "disable_log_stats": Name("any"), "use_tqdm_on_load": Name("any"), "async_scheduling": Name("any: always on"),
        "disable_custom_all_reduce": Name("any"), "log_level": Name("debug, info, warn or error"), "aggregate_engine_logging": Name("any"),
        "disable_cascade_attn": Name("any"), "shutdown_timeout": Name("any: open calls end with the LLM"),
        "runner": _no("models are used as they are asked", "auto", "generate", "pooling"),
        "convert": _no("models are used as they are asked", "auto", "none", "embed"),
        "tokenizer_mode": _no("there is one tokenizer", "auto", "hf", "slow"),
        "skip_tokenizer_init": _no("the service reads the tokenizer", False),
        "trust_remote_code": _no("no code of a model is run", False, done=(True,)),
        "allowed_local_media_path": _no("models here read text alone", ""), "enable_chunked_prefill": _no("prompts are chunked: prefill=\"separate\" keeps "
                                                                             "them apart from outputs", None, True),
        "quantization": Name("the service refuses a model whose weights are not stored so: they are taken as they are"),
        "quantization_config": _no("weights are taken as they are stored"),
        "load_format": _no("files say themselves what they are", "auto", "safetensors", "gguf"),
        "config_format": _no("files say themselves what they are", "auto", "hf"),
        "revision": _no("name it to quern pull"), "tokenizer_revision": _no("name it to quern pull"),
        "code_revision": _no("no code of a model is run"), "hf_token": _no("name it to quern pull"),
        "download_dir": _no("name it to quern pull"), "hf_overrides": _no("edit config.json", None, {}),
        "pipeline_parallel_size": _no("use tensor_parallel_size", 1),
        "cpu_offload_gb": _no("use fewer bits, or tensor_parallel_size", 0),
        "scheduling_policy": _no("priorities count, then the order", "fcfs", "priority"),
        "enable_lora": _no("there are no adapters: merge it into the model", False),
        "speculative_config": _no("drafts come from the sequence's own tokens: speculate=\"ngram\""),
        "model_impl": _no("there is one", "auto"),
        "generation_config": _no("the model's own; SamplingParams override it", "auto"),
        "override_generation_config": _no("use SamplingParams", None, {}),
        "logits_processors": _no("functions cannot be sent to the service; logit_bias, allowed_token_ids, bad_words and "
                                 "forms can"),
        "structured_outputs_config": _no("forms need no configuration"),
        "compilation_config": _no("nothing is compiled"), "attention_config": _no("kernels are chosen by the service"),
        "offload_num_in_group": _no("nothing is offloaded", None, 1), "offload_prefetch_step": _no("nothing is offloaded", None, 1),
        "max_logprobs": _no("up to 64", *range(65)), "logprobs_mode": _no("the model's own", "raw_logprobs"),
        "enable_sleep_mode": _no("client.scale(0) gives the memory back", False),
        "pooler_config": _no("the model's files say it"), "chat_template": _no("the model's own counts"),
    },
}

# The rest of vLLM's options, which say how its engine works: refused with any value but None and False.
_REST: Tuple[Tuple[str, str], ...] = (
    ("there are no adapters: merge it into the model",
        "default_mm_loras enable_mixed_moe_lora_format enable_moe_shared_loras enable_tower_connector_lora "
        "fully_sharded_loras lora_dtype lora_target_modules max_cpu_loras max_lora_cls_labels max_lora_rank "
        "max_loras specialize_active_lora"),
    ("models here read text alone",
        "allowed_media_domains default_mm_loras disable_chunked_mm_input enable_mm_embeds "
        "enable_mm_processor_stats interleave_mm_strings io_processor_plugin language_model_only "
        "limit_mm_per_prompt media_io_kwargs mm_device_do_normalize mm_encoder_attn_backend mm_encoder_attn_dtype "
        "mm_encoder_fp8_scale_path mm_encoder_fp8_scale_save_margin mm_encoder_fp8_scale_save_path "
        "mm_encoder_only mm_encoder_tp_mode mm_hasher_algorithm mm_ipc_gpu_memory_gb mm_processor_cache_gb "
        "mm_processor_cache_type mm_processor_device mm_processor_kwargs mm_shm_cache_max_object_size_mb "
        "mm_tensor_ipc skip_mm_profiling video_pruning_method video_pruning_rate"),
    ("use tensor_parallel_size, data_parallel_size, device=\"cuda:0,cuda:1\", threads",
        "all2all_backend cp_kv_cache_interleave_size cpu_distributed_timeout_seconds data_parallel_address "
        "data_parallel_backend data_parallel_external_lb data_parallel_hybrid_lb "
        "data_parallel_multi_port_external_lb data_parallel_rank data_parallel_rpc_port data_parallel_size_local "
        "data_parallel_start_rank dbo_decode_token_threshold dbo_prefill_token_threshold dcp_comm_backend "
        "dcp_kv_cache_interleave_size dcp_q_replicate decode_context_parallel_size device_ids "
        "disable_nccl_for_dp_synchronization distributed_executor_backend distributed_timeout_seconds "
        "dp_sync_interval elastic_ep_max_dp_size enable_batch_sharded_sampling enable_dbo enable_elastic_ep "
        "enable_ep_weight_filter enable_eplb enable_hc_sp enable_nccl_comm_suspend "
        "enable_return_routed_experts enable_shm_tensor_arena eplb_config expert_placement_strategy master_addr "
        "master_port max_parallel_loading_workers nnodes node_rank numa_bind numa_bind_cpus numa_bind_nodes "
        "prefill_context_parallel_size ray_workers_use_nsight ubatch_size worker_cls worker_extension_cls"),
    ("GET /metrics, quern status, trace_steps=\"FILE\" and log_level say how the service fares",
        "collect_detailed_traces cudagraph_metrics custom_histogram_buckets enable_layerwise_nvtx_tracing "
        "enable_logging_iteration_details enable_mfu_metrics enable_trace_replay jit_monitor_mode "
        "jit_monitor_verbose kv_cache_metrics kv_cache_metrics_sample log_config_file logging_config "
        "otlp_traces_endpoint per_request_spec_decode_metrics profiler_config show_hidden_metrics_for_version "
        "watchdog_config"),
    ("drafts come from the sequence's own tokens: speculate=\"ngram\"",
        "spec_method spec_model spec_tokens"),
    ("the service has no such option: quern serve --help lists those that it has",
        "additional_config allow_deprecated_quantization attention_backend aux_output_config cpu_offload_params "
        "cudagraph_capture_sizes diffusion_config disable_hybrid_kv_cache_manager disable_sliding_window "
        "ec_manager_config ec_transfer_config enable_cumem_allocator enable_fault_tolerance "
        "enable_flashinfer_autotune enable_mamba_cache_stochastic_rounding enable_mamba_shared_prefix_checkpoint "
        "enable_prompt_embeds engram_config fail_on_environ_validation fault_tolerance_config gdn_prefill_backend "
        "hf_config_path ignore_patterns ir_op_priority kda_decode_backend kda_prefill_backend kernel_config "
        "kv_cache_dtype_skip_layers kv_events_config kv_offloading_backend kv_offloading_size "
        "kv_sharing_fast_prefill kv_transfer_config linear_backend long_prefill_token_threshold_adaptive "
        "mamba_backend mamba_block_size mamba_cache_dtype mamba_cache_mode mamba_cache_philox_rounds mamba_config "
        "mamba_ssm_cache_dtype mamba_ssu_algorithm max_cudagraph_capture_size max_num_active_seqs "
        "max_num_scheduled_tokens model_class_overrides model_loader_extra_config model_weights moe_backend "
        "monokernel num_gpu_blocks_override offload_backend offload_group_size "
        "offload_params optimization_level performance_mode prefill_schedule_interval "
        "prefix_cache_retention_interval prefix_caching_hash_algo prefix_match_unit pt_load_map_location "
        "reasoning_config reasoning_parser_plugin renderer_num_workers replayssm_buffer_len return_sampling_mask "
        "safetensors_load_strategy safetensors_prefetch_block_size safetensors_prefetch_num_threads scheduler_cls "
        "scheduler_reserve_full_isl sleep_mode_backend sleep_mode_offload_cudagraph "
        "sleep_preserve_parameter_names sparse_indexer_topk_backend stream_interval swa_bounded_replay "
        "tokens_only use_fp64_gumbel use_replayssm watermark watermark_config weight_transfer_config"),
)
TABLE["EngineArgs"].update({n: _no(note, None, False) for note, names in _REST for n in names.split()})


def check(table: str, given: Mapping[str, Any], prefix: str = "") -> None:
    """Unsupported for these values that are refused."""
    refused = {prefix + name: row.note for name, value in given.items() for row in (TABLE[table].get(name),)
               if row is not None and not row.honoured and not _has(row.neutral + row.done, value)}
    if refused:
        raise Unsupported(*next(iter(refused.items())), refused)


def done_anyway(table: str, given: Mapping[str, Any]) -> Dict[str, str]:
    """The reasons, by name, why these values have no effect: they ask for what is done anyway."""
    rows = {name: TABLE[table].get(name) for name in given}
    return {name: row.note for name, row in rows.items() if row is not None and _has(row.done, given[name])}


def _has(values: Tuple[Any, ...], value: Any) -> bool:
    return any(value is v or value == v for v in values)
