#include "tests/gpu/assumed.h"

#include "tests/gpu/goals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Return a number of the line of a probe that has this text. */
static double probe(const json_t *data, const char *name, const char *key, const char *text,
		    const char *number)
{
	return goals_number(goals_find(data, "probes", "probe=", name, key, text, NULL), number);
}

static double first_of(const json_t *data, const char *name, const char *number)
{
	return goals_number(goals_find(data, "probes", "probe=", name, NULL), number);
}

/* Return the line of the fastest read with all multiprocessors. */
static const json_t *fastest_read(const json_t *data)
{
	size_t i;
	const json_t *o, *best = NULL;
	json_array_foreach(json_object_get(data, "probes"), i, o)
	{
		const char *name = json_string_value(json_object_get(o, "probe"));
		if (name && !strcmp(name, "read") &&
		    (!best || goals_number(o, "gb_per_s") > goals_number(best, "gb_per_s")))
			best = o;
	}
	return best;
}

static double launch_us(const json_t *data)
{
	return probe(data, "launch", "how=", "plain", "us");
}

static double clock_1(const json_t *data)
{
	return goals_number(fastest_read(data), "clock_ghz");
}

/* down and o use the same kernel, so the difference of their times excludes start and end.  A unit is 16
 * outputs of 64 inputs; a round of the kernel's loop takes mma / 4 units. */
static double issue(const json_t *data)
{
	const json_t *o = goals_find(data, "probes", "probe=", "stream_l2", "layer=", "o", NULL),
		     *down = goals_find(data, "probes", "probe=", "stream_l2", "layer=", "down", NULL),
		     *kernel = json_object_get(json_object_get(json_object_get(data, "estimates"), "kernels"),
					       "linear_stream_kernel<false, 1, 1, 1>");
	const double each = goals_number(kernel, "instructions") / (goals_number(kernel, "mma") / 4);
	const double units = (goals_number(down, "k") * goals_number(down, "n") -
			      goals_number(o, "k") * goals_number(o, "n")) /
			     1024;
	const double cycles = (goals_number(down, "us") - goals_number(o, "us")) * 1e3 * clock_1(data);
	return units * each / first_of(data, "device", "sms") / (4 * cycles);
}

static double row_us(const json_t *data)
{
	return goals_number(goals_find(data, "device", NULL), "small_kernel_replayed_us") - launch_us(data);
}

static double sms(const json_t *data)
{
	return first_of(data, "device", "sms");
}

static double hbm_tbps(const json_t *data)
{
	return 1e-3 * goals_number(fastest_read(data), "gb_per_s");
}

static double l2_tbps(const json_t *data)
{
	return 1e-3 * probe(data, "l2", "how=", "again", "gb_per_s");
}

static double clock_256(const json_t *data)
{
	return probe(data, "peak", "how=", "mma", "clock_ghz");
}

static double mma_cycles(const json_t *data)
{
	return probe(data, "peak", "how=", "mma", "mma_cycles");
}

static double ramp_us(const json_t *data)
{
	return first_of(data, "ramp", "ramp_us");
}

static double trip_us(const json_t *data)
{
	return 1e-3 * probe(data, "chase", "where=", "memory", "ns");
}

static double graph_us(const json_t *data)
{
	return first_of(data, "graph", "us") - launch_us(data);
}

static double mapped_us(const json_t *data)
{
	return 1e-3 * probe(data, "chase", "where=", "mapped", "ns");
}

static const struct {
	const char *name;
	double (*value)(const json_t *data);
	const char *how;
} all[] = {
	{"sms", sms, "the device's properties"},
	{"clock_ghz_1", clock_1, "clock64 over globaltimer, while all multiprocessors read memory"},
	{"clock_ghz_256", clock_256, "clock64 over globaltimer, while all multiprocessors run mma.m16n8k16"},
	{"hbm_tbps", hbm_tbps, "the fastest of the reads by bytes in flight"},
	{"l2_tbps", l2_tbps, "17 MB read again and again, less the launches"},
	{"issue_4", issue, "AWQ down less o at one row, their weights in L2"},
	{"mma_cycles", mma_cycles, "16 warps with 8 chains each on every multiprocessor"},
	{"launch_us", launch_us, "empty kernels in a graph"},
	{"ramp_us", ramp_us, "a kernel that reads 8.7 MB, less its launch and its bytes"},
	{"row_us", row_us, "a norm of one row of 1,024 in a graph, less the launch"},
	{"trip_us", trip_us, "a dependent load of memory"},
	{"graph_us", graph_us, "a graph of one empty kernel, less the launch"},
	{"mapped_us", mapped_us, "a dependent load of mapped memory of the host"},
};

json_t *assumed_measured(const json_t *data, const json_t *run)
{
	json_t *out = json_object();
	const char *date = json_string_value(json_object_get(run, "date")),
		   *commit = json_string_value(json_object_get(run, "commit"));
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const double v = all[i].value(data);
		if (isfinite(v) && v > 0)
			json_object_set_new(
				out, all[i].name,
				json_pack("{s:f, s:o, s:s, s:s}", "value", round(v * 1e4) / 1e4, "date",
					  json_stringn(date ? date : "", date && strlen(date) >= 10 ? 10 : 0),
					  "commit", commit ? commit : "", "how", all[i].how));
	}
	return out;
}

double assumed_step_us(const json_t *data, const char *step)
{
	if (!strncmp(step, "decode ", 7))
		return goals_number(
			goals_find(data, "steps-awq", "batch", atof(step + 7), "how=", "graphs", NULL),
			"step_us");
	const json_t *v = json_object_get(data, "prefill-awq-default");
	if (strncmp(step, "prompt ", 7) || goals_number(v, "prompt_tokens") != atof(step + 7))
		return NAN;
	const json_t *first = json_array_get(json_object_get(v, "results"), 0);
	return 1e3 * goals_number(json_object_get(first, "ttft_ms"), "p50");
}

json_t *assumed_file(const json_t *data, const json_t *run)
{
	const char *step;
	json_t *v, *out = json_object();
	json_object_foreach(json_object_get(json_object_get(data, "estimates"), "steps"), step, v)
	{
		const double us = assumed_step_us(data, step);
		if (isfinite(us))
			json_object_set_new(out, step, json_real(round(us) / 1e3));
	}
	json_object_set_new(out, "assumed", assumed_measured(data, run));
	return out;
}
