#include "quant/awq.h"

#include "base/alloc.h"
#include "base/err.h"
#include "quant/int4.h"
#include "quant/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	STEPS = 20,      /* steps of the exponent a, for each kind of scale */
	SAMPLE = 384,    /* fewest output rows on which candidates are scored, if a part has them */
	RATIOS = 11,     /* clipping ratios: 1 to 0.5 */
	GROUP_ROWS = 16, /* output rows per task */
};

static int groups_of(const struct awq_block *b)
{
	return (b->k + b->group - 1) / b->group;
}

/* ---- rounding ---- */

/* Round every step-th row of a part, after scaling; compute the result or its difference from the
 * original. */
struct rounding {
	const struct awq_block *b;
	const struct awq_part *p;
	const float *scales; /* NULL: 1 */
	bool clipped;        /* clip by the part's ratios */
	int step;
	bool difference; /* out gets the errors of the weights, not the rounded weights */
	float *out;      /* [ceil(n / step), k] */
};

static void round_row(void *arg, int i)
{
	const struct rounding *a = arg;
	const size_t k = (size_t)a->b->k, row = (size_t)i * (size_t)a->step;
	const float *w = a->p->w + row * k;
	float *out = a->out + (size_t)i * k;
	float *scaled = xmalloc(2 * k * sizeof *scaled), *rounded = scaled + k;
	for (size_t j = 0; j < k; j++)
		scaled[j] = a->scales ? w[j] * a->scales[j] : w[j];
	int4_row(scaled, a->b->k, a->b->group,
		 a->clipped ? a->p->ratios + row * (size_t)groups_of(a->b) : NULL, rounded);
	for (size_t j = 0; j < k; j++) {
		const float is = a->scales ? rounded[j] / a->scales[j] : rounded[j];
		out[j] = a->difference ? is - w[j] : is;
	}
	free(scaled);
}

void awq_effective(const struct awq_block *b, const struct awq_part *p, float *out)
{
	struct rounding a = {b, p, b->scales, true, 1, false, out};
	parallel_for(p->n, round_row, &a);
}

void awq_scaled(const struct awq_block *b, const struct awq_part *p, float *out)
{
	const size_t k = (size_t)b->k;
	for (size_t i = 0; i < (size_t)p->n * k; i++)
		out[i] = p->w[i] * b->scales[i % k];
}

/* ---- loss ---- */

/* State of a search. */
struct search {
	struct awq_block *b;
	struct runner *r;
	struct kern_linear *gram;  /* G, loaded as a linear layer */
	float *rows, *product;     /* [largest n, k] each */
	double sampled[AWQ_PARTS]; /* noise of rounding to nearest, on the sample */
};

static double dot(const float *a, const float *b, size_t n)
{
	double sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	return sum;
}

static int step_of(const struct awq_part *p)
{
	return p->n >= 2 * SAMPLE ? p->n / SAMPLE : 1;
}

/* Compute tr(D G D^T) for the rows D in s->rows; s->product keeps D G. */
static int noise_of(struct search *s, int n_rows, double *noise)
{
	int rc = runner_apply(s->r, s->gram, s->b->k, s->b->k, s->rows, n_rows, s->product);
	*noise = dot(s->rows, s->product, (size_t)n_rows * (size_t)s->b->k);
	return rc;
}

static int part_noise(struct search *s, const struct awq_part *p, const float *scales, bool clipped, int step,
		      double *noise)
{
	struct rounding a = {s->b, p, scales, clipped, step, true, s->rows};
	const int n_rows = (p->n + step - 1) / step;
	parallel_for(n_rows, round_row, &a);
	return noise_of(s, n_rows, noise);
}

/* Compute the part's error with its current scales and ratios: all three sums. */
static int part_error(struct search *s, struct awq_part *p)
{
	const size_t n = (size_t)p->n * (size_t)s->b->k;
	int rc = part_noise(s, p, s->b->scales, true, 1, &p->error.noise);
	if (rc)
		return rc;
	p->error.cross = dot(p->w, s->product, n);
	if ((rc = runner_apply(s->r, s->gram, s->b->k, s->b->k, p->w, p->n, s->product)))
		return rc;
	p->error.signal = dot(p->w, s->product, n);
	return 0;
}

/* ---- scales ---- */

