/* lexicon.h - a model's tokens as bytes, laid out for masks: tries in preorder, so that a prefix that no
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
 * number of characters; the rest; and long ones.  Groups that are allowed as a whole are one OR of bits.
 * Immutable: any thread. */
#ifndef QUERN_GRAMMAR_LEXICON_H
#define QUERN_GRAMMAR_LEXICON_H

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
enum { N_LEXICON_SLICES = LEXICON_REST }; /* classes that are sets of characters */

enum {
	LEXICON_LONG_BYTES = 32, /* tokens with more are LEXICON_LONG */
	LEXICON_TOKEN_BYTES_MAX = 4096,
	LEXICON_TOKENS_MAX = 1 << 24,
};
#define LEXICON_NO_TOKEN UINT32_MAX

/* Bytes that no UTF-8 text holds.  A special token that grammars may name (form_source.h) has the bytes
 * LEXICON_SPECIAL_BEGIN, its text, LEXICON_SPECIAL_END.  Other tokens with bytes from LEXICON_NO_TEXT on,
 * those for single bytes among them, are never allowed: they would spell special tokens. */
enum { LEXICON_NO_TEXT = 0xf8, LEXICON_SPECIAL_END = 0xfe, LEXICON_SPECIAL_BEGIN = 0xff };

enum lexicon_kind {
	LEXICON_TEXT,    /* its bytes are text */
	LEXICON_CONTROL, /* never allowed within a grammar */
	LEXICON_END,     /* ends the text, where the grammar may end */
};

struct lexicon_token {
	const char *bytes; /* as they stand in a text: not UTF-8 by themselves */
	uint32_t n;        /* 0: never allowed, unless LEXICON_END */
	enum lexicon_kind kind;
};

struct lexicon_node {
	uint32_t token; /* LEXICON_NO_TOKEN: none ends here */
	uint32_t next;  /* the node behind the subtree */
	uint16_t depth; /* 1: of the first byte */
	uint8_t byte;
};

struct lexicon_group {
	enum lexicon_class class;
	unsigned max_chars;  /* of its tokens */
	uint32_t begin, end; /* nodes */
	uint32_t *bits;      /* slices: its tokens and those of the shorter groups; owned, [n_words] */
};

enum { LEXICON_GROUPS_MAX = 32 };

struct lexicon {
	uint32_t n_tokens, n_words; /* words of 32 bits of a mask */
	uint32_t max_bytes;
	struct lexicon_node *nodes;
	uint32_t n_nodes;
	struct lexicon_group groups[LEXICON_GROUPS_MAX];
	int n_groups;
	uint32_t *same; /* [n_tokens]: the next token of the same bytes; LEXICON_NO_TOKEN: none */
	uint32_t *ends; /* tokens that end the text */
	uint32_t n_ends;
	char *bytes;
	size_t *at; /* [n_tokens + 1] in bytes */
	uint8_t *kinds;
	size_t memory;
};

/* Copies the tokens.  0; -E2BIG with the reason: too many, or one too long. */
int lexicon_new(const struct lexicon_token *tokens, size_t n, struct lexicon **out, char *why, size_t why_n);
void lexicon_free(struct lexicon *v); /* NULL is fine */

#endif
