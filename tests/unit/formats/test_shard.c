/* test_shard.c - parts of quantized layers, compared with the same parts of the whole layer. */
#include "formats/shard.h"

#include "base/alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(shard, .timeout = 20);

enum { N = 6, K = 192, GROUP = 16, SUPER = 64 };

/* Each value encodes its position. */
static void read_places(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const int groups = codes_groups(c), supers = codes_supers(c);
	for (int n = n0; n < n1; n++) {
		for (int i = 0; i < c->k; i++)
			out->code[(n - n0) * c->k + i] = (uint8_t)((n * 31 + i) % 16);
		for (int g = 0; g < groups; g++) {
			out->scale[(n - n0) * groups + g] = (int16_t)(1 + n + g * 3);
			out->offset[(n - n0) * groups + g] = (int16_t)(n + g);
		}
		for (int s = 0; s < supers; s++) {
			out->d[(n - n0) * supers + s] = 0.25f * (float)(1 + s + n);
			if (c->minimums)
				out->dmin[(n - n0) * supers + s] = 0.5f * (float)(2 + s + n);
		}
	}
}

static struct weights_linear layer_of(bool minimums, int group, int super)
{
	return (struct weights_linear){
		.name = "x",
		.n = N,
		.k = K,
		.kind = WEIGHTS_CODES,
		.w = "",
		.bytes = N * K / 2,
		.codes = {.n = N,
			  .k = K,
			  .bits = 4,
			  .group = group,
			  .super = super,
			  .minimums = minimums,
			  .zero = -1,
			  .read = read_places},
	};
}

static void check_cut(const struct weights_linear *whole, struct shard_cut cut)
{
	const struct shard s = {.n_ranks = 2};
	struct weights_linear part;
	void *copy;
	float *all = xmalloc((size_t)N * K * 4), *some = xmalloc((size_t)cut.n * (size_t)cut.k * 4);
	shard_linear(&s, whole, cut, &part, &copy);
	cr_assert_null(copy);
	cr_expect(part.codes.n == cut.n && part.codes.k == cut.k);
	cr_expect_eq(part.bytes, (size_t)cut.n * (size_t)cut.k / 2);
	codes_floats(&whole->codes, 0, N, all);
	for (int n0 = 0; n0 < cut.n; n0 += 2) {
		const int n1 = n0 + 2 < cut.n ? n0 + 2 : cut.n;
		codes_floats(&part.codes, n0, n1, some + n0 * cut.k);
	}
	for (int n = 0; n < cut.n; n++)
		cr_expect_arr_eq(some + n * cut.k, all + (cut.n0 + n) * K + cut.k0, (size_t)cut.k * 4,
				 "output %d of %d+%d, inputs %d+%d", n, cut.n0, cut.n, cut.k0, cut.k);
	free(all);
	free(some);
}

Test(shard, codes_are_cut_by_outputs_and_at_super_groups)
{
	for (int minimums = 0; minimums < 2; minimums++) {
		const struct weights_linear l = layer_of(minimums, GROUP, SUPER);
		check_cut(&l, (struct shard_cut){0, N, 0, K});
		check_cut(&l, (struct shard_cut){1, 3, 0, K});
		check_cut(&l, (struct shard_cut){5, 1, 0, K});
		check_cut(&l, (struct shard_cut){0, N, 64, 64});
		check_cut(&l, (struct shard_cut){2, 4, 128, 64});
	}
}

Test(shard, codes_with_one_scale_for_a_row_are_cut_anywhere)
{
	const struct weights_linear rows = layer_of(false, K, K), groups = layer_of(true, GROUP, K);
	check_cut(&rows, (struct shard_cut){0, N, 7, 101});
	check_cut(&rows, (struct shard_cut){3, 2, 96, 96});
	check_cut(&groups, (struct shard_cut){0, N, 48, 80});
}

