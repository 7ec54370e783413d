/* schema.h - a JSON schema as a grammar of the texts that it accepts.
 * Knows drafts 4, 6, 7, 2019-09 and 2020-12 (json-schema.org), as far as a grammar can decide them.  Every
 * text of the grammar is JSON that validates; the grammar may leave out spellings of a valid value: other
 * escapes of a property's name, other orders of members, more whitespace than the policy has, 1.0 for an
 * integer; and multiples that are found digit by digit (of 7, say) end at 15 digits, or fewer for large ones.
 * Keywords without meaning (titles, "x-..." and the like) are ignored, as the specification says.
 * One with a meaning that is not decided here is an error that names it and where it is, and so is a schema
 * that no value satisfies.
 *
 *     schema      "anyOf": [{"$ref": "#/$defs/a"}, {"enum": [1]}], "minimum": 0
 *       | schema_expand: a disjunction of plain alternatives, each a set of types with what holds for each
 *     alternatives    {object: a's assertions}, {number: one of 1, at least 0}
 *       | schema_scalar, schema_string, schema_array, schema_object
 *     nodes of ast.h
 *
 * The expansion is bounded in steps, alternatives and nodes, never in time. */
#ifndef QUERN_GRAMMAR_SCHEMA_SCHEMA_H
#define QUERN_GRAMMAR_SCHEMA_SCHEMA_H

#include "grammar/ast.h"

#include <jansson.h>

enum schema_space {
	SCHEMA_SPACE_DEFAULT,  /* SCHEMA_SPACE_ONE */
	SCHEMA_SPACE_COMPACT,  /* none */
	SCHEMA_SPACE_ONE,      /* at most one blank behind a comma and a colon */
	SCHEMA_SPACE_FLEXIBLE, /* up to max_space of blank, tab, newline and return wherever JSON has them */
	SCHEMA_SPACE_PATTERN   /* of these, the ones that space_pattern matches */
};

enum schema_strings {
	SCHEMA_STRINGS_JSON,  /* every spelling */
	SCHEMA_STRINGS_SHORT, /* the shortest one of each character, which is one of Python's, too */
	SCHEMA_STRINGS_RAW, /* the strings that the schema accepts, as they are: no quotes, no escapes, and no
			     * values of other types */
};

struct schema_options {
	enum schema_space space;
	enum schema_strings strings;
	const char *property; /* only the values of this member of the root's properties; NULL: of the root */
	bool python_words;    /* True, False, None */
	const char *without;  /* strings and unknown names do not hold this text as it is; NULL: any text */
	unsigned max_space;   /* of SCHEMA_SPACE_FLEXIBLE and SCHEMA_SPACE_PATTERN; 0: 20 */
	const char *space_pattern; /* regex.h, the whole of each piece of whitespace; NULL but for
				    * SCHEMA_SPACE_PATTERN */
	unsigned any_order; /* an object of at most so many known members takes them in any order; 0: none.
			     * Longer ones, and all by default: properties as the schema lists them, then
			     * what it requires beside them, then others */
	size_t max_steps;   /* of the expansion; 0: 1 << 20 */
	size_t *steps;      /* of several schemas, which max_steps bounds together; NULL: of this one */
	size_t max_alternatives; /* of one value; 0: 2,000 */
};

/* A node for the texts that schema accepts.  0; -EINVAL: malformed, or no value satisfies it; -ENOTSUP: an
 * assertion that is not decided; -E2BIG: a bound.  why begins with the path in the schema ("#/properties/a").
 * options may be NULL. */
int schema_node(struct ast *a, const json_t *schema, const struct schema_options *options, int *node,
		char *why, size_t why_n);

#endif
