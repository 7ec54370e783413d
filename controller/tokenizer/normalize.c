#include "controller/tokenizer/normalize.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Characters with a combining class, composition or decomposition in utf8proc 2.8 (Unicode 15) but not in
 * Unicode 9. Ascending. */
static const uint32_t newer[][2] = {
	{0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
	{0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
	{0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785},
	{0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
	{0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
	{0x11839, 0x1183a}, {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0},
	{0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
	{0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f},
	{0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c},
	{0x1fbf0, 0x1fbf9},
};

bool norm_is_newer(uint32_t cp)
{
	size_t lo = 0, hi = sizeof(newer) / sizeof(newer[0]);
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (cp > newer[mid][1])
			lo = mid + 1;
		else if (cp < newer[mid][0])
			hi = mid;
		else
			return true;
	}
	return false;
}

static int combining_class(uint32_t cp)
{
	int c;
	if (cp < 0x300)
		return 0;
	c = utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
	return c && norm_is_newer(cp) ? 0 : c;
}

/* Return true if a block may end before cp: in NFC no earlier character interacts with cp, and cp alone is
 * unchanged. (A character below U+0300 composes only with a following character.) */
static bool starts_block(uint32_t cp)
{
	if (cp < 0x300)
		return true;
	if ((cp >= 0x400 && cp <= 0x482) || (cp >= 0x3041 && cp <= 0x3096) ||
	    (cp >= 0x30a1 && cp <= 0x30fa) || (cp >= 0x3400 && cp <= 0x9fff) ||
	    (cp >= 0xac00 && cp <= 0xd7a3))
		return true;
	if (cp >= 0x1100 && cp <= 0x11ff) /* Hangul composes by rule, not by table */
		return false;
	const utf8proc_property_t *pr = utf8proc_get_property((utf8proc_int32_t)cp);
	return (pr->combining_class == 0 && pr->comb_index == UINT16_MAX &&
		pr->decomp_seqindex == UINT16_MAX) ||
	       norm_is_newer(cp);
}

/* ---- one block of code points ---- */

static void cps_reserve(struct norm_text *t, size_t more)
{
	array_grow(t->cps, t->cps_cap, t->n_cps + more);
}

/* The longest decomposition of a character. */
enum { DECOMPOSED_MAX = 18 };

static void decompose(struct norm_text *t, const char *p, size_t n, bool compat)
{
	utf8proc_option_t opt = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
	t->n_cps = 0;
	for (size_t i = 0; i < n;) {
		int len;
		uint32_t cp = utf8_at(p + i, &len);
		i += (size_t)len;
		cps_reserve(t, DECOMPOSED_MAX);
		if (cp < 0x80 || norm_is_newer(cp)) {
			t->cps[t->n_cps++] = cp;
			continue;
		}
		utf8proc_int32_t d[DECOMPOSED_MAX];
		utf8proc_ssize_t k =
			utf8proc_decompose_char((utf8proc_int32_t)cp, d, DECOMPOSED_MAX, opt, NULL);
		if (k < 1 || k > DECOMPOSED_MAX) {
			t->cps[t->n_cps++] = cp;
			continue;
		}
		for (utf8proc_ssize_t j = 0; j < k; j++)
			t->cps[t->n_cps++] = (uint32_t)d[j];
	}
}

/* Sort marks by combining class (1..254) with a stable counting sort: a hostile text may be a run of a
 * million marks. */
static void sort_marks(uint32_t *cps, size_t n)
{
	size_t at[257] = {0};
	bool sorted = true;
	for (size_t i = 1; i < n && sorted; i++)
		sorted = combining_class(cps[i - 1]) <= combining_class(cps[i]);
	if (sorted)
		return;
	uint32_t *copy = xmemdup(cps, n * sizeof(cps[0]));
	for (size_t i = 0; i < n; i++)
		at[combining_class(copy[i]) + 1]++;
	for (int c = 1; c < 257; c++)
		at[c] += at[c - 1];
	for (size_t i = 0; i < n; i++)
		cps[at[combining_class(copy[i])]++] = copy[i];
	free(copy);
}

static void reorder(struct norm_text *t)
{
	for (size_t i = 0; i < t->n_cps;) {
		size_t run = i;
		while (i < t->n_cps && combining_class(t->cps[i]) != 0)
			i++;
		if (i - run > 1)
			sort_marks(t->cps + run, i - run);
		if (i == run)
			i++;
	}
}

/* Return the primary composite of a and b, or 0. */
static uint32_t compose_pair(uint32_t a, uint32_t b)
{
	utf8proc_int32_t two[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
	if (norm_is_newer(a) || norm_is_newer(b))
		return 0;
	if (utf8proc_normalize_utf32(two, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) != 1 ||
	    norm_is_newer((uint32_t)two[0]))
		return 0;
	return (uint32_t)two[0];
}

/* Canonical composition, UAX #15. last_class 0 with a known starter: no mark is between the starter and the
 * next character. */
static void compose(struct norm_text *t)
{
	size_t n = 0, starter = SIZE_MAX;
	int last_class = 0;
	for (size_t i = 0; i < t->n_cps; i++) {
		uint32_t cp = t->cps[i];
		int c = combining_class(cp);
		if (starter != SIZE_MAX && (last_class == 0 || last_class < c)) {
			uint32_t whole = compose_pair(t->cps[starter], cp);
			if (whole) {
				t->cps[starter] = whole;
				continue;
			}
		}
		if (c == 0)
			starter = n;
		last_class = c;
		t->cps[n++] = cp;
	}
	t->n_cps = n;
}

static void put_block(struct norm_text *t, struct buf *out)
{
	char s[4];
	for (size_t i = 0; i < t->n_cps; i++)
		buf_put(out, s, (size_t)utf8_encode(t->cps[i], s));
}

/* ---- operations on a whole text ---- */

/* Set the origin of bytes [from, out->len) of buffer w to at. */
static void note_origin(struct norm_text *t, int w, size_t from, size_t at, const size_t *before)
{
	size_t n = t->out[w].len;
	array_grow(t->origins[w], t->origins_cap[w], n);
	for (size_t i = from; i < n; i++)
		t->origins[w][i] = before ? before[at] : at;
}

struct step {
	const char *p;
	size_t n;
	const size_t *before; /* origins of p's bytes; NULL: their own offsets */
	bool origins;
	int w; /* index of the buffer written to */
};

static void copy_through(struct norm_text *t, const struct step *st, size_t from, size_t to)
{
	struct buf *out = &t->out[st->w];
	size_t start = out->len;
	buf_put(out, st->p + from, to - from);
	if (!st->origins)
		return;
	note_origin(t, st->w, out->len, 0, NULL); /* only reserve room */
	for (size_t i = from; i < to; i++)
		t->origins[st->w][start + i - from] = st->before ? st->before[i] : i;
}

static void normalize_block(struct norm_text *t, const struct step *st, enum norm_kind kind, size_t from,
			    size_t to)
{
	size_t start = t->out[st->w].len;
	decompose(t, st->p + from, to - from, kind == NORM_NFKC || kind == NORM_NFKD);
	reorder(t);
	if (kind == NORM_NFC || kind == NORM_NFKC)
		compose(t);
	put_block(t, &t->out[st->w]);
	if (st->origins)
		note_origin(t, st->w, start, from, st->before);
}

/* Return the end of the block that begins at from; *plain: it needs no normalization, so it may be copied
 * with its neighbours. */
static size_t next_block(const struct step *st, enum norm_kind kind, size_t from, bool *plain)
{
	size_t i = from;
	*plain = true;
	while (i < st->n) {
		int len;
		uint32_t cp = utf8_at(st->p + i, &len);
		bool starts = kind == NORM_NFC ? starts_block(cp) : cp < 0x80;
		if (i > from && starts)
			break;
		if (!starts)
			*plain = false;
		i += (size_t)len;
	}
	return i;
}

/* Return false, and write nothing, if the text is already in this form. */
static bool run_constraint(struct norm_text *t, const struct step *st, enum norm_kind kind)
{
	size_t done = 0, i = 0;
	bool changed = false;
	while (i < st->n) {
		bool plain;
		/* Two ASCII characters in a row: the first is a block by itself. */
		if (i + 1 < st->n && !((st->p[i] | st->p[i + 1]) & 0x80)) {
			i++;
			continue;
		}
		size_t end = next_block(st, kind, i, &plain);
		if (!plain) {
			copy_through(t, st, done, i);
			normalize_block(t, st, kind, i, end);
			done = end;
			changed = true;
		}
		i = end;
	}
	if (changed)
		copy_through(t, st, done, st->n);
	return changed;
}

static bool run_prepend(struct norm_text *t, const struct step *st, const struct norm_op *op)
{
	if (st->n == 0)
		return false;
	buf_puts(&t->out[st->w], op->to);
	if (st->origins)
		note_origin(t, st->w, 0, 0, st->before);
	copy_through(t, st, 0, st->n);
	return true;
}

static bool run_replace(struct norm_text *t, const struct step *st, const struct norm_op *op)
{
	size_t k = strlen(op->from), done = 0;
	const char *hit;
	bool changed = false;
	while (done < st->n && (hit = memmem(st->p + done, st->n - done, op->from, k)) != NULL) {
		size_t at = (size_t)(hit - st->p), start;
		copy_through(t, st, done, at);
		start = t->out[st->w].len;
		buf_puts(&t->out[st->w], op->to);
		if (st->origins)
			note_origin(t, st->w, start, at, st->before);
		done = at + k;
		changed = true;
	}
	if (changed)
		copy_through(t, st, done, st->n);
	return changed;
}

void norm_run(const struct norm *nm, const char *p, size_t n, bool origins, struct norm_text *t)
{
	struct step st = {.p = p, .n = n, .origins = origins};
	for (int i = 0; i < nm->n; i++) {
		const struct norm_op *op = &nm->ops[i];
		bool changed;
		buf_clear(&t->out[st.w]);
		if (op->kind == NORM_PREPEND)
			changed = run_prepend(t, &st, op);
		else if (op->kind == NORM_REPLACE)
			changed = run_replace(t, &st, op);
		else
			changed = run_constraint(t, &st, op->kind);
		if (!changed)
			continue;
		st.p = t->out[st.w].p;
		st.n = t->out[st.w].len;
		st.before = origins ? t->origins[st.w] : NULL;
		st.w = !st.w;
	}
	t->p = st.p;
	t->n = st.n;
	t->origin = (size_t *)st.before;
}

void norm_fini(struct norm *nm)
{
	for (int i = 0; i < nm->n; i++) {
		free(nm->ops[i].from);
		free(nm->ops[i].to);
	}
	nm->n = 0;
}

void norm_text_fini(struct norm_text *t)
{
	for (int i = 0; i < 2; i++) {
		buf_fini(&t->out[i]);
		free(t->origins[i]);
	}
	free(t->cps);
}
