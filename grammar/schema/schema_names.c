/* schema_names.c - the assertions of an alternative of objects on one member, by name. Owns: an index of the
 * atoms that hold a name. The other atoms, which hold whole schemas, are visited for each name. */
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { ATOMS_PER_STEP = 64 };

/* A name held by atoms. */
struct named {
	struct named *next_same_hash;
	const char *name;
	bool required, forbidden;
	struct lits values; /* from A_MEMBER */
};

struct names {
	struct named *list; /* owned; ordered by first atom */
	size_t n, n_required;
	struct map by_name;         /* the last entry with each hash */
	const struct atom **shared; /* owned: A_MEMBERS and A_NAMES */
	size_t n_shared;
};

const json_t *object_additional(const json_t *owner)
{
	const json_t *v = json_object_get(owner, "additionalProperties");
	return v ? v : json_object_get(owner, "unevaluatedProperties");
}

/* Return the names that alt mentions, as keys in order; the values have no meaning. */
json_t *object_names(const struct alt *alt)
{
	json_t *names = json_object();
	const struct atom **atoms;
	size_t n = 0, i = 0;
	const char *key;
	json_t *v;
	for (const struct atom *a = alt->atoms; a; a = a->next)
		n++;
	atoms = xcalloc(n + 1, sizeof *atoms);
	for (const struct atom *a = alt->atoms; a; a = a->next)
		atoms[n - 1 - i++] = a;
	for (i = 0; i < n; i++)
		if (atoms[i]->kind == A_MEMBERS || atoms[i]->kind == A_OTHER)
			json_object_foreach(json_object_get(atoms[i]->owner, "properties"), key,
					    v) if (!json_object_get(names, key))
				json_object_set_new(names, key, json_null());
	for (i = 0; i < n; i++)
		if ((atoms[i]->kind == A_MEMBER || atoms[i]->kind == A_REQUIRE ||
		     atoms[i]->kind == A_FORBID) &&
		    !json_object_get(names, atoms[i]->name))
			json_object_set_new(names, atoms[i]->name, json_null());
	free(atoms);
	return names;
}

/* Return 1 if owner's properties or patterns cover the name, 0 if not, or an error. */
int object_knows(struct schema *s, const json_t *owner, const char *name)
{
	const char *pattern;
	json_t *v;
	if (json_object_get(json_object_get(owner, "properties"), name))
		return 1;
	json_object_foreach(json_object_get(owner, "patternProperties"), pattern, v)
	{
		int rc = pattern_matches(s, owner, pattern, name, strlen(name));
		if (rc)
			return rc;
	}
	return 0;
}

/* Add owner's schemas for the member. */
static int values_by_owner(struct schema *s, const json_t *owner, const char *name, struct lits *out)
{
	const json_t *of = json_object_get(json_object_get(owner, "properties"), name), *other;
	const char *pattern;
	bool known = of;
	json_t *v;
	if (of)
		lits_add(out, of, false);
	json_object_foreach(json_object_get(owner, "patternProperties"), pattern, v)
	{
		int rc = pattern_matches(s, owner, pattern, name, strlen(name));
		if (rc < 0)
			return rc;
		known = known || rc;
		if (rc)
			lits_add(out, v, false);
	}
	other = object_additional(owner);
	if (!known && other)
		lits_add(out, other, false);
	return 0;
}

/* Return 1 if the string satisfies the schema of a, 0 if not, or an error. */
int names_fit(struct schema *s, const struct atom *a, const char *name)
{
	json_t *exactly = json_pack("{ss}", "const", name);
	struct lits l = {0};
	json_array_append_new(s->made, exactly);
	index_made(s, exactly, a->owner);
	lits_add(&l, exactly, false);
	lits_add(&l, a->value, false);
	int rc = conj_is_empty(s, conj_get(s, &l));
	lits_fini(&l);
	return rc < 0 ? rc : !rc;
}

