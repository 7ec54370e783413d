#include "quant/convert/to_safetensors.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "formats/ak48.h"
#include "formats/family.h"
#include "formats/gguf.h"
#include "formats/model_file.h"
#include "formats/safetensors.h"
#include "quant/convert/ak48_tensors.h"
#include "quant/convert/config_match.h"
#include "quant/convert/gguf_keys.h"
#include "quant/convert/hf_files.h"
#include "quant/convert/tensor_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
	const char *src;
	struct model_config c;
	struct tensor_plan plan;
	struct writer *w;
	struct why *why;
};

/* ---- another directory: the same tensors, in other shards ---- */

static int plan_directory(struct job *j, const struct safetensors *files)
{
	int rc = 0;
	for (int i = 0; !rc && i < safetensors_count(files); i++)
		rc = tensor_plan_copy(&j->plan, safetensors_at(files, i), j->why);
	return rc;
}

/* Check that config.json gives the source's configuration back. */
static int check_config(struct job *j)
{
	struct model_config back;
	char *path;
	int rc = writer_preview(j->w, &path, j->why);
	if (rc)
		return rc;
	if (!(rc = hf_config_load(path, &back, j->why))) {
		rc = config_match(&j->c, &back, "config.json", j->why);
		model_config_fini(&back);
	}
	free(path);
	return rc;
}

static int run_plan(struct job *j, const char *dst)
{
	int rc = tensor_plan_declare(&j->plan, j->w, j->why);
	if (!rc)
		rc = writer_begin(j->w, j->why);
	if (!rc && j->c.n_layers) /* for a directory the file is copied */
		rc = check_config(j);
	return rc ? rc : tensor_plan_run(&j->plan, j->w, dst, j->why);
}

static int from_directory(struct job *j, const char *dst)
{
	struct safetensors *files;
	int rc = safetensors_open_dir(j->src, &files, j->why);
	if (rc)
		return rc;
	rc = plan_directory(j, files);
	if (!rc)
		rc = hf_files_copy(j->w, j->src, true, j->why);
	if (!rc)
		rc = run_plan(j, dst);
	safetensors_close(files);
	return rc;
}

/* ---- a GGUF file ---- */

/* Return the names in an array of strings, as a set. */
static json_t *names_in(const struct gguf *g, const char *key)
{
	struct gguf_array a;
	json_t *set = json_object();
	if (gguf_find_array(g, key, &a, NULL) || a.type != GGUF_STRING)
		return set;
	while (a.n > 0) {
		const struct gguf_string s = gguf_next_string(&a);
		json_object_setn_new_nocheck(set, s.p, s.n, json_true());
	}
	return set;
}

static bool is_factors(const char *name)
{
	return strcmp(name, "rope_freqs.weight") == 0 || strncmp(name, "rope_factors_", 13) == 0;
}

/* Original types of vectors and routers that are F32 in the GGUF file. */
struct widened {
	json_t *f16, *bf16; /* sets of names */
};

static int add_item(struct job *j, const struct gguf_tensor *t, const struct name *name,
		    const struct widened *w)
{
	struct tensor_plan_item *p = tensor_plan_add(&j->plan);
	p->source = t->name;
	p->source_type = gguf_type_name(t->type);
	p->data = t->data;
	p->mapped = true;
	p->n_dims = t->n_dims;
	if (!tensor_plan_is_float(p->source_type))
		return err_why(
			j->why, -ENOTSUP,
			"tensor %s is %s, which safetensors do not have: convert the model that it was made "
			"of",
			t->name, p->source_type);
	if (t->n_dims < 1 || t->n_dims > 2)
		return err_why(j->why, -ENOTSUP,
			       "tensor %s has %d dimensions, where a vector or a matrix is needed", t->name,
			       t->n_dims);
	for (int d = 0; d < t->n_dims; d++)
		p->shape[d] = t->size[t->n_dims - 1 - d];
	if (name->part == NAME_SHARED_GATE && t->n_dims == 1) {
		p->n_dims = 2;
		p->shape[1] = p->shape[0];
		p->shape[0] = 1;
	}
	snprintf(p->name, sizeof p->name, "%s", name->hf);
	p->type = json_object_get(w->f16, t->name)    ? "F16"
		  : json_object_get(w->bf16, t->name) ? "BF16"
						      : p->source_type;
	if (name->part == NAME_NORM && !name->bias)
		p->add = -j->c.family->norm_offset;
	return tensor_plan_permute(p, &j->c, name->part, true, j->why);
}

