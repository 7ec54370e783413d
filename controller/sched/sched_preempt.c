/* sched_preempt.c - takes slots and blocks from running sequences: for running sequences that need blocks,
 * and for the next waiting sequence. */
#include "controller/sched/sched_impl.h"

enum {
	/* A running group is preempted for a waiting one of its priority if its user was served this many
	 * tokens (by share) more than the waiting group's user. */
	FAIR_LEAD = 16384,
	FAIR_PLANS = 8, /* plans between two preemptions for a waiting sequence */
};

/* ---- swapping a block ---- */

#define OTHER(store) (store == STORE_HOST ? STORE_DEVICE : STORE_HOST)

/* Return the block of the other store with the content of a block, or CONTENTS_NONE. */
static int32_t copy_of(const struct sched *s, enum contents_store from, uint32_t id)
{
	const int32_t node = contents_whole(s->contents, from, id);
	return node == CONTENTS_NONE
		       ? node
		       : contents_at(s->contents, node, contents_kind(s->contents, from, id), OTHER(from));
}

bool sched_swap_takes(const struct sched *s, enum contents_store from, uint32_t id, uint32_t count)
{
	const int32_t copy = copy_of(s, from, id);
	if (copy == CONTENTS_NONE)
		return count == 1 || contents_whole(s->contents, from, id) == CONTENTS_NONE;
	return count == 1 && blocks_n_refs(sched_blocks(s, OTHER(from)), (uint32_t)copy) == 0;
}

void sched_swap_block(struct sched *s, struct planning *p, enum contents_store from, uint32_t *id)
{
	struct blocks *to = sched_blocks(s, OTHER(from));
	const int32_t node = contents_whole(s->contents, from, *id), copy = copy_of(s, from, *id);
	const uint32_t kind = contents_kind(s->contents, from, *id);
	const struct plan_pair pair = {*id, copy == CONTENTS_NONE ? blocks_take(to) : (uint32_t)copy};
	*id = pair.to;
	if (copy == CONTENTS_NONE)
		*(from == STORE_DEVICE ? plan_add_swap_out : plan_add_swap_in)(p->plan) = pair;
	else
		blocks_ref(to, pair.to);
	if (copy == CONTENTS_NONE && node != CONTENTS_NONE)
		contents_put(s->contents, node, kind, OTHER(from), pair.to);
	/* A block that this plan copies is freed after the plan. */
	blocks_unref(sched_blocks(s, from), pair.from,
		     copy == CONTENTS_NONE ? &p->flight->later[from] : sched_later(s, from));
}

/* ---- preempting a group ---- */

/* Return whether the plan has a run of q, or changes its slot: then the slot cannot be dropped in this
 * plan. */
static bool seq_in_plan(const struct seq *q, uint64_t number)
{
	return q->planned == number || q->entered == number;
}

static bool group_in_plan(const struct group *g, uint64_t number)
{
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (g->seqs[i].state == SEQ_RUNNING && seq_in_plan(&g->seqs[i], number))
			return true;
	return false;
}

/* Costs of swapping a group out and in again, or of computing its tokens again. */
struct costs {
	uint32_t n_host;   /* host blocks to take */
	uint32_t n_copies; /* blocks to copy out and in */
	double tokens;     /* tokens in blocks that no other sequence holds; the others are found again */
};

