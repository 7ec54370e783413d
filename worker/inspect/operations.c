#include "worker/inspect/inspect.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/config.h"
#include "formats/weights.h"
#include "kernels/kern.h"
#include "worker/inspect/stored.h"
#include "worker/model.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRITTEN_MAX = 64, BLOCK = 16, CONTEXT = 16 };

/* Data that an operation wrote at an address. */
struct written {
	uintptr_t at;
	int op;
	json_t *data; /* owned: an element of "out" */
};

/* A stored vector, and its memory on the device. */
struct loaded {
	const void *at;
	struct weights_vec v;
	float plus; /* added to each value */
};

struct kern_linear {
	json_t *weights; /* owned: one element per part */
	int n, k;
	enum kern_act act;
	float limit, up_plus;
};

struct kern_embed {
	struct kern_linear rows; /* the table, as an embedding or as the head */
	int hidden;
};

struct kern_experts {
	json_t *weights; /* owned: gate, up, down */
	int hidden, n, n_chosen;
	enum kern_act act;
	float limit, up_plus;
};

struct kern_stream {
	struct kern_dev *d;
};

/* The device that lists operations.  Modes and layouts of data are those of the CPU's table. */
struct kern_dev {
	const struct kern_ops *real;
	struct kern_dev *real_dev;
	struct kern_info info;
	const struct weights *w; /* borrowed */
	struct kern_stream stream;
	uintptr_t next; /* address of the next block of memory */
	/* address of the cache: attention reads the last data written there, by its own layer */
	uintptr_t kv;
	struct written written[WRITTEN_MAX];
	int n_written;
	struct loaded *loaded; /* owned */
	int n_loaded;
	const void *rope_local; /* address of the rotations of layers with LAYER_ROPE_LOCAL */
	json_t *list;           /* owned: the operations so far */
	json_t *op;             /* the last operation */
	int layer;              /* -1: none */
	const char *rows;
};

/* ---- operations and their data ---- */

static void op_begin(struct kern_stream *s, const char *name)
{
	struct kern_dev *d = s->d;
	d->op = json_pack("{s:s, s:[], s:[], s:[]}", "op", name, "in", "out", "weights");
	if (d->layer >= 0)
		json_object_set_new(d->op, "layer", json_integer(d->layer));
	json_array_append_new(d->list, d->op);
}

static void op_about(struct kern_stream *s, const char *text)
{
	json_object_set_new(s->d->op, "about", json_string(text));
}

static void op_weights(struct kern_stream *s, json_t *weights)
{
	json_array_extend(json_object_get(s->d->op, "weights"), weights);
}

/* Set an attribute of the last operation. */
static void op_set(struct kern_stream *s, const char *name, json_t *value)
{
	json_t *all = json_object_get(s->d->op, "attributes");
	if (!all)
		json_object_set_new(s->d->op, "attributes", all = json_object());
	json_object_set_new(all, name, value);
}

static void op_set_int(struct kern_stream *s, const char *name, int64_t v)
{
	op_set(s, name, json_integer(v));
}

static void op_set_num(struct kern_stream *s, const char *name, double v)
{
	op_set(s, name, json_real(v));
}

/* Add a vector, named by its use. */
static void op_vector(struct kern_stream *s, const void *p, const char *name, int n)
{
	if (!p)
		return;
	json_t *v = json_pack("{s:s, s:[i], s:s, s:I}", "name", name, "shape", n, "type", "F32", "bytes",
			      (json_int_t)n * 4);
	for (int i = 0; i < s->d->n_loaded; i++) {
		const struct loaded *l = &s->d->loaded[i];
		if (l->at != p)
			continue;
		stored_add(s->d->w, v, "tensor", l->v.data);
		if (l->plus != 0)
			json_object_set_new(v, "plus", json_real((double)l->plus));
	}
	json_array_append_new(json_object_get(s->d->op, "weights"), v);
}

static struct written *find(struct kern_dev *d, uintptr_t at)
{
	for (int i = 0; i < d->n_written; i++)
		if (d->written[i].at == at)
			return &d->written[i];
	return NULL;
}

