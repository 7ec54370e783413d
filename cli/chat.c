#include "cli/chat.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/request.h"
#include "cli/stream.h"
#include "cli/terminal/environment.h"
#include "cli/terminal/line_editor.h"
#include "cli/terminal/term.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct chat {
	struct client **c; /* *c is NULL after the service has gone away */
	struct opts *o;
	bool reopen;
	struct client_about about;
	struct line_editor *in;
	struct conversation talk;
	bool over;   /* /quit was given */
	bool failed; /* without a terminal: a message or command has failed */
};

/* ---- answers ---- */

static void report(struct chat *h, const char *why)
{
	term_error("%s", why);
	h->failed = true;
}

/* Reconnect if needed.  The service may be a different one by now. */
static int connect_again(struct chat *h, struct why *why)
{
	int rc = *h->c ? 0 : command_open(h->o, h->c, why);
	return rc ? rc : client_about(*h->c, CALL_MS, &h->about, why);
}

/* Answer the conversation, which ends with a user message, and append the answer.  On failure, drop that
 * message.  0, -ECANCELED (stopped; the text so far is the answer), -ECONNRESET, or another error. */
static int answer(struct chat *h, struct why *why)
{
	struct buf text = {0};
	struct stream how = {.stay = true, .text = &text};
	json_t *request = request_new(h->o);
	json_object_set_new(request, "messages", conversation_all(&h->talk));
	int rc = connect_again(h, why);
	how.reasoning = h->about.reasoning;
	how.reasoning_open = h->about.reasoning_open;
	how.marks = h->about.marks;
	if (!rc)
		rc = stream_job(*h->c, request, &how, why);
	if (!rc || rc == -ECANCELED)
		conversation_add(&h->talk, "assistant", text.p ? text.p : "", text.len, NULL);
	else
		conversation_drop_last(&h->talk, "user");
	json_decref(request);
	buf_fini(&text);
	return rc;
}

/* answer(), but errors are reported.  Returns only errors that end the chat. */
static int answer_or_report(struct chat *h, struct why *why)
{
	int rc = answer(h, why);
	const bool lost = rc == -ECONNRESET || rc == -ETIMEDOUT;
	if (lost && !h->reopen)
		return rc;
	if (lost) {
		client_close(*h->c);
		*h->c = NULL;
	}
	if (rc && rc != -ECANCELED) {
		const bool full = strstr(why->text, "E_TOO_LONG") != NULL;
		report(h, why->text);
		if (full && line_editor_is_terminal(h->in))
			term_note("the conversation fills the context: /clear starts over");
	}
	return 0;
}

/* ---- commands ---- */

/* Commands receive the text after their name, without surrounding blanks.  0, or an error with its reason. */
static int do_help(struct chat *h, char *rest, struct why *why);

static int do_quit(struct chat *h, char *rest, struct why *why)
{
	(void)rest, (void)why;
	h->over = true;
	return 0;
}

static int do_clear(struct chat *h, char *rest, struct why *why)
{
	(void)rest, (void)why;
	conversation_clear(&h->talk);
	return 0;
}

static int do_system(struct chat *h, char *rest, struct why *why)
{
	if (strcmp(rest, "\"\"") == 0)
		return conversation_set_system(&h->talk, "", why);
	if (*rest)
		return conversation_set_system(&h->talk, rest, why);
	printf("%s\n", h->talk.system ? json_string_value(h->talk.system) : "no system message");
	return 0;
}

static int do_set(struct chat *h, char *rest, struct why *why)
{
	if (!*rest) {
		request_print_params(h->o, stdout);
		return 0;
	}
	char *value = rest + strcspn(rest, " \t");
	if (*value)
		*value++ = '\0';
	value += strspn(value, " \t");
	return request_set_param(h->o, rest, *value ? value : NULL, why);
}

static int do_unset(struct chat *h, char *rest, struct why *why)
{
	return request_unset_param(h->o, rest, why);
}

static int do_retry(struct chat *h, char *rest, struct why *why)
{
	(void)rest;
	if (!conversation_drop_last(&h->talk, "assistant"))
		return err_why(why, -EINVAL, "there is no answer to replace");
	return answer_or_report(h, why);
}

static int do_save(struct chat *h, char *rest, struct why *why)
{
	if (!*rest)
		return err_why(why, -EINVAL, "/save needs a file name");
	return conversation_save(&h->talk, rest, why);
}

