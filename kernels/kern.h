/* kern.h - one device, as a table of model-level operations.
 *
 * kernels/cpu/ and kernels/cuda/ each provide one `struct kern_ops`.  The model code calls the table and does
 * not depend on the device.  The table is shaped for a GPU: device memory that the host cannot read, streams
 * in which work is queued, events, asynchronous copies.  On the CPU every call is synchronous.
 *
 * Rules that every table keeps:
 *  - One reduction order per row (docs/ARCHITECTURE.md): the bits of a result row depend on that row's
 *    inputs only, never on the other rows, their number, the chunks in which a prompt is computed, or
 *    the number of threads.  kern_open_args.fast gives this up.
 *  - No operation allocates after open(), *_new() and *_load(); scratch is sized by
 *    kern_open_args.max_rows and the other limits there.
 *  - Host arrays and the lists in a struct are borrowed for the call, unless noted otherwise.  The
 *    host memory of an upload or download must stay valid until the stream has done the copy; if that
 *    memory is not pinned, the call may wait for the stream instead.
 *  - Arguments are checked by assert (programmer errors).  Device errors (a failed launch, a lost
 *    device) are returned by the call or by the next stream_sync().
 *
 * Shapes: T rows of tokens in a batch, S sequences, L rows of logits; H hidden size, D head size, Hq query
 * heads, Hkv key/value heads, I intermediate size, V vocabulary, K inputs and N outputs of a linear layer.
 * Matrices are row-major and dense.
 * Types: the residual stream and logits are F32.  Other matrices between operations ("values") have the
 * type kern_info.operand, which is F32 on a CPU.  The input of a linear layer is an *operand*: rows in a
 * layout private to the table, operand_bytes(d, n, K) bytes for n rows of K values.  rmsnorm, attention
 * and gateup_swiglu write operands; linear and gateup_swiglu read them.  So a row is converted once. */
#ifndef QUERN_KERNELS_KERN_H
#define QUERN_KERNELS_KERN_H

#include "base/codes.h"
#include "base/err.h"
#include "base/numerics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERN_PICK_MAX = 4096 }; /* most pairs in one pick() */
enum { KERN_ABI = 27 };        /* version of this header; a shared object of another version is refused */

enum kern_dtype { KERN_F32, KERN_F16, KERN_BF16, KERN_AWQ4, KERN_CODES };

enum kern_compute { KERN_COMPUTE_F32, KERN_COMPUTE_BF16, KERN_COMPUTE_INT16, KERN_COMPUTE_INT8 };

/* Weight type of the layer that computes the logits.  KERN_HEAD_MODE: the type that the compute mode uses. */
enum kern_head { KERN_HEAD_MODE, KERN_HEAD_STORED, KERN_HEAD_INT8 };

/* Type of K and V in the cache.  KERN_KV_MODE: the type that the compute mode uses. */
enum kern_kv_type { KERN_KV_MODE, KERN_KV_F32, KERN_KV_F16, KERN_KV_BF16, KERN_KV_INT16, KERN_KV_INT8 };

struct kern_dev; /* an opened device; one per worker */
struct kern_stream;
struct kern_event;
struct kern_linear;  /* a linear layer, repacked, on the device */
struct kern_embed;   /* an embedding table on the device */
struct kern_experts; /* the experts of a layer, repacked, on the device */
struct kern_kv;      /* the paged K and V of all layers, and the host's pool of blocks */
struct kern_graph;   /* captured operations, replayed by one launch */

/* A limit for --fast: a layer with weights of this type, k inputs and n outputs (summed over its parts of
 * that type) uses the fast kernel for more than `rows` rows; INT_MAX: never.  k = n = 0: for every layer
 * without an entry of its own. */
struct kern_crossover {
	enum kern_dtype dtype;
	int k, n;
	int rows;
};

