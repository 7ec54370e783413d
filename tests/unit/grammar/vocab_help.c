#include "tests/unit/grammar/vocab_help.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "controller/tokenizer/tokenizer.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct lexicon *help_real_lexicon(const char *name)
{
	struct tokenizer *t = help_shared(name);
	if (!t)
		return NULL;
	uint32_t n = tokenizer_n_vocab(t);
	struct lexicon_token *tokens = xcalloc(n, sizeof *tokens);
	struct buf piece = {0};
	for (uint32_t i = 0; i < n; i++) {
		buf_clear(&piece);
		tokenizer_piece(t, i, &piece);
		tokens[i] = (struct lexicon_token){xmemdup(piece.len ? piece.p : "", piece.len + 1),
						   (uint32_t)piece.len,
						   (int64_t)i == tokenizer_eos(t) ? LEXICON_END
						   : tokenizer_is_special(t, i)   ? LEXICON_CONTROL
										  : LEXICON_TEXT};
	}
	struct lexicon *v = NULL;
	cr_assert_eq(lexicon_new(tokens, n, &v, NULL), 0);
	for (uint32_t i = 0; i < n; i++)
		free((char *)tokens[i].bytes);
	free(tokens);
	buf_fini(&piece);
	tokenizer_free(t);
	return v;
}

uint64_t help_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

struct lexicon *help_random_lexicon(uint64_t *seed)
{
	static const char *const parts[] = {"a",        "b",    "c",  "ab",       "\"",           "{",
					    "}",        ":",    ",",  " ",        "\\",           "0",
					    "7",        "xyz",  "\n", "\xc3\xa4", "\xe4\xb8\xad", "\xf0\x9f",
					    "\x98\x80", "true", "[",  "]"};
	enum { N_WORDS = 3000, N = 256 + N_WORDS + 3 };
	static char bytes[256];
	struct lexicon_token *tokens = xcalloc(N, sizeof *tokens);
	struct lexicon *v = NULL;
	for (unsigned b = 0; b < 256; b++) {
		bytes[b] = (char)b;
		tokens[b] = (struct lexicon_token){&bytes[b], 1, LEXICON_TEXT};
	}
	for (int i = 0; i < N_WORDS; i++) {
		struct buf word = {0};
		bool one = help_random(seed) % 4 == 0; /* also long tokens of one repeated part */
		unsigned part = (unsigned)(help_random(seed) % (sizeof parts / sizeof *parts));
		unsigned most = help_random(seed) % 4 ? 4 : 40;
		for (unsigned k = 1 + (unsigned)(help_random(seed) % most); k && word.len < 40; k--) {
			if (!one)
				part = (unsigned)(help_random(seed) % (sizeof parts / sizeof *parts));
			buf_puts(&word, parts[part]);
		}
		tokens[256 + i] = (struct lexicon_token){word.p, (uint32_t)word.len, LEXICON_TEXT};
	}
	tokens[N - 3] = (struct lexicon_token){"", 0, LEXICON_TEXT};
	tokens[N - 2] = (struct lexicon_token){"a", 1, LEXICON_CONTROL};
	tokens[N - 1] = (struct lexicon_token){"</s>", 4, LEXICON_END};
	cr_assert_eq(lexicon_new(tokens, N, &v, NULL), 0);
	for (int i = 0; i < N_WORDS; i++)
		free((char *)tokens[256 + i].bytes);
	free(tokens);
	return v;
}
