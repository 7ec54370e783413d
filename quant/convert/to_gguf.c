#include "quant/convert/to_gguf.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/family.h"
#include "formats/safetensors.h"
#include "formats/gguf.h"
#include "quant/convert/gguf_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
	const char *src;
	const struct gguf_choice *choice;
	struct model_config c;
	struct safetensors *files;
	struct tensor_plan plan;
	struct tensor_plan made; /* tensors that are in no source file: RoPE factors */
	struct writer *w;
	float *factors[3]; /* owned; values of those tensors */
	bool quantized;    /* some linear layer is quantized, not only the embedding or the head */
	struct why *why;
};

/* Return whether it is a tensor of old checkpoints with inverse frequencies, which follow from the
 * configuration. */
static bool is_unneeded(const char *name)
{
	const char *end = strrchr(name, '.');
	return end && strcmp(end, ".inv_freq") == 0;
}

static bool is_vector(const struct st_tensor *t, enum name_part part)
{
	return t->n_dims == 1 || (part == NAME_SHARED_GATE && t->n_dims == 2 && t->shape[0] == 1);
}

static int add_item(struct job *j, const struct st_tensor *t, const struct name *name)
{
	const struct model_config *c = &j->c;
	const bool vector = is_vector(t, name->part);
	struct tensor_plan_item *p = tensor_plan_add(&j->plan);
	p->source = t->name;
	p->source_type = st_dtype_name(t->dtype);
	p->data = t->data;
	p->mapped = true;
	p->n_dims = vector ? 1 : t->n_dims;
	if (t->n_dims < 1 || t->n_dims > 2 || !tensor_plan_is_float(p->source_type))
		return err_why(
			j->why, -ENOTSUP,
			"tensor %s is %s in %d dimensions; a vector or matrix in F32, F16 or BF16 can be "
			"converted",
			t->name, p->source_type, t->n_dims);
	memcpy(p->shape, t->shape + (t->n_dims - p->n_dims), (size_t)p->n_dims * sizeof *p->shape);
	snprintf(p->name, sizeof p->name, "%s", name->gguf);
	if (name->part == NAME_EXPERT) {
		p->stack = c->experts.n;
		p->place = name->expert;
	}
	p->type = vector || name->part == NAME_ROUTER ? "F32" : p->source_type;
	if (name->part == NAME_NORM && !name->bias)
		p->add = c->family->norm_offset;
	if (j->choice && !vector && name->part != NAME_ROUTER) {
		const int rc = j->choice->type(j->choice->ctx, c, name, p);
		if (rc < 0)
			return rc;
		j->quantized |= rc && name->part != NAME_EMBED && name->part != NAME_HEAD;
	}
	return tensor_plan_permute(p, c, name->part, false, j->why);
}

/* Add a stack: the same matrix of all experts, in order. */
static int add_stack(struct job *j, struct name name)
{
	const struct st_tensor *first = NULL;
	int rc = 0;
	for (int e = 0; !rc && e < j->c.experts.n; e++) {
		name_expert(&name, e);
		const struct st_tensor *t = safetensors_find(j->files, name.hf);
		if (!t)
			return err_why(j->why, -ENOENT, "tensor %s is missing", name.hf);
		if (!(rc = add_item(j, t, &name)) && t->n_dims != 2)
			rc = err_why(j->why, -EINVAL, "tensor %s is not a matrix", t->name);
		first = e ? first : t;
		if (!rc && (t->dtype != first->dtype || t->shape[0] != first->shape[0] ||
			    t->shape[1] != first->shape[1]))
			rc = err_why(j->why, -ENOTSUP,
				     "tensor %s has another type or shape than %s, with which a GGUF file "
				     "has it in one tensor",
				     t->name, first->name);
	}
	return rc;
}

static int add_tensor(struct job *j, const struct st_tensor *t)
{
	struct name name;
	if (!name_of_hf(&j->c, t->name, &name))
		return err_why(j->why, -ENOTSUP, "tensor %s has no name in a GGUF file of this architecture",
			       t->name);
	if (name.part != NAME_EXPERT)
		return add_item(j, t, &name);
	return name.expert == 0 ? add_stack(j, name) : 0; /* the stack of expert 0 includes the others */
}

