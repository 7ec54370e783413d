#include "cli/launch.h"

#include "base/alloc.h"
#include "base/cpus.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/replace.h"
#include "cli/models/cache.h"
#include "cli/process.h"
#include "cli/terminal/term.h"
#include "formats/model_kind.h"
#include "formats/place/hot.h"
#include "formats/shard.h"
#include "proto/local_token.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TO_CONTROLLER = 1, TO_WORKER = 2 };

/* Of a GPU, by default (as in worker/cache.c for a worker started by hand). */
static const double gpu_fraction = 0.9;

const struct opt launch_model_options[] = {
	OPT("device", OPT_TEXT, "D,...", "where to run: cpu, cpu:0 (NUMA node), cuda:0 (default: cpu)"),
	OPT("threads", OPT_INT, "N", "threads of a CPU worker (one per core)", .lo = 1, .hi = 1024,
	    .pass = TO_CONTROLLER | TO_WORKER),
	OPT("isa", OPT_TEXT, "NAME",
	    "CPU kernels: avx512, avx2 or plain (default: the best that the CPU has)", .pass = TO_WORKER),
	OPT("compute", OPT_TEXT, "MODE",
	    "compute mode on a CPU: f32, bf16, int16, int8, or auto: int16 if it has VNNI, else f32 (auto)",
	    .pass = TO_CONTROLLER),
	OPT("head-dtype", OPT_TEXT, "TYPE",
	    "weights of the head: stored, int8, or auto: int8 in mode int8, else stored (auto)",
	    .pass = TO_CONTROLLER),
	OPT("kv-cache-dtype", OPT_TEXT, "TYPE",
	    "keys and values on a CPU: f32, bf16, int16, int8, or auto: the compute mode's, int16 in int8 "
	    "(auto)",
	    .pass = TO_CONTROLLER),
	OPT("fast", OPT_FLAG, NULL,
	    "GPU: faster long prompts; bits then depend on the batch; no effect on a CPU",
	    .pass = TO_CONTROLLER),
	OPT("tune", OPT_TEXT, "FILE",
	    "--fast: what `quern bench kernels --tune` wrote (default: where it writes)", .pass = TO_WORKER),
	OPT("no-graphs", OPT_FLAG, NULL,
	    "GPU: launch every operation of a step separately, without CUDA graphs", .pass = TO_WORKER),
	OPT("trace-steps", OPT_TEXT, "FILE", "workers append a line per step: where its time went",
	    .pass = TO_WORKER),
	OPT("experts", OPT_TEXT, "WHERE",
	    "GPU: the experts of a mixture on the cpu, in host memory, or on the device (device)",
	    .pass = TO_WORKER),
	OPT("place", OPT_TEXT, "RULES",
	    "GPU: the same by layers, such as layers.0-9.experts=cuda,*.experts=cpu", .pass = TO_WORKER),
	OPT("experts-compute", OPT_TEXT, "MODE",
	    "compute mode of experts on the CPU beside a GPU: f32, bf16, int16, int8 or auto (auto)",
	    .pass = TO_WORKER),
	OPT("hot-experts", OPT_SIZE, "BYTES",
	    "GPU: of experts on the CPU those that most rows had on the GPU, within BYTES, by "
	    "--expert-counts",
	    .pass = TO_WORKER),
	OPT("expert-counts", OPT_TEXT, "FILE",
	    "for --hot-experts: the text of /metrics of a service with --expert-metrics"),
	OPT("send-experts-above", OPT_INT, "ROWS",
	    "--fast: a step of more rows has experts on the CPU sent to the GPU; 0: none has (by the "
	    "model's shape)",
	    .lo = 0, .hi = 1 << 16, .pass = TO_WORKER),
	OPT("experts-skew", OPT_TEXT, "HOW",
	    "for measurements, uniform or zipf: a mixture's rows have experts by chance; outputs mean "
	    "nothing",
	    .pass = TO_WORKER),
	OPT("least-step-ms", OPT_INT, "MS",
	    "for measurements and tests: a step takes at least this long, as a slower device's would (0)",
	    .lo = 0, .hi = 10000, .pass = TO_WORKER),
	OPT("context", OPT_INT, "N", "longest prompt and output together (default: the model's)", .lo = 16,
	    .hi = 1 << 24, .pass = TO_CONTROLLER),
	OPT("block-size", OPT_INT, "N", "tokens of a KV block: 16, 32, 64, 128 or 256 (16)", .lo = 16,
	    .hi = 256, .pass = TO_CONTROLLER),
	OPT("max-seqs", OPT_INT, "N", "sequences in a step (256)", .lo = 1, .hi = 4096,
	    .pass = TO_CONTROLLER),
	OPT("max-batch-tokens", OPT_INT, "N", "token budget of a step (2048)", .lo = 1, .hi = 1 << 16,
	    .pass = TO_CONTROLLER),
	OPT("chunk", OPT_INT, "N", "largest part of a prompt in a step (512)", .lo = 1, .hi = 1 << 20,
	    .pass = TO_CONTROLLER),
	OPT("max-step-ms", OPT_INT, "MS",
	    "approximate bound on a step with prompts; 0: none (25, on a slow device more)", .lo = 0,
	    .hi = 10000, .pass = TO_CONTROLLER),
	OPT("prefill", OPT_TEXT, "MODE", "prompts mixed with decodes, or separate (mixed)",
	    .pass = TO_CONTROLLER),
	OPT("preempt", OPT_TEXT, "MODE", "when blocks run out: swap, recompute or auto (auto)",
	    .pass = TO_CONTROLLER),
	OPT("no-prefix-cache", OPT_FLAG, NULL, "do not reuse common prefixes of prompts",
	    .pass = TO_CONTROLLER),
	OPT("kv-bytes", OPT_SIZE, "SIZE", "KV cache of a worker, such as 4G (the worker chooses)",
	    .pass = TO_CONTROLLER),
	OPT("memory-fraction", OPT_NUMBER, "F",
	    "part of a device's memory for its workers, 0.01 to 1 (0.9 of a GPU)"),
	OPT("swap-bytes", OPT_SIZE, "SIZE",
	    "host memory for swapped sequences, 0 for none (the worker chooses)", .pass = TO_CONTROLLER),
	OPT("log-level", OPT_TEXT, "L", "debug, info, warn or error", .pass = TO_CONTROLLER | TO_WORKER),
	OPT("log-format", OPT_TEXT, "FORMAT", "text or json: one object a line (text)",
	    .pass = TO_CONTROLLER | TO_WORKER),
	OPT("tp", OPT_INT, "N", "devices that share the model (1)", .lo = 1, .hi = 64, .pass = TO_CONTROLLER),
	OPT("ep", OPT_FLAG, NULL, "with --tp: ranks have whole experts of a mixture, not a part of each",
	    .pass = TO_CONTROLLER),
	OPT("rank-timeout", OPT_INT, "S", "with --tp: seconds after which a late rank is given up (5)",
	    .lo = 1, .hi = 86400, .pass = TO_WORKER),
	OPT("replicas", OPT_INT, "N", "copies of the model (one per device)", .lo = 1, .hi = 64),
	OPT("max-replicas", OPT_INT, "N",
	    "as the load rises, up to N copies, and back to --replicas (then 1) as it falls (never)", .lo = 1,
	    .hi = 64, .pass = TO_CONTROLLER),
	OPT("scale-at", OPT_NUMBER, "N",
	    "with --max-replicas: requests that run or wait for which there is a replica (16)",
	    .pass = TO_CONTROLLER),
	OPT("scale-period", OPT_INT, "S",
	    "with --max-replicas: seconds between two decisions, each by the mean load of twice that (15)",
	    .lo = 1, .hi = 60, .pass = TO_CONTROLLER),
	OPT("scale-down-after", OPT_INT, "S",
	    "with --max-replicas: seconds of a lower load before replicas end (120)", .lo = 1, .hi = 3600,
	    .pass = TO_CONTROLLER),
	OPT("tokenizer", OPT_TEXT, "PATH",
	    "tokenizer.json, tokenizer.model or tokenizer.bin, or its directory (default: the model's, or "
	    "beside its file)",
	    .pass = TO_CONTROLLER),
	OPT("allow-class-change", OPT_FLAG, NULL,
	    "jobs of a lost worker may continue in another numerics class, and are marked",
	    .pass = TO_CONTROLLER),
};
const size_t launch_n_model_options = sizeof launch_model_options / sizeof *launch_model_options;

