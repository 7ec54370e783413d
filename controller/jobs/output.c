#include "controller/jobs/output.h"

#include "base/alloc.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void toklog_init(struct toklog *t, bool with_logprobs)
{
	*t = (struct toklog){.with = with_logprobs};
}

void toklog_fini(struct toklog *t)
{
	free(t->token);
	free(t->logprob);
	free(t->rank);
	free(t->top_end);
	free(t->top);
	*t = (struct toklog){0};
}

static void toklog_grow(struct toklog *t)
{
	t->cap = (uint32_t)array_capacity(t->cap, t->n + (size_t)1, UINT32_MAX);
	t->token = xrealloc(t->token, t->cap, sizeof *t->token);
	if (!t->with)
		return;
	t->logprob = xrealloc(t->logprob, t->cap, sizeof *t->logprob);
	t->rank = xrealloc(t->rank, t->cap, sizeof *t->rank);
	t->top_end = xrealloc(t->top_end, t->cap, sizeof *t->top_end);
}

void toklog_push(struct toklog *t, const struct engine_token *e, const uint32_t *top_ids,
		 const float *top_logprobs)
{
	if (t->n == t->cap)
		toklog_grow(t);
	t->token[t->n] = e->token;
	if (t->with) {
		size_t from = t->n ? t->top_end[t->n - 1] : 0, n = e->rank ? e->n_top : 0;
		array_grow(t->top, t->top_cap, from + n);
		for (size_t i = 0; i < n; i++)
			t->top[from + i] =
				(struct logprob_top){top_ids[e->top0 + i], top_logprobs[e->top0 + i]};
		t->logprob[t->n] = e->logprob;
		t->rank[t->n] = e->rank;
		t->top_end[t->n] = from + n;
	}
	t->n++;
}

static void toklog_cut(struct toklog *t, uint32_t n)
{
	assert(n <= t->n);
	t->n = n;
}

size_t toklog_bytes(const struct toklog *t)
{
	size_t each = sizeof *t->token;
	if (t->with)
		each += sizeof *t->logprob + sizeof *t->rank + sizeof *t->top_end;
	return t->cap * each + t->top_cap * sizeof *t->top;
}

void toklog_view(const struct toklog *t, uint32_t from, uint32_t to, struct token_logprob *out)
{
	assert(t->with && to <= t->n);
	for (uint32_t i = from; i < to; i++) {
		size_t begin = i ? t->top_end[i - 1] : 0;
		*out++ = (struct token_logprob){.token = t->token[i],
						.logprob = t->logprob[i],
						.rank = t->rank[i],
						.n_top = (uint32_t)(t->top_end[i] - begin),
						.top = t->top ? t->top + begin : NULL};
	}
}

void output_init(struct output *o, uint32_t index, const struct output_rules *r)
{
	*o = (struct output){.index = index, .stop_token = -1, .tail = SIZE_MAX};
	toklog_init(&o->log, r->logprobs);
	o->detok = detok_new(r->tokenizer, r->skip_special, true);
	if (r->reasoning && (r->stops || r->n_late_stop_ids)) {
		o->reasoning = xcalloc(1, sizeof *o->reasoning);
		reasoning_init(o->reasoning, r->reasoning_open);
		o->reasoning->marks = r->reasoning;
	}
}

/* End the reasoning: stops count from here on. */
static void end_reasoning(struct output *o)
{
	if (o->reasoning)
		reasoning_fini(o->reasoning);
	free(o->reasoning);
	o->reasoning = NULL;
}

void output_fini(struct output *o)
{
	toklog_fini(&o->log);
	free(o->start);
	buf_fini(&o->text);
	detok_free(o->detok);
	end_reasoning(o);
	*o = (struct output){0};
}

static void end(struct output *o, enum finish finish)
{
	o->finish = finish;
	o->shown = o->text.len;
	o->n_shown = o->log.n;
	o->tail = o->tail < o->text.len ? o->tail : o->text.len;
	detok_free(o->detok);
	o->detok = NULL;
	end_reasoning(o);
}

/* Return the bytes of text not yet known to be reasoning or answer. */
static size_t undecided(const struct output *o)
{
	return o->reasoning ? o->reasoning->held.len + o->reasoning->framed.len : 0;
}

/* Return the position from which stops count; the text before `from` was examined earlier.  The position is
 * before `from` if earlier text turns out to be no reasoning, and at the text's end while reasoning
 * continues. */
static size_t stops_from(struct output *o, size_t from)
{
	struct buf reasoning = {0}, answer = {0};
	while (o->reasoning && from < o->text.len) {
		reasoning_push(o->reasoning, o->text.p + from++, 1, &reasoning, &answer);
		if (answer.len) {
			from -= undecided(o) + answer.len;
			end_reasoning(o);
		}
	}
	buf_fini(&reasoning);
	buf_fini(&answer);
	return from;
}

static bool is_late_stop(const struct output *o, const struct output_rules *r, uint32_t token)
{
	if (o->reasoning || o->log.n < r->min_tokens)
		return false;
	for (uint32_t i = 0; i < r->n_late_stop_ids; i++)
		if (r->late_stop_ids[i] == token)
			return true;
	return false;
}

