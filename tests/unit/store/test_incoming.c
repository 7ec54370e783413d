/* A fetched model: chunks become files, across interruptions, damage and a hostile peer. */
#include "store/incoming.h"

#include "proto/bus.h"
#include "tests/synced_renames.h"
#include "tests/unit/store/store_help.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/statvfs.h>

enum { WEIGHTS = 5 * BUS_CHUNK_MAX + 1234 };

/* The controller's model, and the cache of another host. */
struct rig {
	char *model, *root, *records;
	struct store_files files;
	struct manifest m;
	struct checksums sums;
	int64_t sent; /* bytes */
};

static void rig_open(struct rig *r)
{
	char *bytes = noise(WEIGHTS, 1);
	*r = (struct rig){.model = new_dir(), .root = new_dir()};
	put(r->model, "config.json", "{}");
	put(r->model, "modules.json", "[{\"path\": \"1_Pooling\"}]");
	put(r->model, "1_Pooling/config.json", "");
	put_bytes(r->model, "model.safetensors", bytes, WEIGHTS);
	free(bytes);
	r->records = cached_records(r->root);
	r->sums.records = r->records;
	cr_assert_eq(store_files_list(r->model, &r->files, &why), 0, "%s", why.text);
	cr_assert_eq(manifest_make(&r->m, &r->files, "demo", &r->sums, false, &why), 0, "%s", why.text);
}

static void rig_close(struct rig *r)
{
	manifest_fini(&r->m);
	store_files_fini(&r->files);
	free(r->records);
	remove_dir(r->model);
	remove_dir(r->root);
}

static struct incoming *begin(struct rig *r)
{
	struct incoming *in;
	cr_assert_eq(incoming_open(&in, r->root, &r->m, &r->sums, &why), 0, "%s", why.text);
	return in;
}

