/* text_back.h - encode a text with a tokenizer and decode it back. */
#ifndef QUERN_TESTS_FUZZ_FILES_TEXT_BACK_H
#define QUERN_TESTS_FUZZ_FILES_TEXT_BACK_H

#include "controller/tokenizer/detok.h"
#include "controller/tokenizer/tokenizer_impl.h"

#include <assert.h>
#include <string.h>

/* If the text can be encoded, assert that decoding token by token, as a stream does, gives the same bytes as
 * decoding all ids at once.  A span of the text is marked as written by a template; flags: of
 * tokenizer_encode(). */
static inline void text_back(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
	struct token_ids ids = {0};
	struct buf whole = {0}, parts = {0};
	struct text_span span = {n / 3, n / 2};
	if (tokenizer_encode(t, text, n, flags, &span, 1, &ids, NULL) == 0) {
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

#endif
