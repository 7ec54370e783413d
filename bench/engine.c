#include "bench/commands.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/numerics.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/private.h"
#include "cli/rundir.h"
#include "bench/sim/samples.h"
#include "bench/steps.h"
#include "cli/stream.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES_MAX = 32, BATCH_MAX = 4096 };
/* QUIET_MS: time without a reply after which the service's progress is requested. */
enum { QUIET_MS = 500, SCHEMA_BYTES_MAX = 16 << 20 };
/* Random prompts draw from the tokens of this text. */
static const char sample_text[] =
	"Once upon a time there was a miller who had three sons, a mill, a donkey and a cat. The sons had to "
	"grind, the donkey had to fetch grain and carry away flour, and the cat had to drive off the mice.";

static const struct usage usage = {
	.name = "bench engine",
	.words = "[MODEL]",
	.about = "Measures prefill and decode through the job socket: of a private service for MODEL, or of "
		 "a\n"
		 "running service (with --to, or without MODEL).  For a private service on a CPU it also "
		 "reports\n"
		 "the time of each part of a step, and the share of this machine's measured memory bandwidth "
		 "and\n"
		 "arithmetic peak that it reaches.  With --guided those are the steps of structured outputs; "
		 "use a\n"
		 "schema whose outputs are longer than --max-tokens.",
	.max_words = 1,
};

struct bench_job {
	uint64_t id;
	int64_t sent_us, first_us, last_us; /* first_us 0: no token yet */
	int64_t n_tokens;
	bool done;
};

/* n tokens received together. */
struct arrival {
	int64_t at_us;
	int64_t n;
};

struct bench {
	struct client *c;
	int64_t prompt_tokens, max_tokens, runs;
	json_int_t *alphabet;
	size_t n_alphabet;
	json_t *schema; /* schema of --guided, or an array of schemas; NULL: none */
	bool guided;    /* the outputs of the current run follow the schema */
	uint64_t random;
	struct bench_job jobs[BATCH_MAX];
	struct arrival *arrivals; /* of one run */
	size_t n_arrivals, cap_arrivals;
	double weights_bytes;        /* the worker's weights; 0: unknown */
	double read_bytes;           /* weights read per step if steps are measured; else weights_bytes */
	char numerics[NUMERICS_MAX]; /* class of the first replica, reported with the figures */
	struct steps *steps;         /* NULL: not measured */
};

/* The results of one batch size. */
struct figures {
	int64_t batch;
	struct samples prefill_tps, decode_tps; /* one sample per run */
	struct samples ttft_ms, itl_ms;         /* pooled over all runs */
	struct samples guided_tps, ratio;       /* with --guided: guided decode speed; guided time over
						 * unguided time */
};

static void figures_fini(struct figures *f)
{
	samples_fini(&f->prefill_tps);
	samples_fini(&f->decode_tps);
	samples_fini(&f->ttft_ms);
	samples_fini(&f->itl_ms);
	samples_fini(&f->guided_tps);
	samples_fini(&f->ratio);
}

/* ---- one run ---- */

/* xorshift64, which gives the same prompts in every measurement. */
static uint64_t next_random(struct bench *b)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return b->random;
}

/* Return the schema of a job.  If --guided gives an array, the jobs use its schemas in turn. */
static json_t *schema_of(const struct bench *b, const struct bench_job *j)
{
	const size_t n = json_array_size(b->schema);
	return n ? json_array_get(b->schema, (size_t)(j - b->jobs) % n) : b->schema;
}

static int send_job(struct bench *b, struct bench_job *j, int64_t max_tokens, struct why *why)
{
	json_t *tokens = json_array();
	for (int64_t i = 0; i < b->prompt_tokens; i++)
		json_array_append_new(tokens, json_integer(b->alphabet[next_random(b) % b->n_alphabet]));
	json_t *request =
		json_pack("{s:s, s:b, s:o, s:{s:I, s:b, s:i}}", "op", "submit", "stream", 1, "tokens", tokens,
			  "params", "max_tokens", (json_int_t)max_tokens, "ignore_eos", 1, "temperature", 0);
	if (b->guided)
		json_object_set(json_object_get(request, "params"), "guided_json", schema_of(b, j));
	*j = (struct bench_job){.sent_us = clock_us()};
	int rc = client_send(b->c, request, &j->id, why);
	json_decref(request);
	return rc;
}