const struct opt launch_listen_options[] = {
	OPT("http", OPT_TEXT, "ADDR", "HTTP address, or none (" LAUNCH_HTTP ")", .pass = TO_CONTROLLER),
	OPT("jobs", OPT_TEXT, "ENDPOINT",
	    "job socket, or none (" LAUNCH_JOBS "; with --api-key-file one of this user)",
	    .pass = TO_CONTROLLER),
	OPT("bus", OPT_TEXT, "ENDPOINT", "worker bus (ipc:// in the run directory)"),
	OPT("name", OPT_TEXT, "NAME,...",
	    "the model's name for clients, and others that it answers to (default: the directory's)",
	    .pass = TO_CONTROLLER),
	OPT("max-queued-jobs", OPT_INT, "N", "jobs that may wait (4096)", .lo = 1, .hi = 1 << 24,
	    .pass = TO_CONTROLLER),
	OPT("worker-wait", OPT_INT, "S", "seconds that jobs wait while no worker serves (60)", .lo = 1,
	    .hi = 86400, .pass = TO_CONTROLLER),
	OPT("max-queued-tokens", OPT_INT, "N", "prompt tokens that may wait (8 million)", .lo = 1,
	    .hi = INT64_MAX / 2, .pass = TO_CONTROLLER),
	OPT("worker-timeout", OPT_INT, "S",
	    "seconds of silence after which a worker is lost; 0: never, for a debugger (2)", .lo = 0,
	    .hi = 86400, .pass = TO_CONTROLLER),
	OPT("stuck-timeout", OPT_INT, "S",
	    "seconds without progress in a step after which a worker is lost; 0: never (120)", .lo = 0,
	    .hi = 86400, .pass = TO_CONTROLLER),
	OPT("journal", OPT_TEXT, "FILE", "file of durable jobs, created if missing (none)",
	    .pass = TO_CONTROLLER),
	OPT("journal-bytes", OPT_SIZE, "SIZE", "beyond this size, the oldest finished jobs are deleted (4G)",
	    .pass = TO_CONTROLLER),
	OPT("file-margin", OPT_SIZE, "SIZE",
	    "free space on the journal's disk that files leave (an eighth of the disk, at most 256M)",
	    .pass = TO_CONTROLLER),
	OPT("job-margin", OPT_SIZE, "SIZE", "the same for durable jobs and batches (half of --file-margin)",
	    .pass = TO_CONTROLLER),
	OPT("max-file-bytes", OPT_SIZE, "SIZE", "largest file of /v1/files (200M)", .pass = TO_CONTROLLER),
	OPT("max-files", OPT_INT, "N", "files that a key may store; 0: no limit (10000)", .lo = 0,
	    .hi = INT32_MAX, .pass = TO_CONTROLLER),
	OPT("max-stored-bytes", OPT_SIZE, "SIZE",
	    "size of all files of a key; 0: no limit (half of --journal-bytes)", .pass = TO_CONTROLLER),
	OPT("max-responses", OPT_INT, "N",
	    "responses and conversations that a key may store, the oldest go first (10000)", .lo = 1,
	    .hi = INT32_MAX, .pass = TO_CONTROLLER),
	OPT("max-response-bytes", OPT_SIZE, "SIZE",
	    "the same for their size (an eighth of --journal-bytes; without keys a quarter)",
	    .pass = TO_CONTROLLER),
	OPT("keep", OPT_INT, "S", "seconds that finished jobs are kept (3600)", .lo = 0, .hi = 366 * 86400,
	    .pass = TO_CONTROLLER),
	OPT("keep-durable", OPT_INT, "S", "the same for durable jobs (86400)", .lo = 0, .hi = 366 * 86400,
	    .pass = TO_CONTROLLER),
	OPT("curve-key", OPT_TEXT, "FILE",
	    "the service's secret key (quern keygen): TCP sockets require keys", .pass = TO_CONTROLLER),
	OPT("allow", OPT_TEXT, "FILE", "public keys of the clients and workers that may connect",
	    .pass = TO_CONTROLLER),
	OPT("insecure", OPT_FLAG, NULL, "listen beyond loopback without keys", .pass = TO_CONTROLLER),
	OPT("api-key-file", OPT_TEXT, "FILE", "HTTP requires one of its keys (docs/OPERATING.md)",
	    .pass = TO_CONTROLLER),
	OPT("cors-origin", OPT_TEXT, "ORIGIN,...",
	    "pages of these origins may use HTTP from a browser; *: all", .pass = TO_CONTROLLER),
	OPT("tls-cert", OPT_TEXT, "FILE", "HTTP with TLS: the certificate and its chain, PEM",
	    .pass = TO_CONTROLLER),
	OPT("tls-key", OPT_TEXT, "FILE", "its key, PEM", .pass = TO_CONTROLLER),
	OPT("tool-parser", OPT_TEXT, "STYLE",
	    "format of the model's tool calls: auto, none, hermes, qwen3_coder, ... (auto)",
	    .pass = TO_CONTROLLER),
	OPT("reasoning-parser", OPT_TEXT, "STYLE",
	    "marks of the model's reasoning: auto, none, qwen3, deepseek_r1, mistral, ... (auto)",
	    .pass = TO_CONTROLLER),
	OPT("access-log", OPT_TEXT, "FILE", "one line of JSON per HTTP request there; -: stdout",
	    .pass = TO_CONTROLLER),
	OPT("expert-metrics", OPT_FLAG, NULL,
	    "of a mixture: /metrics has the rows of each expert of each layer", .pass = TO_CONTROLLER),
	OPT("otlp-endpoint", OPT_TEXT, "URL",
	    "traces go to this OpenTelemetry collector, as http://127.0.0.1:4318 (OTEL_... variables)",
	    .pass = TO_CONTROLLER),
	OPT("trace-sample", OPT_NUMBER, "RATE",
	    "part of the requests without a traceparent that is traced, 0 to 1 (1)", .pass = TO_CONTROLLER),
	OPT("drain-timeout", OPT_INT, "S",
	    "seconds for running requests to finish when the service ends; 0: cut them (30)", .lo = 0,
	    .hi = 86400, .pass = TO_CONTROLLER),
	OPT("strict", OPT_FLAG, NULL, "HTTP: refuse unknown fields instead of ignoring them",
	    .pass = TO_CONTROLLER),
};
const size_t launch_n_listen_options = sizeof launch_listen_options / sizeof *launch_listen_options;

