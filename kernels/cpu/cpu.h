/* cpu.h - the inside of the CPU table: the device, and functions that the operations share.
 * For the operations' contracts see kern.h. */
#ifndef QUERN_KERNELS_CPU_CPU_H
#define QUERN_KERNELS_CPU_CPU_H

#include "base/err.h"
#include "kernels/cpu/bf16/bf16.h"
#include "kernels/cpu/dot/dot.h"
#include "kernels/cpu/isa.h"
#include "kernels/kern.h"

#include <stdatomic.h>

/* One part of a linear layer, packed as drawn in isa.h. */
struct cpu_part {
	enum kern_dtype dtype;
	int n;              /* outputs */
	int n0;             /* first output of the part among the layer's outputs */
	int n_blocks;       /* blocks of BLOCK_N outputs; the last may have fewer tiles */
	size_t block_bytes; /* bytes of a full block */
	unsigned char *w;   /* owned: weights, then the bias */
	size_t bytes;
	float *bias;            /* [n padded to 16] or NULL; inside w */
	struct cpu_codes codes; /* AWQ4 and CODES */
	bool dots;              /* computed by the device's cpu_dot */
	bool bf16;              /* computed by the device's cpu_bf16, packed as drawn in bf16.h */
	struct codes stored;    /* reads the weights, if w has rows as stored (stored.h); else read is NULL */
	size_t tile_bytes;      /* bytes of a packed tile */
};

struct kern_linear {
	struct kern_dev *dev;
	int k, n;
	int n_parts;
	bool as_stored; /* an embedding's table: floats, or codes that rows are read from, in every mode */
	bool exact;     /* a router: stored as floats and computed in F32, in every mode */
	bool may_order; /* codes of permuted inputs may be stored in that order */
	int32_t *order; /* [k] owned: the layer's i-th value is input order[i] of a row; NULL: input i */
	enum kern_act act;
	float limit, up_plus; /* clipping of gate and up (limit INFINITY: none); addend of up */
	struct cpu_part parts[3];
};

struct kern_embed {
	int n_vocab, hidden;
	struct kern_linear linear; /* the packed table, from which rows are read */
	struct kern_linear head;   /* second copy, as the head, if the head's layout gives no rows; else
				      without parts */
};

/* The batch of batch_set(), copied. */
struct cpu_batch {
	int n_rows, n_seqs, n_logits;
	int32_t *token_at;   /* [max_rows] */
	int32_t *row0;       /* [max_seqs + 1] */
	int32_t *pos0;       /* [max_seqs] */
	int32_t *tables;     /* [max_seqs][n_kinds][max_blocks_per_seq] */
	int32_t *logits_row; /* [max_logits] */
	int32_t *row_seq;    /* [max_rows] */
	/* attention's plan: rows of one sequence that are computed together */
	int32_t *span_row;  /* [max_rows] first row */
	int32_t *span_rows; /* [max_rows] */
	int32_t *span_task; /* [max_rows + 1] first task */
	size_t *span_part;  /* [max_rows] index of the first result of the span's chunks */
};

/* Scratch of one thread; sizes in cpu.c. */
struct cpu_scratch {
	float *c;             /* [2][ROWS_MAX][BLOCK_N]: outputs of a block; two with gate and up */
	float *head;          /* [HEAD_MAX]: one head of k */
	unsigned char *lines; /* [DOT_SCRATCH] with dot, else [BF16_SCRATCH] with bf16, else
				 [CODES_SCRATCH] */
	unsigned char
		*stored; /* tiles of a part that stays as stored (stored.h); owned; NULL: no such part */
	size_t stored_bytes;
};

/* Scratch for one row of logits; [vocab] each. */
struct cpu_sample_scratch {
	float *x;       /* logits; NaN if the mask forbids the token */
	float *w;       /* adjusted logits */
	float *p;       /* exp of the adjusted logits */
	uint32_t *mark; /* 0 outside a call: counts and flags of each token */
	int32_t *ids;   /* candidate tokens */
	int32_t *heap;
	uint64_t *sums; /* sums of weights, one for each SUM_BLOCK */
};

struct cpu_moe;
struct cpu_nodes;
struct cpu_pool;
struct cpu_touch;

