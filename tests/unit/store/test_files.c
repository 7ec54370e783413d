/* The model files that a worker reads, and their fingerprint. */
#include "store/files.h"

#include "base/buf.h"
#include "store/digest.h"
#include "tests/unit/store/store_help.h"

#include <errno.h>

enum { WEIGHTS = 3 << 20 };

static struct buf index_text;

/* Make a directory in Hugging Face layout with two weight files, and files that no worker reads. */
static char *new_model(void)
{
	char *dir = new_dir(), *bytes = noise(WEIGHTS, 1);
	put(dir, "config.json", "{\"hidden_size\": 8}");
	put(dir, "tokenizer.json", "{}");
	put(dir, "README.md", "a model");
	put(dir, "model.safetensors.index.json",
	    "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", "
	    "\"b\": \"model-00002-of-00002.safetensors\", \"c\": \"model-00001-of-00002.safetensors\"}}");
	put_bytes(dir, "model-00001-of-00002.safetensors", bytes, WEIGHTS);
	put_bytes(dir, "model-00002-of-00002.safetensors", bytes, WEIGHTS / 2);
	put(dir, "other.safetensors", "of no index");
	free(bytes);
	return dir;
}

static struct store_files list(const char *path)
{
	struct store_files l;
	cr_assert_eq(store_files_list(path, &l, &why), 0, "%s", why.text);
	return l;
}

