/* kern.h - one device, as a table of model-level operations.
 *
 * kernels/cpu/ and kernels/cuda/ each provide one `struct kern_ops`; the model code calls
 * the table and knows nothing of the device.  The table is shaped for a GPU: device memory that the
 * host cannot read, streams in which work is queued, events, asynchronous copies.  On the CPU every
 * call is synchronous.
 *
 * Rules that every table keeps:
 *  - One reduction order per row (docs/ARCHITECTURE.md): the bits of a row of any result depend on
 *    that row's inputs only, never on the other rows, their number, the pieces in which a prompt is
 *    computed, or the number of threads.  kern_open_args.fast gives this up.
 *  - No operation allocates after open(), *_new() and *_load(); scratch is sized by
 *    kern_open_args.max_rows and friends.
 *  - Host arrays and the lists in a struct are borrowed for the call, unless noted otherwise.  The
 *    host memory of an upload or download must stay valid until the stream has done the copy; if that
 *    memory is not pinned, the call may wait for the stream instead.
 *  - Arguments are checked by assert (programmer errors).  Errors of the device (a failed launch, a
 *    lost device) are returned by the call or by the next stream_sync().
 *
 * Shapes: T rows of tokens in a batch, S sequences, L rows of logits; H hidden size, D head
 * size, Hq query heads, Hkv key/value heads, I intermediate size, V vocabulary, K inputs and
 * N outputs of a linear layer.  Matrices are row-major and dense.
 * Types: the residual stream and logits are F32.  Other matrices between operations ("values") have the
 * table's type (kern_info.operand): F32 on a CPU.  What a linear layer reads is an *operand*: rows of
 * a layout that only the table knows, operand_bytes(d, n, K) for n rows of K values.  rmsnorm, attention and
 * gateup_swiglu emit operands, linear and gateup_swiglu read them, so that a row is converted once. */
#ifndef QUERN_KERNELS_KERN_H
#define QUERN_KERNELS_KERN_H

#include "base/codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERN_ABI = 21 }; /* version of this header: a shared object of another version is refused */

enum kern_dtype { KERN_F32, KERN_F16, KERN_BF16, KERN_AWQ4, KERN_CODES };

enum kern_compute { KERN_COMPUTE_F32, KERN_COMPUTE_BF16, KERN_COMPUTE_INT16, KERN_COMPUTE_INT8 };

/* Of the weights of the layer that gives the logits; KERN_HEAD_MODE: as the compute mode has them. */
enum kern_head { KERN_HEAD_MODE, KERN_HEAD_STORED, KERN_HEAD_INT8 };

/* Of K and V in the cache; KERN_KV_MODE: as the compute mode has them. */
enum kern_kv_type { KERN_KV_MODE, KERN_KV_F32, KERN_KV_F16, KERN_KV_BF16, KERN_KV_INT16, KERN_KV_INT8 };

struct kern_dev; /* an opened device; one per worker */
struct kern_stream;
struct kern_event;
struct kern_linear;  /* a linear layer, repacked, on the device */
struct kern_embed;   /* an embedding table on the device */
struct kern_experts; /* the experts of a layer, repacked, on the device */
struct kern_kv;      /* the paged K and V of all layers, and the host pool */
struct kern_graph;   /* captured operations, replayed by one launch */

/* --fast: a layer with weights of this type, k inputs and n outputs (summed over its parts of that type) uses
 * the fast kernel for more than `rows` rows; INT_MAX: never.  k = n = 0: the entry for every layer without
 * one of its own. */
struct kern_crossover {
	enum kern_dtype dtype;
	int k, n;
	int rows;
};

