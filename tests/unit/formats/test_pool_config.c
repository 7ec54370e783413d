/* Embedding models: how config.json and the modules beside it say that a model pools. */
#include "formats/pool_config.h"

#include "formats/family.h"
#include "tests/unit/formats/config_dir.h"

#include <errno.h>
#include <sys/stat.h>

TestSuite(pool_config, .init = make_dir, .fini = remove_dir);

#define MODULE(type, path) "{\"type\": \"sentence_transformers.models." type "\", \"path\": \"" path "\"}"

static int load_modules(const char *modules, const char *pooling)
{
	char folder[80];
	snprintf(folder, sizeof folder, "%s/1_Pooling", dir);
	mkdir(folder, 0700);
	put("modules.json", modules);
	put("1_Pooling/config.json", pooling);
	model_config_fini(&c);
	put_with("{}");
	return model_config_load(dir, &c, &why);
}

Test(pool_config, an_embedding_model_says_how_it_pools)
{
	static const char all[] = "[" MODULE("Transformer", "") ", " MODULE(
		"Pooling", "1_Pooling") ", " MODULE("Normalize", "2_Normalize") "]",
			  plain[] = "[" MODULE("Transformer", "") ", " MODULE("Pooling", "1_Pooling") "]",
			  dense[] = "[" MODULE("Pooling", "1_Pooling") ", " MODULE("Dense", "2_Dense") "]";
	const struct {
		const char *modules, *pooling;
		enum config_pool pool;
		bool plain;
		const char *why;
	} cases[] = {
		{all, "{\"pooling_mode_lasttoken\": true, \"pooling_mode_mean_tokens\": false}",
		 CONFIG_POOL_LAST, false, ""},
		{all, "{\"pooling_mode_mean_tokens\": true}", CONFIG_POOL_MEAN, false, ""},
		{plain, "{\"pooling_mode\": \"mean\"}", CONFIG_POOL_MEAN, true, ""},
		{plain, "{\"pooling_mode\": \"max\"}", CONFIG_POOL_OTHER, true, "pooling_mode max"},
		{all, "{\"pooling_mode_cls_token\": true}", CONFIG_POOL_OTHER, false,
		 "pooling_mode_cls_token"},
		{all, "{\"pooling_mode_lasttoken\": true, \"pooling_mode_mean_tokens\": true}",
		 CONFIG_POOL_OTHER, false, "several ways at once"},
		{dense, "{\"pooling_mode_lasttoken\": true}", CONFIG_POOL_OTHER, true, "a module Dense"},
	};
	put_with("{}");
	cr_assert_eq(model_config_load(dir, &c, &why), 0, "%s", why.text);
	cr_expect(!c.embeds && !c.pool_plain && c.pool == CONFIG_POOL_NONE);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cr_assert_eq(load_modules(cases[i].modules, cases[i].pooling), 0, "%zu: %s", i, why.text);
		cr_expect(c.embeds, "%zu", i);
		cr_expect_eq(c.pool, cases[i].pool, "%zu", i);
		cr_expect_eq(c.pool_plain, cases[i].plain, "%zu", i);
		cr_expect_str_eq(c.pool_why, cases[i].why, "%zu", i);
	}
}

Test(pool_config, modules_that_are_malformed_are_named)
{
	const struct {
		const char *modules, *pooling, *why;
	} cases[] = {
		{"{}", "{}", "modules.json: not a list"},
		{"[3]", "{}", "modules.json: not a list of objects"},
		{"[{\"type\": 5}]", "{}", "modules.json: type must be a string"},
		{"[" MODULE("Pooling", "1_Pooling") "]", "[3]", "1_Pooling/config.json"},
		{"[", "{}", "modules.json"},
		{"[" MODULE("Pooling", "../x") "]", "{}", "\"../x\" is not a folder's name"},
		{"[" MODULE("Pooling", "") "]", "{}", "is not a folder's name"},
		{"[" MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode_lasttoken\": 3}",
		 "1_Pooling/config.json: pooling_mode_lasttoken"},
		{"[" MODULE("Pooling", "1_Pooling") "]", "[", "1_Pooling/config.json"},
		{"[" MODULE("Pooling", "2_Pooling") "]", "{}", "2_Pooling/config.json"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cr_expect_neq(load_modules(cases[i].modules, cases[i].pooling), 0, "%zu", i);
		cr_expect(strstr(why.text, cases[i].why), "%zu: \"%s\" does not say \"%s\"", i, why.text,
			  cases[i].why);
	}
}

Test(pool_config, a_decoder_without_a_head_is_an_embedding_model)
{
	put_with("{\"architectures\": [\"LlamaModel\"]}");
	cr_assert_eq(model_config_load(dir, &c, &why), 0, "%s", why.text);
	cr_expect(c.embeds);
	cr_expect_str_eq(c.family->type, "llama");
	model_config_fini(&c);
	put_with("{\"architectures\": [\"BertModel\"]}");
	cr_expect_eq(model_config_load(dir, &c, &why), -ENOTSUP);
}
