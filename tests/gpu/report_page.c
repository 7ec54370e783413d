/* report_page.c - results as Markdown tables; results that were not measured have none. */
#include "tests/gpu/assumed.h"
#include "tests/gpu/goals.h"
#include "tests/gpu/report.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

/* Write a cell.  A bar would end it, so it is escaped. */
static void cell(FILE *f, const char *s)
{
	fputs("| ", f);
	for (; *s; s++)
		fputs(*s == '|' ? "\\|" : (char[]){*s, 0}, f);
	fputc(' ', f);
}

/* Write a number with its significant digits, or "-". */
static void number(FILE *f, double v)
{
	if (!isfinite(v))
		fprintf(f, "| - ");
	else if (v == floor(v))
		fprintf(f, "| %.0f ", v);
	else
		fprintf(f, "| %.*f ", fabs(v) >= 1000 ? 0 : fabs(v) >= 100 ? 1 : fabs(v) >= 10 ? 2 : 3, v);
}

static void heads(FILE *f, const char *const names[], int n)
{
	for (int i = 0; i < n; i++)
		cell(f, names[i]);
	fputs("|\n", f);
	for (int i = 0; i < n; i++)
		fputs("|---", f);
	fputs("|\n", f);
}

#define HEADS(f, ...)                                                                                        \
	heads(f, (const char *const[]){__VA_ARGS__},                                                         \
	      sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* ---- phases that were requested, and their results ---- */

static const char *status_of(const json_t *all, const char *phase, const char **reason)
{
	size_t i;
	const json_t *o;
	*reason = "";
	json_array_foreach(json_object_get(all, "phases"), i, o)
	{
		if (!strcmp(text(o, "name"), phase)) {
			*reason = text(o, "reason");
			return text(o, "status");
		}
	}
	return "not run";
}

static void goals(FILE *f, const json_t *all)
{
	size_t i;
	const json_t *o;
	fputs("## Goals\n\n", f);
	HEADS(f, "goal", "aim", "measured", "verdict");
	json_array_foreach(json_object_get(all, "goals"), i, o)
	{
		const double v = goals_number(o, "measured");
		const char *unit = text(o, "unit"), *reason;
		cell(f, text(o, "goal"));
		fprintf(f, "| %s %g %s ", text(o, "aim"), goals_number(o, "value"), unit);
		number(f, v);
		cell(f, text(o, "verdict"));
		if (!isfinite(v)) {
			const char *status = status_of(all, text(o, "phase"), &reason);
			fprintf(f, "(phase %s: %s) ", text(o, "phase"), status);
		}
		fputs("|\n", f);
	}
}

static void machine(FILE *f, const json_t *all)
{
	const char *key;
	json_t *v;
	const json_t *d = goals_find(json_object_get(all, "data"), "device", NULL);
	fputs("\n## Machine\n\n", f);
	HEADS(f, "what", "as found");
	json_object_foreach(json_object_get(all, "machine"), key, v)
	{
		cell(f, key);
		cell(f, json_string_value(v));
		fputs("|\n", f);
	}
	if (!d)
		return;
	fprintf(f, "| device | %s, %s, %s, kernels %s, %.1f GiB |\n", text(d, "name"), text(d, "isa"),
		text(d, "numerics"), text(d, "build"), goals_number(d, "memory_bytes") / (1 << 30));
	if (goals_number(d, "sms") > 0)
		fprintf(f,
			"| multiprocessors, MHz at most; memory MHz, bits; L2 MiB | %.0f, %.0f; %.0f, %.0f; "
			"%.0f |\n",
			goals_number(d, "sms"), goals_number(d, "sm_mhz"), goals_number(d, "memory_mhz"),
			goals_number(d, "bus_bits"), goals_number(d, "l2_bytes") / (1 << 20));
	fprintf(f, "| a copy in the device reads and writes | %.0f GB/s |\n",
		goals_number(d, "copy_gb_per_s"));
	fprintf(f, "| copies from the host, to the host | %.1f, %.1f GB/s |\n",
		goals_number(d, "upload_gb_per_s"), goals_number(d, "download_gb_per_s"));
	fprintf(f, "| a small kernel after another: in a stream, in a graph | %.2f, %.2f us |\n",
		goals_number(d, "small_kernel_queued_us"), goals_number(d, "small_kernel_replayed_us"));
}

static void phases(FILE *f, const json_t *all)
{
	size_t i;
	const json_t *o;
	fputs("\n## Phases\n\n", f);
	HEADS(f, "phase", "limit, s", "took, s", "status", "reason");
	json_array_foreach(json_object_get(all, "phases"), i, o)
	{
		cell(f, text(o, "name"));
		cell(f, text(o, "limit_s"));
		cell(f, text(o, "seconds"));
		cell(f, text(o, "status"));
		cell(f, text(o, "reason"));
		fputs("|\n", f);
	}
}

static void tests(FILE *f, const json_t *all)
{
	size_t i;
	const json_t *o, *rows = json_object_get(all, "tests");
	if (!json_array_size(rows))
		return;
	fputs("\n## Tests\n\n", f);
	HEADS(f, "phase", "tests", "verdict", "passed", "failed", "reports", "s", "failed tests");
	json_array_foreach(rows, i, o)
	{
		static const char *const keys[] = {"phase",  "name",    "verdict", "passed",
						   "failed", "reports", "seconds", "which"};
		for (int k = 0; k < 8; k++)
			cell(f, text(o, keys[k]));
		fputs("|\n", f);
	}
}

/* Write the checks against the CPU: their number, the largest error, and each that failed. */
static void checks(FILE *f, const json_t *data)
{
	const char *key;
	json_t *rows;
	const json_t *o;
	size_t i;
	bool any = false;
	json_object_foreach((json_t *)data, key, rows)
	{
		int n = 0, bad = 0;
		if (strncmp(key, "shapes-", 7))
			continue;
		if (!any)
			fputs("\n## Every kernel in real shapes\n\n", f);
		any = true;
		json_array_foreach(rows, i, o)
		{
			n++;
			bad += !json_is_true(json_object_get(o, "ok"));
		}
		fprintf(f, "%s: %d checks, %d failed.\n\n", key + 7, n, bad);
		if (bad)
			HEADS(f, "failed", "type", "rows", "error", "at most", "the same bits");
		json_array_foreach(rows, i, o)
		{
			if (json_is_true(json_object_get(o, "ok")))
				continue;
			fprintf(f, "| %s | %s | %.0f | %.2e | %.0e | %s |\n", text(o, "op"), text(o, "type"),
				goals_number(o, "rows"), goals_number(o, "error"), goals_number(o, "limit"),
				json_is_true(json_object_get(o, "same_bits")) ? "yes" : "no");
		}
	}
}

/* ---- measurements ---- */

/* Write the rows of data[name], by their keys; texts are copied unchanged. */
static void rows_of(FILE *f, const json_t *data, const char *name, const char *const keys[], int n)
{
	size_t i;
	const json_t *o;
	json_array_foreach(json_object_get(data, name), i, o)
	{
		if (json_object_get(o, "skipped"))
			continue;
		for (int k = 0; k < n; k++)
			if (json_is_string(json_object_get(o, keys[k])))
				cell(f, text(o, keys[k]));
			else
				number(f, goals_number(o, keys[k]));
		fputs("|\n", f);
	}
}

#define ROWS(f, data, name, ...)                                                                             \
	rows_of(f, data, name, (const char *const[]){__VA_ARGS__},                                           \
		sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void steps(FILE *f, const json_t *data, const char *name, const char *title)
{
	if (!json_object_get(data, name))
		return;
	fprintf(f, "\n## %s\n\n", title);
	HEADS(f, "batch", "steps by", "tokens/s", "step, us", "device busy, us", "copies", "copies, us",
	      "idle share", "host begins, us", "ends, us");
	ROWS(f, data, name, "batch", "how", "tokens_per_s", "step_us", "device_busy_us", "copies", "copy_us",
	     "device_idle_share", "host_begin_us", "host_end_us");
}

/* Write each operation of a step within its graph. */
static void inside(FILE *f, const json_t *data)
{
	size_t i;
	const json_t *o, *rows = json_object_get(data, "inside");
	double all = 0;
	if (!json_array_size(rows))
		return;
	fputs("\n## Operations within a step's graph, AWQ\n\nFrom stamps of the device's time after each "
	      "operation; "
	      "what a stamp takes itself is taken off.\n\n",
	      f);
	HEADS(f, "batch", "context", "operation", "in a step", "us each", "us a step", "us, a stamp");
	json_array_foreach(rows, i, o)
	{
		const double batch = goals_number(o, "batch");
		number(f, batch);
		number(f, goals_number(o, "context"));
		cell(f, text(o, "operation"));
		number(f, goals_number(o, "calls"));
		number(f, goals_number(o, "us_each"));
		number(f, goals_number(o, "us"));
		number(f, goals_number(o, "stamp_us"));
		fputs("|\n", f);
		all += goals_number(o, "us");
		if (goals_number(json_array_get(rows, i + 1), "batch") != batch) {
			number(f, batch);
			fputs("| | all | | ", f);
			number(f, all);
			fputs("| |\n", f);
			all = 0;
		}
	}
}

static void estimates(FILE *f, const json_t *data)
{
	const char *step;
	json_t *v;
	const json_t *steps = json_object_get(json_object_get(data, "estimates"), "steps");
	if (!json_object_get(data, "steps-awq") && !json_object_get(data, "prefill-awq-default"))
		return;
	fputs("\n## Estimates\n\nOf docs/performance/cuda.md, Qwen3-8B AWQ; decodes at contexts of about "
	      "1,024 tokens. "
	      "Of the prompt, the time to its first token.\n\n",
	      f);
	HEADS(f, "step", "estimated, us", "measured, us", "measured over estimated");
	json_object_foreach((json_t *)steps, step, v)
	{
		const double e = goals_number(v, "us"), m = assumed_step_us(data, step);
		cell(f, step);
		number(f, e);
		number(f, m);
		number(f, m / e);
		fputs("|\n", f);
	}
	fputs("\nmeasured.json has these, for tests/sass/measured.json.\n", f);
}

/* Write lines with different keys: the probe, then key=value. */
static void probes(FILE *f, const json_t *data, const json_t *run)
{
	size_t i;
	const char *key;
	json_t *v;
	const json_t *o, *rows = json_object_get(data, "probes");
	if (!json_array_size(rows))
		return;
	fputs("\n## Probes\n\n", f);
	HEADS(f, "probe", "result");
	json_array_foreach(rows, i, o)
	{
		cell(f, text(o, "probe"));
		fputs("|", f);
		json_object_foreach((json_t *)o, key, v)
		{
			if (!strcmp(key, "probe"))
				continue;
			if (json_is_string(v))
				fprintf(f, " %s=%s", key, json_string_value(v));
			else
				fprintf(f, " %s=%.6g", key, json_number_value(v));
		}
		fputs(" |\n", f);
	}
	fputs("\n### What the estimate assumes\n\n", f);
	HEADS(f, "assumption", "measured", "how");
	json_t *all = assumed_measured(data, run);
	json_object_foreach(all, key, v)
	{
		cell(f, key);
		number(f, goals_number(v, "value"));
		cell(f, text(v, "how"));
		fputs("|\n", f);
	}
	json_decref(all);
}

/* Write the four layers of a block together, by number of rows; then every layer alone. */
static void linear(FILE *f, const json_t *data, const char *name, const char *plain)
{
	static const int rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 8192};
	if (!json_object_get(data, name))
		return;
	fprintf(f,
		"\n## Linear layers, AWQ and %s\n\nThe four layers of a block together, us; and cuBLAS over "
		"ours: above 1 is faster than cuBLAS.\n\n",
		plain);
	HEADS(f, "rows", "AWQ", "plain", "AWQ --fast", "plain --fast", "cuBLAS", "AWQ over it",
	      "plain over it", "AWQ --fast over it", "AWQ, GB/s");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		double bytes, b;
		const double awq = goals_layers_us(data, name, "awq", "default", rows[i], &bytes),
			     own = goals_layers_us(data, name, plain, "default", rows[i], &b),
			     fast = goals_layers_us(data, name, "awq", "fast", rows[i], &b),
			     own_fast = goals_layers_us(data, name, plain, "fast", rows[i], &b),
			     blas = goals_layers_us(data, name, plain, "cublas", rows[i], &b);
		if (!isfinite(awq) && !isfinite(blas))
			continue;
		fprintf(f, "| %d ", rows[i]);
		number(f, awq);
		number(f, own);
		number(f, fast);
		number(f, own_fast);
		number(f, blas);
		number(f, blas / awq);
		number(f, blas / own);
		number(f, blas / fast);
		number(f, 1e-3 * bytes / awq);
		fputs("|\n", f);
	}
	fputs("\n", f);
	HEADS(f, "layer", "rows", "type", "mode", "us", "of the copy's bandwidth", "TFLOP/s");
	ROWS(f, data, name, "layer", "rows", "type", "mode", "us", "of_copy", "tflop_per_s");
}

