/* kern.h - one device, as a table of model-level operations.
 *
 * kernels/cpu/ and kernels/cuda/ each provide one `struct kern_ops`; the model code calls
 * the table and knows nothing of the device.  Shaped for a GPU: device memory that the host
 * cannot read, streams in which work is queued, events, asynchronous copies.  On the CPU a
 * stream is empty and every call has finished when it returns.
 *
 * Rules that every table keeps:
 *  - One reduction order per row (docs/ARCHITECTURE.md): a row of any result depends on that
 *    row's inputs only, bit for bit: never on the other rows, on how many there are, on the
 *    chunk a prompt is cut into, or on the number of threads.  kern_open_args.fast gives it up.
 *  - No operation allocates after open(), *_new() and *_load(); scratch is sized by
 *    kern_open_args.max_rows and friends.
 *  - Host arrays and the lists that a struct names are borrowed for the call, unless it says
 *    otherwise; what an upload reads and what a download writes is in use until the stream has come
 *    to it (where it is not pinned, the call may wait for the stream instead).
 *  - Arguments are checked by assert (programmer errors); what a device reports (a failed
 *    launch, a lost device) is returned by the call or by the next stream_sync().
 *
 * Shapes: T rows of tokens in a batch, S sequences, L rows of logits; H hidden size, D head
 * size, Hq query heads, Hkv key/value heads, I intermediate size, V vocabulary, K inputs and
 * N outputs of a linear layer.  Matrices are row-major and dense.
 * Types: the residual stream and logits are F32; operands have the table's operand type
 * (kern_info.operand): F32 in compute mode f32. */
#ifndef QUERN_KERNELS_KERN_H
#define QUERN_KERNELS_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERN_ABI = 6 };      /* of this header: a shared object with another one is refused */

enum kern_dtype { KERN_F32, KERN_F16, KERN_BF16, KERN_AWQ4 };

enum kern_compute { KERN_COMPUTE_F32, KERN_COMPUTE_BF16, KERN_COMPUTE_INT8 };

struct kern_dev;            /* an opened device; one per worker */
struct kern_stream;
struct kern_event;
struct kern_linear;         /* a linear layer, repacked, on the device */
struct kern_embed;          /* an embedding table on the device */
struct kern_kv;             /* the paged K and V of all layers, and the host pool */
struct kern_graph;          /* operations kept, to be done again at the cost of one */

/* --fast: a layer whose weights have this type, k inputs and n outputs (of all parts of that type;
 * 0 and 0: every layer that is not named) goes another way for more rows than this; INT_MAX: never. */
struct kern_crossover {
	enum kern_dtype dtype;
	int k, n;
	int rows;
};

struct kern_open_args {
	int index;                  /* cuda: device number; cpu: NUMA node, -1: any */
	enum kern_compute compute;
	enum kern_dtype model;      /* what the model was trained in: a device whose operands are halves
	                               takes BF16 for KERN_BF16, whose range its activations may need,
	                               else F16, which has three bits more */
	int n_threads;              /* cpu: 0 = one per core of the affinity mask (or its share) */
	const char *isa;            /* cpu: "avx512", "avx2", "plain", or NULL for the best */
	int max_rows;               /* largest T of a batch */
	int max_seqs;               /* largest S */
	int max_logits;             /* largest L */
	int max_context;            /* largest number of tokens of a sequence */
	int max_blocks_per_seq;     /* = ceil(max_context / block size) */
	int n_vocab;                /* of the logits that sample() gets, where no layer has as many
	                               outputs (it is one rank's part); 0: a layer has */
	int n_sharing;              /* cpu: processes among which the cores are divided; 0, 1: none */
	bool fast;                  /* gives up the first rule above where that is faster (cuda: many rows of
	                               a linear layer go to cuBLAS; cpu: no effect) */
};

struct kern_info {
	char name[64];              /* "AMD EPYC ...", "NVIDIA H200" */
	char isa[32];               /* "avx512", "sm_90a" */
	char build[24];             /* of the kernels: crossovers that were measured hold for it; "": none do */
	char numerics[128];         /* everything that decides bits: table, ISA where it matters, mode */
	enum kern_dtype operand;    /* type of the operands between operations */
	enum kern_dtype kv;         /* type of the cache */
	int64_t bytes_total;        /* memory of the device, and what is free now */
	int64_t bytes_free;
	int64_t bytes_used;         /* of it, what this process has asked for here and on the way */
	bool steps_take_memory;     /* a driver takes some when a kernel first runs: only after a step of
	                               each kind does bytes_free tell what a pool may have */
	int n_threads;              /* cpu */
	int head_max;               /* largest head size of the cache and attention; 0: any */
	int head_step;              /* which must be a multiple of this; 0: any */
};

