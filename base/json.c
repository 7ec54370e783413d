#include "base/json.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* jansson does not check its own allocations, and few callers check a member.  A tree is small metadata:
 * abort when memory is out (alloc.h). */
__attribute__((constructor)) static void use_checked_memory(void)
{
	json_set_alloc_funcs(xmalloc, free);
}

/* Return the index after the string that begins at i.  *bytes: length of its text, including escapes. */
static size_t skip_string(const char *s, size_t n, size_t i, size_t *bytes)
{
	size_t from = ++i;
	while (i < n && s[i] != '"')
		i += s[i] == '\\' ? 2 : 1;
	*bytes = (i < n ? i : n) - from;
	return i + 1;
}

static bool ends_scalar(char c)
{
	return c == ',' || c == ']' || c == '}' || c == ':' || c == '[' || c == '{' || c == '"' || c == ' ' ||
	       c == '\n' || c == '\r' || c == '\t';
}

/* Return the index after the number or word that begins at i. */
static size_t skip_scalar(const char *s, size_t n, size_t i)
{
	while (i < n && !ends_scalar(s[i]))
		i++;
	return i;
}

void json_measure(const char *s, size_t n, struct json_size *out)
{
	size_t n_strings = 0, n_keys = 0, n_numbers = 0, n_words = 0, n_arrays = 0, n_objects = 0;
	size_t text = 0, bytes;
	unsigned depth = 0, deepest = 0;
	for (size_t i = 0; i < n;) {
		switch (s[i]) {
		case '"':
			n_strings++;
			i = skip_string(s, n, i, &bytes);
			text += bytes;
			continue;
		case '[':
		case '{':
			n_arrays += s[i] == '[';
			n_objects += s[i] == '{';
			deepest = ++depth > deepest ? depth : deepest;
			break;
		case ']':
		case '}':
			depth -= depth > 0;
			break;
		case ':':
			n_keys++; /* the preceding string is a key */
			break;
		case ',':
		case ' ':
		case '\n':
		case '\r':
		case '\t':
			break;
		default:
			n_words += s[i] == 't' || s[i] == 'f' || s[i] == 'n';
			n_numbers += s[i] != 't' && s[i] != 'f' && s[i] != 'n';
			i = skip_scalar(s, n, i);
			continue;
		}
		i++;
	}
	n_keys = n_keys < n_strings ? n_keys : n_strings;
	n_strings -= n_keys;
	*out = (struct json_size){.n_values = n_strings + n_numbers + n_words + n_arrays + n_objects,
				  .depth = deepest};
	out->tree_bytes = out->n_values * JSON_BYTES_ELEMENT + n_strings * JSON_BYTES_STRING +
			  n_numbers * JSON_BYTES_NUMBER + n_arrays * JSON_BYTES_ARRAY +
			  n_objects * JSON_BYTES_OBJECT + n_keys * JSON_BYTES_KEY + text;
}

/* ---- numbers that are kept as written ---- */

static const char big_mark[] = "\xef\xb7\x90"; /* U+FDD0, a noncharacter that does not occur in text */
enum { BIG_MARK = sizeof big_mark - 1 };

static size_t digits(const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && p[i] >= '0' && p[i] <= '9')
		i++;
	return i;
}

/* Return whether p[0..n) is a number, by RFC 8259. */
static bool is_number_text(const char *p, size_t n)
{
	size_t i = n && p[0] == '-', k = digits(p + i, n - i);
	if (!k || (k > 1 && p[i] == '0'))
		return false;
	i += k;
	if (i < n && p[i] == '.') {
		k = digits(p + i + 1, n - i - 1);
		i += k ? k + 1 : 0;
	}
	if (i + 1 < n && (p[i] == 'e' || p[i] == 'E')) {
		const size_t sign = p[i + 1] == '+' || p[i + 1] == '-';
		k = digits(p + i + 1 + sign, n - i - 1 - sign);
		i += k ? k + 1 + sign : 0;
	}
	return i == n;
}

