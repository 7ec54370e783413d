#include "worker/model_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/place/placement.h"
#include "kernels/half.h"
#include "worker/tp_group.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* ---- memory ---- */

int model_piece_new(struct model *m, struct piece *p, size_t bytes, const char *what, struct why *why)
{
	p->p = m->ops->mem_new(m->dev, bytes);
	if (!p->p)
		return err_why(why, -ENOMEM, "out of memory: %zu bytes for %s", bytes, what);
	p->bytes = bytes;
	return 0;
}

static void piece_free(struct model *m, struct piece *p)
{
	if (p->bytes)
		m->ops->mem_free(m->dev, p->p, p->bytes);
	*p = (struct piece){0};
}

static int scratch_new(struct model *m, struct why *why)
{
	const struct model_config *c = m->c;
	const size_t t = (size_t)m->max_rows, l = (size_t)m->max_logits;
	const size_t val = m->info.operand == KERN_F32 ? 4 : 2;
	const size_t h = (size_t)c->hidden;
	size_t hq = 0, hqkv = 0; /* most values of a row in any layer */
	const bool alone = m->shard->n_ranks == 1;
	const bool parallel = c->block == BLOCK_PARALLEL || c->block == BLOCK_PARALLEL_TWO;
	const int ffn = model_config_ffn_width(c);
	size_t (*const op)(struct kern_dev *, int, int) = m->ops->operand_bytes;
	for (int i = 0; i < c->n_layers; i++) {
		const struct config_layer *p = &c->layers[i];
		const size_t q = (size_t)p->heads * (size_t)p->dim,
			     qkv = q + 2 * (size_t)p->kv_heads * (size_t)p->dim;
		hq = q > hq ? q : hq;
		hqkv = qkv > hqkv ? qkv : hqkv;
	}
	const struct {
		struct piece *p;
		enum phase phase;
		size_t bytes;
		const char *what;
	} all[] = {
		{&m->x, ALWAYS, t * h * 4, "the residual stream"},
		{&m->add, ALWAYS, t * h * 4, "the residual's addend"},
		{&m->normed, IN_LAYERS, op(m->dev, m->max_rows, c->hidden), "normalized rows"},
		{&m->qkv, IN_LAYERS, t * hqkv * val, "q, k and v"},
		{&m->q, IN_LAYERS, t * hq * val, "queries"},
		{&m->squares, IN_LAYERS, c->qk_norm == QK_NORM_ROWS ? t * 2 * sizeof(float) : 0,
		 "squares of q and k"},
		{&m->att, IN_LAYERS, hq ? op(m->dev, m->max_rows, (int)hq) : 0, "attention's output"},
		{&m->wide, IN_LAYERS, c->ffn_plain ? t * (size_t)ffn * 4 : 0,
		 "the FFN before its activation"},
		{&m->branch, IN_LAYERS, parallel ? t * h * 4 : 0, "attention's rows"},
		{&m->routed, IN_LAYERS, c->norm == CONFIG_NORM_LAYER && c->experts.n ? t * h * 4 : 0,
		 "the router's rows"},
		{&m->ffn, IN_LAYERS, ffn ? op(m->dev, m->max_rows, ffn) : 0, "the feed-forward layer"},
		{&m->chosen, IN_LAYERS, t * (size_t)c->experts.n_chosen * 4, "the rows' experts"},
		{&m->weights, IN_LAYERS, t * (size_t)c->experts.n_chosen * 4, "the experts' weights"},
		{&m->shared, IN_LAYERS, c->experts.shared || m->hot ? t * h * 4 : 0,
		 "the shared expert, or the CPU's"},
		{&m->shared_by, IN_LAYERS, c->experts.shared_gate ? t * 4 : 0, "the shared expert's weights"},
		{&m->last_x, IN_HEAD, l * h * 4, "the rows of the head"},
		{&m->last_add, IN_HEAD, l * h * 4, "the rows of the head"},
		{&m->last, IN_HEAD, op(m->dev, m->max_logits, c->hidden), "the rows of the head"},
		{&m->part, IN_HEAD, alone ? 0 : l * (size_t)m->shard->widths[m->shard->rank] * 4,
		 "a part of logits"},
		{&m->logits, IN_HEAD, m->shard->rank ? 0 : l * (size_t)c->n_vocab * 4, "logits"},
	};
	enum { N = sizeof all / sizeof all[0] };
	size_t at[N], ends[PHASES] = {0};
	for (size_t i = 0; i < N; i++) {
		at[i] = ends[all[i].phase];
		ends[all[i].phase] += (all[i].bytes + 255) & ~(size_t)255;
	}
	const size_t most = ends[IN_LAYERS] > ends[IN_HEAD] ? ends[IN_LAYERS] : ends[IN_HEAD];
	int rc = model_piece_new(m, &m->phases, most, "the layers' rows and the logits", why);
	for (size_t i = 0; !rc && i < N; i++) {
		if (all[i].bytes && all[i].phase == ALWAYS)
			rc = model_piece_new(m, all[i].p, all[i].bytes, all[i].what, why);
		else if (all[i].bytes)
			all[i].p->p = (char *)m->phases.p + at[i];
	}
	return rc;
}

