/* Batches are stored in the journal. */
#include "controller/endpoints/openai_batch_impl.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "controller/http/exchange.h"
#include "controller/http/http.h"
#include "tests/disk.h"
#include "tests/journal_tables.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct why why;
static char dir[64], path[128];
static struct journal *journal;
static struct file_store *files;
static struct batches *bs; /* has no thread: the tests do its work */

static const struct http_route route = {.path = "/v1/completions", .allow = "POST", .flags = ROUTE_LINE};
static struct exchange_host host = {.routes = &route, .n_routes = 1};

static struct batches *batches_new(void)
{
	struct batches *v = xcalloc(1, sizeof *v);
	v->host = &host;
	v->files = files;
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->more, NULL);
	cr_assert_eq(openai_batch_load(v, &why), 0, "%s", why.text);
	return v;
}

static void init(void)
{
	snprintf(dir, sizeof dir, "/tmp/quern-batches-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
	disk_install();
	cr_assert_eq(journal_with_tables(path, "m", &journal, &why), 0, "%s", why.text);
	cr_assert_eq(file_store_open(journal, batches_with_input, &files, &why), 0, "%s", why.text);
	bs = batches_new();
}

static void fini(void)
{
	batches_free(bs);
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

TestSuite(openai_batch_store, .init = init, .fini = fini, .timeout = 60);

/* Wait until the journal has carried out all operations so far. */
static void sync_journal(void)
{
	cr_assert_eq(openai_batch_delete_file(bs, "none"), 0);
}

static void on_created(void *user, int rc, const json_t *batch, const char *param, const char *text)
{
	(void)batch;
	(void)param;
	(void)user;
	cr_expect_eq(rc, 0, "%s", text);
}

/* Create a live batch with an input of n bytes. */
static struct openai_batch *create(size_t n)
{
	struct file_info info = {.purpose = "batch"};
	char *text = xmalloc(n);
	memset(text, ' ', n);
	file_store_id(info.id, "file-");
	struct file_writer *w = file_writer_new(files, &info, NULL);
	cr_assert_eq(file_writer_put(w, text, n), 0);
	cr_assert_eq(openai_batch_commit_file(bs, &w), 0);
	free(text);
	struct openai_batch_request r = {
		.input_file = info.id, .endpoint = "/v1/completions", .window = "1h"};
	batches_create(bs, &r, on_created, NULL);
	sync_journal();
	openai_batch_take_new(bs);
	cr_assert_not_null(bs->first);
	return bs->first;
}

/* Count the live batches that a restart would find. */
static uint32_t n_live(void)
{
	struct batches *next = batches_new();
	uint32_t n = next->n_live;
	batches_free(next);
	return n;
}

/* A cancel releases the lock before it saves, and the batch's thread ends the batch in between. */
Test(openai_batch_store, a_batch_that_has_ended_stays_ended_when_saved_again)
{
	struct openai_batch *b = create(1);
	openai_batch_save(bs, b, false);
	sync_journal();
	cr_expect_eq(n_live(), 1);
	json_object_set_new(b->object, "status", json_string("completed"));
	openai_batch_save(bs, b, true);
	json_object_set_new(b->object, "status", json_string("cancelling"));
	openai_batch_save(bs, b, false);
	sync_journal();
	cr_expect_eq(n_live(), 0);
	char id[FILE_ID_SIZE];
	snprintf(id, sizeof id, "%s", b->id);
	bs->first = NULL; /* the batch has left the list */
	openai_batch_free(b);
	json_t *o = batches_get(bs, "", id);
	cr_expect_str_eq(json_string_value(json_object_get(o, "status")), "completed");
	json_decref(o);
}

/* --- keys --- */

static int created_rc;
static char created_why[256];

static void on_created_or_not(void *user, int rc, const json_t *batch, const char *param, const char *text)
{
	(void)batch;
	(void)param;
	(void)user;
	created_rc = rc;
	snprintf(created_why, sizeof created_why, "%s", text ? text : "");
}

/* Create a batch of this owner with an input of one byte. Returns the error. */
static int create_by(const char *owner)
{
	struct file_info info = {.purpose = "batch"};
	snprintf(info.owner, sizeof info.owner, "%s", owner);
	file_store_id(info.id, "file-");
	struct file_writer *w = file_writer_new(files, &info, NULL);
	cr_assert_eq(file_writer_put(w, " ", 1), 0);
	cr_assert_eq(openai_batch_commit_file(bs, &w), 0);
	struct openai_batch_request r = {.input_file = info.id,
					 .endpoint = "/v1/completions",
					 .window = "1h",
					 .terms = API_KEY_NO_TERMS};
	snprintf(r.owner, sizeof r.owner, "%s", owner);
	batches_create(bs, &r, on_created_or_not, NULL);
	sync_journal();
	return created_rc;
}

Test(openai_batch_store, a_key_leaves_room_for_batches_of_others)
{
	enum { PART = OPENAI_BATCH_LIVE_MAX / 4 * 3 };
	for (int i = 0; i < PART - 1; i++)
		openai_batch_begin(bs, "alice");
	cr_expect_eq(create_by("alice"), 0, "%s", created_why);
	cr_expect_eq(create_by("alice"), -EAGAIN);
	cr_expect_not_null(strstr(created_why, "of this key"), "%s", created_why);
	cr_expect_eq(create_by("bob"), 0, "%s", created_why);
	for (int i = 0; i < 10; i++)
		openai_batch_end(bs, "alice");
	cr_expect_eq(create_by("alice"), 0, "what has ended counts no more: %s", created_why);
	openai_batch_take_new(bs);
}

Test(openai_batch_store, lines_of_keys_are_submitted_by_their_shares)
{
	enum { ALICE, BOB, CAROL, N = 160 };
	static const char *const owners[] = {"alice", "bob", "carol"};
	struct openai_batch *of[12];
	uint32_t n[3] = {0};
	/* Ten batches of Alice, then one of Bob and one of Carol. */
	for (int i = 0; i < 12; i++)
		cr_assert_eq(create_by(owners[i < 10 ? ALICE : i - 9]), 0, "%s", created_why);
	openai_batch_take_new(bs);
	struct openai_batch *b = bs->first;
	for (int i = 0; i < 12; i++, b = b->later) {
		of[i] = b;
		b->phase = OPENAI_BATCH_RUNNING;
		b->n_lines = N;
		b->lines = xcalloc(N, sizeof *b->lines);
		b->terms.share = i == 11 ? 2 : 1;
	}
	for (int i = 0; i < N; i++) {
		uint32_t line;
		b = openai_batch_next(bs, &line);
		cr_assert_not_null(b);
		b->lines[line].state = LINE_RUNNING;
		b->next++;
		b->n_running++;
		n[strcmp(b->owner, "alice") == 0 ? ALICE : strcmp(b->owner, "bob") == 0 ? BOB : CAROL]++;
	}
	cr_expect(n[ALICE] == N / 4 && n[BOB] == N / 4 && n[CAROL] == N / 2, "%u %u %u", n[ALICE], n[BOB],
		  n[CAROL]);
	for (int i = 0; i < 10; i++)
		cr_expect_eq(of[i]->n_running, N / 4 / 10, "Alice's batches take turns");
}

/* --- large files --- */

enum { LARGE = 48 << 20, HELD_MAX = 16 << 20 };

struct gate {
	struct journal_op op;
	pthread_mutex_t lock; /* held: the journal's thread waits */
};

static int run_gate(struct journal_op *op, struct journal_db *db)
{
	struct gate *g = (struct gate *)op;
	(void)db;
	pthread_mutex_lock(&g->lock);
	pthread_mutex_unlock(&g->lock);
	return SQLITE_OK;
}

static void on_gate(struct journal_op *op, int rc, const char *text)
{
	(void)op;
	(void)rc;
	(void)text;
}

static void *write_large(void *arg)
{
	struct file_writer *w = arg;
	char *line = xcalloc(1, FILE_PART / 2);
	int rc = 0;
	for (size_t n = 0; !rc && n < LARGE; n += FILE_PART / 2)
		if (!(rc = file_writer_wait(w)))
			rc = file_writer_put(w, line, FILE_PART / 2);
	free(line);
	return rc ? w : NULL;
}

static uint64_t n_waiting(void)
{
	struct journal_stats st;
	journal_stats(journal, &st);
	return st.n_waiting;
}

Test(openai_batch_store, a_large_file_does_not_fill_the_queue_of_a_slow_disk)
{
	static struct gate gate = {.op = {.run = run_gate, .done = on_gate},
				   .lock = PTHREAD_MUTEX_INITIALIZER};
	struct file_info info = {.id = "file-large", .purpose = "batch_output"};
	struct file_writer *w = file_writer_new(files, &info, NULL);
	pthread_t thread;
	void *failed;
	sync_journal(); /* the store's own operation at its start is not counted */
	pthread_mutex_lock(&gate.lock);
	journal_put(journal, &gate.op);
	cr_assert_eq(pthread_create(&thread, NULL, write_large, w), 0);
	while (n_waiting() < HELD_MAX / FILE_PART)
		usleep(1000);
	usleep(50000); /* no further part is queued */
	cr_expect_leq(n_waiting(), HELD_MAX / FILE_PART + 1);
	pthread_mutex_unlock(&gate.lock);
	pthread_join(thread, &failed);
	cr_expect_null(failed);
	cr_assert_eq(openai_batch_commit_file(bs, &w), 0);
	struct file_info got;
	cr_assert_eq(file_store_get(files, "", "file-large", &got), 0);
	cr_expect_eq(got.bytes, LARGE);
}

/* A failing disk blocks no thread: the file is aborted and written again later. */
Test(openai_batch_store, a_large_file_is_aborted_when_the_disk_fails)
{
	struct file_info info = {.id = "file-large", .purpose = "batch_output"};
	struct file_writer *w = file_writer_new(files, &info, NULL);
	atomic_store(&disk.fail_write, SQLITE_FULL);
	cr_expect_not_null(write_large(w));
	file_writer_abort(&w);
	int rc = openai_batch_delete_file(bs, "file-large");
	cr_expect_eq(rc, -ENOSPC, "%d", rc);
	atomic_store(&disk.fail_write, 0);
}

/* A new journal has the tables of format 1, the model name in the table of jobs (format 3), and the tables of
 * responses. */
Test(openai_batch_store, tables_are_those_that_older_formats_are_migrated_to)
{
	static const char tables_of_jobs[] =
		"CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID\n"
		"CREATE TABLE jobs(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, key "
		"TEXT, body BLOB NOT NULL, accepted_at INTEGER NOT NULL, request BLOB, state INTEGER NOT "
		"NULL, cancelled INTEGER NOT NULL DEFAULT 0, finished_at INTEGER, end BLOB, row TEXT, model "
		"TEXT)\n"
		"CREATE UNIQUE INDEX jobs_key ON jobs(owner, key) WHERE key IS NOT NULL\n"
		"CREATE INDEX jobs_unfinished ON jobs(n) WHERE state = 0\n"
		"CREATE INDEX jobs_finished ON jobs(finished_at) WHERE state = 1\n"
		"CREATE TABLE tokens(job INTEGER NOT NULL, output INTEGER NOT NULL, first INTEGER NOT NULL, "
		"data BLOB NOT NULL)\n"
		"CREATE INDEX tokens_job ON tokens(job)\n"
		"CREATE TABLE files(id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, purpose "
		"TEXT NOT NULL, bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER)\n"
		"CREATE TABLE chunks(file TEXT NOT NULL, first INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY "
		"KEY(file, first))\n"
		"CREATE TABLE batches(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, "
		"state INTEGER NOT NULL, created_at INTEGER NOT NULL, object TEXT NOT NULL)\n"
		"CREATE INDEX batches_live ON batches(n) WHERE state = 0\n"
		"CREATE TABLE lines(batch INTEGER NOT NULL, line INTEGER NOT NULL, failed INTEGER NOT NULL, "
		"data BLOB NOT NULL, PRIMARY KEY(batch, line))\n";
	struct journal_db *db;
	struct buf tables = {0};
	cr_assert_eq(journal_reader(journal, &db, &why), 0, "%s", why.text);
	sqlite3_stmt *s = journal_query(
		db, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid", NULL, 0);
	while (sqlite3_step(s) == SQLITE_ROW)
		buf_printf(&tables, "%s\n", (const char *)sqlite3_column_text(s, 0));
	journal_reader_close(db);
	cr_assert_geq(tables.len, strlen(tables_of_jobs));
	cr_expect(strstr(tables.p + strlen(tables_of_jobs), "CREATE TABLE responses(") ==
		  tables.p + strlen(tables_of_jobs));
	tables.p[strlen(tables_of_jobs)] = 0;
	cr_expect_str_eq(tables.p, tables_of_jobs);
	buf_fini(&tables);
}
