/* compile.c - compiles each rule after the rules that it names, node by node. */
#include "grammar/compile.h"
#include "grammar/utf8_set.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Depth at which an expression is cut by a call: derivation recurses to an expression's depth. An
 * intersection cannot hold calls and is refused instead. */
enum { DEPTH_CUT = 150 };
enum { SPINE_MAX = 500 }; /* elements of a sequence before it is divided into groups */
enum { NODE_WORK = 2 };   /* units of work (work.h) per node */

enum color { NEW, OPEN, CLOSED };

struct compiler {
	const struct ast *a;
	struct exprs *x;
	struct compiled *out;
	uint32_t *rule_expr; /* [rules]: the compiled body */
	uint32_t *rule_call; /* [rules]: the call that replaces the rule, + 1; 0: inlined */
	uint8_t *color;      /* [rules]: state of the depth-first walk */
	uint32_t *node_expr; /* [nodes]; EXPR_UNKNOWN: not compiled */
	uint32_t *stamp;     /* [nodes]: the last rule that walked the node, + 1 */
	bool *productive;
	int err;
	struct why *why;
};

static uint32_t compile_node(struct compiler *c, int node);
static uint32_t compile_part(struct compiler *c, int node);

static uint32_t fail(struct compiler *c, int err, const char *what)
{
	if (!c->err)
		c->err = err_why(c->why, err, "%s", what);
	return EXPR_NEVER;
}

static uint32_t new_call(struct compiler *c, uint32_t body)
{
	struct compiled *out = c->out;
	array_grow(out->bodies, out->cap_bodies, out->n_bodies + 1);
	out->bodies[out->n_bodies] = body;
	return out->n_bodies++;
}

/* Return the SEQ of e[0..n), right-associative; long ones in groups, so that no chain is long. */
static uint32_t seq_of(struct compiler *c, const uint32_t *e, size_t n)
{
	uint32_t all = EXPR_EMPTY;
	if (n > SPINE_MAX) {
		size_t n_groups = (n + SPINE_MAX - 1) / SPINE_MAX;
		uint32_t *groups = xcalloc(n_groups, sizeof *groups);
		for (size_t g = 0; g < n_groups; g++)
			groups[g] = seq_of(c, e + g * SPINE_MAX,
					   g + 1 < n_groups ? SPINE_MAX : n - g * SPINE_MAX);
		all = seq_of(c, groups, n_groups);
		free(groups);
		return all;
	}
	for (size_t i = n; i > 0; i--)
		all = expr_seq(c->x, e[i - 1], all);
	return all;
}

static uint32_t compile_seq(struct compiler *c, int node)
{
	size_t n = (size_t)ast_n_kids(c->a, node), m = 0;
	uint32_t *kids = xcalloc(n, sizeof *kids);
	struct buf text = {0};
	for (size_t i = 0; i < n; i++) {
		int kid = ast_kid(c->a, node, (int)i);
		bool literal = ast_kind(c->a, kid) == AST_LITERAL;
		if (literal) {
			size_t bytes;
			const char *p = ast_bytes(c->a, kid, &bytes);
			buf_put(&text, p, bytes);
		}
		if (text.len && (!literal || i + 1 == n)) {
			kids[m++] = expr_literal(c->x, text.p, text.len);
			buf_clear(&text);
		}
		if (!literal) {
			uint32_t e = compile_node(c, kid);
			/* At most one literal per later child: m never passes i. */
			kids[m++] = e;
		}
	}
	uint32_t e = seq_of(c, kids, m);
	buf_fini(&text);
	free(kids);
	return e;
}

static uint32_t compile_alt(struct compiler *c, int node)
{
	size_t n = (size_t)ast_n_kids(c->a, node);
	uint32_t *kids = xcalloc(n, sizeof *kids);
	for (size_t i = 0; i < n; i++)
		kids[i] = compile_node(c, ast_kid(c->a, node, (int)i));
	uint32_t e = expr_alt(c->x, kids, n);
	free(kids);
	return e;
}

static bool is_product(const struct compiler *c, int node)
{
	return ast_kind(c->a, node) == AST_AND || ast_kind(c->a, node) == AST_NOT;
}

/* Leave the check for emptiness to compile_node(), which makes it once for nested products. */
static uint32_t compile_product(struct compiler *c, int node)
{
	uint32_t x = compile_part(c, ast_kid(c->a, node, 0)), y = EXPR_NEVER;
	bool both = ast_kind(c->a, node) == AST_AND;
	int64_t counted = 0, max;
	if (both)
		y = compile_part(c, ast_kid(c->a, node, 1));
	if (expr_has_call(c->x, x) || (both && expr_has_call(c->x, y)))
		return fail(c, -EINVAL,
			    "an intersection or complement holds a recursive rule, or is nested too deep");
	if (both)
		ast_bounds(c->a, node, &counted, &max);
	return !both ? expr_not(c->x, x) : counted ? expr_and_counted(c->x, x, y) : expr_and(c->x, x, y);
}

