#include "bench/commands.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/option_table.h"
#include "bench/kernels_ops.h"
#include "bench/kernels_tune.h"
#include "bench/roofline.h"
#include "cli/models/cache.h"
#include "cli/terminal/environment.h"
#include "cli/terminal/usage.h"
#include "kernels/kern.h"

enum { MAX_ROWS_LISTED = 16, N_MODES = 4, N_KV = 5 };

static const char *const mode_names[N_MODES] = {"f32", "bf16", "int16", "int8"}; /* by enum kern_compute */
static const char *const kv_names[N_KV] = {"f32", "f16", "bf16", "int16",
					   "int8"};                 /* by enum kern_kv_type, from 1 */
static const char *const head_names[] = {"auto", "stored", "int8"}; /* by enum kern_head */
enum part { LAYERS, HEAD, ATTENTION, NORM, SAMPLE, N_PARTS };
static const char *const part_names[N_PARTS] = {"layers", "head", "attention", "norm", "sample"};

struct options {
	const struct layers_model *model;
	const char *model_dir; /* with --tune: replaces model */
	const char *device, *isa, *out, *plot, *from;
	enum kern_dtype dtype;
	int gguf; /* GGUF type, for KERN_CODES */
	enum kern_head head;
	int threads, context, tp, n_rows, ms, cold_mb;
	int rows[MAX_ROWS_LISTED];
	unsigned modes, kv, parts; /* bit masks; 0: all that the device supports */
	bool json, fast, tune, rows_given;
};

struct bench {
	struct options o;
	struct kernels_meter meter;
	struct kernels_point *points; /* results of all measurements */
	size_t n_points, cap_points;
	const char *mode, *kv; /* mode and KV type being measured */
	json_t *modes;         /* modes that were measured, for JSON */
	struct kern_info info; /* from the first device */
	bool headed;           /* the machine was printed and probed */
};

/* ---- results ---- */

/* Format "30.4 G" or "6.24 T" operations per second; "-" for none. */
static const char *rate_text(double gops, char *out, size_t n)
{
	if (gops <= 0)
		snprintf(out, n, "-");
	else if (gops >= 1000)
		snprintf(out, n, "%.2f T", gops / 1000);
	else
		snprintf(out, n, "%.1f G", gops);
	return out;
}

static void report(void *arg, const struct kernels_point *p)
{
	struct bench *b = arg;
	char rate[24], roof[24], share[16] = "-";
	array_grow(b->points, b->cap_points, b->n_points + 1);
	struct kernels_point *q = &b->points[b->n_points++];
	*q = *p;
	q->compute = b->mode;
	q->kv = b->kv;
	if (b->o.json)
		return;
	if (p->share > 0)
		snprintf(share, sizeof share, "%.0f%%", 100 * p->share);
	printf("%-5s %-18s %-5s %5d %11.1f us %8.2f GB/s %9sop/s  roof %9s %5s\n", q->compute, q->op, q->kv,
	       q->rows, q->us, q->gbs, rate_text(q->gops, rate, sizeof rate),
	       rate_text(q->roof_gops, roof, sizeof roof), share);
	fflush(stdout);
}

static void print_probes(struct bench *b)
{
	const struct samples *read = &b->meter.rates[PROBE_READ];
	printf("probes, medians: memory %.1f GB/s (%.1f to %.1f in %zu passes), L2 %.0f GB/s; ",
	       kernels_meter_rate(&b->meter, PROBE_READ), samples_percentile(&b->meter.rates[PROBE_READ], 10),
	       samples_percentile(&b->meter.rates[PROBE_READ], 90), read->n,
	       kernels_meter_rate(&b->meter, PROBE_READ_L2));
	for (int k = PROBE_F32; k < PROBE_KINDS; k++) {
		char rate[24];
		if (probe_can((enum probe_kind)k))
			printf("%s%s %sop/s", k > PROBE_F32 ? ", " : "", probe_name((enum probe_kind)k),
			       rate_text(kernels_meter_rate(&b->meter, (enum probe_kind)k), rate,
					 sizeof rate));
	}
	putchar('\n');
}

