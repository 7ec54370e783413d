/* grammar_help.h - builds grammars from regular expressions or trees, and checks which texts they accept. */
#ifndef QUERN_TESTS_UNIT_GRAMMAR_GRAMMAR_HELP_H
#define QUERN_TESTS_UNIT_GRAMMAR_GRAMMAR_HELP_H

#include "grammar/grammar.h"

#include <stdbool.h>
#include <stddef.h>

/* Compile the tree, and free it. Fails the test if the tree does not compile. */
struct grammar *help_grammar(struct ast *a, const struct lexicon *v);
struct grammar *help_regex(const char *pattern, bool search);
/* Return whether the whole text is accepted. An error (-E2BIG) fails the test. */
bool help_accepts(struct grammar *g, const char *text, size_t n);
/* Check each text; NULL ends the list. */
void help_texts(struct grammar *g, bool want, const char *const *texts);
#define help_yes(g, ...) help_texts(g, true, (const char *const[]){__VA_ARGS__, NULL})
#define help_no(g, ...)  help_texts(g, false, (const char *const[]){__VA_ARGS__, NULL})

#endif
