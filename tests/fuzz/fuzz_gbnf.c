/* fuzz_gbnf.c - arbitrary bytes as a grammar, and a text for it: grammar_fuzz.h.  Bytes that begin with { are
 * a GRAMMAR_COMPOSITE (no GBNF grammar begins so), others are GBNF.
 *
 *   make fuzz FUZZ=fuzz_gbnf */
#include "tests/fuzz/grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_grammar(n && data[0] == '{' ? GRAMMAR_COMPOSITE : GRAMMAR_GBNF, data, n);
}
