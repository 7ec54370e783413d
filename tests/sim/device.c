#include "tests/sim/device.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "controller/sched/beam.h"
#include "proto/bus.h"
#include "tests/sim/leases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON 0xdeadbeefdeadbeefu

enum { MAX_ROWS = 1 << 20 };

struct slot {
	bool used;
	bool held;   /* its last run was held back */
	bool asleep; /* held back, and not yet reported awake to the scheduler */
	uint32_t index, n_prompt;
	uint32_t *tokens, n_tokens; /* [max_context + 1] */
	uint32_t n_drafts;          /* drafts of its open run, stored after its tokens */
	uint32_t *table;            /* [max_context / block_size + 1][KINDS_MAX] */
	uint32_t n_table;           /* rows */
	struct params params;
};

struct device {
	uint32_t n_slots, n_blocks, n_host, block_size, max_context;
	struct kinds kinds;
	struct slot *slots;
	uint64_t *kv;   /* [(n_blocks + 1) * block_size] */
	uint64_t *host; /* [n_host * block_size] */
	uint64_t epoch, number;
	struct plan queued[LEASES_AHEAD]; /* [n_queued] submitted but not executed; oldest first */
	uint32_t n_queued;
	struct buf encoded;
	struct leases *leases;
	struct blocks_cell *cells; /* [max(n_blocks, n_host)] */
	uint32_t hold_every;
	uint64_t hold_rng;
	uint32_t drafts_right; /* of a thousand; 0: no drafts */
	uint64_t draft_rng;
};

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;
	x ^= x >> 32;
	x *= 0xc4ceb9fe1a85ec53u;
	return x ^ x >> 29;
}

static uint32_t choose(uint64_t chain, uint64_t seed, uint32_t index, uint32_t position)
{
	uint64_t h = mix(mix(chain, seed), (uint64_t)index << 32 | position);
	if (h % 64 == 0)
		return DEVICE_STOP;
	return (uint32_t)(h >> 20) % DEVICE_VOCAB;
}

static uint64_t chain_of(const uint32_t *tokens, uint32_t n)
{
	uint64_t h = 1;
	for (uint32_t i = 0; i < n; i++)
		h = mix(h, tokens[i]);
	return h;
}

uint32_t device_expect(const uint32_t *prompt, uint32_t n_prompt, const struct params *params, uint32_t index,
		       uint32_t *out, uint32_t max)
{
	uint64_t h = chain_of(prompt, n_prompt);
	uint32_t n = 0;
	while (n < params->max_tokens && n < max) {
		uint32_t t = choose(h, params->seed, index, n);
		if (params_is_stop(params, t) && n >= params->min_tokens)
			break;
		out[n++] = t;
		h = mix(h, t);
	}
	return n;
}

/* Compute the simulated outputs of a row from the hash of its history: the words of a pooled last row, and
 * its contribution to a mean. */
static void last_row(uint64_t chain, const struct params *params, uint32_t *words)
{
	for (uint32_t i = 0; i < DEVICE_POOL_MAX; i++)
		words[i] = (uint32_t)mix(chain, params->pool == PARAMS_POOL_LOGITS && i < params->n_allowed
							? (uint64_t)params->allowed[i]
							: i);
}

static int64_t row_part(uint64_t chain, uint32_t i)
{
	return (int64_t)(mix(chain, i) >> 30) - (1ll << 33);
}

/* Return the width of a pooled row. */
static uint32_t pool_width(const struct params *params)
{
	return params->pool == PARAMS_POOL_LOGITS ? params->n_allowed : 3;
}

uint32_t device_pool(const uint32_t *prompt, uint32_t n_prompt, const struct params *params, float *out)
{
	const uint32_t n = pool_width(params);
	uint64_t h = 1;
	int64_t sums[3] = {0};
	uint32_t words[DEVICE_POOL_MAX];
	for (uint32_t pos = 0; pos < n_prompt; pos++) {
		h = mix(h, prompt[pos]);
		for (uint32_t i = 0; i < 3; i++)
			sums[i] += row_part(h, i);
	}
	last_row(h, params, words);
	for (uint32_t i = 0; i < n; i++) {
		if (params->pool == PARAMS_POOL_MEAN)
			out[i] = (float)((double)sums[i] / RESULT_POOL_ONE / n_prompt);
		else
			memcpy(&out[i], &words[i], sizeof out[i]);
	}
	return n;
}

