/* sampler.h - from the parameters of sequences to the kernels' sampling rows, and from their
 * output to a result.  The choosing itself is the table's (kern_ops.sample). */
#ifndef QUERN_WORKER_SAMPLER_H
#define QUERN_WORKER_SAMPLER_H

#include "kernels/kern.h"
#include "proto/plan.h"
#include "worker/batch.h"
#include "worker/slots.h"

#include <stddef.h>

struct group;
struct sampler;

/* max: rows of one call.  ops, dev, stream and slots are borrowed.  -ENOMEM. */
int sampler_new(struct sampler **out, const struct kern_ops *ops, struct kern_dev *dev,
		struct kern_stream *stream, struct slots *slots, int n_vocab, int max, char *why,
		size_t why_n);
void sampler_free(struct sampler *s); /* NULL is fine */

/* For n wants, the i-th about row i of logits: queue the choice, wait, take it down in r and in
 * the slots. */
int sampler_run(struct sampler *s, struct group *g, const void *logits, const struct batch_want *wants, int n,
		struct result *r, char *why, size_t why_n);

/* Of a group, rank 0 chooses and tells the others (g: NULL where there is nobody to tell); these
 * call sampler_hear() instead, with the same wants. */
int sampler_hear(struct sampler *s, struct group *g, const struct batch_want *wants, int n, char *why,
		 size_t why_n);

#endif
