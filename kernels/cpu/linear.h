/* linear.h - a linear layer on some rows, as its tasks see it: what linear.c shares with moe.c. */
#ifndef QUERN_KERNELS_CPU_LINEAR_H
#define QUERN_KERNELS_CPU_LINEAR_H

#include "kernels/cpu/cpu.h"

enum { TASKS_PER_THREAD = 4 };

/* One call on up to ROWS_MAX rows.  A task is some tiles of a block of outputs, and some of the
 * row blocks; both are cut finer the fewer there are for the threads.  Nothing of it shows in
 * the bits: an output's chain over K is the same in every cut. */
struct cpu_linear_job {
	const struct kern_linear *w;
	float *out;
	size_t out_stride;
	const unsigned char *in;   /* [n_rows] operands, or floats where the layer is exact */
	size_t row;                /* bytes of an operand */
	const float *x;            /* packed floats */
	const unsigned char *dots; /* [n_rows] operands of dot.h */
	struct cpu_operand op;
	int n_rows, n_row_blocks;
	bool swiglu;           /* parts 0 and 1 are gate and up */
	unsigned char *op_out; /* [n_rows] operands that the results become; NULL: they stay floats */
	size_t op_row;
	int task_tiles; /* 1, 2 or 4 */
	int tasks_per_block;
	int n_row_cuts; /* tasks along the rows */
	int n_col_tasks;
};

/* First row of row block b; that of the block behind the last one is n_rows. */
int cpu_row_block_start(const struct cpu_linear_job *j, int b);
/* The rows of block b as [k][m], so that a step along K reads m values side by side; out: where row 0 goes.
 */
void cpu_linear_pack(const struct cpu_linear_job *j, int b, float *out);
/* Tiles t0 .. t0 + tn - 1 of a block of a part, for row blocks b0 .. b1 - 1: c [rows][tn * LANES_N].  lines:
 * the thread's scratch; next: where the outputs go after it, or NULL. */
void cpu_linear_tile(const struct cpu_linear_job *j, const struct cpu_part *p, int block, int t0, int tn,
		     int b0, int b1, unsigned char *lines, float *c, const float *next);
/* What gate and up [rows][c_stride] give, to out: n outputs from the c0-th on. */
void cpu_linear_act(const struct cpu_linear_job *j, float *out, const float *gate, const float *up,
		    size_t c_stride, int c0, int n, int n_rows);
/* Floats [n_rows, K] through a layer that is exact. */
void cpu_linear_floats(const struct kern_linear *w, float *out, const float *in, int n_rows);

/* Room for at least that much; what was in it is lost.  at: a pointer's address. */
int cpu_grow(void *at, size_t *has, size_t bytes, char *why, size_t why_n);
/* How a layer of gate and up is activated. */
void cpu_linear_acts(struct kern_linear *w, const struct kern_linear_src *src);
/* Frees the weights, not the struct. */
void cpu_linear_fini(struct kern_linear *w);

#endif
