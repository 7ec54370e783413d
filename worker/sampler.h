/* sampler.h - from the parameters of sequences to the kernels' sampling rows, and from their
 * output to a result.  The choosing itself is the table's (kern_ops.sample).
 *
 * A row is queued with its step and read when the step is done: between the two the next step may
 * be queued, which finds the chosen token on the device. */
#ifndef QUERN_WORKER_SAMPLER_H
#define QUERN_WORKER_SAMPLER_H

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
	struct guide *guide;  /* NULL: this rank does not choose */
	struct trace *trace;  /* or NULL */
	atomic_ullong *moves; /* progress counter (model.h): grows with every mask; or NULL */
	int n_vocab;
	int max; /* rows of one call */
};

/* All pointers are borrowed.  -ENOMEM with the bytes. */
int sampler_new(struct sampler **out, const struct sampler_args *a, char *why, size_t why_n);
void sampler_free(struct sampler *s); /* NULL is fine */
/* Rank 0 of a group: a mask that ends this long after the last notice, or the call's begin, sends a notice.
 */
void sampler_notify_after(struct sampler *s, int64_t us);

/* For n wants, the i-th about row i of logits: queue the choice; its result comes into f.  The
 * slots have a token more from now on.  Where an output has a form, its mask depends on the tokens of the
 * plan before f: the call waits for them, while the device has the layers that are queued before it. */
int sampler_queue(struct sampler *s, struct tp_group *g, const void *logits, const struct batch_want *wants,
		  int n, struct pending_plan *f, char *why, size_t why_n);

/* Of a group, rank 0 chooses, waits, and sends the tokens to the others (g: NULL without a group);
 * these call sampler_hear() instead, with the same wants.  Where masks take long, as with the first ones of
 * many forms, rank 0 sends notices before, so that the others do not give it up. */
int sampler_hear(struct sampler *s, struct tp_group *g, const struct batch_want *wants, int n,
		 struct pending_plan *f, char *why, size_t why_n);

/* What was chosen, once f's event has come: added to r.  -EIO: not a token. */
int sampler_take(struct sampler *s, const struct pending_plan *f, struct result *r, char *why, size_t why_n);

#endif
