#include "quant/awq_run.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/family.h"
#include "quant/awq_write.h"
#include "quant/calibrate.h"
#include "quant/measure.h"
#include "quant/parallel.h"
#include "quant/progress.h"
#include "quant/report.h"
#include "quant/state.h"
#include "quant/windows.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

/* Part of the fingerprint: a run does not resume with results of another version. */
enum { VERSION = 1 };

/* Shares of the running time, for progress; calibration takes the rest. */
#define SHARE_WRITE   0.03
#define SHARE_MEASURE 0.17

struct run {
	const struct awq_options *o;
	const struct quantize_options *q;
	struct measure_model model;
	struct windows text;
	struct state *state;
	struct progress progress;
	double calibrating; /* calibration's share of the time */
	/* Parts of all layers, in order. */
	struct report_linear *linears;
	float **out_by; /* [n_linears]; owned */
	int *first;     /* [n_layers + 1] index of each layer's first part */
	int n_linears;
	struct why *why;
};

/* ---- the model ---- */

static void plan_init(const struct run *r, int layer, struct layer_plan *p)
{
	layer_plan_init(p, &r->model.config, &r->model.weights->layers[layer], layer, r->o->group, r->q->keep,
			r->q->n_keep);
}

static int check_source(struct run *r)
{
	const struct weights *w = r->model.weights;
	if (!file_is_dir(r->q->source))
		return err_why(
			r->why, -ENOTSUP,
			"%s is not a directory in Hugging Face layout, which awq4 needs: make one with quern "
			"convert %s DST --to safetensors",
			r->q->source, r->q->source);
	int left = 0;
	if (r->model.config.act == ACT_GELU_SIGMOID || r->model.config.experts.bias)
		return err_why(r->why, -ENOTSUP, "awq4 does not know the experts of %s",
			       r->model.config.arch_name);
	if (r->model.config.family->qkv != QKV_SIDE_BY_SIDE)
		return err_why(r->why, -ENOTSUP,
			       "awq4 does not know q, k and v of %s, whose rows are stored in turns",
			       r->model.config.arch_name);
	for (int i = 0; i < w->n_layers; i++) {
		struct layer_plan p;
		plan_init(r, i, &p);
		const struct weights_linear *quantized = NULL;
		for (int l = 0; l < p.n_linears; l++) {
			if (p.linears[l].from->kind != WEIGHTS_DENSE)
				quantized = p.linears[l].from;
			left += !p.linears[l].kept;
		}
		layer_plan_fini(&p);
		if (quantized)
			return err_why(
				r->why, -ENOTSUP,
				"%s is quantized already (%s): quantize the model in floats that it was "
				"made from",
				r->q->source, quantized->name);
	}
	if (!left)
		return err_why(
			r->why, -EINVAL,
			"no part of %s would be quantized: --keep names them all, or groups of %d do not "
			"divide their inputs (--group 32 may)",
			r->q->source, r->o->group);
	return 0;
}

static int open_model(struct run *r)
{
	const int rc = measure_model_open(&r->model, r->q->source, r->why);
	return rc ? rc : check_source(r);
}

static int open_text(struct run *r)
{
	int rc = windows_read(&r->text, r->q->source, r->o->text, runner_window(&r->model.config),
			      r->o->n_tokens, r->model.config.n_vocab, r->why);
	if (!rc && r->text.n < r->o->n_tokens)
		rc = err_why(r->why, -EINVAL,
			     "%s has %d tokens, the calibration wants %d: give it a longer text, or allow "
			     "fewer with "
			     "--tokens",
			     r->o->text, r->text.n, r->o->n_tokens);
	return rc;
}

static int read_eval(const struct run *r, struct windows *out)
{
	const char *text = r->q->eval ? r->q->eval : r->o->text;
	return windows_read(out, r->q->source, text, r->text.length, r->q->n_eval, r->model.config.n_vocab,
			    r->why);
}

/* Read the evaluation text before hours of work, to find its errors early. */
static int check_eval(const struct run *r)
{
	struct windows text = {0};
	int rc = r->q->n_eval ? read_eval(r, &text) : 0;
	windows_fini(&text);
	return rc;
}

/* ---- the fingerprint ---- */

