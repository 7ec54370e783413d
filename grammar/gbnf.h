/* gbnf.h - parses grammars in llama.cpp's GBNF to a tree.
 *
 *     root  ::= "yes" | "no" reason?        # the start; comments to the line's end
 *     reason ::= " because " [^\n]{1,80} .  # classes, * + ? {n} {n,} {n,m}, groups, . for any character
 *
 * Escapes in strings and classes: \n \t \r \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH. A rule ends at its line's
 * end, except within parentheses and after |. Tokens by number (<[12]>, <think>) are refused by name. */
#ifndef QUERN_GRAMMAR_GBNF_H
#define QUERN_GRAMMAR_GBNF_H

#include "grammar/ast.h"

/* Return the node of the rule root of p[0..n), UTF-8; AST_FAILED with the reason in a. */
int gbnf_parse(struct ast *a, const char *p, size_t n);

#endif
