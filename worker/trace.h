/* trace.h - times of each step: a line of JSON per step in a file, for `quern bench engine` and to find out
 * why a service is slow.
 * Without a trace, a worker spends one test of a pointer per mark.
 *
 * Each mark ends a stretch of time of its kind, which began at the previous mark:
 *
 *     device     sample n |                              | embed, layers, head, sample n+1
 *     marks        SAMPLE ^  RESULT ^  MESSAGE ^  PREPARE ^
 *                         '---------- the device waits ---'
 *
 * On an asynchronous device (a GPU), marks show when the host has queued work, not when it is done.
 *
 * The first line of a load describes it (struct trace_load), the others are steps:
 *     {"load":1,"pid":..,"compute":"int8",..,"layers_bytes":..,"head_bytes":..,"kv_token_bytes":..,..}
 *     {"pid":..,"number":7,"at_us":..,"rows":1,"seqs":1,"context":128,"experts":0,"ns":{"linear":..,..}} */
#ifndef QUERN_WORKER_TRACE_H
#define QUERN_WORKER_TRACE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum trace_kind {
	TRACE_RESULT,  /* encode and send the previous step's result */
	TRACE_MESSAGE, /* wait for the plan */
	TRACE_PREPARE, /* decode the plan, update the state, build the batch */
	TRACE_ROWS,    /* embedding, norms, rotations, K and V into the cache */
	TRACE_LINEAR,  /* linear layers, with SwiGLU */
	TRACE_ATTENTION,
	TRACE_GROUP, /* sums and waits of a tensor-parallel group */
	TRACE_HEAD,  /* final norm and logits */
	TRACE_MASK,  /* masks of structured outputs */
	TRACE_SAMPLE,
	TRACE_KINDS,
};
const char *trace_name(enum trace_kind k); /* "linear": name in the trace */

struct trace;

/* Open the file for appending; several workers may share it.  -errno with the reason. */
int trace_open(struct trace **out, const char *path, struct why *why);
void trace_close(struct trace *t); /* writes the remaining lines; NULL is fine */

/* Bytes that a step reads, and multiply-adds. */
struct trace_load {
	const char *device, *mode, *isa; /* "cpu", and as in kern_info */
	int n_threads;
	int64_t layers_bytes, head_bytes; /* bytes of weights */
	int64_t kv_token_bytes;           /* K and V of a token, all layers */
	int64_t layers_macs, head_macs;   /* multiply-adds per row */
	int64_t experts,
		expert_bytes; /* experts per row in all layers, and bytes of one: included in layers_bytes */
};
void trace_load(struct trace *t, const struct trace_load *l);

struct trace_step {
	uint64_t number;
	int64_t rows, seqs, samples;
	int64_t context; /* positions that the step's rows attend to, counting one row per sequence */
};

/* Record that the step reads n experts in one more layer: those that at least one row has. */
void trace_experts(struct trace *t, int64_t n);
/* Add the time since the last mark to this kind. */
void trace_add(struct trace *t, enum trace_kind k);
/* End the step: write its line, with all marks since the previous line. */
void trace_end(struct trace *t, const struct trace_step *s);

static inline void trace_mark(struct trace *t, enum trace_kind k)
{
	if (t)
		trace_add(t, k);
}

#endif