static struct costs costs_of(struct sched *s, const struct group *g)
{
	struct costs c = {0};
	blocks_survey(s->blocks);
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		const struct seq *q = &g->seqs[i];
		const uint32_t end = sched_reach(q, 0);
		const uint32_t used = q->state == SEQ_RUNNING ? blocks_for(s->blocks, end) : 0;
		for (uint32_t k = 0; k < used * s->kinds.n; k++) {
			const uint32_t id = q->table.ids[k], row = k / s->kinds.n,
				       rest = end - row * s->cfg.block_size;
			if (id == (uint32_t)CONTENTS_NONE)
				continue;
			const uint32_t count = blocks_count(s->blocks, id);
			const bool takes = sched_swap_takes(s, STORE_DEVICE, id, count);
			c.n_host += takes;
			c.n_copies += takes && copy_of(s, STORE_DEVICE, id) == CONTENTS_NONE;
			if (contents_whole(s->contents, STORE_DEVICE, id) != CONTENTS_NONE &&
			    count < blocks_n_refs(s->blocks, id))
				continue;
			c.n_copies++;
			if (k % s->kinds.n == 0)
				c.tokens += rest < s->cfg.block_size ? rest : s->cfg.block_size;
		}
	}
	return c;
}

bool sched_copying_pays(const struct sched *s, uint32_t n_copies, double tokens)
{
	if (s->cfg.preempt != SCHED_AUTO)
		return s->cfg.preempt == SCHED_SWAP;
	if (s->prefill_tps <= 0 || s->link_bps <= 0)
		return false;
	return n_copies * (double)s->block_bytes / s->link_bps < tokens / s->prefill_tps;
}

static void swap_out_seq(struct sched *s, struct planning *p, struct seq *q)
{
	const uint32_t used = blocks_for(s->blocks, sched_reach(q, 0)), n_kinds = s->kinds.n;
	/* Backwards, as blocks_drop(). */
	for (uint32_t k = q->table.n * n_kinds; k-- > used * n_kinds;)
		blocks_unref(s->blocks, q->table.ids[k], sched_later(s, STORE_DEVICE));
	q->table.n = used;
	for (uint32_t k = used * n_kinds; k-- > 0;)
		if (q->table.ids[k] != (uint32_t)CONTENTS_NONE)
			sched_swap_block(s, p, STORE_DEVICE, &q->table.ids[k]);
	q->table.n_writable = 0;
	q->n_before = q->n_computed;
	s->n_swapped += used > 0;
	s->counts.n_swapped_out++;
	sched_exit(s, q);
}

/* Preempt all of the group's running sequences, none of which is in this plan. */
static void preempt_group(struct sched *s, struct planning *p, struct group *g)
{
	const struct costs c = costs_of(s, g);
	const bool swap = c.n_copies && c.n_host <= blocks_n_free(s->host) &&
			  sched_copying_pays(s, c.n_copies, c.tokens);
	for (uint32_t i = g->n_seqs; i-- > 0;) {
		struct seq *q = &g->seqs[i];
		if (q->state != SEQ_RUNNING)
			continue;
		if (swap)
			swap_out_seq(s, p, q);
		else
			sched_recompute(s, q);
	}
}

/* ---- for a running sequence ---- */

/* Take one step to make room for q: preempt the youngest group of the lowest priority; within q's own group,
 * the last sequence.  False: no sequence is after q, or all are in this plan. */
static bool preempt_for(struct sched *s, struct planning *p, const struct seq *q)
{
	uint64_t number = p->plan->number;
	for (uint32_t i = s->n_running; i-- > 0;) {
		struct seq *v = s->running[i];
		if (v == q)
			break;
		if (v->group == q->group) {
			if (seq_in_plan(v, number))
				continue;
			sched_recompute(s, v);
			return true;
		}
		if (group_in_plan(v->group, number))
			continue;
		preempt_group(s, p, v->group);
		return true;
	}
	return q->group->beam && sched_beam_yield(s, q->group, number);
}

static uint32_t n_later(const struct sched *s, const struct planning *p)
{
	uint32_t n = p->flight->later[STORE_DEVICE].n + s->n_leaving;
	for (uint32_t i = 0; i < s->n_flight; i++)
		n += s->flight[(s->first_flight + i) % SCHED_AHEAD].later[STORE_DEVICE].n;
	return n;
}