/* ---- weights ---- */

/* Load a vector to the device, as F32, with offset added. */
static int vec_load_plus(struct model *m, const struct weights_vec *v, float offset, struct piece *out,
			 const char *what, struct why *why)
{
	if (!v->data)
		return 0;
	size_t bytes = (size_t)v->n * sizeof(float);
	int rc = model_piece_new(m, out, bytes, what, why);
	if (!rc && m->loaded)
		m->loaded(m->observe_arg, out->p, v, offset);
	if (rc || m->unread)
		return rc;
	float *f = xmalloc(bytes);
	weights_to_f32(v, f);
	for (int i = 0; i < v->n; i++)
		f[i] += offset;
	rc = m->ops->upload(m->stream, out->p, f, bytes);
	if (!rc)
		rc = m->ops->stream_sync(m->stream);
	free(f);
	m->weights_bytes += (int64_t)bytes;
	return rc ? err_why(why, rc, "uploading %s failed", what) : 0;
}

int model_vec_load(struct model *m, const struct weights_vec *v, struct piece *out, const char *what,
		   struct why *why)
{
	return vec_load_plus(m, v, 0, out, what, why);
}

static int norm_load(struct model *m, const struct weights_vec *v, const struct weights_vec *bias,
		     struct norm *out, struct why *why)
{
	int rc = vec_load_plus(m, v, m->c->norm_offset, &out->weight, "a norm", why);
	return rc ? rc : model_vec_load(m, bias, &out->bias, "the bias of a norm", why);
}

static void norm_free(struct model *m, struct norm *n)
{
	piece_free(m, &n->weight);
	piece_free(m, &n->bias);
}

/* Unpack codes into a matrix [n, k] of the table's operand type, for tables that do not support these
 * codes.  The caller owns the result. */
static void *unpack(const struct kern_info *info, const struct codes *c)
{
	enum { ROWS = 64 };
	const size_t k = (size_t)c->k;
	if (info->operand == KERN_F32) {
		float *floats = xmalloc((size_t)c->n * k * sizeof *floats);
		codes_floats(c, 0, c->n, floats);
		return floats;
	}
	uint16_t *to = xmalloc((size_t)c->n * k * 2);
	float *rows = xmalloc(ROWS * k * sizeof *rows);
	for (int n0 = 0; n0 < c->n; n0 += ROWS) {
		const int n1 = n0 + ROWS < c->n ? n0 + ROWS : c->n;
		codes_floats(c, n0, n1, rows);
		for (size_t i = 0; i < (size_t)(n1 - n0) * k; i++)
			to[(size_t)n0 * k + i] =
				info->operand == KERN_BF16 ? half_to_bf16(rows[i]) : half_near_f16(rows[i]);
	}
	free(rows);
	return to;
}

static void part_unpacked(struct model *m, const struct kern_info *info, const struct weights_linear *l,
			  struct kern_linear_part *out, void **copy)
{
	const enum kern_dtype type = info->operand;
	if (!m->unpacked)
		log_info("model",
			 "weights unpacked matrix=%s type=%s reason=\"the kernels do not take this "
			 "quantization\"",
			 l->name,
			 type == KERN_F32    ? "F32"
			 : type == KERN_BF16 ? "BF16"
					     : "F16");
	m->unpacked = true;
	out->dtype = type == KERN_F32 || type == KERN_BF16 ? type : KERN_F16;
	out->w = *copy = unpack(info, &l->codes);
}

static void part_of(struct model *m, const struct weights_linear *l, struct source *s,
		    struct kern_linear_part *out, void **copy)
{
	*out = (struct kern_linear_part){
		.dtype = dtype_of(l->dtype),
		.n = l->n,
		.w = l->w,
		.bias = l->bias.data,
		.bias_dtype = dtype_of(l->bias.dtype),
		.name = l->name,
		.bytes = shard_linear_bytes(l),
	};
	if (l->kind == WEIGHTS_AWQ) {
		out->dtype = KERN_AWQ4;
		out->qzeros = l->qzeros;
		out->scales = l->scales;
		s->src.group = l->group;
	} else if (l->kind == WEIGHTS_CODES && s->info->codes) {
		out->dtype = KERN_CODES;
		out->w = &l->codes;
	} else if (l->kind == WEIGHTS_CODES) {
		part_unpacked(m, s->info, l, out, copy);
	}
}

bool model_source_unpack(struct model *m, struct source *s)
{
	bool any = false;
	for (int i = 0; i < s->src.n_parts; i++) {
		if (s->src.parts[i].dtype != KERN_CODES)
			continue;
		assert(!s->copies[i]);
		part_unpacked(m, s->info, &s->linears[i], &s->src.parts[i], &s->copies[i]);
		any = true;
	}
	return any;
}

