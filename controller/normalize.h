/* normalize.h - what a tokenizer does to a text before it splits it: Unicode normalization
 * forms (UAX #15), prepending, replacing.
 *
 * The tables of the reference (Hugging Face's tokenizers 0.23) are Unicode 9's: characters
 * assigned later neither reorder nor compose nor decompose there, hence not here. */
#ifndef QUERN_CONTROLLER_NORMALIZE_H
#define QUERN_CONTROLLER_NORMALIZE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum norm_kind { NORM_NFC, NORM_NFD, NORM_NFKC, NORM_NFKD, NORM_PREPEND, NORM_REPLACE };

struct norm_op {
	enum norm_kind kind;
	char *from; /* replace: what; owned */
	char *to;   /* replace: with what; prepend: what; owned */
};

enum { NORM_OPS_MAX = 16 };

struct norm {
	struct norm_op ops[NORM_OPS_MAX];
	int n;
};

/* A text on its way through; zero-initialised, and kept from one text to the next. */
struct norm_text {
	const char *p; /* the result: the text given, or in one of the buffers */
	size_t n;
	size_t *origin; /* [n] where each byte came from, when asked for; NULL when unchanged */
	/* working memory */
	struct buf out[2];
	size_t *origins[2];
	size_t origins_cap[2];
	uint32_t *cps;
	size_t n_cps;
	size_t cps_cap;
};

void norm_fini(struct norm *nm);

/* Normalize valid UTF-8.  With origins, t->origin tells, for every byte of the result, the
 * offset in p of the character (or block of characters) it was made from; ascending. */
void norm_run(const struct norm *nm, const char *p, size_t n, bool origins, struct norm_text *t);
void norm_text_fini(struct norm_text *t);

/* Is this one of the characters that are left alone because they are newer? */
bool norm_is_newer(uint32_t cp);

#endif
