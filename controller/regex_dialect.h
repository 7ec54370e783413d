/* regex_dialect.h - a pattern of tokenizer.json in PCRE2's words.
 * The files are written for Oniguruma in Ruby's syntax.  What differs and can be said is
 * rewritten: \s and \w and \h by their definitions there, \p{L} and \p{N} with the letters and
 * numbers of later Unicode versions.  What differs and cannot is refused by name. */
#ifndef QUERN_CONTROLLER_REGEX_DIALECT_H
#define QUERN_CONTROLLER_REGEX_DIALECT_H

#include "base/buf.h"

/* Append to out.  -EINVAL with the reason. */
int regex_dialect(const char *pattern, struct buf *out, char *why, size_t why_n);

#endif
