#include "controller/metrics/accept.h"

#include <string.h>
#include <strings.h>

/* Part of the field's value; not NUL-terminated. */
struct word {
	const char *p;
	size_t n;
};

struct range {
	struct word type, sub, version; /* version.p NULL: none */
	int q;
};

static bool is_token_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static const char *skip_blanks(const char *p)
{
	return p + strspn(p, " \t");
}

static bool read_token(const char **p, struct word *w)
{
	w->p = *p;
	while (is_token_char(**p))
		++*p;
	w->n = (size_t)(*p - w->p);
	return w->n > 0;
}

/* Read the inside of a quoted string, with its escapes (a version has none). */
static bool read_quoted(const char **p, struct word *w)
{
	w->p = ++*p;
	for (; **p && **p != '"'; ++*p)
		if (**p == '\\' && (*p)[1])
			++*p;
	w->n = (size_t)(*p - w->p);
	return *(*p)++ == '"';
}

static bool word_is(struct word w, const char *text)
{
	return strlen(text) == w.n && strncasecmp(w.p, text, w.n) == 0;
}

/* Parse "0.5" into thousandths; -1: not a weight. */
static int read_weight(struct word w)
{
	if (!w.n || w.n > 5 || (w.p[0] != '0' && w.p[0] != '1') || (w.n > 1 && w.p[1] != '.'))
		return -1;
	int q = (w.p[0] - '0') * 1000, unit = 100;
	for (size_t i = 2; i < w.n; i++, unit /= 10) {
		if (w.p[i] < '0' || w.p[i] > '9')
			return -1;
		q += (w.p[i] - '0') * unit;
	}
	return q <= 1000 ? q : -1;
}

/* Read ";name=value", or ";" alone. */
static bool read_parameter(const char **p, struct range *r)
{
	struct word name, value;
	*p = skip_blanks(*p + 1);
	if (**p == ';' || **p == ',' || !**p)
		return true;
	if (!read_token(p, &name) || *(*p)++ != '=')
		return false;
	if (**p == '"' ? !read_quoted(p, &value) : !read_token(p, &value))
		return false;
	if (word_is(name, "q"))
		return (r->q = read_weight(value)) >= 0;
	if (word_is(name, "version"))
		r->version = value;
	return true;
}

/* Read one member of the list, up to its comma or the end. */
static bool read_range(const char **p, struct range *r)
{
	*r = (struct range){.q = 1000};
	if (!read_token(p, &r->type) || *(*p)++ != '/' || !read_token(p, &r->sub))
		return false;
	for (*p = skip_blanks(*p); **p == ';'; *p = skip_blanks(*p))
		if (!read_parameter(p, r))
			return false;
	return **p == ',' || !**p;
}

static enum accept_range names(const struct range *r, const char *type, const char *version)
{
	const char *slash = strchr(type, '/');
	const struct word kind = {type, (size_t)(slash - type)};
	if (r->version.p && !word_is(r->version, version))
		return ACCEPT_NONE;
	if (word_is(r->type, "*"))
		return word_is(r->sub, "*") ? ACCEPT_ANY : ACCEPT_NONE;
	if (r->type.n != kind.n || strncasecmp(r->type.p, kind.p, kind.n) != 0)
		return ACCEPT_NONE;
	if (word_is(r->sub, "*"))
		return ACCEPT_KIND;
	return !word_is(r->sub, slash + 1) ? ACCEPT_NONE : r->version.p ? ACCEPT_VERSION : ACCEPT_TYPE;
}

/* Return the position after the comma that ends this member; commas in quoted strings do not count. */
static const char *next_member(const char *p)
{
	for (bool quoted = false; *p && (quoted || *p != ','); p++) {
		if (quoted && *p == '\\' && p[1])
			p++;
		else if (*p == '"')
			quoted = !quoted;
	}
	return *p ? p + 1 : p;
}

struct accept accept_weigh(const char *accept, const char *type, const char *version)
{
	struct accept found = {ACCEPT_NONE, accept ? 0 : 1000};
	for (const char *p = accept; p && *(p = p + strspn(p, " \t,")); p = next_member(p)) {
		struct range r;
		const char *at = p;
		const enum accept_range by = read_range(&at, &r) ? names(&r, type, version) : ACCEPT_NONE;
		if (by > found.by || (by && by == found.by && r.q > found.q))
			found = (struct accept){by, r.q};
	}
	return found;
}
