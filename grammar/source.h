/* source.h - a grammar's text in one of the languages that clients write. */
#ifndef QUERN_GRAMMAR_SOURCE_H
#define QUERN_GRAMMAR_SOURCE_H

#include "grammar/ast.h"

enum grammar_language {
	GRAMMAR_REGEX,  /* the whole text matches (regex.h) */
	GRAMMAR_GBNF,   /* gbnf.h */
	GRAMMAR_LARK,   /* lark.h */
	GRAMMAR_CHOICE, /* a JSON array of strings: one of them */
	GRAMMAR_SCHEMA, /* schema/schema.h, with its default options */
	GRAMMAR_FORM,   /* form_source.h: a JSON document that combines others */
};

enum { GRAMMAR_SOURCE_MAX = 16 << 20 };

/* A tree with its start.  0; -EINVAL, -E2BIG, -ENOTSUP with the reason, and *out is NULL. */
int grammar_parse(enum grammar_language language, const char *text, size_t n, const struct ast_limits *limits,
		  struct ast **out, char *why, size_t why_n);

#endif