/* Replace the values of tied inputs by their mean. */
static void tie(const struct awq_block *b, double *v)
{
	if (!b->tie)
		return;
	double *sums = xcalloc((size_t)b->n_ties, 2 * sizeof *sums), *counts = sums + b->n_ties;
	for (int j = 0; j < b->k; j++) {
		sums[b->tie[j]] += v[j];
		counts[b->tie[j]]++;
	}
	for (int j = 0; j < b->k; j++)
		v[j] = sums[b->tie[j]] / counts[b->tie[j]];
	free(sums);
}

/* Compute the mean over all outputs of |w| / the largest |w| of its group. */
static void weight_means(const struct awq_block *b, double *out)
{
	double rows = 0;
	memset(out, 0, (size_t)b->k * sizeof *out);
	for (int p = 0; p < b->n_parts; p++) {
		for (int i = 0; i < b->parts[p].n; i++) {
			const float *w = b->parts[p].w + (size_t)i * (size_t)b->k;
			for (int k0 = 0; k0 < b->k; k0 += b->group) {
				const int k1 = k0 + b->group < b->k ? k0 + b->group : b->k;
				float most = 0;
				for (int j = k0; j < k1; j++)
					most = fabsf(w[j]) > most ? fabsf(w[j]) : most;
				for (int j = k0; most > 0 && j < k1; j++)
					out[j] += fabsf(w[j]) / most;
			}
		}
		rows += b->parts[p].n;
	}
	for (int j = 0; j < b->k; j++)
		out[j] /= rows;
	tie(b, out);
}

static void candidate(const struct awq_block *b, const double *inputs, const double *weights, int i,
		      float *out)
{
	const double a = (double)(i % STEPS) / STEPS;
	double least = INFINITY, most = 0;
	for (int j = 0; j < b->k; j++) {
		double s = pow(inputs[j], a);
		if (i >= STEPS)
			s /= pow(weights[j], 1 - a) + 1e-4;
		s = s > 1e-4 ? s : 1e-4;
		least = s < least ? s : least;
		most = s > most ? s : most;
		out[j] = (float)s;
	}
	for (int j = 0; j < b->k; j++)
		out[j] = (float)(out[j] / sqrt(least * most));
	b->fit(b->fit_arg, out);
}

/* Score scales on the sample: the sum over the parts of noise / noise of rounding to nearest. */
static int score(struct search *s, const float *scales, double *out)
{
	int rc = 0;
	*out = 0;
	for (int i = 0; !rc && i < s->b->n_parts; i++) {
		double noise;
		rc = part_noise(s, &s->b->parts[i], scales, false, step_of(&s->b->parts[i]), &noise);
		*out += s->sampled[i] > 0 ? noise / s->sampled[i] : 1;
	}
	return rc;
}

static int search_scales(struct search *s)
{
	struct awq_block *b = s->b;
	double *inputs = xcalloc((size_t)b->k, 2 * sizeof *inputs), *weights = inputs + b->k;
	float *scales = xmalloc((size_t)b->k * sizeof *scales);
	double best = b->n_parts, at;
	int rc = 0;
	for (int j = 0; j < b->k; j++)
		inputs[j] = b->in->sums[j] / b->in->n;
	tie(b, inputs);
	weight_means(b, weights);
	for (int i = 0; !rc && i < b->n_parts; i++)
		rc = part_noise(s, &b->parts[i], NULL, false, step_of(&b->parts[i]), &s->sampled[i]);
	for (int i = 0; !rc && i < 2 * STEPS; i++) {
		candidate(b, inputs, weights, i, scales);
		rc = score(s, scales, &at);
		if (!rc && at < best) {
			best = at;
			memcpy(b->scales, scales, (size_t)b->k * sizeof *scales);
		}
	}
	free(inputs);
	free(scales);
	return rc;
}

/* ---- clipping ---- */

struct clipping {
	const struct awq_block *b;
	struct awq_part *p;
};

/* A dot product with four vector sums, added in this order on every machine.  Clipping spends most of its
 * time here. */
typedef float four __attribute__((vector_size(16), aligned(4)));

static float dot_short(const float *a, const float *b, int n)
{
	four sums[4] = {{0}};
	float sum = 0;
	int i = 0;
	for (; i + 16 <= n; i += 16)
		for (int l = 0; l < 4; l++)
			sums[l] += *(const four *)(const void *)(a + i + 4 * l) *
				   *(const four *)(const void *)(b + i + 4 * l);
	for (; i < n; i++)
		sum += a[i] * b[i];
	const four all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
	return sum + ((all[0] + all[1]) + (all[2] + all[3]));
}

