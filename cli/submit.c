#include "cli/commands.h"

#include "base/err.h"
#include "base/option_table.h"
#include "cli/batch_file.h"
#include "cli/command.h"
#include "cli/request.h"
#include "cli/stream.h"
#include "cli/terminal/term.h"

#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
	.name = "submit",
	.words = "PROMPT | --batch FILE",
	.about = "Submits a job to a running service and prints its text as it is generated.  PROMPT is a "
		 "message to\n"
		 "the model; if the model has no chat template, or with --raw, PROMPT is the beginning of a "
		 "text to\n"
		 "complete.  PROMPT \"-\" reads it from stdin, without the newline at its end.  Ctrl-C "
		 "cancels the job.\n"
		 "With --batch, runs a file of OpenAI batch lines; after Ctrl-C the same command continues.",
	.max_words = 1,
};

/* Add the options of submit that are not sampling parameters. */
static int add_job_keys(json_t *request, const struct opts *o, struct why *why)
{
	static const char *const names[] = {"user", "idempotency-key", "cache-salt"};
	static const char *const keys[] = {"user", "key", "cache_salt"};
	for (int i = 0; i < 3; i++) {
		if (!opts_has(o, names[i]))
			continue;
		json_t *s = json_string(opts_text(o, names[i]));
		if (!s)
			return err_why(why, -EILSEQ, "--%s is not valid UTF-8", names[i]);
		json_object_set_new(request, keys[i], s);
	}
	if (opts_has(o, "priority"))
		json_object_set_new(request, "priority", json_integer(opts_int(o, "priority")));
	if (opts_flag(o, "durable"))
		json_object_set_new(request, "durable", json_true());
	if (opts_flag(o, "detach")) {
		json_object_set_new(request, "stream", json_false());
		json_object_set_new(request, "on_disconnect", json_string("keep"));
	}
	return 0;
}

static int detach(struct client *c, json_t *request, bool json, struct why *why)
{
	json_t *reply;
	int rc = client_call(c, request, CALL_MS, &reply, why);
	if (rc)
		return rc;
	const char *job = json_string_value(json_object_get(reply, "job"));
	if (json)
		stream_print_json(reply);
	else
		printf("%s\n", job ? job : "");
	json_decref(reply);
	return 0;
}

static int submit(struct client *c, const struct opts *o, struct why *why)
{
	char *text;
	size_t n;
	int rc = request_read_prompt(o->words[0], &text, &n, why);
	if (rc)
		return rc;
	json_t *request = request_new(o);
	struct client_about about;
	bool chat;
	rc = request_is_chat(o, c, &about, &chat, why);
	if (!rc)
		rc = request_set_prompt(request, o, chat, text, n, why);
	free(text);
	if (!rc)
		rc = add_job_keys(request, o, why);
	struct stream how = {.json = opts_flag(o, "json"),
			     .reasoning = chat && about.reasoning,
			     .reasoning_open = about.reasoning_open,
			     .marks = about.marks};
	if (!rc && opts_flag(o, "detach"))
		rc = detach(c, request, how.json, why);
	else if (!rc)
		rc = stream_job(c, request, &how, why);
	json_decref(request);
	return rc;
}

/* Return a given option that --batch does not accept, because the file's lines specify it.  NULL: none. */
static const char *not_of_a_batch(const struct opts *o)
{
	static const char *const own[] = {"to",          "key",     "server-key", "batch", "output",
					  "concurrency", "durable", "priority",   "help"};
	for (size_t i = 0; i < o->n_values; i++) {
		const char *name = o->values[i].spec->name;
		bool heeded = !opts_has(o, name);
		for (size_t k = 0; !heeded && k < sizeof own / sizeof *own; k++)
			heeded = strcmp(name, own[k]) == 0;
		if (!heeded)
			return name;
	}
	return NULL;
}

/* Refuse combinations that make no sense.  COMMAND_GO_ON, or the exit status. */
static int check_usage(const struct opts *o)
{
	bool batch = opts_has(o, "batch");
	if (batch != (o->n_words == 0))
		return term_usage("submit", batch ? "--batch and a PROMPT" : "PROMPT is missing");
	const char *name = batch ? not_of_a_batch(o) : NULL;
	if (name)
		return term_usage("submit", "--%s is not for --batch: set it in the lines of the file", name);
	if (!batch && (opts_has(o, "output") || opts_has(o, "concurrency")))
		return term_usage("submit", "--%s is for --batch only",
				  opts_has(o, "output") ? "output" : "concurrency");
	struct why why;
	if (request_check_mode(o, &why))
		return term_usage("submit", "%s", why.text);
	return COMMAND_GO_ON;
}

static int run(struct opts *o)
{
	struct client *c;
	struct why why;
	int status = check_usage(o);
	if (status == COMMAND_GO_ON)
		status = command_connect(o, &c);
	if (status != COMMAND_GO_ON)
		return status;
	interrupt_arm();
	if (opts_has(o, "batch"))
		status = batch_file_run(&c, o);
	else
		status = submit(c, o, &why) ? term_error("%s", why.text) : EXIT_SUCCESS;
	client_close(c);
	return status;
}

int cmd_submit(int argc, char **argv)
{
	return command_run(&usage, OPTION_SUBMIT, run, argc, argv);
}
