/* regex.h - regular expressions as a tree: ECMA-262 (with the u flag) as JSON schema's `pattern` uses it.
 *
 *     alternatives, groups (also named), * + ? {n} {n,} {n,m} (also lazy), . [...] [^...] ^ $
 *     \d \D \w \W \s \S \t \n \r \f \v \0 \xHH \uHHHH \u{H...} \cX \p{L} \P{Lu} \p{General_Category=Lu}
 *
 * What a language of texts cannot say, or what is not ECMA's, is refused by name: lookaround, references
 * back, \b, atomic groups, flags, properties other than general categories.  Matching never backtracks. */
#ifndef QUERN_GRAMMAR_REGEX_H
#define QUERN_GRAMMAR_REGEX_H

#include "grammar/ast.h"

#include <stdbool.h>
#include <stddef.h>

struct regex_options {
	bool search; /* the pattern may match anywhere in the text, as in JSON schema; else it matches the
			whole */
	bool dot_newline; /* . matches line ends too */
	/* One character of the set, as the text spells it; NULL: ast_chars().  For patterns on the contents
	 * of a JSON string: the quote becomes \". */
	int (*chars)(void *ctx, struct ast *a, const struct char_range *r, size_t n);
	void *ctx;
};

/* The node of pattern p[0..n), UTF-8; AST_FAILED with the reason in a (-EINVAL; -E2BIG for bounds). */
int regex_parse(struct ast *a, const char *p, size_t n, const struct regex_options *options);

#endif
