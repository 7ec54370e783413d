#include "bench/kernels_tune.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/stream.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"
#include "formats/config.h"
#include "formats/shard.h"
#include "formats/weights.h"
#include "worker/tune.h"

enum {
	LAYERS_MAX = 64,
	ROWS_MAX = 32,
	HEAD_ROWS_MAX = 512, /* a step has no more rows of logits, and each row is 600 kB */
	CALLS_MAX = 4096,    /* calls per measurement */
	LEAST_US = 3000,     /* least duration of a measurement */
	ENOUGH_US = 30000,   /* repeat the measurement of a number of rows until this total, at most
			      * REPEATS_MAX times */
	REPEATS_MAX = 7,
};

/* One kind of layer and its measurements. */
struct layer {
	struct layer_shape shape;
	enum kern_dtype dtype;
	int group;
	int n_rows;
	double us[2][ROWS_MAX]; /* [default, fast] */
	int above;
};

/* The device, opened in one of the two modes. */
struct way {
	struct kern_dev *dev;
	struct kern_stream *s;
	struct kern_info info;
};

struct tuning {
	const struct kernels_tune *a;
	const struct kern_ops *ops;
	struct way ways[2]; /* [default, fast] */
	struct layer layers[LAYERS_MAX];
	int n;
	enum kern_dtype model; /* type in which the model was trained */
};

/* ---- the layers ---- */

static void add_layer(struct tuning *t, const char *name, enum kern_dtype dtype, int group, int k, int n,
		      int parts, bool head)
{
	for (int i = 0; i < t->n; i++)
		if (t->layers[i].dtype == dtype && t->layers[i].shape.k == k && t->layers[i].shape.n == n)
			return;
	if (t->n == LAYERS_MAX)
		return;
	t->layers[t->n++] = (struct layer){
		.shape = {.name = name, .k = k, .n = n, .parts = parts, .head = head},
		.dtype = dtype,
		.group = group > 0 ? group : k,
	};
}

static void add_named(struct tuning *t)
{
	const struct layers_model *m = t->a->model;
	/* F32 weights are converted to the operand type */
	const enum kern_dtype dtype = t->a->dtype == KERN_F32 ? KERN_F16 : t->a->dtype;
	t->model = dtype == KERN_BF16 ? KERN_BF16 : KERN_F16;
	for (int i = 0; i < LAYERS_SHAPES; i++) {
		const struct layer_shape *z = &m->shapes[i];
		add_layer(t, z->name, z->head && dtype == KERN_AWQ4 ? KERN_F16 : dtype, 128, z->k, z->n,
			  z->parts, z->head);
	}
}

static enum kern_dtype dtype_of(const struct tuning *t, const struct weights_linear *w)
{
	return w->kind == WEIGHTS_AWQ ? KERN_AWQ4 : t->model; /* for any float type */
}

/* Add the layers of a rank.  A layer with parts of different kinds is left out; it uses the built-in
 * crossovers. */
static void add_rank(struct tuning *t, const struct model_config *c, const struct weights *w,
		     const struct shard *s)
{
	for (int i = 0; i < w->n_layers; i++) {
		const struct weights_layer *l = &w->layers[i];
		const struct config_layer plan = shard_layer(s, &c->layers[i]);
		const struct shard_cut q = shard_cut(s, &plan, SHARD_Q, &l->q),
				       kv = shard_cut(s, &plan, SHARD_KV, &l->k),
				       o = shard_cut(s, &plan, SHARD_O, &l->o),
				       ffn = shard_cut(s, &plan, SHARD_FFN, &l->up),
				       down = shard_cut(s, &plan, SHARD_DOWN, &l->down);
		if (l->q.kind == l->k.kind && l->q.kind == l->v.kind)
			add_layer(t, "qkv", dtype_of(t, &l->q), l->q.group, q.k, q.n + 2 * kv.n, 1, false);
		add_layer(t, "o", dtype_of(t, &l->o), l->o.group, o.k, o.n, 1, false);
		if (!l->up.w) /* experts without a shared expert */
			continue;
		if (!l->gate.w)
			add_layer(t, "up", dtype_of(t, &l->up), l->up.group, ffn.k, ffn.n, 1, false);
		else if (l->gate.kind == l->up.kind)
			add_layer(t, "gate+up", dtype_of(t, &l->gate), l->gate.group, ffn.k, 2 * ffn.n, 2,
				  false);
		add_layer(t, "down", dtype_of(t, &l->down), l->down.group, down.k, down.n, 1, false);
	}
	add_layer(t, "head", w->head.w ? dtype_of(t, &w->head) : t->model, w->head.group, c->hidden,
		  s->widths[s->rank], 1, true);
}