bool device_dries_up(const struct params *params)
{
	return params->seed % 7 == 3;
}

/* Compute the n most likely tokens after a history, in order; return how many there are.  Several are often
 * equally likely, and the stop token is among the first.  For a seventh of the seeds some histories give NaN
 * logits: then there is no candidate. */
static uint32_t candidates(uint64_t chain, uint64_t seed, uint32_t n, uint32_t *ids, float *logprobs)
{
	static const uint32_t strides[] = {1, 3, 7, 9, 11, 13, 17, 333}; /* coprime to the vocabulary */
	const uint64_t h = mix(chain, seed ^ 0x5ea2c);
	if (device_dries_up(&(struct params){.seed = seed}) && (h >> 30) % 16 == 0)
		return 0;
	const uint32_t stride = strides[h >> 8 & 7];
	uint32_t id = (uint32_t)(h >> 20) % DEVICE_VOCAB, eighths = (uint32_t)h & 7, stop = n;
	for (uint32_t i = 0; i < n; i++, id = (id + stride) % DEVICE_VOCAB) {
		ids[i] = id;
		if (id == DEVICE_STOP)
			stop = i;
	}
	if (stop == n && h >> 60 < 6)
		ids[(h >> 40) % (n < 6 ? n : 6)] = DEVICE_STOP;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t my = ids[i];
		uint32_t at = i;
		logprobs[i] = -(float)eighths / 8;
		for (; at > 0 && logprobs[at - 1] == logprobs[i] && ids[at - 1] > my; at--)
			ids[at] = ids[at - 1];
		ids[at] = my;
		eighths += (uint32_t)(h >> (i % 50)) & 3;
	}
	return n;
}

uint32_t device_search(const uint32_t *prompt, uint32_t n_prompt, const struct params *params, uint32_t *out,
		       uint32_t max, uint32_t *n_out, bool *stopped)
{
	struct beam *b = beam_new(params);
	uint64_t chains[PARAMS_N_MAX] = {chain_of(prompt, n_prompt)}, was[PARAMS_N_MAX];
	uint32_t n_ids = beam_n_candidates(params), ids[PARAMS_TOP_MAX], n;
	float logprobs[PARAMS_TOP_MAX];
	struct beam_move moves[PARAMS_N_MAX];
	do {
		for (uint32_t i = 0; i < params->beam_width; i++)
			if (beam_lives(b, i)) {
				uint32_t got = candidates(chains[i], params->seed, n_ids, ids, logprobs);
				beam_offer(b, i, ids, logprobs, got);
			}
		n = beam_step(b, moves);
		memcpy(was, chains, sizeof was);
		for (uint32_t i = 0; i < n; i++)
			chains[moves[i].place] = mix(was[moves[i].parent], moves[i].token);
	} while (n);
	uint32_t found = beam_n_finished(b) < params->n ? beam_n_finished(b) : params->n;
	struct beam_token *tokens = xcalloc(params->max_tokens, sizeof *tokens);
	for (uint32_t i = found; i < params->n; i++) {
		n_out[i] = 0;
		stopped[i] = false;
	}
	for (uint32_t i = 0; i < found; i++) {
		beam_tokens(b, i, tokens);
		stopped[i] = beam_stopped(b, i);
		n_out[i] = beam_length(b, i) - stopped[i];
		for (uint32_t k = 0; k < n_out[i] && k < max; k++)
			out[(size_t)i * max + k] = tokens[k].token;
	}
	free(tokens);
	beam_free(b);
	return found;
}

static void wrong(const char *what, uint64_t plan, uint32_t slot)
{
	fprintf(stderr, "device: plan %" PRIu64 ", slot %u: %s\n", plan, slot, what);
	abort();
}

