/* Any bytes as SentencePiece's tokenizer.model or, behind a zero byte, llama2.c's tokenizer.bin: refused with
 * a reason, or a tokenizer that encodes and decodes, streamed text included, which must equal the decoded
 * text. clang -fsanitize=fuzzer,address,undefined; seeds: tests/golden/tokenizer/spm_*'s, and files cut short
 */
#include "controller/tokenizer/detok.h"
#include "controller/tokenizer/tokenizer_impl.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void use(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
	struct token_ids ids = {0};
	struct buf whole = {0}, parts = {0};
	struct text_span span = {n / 3, n / 2};
	if (tokenizer_encode(t, text, n, flags, &span, 1, &ids, NULL, 0) == 0) {
		struct detok *d = detok_new(t, true, false);
		assert(tokenizer_decode(t, ids.ids, ids.n, true, &whole) == 0);
		for (size_t i = 0; i < ids.n; i++)
			detok_push(d, ids.ids[i], &parts);
		detok_flush(d, &parts);
		assert(parts.len == whole.len && (!whole.len || memcmp(parts.p, whole.p, whole.len) == 0));
		detok_free(d);
	}
	buf_fini(&whole);
	buf_fini(&parts);
	token_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char text[] = "The cat's <|user|> A\xcc\x8a CDE \xf0\x9f\xa6\x99  \xe2\x96\x81 "
				   "12345\n\n <s>donkey  \xef\xac\x81 x ";
	struct tokenizer *t;
	char why[256] = "";
	bool bin = n && !data[0];
	if (tokenizer_from_data(bin ? llama2c_file_read : spm_file_read, data + bin, n - bin, &t, why,
				sizeof why)) {
		assert(why[0]);
		return 0;
	}
	use(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL);
	use(t, text, sizeof text - 1, TOKENIZER_NO_SPECIAL);
	tokenizer_free(t);
	return 0;
}
