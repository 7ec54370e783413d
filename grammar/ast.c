/* ast.c - the arena of a tree and the functions that build it. */
#include "grammar/ast.h"
#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SURROGATE_FIRST = 0xd800, SURROGATE_LAST = 0xdfff, CHAR_LAST = 0x10ffff };

struct node {
	uint8_t kind;
	uint16_t depth; /* height of the subtree, references not followed */
	/* literal, set, ranges: range in data; children: range in kids; reference: at is the rule */
	uint32_t at, n;
	int32_t min, max; /* AST_REPEAT */
};

struct rule {
	char *name; /* owned */
	int body;   /* AST_FAILED: not set */
};

struct ast {
	struct ast_limits limits;
	struct node *nodes;
	size_t n_nodes, cap_nodes;
	char *data; /* bytes of literals, sets and ranges, each aligned to 4 */
	size_t n_data, cap_data;
	int *kids;
	size_t n_kids, cap_kids;
	struct rule *rules;
	size_t n_rules, cap_rules;
	size_t name_bytes;
	int start;
	int never, empty; /* made on first use; AST_FAILED: not made */
	int64_t budget;   /* -1: none */
	int err;          /* 0, or the first error */
	char why[512];
};

struct ast *ast_new(const struct ast_limits *limits)
{
	struct ast *a = xcalloc(1, sizeof *a);
	if (limits)
		a->limits = *limits;
	if (!a->limits.nodes)
		a->limits.nodes = 1 << 20;
	if (!a->limits.bytes)
		a->limits.bytes = 64 << 20;
	if (!a->limits.rules)
		a->limits.rules = 200000;
	if (!a->limits.depth)
		a->limits.depth = 1000;
	a->start = a->never = a->empty = AST_FAILED;
	a->budget = -1;
	return a;
}

void ast_free(struct ast *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->n_rules; i++)
		free(a->rules[i].name);
	free(a->rules);
	free(a->nodes);
	free(a->data);
	free(a->kids);
	free(a);
}

int ast_fail(struct ast *a, int err, const char *fmt, ...)
{
	va_list ap;
	if (a->err)
		return AST_FAILED;
	a->err = err;
	va_start(ap, fmt);
	format_text(a->why, sizeof a->why, fmt, ap);
	va_end(ap);
	return AST_FAILED;
}

int ast_check(const struct ast *a, struct why *why)
{
	if (a->err)
		return err_why(why, a->err, "%s", a->why);
	for (size_t i = 0; i < a->n_rules; i++)
		if (a->rules[i].body == AST_FAILED)
			return err_why(why, -EINVAL, "rule %s is not defined", a->rules[i].name);
	if (a->start == AST_FAILED)
		return err_why(why, -EINVAL, "the grammar has no start");
	return 0;
}

bool ast_charge(struct ast *a, uint64_t units)
{
	if (grammar_charge(a->limits.account, units))
		return true;
	ast_fail(a, -EAGAIN, "the grammar takes too much work");
	return false;
}

struct grammar_account *ast_account(const struct ast *a)
{
	return a->limits.account;
}

static size_t data_bytes(const struct ast *a)
{
	return a->n_data + a->n_kids * sizeof *a->kids + a->name_bytes;
}

static int node_new(struct ast *a, enum ast_kind kind, int depth)
{
	if (a->err || !ast_charge(a, 1))
		return AST_FAILED;
	if (a->n_nodes >= a->limits.nodes)
		return ast_fail(a, -E2BIG, "the grammar has more than %zu nodes", a->limits.nodes);
	if (depth > a->limits.depth)
		return ast_fail(a, -E2BIG, "the grammar is nested more than %d deep", a->limits.depth);
	array_grow(a->nodes, a->cap_nodes, a->n_nodes + 1);
	a->nodes[a->n_nodes] = (struct node){.kind = (uint8_t)kind, .depth = (uint16_t)depth};
	return (int)a->n_nodes++;
}

/* Reserve n bytes of data and set *at to their offset.  Return NULL after an error. */
static void *data_new(struct ast *a, size_t n, uint32_t *at)
{
	size_t room = (n + 3) & ~(size_t)3;
	if (a->err)
		return NULL;
	if (n > a->limits.bytes || data_bytes(a) + room > a->limits.bytes) {
		ast_fail(a, -E2BIG, "the grammar takes more than %zu bytes", a->limits.bytes);
		return NULL;
	}
	array_grow(a->data, a->cap_data, a->n_data + room);
	*at = (uint32_t)a->n_data;
	a->n_data += room;
	return a->data + *at;
}

