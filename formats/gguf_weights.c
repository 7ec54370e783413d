/* gguf_weights.c - the tensors of a decoder in a GGUF file, by llama.cpp's names. */
#include "formats/gguf.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/family.h"
#include "formats/shard.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct finder {
	struct weights *w;
	const struct gguf *g;
	const struct model_config *c;
	struct why *why;
};

static bool is_float(enum gguf_type t, enum config_dtype *out)
{
	*out = t == GGUF_TYPE_F16 ? CONFIG_F16 : t == GGUF_TYPE_BF16 ? CONFIG_BF16 : CONFIG_F32;
	return t == GGUF_TYPE_F16 || t == GGUF_TYPE_BF16 || t == GGUF_TYPE_F32;
}

static int wrong_type(const struct finder *f, const struct gguf_tensor *t, const char *need)
{
	return err_why(f->why, -ENOTSUP, "%s: tensor %s is %s, which is not supported (supported: %s)",
		       gguf_path(f->g), t->name, gguf_type_name(t->type), need);
}

#define FLOATS                      "F32, F16, BF16"
#define AND_TYPE(number, NAME, ...) ", " #NAME
static const char coded[] = FLOATS BLOCK_TYPES(AND_TYPE, AND_TYPE);

static void use(const struct finder *f, const struct gguf_tensor *t)
{
	weights_use(f->w, (int)(t - gguf_at(f->g, 0)), t->bytes);
}

/* Find a tensor of rows x columns values, or of columns if rows is 0. */
static int find(const struct finder *f, const char *name, int64_t rows, int64_t columns,
		const struct gguf_tensor **out)
{
	const struct gguf_tensor *t = gguf_find(f->g, name);
	if (!t)
		return err_why(f->why, -ENOENT, "%s: tensor %s is missing", gguf_path(f->g), name);
	if (t->size[0] != columns || t->size[1] != (rows ? rows : 1) || t->size[2] != 1 || t->size[3] != 1)
		return err_why(
			f->why, -EINVAL,
			"%s: tensor %s has the sizes [%lld, %lld, %lld, %lld], its keys need [%lld, %lld]",
			gguf_path(f->g), name, (long long)t->size[0], (long long)t->size[1],
			(long long)t->size[2], (long long)t->size[3], (long long)columns,
			(long long)(rows ? rows : 1));
	use(f, t);
	*out = t;
	return 0;
}

static int find_vec(const struct finder *f, const char *name, int n, struct weights_vec *out)
{
	const struct gguf_tensor *t;
	const int rc = find(f, name, 0, n, &t);
	if (rc)
		return rc;
	if (!is_float(t->type, &out->dtype))
		return wrong_type(f, t, FLOATS);
	out->data = t->data;
	out->n = n;
	return 0;
}

/* Find a matrix, of floats or as codes. */
static int find_matrix(const struct finder *f, const char *name, int n, int k, struct weights_linear *l)
{
	const struct gguf_tensor *t;
	const int rc = find(f, name, n, k, &t);
	if (rc)
		return rc;
	l->n = n;
	l->k = k;
	l->w = t->data;
	l->bytes = t->bytes;
	if (is_float(t->type, &l->dtype))
		return 0;
	l->kind = WEIGHTS_CODES;
	return gguf_codes(t->type, n, k, t->data, &l->codes) ? 0 : wrong_type(f, t, coded);
}

/* Find one matrix of all n_experts in one tensor.  Expert e's is stored in experts[e], `at` bytes from its
 * start. */
static int find_stack(const struct finder *f, const char *module, int n, int k, int n_experts,
		      struct weights_expert *experts, size_t at)
{
	char name[128];
	snprintf(name, sizeof name, "%s.weight", module);
	const struct gguf_tensor *t = gguf_find(f->g, name);
	if (!t)
		return err_why(f->why, -ENOENT, "%s: tensor %s is missing", gguf_path(f->g), name);
	if (t->size[0] != k || t->size[1] != n || t->size[2] != n_experts || t->size[3] != 1)
		return err_why(f->why, -EINVAL,
			       "%s: tensor %s has the sizes [%lld, %lld, %lld, %lld], its keys need [%d, %d, "
			       "%d]",
			       gguf_path(f->g), name, (long long)t->size[0], (long long)t->size[1],
			       (long long)t->size[2], (long long)t->size[3], k, n, n_experts);
	const size_t each = t->bytes / (size_t)n_experts;
	use(f, t);
	for (int e = 0; e < n_experts; e++) {
		struct weights_linear *l = (struct weights_linear *)(void *)((char *)&experts[e] + at);
		snprintf(l->name, sizeof l->name, "%.80s.%d", module, e);
		l->n = n;
		l->k = k;
		l->w = (const char *)t->data + (size_t)e * each;
		l->bytes = each;
		if (is_float(t->type, &l->dtype))
			continue;
		l->kind = WEIGHTS_CODES;
		if (!gguf_codes(t->type, n, k, l->w, &l->codes))
			return wrong_type(f, t, coded);
	}
	return 0;
}

