/* The methods of strings, as in Python's str. */
#include "controller/jinja/jinja_impl.h"

#include "base/charclass.h"
#include "base/utf8.h"

#include <utf8proc.h>

/* ---- helpers ---- */

static int64_t int_or(struct jrender *r, struct jv v, const char *what, int64_t otherwise)
{
	return jarg_given(v) ? jv_need_int(&r->c, v, what) : otherwise;
}

/* Return the byte at which x begins in s[from, to), or -1. */
static int64_t find_in(struct jrender *r, const struct jstr *s, size_t from, size_t to, const struct jstr *x)
{
	if (from > to)
		return -1;
	if (x->n == 0)
		return (int64_t)from;
	const char *hit = memmem(s->p + from, to - from, x->p, x->n);
	size_t end = hit ? (size_t)(hit - s->p) : to;
	jinja_step(&r->c, 1 + ((end - from) >> 6));
	return hit ? (int64_t)end : -1;
}

static int64_t find_last(struct jrender *r, const struct jstr *s, size_t from, size_t to,
			 const struct jstr *x)
{
	if (from > to || to - from < x->n)
		return -1;
	for (size_t at = to - x->n + 1; at-- > from;) {
		jinja_step(&r->c, 1 + (x->n >> 4));
		if (memcmp(s->p + at, x->p, x->n) == 0)
			return (int64_t)at;
	}
	return -1;
}

/* Convert start and end (in characters, may be negative) to bytes.  Return false if start is after end. */
static bool range_of(struct jrender *r, struct jstr *s, struct jv start, struct jv end, size_t *from,
		     size_t *to)
{
	int64_t n = (int64_t)jstr_chars(s), i = int_or(r, start, "start", 0), j = int_or(r, end, "end", n);
	if (i > n)
		return false;
	i = i < 0 ? (i < -n ? 0 : i + n) : i;
	j = j < 0 ? (j < -n ? 0 : j + n) : j > n ? n : j;
	*from = jstr_offset(s, (size_t)i);
	*to = jstr_offset(s, (size_t)j);
	return i <= j;
}

static bool in_set(const struct jstr *set, uint32_t cp)
{
	int len;
	for (size_t i = 0; i < set->n; i += (size_t)len)
		if (utf8_at(set->p + i, &len) == cp)
			return true;
	return false;
}

static struct jv strip(struct jrender *r, struct jstr *s, struct jv chars, bool left, bool right)
{
	const struct jstr *set = jarg_given(chars) ? jv_need_str(&r->c, chars, "strip arg") : NULL;
	size_t from = 0, to = s->n;
	int len;
	while (left && from < to) {
		uint32_t cp = utf8_at(s->p + from, &len);
		jinja_step(&r->c, set ? 1 + (set->n >> 4) : 0);
		if (!(set ? in_set(set, cp) : jchar_is_space(cp)))
			break;
		from += (size_t)len;
	}
	while (right && to > from) {
		uint32_t cp = utf8_before(s->p, to, &len);
		jinja_step(&r->c, set ? 1 + (set->n >> 4) : 0);
		if (!(set ? in_set(set, cp) : jchar_is_space(cp)))
			break;
		to -= (size_t)len;
	}
	jinja_step(&r->c, (s->n - (to - from)) >> 4);
	return from == 0 && to == s->n ? (struct jv){.t = J_STR, .s = s} : jstr_sub(&r->c, s, from, to);
}

JINJA_FN(str_strip, self)
{
	return strip(r, self.s, a[0], true, true);
}

JINJA_FN(str_lstrip, self)
{
	return strip(r, self.s, a[0], true, false);
}

JINJA_FN(str_rstrip, self)
{
	return strip(r, self.s, a[0], false, true);
}

/* ---- case ---- */

JINJA_FN(str_lower, self)
{
	return jstr_recase(&r->c, self.s, JRECASE_LOWER);
}

JINJA_FN(str_upper, self)
{
	return jstr_recase(&r->c, self.s, JRECASE_UPPER);
}

