#include "cli/launch.h"

#include "base/alloc.h"
#include "base/cpus.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/option_table.h"
#include "base/replace.h"
#include "cli/models/cache.h"
#include "cli/process.h"
#include "cli/terminal/term.h"
#include "formats/gguf.h"
#include "formats/model_kind.h"
#include "formats/place/hot.h"
#include "formats/shard.h"
#include "proto/local_token.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- checks ---- */

/* Determine the number of workers and their devices. */
static int plan_workers(const struct opts *o, struct launch *l, struct why *why)
{
	int rc = devices_parse(opts_text(o, "device"), l->devices, &l->n_devices, why);
	if (rc)
		return err_prefix(why, rc, "--device");
	const bool scales = opts_has(o, "max-replicas");
	int64_t tp = opts_int(o, "tp"), n = (int64_t)l->n_devices;
	int64_t replicas = opts_int_or(o, "replicas", n > tp && !scales ? n / tp : 1);
	const int64_t most = opts_int_or(o, "max-replicas", replicas);
	const char *which = scales ? "--max-replicas" : "--replicas";
	if (most * tp > SUPERVISE_WORKERS_MAX)
		return err_why(why, -EINVAL, "%s %" PRId64 " with --tp %" PRId64 ": more than %d workers",
			       which, most, tp, SUPERVISE_WORKERS_MAX);
	if (most < replicas)
		return err_why(why, -EINVAL,
			       "--max-replicas %" PRId64 " is below --replicas %" PRId64
			       ", which is the least",
			       most, replicas);
	if (n > most * tp || (!scales && !opts_has(o, "replicas") && n > tp && n % tp))
		return err_why(why, -EINVAL,
			       "--device names %" PRId64 " devices, some of which --tp %" PRId64
			       " and %s %" PRId64 " leave unused",
			       n, tp, which, most);
	l->n_workers = (size_t)(replicas * tp);
	return 0;
}

/* Check that the model can be split into tp shards.  The workers would report this too, but each
 * separately. */
static int check_parts(const char *model, int tp, bool ep, struct why *why)
{
	struct model_config c;
	struct weights *w;
	struct shard s;
	/* An invalid model is left to the worker to refuse. */
	if (model_config_load(model, &c, why))
		return 0;
	int rc = 0;
	if (weights_open(model, &c, &w, why) == 0) {
		rc = shard_init(&s, &c, w, (struct shard_rank){0, tp, ep}, why);
		weights_close(w);
	}
	model_config_fini(&c);
	return rc;
}

/* Check the rules of a placement against the model, for each device.  The workers would report errors too,
 * but each separately. */
static int check_rules(const struct opts *o, const char *model, const char *spec,
		       const struct hot_options *hot, struct why *why)
{
	struct expert_counts counts = {0};
	struct launch l;
	struct model_config c;
	struct placement p;
	int rc = plan_workers(o, &l, why);
	if (rc || model_config_load(model, &c, NULL))
		return rc; /* an invalid model is left to the worker to refuse */
	for (size_t i = 0; !rc && i < l.n_devices; i++) {
		rc = placement_parse(&p, spec, l.devices[i].name, &c, why);
		if (!rc)
			rc = placement_check_ranks(&p, (int)opts_int(o, "tp"), why);
		if (!rc)
			rc = hot_check_placement(hot, &p, l.devices[i].name, why);
	}
	if (!rc && hot->given)
		rc = expert_counts_read(&counts, hot->counts, &c, why);
	expert_counts_fini(&counts);
	model_config_fini(&c);
	return rc;
}

/* Check the options that place the experts of a mixture-of-experts model. */
static int check_place(const struct opts *o, const char *model, struct why *why)
{
	const char *spec;
	const struct hot_options hot = {.given = opts_has(o, "hot-experts"),
					.bytes = opts_int(o, "hot-experts"),
					.counts = opts_text(o, "expert-counts")};
	int rc = placement_options(opts_text(o, "experts"), opts_text(o, "place"), &spec, why);
	if (rc || (rc = hot_check_options(&hot, spec, why)))
		return rc;
	if (opts_has(o, "send-experts-above") && !(spec && opts_flag(o, "fast")))
		return err_why(why, -EINVAL,
			       "--send-experts-above is for --fast with experts on the CPU (--experts cpu or "
			       "--place)");
	return spec ? check_rules(o, model, spec, &hot, why) : 0;
}

