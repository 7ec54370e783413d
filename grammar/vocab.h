/* vocab.h - a model's tokens as bytes, laid out for masks: tries in preorder, so that a prefix that no
 * grammar continues skips all tokens behind it.
 *
 *     node   byte  depth  token  next
 *      0     a     1      12     3      <- "a" is token 12; its subtree is nodes 1..2
 *      1     b     2      -      3
 *      2     c     3      77     3      <- "abc"
 *      3     b     1      13     4
 *
 * Tokens are divided into groups with a trie each: those whose characters all belong to a class that grammars
 * often allow as a whole (lower case; letters and digits; what a JSON string holds unescaped), by their
 * number of characters; the rest; and long ones.  A group that is allowed as a whole is one OR of bits.
 * Immutable: any thread. */
#ifndef QUERN_GRAMMAR_VOCAB_H
#define QUERN_GRAMMAR_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vocab_class { VOCAB_LOWER, VOCAB_ALNUM, VOCAB_JSON, VOCAB_REST, VOCAB_LONG, N_VOCAB_CLASSES };
enum { N_VOCAB_SLICES = VOCAB_REST }; /* classes that are sets of characters */

enum {
	VOCAB_LONG_BYTES = 32, /* tokens with more are VOCAB_LONG */
	VOCAB_TOKEN_BYTES_MAX = 4096,
	VOCAB_TOKENS_MAX = 1 << 24,
};
#define VOCAB_NO_TOKEN UINT32_MAX

enum vocab_kind {
	VOCAB_TEXT,    /* its bytes are text */
	VOCAB_CONTROL, /* never allowed within a grammar */
	VOCAB_END,     /* ends the text, where the grammar may end */
};

struct vocab_token {
	const char *bytes; /* as they stand in a text: not UTF-8 by themselves */
	uint32_t n;        /* 0: never allowed, unless VOCAB_END */
	enum vocab_kind kind;
};

struct vocab_node {
	uint32_t token; /* VOCAB_NO_TOKEN: none ends here */
	uint32_t next;  /* the node behind the subtree */
	uint16_t depth; /* 1: of the first byte */
	uint8_t byte;
};

struct vocab_group {
	enum vocab_class class;
	unsigned max_chars;  /* of its tokens */
	uint32_t begin, end; /* nodes */
	uint32_t *bits;      /* owned, [n_words]; NULL but for slices */
};

enum { VOCAB_GROUPS_MAX = 32 };

struct vocab {
	uint32_t n_tokens, n_words; /* words of 32 bits of a mask */
	uint32_t max_bytes;
	struct vocab_node *nodes;
	uint32_t n_nodes;
	struct vocab_group groups[VOCAB_GROUPS_MAX];
	int n_groups;
	uint32_t *same; /* [n_tokens]: the next token of the same bytes; VOCAB_NO_TOKEN: none */
	uint32_t *ends; /* tokens that end the text */
	uint32_t n_ends;
	char *bytes;
	size_t *at; /* [n_tokens + 1] in bytes */
	uint8_t *kinds;
	size_t memory;
};

/* Copies the tokens.  0; -E2BIG with the reason: too many, or one too long. */
int vocab_new(const struct vocab_token *tokens, size_t n, struct vocab **out, char *why, size_t why_n);
void vocab_free(struct vocab *v); /* NULL is fine */

#endif
