#include "quant/convert/ak48_tensors.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/family.h"
#include "quant/convert/hf_files.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x616b3438, VERSION = 5, HEADER = 256 };

static const char *const dtypes[] = {[CONFIG_F32] = "F32", [CONFIG_F16] = "F16", [CONFIG_BF16] = "BF16"};

/* ---- tensors, in the file's order ---- */

static struct tensor_plan_item *add(struct tensor_plan *p, const char *source_type, const char *type,
				    const void *data, int64_t rows, int64_t columns, const char *name, ...)
	__attribute__((format(printf, 7, 8)));

static struct tensor_plan_item *add(struct tensor_plan *p, const char *source_type, const char *type,
				    const void *data, int64_t rows, int64_t columns, const char *name, ...)
{
	struct tensor_plan_item *t = tensor_plan_add(p);
	va_list ap;
	va_start(ap, name);
	format_text(t->name, sizeof t->name, name, ap);
	va_end(ap);
	t->source_type = source_type;
	t->type = type;
	t->data = data;
	t->mapped = true;
	t->n_dims = rows ? 2 : 1;
	t->shape[0] = rows ? rows : columns;
	t->shape[1] = columns;
	return t;
}

static void add_vec(struct tensor_plan *p, const struct weights_vec *v, const char *module, int layer)
{
	if (layer < 0)
		add(p, dtypes[v->dtype], "F16", v->data, 0, v->n, "%s.weight", module);
	else
		add(p, dtypes[v->dtype], "F16", v->data, 0, v->n, "model.layers.%d.%s.weight", layer, module);
}

static void add_table(struct tensor_plan *p, const void *data, enum config_dtype type, int rows, int columns,
		      const char *name)
{
	add(p, dtypes[type], "F16", data, rows, columns, "%s", name);
}

static void add_linear(struct tensor_plan *p, const struct weights_linear *l, const char *module, int layer)
{
	const int groups = (l->k + l->group - 1) / l->group;
	add(p, "I32", "I32", l->w, l->k, l->n / 8, "model.layers.%d.%s.qweight", layer, module);
	add(p, "I32", "I32", l->qzeros, groups, l->n / 8, "model.layers.%d.%s.qzeros", layer, module);
	add(p, "F16", "F16", l->scales, groups, l->n, "model.layers.%d.%s.scales", layer, module);
}

static const struct {
	const char *module;
	size_t at;
} linears[] = {
	{"self_attn.q_proj", offsetof(struct weights_layer, q)},
	{"self_attn.k_proj", offsetof(struct weights_layer, k)},
	{"self_attn.v_proj", offsetof(struct weights_layer, v)},
	{"self_attn.o_proj", offsetof(struct weights_layer, o)},
	{"mlp.gate_proj", offsetof(struct weights_layer, gate)},
	{"mlp.down_proj", offsetof(struct weights_layer, down)},
	{"mlp.up_proj", offsetof(struct weights_layer, up)},
};
enum { N_LINEARS = sizeof linears / sizeof *linears };

static const struct weights_linear *linear_of(const struct weights *w, int layer, int i)
{
	return (const struct weights_linear *)((const char *)&w->layers[layer] + linears[i].at);
}

void ak48_tensors_plan(struct tensor_plan *p, const struct weights *w, const struct model_config *c)
{
	for (int i = 0; i < w->n_layers; i++)
		add_vec(p, &w->layers[i].attn_norm, "input_layernorm", i);
	for (int i = 0; i < w->n_layers; i++)
		add_vec(p, &w->layers[i].ffn_norm, "post_attention_layernorm", i);
	add_vec(p, &w->norm, "model.norm", -1);
	add_table(p, w->embed.data, w->embed.dtype, c->n_vocab, c->hidden, "model.embed_tokens.weight");
	for (int j = 0; j < N_LINEARS; j++)
		for (int i = 0; i < w->n_layers; i++)
			add_linear(p, linear_of(w, i, j), linears[j].module, i);
	if (!c->tied)
		add_table(p, w->head.w, w->head.dtype, c->n_vocab, c->hidden, "lm_head.weight");
	for (int i = 0; i < w->n_layers; i++)
		add_vec(p, &w->layers[i].q_norm, "self_attn.q_norm", i);
	for (int i = 0; i < w->n_layers; i++)
		add_vec(p, &w->layers[i].k_norm, "self_attn.k_norm", i);
	for (size_t i = 0; i < p->n; i++)
		p->items[i].source = p->items[i].name;
}

