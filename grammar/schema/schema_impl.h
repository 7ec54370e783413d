/* schema_impl.h - shared declarations of the files of schema.h. */
#ifndef QUERN_GRAMMAR_SCHEMA_SCHEMA_IMPL_H
#define QUERN_GRAMMAR_SCHEMA_SCHEMA_IMPL_H

#include "base/err.h"
#include "base/json.h"
#include "base/map.h"
#include "grammar/schema/schema.h"

#include <stdbool.h>

/* Type bits.  T_INT is a number without a fraction. */
enum {
	T_NULL = 1,
	T_FALSE = 2,
	T_TRUE = 4,
	T_INT = 8,
	T_FRAC = 16,
	T_STRING = 32,
	T_ARRAY = 64,
	T_OBJECT = 128,
	T_BOOL = T_FALSE | T_TRUE,
	T_NUMBER = T_INT | T_FRAC,
	T_ALL = 255,
};

/* Units of work (grammar/work.h): per step of the expansion, and per atom looked up by name. */
enum { SCHEMA_STEP_WORK = 8, SCHEMA_ATOM_WORK = 2 };

/* A schema that must hold, or with neg must not hold. */
struct lit {
	const json_t *schema;
	unsigned number; /* from conj_get(): order of first use */
	bool neg;
};

struct lits {
	struct lit *p; /* owned */
	unsigned n, cap;
};

/* An assertion on the values of one type.  An alternative has a list of them. */
enum atom_kind {
	/* scalars */
	A_ENUM, /* value: an array of scalars, or one scalar */
	/* numbers */
	A_LOW,  /* >= value; strict: > value */
	A_HIGH, /* <= value; strict: < value */
	A_MULTIPLE,
	/* strings */
	A_PATTERN, /* value: a string */
	A_FORMAT,  /* value: a string */
	A_MIN_LENGTH,
	A_MAX_LENGTH,
	/* arrays */
	A_ITEMS,    /* prefixItems, items and additionalItems of owner */
	A_ITEM,     /* item n satisfies the schema value */
	A_EACH,     /* every item satisfies the schema value */
	A_CONTAINS, /* n to n_max items satisfy the schema value */
	A_MIN_ITEMS,
	A_MAX_ITEMS,
	A_UNIQUE,
	/* objects */
	A_MEMBERS,  /* properties, patternProperties and additionalProperties of owner */
	A_MEMBER,   /* member name, if present, satisfies the schema value */
	A_REQUIRE,  /* member name is present */
	A_FORBID,   /* member name is absent */
	A_NAMES,    /* every name satisfies the schema value */
	A_OTHER,    /* some member unknown to owner's properties and patternProperties satisfies value */
	A_MATCH,    /* some member with a name that matches the pattern name satisfies value */
	A_MISNAMED, /* some member's name does not satisfy value */
	A_MIN_MEMBERS,
	A_MAX_MEMBERS,
};

struct atom {
	const struct atom *next;
	enum atom_kind kind;
	bool neg;            /* denies the assertion, or the schema value */
	bool strict;         /* A_LOW, A_HIGH */
	const json_t *owner; /* the schema with this assertion, for messages */
	const json_t *value;
	const char *name;
	size_t n, n_max; /* n_max SIZE_MAX: unbounded */
};

struct alt {
	unsigned types;
	const struct atom *atoms;
};

/* A conjunction of schemas, and the grammar of the values that satisfy all of them. */
struct conj {
	struct conj *next_same_hash, *next_queued;
	struct lit *lits; /* sorted */
	unsigned n_lits;
	struct alt *alts; /* owned, set by expansion; empty: no value satisfies the conjunction */
	unsigned n_alts, cap_alts;
	bool expanded, expanding;
	int rule, node; /* AST_FAILED: not made */
};

struct place; /* schema_index.c */

struct schema {
	struct ast *ast;
	struct schema_options o;
	const json_t *root;
	json_t *made;   /* an array: schemas made for values of const and enum */
	bool ref_alone; /* drafts 4 to 7: ignore keywords next to $ref */
	struct map places, made_for, conjs, numbers, patterns, regulars;
	unsigned n_numbers;
	struct map anchors;
	struct arena_block *arena;
	size_t steps, charged; /* charged: charged to the tree's account so far */
	size_t atoms_seen;     /* cheap steps, see schema_names.c */
	int depth;             /* nesting of expansions */
	/* digits per run of the current number where the schema sets no bound; -1: unbounded */
	int64_t max_digits;
	struct conj *queue, **queue_end;
	/* nodes shared by many values */
	int open_object, close_object, open_array, close_array, comma, colon, digit, any_char,
		behind, /* whitespace between a value and a comma or the end; AST_FAILED: none */
		any_name_char;
	int err;
	struct why *why;
};

/* ---- schema.c ---- */
/* Return zeroed memory that is freed with s. */
void *schema_alloc(struct schema *s, size_t bytes);
const char *schema_text(struct schema *s, const char *text); /* returns a copy */
/* Record an error at a place in the schema; the path names the nearest known place. The first error is kept.
 * Returns err. */
