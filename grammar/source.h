/* source.h - parses a grammar's text in any of the languages that clients use. */
#ifndef QUERN_GRAMMAR_SOURCE_H
#define QUERN_GRAMMAR_SOURCE_H

#include "base/err.h"
#include "grammar/ast.h"

/* Journals and plans store these numbers. */
enum grammar_language {
	GRAMMAR_REGEX,          /* the whole text matches (regex.h) */
	GRAMMAR_GBNF,           /* gbnf.h */
	GRAMMAR_LARK,           /* lark.h */
	GRAMMAR_CHOICE,         /* a JSON array of strings: one of them */
	GRAMMAR_SCHEMA,         /* schema/schema.h, with its default options */
	GRAMMAR_COMPOSITE,      /* composite.h: a JSON document that combines the others */
	GRAMMAR_SCHEMA_BOUNDED, /* schema/schema.h, bounded */
	GRAMMAR_N_LANGUAGES
};

enum { GRAMMAR_SOURCE_MAX = 16 << 20 };

/* Parse text to a tree with its start set. Return 0; or -EINVAL, -E2BIG, -ENOTSUP, -EAGAIN (the account of
 * the limits is used up) with the reason, and *out is NULL. */
int grammar_parse(enum grammar_language language, const char *text, size_t n, const struct ast_limits *limits,
		  struct ast **out, struct why *why);

#endif