/* Add a tensor for each expert. */
static int add_experts(struct job *j, const struct gguf_tensor *t, struct name name, const struct widened *w)
{
	const int n = j->c.experts.n;
	int rc = 0;
	if (t->size[2] != n || t->size[3] != 1)
		return err_why(j->why, -EINVAL, "tensor %s is not of %d experts", t->name, n);
	for (int e = 0; !rc && e < n; e++) {
		struct gguf_tensor one = *t;
		one.n_dims = 2;
		one.data = (const char *)t->data + t->bytes / (size_t)n * (size_t)e;
		name_expert(&name, e);
		rc = add_item(j, &one, &name, w);
	}
	return rc;
}

static int add_gguf(struct job *j, const struct gguf_tensor *t, const struct widened *w)
{
	struct name name;
	if (!name_of_gguf(&j->c, t->name, &name))
		return err_why(j->why, -ENOTSUP,
			       "tensor %s has no name in Hugging Face's layout of this architecture",
			       t->name);
	return name.part == NAME_EXPERT ? add_experts(j, t, name, w) : add_item(j, t, &name, w);
}

static int plan_gguf(struct job *j, const struct gguf *g)
{
	const struct widened w = {names_in(g, GGUF_F16_KEY), names_in(g, GGUF_BF16_KEY)};
	int rc = 0;
	for (int i = 0; !rc && i < gguf_count(g); i++) {
		const struct gguf_tensor *t = gguf_at(g, i);
		if (name_is_of_predictor(&j->c, t->name))
			tensor_plan_leave_out(&j->plan, &j->c);
		else if (!is_factors(t->name))
			rc = add_gguf(j, t, &w);
	}
	json_decref(w.f16);
	json_decref(w.bf16);
	return rc;
}

static int from_gguf(struct job *j, const char *dst)
{
	struct gguf *g;
	int rc = gguf_config_load(j->src, &j->c, j->why);
	if (rc)
		return rc;
	if (j->c.family->experts && j->c.family->experts->mxfp4)
		return err_why(
			j->why, -ENOTSUP,
			"%s has experts in MXFP4 (%s), which quern does not convert from GGUF: convert the "
			"model that it was made of",
			j->src, j->c.arch_name);
	if ((rc = gguf_open(j->src, &g, j->why)))
		return rc;
	rc = hf_files_config(j->w, g, &j->c, j->why);
	if (!rc)
		rc = plan_gguf(j, g);
	if (!rc)
		rc = tensor_plan_check(j->src, &j->c, j->why);
	if (!rc)
		rc = hf_files_vocab(j->w, g, &j->c, j->why);
	if (!rc)
		rc = run_plan(j, dst);
	gguf_close(g);
	return rc;
}

/* ---- an ak48 file ---- */

static int from_ak48(struct job *j, const char *dst)
{
	struct weights *weights;
	char *slash = strrchr(j->src, '/'),
	     *dir = slash ? xasprintf("%.*s", (int)(slash - j->src), j->src) : NULL;
	int rc = ak48_config(j->src, &j->c, j->why);
	if (!rc && !(rc = ak48_weights(j->src, &j->c, &weights, j->why))) {
		json_t *tree = hf_config_tree(&j->c);
		ak48_tensors_plan(&j->plan, weights, &j->c);
		json_object_set_new(tree, "quantization_config", ak48_tensors_quantization(weights));
		rc = writer_json(j->w, "config.json", tree, j->why);
		json_decref(tree);
		if (!rc)
			rc = hf_files_copy(j->w, dir ? dir : ".", false, j->why);
		if (!rc)
			rc = run_plan(j, dst);
		weights_close(weights);
	}
	free(dir);
	return rc;
}

int to_safetensors(const char *src, const char *dst, int64_t shard, struct why *why)
{
	struct job j = {.src = src, .why = why};
	const bool directory = file_is_dir(src) && !gguf_is(src);
	if (!directory && !gguf_is(src) && !ak48_is(src)) {
		const struct model_file *kind = model_file_of(src);
		return err_why(why, -ENOTSUP,
			       "%s is %s%s; a directory of safetensors, a GGUF file or an ak48 file can be "
			       "converted "
			       "to safetensors",
			       src, kind ? "a file of " : "no model", kind ? kind->name : "");
	}
	int rc = writer_new(dst, WRITER_SAFETENSORS, &j.w, why);
	if (rc)
		return rc;
	writer_shards(j.w, shard);
	rc = directory ? from_directory(&j, dst) : gguf_is(src) ? from_gguf(&j, dst) : from_ak48(&j, dst);
	if (!rc)
		rc = writer_commit(&j.w, why);
	writer_abort(&j.w);
	tensor_plan_fini(&j.plan);
	model_config_fini(&j.c);
	return rc;
}
