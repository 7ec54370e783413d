#include "quant/runner.h"

#include "base/alloc.h"
#include "base/err.h"
#include "cli/terminal/term.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 }; /* tokens per KV block */

struct runner {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct kern_kv *kv;           /* for one layer and one batch */
	const struct model_config *c; /* borrowed, as is w */
	const struct weights *w;
	struct model_config one;       /* configuration of the loaded layer */
	struct shard shard;            /* the whole model: one rank */
	struct model *ends;            /* embedding and head, loaded on first use; else NULL */
	struct model_config no_layers; /* configuration of `ends` */
	int window, per_batch;         /* tokens; windows per batch */
	int32_t *tokens;               /* [RUNNER_BATCH] on the device */
	int32_t *token_at, *row0, *pos0, *tables, *logits_row; /* the current batch; owned */
	const struct runner_observer *observer;                /* observer of the current layer; or NULL */
	int first;                                             /* first row of the batch, among all rows */
};

static int batch_blocks(const struct runner *r)
{
	return (r->window + BLOCK - 1) / BLOCK;
}

static int open_device(struct runner *r, int n_threads, struct why *why)
{
	struct kern_open_args args = {
		.compute = KERN_COMPUTE_F32,
		.head = KERN_HEAD_STORED,
		.kv = KERN_KV_F32,
		.model = r->c->dtype == CONFIG_BF16 ? KERN_BF16 : KERN_F16,
		.n_threads = n_threads,
		.max_rows = RUNNER_BATCH,
		.max_seqs = r->per_batch,
		.max_logits = RUNNER_LOGITS,
		.max_context = r->window,
		.max_blocks_per_seq = batch_blocks(r),
		.n_vocab = r->c->n_vocab,
	};
	int rc = kern_find("cpu", &r->ops, &args.index, why);
	if (rc || (rc = r->ops->open(&r->dev, &args, why)))
		return rc;
	assert(r->ops->operand_bytes(r->dev, 1, 64) == 64 * sizeof(float));
	r->stream = r->ops->stream_new(r->dev);
	r->kv = r->ops->kv_new(r->dev, 1, r->c->layers[0].kv_heads, r->c->layers[0].dim, BLOCK,
			       r->per_batch * batch_blocks(r), 0);
	r->tokens = r->ops->mem_new(r->dev, RUNNER_BATCH * sizeof *r->tokens);
	if (!r->stream || !r->kv || !r->tokens)
		return err_why(why, -ENOMEM, "out of memory: the cache of a batch of %d tokens",
			       RUNNER_BATCH);
	return 0;
}

int runner_window(const struct model_config *c)
{
	return c->max_position < RUNNER_WINDOW ? c->max_position : RUNNER_WINDOW;
}

int runner_open(struct runner **out, const struct model_config *c, const struct weights *w, int window,
		int n_threads, struct why *why)
{
	assert(window > 0 && window <= runner_window(c));
	struct runner *r = xcalloc(1, sizeof *r);
	r->c = c;
	r->w = w;
	r->window = window;
	r->per_batch = RUNNER_BATCH / r->window;
	r->token_at = xcalloc(RUNNER_BATCH, sizeof *r->token_at);
	r->row0 = xcalloc((size_t)r->per_batch + 1, sizeof *r->row0);
	r->pos0 = xcalloc((size_t)r->per_batch, sizeof *r->pos0);
	r->tables = xcalloc((size_t)r->per_batch * (size_t)batch_blocks(r), sizeof *r->tables);
	r->logits_row = xcalloc(RUNNER_LOGITS, sizeof *r->logits_row);
	for (int i = 0; i < RUNNER_BATCH; i++)
		r->token_at[i] = i;
	for (int i = 0; i < r->per_batch * batch_blocks(r); i++)
		r->tables[i] = i;
	for (int i = 0; i < RUNNER_LOGITS; i++)
		r->logits_row[i] = i;
	int rc = shard_init(&r->shard, c, w, (struct shard_rank){.n_ranks = 1}, why);
	if (!rc)
		rc = open_device(r, n_threads, why);
	if (rc)
		runner_close(r);
	else
		*out = r;
	return rc;
}

