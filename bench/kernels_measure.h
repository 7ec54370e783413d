/* kernels_measure.h - measures the share of its roof that a kernel reaches, alternating with a probe of the
 * machine.
 *
 *     probe | kernel | probe | kernel | ...       up to PAIRS_MAX pairs, each pass about PASS_US
 *
 * A kernel's roof is the lower of two rates: memory bandwidth times its intensity (operations per byte read),
 * and the peak of the instruction that it uses.  On a shared machine both vary by half within a minute.
 * Therefore each pair gives one share, and the median of the shares is reported; rates are medians too. */
#ifndef QUERN_BENCH_KERNELS_MEASURE_H
#define QUERN_BENCH_KERNELS_MEASURE_H

#include "bench/sim/samples.h"
#include "kernels/cpu/probe.h"
#include "kernels/kern.h"

#include <stdbool.h>

enum { PAIRS_MAX = 20 };

/* A kernel call to time. */
struct kernels_case {
	const char *op; /* "qkv", "attention decode" */
	int rows;
	double bytes, ops;              /* per call; ops 0: too few to count */
	enum probe_kind memory;         /* PROBE_READ, or PROBE_READ_L2 for data that a cache holds */
	enum probe_kind peak;           /* PROBE_KINDS: unknown */
	double peak_part;               /* fraction of the peak that the kernel can reach: 0.5 if a product
					 * takes two instructions */
	void (*call)(void *arg, int i); /* queues the i-th call */
	void *arg;
};

struct kernels_point {
	const char *compute, *op, *kv; /* "int8", "qkv", "bf16" or "" */
	int rows;
	double us, gbs, gops; /* per call: microseconds, 1e9 bytes and 1e9 operations per second */
	double intensity;     /* operations per byte */
	double roof_gops;     /* 0: unknown */
	double roof_gbs;
	double share; /* fraction of the roof, median of the pairs; 0: unknown */
	int pairs;
};

struct kernels_meter {
	const struct kern_ops *ops;
	struct kern_stream *stream;
	struct probe *probe; /* NULL: the device is not a CPU, and there are no roofs */
	int n_threads;
	double seconds;                    /* time limit of one case, after its first three pairs */
	struct samples rates[PROBE_KINDS]; /* rates of all passes, 1e9 per second */
};

/* Run every probe once or a few times, so that the roofs have initial values. */
void kernels_meter_begin(struct kernels_meter *m);
void kernels_meter_fini(struct kernels_meter *m);
/* Return the median of all passes of a probe so far. */
double kernels_meter_rate(struct kernels_meter *m, enum probe_kind k);

void kernels_measure(struct kernels_meter *m, const struct kernels_case *c, struct kernels_point *out);

#endif
