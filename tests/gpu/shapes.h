/* shapes.h - comparison of a device's kernels with the CPU's: declarations that shapes.c and shapes_seq.c
 * share.
 *
 * The device under test gets the same inputs as the CPU's table in mode f32, which the kernel tests compare
 * with double precision.  A result must be close to the CPU's, and a row must have the same bits whatever the
 * number of other rows in the batch. */
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
	enum kern_dtype op; /* operand type */
};

struct shapes {
	const struct layers_model *m;
	const char *device;
	bool small;           /* small test shapes, for the emulated device */
	enum kern_dtype type; /* assumed training type of the model: F16 or BF16 */
	struct side dev, cpu; /* one may be closed (ops NULL): see shapes_reference() */
	FILE *json;
	FILE *references; /* file of the CPU's results, read or written; NULL: none */
	bool write;       /* only write references; no device is opened */
	int n_checked, n_bad;
};

/* Rows of a batch repeat with this period.  No tile's number of rows is a multiple of it, so that a row
 * stored in another row's place is detected. */
enum { PERIOD = 7 };

/* Return word i of a random stream. */
uint64_t shapes_random(uint64_t seed, uint64_t i);
/* Fill out with n random values of the operand type t, of either sign, from 2^-7 to 2^-4. */
void shapes_fill(uint16_t *out, enum kern_dtype t, size_t n, uint64_t seed);

/* Allocate memory with these values of type t (F16, BF16), converted to the side's operand type. */
void *side_put_op(const struct side *d, const uint16_t *values, enum kern_dtype t, size_t n);
void *side_put(const struct side *d, const void *from, size_t bytes);
void *side_new(const struct side *d, size_t bytes); /* filled with 0xff, so that an unwritten value shows */
void side_get(const struct side *d, void *to, const void *from, size_t bytes);
/* Copy n operands, or F32 values, to floats. */
void side_get_floats(const struct side *d, float *to, const void *from, size_t n, bool f32);
void side_free(const struct side *d, void *p, size_t bytes);
size_t side_op_bytes(const struct side *d);
void shapes_must(int rc, const char *what); /* ends the program on a device error */

/* Provide the CPU table's n values for an operation: computed into `values` by the CPU side, or read from the
 * file.  kept: which values the file has (NULL: all); the others become NAN.  whole: exact values.  Returns
 * false if there is no device to compare with. */
bool shapes_reference(struct shapes *z, const char *op, const char *type, float *values, const bool *kept,
		      size_t n, bool whole);

/* Return ||got - expected|| / ||expected||, infinite if a result is not a number.  Values whose expected
 * value is NAN are skipped. */
double shapes_error(const float *got, const float *expected, size_t n);
/* Return the tolerance of a result of the device's operand type, or of F32. */
double shapes_limit(const struct shapes *z, bool f32);
/* Record a result: its error against the CPU, and whether its bits equal those of another batch. */
void shapes_result(struct shapes *z, const char *op, const char *type, int rows, double error, double limit,
		   bool same);

/* Check embedding, gather, norm, rotation, attention and sampler. */
void shapes_check_embed(struct shapes *z);
void shapes_check_norm(struct shapes *z);
void shapes_check_attention(struct shapes *z);
void shapes_check_sampler(struct shapes *z);

#endif
