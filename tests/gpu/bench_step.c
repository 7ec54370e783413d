/* bench_step.c - measures a decoding step: time of the host, of the device, and between two steps.
 *
 *     gpu_bench_step MODEL [--batch N,...] [--operations N,...] [--stamps N,...] [--prompt N]
 *                    [--steps N] [--json FILE]
 *
 * A worker without its socket, opened as a service opens it, decodes batches of sequences.  The next plan is
 * queued while one runs, as the controller does.  Modes: with graphs (--batch), operation by operation
 * (--operations), and with graphs that record the device's time after each operation (--stamps).  All
 * sequences have the same prompt, computed once and copied, and must get the same tokens.  Host: median times
 * within step_begin() and, when the step is done, step_end().  Idle: the share of the time in which no kernel
 * can run, between two steps or because of a copy (step_probe.h).  A line of JSON per measurement is appended
 * to FILE. */
#include "base/clock.h"
#include "proto/plan.h"
#include "tests/gpu/step_probe.h"
#include "worker/step.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 512, STEPS_MAX = 1000, ROWS = 2048, BLOCK = 16, WARM = 4, LATE_MS = 60000 };

struct bench {
	const char *model;
	int most; /* most sequences that the worker has room for */
	int batch, prompt, steps;
	struct step *step;
	struct bus_ready ready;
	struct plan plan;
	struct result result;
	uint64_t number;
	uint32_t *tokens, *blocks; /* [prompt]; [most][blocks per sequence] */
	struct params params;
	struct why why;
};

enum how { GRAPHS, OPERATIONS, STAMPS };
static const char *const hows[] = {"graphs", "operations", "stamps"};

struct figures {
	int n;
	double begin_us, end_us, wall_us, busy_us, copy_us, copies, idle_share; /* per step */
};

static void die(const char *what, const char *why)
{
	fprintf(stderr, "gpu_bench_step: %s: %s\n", what, why);
	exit(1);
}

static uint32_t blocks_of(const struct bench *b)
{
	return (uint32_t)(b->prompt + b->steps + WARM + BLOCK) / BLOCK;
}

static void open_step(struct bench *b, bool no_graphs)
{
	const uint32_t context = blocks_of(b) * BLOCK;
	struct bus_load load = {.compute = "f32",
				.epoch = 1,
				.block_size = BLOCK,
				.max_context = context,
				.max_rows = ROWS,
				.max_slots = (uint32_t)b->most,
				.max_runs = (uint32_t)b->most};
	const struct step_args a = {.device = "cuda:0", .load = &load, .no_graphs = no_graphs};
	snprintf(load.model, sizeof load.model, "%s", b->model);
	if (step_open(&b->step, &a, &b->ready, &b->why))
		die(b->model, b->why.text);
	if (b->ready.n_blocks < blocks_of(b) * (uint32_t)b->most)
		die(b->model, "the device's memory cannot hold this many sequences");
	b->number = 0;
}

static void begin(struct bench *b)
{
	b->plan.epoch = 1;
	b->plan.number = ++b->number;
	if (step_begin(b->step, &b->plan, &b->why))
		die("a step", b->why.text);
	plan_reset(&b->plan);
}

static void end(struct bench *b)
{
	if (step_end(b->step, &b->result, &b->why))
		die("a step", b->why.text);
}

static void add_run(struct bench *b, int slot, int pos, int rows, bool sample)
{
	*plan_add_run(&b->plan) = (struct plan_run){.slot = (uint32_t)slot,
						    .pos0 = (uint32_t)pos,
						    .n_rows = (uint32_t)rows,
						    .flags = sample ? PLAN_SAMPLE : 0,
						    .from = (uint32_t)slot};
	b->plan.n_rows += (uint32_t)rows;
	b->plan.n_samples += sample;
}

/* Check that all sequences of a batch, with the same prompt and greedy, have the same tokens. */
static void check_tokens(const struct bench *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (b->result.tokens[i] != b->result.tokens[0])
			die("a batch", "sequences of the same prompt got different tokens");
}

/* Give each sequence its prompt and one more token, replacing those of the previous batch.  Sequence 0
 * computes the prompt.  The others get copies of its blocks and compute the last row again. */
