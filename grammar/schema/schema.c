/* schema.c - the table of conjunctions, their nodes, and the entry point. */
#include "grammar/schema/schema_impl.h"
#include "grammar/regex.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BLOCK = 64 << 10 };

/* Nesting of expansions. Beyond it a conjunction counts as satisfiable; if it is not, the
 * automaton finds out. */
enum { EMPTY_DEPTH_MAX = 6 };

struct arena_block {
	struct arena_block *next;
	size_t used, cap;
	max_align_t bytes[];
};

void *schema_alloc(struct schema *s, size_t bytes)
{
	bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	if (!s->arena || s->arena->cap - s->arena->used < bytes) {
		size_t cap = bytes > ARENA_BLOCK ? bytes : ARENA_BLOCK;
		struct arena_block *b = xmalloc(sizeof *b + cap);
		*b = (struct arena_block){.next = s->arena, .cap = cap};
		s->arena = b;
	}
	void *p = (char *)s->arena->bytes + s->arena->used;
	s->arena->used += bytes;
	return memset(p, 0, bytes);
}

const char *schema_text(struct schema *s, const char *text)
{
	return memcpy(schema_alloc(s, strlen(text) + 1), text, strlen(text));
}

int schema_error(struct schema *s, int err, const json_t *at, const char *fmt, ...)
{
	char text[400];
	struct buf path = {0};
	va_list ap;
	if (s->err)
		return s->err;
	va_start(ap, fmt);
	format_text(text, sizeof text, fmt, ap);
	va_end(ap);
	index_path(s, at, &path);
	s->err = err;
	err_why(s->why, err, "%.*s%s: %s", 300, path.p, path.len > 300 ? "..." : "", text);
	buf_fini(&path);
	return err;
}

int schema_step(struct schema *s, size_t n, const json_t *at)
{
	s->steps += n;
	if (s->steps > s->o.max_steps)
		return schema_error(s, -E2BIG, at, "the schema takes more than %zu steps", s->o.max_steps);
	if (!ast_charge(s->ast, SCHEMA_STEP_WORK * (s->steps - s->charged)))
		return schema_error(s, -EAGAIN, at, "the schema takes too much work");
	s->charged = s->steps;
	return 0;
}

void lits_add(struct lits *l, const json_t *schema, bool neg)
{
	if (neg ? json_is_false(schema) : json_is_true(schema))
		return;
	array_grow(l->p, l->cap, l->n + 1);
	l->p[l->n++] = (struct lit){.schema = schema, .neg = neg};
}

void lits_fini(struct lits *l)
{
	free(l->p);
	*l = (struct lits){0};
}

/* Number schemas by first use. The order of conditions decides the order of expansion, and so what a bound
 * allows; it must not depend on addresses. */
static unsigned number_of(struct schema *s, const json_t *schema)
{
	void *had = map_get(&s->numbers, (uintptr_t)schema);
	if (!had) {
		had = (void *)(uintptr_t)++s->n_numbers;
		map_put(&s->numbers, (uintptr_t)schema, had);
	}
	return (unsigned)(uintptr_t)had;
}

static int by_lit(const void *x, const void *y)
{
	const struct lit *a = x, *b = y;
	if (a->number != b->number)
		return a->number < b->number ? -1 : 1;
	return a->neg - b->neg;
}

static bool lits_equal(const struct lit *a, const struct lit *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (by_lit(&a[i], &b[i]))
			return false;
	return true;
}

static uint64_t lits_hash(const struct lit *p, size_t n)
{
	uint64_t h = 0x9e3779b97f4a7c15u + n;
	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint64_t)p[i].number << 1 ^ p[i].neg) * 0xff51afd7ed558ccdu, h ^= h >> 29;
	return h;
}

