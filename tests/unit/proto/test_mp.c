/* msgpack of any shape: values accepted, values refused, and the error texts. */
#include "base/json.h"
#include "proto/mp.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(mp, .timeout = 60);

static const struct mp_limits limits = {.bytes = 1 << 20, .objects = 1000, .depth = 8, .tree = 1 << 20};

static int decode(const void *bytes, size_t n, json_t **out, struct why *why)
{
	why->text[0] = 0;
	*out = NULL;
	return mp_decode(bytes, n, &limits, out, why);
}

/* Expects a refusal with these words. */
#define REFUSED(bytes, words)                                                                                \
	do {                                                                                                 \
		json_t *v_;                                                                                  \
		struct why why_;                                                                             \
		cr_expect_lt(decode(bytes, sizeof(bytes) - 1, &v_, &why_), 0, "taken: %s", #bytes);          \
		cr_expect(strstr(why_.text, words), "\"%s\" does not say \"%s\"", why_.text, words);         \
	} while (0)

static void same(const char *json)
{
	json_t *in, *out;
	struct why why;
	struct buf b = {0};
	cr_assert_eq(json_parse(json, strlen(json), &in, &why), 0, "%s", why.text);
	mp_encode(&b, in);
	cr_assert_eq(decode(b.p, b.len, &out, &why), 0, "%s: %s", json, why.text);
	cr_expect(json_equal(in, out), "%s", json);
	json_decref(in);
	json_decref(out);
	buf_fini(&b);
}

Test(mp, values_round_trip)
{
	same("null");
	same("[true, false, null, 0, -1, 127, 128, -32, -33, 255, 256, 65535, 65536, -129, -32769, "
	     "4294967295]");
	same("[4294967296, 9223372036854775807, -9223372036854775808, 0.5, -1e300, 1e-300]");
	same("[\"\", \"a\", \"\\u0000\", \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\", "
	     "\"a string of more than thirty-one bytes, for another header\"]");
	same("{\"op\": \"submit\", \"id\": 1, \"params\": {\"stop\": [\"x\"], \"n\": 2}, \"messages\": [{}, "
	     "{}]}");
}

Test(mp, reads_every_form_of_the_reference_suite)
{
	const char *path = testdata("conformance/msgpack-test-suite.json");
	json_t *suite;
	struct why why;
	if (!path)
		cr_skip_test("the msgpack test suite is not there");
	cr_assert_eq(json_read(path, 1 << 20, &suite, &why), 0, "%s", why.text);
	const char *group;
	json_t *cases;
	size_t i, k, n_seen = 0;
	const json_t *c, *constraint;
	json_object_foreach(suite, group, cases) json_array_foreach(cases, i, c)
	{
		bool other = json_object_get(c, "binary") || json_object_get(c, "ext") ||
			     json_object_get(c, "timestamp");
		json_array_foreach(json_object_get(c, "msgpack"), k, constraint)
		{
			unsigned char bytes[512];
			size_t n = 0;
			for (const char *p = json_string_value(constraint); *p && n < sizeof bytes;
			     p += *p == '-')
				bytes[n++] = (unsigned char)strtoul(p, (char **)&p, 16);
			json_t *v;
			int rc = decode(bytes, n, &v, &why);
			cr_expect_eq(rc != 0, other || strstr(why.text, "not a string"), "%s %zu: %s", group,
				     i, why.text);
			n_seen++;
			const json_t *number = json_object_get(c, "number");
			if (!rc && number)
				cr_expect_float_eq(json_number_value(v), json_number_value(number), 1e-6);
			const json_t *string = json_object_get(c, "string");
			if (!rc && string)
				cr_expect(json_equal(v, (json_t *)string));
			const json_t *array = json_object_get(c, "array");
			if (!rc && array)
				cr_expect(json_equal(v, (json_t *)array));
			json_decref(v);
		}
	}
	cr_assert_gt(n_seen, 50);
	json_decref(suite);
}

Test(mp, headers_beyond_the_message_are_refused)
{
	REFUSED("\xdd\xff\xff\xff\xff", "4294967295 elements");
	REFUSED("\xdf\xff\xff\xff\xff", "4294967295 elements");
	REFUSED("\xdb\xff\xff\xff\xff", "4294967295 bytes");
	REFUSED("\xdc\xff\xff", "65535 elements");
	REFUSED("\xde\xff\xff", "65535 elements");
	REFUSED("\xda\x01\x00", "256 bytes");
	REFUSED("\x81\xa1"
		"a\xdd\x00\x00\x00\x02\x01",
		"2 elements");
}

Test(mp, truncated_messages)
{
	static const char whole[] =
		"\x83\xa2op\xa6submit\xa2id\xcd\x01\x00\xa1x\x92\xcb\x3f\xf0\0\0\0\0\0\0\xd9\x01"
		"a";
	json_t *v;
	struct why why;
	size_t n = sizeof whole - 1;
	cr_assert_eq(decode(whole, n, &v, &why), 0, "%s", why.text);
	json_decref(v);
	for (size_t i = 0; i < n; i++) {
		cr_expect_lt(decode(whole, i, &v, &why), 0, "%zu bytes are taken", i);
		cr_expect_neq(why.text[0], 0);
	}
}

Test(mp, unsupported_types_are_named)
{
	REFUSED("\xc1", "0xc1");
	REFUSED("\xc4\x01x", "binary");
	REFUSED("\xc7\x01\x05x", "extension");
	REFUSED("\xd4\x05x", "extension");
	REFUSED("\x81\x01\x02", "map key at byte 1 is not a string");
	REFUSED("\x81\xc4\x01x\x02", "binary");
	REFUSED("\x81\x80\x02", "map key");
	REFUSED("\x82\xa1"
		"a\x01\xa1"
		"a\x02",
		"duplicate key a");
	REFUSED("\x81\xa2"
		"a\0\x01",
		"NUL");
	REFUSED("\x01\x02", "1 bytes follow");
	REFUSED("", "ends");
}

Test(mp, strings_must_be_utf8)
{
	REFUSED("\xa2\xc3\x28", "not UTF-8 (its byte 0)");
	REFUSED("\xa3"
		"ab\xff",
		"its byte 2");
	REFUSED("\xa3\xed\xa0\x80", "not UTF-8");     /* a surrogate */
	REFUSED("\xa2\xc0\x80", "not UTF-8");         /* overlong */
	REFUSED("\xa4\xf4\x90\x80\x80", "not UTF-8"); /* beyond U+10FFFF */
	REFUSED("\xa2\xe2\x82", "not UTF-8");         /* cut short */
	REFUSED("\x81\xa1\xff\x01", "not UTF-8");     /* a key */
}

Test(mp, numbers_that_are_not_finite_are_named)
{
	REFUSED("\x81\xa5top_p\xcb\x7f\xf8\0\0\0\0\0\0", "top_p is not a finite");
	REFUSED("\x81\xa5top_p\xca\x7f\x80\0\0", "top_p is not a finite");
	REFUSED("\x81\xa1x\x91\xcb\xff\xf0\0\0\0\0\0\0", "x is not a finite");
}

Test(mp, depth_is_bounded)
{
	char deep[100000];
	json_t *v;
	struct why why;
	memset(deep, 0x91, sizeof deep);
	cr_assert_eq(decode(deep, sizeof deep, &v, &why), -E2BIG);
	cr_assert(strstr(why.text, "nested too deep"), "%s", why.text);
	deep[8] = 1;
	cr_assert_eq(decode(deep, 9, &v, &why), 0, "%s", why.text);
	json_decref(v);
}

Test(mp, the_number_of_values_is_bounded)
{
	char many[2048] = "\xdc\x03\xe9";
	json_t *v;
	struct why why;
	cr_assert_eq(decode(many, 3 + 1001, &v, &why), -E2BIG);
	cr_assert(strstr(why.text, "more values"), "%s", why.text);
	many[2] = '\xe8';
	cr_assert_eq(decode(many, 3 + 1000, &v, &why), 0, "%s", why.text);
	cr_assert_eq(json_array_size(v), 1000);
	json_decref(v);
}

Test(mp, the_bytes_are_bounded)
{
	char *big = calloc(1, limits.bytes + 1);
	json_t *v;
	struct why why;
	cr_assert_eq(decode(big, limits.bytes + 1, &v, &why), -E2BIG);
	cr_assert(strstr(why.text, "1048577 bytes"), "%s", why.text);
	free(big);
}

/* Return an array of n one-byte elements. */
static char *array_of(uint8_t element, uint32_t n)
{
	char *p = malloc(5 + (size_t)n);
	p[0] = (char)0xdd;
	for (int i = 0; i < 4; i++)
		p[1 + i] = (char)(n >> (24 - 8 * i));
	memset(p + 5, element, n);
	return p;
}

/* As a tree, an empty array takes 144 times its bytes, a map 240 times. */
Test(mp, the_memory_of_a_tree_is_bounded)
{
	struct mp_limits request = mp_limits_request(16 << 20);
	static const struct {
		uint8_t element;
		uint32_t n;
		bool fits;
	} cases[] = {{5, 1000000, true},
		     {0x90, 400000, true},
		     {0x90, 600000, false},
		     {0x80, 400000, false},
		     {0xa0, 900000, false}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct why why = {""};
		char *p = array_of(cases[i].element, cases[i].n);
		json_t *v = NULL;
		int rc = mp_decode(p, 5 + (size_t)cases[i].n, &request, &v, &why);
		cr_expect_eq(rc, cases[i].fits ? 0 : -E2BIG, "%zu: %d %s", i, rc, why.text);
		cr_expect(cases[i].fits || (!v && strstr(why.text, "send fewer values")), "%s", why.text);
		json_decref(v);
		free(p);
	}
}

Test(mp, depth_of_a_request_fits_the_unpackers_stack)
{
	struct mp_limits request = mp_limits_request(1 << 20);
	char deep[64];
	json_t *v;
	struct why why;
	memset(deep, 0x91, sizeof deep);
	deep[MP_DEPTH_MAX] = 1;
	cr_assert_eq(mp_decode(deep, MP_DEPTH_MAX + 1, &request, &v, &why), 0, "%s", why.text);
	json_decref(v);
	for (int i = 0; i < MP_DEPTH_MAX; i++)
		memcpy(deep + 2 * i, "\x81\xa0", 2);
	deep[2 * MP_DEPTH_MAX] = 1;
	cr_assert_eq(mp_decode(deep, 2 * MP_DEPTH_MAX + 1, &request, &v, &why), 0, "%s", why.text);
	json_decref(v);
}

Test(mp, a_value_before_damage_is_found)
{
	const void *id;
	size_t n;
	cr_assert_eq(mp_find("\x83\xa2op\xa4ping\xa2id\xcd\x01\x02\xc1", 16, "id", &id, &n), 0);
	cr_assert_eq(n, 3);
	cr_assert_eq(memcmp(id, "\xcd\x01\x02", 3), 0);
	cr_assert_eq(mp_find("\x82\xa2op\xc1\xa2id\x01", 9, "id", &id, &n), -ENOENT);
	cr_assert_eq(mp_find("\x92\xa2id\x01", 5, "id", &id, &n), -ENOENT);
	cr_assert_eq(mp_find("", 0, "id", &id, &n), -ENOENT);
}

Test(mp, numbers_beyond_2_to_the_63_become_reals)
{
	json_t *v;
	struct why why;
	cr_assert_eq(decode("\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, &v, &why), 0);
	cr_assert(json_is_real(v));
	json_decref(v);
}

Test(mp, floats_that_are_not_finite_are_written_as_nil)
{
	struct buf b = {0};
	mp_put_double(&b, NAN);
	mp_put_float(&b, -INFINITY);
	cr_assert_eq(b.len, 2);
	cr_assert_eq(memcmp(b.p, "\xc0\xc0", 2), 0);
	buf_fini(&b);
}

/* Random damage causes no crash, and every refusal has a reason. */
Test(mp, damaged_messages_get_a_reason)
{
	static const char whole[] =
		"\x84\xa2op\xa6submit\xa2id\x05\xa6prompt\xa5hello\xa6params\x82\xa1n\x01\xa4stop\x92"
		"\xa1x\xa2\xc3\xa9";
	srand(5);
	for (int round = 0; round < 200000; round++) {
		char bytes[sizeof whole];
		memcpy(bytes, whole, sizeof whole);
		for (int i = rand() % 4; i >= 0; i--)
			bytes[(size_t)rand() % (sizeof whole - 1)] = (char)rand();
		json_t *v;
		struct why why;
		size_t n = (size_t)rand() % sizeof whole;
		int rc = decode(bytes, n, &v, &why);
		cr_assert((rc == 0) == (v != NULL));
		cr_assert(rc == 0 || why.text[0]);
		json_decref(v);
	}
}

/* Decode a map of n different keys. */
static int decode_keys(uint32_t n, struct why *why)
{
	const struct mp_limits large = {.bytes = 1 << 20, .objects = 1 << 17, .depth = 8, .tree = 1 << 24};
	struct buf b = {0};
	json_t *v = NULL;
	mp_put_map(&b, n);
	for (uint32_t i = 0; i < n; i++) {
		char key[16];
		snprintf(key, sizeof key, "%u", i);
		mp_put_cstr(&b, key);
		mp_put_nil(&b);
	}
	int rc = mp_decode(b.p, b.len, &large, &v, why);
	cr_expect(rc || json_object_size(v) == n);
	json_decref(v);
	buf_fini(&b);
	return rc;
}

Test(mp, the_keys_of_a_map_are_bounded)
{
	struct why why;
	cr_expect_eq(decode_keys(4096, &why), 0, "%s", why.text);
	cr_expect_eq(decode_keys(4097, &why), -E2BIG);
	cr_expect_str_eq(why.text, "msgpack: a map of 4097 keys, at most 4096 are accepted");
}

Test(mp, every_message_is_nested_24_deep_at_most)
{
	const struct mp_limits all[] = {mp_limits_request(1 << 20), mp_limits_reply()};
	for (size_t i = 0; i < 2; i++)
		for (uint32_t n = 24; n <= 25; n++) {
			struct why text = {""};
			char bytes[32];
			json_t *v = NULL;
			memset(bytes, '\x91', n);
			bytes[n] = 7;
			cr_expect_eq(mp_decode(bytes, n + 1, &all[i], &v, &text), n == 24 ? 0 : -E2BIG,
				     "%u deep: %s", n, text.text);
			json_decref(v);
		}
}
