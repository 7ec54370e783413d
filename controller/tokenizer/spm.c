#include "controller/tokenizer/spm.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char meta[] = "\xe2\x96\x81";

/* ---- tries ---- */

static inline size_t edge_hash(uint32_t from)
{
	uint64_t h = from * 0x9e3779b97f4a7c15u;
	return h >> 32;
}

static inline uint32_t edge_key(uint32_t node, unsigned char byte)
{
	return node << 8 | byte | 1u << 31;
}

/* Return the child, or 0 if there is none; no edge leads to the root. */
static inline uint32_t child(const struct spm_trie *t, uint32_t node, unsigned char byte)
{
	uint32_t key = edge_key(node, byte);
	for (size_t i = edge_hash(key) & t->mask;; i = (i + 1) & t->mask)
		if (t->edges[i].from == key || !t->edges[i].from)
			return t->edges[i].from ? t->edges[i].to : 0;
}

static void edge_put(struct spm_trie *t, struct spm_edge e)
{
	size_t i = edge_hash(e.from) & t->mask;
	while (t->edges[i].from)
		i = (i + 1) & t->mask;
	t->edges[i] = e;
}

static void edges_grow(struct spm_trie *t)
{
	struct spm_edge *had = t->edges;
	size_t n = had ? t->mask + 1 : 0;
	t->mask = had ? t->mask * 2 + 1 : 63;
	t->edges = xcalloc(t->mask + 1, sizeof(t->edges[0]));
	for (size_t i = 0; i < n; i++)
		if (had[i].from)
			edge_put(t, had[i]);
	free(had);
}

static uint32_t new_node(struct spm_trie *t)
{
	array_grow(t->ids, t->cap, t->n_nodes + (size_t)1);
	t->ids[t->n_nodes] = VOCAB_NONE;
	return t->n_nodes++;
}

void spm_trie_add(struct spm_trie *t, const char *p, size_t n, uint32_t id)
{
	uint32_t node = 0;
	if (!t->n_nodes)
		new_node(t);
	for (size_t i = 0; i < n; i++) {
		if (t->n_edges * 2 >= t->mask)
			edges_grow(t);
		uint32_t to = child(t, node, (unsigned char)p[i]);
		if (!to) {
			to = new_node(t);
			edge_put(t, (struct spm_edge){edge_key(node, (unsigned char)p[i]), to});
			t->n_edges++;
		}
		node = to;
	}
	t->ids[node] = id;
}

size_t spm_trie_longest(const struct spm_trie *t, const char *p, size_t n, uint32_t *id)
{
	size_t longest = 0;
	uint32_t node = 0;
	if (!t->n_edges)
		return 0;
	for (size_t i = 0; i < n && (node = child(t, node, (unsigned char)p[i])) != 0; i++) {
		if (t->ids[node] != VOCAB_NONE) {
			longest = i + 1;
			*id = t->ids[node];
		}
	}
	return longest;
}

static void trie_fini(struct spm_trie *t)
{
	free(t->edges);
	free(t->ids);
}

/* ---- the charsmap ---- */

/* Read the charsmap: the size of the trie in bytes, its units (as in the library Darts-clone), the
 * replacements. All numbers are little-endian, like all supported machines. */
static int read_charsmap(struct spm *s, const char *p, size_t n, struct why *why)
{
	uint32_t bytes;
	if (n < sizeof bytes)
		return err_why(why, -EINVAL, "precompiled_charsmap has %zu bytes", n);
	memcpy(&bytes, p, sizeof bytes);
	if (bytes % 4 || bytes > n - 4 || bytes == 0)
		return err_why(why, -EINVAL, "precompiled_charsmap: a trie of %u bytes does not fit in %zu",
			       bytes, n);
	s->texts_n = n - 4 - bytes;
	const char *texts = p + 4 + bytes;
	if (s->texts_n == 0 || texts[s->texts_n - 1] != 0 || utf8_valid(texts, s->texts_n) < s->texts_n)
		return err_why(why, -EINVAL,
			       "precompiled_charsmap: its replacements are not NUL-terminated UTF-8");
	s->n_units = bytes / 4;
	s->units = xmemdup(p + 4, bytes);
	s->texts = xmemdup(texts, s->texts_n);
	return 0;
}

/* A unit of Darts-clone: bits 0..7 and 31 are its label; bit 8: a value follows; bits 10..30: the offset to
 * its children, multiplied by 256 if bit 9 is set. The unit of a value has bit 31 set and the
 * value below it. */
static inline uint32_t unit_label(uint32_t u)
{
	return u & (1u << 31 | 0xff);
}

static inline size_t unit_offset(uint32_t u)
{
	return (size_t)(u >> 10) << ((u & 1u << 9) >> 6);
}

enum { RULES_MAX = 32 }; /* SentencePiece's own limit of matches */

