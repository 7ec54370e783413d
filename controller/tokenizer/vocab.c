#include "controller/tokenizer/vocab.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "controller/tokenizer/tokenizer.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* GPT-2's alphabet: printable Latin-1 bytes map to themselves, the 68 others to U+0100 and up. */
static bool stands_for_itself(unsigned b)
{
	return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

enum { ALPHABET_END = 0x144 };

/* The byte of each character, or 256. */
static uint16_t alphabet[ALPHABET_END];

/* Builds the table at program start, before threads exist, so that no lock is needed. */
__attribute__((constructor)) static void alphabet_init(void)
{
	unsigned next = 0x100;
	for (unsigned c = 0; c < ALPHABET_END; c++)
		alphabet[c] = 256;
	for (unsigned b = 0; b < 256; b++)
		alphabet[stands_for_itself(b) ? b : next++] = (uint16_t)b;
}

bool vocab_spelled_bytes(const char *p, size_t n, struct buf *out)
{
	size_t before = out->len;
	buf_reserve(out, n);
	for (size_t i = 0; i < n;) {
		int len;
		uint32_t cp = utf8_at(p + i, &len);
		if (cp >= ALPHABET_END || alphabet[cp] > 255) {
			out->len = before;
			return false;
		}
		out->p[out->len++] = (char)alphabet[cp];
		i += (size_t)len;
	}
	out->p[out->len] = 0;
	return true;
}

void vocab_init(struct vocab *v, bool byte_level)
{
	*v = (struct vocab){.byte_level = byte_level, .mask = 255};
	v->slots = xmalloc(sizeof(v->slots[0]) * (v->mask + 1));
	memset(v->slots, 0xff, sizeof(v->slots[0]) * (v->mask + 1));
	buf_reserve(&v->text, 1); /* so that an empty piece has an address too */
}

void vocab_fini(struct vocab *v)
{
	free(v->pieces);
	free(v->slots);
	buf_fini(&v->text);
}

static void slot_put(struct vocab *v, uint64_t hash, uint32_t id)
{
	size_t i = hash & v->mask;
	while (v->slots[i].id != VOCAB_NONE)
		i = (i + 1) & v->mask;
	v->slots[i] = (struct vocab_slot){(uint32_t)(hash >> 32), id, v->pieces[id].at, v->pieces[id].len};
}

static void grow(struct vocab *v)
{
	free(v->slots);
	v->mask = v->mask * 4 + 3;
	v->slots = xmalloc(sizeof(v->slots[0]) * (v->mask + 1));
	memset(v->slots, 0xff, sizeof(v->slots[0]) * (v->mask + 1));
	for (uint32_t id = 0; id < v->n; id++)
		if (v->pieces[id].flags & PIECE_MODEL && !(v->pieces[id].flags & PIECE_LITERAL))
			slot_put(v, XXH3_64bits(vocab_text(v, id), v->pieces[id].len), id);
}

static uint32_t find_hashed(const struct vocab *v, uint64_t hash, const char *p, size_t n)
{
	uint32_t upper = (uint32_t)(hash >> 32);
	for (size_t i = hash & v->mask;; i = (i + 1) & v->mask) {
		const struct vocab_slot *s = &v->slots[i];
		if (s->id == VOCAB_NONE)
			return VOCAB_NONE;
		if (s->hash == upper && s->len == n && memcmp(v->text.p + s->at, p, n) == 0)
			return s->id;
	}
}

uint32_t vocab_find(const struct vocab *v, const char *p, size_t n)
{
	return find_hashed(v, XXH3_64bits(p, n), p, n);
}

static bool is_piece(const struct vocab *v, uint32_t id, const char *p, size_t n)
{
	return id < v->n && v->pieces[id].len == n && v->pieces[id].flags & PIECE_MODEL &&
	       !(v->pieces[id].flags & PIECE_LITERAL) && memcmp(vocab_text(v, id), p, n) == 0;
}

uint32_t vocab_find_near(const struct vocab *v, const char *p, size_t n, uint32_t hint)
{
	if (is_piece(v, hint, p, n))
		return hint;
	return is_piece(v, hint + 1, p, n) ? hint + 1 : vocab_find(v, p, n);
}

uint32_t vocab_find_spelled(const struct vocab *v, const char *p, size_t n, struct buf *tmp)
{
	if (!v->byte_level)
		return vocab_find(v, p, n);
	buf_clear(tmp);
	if (!vocab_spelled_bytes(p, n, tmp))
		return VOCAB_NONE;
	return vocab_find(v, tmp->p, tmp->len);
}

static struct piece *piece_at(struct vocab *v, uint32_t id)
{
	if (id >= v->cap) {
		uint32_t had = v->cap;
		array_grow(v->pieces, v->cap, id + (size_t)1);
		memset(v->pieces + had, 0, (v->cap - had) * sizeof(v->pieces[0]));
	}
	if (id >= v->n)
		v->n = id + 1;
	return &v->pieces[id];
}

/* Append the text of a piece to v->text, as bytes if the model is byte-level. */
static int store_text(struct vocab *v, struct piece *pc, const char *p, size_t n)
{
	if (n > VOCAB_TEXT_MAX - v->text.len)
		return -EFBIG;
	pc->at = (uint32_t)v->text.len;
	if (!v->byte_level || !vocab_spelled_bytes(p, n, &v->text)) {
		buf_put(&v->text, p, n);
		if (v->byte_level)
			pc->flags |= PIECE_LITERAL;
	}
	pc->len = (uint32_t)(v->text.len - pc->at);
	pc->flags |= PIECE_USED;
	return 0;
}

int vocab_add(struct vocab *v, uint32_t id, const char *p, size_t n)
{
	if (id > VOCAB_ID_MAX)
		return -EFBIG;
	struct piece *pc = piece_at(v, id);
	if (pc->flags & PIECE_USED)
		return -EEXIST;
	int rc = store_text(v, pc, p, n);
	if (rc)
		return rc;
	pc->flags |= PIECE_MODEL;
	if (pc->flags & PIECE_LITERAL)
		return 0;
	uint64_t hash = XXH3_64bits(vocab_text(v, id), pc->len);
	if (find_hashed(v, hash, vocab_text(v, id), pc->len) != VOCAB_NONE)
		return -EEXIST;
	if (++v->n_used > (v->mask + 1) / 8 * 5)
		grow(v);
	else
		slot_put(v, hash, id);
	return 0;
}

int vocab_add_token(struct vocab *v, uint32_t id, const char *p, size_t n, uint8_t flags)
{
	if (id > VOCAB_ID_MAX)
		return -EFBIG;
	struct piece *pc = piece_at(v, id);
	if (pc->flags & PIECE_USED) {
		struct buf spelled = {0};
		bool same = pc->len == n && memcmp(vocab_text(v, id), p, n) == 0;
		if (!same && v->byte_level && vocab_spelled_bytes(p, n, &spelled))
			same = pc->len == spelled.len &&
			       memcmp(vocab_text(v, id), spelled.p, spelled.len) == 0;
		buf_fini(&spelled);
		if (!same)
			return -EEXIST;
	} else {
		int rc = store_text(v, pc, p, n);
		if (rc)
			return rc;
	}
	pc->flags |= flags | PIECE_ADDED;
	return 0;
}

void token_ids_push(struct token_ids *t, uint32_t id)
{
	array_grow(t->ids, t->cap, t->n + 1);
	t->ids[t->n++] = id;
}

void token_ids_fini(struct token_ids *t)
{
	free(t->ids);
	*t = (struct token_ids){0};
}