/* One part of a linear layer as stored; all parts share K and are laid side by side in N.
 * F32, F16, BF16: w is [N, K].  AWQ4 (version "gemm", AutoAWQ): qweight int32 [K, N/8],
 * qzeros int32 [ceil(K/group), N/8], scales F16 [ceil(K/group), N]; column c of eight sits at
 * nibble {0,4,1,5,2,6,3,7}[c]; group = K for whole rows.  Borrowed for the call only, with no
 * alignment beyond 1 byte. */
struct kern_linear_part {
	enum kern_dtype dtype;
	int n;                      /* outputs */
	const void *w;              /* weights, or qweight */
	const void *qzeros;
	const void *scales;
	const void *bias;           /* [n] of bias_dtype, or NULL */
	enum kern_dtype bias_dtype;
};

struct kern_linear_src {
	const char *name;           /* for messages */
	int k;
	int group;                  /* AWQ4: values per group along K */
	int n_parts;                /* 1 to 3 */
	struct kern_linear_part parts[3];
};

enum kern_rope_style { KERN_ROPE_HALVES, KERN_ROPE_PAIRS };

/* A batch: T rows in S runs of consecutive positions, one run per sequence.  Host arrays,
 * borrowed for the call of batch_set() only. */
struct kern_batch {
	int n_rows;                 /* T */
	int n_seqs;                 /* S */
	const int32_t *token_at;    /* [T] where in the token buffer the row's token id stands */
	const int32_t *row0;        /* [S+1] first row of each run; row0[S] = T */
	const int32_t *pos0;        /* [S] position (from 0) of the run's first row */
	const int32_t *tables;      /* [S, table_stride] physical block of each logical block; only
	                               those that cover positions 0..pos0+rows-1 are read */
	int table_stride;
	int n_logits;               /* L */
	const int32_t *logits_row;  /* [L] rows of which logits are wanted; may repeat */
	/* Tables with graphs; 0: none.  All runs are of one row, and what refers to the batch works
	 * on this many rows, sequences and rows of logits: T, S and L are at most that.  Those beyond
	 * are null rows: they have no token, touch no block, and nobody reads what comes of them. */
	int pad_to;
};

struct kern_qkv_args {              /* all device memory */
	void *q;                    /* out [T, Hq*D], operand type: normalized, rotated */
	const void *qkv;            /* in [T, (Hq + 2 Hkv)*D], operand type: q, k, v side by side */
	const void *q_norm;         /* [D] F32 or NULL: RMS norm per head before the rotation (Qwen3) */
	const void *k_norm;
	float eps;
	const void *rope;           /* [max_context, rope_dim/2, 2] F32: cos, sin, by position */
	int rope_dim;               /* values of a head that are rotated, even, <= D */
	enum kern_rope_style style;
	int n_q_heads, n_kv_heads, head_dim;
	struct kern_kv *kv;         /* K and V of every row are stored for its position */
	int layer;
};

struct kern_attn_args {
	void *out;                  /* [T, Hq*D], operand type */
	const void *q;              /* [T, Hq*D], operand type */
	struct kern_kv *kv;
	int layer;
	int n_q_heads, n_kv_heads, head_dim;
	float scale;                /* usually 1/sqrt(D) */
	int window;                 /* sliding window: a row sees itself and the window-1 rows before
	                               it; 0: everything before it */
};

/* How to choose one token from one row of logits.  Order: penalties, bias, bans, temperature,
 * top-k, top-p, min-p, draw.  Philox4x32-10 keyed by seed, counter (output index, position).
 * Penalties as in vLLM: repetition over prompt and output, frequency and presence over output. */