struct kern_open_args {
	int index; /* cuda: device number; cpu: NUMA node, -1: any */
	enum kern_compute compute;
	enum kern_head head; /* head, kv and compute, as chosen, are part of kern_info.numerics */
	enum kern_kv_type kv;
	enum kern_dtype model;  /* type in which the model was trained.  A device with 16-bit operands uses
				   BF16 for KERN_BF16, since activations may need its range.  Otherwise it
				   uses F16, which has three more bits of mantissa */
	int n_threads;          /* cpu: 0 = one per core of the affinity mask (or its share) */
	const char *isa;        /* cpu: "avx512", "avx2", "plain", or NULL for the best */
	int max_rows;           /* largest T of a batch */
	int max_seqs;           /* largest S */
	int max_logits;         /* largest L */
	int max_context;        /* most tokens in a sequence */
	int max_blocks_per_seq; /* = ceil(max_context / block size) */
	int max_tables;         /* sequences' block tables that batches choose from; 0: max_seqs */
	int n_kinds;            /* kinds of layers, each with tables of its own (base/kinds.h); 0: one */
	int n_vocab;            /* width of the logits given to sample(), if no layer has that many outputs (a
				   rank's head has a shard of them); 0: a layer has */
	int n_sharing;          /* cpu: processes that share the cores of the machine, or of NUMA node
				   `index`; 0 or 1: this process only */
	bool fast;              /* give up the first rule above for speed (cuda: linear layers use cuBLAS for
				   many rows; cpu: no effect) */
};

struct kern_info {
	char name[64];  /* "AMD EPYC ...", "NVIDIA H200" */
	char isa[32];   /* "avx512", "sm_90a" */
	char mode[32];  /* compute mode, and on a CPU its instructions: "int8 by avx512vnni", "f32,
				    head int8 by amx" */
	char note[96];  /* missing feature that makes the mode slow here; "": none */
	char build[24]; /* version of the kernels, for measured crossovers; "": unknown */
	char numerics[NUMERICS_DEVICE_MAX];
	enum kern_dtype operand; /* type of the values between operations */
	enum kern_kv_type kv;    /* type of the cache, never KERN_KV_MODE */
	int64_t bytes_total;     /* memory of the device */
	int64_t bytes_free;      /* device memory free now */
	int64_t bytes_used;      /* device memory allocated by this table */
	bool steps_take_memory;  /* the driver allocates when a kernel first runs, so bytes_free is final only
				    after one step of each kind */
	int n_threads;           /* cpu */
	bool codes;              /* linear_load() takes KERN_CODES */
	bool embed_codes;        /* embed_load() takes KERN_CODES, except some with tables or permuted
				    inputs */
	int head_max;            /* largest head size of the cache and attention; 0: any */
	int head_step;           /* head sizes are multiples of this; 0: any */
};

/* Activation of a gate g (gateup_swiglu()) or of each value (activate()): silu g / (1 + e^-g); gelu by tanh
 * g / (1 + e^-2u), u = sqrt(2 / pi) (g + 0.044715 g^3), and by sigmoid g / (1 + e^-1.702g)
 * (arXiv:1606.08415).  activate() only: gelu g (1 + erf(g / sqrt(2))) / 2; relu and its square; xIELU
 * (arXiv:2411.13010), alpha_p g^2 + beta g for g > 0, else alpha_n (e^min(g, eps) - 1 - g) + beta g. */
enum kern_act { KERN_SILU, KERN_GELU_TANH, KERN_GELU_SIGMOID, KERN_GELU, KERN_RELU, KERN_RELU2, KERN_XIELU };
struct kern_act_args {
	enum kern_act act;
	float alpha_p, alpha_n, beta, eps; /* for KERN_XIELU */
};

/* Function that map() applies to each value x: x * by, or by * tanh(x / by). */
enum kern_map { KERN_MAP_SCALE, KERN_MAP_SOFTCAP };

/* One part of a linear layer, as stored in the checkpoint.  All parts share K; their outputs are adjacent in
 * N.  Weights are borrowed for the call only, at any alignment.
 * - F32, F16, BF16: w is [N, K].
 * - AWQ4 (version "gemm", AutoAWQ): qweight int32 [K, N/8], qzeros int32 [ceil(K/group), N/8], scales F16
 *   [ceil(K/group), N].  Column c of eight is at nibble {0,4,1,5,2,6,3,7}[c].  group = K if a whole row is
 *   one group.
 * - CODES: w is a struct codes (base/codes.h).
 *
 *     one int32 of qweight (outputs 8j .. 8j+7 of one input), from the least significant nibble:
 *     | c 0 | c 2 | c 4 | c 6 | c 1 | c 3 | c 5 | c 7 | */
struct kern_linear_part {
	enum kern_dtype dtype;
	int n;         /* outputs */
	const void *w; /* weights, or qweight, or the codes */
	const void *qzeros;
	const void *scales;
	const void *bias; /* [n] of bias_dtype, or NULL */
	enum kern_dtype bias_dtype;
	/* name and bytes are for tables that only list the weights (worker/inspect/operations.h). */
	const char *name; /* name of this part; NULL: not known */
	int64_t bytes;    /* stored size, without bias; 0: not known */
};

