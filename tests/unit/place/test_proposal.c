/* The placement proposed for a mixture of experts on a GPU: its rules parse, and its bytes add up. */
#include "formats/place/placement.h"
#include "formats/place/proposal.h"
#include "formats/shard.h"

#include <criterion/criterion.h>
#include <string.h>

enum { LAYERS = 6, EXPERTS = 8, CHOSEN = 2, K = 64 };

/* One dense layer, then five with experts; each matrix of 64 x 64 in F16 takes 8 KB. */
static const int64_t each = 2 * K * K;

struct made {
	struct model_config c;
	struct weights w;
	struct weights_layer layers[LAYERS];
	struct weights_expert experts[EXPERTS];
};

static void make(struct made *m, enum config_dtype dtype)
{
	const struct weights_linear l = {.n = K, .k = K, .dtype = dtype, .w = m};
	*m = (struct made){.c = {.n_layers = LAYERS, .n_kv_heads = 1, .head_dim = 16, .max_position = 64},
			   .w = {.n_layers = LAYERS, .layers = m->layers, .head = l}};
	m->c.experts.n = EXPERTS;
	m->c.experts.n_chosen = CHOSEN;
	m->w.embed = (struct weights_vec){m, CONFIG_F16, K * K};
	for (int e = 0; e < EXPERTS; e++)
		m->experts[e] = (struct weights_expert){.gate = l, .up = l, .down = l};
	for (int i = 0; i < LAYERS; i++) {
		m->layers[i] = (struct weights_layer){.q = l, .k = l, .v = l, .o = l};
		m->c.layers[i].sparse = i > 0;
		if (!i)
			m->layers[i].gate = m->layers[i].up = m->layers[i].down = l;
		if (i) {
			m->layers[i].experts = m->experts;
			m->layers[i].n_experts = EXPERTS;
		}
	}
	model_config_plan(&m->c);
}

/* Bytes of the embedding, head, attention and dense layer. */
static const int64_t rest = (1 + 1 + 4 * LAYERS + 3) * each, layer = 3 * EXPERTS * each;

static struct proposal of(const struct made *m, int64_t gpu_bytes)
{
	struct proposal p;
	proposal_make(&p, &m->c, &m->w, gpu_bytes, PACKED_F32);
	cr_expect_eq(p.device_bytes + p.room_bytes, gpu_bytes);
	return p;
}

Test(proposal, a_large_gpu_has_all)
{
	struct made m;
	make(&m, CONFIG_F16);
	const struct proposal p = of(&m, 64 << 20);
	cr_expect(p.fits);
	cr_expect_eq(p.n_sparse, 5);
	cr_expect_eq(p.n_cpu, 0);
	cr_expect_str_empty(p.options);
	cr_expect_eq(p.device_bytes, rest + 5 * layer);
	cr_expect_eq(p.host_bytes, 0);
	cr_expect_eq(p.device_token_bytes, rest - each + 5 * layer * CHOSEN / EXPERTS);
}

/* A GPU stores the embedding in 16 bits, even if the file has it quantized or in F32. A tied embedding is
 * also the head. */
Test(proposal, an_embedding_takes_16_bits_for_a_value)
{
	struct made m;
	make(&m, CONFIG_F16);
	m.w.embed.dtype = CONFIG_F32;
	cr_expect_eq(of(&m, 64 << 20).device_bytes, rest + 5 * layer);
	m.w.embed.data = NULL;
	m.w.embed_codes = m.w.head;
	const struct proposal p = of(&m, 64 << 20);
	cr_expect_eq(p.device_bytes, rest + 5 * layer);
	cr_expect_eq(p.device_token_bytes, rest - each + 5 * layer * CHOSEN / EXPERTS);
}

Test(proposal, what_does_not_fit_is_left_to_the_host)
{
	struct made m;
	make(&m, CONFIG_F16);
	const int64_t kv = 4 * LAYERS * 16 * 64;
	/* A sixteenth stays free: the rest holds two layers' experts and everything else, but no third
	 * layer's. */
	const int64_t bytes = (rest + 2 * layer + kv) / 15 * 16 + 4096;
	const struct proposal p = of(&m, bytes);
	struct placement placed;
	struct why why = {""};
	cr_expect(p.fits);
	cr_expect_eq(p.n_cpu, 3);
	cr_expect_str_eq(p.options, "--place layers.1-2.experts=cuda,*.experts=cpu");
	cr_assert_eq(placement_parse(&placed, strchr(p.options, ' ') + 1, "cuda:0", &m.c, &why), 0, "%s",
		     why.text);
	cr_expect_eq(placed.n_cpu, 3);
	cr_expect(!placed.cpu[1] && !placed.cpu[2] && placed.cpu[3]);
	cr_expect_eq(p.host_bytes, 3 * packed_experts(&m.layers[1], NULL, PACKED_F32));
	cr_expect_eq(p.host_token_bytes, p.host_bytes / EXPERTS * CHOSEN);
	cr_expect_eq(p.hot_bytes, 2 * layer);
}

Test(proposal, a_small_gpu_has_no_experts)
{
	struct made m;
	make(&m, CONFIG_F32); /* 16 bits on the GPU */
	const struct proposal p = of(&m, (rest + layer) / 15 * 16), none = of(&m, rest);
	cr_expect(p.fits);
	cr_expect_eq(p.n_cpu, 5);
	cr_expect_str_eq(p.options, "--experts cpu");
	cr_expect_eq(p.hot_bytes, 0);
	cr_expect(!none.fits);
}

/* The proposed rule is one range, so layers after it stay on the host even if they would fit. */
Test(proposal, layers_on_the_device_are_those_before_the_first_that_does_not_fit)
{
	struct made m;
	struct weights_expert wide[EXPERTS];
	make(&m, CONFIG_F16);
	const struct weights_linear l = {.n = 4 * K, .k = K, .dtype = CONFIG_F16, .w = &m};
	for (int e = 0; e < EXPERTS; e++)
		wide[e] = (struct weights_expert){.gate = l, .up = l, .down = l};
	m.layers[2].experts = wide;
	const int64_t kv = 4 * LAYERS * 16 * 64;
	const struct proposal p = of(&m, (rest + 3 * layer + kv) / 15 * 16 + 4096);
	cr_expect(p.fits);
	cr_expect_eq(p.n_cpu, 4);
	cr_expect_str_eq(p.options, "--place layers.1-1.experts=cuda,*.experts=cpu");
	cr_expect_eq(p.device_bytes, rest + layer);
}

Test(proposal, a_tied_embedding_is_read_as_the_head)
{
	struct made m;
	make(&m, CONFIG_F16);
	m.w.head = (struct weights_linear){0};
	const struct proposal p = of(&m, 64 << 20);
	cr_expect_eq(p.device_bytes, rest - each + 5 * layer);
	cr_expect_eq(p.device_token_bytes, rest - each + 5 * layer * CHOSEN / EXPERTS);
}
