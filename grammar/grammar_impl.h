/* grammar_impl.h - a grammar with its caches, for grammar.c, mask.c and matcher.c. */
#ifndef QUERN_GRAMMAR_GRAMMAR_IMPL_H
#define QUERN_GRAMMAR_GRAMMAR_IMPL_H

#include "grammar/grammar.h"
#include "grammar/machine_impl.h"

struct mask_slot {
	uint32_t state; /* MACHINE_DEAD: free */
	bool used;      /* since the clock hand last passed */
};

enum { RUN_INFINITE = 254 }; /* a run + 1 must fit a byte of expr_memo and of states */

struct grammar {
	struct machine *m;
	const struct lexicon *v; /* NULL: the grammar reads bytes only */
	int64_t budget;          /* tokens; -1: none (ast_budget()) */
	/* [slice]: the expression for any number of the slice's characters */
	uint32_t slices[N_LEXICON_SLICES];

	uint32_t *masks; /* [n_slots][n_words] */
	size_t cap_masks;
	struct mask_slot *slots;
	uint32_t n_slots, cap_slots, max_slots, hand;
	struct pairs *pairs; /* scratch of the search for a run */
	bool run_own;        /* also search runs of the mask's own state, which may cost more */
	uint64_t run_end;    /* value of exprs_work() at which searches for the current mask stop */
	uint32_t *none;      /* [n_words], zero */
	uint32_t *path;      /* [max_bytes + 1]: the state of each depth of a trie */

	uint64_t n_masks, n_made, n_resets;
};

/* mask.c: set *mask to the mask of a state. Return 0; -ENOMEM: reset, and try again; -EAGAIN: the work limit
 * is reached. */
int mask_of_state(struct grammar *g, uint32_t state, const uint32_t **mask);
void mask_reset(struct grammar *g);
void mask_init(struct grammar *g, size_t bytes);
void mask_fini(struct grammar *g);

/* mask_run.c: return how many arbitrary characters of the slice may follow the state, as far as run_own lets
 * them be searched; cached in state.run. */
struct pairs *mask_pairs_new(void);
uint32_t mask_run(struct grammar *g, uint32_t state, int slice);

#endif
