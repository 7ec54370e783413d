/* importance.h - compute an importance matrix (quant/round/imatrix.h): run a model layer by layer over a text
 * and add up the squares of the inputs of its linear layers. */
#ifndef QUERN_QUANT_IMPORTANCE_H
#define QUERN_QUANT_IMPORTANCE_H

#include "base/err.h"
#include "quant/measure.h"
#include "quant/round/imatrix.h"
#include "quant/windows.h"

struct importance {
	const struct measure_model *model;
	const struct windows *text;
	int n_threads;                            /* 0: one per core */
	void (*progress)(void *arg, double done); /* done: from 0 to 1; may be NULL */
	void *progress_arg;
};

/* Add the entries of all layers to m, by their names in a GGUF file.  Layers that a GGUF file of the
 * architecture does not have are left out.  -ENOMEM, -EINTR, ... with the reason. */
int importance_run(const struct importance *i, struct imatrix *m, struct why *why);

#endif