/* ---- checks ---- */

/* The number of workers, and their devices. */
static int plan_workers(const struct opts *o, struct launch *l, char *why, size_t why_n)
{
	int rc = devices_parse(opts_text(o, "device", "cpu"), l->devices, &l->n_devices, why, why_n);
	if (rc)
		return err_prefix(why, why_n, rc, "--device");
	const bool scales = opts_has(o, "max-replicas");
	int64_t tp = opts_int(o, "tp", 1), n = (int64_t)l->n_devices;
	int64_t replicas = opts_int(o, "replicas", n > tp && !scales ? n / tp : 1);
	const int64_t most = opts_int(o, "max-replicas", replicas);
	const char *which = scales ? "--max-replicas" : "--replicas";
	if (most * tp > SUPERVISE_WORKERS_MAX)
		return err_why(why, why_n, -EINVAL,
			       "%s %" PRId64 " with --tp %" PRId64 ": more than %d workers", which, most, tp,
			       SUPERVISE_WORKERS_MAX);
	if (most < replicas)
		return err_why(why, why_n, -EINVAL,
			       "--max-replicas %" PRId64 " is below --replicas %" PRId64
			       ", which is the least",
			       most, replicas);
	if (n > most * tp || (!scales && !opts_has(o, "replicas") && n > tp && n % tp))
		return err_why(why, why_n, -EINVAL,
			       "--device names %" PRId64 " devices, some of which --tp %" PRId64
			       " and %s %" PRId64 " leave unused",
			       n, tp, which, most);
	l->n_workers = (size_t)(replicas * tp);
	return 0;
}

