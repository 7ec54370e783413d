/* "..." % x and "...".format(x), as in Python. */
#include "controller/jinja/jinja_impl.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>

/* A float has at most 309 digits before its point. */
enum { WIDTH_MAX = 10000, PRECISION_MAX = 150, DIGITS_MAX = 500 };

/* The format of one value. */
struct spec {
	struct jstr *fill; /* NULL: a space */
	char align;        /* < > ^ =, or 0 */
	char sign;         /* + space, or 0 */
	bool alternate, zero;
	char group;           /* , _ or 0 */
	int width, precision; /* -1: not given */
	char type;
};

/* Write text padded to the width.  Its first n_sign bytes are the sign; '=' pads after them. */
static void put_padded(struct jbuild *b, const struct spec *f, struct jstr *text, size_t n_sign, char align)
{
	size_t chars = jstr_chars(text),
	       missing = f->width > 0 && (size_t)f->width > chars ? (size_t)f->width - chars : 0;
	struct jstr space = {.p = f->zero ? "0" : " ", .n = 1, .chars = 1};
	struct jstr *fill = f->fill ? f->fill : &space;
	align = f->align ? f->align : f->zero ? '=' : align;
	size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
	if (align == '=')
		jb_sub(b, text, 0, n_sign);
	for (size_t i = 0; i < left; i++)
		jb_str(b, fill);
	jb_sub(b, text, align == '=' ? n_sign : 0, text->n);
	for (size_t i = left; i < missing; i++)
		jb_str(b, fill);
}

static void put_text(struct jbuild *b, const struct spec *f, struct jv v)
{
	struct jv s = jv_to_str(b->c, v);
	if (f->precision >= 0 && jstr_chars(s.s) > (size_t)f->precision)
		s = jstr_sub(b->c, s.s, 0, jstr_offset(s.s, (size_t)f->precision));
	put_padded(b, f, s.s, 0, '<');
}

/* Copy digits with separators between groups of `by`, then the rest (a fraction, an exponent). */
static size_t grouped(char *out, const char *digits, char mark, size_t by)
{
	size_t n = strspn(digits, "0123456789abcdefABCDEF"), k = 0;
	for (size_t i = 0; i < n; i++) {
		if (i && (n - i) % by == 0)
			out[k++] = mark;
		out[k++] = digits[i];
	}
	size_t rest = strlen(digits + n);
	memcpy(out + k, digits + n, rest + 1);
	return k + rest;
}

/* Write a number's sign, prefix and digits. */
static void put_number(struct jbuild *b, const struct spec *f, bool negative, const char *prefix,
		       const char *digits)
{
	char text[2 * DIGITS_MAX + 80];
	size_t n = 0;
	if (negative || f->sign)
		text[n++] = negative ? '-' : f->sign;
	size_t len = strlen(prefix);
	memcpy(text + n, prefix, len);
	n += len;
	size_t n_sign = n;
	if (f->group) {
		n += grouped(text + n, digits, f->group, f->type && strchr("xXob", f->type) ? 4 : 3);
	} else {
		memcpy(text + n, digits, strlen(digits));
		n += strlen(digits);
	}
	struct jstr s = {.p = text, .n = (uint32_t)n, .chars = (uint32_t)n};
	put_padded(b, f, &s, n_sign, '>');
}

static void put_int(struct jbuild *b, const struct spec *f, int64_t i)
{
	char digits[80];
	uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
	const char *prefix = "";
	if (f->type == 'b') {
		int n = 0, top = 63;
		while (top > 0 && !(u >> top & 1))
			top--;
		for (; top >= 0; top--)
			digits[n++] = (char)('0' + (u >> top & 1));
		digits[n] = 0;
		prefix = "0b";
	} else if (f->type == 'x' || f->type == 'X') {
		snprintf(digits, sizeof digits, f->type == 'x' ? "%llx" : "%llX", (unsigned long long)u);
		prefix = f->type == 'x' ? "0x" : "0X";
	} else if (f->type == 'o') {
		snprintf(digits, sizeof digits, "%llo", (unsigned long long)u);
		prefix = "0o";
	} else {
		snprintf(digits, sizeof digits, "%llu", (unsigned long long)u);
	}
	put_number(b, f, i < 0, f->alternate ? prefix : "", digits);
}

