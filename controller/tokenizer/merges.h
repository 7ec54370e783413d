/* merges.h - reads the merges of byte pair encoding, in the order of their ranks. */
#ifndef QUERN_CONTROLLER_TOKENIZER_MERGES_H
#define QUERN_CONTROLLER_TOKENIZER_MERGES_H

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

/* Two pieces as the file spells them.  -EINVAL: one, or both together, is not in the vocabulary. */
int merges_push(const struct vocab *v, struct merges *ms, const char *l, size_t l_n, const char *r,
		size_t r_n, char *why, size_t why_n);
/* "left right", or a line "#version..." that is ignored. */
int merges_push_line(const struct vocab *v, struct merges *ms, const char *p, size_t n, char *why,
		     size_t why_n);
/* Hands all to b, which is initialised, and frees ms.  rc: of the reading so far; then b has none of them.
 * -EINVAL: a pair twice. */
int merges_finish(struct merges *ms, struct bpe *b, int rc, char *why, size_t why_n);

#endif
