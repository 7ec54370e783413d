/* Lines of a batch's input file, which arrives in arbitrary parts. */
#include "formats/batch_lines.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define URL      "/v1/completions"
#define LINE(id) "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"" URL "\",\"body\":{}}"

/* Scan the file in parts of `part` bytes. */
static struct batch_scan scan(const char *text, size_t part)
{
	struct batch_scan s;
	size_t n = strlen(text);
	batch_scan_init(&s, URL, 10, 200);
	for (size_t i = 0; i < n; i += part)
		batch_scan_put(&s, text + i, n - i < part ? n - i : part);
	batch_scan_end(&s);
	return s;
}

static const char *code(const struct batch_scan *s, size_t i)
{
	return json_string_value(json_object_get(json_array_get(s->errors, i), "code"));
}

static json_int_t line(const struct batch_scan *s, size_t i)
{
	return json_integer_value(json_object_get(json_array_get(s->errors, i), "line"));
}

Test(batch_lines, are_found_however_the_file_is_cut)
{
	static const char text[] = LINE("a") "\n\n" LINE("bb") "\r\n  \n" LINE("c");
	for (size_t part = 1; part < sizeof text; part++) {
		struct batch_scan s = scan(text, part);
		cr_assert_eq(json_array_size(s.errors), 0);
		cr_assert_eq(s.n_lines, 3);
		for (uint32_t i = 0; i < 3; i++) {
			const char *want[] = {LINE("a"), LINE("bb") "\r", LINE("c")};
			cr_expect_eq(s.lines[i].n, strlen(want[i]), "part %zu line %u", part, i);
			cr_expect_eq(memcmp(text + s.lines[i].at, want[i], s.lines[i].n), 0);
		}
		batch_scan_fini(&s);
	}
}

static void wrong(const char *text, const char *want, json_int_t at)
{
	struct batch_scan s = scan(text, 7);
	cr_assert_eq(json_array_size(s.errors), 1, "%s", text);
	cr_expect_str_eq(code(&s, 0), want);
	cr_expect_eq(line(&s, 0), at);
	batch_scan_fini(&s);
}

Test(batch_lines, errors_have_their_line)
{
	wrong("", "empty_file", 0);
	wrong("\n\n", "empty_file", 0);
	wrong(LINE("a") "\n{oops", "invalid_json_line", 2);
	wrong("[]", "invalid_json_line", 1);
	wrong("\x19\xff\xfe{", "invalid_json_line", 1);
	wrong("{\"a\": \xc3}", "invalid_json_line", 1);
	wrong(LINE("a") "\n" LINE("a") "\n", "duplicate_custom_id", 2);
	wrong("{\"method\":\"POST\",\"url\":\"" URL "\",\"body\":{}}", "missing_required_parameter", 1);
	wrong("{\"custom_id\":\"\",\"method\":\"POST\",\"url\":\"" URL "\",\"body\":{}}",
	      "missing_required_parameter", 1);
	wrong("{\"custom_id\":\"a\",\"method\":\"GET\",\"url\":\"" URL "\",\"body\":{}}", "invalid_method",
	      1);
	wrong("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v2\",\"body\":{}}", "invalid_url", 1);
	wrong("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"" URL "\",\"body\":[]}",
	      "missing_required_parameter", 1);
}

Test(batch_lines, a_line_that_is_too_long_leaves_the_others_valid)
{
	char text[1000];
	memset(text, 'x', 500);
	snprintf(text + 500, sizeof text - 500, "\n%s\n", LINE("a"));
	struct batch_scan s = scan(text, 13);
	cr_assert_eq(json_array_size(s.errors), 1);
	cr_expect_eq(line(&s, 0), 1);
	cr_expect_eq(s.n_lines, 1);
	cr_expect_eq(s.lines[0].at, 501);
	batch_scan_fini(&s);
}

Test(batch_lines, too_many_lines_are_one_error)
{
	char text[4096] = "";
	for (int i = 0; i < 20; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text),
			 "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"" URL "\",\"body\":{}}\n", i);
	struct batch_scan s = scan(text, 100);
	cr_assert_eq(json_array_size(s.errors), 1);
	cr_expect_str_eq(code(&s, 0), "too_many_tasks");
	cr_expect_str_eq(json_string_value(json_object_get(json_array_get(s.errors, 0), "message")),
			 "the file has more lines than are accepted (10)");
	batch_scan_fini(&s);
}

