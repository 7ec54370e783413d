#include "cli/foreign.h"

#define SAME(other_, name_)                                                                                  \
	{                                                                                                    \
		.other = (other_), .name = (name_)                                                           \
	}
#define HINT(other_, hint_)                                                                                  \
	{                                                                                                    \
		.other = (other_), .hint = (hint_)                                                           \
	}

static const char http[] = "quern has --http HOST:PORT, such as --http 127.0.0.1:8000";
static const char gpu[] = "quern has --device cuda:0, which holds the whole model";
static const char key[] =
	"quern has --api-key-file FILE, one key per line: arguments are visible to other users";
static const char directory[] = "MODEL is a directory in Hugging Face layout, downloaded before";
static const char always[] = "not needed: it is always on";
static const char no_lora[] = "LoRA adapters cannot be served; merge the adapter into its base model";
static const char no_draft[] = "speculative decoding is not built";
static const char from_config[] = "not needed: MODEL's config.json has it";
static const char no_code[] = "not needed: nothing that comes with a model is executed";
static const char template[] = "the template is MODEL's: chat_template.jinja, or tokenizer_config.json";
static const char sampling[] = "sampling is set by each request, and by MODEL's generation_config.json";
static const char log_level[] = "quern has --log-level debug, info, warn or error";

const struct opt_alias foreign_options[] = {
	/* vLLM */
	HINT("--host", http),
	HINT("--port", http),
	SAME("--served-model-name", "name"),
	SAME("--tensor-parallel-size", "tp"),
	SAME("-tp", "tp"),
	SAME("--max-model-len", "context"),
	SAME("--max-num-seqs", "max-seqs"),
	SAME("--max-num-batched-tokens", "max-batch-tokens"),
	SAME("--gpu-memory-utilization", "memory-fraction"),
	SAME("--kv-cache-memory-bytes", "kv-bytes"),
	SAME("--enforce-eager", "no-graphs"),
	SAME("--no-enable-prefix-caching", "no-prefix-cache"),
	HINT("--enable-prefix-caching", always),
	HINT("--enable-chunked-prefill", "not needed: it is always on; --chunk N sets the largest part"),
	HINT("--swap-space", "quern has --swap-bytes SIZE, such as --swap-bytes 4G"),
	HINT("--data-parallel-size", "quern has --replicas N, copies of the model"),
	HINT("-dp", "quern has --replicas N, copies of the model"),
	HINT("--pipeline-parallel-size", "quern splits a model by --tp N only"),
	HINT("-pp", "quern splits a model by --tp N only"),
	HINT("--api-key", key),
	SAME("--ssl-certfile", "tls-cert"),
	SAME("--ssl-keyfile", "tls-key"),
	HINT("--allowed-origins", "quern has --cors-origin ORIGIN,..."),
	HINT("--tool-call-parser", "not needed: the format follows from the template, or --tool-parser"),
	HINT("--enable-auto-tool-choice", always),
	HINT("--enable-reasoning", "not needed: it follows from the template, or --reasoning-parser"),
	HINT("--dtype", "quern has --compute MODE; weights are read as they are stored"),
	HINT("--quantization", from_config),
	HINT("-q", from_config),
	HINT("--load-format", "weights are *.safetensors"),
	HINT("--trust-remote-code", no_code),
	HINT("--chat-template", template),
	HINT("--generation-config", sampling),
	HINT("--seed", sampling),
	HINT("--download-dir", directory),
	HINT("--revision", directory),
	HINT("--hf-token", directory),
	HINT("--enable-lora", no_lora),
	HINT("--lora-modules", no_lora),
	HINT("--speculative-config", no_draft),
	HINT("--disable-log-requests", "requests are logged with --access-log FILE only"),
	HINT("--disable-log-stats", "figures are at /metrics and in quern status, not in the log"),
	HINT("--uvicorn-log-level", log_level),

	/* llama.cpp */
	SAME("-m", "model"),
	SAME("-t", "threads"),
	SAME("-a", "name"),
	SAME("--alias", "name"),
	SAME("--ssl-cert-file", "tls-cert"),
	SAME("--ssl-key-file", "tls-key"),
	HINT("-c", "quern has --context N, of each request; all of the model's is the default"),
	HINT("--ctx-size", "quern has --context N, of each request; all of the model's is the default"),
	HINT("-np", "quern has --max-seqs N, sequences in a step; each may use the whole context"),
	HINT("--parallel", "quern has --max-seqs N, sequences in a step; each may use the whole context"),
	HINT("-b", "quern has --max-batch-tokens N, the token budget of a step"),
	HINT("--batch-size", "quern has --max-batch-tokens N, the token budget of a step"),
	HINT("-ub", "quern has --chunk N, the largest part of a prompt in a step"),
	HINT("--ubatch-size", "quern has --chunk N, the largest part of a prompt in a step"),
	HINT("-cb", always),
	HINT("--cont-batching", always),
	HINT("-ngl", gpu),
	HINT("--n-gpu-layers", gpu),
	HINT("--gpu-layers", gpu),
	HINT("-mg", "quern has --device cuda:N"),
	HINT("--main-gpu", "quern has --device cuda:N"),
	HINT("-ts", "quern has --device cuda:0,cuda:1 --tp 2: equal parts"),
	HINT("--tensor-split", "quern has --device cuda:0,cuda:1 --tp 2: equal parts"),
	HINT("-sm", "quern has --tp N"),
	HINT("--split-mode", "quern has --tp N"),
	HINT("--numa", "quern has --device cpu:0,cpu:1, a worker per NUMA node"),
	HINT("-fa", always),
	HINT("--flash-attn", always),
	HINT("--jinja", always),
	HINT("--chat-template-file", template),
	HINT("--metrics", "not needed: HTTP always has /metrics"),
	HINT("--slots", "quern jobs and the page show what runs"),
	HINT("--reasoning-format", "quern has --reasoning-parser auto, none, qwen3, deepseek_r1, mistral, "
				   "seed_oss, kimi, cohere or harmony"),
	HINT("-hf", directory),
	HINT("--hf-repo", directory),
	HINT("-mu", directory),
	HINT("--model-url", directory),
	HINT("--lora", no_lora),
	HINT("-md", no_draft),
	HINT("--model-draft", no_draft),
	HINT("--mlock", "not needed: weights are copied, not mapped"),
	HINT("--no-mmap", "not needed: weights are copied, not mapped"),
	HINT("-to", "quern has --drain-timeout S for its end, and deadline_ms per request"),
	HINT("--timeout", "quern has --drain-timeout S for its end, and deadline_ms per request"),
	HINT("--temp", sampling),
	HINT("--top-k", sampling),
	HINT("--top-p", sampling),
	HINT("-n", "the length of an output is max_tokens of its request"),
	HINT("--n-predict", "the length of an output is max_tokens of its request"),
	HINT("-v", log_level),
	HINT("--verbose", log_level),
};
const size_t foreign_n_options = sizeof foreign_options / sizeof *foreign_options;
