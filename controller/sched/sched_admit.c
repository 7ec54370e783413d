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
	if (q->n_pending || (seq_is_swapped(q) && group_has_pending(q->group)))
		return QUEUE_HOLD;
	if (!seq_is_swapped(q) && prompt_in_flight(q, p->plan->number))
		return QUEUE_SKIP;
	return QUEUE_READY;
}

/* ---- room ---- */

/* Return the position from which q continues if a sibling has the whole prompt: at least one row is computed,
 * to sample a token from. */
static uint32_t after_prompt(const struct seq *q)
{
	const uint32_t total = seq_total(q);
	return q->group->n_prompt < total ? q->group->n_prompt : total - 1;
}

/* Return a running sibling that has the whole prompt in its blocks.  A sibling that this plan admits does not
 * count: the plan may compute, after the copies, blocks that it found in the prefix cache.  Nor does one that
 * has given up the windows at the end of the prompt. */
static struct seq *prompt_holder(const struct sched *s, const struct seq *q, uint64_t number)
{
	struct group *g = q->group;
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *o = &g->seqs[i];
		if (o != q && o->state == SEQ_RUNNING && o->entered != number &&
		    cached_before(o, number) >= g->n_prompt &&
		    blocks_reach(s->blocks, &o->table, after_prompt(q)))
			return o;
	}
	return NULL;
}

/* Return the admission watermark: blocks for running sequences, which grow, and for partly prefilled
 * prompts. */
static uint32_t watermark(const struct sched *s)
{
	uint32_t n = s->n_running ? blocks_total(s->blocks) / WATERMARK : 0;
	for (uint32_t i = 0; i < s->n_running; i++) {
		const struct seq *q = s->running[i];
		const uint32_t all = seq_decodes(q) ? 0 : sched_blocks_of(s, seq_total(q) + 1);
		const uint32_t has = all ? blocks_held(s->blocks, &q->table) : 0;
		n += all > has ? all - has : 0;
	}
	return n;
}

/* The positions that q need not compute, and their blocks. */
struct start {
	struct seq *holder; /* a sibling that holds them: the prompt */
	bool retained;      /* q retains them */
	uint32_t n;         /* positions */
	/* [*][kinds] blocks as in contents_match(); all rows are full, unless holder or retained is set */
	const uint32_t *ids;
	int32_t node; /* node of the last row, unless holder or retained is set */
};

/* Find the longest cached prefix of q, of at most max rows: its blocks are in q's table.  Blocks that only
 * the host pool has count if copying them is estimated to cost less than computing their tokens. */
static struct contents_found find_cached(const struct sched *s, const struct seq *q, uint32_t max)
{
	const struct contents_root root = sched_root(s, q->group);
	const struct contents_found h =
		contents_match(s->contents, &root, q->tokens, max, true, q->table.ids);
	if (h.n_host == 0)
		return h;
	const struct contents_found d = contents_match(s->contents, &root, q->tokens, max, false, NULL);
	if (h.n > d.n && sched_copying_pays(s, h.n_host, (double)(h.n - d.n) * s->cfg.block_size))
		return h;
	return contents_match(s->contents, &root, q->tokens, max, false, q->table.ids);
}

static struct start find_start(struct sched *s, struct planning *p, struct seq *q)
{
	const struct group *g = q->group;
	const uint32_t size = s->cfg.block_size;
	/* If the prompt's own rows are needed, as for prompt logprobs, all are computed. */
	const bool looks = !s->cfg.no_cache && !params_needs_rows(&g->params);
	const uint32_t max = looks ? (seq_total(q) - 1) / size : 0;
	struct seq *holder = prompt_holder(s, q, p->plan->number);
	const uint32_t n = sched_retained(s, q, q->table.ids);
	struct start st = {.retained = true, .ids = q->table.ids, .n = n, .holder = NULL};
	if (holder) {
		if (n && n >= g->n_prompt)
			return st;
		return (struct start){.holder = holder, .n = after_prompt(q), .ids = holder->table.ids};
	}
	const struct contents_root root = sched_root(s, g);
	if (n && n >= size * contents_match(s->contents, &root, q->tokens, max, false, NULL).n)
		return st;
	const struct contents_found f = find_cached(s, q, max);
	q->n_branch = f.n_seen * size;
	return (struct start){.n = f.n * size, .ids = q->table.ids, .node = f.node};
}

/* Return how many of n blocks are in use: these are not taken from the free or cached ones. */
static uint32_t count_used(const struct sched *s, const uint32_t *ids, uint32_t n)
{
	uint32_t used = 0;
	for (uint32_t i = 0; i < n; i++)
		used += !(ids[i] & CONTENTS_HOST) && blocks_n_refs(s->blocks, ids[i]) > 0;
	return used;
}

/* Continue q from cached blocks, found by contents_match() in the ids of q's table. */
static void take_cached(struct sched *s, struct planning *p, struct seq *q, const struct start *st)
{
	const uint32_t rows = st->n / s->cfg.block_size, n = rows * s->kinds.n;
	uint32_t *ids = q->table.ids;
	q->table.n = rows;
	q->table.from = st->n;
	/* All blocks first: those of the device that are found must not be taken for copies. */
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] != (uint32_t)CONTENTS_NONE)
			blocks_ref(ids[i] & CONTENTS_HOST ? s->host : s->blocks, ids[i] & ~CONTENTS_HOST);
	sched_name(s, q, rows, st->node);
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] != (uint32_t)CONTENTS_NONE && ids[i] & CONTENTS_HOST) {
			ids[i] &= ~CONTENTS_HOST;
			sched_swap_block(s, p, STORE_HOST, &ids[i]);
		}
	q->n_computed = st->n;
}