static int add_factors(struct job *j)
{
	static const char *const names[] = {"rope_freqs.weight", "rope_factors_short.weight",
					    "rope_factors_long.weight"};
	for (int i = 0; i < 3; i++) {
		if (!gguf_keys_factors(&j->c, names[i], NULL))
			continue;
		j->factors[i] = xcalloc((size_t)j->c.rope_dim, sizeof *j->factors[i]);
		gguf_keys_factors(&j->c, names[i], j->factors[i]);
		struct tensor_plan_item *p = tensor_plan_add(&j->made);
		snprintf(p->name, sizeof p->name, "%s", names[i]);
		p->source = names[i];
		p->type = p->source_type = "F32";
		p->data = j->factors[i];
		p->n_dims = 1;
		p->shape[0] = j->c.rope_dim / 2;
	}
	return 0;
}

static int make_plan(struct job *j)
{
	int rc = 0;
	for (int i = 0; !rc && i < safetensors_count(j->files); i++) {
		const struct st_tensor *t = safetensors_at(j->files, i);
		if (name_is_of_predictor(&j->c, t->name))
			tensor_plan_leave_out(&j->plan, &j->c);
		else if (!is_unneeded(t->name))
			rc = add_tensor(j, t);
	}
	return rc ? rc : add_factors(j);
}

/* Get the last component of the directory's path. */
static void model_name(const char *path, char *out, size_t n)
{
	size_t end = strlen(path);
	while (end > 1 && path[end - 1] == '/')
		end--;
	size_t from = end;
	while (from > 0 && path[from - 1] != '/')
		from--;
	snprintf(out, n, "%.*s", (int)(end - from), path + from);
}

static int put_keys(struct job *j)
{
	char name[256];
	model_name(j->src, name, sizeof name);
	const int rc = gguf_keys_config(j->w, &j->c, name, j->why);
	if (rc)
		return rc;
	return gguf_keys_vocab(j->w, &j->c, j->src, j->why);
}

/* Write the names of vectors and routers that are now F32, grouped by their original type. */
static void put_widened(struct job *j)
{
	static const char *const types[] = {"F16", "BF16"}, *const keys[] = {GGUF_F16_KEY, GGUF_BF16_KEY};
	for (int k = 0; k < 2; k++) {
		size_t n = 0;
		for (int pass = 0; pass < 2; pass++) {
			if (pass && n)
				writer_meta_strings(j->w, keys[k], n);
			for (size_t i = 0; i < j->plan.n; i++) {
				const struct tensor_plan_item *p = &j->plan.items[i];
				if (strcmp(p->type, "F32") != 0 || strcmp(p->source_type, types[k]) != 0)
					continue;
				if (pass)
					writer_meta_item(j->w, p->name, strlen(p->name));
				else
					n++;
			}
		}
	}
}

static int run(struct job *j, const char *dst)
{
	int rc = gguf_keys_check(&j->c, j->why);
	if (!rc)
		rc = tensor_plan_check(j->src, &j->c, j->why);
	if (!rc)
		rc = make_plan(j);
	if (!rc)
		rc = to_gguf_chosen(j->w, j->choice, j->quantized, j->why);
	if (!rc)
		rc = put_keys(j);
	if (!rc)
		put_widened(j);
	if (!rc)
		rc = tensor_plan_declare(&j->plan, j->w, j->why);
	if (!rc)
		rc = tensor_plan_declare(&j->made, j->w, j->why);
	if (!rc)
		rc = writer_begin(j->w, j->why);
	if (!rc)
		rc = tensor_plan_run(&j->made, j->w, dst, j->why);
	if (!rc)
		rc = to_gguf_check_keys(j->w, &j->c, j->why);
	if (!rc)
		rc = tensor_plan_run(&j->plan, j->w, dst, j->why);
	return rc;
}

int to_gguf(const char *src, const char *dst, const struct gguf_choice *choice, struct why *why)
{
	if (gguf_is(src))
		return to_gguf_copy(src, dst, choice, why);
	struct job j = {.src = src, .choice = choice, .why = why};
	int rc = hf_config_load(src, &j.c, why);
	if (rc)
		return rc;
	if (!(rc = safetensors_open_dir(src, &j.files, why)) &&
	    !(rc = writer_new(dst, WRITER_GGUF, &j.w, why)))
		rc = run(&j, dst);
	if (!rc)
		rc = writer_commit(&j.w, why);
	writer_abort(&j.w);
	tensor_plan_fini(&j.plan);
	tensor_plan_fini(&j.made);
	for (int i = 0; i < 3; i++)
		free(j.factors[i]);
	safetensors_close(j.files);
	model_config_fini(&j.c);
	return rc;
}