static void put_float(struct jbuild *b, const struct spec *f, double d)
{
	char digits[DIGITS_MAX + 80], format[16];
	bool negative = signbit(d) && !isnan(d), percent = f->type == '%';
	char type = percent ? 'f' : f->type == 'n' || !f->type ? 'g' : f->type;
	double x = fabs(d) * (percent ? 100 : 1);
	if (!f->type && f->precision < 0) {
		jfloat_repr(x, digits);
	} else {
		int precision = f->precision < 0 ? 6 : f->precision;
		if (precision > PRECISION_MAX)
			jinja_fail(b->c, -E2BIG, "a float's precision of more than %d", PRECISION_MAX);
		snprintf(format, sizeof format, "%%%s.%d%c", f->alternate ? "#" : "", precision, type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(digits, sizeof digits - 2, format, x);
#pragma GCC diagnostic pop
		if (!f->type && !strpbrk(digits, ".en"))
			memcpy(digits + strlen(digits), ".0", 3);
	}
	if (percent)
		memcpy(digits + strlen(digits), "%", 2);
	put_number(b, f, negative, "", digits);
}

static int number_at(struct jctx *c, const struct jstr *s, size_t *at)
{
	int n = 0;
	while (*at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9') {
		n = n * 10 + (s->p[(*at)++] - '0');
		if (n > WIDTH_MAX)
			jinja_fail(c, -E2BIG, "a width or precision of more than %d", WIDTH_MAX);
	}
	return n;
}

/* ---- % ---- */

struct percent {
	struct jrender *r;
	struct jstr *s;
	size_t at;
	struct jv args;
	uint32_t used;
	bool by_name;
};

static struct jv next_arg(struct percent *p)
{
	bool tuple = p->args.t == J_TUPLE;
	if (p->used >= (tuple ? p->args.l->n : 1))
		jinja_fail(&p->r->c, -EINVAL, "not enough arguments for format string");
	return tuple ? p->args.l->v[p->used++] : (p->used++, p->args);
}

static int width_at(struct percent *p, int otherwise)
{
	if (p->at < p->s->n && p->s->p[p->at] == '*') {
		p->at++;
		int64_t n = jv_need_int(&p->r->c, next_arg(p), "* wants an int: it");
		if (n < -WIDTH_MAX || n > WIDTH_MAX)
			jinja_fail(&p->r->c, -E2BIG, "a width or precision of more than %d", WIDTH_MAX);
		return (int)n;
	}
	size_t from = p->at;
	int n = number_at(&p->r->c, p->s, &p->at);
	return p->at > from ? n : otherwise;
}

static struct jv named_arg(struct percent *p)
{
	size_t from = ++p->at, depth = 1;
	for (; p->at < p->s->n && depth; p->at++)
		depth += p->s->p[p->at] == '(' ? 1 : p->s->p[p->at] == ')' ? (size_t)-1 : 0;
	if (depth)
		jinja_fail(&p->r->c, -EINVAL, "incomplete format key");
	if (p->args.t != J_DICT)
		jinja_fail(&p->r->c, -EINVAL, "format requires a mapping");
	struct jv v = jdict_get(&p->r->c, p->args.m, jstr_sub(&p->r->c, p->s, from, p->at - 1));
	if (v.t == J_MISSING)
		jinja_fail(&p->r->c, -EINVAL, "the format's key '%.*s' is missing", (int)(p->at - 1 - from),
			   p->s->p + from);
	p->by_name = true;
	return v;
}

static void put_integer_arg(struct percent *p, struct jbuild *b, struct spec *f, struct jv v)
{
	int64_t i;
	bool decimal = f->type == 'd';
	if (!jv_as_int(v, &i)) {
		if (v.t != J_FLOAT || !decimal)
			jinja_fail(&p->r->c, -EINVAL, "%%%c format: %s is required, not %s", f->type,
				   decimal ? "a real number" : "an integer", jv_type_name(v));
		if (!(v.d > -9.2e18 && v.d < 9.2e18))
			jinja_fail(&p->r->c, -EINVAL, "%%d format: an integer is larger than 64 bits");
		i = (int64_t)v.d;
	}
	put_int(b, f, i);
}

static void put_char_arg(struct percent *p, struct jbuild *b, struct spec *f, struct jv v)
{
	int64_t i;
	if (jv_as_int(v, &i)) {
		if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
			jinja_fail(&p->r->c, -EINVAL, "%%c arg not in range(0x110000)");
		struct jbuild one;
		jb_init(&one, &p->r->c);
		jb_char(&one, (uint32_t)i, false);
		v = jb_done(&one);
	}
	if (v.t != J_STR || jstr_chars(v.s) != 1)
		jinja_fail(&p->r->c, -EINVAL, "%%c requires an int or a character");
	f->precision = -1;
	put_text(b, f, v);
}

static void put_directive(struct percent *p, struct jbuild *b)
{
	struct jstr *s = p->s;
	struct spec f = {.width = -1, .precision = -1};
	struct jv v = jv_missing;
	bool left = false;
	if (p->at < s->n && s->p[p->at] == '(')
		v = named_arg(p);
	for (; p->at < s->n && s->p[p->at] && strchr("#0- +", s->p[p->at]); p->at++) {
		char c = s->p[p->at];
		f.alternate |= c == '#';
		f.zero |= c == '0';
		left |= c == '-';
		f.sign = c == '+' || (c == ' ' && !f.sign) ? c : f.sign;
	}
	f.width = width_at(p, -1);
	left |= f.width < -1;
	f.width = f.width < -1 ? -f.width : f.width;
	if (p->at < s->n && s->p[p->at] == '.') {
		p->at++;
		f.precision = width_at(p, 0);
	}
	while (p->at < s->n && s->p[p->at] && strchr("hlL", s->p[p->at]))
		p->at++;
	if (p->at >= s->n)
		jinja_fail(&p->r->c, -EINVAL, "incomplete format");
	f.type = s->p[p->at++];
	if (f.type == '%') {
		jb_puts(b, "%");
		return;
	}
	if (!f.type || !strchr("diuoxXeEfFgGcrsa", f.type))
		jinja_fail(&p->r->c, -EINVAL, "unsupported format character at index %zu", p->at - 1);
	if (v.t == J_MISSING)
		v = next_arg(p);
	f.align = left ? '<' : f.type == 's' || f.type == 'r' || f.type == 'a' || f.type == 'c' ? '>' : 0;
	f.zero = f.zero && !left;
	if (strchr("diu", f.type)) {
		f.type = 'd';
		put_integer_arg(p, b, &f, v);
	} else if (strchr("oxX", f.type)) {
		put_integer_arg(p, b, &f, v);
	} else if (f.type == 'c') {
		put_char_arg(p, b, &f, v);
	} else if (strchr("rsa", f.type)) {
		f.zero = false;
		if (f.type != 's') {
			struct jbuild repr;
			jb_init(&repr, &p->r->c);
			jv_repr(&repr, v);
			v = jb_done(&repr);
		}
		put_text(b, &f, v);
	} else {
		if (!jv_is_number(v))
			jinja_fail(&p->r->c, -EINVAL, "must be real number, not %s", jv_type_name(v));
		put_float(b, &f, jv_number(v));
	}
}

struct jv jinja_percent(struct jrender *r, struct jstr *s, struct jv args)
{
	struct percent p = {.r = r, .s = s, .args = args};
	struct jbuild b;
	jb_init(&b, &r->c);
	while (p.at < s->n) {
		const char *hit = memchr(s->p + p.at, '%', s->n - p.at);
		size_t to = hit ? (size_t)(hit - s->p) : s->n;
		jb_sub(&b, s, p.at, to);
		p.at = to + 1;
		if (hit)
			put_directive(&p, &b);
	}
	/* A container may be used by key, or not at all. */
	bool items = args.t == J_DICT || args.t == J_LIST || args.t == J_RANGE || args.t == J_UNDEF;
	bool all = args.t == J_TUPLE ? p.used == args.l->n : p.used == 1 || p.by_name || items;
	if (!all)
		jinja_fail(&r->c, -EINVAL, "not all arguments converted during string formatting");
	return jb_done(&b);
}

/* ---- str.format() ---- */

struct braces {
	struct jrender *r;
	const struct jargs *args;
	uint32_t next; /* number of the next automatic field */
	bool numbered;
	int depth;
};

static void format_to(struct braces *f, struct jbuild *b, struct jstr *s, size_t from, size_t to);

static bool is_digits(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] < '0' || p[i] > '9')
			return false;
	return n > 0 && n < 9;
}

