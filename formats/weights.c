#include "formats/weights_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/family.h"
#include "formats/safetensors.h"
#include "formats/shard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void finder_shape(const struct st_tensor *t, char *out, size_t n)
{
	size_t len = 0;
	out[0] = '\0';
	for (int i = 0; i < t->n_dims && len < n; i++)
		len += (size_t)snprintf(out + len, n - len, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
}

void finder_use(const struct finder *f, const struct st_tensor *t)
{
	weights_use(f->w, (int)(t - safetensors_at(f->files, 0)), t->bytes);
}

/* Find a tensor of shape [rows, cols], or [cols] if rows is 0. */
static int find(const struct finder *f, const char *name, int64_t rows, int64_t cols,
		const struct st_tensor **out)
{
	char have[128], want[64];
	const struct st_tensor *t = safetensors_find(f->files, name);
	if (!t)
		return err_why(f->why, -ENOENT, "tensor %s is missing", name);
	bool ok = rows ? t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols
		       : t->n_dims == 1 && t->shape[0] == cols;
	if (!ok) {
		finder_shape(t, have, sizeof have);
		if (rows)
			snprintf(want, sizeof want, "%lld, %lld", (long long)rows, (long long)cols);
		else
			snprintf(want, sizeof want, "%lld", (long long)cols);
		return err_why(f->why, -EINVAL, "tensor %s has the shape [%s], the configuration needs [%s]",
			       name, have, want);
	}
	finder_use(f, t);
	*out = t;
	return 0;
}

int finder_dtype(const struct finder *f, const struct st_tensor *t, enum config_dtype *out)
{
	switch (t->dtype) {
	case ST_F32:
		*out = CONFIG_F32;
		return 0;
	case ST_F16:
		*out = CONFIG_F16;
		return 0;
	case ST_BF16:
		*out = CONFIG_BF16;
		return 0;
	default:
		return err_why(f->why, -ENOTSUP, "tensor %s is %s; F32, F16 or BF16 is needed", t->name,
			       st_dtype_name(t->dtype));
	}
}

int finder_vec(const struct finder *f, const char *name, int rows, int cols, struct weights_vec *out)
{
	const struct st_tensor *t = NULL;
	int rc = find(f, name, rows, cols, &t);
	if (rc || (rc = finder_dtype(f, t, &out->dtype)))
		return rc;
	out->data = t->data;
	out->n = rows ? (int)((int64_t)rows * cols) : cols;
	return 0;
}

static int find_quantized(const struct finder *f, struct weights_linear *l)
{
	struct quant_found found;
	int rc = quant_find(f->files, &f->c->quant, l, &found, f->why);
	if (rc)
		return rc;
	if (found.owned)
		weights_own(f->w, found.owned);
	for (int i = 0; i < found.n_tensors; i++)
		finder_use(f, found.tensors[i]);
	return 0;
}

int finder_linear(const struct finder *f, const char *module, int n, int k, bool bias,
		  struct weights_linear *l)
{
	char name[128];
	struct weights_vec v = {0};
	int rc;
	snprintf(l->name, sizeof l->name, "%s", module);
	l->n = n;
	l->k = k;
	if (quant_has(f->files, module)) {
		if ((rc = find_quantized(f, l)))
			return rc;
	} else {
		snprintf(name, sizeof name, "%s.weight", module);
		if ((rc = finder_vec(f, name, n, k, &v)))
			return rc;
		l->w = v.data;
		l->dtype = v.dtype;
	}
	if (!bias)
		return 0;
	snprintf(name, sizeof name, "%s.bias", module);
	return finder_vec(f, name, 0, n, &l->bias);
}

/* finder_linear() of a layer whose weight may be stored as [inputs, outputs]. */
static int find_stored(const struct finder *f, const char *module, int n, int k, bool bias,
		       struct weights_linear *l)
{
	int rc;
	if (!f->family->transposed || quant_has(f->files, module))
		return finder_linear(f, module, n, k, bias, l);
	if ((rc = finder_linear(f, module, k, n, false, l)))
		return rc;
	const size_t each = l->dtype == CONFIG_F32 ? 4 : 2, rows = (size_t)n, columns = (size_t)k;
	unsigned char *transposed = weights_own(f->w, xmalloc(rows * columns * each));
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < columns; j++)
			memcpy(transposed + (i * columns + j) * each,
			       (const unsigned char *)l->w + (j * rows + i) * each, each);
	l->n = n;
	l->k = k;
	l->w = transposed;
	if (!bias)
		return 0;
	char name[160];
	snprintf(name, sizeof name, "%s.bias", module);
	return finder_vec(f, name, 0, n, &l->bias);
}

