#include "formats/weights.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "formats/family.h"
#include "formats/safetensors.h"
#include "formats/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of a search for tensors. */
struct finder {
	struct weights *w;
	const struct safetensors *files;
	const struct model_config *c;
	const char *prefix; /* "model." or "" */
	char head[64];      /* "lm_head" */
	struct why *why;
};

static void shape_text(const struct st_tensor *t, char *out, size_t n)
{
	size_t len = 0;
	out[0] = '\0';
	for (int i = 0; i < t->n_dims && len < n; i++)
		len += (size_t)snprintf(out + len, n - len, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
}

static void use(const struct finder *f, const struct st_tensor *t)
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
		shape_text(t, have, sizeof have);
		if (rows)
			snprintf(want, sizeof want, "%lld, %lld", (long long)rows, (long long)cols);
		else
			snprintf(want, sizeof want, "%lld", (long long)cols);
		return err_why(f->why, -EINVAL, "tensor %s has the shape [%s], the configuration needs [%s]",
			       name, have, want);
	}
	use(f, t);
	*out = t;
	return 0;
}

static int float_dtype(const struct finder *f, const struct st_tensor *t, enum config_dtype *out)
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

/* Find a tensor as a vector (rows 0) or as a table. */
static int find_vec(const struct finder *f, const char *name, int rows, int cols, struct weights_vec *out)
{
	const struct st_tensor *t = NULL;
	int rc = find(f, name, rows, cols, &t);
	if (rc || (rc = float_dtype(f, t, &out->dtype)))
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
		use(f, found.tensors[i]);
	return 0;
}

/* Find a linear layer with n outputs and k inputs.  It is quantized if its tensors are: a module listed in
 * modules_to_not_convert has a plain weight. */
static int find_linear(const struct finder *f, const char *module, int n, int k, bool bias,
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
		if ((rc = find_vec(f, name, n, k, &v)))
			return rc;
		l->w = v.data;
		l->dtype = v.dtype;
	}
	if (!bias)
		return 0;
	snprintf(name, sizeof name, "%s.bias", module);
	return find_vec(f, name, 0, n, &l->bias);
}