/* Can the model be split into tp parts?  The workers would report it, too, but each of them. */
static int check_parts(const char *model, int tp, bool ep, char *why, size_t why_n)
{
	struct model_config c;
	struct weights *w;
	struct shard s;
	/* An invalid model is refused by the worker. */
	if (model_config_load(model, &c, why, why_n))
		return 0;
	int rc = 0;
	if (weights_open(model, &c, &w, why, why_n) == 0) {
		rc = shard_init(&s, &c, w, (struct shard_rank){0, tp, ep}, why, why_n);
		weights_close(w);
	}
	model_config_fini(&c);
	return rc;
}

/* Rules of a placement against the model, for each device.  The workers would report it, too, but each of
 * them. */
static int check_rules(const struct opts *o, const char *model, const char *spec,
		       const struct hot_options *hot, char *why, size_t why_n)
{
	struct expert_counts counts = {0};
	struct launch l;
	struct model_config c;
	struct placement p;
	int rc = plan_workers(o, &l, why, why_n);
	if (rc || model_config_load(model, &c, NULL, 0))
		return rc; /* an invalid model is refused by the worker */
	for (size_t i = 0; !rc && i < l.n_devices; i++) {
		rc = placement_parse(&p, spec, l.devices[i].name, &c, why, why_n);
		if (!rc)
			rc = placement_check_ranks(&p, (int)opts_int(o, "tp", 1), why, why_n);
		if (!rc)
			rc = hot_check_placement(hot, &p, l.devices[i].name, why, why_n);
	}
	if (!rc && hot->given)
		rc = expert_counts_read(&counts, hot->counts, &c, why, why_n);
	expert_counts_fini(&counts);
	model_config_fini(&c);
	return rc;
}