struct kern_dev {
	struct kern_open_args args; /* isa is not kept */
	const struct cpu_isa *isa;
	const struct cpu_kv_type *kv_type; /* attention/kvtype.h */
	int n_threads;
	struct cpu_pool *pool;
	int node;                /* NUMA node or -1 */
	struct cpu_nodes *nodes; /* owned, if the worker runs on several NUMA nodes (nodes.h); else NULL */
	struct cpu_batch batch;
	struct cpu_scratch *scratch; /* [n_threads] */
	unsigned char *arena;        /* owns the arrays of batch and scratch */
	size_t arena_bytes;
	float *pack; /* [rows, at most ROWS_MAX][largest K]: packed rows */
	size_t pack_bytes;
	const struct cpu_dot *dot;   /* NULL: no dot products needed */
	const struct cpu_bf16 *bf16; /* NULL unless the mode is bf16 */
	float *wide;                 /* [rows][largest K]: floats to convert to operands; unused if operands
					are floats */
	size_t wide_bytes;
	unsigned char *quant; /* operands of ROWS_MAX rows, for an INT8 head in a mode without integer
				 operands */
	size_t quant_bytes;
	unsigned char *ordered; /* operands of ROWS_MAX rows, their values in a layer's own order */
	size_t ordered_bytes;
	float *ordered_floats; /* [rows, at most ROWS_MAX][largest K] */
	size_t ordered_floats_bytes;
	atomic_int *arrived; /* [row cuts][groups of outputs]: finished outputs of each group; linear.c */
	size_t arrived_bytes;
	float *routes; /* [rows][largest N of a router]: a router's outputs */
	size_t routes_bytes;
	struct cpu_moe *moe;               /* scratch of the experts; NULL: no experts are loaded */
	int vocab;                         /* largest N of a layer, which sample() is sized for */
	struct cpu_sample_scratch *sample; /* [n_threads] */
	unsigned char *sample_arena;
	size_t sample_bytes;
	int block_size;          /* block size of the cache; 0 while there is none */
	struct cpu_touch *touch; /* the thread that touches the cache's pages, or NULL */
};

struct kern_stream {
	struct kern_dev *dev;
};

struct kern_event {
	struct kern_dev *dev;
};

enum { HEAD_MAX = 4096 }; /* largest head size */

/* Pause between two reads of a word that another thread or process is about to change. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* ---- cpu.c ---- */

/* Return true if the dot products of an integer mode would run on VNNI or AMX; isa as in kern_open_args. */
bool cpu_has_vnni(const char *isa);

/* ---- par.c ---- */

/* Make a pool of the calling thread and n_threads - 1 helpers. */
int cpu_pool_new(struct cpu_pool **out, int n_threads, struct why *why);
void cpu_pool_free(struct cpu_pool *p); /* NULL is fine */
/* Bind the helpers to their nodes; the caller is not moved.  nodes must outlive the pool. */
void cpu_pool_place(struct cpu_pool *p, const struct cpu_nodes *nodes);

/* Call fn(arg, task, thread) for tasks 0..n-1, spread over the threads if the work is worth waking them.
 * work: about the number of operations on 16 lanes.  Which thread runs which task changes no bit. */
typedef void cpu_fn(void *arg, int task, int thread);
void cpu_run(struct kern_dev *d, int n_tasks, int64_t work, cpu_fn *fn, void *arg);

/* ---- host.c ---- */

void cpu_host_name(char *out, size_t n);
/* Memory of this machine or node, or less if a cgroup limits this process. */
void cpu_host_memory(int node, int64_t *total, int64_t *free_now);

/* Bind the calling thread, and so the threads it starts, to a NUMA node.  -ENODEV with a reason. */
int cpu_host_bind(int node, struct why *why);

/* ---- linear.c ---- */

int cpu_linear_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		    struct why *why);
void cpu_linear_free(struct kern_linear *w);
int64_t cpu_linear_bytes(const struct kern_linear *w);
int cpu_linear(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
	       bool out_f32);
int cpu_gateup_swiglu(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
		      int n_rows);
int cpu_embed_load(struct kern_dev *d, const struct kern_embed_src *src, struct kern_embed **out,
		   struct why *why);
void cpu_embed_free(struct kern_embed *e);
int64_t cpu_embed_bytes(const struct kern_embed *e);
const struct kern_linear *cpu_embed_linear(const struct kern_embed *e);

/* ---- route.c ---- */

int cpu_route(struct kern_stream *s, const struct kern_route_args *a, int n_rows);

/* ---- moe.c ---- */

int cpu_experts_load(struct kern_dev *d, const struct kern_experts_src *src, struct kern_experts **out,
		     struct why *why);
void cpu_experts_free(struct kern_experts *x);
int64_t cpu_experts_bytes(const struct kern_experts *x);
int cpu_moe(struct kern_stream *s, const struct kern_experts *x, const struct kern_moe_args *a, int n_rows);
void cpu_moe_free(struct cpu_moe *m); /* frees the scratch; NULL is fine */