static void op_reads(struct kern_stream *s, uintptr_t at)
{
	const struct written *w = at ? find(s->d, at) : NULL;
	if (!w)
		return;
	json_t *data = json_copy(w->data);
	json_object_set_new(data, "from", json_integer(w->op));
	json_array_append_new(json_object_get(s->d->op, "in"), data);
}

static void op_writes(struct kern_stream *s, uintptr_t at, const char *name, int width, const char *type,
		      size_t bytes)
{
	struct kern_dev *d = s->d;
	struct written *w = find(d, at);
	if (!at)
		return;
	if (!w) {
		assert(d->n_written < WRITTEN_MAX);
		w = &d->written[d->n_written++];
	}
	json_decref(w->data);
	json_t *data = json_pack("{s:s, s:[s,i], s:s, s:I}", "name", name, "shape", d->rows, width, "type",
				 type, "bytes", (json_int_t)bytes);
	json_array_append(json_object_get(d->op, "out"), data);
	*w = (struct written){at, (int)json_array_size(d->list) - 1, data};
}

static void writes_f32(struct kern_stream *s, const void *p, const char *name, int width)
{
	op_writes(s, (uintptr_t)p, name, width, "f32", (size_t)width * 4);
}

static void writes_operand(struct kern_stream *s, const void *p, const char *name, int width)
{
	struct kern_dev *d = s->d;
	char type[32];
	snprintf(type, sizeof type, "%.*s", (int)strcspn(d->info.mode, " ,"), d->info.mode);
	op_writes(s, (uintptr_t)p, name, width, type, d->real->operand_bytes(d->real_dev, 1, width));
}

static void writes_values(struct kern_stream *s, const void *p, const char *name, int width)
{
	const enum kern_dtype t = s->d->info.operand;
	op_writes(s, (uintptr_t)p, name, width,
		  t == KERN_F32    ? "f32"
		  : t == KERN_BF16 ? "bf16"
				   : "f16",
		  (size_t)width * (t == KERN_F32 ? 4 : 2));
}

/* ---- device, memory ---- */

static void info(struct kern_dev *d, struct kern_info *out)
{
	*out = d->info;
}

/* Addresses are far apart, so that ranges within a block belong to that block. */
static void *mem_new(struct kern_dev *d, size_t bytes)
{
	void *p = (void *)d->next;
	d->next += (bytes + 8191) & ~(uintptr_t)4095;
	return p;
}

static void mem_free(struct kern_dev *d, void *p, size_t bytes)
{
	(void)d, (void)p, (void)bytes;
}

static int sync_nothing(struct kern_stream *s)
{
	(void)s;
	return 0;
}

static int upload(struct kern_stream *s, void *dst, const void *src, size_t bytes)
{
	(void)s, (void)dst, (void)src, (void)bytes;
	return 0;
}

/* A step would download the experts of its rows: return the first experts. */
static int download(struct kern_stream *s, void *dst, const void *src, size_t bytes)
{
	(void)s, (void)src;
	memset(dst, 0, bytes);
	return 0;
}

static size_t operand_bytes(struct kern_dev *d, int n_rows, int width)
{
	return d->real->operand_bytes(d->real_dev, n_rows, width);
}

/* ---- weights ---- */

static int linear_load(struct kern_dev *d, const struct kern_linear_src *src, struct kern_linear **out,
		       struct why *why)
{
	struct kern_linear *w = xcalloc(1, sizeof *w);
	(void)why;
	*w = (struct kern_linear){json_array(), 0, src->k, src->act, src->limit, src->up_plus};
	for (int i = 0; i < src->n_parts; i++) {
		json_array_append_new(w->weights, stored_part(d->w, src, i));
		w->n += src->parts[i].n;
	}
	*out = w;
	return 0;
}

static void linear_free(struct kern_linear *w)
{
	json_decref(w->weights);
	free(w);
}

/* No memory is used on a device. */
static int64_t linear_bytes(const struct kern_linear *w)
{
	(void)w;
	return 0;
}

