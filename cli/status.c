#include "cli/commands.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/numerics.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/stream.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"
#include "proto/counts.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

static const struct usage status_usage = {
	.name = "status",
	.words = "",
	.about = "Shows the workers, KV blocks, queues and speeds of a running service.",
};
static const struct usage workers_usage = {
	.name = "workers",
	.words = "",
	.about = "Lists the workers of a running service.",
};

static double number(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static long long integer(const json_t *o, const char *key)
{
	return (long long)json_integer_value(json_object_get(o, key));
}

/* Print "fetching 37%" and the like.  A waiting worker has no percentage. */
static void print_load(struct table *t, const json_t *w)
{
	const char *doing = json_string_value(json_object_get(w, "doing"));
	if (doing && strcmp(doing, "waiting") == 0)
		table_text(t, "waiting for files");
	else
		table_format(t, "%s %.0f%%", doing && *doing ? doing : "loading",
			     100 * number(w, "progress"));
}

static void print_workers(const json_t *reply)
{
	struct table t = {0};
	size_t i;
	const json_t *w, *rows = json_object_get(reply, "workers");
	char bytes[32];
	if (!json_array_size(rows)) {
		printf("no workers\n");
		return;
	}
	table_row(&t, "WORKER", "REPLICA", "HOST", "PID", "DEVICE", "NAME", "KERNELS", "THREADS", "STATE",
		  "WEIGHTS", "KV", "BLOCKS", "STEPS", "STEP ms", NULL);
	json_array_foreach(rows, i, w)
	{
		const char *state = json_string_value(json_object_get(w, "state"));
		table_begin(&t);
		table_int(&t, json_object_get(w, "worker"));
		table_int(&t, json_object_get(w, "replica"));
		table_text(&t, json_string_value(json_object_get(w, "host")));
		table_int(&t, json_object_get(w, "pid"));
		table_text(&t, json_string_value(json_object_get(w, "device")));
		table_text(&t, json_string_value(json_object_get(w, "device_name")));
		table_text(&t, json_string_value(json_object_get(w, "isa")));
		table_int(&t, json_object_get(w, "threads"));
		if (state && strcmp(state, "loading") == 0)
			print_load(&t, w);
		else
			table_text(&t, state);
		table_text(&t, term_bytes(number(w, "weights_bytes"), bytes, sizeof bytes));
		table_text(&t, term_bytes(number(w, "kv_bytes"), bytes, sizeof bytes));
		table_int(&t, json_object_get(w, "blocks"));
		table_int(&t, json_object_get(w, "steps"));
		table_format(&t, "%.2f", number(w, "step_us") / 1e3);
	}
	table_print(&t, stdout);
	table_fini(&t);
}

static double percent(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

/* Print each numerics class once: usually one line, since replicas are alike. */
static void print_numerics(const json_t *replicas)
{
	for (size_t i = 0; i < json_array_size(replicas); i++) {
		const char *mine =
			json_string_value(json_object_get(json_array_get(replicas, i), "numerics"));
		bool printed = !mine || !*mine;
		for (size_t k = 0; k < i && !printed; k++) {
			const char *other =
				json_string_value(json_object_get(json_array_get(replicas, k), "numerics"));
			printed = other && numerics_same(mine, other);
		}
		if (!printed)
			printf("numerics   %s\n", mine);
	}
}

/* Print memory by use.  HOST is the host's pools and experts.  The last column is weights and scratch in
 * memory, relative to the weights on disk. */
static void print_memory(const json_t *reply)
{
	static const struct {
		const char *key, *and;
	} columns[] = {{"stored_bytes", NULL},
		       {"weights_bytes", NULL},
		       {"scratch_bytes", NULL},
		       {"kv_bytes", NULL},
		       {"host_bytes", "host_weights_bytes"},
		       {"device_used", NULL},
		       {"device_bytes", NULL}};
	struct table t = {0};
	size_t i;
	const json_t *w;
	char bytes[32];
	table_row(&t, "MEMORY OF", "ON DISK", "WEIGHTS", "SCRATCH", "KV", "HOST", "DEVICE IN USE", "OF",
		  "WEIGHTS+SCRATCH", NULL);
	json_array_foreach(json_object_get(reply, "workers"), i, w)
	{
		const double stored = number(w, "stored_bytes");
		if (stored <= 0)
			continue; /* nothing is loaded yet */
		table_begin(&t);
		table_int(&t, json_object_get(w, "worker"));
		for (size_t k = 0; k < sizeof columns / sizeof *columns; k++)
			table_text(&t, term_bytes(number(w, columns[k].key) +
							  (columns[k].and ? number(w, columns[k].and) : 0),
						  bytes, sizeof bytes));
		table_format(&t, "%.1f%% of disk",
			     percent(number(w, "weights_bytes") + number(w, "host_weights_bytes") +
					     number(w, "scratch_bytes"),
				     stored));
	}
	if (t.n_lines > 1) {
		putchar('\n');
		table_print(&t, stdout);
	}
	table_fini(&t);
}

static void print_totals(const json_t *s)
{
	const char *before = "so far     ";
	for (const struct count_row *r = counts_rows; r < counts_rows + n_counts_rows; r++) {
		if (!r->shown)
			continue;
		printf("%s%lld %s", before, integer(r->map ? json_object_get(s, r->map) : s, r->key),
		       r->shown);
		before = ", ";
	}
	printf("\n\n");
}

static void print_status(const json_t *s)
{
	const char *model = json_string_value(json_object_get(s, "model"));
	const char *version = json_string_value(json_object_get(s, "version"));
	bool ready = json_is_true(json_object_get(s, "ready"));
	printf("%squern %s%s  %s  %s%s%s  context %lld tokens\n", term_style(stdout, TERM_BOLD),
	       version ? version : "", term_style(stdout, TERM_PLAIN), model ? model : "",
	       term_style(stdout, ready ? TERM_GREEN : TERM_YELLOW), ready ? "ready" : "not ready",
	       term_style(stdout, TERM_PLAIN), integer(s, "max_context"));
	printf("sequences  %lld running, %lld waiting (%lld tokens), %lld swapped, %lld preemptions (%lld by "
	       "swapping)\n",
	       integer(s, "running"), integer(s, "waiting"), integer(s, "queued_tokens"),
	       integer(s, "swapped"), integer(s, "preemptions"), integer(s, "swap_preemptions"));
	const json_t *b = json_object_get(s, "blocks");
	printf("blocks     %lld of %lld held (%.1f%%), %lld cached, %lld free, %lld tokens each\n",
	       integer(b, "held"), integer(b, "total"), percent(number(b, "held"), number(b, "total")),
	       integer(b, "cached"), integer(b, "free"), integer(b, "size"));
	const json_t *h = json_object_get(s, "host_blocks"), *c = json_object_get(s, "prefix_cache");
	printf("retained   %lld cached blocks of preempted sequences, %lld tokens recomputed so far\n",
	       integer(b, "retained"), integer(s, "recomputed_tokens"));
	if (integer(h, "total"))
		printf("host       %lld of %lld blocks held by swapped sequences\n",
		       integer(h, "total") - integer(h, "free"), integer(h, "total"));
	printf("prefixes   %lld of %lld prompt tokens found in the cache (%.1f%%)\n",
	       integer(c, "hit_tokens"), integer(c, "queried_tokens"),
	       percent(number(c, "hit_tokens"), number(c, "queried_tokens")));
	printf("speed      prompt %.0f tok/s, output %.1f tok/s, step %.2f ms\n", number(s, "prompt_tps"),
	       number(s, "decode_tps"), number(s, "step_us") / 1e3);
	const json_t *j = json_object_get(s, "journal");
	print_numerics(json_object_get(s, "replicas"));
	const char *error = json_string_value(json_object_get(j, "error"));
	const char *low = json_string_value(json_object_get(j, "low"));
	char bytes[32];
	if (json_is_object(j))
		printf("journal    %s%s%s%s%s\n", term_bytes(number(j, "bytes"), bytes, sizeof bytes),
		       term_style(stdout, error ? TERM_RED
					  : low ? TERM_YELLOW
						: TERM_PLAIN),
		       error ? "  durable jobs are refused: "
		       : low ? "  "
			     : "",
		       error ? error
		       : low ? low
			     : "",
		       term_style(stdout, TERM_PLAIN));
	print_totals(s);
	const char *note = json_string_value(json_object_get(s, "note"));
	if (note)
		printf("%snote%s       %s\n\n", term_style(stdout, TERM_YELLOW),
		       term_style(stdout, TERM_PLAIN), note);
	print_workers(s);
	print_memory(s);
}

/* Sleep; false when interrupted. */
static bool sleep_s(double s)
{
	int64_t until = clock_us() + (int64_t)(s * 1e6);
	while (!interrupt_pending()) {
		struct pollfd fd = {.fd = interrupt_fd(), .events = POLLIN};
		int64_t left = until - clock_us();
		if (left <= 0)
			return true;
		poll(&fd, 1, (int)(left / 1000 + 1));
	}
	return false;
}

static int show(struct client *c, const struct opts *o, const char *op, void (*print)(const json_t *),
		struct why *why)
{
	json_t *reply, *request = json_pack("{s:s}", "op", op);
	int rc = client_call(c, request, CALL_MS, &reply, why);
	json_decref(request);
	if (rc)
		return rc;
	if (opts_flag(o, "json")) {
		stream_print_json(reply);
	} else {
		if (opts_flag(o, "watch"))
			term_clear(stdout);
		print(reply);
		if (opts_flag(o, "watch") && !term_is_tty(stdout))
			putchar('\n');
		fflush(stdout);
	}
	json_decref(reply);
	return 0;
}

static int watch(const struct opts *o, const struct usage *u, void (*print)(const json_t *))
{
	struct client *c;
	struct why why;
	int rc;
	const double interval = opts_number(o, "interval");
	if (!(interval >= 0.05 && interval <= 86400))
		return term_usage(u->name, "--interval is %g, must be from 0.05 to 86400", interval);
	const int status = command_connect(o, &c);
	if (status != COMMAND_GO_ON)
		return status;
	interrupt_arm();
	do
		rc = show(c, o, u->name, print, &why);
	while (!rc && opts_flag(o, "watch") && !ferror(stdout) && sleep_s(interval));
	/* Ctrl-C is the normal end of --watch. */
	if (rc == -EINTR && opts_flag(o, "watch"))
		rc = 0;
	client_close(c);
	return rc ? term_error("%s", why.text) : EXIT_SUCCESS;
}

static int run_status(struct opts *o)
{
	return watch(o, &status_usage, print_status);
}

static int run_workers(struct opts *o)
{
	return watch(o, &workers_usage, print_workers);
}

int cmd_status(int argc, char **argv)
{
	return command_run(&status_usage, OPTION_STATUS, run_status, argc, argv);
}

int cmd_workers(int argc, char **argv)
{
	return command_run(&workers_usage, OPTION_WORKERS, run_workers, argc, argv);
}

static const struct usage health_usage = {
	.name = "health",
	.words = "",
	.about = "Exits with status 0 if a service answers and can serve new work, else with status 1 and "
		 "the\n"
		 "reason.  Use it for health checks of containers and scripts; over HTTP: /readyz.",
};

static int run_health(struct opts *o)
{
	json_t *reply;
	const int status = command_request(o, "ping", &reply);
	if (status != COMMAND_GO_ON)
		return status;
	const char *model = json_string_value(json_object_get(reply, "model"));
	const bool ready = json_is_true(json_object_get(reply, "ready"));
	if (ready)
		printf("ready: serves %s\n", model ? model : "a model");
	json_decref(reply);
	return ready ? EXIT_SUCCESS
		     : term_error("not ready: no worker serves, or the service is ending; quern status shows "
				  "it");
}

int cmd_health(int argc, char **argv)
{
	return command_run(&health_usage, OPTION_HEALTH, run_health, argc, argv);
}
