/* schema_object.c - objects: members in the schema's order, then others by the patterns that their names
 * match.
 *
 *     { member 0 , member 1 , ... other , other ... }
 *
 * A cell is a set of names that no pattern tells apart; the values of its members have one schema.  A member
 * may be left out unless it is required; the first one has no comma, which is why there is a node for what
 * follows each. */
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { CELLS_MAX = 64, STATES_MAX = 20000, NESTED_MAX = 100 };

struct member {
	const char *name;
	bool required, never;
	int node; /* "name": value */
};

struct cell {
	int names; /* spelled as names; between the quotes */
	struct lits values;
	uint64_t matches; /* of the patterns, by number */
};

struct object {
	struct schema *s;
	const struct alt *alt;
	struct member *members;
	size_t n;
	size_t min, max; /* members; max SIZE_MAX: no bound */
	const char *patterns[CELLS_MAX];
	const json_t *pattern_owners[CELLS_MAX];
	size_t n_patterns;
	struct cell cells[CELLS_MAX];
	size_t n_cells;
	int other, must; /* any member of the cells; one that open asks for; AST_FAILED: none */
	const struct atom *open;
};

/* ---- members that no name is known of ---- */

const struct atom *object_open_atom(const struct alt *alt)
{
	for (const struct atom *a = alt->atoms; a; a = a->next)
		if ((a->kind == A_OTHER || a->kind == A_MATCH || a->kind == A_MISNAMED) && !a->strict)
			return a;
	return NULL;
}

int object_in_scope(struct schema *s, const struct atom *open, const char *name)
{
	int rc;
	if (open->kind == A_MATCH)
		return pattern_matches(s, open->owner, open->name, name, strlen(name));
	rc = open->kind == A_OTHER ? object_knows(s, open->owner, name) : names_fit(s, open, name);
	return rc < 0 ? rc : !rc;
}

static void counts_of(const struct alt *alt, size_t *min, size_t *max)
{
	*min = 0;
	*max = SIZE_MAX;
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		if (a->kind == A_MIN_MEMBERS && a->n > *min)
			*min = a->n;
		if (a->kind == A_MAX_MEMBERS && a->n < *max)
			*max = a->n;
	}
}

int object_is_empty(struct schema *s, const struct alt *alt)
{
	size_t min, max;
	int rc = 0;
	counts_of(alt, &min, &max);
	if (min > max)
		return 1;
	struct names *n = names_new(alt);
	if (names_n_required(n) > max || names_lack_value(s, n, &rc))
		rc = rc < 0 ? rc : 1;
	names_free(n);
	return rc;
}

/* ---- cells ---- */

static int pattern_number(struct object *o, const char *pattern, const json_t *owner)
{
	for (size_t i = 0; i < o->n_patterns; i++)
		if (!strcmp(o->patterns[i], pattern))
			return (int)i;
	if (o->n_patterns == CELLS_MAX) {
		schema_error(o->s, -E2BIG, owner, "more than %d patterns of names together", CELLS_MAX);
		return -1;
	}
	o->patterns[o->n_patterns] = pattern;
	o->pattern_owners[o->n_patterns] = owner;
	return (int)o->n_patterns++;
}

static int number_patterns(struct object *o, const json_t *owner)
{
	const char *pattern;
	json_t *v;
	json_object_foreach(json_object_get(owner, "patternProperties"), pattern,
			    v) if (pattern_number(o, pattern, owner) < 0) return o->s->err;
	return 0;
}

static bool cell_matches(struct object *o, const struct cell *c, const char *pattern)
{
	int i = pattern_number(o, pattern, NULL);
	return i >= 0 && c->matches >> i & 1;
}

/* No pattern of owner matches the names of the cell. */
static bool cell_is_other(struct object *o, const struct cell *c, const json_t *owner)
{
	const char *pattern;
	json_t *v;
	json_object_foreach(json_object_get(owner, "patternProperties"), pattern,
			    v) if (cell_matches(o, c, pattern)) return false;
	return true;
}

/* Divides every cell by a pattern. */
static int split_cells(struct object *o, size_t i)
{
	struct schema *s = o->s;
	int names = pattern_node(s, o->pattern_owners[i], o->patterns[i]);
	if (names == AST_FAILED)
		return s->err;
	names = escape_node(s, names, true);
	for (size_t j = 0, n = o->n_cells; j < n; j++) {
		struct cell *c = &o->cells[j];
		int in = ast_and(s->ast, c->names, names), out = ast_minus(s->ast, c->names, names);
		int no_in = regular_is_empty(s, in), no_out = no_in == 1 ? 0 : regular_is_empty(s, out);
		if (no_in < 0 || no_out < 0)
			return s->err;
		if (!no_in && !no_out && o->n_cells == CELLS_MAX)
			return schema_error(s, -E2BIG, o->pattern_owners[i],
					    "patterns divide names into more than %d sets", CELLS_MAX);
		if (!no_in && !no_out)
			o->cells[o->n_cells++] = (struct cell){.names = out, .matches = c->matches};
		if (!no_in) {
			c->names = in;
			c->matches |= (uint64_t)1 << i;
		} /* else: nothing of it matches; it stays as it is */
	}
	return 0;
}