struct kern_linear_src {
	const char *name; /* for messages */
	int k;
	int group;         /* AWQ4: values per group along K */
	bool head;         /* the layer computes the logits: kern_open_args.head applies */
	bool exact;        /* a router: F32, F16 or BF16, for route() only, computed in F32 in every mode */
	enum kern_act act; /* activation of gateup_swiglu() */
	float limit;   /* > 0: before act, a gate is clipped to at most limit, an up to -limit .. limit; 0: no
			  clipping.  limit and up_plus: with KERN_GELU_SIGMOID only */
	float up_plus; /* added to an up after its limit (gpt-oss: 1) */
	int n_parts;   /* 1 to 3 */
	struct kern_linear_part parts[3];
};

/* The experts of a layer.  Each has gate and up, from hidden inputs to intermediate outputs, and down.  If a
 * rank has a shard of each expert, intermediate is the shard's size. */
struct kern_experts_src {
	const char *name;        /* for messages */
	int n_experts, n_chosen; /* experts of the layer; experts chosen per row */
	int hidden, intermediate;
	/* [n_experts] true for loaded experts, at least one.  moe() adds the outputs of these and skips a
	 * row's other experts, which belong to other ranks.  NULL: all are loaded. */
	const bool *here;
	/* Return the layers of expert e; gateup has two parts.  Their memory is valid until the next call.
	 * Loaded experts are requested in ascending order, once each; with experts of several kinds, the pass
	 * may be repeated, up to three passes.  0, or an error with the reason. */
	int (*expert)(void *arg, int e, struct kern_linear_src *gateup, struct kern_linear_src *down,
		      struct why *why);
	void *arg;
};

/* How the outputs z of a router become scores. */
enum kern_score { KERN_SCORE_SOFTMAX, KERN_SCORE_SIGMOID, KERN_SCORE_SPARSEMIXER };

enum { KERN_EXPERTS_MAX = 1024, KERN_CHOSEN_MAX = 64 };

/* Choose the experts of each row: E experts, C chosen.  Scores are s = softmax(z) or sigmoid(z), z the
 * router's outputs for x / rms(x) * norm.  The C experts with the largest s + choice_bias are chosen; of
 * equals, the lower ones.  With n_groups > 0, only experts of the groups_chosen best groups of E / n_groups
 * neighbours are chosen; a group's score is the sum of its two best (DeepSeek-V3, arXiv:2412.19437).  A
 * weight is s, divided by the sum of the chosen s if normalize, times scale.  All in F32, in every compute
 * mode.
 *
 * SPARSEMIXER (arXiv:2409.12136) chooses by z.  The score of a chosen expert with the output m is 1 / the sum
 * of e^(z - m) over the experts that are not better, itself included, and near it: (m - z) / max(|z|, m) <=
 * 2 jitter. */
struct kern_route_args {  /* pointers: device memory */
	int32_t *expert;  /* out [T, C], ascending in each row */
	float *weight;    /* out [T, C] F32 */
	float *shared;    /* out [T] F32: the sigmoid of the router's second part, which weighs the shared
			     expert; NULL: the layer has no shared expert */
	uint32_t *counts; /* in, out [E]: plus 1 for each row that chose the expert, without null rows, modulo
			     2^32; NULL: not counted */
	const void *x;    /* F32 [T, H]: the residual as rmsnorm() left it */
	const void *norm; /* F32 [H]; NULL: the router reads x itself */
	float eps;
	/* Loaded as exact: E outputs with their bias.  The second part, if any, has one output, the shared
	 * expert's gate. */
	const struct kern_linear *router;
	const void *choice_bias; /* F32 [E] or NULL */
	int n_experts, n_chosen, hidden;
	int n_groups, groups_chosen; /* 0: no groups */
	enum kern_score score;
	bool normalize;
	float scale, jitter;
};

struct kern_moe_args {         /* pointers: device memory */
	void *out;             /* F32 [T, H]: begin plus the sum, experts ascending, of weight times expert
				  output */
	const void *in;        /* [T, H], an operand */
	const int32_t *expert; /* [T, C], from route() */
	const float *weight;
	/* Start of the sum: F32 [T, H], each row times begin_by[row] (begin_by NULL: 1).  begin NULL:
	 * zeros. */
	const void *begin;
	const float *begin_by;
};

/* An embedding table as stored: [V, H] of F32, F16 or BF16, or CODES (a struct codes of V outputs and H
 * inputs).  Borrowed for the call. */
