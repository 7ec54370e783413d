/* The journal's file and thread: when an operation is on the disk, and behaviour on a failing disk. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "controller/jobs/journal.h"
#include "tests/disk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct why why;
static char dir[64], path[128];

static void make_dir(void)
{
	snprintf(dir, sizeof dir, "/tmp/quern-journal-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
	disk_install();
}

static void remove_dir(void)
{
	static const char *const names[] = {"j", "j-wal", "j-shm", "j-lock", "j-ballast",
					    "k", "k-wal", "k-shm", "k-lock", "k-ballast"};
	char name[128];
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s/%s", dir, names[i]);
		unlink(name);
	}
	rmdir(dir);
}

TestSuite(journal, .init = make_dir, .fini = remove_dir, .timeout = 60);

static struct journal *open_as(const char *file, const char *model)
{
	struct journal *j = NULL;
	why.text[0] = 0;
	struct journal_config cfg = {.path = file, .model = model};
	journal_open(&cfg, &j, &why);
	return j;
}

/* --- an operation that writes one row --- */

struct row {
	struct journal_op op;
	int n;
	size_t size;
	int rc;
	char why[256];
	bool done;
	size_t unsynced; /* unsynced bytes when the operation was done */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static bool gate_open = true;

static int row_run(struct journal_op *op, struct journal_db *db)
{
	struct row *r = (struct row *)op;
	char name[32];
	snprintf(name, sizeof name, "row %04d", r->n);
	return journal_run(db, "REPLACE INTO meta VALUES(?, zeroblob(?))",
			   JOURNAL_VALUES(journal_text(name), journal_int((int64_t)r->size)));
}

static int gate_run(struct journal_op *op, struct journal_db *db)
{
	(void)op;
	(void)db;
	pthread_mutex_lock(&lock);
	while (!gate_open)
		pthread_cond_wait(&done, &lock);
	pthread_mutex_unlock(&lock);
	return SQLITE_OK;
}

static int bad_run(struct journal_op *op, struct journal_db *db)
{
	row_run(op, db);
	return journal_exec(db, "INSERT INTO meta VALUES('model', 'twice')");
}

/* Fails within a prepared statement if n is odd. */
static int odd_run(struct journal_op *op, struct journal_db *db)
{
	struct row *r = (struct row *)op;
	char name[32];
	row_run(op, db);
	snprintf(name, sizeof name, r->n % 2 ? "model" : "row %04d, once more", r->n);
	return journal_run(db, "INSERT INTO meta VALUES(?, ?)",
			   JOURNAL_VALUES(journal_text(name), journal_text(NULL)));
}

/* After some file errors SQLite leaves the transaction open, unlike after a full disk. */
static int damaged_run(struct journal_op *op, struct journal_db *db)
{
	row_run(op, db);
	return SQLITE_CORRUPT;
}

static int delete_run(struct journal_op *op, struct journal_db *db)
{
	(void)op;
	return journal_exec(db, "DELETE FROM meta WHERE name LIKE 'row %'");
}

static void row_done(struct journal_op *op, int rc, const char *text)
{
	struct row *r = (struct row *)op;
	pthread_mutex_lock(&lock);
	r->rc = rc;
	snprintf(r->why, sizeof r->why, "%s", text);
	r->unsynced = atomic_load(&disk.unsynced);
	r->done = true;
	pthread_cond_broadcast(&done);
	pthread_mutex_unlock(&lock);
}

static struct row *put(struct journal *j, int n, bool required,
		       int (*run)(struct journal_op *, struct journal_db *))
{
	struct row *r = xcalloc(1, sizeof *r);
	r->n = n;
	r->size = 100;
	r->op.run = run;
	r->op.done = row_done;
	r->op.required = required;
	journal_put(j, &r->op);
	return r;
}

/* Wait for *r, free it, and return its code. */
static int wait_for(struct row *r)
{
	pthread_mutex_lock(&lock);
	while (!r->done)
		pthread_cond_wait(&done, &lock);
	pthread_mutex_unlock(&lock);
	int rc = r->rc;
	err_why(&why, 0, "%s", r->why);
	free(r);
	return rc;
}

static void write_rows(struct journal *j, int n)
{
	for (int i = 0; i < n; i++)
		wait_for(put(j, i, true, row_run));
}

static bool is_done(struct row *r)
{
	pthread_mutex_lock(&lock);
	bool is = r->done;
	pthread_mutex_unlock(&lock);
	return is;
}

static void set_gate(bool open)
{
	pthread_mutex_lock(&lock);
	gate_open = open;
	pthread_cond_broadcast(&done);
	pthread_mutex_unlock(&lock);
}

static int64_t count(struct journal *j, const char *sql)
{
	struct journal_db *db;
	cr_assert_eq(journal_reader(j, &db, &why), 0, "%s", why.text);
	sqlite3_stmt *s = journal_query(db, sql, NULL, 0);
	int64_t n = s && sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : -1;
	journal_reader_close(db);
	return n;
}

static const char n_rows[] = "SELECT count(*) FROM meta WHERE name LIKE 'row %'";

/* --- durability --- */

Test(journal, operation_is_done_when_it_is_synced)
{
	struct journal *j = open_as(path, "m");
	cr_assert_not_null(j, "%s", why.text);
	for (int i = 0; i < 20; i++) {
		size_t syncs = atomic_load(&disk.n_syncs);
		struct row *r = put(j, i, false, row_run);
		pthread_mutex_lock(&lock);
		while (!r->done)
			pthread_cond_wait(&done, &lock);
		pthread_mutex_unlock(&lock);
		cr_expect_eq(r->unsynced, 0, "done with %zu bytes not synced", r->unsynced);
		cr_expect_gt(atomic_load(&disk.n_syncs), syncs, "done without a sync");
		cr_expect_eq(wait_for(r), 0, "%s", why.text);
	}
	journal_close(j);
}

Test(journal, done_operations_survive_a_crash)
{
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		struct journal *j = open_as(path, "m");
		for (int i = 0; i < 30; i++)
			wait_for(put(j, i, false, row_run));
		kill(getpid(), SIGKILL);
	}
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	struct journal *j = open_as(path, "m");
	cr_assert_not_null(j, "%s", why.text);
	cr_expect_eq(count(j, n_rows), 30);
	journal_close(j);
}