static void on_tokens(struct bench *b, struct bench_job *j, int64_t n, struct samples *itl_ms)
{
	int64_t now = clock_us();
	if (!j->first_us)
		j->first_us = now;
	else if (itl_ms)
		samples_add(itl_ms, (double)(now - j->last_us) / 1e3);
	j->last_us = now;
	j->n_tokens += n;
	array_grow(b->arrivals, b->cap_arrivals, b->n_arrivals + 1);
	b->arrivals[b->n_arrivals++] = (struct arrival){.at_us = now, .n = n};
}

/* Waiting for a prompt has no time limit.  While no token arrives, the service is asked for the number of
 * prompt tokens computed, which is shown as progress on a terminal.  Only a service that does not answer this
 * request within CALL_MS is given up. */
struct quiet {
	uint64_t asked; /* id of the request in flight; 0: none */
	int64_t asked_us;
	int64_t before; /* prompt tokens computed before the run; -1: not known yet */
	int64_t total;  /* prompt tokens of the run */
	int64_t begin_us;
};

static int quiet_ask(struct bench *b, struct quiet *q, struct why *why)
{
	if (q->asked)
		return clock_us() - q->asked_us < (int64_t)CALL_MS * 1000
			       ? 0
			       : err_why(why, -ETIMEDOUT, "the service does not answer");
	json_t *request = json_pack("{s:s}", "op", "status");
	const int rc = client_send(b->c, request, &q->asked, why);
	json_decref(request);
	q->asked_us = clock_us();
	return rc;
}

static void quiet_answer(struct quiet *q, const json_t *status)
{
	const int64_t computed = json_integer_value(json_object_get(status, "prompt_tokens"));
	q->asked = 0;
	if (q->before < 0)
		q->before = computed;
	term_progress("computing prompts (tokens)", (double)(computed - q->before), (double)q->total,
		      (double)(clock_us() - q->begin_us) / 1e6);
}

/* Send n jobs and receive their replies until all are done. */
static int run_jobs(struct bench *b, size_t n, int64_t max_tokens, struct samples *itl_ms, struct why *why)
{
	struct quiet quiet = {.before = -1, .total = (int64_t)n * b->prompt_tokens, .begin_us = clock_us()};
	int rc = 0;
	b->n_arrivals = 0;
	for (size_t i = 0; i < n && !rc; i++)
		rc = send_job(b, &b->jobs[i], max_tokens, why);
	for (size_t left = n; left && !rc;) {
		json_t *reply;
		rc = client_recv(b->c, QUIET_MS, &reply, why);
		if (rc == -ETIMEDOUT) {
			rc = quiet_ask(b, &quiet, why);
			continue;
		}
		if (rc)
			break;
		if (quiet.asked && client_reply_id(reply) == quiet.asked)
			quiet_answer(&quiet, reply);
		/* Ids are assigned in ascending order. */
		uint64_t nth = client_reply_id(reply) - b->jobs[0].id;
		const char *op = client_reply_op(reply);
		if (nth < n && strcmp(op, "error") == 0) {
			client_reply_error(reply, why);
			rc = -EREMOTEIO;
		} else if (nth < n && strcmp(op, "delta") == 0) {
			size_t k = json_array_size(json_object_get(reply, "tokens"));
			if (k)
				on_tokens(b, &b->jobs[nth], (int64_t)k, itl_ms);
		} else if (nth < n && strcmp(op, "done") == 0 && !b->jobs[nth].done) {
			b->jobs[nth].done = true;
			left--;
		}
		json_decref(reply);
	}
	for (size_t i = 0; i < n && !rc; i++)
		if (!b->jobs[i].first_us)
			rc = err_why(why, -EPROTO, "a job ended without a token");
	term_progress_end();
	return rc;
}

/* Measure a run:
 *
 *     first request ---- prefill ---- last first token ---- decode ---- first end of a job
 *                                                       (the batch is complete) */
