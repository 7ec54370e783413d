#include "controller/tokenizer/bpe.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Up to this many symbols, scanning for the least rank is faster than a heap. On English and Japanese prose
 * all values from 20 to 64 perform equally. */
enum { SCAN_MAX = 32 };

static const char meta[] = "\xe2\x96\x81"; /* U+2581, SentencePiece's space */

void bpe_init(struct bpe *b, uint32_t n_merges)
{
	*b = (struct bpe){.n_merges = n_merges, .mask = 15, .unk = VOCAB_NONE};
	while ((b->mask + 1) / 8 * 5 < n_merges)
		b->mask = b->mask * 2 + 1;
	b->slots = xmalloc(sizeof(b->slots[0]) * (b->mask + 1));
	memset(b->slots, 0xff, sizeof(b->slots[0]) * (b->mask + 1));
	b->merged = xcalloc(n_merges, sizeof(b->merged[0]));
}

void bpe_fini(struct bpe *b)
{
	free(b->slots);
	free(b->merged);
	free(b->byte_pairs);
	free(b->unused);
}

void bpe_scratch_fini(struct bpe_scratch *s)
{
	free(s->ids);
	free(s->rank);
	free(s->next);
	free(s->prev);
	free(s->heap);
	free(s->parts);
}

static inline uint64_t pair_of(uint32_t left, uint32_t right)
{
	return (uint64_t)left << 32 | right;
}

/* Ids of a vocabulary are dense, so the product's upper bits are spread well enough. */
static inline size_t pair_hash(uint64_t pair)
{
	pair *= 0x9e3779b97f4a7c15u;
	return pair >> 29 ^ pair >> 47;
}

static inline const struct merge_slot *pair_slot(const struct bpe *b, uint32_t left, uint32_t right)
{
	uint64_t pair = pair_of(left, right);
	for (size_t i = pair_hash(pair) & b->mask;; i = (i + 1) & b->mask) {
		const struct merge_slot *s = &b->slots[i];
		if (s->pair == pair || s->pair == BPE_NO_PAIR) /* an empty slot has rank BPE_NO_RANK */
			return s;
	}
}

static inline uint32_t pair_rank(const struct bpe *b, uint32_t left, uint32_t right)
{
	return pair_slot(b, left, right)->rank;
}

/* Return the result of merging a pair of this rank. */
static inline uint32_t merged_id(const struct bpe *b, uint32_t rank, uint32_t left, uint32_t right)
{
	uint32_t id = b->merged[rank];
	return id != VOCAB_NONE ? id : pair_slot(b, left, right)->id;
}

int bpe_add_merge(struct bpe *b, uint32_t rank, uint32_t left, uint32_t right, uint32_t id)
{
	uint64_t pair = pair_of(left, right);
	assert(rank < b->n_merges);
	size_t i = pair_hash(pair) & b->mask;
	for (; b->slots[i].pair != BPE_NO_PAIR; i = (i + 1) & b->mask)
		if (b->slots[i].pair == pair)
			return -EEXIST;
	b->slots[i] = (struct merge_slot){pair, rank, id};
	b->merged[rank] = id;
	return 0;
}

static bool meta_inside(const char *p, size_t n)
{
	bool plain_before = false;
	for (size_t i = 0; i < n;) {
		if (n - i >= 3 && memcmp(p + i, meta, 3) == 0) {
			if (plain_before)
				return true;
			i += 3;
		} else {
			plain_before = true;
			i++;
		}
	}
	return false;
}

/* ---- merges from scores ---- */

struct scored {
	uint32_t key; /* ascending order is descending score */
	uint32_t id;
};

/* Compare scores as SentencePiece does: -0 is less than 0. */
static uint32_t order_of(float score)
{
	uint32_t bits;
	memcpy(&bits, &score, sizeof(bits));
	return bits >> 31 ? bits : ~(bits | 1u << 31);
}

