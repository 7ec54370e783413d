/* step_pool.c - runs of pooled sequences (params.pool): rows are downloaded from the device, means are
 * summed.
 *
 *   last     the row after the final norm is downloaded to the plan's pinned memory
 *   logits   the head computes the row as if it were sampled from; the requested logits of all sequences are
 *            downloaded together
 *   mean     rows are downloaded in groups of max_logits into scratch, and added on the host in fixed point:
 *            a sum of integers does not depend on the division into runs */
#include "worker/step_impl.h"

#include "base/err.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A row of a mean: row k of pool i. */
struct place {
	uint32_t i, k;
};

/* Advance *at to the next row of a mean, starting there.  false: there is none. */
static bool find_row(const struct batch *b, struct place *at)
{
	while (at->i < b->n_pools &&
	       (b->pools[at->i].kind != PARAMS_POOL_MEAN || at->k >= b->pools[at->i].n_rows))
		*at = (struct place){at->i + 1, 0};
	return at->i < b->n_pools;
}

static int64_t add(int64_t sum, float x)
{
	if (sum == RESULT_POOL_NAN || !(fabsf(x) < RESULT_POOL_LIMIT))
		return RESULT_POOL_NAN;
	return sum + llrint((double)x * RESULT_POOL_ONE);
}

/* Compute the rows after the final norm, for the n logits rows that are set: *rows, on the device. */
static int compute_rows(struct step *s, int n, const void **rows)
{
	struct kern_batch *b = &s->batch->kern;
	b->n_logits = n;
	b->pad_to = 0;
	int rc = s->ops->batch_set(s->stream, b);
	return rc ? rc : model_rows(s->model, n, rows);
}

/* Wait for the stream.  In a group it holds operations of all ranks, so the wait must end if a rank is
 * lost. */
static int wait_rows(struct step *s)
{
	return s->group ? tp_group_sync(s->group, s->ops, s->stream) : s->ops->stream_sync(s->stream);
}

/* Compute the next group of rows of means, and add them to their sums. */
static int add_group(struct step *s, struct pending_plan *f, struct place *at)
{
	const struct batch *b = s->batch;
	const uint32_t width = pending_pool_width(s->pending);
	const int h = s->config.hidden;
	const struct place from = *at;
	const void *rows;
	float *host = pending_scratch(s->pending, (uint32_t)s->max_logits);
	int n = 0, rc;
	if (!host)
		return -ENOMEM;
	for (; n < s->max_logits && find_row(b, at); at->k++)
		b->logits_row[n++] = b->pools[at->i].row0 + (int32_t)at->k;
	if ((rc = compute_rows(s, n, &rows)) ||
	    (rc = s->ops->download(s->stream, host, rows, (size_t)n * (size_t)h * sizeof *host)) ||
	    (rc = wait_rows(s)))
		return rc;
	*at = from;
	for (int r = 0; r < n && find_row(b, at); r++, at->k++) {
		int64_t *sums = f->sums + (size_t)at->i * width;
		for (int k = 0; k < h; k++)
			sums[k] = add(sums[k], host[(size_t)r * (size_t)h + (size_t)k]);
	}
	return 0;
}

static int add_means(struct step *s, struct pending_plan *f)
{
	struct place at = {0, 0};
	int rc = 0;
	while (!rc && find_row(s->batch, &at))
		rc = add_group(s, f, &at);
	return rc;
}

/* Download the last rows of prompts, in groups, into the plan's memory. */
static int take_lasts(struct step *s, struct pending_plan *f)
{
	const struct batch *b = s->batch;
	const size_t bytes = (size_t)s->config.hidden * sizeof(float), width = pending_pool_width(s->pending);
	int rc = 0;
	for (uint32_t i = 0; !rc && i < b->n_pools;) {
		const uint32_t from = i;
		const void *rows;
		int n = 0;
		for (; n < s->max_logits && i < b->n_pools; i++)
			if (b->pools[i].kind == PARAMS_POOL_LAST)
				b->logits_row[n++] = b->pools[i].row0;
		if (n == 0 || (rc = compute_rows(s, n, &rows)))
			break;
		n = 0;
		for (uint32_t k = from; !rc && k < i; k++)
			if (b->pools[k].kind == PARAMS_POOL_LAST)
				rc = s->ops->download(s->stream, f->rows + k * width,
						      (const char *)rows + (size_t)n++ * bytes, bytes);
	}
	return rc;
}

