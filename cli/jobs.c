#include "cli/jobs.h"

#include "base/buf.h"
#include "base/err.h"
#include "cli/command.h"
#include "cli/stream.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	JOB_ID_SIZE = 80,   /* an id is 32 digits; the service refuses what is longer */
	MATCHES_SHOWN = 10, /* of an ambiguous prefix */
};

static const struct opt json_options[] = {
	OPT("json", OPT_FLAG, NULL, "as JSON"),
};

static const struct opt attach_options[] = {
	OPT("from", OPT_INT, "N", "first token of each output to print (0)", .lo = 0, .hi = INT32_MAX),
};

static const struct usage jobs_usage = {
	.name = "jobs",
	.words = "",
	.about = "Lists the jobs of a running service, youngest first.",
};
static const struct usage attach_usage = {
	.name = "attach",
	.words = "JOB",
	.about = "Prints a job's text from its start (or --from) and follows it.  Ctrl-C leaves the job "
		 "alone.\n"
		 "The first digits of a job's id are enough where no other job begins with them.",
	.min_words = 1,
	.max_words = 1,
};
static const struct usage cancel_usage = {
	.name = "cancel",
	.words = "JOB",
	.about = "Cancels a job; its output so far is kept as its result.\n"
		 "The first digits of a job's id are enough where no other job begins with them.",
	.min_words = 1,
	.max_words = 1,
};
static const struct usage result_usage = {
	.name = "result",
	.words = "JOB",
	.about = "Prints the result of a finished job.\n"
		 "The first digits of a job's id are enough where no other job begins with them.",
	.min_words = 1,
	.max_words = 1,
};

static void add_options(struct opts *o, bool json)
{
	opts_add(o, command_to_options, command_n_to_options);
	if (json)
		opts_add(o, json_options, sizeof json_options / sizeof *json_options);
}

/* "350 ms", "12 s", "3 min", "5 h" */
static const char *age_text(json_int_t ms, char *buf, size_t n)
{
	if (ms < 1000)
		snprintf(buf, n, "%" PRId64 " ms", (int64_t)ms);
	else if (ms < 120000)
		snprintf(buf, n, "%" PRId64 " s", (int64_t)ms / 1000);
	else if (ms < 2 * 3600000)
		snprintf(buf, n, "%" PRId64 " min", (int64_t)ms / 60000);
	else
		snprintf(buf, n, "%" PRId64 " h", (int64_t)ms / 3600000);
	return buf;
}

/* The id of the job that `typed` begins.  Only a unique prefix needs the list of jobs; what matches none goes
 * to the service, which says so. */
static int find_job(struct client *c, const char *typed, char job[JOB_ID_SIZE], char *why, size_t why_n)
{
	const size_t n = strlen(typed);
	size_t i, n_found = 0;
	const json_t *row;
	json_t *reply;
	struct buf found = {0};
	snprintf(job, JOB_ID_SIZE, "%s", typed);
	if (!n || n >= JOB_ID_SIZE - 1 || strspn(typed, "0123456789abcdef") != n)
		return 0;
	json_t *request = json_pack("{s:s}", "op", "jobs");
	int rc = client_call(c, request, CALL_MS, &reply, why, why_n);
	json_decref(request);
	if (rc)
		return rc;
	json_array_foreach(json_object_get(reply, "jobs"), i, row)
	{
		const char *id = json_string_value(json_object_get(row, "job"));
		if (!id || strncmp(id, typed, n) != 0)
			continue;
		if (n_found++ == 0)
			snprintf(job, JOB_ID_SIZE, "%s", id);
		if (n_found <= MATCHES_SHOWN)
			buf_printf(&found, "%s%s", n_found > 1 ? ", " : "", id);
	}
	json_decref(reply);
	if (n_found > 1)
		rc = err_why(why, why_n, -EINVAL, "%s begins %zu jobs: %s%s", typed, n_found, found.p,
			     n_found > MATCHES_SHOWN ? ", ..." : "");
	buf_fini(&found);
	return rc;
}

/* Sends {"op": op, "job": the job that the command's word begins}.  COMMAND_GO_ON, or the exit status. */
static int request_job(const struct opts *o, const char *op, json_t **reply)
{
	struct client *c;
	char job[JOB_ID_SIZE], why[1024];
	int status = command_connect(o, &c);
	if (status != COMMAND_GO_ON)
		return status;
	int rc = find_job(c, o->words[0], job, why, sizeof why);
	if (!rc) {
		json_t *request = json_pack("{s:s, s:s}", "op", op, "job", job);
		rc = request ? client_call(c, request, CALL_MS, reply, why, sizeof why)
			     : err_why(why, sizeof why, -EILSEQ, "the job's id is not valid UTF-8");
		json_decref(request);
	}
	client_close(c);
	return rc ? term_error("%s", why) : COMMAND_GO_ON;
}