void runner_close(struct runner *r)
{
	if (!r)
		return;
	model_free(r->ends);
	if (r->tokens)
		r->ops->mem_free(r->dev, r->tokens, RUNNER_BATCH * sizeof *r->tokens);
	if (r->kv)
		r->ops->kv_free(r->kv);
	if (r->stream)
		r->ops->stream_free(r->stream);
	if (r->dev)
		r->ops->close(r->dev);
	free(r->token_at);
	free(r->row0);
	free(r->pos0);
	free(r->tables);
	free(r->logits_row);
	free(r);
}

/* ---- loading ---- */

static void observe(void *arg, enum model_point at, const void *rows, int n_rows)
{
	struct runner *r = arg;
	r->observer->see(r->observer->arg, at, r->first, n_rows, rows);
}

static struct model_args args_of(struct runner *r, const struct model_config *config, const struct weights *w)
{
	return (struct model_args){.ops = r->ops,
				   .dev = r->dev,
				   .stream = r->stream,
				   .config = config,
				   .shard = &r->shard,
				   .weights = w,
				   .max_rows = RUNNER_BATCH,
				   .max_logits = RUNNER_LOGITS,
				   .max_context = r->window};
}

static int ends(struct runner *r, struct why *why)
{
	if (r->ends)
		return 0;
	r->no_layers = *r->c;
	r->no_layers.n_layers = 0;
	const struct model_args a = args_of(r, &r->no_layers, r->w);
	return model_load(&r->ends, &a, why);
}

static int layer_load(struct runner *r, int i, struct model **out, struct why *why)
{
	struct weights w = *r->w;
	r->one = *r->c;
	r->one.n_layers = 1;
	r->one.layers[0] = r->c->layers[i];
	w.layers = &r->w->layers[i];
	w.n_layers = 1;
	struct model_args a = args_of(r, &r->one, &w);
	a.layers_only = true;
	if (r->observer) {
		a.observe = observe;
		a.observe_arg = r;
	}
	return model_load(out, &a, why);
}

/* Set a batch of windows of consecutive tokens, n_rows in all; logits for the first n_logits rows. */
static int batch(struct runner *r, int n_rows, int window, int n_logits)
{
	struct kern_batch b = {.n_rows = n_rows,
			       .token_at = r->token_at,
			       .row0 = r->row0,
			       .pos0 = r->pos0,
			       .tables = r->tables,
			       .table_stride = batch_blocks(r),
			       .n_logits = n_logits,
			       .logits_row = r->logits_row};
	for (int at = 0; at < n_rows; at += window) {
		r->row0[b.n_seqs++] = at;
		r->row0[b.n_seqs] = at + window < n_rows ? at + window : n_rows;
	}
	return r->ops->batch_set(r->stream, &b);
}

static int rows_of_batch(const struct runner *r, int first, int n_tokens)
{
	const int most = r->window * r->per_batch;
	return n_tokens - first < most ? n_tokens - first : most;
}

int runner_embed(struct runner *r, const uint32_t *tokens, int n_tokens, float *x, struct why *why)
{
	const size_t h = (size_t)r->c->hidden;
	int rc = ends(r, why);
	if (rc)
		return rc;
	for (int at = 0, n; !rc && at < n_tokens; at += n) {
		n = rows_of_batch(r, at, n_tokens);
		if ((rc = r->ops->upload(r->stream, r->tokens, tokens + at, (size_t)n * 4)) ||
		    (rc = batch(r, n, r->window, 0)) || (rc = model_forward(r->ends, r->kv, r->tokens, n)) ||
		    (rc = r->ops->download(r->stream, x + (size_t)at * h, model_residual(r->ends),
					   (size_t)n * h * sizeof *x)))
			break;
		rc = r->ops->stream_sync(r->stream);
	}
	return rc ? err_why(why, rc, "the embedding cannot be computed") : 0;
}

