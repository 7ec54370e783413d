/* char_set.c - ranges of characters, ECMA's classes, Unicode's general categories. */
#include "grammar/char_set.h"
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Number of ranges from which on overlaps are merged before growing. */
enum { SORT_MIN = 4096 };

void char_set_fini(struct char_set *s)
{
	free(s->r);
	*s = (struct char_set){0};
}

void char_set_add(struct char_set *s, uint32_t first, uint32_t last)
{
	if (s->n && s->r[s->n - 1].last + 1 == first) {
		s->r[s->n - 1].last = last;
		return;
	}
	/* Merge overlapping ranges ([\W\W\W...]) before they take more room. */
	if (s->n == s->cap && s->n >= SORT_MIN) {
		char_set_sort(s);
		if (s->n > s->cap / 2)
			array_grow(s->r, s->cap, s->cap + 1);
	}
	array_grow(s->r, s->cap, s->n + 1);
	s->r[s->n++] = (struct char_range){first, last};
}

static int by_first(const void *x, const void *y)
{
	const struct char_range *a = x, *b = y;
	return (a->first > b->first) - (a->first < b->first);
}

void char_set_sort(struct char_set *s)
{
	size_t m = 0;
	if (s->n)
		qsort(s->r, s->n, sizeof *s->r, by_first);
	for (size_t i = 0; i < s->n; i++) {
		if (m && s->r[i].first <= s->r[m - 1].last + 1) {
			if (s->r[i].last > s->r[m - 1].last)
				s->r[m - 1].last = s->r[i].last;
		} else {
			s->r[m++] = s->r[i];
		}
	}
	s->n = m;
}

void char_set_negate(struct char_set *s)
{
	struct char_set out = {0};
	uint32_t next = 0;
	char_set_sort(s);
	for (size_t i = 0; i < s->n; i++) {
		if (s->r[i].first > next)
			char_set_add(&out, next, s->r[i].first - 1);
		next = s->r[i].last + 1;
	}
	if (next <= CHAR_MAX_CODE)
		char_set_add(&out, next, CHAR_MAX_CODE);
	char_set_fini(s);
	*s = out;
}

static void add_all(struct char_set *s, const struct char_range *r, size_t n, bool negated)
{
	struct char_set other = {0};
	for (size_t i = 0; i < n; i++)
		char_set_add(&other, r[i].first, r[i].last);
	if (negated)
		char_set_negate(&other);
	for (size_t i = 0; i < other.n; i++)
		char_set_add(s, other.r[i].first, other.r[i].last);
	char_set_fini(&other);
}