/* ---- operand.c ---- */

/* Return the operand layout of the device's mode; without integer mode that of int16, for an INT8 head. */
struct cpu_operand cpu_operand(const struct kern_dev *d, int k);
struct cpu_operand cpu_operand_wide(int k); /* the layout of int16 */
size_t cpu_operand_bytes(struct kern_dev *d, int n_rows, int width);
bool cpu_is_integer(const struct kern_dev *d);
/* Return true if operands are not floats: integer modes and bf16. */
bool cpu_has_operands(const struct kern_dev *d);
/* Convert rows [n_rows][k] of floats to operands: of the device's mode, or of dot.h in any mode. */
void cpu_quantize(struct kern_dev *d, void *out, const float *x, int n_rows, int k);
void cpu_quantize_dots(struct kern_dev *d, void *out, const float *x, int n_rows, int k);
/* Convert one row, in the calling thread. */
void cpu_quantize_row(const struct kern_dev *d, void *out, const float *x, int k);
/* Convert a row of k values in chunks, in any order.  x[0 .. n-1] are values k0 .. k0 + n - 1; k0 is a
 * multiple of ACT_GROUP, and so is n unless it ends the row.  After all chunks of all rows, call
 * cpu_quantize_end() once. */
void cpu_quantize_piece(const struct kern_dev *d, void *row, const float *x, int k, int k0, int n);
void cpu_quantize_end(struct kern_dev *d, void *rows, int n_rows, int k);
/* Convert values k0 .. k0 + n - 1 of an operand's row to floats; k0 a multiple of ACT_GROUP, n at most
 * ACT_GROUP. */
void cpu_dequantize(float *out, const unsigned char *row, const struct cpu_operand *op, int k0, int n);

/* ---- pack.c ---- */

/* Pack src's parts into w->parts.  -EINVAL, -ENOMEM, -ENOTSUP with a reason. */
int cpu_pack(struct kern_linear *w, const struct kern_linear_src *src, struct why *why);
/* Return true if rows of these codes can be read out of a packed layer, to the bit: of one that is as_stored,
 * or one that computes in the device's mode. */
bool cpu_codes_give_rows(const struct kern_dev *d, const struct codes *c);
bool cpu_head_gives_rows(const struct kern_dev *d, const struct codes *c);
/* Read row id of a packed matrix: floats, or codes that give rows. */
void cpu_unpack_row(const struct kern_linear *w, int id, float *out);
/* Return the tiles in block b, a power of two. */
int cpu_part_tiles(const struct cpu_part *p, int b);

/* ---- rows.c ---- */

int cpu_batch_set(struct kern_stream *s, const struct kern_batch *b);
/* Return the block table of a run of the batch for a kind of layers. */
static inline int32_t *cpu_table(const struct kern_dev *d, int seq, int kind)
{
	const size_t table = (size_t)seq * (size_t)d->args.n_kinds + (size_t)kind;
	return d->batch.tables + table * (size_t)d->args.max_blocks_per_seq;
}
int cpu_embed(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first, void *x);
int cpu_rmsnorm(struct kern_stream *s, void *out, void *x, const void *add, const void *weight, int n_rows,
		int hidden, float eps);
int cpu_rmsnorm_f32(struct kern_stream *s, void *x, const void *weight, int n_rows, int hidden, float eps);
int cpu_layernorm(struct kern_stream *s, const struct kern_layernorm_args *a, int n_rows);
int cpu_positions(struct kern_stream *s, void *x, const void *table, int hidden);
int cpu_activate(struct kern_stream *s, void *out, void *x, int n_rows, int width,
		 const struct kern_act_args *a);
int cpu_add_rows(struct kern_stream *s, void *x, const void *y, const float *by, int n_rows, int width);
int cpu_map(struct kern_stream *s, void *x, int n_rows, int width, enum kern_map what, float by);
int cpu_qkv_squares(struct kern_stream *s, void *squares, const void *qkv, int n_rows, int n_q_heads,
		    int n_kv_heads, int head_dim);
int cpu_qkv(struct kern_stream *s, const struct kern_qkv_args *a);
int cpu_gather(struct kern_stream *s, void *out, const void *x, int hidden);

/* ---- sample.c ---- */

/* Make room for rows of n_vocab logits; -ENOMEM. */
int cpu_sample_reserve(struct kern_dev *d, int n_vocab);
int cpu_sample(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
	       const struct kern_sample_row *rows, int n, const struct kern_sample_out *out);

extern const struct kern_ops kern_cpu_ops; /* cpu.c */

#endif
