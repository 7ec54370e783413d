/* fuzz_tokenizer_model.c - arbitrary bytes as SentencePiece's tokenizer.model or, after a zero byte,
 * llama2.c's tokenizer.bin: refused with a reason, or a tokenizer that encodes and decodes; streamed text
 * must equal decoded text.
 * clang -fsanitize=fuzzer,address,undefined; seeds: tests/golden/tokenizer/spm_*'s, and truncated files */
#include "tests/fuzz/files/text_back.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char text[] = "The cat's <|user|> A\xcc\x8a CDE \xf0\x9f\xa6\x99  \xe2\x96\x81 "
				   "12345\n\n <s>donkey  \xef\xac\x81 x ";
	struct tokenizer *t;
	struct why why = {""};
	bool bin = n && !data[0];
	if (tokenizer_from_data(bin ? llama2c_file_read : spm_file_read, data + bin, n - bin, &t, &why)) {
		assert(why.text[0]);
		return 0;
	}
	text_back(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL);
	text_back(t, text, sizeof text - 1, TOKENIZER_NO_SPECIAL);
	tokenizer_free(t);
	return 0;
}