/* Find the bias that only some layers have. */
static int find_own_o_bias(const struct finder *f, const char *prefix, struct weights_layer *l)
{
	char name[160];
	snprintf(name, sizeof name, "%s%s", prefix, f->family->own_o_bias ? f->family->own_o_bias : "");
	return safetensors_find(f->files, name) ? finder_vec(f, name, 0, f->c->hidden, &l->o.bias) : 0;
}

static bool has_module(const struct finder *f, const char *module)
{
	char name[208];
	snprintf(name, sizeof name, "%s.weight", module);
	return quant_has(f->files, module) || safetensors_find(f->files, name);
}

/* A linear layer that is stored as a slice of another. */
struct piece {
	int n; /* outputs */
	struct weights_linear *to;
};

/* Find linear layers that are stored as one, side by side (Phi-3): qkv_proj, gate_up_proj. */
static int find_fused(const struct finder *f, const char *module, const struct piece *pieces, int n_pieces,
		      bool bias)
{
	const struct shard all = {.n_ranks = 1};
	struct weights_linear *whole =
		weights_own(f->w, xcalloc(1, sizeof *whole)); /* the codes refer to it */
	int n = 0;
	for (int i = 0; i < n_pieces; i++)
		n += pieces[i].n;
	int rc = find_stored(f, module, n, f->c->hidden, bias, whole);
	for (int i = 0, n0 = 0; !rc && i < n_pieces; n0 += pieces[i++].n) {
		const struct shard_cut cut = {n0, pieces[i].n, 0, whole->k};
		void *copy;
		if (whole->kind == WEIGHTS_AWQ && (n0 % 8 || cut.n % 8))
			return err_why(f->why, -ENOTSUP,
				       "%s is AWQ in words of 8 outputs, and a part has outputs %d to %d",
				       module, n0, n0 + cut.n - 1);
		shard_linear(&all, whole, cut, pieces[i].to, &copy);
		if (copy)
			weights_own(f->w, copy);
	}
	return rc;
}

/* Make a vector of n ones, for norms without weights. */
static struct weights_vec ones(const struct finder *f, int n)
{
	float *v = weights_own(f->w, xmalloc((size_t)n * sizeof *v));
	for (int i = 0; i < n; i++)
		v[i] = 1;
	return (struct weights_vec){v, CONFIG_F32, n};
}

/* Find the weight of a norm, and its bias if `bias` is not NULL.  plain: it has neither. */
static int find_norm(const struct finder *f, const char *module, int n, bool plain, struct weights_vec *to,
		     struct weights_vec *bias)
{
	char name[160];
	if (plain) {
		*to = ones(f, n);
		return 0;
	}
	snprintf(name, sizeof name, "%s.weight", module);
	int rc = finder_vec(f, name, 0, n, to);
	snprintf(name, sizeof name, "%s.bias", module);
	return rc || !bias ? rc : finder_vec(f, name, 0, n, bias);
}

/* Find a norm with a weight vector for each head: one tensor [heads, dim], or one module per head
 * ("q_layernorm.norms.0"). */
static int find_norm_of_heads(const struct finder *f, const char *module, int heads, int dim,
			      struct weights_vec *to, struct weights_vec *bias)
{
	const size_t n = (size_t)heads * (size_t)dim;
	char name[192];
	snprintf(name, sizeof name, "%s.weight", module);
	if (safetensors_find(f->files, name))
		return finder_vec(f, name, heads, dim, to);
	float *all[2] = {weights_own(f->w, xcalloc(n, sizeof **all)), NULL};
	if (bias)
		all[1] = weights_own(f->w, xcalloc(n, sizeof **all));
	for (int h = 0; h < heads; h++) {
		struct weights_vec v = {0}, b = {0};
		snprintf(name, sizeof name, "%s.norms.%d", module, h);
		const int rc = find_norm(f, name, dim, false, &v, bias ? &b : NULL);
		if (rc)
			return rc;
		weights_to_f32(&v, all[0] + (size_t)h * (size_t)dim);
		if (bias)
			weights_to_f32(&b, all[1] + (size_t)h * (size_t)dim);
	}
	*to = (struct weights_vec){all[0], CONFIG_F32, (int)n};
	if (bias)
		*bias = (struct weights_vec){all[1], CONFIG_F32, (int)n};
	return 0;
}