/* Where the experts of a mixture are to be. */
static int check_place(const struct opts *o, const char *model, char *why, size_t why_n)
{
	const char *spec;
	const struct hot_options hot = {.given = opts_has(o, "hot-experts"),
					.bytes = opts_int(o, "hot-experts", 0),
					.counts = opts_text(o, "expert-counts", NULL)};
	int rc = placement_options(opts_text(o, "experts", NULL), opts_text(o, "place", NULL), &spec, why,
				   why_n);
	if (rc || (rc = hot_check_options(&hot, spec, why, why_n)))
		return rc;
	if (opts_has(o, "send-experts-above") && !(spec && opts_flag(o, "fast")))
		return err_why(why, why_n, -EINVAL,
			       "--send-experts-above is for --fast with experts on the CPU (--experts cpu or "
			       "--place)");
	return spec ? check_rules(o, model, spec, &hot, why, why_n) : 0;
}

static int check(const struct opts *o, const char *model, char *why, size_t why_n)
{
	const char *level = opts_text(o, "log-level", "info");
	if (log_level_parse(level) < 0)
		return err_why(why, why_n, -EINVAL,
			       "--log-level is \"%s\", must be debug, info, warn or error", level);
	const int format = log_format_parse(opts_text(o, "log-format", "text"));
	if (format < 0)
		return err_why(why, why_n, -EINVAL, "--log-format is \"%s\", must be text or json",
			       opts_text(o, "log-format", ""));
	const double fraction = opts_number(o, "memory-fraction", 1);
	if (!(fraction >= 0.01 && fraction <= 1))
		return err_why(why, why_n, -EINVAL, "--memory-fraction is %g, must be from 0.01 to 1",
			       fraction);
	static const char *const of_scale[] = {"scale-at", "scale-period", "scale-down-after"};
	for (size_t i = 0; i < sizeof of_scale / sizeof *of_scale; i++)
		if (opts_has(o, of_scale[i]) && !opts_has(o, "max-replicas"))
			return err_why(why, why_n, -EINVAL, "--%s: only with --max-replicas", of_scale[i]);
	const double scale_at = opts_number(o, "scale-at", 1);
	if (!(scale_at >= 0.01 && scale_at <= 1e6))
		return err_why(why, why_n, -EINVAL, "--scale-at is %g, must be from 0.01 to 1000000",
			       scale_at);
	int rc = model_kind_check(model, why, why_n);
	if (!rc && (opts_int(o, "tp", 1) > 1 || opts_flag(o, "ep")))
		rc = check_parts(model, (int)opts_int(o, "tp", 1), opts_flag(o, "ep"), why, why_n);
	return rc ? rc : check_place(o, model, why, why_n);
}