static int experts_load(struct kern_dev *d, const struct kern_experts_src *src, struct kern_experts **out,
			struct why *why)
{
	struct kern_experts *x = xcalloc(1, sizeof *x);
	int64_t bytes[3] = {0};
	enum kern_dtype first[3] = {KERN_F32};
	bool mixed[3] = {false};
	*x = (struct kern_experts){.weights = json_array(),
				   .hidden = src->hidden,
				   .n = src->n_experts,
				   .n_chosen = src->n_chosen};
	for (int e = 0; e < src->n_experts; e++) {
		struct kern_linear_src gateup, down;
		/* calls expert_at() of model_experts.c, which cannot fail */
		src->expert(src->arg, e, &gateup, &down, why);
		for (int i = 0; i < 3; i++) {
			const struct kern_linear_src *from = i < 2 ? &gateup : &down;
			const struct kern_linear_part *p = &from->parts[i % 2];
			if (e == 0) {
				json_array_append_new(x->weights, stored_part(d->w, from, i % 2));
				first[i] = p->dtype;
				x->act = gateup.act;
				x->limit = gateup.limit;
				x->up_plus = gateup.up_plus;
			}
			if (e == 1)
				stored_stack(json_array_get(x->weights, (size_t)i),
					     stored_part(d->w, from, i % 2));
			mixed[i] = mixed[i] || p->dtype != first[i];
			bytes[i] += stored_bytes(from, p);
		}
	}
	for (size_t i = 0; i < 3; i++) {
		json_t *weight = json_array_get(x->weights, i);
		stored_all(weight);
		json_object_set_new(weight, "bytes", json_integer((json_int_t)bytes[i]));
		json_object_set_new(weight, "count", json_integer(src->n_experts));
		if (mixed[i])
			json_object_set_new(weight, "type", json_string("mixed"));
	}
	*out = x;
	return 0;
}

static void experts_free(struct kern_experts *x)
{
	if (!x)
		return;
	json_decref(x->weights);
	free(x);
}

static int64_t experts_bytes(const struct kern_experts *x)
{
	(void)x;
	return 0;
}

static int embed_load(struct kern_dev *d, const struct kern_embed_src *src, struct kern_embed **out,
		      struct why *why)
{
	struct kern_embed *e = xcalloc(1, sizeof *e);
	const int64_t values = (int64_t)src->n_vocab * src->hidden;
	const struct kern_linear_src table = {
		.name = "embed_tokens",
		.k = src->hidden,
		.n_parts = 1,
		.parts = {{.dtype = src->dtype,
			   .n = src->n_vocab,
			   .w = src->table,
			   .bytes = src->dtype == KERN_CODES ? (int64_t)d->w->embed_codes.bytes
							     : values * (src->dtype == KERN_F32 ? 4 : 2)}}};
	(void)why;
	e->rows = (struct kern_linear){.weights = json_array(), .n = src->n_vocab, .k = src->hidden};
	json_array_append_new(e->rows.weights, stored_part(d->w, &table, 0));
	e->hidden = src->hidden;
	*out = e;
	return 0;
}

static void embed_free(struct kern_embed *e)
{
	json_decref(e->rows.weights);
	free(e);
}

static int64_t embed_bytes(const struct kern_embed *e)
{
	(void)e;
	return 0;
}

static const struct kern_linear *embed_linear(const struct kern_embed *e)
{
	return &e->rows;
}

/* ---- the step ---- */

static int embed(struct kern_stream *s, const struct kern_embed *e, const int32_t *tokens, int first, void *x)
{
	(void)tokens, (void)first;
	op_begin(s, "embed");
	op_weights(s, e->rows.weights);
	writes_f32(s, x, "residual", e->hidden);
	return 0;
}

static int rmsnorm(struct kern_stream *s, void *out, void *x, const void *add, const void *weight, int n_rows,
		   int hidden, float eps)
{
	(void)n_rows;
	op_begin(s, "rmsnorm");
	op_set_num(s, "eps", (double)eps);
	if (add)
		op_about(s, weight ? "adds to the residual stream, then norms it"
				   : "adds to the residual stream");
	op_vector(s, weight, "norm", hidden);
	op_reads(s, (uintptr_t)x);
	op_reads(s, (uintptr_t)add);
	if (add)
		writes_f32(s, x, "residual", hidden);
	writes_operand(s, out, "normed", hidden);
	return 0;
}

