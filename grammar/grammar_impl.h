/* grammar_impl.h - a grammar with its caches, for grammar.c, mask.c and matcher.c. */
#ifndef QUERN_GRAMMAR_GRAMMAR_IMPL_H
#define QUERN_GRAMMAR_GRAMMAR_IMPL_H

#include "grammar/grammar.h"
#include "grammar/machine_impl.h"

struct mask_slot {
	uint32_t state; /* MACHINE_DEAD: free */
	bool used;      /* since the clock's hand last passed */
};

/* How many characters of a slice may follow an expression, whatever they are. */
struct run {
	uint32_t e;                      /* EXPR_NEVER: free */
	uint8_t chars[N_LEXICON_SLICES]; /* + 1; 0: not known */
	bool cut[N_LEXICON_SLICES];      /* by what the search might cost: */
	uint32_t each;
};

enum { RUN_INFINITE = 254 }; /* a run + 1 is a byte */

struct grammar {
	struct machine *m;
	const struct lexicon *v;           /* NULL: bytes only */
	int64_t budget;                    /* tokens; -1: none (ast_budget()) */
	uint32_t slices[N_LEXICON_SLICES]; /* expressions: any number of the slice's characters */

	uint32_t *masks; /* [n_slots][n_words] */
	struct mask_slot *slots;
	uint32_t n_slots, cap_slots, max_slots, hand;
	struct run *runs; /* hash table by e */
	uint32_t n_runs, cap_runs;
	struct pairs *pairs; /* of the search for a run */
	uint32_t run_each;   /* what one search for a run may cost, as exprs_work() counts */
	uint64_t run_end;    /* of exprs_work(): no more searches for the mask under way */
	uint32_t *none;      /* [n_words], zero */
	uint32_t *path;      /* [max_bytes + 1]: the state of each depth of a trie */

	uint64_t n_masks, n_made, n_resets;
};

/* mask.c: the mask of a state.  0; -ENOMEM: reset, and try again. */
int mask_of_state(struct grammar *g, uint32_t state, const uint32_t **mask);
void mask_reset(struct grammar *g);
void mask_init(struct grammar *g, size_t bytes);
void mask_fini(struct grammar *g);

/* mask_run.c: characters of the slice that may follow the state, whatever they are, as far as run_each lets
 * them be found; kept in state.run. */
struct pairs *mask_pairs_new(void);
uint32_t mask_run(struct grammar *g, uint32_t state, int slice);

#endif
