/* measure.h - how fast kernels are on a device: what the measure*.c files share.
 *
 * Calls are queued by the table's own graphs, as a worker replays them, so that the host is not measured;
 * each figure is the median of several replays, per call.  Results are lines of JSON, written at once. */
#ifndef QUERN_TESTS_GPU_MEASURE_H
#define QUERN_TESTS_GPU_MEASURE_H

#include "bench/layers.h"
#include "kernels/kern.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { MEASURE_ROWS = 8192, MEASURE_SEQS = 256, MEASURE_CONTEXT = 32768, MEASURE_BLOCK = 16 };

struct measure {
	const char *device;
	bool small; /* made-up shapes, for the emulated device */
	bool bf16;  /* operands, and plain weights */
	const struct layers_model *model;
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *s;
	struct kern_info info;
	FILE *json;
};

/* Opens the device; ends the program, with the reason, where that fails. */
void measure_open(struct measure *m, bool fast);
/* The same, but returns the error. */
int measure_try(struct measure *m, bool fast, char *why, size_t why_n);
void measure_close(struct measure *m);
void measure_die(const char *what, const char *why);
void measure_must(int rc, const char *what);
void *measure_mem(struct measure *m, size_t bytes); /* zeroed */
/* Memory of n operands, random. */
void *measure_random(struct measure *m, size_t n);

/* Where calls are queued: the table's stream, or cuBLAS's. */
struct queue {
	void *at;
	bool brief;             /* a call or two: for the emulated device */
	int (*begin)(void *at); /* NULL: calls cannot be kept as a graph */
	int (*end)(void *at);
	int (*launch)(void *at);
	int (*sync)(void *at);
	void (*forget)(void *at);
};

/* Of the table's stream; batches must be set with a pad_to for its graphs. */
struct kern_queue {
	struct measure *m;
	struct kern_graph *g;
};
struct queue kern_queue(struct kern_queue *k, struct measure *m, bool graphs);

/* Microseconds per call of call(arg, i), i ascending from 0; least: calls in a row, so that data which is
 * used in turn is not in a cache. */
double measure_us(const struct queue *q, int (*call)(void *arg, int i), void *arg, int least);

/* Read and written bytes per second of a copy within the device, in GB/s. */
double measure_copy_gbps(struct measure *m);

int measure_linear(struct measure *m);
int measure_attention(struct measure *m);
int measure_sampler(struct measure *m);

#endif
