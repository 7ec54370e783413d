/* Responses in the background before a fake front end: those that are refused, that cannot be made again,
 * that are read again at once. */
#include "controller/jobs/journal.h"
#include "tests/journal_tables.h"
#include "tests/wire/http_rig.h"

static char dir[64], path[128];
static struct journal *journal;

static void begin(void)
{
	char why[512] = "";
	snprintf(dir, sizeof dir, "/tmp/quern-responses-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
	cr_assert_eq(journal_with_tables(path, "m", &journal, why, sizeof why), 0, "%s", why);
	struct http_config cfg = {.addr = "127.0.0.1:0", .max_unread_bytes = 32 << 10};
	load();
	svc.journal = journal;
	svc.journal_bytes = 1 << 30;
	svc.keep_durable_us = (int64_t)3600 * 1000000;
	start_with(&cfg);
}

static void end(void)
{
	static const char *const names[] = {"j", "j-wal", "j-shm", "j-lock", "j-ballast"};
	char name[160];
	stop();
	journal_close(journal);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s/%s", dir, names[i]);
		unlink(name);
	}
	rmdir(dir);
}

TestSuite(http_responses, .init = begin, .fini = end, .timeout = 60);

/* A number of the journal. */
static int64_t number(const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *q;
	int64_t n = -1;
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 10000);
	cr_assert_eq(sqlite3_prepare_v2(db, sql, -1, &q, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
	if (sqlite3_step(q) == SQLITE_ROW)
		n = sqlite3_column_int64(q, 0);
	sqlite3_finalize(q);
	sqlite3_close(db);
	return n;
}

static void wait_for(const char *sql, int64_t n)
{
	while (number(sql) != n)
		usleep(1000);
}

/* A response in the background of an earlier life, that is not done. */
static void insert(const char *id, const char *request)
{
	sqlite3 *db;
	char *sql = sqlite3_mprintf(
		"INSERT INTO responses VALUES(%Q, '', '', 1, 0, 1700000000, 4000000000, 0, 100, %Q, '{}',"
		" '[]', '{\"id\":\"%s\",\"status\":\"in_progress\"}')",
		id, request, id);
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 10000);
	cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
	sqlite3_free(sql);
	sqlite3_close(db);
}

#define ASKS(user)                                                                                           \
	"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"user\": \"" user                       \
	"\", \"max_completion_tokens\": 4, \"seed\": 1}"

static struct answer get(const char *id, const char *query)
{
	char where[160];
	snprintf(where, sizeof where, "/v1/responses/%s%s", id, query);
	return client_ask(at, "GET", where, NULL);
}

static bool has_status(const char *id, const char *status)
{
	struct answer a = get(id, "");
	const json_t *o = a.json;
	const bool is = strcmp(text_of(o, "status"), status) == 0;
	answer_fini(&a);
	return is;
}

Test(http_responses, what_is_refused_is_not_stored)
{
	expect_error(post("/v1/responses",
			  "{\"input\": \"a\", \"user\": \"refuse\", \"background\": true, \"metadata\": {}}"),
		     429, "overloaded", NULL);
	/* It is stored before its job is submitted, and deleted when that is refused. */
	wait_for("SELECT count(*) FROM responses", 0);
	wait_for("SELECT count(*) FROM stored_use", 0);
}

Test(http_responses, what_cannot_be_made_again_has_failed)
{
	static const struct {
		const char *id, *request;
	} cases[] = {
		{"resp_long", ASKS("toolong")},
		{"resp_damaged", "{"},
		{"resp_list", "[]"},
		{"resp_model",
		 "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"model\": \"x\"}"},
		{"resp_field", "{\"messages\": 3}"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		insert(cases[i].id, cases[i].request);
		while (!has_status(cases[i].id, "failed"))
			usleep(1000);
	}
	struct answer a = get("resp_long", "");
	cr_expect(strstr(a.body.p, "the prompt is too long"), "%s", a.body.p);
	answer_fini(&a);
}

Test(http_responses, what_is_refused_for_now_is_tried_again)
{
	insert("resp_now", ASKS("refuse"));
	for (unsigned i = 1; i <= 3; i++) {
		while (atomic_load(&mailbox->n_error) < i)
			cr_expect(has_status("resp_now", "in_progress"));
	}
	cr_expect(has_status("resp_now", "in_progress"));
}

/* More events than may be unread: they are made as they are read. */
Test(http_responses, a_long_replay_is_read_to_its_end)
{
	struct answer a = post("/v1/responses",
			       "{\"input\": \"Once upon a time\", \"user\": \"burst\", \"background\": true,"
			       " \"max_output_tokens\": 400, \"ignore_eos\": true}");
	const json_t *o = a.json;
	char id[64];
	snprintf(id, sizeof id, "%s", text_of(o, "id"));
	cr_assert_eq(a.status, 200, "%s", a.body.p);
	answer_fini(&a);
	while (!has_status(id, "incomplete"))
		usleep(1000);
	a = get(id, "?stream=true");
	cr_assert_eq(a.status, 200);
	cr_expect(a.body.len > 32 << 10, "%zu", a.body.len);
	char want[64];
	int n = 0;
	for (const char *p = a.body.p; (p = strstr(p, "\"sequence_number\":")); n++) {
		snprintf(want, sizeof want, "\"sequence_number\":%d,", n);
		cr_assert(strncmp(p, want, strlen(want)) == 0, "event %d: %.40s", n, p);
		p++;
	}
	cr_expect(n > 300, "%d", n);
	struct answer rest = get(id, "?stream=true&starting_after=300");
	cr_assert_eq(rest.status, 200);
	const char *from = strstr(a.body.p, "\"sequence_number\":301,");
	cr_assert_not_null(from);
	cr_expect(strstr(rest.body.p, "\"sequence_number\":301,"));
	cr_expect_null(strstr(rest.body.p, "\"sequence_number\":300,"));
	cr_expect(strstr(rest.body.p, "event: response.incomplete"));
	answer_fini(&rest);
	cr_expect(strstr(a.body.p, "event: response.incomplete"), "%s", a.body.p + a.body.len - 200);
	answer_fini(&a);
}
