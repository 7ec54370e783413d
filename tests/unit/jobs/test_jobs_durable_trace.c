/* Durable jobs and their trace, across several runs of the controller. */
#include "tests/unit/jobs/durable_rig.h"

#include <sqlite3.h>

TestSuite(durable_trace, .init = init, .fini = fini, .timeout = 120);

static const char parent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

static struct submit *traced_request(void)
{
	struct submit *s = durable_request("k");
	cr_assert(trace_context_read(&s->trace, parent, "vendor=1"));
	return s;
}

/* Return the trace that `quern explain` shows for the job, or "". */
static const char *trace_of(const char *id)
{
	static char hex[TRACE_ID_HEX];
	json_t *o = jobs_explain(find(id), NULL, 0);
	const char *trace = json_string_value(json_object_get(o, "trace"));
	snprintf(hex, sizeof hex, "%s", trace ? trace : "");
	json_decref(o);
	return hex;
}

/* Run SQL between two runs of the controller. */
static void edit(const char *sql)
{
	sqlite3 *db;
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
	sqlite3_close(db);
}

static int count(const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *s;
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
	cr_assert_eq(sqlite3_step(s), SQLITE_ROW);
	const int n = sqlite3_column_int(s, 0);
	sqlite3_finalize(s);
	sqlite3_close(db);
	return n;
}

Test(durable_trace, is_kept_through_restarts)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(traced_request(), e);
	restart();
	cr_expect_str_eq(trace_of(e->job), "4bf92f3577b34da6a3ce929d0e0e4736");
	generate(job, 0, "Once upon");
	jobs_save(jobs);
	restart();
	cr_expect_str_eq(trace_of(e->job), "4bf92f3577b34da6a3ce929d0e0e4736");
	cr_expect_eq(sent[0]->n_had[0] > 0, true, "with its tokens");
	recorder_free(e);
}

Test(durable_trace, a_damaged_one_costs_the_trace_alone)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(traced_request(), e);
	generate(job, 0, "Once upon");
	jobs_save(jobs);
	crash();
	edit("UPDATE tokens SET data = zeroblob(40) WHERE output = -1");
	cr_assert_eq(start_service(), 0, "%s", why.text);
	cr_expect_str_eq(trace_of(e->job), "");
	cr_expect_eq(sent[0]->n_had[0] > 0, true, "with its tokens");
	recorder_free(e);
}

/* A later version's journal has job rows of a kind that this version does not know. */
Test(durable_trace, rows_of_an_unknown_kind_are_passed_over)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(traced_request(), e);
	generate(job, 0, "Once upon");
	jobs_save(jobs);
	crash();
	edit("INSERT INTO tokens(job, output, first, data) SELECT n, -1, -99, zeroblob(40) FROM jobs");
	cr_assert_eq(start_service(), 0, "%s", why.text);
	cr_expect_str_eq(trace_of(e->job), "4bf92f3577b34da6a3ce929d0e0e4736");
	cr_expect_eq(sent[0]->n_had[0] > 0, true, "with its tokens");
	finish(job, " a");
	recorder_free(e);
}

/* The service ends before its journal answers: the job and its trace reach the disk and are removed again. */
Test(durable_trace, nothing_is_left_of_it_when_its_job_was_retracted)
{
	struct recorder *e = recorder_new();
	start(traced_request(), e);
	stop_service();
	cr_expect_eq(e->code, E_NOT_READY);
	cr_expect_eq(count("SELECT count(*) FROM jobs"), 0);
	cr_expect_eq(count("SELECT count(*) FROM tokens"), 0);
	cr_assert_eq(start_service(), 0, "%s", why.text);
	recorder_free(e);
}

Test(durable_trace, nothing_is_left_of_it_when_its_job_has_ended)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(traced_request(), e);
	finish(job, "Once upon");
	crash();
	cr_expect_eq(count("SELECT count(*) FROM jobs"), 1);
	cr_expect_eq(count("SELECT count(*) FROM tokens"), 0);
	cr_assert_eq(start_service(), 0, "%s", why.text);
	recorder_free(e);
}