JINJA_FN(str_capitalize, self)
{
	return jstr_recase(&r->c, self.s, JRECASE_CAPITAL);
}

JINJA_FN(str_title, self)
{
	return jstr_recase(&r->c, self.s, JRECASE_TITLE);
}

JINJA_FN(str_swapcase, self)
{
	return jstr_recase(&r->c, self.s, JRECASE_SWAP);
}

JINJA_FN(str_casefold, self)
{
	return jstr_casefold(&r->c, self.s);
}

/* ---- searching ---- */

static bool affix_is(const struct jstr *s, size_t from, size_t to, const struct jstr *x, bool suffix)
{
	if (x->n > to - from)
		return false;
	return memcmp(s->p + (suffix ? to - x->n : from), x->p, x->n) == 0;
}

static struct jv has_affix(struct jrender *r, struct jstr *s, const struct jv *a, bool suffix)
{
	size_t from, to;
	bool in = range_of(r, s, a[1], a[2], &from, &to), is = false;
	const char *name = suffix ? "endswith first arg" : "startswith first arg";
	if (a[0].t != J_TUPLE) {
		const struct jstr *x = jv_need_str(&r->c, a[0], name);
		return jv_bool(in && affix_is(s, from, to, x, suffix));
	}
	for (size_t i = 0; i < a[0].l->n; i++) {
		const struct jstr *x = jv_need_str(&r->c, a[0].l->v[i], name);
		is |= in && affix_is(s, from, to, x, suffix);
	}
	return jv_bool(is);
}

JINJA_FN(str_startswith, self)
{
	return has_affix(r, self.s, a, false);
}

JINJA_FN(str_endswith, self)
{
	return has_affix(r, self.s, a, true);
}

static int64_t chars_before(const struct jstr *s, size_t byte)
{
	struct jstr part = {.p = s->p, .n = (uint32_t)byte, .chars = UINT32_MAX};
	return (int64_t)jstr_chars(&part);
}

static int64_t find(struct jrender *r, struct jstr *s, const struct jv *a, bool last)
{
	size_t from, to;
	const struct jstr *x = jv_need_str(&r->c, a[0], "the substring");
	if (!range_of(r, s, a[1], a[2], &from, &to))
		return -1;
	int64_t at = last ? find_last(r, s, from, to, x) : find_in(r, s, from, to, x);
	return at < 0 ? -1 : chars_before(s, (size_t)at);
}

JINJA_FN(str_find, self)
{
	return jv_int(find(r, self.s, a, false));
}

JINJA_FN(str_rfind, self)
{
	return jv_int(find(r, self.s, a, true));
}

static struct jv index_of(struct jrender *r, struct jstr *s, const struct jv *a, bool last)
{
	int64_t at = find(r, s, a, last);
	if (at < 0)
		jinja_fail(&r->c, -EINVAL, "substring not found");
	return jv_int(at);
}

JINJA_FN(str_index, self)
{
	return index_of(r, self.s, a, false);
}

JINJA_FN(str_rindex, self)
{
	return index_of(r, self.s, a, true);
}

JINJA_FN(str_count, self)
{
	size_t from, to;
	int64_t n = 0, at;
	const struct jstr *x = jv_need_str(&r->c, a[0], "the substring");
	if (!range_of(r, self.s, a[1], a[2], &from, &to))
		return jv_int(0);
	if (x->n == 0)
		return jv_int(chars_before(self.s, to) - chars_before(self.s, from) + 1);
	for (; (at = find_in(r, self.s, from, to, x)) >= 0; n++)
		from = (size_t)at + x->n;
	return jv_int(n);
}

/* ---- classes of characters ---- */

static bool is_alpha(uint32_t cp)
{
	return charclass_of(cp) == CHAR_LETTER;
}

static bool is_digit(uint32_t cp)
{
	return utf8proc_category((int32_t)cp) == UTF8PROC_CATEGORY_ND;
}

static bool is_numeric(uint32_t cp)
{
	return charclass_of(cp) == CHAR_NUMBER;
}

static bool is_alnum(uint32_t cp)
{
	return is_alpha(cp) || is_numeric(cp);
}

