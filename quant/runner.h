/* runner.h - a model run layer by layer over windows of tokens: one layer's weights are loaded at a time, and
 * the residual stream of all tokens is the caller's.
 *
 *     tokens --embed--> x [T, H] --layer 0--> x --layer 1--> ... --head--> logits [rows, V]
 *
 * A window is a sequence of its own, from position 0.  Everything runs in F32 on the CPU, where operands are
 * rows of floats, so that an observer can read them (worker/model.h: model_point). */
#ifndef QUERN_QUANT_RUNNER_H
#define QUERN_QUANT_RUNNER_H

#include "formats/config.h"
#include "formats/weights.h"
#include "kernels/kern.h"
#include "worker/model.h"

#include <stddef.h>
#include <stdint.h>

enum {
	RUNNER_WINDOW = 512, /* tokens of a window, where the model's context allows them */
	RUNNER_BATCH = 2048, /* rows of a batch, at most */
	RUNNER_LOGITS = 64,  /* rows of runner_head(), at most */
};

struct runner;

/* Tokens of a window for this model: RUNNER_WINDOW, or as many as its context has. */
int runner_window(const struct model_config *c);

/* config and weights are borrowed for its life.  window: at most RUNNER_WINDOW, and within the context.
 * n_threads 0: a thread per core.  -ENOMEM, -ENOTSUP, ... with the reason. */
int runner_open(struct runner **out, const struct model_config *c, const struct weights *w, int window,
		int n_threads, char *why, size_t why_n);
void runner_close(struct runner *r); /* NULL is fine */

/* Called in runner_layer() for each batch: rows first to first + n - 1 of all, of width values; int32 of
 * n_chosen at MODEL_AT_ROUTED. */
struct runner_observer {
	void (*see)(void *arg, enum model_point at, int first, int n, const void *rows);
	void *arg;
};

/* n_tokens: whole windows, but for the last one.  x: F32 [n_tokens, hidden]. */
int runner_embed(struct runner *r, const uint32_t *tokens, int n_tokens, float *x, char *why, size_t why_n);
/* in to out, which may be the same.  observer: or NULL.  -EINTR between batches (cli/terminal/term.h). */
int runner_layer(struct runner *r, int layer, const float *in, float *out, int n_tokens,
		 const struct runner_observer *observer, char *why, size_t why_n);
/* The logits of n rows of x, at most RUNNER_LOGITS: F32 [n, n_vocab], the caller's. */
int runner_head(struct runner *r, const float *x, int n, float *logits, char *why, size_t why_n);

/* A matrix product on the same device: out [n_rows, n] = x [n_rows, k] w^T, w [n, k], all F32. */
int runner_product(struct runner *r, const float *w, int n, int k, const float *x, int n_rows, float *out,
		   char *why, size_t why_n);
/* The same with one w for several calls. */
int runner_load(struct runner *r, const float *w, int n, int k, struct kern_linear **out, char *why,
		size_t why_n);
int runner_apply(struct runner *r, const struct kern_linear *w, int n, int k, const float *x, int n_rows,
		 float *out);
void runner_unload(struct runner *r, struct kern_linear *w); /* NULL is fine */
/* out [n_rows, inter] = act(x gate^T) * (x up^T): of an expert. */
int runner_gateup(struct runner *r, enum config_act act, const float *gate, const float *up, int inter, int k,
		  const float *x, int n_rows, float *out, char *why, size_t why_n);

#endif
