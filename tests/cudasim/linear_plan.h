/* linear_plan.h - runs linear layers with a plan that the test chooses, for comparing bits. */
#ifndef QUERN_TESTS_CUDASIM_LINEAR_PLAN_H
#define QUERN_TESTS_CUDASIM_LINEAR_PLAN_H

#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* struct lin_plan of kernels/cuda/linear.cuh, for C. */
struct linear_plan {
	bool tile;
	int cols, rows, warps, splits;
};

int linear_planned(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
		   bool swiglu, const struct linear_plan *p);
/* Return the number of slices of the layer's first segment. */
int linear_slices(const struct kern_linear *w);
/* Return the plan that the table chooses for this many rows of the layer's first segment. */
struct linear_plan linear_plan_of(const struct kern_linear *w, int n_rows);
/* Set a block's limit of shared memory, for layers that are loaded from now on. */
void linear_smem(struct kern_dev *d, int bytes);
/* --fast: set the workspaces' size, for layers that are loaded from now on. */
void linear_fast_bytes(struct kern_dev *d, size_t bytes);
/* --fast: return the columns of a tile and all columns of the layer's first segment. */
void linear_fast_tile(const struct kern_linear *w, int *tile, int *all);
/* Make a head of a row-major table on the device. */
int linear_of_table(struct kern_dev *d, const void *table, int n, int k, struct kern_linear **out);

#ifdef __cplusplus
}
#endif

#endif
