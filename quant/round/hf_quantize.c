#include "quant/round/hf_quantize.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/terminal/term.h"
#include "formats/family.h"
#include "formats/safetensors.h"
#include "formats/weights.h"
#include "kernels/half.h"
#include "quant/convert/hf_files.h"
#include "quant/convert/tensor_plan.h"
#include "quant/round/hf_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_VALUES = 1 << 20, CONFIG_BYTES = 16 << 20, WORD = 8 };

enum type { INT8, FP8, INT4 };

/* A linear layer to be quantized, and the tensors that replace it. */
struct module {
	char name[NAME_SIZE];
	const struct st_tensor *t;
	int64_t n, k;             /* outputs, inputs */
	int codes, scales, zeros; /* indexes in the writer */
};

struct job {
	const char *src;
	enum type type;
	int4_packer pack;
	const struct keep *keep;
	struct model_config c;
	struct weights *weights;
	struct safetensors *files;
	struct tensor_plan plan; /* tensors that stay unchanged */
	struct module *modules;
	size_t n, cap;
	json_t *linear, *kept; /* sets of names: linear layers; those that stay in floats */
	int group;
	struct writer *w;
	int64_t done, total, started_us; /* bytes, for the progress bar */
	struct why *why;
};

/* ---- choosing layers ---- */

/* Return whether the files have the weights of layers as [inputs, outputs].  The results are [outputs,
 * inputs], as all quantized layers are. */
static bool is_turned(const struct job *j)
{
	return j->c.family->transposed;
}

static int64_t outputs(const struct job *j, const struct st_tensor *t)
{
	return t->shape[is_turned(j) ? 1 : 0];
}

static int64_t inputs(const struct job *j, const struct st_tensor *t)
{
	return t->shape[is_turned(j) ? 0 : 1];
}

/* Return whether the layer has the rows of q, k and v in turns, which no reader expects of codes. */
static bool has_turns(const struct job *j, const char *name)
{
	const char *end = family_name(j->c.family, PART_QKV);
	const size_t n = strlen(name), k = strlen(end);
	return j->c.family->qkv != QKV_SIDE_BY_SIDE && n > k && strcmp(name + n - k, end) == 0;
}

static bool is_router(const struct weights *w, const struct weights_linear *l)
{
	for (int i = 0; i < w->n_layers; i++)
		if (l == &w->layers[i].router || l == &w->layers[i].shared_gate)
			return true;
	return false;
}

static void note_linear(void *ctx, const struct weights_linear *l, bool head)
{
	struct job *j = ctx;
	if (head || is_router(j->weights, l) || has_turns(j, l->name))
		json_object_set_new(j->kept, l->name, json_true());
	else
		json_object_set_new(j->linear, l->name, json_true());
}

/* Return the name W of a matrix W.weight, the caller's; NULL: another tensor. */
static char *matrix_of(const struct st_tensor *t)
{
	static const char end[] = ".weight";
	const size_t n = strlen(t->name);
	if (t->n_dims != 2 || n <= strlen(end) || strcmp(t->name + n - strlen(end), end) != 0)
		return NULL;
	return xasprintf("%.*s", (int)(n - strlen(end)), t->name);
}

/* Return the module's name if the tensor is the weight of a linear layer, the caller's; else NULL. */
static char *module_of(const struct job *j, const struct st_tensor *t)
{
	char *name = matrix_of(t);
	if (name && json_object_get(j->linear, name) && strlen(name) < NAME_SIZE - 16)
		return name;
	free(name);
	return NULL;
}

/* List a layer that predicts further tokens as kept: it is copied, and other programs must know that it is in
 * floats. */
static void keep_predictor(struct job *j, const struct st_tensor *t)
{
	char *name = name_is_of_predictor(&j->c, t->name) ? matrix_of(t) : NULL;
	if (name && !strstr(name, "embed_tokens"))
		json_object_set_new(j->kept, name, json_true());
	free(name);
}

static bool is_kept(const struct job *j, const char *name, const struct st_tensor *t)
{
	return keep_of(j->keep, name, 0) || (j->type == INT4 && outputs(j, t) % WORD);
}