/* Names that no atom speaks of. */
static int unknown_names(struct object *o)
{
	struct schema *s = o->s;
	int any = ast_repeat(s->ast, escape_any_char(s, true), 0, -1);
	int *kids = xcalloc(o->n + 1, sizeof *kids);
	for (size_t i = 0; i < o->n; i++) {
		struct buf text = {0};
		string_escape(&text, o->members[i].name, strlen(o->members[i].name));
		kids[i] = ast_literal(s->ast, text.p ? text.p : "", text.len);
		buf_fini(&text);
	}
	int node = o->n ? ast_minus(s->ast, any, ast_alt(s->ast, kids, o->n)) : any;
	free(kids);
	return node;
}

/* The names that every propertyNames takes; AST_FAILED: any, or an error. */
static int names_of(struct schema *s, const struct alt *alt, const struct atom *only)
{
	struct lits l = {0};
	int node = AST_FAILED;
	for (const struct atom *a = alt->atoms; a; a = a->next)
		if (only ? a == only : a->kind == A_NAMES)
			lits_add(&l, a->value, false);
	struct conj *c = l.n || only ? conj_get(s, &l) : NULL;
	if (c && conj_is_empty(s, c) >= 0) {
		int *kids = xcalloc(c->n_alts + 1, sizeof *kids);
		size_t n = 0;
		for (unsigned i = 0; i < c->n_alts && !s->err; i++)
			if (c->alts[i].types & T_STRING)
				kids[n++] = string_body(s, &c->alts[i], true);
		node = s->err ? AST_FAILED : ast_alt(s->ast, kids, n);
		free(kids);
	}
	lits_fini(&l);
	return node;
}

static void cell_values(struct object *o, struct cell *c)
{
	for (const struct atom *a = o->alt->atoms; a; a = a->next) {
		const char *pattern;
		json_t *v;
		if (a->kind != A_MEMBERS)
			continue;
		json_object_foreach(json_object_get(a->owner, "patternProperties"), pattern,
				    v) if (cell_matches(o, c, pattern)) lits_add(&c->values, v, false);
		const json_t *other = object_additional(a->owner);
		if (other && cell_is_other(o, c, a->owner))
			lits_add(&c->values, other, false);
	}
}

static int make_cells(struct object *o)
{
	struct schema *s = o->s;
	bool closed = false;
	for (const struct atom *a = o->alt->atoms; a; a = a->next) {
		const json_t *patterns = json_object_get(a->owner, "patternProperties");
		if (a->kind == A_MEMBERS && json_is_false(object_additional(a->owner)) &&
		    !json_object_size(patterns))
			closed = true;
		if ((a->kind == A_MEMBERS || a->kind == A_OTHER) && number_patterns(o, a->owner))
			return s->err;
		if (a->kind == A_MATCH && pattern_number(o, a->name, a->owner) < 0)
			return s->err;
	}
	if (closed)
		return 0;
	int names = names_of(s, o->alt, NULL);
	if (s->err)
		return s->err;
	o->cells[o->n_cells++].names =
		names == AST_FAILED ? unknown_names(o) : ast_and(s->ast, names, unknown_names(o));
	for (size_t i = 0; i < o->n_patterns; i++)
		if (split_cells(o, i))
			return s->err;
	for (size_t i = 0; i < o->n_cells; i++)
		cell_values(o, &o->cells[i]);
	return 0;
}

static int member_node(struct schema *s, int names, struct conj *value)
{
	int quote = ast_text(s->ast, "\""), node = conj_node(s, value);
	if (node == AST_FAILED)
		return AST_FAILED;
	return ast_seq(s->ast,
		       (int[]){quote, string_without(s, names), quote, s->colon, value_spaced(s, node)}, 5);
}

