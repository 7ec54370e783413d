#include "worker/experts/prefetch.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { SLOTS = 2 };

/* Operations per second of a thread, for experts with many rows, and bytes per second of a PCIe 4.0 x16
 * link at 80%: docs/performance/moe.md. */
static const double vnni_ops = 110e9, amx_ops = 475e9, link_bytes = 25e9;

struct packed {
	struct kern_experts *x; /* owned, as is host */
	void *host;
	size_t bytes;
};

struct slot {
	void *p; /* [slot_bytes] on the device */
	struct kern_event *filled, *computed;
};

struct prefetch {
	const struct kern_ops *ops; /* borrowed, as is dev */
	struct kern_dev *dev;
	struct kern_stream *copies;
	struct packed *layers; /* [n] of [cap] */
	int n, cap;
	struct slot slots[SLOTS];
	size_t slot_bytes;
};

/* ---- life ---- */

int prefetch_open(struct prefetch **out, const struct kern_ops *ops, struct kern_dev *dev, int n_layers,
		  struct why *why)
{
	struct prefetch *p = xcalloc(1, sizeof *p);
	bool there = true;
	*p = (struct prefetch){.ops = ops, .dev = dev, .cap = n_layers};
	p->layers = xcalloc((size_t)n_layers, sizeof *p->layers);
	p->copies = ops->stream_new(dev);
	for (int i = 0; i < SLOTS; i++) {
		p->slots[i].filled = ops->event_new(dev);
		p->slots[i].computed = ops->event_new(dev);
		there = there && p->slots[i].filled && p->slots[i].computed;
	}
	*out = p;
	if (p->copies && there)
		return 0;
	prefetch_close(p);
	*out = NULL;
	return err_why(why, -EIO, "no stream could be created for experts on their way to the device");
}

void prefetch_close(struct prefetch *p)
{
	if (!p)
		return;
	if (p->copies)
		p->ops->stream_sync(p->copies);
	for (int i = 0; i < p->n; i++) {
		p->ops->experts_free(p->layers[i].x);
		p->ops->host_free(p->dev, p->layers[i].host, p->layers[i].bytes);
	}
	for (int i = 0; i < SLOTS; i++) {
		if (p->slots[i].filled)
			p->ops->event_free(p->slots[i].filled);
		if (p->slots[i].computed)
			p->ops->event_free(p->slots[i].computed);
		if (p->slots[i].p)
			p->ops->mem_free(p->dev, p->slots[i].p, p->slot_bytes);
	}
	if (p->copies)
		p->ops->stream_free(p->copies);
	free(p->layers);
	free(p);
}

/* ---- load ---- */

int prefetch_add(struct prefetch *p, struct kern_experts **x, int *place, struct why *why)
{
	struct packed l = {.x = *x, .bytes = p->ops->experts_packed_bytes(*x)};
	int rc;
	assert(p->n < p->cap && !p->slot_bytes);
	*x = NULL;
	if (!(l.host = p->ops->host_new(p->dev, l.bytes)))
		rc = err_why(
			why, -ENOMEM,
			"out of memory: %zu bytes of pinned memory for a layer's experts, after %lld MiB "
			"of other layers'",
			l.bytes, (long long)(prefetch_host_bytes(p) >> 20));
	else if ((rc = p->ops->experts_save(l.x, l.host)))
		err_why(why, rc, "the packed experts could not be copied from the device");
	if (rc) {
		p->ops->experts_free(l.x);
		if (l.host)
			p->ops->host_free(p->dev, l.host, l.bytes);
		return rc;
	}
	*place = p->n;
	p->layers[p->n++] = l;
	return 0;
}

int prefetch_ready(struct prefetch *p, struct why *why)
{
	const int n_slots = p->n < SLOTS ? p->n : SLOTS;
	size_t most = 0;
	for (int i = 0; i < p->n; i++)
		most = p->layers[i].bytes > most ? p->layers[i].bytes : most;
	p->slot_bytes = most;
	for (int i = 0; i < n_slots; i++)
		if (!(p->slots[i].p = p->ops->mem_new(p->dev, most)))
			return err_why(why, -ENOMEM,
				       "out of memory: %d x %zu bytes on the device for a layer's experts",
				       n_slots, most);
	for (int i = 0; i < p->n; i++)
		p->ops->experts_place(p->layers[i].x, p->slots[i % SLOTS].p);
	return 0;
}

int64_t prefetch_host_bytes(const struct prefetch *p)
{
	int64_t n = 0;
	for (int i = 0; i < p->n; i++)
		n += (int64_t)p->layers[i].bytes;
	return n;
}

/* ---- a step ---- */

/* Queue the copy of layer i to its slot, after the slot's experts have been computed.  The event of a slot
 * not used yet counts as done. */
static int fill(struct prefetch *p, int i)
{
	const struct packed *l = &p->layers[i];
	struct slot *s = &p->slots[i % SLOTS];
	int rc;
	if ((rc = p->ops->event_wait(s->computed, p->copies)) ||
	    (rc = p->ops->upload(p->copies, s->p, l->host, l->bytes)))
		return rc;
	return p->ops->event_record(s->filled, p->copies);
}

/* If the previous step is still in flight, its last layers occupy the slots; fill() waits for their
 * events. */
int prefetch_begin(struct prefetch *p)
{
	int rc = 0;
	for (int i = 0; i < SLOTS && i < p->n && !rc; i++)
		rc = fill(p, i);
	return rc;
}

int prefetch_take(struct prefetch *p, struct kern_stream *s, int place, const struct kern_experts **x)
{
	assert(place < p->n);
	*x = p->layers[place].x;
	return p->ops->event_wait(p->slots[place % SLOTS].filled, s);
}

int prefetch_give(struct prefetch *p, struct kern_stream *s, int place)
{
	int rc = p->ops->event_record(p->slots[place % SLOTS].computed, s);
	return rc || place + SLOTS >= p->n ? rc : fill(p, place + SLOTS);
}

/* ---- planning ---- */

int prefetch_check_room(const struct prefetch_room *r, struct why *why)
{
	if (r->kept + r->bytes <= r->free)
		return 0;
	return err_why(
		why, -ENOMEM,
		"the experts on the CPU take %lld MiB, and %lld MiB of pinned memory for the copy that "
		"--fast "
		"streams to the GPU in steps of more than %d rows, but only %lld are free: compute them on "
		"the CPU in all steps (--send-experts-above 0), or keep more layers' experts on the GPU "
		"(--place)",
		(long long)(r->kept >> 20), (long long)(r->bytes >> 20), r->above,
		(long long)(r->free >> 20));
}

/* With n rows, an expert has n C / E of them: 2 n C / E operations per weight on the CPU, weight_bytes per
 * weight on the link.  The CPU's memory is faster than the link, so streaming never pays for few rows. */
int prefetch_crossover(const struct prefetch_shape *m)
{
	const double each = m->weight_bytes * m->n_threads * (m->amx ? amx_ops : vnni_ops) / (2 * link_bytes);
	const double rows = ceil(each * m->n_experts / m->n_chosen);
	return rows < INT_MAX ? (int)rows : INT_MAX;
}
