#include "quant/measure.h"

#include "base/alloc.h"
#include "base/err.h"
#include "cli/terminal/term.h"
#include "quant/parallel.h"
#include "quant/runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 512 /* rows for the comparison of outputs */, POINTS = MODEL_AT_DOWN + 1 };

struct sample {
	float *rows; /* [n, k]; owned */
	int n, k;
};

struct side {
	const struct measure_model *of;
	struct runner *r;
	float *x; /* [T, hidden] */
	size_t bytes;
	float *logits; /* [RUNNER_LOGITS, V] */
	struct sample at[POINTS];
	int step;        /* every step-th row is in the sample */
	int32_t *routed; /* [SAMPLE, n_chosen] of the rows at MODEL_AT_GATEUP; owned; NULL: no mixture */
	int n_routed;    /* rows in routed */
};

struct pass {
	struct measure *m;
	struct side side[2];
	const struct windows *text;
	double done, all; /* progress, in layers and heads */
	struct why *why;
};

static void advance(struct pass *p, double by)
{
	p->done += by;
	if (p->m->progress)
		p->m->progress(p->m->progress_arg, p->done / p->all);
}

/* Return -EINTR after a signal, if the caller has armed interrupts (cli/terminal/term.h). */
static int stopped(const struct pass *p)
{
	return interrupt_pending() ? err_why(p->why, -EINTR, "interrupted") : 0;
}

/* ---- models ---- */

int measure_model_open(struct measure_model *m, const char *path, struct why *why)
{
	*m = (struct measure_model){.path = path};
	const int rc = model_config_load(path, &m->config, why);
	return rc ? rc : weights_open(path, &m->config, &m->weights, why);
}

void measure_model_close(struct measure_model *m)
{
	weights_close(m->weights);
	model_config_fini(&m->config);
	*m = (struct measure_model){0};
}

/* ---- error between two arrays ---- */

struct tally {
	double signal, other, both, noise, abs;
	double n;
};

static void tally_add(struct tally *t, const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const double x = a[i], y = b[i], d = y - x;
		t->signal += x * x;
		t->other += y * y;
		t->both += x * y;
		t->noise += d * d;
		t->abs += fabs(d);
	}
	t->n += (double)n;
}

static struct layer_error tally_error(const struct tally *t)
{
	if (!(t->n > 0))
		return (struct layer_error){0};
	const double norms = sqrt(t->signal) * sqrt(t->other);
	return (struct layer_error){.signal = t->signal / t->n,
				    .noise = t->noise / t->n,
				    .cosine = norms > 0 ? t->both / norms : 1,
				    .mean_abs = t->abs / t->n};
}

static struct layer_error error_of(const float *a, const float *b, size_t n)
{
	struct tally t = {0};
	tally_add(&t, a, b, n);
	return tally_error(&t);
}

/* ---- linear parts ---- */

static void see(void *arg, enum model_point at, int first, int n, const void *rows)
{
	struct side *s = arg;
	const size_t chosen = (size_t)s->of->config.experts.n_chosen;
	for (int i = 0; at == MODEL_AT_ROUTED && s->routed && i < n && s->n_routed < SAMPLE; i++)
		if ((first + i) % s->step == 0)
			memcpy(s->routed + (size_t)s->n_routed++ * chosen,
			       (const int32_t *)rows + (size_t)i * chosen, chosen * sizeof *s->routed);
	if ((int)at >= POINTS || !s->at[at].rows)
		return;
	struct sample *to = &s->at[at];
	const size_t k = (size_t)to->k;
	for (int i = 0; i < n && to->n < SAMPLE; i++)
		if ((first + i) % s->step == 0)
			memcpy(to->rows + (size_t)to->n++ * k, (const float *)rows + (size_t)i * k,
			       k * sizeof(float));
}

static void sample_init(struct sample *s, int k)
{
	if (!s->rows)
		*s = (struct sample){.rows = xmalloc((size_t)SAMPLE * (size_t)k * sizeof(float)), .k = k};
}

