/* trace.h - where the time of each step goes: a line of JSON per step in a file, for `quern bench engine` and
 * to find out why a service is slow.  A worker without one spends a test of a pointer per mark.
 *
 * Marks follow each other, and each ends a stretch of time of its kind:
 *
 *     device     sample n |                              | embed, layers, head, sample n+1
 *     marks        SAMPLE ^  RESULT ^  MESSAGE ^  PREPARE ^
 *                         '---------- the device waits ---'
 *
 * On a device that works beside the host (a GPU), marks say when the host has queued work, not when it is
 * done.
 *
 * The first line of a load describes it (struct trace_load), the others are steps:
 *     {"load":1,"pid":..,"compute":"int8",..,"layers_bytes":..,"head_bytes":..,"kv_token_bytes":..,"expert_bytes":..}
 *     {"pid":..,"number":7,"at_us":..,"rows":1,"seqs":1,"context":128,"experts":0,"ns":{"linear":..,"sample":..,..}}
 */
#ifndef QUERN_WORKER_TRACE_H
#define QUERN_WORKER_TRACE_H

#include <stddef.h>
#include <stdint.h>

enum trace_kind {
	TRACE_RESULT,  /* the result of the step before is encoded and sent */
	TRACE_MESSAGE, /* until the plan is there */
	TRACE_PREPARE, /* the plan is decoded, state and batch are made */
	TRACE_ROWS,    /* embedding, norms, rotations, K and V into the cache */
	TRACE_LINEAR,  /* linear layers, with SwiGLU */
	TRACE_ATTENTION,
	TRACE_GROUP, /* sums and waits of a tensor-parallel group */
	TRACE_HEAD,  /* the last norm and the logits */
	TRACE_MASK,  /* which tokens may come next, where outputs have a form */
	TRACE_SAMPLE,
	TRACE_KINDS,
};
const char *trace_name(enum trace_kind k); /* "linear": its name in the lines */

struct trace;

/* Appends to the file, which several workers may share.  -errno with the reason. */
int trace_open(struct trace **out, const char *path, char *why, size_t why_n);
void trace_close(struct trace *t); /* writes what is left; NULL is fine */

/* What a step reads and computes. */
struct trace_load {
	const char *device, *mode, *isa; /* "cpu", and as in kern_info */
	int n_threads;
	int64_t layers_bytes, head_bytes; /* of weights */
	int64_t kv_token_bytes;           /* of K and V of a token, all layers */
	int64_t layers_macs, head_macs;   /* multiply-adds of a row */
	int64_t experts,
		expert_bytes; /* of layers_bytes: experts that a row has in all layers, bytes of one */
};
void trace_load(struct trace *t, const struct trace_load *l);

struct trace_step {
	uint64_t number;
	int64_t rows, seqs, samples;
	int64_t context; /* positions that the rows of the step look at, one row of each sequence counted */
};

/* The step reads n experts in one more layer: the weights of those that some row of it has. */
void trace_experts(struct trace *t, int64_t n);
/* The time since the last mark was of this kind. */
void trace_add(struct trace *t, enum trace_kind k);
/* The step is over: its line, with all that was marked since the line before. */
void trace_end(struct trace *t, const struct trace_step *s);

static inline void trace_mark(struct trace *t, enum trace_kind k)
{
	if (t)
		trace_add(t, k);
}

#endif
