/* fuzz_lark.c - arbitrary bytes as a grammar (lark), and a text for it: grammar_fuzz.h.
 *
 *   make fuzz FUZZ=fuzz_lark */
#include "tests/fuzz/grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_grammar(GRAMMAR_LARK, data, n);
}
