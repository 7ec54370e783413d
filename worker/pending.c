#include "worker/pending.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <stdlib.h>

struct pending {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	uint32_t max_wants, max_top, pool_width;
	float *scratch; /* [cap_scratch, pool_width] pinned */
	uint32_t cap_scratch;
	struct pending_plan plans[PENDING_AHEAD]; /* ring buffer */
	int first, n;
};

static size_t words(const struct pending *p)
{
	return p->max_wants * sizeof(int32_t);
}

static size_t tops(const struct pending *p)
{
	return words(p) * p->max_top;
}

/* ---- lifecycle ---- */

static bool plan_init(struct pending *p, struct pending_plan *f)
{
	const struct kern_ops *k = p->ops;
	f->wants = xcalloc(p->max_wants, sizeof *f->wants);
	f->open = xcalloc(p->max_wants, sizeof *f->open);
	f->done = k->event_new(p->dev);
	f->out.token = k->host_new(p->dev, words(p));
	f->out.logprob = k->host_new(p->dev, words(p));
	f->out.rank = k->host_new(p->dev, words(p));
	f->out.mu = k->host_new(p->dev, words(p));
	f->out.top_id = k->host_new(p->dev, tops(p));
	f->out.top_logprob = k->host_new(p->dev, tops(p));
	return f->done && f->out.token && f->out.logprob && f->out.rank && f->out.mu && f->out.top_id &&
	       f->out.top_logprob;
}

static void drop_failures(struct pending_plan *f)
{
	for (uint32_t i = 0; f->wants && i < f->n_wants; i++) {
		free(f->wants[i].failure);
		f->wants[i].failure = NULL;
	}
}

static void host_free(struct pending *p, void *mem, size_t bytes)
{
	if (mem)
		p->ops->host_free(p->dev, mem, bytes);
}

static size_t pool_bytes(const struct pending *p, uint32_t n)
{
	return (size_t)n * p->pool_width * sizeof(float);
}

static void pools_fini(struct pending *p, struct pending_plan *f)
{
	host_free(p, f->rows, pool_bytes(p, f->cap_pools));
	free(f->sums);
	free(f->pools);
	f->rows = NULL;
	f->sums = NULL;
	f->pools = NULL;
	f->cap_pools = 0;
}

static void plan_fini(struct pending *p, struct pending_plan *f)
{
	pools_fini(p, f);
	host_free(p, f->out.top_logprob, tops(p));
	host_free(p, f->out.top_id, tops(p));
	host_free(p, f->out.mu, words(p));
	host_free(p, f->out.rank, words(p));
	host_free(p, f->out.logprob, words(p));
	host_free(p, f->out.token, words(p));
	if (f->done)
		p->ops->event_free(f->done);
	drop_failures(f);
	free(f->wants);
	free(f->open);
}

int pending_new(struct pending **out, const struct kern_ops *ops, struct kern_dev *dev, uint32_t max_wants,
		uint32_t max_top, uint32_t pool_width, struct why *why)
{
	struct pending *p = xcalloc(1, sizeof *p);
	*p = (struct pending){
		.ops = ops, .dev = dev, .max_wants = max_wants, .max_top = max_top, .pool_width = pool_width};
	for (int i = 0; i < PENDING_AHEAD; i++) {
		if (!plan_init(p, &p->plans[i])) {
			const size_t bytes = PENDING_AHEAD * (4 * words(p) + 2 * tops(p));
			pending_free(p);
			return err_why(why, -ENOMEM,
				       "out of memory: %zu bytes of pinned memory for sampled tokens", bytes);
		}
	}
	*out = p;
	return 0;
}

void pending_free(struct pending *p)
{
	if (!p)
		return;
	for (int i = 0; i < PENDING_AHEAD; i++)
		plan_fini(p, &p->plans[i]);
	host_free(p, p->scratch, pool_bytes(p, p->cap_scratch));
	free(p);
}

/* ---- the ring ---- */

int pending_count(const struct pending *p)
{
	return p->n;
}

struct pending_plan *pending_add(struct pending *p)
{
	assert(p->n < PENDING_AHEAD);
	struct pending_plan *f = &p->plans[(p->first + p->n++) % PENDING_AHEAD];
	drop_failures(f);
	f->n_wants = 0;
	f->n_top = 0;
	f->n_pools = 0;
	f->n_open = 0;
	f->settled = false;
	f->counted = false;
	f->computes = false;
	return f;
}

struct pending_plan *pending_first(struct pending *p)
{
	return p->n ? &p->plans[p->first] : NULL;
}

void pending_drop(struct pending *p)
{
	assert(p->n > 0);
	p->first = (p->first + 1) % PENDING_AHEAD;
	p->n--;
}

void pending_undo(struct pending *p)
{
	assert(p->n > 0);
	p->n--;
}

void pending_clear(struct pending *p)
{
	p->n = 0;
}

struct pending_want *pending_room(const struct pending *p, struct pending_plan *f, int n, int stride,
				  struct kern_sample_out *out)
{
	const uint32_t at = f->n_wants;
	assert(n > 0 && (uint32_t)n <= p->max_wants - at);
	assert(stride >= 0 && (uint32_t)stride <= p->max_top);
	*out = (struct kern_sample_out){
		.token = f->out.token + at,
		.logprob = f->out.logprob + at,
		.rank = f->out.rank + at,
		.mu = f->out.mu + at,
		.top_id = f->out.top_id + f->n_top,
		.top_logprob = f->out.top_logprob + f->n_top,
		.top_stride = stride,
	};
	for (int i = 0; i < n; i++)
		f->wants[at + (uint32_t)i].top0 = f->n_top + (size_t)i * (size_t)stride;
	f->n_wants += (uint32_t)n;
	f->n_top += (size_t)n * (size_t)stride;
	return f->wants + at;
}

uint32_t pending_pool_width(const struct pending *p)
{
	return p->pool_width;
}

int pending_pools(struct pending *p, struct pending_plan *f, uint32_t n, struct why *why)
{
	assert(f->n_pools == 0);
	if (n > f->cap_pools) {
		pools_fini(p, f);
		f->rows = p->ops->host_new(p->dev, pool_bytes(p, n));
		if (!f->rows)
			return err_why(why, -ENOMEM,
				       "out of memory: %zu bytes of pinned memory for pooled rows",
				       pool_bytes(p, n));
		f->sums = xmalloc((size_t)n * p->pool_width * sizeof *f->sums);
		f->pools = xmalloc(n * sizeof *f->pools);
		f->cap_pools = n;
	}
	f->n_pools = n;
	return 0;
}

float *pending_scratch(struct pending *p, uint32_t n_rows)
{
	if (n_rows <= p->cap_scratch)
		return p->scratch;
	host_free(p, p->scratch, pool_bytes(p, p->cap_scratch));
	p->scratch = p->ops->host_new(p->dev, pool_bytes(p, n_rows));
	p->cap_scratch = p->scratch ? n_rows : 0;
	return p->scratch;
}
