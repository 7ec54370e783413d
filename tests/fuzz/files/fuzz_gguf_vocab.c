/* fuzz_gguf_vocab.c - arbitrary bytes as a GGUF file with a tokenizer: refused with a reason, or a tokenizer
 * that encodes and decodes; streamed text must equal decoded text.  The chat template is read, too.
 * clang -fsanitize=fuzzer,address,undefined; seeds: tests/golden/tokenizer/gguf_*.gguf */
#include "controller/chat/chat_template.h"
#include "tests/fuzz/files/text_back.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char text[] = "The cat's <|begin|> A\xcc\x8a \xf0\x9f\xa6\x99  \xe2\x96\x81 12345\n\n "
				   "<s>donkey  \xef\xac\x81 x ";
	struct tokenizer *t;
	struct chat_template template;
	struct why why = {""};
	char path[64];
	int fd = memfd_create("vocab", 0);
	assert(fd >= 0 && write(fd, data, n) == (ssize_t)n);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (tokenizer_load(path, &t, &why)) {
		assert(why.text[0]);
	} else {
		text_back(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL);
		text_back(t, text, sizeof text - 1, TOKENIZER_NO_SPECIAL);
		tokenizer_free(t);
	}
	if (chat_template_load(path, &template, &why) == 0)
		chat_template_fini(&template);
	close(fd);
	return 0;
}
