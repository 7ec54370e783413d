/* safetensors files: valid ones are read; each kind of invalid header is refused by name. */
#include "formats/safetensors.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];
static struct why why;
static struct safetensors *st;

static void make_dir(void)
{
	strcpy(dir, "/tmp/quern-st-XXXXXX");
	cr_assert(mkdtemp(dir));
}

static void remove_dir(void)
{
	char cmd[128];
	safetensors_close(st);
	snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
	cr_assert_eq(system(cmd), 0);
}

TestSuite(safetensors, .init = make_dir, .fini = remove_dir);

static const char *path_of(const char *name)
{
	static char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void put_raw(const char *name, uint64_t header_n, const char *header, size_t n, size_t data_n)
{
	FILE *f = fopen(path_of(name), "wb");
	fwrite(&header_n, 8, 1, f);
	fwrite(header, 1, n, f);
	for (size_t i = 0; i < data_n; i++)
		fputc((int)(i & 0xff), f);
	fclose(f);
}

static void put(const char *name, const char *header, size_t data_n)
{
	put_raw(name, strlen(header), header, strlen(header), data_n);
}

static int open_one(const char *name)
{
	safetensors_close(st);
	st = NULL;
	return safetensors_open(path_of(name), &st, &why);
}

static int open_all(void)
{
	safetensors_close(st);
	st = NULL;
	return safetensors_open_dir(dir, &st, &why);
}

static void refused(const char *header, size_t data_n, const char *reason)
{
	put("a.safetensors", header, data_n);
	int rc = open_one("a.safetensors");
	cr_assert(rc == -EINVAL || rc == -ENOTSUP, "%s: rc %d", header, rc);
	cr_assert(strstr(why.text, reason), "%s: \"%s\" does not contain \"%s\"", header, why.text, reason);
	cr_assert(strstr(why.text, "a.safetensors"), "\"%s\" does not name the file", why.text);
}

#define F32_4 "{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}"

Test(safetensors, tensors_are_found_by_name)
{
	put("a.safetensors",
	    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":" F32_4
	    ",\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]},"
	    "\"c\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}}   ",
	    26);
	cr_assert_eq(open_one("a.safetensors"), 0, "%s", why.text);
	cr_expect_eq(safetensors_count(st), 3);
	cr_expect_eq(safetensors_bytes(st), 26);
	cr_expect_eq(safetensors_files(st), 1);
	cr_expect_str_eq(safetensors_at(st, 0)->name, "a");
	const struct st_tensor *t = safetensors_find(st, "b");
	cr_assert(t);
	cr_expect(t->dtype == ST_F32 && t->n_dims == 2 && t->shape[1] == 2 && t->bytes == 16);
	cr_expect_eq(((const unsigned char *)t->data)[3], 3);
	cr_expect_eq(safetensors_find(st, "c")->n_dims, 0);
	cr_expect_null(safetensors_find(st, "d"));
}

Test(safetensors, an_empty_tensor_takes_no_room)
{
	put("a.safetensors",
	    "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,8],\"data_offsets\":[0,0]},\"b\":" F32_4 "}", 16);
	cr_expect_eq(open_one("a.safetensors"), 0, "%s", why.text);
}

Test(safetensors, header_lengths_that_do_not_fit_are_refused)
{
	put_raw("a.safetensors", 0, "", 0, 0);
	cr_expect_eq(open_one("a.safetensors"), -EINVAL);
	put_raw("a.safetensors", UINT64_MAX, "{}", 2, 0);
	cr_expect_eq(open_one("a.safetensors"), -EINVAL);
	cr_expect(strstr(why.text, "header's length"), "%s", why.text);
	put_raw("a.safetensors", 3, "{}", 2, 0);
	cr_expect_eq(open_one("a.safetensors"), -EINVAL);
	FILE *f = fopen(path_of("a.safetensors"), "wb");
	fputs("short", f);
	fclose(f);
	cr_expect_eq(open_one("a.safetensors"), -EINVAL);
	cr_expect(strstr(why.text, "too short"), "%s", why.text);
	cr_expect_eq(open_one("absent.safetensors"), -ENOENT);
}

Test(safetensors, invalid_json_is_refused)
{
	refused("{\"a\":", 0, "not valid JSON");
	refused("[]", 0, "not a JSON object");
	refused("{\"a\":1}", 0, "not described by an object");
	refused("{\"a\":" F32_4 ",\"a\":" F32_4 "}", 16, "duplicate");
	refused("{\"__metadata__\":3}", 0, "__metadata__");
	refused("{\"a\\u0000b\":" F32_4 "}", 16, "JSON");
	char *deep = malloc(100001);
	memset(deep, '[', 100000);
	deep[100000] = '\0';
	refused(deep, 0, "JSON");
	free(deep);
}

Test(safetensors, types_and_shapes_are_checked)
{
	refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, "dtype F4");
	refused("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype is missing");
	refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "shape is missing");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "shape[0]");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "shape[0]");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
		"too large");
	refused("{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
		"too large");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
		"9 dimensions");
}

