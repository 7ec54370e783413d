#include "quant/calibrate.h"

#include "base/alloc.h"
#include "base/err.h"
#include "quant/awq.h"
#include "quant/expert_rows.h"
#include "quant/inputs.h"
#include "quant/int4.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = MODEL_AT_DOWN + 1 };

#define F16_MAX 65504

/* Inputs of the layer's parts. */
struct seen {
	struct runner *r;
	struct inputs at[POINTS];
	struct expert_rows experts;
	int rc;
	struct why *why;
};

static void see(void *arg, enum model_point at, int first, int n, const void *rows)
{
	struct seen *s = arg;
	if (s->rc)
		return;
	expert_rows_see(&s->experts, at, first, n, rows);
	if ((int)at >= POINTS)
		return;
	if (s->at[at].k)
		s->rc = inputs_add(&s->at[at], s->r, rows, n, s->why);
}

static void seen_fini(struct seen *s)
{
	for (int i = 0; i < POINTS; i++)
		inputs_fini(&s->at[i]);
	expert_rows_fini(&s->experts);
}

static int seen_init(struct seen *s, const struct layer_plan *p, struct runner *r, int n_tokens,
		     struct why *why)
{
	*s = (struct seen){.r = r, .why = why};
	expert_rows_init(&s->experts, p, n_tokens);
	for (int i = 0; i < p->n_blocks; i++) {
		const struct layer_block *b = &p->blocks[i];
		int rc = b->expert >= 0 ? 0 : inputs_init(&s->at[b->at], b->k, n_tokens, why);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- folding scales ---- */

struct norm_fit {
	const float *values; /* [k] norm weights with the offset */
	float offset;
	enum config_dtype dtype;
	int k;
};

/* Change the scales to those that the stored type of the norm gives exactly: dividing the norm then loses
 * nothing. */
static void fit_norm(void *arg, float *scales)
{
	const struct norm_fit *f = arg;
	for (int i = 0; i < f->k; i++) {
		const float stored = layer_round(f->dtype, f->values[i] / scales[i] - f->offset);
		const float scale = f->values[i] / (stored + f->offset);
		scales[i] = isfinite(scale) && scale > 0.5f * scales[i] && scale < 2 * scales[i] ? scale : 1;
	}
}

/* Rows that will be quantized can take any scale. */
static void fit_any(void *arg, float *scales)
{
	(void)arg, (void)scales;
}

/* For rows that stay floats, use powers of two, which change only exponents. */
static void fit_powers(void *arg, float *scales)
{
	const int *k = arg;
	for (int i = 0; i < *k; i++)
		scales[i] = exp2f(rintf(log2f(scales[i])));
}

/* ---- a block ---- */

struct block {
	struct layer_plan *p;
	struct layer_block *b;
	struct runner *r;
	const struct inputs *in;
	struct awq_block awq;
	struct layer_linear *parts[AWQ_PARTS]; /* parts, in the order of awq.parts */
	float *w[AWQ_PARTS];                   /* owned */
	struct norm_fit norm;
	float *norm_values; /* owned */
};

static void set_fit(struct block *x)
{
	struct layer_block *b = x->b;
	if (b->fold == FOLD_NORM) {
		x->norm_values = xmalloc((size_t)b->k * sizeof *x->norm_values);
		weights_to_f32(b->norm, x->norm_values);
		for (int i = 0; i < b->k; i++)
			x->norm_values[i] += x->p->c->norm_offset;
		x->norm = (struct norm_fit){x->norm_values, x->p->c->norm_offset, b->norm->dtype, b->k};
		x->awq.fit = fit_norm;
		x->awq.fit_arg = &x->norm;
	} else if (b->fold == FOLD_ROWS) {
		const struct layer_linear *rows = &x->p->linears[b->rows_of];
		x->awq.fit = rows->kept ? fit_powers : fit_any;
		x->awq.fit_arg = &b->k;
		x->awq.tie = b->tie;
		x->awq.n_ties = rows->from->n;
	}
}

static void block_init(struct block *x)
{
	const int groups = x->b->k / x->p->group;
	x->awq = (struct awq_block){.k = x->b->k, .group = x->p->group, .in = x->in};
	x->awq.scales = xmalloc((size_t)x->b->k * sizeof *x->awq.scales);
	for (int i = 0; i < x->b->n; i++) {
		struct layer_linear *l = &x->p->linears[x->b->first + i];
		const size_t n = (size_t)l->from->n;
		if (l->kept)
			continue;
		const int at = x->awq.n_parts++;
		x->parts[at] = l;
		x->w[at] = xmalloc(n * (size_t)x->b->k * sizeof *x->w[at]);
		layer_floats(l->from, x->w[at]);
		x->awq.parts[at] = (struct awq_part){.w = x->w[at],
						     .n = l->from->n,
						     .ratios = xmalloc(n * (size_t)groups * sizeof(float))};
	}
	set_fit(x);
}

static void block_fini(struct block *x)
{
	for (int i = 0; i < x->awq.n_parts; i++) {
		free(x->w[i]);
		free(x->awq.parts[i].ratios);
	}
	free(x->awq.scales);
	free(x->norm_values);
}

/* Round without a search: scales of 1, no clipping. */
static void round_to_nearest(struct awq_block *a)
{
	for (int i = 0; i < a->k; i++)
		a->scales[i] = 1;
	for (int p = 0; p < a->n_parts; p++)
		for (int i = 0; i < a->parts[p].n * (a->k / a->group); i++)
			a->parts[p].ratios[i] = 1;
}

/* Store the scales, and give them to the rows into which they are folded. */
static void fold(struct block *x)
{
	struct layer_block *b = x->b;
	bool any = false;
	for (int i = 0; i < b->k; i++)
		any |= x->awq.scales[i] != 1;
	if (!any)
		return;
	b->in_by = xmemdup(x->awq.scales, (size_t)b->k * sizeof *b->in_by);
	if (b->fold != FOLD_ROWS)
		return;
	struct layer_linear *rows = &x->p->linears[b->rows_of];
	rows->out_by = xmalloc((size_t)rows->from->n * sizeof *rows->out_by);
	for (int i = 0; i < b->k; i++)
		rows->out_by[b->tie ? b->tie[i] : i] = b->in_by[i];
}

/* Pack W diag(s), with its rows divided by the scales of the block after it. */
static void pack(struct block *x, int i)
{
	struct layer_linear *l = x->parts[i];
	const size_t n = (size_t)l->from->n, k = (size_t)x->b->k, groups = k / (size_t)x->p->group;
	float *scaled = xmalloc(n * k * sizeof *scaled);
	awq_scaled(&x->awq, &x->awq.parts[i], scaled);
	for (size_t row = 0; l->out_by && row < n; row++)
		for (size_t j = 0; j < k; j++)
			scaled[row * k + j] /= l->out_by[row];
	l->qweight = xmalloc(k * (n / 8) * sizeof *l->qweight);
	l->qzeros = xmalloc(groups * (n / 8) * sizeof *l->qzeros);
	l->scales = xmalloc(groups * n * sizeof *l->scales);
	int4_pack(scaled, (int)n, (int)k, x->p->group, x->awq.parts[i].ratios, l->qweight, l->qzeros,
		  l->scales);
	free(scaled);
}

static struct layer_error error_of(double signal, double noise, double cross, double count)
{
	const double becomes = signal + 2 * cross + noise;
	return (struct layer_error){
		.signal = signal / count,
		.noise = noise / count,
		.cosine = signal > 0 && becomes > 0 ? (signal + cross) / sqrt(signal * becomes) : 1};
}

/* Measure the error of weights and, if rows were seen, of outputs. */
static int measure(struct block *x, int i, struct why *why)
{
	struct layer_linear *l = x->parts[i];
	const struct awq_part *part = &x->awq.parts[i];
	const size_t n = (size_t)part->n * (size_t)x->b->k;
	double signal = 0, noise = 0, cross = 0, sum = 0;
	float *d = xmalloc(n * sizeof *d), *y = NULL;
	int rc = 0;
	awq_effective(&x->awq, part, d);
	for (size_t j = 0; j < n; j++) {
		const double w = part->w[j], off = (double)d[j] - w;
		signal += w * w;
		noise += off * off;
		cross += w * off;
		sum += fabs(off);
		d[j] = (float)off;
	}
	l->weights = error_of(signal, noise, cross, (double)n);
	l->weights.mean_abs = sum / (double)n;
	if (x->in->n_sample) {
		const size_t outs = (size_t)x->in->n_sample * (size_t)part->n;
		y = xmalloc(outs * sizeof *y);
		rc = runner_product(x->r, d, part->n, x->b->k, x->in->sample, x->in->n_sample, y, why);
		sum = 0;
		for (size_t j = 0; !rc && j < outs; j++)
			sum += fabsf(y[j]);
		l->outputs = error_of(part->error.signal, part->error.noise, part->error.cross, part->n);
		l->outputs.mean_abs = sum / (double)outs;
		l->nearest = (struct layer_error){.signal = part->error.signal / part->n,
						  .noise = part->nearest / part->n};
	}
	free(d);
	free(y);
	return rc;
}

static int quantize_block(struct layer_plan *p, struct layer_block *b, struct runner *r,
			  const struct inputs *in, struct why *why)
{
	struct block x = {.p = p, .b = b, .r = r, .in = in};
	int rc = 0;
	b->n_rows = in->n;
	block_init(&x);
	if (b->expert >= 0 && in->n < CALIBRATE_EXPERT_ROWS) {
		round_to_nearest(&x.awq);
		for (int i = 0; i < x.awq.n_parts; i++)
			x.parts[i]->reason = in->n ? REASON_FEW_ROWS : REASON_NO_ROWS;
	} else if (x.awq.n_parts) {
		rc = awq_search(&x.awq, r, why);
	}
	if (!rc && x.awq.n_parts)
		fold(&x);
	for (int i = 0; !rc && i < x.awq.n_parts; i++) {
		pack(&x, i);
		rc = measure(&x, i, why);
	}
	block_fini(&x);
	return rc;
}

/* ---- experts ---- */

static int add_all(struct inputs *in, struct runner *r, const float *rows, int n, struct why *why)
{
	int rc = 0;
	for (int at = 0; !rc && at < n; at += RUNNER_BATCH)
		rc = inputs_add(in, r, rows + (size_t)at * (size_t)in->k,
				n - at < RUNNER_BATCH ? n - at : RUNNER_BATCH, why);
	inputs_end(in);
	return rc;
}

static int quantize_expert(struct layer_plan *p, struct layer_block *down, struct layer_block *gateup,
			   struct runner *r, const struct seen *s, int n_tokens, struct why *why)
{
	struct inputs in = {0}, inner = {0};
	float *rows = xmalloc((size_t)n_tokens * (size_t)s->experts.hidden * sizeof *rows);
	const int n = expert_rows_of(&s->experts, down->expert, rows);
	float *mid = xmalloc(((size_t)n * (size_t)down->k + 1) * sizeof *mid);
	int rc = 0;
	if (n)
		rc = expert_rows_inner(p->c, &p->w->experts[down->expert], r, rows, n, mid, why);
	if (!rc && !(rc = inputs_init(&inner, down->k, n, why)) && !(rc = add_all(&inner, r, mid, n, why)))
		rc = quantize_block(p, down, r, &inner, why);
	inputs_fini(&inner);
	if (!rc && !(rc = inputs_init(&in, gateup->k, n, why)) && !(rc = add_all(&in, r, rows, n, why)))
		rc = quantize_block(p, gateup, r, &in, why);
	inputs_fini(&in);
	free(mid);
	free(rows);
	return rc;
}

/* Refuse values that other types refuse too: NaN, infinities, and values beyond F16. */
static int check_values(const struct layer_linear *l, struct why *why)
{
	const size_t n = (size_t)l->from->n * (size_t)l->from->k;
	float *w = xmalloc(n * sizeof *w);
	size_t j = 0;
	layer_floats(l->from, w);
	while (j < n && fabsf(w[j]) <= F16_MAX)
		j++;
	const float bad = j < n ? w[j] : 0;
	free(w);
	return j == n ? 0
		      : err_why(why, -ERANGE,
				"tensor %s.weight has the value %.9g (number %zu), which cannot be rounded",
				l->name, (double)bad, j);
}

int calibrate_layer(struct layer_plan *p, struct runner *r, const float *in, float *out, int n_tokens,
		    struct why *why)
{
	for (int i = 0; i < p->n_linears; i++) {
		int rc = p->linears[i].kept ? 0 : check_values(&p->linears[i], why);
		if (rc)
			return rc;
	}
	struct seen s;
	const struct runner_observer observer = {see, &s};
	int rc = seen_init(&s, p, r, n_tokens, why);
	if (!rc)
		rc = runner_layer(r, p->index, in, out, n_tokens, &observer, why);
	if (!rc)
		rc = s.rc;
	for (int i = 0; !rc && i < POINTS; i++)
		if (s.at[i].k)
			inputs_end(&s.at[i]);
	for (int i = 0; !rc && i < p->n_blocks; i++) {
		struct layer_block *b = &p->blocks[i];
		if (b->expert < 0) {
			rc = quantize_block(p, b, r, &s.at[b->at], why);
		} else {
			rc = quantize_expert(p, b, b + 1, r, &s, n_tokens, why);
			i++; /* two blocks: down, then gate and up */
		}
	}
	seen_fini(&s);
	return rc;
}
