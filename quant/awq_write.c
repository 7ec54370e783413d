#include "quant/awq_write.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/family.h"
#include "kernels/half.h"
#include "quant/convert/hf_files.h"
#include "quant/writer/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX = 16 << 20, NAME_MAX_BYTES = 160 };

/* A source tensor. */
struct source {
	struct weights_tensor t;
	int to;       /* index in the writer; -1: quantized */
	bool written; /* written with its layer */
};

/* Indexes in the writer of the three tensors that replace a weight. */
struct codes_at {
	char name[96]; /* name of the module */
	int qweight, qzeros, scales;
	int n, k;
};

struct job {
	const struct awq_write_args *a;
	struct writer *w;
	struct source *sources; /* sorted by name */
	int n_sources;
	struct codes_at *codes; /* sorted by name, once all are listed */
	int n_codes;
	struct why *why;
};

/* ---- look-up ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct source *)a)->t.name, ((const struct source *)b)->t.name);
}

static int by_module(const void *a, const void *b)
{
	return strcmp(((const struct codes_at *)a)->name, ((const struct codes_at *)b)->name);
}

static struct source *find(struct job *j, const char *module, const char *ending)
{
	char name[NAME_MAX_BYTES];
	snprintf(name, sizeof name, "%s%s", module, ending);
	const struct source key = {.t.name = name};
	return bsearch(&key, j->sources, (size_t)j->n_sources, sizeof key, by_name);
}

static struct source *find_data(struct job *j, const void *data)
{
	for (int i = 0; i < j->n_sources; i++)
		if (j->sources[i].t.data == data)
			return &j->sources[i];
	return NULL;
}

static struct codes_at *find_codes(struct job *j, const char *module)
{
	struct codes_at key;
	snprintf(key.name, sizeof key.name, "%s", module);
	return bsearch(&key, j->codes, (size_t)j->n_codes, sizeof key, by_module);
}

/* ---- declarations ---- */

static int declare(struct job *j, const char *module, const char *ending, const char *type, int64_t rows,
		   int64_t columns)
{
	char name[NAME_MAX_BYTES];
	snprintf(name, sizeof name, "%s%s", module, ending);
	const struct writer_tensor t = {.name = name, .type = type, .n_dims = 2, .shape = {rows, columns}};
	return writer_declare(j->w, &t, j->why);
}

static int declare_codes(struct job *j, struct codes_at *c)
{
	const int groups = c->k / j->a->group;
	if ((c->qweight = declare(j, c->name, ".qweight", "I32", c->k, c->n / 8)) < 0)
		return c->qweight;
	if ((c->qzeros = declare(j, c->name, ".qzeros", "I32", groups, c->n / 8)) < 0)
		return c->qzeros;
	c->scales = declare(j, c->name, ".scales", "F16", groups, c->n);
	return c->scales < 0 ? c->scales : 0;
}

/* List the quantized modules of a layer; parts with one name are one module. */
static void list_codes(struct job *j, const struct layer_plan *p)
{
	for (int i = 0; i < p->n_linears; i++) {
		const struct layer_linear *l = &p->linears[i];
		if (l->kept)
			continue;
		if (i && strcmp(p->linears[i - 1].name, l->name) == 0) {
			j->codes[j->n_codes - 1].n += l->from->n;
			continue;
		}
		j->codes = xrealloc(j->codes, (size_t)j->n_codes + 1, sizeof *j->codes);
		struct codes_at *c = &j->codes[j->n_codes++];
		*c = (struct codes_at){.n = l->from->n, .k = l->from->k};
		snprintf(c->name, sizeof c->name, "%s", l->name);
	}
}

static int declare_all(struct job *j)
{
	int rc = 0;
	for (int i = 0; !rc && i < j->a->config->n_layers; i++) {
		struct layer_plan p;
		if (!(rc = j->a->plan(j->a->arg, i, false, &p, j->why))) {
			list_codes(j, &p);
			layer_plan_fini(&p);
		}
	}
	if (rc)
		return rc;
	if (j->n_codes)
		qsort(j->codes, (size_t)j->n_codes, sizeof *j->codes, by_module);
	for (int i = 0; i < j->n_codes; i++) {
		struct source *s = find(j, j->codes[i].name, ".weight");
		if (!s)
			return err_why(j->why, -EINVAL, "tensor %s.weight is missing", j->codes[i].name);
		s->to = -1;
	}
	for (int i = 0; i < j->n_sources; i++) {
		struct source *s = &j->sources[i];
		struct writer_tensor t = {.name = s->t.name, .type = s->t.type, .n_dims = s->t.n_dims};
		if (s->to < 0)
			continue;
		if (s->t.n_dims < 1 || s->t.n_dims > WRITER_DIMS_MAX)
			return err_why(j->why, -ENOTSUP, "tensor %s has %d dimensions", s->t.name,
				       s->t.n_dims);
		memcpy(t.shape, s->t.shape, sizeof t.shape);
		if ((s->to = writer_declare(j->w, &t, j->why)) < 0)
			return s->to;
	}
	for (int i = 0; !rc && i < j->n_codes; i++)
		rc = declare_codes(j, &j->codes[i]);
	return rc;
}

