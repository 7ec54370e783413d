/* schema_expand.c - expands a conjunction of schemas to a disjunction of plain alternatives.
 *
 *     state   types, atoms    what is known about this alternative
 *             todo            schemas that must hold, or must not, and are not processed yet
 *             forks           anyOf, oneOf, if, dependencies: decided after everything without a choice
 *             denials         schemas that must not hold: one of their assertions must fail; decided last,
 *                             when most of the choices are ruled out
 *
 * oneOf is exact: a branch that shares values with another branch is taken together with
 * the other's denial. */
#include "grammar/schema/schema_expand_impl.h"
#include "grammar/schema/decimal.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORKS_NESTED_MAX = 500, SEEN_MAX = 64 };

/* ---- building a state ---- */

void expand_push(struct expansion *x, struct state *st, const json_t *schema, bool neg,
		 const struct todo *from)
{
	struct todo *t = schema_alloc(x->s, sizeof *t);
	*t = (struct todo){.next = st->todo, .from = from, .lit = {.schema = schema, .neg = neg}};
	st->todo = t;
}

struct atom *expand_add(struct expansion *x, struct state *st, enum atom_kind kind, const json_t *owner,
			const json_t *value, bool neg)
{
	struct atom *a = schema_alloc(x->s, sizeof *a);
	*a = (struct atom){.next = st->atoms, .kind = kind, .neg = neg, .owner = owner, .value = value};
	a->n_max = SIZE_MAX;
	st->atoms = a;
	return a;
}

void expand_add_name(struct expansion *x, struct state *st, enum atom_kind kind, const json_t *owner,
		     const char *name)
{
	expand_add(x, st, kind, owner, NULL, false)->name = name;
}

void expand_add_count(struct expansion *x, struct state *st, enum atom_kind kind, const json_t *owner,
		      size_t n)
{
	expand_add(x, st, kind, owner, NULL, false)->n = n;
}

static void add_fork(struct expansion *x, const struct fork **list, enum keyword kind, const json_t *owner,
		     const json_t *value, const struct todo *from)
{
	struct fork *f = schema_alloc(x->s, sizeof *f);
	*f = (struct fork){.next = *list, .kind = kind, .owner = owner, .value = value, .from = from};
	*list = f;
}

int expand_malformed(struct expansion *x, const json_t *owner, const char *key, const char *must)
{
	return schema_error(x->s, -EINVAL, owner, "%s must be %s", key, must);
}

int expand_undecided(struct expansion *x, const json_t *owner, const char *what)
{
	return schema_error(x->s, -ENOTSUP, owner, "%s is not supported", what);
}

/* ---- values ---- */

static unsigned type_of_value(const json_t *v)
{
	struct decimal d;
	switch (json_typeof(v)) {
	case JSON_NULL:
		return T_NULL;
	case JSON_TRUE:
		return T_TRUE;
	case JSON_FALSE:
		return T_FALSE;
	case JSON_INTEGER:
		return T_INT;
	case JSON_REAL:
		decimal_from(v, &d);
		return decimal_is_whole(&d) ? T_INT : T_FRAC;
	case JSON_STRING:
		return T_STRING;
	case JSON_ARRAY:
		return T_ARRAY;
	default:
		return T_OBJECT;
	}
}

bool value_is_scalar(const json_t *v)
{
	return !json_is_object(v) && !json_is_array(v);
}

/* Return a schema of exactly this array or object. */
const json_t *expand_value(struct expansion *x, const json_t *v)
{
	json_t *made = map_get(&x->s->made_for, (uintptr_t)v), *parts, *required;
	const char *key;
	json_t *part;
	if (made)
		return made;
	made = json_object();
	if (json_is_array(v)) {
		json_object_set_new(made, "type", json_string("array"));
		json_object_set_new(made, "minItems", json_integer((json_int_t)json_array_size(v)));
		json_object_set_new(made, "maxItems", json_integer((json_int_t)json_array_size(v)));
		json_object_set_new(made, "prefixItems", parts = json_array());
		for (size_t i = 0; i < json_array_size(v); i++)
			json_array_append_new(parts, json_pack("{sO}", "const", json_array_get(v, i)));
	} else {
		json_object_set_new(made, "type", json_string("object"));
		json_object_set_new(made, "properties", parts = json_object());
		json_object_set_new(made, "required", required = json_array());
		json_object_set_new(made, "additionalProperties", json_false());
		json_object_foreach((json_t *)v, key, part)
		{
			json_object_set_new(parts, key, json_pack("{sO}", "const", part));
			json_array_append_new(required, json_string(key));
		}
	}
	json_array_append_new(x->s->made, made);
	map_put(&x->s->made_for, (uintptr_t)v, made);
	index_made(x->s, made, v);
	return made;
}