void model_source_fini(struct source *s)
{
	for (int i = 0; i < s->src.n_parts; i++)
		free(s->copies[i]);
	*s = (struct source){0};
}

/* Wait for the disk here rather than during packing, so that the progress of a load distinguishes the two. */
static void read_ahead(const struct weights_linear *l, bool whole)
{
	if (l->kind == WEIGHTS_AWQ)
		file_read_ahead(l->w, (size_t)((int64_t)l->n * l->k / 2));
	else if (l->kind == WEIGHTS_DENSE || whole)
		file_read_ahead(l->w, (size_t)shard_linear_bytes(l));
}

static enum kern_act act_of(enum config_act a)
{
	static const enum kern_act acts[] = {[ACT_SILU] = KERN_SILU,
					     [ACT_GELU_TANH] = KERN_GELU_TANH,
					     [ACT_GELU_SIGMOID] = KERN_GELU_SIGMOID,
					     [ACT_GELU] = KERN_GELU,
					     [ACT_RELU] = KERN_RELU,
					     [ACT_RELU2] = KERN_RELU2,
					     [ACT_XIELU] = KERN_XIELU};
	return acts[a];
}

void model_source_init(struct model *m, const struct kern_info *info, struct source *s,
		       const struct part *parts, int n)
{
	*s = (struct source){.info = info,
			     .src = {.name = parts[0].whole->name,
				     .n_parts = n,
				     .head = parts[0].of == SHARD_HEAD,
				     .act = act_of(m->c->act),
				     .limit = m->c->act_limit,
				     .up_plus = m->c->up_plus}};
	for (int i = 0; i < n; i++) {
		struct weights_linear *l = &s->linears[i];
		const struct weights_linear *whole = parts[i].whole;
		shard_linear(m->shard, whole, shard_cut(m->shard, parts[i].plan, parts[i].of, whole), l,
			     &s->copies[i]);
		assert(i == 0 || l->k == s->src.k);
		if (!m->unread)
			read_ahead(l, l->n == whole->n && l->k == whole->k);
		s->bytes += shard_linear_bytes(l);
		s->src.k = l->k;
		part_of(m, l, s, &s->src.parts[i], &s->copies[i]);
	}
}

static int linear_load(struct model *m, const struct part *parts, int n, struct kern_linear **out,
		       struct why *why)
{
	struct source s;
	loading_now(m->loading, BUS_DOING_READ);
	model_source_init(m, &m->info, &s, parts, n);
	loading_now(m->loading, BUS_DOING_PACK);
	int rc = m->ops->linear_load(m->dev, &s.src, out, why);
	if (rc == -ENOTSUP && model_source_unpack(m, &s))
		rc = m->ops->linear_load(m->dev, &s.src, out, why);
	loading_add(m->loading, s.bytes);
	model_source_fini(&s);
	if (rc)
		return err_prefix(why, rc, "%s", parts[0].whole->name);
	m->weights_bytes += m->ops->linear_bytes(*out);
	progress_bump(m);
	return 0;
}

/* ---- layers ---- */

/* Return the weights of n values from `first` on, of a norm that spans the heads of all ranks. */
static struct weights_vec vec_cut(const struct weights_vec *v, int first, int n)
{
	const size_t each = v->dtype == CONFIG_F32 ? 4 : 2;
	return (struct weights_vec){(const unsigned char *)v->data + (size_t)first * each, v->dtype, n};
}

/* Load the per-head vectors: norms of q and k, and sinks. */
static int heads_load(struct model *m, struct layer *l, const struct weights_layer *w, struct why *why)
{
	const struct config_layer *p = l->plan;
	struct weights_vec sinks = w->sinks;
	struct weights_vec all[] = {w->q_norm, w->q_norm_bias, w->k_norm, w->k_norm_bias};
	const bool each = m->c->qk_norm == QK_NORM_ROWS || m->c->qk_norm == QK_NORM_EACH;
	for (int i = 0; each && i < 4; i++)
		if (all[i].data && i < 2)
			all[i] = vec_cut(&all[i], p->head0 * p->dim, p->heads * p->dim);
		else if (all[i].data)
			all[i] = vec_cut(&all[i], p->kv_head0 * p->dim, p->kv_heads * p->dim);
	if (sinks.data)
		sinks = vec_cut(&sinks, p->head0, p->heads);
	int rc = norm_load(m, &all[0], &all[1], &l->q_norm, why);
	if (!rc)
		rc = norm_load(m, &all[2], &all[3], &l->k_norm, why);
	if (!rc)
		rc = model_vec_load(m, &sinks, &l->sinks, "the sinks of attention", why);
	return rc ? rc : model_alibi_load(m, l, why);
}

