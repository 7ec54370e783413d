#include "controller/sched/sched.h"

#include "base/alloc.h"
#include "controller/sched/sched_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGING_US = 60 * 1000 * 1000, FIRST_PROMPT_ROWS = 128 };

/* ---- small helpers ---- */

struct sched_event *sched_add_event(struct sched_events *ev, enum sched_event_kind kind,
				    const struct group *g)
{
	if (ev->n == 0) {
		result_reset(&ev->beam_logprobs);
		ev->n_times = 0;
	}
	array_grow(ev->v, ev->cap, ev->n + 1);
	struct sched_event *e = &ev->v[ev->n++];
	*e = (struct sched_event){.kind = kind, .job = g->job, .logprob = -1, .stop_token = -1};
	return e;
}

void sched_events_fini(struct sched_events *e)
{
	free(e->v);
	result_fini(&e->beam_logprobs);
	free(e->values);
	free(e->times);
	*e = (struct sched_events){0};
}

struct blocks_later *sched_later(struct sched *s, enum contents_store store)
{
	return s->n_flight ? &s->flight[(s->first_flight + s->n_flight - 1) % SCHED_AHEAD].later[store]
			   : NULL;
}

/* ---- waiting and running ---- */

/* Return whether a goes before b in the running list. */
static bool runs_before(const struct seq *a, const struct seq *b)
{
	const struct group *ga = a->group, *gb = b->group;
	if (ga->priority != gb->priority)
		return ga->priority < gb->priority;
	if (ga->order != gb->order)
		return ga->order < gb->order;
	return a->index < b->index;
}

static void enqueue(struct sched *s, struct seq *q)
{
	queue_push(s->queue, q);
	q->queued = true;
}

static void dequeue(struct sched *s, struct seq *q)
{
	if (q->queued)
		queue_remove(s->queue, q);
	q->queued = false;
}

/* Count the tokens to compute when the sequence is admitted again; the prompt counts once for all waiting
 * sequences of the group. */
static void add_backlog(struct sched *s, struct seq *q)
{
	const struct group *g = q->group;
	bool first = true;
	for (uint32_t i = 0; i < g->n_seqs; i++)
		first = first && !g->seqs[i].backlog;
	q->backlog = seq_total(q) - (first ? 0 : g->n_prompt);
	s->begun_tokens += q->backlog;
}

static void remove_backlog(struct sched *s, struct seq *q)
{
	s->begun_tokens -= q->backlog;
	q->backlog = 0;
}

/* Count a group that has not begun as queued, or no longer queued. */
static void count_queued(struct sched *s, const struct group *g, bool is_queued)
{
	struct sched_queued *of = map_get(&s->queued, g->account);
	if (!of) {
		of = xcalloc(1, sizeof *of);
		map_put(&s->queued, g->account, of);
	}
	struct sched_queued *both[] = {of, &s->all_queued};
	for (int i = 0; i < 2; i++) {
		both[i]->n += is_queued ? 1 : -1u;
		both[i]->tokens += is_queued ? g->n_prompt : -(uint64_t)g->n_prompt;
	}
	if (of->n == 0) {
		map_remove(&s->queued, g->account);
		free(of);
	}
}

struct sched_queued sched_queued(const struct sched *s, uint64_t account)
{
	const struct sched_queued *of = map_get(&s->queued, account);
	return of ? *of : (struct sched_queued){0};
}

/* Queue the first waiting sequence of a group that has not begun; it stands for the whole group. */
static void enqueue_first(struct sched *s, struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (g->seqs[i].state == SEQ_WAITING) {
			enqueue(s, &g->seqs[i]);
			return;
		}
}

void sched_begin(struct sched *s, struct group *g, int64_t now_us)
{
	if (g->first_run_us)
		return;
	g->first_run_us = now_us;
	count_queued(s, g, false);
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (g->seqs[i].state == SEQ_WAITING && !g->seqs[i].queued)
			enqueue(s, &g->seqs[i]);
}