static int rmsnorm_f32(struct kern_stream *s, void *x, const void *weight, int n_rows, int hidden, float eps)
{
	(void)n_rows;
	op_begin(s, "rmsnorm_f32");
	op_set_num(s, "eps", (double)eps);
	op_vector(s, weight, "norm", hidden);
	op_reads(s, (uintptr_t)x);
	writes_f32(s, x, "normed", hidden);
	return 0;
}

static int layernorm(struct kern_stream *s, const struct kern_layernorm_args *a, int n_rows)
{
	(void)n_rows;
	op_begin(s, "layernorm");
	op_set_num(s, "eps", (double)a->eps);
	if (a->add)
		op_about(s, "adds to the residual stream, then norms it");
	op_vector(s, a->weight, "norm", a->hidden);
	op_vector(s, a->bias, "norm bias", a->hidden);
	op_reads(s, (uintptr_t)a->x);
	op_reads(s, (uintptr_t)a->add);
	if (a->add || !a->out)
		writes_f32(s, a->x, a->out ? "residual" : "normed", a->hidden);
	if (a->out)
		writes_operand(s, a->out, "normed", a->hidden);
	return 0;
}

static int positions(struct kern_stream *s, void *x, const void *table, int hidden)
{
	op_begin(s, "positions");
	op_about(s, "adds the embedding of each row's position");
	op_vector(s, table, "positions", CONTEXT * hidden);
	op_reads(s, (uintptr_t)table);
	op_reads(s, (uintptr_t)x);
	writes_f32(s, x, "residual", hidden);
	return 0;
}

static const char *act_name(enum kern_act a)
{
	static const char *const names[] = {"silu",         "gelu by tanh", "gelu by sigmoid", "gelu", "relu",
					    "relu squared", "xIELU"};
	return names[a];
}

static int activate(struct kern_stream *s, void *out, void *x, int n_rows, int width,
		    const struct kern_act_args *a)
{
	(void)n_rows;
	op_begin(s, "activate");
	op_about(s, act_name(a->act));
	op_set(s, "activation", json_string(act_name(a->act)));
	if (a->act == KERN_XIELU)
		op_set(s, "arguments",
		       json_pack("[f,f,f,f]", (double)a->alpha_p, (double)a->alpha_n, (double)a->beta,
				 (double)a->eps));
	op_reads(s, (uintptr_t)x);
	writes_operand(s, out, "rows", width);
	return 0;
}

static int add_rows(struct kern_stream *s, void *x, const void *y, const float *by, int n_rows, int width)
{
	(void)n_rows;
	op_begin(s, "add_rows");
	op_reads(s, (uintptr_t)x);
	op_reads(s, (uintptr_t)y);
	op_reads(s, (uintptr_t)by);
	writes_f32(s, x, "sum", width);
	return 0;
}

static int map(struct kern_stream *s, void *x, int n_rows, int width, enum kern_map what, float by)
{
	char text[64];
	(void)n_rows;
	snprintf(text, sizeof text, what == KERN_MAP_SCALE ? "times %g" : "soft cap of %g", (double)by);
	op_begin(s, "map");
	op_set_num(s, what == KERN_MAP_SCALE ? "times" : "cap", (double)by);
	op_about(s, text);
	op_reads(s, (uintptr_t)x);
	writes_f32(s, x, what == KERN_MAP_SCALE ? "residual" : "logits", width);
	return 0;
}

static int linear(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
		  bool out_f32)
{
	(void)n_rows;
	op_begin(s, "linear");
	op_weights(s, w->weights);
	op_reads(s, (uintptr_t)in);
	if (strcmp(s->d->rows, "L") == 0)
		writes_f32(s, out, "logits", w->n);
	else if (out_f32)
		writes_f32(s, out, "rows", w->n);
	else
		writes_values(s, out, "rows", w->n);
	return 0;
}

static int qkv_squares(struct kern_stream *s, void *squares, const void *qkv, int n_rows, int n_q_heads,
		       int n_kv_heads, int head_dim)
{
	(void)n_rows, (void)head_dim;
	op_begin(s, "qkv_squares");
	op_set_int(s, "heads", n_q_heads);
	op_set_int(s, "kv_heads", n_kv_heads);
	op_about(s, "of q and of k, over all heads");
	op_reads(s, (uintptr_t)qkv);
	writes_f32(s, squares, "squares", 2);
	return 0;
}