/* ---- config.json and the other files ---- */

/* List the modules with a float matrix other than embedding and head: readers assume AWQ for all others. */
static json_t *not_converted(const struct job *j)
{
	json_t *names = json_array();
	for (int i = 0; i < j->n_sources; i++) {
		const struct source *s = &j->sources[i];
		const size_t n = strlen(s->t.name), end = strlen(".weight");
		if (s->to < 0 || s->t.n_dims != 2 || n <= end ||
		    strcmp(s->t.name + n - end, ".weight") != 0 || strstr(s->t.name, "embed_tokens") ||
		    strstr(s->t.name, "lm_head"))
			continue;
		json_array_append_new(names, json_stringn(s->t.name, n - end));
	}
	return names;
}

static int write_config(struct job *j)
{
	char *path = file_join(j->a->source, "config.json");
	json_t *root = NULL;
	int rc = json_read(path, CONFIG_MAX, &root, j->why);
	if (!rc) {
		json_object_set_new(root, "quantization_config",
				    json_pack("{s:i, s:i, s:o, s:s, s:s, s:b}", "bits", 4, "group_size",
					      j->a->group, "modules_to_not_convert", not_converted(j),
					      "quant_method", "awq", "version", "gemm", "zero_point", 1));
		rc = writer_json(j->w, "config.json", root, j->why);
	}
	json_decref(root);
	free(path);
	return rc;
}

static int write_files(struct job *j)
{
	const int rc = write_config(j);
	return rc ? rc : hf_files_copy(j->w, j->a->source, false, j->why);
}

/* ---- data ---- */

static int put(struct job *j, int tensor, const void *data)
{
	return writer_rows(j->w, tensor, 0, writer_n_rows(j->w, tensor), data, j->why);
}

static void store(enum config_dtype t, float x, void *out, size_t i)
{
	if (t == CONFIG_F32) {
		memcpy((unsigned char *)out + 4 * i, &x, 4);
		return;
	}
	const uint16_t h = t == CONFIG_F16 ? half_near_f16(x) : half_to_bf16(x);
	memcpy((unsigned char *)out + 2 * i, &h, 2);
}

/* Copy rows [n_rows, words] into out [n_rows, all], starting at word `at` of each row. */
static void side_by_side(void *out, const void *rows, size_t n_rows, size_t words, size_t all, size_t at,
			 size_t word_bytes)
{
	for (size_t i = 0; i < n_rows; i++)
		memcpy((unsigned char *)out + (i * all + at) * word_bytes,
		       (const unsigned char *)rows + i * words * word_bytes, words * word_bytes);
}

/* Write the codes of parts first to end - 1, which share a name. */
static int write_codes(struct job *j, const struct layer_plan *p, int first, int end)
{
	const struct codes_at *c = find_codes(j, p->linears[first].name);
	const size_t n = (size_t)c->n, k = (size_t)c->k, groups = k / (size_t)p->group;
	uint32_t *q = xmalloc(k * (n / 8) * 4), *z = xmalloc(groups * (n / 8) * 4);
	uint16_t *s = xmalloc(groups * n * 2);
	size_t at = 0;
	for (int i = first; i < end; i++) {
		const struct layer_linear *l = &p->linears[i];
		const size_t part = (size_t)l->from->n;
		side_by_side(q, l->qweight, k, part / 8, n / 8, at / 8, 4);
		side_by_side(z, l->qzeros, groups, part / 8, n / 8, at / 8, 4);
		side_by_side(s, l->scales, groups, part, n, at, 2);
		at += part;
	}
	int rc = put(j, c->qweight, q);
	if (!rc)
		rc = put(j, c->qzeros, z);
	if (!rc)
		rc = put(j, c->scales, s);
	free(q);
	free(z);
	free(s);
	return rc;
}

/* Write parts that stay floats, with the scales of their inputs and outputs applied. */
static int write_floats(struct job *j, const struct layer_plan *p, int first, int end)
{
	struct source *s = find(j, p->linears[first].name, ".weight");
	const bool by_input = j->a->config->family->transposed;
	const size_t k = (size_t)p->linears[first].from->k;
	size_t all = 0, row0 = 0;
	if (!s)
		return 0;
	for (int i = first; i < end; i++)
		all += (size_t)p->linears[i].from->n;
	unsigned char *out = xmalloc(all * k * sizeof(float));
	for (int i = first; i < end; i++) {
		const struct layer_linear *l = &p->linears[i];
		const float *in_by = p->blocks[l->block].in_by;
		const size_t n = (size_t)l->from->n;
		float *w = xmalloc(n * k * sizeof *w);
		layer_floats(l->from, w);
		for (size_t r = 0; r < n; r++)
			for (size_t c = 0; c < k; c++) {
				float x = w[r * k + c];
				x = in_by ? x * in_by[c] : x;
				x = l->out_by ? x / l->out_by[r] : x;
				store(l->from->dtype, x, out,
				      by_input ? c * all + row0 + r : (row0 + r) * k + c);
			}
		row0 += n;
		free(w);
	}
	s->written = true;
	const int rc = put(j, s->to, out);
	free(out);
	return rc;
}