int expand_values(struct expansion *x, struct state *st, const json_t *owner, const json_t *values, bool neg,
		  const struct todo *from)
{
	const size_t n = json_is_array(values) ? json_array_size(values) : 1;
	unsigned types = 0;
	bool parts = false;
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_is_array(values) ? json_array_get(values, i) : values;
		if (!value_is_scalar(v) && neg)
			expand_push(x, st, expand_value(x, v), true, from);
		parts = parts || !value_is_scalar(v);
		types |= type_of_value(v);
	}
	if (neg) {
		st->types &= ~(types & (T_NULL | T_FALSE | T_TRUE));
		if (types & (T_NUMBER | T_STRING))
			expand_add(x, st, A_ENUM, owner, values, true);
		return 0;
	}
	st->types &= types;
	if (parts)
		add_fork(x, &st->forks, K_ENUM, owner, values, from);
	else if (types & (T_NUMBER | T_STRING))
		expand_add(x, st, A_ENUM, owner, values, false);
	return 0;
}

static int type_mask(struct expansion *x, const json_t *owner, const json_t *v, unsigned *mask)
{
	static const struct {
		const char *name;
		unsigned mask;
	} names[] = {{"null", T_NULL},     {"boolean", T_BOOL}, {"integer", T_INT},  {"number", T_NUMBER},
		     {"string", T_STRING}, {"array", T_ARRAY},  {"object", T_OBJECT}};
	const char *name = json_string_value(v);
	for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) {
		if (!strcmp(names[i].name, name)) {
			*mask |= names[i].mask;
			return 0;
		}
	}
	if (name)
		return schema_error(x->s, -EINVAL, owner, "type \"%.100s\" is unknown", name);
	return expand_malformed(x, owner, "type", "the name of a type, or an array of names");
}

int expand_types(struct expansion *x, const json_t *owner, const json_t *v, unsigned *mask)
{
	*mask = 0;
	if (!json_is_array(v))
		return type_mask(x, owner, v, mask);
	for (size_t i = 0; i < json_array_size(v); i++) {
		int rc = type_mask(x, owner, json_array_get(v, i), mask);
		if (rc)
			return rc;
	}
	return 0;
}

static int count_of(struct expansion *x, const json_t *owner, const char *key, const json_t *v, size_t *n)
{
	int64_t i;
	if (!json_is_number(v) || !json_integral(v, &i) || i < 0)
		return expand_malformed(x, owner, key, "an integer of at least 0");
	*n = (size_t)i;
	return 0;
}

static int need_schemas(struct expansion *x, const json_t *owner, const char *key, const json_t *v)
{
	if (!json_is_array(v) || !json_array_size(v))
		return expand_malformed(x, owner, key, "an array of at least one schema");
	return 0;
}

/* ---- assertions of one keyword ---- */

/* minContains 0 asserts nothing; without contains, minContains and maxContains assert nothing. */
int expand_contains(struct expansion *x, struct state *st, const json_t *owner, const json_t *v, bool neg)
{
	const json_t *least = json_object_get(owner, "minContains"),
		     *most = json_object_get(owner, "maxContains");
	size_t n = 1, n_max = SIZE_MAX;
	int rc = least ? count_of(x, owner, "minContains", least, &n) : 0;
	if (!rc && most)
		rc = count_of(x, owner, "maxContains", most, &n_max);
	if (rc)
		return rc;
	if (neg) {
		st->types &= T_ARRAY;
		if (n == 0 && n_max == SIZE_MAX)
			st->types = 0;
		else if (n > 1 || n_max != SIZE_MAX)
			return st->types ? expand_undecided(x, owner,
							    "the denial of minContains or maxContains")
					 : 0;
		else
			expand_add(x, st, A_EACH, owner, v, true);
		return 0;
	}
	if (n || n_max != SIZE_MAX) {
		struct atom *a = expand_add(x, st, A_CONTAINS, owner, v, false);
		a->n = n;
		a->n_max = n_max;
	}
	return 0;
}