static int find_qk_norm(const struct finder *f, const char *prefix, enum family_part part, int heads, int dim,
			struct weights_vec *to, struct weights_vec *bias)
{
	const struct model_config *c = f->c;
	char name[128];
	snprintf(name, sizeof name, "%s%s", prefix, family_name(f->family, part));
	if (!c->qk_norm_bias)
		bias = NULL;
	if (c->qk_norm == QK_NORM_EACH)
		return find_norm_of_heads(f, name, heads, dim, to, bias);
	return find_norm(f, name, dim * (c->qk_norm == QK_NORM_ROWS ? heads : 1), f->family->qk_norm_plain,
			 to, bias);
}

static int find_norms(const struct finder *f, const char *prefix, const struct config_layer *plan,
		      struct weights_layer *l)
{
	const struct model_config *c = f->c;
	const struct {
		struct weights_vec *to, *bias;
	} norms[NORMS] = {{&l->attn_norm, &l->attn_norm_bias},
			  {&l->attn_post, &l->attn_post_bias},
			  {&l->ffn_norm, &l->ffn_norm_bias},
			  {&l->ffn_post, &l->ffn_post_bias}};
	char name[128];
	int rc = 0;
	for (int j = 0; !rc && j < NORMS; j++) {
		const char *module = f->family->norms[j];
		if (!module || (j == NORM_FFN && c->block == BLOCK_PARALLEL))
			continue;
		snprintf(name, sizeof name, "%s%s", prefix, module);
		rc = find_norm(f, name, c->hidden, f->family->norm_plain, norms[j].to,
			       c->norm_bias ? norms[j].bias : NULL);
	}
	if (rc || !c->qk_norm ||
	    (rc = find_qk_norm(f, prefix, PART_Q_NORM, plan->heads, plan->dim, &l->q_norm, &l->q_norm_bias)))
		return rc;
	return find_qk_norm(f, prefix, PART_K_NORM, plan->kv_heads, plan->dim, &l->k_norm, &l->k_norm_bias);
}

/* Read the parameters of xIELU in a layer. */
static int find_act_args(const struct finder *f, const char *prefix, struct weights_layer *l)
{
	static const char *const names[] = {"alpha_p", "alpha_n", "beta", "eps"};
	float *args = weights_own(f->w, xcalloc(4, sizeof *args));
	args[2] = 0.5f;
	args[3] = -1e-6f;
	for (int i = 0; i < 4; i++) {
		char name[128];
		struct weights_vec v = {.n = 1};
		snprintf(name, sizeof name, "%smlp.act_fn.%s", prefix, names[i]);
		const struct st_tensor *t = safetensors_find(f->files, name);
		int rc = 0;
		if (!t && i < 2)
			rc = err_why(f->why, -ENOENT, "tensor %s is missing", name);
		else if (t && (t->n_dims > 1 || (t->n_dims == 1 && t->shape[0] != 1)))
			rc = err_why(f->why, -EINVAL, "tensor %s is no single value", name);
		else if (t)
			rc = finder_dtype(f, t, &v.dtype);
		if (rc || !t) {
			if (rc)
				return rc;
			continue;
		}
		v.data = t->data;
		weights_to_f32(&v, &args[i]);
		finder_use(f, t);
	}
	args[0] = log1pf(expf(args[0]));
	args[1] = log1pf(expf(args[1])) + args[2];
	l->act_args = (struct weights_vec){args, CONFIG_F32, 4};
	return 0;
}