/* Find the experts' biases: a tensor of [n_experts][n]. */
static int find_stack_bias(const struct finder *f, const char *module, int n, int n_experts,
			   struct weights_expert *experts, size_t at)
{
	char name[128];
	const struct gguf_tensor *t;
	enum config_dtype type;
	snprintf(name, sizeof name, "%s.bias", module);
	const int rc = find(f, name, n_experts, n, &t);
	if (rc)
		return rc;
	if (!is_float(t->type, &type))
		return wrong_type(f, t, FLOATS);
	for (int e = 0; e < n_experts; e++) {
		struct weights_linear *l = (struct weights_linear *)(void *)((char *)&experts[e] + at);
		l->bias = (struct weights_vec){
			(const char *)t->data + t->bytes / (size_t)n_experts * (size_t)e, type, n};
	}
	return 0;
}

static int find_linear(const struct finder *f, const char *module, int n, int k, bool bias,
		       struct weights_linear *l)
{
	char name[128];
	snprintf(l->name, sizeof l->name, "%s", module);
	snprintf(name, sizeof name, "%s.weight", module);
	const int rc = find_matrix(f, name, n, k, l);
	if (rc || !bias)
		return rc;
	snprintf(name, sizeof name, "%s.bias", module);
	return find_vec(f, name, n, &l->bias);
}

/* A linear layer that is stored as a slice of another. */
struct piece {
	int n; /* outputs */
	struct weights_linear *to;
};

/* Find linear layers that are stored as one, side by side: attn_qkv, or gate and up in ffn_up. */
static int find_fused(const struct finder *f, const char *module, const struct piece *pieces, int n_pieces,
		      bool bias)
{
	const struct shard all = {.n_ranks = 1};
	struct weights_linear *whole =
		weights_own(f->w, xcalloc(1, sizeof *whole)); /* the codes refer to it */
	int n = 0;
	for (int i = 0; i < n_pieces; i++)
		n += pieces[i].n;
	const int rc = find_linear(f, module, n, f->c->hidden, bias, whole);
	for (int i = 0, n0 = 0; !rc && i < n_pieces; n0 += pieces[i++].n) {
		void *copy;
		shard_linear(&all, whole, (struct shard_cut){n0, pieces[i].n, 0, whole->k}, pieces[i].to,
			     &copy);
		if (copy)
			weights_own(f->w, copy);
	}
	return rc;
}

/* A norm of a layer, [n], or [rows, n] of as many vectors. */
struct norm {
	const char *name;
	int rows, n;
	bool has_bias;
	struct weights_vec *to, *bias;
};

static int find_norm(const struct finder *f, int layer, const struct norm *norm)
{
	char name[96];
	const struct gguf_tensor *t;
	snprintf(name, sizeof name, "blk.%d.%s.weight", layer, norm->name);
	int rc = find(f, name, norm->rows, norm->n, &t);
	if (!rc && !is_float(t->type, &norm->to->dtype))
		rc = wrong_type(f, t, FLOATS);
	if (rc)
		return rc;
	norm->to->data = t->data;
	norm->to->n = norm->n * (norm->rows ? norm->rows : 1);
	snprintf(name, sizeof name, "blk.%d.%s.bias", layer, norm->name);
	return norm->has_bias ? find_vec(f, name, norm->n, norm->bias) : 0;
}

static int find_norms(const struct finder *f, int i, struct weights_layer *l)
{
	const struct model_config *c = f->c;
	const struct config_layer *plan = &c->layers[i];
	const char *const *names = c->family->gguf->norms;
	const int dim = plan->dim, h = c->hidden;
	const bool rows = c->qk_norm == QK_NORM_ROWS, each = c->qk_norm == QK_NORM_EACH;
	const struct norm norms[] = {
		{names[0], 0, h, c->norm_bias, &l->attn_norm, &l->attn_norm_bias},
		{names[1], 0, h, c->norm_bias, &l->attn_post, &l->attn_post_bias},
		{c->block == BLOCK_PARALLEL ? NULL : names[2], 0, h, c->norm_bias, &l->ffn_norm,
		 &l->ffn_norm_bias},
		{names[3], 0, h, c->norm_bias, &l->ffn_post, &l->ffn_post_bias},
		{c->qk_norm ? "attn_q_norm" : NULL, each ? plan->heads : 0, dim * (rows ? plan->heads : 1),
		 c->qk_norm_bias, &l->q_norm, &l->q_norm_bias},
		{c->qk_norm ? "attn_k_norm" : NULL, each ? plan->kv_heads : 0,
		 dim * (rows ? plan->kv_heads : 1), c->qk_norm_bias, &l->k_norm, &l->k_norm_bias},
	};
	int rc = 0;
	for (size_t j = 0; !rc && j < sizeof norms / sizeof *norms; j++)
		rc = norms[j].name ? find_norm(f, i, &norms[j]) : 0;
	return rc;
}

