#include "quant/importance.h"

#include "base/alloc.h"
#include "base/err.h"
#include "cli/terminal/term.h"
#include "quant/convert/names.h"
#include "quant/expert_rows.h"
#include "quant/runner.h"

#include <stdio.h>
#include <stdlib.h>

enum { POINTS = MODEL_AT_DOWN + 1 };

/* Sums of squares of the inputs at a point of a layer. */
struct sums {
	double *of; /* [k], owned; NULL: no part reads this point */
	int k;
	double rows;
};

struct layer {
	const struct importance *run;
	struct runner *r;
	struct layer_plan plan;
	struct sums at[POINTS];
	struct expert_rows experts;
	struct imatrix *m;
	struct why *why;
};

static void sums_init(struct sums *s, int k)
{
	if (!s->of)
		*s = (struct sums){.of = xcalloc((size_t)k, sizeof *s->of), .k = k};
}

static void sums_add(struct sums *s, const float *rows, int n)
{
	for (int i = 0; i < n; i++, rows += s->k)
		for (int j = 0; j < s->k; j++)
			s->of[j] += (double)rows[j] * (double)rows[j];
	s->rows += n;
}

static void see(void *arg, enum model_point at, int first, int n, const void *rows)
{
	struct layer *l = arg;
	expert_rows_see(&l->experts, at, first, n, rows);
	if ((int)at < POINTS && l->at[at].of)
		sums_add(&l->at[at], rows, n);
}

/* Store the sums for the parts of a block, of which several may share one tensor. */
static void put_block(struct layer *l, const struct layer_block *b, const struct sums *s)
{
	const struct model_config *c = l->plan.c;
	for (int i = 0; i < b->n; i++) {
		char weight[NAME_SIZE];
		struct name name;
		snprintf(weight, sizeof weight, "%s.weight", l->plan.linears[b->first + i].name);
		if (!name_of_hf(c, weight, &name) && !name_of_gguf(c, weight, &name))
			continue;
		if (b->expert >= 0)
			imatrix_set(l->m, name.gguf, b->expert, c->experts.n, s->of, s->k, s->rows);
		else
			imatrix_set(l->m, name.gguf, 0, 1, s->of, s->k, s->rows);
	}
}

/* Store the sums of an expert's two blocks. */
static int put_expert(struct layer *l, const struct layer_block *down, const struct layer_block *gateup)
{
	struct sums in = {0}, inner = {0};
	float *rows = xmalloc((size_t)l->experts.n * (size_t)l->experts.hidden * sizeof *rows);
	const int n = expert_rows_of(&l->experts, down->expert, rows);
	float *mid = xmalloc(((size_t)n * (size_t)down->k + 1) * sizeof *mid);
	const int rc = n ? expert_rows_inner(l->plan.c, &l->plan.w->experts[down->expert], l->r, rows, n, mid,
					     l->why)
			 : 0;
	sums_init(&in, gateup->k);
	sums_init(&inner, down->k);
	if (!rc) {
		sums_add(&in, rows, n);
		sums_add(&inner, mid, n);
		put_block(l, gateup, &in);
		put_block(l, down, &inner);
	}
	free(in.of);
	free(inner.of);
	free(mid);
	free(rows);
	return rc;
}

static int run_layer(struct layer *l, float *x)
{
	const struct runner_observer observer = {see, l};
	for (int i = 0; i < l->plan.n_blocks; i++)
		if (l->plan.blocks[i].expert < 0)
			sums_init(&l->at[l->plan.blocks[i].at], l->plan.blocks[i].k);
	int rc = runner_layer(l->r, l->plan.index, x, x, l->run->text->n, &observer, l->why);
	for (int i = 0; !rc && i < l->plan.n_blocks; i++) {
		const struct layer_block *b = &l->plan.blocks[i];
		if (b->expert < 0)
			put_block(l, b, &l->at[b->at]);
		else /* two blocks: down, then gate and up */
			rc = put_expert(l, b, &l->plan.blocks[++i]);
	}
	return rc;
}

static int run_all(const struct importance *run, struct runner *r, float *x, struct imatrix *m,
		   struct why *why)
{
	const struct model_config *c = &run->model->config;
	int rc = runner_embed(r, run->text->tokens, run->text->n, x, why);
	for (int i = 0; !rc && i < c->n_layers; i++) {
		struct layer l = {.run = run, .r = r, .m = m, .why = why};
		layer_plan_init(&l.plan, c, &run->model->weights->layers[i], i, 1, NULL, 0);
		expert_rows_init(&l.experts, &l.plan, run->text->n);
		rc = interrupt_pending() ? err_why(why, -EINTR, "interrupted: nothing was written")
					 : run_layer(&l, x);
		for (int p = 0; p < POINTS; p++)
			free(l.at[p].of);
		expert_rows_fini(&l.experts);
		layer_plan_fini(&l.plan);
		if (run->progress)
			run->progress(run->progress_arg, (double)(i + 1) / c->n_layers);
	}
	return rc;
}

int importance_run(const struct importance *run, struct imatrix *m, struct why *why)
{
	const size_t bytes = (size_t)run->text->n * (size_t)run->model->config.hidden * sizeof(float);
	struct runner *r = NULL;
	float *x = alloc_big(bytes);
	if (!x)
		return err_why(why, -ENOMEM, "no memory for %zu bytes of activations", bytes);
	int rc = runner_open(&r, &run->model->config, run->model->weights, run->text->length, run->n_threads,
			     why);
	if (!rc)
		rc = run_all(run, r, x, m, why);
	runner_close(r);
	alloc_big_free(x, bytes);
	return rc;
}