static int layer_load(struct model *m, struct layer *l, const struct weights_layer *w, struct why *why)
{
	const struct part qkv[] = {
		{&w->q, SHARD_Q, l->plan}, {&w->k, SHARD_KV, l->plan}, {&w->v, SHARD_KV, l->plan}};
	const struct part o = {&w->o, SHARD_O, l->plan}, down = {&w->down, SHARD_DOWN, l->plan};
	const struct part gateup[] = {{&w->gate, SHARD_FFN, l->plan}, {&w->up, SHARD_FFN, l->plan}};
	const bool plain = m->c->ffn_plain;
	float args[4] = {0};
	int rc = 0;
	if (w->act_args.data)
		weights_to_f32(&w->act_args, args);
	l->act = (struct kern_act_args){act_of(m->c->act), args[0], args[1], args[2], args[3]};
	if ((rc = norm_load(m, &w->attn_norm, &w->attn_norm_bias, &l->attn_norm, why)) ||
	    (rc = norm_load(m, &w->ffn_norm, &w->ffn_norm_bias, &l->ffn_norm, why)) ||
	    (rc = norm_load(m, &w->attn_post, &w->attn_post_bias, &l->attn_post, why)) ||
	    (rc = norm_load(m, &w->ffn_post, &w->ffn_post_bias, &l->ffn_post, why)) ||
	    (rc = heads_load(m, l, w, why)) || (rc = linear_load(m, qkv, 3, &l->qkv, why)) ||
	    (rc = linear_load(m, &o, 1, &l->o, why)))
		return rc;
	if (w->up.w && ((rc = linear_load(m, gateup + plain, 2 - plain, &l->gateup, why)) ||
			(rc = linear_load(m, &down, 1, &l->down, why))))
		return rc;
	return w->experts ? model_experts_load(m, l, w, why) : 0;
}

static int embed_load(struct model *m, const struct weights *w, bool head, struct why *why)
{
	const struct model_config *c = m->c;
	const struct weights_vec floats = shard_embed(m->shard, c, w);
	struct kern_embed_src src = {floats.data, dtype_of(floats.dtype), floats.n / c->hidden, c->hidden,
				     head};
	int64_t bytes = (int64_t)floats.n * (floats.dtype == CONFIG_F32 ? 4 : 2);
	struct weights_linear l;
	void *copy = NULL;
	loading_now(m->loading, BUS_DOING_READ);
	if (w->embed_codes.w) {
		shard_linear(m->shard, &w->embed_codes,
			     shard_cut(m->shard, NULL, SHARD_HEAD, &w->embed_codes), &l, &copy);
		src.table = &l.codes;
		src.dtype = KERN_CODES;
		bytes = shard_linear_bytes(&l);
		if (m->shard->n_ranks == 1 && !m->unread)
			file_read_ahead(l.w, (size_t)bytes);
	}
	loading_now(m->loading, BUS_DOING_PACK);
	int rc = m->ops->embed_load(m->dev, &src, &m->embed, why);
	if (rc == -ENOTSUP && w->embed_codes.w) {
		struct kern_linear_part part = {.dtype = KERN_CODES};
		part_unpacked(m, &m->info, &l, &part, &copy);
		src.table = part.w;
		src.dtype = part.dtype;
		rc = m->ops->embed_load(m->dev, &src, &m->embed, why);
	}
	loading_add(m->loading, bytes);
	free(copy);
	if (rc)
		return err_prefix(why, rc, "embed_tokens");
	m->weights_bytes += m->ops->embed_bytes(m->embed);
	return 0;
}

/* Load embedding, final norm and head.  A quantized embedding table serves as the head if the kernels
 * accept its codes as an embedding; else the head is loaded separately from it. */
static int ends_load(struct model *m, const struct weights *w, struct why *why)
{
	const bool tied = !w->head.w || (w->head.w == w->embed_codes.w && m->info.embed_codes);
	const struct part head = {&w->head, SHARD_HEAD, NULL};
	int rc = norm_load(m, &w->norm, &w->norm_bias, &m->norm, why);
	if (!rc)
		rc = norm_load(m, &w->embed_norm, &w->embed_norm_bias, &m->embed_norm, why);
	if (!rc)
		rc = model_positions_load(m, &w->positions, why);
	if (!rc)
		rc = embed_load(m, w, tied, why);
	if (!rc && !tied)
		rc = linear_load(m, &head, 1, &m->own_head, why);
	if (!rc)
		m->head = tied ? m->ops->embed_linear(m->embed) : m->own_head;
	return rc;
}

/* Check for combinations that no operation computes. */
static int check_parts(const struct model_config *c, struct why *why)
{
	if (c->ffn_plain ? c->experts.n > 0 : c->act > ACT_GELU_SIGMOID)
		return err_why(why, -ENOTSUP, "%s: %s is not supported", c->arch_name,
			       c->ffn_plain ? "a mixture of experts without gates"
					    : "a gate with another activation than silu and gelu by tanh");
	if (c->block == BLOCK_POST && c->norm != CONFIG_NORM_LAYER)
		return err_why(why, -ENOTSUP,
			       "%s: RMS norms of the sum with the residual stream are not supported",
			       c->arch_name);
	return 0;
}