/* The members of all cells, as one node; with what open asks for, only those. */
static int cells_node(struct object *o, const struct atom *open)
{
	struct schema *s = o->s;
	int kids[CELLS_MAX], k = 0;
	for (size_t i = 0; i < o->n_cells; i++) {
		struct cell *c = &o->cells[i];
		struct lits l = {0};
		int names = c->names;
		if (open && open->kind == A_OTHER && !cell_is_other(o, c, open->owner))
			continue;
		if (open && open->kind == A_MATCH && !cell_matches(o, c, open->name))
			continue;
		if (open && open->kind == A_MISNAMED) {
			int fit = names_of(s, o->alt, open);
			if (fit == AST_FAILED)
				return AST_FAILED;
			names = ast_minus(s->ast, names, fit);
		}
		for (unsigned j = 0; j < c->values.n; j++)
			lits_add(&l, c->values.p[j].schema, c->values.p[j].neg);
		if (open && open->kind != A_MISNAMED)
			lits_add(&l, open->value, open->neg);
		struct conj *value = conj_get(s, &l);
		lits_fini(&l);
		int rc = conj_is_empty(s, value);
		if (rc < 0)
			return AST_FAILED;
		if (!rc)
			kids[k++] = member_node(s, names, value);
	}
	return s->err || !k ? AST_FAILED : ast_alt(s->ast, kids, (size_t)k);
}

/* ---- members in order ---- */

static int after_comma(struct object *o, int member)
{
	return ast_seq2(o->s->ast, o->s->comma, member);
}

/* Others behind a member, or as the first ones; with the one that must be there. */
static int others(struct object *o, bool first)
{
	struct ast *t = o->s->ast;
	int rest = o->other == AST_FAILED ? ast_empty(t) : ast_repeat(t, after_comma(o, o->other), 0, -1);
	if (o->open) {
		if (o->must == AST_FAILED)
			return ast_never(t);
		int later = ast_seq3(t, rest, after_comma(o, o->must), rest);
		if (!first)
			return later;
		return ast_alt2(t, ast_seq2(t, o->must, rest), ast_seq2(t, o->other, later));
	}
	if (!first || o->other == AST_FAILED)
		return rest;
	return ast_option(t, ast_seq2(t, o->other, rest));
}

/* Trees have a bounded depth, rules do not count. */
static int shallow(struct schema *s, int node)
{
	int rule = ast_rule(s->ast, "members");
	if (rule == AST_FAILED || node == AST_FAILED)
		return AST_FAILED;
	ast_rule_set(s->ast, rule, node);
	return ast_ref(s->ast, rule);
}

/* What follows once a member is there is shared by all that may come before it; while none is, the members up
 * to the first one that must be there stand side by side, so that a thousand of them are one node, and not
 * alternatives within alternatives. */
static int in_order(struct object *o)
{
	struct schema *s = o->s;
	struct ast *t = s->ast;
	size_t first = 0, n = 0;
	while (first < o->n && (o->members[first].never || !o->members[first].required))
		first++;
	int *kids = xcalloc(o->n + 1, sizeof *kids), rest = others(o, false);
	if (first == o->n)
		kids[n++] = others(o, true);
	for (size_t i = o->n; i > 0; i--) {
		const struct member *m = &o->members[i - 1];
		if (m->never)
			continue;
		int later = after_comma(o, m->node);
		if (i - 1 <= first)
			kids[n++] = ast_seq2(t, m->node, rest);
		rest = ast_seq2(t, m->required ? later : ast_option(t, later), rest);
		if (i % NESTED_MAX == 0)
			rest = shallow(s, rest);
	}
	int node = ast_alt(t, kids, n);
	free(kids);
	return node;
}

/* The members that must be there come first in the node. */
static int in_any_order(struct object *o)
{
	int *members = xcalloc(o->n + 1, sizeof *members);
	size_t n = 0, n_required = 0;
	for (int required = 1; required >= 0; required--) {
		for (size_t i = 0; i < o->n; i++)
			if (!o->members[i].never && o->members[i].required == required)
				members[n++] = o->members[i].node;
		if (required)
			n_required = n;
	}
	int node = ast_unordered(o->s->ast, o->s->comma, members, n, n_required, o->other);
	free(members);
	return node;
}

struct grid {
	struct object *o;
	size_t n_count;
	int *memo;
};

/* From member i on, with count members there (at the last count: at least so many). */
static int counted(struct grid *g, size_t i, size_t count)
{
	struct object *o = g->o;
	struct schema *s = o->s;
	struct ast *t = s->ast;
	const bool bounded = o->max != SIZE_MAX;
	int *at = &g->memo[i * g->n_count + count], kids[3], k = 0;
	if (*at != AST_FAILED || s->err)
		return *at;
	if (i == o->n) {
		const size_t least = o->min > count ? o->min - count : 0;
		if (o->other == AST_FAILED)
			return *at = least ? ast_never(t) : ast_empty(t);
		const int64_t most = bounded ? (int64_t)(o->max - count) : -1;
		if (count)
			return *at = ast_repeat(t, after_comma(o, o->other), (int64_t)least, most);
		if (most == 0)
			return *at = ast_empty(t);
		int more = ast_repeat(t, after_comma(o, o->other), least ? (int64_t)least - 1 : 0,
				      most < 0 ? -1 : most - 1);
		int some = ast_seq2(t, o->other, more);
		return *at = least ? some : ast_option(t, some);
	}
	const struct member *m = &o->members[i];
	if (!m->never && (!bounded || count < o->max)) {
		const size_t next = count + 1 < g->n_count ? count + 1 : count;
		kids[k++] = ast_seq2(t, count ? after_comma(o, m->node) : m->node, counted(g, i + 1, next));
	}
	if (!m->required)
		kids[k++] = counted(g, i + 1, count);
	int node = ast_alt(t, kids, (size_t)k);
	if (i % NESTED_MAX == NESTED_MAX - 1)
		node = shallow(s, node);
	return *at = node;
}