/* Return the largest group that divides the inputs of all layers to be quantized; 0: none does. */
static int choose_group(const struct job *j)
{
	static const int groups[] = {128, 64, 32};
	for (int g = 0; g < 3; g++) {
		bool fits = true;
		for (int i = 0; i < safetensors_count(j->files); i++) {
			const struct st_tensor *t = safetensors_at(j->files, i);
			char *name = module_of(j, t);
			fits = fits && (!name || is_kept(j, name, t) || inputs(j, t) % groups[g] == 0);
			free(name);
		}
		if (fits)
			return groups[g];
	}
	return 0;
}

/* ---- declarations ---- */

static int declare(struct job *j, const struct module *m, const char *suffix, const char *type, int64_t rows,
		   int64_t columns)
{
	char name[NAME_SIZE];
	snprintf(name, sizeof name, "%.*s.%s", NAME_SIZE - 20, m->name, suffix);
	const struct writer_tensor t = {.name = name, .type = type, .n_dims = 2, .shape = {rows, columns}};
	return writer_declare(j->w, &t, j->why);
}

static int add_module(struct job *j, const struct st_tensor *t, const char *name)
{
	const int64_t n = outputs(j, t), k = inputs(j, t);
	struct module m = {.t = t, .n = n, .k = k, .zeros = -1};
	snprintf(m.name, sizeof m.name, "%s", name);
	if (!tensor_plan_is_float(st_dtype_name(t->dtype)))
		return err_why(j->why, -ENOTSUP, "tensor %s is %s; F32, F16 or BF16 can be quantized",
			       t->name, st_dtype_name(t->dtype));
	if (j->type == INT4) {
		m.codes = declare(j, &m, "qweight", "I32", k, n / WORD);
		m.zeros = declare(j, &m, "qzeros", "I32", k / j->group, n / WORD);
		m.scales = declare(j, &m, "scales", "F16", k / j->group, n);
	} else {
		m.codes = declare(j, &m, "weight", j->type == INT8 ? "I8" : "F8_E4M3", n, k);
		m.scales = declare(j, &m, "weight_scale", "F32", n, 1);
	}
	if (m.codes < 0 || m.scales < 0)
		return m.codes < 0 ? m.codes : m.scales;
	array_grow(j->modules, j->cap, j->n + 1);
	j->modules[j->n++] = m;
	j->total += (int64_t)t->bytes;
	json_object_set_new(j->linear, name, json_false()); /* false: the layer has a tensor of its own */
	return 0;
}

/* Refuse linear layers that are stored within a tensor of several.  A layer has its own tensor, or is fused
 * with others under the name of the whole. */
static int check_apart(const struct job *j)
{
	const char *name;
	json_t *v;
	json_object_foreach(j->linear, name, v) if (json_is_true(v)) return err_why(
		j->why, -ENOTSUP, "layer %.150s is stored within a tensor of several, which is not quantized",
		name);
	return 0;
}

static int declare_all(struct job *j)
{
	int rc = 0;
	for (int i = 0; !rc && i < safetensors_count(j->files); i++) {
		const struct st_tensor *t = safetensors_at(j->files, i);
		char *name = module_of(j, t);
		const bool whole = name && !is_kept(j, name, t);
		if (whole)
			rc = add_module(j, t, name);
		else
			rc = tensor_plan_copy(&j->plan, t, j->why);
		if (name && !whole) {
			json_object_set_new(j->kept, name, json_true());
			json_object_set_new(j->linear, name, json_false());
		}
		keep_predictor(j, t);
		free(name);
	}
	if (!rc)
		rc = check_apart(j);
	if (!rc && !j->n)
		rc = err_why(
			j->why, -ENOTSUP,
			"no linear layer of the model has the shape that the type needs, or --keep names "
			"them all");
	return rc ? rc : tensor_plan_declare(&j->plan, j->w, j->why);
}

/* ---- config.json ---- */

static json_t *names_of(const json_t *set)
{
	json_t *list = json_array(), *v;
	const char *name;
	json_object_foreach((json_t *)set, name, v) json_array_append_new(list, json_string(name));
	return list;
}

