/* fuzz_regex.c - arbitrary bytes as a grammar (regex), and a text for it: grammar_fuzz.h.
 *
 *   make fuzz FUZZ=fuzz_regex */
#include "tests/fuzz/grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_grammar(GRAMMAR_REGEX, data, n);
}
