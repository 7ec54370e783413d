/* A quantized layer of any tensors under any quantization_config: refused with a reason, or its codes lie
 * within the tensors.  Input: outputs, inputs (a byte each), the configuration to the first zero byte, then
 * for each tensor a byte that chooses name and type, two of its shape; data repeats the rest of the input.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_quant CORPUS */
#include "base/codes.h"
#include "formats/quant.h"
#include "formats/safetensors.h"
#include "formats/weights.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TENSORS = 5 };

static const char *const parts[16] = {"qweight",
				      "qzeros",
				      "scales",
				      "g_idx",
				      "weight",
				      "weight_scale",
				      "weight_packed",
				      "weight_zero_point",
				      "weight_shape",
				      "weight_g_idx",
				      "weight_scale_inv",
				      "bias",
				      "a",
				      "b",
				      "c",
				      "d"};
static const struct {
	const char *name;
	size_t bytes;
} types[8] = {{"I32", 4}, {"F16", 2},     {"BF16", 2}, {"F32", 4},
	      {"I8", 1},  {"F8_E4M3", 1}, {"I64", 8},  {"I16", 2}};

/* The tensors that p describes as a file; -1: none. */
static int write_file(const uint8_t *p, size_t n)
{
	json_t *o = json_object();
	size_t at = 0;
	const uint8_t *rest = p + 3 * TENSORS;
	for (int i = 0; i < TENSORS; i++, p += 3) {
		char name[64];
		const int cols = p[2] % 64 + 1, rows = p[1] % 65;
		const size_t bytes = types[p[0] >> 4 & 7].bytes * (size_t)cols * (size_t)(rows ? rows : 1);
		snprintf(name, sizeof name, "m.%s", parts[p[0] & 15]);
		if (json_object_get(o, name))
			continue;
		json_object_set_new(o, name,
				    json_pack("{s:s, s:o, s:[II]}", "dtype", types[p[0] >> 4 & 7].name,
					      "shape",
					      rows ? json_pack("[ii]", rows, cols) : json_pack("[i]", cols),
					      "data_offsets", (json_int_t)at, (json_int_t)(at + bytes)));
		at += bytes;
	}
	char *text = json_dumps(o, JSON_COMPACT);
	const uint64_t head = strlen(text);
	unsigned char *all = malloc(8 + head + at);
	memcpy(all, &head, 8);
	memcpy(all + 8, text, head);
	n -= 3 * TENSORS;
	for (size_t i = 0; i < at; i++)
		all[8 + head + i] = n ? rest[i % n] : 0;
	const int fd = memfd_create("fuzz.safetensors", MFD_CLOEXEC);
	const bool good = fd >= 0 && write(fd, all, 8 + head + at) == (ssize_t)(8 + head + at);
	free(all);
	free(text);
	json_decref(o);
	if (!good && fd >= 0)
		close(fd);
	return good ? fd : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const uint8_t *end = n > 2 ? memchr(data + 2, 0, n - 2) : NULL;
	char path[64], why[256];
	struct safetensors *files = NULL;
	struct quant q;
	if (!end || n - (size_t)(end + 1 - data) < 3 * TENSORS)
		return 0;
	json_t *o = json_loadb((const char *)data + 2, (size_t)(end - data) - 2, 0, NULL);
	json_t *root = o ? json_pack("{s:o}", "quantization_config", o) : NULL;
	const int rc = root ? quant_config_read(root, &q, why, sizeof why) : -1;
	json_decref(root);
	const int fd = rc ? -1 : write_file(end + 1, n - (size_t)(end + 1 - data));
	if (fd < 0)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	struct weights_linear l = {.name = "m", .n = data[0] % 64 + 1, .k = data[1] + 1};
	struct quant_found found = {0};
	if (safetensors_open(path, &files, why, sizeof why) == 0) {
		if (quant_has(files, "m") && quant_find(files, &q, &l, &found, why, sizeof why) == 0) {
			float *w = malloc((size_t)l.n * (size_t)l.k * sizeof *w);
			if (l.kind == WEIGHTS_CODES)
				codes_floats(&l.codes, 0, l.n, w);
			free(w);
			free(found.owned);
		}
		safetensors_close(files);
	}
	close(fd);
	return 0;
}
