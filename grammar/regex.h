/* regex.h - parses regular expressions to a tree: ECMA-262 (with the u flag), as JSON schema's `pattern`
 * uses it.
 *
 *     alternatives, groups (also named), * + ? {n} {n,} {n,m} (also lazy), . [...] [^...] ^ $
 *     (?i:...) (?s-i:...), and (?i) at the beginning: the flags i and s
 *     \d \D \w \W \s \S \t \n \r \f \v \0 \xHH \uHHHH \u{H...} \cX \p{L} \P{Lu} \p{General_Category=Lu}
 *
 * Constructs that are not regular or not ECMA's are refused by name: lookaround, back-references, \b, atomic
 * groups, other flags, properties other than general categories. Matching never backtracks. */
#ifndef QUERN_GRAMMAR_REGEX_H
#define QUERN_GRAMMAR_REGEX_H

#include "grammar/ast.h"

#include <stdbool.h>
#include <stddef.h>

struct regex_options {
	/* the pattern may match anywhere in the text, as in JSON schema; false: it matches the whole text */
	bool search;
	bool dot_newline; /* . matches line ends too, as with the flag s */
	bool any_case;    /* as with the flag i: Unicode simple case folding */
	/* Make the node for one character of the set, as the text spells it; NULL: ast_chars(). Used for
	 * patterns on the contents of a JSON string, where the quote is \". */
	int (*chars)(void *ctx, struct ast *a, const struct char_range *r, size_t n);
	void *ctx;
};

/* Return the node of pattern p[0..n), UTF-8; AST_FAILED with the reason in a (-EINVAL; -E2BIG for bounds). */
int regex_parse(struct ast *a, const char *p, size_t n, const struct regex_options *options);

#endif