struct kern_embed_src {
	const void *table;
	enum kern_dtype dtype;
	int n_vocab, hidden;
	bool head; /* tied weights: the table also computes the logits */
};

enum kern_rope_style { KERN_ROPE_HALVES, KERN_ROPE_PAIRS };

/* A batch, the input of a step: T rows in S runs of consecutive positions, one run per sequence.  Host
 * arrays, borrowed for the call of batch_set() only.
 *
 *     row          0   1   2   3 | 4 | 5   6   7          T = 8 rows, S = 3 sequences
 *     row0         0               4   5            8     [S+1]
 *     pos0        32              90   0                  [S]: a chunk of a prompt, a decode, a prompt
 *     position    32  33  34  35  90   0   1   2
 *     logits_row               3   4           7          [L = 3] */
struct kern_batch {
	int n_rows;              /* T */
	int n_seqs;              /* S */
	const int32_t *token_at; /* [T] index of the row's token id in the token buffer */
	const int32_t *row0;     /* [S+1] first row of each run; row0[S] = T */
	const int32_t *pos0;     /* [S] position (from 0) of the run's first row */
	/* [*, n_kinds, table_stride] physical block of each logical block.  All entries that cover positions
	 * 0..pos0+rows-1 are blocks of the pool; of those before a layer's window nothing is read. */
	const int32_t *tables;
	int table_stride;
	const int32_t *table_at; /* [S] index of each run's tables, below max_tables; NULL: run q uses those
				    of index q.
				    A device that keeps tables is sent only the changes since the table's last
				    use, so a sequence should keep its table */
	/* [*] edition of each table, or NULL.  While a table's edition stays the same and is not 0, entries
	 * read by an earlier batch have not changed, so they are not compared again. */
	const uint64_t *editions;
	int n_logits;              /* L */
	const int32_t *logits_row; /* [L] rows to compute logits for; may repeat */
	/* Padded size, for tables with graphs; 0: no padding.  All runs have one row, and operations work on
	 * pad_to rows, sequences and rows of logits; T, S and L are at most pad_to.  The rows from T on are
	 * null rows: they have no token, touch none of the n_blocks, and their results are not read. */
	int pad_to;
};

/* Return the block table of run q for a kind, of n_kinds. */
static inline const int32_t *kern_batch_table(const struct kern_batch *b, int q, int n_kinds, int kind)
{
	const size_t table = (size_t)(b->table_at ? b->table_at[q] : q) * (size_t)n_kinds + (size_t)kind;
	return b->tables + table * (size_t)b->table_stride;
}

/* Kind of a norm: x / rms(x), or (x - mean(x)) / sd(x). */
enum kern_norm { KERN_NORM_RMS, KERN_NORM_LAYER };

/* q = rotate(clip(norm(q))), or norm(rotate(q)) if norm_after; k likewise; v = clip(v). */
struct kern_qkv_args {      /* pointers: device memory */
	void *q;            /* out [T, Hq*D], values */
	const void *qkv;    /* in [T, (Hq + 2 Hkv)*D], values: q, k, v in this order */
	const void *q_norm; /* [D] F32 or NULL: norm per head (Qwen3) */
	const void *k_norm;
	const void *q_norm_bias, *k_norm_bias; /* as the norms, for KERN_NORM_LAYER; or NULL */
	enum kern_norm norm;
	bool norm_each;  /* q_norm [Hq*D], k_norm [Hkv*D] and their biases: each head has weights of its own
			    (Cohere) */
	bool norm_after; /* without squares */
	float clip;      /* > 0: values are clipped to -clip .. clip; 0: not */
	/* beta > 0: q of position p is multiplied by 1 + q_beta ln(1 + floor(p / q_floor)) (Ministral 3). */
	float q_beta;
	int q_floor;
	const void *squares;  /* F32 [T, 2], from qkv_squares(): one norm over all heads (OLMo 2), with q_norm
				 [Hq*D] and k_norm [Hkv*D]; NULL: a norm per head */
	int q_width, k_width; /* number of values in each sum of squares, over all ranks */
	float eps;
	const void *rope; /* [max_context, rope_dim/2, 2] F32: cos, sin, by position; not read if rope_dim is
			     0 */
	int rope_dim;     /* values of a head that are rotated, even, <= D */
	enum kern_rope_style style;
	int n_q_heads, n_kv_heads, head_dim;
	struct kern_kv *kv; /* out: K and V of every row, stored at its position */
	int kind;           /* kind of layers: selects the tables */
	int layer;          /* layer of kv */
};