static struct named *find(const struct names *n, const char *name, uint64_t *hash)
{
	*hash = XXH3_64bits(name, strlen(name));
	struct named *at = map_get(&n->by_name, *hash);
	while (at && strcmp(at->name, name))
		at = at->next_same_hash;
	return at;
}

static void add_named(struct names *n, const struct atom *a)
{
	uint64_t hash;
	struct named *at = find(n, a->name, &hash);
	if (!at) {
		at = &n->list[n->n++];
		*at = (struct named){.next_same_hash = map_get(&n->by_name, hash), .name = a->name};
		map_put(&n->by_name, hash, at);
	}
	if (a->kind == A_MEMBER)
		lits_add(&at->values, a->value, a->neg);
	n->n_required += a->kind == A_REQUIRE && !at->required;
	at->required = at->required || a->kind == A_REQUIRE;
	at->forbidden = at->forbidden || a->kind == A_FORBID;
}

struct names *names_new(struct schema *s, const struct alt *alt)
{
	struct names *n = xcalloc(1, sizeof *n);
	size_t n_atoms = 0;
	for (const struct atom *a = alt->atoms; a; a = a->next)
		n_atoms++;
	ast_charge(s->ast, SCHEMA_ATOM_WORK * n_atoms);
	n->list = xcalloc(n_atoms + 1, sizeof *n->list);
	n->shared = xcalloc(n_atoms + 1, sizeof *n->shared);
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		if (a->kind == A_MEMBER || a->kind == A_REQUIRE || a->kind == A_FORBID)
			add_named(n, a);
		else if (a->kind == A_MEMBERS || (a->kind == A_NAMES && !json_is_true(a->value)))
			n->shared[n->n_shared++] = a;
	}
	return n;
}

void names_free(struct names *n)
{
	for (size_t i = 0; i < n->n; i++)
		lits_fini(&n->list[i].values);
	map_fini(&n->by_name);
	free(n->list);
	free(n->shared);
	free(n);
}

size_t names_n_required(const struct names *n)
{
	return n->n_required;
}

bool names_requires(const struct names *n, const char *name)
{
	uint64_t hash;
	const struct named *at = find(n, name, &hash);
	return at && at->required;
}

/* Collect the schemas of the member in out.  Return 1 if the member is forbidden, 0, or an error. */
static int values_of(struct schema *s, const struct names *n, const char *name, struct lits *out)
{
	uint64_t hash;
	const struct named *at = find(n, name, &hash);
	if (at && at->forbidden)
		return 1;
	for (unsigned i = 0; at && i < at->values.n; i++)
		lits_add(out, at->values.p[i].schema, at->values.p[i].neg);
	ast_charge(s->ast, SCHEMA_ATOM_WORK * n->n_shared);
	for (size_t i = 0; i < n->n_shared; i++) {
		const struct atom *a = n->shared[i];
		int rc = 0;
		/* Cheap, but they add up over many members without a schema of their own. */
		if (++s->atoms_seen % ATOMS_PER_STEP == 0 && (rc = schema_step(s, 1, a->owner)))
			return rc;
		if (a->kind == A_MEMBERS) {
			rc = values_by_owner(s, a->owner, name, out);
		} else {
			rc = names_fit(s, a, name);
			rc = rc < 0 ? rc : !rc;
		}
		if (rc)
			return rc;
	}
	return 0;
}

struct conj *names_value(struct schema *s, const struct names *n, const char *name, int *rc)
{
	struct lits l = {0};
	struct conj *c = NULL;
	*rc = values_of(s, n, name, &l);
	if (!*rc) {
		c = conj_get(s, &l);
		*rc = conj_is_empty(s, c);
	}
	lits_fini(&l);
	if (*rc)
		c = NULL;
	*rc = *rc < 0 ? *rc : 0;
	return c;
}

bool names_lack_value(struct schema *s, const struct names *n, int *rc)
{
	for (size_t i = 0; i < n->n; i++)
		if (n->list[i].required && !names_value(s, n, n->list[i].name, rc))
			return true;
	return false;
}
