/* normalize.h - normalizes a text before it is split: Unicode normalization forms (UAX #15), prepending,
 * replacing.
 *
 * The reference (Hugging Face's tokenizers 0.23) has the tables of Unicode 9: there, characters assigned
 * later neither reorder nor compose nor decompose. This file does the same. */
#ifndef QUERN_CONTROLLER_TOKENIZER_NORMALIZE_H
#define QUERN_CONTROLLER_TOKENIZER_NORMALIZE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum norm_kind { NORM_NFC, NORM_NFD, NORM_NFKC, NORM_NFKD, NORM_PREPEND, NORM_REPLACE };

struct norm_op {
	enum norm_kind kind;
	char *from; /* replace: the text to find; owned */
	char *to;   /* replace: its replacement; prepend: the prefix; owned */
};

enum { NORM_OPS_MAX = 16 };

struct norm {
	struct norm_op ops[NORM_OPS_MAX];
	int n;
};

/* State of a normalization; zero-initialized, reused for each text. */
struct norm_text {
	const char *p; /* the result: the input itself, or one of the buffers */
	size_t n;
	size_t *origin; /* [n] origin of each byte, if requested; NULL if the text is unchanged */
	/* scratch memory */
	struct buf out[2];
	size_t *origins[2];
	size_t origins_cap[2];
	uint32_t *cps;
	size_t n_cps;
	size_t cps_cap;
};

void norm_fini(struct norm *nm);

/* Normalize valid UTF-8. With origins, t->origin holds for each byte of the result the offset in p of the
 * character (or block of characters) from which it was made; ascending. */
void norm_run(const struct norm *nm, const char *p, size_t n, bool origins, struct norm_text *t);
void norm_text_fini(struct norm_text *t);

/* Return true if the character is newer than Unicode 9; such characters are left unchanged. */
bool norm_is_newer(uint32_t cp);

#endif