static void hash_file(XXH3_state_t *h, const char *dir, const char *name)
{
	struct stat st;
	char *path = file_join(dir, name);
	if (stat(path, &st) == 0) {
		const int64_t facts[3] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
		XXH3_64bits_update(h, name, strlen(name) + 1);
		XXH3_64bits_update(h, facts, sizeof facts);
	}
	free(path);
}

static void hash_text(XXH3_state_t *h, const char *s)
{
	XXH3_64bits_update(h, s, strlen(s) + 1);
}

static uint64_t fingerprint(const struct run *r)
{
	XXH3_state_t *h = XXH3_createState();
	struct dirent **files = NULL;
	XXH3_64bits_reset(h);
	const int n = scandir(r->q->source, &files, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		const char *dot = strrchr(files[i]->d_name, '.');
		if (dot && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".json") == 0))
			hash_file(h, r->q->source, files[i]->d_name);
		free(files[i]);
	}
	free(files);
	const int numbers[] = {VERSION, r->o->group, r->q->keep_worst, r->text.n, r->text.length};
	hash_text(h, r->q->source);
	XXH3_64bits_update(h, numbers, sizeof numbers);
	XXH3_64bits_update(h, &r->text.hash, sizeof r->text.hash);
	for (size_t i = 0; i < r->q->n_keep; i++)
		hash_text(h, r->q->keep[i]);
	const uint64_t sum = XXH3_64bits_digest(h);
	XXH3_freeState(h);
	return sum;
}

/* ---- layers ---- */

/* Release the pages of a layer: they are not read again before the end.  A family that is stored by input has
 * its layers in memory, transposed. */
static void forget(const struct layer_plan *p)
{
	if (p->c->family->transposed)
		return;
	for (int i = 0; i < p->n_linears; i++) {
		const struct weights_linear *l = p->linears[i].from;
		file_forget(l->w, (size_t)l->n * (size_t)l->k * (l->dtype == CONFIG_F32 ? 4 : 2));
	}
}

static int calibrate_one(struct run *r, struct runner *runner, int layer)
{
	const float *in = NULL;
	float *out = NULL;
	struct layer_plan p;
	plan_init(r, layer, &p);
	int rc = state_rows(r->state, layer, &in, r->why);
	if (!rc)
		rc = state_rows_new(r->state, layer + 1, &out, r->why);
	if (!rc && !(rc = calibrate_layer(&p, runner, in, out, r->text.n, r->why)))
		rc = state_save(r->state, &p, out, r->why);
	state_rows_unmap(r->state, in);
	state_rows_unmap(r->state, out);
	forget(&p);
	layer_plan_fini(&p);
	return rc;
}

static int embed(struct run *r, struct runner *runner)
{
	float *x = NULL;
	int rc = state_rows_new(r->state, 0, &x, r->why);
	if (!rc)
		rc = runner_embed(runner, r->text.tokens, r->text.n, x, r->why);
	state_rows_unmap(r->state, x);
	return rc;
}

static int calibrate_all(struct run *r)
{
	const int n = r->model.config.n_layers;
	struct runner *runner = NULL;
	int at = state_n_done(r->state), rc = 0;
	if (at)
		log_info("quantize", "resumed from a previous run layers=%d total_layers=%d", at, n);
	progress_begin(&r->progress, r->calibrating * at / n);
	if (at == n)
		return 0;
	rc = runner_open(&runner, &r->model.config, r->model.weights, r->text.length, r->q->n_threads,
			 r->why);
	if (!rc && !at)
		rc = embed(r, runner);
	for (; !rc && at < n; at++) {
		progress_step(&r->progress, r->calibrating * at / n, "layer %d of %d", at + 1, n);
		rc = calibrate_one(r, runner, at);
	}
	runner_close(runner);
	return rc;
}

/* ---- results of all layers ---- */

static int plan_with_results(void *arg, int layer, bool results, struct layer_plan *out, struct why *why)
{
	struct run *r = arg;
	plan_init(r, layer, out);
	int rc = results ? state_load(r->state, out, why) : 0;
	for (int i = r->first[layer]; !rc && i < r->first[layer + 1]; i++)
		if (r->linears[i].kept)
			layer_plan_keep(out, r->linears[i].name, REASON_WORST);
	if (rc)
		layer_plan_fini(out);
	return rc;
}

