/* mask.c - finds the tokens that a state allows.
 * A token is allowed if its bytes lead from the state to another. Most of the vocabulary is decided without
 * a walk: if an expression allows any n characters of a slice (of a JSON string, say), all tokens of the
 * slice with at most n characters are allowed at once. The rest is found by walking the tries. If counters
 * of a state exceed the longest token (40 more characters may follow, or 4,000), its mask is that of the
 * state with those counters cut. */
#include "grammar/grammar_impl.h"
#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Limit, in units of exprs_work(), on all searches for runs from successors of the mask's state. Subtrees
 * smaller than SUBTREE_MIN nodes are walked without a search. */
enum { RUN_WORK_BEHIND = 12000, SUBTREE_MIN = 16 };
enum { NODES_OF_UNIT = 8 }; /* trie nodes per unit of work */

void mask_fini(struct grammar *g)
{
	pages_free(g->masks, g->cap_masks, sizeof *g->masks);
	free(g->slots);
	free(g->path);
	free(g->pairs);
	free(g->none);
}

void mask_reset(struct grammar *g)
{
	g->n_slots = g->hand = 0;
}

void mask_init(struct grammar *g, size_t bytes)
{
	size_t each = g->v->n_words * sizeof *g->masks + sizeof *g->slots;
	g->max_slots = (uint32_t)(bytes / each < 8 ? 8 : bytes / each > 1 << 20 ? 1 << 20 : bytes / each);
	g->path = xcalloc(g->v->max_bytes + 1, sizeof *g->path);
	g->pairs = mask_pairs_new();
	g->none = xcalloc(g->v->n_words + 1, sizeof *g->none);
}

static inline void allow(const struct lexicon *v, uint32_t token, uint32_t *mask)
{
	for (; token != LEXICON_NO_TOKEN; token = v->same[token])
		mask[token >> 5] |= (uint32_t)1 << (token & 31);
}

/* Return true if state allows all tokens of a slice's trie. */
static bool allows_group(struct grammar *g, uint32_t state, const struct lexicon_group *group)
{
	const struct state *s = &g->m->states[state];
	if (!s->run[group->class] && exprs_work(g->m->x) >= g->run_end)
		return false;
	const uint32_t run =
		s->run[group->class] ? s->run[group->class] - 1u : mask_run(g, state, (int)group->class);
	return run >= group->max_chars;
}

/* Allow the tokens of one trie that can follow state. */
static void walk(struct grammar *g, uint32_t state, const struct lexicon_group *group, uint32_t *mask)
{
	const bool slice = (int)group->class < N_LEXICON_SLICES;
	const struct lexicon_node *nodes = g->v->nodes;
	struct machine *m = g->m;
	uint32_t *path = g->path;
	path[0] = state;
	for (uint32_t i = group->begin, visited = 0; i < group->end;) {
		const struct lexicon_node *n = &nodes[i];
		if (++visited % NODES_OF_UNIT == 0)
			exprs_spend(m->x, 1);
		uint32_t to = machine_step_class(m, path[n->depth - 1], m->classes[n->byte]);
		if (to == MACHINE_DEAD) {
			i = n->next;
			continue;
		}
		path[n->depth] = to;
		const uint32_t end =
			slice && n->next - i >= SUBTREE_MIN && allows_group(g, to, group) ? n->next : i + 1;
		for (; i < end; i++)
			if (nodes[i].token != LEXICON_NO_TOKEN)
				allow(g->v, nodes[i].token, mask);
	}
}

/* Add the tokens of all groups except the long ones. */
static void add_groups(struct grammar *g, uint32_t state, uint32_t *mask)
{
	const struct lexicon *v = g->v;
	uint32_t run[N_LEXICON_SLICES];
	g->run_own = true;
	/* Each slice contains the slices before it, so its run is no longer than theirs. */
	run[LEXICON_JSON] = mask_run(g, state, LEXICON_JSON);
	run[LEXICON_LOWER] =
		run[LEXICON_JSON] == RUN_INFINITE ? RUN_INFINITE : mask_run(g, state, LEXICON_LOWER);
	run[LEXICON_ALNUM] = run[LEXICON_LOWER] == run[LEXICON_JSON] ? run[LEXICON_JSON]
								     : mask_run(g, state, LEXICON_ALNUM);
	g->run_end = exprs_work(g->m->x) + RUN_WORK_BEHIND;
	g->run_own = false;
	for (int i = 0; i < v->n_groups; i++) {
		const struct lexicon_group *group = &v->groups[i], *next = group + 1;
		bool slice = (int)group->class < N_LEXICON_SLICES;
		if (group->class == LEXICON_LONG)
			continue;
		if (!slice || run[group->class] < group->max_chars)
			walk(g, state, group, mask);
		else if (i + 1 == v->n_groups || next->class != group->class ||
			 run[group->class] < next->max_chars)
			/* The last group allowed as a whole includes the bits of the earlier ones. */
			for (uint32_t w = 0; w < v->n_words; w++)
				mask[w] |= group->bits[w];
	}
}