static void prefill(struct bench *b)
{
	const uint32_t n = blocks_of(b), used = ((uint32_t)b->prompt + BLOCK - 1) / BLOCK;
	for (int s = 0; s < b->batch; s++) {
		for (uint32_t i = 0; i < n; i++)
			b->blocks[(uint32_t)s * n + i] = (uint32_t)s * n + i;
		*plan_add_seq(&b->plan) = (struct plan_seq){.slot = (uint32_t)s,
							    .seq = (uint64_t)s + 1,
							    .n_prompt = (uint32_t)b->prompt,
							    .n_tokens = (uint32_t)b->prompt,
							    .n_blocks = n,
							    .tokens = b->tokens,
							    .blocks = b->blocks + (uint32_t)s * n,
							    .params = &b->params};
	}
	for (int at = 0, rows; at < b->prompt; at += rows) {
		rows = b->prompt - at < ROWS ? b->prompt - at : ROWS;
		add_run(b, 0, at, rows, false);
		begin(b);
		end(b);
	}
	for (int s = 0; s < b->batch; s++) {
		for (uint32_t i = 0; s && i < used; i++)
			*plan_add_copy(&b->plan) = (struct plan_pair){i, (uint32_t)s * n + i};
		add_run(b, s, b->prompt - 1, 1, true);
	}
	begin(b);
	end(b);
	check_tokens(b, (uint32_t)b->batch);
}

static void add_step(struct bench *b, int i)
{
	for (int s = 0; s < b->batch; s++)
		add_run(b, s, b->prompt + i, 1, true);
}

static int by_value(const void *x, const void *y)
{
	const double a = *(const double *)x, b = *(const double *)y;
	return a < b ? -1 : a > b;
}

static double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof *x, by_value);
	return n ? x[n / 2] : 0;
}

/* Decode one plan ahead, as a service does. */
static struct figures decode(struct bench *b)
{
	static double begun[STEPS_MAX], ended[STEPS_MAX];
	struct figures f = {0};
	struct probe_figures seen;
	for (int i = 0; i < WARM; i++) {
		add_step(b, i);
		begin(b);
		end(b);
	}
	probe_start();
	const int64_t t0 = clock_us();
	for (int i = 0; i <= b->steps; i++) {
		if (i < b->steps) {
			add_step(b, WARM + i);
			const int64_t t = clock_us();
			begin(b);
			begun[i] = (double)(clock_us() - t);
		}
		if (i) {
			struct pollfd p = {.fd = step_fd(b->step), .events = POLLIN};
			while (!step_done(b->step))
				poll(&p, 1, LATE_MS);
			const int64_t t = clock_us();
			end(b);
			ended[i - 1] = (double)(clock_us() - t);
			check_tokens(b, (uint32_t)b->batch);
		}
	}
	f.wall_us = (double)(clock_us() - t0) / b->steps;
	probe_stop(&seen);
	f.begin_us = median(begun, b->steps);
	f.end_us = median(ended, b->steps);
	f.n = seen.n_steps;
	f.busy_us = 1e3 * seen.busy_ms / b->steps;
	f.copy_us = 1e3 * seen.copy_ms / b->steps;
	f.copies = (double)seen.n_copies / b->steps;
	f.idle_share = (seen.idle_ms + seen.copy_ms) /
		       (seen.busy_ms + seen.idle_ms > 0 ? seen.busy_ms + seen.idle_ms : 1);
	return f;
}

static void report_operations(const struct bench *b, FILE *json)
{
	struct probe_operation o[PROBE_NAMES];
	double empty, all = 0;
	const int n = probe_operations(o, &empty);
	printf("%6s %-12s %6s %12s %12s   (a stamp: %.2f us)\n", "batch", "operation", "calls", "us each",
	       "us a step", empty);
	for (int i = 0; i < n; i++) {
		printf("%6d %-12s %6d %12.3f %12.2f\n", b->batch, o[i].name, o[i].calls, o[i].us / o[i].calls,
		       o[i].us);
		fprintf(json,
			"{\"batch\": %d, \"how\": \"stamps\", \"context\": %d, \"operation\": \"%s\", "
			"\"calls\": %d, \"us_each\": %.3f, \"us\": %.2f, \"stamp_us\": %.3f}\n",
			b->batch, b->prompt + b->steps / 2, o[i].name, o[i].calls, o[i].us / o[i].calls,
			o[i].us, empty);
		all += o[i].us;
	}
	printf("%6d %-12s %6s %12s %12.2f\n", b->batch, "all", "", "", all);
}

