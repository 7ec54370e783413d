/* fuzz_tokenizer_json.c - arbitrary bytes as tokenizer.json: refused with a reason, or a tokenizer that
 * encodes and decodes; streamed text must equal decoded text.
 * clang -fsanitize=fuzzer,address,undefined; seeds: tests/golden/tokenizer/<name>/tokenizer.json */
#include "tests/fuzz/files/text_back.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char text[] =
		"The cat's <|im_start|> e\xcc\x81 \xf0\x9f\xa6\x99  \xe2\x96\x81 12345\n\n <s>donk <mask>  x";
	struct tokenizer *t;
	struct why why = {""};
	if (tokenizer_from_text((const char *)data, n, &t, &why)) {
		assert(why.text[0]);
		return 0;
	}
	text_back(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL);
	text_back(t, text, sizeof text - 1, TOKENIZER_NO_SPECIAL);
	tokenizer_free(t);
	return 0;
}