static bool has_module(const struct finder *f, const char *module)
{
	char name[128];
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
	int rc = find_linear(f, module, n, f->c->hidden, bias, whole);
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

static int find_norms(const struct finder *f, const char *prefix, struct weights_layer *l)
{
	const struct model_config *c = f->c;
	const struct family *family = family_of(c->arch);
	const bool rows = c->qk_norm == QK_NORM_ROWS;
	const struct {
		const char *name;
		int n;
		struct weights_vec *to;
	} norms[] = {
		{family->norms[NORM_ATTN], c->hidden, &l->attn_norm},
		{family->norms[NORM_ATTN_POST], c->hidden, &l->attn_post},
		{family->norms[NORM_FFN], c->hidden, &l->ffn_norm},
		{family->norms[NORM_FFN_POST], c->hidden, &l->ffn_post},
		{c->qk_norm ? "self_attn.q_norm" : NULL, c->head_dim * (rows ? c->n_heads : 1), &l->q_norm},
		{c->qk_norm ? "self_attn.k_norm" : NULL, c->head_dim * (rows ? c->n_kv_heads : 1),
		 &l->k_norm},
	};
	char name[128];
	int rc = 0;
	for (size_t j = 0; !rc && j < sizeof norms / sizeof norms[0]; j++) {
		if (!norms[j].name)
			continue;
		snprintf(name, sizeof name, "%s%s.weight", prefix, norms[j].name);
		rc = find_vec(f, name, 0, norms[j].n, norms[j].to);
	}
	return rc;
}

/* Find a router: always in plain floats. */
static int find_router(const struct finder *f, const char *module, int n, struct weights_linear *l)
{
	if (quant_has(f->files, module))
		return err_why(f->why, -ENOTSUP,
			       "%s is a router, and quantized: F32, F16 or BF16 is "
			       "needed",
			       module);
	return find_linear(f, module, n, f->c->hidden, f->c->experts.router_bias, l);
}

/* Find a tensor of gpt-oss's experts, with n_dims sizes; the first size is the number of experts. */
static int find_of_experts(const struct finder *f, const char *prefix, const char *name, enum st_dtype dtype,
			   const int64_t *sizes, int n_dims, const unsigned char **out)
{
	char whole[160], have[128];
	snprintf(whole, sizeof whole, "%s%s", prefix, name);
	const struct st_tensor *t = safetensors_find(f->files, whole);
	bool ok = t && t->n_dims == n_dims;
	if (!t)
		return err_why(
			f->why, -ENOENT,
			"tensor %s is missing (of experts that are stored in one tensor, those in MXFP4 are "
			"supported)",
			whole);
	for (int i = 0; ok && i < n_dims; i++)
		ok = t->shape[i] == sizes[i];
	shape_text(t, have, sizeof have);
	if (!ok)
		return err_why(f->why, -EINVAL,
			       "tensor %s has the shape [%s], the configuration needs another: %lld experts, "
			       "%lld outputs, %lld values or blocks of 32",
			       whole, have, (long long)sizes[0], (long long)sizes[1],
			       n_dims > 2 ? (long long)sizes[2] : 1LL);
	if (t->dtype != dtype)
		return err_why(f->why, -ENOTSUP, "tensor %s is %s; %s is needed", whole,
			       st_dtype_name(t->dtype), st_dtype_name(dtype));
	use(f, t);
	*out = t->data;
	return 0;
}

/* One of the two matrices of all experts in MXFP4.  bias: n values per expert. */
struct fused {
	const unsigned char *blocks, *exponents;
	struct weights_vec bias;
};

static int find_fused_experts(const struct finder *f, const char *prefix, const char *name, int n, int k,
			      struct fused *out)
{
	const int64_t e = f->c->experts.n, blocks[] = {e, n, k / 32, 16};
	char part[64], whole[160];
	int rc;
	if (k % 32)
		return err_why(f->why, -EINVAL, "%s%s has %d inputs; MXFP4 has them in blocks of 32", prefix,
			       name, k);
	snprintf(part, sizeof part, "%s_blocks", name);
	if ((rc = find_of_experts(f, prefix, part, ST_U8, blocks, 4, &out->blocks)))
		return rc;
	snprintf(part, sizeof part, "%s_scales", name);
	if ((rc = find_of_experts(f, prefix, part, ST_U8, blocks, 3, &out->exponents)))
		return rc;
	snprintf(whole, sizeof whole, "%s%s_bias", prefix, name);
	return find_vec(f, whole, (int)e, n, &out->bias);
}

/* Return every step-th value from `first` on, n in all; in place if step is 1, else copied. */
static struct weights_vec every(const struct finder *f, const struct weights_vec *v, size_t first, int n,
				size_t step)
{
	const size_t each = v->dtype == CONFIG_F32 ? 4 : 2;
	const unsigned char *from = (const unsigned char *)v->data + first * each;
	if (step == 1)
		return (struct weights_vec){from, v->dtype, n};
	unsigned char *copy = weights_own(f->w, xmalloc((size_t)n * each));
	for (size_t i = 0; i < (size_t)n; i++)
		memcpy(copy + i * each, from + i * step * each, each);
	return (struct weights_vec){copy, v->dtype, n};
}

/* Fill in n outputs of expert e from a fused matrix: every step-th row, starting at `first`. */
static void take_fused(const struct finder *f, const struct fused *from, const char *name, int e, int first,
		       int step, int n, int k, struct weights_linear *l)
{
	const size_t row = ((size_t)e * (size_t)n * (size_t)step + (size_t)first), each = (size_t)k / 32;
	snprintf(l->name, sizeof l->name, "%.80s.%d", name, e);
	l->n = n;
	l->k = k;
	l->kind = WEIGHTS_CODES;
	l->w = from->blocks + row * each * 16;
	l->bytes = (size_t)n * each * 17;
	l->bias = every(f, &from->bias, row, n, (size_t)step);
	quant_mxfp4(&l->codes, n, k, l->w, from->exponents + row * each, step);
}

/* Find gpt-oss's experts: the rows of gate_up_proj alternate between gate and up. */
static int find_fused_layer(const struct finder *f, const char *prefix, struct weights_layer *l)
{
	const int h = f->c->hidden, inter = f->c->experts.intermediate;
	char at[96], name[128];
	struct fused gateup, down;
	snprintf(at, sizeof at, "%s%s.experts.", prefix, family_of(f->c->arch)->experts->module);
	int rc = find_fused_experts(f, at, "gate_up_proj", 2 * inter, h, &gateup);
	if (rc || (rc = find_fused_experts(f, at, "down_proj", h, inter, &down)))
		return rc;
	for (int e = 0; e < l->n_experts; e++) {
		struct weights_expert *x = &l->experts[e];
		snprintf(name, sizeof name, "%sgate_up_proj", at);
		take_fused(f, &gateup, name, e, 0, 2, inter, h, &x->gate);
		take_fused(f, &gateup, name, e, 1, 2, inter, h, &x->up);
		snprintf(name, sizeof name, "%sdown_proj", at);
		take_fused(f, &down, name, e, 0, 1, h, inter, &x->down);
	}
	return 0;
}

/* Float experts, with each matrix of all experts in one tensor: gate_up_proj [experts, 2 inter, hidden], gate
 * before up, and down_proj [experts, hidden, inter].  gpt-oss: [experts, inputs, outputs], alternating gate
 * and up. */
struct float_stack {
	const unsigned char *data;
	enum config_dtype dtype;
	int n, k; /* per expert */
	bool by_input;
	struct weights_vec bias; /* [experts * n], or none */
};

static int find_float_stack(const struct finder *f, const char *prefix, const char *name, int n, int k,
			    struct float_stack *out)
{
	const int64_t e = f->c->experts.n;
	char whole[160];
	*out = (struct float_stack){.n = n, .k = k, .by_input = family_of(f->c->arch)->experts->fused};
	const int64_t sizes[] = {e, out->by_input ? k : n, out->by_input ? n : k};
	snprintf(whole, sizeof whole, "%s%s", prefix, name);
	const struct st_tensor *t = safetensors_find(f->files, whole);
	int rc = t ? float_dtype(f, t, &out->dtype) : err_why(f->why, -ENOENT, "tensor %s is missing", whole);
	if (!rc)
		rc = find_of_experts(f, prefix, name, t->dtype, sizes, 3, &out->data);
	if (rc || !f->c->experts.bias)
		return rc;
	snprintf(whole, sizeof whole, "%s%s_bias", prefix, name);
	return find_vec(f, whole, (int)e, n, &out->bias);
}

/* Fill in n outputs of expert e: first, first + step, ...; in place if they are stored row by row, else
 * copied. */
static void take_floats(const struct finder *f, const struct float_stack *s, const char *name, int e,
			size_t first, size_t step, int n, struct weights_linear *l)
{
	const size_t each = s->dtype == CONFIG_F32 ? 4 : 2, k = (size_t)s->k, all = (size_t)s->n;
	const unsigned char *from = s->data + (size_t)e * all * k * each;
	snprintf(l->name, sizeof l->name, "%.80s.%d", name, e);
	l->n = n;
	l->k = s->k;
	l->dtype = s->dtype;
	l->w = from + first * k * each;
	if (s->bias.data)
		l->bias = every(f, &s->bias, (size_t)e * all + first, n, step);
	if (!s->by_input)
		return;
	unsigned char *copy = weights_own(f->w, xmalloc((size_t)n * k * each));
	for (size_t i = 0; i < (size_t)n; i++)
		for (size_t j = 0; j < k; j++)
			memcpy(copy + (i * k + j) * each, from + (j * all + first + i * step) * each, each);
	l->w = copy;
}

static int find_float_experts(const struct finder *f, const char *at, struct weights_layer *l)
{
	const int h = f->c->hidden, inter = f->c->experts.intermediate;
	struct float_stack gateup, down;
	char name[128];
	int rc = find_float_stack(f, at, "gate_up_proj", 2 * inter, h, &gateup);
	if (rc || (rc = find_float_stack(f, at, "down_proj", h, inter, &down)))
		return rc;
	const size_t step = gateup.by_input ? 2 : 1, up = gateup.by_input ? 1 : (size_t)inter;
	for (int e = 0; e < l->n_experts; e++) {
		snprintf(name, sizeof name, "%sgate_up_proj", at);
		take_floats(f, &gateup, name, e, 0, step, inter, &l->experts[e].gate);
		take_floats(f, &gateup, name, e, up, step, inter, &l->experts[e].up);
		snprintf(name, sizeof name, "%sdown_proj", at);
		take_floats(f, &down, name, e, 0, 1, h, &l->experts[e].down);
	}
	return 0;
}

static int find_expert(const struct finder *f, const char *prefix, int e, struct weights_expert *x)
{
	const struct model_config *c = f->c;
	const struct family_experts *names = family_of(c->arch)->experts;
	struct weights_linear *to[] = {&x->gate, &x->up, &x->down};
	char name[128];
	int rc = 0;
	for (int i = 0; !rc && i < 3; i++) {
		const int inter = c->experts.intermediate;
		snprintf(name, sizeof name, "%s%s.experts.%d.%s", prefix, names->module, e, names->names[i]);
		rc = find_linear(f, name, i < 2 ? inter : c->hidden, i < 2 ? c->hidden : inter, false, to[i]);
	}
	return rc;
}

/* Find all tensors of a mixture except the shared expert. */
static int find_experts(const struct finder *f, const char *prefix, struct weights_layer *l)
{
	const struct config_experts *x = &f->c->experts;
	const struct family_experts *names = family_of(f->c->arch)->experts;
	char name[128], at[96], stack[128];
	snprintf(at, sizeof at, "%smlp.experts.", prefix);
	snprintf(stack, sizeof stack, "%sgate_up_proj", at);
	const bool stacked = safetensors_find(f->files, stack) != NULL;
	const char *module = stacked ? "mlp" : names->module;
	snprintf(name, sizeof name, "%s%s%s", prefix, names->router ? names->router : module,
		 names->router ? "" : ".gate");
	int rc = find_router(f, name, x->n, &l->router);
	if (!rc && x->choice_bias) {
		snprintf(name, sizeof name, "%s%s.gate.e_score_correction_bias", prefix, names->module);
		rc = find_vec(f, name, 0, x->n, &l->choice_bias);
	}
	if (!rc && x->shared_gate) {
		snprintf(name, sizeof name, "%s%s_gate", prefix, names->shared);
		rc = find_router(f, name, 1, &l->shared_gate);
	}
	l->experts = weights_own(f->w, xcalloc((size_t)x->n, sizeof *l->experts));
	l->n_experts = x->n;
	if (!rc && stacked)
		return find_float_experts(f, at, l);
	if (!rc && names->fused)
		return find_fused_layer(f, prefix, l);
	for (int e = 0; !rc && e < x->n; e++)
		rc = find_expert(f, prefix, e, &l->experts[e]);
	return rc;
}

static int find_layer(const struct finder *f, int i, struct weights_layer *l)
{
	const struct model_config *c = f->c;
	const bool sparse = c->layer_sparse[i];
	const int inter = sparse ? c->experts.shared : c->intermediate;
	const char *ffn = sparse ? family_of(c->arch)->experts->shared : "mlp";
	const int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
	const struct {
		const char *module, *name;
		int n, k;
		bool bias;
		struct weights_linear *to;
	} linears[] = {
		{"self_attn", "q_proj", q, c->hidden, c->qkv_bias, &l->q},
		{"self_attn", "k_proj", kv, c->hidden, c->qkv_bias, &l->k},
		{"self_attn", "v_proj", kv, c->hidden, c->qkv_bias, &l->v},
		{"self_attn", "o_proj", c->hidden, q, c->o_bias, &l->o},
		{ffn, "gate_proj", inter, c->hidden, c->mlp_bias, &l->gate},
		{ffn, "up_proj", inter, c->hidden, c->mlp_bias, &l->up},
		{ffn, "down_proj", c->hidden, inter, c->mlp_bias, &l->down},
	};
	const struct {
		const char *name;
		struct piece pieces[3];
		int n;
		bool bias;
	} fused[] = {
		{"self_attn.qkv_proj", {{q, &l->q}, {kv, &l->k}, {kv, &l->v}}, 3, c->qkv_bias},
		{"mlp.gate_up_proj", {{inter, &l->gate}, {inter, &l->up}}, 2, c->mlp_bias},
	};
	const size_t n_fused = sparse ? 1 : sizeof fused / sizeof fused[0]; /* q, k and v only */
	char prefix[64], name[96];
	snprintf(prefix, sizeof prefix, "%slayers.%d.", f->prefix, i);
	int rc = find_norms(f, prefix, l);
	snprintf(name, sizeof name, "%sself_attn.sinks", prefix);
	if (!rc && c->sinks)
		rc = find_vec(f, name, 0, c->n_heads, &l->sinks);
	for (size_t j = 0; !rc && j < n_fused; j++) {
		snprintf(name, sizeof name, "%s%s", prefix, fused[j].name);
		if (has_module(f, name))
			rc = find_fused(f, name, fused[j].pieces, fused[j].n, fused[j].bias);
	}
	for (size_t j = 0; !rc && j < sizeof linears / sizeof linears[0]; j++) {
		if (linears[j].to->w || !linears[j].n || !linears[j].k) /* fused, or no shared expert */
			continue;
		snprintf(name, sizeof name, "%s%s.%s", prefix, linears[j].module, linears[j].name);
		rc = find_linear(f, name, linears[j].n, linears[j].k, linears[j].bias, linears[j].to);
	}
	return rc || !sparse ? rc : find_experts(f, prefix, l);
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
	return t && !float_dtype(f, t, &dtype) && dtype == e->dtype && t->n_dims == 2 &&
	       t->shape[0] == f->c->n_vocab && t->shape[1] == f->c->hidden &&
	       memcmp(t->data, e->data, t->bytes) == 0;
}

/* Find the head of the files, if they have one.  Even if the configuration ties the head to the embedding,
 * the files' head is used when its values differ, as in transformers. */
static int find_head(struct finder *f)
{
	static const char *const prefixes[] = {"", "language_model.", "model.language_model.", "model."};
	const struct model_config *c = f->c;
	char name[96];
	const bool there = find_module(f, prefixes, 4, "lm_head", f->head, sizeof f->head, NULL);
	if (!there)
		snprintf(f->head, sizeof f->head, "lm_head");
	if (!there && (c->tied || c->embeds))
		return 0;
	if (there && c->tied && is_embedding(f, f->head)) {
		snprintf(name, sizeof name, "%s.weight", f->head);
		weights_use(f->w, (int)(safetensors_find(f->files, name) - safetensors_at(f->files, 0)), 0);
		return 0;
	}
	f->w->untied = c->tied;
	return find_linear(f, f->head, c->n_vocab, c->hidden, false, &f->w->head);
}

/* The last two are for the text part of a larger model. */
static const char *const prefixes_of_text[] = {"model.", "", "language_model.model.",
					       "model.language_model."};

static bool find_prefix(struct finder *f)
{
	char name[96];
	return find_module(f, prefixes_of_text, 4, "embed_tokens", name, sizeof name, &f->prefix);
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

static int find_all(struct finder *f)
{
	const struct model_config *c = f->c;
	struct weights *w = f->w;
	char name[96];
	int rc = 0;
	if (!find_prefix(f))
		return err_why(f->why, -ENOENT, "tensor model.embed_tokens.weight is missing");
	if ((int64_t)c->n_vocab * c->hidden > INT32_MAX)
		return err_why(f->why, -ENOTSUP, "an embedding of %d x %d values is too large", c->n_vocab,
			       c->hidden);
	snprintf(name, sizeof name, "%sembed_tokens.weight", f->prefix);
	if ((rc = find_vec(f, name, c->n_vocab, c->hidden, &w->embed)))
		return rc;
	snprintf(name, sizeof name, "%snorm.weight", f->prefix);
	if ((rc = find_vec(f, name, 0, c->hidden, &w->norm)) || (rc = find_head(f)))
		return rc;
	for (int i = 0; !rc && i < c->n_layers; i++)
		rc = find_layer(f, i, &w->layers[i]);
	snprintf(name, sizeof name, "%slayers.", f->prefix);
	return rc ? rc : weights_weigh_unused(w, c, name, f->head, f->why);
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

/* Log settings of the checkpoint that are not used. */
static void log_unused(const struct quant *q)
{
	if (q->own_activations)
		log_info("weights",
			 "the checkpoint's activation type is not used method=%s reason=\"activations have "
			 "the type of --compute\"",
			 q->name);
	if (q->own_kv_cache)
		log_info("weights",
			 "kv_cache_scheme is not used method=%s reason=\"the cache has the type of "
			 "--kv-cache-dtype\"",
			 q->name);
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
	log_unused(&c->quant);
	*out = w;
	return 0;
fail:
	weights_close(w);
	return rc;
}

void weights_close(struct weights *w)
{
	if (!w)
		return;
	if (w->files.at)
		w->files.close(w->files.at);
	for (int i = 0; i < w->n_owned; i++)
		free(w->owned[i]);
	free(w->owned);
	free(w->used);
	free(w->layers);
	free(w);
}

void weights_each(const struct weights *w, void (*f)(void *ctx, const struct weights_linear *l, bool head),
		  void *ctx)
{
	for (int i = 0; i < w->n_layers; i++) {
		const struct weights_layer *l = &w->layers[i];
		const struct weights_linear *all[] = {&l->q,  &l->k,    &l->v,      &l->o,          &l->gate,
						      &l->up, &l->down, &l->router, &l->shared_gate};
		for (size_t j = 0; j < sizeof all / sizeof *all; j++)
			if (all[j]->w)
				f(ctx, all[j], false);
		for (int e = 0; e < l->n_experts; e++) {
			f(ctx, &l->experts[e].gate, false);
			f(ctx, &l->experts[e].up, false);
			f(ctx, &l->experts[e].down, false);
		}
	}
	if (w->head.w)
		f(ctx, &w->head, true);
}

void *weights_own(struct weights *w, void *p)
{
	w->owned = xrealloc(w->owned, (size_t)w->n_owned + 1, sizeof *w->owned);
	return w->owned[w->n_owned++] = p;
}

void weights_use(struct weights *w, int i, size_t bytes)
{
	w->bytes += (int64_t)bytes;
	w->n_used += !w->used[i];
	w->used[i] = true;
}

/* ---- unused tensors ---- */

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), k = strlen(end);
	return n >= k && strcmp(s + n - k, end) == 0;
}

static bool is_zero(const struct weights_tensor *t)
{
	const unsigned char *p = t->data;
	for (size_t i = 0; i < t->bytes; i++)
		if (p[i])
			return false;
	return true;
}

/* Return the layer of a tensor; -1: not in a layer. */
static long layer_of(const char *name, const char *layers)
{
	const size_t n = strlen(layers),
		     digits = strncmp(name, layers, n) == 0 ? strspn(name + n, "0123456789") : 0;
	return digits && digits < 6 && name[n + digits] == '.' ? strtol(name + n, NULL, 10) : -1;
}

/* Return whether a tensor affects the computation.  Inverse frequencies, and scales for quantized activations
 * or caches, do not. */
static bool counts(const struct weights_tensor *t)
{
	static const char *const parts[] = {"weight", "qweight", "weight_packed",
					    "sinks",  "_proj",   "_blocks"};
	if (!t->bytes)
		return false;
	if (ends_with(t->name, "bias"))
		return !is_zero(t);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (ends_with(t->name, parts[i]))
			return true;
	return false;
}

int weights_weigh_unused(struct weights *w, const struct model_config *c, const char *layers,
			 const char *head, struct why *why)
{
	const size_t head_n = strlen(head);
	long beyond = -1;
	w->n_unused = w->files.n_tensors - w->n_used;
	for (int i = 0; i < w->files.n_tensors; i++) {
		struct weights_tensor t;
		if (w->used[i])
			continue;
		w->files.tensor(w->files.at, i, &t);
		const long layer = layer_of(t.name, layers);
		if (layer >= (long)c->n_layers + c->n_predict)
			beyond = layer > beyond ? layer : beyond;
		const bool of_head = strncmp(t.name, head, head_n) == 0 && t.name[head_n] == '.';
		if ((of_head || (layer >= 0 && layer < c->n_layers)) && counts(&t))
			return err_why(why, -ENOTSUP,
				       "tensor %s has no place in %s: without it the answers would be others "
				       "than the "
				       "model's",
				       t.name, c->arch_name);
	}
	w->n_beyond = beyond < 0 ? 0 : (int)(beyond + 1 - c->n_layers - c->n_predict);
	return 0;
}