Test(journal, waiting_operations_are_one_transaction)
{
	struct journal *j = open_as(path, "m");
	struct journal_stats before, after;
	struct row *rows[50];
	set_gate(false);
	struct row *first = put(j, 0, false, gate_run);
	journal_stats(j, &before);
	for (int i = 0; i < 50; i++)
		rows[i] = put(j, i, false, row_run);
	set_gate(true);
	wait_for(first);
	for (int i = 0; i < 50; i++)
		cr_expect_eq(wait_for(rows[i]), 0, "%s", why.text);
	journal_end(j);
	journal_stats(j, &after);
	/* One more if the gate was committed alone. */
	cr_expect_leq(after.n_commits - before.n_commits, 2);
	cr_expect_eq(after.n_ops - before.n_ops, 51);
	cr_expect_eq(count(j, n_rows), 50);
	journal_close(j);
}

Test(journal, failed_operation_is_undone_alone)
{
	struct journal *j = open_as(path, "m");
	set_gate(false);
	struct row *gate = put(j, 0, false, gate_run), *a = put(j, 1, false, row_run),
		   *bad = put(j, 2, true, bad_run), *b = put(j, 3, false, row_run);
	set_gate(true);
	wait_for(gate);
	cr_expect_eq(wait_for(a), 0);
	cr_expect_eq(wait_for(bad), -EIO);
	cr_expect_eq(wait_for(b), 0);
	cr_expect_eq(count(j, n_rows), 2);
	cr_expect(journal_health(j, &why));
	journal_close(j);
}

/* The statement is prepared once, and a failure must not affect its next use. */
Test(journal, failed_statement_fails_its_operation_alone)
{
	struct journal *j = open_as(path, "m");
	set_gate(false);
	struct row *gate = put(j, 0, false, gate_run), *bad = put(j, 1, true, odd_run),
		   *good = put(j, 2, false, odd_run), *again = put(j, 3, true, odd_run);
	set_gate(true);
	wait_for(gate);
	cr_expect_eq(wait_for(bad), -EIO);
	cr_expect_eq(wait_for(good), 0);
	cr_expect_eq(wait_for(again), -EIO);
	cr_expect_eq(count(j, n_rows), 2);
	cr_expect(journal_health(j, &why));
	journal_close(j);
}

Test(journal, failed_transaction_is_undone_and_the_next_one_begins)
{
	struct journal *j = open_as(path, "m");
	cr_expect_eq(wait_for(put(j, 1, false, damaged_run)), -EBADMSG);
	cr_expect_not(journal_health(j, &why));
	cr_expect_eq(wait_for(put(j, 2, true, row_run)), 0);
	cr_expect(journal_health(j, &why));
	cr_expect_eq(count(j, n_rows), 1);
	journal_close(j);
}

