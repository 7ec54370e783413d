#include "cli/serve.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/foreign.h"
#include "cli/launch.h"
#include "cli/terminal/notify.h"
#include "cli/supervise.h"
#include "cli/terminal/environment.h"
#include "cli/terminal/term.h"

#include <string.h>

/* Time to cancel running jobs and finish the step under way. */
static const int64_t grace_us = 10 * 1000000LL;
/* Four times what the controller takes between two signs of life. */
static const int64_t alive_us = 20 * 1000000LL;
static const int64_t status_us = 1000000; /* between two states of loading for the service manager */

static const struct opt serve_options[] = {
	OPT("config", OPT_TEXT, "FILE", "INI file with these options by name"),
	OPT("model", OPT_TEXT, NULL, NULL),
	OPT("json", OPT_FLAG, NULL, "print the endpoints as JSON once the service is ready"),
};

struct announce {
	bool json;
	struct notify notify;
	int64_t status_us; /* when the service manager got the last state */
	bool done; /* the first ready line was announced; later ones are a note, or nothing with --json */
};

static void print_place(const char *what, const char *where, const char *scheme, const char *hint)
{
	if (!where || !*where || strcmp(where, "none") == 0)
		return;
	printf("  %-5s %s%s%s%s%s%s\n", what, scheme, where, hint ? "   " : "", term_style(stdout, TERM_DIM),
	       hint ? hint : "", term_style(stdout, TERM_PLAIN));
}

/* A pool of at least these bytes, as an option's value. */
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
	print_place("jobs", jobs, "", hint);
	print_place("http", json_string_value(json_object_get(line, "http")),
		    json_is_true(json_object_get(line, "https")) ? "https://" : "http://", NULL);
	print_place("bus", json_string_value(json_object_get(line, "bus")), "", NULL);
	if (term_is_tty(stdout))
		printf("Ctrl-C ends it.\n");
	fflush(stdout);
}

static const struct usage usage = {
	.name = "serve",
	.words = "MODEL",
	.about =
		"Starts a service for MODEL (a directory in Hugging Face layout) on this machine, prints "
		"its\n"
		"endpoints, and runs until Ctrl-C; then running requests may finish (--drain-timeout), and a "
		"second\n"
		"Ctrl-C cuts them.\n"
		"Every option can also come from the environment (QUERN_MAX_SEQS=64 is --max-seqs 64,\n"
		"QUERN_STRICT=true a flag, QUERN_MODEL the model), and from --config FILE.  The command "
		"line\n"
		"wins, then the environment.  Options of vLLM, llama.cpp and SGLang are answered\n"
		"with those here.",
	.max_words = 1,
};

/* COMMAND_GO_ON with the model, or the exit status after an error was reported. */
static int read_options(struct opts *o, int argc, char **argv, const char **model)
{
	char why[512];
	opts_add(o, launch_listen_options, launch_n_listen_options);
	opts_add(o, launch_model_options, launch_n_model_options);
	opts_add(o, serve_options, sizeof serve_options / sizeof *serve_options);
	opts_alias(o, foreign_options, foreign_n_options);
	int status = command_parse(o, &usage, argc, argv);
	if (status != COMMAND_GO_ON)
		return status;
	if (o->n_words && opts_has(o, "model"))
		return term_usage("serve", "MODEL is given twice: \"%.100s\" and \"%.100s\"",
				  opts_text(o, "model", ""), o->words[0]);
	if (opts_env(o, "QUERN_", environment_all(), why, sizeof why))
		return term_usage("serve", "%s", why);
	if (opts_has(o, "config") && opts_ini_file(o, opts_text(o, "config", NULL), "serve", why, sizeof why))
		return term_error("%s", why);
	*model = o->n_words ? o->words[0] : opts_text(o, "model", NULL);
	return *model ? COMMAND_GO_ON : term_usage("serve", "MODEL is missing");
}

int cmd_serve(int argc, char **argv)
{
	struct opts o = {0};
	struct launch l;
	char why[1024] = "";
	const char *model;
	struct announce a = {.notify.fd = -1};
	int status = read_options(&o, argc, argv, &model);
	if (status != COMMAND_GO_ON)
		goto out;
	a.json = opts_flag(&o, "json");
	const int format = log_format_parse(opts_text(&o, "log-format", "text"));
	if (format == LOG_JSON)
		log_init("quern", LOG_INFO, LOG_JSON);
	if (format == LOG_JSON || !term_is_tty(stderr))
		term_to_log("serve");
	const struct environment env = environment_read();
	if (notify_open(&a.notify, &env, why, sizeof why)) {
		status = term_error("%s", why);
		goto out;
	}
	int rc = launch_open(&l, &o, model, false, why, sizeof why);
	if (rc) {
		notify_send(&a.notify, "STATUS=%s", why);
		status = rc == -EINVAL ? term_usage("serve", "%s", why) : term_error("%s", why);
		goto out;
	}
	struct supervise_config cfg = {
		.end_fd = -1,
		.notify = &a.notify,
		.alive_us = alive_us,
		.grace_us = grace_us,
		/* The end of a terminal is the end of what was started on it. */
		.reloads = !term_controls(),
		.on_ready = announce,
		.on_loading = show_loading,
		.user = &a,
	};
	launch_supervise(&l, &cfg);
	rc = supervise(&cfg, why, sizeof why);
	term_progress_end();
	launch_close(&l);
	if (rc)
		notify_send(&a.notify, "STATUS=%s", why);
	status = rc ? term_error("%s", why) : term_finish(0);
out:
	notify_close(&a.notify);
	opts_fini(&o);
	return status;
}