int launch_check(const struct opts *o, const char *model, char *why, size_t why_n)
{
	struct launch l;
	char path[PATH_MAX], name[CACHED_NAME];
	cache_find(model, path, name);
	int rc = check(o, path, why, why_n);
	return rc ? rc : plan_workers(o, &l, why, why_n);
}

const char *launch_jobs_endpoint(char out[LAUNCH_JOBS_SIZE])
{
	char path[USER_SOCKET_SIZE];
	if (!user_socket_find("jobs", path))
		return LAUNCH_JOBS;
	snprintf(out, LAUNCH_JOBS_SIZE, "ipc://%s", path);
	return out;
}

/* ---- command lines ---- */

static void argv_add(char ***argv, const char *word)
{
	size_t n = 0;
	while (*argv && (*argv)[n])
		n++;
	*argv = xrealloc(*argv, n + 2, sizeof **argv);
	(*argv)[n] = xstrdup(word);
	(*argv)[n + 1] = NULL;
}

static void argv_add_option(char ***argv, const char *name, const char *text)
{
	char *dashed = xasprintf("--%s", name);
	argv_add(argv, dashed);
	free(dashed);
	if (text)
		argv_add(argv, text);
}

static void argv_free(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}

static bool is_launch_option(const struct opt *s)
{
	return (s >= launch_model_options && s < launch_model_options + launch_n_model_options) ||
	       (s >= launch_listen_options && s < launch_listen_options + launch_n_listen_options);
}

/* Passes on the options given that `mark` takes.  Marks of a command's other tables mean other things. */
static void argv_pass(char ***argv, const struct opts *o, unsigned mark)
{
	for (size_t i = 0; i < o->n_values; i++) {
		const struct opt_value *v = &o->values[i];
		char number[32];
		if (!is_launch_option(v->spec) || !(v->spec->pass & mark) || !v->n_texts)
			continue;
		if (v->spec->kind == OPT_FLAG) {
			if (v->n)
				argv_add_option(argv, v->spec->name, NULL);
			continue;
		}
		snprintf(number, sizeof number, "%" PRId64, v->n);
		argv_add_option(argv, v->spec->name,
				v->spec->kind == OPT_SIZE ? number : v->texts[v->n_texts - 1]);
	}
}

/* Where a local worker reaches a bus that is bound to `bus`. */
static int bus_for_worker(const char *bus, char *out, size_t n, char *why, size_t why_n)
{
	const char *tcp = "tcp://", *colon = strrchr(bus, ':');
	if (strncmp(bus, tcp, strlen(tcp)) != 0) {
		if (strncmp(bus, "ipc://", 6) != 0)
			return err_why(why, why_n, -EINVAL,
				       "--bus is \"%s\", must be ipc://PATH or tcp://HOST:PORT", bus);
		snprintf(out, n, "%s", bus);
		return 0;
	}
	const char *host = bus + strlen(tcp);
	if (colon < host || strspn(colon + 1, "0123456789") == 0 || strcmp(colon + 1, "0") == 0)
		return err_why(why, why_n, -EINVAL,
			       "--bus is \"%s\": give a port, since workers connect to it", bus);
	bool any = strncmp(host, "*:", 2) == 0 || strncmp(host, "0.0.0.0:", 8) == 0;
	snprintf(out, n, "tcp://%s%s", any ? "127.0.0.1" : "", any ? colon : host);
	return 0;
}