int step_pool_begin(struct step *s, struct pending_plan *f, struct why *why)
{
	const struct batch *b = s->batch;
	const uint32_t width = pending_pool_width(s->pending);
	if (b->n_pools == 0 || s->shard.rank)
		return 0;
	int rc = pending_pools(s->pending, f, b->n_pools, why);
	for (uint32_t i = 0; !rc && i < b->n_pools; i++) {
		const struct batch_pool *p = &b->pools[i];
		const struct slot *slot = slots_get(s->slots, p->slot, NULL);
		const bool logits = p->kind == PARAMS_POOL_LOGITS;
		assert(slot);
		f->pools[i] = (struct pending_pool){
			.slot = p->slot,
			.pos0 = p->pos0,
			.n_rows = p->run_rows,
			.n_values = logits ? slot->params.n_allowed : (uint32_t)s->config.hidden,
			.sum = p->kind == PARAMS_POOL_MEAN,
		};
		memset(f->sums + (size_t)i * width, 0, width * sizeof *f->sums);
	}
	return rc;
}

int step_pool_logits(struct step *s, struct pending_plan *f, uint32_t first, int n)
{
	const struct batch *b = s->batch;
	const float *logits = model_logits(s->model);
	uint32_t pairs[KERN_PICK_MAX][2];
	int rc = 0, n_pairs = 0;
	for (uint32_t i = 0; !rc && i < f->n_pools; i++) {
		const struct batch_pool *p = &b->pools[i];
		if (p->kind != PARAMS_POOL_LOGITS || p->want < first || p->want >= first + (uint32_t)n)
			continue;
		const struct slot *slot = slots_get(s->slots, p->slot, NULL);
		const uint32_t row = (p->want - first) * (uint32_t)s->config.n_vocab,
			       out = i * pending_pool_width(s->pending);
		if (n_pairs + (int)slot->params.n_allowed > KERN_PICK_MAX) {
			rc = s->ops->pick(s->stream, f->rows, logits, (const uint32_t(*)[2])pairs, n_pairs);
			n_pairs = 0;
		}
		for (uint32_t k = 0; k < slot->params.n_allowed; k++, n_pairs++) {
			pairs[n_pairs][0] = row + (uint32_t)slot->params.allowed[k];
			pairs[n_pairs][1] = out + k;
		}
	}
	return rc || !n_pairs
		       ? rc
		       : s->ops->pick(s->stream, f->rows, logits, (const uint32_t(*)[2])pairs, n_pairs);
}

int step_pool_rows(struct step *s, struct pending_plan *f)
{
	if (f->n_pools == 0)
		return 0;
	int rc = take_lasts(s, f);
	return rc ? rc : add_means(s, f);
}

void step_pool_take(const struct step *s, const struct pending_plan *f, struct result *r)
{
	const uint32_t width = pending_pool_width(s->pending);
	for (uint32_t i = 0; i < f->n_pools; i++) {
		const struct pending_pool *p = &f->pools[i];
		struct result_pool *to = result_add_pool(r, p->sum ? 2 * p->n_values : p->n_values);
		to->slot = p->slot;
		to->pos0 = p->pos0;
		to->n_rows = p->n_rows;
		uint32_t *words = r->pool_words + to->at;
		if (p->sum)
			memcpy(words, f->sums + (size_t)i * width, p->n_values * sizeof *f->sums);
		else
			memcpy(words, f->rows + (size_t)i * width, p->n_values * sizeof *f->rows);
	}
}