const char *json_big(const json_t *v)
{
	const char *s = json_string_value(v);
	return s && strncmp(s, big_mark, BIG_MARK) == 0 && is_number_text(s + BIG_MARK, strlen(s + BIG_MARK))
		       ? s + BIG_MARK
		       : NULL;
}

/* Return whether p[0..n) is a number that jansson rejects as too large. */
static bool overflows(const char *p, size_t n)
{
	char whole[32];
	if (!is_number_text(p, n))
		return false;
	if (memchr(p, '.', n) || memchr(p, 'e', n) || memchr(p, 'E', n)) {
		struct buf copy = {0};
		buf_put(&copy, p, n);
		const double x = strtod(copy.p, NULL);
		buf_fini(&copy);
		return isinf(x);
	}
	if (n >= sizeof whole)
		return true;
	memcpy(whole, p, n);
	whole[n] = '\0';
	errno = 0;
	strtoll(whole, NULL, 10);
	return errno == ERANGE;
}

/* Append the text to out, with each number that is too large as a marked string. */
static void mark_big(const char *text, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n;) {
		size_t end = i + 1;
		if (text[i] == '"') {
			while (end < n && text[end] != '"')
				end += text[end] == '\\' && end + 1 < n ? 2 : 1;
			end += end < n;
		} else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
			while (end < n && memchr("+-.0123456789eE", text[end], 15))
				end++;
			size_t next = end;
			while (next < n && strchr(" \t\r\n", text[next]))
				next++;
			const bool is_key = next < n && text[next] == ':';
			if (!is_key && overflows(text + i, end - i)) {
				buf_printf(out, "\"%s%.*s\"", big_mark, (int)(end - i), text + i);
				i = end;
				continue;
			}
		}
		buf_put(out, text + i, end - i);
		i = end;
	}
}

static json_t *parse_with_big(const char *text, size_t n, json_error_t *e)
{
	struct buf marked = {0};
	mark_big(text, n, &marked);
	json_t *v = json_loadb(marked.p ? marked.p : "", marked.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, e);
	buf_fini(&marked);
	return v;
}

char *json_text(const json_t *v, size_t flags)
{
	static const char open[] = "\"\xef\xb7\x90";
	char *text = json_dumps(v, flags), *from = text, *to = text;
	for (char *at; text && (at = strstr(from, open));) {
		const size_t n = strspn(at + sizeof open - 1, "+-.0123456789eE");
		const bool big = at[sizeof open - 1 + n] == '"' && is_number_text(at + sizeof open - 1, n);
		memmove(to, from, (size_t)(at - from));
		to += at - from;
		const size_t skip = big ? sizeof open - 1 : 0, keep = big ? n : sizeof open - 1;
		memmove(to, at + skip, keep);
		to += keep;
		from = at + skip + keep + big;
	}
	if (text && from != text)
		memmove(to, from, strlen(from) + 1);
	return text;
}

bool json_is_object_text(const char *p, size_t n)
{
	json_t *v = NULL;
	const bool is = n && json_parse(p, n, &v, NULL) == 0 && json_is_object(v);
	json_decref(v);
	return is;
}

static bool has_big(const json_t *v)
{
	const char *key;
	json_t *part;
	size_t i;
	json_array_foreach((json_t *)v, i, part) if (has_big(part)) return true;
	json_object_foreach((json_t *)v, key, part) if (has_big(part)) return true;
	return json_big(v) != NULL;
}

static json_t *as_real(const json_t *v)
{
	const double x = strtod(json_big(v), NULL);
	return json_real(isinf(x) ? (x > 0 ? DBL_MAX : -DBL_MAX) : x);
}

static void replace_big(json_t *v)
{
	const char *key;
	json_t *part;
	size_t i;
	json_array_foreach(v, i, part)
	{
		replace_big(part);
		if (json_big(part))
			json_array_set_new(v, i, as_real(part));
	}
	json_object_foreach(v, key, part)
	{
		replace_big(part);
		if (json_big(part))
			json_object_set_new(v, key, as_real(part));
	}
}

json_t *json_without_big(const json_t *v)
{
	if (!has_big(v))
		return NULL;
	if (json_big(v))
		return as_real(v);
	json_t *copy = json_deep_copy(v);
	replace_big(copy);
	return copy;
}

