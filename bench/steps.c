/* steps.c - computes medians per batch size from the lines of a trace, and their shares of the probed
 * rates. */
#include "bench/steps.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "bench/sim/samples.h"
#include "kernels/cpu/probe.h"
#include "worker/trace.h"

#include <stdlib.h>
#include <string.h>

enum { PROBE_US = 60 * 1000, LINE_MAX_BYTES = 1 << 12 };

/* Phases that are printed.  Some combine several kinds of the trace. */
enum part { LINEAR, ROWS, ATTENTION, HEAD, MASK, SAMPLE, GROUP, WAIT, PARTS };
static const char *const part_names[PARTS] = {"linear", "norm_rope", "attention", "head",
					      "masks",  "sampling",  "group",     "waiting"};
static const char *const headings[PARTS] = {"LINEAR", "NORM/ROPE", "ATTENTION", "HEAD",
					    "MASKS",  "SAMPLING",  "GROUP",     "WAITING"};

static enum part part_of(enum trace_kind k)
{
	switch (k) {
	case TRACE_LINEAR:
		return LINEAR;
	case TRACE_ROWS:
		return ROWS;
	case TRACE_ATTENTION:
		return ATTENTION;
	case TRACE_HEAD:
		return HEAD;
	case TRACE_MASK:
		return MASK;
	case TRACE_SAMPLE:
		return SAMPLE;
	case TRACE_GROUP:
		return GROUP;
	default:
		return WAIT;
	}
}

struct line {
	int64_t at_us, number, rows, seqs, samples, context, experts;
	double us[PARTS];
};

/* Bytes and operations per second. */
struct roofs {
	double read, peak;
};

struct run {
	int64_t batch, from_us, to_us;
	struct roofs before, after;
};

struct steps {
	char *path; /* owned */
	struct probe *probe;
	enum probe_kind peak; /* probe of the arithmetic that the mode uses; PROBE_KINDS: none */
	int64_t pid;          /* pid of the measured worker */
	double layers_bytes, head_bytes, kv_token_bytes, layers_macs, head_macs;
	double experts, expert_bytes; /* experts per row, and bytes of one; in layers_bytes */
	struct roofs last;            /* the latest probes */
	struct run *runs;             /* [n_runs] */
	size_t n_runs, cap_runs;
	struct line *lines; /* [n_lines] in order of time */
	size_t n_lines, cap_lines;
};

/* ---- the trace ---- */

