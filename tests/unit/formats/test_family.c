/* test_family.c - the table of families: its rows are well formed, and docs/MODELS.md lists them.  With
 * QUERN_TEST_UPDATE=1 the page is written. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/config_keys.h"
#include "formats/family.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char begin[] = "<!-- families -->\n", end[] = "<!-- end -->\n";

static bool is_json_or_none(const char *text)
{
	json_t *o = text ? json_loads(text, 0, NULL) : NULL;
	const bool good = !text || json_is_object(o);
	json_decref(o);
	return good;
}

Test(family, rows_are_well_formed)
{
	static const char *const ours[] = {
		"#embed_scale",  "#residual_scale", "#attn_scale", "#attn_cap", "#logit_cap",
		"#logit_scale",  "#qkv_clip",       "#parallel",   "#qk_norm",  "#qkv_bias",
		"#o_bias",       "#mlp_bias",       "#head_bias",  "#rope_dim", "#multi_query",
		"#last_sparse",  "#expert_size",    "#ffn_ratio",  "#alibi",    "#layer_thetas",
		"#router_jitter"};
	const struct family *f;
	for (size_t i = 0; (f = family_at(i)); i++) {
		cr_expect(f->arch && f->type && f->models, "row %zu", i);
		cr_expect(is_json_or_none(f->defaults), "defaults of %s", f->arch);
		cr_expect(is_json_or_none(f->require), "require of %s", f->arch);
		cr_expect(is_json_or_none(f->when), "when of %s", f->arch);
		cr_expect(f->norms[NORM_ATTN] || f->norms[NORM_ATTN_POST], "norms of %s", f->arch);
		for (int k = 0; k < 12 && f->keys[k].ours; k++) {
			bool known = f->keys[k].ours[0] != '#';
			for (size_t j = 0; j < sizeof ours / sizeof *ours; j++)
				known |= strcmp(f->keys[k].ours, ours[j]) == 0;
			cr_expect(known, "key %s of %s", f->keys[k].ours, f->arch);
		}
		if (f->experts)
			cr_expect(f->experts->names[2] || f->experts->stack.down, "experts of %s", f->arch);
	}
}

Test(family, every_architecture_is_found_and_the_first_row_without_conditions)
{
	const struct family *f;
	for (size_t i = 0; (f = family_at(i)); i++) {
		cr_expect_str_eq(family_find(f->arch, NULL)->arch, f->arch);
		cr_expect_str_eq(family_find(NULL, f->type)->type, f->type);
		for (int j = 0; j < 6 && f->also[j] && !f->when; j++)
			cr_expect_eq(family_find(f->also[j], NULL), f, "%s", f->also[j]);
	}
	cr_expect_null(family_find("NoSuchForCausalLM", NULL));
	cr_expect_str_eq(family_find_gguf("llama", true)->arch, "MixtralForCausalLM");
	cr_expect_str_eq(family_find_gguf("llama", false)->arch, "LlamaForCausalLM");
	cr_expect_null(family_find_gguf("nosuch", false));
}

/* Return whether an earlier row has the same models, and so shares a line of the page. */
static bool has_line(size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (strcmp(family_at(j)->models, family_at(i)->models) == 0)
			return true;
	return false;
}

static void put_table(struct buf *b)
{
	const struct family *f, *other;
	buf_printf(b, "%s| models | architecture | in GGUF |\n|---|---|---|\n", begin);
	for (size_t i = 0; (f = family_at(i)); i++) {
		if (has_line(i))
			continue;
		buf_printf(b, "| %s | `%s`", f->models, f->arch);
		for (size_t j = i + 1; (other = family_at(j)); j++)
			if (strcmp(other->models, f->models) == 0 && strcmp(other->arch, f->arch) != 0)
				buf_printf(b, ", `%s`", other->arch);
		if (f->gguf)
			buf_printf(b, " | `%s` |\n", f->gguf->name);
		else
			buf_printf(b, " | - |\n");
	}
	buf_printf(b, "%s", end);
}