int model_load(struct model **out, const struct model_args *a, struct why *why)
{
	struct model *m = xcalloc(1, sizeof *m);
	const int n_layers = a->config->n_layers;
	int rc;
	*m = (struct model){.ops = a->ops,
			    .dev = a->dev,
			    .stream = a->stream,
			    .c = a->config,
			    .shard = a->shard,
			    .max_rows = a->max_rows,
			    .max_logits = a->max_logits,
			    .max_context = a->max_context,
			    .loading = a->loading,
			    .moves = a->moves,
			    .at_work = a->at_work,
			    .at_work_arg = a->at_work_arg,
			    .load = a->load,
			    .trace = a->trace,
			    .observe = a->observe,
			    .loaded = a->loaded,
			    .observe_arg = a->observe_arg,
			    .unread = a->unread,
			    .host_experts = a->host_experts,
			    .hot = a->hot,
			    .stream_above_rows = a->stream_above_rows};
	m->ops->info(m->dev, &m->info);
	m->layers = xcalloc((size_t)n_layers, sizeof *m->layers);
	if ((rc = check_parts(m->c, why)) || (rc = scratch_new(m, why)) ||
	    (rc = model_experts_init(m, a->skew, why)) ||
	    (rc = model_rope_load(m, &m->rope, false, a->max_context, why)) ||
	    (a->config->rope_local_theta > 0 &&
	     (rc = model_rope_load(m, &m->rope_local, true, a->max_context, why))) ||
	    (!a->layers_only && (rc = ends_load(m, a->weights, why))))
		goto fail;
	for (int i = 0; i < n_layers; i++) {
		const uint8_t rope = a->config->layers[i].rope;
		m->layers[i].plan = &a->config->layers[i];
		m->layers[i].kind = a->kinds ? a->kinds->kind[i] : 0;
		m->layers[i].place = a->kinds ? a->kinds->place[i] : i;
		m->layers[i].host_experts = a->host_experts && a->placement->cpu[i];
		m->layers[i].rope = rope == LAYER_ROPE_NONE    ? NULL
				    : rope == LAYER_ROPE_LOCAL ? &m->rope_local
							       : &m->rope;
		if ((rc = layer_load(m, &m->layers[i], &a->weights->layers[i], why)))
			goto fail;
		if (a->progress)
			a->progress(a->progress_arg, (unsigned)(1000 * (int64_t)(i + 1) / n_layers));
	}
	if ((rc = model_experts_ready(m, why)))
		goto fail;
	loading_complete(m->loading);
	m->loading = NULL;
	*out = m;
	return 0;
fail:
	model_free(m);
	return rc;
}

void model_free(struct model *m)
{
	if (!m)
		return;
	struct piece *pieces[] = {&m->positions, &m->rope, &m->rope_local, &m->x, &m->add, &m->phases};
	for (int i = 0; i < m->c->n_layers; i++) {
		struct layer *l = &m->layers[i];
		struct kern_linear *linears[] = {l->qkv, l->o, l->gateup, l->down, l->router};
		for (int j = 0; j < 5; j++)
			if (linears[j])
				m->ops->linear_free(linears[j]);
		model_layer_experts_free(m, l);
		struct norm *norms[] = {&l->attn_norm, &l->ffn_norm, &l->attn_post,
					&l->ffn_post,  &l->q_norm,   &l->k_norm};
		for (size_t j = 0; j < sizeof norms / sizeof norms[0]; j++)
			norm_free(m, norms[j]);
		piece_free(m, &l->choice_bias);
		piece_free(m, &l->sinks);
		piece_free(m, &l->alibi);
	}
	norm_free(m, &m->norm);
	norm_free(m, &m->embed_norm);
	if (m->own_head)
		m->ops->linear_free(m->own_head);
	if (m->embed)
		m->ops->embed_free(m->embed);
	for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
		piece_free(m, pieces[i]);
	model_experts_fini(m);
	free(m->layers);
	free(m);
}

int64_t model_weights_bytes(const struct model *m)
{
	return m->weights_bytes;
}

int64_t model_host_experts_bytes(const struct model *m)
{
	return m->host_experts_bytes + (m->prefetch ? prefetch_host_bytes(m->prefetch) : 0);
}

uint64_t model_sent(const struct model *m)
{
	return m->n_streamed;
}

int64_t model_layers_bytes(const struct model *m)
{
	int64_t bytes = 0;
	for (int i = 0; i < m->c->n_layers; i++) {
		const struct layer *l = &m->layers[i];
		const struct kern_linear *linears[] = {l->qkv, l->o, l->gateup, l->down, l->router};
		for (int j = 0; j < 5; j++)
			bytes += linears[j] ? m->ops->linear_bytes(linears[j]) : 0;
		if (l->experts)
			bytes += model_layer_expert_bytes(m, l) * m->c->experts.n_chosen / m->c->experts.n;
	}
	return bytes;
}

int64_t model_head_bytes(const struct model *m)
{
	return m->ops->linear_bytes(m->head);
}

void model_set_group(struct model *m, struct tp_group *g)
{
	m->group = g;
}

/* ---- the step ---- */

