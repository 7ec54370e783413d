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
		c->layers[json_integer_value(v)].sparse = 0;
	}
	return 0;
}

/* Read mlp_layer_types: "sparse" or "dense" for each layer. */
static int read_types(const struct reader *r, const json_t *list, struct model_config *c)
{
	if (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layers)
		return err_why(r->why, -EINVAL, "mlp_layer_types must be a list of %d names", c->n_layers);
	for (int i = 0; i < c->n_layers; i++) {
		const char *t = json_string_value(json_array_get(list, (size_t)i));
		c->layers[i].sparse = t && strcmp(t, "sparse") == 0;
		if (!t || (!c->layers[i].sparse && strcmp(t, "dense") != 0))
			return err_why(r->why, -ENOTSUP, "mlp_layer_types[%d] %.40s is not supported", i,
				       t ? t : "(not a string)");
	}
	return 0;
}

/* Mark the layers with experts.  mlp_layer_types comes before the older keys. */
static int read_layers(const struct reader *r, struct model_config *c)
{
	int step = 1, dense = 0, last = -1, rc;
	const json_t *types = json_get(r->root, "mlp_layer_types");
	if (types)
		return read_types(r, types, c);
	if (r->f->steps && (rc = get_int(r, "decoder_sparse_step", 1, 1 << 20, &step)))
		return rc;
	if (r->f->first_dense && (rc = get_int(r, "first_k_dense_replace", 0, 1 << 20, &dense)))
		return rc;
	if ((rc = get_int(r, "#last_sparse", -1, 1 << 20, &last)))
		return rc;
	last = last < 0 ? c->n_layers - 1 : last;
	for (int i = 0; i < c->n_layers; i++)
		c->layers[i].sparse = i >= dense && i <= last && (i + 1) % step == 0;
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

/* Read the rules that some families name by words.  half: the outputs are averaged with those of the shared
 * expert. */
static int read_words(const struct reader *r, struct config_experts *x, bool *half)
{
	const char *choice = "softmax", *sum = "average";
	int rc;
	if ((rc = json_get_str(r->root, "expert_selection_fn", &choice, r->why)) ||
	    (rc = json_get_str(r->root, "shared_expert_combination_strategy", &sum, r->why)))
		return rc;
	*half = strcmp(sum, "average") == 0;
	if (!*half && strcmp(sum, "sum") != 0)
		return err_why(r->why, -ENOTSUP, "shared_expert_combination_strategy %.40s is not supported",
			       sum);
	x->score = strcmp(choice, "sigmoid") == 0 ? SCORE_SIGMOID : SCORE_SOFTMAX;
	x->normalize = true; /* equals a softmax over the chosen experts only */
	if (x->score == SCORE_SIGMOID)
		return json_get_bool(r->root, "norm_topk_prob", &x->normalize, r->why);
	return strcmp(choice, "softmax") == 0
		       ? 0
		       : err_why(r->why, -ENOTSUP, "expert_selection_fn %.40s is not supported", choice);
}

/* Read the routing rule. */
static int read_rule(const struct reader *r, struct config_experts *x)
{
	double scale = 1, jitter = 0;
	int rc;
	x->normalize = r->f->normalize == NORMALIZE_ALWAYS;
	x->router_bias = x->bias = r->f->bias;
	x->scale = 1;
	x->score = r->f->score;
	x->choice_bias = r->f->choice != NULL;
	if (r->f->normalize == NORMALIZE_BY_KEY &&
	    (rc = json_get_bool(r->root, "norm_topk_prob", &x->normalize, r->why)))
		return rc;
	if (r->f->scaled && (rc = json_get_num(r->root, "routed_scaling_factor", &scale, r->why)))
		return rc;
	if (!(scale > 0 && scale <= 1e6))
		return err_why(r->why, -EINVAL, "routed_scaling_factor is %g, must be from 0 to 1e6", scale);
	if ((rc = json_get_num(r->root, "#router_jitter", &jitter, r->why)))
		return rc;
	if (!(jitter >= 0 && jitter <= 1))
		return err_why(r->why, -EINVAL, "#router_jitter is %g, must be from 0 to 1", jitter);
	x->jitter = (float)jitter;
	x->scale = (float)scale;
	return r->f->groups ? read_groups(r, x) : 0;
}

int config_experts_read(const json_t *root, const struct family *f, struct model_config *c, struct why *why)
{
	const struct reader r = {.root = root, .f = f->experts, .why = why};
	struct config_experts *x = &c->experts;
	int rc;
	if (!f->experts)
		return 0;
	if ((rc = need_int(&r, f->experts->n, 1, CONFIG_EXPERTS_MAX, &x->n)) ||
	    (rc = need_int(&r, "num_experts_per_tok", 1, CONFIG_CHOSEN_MAX, &x->n_chosen)) ||
	    (rc = need_int(&r, f->experts->intermediate, 1, 1 << 20, &x->intermediate)))
		return rc;
	if (x->n_chosen > x->n)
		return err_why(why, -EINVAL, "num_experts_per_tok is %d, of %d experts", x->n_chosen, x->n);
	bool half = false;
	if ((rc = read_rule(&r, x)) || (f->experts->selection && (rc = read_words(&r, x, &half))) ||
	    (rc = read_shared(&r, x)))
		return rc;
	if (half && x->shared) {
		x->scale /= 2;
		x->shared_scale = 0.5f;
	}
	if ((rc = read_layers(&r, c)))
		return rc;
	for (int i = 0; i < c->n_layers && !c->intermediate; i++)
		if (!c->layers[i].sparse)
			return err_why(why, -EINVAL, "intermediate_size is missing, and layer %d is dense",
				       i);
	return 0;
}

/* ---- the plan, and sizes ---- */

void model_config_plan(struct model_config *c)
{
	for (int i = 0; i < c->n_layers; i++) {
		struct config_layer *l = &c->layers[i];
		l->heads = l->heads ? l->heads : c->n_heads;
		l->kv_heads = l->kv_heads ? l->kv_heads : c->n_kv_heads;
		l->dim = l->dim ? l->dim : c->head_dim;
		l->inter = l->sparse ? c->experts.shared : c->intermediate;
	}
}

/* Return the weights of all layers; experts: how many experts of a layer count. */
static int64_t layer_weights(const struct model_config *c, int experts)
{
	const int64_t h = c->hidden, matrices = c->ffn_plain ? 2 : 3;
	int64_t sum = 0;
	for (int i = 0; i < c->n_layers; i++) {
		const struct config_layer *l = &c->layers[i];
		sum += 2 * h * l->dim * (l->heads + l->kv_heads) + matrices * h * l->inter;
		if (l->sparse)
			sum += matrices * h * experts * c->experts.intermediate +
			       h * (c->experts.n + c->experts.shared_gate);
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

int64_t model_config_kv_values(const struct model_config *c)
{
	int64_t n = 0;
	for (int i = 0; i < c->n_layers; i++)
		n += 2 * c->layers[i].kv_heads * c->layers[i].dim;
	return n;
}

int model_config_ffn_width(const struct model_config *c)
{
	int width = 0;
	for (int i = 0; i < c->n_layers; i++)
		width = c->layers[i].inter > width ? c->layers[i].inter : width;
	return width;
}