static int best_first(const void *a, const void *b)
{
	const struct scored *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Return the symbol of a text: its piece, or a single character without a piece; VOCAB_NONE otherwise. */
static uint32_t symbol_of(const struct vocab *v, const char *p, size_t n)
{
	int len;
	uint32_t id = vocab_find(v, p, n), c;
	if (id != VOCAB_NONE)
		return id;
	c = utf8_at(p, &len);
	return (size_t)len == n ? BPE_CHAR + c : VOCAB_NONE;
}

struct found_merges {
	struct merge_slot *p;
	size_t n, cap;
};

/* Find all pairs of symbols that merge to this piece. */
static void find_pairs(const struct vocab *v, uint32_t id, uint32_t rank, struct found_merges *found)
{
	const char *p = vocab_text(v, id);
	size_t n = v->pieces[id].len;
	int len = 1;
	for (size_t at = 0; at < n; at += (size_t)len) {
		uint32_t left = VOCAB_NONE, right = VOCAB_NONE;
		if (at && (left = symbol_of(v, p, at)) != VOCAB_NONE)
			right = symbol_of(v, p + at, n - at);
		utf8_at(p + at, &len);
		if (right == VOCAB_NONE)
			continue;
		array_grow(found->p, found->cap, found->n + 1);
		found->p[found->n++] = (struct merge_slot){pair_of(left, right), rank, id};
	}
}

static bool is_char(const struct vocab *v, uint32_t id)
{
	int len;
	utf8_at(vocab_text(v, id), &len);
	return v->pieces[id].len == (size_t)len;
}

static uint32_t rank_pieces(const struct vocab *v, const float *score, struct scored *order)
{
	uint32_t n = 0;
	for (uint32_t id = 0; id < v->n; id++)
		if (v->pieces[id].flags & PIECE_MODEL)
			order[n++] = (struct scored){order_of(score[id]), id};
	qsort(order, n, sizeof(order[0]), best_first);
	return n;
}

void bpe_init_scores(struct bpe *b, const struct vocab *v, const float *score, const bool *unused,
		     const uint32_t *byte_id)
{
	struct scored *order = xcalloc(v->n, sizeof(order[0]));
	uint32_t *merged = xcalloc(v->n, sizeof(merged[0]));
	uint32_t n = rank_pieces(v, score, order), ranks = 0;
	struct found_merges found = {0};
	bool any_unused = false, cut = vocab_find(v, meta, 3) != VOCAB_NONE;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t id = order[i].id;
		size_t before = found.n;
		bool same = i && order[i].key == order[i - 1].key;
		merged[ranks - same] = same ? VOCAB_NONE : id;
		ranks += !same;
		find_pairs(v, id, ranks - 1, &found);
		if (found.n == before && !is_char(v, id))
			continue; /* no merge makes it */
		cut = cut && !meta_inside(vocab_text(v, id), v->pieces[id].len);
		any_unused = any_unused || unused[id];
	}
	bpe_init(b, (uint32_t)found.n);
	for (size_t i = 0; i < found.n; i++) {
		size_t at = pair_hash(found.p[i].pair) & b->mask;
		while (b->slots[at].pair != BPE_NO_PAIR)
			at = (at + 1) & b->mask;
		b->slots[at] = found.p[i];
	}
	free(b->merged);
	b->merged = merged;
	b->by_score = true;
	/* the replacement of an unused piece depends on the whole text */
	b->cut_at_meta = cut && !any_unused;
	b->n_parts = v->n;
	memcpy(b->byte_id, byte_id, sizeof(b->byte_id));
	if (any_unused)
		b->unused = xmemdup(unused, v->n * sizeof(unused[0]));
	free(order);
	free(found.p);
}

void bpe_finish(struct bpe *b, const struct vocab *v)
{
	for (unsigned i = 0; i < 256; i++) {
		char c = (char)i, name[8];
		int n = snprintf(name, sizeof(name), "<0x%02X>", i);
		if (!b->by_score)
			b->byte_id[i] = v->byte_level ? vocab_find(v, &c, 1) : vocab_find(v, name, (size_t)n);
		if (i < 128)
			b->ascii_id[i] = vocab_find(v, &c, 1);
	}
	if (v->byte_level) {
		b->byte_pairs = xmalloc(sizeof(b->byte_pairs[0]) << 16);
		for (unsigned i = 0; i < 1 << 16; i++) {
			uint32_t l = b->byte_id[i >> 8], r = b->byte_id[i & 255];
			b->byte_pairs[i] =
				l == VOCAB_NONE || r == VOCAB_NONE ? BPE_NO_RANK : pair_rank(b, l, r);
		}
		return;
	}
	if (b->by_score)
		return;
	/* If U+2581 were unknown, a run of unknown characters could extend across the cut. */
	b->cut_at_meta = vocab_find(v, meta, 3) != VOCAB_NONE;
	for (uint32_t r = 0; b->cut_at_meta && r < b->n_merges; r++)
		b->cut_at_meta = !meta_inside(vocab_text(v, b->merged[r]), v->pieces[b->merged[r]].len);
}

