#include "formats/batch_lines.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/entropy.h"
#include "base/json_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { ERRORS_MAX = 100, CUSTOM_ID_MAX = 512 };

/* --- one line --- */

static int invalid(struct batch_line_problem *problem, const char *code, const char *param, const char *text)
{
	problem->code = code;
	problem->param = param;
	return err_why(&problem->why, -EINVAL, "%s", text);
}

static const char *skip_blank(const char *p, const char *end)
{
	while (p < end && strchr(" \t\r\n", *p) && *p)
		p++;
	return p;
}

/* Return the end of the string that begins at p, after its closing quote. */
static const char *skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		p += *p == '\\';
	return p < end ? p + 1 : end;
}

/* Return the end of the value that begins at p. */
static const char *skip_value(const char *p, const char *end)
{
	size_t depth = 0;
	do {
		if (*p == '"') {
			p = skip_string(p, end);
			continue;
		}
		if (!depth && strchr(",}]", *p))
			break;
		depth += *p == '{' || *p == '[';
		depth -= *p == '}' || *p == ']';
		p++;
	} while (p < end && (depth || !strchr(",}] \t\r\n", *p)));
	return p;
}

static bool is_body_key(const char *p, size_t n)
{
	json_t *key = json_loadb(p, n, JSON_DECODE_ANY, NULL);
	const bool is = json_is_string(key) && strcmp(json_string_value(key), "body") == 0;
	json_decref(key);
	return is;
}

/* Find the text of the body in a line that is a JSON object.  A repeated key counts as in a JSON parser: the
 * last one wins. */
static void find_body(const char *p, size_t n, struct batch_line_request *out)
{
	const char *end = p + n;
	p = memchr(p, '{', n);
	while (p && p < end && *p != '}') {
		const char *key = skip_blank(p + 1, end);
		const char *after = skip_string(key, end);
		const char *value = skip_blank(skip_blank(after, end) + 1, end); /* after the colon */
		p = skip_value(value, end);
		if (is_body_key(key, (size_t)(after - key))) {
			out->body_text = value;
			out->body_text_n = (size_t)(p - value);
		}
		p = skip_blank(p, end);
	}
}

int batch_line_parse(const char *p, size_t n, const char *endpoint, struct batch_line_request *out,
		     struct batch_line_problem *problem)
{
	struct why reason;
	*out = (struct batch_line_request){.custom_id = ""};
	if (json_parse_within(p, n, BATCH_LINE_TREE_MAX, &out->tree, NULL, &reason)) {
		invalid(problem, "invalid_json_line", NULL, "");
		return err_why(&problem->why, -EINVAL, "this line is %s", reason.text);
	}
	const json_t *id = json_object_get(out->tree, "custom_id");
	const json_t *method = json_object_get(out->tree, "method"), *url = json_object_get(out->tree, "url");
	out->body = json_object_get(out->tree, "body");
	if (!json_is_object(out->tree))
		return invalid(problem, "invalid_json_line", NULL, "this line is not a JSON object");
	if (!json_is_string(id) || !json_string_length(id) || json_string_length(id) > CUSTOM_ID_MAX ||
	    strlen(json_string_value(id)) != json_string_length(id))
		return invalid(problem, "missing_required_parameter", "custom_id",
			       "custom_id must be a string of 1 to 512 bytes");
	if (!json_is_string(method) || strcmp(json_string_value(method), "POST") != 0)
		return invalid(problem, "invalid_method", "method", "method must be \"POST\"");
	if (!json_is_string(url) || (endpoint && strcmp(json_string_value(url), endpoint) != 0))
		return invalid(problem, "invalid_url", "url", "url must be the endpoint of the batch");
	if (!json_is_object(out->body))
		return invalid(problem, "missing_required_parameter", "body", "body must be an object");
	out->custom_id = json_string_value(id);
	find_body(p, n, out);
	return 0;
}

void batch_line_result(struct buf *out, const char *custom_id, unsigned status, const char *request_id,
		       const char *body, size_t body_n)
{
	buf_printf(out, "{\"id\":\"batch_req_%016" PRIx64 "%016" PRIx64 "\",\"custom_id\":", entropy_u64(),
		   entropy_u64());
	json_write_str(out, custom_id);
	buf_printf(out, ",\"response\":{\"status_code\":%u,\"request_id\":", status);
	json_write_str(out, request_id);
	buf_puts(out, ",\"body\":");
	buf_put(out, body, body_n);
	buf_puts(out, "},\"error\":null}");
}

void batch_line_error(struct buf *out, const char *custom_id, const char *code, const char *message)
{
	buf_printf(out, "{\"id\":\"batch_req_%016" PRIx64 "%016" PRIx64 "\",\"custom_id\":", entropy_u64(),
		   entropy_u64());
	json_write_str(out, custom_id);
	buf_puts(out, ",\"response\":null,\"error\":{\"code\":");
	json_write_str(out, code);
	buf_puts(out, ",\"message\":");
	json_write_str(out, message);
	buf_puts(out, "}}");
}