static void collect_layer(struct run *r, struct layer_plan *p)
{
	for (int i = 0; i < p->n_linears; i++) {
		struct layer_linear *l = &p->linears[i];
		struct report_linear *to = &r->linears[r->n_linears];
		*to = (struct report_linear){.part = l->part,
					     .layer = p->index,
					     .kept = l->kept,
					     .reason = layer_reason_text(l->reason),
					     .n_rows = p->blocks[l->block].n_rows,
					     .weights = l->weights,
					     .nearest = l->nearest,
					     .alone = l->outputs};
		snprintf(to->name, sizeof to->name, "%s", l->name);
		r->out_by[r->n_linears++] = l->out_by;
		l->out_by = NULL;
		if (!l->kept && l->reason)
			log_warn("quantize", "few calibration rows matrix=%s rows=%d reason=\"%s\"", l->name,
				 p->blocks[l->block].n_rows, layer_reason_text(l->reason));
		else if (l->kept && l->reason != REASON_ASKED)
			log_warn("quantize", "not quantized matrix=%s reason=\"%s\"", l->name,
				 layer_reason_text(l->reason));
	}
}

static int collect(struct run *r)
{
	const int n = r->model.config.n_layers;
	int all = 0, rc = 0;
	for (int i = 0; i < n; i++) {
		struct layer_plan p;
		plan_init(r, i, &p);
		all += p.n_linears;
		layer_plan_fini(&p);
	}
	r->linears = xcalloc((size_t)all + 1, sizeof *r->linears);
	r->out_by = xcalloc((size_t)all + 1, sizeof *r->out_by);
	r->first = xcalloc((size_t)n + 1, sizeof *r->first);
	for (int i = 0; !rc && i < n; i++) {
		struct layer_plan p;
		plan_init(r, i, &p);
		if (!(rc = state_load(r->state, &p, r->why)))
			collect_layer(r, &p);
		r->first[i + 1] = r->n_linears;
		layer_plan_fini(&p);
	}
	return rc;
}

/* Keep the worst parts in floats, each with all parts of the same name. */
static void choose_worst(struct run *r, const struct report *report)
{
	int *order = xcalloc((size_t)r->n_linears + 1, sizeof *order);
	report_order(report, order);
	for (int i = 0, n = 0; i < r->n_linears && n < r->q->keep_worst; i++) {
		const struct report_linear *worst = &r->linears[order[i]];
		if (worst->kept || !(worst->alone.signal > 0))
			continue;
		for (int j = r->first[worst->layer]; j < r->first[worst->layer + 1]; j++)
			if (j != order[i] && strcmp(r->linears[j].name, worst->name) == 0) {
				r->linears[j].kept = true;
				r->linears[j].reason = layer_reason_text(REASON_WORST);
			}
		r->linears[order[i]].kept = true;
		r->linears[order[i]].reason = layer_reason_text(REASON_WORST);
		n++;
	}
	free(order);
}

/* ---- the result ---- */

static void write_progress(void *arg, double done)
{
	struct run *r = arg;
	progress_step(&r->progress, r->calibrating + SHARE_WRITE * done, "writing %s", r->q->dst);
}

static void measure_progress(void *arg, double done)
{
	struct run *r = arg;
	progress_step(&r->progress, 1 - SHARE_MEASURE * (1 - done), "measuring");
}

static int write_result(struct run *r)
{
	const struct awq_write_args a = {.source = r->q->source,
					 .dst = r->q->dst,
					 .config = &r->model.config,
					 .weights = r->model.weights,
					 .group = r->o->group,
					 .plan = plan_with_results,
					 .arg = r,
					 .progress = write_progress};
	return awq_write(&a, r->why);
}

static const float *out_by_of(void *arg, int layer, int i)
{
	const struct run *r = arg;
	return r->out_by[r->first[layer] + i];
}

/* Copy the figures of measure_run() to the report's parts; measure_run() leaves out experts. */
static void take_accumulated(struct run *r, const struct measure *m)
{
	for (int i = 0, j = 0; i < r->n_linears && j < m->n_linears; i++)
		if (r->linears[i].layer == m->linears[j].layer &&
		    strcmp(r->linears[i].name, m->linears[j].name) == 0)
			r->linears[i].accumulated = m->linears[j++].accumulated;
}