Test(journal, queue_is_bounded)
{
	struct journal *j = open_as(path, "m");
	set_gate(false);
	struct row *gate = put(j, 0, false, gate_run);
	struct row *large = xcalloc(1, sizeof *large);
	large->op = (struct journal_op){.run = row_run, .done = row_done, .bytes = (size_t)1 << 40};
	journal_put(j, &large->op);
	cr_expect_eq(wait_for(large), -EAGAIN);
	cr_expect(strstr(why.text, "too much"), "%s", why.text);
	set_gate(true);
	wait_for(gate);
	journal_close(j);
}

/* --- a failing disk --- */

static void expect_recovers(struct journal *j, struct row *must)
{
	cr_expect(!is_done(must));
	cr_expect(!journal_health(j, &why));
	struct row *refused = put(j, 3, false, row_run);
	cr_expect_eq(wait_for(refused), -EAGAIN);
}

Test(journal, full_disk_refuses_and_keeps_required_operations)
{
	struct journal *j = open_as(path, "m");
	cr_expect_eq(wait_for(put(j, 0, false, row_run)), 0);
	atomic_store(&disk.fail_write, SQLITE_FULL);
	struct row *must = put(j, 1, true, row_run);
	/* Either in the same transaction, or refused at once. */
	int rc = wait_for(put(j, 2, false, row_run));
	cr_expect(rc == -ENOSPC || rc == -EAGAIN, "%d", rc);
	cr_expect(strstr(why.text, "the disk is full") && strstr(why.text, path), "%s", why.text);
	expect_recovers(j, must);
	atomic_store(&disk.fail_write, 0);
	cr_expect_eq(wait_for(must), 0, "%s", why.text);
	cr_expect(journal_health(j, &why));
	cr_expect_eq(wait_for(put(j, 4, false, row_run)), 0, "%s", why.text);
	cr_expect_eq(count(j, n_rows), 3);
	journal_close(j);
}

Test(journal, recovered_disk_is_detected_without_operations)
{
	struct journal *j = open_as(path, "m");
	atomic_store(&disk.fail_write, SQLITE_FULL);
	cr_expect_eq(wait_for(put(j, 0, false, row_run)), -ENOSPC);
	atomic_store(&disk.fail_write, 0);
	while (!journal_health(j, &why))
		usleep(10000);
	cr_expect_eq(wait_for(put(j, 1, false, row_run)), 0);
	journal_close(j);
}

Test(journal, failed_sync_is_an_error)
{
	struct journal *j = open_as(path, "m");
	wait_for(put(j, 0, false, row_run));
	atomic_store(&disk.fail_sync, SQLITE_IOERR_FSYNC);
	cr_expect_eq(wait_for(put(j, 1, false, row_run)), -EIO);
	cr_expect(strstr(why.text, "cannot be written"), "%s", why.text);
	atomic_store(&disk.fail_sync, 0);
	while (!journal_health(j, &why))
		usleep(10000);
	cr_expect_eq(count(j, n_rows), 1);
	journal_close(j);
}

Test(journal, file_size_limit_is_a_full_disk)
{
	struct journal *j = open_as(path, "m");
	wait_for(put(j, 0, false, row_run));
	struct rlimit old, small = {64 << 10, RLIM_INFINITY};
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_FSIZE, &small);
	struct row *large = xcalloc(1, sizeof *large);
	large->op = (struct journal_op){.run = row_run, .done = row_done};
	large->n = 1;
	large->size = 256 << 10;
	journal_put(j, &large->op);
	int rc = wait_for(large);
	setrlimit(RLIMIT_FSIZE, &old);
	cr_expect_eq(rc, -ENOSPC, "%d %s", rc, why.text);
	while (!journal_health(j, &why))
		usleep(10000);
	cr_expect_eq(wait_for(put(j, 2, false, row_run)), 0, "%s", why.text);
	cr_expect_eq(count(j, n_rows), 2);
	journal_close(j);
}

Test(journal, close_with_a_full_disk_ends_every_operation)
{
	struct journal *j = open_as(path, "m");
	atomic_store(&disk.fail_write, SQLITE_FULL);
	struct row *must = put(j, 1, true, row_run);
	journal_close(j);
	cr_expect_eq(wait_for(must), -ENOSPC);
}

/* Every operation is done before the service frees its tables, even on a failing disk; nothing is written
 * after a gap. */
