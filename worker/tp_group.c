#include "worker/tp_group.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SAME_SIZE = 512,
	SPIN_US = 200, /* about the time of a small model's step: no sleep before */
	POLL_US = 20,
};

struct tp_group {
	const struct coll_ops *ops;
	struct coll *coll;
	int rank, n_ranks;
	int rc; /* 0, or the error found by tp_group_look(): the group has ended */
};

struct tp_group_rendezvous {
	const struct coll_ops *ops;
	struct coll_rendezvous *rendezvous; /* NULL once it is used */
};

/* ---- meeting places ---- */

int tp_group_rendezvous_new(struct tp_group_rendezvous **out, const char *device, char *text, struct why *why)
{
	struct tp_group_rendezvous m = {0};
	int rc = kern_find_coll(device, &m.ops, why);
	if (rc || (rc = m.ops->rendezvous_new(&m.rendezvous, text, why)))
		return rc;
	*out = xmemdup(&m, sizeof m);
	return 0;
}

void tp_group_rendezvous_free(struct tp_group_rendezvous *m)
{
	if (!m)
		return;
	m->ops->rendezvous_free(m->rendezvous);
	free(m);
}

int tp_group_join(struct tp_group **out, const struct tp_group_args *a, struct why *why)
{
	struct tp_group g = {.rank = a->rank, .n_ranks = a->n_ranks};
	struct tp_group_rendezvous *mine = a->mine ? *a->mine : NULL;
	int rc = kern_find_coll(a->device, &g.ops, why);
	if (rc)
		return rc;
	if (a->rank == 0 && (!mine || !mine->rendezvous))
		return err_why(why, -ESTALE, "rank 0 has no place where the others could find it");
	const struct coll_args args = {
		.rank = a->rank,
		.n_ranks = a->n_ranks,
		.epoch = a->epoch,
		.rendezvous = a->rendezvous,
		.mine = a->rank == 0 ? &mine->rendezvous : NULL,
		.dev = a->dev,
		.max_cols = a->max_cols,
		.timeout_ms = a->timeout_ms,
		.cancelled = a->cancelled,
		.cancelled_arg = a->cancelled_arg,
		.over = a->over,
		.over_arg = a->over_arg,
	};
	if ((rc = g.ops->join(&g.coll, &args, why)))
		return err_prefix(why, rc, "rank %d of %d cannot join its group", a->rank, a->n_ranks);
	*out = xmemdup(&g, sizeof g);
	return 0;
}

void tp_group_leave(struct tp_group *g)
{
	if (!g)
		return;
	g->ops->leave(g->coll);
	free(g);
}

bool tp_group_broke(int rc)
{
	return rc == -ECANCELED || rc == -ESTALE || rc == -ECONNRESET || rc == -EPROTO;
}

const char *tp_group_why(const struct tp_group *g)
{
	return g->ops->why(g->coll);
}

/* ---- agreement ---- */

struct card {
	struct tp_group_pools pools;
	char same[SAME_SIZE];
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int tp_group_agree(struct tp_group *g, const char *same, struct tp_group_pools *pools, struct why *why)
{
	struct card mine = {.pools = *pools}, *all = xcalloc((size_t)g->n_ranks, sizeof *all);
	snprintf(mine.same, sizeof mine.same, "%s", same);
	int rc = g->ops->gather(g->coll, all, &mine, sizeof mine);
	if (rc)
		err_why(why, rc, "%s", tp_group_why(g));
	for (int r = 0; !rc && r < g->n_ranks; r++) {
		all[r].same[SAME_SIZE - 1] = '\0';
		pools->n_blocks = least(pools->n_blocks, all[r].pools.n_blocks);
		pools->n_host_blocks = least(pools->n_host_blocks, all[r].pools.n_host_blocks);
		pools->max_context = least(pools->max_context, all[r].pools.max_context);
		if (strcmp(all[r].same, mine.same))
			rc = err_why(
				why, -EINVAL,
				"rank %d is of another kind (%s) than rank %d (%s): the ranks of a group "
				"must be alike",
				r, all[r].same, g->rank, mine.same);
	}
	free(all);
	return rc;
}

int tp_group_all(struct tp_group *g, bool *ok)
{
	char all[COLL_RANKS_MAX], mine = *ok;
	int rc = g ? g->ops->gather(g->coll, all, &mine, 1) : 0;
	for (int r = 0; g && !rc && r < g->n_ranks; r++)
		*ok = *ok && all[r];
	return rc;
}

/* ---- operations ---- */

void tp_group_warmed_up(struct tp_group *g)
{
	if (g)
		g->ops->warmed_up(g->coll);
}

int tp_group_sum_rows(struct tp_group *g, struct kern_stream *s, void *x, int n_rows, int width)
{
	return g ? g->ops->sum_rows(g->coll, s, x, n_rows, width) : 0;
}

int tp_group_gather_cols(struct tp_group *g, struct kern_stream *s, void *out, const void *in, int n_rows,
			 const int *widths)
{
	return g ? g->ops->gather_cols(g->coll, s, out, in, n_rows, widths) : 0;
}

int tp_group_share_tokens(struct tp_group *g, struct kern_stream *s, int32_t *tokens, const int32_t *at,
			  int n)
{
	return g && n ? g->ops->share_tokens(g->coll, s, tokens, at, n) : 0;
}

int tp_group_look(struct tp_group *g, int64_t since_us)
{
	if (g && !g->rc)
		g->rc = g->ops->look(g->coll, since_us);
	return g ? g->rc : 0;
}

int tp_group_wait(struct tp_group *g, const struct kern_ops *ops, struct kern_event *e, int64_t since_us)
{
	const int64_t t0 = clock_us();
	while (g && !g->rc && !ops->event_done(e) && !tp_group_look(g, since_us))
		if (clock_us() - t0 > SPIN_US)
			usleep(POLL_US);
	return g && g->rc ? g->rc : ops->event_sync(e);
}

int tp_group_broadcast(struct tp_group *g, void *bytes_of_rank_0, size_t bytes)
{
	return g ? g->ops->broadcast(g->coll, bytes_of_rank_0, bytes) : 0;
}

int tp_group_sync(struct tp_group *g, const struct kern_ops *ops, struct kern_stream *s)
{
	return g ? g->ops->sync(g->coll, s) : ops->stream_sync(s);
}