bool sched_make_room(struct sched *s, struct planning *p, struct seq *q, uint32_t end)
{
	const bool admitted = q->entered == p->plan->number; /* find_room() has found room */
	for (;;) {
		const uint32_t missing = blocks_missing(s->blocks, &q->table, end, q->n_computed);
		const uint32_t n_free = admitted ? blocks_n_free(s->blocks) : sched_available(s, q);
		if (missing <= n_free)
			return true;
		/* Blocks that results in flight will free may be enough. */
		if (missing <= n_free + n_later(s, p))
			return false;
		/* The first sequence always goes on. */
		if (!preempt_for(s, p, q))
			return q == s->running[0] && missing <= blocks_n_free(s->blocks);
		p->blocked = true; /* the freed blocks are for running sequences */
	}
}

/* ---- for the next waiting sequence ---- */

/* Return whether preempting all sequences of a lower priority than q's would free n_blocks blocks.  Blocks
 * that other sequences hold as well do not count. */
static bool lower_priority_holds(struct sched *s, const struct seq *q, uint32_t n_blocks)
{
	uint32_t n = 0, first = s->n_running;
	blocks_survey(s->blocks);
	while (n < n_blocks && first > 0 && s->running[first - 1]->group->priority > q->group->priority) {
		const struct block_table *t = &s->running[--first]->table;
		for (uint32_t k = 0; k < t->n * s->kinds.n; k++)
			if (t->ids[k] != (uint32_t)CONTENTS_NONE)
				n += blocks_count(s->blocks, t->ids[k]) ==
				     blocks_n_refs(s->blocks, t->ids[k]);
	}
	return n >= n_blocks;
}

/* Return whether the group was preempted and has got no token since it was admitted again.  If such a group
 * were preempted again and again for fairness, neither it nor the groups that it displaces would make
 * progress. */
static bool is_catching_up(const struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		const struct seq *q = &g->seqs[i];
		if (q->state == SEQ_RUNNING && q->n_preempted && seq_total(q) == q->n_entered &&
		    !sched_beam_stalled(q))
			return true;
	}
	return false;
}

/* Find the group to preempt for q: the youngest group of the lowest priority, if that is lower than q's.
 * Else, among groups of q's priority, the youngest group of the account or user that was served most, if that
 * is far more than q's.  Counters of different priorities cannot be compared. */
static struct group *find_victim(struct sched *s, const struct planning *p, const struct seq *q,
				 uint32_t lacks)
{
	struct group *victim = NULL;
	int64_t lead = FAIR_LEAD;
	bool enough = lower_priority_holds(s, q, lacks);
	for (uint32_t i = s->n_running; i-- > 0;) {
		struct group *g = s->running[i]->group;
		if (g->priority < q->group->priority)
			break;
		/* Skip groups that would go before q again. */
		if (!queue_before(q, s->running[i]) || is_catching_up(g))
			continue;
		if (g->priority > q->group->priority) {
			if (enough && !queue_is_protected(g, p->now_us))
				return g;
		} else if (queue_lead(g, q->group) > lead) {
			lead = queue_lead(g, q->group);
			victim = g;
		}
	}
	return victim;
}

void sched_preempt_for_next(struct sched *s, struct planning *p)
{
	uint64_t number = p->plan->number;
	if (p->alone || queue_n(s->queue) == 0 || s->n_running == 0 ||
	    number - s->victim_number < FAIR_PLANS || (number - s->fair_number < FAIR_PLANS && !s->newcomer))
		return;
	/* Not in every plan, because queue_pick() visits every waiting user. */
	s->fair_number = number;
	s->newcomer = false;
	struct seq *q = queue_pick(s->queue, p->now_us, sched_is_ready, p, NULL);
	uint32_t lacks;
	if (!q || sched_can_admit(s, p, q, &lacks))
		return;
	struct group *victim = find_victim(s, p, q, lacks);
	if (!victim)
		return;
	s->victim_number = number;
	preempt_group(s, p, victim);
}