static const struct gguf_tensor *of_layer(const struct finder *f, int i, const char *part)
{
	char name[96];
	snprintf(name, sizeof name, "blk.%d.%s.weight", i, part);
	return gguf_find(f->g, name);
}

static bool has(const struct finder *f, int i, const char *part)
{
	return of_layer(f, i, part) != NULL;
}

static bool has_rows(const struct finder *f, int i, const char *part, int rows)
{
	const struct gguf_tensor *t = of_layer(f, i, part);
	return t && t->size[1] == rows;
}

/* Find a router or gate in plain floats, n outputs. */
static int find_router(const struct finder *f, const char *name, int n, struct weights_linear *l)
{
	const int rc = find_linear(f, name, n, f->c->hidden, n > 1 && f->c->experts.router_bias, l);
	return rc || l->kind == WEIGHTS_DENSE
		       ? rc
		       : err_why(f->why, -ENOTSUP,
				 "%s: tensor %s.weight is a router, and quantized: " FLOATS " is needed",
				 gguf_path(f->g), name);
}

/* Find all tensors of a mixture except the shared expert. */
static int find_experts(const struct finder *f, int i, struct weights_layer *l)
{
	const struct config_experts *x = &f->c->experts;
	const int h = f->c->hidden, inter = x->intermediate;
	const struct {
		const char *name;
		int n, k;
		size_t at;
	} stacks[] = {{"ffn_gate_exps", inter, h, offsetof(struct weights_expert, gate)},
		      {"ffn_up_exps", inter, h, offsetof(struct weights_expert, up)},
		      {"ffn_down_exps", h, inter, offsetof(struct weights_expert, down)}};
	char name[96];
	l->n_experts = x->n;
	l->experts = weights_own(f->w, xcalloc((size_t)x->n, sizeof *l->experts));
	snprintf(name, sizeof name, "blk.%d.ffn_gate_inp", i);
	int rc = find_router(f, name, x->n, &l->router);
	snprintf(name, sizeof name, "blk.%d.ffn_gate_inp_shexp", i);
	if (!rc && x->shared_gate)
		rc = find_router(f, name, 1, &l->shared_gate);
	snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", i);
	if (!rc && x->choice_bias)
		rc = find_vec(f, name, x->n, &l->choice_bias);
	for (size_t j = 0; !rc && j < sizeof stacks / sizeof *stacks; j++) {
		snprintf(name, sizeof name, "blk.%d.%s", i, stacks[j].name);
		rc = find_stack(f, name, stacks[j].n, stacks[j].k, x->n, l->experts, stacks[j].at);
		if (!rc && x->bias)
			rc = find_stack_bias(f, name, stacks[j].n, x->n, l->experts, stacks[j].at);
	}
	return rc;
}

