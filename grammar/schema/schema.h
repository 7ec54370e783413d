/* schema.h - compiles a JSON schema to a grammar of the texts that it accepts.
 * Supports drafts 4, 6, 7, 2019-09 and 2020-12 (json-schema.org), as far as a grammar can decide them. Every
 * text of the grammar is JSON that validates. The grammar may exclude spellings of a valid value: other
 * escapes of a property's name, other orders of members, more whitespace than the policy allows, 1.0 for an
 * integer. Multiples decided digit by digit (of 7, say) have at most 15 digits, fewer for large divisors.
 * Keywords without meaning (titles, "x-..." and the like) are ignored, as the specification says. An
 * unsupported keyword that has a meaning is an error with its name and place; a schema that no value
 * satisfies is an error too.
 *
 *     schema      "anyOf": [{"$ref": "#/$defs/a"}, {"enum": [1]}], "minimum": 0
 *       | schema_expand: a disjunction of plain alternatives, each a set of types with assertions for each
 *     alternatives    {object: a's assertions}, {number: one of 1, at least 0}
 *       | schema_scalar, schema_string, schema_array, schema_object
 *     nodes of ast.h
 *
 * The option bounded excludes only texts that a weak model might never finish. An object that lists
 * properties and does not mention others (additionalProperties, unevaluatedProperties) has only members that
 * it lists, that match its patternProperties or that it requires. A number has at most SCHEMA_DIGITS_MAX
 * digits before the point, as many after it and SCHEMA_EXPONENT_MAX in its exponent, unless the schema's own
 * bounds are longer. All assertions on one value count together: the branches of allOf, anyOf, oneOf, if and
 * dependencies, and the target of a $ref. A satisfiable schema stays satisfiable: if minProperties exceeds
 * the listed properties, other members fill it up.
 *
 * The expansion is bounded in steps, alternatives and nodes, never in time. */
#ifndef QUERN_GRAMMAR_SCHEMA_SCHEMA_H
#define QUERN_GRAMMAR_SCHEMA_SCHEMA_H

#include "base/err.h"
#include "grammar/ast.h"

#include <jansson.h>

enum { SCHEMA_DIGITS_MAX = 20, SCHEMA_EXPONENT_MAX = 3, SCHEMA_SPACE_MAX = 20 };

enum schema_space {
	SCHEMA_SPACE_DEFAULT, /* SCHEMA_SPACE_ONE */
	SCHEMA_SPACE_COMPACT, /* no whitespace */
	SCHEMA_SPACE_ONE,     /* at most one blank after each comma and colon */
	/* up to max_space blanks, tabs, newlines and returns wherever JSON allows them */
	SCHEMA_SPACE_FLEXIBLE,
	SCHEMA_SPACE_PATTERN /* like FLEXIBLE, but only whitespace that space_pattern matches */
};

enum schema_strings {
	SCHEMA_STRINGS_JSON,  /* every spelling */
	SCHEMA_STRINGS_SHORT, /* the shortest spelling of each character, which is valid Python too */
	/* the contents of accepted strings, without quotes and escapes; no values of other types */
	SCHEMA_STRINGS_RAW,
};

struct schema_options {
	enum schema_space space;
	enum schema_strings strings;
	/* accept the values of this member of the root's properties; NULL: of the root */
	const char *property;
	bool python_words;   /* True, False, None instead of JSON's words */
	bool bounded;        /* close objects and limit digits of numbers: see above */
	const char *without; /* text that strings and unlisted names must not contain verbatim; NULL: none */
	/* characters per whitespace for SCHEMA_SPACE_FLEXIBLE and _PATTERN; 0:
	 * SCHEMA_SPACE_MAX; UINT_MAX: unbounded */
	unsigned max_space;
	/* regex.h, matches each whitespace as a whole; only for SCHEMA_SPACE_PATTERN, else NULL */
	const char *space_pattern;
	/* Accept any order in objects of at most this many known members; 0: none. Larger objects have a
	 * fixed order: listed properties as in the schema, then other required members, then the rest. */
	unsigned any_order;
	size_t max_steps; /* limit of the expansion; 0: 1 << 20 */
	/* counter shared by several schemas, all bounded by max_steps; NULL: count this schema alone */
	size_t *steps;
	size_t max_alternatives; /* alternatives per value; 0: 2,000 */
};

/* Set *node to a node for the texts that schema accepts. Return 0; -EINVAL: malformed, or no value satisfies
 * it; -ENOTSUP: an unsupported assertion; -E2BIG: a bound. why begins with the path in the schema
 * ("#/properties/a"). options may be NULL. */
int schema_node(struct ast *a, const json_t *schema, const struct schema_options *options, int *node,
		struct why *why);

#endif