static bool is_node(const struct ast *a, int node)
{
	return node >= 0 && (size_t)node < a->n_nodes;
}

/* Check a child: AST_FAILED is reported as an error of the front end if nothing failed before. */
static bool kid_fits(struct ast *a, int node)
{
	if (node == AST_FAILED) {
		ast_fail(a, -EINVAL, "a node of the grammar was not made");
		return false;
	}
	assert(is_node(a, node));
	return !a->err;
}

int ast_never(struct ast *a)
{
	if (a->never == AST_FAILED)
		a->never = node_new(a, AST_NEVER, 1);
	return a->err ? AST_FAILED : a->never;
}

int ast_empty(struct ast *a)
{
	if (a->empty == AST_FAILED)
		a->empty = node_new(a, AST_EMPTY, 1);
	return a->err ? AST_FAILED : a->empty;
}

static int with_data(struct ast *a, enum ast_kind kind, const void *p, size_t bytes, size_t n)
{
	uint32_t at;
	void *to = data_new(a, bytes, &at);
	int node = to ? node_new(a, kind, 1) : AST_FAILED;
	if (node == AST_FAILED)
		return AST_FAILED;
	memcpy(to, p, bytes);
	a->nodes[node].at = at;
	a->nodes[node].n = (uint32_t)n;
	return node;
}

int ast_literal(struct ast *a, const void *p, size_t n)
{
	return n ? with_data(a, AST_LITERAL, p, n, n) : ast_empty(a);
}

int ast_text(struct ast *a, const char *s)
{
	return ast_literal(a, s, strlen(s));
}

int ast_set(struct ast *a, const uint8_t set[32])
{
	static const uint8_t none[32];
	return memcmp(set, none, 32) ? with_data(a, AST_SET, set, 32, 32) : ast_never(a);
}

enum { RANGE_WORK = 2 }; /* units of work (work.h) to sort and store a range */

static int by_first(const void *x, const void *y)
{
	const struct char_range *a = x, *b = y;
	return (a->first > b->first) - (a->first < b->first);
}

/* Append [first, last] without surrogates. */
static void range_put(struct char_range *out, size_t *n, uint32_t first, uint32_t last)
{
	if (last > CHAR_LAST)
		last = CHAR_LAST;
	if (first > last)
		return;
	if (first < SURROGATE_FIRST && last >= SURROGATE_FIRST) {
		range_put(out, n, first, SURROGATE_FIRST - 1);
		range_put(out, n, SURROGATE_FIRST, last);
		return;
	}
	if (first >= SURROGATE_FIRST && first <= SURROGATE_LAST)
		first = SURROGATE_LAST + 1;
	if (first <= last)
		out[(*n)++] = (struct char_range){first, last};
}

/* Sort the ranges and merge those that touch, including ranges on both sides of the surrogates. */
static size_t ranges_normalize(struct char_range *r, size_t n)
{
	size_t m = 0;
	qsort(r, n, sizeof *r, by_first);
	for (size_t i = 0; i < n; i++) {
		if (m && r[i].first <= r[m - 1].last + 1) {
			if (r[i].last > r[m - 1].last)
				r[m - 1].last = r[i].last;
		} else {
			r[m++] = r[i];
		}
	}
	return m;
}

int ast_chars(struct ast *a, const struct char_range *r, size_t n, bool negated)
{
	if (a->err)
		return AST_FAILED;
	if (n > a->limits.bytes / sizeof *r)
		return ast_fail(a, -E2BIG, "the grammar takes more than %zu bytes", a->limits.bytes);
	if (!ast_charge(a, RANGE_WORK * n))
		return AST_FAILED;
	struct char_range *in = xcalloc(n + 1, sizeof *in), *out = xcalloc(2 * n + 2, sizeof *out);
	size_t n_in = 0, n_out = 0;
	for (size_t i = 0; i < n; i++)
		if (r[i].first <= r[i].last)
			in[n_in++] = r[i];
	n_in = ranges_normalize(in, n_in);
	uint32_t next = 0; /* negated: the first character after all ranges so far */
	for (size_t i = 0; i < n_in; i++) {
		if (!negated)
			range_put(out, &n_out, in[i].first, in[i].last);
		else if (in[i].first > next)
			range_put(out, &n_out, next, in[i].first - 1);
		next = in[i].last < CHAR_LAST ? in[i].last + 1 : CHAR_LAST + 1;
	}
	if (negated && next <= CHAR_LAST)
		range_put(out, &n_out, next, CHAR_LAST);
	int node = n_out ? with_data(a, AST_CHARS, out, n_out * sizeof *out, n_out) : ast_never(a);
	free(in);
	free(out);
	return node;
}

