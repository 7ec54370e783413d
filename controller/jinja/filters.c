/* Filters of single values: text, numbers, defaults.  Filters of sequences are in sequences.c. */
#include "controller/jinja/jinja_impl.h"

#include "base/charclass.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- text ---- */

JINJA_FN(do_upper, v)
{
	return jinja_call_str_method(r, v, "upper", NULL, 0);
}

JINJA_FN(do_lower, v)
{
	return jinja_call_str_method(r, v, "lower", NULL, 0);
}

JINJA_FN(do_capitalize, v)
{
	return jinja_call_str_method(r, v, "capitalize", NULL, 0);
}

JINJA_FN(do_trim, v)
{
	return jinja_call_str_method(r, v, "strip", a, jarg_given(a[0]));
}

JINJA_FN(do_center, v)
{
	struct jv width = jarg_given(a[0]) ? a[0] : jv_int(80);
	return jinja_call_str_method(r, v, "center", &width, 1);
}

JINJA_FN(do_replace, v)
{
	struct jv to[3] = {jv_to_str(&r->c, a[0]), jv_to_str(&r->c, a[1]),
			   jarg_given(a[2]) ? a[2] : jv_int(-1)};
	if (a[0].t == J_MISSING || a[1].t == J_MISSING)
		jinja_fail(&r->c, -EINVAL, "replace() needs two arguments");
	return jinja_call_str_method(r, v, "replace", to, 3);
}

JINJA_FN(do_string, v)
{
	return jv_to_str(&r->c, v);
}

/* Return true if a word begins after cp: white space, - ( { [ and <. */
static bool separates(uint32_t cp)
{
	return jchar_is_space(cp) || (cp < 128 && strchr("-({[<", (int)cp) && cp);
}

JINJA_FN(do_title, v)
{
	struct jv s = jv_to_str(&r->c, v);
	struct jbuild b;
	size_t at = 0;
	int len;
	jb_init(&b, &r->c);
	while (at < s.s->n) {
		size_t begin = at;
		bool apart = separates(utf8_at(s.s->p + at, &len));
		at += (size_t)len;
		size_t first = at;
		while (at < s.s->n && separates(utf8_at(s.s->p + at, &len)) == apart)
			at += (size_t)len;
		jb_str(&b, jinja_call_str_method(r, jstr_sub(&r->c, s.s, begin, first), "upper", NULL, 0).s);
		jb_str(&b, jinja_call_str_method(r, jstr_sub(&r->c, s.s, first, at), "lower", NULL, 0).s);
	}
	return jb_done(&b);
}

JINJA_FN(do_indent, v)
{
	struct jstr *s = jv_need_str(&r->c, v, "the value of indent()");
	struct jv width = jarg_given(a[0]) ? a[0] : jv_int(4), newline = jv_text(&r->c, "\n"), with;
	bool first = jarg_flag(a[1]), blank = jarg_flag(a[2]);
	struct jbuild b;
	with = width.t == J_STR ? width : jinja_binary(r, OP_MUL, jv_text(&r->c, " "), width);
	s = jstr_concat(&r->c, s, newline.s).s; /* so that an empty last line counts as a line */
	struct jlist lines = jv_elements(
		&r->c, jinja_call_str_method(r, (struct jv){.t = J_STR, .s = s}, "splitlines", NULL, 0));
	jb_init(&b, &r->c);
	for (size_t i = 0; i < lines.n; i++) {
		const struct jstr *line = lines.v[i].s;
		if (i)
			jb_puts(&b, "\n");
		if (i ? blank || line->n : first)
			jb_str(&b, with.s);
		jb_str(&b, line);
	}
	return jb_done(&b);
}

JINJA_FN(do_truncate, v)
{
	if (v.t == J_UNDEF)
		return v;
	struct jstr *s = jv_need_str(&r->c, v, "the value of truncate()");
	int64_t length = jarg_given(a[0]) ? jv_need_int(&r->c, a[0], "length") : 255;
	int64_t leeway = jarg_given(a[3]) ? jv_need_int(&r->c, a[3], "leeway") : 5;
	struct jv end = jarg_given(a[2]) ? a[2] : jv_text(&r->c, "...");
	int64_t tail = (int64_t)jstr_chars(jv_need_str(&r->c, end, "end"));
	if (length < tail || leeway < 0)
		jinja_fail(&r->c, -EINVAL,
			   "truncate(): length must be at least that of end, leeway at least 0");
	if ((int64_t)jstr_chars(s) - leeway <= length)
		return v;
	struct jv head = jstr_sub(&r->c, s, 0, jstr_offset(s, (size_t)(length - tail)));
	if (!jarg_flag(a[1])) {
		struct jv by[2] = {jv_text(&r->c, " "), jv_int(1)};
		head = jinja_call_str_method(r, head, "rsplit", by, 2).l->v[0];
	}
	return jstr_concat(&r->c, head.s, end.s);
}

JINJA_FN(do_wordcount, v)
{
	struct jv s = jv_to_str(&r->c, v);
	int64_t n = 0;
	bool in = false;
	int len;
	jinja_step(&r->c, s.s->n >> 4);
	for (size_t at = 0; at < s.s->n; at += (size_t)len) {
		bool word = charclass_is_word(utf8_at(s.s->p + at, &len));
		n += word && !in;
		in = word;
	}
	return jv_int(n);
}

