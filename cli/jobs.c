#include "cli/commands.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/stream.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	JOB_ID_SIZE = 80,   /* an id is 32 digits; the service refuses longer ids */
	MATCHES_SHOWN = 10, /* number of matches of an ambiguous prefix to print */
};

static const struct usage jobs_usage = {
	.name = "jobs",
	.words = "",
	.about = "Lists the jobs of a running service, newest first.",
};
static const struct usage attach_usage = {
	.name = "attach",
	.words = "JOB",
	.about = "Prints a job's text from its start (or --from) and follows it.  Ctrl-C stops printing; the "
		 "job\n"
		 "continues.\n"
		 "The first digits of a job's id are enough if they are unique.",
	.min_words = 1,
	.max_words = 1,
};
static const struct usage cancel_usage = {
	.name = "cancel",
	.words = "JOB",
	.about = "Cancels a job; its output so far is kept as its result.\n"
		 "The first digits of a job's id are enough if they are unique.",
	.min_words = 1,
	.max_words = 1,
};
static const struct usage result_usage = {
	.name = "result",
	.words = "JOB",
	.about = "Prints the result of a finished job.\n"
		 "The first digits of a job's id are enough if they are unique.",
	.min_words = 1,
	.max_words = 1,
};

static const struct usage explain_usage = {
	.name = "explain",
	.words = "JOB",
	.about = "Shows where a job's time went: in the queue and why it waited, prompt, output, "
		 "preemptions, moves\n"
		 "after a worker was lost.  For a running job, shows the time so far.\n"
		 "The first digits of a job's id are enough if they are unique.",
	.min_words = 1,
	.max_words = 1,
};

/* Format an age: "350 ms", "12 s", "3 min", "5 h". */
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

/* Complete `typed` to the id of the only job that begins with it.  If none does, the service reports the
 * error. */
static int find_job(struct client *c, const char *typed, char job[JOB_ID_SIZE], struct why *why)
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
	int rc = client_call(c, request, CALL_MS, &reply, why);
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
		rc = err_why(why, -EINVAL, "%s begins %zu jobs: %s%s", typed, n_found, found.p,
			     n_found > MATCHES_SHOWN ? ", ..." : "");
	buf_fini(&found);
	return rc;
}

/* Send {"op": op, "job": the job that the command's word names}.  COMMAND_GO_ON, or the exit status. */
static int request_job(const struct opts *o, const char *op, json_t **reply)
{
	struct client *c;
	struct why why;
	char job[JOB_ID_SIZE];
	int status = command_connect(o, &c);
	if (status != COMMAND_GO_ON)
		return status;
	int rc = find_job(c, o->words[0], job, &why);
	if (!rc) {
		json_t *request = json_pack("{s:s, s:s}", "op", op, "job", job);
		rc = request ? client_call(c, request, CALL_MS, reply, &why)
			     : err_why(&why, -EILSEQ, "the job's id is not valid UTF-8");
		json_decref(request);
	}
	client_close(c);
	return rc ? term_error("%s", why.text) : COMMAND_GO_ON;
}