/* Process {name: [names], ...} or {name: schema, ...}: a fork for each name. */
static int assert_dependencies(struct expansion *x, struct state *st, const json_t *owner, const json_t *v,
			       const char *key, const struct todo *from)
{
	const char *name;
	json_t *needs;
	if (!json_is_object(v))
		return expand_malformed(x, owner, key, "an object");
	json_object_foreach((json_t *)v, name, needs)
	{
		if (json_is_true(needs) || (json_is_array(needs) && !json_array_size(needs)))
			continue;
		if (!json_is_array(needs) && !json_is_object(needs) && !json_is_boolean(needs) &&
		    !json_is_string(needs))
			return expand_malformed(x, owner, key, "an object of names and schemas");
		struct fork *f = schema_alloc(x->s, sizeof *f);
		*f = (struct fork){.next = st->forks, .kind = K_DEPENDENCIES, .owner = owner, .value = needs};
		f->name = name;
		f->from = from;
		st->forks = f;
	}
	return 0;
}

int expand_number(struct expansion *x, struct state *st, const json_t *owner, enum keyword k, const char *key,
		  const json_t *v, bool neg)
{
	const bool low = k == K_MINIMUM || k == K_EXCLUSIVE_MINIMUM;
	if (k == K_MINIMUM || k == K_MAXIMUM || k == K_MULTIPLE_OF) {
		if (!json_is_number(v))
			return expand_malformed(x, owner, key, "a number");
	} else if (json_is_boolean(v)) {
		return 0; /* draft 4: modifies minimum */
	} else if (!json_is_number(v)) {
		return expand_malformed(x, owner, key, "a number");
	}
	if (k == K_MULTIPLE_OF) {
		if (json_number_value(v) <= 0)
			return expand_malformed(x, owner, key, "more than 0");
		expand_add(x, st, A_MULTIPLE, owner, v, neg);
		return 0;
	}
	bool strict = k == K_EXCLUSIVE_MINIMUM || k == K_EXCLUSIVE_MAXIMUM;
	if (k == K_MINIMUM)
		strict = json_is_true(json_object_get(owner, "exclusiveMinimum"));
	if (k == K_MAXIMUM)
		strict = json_is_true(json_object_get(owner, "exclusiveMaximum"));
	expand_add(x, st, low != neg ? A_LOW : A_HIGH, owner, v, false)->strict = strict != neg;
	return 0;
}

int expand_count(struct expansion *x, struct state *st, const json_t *owner, enum keyword k, const char *key,
		 const json_t *v, bool neg)
{
	static const enum atom_kind least[] = {A_MIN_LENGTH, A_MIN_ITEMS, A_MIN_MEMBERS};
	static const enum atom_kind most[] = {A_MAX_LENGTH, A_MAX_ITEMS, A_MAX_MEMBERS};
	const int of = k == K_MIN_LENGTH || k == K_MAX_LENGTH ? 0
		       : k == K_MIN_ITEMS || k == K_MAX_ITEMS ? 1
							      : 2;
	const bool is_least = k == K_MIN_LENGTH || k == K_MIN_ITEMS || k == K_MIN_PROPERTIES;
	size_t n;
	int rc = count_of(x, owner, key, v, &n);
	if (rc)
		return rc;
	if (!neg)
		expand_add_count(x, st, is_least ? least[of] : most[of], owner, n);
	else if (!is_least)
		expand_add_count(x, st, least[of], owner, n + 1);
	else if (n)
		expand_add_count(x, st, most[of], owner, n - 1);
	else
		st->types = 0;
	return 0;
}

static int assert_required(struct expansion *x, struct state *st, const json_t *owner, const json_t *v)
{
	if (json_is_boolean(v))
		return 0; /* draft 3, where it is in the property */
	if (!json_is_array(v))
		return expand_malformed(x, owner, "required", "an array of names");
	for (size_t i = json_array_size(v); i > 0; i--) {
		const char *name = json_string_value(json_array_get(v, i - 1));
		if (!name)
			return expand_malformed(x, owner, "required", "an array of names");
		expand_add_name(x, st, A_REQUIRE, owner, name);
	}
	return 0;
}

