/* sched_admit.c - admits waiting sequences: cached prefixes, slots and blocks, and swapping groups in. */
#include "controller/sched/sched_impl.h"

#include <assert.h>

enum {
	WATERMARK = 100, /* admission leaves 1/100 of the pool free, for running sequences */
	/* Plans until a sequence that was refused for lack of blocks is tried again although no further block
	 * is free: a prefix that it shares may have been computed meanwhile. */
	REFUSED_PLANS = 16,
	/* Bytes of constraints that a plan's new sequences may bring in addition to the first; all fit in a
	 * message (BUS_MESSAGE_MAX). */
	CONSTRAINT_BYTES = 64 << 20,
};
_Static_assert((int)CONSTRAINT_BYTES + (int)CONSTRAINT_TEXT_MAX <= 128 << 20,
	       "a plan's forms are half a message");

/* ---- whether a sequence is ready ---- */

/* Return the cached positions of q when plan `number` copies blocks, which is before its runs. */
static uint32_t cached_before(const struct seq *q, uint64_t number)
{
	return q->planned == number ? q->n_before : q->n_computed;
}

/* Return whether a sibling is computing the prompt: then q waits, to share it. */
static bool prompt_in_flight(const struct seq *q, uint64_t number)
{
	struct group *g = q->group;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (&g->seqs[i] != q && g->seqs[i].state == SEQ_RUNNING &&
		    cached_before(&g->seqs[i], number) < g->n_prompt)
			return true;
	return false;
}

static bool group_has_pending(const struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (g->seqs[i].state == SEQ_WAITING && g->seqs[i].n_pending)
			return true;
	return false;
}

enum queue_ready sched_is_ready(const struct seq *q, void *user)
{
	const struct planning *p = user;
	const struct constraint *constraint = q->group->params.constraint;
	if (!sched_may_run(p, q->group))
		return QUEUE_SKIP;
	if (constraint && p->constraint_bytes && p->constraint_bytes + constraint->n > CONSTRAINT_BYTES)
		return QUEUE_SKIP;
	if (!q->group->first_run_us)
		return QUEUE_READY;
	if (sched_beam_stalled(q))
		return QUEUE_SKIP;
	/* Preempted with a token in flight; a swapped group is swapped in as a whole. */
	if (q->n_pending || (q->host.n && group_has_pending(q->group)))
		return QUEUE_HOLD;
	if (q->host.n == 0 && prompt_in_flight(q, p->plan->number))
		return QUEUE_SKIP;
	return QUEUE_READY;
}

/* ---- room ---- */

/* Return a running sibling that has the whole prompt in its blocks.  A sibling that this plan admits does not
 * count: the plan may compute, after the copies, blocks that it found in the prefix cache. */
static struct seq *prompt_holder(const struct seq *q, uint64_t number)
{
	struct group *g = q->group;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *o = &g->seqs[i];
		if (o != q && o->state == SEQ_RUNNING && o->entered != number &&
		    cached_before(o, number) >= g->n_prompt)
			return o;
	}
	return NULL;
}

/* Take the part of q that need not be computed: the prompt from a sibling (true), or blocks found by their
 * tokens (false). */
static bool take_prefix(struct sched *s, struct planning *p, struct seq *q)
{
	struct group *g = q->group;
	struct seq *holder = prompt_holder(q, p->plan->number);
	uint32_t total = seq_total(q), size = s->cfg.block_size;
	if (holder) {
		blocks_share(s->blocks, &q->table, &holder->table, blocks_for(s->blocks, g->n_prompt));
		/* At least one row is computed, to sample a token from. */
		q->n_computed = g->n_prompt < total ? g->n_prompt : total - 1;
		return true;
	}
	/* The prompt's own rows are needed, as for prompt logprobs: all are computed. */
	if (params_needs_rows(&g->params))
		return false;
	q->chain = blocks_root(s->blocks, g->salt);
	q->n_hashed = blocks_match(s->blocks, &q->table, q->tokens, (total - 1) / size, &q->chain);
	q->n_computed = q->n_hashed * size;
	return false;
}

static void drop_prefix(struct sched *s, struct seq *q)
{
	blocks_drop(s->blocks, &q->table, NULL);
	q->n_computed = 0;
	q->n_hashed = 0;
}

