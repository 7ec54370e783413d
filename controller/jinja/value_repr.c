/* Values as text: str() and repr(). */
#include "controller/jinja/text.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { NAME_MAX_BYTES = 80 };

/* Like str.isprintable() for one character. */
static bool is_printable(uint32_t cp)
{
	if (cp < 127)
		return cp >= 32;
	switch (utf8proc_category((utf8proc_int32_t)cp)) {
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP:
	case UTF8PROC_CATEGORY_ZS:
		return false;
	default:
		return true;
	}
}

static void repr_escape(struct jbuild *b, uint32_t cp, char quote, bool input)
{
	char s[16];
	const char *short_form = cp == '\n'   ? "\\n"
				 : cp == '\r' ? "\\r"
				 : cp == '\t' ? "\\t"
				 : cp == '\\' ? "\\\\"
					      : NULL;
	if (short_form)
		snprintf(s, sizeof s, "%s", short_form);
	else if (cp == (uint32_t)quote)
		snprintf(s, sizeof s, "\\%c", quote);
	else
		snprintf(s, sizeof s, cp < 256 ? "\\x%02x" : cp < 65536 ? "\\u%04x" : "\\U%08x", cp);
	jb_put(b, s, strlen(s), input);
}

static void repr_str(struct jbuild *b, const struct jstr *s)
{
	bool single = memchr(s->p, '\'', s->n), twice = memchr(s->p, '"', s->n);
	char quote = single && !twice ? '"' : '\'';
	jb_put(b, &quote, 1, false);
	size_t plain = 0, at = 0;
	while (at < s->n) {
		int len;
		uint32_t cp = utf8_at(s->p + at, &len);
		if (cp == '\\' || cp == (uint32_t)quote || !is_printable(cp)) {
			jb_sub(b, s, plain, at);
			repr_escape(b, cp, quote, jstr_input_at(s, at));
			plain = at + (size_t)len;
		}
		at += (size_t)len;
	}
	jb_sub(b, s, plain, s->n);
	jb_put(b, &quote, 1, false);
}

/* Write the shortest digits that parse to d, as repr(float) does. */
void jfloat_repr(double d, char out[40])
{
	char e[40];
	if (isnan(d) || isinf(d)) {
		snprintf(out, 40, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
		return;
	}
	int precision = 0;
	do
		snprintf(e, sizeof e, "%.*e", precision, d);
	while (precision++ < 17 && strtod(e, NULL) != d);
	int exponent = atoi(strchr(e, 'e') + 1), digits = precision - 1;
	if (exponent < -4 || exponent >= 16) {
		snprintf(out, 40, "%.*e", digits, d);
	} else {
		int after = digits - exponent;
		snprintf(out, 40, "%.*f", after > 0 ? after : 1, d);
	}
}

static void put_list(struct jbuild *b, const struct jlist *l, const char *open, const char *close)
{
	jb_puts(b, open);
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			jb_puts(b, ", ");
		jv_repr(b, l->v[i]);
	}
	jb_puts(b, close);
}

static void put_dict(struct jbuild *b, const struct jdict *d)
{
	jb_puts(b, "{");
	for (size_t i = 0; i < d->n; i++) {
		if (i)
			jb_puts(b, ", ");
		jv_repr(b, d->e[i].key);
		jb_puts(b, ": ");
		jv_repr(b, d->e[i].value);
	}
	jb_puts(b, "}");
}

static void put_number(struct jbuild *b, struct jv v)
{
	char s[40];
	if (v.t == J_INT)
		snprintf(s, sizeof s, "%lld", (long long)v.i);
	else
		jfloat_repr(v.d, s);
	jb_puts(b, s);
}

static void put_other(struct jbuild *b, struct jv v)
{
	char s[160];
	switch (v.t) {
	case J_VIEW:
		jb_puts(b, v.seq->name);
		put_list(b, &v.seq->list, "([", "])");
		return;
	case J_RANGE:
		if (v.range->step == 1)
			snprintf(s, sizeof s, "range(%lld, %lld)", (long long)v.range->start,
				 (long long)v.range->stop);
		else
			snprintf(s, sizeof s, "range(%lld, %lld, %lld)", (long long)v.range->start,
				 (long long)v.range->stop, (long long)v.range->step);
		break;
	case J_NS:
		jb_puts(b, "<Namespace ");
		put_dict(b, &v.ns->vars);
		jb_puts(b, ">");
		return;
	case J_MACRO:
		if (v.macro->name)
			snprintf(s, sizeof s, "<Macro '%.100s'>", v.macro->name);
		else
			snprintf(s, sizeof s, "<Macro anonymous>");
		break;
	case J_FN:
		snprintf(s, sizeof s, "<function %s>", v.fn->name);
		break;
	case J_METHOD:
		snprintf(s, sizeof s, "<built-in method %s of %s object>", v.bound->fn->name,
			 jv_type_name(v.bound->self));
		break;
	case J_LOOP:
		snprintf(s, sizeof s, "<LoopContext %zu/%zu>", v.loop->at + 1, v.loop->items.n);
		break;
	default:
		snprintf(s, sizeof s, "<%s>", jv_type_name(v));
	}
	jb_puts(b, s);
}

void jv_repr(struct jbuild *b, struct jv v)
{
	jinja_enter(b->c);
	switch (v.t) {
	case J_MISSING:
	case J_UNDEF:
		jb_puts(b, "Undefined");
		break;
	case J_NONE:
		jb_puts(b, "None");
		break;
	case J_BOOL:
		jb_puts(b, v.b ? "True" : "False");
		break;
	case J_INT:
	case J_FLOAT:
		put_number(b, v);
		break;
	case J_STR:
		repr_str(b, v.s);
		break;
	case J_LIST:
		put_list(b, v.l, "[", "]");
		break;
	case J_TUPLE:
		put_list(b, v.l, "(", v.l->n == 1 ? ",)" : ")");
		break;
	case J_DICT:
		put_dict(b, v.m);
		break;
	default:
		put_other(b, v);
	}
	jinja_leave(b->c);
}

void jv_put(struct jbuild *b, struct jv v)
{
	if (v.t == J_STR)
		jb_sub(b, v.s, jstr_is_number(v.s) ? JSTR_NUMBER_MARK : 0, v.s->n);
	else if (v.t != J_UNDEF)
		jv_repr(b, v);
}

struct jv jv_to_str(struct jctx *c, struct jv v)
{
	struct jbuild b;
	if (v.t == J_STR)
		return v;
	jb_init(&b, c);
	jv_put(&b, v);
	return jb_done(&b);
}

const char *jv_name_of(struct jctx *c, struct jv v)
{
	struct jbuild b;
	jb_init(&b, c);
	jv_repr(&b, v);
	size_t n = b.n < NAME_MAX_BYTES ? b.n : NAME_MAX_BYTES;
	while (n < b.n && n && ((unsigned char)b.p[n] & 0xc0) == 0x80)
		n--;
	char *s = jinja_alloc(c, n + 1);
	return memcpy(s, b.p, n);
}
