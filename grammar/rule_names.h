/* rule_names.h - finds rules of a grammar's text by name; a name may be used before its definition. */
#ifndef QUERN_GRAMMAR_RULE_NAMES_H
#define QUERN_GRAMMAR_RULE_NAMES_H

#include "grammar/ast.h"

/* A zeroed struct is empty. */
struct rule_names {
	int *table; /* owned: rule + 1, by hash of the name */
	size_t n, cap;
};

void rule_names_fini(struct rule_names *r);
/* Return the rule named p[0..n), made on first use.  AST_FAILED with the reason in a. */
int rule_names_get(struct rule_names *r, struct ast *a, const char *p, size_t n);
/* Return the rule, or -1 if there is none. */
int rule_names_find(const struct rule_names *r, const struct ast *a, const char *p, size_t n);

#endif
