/* Kinds of layers: which layers share blocks, and how many a block holds. */
#include "formats/config.h"

#include <criterion/criterion.h>

static struct model_config model;
static struct config_kinds got;

/* Cut n layers, of which every `full`-th has no window (0: none has), for a context. */
static void cut(int n, int full, int window, uint32_t context)
{
	model.n_layers = n;
	for (int i = 0; i < n; i++)
		model.layers[i].window = full && (i + 1) % full == 0 ? 0 : window;
	model_config_kinds(&model, context, &got);
	/* Each layer has a place of its own in a kind with its window. */
	bool used[KINDS_MAX][CONFIG_LAYERS_MAX] = {{false}};
	for (int i = 0; i < n; i++) {
		bool *place = &used[got.kind[i]][got.place[i]];
		cr_assert(got.kind[i] < got.kinds.n && got.place[i] < got.n_layers && !*place, "layer %d", i);
		*place = true;
		if (got.kinds.n > 1)
			cr_expect_eq(got.kinds.window[got.kind[i]], (uint32_t)model.layers[i].window,
				     "layer %d", i);
	}
}

Test(config_kinds, windows_and_full_attention_are_cut_into_kinds_of_equal_size)
{
	cut(24, 2, 128, 131072); /* gpt-oss-20b */
	cr_expect(got.kinds.n == 2 && got.n_layers == 12);
	cr_expect(got.kinds.window[0] == 0 && got.kinds.window[1] == 128);
	cut(62, 6, 1024, 131072); /* Gemma 3 27B: 10 full layers */
	cr_expect(got.kinds.n == 6 && got.n_layers == 11, "%u kinds of %d", got.kinds.n, got.n_layers);
	cut(48, 6, 1024, 131072); /* Gemma 3 12B */
	cr_expect(got.kinds.n == 6 && got.n_layers == 8);
	cut(42, 2, 4096, 8192); /* Gemma 2 9B */
	cr_expect(got.kinds.n == 2 && got.n_layers == 21);
}

Test(config_kinds, alike_layers_are_one_kind)
{
	cut(28, 1, 0, 40960);
	cr_expect(got.kinds.n == 1 && got.n_layers == 28 && got.kinds.window[0] == 0);
	cut(32, 0, 4096, 32768); /* Mistral 7B v0.1 */
	cr_expect(got.kinds.n == 1 && got.n_layers == 32 && got.kinds.window[0] == 4096);
}

Test(config_kinds, a_window_of_the_whole_context_is_none)
{
	cut(32, 0, 4096, 4096);
	cr_expect(got.kinds.n == 1 && got.kinds.window[0] == 0);
	cut(24, 2, 128, 100);
	cr_expect(got.kinds.n == 1 && got.n_layers == 24 && got.kinds.window[0] == 0);
}

/* With a context of little more than the window, unused places would cost more than windows save. */
Test(config_kinds, windows_that_save_nothing_are_not_cut)
{
	cut(5, 5, 1000, 1001);
	cr_expect(got.kinds.n == 1 && got.n_layers == 5);
}