static int with_kids(struct ast *a, enum ast_kind kind, const int *kids, size_t n)
{
	int depth = 0;
	for (size_t i = 0; i < n; i++) {
		if (!kid_fits(a, kids[i]))
			return AST_FAILED;
		if (a->nodes[kids[i]].depth > depth)
			depth = a->nodes[kids[i]].depth;
	}
	if (n > a->limits.bytes / sizeof *kids || data_bytes(a) + n * sizeof *kids > a->limits.bytes)
		return ast_fail(a, -E2BIG, "the grammar takes more than %zu bytes", a->limits.bytes);
	int node = node_new(a, kind, depth + 1);
	if (node == AST_FAILED)
		return AST_FAILED;
	array_grow(a->kids, a->cap_kids, a->n_kids + n);
	memcpy(a->kids + a->n_kids, kids, n * sizeof *kids);
	a->nodes[node].at = (uint32_t)a->n_kids;
	a->nodes[node].n = (uint32_t)n;
	a->n_kids += n;
	return node;
}

int ast_seq(struct ast *a, const int *kids, size_t n)
{
	if (n == 0)
		return ast_empty(a);
	if (n == 1)
		return kid_fits(a, kids[0]) ? kids[0] : AST_FAILED;
	return with_kids(a, AST_SEQ, kids, n);
}

int ast_alt(struct ast *a, const int *kids, size_t n)
{
	if (n == 0)
		return ast_never(a);
	if (n == 1)
		return kid_fits(a, kids[0]) ? kids[0] : AST_FAILED;
	return with_kids(a, AST_ALT, kids, n);
}

int ast_seq2(struct ast *a, int x, int y)
{
	return ast_seq(a, (int[]){x, y}, 2);
}

int ast_seq3(struct ast *a, int x, int y, int z)
{
	return ast_seq(a, (int[]){x, y, z}, 3);
}

int ast_alt2(struct ast *a, int x, int y)
{
	return ast_alt(a, (int[]){x, y}, 2);
}

int ast_option(struct ast *a, int x)
{
	return ast_repeat(a, x, 0, 1);
}

int ast_repeat(struct ast *a, int x, int64_t min, int64_t max)
{
	if (!kid_fits(a, x))
		return AST_FAILED;
	if (min < 0 || max < -1 || (max >= 0 && min > max))
		return ast_fail(a, -EINVAL, "a repeat of %lld to %lld times", (long long)min, (long long)max);
	if (min > AST_REPEAT_MAX || max > AST_REPEAT_MAX)
		return ast_fail(a, -E2BIG, "a repeat of more than %d times", AST_REPEAT_MAX);
	if (max == 0)
		return ast_empty(a);
	if (min == 1 && max == 1)
		return x;
	int node = with_kids(a, AST_REPEAT, &x, 1);
	if (node == AST_FAILED)
		return AST_FAILED;
	a->nodes[node].min = (int32_t)min;
	a->nodes[node].max = (int32_t)max;
	return node;
}

int ast_and(struct ast *a, int x, int y)
{
	return with_kids(a, AST_AND, (int[]){x, y}, 2);
}

int ast_counted(struct ast *a, int x, int unit, int64_t min, int64_t max)
{
	int node = ast_and(a, x, ast_repeat(a, unit, min, max));
	if (node != AST_FAILED)
		a->nodes[node].min = 1;
	return node;
}

int ast_unordered(struct ast *a, int separator, const int *members, size_t n, size_t n_required, int other)
{
	assert(n_required <= n);
	int *kids = xcalloc(n + 2, sizeof *kids);
	kids[0] = separator;
	kids[1] = other == AST_FAILED ? ast_never(a) : other;
	memcpy(kids + 2, members, n * sizeof *kids);
	int node = with_kids(a, AST_UNORDERED, kids, n + 2);
	free(kids);
	if (node != AST_FAILED)
		a->nodes[node].min = (int32_t)n_required;
	return node;
}

int ast_budget(struct ast *a, uint32_t n)
{
	const uint8_t byte = AST_BUDGET_BYTE;
	if (!n || n > AST_BUDGET_MAX)
		return ast_fail(a, -EINVAL, "a budget of less than one or more than %d tokens",
				AST_BUDGET_MAX);
	if (a->budget >= 0 && a->budget != n)
		return ast_fail(a, -EINVAL, "budgets of %lld and %lu tokens", (long long)a->budget,
				(unsigned long)n);
	a->budget = n;
	return ast_literal(a, &byte, 1);
}