static void expect_names(const char *path, const char *names)
{
	struct store_files l = list(path);
	char text[512] = "";
	for (size_t i = 0; i < l.n; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", l.files[i].name);
	cr_expect_str_eq(text, names);
	store_files_fini(&l);
}

static void quick_fingerprint(const char *path, char out[QUICK_FINGERPRINT_SIZE])
{
	struct store_files l = list(path);
	cr_assert_eq(store_files_quick_fingerprint(&l, out, &why), 0, "%s", why.text);
	cr_expect_eq(strlen(out), QUICK_FINGERPRINT_SIZE - 1);
	store_files_fini(&l);
}

Test(files, of_a_directory_are_those_that_its_index_names)
{
	char *dir = new_model();
	expect_names(dir, "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
			  "model.safetensors.index.json ");
	put(dir, "modules.json", "[{\"path\": \"\"}, {\"path\": \"1_Pooling\"}, {\"path\": \"../x\"}]");
	put(dir, "1_Pooling/config.json", "{}");
	put(dir, "generation_config.json", "{}");
	put(dir, "model.safetensors", "one");
	expect_names(dir, "1_Pooling/config.json config.json generation_config.json model.safetensors "
			  "modules.json ");
	remove_dir(dir);
}

Test(files, a_module_of_another_folder_is_not_read)
{
	char *above = new_dir(), *dir = file_join(above, "model");
	put(dir, "config.json", "{}");
	put(dir, "model.safetensors", "one");
	put(above, "x/config.json", "{}");
	put(dir, ".x/config.json", "{}");
	put(dir, "a/b/config.json", "{}");
	put(dir, "modules.json",
	    "[{\"path\": \"../x\"}, {\"path\": \".x\"}, {\"path\": \"a/b\"}, {\"path\": 1}, {}]");
	expect_names(dir, "config.json model.safetensors modules.json ");
	free(dir);
	remove_dir(above);
}

Test(files, of_gguf_are_all_parts)
{
	char *dir = new_dir();
	put(dir, "m-00001-of-00002.gguf", "GGUF");
	put(dir, "m-00002-of-00002.gguf", "GGUF");
	put(dir, "mmproj-f16.gguf", "GGUF");
	expect_names(dir, "m-00001-of-00002.gguf m-00002-of-00002.gguf ");
	char *path = file_join(dir, "m-00002-of-00002.gguf");
	expect_names(path, "m-00001-of-00002.gguf m-00002-of-00002.gguf ");
	struct store_files l = list(path);
	cr_expect_str_eq(l.first, "m-00002-of-00002.gguf");
	cr_expect_str_eq(l.dir, dir);
	store_files_fini(&l);
	free(path);
	path = file_join(dir, "mmproj-f16.gguf");
	expect_names(path, "mmproj-f16.gguf ");
	free(path);
	remove_dir(dir);
}

Test(files, that_are_missing_are_named)
{
	struct store_files l;
	char *dir = new_model(), *shard = file_join(dir, "model-00002-of-00002.safetensors");
	unlink(shard);
	cr_expect_eq(store_files_list(dir, &l, &why), -ENOENT);
	cr_expect(strstr(why.text, "model-00002-of-00002.safetensors"), "%s", why.text);
	put(dir, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../../etc/passwd\"}}");
	cr_expect_eq(store_files_list(dir, &l, &why), -EINVAL);
	free(shard);
	remove_dir(dir);
	dir = new_dir();
	put(dir, "config.json", "{}");
	cr_expect_eq(store_files_list(dir, &l, &why), -ENOENT);
	cr_expect(strstr(why.text, "safetensors"), "%s", why.text);
	remove_dir(dir);
	cr_expect_eq(store_files_list("/nowhere/model", &l, &why), -ENOENT);
}

/* Neither the path nor the modification time of the files matters. */
Test(files, copies_have_one_quick_fingerprint)
{
	char *a = new_model(), *b = new_model(), one[QUICK_FINGERPRINT_SIZE], two[QUICK_FINGERPRINT_SIZE];
	put(b, "tokenizer.json", "{\"another\": 1}");
	quick_fingerprint(a, one);
	quick_fingerprint(b, two);
	cr_expect_str_eq(one, two);
	cr_expect_null(quick_fingerprint_difference(one, two));
	cr_expect_eq(store_files_check(b, one, &why), 0, "%s", why.text);
	remove_dir(a);
	remove_dir(b);
}

static void expect_difference(const char *dir, const char *before, const char *what)
{
	char now[QUICK_FINGERPRINT_SIZE];
	quick_fingerprint(dir, now);
	const char *got = quick_fingerprint_difference(before, now);
	cr_expect(got && strstr(got, what), "%s: %s", what, got ? got : "no difference");
	why.text[0] = '\0';
	cr_expect_eq(store_files_check(dir, before, &why), -EINVAL);
	cr_expect(strstr(why.text, what) && strstr(why.text, dir), "%s", why.text);
}

Test(files, a_sketch_shows_what_differs)
{
	char before[QUICK_FINGERPRINT_SIZE];
	char *dir = new_model();
	quick_fingerprint(dir, before);
	put(dir, "config.json", "{\"hidden_size\": 9}");
	expect_difference(dir, before, "configurations");
	put(dir, "config.json", "{\"hidden_size\": 8}");
	cr_expect_eq(store_files_check(dir, before, &why), 0, "%s", why.text);

	char *other = noise(WEIGHTS, 2); /* another fine-tune with the same names, sizes and header */
	char *same = noise(WEIGHTS, 1);
	memcpy(other, same, 128 << 10);
	put_bytes(dir, "model-00001-of-00002.safetensors", other, WEIGHTS);
	expect_difference(dir, before, "weights differ");
	put_bytes(dir, "model-00001-of-00002.safetensors", same, WEIGHTS);
	flip(dir, "model-00002-of-00002.safetensors", 9); /* within a header */
	expect_difference(dir, before, "weights differ");
	put_bytes(dir, "model-00002-of-00002.safetensors", same, WEIGHTS / 2 - 1);
	expect_difference(dir, before, "sizes");
	free(other);
	free(same);
	remove_dir(dir);
}

/* The fingerprint is from a program with another rule or with none, so it gives no information about this
 * model. */
Test(files, a_sketch_of_another_version_fits_every_model)
{
	char mine[QUICK_FINGERPRINT_SIZE], other[QUICK_FINGERPRINT_SIZE];
	char *dir = new_model();
	quick_fingerprint(dir, mine);
	cr_expect_eq(strncmp(mine, "1:", 2), 0);
	strcpy(other, mine);
	other[0] = '2';
	other[9] ^= 1;
	const char *const unknown[] = {"", "1", "1:", "1:0.0.0", mine + 2, other};
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
		cr_expect(!quick_fingerprint_is_known(unknown[i]), "%s", unknown[i]);
		cr_expect_null(quick_fingerprint_difference(mine, unknown[i]), "%s", unknown[i]);
		cr_expect_null(quick_fingerprint_difference(unknown[i], mine), "%s", unknown[i]);
		cr_expect_eq(store_files_check(dir, unknown[i], &why), 0, "%s: %s", unknown[i], why.text);
	}
	other[0] = '1';
	cr_expect(quick_fingerprint_is_known(other) && quick_fingerprint_difference(mine, other));
	remove_dir(dir);
}

