/* Quotas count an owner's stored files and files being written; files in use are kept. */
#include "base/alloc.h"
#include "controller/jobs/file_store.h"
#include "controller/jobs/journal.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KIB = 1 << 10 };

static struct why why;
static char dir[64], path[128];
static struct journal *journal;
static struct file_store *files;

static char kept[FILE_ID_SIZE]; /* a file in use */

static int kept_by(struct journal_db *db, const char *file, char by[FILE_ID_SIZE])
{
	(void)db;
	snprintf(by, FILE_ID_SIZE, "%s", strcmp(file, kept) == 0 ? "batch_1" : "");
	return 0;
}

static void begin(void)
{
	static const char *const tables[] = {file_store_schema, NULL};
	snprintf(dir, sizeof dir, "/tmp/quern-quota-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
	struct journal_config cfg = {.path = path, .model = "m", .schemas = tables};
	cr_assert_eq(journal_open(&cfg, &journal, &why), 0, "%s", why.text);
	cr_assert_eq(file_store_open(journal, kept_by, &files, &why), 0, "%s", why.text);
}

static void end(void)
{
	journal_end(journal);
	file_store_close(files);
	journal_close(journal);
	DIR *d = opendir(dir);
	for (struct dirent *e; (e = readdir(d));) {
		char name[512];
		snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
		unlink(name);
	}
	closedir(d);
	rmdir(dir);
}

TestSuite(file_store, .init = begin, .fini = end, .timeout = 60);

static struct file_writer *begin_file(const char *owner, int64_t max_files, int64_t max_bytes, char *id)
{
	struct file_info info = {.created_at = 1};
	struct file_quota quota = {max_files, max_bytes};
	snprintf(info.owner, sizeof info.owner, "%s", owner);
	file_store_id(info.id, "file-");
	if (id)
		memcpy(id, info.id, sizeof info.id);
	return file_writer_new(files, &info, &quota);
}

static int put(struct file_writer *w, size_t n)
{
	char *p = xcalloc(1, n + 1);
	int rc = file_writer_put(w, p, n);
	free(p);
	err_why(&why, 0, "%s", file_writer_why(w));
	return rc;
}

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	bool done;
	int rc;
} call = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void on_done(void *user, int rc, const char *reason)
{
	(void)user, (void)reason;
	pthread_mutex_lock(&call.lock);
	call.rc = rc;
	call.done = true;
	pthread_cond_signal(&call.more);
	pthread_mutex_unlock(&call.lock);
}

static int wait_for_call(void)
{
	pthread_mutex_lock(&call.lock);
	while (!call.done)
		pthread_cond_wait(&call.more, &call.lock);
	call.done = false;
	pthread_mutex_unlock(&call.lock);
	return call.rc;
}

static int commit(struct file_writer **w)
{
	file_writer_commit(w, NULL, on_done, NULL);
	return wait_for_call();
}

static int store(const char *owner, int64_t max_files, int64_t max_bytes, size_t n, char *id)
{
	struct file_writer *w = begin_file(owner, max_files, max_bytes, id);
	int rc = put(w, n);
	if (!rc)
		return commit(&w);
	file_writer_abort(&w);
	return rc;
}

Test(file_store, number_of_files)
{
	char id[FILE_ID_SIZE];
	cr_expect_eq(store("ann", 2, 0, 1, NULL), 0);
	cr_expect_eq(store("ann", 2, 0, 1, id), 0);
	cr_expect_eq(store("ann", 2, 0, 1, NULL), -E2BIG);
	cr_expect(strstr(why.text, "quota of 2 files") && strstr(why.text, "max-files") &&
			  strstr(why.text, "2 are stored") && strstr(why.text, "delete"),
		  "%s", why.text);
	cr_expect_eq(store("bob", 2, 0, 1, NULL), 0, "files of another owner count");
	file_store_delete(files, "ann", id, on_done, NULL);
	cr_expect_eq(wait_for_call(), 0);
	cr_expect_eq(store("ann", 2, 0, 1, NULL), 0, "%s", why.text);
	cr_expect_eq(store("ann", 0, 0, 1, NULL), 0, "a quota of 0 is none");
}

Test(file_store, bytes_of_files)
{
	cr_expect_eq(store("ann", 0, 1000 * KIB, 600 * KIB, NULL), 0);
	cr_expect_eq(store("ann", 0, 1000 * KIB, 400 * KIB + 1, NULL), -E2BIG);
	cr_expect(strstr(why.text, "quota of 1024000 bytes of files") &&
			  strstr(why.text, "614400 are stored") && strstr(why.text, "max-stored-bytes"),
		  "%s", why.text);
	cr_expect_eq(store("ann", 0, 1000 * KIB, 400 * KIB, NULL), 0, "%s", why.text);
	cr_expect_eq(store("ann", 0, 1000 * KIB, 1, NULL), -E2BIG);
}

