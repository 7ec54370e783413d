/* splitter.h - finds the matches of a split pattern in a text.
 *
 * Uses PCRE2 with JIT and a pattern translated by regex_dialect.h. The patterns of GPT-2, Llama 3 and Qwen
 * are recognized and matched by hand-written code, which is several times as fast; a test compares both. */
#ifndef QUERN_CONTROLLER_TOKENIZER_SPLITTER_H
#define QUERN_CONTROLLER_TOKENIZER_SPLITTER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum splitter_kind {
	SPLITTER_LITERAL,
	SPLITTER_REGEX,
	/* this kind and the next match everywhere: each match begins at the end of the last */
	SPLITTER_GPT2,
	SPLITTER_LLAMA3, /* also Qwen's, which splits numbers into single digits */
};

/* The pattern of the ByteLevel pre-tokenizer. */
extern const char splitter_gpt2_pattern[];

struct splitter {
	enum splitter_kind kind;
	char *text; /* the literal; or the pattern, for messages */
	size_t n;
	int max_digits; /* LLAMA3 */
	void *code;     /* REGEX: pcre2_code */
};

/* Compile a pattern: a regex, or a literal string. by_hand false: use PCRE2 even for known patterns (for
 * tests). -EINVAL with the reason. */
int splitter_init(struct splitter *s, bool regex, const char *pattern, bool by_hand, struct why *why);
void splitter_fini(struct splitter *s);

/* State of one call; zero-initialized. */
struct splitter_match {
	void *data;
	void *context;
	void *stack;
};
void splitter_match_fini(struct splitter_match *m);

/* Return 1 and set *from, *to to the first match in text[at..n), possibly empty; 0: no match; -E2BIG: the
 * pattern takes too long on this text. */
int splitter_next(const struct splitter *s, struct splitter_match *m, const char *text, size_t n, size_t at,
		  size_t *from, size_t *to, struct why *why);

/* Return the end of the word at text[at] under the patterns of GPT2 and LLAMA3. */
size_t splitter_gpt2(const char *text, size_t n, size_t at);
size_t splitter_llama3(const char *text, size_t n, size_t at, int max_digits);

#endif
