/* fuzz_config.c - arbitrary bytes as config.json: refused with a reason, or a configuration with valid RoPE
 * tables.  The same bytes are also read as the pooling files of an embedding model.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_config CORPUS */
#include "formats/config.h"
#include "formats/pool_config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void put(const char *dir, const char *name, const uint8_t *data, size_t n)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "wb");
	if (!f)
		return;
	fwrite(data, 1, n, f);
	fclose(f);
}

/* Read the bytes as the list of modules, and as the pooling file that a valid list names. */
static void pool(const uint8_t *data, size_t n)
{
	static const char list[] = "[{\"type\": \"x.Pooling\", \"path\": \"1_Pooling\"}]";
	static char dir[64];
	static struct model_config c;
	struct why why;
	char folder[96];
	if (!dir[0]) {
		strcpy(dir, "/tmp/fuzz_pool_XXXXXX");
		if (!mkdtemp(dir))
			return;
		snprintf(folder, sizeof folder, "%s/1_Pooling", dir);
		mkdir(folder, 0700);
	}
	put(dir, "1_Pooling/config.json", data, n);
	for (int i = 0; i < 2; i++) {
		put(dir, "modules.json", i ? (const uint8_t *)list : data, i ? sizeof list - 1 : n);
		memset(&c, 0, sizeof c);
		pool_config_read(dir, &c, &why);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static char dir[64], path[96];
	static struct model_config c;
	struct why why;
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
	pool(data, n);
	if (model_config_load(dir, &c, &why) == 0) {
		float *rope = malloc((size_t)c.rope_dim * 4 * sizeof *rope);
		if (rope)
			model_config_rope(&c, 4, c.max_position, rope);
		free(rope);
		model_config_fini(&c);
	}
	return 0;
}