struct conj *conj_get(struct schema *s, const struct lits *l)
{
	struct lit *lits = schema_alloc(s, (l->n + 1) * sizeof *lits);
	size_t n = 0;
	if (l->n)
		memcpy(lits, l->p, l->n * sizeof *lits);
	for (size_t i = 0; i < l->n; i++)
		lits[i].number = number_of(s, lits[i].schema);
	qsort(lits, l->n, sizeof *lits, by_lit);
	for (size_t i = 0; i < l->n; i++)
		if (!n || by_lit(&lits[n - 1], &lits[i]))
			lits[n++] = lits[i];
	const uint64_t h = lits_hash(lits, n);
	struct conj *first = map_get(&s->conjs, h);
	for (struct conj *c = first; c; c = c->next_same_hash)
		if (c->n_lits == n && lits_equal(c->lits, lits, n))
			return c;
	struct conj *c = schema_alloc(s, sizeof *c);
	*c = (struct conj){.lits = lits, .n_lits = (unsigned)n, .next_same_hash = first};
	c->rule = c->node = AST_FAILED;
	map_put(&s->conjs, h, c);
	return c;
}

int conj_is_empty(struct schema *s, struct conj *c)
{
	if (!c->expanded) {
		if (c->expanding || s->depth >= EMPTY_DEPTH_MAX)
			return 0;
		int rc = conj_expand(s, c);
		if (rc)
			return rc;
	}
	return c->n_alts == 0;
}

/* ---- nodes ---- */

static bool is_for(enum atom_kind kind, unsigned type)
{
	switch (type) {
	case T_NUMBER:
		return kind <= A_MULTIPLE;
	case T_STRING:
		return kind == A_ENUM || (kind >= A_PATTERN && kind <= A_MAX_LENGTH);
	case T_ARRAY:
		return kind >= A_ITEMS && kind <= A_UNIQUE;
	default:
		return kind >= A_MEMBERS;
	}
}

static bool same_atom(const struct atom *x, const struct atom *y)
{
	return x->kind == y->kind && x->neg == y->neg && x->strict == y->strict && x->owner == y->owner &&
	       x->value == y->value && x->n == y->n && x->n_max == y->n_max &&
	       (x->name == y->name || (x->name && y->name && !strcmp(x->name, y->name)));
}

static const struct atom *next_for(const struct atom *at, unsigned type)
{
	while (at && !is_for(at->kind, type))
		at = at->next;
	return at;
}

/* Return true if two alternatives assert the same of a type, as in branches of an anyOf that differ in
 * another type. */
static bool same_for(const struct alt *x, const struct alt *y, unsigned type)
{
	const struct atom *a = next_for(x->atoms, type), *b = next_for(y->atoms, type);
	if ((x->types & type) != (y->types & type))
		return false;
	while (a && b && (a == b || same_atom(a, b))) {
		if (a == b)
			return true;
		a = next_for(a->next, type);
		b = next_for(b->next, type);
	}
	return !a && !b;
}

static bool said_before(const struct conj *c, unsigned i, unsigned type)
{
	for (unsigned j = i > 64 ? i - 64 : 0; j < i; j++)
		if (same_for(&c->alts[j], &c->alts[i], type))
			return true;
	return false;
}

static int node_of_type(struct schema *s, const struct alt *alt, unsigned type)
{
	return type == T_NUMBER   ? number_node(s, alt)
	       : type == T_STRING ? string_node(s, alt)
	       : type == T_ARRAY  ? array_node(s, alt)
				  : object_node(s, alt);
}