/* Compute the sums of squares for a norm over all heads of all ranks. */
static int squares(struct model *m, const struct layer *l, int n_rows)
{
	if (!m->squares.p)
		return 0;
	int rc = m->ops->qkv_squares(m->stream, m->squares.p, m->qkv.p, n_rows, l->plan->heads,
				     l->plan->kv_heads, l->plan->dim);
	return rc ? rc : tp_group_sum_rows(m->group, m->stream, m->squares.p, n_rows, 2);
}

static int attention(struct model *m, const struct layer *l, struct kern_kv *kv)
{
	const struct model_config *c = m->c;
	const struct config_layer *p = l->plan;
	const int n_ranks = m->shard->n_ranks;
	const struct kern_qkv_args qkv = {
		.q = m->q.p,
		.qkv = m->qkv.p,
		.q_norm = l->q_norm.weight.p,
		.k_norm = l->k_norm.weight.p,
		.q_norm_bias = l->q_norm.bias.p,
		.k_norm_bias = l->k_norm.bias.p,
		.norm = c->norm == CONFIG_NORM_LAYER ? KERN_NORM_LAYER : KERN_NORM_RMS,
		.norm_each = c->qk_norm == QK_NORM_EACH,
		.norm_after = c->qk_norm_after,
		.clip = c->qkv_clip,
		.q_beta = c->q_scale_beta,
		.q_floor = c->q_scale_floor,
		.squares = m->squares.p,
		.q_width = n_ranks * p->heads * p->dim,
		.k_width = n_ranks * p->kv_heads * p->dim,
		.eps = c->rms_eps,
		.rope = l->rope ? l->rope->p : NULL,
		.rope_dim = l->rope ? c->rope_dim : 0,
		.style = c->rope_pairs ? KERN_ROPE_PAIRS : KERN_ROPE_HALVES,
		.n_q_heads = p->heads,
		.n_kv_heads = p->kv_heads,
		.head_dim = p->dim,
		.kv = kv,
		.kind = l->kind,
		.layer = l->place,
	};
	const struct kern_attn_args att = {
		.out = m->att.p,
		.q = m->q.p,
		.kv = kv,
		.kind = l->kind,
		.layer = l->place,
		.n_q_heads = p->heads,
		.n_kv_heads = p->kv_heads,
		.head_dim = p->dim,
		.scale = c->attn_scale > 0 ? c->attn_scale : 1 / sqrtf((float)p->dim),
		.cap = c->attn_cap,
		.window = p->window,
		.sinks = l->sinks.p,
		.alibi = l->alibi.p,
	};
	int rc = m->ops->qkv(m->stream, &qkv);
	trace_mark(m->trace, TRACE_ROWS);
	if (!rc)
		rc = m->ops->attention(m->stream, &att);
	trace_mark(m->trace, TRACE_ATTENTION);
	return rc;
}

/* Norm rows F32 [n_rows, H] in place, after adding `add` (layer norms only) or NULL. */
static int norm_in_place(struct model *m, void *rows, const void *add, const struct norm *w, int n_rows)
{
	const struct model_config *c = m->c;
	const struct kern_layernorm_args a = {NULL, rows, add, w->weight.p, w->bias.p, c->hidden, c->rms_eps};
	int rc = c->norm == CONFIG_NORM_LAYER
			 ? m->ops->layernorm(m->stream, &a, n_rows)
			 : m->ops->rmsnorm_f32(m->stream, rows, w->weight.p, n_rows, c->hidden, c->rms_eps);
	trace_mark(m->trace, TRACE_ROWS);
	return rc;
}

/* Sum the partial results of the ranks' linear layers in `add`. */
static int sum_ranks(struct model *m, int n_rows)
{
	trace_mark(m->trace, TRACE_LINEAR);
	int rc = tp_group_sum_rows(m->group, m->stream, m->add.p, n_rows, m->c->hidden);
	if (m->group)
		trace_mark(m->trace, TRACE_GROUP);
	progress_bump(m);
	return rc;
}

/* Complete an addend of the residual stream; post: norm applied to it, or none. */
static int sum(struct model *m, const struct norm *post, int n_rows)
{
	int rc = sum_ranks(m, n_rows);
	if (!rc && post->weight.p)
		rc = norm_in_place(m, m->add.p, NULL, post, n_rows);
	if (!rc && m->c->residual_scale > 0) {
		rc = m->ops->map(m->stream, m->add.p, n_rows, m->c->hidden, KERN_MAP_SCALE,
				 m->c->residual_scale);
		trace_mark(m->trace, TRACE_ROWS);
	}
	return rc;
}

/* Add `add` (or NULL) to the rows x, and norm them to the operand `out`. */
static int norm_to(struct model *m, void *out, void *x, const void *add, const struct norm *w, int n_rows)
{
	const struct model_config *c = m->c;
	const struct kern_layernorm_args a = {out, x, add, w->weight.p, w->bias.p, c->hidden, c->rms_eps};
	return w->weight.p && c->norm == CONFIG_NORM_LAYER
		       ? m->ops->layernorm(m->stream, &a, n_rows)
		       : m->ops->rmsnorm(m->stream, out, x, add, w->weight.p, n_rows, c->hidden, c->rms_eps);
}