void sched_enter(struct sched *s, struct seq *q)
{
	assert(q->state == SEQ_WAITING && s->n_slots > 0);
	sched_times_enter(s, q);
	dequeue(s, q);
	remove_backlog(s, q);
	s->n_waiting--;
	uint32_t i = s->n_running++;
	for (; i > 0 && runs_before(q, s->running[i - 1]); i--)
		s->running[i] = s->running[i - 1];
	s->running[i] = q;
	q->state = SEQ_RUNNING;
	q->slot = s->slots[--s->n_slots];
	q->entered = s->number + 1;
	q->n_entered = seq_total(q);
	block_table_reserve(s->blocks, &q->table,
			    blocks_for(s->blocks, q->group->n_prompt + q->group->params.max_tokens));
}

/* Return the index of a running sequence; the list is sorted, so this is a binary search. */
static uint32_t running_at(const struct sched *s, const struct seq *q)
{
	uint32_t lo = 0, hi = s->n_running - 1;
	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		if (runs_before(s->running[mid], q))
			lo = mid + 1;
		else
			hi = mid;
	}
	assert(s->running[lo] == q);
	return lo;
}

/* Free the slot: the next plan drops it, and may give it to another sequence. */
static void release_slot(struct sched *s, struct seq *q)
{
	sched_hold(s, q, false);
	uint32_t i = running_at(s, q);
	memmove(s->running + i, s->running + i + 1, (s->n_running - i - 1) * sizeof(struct seq *));
	s->n_running--;
	s->slots[s->n_slots++] = q->slot;
	s->drops[s->n_drops++] = q->slot;
}

void sched_exit(struct sched *s, struct seq *q)
{
	release_slot(s, q);
	q->planned = 0;
	q->set_due = false;
	q->n_preempted++;
	s->counts.n_preempted++;
	sched_wait(s, q);
	sched_times_exit(s, q);
}

void sched_wait(struct sched *s, struct seq *q)
{
	q->state = SEQ_WAITING;
	s->n_waiting++;
	add_backlog(s, q);
	enqueue(s, q);
}

void sched_forget(struct sched *s, struct seq *q)
{
	const enum contents_store store = seq_is_swapped(q) ? STORE_HOST : STORE_DEVICE;
	s->n_swapped -= seq_is_swapped(q);
	s->n_leaving -= q->leaving ? blocks_held(s->blocks, &q->table) : 0;
	q->leaving = false;
	sched_unretain(s, q);
	blocks_drop(sched_blocks(s, store), &q->table, sched_later(s, store));
	sched_name(s, q, 0, CONTENTS_NONE);
	q->n_computed = q->n_before = 0;
}

void sched_recompute(struct sched *s, struct seq *q)
{
	sched_leave(s, q);
	sched_exit(s, q);
}

/* ---- groups: lifecycle ---- */

struct sched *sched_new(const struct sched_config *cfg)
{
	struct sched *s = xcalloc(1, sizeof *s);
	s->cfg = *cfg;
	s->kinds = KINDS_ONE;
	if (s->cfg.chunk == 0 || s->cfg.chunk > s->cfg.max_rows)
		s->cfg.chunk = s->cfg.max_rows;
	if (s->cfg.first_prompt_rows == 0)
		s->cfg.first_prompt_rows = FIRST_PROMPT_ROWS;
	s->queue = queue_new(cfg->aging_us ? cfg->aging_us : AGING_US, cfg->max_seqs);
	s->running = xcalloc(cfg->max_seqs, sizeof(struct seq *));
	s->slots = xcalloc(cfg->max_seqs, sizeof *s->slots);
	s->drops = xcalloc(cfg->max_seqs, sizeof *s->drops);
	s->padded = xcalloc(cfg->block_size, sizeof *s->padded);
	s->all.prev = s->all.next = &s->all;
	s->next_deadline = INT64_MAX;
	return s;
}

static void free_dead(struct sched *s)
{
	struct group **at = &s->dead;
	while (*at) {
		struct group *g = *at;
		if (g->n_inflight) {
			at = &g->next_dead;
			continue;
		}
		*at = g->next_dead;
		group_free(g);
	}
}