static void measure(struct bench *b, struct figures *f)
{
	size_t n = (size_t)f->batch;
	int64_t begin = INT64_MAX, all_first = 0, first_end = INT64_MAX, tokens = 0;
	for (size_t i = 0; i < n; i++) {
		const struct bench_job *j = &b->jobs[i];
		begin = j->sent_us < begin ? j->sent_us : begin;
		all_first = j->first_us > all_first ? j->first_us : all_first;
		first_end = j->last_us < first_end ? j->last_us : first_end;
		samples_add(&f->ttft_ms, (double)(j->first_us - j->sent_us) / 1e3);
	}
	for (size_t i = 0; i < b->n_arrivals; i++)
		if (b->arrivals[i].at_us > all_first && b->arrivals[i].at_us <= first_end)
			tokens += b->arrivals[i].n;
	samples_add(&f->prefill_tps,
		    (double)(b->prompt_tokens * f->batch) * 1e6 / (double)(all_first - begin));
	/* A short output may end before the last prompt is computed; then there is no decode time. */
	if (first_end > all_first)
		samples_add(&f->decode_tps, (double)tokens * 1e6 / (double)(first_end - all_first));
}

static int bench_run(struct bench *b, struct figures *f, struct steps *steps, struct why *why)
{
	steps_run_begin(steps, f->batch);
	int rc = run_jobs(b, (size_t)f->batch, b->max_tokens, &f->itl_ms, why);
	steps_run_end(steps);
	if (!rc)
		measure(b, f);
	return rc;
}

/* Repeat the run with outputs that follow the schema. */
static int bench_guided(struct bench *b, struct figures *f, struct why *why)
{
	struct figures guided = {.batch = f->batch};
	b->guided = true;
	int rc = bench_run(b, &guided, b->steps, why);
	b->guided = false;
	if (!rc && guided.decode_tps.n && f->decode_tps.n) {
		const double with = guided.decode_tps.x[0], without = f->decode_tps.x[f->decode_tps.n - 1];
		samples_add(&f->guided_tps, with);
		samples_add(&f->ratio, without / with);
	}
	figures_fini(&guided);
	return rc;
}

static int bench_batch(struct bench *b, struct figures *f, struct why *why)
{
	int rc = 0;
	for (int64_t r = 0; r < b->runs && !rc; r++) {
		rc = bench_run(b, f, b->schema ? NULL : b->steps, why);
		if (!rc && b->schema)
			rc = bench_guided(b, f, why);
	}
	return rc;
}

/* ---- the measurements ---- */

static int learn_alphabet(struct bench *b, struct why *why)
{
	json_t *reply, *request = json_pack("{s:s, s:s}", "op", "tokenize", "text", sample_text);
	int rc = client_call(b->c, request, CALL_MS, &reply, why);
	json_decref(request);
	if (rc)
		return rc;
	const json_t *tokens = json_object_get(reply, "tokens");
	b->n_alphabet = json_array_size(tokens);
	b->alphabet = xcalloc(b->n_alphabet + 1, sizeof *b->alphabet);
	for (size_t i = 0; i < b->n_alphabet; i++)
		b->alphabet[i] = json_integer_value(json_array_get(tokens, i));
	json_decref(reply);
	return b->n_alphabet ? 0 : err_why(why, -EPROTO, "the service tokenizes a text to nothing");
}

static void learn_weights(struct bench *b)
{
	json_t *reply, *request = json_pack("{s:s}", "op", "workers");
	if (client_call(b->c, request, CALL_MS, &reply, NULL) == 0) {
		const json_t *first = json_array_get(json_object_get(reply, "workers"), 0);
		b->weights_bytes = json_number_value(json_object_get(first, "weights_bytes"));
		b->read_bytes = b->steps ? steps_weights_bytes(b->steps) : b->weights_bytes;
		json_decref(reply);
	}
	json_decref(request);
}

static void learn_mode(struct bench *b)
{
	json_t *reply, *request = json_pack("{s:s}", "op", "status");
	if (client_call(b->c, request, CALL_MS, &reply, NULL) == 0) {
		const json_t *first = json_array_get(json_object_get(reply, "replicas"), 0);
		const char *numerics = json_string_value(json_object_get(first, "numerics"));
		snprintf(b->numerics, sizeof b->numerics, "%s", numerics ? numerics : "");
		json_decref(reply);
	}
	json_decref(request);
}

/* Return the rate at which weights are read.  A step reads the weights once and produces one token per
 * job. */
static double gb_per_s(const struct bench *b, struct figures *f)
{
	return b->read_bytes * samples_percentile(&f->decode_tps, 50) / (double)f->batch / 1e9;
}

