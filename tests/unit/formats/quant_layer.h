/* quant_layer.h - for tests of formats/quant.h: one quantized layer in a file, and quantization_config as
 * text. */
#ifndef QUERN_TESTS_UNIT_FORMATS_QUANT_LAYER_H
#define QUERN_TESTS_UNIT_FORMATS_QUANT_LAYER_H

#include "base/alloc.h"
#include "formats/quant.h"
#include "formats/safetensors.h"
#include "formats/weights.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct why why;

/* Decodes 4-bit AWQ "gemm" by its formula; only the kernels read it otherwise. */
static inline float awq_at(const struct weights_linear *l, int n, int i)
{
	static const int nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
	const int g = i / l->group;
	uint32_t q, z;
	float s;
	memcpy(&q, (const char *)l->w + ((size_t)i * (size_t)(l->n / 8) + (size_t)(n / 8)) * 4, 4);
	memcpy(&z, (const char *)l->qzeros + ((size_t)g * (size_t)(l->n / 8) + (size_t)(n / 8)) * 4, 4);
	weights_to_f32(
		&(struct weights_vec){(const char *)l->scales + ((size_t)g * (size_t)l->n + (size_t)n) * 2,
				      CONFIG_F16, 1},
		&s);
	return s * (float)((int)(q >> 4 * nibble[n % 8] & 15) - (int)(z >> 4 * nibble[n % 8] & 15));
}

static inline float *floats_of(const struct weights_linear *l)
{
	float *out = xmalloc((size_t)l->n * (size_t)l->k * sizeof *out);
	if (l->kind == WEIGHTS_CODES)
		codes_floats(&l->codes, 0, l->n, out);
	else
		for (int n = 0; n < l->n; n++)
			for (int i = 0; i < l->k; i++)
				out[(size_t)n * (size_t)l->k + (size_t)i] = awq_at(l, n, i);
	return out;
}

enum { TENSORS = 8, DATA = 1 << 16 };

struct tensor {
	const char *part, *dtype; /* "qweight", "I32" */
	int rows, cols;           /* rows 0: one dimension; -1: none */
	const void *data;         /* NULL: zeros */
};

static inline size_t size_of(const struct tensor *t)
{
	static const struct {
		const char *name;
		size_t bytes;
	} types[] = {{"I32", 4}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2}, {"I64", 8}};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (strcmp(t->dtype, types[i].name) == 0)
			return types[i].bytes * (size_t)(t->rows > 0 ? t->rows : 1) * (size_t)t->cols;
	return (size_t)(t->rows > 0 ? t->rows : 1) * (size_t)t->cols;
}

/* Write the tensors of a layer "m" to a file and call quant_find(). */
static struct safetensors *layer_files;
static struct quant_found found;
static struct weights_linear layer;

static inline int find(const struct quant *q, int n, int k, const struct tensor *t)
{
	char path[] = "/tmp/quern-quant-XXXXXX", *text;
	json_t *o = json_object();
	static const char zeros[DATA];
	size_t at = 0;
	for (int i = 0; i < TENSORS && t[i].part; i++) {
		char name[64];
		json_t *shape =
			t[i].rows > 0 ? json_pack("[ii]", t[i].rows, t[i].cols) : json_pack("[i]", t[i].cols);
		const size_t bytes = size_of(&t[i]);
		snprintf(name, sizeof name, "m.%s", t[i].part);
		json_object_set_new(o, name,
				    json_pack("{s:s, s:o, s:[II]}", "dtype", t[i].dtype, "shape", shape,
					      "data_offsets", (json_int_t)at, (json_int_t)(at + bytes)));
		at += bytes;
	}
	text = json_dumps(o, JSON_COMPACT);
	const uint64_t head = strlen(text);
	const int fd = mkstemp(path);
	FILE *f = fdopen(fd, "wb");
	fwrite(&head, 8, 1, f);
	fwrite(text, head, 1, f);
	for (int i = 0; i < TENSORS && t[i].part; i++)
		fwrite(t[i].data ? t[i].data : zeros, size_of(&t[i]), 1, f);
	fclose(f);
	cr_assert_eq(safetensors_open(path, &layer_files, &why), 0, "%s", why.text);
	unlink(path);
	free(text);
	json_decref(o);
	layer = (struct weights_linear){.name = "m", .n = n, .k = k};
	cr_assert(quant_has(layer_files, "m"));
	found = (struct quant_found){0};
	int rc = quant_find(layer_files, q, &layer, &found, &why);
	if (rc)
		found.owned = NULL;
	return rc;
}

static inline void done(void)
{
	free(found.owned);
	safetensors_close(layer_files);
	layer_files = NULL;
	found = (struct quant_found){0};
}

static inline void refused(const struct quant *q, int n, int k, const struct tensor *t, int err,
			   const char *reason)
{
	const int rc = find(q, n, k, t);
	done();
	cr_expect_eq(rc, err, "rc %d: %s", rc, rc ? why.text : "accepted");
	cr_expect(rc == 0 || strstr(why.text, reason), "\"%s\" does not contain \"%s\"", why.text, reason);
}

/* ---- config.json ---- */

static inline int read_config(const char *text, struct quant *q)
{
	json_t *o = json_loads(text, 0, NULL);
	cr_assert(o, "the test's own JSON is wrong: %s", text);
	json_t *root = json_pack("{s:o}", "quantization_config", o);
	quant_fini(q);
	int rc = quant_config_read(root, NULL, q, &why);
	json_decref(root);
	return rc;
}

static inline void config_refused(const char *text, int err, const char *reason)
{
	struct quant q = {0};
	const int rc = read_config(text, &q);
	cr_expect_eq(rc, err, "rc %d for %s", rc, text);
	cr_expect(rc == 0 || strstr(why.text, reason), "\"%s\" does not contain \"%s\"", why.text, reason);
	quant_fini(&q);
}

#endif
