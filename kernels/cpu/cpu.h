/* cpu.h - inside of the CPU table: the device, what the operations share.
 * The operations' contracts are those of kern.h. */
#ifndef QUERN_KERNELS_CPU_CPU_H
#define QUERN_KERNELS_CPU_CPU_H

#include "kernels/cpu/bf16/bf16.h"
#include "kernels/cpu/dot/dot.h"
#include "kernels/cpu/isa.h"
#include "kernels/kern.h"

#include <stdatomic.h>

/* One part of a linear layer, packed as isa.h draws it. */
struct cpu_part {
	enum kern_dtype dtype;
	int n;              /* outputs */
	int n0;             /* first of them among the layer's outputs */
	int n_blocks;       /* of BLOCK_N outputs; the last may have fewer tiles */
	size_t block_bytes; /* of a full block */
	unsigned char *w;   /* owned: weights, then the bias */
	size_t bytes;
	float *bias;            /* [n padded to 16] or NULL; inside w */
	struct cpu_codes codes; /* AWQ4 and CODES */
	bool dots;              /* computed by the device's cpu_dot */
	bool bf16;              /* by its cpu_bf16, and as bf16.h draws it */
};

struct kern_linear {
	struct kern_dev *dev;
	int k, n;
	int n_parts;
	bool as_stored; /* an embedding's table: floats, or codes to read rows from, in every mode */
	bool exact;     /* a router: plain floats in every mode, computed on floats */
	bool may_order; /* codes of permuted inputs may stay so: */
	int32_t *order; /* [k] owned: its i-th value is input order[i] of a row; NULL: input i */
	enum kern_act act;
	float limit, up_plus; /* of gate and up; limit INFINITY: none */
	struct cpu_part parts[3];
};

struct kern_embed {
	int n_vocab, hidden;
	struct kern_linear linear; /* holds the table, packed: the rows are read out of it */
	struct kern_linear head;   /* the table as the head, where its layout gives no rows; else no parts */
};

/* The batch of batch_set(), copied. */
struct cpu_batch {
	int n_rows, n_seqs, n_logits;
	int32_t *token_at;   /* [max_rows] */
	int32_t *row0;       /* [max_seqs + 1] */
	int32_t *pos0;       /* [max_seqs] */
	int32_t *tables;     /* [max_seqs][max_blocks_per_seq] */
	int32_t *logits_row; /* [max_logits] */
	int32_t *row_seq;    /* [max_rows] */
	/* attention's plan: rows of one sequence that are worked on together */
	int32_t *span_row;  /* [max_rows] first row */
	int32_t *span_rows; /* [max_rows] */
	int32_t *span_task; /* [max_rows + 1] first task */
	size_t *span_part;  /* [max_rows] where results of its chunks begin */
};

/* Of one thread; sizes in cpu.c. */
struct cpu_scratch {
	float *c;             /* [2][ROWS_MAX][BLOCK_N]: outputs of a block; two for gate and up */
	float *head;          /* [HEAD_MAX]: one head of k */
	unsigned char *lines; /* [DOT_SCRATCH], or in mode bf16 [BF16_SCRATCH]; the larger of both */
};

