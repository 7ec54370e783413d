/* guide_help.h - a guide with a small vocabulary, and checks of the tokens that its slots may sample. */
#ifndef QUERN_TESTS_UNIT_WORKER_GUIDE_HELP_H
#define QUERN_TESTS_UNIT_WORKER_GUIDE_HELP_H

#include "base/err.h"
#include "worker/guide.h"

#include "grammar/source.h"

#include <criterion/criterion.h>
#include <string.h>

/* Token t < 256 is the byte t. Then come some words, and two tokens that end a text. */
static const char *const words[] = {"true", "false", "{\"a\":", "ab", "abc", "0123456789"};
enum { N_WORDS = 6, AB = 256 + 3, END = 256 + N_WORDS, END2, N_TOKENS, N_VOCAB = 300, WORDS = 10 };
enum { SLOTS = 8 };

static struct guide *g;
static struct vocabulary vocabulary;
static char bytes[512];
static uint32_t at[N_TOKENS + 1], mask[WORDS];
static uint8_t kinds[N_TOKENS];

static inline void add(uint32_t *n, const char *p, size_t len, uint8_t kind)
{
	memcpy(bytes + at[*n], p, len);
	kinds[*n] = kind;
	at[*n + 1] = at[*n] + (uint32_t)len;
	++*n;
}

static inline void make_vocabulary(void)
{
	uint32_t n = 0;
	for (int b = 0; b < 256; b++)
		add(&n, &(char){(char)b}, 1, VOCABULARY_TEXT);
	for (int i = 0; i < N_WORDS; i++)
		add(&n, words[i], strlen(words[i]), VOCABULARY_TEXT);
	add(&n, "<eos>", 5, VOCABULARY_END);
	add(&n, "<eot>", 5, VOCABULARY_END);
	vocabulary = (struct vocabulary){.n = n, .at = at, .kinds = kinds, .bytes = bytes};
}

static inline void constraint(uint32_t number, enum grammar_language language, const char *text)
{
	struct constraint *f = constraint_new((uint8_t)language, text, strlen(text));
	guide_add(g, number, f);
	constraint_free(f);
}

static inline void set(uint32_t slot, uint32_t number, const char *output)
{
	uint32_t ids[64], n = (uint32_t)strlen(output);
	struct why why;
	for (uint32_t i = 0; i < n; i++)
		ids[i] = (unsigned char)output[i];
	cr_assert_eq(guide_set(g, slot, number, ids, n, &why), 0, "%s", why.text);
}

static inline bool allows(const uint32_t *m, uint32_t token)
{
	return m[token / 32] >> token % 32 & 1;
}

/* Expects that the slot may continue with exactly these tokens: bytes, 'W' + word for the words, '$' for both
 * ends. */
static inline void may(uint32_t slot, const char *tokens)
{
	uint32_t want[WORDS] = {0};
	for (const char *p = tokens; *p; p++) {
		uint32_t t = (unsigned char)*p;
		if (*p == 'W')
			t = 256 + (uint32_t)(*++p - '0');
		if (*p == '$')
			want[END2 / 32] |= 1u << END2 % 32, t = END;
		want[t / 32] |= 1u << t % 32;
	}
	memset(mask, 0xa5, sizeof mask);
	cr_assert(guide_mask(g, slot, 1, mask), "slot %u: no mask, %s", slot, guide_take_failure(g, slot));
	for (uint32_t t = 0; t < WORDS * 32; t++)
		cr_assert_eq(allows(mask, t), allows(want, t), "slot %u: token %u is %s", slot, t,
			     allows(mask, t) ? "allowed" : "not allowed");
}

static inline void fails(uint32_t slot, const char *reason)
{
	cr_assert_not(guide_mask(g, slot, 1, mask));
	const char *why = guide_take_failure(g, slot);
	cr_assert(why && strstr(why, reason), "\"%s\" does not say \"%s\"", why ? why : "", reason);
	cr_assert_not(guide_mask(g, slot, 1, mask));
	cr_assert_null(guide_take_failure(g, slot), "told twice");
}

/* The slot samples `token` as the token with this index in a plan. */
static inline void sample(uint32_t slot, uint64_t plan, uint32_t index, int32_t token)
{
	int32_t tokens[4] = {-1, -1, -1, -1};
	tokens[index] = token;
	guide_expect(g, slot, plan, index);
	guide_receive(g, plan, tokens, 4);
}

#endif