static json_t *json_probes(struct bench *b)
{
	json_t *o = json_object();
	for (int k = 0; k < PROBE_KINDS && b->meter.probe; k++)
		if (probe_can((enum probe_kind)k))
			json_object_set_new(o, probe_name((enum probe_kind)k),
					    json_pack("{s:f, s:f, s:f, s:I}", "median",
						      kernels_meter_rate(&b->meter, (enum probe_kind)k),
						      "p10", samples_percentile(&b->meter.rates[k], 10),
						      "p90", samples_percentile(&b->meter.rates[k], 90),
						      "passes", (json_int_t)b->meter.rates[k].n));
	return o;
}

static void print_json(struct bench *b)
{
	json_t *results = json_array();
	for (size_t i = 0; i < b->n_points; i++) {
		const struct kernels_point *p = &b->points[i];
		json_array_append_new(results,
				      json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i}",
						"compute", p->compute, "op", p->op, "kv", p->kv, "rows",
						p->rows, "us", p->us, "gb_per_s", p->gbs, "gop_per_s",
						p->gops, "intensity", p->intensity, "roof_gop_per_s",
						p->roof_gops, "share_of_roof", p->share, "pairs", p->pairs));
	}
	json_t *o = json_pack("{s:s, s:s, s:i, s:s, s:o, s:O, s:o}", "device", b->info.name, "isa",
			      b->info.isa, "threads", b->info.n_threads, "model", b->o.model->name, "probes",
			      json_probes(b), "modes", b->modes, "results", results);
	json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(o);
}

/* ---- the plot ---- */

/* Return the shape of a measurement's mark; -1: it is not drawn. */
static int shape_of(const char *op)
{
	static const char *const ops[ROOFLINE_SHAPES] = {"layer", "head", "attention decode",
							 "attention prefill"};
	for (int i = 0; i < ROOFLINE_SHAPES; i++)
		if (strcmp(op, ops[i]) == 0)
			return i;
	return -1;
}

/* Return the colour of a measurement: for attention, that of its KV type.  -1: the type is not a compute
 * mode, and is not drawn. */
static int colour_of(const struct kernels_point *p)
{
	for (int i = 0; i < N_MODES; i++)
		if (strcmp(p->kv[0] ? p->kv : p->compute, mode_names[i]) == 0)
			return i;
	return -1;
}

/* Return whether an equal point is drawn already: attention on one KV type runs the same kernel in every
 * mode. */
static bool is_drawn(const struct bench *b, size_t i)
{
	const struct kernels_point *p = &b->points[i];
	for (size_t j = 0; j < i && p->kv[0]; j++) {
		const struct kernels_point *q = &b->points[j];
		if (strcmp(p->op, q->op) == 0 && strcmp(p->kv, q->kv) == 0 && p->rows == q->rows)
			return true;
	}
	return false;
}

static int plot(struct bench *b)
{
	static const struct {
		const char *name;
		enum probe_kind kind;
	} roofs[] = {{"FP32 FMA", PROBE_F32},         {"BF16, AVX-512", PROBE_BF16},
		     {"BF16, AMX", PROBE_BF16_AMX},   {"INT8, AVX-VNNI", PROBE_INT8_AVXVNNI},
		     {"INT8, VNNI", PROBE_INT8_VNNI}, {"INT8, AMX", PROBE_INT8_AMX},
		     {"INT8, AVX2", PROBE_INT8_AVX2}};
	struct roofline r = {.title = "Kernels under the roofs of the machine",
			     .read_gbs = kernels_meter_rate(&b->meter, PROBE_READ),
			     .shapes = {"layers", "head", "attention, decode", "attention, prompt"}};
	struct roofline_point *points = xcalloc(b->n_points + 1, sizeof *points);
	struct why why;
	char subtitle[256];
	snprintf(subtitle, sizeof subtitle, "%s, %d threads; shapes of %s", b->info.name, b->info.n_threads,
		 b->o.model->name);
	r.subtitle = subtitle;
	/* An instruction that a better one replaces is not a roof of this machine. */
	const bool vnni = b->meter.rates[PROBE_INT8_VNNI].n,
		   any = vnni || b->meter.rates[PROBE_INT8_AVXVNNI].n;
	for (size_t i = 0; i < sizeof roofs / sizeof *roofs; i++)
		if (b->meter.rates[roofs[i].kind].n && !(vnni && roofs[i].kind == PROBE_INT8_AVXVNNI) &&
		    !(any && roofs[i].kind == PROBE_INT8_AVX2))
			r.roofs[r.n_roofs++] = (struct roofline_roof){
				roofs[i].name, kernels_meter_rate(&b->meter, roofs[i].kind)};
	for (size_t i = 0; i < b->n_points; i++) {
		const struct kernels_point *p = &b->points[i];
		const int shape = shape_of(p->op), colour = colour_of(p);
		if (shape < 0 || colour < 0 || is_drawn(b, i))
			continue;
		struct roofline_point *q = &points[r.n_points++];
		*q = (struct roofline_point){.intensity = p->intensity,
					     .gops = p->gops,
					     .colour = (unsigned)colour,
					     .shape = (unsigned)shape};
		snprintf(q->label, sizeof q->label, "%d", p->rows);
		r.colours[colour] = mode_names[colour];
	}
	r.points = points;
	int e = roofline_write(&r, b->o.plot, &why);
	if (e)
		fprintf(stderr, "quern bench kernels: %s\n", why.text);
	free(points);
	return e;
}