/* Copy rows of a stored layer, and their biases: row i of `to` is row_of(ctx, i). */
static void copy_rows(const struct finder *f, const struct weights_linear *whole, const int *rows, int n,
		      struct weights_linear *to)
{
	const size_t each = whole->dtype == CONFIG_F32 ? 4 : 2, row = (size_t)whole->k * each;
	const size_t of_bias = whole->bias.dtype == CONFIG_F32 ? 4 : 2;
	unsigned char *w = weights_own(f->w, xmalloc((size_t)n * row));
	*to = *whole;
	to->n = n;
	to->w = w;
	for (int i = 0; i < n; i++)
		memcpy(w + (size_t)i * row, (const unsigned char *)whole->w + (size_t)rows[i] * row, row);
	if (!whole->bias.data)
		return;
	unsigned char *b = weights_own(f->w, xmalloc((size_t)n * of_bias));
	for (int i = 0; i < n; i++)
		memcpy(b + (size_t)i * of_bias,
		       (const unsigned char *)whole->bias.data + (size_t)rows[i] * of_bias, of_bias);
	to->bias.data = b;
	to->bias.n = n;
}

/* Return the row of the stored q, k and v that is row i of q (which 0), k (1) or v (2). */
static int row_of_qkv(const struct finder *f, int which, int i)
{
	const struct model_config *c = f->c;
	const int d = c->head_dim, group = c->n_heads / c->n_kv_heads, head = i / d;
	if (f->family->qkv == QKV_BY_GROUP) {
		const int first = (which ? head : head / group) * (group + 2);
		return (first + (which ? group + which - 1 : head % group)) * d + i % d;
	}
	const int quarter = c->n_heads / 4 * d, place = which == 0 ? 0 : 3 - which; /* q, v, k */
	return (i / quarter * 3 + place) * quarter + i % quarter;
}

static int find_packed_qkv(const struct finder *f, const char *module, const struct piece *pieces, bool bias)
{
	const struct model_config *c = f->c;
	struct weights_linear whole = {0};
	int n = 0;
	for (int i = 0; i < 3; i++)
		n += pieces[i].n;
	if (quant_has(f->files, module))
		return err_why(
			f->why, -ENOTSUP,
			"%s is quantized, and has the rows of q, k and v in turns: plain floats are needed",
			module);
	const int rc = find_stored(f, module, n, c->hidden, bias, &whole);
	for (int i = 0; !rc && i < 3; i++) {
		int *rows = xcalloc((size_t)pieces[i].n, sizeof *rows);
		for (int j = 0; j < pieces[i].n; j++)
			rows[j] = row_of_qkv(f, i, j);
		copy_rows(f, &whole, rows, pieces[i].n, pieces[i].to);
		free(rows);
	}
	return rc;
}

/* Find q, k and v, or gate and up, that are stored as one layer. */
static int find_whole(const struct finder *f, const char *module, const struct piece *pieces, int n,
		      bool bias)
{
	return n == 3 && f->family->qkv != QKV_SIDE_BY_SIDE ? find_packed_qkv(f, module, pieces, bias)
							    : find_fused(f, module, pieces, n, bias);
}