bool char_set_add_class(struct char_set *s, char c)
{
	static const struct char_range digit[] = {{'0', '9'}};
	static const struct char_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
	/* WhiteSpace and LineTerminator of ECMA-262, 12.2 and 12.3. */
	static const struct char_range space[] = {
		{0x09, 0x0d},     {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
		{0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
	switch (c) {
	case 'd':
	case 'D':
		add_all(s, digit, 1, c == 'D');
		return true;
	case 'w':
	case 'W':
		add_all(s, word, 4, c == 'W');
		return true;
	case 's':
	case 'S':
		add_all(s, space, sizeof space / sizeof *space, c == 'S');
		return true;
	default:
		return false;
	}
}

/* Names as in PropertyValueAliases.  A one-letter name covers all categories that begin with the letter. */
static const struct {
	const char *name, *value;
} long_names[] = {
	{"Letter", "L"},
	{"Cased_Letter", "LC"},
	{"Uppercase_Letter", "Lu"},
	{"Lowercase_Letter", "Ll"},
	{"Titlecase_Letter", "Lt"},
	{"Modifier_Letter", "Lm"},
	{"Other_Letter", "Lo"},
	{"Mark", "M"},
	{"Combining_Mark", "M"},
	{"Nonspacing_Mark", "Mn"},
	{"Spacing_Mark", "Mc"},
	{"Enclosing_Mark", "Me"},
	{"Number", "N"},
	{"Decimal_Number", "Nd"},
	{"digit", "Nd"},
	{"Letter_Number", "Nl"},
	{"Other_Number", "No"},
	{"Punctuation", "P"},
	{"punct", "P"},
	{"Connector_Punctuation", "Pc"},
	{"Dash_Punctuation", "Pd"},
	{"Open_Punctuation", "Ps"},
	{"Close_Punctuation", "Pe"},
	{"Initial_Punctuation", "Pi"},
	{"Final_Punctuation", "Pf"},
	{"Other_Punctuation", "Po"},
	{"Symbol", "S"},
	{"Math_Symbol", "Sm"},
	{"Currency_Symbol", "Sc"},
	{"Modifier_Symbol", "Sk"},
	{"Other_Symbol", "So"},
	{"Separator", "Z"},
	{"Space_Separator", "Zs"},
	{"Line_Separator", "Zl"},
	{"Paragraph_Separator", "Zp"},
	{"Other", "C"},
	{"Control", "Cc"},
	{"cntrl", "Cc"},
	{"Format", "Cf"},
	{"Surrogate", "Cs"},
	{"Private_Use", "Co"},
	{"Unassigned", "Cn"},
};

/* utf8proc's categories, in its order. */
static const char categories[][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
				     "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
				     "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
enum { N_CATEGORIES = sizeof categories / sizeof *categories };

/* Return the categories with this name as bits; 0: none. */
static uint32_t categories_named(const char *name)
{
	uint32_t bits = 0;
	if (strcmp(name, "LC") == 0)
		return categories_named("Lu") | categories_named("Ll") | categories_named("Lt");
	for (unsigned i = 0; i < N_CATEGORIES; i++)
		if (categories[i][0] == name[0] && (!name[1] || strcmp(categories[i], name) == 0))
			bits |= (uint32_t)1 << i;
	return bits;
}

/* Ranges of a single category each, ascending. */
struct category_table {
	struct category_range {
		uint32_t first, last;
		unsigned category;
	} * r;
	size_t n, cap;
};

static void table_add(struct category_table *t, uint32_t first, uint32_t last, unsigned category)
{
	if (t->n && t->r[t->n - 1].category == category && t->r[t->n - 1].last + 1 == first) {
		t->r[t->n - 1].last = last;
		return;
	}
	array_grow(t->r, t->cap, t->n + 1);
	t->r[t->n++] = (struct category_range){first, last, category};
}

/* Return the table of categories. It is made once per process, since a pattern may name very many
 * categories. If two threads make it at the same time, one drops its copy. */
static const struct category_table *table_get(void)
{
	static struct category_table *_Atomic made;
	struct category_table *t = atomic_load(&made), *other = NULL;
	if (t)
		return t;
	t = xcalloc(1, sizeof *t);
	/* Nothing is assigned above this, except the tags of plane 14 and the private planes. */
	for (uint32_t c = 0; c <= 0x33479; c++)
		table_add(t, c, c, (unsigned)utf8proc_category((utf8proc_int32_t)c));
	table_add(t, 0x3347a, 0xdffff, 0);
	for (uint32_t c = 0xe0000; c <= 0xe01ef; c++)
		table_add(t, c, c, (unsigned)utf8proc_category((utf8proc_int32_t)c));
	table_add(t, 0xe01f0, 0xeffff, 0);
	table_add(t, 0xf0000, CHAR_MAX_CODE, N_CATEGORIES - 1);
	if (atomic_compare_exchange_strong(&made, &other, t))
		return t;
	free(t->r);
	free(t);
	return other;
}

bool char_set_add_category(struct char_set *s, const char *name, size_t n)
{
	char value[32];
	if (n == 0 || n >= sizeof value)
		return false;
	memcpy(value, name, n);
	value[n] = 0;
	if (strcmp(value, "Any") == 0 || strcmp(value, "ASCII") == 0) {
		char_set_add(s, 0, value[1] == 'n' ? CHAR_MAX_CODE : 0x7f);
		return true;
	}
	for (size_t i = 0; i < sizeof long_names / sizeof *long_names; i++)
		if (strcmp(value, long_names[i].name) == 0)
			memcpy(value, long_names[i].value, strlen(long_names[i].value) + 1);
	uint32_t wanted = categories_named(value);
	const struct category_table *t = table_get();
	for (size_t i = 0; wanted && i < t->n; i++)
		if (wanted >> t->r[i].category & 1)
			char_set_add(s, t->r[i].first, t->r[i].last);
	return wanted != 0;
}

/* ---- case folding ---- */

/* A character that shares its fold with others; ascending by fold, then by code. */
struct case_entry {
	uint32_t fold, code;
};

struct case_table {
	struct case_entry *e;
	size_t n, cap;
};

/* Turkish dotless and dotted i fold only to themselves. */
static uint32_t fold_of(uint32_t c)
{
	return c == 0x130 || c == 0x131 ? c
					: (uint32_t)utf8proc_tolower(utf8proc_toupper((utf8proc_int32_t)c));
}

static int by_fold(const void *x, const void *y)
{
	const struct case_entry *a = x, *b = y;
	return a->fold != b->fold ? (a->fold > b->fold) - (a->fold < b->fold)
				  : (a->code > b->code) - (a->code < b->code);
}

/* Return the table of case folds, made once per process like the table of table_get(). */
static const struct case_table *cases_get(void)
{
	static struct case_table *_Atomic made;
	struct case_table *t = atomic_load(&made), *other = NULL;
	if (t)
		return t;
	t = xcalloc(1, sizeof *t);
	for (uint32_t c = 0; c < 0x20000; c++) { /* no letter above has cases */
		const uint32_t fold = fold_of(c);
		if (fold == c && utf8proc_toupper((utf8proc_int32_t)c) == (utf8proc_int32_t)c)
			continue;
		array_grow(t->e, t->cap, t->n + 1);
		t->e[t->n++] = (struct case_entry){fold, c};
	}
	qsort(t->e, t->n, sizeof *t->e, by_fold);
	if (atomic_compare_exchange_strong(&made, &other, t))
		return t;
	free(t->e);
	free(t);
	return other;
}

static bool holds(const struct char_set *s, uint32_t c)
{
	size_t low = 0, high = s->n; /* low: the first range that does not end before c */
	while (low < high) {
		const size_t mid = (low + high) / 2;
		if (s->r[mid].last < c)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->n && s->r[low].first <= c;
}

/* Set *from to the first entry of c's fold and return the end of these entries. */
static size_t entries_of(const struct case_table *t, uint32_t c, size_t *from)
{
	const uint32_t fold = fold_of(c);
	size_t low = 0, high = t->n;
	while (low < high) {
		const size_t mid = (low + high) / 2;
		if (t->e[mid].fold < fold)
			low = mid + 1;
		else
			high = mid;
	}
	*from = low;
	while (low < t->n && t->e[low].fold == fold)
		low++;
	return low;
}

void char_set_add_cases(struct char_set *s)
{
	const struct case_table *t = cases_get();
	char_set_sort(s);
	const size_t n = s->n;
	if (n == 1 && s->r[0].first == s->r[0].last) { /* a single letter, the most frequent set */
		size_t from, to = entries_of(t, s->r[0].first, &from);
		for (; from < to; from++)
			char_set_add(s, t->e[from].code, t->e[from].code);
		char_set_sort(s);
		return;
	}
	struct char_set more = {0};
	for (size_t i = 0, j; i < t->n; i = j) {
		bool any = false;
		for (j = i; j < t->n && t->e[j].fold == t->e[i].fold; j++)
			any = any || holds(s, t->e[j].code);
		for (size_t k = i; any && k < j; k++)
			char_set_add(&more, t->e[k].code, t->e[k].code);
	}
	add_all(s, more.r, more.n, false);
	char_set_fini(&more);
	char_set_sort(s);
}
