#include "quant/round_run.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "cli/terminal/term.h"
#include "formats/gguf.h"
#include "quant/importance.h"
#include "quant/int4.h"
#include "quant/measure.h"
#include "quant/parallel.h"
#include "quant/progress.h"
#include "quant/report.h"
#include "quant/round/gguf_quantize.h"
#include "quant/round/hf_quantize.h"
#include "quant/round/imatrix.h"
#include "quant/runner.h"
#include "quant/windows.h"
#include "quant/writer/own_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
	const struct quantize_options *o;
	const struct round_importance *i;
	struct imatrix *imatrix; /* owned; NULL: none */
	bool gguf;
	struct measure_model source;
	struct windows text;
	struct keep keep;
	struct report_linear *linears; /* owned */
	int n_linears;
	double from, to; /* range of the progress that the current measurement covers */
	struct progress progress;
	struct why *why;
};

/* ---- writing ---- */

static int quantize(struct run *r, const char *dst)
{
	const struct quantize_options *o = r->o;
	const struct gguf_importance i = {r->imatrix, r->i->file ? r->i->file : r->i->text};
	return r->gguf ? gguf_quantize(o->source, dst, o->type, &r->keep, r->imatrix ? &i : NULL, r->why)
		       : hf_quantize(o->source, dst, o->type, int4_pack, &r->keep, r->why);
}

/* ---- measuring ---- */

static void show_progress(void *arg, double done)
{
	struct run *r = arg;
	progress_step(&r->progress, r->from + (r->to - r->from) * done, "measuring");
}

static int measure(struct run *r, const char *path, struct measure *m)
{
	struct measure_model result = {0};
	*m = (struct measure){.progress = show_progress, .progress_arg = r, .n_threads = r->o->n_threads};
	progress_begin(&r->progress, r->from);
	int rc = measure_model_open(&result, path, r->why);
	if (!rc) {
		result.path = r->o->dst; /* messages name DST, also while the trial is measured */
		rc = measure_run(m, &r->source, &result, &r->text, r->why);
	}
	progress_end(&r->progress);
	measure_model_close(&result);
	return rc;
}

/* ---- the report ---- */

/* Return whether a part is kept; all experts of a layer are one tensor in a GGUF file. */
static enum keep_by kept_by(const struct run *r, const char *name)
{
	return keep_of(&r->keep, name, r->gguf ? r->source.config.experts.n : 0);
}

/* Return the reason why the result has the part in floats. */
static enum layer_reason reason_of(const struct run *r, const struct measure_linear *l)
{
	const enum keep_by by = kept_by(r, l->name);
	return by == KEEP_PATTERN ? REASON_ASKED : by == KEEP_NAME ? REASON_WORST : REASON_SHAPE;
}

/* Collect the figures.  A part that is in floats keeps the figures of an earlier measurement, if there are
 * any. */
static void collect(struct run *r, const struct measure *m)
{
	if (!r->linears)
		r->linears = xcalloc((size_t)m->n_linears + 1, sizeof *r->linears);
	for (int i = 0; i < m->n_linears; i++) {
		const struct measure_linear *l = &m->linears[i];
		struct report_linear *to = &r->linears[i];
		snprintf(to->name, sizeof to->name, "%s", l->name);
		to->part = l->part;
		to->layer = l->layer;
		to->kept = l->same;
		to->reason = layer_reason_text(l->same ? reason_of(r, l) : REASON_NONE);
		to->accumulated = l->accumulated;
		if (l->same)
			continue;
		to->n_rows = l->n_rows;
		to->weights = l->weights;
		to->alone = l->alone;
	}
	r->n_linears = m->n_linears;
}

static struct report report_of(const struct run *r)
{
	return (struct report){.source = r->o->source,
			       .result = r->o->dst,
			       .type = r->o->type,
			       .linears = r->linears,
			       .n_linears = r->n_linears};
}

static void choose_worst(struct run *r)
{
	int *order = xcalloc((size_t)r->n_linears + 1, sizeof *order);
	const struct report report = report_of(r);
	report_order(&report, order);
	for (int i = 0, n = 0; i < r->n_linears && n < r->o->keep_worst; i++) {
		const struct report_linear *l = &r->linears[order[i]];
		if (l->kept || !(l->alone.signal > 0) || kept_by(r, l->name))
			continue; /* also if it shares a tensor with a chosen part */
		keep_add(&r->keep, l->name);
		n++;
	}
	free(order);
}

/* ---- the importance of inputs ---- */

static void show_calibration(void *arg, double done)
{
	struct run *r = arg;
	progress_step(&r->progress, done, "calibrating");
}

