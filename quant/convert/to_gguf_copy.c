/* to_gguf_copy.c - write a GGUF file from another one, or from the shards of one.  Keys are copied, except
 * for those about shards, alignment and an earlier quantization.  Tensors without a choice keep their
 * bytes. */
#include "quant/convert/to_gguf.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/gguf.h"

#include <stdio.h>
#include <string.h>

struct job {
	const char *src;
	const struct gguf_choice *choice;
	struct model_config c;
	struct gguf *g;
	struct tensor_plan plan;
	struct writer *w;
	bool quantized; /* some linear layer is quantized, not only the embedding or the head */
	struct why *why;
};

static bool begins(const struct gguf_string *s, const char *with)
{
	const size_t n = strlen(with);
	return s->n >= n && memcmp(s->p, with, n) == 0;
}

/* Return whether the copy has no such key, or another value. */
static bool is_replaced(const struct job *j, const struct gguf_string *key)
{
	static const char *const always[] = {"split.", "general.alignment"};
	static const char *const chosen[] = {"general.quantization_version", "general.file_type",
					     "quantize.imatrix."};
	for (int i = 0; i < 2; i++)
		if (begins(key, always[i]))
			return true;
	for (int i = 0; j->choice && i < 3; i++)
		if (begins(key, chosen[i]))
			return true;
	return false;
}

/* Programs expect the architecture first. */
static void put_keys(struct job *j)
{
	static const char first[] = "general.architecture";
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < gguf_n_keys(j->g); i++) {
			const struct gguf_key k = gguf_key_at(j->g, i);
			const bool is_first = k.name.n == strlen(first) && begins(&k.name, first);
			if (is_first == (pass == 0) && !is_replaced(j, &k.name))
				writer_meta_key(j->w, &k);
		}
}

/* Add a tensor, or one matrix of the `stack` in a tensor of three dimensions. */
static int add_item(struct job *j, const struct gguf_tensor *t, const struct name *name, int stack, int place)
{
	struct tensor_plan_item *p = tensor_plan_add(&j->plan);
	if (strlen(t->name) >= sizeof p->name)
		return err_why(j->why, -ENOTSUP, "tensor %.200s has too long a name", t->name);
	snprintf(p->name, sizeof p->name, "%s", t->name);
	p->source = t->name;
	p->type = p->source_type = gguf_type_name(t->type);
	p->data = (const char *)t->data + t->bytes / (size_t)(stack ? stack : 1) * (size_t)place;
	p->mapped = true;
	p->n_dims = stack ? 2 : t->n_dims;
	for (int d = 0; d < p->n_dims; d++)
		p->shape[d] = t->size[p->n_dims - 1 - d];
	p->stack = stack;
	p->place = place;
	if (!j->choice || !name || p->n_dims != 2 || name->bias || name->part == NAME_ROUTER ||
	    name->part == NAME_SHARED_GATE)
		return 0;
	const int rc = j->choice->type(j->choice->ctx, &j->c, name, p);
	j->quantized |= rc > 0 && name->part != NAME_EMBED && name->part != NAME_HEAD;
	return rc < 0 ? rc : 0;
}

static int add_tensor(struct job *j, const struct gguf_tensor *t)
{
	struct name name;
	const bool known = name_of_gguf(&j->c, t->name, &name);
	int rc = 0;
	if (!known || name.part != NAME_EXPERT || t->n_dims != 3)
		return add_item(j, t, known ? &name : NULL, 0, 0);
	if (t->size[2] != j->c.experts.n)
		return err_why(j->why, -EINVAL, "tensor %s is not of %d experts", t->name, j->c.experts.n);
	for (int e = 0; !rc && e < j->c.experts.n; e++) {
		name_expert(&name, e);
		rc = add_item(j, t, &name, j->c.experts.n, e);
	}
	return rc;
}

static int run(struct job *j, const char *dst)
{
	int rc = tensor_plan_check(j->src, &j->c, j->why);
	for (int i = 0; !rc && i < gguf_count(j->g); i++)
		rc = add_tensor(j, gguf_at(j->g, i));
	if (!rc)
		put_keys(j);
	if (!rc)
		rc = to_gguf_chosen(j->w, j->choice, j->quantized, j->why);
	if (!rc)
		rc = tensor_plan_declare(&j->plan, j->w, j->why);
	if (!rc)
		rc = writer_begin(j->w, j->why);
	if (!rc)
		rc = to_gguf_check_keys(j->w, &j->c, j->why);
	return rc ? rc : tensor_plan_run(&j->plan, j->w, dst, j->why);
}

int to_gguf_copy(const char *src, const char *dst, const struct gguf_choice *choice, struct why *why)
{
	struct job j = {.src = src, .choice = choice, .why = why};
	int rc = gguf_config_load(src, &j.c, why);
	if (rc)
		return rc;
	if (!(rc = gguf_open(src, &j.g, why)) && !(rc = writer_new(dst, WRITER_GGUF, &j.w, why)))
		rc = run(&j, dst);
	if (!rc)
		rc = writer_commit(&j.w, why);
	writer_abort(&j.w);
	tensor_plan_fini(&j.plan);
	gguf_close(j.g);
	model_config_fini(&j.c);
	return rc;
}
