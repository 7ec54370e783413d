/* added.h - finds added tokens in a text: of those that begin leftmost the longest. */
#ifndef QUERN_CONTROLLER_ADDED_H
#define QUERN_CONTROLLER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct added_token {
	uint32_t id;
	char *content; /* owned */
	size_t n;
	bool single_word; /* only where no word character is next to it */
	bool lstrip;      /* takes the white space before it */
	bool rstrip;      /* and behind it */
	bool normalized;  /* is looked for in the normalized text */
	bool special;
};

struct trie_node {
	uint32_t child; /* of the first child, 0 for none */
	uint32_t sibling;
	int32_t token; /* index in added.tokens, -1 */
	uint8_t byte;
};

struct trie {
	struct trie_node *nodes; /* [n]; 0 is the root */
	uint32_t n;
	uint32_t cap;
	uint32_t first[256]; /* children of the root by byte */
	int only_first;      /* the one byte all begin with; -1 none, -2 several */
};

struct added {
	struct added_token *tokens;
	size_t n;
	size_t cap;
	struct trie raw;        /* looked for in the text as it is given */
	struct trie normalized; /* and after normalization, normalized likewise */
	struct trie by_content; /* all of them, as they are written */
};

void added_init(struct added *a);
void added_fini(struct added *a);

/* A copy of *token is kept; content must not be empty.  To be looked for as these bytes,
 * which are its content, or that normalized. */
void added_push(struct added *a, const struct added_token *token, const char *form, size_t form_n);
/* The token of exactly this content; NULL. */
const struct added_token *added_find(const struct added *a, const char *p, size_t n);

/* What may be found where: for the search below. */
struct added_filter {
	bool no_special; /* a special one that is found is passed over */
	/* Says whether [from, to) may be a special token; NULL: yes. */
	bool (*allowed)(const void *ctx, size_t from, size_t to);
	const void *ctx;
};

struct added_match {
	const struct added_token *token;
	size_t from, to; /* with the white space it takes */
	size_t resume;   /* where the search goes on: its end without that */
};

/* The next match in text[at..n); done: where the last one's white space ended, 0 at first. */
bool added_next(const struct added *a, const struct trie *t, const char *text, size_t n, size_t at,
		size_t done, const struct added_filter *f, struct added_match *m);

#endif
