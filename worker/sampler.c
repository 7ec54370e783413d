#include "worker/sampler.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "kernels/mirostat.h"
#include "worker/guide.h"
#include "worker/tp_group.h"
#include "worker/trace.h"

#include <assert.h>
#include <stdlib.h>

_Static_assert((int)PARAMS_MIROSTAT_ONE == (int)MIROSTAT_ONE, "mu has the same units everywhere");

/* Rank 0's message about a row of a plan with constraints.  LATER, in the first row: nothing is decided
 * yet. */
enum { CHOOSES, HELD, LATER };

struct sampler {
	const struct kern_ops *ops;
	struct kern_stream *stream;
	struct slots *slots;
	struct pending *pending;
	struct guide *guide;  /* or NULL */
	struct trace *trace;  /* or NULL */
	atomic_ullong *moves; /* or NULL */
	int n_vocab;
	int max;                      /* rows per call */
	struct kern_sample_row *rows; /* [max] */
	uint32_t *masks;              /* [max, guide_words()], of these rows; NULL without a guide */
	size_t mask_bytes;            /* bytes of all masks */
	/* For a group. */
	uint8_t *fates;    /* [max] CHOOSES, HELD or LATER, for the rows of a call */
	int32_t *places;   /* [max] where their tokens go in the slots' buffer */
	int64_t notify_us; /* between two notices that rank 0 still makes masks */
};

int sampler_new(struct sampler **out, const struct sampler_args *a, struct why *why)
{
	struct sampler *s = xcalloc(1, sizeof *s);
	*s = (struct sampler){.ops = a->ops,
			      .stream = a->stream,
			      .slots = a->slots,
			      .pending = a->pending,
			      .guide = a->guide,
			      .trace = a->trace,
			      .moves = a->moves,
			      .n_vocab = a->n_vocab,
			      .max = a->max};
	s->rows = xcalloc((size_t)a->max, sizeof *s->rows);
	s->fates = xcalloc((size_t)a->max, sizeof *s->fates);
	s->places = xcalloc((size_t)a->max, sizeof *s->places);
	if (s->guide) {
		s->mask_bytes = (size_t)a->max * guide_words(s->guide) * sizeof *s->masks;
		s->masks = alloc_big(s->mask_bytes);
		if (!s->masks) {
			int rc = err_why(why, -ENOMEM, "out of memory: %zu bytes for masks of tokens",
					 s->mask_bytes);
			sampler_free(s);
			return rc;
		}
	}
	*out = s;
	return 0;
}

void sampler_free(struct sampler *s)
{
	if (!s)
		return;
	alloc_big_free(s->masks, s->mask_bytes);
	free(s->places);
	free(s->fates);
	free(s->rows);
	free(s);
}

void sampler_notify_after(struct sampler *s, int64_t us)
{
	s->notify_us = us;
}

/* ---- queueing ---- */

static int32_t at_most(int32_t n, int n_vocab)
{
	return n < n_vocab ? n : n_vocab;
}

/* Make the row of a prompt token: nothing is sampled, the token's log-probability is computed. */
static struct kern_sample_row forced_row(const struct sampler *s, const struct batch_want *w,
					 const struct slot *slot)
{
	return (struct kern_sample_row){
		.hist0 = slots_base(s->slots, w->slot),
		.n_prompt = (int32_t)slot->n_prompt,
		.n_hist = (int32_t)w->position,
		.forced = w->forced,
		.top_p = 1,
		.repetition = 1,
		.n_logprobs = at_most(slot->params.prompt_logprobs, s->n_vocab),
	};
}

