#include "quant/convert/hf_experts.h"

#include "base/err.h"
#include "formats/config_experts.h"
#include "formats/family.h"
#include "quant/convert/hf_number.h"

#include <stdio.h>
#include <string.h>

static void put_int(json_t *o, const char *key, int64_t v)
{
	json_object_set_new(o, key, json_integer(v));
}

static int first_sparse(const struct model_config *c)
{
	int i = 0;
	while (i < c->n_layers && !c->layer_sparse[i])
		i++;
	return i;
}

static json_t *dense_layers(const struct model_config *c)
{
	json_t *list = json_array();
	for (int i = 0; i < c->n_layers; i++)
		if (!c->layer_sparse[i])
			json_array_append_new(list, json_integer(i));
	return list;
}

void hf_experts_put(json_t *config, const struct model_config *c)
{
	const struct config_experts *x = &c->experts;
	const struct family_experts *f = family_of(c->arch)->experts;
	if (!f || !x->n)
		return;
	put_int(config, f->n, x->n);
	put_int(config, "num_experts_per_tok", x->n_chosen);
	put_int(config, f->intermediate, x->intermediate);
	if (!f->normalize)
		json_object_set_new(config, "norm_topk_prob", json_boolean(x->normalize));
	if (f->shared_size)
		put_int(config, f->shared_size, x->shared);
	else if (f->shared)
		put_int(config, "n_shared_experts", x->shared / x->intermediate);
	if (f->first_dense)
		put_int(config, "first_k_dense_replace", first_sparse(c));
	if (f->steps) {
		put_int(config, "decoder_sparse_step", 1);
		json_object_set_new(config, "mlp_only_layers", dense_layers(c));
	}
	if (f->deepseek) {
		json_object_set_new(config, "routed_scaling_factor", hf_number((double)x->scale));
		put_int(config, "n_group", x->n_groups ? x->n_groups : 1);
		put_int(config, "topk_group", x->n_groups ? x->groups_chosen : 1);
	}
}

/* ---- what config.json cannot hold ---- */

/* Describe the first property in which the model's a differs from b; false: none. */
static bool difference(const struct model_config *a, const struct model_config *b, char *out, size_t n)
{
	const struct config_experts *x = &a->experts, *y = &b->experts;
	out[0] = '\0';
	if (x->n != y->n || x->n_chosen != y->n_chosen)
		snprintf(out, n, "%d of %d experts for a row", x->n_chosen, x->n);
	else if (x->intermediate != y->intermediate)
		snprintf(out, n, "experts of %d values", x->intermediate);
	else if (x->score != y->score)
		snprintf(out, n, "experts chosen by a %s", x->score == SCORE_SIGMOID ? "sigmoid" : "softmax");
	else if (x->choice_bias != y->choice_bias)
		snprintf(out, n, "%s bias for the choice of experts", x->choice_bias ? "a" : "no");
	else if (x->normalize != y->normalize)
		snprintf(out, n, "weights of experts that are %sdivided by their sum",
			 x->normalize ? "" : "not ");
	else if (x->scale != y->scale)
		snprintf(out, n, "weights of experts that are scaled by %g", (double)x->scale);
	else if (x->n_groups != y->n_groups || x->groups_chosen != y->groups_chosen)
		snprintf(out, n, "experts in %d groups, of which a row has %d", x->n_groups,
			 x->groups_chosen);
	else if (x->shared != y->shared)
		snprintf(out, n, "a shared expert of %d values", x->shared);
	else if (x->shared_gate != y->shared_gate)
		snprintf(out, n, "a shared expert %s a gate", x->shared_gate ? "with" : "without");
	else if (x->router_bias != y->router_bias || x->bias != y->bias)
		snprintf(out, n, "biases of a router or of experts");
	for (int i = 0; !out[0] && i < a->n_layers; i++)
		if (a->layer_sparse[i] != b->layer_sparse[i])
			snprintf(out, n, "%s in layer %d", a->layer_sparse[i] ? "experts" : "no experts", i);
	return out[0] != '\0';
}

int hf_experts_check(const json_t *config, const struct model_config *c, char *why, size_t why_n)
{
	const struct family *f = family_of(c->arch);
	struct model_config back = {.n_layers = c->n_layers, .intermediate = c->intermediate};
	char what[96] = "no experts";
	if (!f->experts)
		return 0;
	json_t *whole = json_copy((json_t *)config);
	json_t *defaults = f->defaults ? json_loads(f->defaults, 0, NULL) : NULL;
	if (defaults)
		json_object_update_missing(whole, defaults);
	int rc = c->experts.n ? config_experts_read(whole, f, &back, why, why_n) : 0;
	if (!rc && (!c->experts.n || difference(c, &back, what, sizeof what)))
		rc = err_why(why, why_n, -ENOTSUP, "the model has %s, which config.json of %s cannot say",
			     what, f->arch);
	json_decref(defaults);
	json_decref(whole);
	return rc;
}
