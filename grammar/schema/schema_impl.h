/* schema_impl.h - what the files of schema.h share. */
#ifndef QUERN_GRAMMAR_SCHEMA_SCHEMA_IMPL_H
#define QUERN_GRAMMAR_SCHEMA_SCHEMA_IMPL_H

#include "base/err.h"
#include "base/json.h"
#include "base/map.h"
#include "grammar/schema/schema.h"

#include <stdbool.h>

/* Types as bits: an integer is a number without a fraction. */
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

/* A schema that must hold, or must not. */
struct lit {
	const json_t *schema;
	unsigned number; /* conj_get()'s: in the order in which schemas were first asked for */
	bool neg;
};

struct lits {
	struct lit *p; /* owned */
	unsigned n, cap;
};

/* What holds for the values of one type; an alternative has a list of them. */
enum atom_kind {
	/* scalars */
	A_ENUM, /* value: an array of scalars, or one scalar */
	/* numbers */
	A_LOW,  /* at least value; strict: more */
	A_HIGH, /* likewise */
	A_MULTIPLE,
	/* strings */
	A_PATTERN, /* value: a string */
	A_FORMAT,  /* likewise */
	A_MIN_LENGTH,
	A_MAX_LENGTH,
	/* arrays */
	A_ITEMS,    /* prefixItems, items and additionalItems of owner */
	A_ITEM,     /* item n satisfies the schema in value */
	A_EACH,     /* every item does */
	A_CONTAINS, /* n to n_max items do */
	A_MIN_ITEMS,
	A_MAX_ITEMS,
	A_UNIQUE,
	/* objects */
	A_MEMBERS,  /* properties, patternProperties and additionalProperties of owner */
	A_MEMBER,   /* member name satisfies the schema in value, if it is there */
	A_REQUIRE,  /* member name is there */
	A_FORBID,   /* member name is not there */
	A_NAMES,    /* every name satisfies the schema in value */
	A_OTHER,    /* a member that owner's properties and patternProperties do not know satisfies value */
	A_MATCH,    /* a member with a name that the pattern in name matches satisfies value */
	A_MISNAMED, /* a member's name does not satisfy value */
	A_MIN_MEMBERS,
	A_MAX_MEMBERS,
};

struct atom {
	const struct atom *next;
	enum atom_kind kind;
	bool neg;            /* the assertion, or the schema in value, is denied */
	bool strict;         /* A_LOW, A_HIGH */
	const json_t *owner; /* the schema that the assertion is from, for messages */
	const json_t *value;
	const char *name;
	size_t n, n_max; /* SIZE_MAX: no bound */
};

struct alt {
	unsigned types;
	const struct atom *atoms;
};

/* A set of schemas that hold together, and the grammar of its values. */
struct conj {
	struct conj *next_same_hash, *next_queued;
	struct lit *lits; /* sorted */
	unsigned n_lits;
	struct alt *alts; /* owned, once expanded; none: no value satisfies it */
	unsigned n_alts, cap_alts;
	bool expanded, expanding;
	int rule, node; /* AST_FAILED: not made yet */
};

struct place; /* schema_index.c */

struct schema {
	struct ast *ast;
	struct schema_options o;
	const json_t *root;
	json_t *made;   /* an array: schemas that stand for a value of const or enum */
	bool ref_alone; /* drafts 4 to 7: what stands beside $ref is ignored */
	struct map places, made_for, conjs, numbers, patterns, regulars;
	unsigned n_numbers;
	struct map anchors;
	struct arena_block *arena;
	size_t steps;
	size_t atoms_seen; /* cheap steps: schema_names.c */
	int depth;         /* of expansions within expansions */
	struct conj *queue, **queue_end;
	/* nodes that many values share */
	int open_object, close_object, open_array, close_array, comma, colon, digit, digits, any_char,
		behind, /* whitespace behind a value that a comma or the end follows; AST_FAILED: none */
		any_name_char;
	int err;
	char *why;
	size_t why_n;
};

/* ---- schema.c ---- */
/* Memory that lives as long as s, zeroed. */
void *schema_alloc(struct schema *s, size_t bytes);
const char *schema_text(struct schema *s, const char *text); /* a copy */
/* Record an error at a place of the schema (the path leads to the nearest one that is known); the first one
 * stays.  Returns err. */
