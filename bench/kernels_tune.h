/* kernels_tune.h - `quern bench kernels --tune`: finds, layer by layer, the number of rows from which --fast
 * is faster.
 * Both modes are measured on one device, in one run.  The result is written for workers (worker/tune.h). */
#ifndef QUERN_BENCH_KERNELS_TUNE_H
#define QUERN_BENCH_KERNELS_TUNE_H

#include "bench/layers.h"

#include <stdbool.h>

struct kernels_tune {
	const char *device;
	const char *model_dir; /* directory of the model to measure; NULL: the layers of `model` */
	const struct layers_model *model;
	enum kern_dtype dtype; /* type of model's layers */
	int tp;                /* with model_dir: tensor-parallel size; the shards of its ranks are
			        * measured */
	const int *rows;       /* ascending */
	int n_rows;
	const char *out;              /* file to write; NULL: the file that workers read */
	const char *xdg_cache, *home; /* from the environment */
	bool json;
};

/* Run the measurement.  Returns the exit status. */
int kernels_tune(const struct kernels_tune *t);

/* Return the crossover of one layer, from measurements at n ascending numbers of rows: the largest number at
 * which --fast is not clearly faster (by 3%).  0: it is always faster; INT_MAX: it is not faster even at the
 * last number. */
int kernels_tune_crossover(const int *rows, const double *default_us, const double *fast_us, int n);

#endif
