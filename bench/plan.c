#include "bench/commands.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/option_table.h"
#include "bench/sim/costmodel.h"
#include "bench/sim/replay.h"
#include "bench/sim/traces.h"
#include "cli/command.h"
#include "cli/models/cache.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CONTEXT = 8192,
	MAX_SEQS_MOST = 1024,
	REQUESTS = 400, /* approximate number of requests in a simulation */
	REQUESTS_MOST = 8000,
	SECONDS_LEAST = 10,
	SECONDS_MOST = 900,
	SEARCH_STEPS = 6,
	DOUBLINGS = 12,
};
/* A rate is served if at least this fraction of its requests is good. */
static const double good_enough = 0.95;

static const struct usage usage = {
	.name = "plan",
	.words = "MODEL",
	.about = "Estimates whether devices hold a model and serve a rate of requests: memory, latencies "
		 "that\n"
		 "clients would see, the highest rate that meets the objectives, and the options for `quern "
		 "serve`.\n"
		 "The real scheduler runs in simulated time.  The time of a step is estimated from the "
		 "device's data\n"
		 "sheet, for cpu from probes of this machine, or read from --measured.",
	.min_words = 1,
	.max_words = 1,
};

struct planner {
	const char *path;
	struct costmodel_device device;
	struct costmodel_model model;
	struct sched_config serve; /* configuration of `quern serve` without options */
	uint32_t tp, replicas, context;
	uint32_t max_seqs; /* starts at that of serve, and is doubled while it limits the running requests */
	double rate, memory_fraction;
	struct lengths lengths;
	struct slo slo;
	uint64_t seed;
	double kv_bytes; /* KV bytes of one device */
	uint32_t n_blocks;
	struct replay_report at_rate; /* one replica, at its share of the rate */
	double best_rate;             /* highest rate of all replicas; 0: none meets the objectives */
};

/* ---- memory ---- */

/* Return the bytes left for K and V on a device, after its shard of the weights and the scratch of a step. */
static double kv_room(const struct planner *p, uint32_t tp)
{
	const double scratch = 64.0 * p->serve.max_rows * 1024; /* activations of a step: 64 KiB per row */
	return p->device.cost.memory_bytes * p->memory_fraction - p->model.stored_bytes / tp - scratch;
}

/* Return the blocks of a sequence of the full context. */
static uint32_t blocks_of_context(const struct planner *p)
{
	const struct sched_config *s = &p->serve;
	return kinds_blocks(&p->model.kinds, p->context, s->block_size,
			    s->chunk && s->chunk < s->max_rows ? s->chunk : s->max_rows);
}

static bool holds(const struct planner *p, uint32_t tp)
{
	const double block_bytes = p->model.kv_token_bytes / tp * p->serve.block_size / p->model.kinds.n;
	return kv_room(p, tp) >= block_bytes * (blocks_of_context(p) + p->model.kinds.n);
}

/* Choose the fewest devices that hold the weights and one sequence of the full context. */
static int choose_tp(struct planner *p, int64_t given, struct why *why)
{
	char weights[32], memory[32];
	uint32_t tp = given ? (uint32_t)given : 1;
	while (!given && !holds(p, tp) && tp < p->device.count)
		tp *= 2;
	if (tp > p->device.count)
		return err_why(why, -EINVAL, "--tp %u: there are %u devices", tp, p->device.count);
	if (tp > 1 && p->model.n_kv_heads % (int)tp)
		return err_why(why, -EINVAL, "--tp %u: the model's %d KV heads cannot be divided by it", tp,
			       p->model.n_kv_heads);
	p->tp = tp;
	p->replicas = p->device.count / tp;
	if (holds(p, tp))
		return 0;
	return err_why(why, -ENOSPC,
		       "%s does not hold it: the weights have %s, a sequence of %u tokens %.2f GB, the "
		       "device %s; use more "
		       "devices, a quantized model, or a shorter --context",
		       tp > 1 ? "a group" : "a device",
		       term_bytes(p->model.stored_bytes, weights, sizeof weights), p->context,
		       p->model.kv_token_bytes * p->context / 1e9,
		       term_bytes(p->device.cost.memory_bytes, memory, sizeof memory));
}

