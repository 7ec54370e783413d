/* rule_names.h - rules of a grammar's text by their names; named before or after they are defined. */
#ifndef QUERN_GRAMMAR_RULE_NAMES_H
#define QUERN_GRAMMAR_RULE_NAMES_H

#include "grammar/ast.h"

/* Zeroed is empty. */
struct rule_names {
	int *table; /* owned: rule + 1, by the hash of its name */
	size_t n, cap;
};

void rule_names_fini(struct rule_names *r);
/* The rule of the name p[0..n); made if it is not there.  AST_FAILED with the reason in a. */
int rule_names_get(struct rule_names *r, struct ast *a, const char *p, size_t n);
/* -1: it is not there. */
int rule_names_find(const struct rule_names *r, const struct ast *a, const char *p, size_t n);

#endif
