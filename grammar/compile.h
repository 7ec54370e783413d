/* compile.h - compiles a tree (ast.h) to expressions (expr.h). Non-recursive rules are inlined; in each
 * cycle of rules one stays a call. */
#ifndef QUERN_GRAMMAR_COMPILE_H
#define QUERN_GRAMMAR_COMPILE_H

#include "base/err.h"
#include "grammar/ast.h"
#include "grammar/expr.h"

struct compiled {
	uint32_t start;
	uint32_t *bodies; /* owned; [i]: the body of the rule that call i enters */
	uint32_t n_bodies, cap_bodies;
};

/* Add the grammar to x without sealing it. Return 0; -E2BIG; -EAGAIN if the work limit is reached; -EINVAL
 * if no text matches, or if an intersection or complement holds a recursive rule. */
int compile_ast(const struct ast *a, struct exprs *x, struct compiled *out, struct why *why);
void compiled_fini(struct compiled *c);

/* Set out[rule] to true for each rule that derives some text.  Linear time. */
void ast_productive(const struct ast *a, bool *out);

#endif
