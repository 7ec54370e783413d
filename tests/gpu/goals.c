#include "tests/gpu/goals.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- looking up ---- */

double goals_number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	return json_is_number(v) ? json_number_value(v) : NAN;
}

static bool has(const json_t *o, va_list args)
{
	for (const char *key; (key = va_arg(args, const char *));) {
		const size_t n = strlen(key);
		if (key[n - 1] == '=') {
			char name[32];
			const char *wanted = va_arg(args, const char *), *got;
			memcpy(name, key, n - 1);
			name[n - 1] = 0;
			got = json_string_value(json_object_get(o, name));
			if (!got || strcmp(got, wanted))
				return false;
		} else if (goals_number(o, key) != va_arg(args, double)) {
			return false;
		}
	}
	return true;
}

const json_t *goals_find(const json_t *data, const char *name, ...)
{
	size_t i;
	const json_t *o;
	json_array_foreach(json_object_get(data, name), i, o)
	{
		va_list args;
		va_start(args, name);
		const bool found = has(o, args);
		va_end(args);
		if (found)
			return o;
	}
	return NULL;
}

double goals_layers_us(const json_t *data, const char *name, const char *type, const char *mode, int rows,
		       double *bytes)
{
	static const char *const layers[] = {"qkv", "o", "gate+up", "down"};
	double us = 0;
	*bytes = 0;
	for (int i = 0; i < 4; i++) {
		const json_t *o = goals_find(data, name, "layer=", layers[i], "type=", type, "mode=", mode,
					     "rows", (double)rows, NULL);
		us += goals_number(o, "us");
		*bytes += goals_number(o, "bytes");
	}
	return us;
}

/* ---- measured values; NAN: not measured ---- */

static double step_number(const json_t *data, const char *type, int batch, const char *key)
{
	return goals_number(goals_find(data, type, "batch", (double)batch, "how=", "graphs", NULL), key);
}

static double decode_step(const json_t *data, int batch)
{
	return step_number(data, "steps-awq", batch, "tokens_per_s");
}

static const json_t *engine_row(const json_t *data, const char *name, int batch)
{
	size_t i;
	const json_t *o;
	json_array_foreach(json_object_get(json_object_get(data, name), "results"), i, o)
	{
		if (goals_number(o, "batch") == batch)
			return o;
	}
	return NULL;
}

static double decode_served(const json_t *data, int batch)
{
	return goals_number(engine_row(data, "engine-awq", batch), "decode_tokens_per_s");
}

static double over_f16(const json_t *data, int batch)
{
	return decode_step(data, batch) / step_number(data, "steps-f16", batch, "tokens_per_s");
}

static double idle(const json_t *data, int batch)
{
	return 100 * step_number(data, "steps-awq", batch, "device_idle_share");
}

static double host(const json_t *data, int batch)
{
	return step_number(data, "steps-awq", batch, "host_begin_us") +
	       step_number(data, "steps-awq", batch, "host_end_us");
}

static double copies(const json_t *data, int batch)
{
	return step_number(data, "steps-awq", batch, "copies");
}

static double awq_bandwidth(const json_t *data, int rows)
{
	double bytes, us = goals_layers_us(data, "linear", "awq", "default", rows, &bytes);
	return 100 * 1e-3 * bytes / us / goals_number(goals_find(data, "device", NULL), "copy_gb_per_s");
}

static double over_cublas(const json_t *data, const char *mode, int rows)
{
	double bytes;
	return goals_layers_us(data, "linear", "f16", "cublas", rows, &bytes) /
	       goals_layers_us(data, "linear", "awq", mode, rows, &bytes);
}

static double awq_cublas(const json_t *data, int rows)
{
	return over_cublas(data, "default", rows);
}

static double fast_cublas(const json_t *data, int rows)
{
	return over_cublas(data, "fast", rows);
}

static double uneven(const json_t *data, int batch)
{
	return 100 *
	       goals_number(goals_find(data, "attention", "kind=", "uneven", "batch", (double)batch, NULL),
			    "of_copy");
}

static double prefill(const json_t *data, const char *name)
{
	return goals_number(engine_row(data, name, 1), "prefill_tokens_per_s");
}

static double prefill_default(const json_t *data, int x)
{
	(void)x;
	return prefill(data, "prefill-awq-default") / prefill(data, "prefill-f16-default");
}

static double prefill_fast(const json_t *data, int x)
{
	(void)x;
	return prefill(data, "prefill-awq-fast") / prefill(data, "prefill-f16-default");
}

