#include "bench/workload.h"

#include "base/alloc.h"
#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Words that are common enough to be one token, with the preceding space, in most vocabularies. */
static const char *const words[] = {
	"the",    "and",   "was",    "that",   "with",  "for",   "his",   "her",   "they",    "said",
	"one",    "day",   "time",   "little", "big",   "went",  "came",  "saw",   "house",   "tree",
	"water",  "old",   "new",    "good",   "very",  "then",  "when",  "where", "what",    "would",
	"could",  "there", "people", "work",   "great", "small", "long",  "down",  "over",    "after",
	"first",  "made",  "like",   "back",   "under", "light", "night", "two",   "three",   "world",
	"home",   "hand",  "high",   "last",   "right", "place", "found", "still", "between", "name",
	"should", "never", "each",   "other"};
enum { N_WORDS = sizeof words / sizeof *words };

/* Seeds of independent random streams. */
enum { FOR_GAPS = 0x67617073, FOR_LENGTHS = 0x6c656e67, FOR_PREFIX = 0x70726566, FOR_PROMPT = 0x70726f6d };

static uint32_t uniform(struct rng *r, uint32_t lo, uint32_t hi)
{
	return lo + (uint32_t)(rng_unit(r) * ((double)(hi - lo) + 1));
}

/* Draw a length as vLLM's --random-range-ratio does: both ends are included. */
static uint32_t around(struct rng *r, uint32_t n, double ratio)
{
	double lo = floor(n * (1 - ratio)), hi = ceil(n * (1 + ratio));
	return uniform(r, lo < 1 ? 1 : (uint32_t)lo, (uint32_t)hi);
}

static uint32_t at_most(uint32_t n, uint32_t max)
{
	return max && n > max ? max : n;
}

static void from_trace(const struct trace *t, struct load_request *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = (struct load_request){.at_us = t->v[i].at_us,
					     .n_prompt = t->v[i].n_prompt,
					     .n_output = t->v[i].n_output ? t->v[i].n_output : 1};
}

static void synthetic(const struct workload *w, struct load_request *v, size_t n)
{
	struct rng gaps = {w->seed ^ FOR_GAPS}, lengths = {w->seed ^ FOR_LENGTHS};
	double at = 0;
	for (size_t i = 0; i < n; i++) {
		v[i] = (struct load_request){.at_us = (int64_t)at};
		if (w->by_lengths) {
			lengths_draw(&w->lengths, &lengths, &v[i].n_prompt, &v[i].n_output);
		} else {
			v[i].n_prompt = around(&lengths, w->n_prompt, w->range_ratio);
			v[i].n_output = around(&lengths, w->n_output, w->range_ratio);
		}
		if (isfinite(w->rate))
			at += rng_gamma(&gaps, w->burstiness) / w->burstiness / w->rate * 1e6;
	}
}

int workload_make(const struct workload *w, struct load_request **v, size_t *n, struct why *why)
{
	struct trace t = {0};
	*n = w->n;
	if (w->trace) {
		int rc = trace_read(w->trace, &t, why);
		if (rc)
			return rc;
		trace_scale(&t, w->trace_speed);
		*n = !w->n || w->n > t.n ? t.n : w->n;
	}
	*v = xcalloc(*n + 1, sizeof **v);
	if (w->trace)
		from_trace(&t, *v, *n);
	else
		synthetic(w, *v, *n);
	trace_fini(&t);
	for (size_t i = 0; i < *n; i++) {
		(*v)[i].n_prompt = at_most((*v)[i].n_prompt + w->n_prefix, w->max_prompt);
		(*v)[i].n_output = at_most((*v)[i].n_output, w->max_output);
	}
	return 0;
}

static void put_one(const struct workload *w, struct rng *r, bool first, struct buf *out)
{
	char number[16];
	if (w->prompts == WORKLOAD_WORDS) {
		if (!first)
			buf_putc(out, ' ');
		buf_puts(out, words[rng_next(r) % N_WORDS]);
		return;
	}
	uint32_t id =
		w->prompts == WORKLOAD_IDS ? w->ids[rng_next(r) % w->n_ids] : uniform(r, w->id_lo, w->id_hi);
	char *p = number + sizeof number;
	do
		*--p = (char)('0' + id % 10);
	while (id /= 10);
	if (!first)
		*--p = ',';
	buf_put(out, p, (size_t)(number + sizeof number - p));
}

void workload_prompt(const struct workload *w, size_t nth, uint32_t n_prompt, struct buf *out)
{
	struct rng same = {w->seed ^ FOR_PREFIX}, own = {w->seed ^ FOR_PROMPT};
	own.state = rng_next(&own) + nth;
	own.state = rng_next(&own);
	bool text = w->prompts == WORKLOAD_WORDS;
	buf_putc(out, text ? '"' : '[');
	for (uint32_t i = 0; i < n_prompt; i++)
		put_one(w, i < w->n_prefix ? &same : &own, i == 0, out);
	buf_putc(out, text ? '"' : ']');
}
