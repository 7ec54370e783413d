/* form_source.h - what an output must look like, as a JSON document that combines grammars: a thought, then
 * calls of tools; free text with calls in it.
 *
 *     {"type": "sequence", "parts": [
 *         {"type": "text", "until": ["</think>"]}, {"type": "literal", "text": "</think>"},
 *         {"type": "repeat", "min": 1, "part": {"type": "schema", "schema": {"type": "object"}}}]}
 *
 *     type        matches
 *     schema      JSON that "schema" accepts (schema/schema.h); "strings": "json", or "short" for one
 *                 spelling of each, the shortest, which is Python's, too; "without": a text that no
 *                 string in it holds; "space": "one" blank at most behind commas and colons, or "none", or
 *                 {"pattern": ...}: wherever JSON has whitespace, what the pattern (regex.h) matches of it,
 *                 20 characters at most;
 *                 "words": "json", or "python" for True, False, None; "property": only the values of this
 *                 member of the schema's properties
 *     regex       "pattern" (regex.h), the whole text
 *     gbnf, lark  "grammar" (gbnf.h, lark.h)
 *     choice      one of the strings in "choices"
 *     literal     "text"
 *     token       the special token with this "text": no text of the same letters (lexicon.h)
 *     text        any characters, but none of the strings in "until" (may be left out); with "schema",
 *                 a string that it accepts, as it is, without quotes and escapes
 *     sequence    "parts", one behind the other
 *     either      one of "parts"
 *     repeat      "part", "min" (0) to "max" times (left out: no bound)
 *     option      "part", or nothing
 *     rules       "part", in which "rules", parts by their names, may be referred to, also by each other and
 *                 themselves
 *     rule        the rule with this "name" of the nearest part around that has one
 *     budget      nothing, once the whole output has "tokens" tokens (ast.h); one number per document
 *
 * Anything else is refused, by its path ("#/parts/1/schema").  Bounded as the languages are. */
#ifndef QUERN_GRAMMAR_FORM_SOURCE_H
#define QUERN_GRAMMAR_FORM_SOURCE_H

#include "grammar/ast.h"

enum {
	FORM_DEPTH_MAX = 64,  /* of parts within parts */
	FORM_TOKEN_MAX = 256, /* bytes of a special token's text */
};

/* The node of the document text[0..n).  0; -EINVAL, -E2BIG, -ENOTSUP: why begins with the path. */
int form_source_parse(struct ast *a, const char *text, size_t n, int *node, char *why, size_t why_n);

#endif