static double number(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

/* Return the probe of the arithmetic of a mode: "int8 by amx", "bf16", ... */
static enum probe_kind peak_of(const char *mode)
{
	static const struct {
		const char *mode;
		enum probe_kind kind;
	} all[] = {
		{"f32", PROBE_F32},
		{"bf16 by amx", PROBE_BF16_AMX},
		{"bf16", PROBE_BF16},
		{" by amx", PROBE_INT8_AMX},
		{" by avx512vnni", PROBE_INT8_VNNI},
		{" by avxvnni", PROBE_INT8_AVXVNNI},
		{" by avx2", PROBE_INT8_AVX2},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strstr(mode, all[i].mode))
			return probe_can(all[i].kind) ? all[i].kind : PROBE_KINDS;
	return PROBE_KINDS;
}

static void add_line(struct steps *s, const json_t *o)
{
	const json_t *ns = json_object_get(o, "ns");
	array_grow(s->lines, s->cap_lines, s->n_lines + 1);
	struct line *l = &s->lines[s->n_lines++];
	*l = (struct line){.at_us = (int64_t)number(o, "at_us"),
			   .number = (int64_t)number(o, "number"),
			   .rows = (int64_t)number(o, "rows"),
			   .seqs = (int64_t)number(o, "seqs"),
			   .samples = (int64_t)number(o, "samples"),
			   .context = (int64_t)number(o, "context"),
			   .experts = (int64_t)number(o, "experts")};
	for (int k = 0; k < TRACE_KINDS; k++)
		l->us[part_of((enum trace_kind)k)] += number(ns, trace_name((enum trace_kind)k)) / 1e3;
}

/* Call fn for each line.  A truncated last line (the worker was killed) is skipped. */
static int each_line(const char *path, void (*fn)(struct steps *s, const json_t *o), struct steps *s,
		     struct why *why)
{
	char text[LINE_MAX_BYTES];
	FILE *f = fopen(path, "r");
	if (!f)
		return err_why(why, -errno, "cannot read %s: %s", path, strerror(errno));
	while (fgets(text, sizeof text, f)) {
		json_t *o = NULL;
		if (json_parse(text, strlen(text), &o, NULL) == 0)
			fn(s, o);
		json_decref(o);
	}
	fclose(f);
	return 0;
}

static void take_load(struct steps *s, const json_t *o)
{
	if (!json_object_get(o, "load"))
		return;
	const char *device = json_string_value(json_object_get(o, "device")),
		   *mode = json_string_value(json_object_get(o, "mode"));
	if (!device || strcmp(device, "cpu") != 0)
		return;
	s->pid = (int64_t)number(o, "pid");
	s->peak = peak_of(mode ? mode : "");
	s->layers_bytes = number(o, "layers_bytes");
	s->head_bytes = number(o, "head_bytes");
	s->kv_token_bytes = number(o, "kv_token_bytes");
	s->layers_macs = number(o, "layers_macs");
	s->head_macs = number(o, "head_macs");
	s->experts = number(o, "experts");
	s->expert_bytes = number(o, "expert_bytes");
}

static void take_step(struct steps *s, const json_t *o)
{
	if ((int64_t)number(o, "pid") == s->pid && json_object_get(o, "ns"))
		add_line(s, o);
}

static void take_probes(struct steps *s)
{
	s->last.read = probe_rate(s->probe, PROBE_READ, 0, PROBE_US);
	s->last.peak = s->peak == PROBE_KINDS ? 0 : probe_rate(s->probe, s->peak, 0, PROBE_US);
}

int steps_new(struct steps **out, const char *trace, struct why *why)
{
	struct steps *s = xcalloc(1, sizeof *s);
	s->path = xstrdup(trace);
	int rc = each_line(trace, take_load, s, why);
	if (!rc && !s->pid)
		rc = err_why(why, -ENOTSUP, "steps are measured on a CPU only");
	if (!rc && !(rc = probe_new(&s->probe, 0, 0, why)))
		take_probes(s);
	if (rc) {
		steps_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

double steps_weights_bytes(const struct steps *s)
{
	return s->layers_bytes + s->head_bytes;
}

void steps_free(struct steps *s)
{
	if (!s)
		return;
	probe_free(s->probe);
	free(s->path);
	free(s->runs);
	free(s->lines);
	free(s);
}

void steps_run_begin(struct steps *s, int64_t batch)
{
	if (!s)
		return;
	array_grow(s->runs, s->cap_runs, s->n_runs + 1);
	s->runs[s->n_runs++] = (struct run){.batch = batch, .before = s->last, .from_us = clock_us()};
}

void steps_run_end(struct steps *s)
{
	if (!s)
		return;
	struct run *r = &s->runs[s->n_runs - 1];
	r->to_us = clock_us();
	take_probes(s);
	r->after = s->last;
}

int steps_read(struct steps *s, struct why *why)
{
	return each_line(s->path, take_step, s, why);
}

/* ---- figures ---- */

/* Steps of one kind and one batch size: a sample per step, or per run. */
struct figures {
	struct samples step_us, part_us[PARTS];
	struct samples gb_per_s, memory_share, gop_per_s, peak_share; /* per run */
	double rows, us;                                              /* the current run */
};

static void figures_fini(struct figures *f)
{
	samples_fini(&f->step_us);
	for (int p = 0; p < PARTS; p++)
		samples_fini(&f->part_us[p]);
	samples_fini(&f->gb_per_s);
	samples_fini(&f->memory_share);
	samples_fini(&f->gop_per_s);
	samples_fini(&f->peak_share);
}

static double total_us(const struct line *l)
{
	double us = 0;
	for (int p = 0; p < PARTS; p++)
		us += l->us[p];
	return us;
}

/* Return whether a step decodes the whole batch and directly follows another such step, so that it does not
 * wait for a client. */
static bool decodes(const struct steps *s, size_t i, int64_t batch)
{
	const struct line *l = &s->lines[i], *before = i ? l - 1 : NULL;
	return l->rows == batch && l->seqs == batch && l->samples == batch && before &&
	       before->number + 1 == l->number && before->rows == batch && before->seqs == batch;
}

static bool is_prompt(const struct line *l)
{
	return l->rows >= 2 * l->seqs && l->rows > l->samples;
}

static double mean(double a, double b)
{
	return (a + b) / 2;
}

/* Return the bytes that a step reads.  For a mixture-of-experts model, these include the experts actually
 * read. */
static double bytes_of(const struct steps *s, const struct line *l)
{
	const double more = l->experts ? ((double)l->experts - s->experts) * s->expert_bytes : 0;
	return s->layers_bytes + more + (l->samples ? s->head_bytes : 0) +
	       s->kv_token_bytes * (double)l->context;
}

/* Add the run's totals as rates, and as shares of the probes before and after the run. */
static void add_rates(struct figures *f, const struct run *r, double bytes, double macs, double us)
{
	if (us <= 0)
		return;
	const double gb = bytes / us / 1e3, gop = 2 * macs / us / 1e3;
	samples_add(&f->gb_per_s, gb);
	samples_add(&f->gop_per_s, gop);
	samples_add(&f->memory_share, 100 * gb * 1e9 / mean(r->before.read, r->after.read));
	if (r->before.peak > 0)
		samples_add(&f->peak_share, 100 * gop * 1e9 / mean(r->before.peak, r->after.peak));
}

static void add_run(const struct steps *s, const struct run *r, bool prompts, struct figures *f)
{
	double bytes = 0, macs = 0, us = 0;
	for (size_t i = 0; i < s->n_lines; i++) {
		const struct line *l = &s->lines[i];
		if (l->at_us < r->from_us || l->at_us > r->to_us ||
		    !(prompts ? is_prompt(l) : decodes(s, i, r->batch)))
			continue;
		/* A prompt's first step waits for the client. */
		const double step_us = total_us(l) - (prompts ? l->us[WAIT] : 0);
		samples_add(&f->step_us, step_us);
		for (int p = 0; p < PARTS; p++)
			samples_add(&f->part_us[p], prompts && p == WAIT ? 0 : l->us[p]);
		bytes += bytes_of(s, l);
		macs += s->layers_macs * (double)l->rows + s->head_macs * (double)l->samples;
		us += step_us;
	}
	add_rates(f, r, bytes, macs, us);
}

static void measure(const struct steps *s, int64_t batch, bool prompts, struct figures *f)
{
	*f = (struct figures){0};
	for (size_t i = 0; i < s->n_runs; i++)
		if (s->runs[i].batch == batch)
			add_run(s, &s->runs[i], prompts, f);
}

static void add_cell(struct table *t, struct samples *x, const char *format)
{
	if (x->n)
		table_format(t, format, samples_percentile(x, 50));
	else
		table_text(t, NULL);
}

static void add_row(const struct steps *s, struct table *t, int64_t batch, bool prompts)
{
	struct figures f;
	measure(s, batch, prompts, &f);
	if (f.step_us.n) {
		const double step = samples_mean(&f.step_us);
		table_begin(t);
		table_format(t, prompts ? "%lld, prompts" : "%lld", (long long)batch);
		table_format(t, "%.3f", step / 1e3);
		for (int p = 0; p < PARTS; p++)
			if (p != GROUP)
				table_format(t, "%.3f %2.0f%%", samples_mean(&f.part_us[p]) / 1e3,
					     100 * samples_mean(&f.part_us[p]) / step);
		add_cell(t, &f.gb_per_s, "%.1f");
		add_cell(t, &f.memory_share, "%.0f%%");
		add_cell(t, &f.gop_per_s, "%.0f");
		add_cell(t, &f.peak_share, "%.0f%%");
	}
	figures_fini(&f);
}

void steps_table(const struct steps *s, struct table *t)
{
	static const char *const roofs[] = {"GB/s", "of memory", "GOP/s", "of peak"};
	table_row(t, "BATCH", "STEP ms", NULL);
	for (int p = 0; p < PARTS; p++)
		if (p != GROUP)
			table_text(t, headings[p]);
	for (size_t i = 0; i < sizeof roofs / sizeof *roofs; i++)
		table_text(t, roofs[i]);
	for (size_t i = 0; i < s->n_runs; i++) {
		size_t first = 0;
		while (s->runs[first].batch != s->runs[i].batch)
			first++;
		if (first < i)
			continue;
		add_row(s, t, s->runs[i].batch, false);
		add_row(s, t, s->runs[i].batch, true);
	}
}

static json_t *percentile(struct samples *x, double p)
{
	return x->n ? json_real(samples_percentile(x, p)) : json_null();
}

static json_t *kind_json(const struct steps *s, int64_t batch, bool prompts)
{
	struct figures f;
	measure(s, batch, prompts, &f);
	json_t *ms = json_object(), *o = json_null();
	if (f.step_us.n) {
		for (int p = 0; p < PARTS; p++)
			json_object_set_new(ms, part_names[p], json_real(samples_mean(&f.part_us[p]) / 1e3));
		o = json_pack("{s:I, s:f, s:O, s:o, s:o, s:o, s:o, s:o, s:o}", "steps",
			      (json_int_t)f.step_us.n, "step_ms", samples_mean(&f.step_us) / 1e3, "ms", ms,
			      "waiting_us_p50", percentile(&f.part_us[WAIT], 50), "waiting_us_p90",
			      percentile(&f.part_us[WAIT], 90), "gb_per_s", percentile(&f.gb_per_s, 50),
			      "memory_percent", percentile(&f.memory_share, 50), "gop_per_s",
			      percentile(&f.gop_per_s, 50), "peak_percent", percentile(&f.peak_share, 50));
	}
	json_decref(ms);
	figures_fini(&f);
	return o;
}

json_t *steps_json(const struct steps *s, int64_t batch)
{
	return json_pack("{s:o, s:o}", "decode", kind_json(s, batch, false), "prompt",
			 kind_json(s, batch, true));
}
