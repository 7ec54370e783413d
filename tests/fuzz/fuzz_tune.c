/* fuzz_tune.c - arbitrary bytes as the file of crossovers that --fast reads: refused with a reason and
 * nothing kept, or all values valid.
 *
 *   make fuzz FUZZ=fuzz_tune */
#include "worker/tune.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct tune t;
	struct why why = {""};
	char *text = malloc(n + 1); /* exact size, so that a read beyond the end is detected */
	if (n)
		memcpy(text, data, n);
	text[n] = 0;
	if (tune_parse(&t, text, n, &why))
		assert(why.text[0] && t.n == 0);
	else
		assert(t.device[0] && t.isa[0] && t.build[0]);
	for (int i = 0; i < t.n; i++)
		assert((t.layers[i].k > 0) == (t.layers[i].n > 0) && t.layers[i].k >= 0 &&
		       t.layers[i].rows >= 0);
	free(text);
	return 0;
}