/* The kids have the tree's order: separator, others, members. */
static uint32_t compile_unordered(struct compiler *c, int node)
{
	size_t n = (size_t)ast_n_kids(c->a, node);
	uint32_t *kids = xcalloc(n, sizeof *kids);
	int64_t n_required, max;
	for (size_t i = 0; i < n; i++)
		kids[i] = compile_node(c, ast_kid(c->a, node, (int)i));
	ast_bounds(c->a, node, &n_required, &max);
	uint32_t e = c->err ? EXPR_NEVER : expr_unordered(c->x, kids, n, (uint32_t)n_required);
	free(kids);
	return e;
}

static uint32_t compile_set(struct compiler *c, int node)
{
	uint64_t set[4] = {0};
	const uint8_t *bytes = ast_set_of(c->a, node);
	for (int b = 0; b < 256; b++)
		if (bytes[b / 8] >> b % 8 & 1)
			set[b >> 6] |= (uint64_t)1 << (b & 63);
	return expr_set(c->x, set);
}

static void check_bounds(struct compiler *c)
{
	const int rc = exprs_error(c->x);
	if (rc)
		fail(c, rc == -EAGAIN ? rc : -E2BIG,
		     rc == -ENOMEM   ? "the grammar takes too much memory"
		     : rc == -EAGAIN ? "the grammar takes too much work"
				     : "an intersection in the grammar has too many states");
}

static uint32_t compile_kind(struct compiler *c, int node)
{
	int64_t min, max;
	size_t n;
	switch (ast_kind(c->a, node)) {
	case AST_NEVER:
		return EXPR_NEVER;
	case AST_EMPTY:
		return EXPR_EMPTY;
	case AST_LITERAL: {
		const char *p = ast_bytes(c->a, node, &n);
		return expr_literal(c->x, p, n);
	}
	case AST_SET:
		return compile_set(c, node);
	case AST_CHARS: {
		const struct char_range *r = ast_ranges(c->a, node, &n);
		return utf8_set_expr(c->x, r, n);
	}
	case AST_SEQ:
		return compile_seq(c, node);
	case AST_ALT:
		return compile_alt(c, node);
	case AST_REPEAT:
		ast_bounds(c->a, node, &min, &max);
		return expr_repeat(c->x, compile_node(c, ast_kid(c->a, node, 0)), (uint32_t)min,
				   max < 0 ? EXPR_INFINITE : (uint32_t)max);
	case AST_AND:
	case AST_NOT:
		return compile_product(c, node);
	case AST_UNORDERED:
		return compile_unordered(c, node);
	case AST_REF: {
		int r = ast_rule_of(c->a, node);
		if (!c->productive[r])
			return EXPR_NEVER;
		return c->rule_call[r] ? expr_call(c->x, c->rule_call[r] - 1) : c->rule_expr[r];
	}
	}
	return EXPR_NEVER;
}

/* Compile an operand of a product, which may be empty without showing it. */
static uint32_t compile_part(struct compiler *c, int node)
{
	if (c->err || c->node_expr[node] != EXPR_UNKNOWN)
		return c->err ? EXPR_NEVER : c->node_expr[node];
	exprs_spend(c->x, NODE_WORK);
	uint32_t e = compile_kind(c, node);
	check_bounds(c);
	if (expr_depth(c->x, e) > DEPTH_CUT)
		e = expr_call(c->x, new_call(c, e));
	return c->node_expr[node] = e;
}

static uint32_t compile_node(struct compiler *c, int node)
{
	uint32_t e = compile_part(c, node);
	if (is_product(c, node) && !expr_alive(c->x, e)) {
		check_bounds(c);
		e = c->node_expr[node] = EXPR_NEVER;
	}
	return e;
}

/* A rule in progress in the depth-first walk, with the references of its body that remain to be followed. */
struct frame {
	int rule;
	size_t refs, n_refs; /* range in walk.refs */
};

struct walk {
	struct frame *frames;
	size_t n_frames, cap_frames;
	int *refs; /* rules */
	size_t n_refs, cap_refs;
	int *todo; /* nodes */
	size_t n_todo, cap_todo;
};

