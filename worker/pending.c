#include "worker/pending.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <stdlib.h>

struct pending {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	uint32_t max_wants, max_top;
	struct pending_plan plans[PENDING_AHEAD]; /* ring */
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
	f->done = k->event_new(p->dev);
	f->out.token = k->host_new(p->dev, words(p));
	f->out.logprob = k->host_new(p->dev, words(p));
	f->out.rank = k->host_new(p->dev, words(p));
	f->out.top_id = k->host_new(p->dev, tops(p));
	f->out.top_logprob = k->host_new(p->dev, tops(p));
	return f->done && f->out.token && f->out.logprob && f->out.rank && f->out.top_id &&
	       f->out.top_logprob;
}

static void host_free(struct pending *p, void *mem, size_t bytes)
{
	if (mem)
		p->ops->host_free(p->dev, mem, bytes);
}

static void plan_fini(struct pending *p, struct pending_plan *f)
{
	host_free(p, f->out.top_logprob, tops(p));
	host_free(p, f->out.top_id, tops(p));
	host_free(p, f->out.rank, words(p));
	host_free(p, f->out.logprob, words(p));
	host_free(p, f->out.token, words(p));
	if (f->done)
		p->ops->event_free(f->done);
	free(f->wants);
}

int pending_new(struct pending **out, const struct kern_ops *ops, struct kern_dev *dev, uint32_t max_wants,
		uint32_t max_top, char *why, size_t why_n)
{
	struct pending *p = xcalloc(1, sizeof *p);
	*p = (struct pending){.ops = ops, .dev = dev, .max_wants = max_wants, .max_top = max_top};
	for (int i = 0; i < PENDING_AHEAD; i++) {
		if (!plan_init(p, &p->plans[i])) {
			const size_t bytes = PENDING_AHEAD * (3 * words(p) + 2 * tops(p));
			pending_free(p);
			return err_why(why, why_n, -ENOMEM,
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
	f->n_wants = 0;
	f->n_top = 0;
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
