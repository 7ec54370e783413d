/* measure.h - two models on the same text, layer by layer: how far the second is from the first.
 *
 *     text --+-- embedding A -- layer 0 -- layer 1 -- ... -- head --+-- perplexity of A
 *            |                     |          |                     |   KL(A || B), agreement
 *            +-- embedding B -- layer 0 -- layer 1 -- ... -- head --+-- perplexity of B
 *
 * Each has its own residual stream, so what is compared is accumulated through the network.  One layer of
 * each is loaded at a time.  Sums run in the order of the tokens: the same models and text give the same
 * figures. */
#ifndef QUERN_QUANT_MEASURE_H
#define QUERN_QUANT_MEASURE_H

#include "quant/layer.h"
#include "quant/windows.h"

#include <stdbool.h>
#include <stddef.h>

struct measure_model {
	const char *path; /* borrowed */
	struct model_config config;
	struct weights *weights;
};

/* -ENOENT, -EINVAL, ... with the reason.  measure_model_close() is due after an error, too; of {0} it is
 * fine. */
int measure_model_open(struct measure_model *m, const char *path, char *why, size_t why_n);
void measure_model_close(struct measure_model *m);

/* A linear part of both.  Experts are accumulated by none, since routes may differ, and are listed only where
 * B is plain: their outputs alone are those of the rows that A's router sends them. */
struct measure_linear {
	char name[96];
	const char *part; /* static, as in struct layer_linear */
	int layer;
	struct layer_error accumulated;    /* of outputs: a part of A on A's rows, of B on B's */
	struct layer_error weights, alone; /* of weights; of outputs on A's rows.  Only where B is plain */
	int n_rows;                        /* of alone */
	bool same;                         /* B has it in floats; likewise */
};

struct measure {
	/* What rows of B's parts have to be multiplied by to be A's, of part i of a layer as
	 * layer_plan_init() lists them: NULL for 1.  Where the callback is NULL, B is plain: its parts are
	 * A's but for rounding. */
	const float *(*out_by)(void *arg, int layer, int i);
	void *out_by_arg;
	void (*progress)(void *arg, double done); /* of 0 to 1; or NULL */
	void *progress_arg;
	int n_threads;   /* 0: one per core */
	bool no_linears; /* linear parts are not compared */
	/* out */
	bool alike;                     /* the layers were compared: as many, with as many values */
	struct measure_linear *linears; /* [n_linears] */
	int n_linears;
	struct layer_error *layers; /* [n_layers]: of the residual stream behind each layer */
	int n_layers;
	struct layer_error logits;
	int n_tokens, n_scored; /* of the text; of them, with a token behind them in their window */
	double nll[2];          /* mean, nats per token */
	double kl, kl_max;      /* KL(A || B), nats: mean, largest */
	double agree;           /* share of tokens with the same most likely token */
};

/* The two need vocabularies of one size; windows of the text fit both (runner_window()).  -EINVAL, -ENOMEM,
 * -EINTR (cli/terminal/term.h), ... with the reason. */
int measure_run(struct measure *m, const struct measure_model *a, const struct measure_model *b,
		const struct windows *text, char *why, size_t why_n);
void measure_fini(struct measure *m); /* what was measured */

#endif
