#include "controller/sched/beam.h"

#include "base/alloc.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NIL UINT32_MAX

/* A token of one or several hypotheses, linked to the token before it: hypotheses share their beginnings. */
struct node {
	uint32_t before; /* node of the previous token; NIL: the first; in a free node, the next free node */
	uint32_t refs;   /* following nodes, and hypotheses that end here; 0: free */
	uint32_t token;
	uint32_t rank;
	float logprob;
	uint32_t n_top;
};

/* The candidates for the next token of a hypothesis. */
struct offer {
	uint32_t n;
	uint32_t at;     /* index in order of the next candidate */
	uint32_t *ids;   /* [n_candidates] as received */
	float *logprobs; /* [n_candidates] */
	float *sums;     /* [n_candidates] logprob plus the hypothesis's sum */
	uint32_t *order; /* [n] indices sorted by (sum, id) */
};

/* A live hypothesis. */
struct life {
	uint32_t place;
	uint32_t node; /* its last token; NIL: none yet */
	float sum;
};

struct finished {
	uint32_t node;
	uint32_t length;
	bool stopped;
	float score;
};

struct beam {
	const struct params *p; /* borrowed */
	uint32_t width, n_candidates, n_top;
	uint32_t length;    /* tokens of every live hypothesis */
	struct life *lives; /* [n_lives] live hypotheses by rank */
	struct life *next;  /* [width] scratch */
	uint32_t n_lives;
	uint32_t *rank;       /* [width] rank of the live hypothesis at a place; NIL: none */
	struct offer *offers; /* [width] by place; n is 0 if nothing was offered */
	bool *offered;        /* [width] */
	uint32_t n_offered;
	struct finished *done; /* [n_done], best first; capacity width + 1 */
	uint32_t n_done;
	struct node *nodes;
	uint32_t n_nodes, cap_nodes, free_node;
	uint32_t *top_ids; /* [cap_nodes * n_top] */
	float *top_logprobs;
	uint32_t *words; /* memory that the offers point into */
	float *floats;
};

uint32_t beam_n_candidates(const struct params *p)
{
	uint32_t n = p->beam_width + p->n_stop_ids;
	return p->logprobs > 0 && (uint32_t)p->logprobs > n ? (uint32_t)p->logprobs : n;
}

/* ---- lifecycle ---- */

struct beam *beam_new(const struct params *p)
{
	struct beam *b = xcalloc(1, sizeof *b);
	uint32_t w = b->width = p->beam_width;
	b->n_candidates = beam_n_candidates(p);
	assert(w >= 1 && w <= PARAMS_N_MAX);
	b->p = p;
	b->n_top = p->logprobs > 0 ? (uint32_t)p->logprobs : 0;
	b->lives = xcalloc(w, sizeof *b->lives);
	b->next = xcalloc(w, sizeof *b->next);
	b->rank = xmalloc(w * sizeof *b->rank);
	b->offers = xcalloc(w, sizeof *b->offers);
	b->offered = xcalloc(w, sizeof *b->offered);
	b->done = xcalloc(w + 1, sizeof *b->done);
	for (uint32_t i = 0; i < w; i++)
		b->rank[i] = i ? NIL : 0;
	b->lives[0] = (struct life){.place = 0, .node = NIL};
	b->n_lives = 1;
	b->free_node = NIL;
	return b;
}

void beam_free(struct beam *b)
{
	if (!b)
		return;
	free(b->lives);
	free(b->next);
	free(b->rank);
	free(b->offers);
	free(b->offered);
	free(b->done);
	free(b->nodes);
	free(b->top_ids);
	free(b->top_logprobs);
	free(b->words);
	free(b->floats);
	free(b);
}

/* ---- tokens ---- */

static uint32_t node_new(struct beam *b)
{
	uint32_t i = b->free_node;
	if (i != NIL) {
		b->free_node = b->nodes[i].before;
		return i;
	}
	if (b->n_nodes == b->cap_nodes) {
		b->cap_nodes = (uint32_t)array_capacity(b->cap_nodes, b->n_nodes + 4 * b->width, UINT32_MAX);
		b->nodes = xrealloc(b->nodes, b->cap_nodes, sizeof *b->nodes);
		if (b->n_top) {
			size_t n = (size_t)b->cap_nodes * b->n_top;
			b->top_ids = xrealloc(b->top_ids, n, sizeof *b->top_ids);
			b->top_logprobs = xrealloc(b->top_logprobs, n, sizeof *b->top_logprobs);
		}
	}
	return b->n_nodes++;
}

static void node_unref(struct beam *b, uint32_t i)
{
	while (i != NIL && --b->nodes[i].refs == 0) {
		uint32_t before = b->nodes[i].before;
		b->nodes[i].before = b->free_node;
		b->free_node = i;
		i = before;
	}
}