static void attention(FILE *f, const json_t *data)
{
	if (!json_object_get(data, "attention"))
		return;
	fputs("\n## Attention\n\nContext 0: an uneven batch, 128 to 8,192 tokens each.\n\n", f);
	HEADS(f, "kind", "sequences", "context", "rows each", "padded to", "us", "of the copy's bandwidth",
	      "TFLOP/s");
	ROWS(f, data, "attention", "kind", "batch", "context", "rows", "pad_to", "us", "of_copy",
	     "tflop_per_s");
}

static void sampler(FILE *f, const json_t *data)
{
	if (!json_object_get(data, "sampler"))
		return;
	fputs("\n## Sampler\n\n", f);
	HEADS(f, "how", "rows", "us", "the host in the call, us");
	ROWS(f, data, "sampler", "how", "rows", "us", "host_us");
}

/* Write the files of quern bench engine: batches of the service, or one prompt. */
static void engines(FILE *f, const json_t *data)
{
	const char *key;
	json_t *v;
	const json_t *o;
	size_t i;
	bool any = false;
	json_object_foreach((json_t *)data, key, v)
	{
		json_array_foreach(json_object_get(v, "results"), i, o)
		{
			if (!any) {
				fputs("\n## End to end\n\n`quern bench engine`, through the job socket.\n\n",
				      f);
				HEADS(f, "run", "prompt", "batch", "prefill, tokens/s", "decode, tokens/s",
				      "TTFT p50, ms", "ITL p50, ms", "p99", "numerics");
				any = true;
			}
			cell(f, key);
			number(f, goals_number(v, "prompt_tokens"));
			number(f, goals_number(o, "batch"));
			number(f, goals_number(o, "prefill_tokens_per_s"));
			number(f, goals_number(o, "decode_tokens_per_s"));
			number(f, goals_number(json_object_get(o, "ttft_ms"), "p50"));
			number(f, goals_number(json_object_get(o, "itl_ms"), "p50"));
			number(f, goals_number(json_object_get(o, "itl_ms"), "p99"));
			cell(f, text(v, "numerics"));
			fputs("|\n", f);
		}
	}
}