static void free_pools(struct sched *s)
{
	blocks_free(s->blocks);
	blocks_free(s->host);
	contents_free(s->contents);
	s->blocks = s->host = NULL;
	s->contents = NULL;
}

void sched_free(struct sched *s)
{
	if (!s)
		return;
	while (s->all.next != &s->all) {
		struct group *g = s->all.next;
		s->all.next = g->next;
		group_free(g);
	}
	while (s->dead) {
		struct group *g = s->dead;
		s->dead = g->next_dead;
		group_free(g);
	}
	for (int i = 0; i < SCHED_AHEAD; i++) {
		free(s->flight[i].samples);
		free(s->flight[i].runs);
		for (int k = 0; k < STORES; k++)
			blocks_later_fini(&s->flight[i].later[k]);
	}
	free_pools(s);
	map_fini(&s->by_job);
	for (size_t i = 0; i < s->queued.cap; i++)
		free(s->queued.slots[i].value);
	map_fini(&s->queued);
	queue_free(s->queue);
	free(s->decided);
	free(s->running);
	free(s->slots);
	free(s->drops);
	free(s->padded);
	free(s);
}

/* Return the group after which g is inserted.  Groups of a lost worker arrive in order, but belong between
 * others: the search begins at the last insertion, so that two lists are merged in one pass. */
static struct group *link_after(struct sched *s, const struct group *g)
{
	struct group *after = s->all.prev;
	s->n_order_steps++;
	if (after == &s->all || after->order < g->order)
		return after;
	if (s->linked)
		after = s->linked;
	for (; after != &s->all && after->order > g->order; after = after->prev)
		s->n_order_steps++;
	for (; after->next != &s->all && after->next->order < g->order; after = after->next)
		s->n_order_steps++;
	return after;
}

void sched_link(struct sched *s, struct group *g)
{
	struct group *after = link_after(s, g);
	s->linked = g;
	g->prev = after;
	g->next = after->next;
	g->prev->next = g->next->prev = g;
	assert(!map_get(&s->by_job, g->job));
	map_put(&s->by_job, g->job, g);
	s->n_groups++;
	if (g->order > s->order)
		s->order = g->order;
	if (g->deadline_us && g->deadline_us < s->next_deadline)
		s->next_deadline = g->deadline_us;
	s->n_suspects += g->suspect;
	sched_times_queue(s, g);
	s->newcomer |= queue_join(s->queue, g);
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		if (g->seqs[i].state != SEQ_WAITING)
			continue;
		s->n_waiting++;
		if (!g->first_run_us)
			continue;
		add_backlog(s, &g->seqs[i]);
		enqueue(s, &g->seqs[i]);
	}
	if (g->first_run_us)
		return;
	g->since_us = g->arrival_us;
	count_queued(s, g, true);
	enqueue_first(s, g);
}

void sched_add(struct sched *s, struct group **gp, int64_t now_us)
{
	struct group *g = *gp;
	*gp = NULL;
	g->order = s->order + 1;
	g->arrival_us = now_us;
	sched_clock(s, now_us);
	sched_link(s, g);
}

struct group *sched_find(struct sched *s, uint64_t job)
{
	return map_get(&s->by_job, job);
}

void sched_unlink(struct sched *s, struct group *g)
{
	for (uint32_t i = 0; i < g->n_seqs; i++) {
		struct seq *q = &g->seqs[i];
		if (q->state == SEQ_WAITING) {
			dequeue(s, q);
			remove_backlog(s, q);
			s->n_waiting--;
		}
		if (s->refused == q)
			s->refused = NULL;
	}
	sched_times_unqueue(s, g);
	queue_leave(s->queue, g);
	sched_beam_forget(s, g);
	if (s->linked == g)
		s->linked = g->prev == &s->all ? NULL : g->prev;
	g->prev->next = g->next;
	g->next->prev = g->prev;
	map_remove(&s->by_job, g->job);
	s->n_groups--;
	s->n_suspects -= g->suspect;
	if (!g->first_run_us)
		count_queued(s, g, false);
}

