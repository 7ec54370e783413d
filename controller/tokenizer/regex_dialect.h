/* regex_dialect.h - translates a pattern of tokenizer.json to PCRE2's syntax.
 * The files are written for Oniguruma in Ruby's syntax. \s, \w and \h are replaced by Oniguruma's
 * definitions; \p{L} and \p{N} are extended by the letters and numbers of later Unicode versions. A
 * construct that PCRE2 interprets differently and that cannot be translated is refused by name. */
#ifndef QUERN_CONTROLLER_TOKENIZER_REGEX_DIALECT_H
#define QUERN_CONTROLLER_TOKENIZER_REGEX_DIALECT_H

#include "base/buf.h"
#include "base/err.h"

/* Append the translated pattern to out.  -EINVAL with the reason. */
int regex_dialect(const char *pattern, struct buf *out, struct why *why);

#endif
