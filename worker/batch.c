#include "worker/batch.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>

struct batch *batch_new(const struct bus_limits *lim, uint32_t block_size, int max_logits)
{
	struct batch *b = xcalloc(1, sizeof *b);
	b->block_size = block_size;
	b->max_logits = max_logits;
	b->cap_wants = lim->max_rows + lim->max_runs;
	b->token_at = xcalloc(lim->max_rows, sizeof(int32_t));
	b->row0 = xcalloc((size_t)lim->max_runs + 1, sizeof(int32_t));
	b->pos0 = xcalloc(lim->max_runs, sizeof(int32_t));
	b->table_at = xcalloc(lim->max_runs, sizeof(int32_t));
	b->logits_row = xcalloc((size_t)max_logits, sizeof(int32_t));
	b->wants = xcalloc(b->cap_wants, sizeof *b->wants);
	b->pools = xcalloc(lim->max_runs, sizeof *b->pools);
	b->open = xcalloc(lim->max_runs, sizeof *b->open);
	b->kern.token_at = b->token_at;
	b->kern.row0 = b->row0;
	b->kern.pos0 = b->pos0;
	b->kern.table_at = b->table_at;
	b->kern.logits_row = b->logits_row;
	return b;
}

void batch_free(struct batch *b)
{
	if (!b)
		return;
	free(b->token_at);
	free(b->row0);
	free(b->pos0);
	free(b->table_at);
	free(b->logits_row);
	free(b->wants);
	free(b->pools);
	free(b->open);
	free(b);
}

static void want(struct batch *b, int32_t row, uint32_t slot, uint32_t position, int32_t forced)
{
	b->wants[b->n_wants++] = (struct batch_want){row, slot, position, forced, 0, -1, false};
}

/* Return the run to execute.  If the slot's previous run sat out, which was unknown when this plan was
 * sent, this run executes that run's last row.  An open run begins at the last token. */
static struct plan_run due_run(const struct slot *s, const struct plan_run *r)
{
	struct plan_run run = *r;
	if (r->flags & PLAN_OPEN) {
		run.pos0 = s->n_tokens - 1;
		run.n_rows = s->n_open;
	} else if (s->held && r->flags & PLAN_SAMPLE && r->n_rows == 1 && r->pos0 == s->n_tokens)
		run.pos0--;
	return run;
}

static int check_run(const struct batch *b, const struct slot *s, const struct plan_run *r,
		     const struct plan *p, const struct bus_limits *lim, struct why *why)
{
	uint64_t end = (uint64_t)r->pos0 + r->n_rows;
	const bool open = r->flags & PLAN_OPEN;
	const uint32_t known = s->n_tokens + (open && s->n_open ? s->n_open - 1 : 0);
	if (r->flags & ~(PLAN_SAMPLE | PLAN_OPEN) || (open && !(r->flags & PLAN_SAMPLE)) || r->reserved)
		return err_why(why, -EINVAL, "unknown flags %#x", r->flags);
	if (s->ran == p->number)
		return err_why(why, -EINVAL, "a second run in one plan");
	if (end > known)
		return err_why(why, -EINVAL, "positions %u to %llu, but only %u tokens are known", r->pos0,
			       (unsigned long long)end - 1, known);
	if (s->n_kv >= 0 && r->pos0 > s->n_kv)
		return err_why(why, -EINVAL, "position %u does not follow: %lld are in the cache", r->pos0,
			       (long long)s->n_kv);
	if (r->pos0 < s->from)
		return err_why(why, -EINVAL, "position %u reads blocks that its tables left out", r->pos0);
	if ((end + b->block_size - 1) / b->block_size > s->n_blocks)
		return err_why(why, -EINVAL, "position %llu lies outside its %u blocks",
			       (unsigned long long)end - 1, s->n_blocks);
	if (r->flags & PLAN_SAMPLE && s->params.pool)
		return err_why(why, -EINVAL, "a sequence that is pooled is not sampled from");
	if (r->flags & PLAN_SAMPLE && end != known)
		return err_why(why, -EINVAL, "token %llu is to be chosen, but %u are known",
			       (unsigned long long)end, known);
	if ((uint64_t)b->kern.n_rows + r->n_rows > lim->max_rows)
		return err_why(why, -EINVAL, "more than %u rows in a plan", lim->max_rows);
	return 0;
}

/* Want the prompt tokens that the run's rows predict, if their log-probabilities are requested. */
static void want_prompt(struct batch *b, const struct slot *s, const struct plan_run *r, int32_t row0,
			const int32_t *prompt)
{
	if (s->params.prompt_logprobs < 0)
		return;
	for (uint32_t i = 0; i < r->n_rows && r->pos0 + i + 1 < s->n_prompt; i++)
		want(b, row0 + (int32_t)i, r->slot, r->pos0 + i + 1, prompt[r->pos0 + i + 1]);
}

/* Record a pooled run: for a mean all rows of every run, else the prompt's last row.  A want of logits
 * samples nothing; its forced token is the first `allowed` one. */