Test(shard, codes_are_not_cut_within_a_group_or_by_permuted_inputs)
{
	static int32_t perm[K];
	struct weights_linear l = layer_of(false, GROUP, SUPER);
	cr_expect(codes_can_cut(&l.codes, 0, 64) && codes_can_cut(&l.codes, 64, 128));
	cr_expect(!codes_can_cut(&l.codes, 0, 32) && !codes_can_cut(&l.codes, 32, 160));
	l.codes.super = K;
	cr_expect(codes_can_cut(&l.codes, 0, 32) && !codes_can_cut(&l.codes, 0, 24));
	cr_expect(!codes_can_cut(&l.codes, 24, K - 24));
	l.codes.perm = perm;
	cr_expect(!codes_can_cut(&l.codes, 0, 32) && codes_can_cut(&l.codes, 0, K));
}

/* ---- experts distributed over ranks ---- */

enum { EXPERTS = 5, INTER = 40 };

/* A layer of F16 experts with sizes that no number of ranks divides evenly. */
static void mixture(struct weights *w, struct weights_layer *layer, struct weights_expert *experts,
		    struct model_config *c)
{
	static const uint16_t bytes[INTER * N];
	const struct weights_linear
		wide = {.name = "gate", .w = bytes, .n = INTER, .k = N, .dtype = CONFIG_F16},
		down = {.name = "down", .w = bytes, .n = N, .k = INTER, .dtype = CONFIG_F16};
	for (int e = 0; e < EXPERTS; e++)
		experts[e] = (struct weights_expert){.gate = wide, .up = wide, .down = down};
	*layer = (struct weights_layer){.experts = experts, .n_experts = EXPERTS};
	*w = (struct weights){.layers = layer, .n_layers = 1};
	*c = (struct model_config){.n_heads = 12,
				   .n_kv_heads = 12,
				   .head_dim = 48,
				   .hidden = N,
				   .n_vocab = 64,
				   .n_layers = 1,
				   .layers = {{.sparse = true}},
				   .experts = {.n = EXPERTS, .n_chosen = 2, .intermediate = INTER}};
	model_config_plan(c);
}

Test(shard, experts_are_dealt_out_whole)
{
	static struct weights_expert experts[EXPERTS];
	static struct weights_layer layer;
	static struct model_config c;
	struct weights w;
	struct why why;
	mixture(&w, &layer, experts, &c);
	for (int n = 2; n <= 4; n++) {
		int owners[EXPERTS] = {0};
		for (int r = 0; r < n; r++) {
			struct shard s;
			int has = 0;
			cr_assert_eq(shard_init(&s, &c, &w, (struct shard_rank){r, n, true}, &why), 0, "%s",
				     why.text);
			for (int e = 0; e < EXPERTS; e++) {
				owners[e] += shard_has_expert(&s, e);
				has += shard_has_expert(&s, e);
			}
			cr_expect_eq(shard_n_experts(&s, EXPERTS), has);
			cr_expect(has == EXPERTS / n || has == EXPERTS / n + 1);
			/* A rank reads its own experts only. */
			cr_expect_eq(shard_bytes(&s, &c, &w), (int64_t)has * 3 * N * INTER * 2);
			const struct shard_cut cut =
				shard_cut(&s, NULL, shard_of_gateup(&s), &experts[0].gate);
			cr_expect(cut.n0 == 0 && cut.n == INTER && cut.k0 == 0 && cut.k == N);
		}
		for (int e = 0; e < EXPERTS; e++)
			cr_expect_eq(owners[e], 1, "expert %d of %d ranks", e, n);
	}
}

static void not_dealt(const struct model_config *c, const struct weights *w, int n, const char *reason)
{
	struct shard s;
	struct why why = {""};
	cr_expect_eq(shard_init(&s, c, w, (struct shard_rank){0, n, true}, &why), -EINVAL);
	cr_expect_not_null(strstr(why.text, reason), "\"%s\" does not say \"%s\"", why.text, reason);
}

Test(shard, experts_that_cannot_be_dealt_out_are_named)
{
	static struct weights_expert experts[EXPERTS];
	static struct weights_layer layer;
	static struct model_config c;
	struct weights w;
	struct shard s;
	struct why why;
	mixture(&w, &layer, experts, &c);
	not_dealt(&c, &w, 6, "--tp 6 --ep: there are only 5 experts, and some ranks would have none");
	not_dealt(&c, &w, 6, "; possible: --tp 2, 3, 4");
	cr_expect_eq(shard_init(&s, &c, &w, (struct shard_rank){0, 3, false}, &why), -EINVAL);
	cr_expect_not_null(strstr(why.text, "an expert's intermediate size is 40, not a multiple of 3"), "%s",
			   why.text);
	c.experts.n = 0;
	not_dealt(&c, &w, 2, "the model is no mixture of experts");
	c.experts.n = EXPERTS;
	not_dealt(&c, &w, 1, "give --tp N");
}