static int add_of_model(struct tuning *t, struct why *why)
{
	struct model_config c;
	struct weights *w = NULL;
	int rc = model_config_load(t->a->model_dir, &c, why);
	if (rc)
		return rc;
	rc = weights_open(t->a->model_dir, &c, &w, why);
	t->model = c.dtype == CONFIG_BF16 ? KERN_BF16 : KERN_F16;
	for (int r = 0; r < t->a->tp && !rc; r++) {
		struct shard s;
		rc = shard_init(&s, &c, w, (struct shard_rank){r, t->a->tp, false}, why);
		if (!rc)
			add_rank(t, &c, w, &s);
	}
	weights_close(w);
	model_config_fini(&c);
	return rc;
}

/* ---- the device ---- */

static int open_way(struct tuning *t, bool fast, int index, struct why *why)
{
	static const struct kern_crossover always[] = {
		{KERN_AWQ4, 0, 0, 0}, {KERN_F16, 0, 0, 0}, {KERN_BF16, 0, 0, 0}};
	struct way *w = &t->ways[fast];
	const struct kern_open_args a = {
		.index = index,
		.compute = KERN_COMPUTE_F32,
		.model = t->model,
		.max_rows = t->a->rows[t->a->n_rows - 1],
		.max_seqs = 1,
		.max_logits = 1,
		.max_context = 16,
		.max_blocks_per_seq = 1,
		.fast = fast,
	};
	int rc = t->ops->open(&w->dev, &a, why);
	if (rc)
		return rc;
	t->ops->info(w->dev, &w->info);
	if (fast)
		t->ops->crossovers(w->dev, always, 3);
	w->s = t->ops->stream_new(w->dev);
	return w->s ? 0 : err_why(why, -EIO, "%s: no stream could be created", t->a->device);
}

static int open_both(struct tuning *t, struct why *why)
{
	int index;
	int rc = kern_find(t->a->device, &t->ops, &index, why);
	if (!rc)
		rc = open_way(t, false, index, why);
	if (!rc && !t->ways[0].info.build[0])
		rc = err_why(why, -ENOTSUP,
			     "--tune: %s has no second way to compute layers; it is for --device cuda:N",
			     t->a->device);
	return rc ? rc : open_way(t, true, index, why);
}

static void close_both(struct tuning *t)
{
	for (int i = 0; i < 2; i++) {
		if (t->ways[i].s)
			t->ops->stream_free(t->ways[i].s);
		if (t->ways[i].dev)
			t->ops->close(t->ways[i].dev);
	}
}

/* ---- measuring ---- */

/* Calls of a layer on a number of rows. */
struct calls {
	const struct kern_ops *ops;
	const struct way *way;
	const struct layer_shape *shape;
	const struct layer_copies *copies; /* used in turn */
	int rows;
	void *out;
	const void *in;
};

/* Return the microseconds of n calls. */
static double calls_us(const struct calls *c, int n, int *rc)
{
	const int64_t t0 = clock_us();
	for (int i = 0; i < n && !*rc; i++)
		*rc = layers_call(c->ops, c->way->s, c->shape, c->copies->copies[i % c->copies->n_copies],
				  c->out, c->in, c->rows);
	if (c->ops->stream_sync(c->way->s))
		*rc = *rc ? *rc : -EIO;
	return (double)(clock_us() - t0);
}

/* Return the microseconds per call: the fastest of several measurements of many consecutive calls. */
static double measure(const struct calls *c, int *rc)
{
	int n = 1;
	double us = calls_us(c, n, rc), best = HUGE_VAL, all = 0;
	while (us < LEAST_US && n < CALLS_MAX && !*rc) {
		n *= 2;
		us = calls_us(c, n, rc);
	}
	for (int i = 0; i < REPEATS_MAX && (i == 0 || all < ENOUGH_US) && !*rc; i++) {
		us = calls_us(c, n, rc);
		all += us;
		best = fmin(best, us / n);
	}
	return best;
}