static bool is_changed(const struct layer_plan *p, int first, int end)
{
	for (int i = first; i < end; i++)
		if (p->linears[i].out_by || p->blocks[p->linears[i].block].in_by)
			return true;
	return false;
}

static int write_bias(struct job *j, const struct layer_plan *p, int first, int end)
{
	struct source *s = find(j, p->linears[first].name, ".bias");
	bool any = false;
	for (int i = first; i < end; i++)
		any |= p->linears[i].out_by != NULL;
	if (!any || !s || !p->linears[first].from->bias.data)
		return 0;
	float *all = xmalloc(s->t.bytes * 2);
	size_t at = 0;
	for (int i = first; i < end; i++) {
		const struct layer_linear *l = &p->linears[i];
		const struct weights_vec *v = &l->from->bias;
		float *values = xmalloc((size_t)v->n * sizeof *values);
		weights_to_f32(v, values);
		for (int r = 0; r < v->n; r++)
			store(v->dtype, l->out_by ? values[r] / l->out_by[r] : values[r], all, at++);
		free(values);
	}
	s->written = true;
	const int rc = put(j, s->to, all);
	free(all);
	return rc;
}

static int write_norm(struct job *j, const struct layer_plan *p, const struct layer_block *b)
{
	struct source *s = find_data(j, b->norm->data);
	if (!s)
		return err_why(j->why, -EINVAL, "the norm of layer %d is in no tensor", p->index);
	float *values = xmalloc((size_t)b->norm->n * sizeof *values), offset = p->c->norm_offset;
	weights_to_f32(b->norm, values);
	for (int i = 0; i < b->norm->n; i++)
		store(b->norm->dtype, (values[i] + offset) / b->in_by[i] - offset, values, (size_t)i);
	s->written = true;
	const int rc = put(j, s->to, values);
	free(values);
	return rc;
}

static int write_layer(struct job *j, const struct layer_plan *p)
{
	int rc = 0;
	for (int i = 0, end; !rc && i < p->n_linears; i = end) {
		for (end = i + 1; end < p->n_linears; end++)
			if (strcmp(p->linears[end].name, p->linears[i].name) != 0)
				break;
		if (!p->linears[i].kept)
			rc = write_codes(j, p, i, end);
		else if (is_changed(p, i, end))
			rc = write_floats(j, p, i, end);
		if (!rc)
			rc = write_bias(j, p, i, end);
	}
	for (int i = 0; !rc && i < p->n_blocks; i++)
		if (p->blocks[i].fold == FOLD_NORM && p->blocks[i].in_by)
			rc = write_norm(j, p, &p->blocks[i]);
	return rc;
}

static int write_data(struct job *j)
{
	const int n_layers = j->a->config->n_layers;
	int rc = 0;
	for (int i = 0; !rc && i < n_layers; i++) {
		struct layer_plan p;
		if ((rc = j->a->plan(j->a->arg, i, true, &p, j->why)))
			break;
		rc = write_layer(j, &p);
		layer_plan_fini(&p);
		if (j->a->progress)
			j->a->progress(j->a->arg, (double)(i + 1) / (n_layers + 1));
	}
	for (int i = 0; !rc && i < j->n_sources; i++)
		if (j->sources[i].to >= 0 && !j->sources[i].written)
			rc = put(j, j->sources[i].to, j->sources[i].t.data);
	return rc;
}

int awq_write(const struct awq_write_args *a, struct why *why)
{
	struct job j = {.a = a, .why = why, .n_sources = a->weights->files.n_tensors};
	int rc = writer_new(a->dst, WRITER_SAFETENSORS, &j.w, why);
	if (rc)
		return rc;
	j.sources = xcalloc((size_t)j.n_sources + 1, sizeof *j.sources);
	for (int i = 0; i < j.n_sources; i++)
		a->weights->files.tensor(a->weights->files.at, i, &j.sources[i].t);
	qsort(j.sources, (size_t)j.n_sources, sizeof *j.sources, by_name);
	if (!(rc = declare_all(&j)) && !(rc = write_files(&j)) && !(rc = writer_begin(j.w, why)) &&
	    !(rc = write_data(&j)))
		rc = writer_commit(&j.w, why);
	writer_abort(&j.w);
	free(j.sources);
	free(j.codes);
	return rc;
}
