#include "cli/jobs.h"

#include "base/err.h"
#include "cli/command.h"
#include "cli/stream.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
		 "alone.",
	.min_words = 1,
	.max_words = 1,
};
static const struct usage cancel_usage = {
	.name = "cancel",
	.words = "JOB",
	.about = "Cancels a job; its output so far is kept as its result.",
	.min_words = 1,
	.max_words = 1,
};
static const struct usage result_usage = {
	.name = "result",
	.words = "JOB",
	.about = "Prints the result of a finished job.",
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
		status = command_request(&o, "jobs", NULL, &reply);
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
		json_t *request = json_pack("{s:s, s:s, s:I}", "op", "attach", "job", o.words[0], "from",
					    (json_int_t)from);
		int rc = request ? 0 : err_why(why, sizeof why, -EILSEQ, "the job's id is not valid UTF-8");
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
		status = command_request(&o, "cancel", o.words[0], &reply);
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
		status = command_request(&o, "result", o.words[0], &reply);
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
