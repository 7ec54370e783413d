/* schema_array.c - arrays: a prefix of items, the rest, their number, contains and uniqueItems.
 *
 *     [ item 0 , item 1 , ... item P-1 , rest , rest ... ]
 *
 * contains and finite uniqueItems depend on earlier items: they have a node per (number of items so far,
 * state of these items). */
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { STATES_MAX = 5000, UNIQUE_MAX = 9 };

struct array {
	size_t n_prefix, min, max; /* max SIZE_MAX: unbounded */
	const struct atom *contains, *unique;
};

static const json_t *prefix_of(const json_t *owner)
{
	const json_t *items = json_object_get(owner, "items");
	return json_is_array(items) ? items : json_object_get(owner, "prefixItems");
}

/* Return the schema of the items after the prefix; NULL: none. */
static const json_t *rest_of(const json_t *owner)
{
	const json_t *items = json_object_get(owner, "items");
	const json_t *rest = json_is_array(items) ? json_object_get(owner, "additionalItems") : items;
	return rest ? rest : json_object_get(owner, "unevaluatedItems");
}

static struct array array_of(const struct alt *alt)
{
	struct array v = {.max = SIZE_MAX};
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		size_t n = a->kind == A_ITEMS  ? json_array_size(prefix_of(a->owner))
			   : a->kind == A_ITEM ? a->n + 1
					       : 0;
		if (n > v.n_prefix)
			v.n_prefix = n;
		if (a->kind == A_MIN_ITEMS && a->n > v.min)
			v.min = a->n;
		if (a->kind == A_MAX_ITEMS && a->n < v.max)
			v.max = a->n;
		if (a->kind == A_CONTAINS)
			v.contains = a;
		if (a->kind == A_UNIQUE)
			v.unique = a;
	}
	if (v.contains && v.contains->n > v.min)
		v.min = v.contains->n;
	return v;
}

/* Return the conjunction for item i, or for all items after the prefix (i >= n_prefix). */
static struct conj *item_of(struct schema *s, const struct alt *alt, size_t i, const struct atom *also,
			    bool neg)
{
	struct lits l = {0};
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		const json_t *v = NULL;
		if (a->kind == A_ITEMS)
			v = i < json_array_size(prefix_of(a->owner)) ? json_array_get(prefix_of(a->owner), i)
								     : rest_of(a->owner);
		else if (a->kind == A_EACH || (a->kind == A_ITEM && a->n == i))
			v = a->value;
		if (v)
			lits_add(&l, v, a->kind == A_ITEMS ? false : a->neg);
	}
	if (also)
		lits_add(&l, also->value, also->neg != neg);
	struct conj *c = conj_get(s, &l);
	lits_fini(&l);
	return c;
}

/* Lower max to the index of the first item without a possible value. */
static int cut(struct schema *s, const struct alt *alt, struct array *v)
{
	for (size_t i = 0; i <= v->n_prefix && i < v->max; i++) {
		int rc = conj_is_empty(s, item_of(s, alt, i, NULL, false));
		if (rc < 0)
			return rc;
		if (rc)
			v->max = i;
	}
	if (v->n_prefix > v->max)
		v->n_prefix = v->max;
	return 0;
}

int array_is_empty(struct schema *s, const struct alt *alt)
{
	struct array v = array_of(alt);
	if (v.min > v.max)
		return 1;
	if (v.min) {
		int rc = cut(s, alt, &v);
		if (rc || v.min > v.max)
			return rc ? rc : 1;
	}
	if (!v.contains || !v.contains->n || v.n_prefix)
		return 0;
	return conj_is_empty(s, item_of(s, alt, 0, v.contains, false));
}

/* ---- nodes ---- */

static int item_node(struct schema *s, const struct alt *alt, size_t i, const struct atom *also, bool neg)
{
	struct conj *c = item_of(s, alt, i, also, neg);
	int rc = conj_is_empty(s, c);
	return rc < 0 ? AST_FAILED : rc ? ast_never(s->ast) : value_spaced(s, conj_node(s, c));
}

static int64_t less(size_t n, size_t by)
{
	return n == SIZE_MAX ? -1 : n > by ? (int64_t)(n - by) : 0;
}