static void reserve(struct bpe_scratch *s, size_t n)
{
	if (n <= s->cap)
		return;
	s->cap = array_capacity(s->cap, n, SIZE_MAX);
	s->ids = xrealloc(s->ids, s->cap, sizeof(s->ids[0]));
	s->rank = xrealloc(s->rank, s->cap, sizeof(s->rank[0]));
	s->next = xrealloc(s->next, s->cap, sizeof(s->next[0]));
	s->prev = xrealloc(s->prev, s->cap, sizeof(s->prev[0]));
}

/* Write an unknown character as bytes.  Return false if a byte has no piece. */
static bool fallback(const struct bpe *b, const char *p, int len, uint32_t *ids, size_t *m)
{
	if (!b->byte_fallback)
		return false;
	for (int i = 0; i < len; i++)
		if (b->byte_id[(unsigned char)p[i]] == VOCAB_NONE)
			return false;
	for (int i = 0; i < len; i++)
		ids[(*m)++] = b->byte_id[(unsigned char)p[i]];
	return true;
}

/* Make the initial symbols, at most one per byte. As in the reference, an unknown symbol is placed after the
 * byte symbols that follow it, before the next known character. */
static size_t split(const struct bpe *b, const struct vocab *v, const char *p, size_t n, uint32_t *ids)
{
	size_t m = 0;
	bool unk = false;
	for (size_t i = 0; i < n;) {
		int len = 1;
		uint32_t id;
		if (v->byte_level)
			id = b->byte_id[(unsigned char)p[i]];
		else if ((unsigned char)p[i] < 0x80)
			id = b->ascii_id[(unsigned char)p[i]];
		else {
			utf8_at(p + i, &len);
			id = vocab_find(v, p + i, (size_t)len);
		}
		if (id == VOCAB_NONE && b->by_score)
			id = BPE_CHAR + utf8_at(p + i, &len);
		if (id != VOCAB_NONE) {
			if (unk)
				ids[m++] = b->unk;
			unk = false;
			ids[m++] = id;
		} else if ((v->byte_level || !fallback(b, p + i, len, ids, &m)) && b->unk != VOCAB_NONE) {
			if (unk && !b->fuse_unk)
				ids[m++] = b->unk;
			unk = true;
		}
		i += (size_t)len;
	}
	if (unk)
		ids[m++] = b->unk;
	return m;
}

/* Merge by scanning.  rank[i]: the rank of the pair (i, i + 1), for i + 1 < m. */
static size_t merge_scan(const struct bpe *b, uint32_t *ids, uint32_t *rank, size_t m)
{
	for (;;) {
		size_t at = 0;
		for (size_t i = 1; i + 1 < m; i++)
			if (rank[i] < rank[at])
				at = i;
		if (m < 2 || rank[at] == BPE_NO_RANK)
			return m;
		ids[at] = merged_id(b, rank[at], ids[at], ids[at + 1]);
		memmove(ids + at + 1, ids + at + 2, (m - at - 2) * sizeof(ids[0]));
		memmove(rank + at, rank + at + 1, (m - at - 1) * sizeof(rank[0]));
		m--;
		if (at > 0)
			rank[at - 1] = pair_rank(b, ids[at - 1], ids[at]);
		if (at + 1 < m)
			rank[at] = pair_rank(b, ids[at], ids[at + 1]);
	}
}

