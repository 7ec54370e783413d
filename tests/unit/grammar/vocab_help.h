/* vocab_help.h - vocabularies of tests: real ones, and a small one that is all bytes and some words. */
#ifndef QUERN_TESTS_UNIT_GRAMMAR_VOCAB_HELP_H
#define QUERN_TESTS_UNIT_GRAMMAR_VOCAB_HELP_H

#include "grammar/lexicon.h"

#include <stdbool.h>

/* Of the test data's tokenizers/ (special tokens are control tokens, the end token ends); NULL: not there. */
struct lexicon *help_real_lexicon(const char *name);
/* Every byte, 3,000 random words of one to 40 bytes of what grammars are made of, duplicates, empty and
 * control tokens; the last token ends. */
struct lexicon *help_random_lexicon(uint64_t *seed);
uint64_t help_random(uint64_t *seed); /* xorshift */

#endif