static bool has_applicator(const json_t *owner)
{
	static const char *const keys[] = {"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas",
					   "not"};
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (json_object_get(owner, keys[i]))
			return true;
	return false;
}

/* Process unevaluatedProperties or unevaluatedItems. Without an adjacent applicator they equal
 * additionalProperties or additionalItems; with one they are unsupported. */
static int assert_unevaluated(struct expansion *x, const json_t *owner, const char *key, const json_t *v)
{
	return json_is_true(v) || !has_applicator(owner) ? 0 : expand_undecided(x, owner, key);
}

int expand_text(struct expansion *x, struct state *st, const json_t *owner, enum atom_kind kind,
		const char *key, const json_t *v, bool neg)
{
	if (!json_is_string(v))
		return expand_malformed(x, owner, key, "a string");
	expand_add(x, st, kind, owner, v, neg);
	return 0;
}

static bool has_members_before(const struct state *st, enum atom_kind kind, const json_t *owner)
{
	for (const struct atom *a = st->atoms; a && a->owner == owner; a = a->next)
		if (a->kind == kind)
			return true;
	return false;
}

static int assert_parts(struct expansion *x, struct state *st, const json_t *owner, enum atom_kind kind)
{
	if (!has_members_before(st, kind, owner))
		expand_add(x, st, kind, owner, NULL, false);
	return 0;
}

static int assert_applicator(struct expansion *x, struct state *st, const json_t *owner, enum keyword k,
			     const char *key, const json_t *v, const struct todo *from)
{
	int rc;
	switch (k) {
	case K_ALL_OF:
		if ((rc = need_schemas(x, owner, key, v)))
			return rc;
		for (size_t i = json_array_size(v); i > 0; i--)
			expand_push(x, st, json_array_get(v, i - 1), false, from);
		return 0;
	case K_ANY_OF:
	case K_ONE_OF:
		if ((rc = need_schemas(x, owner, key, v)))
			return rc;
		if (json_array_size(v) == 1)
			expand_push(x, st, json_array_get(v, 0), false, from);
		else
			add_fork(x, &st->forks, k, owner, v, from);
		return 0;
	case K_NOT:
		expand_push(x, st, v, true, from);
		return 0;
	case K_IF:
		if (json_object_get(owner, "then") || json_object_get(owner, "else"))
			add_fork(x, &st->forks, k, owner, v, from);
		return 0;
	default:
		return assert_dependencies(x, st, owner, v, key, from);
	}
}

static int assert_keyword(struct expansion *x, struct state *st, const json_t *owner, enum keyword k,
			  const char *key, const json_t *v, const struct todo *from)
{
	unsigned mask;
	int rc;
	switch (k) {
	case K_TYPE:
		rc = expand_types(x, owner, v, &mask);
		st->types &= mask;
		return rc;
	case K_ENUM:
		if (!json_is_array(v))
			return expand_malformed(x, owner, key, "an array");
		return expand_values(x, st, owner, v, false, from);
	case K_CONST:
		if (value_is_scalar(v))
			return expand_values(x, st, owner, v, false, from);
		expand_push(x, st, expand_value(x, v), false, from);
		return 0;
	case K_ALL_OF:
	case K_ANY_OF:
	case K_ONE_OF:
	case K_NOT:
	case K_IF:
	case K_DEPENDENCIES:
		return assert_applicator(x, st, owner, k, key, v, from);
	case K_MINIMUM:
	case K_MAXIMUM:
	case K_EXCLUSIVE_MINIMUM:
	case K_EXCLUSIVE_MAXIMUM:
	case K_MULTIPLE_OF:
		return expand_number(x, st, owner, k, key, v, false);
	case K_PATTERN:
		return expand_text(x, st, owner, A_PATTERN, key, v, false);
	case K_FORMAT:
		return expand_text(x, st, owner, A_FORMAT, key, v, false);
	case K_MIN_LENGTH:
	case K_MAX_LENGTH:
	case K_MIN_ITEMS:
	case K_MAX_ITEMS:
	case K_MIN_PROPERTIES:
	case K_MAX_PROPERTIES:
		return expand_count(x, st, owner, k, key, v, false);
	case K_REQUIRED:
		return assert_required(x, st, owner, v);
	case K_MEMBERS:
		return assert_parts(x, st, owner, A_MEMBERS);
	case K_ITEMS:
		return assert_parts(x, st, owner, A_ITEMS);
	case K_PROPERTY_NAMES:
		expand_add(x, st, A_NAMES, owner, v, false);
		return 0;
	case K_CONTAINS:
		return expand_contains(x, st, owner, v, false);
	case K_UNIQUE_ITEMS:
		if (json_is_true(v))
			expand_add(x, st, A_UNIQUE, owner, NULL, false);
		return 0;
	case K_UNEVALUATED_PROPERTIES:
		rc = assert_unevaluated(x, owner, key, v);
		return rc ? rc : assert_parts(x, st, owner, A_MEMBERS);
	case K_UNEVALUATED_ITEMS:
		rc = assert_unevaluated(x, owner, key, v);
		return rc ? rc : assert_parts(x, st, owner, A_ITEMS);
	case K_UNSUPPORTED:
		return expand_undecided(x, owner, key);
	default:
		return 0;
	}
}

