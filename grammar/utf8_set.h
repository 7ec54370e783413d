/* utf8_set.h - a set of characters as an expression over the bytes of their UTF-8 encoding (RFC 3629). */
#ifndef QUERN_GRAMMAR_UTF8_SET_H
#define QUERN_GRAMMAR_UTF8_SET_H

#include "grammar/ast.h"
#include "grammar/expr.h"

/* Return the expression for one character of r[0..n): ascending, disjoint, without surrogates, as
 * ast_ranges() returns them. */
uint32_t utf8_set_expr(struct exprs *x, const struct char_range *r, size_t n);

#endif
