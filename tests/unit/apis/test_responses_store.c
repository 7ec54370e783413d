/* Responses and conversations in the journal: limits, additions that happen once, and changes that do not
 * wait. */
#include "controller/apis/openai/conversations_store.h"
#include "controller/apis/openai/responses_store_impl.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct why why;
static char dir[64], path[128];
static struct journal *journal;
static struct responses_store *store;

static void open_with(const struct responses_limits *l)
{
	static const char *const tables[] = {responses_schema, NULL};
	const struct journal_config cfg = {.path = path, .model = "m", .schemas = tables};
	cr_assert_eq(journal_open(&cfg, &journal, &why), 0, "%s", why.text);
	store = responses_store_open(journal, l);
}

static void init(void)
{
	snprintf(dir, sizeof dir, "/tmp/quern-responses-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
}

static void fini(void)
{
	journal_close(journal);
	responses_store_close(store);
	DIR *d = opendir(dir);
	for (struct dirent *e; (e = readdir(d));) {
		char name[512];
		snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
		unlink(name);
	}
	closedir(d);
	rmdir(dir);
}

TestSuite(responses_store, .init = init, .fini = fini, .timeout = 60);

static const struct responses_limits plenty = {1000, 1000, 1 << 30, 1000, 1 << 30, 100, 1 << 20};

/* Called when all changes so far are on the disk or refused. */
static void on_settled(void *user, int rc, const char *reason)
{
	int *out = user;
	(void)reason;
	pthread_mutex_lock(&store->lock);
	*out = rc;
	pthread_mutex_unlock(&store->lock);
}

static int settled(const int *rc)
{
	for (;;) {
		pthread_mutex_lock(&store->lock);
		const int now = *rc;
		pthread_mutex_unlock(&store->lock);
		if (now != 1)
			return now;
		usleep(1000);
	}
}

static void settle(void)
{
	int rc = 1;
	responses_store_delete(store, "resp_none", on_settled, &rc);
	cr_assert_eq(settled(&rc), 0);
}

/* Store a response of an owner, of about this many bytes. */
static void put(const char *owner, const char *id, size_t bytes, bool done, const char *conversation,
		const char *items)
{
	struct response_row row = {.background = !done, .done = done, .created_at = clock_unix()};
	snprintf(row.id, sizeof row.id, "%s", id);
	snprintf(row.owner, sizeof row.owner, "%s", owner);
	snprintf(row.conversation, sizeof row.conversation, "%s", conversation);
	row.request = xstrdup("{}");
	row.repeated = xstrdup("{}");
	row.context = xcalloc(1, bytes + 1);
	memset(row.context, ' ', bytes);
	row.body = xstrdup("{\"status\":\"in_progress\"}");
	responses_store_put(store, &row, items, NULL, NULL);
}

static int has(const char *owner, const char *id)
{
	struct response_row row;
	const int rc = responses_store_get(store, owner, id, &row);
	response_row_fini(&row);
	return rc;
}

static void make_older(void)
{
	settle();
	sqlite3 *raw;
	cr_assert_eq(sqlite3_open(path, &raw), SQLITE_OK);
	sqlite3_busy_timeout(raw, 10000);
	cr_assert_eq(sqlite3_exec(raw,
				  "UPDATE responses SET expires_at = expires_at - 1;"
				  "UPDATE conversations SET expires_at = expires_at - 1",
				  NULL, NULL, NULL),
		     SQLITE_OK);
	sqlite3_close(raw);
}

Test(responses_store, the_oldest_of_an_owner_go_first)
{
	struct responses_limits l = plenty;
	l.owner_rows = 3;
	open_with(&l);
	put("b", "resp_b", 1, true, "", NULL);
	for (int i = 0; i < 5; i++) {
		char id[16];
		snprintf(id, sizeof id, "resp_%d", i);
		put("a", id, 1, true, "", NULL);
		make_older();
	}
	cr_expect_eq(has("b", "resp_b"), 0, "another's are not touched");
	cr_expect_eq(has("a", "resp_0"), -ENOENT);
	cr_expect_eq(has("a", "resp_1"), -ENOENT);
	for (int i = 2; i < 5; i++) {
		char id[16];
		snprintf(id, sizeof id, "resp_%d", i);
		cr_expect_eq(has("a", id), 0, "%s", id);
	}
}

Test(responses_store, bytes_are_bounded_and_one_stays)
{
	struct responses_limits l = plenty;
	l.owner_bytes = 10000;
	open_with(&l);
	put("a", "resp_0", 4000, true, "", NULL);
	make_older();
	put("a", "resp_1", 4000, true, "", NULL);
	make_older();
	cr_expect_eq(has("a", "resp_0"), 0);
	put("a", "resp_2", 4000, true, "", NULL);
	make_older();
	cr_expect_eq(has("a", "resp_0"), -ENOENT);
	cr_expect_eq(has("a", "resp_1"), 0);
	put("a", "resp_3", 20000, true, "", NULL);
	settle();
	cr_expect_eq(has("a", "resp_2"), -ENOENT);
	cr_expect_eq(has("a", "resp_3"), 0, "the one that is larger than the bound");
}

Test(responses_store, what_is_not_done_stays)
{
	struct responses_limits l = plenty;
	l.owner_rows = 2;
	open_with(&l);
	put("a", "resp_0", 1, false, "", NULL);
	make_older();
	put("a", "resp_1", 1, true, "", NULL);
	make_older();
	put("a", "resp_2", 1, true, "", NULL);
	settle();
	cr_expect_eq(has("a", "resp_0"), 0);
	cr_expect_eq(has("a", "resp_1"), -ENOENT);
	cr_expect_eq(has("a", "resp_2"), 0);
}

/* An owner with much data does not displace the data of owners with little. */
Test(responses_store, beyond_all_bounds_the_largest_owner_loses)
{
	struct responses_limits l = plenty;
	l.bytes = 20000;
	open_with(&l);
	put("small", "resp_s", 1000, true, "", NULL);
	for (int i = 0; i < 8; i++) {
		char id[16];
		make_older();
		snprintf(id, sizeof id, "resp_%d", i);
		put("large", id, 4000, true, "", NULL);
	}
	settle();
	cr_expect_eq(has("small", "resp_s"), 0);
	cr_expect_eq(has("large", "resp_0"), -ENOENT);
	cr_expect_eq(has("large", "resp_7"), 0);
}

static void begin(const char *owner, const char *id)
{
	struct stored_conversation c = {.created_at = clock_unix(), .metadata = xstrdup("{}")};
	int rc = 1;
	snprintf(c.id, sizeof c.id, "%s", id);
	snprintf(c.owner, sizeof c.owner, "%s", owner);
	conversations_create(store, &c, NULL, on_settled, &rc);
	cr_assert_eq(settled(&rc), 0);
	stored_conversation_fini(&c);
}

static size_t n_items(const char *owner, const char *id)
{
	struct conversation_items all;
	cr_assert_eq(conversations_read(store, owner, id, &all), 0);
	const size_t n = all.n;
	conversation_items_fini(&all);
	return n;
}

Test(responses_store, conversations_count_and_one_that_is_added_to_stays)
{
	struct responses_limits l = plenty;
	l.owner_rows = 3;
	open_with(&l);
	begin("a", "conv_0");
	make_older();
	begin("a", "conv_1");
	make_older();
	begin("a", "conv_2");
	put("a", "resp_0", 1, true, "conv_0", "[{\"id\":\"msg_1\"}]");
	settle();
	struct stored_conversation c;
	cr_expect_eq(conversations_get(store, "a", "conv_1", &c), -ENOENT);
	cr_assert_eq(conversations_get(store, "a", "conv_0", &c), 0);
	stored_conversation_fini(&c);
	cr_expect_eq(n_items("a", "conv_0"), 1);
}

static const char items[] = "[{\"id\":\"msg_1\"},{\"id\":\"msg_2\"}]";

Test(responses_store, an_end_that_is_reported_again_adds_nothing)
{
	open_with(&plenty);
	begin("a", "conv_0");
	put("a", "resp_0", 1, false, "conv_0", NULL);
	cr_expect_eq(n_items("a", "conv_0"), 0);
	responses_store_finish(store, "resp_0", "{}", "conv_0", items, NULL, NULL);
	cr_expect_eq(n_items("a", "conv_0"), 2, "as soon as it is put");
	responses_store_finish(store, "resp_0", "{}", "conv_0", "[{\"id\":\"msg_3\"}]", NULL, NULL);
	settle();
	cr_expect_eq(n_items("a", "conv_0"), 2);
	put("a", "resp_1", 1, false, "conv_0", NULL);
	responses_store_delete(store, "resp_1", NULL, NULL);
	responses_store_finish(store, "resp_1", "{}", "conv_0", "[{\"id\":\"msg_4\"}]", NULL, NULL);
	settle();
	cr_expect_eq(n_items("a", "conv_0"), 2, "of one that was deleted");
}

/* This happens when a line of a batch is sent again. */
Test(responses_store, one_that_is_put_again_adds_nothing)
{
	open_with(&plenty);
	begin("a", "conv_0");
	put("a", "resp_0", 1, true, "conv_0", items);
	put("a", "resp_0", 1, true, "conv_0", "[{\"id\":\"msg_3\"}]");
	settle();
	cr_expect_eq(n_items("a", "conv_0"), 2);
	cr_expect_eq(has("a", "resp_0"), 0);
}

Test(responses_store, a_conversation_is_bounded)
{
	struct responses_limits l = plenty;
	l.conversation_items = 3;
	open_with(&l);
	begin("a", "conv_0");
	json_t *some = response_json(items);
	int rc = 1;
	conversations_add(store, "a", "conv_0", some, on_settled, &rc);
	cr_expect_eq(settled(&rc), 0);
	json_array_clear(some);
	json_array_append_new(some, json_pack("{s:s}", "id", "msg_3"));
	json_array_append_new(some, json_pack("{s:s}", "id", "msg_4"));
	rc = 1;
	conversations_add(store, "a", "conv_0", some, on_settled, &rc);
	cr_expect_eq(settled(&rc), -EINVAL);
	rc = 1;
	conversations_add(store, "b", "conv_0", some, on_settled, &rc);
	cr_expect_eq(settled(&rc), -ENOENT);
	cr_expect_eq(n_items("a", "conv_0"), 2);
	json_decref(some);
}

/* The store's count of bytes and rows is compared with the tables. */
Test(responses_store, what_is_stored_is_counted_to_nothing)
{
	sqlite3 *raw;
	sqlite3_stmt *q;
	open_with(&plenty);
	begin("a", "conv_0");
	put("a", "resp_0", 100, false, "conv_0", NULL);
	responses_store_finish(store, "resp_0", "{\"a\":\"\xe2\x82\xac\"}", "conv_0", items, NULL, NULL);
	settle();
	cr_assert_eq(sqlite3_open(path, &raw), SQLITE_OK);
	sqlite3_busy_timeout(raw, 10000);
	cr_assert_eq(sqlite3_prepare_v2(
			     raw,
			     "SELECT (SELECT bytes FROM stored_use WHERE owner = 'a') -"
			     " (SELECT sum(bytes) FROM responses) - (SELECT sum(bytes) FROM conversations)",
			     -1, &q, NULL),
		     SQLITE_OK);
	cr_assert_eq(sqlite3_step(q), SQLITE_ROW);
	cr_expect_eq(sqlite3_column_type(q, 0), SQLITE_INTEGER);
	cr_expect_eq(sqlite3_column_int64(q, 0), 0);
	sqlite3_finalize(q);
	int rc = 1;
	conversations_remove(store, "a", "conv_0", "msg_1", on_settled, &rc);
	cr_expect_eq(settled(&rc), 0);
	rc = 1;
	conversations_delete(store, "a", "conv_0", on_settled, &rc);
	cr_expect_eq(settled(&rc), 0);
	responses_store_delete(store, "resp_0", NULL, NULL);
	settle();
	cr_assert_eq(sqlite3_prepare_v2(raw,
					"SELECT (SELECT count(*) FROM stored_use) +"
					" (SELECT count(*) FROM conversation_items)",
					-1, &q, NULL),
		     SQLITE_OK);
	cr_assert_eq(sqlite3_step(q), SQLITE_ROW);
	cr_expect_eq(sqlite3_column_int64(q, 0), 0);
	sqlite3_finalize(q);
	sqlite3_close(raw);
}

/* The front end's thread puts, finishes and deletes while another thread reads from the database. */
Test(responses_store, changes_do_not_wait_for_readers)
{
	open_with(&plenty);
	begin("a", "conv_0");
	cr_assert_not_null(store_read_begin(store));
	put("a", "resp_0", 1, false, "conv_0", NULL);
	responses_store_finish(store, "resp_0", "{}", "conv_0", items, NULL, NULL);
	conversations_append(store, "a", "conv_0", items, NULL, NULL);
	responses_store_delete(store, "resp_1", NULL, NULL);
	settle();
	store_read_end(store);
	cr_expect_eq(has("a", "resp_0"), 0);
}

Test(responses_store, rows_are_their_owners)
{
	open_with(&plenty);
	begin("a", "conv_0");
	put("a", "resp_0", 1, true, "", NULL);
	struct stored_conversation c;
	struct conversation_items all;
	for (int i = 0; i < 2; i++) {
		cr_expect_eq(has("b", "resp_0"), -ENOENT);
		cr_expect_eq(conversations_get(store, "b", "conv_0", &c), -ENOENT);
		cr_expect_eq(conversations_read(store, "b", "conv_0", &all), -ENOENT);
		settle();
	}
	conversations_append(store, "b", "conv_0", items, NULL, NULL);
	settle();
	cr_expect_eq(n_items("a", "conv_0"), 0);
}

/* Holds the journal's thread in an operation, so that later operations wait. */
struct gate {
	struct journal_op op;
	pthread_mutex_t lock;
};

static int run_gate(struct journal_op *op, struct journal_db *db)
{
	struct gate *g = (struct gate *)op;
	(void)db;
	pthread_mutex_lock(&g->lock);
	pthread_mutex_unlock(&g->lock);
	return SQLITE_OK;
}

static void gate_done(struct journal_op *op, int rc, const char *reason)
{
	(void)op, (void)rc, (void)reason;
}

Test(responses_store, items_that_wait_for_the_disk_are_there)
{
	struct gate gate = {.op = {.run = run_gate, .done = gate_done}};
	open_with(&plenty);
	begin("a", "conv_0");
	pthread_mutex_init(&gate.lock, NULL);
	pthread_mutex_lock(&gate.lock);
	journal_put(journal, &gate.op);
	put("a", "resp_0", 1, false, "conv_0", NULL);
	cr_expect_eq(has("a", "resp_0"), 0);
	cr_expect_eq(n_items("a", "conv_0"), 0);
	responses_store_finish(store, "resp_0", "{}", "conv_0", items, NULL, NULL);
	cr_expect_eq(n_items("a", "conv_0"), 2);
	conversations_append(store, "a", "conv_0", "[{\"id\":\"msg_3\"}]", NULL, NULL);
	cr_expect_eq(n_items("a", "conv_0"), 3);
	struct response_row row;
	cr_assert_eq(responses_store_get(store, "a", "resp_0", &row), 0);
	cr_expect(row.done);
	cr_expect_str_eq(row.body, "{}");
	response_row_fini(&row);
	pthread_mutex_unlock(&gate.lock);
	settle();
	cr_expect_eq(n_items("a", "conv_0"), 3);
	pthread_mutex_destroy(&gate.lock);
}
