/* The plan of a layer: into which operations input scales are folded, for each form of layer. */
#include "quant/layer.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { H = 32, GROUP = 32 };

static float values[H * H];
static struct model_config config;
static struct weights_layer layer;

static void linear(struct weights_linear *l, const char *name)
{
	*l = (struct weights_linear){.n = H, .k = H, .kind = WEIGHTS_DENSE, .dtype = CONFIG_F32, .w = values};
	snprintf(l->name, sizeof l->name, "model.layers.0.%s", name);
}

static void begin(void)
{
	const struct weights_vec norm = {values, CONFIG_F32, H};
	config = (struct model_config){
		.n_layers = 1, .hidden = H, .intermediate = H, .n_heads = 1, .n_kv_heads = 1, .head_dim = H};
	model_config_plan(&config);
	layer = (struct weights_layer){.attn_norm = norm, .ffn_norm = norm};
	linear(&layer.q, "self_attn.q_proj");
	linear(&layer.k, "self_attn.k_proj");
	linear(&layer.v, "self_attn.v_proj");
	linear(&layer.o, "self_attn.o_proj");
	linear(&layer.gate, "mlp.gate_proj");
	linear(&layer.up, "mlp.up_proj");
	linear(&layer.down, "mlp.down_proj");
}

TestSuite(layer, .init = begin);

/* Check the folds of the blocks with the inputs of o, of q, k and v, of down, and of gate and up. */
static void folds(const char *what, enum layer_fold o, enum layer_fold qkv, enum layer_fold down,
		  enum layer_fold gateup)
{
	const enum layer_fold want[] = {o, qkv, down, gateup};
	struct layer_plan p;
	layer_plan_init(&p, &config, &layer, 0, GROUP, NULL, 0);
	cr_assert_eq(p.n_blocks, 4, "%s: %d blocks", what, p.n_blocks);
	for (int i = 0; i < 4; i++)
		cr_expect_eq(p.blocks[i].fold, want[i], "%s: block %d is folded as %d, not %d", what, i,
			     p.blocks[i].fold, want[i]);
	layer_plan_fini(&p);
}

Test(layer, scales_go_to_the_operation_before)
{
	folds("serial", FOLD_ROWS, FOLD_NORM, FOLD_ROWS, FOLD_NORM);
}

Test(layer, scales_are_not_folded_where_that_would_change_the_result)
{
	const struct weights_vec bias = {values, CONFIG_F32, H};
	layer.attn_norm_bias = bias;
	folds("bias of the norm before attention", FOLD_ROWS, FOLD_NONE, FOLD_ROWS, FOLD_NORM);
	begin();
	layer.ffn_norm_bias = bias;
	folds("bias of the norm before the FFN", FOLD_ROWS, FOLD_NORM, FOLD_ROWS, FOLD_NONE);
	begin();
	config.block = BLOCK_PARALLEL;
	layer.ffn_norm = (struct weights_vec){0};
	folds("one norm for attention and the FFN", FOLD_ROWS, FOLD_NONE, FOLD_ROWS, FOLD_NONE);
	begin();
	config.qkv_clip = 1;
	folds("clipped v", FOLD_NONE, FOLD_NORM, FOLD_ROWS, FOLD_NORM);
	begin();
	config.ffn_plain = true;
	layer.gate = (struct weights_linear){0};
	folds("an activation before down", FOLD_ROWS, FOLD_NORM, FOLD_NONE, FOLD_NORM);
}
