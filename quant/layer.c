#include "quant/layer.h"

#include "base/alloc.h"
#include "base/codes.h"
#include "kernels/half.h"
#include "quant/round/keep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 8 /* outputs per word of AWQ */ };

double layer_error_db(const struct layer_error *e)
{
	enum { MOST = 200 };
	if (!(e->noise > 0) || !(e->signal > 0))
		return e->noise > 0 ? -MOST : MOST;
	const double db = 10 * log10(e->signal / e->noise);
	return db > MOST ? MOST : db < -MOST ? -MOST : db;
}

float layer_round(enum config_dtype t, float x)
{
	return t == CONFIG_F32   ? x
	       : t == CONFIG_F16 ? half_from_f16(half_near_f16(x))
				 : half_from_bf16(half_to_bf16(x));
}

const char *layer_reason_text(enum layer_reason r)
{
	static const char *const texts[REASONS] = {
		[REASON_NONE] = "",
		[REASON_ASKED] = "kept as asked",
		[REASON_GROUP] = "kept: its inputs are not a multiple of the group size",
		[REASON_WORDS] = "kept: its outputs are not a multiple of 8",
		[REASON_WORST] = "kept: among the worst",
		[REASON_SHAPE] = "kept: its shape is not that of whole blocks",
		[REASON_FEW_ROWS] = "rounded to nearest: the calibration hardly reaches it",
		[REASON_NO_ROWS] = "rounded to nearest: the calibration does not reach it",
	};
	return texts[r];
}

/* ---- weights as floats ---- */

/* Extract the value of column c from word w (order: formats/weights.h). */
static int nibble(uint32_t w, int c)
{
	return (int)(w >> 4 * codes_awq_nibble(c) & 15);
}

static uint32_t word_at(const void *p, size_t i)
{
	uint32_t w;
	memcpy(&w, (const unsigned char *)p + 4 * i, 4);
	return w;
}

static void awq_floats(const struct weights_linear *l, float *out)
{
	const size_t words = (size_t)l->n / WORD, k = (size_t)l->k;
	for (size_t i = 0; i < k; i++) {
		const size_t g = i / (size_t)l->group;
		for (size_t j = 0; j < (size_t)l->n; j++) {
			const uint32_t q = word_at(l->w, i * words + j / WORD),
				       z = word_at(l->qzeros, g * words + j / WORD);
			const float scale = half_load(l->scales, KERN_F16, g * (size_t)l->n + j);
			out[j * k + i] =
				scale * (float)(nibble(q, (int)(j % WORD)) - nibble(z, (int)(j % WORD)));
		}
	}
}

void layer_floats(const struct weights_linear *l, float *out)
{
	if (l->kind == WEIGHTS_AWQ) {
		awq_floats(l, out);
	} else if (l->kind == WEIGHTS_CODES) {
		codes_floats(&l->codes, 0, l->n, out);
	} else {
		const struct weights_vec all = {l->w, l->dtype, l->n * l->k};
		weights_to_f32(&all, out);
	}
}

/* ---- the plan ---- */

struct builder {
	struct layer_plan *p;
	char *const *keep;
	size_t n_keep;
};

static int add_linear(const struct builder *b, const struct weights_linear *from)
{
	struct layer_plan *p = b->p;
	struct layer_linear *l = &p->linears[p->n_linears];
	*l = (struct layer_linear){.from = from, .part = "", .block = p->n_blocks};
	snprintf(l->name, sizeof l->name, "%s", from->name);
	if (keep_matches(b->keep, b->n_keep, l->name))
		l->reason = REASON_ASKED;
	else if (from->k % p->group)
		l->reason = REASON_GROUP;
	else if (from->n % WORD)
		l->reason = REASON_WORDS;
	l->kept = l->reason != REASON_NONE;
	return p->n_linears++;
}

/* Name the parts if all parts of the block are in one tensor (Phi-3). */
static void name_parts(struct layer_linear *l, int n, enum model_point at)
{
	static const char *const names[2][3] = {{"q", "k", "v"}, {"gate", "up"}};
	if (n < 2 || strcmp(l[0].name, l[1].name) != 0)
		return;
	for (int i = 0; i < n; i++)
		l[i].part = names[at != MODEL_AT_QKV][i];
}