int schema_error(struct schema *s, int err, const json_t *at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Count n steps of the expansion. Return 0; -E2BIG above max_steps; -EAGAIN if the tree's account
 * is used up. */
int schema_step(struct schema *s, size_t n, const json_t *at);
void lits_add(struct lits *l, const json_t *schema, bool neg);
void lits_fini(struct lits *l);
struct conj *conj_get(struct schema *s, const struct lits *l);
/* Return 1 if c is known to be unsatisfiable, 0 if not, or an error. */
int conj_is_empty(struct schema *s, struct conj *c);
/* Return the node for the values of c, or AST_FAILED after an error. */
int conj_node(struct schema *s, struct conj *c);
/* Return a member's or item's value with the whitespace after it. Whitespace has a single place between the
 * value and the next character, and a single place in an empty object or array. */
int value_spaced(struct schema *s, int node);

/* ---- schema_index.c: places and references ---- */
int index_build(struct schema *s);
void index_fini(struct schema *s);
void index_made(struct schema *s, const json_t *made, const json_t *for_value);
/* Append the path of at, for example "#/properties/a". */
void index_path(const struct schema *s, const json_t *at, struct buf *out);
/* Return the target of owner's $ref; NULL after an error. */
const json_t *index_resolve(struct schema *s, const json_t *owner, const char *ref);

/* ---- schema_expand.c ---- */
int conj_expand(struct schema *s, struct conj *c);

/* ---- schema_scalar.c: numbers; schema_string.c: strings ---- */
/* Return the first atom that lists values, or NULL. */
const struct atom *alt_values(const struct alt *alt);
int number_node(struct schema *s, const struct alt *alt);
int number_is_empty(struct schema *s, const struct alt *alt);
int string_is_empty(struct schema *s, const struct alt *alt);
int string_node(struct schema *s, const struct alt *alt);
/* Return body, less the strings that contain the text of the option `without`. */
int string_without(struct schema *s, int body);
/* Return the text between the quotes, spelled as a value or as a member's name. */
int string_body(struct schema *s, const struct alt *alt, bool name);

/* Count a search through the values of an enum.  Return 0, or -E2BIG. */
int values_step(struct schema *s, const struct atom *values);

/* ---- schema_escape.c ---- */
/* Return the shortest JSON spelling of the string, with the quotes. */
int string_literal(struct schema *s, const char *p, size_t n);
/* Append the same spelling without the quotes. */
void string_escape(struct buf *out, const char *p, size_t n);
/* Return the spellings of the characters that node matches: all of them, or only those allowed in names. */
int escape_node(struct schema *s, int node, bool name);
int escape_any_char(struct schema *s, bool name);

/* ---- schema_pattern.c ---- */
/* Return the raw strings that pattern matches somewhere; AST_FAILED after an error. */
int pattern_node(struct schema *s, const json_t *owner, const char *pattern);
/* Return 1 if pattern matches somewhere in the text, 0 if not, or an error. */
int pattern_matches(struct schema *s, const json_t *owner, const char *pattern, const char *p, size_t n);
/* ---- schema_format.c ---- */
/* Return the pattern of a format, or NULL if the specification has no such format. */
const char *format_pattern(const char *name);

/* ---- schema_array.c, schema_object.c ---- */
int array_node(struct schema *s, const struct alt *alt);
int object_node(struct schema *s, const struct alt *alt);
/* Return 1 if alt is known to have no array (object), 0 if not, or an error. */
int array_is_empty(struct schema *s, const struct alt *alt);
int object_is_empty(struct schema *s, const struct alt *alt);
/* Return the first atom that requires some member without naming it and is undecided (not
 * strict); NULL: none. */
const struct atom *object_open_atom(const struct alt *alt);
/* Return 1 if the atom applies to members of this name, 0 if not, or an error. */
int object_in_scope(struct schema *s, const struct atom *open, const char *name);

/* ---- schema_names.c: the assertions of an alternative on one member ---- */
/* Return the names that alt mentions, as keys of an object in the order in which members are written. */
json_t *object_names(const struct alt *alt);
/* Return owner's additionalProperties or unevaluatedProperties; NULL: none. */
const json_t *object_additional(const json_t *owner);
/* Return 1 if owner's properties or patterns cover the name, 0 if not, or an error. */
int object_knows(struct schema *s, const json_t *owner, const char *name);
/* Return 1 if the name satisfies the schema of a, 0 if not, or an error. */
int names_fit(struct schema *s, const struct atom *a, const char *name);
/* An index of alt's atoms by name: a lookup costs the same however many names there are. */
struct names;
struct names *names_new(struct schema *s, const struct alt *alt);
void names_free(struct names *n);
size_t names_n_required(const struct names *n);
bool names_requires(const struct names *n, const char *name);
/* Return the member's conjunction; NULL if it can have no value, or if *rc is an error. */
struct conj *names_value(struct schema *s, const struct names *n, const char *name, int *rc);
/* Return true if some required member can have no value, or if *rc is an error. */
bool names_lack_value(struct schema *s, const struct names *n, int *rc);

/* ---- schema_regular.c: decision procedures on regular nodes ---- */
/* Return 1 for yes, 0 for no, or an error (-E2BIG). */
int regular_is_empty(struct schema *s, int node);
int regular_accepts(struct schema *s, int node, const char *p, size_t n);
void regulars_fini(struct schema *s);

#endif