/* Add candidate k of the offer after node `before`; return the new node, with one reference. */
static uint32_t node_add(struct beam *b, uint32_t before, const struct offer *o, uint32_t k)
{
	uint32_t i = node_new(b), rank = 1;
	while (rank <= k && o->logprobs[rank - 1] > o->logprobs[k])
		rank++;
	b->nodes[i] = (struct node){.before = before,
				    .refs = 1,
				    .token = o->ids[k],
				    .rank = rank,
				    .logprob = o->logprobs[k],
				    .n_top = o->n < b->n_top ? o->n : b->n_top};
	if (b->nodes[i].n_top) {
		const size_t at = (size_t)i * b->n_top, n = b->nodes[i].n_top;
		memcpy(b->top_ids + at, o->ids, n * sizeof *o->ids);
		memcpy(b->top_logprobs + at, o->logprobs, n * sizeof *o->logprobs);
	}
	if (before != NIL)
		b->nodes[before].refs++;
	return i;
}

/* ---- candidates ---- */

/* Allocate with the first candidates, not with the search: thousands of searches may wait to begin. */
static void reserve_offers(struct beam *b)
{
	const size_t n = b->n_candidates;
	b->words = xmalloc(b->width * n * 2 * sizeof *b->words);
	b->floats = xmalloc(b->width * n * 2 * sizeof *b->floats);
	for (uint32_t i = 0; i < b->width; i++) {
		struct offer *o = &b->offers[i];
		o->ids = b->words + i * 2 * n;
		o->order = o->ids + n;
		o->logprobs = b->floats + i * 2 * n;
		o->sums = o->logprobs + n;
	}
}

bool beam_lives(const struct beam *b, uint32_t place)
{
	return b->rank[place] != NIL;
}

bool beam_offered(const struct beam *b, uint32_t place)
{
	return b->offered[place];
}

bool beam_offer(struct beam *b, uint32_t place, const uint32_t *ids, const float *logprobs, uint32_t n)
{
	assert(place < b->width && beam_lives(b, place) && !b->offered[place]);
	if (!b->words)
		reserve_offers(b);
	struct offer *o = &b->offers[place];
	const float sum = b->lives[b->rank[place]].sum;
	o->n = o->at = 0;
	for (uint32_t i = 0; i < n && o->n < b->n_candidates; i++) {
		if (!(logprobs[i] > -INFINITY))
			continue; /* impossible token, or not a number */
		uint32_t k = o->n++, at = k;
		o->ids[k] = ids[i];
		o->logprobs[k] = logprobs[i];
		o->sums[k] = sum + logprobs[i];
		/* Sums may be equal although the logprobs differ. */
		for (; at > 0; at--) {
			uint32_t e = o->order[at - 1];
			if (o->sums[e] > o->sums[k] || (o->sums[e] == o->sums[k] && o->ids[e] < ids[i]))
				break;
			o->order[at] = e;
		}
		o->order[at] = k;
	}
	b->offered[place] = true;
	return ++b->n_offered == b->n_lives;
}

/* Return the rank of the hypothesis that has the next candidate; NIL: there is none. */
static uint32_t next_of_all(const struct beam *b)
{
	uint32_t best = NIL;
	float most = 0;
	for (uint32_t r = 0; r < b->n_lives; r++) {
		const struct offer *o = &b->offers[b->lives[r].place];
		if (o->at < o->n && (best == NIL || o->sums[o->order[o->at]] > most)) {
			best = r;
			most = o->sums[o->order[o->at]];
		}
	}
	return best;
}

/* ---- a step ---- */

static float penalized(const struct beam *b, float sum, uint32_t length)
{
	return sum / (float)pow(length, (double)b->p->length_penalty);
}

static void finish(struct beam *b, const struct life *l, uint32_t k, bool stopped)
{
	const struct offer *o = &b->offers[l->place];
	struct finished f = {.length = b->length + 1, .stopped = stopped};
	f.score = penalized(b, o->sums[k], f.length);
	uint32_t at = b->n_done;
	while (at > 0 && f.score > b->done[at - 1].score)
		at--;
	if (at == b->width)
		return;
	f.node = node_add(b, l->node, o, k);
	memmove(b->done + at + 1, b->done + at, (b->n_done - at) * sizeof f);
	b->done[at] = f;
	if (++b->n_done > b->width)
		node_unref(b, b->done[--b->n_done].node);
}

/* Return whether the structured output can only end here.  Then it ends even before min_tokens: the worker
 * offers stop tokens there if no other token is left. */
static bool must_stop(const struct beam *b, const struct offer *o)
{
	for (uint32_t i = 0; i < o->n; i++)
		if (!params_is_stop(b->p, o->ids[i]))
			return false;
	return b->p->constraint;
}

