/* operand.c - what linear layers read: floats, or the bytes and scales of dot.h. */
#include "kernels/cpu/cpu.h"

#include <string.h>

bool cpu_is_integer(const struct kern_dev *d)
{
	return d->args.compute == KERN_COMPUTE_INT8 || d->args.compute == KERN_COMPUTE_INT16;
}

struct cpu_operand cpu_operand(const struct kern_dev *d, int k)
{
	struct cpu_operand op = {.k = k, .k_pad = (k + ACT_GROUP - 1) / ACT_GROUP * ACT_GROUP};
	op.wide = d->args.compute != KERN_COMPUTE_INT8;
	op.scales = (size_t)op.k_pad * (op.wide ? 2 : 1);
	op.sums = op.scales + (size_t)(op.k_pad / ACT_GROUP) * sizeof(float);
	op.row = op.sums + (size_t)(op.k_pad / ACT_SUM + 1) * sizeof(uint32_t);
	op.row = (op.row + 63) & ~(size_t)63;
	return op;
}

size_t cpu_operand_bytes(struct kern_dev *d, int n_rows, int width)
{
	return (size_t)n_rows *
	       (cpu_is_integer(d) ? cpu_operand(d, width).row : (size_t)width * sizeof(float));
}

struct rows {
	const struct cpu_dot *dot;
	struct cpu_operand op;
	unsigned char *out;
	const float *x;
};

static void quantize_row(void *arg, int t, int thread)
{
	const struct rows *r = arg;
	(void)thread;
	r->dot->quantize(r->out + (size_t)t * r->op.row, r->x + (size_t)t * (size_t)r->op.k, &r->op);
}

void cpu_quantize(struct kern_dev *d, void *out, const float *x, int n_rows, int k)
{
	struct rows r = {.dot = d->dot, .op = cpu_operand(d, k), .out = out, .x = x};
	cpu_run(d, n_rows, (int64_t)n_rows * k / 4, quantize_row, &r);
}

void cpu_dequantize(float *out, const unsigned char *row, const struct cpu_operand *op, int k0, int n)
{
	float a;
	memcpy(&a, row + op->scales + (size_t)(k0 / ACT_GROUP) * sizeof a, sizeof a);
	for (int i = 0; i < n; i++) {
		int32_t q = (int8_t)row[k0 + i];
		if (op->wide)
			q = q * 256 + (int8_t)row[op->k_pad + k0 + i];
		out[i] = a * (float)q;
	}
}