/* Remove the group; it is freed when no plan in flight names it. */
static void group_remove(struct sched *s, struct group *g)
{
	sched_unlink(s, g);
	if (g->n_inflight == 0) {
		group_free(g);
		return;
	}
	g->next_dead = s->dead;
	s->dead = g;
}

void sched_end(struct sched *s, struct seq *q)
{
	if (q->state == SEQ_RUNNING) {
		release_slot(s, q);
		sched_forget(s, q);
	} else if (q->state == SEQ_WAITING) {
		dequeue(s, q);
		remove_backlog(s, q);
		s->n_waiting--;
		sched_forget(s, q);
	}
	if (s->refused == q)
		s->refused = NULL;
	sched_clear_strikes(s, q);
	q->n_pending = q->n_slack = 0; /* tokens of plans in flight are discarded */
	q->state = SEQ_FINISHED;
}

void sched_finish(struct sched *s, struct seq *q, enum finish finish, int64_t stop_token,
		  struct sched_events *ev)
{
	struct group *g = q->group;
	bool was_queued = q->queued;
	sched_end(s, q);
	q->finish = finish;
	struct sched_event *e = sched_add_event(ev, SCHED_OUTPUT_DONE, g);
	e->index = q->index;
	e->finish = finish;
	e->stop_token = stop_token;
	if (--g->n_live) {
		if (was_queued && !g->first_run_us)
			enqueue_first(s, g);
		return;
	}
	sched_group_done(s, g, ev);
}

void sched_group_done(struct sched *s, struct group *g, struct sched_events *ev)
{
	struct sched_event *e = sched_add_event(ev, SCHED_GROUP_DONE, g);
	e->arrival_us = g->arrival_us;
	e->first_run_us = g->first_run_us;
	e->first_token_us = g->first_token_us;
	e->cached_tokens = g->cached_tokens;
	e->class_changed = g->class_changed;
	sched_times_end(s, g, ev, e);
	group_remove(s, g);
}

static void group_fail(struct sched *s, struct group *g, enum code code, const char *why,
		       struct sched_events *ev)
{
	for (uint32_t i = 0; i < g->n_seqs; i++)
		if (g->seqs[i].state != SEQ_FINISHED)
			sched_end(s, &g->seqs[i]);
	g->n_live = 0;
	struct sched_event *e = sched_add_event(ev, SCHED_GROUP_FAILED, g);
	e->code = code;
	e->why = why;
	sched_times_end(s, g, ev, e);
	group_remove(s, g);
}

void sched_stop(struct sched *s, uint64_t job, uint32_t index, struct sched_events *ev)
{
	struct group *g = sched_find(s, job);
	if (g && !g->beam && index < g->n_seqs && g->seqs[index].state != SEQ_FINISHED)
		sched_finish(s, &g->seqs[index], FINISH_STOP, -1, ev);
}

void sched_cancel(struct sched *s, uint64_t job, struct sched_events *ev)
{
	struct group *g = sched_find(s, job);
	if (!g)
		return;
	if (g->beam) {
		sched_beam_abort(s, g, ev);
		return;
	}
	/* The last sequence to finish removes the group. */
	uint32_t n = g->n_seqs;
	for (uint32_t i = 0, live = g->n_live; i < n && live; i++)
		if (g->seqs[i].state != SEQ_FINISHED) {
			live--;
			sched_finish(s, &g->seqs[i], FINISH_ABORT, -1, ev);
		}
}

void sched_expire(struct sched *s, int64_t now_us, struct sched_events *ev)
{
	sched_clock(s, now_us);
	if (now_us < s->next_deadline)
		return;
	s->next_deadline = INT64_MAX;
	for (struct group *g = s->all.next, *next; g != &s->all; g = next) {
		next = g->next;
		if (!g->deadline_us)
			continue;
		if (g->deadline_us <= now_us)
			group_fail(s, g, E_DEADLINE, NULL, ev);
		else if (g->deadline_us < s->next_deadline)
			s->next_deadline = g->deadline_us;
	}
}

void sched_fail(struct sched *s, struct group *g, enum code code, const char *why, struct sched_events *ev)
{
	group_fail(s, g, code, why, ev);
}