/* One row of logits being worked on; [vocab] each. */
struct cpu_sample_scratch {
	float *x;       /* logits that the mask allows, NaN for the others */
	float *w;       /* adjusted logits */
	float *p;       /* exp of them */
	uint32_t *mark; /* 0 outside a call: times seen in the output, and flags */
	int32_t *ids;   /* candidates */
	int32_t *heap;
	uint64_t *sums; /* of weights, for each SUM_BLOCK */
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
	struct cpu_nodes *nodes; /* owned: it runs on several (nodes.h); NULL: it does not */
	struct cpu_batch batch;
	struct cpu_scratch *scratch; /* [n_threads] */
	unsigned char *arena;        /* owns the arrays above */
	size_t arena_bytes;
	float *pack; /* [rows, at most ROWS_MAX][largest K]: packed rows */
	size_t pack_bytes;
	const struct cpu_dot *dot;   /* NULL: none is needed */
	const struct cpu_bf16 *bf16; /* of mode bf16, else NULL */
	float *wide;                 /* [rows][largest K], where operands are no floats: what becomes one */
	size_t wide_bytes;
	unsigned char *quant; /* operands of ROWS_MAX rows: a head in INT8 of a mode without them */
	size_t quant_bytes;
	unsigned char *ordered; /* operands of ROWS_MAX rows with their values in another order */
	size_t ordered_bytes;
	float *ordered_floats; /* [rows, at most ROWS_MAX][largest K] */
	size_t ordered_floats_bytes;
	atomic_int *arrived; /* [groups of outputs, row cuts]: tiles of a group that are there; linear.c */
	size_t arrived_bytes;
	float *routes; /* [rows][largest N of a router]: its outputs */
	size_t routes_bytes;
	struct cpu_moe *moe;               /* scratch of experts; NULL: none are loaded */
	int vocab;                         /* largest N of a layer: what sample is sized for */
	struct cpu_sample_scratch *sample; /* [n_threads] */
	unsigned char *sample_arena;
	size_t sample_bytes;
	int block_size;          /* of the cache; 0 while there is none */
	struct cpu_touch *touch; /* of the cache, or NULL */
};

struct kern_stream {
	struct kern_dev *dev;
};

struct kern_event {
	struct kern_dev *dev;
};

enum { HEAD_MAX = 4096 }; /* largest head size */

/* Between two looks at a word that another thread or process is about to change. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* ---- cpu.c ---- */

/* The dot products of an integer mode would run on VNNI or AMX; isa: as in kern_open_args. */
bool cpu_has_vnni(const char *isa);

/* ---- par.c ---- */

/* The calling thread and n_threads - 1 helpers. */
int cpu_pool_new(struct cpu_pool **out, int n_threads, char *why, size_t why_n);
void cpu_pool_free(struct cpu_pool *p); /* NULL is fine */
/* Helpers on their nodes, which nodes outlives; the caller stays where it is. */
void cpu_pool_place(struct cpu_pool *p, const struct cpu_nodes *nodes);

/* fn(arg, task, thread) for task 0..n-1, spread over the threads when work is worth waking them.
 * work: roughly how many operations on 16 lanes.  Which thread has which task changes no bit. */
typedef void cpu_fn(void *arg, int task, int thread);
void cpu_run(struct kern_dev *d, int n_tasks, int64_t work, cpu_fn *fn, void *arg);

/* ---- host.c ---- */

void cpu_host_name(char *out, size_t n);
/* Of this machine or node; where a cgroup allows this process less, that. */
void cpu_host_memory(int node, int64_t *total, int64_t *free_now);

/* Binds the calling thread, hence the threads it starts, to a NUMA node.  -ENODEV with a reason. */
int cpu_host_bind(int node, char *why, size_t why_n);

/* ---- linear.c ---- */

int cpu_linear_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		    char *why, size_t why_n);
void cpu_linear_free(struct kern_linear *w);
int64_t cpu_linear_bytes(const struct kern_linear *w);
int cpu_linear(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
	       bool out_f32);
int cpu_gateup_swiglu(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
		      int n_rows);
int cpu_embed_load(struct kern_dev *d, const struct kern_embed_src *src, struct kern_embed **out, char *why,
		   size_t why_n);
void cpu_embed_free(struct kern_embed *e);
int64_t cpu_embed_bytes(const struct kern_embed *e);
const struct kern_linear *cpu_embed_linear(const struct kern_embed *e);

/* ---- route.c ---- */

int cpu_route(struct kern_stream *s, const struct kern_route_args *a, int n_rows);

/* ---- moe.c ---- */

int cpu_experts_load(struct kern_dev *d, const struct kern_experts_src *src, struct kern_experts **out,
		     char *why, size_t why_n);
void cpu_experts_free(struct kern_experts *x);
int64_t cpu_experts_bytes(const struct kern_experts *x);
int cpu_moe(struct kern_stream *s, const struct kern_experts *x, const struct kern_moe_args *a, int n_rows);
void cpu_moe_free(struct cpu_moe *m); /* the scratch; NULL is fine */