Test(safetensors, offsets_are_checked)
{
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "outside");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "no range");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "no range");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775807]}}", 8,
		"outside");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "the shape needs 8");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two integers");
	refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", 4, "two integers");
	refused("{\"a\":" F32_4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", 16,
		"overlaps");
	refused("{\"a\":" F32_4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[20,28]}}", 28,
		"4 bytes before tensor b");
	refused("{\"a\":" F32_4 "}", 21, "5 bytes after");
}

Test(safetensors, too_many_tensors_are_refused)
{
	size_t cap = 400002 * 80;
	char *h = malloc(cap);
	size_t n = (size_t)sprintf(h, "{");
	for (int i = 0; i <= 400000; i++)
		n += (size_t)sprintf(h + n,
				     "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
				     i ? "," : "", i);
	sprintf(h + n, "}");
	refused(h, 0, "more than 400000 tensors");
	free(h);
}

/* ---- several files ---- */

static void put_text(const char *name, const char *text)
{
	FILE *f = fopen(path_of(name), "w");
	fputs(text, f);
	fclose(f);
}

Test(safetensors, shards_are_one_set)
{
	put("x-1.safetensors", "{\"a\":" F32_4 "}", 16);
	put("x-2.safetensors", "{\"b\":" F32_4 "}", 16);
	put_text("model.safetensors.index.json", "{\"metadata\": {\"total_size\": 32}, \"weight_map\": "
						 "{\"a\": \"x-1.safetensors\", \"b\": \"x-2.safetensors\"}}");
	cr_assert_eq(open_all(), 0, "%s", why.text);
	cr_expect_eq(safetensors_count(st), 2);
	cr_expect_eq(safetensors_files(st), 2);
	cr_expect(safetensors_find(st, "a") && safetensors_find(st, "b"));
}

Test(safetensors, a_false_index_is_refused)
{
	put("x-1.safetensors", "{\"a\":" F32_4 "}", 16);
	put("x-2.safetensors", "{\"a\":" F32_4 "}", 16);
	const char *index = "model.safetensors.index.json";
	put_text(index, "{\"weight_map\": {\"a\": \"x-1.safetensors\", \"b\": \"x-1.safetensors\"}}");
	cr_expect_eq(open_all(), -EINVAL);
	cr_expect(strstr(why.text, "tensor b is not in x-1.safetensors"), "%s", why.text);
	put_text(index, "{\"weight_map\": {\"a\": \"x-1.safetensors\", \"c\": \"x-2.safetensors\"}}");
	cr_expect_eq(open_all(), -EINVAL);
	cr_expect(strstr(why.text, "tensor a is in two files"), "%s", why.text);
	put_text(index, "{\"weight_map\": {\"a\": \"../x-1.safetensors\"}}");
	cr_expect_eq(open_all(), -EINVAL);
	cr_expect(strstr(why.text, "not a file name"), "%s", why.text);
	put_text(index, "{\"weight_map\": {\"a\": \"gone.safetensors\"}}");
	cr_expect_eq(open_all(), -ENOENT);
	cr_expect(strstr(why.text, "gone.safetensors"), "%s", why.text);
	put_text(index, "{}");
	cr_expect_eq(open_all(), -EINVAL);
	put_text(index, "{\"weight_map\": {\"a\": 3}}");
	cr_expect_eq(open_all(), -EINVAL);
}

