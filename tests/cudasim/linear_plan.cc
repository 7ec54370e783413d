/* linear_plan.cc - see linear_plan.h. */
#include "kernels/cuda/linear.cuh"
#include "tests/cudasim/linear_plan.h"

int linear_planned(struct kern_stream *s, const struct kern_linear *w, void *out, const void *in, int n_rows,
		   bool swiglu, const struct linear_plan *p)
{
	struct lin_plan plan = {};
	plan.kernel = p->tile ? LIN_TILE : LIN_STREAM;
	plan.cols = p->cols;
	plan.rows = p->rows;
	plan.warps = p->warps;
	plan.splits = p->splits;
	return lin_run(s, w, out, in, n_rows, swiglu ? LIN_OUT_SWIGLU : LIN_OUT_F32, &plan);
}

int linear_slices(const struct kern_linear *w)
{
	return w->segs[0].slices;
}

struct linear_plan linear_plan_of(const struct kern_linear *w, int n_rows)
{
	const struct lin_plan p = lin_plan_for(w->dev, &w->segs[0], n_rows);
	return {p.kernel == LIN_TILE, p.cols, p.rows, p.warps, p.splits};
}

void linear_smem(struct kern_dev *d, int bytes)
{
	d->smem_max = bytes;
}

int linear_of_table(struct kern_dev *d, const void *table, int n, int k, struct kern_linear **out)
{
	struct why why;
	return cuda_linear_of_table(d, table, n, k, out, &why);
}

void linear_fast_bytes(struct kern_dev *d, size_t bytes)
{
	d->fast_bytes = bytes;
}

void linear_fast_tile(const struct kern_linear *w, int *tile, int *all)
{
	*tile = w->segs[0].fast_cols;
	*all = w->segs[0].n_cols;
}