/* ---- worker ---- */

void sched_set_kinds(struct sched *s, const struct kinds *kinds)
{
	assert(!s->blocks && kinds->n >= 1 && kinds->n <= KINDS_MAX);
	s->kinds = *kinds;
}

void sched_start(struct sched *s, uint32_t n_blocks, uint32_t n_host_blocks, uint64_t epoch)
{
	assert(s->n_running == 0 && s->n_flight == 0);
	free_pools(s);
	s->contents = contents_new((uint32_t[STORES]){n_blocks, n_host_blocks}, s->cfg.block_size, &s->kinds,
				   !s->cfg.no_cache, s->cfg.seed);
	s->blocks = blocks_new(n_blocks, s->cfg.block_size, &s->kinds, s->contents, STORE_DEVICE);
	s->host = blocks_new(n_host_blocks, s->cfg.block_size, &s->kinds, s->contents, STORE_HOST);
	s->epoch = epoch;
	s->number = s->fair_number = s->victim_number = 0;
	s->served_us = 0;
	s->refused = NULL;
	s->starved = false;
	s->n_lost = 0;
	s->n_drops = 0;
	s->n_slots = s->cfg.max_seqs;
	for (uint32_t i = 0; i < s->n_slots; i++)
		s->slots[i] = s->n_slots - 1 - i;
}

void sched_step_costs(struct sched *s, struct sched_costs c)
{
	s->costs = c;
}

void sched_stream_above_rows(struct sched *s, uint32_t rows)
{
	s->stream_above_rows = rows;
}

void sched_speed(struct sched *s, double prefill_tokens_per_s, double link_bytes_per_s, uint64_t block_bytes)
{
	s->prefill_tps = prefill_tokens_per_s;
	s->link_bps = link_bytes_per_s;
	s->block_bytes = block_bytes;
}

void sched_lost(struct sched *s)
{
	for (uint32_t i = 0; i < s->n_flight; i++) {
		struct inflight *f = &s->flight[(s->first_flight + i) % SCHED_AHEAD];
		for (uint32_t k = 0; k < f->n_samples; k++)
			f->samples[k].seq->n_pending = f->samples[k].seq->n_slack = 0;
		for (uint32_t k = 0; k < f->n_runs; k++)
			f->runs[k].group->n_inflight--;
		for (int k = 0; k < STORES; k++)
			blocks_release(sched_blocks(s, k), &f->later[k]);
	}
	s->n_flight = 0;
	for (uint32_t i = 0; i < s->n_running; i++)
		sched_times_phase(s->running[i]->group, PHASE_MOVED, s->now_us);
	while (s->n_running) {
		struct seq *q = s->running[s->n_running - 1];
		sched_forget(s, q);
		sched_exit(s, q);
	}
	/* Swapped and cached blocks are lost with the worker. */
	for (struct group *g = s->all.next; g != &s->all; g = g->next)
		for (uint32_t i = 0; i < g->n_seqs; i++) {
			sched_forget(s, &g->seqs[i]);
			g->seqs[i].n_reached = 0;
		}
	free_dead(s);
	free_pools(s);
}

/* ---- results ---- */

/* Return the index of the logprob of this slot's sample, searching from *at; -1: none. */
static int32_t find_logprob(const struct result *r, uint32_t slot, uint32_t *at)
{
	for (uint32_t i = *at; i < r->n_logprobs; i++)
		if (!r->logprobs[i].prompt && r->logprobs[i].slot == slot) {
			*at = i + 1;
			return (int32_t)i;
		}
	return -1;
}

