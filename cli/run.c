#include "cli/commands.h"

#include "base/err.h"
#include "base/option_table.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/private.h"
#include "cli/request.h"
#include "cli/stream.h"
#include "cli/terminal/term.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct usage usage = {
	.name = "run",
	.words = "MODEL [PROMPT]",
	.about = "Starts a private service for one prompt, prints the text as it is generated, and ends the "
		 "service.\n"
		 "PROMPT is a message to the model; if the model has no chat template, or with --raw, PROMPT "
		 "is the\n"
		 "beginning of a text to complete.  PROMPT \"-\" reads it from stdin, without the newline at "
		 "its end.\n"
		 "Without PROMPT on a terminal: a chat (/clear starts over, Ctrl-C stops an answer, Ctrl-D "
		 "ends).",
	.min_words = 1,
	.max_words = 2,
};

static int run_once(struct client *c, const struct opts *o, const char *text, size_t n, struct why *why)
{
	json_t *request = request_new(o);
	struct client_about about;
	bool chat;
	int rc = request_is_chat(o, c, &about, &chat, why);
	if (!rc)
		rc = request_set_prompt(request, o, chat, text, n, why);
	struct stream how = {.json = opts_flag(o, "json"),
			     .reasoning = chat && about.reasoning,
			     .reasoning_open = about.reasoning_open,
			     .marks = about.marks};
	if (!rc)
		rc = stream_job(c, request, &how, why);
	json_decref(request);
	return rc;
}

/* Read the prompt while the service starts, wait for the service, and run the prompt or a chat. */
static int serve_prompt(struct private_service *s, struct opts *o, struct why *why)
{
	struct client *c = NULL;
	char *text = NULL;
	size_t n = 0;
	bool chatting = o->n_words < 2 && term_is_tty(stdin) && !opts_flag(o, "json");
	int rc = 0;
	interrupt_arm();
	if (!chatting)
		rc = request_read_prompt(o->n_words < 2 ? "-" : o->words[1], &text, &n, why);
	if (!rc)
		rc = private_wait(s, why);
	if (!rc)
		rc = client_open(private_jobs(s), NULL, CONNECT_MS, &c, why);
	if (!rc && chatting)
		rc = chat_run(&c, o, false, why);
	else if (!rc)
		rc = run_once(c, o, text, n, why);
	/* The supervisor knows why the service has gone away. */
	if (rc == -ECONNRESET)
		private_reason(s, why);
	client_close(c);
	free(text);
	interrupt_disarm();
	return rc;
}

static int run(struct opts *o)
{
	struct private_service s;
	struct why why;
	int rc = request_check_mode(o, &why);
	if (!rc)
		rc = launch_check(o, o->words[0], &why);
	if (rc == -EINVAL)
		return term_usage("run", "%s", why.text);
	if (!rc)
		rc = private_start(&s, o, o->words[0], opts_flag(o, "verbose"), &why);
	if (!rc) {
		rc = serve_prompt(&s, o, &why);
		private_stop(&s);
	}
	return rc ? term_error("%s", why.text) : EXIT_SUCCESS;
}

int cmd_run(int argc, char **argv)
{
	return command_run(&usage, OPTION_RUN, run, argc, argv);
}
