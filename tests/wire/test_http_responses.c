/* Background responses with a fake front end: refused ones, ones that cannot be resumed, and immediate
 * reads. */
#include "controller/jobs/journal.h"
#include "controller/jobs/lines.h"
#include "tests/journal_tables.h"
#include "tests/wire/http_rig.h"

static char dir[64], path[128];
static struct journal *journal;

static void begin(void)
{
	struct why why = {""};
	snprintf(dir, sizeof dir, "/tmp/quern-responses-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
	cr_assert_eq(journal_with_tables(path, "m", &journal, &why), 0, "%s", why.text);
	struct http_config cfg = {.addr = "127.0.0.1:0", .max_unread_bytes = 32 << 10};
	load();
	svc.journal = journal;
	svc.journal_bytes = 1 << 30;
	svc.keep_durable_us = (int64_t)3600 * 1000000;
	svc.lines = lines_new();
	start_with(&cfg);
}

static void end(void)
{
	static const char *const names[] = {"j", "j-wal", "j-shm", "j-lock", "j-ballast"};
	char name[160];
	stop();
	lines_free(svc.lines);
	journal_close(journal);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s/%s", dir, names[i]);
		unlink(name);
	}
	rmdir(dir);
}

TestSuite(http_responses, .init = begin, .fini = end, .timeout = 60);

/* Return a number from the journal. */
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

#define BIG "123456789012345678901234567890"

/* Insert an unfinished background response, as if from an earlier run. */
static void insert(const char *id, const char *request)
{
	sqlite3 *db;
	char *sql = sqlite3_mprintf(
		"INSERT INTO responses VALUES(%Q, '', '', 1, 0, 1700000000, 4000000000, 0, 100, %Q, '{}',"
		" '[]', '{\"id\":\"%s\",\"status\":\"in_progress\",\"tools\":[%s]}')",
		id, request, id, strcmp(id, "resp_big") == 0 ? "{\"max\":" BIG "}" : "");
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
	/* The response is stored before its job is submitted, and deleted when the job is refused. */
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

/* The end of the response is on the disk before the reply. The fake front end cancels no job, so the job ends
 * by itself. */
Test(http_responses, a_cancel_is_replied_to_when_the_row_says_so)
{
	struct answer a = post("/v1/responses", "{\"input\":\"a\",\"background\":true,\"user\":\"slow\","
						"\"max_output_tokens\":40}");
	char where[160];
	cr_assert_str_eq(text_of(a.json, "status"), "in_progress", "%s", a.body.p);
	snprintf(where, sizeof where, "/v1/responses/%s/cancel", text_of(a.json, "id"));
	answer_fini(&a);
	a = post(where, "{}");
	cr_expect_eq(number("SELECT count(*) FROM responses WHERE done = 1"), 1);
	cr_expect_str_eq(text_of(a.json, "status"), "incomplete", "%s", a.body.p);
	answer_fini(&a);
	a = post(where, "{}");
	cr_expect_str_eq(text_of(a.json, "status"), "incomplete", "%s", a.body.p);
	answer_fini(&a);
}

/* --- lines of the job socket --- */

struct line_answer {
	atomic_bool there;
	struct line_reply reply; /* its body is owned */
};

static void on_line(void *user, struct line_reply *reply)
{
	struct line_answer *a = user;
	a->reply = *reply;
	reply->body = (struct buf){0};
	atomic_store(&a->there, true);
}

static struct line_reply ask_line(const char *key, const char *body)
{
	struct line_answer a = {0};
	struct line_request *r = xcalloc(1, sizeof *r);
	uint64_t tag;
	*r = (struct line_request){
		.url = xstrdup("/v1/responses"), .durable = true, .done = on_line, .user = &a};
	snprintf(r->key, sizeof r->key, "%s", key);
	buf_puts(&r->body, body);
	cr_assert_eq(lines_put(svc.lines, &r, &tag), 0);
	while (!atomic_load(&a.there))
		usleep(1000);
	cr_assert_eq(a.reply.status, 200, "%s %s", a.reply.why, a.reply.body.p);
	return a.reply;
}

static void expect_again(const char *key, const char *body, const struct line_reply *first, bool same)
{
	struct line_reply again = ask_line(key, body);
	cr_expect_eq(strcmp(again.id, first->id) == 0, same, "%s %s", key, body);
	if (same)
		cr_expect_str_eq(again.body.p, first->body.p);
	buf_fini(&again.body);
}

/* The first reply was lost, for example with the service. */
Test(http_responses, a_line_that_is_sent_again_has_one_response)
{
	static const char text[] = "{\"input\":\"a\",\"max_output_tokens\":4}",
			  in_background[] = "{\"input\":\"a\",\"background\":true,\"user\":\"hang\"}";
	struct line_reply first = ask_line("batch 1", text), later = ask_line("batch 2", in_background);
	expect_again("batch 1", text, &first, true);
	expect_again("batch 2", in_background, &later, true);
	wait_for("SELECT count(*) FROM responses", 2);
	expect_again("batch 3", text, &first, false);
	expect_again("batch 1", "{\"input\":\"b\",\"max_output_tokens\":4}", &first, false);
	wait_for("SELECT count(*) FROM responses", 4);
	buf_fini(&first.body);
	buf_fini(&later.body);
}

/* The number is kept as written: the client's reader may support it, while jansson does not. */
Test(http_responses, a_number_beyond_64_bits_is_kept)
{
	bool failed = false;
	insert("resp_big", "[]");
	for (; !failed; usleep(1000)) {
		struct answer a = get("resp_big", "");
		cr_expect(strstr(a.body.p, "\"tools\":[{\"max\":" BIG "}]"), "%s", a.body.p);
		failed = strstr(a.body.p, "\"failed\"");
		answer_fini(&a);
	}
}

/* Additional slashes do not count as part of the text after a route's path. */
Test(http_responses, an_id_is_found_behind_several_slashes)
{
	static const char *const paths[] = {"/v1//responses/resp_list", "/v1/responses//resp_list",
					    "//v1/responses/resp_list/", "/v1/responses/resp_list//"};
	insert("resp_list", "[]");
	while (!has_status("resp_list", "failed"))
		usleep(1000);
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		struct answer a = client_ask(at, "GET", paths[i], NULL);
		cr_expect_str_eq(text_of(a.json, "id"), "resp_list", "%s: %s", paths[i], a.body.p);
		answer_fini(&a);
	}
	struct answer a = client_ask(at, "GET", "/v1/responses/resp_list//input_items", NULL);
	cr_expect_str_eq(text_of(a.json, "object"), "list", "%s", a.body.p);
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

/* There are more events than may be unread, so they are produced as the client reads. */
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