/* Find the longest rule that is a prefix of p[0..n).  Return its length and set *text; 0: none. */
static size_t charsmap_find(const struct spm *s, const char *p, size_t n, const char **text)
{
	size_t longest = 0, at = s->n_units ? unit_offset(s->units[0]) : 0;
	int found = 0;
	for (size_t i = 0; i < n && s->n_units && found < RULES_MAX; i++) {
		at ^= (unsigned char)p[i];
		if (at >= s->n_units || unit_label(s->units[at]) != (unsigned char)p[i])
			break;
		uint32_t unit = s->units[at];
		at ^= unit_offset(unit);
		if (!(unit >> 8 & 1))
			continue;
		uint32_t value = at < s->n_units ? s->units[at] & 0x7fffffff : UINT32_MAX;
		/* malformed file: the value is out of range, or within a character */
		if (value >= s->texts_n || ((unsigned char)s->texts[value] & 0xc0) == 0x80)
			continue;
		longest = i + 1;
		*text = s->texts + value;
		found++;
	}
	return longest;
}

/* ---- normalization ---- */

/* Normalize a prefix of the text to *out of *out_n bytes.  Return the bytes consumed. */
static size_t prefix(const struct spm *s, const char *p, size_t n, const char **out, size_t *out_n)
{
	uint32_t id;
	size_t used = spm_trie_longest(&s->user, p, n, &id);
	*out = p;
	*out_n = used;
	if (used)
		return used;
	used = charsmap_find(s, p, n, out);
	if (used) {
		*out_n = strlen(*out);
		return used;
	}
	if (((unsigned char)*p & 0xc0) == 0x80) { /* a rule of the file ended within a character */
		*out = "\xef\xbf\xbd";
		*out_n = 3;
		return 1;
	}
	int len;
	utf8_at(p, &len);
	*out_n = (size_t)len;
	return (size_t)len;
}

static void put_escaped(const struct spm *s, const char *p, size_t n, struct buf *out)
{
	while (n) {
		const char *space = s->escape_whitespaces ? memchr(p, ' ', n) : NULL;
		size_t k = space ? (size_t)(space - p) : n;
		buf_put(out, p, k);
		if (!space)
			return;
		buf_put(out, meta, 3);
		p += k + 1;
		n -= k + 1;
	}
}

static void put_space(const struct spm *s, struct buf *out)
{
	put_escaped(s, " ", 1, out);
}

/* The slow path, with rules or with white space to collapse: one prefix at a time. */
static void normalize_slowly(const struct spm *s, const char *p, size_t n, struct buf *out)
{
	bool after_space = s->remove_extra_whitespaces;
	while (n) {
		const char *text;
		size_t same = 0;
		while (same < n && s->plain[(unsigned char)p[same]])
			same++;
		if (same) {
			buf_put(out, p, same);
			after_space = false;
			p += same;
			n -= same;
			continue;
		}
		size_t text_n, used = prefix(s, p, n, &text, &text_n);
		while (after_space && text_n && *text == ' ') {
			text++;
			text_n--;
		}
		if (text_n) {
			put_escaped(s, text, text_n, out);
			after_space = text[text_n - 1] == ' ';
		}
		if (!s->remove_extra_whitespaces)
			after_space = false;
		p += used;
		n -= used;
	}
}

void spm_normalize(const struct spm *s, const char *p, size_t n, struct buf *out)
{
	size_t begin = out->len;
	buf_reserve(out, n + n / 2 + 8);
	while (n && s->remove_extra_whitespaces) {
		const char *text;
		size_t text_n, used = prefix(s, p, n, &text, &text_n);
		if (text_n != 1 || *text != ' ')
			break;
		p += used;
		n -= used;
	}
	if (n == 0)
		return;
	if (s->add_dummy_prefix && !s->whitespace_suffix)
		put_space(s, out);
	if (s->remove_extra_whitespaces || s->n_units)
		normalize_slowly(s, p, n, out);
	else
		put_escaped(s, p, n, out);
	const char *space = s->escape_whitespaces ? meta : " ";
	size_t k = strlen(space);
	while (s->remove_extra_whitespaces && out->len >= begin + k &&
	       memcmp(out->p + out->len - k, space, k) == 0)
		out->len -= k;
	if (s->add_dummy_prefix && s->whitespace_suffix)
		put_space(s, out);
}

/* ---- Unigram ---- */

struct spm_node {
	float score;     /* score of the best segmentation that ends here */
	uint32_t length; /* bytes of its last piece; 0: no segmentation ends here yet */
	uint32_t id;
};

/* Sums grow with the text, and single precision gets coarser. Beyond sum_max they are rebased to the current
 * node, as in SentencePiece since 0.2.2. */
static const float sum_max = 100000, unknown_penalty = 10;