static void measure(struct bench *b, enum how how, FILE *json)
{
	const uint64_t replayed = step_replayed(b->step);
	prefill(b);
	struct figures f = decode(b);
	if (how != OPERATIONS && step_replayed(b->step) - replayed < (uint64_t)b->steps)
		die("graphs", "steps were not replayed");
	if (how == STAMPS) {
		report_operations(b, json);
	} else {
		printf("%6d %-12s %12.1f %12.1f %12.1f %12.1f %6.1f %10.1f %9.2f%% %12.1f\n", b->batch,
		       hows[how], f.begin_us, f.end_us, f.wall_us, f.busy_us, f.copies, f.copy_us,
		       100 * f.idle_share, 1e6 * b->batch / f.wall_us);
		fprintf(json,
			"{\"batch\": %d, \"how\": \"%s\", \"prompt\": %d, \"host_begin_us\": %.2f, "
			"\"host_end_us\": %.2f, \"step_us\": %.2f, \"device_busy_us\": %.2f, \"copies\": "
			"%.2f, "
			"\"copy_us\": %.2f, \"device_idle_share\": %.4f, \"tokens_per_s\": %.2f, \"steps\": "
			"%d}\n",
			b->batch, hows[how], b->prompt, f.begin_us, f.end_us, f.wall_us, f.busy_us, f.copies,
			f.copy_us, f.idle_share, 1e6 * b->batch / f.wall_us, f.n);
	}
	fflush(stdout);
	fflush(json);
}

/* Parse a number in [lo, hi]; exit for any other. */
static int number(const char *text, int lo, int hi)
{
	char *rest;
	errno = 0;
	long v = strtol(text, &rest, 10);
	if (errno || rest == text || (*rest && *rest != ',') || v < lo || v > hi)
		die(text, "not a number, or out of range");
	return (int)v;
}

/* Measure all batches of the list with one worker; an empty list measures nothing. */
static void measure_all(struct bench *b, const char *batches, enum how how, FILE *json)
{
	b->most = 0;
	for (const char *p = batches; *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : "") {
		const int n = number(p, 1, BATCH_MAX);
		b->most = n > b->most ? n : b->most;
	}
	if (!b->most)
		return;
	b->blocks = calloc((size_t)blocks_of(b) * (size_t)b->most, sizeof *b->blocks);
	probe_stamps(how == STAMPS);
	open_step(b, how == OPERATIONS);
	for (const char *p = batches; *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : "") {
		b->batch = number(p, 1, BATCH_MAX);
		measure(b, how, json);
	}
	step_close(b->step);
	free(b->blocks);
}

int main(int argc, char **argv)
{
	struct bench b = {.prompt = 512, .steps = 200};
	const char *batches[] = {"", "", ""}, *path = "/dev/null";
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--batch") && i + 1 < argc)
			batches[GRAPHS] = argv[++i];
		else if (!strcmp(argv[i], "--operations") && i + 1 < argc)
			batches[OPERATIONS] = argv[++i];
		else if (!strcmp(argv[i], "--stamps") && i + 1 < argc)
			batches[STAMPS] = argv[++i];
		else if (!strcmp(argv[i], "--prompt") && i + 1 < argc)
			b.prompt = number(argv[++i], 1, 1 << 20);
		else if (!strcmp(argv[i], "--steps") && i + 1 < argc)
			b.steps = number(argv[++i], 1, STEPS_MAX);
		else if (!strcmp(argv[i], "--json") && i + 1 < argc)
			path = argv[++i];
		else if (argv[i][0] != '-' && !b.model)
			b.model = argv[i];
		else
			b.model = NULL, i = argc;
	}
	if (!b.model) {
		fprintf(stderr,
			"usage: gpu_bench_step MODEL [--batch N,...] [--operations N,...] [--stamps N,...] "
			"[--prompt N] [--steps N] [--json FILE]\n");
		return 2;
	}
	if (!*batches[GRAPHS] && !*batches[OPERATIONS] && !*batches[STAMPS])
		batches[GRAPHS] = "1,16,64";
	FILE *json = fopen(path, "a");
	if (!json)
		die(path, strerror(errno));
	b.tokens = calloc((size_t)b.prompt, sizeof *b.tokens);
	for (int i = 0; i < b.prompt; i++)
		b.tokens[i] = (uint32_t)(i * 7 + 3) % 256; /* smaller than any vocabulary */
	params_init(&b.params);
	b.params.temperature = 0;
	printf("%6s %-12s %12s %12s %12s %12s %6s %10s %10s %12s\n", "batch", "steps by", "begin us",
	       "end us", "step us", "busy us", "copies", "copies us", "idle", "tokens/s");
	for (enum how how = GRAPHS; how <= STAMPS; how++)
		measure_all(&b, batches[how], how, json);
	fclose(json);
	plan_fini(&b.plan);
	result_fini(&b.result);
	free(b.tokens);
	return 0;
}