Test(safetensors, a_single_file_may_have_any_name)
{
	cr_expect_eq(open_all(), -ENOENT);
	put("weights.safetensors", "{\"a\":" F32_4 "}", 16);
	cr_expect_eq(open_all(), 0, "%s", why.text);
	put("more.safetensors", "{\"a\":" F32_4 "}", 16);
	cr_expect_eq(open_all(), -ENOENT);
	cr_expect(strstr(why.text, "several"), "%s", why.text);
}

Test(safetensors, edge_cases_of_the_test_data_are_read_or_refused)
{
	static const struct {
		const char *file;
		int rc;
	} all[] = {
		{"tensor-1d-int32.safetensors", 0},   {"tensor-2d-float64.safetensors", 0},
		{"tensor-3d-float32.safetensors", 0}, {"tensor-4d-float32.safetensors", 0},
		{"tiny.safetensors", -EINVAL},        {"tiny.gguf", -EINVAL},
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		char rel[128];
		snprintf(rel, sizeof rel, "weights/loader-edge/%s", all[i].file);
		const char *path = testdata(rel);
		if (!path)
			cr_skip_test("%s is not here", rel);
		safetensors_close(st);
		st = NULL;
		cr_expect_eq(safetensors_open(path, &st, &why), all[i].rc, "%s: %s", rel, why.text);
	}
	const char *sharded = testdata("weights/tiny-random/tiny_qwen3_sharded");
	safetensors_close(st);
	st = NULL;
	cr_expect(sharded && safetensors_open_dir(sharded, &st, &why) == 0, "%s", why.text);
	cr_expect_eq(safetensors_files(st), 2);
}

/* A file with a changed byte, or cut anywhere, is refused or read within bounds. */
Test(safetensors, damaged_files_never_crash)
{
	const char *header = "{\"__metadata__\":{\"format\":\"pt\"},\"b\":" F32_4
			     ",\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]}}";
	size_t n = strlen(header);
	for (size_t i = 0; i < n + 8; i++) {
		for (int bit = 0; bit < 8; bit += 3) {
			char copy[512];
			uint64_t len = n;
			memcpy(copy, header, n);
			if (i < 8)
				len ^= (uint64_t)1 << (8 * i + (size_t)bit);
			else
				copy[i - 8] = (char)(copy[i - 8] ^ 1 << bit);
			put_raw("a.safetensors", len, copy, n, 24);
			if (open_one("a.safetensors") != 0)
				continue;
			unsigned sum = 0;
			for (int t = 0; t < safetensors_count(st); t++)
				for (size_t k = 0; k < safetensors_at(st, t)->bytes; k++)
					sum += ((const unsigned char *)safetensors_at(st, t)->data)[k];
			cr_assert_eq(sum, 23 * 24 / 2);
		}
	}
	for (size_t cut = 0; cut < 24; cut++) {
		put_raw("a.safetensors", n, header, n, cut);
		cr_assert_eq(open_one("a.safetensors"), -EINVAL);
	}
}

/* A sparse file, as long as such a header would need. */
Test(safetensors, a_header_beyond_the_formats_limit_is_refused)
{
	put_raw("model.safetensors", ST_HEADER_MAX + 1, "{", 1, 0);
	cr_assert_eq(truncate(path_of("model.safetensors"), (off_t)ST_HEADER_MAX + 1000), 0);
	cr_expect_eq(open_all(), -EINVAL);
	cr_expect(strstr(why.text, "the header's length 100000001"), "%s", why.text);
}

Test(safetensors, too_many_files_are_refused)
{
	FILE *f = fopen(path_of("model.safetensors.index.json"), "w");
	fprintf(f, "{\"weight_map\": {");
	for (int i = 0; i <= ST_SHARDS_MAX; i++)
		fprintf(f, "%s\"t%d\": \"x-%d.safetensors\"", i ? ", " : "", i, i);
	fprintf(f, "}}");
	fclose(f);
	cr_expect_eq(open_all(), -EINVAL);
	cr_expect(strstr(why.text, "more than 4096 files"), "%s", why.text);
}
