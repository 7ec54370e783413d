#include "worker/experts/host_experts.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>

/* Pinned memory that both GPU and CPU access. */
struct shared {
	void *p;
	size_t bytes;
};

struct host_experts {
	const struct kern_ops *ops; /* the GPU's table; borrowed */
	struct kern_dev *dev;
	struct host_experts_table cpu;
	int hidden, n_chosen;
	size_t row, pairs; /* bytes of a row, and of its experts or of their weights */
	struct kern_event *sent;
	struct shared x, expert, weight, sum;
	void *normed; /* an operand of the CPU's table */
	size_t normed_bytes;
};

/* ---- life ---- */

static int shared_new(struct host_experts *b, struct shared *m, size_t bytes, struct why *why)
{
	m->p = b->ops->host_new(b->dev, bytes);
	m->bytes = bytes;
	return m->p ? 0
		    : err_why(why, -ENOMEM,
			      "out of memory: %zu bytes of pinned memory for the rows of experts on the CPU; "
			      "lower "
			      "--max-batch-tokens",
			      bytes);
}

static int open_cpu(struct host_experts *b, const struct kern_open_args *args, struct why *why)
{
	struct kern_open_args a = *args;
	a.max_seqs = a.max_logits = a.max_blocks_per_seq = 1;
	a.max_context = 16;
	int rc = kern_find("cpu", &b->cpu.ops, &a.index, why);
	if (rc || (rc = b->cpu.ops->open(&b->cpu.dev, &a, why)))
		return rc;
	b->cpu.ops->info(b->cpu.dev, &b->cpu.info);
	b->cpu.stream = b->cpu.ops->stream_new(b->cpu.dev);
	return b->cpu.stream ? 0 : err_why(why, -EIO, "cpu: no stream could be created");
}

int host_experts_open(struct host_experts **out, const struct host_experts_args *a, struct why *why)
{
	struct host_experts *b = xcalloc(1, sizeof *b);
	const size_t rows = (size_t)a->cpu.max_rows;
	*out = NULL;
	*b = (struct host_experts){
		.ops = a->ops, .dev = a->dev, .hidden = a->hidden, .n_chosen = a->n_chosen};
	b->row = (size_t)a->hidden * sizeof(float);
	b->pairs = (size_t)a->n_chosen * sizeof(int32_t);
	int rc = open_cpu(b, &a->cpu, why);
	if (rc)
		goto fail;
	b->normed_bytes = b->cpu.ops->operand_bytes(b->cpu.dev, a->cpu.max_rows, a->hidden);
	b->normed = b->cpu.ops->mem_new(b->cpu.dev, b->normed_bytes);
	b->sent = a->ops->event_new(a->dev);
	if (!b->normed || !b->sent) {
		rc = err_why(why, -ENOMEM, "out of memory: %zu bytes for the rows of experts on the CPU",
			     b->normed_bytes);
		goto fail;
	}
	if ((rc = shared_new(b, &b->x, rows * b->row, why)) ||
	    (rc = shared_new(b, &b->sum, rows * b->row, why)) ||
	    (rc = shared_new(b, &b->expert, rows * b->pairs, why)) ||
	    (rc = shared_new(b, &b->weight, rows * b->pairs, why)))
		goto fail;
	*out = b;
	return 0;
fail:
	host_experts_close(b);
	return rc;
}

void host_experts_close(struct host_experts *b)
{
	if (!b)
		return;
	struct shared *shared[] = {&b->weight, &b->expert, &b->sum, &b->x};
	for (int i = 0; i < 4; i++)
		if (shared[i]->p)
			b->ops->host_free(b->dev, shared[i]->p, shared[i]->bytes);
	if (b->sent)
		b->ops->event_free(b->sent);
	if (b->normed)
		b->cpu.ops->mem_free(b->cpu.dev, b->normed, b->normed_bytes);
	if (b->cpu.stream)
		b->cpu.ops->stream_free(b->cpu.stream);
	if (b->cpu.dev)
		b->cpu.ops->close(b->cpu.dev);
	free(b);
}

const struct host_experts_table *host_experts_table(const struct host_experts *b)
{
	return &b->cpu;
}

/* ---- a layer ---- */

int host_experts_send(struct host_experts *b, struct kern_stream *s, const void *x, const int32_t *expert,
		      const float *weight, int n_rows)
{
	const size_t n = (size_t)n_rows;
	int rc;
	if ((rc = b->ops->download(s, b->x.p, x, n * b->row)) ||
	    (rc = b->ops->download(s, b->expert.p, expert, n * b->pairs)) ||
	    (rc = b->ops->download(s, b->weight.p, weight, n * b->pairs)))
		return rc;
	return b->ops->event_record(b->sent, s);
}

/* When the event is reached, the stream has done the previous layer, so its sum may be overwritten. */
int host_experts_compute(struct host_experts *b, const struct kern_experts *experts, const void *norm,
			 float eps, int n_rows)
{
	const struct host_experts_table *t = &b->cpu;
	const struct kern_moe_args moe = {
		.out = b->sum.p, .in = b->normed, .expert = b->expert.p, .weight = b->weight.p};
	int rc = b->ops->event_sync(b->sent);
	if (rc || (rc = t->ops->rmsnorm(t->stream, b->normed, b->x.p, NULL, norm, n_rows, b->hidden, eps)) ||
	    (rc = t->ops->moe(t->stream, experts, &moe, n_rows)))
		return rc;
	return t->ops->stream_sync(t->stream);
}

int host_experts_finish(struct host_experts *b, struct kern_stream *s, void *out, int n_rows)
{
	return b->ops->upload(s, out, b->sum.p, (size_t)n_rows * b->row);
}

const int32_t *host_experts_chosen(const struct host_experts *b)
{
	return b->expert.p;
}
