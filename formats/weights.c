#include "formats/weights.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of a search for tensors. */
struct finder {
	struct weights *w;
	const struct safetensors *files;
	const struct model_config *c;
	const char *prefix; /* "model." or "" */
	char *why;
	size_t why_n;
};

static void shape_text(const struct st_tensor *t, char *out, size_t n)
{
	size_t len = 0;
	out[0] = '\0';
	for (int i = 0; i < t->n_dims && len < n; i++)
		len += (size_t)snprintf(out + len, n - len, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
}

/* A tensor of shape [rows, cols], or [cols] if rows is 0. */
static int find(const struct finder *f, const char *name, int64_t rows, int64_t cols,
		const struct st_tensor **out)
{
	char have[128], want[64];
	const struct st_tensor *t = safetensors_find(f->files, name);
	if (!t)
		return err_why(f->why, f->why_n, -ENOENT, "tensor %s is missing", name);
	bool ok = rows ? t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols
		       : t->n_dims == 1 && t->shape[0] == cols;
	if (!ok) {
		shape_text(t, have, sizeof have);
		if (rows)
			snprintf(want, sizeof want, "%lld, %lld", (long long)rows, (long long)cols);
		else
			snprintf(want, sizeof want, "%lld", (long long)cols);
		return err_why(f->why, f->why_n, -EINVAL,
			       "tensor %s has the shape [%s], the configuration needs [%s]", name, have,
			       want);
	}
	f->w->bytes += (int64_t)t->bytes;
	f->w->n_used++;
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
		return err_why(f->why, f->why_n, -ENOTSUP, "tensor %s is %s; F32, F16 or BF16 is needed",
			       t->name, st_dtype_name(t->dtype));
	}
}

/* prefix + module + ".weight" as a vector (rows 0) or a table. */
static int find_vec(const struct finder *f, const char *name, int rows, int cols, struct weights_vec *out)
{
	const struct st_tensor *t;
	int rc = find(f, name, rows, cols, &t);
	if (rc || (rc = float_dtype(f, t, &out->dtype)))
		return rc;
	out->data = t->data;
	out->n = rows ? (int)((int64_t)rows * cols) : cols;
	return 0;
}

static int find_typed(const struct finder *f, const char *module, const char *part, int rows, int cols,
		      enum st_dtype dtype, const void **out)
{
	char name[128];
	const struct st_tensor *t;
	snprintf(name, sizeof name, "%s.%s", module, part);
	int rc = find(f, name, rows, cols, &t);
	if (rc)
		return rc;
	if (t->dtype != dtype)
		return err_why(f->why, f->why_n, -EINVAL, "tensor %s is %s; AWQ needs %s", name,
			       st_dtype_name(t->dtype), st_dtype_name(dtype));
	*out = t->data;
	return 0;
}

static int find_awq(const struct finder *f, struct weights_linear *l)
{
	l->kind = WEIGHTS_AWQ;
	l->group = f->c->awq_group > 0 ? f->c->awq_group : l->k;
	int groups = (l->k + l->group - 1) / l->group;
	int rc;
	if (l->n % 8)
		return err_why(f->why, f->why_n, -EINVAL, "%s has %d outputs; AWQ packs eight at a time",
			       l->name, l->n);
	if ((rc = find_typed(f, l->name, "qweight", l->k, l->n / 8, ST_I32, &l->w)) ||
	    (rc = find_typed(f, l->name, "qzeros", groups, l->n / 8, ST_I32, &l->qzeros)) ||
	    (rc = find_typed(f, l->name, "scales", groups, l->n, ST_F16, &l->scales)))
		return rc;
	return 0;
}

static bool has_tensor(const struct finder *f, const char *module, const char *part)
{
	char name[128];
	snprintf(name, sizeof name, "%s.%s", module, part);
	return safetensors_find(f->files, name) != NULL;
}

/* A linear layer of n outputs and k inputs: quantized if its tensors are (a module listed in
 * modules_to_not_convert has a plain weight). */