static int find_layer(const struct finder *f, int i, struct weights_layer *l)
{
	const struct model_config *c = f->c;
	const struct family *family = f->family;
	const bool sparse = c->layers[i].sparse;
	const int inter = c->layers[i].inter;
	const struct family_experts *x = sparse ? family->experts : NULL;
	static const char *const usual[] = {"gate_proj", "up_proj", "down_proj"};
	const int q = c->layers[i].heads * c->layers[i].dim, kv = c->layers[i].kv_heads * c->layers[i].dim;
	char ffn[3][96], gate_up[96], prefix[64], name[160];
	snprintf(prefix, sizeof prefix, "%s%s.%d.", f->prefix, family_name(family, PART_LAYERS), i);
	struct family_stack stack;
	const struct family_own *own = x ? finder_own(f, prefix, &stack) : NULL;
	const char *const shared = own && own->shared ? own->shared : x ? x->shared : NULL;
	for (int j = 0; j < 3; j++)
		if (x)
			snprintf(ffn[j], sizeof ffn[j], "%s.%s", shared ? shared : "",
				 x->shared_names[1] ? x->shared_names[j] ? x->shared_names[j] : ""
						    : usual[j]);
		else
			snprintf(ffn[j], sizeof ffn[j], "%s",
				 family_name(family, (enum family_part)(j < 2 ? PART_GATE + j : PART_DOWN)));
	/* A shared expert without a name for its gate has gate and up in one. */
	snprintf(gate_up, sizeof gate_up, "%s", x ? ffn[1] : family_name(family, PART_GATE_UP));
	const bool one = !x || (x->shared_names[1] && !x->shared_names[0]);
	const struct {
		const char *name;
		int n, k;
		bool bias;
		struct weights_linear *to;
	} linears[] = {
		{family_name(family, PART_Q), q, c->hidden, c->qkv_bias, &l->q},
		{family_name(family, PART_K), kv, c->hidden, c->qkv_bias, &l->k},
		{family_name(family, PART_V), kv, c->hidden, c->qkv_bias, &l->v},
		{family_name(family, PART_O), c->hidden, q, c->o_bias, &l->o},
		{ffn[0], c->ffn_plain ? 0 : inter, c->hidden, c->mlp_bias, &l->gate},
		{ffn[1], inter, c->hidden, c->mlp_bias, &l->up},
		{ffn[2], c->hidden, inter, c->mlp_bias, &l->down},
	};
	const struct {
		const char *name;
		struct piece pieces[3];
		int n;
		bool bias;
	} fused[] = {
		{family_name(family, PART_QKV), {{q, &l->q}, {kv, &l->k}, {kv, &l->v}}, 3, c->qkv_bias},
		{gate_up, {{inter, &l->gate}, {inter, &l->up}}, 2, c->mlp_bias},
	};
	const size_t n_fused = inter && one && !c->ffn_plain ? 2 : 1;
	int rc = find_norms(f, prefix, &c->layers[i], l);
	if (!rc && c->act == ACT_XIELU)
		rc = find_act_args(f, prefix, l);
	snprintf(name, sizeof name, "%s%s", prefix, family_name(family, PART_SINKS));
	if (!rc && c->sinks)
		rc = finder_vec(f, name, 0, c->layers[i].heads, &l->sinks);
	for (size_t j = 0; !rc && j < n_fused; j++) {
		snprintf(name, sizeof name, "%s%s", prefix, fused[j].name);
		if (has_module(f, name))
			rc = find_whole(f, name, fused[j].pieces, fused[j].n, fused[j].bias);
	}
	for (size_t j = 0; !rc && j < sizeof linears / sizeof linears[0]; j++) {
		if (linears[j].to->w || !linears[j].n || !linears[j].k) /* fused, or no shared expert */
			continue;
		snprintf(name, sizeof name, "%s%s", prefix, linears[j].name);
		rc = find_stored(f, name, linears[j].n, linears[j].k, linears[j].bias, linears[j].to);
	}
	if (!rc)
		rc = find_own_o_bias(f, prefix, l);
	return rc || !sparse ? rc : finder_experts(f, prefix, l);
}

/* Find the first prefix under which the files have the module; out: the module's full name.  False: none. */
static bool find_module(const struct finder *f, const char *const *prefixes, int n, const char *module,
			char *out, size_t out_n, const char **prefix)
{
	for (int i = 0; i < n; i++) {
		snprintf(out, out_n, "%s%s", prefixes[i], module);
		if (prefix)
			*prefix = prefixes[i];
		if (has_module(f, out))
			return true;
	}
	return false;
}

/* Return whether the file's head has the values of the embedding. */
static bool is_embedding(const struct finder *f, const char *head)
{
	char name[96];
	snprintf(name, sizeof name, "%s.weight", head);
	const struct st_tensor *t = safetensors_find(f->files, name);
	const struct weights_vec *e = &f->w->embed;
	enum config_dtype dtype;
	return t && !finder_dtype(f, t, &dtype) && dtype == e->dtype && t->n_dims == 2 &&
	       t->shape[0] == f->c->n_vocab && t->shape[1] == f->c->hidden &&
	       memcmp(t->data, e->data, t->bytes) == 0;
}

/* Make a head of the embedding and a bias. */
static int tied_head(const struct finder *f)
{
	struct weights_linear *l = &f->w->head;
	char name[96];
	*l = (struct weights_linear){
		.n = f->c->n_vocab, .k = f->c->hidden, .dtype = f->w->embed.dtype, .w = f->w->embed.data};
	snprintf(l->name, sizeof l->name, "%s", f->head);
	snprintf(name, sizeof name, "%.80s.bias", f->head);
	return finder_vec(f, name, 0, l->n, &l->bias);
}

