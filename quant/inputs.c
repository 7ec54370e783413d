#include "quant/inputs.h"

#include "base/alloc.h"
#include "base/err.h"
#include "quant/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 64 };

int inputs_init(struct inputs *s, int k, int n_rows, struct why *why)
{
	const size_t kk = (size_t)k * (size_t)k * sizeof *s->gram;
	*s = (struct inputs){.k = k, .step = (n_rows + INPUTS_SAMPLE - 1) / INPUTS_SAMPLE};
	s->step = s->step > 0 ? s->step : 1;
	s->gram = alloc_big(kk);
	if (!s->gram)
		return err_why(why, -ENOMEM, "out of memory: %zu bytes for the Gram matrix of %d inputs", kk,
			       k);
	s->sums = xcalloc((size_t)k, sizeof *s->sums);
	s->sample = xcalloc((size_t)INPUTS_SAMPLE * (size_t)k, sizeof *s->sample);
	return 0;
}

void inputs_fini(struct inputs *s)
{
	alloc_big_free(s->gram, (size_t)s->k * (size_t)s->k * sizeof *s->gram);
	free(s->sums);
	free(s->sample);
	*s = (struct inputs){0};
}

/* ---- the product of a batch with itself ---- */

struct transpose {
	const float *rows;
	int n, k;
	float *to; /* [k, n] */
};

static void transpose_tile(void *arg, int tile)
{
	const struct transpose *t = arg;
	const int k1 = (tile + 1) * TILE < t->k ? (tile + 1) * TILE : t->k;
	for (int i = 0; i < t->n; i++)
		for (int j = tile * TILE; j < k1; j++)
			t->to[(size_t)j * (size_t)t->n + (size_t)i] =
				t->rows[(size_t)i * (size_t)t->k + (size_t)j];
}

struct sum {
	float *to;
	const float *from;
	int k;
};

static void sum_row(void *arg, int row)
{
	const struct sum *s = arg;
	float *to = s->to + (size_t)row * (size_t)s->k;
	const float *from = s->from + (size_t)row * (size_t)s->k;
	for (int i = 0; i < s->k; i++)
		to[i] += from[i];
}

int inputs_add(struct inputs *s, struct runner *r, const float *rows, int n, struct why *why)
{
	const size_t k = (size_t)s->k;
	for (int i = 0; i < n; i++) {
		const float *row = rows + (size_t)i * k;
		for (size_t j = 0; j < k; j++)
			s->sums[j] += fabsf(row[j]);
		if ((s->n + i) % s->step == 0 && s->n_sample < INPUTS_SAMPLE)
			memcpy(s->sample + (size_t)s->n_sample++ * k, row, k * sizeof *row);
	}
	s->n += n;
	float *across = xmalloc(k * (size_t)n * sizeof *across), *product = xmalloc(k * k * sizeof *product);
	struct transpose transpose = {rows, n, s->k, across};
	struct sum sum = {s->gram, product, s->k};
	parallel_for((s->k + TILE - 1) / TILE, transpose_tile, &transpose);
	int rc = runner_product(r, across, s->k, n, across, s->k, product, why);
	if (!rc)
		parallel_for(s->k, sum_row, &sum);
	free(across);
	free(product);
	return rc;
}

void inputs_end(struct inputs *s)
{
	const float by = s->n ? 1 / (float)s->n : 0;
	for (size_t i = 0; i < (size_t)s->k * (size_t)s->k; i++)
		s->gram[i] *= by;
}