struct device *device_new(uint32_t n_slots, uint32_t n_blocks, uint32_t n_host, uint32_t block_size,
			  uint32_t max_context)
{
	struct device *d = xcalloc(1, sizeof *d);
	d->n_slots = n_slots;
	d->n_blocks = n_blocks;
	d->n_host = n_host;
	d->block_size = block_size;
	d->max_context = max_context;
	d->kinds = KINDS_ONE;
	d->host = xcalloc((size_t)n_host * block_size + 1, sizeof *d->host);
	d->slots = xcalloc(n_slots, sizeof *d->slots);
	d->kv = xcalloc(((size_t)n_blocks + 1) * block_size, sizeof *d->kv); /* and one for PLAN_NO_BLOCK */
	for (uint32_t i = 0; i < n_slots; i++) {
		d->slots[i].tokens = xcalloc(max_context + 1 + PLAN_OPEN_ROWS, sizeof(uint32_t));
		d->slots[i].table = xcalloc((max_context / block_size + 2) * KINDS_MAX, sizeof(uint32_t));
	}
	d->leases = leases_new(n_slots, n_blocks, n_host, block_size, max_context / block_size + 2);
	d->cells = xcalloc(n_blocks + n_host, sizeof *d->cells);
	return d;
}

void device_free(struct device *d)
{
	for (uint32_t i = 0; i < d->n_slots; i++) {
		free(d->slots[i].tokens);
		free(d->slots[i].table);
		if (d->slots[i].used)
			params_fini(&d->slots[i].params);
	}
	for (int i = 0; i < LEASES_AHEAD; i++)
		bus_plan_fini(&d->queued[i]);
	leases_free(d->leases);
	buf_fini(&d->encoded);
	free(d->cells);
	free(d->slots);
	free(d->kv);
	free(d->host);
	free(d);
}

void device_set_kinds(struct device *d, const struct kinds *kinds)
{
	d->kinds = *kinds;
	leases_set_kinds(d->leases, kinds);
}

static uint64_t *kv_at(struct device *d, const struct slot *s, uint32_t kind, uint32_t pos)
{
	const uint32_t block = s->table[pos / d->block_size * KINDS_MAX + kind];
	return &d->kv[(size_t)block * d->block_size + pos % d->block_size];
}

static void copy_slot(struct device *d, struct slot *to, const struct slot *from)
{
	to->used = true;
	to->index = from->index;
	to->n_prompt = from->n_prompt;
	to->n_tokens = from->n_tokens;
	memcpy(to->tokens, from->tokens, (d->max_context + 1) * sizeof *to->tokens);
	memcpy(to->table, from->table, (d->max_context / d->block_size + 2) * KINDS_MAX * sizeof *to->table);
	to->n_table = from->n_table;
	params_copy(&to->params, &from->params);
}

static void set_tokens(struct device *d, const struct plan *p)
{
	for (uint32_t i = 0; i < p->n_sets; i++) {
		const struct plan_set *set = &p->sets[i];
		struct slot *from = &d->slots[set->from], *to = &d->slots[set->slot];
		if (!from->used || (to->used && to != from))
			wrong("a token set in a free slot, or a copy onto a used one", p->number, set->slot);
		if (set->position != from->n_tokens && set->position + 1 != from->n_tokens)
			wrong("a token set that is not the last one", p->number, set->slot);
		if (to != from)
			copy_slot(d, to, from);
		to->tokens[set->position] = set->token;
		to->n_tokens = set->position + 1;
	}
}