/* Find the head of the files, if they have one.  Even if the configuration ties the head to the embedding,
 * the files' head is used when its values differ, as in transformers. */
static int find_head(struct finder *f)
{
	static const char *const prefixes[] = {"", "language_model.", "model.language_model.", "model."};
	const struct model_config *c = f->c;
	char name[96];
	const char *const module = family_name(f->family, PART_HEAD);
	const bool there = find_module(f, prefixes, 4, module, f->head, sizeof f->head, NULL) ||
			   find_module(f, prefixes, 4, "lm_head", f->head, sizeof f->head, NULL);
	if (!there)
		snprintf(f->head, sizeof f->head, "%s", module);
	if (!there && c->tied && c->head_bias && f->w->embed.data)
		return tied_head(f);
	if (!there && (c->tied || c->embeds))
		return 0;
	if (there && c->tied && is_embedding(f, f->head)) {
		snprintf(name, sizeof name, "%s.weight", f->head);
		weights_use(f->w, (int)(safetensors_find(f->files, name) - safetensors_at(f->files, 0)), 0);
		return 0;
	}
	f->w->untied = c->tied;
	return finder_linear(f, f->head, c->n_vocab, c->hidden, c->head_bias, &f->w->head);
}

/* The last two are for the text part of a larger model. */
static bool find_prefix_of(struct finder *f, const struct family *family)
{
	const char *const prefixes[] = {family->prefix ? family->prefix : "model.", "model.", "",
					"language_model.model.", "model.language_model."};
	char name[96];
	f->family = family;
	return find_module(f, prefixes, 5, family_name(family, PART_EMBED), name, sizeof name, &f->prefix);
}

/* Find the prefix of the names, and the family whose names they are. */
static bool find_prefix(struct finder *f)
{
	const struct family *family = f->c->family;
	if (find_prefix_of(f, family) || (family->as && find_prefix_of(f, family_find(family->as, NULL))))
		return true;
	f->family = family;
	return false;
}

int hf_weights_check_names(const char *dir, const struct model_config *c, const char *model_type,
			   struct why *why)
{
	struct safetensors *files;
	if (safetensors_open_dir(dir, &files, NULL))
		return 0;
	struct finder f = {.files = files, .c = c};
	int rc = 0;
	if (safetensors_count(files) && !find_prefix(&f))
		rc = err_why(why, -ENOTSUP,
			     "model_type %.60s is not supported: its tensors (%.80s) have other names than "
			     "those of %s, "
			     "which architectures says",
			     model_type, safetensors_at(files, safetensors_count(files) / 2)->name,
			     c->arch_name);
	safetensors_close(files);
	return rc;
}

/* Compute the embeddings of all positions, in single precision where transformers does. */
static void make_positions(const struct finder *f)
{
	const struct model_config *c = f->c;
	const int skip = f->family->position_offset, half = c->hidden / 2;
	const float by = (float)(half - (f->family->sines == SINES_CLOSED));
	float *all = weights_own(f->w, xcalloc((size_t)c->max_position * (size_t)c->hidden, sizeof *all));
	for (int p = 0; p < c->max_position; p++)
		for (int i = 0; i < half; i++) {
			float *at = all + (size_t)p * (size_t)c->hidden + i;
			const float angle = (float)(p + skip) * (1 / powf(10000, (float)i / by));
			at[0] = sinf(angle);
			at[half] = cosf(angle);
		}
	f->w->positions = (struct weights_vec){all, CONFIG_F32, c->max_position * c->hidden};
}

/* Find learned positions, or compute them. */
static int find_positions(const struct finder *f)
{
	const struct model_config *c = f->c;
	char name[96];
	if (!c->learned)
		return 0;
	if (f->family->sines) {
		make_positions(f);
		return 0;
	}
	snprintf(name, sizeof name, "%s%s.weight", f->prefix, family_name(f->family, PART_POSITIONS));
	const int skip = f->family->position_offset;
	const int rc = finder_vec(f, name, c->max_position + skip, c->hidden, &f->w->positions);
	if (rc)
		return rc;
	const size_t each = f->w->positions.dtype == CONFIG_F32 ? 4 : 2;
	f->w->positions.data =
		(const unsigned char *)f->w->positions.data + (size_t)skip * (size_t)c->hidden * each;
	f->w->positions.n = c->max_position * c->hidden;
	return 0;
}

