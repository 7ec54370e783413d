#include "controller/sched/sched_move.h"

#include "controller/sched/sched_impl.h"

#include <assert.h>

void sched_adopt(struct sched *s, struct group **gp)
{
	struct group *g = *gp;
	*gp = NULL;
	assert(g->order > 0 && g->n_live > 0);
	sched_link(s, g);
}

static void seq_forget(struct sched *s, struct seq *q)
{
	assert(q->state != SEQ_RUNNING && q->n_pending == 0);
	sched_forget(s, q);
	q->planned = q->entered = q->n_reached = 0;
}

struct group *sched_detach(struct sched *s, struct group *g)
{
	assert(g->n_inflight == 0);
	sched_beam_forget(s, g);
	for (uint32_t i = 0; i < g->n_seqs; i++)
		seq_forget(s, &g->seqs[i]);
	sched_unlink(s, g);
	return g;
}

struct group *sched_first(const struct sched *s)
{
	return s->all.next == &s->all ? NULL : s->all.next;
}

struct group *sched_next(const struct sched *s, const struct group *g)
{
	return g->next == &s->all ? NULL : g->next;
}

struct wanted {
	bool (*want)(const struct group *g, void *user);
	void *user;
};

bool sched_is_idle(const struct group *g)
{
	bool idle = g->n_inflight == 0;
	for (uint32_t i = 0; idle && i < g->n_seqs; i++) {
		const struct seq *q = &g->seqs[i];
		idle = q->state != SEQ_RUNNING && q->table.n == 0 && q->n_pending == 0;
	}
	return idle;
}

static enum queue_ready is_wanted(const struct seq *q, void *user)
{
	const struct wanted *w = user;
	return sched_is_idle(q->group) && w->want(q->group, w->user) ? QUEUE_READY : QUEUE_SKIP;
}

struct group *sched_next_idle(struct sched *s, int64_t now_us,
			      bool (*want)(const struct group *g, void *user), void *user)
{
	struct wanted w = {want, user};
	bool for_age;
	struct seq *q = queue_n(s->queue) ? queue_pick(s->queue, now_us, is_wanted, &w, &for_age) : NULL;
	return q ? q->group : NULL;
}

uint32_t sched_left(const struct seq *q)
{
	uint32_t n_out = seq_total(q) - q->group->n_prompt, max = q->group->params.max_tokens;
	return n_out < max ? max - n_out : 0;
}

void sched_running(const struct sched *s, struct sched_ahead *out)
{
	*out = (struct sched_ahead){.n_running = s->n_running};
	for (uint32_t i = 0; i < s->n_running; i++) {
		const struct seq *q = s->running[i];
		uint32_t left = sched_left(q);
		out->prompt_rest += seq_decodes(q) ? 0 : seq_total(q) - q->n_computed;
		out->next_end = i == 0 || left < out->next_end ? left : out->next_end;
	}
}

uint32_t sched_cached(const struct sched *s, const uint32_t *tokens, uint32_t n, uint64_t salt)
{
	const struct contents_root root = {.salt = salt};
	const uint32_t size = s->cfg.block_size;
	if (!s->contents || n == 0)
		return 0;
	/* At least one token must be computed, to sample the next from. */
	return contents_match(s->contents, &root, tokens, (n - 1) / size, false, NULL).n * size;
}

bool sched_quiet(const struct sched *s)
{
	return s->n_flight == 0;
}