struct kern_attn_args {
	void *out;     /* [T, Hq*D], an operand */
	const void *q; /* [T, Hq*D], values */
	struct kern_kv *kv;
	int kind, layer; /* as in kern_qkv_args */
	int n_q_heads, n_kv_heads, head_dim;
	float scale; /* usually 1/sqrt(D) */
	float cap;   /* > 0: a scaled score s becomes cap * tanh(s / cap) (Gemma 2); 0: no cap */
	int window;  /* sliding window: a row attends to itself and the window-1 positions before it; 0: to
			all positions before it */
	/* Attention sinks: F32 [Hq] on the device, one score per head, neither scaled nor capped.  A sink is
	 * added to the softmax denominator and has no value (gpt-oss; Xiao et al. 2023, arXiv:2309.17453).
	 * It is added last, after all positions.  NULL: none. */
	const void *sinks;
	/* ALiBi (Press et al. 2021, arXiv:2108.12409): F32 [Hq] on the device, a slope per head.  The scaled
	 * score of position p for a row at position q gets slope * (p - q) added, in F32.  Not with a cap.
	 * NULL: none. */
	const void *alibi;
};

/* x += add, if add is not NULL; then out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias
 * for each row. */
struct kern_layernorm_args { /* pointers: device memory */
	void *out;           /* an operand; NULL: x becomes the result */
	void *x;             /* F32 [n_rows, hidden], as is add */
	const void *add;
	const void *weight, *bias; /* F32 [hidden]; bias NULL: zeros */
	int hidden;
	float eps;
};

/* How to choose one token from one row of logits.  Order: mask, penalties, DRY, bias, bans, temperature,
 * top-n-sigma, top-k, typical-p, top-p, min-p, XTC, draw.  Each step computes shares and probabilities over
 * the tokens that the previous step kept.  The draw uses Philox4x32-10, keyed by seed, with counter (output
 * index, position).  Penalties are as in vLLM: repetition over prompt and output, frequency and presence over
 * output.  Typical-p (Meister et al. 2022, arXiv:2202.00666), top-n-sigma (Tang et al. 2024,
 * arXiv:2411.07641), XTC and DRY are as in llama.cpp, except that the temperature comes first.  A greedy row
 * takes the largest logit; no filter changes that.  Mirostat (kernels/mirostat.h) replaces all filters: with
 * mirostat on, only it and the draw follow the temperature. */
enum { KERN_DRY_BEYOND = 64 };
struct kern_sample_row {
	int32_t row;      /* the row of logits */
	int32_t hist0;    /* index in the token buffer of the sequence's first token */
	int32_t n_prompt; /* prompt tokens, the first of the n_hist */
	int32_t n_hist;   /* tokens so far; the chosen token is written to hist0 + n_hist + shift, unless
				      forced */
	int32_t shift;    /* usually 0.  A row that other rows' histories contain must not write into these */
	int32_t forced;   /* >= 0: no draw, return the logprob of this id (prompts); -1: draw */
	float temperature;         /* 0: greedy; ties go to the lower id */
	float top_p;               /* 1: off */
	float min_p;               /* 0: off */
	int32_t top_k;             /* 0: off */
	float presence, frequency; /* 0: off */
	float repetition;          /* 1: off */
	float typical_p;   /* 0 or 1: off.  Keep the tokens with the least | -ln p - entropy| that together
			      have this share */
	float top_n_sigma; /* 0: off.  Keep logits up to this many standard deviations below the largest */
	/* xtc_probability 0: off.  With this probability, if two or more tokens have at least xtc_threshold,
	 * all of these go except the least likely and its equals. */
	float xtc_probability, xtc_threshold;
	/* DRY over the last dry_last_n tokens (-1: all).  If a token followed n earlier tokens that equal the
	 * last n tokens, n >= dry_allowed, its logit loses dry_multiplier * dry_base ^ (n - dry_allowed).  A
	 * match ends at a breaker, and n is at most dry_allowed + KERN_DRY_BEYOND.  dry_multiplier 0: off. */
	float dry_multiplier, dry_base;
	int32_t dry_allowed, dry_last_n;
	int32_t n_breakers;
	const int32_t *breakers; /* ascending ids */
	/* Mirostat's version, 1 or 2; 0: off.  tau and eta are in units of 2^-20.  mu_at: index in the token
	 * buffer of the sequence's mu, which the draw updates; a greedy row does not. */
	int32_t mirostat, mirostat_tau, mirostat_eta, mu_at;
	uint64_t seed;
	uint32_t index;          /* index of the output within its job */
	uint32_t position;       /* position of the token within the output */
	int32_t n_bias;          /* logit biases, added */
	const int32_t *bias_ids; /* host */
	const float *bias;
	int32_t n_allowed; /* > 0: only these tokens */
	const int32_t *allowed;
	int32_t n_banned; /* never these tokens (stop tokens before min_tokens) */
	const int32_t *banned;
	int32_t n_bad;          /* bad words, each a sequence of ids: the last id of a word is banned if the
				   tokens so far end in the ids before it */
	const int32_t *bad;     /* ids of all bad words, concatenated */
	const int32_t *bad_len; /* [n_bad] ids in each bad word */
	int32_t n_logprobs;     /* -1: none; 0: of the chosen token; k: also of the k most likely tokens */
	/* Bit t % 32 of word t / 32: token t is allowed.  [(V + 31) / 32] words, host, borrowed for the call;
	 * bits from V on are not read.  NULL: all are allowed.  Applied first: a forbidden token does not
	 * count in log-probabilities, and is neither chosen nor returned as one of the most likely.  At least
	 * one token is allowed.  If allowed, banned and bad would leave none, those three lists are ignored.
	 * NULL for a forced row. */
	const uint32_t *mask;
};

