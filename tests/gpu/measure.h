/* measure.h - kernel speed on a device: declarations that the measure*.c files share.
 *
 * Calls are queued by the table's own graphs, as a worker replays them, so that host time is not measured.
 * Each figure is the median of several replays, per call.  Results are lines of JSON, written at once. */
#ifndef QUERN_TESTS_GPU_MEASURE_H
#define QUERN_TESTS_GPU_MEASURE_H

#include "base/err.h"
#include "bench/layers.h"
#include "kernels/kern.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { MEASURE_ROWS = 8192, MEASURE_SEQS = 256, MEASURE_CONTEXT = 32768, MEASURE_BLOCK = 16 };

/* Cases to measure: all, the most informative, or the others. */
enum measure_part { PART_ALL, PART_FIRST, PART_REST };

struct measure {
	const char *device;
	bool small; /* small test shapes, for the emulated device */
	bool bf16;  /* BF16 operands and plain weights, else F16 */
	enum measure_part part;
	const struct layers_model *model;
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *s;
	struct kern_info info;
	FILE *json;
};

/* Open the device; on failure, end the program with the reason. */
void measure_open(struct measure *m, bool fast);
/* Open the device, or return the error. */
int measure_try(struct measure *m, bool fast, struct why *why);
void measure_close(struct measure *m);
/* Return whether the selected part includes a case; first: the case is one of the most informative. */
bool measure_has(const struct measure *m, bool first);
void measure_die(const char *what, const char *why);
void measure_must(int rc, const char *what);
void *measure_mem(struct measure *m, size_t bytes); /* zeroed */
/* Return memory of n random operands. */
void *measure_random(struct measure *m, size_t n);

/* Queue of calls: the table's stream or cuBLAS's. */
struct queue {
	void *at;
	bool brief;             /* only a call or two, for the emulated device */
	int (*begin)(void *at); /* NULL: calls cannot be recorded as a graph */
	int (*end)(void *at);
	int (*launch)(void *at);
	int (*sync)(void *at);
	void (*forget)(void *at);
};

/* Queue of the table's stream.  Its graphs need batches with a pad_to. */
struct kern_queue {
	struct measure *m;
	struct kern_graph *g;
};
struct queue kern_queue(struct kern_queue *k, struct measure *m, bool graphs);

/* Return the microseconds per call of call(arg, i), for i ascending from 0.  least: minimum of consecutive
 * calls, so that data used in rotation is not cached. */
double measure_us(const struct queue *q, int (*call)(void *arg, int i), void *arg, int least);

/* Return the read plus written bytes per second of a copy within the device, in GB/s. */
double measure_copy_gbps(struct measure *m);

int measure_linear(struct measure *m);
int measure_stream(struct measure *m);
int measure_attention(struct measure *m);
int measure_sampler(struct measure *m);

#endif