static struct kern_sample_row chosen_row(const struct sampler *s, const struct batch_want *w,
					 const struct slot *slot)
{
	const struct params *p = &slot->params;
	const uint32_t position = w->position - slot->n_prompt;
	const bool held = position < p->min_tokens; /* true: the output may not end yet */
	return (struct kern_sample_row){
		.hist0 = slots_base(s->slots, w->slot),
		.n_prompt = (int32_t)slot->n_prompt,
		.n_hist = (int32_t)w->position,
		.shift = w->shift,
		.forced = -1,
		.temperature = p->temperature,
		.top_p = p->top_p,
		.min_p = p->min_p,
		.top_k = p->top_k,
		.presence = p->presence,
		.frequency = p->frequency,
		.repetition = p->repetition,
		.seed = p->seed,
		.index = slot->index,
		.position = position,
		.n_bias = (int32_t)p->n_bias,
		.bias_ids = p->bias_ids,
		.bias = p->bias,
		.n_allowed = (int32_t)p->n_allowed,
		.allowed = p->allowed,
		.n_banned = held ? (int32_t)p->n_stop_ids : 0,
		.banned = (const int32_t *)p->stop_ids,
		.n_bad = (int32_t)p->n_bad,
		.bad = p->bad,
		.bad_len = p->bad_len,
		.typical_p = p->typical_p,
		.top_n_sigma = p->top_n_sigma,
		.xtc_probability = p->xtc_probability,
		.xtc_threshold = p->xtc_threshold,
		.dry_multiplier = p->dry_multiplier,
		.dry_base = p->dry_base,
		.dry_allowed = p->dry_allowed,
		.dry_last_n = p->dry_last_n,
		.n_breakers = (int32_t)p->n_breakers,
		.breakers = p->breakers,
		.mirostat = (int32_t)p->mirostat,
		.mirostat_tau = params_mirostat_units(p->mirostat_tau),
		.mirostat_eta = params_mirostat_units(p->mirostat_eta),
		.mu_at = slots_mu_at(s->slots, w->slot),
		.n_logprobs = at_most(p->logprobs, s->n_vocab),
	};
}

/* Reserve the wants in f, and record the tokens in the slots.  All rows have the stride of the row with the
 * most top tokens. */
static void reserve(struct sampler *s, const struct batch_want *wants, int n, struct pending_plan *f,
		    struct kern_sample_out *out)
{
	int stride = 0;
	for (int i = 0; i < n; i++) {
		struct slot *slot = slots_get(s->slots, wants[i].slot, NULL);
		assert(slot);
		s->rows[i] = wants[i].forced >= 0 ? forced_row(s, &wants[i], slot)
						  : chosen_row(s, &wants[i], slot);
		s->rows[i].row = i;
		stride = s->rows[i].n_logprobs > stride ? s->rows[i].n_logprobs : stride;
		/* An open run's own tokens are counted when they are compared with the drafts. */
		if (wants[i].forced < 0 && wants[i].draft < 0)
			slots_sample(s->slots, wants[i].slot, wants[i].position, false);
	}
	struct pending_want *to = pending_room(s->pending, f, n, stride, out);
	for (int i = 0; i < n; i++) {
		to[i].slot = wants[i].slot;
		to[i].position = wants[i].position;
		to[i].forced = wants[i].forced;
		to[i].n_logprobs = s->rows[i].n_logprobs;
		to[i].mirostat = s->rows[i].mirostat != 0;
		to[i].draft = wants[i].draft;
		to[i].open = wants[i].open;
		to[i].cut = wants[i].draft >= 0 && guide_has(s->guide, wants[i].slot);
		to[i].held = to[i].dropped = false;
	}
}

/* Set the reason: the group's, or the device's. */
static int group_why(const struct tp_group *g, int rc, const char *what, struct why *why)
{
	return err_why(why, rc, "%s", g && tp_group_broke(rc) ? tp_group_why(g) : what);
}

/* Wait for the tokens of the plan before f, if a structured output continues after one of them. */
static int receive_before(struct sampler *s, struct tp_group *g, const struct batch_want *wants, int n,
			  const struct pending_plan *f, struct why *why)
{
	const struct pending_plan *before = pending_first(s->pending);
	bool waits = false;
	for (int i = 0; i < n; i++)
		waits = waits || (wants[i].forced < 0 && guide_waits(s->guide, wants[i].slot));
	if (!waits)
		return 0;
	assert(before != f);
	int rc = tp_group_wait(g, s->ops, before->done, clock_us());
	if (rc)
		return group_why(g, rc, "the device failed", why);
	guide_receive(s->guide, before->number, before->out.token, before->n_wants);
	return 0;
}

/* Send the fates from rank 0 to all other ranks; waits for them. */
static int exchange_fates(struct sampler *s, struct tp_group *g, int n, struct why *why)
{
	int rc = tp_group_broadcast(g, s->fates, (size_t)n);
	return rc ? err_why(why, rc, "%s", tp_group_why(g)) : 0;
}

