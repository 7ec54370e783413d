/* grammar.h - masks of allowed tokens: a grammar, compiled for a vocabulary, and matchers that follow texts.
 *
 *     struct lexicon *v;  lexicon_new(tokens, n, &v, why, n);            once per model (lexicon.h)
 *     struct grammar *g; grammar_new(ast, v, NULL, &g, why, n);      once per grammar
 *     struct matcher *m = matcher_new(g);                            once per sequence
 *     for (;;) {
 *             const uint32_t *mask;
 *             matcher_mask(m, &mask);                                bit t: token t may follow
 *             matcher_accept(m, sampled);                            the end token ends it
 *     }
 *
 * The mask depends on the grammar, the vocabulary and the bytes that were accepted, never on what else was
 * asked: a matcher made again from the same tokens gives the same masks.  States and masks are caches, filled
 * as texts reach them and bounded in bytes; where a bound is met they are emptied and the text is followed
 * again. A grammar and its matchers belong to one thread; a vocabulary to all. */
#ifndef QUERN_GRAMMAR_GRAMMAR_H
#define QUERN_GRAMMAR_GRAMMAR_H

#include "grammar/ast.h"
#include "grammar/lexicon.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Changes when a grammar may come to allow other tokens: part of the numerics class. */
enum { GRAMMAR_VERSION = 2 };

struct grammar;
struct matcher;

struct grammar_limits {
	size_t state_bytes; /* expressions, states, rows; 0: 128 MiB */
	size_t mask_bytes;  /* kept masks; 0: 16 MiB */
	int depth;          /* of nested recursive rules; 0: 1,000 */
};

struct grammar_counts {
	size_t n_states, n_exprs, bytes; /* now */
	uint64_t n_masks, n_made;        /* asked for; of these, not found in the cache */
	uint64_t n_resets;               /* caches emptied for want of memory */
};

/* v is borrowed, or NULL for a grammar that reads bytes only.  0; -EINVAL, -E2BIG with the reason. */
int grammar_new(const struct ast *a, const struct lexicon *v, const struct grammar_limits *limits,
		struct grammar **out, char *why, size_t why_n);
void grammar_free(struct grammar *g); /* NULL is fine; after its matchers */
void grammar_counts(const struct grammar *g, struct grammar_counts *out);

struct matcher *matcher_new(struct grammar *g); /* at the beginning of a text */
struct matcher *matcher_copy(const struct matcher *m);
void matcher_free(struct matcher *m); /* NULL is fine */
size_t matcher_memory(const struct matcher *m);

/* A call that accepts bytes or a token counts as one token for ast_budget().
 * 0; -EINVAL: the grammar does not allow it here; -E2BIG: a bound of the grammar's states (nesting,
 * positions, memory) is met.  The matcher is unchanged after an error. */
int matcher_accept(struct matcher *m, uint32_t token);
/* The same for bytes, as far as they go: *used of them (NULL: all or nothing). */
int matcher_accept_bytes(struct matcher *m, const char *p, size_t n, size_t *used);
/* From the beginning again, through tokens[0..n). */
int matcher_rebuild(struct matcher *m, const uint32_t *tokens, size_t n);
/* Takes back the last n calls that accepted something; n <= matcher_length(). */
void matcher_rollback(struct matcher *m, size_t n);
size_t matcher_length(const struct matcher *m);     /* calls that accepted something */
const char *matcher_error(const struct matcher *m); /* why the last call failed with -E2BIG */

/* Whether the text may end here; whether an end token was accepted. */
int matcher_can_end(struct matcher *m, bool *out);
bool matcher_ended(const struct matcher *m);
/* *mask: n_words of the vocabulary, good until the next call with this grammar.  After the end token, and
 * where nothing is allowed, all zero.  0; -E2BIG. */
int matcher_mask(struct matcher *m, const uint32_t **mask);
/* The bytes that must follow: those that every text has from here, at most max.  Their number, or -E2BIG. */
int matcher_forced(struct matcher *m, char *out, size_t max);

#endif