struct kern_sample_row {
	int32_t row;                /* row of logits */
	int32_t hist0;              /* token buffer index where the sequence's tokens begin */
	int32_t n_prompt;           /* of them the prompt's */
	int32_t n_hist;             /* all tokens so far; the chosen one is written to hist0 + n_hist,
	                               unless forced */
	int32_t forced;             /* >= 0: nothing is drawn, this id's logprob is wanted (prompts); else -1 */
	float temperature;          /* 0: greedy; ties go to the lower id */
	float top_p;                /* 1: off */
	float min_p;                /* 0: off */
	int32_t top_k;              /* 0: off */
	float presence, frequency;  /* 0: off */
	float repetition;           /* 1: off */
	uint64_t seed;
	uint32_t index;             /* of the output within its job */
	uint32_t position;          /* of the token within the output */
	int32_t n_bias;             /* logit bias: added */
	const int32_t *bias_ids;    /* host */
	const float *bias;
	int32_t n_allowed;          /* > 0: only these */
	const int32_t *allowed;
	int32_t n_banned;           /* never these (stop tokens before min_tokens) */
	const int32_t *banned;
	int32_t n_bad;              /* bad words: where the last tokens equal all but the last of a
	                               sequence, its last is banned */
	const int32_t *bad;         /* ids of all of them, one after another */
	const int32_t *bad_len;     /* [n_bad] */
	int32_t n_logprobs;         /* -1: none; k: also the k most likely (0: only the chosen one) */
};

/* Log-probabilities are those of the model's own logits (before penalties and temperature). */
struct kern_sample_out {            /* host memory, valid after stream_sync() */
	int32_t *token;             /* [n] */
	float *logprob;             /* [n] of the token */
	int32_t *rank;              /* [n] of the token, 1 = most likely; 0 where no logprobs are wanted */
	int32_t *top_id;            /* [n, top_stride] most likely first; -1 where logits are no numbers: the end */
	float *top_logprob;         /* [n, top_stride] */
	int top_stride;
};

struct kern_ops {
	int abi;                    /* KERN_ABI */
	const char *name;           /* "cpu", "cuda" */

	/* -ENODEV, -ENOMEM, -EINVAL, -ENOTSUP (a compute mode that is not built): why says what. */
	int (*open)(struct kern_dev **out, const struct kern_open_args *a, char *why, size_t why_n);
	void (*close)(struct kern_dev *d);               /* NULL is fine; frees nothing else */
	void (*info)(struct kern_dev *d, struct kern_info *out);

	/* Of a device opened with fast, for layers that are loaded from now on; where none fits, what the
	 * table was built with counts.  Copied; of other devices, nothing happens. */
	void (*crossovers)(struct kern_dev *d, const struct kern_crossover *c, int n);

	/* Memory.  Device addresses may be offset by the host, never read. */
	void *(*mem_new)(struct kern_dev *d, size_t bytes);          /* zeroed; NULL: out of memory */
	void (*mem_free)(struct kern_dev *d, void *p, size_t bytes);
	void *(*host_new)(struct kern_dev *d, size_t bytes);         /* pinned, host-readable */
	void (*host_free)(struct kern_dev *d, void *p, size_t bytes);

	struct kern_stream *(*stream_new)(struct kern_dev *d);
	void (*stream_free)(struct kern_stream *s);
	int (*stream_sync)(struct kern_stream *s);                   /* all done, or -EIO */
	struct kern_event *(*event_new)(struct kern_dev *d);
	void (*event_free)(struct kern_event *e);
	int (*event_record)(struct kern_event *e, struct kern_stream *s);
	int (*event_wait)(struct kern_event *e, struct kern_stream *s);   /* s goes on after e */
	bool (*event_done)(struct kern_event *e);
	int (*event_sync)(struct kern_event *e);                     /* it has come, or -EIO */
	/* Adds 1 to the eventfd fd soon after e, as it was recorded last, has come; work behind e is not
	 * held up by that.  fd stays open until close().  A device that fails may never do it, while
	 * event_done() is then true. */
	int (*event_notify)(struct kern_event *e, int fd);
	int (*upload)(struct kern_stream *s, void *dst_dev, const void *src_host, size_t bytes);
	int (*download)(struct kern_stream *s, void *dst_host, const void *src_dev, size_t bytes);
	/* Within the device; the two do not overlap. */
	int (*copy)(struct kern_stream *s, void *dst_dev, const void *src_dev, size_t bytes);

