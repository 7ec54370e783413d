/* step_group.c - the ranks of a group: they join, agree on sizes, and leave. */
#include "worker/step_impl.h"

#include "base/err.h"
#include "base/numerics.h"

#include <assert.h>
#include <stdio.h>

/* Write the values that the ranks must have in common, as a readable line. */
static void same_text(const struct step *s, char *out, size_t n)
{
	struct kern_info info;
	char numerics[NUMERICS_MAX];
	s->ops->info(s->dev, &info);
	step_numerics(s, &info, numerics, sizeof numerics);
	snprintf(out, n,
		 "%s; %s of %d layers, %d x %d, vocabulary %d; block size %u, rows %u, runs %u, slots %u%s",
		 numerics, s->config.arch_name, s->config.n_layers, s->config.hidden, s->config.intermediate,
		 s->config.n_vocab, s->block_size, s->lim.max_rows, s->lim.max_runs, s->lim.max_slots,
		 s->no_graphs ? "; no graphs" : "");
}

/* Drop the graphs, which contain operations of the group. */
static void group_over(void *arg)
{
	struct step *s = arg;
	graphs_drop(s->graphs);
}

static int join_group(struct step *s, const struct bus_load *load, const struct step_group *g,
		      struct why *why)
{
	int cols = 0;
	for (int r = 0; r < s->shard.n_ranks; r++)
		cols = s->shard.widths[r] > cols ? s->shard.widths[r] : cols;
	const struct tp_group_args a = {
		.device = s->device,
		.dev = s->dev,
		.epoch = load->epoch,
		.rank = s->shard.rank,
		.n_ranks = s->shard.n_ranks,
		.rendezvous = load->rendezvous,
		.mine = g->mine,
		.max_cols = cols,
		.timeout_ms = g->timeout_ms,
		.cancelled = g->cancelled,
		.cancelled_arg = g->cancelled_arg,
		.over = group_over,
		.over_arg = s,
	};
	return tp_group_join(&s->group, &a, why);
}

/* Open this rank's state, and detect ranks of different kinds before they compute together.  If one rank
 * has yet to size its pool from the memory left, all ranks run the profiling steps, even those with pools
 * from an earlier group.  That group's sequences are forgotten by now. */
static int open_rank(struct step *s, const char *same, struct why *why)
{
	const bool wants = !s->cache.kv && s->sized_last;
	struct tp_group_pools all = {.n_blocks = !wants};
	int rc = s->slots ? 0 : step_open_state(s, why);
	if (rc || (rc = tp_group_agree(s->group, same, &all, why)))
		return rc;
	if (!all.n_blocks && (rc = step_profile(s, why)))
		return rc;
	return wants ? step_size_last(s, why) : 0;
}

static int agree(struct step *s, const char *same, struct why *why)
{
	struct tp_group_pools pools = {s->own_blocks, s->own_host_blocks, s->own_context};
	int rc = tp_group_agree(s->group, same, &pools, why);
	if (rc)
		return rc;
	s->lim.n_blocks = pools.n_blocks;
	s->lim.n_host_blocks = pools.n_host_blocks;
	s->lim.max_context = pools.max_context;
	return 0;
}

int step_join(struct step *s, const struct bus_load *load, const struct step_group *g,
	      struct bus_ready *ready, struct why *why)
{
	char same[512];
	assert(step_serves(s, load) && s->shard.n_ranks > 1);
	step_leave(s);
	int rc = join_group(s, load, g, why);
	if (rc)
		return rc;
	model_set_group(s->model, s->group);
	same_text(s, same, sizeof same);
	if ((rc = open_rank(s, same, why)) || (rc = agree(s, same, why)))
		goto fail;
	/* Pools are made once; a later group may use less of them, but not more. */
	if (!s->cache.kv) {
		s->cache.n_blocks = (int)s->lim.n_blocks;
		s->cache.n_host_blocks = (int)s->lim.n_host_blocks;
		s->own_blocks = s->lim.n_blocks;
		s->own_host_blocks = s->lim.n_host_blocks;
		if ((rc = step_open_pools(s, why)))
			goto fail;
	}
	if ((rc = step_open_graphs(s, NULL, NULL, why)))
		goto fail;
	sampler_notify_after(s->sampler, g->notify_us ? g->notify_us : (int64_t)g->timeout_ms * 1000 / 4);
	step_reset(s, load->epoch, ready);
	return 0;
fail:
	step_leave(s);
	return rc;
}

void step_leave(struct step *s)
{
	if (!s->group)
		return;
	/* Plans in flight may wait for a lost rank: they end with the group.  If there are none, the device
	 * may still be forming the group. */
	if (!step_in_flight(s))
		tp_group_sync(s->group, s->ops, s->stream);
	graphs_free(s->graphs);
	s->graphs = NULL;
	model_set_group(s->model, NULL);
	tp_group_leave(s->group);
	s->group = NULL;
	step_drain(s);
}

bool step_joined(const struct step *s)
{
	return s->shard.n_ranks == 1 || s->group;
}

int step_rank(const struct step *s)
{
	return s->shard.rank;
}

int step_group_size(const struct step *s)
{
	return s->shard.n_ranks;
}
