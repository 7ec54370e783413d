/* scan.h - reading a grammar's text: what the parsers of GBNF and of Lark share.  Internal to grammar/. */
#ifndef QUERN_GRAMMAR_SCAN_H
#define QUERN_GRAMMAR_SCAN_H

#include "grammar/ast.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SCAN_DEPTH_MAX = 250,        /* of groups */
	SCAN_COUNT_MAX = 1000000000, /* larger counts are read as this */
};

struct scan {
	struct ast *a;
	const char *language; /* of errors */
	const char *comment;  /* how one begins, up to the line's end */
	const char *p;
	size_t n, at;
	bool failed;
};

/* Sets the error of the grammar, with the line; AST_FAILED. */
int scan_fail(struct scan *s, int err, const char *what);
/* The next byte; -1: the end. */
int scan_peek(const struct scan *s);
/* Moves behind text if it comes next. */
bool scan_take(struct scan *s, const char *text);
/* Moves behind space and comments; lines: behind ends of lines, too. */
void scan_space(struct scan *s, bool lines);
/* Behind exactly so many hexadecimal digits.  False: there are fewer; those have been read. */
bool scan_hex(struct scan *s, int digits, uint32_t *out);
/* A count in decimal digits.  False: there is none. */
bool scan_count(struct scan *s, int64_t *out);

/* Nodes that are collected for a sequence or for alternatives. */
struct scan_nodes {
	int *p; /* owned */
	size_t n, cap;
	bool failed; /* one of them is AST_FAILED */
};
void scan_add(struct scan_nodes *l, int node);
/* of: ast_seq or ast_alt.  Frees the list; AST_FAILED where one of its nodes is. */
int scan_join(struct scan *s, struct scan_nodes *l, int (*of)(struct ast *a, const int *nodes, size_t n));

#endif