static struct jv positional(struct braces *f, uint32_t i)
{
	if (i >= f->args->n_pos)
		jinja_fail(&f->r->c, -EINVAL, "Replacement index %u out of range for positional args tuple",
			   i);
	return f->args->pos[i];
}

/* Return the field's value: a name or number, then .attributes and [items]. */
static struct jv field_value(struct braces *f, struct jstr *s, size_t from, size_t to)
{
	size_t at = from;
	struct jv v;
	while (at < to && s->p[at] != '.' && s->p[at] != '[')
		at++;
	if (at == from || is_digits(s->p + from, at - from)) {
		size_t number = from;
		if (at > from ? f->next > 0 : f->numbered)
			jinja_fail(&f->r->c, -EINVAL, "cannot mix numbered and automatic fields");
		f->numbered |= at > from;
		v = positional(f, at > from ? (uint32_t)number_at(&f->r->c, s, &number) : f->next++);
	} else {
		uint32_t i = 0;
		while (i < f->args->n_kw &&
		       (f->r->t->names[f->args->kw[i]].n != at - from ||
			memcmp(f->r->t->names[f->args->kw[i]].p, s->p + from, at - from) != 0))
			i++;
		if (i == f->args->n_kw)
			jinja_fail(&f->r->c, -EINVAL, "format() has no argument '%.*s'", (int)(at - from),
				   s->p + from);
		v = f->args->kw_value[i];
	}
	while (at < to) {
		bool item = s->p[at++] == '[';
		size_t begin = at;
		while (at < to && (item ? s->p[at] != ']' : s->p[at] != '.' && s->p[at] != '['))
			at++;
		size_t number = begin;
		if (item && is_digits(s->p + begin, at - begin))
			v = jinja_item(f->r, v, jv_int(number_at(&f->r->c, s, &number)));
		else if (item)
			v = jinja_item(f->r, v, jstr_sub(&f->r->c, s, begin, at));
		else
			v = jinja_attr(f->r, v, jstr_sub(&f->r->c, s, begin, at));
		at += item && at < to;
	}
	return v;
}

