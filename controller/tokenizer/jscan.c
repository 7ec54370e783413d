#include "controller/tokenizer/jscan.h"

#include "base/err.h"
#include "base/json.h"
#include "base/utf8.h"

#include <string.h>

int jscan_fail(struct jscan *j, const char *what)
{
	return err_why(j->why, -EINVAL, "not valid JSON: %s at byte %zu", what, (size_t)(j->p - j->begin));
}

int jscan_peek(struct jscan *j)
{
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r'))
		j->p++;
	return j->p < j->end ? (unsigned char)*j->p : -1;
}

int jscan_take(struct jscan *j, char c)
{
	char what[32] = "' ' expected";
	int got = jscan_peek(j);
	if (got == (unsigned char)c) {
		j->p++;
		return 0;
	}
	if (got < 0)
		return jscan_fail(j, "the text ends too early");
	what[1] = c;
	return jscan_fail(j, what);
}

int jscan_more(struct jscan *j, char close, bool *more)
{
	int c = jscan_peek(j);
	if (c == ',') {
		j->p++;
		*more = true;
		return 0;
	}
	*more = false;
	return jscan_take(j, close);
}

static int hex4(const char *p, const char *end)
{
	int v = 0;
	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		int d = c >= '0' && c <= '9'   ? c - '0'
			: c >= 'a' && c <= 'f' ? c - 'a' + 10
			: c >= 'A' && c <= 'F' ? c - 'A' + 10
					       : -1;
		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

/* Read \uXXXX with j->p at the first digit; a surrogate must be half of a pair. */
static int unicode_escape(struct jscan *j, struct buf *tmp)
{
	char s[4];
	int hi = hex4(j->p, j->end);
	if (hi < 0)
		return jscan_fail(j, "bad \\u escape");
	uint32_t cp = (uint32_t)hi;
	if (hi >= 0xd800 && hi < 0xe000) {
		int lo = j->end - j->p >= 10 && j->p[4] == '\\' && j->p[5] == 'u' ? hex4(j->p + 6, j->end)
										  : -1;
		if (hi >= 0xdc00 || lo < 0xdc00 || lo >= 0xe000)
			return jscan_fail(j, "lone surrogate");
		cp = 0x10000 + ((uint32_t)(hi - 0xd800) << 10) + (uint32_t)(lo - 0xdc00);
		j->p += 6;
	}
	j->p += 4;
	buf_put(tmp, s, (size_t)utf8_encode(cp, s));
	return 0;
}

static int escape(struct jscan *j, struct buf *tmp)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	if (j->p == j->end)
		return jscan_fail(j, "string without end");
	char c = *j->p++;
	if (c == 'u')
		return unicode_escape(j, tmp);
	const char *at = c ? strchr(from, c) : NULL;
	if (!at)
		return jscan_fail(j, "unknown escape");
	buf_putc(tmp, to[at - from]);
	return 0;
}

int jscan_string(struct jscan *j, struct jscan_text *s, struct buf *tmp)
{
	int rc = jscan_take(j, '"');
	if (rc)
		return rc;
	const char *start = j->p;
	bool escaped = false;
	for (;;) {
		while (j->p < j->end && *j->p != '"' && *j->p != '\\' && (unsigned char)*j->p >= 0x20)
			j->p++;
		if (j->p == j->end)
			return jscan_fail(j, "string without end");
		if ((unsigned char)*j->p < 0x20)
			return jscan_fail(j, "control character in a string");
		if (*j->p == '"' && !escaped) {
			*s = (struct jscan_text){start, (size_t)(j->p++ - start)};
			return 0;
		}
		if (!escaped)
			buf_clear(tmp);
		escaped = true;
		buf_put(tmp, start, (size_t)(j->p - start));
		if (*j->p++ == '"')
			break;
		rc = escape(j, tmp);
		if (rc)
			return rc;
		start = j->p;
	}
	*s = (struct jscan_text){tmp->p, tmp->len};
	return 0;
}

int jscan_uint(struct jscan *j, uint64_t max, const char *what, uint64_t *out)
{
	int c = jscan_peek(j);
	const char *start = j->p;
	uint64_t v = 0;
	if (c < '0' || c > '9')
		return err_why(j->why, -EINVAL, "%s must be an integer from 0 to %llu (byte %zu)", what,
			       (unsigned long long)max, (size_t)(j->p - j->begin));
	while (j->p < j->end && *j->p >= '0' && *j->p <= '9') {
		v = v * 10 + (uint64_t)(*j->p++ - '0');
		if (v > max)
			return err_why(j->why, -EINVAL, "%s is out of range, beyond %llu (byte %zu)", what,
				       (unsigned long long)max, (size_t)(start - j->begin));
	}
	if (j->p < j->end && (*j->p == '.' || *j->p == 'e' || *j->p == 'E'))
		return err_why(j->why, -EINVAL, "%s must be an integer (byte %zu)", what,
			       (size_t)(start - j->begin));
	if (*start == '0' && j->p - start > 1)
		return jscan_fail(j, "leading zero");
	*out = v;
	return 0;
}

static int skip_string(struct jscan *j)
{
	for (j->p++; j->p < j->end; j->p++) {
		if (*j->p == '\\')
			j->p++;
		else if (*j->p == '"')
			break;
	}
	if (j->p >= j->end) {
		j->p = j->end;
		return jscan_fail(j, "string without end");
	}
	j->p++;
	return 0;
}

int jscan_skip(struct jscan *j, struct jscan_text *span)
{
	int depth = 0;
	int c = jscan_peek(j);
	span->p = j->p;
	if (c < 0 || c == ',' || c == ']' || c == '}' || c == ':')
		return jscan_fail(j, "value expected");
	while (j->p < j->end) {
		c = *j->p;
		if (depth == 0 && (c == ',' || c == ']' || c == '}' || c == ' ' || c == '\n'))
			break;
		if (c == '"') {
			int rc = skip_string(j);
			if (rc)
				return rc;
		} else {
			j->p++;
			if ((c == '[' || c == '{') && ++depth > JSON_DEPTH_MAX)
				return jscan_fail(j, "nested too deep");
			if ((c == ']' || c == '}') && --depth == 0)
				break;
		}
	}
	if (depth > 0)
		return jscan_fail(j, "the text ends too early");
	span->n = (size_t)(j->p - span->p);
	return 0;
}
