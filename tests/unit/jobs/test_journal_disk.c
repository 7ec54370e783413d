/* A journal on a disk of 16 MiB: uploads and other programs leave enough space for ends and deletes. */
#include "base/alloc.h"
#include "base/clock.h"
#include "controller/jobs/file_store.h"
#include "controller/jobs/journal.h"
#include "tests/small_disk.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MIB = 1 << 20, DISK_MIB = 16, FILES_MAX = 64, LONG_MS = 60000 };

static struct why why;
static char dir[64], path[128];
static struct journal *journal;
static struct file_store *files;

static void open_all(void)
{
	journal = NULL;
	files = NULL;
	static const char *const tables[] = {file_store_schema, NULL};
	struct journal_config cfg = {.path = path, .model = "m", .schemas = tables};
	cr_assert_eq(journal_open(&cfg, &journal, &why), 0, "%s", why.text);
	cr_assert_eq(file_store_open(journal, NULL, &files, &why), 0, "%s", why.text);
}

static void close_all(void)
{
	journal_end(journal);
	file_store_close(files);
	journal_close(journal);
}

static void begin(void)
{
	snprintf(dir, sizeof dir, "/tmp/quern-small-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	int rc = small_disk_mount(dir, DISK_MIB);
	if (rc) {
		rmdir(dir);
		cr_skip_test("a file system cannot be mounted here: %s", strerror(-rc));
	}
	snprintf(path, sizeof path, "%s/j", dir);
	open_all();
}

static void end(void)
{
	if (!path[0])
		return;
	close_all();
	umount2(dir, MNT_DETACH);
	rmdir(dir);
}

TestSuite(small_disk, .init = begin, .fini = end, .timeout = 300);

/* --- blocking calls --- */

struct call {
	atomic_bool done;
	int rc;
	char why[512];
};

static void on_done(void *user, int rc, const char *reason)
{
	struct call *c = user;
	c->rc = rc;
	snprintf(c->why, sizeof c->why, "%s", reason);
	atomic_store(&c->done, true);
}

static int wait_for(struct call *c)
{
	for (int i = 0; i < LONG_MS / 5 && !atomic_load(&c->done); i++)
		usleep(5000);
	cr_assert(atomic_load(&c->done), "the journal does not answer");
	err_why(&why, 0, "%s", c->why);
	return c->rc;
}

static int upload(char id[FILE_ID_SIZE], size_t bytes)
{
	struct file_info info = {.created_at = 1};
	struct call c = {0};
	char *p = xmalloc(bytes);
	memset(p, 'x', bytes);
	file_store_id(info.id, "file-");
	snprintf(id, FILE_ID_SIZE, "%s", info.id);
	struct file_writer *w = file_writer_new(files, &info, NULL);
	int rc = file_writer_put(w, p, bytes);
	free(p);
	if (rc) {
		file_writer_abort(&w);
		return rc;
	}
	file_writer_commit(&w, NULL, on_done, &c);
	return wait_for(&c);
}

static int delete (const char *id)
{
	struct call c = {0};
	file_store_delete(files, "", id, on_done, &c);
	return wait_for(&c);
}

static char ids[FILES_MAX][FILE_ID_SIZE];

/* Upload files of 1 MiB until one is refused; return the number accepted. */
static int fill(void)
{
	int n = 0, rc = 0;
	while (n < FILES_MAX && !(rc = upload(ids[n], MIB)))
		n++;
	cr_expect_eq(rc, -EDQUOT, "%d %s", rc, why.text);
	return n;
}

static bool becomes(bool (*is)(void))
{
	for (int i = 0; i < LONG_MS / 10 && !is(); i++)
		usleep(10000);
	return is();
}

static bool healthy(void)
{
	return journal_health(journal, &why);
}

static bool takes_files(void)
{
	return journal_room(journal, JOURNAL_FILE, MIB, &why) == 0;
}

/* Return whether the disk has the space again, which needs the journal's file to be truncated. */
static bool room_is_back(void)
{
	return small_disk_free(dir) >= 14 * MIB;
}

static bool has_ballast(void)
{
	char name[160];
	snprintf(name, sizeof name, "%s-ballast", path);
	return access(name, F_OK) == 0;
}

/* --- an end, required even on a full disk --- */

enum { END_BYTES = 4096 };

struct end_op {
	struct journal_op op;
	struct call call;
};

static int end_run(struct journal_op *op, struct journal_db *db)
{
	(void)op;
	return journal_exec(db, "INSERT INTO meta VALUES(hex(randomblob(8)), randomblob(4096))");
}

static void end_done(struct journal_op *op, int rc, const char *reason)
{
	on_done(&((struct end_op *)op)->call, rc, reason);
}

static struct end_op ends[4];

static struct call *put_end(struct end_op *e)
{
	*e = (struct end_op){.op = {.run = end_run, .done = end_done, .required = true, .bytes = END_BYTES}};
	journal_put(journal, &e->op);
	return &e->call;
}

/* --- */

Test(small_disk, uploads_stop_at_the_margin_and_deletes_make_room)
{
	int n = fill();
	cr_expect_geq(n, 8, "only %d of 16 MiB were taken", n);
	/* Files leave an eighth free, 2 MiB, not counting SQLite's own pages. */
	int64_t left = small_disk_free(dir);
	cr_expect_geq(left, 2 * MIB - MIB / 4, "files left %lld bytes", (long long)left);
	cr_expect(healthy(), "%s", why.text);
	cr_expect_eq(journal_room(journal, JOURNAL_FILE, MIB, &why), -EDQUOT);
	cr_expect(strstr(why.text, "--file-margin") && strstr(why.text, path), "%s", why.text);
	cr_expect_eq(journal_room(journal, JOURNAL_JOB, 4096, &why), 0, "%s", why.text);
	cr_expect(has_ballast(), "uploads took the ballast");
	cr_expect_eq(wait_for(put_end(&ends[0])), 0, "%s", why.text);
	for (int i = 0; i < n; i++)
		cr_expect_eq(delete (ids[i]), 0, "%s", why.text);
	cr_expect(becomes(room_is_back), "the disk has %lld bytes free", (long long)small_disk_free(dir));
	int again = fill();
	cr_expect_geq(again, n - 1, "deleted files hold their space: %d after %d", again, n);
}

Test(small_disk, disk_filled_by_others_takes_ends_and_deletes)
{
	int n = fill();
	small_disk_fill(dir, "others", 0);
	cr_expect_eq(journal_room(journal, JOURNAL_JOB, 1, &why), -EDQUOT);
	cr_expect(strstr(why.text, "--job-margin"), "%s", why.text);
	cr_expect_eq(wait_for(put_end(&ends[0])), 0, "%s", why.text);
	cr_expect_eq(delete (ids[0]), 0, "%s", why.text);
	cr_expect_eq(wait_for(put_end(&ends[1])), 0, "%s", why.text);
	cr_expect(healthy(), "%s", why.text);
	for (int i = 1; i < n; i++)
		cr_expect_eq(delete (ids[i]), 0, "%s", why.text);
	cr_expect(becomes(has_ballast), "the ballast is not made again");
	cr_expect(becomes(takes_files), "%s", why.text);
}

/* After a start, the -wal file has no blocks yet that could be reused. */
static void restart_and_fill(void)
{
	close_all();
	open_all();
	cr_assert(has_ballast());
	small_disk_fill(dir, "others", 0);
}

Test(small_disk, disk_filled_by_others_after_a_start_takes_ends_and_deletes)
{
	int n = fill();
	restart_and_fill();
	cr_expect_eq(delete (ids[0]), 0, "%s", why.text);
	cr_expect(healthy(), "%s", why.text);
	cr_expect_eq(wait_for(put_end(&ends[0])), 0, "%s", why.text);
	for (int i = 1; i < n; i++)
		cr_expect_eq(delete (ids[i]), 0, "%s", why.text);
}

/* Ends fill the remaining space until they wait; a delete frees space for them. */
Test(small_disk, delete_goes_before_what_waits_for_room)
{
	int n = fill();
	restart_and_fill();
	struct end_op *many = xcalloc(4000, sizeof *many);
	int m = 0;
	while (m < 4000 && healthy()) {
		put_end(&many[m++]);
		usleep(1000);
	}
	cr_assert_lt(m, 4000, "the disk was never full");
	cr_expect_eq(delete (ids[0]), 0, "%s", why.text);
	small_disk_empty(dir, "others");
	for (int i = 0; i < m; i++)
		cr_expect_eq(wait_for(&many[i].call), 0, "%s", why.text);
	for (int i = 1; i < n; i++)
		cr_expect_eq(delete (ids[i]), 0, "%s", why.text);
	free(many);
}

Test(small_disk, restart_on_a_full_disk)
{
	int n = fill();
	small_disk_fill(dir, "others", 0);
	close_all();
	small_disk_fill(dir, "others", 0);
	open_all();
	for (int i = 0; i < n; i++)
		cr_expect_eq(delete (ids[i]), 0, "%s", why.text);
	cr_expect(becomes(takes_files), "%s", why.text);
}

/* Without ballast and without space for SQLite's index of the -wal file, the journal opens when there is
 * space. */
Test(small_disk, start_on_a_full_disk_opens_the_journal_later)
{
	char name[160];
	struct file_info f;
	cr_assert_eq(upload(ids[0], MIB), 0, "%s", why.text);
	close_all();
	snprintf(name, sizeof name, "%s-ballast", path);
	unlink(name);
	small_disk_fill(dir, "others", 0);
	open_all();
	cr_assert(!healthy());
	cr_expect(strstr(why.text, path), "%s", why.text);
	cr_expect(!file_store_ready(files, &why));
	cr_expect_eq(journal_room(journal, JOURNAL_JOB, 1, &why), -EAGAIN);
	cr_expect_neq(upload(ids[1], 1), 0);
	struct call *must = put_end(&ends[0]);
	small_disk_empty(dir, "others");
	cr_expect_eq(wait_for(must), 0, "%s", why.text);
	cr_expect(becomes(healthy), "%s", why.text);
	cr_expect(file_store_ready(files, &why), "%s", why.text);
	cr_expect_eq(file_store_get(files, "", ids[0], &f), 0);
	cr_expect_eq(upload(ids[2], MIB), 0, "%s", why.text);
	cr_expect(becomes(has_ballast), "no ballast");
}

Test(small_disk, start_on_a_read_only_disk_opens_the_journal_later)
{
	struct file_info f;
	cr_assert_eq(upload(ids[0], MIB), 0, "%s", why.text);
	close_all();
	cr_assert_eq(small_disk_read_only(dir, true), 0);
	open_all();
	cr_assert(!healthy());
	cr_expect(strstr(why.text, path) && strstr(why.text, "Read-only"), "%s", why.text);
	cr_expect(!file_store_ready(files, &why));
	cr_assert_eq(small_disk_read_only(dir, false), 0);
	cr_expect(becomes(healthy), "%s", why.text);
	cr_expect(file_store_ready(files, &why), "%s", why.text);
	cr_expect_eq(file_store_get(files, "", ids[0], &f), 0);
}

/* Operations of a journal that was never opened end with it. */
Test(small_disk, end_before_the_journal_could_be_opened)
{
	close_all();
	cr_assert_eq(small_disk_read_only(dir, true), 0);
	open_all();
	struct call *must = put_end(&ends[0]);
	journal_end(journal);
	cr_expect_eq(wait_for(must), -EIO);
	cr_assert_eq(small_disk_read_only(dir, false), 0);
}

/* A part is refused within the transaction of its file's row. */
Test(small_disk, file_without_all_its_parts_does_not_exist)
{
	char id[FILE_ID_SIZE];
	struct file_info f;
	for (int i = 0; i < FILES_MAX && upload(ids[i], MIB) == 0; i++)
		;
	for (int i = 0; i < 200; i++) {
		int rc = upload(id, FILE_PART / 2);
		if (!rc)
			continue;
		cr_expect_eq(rc, -EDQUOT);
		cr_expect_eq(file_store_get(files, "", id, &f), -ENOENT);
		return;
	}
	cr_assert_fail("no part was ever refused");
}
