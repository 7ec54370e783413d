/* main.c - quern-worker: one device, driven by the controller over the worker bus. */
#include "base/file.h"
#include "base/log.h"
#include "base/program.h"
#include "proto/local_token.h"
#include "store/cached.h"
#include "worker/inspect/inspect.h"
#include "worker/join.h"
#include "worker/link.h"
#include "formats/place/hot.h"
#include "worker/inspect/operations.h"
#include "worker/trace.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRACE_S = 10, LATE_S = 5, LEAVE_S = 20 };

static const struct opt options[] = {
	OPT("bus", OPT_TEXT, "ENDPOINT",
	    "the controller's worker bus: ipc://PATH or tcp://HOST:PORT (this or --join is required)"),
	OPT("join", OPT_TEXT, "HOST[:PORT]",
	    "the same on another machine (port 7430), with keys and device found: worker.key and service.pub "
	    "in $XDG_CONFIG_HOME/quern, ~/.config/quern or /etc/quern; the first GPU, else the CPU"),
	OPT("device", OPT_TEXT, "D", "cpu, cpu:0 (NUMA node), cuda:0 (cpu; with --join: found)"),
	OPT("threads", OPT_INT, "N", "threads on the CPU (the controller's choice, or one per core)", .lo = 0,
	    .hi = 4096),
	OPT("isa", OPT_TEXT, "NAME", "avx512, avx2 or plain (the best that the CPU has)"),
	OPT("memory-fraction", OPT_NUMBER, "F",
	    "part of the device's memory for this worker, 0.01 to 1 (0.9 of a GPU; docs/OPERATING.md)"),
	OPT("no-graphs", OPT_FLAG, NULL, "on a GPU: queue every operation of a step by itself"),
	OPT("experts", OPT_TEXT, "WHERE",
	    "of a mixture on a GPU: cpu (in host memory, computed by the CPU) or device (device)"),
	OPT("place", OPT_TEXT, "RULES",
	    "the same layer by layer: layers.0-9.experts=cuda:0,*.experts=cpu,*=cuda:0"),
	OPT("experts-compute", OPT_TEXT, "MODE",
	    "mode of experts on the CPU: f32, bf16, int16, int8, or auto: as --compute of a CPU (auto)"),
	OPT("hot-experts", OPT_SIZE, "BYTES",
	    "of experts on the CPU those that most rows had on the GPU, within BYTES, by --expert-counts"),
	OPT("expert-counts", OPT_TEXT, "FILE",
	    "for --hot-experts: the text of /metrics of a service with --expert-metrics"),
	OPT("send-experts-above", OPT_INT, "ROWS",
	    "with --fast: a step of more rows has experts on the CPU sent to the GPU; 0: none has (by the "
	    "model's shape)",
	    .lo = 0, .hi = 1 << 16),
	OPT("tune", OPT_TEXT, "FILE",
	    "with --fast: what `quern bench kernels --tune` wrote (tune-DEVICE.json in "
	    "$XDG_CACHE_HOME/quern)"),
	OPT("trace-steps", OPT_TEXT, "FILE", "append a line per step: where its time went"),
	OPT("experts-skew", OPT_TEXT, "HOW",
	    "for measurements, uniform or zipf: rows have experts by chance, not by their router"),
	OPT("least-step-ms", OPT_INT, "MS",
	    "for measurements and tests: a step takes at least this long, asleep, as a slower device's would",
	    .lo = 0, .hi = 10000),
	OPT("grace", OPT_INT, "S", "exit when the controller has been gone for S seconds (10)", .lo = 1,
	    .hi = 86400),
	OPT("leave-timeout", OPT_INT, "S",
	    "at SIGTERM or SIGINT: seconds for its jobs to move to other replicas; a second signal ends it "
	    "at "
	    "once (20)",
	    .lo = 0, .hi = 86400),
	OPT("rank-timeout", OPT_INT, "S", "give up a rank of the replica that is S seconds late (5)", .lo = 1,
	    .hi = 86400),
	OPT("key", OPT_TEXT, "FILE", "this worker's secret key (else $QUERN_KEY)"),
	OPT("server-key", OPT_TEXT, "FILE", "the controller's public key (else $QUERN_SERVER_KEY)"),
	OPT("fetch", OPT_TEXT, "WHEN",
	    "where this host lacks the controller's model: auto: from the controller, or never (auto)"),
	OPT("cache", OPT_TEXT, "DIR",
	    "models of this user, where it is looked for and fetched to ($QUERN_MODELS, "
	    "$XDG_CACHE_HOME/quern/models or ~/.cache/quern/models)"),
	OPT("local-token", OPT_TEXT, "FILE", "from `quern serve`: proves on TCP that it started this worker"),
	OPT("supervised", OPT_FLAG, NULL, "from `quern serve`: it prints why this worker cannot serve"),
	OPT("log-level", OPT_TEXT, "LEVEL", "debug, info, warn, error (info)"),
	OPT("log-format", OPT_TEXT, "FORMAT", "text or json: one object a line (text)"),
	OPT("inspect", OPT_TEXT, "KIND", "print what this machine offers of cpu or gpu as JSON, and exit"),
	OPT("operations", OPT_TEXT, "MODEL", "print the operations of a model's step as JSON, and exit"),
	OPT("no-probe", OPT_FLAG, NULL, "with --inspect: do not measure the CPU's bandwidth and peaks"),
	OPT("help", OPT_FLAG, NULL, "this text"),
	OPT("version", OPT_FLAG, NULL, "the version"),
};

