/* What is proposed for a mixture beside a GPU: rules that its reader takes, and bytes that add up. */
#include "formats/place/placement.h"
#include "formats/place/proposal.h"
#include "formats/shard.h"

#include <criterion/criterion.h>
#include <string.h>

enum { LAYERS = 6, EXPERTS = 8, CHOSEN = 2, K = 64 };

/* A dense layer, then five with experts; each matrix of 64 x 64 in F16 takes 8 KB. */
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
		m->c.layer_sparse[i] = i > 0;
		if (!i)
			m->layers[i].gate = m->layers[i].up = m->layers[i].down = l;
		if (i) {
			m->layers[i].experts = m->experts;
			m->layers[i].n_experts = EXPERTS;
		}
	}
}

/* Embedding, head, attention, the dense layer. */
static const int64_t rest = (1 + 1 + 4 * LAYERS + 3) * each, layer = 3 * EXPERTS * each;

static struct proposal of(const struct made *m, int64_t gpu_bytes)
{
	struct proposal p;
	proposal_make(&p, &m->c, &m->w, gpu_bytes, KEPT_F32);
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

/* A GPU has it in 16 bits, quantized or F32 as it may be in the file; a tied one is its own head. */
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
	/* A sixteenth stays free: two layers' experts and all else, and not a third's. */
	const int64_t bytes = (rest + 2 * layer + kv) / 15 * 16 + 4096;
	const struct proposal p = of(&m, bytes);
	struct placement placed;
	char why[256] = "";
	cr_expect(p.fits);
	cr_expect_eq(p.n_cpu, 3);
	cr_expect_str_eq(p.options, "--place layers.1-2.experts=cuda,*.experts=cpu");
	cr_assert_eq(placement_parse(&placed, strchr(p.options, ' ') + 1, "cuda:0", &m.c, why, sizeof why), 0,
		     "%s", why);
	cr_expect_eq(placed.n_cpu, 3);
	cr_expect(!placed.cpu[1] && !placed.cpu[2] && placed.cpu[3]);
	cr_expect_eq(p.host_bytes, 3 * kept_experts(&m.layers[1], NULL, KEPT_F32));
	cr_expect_eq(p.host_token_bytes, p.host_bytes / EXPERTS * CHOSEN);
	cr_expect_eq(p.hot_bytes, 2 * layer);
}

Test(proposal, a_small_gpu_has_no_experts)
{
	struct made m;
	make(&m, CONFIG_F32); /* there in 16 bits */
	const struct proposal p = of(&m, (rest + layer) / 15 * 16), none = of(&m, rest);
	cr_expect(p.fits);
	cr_expect_eq(p.n_cpu, 5);
	cr_expect_str_eq(p.options, "--experts cpu");
	cr_expect_eq(p.hot_bytes, 0);
	cr_expect(!none.fits);
}
