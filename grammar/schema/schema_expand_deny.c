/* schema_expand_deny.c - denies a schema: a branch for each of its assertions that may fail. */
#include "grammar/schema/schema_expand_impl.h"

static int deny_members(struct expansion *x, const struct state *base, const json_t *owner)
{
	const json_t *properties = json_object_get(owner, "properties");
	const json_t *patterns = json_object_get(owner, "patternProperties");
	const json_t *other = json_object_get(owner, "additionalProperties");
	const char *name;
	json_t *v;
	int rc = 0;
	if (!other)
		other = json_object_get(owner, "unevaluatedProperties");
	json_object_foreach((json_t *)properties, name, v)
	{
		struct state st = *base;
		if (rc || json_is_true(v))
			continue;
		expand_add_name(x, &st, A_REQUIRE, owner, name);
		expand_add(x, &st, A_MEMBER, owner, v, true)->name = name;
		rc = expand_walk(x, st);
	}
	json_object_foreach((json_t *)patterns, name, v)
	{
		struct state st = *base;
		if (rc || json_is_true(v))
			continue;
		expand_add(x, &st, A_MATCH, owner, v, true)->name = name;
		rc = expand_walk(x, st);
	}
	if (!rc && other && !json_is_true(other)) {
		struct state st = *base;
		expand_add(x, &st, A_OTHER, owner, other, true);
		rc = expand_walk(x, st);
	}
	return rc;
}

static int deny_items(struct expansion *x, const struct state *base, const json_t *owner)
{
	const json_t *items = json_object_get(owner, "items"),
		     *prefix = json_object_get(owner, "prefixItems");
	const json_t *rest = items;
	int rc = 0;
	if (json_is_array(items)) {
		prefix = items;
		rest = json_object_get(owner, "additionalItems");
	}
	if (!rest)
		rest = json_object_get(owner, "unevaluatedItems");
	const size_t n = json_array_size(prefix);
	for (size_t i = 0; i < n && !rc; i++) {
		struct state st = *base;
		expand_add_count(x, &st, A_MIN_ITEMS, owner, i + 1);
		expand_add(x, &st, A_ITEM, owner, json_array_get(prefix, i), true)->n = i;
		rc = expand_walk(x, st);
	}
	if (rc || !rest || json_is_true(rest))
		return rc;
	struct state st = *base;
	if (n && !json_is_false(rest))
		return expand_undecided(x, owner, "the denial of items behind a prefix");
	if (n)
		expand_add_count(x, &st, A_MIN_ITEMS, owner, n + 1);
	else
		expand_add(x, &st, A_CONTAINS, owner, rest, true)->n = 1;
	return expand_walk(x, st);
}

static int deny_required(struct expansion *x, const struct state *base, const json_t *owner, const json_t *v)
{
	int rc = 0;
	for (size_t i = 0; json_is_array(v) && i < json_array_size(v) && !rc; i++) {
		struct state st = *base;
		const char *name = json_string_value(json_array_get(v, i));
		if (!name)
			return expand_malformed(x, owner, "required", "an array of names");
		expand_add_name(x, &st, A_FORBID, owner, name);
		rc = expand_walk(x, st);
	}
	return rc;
}

static int deny_dependencies(struct expansion *x, const struct state *base, const json_t *owner,
			     const json_t *v, const struct todo *from)
{
	const char *name;
	json_t *needs;
	int rc = 0;
	json_object_foreach((json_t *)v, name, needs)
	{
		struct state st = *base;
		if (rc)
			continue;
		expand_add_name(x, &st, A_REQUIRE, owner, name);
		if (json_is_array(needs)) {
			rc = deny_required(x, &st, owner, needs);
		} else {
			expand_push(x, &st, needs, true, from);
			rc = expand_walk(x, st);
		}
	}
	return rc;
}

/* Deny oneOf: no branch holds, or some two do. */
static int deny_one_of(struct expansion *x, const struct state *base, const json_t *v,
		       const struct todo *from)
{
	const size_t n = json_array_size(v);
	struct state none = *base;
	for (size_t i = 0; i < n; i++)
		expand_push(x, &none, json_array_get(v, i), true, from);
	int rc = expand_walk(x, none);
	for (size_t i = 0; i < n && !rc; i++) {
		for (size_t j = i + 1; j < n && !rc; j++) {
			struct state st = *base;
			expand_push(x, &st, json_array_get(v, i), false, from);
			expand_push(x, &st, json_array_get(v, j), false, from);
			rc = expand_walk(x, st);
		}
	}
	return rc;
}

static int deny_if(struct expansion *x, const struct state *base, const json_t *owner, const json_t *v,
		   const struct todo *from)
{
	int rc = 0;
	for (int i = 0; i < 2 && !rc; i++) {
		const json_t *then = json_object_get(owner, i ? "else" : "then");
		struct state st = *base;
		if (!then)
			continue;
		expand_push(x, &st, v, i, from);
		expand_push(x, &st, then, true, from);
		rc = expand_walk(x, st);
	}
	return rc;
}