struct kern_open_args {
	int index; /* cuda: device number; cpu: NUMA node, -1: any */
	enum kern_compute compute;
	enum kern_head head; /* these three, as chosen, are part of kern_info.numerics */
	enum kern_kv_type kv;
	enum kern_dtype model;  /* type in which the model was trained.  A device with 16-bit operands
				   uses BF16 for KERN_BF16, since activations may need its range,
				   else F16, which has three more bits of mantissa */
	int n_threads;          /* cpu: 0 = one per core of the affinity mask (or its share) */
	const char *isa;        /* cpu: "avx512", "avx2", "plain", or NULL for the best */
	int max_rows;           /* largest T of a batch */
	int max_seqs;           /* largest S */
	int max_logits;         /* largest L */
	int max_context;        /* largest number of tokens of a sequence */
	int max_blocks_per_seq; /* = ceil(max_context / block size) */
	int n_vocab;            /* width of the logits given to sample(), if no layer has as many
				   outputs (a rank's head has a part of them); 0: a layer has */
	int n_sharing;          /* cpu: processes that share the cores of the machine, or of the node
				   that index names; 0 or 1: this one only */
	bool fast;              /* gives up the first rule above for speed (cuda: linear layers of many
				   rows use cuBLAS; cpu: no effect) */
};

struct kern_info {
	char name[64];           /* "AMD EPYC ...", "NVIDIA H200" */
	char isa[32];            /* "avx512", "sm_90a" */
	char mode[32];           /* compute mode, and on a CPU what runs it: "int8 by avx512vnni",
				    "f32, head int8 by amx" */
	char note[96];           /* why the mode is slow here: what the device lacks; "": it is not */
	char build[24];          /* version of the kernels, to which measured crossovers apply; "": unknown */
	char numerics[128];      /* numerics class: table, mode, and the ISA where bits depend on it */
	enum kern_dtype operand; /* type of the values between operations */
	enum kern_kv_type kv;    /* type of the cache, never KERN_KV_MODE */
	int64_t bytes_total;     /* memory of the device */
	int64_t bytes_free;      /* of it, free now */
	int64_t bytes_used;      /* of it, allocated by this table */
	bool steps_take_memory;  /* the driver allocates when a kernel first runs: bytes_free is final
				    only after a step of each kind */
	int n_threads;           /* cpu */
	bool codes;              /* linear_load() takes KERN_CODES */
	bool embed_codes;        /* embed_load() takes them too, but for some with tables or an order */
	int head_max;            /* largest head size of the cache and attention; 0: any */
	int head_step;           /* head sizes are multiples of this; 0: any */
};

/* Of a gate g: silu(g) = g / (1 + e^-g); gelu by tanh, g / (1 + e^-2u), u = sqrt(2 / pi) (g + 0.044715 g^3)
 * (Hendrycks and Gimpel, arXiv:1606.08415); gelu by sigmoid, of the same paper, g / (1 + e^-1.702g). */
enum kern_act { KERN_SILU, KERN_GELU_TANH, KERN_GELU_SIGMOID };

/* What map() makes of each value x: x * by, or by * tanh(x / by). */
enum kern_map { KERN_MAP_SCALE, KERN_MAP_SOFTCAP };

/* One part of a linear layer as stored.  All parts share K; their outputs lie side by side in N.
 * F32, F16, BF16: w is [N, K].  AWQ4 (version "gemm", AutoAWQ): qweight int32 [K, N/8],
 * qzeros int32 [ceil(K/group), N/8], scales F16 [ceil(K/group), N]; column c of eight sits at
 * nibble {0,4,1,5,2,6,3,7}[c]; group = K for whole rows.  CODES: w is a struct codes (base/codes.h). Borrowed
 * for the call only, at any alignment.
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
	/* For tables that only list what is loaded (worker/inspect/operations.h); others read neither. */
	const char *name; /* of this part; NULL: not known */
	int64_t bytes;    /* as stored, without bias; 0: not known */
};

struct kern_linear_src {
	const char *name; /* for messages */
	int k;
	int group;         /* AWQ4: values per group along K */
	bool head;         /* gives the logits: kern_open_args.head applies */
	bool exact;        /* a router: F32, F16 or BF16, for route() only, in F32 whatever the mode */
	enum kern_act act; /* of gateup_swiglu() */
	float limit;   /* > 0: a gate is at most that, an up from -limit to limit, before act; 0: none.  With
			  KERN_GELU_SIGMOID only, as is: */
	float up_plus; /* added to an up, after its limit (gpt-oss: 1) */
	int n_parts;   /* 1 to 3 */
	struct kern_linear_part parts[3];
};

/* The experts of a layer: gate and up of each, hidden inputs to intermediate outputs, and down.  Where a rank
 * has a part of each, its intermediate values. */
