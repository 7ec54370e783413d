/* lex.h - a template's text as tokens. */
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
	T_OP, /* op: its characters, '*' * 256 + '*' for two */
};

struct jtoken {
	enum jtoken_type t;
	int op;
	uint32_t line;
	uint32_t n;
	const char *p; /* DATA, NAME, STRING: in the arena or the source */
	union {
		int64_t i;
		double d;
	};
};

#define JOP2(a, b) ((a) << 8 | (b))

/* All tokens of text, which must live as long as they do; the last is EOF.  Newlines become "\n". */
struct jtoken *jinja_lex(struct jctx *c, const char *text, size_t n, unsigned flags, size_t *n_tokens);

#endif
