#include "cli/foreign.h"

/* Hints that several rows share. */
static const char always[] = "it is always on";
static const char sampling[] = "sampling is set by each request, and by MODEL's generation_config.json";
static const char scheduling[] =
	"the lowest priority runs first, then keys and users by turns; requests have `priority`";
static const char planned[] = "the next step is planned while one runs";
static const char from_request[] = "each request has its own: GBNF, a JSON schema, a pattern or choices";
static const char embeds[] = "/v1/embeddings, /v1/rerank and /v1/score are there with every model";
static const char to_log[] =
	"the log goes to stderr: --log-format, --log-level; requests to --access-log FILE";
static const char no_shift[] =
	"a context is not shifted: what does not fit is refused, or ends with the reason length";

/* {.others, .values, .hint}: without values the option is refused with the hint; with values it is accepted
 * without effect (base/options.h). */
const struct opt_alias foreign_options[] = {
	{.others = "--enable-prefix-caching", .values = "", .unless = "no-prefix-cache", .hint = always},
	{.others = "--enable-chunked-prefill",
	 .values = "",
	 .hint = "it is always on; --chunk N sets the largest part"},
	{.others = "--pipeline-parallel-size -pp --pp-size",
	 .values = "1",
	 .hint = "quern splits a model by --tp N only"},
	{.others = "--tool-call-parser",
	 .name = "tool-parser",
	 .values = "hermes=hermes qwen25=hermes qwen=hermes llama3_json=llama3 llama4_json=llama3 "
		   "llama3=llama3 pythonic=pythonic llama4_pythonic=pythonic lfm2=lfm2 "
		   "qwen3_coder=qwen3_coder qwen3_xml=qwen3_coder seed_oss=seed_oss minimax_m2=minimax_m2 "
		   "minimax-m2=minimax_m2 glm45=glm45 glm47=glm45 glm=glm45 deepseek_v3=deepseek_v3 "
		   "deepseekv3=deepseek_v3 deepseek_v31=deepseek_v31 deepseekv31=deepseek_v31 "
		   "deepseek_v32=deepseek_v32 deepseekv32=deepseek_v32 kimi_k2=kimi_k2 mistral=mistral "
		   "granite=granite phi4_mini_json=phi4 gemma4=gemma4 openai=harmony gpt-oss=harmony",
	 .hint = "the format follows from the template, or quern has --tool-parser STYLE"},
	{.others = "--enable-auto-tool-choice --enable-prompt-tokens-details -cb --cont-batching --jinja",
	 .values = "",
	 .hint = always},
	{.others = "--enable-reasoning",
	 .values = "",
	 .hint = "it follows from the template, or --reasoning-parser"},
	{.others = "--dtype",
	 .name = "compute",
	 .values = "auto=auto float32=f32 float=f32 bfloat16=bf16 half float16",
	 .hint = "weights are read as they are stored, and quern has --compute MODE for a CPU"},
	{.others = "--load-format",
	 .values = "auto safetensors gguf",
	 .hint = "files say themselves what they are: *.safetensors, or GGUF"},
	{.others = "--trust-remote-code",
	 .values = "",
	 .hint = "nothing that comes with a model is executed"},
	{.others = "--chat-template --chat-template-file",
	 .hint = "the template is MODEL's: chat_template.jinja, or tokenizer_config.json"},
	{.others = "--generation-config", .values = "auto", .hint = sampling},
	{.others =
		 "--seed --override-generation-config --temp --top-k --top-p --min-p --repeat-penalty "
		 "--presence-penalty --frequency-penalty --samplers --ignore-eos --logit-bias --random-seed",
	 .hint = sampling},
	{.others = "--download-dir --revision --hf-token -hf --hf-repo -mu --model-url -hff --hf-file -hft",
	 .hint = "MODEL is a directory in Hugging Face layout, downloaded before"},
	{.others = "--enable-lora --lora-modules --lora --lora-scaled --control-vector --lora-paths",
	 .hint = "LoRA adapters cannot be served; merge the adapter into its base model"},
	{.others = "--speculative-config -md --model-draft -ngld -devd --draft-max --draft-min --draft-n "
		   "--spec-type --speculative-algorithm --speculative-draft-model-path",
	 .hint = "drafts come from the sequence's own tokens: --speculate ngram; there is no draft model"},
	{.others = "--disable-log-requests",
	 .values = "",
	 .unless = "access-log",
	 .hint = "requests are logged with --access-log FILE only"},
	{.others = "--disable-log-stats",
	 .values = "",
	 .hint = "figures are at /metrics and in quern status, not in the log"},
	{.others = "--tokenizer-mode",
	 .values = "auto hf slow",
	 .hint = "one tokenizer, which MODEL's files choose; --tokenizer PATH names others"},
	{.others = "--limit-mm-per-prompt --mm-processor-kwargs --mmproj -mm --mmproj-url --no-mmproj",
	 .hint = "quern serves texts only: images and sound are not built"},
	{.others =
		 "--rope-scaling --rope-theta --hf-overrides --rope-scale --rope-freq-base --rope-freq-scale "
		 "--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
	 .hint = "RoPE and its scaling are MODEL's: config.json, or the keys of the GGUF file"},
	{.others = "--scheduling-policy", .values = "fcfs priority", .hint = scheduling},
	{.others = "--async-scheduling", .values = "", .hint = planned},
	{.others = "--num-scheduler-steps", .hint = planned},
	{.others = "--cuda-graph-sizes --max-seq-len-to-capture --cuda-graph-max-bs",
	 .values = "*",
	 .hint = "graphs are captured for all batches; --no-graphs leaves them out"},
	{.others = "--attention-backend --sampling-backend --prefill-attention-backend "
		   "--decode-attention-backend",
	 .hint = "the kernels follow from the device; --isa names those of a CPU"},
	{.others = "--guided-decoding-backend",
	 .values = "auto xgrammar guidance outlines lm-format-enforcer",
	 .hint = from_request},
	{.others = "--structured-outputs-config --grammar --grammar-file -j --json-schema",
	 .hint = from_request},
	{.others = "--max-logprobs", .hint = "a request may have 64 at most"},
	{.others = "--distributed-executor-backend --nnodes --node-rank --master-addr --dist-init-addr",
	 .hint = "a model's devices are of one host; workers on others are replicas: quern worker --join "
		 "HOST"},
	{.others = "--kv-transfer-config --disaggregation-mode",
	 .hint = "prefill and decode run in the same worker; KV caches are not sent to others"},
	{.others = "--enable-sleep-mode --models-dir --models-max",
	 .hint = "a service has one model, which stays loaded; run a service per model"},
	{.others = "--runner", .values = "auto generate pooling", .hint = embeds},
	{.others = "--task", .values = "auto generate embed score", .hint = embeds},
	{.others = "--convert", .values = "auto none embed", .hint = embeds},
	{.others = "--enable-log-requests --max-log-len --log-file --log-disable --log-prefix "
		   "--log-timestamps --log-requests --log-level-http",
	 .hint = to_log},
	{.others = "--disable-uvicorn-access-log", .values = "", .unless = "access-log", .hint = to_log},
	{.others = "--root-path --api-prefix",
	 .hint = "paths are fixed: let a proxy before the service cut the prefix"},
	{.others = "--ssl-ca-certs --ssl-cert-reqs",
	 .hint = "certificates of clients are not checked: --api-key-file, or a proxy that checks them"},
	{.others = "--enable-ssl-refresh", .values = "", .hint = "SIGHUP reads the certificate again"},
	{.others = "--api-server-count", .values = "1", .hint = "one controller serves HTTP"},
	{.others = "--response-role", .values = "assistant", .hint = "the role is assistant"},
	{.others = "-fa --flash-attn", .values = "? on auto 1", .hint = always},
	{.others = "--metrics --enable-metrics", .values = "", .hint = "HTTP always has /metrics"},
	{.others = "--slots", .values = "", .hint = "HTTP always has GET /slots"},
	{.others = "--mlock",
	 .hint = "weights are copied to memory, not locked there: a machine without swap keeps them"},
	{.others = "--no-mmap", .values = "", .hint = "weights are copied, not mapped"},
	{.others = "-n --n-predict", .hint = "the length of an output is max_tokens of its request"},
	{.others = "--list-devices", .hint = "quern inspect cpu, quern inspect gpu"},
	{.others = "--fit",
	 .hint = "a worker takes what --memory-fraction leaves; quern plan MODEL says what fits"},
	{.others = "--offline", .values = "", .hint = "quern serve fetches nothing"},
	{.others = "--slot-save-path --prompt-cache",
	 .hint = "not built: prefixes are cached in memory by themselves, and durable jobs are in --journal"},
	{.others = "--cache-reuse",
	 .values = "*",
	 .hint = "every common prefix of whole blocks is reused; --kv-bytes, --swap-bytes"},
	{.others = "-sps --slot-prompt-similarity", .values = "*", .hint = "there are no slots"},
	{.others = "--no-slots --props",
	 .hint = "GET /slots and GET /props are always there; props are not changed over HTTP"},
	{.others = "--context-shift", .hint = no_shift},
	{.others = "--no-context-shift", .values = "", .hint = no_shift},
	{.others = "--embedding --embeddings --reranking --rerank --is-embedding",
	 .values = "",
	 .hint = embeds},
	{.others = "--pooling", .hint = embeds},
	{.others = "--no-webui --path", .hint = "the page is at / of HTTP; there is no option for another"},
	{.others = "--threads-http", .values = "*", .hint = "HTTP has threads of its own"},
	{.others = "--no-warmup", .hint = "it takes milliseconds, and sizes the KV pool"},
	{.others = "--override-kv",
	 .hint = "keys of a GGUF file are not replaced; quern convert writes a directory to edit"},
	{.others = "--check-tensors",
	 .values = "",
	 .hint = "sizes and shapes are always checked; quern inspect MODEL"},
	{.others = "--swa-full -kvu", .values = "", .hint = "blocks are shared by need"},
	{.others = "-dt --defrag-thold", .values = "*", .hint = "blocks do not fragment"},
	{.others = "--schedule-policy --schedule-conservativeness --enable-priority-scheduling",
	 .hint = scheduling},
	{.others = "--enable-mixed-chunk",
	 .values = "",
	 .unless = "prefill",
	 .hint = "--prefill mixed is the default"},
	{.others = "--disable-overlap-schedule",
	 .hint = "the next step is planned while one runs; there is no option against it"},
	{.others = "--grammar-backend", .values = "xgrammar outlines llguidance", .hint = from_request},
	{.others = "--enable-deterministic-inference",
	 .values = "",
	 .unless = "fast",
	 .hint = "tokens never depend on the batch, but with --fast"},
};
const size_t foreign_n_options = sizeof foreign_options / sizeof *foreign_options;