static int norm(struct model *m, const void *add, const struct norm *w, int n_rows)
{
	int rc = norm_to(m, m->normed.p, m->x.p, add, w, n_rows);
	trace_mark(m->trace, TRACE_ROWS);
	return rc;
}

static int qkv(struct model *m, const struct layer *l, int n_rows)
{
	observe(m, MODEL_AT_QKV, &m->normed, n_rows);
	int rc = m->ops->linear(m->stream, l->qkv, m->qkv.p, m->normed.p, n_rows, false);
	trace_mark(m->trace, TRACE_LINEAR);
	return rc;
}

int model_dense_ffn(struct model *m, const struct layer *l, void *out, int n_rows)
{
	observe(m, MODEL_AT_GATEUP, &m->normed, n_rows);
	int rc = m->c->ffn_plain ? m->ops->linear(m->stream, l->gateup, m->wide.p, m->normed.p, n_rows, true)
				 : m->ops->gateup_swiglu(m->stream, l->gateup, m->ffn.p, m->normed.p, n_rows);
	if (!rc && m->c->ffn_plain)
		rc = m->ops->activate(m->stream, m->ffn.p, m->wide.p, n_rows, l->plan->inter, &l->act);
	observe(m, MODEL_AT_DOWN, &m->ffn, n_rows);
	if (!rc)
		rc = m->ops->linear(m->stream, l->down, out, m->ffn.p, n_rows, true);
	trace_mark(m->trace, TRACE_LINEAR);
	return rc;
}

/* Compute attention from the normed rows; out: F32 [n_rows, H], this rank's part. */
static int attend(struct model *m, const struct layer *l, int layer, struct kern_kv *kv, void *out,
		  int n_rows)
{
	int rc = qkv(m, l, n_rows);
	if (rc)
		return rc;
	if (layer == 0 && m->at_work)
		m->at_work(m->at_work_arg);
	if ((rc = squares(m, l, n_rows)) || (rc = attention(m, l, kv)))
		return rc;
	observe(m, MODEL_AT_O, &m->att, n_rows);
	return m->ops->linear(m->stream, l->o, out, m->att.p, n_rows, true);
}

/* Compute the FFN from the normed rows, into `add`. */
static int feed_forward(struct model *m, const struct layer *l, int layer, int n_rows)
{
	return l->experts ? model_experts_ffn(m, l, layer, n_rows) : model_dense_ffn(m, l, m->add.p, n_rows);
}

/* The functions for the forms of enum config_block.  add: the previous layer's output, not yet added to the
 * residual stream, or NULL; this layer's stays in m->add. */

static int serial(struct model *m, const struct layer *l, int layer, struct kern_kv *kv, const void *add,
		  int n_rows)
{
	int rc;
	if ((rc = norm(m, add, &l->attn_norm, n_rows)) || (rc = attend(m, l, layer, kv, m->add.p, n_rows)) ||
	    (rc = sum(m, &l->attn_post, n_rows)) || (rc = norm(m, m->add.p, &l->ffn_norm, n_rows)) ||
	    (rc = feed_forward(m, l, layer, n_rows)))
		return rc;
	return sum(m, &l->ffn_post, n_rows);
}

static int parallel(struct model *m, const struct layer *l, int layer, struct kern_kv *kv, const void *add,
		    int n_rows)
{
	const struct norm none = {0};
	int rc;
	if ((rc = norm(m, add, &l->attn_norm, n_rows)) ||
	    (rc = attend(m, l, layer, kv, m->branch.p, n_rows)) ||
	    (m->c->block == BLOCK_PARALLEL_TWO && (rc = norm(m, NULL, &l->ffn_norm, n_rows))) ||
	    (rc = feed_forward(m, l, layer, n_rows)) ||
	    (rc = m->ops->add_rows(m->stream, m->add.p, m->branch.p, NULL, n_rows, m->c->hidden)))
		return rc;
	return sum(m, &none, n_rows);
}

/* The layer's output is in the residual stream; m->add has nothing to add. */
static int post(struct model *m, const struct layer *l, int layer, struct kern_kv *kv, int n_rows)
{
	const struct norm none = {0};
	int rc;
	if ((rc = norm(m, NULL, &none, n_rows)) || (rc = attend(m, l, layer, kv, m->add.p, n_rows)) ||
	    (rc = sum_ranks(m, n_rows)) || (rc = norm_in_place(m, m->x.p, m->add.p, &l->attn_post, n_rows)) ||
	    (rc = norm(m, NULL, &none, n_rows)) || (rc = feed_forward(m, l, layer, n_rows)) ||
	    (rc = sum_ranks(m, n_rows)))
		return rc;
	return norm_in_place(m, m->x.p, m->add.p, &l->ffn_post, n_rows);
}