	/* Weights.  -ENOMEM, -EINVAL, -ENOTSUP with the reason. */
	int (*linear_load)(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
			   char *why, size_t why_n);
	void (*linear_free)(struct kern_linear *w);
	int64_t (*linear_bytes)(const struct kern_linear *w);        /* on the device */
	/* table: [V, H] of dtype, borrowed for the call.  An embedding can serve as the head too
	 * (tied): embed_linear() gives the view, owned by the embedding. */
	int (*embed_load)(struct kern_dev *d, const void *table, enum kern_dtype dtype, int n_vocab, int hidden,
			  struct kern_embed **out, char *why, size_t why_n);
	void (*embed_free)(struct kern_embed *e);
	int64_t (*embed_bytes)(const struct kern_embed *e);
	const struct kern_linear *(*embed_linear)(const struct kern_embed *e);

	/* The paged cache: n_layers x n_blocks x block_size tokens, layout private to the table. */
	struct kern_kv *(*kv_new)(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
				  int n_blocks, int n_host_blocks);  /* NULL: out of memory */
	void (*kv_free)(struct kern_kv *kv);
	int64_t (*kv_block_bytes)(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size);
	/* Device memory that a cache of so many blocks takes beside them, such as attention's scratch.
	 * More blocks never take less. */
	int64_t (*kv_scratch_bytes)(struct kern_dev *d, int n_layers, int n_kv_heads, int head_dim, int block_size,
				    int n_blocks);
	/* Whole blocks, all layers.  pairs: [n][2] = {source, destination}, host, borrowed. */
	int (*kv_copy)(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
	int (*kv_swap_out)(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);
	int (*kv_swap_in)(struct kern_stream *s, struct kern_kv *kv, const int32_t (*pairs)[2], int n);

	/* The step.  batch_set() first; embed, qkv, attention and gather refer to that batch. */
	int (*batch_set)(struct kern_stream *s, const struct kern_batch *b);
	/* x [T, H] F32: the embedding of each row's token, read from tokens (device int32).  The table
	 * is that of the tokens from `first` on; the row of a token outside of it is zero. */
	int (*embed)(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first,
		     void *x);
	/* x += add (when add is not NULL; F32 [n_rows, H]); out = x / rms(x) * weight; out: operand type,
	 * weight F32 [H]. */
	int (*rmsnorm)(struct kern_stream *s, void *out, void *x, const void *add, const void *weight,
		       int n_rows, int hidden, float eps);
	/* out [n_rows, N] = in [n_rows, K] W^T + bias; out: F32 when out_f32, else the operand type; both
	 * aligned to 16 bytes. */
	int (*linear)(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
		      bool out_f32);
	int (*qkv)(struct kern_stream *s, const struct kern_qkv_args *a);
	int (*attention)(struct kern_stream *s, const struct kern_attn_args *a);
	/* w has two parts of I outputs, gate and up: out [n_rows, I] = silu(gate) * up, operand type. */
	int (*gateup_swiglu)(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
			     int n_rows);
	/* out [L, H] = the batch's logits rows of x [T, H], both F32. */
	int (*gather)(struct kern_stream *s, void *out, const void *x, int hidden);
	/* logits: F32 [*, V] on the device, left as they are; tokens: the device's token buffer. */
	int (*sample)(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
		      const struct kern_sample_row *rows, int n, const struct kern_sample_out *out);

	/* Graphs; all NULL in a table that has none.  What is called on s between graph_begin() and
	 * graph_end() is kept instead of done: embed to gather, after a batch_set() with pad_to, after
	 * the same calls were made once without (that loads what they need).  graph_launch() does
	 * it for the batch that is set now, whose pad_to is the same, with the same bits: whatever its
	 * tokens, positions and tables.  graph_end() ends the keeping in any case; -ENOMEM, -EIO.
	 * The buffers, weights and cache that were named must outlive the graph. */
	int (*graph_begin)(struct kern_stream *s);
	int (*graph_end)(struct kern_stream *s, struct kern_graph **out);
	int (*graph_launch)(struct kern_stream *s, struct kern_graph *g);
	void (*graph_free)(struct kern_graph *g);   /* none under way; NULL is fine */
};

extern const struct kern_ops kern_cpu_ops;

/* "cpu", "cpu:0", "cuda:1" to its table and the index in it (-1 where none is given).
 * A CUDA table is opened from libquern-cuda.so beside the program's ../lib, or from the file that
 * the environment's QUERN_CUDA_LIBRARY names.  -EINVAL for a name
 * that is no device, -ENODEV where the table is not there: why says what and what to do. */
int kern_find(const char *device, const struct kern_ops **ops, int *index, char *why, size_t why_n);

#endif