static int plain_items(struct schema *s, const struct alt *alt, const struct array *v)
{
	struct ast *t = s->ast;
	int tail = ast_empty(t);
	if (v->max > v->n_prefix) {
		int rest = item_node(s, alt, v->n_prefix, NULL, false);
		if (rest == AST_FAILED)
			return AST_FAILED;
		if (v->n_prefix) {
			tail = ast_repeat(t, ast_seq2(t, s->comma, rest), less(v->min, v->n_prefix),
					  less(v->max, v->n_prefix));
		} else {
			int more =
				ast_repeat(t, ast_seq2(t, s->comma, rest), less(v->min, 1), less(v->max, 1));
			tail = ast_seq2(t, rest, more);
			return v->min ? tail : ast_option(t, tail);
		}
	}
	for (size_t i = v->n_prefix; i > 0; i--) {
		int item = item_node(s, alt, i - 1, NULL, false);
		if (item == AST_FAILED)
			return AST_FAILED;
		tail = ast_seq3(t, i > 1 ? s->comma : ast_empty(t), item, tail);
		if (v->min < i)
			tail = ast_option(t, tail);
	}
	return tail;
}

struct grid {
	const struct alt *alt;
	const struct array *v;
	size_t n_count, n_hits; /* sizes of the grid; unbounded counts stop at the last state */
	int *memo;
};

/* Return the node for the rest of an array after count items, when hits items matched contains. */
static int contained(struct schema *s, struct grid *g, size_t count, size_t hits)
{
	struct ast *t = s->ast;
	const struct atom *c = g->v->contains;
	int *at = &g->memo[count * g->n_hits + hits];
	int kids[4], k = 0;
	if (*at != AST_FAILED || s->err)
		return *at;
	const bool bounded = g->v->max != SIZE_MAX, most = c->n_max != SIZE_MAX;
	const size_t next = count + 1 < g->n_count ? count + 1 : count;
	const bool loop = next == count && !bounded;
	if (count >= g->v->min && hits >= c->n && (!most || hits <= c->n_max))
		kids[k++] = ast_empty(t);
	const int comma = count ? s->comma : ast_empty(t);
	const bool may = !bounded || count < g->v->max;
	/* Without maxContains, an item that is not counted may be any item. */
	int other = may ? item_node(s, g->alt, count, most ? c : NULL, true) : AST_FAILED;
	if (may && hits < g->n_hits - 1) {
		int hit = item_node(s, g->alt, count, c, false);
		kids[k++] = ast_seq3(t, comma, hit, contained(s, g, next, hits + 1));
	}
	if (may && !loop)
		kids[k++] = ast_seq3(t, comma, other, contained(s, g, next, hits));
	int node = ast_alt(t, kids, (size_t)k);
	if (may && loop)
		node = ast_seq2(t, ast_repeat(t, ast_seq2(t, comma, other), 0, -1), node);
	return *at = node;
}

static int containing_items(struct schema *s, const struct alt *alt, const struct array *v)
{
	const struct atom *c = v->contains;
	struct grid g = {.alt = alt, .v = v};
	const size_t least = v->min > v->n_prefix + 1 ? v->min : v->n_prefix + 1;
	g.n_count = v->max != SIZE_MAX ? v->max + 1 : least + 1;
	g.n_hits = (c->n_max != SIZE_MAX ? c->n_max : c->n) + 1;
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		if (a->kind == A_CONTAINS && a != c) {
			schema_error(s, -ENOTSUP, a->owner, "a second contains is not supported");
			return AST_FAILED;
		}
	}
	if (g.n_count > STATES_MAX || g.n_hits > STATES_MAX || g.n_count * g.n_hits > STATES_MAX ||
	    g.n_count > 300) {
		schema_error(s, -ENOTSUP, c->owner, "contains with counts this large is not supported");
		return AST_FAILED;
	}
	g.memo = xcalloc(g.n_count * g.n_hits, sizeof *g.memo);
	for (size_t i = 0; i < g.n_count * g.n_hits; i++)
		g.memo[i] = AST_FAILED;
	int node = contained(s, &g, 0, 0);
	free(g.memo);
	return node;
}

/* ---- uniqueItems ---- */