static json_t *scheme(const struct job *j)
{
	const char *type = j->type == INT8 ? "int" : "float";
	if (j->type == INT4) {
		json_t *list = names_of(j->kept);
		const bool none = json_array_size(list) == 0;
		json_t *o = json_pack("{s:s,s:i,s:i,s:b,s:s,s:o?}", "quant_method", "awq", "bits", 4,
				      "group_size", j->group, "zero_point", 1, "version", "gemm",
				      "modules_to_not_convert", none ? NULL : json_incref(list));
		json_decref(list);
		return o;
	}
	return json_pack("{s:s,s:s,s:s,s:o,s:{s:{s:[s],s:{s:i,s:s,s:b,s:s,s:b},s:{s:i,s:s,s:b,s:s,s:b}}}}",
			 "quant_method", "compressed-tensors", "format",
			 j->type == INT8 ? "int-quantized" : "float-quantized", "quantization_status",
			 "compressed", "ignore", names_of(j->kept), "config_groups", "group_0", "targets",
			 "Linear", "weights", "num_bits", 8, "type", type, "symmetric", 1, "strategy",
			 "channel", "dynamic", 0, "input_activations", "num_bits", 8, "type", type,
			 "symmetric", 1, "strategy", "token", "dynamic", 1);
}

static int write_files(struct job *j)
{
	char *path = file_join(j->src, "config.json");
	json_t *root = NULL;
	int rc = json_read(path, CONFIG_BYTES, &root, j->why);
	free(path);
	if (rc)
		return rc;
	json_object_set_new(root, "quantization_config", scheme(j));
	rc = writer_json(j->w, "config.json", root, j->why);
	json_decref(root);
	return rc ? rc : hf_files_copy(j->w, j->src, false, j->why);
}

/* ---- values ---- */

static enum kern_dtype dtype_of(const struct st_tensor *t)
{
	return t->dtype == ST_F32 ? KERN_F32 : t->dtype == ST_F16 ? KERN_F16 : KERN_BF16;
}

static size_t row_bytes(const struct module *m)
{
	return (size_t)m->k * (m->t->dtype == ST_F32 ? 4 : 2);
}

/* Read the weights of outputs row0 .. row0 + n - 1 as floats; all must be finite and within F16. */
static int read_rows(struct job *j, const struct module *m, int64_t row0, int64_t n, float *out)
{
	const struct st_tensor *t = m->t;
	const bool turned = is_turned(j);
	if (interrupt_pending())
		return err_why(j->why, -EINTR, "interrupted: nothing was written");
	for (int64_t i = 0; i < n * m->k; i++) {
		const int64_t row = row0 + i / m->k, column = i % m->k;
		const int64_t at = turned ? column * m->n + row : row * m->k + column;
		out[i] = half_load(t->data, dtype_of(t), (size_t)at);
		if (!(fabsf(out[i]) <= 65504))
			return err_why(j->why, -ERANGE,
				       "tensor %s has the value %.9g (number %" PRId64
				       "), which cannot be rounded",
				       t->name, (double)out[i], at);
	}
	if (!turned)
		file_forget((const char *)t->data + (size_t)row0 * row_bytes(m), (size_t)n * row_bytes(m));
	j->done += n * (int64_t)row_bytes(m);
	term_progress("quantizing", (double)j->done, (double)j->total,
		      (double)(clock_us() - j->started_us) / 1e6);
	return 0;
}

static int write_rows_8(struct job *j, const struct module *m, float *x, int8_t *code, float *scale,
			int64_t piece)
{
	const int64_t n = m->n, k = m->k;
	int rc = 0;
	for (int64_t row = 0; !rc && row < n; row += piece) {
		const int64_t some = piece < n - row ? piece : n - row;
		rc = read_rows(j, m, row, some, x);
		for (int64_t i = 0; !rc && i < some; i++) {
			if (j->type == INT8)
				round_int8_row(x + i * k, (int)k, code + i * k, &scale[i]);
			else
				round_fp8_row(x + i * k, (int)k, (uint8_t *)code + i * k, &scale[i]);
		}
		if (!rc)
			rc = writer_rows(j->w, m->codes, row, some, code, j->why);
		if (!rc)
			rc = writer_rows(j->w, m->scales, row, some, scale, j->why);
	}
	return rc;
}

