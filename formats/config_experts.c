#include "formats/config_experts.h"

#include "base/err.h"
#include "base/json.h"
#include "formats/family.h"

#include <string.h>

struct reader {
	const json_t *root;
	const struct family_experts *f;
	struct why *why;
};

static int get_int(const struct reader *r, const char *key, int lo, int hi, int *out)
{
	int64_t v = *out;
	int rc = json_get_int(r->root, key, lo, hi, &v, r->why);
	*out = (int)v;
	return rc;
}

static int need_int(const struct reader *r, const char *key, int lo, int hi, int *out)
{
	if (!json_get(r->root, key))
		return err_why(r->why, -EINVAL, "%s is missing", key);
	return get_int(r, key, lo, hi, out);
}

/* Mark the layers of mlp_only_layers as dense. */
static int read_only_dense(const struct reader *r, struct model_config *c)
{
	const json_t *list = json_get(r->root, "mlp_only_layers"), *v;
	size_t i;
	if (list && !json_is_array(list))
		return err_why(r->why, -EINVAL, "mlp_only_layers must be a list of layers");
	json_array_foreach((json_t *)list, i, v)
	{
		if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= c->n_layers)
			return err_why(r->why, -EINVAL, "mlp_only_layers[%zu] must be a layer, from 0 to %d",
				       i, c->n_layers - 1);
		c->layer_sparse[json_integer_value(v)] = 0;
	}
	return 0;
}

static int read_layers(const struct reader *r, struct model_config *c)
{
	int step = 1, dense = 0, rc;
	if (r->f->steps && (rc = get_int(r, "decoder_sparse_step", 1, 1 << 20, &step)))
		return rc;
	if (r->f->first_dense && (rc = get_int(r, "first_k_dense_replace", 0, 1 << 20, &dense)))
		return rc;
	for (int i = 0; i < c->n_layers; i++)
		c->layer_sparse[i] = i >= dense && (i + 1) % step == 0;
	return r->f->steps ? read_only_dense(r, c) : 0;
}

static int read_shared(const struct reader *r, struct config_experts *x)
{
	int n = 0, rc;
	if (!r->f->shared)
		return 0;
	if (r->f->shared_size) {
		if ((rc = get_int(r, r->f->shared_size, 0, 1 << 20, &x->shared)))
			return rc;
	} else {
		if ((rc = get_int(r, "n_shared_experts", 0, 64, &n)))
			return rc;
		x->shared = n * x->intermediate;
	}
	x->shared_gate = x->shared && r->f->shared_gate;
	return 0;
}

static int read_groups(const struct reader *r, struct config_experts *x)
{
	int groups = 1, chosen = 1, rc;
	if ((rc = get_int(r, "n_group", 1, CONFIG_EXPERTS_MAX, &groups)) ||
	    (rc = get_int(r, "topk_group", 1, CONFIG_EXPERTS_MAX, &chosen)))
		return rc;
	if (x->n % groups || chosen > groups || x->n / groups * chosen < x->n_chosen)
		return err_why(
			r->why, -EINVAL,
			"n_group %d and topk_group %d: %d experts cannot be in that many groups, or too "
			"few are left to choose %d from",
			groups, chosen, x->n, x->n_chosen);
	if (groups > 1) {
		x->n_groups = groups;
		x->groups_chosen = chosen;
	}
	return 0;
}

/* Read the routing rule. */
static int read_rule(const struct reader *r, struct config_experts *x)
{
	double scale = 1;
	int rc;
	x->normalize = r->f->normalize;
	x->router_bias = x->bias = r->f->bias;
	x->scale = 1;
	if (!r->f->normalize && (rc = json_get_bool(r->root, "norm_topk_prob", &x->normalize, r->why)))
		return rc;
	if (!r->f->deepseek)
		return 0;
	x->score = SCORE_SIGMOID;
	x->choice_bias = true;
	if ((rc = json_get_num(r->root, "routed_scaling_factor", &scale, r->why)))
		return rc;
	if (!(scale > 0 && scale <= 1e6))
		return err_why(r->why, -EINVAL, "routed_scaling_factor is %g, must be from 0 to 1e6", scale);
	x->scale = (float)scale;
	return read_groups(r, x);
}

int config_experts_read(const json_t *root, const struct family *f, struct model_config *c, struct why *why)
{
	const struct reader r = {.root = root, .f = f->experts, .why = why};
	struct config_experts *x = &c->experts;
	int rc;
	if (!f->experts)
		return 0;
	if (json_get(root, "clip_qkv"))
		return err_why(why, -ENOTSUP, "clip_qkv is not supported");
	if ((rc = need_int(&r, f->experts->n, 1, CONFIG_EXPERTS_MAX, &x->n)) ||
	    (rc = need_int(&r, "num_experts_per_tok", 1, CONFIG_CHOSEN_MAX, &x->n_chosen)) ||
	    (rc = need_int(&r, f->experts->intermediate, 1, 1 << 20, &x->intermediate)))
		return rc;
	if (x->n_chosen > x->n)
		return err_why(why, -EINVAL, "num_experts_per_tok is %d, of %d experts", x->n_chosen, x->n);
	if ((rc = read_rule(&r, x)) || (rc = read_shared(&r, x)))
		return rc;
	return read_layers(&r, c);
}

/* ---- sizes ---- */

/* Width of a layer's feed-forward layer; experts: how many of its experts count. */
static int64_t ffn_values(const struct model_config *c, int layer, int experts)
{
	const struct config_experts *x = &c->experts;
	return c->layer_sparse[layer] ? (int64_t)experts * x->intermediate + x->shared : c->intermediate;
}

static int64_t layer_weights(const struct model_config *c, int experts)
{
	const int64_t h = c->hidden, q = (int64_t)c->n_heads * c->head_dim,
		      kv = (int64_t)c->n_kv_heads * c->head_dim;
	int64_t sum = 0;
	for (int i = 0; i < c->n_layers; i++) {
		sum += 2 * h * (q + kv) + 3 * h * ffn_values(c, i, experts);
		if (c->layer_sparse[i])
			sum += h * (c->experts.n + c->experts.shared_gate);
	}
	return sum;
}

int64_t model_config_row_macs(const struct model_config *c)
{
	return layer_weights(c, c->experts.n_chosen);
}

int64_t model_config_layer_weights(const struct model_config *c)
{
	return layer_weights(c, c->experts.n);
}

int model_config_ffn_width(const struct model_config *c)
{
	int width = 0;
	for (int i = 0; i < c->n_layers; i++) {
		const int n = c->layer_sparse[i] ? c->experts.shared : c->intermediate;
		width = n > width ? n : width;
	}
	return width;
}
