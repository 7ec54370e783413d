/* operand.c - the operands of linear layers: floats, the bytes and scales of dot.h, or the values of
 * bf16.h. */
#include "kernels/cpu/cpu.h"

#include <string.h>

bool cpu_is_integer(const struct kern_dev *d)
{
	return d->args.compute == KERN_COMPUTE_INT8 || d->args.compute == KERN_COMPUTE_INT16;
}

bool cpu_has_operands(const struct kern_dev *d)
{
	return cpu_is_integer(d) || d->bf16;
}

static struct cpu_operand make_operand(int k, bool wide)
{
	struct cpu_operand op = {.k = k, .k_pad = (k + ACT_GROUP - 1) / ACT_GROUP * ACT_GROUP, .wide = wide};
	op.scales = (size_t)op.k_pad * (op.wide ? 2 : 1);
	op.sums = op.scales + (size_t)(op.k_pad / ACT_GROUP) * sizeof(float);
	op.row = op.sums + (size_t)(op.k_pad / ACT_SUM + 1) * sizeof(uint32_t);
	op.row = (op.row + 63) & ~(size_t)63;
	return op;
}

struct cpu_operand cpu_operand(const struct kern_dev *d, int k)
{
	return make_operand(k, d->args.compute != KERN_COMPUTE_INT8);
}

struct cpu_operand cpu_operand_wide(int k)
{
	return make_operand(k, true);
}

size_t cpu_operand_bytes(struct kern_dev *d, int n_rows, int width)
{
	const size_t row = d->bf16             ? cpu_bf16_row(d->bf16, width)
			   : cpu_is_integer(d) ? cpu_operand(d, width).row
					       : (size_t)width * sizeof(float);
	return (size_t)n_rows * row;
}

void cpu_quantize_row(const struct kern_dev *d, void *out, const float *x, int k)
{
	const struct cpu_operand op = cpu_operand(d, k);
	if (d->bf16)
		cpu_bf16_round(d->bf16, out, x, k);
	else
		d->dot->quantize(out, x, &op);
}

void cpu_quantize_piece(const struct kern_dev *d, void *row, const float *x, int k, int k0, int n)
{
	if (d->bf16) {
		/* Values are in order, except within groups of four, so a chunk is converted like a row. */
		const size_t value = d->bf16->floats ? 4 : 2;
		cpu_bf16_round(d->bf16, (unsigned char *)row + (size_t)k0 * value, x, n);
		return;
	}
	const struct cpu_operand op = cpu_operand(d, k);
	for (int i = 0; i < n; i += ACT_GROUP)
		d->dot->quantize_group(row, x + i, &op, k0 + i);
}

struct rows {
	struct kern_dev *dev;
	int k;
	bool dots;  /* operands of dot.h in any mode */
	size_t row; /* bytes */
	unsigned char *out;
	const float *x;
};

static void quantize_task(void *arg, int t, int thread)
{
	const struct rows *r = arg;
	(void)thread;
	unsigned char *out = r->out + (size_t)t * r->row;
	const float *x = r->x + (size_t)t * (size_t)r->k;
	if (r->dots) {
		const struct cpu_operand op = cpu_operand(r->dev, r->k);
		r->dev->dot->quantize(out, x, &op);
	} else {
		cpu_quantize_row(r->dev, out, x, r->k);
	}
}

void cpu_quantize(struct kern_dev *d, void *out, const float *x, int n_rows, int k)
{
	struct rows r = {.dev = d, .k = k, .row = cpu_operand_bytes(d, 1, k), .out = out, .x = x};
	cpu_run(d, n_rows, (int64_t)n_rows * k, quantize_task, &r);
}

static void end_task(void *arg, int t, int thread)
{
	const struct rows *r = arg;
	const struct cpu_operand op = cpu_operand(r->dev, r->k);
	(void)thread;
	r->dev->dot->add_up(r->out + (size_t)t * r->row, &op);
}

void cpu_quantize_end(struct kern_dev *d, void *rows, int n_rows, int k)
{
	struct rows r = {.dev = d, .k = k, .row = cpu_operand_bytes(d, 1, k), .out = rows};
	if (cpu_is_integer(d))
		cpu_run(d, n_rows, (int64_t)n_rows * k / 8, end_task, &r);
}

void cpu_quantize_dots(struct kern_dev *d, void *out, const float *x, int n_rows, int k)
{
	struct rows r = {.dev = d, .k = k, .dots = true, .row = cpu_operand(d, k).row, .out = out, .x = x};
	cpu_run(d, n_rows, (int64_t)n_rows * k, quantize_task, &r);
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