/* Sort the candidates into finished hypotheses and `next`; return how many continue. */
static uint32_t select_lives(struct beam *b)
{
	const bool last = b->length + 1 >= b->p->max_tokens, may_stop = b->length >= b->p->min_tokens;
	uint32_t seen = 0, n = 0, r;
	while ((last ? seen : n) < b->width && (r = next_of_all(b)) != NIL) {
		const struct life *l = &b->lives[r];
		struct offer *o = &b->offers[l->place];
		const uint32_t k = o->order[o->at++];
		const bool stop = params_is_stop(b->p, o->ids[k]);
		if (stop && !may_stop && !must_stop(b, o))
			continue;
		if ((stop || last) && seen < b->width)
			finish(b, l, k, stop);
		if (!stop && !last)
			/* It has its parent's place until give_places(). */
			b->next[n++] = (struct life){l->place, node_add(b, l->node, o, k), o->sums[k]};
		seen++;
	}
	return n;
}

/* Return whether a live hypothesis could still beat the worst finished one. */
static bool improvable(const struct beam *b, uint32_t length)
{
	if (b->n_done < b->width)
		return true;
	if (b->p->early == PARAMS_EARLY_YES)
		return false;
	if (b->p->early == PARAMS_EARLY_NEVER && b->p->length_penalty > 0)
		length = b->p->max_tokens;
	return penalized(b, b->next[0].sum, length) > b->done[b->n_done - 1].score;
}

static void give_places(struct beam *b, uint32_t n, struct beam_move *moves)
{
	bool taken[PARAMS_N_MAX] = {false}, first[PARAMS_N_MAX];
	uint32_t free_place = 0;
	for (uint32_t i = 0; i < n; i++) {
		first[i] = !taken[b->next[i].place];
		taken[b->next[i].place] = true;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct life *l = &b->next[i];
		moves[i] = (struct beam_move){l->place, l->place, b->nodes[l->node].token};
		if (first[i])
			continue;
		while (taken[free_place])
			free_place++;
		taken[free_place] = true;
		moves[i].place = l->place = free_place;
	}
}

uint32_t beam_step(struct beam *b, struct beam_move *moves)
{
	assert(b->n_lives && b->n_offered == b->n_lives);
	uint32_t n = select_lives(b);
	for (uint32_t r = 0; r < b->n_lives; r++) {
		node_unref(b, b->lives[r].node);
		b->rank[b->lives[r].place] = NIL;
		b->offered[b->lives[r].place] = false;
	}
	b->n_offered = 0;
	b->length++;
	if (n && !improvable(b, b->length)) {
		while (n)
			node_unref(b, b->next[--n].node);
	}
	give_places(b, n, moves);
	for (uint32_t r = 0; r < n; r++)
		b->rank[b->next[r].place] = r;
	struct life *was = b->lives;
	b->lives = b->next;
	b->next = was;
	b->n_lives = n;
	return n;
}

/* ---- finished hypotheses ---- */

uint32_t beam_n_finished(const struct beam *b)
{
	return b->n_done;
}

float beam_score(const struct beam *b, uint32_t i)
{
	return b->done[i].score;
}

uint32_t beam_length(const struct beam *b, uint32_t i)
{
	return b->done[i].length;
}

bool beam_stopped(const struct beam *b, uint32_t i)
{
	return b->done[i].stopped;
}

void beam_tokens(const struct beam *b, uint32_t i, struct beam_token *out)
{
	uint32_t at = b->done[i].length;
	for (uint32_t k = b->done[i].node; k != NIL; k = b->nodes[k].before) {
		const struct node *n = &b->nodes[k];
		out[--at] = (struct beam_token){.token = n->token,
						.logprob = n->logprob,
						.rank = n->rank,
						.n_top = n->n_top,
						.top_ids = b->top_ids + (size_t)k * b->n_top,
						.top_logprobs = b->top_logprobs + (size_t)k * b->n_top};
	}
	assert(at == 0);
}

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "beam: broken: %s\n", what);
	abort();
}

void beam_check(const struct beam *b)
{
	uint32_t *refs = calloc(b->n_nodes + 1, sizeof *refs), n_free = 0, n_offered = 0;
	check(refs != NULL, "memory for the check");
	for (uint32_t i = b->free_node; i != NIL; i = b->nodes[i].before, n_free++)
		check(b->nodes[i].refs == 0 && n_free < b->n_nodes, "a free token with references");
	for (uint32_t i = 0; i < b->n_nodes; i++)
		if (b->nodes[i].refs && b->nodes[i].before != NIL)
			refs[b->nodes[i].before]++;
	for (uint32_t r = 0; r < b->n_lives; r++) {
		check(b->rank[b->lives[r].place] == r, "the rank at a place");
		n_offered += b->offered[b->lives[r].place];
		if (b->lives[r].node != NIL)
			refs[b->lives[r].node]++;
	}
	for (uint32_t i = 0; i < b->n_done; i++) {
		refs[b->done[i].node]++;
		check(i == 0 || b->done[i - 1].score >= b->done[i].score, "the order of finished hypotheses");
	}
	for (uint32_t i = 0; i < b->n_nodes; i++)
		check(refs[i] == b->nodes[i].refs, "a token's references");
	check(n_offered == b->n_offered, "the count of hypotheses with candidates");
	free(refs);
}