static int find_linear(const struct finder *f, const char *module, int n, int k, bool bias,
		       struct weights_linear *l)
{
	char name[128];
	struct weights_vec v = {0};
	int rc;
	snprintf(l->name, sizeof l->name, "%s", module);
	l->n = n;
	l->k = k;
	bool packed = has_tensor(f, module, "qweight"), plain = has_tensor(f, module, "weight");
	if (packed && !f->c->awq)
		return err_why(f->why, f->why_n, -EINVAL,
			       "%s.qweight exists, but config.json has no quantization_config", module);
	if (packed && plain)
		return err_why(f->why, f->why_n, -EINVAL, "%s has both a weight and a qweight", module);
	if (packed) {
		if ((rc = find_awq(f, l)))
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

static int find_layer(const struct finder *f, int i, struct weights_layer *l)
{
	const struct model_config *c = f->c;
	const int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
	const struct {
		const char *name;
		int n, k;
		bool bias;
		struct weights_linear *to;
	} linears[] = {
		{"self_attn.q_proj", q, c->hidden, c->qkv_bias, &l->q},
		{"self_attn.k_proj", kv, c->hidden, c->qkv_bias, &l->k},
		{"self_attn.v_proj", kv, c->hidden, c->qkv_bias, &l->v},
		{"self_attn.o_proj", c->hidden, q, c->o_bias, &l->o},
		{"mlp.gate_proj", c->intermediate, c->hidden, c->mlp_bias, &l->gate},
		{"mlp.up_proj", c->intermediate, c->hidden, c->mlp_bias, &l->up},
		{"mlp.down_proj", c->hidden, c->intermediate, c->mlp_bias, &l->down},
	};
	const struct {
		const char *name;
		int n;
		struct weights_vec *to;
	} norms[] = {
		{"input_layernorm", c->hidden, &l->attn_norm},
		{"post_attention_layernorm", c->hidden, &l->ffn_norm},
		{"self_attn.q_norm", c->head_dim, c->qk_norm ? &l->q_norm : NULL},
		{"self_attn.k_norm", c->head_dim, c->qk_norm ? &l->k_norm : NULL},
	};
	char name[96];
	int rc = 0;
	for (size_t j = 0; !rc && j < sizeof norms / sizeof norms[0]; j++) {
		snprintf(name, sizeof name, "%slayers.%d.%s.weight", f->prefix, i, norms[j].name);
		if (norms[j].to)
			rc = find_vec(f, name, 0, norms[j].n, norms[j].to);
	}
	for (size_t j = 0; !rc && j < sizeof linears / sizeof linears[0]; j++) {
		snprintf(name, sizeof name, "%slayers.%d.%s", f->prefix, i, linears[j].name);
		rc = find_linear(f, name, linears[j].n, linears[j].k, linears[j].bias, linears[j].to);
	}
	return rc;
}

static int find_all(struct finder *f)
{
	const struct model_config *c = f->c;
	struct weights *w = f->w;
	char name[96];
	int rc = 0;
	if (safetensors_find(f->files, "model.embed_tokens.weight"))
		f->prefix = "model.";
	else if (safetensors_find(f->files, "embed_tokens.weight"))
		f->prefix = "";
	else
		return err_why(f->why, f->why_n, -ENOENT, "tensor model.embed_tokens.weight is missing");
	if ((int64_t)c->n_vocab * c->hidden > INT32_MAX)
		return err_why(f->why, f->why_n, -ENOTSUP, "an embedding of %d x %d values is too large",
			       c->n_vocab, c->hidden);
	snprintf(name, sizeof name, "%sembed_tokens.weight", f->prefix);
	if ((rc = find_vec(f, name, c->n_vocab, c->hidden, &w->embed)))
		return rc;
	snprintf(name, sizeof name, "%snorm.weight", f->prefix);
	if ((rc = find_vec(f, name, 0, c->hidden, &w->norm)))
		return rc;
	if (!c->tied && (rc = find_linear(f, "lm_head", c->n_vocab, c->hidden, false, &w->head)))
		return rc;
	for (int i = 0; !rc && i < c->n_layers; i++)
		rc = find_layer(f, i, &w->layers[i]);
	return rc;
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

int hf_weights_open(const char *dir, const struct model_config *c, struct weights **out, char *why,
		    size_t why_n)
{
	struct weights *w = xcalloc(1, sizeof *w);
	struct finder f = {.w = w, .c = c, .why = why, .why_n = why_n};
	struct safetensors *files;
	int rc = safetensors_open_dir(dir, &files, why, why_n);
	if (rc)
		goto fail;
	f.files = files;
	w->files = (struct weights_files){.at = files,
					  .close = close_files,
					  .n_files = safetensors_files(files),
					  .n_tensors = safetensors_count(files),
					  .tensor = tensor_at};
	w->n_layers = c->n_layers;
	w->layers = xcalloc((size_t)c->n_layers, sizeof *w->layers);
	rc = find_all(&f);
	if (rc) {
		err_prefix(why, why_n, rc, "%s", dir);
		goto fail;
	}
	w->n_unused = w->files.n_tensors - w->n_used;
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
	free(w->layers);
	free(w);
}

void *weights_own(struct weights *w, void *p)
{
	w->owned = xrealloc(w->owned, (size_t)w->n_owned + 1, sizeof *w->owned);
	return w->owned[w->n_owned++] = p;
}

static float f32_of_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

/* IEEE half to single, exactly; subnormals included. */
static float f32_of_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exp = h >> 10 & 31, man = h & 1023;
	if (exp == 31)
		return f32_of_bits(sign | 0x7f800000 | man << 13);
	if (exp)
		return f32_of_bits(sign | (exp + 112) << 23 | man << 13);
	float f = (float)man * (1.0f / 16777216);
	return sign ? -f : f;
}

void weights_to_f32(const struct weights_vec *v, float *out)
{
	const unsigned char *p = v->data;
	for (int i = 0; i < v->n; i++) {
		uint16_t h;
		if (v->dtype == CONFIG_F32) {
			memcpy(&out[i], p + 4 * (size_t)i, 4);
			continue;
		}
		memcpy(&h, p + 2 * (size_t)i, 2);
		out[i] = v->dtype == CONFIG_F16 ? f32_of_f16(h) : f32_of_bits((uint32_t)h << 16);
	}
}
