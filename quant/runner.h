/* runner.h - run a model layer by layer over windows of tokens.  One layer's weights are loaded at a time;
 * the caller owns the residual stream of all tokens.
 *
 *     tokens --embed--> x [T, H] --layer 0--> x --layer 1--> ... --head--> logits [rows, V]
 *
 * A window is a sequence of its own, from position 0.  Everything runs in F32 on the CPU, where operands are
 * rows of floats that an observer can read (worker/model.h: model_point). */
#ifndef QUERN_QUANT_RUNNER_H
#define QUERN_QUANT_RUNNER_H

#include "base/err.h"
#include "formats/config.h"
#include "formats/weights.h"
#include "kernels/kern.h"
#include "worker/model.h"

#include <stddef.h>
#include <stdint.h>

enum {
	RUNNER_WINDOW = 512, /* most tokens of a window; fewer if the model's context is shorter */
	RUNNER_BATCH = 2048, /* most rows of a batch */
	RUNNER_LOGITS = 64,  /* most rows of runner_head() */
};

struct runner;

/* Return the tokens of a window for this model: RUNNER_WINDOW, or its context if that is shorter. */
int runner_window(const struct model_config *c);

/* config and weights are borrowed for the runner's life.  window: at most RUNNER_WINDOW, and within the
 * context.  n_threads 0: a thread per core.  -ENOMEM, -ENOTSUP, ... with the reason. */
int runner_open(struct runner **out, const struct model_config *c, const struct weights *w, int window,
		int n_threads, struct why *why);
void runner_close(struct runner *r); /* NULL is fine */

/* Callback of runner_layer() for each batch: rows first to first + n - 1 of all rows, F32 of the point's
 * width; n_chosen int32 each at MODEL_AT_ROUTED. */
struct runner_observer {
	void (*see)(void *arg, enum model_point at, int first, int n, const void *rows);
	void *arg;
};

/* Embed tokens.  n_tokens: whole windows, but for the last.  x: F32 [n_tokens, hidden]. */
int runner_embed(struct runner *r, const uint32_t *tokens, int n_tokens, float *x, struct why *why);
/* Run a layer from in to out, which may be the same.  observer: may be NULL.  -EINTR between batches
 * (cli/terminal/term.h). */
int runner_layer(struct runner *r, int layer, const float *in, float *out, int n_tokens,
		 const struct runner_observer *observer, struct why *why);
/* Compute the logits of n rows of x, at most RUNNER_LOGITS: F32 [n, n_vocab], the caller's. */
int runner_head(struct runner *r, const float *x, int n, float *logits, struct why *why);

/* Multiply matrices on the same device: out [n_rows, n] = x [n_rows, k] w^T, w [n, k], all F32. */
int runner_product(struct runner *r, const float *w, int n, int k, const float *x, int n_rows, float *out,
		   struct why *why);
/* Load w for several products, and compute a product with it. */
int runner_load(struct runner *r, const float *w, int n, int k, struct kern_linear **out, struct why *why);
int runner_apply(struct runner *r, const struct kern_linear *w, int n, int k, const float *x, int n_rows,
		 float *out);
void runner_unload(struct runner *r, struct kern_linear *w); /* NULL is fine */

/* Gate and up of an expert, both F32 [inter, k]. */
struct runner_expert {
	enum config_act act;
	const float *gate, *up;
	int inter, k;
};

/* Compute an expert's out [n_rows, inter] = act(x gate^T) * (x up^T); x: [n_rows, k]. */
int runner_gateup(struct runner *r, const struct runner_expert *e, const float *x, int n_rows, float *out,
		  struct why *why);

#endif