struct kern_experts_src {
	const char *name;        /* for messages */
	int n_experts, n_chosen; /* of them, by a row */
	int hidden, intermediate;
	/* [n_experts] those that are loaded, at least one: moe() adds what they give, and passes over a
	 * row's other experts, which are another rank's.  NULL: all. */
	const bool *here;
	/* Gives the layers of expert e, the first with two parts; what they point to holds until the next
	 * call.  Experts that are loaded are asked for in ascending order, once each; where they are of
	 * several kinds, perhaps from the first again, up to three times.  0, or an error with the reason. */
	int (*expert)(void *arg, int e, struct kern_linear_src *gateup, struct kern_linear_src *down,
		      char *why, size_t why_n);
	void *arg;
};

/* How the outputs z of a router become scores. */
enum kern_score { KERN_SCORE_SOFTMAX, KERN_SCORE_SIGMOID };

enum { KERN_EXPERTS_MAX = 1024, KERN_CHOSEN_MAX = 64 };

/* Chooses the experts of each row.  E experts, C chosen.  Of scores s = softmax(z) or sigmoid(z), z the
 * router's outputs for x / rms(x) * norm, those with the C largest s + choice_bias are chosen; of equals, the
 * lower ones.  With n_groups > 0 only from the groups_chosen groups of E / n_groups neighbours with the
 * largest sums of their two best (DeepSeek-V3, arXiv:2412.19437).  A weight is s, divided by the sum of the
 * chosen ones where normalize, times scale.  All of it in F32, whatever the compute mode. */
struct kern_route_args {  /* pointers: device memory */
	int32_t *expert;  /* out [T, C], ascending in each row */
	float *weight;    /* out [T, C] F32 */
	float *shared;    /* out [T] F32: the sigmoid of the output of the router's second part, which
			     weighs an expert that all rows have; NULL: it has none */
	uint32_t *counts; /* in, out [E]: 1 more for each row that has the expert, null rows aside, modulo
			     2^32; NULL: they are not counted */
	const void *x;    /* F32 [T, H]: what rmsnorm() has left there */
	const void *norm; /* F32 [H]; NULL: z is of x itself */
	float eps;
	/* Loaded as exact: E outputs, with their bias; a second part with one output is the gate of
	 * shared. */
	const struct kern_linear *router;
	const void *choice_bias; /* F32 [E] or NULL */
	int n_experts, n_chosen, hidden;
	int n_groups, groups_chosen; /* 0: none */
	enum kern_score score;
	bool normalize;
	float scale;
};

struct kern_moe_args {         /* pointers: device memory */
	void *out;             /* F32 [T, H]: the sum, experts ascending, of weight times what they give */
	const void *in;        /* [T, H], an operand */
	const int32_t *expert; /* [T, C], of route() */
	const float *weight;
	/* What the sum begins with: F32 [T, H], each row times begin_by[row] (NULL: 1); NULL: zeros. */
	const void *begin;
	const float *begin_by;
};

/* An embedding table as stored: [V, H] of F32, F16 or BF16, or CODES: a struct codes of V outputs and H
 * inputs.  Borrowed for the call. */
struct kern_embed_src {
	const void *table;
	enum kern_dtype dtype;
	int n_vocab, hidden;
	bool head; /* of a model with tied weights: it gives the logits too */
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
	const int32_t *tables;   /* [S, table_stride] physical block of each logical block; only
				    those that cover positions 0..pos0+rows-1 are read */
	int table_stride;
	int n_logits;              /* L */
	const int32_t *logits_row; /* [L] rows to compute logits for; may repeat */
	/* For tables with graphs; 0: no padding.  All runs have one row, and operations on the batch
	 * work on this many rows, sequences and rows of logits; T, S and L are at most that.  The rows
	 * beyond T are null rows: they have no token, touch none of the n_blocks, and their results are
	 * not read. */
	int pad_to;
};