/* Return the admission watermark: blocks for running sequences, which grow, and for partly prefilled
 * prompts. */
static uint32_t watermark(const struct sched *s)
{
	uint32_t n = s->n_running ? blocks_total(s->blocks) / WATERMARK : 0;
	for (uint32_t i = 0; i < s->n_running; i++) {
		const struct seq *q = s->running[i];
		uint32_t all = seq_decodes(q) ? 0 : blocks_for(s->blocks, seq_total(q) + 1);
		n += all > q->table.n ? all - q->table.n : 0;
	}
	return n;
}

/* Take the cached part of q, if the blocks for the rest are free. */
static bool find_room(struct sched *s, struct planning *p, struct seq *q)
{
	uint32_t n_free = blocks_n_free(s->blocks);
	if (q == s->refused && n_free <= s->refused_free && s->number - s->refused_number < REFUSED_PLANS)
		return false;
	seq_own_tokens(q);
	bool shares = take_prefix(s, p, q);
	/* Blocks for all its tokens and the next; the last block of a shared prompt will be copied. */
	uint32_t need = blocks_for(s->blocks, seq_total(q) + 1) - q->table.n + shares;
	need += watermark(s);
	if (need > blocks_n_free(s->blocks)) {
		s->refused_lacks = need - blocks_n_free(s->blocks);
		drop_prefix(s, q);
		s->refused = q;
		s->refused_free = n_free;
		s->refused_number = s->number;
		return false;
	}
	return true;
}

/* Take the first blocks that q had computed, as far as the prefix cache has them. */
static void take_computed(struct sched *s, struct seq *q)
{
	q->chain = blocks_root(s->blocks, q->group->salt);
	q->n_hashed =
		blocks_match(s->blocks, &q->table, q->tokens, q->n_computed / s->cfg.block_size, &q->chain);
}

static void drop_computed(struct sched *s, struct seq *q)
{
	blocks_drop(s->blocks, &q->table, NULL);
	q->n_hashed = 0;
}

bool sched_can_admit(struct sched *s, struct planning *p, struct seq *q, uint32_t *lacks)
{
	uint32_t n_free = blocks_n_free(s->blocks);
	uint32_t need = blocks_for(s->blocks, seq_total(q) + 1) + watermark(s);
	*lacks = 0;
	if (s->n_slots == 0)
		return false;
	if (need <= n_free)
		return true;
	*lacks = need - n_free;
	if (q->host.n) {
		take_computed(s, q);
		need -= q->table.n;
		n_free = blocks_n_free(s->blocks);
		drop_computed(s, q);
		*lacks = need > n_free ? need - n_free : 0;
		return need <= n_free;
	}
	/* Running sequences may share many of the blocks that q needs. */
	if (find_room(s, p, q)) {
		drop_prefix(s, q);
		return true;
	}
	*lacks = s->refused_lacks + s->refused_free - n_free;
	return false;
}

/* ---- admission ---- */

/* Send the whole state of q.  Called after its run is planned, so that the table is complete. */
static void send_state(struct planning *p, struct seq *q)
{
	const struct plan *plan = p->plan;
	const struct constraint *constraint = q->group->params.constraint;
	/* Outputs of one job are adjacent. */
	if (constraint && (!plan->n_seqs || plan->seqs[plan->n_seqs - 1].params->constraint != constraint))
		p->constraint_bytes += constraint->n;
	*plan_add_seq(p->plan) = (struct plan_seq){
		.slot = q->slot,
		.seq = q->group->job,
		.index = q->index,
		.n_prompt = q->group->n_prompt,
		.n_tokens = q->n_tokens,
		.mu = q->mu,
		.n_blocks = q->table.n,
		.tokens = q->tokens,
		.blocks = q->table.ids,
		.params = &q->group->params,
	};
}

static bool admit_new(struct sched *s, struct planning *p, struct seq *q)
{
	struct group *g = q->group;
	if (!find_room(s, p, q))
		return false;
	if (!g->first_run_us) {
		s->counts.prefix_queries += g->n_prompt;
		s->counts.prefix_hits += q->n_computed;
		g->cached_tokens = q->n_computed;
	}
	queue_admitted(s->queue, g, p->for_age, p->now_us);
	sched_enter(s, q);
	/* Its blocks were free, so it runs: the worker knows every sequence with a slot. */
	bool ran = sched_run_seq(s, p, q, true);
	assert(ran);
	send_state(p, q);
	return true;
}