/* Send the tokens chosen by rank 0 to all ranks' slot buffers, queued.  The wants are the last n of f. */
static int share_tokens(struct sampler *s, struct tp_group *g, const struct batch_want *wants, int n,
			const struct pending_plan *f, struct why *why)
{
	const struct pending_want *to = f->wants + f->n_wants - n;
	int n_chosen = 0;
	for (int i = 0; i < n; i++)
		if (wants[i].forced < 0 && !to[i].held)
			s->places[n_chosen++] = slots_base(s->slots, wants[i].slot) +
						(int32_t)wants[i].position + wants[i].shift;
	int rc = tp_group_share_tokens(g, s->stream, slots_buffer(s->slots), s->places, n_chosen);
	return rc ? group_why(g, rc, "sharing tokens failed", why) : 0;
}

/* True if rows may sit out, which the ranks must know at once; only rows of structured outputs can. */
static bool may_hold(const struct sampler *s, const struct batch_want *wants, int n)
{
	for (int i = 0; i < n; i++)
		if (wants[i].forced < 0 && slots_get(s->slots, wants[i].slot, NULL)->constraint)
			return true;
	return false;
}

/* Make row i sample nothing, and leave its sequence unchanged. */
static void sit_out(struct sampler *s, const struct batch_want *w, int i, struct pending_want *to)
{
	struct slot *slot = slots_get(s->slots, w->slot, NULL);
	slots_sample(s->slots, w->slot, w->position, true);
	const struct batch_want nothing = {w->row, w->slot, w->position, 0, 0, -1, false};
	s->rows[i] = forced_row(s, &nothing, slot);
	s->rows[i].row = i;
	s->rows[i].n_logprobs = to->n_logprobs = -1;
	to->held = true;
}

/* Add the masks of the draft rows after the first row of an open run: wants[0], row i, with its mask made.
 * n: wants from there on.  A row has a mask if its draft is allowed by the mask before it, and the mask takes
 * little work; else the run is cut there. */
static void mask_drafts(struct sampler *s, const struct batch_want *wants, int n, int i,
			struct pending_want *to)
{
	const uint32_t slot = wants->slot, words = guide_words(s->guide);
	const uint32_t n_out = wants->position - slots_get(s->slots, slot, NULL)->n_prompt;
	const uint32_t *before = s->rows[i].mask;
	for (int k = 1; before && k < n && wants[k].slot == slot && wants[k].draft >= 0; k++) {
		const uint32_t draft = (uint32_t)wants[k].draft;
		uint32_t *mask = s->masks + (size_t)(i + k) * words;
		if (!(before[draft / 32] >> draft % 32 & 1) ||
		    guide_mask_after(s->guide, slot, n_out + (uint32_t)k - 1, draft, mask) != GUIDE_MASK)
			break;
		s->rows[i + k].mask = before = mask;
		to[k].cut = false;
	}
}

/* Add the masks of n rows; their wants begin at `first` in f. */
static int add_masks(struct sampler *s, struct tp_group *g, const struct batch_want *wants, int n,
		     struct pending_plan *f, uint32_t first, struct why *why)
{
	int64_t noticed = clock_us();
	int rc = receive_before(s, g, wants, n, f, why);
	s->fates[0] = LATER;
	for (int i = 0; !rc && i < n; i++) {
		const uint32_t slot = wants[i].slot, at = first + (uint32_t)i;
		uint32_t *mask = s->masks + (size_t)i * guide_words(s->guide);
		if (wants[i].forced >= 0 || wants[i].draft >= 0 || !guide_has(s->guide, slot))
			continue;
		const enum guide_answer answer = guide_mask(s->guide, slot, f->number, mask);
		if (answer == GUIDE_MASK)
			s->rows[i].mask = mask;
		const char *failure = guide_take_failure(s->guide, slot);
		f->wants[at].failure = failure ? xstrdup(failure) : NULL;
		if (answer == GUIDE_LATER)
			sit_out(s, &wants[i], i, &f->wants[at]);
		else if (wants[i].open)
			mask_drafts(s, wants + i, n - i, i, &f->wants[at]);
		else
			guide_expect(s->guide, slot, f->number, at);
		if (s->moves)
			atomic_fetch_add_explicit(s->moves, 1, memory_order_relaxed);
		if (g && clock_us() - noticed >= s->notify_us) {
			rc = exchange_fates(s, g, n, why);
			noticed = clock_us();
		}
	}
	guide_trim(s->guide);
	trace_mark(s->trace, TRACE_MASK);
	return rc;
}