static int conj_body(struct schema *s, const struct conj *c)
{
	static const unsigned types[] = {T_STRING, T_NUMBER, T_OBJECT, T_ARRAY};
	unsigned words = 0, n = 0;
	int *kids = xcalloc(3 + 4 * (size_t)c->n_alts, sizeof *kids);
	const bool raw = s->o.strings == SCHEMA_STRINGS_RAW;
	for (size_t t = 0; t < (raw ? 1 : 4); t++) /* strings are the first */
		for (unsigned i = 0; i < c->n_alts; i++)
			if (c->alts[i].types & types[t] && !said_before(c, i, types[t]))
				kids[n++] = node_of_type(s, &c->alts[i], types[t]);
	for (unsigned i = 0; i < c->n_alts && !raw; i++)
		words |= c->alts[i].types;
	if (words & T_FALSE)
		kids[n++] = ast_text(s->ast, s->o.python_words ? "False" : "false");
	if (words & T_TRUE)
		kids[n++] = ast_text(s->ast, s->o.python_words ? "True" : "true");
	if (words & T_NULL)
		kids[n++] = ast_text(s->ast, s->o.python_words ? "None" : "null");
	int node = s->err ? AST_FAILED : ast_alt(s->ast, kids, n);
	free(kids);
	return node;
}

/* Return true if c has no array or object: its node needs no rule. */
static bool is_flat(const struct conj *c)
{
	for (unsigned i = 0; i < c->n_alts; i++)
		if (c->alts[i].types & (T_ARRAY | T_OBJECT))
			return false;
	return true;
}

int conj_node(struct schema *s, struct conj *c)
{
	if (c->node != AST_FAILED)
		return c->node;
	if (c->rule == AST_FAILED) {
		int rc = c->expanded ? 0 : conj_expand(s, c);
		if (rc)
			return AST_FAILED;
		if (is_flat(c))
			return c->node = conj_body(s, c);
		struct buf name = {0};
		if (c->n_lits)
			index_path(s, c->lits[0].schema, &name);
		else
			buf_puts(&name, "any");
		for (unsigned i = 1; i < c->n_lits && name.len < 200; i++) {
			buf_puts(&name, c->lits[i].neg ? " & not " : " & ");
			index_path(s, c->lits[i].schema, &name);
		}
		c->rule = ast_rule(s->ast, name.p ? name.p : "");
		buf_fini(&name);
		c->next_queued = NULL;
		*s->queue_end = c;
		s->queue_end = &c->next_queued;
	}
	return c->rule == AST_FAILED ? AST_FAILED : (c->node = ast_ref(s->ast, c->rule));
}

/* ---- entry point ---- */

static int set_of(struct ast *a, const char *chars)
{
	uint8_t set[32] = {0};
	for (; *chars; chars++)
		set[(uint8_t)*chars / 8] |= (uint8_t)(1 << (uint8_t)*chars % 8);
	return ast_set(a, set);
}

/* Return the texts that both space_pattern and `any`, the JSON whitespace, match.  If all texts of the
 * pattern are in `any`, that is the pattern's own node, without an intersection. */
static int matching_space(struct schema *s, int any)
{
	const char *p = s->o.space_pattern;
	struct why why;
	int node = regex_parse(s->ast, p, strlen(p), NULL);
	if (node == AST_FAILED) {
		ast_check(s->ast, &why);
		schema_error(s, -ENOTSUP, s->root, "the pattern of whitespace \"%.100s\": %s", p, why.text);
		return AST_FAILED;
	}
	const int both = ast_and(s->ast, node, any);
	int rc = regular_is_empty(s, both);
	if (rc > 0)
		schema_error(
			s, -EINVAL, s->root,
			"the pattern of whitespace \"%.100s\" matches no text of at most %u blanks, tabs, "
			"newlines and returns",
			p, s->o.max_space);
	if (rc)
		return AST_FAILED;
	rc = regular_is_empty(s, ast_minus(s->ast, node, any));
	return rc < 0 ? AST_FAILED : rc ? node : both;
}