/* Add a block with the parts that exist.  Return it, or NULL if none does. */
static struct layer_block *add_block(const struct builder *b, enum model_point at,
				     const struct weights_linear *x, const struct weights_linear *y,
				     const struct weights_linear *z)
{
	const struct weights_linear *const all[] = {x, y, z};
	struct layer_plan *p = b->p;
	struct layer_block *block = &p->blocks[p->n_blocks];
	*block = (struct layer_block){.first = p->n_linears, .at = at, .expert = -1, .fold = FOLD_NONE};
	for (int i = 0; i < 3; i++) {
		if (!all[i] || !all[i]->w)
			continue;
		block->k = all[i]->k;
		add_linear(b, all[i]);
	}
	block->n = p->n_linears - block->first;
	if (!block->n)
		return NULL;
	name_parts(&p->linears[block->first], block->n, at);
	p->n_blocks++;
	return block;
}

/* Fold a block's input scales into the norm before it.  A norm with a bias cannot take them, since they would
 * have to scale the bias, too. */
static void fold_norm(struct layer_block *b, const struct weights_vec *norm, const struct weights_vec *bias)
{
	if (b && norm->data && !bias->data) {
		b->fold = FOLD_NORM;
		b->norm = norm;
	}
}

/* For o: input (head, i) is computed from row (the head's group, i) of v. */
static int *tie_heads(const struct config_layer *l)
{
	const int d = l->dim, per = l->heads / l->kv_heads;
	int *tie = xcalloc((size_t)l->heads * (size_t)d, sizeof *tie);
	for (int i = 0; i < l->heads * d; i++)
		tie[i] = i / d / per * d + i % d;
	return tie;
}

/* Add the blocks of a feed-forward layer: down, then gate and up.  The rows of up take down's scales. */
static void add_ffn(const struct builder *b, const struct weights_linear *gate,
		    const struct weights_linear *up, const struct weights_linear *down,
		    const struct weights_vec *norm, const struct weights_vec *bias, int expert)
{
	struct layer_plan *p = b->p;
	struct layer_block *last = add_block(b, MODEL_AT_DOWN, down, NULL, NULL);
	const int at = p->n_blocks - 1;
	if (last)
		last->expert = expert;
	struct layer_block *first = add_block(b, MODEL_AT_GATEUP, gate, up, NULL);
	if (first)
		first->expert = expert;
	if (norm)
		fold_norm(first, norm, bias);
	if (last && first && first->n == 2) {
		p->blocks[at].fold = FOLD_ROWS;
		p->blocks[at].rows_of = first->first + 1;
	}
}

void layer_plan_init(struct layer_plan *p, const struct model_config *c, const struct weights_layer *w,
		     int index, int group, char *const *keep, size_t n_keep)
{
	const size_t most = 7 + 3 * (size_t)w->n_experts;
	const struct builder b = {p, keep, n_keep};
	*p = (struct layer_plan){.c = c, .w = w, .index = index, .group = group};
	p->linears = xcalloc(most, sizeof *p->linears);
	p->blocks = xcalloc(most, sizeof *p->blocks);
	struct layer_block *o = add_block(&b, MODEL_AT_O, &w->o, NULL, NULL);
	struct layer_block *qkv = add_block(&b, MODEL_AT_QKV, &w->q, &w->k, &w->v);
	if (c->block != BLOCK_PARALLEL) /* there the FFN reads the same norm */
		fold_norm(qkv, &w->attn_norm, &w->attn_norm_bias);
	if (o && qkv && !(c->qkv_clip > 0)) {
		o->fold = FOLD_ROWS;
		o->rows_of = qkv->first + 2;
		o->tie = tie_heads(&c->layers[index]);
	}
	if (w->up.w)
		add_ffn(&b, &w->gate, &w->up, &w->down, w->n_experts ? NULL : &w->ffn_norm, &w->ffn_norm_bias,
			-1);
	for (int e = 0; e < w->n_experts; e++)
		add_ffn(&b, &w->experts[e].gate, &w->experts[e].up, &w->experts[e].down, NULL, NULL, e);
	for (int i = 0; i < p->n_linears; i++)
		if (p->linears[i].kept)
			layer_plan_keep(p, p->linears[i].name, p->linears[i].reason);
}

void layer_plan_keep(struct layer_plan *p, const char *name, enum layer_reason reason)
{
	for (int i = 0; i < p->n_linears; i++) {
		struct layer_linear *l = &p->linears[i];
		if (strcmp(l->name, name) != 0 || (l->kept && l->reason))
			continue;
		l->kept = true;
		l->reason = reason;
	}
}

void layer_plan_fini(struct layer_plan *p)
{
	for (int i = 0; i < p->n_linears; i++) {
		free(p->linears[i].qweight);
		free(p->linears[i].qzeros);
		free(p->linears[i].scales);
		free(p->linears[i].out_by);
	}
	for (int i = 0; i < p->n_blocks; i++) {
		free(p->blocks[i].tie);
		free(p->blocks[i].in_by);
	}
	free(p->linears);
	free(p->blocks);
	*p = (struct layer_plan){0};
}
