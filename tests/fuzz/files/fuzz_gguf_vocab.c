/* Any bytes as a GGUF file with a tokenizer: refused with a reason, or a tokenizer that encodes and decodes,
 * streamed text included, which must equal the decoded text; its chat template is read, too.
 * clang -fsanitize=fuzzer,address,undefined; seeds: tests/golden/tokenizer/gguf_*.gguf */
#include "controller/chat/chat_template.h"
#include "controller/tokenizer/detok.h"
#include "controller/tokenizer/tokenizer_impl.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
	static const char text[] = "The cat's <|begin|> A\xcc\x8a \xf0\x9f\xa6\x99  \xe2\x96\x81 12345\n\n "
				   "<s>donkey  \xef\xac\x81 x ";
	struct tokenizer *t;
	struct chat_template template;
	char why[512] = "", path[64];
	int fd = memfd_create("vocab", 0);
	assert(fd >= 0 && write(fd, data, n) == (ssize_t)n);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (tokenizer_load(path, &t, why, sizeof why)) {
		assert(why[0]);
	} else {
		use(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL);
		use(t, text, sizeof text - 1, TOKENIZER_NO_SPECIAL);
		tokenizer_free(t);
	}
	if (chat_template_load(path, &template, why, sizeof why) == 0)
		chat_template_fini(&template);
	close(fd);
	return 0;
}
