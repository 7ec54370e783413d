/* vocab_help.h - vocabularies for tests: real ones, and a small one of all bytes and some words. */
#ifndef QUERN_TESTS_UNIT_GRAMMAR_VOCAB_HELP_H
#define QUERN_TESTS_UNIT_GRAMMAR_VOCAB_HELP_H

#include "grammar/lexicon.h"

#include <stdbool.h>

/* Load a vocabulary of the test data's tokenizers/ (special tokens are control tokens, the end token ends);
 * NULL if it is missing. */
struct lexicon *help_real_lexicon(const char *name);
/* Make a vocabulary of every byte, 3,000 random words of 1 to 40 bytes typical of grammars, duplicates, empty
 * tokens and control tokens. The last token ends. */
struct lexicon *help_random_lexicon(uint64_t *seed);
uint64_t help_random(uint64_t *seed); /* xorshift */

#endif