static bool is_align(char c)
{
	return c && strchr("<>=^", c);
}

static struct spec parse_spec(struct jrender *r, struct jstr *s)
{
	struct spec f = {.width = -1, .precision = -1};
	size_t at = 0;
	int len = 0;
	if (s->n) {
		utf8_at(s->p, &len);
		if (s->n > (size_t)len && is_align(s->p[len])) {
			f.fill = jstr_sub(&r->c, s, 0, (size_t)len).s;
			f.align = s->p[len];
			at = (size_t)len + 1;
		} else if (is_align(s->p[0])) {
			f.align = s->p[at++];
		}
	}
	if (at < s->n && (s->p[at] == '+' || s->p[at] == '-' || s->p[at] == ' '))
		f.sign = s->p[at] == '-' ? 0 : s->p[at], at++;
	if (at < s->n && s->p[at] == '#')
		f.alternate = true, at++;
	if (at < s->n && s->p[at] == '0')
		f.zero = true, at++;
	if (at < s->n && s->p[at] >= '0' && s->p[at] <= '9')
		f.width = number_at(&r->c, s, &at);
	if (at < s->n && (s->p[at] == ',' || s->p[at] == '_'))
		f.group = s->p[at++];
	if (at < s->n && s->p[at] == '.') {
		at++;
		f.precision = number_at(&r->c, s, &at);
	}
	if (at < s->n)
		f.type = s->p[at++];
	if (at < s->n)
		jinja_fail(&r->c, -EINVAL, "Invalid format specifier");
	return f;
}

