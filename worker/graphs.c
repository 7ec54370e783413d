#include "worker/graphs.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "worker/tp_group.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Launches slow down small steps most, so small sizes are close together.  Beyond ROWS_MAX a step takes
 * longer on the device than its launches on the host. */
enum { ROWS_FINE = 256, ROWS_MAX = 512, STEP_FINE = 8, STEP_COARSE = 16 };

struct graphs {
	const struct kern_ops *ops; /* borrowed */
	struct kern_stream *stream;
	int n;
	int sizes[GRAPHS_MAX];
	struct kern_graph *graphs[GRAPHS_MAX];
	int64_t bytes;
	uint64_t launched;
};

/* ---- sizes ---- */

int graphs_sizes(int max_rows, int sizes[GRAPHS_MAX])
{
	int n = 0;
	const int most = max_rows < ROWS_MAX ? max_rows : ROWS_MAX;
	for (int rows = 1; rows < most;) {
		sizes[n++] = rows;
		rows += rows < STEP_FINE ? rows : rows < ROWS_FINE ? STEP_FINE : STEP_COARSE;
	}
	if (most > 0)
		sizes[n++] = most;
	assert(n <= GRAPHS_MAX);
	return n;
}

/* Return the index of the first size that holds this many rows; n: none does. */
static int index_of(const struct graphs *g, int rows)
{
	int i = 0;
	while (i < g->n && g->sizes[i] < rows)
		i++;
	return i;
}

/* ---- capture ---- */

static int step(const struct graphs_args *a, int rows)
{
	int rc = model_forward(a->model, a->kv, a->tokens, rows);
	return rc ? rc : model_head(a->model, rows);
}

/* Run a step of null rows once, then capture it. */
static int make(struct graphs *g, const struct graphs_args *a, int rows)
{
	const struct kern_batch b = {.pad_to = rows};
	struct kern_graph *made = NULL;
	int rc = g->ops->batch_set(g->stream, &b);
	if (rc || (rc = step(a, rows)) || (rc = tp_group_sync(a->group, g->ops, g->stream)) ||
	    (rc = g->ops->graph_begin(g->stream)))
		return rc;
	rc = step(a, rows);
	int end = g->ops->graph_end(g->stream, &made);
	if (rc || end) {
		g->ops->graph_free(made);
		return rc ? rc : end;
	}
	g->sizes[g->n] = rows;
	g->graphs[g->n++] = made;
	return 0;
}

/* The ranks of a group must launch the same graphs: drop a graph that any rank failed to make. */
static int agree(struct graphs *g, const struct graphs_args *a, int rows, int rc)
{
	bool all = !rc;
	int e = tp_group_broke(rc) ? rc : tp_group_all(a->group, &all);
	if (!rc && (e || !all) && g->n && g->sizes[g->n - 1] == rows)
		g->ops->graph_free(g->graphs[--g->n]);
	return rc ? rc : e ? e : all ? 0 : -ENOMEM;
}

static int64_t bytes_free(const struct graphs_args *a)
{
	struct kern_info info;
	a->ops->info(a->dev, &info);
	return info.bytes_free;
}

int graphs_new(struct graphs **out, const struct graphs_args *a, struct why *why)
{
	int sizes[GRAPHS_MAX], rc = 0;
	*out = NULL;
	if (!a->ops->graph_begin)
		return 0;
	const int64_t before = bytes_free(a), t0 = clock_us();
	const int n = graphs_sizes(a->max_rows, sizes);
	struct graphs *g = xcalloc(1, sizeof *g);
	g->ops = a->ops;
	g->stream = a->stream;
	*out = g;
	for (int i = 0; !rc && i < n; i++) {
		rc = agree(g, a, sizes[i], make(g, a, sizes[i]));
		if (a->progress)
			a->progress(a->progress_arg, (unsigned)(1000 * (i + 1) / n));
	}
	if (rc && rc != -ENOMEM) {
		graphs_free(g);
		*out = NULL;
		if (tp_group_broke(rc))
			return err_why(why, rc, "%s", tp_group_why(a->group));
		return err_why(why, rc,
			       "the device did not keep a step of decoding as a graph; start the worker with "
			       "--no-graphs to do without");
	}
	const int64_t took = before - bytes_free(a);
	g->bytes = took > 0 ? took : 0;
	if (rc)
		log_warn("graphs", "no graphs for larger steps rows=%d reason=\"out of memory\"",
			 g->n ? g->sizes[g->n - 1] : 0);
	log_info("graphs", "ready graphs=%d rows=%d bytes=%lld ms=%lld", g->n, g->n ? g->sizes[g->n - 1] : 0,
		 (long long)g->bytes, (long long)((clock_us() - t0) / 1000));
	return 0;
}

void graphs_free(struct graphs *g)
{
	graphs_drop(g);
	free(g);
}

void graphs_drop(struct graphs *g)
{
	for (int i = 0; g && i < g->n; i++)
		g->ops->graph_free(g->graphs[i]);
	if (g)
		g->n = 0;
}

/* ---- a step ---- */

int graphs_pick(const struct graphs *g, const struct kern_batch *b)
{
	/* With as many runs as rows, every run has one row. */
	if (!g || b->n_rows != b->n_seqs || !b->n_rows || !b->n_logits)
		return 0;
	const int i = index_of(g, b->n_rows > b->n_logits ? b->n_rows : b->n_logits);
	return i < g->n ? g->sizes[i] : 0;
}

int graphs_launch(struct graphs *g, int pad_to)
{
	const int i = index_of(g, pad_to);
	assert(i < g->n && g->sizes[i] == pad_to);
	g->launched++;
	return g->ops->graph_launch(g->stream, g->graphs[i]);
}

int graphs_count(const struct graphs *g)
{
	return g ? g->n : 0;
}

int64_t graphs_bytes(const struct graphs *g)
{
	return g ? g->bytes : 0;
}

uint64_t graphs_launched(const struct graphs *g)
{
	return g ? g->launched : 0;
}