/* Answer at most n requests; spoil: the first byte of each answer is wrong. */
static int serve(struct rig *r, struct incoming *in, int n, bool spoil)
{
	uint32_t file, bytes;
	uint64_t offset;
	for (int rc = 0; n-- > 0 && incoming_want(in, &file, &offset, &bytes);) {
		char *path = file_join(r->model, r->m.files[file].name), *data = xmalloc(bytes);
		FILE *f = fopen(path, "rb");
		fseek(f, (long)offset, SEEK_SET);
		cr_assert_eq(fread(data, 1, bytes, f), bytes);
		fclose(f);
		data[0] = (char)(data[0] ^ spoil);
		rc = incoming_put(in, file, offset, data, bytes, &why);
		r->sent += bytes;
		free(data);
		free(path);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static void expect_published(struct rig *r, struct incoming *in)
{
	char path[PATH_MAX], found[PATH_MAX];
	cr_assert(incoming_is_complete(in));
	cr_expect_eq(incoming_done(in), r->m.bytes);
	cr_assert_eq(incoming_publish(in, path, &why), 0, "%s", why.text);
	incoming_close(in);
	cr_expect_eq(cached_check(path, &r->m, &r->sums, &why), 0, "%s", why.text);
	cr_assert_eq(cached_find(r->root, &r->m, &r->sums, found, &why), 0, "%s", why.text);
	cr_expect_str_eq(found, path);
	char *command = xasprintf("diff -r -x .quern-model.json '%s' '%s'", r->model, path);
	cr_expect_eq(system(command), 0);
	free(command);
}

Test(incoming, comes_in_chunks_and_is_found)
{
	struct rig r;
	rig_open(&r);
	struct incoming *in = begin(&r);
	cr_expect(!incoming_is_complete(in));
	cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
	expect_published(&r, in);
	cr_expect_eq(r.sent, r.m.bytes);
	rig_close(&r);
}

/* Checked for the four files, the manifest, and the folder. */
Test(incoming, each_file_is_on_the_disk_before_it_has_its_name)
{
	struct rig r;
	char path[PATH_MAX];
	rig_open(&r);
	synced_below = r.root;
	struct incoming *in = begin(&r);
	cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
	cr_assert_eq(incoming_publish(in, path, &why), 0, "%s", why.text);
	synced_below = NULL;
	cr_expect_geq(synced_expect(), 6);
	incoming_close(in);
	rig_close(&r);
}

/* After a kill at any point, stored bytes are not requested again. */
Test(incoming, goes_on_where_it_was_interrupted)
{
	for (int n = 1; n < 8; n++) {
		struct rig r;
		rig_open(&r);
		struct incoming *in = begin(&r);
		cr_expect_eq(serve(&r, in, n, false), 0, "%s", why.text);
		const int64_t there = incoming_done(in);
		incoming_close(in);
		in = begin(&r);
		cr_expect_eq(incoming_done(in), there);
		cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
		expect_published(&r, in);
		cr_expect_eq(r.sent, r.m.bytes, "%d: %lld bytes", n, (long long)r.sent);
		rig_close(&r);
	}
}

/* Answers may be in flight when everything is requested again. */
Test(incoming, what_is_not_due_is_dropped)
{
	struct rig r;
	uint32_t file, bytes;
	uint64_t offset;
	rig_open(&r);
	struct incoming *in = begin(&r);
	while (incoming_outstanding(in) < 4)
		cr_assert(incoming_want(in, &file, &offset, &bytes));
	cr_expect_eq(incoming_put(in, file, offset, "x", 1, &why), 1);
	cr_expect_eq(incoming_put(in, MANIFEST_FILES_MAX, 0, "x", 1, &why), 1);
	cr_expect_eq(incoming_put(in, 1, 1, "}", 1, &why), 1, "the file's second byte");
	incoming_rewind(in);
	cr_expect_eq(incoming_outstanding(in), 0);
	cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
	expect_published(&r, in);
	rig_close(&r);
}

Test(incoming, more_bytes_than_the_list_says_are_refused)
{
	struct rig r;
	rig_open(&r);
	struct incoming *in = begin(&r);
	cr_expect_eq(incoming_put(in, 1, 0, "{} more", 7, &why), -EBADMSG, "%s", why.text);
	cr_expect_eq(incoming_put(in, 1, 0, "{", 1, &why), 0, "%s", why.text);
	cr_expect_eq(incoming_put(in, 1, 1, "}}", 2, &why), -EBADMSG, "%s", why.text);
	incoming_close(in);
	rig_close(&r);
}

/* A file with a wrong checksum is fetched once more; then the fetch fails. */
Test(incoming, a_wrong_checksum_costs_a_file_once)
{
	struct rig r;
	rig_open(&r);
	struct incoming *in = begin(&r);
	cr_expect_eq(serve(&r, in, 1, true), 0);
	cr_expect_eq(incoming_done(in), 0);
	cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
	cr_expect_eq(r.sent, r.m.bytes + 2); /* the two bytes of config.json are sent twice */
	expect_published(&r, in);
	rig_close(&r);
	rig_open(&r);
	in = begin(&r);
	cr_expect_eq(serve(&r, in, 1000, true), -EBADMSG);
	cr_expect(strstr(why.text, "config.json has a wrong checksum, twice"), "%s", why.text);
	incoming_close(in);
	rig_close(&r);
}

static char *staging_of(const struct rig *r)
{
	char fingerprint[MANIFEST_FINGERPRINT];
	manifest_fingerprint(&r->m, fingerprint);
	return xasprintf("%s/" CACHED_FETCHED "/demo/.%s.part", r->root, fingerprint);
}

/* The files of an earlier run were damaged since, as by a power failure. */
Test(incoming, a_damaged_part_is_found_at_its_end)
{
	struct rig r;
	rig_open(&r);
	struct incoming *in = begin(&r);
	cr_expect_eq(serve(&r, in, 3, false), 0);
	incoming_close(in);
	char *staging = staging_of(&r);
	flip(staging, ".model.safetensors.part", 100);
	flip(staging, "config.json", 1);
	in = begin(&r);
	cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
	expect_published(&r, in);
	free(staging);
	rig_close(&r);
}

/* A link in the place of a file or folder does not lead outside of the cache. */
/* The part is from another program, or from a longer version of the file. */
Test(incoming, a_part_that_is_too_long_begins_again)
{
	struct rig r;
	rig_open(&r);
	struct incoming *in = begin(&r);
	incoming_close(in);
	char *staging = staging_of(&r), *bytes = noise(WEIGHTS + 1, 2);
	put_bytes(staging, ".model.safetensors.part", bytes, WEIGHTS + 1);
	in = begin(&r);
	cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
	expect_published(&r, in);
	free(staging);
	free(bytes);
	rig_close(&r);
}

/* Free space of the disk, in blocks of 1 MiB; -1: the real value. */
static int64_t free_mib = -1;

int statvfs(const char *path, struct statvfs *v)
{
	(void)path;
	*v = (struct statvfs){.f_bavail = free_mib < 0 ? 1 << 20 : (fsblkcnt_t)free_mib, .f_frsize = 1 << 20};
	return 0;
}

Test(incoming, a_model_larger_than_the_disk_is_refused)
{
	struct rig r;
	struct incoming *in;
	rig_open(&r);
	const int64_t needs = (r.m.bytes >> 20) + 1 + 16; /* including the reserve that stays free */
	free_mib = needs - 2;
	cr_expect_eq(incoming_open(&in, r.root, &r.m, &r.sums, &why), -ENOSPC);
	cr_expect(strstr(why.text, "quern rm, or --cache on another disk"), "%s", why.text);
	free_mib = needs;
	in = begin(&r);
	cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
	free_mib = 0; /* no file is missing */
	incoming_close(in);
	in = begin(&r);
	expect_published(&r, in);
	rig_close(&r);
}

Test(incoming, follows_no_links)
{
	struct rig r;
	rig_open(&r);
	struct incoming *in = begin(&r);
	incoming_close(in);
	char *staging = staging_of(&r), *victim = file_join(r.root, "victim"),
	     *part = file_join(staging, ".model.safetensors.part"), *folder = file_join(staging, "1_Pooling");
	put(r.root, "victim", "precious");
	unlink(part);
	cr_assert_eq(symlink(victim, part), 0);
	in = begin(&r);
	cr_expect_lt(serve(&r, in, 1000, false), 0);
	incoming_close(in);
	unlink(part);
	char *command = xasprintf("rm -rf '%s' && ln -s /tmp '%s'", folder, folder);
	cr_assert_eq(system(command), 0);
	struct incoming *none;
	cr_expect_eq(incoming_open(&none, r.root, &r.m, &r.sums, &why), -ENOTDIR, "%s", why.text);
	char *text;
	size_t n;
	cr_assert_eq(file_read(victim, 100, &text, &n, &why), 0);
	cr_expect_str_eq(text, "precious");
	free(text);
	free(command);
	free(staging);
	free(victim);
	free(part);
	free(folder);
	rig_close(&r);
}

Test(incoming, one_worker_of_a_host_at_a_time)
{
	struct rig r;
	struct incoming *second;
	rig_open(&r);
	struct incoming *in = begin(&r);
	cr_expect_eq(incoming_open(&second, r.root, &r.m, &r.sums, &why), -EBUSY);
	incoming_close(in);
	in = begin(&r);
	incoming_close(in);
	rig_close(&r);
}

/* Only the damaged file of an entry is fetched again. */
Test(incoming, a_damaged_entry_is_replaced)
{
	struct rig r;
	char path[PATH_MAX];
	rig_open(&r);
	struct incoming *in = begin(&r);
	cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
	cr_assert_eq(incoming_publish(in, path, &why), 0);
	incoming_close(in);
	flip(path, "modules.json", 3);
	char found[PATH_MAX];
	cr_expect_eq(cached_find(r.root, &r.m, &r.sums, found, &why), -ENOENT);
	cr_expect(strstr(why.text, "modules.json has another checksum"), "%s", why.text);
	r.sent = 0;
	in = begin(&r);
	cr_expect_eq(serve(&r, in, 1000, false), 0, "%s", why.text);
	expect_published(&r, in);
	cr_expect_eq(r.sent, (int64_t)strlen("[{\"path\": \"1_Pooling\"}]"));
	rig_close(&r);
}

/* ---- fingerprints and records ---- */

/* The expected value is computed by tests/golden/make_fingerprint_golden.py. */
Test(fingerprint, is_that_of_another_implementation)
{
	char out[MANIFEST_FINGERPRINT], *dir = new_dir();
	struct store_files l;
	struct manifest m;
	const struct checksums none = {0};
	put(dir, "config.json", "{\"a\": 1}\n");
	put(dir, "model.safetensors", "weights");
	cr_assert_eq(store_files_list(dir, &l, &why), 0, "%s", why.text);
	cr_assert_eq(manifest_make(&m, &l, "x", &none, false, &why), 0, "%s", why.text);
	manifest_fingerprint(&m, out);
	cr_expect_str_eq(out, "489d318e9febe1472adf70b89a2f897132b81d46bb816ccaa0cf4c00180133dc");
	manifest_fini(&m);
	store_files_fini(&l);
	remove_dir(dir);
}

static void put_record(const struct checksums *c, const char *dir, const char *name, uint8_t first)
{
	const uint8_t false_digest[MANIFEST_DIGEST] = {first};
	char *path = file_join(dir, name);
	checksum_record(c, path, false_digest);
	free(path);
}

/* A record is valid until stat(2) shows a change of the file. A file that was just changed gets no record. */
Test(fingerprint, records_are_of_unchanged_files)
{
	char *dir = new_dir(), *records = file_join(dir, "records");
	const struct checksums c = {.records = records};
	uint8_t out[MANIFEST_DIGEST];
	put(dir, "f", "contents");
	cr_expect_eq(checksum_file(&c, dir, "f", out, &why), 0, "%s", why.text);
	cr_expect(!checksum_known(&c, dir, "f", out), "the file is young");
	put_record(&c, dir, "f", 42);
	cr_expect(checksum_known(&c, dir, "f", out));
	cr_expect_eq(out[0], 42);
	cr_expect_eq(checksum_file(&c, dir, "f", out, &why), 0);
	cr_expect_eq(out[0], 42, "it was not read again");
	put(dir, "f", "Contents");
	cr_expect(!checksum_known(&c, dir, "f", out));
	cr_expect_eq(checksum_file(&c, dir, "f", out, &why), 0);
	cr_expect_neq(out[0], 42);
	cr_expect_eq(checksum_file(&c, dir, "absent", out, &why), -ENOENT);
	free(records);
	remove_dir(dir);
}

/* cp -p, touch -r and similar commands set the modification time. */
Test(fingerprint, records_see_through_a_restored_time)
{
	char *dir = new_dir(), *records = file_join(dir, "records"), *path = file_join(dir, "f");
	const struct checksums c = {.records = records};
	uint8_t out[MANIFEST_DIGEST];
	struct stat st;
	put(dir, "f", "contents");
	put_record(&c, dir, "f", 42);
	cr_assert_eq(stat(path, &st), 0);
	const struct timespec times[] = {st.st_atim, st.st_mtim};
	usleep(20 * 1000); /* beyond the clock's granularity */
	put(dir, "f", "Contents");
	cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	cr_expect(!checksum_known(&c, dir, "f", out));
	free(path);
	free(records);
	remove_dir(dir);
}

/* Replace `from` in the only record. */
static void edit_record(const char *path, const char *from, const char *to)
{
	char *command = xasprintf("sed -i 's/%s/%s/' '%s'", from, to, path);
	cr_assert_eq(system(command), 0);
	free(command);
}

Test(fingerprint, a_record_is_of_the_size_and_whole)
{
	char *dir = new_dir(), *records = file_join(dir, "records"), *path = file_join(dir, "f");
	const struct checksums c = {.records = records};
	uint8_t out[MANIFEST_DIGEST];
	struct stat st;
	put(dir, "f", "contents");
	put_record(&c, dir, "f", 42);
	cr_assert_eq(stat(path, &st), 0);
	char *record = xasprintf("%s/%llx-%llx", records, (unsigned long long)st.st_dev,
				 (unsigned long long)st.st_ino);
	cr_expect(checksum_known(&c, dir, "f", out));
	edit_record(record, "^8 ", "9 ");
	cr_expect(!checksum_known(&c, dir, "f", out));
	edit_record(record, "^9 ", "8 ");
	cr_expect(checksum_known(&c, dir, "f", out));
	edit_record(record, "$", "\\n0");
	cr_expect(!checksum_known(&c, dir, "f", out));
	free(record);
	free(path);
	free(records);
	remove_dir(dir);
}

Test(cached, the_root_is_an_absolute_path)
{
	char cwd[PATH_MAX];
	const struct {
		const char *models, *cache, *home, *root;
	} of[] = {{"/m", "/c", "/h", "/m"},
		  {"", "/c", "/h", "/c/quern/models"},
		  {NULL, "c", "/h", "/h/.cache/quern/models"},
		  {NULL, NULL, "/h", "/h/.cache/quern/models"},
		  {NULL, NULL, "", NULL},
		  {NULL, "c", NULL, NULL}};
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		char *root = cached_root(of[i].models, of[i].cache, of[i].home);
		cr_expect(of[i].root ? root && strcmp(root, of[i].root) == 0 : !root, "%zu: %s", i, root);
		free(root);
	}
	cr_assert(getcwd(cwd, sizeof cwd));
	char *root = cached_root("models", NULL, NULL), *want = file_join(cwd, "models");
	cr_expect_str_eq(root, want);
	free(root);
	free(want);
}

Test(fingerprint, files_replaced_since_the_list_make_no_manifest)
{
	struct rig r;
	struct manifest m;
	rig_open(&r);
	flip(r.model, "model.safetensors", 99);
	cr_expect_eq(manifest_make(&m, &r.files, "x", &r.sums, false, &why), -EAGAIN);
	cr_expect(strstr(why.text, "changed or replaced"), "%s", why.text);
	rig_close(&r);
}

/* An entry with more files than the list is read differently, so it is not the same model. */
Test(cached, an_entry_with_more_files_is_not_taken)
{
	struct rig r;
	char path[PATH_MAX];
	rig_open(&r);
	char *entry = file_join(r.root, "org/name/0123456789"),
	     *command = xasprintf("mkdir -p '%s' && cp -r '%s'/. '%s'", entry, r.model, entry);
	cr_assert_eq(system(command), 0);
	cr_expect_eq(cached_find(r.root, &r.m, &r.sums, path, &why), 0, "%s", why.text);
	put(entry, "tokenizer.json", "{}"); /* a file that no worker reads */
	cr_expect_eq(cached_find(r.root, &r.m, &r.sums, path, &why), 0, "%s", why.text);
	put(entry, "generation_config.json", "{}");
	cr_expect_eq(cached_find(r.root, &r.m, &r.sums, path, &why), -ENOENT);
	free(entry);
	free(command);
	rig_close(&r);
}

/* The listed names agree; the entry has a further file after them. */
Test(cached, an_entry_with_a_file_behind_all_others_is_not_taken)
{
	struct store_files files;
	struct manifest m;
	const struct checksums c = {0};
	char path[PATH_MAX], *root = new_dir(), *entry = file_join(root, "org/name/0123456789");
	put(entry, "config.json", "{}");
	put(entry, "model.safetensors", "weights");
	cr_assert_eq(store_files_list(entry, &files, &why), 0, "%s", why.text);
	cr_assert_eq(manifest_make(&m, &files, "demo", &c, false, &why), 0, "%s", why.text);
	cr_expect_eq(cached_find(root, &m, &c, path, &why), 0, "%s", why.text);
	put(entry, "modules.json", "[]");
	cr_expect_eq(cached_find(root, &m, &c, path, &why), -ENOENT);
	manifest_fini(&m);
	store_files_fini(&files);
	free(entry);
	remove_dir(root);
}
