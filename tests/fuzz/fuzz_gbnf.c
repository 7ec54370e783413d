/* Any bytes as a grammar (gbnf; from { on, which begins none, a form), and a text on it: grammar_fuzz.h.
 *
 *   make fuzz FUZZ=fuzz_gbnf */
#include "tests/fuzz/grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_grammar(n && data[0] == '{' ? GRAMMAR_FORM : GRAMMAR_GBNF, data, n);
}