/* Allocate the samples; routed: also the experts of the rows. */
static void samples_init(struct side *s, const struct layer_plan *p, int n_tokens, bool routed)
{
	s->step = (n_tokens + SAMPLE - 1) / SAMPLE;
	for (int i = 0; i < p->n_blocks; i++) {
		const struct layer_block *b = &p->blocks[i];
		if (b->expert < 0 || (routed && b->at == MODEL_AT_GATEUP))
			sample_init(&s->at[b->at], b->k);
	}
	if (routed && p->w->n_experts)
		s->routed = xmalloc((size_t)SAMPLE * (size_t)p->c->experts.n_chosen * sizeof *s->routed);
}

static void samples_fini(struct side *s)
{
	for (int i = 0; i < POINTS; i++) {
		free(s->at[i].rows);
		s->at[i] = (struct sample){0};
	}
	free(s->routed);
	s->routed = NULL;
	s->n_routed = 0;
}

static int product(struct pass *p, int side, const float *w, int n, const struct sample *x, float *out)
{
	return runner_product(p->side[side].r, w, n, x->k, x->rows, x->n, out, p->why);
}

/* Undo the permutation of q's or k's rows in a GGUF file, from neighbours to halves. */
static void unpermute(float *w, int n, int k, int heads)
{
	const size_t row = (size_t)k * sizeof *w;
	const int size = n / heads, half = size / 2;
	float *head = xmalloc((size_t)size * row);
	for (int h = 0; h < heads; h++) {
		float *at = w + (size_t)h * (size_t)size * (size_t)k;
		memcpy(head, at, (size_t)size * row);
		for (int i = 0; i < size; i++)
			memcpy(at + (size_t)i * (size_t)k,
			       head + (size_t)(i % half * 2 + i / half) * (size_t)k, row);
	}
	free(head);
}

/* Convert part i of B's plan to floats, with its rows in A's order. */
static void floats_of_b(const struct pass *p, const struct layer_plan *b, int i, float *out)
{
	const struct config_layer *plan = &b->c->layers[b->index];
	const struct layer_block *block = &b->blocks[b->linears[i].block];
	const struct weights_linear *l = b->linears[i].from;
	const int part = i - block->first;
	layer_floats(l, out);
	if (block->at == MODEL_AT_QKV && part < 2 && b->c->rope_pairs && !p->side[0].of->config.rope_pairs)
		unpermute(out, l->n, l->k, part ? plan->kv_heads : plan->heads);
}

static int compare_linear(struct pass *p, struct measure_linear *out, const struct layer_plan *plan_a,
			  const struct layer_plan *plan_b, int i, const float *out_by)
{
	const struct weights_linear *a = plan_a->linears[i].from;
	const enum model_point at = plan_a->blocks[plan_a->linears[i].block].at;
	const struct sample *xa = &p->side[0].at[at], *xb = &p->side[1].at[at];
	const size_t size = (size_t)a->n * (size_t)a->k, outs = (size_t)xa->n * (size_t)a->n;
	float *wa = xmalloc(2 * size * sizeof *wa), *wb = wa + size;
	float *ya = xmalloc(2 * outs * sizeof *ya), *yb = ya + outs;
	layer_floats(a, wa);
	floats_of_b(p, plan_b, i, wb);
	int rc = product(p, 0, wa, a->n, xa, ya);
	if (!rc && !p->m->out_by) {
		out->weights = error_of(wa, wb, size);
		if (!(rc = product(p, 0, wb, a->n, xa, yb)))
			out->alone = error_of(ya, yb, outs);
		out->n_rows = xa->n;
	}
	if (!rc && !(rc = product(p, 1, wb, a->n, xb, yb))) {
		for (size_t j = 0; out_by && j < outs; j++)
			yb[j] *= out_by[j % (size_t)a->n];
		out->accumulated = error_of(ya, yb, outs);
	}
	free(wa);
	free(ya);
	return rc;
}