/* Check --quantization, which names how the weights are stored, in vLLM's words.  It does not change them. */
static int check_quantization(const struct opts *o, const char *model, struct why *why)
{
	static const char *const same[][2] = {{"awq_marlin", "awq"},
					      {"gptq_marlin", "gptq"},
					      {"auto_round", "auto-round"},
					      {"inc", "auto-round"},
					      {"fbgemm_fp8", "fp8"},
					      {"gpt_oss_mxfp4", "mxfp4"},
					      {"compressed_tensors", "compressed-tensors"},
					      {"modelopt_fp4", "modelopt"}};
	const char *given = opts_text(o, "quantization"), *want = given, *is = "gguf";
	struct model_config c;
	for (size_t i = 0; given && i < sizeof same / sizeof *same; i++)
		if (!strcmp(given, same[i][0]))
			want = same[i][1];
	if (!given || model_config_load(model, &c, NULL))
		return 0; /* an invalid model is left to the worker to refuse */
	if (!gguf_is(model))
		is = c.quant.method;
	model_config_fini(&c);
	if (is && !strcmp(is, want))
		return 0;
	return err_why(why, -EINVAL,
		       "--quantization %.60s: the model's weights are %s%s, and are taken as they are stored "
		       "(quern quantize writes others)",
		       given, is ? "stored as " : "not quantized", is ? is : "");
}

/* Put --host and --port into the address of --http.  *out: owned; NULL if neither is given. */
static int http_address(const struct opts *o, char **out, struct why *why)
{
	const char *http = opts_text(o, "http"), *colon = strrchr(http, ':');
	const char *host = opts_text(o, "host"), *port = opts_text(o, "port");
	*out = NULL;
	if (!host && !port)
		return 0;
	if (!colon || !strncmp(http, "unix:", 5) || strchr(http, ','))
		return err_why(why, -EINVAL,
			       "%s: --http %.200s is not one HOST:PORT, of which it could be a part",
			       host ? "--host" : "--port", http);
	if (host && (!*host || strchr(host, ',') || !strncmp(host, "unix:", 5)))
		return err_why(why, -EINVAL, "--host is \"%.200s\", must be one host", host);
	const bool bare_v6 = host && host[0] != '[' && strchr(host, ':');
	char *given = host ? xasprintf("%s%s%s", bare_v6 ? "[" : "", host, bare_v6 ? "]" : "")
			   : xasprintf("%.*s", (int)(colon - http), http);
	*out = xasprintf("%s:%s", given, port ? port : colon + 1);
	free(given);
	return 0;
}

static int check(const struct opts *o, const char *model, struct why *why)
{
	const char *level = opts_text(o, "log-level");
	if (log_level_parse(level) < 0)
		return err_why(why, -EINVAL, "--log-level is \"%s\", must be debug, info, warn or error",
			       level);
	const int format = log_format_parse(opts_text(o, "log-format"));
	if (format < 0)
		return err_why(why, -EINVAL, "--log-format is \"%s\", must be text or json",
			       opts_text(o, "log-format"));
	const double fraction = opts_number_or(o, "memory-fraction", 1);
	if (!(fraction >= 0.01 && fraction <= 1))
		return err_why(why, -EINVAL, "--memory-fraction is %g, must be from 0.01 to 1", fraction);
	static const char *const of_scale[] = {"scale-at", "scale-period", "scale-down-after"};
	for (size_t i = 0; i < sizeof of_scale / sizeof *of_scale; i++)
		if (opts_has(o, of_scale[i]) && !opts_has(o, "max-replicas"))
			return err_why(why, -EINVAL, "--%s: only with --max-replicas", of_scale[i]);
	const double scale_at = opts_number(o, "scale-at");
	if (!(scale_at >= 0.01 && scale_at <= 1e6))
		return err_why(why, -EINVAL, "--scale-at is %g, must be from 0.01 to 1000000", scale_at);
	int rc = model_kind_check(model, why);
	if (!rc)
		rc = check_quantization(o, model, why);
	if (!rc && (opts_int(o, "tp") > 1 || opts_flag(o, "ep")))
		rc = check_parts(model, (int)opts_int(o, "tp"), opts_flag(o, "ep"), why);
	return rc ? rc : check_place(o, model, why);
}

