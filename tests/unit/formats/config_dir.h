/* config_dir.h - for tests of config.json and the files beside it: a directory with a configuration. */
#ifndef QUERN_TESTS_UNIT_FORMATS_CONFIG_DIR_H
#define QUERN_TESTS_UNIT_FORMATS_CONFIG_DIR_H

#include "base/json.h"
#include "formats/config.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];
static struct why why;
static struct model_config c;

static void make_dir(void)
{
	strcpy(dir, "/tmp/quern-config-XXXXXX");
	cr_assert(mkdtemp(dir));
}

static void put(const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
}

static void remove_dir(void)
{
	const char *names[] = {"config.json", "generation_config.json", "modules.json",
			       "1_Pooling/config.json", "1_Pooling"};
	for (int i = 0; i < 5; i++) {
		char path[128];
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		remove(path);
	}
	rmdir(dir);
	model_config_fini(&c);
}

/* Write the config of a small Llama with some keys replaced or added (null removes a key). */
static void put_with(const char *more)
{
	json_t *o = json_loads(
		"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64,"
		"\"intermediate_size\": 172, \"num_hidden_layers\": 5, \"num_attention_heads\": 8,"
		"\"num_key_value_heads\": 4, \"vocab_size\": 512, \"max_position_embeddings\": 256}",
		0, NULL);
	json_t *m = json_loads(more, 0, NULL);
	cr_assert(o && m, "the test's own JSON is wrong: %s", more);
	json_object_update(o, m);
	char *text = json_dumps(o, 0);
	put("config.json", text);
	free(text);
	json_decref(o);
	json_decref(m);
}

#endif
