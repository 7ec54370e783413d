#include "base/json.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* jansson does not check its own allocations, and few callers check a member's: a tree is small metadata, and
 * aborts when memory is out (alloc.h). */
__attribute__((constructor)) static void use_checked_memory(void)
{
	json_set_alloc_funcs(xmalloc, free);
}

/* Behind the string that begins at i; *bytes: its text, escapes and all. */
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

/* Behind the number, or the word, that begins at i. */
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
			n_keys++; /* the string before it */
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

int json_parse_within(const char *text, size_t n, size_t max_tree, json_t **out, struct json_size *size,
		      char *why, size_t why_n)
{
	struct json_size mine, *measured = size ? size : &mine;
	json_error_t e;
	json_measure(text, n, measured);
	/* jansson recurses. */
	if (measured->depth > JSON_DEPTH_MAX)
		return err_why(why, why_n, -EINVAL, "JSON nested deeper than %d", JSON_DEPTH_MAX);
	if (measured->tree_bytes > max_tree)
		return err_why(why, why_n, -E2BIG,
			       "JSON of %zu values, which take %zu bytes of memory, at most %zu are accepted",
			       measured->n_values, measured->tree_bytes, max_tree);
	/* For jansson, the position behind the text is its end. */
	if (n && memchr(text, '\0', n))
		return err_why(why, why_n, -EINVAL, "not valid JSON: a NUL byte");
	*out = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
	if (!*out)
		return err_why(why, why_n, -EINVAL, "not valid JSON: line %d, column %d: %s", e.line,
			       e.column, e.text);
	return 0;
}

int json_parse(const char *text, size_t n, json_t **out, char *why, size_t why_n)
{
	return json_parse_within(text, n, SIZE_MAX, out, NULL, why, why_n);
}

int json_read(const char *path, size_t max, json_t **out, char *why, size_t why_n)
{
	char *text;
	size_t n;
	int rc = file_read(path, max, &text, &n, why, why_n);
	if (rc)
		return rc;
	rc = json_parse(text, n, out, why, why_n);
	if (rc)
		err_prefix(why, why_n, rc, "%s", path);
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

int json_get_int(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *out, char *why,
		 size_t why_n)
{
	const json_t *v = json_get(o, key);
	if (!v)
		return 0;
	if (!json_is_integer(v))
		return err_why(why, why_n, -EINVAL, "%s must be an integer", key);
	int64_t x = json_integer_value(v);
	if (x < lo || x > hi)
		return err_why(why, why_n, -EINVAL, "%s is %lld, must be from %lld to %lld", key,
			       (long long)x, (long long)lo, (long long)hi);
	*out = x;
	return 0;
}

int json_get_num(const json_t *o, const char *key, double *out, char *why, size_t why_n)
{
	const json_t *v = json_get(o, key);
	if (!v)
		return 0;
	if (!json_is_number(v))
		return err_why(why, why_n, -EINVAL, "%s must be a number", key);
	*out = json_number_value(v);
	return 0;
}

int json_get_bool(const json_t *o, const char *key, bool *out, char *why, size_t why_n)
{
	const json_t *v = json_get(o, key);
	if (!v)
		return 0;
	if (!json_is_boolean(v))
		return err_why(why, why_n, -EINVAL, "%s must be true or false", key);
	*out = json_is_true(v);
	return 0;
}

int json_get_str(const json_t *o, const char *key, const char **out, char *why, size_t why_n)
{
	const json_t *v = json_get(o, key);
	if (!v)
		return 0;
	if (!json_is_string(v))
		return err_why(why, why_n, -EINVAL, "%s must be a string", key);
	*out = json_string_value(v);
	return 0;
}