int launch_check(const struct opts *o, const char *model, struct why *why)
{
	struct launch l;
	char path[PATH_MAX], name[CACHED_NAME];
	cache_find(model, path, name);
	int rc = check(o, path, why);
	return rc ? rc : plan_workers(o, &l, why);
}

const char *launch_jobs_endpoint(char out[LAUNCH_JOBS_SIZE])
{
	char path[USER_SOCKET_SIZE];
	if (!user_socket_find("jobs", path))
		return OPTION_JOBS;
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

/* Pass on the given options that program `to` shares with this program (the same row). */
static void argv_pass(char ***argv, const struct opts *o, enum option_program to)
{
	for (size_t i = 0; i < o->n_values; i++) {
		const struct opt_value *v = &o->values[i];
		char number[32];
		if (!(v->spec->in & OPTION_BIT(to)) || !v->n_texts)
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

/* Store the endpoint at which a local worker reaches a bus that is bound to `bus`. */
static int bus_for_worker(const char *bus, char *out, size_t n, struct why *why)
{
	const char *tcp = "tcp://", *colon = strrchr(bus, ':');
	if (strncmp(bus, tcp, strlen(tcp)) != 0) {
		if (strncmp(bus, "ipc://", 6) != 0)
			return err_why(why, -EINVAL, "--bus is \"%s\", must be ipc://PATH or tcp://HOST:PORT",
				       bus);
		snprintf(out, n, "%s", bus);
		return 0;
	}
	const char *host = bus + strlen(tcp);
	if (colon < host || strspn(colon + 1, "0123456789") == 0 || strcmp(colon + 1, "0") == 0)
		return err_why(why, -EINVAL, "--bus is \"%s\": give a port, since workers connect to it",
			       bus);
	bool any = strncmp(host, "*:", 2) == 0 || strncmp(host, "0.0.0.0:", 8) == 0;
	snprintf(out, n, "tcp://%s%s", any ? "127.0.0.1" : "", any ? colon : host);
	return 0;
}

/* A private service logs errors only.  A service on a terminal logs warnings, because progress and endpoints
 * are shown there anyway. */
static void argv_add_log_level(char ***argv, const struct launch *l)
{
	if (opts_has(l->o, "log-level"))
		return;
	if (l->own)
		argv_add_option(argv, "log-level", "error");
	else if (term_is_tty(stderr) && !opts_has(l->o, "log-format"))
		argv_add_option(argv, "log-level", "warn");
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
	char *cache = cache_root(NULL);
	if (cache)
		argv_add_option(&argv, "cache", cache);
	free(cache);
	if (own) {
		char *jobs = xasprintf("ipc://%s/jobs", own->path);
		argv_add_option(&argv, "jobs", jobs);
		argv_add_option(&argv, "http", "none");
		argv_add_option(&argv, "drain-timeout", "0"); /* only its single client ends it */
		free(jobs);
	}
	argv_add_log_level(&argv, l);
	if (token)
		argv_add_option(&argv, "local-token", token);
	if (opts_has(o, "max-replicas")) {
		char number[32];
		snprintf(number, sizeof number, "%" PRId64, (int64_t)l->n_workers / opts_int(o, "tp"));
		argv_add_option(&argv, "min-replicas", number);
	}
	argv_pass(&argv, o, OPTION_CONTROLLER);
	if (l->http)
		argv_add_option(&argv, "http", l->http); /* the last value counts */
	return argv;
}

/* Workers of a device share its memory fraction evenly, unless own is given.  No option is passed if the
 * worker has the device for itself, or uses the CPU's default. */
static void argv_add_fraction(char ***argv, const struct opts *o, const char *device, size_t n, double own)
{
	const bool gpu = strncmp(device, "cuda", 4) == 0;
	if (!(own > 0) && !opts_has(o, "memory-fraction") && !(gpu && n > 1))
		return;
	const double share = opts_number_or(o, "memory-fraction", OPTION_GPU_FRACTION) / (double)n;
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
	argv_add_log_level(&argv, l);
	if (!l->own)
		argv_add_option(&argv, "supervised", NULL);
	if (l->token)
		argv_add_option(&argv, "local-token", l->token);
	argv_pass(&argv, l->o, OPTION_WORKER);
	if (l->counts)
		argv_add_option(&argv, "expert-counts", l->counts);
	argv_add_fraction(&argv, l->o, device, n, memory_fraction);
	/* A worker that we start has the rights of the service itself. */
	if (!l->own && opts_has(l->o, "curve-key")) {
		argv_add_option(&argv, "key", opts_text(l->o, "curve-key"));
		argv_add_option(&argv, "server-key", opts_text(l->o, "curve-key"));
	}
	const bool cpu = strncmp(device, "cpu", 3) == 0;
	/* The host experts of all GPU workers run on the same cores. */
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

/* Note options without effect on a CPU.  They are accepted, so that one configuration serves machines with
 * and without GPUs. */
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
	const char *value = opts_text(o, name);
	return value && strcmp(value, "none") == 0;
}

/* Copy the expert counts for all workers of this service, so that a worker started later places the same
 * experts on the GPU even if the file has changed. */
static int keep_counts(struct launch *l, const char *path, struct why *why)
{
	char *text;
	size_t bytes;
	int rc = file_read(path, EXPERT_COUNTS_MAX, &text, &bytes, why);
	if (rc)
		return err_prefix(why, rc, "--expert-counts");
	l->counts = xasprintf("%s/expert-counts", l->dir.path);
	struct replace r;
	if (!(rc = replace_begin(&r, l->counts, 0600, why))) {
		fwrite(text, 1, bytes, r.f);
		rc = replace_end(&r, why);
	}
	free(text);
	return rc;
}

int launch_open(struct launch *l, const struct opts *o, const char *model, bool own, struct why *why)
{
	*l = (struct launch){.o = o, .own = own, .dir = {.lock_fd = -1}};
	char path[PATH_MAX], name[CACHED_NAME];
	cache_find(model, path, name);
	int rc = check(o, path, why);
	if (!rc && !own && is_none(o, "http") && is_none(o, "jobs"))
		rc = err_why(
			why, -EINVAL,
			"--http none and --jobs none leave no way to reach the service: give one of them");
	if (rc || (rc = plan_workers(o, l, why)) || (!own && (rc = http_address(o, &l->http, why))))
		return rc;
	note_gpu_only(l);
	char *controller = process_program("quern-controller", why);
	if (!controller) {
		rc = -ENOENT;
		goto fail_controller;
	}
	l->worker = process_program("quern-worker", why);
	if (!l->worker) {
		rc = -ENOENT;
		goto fail_worker;
	}
	rc = rundir_open(&l->dir, why);
	if (rc)
		goto fail_rundir;
	char *bus = own || !opts_has(o, "bus") ? xasprintf("ipc://%s/bus", l->dir.path)
					       : xstrdup(opts_text(o, "bus"));
	rc = bus_for_worker(bus, l->worker_bus, sizeof l->worker_bus, why);
	if (!rc && opts_has(o, "expert-counts"))
		rc = keep_counts(l, opts_text(o, "expert-counts"), why);
	if (!rc && strncmp(bus, "ipc://", 6) != 0) {
		l->token = xasprintf("%s/token", l->dir.path);
		rc = local_token_create(l->token, why);
	}
	if (!rc)
		l->controller = controller_argv(l, path, bus, own ? &l->dir : NULL, controller);
	/* Name the model, because its directory is named after its commit. */
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
fail_controller:
	free(l->http);
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
	cfg->group = (size_t)opts_int(l->o, "tp");
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
	free(l->http);
	rundir_remove(&l->dir);
}