int kernels_tune_crossover(const int *rows, const double *default_us, const double *fast_us, int n)
{
	int i = n - 1;
	while (i >= 0 && fast_us[i] < default_us[i] * 0.97)
		i--;
	return i == n - 1 ? INT_MAX : i < 0 ? 0 : rows[i];
}

static int tune_layer(struct tuning *t, struct layer *l, struct why *why)
{
	const struct kernels_tune *a = t->a;
	struct layer_copies copies[2] = {0};
	l->n_rows = a->n_rows;
	while (l->shape.head && l->n_rows > 1 && a->rows[l->n_rows - 1] > HEAD_ROWS_MAX)
		l->n_rows--;
	const size_t rows = (size_t)a->rows[l->n_rows - 1];
	const size_t in_bytes = rows * (size_t)l->shape.k * 2,
		     out_bytes = rows * (size_t)l->shape.n / (size_t)l->shape.parts * (l->shape.head ? 4 : 2);
	void *in = t->ops->mem_new(t->ways[0].dev, in_bytes),
	     *out = t->ops->mem_new(t->ways[0].dev, out_bytes);
	void *host = xmalloc(in_bytes);
	int rc = in && out ? 0
			   : err_why(why, -ENOMEM, "out of memory: %zu bytes for %zu rows of %s; see --rows",
				     in_bytes + out_bytes, rows, l->shape.name);
	layers_fill_floats(host, t->model, in_bytes / 2);
	if (!rc && (t->ops->upload(t->ways[0].s, in, host, in_bytes) || t->ops->stream_sync(t->ways[0].s)))
		rc = err_why(why, -EIO, "%s: the rows could not be copied to the device", l->shape.name);
	for (int i = 0; i < 2 && !rc; i++)
		if ((rc = layers_load(&copies[i], t->ops, t->ways[i].dev, &l->shape, l->dtype, l->group,
				      LAYERS_COLD_BYTES)))
			err_why(why, rc, "%s cannot be loaded", l->shape.name);
	for (int r = 0; r < l->n_rows && !rc; r++)
		for (int i = 0; i < 2; i++)
			l->us[i][r] = measure(&(struct calls){.ops = t->ops,
							      .way = &t->ways[i],
							      .shape = &l->shape,
							      .copies = &copies[i],
							      .rows = a->rows[r],
							      .out = out,
							      .in = in},
					      &rc);
	if (rc && !why->text[0])
		err_why(why, rc, "%s: the device failed (see its log)", l->shape.name);
	if (!rc)
		l->above = kernels_tune_crossover(a->rows, l->us[0], l->us[1], l->n_rows);
	for (int i = 0; i < 2; i++)
		layers_free(&copies[i], t->ops);
	t->ops->mem_free(t->ways[0].dev, in, in_bytes);
	t->ops->mem_free(t->ways[0].dev, out, out_bytes);
	free(host);
	return rc;
}

/* ---- the file ---- */

/* Write the file.  Its entries for other layers are kept if they are of this device and build. */
static int save(const struct tuning *t, char *path, size_t path_n, struct why *why)
{
	const struct kern_info *info = &t->ways[0].info;
	struct tune *old = xcalloc(1, sizeof *old), *new = xcalloc(1, sizeof *new);
	int rc = 0;
	if (t->a->out)
		snprintf(path, path_n, "%s", t->a->out);
	else if ((rc = tune_path(path, path_n, t->a->xdg_cache, t->a->home, info->name)))
		err_why(why, rc,
			"no folder to write to: neither XDG_CACHE_HOME nor HOME is one; name a file "
			"with --out");
	snprintf(new->device, sizeof new->device, "%s", info->name);
	snprintf(new->isa, sizeof new->isa, "%s", info->isa);
	snprintf(new->build, sizeof new->build, "%s", info->build);
	for (int i = 0; i < t->n; i++)
		new->layers[new->n++] = (struct kern_crossover){t->layers[i].dtype, t->layers[i].shape.k,
								t->layers[i].shape.n, t->layers[i].above};
	const bool keep = !rc && tune_read(old, path, NULL) == 0 && tune_fits(old, info, NULL);
	for (int i = 0; keep && i < old->n && new->n < TUNE_LAYERS_MAX; i++) {
		bool again = false;
		for (int j = 0; j < t->n; j++)
			again = again || (new->layers[j].dtype == old->layers[i].dtype &&new->layers[j].k ==
					  old->layers[i].k &&new->layers[j].n == old->layers[i].n);
		if (!again)
			new->layers[new->n++] = old->layers[i];
	}
	if (!rc)
		rc = tune_write(new, path, why);
	free(old);
	free(new);
	return rc;
}