/* Return whether there is room for q.  take: take the part of it that need not be computed: the prompt of a
 * sibling, the blocks that q retains, or blocks found by their tokens. */
static bool find_room(struct sched *s, struct planning *p, struct seq *q, bool take)
{
	const uint32_t n_free = sched_available(s, q), total = seq_total(q), size = s->cfg.block_size;
	const uint32_t n_kinds = s->kinds.n;
	if (q == s->refused && n_free <= s->refused_free && s->number - s->refused_number < REFUSED_PLANS)
		return false;
	seq_own_tokens(q);
	block_table_reserve(s->blocks, &q->table, total / size + 1);
	const struct start st = find_start(s, p, q);
	const uint32_t rows = st.holder ? blocks_for(s->blocks, q->group->n_prompt) : st.n / size;
	/* Blocks for all its tokens and the next; the last row of a shared prompt will be copied. */
	uint32_t need = sched_blocks_of(s, total + 1) + (st.holder ? n_kinds : 0) + watermark(s);
	need -= count_used(s, st.ids, rows * n_kinds);
	for (uint32_t k = 0; st.retained && st.n % size && k < n_kinds; k++) {
		const uint32_t last = st.ids[(size_t)rows * n_kinds + k];
		need += blocks_n_refs(s->blocks, last) == 0 && sched_copies_last(s, q, k, last);
	}
	if (need > n_free) {
		s->refused_lacks = need - n_free;
		s->refused = q;
		s->refused_free = n_free;
		s->refused_number = s->number;
		return false;
	}
	if (!take)
		return true;
	if (st.retained) {
		sched_take_retained(s, p, q, st.n);
		return true;
	}
	sched_unretain(s, q);
	if (st.holder) {
		blocks_share(s->blocks, &q->table, &st.holder->table, rows);
		sched_name(s, q, 0, CONTENTS_NONE);
		q->n_computed = st.n;
	} else {
		take_cached(s, p, q, &st);
	}
	return true;
}

/* Return the number of blocks that the swapped sequences of a group need to return and continue. */
static uint32_t swapped_need(struct sched *s, const struct group *g)
{
	uint32_t need = watermark(s);
	blocks_survey(s->host);
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		const struct seq *q = &g->seqs[i];
		if (!seq_is_swapped(q))
			continue;
		for (uint32_t k = 0; k < q->table.n * s->kinds.n; k++) {
			const uint32_t id = q->table.ids[k];
			if (id != (uint32_t)CONTENTS_NONE)
				need += sched_swap_takes(s, STORE_HOST, id, blocks_count(s->host, id));
		}
		/* Blocks for the next token, and for a copy of a shared last row.  The table may have further
		 * rows, which open runs had reserved. */
		const uint32_t want = blocks_for(s->blocks, seq_total(q) + 1);
		need += ((want > q->table.n ? want - q->table.n : 0) + 1) * s->kinds.n;
	}
	return need;
}

bool sched_can_admit(struct sched *s, struct planning *p, struct seq *q, uint32_t *lacks)
{
	const uint32_t n_free = sched_available(s, q);
	const bool swapped = seq_is_swapped(q);
	const uint32_t need =
		swapped ? swapped_need(s, q->group) : sched_blocks_of(s, seq_total(q) + 1) + watermark(s);
	*lacks = s->n_slots && need > n_free ? need - n_free : 0;
	if (swapped || *lacks == 0)
		return s->n_slots && *lacks == 0;
	/* Running sequences may share many of the blocks that q needs. */
	if (find_room(s, p, q, false))
		return true;
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
	if (!find_room(s, p, q, true))
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

/* Swap in all of the group's swapped sequences.  A group that does not fit although nothing else runs, since
 * its outputs have grown, gives its host blocks up: its tokens are recomputed, and its outputs continue one
 * after another. */
static bool admit_swapped(struct sched *s, struct planning *p, struct group *g)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		n += seq_is_swapped(&g->seqs[i]);
	if (n > s->n_slots || p->plan->n_runs + n > s->cfg.max_seqs || n > p->budget ||
	    swapped_need(s, g) > blocks_n_free(s->blocks)) {
		if (s->n_running || s->n_flight || p->plan->n_runs)
			return false;
		for (uint32_t i = 0; i < g->n_seqs; i++)
			sched_forget(s, &g->seqs[i]);
		sched_times_phase(g, PHASE_PREEMPTED, s->now_us);
		return false;
	}
	queue_admitted(s->queue, g, p->for_age, p->now_us);
	bool returns[PARAMS_N_MAX] = {false};
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (!(returns[i] = seq_is_swapped(q)))
			continue;
		/* Forwards: its first blocks, which are cached longest, are not taken for others. */
		for (uint32_t k = 0; k < q->table.n * s->kinds.n; k++)
			if (q->table.ids[k] != (uint32_t)CONTENTS_NONE)
				sched_swap_block(s, p, STORE_HOST, &q->table.ids[k]);
		s->n_swapped--;
		sched_enter(s, q);
	}
	/* A run may fork outputs that have not begun, so all others have their slots by now. */
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (!returns[i])
			continue;
		bool ran = sched_run_seq(s, p, q, true);
		assert(ran || p->budget == 0 || p->prompt_budget == 0 || sched_beam_stalled(q));
		send_state(p, q);
	}
	return true;
}

bool sched_admit(struct sched *s, struct planning *p, struct seq *q)
{
	return seq_is_swapped(q) ? admit_swapped(s, p, q->group) : admit_new(s, p, q);
}
