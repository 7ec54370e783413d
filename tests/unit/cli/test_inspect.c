/* test_inspect.c - the estimates of `quern inspect MODEL` agree with the kernels. */
#include "cli/inspect.h"
#include "cli/models/report.h"
#include "kernels/kern.h"

#include <criterion/criterion.h>

static void check_type(enum kern_kv_type type, const char *name)
{
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_open_args a = {.kv = type,
				   .max_rows = 1,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 16,
				   .max_blocks_per_seq = 1};
	struct why why;
	cr_assert_eq(kern_find("cpu", &ops, &a.index, &why), 0, "%s", why.text);
	cr_assert_eq(ops->open(&dev, &a, &why), 0, "%s", why.text);
	const int dims[] = {1, 15, 16, 17, 64, 80, 128, 256};
	for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
		struct model_config c = {.n_layers = 5, .n_heads = 3, .n_kv_heads = 3, .head_dim = dims[i]};
		model_config_plan(&c);
		cr_expect_eq(inspect_kv_token_bytes(&c, name),
			     ops->kv_block_bytes(dev, 5, 3, dims[i], 16) / 16, "%s, head_dim %d", name,
			     dims[i]);
	}
	ops->close(dev);
}

Test(inspect, kv_bytes_per_token_are_those_of_the_cpu_kernels)
{
	check_type(KERN_KV_F32, "f32");
	check_type(KERN_KV_BF16, "bf16");
	check_type(KERN_KV_INT16, "int16");
	check_type(KERN_KV_INT8, "int8");
	check_type(KERN_KV_F32, "");
}

/* Each token uses 4 of 8 experts: one sequence reads half of their bytes, two read three quarters. */
Test(inspect, of_experts_a_step_reads_those_that_are_chosen)
{
	const struct weights_linear l = {.n = 32, .k = 64, .dtype = CONFIG_F32, .w = &l};
	struct weights_expert experts[8];
	for (int e = 0; e < 8; e++)
		experts[e] = (struct weights_expert){.gate = l, .up = l, .down = l};
	struct weights_layer layers[] = {{.o = l, .gate = l, .up = l, .down = l},
					 {.o = l, .router = l, .experts = experts, .n_experts = 8}};
	const struct weights w = {.layers = layers, .n_layers = 2, .head = l};
	const struct model_config c = {.n_layers = 2, .experts = {.n = 8, .n_chosen = 4}};
	const int64_t each = 32 * 64 * 4;
	cr_expect_eq(report_step_bytes(&c, &w, "f32", 1), (7 + 12) * each);
	cr_expect_eq(report_step_bytes(&c, &w, "f32", 2), (7 + 18) * each);
}