static const char *kv_name(enum kern_kv_type t)
{
	static const char *const names[] = {"", "f32", "f16", "bf16", "int16", "int8"};
	return names[t];
}

static int qkv(struct kern_stream *s, const struct kern_qkv_args *a)
{
	struct kern_dev *d = s->d;
	char about[128];
	snprintf(about, sizeof about, "%s%d heads, %d KV heads of %d",
		 a->rope_dim ? "rotates; " : "no rotation; ", a->n_q_heads, a->n_kv_heads, a->head_dim);
	op_begin(s, "qkv");
	op_set_int(s, "heads", a->n_q_heads);
	op_set_int(s, "kv_heads", a->n_kv_heads);
	op_set_int(s, "head_dim", a->head_dim);
	op_set_num(s, "eps", (double)a->eps);
	op_set(s, "norm", json_string(a->norm == KERN_NORM_LAYER ? "layer" : "rms"));
	op_set(s, "norm_after", json_boolean(a->norm_after));
	op_set_num(s, "clip", (double)a->clip);
	op_set_num(s, "q_beta", (double)a->q_beta);
	op_set_int(s, "q_floor", a->q_floor);
	op_set_int(s, "rope_dim", a->rope_dim);
	op_set(s, "rope_pairs", json_boolean(a->style == KERN_ROPE_PAIRS));
	op_set(s, "rotation", json_string(a->rope == d->rope_local ? "local" : "full"));
	op_about(s, about);
	const bool each = a->squares || a->norm_each;
	op_vector(s, a->q_norm, "q_norm", each ? a->n_q_heads * a->head_dim : a->head_dim);
	op_vector(s, a->k_norm, "k_norm", each ? a->n_kv_heads * a->head_dim : a->head_dim);
	op_reads(s, (uintptr_t)a->qkv);
	op_reads(s, (uintptr_t)a->squares);
	writes_values(s, a->q, "q", a->n_q_heads * a->head_dim);
	op_writes(s, d->kv, "K, V", 2 * a->n_kv_heads * a->head_dim, kv_name(d->info.kv),
		  (size_t)d->real->kv_block_bytes(d->real_dev, 1, a->n_kv_heads, a->head_dim, BLOCK) / BLOCK);
	return 0;
}

static int attention(struct kern_stream *s, const struct kern_attn_args *a)
{
	char about[128], window[48] = "all positions before it";
	if (a->window)
		snprintf(window, sizeof window, "a window of %d", a->window);
	snprintf(about, sizeof about, "a row sees %s", window);
	op_begin(s, "attention");
	op_set_int(s, "heads", a->n_q_heads);
	op_set_int(s, "kv_heads", a->n_kv_heads);
	op_set_int(s, "head_dim", a->head_dim);
	op_set_num(s, "scale", (double)a->scale);
	op_set_num(s, "cap", (double)a->cap);
	op_set_int(s, "window", a->window);
	op_about(s, about);
	op_vector(s, a->sinks, "sinks", a->n_q_heads);
	op_vector(s, a->alibi, "alibi", a->n_q_heads);
	op_reads(s, (uintptr_t)a->q);
	op_reads(s, s->d->kv);
	writes_operand(s, a->out, "rows", a->n_q_heads * a->head_dim);
	return 0;
}

static void op_gate(struct kern_stream *s, enum kern_act act, float limit, float up_plus)
{
	op_set(s, "activation", json_string(act_name(act)));
	op_set_num(s, "limit", (double)limit);
	op_set_num(s, "up_plus", (double)up_plus);
}

static int gateup_swiglu(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in,
			 int n_rows)
{
	(void)n_rows;
	op_begin(s, "gateup_swiglu");
	op_gate(s, w->act, w->limit, w->up_plus);
	op_weights(s, w->weights);
	op_reads(s, (uintptr_t)in);
	writes_operand(s, out, "rows", w->n / 2);
	return 0;
}