static int assert_schema(struct expansion *x, struct state *st, const struct todo *t)
{
	const json_t *schema = t->lit.schema, *ref = json_object_get(schema, "$ref");
	const char *key;
	json_t *v;
	int rc = 0;
	if (ref) {
		if (!json_is_string(ref))
			return expand_malformed(x, schema, "$ref", "a string");
		const json_t *to = index_resolve(x->s, schema, json_string_value(ref));
		if (!to)
			return x->s->err;
		expand_push(x, st, to, false, t);
		if (x->s->ref_alone)
			return 0;
	}
	json_object_foreach((json_t *)schema, key, v)
	{
		x->s->steps++;
		if (!rc && st->types)
			rc = assert_keyword(x, st, schema, keyword_of(key), key, v, t);
	}
	return rc;
}

/* ---- forks ---- */

/* Return 1 if no value of the state satisfies both a and b. */
static int apart(struct expansion *x, const struct state *base, const json_t *a, const json_t *b,
		 const struct todo *from)
{
	struct expansion probe = {.s = x->s, .nested = x->nested + 1};
	struct state st = *base;
	st.forks = st.denials = NULL;
	expand_push(&probe, &st, b, false, from);
	expand_push(&probe, &st, a, false, from);
	int rc = expand_walk(&probe, st);
	return rc ? rc : !probe.found;
}

static int fork_one_of(struct expansion *x, const struct state *base, const struct fork *f)
{
	const size_t n = json_array_size(f->value);
	int rc = 0;
	for (size_t i = 0; i < n && rc == 0; i++) {
		struct state st = *base;
		const json_t *branch = json_array_get(f->value, i);
		if (x->found && !x->c)
			return 0;
		for (size_t j = 0; j < n && rc >= 0; j++) {
			const json_t *other = json_array_get(f->value, j);
			if (j == i)
				continue;
			rc = apart(x, base, branch, other, f->from);
			if (rc == 0)
				expand_push(x, &st, other, true, f->from);
		}
		if (rc < 0)
			return rc;
		expand_push(x, &st, branch, false, f->from);
		rc = expand_walk(x, st);
	}
	return rc;
}

static int fork_values(struct expansion *x, const struct state *base, const struct fork *f)
{
	const size_t n = json_is_array(f->value) ? json_array_size(f->value) : 1;
	int rc = 0;
	for (size_t i = 0; i < n && !rc; i++) {
		const json_t *v = json_is_array(f->value) ? json_array_get(f->value, i) : f->value;
		struct state st = *base;
		st.types &= type_of_value(v);
		if (!st.types)
			continue;
		if (!value_is_scalar(v))
			expand_push(x, &st, expand_value(x, v), false, f->from);
		else if (json_is_string(v) || json_is_number(v))
			expand_add(x, &st, A_ENUM, f->owner, v, false);
		rc = expand_walk(x, st);
	}
	return rc;
}

