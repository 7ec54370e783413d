/* scan.h - scanner shared by the parsers of GBNF and Lark.  Internal to grammar/. */
#ifndef QUERN_GRAMMAR_SCAN_H
#define QUERN_GRAMMAR_SCAN_H

#include "grammar/ast.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SCAN_DEPTH_MAX = 250,        /* nesting of groups */
	SCAN_COUNT_MAX = 1000000000, /* larger counts are read as this value */
};

struct scan {
	struct ast *a;
	const char *language;    /* named in errors */
	const char *comments[2]; /* prefixes of line comments; NULL: none */
	const char *p;
	size_t n, at;
	bool failed;
};

/* Set the grammar's error, with the line number.  Returns AST_FAILED. */
int scan_fail(struct scan *s, int err, const char *what);
/* Return the next byte, or -1 at the end. */
int scan_peek(const struct scan *s);
/* If text comes next, move past it and return true. */
bool scan_take(struct scan *s, const char *text);
/* Skip blanks and comments; with lines, line ends too. */
void scan_space(struct scan *s, bool lines);
/* Read exactly this many hexadecimal digits. Return false if there are fewer; the ones found are consumed. */
bool scan_hex(struct scan *s, int digits, uint32_t *out);
/* Read a decimal count.  Return false if there is none. */
bool scan_count(struct scan *s, int64_t *out);

/* Nodes collected for a sequence or for alternatives. */
struct scan_nodes {
	int *p; /* owned */
	size_t n, cap;
	bool failed; /* one of the nodes is AST_FAILED */
};
void scan_add(struct scan_nodes *l, int node);
/* Join the nodes by of (ast_seq or ast_alt) and free the list.  Return AST_FAILED if one of them failed. */
int scan_join(struct scan *s, struct scan_nodes *l, int (*of)(struct ast *a, const int *nodes, size_t n));

#endif