struct kern_qkv_args {      /* pointers: device memory */
	void *q;            /* out [T, Hq*D], values: normalized, rotated */
	const void *qkv;    /* in [T, (Hq + 2 Hkv)*D], values: q, k, v side by side */
	const void *q_norm; /* [D] F32 or NULL: RMS norm per head before the rotation (Qwen3) */
	const void *k_norm;
	const void *squares;  /* F32 [T, 2], of qkv_squares(): the norm is one over all heads (OLMo 2), with
				 q_norm [Hq*D] and k_norm [Hkv*D]; or NULL */
	int q_width, k_width; /* the number of values in each sum, over all ranks */
	float eps;
	const void *rope; /* [max_context, rope_dim/2, 2] F32: cos, sin, by position; not read where rope_dim
			     is 0 */
	int rope_dim;     /* values of a head that are rotated, even, <= D */
	enum kern_rope_style style;
	int n_q_heads, n_kv_heads, head_dim;
	struct kern_kv *kv; /* out: K and V of every row, at its position */
	int layer;
};

struct kern_attn_args {
	void *out;     /* [T, Hq*D], an operand */
	const void *q; /* [T, Hq*D], values */
	struct kern_kv *kv;
	int layer;
	int n_q_heads, n_kv_heads, head_dim;
	float scale; /* usually 1/sqrt(D) */
	float cap;   /* > 0: a scaled score s becomes cap * tanh(s / cap) (Gemma 2); 0: it stays */
	int window;  /* sliding window: a row sees itself and the window-1 positions before
			it; 0: all positions before it */
	/* F32 [Hq] on the device: a score of each head, neither scaled nor capped, that counts in the sum by
	 * which weights are divided and has no value (gpt-oss; Xiao et al. 2023, arXiv:2309.17453).  It
	 * joins the sum last, behind all positions.  NULL: none. */
	const void *sinks;
};

/* How to choose one token from one row of logits.  Order: mask, penalties, DRY, bias, bans, temperature,
 * top-n-sigma, top-k, typical-p, top-p, min-p, XTC, draw.  Shares and probabilities are of what the step
 * before has left.  Philox4x32-10 keyed by seed, counter (output index, position). Penalties as in vLLM:
 * repetition over prompt and output, frequency and presence over output.  Typical-p (Meister et al. 2022,
 * arXiv:2202.00666), top-n-sigma (Tang et al. 2024, arXiv:2411.07641), XTC and DRY as in llama.cpp, but for
 * the order: temperature first.  A greedy row takes the largest logit, whatever is cut.
 * Mirostat (kernels/mirostat.h) takes the place of all that cuts: where it is on, the temperature is followed
 * by it and the draw. */
enum { KERN_DRY_BEYOND = 64 };
struct kern_sample_row {
	int32_t row;               /* row of logits */
	int32_t hist0;             /* index in the token buffer of the sequence's first token */
	int32_t n_prompt;          /* tokens of the prompt, the first of n_hist */
	int32_t n_hist;            /* all tokens so far; the chosen token is written to hist0 + n_hist,
				      unless forced */
	int32_t forced;            /* >= 0: no draw, return this id's logprob (prompts); -1: draw */
	float temperature;         /* 0: greedy; ties go to the lower id */
	float top_p;               /* 1: off */
	float min_p;               /* 0: off */
	int32_t top_k;             /* 0: off */
	float presence, frequency; /* 0: off */
	float repetition;          /* 1: off */
	float typical_p;   /* 0 or 1: off.  Keeps the least of || ln p| - entropy| that have this share */
	float top_n_sigma; /* 0: off.  Keeps logits up to this many standard deviations below the largest */
	/* With xtc_probability (0: off), where two tokens or more have at least xtc_threshold: all of these
	 * go but the least likely and its equals. */
	float xtc_probability, xtc_threshold;
	/* DRY: of the last dry_last_n tokens (-1: all), a token that followed n earlier tokens equal to the
	 * last n, n >= dry_allowed, loses dry_multiplier * dry_base ^ (n - dry_allowed); n ends at a breaker,
	 * and at KERN_DRY_BEYOND more than dry_allowed.  dry_multiplier 0: off. */
	float dry_multiplier, dry_base;
	int32_t dry_allowed, dry_last_n;
	int32_t n_breakers;
	const int32_t *breakers; /* ascending ids */
	/* 0: off; 1, 2: mirostat's version, with tau and eta in units of 2^-20.  mu_at: index in the token
	 * buffer of the sequence's mu, which the draw changes; a greedy row leaves it. */
	int32_t mirostat, mirostat_tau, mirostat_eta, mu_at;
	uint64_t seed;
	uint32_t index;          /* of the output within its job */
	uint32_t position;       /* of the token within the output */
	int32_t n_bias;          /* logit bias: added */
	const int32_t *bias_ids; /* host */
	const float *bias;
	int32_t n_allowed; /* > 0: only these */
	const int32_t *allowed;
	int32_t n_banned; /* never these (stop tokens before min_tokens) */
	const int32_t *banned;
	int32_t n_bad;          /* bad words, each a sequence of ids: its last id is banned if the
				   tokens so far end in the ids before it */
	const int32_t *bad;     /* ids of all of them, one after another */
	const int32_t *bad_len; /* [n_bad] */
	int32_t n_logprobs;     /* -1: none; 0: of the chosen token; k: also of the k most likely */
	/* Bit t % 32 of word t / 32: token t is allowed; [(V + 31) / 32] words, host, borrowed for the call,
	 * bits from V on are not read.  NULL: all are.  Comes before everything: the row is as if it had no
	 * other tokens, also for its log-probabilities, and none of them is chosen or returned as one of the
	 * most likely.  At least one is allowed.  Where allowed, banned and bad leave none of them, those
	 * three do not count.  NULL where forced is. */
	const uint32_t *mask;
};