/* Search text[from..] for stop strings; cut and end the output at the first. */
static bool match(struct output *o, const struct output_rules *r, size_t from)
{
	struct stops_hit hit;
	if (o->text.len == from || !stops_push(r->stops, &o->at, o->text.p + from, o->text.len - from, &hit))
		return false;
	size_t cut = from + hit.end - (r->include_stop ? 0 : hit.length);
	o->text.len = cut;
	o->text.p[cut] = 0;
	uint32_t n = o->log.n;
	while (n > o->n_shown && o->start[n - 1] >= cut)
		n--;
	toklog_cut(&o->log, n);
	o->stop_string = r->stop[hit.which];
	end(o, FINISH_STOP);
	return true;
}

static size_t token_end(const struct output *o, uint32_t i)
{
	return i + 1 < o->log.n ? o->start[i + 1] : o->text.len;
}

/* Show the tokens that end within the first `bytes` of the text.  A listener that has these tokens has all of
 * their text, and continues with the text of the next token. */
static void show_whole(struct output *o, size_t bytes)
{
	while (o->n_shown < o->log.n && token_end(o, o->n_shown) <= bytes)
		o->n_shown++;
	o->shown = o->n_shown < o->log.n ? o->start[o->n_shown] : o->text.len;
}

bool output_push(struct output *o, const struct output_rules *r, const struct engine_token *e,
		 const uint32_t *top_ids, const float *top_logprobs)
{
	if (o->finish != FINISH_NONE)
		return false;
	const bool late = !e->stop && is_late_stop(o, r, e->token), stop = e->stop || late;
	uint32_t cap = o->log.cap;
	toklog_push(&o->log, e, top_ids, top_logprobs);
	if (o->log.cap != cap)
		o->start = xrealloc(o->start, o->log.cap, sizeof *o->start);
	size_t from = o->text.len;
	o->start[o->log.n - 1] = (uint32_t)from;
	o->at_stop = stop;
	o->mu = stop ? o->mu : e->mu;
	/* As in vLLM, a stop token is counted and has its logprob, but has text only with include_stop. */
	if (!stop || r->include_stop)
		detok_push(o->detok, e->token, &o->text);
	from = stops_from(o, from);
	if (late) {
		output_end(o, r, FINISH_STOP, e->token);
		return true;
	}
	if (!r->stops) {
		o->shown = o->text.len;
		o->n_shown = o->log.n;
		return false;
	}
	if (o->log.n > r->min_tokens && match(o, r, from))
		return true;
	show_whole(o, o->text.len - (o->reasoning ? undecided(o) : stops_held(r->stops, &o->at)));
	return false;
}

void output_end(struct output *o, const struct output_rules *r, enum finish finish, int64_t stop_token)
{
	if (o->finish != FINISH_NONE)
		return;
	size_t from = o->text.len;
	o->tail = from;
	detok_flush(o->detok, &o->text);
	from = stops_from(o, from);
	/* At the end, undecided text is an answer, except within reasoning. */
	if (o->reasoning && !r->reasoning->channels &&
	    (o->reasoning->state == REASONING_BEGIN || o->reasoning->state == REASONING_ANSWER))
		from = o->text.len - undecided(o);
	if (r->stops && o->log.n > r->min_tokens && match(o, r, from))
		return;
	o->stop_token = stop_token;
	end(o, finish);
}

void output_view(const struct output *o, struct token_logprob *scratch, struct output_view *v)
{
	*v = (struct output_view){.index = o->index,
				  .text = o->text.p ? o->text.p : "",
				  .text_n = o->shown,
				  .tail = o->finish == FINISH_NONE ? 0 : o->text.len - o->tail,
				  .starts = o->start,
				  .tokens = o->log.token,
				  .n_tokens = o->n_shown,
				  .finish = o->finish,
				  .stop_token = o->stop_token,
				  .stop_string = o->stop_string,
				  .cumulative_logprob = NAN};
	if (!o->log.with)
		return;
	toklog_view(&o->log, 0, o->n_shown, scratch);
	v->logprobs = scratch;
	v->cumulative_logprob = 0;
	for (uint32_t i = 0; i < o->n_shown; i++)
		v->cumulative_logprob += (double)o->log.logprob[i];
}

size_t output_bytes(const struct output *o)
{
	return toklog_bytes(&o->log) + o->log.cap * sizeof *o->start + o->text.cap;
}

/* Return the score of an output.  Complete outputs rank before those cut off, and these before empty ones:
 * their sum of 0 would be the highest. */
static double score(const struct output *o)
{
	double sum = o->finish == FINISH_STOP || o->finish == FINISH_LENGTH ? 0 : o->n_shown ? -1e12 : -2e12;
	for (uint32_t i = 0; i < o->n_shown; i++)
		sum += (double)o->log.logprob[i];
	return sum;
}

void output_choose_best(struct output *outputs, uint32_t n, uint32_t n_keep)
{
	double scores[PARAMS_N_MAX];
	assert(n_keep <= n && n <= PARAMS_N_MAX);
	for (uint32_t i = 0; i < n; i++)
		scores[i] = score(&outputs[i]);
	for (uint32_t i = 0; i < n_keep; i++) {
		uint32_t best = i;
		for (uint32_t k = i + 1; k < n; k++)
			if (scores[k] > scores[best])
				best = k;
		const struct output o = outputs[best];
		const double highest = scores[best];
		memmove(outputs + i + 1, outputs + i, (best - i) * sizeof o);
		memmove(scores + i + 1, scores + i, (best - i) * sizeof highest);
		outputs[i] = o;
		scores[i] = highest;
		outputs[i].index = i;
		outputs[i].dirty = true;
	}
	while (n > n_keep)
		output_fini(&outputs[--n]);
}