/* After a clone without git lfs or an interrupted download, the compared files would not be the model. */
Test(files, pointers_and_empty_files_are_no_weights)
{
	static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n";
	struct store_files l;
	char *dir = new_model();
	put(dir, "model-00002-of-00002.safetensors", pointer);
	cr_expect_eq(store_files_list(dir, &l, &why), -ENODATA);
	cr_expect(strstr(why.text, "model-00002-of-00002.safetensors is a git-lfs pointer"), "%s", why.text);
	put(dir, "model-00002-of-00002.safetensors", "");
	cr_expect_eq(store_files_list(dir, &l, &why), -ENODATA);
	cr_expect(strstr(why.text, "model-00002-of-00002.safetensors is empty"), "%s", why.text);
	remove_dir(dir);
}

/* 32 samples are spread over the weights of all files, wherever the files' borders are. */
Test(files, a_sketch_of_many_files_samples_each)
{
	enum { SIZE = 300 << 10, N = 8, HEAD = 64 << 10 };
	char before[QUICK_FINGERPRINT_SIZE], name[32], *dir = new_dir(), *bytes = noise(SIZE, 3);
	put(dir, "config.json", "{}");
	buf_clear(&index_text);
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof name, "part-%d.safetensors", i);
		put_bytes(dir, name, bytes, SIZE);
		buf_printf(&index_text, "%s\"t%d\": \"%s\"", i ? ", " : "{\"weight_map\": {", i, name);
	}
	buf_puts(&index_text, "}}");
	put(dir, "model.safetensors.index.json", index_text.p);
	quick_fingerprint(dir, before);
	memset(bytes + HEAD, 0, SIZE - HEAD);
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof name, "part-%d.safetensors", i);
		put_bytes(dir, name, bytes, SIZE);
		expect_difference(dir, before, "weights differ");
		char *same = noise(SIZE, 3);
		put_bytes(dir, name, same, SIZE);
		free(same);
	}
	cr_expect_eq(store_files_check(dir, before, &why), 0, "%s", why.text);
	buf_fini(&index_text);
	free(bytes);
	remove_dir(dir);
}

Test(files, a_change_of_any_file_shows_in_its_identity)
{
	char *dir = new_model();
	struct store_files a = list(dir), b = list(dir);
	cr_assert_str_eq(a.files[0].name, "config.json");
	cr_expect(store_id_equal(&a.files[0].id, &b.files[0].id));
	store_files_fini(&b);
	put(dir, "config.json", "{\"hidden_size\": 8} ");
	b = list(dir);
	cr_expect(!store_id_equal(&a.files[0].id, &b.files[0].id));
	store_files_fini(&a);
	store_files_fini(&b);
	remove_dir(dir);
}

/* All fields that stat(2) reports for a file are compared. */
Test(files, an_identity_is_compared_in_all_its_fields)
{
	const struct store_id a = {1, 2, 3, 4, 5}, others[] = {{9, 2, 3, 4, 5},
							       {1, 9, 3, 4, 5},
							       {1, 2, 9, 4, 5},
							       {1, 2, 3, 9, 5},
							       {1, 2, 3, 4, 9}};
	cr_expect(store_id_equal(&a, &a));
	for (size_t i = 0; i < 5; i++)
		cr_expect(!store_id_equal(&a, &others[i]), "%zu", i);
}

/* FIPS 180-4, "abc" and the empty message. */
Test(files, digests_are_sha256)
{
	uint8_t out[DIGEST_BYTES], back[DIGEST_BYTES];
	char text[DIGEST_TEXT];
	struct digest *d = digest_new();
	digest_add(d, "a", 1);
	digest_add(d, "bc", 2);
	digest_end(d, out);
	digest_hex(out, DIGEST_BYTES, text);
	cr_expect_str_eq(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	cr_expect(digest_read(text, back) && memcmp(out, back, sizeof out) == 0);
	digest_end(digest_new(), out);
	digest_hex(out, DIGEST_BYTES, text);
	cr_expect_str_eq(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	text[63] = 'g';
	cr_expect(!digest_read(text, back));
	text[63] = '\0';
	cr_expect(!digest_read(text, back));
}