static void apply_token(struct sched *s, struct seq *q, uint32_t token, int32_t mu, int32_t logprob,
			int64_t now_us, struct sched_events *ev)
{
	struct group *g = q->group;
	if (q->state == SEQ_FINISHED)
		return; /* it ended before this token, which is discarded */
	q->n_pending--;
	sched_hold(s, q, false);
	s->counts.generated_tokens++;
	sched_clear_strikes(s, q);
	if (!g->first_token_us)
		g->first_token_us = now_us;
	if (g->phase == PHASE_PREFILL || g->phase == PHASE_RECOMPUTE)
		sched_times_phase(g, PHASE_DECODE, now_us);
	struct sched_event *e = sched_add_event(ev, SCHED_TOKEN, g);
	e->index = q->index;
	e->token = token;
	e->mu = mu;
	e->logprob = logprob;
	e->stop = params_is_stop(&g->params, token) && seq_n_out(q) >= g->params.min_tokens;
	if (e->stop) {
		sched_finish(s, q, FINISH_STOP, token, ev);
		return;
	}
	seq_append(q, token);
	q->mu = mu;
	if (q->state == SEQ_RUNNING)
		sched_publish(s, q);
	if (seq_n_out(q) >= g->params.max_tokens)
		sched_finish(s, q, FINISH_LENGTH, -1, ev);
}

const struct group *sched_run_of(const struct sched *s, uint32_t slot)
{
	if (s->n_flight == 0)
		return NULL;
	const struct inflight *f = &s->flight[s->first_flight];
	for (uint32_t i = 0; i < f->n_runs; i++)
		if (f->runs[i].slot == slot)
			return f->runs[i].group->n_live ? f->runs[i].group : NULL;
	return NULL;
}

/* Fail the job, with its other outputs, of a sequence that cannot continue.  A sequence that has ended
 * meanwhile does not fail it. */
static void apply_failed(struct sched *s, const struct inflight *f, const struct result_failed *failed,
			 struct sched_events *ev)
{
	for (uint32_t i = 0; i < f->n_runs; i++) {
		const struct run *run = &f->runs[i];
		if (run->slot != failed->slot)
			continue;
		if (run->group->n_live && run->seq->state != SEQ_FINISHED)
			group_fail(s, run->group, E_BAD_REQUEST, failed->reason, ev);
		return;
	}
}

static bool is_failed(const struct result *r, uint32_t slot)
{
	for (uint32_t i = 0; i < r->n_failed; i++)
		if (r->failed[i].slot == slot)
			return true;
	return false;
}

/* Return whether the result has an entry for every hypothesis that needs candidates.  An entry with 0
 * candidates is valid: the logits were not numbers. */
static bool has_candidates(const struct inflight *f, const struct result *r)
{
	uint32_t at = 0;
	for (uint32_t i = 0; i < f->n_samples; i++) {
		const struct group *g = f->samples[i].seq->group;
		int32_t k = g->params.logprobs >= 0 ? find_logprob(r, f->samples[i].slot, &at) : -1;
		if (g->beam && k < 0 && !is_failed(r, f->samples[i].slot) &&
		    !sched_is_held(r, f->samples[i].slot))
			return false;
	}
	return true;
}

/* How far a result has been read. */
struct reading {
	const struct result *r;
	int64_t now_us;
	struct sched_events *ev;
	uint32_t tokens, counts, mus, held, logprobs; /* read so far, of each list */
};

static void apply_sample(struct sched *s, const struct sample *from, struct reading *at)
{
	struct seq *q = from->seq;
	const struct params *p = &q->group->params;
	const struct result *r = at->r;
	const bool held = at->held < r->n_held && r->held[at->held] == from->slot;
	const int32_t mu = p->mirostat ? r->mus[at->mus++] : 0;
	const uint32_t n = from->open_rows ? r->counts[at->counts++] : 1, end = at->tokens + n;
	if (from->open_rows)
		sched_draft_result(q, from->open_rows, held ? 0 : n);
	if (held) {
		at->held++;
		at->tokens = end;
		sched_held_apply(s, q);
	}
	for (; at->tokens < end; at->tokens++) {
		int32_t logprob = p->logprobs >= 0 ? find_logprob(r, from->slot, &at->logprobs) : -1;
		if (q->group->beam && q->state != SEQ_FINISHED)
			sched_beam_apply(s, q, r, logprob, at->now_us, at->ev);
		else if (!q->group->beam)
			apply_token(s, q, r->tokens[at->tokens], mu, logprob, at->now_us, at->ev);
	}
	sched_left_at(s, q);
}