static int fork_dependency(struct expansion *x, const struct state *base, const struct fork *f)
{
	struct state st = *base;
	int rc = 0;
	if (st.types & ~T_OBJECT & T_ALL) { /* no assertion applies to other types */
		st.types &= ~(unsigned)T_OBJECT;
		rc = expand_walk(x, st);
		st = *base;
		st.types &= T_OBJECT;
	}
	if (!st.types)
		return rc;
	expand_add_name(x, &st, A_FORBID, f->owner, f->name);
	if (!rc)
		rc = expand_walk(x, st);
	st = *base;
	st.types &= T_OBJECT;
	expand_add_name(x, &st, A_REQUIRE, f->owner, f->name);
	if (json_is_array(f->value)) {
		if (!rc)
			rc = assert_required(x, &st, f->owner, f->value);
	} else if (json_is_string(f->value)) { /* draft 3 */
		expand_add_name(x, &st, A_REQUIRE, f->owner, json_string_value(f->value));
	} else {
		expand_push(x, &st, f->value, false, f->from);
	}
	return rc ? rc : expand_walk(x, st);
}

static int fork_if(struct expansion *x, const struct state *base, const struct fork *f)
{
	int rc = 0;
	for (int i = 0; i < 2 && !rc; i++) {
		const json_t *then = json_object_get(f->owner, i ? "else" : "then");
		struct state st = *base;
		if (then)
			expand_push(x, &st, then, false, f->from);
		expand_push(x, &st, f->value, i, f->from);
		rc = expand_walk(x, st);
	}
	return rc;
}

static int take_fork(struct expansion *x, const struct state *base, const struct fork *f)
{
	int rc = 0;
	switch (f->kind) {
	case K_ANY_OF:
		for (size_t i = 0; i < json_array_size(f->value) && !rc; i++) {
			struct state st = *base;
			expand_push(x, &st, json_array_get(f->value, i), false, f->from);
			rc = expand_walk(x, st);
		}
		return rc;
	case K_ONE_OF:
		return fork_one_of(x, base, f);
	case K_ENUM:
		return fork_values(x, base, f);
	case K_IF:
		return fork_if(x, base, f);
	case K_DEPENDENCIES:
		return fork_dependency(x, base, f);
	default:
		return expand_denial(x, base, f->from);
	}
}

/* ---- the walk ---- */

static bool within_itself(const struct todo *t)
{
	for (const struct todo *up = t->from; up; up = up->from)
		if (up->lit.schema == t->lit.schema && up->lit.neg == t->lit.neg &&
		    json_is_object(up->lit.schema))
			return true;
	return false;
}

static bool seen_before(const struct state *st, const struct todo *t)
{
	int n = 0;
	for (const struct todo *o = st->seen; o && n < SEEN_MAX; o = o->next, n++)
		if (o->lit.schema == t->lit.schema && o->lit.neg == t->lit.neg)
			return true;
	return false;
}

static int look_into(struct expansion *x, struct state *st, const struct todo *t)
{
	const json_t *schema = t->lit.schema;
	struct todo *seen;
	if (json_is_boolean(schema)) {
		if (json_is_true(schema) == t->lit.neg)
			st->types = 0;
		return 0;
	}
	if (!json_is_object(schema))
		return schema_error(x->s, -EINVAL, t->from ? t->from->lit.schema : NULL,
				    "a schema must be an object, true or false");
	if (within_itself(t))
		return schema_error(x->s, -EINVAL, schema,
				    "the schema refers to itself without a value in between");
	if (seen_before(st, t))
		return 0;
	seen = schema_alloc(x->s, sizeof *seen);
	*seen = *t;
	seen->next = st->seen;
	st->seen = seen;
	if (!t->lit.neg)
		return assert_schema(x, st, t);
	add_fork(x, &st->denials, K_REF, schema, NULL, seen);
	((struct fork *)st->denials)->from = t;
	return 0;
}

