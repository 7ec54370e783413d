#include "controller/tokenizer/regex_dialect.h"

#include "base/err.h"
#include "base/charclass.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* White_Space.  PCRE2's own \s also matches U+180E. */
#define SPACES                                                                                               \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
	"\\x{3000}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

struct dialect {
	const char *pattern;
	const char *p;
	struct buf *out;
	bool in_class;
	struct why *why;
};

static int refuse(struct dialect *d, const char *what)
{
	return err_why(d->why, -EINVAL, "pattern \"%s\": %s at byte %zu is not supported", d->pattern, what,
		       (size_t)(d->p - d->pattern));
}

/* Write a set, outside or within a class. Within a class its negation cannot be written exactly, so callers
 * keep PCRE2's escape there. */
static void put_set(struct dialect *d, bool negated, const char *ranges, enum charclass newer)
{
	if (!d->in_class)
		buf_puts(d->out, negated ? "[^" : "[");
	buf_puts(d->out, ranges);
	if (newer != CHAR_OTHER)
		charclass_newer(newer, d->out);
	if (!d->in_class)
		buf_putc(d->out, ']');
}

static int property(struct dialect *d, const char *name, size_t n, bool negated)
{
	bool letter = n == 1 && *name == 'L', number = n == 1 && *name == 'N';
	if ((letter || number) && !(negated && d->in_class)) {
		put_set(d, negated, letter ? "\\p{L}" : "\\p{N}", letter ? CHAR_LETTER : CHAR_NUMBER);
		return 0;
	}
	buf_puts(d->out, negated ? "\\P{" : "\\p{");
	buf_put(d->out, name, n);
	buf_putc(d->out, '}');
	return 0;
}

/* Translate an escape.  d->p is after the backslash. */
static int escape(struct dialect *d)
{
	char c = *d->p;
	switch (c) {
	case '\0':
		return refuse(d, "a backslash at the end");
	case 's':
	case 'S':
		if (c == 'S' && d->in_class)
			break;
		put_set(d, c == 'S', SPACES, CHAR_OTHER);
		d->p++;
		return 0;
	case 'w':
	case 'W':
		if (c == 'W' && d->in_class)
			break;
		put_set(d, c == 'W', WORD, CHAR_LETTER);
		d->p++;
		return 0;
	case 'h':
	case 'H':
		if (c == 'H' && d->in_class)
			return refuse(d, "\\H in a class");
		put_set(d, c == 'H', "0-9A-Fa-f", CHAR_OTHER);
		d->p++;
		return 0;
	case 'p':
	case 'P': {
		bool negated = c == 'P';
		if (d->p[1] != '{')
			return refuse(d, "a property without braces");
		const char *name = d->p + 2, *end = strchr(name, '}');
		if (!end)
			return refuse(d, "a property without end");
		if (*name == '^') {
			negated = !negated;
			name++;
		}
		d->p = end + 1;
		return property(d, name, (size_t)(end - name), negated);
	}
	case 'M':
	case 'C':
	case 'c':
	case 'g':
	case 'y':
	case 'Y':
	case 'X':
	case 'K':
	case 'R':
		return refuse(d, "this escape");
	default:
		break;
	}
	buf_putc(d->out, '\\');
	buf_putc(d->out, c);
	d->p++;
	return 0;
}

static int class_begin(struct dialect *d)
{
	buf_putc(d->out, *d->p++);
	d->in_class = true;
	if (*d->p == '^')
		buf_putc(d->out, *d->p++);
	if (*d->p == ']')
		return refuse(d, "an empty class");
	return 0;
}

static int class_char(struct dialect *d)
{
	char c = *d->p;
	if (c == '&' && d->p[1] == '&')
		return refuse(d, "an intersection of classes");
	if (c == '[') {
		const char *end = d->p[1] == ':' ? strstr(d->p, ":]") : NULL;
		if (!end)
			return refuse(d, "a class within a class");
		buf_put(d->out, d->p, (size_t)(end + 2 - d->p));
		d->p = end + 2;
		return 0;
	}
	if (c == ']')
		d->in_class = false;
	buf_putc(d->out, c);
	d->p++;
	return 0;
}

/* Check inline flags: i and x have the same meaning in both dialects, m does not. */
static int group_flags(struct dialect *d)
{
	for (const char *q = d->p + 2; isalpha((unsigned char)*q) || *q == '-'; q++)
		if (*q != 'i' && *q != 'x' && *q != '-')
			return refuse(d, "this inline flag");
	return 0;
}

/* Translate an interval: {,n} is {0,n}; {n}+ repeats {n} in Ruby, so it is refused: in PCRE2
 * it is possessive. */
static int interval(struct dialect *d)
{
	const char *q = d->p + 1;
	bool bare = *q == ',';
	while (isdigit((unsigned char)*q) || *q == ',')
		q++;
	if (*q != '}' || q == d->p + 1)
		return refuse(d, "a brace that is not an interval");
	if (q[1] == '+')
		return refuse(d, "a plus after an interval");
	buf_puts(d->out, bare ? "{0" : "{");
	buf_put(d->out, d->p + 1, (size_t)(q - d->p));
	d->p = q + 1;
	return 0;
}

int regex_dialect(const char *pattern, struct buf *out, struct why *why)
{
	struct dialect d = {.pattern = pattern, .p = pattern, .out = out, .why = why};
	int rc = 0;
	while (*d.p && !rc) {
		if (*d.p == '\\') {
			d.p++;
			rc = escape(&d);
		} else if (d.in_class) {
			rc = class_char(&d);
		} else if (*d.p == '[') {
			rc = class_begin(&d);
		} else if (*d.p == '{') {
			rc = interval(&d);
		} else {
			if (d.p[0] == '(' && d.p[1] == '?')
				rc = group_flags(&d);
			if (d.p[0] == '(' && d.p[1] == '*')
				rc = refuse(&d, "a verb");
			buf_putc(out, *d.p++);
		}
	}
	return rc;
}
