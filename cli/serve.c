#include "cli/commands.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/option_table.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/foreign.h"
#include "cli/launch.h"
#include "cli/terminal/notify.h"
#include "cli/supervise.h"
#include "cli/terminal/environment.h"
#include "cli/terminal/term.h"

#include <string.h>

/* Time to cancel running jobs and finish the current step. */
static const int64_t grace_us = 10 * 1000000LL;
/* Four times the interval of the controller's "alive" lines. */
static const int64_t alive_us = 20 * 1000000LL;
static const int64_t status_us = 1000000; /* interval between two loading states for the service manager */

struct announce {
	bool json;
	struct notify notify;
	int64_t status_us; /* time of the last state sent to the service manager */
	bool done; /* the first ready line was announced; later ones only print a note, or nothing with
		    * --json */
};

/* Print one line for each address of the list. */
static void print_http(const char *what, const char *addresses, bool tls)
{
	for (const char *p = addresses; p && *p && strcmp(p, "none") != 0;) {
		const int n = (int)strcspn(p, ",");
		const char *scheme = !strncmp(p, "unix:", 5) ? "" : tls ? "https://" : "http://";
		printf("  %-5s %s%.*s\n", what, scheme, n, p);
		p += n + (p[n] == ',');
	}
}

static void print_place(const char *what, const char *where, const char *hint)
{
	if (!where || !*where || strcmp(where, "none") == 0)
		return;
	printf("  %-5s %s%s%s%s%s\n", what, where, hint ? "   " : "", term_style(stdout, TERM_DIM),
	       hint ? hint : "", term_style(stdout, TERM_PLAIN));
}

/* Format a size of at least these bytes, as an option's value. */
static const char *size_text(json_int_t bytes, char *buf, size_t n)
{
	const json_int_t mib = (bytes + (1 << 20) - 1) >> 20;
	if (mib < 10 << 10)
		snprintf(buf, n, "%lldM", (long long)mib);
	else
		snprintf(buf, n, "%lldG", (long long)((mib + 1023) >> 10));
	return buf;
}

static void show_loading(void *user, const json_t *loading)
{
	struct announce *a = user;
	const int64_t now = clock_us();
	launch_show_loading(loading);
	if (now - a->status_us < status_us)
		return;
	a->status_us = now;
	const char *doing = json_string_value(json_object_get(loading, "doing"));
	notify_send(&a->notify, "STATUS=loading: %s, %.0f of %.0f MiB", doing ? doing : "",
		    json_number_value(json_object_get(loading, "done")) / (1 << 20),
		    json_number_value(json_object_get(loading, "total")) / (1 << 20));
}

static void announce(void *user, const json_t *line)
{
	struct announce *a = user;
	char size[32], hint[400] = "quern submit \"Tell me a story.\"";
	const char *model = json_string_value(json_object_get(line, "model"));
	notify_send(&a->notify, "READY=1\nSTATUS=serves %s", model ? model : "the model");
	if (a->done) {
		if (!a->json)
			term_note("ready again");
		return;
	}
	a->done = true;
	term_progress_end();
	if (a->json) {
		json_dumpf(line, stdout, JSON_COMPACT);
		putchar('\n');
		fflush(stdout);
		return;
	}
	const char *jobs = json_string_value(json_object_get(line, "jobs"));
	char local[LAUNCH_JOBS_SIZE];
	if (jobs && strcmp(jobs, launch_jobs_endpoint(local)) != 0)
		snprintf(hint, sizeof hint, "quern submit --to %s \"Tell me a story.\"", jobs);
	printf("%squern %s serves %s%s (context %lld tokens, ready after %lld ms)\n",
	       term_style(stdout, TERM_BOLD), QUERN_VERSION, model ? model : "the model",
	       term_style(stdout, TERM_PLAIN),
	       (long long)json_integer_value(json_object_get(line, "max_context")),
	       (long long)json_integer_value(json_object_get(line, "ms")));
	const json_int_t full = json_integer_value(json_object_get(line, "full_kv_bytes"));
	if (full > 0)
		printf("  note  the KV cache does not hold the whole context of %lld tokens, which takes "
		       "--kv-bytes %s\n",
		       (long long)json_integer_value(json_object_get(line, "model_context")),
		       size_text(full, size, sizeof size));
	print_place("jobs", jobs, hint);
	print_http("http", json_string_value(json_object_get(line, "http")),
		   json_is_true(json_object_get(line, "https")));
	print_http("metrics", json_string_value(json_object_get(line, "metrics_http")), false);
	print_place("bus", json_string_value(json_object_get(line, "bus")), NULL);
	if (term_is_tty(stdout))
		printf("Ctrl-C ends it.\n");
	fflush(stdout);
}