static const struct program program = {
	.name = "quern-worker",
	.usage = "--bus ENDPOINT | --join HOST[:PORT] [options]",
	.about = "One device of a quern service: connects to the controller's worker bus, loads the model\n"
		 "that the controller assigns, and executes its plans until the controller ends it.\n",
	.options = options,
	.n_options = sizeof options / sizeof *options,
};

/* The supervisor moves jobs before it ends a worker; one that was started by hand asks for that itself. */
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
	signal(SIGXFSZ, SIG_IGN); /* a file beyond RLIMIT_FSIZE is an error with a reason */
	signal(SIGPIPE, SIG_IGN); /* the reader of the log may end first */
}

/* NULL: not given. */
static bool skew_of(const char *name, enum experts_skew *out)
{
	*out = !name ? EXPERTS_ROUTED : strcmp(name, "uniform") == 0 ? EXPERTS_UNIFORM : EXPERTS_ZIPF;
	return !name || *out == EXPERTS_UNIFORM || strcmp(name, "zipf") == 0;
}

static const char *unless_auto(const char *mode)
{
	return mode && strcmp(mode, "auto") == 0 ? NULL : mode;
}

/* Where the bus is, by --bus or --join (written to buf).  NULL after an error of usage was printed. */
static const char *find_bus(const struct opts *o, char buf[JOIN_ENDPOINT_SIZE])
{
	char why[256] = "--bus or --join is missing";
	if (opts_has(o, "bus") && !opts_has(o, "join"))
		return opts_text(o, "bus", "");
	if (opts_has(o, "bus"))
		snprintf(why, sizeof why, "--bus and --join exclude each other");
	else if (opts_has(o, "join") && !join_endpoint(opts_text(o, "join", ""), buf, why, sizeof why))
		return buf;
	program_usage(&program, why);
	return NULL;
}

/* By option and environment; with --join also where files of these names usually are. */
static int find_keys(const struct opts *o, struct curve_key *key, struct curve_key *server_key, bool *keyed,
		     char *why, size_t why_n)
{
	struct curve_sources from = {opts_text(o, "key", NULL), opts_text(o, "server-key", NULL),
				     getenv("QUERN_KEY"), getenv("QUERN_SERVER_KEY")};
	const bool named = from.key || from.server_key || from.env_key || from.env_server_key;
	if (named || !opts_has(o, "join"))
		return curve_pair(&from, key, server_key, keyed, why, why_n);
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char *config = xdg && *xdg == '/'     ? file_join(xdg, "quern")
		       : home && *home == '/' ? file_join(home, ".config/quern")
					      : NULL;
	const char *const dirs[] = {config, "/etc/quern"};
	char *own, *server;
	int rc = join_keys(dirs, 2, &own, &server, why, why_n);
	from.key = own;
	from.server_key = server;
	if (!rc)
		rc = curve_pair(&from, key, server_key, keyed, why, why_n);
	free(own);
	free(server);
	free(config);
	return rc;
}

/* By option; with --join also the first GPU, if one opens. */
static const char *find_device(const struct opts *o)
{
	if (!opts_has(o, "join") || opts_has(o, "device"))
		return opts_text(o, "device", "cpu");
	char why[512] = "";
	const char *device = join_device(why, sizeof why);
	if (why[0])
		log_warn("main", "join device=%s: no GPU is used: %s", device, why);
	return device;
}

