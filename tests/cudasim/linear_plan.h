/* linear_plan.h - linear layers computed in a way that the test names, for comparing bits. */
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
/* Slices of the layer's first segment. */
int linear_slices(const struct kern_linear *w);
/* --fast: what its workspaces shall hold of layers that are loaded from now on. */
void linear_fast_bytes(struct kern_dev *d, size_t bytes);
/* --fast: columns of a tile and all columns, of the layer's first segment. */
void linear_fast_tile(const struct kern_linear *w, int *tile, int *all);
/* A row-major table on the device as the head. */
int linear_of_table(struct kern_dev *d, const void *table, int n, int k, struct kern_linear **out);

#ifdef __cplusplus
}
#endif

#endif