/* Compute the importance matrix on a text. */
static int calibrate(struct run *r)
{
	const struct round_importance *i = r->i;
	struct measure_model model = {0};
	struct windows text = {0};
	int rc = measure_model_open(&model, r->o->source, r->why);
	if (!rc)
		rc = windows_read(&text, r->o->source, i->text, runner_window(&model.config), i->n_tokens,
				  model.config.n_vocab, r->why);
	if (!rc && text.n < i->n_tokens)
		rc = err_why(r->why, -EINVAL,
			     "%s has %d tokens, and --tokens asks for %d: use a longer text, or fewer tokens",
			     i->text, text.n, i->n_tokens);
	if (!rc) {
		const struct importance run = {.model = &model,
					       .text = &text,
					       .n_threads = r->o->n_threads,
					       .progress = show_calibration,
					       .progress_arg = r};
		r->imatrix = imatrix_new(i->text, (text.n + text.length - 1) / text.length, text.length);
		progress_begin(&r->progress, 0);
		rc = importance_run(&run, r->imatrix, r->why);
		progress_end(&r->progress);
	}
	if (!rc && i->save)
		rc = imatrix_write(r->imatrix, i->save, r->why);
	windows_fini(&text);
	measure_model_close(&model);
	return rc;
}

/* ---- the trial ---- */

/* Write DST.trial/model with everything quantized, measure it, and choose the worst parts. */
static int try_model(struct run *r, const char *model)
{
	struct measure m = {0};
	int rc = quantize(r, model);
	if (!rc && !(rc = measure(r, model, &m))) {
		collect(r, &m);
		choose_worst(r);
	}
	measure_fini(&m);
	return rc == -EINTR ? err_why(r->why, rc, "interrupted: nothing was written") : rc;
}

static int find_worst(struct run *r)
{
	static const char mark[] = ".quern-trial";
	size_t n = strlen(r->o->dst);
	while (n > 1 && r->o->dst[n - 1] == '/')
		n--;
	char *dir = xasprintf("%.*s.trial", (int)n, r->o->dst), *model = file_join(dir, "model");
	int fd;
	int rc = own_dir_take(dir, r->o->dst, mark, &fd, r->why);
	if (!rc)
		rc = try_model(r, model);
	own_dir_remove(dir, mark, &fd);
	free(model);
	free(dir);
	return rc;
}

/* ---- entry ---- */

/* Check before the model is run that the result can be written. */
static int check_source(const struct run *r)
{
	const struct quantize_options *o = r->o;
	if (file_exists(o->dst) || file_is_dir(o->dst))
		return err_why(r->why, -EEXIST, "%s exists already: remove it, or name another result",
			       o->dst);
	if (!file_is_dir(o->source) && !(r->gguf && gguf_is(o->source)))
		return err_why(
			r->why, -ENOTSUP,
			"%s is not a directory of safetensors, which --type %s needs: make one with quern "
			"convert %s DST --to safetensors",
			o->source, o->type, o->source);
	return 0;
}

static int open_source(struct run *r)
{
	const struct quantize_options *o = r->o;
	int rc = check_source(r);
	if (!rc)
		rc = measure_model_open(&r->source, o->source, r->why);
	if (!rc)
		rc = windows_read(&r->text, o->source, o->eval, runner_window(&r->source.config), o->n_eval,
				  r->source.config.n_vocab, r->why);
	return rc;
}

static int measure_result(struct run *r)
{
	struct measure m;
	int rc = measure(r, r->o->dst, &m);
	if (rc) /* also if interrupted */
		return err_prefix(r->why, rc, "%s is written, but not measured", r->o->dst);
	collect(r, &m);
	struct report report = report_of(r);
	report.network = &m;
	rc = report_write_all(&report, r->o, r->why);
	if (!rc)
		report_summary(&report, r->o->type);
	measure_fini(&m);
	return rc;
}

int round_run(const struct quantize_options *o, const struct round_importance *i, struct why *why)
{
	struct run r = {.o = o,
			.i = i,
			.gguf = gguf_quantize_has(o->type),
			.keep = {.patterns = o->keep, .n_patterns = o->n_keep},
			.to = o->keep_worst ? 0.5 : 1,
			.why = why};
	parallel_limit(o->n_threads);
	interrupt_arm(); /* up to the end, so that a signal during the commit stops what follows it */
	int rc = report_check_all(o, why);
	if (!rc && o->eval)
		rc = open_source(&r);
	if (!rc && i->file)
		rc = imatrix_read(i->file, &r.imatrix, why);
	if (!rc && i->text)
		rc = check_source(&r);
	if (!rc && i->text)
		rc = calibrate(&r);
	if (!rc && o->keep_worst) {
		rc = find_worst(&r);
		r.from = r.to;
		r.to = 1;
	}
	if (!rc)
		rc = quantize(&r, o->dst);
	if (!rc && o->eval)
		rc = measure_result(&r);
	interrupt_disarm();
	keep_fini(&r.keep);
	imatrix_free(r.imatrix);
	free(r.linears);
	windows_fini(&r.text);
	measure_model_close(&r.source);
	return rc;
}
