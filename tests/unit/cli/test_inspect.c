/* test_inspect.c - what `quern inspect MODEL` computes without the kernels agrees with them. */
#include "cli/inspect.h"
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
	char why[256];
	cr_assert_eq(kern_find("cpu", &ops, &a.index, why, sizeof why), 0, "%s", why);
	cr_assert_eq(ops->open(&dev, &a, why, sizeof why), 0, "%s", why);
	const int dims[] = {1, 15, 16, 17, 64, 80, 128, 256};
	for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
		const struct model_config c = {.n_layers = 5, .n_kv_heads = 3, .head_dim = dims[i]};
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