static void print_table(struct bench *b, struct figures *f, size_t n)
{
	struct table t = {0};
	table_row(&t, "BATCH", "PREFILL tok/s", "DECODE tok/s", "GB/s", "TTFT p50 ms", "p99", "ITL p50 ms",
		  "p90", "p99", NULL);
	for (size_t i = 0; i < n; i++) {
		table_begin(&t);
		table_format(&t, "%" PRId64, f[i].batch);
		table_format(&t, "%.0f", samples_percentile(&f[i].prefill_tps, 50));
		if (f[i].decode_tps.n)
			table_format(&t, "%.1f", samples_percentile(&f[i].decode_tps, 50));
		else
			table_text(&t, NULL);
		if (f[i].decode_tps.n && b->weights_bytes > 0)
			table_format(&t, "%.2f", gb_per_s(b, &f[i]));
		else
			table_text(&t, NULL);
		table_format(&t, "%.2f", samples_percentile(&f[i].ttft_ms, 50));
		table_format(&t, "%.2f", samples_percentile(&f[i].ttft_ms, 99));
		table_format(&t, "%.3f", samples_percentile(&f[i].itl_ms, 50));
		table_format(&t, "%.3f", samples_percentile(&f[i].itl_ms, 90));
		table_format(&t, "%.3f", samples_percentile(&f[i].itl_ms, 99));
	}
	printf("prompts of %" PRId64 " tokens, outputs of %" PRId64 ", median of %" PRId64
	       " runs; numerics: %s\n",
	       b->prompt_tokens, b->max_tokens, b->runs, b->numerics);
	table_print(&t, stdout);
	table_fini(&t);
}

static void print_guided(struct figures *f, size_t n)
{
	struct table t = {0};
	table_row(&t, "BATCH", "FREE tok/s", "GUIDED tok/s", "STEP RATIO", NULL);
	for (size_t i = 0; i < n; i++) {
		if (!f[i].ratio.n)
			continue;
		table_begin(&t);
		table_format(&t, "%" PRId64, f[i].batch);
		table_format(&t, "%.1f", samples_percentile(&f[i].decode_tps, 50));
		table_format(&t, "%.1f", samples_percentile(&f[i].guided_tps, 50));
		table_format(&t, "%.3f", samples_percentile(&f[i].ratio, 50));
	}
	printf("\nwith outputs that keep to the schema (medians of pairs):\n");
	table_print(&t, stdout);
	table_fini(&t);
}

static void print_json(struct bench *b, struct figures *f, size_t n)
{
	json_t *rows = json_array();
	for (size_t i = 0; i < n; i++) {
		json_t *row = json_pack(
			"{s:I, s:f, s:f, s:f, s:{s:f, s:f}, s:{s:f, s:f, s:f}}", "batch",
			(json_int_t)f[i].batch, "prefill_tokens_per_s",
			samples_percentile(&f[i].prefill_tps, 50), "decode_tokens_per_s",
			samples_percentile(&f[i].decode_tps, 50), "weights_gb_per_s", gb_per_s(b, &f[i]),
			"ttft_ms", "p50", samples_percentile(&f[i].ttft_ms, 50), "p99",
			samples_percentile(&f[i].ttft_ms, 99), "itl_ms", "p50",
			samples_percentile(&f[i].itl_ms, 50), "p90", samples_percentile(&f[i].itl_ms, 90),
			"p99", samples_percentile(&f[i].itl_ms, 99));
		if (f[i].ratio.n)
			json_object_set_new(row, "guided",
					    json_pack("{s:f, s:f}", "decode_tokens_per_s",
						      samples_percentile(&f[i].guided_tps, 50), "step_ratio",
						      samples_percentile(&f[i].ratio, 50)));
		if (b->steps)
			json_object_set_new(row, "steps", steps_json(b->steps, f[i].batch));
		json_array_append_new(rows, row);
	}
	json_t *all = json_pack("{s:I, s:I, s:I, s:s, s:f, s:f, s:o}", "prompt_tokens",
				(json_int_t)b->prompt_tokens, "max_tokens", (json_int_t)b->max_tokens, "runs",
				(json_int_t)b->runs, "numerics", b->numerics, "weights_bytes",
				b->weights_bytes, "read_bytes", b->read_bytes, "results", rows);
	stream_print_json(all);
	json_decref(all);
}

static void print(struct bench *b, const struct opts *o, struct figures *f, size_t n)
{
	struct table t = {0};
	if (opts_flag(o, "json")) {
		print_json(b, f, n);
		return;
	}
	print_table(b, f, n);
	if (b->schema)
		print_guided(f, n);
	if (!b->steps)
		return;
	steps_table(b->steps, &t);
	printf("\na step, in ms (means; its prompts without waiting), and its shares of what probes "
	       "reach:\n");
	table_print(&t, stdout);
	table_fini(&t);
}

