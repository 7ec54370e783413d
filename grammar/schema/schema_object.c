/* schema_object.c - objects: members in the schema's order, then other members by the patterns of their
 * names.
 *
 *     { member 0 , member 1 , ... other , other ... }
 *
 * A cell is a set of names that no pattern distinguishes; the values of its members have one schema. A
 * member is optional unless required. The first member has no comma before it, so there is a node for the
 * rest after each member. */
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { CELLS_MAX = 64, STATES_MAX = 20000, NESTED_MAX = 100 };

struct member {
	const char *name;
	bool required, never;
	bool shallow; /* some value of it has no required members or items */
	int node;     /* "name": value */
};

struct cell {
	int names; /* between the quotes, in the spelling of names */
	struct lits values;
	uint64_t matches; /* bits of the patterns that match, by number */
};

struct object {
	struct schema *s;
	const struct alt *alt;
	struct member *members;
	size_t n;
	size_t min, max; /* number of members; max SIZE_MAX: unbounded */
	const char *patterns[CELLS_MAX];
	const json_t *pattern_owners[CELLS_MAX];
	size_t n_patterns;
	struct cell cells[CELLS_MAX];
	size_t n_cells;
	/* other: any member of the cells; must: a member required by open; AST_FAILED: none */
	int other, must;
	int filler;  /* a member that no pattern matches, used to reach minProperties; AST_FAILED: none */
	bool closed; /* exclude members that no name or pattern covers */
	const struct atom *open;
};

/* ---- required members without a known name ---- */

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
	struct names *n = names_new(s, alt);
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

/* Return true if no pattern of owner matches the names of the cell. */
static bool cell_is_other(struct object *o, const struct cell *c, const json_t *owner)
{
	const char *pattern;
	json_t *v;
	json_object_foreach(json_object_get(owner, "patternProperties"), pattern,
			    v) if (cell_matches(o, c, pattern)) return false;
	return true;
}

/* Split every cell by a pattern. */
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
		} /* else: the pattern matches no name of the cell, which stays as it is */
	}
	return 0;
}

/* Return the names that no atom mentions. */
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

/* Return the names that satisfy every propertyNames; AST_FAILED: any name, or an error. */
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

/* Return true if some schema lists properties and none constrains the others. */
static bool is_listed(const struct alt *alt)
{
	bool listed = false;
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		if (a->kind == A_MEMBERS && object_additional(a->owner))
			return false;
		listed = listed || (a->kind == A_MEMBERS && json_object_get(a->owner, "properties"));
	}
	return listed;
}

/* Return the members of all cells as one node; with open, only members that it requires. matched: only cells
 * with names that match a pattern. */
static int cells_node(struct object *o, const struct atom *open, bool matched)
{
	struct schema *s = o->s;
	int kids[CELLS_MAX], k = 0;
	for (size_t i = 0; i < o->n_cells; i++) {
		struct cell *c = &o->cells[i];
		struct lits l = {0};
		int names = c->names;
		if (matched && !c->matches)
			continue;
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

/* Return the node for other members, after a member or at the beginning (first), including the one that must
 * be present. */
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

/* Move a node into a rule: the depth of trees is bounded, and rules do not count. */
static int shallow(struct schema *s, int node)
{
	int rule = ast_rule(s->ast, "members");
	if (rule == AST_FAILED || node == AST_FAILED)
		return AST_FAILED;
	ast_rule_set(s->ast, rule, node);
	return ast_ref(s->ast, rule);
}

/* The rest after a member is one node, shared by all predecessors. Before the first member, the candidates
 * up to the first required one are alternatives of a single node: a thousand of them do not nest. */
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

/* The required members come first in the node. */
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

/* Return the node for the members after count others that minProperties still needs, with any names. */
static int filled(struct object *o, size_t count, size_t least)
{
	struct ast *t = o->s->ast;
	const int any = o->other == AST_FAILED ? o->filler : ast_alt2(t, o->other, o->filler);
	const int64_t more = (int64_t)(count ? least : least - 1);
	const int rest = ast_repeat(t, after_comma(o, any), more, more);
	return count ? rest : ast_seq2(t, any, rest);
}

struct grid {
	struct object *o;
	size_t n_count;
	int *memo;
};

/* Return the node from member i on, with count members present (at the last count: at least so many). */
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
		if (least && o->filler != AST_FAILED)
			return *at = filled(o, count, least);
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

static bool is_shallow(const struct conj *c)
{
	for (unsigned i = 0; i < c->n_alts; i++) {
		bool needs = false;
		for (const struct atom *a = c->alts[i].atoms; a; a = a->next)
			needs = needs || a->kind == A_REQUIRE || a->kind == A_MIN_MEMBERS ||
				a->kind == A_OTHER || a->kind == A_MATCH || a->kind == A_MISNAMED ||
				a->kind == A_MIN_ITEMS || a->kind == A_CONTAINS;
		if (!needs || c->alts[i].types & ~(unsigned)(T_OBJECT | T_ARRAY))
			return true;
	}
	return false;
}

static int make_members(struct object *o)
{
	struct schema *s = o->s;
	json_t *names = object_names(o->alt), *v;
	struct names *said = names_new(o->s, o->alt);
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
		m->shallow = is_shallow(c);
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
	struct object o = {.s = s, .alt = alt, .other = AST_FAILED, .must = AST_FAILED, .filler = AST_FAILED};
	size_t n_required = 0, n_possible = 0, n_reached = 0;
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
	o.closed = s->o.bounded && !o.open && is_listed(alt);
	o.other = cells_node(&o, NULL, o.closed);
	if (o.open)
		o.must = cells_node(&o, o.open, false);
	if (s->err)
		goto out;
	for (size_t i = 0; i < o.n; i++) {
		n_required += o.members[i].required;
		n_possible += !o.members[i].never;
		n_reached += !o.members[i].never && (o.members[i].required || o.members[i].shallow);
		if (o.members[i].required && o.members[i].never) {
			node = ast_never(s->ast);
			goto out;
		}
	}
	if (o.min <= n_required)
		o.min = 0;
	/* Only required and shallow members count towards minProperties, since others may need members of
	 * their own without end. A filler makes up the rest. */
	if (o.closed && o.min > n_reached && (o.filler = cells_node(&o, NULL, false)) == AST_FAILED && s->err)
		goto out;
	if (o.max >= n_possible && o.other == AST_FAILED && o.filler == AST_FAILED)
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