/* Return the sample's rows that A's router sends to the expert; rows is the caller's. */
static struct sample rows_of_expert(const struct side *s, int expert)
{
	const struct sample *all = &s->at[MODEL_AT_GATEUP];
	const size_t k = (size_t)all->k, chosen = (size_t)s->of->config.experts.n_chosen;
	struct sample out = {.rows = xmalloc((size_t)SAMPLE * k * sizeof *out.rows), .k = all->k};
	const int n = all->n < s->n_routed ? all->n : s->n_routed;
	for (int i = 0; i < n; i++)
		for (size_t j = 0; j < chosen; j++)
			if (s->routed[(size_t)i * chosen + j] == expert)
				memcpy(out.rows + (size_t)out.n++ * k, all->rows + (size_t)i * k,
				       k * sizeof *out.rows);
	return out;
}

/* Replace the rows by the expert's activations between gate/up and down. */
static int inner_rows(struct pass *p, const struct weights_expert *x, struct sample *rows)
{
	const size_t size = (size_t)x->gate.n * (size_t)x->gate.k;
	float *gate = xmalloc(2 * size * sizeof *gate), *up = gate + size;
	float *mid = xmalloc((size_t)SAMPLE * (size_t)x->gate.n * sizeof *mid);
	int rc = 0;
	layer_floats(&x->gate, gate);
	layer_floats(&x->up, up);
	if (rows->n)
		rc = runner_gateup(p->side[0].r,
				   &(struct runner_expert){.act = p->side[0].of->config.act,
							   .gate = gate,
							   .up = up,
							   .inter = x->gate.n,
							   .k = x->gate.k},
				   rows->rows, rows->n, mid, p->why);
	free(gate);
	free(rows->rows);
	rows->rows = mid;
	rows->k = x->gate.n;
	return rc;
}

static int compare_expert(struct pass *p, struct measure_linear *out, const struct layer_plan *a,
			  const struct layer_plan *b, int i)
{
	const struct layer_block *block = &a->blocks[a->linears[i].block];
	const struct weights_linear *la = a->linears[i].from;
	const size_t size = (size_t)la->n * (size_t)la->k;
	float *wa = xmalloc(2 * size * sizeof *wa), *wb = wa + size;
	struct sample x = rows_of_expert(&p->side[0], block->expert);
	float *ya = xmalloc((2 * (size_t)x.n * (size_t)la->n + 1) * sizeof *ya),
	      *yb = ya + (size_t)x.n * (size_t)la->n;
	int rc = block->at == MODEL_AT_DOWN ? inner_rows(p, &a->w->experts[block->expert], &x) : 0;
	layer_floats(la, wa);
	layer_floats(b->linears[i].from, wb);
	out->weights = error_of(wa, wb, size);
	out->n_rows = x.n;
	if (!rc && x.n && !(rc = product(p, 0, wa, la->n, &x, ya)) &&
	    !(rc = product(p, 0, wb, la->n, &x, yb)))
		out->alone = error_of(ya, yb, (size_t)x.n * (size_t)la->n);
	free(x.rows);
	free(wa);
	free(ya);
	return rc;
}

static int compare_linears(struct pass *p, const struct layer_plan *a, const struct layer_plan *b)
{
	struct measure *m = p->m;
	int rc = 0;
	for (int i = 0; !rc && !(rc = stopped(p)) && i < a->n_linears; i++) {
		const struct layer_block *block = &a->blocks[a->linears[i].block];
		if (block->expert >= 0 && m->out_by)
			continue;
		m->linears = xrealloc(m->linears, (size_t)m->n_linears + 1, sizeof *m->linears);
		struct measure_linear *l = &m->linears[m->n_linears++];
		*l = (struct measure_linear){.part = a->linears[i].part,
					     .layer = a->index,
					     .same = b->linears[i].from->kind == WEIGHTS_DENSE};
		snprintf(l->name, sizeof l->name, "%s", a->linears[i].name);
		if (block->expert >= 0)
			rc = compare_expert(p, l, a, b, i);
		else
			rc = compare_linear(p, l, a, b, i,
					    m->out_by ? m->out_by(m->out_by_arg, a->index, i) : NULL);
	}
	return rc;
}

/* ---- layers ---- */

static int run_layer(struct pass *p, int side, int layer, bool observed)
{
	struct side *s = &p->side[side];
	const struct runner_observer observer = {see, s};
	int rc = runner_layer(s->r, layer, s->x, s->x, p->text->n, observed ? &observer : NULL, p->why);
	advance(p, 1);
	return rc;
}

