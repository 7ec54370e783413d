/* pretok.h - splits a text into words as the file's pre_tokenizer says; merges never cross words. */
#ifndef QUERN_CONTROLLER_TOKENIZER_PRETOK_H
#define QUERN_CONTROLLER_TOKENIZER_PRETOK_H

#include "base/buf.h"
#include "base/err.h"
#include "controller/tokenizer/splitter.h"

#include <stdbool.h>
#include <stddef.h>

enum pretok_kind {
	PRETOK_SPLIT,
	PRETOK_PREFIX,    /* prepend `text` to a word that does not begin with it */
	PRETOK_METASPACE, /* replace spaces by `text`; then as PREFIX, depending on scheme */
};

enum pretok_behavior {
	SPLIT_REMOVED,
	SPLIT_ISOLATED,
	SPLIT_MERGED_WITH_PREVIOUS,
	SPLIT_MERGED_WITH_NEXT,
	SPLIT_CONTIGUOUS,
};

enum pretok_scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

struct pretok_op {
	enum pretok_kind kind;
	enum pretok_behavior behavior;
	bool invert;
	struct splitter splitter;
	char *text; /* owned */
	enum pretok_scheme scheme;
};

enum { PRETOK_OPS_MAX = 16 };

struct pretok {
	struct pretok_op ops[PRETOK_OPS_MAX];
	int n;
	bool byte_level; /* the model's symbols are bytes, not characters */
};

void pretok_fini(struct pretok *pt);

/* Called with each word, never an empty one. */
typedef void (*pretok_word)(void *ctx, const char *word, size_t n);

struct pretok_run {
	const struct pretok *pt;
	pretok_word word;
	void *ctx;
	struct splitter_match match[PRETOK_OPS_MAX];
	struct why *why;
};

/* first: the text is at the beginning of the whole input. */
int pretok_run(struct pretok_run *r, const char *text, size_t n, bool first);
void pretok_run_fini(struct pretok_run *r);

#endif
