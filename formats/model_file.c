#include "formats/model_file.h"

#include "base/file.h"
#include "formats/ak48.h"
#include "formats/gguf.h"
#include "formats/kuiper.h"
#include "formats/llama2c.h"

#include <stdlib.h>

static bool is_hf(const char *path)
{
	char *config = file_join(path, "config.json");
	const bool yes = file_exists(config) && !gguf_is(path);
	free(config);
	return yes;
}

static const struct model_file kinds[] = {
	{"Hugging Face", is_hf, hf_config_load, hf_weights_open},
	{"ak48", ak48_is, ak48_config, ak48_weights},
	{"KuiperLLama INT8", kuiper_is, kuiper_config, kuiper_weights},
	{"llama2.c", llama2c_is, llama2c_config, llama2c_weights},
	{"GGUF", gguf_is, gguf_config_load, gguf_weights_open},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

const struct model_file *model_file_of(const char *path)
{
	for (int i = 0; i < N_KINDS; i++)
		if (kinds[i].is(path))
			return &kinds[i];
	return NULL;
}

const struct model_file *model_file_or_dir(const char *path)
{
	const struct model_file *f = model_file_of(path);
	return f ? f : &kinds[0];
}

int model_config_load(const char *path, struct model_config *out, struct why *why)
{
	return model_file_or_dir(path)->config(path, out, why);
}

int weights_open(const char *path, const struct model_config *c, struct weights **out, struct why *why)
{
	return model_file_or_dir(path)->weights(path, c, out, why);
}
