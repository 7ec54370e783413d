/* grammar_impl.h - a grammar with its caches, for grammar.c, mask.c and matcher.c. */
#ifndef QUERN_GRAMMAR_GRAMMAR_IMPL_H
#define QUERN_GRAMMAR_GRAMMAR_IMPL_H

#include "grammar/grammar.h"
#include "grammar/machine_impl.h"

struct mask_slot {
	uint32_t state; /* MACHINE_DEAD: free */
	bool used;      /* since the clock's hand last passed */
};

enum { RUN_INFINITE = 254 }; /* a run + 1 is a byte, of expr_memo and of states */

struct grammar {
	struct machine *m;
	const struct lexicon *v;           /* NULL: bytes only */
	int64_t budget;                    /* tokens; -1: none (ast_budget()) */
	uint32_t slices[N_LEXICON_SLICES]; /* expressions: any number of the slice's characters */

	uint32_t *masks; /* [n_slots][n_words] */
	size_t cap_masks;
	struct mask_slot *slots;
	uint32_t n_slots, cap_slots, max_slots, hand;
	struct pairs *pairs; /* of the search for a run */
	bool run_own;        /* runs of the mask's own state are looked for, which may cost more */
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

/* mask_run.c: characters of the slice that may follow the state, whatever they are, as far as run_own lets
 * them be found; kept in state.run. */
struct pairs *mask_pairs_new(void);
uint32_t mask_run(struct grammar *g, uint32_t state, int slice);

#endif
