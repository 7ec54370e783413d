/* splitter.h - finds the matches of a split pattern in a text.
 *
 * The general way is PCRE2 with JIT, with the pattern brought from the dialect of the files
 * (Oniguruma, Ruby syntax) to PCRE2's; what cannot be brought over is named.  The patterns of
 * GPT-2, Llama 3 and Qwen are recognized and matched by hand, several times as fast; a test
 * compares the two. */
#ifndef QUERN_CONTROLLER_SPLITTER_H
#define QUERN_CONTROLLER_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>

enum splitter_kind {
	SPLITTER_LITERAL,
	SPLITTER_REGEX,
	SPLITTER_GPT2,   /* these two match everywhere: each match begins where the last ended */
	SPLITTER_LLAMA3, /* also Qwen's, where numbers are split into single digits */
};

/* What ByteLevel splits by. */
extern const char splitter_gpt2_pattern[];

struct splitter {
	enum splitter_kind kind;
	char *text; /* literal; or the pattern, for messages */
	size_t n;
	int max_digits; /* LLAMA3 */
	void *code;     /* REGEX: pcre2_code */
};

/* Compile.  regex: else a literal string.  by_hand false keeps known patterns on PCRE2 (for
 * tests).  -EINVAL with the reason. */
int splitter_init(struct splitter *s, bool regex, const char *pattern, bool by_hand, char *why, size_t why_n);
void splitter_fini(struct splitter *s);

/* What matching needs, per call; zero-initialised. */
struct splitter_match {
	void *data;
	void *context;
	void *stack;
};
void splitter_match_fini(struct splitter_match *m);

/* The first match in text[at..n), which may be empty: 1 and *from, *to; 0: none;
 * -E2BIG: the pattern takes too long on this text, why says so. */
int splitter_next(const struct splitter *s, struct splitter_match *m, const char *text, size_t n, size_t at,
		  size_t *from, size_t *to, char *why, size_t why_n);

/* The ends of the words of GPT2 and LLAMA3. */
size_t splitter_gpt2(const char *text, size_t n, size_t at);
size_t splitter_llama3(const char *text, size_t n, size_t at, int max_digits);

#endif
