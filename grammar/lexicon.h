/* lexicon.h - a model's tokens as bytes, in tries laid out for masks. The tries are in preorder: if no
 * grammar text continues with a prefix, all tokens below the prefix are skipped.
 *
 *     node   byte  depth  token  next
 *      0      a     1      12     3      <- "a" is token 12; its subtree is nodes 1..2
 *      1      b     2      -      3
 *      2      c     3      77     3      <- "abc"
 *      3      b     1      13     4
 *
 * Tokens are divided into groups, each with its own trie. A slice is a class of characters that grammars
 * often allow as a whole (lower case; letters and digits; unescaped characters of JSON strings); the tokens
 * of a slice are grouped by their number of characters. The other groups are long tokens and the rest. A
 * group that is allowed as a whole costs one OR of bits.
 * Immutable: usable from any thread. */
#ifndef QUERN_GRAMMAR_LEXICON_H
#define QUERN_GRAMMAR_LEXICON_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lexicon_class {
	LEXICON_LOWER,
	LEXICON_ALNUM,
	LEXICON_JSON,
	LEXICON_REST,
	LEXICON_LONG,
	N_LEXICON_CLASSES
};
enum { N_LEXICON_SLICES = LEXICON_REST }; /* the classes that are sets of characters */

enum {
	LEXICON_LONG_BYTES = 32, /* tokens with more bytes are LEXICON_LONG */
	LEXICON_TOKEN_BYTES_MAX = 4096,
	LEXICON_TOKENS_MAX = 1 << 24,
};
#define LEXICON_NO_TOKEN UINT32_MAX

/* Bytes that no UTF-8 text holds. A special token that grammars may name (composite.h) has the bytes
 * LEXICON_SPECIAL_BEGIN, its text, LEXICON_SPECIAL_END. Other tokens with bytes >= LEXICON_NO_TEXT,
 * including tokens for such single bytes, are never allowed: they would spell special tokens. */
enum { LEXICON_NO_TEXT = 0xf8, LEXICON_SPECIAL_END = 0xfe, LEXICON_SPECIAL_BEGIN = 0xff };

enum lexicon_kind {
	LEXICON_TEXT,    /* its bytes are text */
	LEXICON_CONTROL, /* never allowed within a grammar */
	LEXICON_END,     /* ends the text, where the grammar may end */
};

struct lexicon_token {
	const char *bytes; /* bytes as in a text; not necessarily valid UTF-8 */
	uint32_t n;        /* 0: never allowed, unless LEXICON_END */
	enum lexicon_kind kind;
};

struct lexicon_node {
	uint32_t token; /* the token that ends here, or LEXICON_NO_TOKEN */
	uint32_t next;  /* the first node after the subtree */
	uint16_t depth; /* 1 for the first byte of a token */
	uint8_t byte;
};

struct lexicon_group {
	enum lexicon_class class;
	unsigned max_chars;  /* most characters in one of the group's tokens */
	uint32_t begin, end; /* nodes [begin, end) */
	/* slices: the tokens of this group and of the slice's shorter groups; owned, [n_words] */
	uint32_t *bits;
};

enum { LEXICON_GROUPS_MAX = 32 };

struct lexicon {
	uint32_t n_tokens, n_words; /* n_words: 32-bit words of a mask */
	uint32_t max_bytes;
	struct lexicon_node *nodes;
	uint32_t n_nodes;
	struct lexicon_group groups[LEXICON_GROUPS_MAX];
	int n_groups;
	uint32_t *same; /* [n_tokens]: the next token with the same bytes, or LEXICON_NO_TOKEN */
	uint32_t *ends; /* the tokens that end the text */
	uint32_t n_ends;
	char *bytes;
	size_t *at; /* [n_tokens + 1]: offsets in bytes */
	uint8_t *kinds;
	size_t memory;
};

/* Copy the tokens into a new lexicon. Return 0, or -E2BIG with the reason: too many tokens, or
 * one too long. */
int lexicon_new(const struct lexicon_token *tokens, size_t n, struct lexicon **out, struct why *why);
void lexicon_free(struct lexicon *v); /* NULL is fine */

#endif
