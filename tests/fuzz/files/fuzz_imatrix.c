/* fuzz_imatrix.c - arbitrary bytes as an importance matrix: refused with a reason, or the matrix can be
 * written and read back.
 *
 *   make fuzz FUZZ=fuzz_imatrix; seeds: tests/fuzz/files/make_seeds.py */
#include "quant/round/imatrix.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct why why;

static void write_and_read(const struct imatrix *m)
{
	char dir[] = "/tmp/quern-fuzz-imatrix-XXXXXX", path[64];
	struct imatrix *back = NULL;
	const bool made = mkdtemp(dir) != NULL;
	assert(made);
	snprintf(path, sizeof path, "%s/matrix", dir);
	why.text[0] = '\0';
	if (imatrix_write(m, path, &why) == 0) {
		const int rc = imatrix_read(path, &back, &why);
		assert(rc == 0);
		imatrix_free(back);
		unlink(path);
	} else {
		assert(why.text[0]);
	}
	rmdir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char path[64];
	struct imatrix *m;
	const float *out;
	const int fd = memfd_create("fuzz.imatrix", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	why.text[0] = '\0';
	if (imatrix_read(path, &m, &why) == 0) {
		imatrix_find(m, "blk.0.attn_q.weight", 0, 1, 4, &out, &why);
		write_and_read(m);
		imatrix_free(m);
	} else {
		assert(why.text[0]);
	}
	close(fd);
	return 0;
}
