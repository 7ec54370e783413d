/* splitter.h - finds the matches of a split pattern in a text.
 *
 * In general by PCRE2 with JIT, with the pattern translated to its syntax (regex_dialect.h).  The
 * patterns of GPT-2, Llama 3 and Qwen are recognized and matched by hand-written code, several times as
 * fast; a test compares the two. */
#ifndef QUERN_CONTROLLER_TOKENIZER_SPLITTER_H
#define QUERN_CONTROLLER_TOKENIZER_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>

enum splitter_kind {
	SPLITTER_LITERAL,
	SPLITTER_REGEX,
	SPLITTER_GPT2,   /* these two match everywhere: a match begins where the last one ended */
	SPLITTER_LLAMA3, /* also Qwen's, where numbers are split into single digits */
};

/* The pattern of ByteLevel. */
extern const char splitter_gpt2_pattern[];

struct splitter {
	enum splitter_kind kind;
	char *text; /* literal; or the pattern, for messages */
	size_t n;
	int max_digits; /* LLAMA3 */
	void *code;     /* REGEX: pcre2_code */
};

/* Compiles a pattern: a regex, or a literal string.  by_hand false: PCRE2 for known patterns too (for
 * tests).  -EINVAL with the reason. */
int splitter_init(struct splitter *s, bool regex, const char *pattern, bool by_hand, char *why, size_t why_n);
void splitter_fini(struct splitter *s);

/* State of one call; zero-initialised. */
struct splitter_match {
	void *data;
	void *context;
	void *stack;
};
void splitter_match_fini(struct splitter_match *m);

/* 1: *from, *to is the first match in text[at..n), possibly empty; 0: none; -E2BIG: the pattern takes too
 * long on this text. */
int splitter_next(const struct splitter *s, struct splitter_match *m, const char *text, size_t n, size_t at,
		  size_t *from, size_t *to, char *why, size_t why_n);

/* The ends of the words of GPT2 and LLAMA3. */
size_t splitter_gpt2(const char *text, size_t n, size_t at);
size_t splitter_llama3(const char *text, size_t n, size_t at, int max_digits);

#endif