static int plan_memory(struct planner *p, int64_t tp, struct why *why)
{
	int rc = choose_tp(p, tp, why);
	if (rc)
		return rc;
	const struct costmodel c = costmodel_replica(&p->device, &p->model, p->tp);
	p->kv_bytes = kv_room(p, p->tp);
	if (p->device.cpu) /* a CPU's memory is also used by other programs */
		p->kv_bytes = fmin(p->kv_bytes, p->model.kv_token_bytes * p->context * p->serve.max_seqs);
	p->n_blocks = costmodel_blocks(&c, p->kv_bytes, p->serve.block_size);
	return 0;
}

/* ---- simulation ---- */

/* Simulate one replica with requests at this rate. */
static int simulate(const struct planner *p, double rate, struct replay_report *out, struct why *why)
{
	struct replay_config cfg = {.cost = costmodel_replica(&p->device, &p->model, p->tp),
				    .n_blocks = p->n_blocks,
				    .max_context = p->context,
				    .n_turns = 1,
				    .lengths = p->lengths,
				    .n_users = 1,
				    .seed = p->seed,
				    .slo = p->slo};
	struct synthetic s = {.shape = 1, .rate = rate, .lengths = p->lengths, .seed = p->seed};
	struct trace t = {0};
	cfg.sched = p->serve;
	cfg.sched.max_seqs = p->max_seqs;
	s.duration_us = (int64_t)(1e6 * fmin(fmax(REQUESTS / rate, fmin(SECONDS_LEAST, REQUESTS_MOST / rate)),
					     SECONDS_MOST));
	trace_synthetic(&s, &t);
	memset(out, 0, sizeof *out);
	int rc = replay_run(&cfg, &t, out, why);
	trace_fini(&t);
	return rc;
}

static double good_share(const struct replay_report *r)
{
	const uint64_t n = r->n_requests - r->n_refused;
	return n ? (double)r->n_good / (double)n : 1;
}

/* Return whether one replica serves this rate.  *rc: an error. */
static bool serves(const struct planner *p, double rate, int *rc, struct why *why)
{
	struct replay_report r;
	*rc = simulate(p, rate, &r, why);
	const bool good = !*rc && good_share(&r) >= good_enough;
	replay_report_fini(&r);
	return good;
}

/* Find the highest rate that one replica serves, by doubling and bisection. */
static int find_best(struct planner *p, struct why *why)
{
	int rc = 0;
	double lo = 0, hi = p->rate / p->replicas;
	for (int i = 0; i < DOUBLINGS && !rc && serves(p, hi, &rc, why); i++) {
		lo = hi;
		hi *= 2;
	}
	for (int i = 0; lo == 0 && i < DOUBLINGS && !rc; i++) {
		const double half = hi / 2;
		if (serves(p, half, &rc, why))
			lo = half;
		else
			hi = half;
	}
	for (int i = 0; lo > 0 && i < SEARCH_STEPS && !rc; i++) {
		const double middle = sqrt(lo * hi);
		if (serves(p, middle, &rc, why))
			lo = middle;
		else
			hi = middle;
	}
	p->best_rate = lo * p->replicas;
	return rc;
}

static int run(struct planner *p, struct why *why)
{
	int rc;
	for (p->max_seqs = p->serve.max_seqs;; p->max_seqs *= 2) {
		rc = simulate(p, p->rate / p->replicas, &p->at_rate, why);
		if (rc || p->at_rate.running_max < p->max_seqs || p->max_seqs >= MAX_SEQS_MOST)
			break;
		replay_report_fini(&p->at_rate);
	}
	return rc ? rc : find_best(p, why);
}

/* ---- report ---- */

/* Return the number of devices that the rate takes; 0: no number suffices. */
static uint64_t enough(const struct planner *p)
{
	return p->best_rate > 0 ? (uint64_t)ceil(p->rate / (p->best_rate / p->replicas)) * p->tp : 0;
}

static bool is_served(const struct planner *p)
{
	return good_share(&p->at_rate) >= good_enough;
}

static void put_serve(const struct planner *p, struct buf *b)
{
	buf_printf(b, "quern serve %s", p->path);
	if (p->device.cpu && p->device.count > 1)
		buf_printf(b, " --replicas %u", p->replicas);
	for (uint32_t i = 0; !p->device.cpu && i < p->replicas * p->tp; i++)
		buf_printf(b, "%scuda:%u", i ? "," : " --device ", i);
	if (p->tp > 1)
		buf_printf(b, " --tp %u", p->tp);
	if ((int)p->context < p->model.max_position)
		buf_printf(b, " --context %u", p->context);
	if (p->max_seqs != p->serve.max_seqs)
		buf_printf(b, " --max-seqs %u", p->max_seqs);
	if (p->memory_fraction != OPTION_GPU_FRACTION)
		buf_printf(b, " --memory-fraction %g", p->memory_fraction);
	if (p->device.cpu) /* a CPU worker would take less by default */
		buf_printf(b, " --kv-bytes %.0fM", floor(p->kv_bytes / (1 << 20)));
}

