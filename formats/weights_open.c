#include "formats/model_file.h"
#include "formats/weights.h"

int weights_open(const char *path, const struct model_config *c, struct weights **out, char *why,
		 size_t why_n)
{
	return model_file_or_dir(path)->weights(path, c, out, why, why_n);
}
