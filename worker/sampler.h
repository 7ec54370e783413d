/* sampler.h - turns parameters of sequences into the kernels' sampling rows, and their output into a
 * result.
 * The choice itself is made by the table of operations (kern_ops.sample).
 *
 * A row is queued with its step and read when the step is done.  Meanwhile the next step may be queued,
 * which reads the chosen token on the device. */
#ifndef QUERN_WORKER_SAMPLER_H
#define QUERN_WORKER_SAMPLER_H

#include "base/err.h"
#include "kernels/kern.h"
#include "proto/plan.h"
#include "worker/batch.h"
#include "worker/pending.h"
#include "worker/slots.h"

#include <stdatomic.h>
#include <stddef.h>

struct guide;
struct tp_group;
struct trace;
struct sampler;

struct sampler_args {
	const struct kern_ops *ops;
	struct kern_stream *stream;
	struct slots *slots;
	struct pending *pending;
	struct guide *guide;  /* NULL: this rank does not choose tokens */
	struct trace *trace;  /* or NULL */
	atomic_ullong *moves; /* progress counter (model.h), incremented for every mask; or NULL */
	int n_vocab;
	int max; /* rows per call */
};

/* Create a sampler; all pointers are borrowed.  -ENOMEM with the bytes. */
int sampler_new(struct sampler **out, const struct sampler_args *a, struct why *why);
void sampler_free(struct sampler *s); /* NULL is fine */
/* Rank 0 of a group: a mask that ends this long after the last notice, or after the begin of the call,
 * sends a notice to the other ranks. */
void sampler_notify_after(struct sampler *s, int64_t us);

/* For n wants, the i-th with row i of logits: queue the choice; its result goes to f.  The slots then have
 * one more token.  The mask of a structured output depends on the tokens of the plan before f.  The call
 * waits for these, while the device computes the layers that are queued before the choice. */
int sampler_queue(struct sampler *s, struct tp_group *g, const void *logits, const struct batch_want *wants,
		  int n, struct pending_plan *f, struct why *why);

/* For ranks other than 0: take part in the choice of rank 0, which calls sampler_queue() with the same
 * wants (g: NULL without a group).  The tokens go from device to device, queued.  The ranks wait for each
 * other only if there is a structured output: rank 0 then sends which rows sit out.  If masks take long, as
 * with many new constraints, rank 0 first sends notices, so that the others do not time out. */
int sampler_receive(struct sampler *s, struct tp_group *g, const struct batch_want *wants, int n,
		    struct pending_plan *f, struct why *why);

/* Add the chosen tokens to r, once f's event is done.  -EIO: the device returned an invalid token. */
int sampler_take(struct sampler *s, const struct pending_plan *f, struct result *r, struct why *why);

#endif