static int bench_at(struct bench *b, const char *endpoint, struct figures *f, size_t n, struct why *why)
{
	int rc = client_open(endpoint, NULL, CONNECT_MS, &b->c, why);
	if (rc)
		return rc;
	rc = learn_alphabet(b, why);
	/* Warm-up: the first steps touch memory for the first time. */
	if (!rc)
		rc = run_jobs(b, 1, 8, NULL, why);
	learn_weights(b);
	learn_mode(b);
	for (size_t i = 0; i < n && !rc; i++)
		rc = bench_batch(b, &f[i], why);
	client_close(b->c);
	return rc;
}

/* Run the benchmark with a private service.  The service writes the rest of its trace when it ends. */
static int bench_traced(struct bench *b, const struct opts *o, struct figures *f, size_t n, const char *trace,
			struct why *why)
{
	struct private_service s;
	int rc;
	if ((rc = private_start(&s, o, o->words[0], opts_flag(o, "verbose"), why)))
		return rc;
	interrupt_arm();
	rc = private_wait(&s, why);
	if (!rc && trace && (rc = steps_new(&b->steps, trace, why)) == -ENOTSUP)
		rc = 0;
	if (!rc)
		rc = bench_at(b, private_jobs(&s), f, n, why);
	if (rc == -ECONNRESET)
		private_reason(&s, why);
	private_stop(&s);
	return !rc && b->steps ? steps_read(b->steps, why) : rc;
}

/* Run bench_traced() with a trace file.  The file is kept only if the user named it. */
static int bench_private(struct bench *b, struct opts *o, struct figures *f, size_t n, struct why *why)
{
	struct rundir dir;
	if (opts_flag(o, "no-steps"))
		return bench_traced(b, o, f, n, NULL, why);
	if (opts_has(o, "trace-steps"))
		return bench_traced(b, o, f, n, opts_text(o, "trace-steps"), why);
	int rc = rundir_open(&dir, why);
	if (rc)
		return rc;
	char *trace = xasprintf("%s/steps", dir.path);
	if (!(rc = opts_set(o, "trace-steps", trace, why)))
		rc = bench_traced(b, o, f, n, trace, why);
	free(trace);
	rundir_remove(&dir);
	return rc;
}

static int bench(struct opts *o, const int64_t *batches, size_t n, struct why *why)
{
	struct bench *b = xcalloc(1, sizeof *b);
	struct figures f[BATCHES_MAX] = {0};
	b->prompt_tokens = opts_int(o, "prompt-tokens");
	b->max_tokens = opts_int(o, "max-tokens");
	b->runs = opts_int(o, "runs");
	b->random = 0x9e3779b97f4a7c15u;
	for (size_t i = 0; i < n; i++)
		f[i].batch = batches[i];
	int rc = 0;
	if (opts_has(o, "guided"))
		rc = json_read(opts_text(o, "guided"), SCHEMA_BYTES_MAX, &b->schema, why);
	if (!rc)
		rc = o->n_words ? bench_private(b, o, f, n, why)
				: bench_at(b, opts_text_or(o, "to", OPTION_JOBS), f, n, why);
	if (!rc)
		print(b, o, f, n);
	for (size_t i = 0; i < n; i++)
		figures_fini(&f[i]);
	steps_free(b->steps);
	json_decref(b->schema);
	free(b->arrivals);
	free(b->alphabet);
	free(b);
	return rc;
}

static int run(struct opts *o)
{
	int64_t batches[BATCHES_MAX];
	size_t n;
	struct why why;
	int rc = ints_parse(opts_text(o, "batch"), 1, BATCH_MAX, batches, BATCHES_MAX, &n, &why);
	if (rc)
		err_prefix(&why, rc, "--batch");
	else if (o->n_words && opts_has(o, "to"))
		rc = err_why(&why, -EINVAL, "either MODEL or --to");
	else if (o->n_words)
		rc = launch_check(o, o->words[0], &why);
	if (rc == -EINVAL)
		return term_usage("bench engine", "%s", why.text);
	if (!rc)
		rc = bench(o, batches, n, &why);
	return rc ? term_error("%s", why.text) : EXIT_SUCCESS;
}

int cmd_bench_engine(int argc, char **argv)
{
	return command_run(&usage, OPTION_BENCH_ENGINE, run, argc, argv);
}