/* Add the texts of all null, boolean, string and number values.  -1: not finite, or too many. */
static int list_values(const struct conj *c, json_t *out)
{
	for (unsigned i = 0; i < c->n_alts; i++) {
		const struct alt *alt = &c->alts[i];
		const json_t *values = NULL;
		int n = 0;
		if (alt->types & (T_ARRAY | T_OBJECT))
			return -1;
		if (alt->types & T_NULL)
			json_object_set_new(out, "null", json_null());
		if (alt->types & T_TRUE)
			json_object_set_new(out, "true", json_true());
		if (alt->types & T_FALSE)
			json_object_set_new(out, "false", json_false());
		if (!(alt->types & (T_NUMBER | T_STRING)))
			continue;
		for (const struct atom *a = alt->atoms; a; a = a->next)
			if (a->kind == A_ENUM && !a->neg && !values)
				values = a->value, n++;
			else
				n++;
		if (!values || n != 1)
			return -1;
		for (size_t j = 0; j < (json_is_array(values) ? json_array_size(values) : 1); j++) {
			json_t *v = json_is_array(values) ? json_array_get(values, j) : (json_t *)values;
			const unsigned type = json_is_string(v) ? T_STRING : json_is_integer(v) ? T_INT : 0;
			if (json_is_real(v))
				return -1;
			if (alt->types & type) {
				char *text = json_dumps(v, JSON_ENCODE_ANY);
				json_object_set(out, text, v);
				free(text);
			}
		}
	}
	return json_object_size(out) <= UNIQUE_MAX ? 0 : -1;
}

/* Return the node for the rest of an array when the values in the bit set used are taken. */
static int unused(struct schema *s, const struct array *v, const int *values, size_t n, int *memo,
		  unsigned used)
{
	struct ast *t = s->ast;
	int kids[UNIQUE_MAX + 1], k = 0;
	const size_t count = (size_t)__builtin_popcount(used);
	if (memo[used] != AST_FAILED)
		return memo[used];
	if (count >= v->min)
		kids[k++] = ast_empty(t);
	for (size_t i = 0; i < n && count < v->max; i++)
		if (!(used >> i & 1))
			kids[k++] = ast_seq3(t, used ? s->comma : ast_empty(t), values[i],
					     unused(s, v, values, n, memo, used | 1u << i));
	return memo[used] = ast_alt(t, kids, (size_t)k);
}

static int unique_items(struct schema *s, const struct alt *alt, const struct array *v)
{
	struct conj *c = item_of(s, alt, 0, NULL, false);
	json_t *texts = json_object(), *value;
	int values[UNIQUE_MAX], n = 0, node = AST_FAILED;
	const char *text;
	int rc = conj_is_empty(s, c);
	if (v->contains || v->n_prefix || (rc <= 0 && list_values(c, texts)))
		schema_error(
			s, -ENOTSUP, v->unique->owner,
			"uniqueItems of items that are not an enum of at most %d values is not supported",
			UNIQUE_MAX);
	if (s->err)
		goto out;
	json_object_foreach(texts, text, value) values[n++] =
		value_spaced(s, json_is_string(value) ? string_literal(s, json_string_value(value),
								       json_string_length(value))
						      : ast_text(s->ast, text));
	int *memo = xcalloc((size_t)1 << n, sizeof *memo);
	for (size_t i = 0; i < (size_t)1 << n; i++)
		memo[i] = AST_FAILED;
	node = unused(s, v, values, (size_t)n, memo, 0);
	free(memo);
out:
	json_decref(texts);
	return node;
}

int array_node(struct schema *s, const struct alt *alt)
{
	struct array v = array_of(alt);
	if (cut(s, alt, &v))
		return AST_FAILED;
	if (v.min > v.max)
		return ast_never(s->ast);
	if (v.min > AST_REPEAT_MAX || (v.max != SIZE_MAX && v.max > AST_REPEAT_MAX)) {
		schema_error(s, -E2BIG, NULL, "more than %d items", AST_REPEAT_MAX);
		return AST_FAILED;
	}
	int items = v.unique && v.max > 1 ? unique_items(s, alt, &v)
		    : v.contains          ? containing_items(s, alt, &v)
					  : plain_items(s, alt, &v);
	if (items == AST_FAILED)
		return AST_FAILED;
	return ast_seq3(s->ast, s->open_array, items, s->close_array);
}