static const struct usage usage = {
	.name = "serve",
	.words = "MODEL",
	.about = "Starts a service for MODEL (a directory in Hugging Face layout) on this machine, prints "
		 "its\n"
		 "endpoints, and runs until Ctrl-C.  Then running requests may finish (--drain-timeout); a "
		 "second\n"
		 "Ctrl-C cuts them.\n"
		 "Every option can also be an environment variable (QUERN_MAX_SEQS=64 is --max-seqs 64,\n"
		 "QUERN_STRICT=true is a flag, QUERN_MODEL is the model), or a line of --config FILE.  The "
		 "command\n"
		 "line wins, then the environment.  An option of vLLM, llama.cpp or SGLang is accepted if it "
		 "means\n"
		 "the same, or asks for what quern does anyway; for others, the error names the option to "
		 "use.",
	.max_words = 1,
};

/* Parts of the HTTP address that earlier sources of options have set. */
struct address_parts {
	bool http, host, port;
};

/* Call after each source of options: --host and --port of a later source must not change the --http of an
 * earlier source. */
static void keep_address(struct opts *o, struct address_parts *before)
{
	if (before->http && !before->host)
		opts_unset(o, "host");
	if (before->http && !before->port)
		opts_unset(o, "port");
	*before = (struct address_parts){opts_has(o, "http"), opts_has(o, "host"), opts_has(o, "port")};
}

/* Read all options and the model.  Returns COMMAND_GO_ON, or the exit status after reporting an error. */
static int read_options(struct opts *o, int argc, char **argv, const char **model)
{
	struct why why;
	opts_add_program(o, OPTION_SERVE);
	opts_alias(o, foreign_options, foreign_n_options);
	int status = command_parse(o, &usage, argc, argv);
	if (status != COMMAND_GO_ON)
		return status;
	if (o->n_words && opts_has(o, "model"))
		return term_usage("serve", "MODEL is given twice: \"%.100s\" and \"%.100s\"",
				  opts_text(o, "model"), o->words[0]);
	struct address_parts parts = {0};
	keep_address(o, &parts);
	int rc = opts_env(o, "QUERN_", environment_all(), &why);
	if (rc)
		return command_refused(o, "serve", rc);
	keep_address(o, &parts);
	if (opts_has(o, "config") && opts_ini_file(o, opts_text(o, "config"), "serve", &why))
		return term_error("%s", why.text);
	keep_address(o, &parts);
	if (opts_check_taken(o, &why))
		return term_usage("serve", "%s", why.text);
	*model = o->n_words ? o->words[0] : opts_text(o, "model");
	return *model ? COMMAND_GO_ON : term_usage("serve", "MODEL is missing");
}

/* Print one notice for all options of other programs that have no effect. */
static void note_taken(const struct opts *o)
{
	struct buf b = {0};
	for (size_t i = 0; i < o->n_taken; i++)
		buf_printf(&b, "%s%s", i ? "; " : "", o->taken[i].text);
	if (b.len)
		term_note("without effect: %s", b.p);
	buf_fini(&b);
}

int cmd_serve(int argc, char **argv)
{
	struct opts o = {0};
	struct launch l;
	struct why why = {""};
	const char *model;
	struct announce a = {.notify.fd = -1};
	int status = read_options(&o, argc, argv, &model);
	if (status != COMMAND_GO_ON)
		goto out;
	a.json = opts_flag(&o, "json");
	const int format = log_format_parse(opts_text(&o, "log-format"));
	if (format == LOG_JSON)
		log_init("quern", LOG_INFO, LOG_JSON);
	if (format == LOG_JSON || !term_is_tty(stderr))
		term_to_log("serve");
	note_taken(&o);
	const struct environment env = environment_read();
	if (notify_open(&a.notify, &env, &why)) {
		status = term_error("%s", why.text);
		goto out;
	}
	int rc = launch_open(&l, &o, model, false, &why);
	if (rc) {
		notify_send(&a.notify, "STATUS=%s", why.text);
		status = rc == -EINVAL ? term_usage("serve", "%s", why.text) : term_error("%s", why.text);
		goto out;
	}
	struct supervise_config cfg = {
		.end_fd = -1,
		.notify = &a.notify,
		.alive_us = alive_us,
		.grace_us = grace_us,
		/* On a terminal, SIGHUP ends the service, because the terminal has closed. */
		.reloads = !term_controls(),
		.on_ready = announce,
		.on_loading = show_loading,
		.user = &a,
	};
	launch_supervise(&l, &cfg);
	rc = supervise(&cfg, &why);
	term_progress_end();
	launch_close(&l);
	if (rc)
		notify_send(&a.notify, "STATUS=%s", why.text);
	status = rc ? term_error("%s", why.text) : term_finish(0);
out:
	notify_close(&a.notify);
	opts_fini(&o);
	return status;
}
