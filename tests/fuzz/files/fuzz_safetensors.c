/* fuzz_safetensors.c - arbitrary bytes as a safetensors file: refused with a reason, or its tensors are
 * within the file.  Bytes that begin with a brace are a model: config.json up to a zero byte, then
 * model.safetensors, in any quantized layout of formats/quant.h.  The model is refused with a reason, or all
 * of it can be read.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_safetensors CORPUS */
#include "formats/safetensors.h"
#include "tests/fuzz/files/read_weights.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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

static void one_model(const uint8_t *data, size_t n)
{
	static char dir[64];
	const uint8_t *end = memchr(data, 0, n);
	if (!end)
		return;
	if (!dir[0]) {
		strcpy(dir, "/dev/shm/fuzz_safetensors_XXXXXX");
		if (!mkdtemp(dir))
			return;
	}
	put(dir, "config.json", data, (size_t)(end - data));
	put(dir, "model.safetensors", end + 1, n - (size_t)(end + 1 - data));
	read_model(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct why why;
	char path[64];
	struct safetensors *st = NULL;
	if (n && data[0] == '{') {
		one_model(data, n);
		return 0;
	}
	int fd = memfd_create("fuzz.safetensors", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (safetensors_open(path, &st, &why) == 0)
		safetensors_close(st);
	close(fd);
	return 0;
}