static int route(struct kern_stream *s, const struct kern_route_args *a, int n_rows)
{
	static const char *const names[] = {[KERN_SCORE_SOFTMAX] = "softmax",
					    [KERN_SCORE_SIGMOID] = "sigmoid",
					    [KERN_SCORE_SPARSEMIXER] = "sparsemixer"};
	char about[64];
	(void)n_rows;
	snprintf(about, sizeof about, "%d of %d experts", a->n_chosen, a->n_experts);
	op_begin(s, "route");
	op_set_num(s, "eps", (double)a->eps);
	op_set_int(s, "chosen", a->n_chosen);
	op_set_int(s, "groups", a->n_groups);
	op_set_int(s, "groups_chosen", a->groups_chosen);
	op_set(s, "score", json_string(names[a->score]));
	if (a->score == KERN_SCORE_SPARSEMIXER)
		op_set_num(s, "jitter", (double)a->jitter);
	op_set(s, "normalize", json_boolean(a->normalize));
	op_set_num(s, "scale", (double)a->scale);
	op_about(s, about);
	op_weights(s, a->router->weights);
	op_vector(s, a->norm, "norm", a->hidden);
	op_vector(s, a->choice_bias, "choice_bias", a->n_experts);
	op_reads(s, (uintptr_t)a->x);
	op_writes(s, (uintptr_t)a->expert, "experts", a->n_chosen, "int32", (size_t)a->n_chosen * 4);
	writes_f32(s, a->weight, "weights", a->n_chosen);
	writes_f32(s, a->shared, "shared weight", 1);
	return 0;
}

static int moe(struct kern_stream *s, const struct kern_experts *x, const struct kern_moe_args *a, int n_rows)
{
	char about[64];
	(void)n_rows;
	snprintf(about, sizeof about, "a row is computed by %d of %d", x->n_chosen, x->n);
	op_begin(s, "moe");
	op_gate(s, x->act, x->limit, x->up_plus);
	op_about(s, about);
	op_weights(s, x->weights);
	op_reads(s, (uintptr_t)a->in);
	op_reads(s, (uintptr_t)a->expert);
	op_reads(s, (uintptr_t)a->weight);
	op_reads(s, (uintptr_t)a->begin);
	op_reads(s, (uintptr_t)a->begin_by);
	writes_f32(s, a->out, "rows", x->hidden);
	return 0;
}

static int gather(struct kern_stream *s, void *out, const void *x, int hidden)
{
	op_begin(s, "gather");
	op_about(s, "the rows that logits are needed of");
	op_reads(s, (uintptr_t)x);
	writes_f32(s, out, "rows", hidden);
	return 0;
}

static const struct kern_ops listing = {
	.abi = KERN_ABI,
	.name = "listing",
	.info = info,
	.mem_new = mem_new,
	.mem_free = mem_free,
	.stream_sync = sync_nothing,
	.upload = upload,
	.download = download,
	.operand_bytes = operand_bytes,
	.linear_load = linear_load,
	.linear_free = linear_free,
	.linear_bytes = linear_bytes,
	.experts_load = experts_load,
	.experts_free = experts_free,
	.experts_bytes = experts_bytes,
	.embed_load = embed_load,
	.embed_free = embed_free,
	.embed_bytes = embed_bytes,
	.embed_linear = embed_linear,
	.embed = embed,
	.rmsnorm = rmsnorm,
	.rmsnorm_f32 = rmsnorm_f32,
	.layernorm = layernorm,
	.positions = positions,
	.activate = activate,
	.add_rows = add_rows,
	.map = map,
	.linear = linear,
	.qkv_squares = qkv_squares,
	.qkv = qkv,
	.attention = attention,
	.gateup_swiglu = gateup_swiglu,
	.route = route,
	.moe = moe,
	.gather = gather,
};

/* ---- a model ---- */

/* Begin the next layer, with the norm before its q, k and v. */
static void see(void *arg, enum model_point at, const void *rows, int n_rows)
{
	struct kern_dev *d = arg;
	(void)rows, (void)n_rows;
	if (at == MODEL_AT_QKV)
		json_object_set_new(d->op, "layer", json_integer(++d->layer));
}

static void note_loaded(void *arg, const void *at, const struct weights_vec *v, float plus)
{
	struct kern_dev *d = arg;
	if (!v) {
		d->rope_local = plus > 0 ? at : d->rope_local;
		return;
	}
	d->loaded = xrealloc(d->loaded, (size_t)d->n_loaded + 1, sizeof *d->loaded);
	d->loaded[d->n_loaded++] = (struct loaded){at, *v, plus};
}