static void take_state(struct device *d, const struct plan *p)
{
	for (uint32_t i = 0; i < p->n_drop; i++) {
		struct slot *s = &d->slots[p->drop[i]];
		if (!s->used)
			wrong("a free slot dropped", p->number, p->drop[i]);
		params_fini(&s->params);
		s->used = s->held = s->asleep = false;
	}
	for (uint32_t i = 0; i < p->n_seqs; i++) {
		const struct plan_seq *q = &p->seqs[i];
		struct slot *s = &d->slots[q->slot];
		if (s->used)
			wrong("a sequence in a used slot", p->number, q->slot);
		s->used = true;
		s->held = s->asleep = false;
		s->index = q->index;
		s->n_prompt = q->n_prompt;
		s->n_tokens = q->n_tokens;
		memcpy(s->tokens, q->tokens, q->n_tokens * sizeof *s->tokens);
		for (uint32_t k = 0; k < q->n_blocks * d->kinds.n; k++)
			s->table[k / d->kinds.n * KINDS_MAX + k % d->kinds.n] =
				q->blocks[k] == PLAN_NO_BLOCK ? d->n_blocks : q->blocks[k];
		s->n_table = q->n_blocks;
		params_copy(&s->params, q->params);
	}
	set_tokens(d, p);
	for (uint32_t i = 0; i < p->n_tables; i++) {
		if (!d->slots[p->tables[i].slot].used)
			wrong("a table entry of a free slot", p->number, p->tables[i].slot);
		for (uint32_t k = 0; k < p->n_seqs; k++)
			if (p->seqs[k].slot == p->tables[i].slot)
				wrong("an entry of a table that is sent as a whole", p->number,
				      p->tables[i].slot);
		struct slot *s = &d->slots[p->tables[i].slot];
		s->table[p->tables[i].logical * KINDS_MAX + p->tables[i].kind] = p->tables[i].block;
		if (s->n_table == p->tables[i].logical && p->tables[i].kind + 1 == d->kinds.n)
			s->n_table++;
	}
	for (uint32_t i = 0; i < p->n_forks; i++) {
		struct slot *from = &d->slots[p->forks[i].parent], *to = &d->slots[p->forks[i].child];
		if (!from->used || to->used)
			wrong("a fork of a free slot, or onto a used one", p->number, p->forks[i].child);
		copy_slot(d, to, from);
		to->index = p->forks[i].index;
	}
	size_t n = d->block_size, bytes = n * sizeof *d->kv;
	for (uint32_t i = 0; i < p->n_swap_out; i++)
		memcpy(d->host + p->swap_out[i].to * n, d->kv + p->swap_out[i].from * n, bytes);
	for (uint32_t i = 0; i < p->n_swap_in; i++)
		memcpy(d->kv + p->swap_in[i].to * n, d->host + p->swap_in[i].from * n, bytes);
	for (uint32_t i = 0; i < p->n_copies; i++)
		memcpy(d->kv + p->copies[i].to * n, d->kv + p->copies[i].from * n, bytes);
}

/* If a slot's last run was held back, its next run starts one row earlier. */
static void shift(const struct device *d, struct plan *p)
{
	for (uint32_t i = 0; i < p->n_runs; i++) {
		struct plan_run *r = &p->runs[i];
		const struct slot *s = &d->slots[r->slot];
		if (s->held && !(r->flags & PLAN_OPEN) && r->n_rows == 1 && r->pos0 == s->n_tokens)
			r->pos0--;
	}
}

static bool sits_out(struct device *d)
{
	d->hold_rng = mix(d->hold_rng, 1);
	return d->hold_every && d->hold_rng % d->hold_every == 0;
}

/* Draft the next tokens of a slot: some are right, as the seed says. */
static void draft(struct device *d, struct slot *s, uint32_t n)
{
	uint64_t h = chain_of(s->tokens, s->n_tokens);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t at = s->n_tokens + i;
		uint32_t t = choose(h, s->params.seed, s->index, at - s->n_prompt);
		d->draft_rng = mix(d->draft_rng, 1);
		if (d->draft_rng % 1000 >= d->drafts_right)
			t = (t + 1) % DEVICE_VOCAB;
		s->tokens[at] = t;
		h = mix(h, t);
	}
	s->n_drafts = n;
}

/* Let open runs begin at the last token, with their drafts; none is left of a run whose output has all its
 * tokens. */
static void open_runs(struct device *d, struct plan *p)
{
	for (uint32_t i = 0; i < p->n_runs; i++) {
		struct plan_run *r = &p->runs[i];
		struct slot *s = &d->slots[r->slot];
		if (!(r->flags & PLAN_OPEN))
			continue;
		if (!s->used || (s->n_tokens == s->n_prompt && !s->held))
			wrong("an open run of a slot without output", p->number, r->slot);
		if (r->pos0 >= s->n_tokens + s->held)
			wrong("an open run after the last token", p->number, r->slot);
		const uint32_t left = s->params.max_tokens - (s->n_tokens - s->n_prompt);
		const uint32_t rows = r->n_rows < left ? r->n_rows : left;
		r->pos0 = s->n_tokens - 1;
		draft(d, s, rows && d->drafts_right ? rows - 1 : 0);
		r->n_rows = rows ? 1 + s->n_drafts : 0;
	}
}

