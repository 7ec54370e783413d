/* shapes.h - one table of kernels beside another: what shapes.c and shapes_seq.c share.
 *
 * The device under test gets the same inputs as the CPU's table in mode f32, which the kernel tests hold
 * against double precision.  A result must be near the CPU's, and a row must have the same bits whatever the
 * number of rows beside it. */
#ifndef QUERN_TESTS_GPU_SHAPES_H
#define QUERN_TESTS_GPU_SHAPES_H

#include "bench/layers.h"
#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct side {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *s;
	enum kern_dtype op; /* operands */
};

struct shapes {
	const struct layers_model *m;
	const char *device;
	bool small;           /* made-up shapes, for the emulated device */
	enum kern_dtype type; /* that the model is said to be trained in: F16 or BF16 */
	struct side dev, cpu;
	FILE *json;
	int n_checked, n_bad;
};

/* Rows of a batch repeat with this period: no tile's number of rows is a multiple of it, so that a row which
 * lands in the place of another is seen. */
enum { PERIOD = 13 };

/* The i-th of a stream of random words. */
uint64_t shapes_random(uint64_t seed, uint64_t i);
/* n random values of the operand type t, of either sign, from 2^-7 to 2^-4. */
void shapes_fill(uint16_t *out, enum kern_dtype t, size_t n, uint64_t seed);

/* Memory with these values of type t (F16, BF16), as the side's operands. */
void *side_put_op(const struct side *d, const uint16_t *values, enum kern_dtype t, size_t n);
void *side_put(const struct side *d, const void *from, size_t bytes);
void *side_new(const struct side *d, size_t bytes); /* each byte 0xff: a value that was not written shows */
void side_get(const struct side *d, void *to, const void *from, size_t bytes);
/* n operands, or values of F32, as floats. */
void side_get_floats(const struct side *d, float *to, const void *from, size_t n, bool f32);
void side_free(const struct side *d, void *p, size_t bytes);
size_t side_op_bytes(const struct side *d);
void shapes_must(int rc, const char *what); /* ends the program for an error of the device */

/* ||got - expected|| / ||expected||; infinite for what is no number. */
double shapes_error(const float *got, const float *expected, size_t n);
/* The tolerance of a result of the device's operand type, or of F32. */
double shapes_limit(const struct shapes *z, bool f32);
/* Notes a result: its error against the CPU, and whether the bits were those of another batch. */
void shapes_result(struct shapes *z, const char *op, const char *type, int rows, double error, double limit,
		   bool same);

/* Embedding, gather, norm, rotation, attention, sampler. */
void shapes_check_embed(struct shapes *z);
void shapes_check_norm(struct shapes *z);
void shapes_check_attention(struct shapes *z);
void shapes_check_sampler(struct shapes *z);

#endif
