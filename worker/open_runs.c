#include "worker/open_runs.h"

#include <errno.h>

bool open_any(const struct plan *p)
{
	for (uint32_t i = 0; i < p->n_runs; i++)
		if (p->runs[i].flags & PLAN_OPEN)
			return true;
	return false;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Return the most tokens that the slot's output may still get. */
static uint32_t tokens_left(const struct open_runs *o, const struct slot *slot)
{
	const uint32_t most = slot->params.max_tokens, out = slot->n_tokens - slot->n_prompt;
	const uint32_t left = slot->n_tokens < o->max_context ? o->max_context - slot->n_tokens : 0;
	if (!most)
		return left;
	return least(left, out < most ? most - out : 0);
}

/* Return n, or the number of drafts before and with the first one that ends the output: rows after it would
 * be of no use. */
static uint32_t until_stop(const struct slot *slot, const int32_t *drafts, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (params_is_stop(&slot->params, (uint32_t)drafts[i]))
			return i;
	return n;
}

/* Return whether the slot's tokens are drafted: not with mirostat. */
static bool may_draft(const struct slot *slot)
{
	return slot->n_known == slot->n_tokens && !slot->params.mirostat;
}

/* Draft at most max tokens after those of the slot; return how many. */
static uint32_t propose(const struct open_runs *o, uint32_t at, struct slot *slot, uint32_t max, int32_t *out)
{
	const int32_t *tokens = slots_tokens(o->slots, at);
	if (!max || !may_draft(slot))
		return 0;
	if (o->source)
		return o->source->propose(o->source->arg, at, tokens, slot->n_known, max, out);
	max = draft_limit(&slot->pace, max);
	return max ? draft_lookup(tokens, slot->n_known, max, out) : 0;
}

static int begin_run(struct open_runs *o, const struct plan_run *r, struct why *why)
{
	struct slot *slot = slots_get(o->slots, r->slot, why);
	int32_t drafts[PLAN_DRAFTS_MAX];
	uint32_t n = 0;
	if (!slot)
		return -EINVAL;
	if (r->n_rows == 0 || r->n_rows > PLAN_OPEN_ROWS)
		return err_why(why, -EINVAL, "slot %u: an open run of %u rows", r->slot, r->n_rows);
	const uint32_t rows = least(r->n_rows, tokens_left(o, slot));
	slot->n_open = 0;
	if (!rows)
		return 0;
	n = propose(o, r->slot, slot, rows - 1, drafts);
	return slots_draft(o->slots, r->slot, drafts, until_stop(slot, drafts, n), why);
}

int open_begin(struct open_runs *o, const struct plan *p, struct why *why)
{
	int rc = 0;
	for (uint32_t i = 0; !rc && i < p->n_runs; i++)
		if (p->runs[i].flags & PLAN_OPEN)
			rc = begin_run(o, &p->runs[i], why);
	return rc;
}

/* Return the number of tokens that the run with these wants gives; 0: it sat out. */
static uint32_t accepted(const struct pending_plan *f, const struct pending_open *open)
{
	uint32_t n = 1;
	if (f->wants[open->want].held)
		return 0;
	while (n < open->n && !f->wants[open->want + n].cut &&
	       f->out.token[open->want + n - 1] == f->wants[open->want + n].draft)
		n++;
	return n;
}

static void count(struct draft_report *r, uint32_t drafted, uint32_t n_accepted)
{
	if (!r || !drafted)
		return;
	atomic_fetch_add(&r->runs, 1);
	atomic_fetch_add(&r->drafted, drafted);
	atomic_fetch_add(&r->accepted, n_accepted);
}

static int settle_run(struct open_runs *o, struct pending_plan *f, struct pending_open *open, struct why *why)
{
	const uint32_t at = open->want;
	if (!open->n)
		return 0;
	open->count = accepted(f, open);
	for (uint32_t i = open->count ? open->count : 1; i < open->n; i++)
		f->wants[at + i].dropped = true;
	if (open->count == 0)
		return 0;
	struct slot *slot = slots_get(o->slots, open->slot, NULL);
	if (slot)
		draft_took(&slot->pace, open->n - 1, open->count - 1);
	count(o->report, open->n - 1, open->count - 1);
	return slots_drew(o->slots, open->slot, f->number, f->wants[at].position - 1, open->count,
			  f->out.token[at + open->count - 1], why);
}

int open_settle(struct open_runs *o, struct pending_plan *f, struct why *why)
{
	int rc = 0;
	if (f->settled)
		return 0;
	f->settled = true;
	for (uint32_t i = 0; !rc && i < f->n_open; i++)
		rc = settle_run(o, f, &f->open[i], why);
	for (uint32_t i = 0; !rc && i < f->n_wants; i++) {
		const struct pending_want *w = &f->wants[i];
		if (w->forced < 0 && !w->held && !w->dropped)
			slots_know(o->slots, w->slot, f->number, w->position, f->out.token[i]);
	}
	return rc;
}