/* --- the file --- */

void batch_scan_init(struct batch_scan *s, const char *endpoint, uint32_t max_lines, uint32_t max_line_bytes)
{
	*s = (struct batch_scan){.endpoint = endpoint,
				 .max_lines = max_lines,
				 .max_line_bytes = max_line_bytes,
				 .errors = json_array()};
}

void batch_scan_fini(struct batch_scan *s)
{
	free(s->lines);
	free(s->seen);
	buf_fini(&s->part);
	json_decref(s->errors);
	*s = (struct batch_scan){0};
}

static void add_error(struct batch_scan *s, const char *code, const char *param, const char *why)
{
	if (json_array_size(s->errors) >= ERRORS_MAX)
		return;
	json_t *e = json_pack("{s:s?, s:I}", "param", param, "line", (json_int_t)s->line);
	json_object_set_new(e, "code", json_string(code));
	/* The reason may quote invalid UTF-8 from the line. */
	json_t *message = json_string(why);
	json_object_set_new(e, "message", message ? message : json_string("this line is not valid UTF-8"));
	json_array_append_new(s->errors, e);
}

/* Return whether an earlier line has this custom_id; remember it. */
static bool is_duplicate(struct batch_scan *s, const char *custom_id)
{
	uint64_t h = XXH3_64bits(custom_id, strlen(custom_id)) | 1;
	if ((s->n_lines + 1) * 2 > s->seen_cap) {
		size_t cap = s->seen_cap ? s->seen_cap * 2 : 256;
		uint64_t *to = xcalloc(cap, sizeof *to);
		for (size_t i = 0; i < s->seen_cap; i++) {
			size_t at = s->seen[i] >> 1 & (cap - 1);
			while (s->seen[i] && to[at])
				at = (at + 1) & (cap - 1);
			if (s->seen[i])
				to[at] = s->seen[i];
		}
		free(s->seen);
		s->seen = to;
		s->seen_cap = cap;
	}
	size_t at = h >> 1 & (s->seen_cap - 1);
	for (; s->seen[at]; at = (at + 1) & (s->seen_cap - 1))
		if (s->seen[at] == h)
			return true;
	s->seen[at] = h;
	return false;
}

static bool is_blank(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strchr(" \t\r", p[i]) || !p[i])
			return false;
	return true;
}

static void add_line(struct batch_scan *s, const char *p, size_t n, int64_t at)
{
	struct batch_line_request request;
	struct batch_line_problem problem;
	/* Skip a byte order mark at the start of the file. */
	const size_t mark = at == 0 && n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
	p += mark;
	n -= mark;
	at += (int64_t)mark;
	s->line++;
	if (is_blank(p, n))
		return;
	if (s->n_lines >= s->max_lines) {
		if (s->n_lines++ == s->max_lines) {
			char why[80];
			snprintf(why, sizeof why, "the file has more lines than are accepted (%" PRIu32 ")",
				 s->max_lines);
			add_error(s, "too_many_tasks", NULL, why);
		}
		return;
	}
	if (batch_line_parse(p, n, s->endpoint, &request, &problem))
		add_error(s, problem.code, problem.param, problem.why.text);
	else if (is_duplicate(s, request.custom_id))
		add_error(s, "duplicate_custom_id", "custom_id", "an earlier line has the same custom_id");
	json_decref(request.tree);
	array_grow(s->lines, s->cap_lines, s->n_lines + (size_t)1);
	s->lines[s->n_lines++] = (struct batch_line){.at = at, .n = (uint32_t)n};
}

void batch_scan_put(struct batch_scan *s, const char *p, size_t n)
{
	while (n) {
		const char *end = memchr(p, '\n', n);
		size_t take = end ? (size_t)(end - p) : n;
		if (s->part.len + take > s->max_line_bytes)
			s->too_long = true;
		if (!s->too_long)
			buf_put(&s->part, p, take);
		s->at += (int64_t)(take + (end != NULL));
		p += take + (end != NULL);
		n -= take + (end != NULL);
		if (!end)
			return;
		if (s->too_long) {
			s->line++;
			add_error(s, "invalid_json_line", NULL, "this line is too long");
		} else {
			add_line(s, s->part.p ? s->part.p : "", s->part.len,
				 s->at - 1 - (int64_t)s->part.len);
		}
		s->too_long = false;
		buf_clear(&s->part);
	}
}

void batch_scan_end(struct batch_scan *s)
{
	if (s->part.len || s->too_long) {
		batch_scan_put(s, "\n", 1);
		s->at--;
	}
	if (!s->n_lines && !json_array_size(s->errors)) {
		s->line = 0;
		add_error(s, "empty_file", NULL, "the file has no lines");
	}
}