Test(family, the_page_lists_the_table)
{
	const char *path = repofile("docs/MODELS.md");
	struct why why;
	char *page;
	size_t n;
	cr_assert_eq(file_read(path, 1 << 20, &page, &n, &why), 0, "%s", why.text);
	char *from = strstr(page, begin), *to = from ? strstr(from, end) : NULL;
	cr_assert(from && to, "docs/MODELS.md has no place for the table");
	to += strlen(end);
	struct buf table = {0};
	put_table(&table);
	const bool same = table.len == (size_t)(to - from) && memcmp(table.p, from, table.len) == 0;
	if (!same && getenv("QUERN_TEST_UPDATE")) {
		FILE *f = fopen(path, "w");
		fwrite(page, 1, (size_t)(from - page), f);
		fwrite(table.p, 1, table.len, f);
		fwrite(to, 1, n - (size_t)(to - page), f);
		fclose(f);
	} else {
		cr_expect(same, "docs/MODELS.md is not what the table of families says: QUERN_TEST_UPDATE=1 "
				"build/tests/unit/formats/test_family writes it");
	}
	buf_fini(&table);
	free(page);
}

/* ---- keys of transformers' classes (tests/golden/make_config_defaults.py) ---- */

/* Return whether the file has the configuration of the row, of one of its other types, or of another row for
 * the same models: a class with a text_config has none of its own. */
static bool has_default(const json_t *all, const struct family *f)
{
	const struct family *other;
	bool has = json_object_get(all, f->type) != NULL;
	for (int j = 0; j < 6 && f->also[j]; j++)
		has |= json_object_get(all, f->also[j]) != NULL;
	for (size_t i = 0; (other = family_at(i)); i++)
		has |= strcmp(other->models, f->models) == 0 && json_object_get(all, other->type);
	return has;
}

Test(family, every_row_has_the_default_configuration_of_its_class)
{
	const struct family *f;
	struct why why = {""};
	json_t *all;
	cr_assert_eq(json_read(repofile("tests/golden/config_defaults.json"), 4 << 20, &all, &why), 0, "%s",
		     why.text);
	for (size_t i = 0; (f = family_at(i)); i++)
		cr_expect(has_default(all, f), "%s: tests/golden/make_config_defaults.py adds it", f->type);
	json_decref(all);
}

static void each_default(void (*f)(const char *path, const char *type, json_t *config))
{
	char dir[] = "/tmp/quern-family-XXXXXX";
	struct why why = {""};
	json_t *all, *config;
	const char *type;
	cr_assert_eq(json_read(repofile("tests/golden/config_defaults.json"), 4 << 20, &all, &why), 0, "%s",
		     why.text);
	cr_assert(mkdtemp(dir));
	char *path = file_join(dir, "config.json");
	json_object_foreach(all, type, config) f(path, type, config);
	cr_assert_eq(remove(path), 0);
	cr_assert_eq(remove(dir), 0);
	free(path);
	json_decref(all);
}

/* Load a config.json, with another value for a key unless it is NULL; takes ownership of the value. */
static int load_with(const char *path, const json_t *config, const char *key, json_t *value,
		     struct model_config *c, struct why *why)
{
	json_t *o = json_copy((json_t *)config);
	if (key)
		json_object_set_new(o, key, value);
	cr_assert_eq(json_dump_file(o, path, 0), 0);
	json_decref(o);
	char *dir = xasprintf("%.*s", (int)(strrchr(path, '/') - path), path);
	const int rc = model_config_load(dir, c, why);
	free(dir);
	return rc;
}

static void all_known(const char *path, const char *type, json_t *config)
{
	struct model_config c;
	struct why why = {""};
	const char *key;
	json_t *v;
	const int rc = load_with(path, config, NULL, NULL, &c, &why);
	cr_expect_eq(rc, 0, "%s: %s", type, why.text);
	if (rc)
		return;
	cr_expect_str_eq(c.unread, "", "%s: %s", type, c.unread);
	model_config_fini(&c);
	json_object_foreach(config, key, v)
	{
		if (!json_is_null(v) || load_with(path, config, key, json_integer(3), &c, &why))
			continue;
		cr_expect_str_eq(c.unread, "", "%s: %s", type, c.unread);
		model_config_fini(&c);
	}
}

/* Every key of a default config.json is read by the family's row, required or harmless: a new key is noticed
 * here, and a row that lacks one.  Of a key whose default is null, another value is, or is refused. */
