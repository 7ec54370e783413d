#include "controller/tokenizer/added.h"

#include "base/alloc.h"
#include "base/charclass.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static void trie_init(struct trie *t)
{
	*t = (struct trie){.n = 1, .cap = 64, .only_first = -1};
	t->nodes = xcalloc(t->cap, sizeof(t->nodes[0]));
	t->nodes[0].token = -1;
}

static uint32_t child_of(const struct trie *t, uint32_t node, uint8_t byte)
{
	if (node == 0)
		return t->first[byte];
	uint32_t c = t->nodes[node].child;
	while (c && t->nodes[c].byte != byte)
		c = t->nodes[c].sibling;
	return c;
}

static void trie_add(struct trie *t, const char *p, size_t n, int32_t token)
{
	uint32_t at = 0;
	int first = (unsigned char)p[0];
	t->only_first = t->only_first == -1 || t->only_first == first ? first : -2;
	for (size_t i = 0; i < n; i++) {
		uint8_t byte = (uint8_t)p[i];
		uint32_t c = child_of(t, at, byte);
		if (!c) {
			array_grow(t->nodes, t->cap, t->n + (size_t)1);
			c = t->n++;
			t->nodes[c] = (struct trie_node){0, t->nodes[at].child, -1, byte};
			t->nodes[at].child = c;
			if (at == 0)
				t->first[byte] = c;
		}
		at = c;
	}
	if (t->nodes[at].token < 0)
		t->nodes[at].token = token;
}

void added_init(struct added *a)
{
	*a = (struct added){0};
	trie_init(&a->raw);
	trie_init(&a->normalized);
	trie_init(&a->by_content);
}

void added_fini(struct added *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->tokens[i].content);
	free(a->tokens);
	free(a->raw.nodes);
	free(a->normalized.nodes);
	free(a->by_content.nodes);
}

void added_push(struct added *a, const struct added_token *token, const char *content, size_t content_n)
{
	array_grow(a->tokens, a->cap, a->n + 1);
	a->tokens[a->n] = *token;
	a->tokens[a->n].content = xmalloc(token->n + 1);
	memcpy(a->tokens[a->n].content, token->content, token->n);
	a->tokens[a->n].content[token->n] = 0;
	trie_add(&a->by_content, token->content, token->n, (int32_t)a->n);
	if (content_n > 0)
		trie_add(token->normalized ? &a->normalized : &a->raw, content, content_n, (int32_t)a->n);
	a->n++;
}

const struct added_token *added_find(const struct added *a, const char *p, size_t n)
{
	uint32_t node = 0;
	for (size_t i = 0; i < n; i++)
		if ((node = child_of(&a->by_content, node, (uint8_t)p[i])) == 0)
			return NULL;
	int32_t k = a->by_content.nodes[node].token;
	return n > 0 && k >= 0 ? &a->tokens[k] : NULL;
}

static bool is_allowed(const struct added_token *tok, const struct added_filter *f, size_t from, size_t to)
{
	return !tok->special || !f->allowed || f->allowed(f->ctx, from, to);
}

/* Return the longest allowed token at p[at..n), or NULL, and set *to to its end. */
static const struct added_token *longest_at(const struct added *a, const struct trie *t, const char *p,
					    size_t n, size_t at, const struct added_filter *f, size_t *to)
{
	const struct added_token *best = NULL;
	uint32_t node = 0;
	for (size_t i = at; i < n && (node = child_of(t, node, (uint8_t)p[i])) != 0; i++) {
		int32_t k = t->nodes[node].token;
		if (k >= 0 && is_allowed(&a->tokens[k], f, at, i + 1)) {
			best = &a->tokens[k];
			*to = i + 1;
		}
	}
	return best;
}

/* Return the offset of the next byte that may begin a token, or n. */
static size_t next_start(const struct trie *t, const char *p, size_t n, size_t at)
{
	if (t->only_first == -1)
		return n;
	if (t->only_first >= 0) {
		const char *hit = memchr(p + at, t->only_first, n - at);
		return hit ? (size_t)(hit - p) : n;
	}
	while (at < n && !t->first[(unsigned char)p[at]])
		at++;
	return at;
}

static bool stands_alone(const char *p, size_t n, size_t from, size_t to)
{
	int len;
	if (from > 0 && charclass_is_word(utf8_before(p, from, &len)))
		return false;
	return to == n || !charclass_is_word(utf8_at(p + to, &len));
}

static size_t strip_left(const char *p, size_t from, size_t stop)
{
	int len;
	while (from > stop && charclass_is_space(utf8_before(p, from, &len)))
		from -= (size_t)len;
	return from;
}

static size_t strip_right(const char *p, size_t n, size_t to)
{
	int len;
	while (to < n && charclass_is_space(utf8_at(p + to, &len)))
		to += (size_t)len;
	return to;
}

bool added_next(const struct added *a, const struct trie *t, const char *p, size_t n, size_t at, size_t done,
		const struct added_filter *f, struct added_match *m)
{
	while ((at = next_start(t, p, n, at)) < n) {
		size_t from = at, to = 0;
		const struct added_token *tok = longest_at(a, t, p, n, at, f, &to);
		at = tok ? to : at + 1;
		if (!tok || (f->no_special && tok->special) ||
		    (tok->single_word && !stands_alone(p, n, from, to)))
			continue;
		m->token = tok;
		m->from = tok->lstrip ? strip_left(p, from, done) : from;
		/* If `to` is before done, only white space is between them. */
		m->to = tok->rstrip ? strip_right(p, n, to > done ? to : done) : to;
		m->resume = to;
		return true;
	}
	return false;
}