static int measure(struct run *r, struct measure *m)
{
	struct measure_model result = {0};
	struct windows text = {0};
	*m = (struct measure){.out_by = out_by_of,
			      .out_by_arg = r,
			      .progress = measure_progress,
			      .progress_arg = r,
			      .n_threads = r->q->n_threads};
	int rc = read_eval(r, &text);
	if (!rc)
		rc = measure_model_open(&result, r->q->dst, r->why);
	if (!rc)
		rc = measure_run(m, &r->model, &result, &text, r->why);
	if (!rc)
		take_accumulated(r, m);
	measure_model_close(&result);
	windows_fini(&text);
	return rc;
}

static int finish(struct run *r, bool written)
{
	struct report report = {.source = r->q->source,
				.result = r->q->dst,
				.type = "awq4",
				.group = r->o->group,
				.n_calibration = r->text.n};
	struct measure m = {0};
	int rc = collect(r);
	if (rc)
		return rc;
	report.linears = r->linears;
	report.n_linears = r->n_linears;
	choose_worst(r, &report);
	if (!written && !(rc = write_result(r)))
		rc = state_written(r->state, r->q->dst, r->why);
	if (!rc && r->q->n_eval && !(rc = measure(r, &m)))
		report.network = &m;
	progress_end(&r->progress);
	if (!rc)
		rc = report_write_all(&report, r->q, r->why);
	if (!rc) {
		char as[48];
		snprintf(as, sizeof as, "INT4, groups of %d", r->o->group);
		report_summary(&report, as);
		state_remove(&r->state);
	}
	measure_fini(&m);
	return rc;
}

/* Check DST: it may exist only as the result of a run that was interrupted after writing it. */
static int check_result(struct run *r, bool *there)
{
	size_t n = strlen(r->q->dst);
	while (n > 1 && r->q->dst[n - 1] == '/')
		n--;
	char *state = xasprintf("%.*s.state", (int)n, r->q->dst);
	*there = file_exists(r->q->dst) || file_is_dir(r->q->dst);
	const bool ours = file_is_dir(state);
	free(state);
	return *there && !ours ? err_why(r->why, -EEXIST,
					 "%s exists already: remove it, or name another result", r->q->dst)
			       : 0;
}

static void run_fini(struct run *r)
{
	state_close(r->state);
	for (int i = 0; i < r->n_linears; i++)
		free(r->out_by[i]);
	free(r->out_by);
	free(r->linears);
	free(r->first);
	windows_fini(&r->text);
	measure_model_close(&r->model);
}

int awq_run(const struct awq_options *o, struct why *why)
{
	const struct quantize_options *q = o->all;
	struct run r = {
		.o = o, .q = q, .calibrating = 1 - SHARE_WRITE - (q->n_eval ? SHARE_MEASURE : 0), .why = why};
	bool there = false;
	parallel_limit(q->n_threads);
	int rc = check_result(&r, &there);
	if (!rc && !(rc = report_check_all(q, why)) && !(rc = open_model(&r)) && !(rc = open_text(&r)) &&
	    !(rc = check_eval(&r)))
		rc = state_open(&r.state, q->dst, fingerprint(&r), r.model.config.n_layers, r.text.n,
				r.model.config.hidden, why);
	if (!rc && there &&
	    (state_n_done(r.state) < r.model.config.n_layers || !state_is_written(r.state, q->dst)))
		rc = err_why(why, -EEXIST, "%s exists already: remove it, or name another result", q->dst);
	if (!rc)
		rc = calibrate_all(&r);
	if (!rc)
		rc = finish(&r, there);
	progress_end(&r.progress);
	run_fini(&r);
	return rc;
}

enum { TOKENS_MAX = 1 << 24 };

int awq_command(const struct quantize_options *q, const struct opts *o, struct why *why)
{
	const struct awq_options a = {.all = q,
				      .text = opts_text(o, "calibrate"),
				      .n_tokens = (int)opts_int(o, "tokens"),
				      .group = (int)opts_int(o, "group")};
	if (!a.text)
		return err_why(
			why, -EINVAL,
			"awq4 is calibrated on a text: name one with --calibrate FILE, of at least %d tokens "
			"and like those that the model will see",
			a.n_tokens);
	if (a.group != 32 && a.group != 64 && a.group != 128)
		return err_why(why, -EINVAL, "--group %d must be 32, 64 or 128", a.group);
	if (q->n_eval == 1)
		return err_why(why, -EINVAL, "--eval-tokens 1: it must be 0, or 2 and more");
	return awq_run(&a, why);
}