int sched_apply(struct sched *s, const struct result *r, int64_t now_us, struct sched_events *ev)
{
	if (s->n_flight == 0)
		return -EPROTO;
	struct inflight *f = &s->flight[s->first_flight];
	if (r->epoch != s->epoch || r->number != f->number || !sched_counts_fit(f, r) ||
	    r->n_mus != f->n_mirostat || !sched_held_fits(f, r) || (f->n_searched && !has_candidates(f, r)) ||
	    !sched_pool_fits(f, r))
		return -EPROTO;
	/* This plan is no longer in flight: blocks of sequences that end now are released by the result of
	 * the next plan. */
	sched_clock(s, now_us);
	s->first_flight = (s->first_flight + 1) % SCHED_AHEAD;
	s->n_flight--;
	for (int k = 0; k < STORES; k++)
		blocks_release(sched_blocks(s, k), &f->later[k]);
	for (uint32_t i = 0; i < r->n_failed; i++)
		apply_failed(s, f, &r->failed[i], ev);
	struct reading at = {.r = r, .now_us = now_us, .ev = ev};
	for (uint32_t i = 0; i < f->n_samples; i++) {
		sched_prefetch(i + SCHED_FAR < f->n_samples ? f->samples[i + SCHED_FAR].seq : NULL,
			       i + SCHED_NEAR < f->n_samples ? f->samples[i + SCHED_NEAR].seq : NULL);
		apply_sample(s, &f->samples[i], &at);
	}
	if (f->n_pooled)
		sched_pool_apply(s, f, r, now_us, ev);
	for (uint32_t i = 0; i < f->n_runs; i++) {
		struct run *run = &f->runs[i];
		run->group->n_inflight--;
		if (run->group->n_live && run->end >= run->seq->strike_end)
			sched_clear_strikes(s, run->seq);
	}
	free_dead(s);
	return 0;
}

struct blocks *sched_blocks(const struct sched *s, enum contents_store store)
{
	return store == STORE_HOST ? s->host : s->blocks;
}

void sched_forget_prefixes(struct sched *s)
{
	if (!s->blocks)
		return;
	contents_forget(s->contents);
	blocks_forget(s->blocks);
	blocks_forget(s->host);
}

void sched_stats(const struct sched *s, struct sched_stats *out)
{
	*out = (struct sched_stats){
		.counts = s->counts,
		.n_groups = s->n_groups,
		.n_queued = s->all_queued.n,
		.begun_tokens = s->begun_tokens,
		.n_inflight = s->n_flight,
		.n_order_steps = s->n_order_steps + queue_order_steps(s->queue),
	};
	out->n_running = s->n_running;
	out->n_waiting = s->n_waiting;
	out->n_swapped = s->n_swapped;
	out->queued_tokens = s->all_queued.tokens;
	out->masks_waiting = s->n_held;
	if (s->blocks) {
		out->n_blocks = blocks_total(s->blocks);
		out->n_cached = blocks_n_cached(s->blocks);
		out->n_free = blocks_n_free(s->blocks) - out->n_cached;
		out->n_held = out->n_blocks - out->n_free - out->n_cached;
		out->n_retained = blocks_n_retained(s->blocks);
		out->n_host_blocks = blocks_total(s->host);
		out->n_host_free = blocks_n_free(s->host);
	}
}

void sched_ensure(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "sched: broken: %s\n", what);
	abort();
}