/* ---- the report ---- */

static const char *type_name(enum kern_dtype t)
{
	static const char *const names[] = {"f32", "f16", "bf16", "awq"}; /* by kern_dtype */
	return names[t];
}

static void print_layers(const struct tuning *t)
{
	struct table out = {0};
	table_row(&out, "LAYER", "TYPE", "K", "N", "ROWS", "DEFAULT us", "FAST us", "DEFAULT/FAST", NULL);
	for (int i = 0; i < t->n; i++) {
		const struct layer *l = &t->layers[i];
		for (int r = 0; r < l->n_rows; r++) {
			table_begin(&out);
			table_text(&out, r ? NULL : l->shape.name);
			table_text(&out, r ? NULL : type_name(l->dtype));
			table_format(&out, "%d", l->shape.k);
			table_format(&out, "%d", l->shape.n);
			table_format(&out, "%d", t->a->rows[r]);
			table_format(&out, "%.1f", l->us[0][r]);
			table_format(&out, "%.1f", l->us[1][r]);
			table_format(&out, "%.2f", l->us[0][r] / l->us[1][r]);
		}
	}
	table_print(&out, stdout);
	table_fini(&out);
	for (int i = 0; i < t->n; i++) {
		const struct layer *l = &t->layers[i];
		if (l->above == INT_MAX)
			printf("%s, %s, %d x %d: the default is as fast for all rows\n", l->shape.name,
			       type_name(l->dtype), l->shape.k, l->shape.n);
		else
			printf("%s, %s, %d x %d: --fast goes another way above %d rows\n", l->shape.name,
			       type_name(l->dtype), l->shape.k, l->shape.n, l->above);
	}
}

static void print_json(const struct tuning *t, const char *path)
{
	json_t *layers = json_array();
	for (int i = 0; i < t->n; i++) {
		const struct layer *l = &t->layers[i];
		json_t *measured = json_array();
		for (int r = 0; r < l->n_rows; r++)
			json_array_append_new(measured,
					      json_pack("{s:i, s:f, s:f}", "rows", t->a->rows[r],
							"default_us", l->us[0][r], "fast_us", l->us[1][r]));
		json_array_append_new(
			layers, json_pack("{s:s, s:s, s:i, s:i, s:o, s:o}", "layer", l->shape.name, "type",
					  type_name(l->dtype), "k", l->shape.k, "n", l->shape.n, "above",
					  l->above == INT_MAX ? json_null() : json_integer(l->above),
					  "measured", measured));
	}
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "device", t->ways[0].info.name, "isa",
			      t->ways[0].info.isa, "build", t->ways[0].info.build, "default",
			      t->ways[0].info.numerics, "fast", t->ways[1].info.numerics, "written", path,
			      "layers", layers);
	stream_print_json(o);
	json_decref(o);
}

int kernels_tune(const struct kernels_tune *a)
{
	struct tuning *t = xcalloc(1, sizeof *t);
	struct why why = {""};
	char path[4096];
	int rc = 0;
	t->a = a;
	if (a->model_dir)
		rc = add_of_model(t, &why);
	else
		add_named(t);
	if (!rc)
		rc = open_both(t, &why);
	for (int i = 0; i < t->n && !rc; i++) {
		if (!a->json && term_is_tty(stderr))
			fprintf(stderr, "%s, %s, %d x %d\n", t->layers[i].shape.name,
				type_name(t->layers[i].dtype), t->layers[i].shape.k, t->layers[i].shape.n);
		rc = tune_layer(t, &t->layers[i], &why);
	}
	if (!rc)
		rc = save(t, path, sizeof path, &why);
	if (!rc && a->json)
		print_json(t, path);
	else if (!rc) {
		print_layers(t);
		printf("written to %s\n", path);
	}
	close_both(t);
	free(t);
	return term_finish(rc ? term_error("bench kernels: %s", why.text) : EXIT_SUCCESS);
}