/* Remove the types with assertions that are unsatisfiable together. */
static int prune(struct expansion *x, struct alt *alt)
{
	int rc = 0;
	if (alt->types & T_OBJECT && (rc = object_is_empty(x->s, alt)) > 0)
		alt->types &= ~(unsigned)T_OBJECT;
	if (rc >= 0 && alt->types & T_ARRAY && (rc = array_is_empty(x->s, alt)) > 0)
		alt->types &= ~(unsigned)T_ARRAY;
	if (rc >= 0 && alt->types & T_NUMBER && (rc = number_is_empty(x->s, alt)) > 0)
		alt->types &= ~(unsigned)T_NUMBER;
	if (rc >= 0 && alt->types & T_STRING && (rc = string_is_empty(x->s, alt)) > 0)
		alt->types &= ~(unsigned)T_STRING;
	return rc < 0 ? rc : 0;
}

static int emit(struct expansion *x, struct alt alt)
{
	int rc = prune(x, &alt);
	if (rc || !alt.types)
		return rc;
	x->found = true;
	if (!x->c)
		return 0;
	if (x->c->n_alts >= x->s->o.max_alternatives)
		return schema_error(x->s, -E2BIG, x->c->n_lits ? x->c->lits[0].schema : NULL,
				    "more than %zu alternatives", x->s->o.max_alternatives);
	array_grow(x->c->alts, x->c->cap_alts, x->c->n_alts + 1);
	x->c->alts[x->c->n_alts++] = alt;
	return 0;
}

/* Emit the alternatives in which some member outside owner's known names is wrong: a name known
 * here, or another. */
static int emit_other(struct expansion *x, struct alt alt)
{
	const struct atom *open = object_open_atom(&alt);
	int rc = 0;
	if (!open || !(alt.types & T_OBJECT))
		return emit(x, alt);
	json_t *names = object_names(&alt);
	void *it = json_object_iter(names);
	for (bool last = false; !last && rc >= 0; it = it ? json_object_iter_next(names, it) : NULL) {
		struct state st = {.types = T_OBJECT};
		const char *name = it ? json_object_iter_key(it) : NULL;
		last = !it;
		if ((rc = schema_step(x->s, 1, open->owner)) < 0)
			break;
		if (name && (rc = object_in_scope(x->s, open, name)) <= 0)
			continue;
		for (const struct atom *a = alt.atoms; a; a = a->next) {
			struct atom *copy = expand_add(x, &st, a->kind, a->owner, a->value, a->neg),
				    *next = (struct atom *)copy->next;
			*copy = *a;
			copy->next = next;
			x->s->steps++; /* steps bound the memory too */
			if (a == open && name) {
				copy->kind = a->kind == A_MISNAMED ? A_REQUIRE : A_MEMBER;
				copy->name = schema_text(x->s, name);
				if (a->kind != A_MISNAMED)
					expand_add_name(x, &st, A_REQUIRE, a->owner, copy->name);
			} else if (a == open) {
				copy->strict = true; /* an unknown member */
			}
		}
		rc = emit_other(x, (struct alt){T_OBJECT, st.atoms});
		if (x->found && !x->c)
			break;
	}
	json_decref(names);
	return rc < 0 ? rc : 0;
}

int expand_walk(struct expansion *x, struct state st)
{
	int rc = 0;
	if (x->found && !x->c)
		return 0;
	if (x->nested > FORKS_NESTED_MAX)
		return schema_error(x->s, -E2BIG, NULL, "more than %d choices in one value",
				    FORKS_NESTED_MAX);
	while (st.todo && st.types && !rc) {
		const struct todo *t = st.todo;
		rc = schema_step(x->s, 1, t->lit.schema);
		st.todo = t->next;
		if (!rc)
			rc = look_into(x, &st, t);
	}
	if (rc || !st.types)
		return rc;
	const struct fork *f = st.forks ? st.forks : st.denials;
	if (!f)
		return emit_other(x, (struct alt){st.types, st.atoms});
	if (st.forks)
		st.forks = f->next;
	else
		st.denials = f->next;
	x->nested++;
	rc = take_fork(x, &st, f);
	x->nested--;
	return rc;
}

int conj_expand(struct schema *s, struct conj *c)
{
	struct expansion x = {.s = s, .c = c};
	struct state st = {.types = T_ALL};
	for (unsigned i = c->n_lits; i > 0; i--)
		expand_push(&x, &st, c->lits[i - 1].schema, c->lits[i - 1].neg, NULL);
	c->expanding = true;
	s->depth++;
	int rc = expand_walk(&x, st);
	s->depth--;
	c->expanding = false;
	c->expanded = true;
	return rc;
}
