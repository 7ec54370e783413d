/* main.c - quern-worker: one device, driven by the controller over the worker bus. */
#include "base/file.h"
#include "base/log.h"
#include "base/option_table.h"
#include "base/program.h"
#include "base/trim.h"
#include "proto/local_token.h"
#include "store/cached.h"
#include "worker/inspect/inspect.h"
#include "worker/join.h"
#include "worker/link.h"
#include "formats/place/hot.h"
#include "worker/trace.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct program program = {
	.name = "quern-worker",
	.usage = "--bus ENDPOINT | --join HOST[:PORT] [options]",
	.about = "A worker: runs one device of a quern service.  It connects to the controller's worker bus, "
		 "loads\n"
		 "the model that the controller assigns, and executes its plans until the controller stops "
		 "it.",
	.program = OPTION_WORKER,
};

/* 1: a signal makes the worker leave, that is, ask the controller to move its jobs; 0: it stops the worker.
 * For a worker that a supervisor started, the supervisor moves the jobs. */
static volatile sig_atomic_t leaves;

static void on_signal(int sig)
{
	(void)sig;
	if (leaves) {
		leaves = 0;
		link_leave();
	} else {
		link_stop();
	}
}

static void catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal};
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	signal(SIGXFSZ, SIG_IGN); /* makes a file beyond RLIMIT_FSIZE an error with a reason */
	signal(SIGPIPE, SIG_IGN); /* the reader of the log may exit first */
}

/* Parse --experts-skew; NULL: not given. */
static bool skew_of(const char *name, enum experts_skew *out)
{
	*out = !name ? EXPERTS_ROUTED : strcmp(name, "uniform") == 0 ? EXPERTS_UNIFORM : EXPERTS_ZIPF;
	return !name || *out == EXPERTS_UNIFORM || strcmp(name, "zipf") == 0;
}

static const char *unless_auto(const char *mode)
{
	return mode && strcmp(mode, "auto") == 0 ? NULL : mode;
}

/* Return the bus's endpoint from --bus or --join (written to buf).  NULL after an error of usage was
 * printed. */
static const char *find_bus(const struct opts *o, char buf[JOIN_ENDPOINT_SIZE])
{
	struct why why = {"--bus or --join is missing"};
	if (opts_has(o, "bus") && !opts_has(o, "join"))
		return opts_text(o, "bus");
	if (opts_has(o, "bus"))
		err_why(&why, 0, "--bus and --join exclude each other");
	else if (opts_has(o, "join") && !join_endpoint(opts_text(o, "join"), buf, &why))
		return buf;
	program_usage(&program, why.text);
	return NULL;
}

/* Find the keys by option and environment; with --join also in the usual directories. */
static int find_keys(const struct opts *o, struct curve_key *key, struct curve_key *server_key, bool *keyed,
		     struct why *why)
{
	struct curve_sources from = {opts_text(o, "key"), opts_text(o, "server-key"), getenv("QUERN_KEY"),
				     getenv("QUERN_SERVER_KEY")};
	const bool named = from.key || from.server_key || from.env_key || from.env_server_key;
	if (named || !opts_has(o, "join"))
		return curve_pair(&from, key, server_key, keyed, why);
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char *config = xdg && *xdg == '/'     ? file_join(xdg, "quern")
		       : home && *home == '/' ? file_join(home, ".config/quern")
					      : NULL;
	const char *const dirs[] = {config, "/etc/quern"};
	char *own, *server;
	int rc = join_keys(dirs, 2, &own, &server, why);
	from.key = own;
	from.server_key = server;
	if (!rc)
		rc = curve_pair(&from, key, server_key, keyed, why);
	free(own);
	free(server);
	free(config);
	return rc;
}

/* Choose the device by option; with --join also the first GPU, if one opens. */
static const char *find_device(const struct opts *o)
{
	if (!opts_has(o, "join") || opts_has(o, "device"))
		return opts_text(o, "device");
	struct why why = {""};
	const char *device = join_device(&why);
	if (why.text[0])
		log_warn("main", "join without a GPU device=%s reason=\"%s\"", device, why.text);
	return device;
}

/* Convert to the convention of struct step_args, where 0 means not given. */
static int stream_above_rows(const struct opts *o)
{
	const int given = (int)opts_int(o, "send-experts-above");
	return opts_has(o, "send-experts-above") && !given ? -1 : given;
}

/* Options with values that are checked here. */
struct choices {
	double fraction;
	enum experts_skew skew;
	const char *place;
	struct hot_options hot;
	bool fetch;
};