static void print_jobs(const json_t *reply)
{
	const json_t *rows = json_object_get(reply, "jobs");
	if (!json_array_size(rows)) {
		printf("no jobs\n");
		return;
	}
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

/* Print a reply, which is taken over, as JSON or with print(). */
static int show(const struct opts *o, json_t *reply, void (*print)(const json_t *))
{
	if (opts_flag(o, "json"))
		stream_print_json(reply);
	else
		print(reply);
	json_decref(reply);
	return EXIT_SUCCESS;
}

static int run_jobs(struct opts *o)
{
	json_t *reply;
	const int status = command_request(o, "jobs", &reply);
	return status == COMMAND_GO_ON ? show(o, reply, print_jobs) : status;
}

int cmd_jobs(int argc, char **argv)
{
	return command_run(&jobs_usage, OPTION_JOBS_LIST, run_jobs, argc, argv);
}

static int run_attach(struct opts *o)
{
	struct client *c;
	struct why why;
	const int status = command_connect(o, &c);
	if (status != COMMAND_GO_ON)
		return status;
	int64_t from = opts_int(o, "from");
	struct stream how = {.json = opts_flag(o, "json"), .partial = from > 0, .watch = true};
	char job[JOB_ID_SIZE];
	json_t *request = NULL;
	int rc = find_job(c, o->words[0], job, &why);
	if (!rc &&
	    !(request = json_pack("{s:s, s:s, s:I}", "op", "attach", "job", job, "from", (json_int_t)from)))
		rc = err_why(&why, -EILSEQ, "the job's id is not valid UTF-8");
	interrupt_arm();
	if (!rc)
		rc = stream_job(c, request, &how, &why);
	json_decref(request);
	client_close(c);
	return rc ? term_error("%s", why.text) : EXIT_SUCCESS;
}

int cmd_attach(int argc, char **argv)
{
	return command_run(&attach_usage, OPTION_ATTACH, run_attach, argc, argv);
}

static int run_cancel(struct opts *o)
{
	json_t *reply;
	const int status = request_job(o, "cancel", &reply);
	if (status != COMMAND_GO_ON)
		return status;
	json_decref(reply);
	return EXIT_SUCCESS;
}

int cmd_cancel(int argc, char **argv)
{
	return command_run(&cancel_usage, OPTION_CANCEL, run_cancel, argc, argv);
}

static int run_result(struct opts *o)
{
	json_t *reply;
	const int status = request_job(o, "result", &reply);
	return status == COMMAND_GO_ON ? show(o, reply, stream_print_done) : status;
}

int cmd_result(int argc, char **argv)
{
	return command_run(&result_usage, OPTION_RESULT, run_result, argc, argv);
}

/* ---- explain ---- */

static json_int_t get(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static const char *time_text(json_int_t us, char *buf, size_t n)
{
	if (us < 10000)
		snprintf(buf, n, "%.2f ms", (double)us / 1e3);
	else if (us < 1000000)
		snprintf(buf, n, "%.0f ms", (double)us / 1e3);
	else
		snprintf(buf, n, "%.2f s", (double)us / 1e6);
	return buf;
}

/* Append the reasons for the job's time in the queue. */
static void put_held(struct buf *b, const json_t *held)
{
	static const struct {
		const char *key, *text;
	} reasons[] = {{"blocks", "for free blocks of the KV cache"},
		       {"slots", "for a slot (--max-seqs)"},
		       {"step", "for room in a step"},
		       {"alone", "while a job ran alone"},
		       {"turn", "for its turn"}};
	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
		char buf[32];
		const json_int_t us = get(held, reasons[i].key);
		if (us)
			buf_printf(b, "%s%s %s", b->len ? "; " : "", time_text(us, buf, sizeof buf),
				   reasons[i].text);
	}
}

static void put_times(struct buf *b, json_int_t n)
{
	if (n > 1)
		buf_printf(b, "%" PRId64 " times", (int64_t)n);
}

/* Describe a phase in words. */
static void put_note(struct buf *b, const char *phase, const json_t *p)
{
	const json_int_t tokens = get(p, "tokens"), us = get(p, "us");
	if (strcmp(phase, "prepare") == 0) {
		buf_puts(b, "received, validated, tokenized");
	} else if (strcmp(phase, "unassigned") == 0) {
		buf_puts(b, "no replica took it");
	} else if (strcmp(phase, "queued") == 0) {
		put_held(b, json_object_get(p, "held_us"));
		if (get(p, "jobs_ahead"))
			buf_printf(b, "%sjobs ahead: %" PRId64, b->len ? "; " : "",
				   (int64_t)get(p, "jobs_ahead"));
		if (get(p, "later_jobs_first"))
			buf_printf(b, "; later ones that went first: %" PRId64,
				   (int64_t)get(p, "later_jobs_first"));
		if (get(p, "better_priority_first"))
			buf_printf(b, "; begun of a better priority: %" PRId64,
				   (int64_t)get(p, "better_priority_first"));
	} else if (strcmp(phase, "prefill") == 0 && json_object_get(p, "steps")) {
		buf_printf(b, "%" PRId64 " tokens in %" PRId64 " steps, %" PRId64 " from the cache",
			   (int64_t)tokens, (int64_t)get(p, "steps"), (int64_t)get(p, "cached_tokens"));
	} else if (strcmp(phase, "decode") == 0 && tokens > 1) {
		char buf[32];
		buf_printf(b, "%" PRId64 " tokens, %s each", (int64_t)tokens,
			   time_text(us / (tokens - 1), buf, sizeof buf));
	} else if (strcmp(phase, "preempted") == 0) {
		buf_puts(b, "its blocks were given to others ");
		put_times(b, get(p, "times"));
	} else if (strcmp(phase, "swapped") == 0) {
		buf_puts(b, "its blocks were on the host ");
		put_times(b, get(p, "times"));
	} else if (strcmp(phase, "moved") == 0) {
		buf_puts(b, "its worker was lost or drained ");
		put_times(b, get(p, "times"));
	} else if (strcmp(phase, "recompute") == 0) {
		buf_printf(b, "%" PRId64 " tokens computed again", (int64_t)tokens);
	} else if (strcmp(phase, "journal") == 0) {
		buf_puts(b, "its end was recorded");
	} else if (strcmp(phase, "other") == 0) {
		buf_puts(b, "between the threads of the controller");
	}
}

static void print_explained(const json_t *r)
{
	const json_int_t total = get(r, "total_us");
	const char *phase = json_string_value(json_object_get(r, "phase"));
	struct table t = {0};
	size_t i;
	const json_t *p;
	char buf[32];
	printf("job %s: %s%s%s, %s, %" PRId64 " prompt tokens, %" PRId64 " output tokens\n\n",
	       json_string_value(json_object_get(r, "job")), json_string_value(json_object_get(r, "state")),
	       phase ? ", " : "", phase ? phase : "", time_text(total, buf, sizeof buf),
	       (int64_t)get(r, "prompt_tokens"), (int64_t)get(r, "completion_tokens"));
	table_row(&t, "PHASE", "TIME", "%", "", NULL);
	json_array_foreach(json_object_get(r, "phases"), i, p)
	{
		const char *name = json_string_value(json_object_get(p, "phase"));
		const json_int_t us = get(p, "us");
		struct buf note = {0};
		put_note(&note, name, p);
		buf_putc(&note, '\0');
		table_begin(&t);
		table_text(&t, name);
		table_text(&t, time_text(us, buf, sizeof buf));
		snprintf(buf, sizeof buf, "%.0f", total ? 100.0 * (double)us / (double)total : 0);
		table_text(&t, buf);
		table_text(&t, note.p);
		buf_fini(&note);
	}
	table_print(&t, stdout);
	table_fini(&t);
	if (json_is_true(json_object_get(r, "resumed")))
		printf("\nresumed from the journal: its time before that is not counted\n");
	if (json_is_false(json_object_get(r, "in_memory")))
		printf("\nread from the journal, which has these times only\n");
}

static int run_explain(struct opts *o)
{
	json_t *reply;
	const int status = request_job(o, "explain", &reply);
	return status == COMMAND_GO_ON ? show(o, reply, print_explained) : status;
}

int cmd_explain(int argc, char **argv)
{
	return command_run(&explain_usage, OPTION_EXPLAIN, run_explain, argc, argv);
}
