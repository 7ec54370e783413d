/* added.h - finds added tokens in a text: the leftmost match, and the longest match at that place. */
#ifndef QUERN_CONTROLLER_TOKENIZER_ADDED_H
#define QUERN_CONTROLLER_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct added_token {
	uint32_t id;
	char *content; /* owned */
	size_t n;
	bool single_word; /* matches only between non-word characters */
	bool lstrip;      /* the match includes the white space before the token */
	bool rstrip;      /* the match includes the white space after the token */
	bool normalized;  /* searched for in the normalized text */
	bool special;
};

struct trie_node {
	uint32_t child; /* the first child; 0: none */
	uint32_t sibling;
	int32_t token; /* index in added.tokens, or -1 */
	uint8_t byte;
};

struct trie {
	struct trie_node *nodes; /* [n]; 0 is the root */
	uint32_t n;
	uint32_t cap;
	uint32_t first[256]; /* children of the root by byte */
	/* the first byte if all tokens share it; -1: no tokens, -2: different first bytes */
	int only_first;
};

struct added {
	struct added_token *tokens;
	size_t n;
	size_t cap;
	struct trie raw;        /* tokens searched for in the text as given */
	struct trie normalized; /* tokens searched for after normalization, themselves normalized */
	struct trie by_content; /* all tokens by their content */
};

void added_init(struct added *a);
void added_fini(struct added *a);

/* Add a copy of *token; its content must not be empty. form: the bytes to search for, the content or its
 * normalized form. */
void added_push(struct added *a, const struct added_token *token, const char *content, size_t content_n);
/* Return the token with exactly this content, or NULL. */
const struct added_token *added_find(const struct added *a, const char *p, size_t n);

/* Restrictions of a search. */
struct added_filter {
	bool no_special; /* do not match special tokens */
	/* Return true if a special token may match at [from, to); NULL: always. */
	bool (*allowed)(const void *ctx, size_t from, size_t to);
	const void *ctx;
};

struct added_match {
	const struct added_token *token;
	size_t from, to; /* white space included */
	size_t resume;   /* where to continue the search: the match's end without white space */
};

/* Find the next match in text[at..n). done: the end of the last match, 0 at first. Return false if
 * there is none. */
bool added_next(const struct added *a, const struct trie *t, const char *text, size_t n, size_t at,
		size_t done, const struct added_filter *f, struct added_match *m);

#endif