JINJA_FN(do_format, v)
{
	struct jv s = jv_to_str(&r->c, v);
	if (args->n_pos && args->n_kw)
		jinja_fail(&r->c, -EINVAL, "format: positional or keyword arguments, not both");
	if (!args->n_kw)
		return jinja_percent(r, s.s, jv_list(&r->c, J_TUPLE, args->pos, args->n_pos));
	struct jv d = jv_dict(&r->c);
	for (uint32_t i = 0; i < args->n_kw; i++)
		jdict_set(&r->c, d.m, jv_text(&r->c, r->t->names[args->kw[i]].text), args->kw_value[i]);
	return jinja_percent(r, s.s, d);
}

struct jv jinja_escape(struct jctx *c, struct jstr *s)
{
	static const struct {
		char c;
		const char *to;
	} marks[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
	struct jbuild b;
	size_t plain = 0;
	if (s->safe)
		return (struct jv){.t = J_STR, .s = s};
	jb_init(&b, c);
	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 0; k < sizeof marks / sizeof marks[0]; k++)
			if (s->p[i] == marks[k].c) {
				jb_sub(&b, s, plain, i);
				jb_put(&b, marks[k].to, strlen(marks[k].to), jstr_input_at(s, i));
				plain = i + 1;
			}
	jb_sub(&b, s, plain, s->n);
	struct jv v = jb_done(&b);
	v.s->safe = true;
	return v;
}

JINJA_FN(do_escape, v)
{
	return jinja_escape(&r->c, jv_to_str(&r->c, v).s);
}

JINJA_FN(do_safe, v)
{
	struct jv s = jv_to_str(&r->c, v);
	s = jstr_sub(&r->c, s.s, 0, s.s->n);
	s.s->safe = true;
	return s;
}

/* ---- numbers ---- */

/* Extract a number from text as int() and float() do: white space around it and single _ between digits are
 * allowed. Return false if it is not a number. */
static bool plain_digits(const struct jstr *s, char *out, size_t max)
{
	size_t from = 0, to = s->n, n = 0;
	int len;
	while (from < to && jchar_is_space(utf8_at(s->p + from, &len)))
		from += (size_t)len;
	while (to > from && jchar_is_space(utf8_before(s->p, to, &len)))
		to -= (size_t)len;
	if (to - from >= max || to == from)
		return false;
	for (size_t i = from; i < to; i++) {
		if (s->p[i] == '_') {
			bool between = i > from && i + 1 < to && s->p[i - 1] != '_' && s->p[i + 1] != '_';
			if (!between)
				return false;
			continue;
		}
		if (!s->p[i])
			return false;
		out[n++] = s->p[i];
	}
	out[n] = 0;
	return true;
}

static bool text_to_float(const struct jstr *s, double *d)
{
	char text[400], *end;
	if (!plain_digits(s, text, sizeof text) || strpbrk(text, "xXpP()"))
		return false;
	*d = strtod(text, &end);
	return *end == 0;
}

static bool text_to_int(struct jrender *r, const struct jstr *s, int base, int64_t *i)
{
	char text[400], *end, *from = text;
	if (!plain_digits(s, text, sizeof text))
		return false;
	from += *from == '-' || *from == '+';
	if (*from == '-' || *from == '+')
		return false;
	if ((base == 8 || base == 2) && from[0] == '0' && (from[1] | 32) == (base == 8 ? 'o' : 'b'))
		memmove(from, from + 2, strlen(from + 2) + 1);
	errno = 0;
	*i = strtoll(text, &end, base);
	if (errno)
		jinja_fail(&r->c, -EINVAL, "an integer is larger than 64 bits");
	return *end == 0 && end > from;
}

static bool real_to_int(struct jrender *r, double d, int64_t *i)
{
	if (isnan(d) || isinf(d))
		return false;
	if (!(d > -9.2e18 && d < 9.2e18))
		jinja_fail(&r->c, -EINVAL, "an integer is larger than 64 bits");
	*i = (int64_t)d;
	return true;
}

JINJA_FN(do_int, v)
{
	int64_t i, base = jarg_given(a[1]) ? jv_need_int(&r->c, a[1], "base") : 10;
	struct jv otherwise = a[0].t == J_MISSING ? jv_int(0) : a[0];
	double d;
	if (v.t == J_UNDEF)
		jinja_fail(&r->c, -EINVAL, "%s", v.undef->what);
	if (jv_as_int(v, &i))
		return jv_int(i);
	if (v.t == J_FLOAT)
		return real_to_int(r, v.d, &i) ? jv_int(i) : otherwise;
	if (v.t != J_STR)
		return otherwise;
	if (base >= 2 && base <= 36 && text_to_int(r, v.s, (int)base, &i))
		return jv_int(i);
	return text_to_float(v.s, &d) && real_to_int(r, d, &i) ? jv_int(i) : otherwise;
}