/* ---- earlier runs ---- */

static int index_of(const char *s, const char *const *names, int n)
{
	for (int i = 0; s && i < n; i++)
		if (strcmp(s, names[i]) == 0)
			return i;
	return -1;
}

/* Add the results of a file that --json wrote, without the operations that the plot does not show, and its
 * probe medians. */
static void take_results(struct bench *b, const json_t *file)
{
	static const char *const ops[] = {"layer", "head", "attention decode", "attention prefill"};
	const json_t *list = json_get(file, "results");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *o = json_array_get(list, i);
		const int mode = index_of(json_string_value(json_get(o, "compute")), mode_names, N_MODES),
			  op = index_of(json_string_value(json_get(o, "op")), ops, ROOFLINE_SHAPES),
			  kv = index_of(json_string_value(json_get(o, "kv")), kv_names, N_KV);
		if (mode < 0 || op < 0)
			continue;
		array_grow(b->points, b->cap_points, b->n_points + 1);
		b->points[b->n_points++] =
			(struct kernels_point){.compute = mode_names[mode],
					       .op = ops[op],
					       .kv = kv < 0 ? "" : kv_names[kv],
					       .rows = (int)json_integer_value(json_get(o, "rows")),
					       .gops = json_number_value(json_get(o, "gop_per_s")),
					       .intensity = json_number_value(json_get(o, "intensity"))};
	}
	for (int k = 0; k < PROBE_KINDS; k++) {
		const json_t *p = json_get(json_get(file, "probes"), probe_name((enum probe_kind)k));
		if (p)
			samples_add(&b->meter.rates[k], json_number_value(json_get(p, "median")));
	}
	const char *device = json_string_value(json_get(file, "device"));
	snprintf(b->info.name, sizeof b->info.name, "%s", device ? device : "");
	b->info.n_threads = (int)json_integer_value(json_get(file, "threads"));
}

/* --from: plot the results of earlier runs. */
static int draw(struct bench *b)
{
	enum { FILE_MAX = 16 << 20 };
	struct why why;
	char *list = xstrdup(b->o.from), *save = NULL;
	int e = 0;
	for (char *path = strtok_r(list, ",", &save); path && !e; path = strtok_r(NULL, ",", &save)) {
		json_t *file = NULL;
		e = json_read(path, FILE_MAX, &file, &why);
		if (e)
			fprintf(stderr, "quern bench kernels: %s\n", why.text);
		else
			take_results(b, file);
		json_decref(file);
	}
	free(list);
	return e ? e : plot(b);
}

/* ---- options ---- */

static const struct usage usage = {
	.name = "bench kernels",
	.words = "",
	.about =
		"Measures the kernels of a model's shapes (linear layers, head, attention, norms, sampling) "
		"in\n"
		"every compute mode, and the share of the roofline that each reaches: the lower of memory\n"
		"bandwidth times operations per byte, and the peak of the instruction that the kernel uses.\n"
		"Measurements alternate with probes of bandwidth and peak; rates and shares are medians of "
		"up to\n"
		"20 such pairs.",
};

static int bad(const char *fmt, const char *arg)
{
	fprintf(stderr, "quern bench kernels: ");
	fprintf(stderr, fmt, arg);
	fprintf(stderr, " (see --help)\n");
	return 2;
}