static const json_t *count_owner(const struct alt *alt)
{
	const struct atom *a = alt->atoms;
	while (a && a->kind != A_MIN_MEMBERS && a->kind != A_MAX_MEMBERS)
		a = a->next;
	return a ? a->owner : NULL;
}

static int in_order_counted(struct object *o)
{
	struct grid g = {.o = o};
	g.n_count = (o->max != SIZE_MAX ? o->max : o->min) + 1;
	if (o->max != SIZE_MAX && o->max > o->n + o->min && o->other == AST_FAILED)
		g.n_count = o->n + o->min + 1;
	if (g.n_count > STATES_MAX || (o->n + 1) * g.n_count > STATES_MAX || o->open) {
		schema_error(o->s, -ENOTSUP, count_owner(o->alt),
			     "minProperties or maxProperties with this many members, or with a denied one");
		return AST_FAILED;
	}
	g.memo = xcalloc((o->n + 1) * g.n_count, sizeof *g.memo);
	for (size_t i = 0; i < (o->n + 1) * g.n_count; i++)
		g.memo[i] = AST_FAILED;
	int node = counted(&g, 0, 0);
	free(g.memo);
	return node;
}

/* ---- objects ---- */

static int make_members(struct object *o)
{
	struct schema *s = o->s;
	json_t *names = object_names(o->alt), *v;
	struct names *said = names_new(o->alt);
	const char *name;
	int rc = 0;
	o->members = xcalloc(json_object_size(names) + 1, sizeof *o->members);
	json_object_foreach(names, name, v)
	{
		struct member *m = &o->members[o->n++];
		m->name = schema_text(s, name);
		if (rc)
			continue;
		m->required = names_requires(said, name);
		struct conj *c = names_value(s, said, name, &rc);
		m->never = !c;
		if (!c)
			continue;
		int value = conj_node(s, c);
		if (value == AST_FAILED)
			rc = -EINVAL;
		else
			m->node = ast_seq3(s->ast, string_literal(s, name, strlen(name)), s->colon,
					   value_spaced(s, value));
	}
	names_free(said);
	json_decref(names);
	return rc;
}

static void object_fini(struct object *o)
{
	for (size_t i = 0; i < o->n_cells; i++)
		lits_fini(&o->cells[i].values);
	free(o->members);
}

int object_node(struct schema *s, const struct alt *alt)
{
	struct object o = {.s = s, .alt = alt, .other = AST_FAILED, .must = AST_FAILED};
	size_t n_required = 0, n_possible = 0;
	int node = AST_FAILED;
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		if (a->kind != A_OTHER && a->kind != A_MATCH && a->kind != A_MISNAMED)
			continue;
		if (o.open) {
			schema_error(s, -ENOTSUP, a->owner,
				     "the denial of several schemas of unknown members");
			return AST_FAILED;
		}
		o.open = a;
	}
	counts_of(alt, &o.min, &o.max);
	if (make_members(&o) || make_cells(&o))
		goto out;
	o.other = cells_node(&o, NULL);
	if (o.open)
		o.must = cells_node(&o, o.open);
	if (s->err)
		goto out;
	for (size_t i = 0; i < o.n; i++) {
		n_required += o.members[i].required;
		n_possible += !o.members[i].never;
		if (o.members[i].required && o.members[i].never) {
			node = ast_never(s->ast);
			goto out;
		}
	}
	if (o.min <= n_required)
		o.min = 0;
	if (o.max >= n_possible && o.other == AST_FAILED)
		o.max = SIZE_MAX;
	if (o.min || o.max != SIZE_MAX)
		node = in_order_counted(&o);
	else if (!o.open && n_possible > 1 && n_possible <= s->o.any_order)
		node = in_any_order(&o);
	else
		node = in_order(&o);
	if (node != AST_FAILED)
		node = ast_seq3(s->ast, s->open_object, node, s->close_object);
out:
	object_fini(&o);
	return node;
}