/* Log-probabilities are those of the model's own logits (before penalties and temperature), over the tokens
 * that the row's mask allows. */
struct kern_sample_out {    /* memory of host_new(), valid once the stream has come behind the call */
	int32_t *token;     /* [n] */
	float *logprob;     /* [n] of the token */
	int32_t *rank;      /* [n] of the token, 1 = most likely; 0 for rows without logprobs */
	int32_t *top_id;    /* [n, top_stride] most likely first; -1 ends the list early (NaN logits) */
	float *top_logprob; /* [n, top_stride] */
	int top_stride;
	int32_t *mu; /* [n] after the token, of rows with mirostat; NULL: there is no such row */
};

struct kern_ops {
	int abi;          /* KERN_ABI */
	const char *name; /* "cpu", "cuda" */

	/* 0, or -ENODEV, -ENOMEM, -EINVAL, -ENOTSUP (a compute mode that is not built) with the reason. */
	int (*open)(struct kern_dev **out, const struct kern_open_args *a, char *why, size_t why_n);
	void (*close)(struct kern_dev *d); /* NULL is fine; does not free what was made on d */
	void (*info)(struct kern_dev *d, struct kern_info *out);

	/* Sets the crossovers of a device opened with fast, for layers loaded from now on; copied.  A layer
	 * without an entry uses those that the table was built with.  No effect on other devices. */
	void (*crossovers)(struct kern_dev *d, const struct kern_crossover *c, int n);

	/* Memory.  Device addresses may be offset by the host, never read. */
	void *(*mem_new)(struct kern_dev *d, size_t bytes); /* zeroed; NULL: out of memory */
	void (*mem_free)(struct kern_dev *d, void *p, size_t bytes);
	void *(*host_new)(struct kern_dev *d, size_t bytes); /* of the host, in reach of the device */
	void (*host_free)(struct kern_dev *d, void *p, size_t bytes);

	struct kern_stream *(*stream_new)(struct kern_dev *d);
	void (*stream_free)(struct kern_stream *s);
	int (*stream_sync)(struct kern_stream *s); /* waits for all work on s: 0, or -EIO */
	struct kern_event *(*event_new)(struct kern_dev *d);
	void (*event_free)(struct kern_event *e);
	int (*event_record)(struct kern_event *e, struct kern_stream *s);
	int (*event_wait)(struct kern_event *e,
			  struct kern_stream *s); /* later work on s waits for e; never recorded: done */
	bool (*event_done)(struct kern_event *e);
	int (*event_sync)(struct kern_event *e); /* waits for e: 0, or -EIO */
	/* Adds 1 to the eventfd fd soon after the last recording of e completes, without delaying work
	 * queued behind e.  fd stays open until close().  After a failure of the device the notice may
	 * never come; event_done() is true then. */
	int (*event_notify)(struct kern_event *e, int fd);
	int (*upload)(struct kern_stream *s, void *dst_dev, const void *src_host, size_t bytes);
	int (*download)(struct kern_stream *s, void *dst_host, const void *src_dev, size_t bytes);
	/* Within the device; the areas do not overlap. */
	int (*copy)(struct kern_stream *s, void *dst_dev, const void *src_dev, size_t bytes);