static int run_pair(struct pass *p, int layer)
{
	enum { ANY_GROUP = 8 };
	struct layer_plan plan[2];
	const size_t n = (size_t)p->text->n * (size_t)p->side[0].of->config.hidden;
	int rc = 0;
	for (int i = 0; i < 2; i++) {
		const struct measure_model *of = p->side[i].of;
		layer_plan_init(&plan[i], &of->config, &of->weights->layers[layer], layer, ANY_GROUP, NULL,
				0);
		if (!p->m->no_linears)
			samples_init(&p->side[i], &plan[i], p->text->n, !i && !p->m->out_by);
	}
	if (!(rc = run_layer(p, 0, layer, true)) && !(rc = run_layer(p, 1, layer, true))) {
		p->m->layers[layer] = error_of(p->side[0].x, p->side[1].x, n);
		rc = p->m->no_linears ? 0 : compare_linears(p, &plan[0], &plan[1]);
	}
	for (int i = 0; i < 2; i++) {
		samples_fini(&p->side[i]);
		layer_plan_fini(&plan[i]);
	}
	return rc;
}

/* Return whether both have the same number of layers with the same parts. */
static bool are_alike(const struct measure_model *a, const struct measure_model *b)
{
	const struct model_config *x = &a->config, *y = &b->config;
	bool alike = x->n_layers == y->n_layers && x->hidden == y->hidden && x->experts.n == y->experts.n;
	for (int i = 0; alike && i < x->n_layers; i++) {
		const struct config_layer *k = &x->layers[i], *l = &y->layers[i];
		alike = k->sparse == l->sparse && k->heads == l->heads && k->kv_heads == l->kv_heads &&
			k->dim == l->dim && k->inter == l->inter;
	}
	return alike;
}

/* ---- logits ---- */

struct row_figures {
	double nll[2], kl;
	bool agree;
};

struct rows {
	const struct pass *p;
	int first; /* token of the first row */
	struct row_figures of[RUNNER_LOGITS];
};

/* Find the largest logit, and log(sum(exp(x - largest))). */
static void softmax_of(const float *x, int n, int *best, double *log_sum)
{
	double sum = 0;
	*best = 0;
	for (int i = 1; i < n; i++)
		if (x[i] > x[*best])
			*best = i;
	for (int i = 0; i < n; i++)
		sum += (double)expf(x[i] - x[*best]);
	*log_sum = log(sum);
}

static void row_figures(void *arg, int i)
{
	struct rows *r = arg;
	const int v = r->p->side[0].of->config.n_vocab;
	const float *x[2];
	int best[2];
	double log_sum[2], kl = 0;
	for (int s = 0; s < 2; s++) {
		x[s] = r->p->side[s].logits + (size_t)i * (size_t)v;
		softmax_of(x[s], v, &best[s], &log_sum[s]);
	}
	const uint32_t next = r->p->text->tokens[r->first + i + 1];
	for (int s = 0; s < 2; s++)
		r->of[i].nll[s] = log_sum[s] - ((double)x[s][next] - (double)x[s][best[s]]);
	for (int j = 0; j < v; j++) {
		const double a = (double)x[0][j] - (double)x[0][best[0]] - log_sum[0],
			     b = (double)x[1][j] - (double)x[1][best[1]] - log_sum[1];
		if (a > -80)
			kl += exp(a) * (a - b);
	}
	r->of[i].kl = kl > 0 ? kl : 0;
	r->of[i].agree = best[0] == best[1];
}

/* Score n rows of a window, each followed by a token. */
static int score_rows(struct pass *p, int first, int n, struct tally *t)
{
	struct measure *m = p->m;
	struct rows rows = {.p = p, .first = first};
	for (int s = 0; s < 2; s++) {
		const size_t h = (size_t)p->side[s].of->config.hidden;
		int rc = runner_head(p->side[s].r, p->side[s].x + (size_t)first * h, n, p->side[s].logits,
				     p->why);
		if (rc)
			return rc;
	}
	parallel_for(n, row_figures, &rows);
	for (int i = 0; i < n; i++) {
		const struct row_figures *f = &rows.of[i];
		m->nll[0] += f->nll[0];
		m->nll[1] += f->nll[1];
		m->kl += f->kl;
		m->kl_max = f->kl > m->kl_max ? f->kl : m->kl_max;
		m->agree += f->agree;
		m->n_scored++;
	}
	tally_add(t, p->side[0].logits, p->side[1].logits, (size_t)n * (size_t)p->side[0].of->config.n_vocab);
	return 0;
}