int sampler_queue(struct sampler *s, struct tp_group *g, const void *logits, const struct batch_want *wants,
		  int n, struct pending_plan *f, struct why *why)
{
	struct kern_sample_out out;
	const uint32_t first = f->n_wants;
	assert(n > 0 && n <= s->max);
	reserve(s, wants, n, f, &out);
	int rc = s->guide ? add_masks(s, g, wants, n, f, first, why) : 0;
	if (!rc && g && may_hold(s, wants, n)) {
		for (int i = 0; i < n; i++)
			s->fates[i] = f->wants[first + (uint32_t)i].held ? HELD : CHOOSES;
		rc = exchange_fates(s, g, n, why);
	}
	if (rc)
		return rc;
	rc = s->ops->sample(s->stream, logits, s->n_vocab, slots_buffer(s->slots), s->rows, n, &out);
	return rc ? err_why(why, rc, "sampling on the device failed") : share_tokens(s, g, wants, n, f, why);
}

static int check_token(const struct sampler *s, int32_t token, struct why *why)
{
	if (token < 0 || token >= s->n_vocab)
		return err_why(why, -EIO, "the device sampled token %d, the vocabulary has %d", token,
			       s->n_vocab);
	return 0;
}

int sampler_receive(struct sampler *s, struct tp_group *g, const struct batch_want *wants, int n,
		    struct pending_plan *f, struct why *why)
{
	struct kern_sample_out out;
	const uint32_t first = f->n_wants;
	assert(n > 0 && n <= s->max);
	reserve(s, wants, n, f, &out);
	const bool told = may_hold(s, wants, n);
	int rc = 0;
	s->fates[0] = LATER;
	while (!rc && told && s->fates[0] == LATER)
		rc = exchange_fates(s, g, n, why);
	for (int i = 0; !rc && told && i < n; i++) {
		if (wants[i].forced >= 0 || s->fates[i] != HELD)
			continue;
		slots_sample(s->slots, wants[i].slot, wants[i].position, true);
		f->wants[first + (uint32_t)i].held = true;
	}
	return rc ? rc : share_tokens(s, g, wants, n, f, why);
}

/* ---- taking ---- */

/* Add a row's log-probabilities to the result: its own entry, and the most likely tokens. */
static void note_logprob(const struct pending_plan *f, uint32_t i, struct result *r)
{
	const struct pending_want *w = &f->wants[i];
	struct result_logprob *l = result_add_logprob(r);
	*l = (struct result_logprob){
		.slot = w->slot,
		.position = w->position,
		.token = (uint32_t)(w->forced >= 0 ? w->forced : f->out.token[i]),
		.logprob = f->out.logprob[i],
		.rank = (uint32_t)f->out.rank[i],
		.top0 = r->n_top,
		.prompt = w->forced >= 0,
	};
	/* -1 ends the list early (kern.h). */
	for (size_t k = w->top0; k < w->top0 + (size_t)w->n_logprobs && f->out.top_id[k] >= 0; k++) {
		result_add_top(r, (uint32_t)f->out.top_id[k], f->out.top_logprob[k]);
		l->n_top++;
	}
}

/* Add the number of tokens of each open run. */
static void note_counts(const struct pending_plan *f, struct result *r)
{
	for (uint32_t i = 0; i < f->n_open; i++)
		result_add_count(r, f->open[i].count);
}

int sampler_take(struct sampler *s, const struct pending_plan *f, struct result *r, struct why *why)
{
	if (s->guide)
		guide_receive(s->guide, f->number, f->out.token, f->n_wants);
	note_counts(f, r);
	for (uint32_t i = 0; i < f->n_wants; i++) {
		const bool chosen = f->wants[i].forced < 0;
		if (f->wants[i].dropped)
			continue;
		if (f->wants[i].held) {
			result_add_held(r, f->wants[i].slot);
			if (!f->wants[i].open)
				result_add_token(r, 0);
			if (f->wants[i].mirostat)
				result_add_mu(r, 0);
			continue;
		}
		int rc = chosen ? check_token(s, f->out.token[i], why) : 0;
		if (rc)
			return rc;
		if (f->wants[i].n_logprobs >= 0)
			note_logprob(f, i, r);
		if (f->wants[i].failure)
			result_add_failed(r, f->wants[i].slot, f->wants[i].failure);
		if (chosen)
			result_add_token(r, (uint32_t)f->out.token[i]);
		if (chosen && f->wants[i].mirostat)
			result_add_mu(r, f->out.mu[i]);
	}
	return 0;
}