static int do_load(struct chat *h, char *rest, struct why *why)
{
	if (!*rest)
		return err_why(why, -EINVAL, "/load needs a file name");
	return conversation_load(&h->talk, rest, why);
}

static const struct chat_command {
	const char *name, *words, *about; /* about NULL: a synonym */
	int (*run)(struct chat *h, char *rest, struct why *why);
} chat_commands[] = {
	{"help", "", "list the commands", do_help},
	{"system", "TEXT", "set the system message; \"\": remove it; without TEXT: show it", do_system},
	{"clear", "", "start over: forget all messages but the system's", do_clear},
	{"retry", "", "answer the last message again", do_retry},
	{"set", "NAME VALUE", "set a sampling option, such as: /set temperature 0.7; alone: show all",
	 do_set},
	{"unset", "NAME", "restore the model's default of a sampling option", do_unset},
	{"save", "FILE", "write the conversation to a file, as JSON", do_save},
	{"load", "FILE", "continue a saved conversation", do_load},
	{"quit", "", "end the chat; so does Ctrl-D", do_quit},
	{"exit", "", NULL, do_quit},
	{"bye", "", NULL, do_quit},
};
enum { N_CHAT_COMMANDS = sizeof chat_commands / sizeof *chat_commands };

static int do_help(struct chat *h, char *rest, struct why *why)
{
	(void)h, (void)rest, (void)why;
	for (size_t i = 0; i < N_CHAT_COMMANDS; i++) {
		char left[64];
		snprintf(left, sizeof left, "/%s %s", chat_commands[i].name, chat_commands[i].words);
		if (chat_commands[i].about)
			printf("  %-18s  %s\n", left, chat_commands[i].about);
	}
	printf("\n  A line that ends with \\ continues on the next; \"\"\" begins and ends a message of "
	       "several "
	       "lines,\n  and Alt-Enter is a newline.  // begins a message with a slash.  Ctrl-C stops an "
	       "answer.\n");
	return 0;
}

/* Run the command in line, which begins with a slash. */
static int run_command(struct chat *h, char *line, struct why *why)
{
	const char *names[N_CHAT_COMMANDS];
	char *name = line + 1, *rest = name + strcspn(name, " \t\n");
	if (*rest)
		*rest++ = '\0';
	rest += strspn(rest, " \t\n");
	for (size_t n = strlen(rest); n && strchr(" \t\n", rest[n - 1]); n--)
		rest[n - 1] = '\0';
	for (size_t i = 0; i < N_CHAT_COMMANDS; i++) {
		names[i] = chat_commands[i].name;
		if (strcmp(chat_commands[i].name, name) == 0)
			return chat_commands[i].run(h, rest, why);
	}
	const char *near = nearest_name(name, names, N_CHAT_COMMANDS);
	return err_why(why, -EINVAL, "unknown command /%.60s; %s%s%s", name, near ? "did you mean /" : "",
		       near ? near : "",
		       near ? "?" : "/help lists them, and // begins a message with a slash");
}

/* ---- input ---- */

static bool ends_with(const struct buf *b, const char *s)
{
	const size_t n = strlen(s);
	return b->len >= n && memcmp(b->p + b->len - n, s, n) == 0;
}

/* Read a message or command of one or more lines.  Errors as line_editor_read(). */
static int read_message(struct chat *h, struct buf *message)
{
	static const char quotes[] = "\"\"\"";
	const size_t n_quotes = sizeof quotes - 1;
	const char *line;
	size_t n;
	buf_clear(message);
	int rc = line_editor_read(h->in, ">", &line, &n);
	if (rc)
		return rc;
	line_editor_remember(h->in, line);
	const bool quoted = n >= n_quotes && memcmp(line, quotes, n_quotes) == 0;
	buf_put(message, line + (quoted ? n_quotes : 0), n - (quoted ? n_quotes : 0));
	while (quoted ? !ends_with(message, quotes) : ends_with(message, "\\")) {
		if (!quoted)
			message->p[--message->len] = '\0';
		rc = line_editor_read(h->in, "...", &line, &n);
		if (rc == -ENODATA)
			return 0; /* the input has ended: the message is complete */
		if (rc)
			return rc;
		line_editor_remember(h->in, line);
		buf_putc(message, '\n');
		buf_put(message, line, n);
	}
	if (quoted) {
		message->len -= n_quotes;
		message->p[message->len] = '\0';
	}
	return 0;
}