Test(journal, end_writes_nothing_after_a_lost_operation)
{
	struct journal *j = open_as(path, "m");
	cr_expect_eq(wait_for(put(j, 0, true, row_run)), 0);
	atomic_store(&disk.fail_write, SQLITE_FULL);
	struct row *must = put(j, 1, true, row_run);
	wait_for(put(j, 2, false, row_run));
	cr_expect(!is_done(must));
	journal_end(j);
	cr_expect(is_done(must));
	cr_expect_eq(wait_for(must), -ENOSPC);
	atomic_store(&disk.fail_write, 0);
	cr_expect_eq(wait_for(put(j, 3, true, row_run)), -EIO);
	cr_expect(strstr(why.text, "the disk is full"), "%s", why.text);
	journal_end(j);
	journal_close(j);
	j = open_as(path, "m");
	cr_expect_eq(count(j, n_rows), 1);
	journal_close(j);
}

Test(journal, end_does_not_stop_a_working_disk)
{
	struct journal *j = open_as(path, "m");
	struct row *a = put(j, 0, true, row_run);
	journal_end(j);
	cr_expect(is_done(a));
	cr_expect_eq(wait_for(a), 0);
	cr_expect_eq(wait_for(put(j, 1, false, row_run)), 0);
	journal_end(j);
	cr_expect_eq(count(j, n_rows), 2);
	journal_close(j);
}

/* --- the file --- */

static void refused(const char *file, const char *model, const char *text)
{
	struct journal *j = open_as(file, model);
	cr_expect_null(j, "opened");
	cr_expect(strstr(why.text, text) && strstr(why.text, file), "%s", why.text);
	journal_close(j);
}

static void write_file(const char *file, const void *p, size_t n)
{
	FILE *f = fopen(file, "w");
	cr_assert_not_null(f);
	cr_assert_eq(fwrite(p, 1, n, f), n);
	fclose(f);
}

Test(journal, belongs_to_one_controller)
{
	struct journal *j = open_as(path, "m");
	char holder[64];
	snprintf(holder, sizeof holder, "in use by process %d", (int)getpid());
	refused(path, "m", holder);
	journal_close(j);
	j = open_as(path, "m");
	cr_expect_not_null(j, "%s", why.text);
	journal_close(j);
}

Test(journal, belongs_to_one_model)
{
	journal_close(open_as(path, "m"));
	refused(path, "another", "belongs to another model (m, this is another)");
}

Test(journal, is_readable_by_its_owner_alone)
{
	struct stat st;
	struct journal *j = open_as(path, "m");
	char wal[160];
	snprintf(wal, sizeof wal, "%s-wal", path);
	cr_assert_eq(stat(path, &st), 0);
	cr_expect_eq(st.st_mode & 077, 0);
	cr_assert_eq(stat(wal, &st), 0);
	cr_expect_eq(st.st_mode & 077, 0);
	journal_close(j);
}

Test(journal, other_files_are_refused_and_unchanged)
{
	static const char text[] =
		"This is a letter to my aunt, and it is long enough to be no header at all, "
		"since SQLite's are of a hundred bytes and begin in another way.";
	write_file(path, text, sizeof text);
	refused(path, "m", "not a journal of quern");
	char *data;
	size_t n;
	cr_assert_eq(file_read(path, 1000, &data, &n, &why), 0);
	cr_expect(n == sizeof text && memcmp(data, text, n) == 0);
	free(data);
}

