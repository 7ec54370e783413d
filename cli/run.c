#include "cli/run.h"

#include "base/buf.h"
#include "base/err.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/private.h"
#include "cli/request.h"
#include "cli/stream.h"
#include "cli/terminal/term.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct opt run_options[] = {
	OPT("json", OPT_FLAG, NULL, "print the whole result as JSON at the end"),
	OPT("verbose", OPT_FLAG, NULL, "show what the service logs"),
};

static const struct usage usage = {
	.name = "run",
	.words = "MODEL [PROMPT]",
	.about =
		"Starts a private service for one prompt, prints the text as it comes, and ends the "
		"service.\n"
		"PROMPT is a message to the model; where the model has no chat template, or with --raw, the\n"
		"beginning of a text to complete.  PROMPT \"-\" reads it from stdin, less one newline at its "
		"end.\n"
		"Without PROMPT on a terminal: a chat (/clear starts over, Ctrl-C stops an answer, Ctrl-D "
		"ends).",
	.min_words = 1,
	.max_words = 2,
};

static int run_once(struct client *c, const struct opts *o, const char *text, size_t n, char *why,
		    size_t why_n)
{
	struct stream how = {.json = opts_flag(o, "json")};
	json_t *request = request_new(o);
	bool chat;
	int rc = request_is_chat(o, c, &chat, why, why_n);
	if (!rc)
		rc = request_set_prompt(request, o, chat, text, n, why, why_n);
	if (!rc)
		rc = stream_job(c, request, &how, why, why_n);
	json_decref(request);
	return rc;
}

/* One turn of a chat: sends messages, which end with the user's, and adds the answer.  -ECONNRESET: the
 * service has gone away. */
static int answer(struct client *c, const struct opts *o, json_t *messages, char *why, size_t why_n)
{
	struct buf text = {0};
	struct stream how = {.text = &text};
	json_t *request = request_new(o);
	json_object_set(request, "messages", messages);
	interrupt_arm();
	int rc = stream_job(c, request, &how, why, why_n);
	interrupt_disarm();
	if (!rc || rc == -ECANCELED)
		request_add_message(messages, "assistant", text.p ? text.p : "", text.len, NULL, 0);
	else
		json_array_remove(messages, json_array_size(messages) - 1);
	json_decref(request);
	buf_fini(&text);
	return rc;
}

static int chat(struct client *c, const struct opts *o, char *why, size_t why_n)
{
	json_t *messages = request_messages(o);
	char *line = NULL;
	size_t cap = 0;
	int rc = 0;
	interrupt_disarm();
	for (;;) {
		printf("%s>%s ", term_style(stdout, TERM_GREEN), term_style(stdout, TERM_PLAIN));
		fflush(stdout);
		ssize_t n = getline(&line, &cap, stdin);
		if (n < 0)
			break;
		if (n && line[n - 1] == '\n')
			line[--n] = '\0';
		if (!n)
			continue;
		if (strcmp(line, "/clear") == 0) {
			json_decref(messages);
			messages = request_messages(o);
			continue;
		}
		if (strcmp(line, "/bye") == 0 || strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0)
			break;
		rc = request_add_message(messages, "user", line, (size_t)n, why, why_n);
		if (!rc)
			rc = answer(c, o, messages, why, why_n);
		if (rc == -ECONNRESET)
			break;
		if (rc && rc != -ECANCELED)
			term_error("%s", why);
		rc = 0;
	}
	if (!rc)
		putchar('\n');
	free(line);
	json_decref(messages);
	return rc;
}

/* While the service starts, the prompt is read; then waits for the service. */
static int serve_prompt(struct private_service *s, const struct opts *o, char *why, size_t why_n)
{
	struct client *c = NULL;
	char *text = NULL;
	size_t n = 0;
	bool chatting = o->n_words < 2 && term_is_tty(stdin) && !opts_flag(o, "json");
	int rc = 0;
	interrupt_arm();
	if (!chatting)
		rc = request_read_prompt(o->n_words < 2 ? "-" : o->words[1], &text, &n, why, why_n);
	if (!rc)
		rc = private_wait(s, why, why_n);
	if (!rc)
		rc = client_open(private_jobs(s), NULL, CONNECT_MS, &c, why, why_n);
	if (!rc && chatting)
		rc = chat(c, o, why, why_n);
	else if (!rc)
		rc = run_once(c, o, text, n, why, why_n);
	/* The supervisor knows why the service has gone away. */
	if (rc == -ECONNRESET)
		private_reason(s, why, why_n);
	client_close(c);
	free(text);
	interrupt_disarm();
	return rc;
}

int cmd_run(int argc, char **argv)
{
	struct opts o = {0};
	struct private_service s;
	char why[1024];
	opts_add(&o, request_mode_options, request_n_mode_options);
	opts_add(&o, request_options, request_n_options);
	opts_add(&o, launch_model_options, launch_n_model_options);
	opts_add(&o, run_options, sizeof run_options / sizeof *run_options);
	int status = command_parse(&o, &usage, argc, argv);
	if (status != COMMAND_GO_ON)
		goto out;
	int rc = request_check_mode(&o, why, sizeof why);
	if (!rc)
		rc = launch_check(&o, o.words[0], why, sizeof why);
	if (rc) {
		status = rc == -EINVAL ? term_usage("run", "%s", why) : term_error("%s", why);
		goto out;
	}
	rc = private_start(&s, &o, o.words[0], opts_flag(&o, "verbose"), why, sizeof why);
	if (!rc) {
		rc = serve_prompt(&s, &o, why, sizeof why);
		private_stop(&s);
	}
	status = term_finish(rc ? term_error("%s", why) : EXIT_SUCCESS);
out:
	opts_fini(&o);
	return status;
}