static void heap_push(struct bpe_scratch *s, uint64_t x)
{
	array_grow(s->heap, s->heap_cap, s->n_heap + 1);
	size_t i = s->n_heap++;
	for (; i > 0 && s->heap[(i - 1) / 2] > x; i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = x;
}

static uint64_t heap_pop(struct bpe_scratch *s)
{
	uint64_t top = s->heap[0], x = s->heap[--s->n_heap];
	size_t i = 0;
	for (size_t c; (c = 2 * i + 1) < s->n_heap; i = c) {
		if (c + 1 < s->n_heap && s->heap[c + 1] < s->heap[c])
			c++;
		if (s->heap[c] >= x)
			break;
		s->heap[i] = s->heap[c];
	}
	s->heap[i] = x;
	return top;
}

static void pair_changed(const struct bpe *b, struct bpe_scratch *s, uint32_t at)
{
	uint32_t r = s->next[at];
	s->rank[at] = BPE_NO_RANK;
	if (r == UINT32_MAX)
		return;
	const struct merge_slot *slot = pair_slot(b, s->ids[at], s->ids[r]);
	s->rank[at] = slot->rank;
	if (slot->rank == BPE_NO_RANK)
		return;
	heap_push(s, pair_of(slot->rank, at));
	if (b->unused && b->unused[slot->id])
		s->parts[slot->id] = slot->pair;
}

/* Merge with a heap.  An entry is stale if the pair at its position has a different rank now. */
static void merge_heap(const struct bpe *b, struct bpe_scratch *s, size_t m)
{
	s->n_heap = 0;
	for (uint32_t i = 0; i < m; i++) {
		s->prev[i] = i ? i - 1 : UINT32_MAX;
		s->next[i] = i + 1 < m ? i + 1 : UINT32_MAX;
	}
	for (uint32_t i = 0; i < m; i++)
		pair_changed(b, s, i);
	while (s->n_heap) {
		uint64_t top = heap_pop(s);
		uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
		if (s->rank[at] != rank)
			continue;
		uint32_t gone = s->next[at];
		s->ids[at] = merged_id(b, rank, s->ids[at], s->ids[gone]);
		s->rank[gone] = BPE_NO_RANK;
		s->next[at] = s->next[gone];
		if (s->next[at] != UINT32_MAX)
			s->prev[s->next[at]] = at;
		if (s->prev[at] != UINT32_MAX)
			pair_changed(b, s, s->prev[at]);
		pair_changed(b, s, at);
	}
}

/* Output a text without a piece: its bytes, or a single unk for a run of such texts. */
static void put_unknown(const struct bpe *b, const char *p, size_t n, bool *after_unk, struct token_ids *out)
{
	bool as_bytes = b->byte_fallback;
	for (size_t i = 0; i < n && as_bytes; i++)
		as_bytes = b->byte_id[(unsigned char)p[i]] != VOCAB_NONE;
	for (size_t i = 0; i < n && as_bytes; i++)
		token_ids_push(out, b->byte_id[(unsigned char)p[i]]);
	if (!as_bytes && !*after_unk && b->unk != VOCAB_NONE)
		token_ids_push(out, b->unk);
	*after_unk = !as_bytes;
}

/* By scores: output an unused piece as the two pieces that made it. These are shorter, so the depth is
 * bounded by the longest piece (1024 bytes). */
static void put_scored(const struct bpe *b, const struct vocab *v, const struct bpe_scratch *s, uint32_t id,
		       bool *after_unk, struct token_ids *out)
{
	if (id >= BPE_CHAR) {
		char text[4];
		put_unknown(b, text, (size_t)utf8_encode(id - BPE_CHAR, text), after_unk, out);
	} else if (b->unused && b->unused[id] && s->parts[id] == BPE_NO_PAIR) {
		put_unknown(b, vocab_text(v, id), v->pieces[id].len, after_unk, out);
	} else if (b->unused && b->unused[id]) {
		put_scored(b, v, s, (uint32_t)(s->parts[id] >> 32), after_unk, out);
		put_scored(b, v, s, (uint32_t)s->parts[id], after_unk, out);
	} else {
		token_ids_push(out, id);
		*after_unk = false;
	}
}

static void put_symbol(const struct bpe *b, const struct vocab *v, const struct bpe_scratch *s, uint32_t id,
		       bool *after_unk, struct token_ids *out)
{
	if (b->by_score)
		put_scored(b, v, s, id, after_unk, out);
	else
		token_ids_push(out, id);
}

static void prepare_parts(const struct bpe *b, struct bpe_scratch *s)
{
	if (!s->parts)
		s->parts = xmalloc(b->n_parts * sizeof(s->parts[0]));
	memset(s->parts, 0xff, b->n_parts * sizeof(s->parts[0]));
}

void bpe_encode(const struct bpe *b, const struct vocab *v, struct bpe_scratch *s, const char *word, size_t n,
		struct token_ids *out)
{
	bool after_unk = false;
	assert(n <= UINT32_MAX / 2);
	if (n == 0)
		return;
	reserve(s, n);
	size_t m = split(b, v, word, n, s->ids);
	if (b->unused)
		prepare_parts(b, s);
	if (m > SCAN_MAX || b->unused) {
		merge_heap(b, s, m);
		for (uint32_t i = 0; i != UINT32_MAX; i = s->next[i])
			put_symbol(b, v, s, s->ids[i], &after_unk, out);
		return;
	}
	if (b->byte_pairs && m == n && b->unk == VOCAB_NONE) {
		for (size_t i = 0; i + 1 < m; i++)
			s->rank[i] = b->byte_pairs[(unsigned char)word[i] << 8 | (unsigned char)word[i + 1]];
	} else {
		for (size_t i = 0; i + 1 < m; i++)
			s->rank[i] = pair_rank(b, s->ids[i], s->ids[i + 1]);
	}
	m = merge_scan(b, s->ids, s->rank, m);
	for (size_t i = 0; i < m; i++)
		put_symbol(b, v, s, s->ids[i], &after_unk, out);
}