static int deny_applicator(struct expansion *x, const struct state *base, const json_t *owner, enum keyword k,
			   const json_t *v, const struct todo *from)
{
	struct state st = *base;
	int rc = 0;
	switch (k) {
	case K_ALL_OF:
		for (size_t i = 0; i < json_array_size(v) && !rc; i++) {
			st = *base;
			expand_push(x, &st, json_array_get(v, i), true, from);
			rc = expand_walk(x, st);
		}
		return rc;
	case K_ANY_OF:
		for (size_t i = 0; i < json_array_size(v); i++)
			expand_push(x, &st, json_array_get(v, i), true, from);
		return expand_walk(x, st);
	case K_ONE_OF:
		return deny_one_of(x, base, v, from);
	case K_NOT:
		expand_push(x, &st, v, false, from);
		return expand_walk(x, st);
	case K_IF:
		return deny_if(x, base, owner, v, from);
	default:
		st.types &= T_OBJECT;
		return st.types ? deny_dependencies(x, &st, owner, v, from) : 0;
	}
}

static unsigned types_of_keyword(enum keyword k)
{
	if (k <= K_LAST_OF_NUMBER)
		return T_NUMBER;
	if (k <= K_LAST_OF_STRING)
		return T_STRING;
	if (k <= K_LAST_OF_ARRAY)
		return T_ARRAY;
	return k <= K_LAST_OF_OBJECT ? T_OBJECT : T_ALL;
}

/* Walk the branch in which the assertions of one keyword fail. */
static int deny_keyword(struct expansion *x, const struct state *base, const json_t *owner, enum keyword k,
			const char *key, const json_t *v, const struct todo *from)
{
	struct state st = *base;
	unsigned mask;
	int rc = 0;
	st.types &= types_of_keyword(k);
	if (!st.types || k == K_NONE)
		return 0;
	switch (k) {
	case K_TYPE:
		rc = expand_types(x, owner, v, &mask);
		st.types &= ~mask;
		break;
	case K_ENUM:
		rc = json_is_array(v) ? expand_values(x, &st, owner, v, true, from)
				      : expand_malformed(x, owner, key, "an array");
		break;
	case K_CONST:
		if (value_is_scalar(v))
			rc = expand_values(x, &st, owner, v, true, from);
		else
			expand_push(x, &st, expand_value(x, v), true, from);
		break;
	case K_ALL_OF:
	case K_ANY_OF:
	case K_ONE_OF:
	case K_NOT:
	case K_IF:
	case K_DEPENDENCIES:
		return deny_applicator(x, base, owner, k, v, from);
	case K_PATTERN:
	case K_FORMAT:
		rc = expand_text(x, &st, owner, k == K_PATTERN ? A_PATTERN : A_FORMAT, key, v, true);
		break;
	case K_MIN_LENGTH:
	case K_MAX_LENGTH:
	case K_MIN_ITEMS:
	case K_MAX_ITEMS:
	case K_MIN_PROPERTIES:
	case K_MAX_PROPERTIES:
		rc = expand_count(x, &st, owner, k, key, v, true);
		break;
	case K_REQUIRED:
		return deny_required(x, &st, owner, v);
	case K_MEMBERS:
	case K_UNEVALUATED_PROPERTIES:
		return 0; /* handled once per schema, in expand_denial() */
	case K_ITEMS:
	case K_UNEVALUATED_ITEMS:
		return 0;
	case K_PROPERTY_NAMES:
		expand_add(x, &st, A_MISNAMED, owner, v, true);
		break;
	case K_CONTAINS:
		rc = expand_contains(x, &st, owner, v, true);
		break;
	case K_UNIQUE_ITEMS:
		return json_is_true(v) ? expand_undecided(x, owner, "the denial of uniqueItems") : 0;
	case K_UNSUPPORTED:
		return expand_undecided(x, owner, key);
	default:
		rc = expand_number(x, &st, owner, k, key, v, true);
		if (!rc && json_is_boolean(v))
			return 0;
	}
	return rc ? rc : expand_walk(x, st);
}

int expand_denial(struct expansion *x, const struct state *base, const struct todo *t)
{
	const json_t *schema = t->lit.schema, *ref = json_object_get(schema, "$ref");
	bool members = false, items = false;
	const char *key;
	json_t *v;
	int rc = 0;
	if (ref) {
		struct state st = *base;
		if (!json_is_string(ref))
			return expand_malformed(x, schema, "$ref", "a string");
		const json_t *to = index_resolve(x->s, schema, json_string_value(ref));
		if (!to)
			return x->s->err;
		expand_push(x, &st, to, true, t);
		rc = expand_walk(x, st);
		if (rc || x->s->ref_alone)
			return rc;
	}
	json_object_foreach((json_t *)schema, key, v)
	{
		enum keyword k = keyword_of(key);
		struct state st = *base;
		if (rc || (x->found && !x->c))
			continue;
		x->s->steps++;
		if ((k == K_MEMBERS || k == K_UNEVALUATED_PROPERTIES) && !members) {
			members = true;
			st.types &= T_OBJECT;
			rc = st.types ? deny_members(x, &st, schema) : 0;
		} else if ((k == K_ITEMS || k == K_UNEVALUATED_ITEMS) && !items) {
			items = true;
			st.types &= T_ARRAY;
			rc = st.types ? deny_items(x, &st, schema) : 0;
		} else {
			rc = deny_keyword(x, base, schema, k, key, v, t);
		}
	}
	return rc;
}