static void check_seq(const struct sched *s, const struct seq *q)
{
	bool runs = q->state == SEQ_RUNNING;
	sched_ensure(runs || q->state == SEQ_WAITING || q->table.n == 0,
		     "blocks of a sequence that has ended");
	sched_ensure((q->n_slack ? sched_reach(q, 0) : q->n_computed) <= q->table.n * s->cfg.block_size,
		     "a token computed without a block for it");
	sched_ensure(!q->table.n || blocks_reach(s->blocks, &q->table, q->n_computed),
		     "a window without its blocks");
	sched_ensure((q->n_named > 0) == (q->node != CONTENTS_NONE), "the node of the named blocks");
	sched_ensure(!runs || blocks_missing(s->blocks, &q->table, q->table.n_writable, q->n_computed) == 0,
		     "a shared block counted as writable");
	sched_ensure(!q->n_slack || q->n_pending, "slack without a run in flight");
	sched_ensure(!q->leaving || (q->state == SEQ_WAITING && q->n_pending && q->table.n),
		     "leaving without tokens in flight");
	sched_ensure(!q->n_retained || (q->state == SEQ_WAITING && q->table.n == 0 && q->n_named > 0),
		     "retained blocks of a sequence that has others");
	sched_ensure(!q->set_due || (runs && q->group->decided), "a token to set that no plan has");
	sched_ensure(runs || !q->held, "held, but not running");
	sched_ensure(!q->queued || q->state == SEQ_WAITING, "queued, but not waiting");
	sched_ensure(!q->backlog || q->state == SEQ_WAITING, "backlog, but not waiting");
	sched_ensure(q->state != SEQ_WAITING || q->queued || !q->group->first_run_us,
		     "waiting, but not queued");
}

void sched_check(const struct sched *s)
{
	uint32_t n_running = 0, n_waiting = 0, n_swapped = 0, n_suspects = 0, n_held = 0, n_leaving = 0;
	uint64_t begun_tokens = 0;
	size_t n_seqs = 0, n_tables[STORES] = {0}, n_holds = 0;
	for (struct group *g = s->all.next; g != &s->all; g = g->next)
		n_seqs += g->n_seqs;
	const struct block_table **tables = xcalloc(STORES * n_seqs + 1, sizeof(struct block_table *));
	int32_t *holds = xcalloc(n_seqs + 1, sizeof *holds);
	for (struct group *g = s->all.next; g != &s->all; g = g->next) {
		uint32_t live = 0;
		n_suspects += g->suspect;
		for (uint32_t i = 0; i < g->n_seqs; i++) {
			const struct seq *q = &g->seqs[i];
			live += q->state != SEQ_FINISHED && q->state != SEQ_IDLE;
			n_running += q->state == SEQ_RUNNING;
			n_waiting += q->state == SEQ_WAITING;
			n_swapped += seq_is_swapped(q);
			holds[n_holds++] = q->node;
			n_held += q->held;
			n_leaving += q->leaving ? blocks_held(s->blocks, &q->table) : 0;
			begun_tokens += q->backlog;
			check_seq(s, q);
			const enum contents_store store = seq_is_swapped(q) ? STORE_HOST : STORE_DEVICE;
			tables[store * n_seqs + n_tables[store]++] = &q->table;
		}
		if (g->beam)
			sched_beam_check(g);
		sched_ensure((g->beam ? g->n_live == 1 : live == g->n_live) && live > 0,
			     "a group's count of live sequences");
	}
	sched_ensure(n_running == s->n_running, "the running list");
	sched_ensure(n_held == s->n_held, "the count of held sequences");
	sched_ensure(n_waiting == s->n_waiting, "the count of waiting sequences");
	sched_ensure(begun_tokens == s->begun_tokens, "the backlog of groups that have begun");
	sched_ensure(n_suspects == s->n_suspects, "the count of suspects");
	sched_ensure(n_swapped == s->n_swapped, "the count of swapped sequences");
	sched_ensure(n_leaving == s->n_leaving, "the count of leaving blocks");
	sched_ensure(!s->blocks || s->n_slots + s->n_running == s->cfg.max_seqs, "slots");
	for (int k = 0; s->blocks && k < STORES; k++) {
		const struct blocks_later *laters[SCHED_AHEAD];
		for (uint32_t i = 0; i < s->n_flight; i++)
			laters[i] = &s->flight[(s->first_flight + i) % SCHED_AHEAD].later[k];
		blocks_check(sched_blocks(s, k), tables + k * n_seqs, n_tables[k], laters, s->n_flight);
	}
	if (s->contents)
		contents_check(s->contents, holds, n_holds);
	free(holds);
	free(tables);
}