/* Return the tokens per second of the packed estimates (tests/sass). */
static double estimated(const json_t *data, int batch)
{
	char name[32];
	snprintf(name, sizeof name, "decode %d", batch);
	const json_t *steps = json_object_get(json_object_get(data, "estimates"), "steps");
	return floor(1e6 * batch / goals_number(json_object_get(steps, name), "us"));
}

/* ---- the goals ---- */

enum aim { AT_LEAST, AT_MOST };

static const struct goal {
	const char *name;
	enum aim aim;
	double value;
	const char *unit, *phase;
	double (*measure)(const json_t *data, int x);
	int x;
	double (*aim_at)(const json_t *data, int x); /* replaces value */
} goals[] = {
	{"Qwen3-8B AWQ, batch 1, steps: estimated", AT_LEAST, 0, "tokens/s", "steps", decode_step, 1,
	 estimated},
	{"Qwen3-8B AWQ, batch 1, served: first goal", AT_LEAST, 600, "tokens/s", "serving", decode_served, 1,
	 NULL},
	{"Qwen3-8B AWQ, batch 1, served: second goal", AT_LEAST, 750, "tokens/s", "serving", decode_served, 1,
	 NULL},
	{"AWQ over F16, batch 1, steps", AT_LEAST, 2.5, "x", "f16", over_f16, 1, NULL},
	{"AWQ linear, 1 row, of the copy's bandwidth", AT_LEAST, 80, "%", "linear", awq_bandwidth, 1, NULL},
	{"AWQ over cuBLAS F16, 1 row", AT_LEAST, 3.4, "x", "linear", awq_cublas, 1, NULL},
	{"AWQ over cuBLAS F16, 16 rows", AT_LEAST, 3.2, "x", "linear", awq_cublas, 16, NULL},
	{"AWQ over cuBLAS F16, 64 rows", AT_LEAST, 2.5, "x", "linear", awq_cublas, 64, NULL},
	{"AWQ over cuBLAS F16, 512 rows", AT_LEAST, 0.85, "x", "rows", awq_cublas, 512, NULL},
	{"AWQ over cuBLAS F16, 2,048 rows", AT_LEAST, 0.85, "x", "linear", awq_cublas, 2048, NULL},
	{"AWQ over cuBLAS F16, 8,192 rows", AT_LEAST, 0.85, "x", "rows", awq_cublas, 8192, NULL},
	{"AWQ --fast over cuBLAS F16, 512 rows", AT_LEAST, 0.9, "x", "rows", fast_cublas, 512, NULL},
	{"AWQ --fast over cuBLAS F16, 2,048 rows", AT_LEAST, 0.95, "x", "linear", fast_cublas, 2048, NULL},
	{"AWQ --fast over cuBLAS F16, 8,192 rows", AT_LEAST, 0.97, "x", "rows", fast_cublas, 8192, NULL},
	{"decode attention, uneven batch of 64, of the copy's bandwidth", AT_LEAST, 80, "%", "attention",
	 uneven, 64, NULL},
	{"prefill of 2,048 tokens, AWQ over F16, default", AT_LEAST, 0.88, "x", "f16", prefill_default, 0,
	 NULL},
	{"prefill of 2,048 tokens, AWQ --fast over F16", AT_LEAST, 0.95, "x", "f16", prefill_fast, 0, NULL},
	{"batch 64: no kernel can run (between steps, copies)", AT_MOST, 2, "%", "steps", idle, 64, NULL},
	{"batch 1: no kernel can run (between steps, copies)", AT_MOST, 2, "%", "steps", idle, 1, NULL},
	{"host time of a step, batch 1", AT_MOST, 50, "us", "steps", host, 1, NULL},
	{"host time of a step, batch 256", AT_MOST, 50, "us", "batches", host, 256, NULL},
	{"copies in a step of decoding", AT_MOST, 0, "", "steps", copies, 1, NULL},
};

json_t *goals_all(const json_t *data)
{
	json_t *all = json_array();
	for (size_t i = 0; i < sizeof goals / sizeof *goals; i++) {
		const struct goal *g = &goals[i];
		const double v = g->measure(data, g->x), aim = g->aim_at ? g->aim_at(data, g->x) : g->value;
		const bool known = isfinite(v) && isfinite(aim);
		const bool met = g->aim == AT_LEAST ? v >= aim : v <= aim;
		json_array_append_new(all, json_pack("{s:s, s:s, s:f, s:s, s:s, s:o, s:s}", "goal", g->name,
						     "aim", g->aim == AT_LEAST ? "at least" : "at most",
						     "value", isfinite(aim) ? aim : 0, "unit", g->unit,
						     "phase", g->phase, "measured",
						     isfinite(v) ? json_real(v) : json_null(), "verdict",
						     !known ? "not measured"
						     : met  ? "met"
							    : "missed"));
	}
	return all;
}
