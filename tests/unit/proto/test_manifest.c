/* Lists of a model's files, and chunks: names that a peer may use, and decoding of valid messages. */
#include "base/alloc.h"
#include "proto/bus.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t digest[MANIFEST_DIGEST] = {7, 8, 9};
static struct why why;

Test(manifest, names_stay_below_the_models_directory)
{
	static const char *const good[] = {"config.json", "1_Pooling/config.json", "a b",
					   "model-00001-of-00002.gguf", "a/b/c/d"};
	static const char *const bad[] = {"",     "/etc/passwd", "..",      "../x",  "a/../b",
					  "a/..", "./a",         ".hidden", "a/.b",  "a//b",
					  "a/",   "a\\b",        "a\nb",    "a\x7f", "a/b/c/d/e"};
	char name[MANIFEST_NAME_MAX + 2];
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		cr_expect(manifest_name_is_valid(good[i]), "%s", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect(!manifest_name_is_valid(bad[i]), "%s", bad[i]);
	memset(name, 'a', sizeof name);
	name[MANIFEST_NAME_MAX] = '\0';
	cr_expect(manifest_name_is_valid(name));
	name[MANIFEST_NAME_MAX] = 'a';
	name[MANIFEST_NAME_MAX + 1] = '\0';
	cr_expect(!manifest_name_is_valid(name));
}

Test(manifest, entries_are_ordered_and_bounded)
{
	struct manifest m = {.model = "m"};
	cr_expect_eq(manifest_check(&m, &why), -EBADMSG); /* empty */
	cr_expect_eq(manifest_add(&m, "b", 5, digest, &why), 0);
	cr_expect_eq(manifest_add(&m, "b", 5, digest, &why), -EBADMSG);
	cr_expect_eq(manifest_add(&m, "a", 5, digest, &why), -EBADMSG);
	cr_expect_eq(manifest_add(&m, "c", -1, digest, &why), -EBADMSG);
	cr_expect_eq(manifest_add(&m, "c", MANIFEST_BYTES_MAX - 4, digest, &why), -EBADMSG);
	cr_expect_eq(manifest_add(&m, "c", MANIFEST_BYTES_MAX - 5, digest, &why), 0);
	cr_expect_eq(m.bytes, MANIFEST_BYTES_MAX);
	cr_expect_eq(manifest_check(&m, &why), 0, "%s", why.text);
	m.first = xstrdup("x");
	cr_expect_eq(manifest_check(&m, &why), -EBADMSG);
	strcpy(m.first, "b");
	cr_expect_eq(manifest_check(&m, &why), 0);
	strcpy(m.model, "a/b");
	cr_expect_eq(manifest_check(&m, &why), -EBADMSG);
	strcpy(m.model, "..");
	cr_expect_eq(manifest_check(&m, &why), -EBADMSG);
	manifest_fini(&m);
}

Test(manifest, any_text_becomes_a_folders_name)
{
	char out[MANIFEST_MODEL], long_text[300];
	manifest_name_model("../Qwen/Qwen3 8B", out);
	cr_expect_str_eq(out, "Qwen_Qwen3_8B");
	manifest_name_model("...", out);
	cr_expect_str_eq(out, "model");
	memset(long_text, 'x', sizeof long_text);
	long_text[sizeof long_text - 1] = '\0';
	manifest_name_model(long_text, out);
	cr_expect_eq(strlen(out), MANIFEST_MODEL - 1);
}

static void encode_list(struct buf *b, const char *refusal)
{
	struct manifest m = {.model = "demo"};
	if (!refusal[0]) {
		m.first = xstrdup("model.gguf");
		manifest_add(&m, "config.json", 3, digest, &why);
		manifest_add(&m, "model.gguf", (int64_t)7 << 32, digest, &why);
	}
	bus_encode_files(&m, refusal, b);
	manifest_fini(&m);
}

Test(manifest, a_list_comes_back_as_it_was_sent)
{
	struct buf b = {0};
	struct manifest m;
	encode_list(&b, "");
	cr_expect_eq(bus_peek(b.p, b.len, &why), BUS_FILES);
	cr_assert_eq(bus_decode_files(b.p, b.len, &m, &why), 0, "%s", why.text);
	cr_expect_str_eq(m.model, "demo");
	cr_expect_str_eq(m.first, "model.gguf");
	cr_expect_eq(m.n, 2);
	cr_expect_str_eq(m.files[1].name, "model.gguf");
	cr_expect_eq(m.files[1].size, (int64_t)7 << 32);
	cr_expect_eq(memcmp(m.files[1].digest, digest, sizeof digest), 0);
	manifest_fini(&m);
	encode_list(&b, "the file is gone");
	cr_expect_eq(bus_decode_files(b.p, b.len, &m, &why), -ENODATA);
	cr_expect_str_eq(why.text, "the file is gone");
	buf_fini(&b);
}

/* A truncated list is invalid, and so is a list with a name outside of the directory. */
Test(manifest, a_damaged_list_is_refused)
{
	struct buf b = {0};
	struct manifest m;
	encode_list(&b, "");
	for (size_t n = 0; n < b.len; n++) {
		cr_expect_lt(bus_decode_files(b.p, n, &m, &why), 0, "%zu bytes", n);
		cr_expect_eq(m.n, 0);
	}
	char *name = memmem(b.p, b.len, "config.json", 11);
	memcpy(name, "../../x.jsn", 11);
	cr_expect_eq(bus_decode_files(b.p, b.len, &m, &why), -EBADMSG);
	cr_expect(strstr(why.text, "not allowed"), "%s", why.text);
	buf_fini(&b);
}

Test(manifest, a_chunk_comes_back_or_its_damage_shows)
{
	struct buf b = {0};
	struct bus_chunk k = {3, 1 << 20, "twelve bytes", 12}, got;
	bus_encode_chunk(&k, "", &b);
	cr_assert_eq(bus_decode_chunk(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_expect_eq(got.file, 3);
	cr_expect_eq(got.offset, 1 << 20);
	cr_expect_eq(got.n, 12);
	cr_expect_eq(memcmp(got.bytes, "twelve bytes", 12), 0);
	b.p[b.len - 1] ^= 1;
	cr_expect_eq(bus_decode_chunk(b.p, b.len, &got, &why), -EBADMSG);
	cr_expect(strstr(why.text, "checksum"), "%s", why.text);
	for (size_t n = 0; n < b.len; n++)
		cr_expect_lt(bus_decode_chunk(b.p, n, &got, &why), 0);
	k.n = 0;
	bus_encode_chunk(&k, "no such bytes", &b);
	cr_expect_eq(bus_decode_chunk(b.p, b.len, &got, &why), -ENODATA);
	bus_encode_chunk(&k, "", &b); /* would be requested forever */
	cr_expect_eq(bus_decode_chunk(b.p, b.len, &got, &why), -EBADMSG);
	buf_fini(&b);
}

Test(manifest, a_request_comes_back_within_bounds)
{
	struct buf b = {0};
	struct bus_msg m = {.type = BUS_WANT, .want = {5, BUS_WANT_LIST, 0, 0}}, got;
	bus_encode(&m, &b);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_expect_eq(got.want.file, BUS_WANT_LIST);
	cr_expect_eq(got.want.epoch, 5);
	m.want = (struct bus_want){5, 2, 1 << 20, BUS_CHUNK_MAX + 1};
	bus_encode(&m, &b);
	cr_expect_eq(bus_decode(b.p, b.len, &got, &why), -EBADMSG);
	buf_fini(&b);
}
