/* sched_preempt.c - takes slots and blocks from running sequences: for running sequences that need blocks,
 * and for the next waiting sequence. */
#include "controller/sched/sched_impl.h"

enum {
	/* A running group is preempted for a waiting one of its priority if its user was served this many
	 * tokens (by share) more than the waiting group's user. */
	FAIR_LEAD = 16384,
	FAIR_PLANS = 8, /* plans between two preemptions for a waiting sequence */
};

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

/* The positions that a group has computed. */
struct computed {
	uint32_t n_blocks; /* distinct blocks that hold them */
	uint32_t n_kept;   /* those also held elsewhere, which are found again by their tokens */
	double tokens;     /* tokens in the remaining blocks */
};

/* Count the group's blocks, and mark each in to_host. */
static struct computed mark_blocks(struct sched *s, const struct group *g)
{
	struct computed c = {0};
	uint32_t size = s->cfg.block_size;
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < g->n_seqs; i++) {
			const struct seq *q = &g->seqs[i];
			uint32_t used = q->state == SEQ_RUNNING ? blocks_for(s->blocks, q->n_computed) : 0;
			for (uint32_t k = 0; k < used; k++) {
				uint32_t id = q->table.ids[k], *m = &s->to_host[id];
				if (pass == 0) { /* count its references in this group */
					*m = *m == SCHED_UNMAPPED ? 1 : *m + 1;
					continue;
				}
				if (*m == SCHED_MARKED)
					continue;
				bool kept = k < q->n_hashed && blocks_n_refs(s->blocks, id) > *m;
				uint32_t rest = q->n_computed - k * size;
				*m = SCHED_MARKED;
				c.n_blocks++;
				c.n_kept += kept;
				c.tokens += kept ? 0 : rest < size ? rest : size;
			}
		}
	return c;
}

static void unmark_blocks(struct sched *s, const struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++)
		for (uint32_t k = 0; k < g->seqs[i].table.n; k++)
			s->to_host[g->seqs[i].table.ids[k]] = SCHED_UNMAPPED;
}

static bool swapping_pays(const struct sched *s, const struct computed *c)
{
	if (s->cfg.preempt != SCHED_AUTO)
		return s->cfg.preempt == SCHED_SWAP;
	if (s->prefill_tps <= 0 || s->link_bps <= 0)
		return false;
	/* Copied out, and in again except for the kept blocks. */
	double n_copies = 2.0 * c->n_blocks - c->n_kept;
	return n_copies * (double)s->block_bytes / s->link_bps < c->tokens / s->prefill_tps;
}

/* Copy the sequence's blocks to the host pool; blocks shared within the group are copied once. */
static void swap_out_seq(struct sched *s, struct planning *p, struct seq *q)
{
	uint32_t used = blocks_for(s->blocks, q->n_computed);
	for (uint32_t k = 0; k < used; k++) {
		uint32_t id = q->table.ids[k];
		if (s->to_host[id] == SCHED_MARKED) {
			s->to_host[id] = blocks_take(s->host);
			*plan_add_swap_out(p->plan) = (struct plan_pair){id, s->to_host[id]};
		} else {
			blocks_ref(s->host, s->to_host[id]);
		}
		blocks_push(&q->host, s->to_host[id]);
	}
	q->n_before = q->n_computed;
	s->n_swapped += used > 0;
	s->counts.n_swapped_out++;
}

/* Preempt all of the group's running sequences, none of which is in this plan. */
static void preempt_group(struct sched *s, struct planning *p, struct group *g)
{
	struct computed c = mark_blocks(s, g);
	bool swap = c.n_blocks && c.n_blocks <= blocks_n_free(s->host) && swapping_pays(s, &c);
	if (swap)
		for (uint32_t i = 0; i < g->n_seqs; i++)
			if (g->seqs[i].state == SEQ_RUNNING)
				swap_out_seq(s, p, &g->seqs[i]);
	unmark_blocks(s, g);
	for (uint32_t i = g->n_seqs; i-- > 0;) {
		struct seq *q = &g->seqs[i];
		if (q->state != SEQ_RUNNING)
			continue;
		if (!swap) {
			sched_recompute(s, q, sched_later(s));
			continue;
		}
		/* Freed after this plan, because its copies read the device blocks. */
		blocks_drop(s->blocks, &q->table, &p->flight->later);
		sched_exit(s, q);
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
			sched_recompute(s, v, sched_later(s));
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
	uint32_t n = p->flight->later.n;
	for (uint32_t i = 0; i < s->n_flight; i++)
		n += s->flight[(s->first_flight + i) % SCHED_AHEAD].later.n;
	return n;
}

bool sched_make_room(struct sched *s, struct planning *p, struct seq *q, uint32_t rows)
{
	uint32_t end = q->n_computed + rows;
	uint32_t missing = blocks_missing(s->blocks, &q->table, end, q->n_computed);
	while (missing > blocks_n_free(s->blocks)) {
		/* Blocks that results in flight will free may be enough. */
		if (missing <= blocks_n_free(s->blocks) + n_later(s, p))
			return false;
		if (!preempt_for(s, p, q))
			return false;
		p->blocked = true; /* the freed blocks are for running sequences */
		missing = blocks_missing(s->blocks, &q->table, end, q->n_computed);
	}
	return true;
}

/* ---- for the next waiting sequence ---- */

/* Return whether preempting all sequences of a lower priority than q's would free n_blocks blocks.  Blocks
 * that other sequences hold as well do not count. */
static bool lower_priority_holds(struct sched *s, const struct seq *q, uint32_t n_blocks)
{
	uint32_t n = 0, first = s->n_running;
	while (n < n_blocks && first > 0 && s->running[first - 1]->group->priority > q->group->priority) {
		const struct block_table *t = &s->running[--first]->table;
		for (uint32_t k = 0; k < t->n; k++) {
			uint32_t *m = &s->to_host[t->ids[k]]; /* references counted so far */
			*m = *m == SCHED_UNMAPPED ? 1 : *m + 1;
			n += *m == blocks_n_refs(s->blocks, t->ids[k]);
		}
	}
	for (uint32_t i = first; i < s->n_running; i++)
		for (uint32_t k = 0; k < s->running[i]->table.n; k++)
			s->to_host[s->running[i]->table.ids[k]] = SCHED_UNMAPPED;
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