int64_t ast_budget_of(const struct ast *a)
{
	return a->budget;
}

int ast_not(struct ast *a, int x)
{
	return with_kids(a, AST_NOT, &x, 1);
}

int ast_minus(struct ast *a, int x, int y)
{
	return ast_and(a, x, ast_not(a, y));
}

int ast_rule(struct ast *a, const char *name)
{
	size_t bytes = strlen(name) + 1 + sizeof(struct rule);
	if (a->err)
		return AST_FAILED;
	if (a->n_rules >= a->limits.rules)
		return ast_fail(a, -E2BIG, "the grammar has more than %zu rules", a->limits.rules);
	if (data_bytes(a) + bytes > a->limits.bytes)
		return ast_fail(a, -E2BIG, "the grammar takes more than %zu bytes", a->limits.bytes);
	array_grow(a->rules, a->cap_rules, a->n_rules + 1);
	a->rules[a->n_rules] = (struct rule){xstrdup(name), AST_FAILED};
	a->name_bytes += bytes;
	return (int)a->n_rules++;
}

void ast_rule_set(struct ast *a, int rule, int node)
{
	if (a->err || !kid_fits(a, node))
		return;
	assert(rule >= 0 && (size_t)rule < a->n_rules);
	if (a->rules[rule].body != AST_FAILED)
		ast_fail(a, -EINVAL, "rule %s is defined twice", a->rules[rule].name);
	a->rules[rule].body = node;
}

int ast_ref(struct ast *a, int rule)
{
	if (a->err)
		return AST_FAILED;
	assert(rule >= 0 && (size_t)rule < a->n_rules);
	int node = node_new(a, AST_REF, 1);
	if (node != AST_FAILED)
		a->nodes[node].at = (uint32_t)rule;
	return node;
}

void ast_start(struct ast *a, int node)
{
	if (kid_fits(a, node))
		a->start = node;
}

enum ast_kind ast_kind(const struct ast *a, int node)
{
	assert(is_node(a, node));
	return (enum ast_kind)a->nodes[node].kind;
}

int ast_n_kids(const struct ast *a, int node)
{
	enum ast_kind k = ast_kind(a, node);
	return k == AST_SEQ || k == AST_ALT || k == AST_REPEAT || k == AST_AND || k == AST_NOT ||
			       k == AST_UNORDERED
		       ? (int)a->nodes[node].n
		       : 0;
}

int ast_kid(const struct ast *a, int node, int i)
{
	assert(i >= 0 && i < ast_n_kids(a, node));
	return a->kids[a->nodes[node].at + (uint32_t)i];
}

const char *ast_bytes(const struct ast *a, int node, size_t *n)
{
	assert(ast_kind(a, node) == AST_LITERAL);
	*n = a->nodes[node].n;
	return a->data + a->nodes[node].at;
}

const uint8_t *ast_set_of(const struct ast *a, int node)
{
	assert(ast_kind(a, node) == AST_SET);
	return (const uint8_t *)a->data + a->nodes[node].at;
}

const struct char_range *ast_ranges(const struct ast *a, int node, size_t *n)
{
	assert(ast_kind(a, node) == AST_CHARS);
	*n = a->nodes[node].n;
	return (const void *)(a->data + a->nodes[node].at);
}

void ast_bounds(const struct ast *a, int node, int64_t *min, int64_t *max)
{
	assert(ast_kind(a, node) == AST_REPEAT || ast_kind(a, node) == AST_UNORDERED ||
	       ast_kind(a, node) == AST_AND);
	*min = a->nodes[node].min;
	*max = a->nodes[node].max;
}

int ast_rule_of(const struct ast *a, int node)
{
	assert(ast_kind(a, node) == AST_REF);
	return (int)a->nodes[node].at;
}

int ast_n_rules(const struct ast *a)
{
	return (int)a->n_rules;
}

const char *ast_rule_name(const struct ast *a, int rule)
{
	assert(rule >= 0 && (size_t)rule < a->n_rules);
	return a->rules[rule].name;
}

int ast_rule_body(const struct ast *a, int rule)
{
	assert(rule >= 0 && (size_t)rule < a->n_rules);
	return a->rules[rule].body;
}

int ast_start_of(const struct ast *a)
{
	return a->start;
}

int ast_n_nodes(const struct ast *a)
{
	return (int)a->n_nodes;
}
