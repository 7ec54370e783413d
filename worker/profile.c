#include "worker/profile.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <stdlib.h>

/* Decodes have contexts of this many tokens, if the model allows it, so that attention processes several
 * chunks per sequence. */
enum { DECODE_POSITION = 1000, TOPS = 5 };

struct profile {
	const struct profile_args *a;
	struct kern_kv *kv;
	struct kern_batch batch;
	int32_t *token_at, *row0, *pos0, *table, *logits_row; /* arrays of batch; owned */
	struct kern_sample_row *rows;                         /* [max_logits] */
	struct kern_sample_out out;
};

static int at_most(int a, int b)
{
	return a < b ? a : b;
}

static size_t words(const struct profile *p)
{
	return (size_t)p->a->max_logits * sizeof(int32_t);
}

static int profile_new(struct profile *p, struct why *why)
{
	const struct profile_args *a = p->a;
	const struct model_config *c = a->config;
	const size_t runs = a->lim->max_runs,
		     blocks = (a->lim->max_context + a->block_size - 1) / a->block_size;
	p->kv = a->kv ? a->kv
		      : a->ops->kv_new(a->dev, a->kinds->n_layers, c->layers[0].kv_heads, c->layers[0].dim,
				       (int)a->block_size, 1, 0);
	p->token_at = xcalloc(a->lim->max_rows, sizeof *p->token_at);
	p->row0 = xcalloc(runs + 1, sizeof *p->row0);
	p->pos0 = xcalloc(runs, sizeof *p->pos0);
	/* tables of all sequences: block 0, repeated */
	p->table = xcalloc(runs * a->kinds->kinds.n * blocks, sizeof *p->table);
	p->logits_row = xcalloc((size_t)a->max_logits, sizeof *p->logits_row);
	p->rows = xcalloc((size_t)a->max_logits, sizeof *p->rows);
	p->out = (struct kern_sample_out){.token = a->ops->host_new(a->dev, words(p)),
					  .logprob = a->ops->host_new(a->dev, words(p)),
					  .rank = a->ops->host_new(a->dev, words(p)),
					  .top_id = a->ops->host_new(a->dev, words(p) * TOPS),
					  .top_logprob = a->ops->host_new(a->dev, words(p) * TOPS),
					  .top_stride = TOPS};
	p->batch = (struct kern_batch){.token_at = p->token_at,
				       .row0 = p->row0,
				       .pos0 = p->pos0,
				       .tables = p->table,
				       .table_stride = (int)blocks,
				       .logits_row = p->logits_row};
	if (p->kv && p->out.token && p->out.logprob && p->out.rank && p->out.top_id && p->out.top_logprob)
		return 0;
	return err_why(why, -ENOMEM,
		       "out of memory: a KV block and the sampler's output, to try a step with");
}

static void profile_free(struct profile *p)
{
	const struct kern_ops *ops = p->a->ops;
	void *host[] = {p->out.token, p->out.logprob, p->out.rank};
	void *tops[] = {p->out.top_id, p->out.top_logprob};
	for (int i = 0; i < 3; i++)
		if (host[i])
			ops->host_free(p->a->dev, host[i], words(p));
	for (int i = 0; i < 2; i++)
		if (tops[i])
			ops->host_free(p->a->dev, tops[i], words(p) * TOPS);
	free(p->rows);
	free(p->logits_row);
	free(p->table);
	free(p->pos0);
	free(p->row0);
	free(p->token_at);
	if (p->kv && p->kv != p->a->kv)
		ops->kv_free(p->kv);
}

static void add_run(struct kern_batch *b, int32_t *row0, int32_t *pos0, int pos, int rows)
{
	pos0[b->n_seqs++] = pos;
	b->n_rows += rows;
	row0[b->n_seqs] = b->n_rows;
}

/* Fill the batch with n decodes, then with prompts up to its number of rows. */
static void fill(struct profile *p, int decodes, int rows)
{
	const struct bus_limits *m = p->a->lim;
	struct kern_batch *b = &p->batch;
	b->n_rows = b->n_seqs = 0;
	for (int i = 0; i < decodes; i++)
		add_run(b, p->row0, p->pos0, at_most(DECODE_POSITION, (int)m->max_context - 1), 1);
	while (b->n_rows < rows && b->n_seqs < (int)m->max_runs)
		add_run(b, p->row0, p->pos0, 0, at_most(rows - b->n_rows, (int)m->max_context));
	b->n_logits = at_most(b->n_seqs, p->a->max_logits);
	for (int i = 0; i < b->n_logits; i++)
		p->logits_row[i] = p->row0[i + 1] - 1;
}

/* Sample with parameters that exercise every part of the sampler. */
static int sample(struct profile *p)
{
	const struct profile_args *a = p->a;
	const int n = p->batch.n_logits, tops = at_most(TOPS, a->config->n_vocab);
	for (int i = 0; i < n; i++)
		p->rows[i] = (struct kern_sample_row){.row = i,
						      .forced = -1,
						      .temperature = 1,
						      .top_p = 0.9f,
						      .min_p = 0.01f,
						      .top_k = 40,
						      .presence = 0.1f,
						      .frequency = 0.1f,
						      .repetition = 1.1f,
						      .n_logprobs = tops};
	return a->ops->sample(a->stream, model_logits(a->model), a->config->n_vocab, a->tokens, p->rows, n,
			      &p->out);
}

static int run(struct profile *p, int decodes, int rows)
{
	const struct profile_args *a = p->a;
	int rc;
	fill(p, decodes, rows);
	if ((rc = a->ops->batch_set(a->stream, &p->batch)) ||
	    (rc = model_forward(a->model, p->kv, a->tokens, p->batch.n_rows)) ||
	    (rc = model_head(a->model, p->batch.n_logits)) || (a->rank == 0 && (rc = sample(p))))
		return rc;
	return tp_group_sync(a->group, a->ops, a->stream);
}

static int run_all(struct profile *p, int rows, int runs)
{
	static const int few[] = {1, 16, 32, 64, 128};
	int rc = run(p, runs - 1, rows);
	if (!rc)
		rc = run(p, runs, runs);
	for (size_t i = 0; !rc && i < sizeof few / sizeof *few && few[i] < rows; i++)
		rc = run(p, 0, few[i]);
	return rc;
}

int profile_run(const struct profile_args *a, struct why *why)
{
	struct profile p = {.a = a};
	const int rows = (int)a->lim->max_rows, runs = at_most((int)a->lim->max_runs, rows);
	const int64_t t0 = clock_us();
	int rc = profile_new(&p, why);
	if (!rc && (rc = run_all(&p, rows, runs)))
		err_why(why, rc, "%s",
			a->group && tp_group_broke(rc) ? tp_group_why(a->group)
						       : "a step on made-up input failed on the device");
	profile_free(&p);
	if (!rc)
		log_info("profile", "step profiled rows=%d runs=%d us=%lld", rows, runs,
			 (long long)(clock_us() - t0));
	return rc;
}