static void put_formatted(struct jrender *r, struct jbuild *b, struct jv v, struct jstr *spec)
{
	struct spec f = parse_spec(r, spec);
	int64_t i;
	bool integer = jv_as_int(v, &i) && (v.t == J_INT || f.type);
	if (!spec->n) {
		jv_put(b, v);
	} else if (integer && (!f.type || strchr("bdoxXn", f.type))) {
		put_int(b, &f, i);
	} else if (jv_is_number(v) && (v.t == J_FLOAT || f.type) && (!f.type || strchr("eEfFgGn%", f.type))) {
		put_float(b, &f, jv_number(v));
	} else if (v.t == J_STR && (!f.type || f.type == 's')) {
		if (f.align == '=')
			jinja_fail(&r->c, -EINVAL, "'=' alignment not allowed in string format specifier");
		f.align = f.align ? f.align : '<';
		put_text(b, &f, v);
	} else if (v.t == J_BOOL && !f.type) {
		put_int(b, &f, v.b);
	} else {
		jinja_fail(&r->c, -EINVAL, "unsupported format string passed to %s.__format__",
			   jv_type_name(v));
	}
}

/* Write {field!conversion:spec}; from and to exclude the braces. */
static void put_field(struct braces *f, struct jbuild *b, struct jstr *s, size_t from, size_t to)
{
	size_t name = from, brackets = 0;
	while (name < to && (brackets || (s->p[name] != '!' && s->p[name] != ':'))) {
		brackets += s->p[name] == '[' ? 1 : s->p[name] == ']' && brackets ? (size_t)-1 : 0;
		name++;
	}
	struct jv v = field_value(f, s, from, name);
	size_t at = name;
	if (at < to && s->p[at] == '!') {
		char how = at + 1 < to ? s->p[at + 1] : 0;
		if (how != 'r' && how != 's' && how != 'a')
			jinja_fail(&f->r->c, -EINVAL, "Unknown conversion specifier");
		struct jbuild one;
		jb_init(&one, &f->r->c);
		if (how == 's')
			jv_put(&one, v);
		else
			jv_repr(&one, v);
		v = jb_done(&one);
		at += 2;
	}
	if (at < to && s->p[at] != ':')
		jinja_fail(&f->r->c, -EINVAL, "expected ':' after conversion specifier");
	struct jbuild spec;
	jb_init(&spec, &f->r->c);
	if (at < to)
		format_to(f, &spec, s, at + 1, to);
	put_formatted(f->r, b, v, jb_done(&spec).s);
}

static void format_to(struct braces *f, struct jbuild *b, struct jstr *s, size_t from, size_t to)
{
	if (++f->depth > 2)
		jinja_fail(&f->r->c, -EINVAL, "Max string recursion exceeded");
	for (size_t at = from; at < to;) {
		size_t plain = at;
		while (at < to && s->p[at] != '{' && s->p[at] != '}')
			at++;
		jb_sub(b, s, plain, at);
		if (at == to)
			break;
		if (at + 1 < to && s->p[at + 1] == s->p[at]) {
			jb_sub(b, s, at, at + 1);
			at += 2;
			continue;
		}
		if (s->p[at] == '}')
			jinja_fail(&f->r->c, -EINVAL, "Single '}' encountered in format string");
		size_t begin = ++at, depth = 1;
		for (; at < to && depth; at++)
			depth += s->p[at] == '{' ? 1 : s->p[at] == '}' ? (size_t)-1 : 0;
		if (depth)
			jinja_fail(&f->r->c, -EINVAL, "expected '}' before end of string");
		put_field(f, b, s, begin, at - 1);
	}
	f->depth--;
}

struct jv jinja_str_format(struct jrender *r, struct jstr *s, const struct jargs *a)
{
	struct braces f = {.r = r, .args = a};
	struct jbuild b;
	jb_init(&b, &r->c);
	format_to(&f, &b, s, 0, s->n);
	return jb_done(&b);
}
