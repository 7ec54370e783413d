/* grammar_help.h - grammars of tests: from a regular expression or a tree, and which texts they accept. */
#ifndef QUERN_TESTS_UNIT_GRAMMAR_GRAMMAR_HELP_H
#define QUERN_TESTS_UNIT_GRAMMAR_GRAMMAR_HELP_H

#include "grammar/grammar.h"

#include <stdbool.h>
#include <stddef.h>

/* Of the tree, which is freed; fails the test where it does not compile. */
struct grammar *help_grammar(struct ast *a, const struct lexicon *v);
struct grammar *help_regex(const char *pattern, bool search);
/* Whether the whole text is accepted.  errors (-E2BIG) fail the test. */
bool help_accepts(struct grammar *g, const char *text, size_t n);
/* Each text up to a NULL. */
void help_texts(struct grammar *g, bool want, const char *const *texts);
#define help_yes(g, ...) help_texts(g, true, (const char *const[]){__VA_ARGS__, NULL})
#define help_no(g, ...)  help_texts(g, false, (const char *const[]){__VA_ARGS__, NULL})

#endif
