/* lex.h - splits a template's text into tokens. */
#ifndef QUERN_CONTROLLER_JINJA_LEX_H
#define QUERN_CONTROLLER_JINJA_LEX_H

#include "controller/jinja/arena.h"

enum jtoken_type {
	T_EOF,
	T_DATA,
	T_VAR_BEGIN,
	T_VAR_END,
	T_BLOCK_BEGIN,
	T_BLOCK_END,
	T_NAME,
	T_STRING,
	T_INT,
	T_FLOAT,
	T_OP, /* op: its character; for two, '*' * 256 + '*' */
};

struct jtoken {
	enum jtoken_type t;
	int op;
	uint32_t line;
	uint32_t n;
	const char *p; /* DATA, NAME, STRING: points into the arena or the source */
	union {
		int64_t i;
		double d;
	};
};

#define JOP2(a, b) ((a) << 8 | (b))

/* Return all tokens of text, which must outlive them; the last is EOF.  Newlines become "\n". */
struct jtoken *jinja_lex(struct jctx *c, const char *text, size_t n, unsigned flags, size_t *n_tokens);

#endif