static bool is_blank(const struct buf *b)
{
	return !b->len || strspn(b->p, " \t\n") == b->len;
}

/* Read and handle one message or command.  0 to continue; errors end the chat. */
static int turn(struct chat *h, struct buf *message, struct why *why)
{
	interrupt_arm();
	int rc = read_message(h, message);
	if (rc == -EINTR && (!line_editor_is_terminal(h->in) || interrupt_signal() != SIGINT))
		return err_why(why, rc, "ended by SIG%s", sigabbrev_np(interrupt_signal()));
	if (rc == -EINTR || (!rc && is_blank(message)))
		return 0;
	if (rc) {
		if (rc != -ENODATA)
			return err_why(why, rc, "cannot read the input: %s", strerror(-rc));
		h->over = true;
		return 0;
	}
	const bool slash = message->p[0] == '/', text = slash && message->p[1] == '/';
	interrupt_arm();
	if (slash && !text) {
		rc = run_command(h, message->p, why);
		if (rc && rc != -ECONNRESET && rc != -ETIMEDOUT) {
			report(h, why->text);
			rc = 0;
		}
	} else {
		rc = conversation_add(&h->talk, "user", message->p + text, message->len - text, why);
		if (rc)
			report(h, why->text);
		rc = rc ? 0 : answer_or_report(h, why);
	}
	if (!rc && interrupt_pending() && interrupt_signal() != SIGINT)
		return err_why(why, -EINTR, "ended by SIG%s", sigabbrev_np(interrupt_signal()));
	return rc;
}

/* Return the path of the history file, and make its folder; NULL: no history is kept.  The caller frees the
 * path. */
static char *history_file(void)
{
	struct environment env = environment_read();
	if (!env.state_dir && !env.home)
		return NULL;
	char *path = env.state_dir ? xasprintf("%s/quern", env.state_dir)
				   : xasprintf("%s/.local/state/quern", env.home);
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		mkdir(path, 0700);
		*p = '/';
	}
	mkdir(path, 0700);
	char *file = file_join(path, "history");
	free(path);
	return file;
}

int chat_run(struct client **c, struct opts *o, bool reopen, struct why *why)
{
	struct chat h = {.c = c, .o = o, .reopen = reopen};
	struct buf message = {0};
	int rc = client_about(*c, CALL_MS, &h.about, why);
	if (!rc && !h.about.chat)
		rc = err_why(why, -ENOTSUP,
			     "%s has no chat template; give a text that it completes: quern %s",
			     *h.about.model ? h.about.model : "the model",
			     reopen ? "submit PROMPT" : "run MODEL PROMPT");
	if (!rc)
		rc = conversation_init(&h.talk, opts_text(o, "system"), why);
	if (rc)
		return rc;
	char *history = history_file();
	h.in = line_editor_open(history);
	free(history);
	if (line_editor_is_terminal(h.in))
		printf("%s%s; /help lists commands, Ctrl-D leaves%s\n", term_style(stdout, TERM_DIM),
		       h.about.model, term_style(stdout, TERM_PLAIN));
	while (!rc && !h.over)
		rc = turn(&h, &message, why);
	if (!rc && h.failed && !line_editor_is_terminal(h.in))
		rc = err_why(why, -EIO, "not every line was answered");
	interrupt_disarm();
	line_editor_close(h.in);
	conversation_fini(&h.talk);
	buf_fini(&message);
	return rc;
}

static const struct usage usage = {
	.name = "chat",
	.words = "",
	.about = "Chats with the model of a running service.  Ctrl-C stops an answer, Ctrl-D ends the chat; "
		 "/help\n"
		 "lists commands.  Without a terminal, each line of stdin is a message or a command.",
};

static int run(struct opts *o)
{
	struct client *c;
	struct why why;
	const int status = command_connect(o, &c);
	if (status != COMMAND_GO_ON)
		return status;
	const int rc = chat_run(&c, o, true, &why);
	client_close(c);
	return rc ? term_error("%s", why.text) : EXIT_SUCCESS;
}

int cmd_chat(int argc, char **argv)
{
	return command_run(&usage, OPTION_CHAT, run, argc, argv);
}