/* Find the norm of the embedded rows and the final norm, if the family has them. */
static int find_end_norms(const struct finder *f)
{
	const struct family *family = f->family;
	const struct {
		const char *name;
		struct weights_vec *to, *bias;
	} norms[] = {{family->embed_norm, &f->w->embed_norm, &f->w->embed_norm_bias},
		     {family->no_final_norm ? NULL : family_name(family, PART_FINAL_NORM), &f->w->norm,
		      &f->w->norm_bias}};
	int rc = 0;
	for (int i = 0; !rc && i < 2; i++) {
		char name[96];
		if (!norms[i].name)
			continue;
		snprintf(name, sizeof name, "%s%s", f->prefix, norms[i].name);
		rc = find_norm(f, name, f->c->hidden, family->norm_plain, norms[i].to,
			       f->c->norm_bias ? norms[i].bias : NULL);
	}
	return rc;
}

static int find_all(struct finder *f)
{
	const struct model_config *c = f->c;
	struct weights *w = f->w;
	char name[96];
	int rc = 0;
	if (!find_prefix(f))
		return err_why(f->why, -ENOENT, "tensor %s%s.weight is missing",
			       f->family->prefix ? f->family->prefix : "model.",
			       family_name(f->family, PART_EMBED));
	if ((int64_t)c->n_vocab * c->hidden > INT32_MAX)
		return err_why(f->why, -ENOTSUP, "an embedding of %d x %d values is too large", c->n_vocab,
			       c->hidden);
	snprintf(name, sizeof name, "%s%s.weight", f->prefix, family_name(f->family, PART_EMBED));
	if ((rc = finder_vec(f, name, c->n_vocab, c->hidden, &w->embed)))
		return rc;
	if ((rc = find_end_norms(f)) || (rc = find_head(f)) || (rc = find_positions(f)))
		return rc;
	for (int i = 0; !rc && i < c->n_layers; i++)
		rc = find_layer(f, i, &w->layers[i]);
	if (rc)
		return rc;
	/* Other parts of a model may have names with the usual prefix, and any name if there is no prefix. */
	char text[96];
	snprintf(name, sizeof name, "%s%s.", f->prefix, family_name(f->family, PART_LAYERS));
	snprintf(text, sizeof text, "%s%s", f->prefix,
		 *f->prefix ? "" : family_name(f->family, PART_FINAL_NORM));
	const bool mixed = c->text_only && !strstr(f->prefix, "language_model.");
	return weights_weigh_unused(
		w, c, &(struct weights_place){.layers = name, .head = f->head, .text = mixed ? NULL : text},
		f->why);
}

static void tensor_at(const void *files, int i, struct weights_tensor *out)
{
	const struct st_tensor *t = safetensors_at(files, i);
	*out = (struct weights_tensor){.name = t->name,
				       .type = st_dtype_name(t->dtype),
				       .n_dims = t->n_dims,
				       .bytes = t->bytes,
				       .data = t->data};
	memcpy(out->shape, t->shape, sizeof out->shape);
}

static void close_files(void *files)
{
	safetensors_close(files);
}

int hf_weights_open(const char *dir, const struct model_config *c, struct weights **out, struct why *why)
{
	struct weights *w = xcalloc(1, sizeof *w);
	struct finder f = {.w = w, .c = c, .why = why};
	struct safetensors *files;
	int rc = safetensors_open_dir(dir, &files, why);
	if (rc)
		goto fail;
	f.files = files;
	w->files = (struct weights_files){.at = files,
					  .close = close_files,
					  .n_files = safetensors_files(files),
					  .n_tensors = safetensors_count(files),
					  .tensor = tensor_at};
	w->used = xcalloc((size_t)w->files.n_tensors + 1, sizeof *w->used);
	w->n_layers = c->n_layers;
	w->layers = xcalloc((size_t)c->n_layers, sizeof *w->layers);
	rc = find_all(&f);
	if (rc) {
		err_prefix(why, rc, "%s", dir);
		goto fail;
	}
	weights_log_unused(c);
	*out = w;
	return 0;
fail:
	weights_close(w);
	return rc;
}