static const char *source_text(enum costmodel_source s)
{
	static const char *const texts[] = {"estimated from its data sheet",
					    "estimated from probes of this machine", "as measured"};
	return texts[s];
}

static json_t *percentiles(struct samples *s)
{
	return json_pack("{s:f, s:f, s:f}", "p50", samples_percentile(s, 50), "p90",
			 samples_percentile(s, 90), "p99", samples_percentile(s, 99));
}

static void print_json(struct planner *p)
{
	static const char *const sources[] = {"data sheet", "probed", "measured"};
	struct replay_report *r = &p->at_rate;
	struct buf serve = {0};
	put_serve(p, &serve);
	json_t *o = json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:f}", "model", p->path, "device",
			      p->device.name, "devices", (json_int_t)p->device.count, "costs",
			      sources[p->device.source], "tp", (json_int_t)p->tp, "replicas",
			      (json_int_t)p->replicas, "context", (json_int_t)p->context, "rate", p->rate);
	json_object_set_new(o, "memory",
			    json_pack("{s:f, s:f, s:f, s:f, s:I, s:f}", "device_bytes",
				      p->device.cost.memory_bytes, "weights_bytes",
				      p->model.stored_bytes / p->tp, "kv_bytes", p->kv_bytes,
				      "kv_token_bytes", p->model.kv_token_bytes / p->tp, "tokens",
				      (json_int_t)p->n_blocks * p->serve.block_size / p->model.kinds.n,
				      "sequences_of_context", (double)p->n_blocks / blocks_of_context(p)));
	json_object_set_new(o, "ttft_ms", percentiles(&r->ttft_ms));
	json_object_set_new(o, "tpot_ms", percentiles(&r->tpot_ms));
	json_object_set_new(o, "itl_ms", percentiles(&r->itl_ms));
	json_object_set_new(o, "e2el_ms", percentiles(&r->e2el_ms));
	json_object_set_new(o, "good_share", json_real(good_share(r)));
	json_object_set_new(o, "goodput_per_s", json_real(p->rate * good_share(r)));
	json_object_set_new(o, "busy_share", json_real(r->sim_s > 0 ? r->busy_s / r->sim_s : 0));
	json_object_set_new(o, "served", json_boolean(is_served(p)));
	json_object_set_new(o, "highest_rate", json_real(p->best_rate));
	json_object_set_new(o, "devices_enough", json_integer((json_int_t)enough(p)));
	json_object_set_new(o, "serve", json_stringn(serve.p, serve.len));
	json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(o);
	buf_fini(&serve);
}

static void latency_row(struct table *t, const char *name, struct samples *s)
{
	table_begin(t);
	table_text(t, name);
	table_format(t, "%.2f", samples_percentile(s, 50));
	table_format(t, "%.2f", samples_percentile(s, 90));
	table_format(t, "%.2f", samples_percentile(s, 99));
}

static void print_text(struct planner *p)
{
	struct replay_report *r = &p->at_rate;
	char a[32], b[32], c[32];
	struct table t = {0};
	struct buf serve = {0};
	printf("model     %.3g billion parameters for a token, %s of weights, %s of K and V for a token\n",
	       p->model.params / 1e9, term_bytes(p->model.stored_bytes, a, sizeof a),
	       term_bytes(p->model.kv_token_bytes, b, sizeof b));
	printf("devices   %u x %s, %u replica%s of %u; a step's time is %s\n", p->device.count,
	       p->device.name, p->replicas, p->replicas == 1 ? "" : "s", p->tp,
	       source_text(p->device.source));
	printf("memory    %s each: weights %s, KV cache %s: %" PRIu64 " tokens, %.1f sequences of %u\n",
	       term_bytes(p->device.cost.memory_bytes, a, sizeof a),
	       term_bytes(p->model.stored_bytes / p->tp, b, sizeof b), term_bytes(p->kv_bytes, c, sizeof c),
	       (uint64_t)p->n_blocks * p->serve.block_size / p->model.kinds.n,
	       (double)p->n_blocks / blocks_of_context(p), p->context);
	printf("\nat %g requests a second\n\n", p->rate);
	table_row(&t, "ms", "p50", "p90", "p99", NULL);
	latency_row(&t, "TTFT", &r->ttft_ms);
	latency_row(&t, "TPOT", &r->tpot_ms);
	latency_row(&t, "E2EL", &r->e2el_ms);
	table_print(&t, stdout);
	table_fini(&t);
	printf("\ngoodput   %.2f requests a second (%.1f %% are good); a device works %.0f %% of the time\n",
	       p->rate * good_share(r), 100 * good_share(r), r->sim_s > 0 ? 100 * r->busy_s / r->sim_s : 0);
	if (r->n_preempted)
		printf("preempted %" PRIu64 " sequences: the KV cache is full at times\n", r->n_preempted);
	if (p->best_rate > 0)
		printf("highest   %.3g requests a second, of which %.0f %% are good\n", p->best_rate,
		       100 * good_enough);
	if (!p->best_rate)
		printf("the objectives are met at no rate: a faster device, or other objectives (--slo)\n");
	else if (!is_served(p))
		printf("too few   this rate takes %" PRIu64 " such devices\n", enough(p));
	put_serve(p, &serve);
	printf("\n%.*s\n", (int)serve.len, serve.p);
	buf_fini(&serve);
}