/* Results of sample().  Log-probabilities come from the model's own logits, before penalties and temperature,
 * over the tokens that the row's mask allows. */
struct kern_sample_out {    /* memory from host_new(), valid once the stream has passed the call */
	int32_t *token;     /* [n] */
	float *logprob;     /* [n] of the chosen token */
	int32_t *rank;      /* [n] rank of the chosen token, 1 = most likely; 0 for rows without logprobs */
	int32_t *top_id;    /* [n, top_stride] most likely first; -1 ends the list early (NaN logits) */
	float *top_logprob; /* [n, top_stride] */
	int top_stride;
	int32_t *mu; /* [n] mu after the token, for rows with mirostat; NULL: no row has mirostat */
};

struct kern_ops {
	int abi;          /* KERN_ABI */
	const char *name; /* "cpu", "cuda" */

	/* 0, or -ENODEV, -ENOMEM, -EINVAL, -ENOTSUP (a compute mode that was not built) with the reason. */
	int (*open)(struct kern_dev **out, const struct kern_open_args *a, struct why *why);
	void (*close)(struct kern_dev *d); /* does not free what was made on d; NULL is fine */
	void (*info)(struct kern_dev *d, struct kern_info *out);

	/* Set the crossovers of a device opened with fast, for layers loaded from now on; copied.  A layer
	 * without an entry uses the crossovers that the table was built with.  No effect on other devices. */
	void (*crossovers)(struct kern_dev *d, const struct kern_crossover *c, int n);

	/* Memory.  The host may compute with device addresses, but never read them. */
	void *(*mem_new)(struct kern_dev *d, size_t bytes); /* zeroed; NULL: out of memory */
	void (*mem_free)(struct kern_dev *d, void *p, size_t bytes);
	void *(*host_new)(struct kern_dev *d, size_t bytes); /* host memory that the device can reach */
	void (*host_free)(struct kern_dev *d, void *p, size_t bytes);

	struct kern_stream *(*stream_new)(struct kern_dev *d);
	void (*stream_free)(struct kern_stream *s);
	int (*stream_sync)(struct kern_stream *s); /* wait for all work on s: 0, or -EIO */
	struct kern_event *(*event_new)(struct kern_dev *d);
	void (*event_free)(struct kern_event *e);
	int (*event_record)(struct kern_event *e, struct kern_stream *s);
	int (*event_wait)(struct kern_event *e,
			  struct kern_stream *s); /* later work on s waits for e; never recorded: done */
	bool (*event_done)(struct kern_event *e);
	int (*event_sync)(struct kern_event *e); /* wait for e: 0, or -EIO */
	/* Add 1 to the eventfd fd soon after the last recording of e completes, without delaying work queued
	 * after e.  fd stays open until close().  After a device failure the notice may never arrive;
	 * event_done() is true then. */
	int (*event_notify)(struct kern_event *e, int fd);
	int (*upload)(struct kern_stream *s, void *dst_dev, const void *src_host, size_t bytes);
	int (*download)(struct kern_stream *s, void *dst_host, const void *src_dev, size_t bytes);
	/* Copy within the device; the areas do not overlap. */
	int (*copy)(struct kern_stream *s, void *dst_dev, const void *src_dev, size_t bytes);
	/* out[to] = x[from] for n pairs {from, to}, at most KERN_PICK_MAX.  x: F32 on the device; out: memory
	 * from host_new().  pairs: host, borrowed for the call. */
	int (*pick)(struct kern_stream *s, float *out, const float *x, const uint32_t (*pairs)[2], int n);