static bool is_ascii(uint32_t cp)
{
	return cp < 128;
}

static struct jv all_are(struct jrender *r, const struct jstr *s, bool (*is)(uint32_t), bool empty)
{
	int len;
	jinja_step(&r->c, s->n >> 4);
	for (size_t at = 0; at < s->n; at += (size_t)len)
		if (!is(utf8_at(s->p + at, &len)))
			return jv_false;
	return jv_bool(s->n > 0 || empty);
}

JINJA_FN(str_isalpha, self)
{
	return all_are(r, self.s, is_alpha, false);
}

JINJA_FN(str_isdigit, self)
{
	return all_are(r, self.s, is_digit, false);
}

JINJA_FN(str_isnumeric, self)
{
	return all_are(r, self.s, is_numeric, false);
}

JINJA_FN(str_isalnum, self)
{
	return all_are(r, self.s, is_alnum, false);
}

JINJA_FN(str_isspace, self)
{
	return all_are(r, self.s, jchar_is_space, false);
}

JINJA_FN(str_isascii, self)
{
	return all_are(r, self.s, is_ascii, true);
}

static struct jv case_is(struct jrender *r, const struct jstr *s, bool upper)
{
	bool any = false;
	int len;
	jinja_step(&r->c, s->n >> 4);
	for (size_t at = 0; at < s->n; at += (size_t)len) {
		uint32_t cp = utf8_at(s->p + at, &len);
		if (!jchar_is_cased(cp))
			continue;
		any = true;
		if (!(upper ? jchar_is_upper(cp) : jchar_is_lower(cp)))
			return jv_false;
	}
	return jv_bool(any);
}

JINJA_FN(str_islower, self)
{
	return case_is(r, self.s, false);
}

JINJA_FN(str_isupper, self)
{
	return case_is(r, self.s, true);
}

JINJA_FN(str_istitle, self)
{
	bool any = false, cased = false;
	int len;
	jinja_step(&r->c, self.s->n >> 4);
	for (size_t at = 0; at < self.s->n; at += (size_t)len) {
		uint32_t cp = utf8_at(self.s->p + at, &len);
		bool lower = jchar_is_lower(cp), is = jchar_is_cased(cp);
		if (is && lower != cased)
			return jv_false;
		any |= is;
		cased = is;
	}
	return jv_bool(any);
}

/* ---- splitting ---- */

static size_t word_begin(const struct jstr *s, size_t at)
{
	int len;
	while (at < s->n && jchar_is_space(utf8_at(s->p + at, &len)))
		at += (size_t)len;
	return at;
}

static size_t word_end(const struct jstr *s, size_t at)
{
	int len;
	while (at < s->n && !jchar_is_space(utf8_at(s->p + at, &len)))
		at += (size_t)len;
	return at;
}

static struct jv split_words(struct jrender *r, const struct jstr *s, int64_t max)
{
	struct jlist l = {0};
	size_t at = word_begin(s, 0);
	for (; at < s->n && (max < 0 || (int64_t)l.n < max); at = word_begin(s, at)) {
		size_t end = word_end(s, at);
		jlist_push(&r->c, &l, jstr_sub(&r->c, s, at, end));
		at = end;
	}
	if (at < s->n)
		jlist_push(&r->c, &l, jstr_sub(&r->c, s, at, s->n));
	return jlist_done(&r->c, &l);
}

static const struct jstr *separator(struct jrender *r, struct jv v)
{
	const struct jstr *sep = jv_need_str(&r->c, v, "the separator");
	if (!sep->n)
		jinja_fail(&r->c, -EINVAL, "empty separator");
	return sep;
}

JINJA_FN(str_split, self)
{
	const struct jstr *s = self.s;
	int64_t max = int_or(r, a[1], "maxsplit", -1), at;
	struct jlist l = {0};
	size_t from = 0;
	if (!jarg_given(a[0]))
		return split_words(r, s, max);
	const struct jstr *sep = separator(r, a[0]);
	while ((max < 0 || (int64_t)l.n < max) && (at = find_in(r, s, from, s->n, sep)) >= 0) {
		jlist_push(&r->c, &l, jstr_sub(&r->c, s, from, (size_t)at));
		from = (size_t)at + sep->n;
	}
	jlist_push(&r->c, &l, jstr_sub(&r->c, s, from, s->n));
	return jlist_done(&r->c, &l);
}