/* Run all layers.  The last layer's output stays in `add`, for the next norm. */
static int layers(struct model *m, struct kern_kv *kv, int n_rows)
{
	int rc = model_experts_begin(m, n_rows);
	for (int i = 0; !rc && i < m->c->n_layers; i++) {
		const struct layer *l = &m->layers[i];
		const void *add = i ? m->add.p : NULL;
		switch (m->c->block) {
		case BLOCK_SERIAL:
			rc = serial(m, l, i, kv, add, n_rows);
			break;
		case BLOCK_PARALLEL:
		case BLOCK_PARALLEL_TWO:
			rc = parallel(m, l, i, kv, add, n_rows);
			break;
		case BLOCK_POST:
			rc = post(m, l, i, kv, n_rows);
			break;
		}
	}
	return rc;
}

int model_forward(struct model *m, struct kern_kv *kv, const int32_t *tokens, int n_rows)
{
	const struct kern_ops *k = m->ops;
	const struct model_config *c = m->c;
	struct kern_stream *s = m->stream;
	assert(n_rows > 0 && n_rows <= m->max_rows);
	trace_mark(m->trace, TRACE_PREPARE);
	int rc = k->embed(s, m->embed, tokens, m->shard->vocab[m->shard->rank], m->x.p);
	trace_mark(m->trace, TRACE_ROWS);
	/* Each token's row is on one rank; the others add zeros. */
	if (!rc)
		rc = tp_group_sum_rows(m->group, s, m->x.p, n_rows, c->hidden);
	if (!rc && c->embed_scale > 0)
		rc = k->map(s, m->x.p, n_rows, c->hidden, KERN_MAP_SCALE, c->embed_scale);
	if (!rc && m->positions.p)
		rc = k->positions(s, m->x.p, m->positions.p, c->hidden);
	if (!rc && m->embed_norm.weight.p)
		rc = norm_in_place(m, m->x.p, NULL, &m->embed_norm, n_rows);
	return rc ? rc : layers(m, kv, n_rows);
}

/* The norm without weights only adds the last layer's output. */
int model_layers(struct model *m, struct kern_kv *kv, int n_rows)
{
	const struct norm none = {0};
	assert(n_rows > 0 && n_rows <= m->max_rows && m->c->n_layers > 0);
	int rc = layers(m, kv, n_rows);
	return rc || m->c->block == BLOCK_POST ? rc : norm(m, m->add.p, &none, n_rows);
}

void *model_residual(struct model *m)
{
	return m->x.p;
}

/* Gather the rows before the final norm, both residual and addend, so that the norm and the head process
 * only the rows to sample from.  The norm's output is an operand in `last`. */
static int last_rows(struct model *m, int n_rows)
{
	const struct kern_ops *k = m->ops;
	const struct model_config *c = m->c;
	const bool adds = c->block != BLOCK_POST;
	int rc;
	if ((rc = k->gather(m->stream, m->last_x.p, m->x.p, c->hidden)) ||
	    (adds && (rc = k->gather(m->stream, m->last_add.p, m->add.p, c->hidden))))
		return rc;
	return norm_to(m, m->last.p, m->last_x.p, adds ? m->last_add.p : NULL, &m->norm, n_rows);
}

static int head(struct model *m, int n_logits)
{
	const struct kern_ops *k = m->ops;
	const struct model_config *c = m->c;
	struct kern_stream *s = m->stream;
	int rc = last_rows(m, n_logits);
	if (rc)
		return rc;
	void *const out = m->part.p ? m->part.p : m->logits.p;
	const int width = m->part.p ? m->shard->widths[m->shard->rank] : c->n_vocab;
	if ((rc = k->linear(s, m->head, out, m->last.p, n_logits, true)) ||
	    (c->logit_scale > 0 && (rc = k->map(s, out, n_logits, width, KERN_MAP_SCALE, c->logit_scale))) ||
	    (c->logit_cap > 0 && (rc = k->map(s, out, n_logits, width, KERN_MAP_SOFTCAP, c->logit_cap))) ||
	    !m->part.p)
		return rc;
	return tp_group_gather_cols(m->group, s, m->logits.p, m->part.p, n_logits, m->shard->widths);
}

int model_head(struct model *m, int n_logits)
{
	assert(n_logits > 0 && n_logits <= m->max_logits);
	int rc = head(m, n_logits);
	trace_mark(m->trace, TRACE_HEAD);
	return rc;
}

/* The norm in last_rows() is only used for its sum, since its output is an operand, possibly of integers. */
int model_rows(struct model *m, int n_rows, const void **out)
{
	assert(n_rows > 0 && n_rows <= m->max_logits);
	*out = m->last_x.p;
	int rc = last_rows(m, n_rows);
	if (!rc && m->norm.weight.p)
		rc = norm_in_place(m, m->last_x.p, NULL, &m->norm, n_rows);
	trace_mark(m->trace, TRACE_HEAD);
	return rc;
}

void *model_logits(struct model *m)
{
	return m->logits.p;
}