int json_parse_within(const char *text, size_t n, size_t max_tree, json_t **out, struct json_size *size,
		      struct why *why)
{
	struct json_size mine, *measured = size ? size : &mine;
	json_error_t e;
	/* Skip a byte order mark, which RFC 8259 lets a parser ignore. */
	if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		n -= 3;
	}
	json_measure(text, n, measured);
	/* The depth is limited because jansson recurses. */
	if (measured->depth > JSON_DEPTH_MAX)
		return err_why(why, -EINVAL, "JSON nested deeper than %d", JSON_DEPTH_MAX);
	if (measured->tree_bytes > max_tree)
		return err_why(why, -E2BIG,
			       "JSON of %zu values, which take %zu bytes of memory, at most %zu are accepted",
			       measured->n_values, measured->tree_bytes, max_tree);
	/* jansson would report a NUL as the end of the text. */
	if (n && memchr(text, '\0', n))
		return err_why(why, -EINVAL, "not valid JSON: a NUL byte");
	*out = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
	if (!*out && json_error_code(&e) == json_error_numeric_overflow)
		*out = parse_with_big(text, n, &e);
	if (!*out)
		return err_why(why, -EINVAL, "not valid JSON: line %d, column %d: %s", e.line, e.column,
			       e.text);
	return 0;
}

int json_parse(const char *text, size_t n, json_t **out, struct why *why)
{
	return json_parse_within(text, n, SIZE_MAX, out, NULL, why);
}

int json_read(const char *path, size_t max, json_t **out, struct why *why)
{
	char *text;
	size_t n;
	int rc = file_read(path, max, &text, &n, why);
	if (rc)
		return rc;
	rc = json_parse(text, n, out, why);
	if (rc)
		err_prefix(why, rc, "%s", path);
	free(text);
	return rc;
}

json_t *json_get(const json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);
	return v && !json_is_null(v) ? v : NULL;
}

bool json_integral(const json_t *v, int64_t *out)
{
	const double exact = 9007199254740992.0; /* 2^53 */
	const double x = json_is_real(v) ? json_real_value(v) : 0;
	if (json_is_real(v) ? !(fabs(x) <= exact) || x != floor(x) : !json_is_integer(v))
		return false;
	*out = json_is_real(v) ? (int64_t)x : json_integer_value(v);
	return true;
}

int json_get_int(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *out, struct why *why)
{
	const json_t *v = json_get(o, key);
	if (!v)
		return 0;
	if (!json_is_integer(v))
		return err_why(why, -EINVAL, "%s must be an integer", key);
	int64_t x = json_integer_value(v);
	if (x < lo || x > hi)
		return err_why(why, -EINVAL, "%s is %lld, must be from %lld to %lld", key, (long long)x,
			       (long long)lo, (long long)hi);
	*out = x;
	return 0;
}

int json_get_num(const json_t *o, const char *key, double *out, struct why *why)
{
	const json_t *v = json_get(o, key);
	if (!v)
		return 0;
	if (!json_is_number(v))
		return err_why(why, -EINVAL, "%s must be a number", key);
	*out = json_number_value(v);
	return 0;
}

int json_get_bool(const json_t *o, const char *key, bool *out, struct why *why)
{
	const json_t *v = json_get(o, key);
	if (!v)
		return 0;
	if (!json_is_boolean(v))
		return err_why(why, -EINVAL, "%s must be true or false", key);
	*out = json_is_true(v);
	return 0;
}

int json_get_str(const json_t *o, const char *key, const char **out, struct why *why)
{
	const json_t *v = json_get(o, key);
	if (!v)
		return 0;
	if (!json_is_string(v))
		return err_why(why, -EINVAL, "%s must be a string", key);
	*out = json_string_value(v);
	return 0;
}

json_t *json_string_lossy(const char *s)
{
	struct buf b = {0};
	const size_t n = strlen(s);
	if (utf8_put_lossy(&b, s, n) < n)
		utf8_put_replacement(&b);
	json_t *out = json_stringn(b.p ? b.p : "", b.len);
	buf_fini(&b);
	return out;
}
