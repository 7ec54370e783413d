/* Measuring a JSON text bounds the tree that is built of it. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/json.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <malloc.h>

static struct json_size measured(const char *text)
{
	struct json_size s;
	json_measure(text, strlen(text), &s);
	return s;
}

Test(json, values_and_depth_are_counted_exactly)
{
	static const struct {
		const char *text;
		size_t n_values;
		unsigned depth;
	} cases[] = {
		{"", 0, 0},
		{"1", 1, 0},
		{"[]", 1, 1},
		{"{}", 1, 1},
		{"[[],[]]", 3, 2},
		{"[1,2,-3.5e7]", 4, 1},
		{"[1 ,2\n,\t3]", 4, 1},
		{"[true,false,null]", 4, 1},
		{"{\"a\":1,\"b\":[\"c\"]}", 4, 2},
		{"[\"[[[,,,:::\\\"]]\",\"\\\\\",\"{\"]", 4, 1},
		{"[[[]],[[[[]]]]]", 7, 5},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct json_size s = measured(cases[i].text);
		cr_expect_eq(s.n_values, cases[i].n_values, "%s: %zu", cases[i].text, s.n_values);
		cr_expect_eq(s.depth, cases[i].depth, "%s: %u", cases[i].text, s.depth);
	}
}

/* Measuring truncated or invalid texts does no harm. */
Test(json, any_text_can_be_measured)
{
	static const char *const texts[] = {
		"\"", "\"\\", "[\"a", "]]]]}}", "::::", "{\"a\":", ",,,", "\\", "[}"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		/* A copy of exactly this size lets a sanitizer see a read past the end. */
		size_t n = strlen(texts[i]);
		char *copy = xmemdup(texts[i], n);
		struct json_size s;
		json_measure(copy, n, &s);
		cr_expect(s.n_values <= n && s.tree_bytes < 1000, "%s: %zu", texts[i], s.tree_bytes);
		free(copy);
	}
}

static size_t in_use(void)
{
	struct mallinfo2 m = mallinfo2();
	return m.uordblks + m.hblkhd;
}

/* A tree never takes more memory than measured, and takes at least a third of it. */
Test(json, the_memory_of_a_tree_is_measured)
{
	static const char *const shapes[] = {"[]",
					     "{}",
					     "\"\"",
					     "1",
					     "1.5",
					     "null",
					     "[[[[]]]]",
					     "{\"a\":{}}",
					     "[1,2,3,4,5,6,7,8,9]",
					     ("{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,"
					      "\"h\":8,\"i\":9}"),
					     "\"a text of forty bytes, which is not short\"",
					     "{\"role\":\"user\",\"content\":\"hello\"}"};
#ifdef __SANITIZE_ADDRESS__
	cr_skip_test("the sanitizer's malloc does not say what is in use");
#endif
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (int n = 1000; n <= 70000; n += 23000) {
			struct buf text = {0};
			struct json_size s;
			json_t *tree;
			buf_printf(&text, "[%s", shapes[i]);
			for (int k = 1; k < n; k++)
				buf_printf(&text, ",%s", shapes[i]);
			buf_putc(&text, ']');
			size_t before = in_use();
			cr_assert_eq(json_parse_within(text.p, text.len, SIZE_MAX, &tree, &s, NULL), 0);
			size_t took = in_use() - before;
			cr_expect(took <= s.tree_bytes && took >= s.tree_bytes / 3, "%s: %zu of %zu bytes",
				  shapes[i], took, s.tree_bytes);
			json_decref(tree);
			buf_fini(&text);
		}
}

Test(json, a_tree_beyond_its_bound_is_not_built)
{
	static const char text[] = "[[],[],{\"a\":\"text\"}]";
	struct why why = {""};
	json_t *tree = NULL;
	size_t need = measured(text).tree_bytes, before = in_use();
	cr_expect_eq(json_parse_within(text, sizeof text - 1, need - 1, &tree, NULL, &why), -E2BIG);
	cr_expect(!tree && strstr(why.text, "5 values"), "%s", why.text);
	cr_expect_eq(in_use(), before);
	cr_expect_eq(json_parse_within(text, sizeof text - 1, need, &tree, NULL, &why), 0);
	json_decref(tree);
}

/* ---- numbers that jansson cannot represent ---- */

static void comes_back(const char *text, const char *want)
{
	json_t *v = NULL;
	struct why why = {""};
	cr_assert_eq(json_parse(text, strlen(text), &v, &why), 0, "%s: %s", text, why.text);
	char *back = json_text(v, JSON_COMPACT | JSON_ENCODE_ANY);
	cr_expect_str_eq(back, want, "%s became %s", text, back);
	free(back);
	json_decref(v);
}

Test(json, a_number_beyond_64_bits_is_kept_as_it_was_written)
{
	comes_back("{\"id\":12345678901234567890}", "{\"id\":12345678901234567890}");
	comes_back("[9223372036854775807,9223372036854775808,-9223372036854775808,-9223372036854775809]",
		   "[9223372036854775807,9223372036854775808,-9223372036854775808,-9223372036854775809]");
	comes_back("123456789012345678901234567890", "123456789012345678901234567890");
	comes_back("[1e400,-1.5E+999,18446744073709551616]", "[1e400,-1.5E+999,18446744073709551616]");
	/* Numbers within strings stay untouched. */
	comes_back("{\"a\\\"99999999999999999999\":\"99999999999999999999\\\\\",\"b\":99999999999999999999}",
		   "{\"a\\\"99999999999999999999\":\"99999999999999999999\\\\\",\"b\":99999999999999999999}");
	comes_back("[\"\xef\xb7\x90 no number\",\"\xef\xb7\x90\",99999999999999999999]",
		   "[\"\xef\xb7\x90 no number\",\"\xef\xb7\x90\",99999999999999999999]");
}

Test(json, such_a_number_is_told_from_strings_and_comes_near_as_a_float)
{
	static const char text[] = "{\"a\":[18446744073709551615,\"18446744073709551615\"],\"b\":1}";
	json_t *v = NULL;
	cr_assert_eq(json_parse(text, sizeof text - 1, &v, NULL), 0);
	const json_t *a = json_object_get(v, "a");
	cr_expect_str_eq(json_big(json_array_get(a, 0)), "18446744073709551615");
	cr_expect_null(json_big(json_array_get(a, 1)));
	cr_expect_null(json_big(json_object_get(v, "b")));
	json_t *near = json_without_big(v);
	cr_expect_eq(json_real_value(json_array_get(json_object_get(near, "a"), 0)), 18446744073709551615.0);
	cr_expect(json_is_string(json_array_get(json_object_get(near, "a"), 1)));
	cr_expect_null(json_without_big(json_object_get(v, "b")));
	json_decref(near);
	json_decref(v);
}

Test(json, errors_beside_such_a_number_are_errors)
{
	static const char *const bad[] = {"[99999999999999999999", "[99999999999999999999,]",
					  "[099999999999999999999]", "[9999999999999999999999-1]",
					  "{\"a\":99999999999999999999 1}"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		json_t *v = NULL;
		struct why why = {""};
		cr_expect_eq(json_parse(bad[i], strlen(bad[i]), &v, &why), -EINVAL, "%s", bad[i]);
		json_decref(v);
	}
}