/* Choose a slot by the clock algorithm.  keep: a slot that must stay, or UINT32_MAX. */
static uint32_t slot_new(struct grammar *g, uint32_t state, uint32_t keep)
{
	size_t words = g->v->n_words;
	uint32_t slot;
	if (g->n_slots < g->max_slots) {
		slot = g->n_slots++;
		array_grow(g->slots, g->cap_slots, g->n_slots);
		pages_grow(g->masks, g->cap_masks, g->n_slots * words + 1);
	} else {
		while (g->slots[g->hand].used || g->hand == keep) {
			g->slots[g->hand].used = false;
			g->hand = (g->hand + 1) % g->max_slots;
		}
		slot = g->hand;
		g->hand = (g->hand + 1) % g->max_slots;
		g->m->states[g->slots[slot].state].mask = UINT32_MAX;
	}
	g->slots[slot] = (struct mask_slot){state, true};
	g->m->states[state].mask = slot;
	memset(g->masks + slot * words, 0, words * sizeof *g->masks);
	return slot;
}

/* Discard the slot: its mask is incomplete. */
static void slot_drop(struct grammar *g, uint32_t slot)
{
	g->m->states[g->slots[slot].state].mask = UINT32_MAX;
	g->slots[slot] = (struct mask_slot){.state = MACHINE_DEAD};
}

/* Return the slot with the mask of state; UINT32_MAX: see machine_error(). */
static uint32_t slot_of(struct grammar *g, uint32_t state)
{
	uint32_t slot = g->m->states[state].mask;
	const struct lexicon *v = g->v;
	if (slot != UINT32_MAX) {
		g->slots[slot].used = true;
		return slot;
	}
	g->n_made++;
	uint32_t same = machine_clamp(g->m, state, LEXICON_LONG_BYTES), from = UINT32_MAX;
	if (same != MACHINE_DEAD && same != state)
		from = slot_of(g, same);
	if (machine_error(g->m))
		return UINT32_MAX;
	slot = slot_new(g, state, from);
	uint32_t *mask = g->masks + (size_t)slot * v->n_words;
	if (from != UINT32_MAX)
		memcpy(mask, g->masks + (size_t)from * v->n_words, v->n_words * sizeof *mask);
	if (from != UINT32_MAX && machine_clamp_is_far(g->m, state, LEXICON_LONG_BYTES, v->max_bytes))
		return slot;
	if (from != UINT32_MAX) {
		/* The cut state may allow long tokens that state does not. */
		for (int i = 0; i < v->n_groups; i++)
			for (uint32_t n = v->groups[i].begin;
			     v->groups[i].class == LEXICON_LONG && n < v->groups[i].end; n++)
				for (uint32_t t = v->nodes[n].token; t != LEXICON_NO_TOKEN; t = v->same[t])
					mask[t >> 5] &= ~((uint32_t)1 << (t & 31));
	} else {
		add_groups(g, state, mask);
		for (uint32_t i = 0; i < v->n_ends && machine_accepts(g->m, state); i++)
			mask[v->ends[i] >> 5] |= (uint32_t)1 << (v->ends[i] & 31);
	}
	for (int i = 0; i < v->n_groups; i++)
		if (v->groups[i].class == LEXICON_LONG)
			walk(g, state, &v->groups[i], mask);
	if (!machine_error(g->m))
		return slot;
	slot_drop(g, slot);
	return UINT32_MAX;
}

int mask_of_state(struct grammar *g, uint32_t state, const uint32_t **mask)
{
	g->n_masks++;
	assert(state != MACHINE_DEAD);
	uint32_t slot = slot_of(g, state);
	if (machine_error(g->m))
		return machine_error(g->m);
	*mask = g->masks + (size_t)slot * g->v->n_words;
	return 0;
}