int schema_error(struct schema *s, int err, const json_t *at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void lits_add(struct lits *l, const json_t *schema, bool neg);
void lits_fini(struct lits *l);
struct conj *conj_get(struct schema *s, const struct lits *l);
/* Whether no value satisfies it, as far as that is found: 1, 0, or an error. */
int conj_is_empty(struct schema *s, struct conj *c);
/* A node for its values; AST_FAILED after an error. */
int conj_node(struct schema *s, struct conj *c);
/* A member's or item's value, with the whitespace behind it: there is one place between it and the next
 * character, and one in an empty object or array. */
int value_spaced(struct schema *s, int node);

/* ---- schema_index.c: places and references ---- */
int index_build(struct schema *s);
void index_fini(struct schema *s);
void index_made(struct schema *s, const json_t *made, const json_t *for_value);
/* Appends "#/properties/a" */
void index_path(const struct schema *s, const json_t *at, struct buf *out);
/* What the $ref of owner leads to; NULL: an error was recorded. */
const json_t *index_resolve(struct schema *s, const json_t *owner, const char *ref);

/* ---- schema_expand.c ---- */
int conj_expand(struct schema *s, struct conj *c);

/* ---- schema_scalar.c: numbers; schema_string.c: strings ---- */
int number_node(struct schema *s, const struct alt *alt);
int number_is_empty(struct schema *s, const struct alt *alt);
int string_is_empty(struct schema *s, const struct alt *alt);
int string_node(struct schema *s, const struct alt *alt);
/* What is left of a body without the text that strings may not hold. */
int string_without(struct schema *s, int body);
/* The text between the quotes, spelled as values or as names of members. */
int string_body(struct schema *s, const struct alt *alt, bool name);

/* Counts a search through the values of an enum; 0, or -E2BIG. */
int values_step(struct schema *s, const struct atom *values);

/* ---- schema_escape.c ---- */
/* A string as JSON has it, with the quotes; the shortest spelling. */
int string_literal(struct schema *s, const char *p, size_t n);
/* Between the quotes, the same spelling. */
void string_escape(struct buf *out, const char *p, size_t n);
/* The spellings of what a node over characters matches: all, or the ones of names. */
int escape_node(struct schema *s, int node, bool name);
int escape_any_char(struct schema *s, bool name);

/* ---- schema_pattern.c ---- */
/* The strings, as they are, that a pattern matches somewhere; AST_FAILED after an error. */
int pattern_node(struct schema *s, const json_t *owner, const char *pattern);
/* 1, 0 or an error: whether a pattern matches somewhere in the text. */
int pattern_matches(struct schema *s, const json_t *owner, const char *pattern, const char *p, size_t n);
/* ---- schema_format.c ---- */
/* NULL: not a format of the specification. */
const char *format_pattern(const char *name);

/* ---- schema_array.c, schema_object.c ---- */
int array_node(struct schema *s, const struct alt *alt);
int object_node(struct schema *s, const struct alt *alt);
/* 1: no array (no object) satisfies alt, as far as that is found; 0, or an error. */
int array_is_empty(struct schema *s, const struct alt *alt);
int object_is_empty(struct schema *s, const struct alt *alt);
/* The first atom that asks for a member which no other atom names, and is not settled (strict); NULL: none.
 */
const struct atom *object_open_atom(const struct alt *alt);
/* 1: the atom speaks of a member of this name; 0, or an error. */
int object_in_scope(struct schema *s, const struct atom *open, const char *name);

/* ---- schema_names.c: what an alternative of objects says of a member ---- */
/* The names that alt speaks of: keys of an object, in the order in which members are written. */
json_t *object_names(const struct alt *alt);
/* additionalProperties of owner, or unevaluatedProperties; NULL: none. */
const json_t *object_additional(const json_t *owner);
/* 1: owner's properties or patterns know the name; 0, or an error. */
int object_knows(struct schema *s, const json_t *owner, const char *name);
/* Whether a name satisfies the schema in a: 1, 0 or an error. */
int names_fit(struct schema *s, const struct atom *a, const char *name);
/* What alt's atoms say, by name, so that each name costs the same however many there are. */
struct names;
struct names *names_new(const struct alt *alt);
void names_free(struct names *n);
size_t names_n_required(const struct names *n);
bool names_requires(const struct names *n, const char *name);
/* The member's conjunction; NULL: it may not be there, or *rc is an error. */
struct conj *names_value(struct schema *s, const struct names *n, const char *name, int *rc);
/* Whether some member that must be there may not; or *rc is an error. */
bool names_lack_value(struct schema *s, const struct names *n, int *rc);

/* ---- schema_regular.c: questions about regular nodes ---- */
/* 1, 0 or an error (-E2BIG). */
int regular_is_empty(struct schema *s, int node);
int regular_accepts(struct schema *s, int node, const char *p, size_t n);
void regulars_fini(struct schema *s);

#endif