/* Return the group size of the layers; a layer with fewer inputs has one group per row. */
static int group_of(const struct weights *w)
{
	int group = 0;
	for (int i = 0; i < w->n_layers; i++)
		for (int j = 0; j < N_LINEARS; j++)
			if (linear_of(w, i, j)->group > group)
				group = linear_of(w, i, j)->group;
	return group;
}

json_t *ak48_tensors_quantization(const struct weights *w)
{
	return json_pack("{s:s,s:i,s:i,s:b,s:s,s:n}", "quant_method", "awq", "bits", 4, "group_size",
			 group_of(w), "zero_point", 1, "version", "gemm", "modules_to_not_convert");
}

/* ---- a file ---- */

static int cannot(const char *what, struct why *why)
{
	return err_why(why, -ENOTSUP, "%s, which an ak48 file cannot hold", what);
}

/* Check the configuration: the file holds only sizes, everything else must be as in Qwen3. */
static int check_config(const struct model_config *c, struct why *why)
{
	char text[128];
	if (c->family != family_find_file("ak48")) {
		snprintf(text, sizeof text, "the model is %s", c->arch_name);
		return cannot(text, why);
	}
	if (c->rope_theta != 1000000 || c->rope != ROPE_NONE) {
		snprintf(text, sizeof text, "its RoPE has the base %g%s, not 1000000", c->rope_theta,
			 c->rope != ROPE_NONE ? " and a scaling" : "");
		return cannot(text, why);
	}
	if (c->rms_eps != 1e-6f) {
		snprintf(text, sizeof text, "its norms have the epsilon %g, not 1e-06", (double)c->rms_eps);
		return cannot(text, why);
	}
	if (c->qkv_bias || c->o_bias || c->mlp_bias || c->window)
		return cannot("it has biases or a sliding window", why);
	return 0;
}

static int check_linears(const struct weights *w, struct why *why)
{
	const int group = group_of(w);
	for (int i = 0; i < w->n_layers; i++)
		for (int j = 0; j < N_LINEARS; j++) {
			const struct weights_linear *l = linear_of(w, i, j);
			if (l->kind != WEIGHTS_AWQ)
				return err_why(
					why, -ENOTSUP,
					"%s is not AWQ \"gemm\" of 4 bits with scales in F16, which an ak48 "
					"file needs",
					l->name);
			if (l->group != (group < l->k ? group : l->k))
				return err_why(
					why, -ENOTSUP,
					"%s has groups of %d inputs, others have %d, which an ak48 file "
					"cannot hold",
					l->name, l->group, group);
		}
	if (w->embed_codes.w || (w->head.w && w->head.kind != WEIGHTS_DENSE))
		return cannot("its embedding or its head is quantized", why);
	return 0;
}

static void put_header(struct writer *w, const struct model_config *c, int group)
{
	unsigned char head[HEADER] = {0};
	const uint32_t magic = MAGIC;
	const int32_t version = VERSION, head_dim = c->head_dim, group_size = group;
	const int32_t sizes[] = {c->hidden,     c->intermediate, c->n_layers,    c->n_heads,
				 c->n_kv_heads, c->n_vocab,      c->max_position};
	memcpy(head, &magic, 4);
	memcpy(head + 4, &version, 4);
	memcpy(head + 8, sizes, sizeof sizes);
	head[36] = c->tied;
	memcpy(head + 37, &head_dim, 4);
	memcpy(head + 41, &group_size, 4);
	writer_header(w, head, sizeof head);
}

static int write_file(const char *src, const char *dst, const struct weights *weights,
		      const struct model_config *c, struct why *why)
{
	struct tensor_plan plan = {0};
	struct writer *w;
	int rc = writer_new(dst, WRITER_AK48, &w, why);
	if (rc)
		return rc;
	ak48_tensors_plan(&plan, weights, c);
	put_header(w, c, group_of(weights));
	rc = hf_files_copy(w, src, false, why);
	if (!rc)
		rc = tensor_plan_declare(&plan, w, why);
	if (!rc)
		rc = writer_begin(w, why);
	if (!rc)
		rc = tensor_plan_run(&plan, w, dst, why);
	if (!rc)
		rc = writer_commit(&w, why);
	writer_abort(&w);
	tensor_plan_fini(&plan);
	return rc;
}

int to_ak48(const char *src, const char *dst, struct why *why)
{
	struct model_config c;
	struct weights *weights = NULL;
	int rc = hf_config_load(src, &c, why);
	if (rc)
		return rc;
	rc = check_config(&c, why);
	if (!rc)
		rc = hf_weights_open(src, &c, &weights, why);
	if (!rc)
		rc = check_linears(weights, why);
	if (!rc)
		rc = write_file(src, dst, weights, &c, why);
	weights_close(weights);
	model_config_fini(&c);
	return rc;
}