	/* Bytes of an operand: a row's do not depend on the other rows, and rows lie operand_bytes(d, 1,
	 * width) apart. */
	size_t (*operand_bytes)(struct kern_dev *d, int n_rows, int width);

	/* Weights.  0, or -ENOMEM, -EINVAL, -ENOTSUP with the reason. */
	int (*linear_load)(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
			   char *why, size_t why_n);
	void (*linear_free)(struct kern_linear *w);
	int64_t (*linear_bytes)(const struct kern_linear *w); /* on the device */
	/* -ENOTSUP: this table has no kernels for experts of such a kind or size. */
	int (*experts_load)(struct kern_dev *d, const struct kern_experts_src *src, struct kern_experts **out,
			    char *why, size_t why_n);
	void (*experts_free)(struct kern_experts *x); /* NULL is fine */
	int64_t (*experts_bytes)(const struct kern_experts *x);
	/* Experts that lie in host memory as this table packs them and come to the device to be computed; all
	 * NULL in a table whose device has the host's memory.
	 *
	 *     experts_load -> x, experts_save(x, host)              at the start, a layer after the other
	 *     experts_place(x, at)                                  once `at` is there
	 *     upload(copies, at, host, packed bytes), moe(s, x)     whenever they are needed, in this order
	 *
	 * packed_bytes: of that form, at least 1.  save: writes it to host and gives the weights' device
	 * memory back: 0 or -EIO; moe() is not called before place().  place: moe() calls from now on read
	 * device memory `at`, aligned to 256 bytes, which is the caller's; several may share it. */
	size_t (*experts_packed_bytes)(const struct kern_experts *x);
	int (*experts_save)(struct kern_experts *x, void *host);
	void (*experts_place)(struct kern_experts *x, void *at);
	/* -ENOTSUP: this table has no embeddings of such codes.  The rows of codes are what they stand for,
	 * to the bit.  embed_linear(): where src->head, the embedding as the head; the embedding owns it. */
	int (*embed_load)(struct kern_dev *d, const struct kern_embed_src *src, struct kern_embed **out,
			  char *why, size_t why_n);
	void (*embed_free)(struct kern_embed *e);
	int64_t (*embed_bytes)(const struct kern_embed *e);
	const struct kern_linear *(*embed_linear)(const struct kern_embed *e);

