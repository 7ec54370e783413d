/* linear.h - a linear layer on some rows, cut into tasks.  Shared by linear.c and moe.c. */
#ifndef QUERN_KERNELS_CPU_LINEAR_H
#define QUERN_KERNELS_CPU_LINEAR_H

#include "base/err.h"
#include "kernels/cpu/cpu.h"

enum { TASKS_PER_THREAD = 4 };

/* One call on up to ROWS_MAX rows.  A task is some tiles of a block of outputs and some of the row blocks;
 * both are cut finer if there are few tasks for the threads.  The cut changes no bit: an output's chain over
 * K is always the same. */
struct cpu_linear_job {
	const struct kern_linear *w;
	float *out;
	size_t out_stride;
	const unsigned char *in;   /* [n_rows] operands, or floats if the layer is exact */
	size_t row;                /* bytes of an operand */
	const float *x;            /* packed floats */
	const unsigned char *dots; /* [n_rows] operands of dot.h */
	struct cpu_operand op;
	int n_rows, n_row_blocks;
	bool swiglu;           /* parts 0 and 1 are gate and up */
	unsigned char *op_out; /* [n_rows] operands to convert the results to; NULL: results stay floats */
	size_t op_row;
	int task_tiles; /* 1, 2 or 4 */
	int tasks_per_block;
	int n_row_cuts; /* tasks along the rows */
	int n_col_tasks;
};

/* Tiles t0 .. t0 + tn - 1 of a block of a part, for row blocks b0 .. b1 - 1. */
struct cpu_linear_tile {
	const struct cpu_part *part;
	int block, t0, tn;
	int b0, b1;
	unsigned char *lines;  /* the thread's scratch */
	unsigned char *stored; /* likewise, for parts that stay as stored */
	float *c;              /* results, [rows][tn * LANES_N] */
	const float *next;     /* where the outputs are written next; NULL: elsewhere */
};

/* Pack the rows of block b as [k][m], so that a step along K reads m adjacent values.  out: destination of
 * row 0. */
void cpu_linear_pack(const struct cpu_linear_job *j, int b, float *out);
void cpu_linear_tile(const struct cpu_linear_job *j, const struct cpu_linear_tile *t);
/* Activate gate and up [rows][c_stride] into out: n outputs from c0 on. */
void cpu_linear_act(const struct cpu_linear_job *j, float *out, const float *gate, const float *up,
		    size_t c_stride, int c0, int n, int n_rows);
/* Compute floats [n_rows, K] through an exact layer. */
void cpu_linear_floats(const struct kern_linear *w, float *out, const float *in, int n_rows);

/* Grow a buffer to at least `bytes`; its contents are lost.  at: the address of a pointer. */
int cpu_grow(void *at, size_t *has, size_t bytes, struct why *why);
/* Grow the threads' scratch for the parts of w that stay as stored. */
int cpu_linear_reserve_stored(struct kern_dev *d, const struct kern_linear *w, struct why *why);
/* Set the activation of a layer of gate and up. */
void cpu_linear_acts(struct kern_linear *w, const struct kern_linear_src *src);
/* Free the weights, not the struct. */
void cpu_linear_fini(struct kern_linear *w);

#endif
