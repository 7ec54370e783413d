#include "base/json.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

/* jansson does not check its own allocations, and few callers check a member's: a tree is small metadata, and
 * aborts when memory is out (alloc.h). */
__attribute__((constructor)) static void use_checked_memory(void)
{
	json_set_alloc_funcs(xmalloc, free);
}

/* jansson recurses; count brackets outside strings before it sees the text. */
static bool depth_ok(const char *s, size_t n)
{
	int depth = 0;
	bool in_string = false;
	for (size_t i = 0; i < n; i++) {
		char c = s[i];
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '[' || c == '{') {
			if (++depth > JSON_DEPTH_MAX)
				return false;
		} else if (c == ']' || c == '}') {
			depth--;
		}
	}
	return true;
}

int json_parse(const char *text, size_t n, json_t **out, char *why, size_t why_n)
{
	json_error_t e;
	if (!depth_ok(text, n))
		return err_why(why, why_n, -EINVAL, "JSON nested deeper than %d", JSON_DEPTH_MAX);
	/* For jansson, the position behind the text is its end. */
	if (n && memchr(text, '\0', n))
		return err_why(why, why_n, -EINVAL, "not valid JSON: a NUL byte");
	*out = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
	if (!*out)
		return err_why(why, why_n, -EINVAL, "not valid JSON: line %d, column %d: %s", e.line,
			       e.column, e.text);
	return 0;
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