static int find_layer(const struct finder *f, int i, struct weights_layer *l)
{
	const struct model_config *c = f->c;
	const bool sparse = c->layers[i].sparse;
	const int inter = c->layers[i].inter;
	const int q = c->layers[i].heads * c->layers[i].dim, kv = c->layers[i].kv_heads * c->layers[i].dim;
	const struct {
		const char *name;
		int n, k;
		bool bias;
		struct weights_linear *to;
	} linears[] = {
		{"attn_q", q, c->hidden, c->qkv_bias, &l->q},
		{"attn_k", kv, c->hidden, c->qkv_bias, &l->k},
		{"attn_v", kv, c->hidden, c->qkv_bias, &l->v},
		{"attn_output", c->hidden, q, c->o_bias, &l->o},
		{sparse ? "ffn_gate_shexp" : "ffn_gate", c->ffn_plain ? 0 : inter, c->hidden, c->mlp_bias,
		 &l->gate},
		{sparse ? "ffn_up_shexp" : "ffn_up", inter, c->hidden, c->mlp_bias, &l->up},
		{sparse ? "ffn_down_shexp" : "ffn_down", c->hidden, inter, c->mlp_bias, &l->down},
	};
	const struct piece qkv[] = {{q, &l->q}, {kv, &l->k}, {kv, &l->v}},
			   gate_up[] = {{inter, &l->gate}, {inter, &l->up}};
	char name[96];
	int rc = find_norms(f, i, l);
	snprintf(name, sizeof name, "blk.%d.attn_sinks.weight", i);
	if (!rc && c->sinks)
		rc = find_vec(f, name, c->layers[i].heads, &l->sinks);
	snprintf(name, sizeof name, "blk.%d.attn_qkv", i);
	if (!rc && has(f, i, "attn_qkv"))
		rc = find_fused(f, name, qkv, 3, c->qkv_bias);
	snprintf(name, sizeof name, "blk.%d.ffn_up", i);
	if (!rc && !sparse && !c->ffn_plain && !has(f, i, "ffn_gate") && !has_rows(f, i, "ffn_up", inter))
		rc = find_fused(f, name, gate_up, 2, c->mlp_bias);
	for (size_t j = 0; !rc && j < sizeof linears / sizeof *linears; j++) {
		if (linears[j].to->w || !linears[j].n || !linears[j].k) /* fused, or no shared expert */
			continue;
		snprintf(name, sizeof name, "blk.%d.%s", i, linears[j].name);
		rc = find_linear(f, name, linears[j].n, linears[j].k, linears[j].bias, linears[j].to);
	}
	return rc || !sparse ? rc : find_experts(f, i, l);
}

static int find_embed(const struct finder *f)
{
	const struct model_config *c = f->c;
	struct weights *w = f->w;
	struct weights_linear l = {.name = "token_embd"};
	if ((int64_t)c->n_vocab * c->hidden > INT32_MAX)
		return err_why(f->why, -ENOTSUP, "%s: an embedding of %d x %d values is too large",
			       gguf_path(f->g), c->n_vocab, c->hidden);
	const int rc = find_matrix(f, "token_embd.weight", c->n_vocab, c->hidden, &l);
	if (rc)
		return rc;
	w->embed = (struct weights_vec){.data = l.w, .dtype = l.dtype, .n = c->n_vocab * c->hidden};
	if (l.kind == WEIGHTS_DENSE)
		return 0;
	w->embed.data = NULL;
	w->embed_codes = l;
	if (c->tied)
		w->head = l;
	return 0;
}

static int find_all(const struct finder *f)
{
	const struct model_config *c = f->c;
	int rc = find_embed(f);
	if (!rc)
		rc = find_vec(f, "output_norm.weight", c->hidden, &f->w->norm);
	if (!rc && c->norm_bias)
		rc = find_vec(f, "output_norm.bias", c->hidden, &f->w->norm_bias);
	if (!rc && !c->tied)
		rc = find_linear(f, "output", c->n_vocab, c->hidden, c->head_bias, &f->w->head);
	for (int i = 0; !rc && i < c->n_layers; i++)
		rc = find_layer(f, i, &f->w->layers[i]);
	return rc;
}

/* ---- the file ---- */

static void tensor_at(const void *files, int i, struct weights_tensor *out)
{
	const struct gguf_tensor *t = gguf_at(files, i);
	*out = (struct weights_tensor){.name = t->name,
				       .type = gguf_type_name(t->type),
				       .n_dims = t->n_dims,
				       .bytes = t->bytes,
				       .data = t->data};
	for (int d = 0; d < t->n_dims; d++)
		out->shape[d] = t->size[t->n_dims - 1 - d];
}

static void close_files(void *files)
{
	gguf_close(files);
}

int gguf_weights_open(const char *path, const struct model_config *c, struct weights **out, struct why *why)
{
	struct weights *w = xcalloc(1, sizeof *w);
	struct gguf *g;
	int rc = gguf_open(path, &g, why);
	if (rc)
		goto fail;
	w->files = (struct weights_files){.at = g,
					  .close = close_files,
					  .n_files = gguf_files(g),
					  .n_tensors = gguf_count(g),
					  .tensor = tensor_at};
	w->used = xcalloc((size_t)w->files.n_tensors + 1, sizeof *w->used);
	w->n_layers = c->n_layers;
	w->layers = xcalloc((size_t)c->n_layers, sizeof *w->layers);
	const struct finder f = {.w = w, .g = g, .c = c, .why = why};
	const struct weights_place place = {.layers = "blk.", .head = "output", .text = ""};
	if ((rc = find_all(&f)))
		goto fail;
	if ((rc = weights_weigh_unused(w, c, &place, why))) {
		err_prefix(why, rc, "%s", path);
		goto fail;
	}
	*out = w;
	return 0;
fail:
	weights_close(w);
	return rc;
}