/* Draw the tokens of an open run, or hold it back. */
static void draw_open(struct device *d, const struct plan_run *run, struct result *r)
{
	struct slot *s = &d->slots[run->slot];
	uint32_t n = 0;
	s->held = s->asleep = run->n_rows && sits_out(d);
	if (s->held)
		result_add_held(r, run->slot);
	for (bool right = !s->held; right && n < run->n_rows; n++) {
		const uint32_t t = choose(chain_of(s->tokens, s->n_tokens), s->params.seed, s->index,
					  s->n_tokens - s->n_prompt);
		right = s->tokens[s->n_tokens] == t;
		s->tokens[s->n_tokens++] = t;
		result_add_token(r, t);
	}
	result_add_count(r, n);
}

static void compute(struct device *d, const struct plan *p, const struct plan_run *r)
{
	struct slot *s = &d->slots[r->slot];
	if (!s->used)
		wrong("a run of a free slot", p->number, r->slot);
	if (r->pos0 + r->n_rows > s->n_tokens + (r->flags & PLAN_OPEN ? s->n_drafts : 0))
		wrong("a run beyond the tokens", p->number, r->slot);
	if (r->pos0 + r->n_rows > s->n_table * d->block_size)
		wrong("a run beyond its blocks", p->number, r->slot);
	uint64_t h = 1;
	for (uint32_t pos = 0; pos < r->pos0 + r->n_rows; pos++) {
		h = mix(h, s->tokens[pos]);
		for (uint32_t k = 0; pos >= r->pos0 && k < d->kinds.n; k++)
			*kv_at(d, s, k, pos) = mix(h, k);
	}
}

/* Verify the cache after all rows of all runs are stored, as on a real device: this detects a run that
 * overwrote another run's block. */
static void verify(struct device *d, const struct plan *p, const struct plan_run *r)
{
	struct slot *s = &d->slots[r->slot];
	uint64_t h = 1;
	for (uint32_t pos = 0; pos < r->pos0 + r->n_rows; pos++) {
		h = mix(h, s->tokens[pos]);
		for (uint32_t k = 0; k < d->kinds.n; k++)
			if (pos >= kinds_first(&d->kinds, k, r->pos0) && *kv_at(d, s, k, pos) != mix(h, k))
				wrong("the cache does not hold what it should", p->number, r->slot);
	}
}

static void add_candidates(const struct slot *s, uint32_t slot, struct result *r)
{
	uint32_t ids[PARAMS_TOP_MAX];
	float logprobs[PARAMS_TOP_MAX];
	const uint32_t n = candidates(chain_of(s->tokens, s->n_tokens), s->params.seed,
				      (uint32_t)s->params.logprobs, ids, logprobs);
	*result_add_logprob(r) = (struct result_logprob){
		.slot = slot, .position = s->n_tokens, .rank = 1, .n_top = n, .top0 = r->n_top};
	for (uint32_t i = 0; i < n; i++)
		result_add_top(r, ids[i], logprobs[i]);
}

static void add_pool(const struct slot *s, const struct plan *p, const struct plan_run *run, struct result *r)
{
	const uint32_t end = run->pos0 + run->n_rows, n = pool_width(&s->params);
	const bool mean = s->params.pool == PARAMS_POOL_MEAN;
	uint32_t words[DEVICE_POOL_MAX];
	if (run->flags & PLAN_SAMPLE || end > s->n_prompt)
		wrong("samples from a sequence that is pooled", p->number, run->slot);
	if (!mean && end < s->n_prompt)
		return;
	struct result_pool *to = result_add_pool(r, mean ? 2 * n : n);
	to->slot = run->slot;
	to->pos0 = run->pos0;
	to->n_rows = run->n_rows;
	uint64_t h = 1;
	int64_t sums[3] = {0};
	for (uint32_t pos = 0; pos < end; pos++) {
		h = mix(h, s->tokens[pos]);
		for (uint32_t i = 0; pos >= run->pos0 && i < 3; i++)
			sums[i] += row_part(h, i);
	}
	last_row(h, &s->params, words);
	memcpy(r->pool_words + to->at, mean ? (const void *)sums : words, to->n_words * sizeof *words);
}

