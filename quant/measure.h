/* measure.h - compare two models on the same text, layer by layer.
 *
 *     text --+-- embedding A -- layer 0 -- layer 1 -- ... -- head --+-- perplexity of A
 *            |                     |          |                     |   KL(A || B), agreement
 *            +-- embedding B -- layer 0 -- layer 1 -- ... -- head --+-- perplexity of B
 *
 * Each model has its own residual stream, so errors accumulate through the network.  One layer of each is
 * loaded at a time.  Sums run in the order of the tokens: the same models and text give the same figures. */
#ifndef QUERN_QUANT_MEASURE_H
#define QUERN_QUANT_MEASURE_H

#include "base/err.h"
#include "quant/layer.h"
#include "quant/windows.h"

#include <stdbool.h>
#include <stddef.h>

struct measure_model {
	const char *path; /* borrowed */
	struct model_config config;
	struct weights *weights;
};

/* Open a model.  -ENOENT, -EINVAL, ... with the reason.  Call measure_model_close() after an error, too; it
 * accepts {0}. */
int measure_model_open(struct measure_model *m, const char *path, struct why *why);
void measure_model_close(struct measure_model *m);

/* A linear part of both models.  Experts have no accumulated error, since routes may differ, and are listed
 * only if B is plain: their outputs are compared on the rows that A's router sends to them. */
struct measure_linear {
	char name[96];
	const char *part; /* static, as in struct layer_linear */
	int layer;
	struct layer_error accumulated;    /* outputs: A's part on A's rows against B's on B's */
	struct layer_error weights, alone; /* weights; outputs of both on A's rows.  Only if B is plain */
	int n_rows;                        /* rows of `alone` */
	bool same;                         /* B has the part in floats; only if B is plain */
};

struct measure {
	/* Return the factors that turn the rows of B's part i into A's; NULL: 1.  Parts are numbered as in
	 * layer_plan_init().  Callback NULL: B is plain, so its parts differ from A's only by rounding. */
	const float *(*out_by)(void *arg, int layer, int i);
	void *out_by_arg;
	void (*progress)(void *arg, double done); /* done: from 0 to 1; may be NULL */
	void *progress_arg;
	int n_threads;   /* 0: one per core */
	bool no_linears; /* do not compare linear parts */
	/* Results. */
	bool alike;                     /* layers were compared: both models have the same number and width */
	struct measure_linear *linears; /* [n_linears] */
	int n_linears;
	struct layer_error *layers; /* [n_layers] error of the residual stream after each layer */
	int n_layers;
	struct layer_error logits;
	int n_tokens, n_scored; /* tokens of the text; those followed by a token in their window */
	double nll[2];          /* mean of A and B, nats per token */
	double kl, kl_max;      /* KL(A || B), nats: mean, largest */
	double agree;           /* share of tokens for which both have the same most likely token */
};

/* Measure.  Both models need vocabularies of one size; the text's windows fit both (runner_window()).
 * -EINVAL, -ENOMEM, -EINTR (cli/terminal/term.h), ... with the reason. */
int measure_run(struct measure *m, const struct measure_model *a, const struct measure_model *b,
		const struct windows *text, struct why *why);
void measure_fini(struct measure *m); /* frees the results */

#endif