/* ---- options ---- */

static int read_options(const struct opts *o, struct planner *p, struct why *why)
{
	p->serve = (struct sched_config){
		.block_size = (uint32_t)option_default(OPTION_SERVE, "block-size"),
		.max_seqs = (uint32_t)option_default(OPTION_SERVE, "max-seqs"),
		.max_rows = (uint32_t)option_default(OPTION_SERVE, "max-batch-tokens"),
		.chunk = (uint32_t)option_default(OPTION_SERVE, "chunk"),
		.step_us = option_default(OPTION_SERVE, "max-step-ms") * 1000,
		.step_auto = true,
	};
	p->rate = opts_number(o, "rate");
	p->memory_fraction = opts_number(o, "memory-fraction");
	p->seed = (uint64_t)opts_int(o, "seed");
	if (!(p->rate >= 1e-3 && p->rate <= 1e5))
		return err_why(why, -EINVAL, "--rate must be 0.001 to 100000 requests a second");
	if (!(p->memory_fraction >= 0.01 && p->memory_fraction <= 1))
		return err_why(why, -EINVAL, "--memory-fraction must be 0.01 to 1");
	int rc = lengths_parse(opts_text(o, "lengths"), &p->lengths, why);
	if (rc)
		return err_prefix(why, rc, "--lengths");
	rc = slo_parse(opts_text(o, "slo"), &p->slo, why);
	return rc ? err_prefix(why, rc, "--slo") : 0;
}

/* Read the figures of the model and the devices. */
static int read_costs(const struct opts *o, struct planner *p, struct why *why)
{
	int rc = costmodel_device_read(opts_text(o, "device"), &p->device, why);
	if (rc)
		return err_prefix(why, rc, "--device");
	rc = costmodel_model_read(p->path, &p->device, &p->model, why);
	if (rc)
		return rc;
	costmodel_load(&p->device, &p->model);
	if (opts_has(o, "measured"))
		rc = costmodel_measured(&p->device, opts_text(o, "measured"), why);
	const int most = p->model.max_position;
	p->context = (uint32_t)opts_int_or(o, "context", most < CONTEXT ? most : CONTEXT);
	if (!rc && (int64_t)p->context > most)
		rc = err_why(why, -EINVAL, "--context %u: the model's context is %d", p->context, most);
	return rc;
}

int cmd_plan(int argc, char **argv)
{
	struct opts o = {0};
	struct planner *p = xcalloc(1, sizeof *p);
	struct why why;
	char path[PATH_MAX], name[CACHED_NAME];
	opts_add_program(&o, OPTION_PLAN);
	int status = command_parse(&o, &usage, argc, argv);
	if (status != COMMAND_GO_ON)
		goto out;
	if (read_options(&o, p, &why)) {
		status = term_usage("plan", "%s", why.text);
		goto out;
	}
	cache_find(o.words[0], path, name);
	p->path = path;
	int rc = read_costs(&o, p, &why);
	if (!rc)
		rc = plan_memory(p, opts_int(&o, "tp"), &why);
	if (!rc)
		rc = run(p, &why);
	if (!rc && opts_flag(&o, "json"))
		print_json(p);
	else if (!rc)
		print_text(p);
	status = term_finish(rc ? term_error("%s", why.text) : EXIT_SUCCESS);
out:
	replay_report_fini(&p->at_rate);
	free(p);
	opts_fini(&o);
	return status;
}
