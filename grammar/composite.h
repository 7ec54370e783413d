/* composite.h - structured output as a JSON document that combines grammars: reasoning, then tool calls;
 * free text with calls in it.
 *
 *     {"type": "sequence", "parts": [
 *         {"type": "text", "until": ["</think>"]}, {"type": "literal", "text": "</think>"},
 *         {"type": "repeat", "min": 1, "part": {"type": "schema", "schema": {"type": "object"}}}]}
 *
 *     type        matches
 *     schema      JSON that "schema" accepts (schema/schema.h). Options:
 *                 "strings": "json", or "short" for only the shortest spelling of each string, which
 *                 is valid Python too; "without": a text that no string contains;
 *                 "space": "one" (at most one blank after commas and colons), "none", or
 *                 {"pattern": ...}: wherever JSON has whitespace, whitespace that matches the pattern
 *                 (regex.h), at most 20 characters, or unbounded with "max": null;
 *                 "words": "json", or "python" for True, False, None;
 *                 "property": only the values of this member of the schema's properties
 *     regex       "pattern" (regex.h), the whole text
 *     gbnf, lark  "grammar" (gbnf.h, lark.h)
 *     choice      one of the strings in "choices"
 *     literal     "text"
 *     token       the special token with this "text"; ordinary text with the same letters does not
 *                 match (lexicon.h)
 *     text        any characters without the strings in "until" (optional); with "schema", a string
 *                 that the schema accepts, without quotes and escapes
 *     sequence    "parts", in order
 *     either      one of "parts"
 *     repeat      "part", "min" (default 0) to "max" (default: unbounded) times
 *     option      "part", or nothing
 *     rules       "part"; it and the rules may refer to the entries of "rules" by name
 *     rule        the rule with this "name" in the nearest enclosing "rules" that has one
 *     bounded     "part", in which schemas are bounded (schema/schema.h); adds nothing to the path
 *     budget      nothing, once the whole output has "tokens" tokens (ast.h); one number per document
 *
 * Anything else is refused, by its path ("#/parts/1/schema"). The limits of each language apply. */
#ifndef QUERN_GRAMMAR_COMPOSITE_H
#define QUERN_GRAMMAR_COMPOSITE_H

#include "base/err.h"
#include "grammar/ast.h"

enum {
	COMPOSITE_DEPTH_MAX = 64,  /* nesting of parts */
	COMPOSITE_TOKEN_MAX = 256, /* bytes of a special token's text */
};

/* Set *node to the node of the document text[0..n). Return 0; -EINVAL, -E2BIG, -ENOTSUP: why begins
 * with the path. */
int composite_parse(struct ast *a, const char *text, size_t n, int *node, struct why *why);

#endif