/* As struct step_args has it, where 0 is no choice. */
static int send_above(const struct opts *o)
{
	const int given = (int)opts_int(o, "send-experts-above", 0);
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

/* The error of usage, or NULL. */
static const char *read_choices(const struct opts *o, struct choices *c, char *why, size_t why_n)
{
	const char *when = opts_text(o, "fetch", "auto");
	c->fraction = opts_number(o, "memory-fraction", 0);
	c->fetch = strcmp(when, "auto") == 0;
	if (opts_has(o, "memory-fraction") && !(c->fraction > 0 && c->fraction <= 1))
		return "--memory-fraction must be above 0 and at most 1";
	if (!skew_of(opts_text(o, "experts-skew", NULL), &c->skew))
		return "--experts-skew must be uniform or zipf";
	c->hot = (struct hot_options){.given = opts_has(o, "hot-experts"),
				      .bytes = opts_int(o, "hot-experts", 0),
				      .counts = opts_text(o, "expert-counts", NULL)};
	if (placement_options(opts_text(o, "experts", NULL), opts_text(o, "place", NULL), &c->place, why,
			      why_n) ||
	    hot_check_options(&c->hot, c->place, why, why_n))
		return why;
	if (opts_has(o, "send-experts-above") && !c->place)
		return "--send-experts-above is for experts on the CPU (--experts cpu or --place)";
	return c->fetch || strcmp(when, "never") == 0 ? NULL : "--fetch must be auto or never";
}

static int run(struct opts *o, int argc, char **argv)
{
	char why[512] = "";
	int rc = program_parse(&program, o, argc, argv);
	if (rc != PROGRAM_GOES_ON)
		return rc;
	const char *kind = opts_text(o, "inspect", NULL);
	if (kind && strcmp(kind, "cpu") != 0 && strcmp(kind, "gpu") != 0)
		return program_usage(&program, "--inspect must be cpu or gpu");
	if (kind)
		return inspect_devices(kind, !opts_flag(o, "no-probe"));
	if (opts_has(o, "operations"))
		return operations_print(opts_text(o, "operations", ""));
	char joined[JOIN_ENDPOINT_SIZE];
	const char *bus = find_bus(o, joined);
	if (!bus)
		return PROGRAM_USAGE;
	struct choices choices;
	const char *wrong = read_choices(o, &choices, why, sizeof why);
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
		rc = find_keys(o, &key, &server_key, &keyed, why, sizeof why);
	if (!rc && opts_has(o, "local-token"))
		rc = local_token_read(opts_text(o, "local-token", ""), token, why, sizeof why);
	struct trace *trace = NULL;
	if (!rc && opts_has(o, "trace-steps"))
		rc = trace_open(&trace, opts_text(o, "trace-steps", ""), why, sizeof why);
	if (rc) {
		log_error("main", "%s", why);
		return 1;
	}
	char *cache = cached_root(opts_text(o, "cache", getenv("QUERN_MODELS")), getenv("XDG_CACHE_HOME"),
				  getenv("HOME"));
	struct link_args a = {
		.bus = bus,
		.device = find_device(o),
		.isa = opts_text(o, "isa", NULL),
		.memory_fraction = choices.fraction,
		.place = choices.place,
		.hot = &choices.hot,
		.send_experts_above = send_above(o),
		.experts_compute = unless_auto(opts_text(o, "experts-compute", NULL)),
		.no_graphs = opts_flag(o, "no-graphs"),
		.n_threads = (uint32_t)opts_int(o, "threads", 0),
		.tune = {opts_text(o, "tune", NULL), getenv("XDG_CACHE_HOME"), getenv("HOME")},
		.skew = choices.skew,
		.least_step_us = opts_int(o, "least-step-ms", 0) * 1000,
		.trace = trace,
		.late_ms = (int)opts_int(o, "rank-timeout", LATE_S) * 1000,
		.grace_ms = opts_int(o, "grace", GRACE_S) * 1000,
		.key = keyed ? &key : NULL,
		.server_key = keyed ? &server_key : NULL,
		.token = token,
		.cache = cache,
		.fetch = choices.fetch,
		.supervised = opts_flag(o, "supervised"),
		.leave_ms = opts_int(o, "leave-timeout", LEAVE_S) * 1000,
	};
	if (opts_has(o, "join"))
		log_info("main", "join bus=%s device=%s keys=%s", a.bus, a.device, keyed ? "yes" : "no");
	leaves = !a.supervised && a.leave_ms > 0;
	catch_signals();
	rc = link_run(&a, why, sizeof why);
	trace_close(trace);
	free(cache);
	curve_forget(&key);
	if (rc && why[0])
		log_error("main", "%s", why);
	else if (rc)
		log_info("main", "this worker cannot serve, and ends: the controller has the reason");
	return rc ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct opts o = {0};
	file_guard_stdio();
	int rc = run(&o, argc, argv);
	opts_fini(&o);
	return rc;
}
