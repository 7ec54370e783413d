/* utf8_set.c - splits ranges of code points into sequences of byte ranges and joins sequences with equal
 * first bytes. */
#include "grammar/utf8_set.h"
#include "base/alloc.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Units of work (work.h): per byte of a sequence; tails compared per unit. */
enum { PIECE_WORK = 2, TAILS_OF_UNIT = 16 };

/* Characters of len bytes; byte i is in [first[i], last[i]]. */
struct piece {
	uint8_t len, first[4], last[4];
};

struct pieces {
	struct piece *p;
	size_t n, cap;
};

static void put_piece(struct pieces *out, uint32_t first, uint32_t last)
{
	struct piece p = {0};
	array_grow(out->p, out->cap, out->n + 1);
	p.len = (uint8_t)utf8_encode(first, (char *)p.first);
	utf8_encode(last, (char *)p.last);
	out->p[out->n++] = p;
}

/* Split [first, last] where the encoding gets longer and where a non-final byte differs, until each byte has
 * a range independent of the others. */
static void cut_range(struct pieces *out, uint32_t first, uint32_t last)
{
	static const uint32_t longest[] = {0x7f, 0x7ff, 0xffff, 0x10ffff};
	for (int i = 0; i < 3; i++)
		if (first <= longest[i] && last > longest[i]) {
			cut_range(out, first, longest[i]);
			cut_range(out, longest[i] + 1, last);
			return;
		}
	for (int bits = 6; bits <= 18 && last > 0x7f; bits += 6) {
		uint32_t low = ((uint32_t)1 << bits) - 1;
		if ((first & ~low) == (last & ~low))
			break;
		if (first & low) {
			cut_range(out, first, first | low);
			cut_range(out, (first | low) + 1, last);
			return;
		}
		if ((last & low) != low) {
			cut_range(out, first, (last & ~low) - 1);
			cut_range(out, last & ~low, last);
			return;
		}
	}
	put_piece(out, first, last);
}

/* Return the expression of p[0..n) from byte at on. The sequences are sorted, so equal first
 * ranges are adjacent. */
static uint32_t join(struct exprs *x, const struct piece *p, size_t n, int at)
{
	uint32_t *heads = xcalloc(n, sizeof *heads), *tails = xcalloc(n, sizeof *tails);
	uint64_t(*sets)[4] = xcalloc(n, sizeof *sets);
	size_t m = 0;
	exprs_spend(x, PIECE_WORK * n);
	for (size_t i = 0, k; i < n && !exprs_error(x); i = k) {
		for (k = i + 1; k < n && p[k].len == p[i].len && p[k].first[at] == p[i].first[at] &&
				p[k].last[at] == p[i].last[at];)
			k++;
		uint32_t tail = p[i].len == at + 1 ? EXPR_EMPTY : join(x, p + i, k - i, at + 1);
		size_t t = 0;
		while (t < m && tails[t] != tail)
			t++;
		exprs_spend(x, t / TAILS_OF_UNIT);
		if (t == m)
			tails[m++] = tail;
		for (unsigned b = p[i].first[at]; b <= p[i].last[at]; b++)
			sets[t][b >> 6] |= (uint64_t)1 << (b & 63);
	}
	for (size_t t = 0; t < m; t++)
		heads[t] = expr_seq(x, expr_set(x, sets[t]), tails[t]);
	uint32_t e = expr_alt(x, heads, m);
	free(heads);
	free(tails);
	free(sets);
	return e;
}

uint32_t utf8_set_expr(struct exprs *x, const struct char_range *r, size_t n)
{
	struct pieces out = {0};
	for (size_t i = 0; i < n; i++)
		cut_range(&out, r[i].first, r[i].last);
	uint32_t e = out.n ? join(x, out.p, out.n, 0) : EXPR_NEVER;
	free(out.p);
	return e;
}