/* Check the options.  Return the error of usage, or NULL. */
static const char *read_choices(const struct opts *o, struct choices *c, struct why *why)
{
	const char *when = opts_text(o, "fetch");
	c->fraction = opts_number(o, "memory-fraction");
	c->fetch = strcmp(when, "auto") == 0;
	if (opts_has(o, "memory-fraction") && !(c->fraction > 0 && c->fraction <= 1))
		return "--memory-fraction must be above 0 and at most 1";
	if (!skew_of(opts_text(o, "experts-skew"), &c->skew))
		return "--experts-skew must be uniform or zipf";
	c->hot = (struct hot_options){.given = opts_has(o, "hot-experts"),
				      .bytes = opts_int(o, "hot-experts"),
				      .counts = opts_text(o, "expert-counts")};
	if (placement_options(opts_text(o, "experts"), opts_text(o, "place"), &c->place, why) ||
	    hot_check_options(&c->hot, c->place, why))
		return why->text;
	if (opts_has(o, "send-experts-above") && !c->place)
		return "--send-experts-above is for experts on the CPU (--experts cpu or --place)";
	return c->fetch || strcmp(when, "never") == 0 ? NULL : "--fetch must be auto or never";
}

static int run(struct opts *o, int argc, char **argv)
{
	struct why why = {""};
	int rc = program_parse(&program, o, argc, argv);
	if (rc != PROGRAM_GOES_ON)
		return rc;
	const char *kind = opts_text(o, "inspect");
	if (kind && strcmp(kind, "cpu") != 0 && strcmp(kind, "gpu") != 0)
		return program_usage(&program, "--inspect must be cpu or gpu");
	if (kind)
		return inspect_devices(kind, !opts_flag(o, "no-probe"));
	if (opts_has(o, "operations"))
		return operations_print(opts_text(o, "operations"));
	char joined[JOIN_ENDPOINT_SIZE];
	const char *bus = find_bus(o, joined);
	if (!bus)
		return PROGRAM_USAGE;
	struct choices choices;
	const char *wrong = read_choices(o, &choices, &why);
	if (wrong)
		return program_usage(&program, wrong);
	rc = program_start_log(&program, o, "worker");
	if (rc != PROGRAM_GOES_ON)
		return rc;
	struct curve_key key = {0}, server_key;
	bool keyed = false;
	char token[LOCAL_TOKEN_SIZE] = "";
	rc = 0;
	/* On ipc:// the controller checks the user of this process instead of a key. */
	if (strncmp(bus, "tcp://", 6) == 0)
		rc = find_keys(o, &key, &server_key, &keyed, &why);
	if (!rc && opts_has(o, "local-token"))
		rc = local_token_read(opts_text(o, "local-token"), token, &why);
	struct trace *trace = NULL;
	if (!rc && opts_has(o, "trace-steps"))
		rc = trace_open(&trace, opts_text(o, "trace-steps"), &why);
	if (rc) {
		log_error("main", "not started reason=\"%s\"", why.text);
		return 1;
	}
	char *cache = cached_root(opts_text_or(o, "cache", getenv("QUERN_MODELS")), getenv("XDG_CACHE_HOME"),
				  getenv("HOME"));
	struct link_args a = {
		.bus = bus,
		.device = find_device(o),
		.isa = opts_text(o, "isa"),
		.memory_fraction = choices.fraction,
		.place = choices.place,
		.hot = &choices.hot,
		.stream_above_rows = stream_above_rows(o),
		.experts_compute = unless_auto(opts_text(o, "experts-compute")),
		.no_graphs = opts_flag(o, "no-graphs"),
		.n_threads = (uint32_t)opts_int(o, "threads"),
		.tune = {opts_text(o, "tune"), getenv("XDG_CACHE_HOME"), getenv("HOME")},
		.skew = choices.skew,
		.least_step_us = opts_int(o, "least-step-ms") * 1000,
		.trace = trace,
		.late_ms = (int)opts_int(o, "rank-timeout") * 1000,
		.grace_ms = opts_int(o, "grace") * 1000,
		.key = keyed ? &key : NULL,
		.server_key = keyed ? &server_key : NULL,
		.token = token,
		.cache = cache,
		.fetch = choices.fetch,
		.supervised = opts_flag(o, "supervised"),
		.leave_ms = opts_int(o, "leave-timeout") * 1000,
	};
	if (opts_has(o, "join"))
		log_info("main", "join bus=%s device=%s keys=%s", a.bus, a.device, keyed ? "yes" : "no");
	leaves = !a.supervised && a.leave_ms > 0;
	catch_signals();
	rc = link_run(&a, &why);
	trace_close(trace);
	free(cache);
	curve_forget(&key);
	if (rc && why.text[0])
		log_error("main", "failed reason=\"%s\"", why.text);
	else if (rc)
		log_info("main", "exiting: this worker cannot serve reason=\"the controller has it\"");
	return rc ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct opts o = {0};
	file_guard_stdio();
	trim_init(); /* lets freed grammars' memory return to the system */
	int rc = run(&o, argc, argv);
	opts_fini(&o);
	return rc;
}