/* The rotation of a head's pairs per position: its angles, and the factor of its length. */
static json_t *rotation(const struct model_config *c, bool local)
{
	float *table = xcalloc((size_t)CONTEXT * (size_t)c->rope_dim, sizeof *table);
	const float *one = table + c->rope_dim; /* of position 1: cos, sin of each pair */
	json_t *angles = json_array();
	if (local)
		model_config_rope_local(c, CONTEXT, table);
	else
		model_config_rope(c, CONTEXT, CONTEXT, table);
	for (int i = 0; i < c->rope_dim / 2; i++)
		json_array_append_new(angles, json_real(atan2((double)one[2 * i + 1], (double)one[2 * i])));
	json_t *o =
		json_pack("{s:o, s:f}", "angles", angles, "length", hypot((double)one[0], (double)one[1]));
	free(table);
	return o;
}

static int real_open(struct kern_dev *d, const struct model_config *c, struct why *why)
{
	struct kern_open_args a = {.compute = kern_auto_compute("cpu", NULL),
				   .model = c->dtype == CONFIG_BF16 ? KERN_BF16 : KERN_F16,
				   .n_threads = 1,
				   .max_rows = 1,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = CONTEXT,
				   .max_blocks_per_seq = 1,
				   .n_vocab = c->n_vocab};
	int rc = kern_find("cpu", &d->real, &a.index, why);
	if (rc || (rc = d->real->open(&d->real_dev, &a, why)))
		return rc;
	d->real->info(d->real_dev, &d->info);
	d->info.codes = d->info.embed_codes = true; /* all kinds of codes: weights are listed as stored */
	return 0;
}

static int list_step(struct kern_dev *d, const struct model_config *c, const struct weights *w,
		     struct why *why)
{
	struct shard shard;
	struct model *m = NULL;
	int rc = shard_init(&shard, c, w, (struct shard_rank){.n_ranks = 1}, why);
	if (rc)
		return rc;
	const struct model_args a = {.ops = &listing,
				     .dev = d,
				     .stream = &d->stream,
				     .config = c,
				     .shard = &shard,
				     .weights = w,
				     .max_rows = 1,
				     .max_logits = 1,
				     .max_context = CONTEXT,
				     .observe = see,
				     .loaded = note_loaded,
				     .observe_arg = d,
				     .unread = true};
	if ((rc = model_load(&m, &a, why)))
		return rc;
	d->kv = d->next;
	rc = model_forward(m, NULL, NULL, 1);
	d->layer = -1;
	d->rows = "L";
	if (!rc)
		rc = model_head(m, 1);
	model_free(m);
	return rc ? err_why(why, rc, "the step could not be listed") : 0;
}

static int list(const char *model, json_t **out, struct why *why)
{
	struct kern_dev d = {.next = 1 << 20, .layer = -1, .rows = "T", .list = json_array()};
	struct model_config c;
	struct weights *w = NULL;
	d.stream.d = &d;
	int rc = model_config_load(model, &c, why);
	if (rc)
		goto fail;
	if (!(rc = weights_open(model, &c, &w, why))) {
		d.w = w;
		rc = real_open(&d, &c, why);
	}
	if (!rc)
		rc = list_step(&d, &c, w, why);
	if (!rc)
		*out = json_pack("{s:s, s:s, s:i, s:{s:o, s:o}, s:O}", "architecture", c.arch_name, "mode",
				 d.info.mode, "layers", c.n_layers, "rotations", "full", rotation(&c, false),
				 "local", rotation(&c, true), "operations", d.list);
	for (int i = 0; i < d.n_written; i++)
		json_decref(d.written[i].data);
	free(d.loaded);
	if (d.real_dev)
		d.real->close(d.real_dev);
	weights_close(w);
	model_config_fini(&c);
fail:
	json_decref(d.list);
	return rc;
}

int operations_print(const char *model)
{
	struct why why = {""};
	json_t *out = NULL;
	const int rc = list(model, &out, &why);
	if (rc)
		out = json_pack("{s:s}", "error", why.text);
	const int bad = json_dumpf(out, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(out);
	return rc || bad || fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
