/* sampler.h - from the parameters of sequences to the kernels' sampling rows, and from their
 * output to a result.  The choosing itself is the table's (kern_ops.sample). */
#ifndef QUERN_WORKER_SAMPLER_H
#define QUERN_WORKER_SAMPLER_H

#include "kernels/kern.h"
#include "proto/plan.h"
#include "worker/batch.h"
#include "worker/slots.h"

#include <stddef.h>

struct sampler;

/* max: rows of one call.  ops, dev, stream and slots are borrowed.  -ENOMEM. */
int sampler_new(struct sampler **out, const struct kern_ops *ops, struct kern_dev *dev,
		struct kern_stream *stream, struct slots *slots, int n_vocab, int max, char *why,
		size_t why_n);
void sampler_free(struct sampler *s); /* NULL is fine */

/* For n wants, the i-th about row i of logits: queue the choice, wait, take it down in r and in
 * the slots. */
int sampler_run(struct sampler *s, const void *logits, const struct batch_want *wants, int n,
		struct result *r, char *why, size_t why_n);

#endif
