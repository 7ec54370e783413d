/* Any bytes as a file of llama2.c, KuiperLLama or ak48: refused with a reason, or every tensor can be read.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_flat CORPUS */
#include "base/alloc.h"
#include "formats/model_file.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile uint32_t sink;

static void touch(const void *p, size_t n)
{
	const unsigned char *q = p;
	uint32_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += q[i];
	sink = sum;
}

static void read_linear(const struct weights_linear *l)
{
	const size_t n = (size_t)l->n * (size_t)l->k;
	if (l->kind == WEIGHTS_CODES) {
		float *x = xmalloc(n * sizeof *x);
		codes_floats(&l->codes, 0, l->n, x);
		touch(x, n * sizeof *x);
		free(x);
	} else if (l->kind == WEIGHTS_AWQ) {
		const size_t groups = (size_t)((l->k + l->group - 1) / l->group);
		touch(l->w, n / 2);
		touch(l->qzeros, groups * (size_t)l->n / 2);
		touch(l->scales, groups * (size_t)l->n * 2);
	} else if (l->w) {
		touch(l->w, n * (l->dtype == CONFIG_F32 ? 4 : 2));
	}
}

static void read_all(const struct weights *w)
{
	touch(w->embed.data, (size_t)w->embed.n * (w->embed.dtype == CONFIG_F32 ? 4 : 2));
	read_linear(&w->head);
	for (int i = 0; i < w->n_layers; i++) {
		const struct weights_layer *l = &w->layers[i];
		const struct weights_linear *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
		for (size_t j = 0; j < sizeof all / sizeof *all; j++)
			read_linear(all[j]);
		touch(l->attn_norm.data, (size_t)l->attn_norm.n * (l->attn_norm.dtype == CONFIG_F32 ? 4 : 2));
	}
	for (int i = 0; i < w->files.n_tensors; i++) {
		struct weights_tensor t;
		w->files.tensor(w->files.at, i, &t);
		touch(t.data, t.bytes);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char path[64], why[512] = "";
	struct model_config c;
	struct weights *w;
	int fd = memfd_create("fuzz.bin", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	const struct model_file *f = model_file_of(path);
	if (f && strcmp(f->name, "GGUF") != 0) {
		int rc = f->config(path, &c, why, sizeof why);
		if (!rc) {
			rc = f->weights(path, &c, &w, why, sizeof why);
			if (!rc) {
				read_all(w);
				weights_close(w);
			}
			model_config_fini(&c);
		}
		assert(!rc || why[0]);
	}
	close(fd);
	return 0;
}