static char **controller_argv(const struct launch *l, const char *model, const char *bus,
			      const struct rundir *own, char *program)
{
	const struct opts *o = l->o;
	const char *token = l->token;
	char **argv = NULL;
	argv_add(&argv, program);
	char *path = realpath(model, NULL);
	argv_add_option(&argv, "model", path ? path : model);
	free(path);
	argv_add_option(&argv, "bus", bus);
	char *cache = cache_root(NULL, 0);
	if (cache)
		argv_add_option(&argv, "cache", cache);
	free(cache);
	if (own) {
		char *jobs = xasprintf("ipc://%s/jobs", own->path);
		argv_add_option(&argv, "jobs", jobs);
		argv_add_option(&argv, "http", "none");
		argv_add_option(&argv, "drain-timeout", "0"); /* its only client ends it */
		free(jobs);
	} else {
		if (!opts_has(o, "http"))
			argv_add_option(&argv, "http", LAUNCH_HTTP);
	}
	if (own && !opts_has(o, "log-level"))
		argv_add_option(&argv, "log-level", "error");
	if (token)
		argv_add_option(&argv, "local-token", token);
	if (opts_has(o, "max-replicas")) {
		char number[32];
		snprintf(number, sizeof number, "%" PRId64, (int64_t)l->n_workers / opts_int(o, "tp", 1));
		argv_add_option(&argv, "min-replicas", number);
	}
	argv_pass(&argv, o, TO_CONTROLLER);
	return argv;
}

/* Workers of a device share its memory fraction evenly, unless own is given.  No option is passed if the
 * worker has the device for itself, or follows the CPU's rule of thumb. */
static void argv_add_fraction(char ***argv, const struct opts *o, const char *device, size_t n, double own)
{
	const bool gpu = strncmp(device, "cuda", 4) == 0;
	if (!(own > 0) && !opts_has(o, "memory-fraction") && !(gpu && n > 1))
		return;
	const double share = opts_number(o, "memory-fraction", gpu_fraction) / (double)n;
	char *text = xasprintf("%.6f", own > 0 ? own : share);
	argv_add_option(argv, "memory-fraction", text);
	free(text);
}

static char **worker_argv(void *launch, const char *device, size_t n, double memory_fraction)
{
	const struct launch *l = launch;
	char **argv = NULL;
	argv_add(&argv, l->worker);
	argv_add_option(&argv, "bus", l->worker_bus);
	argv_add_option(&argv, "device", device);
	if (l->own && !opts_has(l->o, "log-level"))
		argv_add_option(&argv, "log-level", "error");
	if (!l->own)
		argv_add_option(&argv, "supervised", NULL);
	if (l->token)
		argv_add_option(&argv, "local-token", l->token);
	argv_pass(&argv, l->o, TO_WORKER);
	if (l->counts)
		argv_add_option(&argv, "expert-counts", l->counts);
	argv_add_fraction(&argv, l->o, device, n, memory_fraction);
	/* A worker that we start has the rights of the service itself. */
	if (!l->own && opts_has(l->o, "curve-key")) {
		argv_add_option(&argv, "key", opts_text(l->o, "curve-key", NULL));
		argv_add_option(&argv, "server-key", opts_text(l->o, "curve-key", NULL));
	}
	const bool cpu = strncmp(device, "cpu", 3) == 0;
	/* Workers of all GPUs have experts on the same cores. */
	const size_t sharing = cpu                                                    ? n
			       : opts_has(l->o, "experts") || opts_has(l->o, "place") ? l->n_workers
										      : 1;
	if (sharing > 1 && !opts_has(l->o, "threads")) {
		char number[16];
		int cores = cpus_cores(cpu && device[3] == ':' ? atoi(device + 4) : -1);
		int share = cores / (int)sharing;
		snprintf(number, sizeof number, "%d", share ? share : 1);
		argv_add_option(&argv, "threads", number);
	}
	return argv;
}

/* --fast is accepted on a CPU, so that one configuration serves machines of both kinds. */
static void note_gpu_only(const struct launch *l)
{
	for (size_t i = 0; i < l->n_devices; i++)
		if (strncmp(l->devices[i].name, "cpu", 3) != 0)
			return;
	if (opts_flag(l->o, "fast"))
		term_note("--fast has no effect on a CPU");
	if (opts_has(l->o, "hot-experts"))
		term_note("--hot-experts has no effect on a CPU, which has all experts");
}

