/* merges.h - reads the merges of byte pair encoding, in rank order. */
#ifndef QUERN_CONTROLLER_TOKENIZER_MERGES_H
#define QUERN_CONTROLLER_TOKENIZER_MERGES_H

#include "base/err.h"
#include "controller/tokenizer/bpe.h"
#include "controller/tokenizer/vocab.h"

struct merge {
	uint32_t left, right, id;
};

struct merges {
	struct merge *p; /* [n] */
	uint32_t n, cap;
	struct buf both; /* scratch */
};

/* Add a merge of two pieces as the file spells them. -EINVAL: a piece, or their concatenation, is not
 * in the vocabulary. */
int merges_push(const struct vocab *v, struct merges *ms, const char *l, size_t l_n, const char *r,
		size_t r_n, struct why *why);
/* Add the merge of a line "left right"; a line "#version..." is ignored. */
int merges_push_line(const struct vocab *v, struct merges *ms, const char *p, size_t n, struct why *why);
/* Move all merges to b, which is initialized, and free ms. rc: the result of reading so far; if it is an
 * error, b gets none. -EINVAL: a duplicate pair. */
int merges_finish(struct merges *ms, struct bpe *b, int rc, struct why *why);

#endif