/* Append the rules referenced below node to w->refs. */
static void collect_refs(struct compiler *c, struct walk *w, int node, uint32_t stamp)
{
	array_grow(w->todo, w->cap_todo, 1);
	w->todo[0] = node;
	w->n_todo = 1;
	while (w->n_todo) {
		int at = w->todo[--w->n_todo];
		if (c->stamp[at] == stamp)
			continue;
		c->stamp[at] = stamp;
		exprs_spend(c->x, 1);
		if (ast_kind(c->a, at) == AST_REF) {
			array_grow(w->refs, w->cap_refs, w->n_refs + 1);
			w->refs[w->n_refs++] = ast_rule_of(c->a, at);
		}
		for (int i = 0; i < ast_n_kids(c->a, at); i++) {
			array_grow(w->todo, w->cap_todo, w->n_todo + 1);
			w->todo[w->n_todo++] = ast_kid(c->a, at, i);
		}
	}
}

static void enter(struct compiler *c, struct walk *w, int rule, int node)
{
	array_grow(w->frames, w->cap_frames, w->n_frames + 1);
	w->frames[w->n_frames] = (struct frame){rule, w->n_refs, 0};
	collect_refs(c, w, node, (uint32_t)(rule + 2));
	w->frames[w->n_frames].n_refs = w->n_refs - w->frames[w->n_frames].refs;
	w->n_frames++;
	if (rule >= 0)
		c->color[rule] = OPEN;
}

/* Compile each rule below the start after the rules that it names. A rule met while in progress
 * becomes a call. */
static void compile_rules(struct compiler *c, int start)
{
	struct walk w = {0};
	enter(c, &w, -1, start);
	while (w.n_frames && !c->err) {
		struct frame *f = &w.frames[w.n_frames - 1];
		if (f->n_refs) {
			int r = w.refs[f->refs + --f->n_refs];
			if (c->color[r] == OPEN && !c->rule_call[r])
				c->rule_call[r] = new_call(c, EXPR_NEVER) + 1;
			if (c->color[r] == NEW)
				enter(c, &w, r, ast_rule_body(c->a, r));
			continue;
		}
		w.n_refs = f->refs;
		w.n_frames--;
		if (f->rule < 0)
			continue;
		c->color[f->rule] = CLOSED;
		if (!c->productive[f->rule])
			continue;
		uint32_t e = compile_node(c, ast_rule_body(c->a, f->rule));
		c->rule_expr[f->rule] = e;
		if (c->rule_call[f->rule])
			c->out->bodies[c->rule_call[f->rule] - 1] = e;
	}
	free(w.frames);
	free(w.refs);
	free(w.todo);
}

/* Fail with the name of the first named rule that derives no text. */
static void fail_never(struct compiler *c)
{
	for (int r = 0; r < ast_n_rules(c->a); r++)
		if (!c->productive[r] && *ast_rule_name(c->a, r)) {
			char what[256];
			snprintf(what, sizeof what,
				 "no text matches the grammar: %.180s needs itself, and so never ends",
				 ast_rule_name(c->a, r));
			fail(c, -EINVAL, what);
			return;
		}
	fail(c, -EINVAL, "no text matches the grammar");
}

int compile_ast(const struct ast *a, struct exprs *x, struct compiled *out, struct why *why)
{
	struct compiler c = {.a = a, .x = x, .out = out, .why = why};
	size_t n_nodes = (size_t)ast_n_nodes(a), n_rules = (size_t)ast_n_rules(a) + 1;
	memset(out, 0, sizeof *out);
	int rc = ast_check(a, why);
	if (rc)
		return rc;
	c.rule_expr = xcalloc(n_rules, sizeof *c.rule_expr);
	c.rule_call = xcalloc(n_rules, sizeof *c.rule_call);
	c.color = xcalloc(n_rules, sizeof *c.color);
	c.productive = xcalloc(n_rules, sizeof *c.productive);
	c.stamp = xcalloc(n_nodes, sizeof *c.stamp);
	c.node_expr = xcalloc(n_nodes, sizeof *c.node_expr);
	memset(c.node_expr, 0xff, n_nodes * sizeof *c.node_expr);
	ast_productive(a, c.productive);
	compile_rules(&c, ast_start_of(a));
	out->start = compile_node(&c, ast_start_of(a));
	if (!c.err && out->start == EXPR_NEVER)
		fail_never(&c);
	free(c.rule_expr);
	free(c.rule_call);
	free(c.color);
	free(c.productive);
	free(c.stamp);
	free(c.node_expr);
	return c.err;
}

void compiled_fini(struct compiled *c)
{
	free(c->bodies);
	c->bodies = NULL;
}