static void reverse(struct jlist *l)
{
	for (size_t i = 0; i < l->n / 2; i++) {
		struct jv v = l->v[i];
		l->v[i] = l->v[l->n - 1 - i];
		l->v[l->n - 1 - i] = v;
	}
}

static struct jv rsplit_words(struct jrender *r, const struct jstr *s, int64_t max)
{
	struct jlist l = {0};
	size_t to = s->n;
	int len;
	for (;;) {
		while (to > 0 && jchar_is_space(utf8_before(s->p, to, &len)))
			to -= (size_t)len;
		if (to == 0)
			break;
		size_t from = to;
		if (max >= 0 && (int64_t)l.n >= max)
			from = 0;
		else
			while (from > 0 && !jchar_is_space(utf8_before(s->p, from, &len)))
				from -= (size_t)len;
		jlist_push(&r->c, &l, jstr_sub(&r->c, s, from, to));
		if (max >= 0 && (int64_t)l.n > max)
			break;
		to = from;
	}
	reverse(&l);
	return jlist_done(&r->c, &l);
}

JINJA_FN(str_rsplit, self)
{
	const struct jstr *s = self.s;
	int64_t max = int_or(r, a[1], "maxsplit", -1), at;
	struct jlist l = {0};
	size_t to = s->n;
	if (!jarg_given(a[0]))
		return rsplit_words(r, s, max);
	const struct jstr *sep = separator(r, a[0]);
	while ((max < 0 || (int64_t)l.n < max) && (at = find_last(r, s, 0, to, sep)) >= 0) {
		jlist_push(&r->c, &l, jstr_sub(&r->c, s, (size_t)at + sep->n, to));
		to = (size_t)at;
	}
	jlist_push(&r->c, &l, jstr_sub(&r->c, s, 0, to));
	reverse(&l);
	return jlist_done(&r->c, &l);
}

static bool is_line_end(uint32_t cp)
{
	return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
	       cp == 0x2029;
}

JINJA_FN(str_splitlines, self)
{
	const struct jstr *s = self.s;
	bool keep = a[0].t != J_MISSING && jv_is_true(a[0]);
	struct jlist l = {0};
	size_t from = 0, at = 0;
	int len;
	while (at < s->n) {
		size_t begun = at;
		uint32_t cp = utf8_at(s->p + at, &len);
		at += (size_t)len;
		if (!is_line_end(cp))
			continue;
		if (cp == '\r' && at < s->n && s->p[at] == '\n')
			at++;
		jlist_push(&r->c, &l, jstr_sub(&r->c, s, from, keep ? at : begun));
		from = at;
	}
	if (from < s->n)
		jlist_push(&r->c, &l, jstr_sub(&r->c, s, from, s->n));
	return jlist_done(&r->c, &l);
}

static struct jv partition(struct jrender *r, struct jstr *s, struct jv sep_v, bool last)
{
	const struct jstr *sep = separator(r, sep_v);
	struct jv *v = jinja_alloc_n(&r->c, 3, sizeof *v);
	int64_t at = last ? find_last(r, s, 0, s->n, sep) : find_in(r, s, 0, s->n, sep);
	v[0] = v[1] = v[2] = jv_text(&r->c, "");
	if (at < 0) {
		v[last ? 2 : 0] = (struct jv){.t = J_STR, .s = s};
	} else {
		v[0] = jstr_sub(&r->c, s, 0, (size_t)at);
		v[1] = sep_v;
		v[2] = jstr_sub(&r->c, s, (size_t)at + sep->n, s->n);
	}
	return jv_list(&r->c, J_TUPLE, v, 3);
}

JINJA_FN(str_partition, self)
{
	return partition(r, self.s, a[0], false);
}

