/* read_weights.h - read every byte of every tensor of an open model, so that a sanitizer sees bad
 * pointers. */
#ifndef QUERN_TESTS_FUZZ_FILES_READ_WEIGHTS_H
#define QUERN_TESTS_FUZZ_FILES_READ_WEIGHTS_H

#include "base/alloc.h"
#include "base/err.h"
#include "formats/weights.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

static volatile uint32_t read_sink;

static inline void read_bytes(const void *p, size_t n)
{
	const unsigned char *q = p;
	uint32_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += q[i];
	read_sink = sum;
}

static inline void read_vec(const struct weights_vec *v)
{
	if (v->data)
		read_bytes(v->data, (size_t)v->n * (v->dtype == CONFIG_F32 ? 4 : 2));
}

/* Read a copy of the stored rows, if there is such a form; its values are x. */
static inline void read_copy(const struct codes *c, const float *x)
{
	struct codes copied;
	if (!c->super_bytes)
		return;
	const size_t n = (size_t)c->n * (size_t)c->k;
	unsigned char *rows = xmalloc((size_t)c->n * codes_row_bytes(c));
	float *y = xmalloc(n * sizeof *y);
	codes_copy_rows(c, 0, c->n, rows);
	codes_copied(&copied, c, rows, c->n);
	codes_floats(&copied, 0, c->n, y);
	for (size_t i = 0; i < n; i++)
		assert(x[i] == y[i] || (x[i] != x[i] && y[i] != y[i]));
	free(rows);
	free(y);
}

static inline void read_linear(const struct weights_linear *l)
{
	const size_t n = (size_t)l->n * (size_t)l->k;
	if (l->kind == WEIGHTS_CODES) {
		float *x = xmalloc(n * sizeof *x);
		codes_floats(&l->codes, 0, l->n, x);
		read_bytes(x, n * sizeof *x);
		read_copy(&l->codes, x);
		free(x);
	} else if (l->kind == WEIGHTS_AWQ) {
		const size_t groups = (size_t)((l->k + l->group - 1) / l->group);
		read_bytes(l->w, n / 2);
		read_bytes(l->qzeros, groups * (size_t)l->n / 2);
		read_bytes(l->scales, groups * (size_t)l->n * 2);
	} else if (l->w) {
		read_bytes(l->w, n * (l->dtype == CONFIG_F32 ? 4 : 2));
	}
	read_vec(&l->bias);
}

static inline void read_weights(const struct weights *w)
{
	read_vec(&w->embed);
	read_linear(&w->embed_codes);
	read_vec(&w->norm);
	read_linear(&w->head);
	for (int i = 0; i < w->n_layers; i++) {
		const struct weights_layer *l = &w->layers[i];
		const struct weights_linear *linears[] = {
			&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->router, &l->shared_gate};
		const struct weights_vec *vecs[] = {&l->attn_norm, &l->ffn_norm,   &l->attn_post,
						    &l->ffn_post,  &l->q_norm,     &l->k_norm,
						    &l->sinks,     &l->choice_bias};
		for (size_t j = 0; j < sizeof linears / sizeof *linears; j++)
			read_linear(linears[j]);
		for (size_t j = 0; j < sizeof vecs / sizeof *vecs; j++)
			read_vec(vecs[j]);
		for (int e = 0; e < l->n_experts; e++) {
			read_linear(&l->experts[e].gate);
			read_linear(&l->experts[e].up);
			read_linear(&l->experts[e].down);
		}
	}
	for (int i = 0; i < w->files.n_tensors; i++) {
		struct weights_tensor t;
		w->files.tensor(w->files.at, i, &t);
		read_bytes(t.data, t.bytes);
	}
}

/* Open the model at `path`, of any kind, and read all of it.  False: it was refused; asserts that there is a
 * reason. */
static inline bool read_model(const char *path)
{
	struct why why = {""};
	struct model_config c;
	struct weights *w;
	int rc = model_config_load(path, &c, &why);
	if (!rc) {
		rc = weights_open(path, &c, &w, &why);
		if (!rc) {
			read_weights(w);
			weights_close(w);
		}
		model_config_fini(&c);
	}
	assert(!rc || why.text[0]);
	return !rc;
}

#endif