struct forward {
	const struct spm *s;
	struct spm_node *nodes;
	size_t frontier; /* the last node with a segmentation */
};

static inline void offer(struct forward *f, size_t at, float score, size_t length, uint32_t id)
{
	struct spm_node *node = &f->nodes[at];
	if (at > f->frontier)
		f->frontier = at;
	if (node->length == 0 || score > node->score) /* if scores are equal, the first stays */
		*node = (struct spm_node){score, (uint32_t)length, id};
}

static float sum_at(struct forward *f, size_t at)
{
	float here = f->nodes[at].score;
	if (here >= -sum_max && here <= sum_max)
		return here;
	for (size_t i = at; i <= f->frontier; i++)
		if (i == at || f->nodes[i].length)
			f->nodes[i].score -= here;
	return 0;
}

static void forward(struct forward *f, const char *p, size_t n)
{
	const struct spm *s = f->s;
	const float unknown = s->min_score - unknown_penalty;
	int len;
	for (size_t at = 0; at < n; at += (size_t)len) {
		float here = sum_at(f, at);
		bool single = false;
		uint32_t node = 0;
		utf8_at(p + at, &len);
		for (size_t i = at; i < n && (node = child(&s->pieces, node, (unsigned char)p[i])) != 0;
		     i++) {
			uint32_t id = s->pieces.ids[node];
			if (id == VOCAB_NONE)
				continue;
			size_t length = i + 1 - at;
			float score =
				s->user_defined[id] ? (float)(0.1 * ((double)length - 1)) : s->scores[id];
			offer(f, i + 1, score + here, length, id);
			single |= length == (size_t)len;
		}
		if (!single)
			offer(f, at + (size_t)len, unknown + here, (size_t)len, VOCAB_NONE);
	}
}

/* Output an unknown character: its bytes, or one unk for a run of unknown characters. */
static bool put_unknown(const struct spm *s, const char *p, size_t n, bool after_unk, struct token_ids *out)
{
	if (s->byte_fallback) {
		for (size_t i = 0; i < n; i++)
			token_ids_push(out, s->byte_id[(unsigned char)p[i]]);
		return false;
	}
	if (!after_unk && s->unk != VOCAB_NONE)
		token_ids_push(out, s->unk);
	return true;
}

void spm_unigram(const struct spm *s, struct spm_scratch *k, const char *p, size_t n, struct token_ids *out)
{
	size_t m = 0;
	bool after_unk = false;
	if (n == 0)
		return;
	array_grow(k->nodes, k->cap, n + 1);
	memset(k->nodes, 0, (n + 1) * sizeof(k->nodes[0]));
	struct forward f = {s, k->nodes, 0};
	forward(&f, p, n);
	for (size_t at = n; at > 0; at -= k->nodes[at].length, m++) {
		array_grow(k->path, k->path_cap, m + 1);
		k->path[m] = (uint32_t)at;
	}
	while (m-- > 0) {
		const struct spm_node *node = &k->nodes[k->path[m]];
		if (node->id == VOCAB_NONE) {
			after_unk =
				put_unknown(s, p + k->path[m] - node->length, node->length, after_unk, out);
		} else {
			token_ids_push(out, node->id);
			after_unk = false;
		}
	}
}

void spm_scratch_fini(struct spm_scratch *s)
{
	buf_fini(&s->text);
	free(s->nodes);
	free(s->path);
}

/* ---- construction ---- */

void spm_finish(struct spm *s)
{
	for (unsigned c = 0; c < 128; c++) {
		char text = (char)c;
		size_t at = s->n_units ? unit_offset(s->units[0]) ^ c : 0;
		bool rule = s->n_units && at < s->n_units && unit_label(s->units[at]) == c;
		s->plain[c] = text != ' ' && !rule && !child(&s->user, 0, (unsigned char)text);
	}
}

int spm_init(struct spm *s, const struct piece_table *pt, struct why *why)
{
	*s = (struct spm){.model = pt->model,
			  .add_dummy_prefix = pt->add_dummy_prefix,
			  .remove_extra_whitespaces = pt->remove_extra_whitespaces,
			  .escape_whitespaces = pt->escape_whitespaces,
			  .whitespace_suffix = pt->whitespace_suffix,
			  .unk = VOCAB_NONE};
	edges_grow(&s->user);
	edges_grow(&s->pieces);
	new_node(&s->user);
	new_node(&s->pieces);
	return pt->charsmap_n ? read_charsmap(s, pt->charsmap, pt->charsmap_n, why) : 0;
}

void spm_free(struct spm *s)
{
	if (!s)
		return;
	free(s->units);
	free(s->texts);
	trie_fini(&s->user);
	trie_fini(&s->pieces);
	free(s->scores);
	free(s->user_defined);
	free(s);
}