static int parse_number(const char *s, int low, int high, int *out)
{
	char *end;
	long v = strtol(s, &end, 10);
	if (end == s || *end || v < low || v > high)
		return -1;
	*out = (int)v;
	return 0;
}

static int parse_rows(struct options *o, const char *s)
{
	char *list = xstrdup(s), *save = NULL;
	int e = 0;
	o->n_rows = 0;
	for (char *p = strtok_r(list, ",", &save); p && !e; p = strtok_r(NULL, ",", &save)) {
		if (o->n_rows == MAX_ROWS_LISTED || parse_number(p, 1, 8192, &o->rows[o->n_rows]))
			e = -1;
		else if (o->n_rows && o->rows[o->n_rows] <= o->rows[o->n_rows - 1])
			e = -1;
		else
			o->n_rows++;
	}
	free(list);
	return e || !o->n_rows ? -1 : 0;
}

static int parse_name(const char *s, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(s, names[i]))
			return i;
	return -1;
}

/* Parse "a,b" or "all" as a bit mask; 0: all. */
static int parse_set(const char *s, const char *const *names, int n, unsigned *out)
{
	char *list = xstrdup(s), *save = NULL;
	int e = 0;
	*out = 0;
	for (char *p = strtok_r(list, ",", &save); p && !e; p = strtok_r(NULL, ",", &save)) {
		const int i = parse_name(p, names, n);
		e = i < 0 ? -1 : 0;
		*out |= e ? 0 : 1u << i;
	}
	if (strcmp(s, "all") == 0)
		e = 0, *out = 0;
	else if (!*out)
		e = -1;
	free(list);
	return e;
}

enum { GO_ON = COMMAND_GO_ON };

/* Refuse combinations that make no sense.  GO_ON, or the exit status. */
static int check_options(struct options *o)
{
	if (o->model_dir && !o->tune)
		return bad("no shapes are known for '%s'", o->model_dir);
	if (o->model_dir && !file_is_dir(o->model_dir))
		return bad("'%s' is neither a known name nor a model's directory", o->model_dir);
	if (o->out && !o->tune)
		return bad("%s is for --tune", "--out");
	if (o->tp > 1 && !o->model_dir)
		return bad("%s is for --tune with a model's directory", "--tp");
	if (o->from && !o->plot)
		return bad("%s needs --plot", "--from");
	if (o->tune && o->dtype == KERN_CODES)
		return bad("%s knows awq, f16, bf16 and f32 only", "--tune");
	if (o->plot && o->tune)
		return bad("%s is not for --tune", "--plot");
	if (o->tune && o->fast)
		return bad("%s measures both ways", "--tune");
	if (o->tune && !o->rows_given)
		parse_rows(o, "1,8,16,32,48,64,96,128,192,256,384,512,1024,2048,4096,8192");
	return GO_ON;
}

/* The read_*() functions check and store the value of one option, which is borrowed.  GO_ON, or the exit
 * status. */
static int read_model(struct options *o, const char *value)
{
	const char *const models[LAYERS_MODELS] = {layers_models[0].name, layers_models[1].name};
	static char dir[PATH_MAX];
	char name[CACHED_NAME];
	const int i = parse_name(value, models, LAYERS_MODELS);
	cache_find(value, dir, name);
	o->model_dir = i < 0 ? dir : NULL;
	o->model = &layers_models[i < 0 ? 0 : i];
	return GO_ON;
}

static int read_dtype(struct options *o, const char *value)
{
	static const char *const dtypes[] = {"f32", "f16", "bf16", "awq"}; /* by kern_dtype */
	int i = parse_name(value, dtypes, 4);
	o->dtype = (enum kern_dtype)(i < 0 ? 0 : i);
	if (i < 0 && (i = layers_gguf_find(value)) >= 0) {
		o->dtype = KERN_CODES;
		o->gguf = i;
	}
	return i < 0 ? bad("'%s' is not a type of weights", value) : GO_ON;
}

static int read_head(struct options *o, const char *value)
{
	const int i = parse_name(value, head_names, 3);
	o->head = (enum kern_head)(i < 0 ? 0 : i);
	return i < 0 ? bad("'%s' is not auto, stored or int8", value) : GO_ON;
}