Test(shard, layers_of_codes_that_cannot_be_cut_are_named)
{
	static int32_t perm[K];
	struct weights_layer layer = {0};
	struct weights_linear *all[] = {&layer.q,    &layer.k,  &layer.v,   &layer.o,
					&layer.gate, &layer.up, &layer.down};
	const struct weights w = {.layers = &layer, .n_layers = 1};
	struct model_config c = {.n_layers = 1,
				 .n_heads = 4,
				 .n_kv_heads = 4,
				 .head_dim = 48,
				 .hidden = N,
				 .intermediate = K,
				 .n_vocab = 64};
	model_config_plan(&c);
	struct shard s;
	struct why why;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		*all[i] = layer_of(false, GROUP, SUPER);
	snprintf(layer.down.name, sizeof layer.down.name, "%s", "down");
	layer.o.codes.super = K;
	cr_expect_eq(shard_init(&s, &c, &w, (struct shard_rank){0, 2, false}, &why), -EINVAL);
	cr_expect_not_null(
		strstr(why.text, "the 192 inputs of down cannot be cut into 2 parts of whole groups of 64"),
		"%s", why.text);
	layer.down.codes.super = 32;
	cr_expect_eq(shard_init(&s, &c, &w, (struct shard_rank){0, 2, false}, &why), 0, "%s", why.text);
	layer.down.codes.perm = perm;
	cr_expect_eq(shard_init(&s, &c, &w, (struct shard_rank){0, 2, false}, &why), -ENOTSUP);
	cr_expect_not_null(strstr(why.text, "down has its inputs in an order of its own"), "%s", why.text);
}

/* Two layers with different attention and FFN: a rank's plan and its cuts follow the layer. */
Test(shard, each_layer_is_cut_by_its_own_plan)
{
	static struct model_config c, part;
	struct weights_layer layers[2] = {0};
	const struct weights w = {.layers = layers, .n_layers = 2};
	struct shard s;
	struct why why;
	c = (struct model_config){.n_layers = 2,
				  .n_heads = 8,
				  .n_kv_heads = 2,
				  .head_dim = 16,
				  .intermediate = 96,
				  .hidden = 64,
				  .n_vocab = 64,
				  .layers = {{.heads = 4, .kv_heads = 4, .dim = 32, .window = 7}}};
	model_config_plan(&c);
	cr_assert_eq(shard_init(&s, &c, &w, (struct shard_rank){1, 2, false}, &why), 0, "%s", why.text);
	shard_config(&s, &c, &part);
	const struct config_layer *a = &part.layers[0], *b = &part.layers[1];
	cr_expect(a->heads == 2 && a->head0 == 2 && a->kv_heads == 2 && a->kv_head0 == 2 && a->dim == 32);
	cr_expect(a->window == 7 && a->inter == 48);
	cr_expect(b->heads == 4 && b->head0 == 4 && b->kv_heads == 1 && b->kv_head0 == 1 && b->dim == 16);
	cr_expect(b->window == 0 && b->inter == 48);
	const struct weights_linear l = {.n = 128, .k = 64};
	const struct shard_cut q = shard_cut(&s, b, SHARD_Q, &l), o = shard_cut(&s, a, SHARD_O, &l);
	cr_expect(q.n0 == 64 && q.n == 64 && q.k0 == 0 && q.k == 64);
	cr_expect(o.n0 == 0 && o.n == 128 && o.k0 == 64 && o.k == 64);
	/* One layer that cannot be cut is enough. */
	c.layers[1].inter = 97;
	cr_expect_eq(shard_init(&s, &c, &w, (struct shard_rank){0, 2, false}, &why), -EINVAL);
	cr_expect(strstr(why.text, "intermediate_size is 97, not a multiple of 2"), "%s", why.text);
}
