/* compile.h - a tree (ast.h) as expressions (expr.h): rules that are not recursive are put in their place,
 * one rule of each circle stays a call. */
#ifndef QUERN_GRAMMAR_COMPILE_H
#define QUERN_GRAMMAR_COMPILE_H

#include "grammar/ast.h"
#include "grammar/expr.h"

struct compiled {
	uint32_t start;
	uint32_t *bodies; /* owned: what call i stands for */
	uint32_t n_bodies, cap_bodies;
};

/* Adds the grammar to x, without sealing it.  0; -E2BIG; -EINVAL: no text matches, or an intersection or
 * complement holds a recursive rule. */
int compile_ast(const struct ast *a, struct exprs *x, struct compiled *out, char *why, size_t why_n);
void compiled_fini(struct compiled *c);

/* Rules from which some text can be derived: true in out[rule].  Linear. */
void ast_productive(const struct ast *a, bool *out);

#endif
