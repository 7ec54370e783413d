#include "base/charclass.h"

#include <stddef.h>
#include <utf8proc.h>

#define O CHAR_OTHER
#define L CHAR_LETTER
#define N CHAR_NUMBER
#define S CHAR_SPACE
#define R CHAR_NEWLINE
const uint8_t charclass_ascii[128] = {
	O, O, O, O, O, O, O, O, O, S, R, S, S, R, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
	S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O,
	O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
	O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
};
#undef O
#undef L
#undef N
#undef S
#undef R

struct range {
	uint32_t from, to;
};

/* Letters and numbers added in Unicode 15.0, 15.1 and 16.0.  Ascending. */
static const struct range newer_letters[] = {
	{0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3}, {0x10d4a, 0x10d65},
	{0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x1123f, 0x11240}, {0x11380, 0x11389}, {0x1138b, 0x1138b},
	{0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7}, {0x113d1, 0x113d1}, {0x113d3, 0x113d3},
	{0x11bc0, 0x11be0}, {0x11f02, 0x11f02}, {0x11f04, 0x11f10}, {0x11f12, 0x11f33}, {0x1342f, 0x1342f},
	{0x13441, 0x13446}, {0x13460, 0x143fa}, {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff},
	{0x1b132, 0x1b132}, {0x1b155, 0x1b155}, {0x1df25, 0x1df2a}, {0x1e030, 0x1e06d}, {0x1e4d0, 0x1e4eb},
	{0x1e5d0, 0x1e5ed}, {0x1e5f0, 0x1e5f0}, {0x2b739, 0x2b739}, {0x2ebf0, 0x2ee5d}, {0x31350, 0x323af},
};
static const struct range newer_numbers[] = {
	{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x11f50, 0x11f59}, {0x16130, 0x16139},
	{0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9}, {0x1d2c0, 0x1d2d3}, {0x1e4f0, 0x1e4f9}, {0x1e5f1, 0x1e5fa},
};
/* Alphabetic characters that are neither letters, letter numbers nor marks: circled and squared letters. */
static const struct range alphabetic_symbols[] = {
	{0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

static bool in_ranges(const struct range *r, size_t n, uint32_t cp)
{
	size_t lo = 0, hi = n;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (cp > r[mid].to)
			lo = mid + 1;
		else if (cp < r[mid].from)
			hi = mid;
		else
			return true;
	}
	return false;
}
#define IN(table, cp) in_ranges(table, sizeof(table) / sizeof((table)[0]), cp)

bool charclass_is_space(uint32_t cp)
{
	if (cp < 0x1680)
		return cp == ' ' || (cp >= 9 && cp <= 13) || cp == 0x85 || cp == 0xa0;
	return cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
	       cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

enum charclass charclass_other(uint32_t cp)
{
	if ((cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0xac00 && cp <= 0xd7a3) ||
	    (cp >= 0x3041 && cp <= 0x3096))
		return CHAR_LETTER;
	switch (utf8proc_category((utf8proc_int32_t)cp)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
		return CHAR_LETTER;
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_NO:
		return CHAR_NUMBER;
	case UTF8PROC_CATEGORY_CN:
		if (IN(newer_letters, cp))
			return CHAR_LETTER;
		return IN(newer_numbers, cp) ? CHAR_NUMBER : CHAR_OTHER;
	default:
		return charclass_is_space(cp) ? CHAR_SPACE : CHAR_OTHER;
	}
}

bool charclass_is_word(uint32_t cp)
{
	if (charclass_of(cp) == CHAR_LETTER || cp == 0x200c || cp == 0x200d || IN(alphabetic_symbols, cp))
		return true;
	switch (utf8proc_category((utf8proc_int32_t)cp)) {
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_PC:
		return true;
	default:
		return false;
	}
}

void charclass_newer(enum charclass c, struct buf *out)
{
	const struct range *r = c == CHAR_LETTER ? newer_letters : newer_numbers;
	size_t n = c == CHAR_LETTER ? sizeof(newer_letters) : sizeof(newer_numbers);
	for (size_t i = 0; i < n / sizeof(r[0]); i++)
		buf_printf(out, "\\x{%x}-\\x{%x}", r[i].from, r[i].to);
}
