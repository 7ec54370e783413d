/* bench_tune.h - `quern bench kernels --tune`: from how many rows on --fast is faster, layer by layer.
 * Both ways are measured on one device, in one run, and what is found is written for workers
 * (worker/tune.h). */
#ifndef QUERN_CLI_BENCH_TUNE_H
#define QUERN_CLI_BENCH_TUNE_H

#include "cli/bench_layers.h"

#include <stdbool.h>

struct bench_tune {
	const char *device;
	const char *model_dir;           /* whose layers; NULL: those of model */
	const struct bench_model *model;
	enum kern_dtype dtype;           /* of model's layers */
	int tp;                          /* of model_dir: the parts of so many ranks */
	const int *rows;                 /* ascending */
	int n_rows;
	const char *out;                 /* file to write, or NULL: where workers look */
	const char *xdg_cache, *home;    /* of the environment */
	bool json;
};

/* Returns the exit status. */
int bench_tune(const struct bench_tune *t);

/* The crossover of one layer, of measurements at n ascending numbers of rows: the largest at which the
 * other way does not clearly win (by 3%), so that from the next one on it always does; 0 where it always
 * wins, INT_MAX where it does not at the end. */
int bench_tune_crossover(const int *rows, const double *default_us, const double *fast_us, int n);

#endif
