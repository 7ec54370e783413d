/* fuzz_gguf.c - arbitrary bytes as a GGUF file: refused with a reason, or its tensors are within the file.
 * If they are a decoder's, all of it can be read.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_gguf CORPUS */
#include "formats/gguf.h"
#include "tests/fuzz/files/read_weights.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct why why = {""};
	char path[64];
	struct gguf *g = NULL;
	int fd = memfd_create("fuzz.gguf", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (gguf_open(path, &g, &why) == 0) {
		gguf_close(g);
		read_model(path);
	} else {
		assert(why.text[0]);
	}
	close(fd);
	return 0;
}