static void make_punctuation(struct schema *s)
{
	struct ast *a = s->ast;
	const enum schema_space space = s->o.space;
	const bool anywhere = space == SCHEMA_SPACE_FLEXIBLE || space == SCHEMA_SPACE_PATTERN;
	const int64_t most = s->o.max_space == UINT_MAX ? -1 : (int64_t)s->o.max_space;
	int blank = anywhere                    ? ast_repeat(a, set_of(a, " \t\n\r"), 0, most)
		    : space == SCHEMA_SPACE_ONE ? ast_option(a, ast_text(a, " "))
						: ast_empty(a);
	if (space == SCHEMA_SPACE_PATTERN)
		blank = matching_space(s, blank);
	int around = anywhere ? blank : ast_empty(a);
	s->open_object = ast_seq2(a, ast_text(a, "{"), around);
	s->close_object = ast_text(a, "}");
	s->open_array = ast_seq2(a, ast_text(a, "["), around);
	s->close_array = ast_text(a, "]");
	s->comma = ast_seq2(a, ast_text(a, ","), blank);
	s->behind = anywhere ? blank : AST_FAILED;
	s->colon = ast_seq3(a, around, ast_text(a, ":"), blank);
	s->digit = set_of(a, "0123456789");
}

int value_spaced(struct schema *s, int node)
{
	return s->behind == AST_FAILED ? node : ast_seq2(s->ast, node, s->behind);
}

static void schema_fini(struct schema *s)
{
	for (size_t i = 0; i < s->conjs.cap; i++)
		for (struct conj *c = s->conjs.slots[i].value; c; c = c->next_same_hash)
			free(c->alts);
	index_fini(s);
	regulars_fini(s);
	map_fini(&s->conjs);
	map_fini(&s->numbers);
	map_fini(&s->patterns);
	json_decref(s->made);
	while (s->arena) {
		struct arena_block *b = s->arena;
		s->arena = b->next;
		free(b);
	}
}

static int build(struct schema *s, int *node)
{
	struct lits l = {0};
	const json_t *start = s->root;
	if (s->o.property)
		start = json_object_get(json_object_get(s->root, "properties"), s->o.property);
	if (!start)
		return schema_error(s, -EINVAL, s->root, "there is no property \"%.64s\"", s->o.property);
	lits_add(&l, start, false);
	struct conj *c = conj_get(s, &l);
	lits_fini(&l);
	int rc = conj_is_empty(s, c);
	if (rc > 0)
		return schema_error(s, -EINVAL, start, "no value satisfies the schema");
	if (rc == 0)
		*node = conj_node(s, c);
	while (s->queue && !s->err) {
		struct conj *next = s->queue;
		s->queue = next->next_queued;
		if (!s->queue)
			s->queue_end = &s->queue;
		int body = conj_body(s, next);
		if (body != AST_FAILED)
			ast_rule_set(s->ast, next->rule, body);
		else if (!s->err)
			break; /* the tree's own error, which ast_check() reports */
	}
	return s->err;
}

int schema_node(struct ast *a, const json_t *schema, const struct schema_options *options, int *node,
		struct why *why)
{
	struct schema s = {.ast = a, .root = schema, .why = why, .made = json_array()};
	if (options)
		s.o = *options;
	if (!s.o.max_steps)
		s.o.max_steps = 1 << 20;
	if (!s.o.max_alternatives)
		s.o.max_alternatives = 2000;
	if (!s.o.max_space)
		s.o.max_space = SCHEMA_SPACE_MAX;
	if (s.o.space == SCHEMA_SPACE_DEFAULT)
		s.o.space = SCHEMA_SPACE_ONE;
	s.queue_end = &s.queue;
	s.max_digits = -1;
	s.any_char = s.any_name_char = AST_FAILED;
	*node = AST_FAILED;
	s.steps = s.charged = s.o.steps ? *s.o.steps : 0;
	/* Replace numbers beyond 64 bits by the nearest double. */
	json_t *near = json_without_big(schema);
	if (near) {
		json_array_append_new(s.made, near);
		s.root = near;
	}
	int rc = index_build(&s);
	if (!rc) {
		make_punctuation(&s);
		rc = s.err ? s.err : build(&s, node);
	}
	if (s.o.steps)
		*s.o.steps = s.steps;
	if (!rc && *node == AST_FAILED)
		rc = ast_check(a, why);
	schema_fini(&s);
	return rc;
}