static int score(struct pass *p)
{
	struct measure *m = p->m;
	struct tally t = {0};
	int rc = 0;
	for (int w = 0; !rc && w < p->text->n; w += p->text->length) {
		const int end = (w + p->text->length < p->text->n ? w + p->text->length : p->text->n) - 1;
		for (int at = w, n; !rc && !(rc = stopped(p)) && at < end; at += n) {
			n = end - at < RUNNER_LOGITS ? end - at : RUNNER_LOGITS;
			rc = score_rows(p, at, n, &t);
			advance(p, p->side[0].of->config.n_layers * (double)n / p->text->n);
		}
	}
	m->logits = tally_error(&t);
	if (m->n_scored) {
		m->nll[0] /= m->n_scored;
		m->nll[1] /= m->n_scored;
		m->kl /= m->n_scored;
		m->agree /= m->n_scored;
	}
	return rc;
}

/* ---- entry ---- */

static int side_open(struct pass *p, int side, const struct measure_model *of)
{
	struct side *s = &p->side[side];
	s->of = of;
	s->bytes = (size_t)p->text->n * (size_t)of->config.hidden * sizeof *s->x;
	int rc = runner_open(&s->r, &of->config, of->weights, p->text->length, p->m->n_threads, p->why);
	if (rc)
		return err_prefix(p->why, rc, "%s", of->path);
	s->x = alloc_big(s->bytes);
	s->logits = xmalloc((size_t)RUNNER_LOGITS * (size_t)of->config.n_vocab * sizeof *s->logits);
	if (!s->x)
		return err_why(p->why, -ENOMEM, "out of memory: %zu bytes for the rows of %d tokens",
			       s->bytes, p->text->n);
	return runner_embed(s->r, p->text->tokens, p->text->n, s->x, p->why);
}

static void side_close(struct side *s)
{
	samples_fini(s);
	runner_close(s->r);
	alloc_big_free(s->x, s->bytes);
	free(s->logits);
}

int measure_run(struct measure *m, const struct measure_model *a, const struct measure_model *b,
		const struct windows *text, struct why *why)
{
	struct pass p = {.m = m, .text = text, .why = why};
	int rc = 0;
	if (a->config.n_vocab != b->config.n_vocab)
		return err_why(why, -EINVAL, "%s has %d tokens, %s has %d: they cannot be compared", a->path,
			       a->config.n_vocab, b->path, b->config.n_vocab);
	m->alike = are_alike(a, b);
	m->n_layers = m->alike ? a->config.n_layers : 0;
	m->layers = xcalloc((size_t)m->n_layers + 1, sizeof *m->layers);
	m->n_tokens = text->n;
	p.all = 2.0 * a->config.n_layers + b->config.n_layers;
	if ((rc = side_open(&p, 0, a)) || (rc = side_open(&p, 1, b)))
		goto done;
	for (int i = 0; !rc && m->alike && i < m->n_layers; i++)
		rc = run_pair(&p, i);
	for (int i = 0; !rc && !m->alike && i < a->config.n_layers; i++)
		rc = run_layer(&p, 0, i, false);
	for (int i = 0; !rc && !m->alike && i < b->config.n_layers; i++)
		rc = run_layer(&p, 1, i, false);
	if (!rc)
		rc = score(&p);
done:
	side_close(&p.side[0]);
	side_close(&p.side[1]);
	if (rc)
		measure_fini(m);
	return rc;
}

void measure_fini(struct measure *m)
{
	free(m->linears);
	free(m->layers);
	m->linears = NULL;
	m->layers = NULL;
	m->n_linears = m->n_layers = 0;
}
