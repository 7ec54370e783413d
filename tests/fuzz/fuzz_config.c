/* Any bytes as config.json: refused with a reason, or a configuration with valid RoPE tables.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_config CORPUS */
#include "formats/config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static char dir[64], path[96];
	static struct model_config c;
	char why[256];
	if (!dir[0]) {
		strcpy(dir, "/tmp/fuzz_config_XXXXXX");
		if (!mkdtemp(dir))
			return 0;
		snprintf(path, sizeof path, "%s/config.json", dir);
	}
	FILE *f = fopen(path, "wb");
	if (!f)
		return 0;
	fwrite(data, 1, n, f);
	fclose(f);
	if (model_config_load(dir, &c, why, sizeof why) == 0) {
		float *rope = malloc((size_t)c.rope_dim * 4 * sizeof *rope);
		if (rope)
			model_config_rope(&c, 4, c.max_position, rope);
		free(rope);
		model_config_fini(&c);
	}
	return 0;
}