/* Several uploads at once, each within the quota. */
Test(file_store, files_that_are_being_written_count)
{
	struct file_writer *a = begin_file("ann", 0, 1000 * KIB, NULL),
			   *b = begin_file("ann", 0, 1000 * KIB, NULL),
			   *c = begin_file("bob", 0, 1000 * KIB, NULL);
	cr_expect_eq(put(a, 600 * KIB), 0);
	cr_expect_eq(put(c, 600 * KIB), 0);
	cr_expect_eq(put(b, 600 * KIB), -E2BIG);
	cr_expect_neq(commit(&b), 0, "a file beyond the quota is stored");
	cr_expect_eq(commit(&a), 0);
	cr_expect_eq(commit(&c), 0);
	a = begin_file("ann", 0, 1000 * KIB, NULL);
	b = begin_file("ann", 0, 1000 * KIB, NULL);
	cr_expect_eq(put(b, 300 * KIB), 0);
	cr_expect_eq(commit(&b), 0);
	cr_expect_eq(put(a, 200 * KIB), -E2BIG, "a file that was stored since does not count");
	file_writer_abort(&a);
	cr_expect_eq(store("ann", 0, 1000 * KIB, 100 * KIB, NULL), 0, "an aborted file counts: %s", why.text);
}

Test(file_store, number_counts_files_that_are_being_written)
{
	struct file_writer *a = begin_file("ann", 1, 0, NULL), *b = begin_file("ann", 1, 0, NULL);
	cr_expect_eq(put(a, 1), 0);
	cr_expect_eq(put(b, 1), -E2BIG);
	file_writer_abort(&b);
	cr_expect_eq(commit(&a), 0);
	cr_expect_eq(store("ann", 1, 0, 1, NULL), -E2BIG);
}

/* --- between the commit of a file and its report --- */

struct gate {
	struct journal_op op;
	sem_t begun, open;
};

static int gate_run(struct journal_op *op, struct journal_db *db)
{
	struct gate *g = (struct gate *)op;
	(void)db;
	sem_post(&g->begun);
	sem_wait(&g->open);
	return 0;
}

static void gate_done(struct journal_op *op, int rc, const char *reason)
{
	(void)op, (void)rc, (void)reason;
}

static int empty_run(struct journal_op *op, struct journal_db *db)
{
	(void)op, (void)db;
	return 0;
}

static int while_committed;

/* Called for an operation of the file's transaction, before the file itself is reported. */
static void store_another(struct journal_op *op, int rc, const char *reason)
{
	struct file_writer *w = begin_file("ann", 2, 10, NULL);
	(void)op, (void)rc, (void)reason;
	while_committed = put(w, 5);
	file_writer_abort(&w);
}

Test(file_store, a_file_that_was_just_committed_counts_once)
{
	struct gate first = {.op = {.run = gate_run, .done = gate_done}};
	struct journal_op second = {.run = empty_run, .done = store_another};
	struct file_writer *a = begin_file("ann", 2, 10, NULL);
	cr_expect_eq(put(a, 5), 0);
	sem_init(&first.begun, 0, 0);
	sem_init(&first.open, 0, 0);
	journal_put(journal, &first.op);
	sem_wait(&first.begun);
	journal_put(journal, &second);
	file_writer_commit(&a, NULL, on_done, NULL);
	sem_post(&first.open);
	cr_expect_eq(wait_for_call(), 0);
	cr_expect_eq(while_committed, 0, "%s", why.text);
}

static int store_expired(char id[FILE_ID_SIZE])
{
	struct file_info info = {.created_at = 1, .expires_at = 2};
	file_store_id(info.id, "file-");
	memcpy(id, info.id, sizeof info.id);
	struct file_writer *w = file_writer_new(files, &info, NULL);
	int rc = put(w, 300 * KIB);
	return rc ? rc : commit(&w);
}

static int count_parts(const char *id)
{
	static char text[300 * KIB];
	return (int)file_store_read(files, id, 0, text, sizeof text);
}

Test(file_store, sweep_and_delete_keep_what_is_used)
{
	char free_id[FILE_ID_SIZE], id[FILE_ID_SIZE];
	cr_assert_eq(store_expired(kept), 0);
	cr_assert_eq(store_expired(free_id), 0);
	file_store_sweep(files);
	cr_assert_eq(store("ann", 0, 0, 1, id), 0);
	cr_expect_eq(count_parts(kept), 300 * KIB, "an expired file that is used was swept");
	cr_expect_eq(count_parts(free_id), 0, "an expired file was not swept");
	memcpy(kept, id, sizeof id);
	file_store_delete(files, "ann", id, on_done, NULL);
	cr_expect_eq(wait_for_call(), -EBUSY);
	cr_expect_eq(count_parts(id), 1);
	kept[0] = 0;
	file_store_delete(files, "ann", id, on_done, NULL);
	cr_expect_eq(wait_for_call(), 0);
	cr_expect_eq(count_parts(id), 0);
}