static bool is_none(const struct opts *o, const char *name)
{
	const char *value = opts_text(o, name, NULL);
	return value && strcmp(value, "none") == 0;
}

/* A copy for all workers of this service: one that is started later has the same hot experts, whatever has
 * become of the file. */
static int keep_counts(struct launch *l, const char *path, char *why, size_t why_n)
{
	char *text;
	size_t bytes;
	int rc = file_read(path, EXPERT_COUNTS_MAX, &text, &bytes, why, why_n);
	if (rc)
		return err_prefix(why, why_n, rc, "--expert-counts");
	l->counts = xasprintf("%s/expert-counts", l->dir.path);
	struct replace r;
	if (!(rc = replace_begin(&r, l->counts, 0600, why, why_n))) {
		fwrite(text, 1, bytes, r.f);
		rc = replace_end(&r, why, why_n);
	}
	free(text);
	return rc;
}

int launch_open(struct launch *l, const struct opts *o, const char *model, bool own, char *why, size_t why_n)
{
	*l = (struct launch){.o = o, .own = own, .dir = {.lock_fd = -1}};
	char path[PATH_MAX], name[CACHED_NAME];
	cache_find(model, path, name);
	int rc = check(o, path, why, why_n);
	if (!rc && !own && is_none(o, "http") && is_none(o, "jobs"))
		rc = err_why(
			why, why_n, -EINVAL,
			"--http none and --jobs none leave no way to reach the service: give one of them");
	if (rc || (rc = plan_workers(o, l, why, why_n)))
		return rc;
	note_gpu_only(l);
	char *controller = process_program("quern-controller", why, why_n);
	if (!controller)
		return -ENOENT;
	l->worker = process_program("quern-worker", why, why_n);
	if (!l->worker) {
		rc = -ENOENT;
		goto fail_worker;
	}
	rc = rundir_open(&l->dir, why, why_n);
	if (rc)
		goto fail_rundir;
	char *bus = own || !opts_has(o, "bus") ? xasprintf("ipc://%s/bus", l->dir.path)
					       : xstrdup(opts_text(o, "bus", NULL));
	rc = bus_for_worker(bus, l->worker_bus, sizeof l->worker_bus, why, why_n);
	if (!rc && opts_has(o, "expert-counts"))
		rc = keep_counts(l, opts_text(o, "expert-counts", NULL), why, why_n);
	if (!rc && strncmp(bus, "ipc://", 6) != 0) {
		l->token = xasprintf("%s/token", l->dir.path);
		rc = local_token_create(l->token, why, why_n);
	}
	if (!rc)
		l->controller = controller_argv(l, path, bus, own ? &l->dir : NULL, controller);
	/* Its directory is called by its commit. */
	if (!rc && name[0] && (own || !opts_has(o, "name")))
		argv_add_option(&l->controller, "name", name);
	free(bus);
	if (!rc) {
		free(controller);
		return 0;
	}
	free(l->token);
	free(l->counts);
	rundir_remove(&l->dir);
fail_rundir:
	free(l->worker);
fail_worker:
	free(controller);
	return rc;
}

void launch_supervise(struct launch *l, struct supervise_config *cfg)
{
	cfg->controller = l->controller;
	cfg->worker_argv = worker_argv;
	cfg->launch = l;
	cfg->devices = l->devices;
	cfg->n_devices = l->n_devices;
	cfg->n_workers = l->n_workers;
	cfg->group = (size_t)opts_int(l->o, "tp", 1);
	cfg->once = l->own;
}

void launch_show_loading(const json_t *loading)
{
	const char *doing = json_string_value(json_object_get(loading, "doing"));
	term_progress(doing ? doing : "loading", json_number_value(json_object_get(loading, "done")),
		      json_number_value(json_object_get(loading, "total")),
		      json_number_value(json_object_get(loading, "seconds")));
}

void launch_close(struct launch *l)
{
	argv_free(l->controller);
	free(l->worker);
	free(l->token);
	free(l->counts);
	rundir_remove(&l->dir);
}
