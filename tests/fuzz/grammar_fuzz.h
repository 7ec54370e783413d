/* grammar_fuzz.h - parse arbitrary bytes as a grammar, and match a text with it.  The grammar is refused with
 * a reason, or followed within its limits.  The mask over a small vocabulary must allow exactly the bytes
 * that the matcher accepts, and a copy of a matcher must be in the same state. */
#ifndef QUERN_TESTS_FUZZ_GRAMMAR_FUZZ_H
#define QUERN_TESTS_FUZZ_GRAMMAR_FUZZ_H

#include "base/err.h"
#include "grammar/grammar.h"
#include "grammar/source.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

/* Return a vocabulary with a token for every byte, and an end token. */
static inline struct lexicon *fuzz_lexicon(void)
{
	static char bytes[256];
	static struct lexicon *v;
	struct lexicon_token tokens[257];
	if (v)
		return v;
	for (unsigned b = 0; b < 256; b++) {
		bytes[b] = (char)b;
		tokens[b] = (struct lexicon_token){&bytes[b], 1, LEXICON_TEXT};
	}
	tokens[256] = (struct lexicon_token){"", 0, LEXICON_END};
	int rc = lexicon_new(tokens, 257, &v, NULL);
	assert(rc == 0);
	return v;
}

/* Match text; replace a byte that is not allowed by the next allowed byte. */
static inline void fuzz_follow(struct grammar *g, const uint8_t *text, size_t n)
{
	struct matcher *m = matcher_new(g), *again;
	for (size_t i = 0; i < n; i++) {
		const uint32_t *mask;
		uint32_t byte = text[i];
		bool end;
		if (matcher_mask(m, &mask))
			break;
		bool allowed = mask[byte >> 5] >> (byte & 31) & 1, may_end = mask[8] & 1;
		int rc = matcher_can_end(m, &end);
		assert(rc || end == may_end);
		again = matcher_copy(m);
		rc = matcher_accept(again, byte);
		assert((rc == 0) == allowed || rc == -E2BIG);
		matcher_free(again);
		for (uint32_t k = 0; !allowed && k < 256; k++) {
			byte = (byte + 1) & 255;
			allowed = mask[byte >> 5] >> (byte & 31) & 1;
		}
		if (!allowed || matcher_accept(m, byte))
			break;
	}
	matcher_free(m);
}

/* Test with a grammar (data up to the first NUL) and a text (data after it). */
static inline int fuzz_grammar(enum grammar_language language, const uint8_t *data, size_t n)
{
	static const struct ast_limits limits = {.nodes = 20000, .bytes = 1 << 20};
	static const struct grammar_limits small = {.state_bytes = 8 << 20, .mask_bytes = 1};
	const uint8_t *nul = memchr(data, 0, n);
	size_t n_grammar = nul ? (size_t)(nul - data) : n;
	struct why why = {""};
	struct ast *a;
	struct grammar *g;
	int rc = grammar_parse(language, (const char *)data, n_grammar, &limits, &a, &why);
	if (rc) {
		assert(why.text[0] && !a);
		return 0;
	}
	rc = grammar_new(a, fuzz_lexicon(), &small, &g, &why);
	ast_free(a);
	if (rc) {
		assert(why.text[0] && (rc == -EINVAL || rc == -E2BIG));
		return 0;
	}
	fuzz_follow(g, nul ? nul + 1 : data, nul ? n - n_grammar - 1 : n < 64 ? n : 64);
	grammar_free(g);
	return 0;
}

#endif