Test(family, all_keys_of_transformers_defaults_are_known)
{
	each_default(all_known);
}

/* Return whether a key says which model it is or which tokens end a text, or whether the shapes of the
 * tensors must agree with it. */
static bool is_of_the_file(const char *key)
{
	static const char *const keys[] = {"architectures",      "model_type",        "bos_token_id",
					   "eos_token_id",       "intermediate_size", "dff",
					   "num_key_value_heads"};
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

/* Return whether the value is the same one, written otherwise: 1 / sqrt(head_dim), layers that are not read,
 * a tie that the top of a model with other parts decides. */
static bool is_the_same(const char *type, const char *key)
{
	static const char *const same[][2] = {{"hyperclovax", "attention_multiplier"},
					      {"glm4_moe", "num_nextn_predict_layers"},
					      {"qwen3_vl_moe_text", "tie_word_embeddings"}};
	for (size_t i = 0; i < sizeof same / sizeof *same; i++)
		if (strcmp(type, same[i][0]) == 0 && strcmp(key, same[i][1]) == 0)
			return true;
	return false;
}

static void missing_keys_have_defaults(const char *path, const char *type, json_t *config)
{
	struct model_config whole, c;
	struct why why = {""};
	const char *key;
	json_t *v;
	if (load_with(path, config, NULL, NULL, &whole, &why))
		return;
	json_object_foreach(config, key, v)
	{
		json_t *without = json_copy(config);
		json_object_del(without, key);
		if (!is_of_the_file(key) && !is_the_same(type, key) &&
		    load_with(path, without, NULL, NULL, &c, &why) == 0) {
			char *is = json_dumps(v, JSON_ENCODE_ANY);
			cr_expect(memcmp(&c, &whole, sizeof c) == 0, "%s: %s has another default than %s",
				  type, key, is);
			free(is);
			model_config_fini(&c);
		}
		json_decref(without);
	}
	model_config_fini(&whole);
}

/* A config.json that omits a key is the model that it is for transformers, or is refused. */
Test(family, a_key_that_is_missing_has_transformers_default)
{
	each_default(missing_keys_have_defaults);
}

static json_t *another(const json_t *v)
{
	return json_is_boolean(v)   ? json_boolean(!json_is_true(v))
	       : json_is_integer(v) ? json_integer(json_integer_value(v) + 1)
	       : json_is_real(v)    ? json_real(json_real_value(v) * 1.5 + 0.1)
	       : json_is_string(v)  ? json_string("other")
				    : NULL;
}

/* Return whether another key of the default configuration makes the key count or not. */
static bool is_decided_elsewhere(const char *key)
{
	static const char *const keys[] = {"model_type", /* architectures */
					   "use_sliding_window",
					   "max_window_layers",
					   "sliding_window",
					   "sliding_window_pattern",
					   "_sliding_window_pattern",
					   "no_rope_layer_interval", /* lists for each layer */
					   "first_k_dense_replace",
					   "moe_layer_end_index", /* likewise; -1 is the last layer */
					   "num_key_value_heads",
					   "num_kv_heads",                     /* multi_query */
					   "original_max_position_embeddings", /* the type of rope */
					   "rope_theta",                       /* rope_parameters */
					   "norm_topk_prob"};                  /* expert_selection_fn */
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

static void all_count(const char *path, const char *type, json_t *config)
{
	static struct model_config usual, other;
	struct why why = {""};
	const char *key;
	json_t *v;
	cr_assert_eq(load_with(path, config, NULL, NULL, &usual, &why), 0, "%s: %s", type, why.text);
	json_object_foreach(config, key, v)
	{
		json_t *value = another(v);
		if (!value || load_with(path, config, key, value, &other, &why))
			continue;
		cr_expect(config_key_is_harmless(key) || is_decided_elsewhere(key) ||
				  memcmp(&usual, &other, sizeof usual) != 0,
			  "%s: another value of %s changes nothing and is not refused", type, key);
		model_config_fini(&other);
	}
	model_config_fini(&usual);
}

/* No key is read for a family whose row then ignores it. */
Test(family, another_value_of_a_key_changes_the_model_or_is_refused)
{
	each_default(all_count);
}