static int read_lists(struct options *o, const struct opts *given)
{
	const char *rows = opts_text(given, "rows"), *modes = opts_text(given, "compute"),
		   *kv = opts_text(given, "kv-cache-dtype"), *parts = opts_text(given, "only");
	if (parse_rows(o, rows))
		return bad("'%s' is not an ascending list of 1 to 8192 rows", rows);
	if (parse_set(modes, mode_names, N_MODES, &o->modes))
		return bad("'%s' is not a list of f32, bf16, int16, int8", modes);
	if (parse_set(kv, kv_names, N_KV, &o->kv))
		return bad("'%s' is not a list of f32, f16, bf16, int16, int8", kv);
	if (parse_set(parts, part_names, N_PARTS, &o->parts))
		return bad("'%s' is not a list of layers, head, attention, norm, sample", parts);
	return GO_ON;
}

/* Read all options; given must outlive o.  GO_ON, or the exit status. */
static int read_options(struct options *o, const struct opts *given)
{
	*o = (struct options){.device = opts_text(given, "device"),
			      .isa = opts_text(given, "isa"),
			      .out = opts_text(given, "out"),
			      .plot = opts_text(given, "plot"),
			      .from = opts_text(given, "from"),
			      .context = (int)opts_int(given, "context"),
			      .threads = (int)opts_int(given, "threads"),
			      .tp = (int)opts_int(given, "tp"),
			      .ms = (int)opts_int(given, "ms"),
			      .cold_mb = (int)opts_int(given, "cold-mb"),
			      .rows_given = opts_has(given, "rows"),
			      .json = opts_flag(given, "json"),
			      .fast = opts_flag(given, "fast"),
			      .tune = opts_flag(given, "tune")};
	int status = read_model(o, opts_text(given, "model"));
	if (status == GO_ON)
		status = read_dtype(o, opts_text(given, "dtype"));
	if (status == GO_ON)
		status = read_head(o, opts_text(given, "head-dtype"));
	if (status == GO_ON)
		status = read_lists(o, given);
	return status == GO_ON ? check_options(o) : status;
}

/* ---- run ---- */

static int open_device(struct bench *b, struct kernels_run *r, enum kern_compute mode, enum kern_kv_type kv,
		       struct why *why)
{
	const struct options *o = &b->o;
	const int rows = o->rows[o->n_rows - 1];
	struct kern_open_args a = {
		.compute = mode,
		.head = o->head,
		.kv = kv,
		.n_threads = o->threads,
		.isa = o->isa,
		.max_rows = rows > KERNELS_PREFILL ? rows : KERNELS_PREFILL,
		.max_seqs = KERNELS_SEQS,
		.max_logits = KERNELS_SEQS,
		.max_context = o->context,
		.max_blocks_per_seq = (o->context + KERNELS_BLOCK - 1) / KERNELS_BLOCK,
		.n_vocab = KERNELS_VOCAB,
		.fast = o->fast,
	};
	*r = (struct kernels_run){.model = o->model,
				  .weights = o->dtype,
				  .gguf = o->gguf,
				  .context = o->context,
				  .rows = o->rows,
				  .n_rows = o->n_rows,
				  .compute = mode,
				  .head = o->head,
				  .kv = kv,
				  .cold_bytes = (size_t)o->cold_mb << 20,
				  .meter = &b->meter,
				  .report = report,
				  .arg = b};
	int e = kern_find(o->device, &r->ops, &a.index, why);
	e = e ? e : r->ops->open(&r->dev, &a, why);
	if (e)
		return e;
	r->stream = r->ops->stream_new(r->dev);
	r->ops->info(r->dev, &r->info);
	b->meter.ops = r->ops;
	b->meter.stream = r->stream;
	return 0;
}

static void close_device(struct kernels_run *r)
{
	r->ops->stream_free(r->stream);
	r->ops->close(r->dev);
}