	/* Bytes of an operand.  Rows are operand_bytes(d, 1, width) apart, and the bytes of a row do not
	 * depend on the other rows. */
	size_t (*operand_bytes)(struct kern_dev *d, int n_rows, int width);

	/* Weights.  0, or -ENOMEM, -EINVAL, -ENOTSUP with the reason. */
	int (*linear_load)(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
			   struct why *why);
	void (*linear_free)(struct kern_linear *w);
	int64_t (*linear_bytes)(const struct kern_linear *w); /* bytes on the device */
	/* -ENOTSUP: this table has no kernels for experts of this kind or size. */
	int (*experts_load)(struct kern_dev *d, const struct kern_experts_src *src, struct kern_experts **out,
			    struct why *why);
	void (*experts_free)(struct kern_experts *x); /* NULL is fine */
	int64_t (*experts_bytes)(const struct kern_experts *x);
	/* Host experts: stored packed in host memory and streamed to the device for each use.  All NULL in a
	 * table for a device that computes in host memory.
	 *
	 *     experts_load -> x, experts_save(x, host)              at start-up, layer by layer
	 *     experts_place(x, at)                                  once `at` is allocated
	 *     upload(copies, at, host, packed bytes), moe(s, x)     at each use, in this order
	 *
	 * packed_bytes: size of the packed experts, at least 1.  save: write the packed experts to host and
	 * free their device memory; 0 or -EIO; moe() must not be called before place().  place: from now on
	 * moe() reads device memory `at`, aligned to 256 bytes, owned by the caller; several experts may
	 * share it. */
	size_t (*experts_packed_bytes)(const struct kern_experts *x);
	int (*experts_save)(struct kern_experts *x, void *host);
	void (*experts_place)(struct kern_experts *x, void *at);
	/* -ENOTSUP: this table has no embeddings of such codes.  embed() gives exactly the values that the
	 * codes stand for, to the bit.  embed_linear(): with src->head, the embedding as a head; the
	 * embedding owns it. */
	int (*embed_load)(struct kern_dev *d, const struct kern_embed_src *src, struct kern_embed **out,
			  struct why *why);
	void (*embed_free)(struct kern_embed *e);
	int64_t (*embed_bytes)(const struct kern_embed *e);
	const struct kern_linear *(*embed_linear)(const struct kern_embed *e);

