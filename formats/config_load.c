#include "formats/config.h"
#include "formats/model_file.h"

int model_config_load(const char *path, struct model_config *out, char *why, size_t why_n)
{
	return model_file_or_dir(path)->config(path, out, why, why_n);
}