static int run_8(struct job *j, const struct module *m)
{
	const int64_t k = m->k, piece = k < PIECE_VALUES ? PIECE_VALUES / k : 1;
	float *x = xmalloc((size_t)(piece * k) * sizeof *x), *scale = xmalloc((size_t)piece * sizeof *scale);
	int8_t *code = xmalloc((size_t)(piece * k));
	const int rc = write_rows_8(j, m, x, code, scale, piece);
	free(x);
	free(scale);
	free(code);
	return rc;
}

/* Quantize a whole layer at a time: a word has the codes of eight outputs. */
static int run_4(struct job *j, const struct module *m)
{
	const int64_t n = m->n, k = m->k, groups = k / j->group;
	float *x = xmalloc((size_t)(n * k) * sizeof *x);
	uint32_t *codes = xmalloc((size_t)(k * n / WORD) * 4),
		 *zeros = xmalloc((size_t)(groups * n / WORD) * 4);
	uint16_t *scales = xmalloc((size_t)(groups * n) * 2);
	const int64_t piece = k < PIECE_VALUES ? PIECE_VALUES / k : 1;
	int rc = 0;
	for (int64_t row = 0; !rc && row < n; row += piece)
		rc = read_rows(j, m, row, piece < n - row ? piece : n - row, x + row * k);
	if (!rc) {
		j->pack(x, (int)n, (int)k, j->group, NULL, codes, zeros, scales);
		rc = writer_rows(j->w, m->codes, 0, k, codes, j->why);
	}
	if (!rc)
		rc = writer_rows(j->w, m->zeros, 0, groups, zeros, j->why);
	if (!rc)
		rc = writer_rows(j->w, m->scales, 0, groups, scales, j->why);
	free(x);
	free(codes);
	free(zeros);
	free(scales);
	return rc;
}

static int run(struct job *j)
{
	int rc = declare_all(j);
	if (!rc)
		rc = write_files(j);
	if (!rc)
		rc = writer_begin(j->w, j->why);
	j->started_us = clock_us();
	for (size_t i = 0; !rc && i < j->n; i++)
		rc = j->type == INT4 ? run_4(j, &j->modules[i]) : run_8(j, &j->modules[i]);
	term_progress_end();
	return rc ? rc : tensor_plan_run(&j->plan, j->w, "copying what stays", j->why);
}

/* ---- entry ---- */

static int open_all(struct job *j)
{
	int rc = hf_config_load(j->src, &j->c, j->why);
	if (rc)
		return rc;
	if (j->c.quant.name[0])
		return err_why(j->why, -ENOTSUP,
			       "the model is quantized (%s) already: quantize the model that it was made of",
			       j->c.quant.name);
	if ((rc = hf_weights_open(j->src, &j->c, &j->weights, j->why)) ||
	    (rc = safetensors_open_dir(j->src, &j->files, j->why)))
		return rc;
	j->linear = json_object();
	j->kept = json_object();
	weights_each(j->weights, note_linear, j);
	if (j->type == INT4 && !(j->group = choose_group(j)))
		return err_why(j->why, -ENOTSUP,
			       "the inputs of its layers are no multiples of 32, which groups of AWQ need");
	return 0;
}

int hf_quantize(const char *src, const char *dst, const char *type, int4_packer pack, const struct keep *keep,
		struct why *why)
{
	struct job j = {.src = src,
			.type = strcmp(type, "int8") == 0  ? INT8
				: strcmp(type, "fp8") == 0 ? FP8
							   : INT4,
			.pack = pack,
			.keep = keep,
			.why = why};
	int rc = open_all(&j);
	if (!rc && !(rc = writer_new(dst, WRITER_SAFETENSORS, &j.w, why)))
		rc = run(&j);
	if (!rc)
		rc = writer_commit(&j.w, why);
	writer_abort(&j.w);
	tensor_plan_fini(&j.plan);
	free(j.modules);
	json_decref(j.linear);
	json_decref(j.kept);
	safetensors_close(j.files);
	weights_close(j.weights);
	model_config_fini(&j.c);
	return rc;
}
