/* kernels_measure.h - a kernel beside a probe of the machine, in turns, and what share of its roof it
 * reaches.
 *
 *     probe | kernel | probe | kernel | ...       up to PAIRS_MAX pairs, each pass about PASS_US
 *
 * The roof of a kernel is what memory gives at its intensity (operations per byte read), or the peak of the
 * instruction that it runs on, whichever is lower.  On a shared machine both swing by half within a minute,
 * so each pair gives one share, and the median of them is reported; so are rates. */
#ifndef QUERN_BENCH_KERNELS_MEASURE_H
#define QUERN_BENCH_KERNELS_MEASURE_H

#include "bench/sim/samples.h"
#include "kernels/cpu/probe.h"
#include "kernels/kern.h"

#include <stdbool.h>

enum { PAIRS_MAX = 20 };

/* Something to time. */
struct kernels_case {
	const char *op; /* "qkv", "attention decode" */
	int rows;
	double bytes, ops;              /* of one call; ops 0: none worth counting */
	enum probe_kind memory;         /* PROBE_READ, or PROBE_READ_L2 for what a cache holds */
	enum probe_kind peak;           /* PROBE_KINDS: unknown */
	double peak_part;               /* of that peak: 0.5 where a product takes two instructions' worth */
	void (*call)(void *arg, int i); /* queues the i-th call */
	void *arg;
};

struct kernels_point {
	const char *compute, *op, *kv; /* "int8", "qkv", "bf16" or "" */
	int rows;
	double us, gbs, gops; /* of a call: time, bytes and operations per second in 1e9 */
	double intensity;     /* operations per byte */
	double roof_gops;     /* 0: unknown */
	double roof_gbs;
	double share; /* of the roof, median of the pairs; 0: unknown */
	int pairs;
};

struct kernels_meter {
	const struct kern_ops *ops;
	struct kern_stream *stream;
	struct probe *probe; /* NULL: not a CPU, and no roofs */
	int n_threads;
	double seconds;                    /* most that one case takes, once three pairs are there */
	struct samples rates[PROBE_KINDS]; /* of all passes, 1e9 per second */
};

/* Probes every kind once or a few times, so that the roofs have first values. */
void kernels_meter_begin(struct kernels_meter *m);
void kernels_meter_fini(struct kernels_meter *m);
/* The median of all passes so far. */
double kernels_meter_rate(struct kernels_meter *m, enum probe_kind k);

void kernels_measure(struct kernels_meter *m, const struct kernels_case *c, struct kernels_point *out);

#endif