/* Return the squared error of a group's share of the output: d G d^T. */
static double group_noise(const struct awq_block *b, int k0, int n, const float *d)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += (double)dot_short(b->in->gram + (size_t)(k0 + i) * (size_t)b->k + k0, d, n) * d[i];
	return sum;
}

static void clip_row(const struct clipping *c, int row, float *scaled, float *rounded, float *d)
{
	const struct awq_block *b = c->b;
	const int groups = groups_of(b);
	const float *w = c->p->w + (size_t)row * (size_t)b->k;
	for (int g = 0; g < groups; g++) {
		const int k0 = g * b->group, n = b->k - k0 < b->group ? b->k - k0 : b->group;
		double best = INFINITY;
		for (int j = 0; j < n; j++)
			scaled[j] = w[k0 + j] * b->scales[k0 + j];
		for (int i = 0; i < RATIOS; i++) {
			const float ratio = 1 - 0.05f * (float)i;
			const struct int4_group grid = int4_grid(scaled, n, ratio);
			int4_round(&grid, scaled, n, rounded, NULL);
			for (int j = 0; j < n; j++)
				d[j] = rounded[j] / b->scales[k0 + j] - w[k0 + j];
			const double noise = group_noise(b, k0, n, d);
			if (noise < best) {
				best = noise;
				c->p->ratios[(size_t)row * (size_t)groups + (size_t)g] = ratio;
			}
		}
	}
}

static void clip_rows(void *arg, int task)
{
	const struct clipping *c = arg;
	const int end = (task + 1) * GROUP_ROWS < c->p->n ? (task + 1) * GROUP_ROWS : c->p->n;
	float *scratch = xmalloc(3 * (size_t)c->b->group * sizeof *scratch);
	for (int row = task * GROUP_ROWS; row < end; row++)
		clip_row(c, row, scratch, scratch + c->b->group, scratch + 2 * c->b->group);
	free(scratch);
}

static void no_clipping(const struct awq_block *b, struct awq_part *p)
{
	for (size_t i = 0; i < (size_t)p->n * (size_t)groups_of(b); i++)
		p->ratios[i] = 1;
}

/* Clip each group on its own; if all clippings together make the part worse, undo them. */
static int clip(struct search *s, struct awq_part *p)
{
	struct clipping c = {s->b, p};
	double before, after;
	int rc = part_noise(s, p, s->b->scales, false, 1, &before);
	if (rc)
		return rc;
	parallel_for((p->n + GROUP_ROWS - 1) / GROUP_ROWS, clip_rows, &c);
	if ((rc = part_noise(s, p, s->b->scales, true, 1, &after)))
		return rc;
	if (!(after < before))
		no_clipping(s->b, p);
	return 0;
}

/* ---- entry ---- */

static int finish(struct search *s)
{
	int rc = 0;
	for (int i = 0; !rc && i < s->b->n_parts; i++)
		if (!(rc = clip(s, &s->b->parts[i])))
			rc = part_error(s, &s->b->parts[i]);
	return rc;
}

static bool any_is_worse(const struct awq_block *b)
{
	for (int i = 0; i < b->n_parts; i++)
		if (b->parts[i].error.noise > b->parts[i].nearest)
			return true;
	return false;
}

static void no_scales(struct awq_block *b)
{
	for (int j = 0; j < b->k; j++)
		b->scales[j] = 1;
}

int awq_search(struct awq_block *b, struct runner *r, struct why *why)
{
	struct search s = {.b = b, .r = r};
	int most = 0, rc;
	for (int i = 0; i < b->n_parts; i++) {
		most = b->parts[i].n > most ? b->parts[i].n : most;
		no_clipping(b, &b->parts[i]);
	}
	no_scales(b);
	if ((rc = runner_load(r, b->in->gram, b->k, b->k, &s.gram, why)))
		return rc;
	s.rows = xmalloc((size_t)most * (size_t)b->k * sizeof *s.rows);
	s.product = xmalloc((size_t)most * (size_t)b->k * sizeof *s.product);
	for (int i = 0; !rc && i < b->n_parts; i++)
		rc = part_noise(&s, &b->parts[i], NULL, false, 1, &b->parts[i].nearest);
	if (!rc && b->fit)
		rc = search_scales(&s);
	if (!rc)
		rc = finish(&s);
	if (!rc && any_is_worse(b)) {
		no_scales(b);
		rc = finish(&s);
	}
	free(s.rows);
	free(s.product);
	runner_unload(r, s.gram);
	return rc ? err_why(why, rc, "the search failed") : 0;
}
