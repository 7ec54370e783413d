/* grammar.h - masks of allowed tokens: a grammar compiled for a vocabulary, and matchers that follow texts.
 *
 *     struct lexicon *v;  lexicon_new(tokens, n, &v, why, n);        once per model (lexicon.h)
 *     struct grammar *g; grammar_new(ast, v, NULL, &g, why, n);      once per grammar
 *     struct matcher *m = matcher_new(g);                            once per sequence
 *     for (;;) {
 *             const uint32_t *mask;
 *             matcher_mask(m, &mask);                                bit t: token t may follow
 *             matcher_accept(m, sampled);                            the end token ends the text
 *     }
 *
 * The mask depends only on the grammar, the vocabulary and the accepted bytes: a matcher rebuilt from the
 * same tokens gives the same masks. States and masks are caches, filled as texts reach them and bounded in
 * bytes. A full cache is emptied, and the text is followed again from its start. A grammar and its matchers
 * belong to one thread; threads may share a vocabulary. */
#ifndef QUERN_GRAMMAR_GRAMMAR_H
#define QUERN_GRAMMAR_GRAMMAR_H

#include "base/err.h"
#include "grammar/ast.h"
#include "grammar/lexicon.h"
#include "grammar/work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Raised when a grammar may come to allow other tokens; part of the numerics class. */
enum { GRAMMAR_VERSION = 2 };

struct grammar;
struct matcher;

struct grammar_limits {
	size_t state_bytes;       /* expressions, states, rows; 0: 128 MiB */
	size_t mask_bytes;        /* cached masks; 0: 16 MiB */
	int depth;                /* nesting of recursive rules; 0: 1,000 */
	struct grammar_work work; /* limit for compilation */
};

struct grammar_counts {
	size_t n_states, n_exprs, bytes; /* current numbers */
	uint64_t n_masks, n_made;        /* masks requested; those of them not found in the cache */
	uint64_t n_resets;               /* times the caches were emptied for lack of memory */
};

/* Compile a into *out. v is borrowed; NULL makes a grammar that reads bytes only. Return 0; -EINVAL, -E2BIG
 * with the reason; -EAGAIN if the work limit is reached. */
int grammar_new(const struct ast *a, const struct lexicon *v, const struct grammar_limits *limits,
		struct grammar **out, struct why *why);
void grammar_free(struct grammar *g); /* NULL is fine; free its matchers first */
void grammar_counts(const struct grammar *g, struct grammar_counts *out);
/* Limit the work of all operations of its matchers from now on; after grammar_new() there is no limit.
 * Beyond the limit they fail with -EAGAIN and stay unchanged; results found so far are kept, so a retry
 * costs less. */
void grammar_allow(struct grammar *g, struct grammar_work work);
/* Return the units of work done so far, walks of tries excluded. */
uint64_t grammar_work_done(const struct grammar *g);

struct matcher *matcher_new(struct grammar *g); /* at the beginning of a text */
struct matcher *matcher_copy(const struct matcher *m);
void matcher_free(struct matcher *m); /* NULL is fine */

/* Accept a token. Each accepting call, for a token or for bytes, counts as one token for ast_budget().
 * Return 0; -EINVAL if the grammar does not allow the token here; -E2BIG if a bound on the grammar's states
 * (nesting, positions, memory) is exceeded. The matcher is unchanged after an error. */
int matcher_accept(struct matcher *m, uint32_t token);
/* Accept as many of the bytes as the grammar allows and set *used to their number; used NULL: all or none. */
int matcher_accept_bytes(struct matcher *m, const char *p, size_t n, size_t *used);
/* Undo the last n calls that accepted something; n <= matcher_length(). */
void matcher_rollback(struct matcher *m, size_t n);
size_t matcher_length(const struct matcher *m);     /* number of calls that accepted something */
const char *matcher_error(const struct matcher *m); /* why the last call failed with -E2BIG */

/* matcher_can_end: set *out to true if the text may end here. matcher_ended: true if an end
 * token was accepted. */
int matcher_can_end(struct matcher *m, bool *out);
bool matcher_ended(const struct matcher *m);
/* Set *mask to the vocabulary's n_words words, valid until the next call with this grammar. All words are
 * zero after the end token and where nothing is allowed. Return 0; -E2BIG. */
int matcher_mask(struct matcher *m, const uint32_t **mask);
/* Write the bytes with which every continuation begins, at most max.  Return their number, or -E2BIG. */
int matcher_forced(struct matcher *m, char *out, size_t max);

#endif