static void serving(FILE *f, const json_t *data)
{
	const char *key;
	json_t *v;
	bool any = false;
	json_object_foreach((json_t *)data, key, v)
	{
		static const char *const keys[] = {
			"completed",   "output_throughput", "total_token_throughput", "median_ttft_ms",
			"p99_ttft_ms", "median_tpot_ms",    "median_itl_ms",          "p99_itl_ms"};
		if (strncmp(key, "serving-", 8))
			continue;
		if (!any) {
			fputs("\n## Serving\n\n`quern bench serve`, over HTTP.\n\n", f);
			HEADS(f, "clients", "requests", "output tokens/s", "all tokens/s", "TTFT p50, ms",
			      "p99", "TPOT p50, ms", "ITL p50, ms", "p99");
		}
		any = true;
		cell(f, key + 8);
		for (int i = 0; i < 8; i++)
			number(f, goals_number(v, keys[i]));
		fputs("|\n", f);
	}
}

void report_page(FILE *f, const json_t *all)
{
	const json_t *data = json_object_get(all, "data"), *run = json_object_get(all, "run"),
		     *device = goals_find(data, "device", NULL);
	fprintf(f, "# Measured on %s, %.10s\n\n",
		device ? text(device, "name") : "a machine without a usable GPU", text(run, "date"));
	fprintf(f,
		"Written by `gpu-run` (`make gpu-pack`), call %s, begun %s UTC, with %s s at most. Weights "
		"and "
		"prompts are "
		"random. All times but the host's are the device's, from graphs of many calls, medians.\n\n",
		text(run, "call"), text(run, "date"), text(run, "limit"));
	if (*text(run, "small"))
		fputs("**Made-up shapes (`--small`): the figures say nothing about a GPU.**\n\n", f);
	goals(f, all);
	machine(f, all);
	phases(f, all);
	probes(f, data, run);
	checks(f, data);
	tests(f, all);
	steps(f, data, "steps-awq", "Steps of decoding, AWQ");
	steps(f, data, "steps-f16", "Steps of decoding, F16");
	inside(f, data);
	if (!*text(run, "small"))
		estimates(f, data);
	engines(f, data);
	serving(f, data);
	linear(f, data, "linear", "f16");
	linear(f, data, "linear-bf16", "bf16");
	attention(f, data);
	sampler(f, data);
}