JINJA_FN(str_rpartition, self)
{
	return partition(r, self.s, a[0], true);
}

JINJA_FN(str_removeprefix, self)
{
	const struct jstr *x = jv_need_str(&r->c, a[0], "the prefix");
	return affix_is(self.s, 0, self.s->n, x, false) ? jstr_sub(&r->c, self.s, x->n, self.s->n) : self;
}

JINJA_FN(str_removesuffix, self)
{
	const struct jstr *x = jv_need_str(&r->c, a[0], "the suffix");
	return affix_is(self.s, 0, self.s->n, x, true) ? jstr_sub(&r->c, self.s, 0, self.s->n - x->n) : self;
}

/* ---- new strings ---- */

JINJA_FN(str_replace, self)
{
	struct jstr *s = self.s, *from = jv_need_str(&r->c, a[0], "replace() argument 1"),
		    *to = jv_need_str(&r->c, a[1], "replace() argument 2");
	int64_t count = int_or(r, a[2], "count", -1), at;
	struct jbuild b;
	size_t done = 0;
	int len;
	jb_init(&b, &r->c);
	if (from->n == 0) { /* between all characters, before the first and after the last */
		for (size_t i = 0; i <= s->n && count != 0; count--) {
			jb_str(&b, to);
			jinja_step(&r->c, 1);
			len = 1;
			if (i < s->n) {
				utf8_at(s->p + i, &len);
				jb_sub(&b, s, i, i + (size_t)len);
			}
			i += (size_t)len;
			done = i < s->n ? i : s->n;
		}
		jb_sub(&b, s, done, s->n);
		return jb_done(&b);
	}
	for (; count != 0 && (at = find_in(r, s, done, s->n, from)) >= 0; count--) {
		jb_sub(&b, s, done, (size_t)at);
		jb_str(&b, to);
		done = (size_t)at + from->n;
	}
	if (done == 0)
		return self;
	jb_sub(&b, s, done, s->n);
	return jb_done(&b);
}

JINJA_FN(str_join, self)
{
	struct jlist l = jv_elements(&r->c, a[0]);
	struct jbuild b;
	jb_init(&b, &r->c);
	for (size_t i = 0; i < l.n; i++) {
		if (l.v[i].t != J_STR)
			jinja_fail(&r->c, -EINVAL, "sequence item %zu: expected str instance, %s found", i,
				   jv_type_name(l.v[i]));
		if (i)
			jb_str(&b, self.s);
		jb_str(&b, l.v[i].s);
	}
	return jb_done(&b);
}

/* left, right: numbers of fill characters. */
static struct jv pad(struct jrender *r, struct jstr *s, struct jv fill, uint64_t left, uint64_t right)
{
	struct jstr space = {.p = " ", .n = 1, .chars = 1};
	struct jstr *f = jarg_given(fill) ? jv_need_str(&r->c, fill, "the fill character") : &space;
	struct jbuild b;
	if (jstr_chars(f) != 1)
		jinja_fail(&r->c, -EINVAL, "the fill character must be exactly one character long");
	jb_init(&b, &r->c);
	for (; left; left--, jinja_step(&r->c, 1))
		jb_str(&b, f);
	jb_str(&b, s);
	for (; right; right--, jinja_step(&r->c, 1))
		jb_str(&b, f);
	return jb_done(&b);
}

static uint64_t missing_to(struct jrender *r, struct jstr *s, struct jv width)
{
	int64_t w = jv_need_int(&r->c, width, "the width"), n = (int64_t)jstr_chars(s);
	return w > n ? (uint64_t)(w - n) : 0;
}

JINJA_FN(str_ljust, self)
{
	return pad(r, self.s, a[1], 0, missing_to(r, self.s, a[0]));
}

JINJA_FN(str_rjust, self)
{
	return pad(r, self.s, a[1], missing_to(r, self.s, a[0]), 0);
}

JINJA_FN(str_center, self)
{
	uint64_t n = missing_to(r, self.s, a[0]), width = n + jstr_chars(self.s),
		 left = n / 2 + (n & width & 1);
	return pad(r, self.s, a[1], left, n - left);
}