/* ---- operand.c ---- */

/* Of the device's mode; without integer mode, of int16, which a head in INT8 reads. */
struct cpu_operand cpu_operand(const struct kern_dev *d, int k);
struct cpu_operand cpu_operand_wide(int k); /* of int16 */
size_t cpu_operand_bytes(struct kern_dev *d, int n_rows, int width);
bool cpu_is_integer(const struct kern_dev *d);
/* What a linear layer reads is not floats: integer modes and bf16. */
bool cpu_has_operands(const struct kern_dev *d);
/* Rows [n_rows][k] of floats as operands of the device's mode; and as those of dot.h in any mode. */
void cpu_quantize(struct kern_dev *d, void *out, const float *x, int n_rows, int k);
void cpu_quantize_dots(struct kern_dev *d, void *out, const float *x, int n_rows, int k);
/* One row, by the calling thread. */
void cpu_quantize_row(const struct kern_dev *d, void *out, const float *x, int k);
/* The same in pieces: of a row of k values x[0 .. n-1], which are values k0 .. k0 + n - 1 (k0 a multiple of
 * ACT_GROUP, n too or up to the row's end), in any order; when a call has all pieces of its rows, their end.
 */
void cpu_quantize_piece(const struct kern_dev *d, void *row, const float *x, int k, int k0, int n);
void cpu_quantize_end(struct kern_dev *d, void *rows, int n_rows, int k);
/* Values k0 .. k0 + n - 1 of an operand's row as floats; k0 a multiple of ACT_GROUP, n at most that. */
void cpu_dequantize(float *out, const unsigned char *row, const struct cpu_operand *op, int k0, int n);

/* ---- pack.c ---- */

/* Packs src's parts into w->parts.  -EINVAL, -ENOMEM, -ENOTSUP with a reason. */
int cpu_pack(struct kern_linear *w, const struct kern_linear_src *src, char *why, size_t why_n);
/* Whether rows of these codes come out of a layer as they are stored, to the bit: of one that is as_stored,
 * and of one that computes in the device's mode. */
bool cpu_codes_give_rows(const struct kern_dev *d, const struct codes *c);
bool cpu_head_gives_rows(const struct kern_dev *d, const struct codes *c);
/* The row id of a packed matrix: floats, or codes that give rows. */
void cpu_unpack_row(const struct kern_linear *w, int id, float *out);
/* Tiles of block b, a power of two. */
int cpu_part_tiles(const struct cpu_part *p, int b);

/* ---- rows.c ---- */

int cpu_batch_set(struct kern_stream *s, const struct kern_batch *b);
int cpu_embed(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first, void *x);
int cpu_rmsnorm(struct kern_stream *s, void *out, void *x, const void *add, const void *weight, int n_rows,
		int hidden, float eps);
int cpu_rmsnorm_f32(struct kern_stream *s, void *x, const void *weight, int n_rows, int hidden, float eps);
int cpu_add_rows(struct kern_stream *s, void *x, const void *y, const float *by, int n_rows, int width);
int cpu_map(struct kern_stream *s, void *x, int n_rows, int width, enum kern_map what, float by);
int cpu_qkv_squares(struct kern_stream *s, void *squares, const void *qkv, int n_rows, int n_q_heads,
		    int n_kv_heads, int head_dim);
int cpu_qkv(struct kern_stream *s, const struct kern_qkv_args *a);
int cpu_gather(struct kern_stream *s, void *out, const void *x, int hidden);

/* ---- sample.c ---- */

/* Room for rows of n_vocab logits; -ENOMEM. */
int cpu_sample_reserve(struct kern_dev *d, int n_vocab);
int cpu_sample(struct kern_stream *s, const void *logits, int n_vocab, int32_t *tokens,
	       const struct kern_sample_row *rows, int n, const struct kern_sample_out *out);

extern const struct kern_ops kern_cpu_ops; /* cpu.c */

#endif
