/* Values as JSON: json.dumps() as called by transformers' tojson; non-ASCII is kept by default. */
#include "controller/jinja/text.h"

#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct dump {
	struct jbuild b;
	bool ascii, sort;
	bool lines;          /* indent was given */
	struct jstr *indent; /* the text of one level */
	struct jv comma, colon;
};

static void put_escape(struct dump *d, uint32_t cp, bool input)
{
	static const char names[] = "\"\"\\\\\nn\rr\tt\bb\ff";
	char s[16];
	int n = 0;
	for (size_t i = 0; cp && i < sizeof names - 1; i += 2)
		if ((unsigned char)names[i] == cp)
			n = snprintf(s, sizeof s, "\\%c", names[i + 1]);
	if (!n && cp >= 0x10000)
		n = snprintf(s, sizeof s, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
			     0xdc00 + ((cp - 0x10000) & 0x3ff));
	if (!n)
		n = snprintf(s, sizeof s, "\\u%04x", cp);
	jb_put(&d->b, s, (size_t)n, input);
}

static void dump_str(struct dump *d, const struct jstr *s)
{
	size_t plain = 0, at = 0;
	if (jstr_is_number(s)) {
		jb_sub(&d->b, s, JSTR_NUMBER_MARK, s->n);
		return;
	}
	jb_puts(&d->b, "\"");
	while (at < s->n) {
		unsigned char c = (unsigned char)s->p[at];
		int len = 1;
		if (c >= 0x20 && c != '"' && c != '\\' && (!d->ascii || c < 0x7f)) {
			at++;
			continue;
		}
		uint32_t cp = utf8_at(s->p + at, &len);
		jb_sub(&d->b, s, plain, at);
		put_escape(d, cp, jstr_input_at(s, at));
		at += (size_t)len;
		plain = at;
	}
	jb_sub(&d->b, s, plain, s->n);
	jb_puts(&d->b, "\"");
}

static void new_line(struct dump *d, unsigned level)
{
	if (!d->lines)
		return;
	jb_puts(&d->b, "\n");
	for (unsigned i = 0; i < level; i++)
		jb_str(&d->b, d->indent);
}

static void dump_float(struct dump *d, double x)
{
	char s[40];
	if (isnan(x) || isinf(x)) {
		jb_puts(&d->b, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
		return;
	}
	jfloat_repr(x, s);
	jb_puts(&d->b, s);
}

static void dump_value(struct dump *d, struct jv v, unsigned level);

static void dump_key(struct dump *d, struct jv key)
{
	if (key.t == J_STR) {
		dump_str(d, key.s);
		return;
	}
	if (key.t != J_NONE && !jv_is_number(key))
		jinja_fail(d->b.c, -EINVAL, "keys must be str, int, float, bool or None, not %s",
			   jv_type_name(key));
	jb_puts(&d->b, "\"");
	dump_value(d, key, 0);
	jb_puts(&d->b, "\"");
}

static void dump_dict(struct dump *d, const struct jdict *m, unsigned level)
{
	struct jkeyed *k = jinja_alloc_n(d->b.c, m->n, sizeof *k);
	for (size_t i = 0; i < m->n; i++)
		k[i] = (struct jkeyed){m->e[i].key, m->e[i].value, i};
	if (d->sort)
		jkeyed_sort(d->b.c, k, m->n, false);
	jb_puts(&d->b, "{");
	for (size_t i = 0; i < m->n; i++) {
		if (i)
			jb_str(&d->b, d->comma.s);
		new_line(d, level + 1);
		dump_key(d, k[i].key);
		jb_str(&d->b, d->colon.s);
		dump_value(d, k[i].value, level + 1);
	}
	if (m->n)
		new_line(d, level);
	jb_puts(&d->b, "}");
}

static void dump_list(struct dump *d, const struct jlist *l, unsigned level)
{
	jb_puts(&d->b, "[");
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			jb_str(&d->b, d->comma.s);
		new_line(d, level + 1);
		dump_value(d, l->v[i], level + 1);
	}
	if (l->n)
		new_line(d, level);
	jb_puts(&d->b, "]");
}

static void dump_value(struct dump *d, struct jv v, unsigned level)
{
	char s[24];
	jinja_enter(d->b.c);
	switch (v.t) {
	case J_NONE:
		jb_puts(&d->b, "null");
		break;
	case J_BOOL:
		jb_puts(&d->b, v.b ? "true" : "false");
		break;
	case J_INT:
		snprintf(s, sizeof s, "%lld", (long long)v.i);
		jb_puts(&d->b, s);
		break;
	case J_FLOAT:
		dump_float(d, v.d);
		break;
	case J_STR:
		dump_str(d, v.s);
		break;
	case J_LIST:
	case J_TUPLE:
		dump_list(d, v.l, level);
		break;
	case J_DICT:
		dump_dict(d, v.m, level);
		break;
	default:
		jinja_fail(d->b.c, -EINVAL, "Object of type %s is not JSON serializable", jv_type_name(v));
	}
	jinja_leave(d->b.c);
}

static struct jstr *indent_of(struct jctx *c, struct jv v)
{
	int64_t n;
	if (v.t == J_STR)
		return v.s;
	if (!jv_as_int(v, &n))
		jinja_fail(c, -EINVAL, "tojson(): indent must be an integer or a string, not %s",
			   jv_type_name(v));
	n = n < 0 ? 0 : n;
	if (n > 1000)
		jinja_fail(c, -E2BIG, "tojson(): indent is %lld, at most 1000 is accepted", (long long)n);
	char *spaces = jinja_alloc_raw(c, (size_t)n + 1);
	memset(spaces, ' ', (size_t)n);
	return jv_str(c, spaces, (size_t)n, JM_NONE).s;
}

static bool given(struct jv v)
{
	return v.t != J_MISSING && v.t != J_NONE;
}

struct jv jv_to_json(struct jctx *c, struct jv v, struct jv ensure_ascii, struct jv indent,
		     struct jv separators, struct jv sort_keys)
{
	struct dump d = {.ascii = jv_is_true(ensure_ascii), .sort = jv_is_true(sort_keys)};
	jb_init(&d.b, c);
	d.lines = given(indent);
	if (d.lines)
		d.indent = indent_of(c, indent);
	d.comma = jv_text(c, d.lines ? "," : ", ");
	d.colon = jv_text(c, ": ");
	if (given(separators)) {
		struct jlist l = jv_elements(c, separators);
		if (l.n != 2 || l.v[0].t != J_STR || l.v[1].t != J_STR)
			jinja_fail(c, -EINVAL, "tojson(): separators must be two strings");
		d.comma = l.v[0];
		d.colon = l.v[1];
	}
	dump_value(&d, v, 0);
	return jb_done(&d.b);
}