	/* The paged cache: n_layers x n_blocks x block_size tokens, layout private to the table. */
	struct kern_kv *(*kv_new)(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim,
				  int block_size, int n_blocks, int n_host_blocks); /* NULL: out of memory */
	void (*kv_free)(struct kern_kv *kv);
	int64_t (*kv_block_bytes)(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim,
				  int block_size);
	/* Device memory that a cache of n_blocks takes beside its blocks, such as attention's scratch.
	 * Never falls as n_blocks grows. */
	int64_t (*kv_scratch_bytes)(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim,
				    int block_size, int n_blocks);
	/* Whole blocks, all layers.  pairs: [n][2] = {source, destination}, host, borrowed. */
	int (*kv_copy)(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
	int (*kv_swap_out)(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
	int (*kv_swap_in)(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);

	/* The step.  batch_set() first; embed, qkv, attention and gather refer to that batch. */
	int (*batch_set)(struct kern_stream *s, const struct kern_batch *b);
	/* x [T, H] F32 = the embedding of each row's token, which is read from tokens (device int32).  Row 0
	 * of the table is token `first` (a rank has a part of the vocabulary); tokens outside give zeros. */
	int (*embed)(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first,
		     void *x);
	/* x += add (when add is not NULL; F32 [n_rows, H]); out = x / rms(x) * weight, or x where weight is
	 * NULL; out: an operand, weight F32 [H]. */
	int (*rmsnorm)(struct kern_stream *s, void *out, void *x, const void *add, const void *weight,
		       int n_rows, int hidden, float eps);
	/* x = x / rms(x) * weight, both F32: a norm behind a layer, of what is then added to the residual. */
	int (*rmsnorm_f32)(struct kern_stream *s, void *x, const void *weight, int n_rows, int hidden,
			   float eps);
	/* x += by[row] * y, all F32, x and y [n_rows, width], by [n_rows]; by NULL: x += y. */
	int (*add_rows)(struct kern_stream *s, void *x, const void *y, const float *by, int n_rows,
			int width);
	/* x F32 [n_rows, width], value by value. */
	int (*map)(struct kern_stream *s, void *x, int n_rows, int width, enum kern_map what, float by);
	/* out [n_rows, N] = in [n_rows, K] W^T + bias; in: an operand; out: F32 when out_f32, else values;
	 * both aligned to 16 bytes. */
	int (*linear)(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
		      int n_rows, bool out_f32);
	/* squares F32 [T, 2] = the sums of the squares of q and of k in each of n_rows rows of qkv. */
	int (*qkv_squares)(struct kern_stream *s, void *squares, const void *qkv, int n_rows, int n_q_heads,
			   int n_kv_heads, int head_dim);
	int (*qkv)(struct kern_stream *s, const struct kern_qkv_args *a);
	int (*attention)(struct kern_stream *s, const struct kern_attn_args *a);
	/* w has two parts of I outputs, gate and up: out [n_rows, I] = act(gate) * (up + up_plus), an
	 * operand; act, its limit and up_plus as kern_linear_src says. */
	int (*gateup_swiglu)(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
			     int n_rows);
	int (*route)(struct kern_stream *s, const struct kern_route_args *a, int n_rows);
	int (*moe)(struct kern_stream *s, const struct kern_experts *x, const struct kern_moe_args *a,
		   int n_rows);
	/* out [L, H] = the batch's logits rows of x [T, H], both F32. */
	int (*gather)(struct kern_stream *s, void *out, const void *x, int hidden);
	/* logits: F32 [*, V] on the device, left as they are; tokens: the device's token buffer. */
	int (*sample)(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
		      const struct kern_sample_row *rows, int n, const struct kern_sample_out *out);

	/* Graphs; all NULL in a table that has none.  Between graph_begin() and graph_end() the operations
	 * called on s, from embed to gather, are captured and not run.
	 *
	 *     batch_set(pad_to P), operations             a run without capture: loads the kernels
	 *     graph_begin, operations, graph_end -> g     the capture
	 *     batch_set(pad_to P), graph_launch(g)        for every later batch
	 *
	 * A launch gives the same bits as the operations called one by one, whatever the batch's tokens,
	 * positions and tables.  graph_end() ends the capture in any case; 0, -ENOMEM, -EIO.  Buffers,
	 * weights and the cache of captured calls must outlive the graph. */
	int (*graph_begin)(struct kern_stream *s);
	int (*graph_end)(struct kern_stream *s, struct kern_graph **out);
	int (*graph_launch)(struct kern_stream *s, struct kern_graph *g);
	void (*graph_free)(
		struct kern_graph *g); /* does not wait: a launch under way goes on; NULL is fine */
};

/* From a device's name ("cpu", "cpu:0", "cuda:1") to its table and the index in it (-1: none given).
 * The CUDA table is loaded from libquern-cuda.so in the program's ../lib, or from the file that
 * $QUERN_CUDA_LIBRARY names.  -EINVAL: not the name of a device; -ENODEV: the table is not there; both
 * with the reason and what to do. */
int kern_find(const char *device, const struct kern_ops **ops, int *index, char *why, size_t why_n);

/* The mode for "auto": on a CPU with VNNI or AMX (that isa, as in kern_open_args, lets it use) int16, else
 * f32. The modes' error and speed: docs/performance/cpu.md. */
enum kern_compute kern_auto_compute(const char *device, const char *isa);
const char *kern_compute_name(enum kern_compute c); /* "f32", "bf16", "int16", "int8" */

/* The collectives for ranks on such devices (coll.h): shared memory for "cpu...", NCCL for
 * "cuda...".  Also -ENOTSUP: the CUDA kernels were built without NCCL. */
struct coll_ops;
int kern_find_coll(const char *device, const struct coll_ops **ops, char *why, size_t why_n);

#endif