static void carry_out(struct device *d, struct plan *p, struct result *r)
{
	take_state(d, p);
	shift(d, p);
	open_runs(d, p);
	for (uint32_t i = 0; i < p->n_runs; i++)
		compute(d, p, &p->runs[i]);
	for (uint32_t i = 0; i < p->n_runs; i++)
		verify(d, p, &p->runs[i]);
	result_reset(r);
	r->epoch = p->epoch;
	r->number = p->number;
	for (uint32_t i = 0; i < p->n_runs; i++) {
		const struct plan_run *run = &p->runs[i];
		struct slot *s = &d->slots[run->slot];
		if (s->params.pool)
			add_pool(s, p, run, r);
		if (!(run->flags & PLAN_SAMPLE))
			continue;
		if (run->flags & PLAN_OPEN) {
			draw_open(d, run, r);
			continue;
		}
		if (run->n_rows == 0 && !d->slots[run->from].used)
			wrong("samples from a row of a free slot", p->number, run->slot);
		if (run->pos0 + run->n_rows != s->n_tokens)
			wrong("samples, but not after its last token", p->number, run->slot);
		uint32_t t = choose(chain_of(s->tokens, s->n_tokens), s->params.seed, s->index,
				    s->n_tokens - s->n_prompt);
		if (s->n_tokens > d->max_context)
			wrong("longer than the context", p->number, run->slot);
		s->held = s->asleep = sits_out(d);
		if (s->held) {
			result_add_held(r, run->slot);
			result_add_token(r, 0);
			continue;
		}
		if (s->params.logprobs > 0)
			add_candidates(s, run->slot, r);
		s->tokens[s->n_tokens++] = t;
		result_add_token(r, t);
	}
}

void device_submit(struct device *d, const struct plan *p)
{
	struct bus_limits lim = {d->n_slots,  MAX_ROWS,  d->n_slots,   d->max_context,
				 d->n_blocks, d->n_host, DEVICE_VOCAB, d->kinds.n};
	struct why why;
	if (p->epoch == d->epoch && p->number != d->number + 1)
		wrong("a plan is missing", p->number, 0);
	if (d->n_queued == LEASES_AHEAD)
		wrong("too many plans under way", p->number, 0);
	d->epoch = p->epoch;
	d->number = p->number;
	leases_begin(d->leases, p);
	bus_encode_plan(p, &d->encoded);
	if (bus_decode_plan(d->encoded.p, d->encoded.len, &lim, &d->queued[d->n_queued++], &why))
		wrong(why.text, p->number, 0);
}

void device_answer(struct device *d, struct result *r)
{
	struct plan first = d->queued[0];
	carry_out(d, &first, r);
	memmove(d->queued, d->queued + 1, (LEASES_AHEAD - 1) * sizeof first);
	d->queued[LEASES_AHEAD - 1] = first;
	d->n_queued--;
	leases_end(d->leases);
}

void device_step(struct device *d, const struct plan *p, struct result *r)
{
	device_submit(d, p);
	device_answer(d, r);
}

void device_hold(struct device *d, uint32_t every, uint64_t seed)
{
	d->hold_every = every;
	d->hold_rng = mix(seed, 2);
}

void device_draft(struct device *d, uint32_t right_permille, uint64_t seed)
{
	d->drafts_right = right_permille;
	d->draft_rng = mix(seed, 3);
}

bool device_awake(struct device *d, uint32_t *slot)
{
	for (uint32_t i = 0; i < d->n_slots; i++) {
		const uint32_t at = (uint32_t)((d->hold_rng + i) % d->n_slots);
		if (!d->slots[at].asleep)
			continue;
		d->slots[at].asleep = false;
		*slot = at;
		return true;
	}
	return false;
}

static void poison(struct device *d, uint64_t *kv, const struct blocks *b)
{
	uint32_t n = blocks_cells(b, d->cells, blocks_total(b));
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; !d->cells[i].held && !d->cells[i].cached && k < d->block_size; k++)
			kv[(size_t)i * d->block_size + k] = POISON;
}

void device_poison(struct device *d, const struct blocks *blocks, const struct blocks *host)
{
	poison(d, d->kv, blocks);
	poison(d, d->host, host);
}
