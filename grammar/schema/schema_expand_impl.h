/* schema_expand_impl.h - the state of an expansion, shared by schema_expand.c and schema_expand_deny.c. */
#ifndef QUERN_GRAMMAR_SCHEMA_SCHEMA_EXPAND_IMPL_H
#define QUERN_GRAMMAR_SCHEMA_SCHEMA_EXPAND_IMPL_H

#include "grammar/schema/schema_impl.h"
#include "grammar/schema/schema_keywords.h"

struct todo {
	const struct todo *next, *from; /* from: the enclosing schema, to detect cycles */
	struct lit lit;
};

struct fork {
	const struct fork *next;
	enum keyword kind; /* K_REF: denies the whole schema */
	const json_t *owner, *value;
	const char *name;
	const struct todo *from;
};

struct state {
	unsigned types;
	const struct atom *atoms;
	const struct todo *todo, *seen;
	const struct fork *forks, *denials;
};

struct expansion {
	struct schema *s;
	struct conj *c; /* NULL: only test whether any alternative exists */
	bool found;
	int nested;
};

/* Process everything st still has to do, and add the resulting alternatives to x. Return 0 or an error, as
 * all of these functions do. */
int expand_walk(struct expansion *x, struct state st);
void expand_push(struct expansion *x, struct state *st, const json_t *schema, bool neg,
		 const struct todo *from);
struct atom *expand_add(struct expansion *x, struct state *st, enum atom_kind kind, const json_t *owner,
			const json_t *value, bool neg);
void expand_add_name(struct expansion *x, struct state *st, enum atom_kind kind, const json_t *owner,
		     const char *name);
void expand_add_count(struct expansion *x, struct state *st, enum atom_kind kind, const json_t *owner,
		      size_t n);
int expand_malformed(struct expansion *x, const json_t *owner, const char *key, const char *must);
int expand_undecided(struct expansion *x, const json_t *owner, const char *what);

bool value_is_scalar(const json_t *v);
/* Return a schema that accepts exactly this array or object. */
const json_t *expand_value(struct expansion *x, const json_t *v);

/* Add assertions, or their denials if neg. */
int expand_values(struct expansion *x, struct state *st, const json_t *owner, const json_t *values, bool neg,
		  const struct todo *from);
int expand_types(struct expansion *x, const json_t *owner, const json_t *v, unsigned *mask);
int expand_contains(struct expansion *x, struct state *st, const json_t *owner, const json_t *v, bool neg);
int expand_number(struct expansion *x, struct state *st, const json_t *owner, enum keyword k, const char *key,
		  const json_t *v, bool neg);
int expand_count(struct expansion *x, struct state *st, const json_t *owner, enum keyword k, const char *key,
		 const json_t *v, bool neg);
int expand_text(struct expansion *x, struct state *st, const json_t *owner, enum atom_kind kind,
		const char *key, const json_t *v, bool neg);

/* schema_expand_deny.c: walk the branches in which the schema of t does not hold. */
int expand_denial(struct expansion *x, const struct state *base, const struct todo *t);

#endif
