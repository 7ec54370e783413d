/* model_impl.h - shared by model.c, which loads and runs a decoder, and model_experts.c, which implements
 * its mixtures of experts. */
#ifndef QUERN_WORKER_MODEL_IMPL_H
#define QUERN_WORKER_MODEL_IMPL_H

#include "base/err.h"
#include "worker/experts/host_experts.h"
#include "worker/experts/prefetch.h"
#include "worker/model.h"
#include "worker/trace.h"

/* A block of device memory.  0 bytes: a range within another block. */
struct piece {
	void *p;
	size_t bytes;
};

/* Phase in which scratch memory is in use.  The head reads nothing that the layers wrote but the residual
 * stream, so the logits and the layers' rows share one block. */
enum phase { ALWAYS, IN_LAYERS, IN_HEAD, PHASES };

/* A norm's weights, F32.  weight.p NULL: there is no norm. */
struct norm {
	struct piece weight, bias; /* bias: for layer norms, or none */
};

struct layer {
	const struct config_layer *plan; /* this rank's */
	int kind, place;                 /* kind and place of its K and V: struct config_kinds */
	struct kern_linear *qkv;         /* [H] to q, k, v, concatenated */
	struct kern_linear *o;
	/* FFN of a dense layer.  In a layer with experts: the shared expert, NULL if there is none. */
	struct kern_linear *gateup; /* [H] to gate, up; ffn_plain: to up */
	struct kern_linear *down;
	struct kern_experts *experts; /* NULL: the layer is dense */
	/* CPU offload of the experts. */
	bool host_experts;        /* the experts are on the CPU, except those in hot */
	struct kern_experts *hot; /* GPU-resident experts of the layer; NULL: none */
	/* F32 [H] in the CPU's memory, the norm of the router's input; NULL: not offloaded, or no RMS norm */
	void *host_experts_norm;
	bool streams_experts; /* steps of many rows stream the experts to the device */
	int prefetch_index;   /* if streams_experts: the layer's index in model.prefetch */
	struct kern_linear *router;
	struct piece choice_bias;        /* F32 [E], or none */
	struct norm attn_norm, ffn_norm; /* [H], applied to the input of attention and FFN; or none */
	struct norm attn_post, ffn_post; /* [H], applied to their output, or (BLOCK_POST) to its sum with the
					  * residual stream; or none */
	struct norm q_norm, k_norm;      /* [D], or [Hq D] and [Hkv D], or none */
	struct piece sinks, alibi;       /* F32 [Hq], or none */
	const struct piece *rope;        /* NULL: no rotation */
	struct kern_act_args act;        /* activation of an FFN without a gate */
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
	struct norm norm, embed_norm;  /* [H]; or none */
	struct piece positions;        /* F32 [max_context, H], learned; or none */
	struct piece rope, rope_local; /* F32 [max_context, rope_dim/2, 2] */
	int max_rows, max_logits, max_context;
	bool unread;                /* see model_args */
	bool unpacked;              /* unpacking of codes was logged already */
	struct loading *loading;    /* borrowed during the load; or NULL */
	atomic_ullong *moves;       /* progress counter, borrowed; or NULL */
	void (*at_work)(void *arg); /* see model_args */
	void *at_work_arg;
	struct trace *trace;        /* borrowed; or NULL */
	struct expert_count *count; /* see model_experts.c; NULL: dense */
	struct expert_load *load;   /* borrowed; or NULL */
	void (*observe)(void *arg, enum model_point at, const void *rows, int n_rows);
	void (*loaded)(void *arg, const void *at, const struct weights_vec *v, float plus);
	void *observe_arg;

