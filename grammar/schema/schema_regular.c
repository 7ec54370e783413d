/* schema_regular.c - decides for regular nodes whether any text matches, and whether a given text does. A
 * node is copied to its own tree and compiled; results are cached. */
#include "grammar/compile.h"
#include "grammar/expr.h"
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Memory limit of one query: names and values are short, so a pattern that needs more has exploded. */
enum { QUESTION_BYTES = 6 << 20 };
/* Units of work (grammar/work.h): for a query's own memory, and per copied node. */
enum { QUESTION_WORK = 400, COPY_WORK = 2 };

struct regular {
	struct exprs *x;
	uint32_t start;
	int empty; /* -1: not computed; -E2BIG, -EAGAIN: a limit was reached, so the answer is unknown */
};

static int copy(const struct ast *from, int node, struct ast *to)
{
	size_t bytes;
	int64_t min, max;
	const void *p;
	if (node == AST_FAILED)
		return AST_FAILED; /* a rule was not made because a bound of the tree was exceeded */
	ast_charge(to, COPY_WORK);
	const enum ast_kind kind = ast_kind(from, node);
	const int n = ast_n_kids(from, node);
	switch (kind) {
	case AST_NEVER:
		return ast_never(to);
	case AST_EMPTY:
		return ast_empty(to);
	case AST_LITERAL:
		p = ast_bytes(from, node, &bytes);
		return ast_literal(to, p, bytes);
	case AST_SET:
		return ast_set(to, ast_set_of(from, node));
	case AST_CHARS:
		p = ast_ranges(from, node, &bytes);
		return ast_chars(to, p, bytes, false);
	case AST_REF:
		return copy(from, ast_rule_body(from, ast_rule_of(from, node)), to);
	default:
		break;
	}
	int *kids = xcalloc((size_t)n + 1, sizeof *kids), made = 0;
	for (int i = 0; i < n && made != AST_FAILED; i++)
		made = kids[i] = copy(from, ast_kid(from, node, i), to);
	if (made != AST_FAILED && kind == AST_REPEAT)
		ast_bounds(from, node, &min, &max);
	if (made != AST_FAILED)
		made = kind == AST_SEQ      ? ast_seq(to, kids, (size_t)n)
		       : kind == AST_ALT    ? ast_alt(to, kids, (size_t)n)
		       : kind == AST_REPEAT ? ast_repeat(to, kids[0], min, max)
		       : kind == AST_AND    ? ast_and(to, kids[0], kids[1])
					    : ast_not(to, kids[0]);
	free(kids);
	return made;
}

static struct regular *regular_of(struct schema *s, int node)
{
	struct regular *r = map_get(&s->regulars, (uint64_t)node + 1);
	struct compiled c = {0};
	struct why why;
	if (r)
		return r;
	r = schema_alloc(s, sizeof *r);
	r->empty = -1;
	r->x = exprs_new(QUESTION_BYTES);
	exprs_allow(r->x, (struct grammar_work){.account = ast_account(s->ast)});
	map_put(&s->regulars, (uint64_t)node + 1, r);
	struct ast *t = ast_new(&(struct ast_limits){.account = ast_account(s->ast)});
	ast_charge(t, QUESTION_WORK);
	ast_start(t, copy(s->ast, node, t));
	int rc = ast_check(t, &why);
	if (!rc)
		rc = compile_ast(t, r->x, &c, &why);
	if (rc) {
		r->empty = rc == -E2BIG || rc == -EAGAIN ? rc : 1;
	} else {
		r->start = c.start;
		exprs_seal(r->x);
	}
	compiled_fini(&c);
	ast_free(t);
	return r;
}

static int too_large(struct schema *s)
{
	if (grammar_is_spent(ast_account(s->ast)))
		return schema_error(s, -EAGAIN, NULL, "a pattern, or a list of values, takes too much work");
	return schema_error(s, -E2BIG, NULL, "a pattern, or a list of values, takes more than %d bytes",
			    QUESTION_BYTES);
}

int regular_is_empty(struct schema *s, int node)
{
	if (node == AST_FAILED)
		return s->err ? s->err : -EINVAL;
	struct regular *r = regular_of(s, node);
	if (r->empty < -1)
		return too_large(s);
	/* unknown counts as not empty */
	if (r->empty < 0)
		r->empty = !expr_alive(r->x, r->start) && !exprs_error(r->x);
	return exprs_error(r->x) == -EAGAIN ? too_large(s) : r->empty;
}

int regular_accepts(struct schema *s, int node, const char *p, size_t n)
{
	if (node == AST_FAILED)
		return s->err ? s->err : -EINVAL;
	struct regular *r = regular_of(s, node);
	if (r->empty < -1)
		return too_large(s);
	if (r->empty == 1)
		return 0;
	uint32_t e = r->start;
	for (size_t i = 0; i < n && e != EXPR_NEVER; i++)
		e = expr_next(r->x, e, exprs_classes(r->x)[(uint8_t)p[i]]);
	return exprs_error(r->x) ? too_large(s) : expr_nullable(r->x, e);
}

void regulars_fini(struct schema *s)
{
	for (size_t i = 0; i < s->regulars.cap; i++) {
		struct regular *r = s->regulars.slots[i].value;
		if (r)
			exprs_free(r->x);
	}
	map_fini(&s->regulars);
}