/* When the first device is open, print the machine and its probes. */
static int begin(struct bench *b, const struct kernels_run *r)
{
	struct why why;
	if (b->headed)
		return 0;
	b->headed = true;
	b->info = r->info;
	b->meter.n_threads = r->info.n_threads;
	b->meter.seconds = b->o.ms * 1e-3;
	if (strncmp(b->o.device, "cpu", 3) == 0 && probe_new(&b->meter.probe, r->info.n_threads, 0, &why)) {
		fprintf(stderr, "quern bench kernels: %s\n", why.text);
		return -ENOMEM;
	}
	kernels_meter_begin(&b->meter);
	if (b->o.json)
		return 0;
	printf("%s, %s, %d threads; %s\n", b->info.name, b->info.isa, b->info.n_threads, b->o.model->name);
	if (b->meter.probe)
		print_probes(b);
	return 0;
}

static bool wanted(const struct bench *b, enum part p)
{
	return !b->o.parts || (b->o.parts >> p & 1);
}

static int run_mode(struct bench *b, struct kernels_run *r)
{
	int e = begin(b, r);
	if (!b->o.json)
		printf("%s: %s\n", r->info.mode, r->info.numerics);
	json_array_append_new(b->modes, json_pack("{s:s, s:s, s:s}", "compute", b->mode, "mode", r->info.mode,
						  "numerics", r->info.numerics));
	b->kv = "";
	if (!e)
		e = kernels_linears(r, wanted(b, LAYERS), wanted(b, HEAD));
	if (!e && wanted(b, NORM))
		e = kernels_norms(r);
	if (!e && wanted(b, SAMPLE) && json_array_size(b->modes) == 1) /* sampling is the same in every
								        * mode */
		e = kernels_sampling(r);
	return e;
}

/* Measure a mode, and attention for each KV type.  Modes and types that do not open are skipped, unless the
 * user named them. */
static int bench_mode(struct bench *b, enum kern_compute mode)
{
	struct kernels_run r;
	struct why why;
	b->mode = mode_names[mode];
	int e = open_device(b, &r, mode, KERN_KV_MODE, &why);
	if (e && !b->o.modes && b->headed)
		return 0;
	if (e) {
		fprintf(stderr, "quern bench kernels: %s\n", why.text);
		return e;
	}
	e = run_mode(b, &r);
	close_device(&r);
	for (int i = 0; i < N_KV && !e && wanted(b, ATTENTION); i++) {
		if (b->o.kv && !(b->o.kv >> i & 1))
			continue;
		b->kv = kv_names[i];
		e = open_device(b, &r, mode, (enum kern_kv_type)(i + 1), &why);
		if (e && b->o.kv)
			fprintf(stderr, "quern bench kernels: %s\n", why.text);
		if (e) {
			e = b->o.kv ? e : 0;
			continue;
		}
		e = kernels_attention(&r);
		close_device(&r);
	}
	return e;
}

static int tune(const struct options *o)
{
	const struct environment env = environment_read();
	return kernels_tune(&(struct kernels_tune){.device = o->device,
						   .model_dir = o->model_dir,
						   .model = o->model,
						   .dtype = o->dtype,
						   .tp = o->tp,
						   .rows = o->rows,
						   .n_rows = o->n_rows,
						   .out = o->out,
						   .xdg_cache = env.cache_dir,
						   .home = env.home,
						   .json = o->json});
}

/* Run all measurements.  Returns the exit status. */
static int measure(const struct options *o)
{
	struct bench b = {.o = *o, .modes = json_array()};
	int e = b.o.from ? draw(&b) : 0;
	for (int i = 0; i < N_MODES && !e && !b.o.from; i++)
		if (!b.o.modes || (b.o.modes >> i & 1))
			e = bench_mode(&b, (enum kern_compute)i);
	if (!e && b.o.json && !b.o.from)
		print_json(&b);
	else if (!e && b.meter.probe)
		print_probes(&b);
	if (!e && b.o.plot && !b.o.from)
		e = plot(&b);
	json_decref(b.modes);
	kernels_meter_fini(&b.meter);
	probe_free(b.meter.probe);
	free(b.points);
	return e ? 1 : 0;
}

int cmd_bench_kernels(int argc, char **argv)
{
	struct opts given = {0};
	struct options o;
	opts_add_program(&given, OPTION_BENCH_KERNELS);
	int status = command_parse(&given, &usage, argc, argv);
	if (status == COMMAND_GO_ON)
		status = read_options(&o, &given);
	if (status == GO_ON)
		status = o.tune ? tune(&o) : measure(&o);
	opts_fini(&given);
	return status;
}