/* ---- swapping in ---- */

/* Swap in the blocks that the prefix cache does not have. */
static void swap_in_seq(struct sched *s, struct planning *p, struct seq *q)
{
	for (uint32_t k = q->table.n; k < q->host.n; k++) {
		uint32_t h = q->host.ids[k];
		if (s->to_device[h] == SCHED_UNMAPPED) {
			s->to_device[h] = blocks_take(s->blocks);
			*plan_add_swap_in(p->plan) = (struct plan_pair){h, s->to_device[h]};
		} else {
			blocks_ref(s->blocks, s->to_device[h]);
		}
		blocks_push(&q->table, s->to_device[h]);
	}
	s->n_swapped--;
}

static bool is_swapped(const struct seq *q)
{
	return q->state == SEQ_WAITING && q->host.n > 0;
}

/* Count the distinct host blocks of the group, except those that the prefix cache has. */
static uint32_t count_host_blocks(struct sched *s, const struct group *g)
{
	uint32_t n = 0;
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < g->n_seqs; i++)
			for (uint32_t k = g->seqs[i].table.n; k < g->seqs[i].host.n; k++) {
				uint32_t *m = &s->to_device[g->seqs[i].host.ids[k]];
				n += pass == 0 && *m == SCHED_UNMAPPED;
				*m = pass == 0 ? SCHED_MARKED : SCHED_UNMAPPED;
			}
	return n;
}

/* Give up the host blocks of a group that does not fit although nothing else runs, since its outputs have
 * grown: its tokens are recomputed, and its outputs continue one after another. */
static void forget_swapped(struct sched *s, struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (!is_swapped(q))
			continue;
		blocks_drop(s->host, &q->host, sched_host_later(s));
		q->n_computed = q->n_before = 0;
		s->n_swapped--;
	}
	sched_times_phase(g, PHASE_PREEMPTED, s->now_us);
}

/* Return whether slots and blocks for the group are free; if so, its cached blocks have been taken. */
static bool find_swapped_room(struct sched *s, const struct planning *p, struct group *g)
{
	uint32_t n = 0, need = 0;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (!is_swapped(q))
			continue;
		/* Blocks for all its tokens and the next; a shared last block will be copied. */
		n++;
		need += blocks_for(s->blocks, seq_total(q) + 1) - q->host.n + 1;
		take_computed(s, q);
	}
	need += count_host_blocks(s, g) + watermark(s);
	if (n <= s->n_slots && p->plan->n_runs + n <= s->cfg.max_seqs && n <= p->budget &&
	    need <= blocks_n_free(s->blocks))
		return true;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (is_swapped(&g->seqs[i]))
			drop_computed(s, &g->seqs[i]);
	return false;
}

/* Swap in all of the group's swapped sequences, sharing blocks as before. */
static bool admit_swapped(struct sched *s, struct planning *p, struct group *g)
{
	if (!find_swapped_room(s, p, g)) {
		if (s->n_running == 0 && s->n_flight == 0 && p->plan->n_runs == 0)
			forget_swapped(s, g);
		return false;
	}
	queue_admitted(s->queue, g, p->for_age, p->now_us);
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (is_swapped(&g->seqs[i]))
			swap_in_seq(s, p, &g->seqs[i]);
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (!is_swapped(q))
			continue;
		for (uint32_t k = 0; k < q->host.n; k++)
			s->to_device[q->host.ids[k]] = SCHED_UNMAPPED;
		blocks_drop(s->host, &q->host, &p->flight->host_later);
		sched_enter(s, q);
		bool ran = sched_run_seq(s, p, q, true);
		assert(ran || p->budget == 0 || p->prompt_budget == 0 || sched_beam_stalled(q));
		send_state(p, q);
	}
	return true;
}

bool sched_admit(struct sched *s, struct planning *p, struct seq *q)
{
	return q->host.n ? admit_swapped(s, p, q->group) : admit_new(s, p, q);
}
