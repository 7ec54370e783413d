/* model_impl.h - what model.c, which loads and runs a decoder, and model_experts.c, which has its mixtures of
 * experts, share. */
#ifndef QUERN_WORKER_MODEL_IMPL_H
#define QUERN_WORKER_MODEL_IMPL_H

#include "worker/experts/beside.h"
#include "worker/experts/prefetch.h"
#include "worker/model.h"
#include "worker/trace.h"

/* A piece of device memory.  0 bytes: a part of another one. */
struct piece {
	void *p;
	size_t bytes;
};

/* When scratch is in use.  What the layers leave behind, the head does not read, but for the residual
 * stream: the logits and the layers' rows share one piece. */
enum turn { ALWAYS, IN_LAYERS, IN_HEAD, TURNS };

struct layer {
	struct kern_linear *qkv; /* [H] to q, k, v side by side */
	struct kern_linear *o;
	/* Of a layer with experts: of the one that all rows have, or none. */
	struct kern_linear *gateup; /* [H] to gate, up */
	struct kern_linear *down;
	struct kern_experts *experts; /* NULL: the layer is dense */
	bool beside;                  /* the experts are on the CPU beside the device, */
	struct kern_experts *hot;     /* but for these, which are on it; NULL: none */
	void *beside_norm;            /* then: F32 [H] there, as ffn_norm; or NULL */
	bool comes;                   /* the experts on the CPU come to the device for many rows, */
	int place;                    /* then: their number in model.prefetch */
	struct kern_linear *router;
	struct piece choice_bias;         /* F32 [E], or none */
	struct piece attn_norm, ffn_norm; /* F32 [H], before a layer; or none */
	struct piece attn_post, ffn_post; /* F32 [H], of what it gives; or none */
	struct piece q_norm, k_norm;      /* F32 [D], or [Hq D] and [Hkv D], or none */
	struct piece sinks;               /* F32 [Hq], or none */
	const struct piece *rope;         /* NULL: no rotation */
	int window;
};

struct model {
	const struct kern_ops *ops; /* borrowed, as are dev, stream and config */
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct kern_info info;
	const struct model_config *c;
	const struct shard *shard;
	struct tp_group *group; /* borrowed; NULL: the model is whole */
	struct layer *layers;   /* [n_layers] */
	struct kern_embed *embed;
	struct kern_linear *own_head; /* NULL: tied */
	const struct kern_linear *head;
	struct piece norm;             /* F32 [H] */
	struct piece rope, rope_local; /* F32 [max_context, rope_dim/2, 2] */
	int max_rows, max_logits;
	bool unread;                /* as in model_args */
	bool unpacked;              /* codes, as was said in the log */
	struct loading *loading;    /* borrowed until it is loaded; or NULL */
	atomic_ullong *moves;       /* progress counter, borrowed; or NULL */
	void (*at_work)(void *arg); /* as in model_args */
	void *at_work_arg;
	struct trace *trace;        /* borrowed; or NULL */
	struct expert_count *count; /* model_experts.c; NULL: dense */
	struct expert_load *load;   /* borrowed; or NULL */
	void (*observe)(void *arg, enum model_point at, const void *rows, int n_rows);
	void *observe_arg;

	/* Scratch; T = max_rows, L = max_logits; "op": an operand, "val": values of the table's type. */
	struct piece x;                /* F32 [T, H] residual */
	struct piece add;              /* F32 [T, H] what the next norm adds to it */
	struct piece turns;            /* what the layers use and the head uses, in turn: */
	struct piece normed;           /* op  [T, H] */
	struct piece qkv;              /* val [T, (Hq + 2 Hkv) D] */
	struct piece q;                /* val [T, Hq D] */
	struct piece squares;          /* F32 [T, 2], of q and k; where one norm is over all heads */
	struct piece att;              /* op  [T, Hq D] */
	struct piece ffn;              /* op  [T, I] */
	struct piece chosen;           /* int32 [T, C] experts of each row */
	struct piece weights;          /* F32 [T, C] of them */
	struct piece shared;           /* F32 [T, H] what the expert that all rows have gives; then, of
					  layers with hot experts, what the CPU's give */
	struct piece shared_by;        /* F32 [T] its weights */
	struct piece last_x, last_add; /* F32 [L, H] */
	struct piece last;             /* op  [L, H] */
	struct piece part;             /* F32 [L, this rank's part of V]; none where that is all */
	struct piece logits;           /* F32 [L, V]; rank 0 only */
	struct beside *beside;         /* borrowed; NULL: all is on the device */
	const struct hot *hot;         /* borrowed; NULL: of layers beside it all is there */
	struct prefetch *prefetch;     /* experts that come to the device; NULL: none do */
	int send_above;                /* then: for steps of more rows */
	uint64_t sent;                 /* steps that they came for, but trial steps */
	int64_t weights_bytes;
	int64_t beside_bytes; /* of experts there */
};

/* A layer as stored, and which part of it a rank has. */
struct part {
	const struct weights_linear *whole;
	enum shard_of of;
};

/* A layer for a table, in up to three parts, and what has to be freed when it is loaded. */
struct source {
	const struct kern_info *info; /* of the table that it is for */
	struct kern_linear_src src;
	struct weights_linear linears[3];
	void *copies[3];
	int64_t bytes; /* in the files */
};

static inline void progress_bump(struct model *m)
{
	if (m->moves)
		atomic_fetch_add_explicit(m->moves, 1, memory_order_relaxed);
}

static inline void observe(struct model *m, enum model_point at, const struct piece *rows, int n_rows)
{
	if (m->observe)
		m->observe(m->observe_arg, at, rows->p, n_rows);
}

static inline enum kern_dtype dtype_of(enum config_dtype t)
{
	return t == CONFIG_F32 ? KERN_F32 : t == CONFIG_F16 ? KERN_F16 : KERN_BF16;
}

/* model.c: a vector to the device, as F32; none where it has no data. */
int model_vec_load(struct model *m, const struct weights_vec *v, struct piece *out, const char *what,
		   char *why, size_t why_n);
/* The parts of a layer that this rank has, for the table that info is of. */
void model_source_init(struct model *m, const struct kern_info *info, struct source *s,
		       const struct part *parts, int n);
void model_source_fini(struct source *s);
/* Of a layer with codes that the table has refused.  false: it has none. */
bool model_source_unpack(struct model *m, struct source *s);
/* What all rows have: the whole layer where it is dense, else the shared expert. */
int model_dense_ffn(struct model *m, const struct layer *l, void *out, int n_rows);

/* model_experts.c.  The counters of a mixture, and the choice by chance of `skew`; beside and the layers say
 * where the experts will be. */
int model_experts_init(struct model *m, enum experts_skew skew, char *why, size_t why_n);
void model_experts_fini(struct model *m);
int model_experts_load(struct model *m, struct layer *l, const struct weights_layer *w, char *why,
		       size_t why_n);
void model_layer_experts_free(struct model *m, struct layer *l);
/* Of all its experts that this rank has. */
int64_t model_layer_expert_bytes(const struct model *m, const struct layer *l);
/* When all layers are loaded, and when a step begins. */
int model_experts_ready(struct model *m, char *why, size_t why_n);
int model_experts_begin(struct model *m, int n_rows);
int model_experts_ffn(struct model *m, const struct layer *l, int layer, int n_rows);

#endif