Test(batch_lines, errors_are_bounded)
{
	char text[2048];
	memset(text, '\n', sizeof text);
	for (size_t i = 0; i + 1 < sizeof text; i += 2)
		text[i] = '{';
	text[sizeof text - 1] = 0;
	struct batch_scan s;
	batch_scan_init(&s, URL, 50000, 200);
	batch_scan_put(&s, text, strlen(text));
	batch_scan_end(&s);
	cr_expect_eq(json_array_size(s.errors), 100);
	batch_scan_fini(&s);
}

Test(batch_lines, results_are_json_for_any_custom_id)
{
	struct buf b = {0};
	batch_line_result(&b, "q\"\\\n", 200, "r\"", "{\"a\":1}", 7);
	json_t *v = json_loads(b.p, 0, NULL);
	cr_assert_not_null(v, "%s", b.p);
	cr_expect_str_eq(json_string_value(json_object_get(v, "custom_id")), "q\"\\\n");
	cr_expect_eq(json_integer_value(
			     json_object_get(json_object_get(json_object_get(v, "response"), "body"), "a")),
		     1);
	json_decref(v);
	buf_clear(&b);
	batch_line_error(&b, "x", "batch_expired", "late");
	v = json_loads(b.p, 0, NULL);
	cr_assert_not_null(v);
	cr_expect(json_is_null(json_object_get(v, "response")));
	json_decref(v);
	buf_fini(&b);
}

/* A parsed line of empty arrays would take 48 times its bytes. */
Test(batch_lines, of_too_many_values_are_refused_unbuilt)
{
	struct buf text = {0};
	struct batch_line_request request;
	struct batch_line_problem problem;
	buf_puts(&text,
		 "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"" URL "\",\"body\":{\"prompt\":[[]");
	while (text.len < 2 << 20)
		buf_puts(&text, ",[]");
	buf_puts(&text, "]}}");
	cr_expect_eq(batch_line_parse(text.p, text.len, URL, &request, &problem), -EINVAL);
	cr_expect_null(request.tree);
	cr_expect_str_eq(problem.code, "invalid_json_line");
	cr_expect(strstr(problem.why.text, "bytes of memory"), "%s", problem.why.text);
	buf_fini(&text);
}

/* Expect this text of the body, byte for byte. */
static void body(const char *line, const char *want)
{
	struct batch_line_request request;
	struct batch_line_problem problem;
	cr_assert_eq(batch_line_parse(line, strlen(line), NULL, &request, &problem), 0, "%s", line);
	cr_expect_eq(request.body_text_n, strlen(want), "%s: %.*s", line, (int)request.body_text_n,
		     request.body_text);
	cr_expect_eq(strncmp(request.body_text, want, strlen(want)), 0, "%s: %.*s", line,
		     (int)request.body_text_n, request.body_text);
	json_decref(request.tree);
}

#define HEAD "\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/x\""

Test(batch_lines, a_body_is_the_text_of_the_line)
{
	body("{" HEAD ",\"body\":{\"a\":1.50}}", "{\"a\":1.50}");
	body(" { \"body\" :\t{ \"a\" : [ 1e0 , {} ] } , " HEAD " } \r", "{ \"a\" : [ 1e0 , {} ] }");
	body("{\"x\":\"body\",\"y\":{\"body\":{\"no\":1}}," HEAD ",\"body\":{\"yes\":1}}", "{\"yes\":1}");
	body("{" HEAD ",\"body\":{\"a\":\"}\\\\\\\"{\",\"b\":\"]\"},\"z\":\"\\\"body\\\":\"}",
	     "{\"a\":\"}\\\\\\\"{\",\"b\":\"]\"}");
	body("{" HEAD ",\"body\":[1],\"n\":12,\"t\":true,\"body\":{}}", "{}");
	body("{" HEAD ",\"bo\\u0064y\":{\"e\":1}}", "{\"e\":1}");
	body("\xef\xbb\xbf{" HEAD ",\"body\":{}}", "{}");
}

Test(batch_lines, a_byte_order_mark_begins_a_file)
{
	static const char mark[] = "\xef\xbb\xbf";
	struct batch_scan s = scan("\xef\xbb\xbf" LINE("a") "\n", 2);
	cr_assert_eq(json_array_size(s.errors), 0);
	cr_assert_eq(s.n_lines, 1);
	cr_expect_eq(s.lines[0].at, (int64_t)strlen(mark));
	cr_expect_eq(s.lines[0].n, strlen(LINE("a")));
	batch_scan_fini(&s);
	s = scan("\xef\xbb\xbf\n" LINE("a"), 100);
	cr_expect_eq(s.n_lines, 1);
	batch_scan_fini(&s);
}
