/* kernels_tune.h - `quern bench kernels --tune`: from how many rows on --fast is faster, layer by layer.
 * Both ways are measured on one device, in one run; the result is written for workers (worker/tune.h). */
#ifndef QUERN_BENCH_KERNELS_TUNE_H
#define QUERN_BENCH_KERNELS_TUNE_H

#include "bench/layers.h"

#include <stdbool.h>

struct kernels_tune {
	const char *device;
	const char *model_dir; /* layers of this model; NULL: those of model */
	const struct layers_model *model;
	enum kern_dtype dtype; /* of model's layers */
	int tp;                /* of model_dir: the parts that a rank of tp has */
	const int *rows;       /* ascending */
	int n_rows;
	const char *out;              /* file to write, or NULL: where workers look */
	const char *xdg_cache, *home; /* of the environment */
	bool json;
};

/* Returns the exit status. */
int kernels_tune(const struct kernels_tune *t);

/* The crossover of one layer, from measurements at n ascending numbers of rows: the largest number at which
 * --fast is not clearly faster (by 3%).  0: it always is; INT_MAX: it is not even at the last number. */
int kernels_tune_crossover(const int *rows, const double *default_us, const double *fast_us, int n);

#endif