JINJA_FN(str_zfill, self)
{
	uint64_t n = missing_to(r, self.s, a[0]);
	struct jbuild b;
	size_t sign = self.s->n && (self.s->p[0] == '-' || self.s->p[0] == '+');
	jb_init(&b, &r->c);
	jb_sub(&b, self.s, 0, sign);
	for (; n; n--, jinja_step(&r->c, 1))
		jb_puts(&b, "0");
	jb_sub(&b, self.s, sign, self.s->n);
	return jb_done(&b);
}

JINJA_FN(str_expandtabs, self)
{
	int64_t size = int_or(r, a[0], "tabsize", 8);
	struct jbuild b;
	uint64_t column = 0;
	int len;
	jb_init(&b, &r->c);
	for (size_t at = 0; at < self.s->n; at += (size_t)len) {
		uint32_t cp = utf8_at(self.s->p + at, &len);
		uint64_t n = cp != '\t' ? 0 : size > 0 ? (uint64_t)size - column % (uint64_t)size : 0;
		column = cp == '\n' || cp == '\r' ? 0 : column + (cp == '\t' ? n : 1);
		for (; n; n--, jinja_step(&r->c, 1))
			jb_puts(&b, " ");
		if (cp != '\t')
			jb_sub(&b, self.s, at, at + (size_t)len);
	}
	return jb_done(&b);
}

JINJA_FN(str_format, self)
{
	return jinja_str_format(r, self.s, args);
}

static const struct jfn methods[] = {
	{"capitalize", "", str_capitalize},
	{"casefold", "", str_casefold},
	{"center", "width,fillchar", str_center},
	{"count", "sub,start,end", str_count},
	{"endswith", "suffix,start,end", str_endswith},
	{"expandtabs", "tabsize", str_expandtabs},
	{"find", "sub,start,end", str_find},
	{"format", NULL, str_format},
	{"index", "sub,start,end", str_index},
	{"isalnum", "", str_isalnum},
	{"isalpha", "", str_isalpha},
	{"isascii", "", str_isascii},
	{"isdecimal", "", str_isdigit},
	{"isdigit", "", str_isdigit},
	{"islower", "", str_islower},
	{"isnumeric", "", str_isnumeric},
	{"isspace", "", str_isspace},
	{"istitle", "", str_istitle},
	{"isupper", "", str_isupper},
	{"join", "iterable", str_join},
	{"ljust", "width,fillchar", str_ljust},
	{"lower", "", str_lower},
	{"lstrip", "chars", str_lstrip},
	{"partition", "sep", str_partition},
	{"removeprefix", "prefix", str_removeprefix},
	{"removesuffix", "suffix", str_removesuffix},
	{"replace", "old,new,count", str_replace},
	{"rfind", "sub,start,end", str_rfind},
	{"rindex", "sub,start,end", str_rindex},
	{"rjust", "width,fillchar", str_rjust},
	{"rpartition", "sep", str_rpartition},
	{"rsplit", "sep,maxsplit", str_rsplit},
	{"rstrip", "chars", str_rstrip},
	{"split", "sep,maxsplit", str_split},
	{"splitlines", "keepends", str_splitlines},
	{"startswith", "prefix,start,end", str_startswith},
	{"strip", "chars", str_strip},
	{"swapcase", "", str_swapcase},
	{"title", "", str_title},
	{"upper", "", str_upper},
	{"zfill", "width", str_zfill},
};

const struct jfn *jinja_str_method(const struct jstr *name)
{
	return jfn_find(methods, sizeof methods / sizeof methods[0], name->p, name->n);
}

struct jv jinja_call_str_method(struct jrender *r, struct jv self, const char *name, const struct jv *a,
				uint32_t n)
{
	struct jstr key = {.p = name, .n = (uint32_t)strlen(name)};
	struct jargs args = {.pos = (struct jv *)a, .n_pos = n};
	return jinja_call_fn(r, jinja_str_method(&key), jv_to_str(&r->c, self), &args);
}