static void pool_run(struct batch *b, const struct slot *s, const struct plan_run *r, int32_t row0)
{
	const bool mean = s->params.pool == PARAMS_POOL_MEAN;
	const uint32_t end = r->pos0 + r->n_rows;
	if (!s->params.pool || (!mean && end < s->n_prompt))
		return;
	const int32_t last = row0 + (int32_t)r->n_rows - 1;
	b->pools[b->n_pools++] = (struct batch_pool){.row0 = mean ? row0 : last,
						     .n_rows = mean ? r->n_rows : 1,
						     .slot = r->slot,
						     .pos0 = r->pos0,
						     .run_rows = r->n_rows,
						     .kind = s->params.pool,
						     .want = b->n_wants};
	if (s->params.pool == PARAMS_POOL_LOGITS)
		want(b, last, r->slot, end, s->params.allowed[0]);
}

/* Want the token after each row of an open run.  Rows that are in histories of others do not write there. */
static void want_open(struct batch *b, const struct slots *slots, const struct plan_run *r, int32_t row0)
{
	const int32_t *tokens = slots_tokens(slots, r->slot);
	const int32_t drawn = slots_drawn_at(slots, r->slot) - slots_base(slots, r->slot);
	for (uint32_t i = 0; i < r->n_rows; i++) {
		const uint32_t position = r->pos0 + i + 1;
		want(b, row0 + (int32_t)i, r->slot, position, -1);
		struct batch_want *w = &b->wants[b->n_wants - 1];
		w->shift = r->n_rows > 1 ? drawn + (int32_t)i - (int32_t)position : 0;
		w->open = true;
		w->draft = i ? tokens[position - 1] : -1;
	}
}

static void add_run(struct batch *b, struct slots *slots, struct slot *s, const struct plan_run *r,
		    uint64_t number)
{
	struct kern_batch *k = &b->kern;
	const int32_t row0 = k->n_rows, base = slots_base(slots, r->slot);
	const uint32_t end = r->pos0 + r->n_rows;
	for (uint32_t i = 0; i < r->n_rows; i++)
		b->token_at[row0 + (int32_t)i] = base + (int32_t)(r->pos0 + i);
	b->table_at[k->n_seqs] = (int32_t)r->slot;
	b->pos0[k->n_seqs] = (int32_t)r->pos0;
	k->n_seqs++;
	k->n_rows += (int)r->n_rows;
	b->row0[k->n_seqs] = k->n_rows;
	want_prompt(b, s, r, row0, slots_tokens(slots, r->slot));
	slots_ran(s, number, (uint32_t)k->n_rows - 1);
	s->n_kv = end;
	pool_run(b, s, r, row0);
	if (r->flags & PLAN_OPEN)
		want_open(b, slots, r, row0);
	else if (r->flags & PLAN_SAMPLE)
		want(b, k->n_rows - 1, r->slot, end, -1);
}

/* Sample a fork's first token from the last row of the run of its parent's slot, which has the same
 * tokens. */
static int add_sample(struct batch *b, struct slots *slots, struct slot *s, const struct plan_run *r,
		      uint64_t number, struct why *why)
{
	const struct slot *from = slots_get(slots, r->from, why);
	if (!from)
		return -EINVAL;
	if (!(r->flags & PLAN_SAMPLE) || s->ran == number || s->params.pool)
		return err_why(why, -EINVAL, "a run of no rows that samples nothing, or a second run");
	if (from->ran != number || from->n_kv != s->n_tokens)
		return err_why(
			why, -EINVAL,
			"a token is to be chosen from the run of slot %u, which does not end at %u tokens",
			r->from, s->n_tokens);
	slots_ran(s, number, from->last_row);
	s->n_kv = from->n_kv;
	want(b, (int32_t)from->last_row, r->slot, s->n_tokens, -1);
	return 0;
}

int batch_build(struct batch *b, struct slots *slots, const struct plan *p, const struct bus_limits *lim,
		struct why *why)
{
	b->kern.n_rows = b->kern.n_seqs = b->kern.n_logits = 0;
	slots_tables(slots, &b->kern);
	b->n_wants = b->n_pools = b->n_open = 0;
	b->row0[0] = 0;
	if (p->n_runs > lim->max_runs)
		return err_why(why, -EINVAL, "%u runs in a plan, at most %u are possible", p->n_runs,
			       lim->max_runs);
	for (uint32_t i = 0; i < p->n_runs; i++) {
		const struct plan_run *r = &p->runs[i];
		struct slot *s = slots_get(slots, r->slot, why);
		if (!s)
			return -EINVAL;
		int rc;
		const struct plan_run run = due_run(s, r);
		if (r->flags & PLAN_OPEN)
			b->open[b->n_open++] = (struct batch_open){r->slot, b->n_wants, run.n_rows};
		if (r->flags & PLAN_OPEN && run.n_rows == 0)
			rc = 0; /* its output has all its tokens */
		else if (r->n_rows == 0)
			rc = add_sample(b, slots, s, r, p->number, why);
		else if (!(rc = check_run(b, s, &run, p, lim, why)))
			add_run(b, slots, s, &run, p->number);
		if (rc)
			return err_prefix(why, rc, "slot %u", r->slot);
	}
	return 0;
}

int batch_group(struct batch *b, uint32_t first)
{
	uint32_t n = b->n_wants - first;
	if (n > (uint32_t)b->max_logits)
		n = (uint32_t)b->max_logits;
	for (uint32_t i = 0; i < n; i++)
		b->logits_row[i] = b->wants[first + i].row;
	b->kern.n_logits = (int)n;
	return (int)n;
}