Test(journal, other_databases_are_refused)
{
	sqlite3 *db;
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(sqlite3_exec(db, "CREATE TABLE contacts(name)", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	refused(path, "m", "a database of another program");
}

Test(journal, newer_format_is_refused_by_its_number)
{
	sqlite3 *db;
	journal_close(open_as(path, "m"));
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(sqlite3_exec(db, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	refused(path, "m", "has format 99");
}

static void run_sql(const char *sql)
{
	sqlite3 *db;
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_expect_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
}

/* Return the count of a counting query, over a separate connection. */
static int count_sql(const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *q;
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(sqlite3_prepare_v2(db, sql, -1, &q, NULL), SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
	cr_assert_eq(sqlite3_step(q), SQLITE_ROW);
	int n = sqlite3_column_int(q, 0);
	sqlite3_finalize(q);
	sqlite3_close(db);
	return n;
}

static const char *const migrated_schemas[] = {"CREATE TABLE old(a)", "CREATE TABLE new(a, b, c)", NULL};
static const char *const migrated_from_1[] = {"DROP TABLE IF EXISTS new", "CREATE TABLE new(a, b)", NULL};
static const char *const migrated_from_2[] = {"ALTER TABLE new ADD COLUMN c", NULL};

static int add_one(struct journal_db *db)
{
	return journal_exec(db, "UPDATE old SET a = a + 1");
}

/* Make a file of format 1; return the configuration of a program that knows JOURNAL_FORMAT. */
static struct journal_config of_format_1(void)
{
	struct journal_config cfg = {.path = path, .model = "m", .schemas = migrated_schemas};
	struct journal *j = NULL;
	cr_assert_eq(journal_open(&cfg, &j, &why), 0, "%s", why.text);
	journal_close(j);
	run_sql("INSERT INTO old VALUES(1); DROP TABLE new; CREATE TABLE new(x); PRAGMA user_version = 1");
	return cfg;
}

Test(journal, a_file_of_an_old_format_goes_through_all_migrations_once)
{
	static const struct journal_migration steps[] = {
		{2, migrated_from_2, NULL}, {1, migrated_from_1, NULL}, {3, NULL, add_one}};
	struct journal_config cfg = of_format_1();
	struct journal *j = NULL;
	cfg.migrations = steps;
	cfg.n_migrations = 3;
	for (int i = 0; i < 2; i++) { /* the tables' contents stay */
		cr_assert_eq(journal_open(&cfg, &j, &why), 0, "%s", why.text);
		journal_close(j);
		run_sql("INSERT INTO new(a, b, c) SELECT a, a, a FROM old");
	}
	cr_expect_eq(count_sql("SELECT count(*) FROM new"), 2);
	cr_expect_eq(count_sql("SELECT a FROM old"), 2);
	cr_expect_eq(count_sql("PRAGMA user_version"), JOURNAL_FORMAT);
}

Test(journal, an_old_format_without_a_way_to_this_one_is_refused)
{
	static const struct journal_migration gap[] = {{1, migrated_from_1, NULL}};
	struct journal_config cfg = of_format_1();
	struct journal *j = NULL;
	refused(path, "m", "has format 1");
	cfg.migrations = gap;
	cfg.n_migrations = 1;
	cr_expect_eq(journal_open(&cfg, &j, &why), -EBADMSG);
	cr_expect_eq(count_sql("PRAGMA user_version"), 1);
	cr_expect_eq(count_sql("SELECT count(x) FROM new"), 0, "nothing was migrated");
}

Test(journal, a_migration_that_fails_leaves_the_old_format)
{
	static const char *const broken[] = {"ALTER TABLE new ADD COLUMN c",
					     "ALTER TABLE nowhere ADD COLUMN c", NULL};
	static const struct journal_migration steps[] = {
		{1, migrated_from_1, NULL}, {2, broken, NULL}, {3, NULL, add_one}};
	struct journal_config cfg = of_format_1();
	struct journal *j = NULL;
	cfg.migrations = steps;
	cfg.n_migrations = 3;
	cr_expect_neq(journal_open(&cfg, &j, &why), 0);
	cr_expect_eq(count_sql("PRAGMA user_version"), 1);
	cr_expect_eq(count_sql("SELECT count(x) FROM new"), 0);
}

Test(journal, missing_folder_is_named)
{
	refused("/nowhere/at/all/j", "m", "No such file");
}

/* A refused file gets no lock file; an existing lock stays with its holder. */
Test(journal, refused_file_leaves_no_lock_file)
{
	char name[160];
	snprintf(name, sizeof name, "%s-lock", path);
	write_file(path, "no database at all", 18);
	refused(path, "m", "not a journal of quern");
	cr_expect_neq(access(name, F_OK), 0, "%s is left", name);
	unlink(path);
	struct journal *j = open_as(path, "m");
	refused(path, "m", "is in use");
	cr_expect_eq(access(name, F_OK), 0);
	refused(path, "m", "is in use");
	journal_close(j);
}

/* --- damage --- */

static void copy_journal(const char *to, size_t wal_bytes)
{
	char from_wal[160], to_wal[160], *data;
	size_t n;
	snprintf(from_wal, sizeof from_wal, "%s-wal", path);
	snprintf(to_wal, sizeof to_wal, "%s-wal", to);
	cr_assert_eq(file_read(path, 1 << 28, &data, &n, &why), 0, "%s", why.text);
	write_file(to, data, n);
	free(data);
	cr_assert_eq(file_read(from_wal, 1 << 28, &data, &n, &why), 0, "%s", why.text);
	write_file(to_wal, data, wal_bytes < n ? wal_bytes : n);
	free(data);
}

/* Expects the rows 0..n-1 for some n. */
static void expect_prefix(struct journal *j)
{
	int64_t n = count(j, n_rows);
	int64_t last = count(j, "SELECT coalesce(max(CAST(substr(name, 5) AS INTEGER)), -1) FROM meta "
				"WHERE name LIKE 'row %'");
	cr_expect_eq(last + 1, n, "%lld rows, the last is %lld", (long long)n, (long long)last);
}

Test(journal, truncated_log_is_a_prefix_of_the_rows)
{
	struct journal *j = open_as(path, "m");
	char copy[128];
	struct stat st;
	char wal[160];
	snprintf(wal, sizeof wal, "%s-wal", path);
	for (int i = 0; i < 40; i++)
		wait_for(put(j, i, false, row_run));
	cr_assert_eq(stat(wal, &st), 0);
	snprintf(copy, sizeof copy, "%s/k", dir);
	for (int i = 0; i < 60; i++) {
		/* The first transactions created the tables. */
		size_t cut = (size_t)st.st_size - (size_t)st.st_size / 2 * (size_t)i / 60 - (size_t)i % 7;
		copy_journal(copy, cut);
		struct journal *k = open_as(copy, "m");
		cr_assert_not_null(k, "cut at %zu: %s", cut, why.text);
		expect_prefix(k);
		cr_expect_eq(wait_for(put(k, (int)count(k, n_rows), false, row_run)), 0, "%s", why.text);
		journal_close(k);
	}
	journal_close(j);
}

Test(journal, flipped_byte_in_the_log_ends_it_there)
{
	struct journal *j = open_as(path, "m");
	char copy[128], copy_wal[160];
	struct stat st;
	snprintf(copy, sizeof copy, "%s/k", dir);
	snprintf(copy_wal, sizeof copy_wal, "%s-wal", copy);
	for (int i = 0; i < 40; i++)
		wait_for(put(j, i, false, row_run));
	for (unsigned i = 0; i < 60; i++) {
		copy_journal(copy, SIZE_MAX);
		cr_assert_eq(stat(copy_wal, &st), 0);
		long at = (long)(st.st_size / 2 + (st.st_size / 2 - 1) * i / 60);
		FILE *f = fopen(copy_wal, "r+");
		fseek(f, at, SEEK_SET);
		int byte = fgetc(f);
		fseek(f, at, SEEK_SET);
		fputc(byte ^ (1 << i % 8), f);
		fclose(f);
		struct journal *k = open_as(copy, "m");
		cr_assert_not_null(k, "flipped at %ld: %s", at, why.text);
		expect_prefix(k);
		journal_close(k);
	}
	journal_close(j);
}

Test(journal, damaged_file_is_refused_with_the_remedy)
{
	struct journal *j = open_as(path, "m");
	write_rows(j, 200);
	journal_close(j); /* moves all data into the main file */
	FILE *f = fopen(path, "r+");
	for (int page = 1; page < 8; page++) {
		fseek(f, page * 4096, SEEK_SET);
		for (int i = 0; i < 64; i++)
			fputc(0xa5, f);
	}
	fclose(f);
	refused(path, "m", "is damaged; move it");
}

Test(journal, truncated_file_is_refused)
{
	struct journal *j = open_as(path, "m");
	write_rows(j, 200);
	journal_close(j);
	struct stat st;
	stat(path, &st);
	cr_assert_eq(truncate(path, st.st_size / 2), 0);
	refused(path, "m", "is damaged; move it");
}

Test(journal, freed_space_goes_back_to_the_file_system)
{
	struct journal *j = open_as(path, "m");
	struct journal_stats full, now;
	for (int i = 0; i < 100; i++) {
		struct row *r = xcalloc(1, sizeof *r);
		r->op = (struct journal_op){.run = row_run, .done = row_done};
		r->n = i;
		r->size = 100 << 10;
		journal_put(j, &r->op);
		cr_expect_eq(wait_for(r), 0);
	}
	journal_end(j);
	journal_stats(j, &full);
	cr_expect_gt(full.file_bytes, 8 << 20);
	wait_for(put(j, 0, false, delete_run));
	for (int i = 0; i < 12; i++)
		wait_for(put(j, i, false, row_run));
	journal_end(j);
	journal_stats(j, &now);
	cr_expect_lt(now.file_bytes, full.file_bytes / 2, "%lld of %lld", (long long)now.file_bytes,
		     (long long)full.file_bytes);
	journal_close(j);
}