int runner_layer(struct runner *r, int layer, const float *in, float *out, int n_tokens,
		 const struct runner_observer *observer, struct why *why)
{
	const size_t h = (size_t)r->c->hidden;
	struct model *m = NULL;
	r->observer = observer;
	int rc = layer_load(r, layer, &m, why);
	if (rc)
		return rc;
	for (int n; !rc && r->first < n_tokens; r->first += n) {
		n = rows_of_batch(r, r->first, n_tokens);
		if (interrupt_pending() && (rc = -EINTR))
			break;
		if ((rc = r->ops->upload(r->stream, model_residual(m), in + (size_t)r->first * h,
					 (size_t)n * h * sizeof *in)) ||
		    (rc = batch(r, n, r->window, 0)) || (rc = model_layers(m, r->kv, n)) ||
		    (rc = r->ops->download(r->stream, out + (size_t)r->first * h, model_residual(m),
					   (size_t)n * h * sizeof *out)))
			break;
		rc = r->ops->stream_sync(r->stream);
	}
	r->first = 0;
	r->observer = NULL;
	model_free(m);
	if (rc == -EINTR)
		return err_why(why, rc, "interrupted");
	return rc ? err_why(why, rc, "layer %d cannot be computed", layer) : 0;
}

int runner_head(struct runner *r, const float *x, int n, float *logits, struct why *why)
{
	const size_t bytes = (size_t)n * (size_t)r->c->hidden * sizeof *x;
	assert(n > 0 && n <= RUNNER_LOGITS);
	int rc = ends(r, why);
	if (rc)
		return rc;
	const int window = r->window < n ? r->window : n;
	if ((rc = r->ops->upload(r->stream, model_residual(r->ends), x, bytes)) ||
	    (rc = batch(r, n, window, n)) || (rc = model_head(r->ends, n)) ||
	    (rc = r->ops->download(r->stream, logits, model_logits(r->ends),
				   (size_t)n * (size_t)r->c->n_vocab * sizeof *logits)) ||
	    (rc = r->ops->stream_sync(r->stream)))
		return err_why(why, rc, "the head cannot be computed");
	return 0;
}

/* ---- products ---- */

int runner_load(struct runner *r, const float *w, int n, int k, struct kern_linear **out, struct why *why)
{
	const struct kern_linear_src src = {
		.name = "a product", .k = k, .n_parts = 1, .parts = {{.dtype = KERN_F32, .n = n, .w = w}}};
	return r->ops->linear_load(r->dev, &src, out, why);
}

int runner_apply(struct runner *r, const struct kern_linear *w, int n, int k, const float *x, int n_rows,
		 float *out)
{
	int rc = 0;
	for (int at = 0; !rc && at < n_rows; at += RUNNER_BATCH) {
		const int rows = n_rows - at < RUNNER_BATCH ? n_rows - at : RUNNER_BATCH;
		rc = r->ops->linear(r->stream, w, out + (size_t)at * (size_t)n, x + (size_t)at * (size_t)k,
				    rows, true);
	}
	return rc ? rc : r->ops->stream_sync(r->stream);
}

void runner_unload(struct runner *r, struct kern_linear *w)
{
	if (w)
		r->ops->linear_free(w);
}

int runner_product(struct runner *r, const float *w, int n, int k, const float *x, int n_rows, float *out,
		   struct why *why)
{
	struct kern_linear *l = NULL;
	int rc = runner_load(r, w, n, k, &l, why);
	if (!rc && (rc = runner_apply(r, l, n, k, x, n_rows, out)))
		err_why(why, rc, "a product of %d x %d cannot be computed", n, k);
	runner_unload(r, l);
	return rc;
}

int runner_gateup(struct runner *r, const struct runner_expert *e, const float *x, int n_rows, float *out,
		  struct why *why)
{
	const struct kern_linear_src src = {.name = "an expert",
					    .k = e->k,
					    .act = e->act == ACT_GELU_TANH ? KERN_GELU_TANH : KERN_SILU,
					    .n_parts = 2,
					    .parts = {{.dtype = KERN_F32, .n = e->inter, .w = e->gate},
						      {.dtype = KERN_F32, .n = e->inter, .w = e->up}}};
	struct kern_linear *l = NULL;
	int rc = r->ops->linear_load(r->dev, &src, &l, why);
	for (int at = 0; !rc && at < n_rows; at += RUNNER_BATCH) {
		const int rows = n_rows - at < RUNNER_BATCH ? n_rows - at : RUNNER_BATCH;
		rc = r->ops->gateup_swiglu(r->stream, l, out + (size_t)at * (size_t)e->inter,
					   x + (size_t)at * (size_t)e->k, rows);
	}
	if (!rc)
		rc = r->ops->stream_sync(r->stream);
	runner_unload(r, l);
	return rc;
}