	/* Scratch; T = max_rows, L = max_logits; "op": an operand, "val": values of the table's type. */
	struct piece x;      /* F32 [T, H] residual */
	struct piece add;    /* F32 [T, H] rows that the next norm adds to x */
	struct piece phases; /* memory shared by the layers' scratch and the head's: */
	struct piece normed; /* op  [T, H] */
	struct piece qkv;    /* val [T, (Hq + 2 Hkv) D] */
	struct piece q;      /* val [T, Hq D] */
	/* F32 [T, 2], sums of squares of q and k, if one norm covers all heads */
	struct piece squares;
	struct piece att;     /* op  [T, Hq D] */
	struct piece ffn;     /* op  [T, I] */
	struct piece wide;    /* F32 [T, I], ffn_plain: outputs of up before the activation */
	struct piece branch;  /* F32 [T, H], parallel blocks: attention's output */
	struct piece routed;  /* F32 [T, H], layer norms: the router's input */
	struct piece chosen;  /* int32 [T, C] experts of each row */
	struct piece weights; /* F32 [T, C] weights of the experts */
	/* F32 [T, H] output of the shared expert; then, in layers with GPU-resident experts, of the host
	 * experts */
	struct piece shared;
	struct piece shared_by;        /* F32 [T] weights of the shared expert */
	struct piece last_x, last_add; /* F32 [L, H] */
	struct piece last;             /* op  [L, H] */
	struct piece part;             /* F32 [L, this rank's shard of V]; none if the rank has all of V */
	struct piece logits;           /* F32 [L, V]; rank 0 only */
	struct host_experts *host_experts; /* borrowed; NULL: all experts are on the device */
	const struct hot *hot;             /* borrowed; NULL: no GPU-resident experts in offloaded layers */
	struct prefetch *prefetch;         /* streaming of host experts; NULL: none */
	int stream_above_rows;             /* rows above which a step streams them */
	uint64_t n_streamed;               /* steps that streamed experts, without trial steps */
	int64_t weights_bytes;
	int64_t host_experts_bytes; /* host memory that they take */
};

/* A linear layer as stored, and the shard of it that a rank has.  plan: of q, k, v and o. */
struct part {
	const struct weights_linear *whole;
	enum shard_of of;
	const struct config_layer *plan;
};

/* A linear layer for a table of operations, made of up to three stored ones, and the memory to free after
 * the load. */
struct source {
	const struct kern_info *info; /* info of the table that loads it */
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

/* model.c: load a vector to the device, as F32; *out stays empty if the vector has no data. */
int model_vec_load(struct model *m, const struct weights_vec *v, struct piece *out, const char *what,
		   struct why *why);
int model_piece_new(struct model *m, struct piece *p, size_t bytes, const char *what, struct why *why);
/* model_positions.c: load the rotations, the learned positions of the served context, and the slopes of a
 * layer's heads. */
int model_rope_load(struct model *m, struct piece *out, bool local, int max_context, struct why *why);
int model_positions_load(struct model *m, const struct weights_vec *v, struct why *why);
int model_alibi_load(struct model *m, struct layer *l, struct why *why);
/* Prepare the parts of a layer that this rank has, for the table described by info. */
void model_source_init(struct model *m, const struct kern_info *info, struct source *s,
		       const struct part *parts, int n);
void model_source_fini(struct source *s);
/* Unpack the codes of a layer that the table has rejected.  false: the layer has no codes. */
bool model_source_unpack(struct model *m, struct source *s);
/* Compute the FFN of all rows: the whole FFN of a dense layer, else the shared expert. */
int model_dense_ffn(struct model *m, const struct layer *l, void *out, int n_rows);

/* model_experts.c: create and free the counters of a mixture, and the random choices of `skew`.  beside and
 * the layers, already set, determine the device of each layer's experts. */
int model_experts_init(struct model *m, enum experts_skew skew, struct why *why);
void model_experts_fini(struct model *m);
int model_experts_load(struct model *m, struct layer *l, const struct weights_layer *w, struct why *why);
void model_layer_experts_free(struct model *m, struct layer *l);
/* Bytes of the layer's experts that this rank has. */
int64_t model_layer_expert_bytes(const struct model *m, const struct layer *l);
/* ready: call when all layers are loaded; begin: when a step begins. */
int model_experts_ready(struct model *m, struct why *why);
int model_experts_begin(struct model *m, int n_rows);
/* Return the norm before the FFN. */
static inline const struct norm *model_ffn_norm(const struct model *m, const struct layer *l)
{
	return m->c->block == BLOCK_PARALLEL ? &l->attn_norm : &l->ffn_norm;
}
int model_experts_ffn(struct model *m, const struct layer *l, int layer, int n_rows);

#endif