	/* The paged cache: n_layers x n_blocks x block_size tokens.  Its layout is private to the table.  A
	 * block belongs to one kind of layers, which has at most n_layers. */
	struct kern_kv *(*kv_new)(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim,
				  int block_size, int n_blocks, int n_host_blocks); /* NULL: out of memory */
	void (*kv_free)(struct kern_kv *kv);
	int64_t (*kv_block_bytes)(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim,
				  int block_size);
	/* Device memory that a cache of n_blocks takes in addition to its blocks, such as attention's
	 * scratch.  Never falls as n_blocks grows. */
	int64_t (*kv_scratch_bytes)(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim,
				    int block_size, int n_blocks);
	/* Copy whole blocks of all layers.  pairs: [n][2] = {source, destination}, host, borrowed. */
	int (*kv_copy)(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
	int (*kv_swap_out)(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
	int (*kv_swap_in)(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);

	/* The step.  batch_set() comes first; embed, qkv, attention and gather refer to that batch. */
	int (*batch_set)(struct kern_stream *s, const struct kern_batch *b);
	/* x [T, H] F32 = the embedding of each row's token, read from tokens (device int32).  Row 0 of the
	 * table is token `first` (a rank has a shard of the vocabulary); tokens outside the table give
	 * zeros. */
	int (*embed)(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first,
		     void *x);
	/* x += add, if add is not NULL (F32 [n_rows, H]); then out = x / rms(x) * weight, or out = x if
	 * weight is NULL.  out: an operand; weight: F32 [H]. */
	int (*rmsnorm)(struct kern_stream *s, void *out, void *x, const void *add, const void *weight,
		       int n_rows, int hidden, float eps);
	int (*layernorm)(struct kern_stream *s, const struct kern_layernorm_args *a, int n_rows);
	/* x = x / rms(x) * weight, both F32: the norm of a layer's output before it is added to the
	 * residual. */
	int (*rmsnorm_f32)(struct kern_stream *s, void *x, const void *weight, int n_rows, int hidden,
			   float eps);
	/* x [T, hidden] F32 += row p of table [*, hidden] F32, p the row's position in the batch. */
	int (*positions)(struct kern_stream *s, void *x, const void *table, int hidden);
	/* out [n_rows, width], an operand, = the activation of each value of x F32, which is overwritten. */
	int (*activate)(struct kern_stream *s, void *out, void *x, int n_rows, int width,
			const struct kern_act_args *a);
	/* x += by[row] * y, all F32; x and y [n_rows, width], by [n_rows].  by NULL: x += y. */
	int (*add_rows)(struct kern_stream *s, void *x, const void *y, const float *by, int n_rows,
			int width);
	/* Apply `what` to each value of x F32 [n_rows, width]. */
	int (*map)(struct kern_stream *s, void *x, int n_rows, int width, enum kern_map what, float by);
	/* out [n_rows, N] = in [n_rows, K] W^T + bias.  in: an operand.  out: F32 if out_f32, else values.
	 * Both are aligned to 16 bytes. */
	int (*linear)(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
		      int n_rows, bool out_f32);
	/* squares F32 [T, 2] = the sums of squares of q and of k in each of the n_rows rows of qkv. */
	int (*qkv_squares)(struct kern_stream *s, void *squares, const void *qkv, int n_rows, int n_q_heads,
			   int n_kv_heads, int head_dim);
	int (*qkv)(struct kern_stream *s, const struct kern_qkv_args *a);
	int (*attention)(struct kern_stream *s, const struct kern_attn_args *a);
	/* w has two parts of I outputs, gate and up.  out [n_rows, I] = act(gate) * (up + up_plus), an
	 * operand; act, limit and up_plus as in kern_linear_src. */
	int (*gateup_swiglu)(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
			     int n_rows);
	int (*route)(struct kern_stream *s, const struct kern_route_args *a, int n_rows);
	int (*moe)(struct kern_stream *s, const struct kern_experts *x, const struct kern_moe_args *a,
		   int n_rows);
	/* out [L, H] = the rows logits_row of x [T, H], both F32. */
	int (*gather)(struct kern_stream *s, void *out, const void *x, int hidden);
	/* logits: F32 [*, V] on the device, not changed; tokens: the device's token buffer. */
	int (*sample)(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
		      const struct kern_sample_row *rows, int n, const struct kern_sample_out *out);

	/* Graphs; all NULL in a table without graphs.  Between graph_begin() and graph_end() the operations
	 * called on s, from embed to gather, are captured and not run.
	 *
	 *     batch_set(pad_to P), operations             a run without capture: loads the kernels
	 *     graph_begin, operations, graph_end -> g     the capture
	 *     batch_set(pad_to P), graph_launch(g)        for every later batch
	 *
	 * A launch gives the same bits as the operations called one by one, for any tokens, positions and
	 * tables of the batch.  graph_end() ends the capture in any case; 0, -ENOMEM, -EIO.  Buffers, weights
	 * and the cache used by captured calls must outlive the graph. */
	int (*graph_begin)(struct kern_stream *s);
	int (*graph_end)(struct kern_stream *s, struct kern_graph **out);
	int (*graph_launch)(struct kern_stream *s, struct kern_graph *g);
	void (*graph_free)(
		struct kern_graph *g); /* does not wait: a launch in flight continues; NULL is fine */
};

/* Find the table of a device ("cpu", "cpu:0", "cuda:1") and the index in its name (-1: none given).  The CUDA
 * table is loaded from libquern-cuda.so in the program's ../lib, or from the file that $QUERN_CUDA_LIBRARY
 * names.  -EINVAL: not a device name; -ENODEV: the table is missing; both with the reason and what to do. */
int kern_find(const char *device, const struct kern_ops **ops, int *index, struct why *why);

/* Return the mode for "auto": int16 on a CPU with VNNI or AMX (if isa, as in kern_open_args, allows them),
 * else f32.  For the modes' error and speed, see docs/performance/cpu.md. */
enum kern_compute kern_auto_compute(const char *device, const char *isa);
const char *kern_compute_name(enum kern_compute c); /* "f32", "bf16", "int16", "int8" */

/* Find the collectives for ranks on such devices (coll.h): shared memory for "cpu...", NCCL for "cuda...".
 * Also -ENOTSUP: the CUDA kernels were built without NCCL. */
struct coll_ops;
int kern_find_coll(const char *device, const struct coll_ops **ops, struct why *why);

#endif