JINJA_FN(do_float, v)
{
	double d;
	if (v.t == J_UNDEF)
		jinja_fail(&r->c, -EINVAL, "%s", v.undef->what);
	if (jv_is_number(v))
		return jv_float(jv_number(v));
	if (v.t == J_STR && text_to_float(v.s, &d))
		return jv_float(d);
	return a[0].t == J_MISSING ? jv_float(0) : a[0];
}

JINJA_FN(do_abs, v)
{
	int64_t i;
	if (v.t == J_UNDEF)
		jinja_fail(&r->c, -EINVAL, "%s", v.undef->what);
	if (v.t == J_FLOAT)
		return jv_float(fabs(v.d));
	if (!jv_as_int(v, &i))
		jinja_fail(&r->c, -EINVAL, "bad operand type for abs(): '%s'", jv_type_name(v));
	if (i == INT64_MIN)
		jinja_fail(&r->c, -EINVAL, "an integer is larger than 64 bits");
	return jv_int(i < 0 ? -i : i);
}

JINJA_FN(do_round, v)
{
	int64_t precision = jarg_given(a[0]) ? jv_need_int(&r->c, a[0], "precision") : 0;
	struct jv method = jarg_given(a[1]) ? a[1] : jv_text(&r->c, "common");
	const struct jstr *how = jv_need_str(&r->c, method, "method");
	char text[400];
	if (!jv_is_number(v))
		jinja_fail(&r->c, -EINVAL, "type %s doesn't define __round__ method", jv_type_name(v));
	if (precision < -300 || precision > 300)
		jinja_fail(&r->c, -EINVAL, "round(): a precision of %lld", (long long)precision);
	double d = jv_number(v), scale = pow(10, (double)precision);
	if (jstr_is(how, "ceil"))
		return jv_float(ceil(d * scale) / scale);
	if (jstr_is(how, "floor"))
		return jv_float(floor(d * scale) / scale);
	if (!jstr_is(how, "common"))
		jinja_fail(&r->c, -EINVAL, "method must be common, ceil or floor");
	if (v.t != J_FLOAT && precision >= 0)
		return v.t == J_BOOL ? jv_int(v.b) : v;
	if (precision < 0)
		d = nearbyint(d * scale) / scale;
	else if (snprintf(text, sizeof text, "%.*f", (int)precision, d) < (int)sizeof text)
		d = strtod(text, NULL); /* the nearest decimal, ties to even, as printf rounds */
	return v.t == J_FLOAT ? jv_float(d) : jv_int((int64_t)d);
}

JINJA_FN(do_filesizeformat, v)
{
	static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"},
				 *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
	const struct jv zero = jv_missing;
	bool two = jarg_flag(a[0]);
	double bytes = do_float(r, v, &zero, args).d, base = two ? 1024 : 1000, unit = base * base;
	char text[400];
	int i = 0;
	for (; i < 7 && bytes >= unit; i++)
		unit *= base;
	if (bytes == 1)
		snprintf(text, sizeof text, "1 Byte");
	else if (bytes < base)
		snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes));
	else
		snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, (two ? binary : decimal)[i]);
	char *kept = jinja_alloc(&r->c, strlen(text) + 1);
	return jv_text(&r->c, memcpy(kept, text, strlen(text)));
}

/* ---- any value ---- */

JINJA_FN(do_default, v)
{
	if (v.t == J_UNDEF || (jarg_flag(a[1]) && !jv_is_true(v)))
		return a[0].t == J_MISSING ? jv_text(&r->c, "") : a[0];
	return v;
}

JINJA_FN(do_attr, v)
{
	return jinja_getattr(r, v,
			     (struct jv){.t = J_STR, .s = jv_need_str(&r->c, a[0], "the attribute's name")});
}

JINJA_FN(do_tojson, v)
{
	return jv_to_json(&r->c, v, a[0], a[1], a[2], a[3]);
}

static const struct jfn filters[] = {
	{"abs", "", do_abs},
	{"attr", "name", do_attr},
	{"capitalize", "", do_capitalize},
	{"center", "width", do_center},
	{"d", "default_value,boolean", do_default},
	{"default", "default_value,boolean", do_default},
	{"e", "", do_escape},
	{"escape", "", do_escape},
	{"filesizeformat", "binary", do_filesizeformat},
	{"float", "default", do_float},
	{"forceescape", "", do_escape},
	{"format", NULL, do_format},
	{"indent", "width,first,blank", do_indent},
	{"int", "default,base", do_int},
	{"lower", "", do_lower},
	{"replace", "old,new,count", do_replace},
	{"round", "precision,method", do_round},
	{"safe", "", do_safe},
	{"string", "", do_string},
	{"title", "", do_title},
	{"tojson", "ensure_ascii,indent,separators,sort_keys", do_tojson},
	{"trim", "chars", do_trim},
	{"truncate", "length,killwords,end,leeway", do_truncate},
	{"upper", "", do_upper},
	{"wordcount", "", do_wordcount},
};

const struct jfn *jinja_filter(const char *name, size_t n)
{
	const struct jfn *fn = jfn_find(filters, sizeof filters / sizeof filters[0], name, n);
	return fn ? fn : jinja_filter_seq(name, n);
}
