/* fuzz_flat.c - arbitrary bytes as a file of llama2.c, KuiperLLama or ak48: refused with a reason, or every
 * tensor can be read.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_flat CORPUS */
#include "formats/model_file.h"
#include "tests/fuzz/files/read_weights.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char path[64];
	int fd = memfd_create("fuzz.bin", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	const struct model_file *f = model_file_of(path);
	if (f && strcmp(f->name, "GGUF") != 0)
		read_model(path);
	close(fd);
	return 0;
}