static void print_jobs(const json_t *rows)
{
	struct table t = {0};
	size_t i;
	const json_t *row;
	char buf[64];
	table_row(&t, "JOB", "STATE", "PROMPT", "OUTPUT", "N", "AGE", "USER", NULL);
	json_array_foreach(rows, i, row)
	{
		const char *user = json_string_value(json_object_get(row, "user"));
		const char *code = json_string_value(json_object_get(row, "code"));
		const char *state = json_string_value(json_object_get(row, "state"));
		table_begin(&t);
		table_text(&t, json_string_value(json_object_get(row, "job")));
		table_text(&t, code                                              ? code
			       : json_is_true(json_object_get(row, "cancelled")) ? "cancelled"
										 : state);
		table_int(&t, json_object_get(row, "prompt_tokens"));
		table_int(&t, json_object_get(row, "completion_tokens"));
		table_int(&t, json_object_get(row, "n"));
		table_text(&t, age_text(json_integer_value(json_object_get(row, "age_ms")), buf, sizeof buf));
		table_text(&t, user ? user : "");
	}
	table_print(&t, stdout);
	table_fini(&t);
}

int cmd_jobs(int argc, char **argv)
{
	struct opts o = {0};
	json_t *reply;
	add_options(&o, true);
	int status = command_parse(&o, &jobs_usage, argc, argv);
	if (status == COMMAND_GO_ON)
		status = command_request(&o, "jobs", &reply);
	if (status == COMMAND_GO_ON) {
		const json_t *rows = json_object_get(reply, "jobs");
		if (opts_flag(&o, "json"))
			stream_print_json(reply);
		else if (json_array_size(rows))
			print_jobs(rows);
		else
			printf("no jobs\n");
		json_decref(reply);
		status = term_finish(EXIT_SUCCESS);
	}
	opts_fini(&o);
	return status;
}

int cmd_attach(int argc, char **argv)
{
	struct opts o = {0};
	struct client *c;
	char why[1024];
	add_options(&o, true);
	opts_add(&o, attach_options, sizeof attach_options / sizeof *attach_options);
	int status = command_parse(&o, &attach_usage, argc, argv);
	if (status == COMMAND_GO_ON)
		status = command_connect(&o, &c);
	if (status == COMMAND_GO_ON) {
		int64_t from = opts_int(&o, "from", 0);
		struct stream how = {.json = opts_flag(&o, "json"), .partial = from > 0, .watch = true};
		char job[JOB_ID_SIZE];
		json_t *request = NULL;
		int rc = find_job(c, o.words[0], job, why, sizeof why);
		if (!rc && !(request = json_pack("{s:s, s:s, s:I}", "op", "attach", "job", job, "from",
						 (json_int_t)from)))
			rc = err_why(why, sizeof why, -EILSEQ, "the job's id is not valid UTF-8");
		interrupt_arm();
		if (!rc)
			rc = stream_job(c, request, &how, why, sizeof why);
		status = term_finish(rc ? term_error("%s", why) : EXIT_SUCCESS);
		json_decref(request);
		client_close(c);
	}
	opts_fini(&o);
	return status;
}

int cmd_cancel(int argc, char **argv)
{
	struct opts o = {0};
	json_t *reply;
	add_options(&o, false);
	int status = command_parse(&o, &cancel_usage, argc, argv);
	if (status == COMMAND_GO_ON)
		status = request_job(&o, "cancel", &reply);
	if (status == COMMAND_GO_ON) {
		json_decref(reply);
		status = EXIT_SUCCESS;
	}
	opts_fini(&o);
	return status;
}

int cmd_result(int argc, char **argv)
{
	struct opts o = {0};
	json_t *reply;
	add_options(&o, true);
	int status = command_parse(&o, &result_usage, argc, argv);
	if (status == COMMAND_GO_ON)
		status = request_job(&o, "result", &reply);
	if (status == COMMAND_GO_ON) {
		if (opts_flag(&o, "json"))
			stream_print_json(reply);
		else
			stream_print_done(reply);
		json_decref(reply);
		status = term_finish(EXIT_SUCCESS);
	}
	opts_fini(&o);
	return status;
}
