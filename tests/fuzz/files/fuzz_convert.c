/* fuzz_convert.c - arbitrary bytes as the input of `quern convert`: the result is complete and can be read,
 * or it is absent and there is a reason.  Bytes that begin with a brace are a directory: config.json up to a
 * zero byte, then model.safetensors.  It is converted to another directory, a GGUF file and an ak48 file, and
 * each of these back to a directory, with the same tensors.  Other bytes are a GGUF or ak48 file, which is
 * converted to a directory, and the directory to a GGUF file; a GGUF file is also copied to another one.
 *
 *   make fuzz FUZZ=fuzz_convert; seeds: tests/fuzz/files/make_seeds.py */
#include "base/file.h"
#include "formats/ak48.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "quant/convert/ak48_tensors.h"
#include "quant/convert/to_gguf.h"
#include "quant/convert/to_safetensors.h"
#include "quant/writer/writer.h"
#include "tests/fuzz/files/folder.h"
#include "tests/fuzz/files/read_weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { SHARD = 4096 }; /* bytes: small enough that a model of a few kilobytes has several shards */

static struct why why;

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

/* Assert that a conversion to dst left a result or a reason, and no partial result.  Return whether there is
 * a result. */
static bool made(int rc, const char *dst)
{
	char partial[FOLDER_PATH];
	snprintf(partial, sizeof partial, "%.*s.partial", FOLDER_PATH - 16, dst);
	assert(!is_there(partial));
	assert(rc ? !is_there(dst) && why.text[0] : is_there(dst));
	return !rc;
}

static bool to(enum writer_format format, const char *src, const char *dst)
{
	folder_remove(dst);
	why.text[0] = '\0';
	return made(format == WRITER_GGUF   ? to_gguf(src, dst, NULL, &why)
		    : format == WRITER_AK48 ? to_ak48(src, dst, &why)
					    : to_safetensors(src, dst, SHARD, &why),
		    dst);
}

/* Return whether a GGUF file omits the tensor: inverse frequencies of old checkpoints. */
static bool is_left_out(const char *name)
{
	const size_t n = strlen(name);
	return n >= 9 && strcmp(name + n - 9, ".inv_freq") == 0;
}

static bool is_float(enum st_dtype t)
{
	return t == ST_F32 || t == ST_F16 || t == ST_BF16;
}

/* Assert that two directories have the same tensors.  exact: all of them; else b may lack inverse
 * frequencies. */
static void check_same(const char *a, const char *b, bool exact)
{
	struct safetensors *x, *y;
	int n = 0;
	assert(safetensors_open_dir(a, &x, &why) == 0);
	assert(safetensors_open_dir(b, &y, &why) == 0);
	for (int i = 0; i < safetensors_count(x); i++) {
		const struct st_tensor *s = safetensors_at(x, i), *t = safetensors_find(y, s->name);
		if (!exact && !t) {
			assert(is_left_out(s->name));
			continue;
		}
		assert(t && t->n_dims == s->n_dims);
		assert(!s->n_dims || memcmp(s->shape, t->shape, (size_t)s->n_dims * sizeof *s->shape) == 0);
		assert(s->dtype == t->dtype && s->bytes == t->bytes);
		assert(!s->bytes || memcmp(s->data, t->data, s->bytes) == 0);
		n++;
	}
	assert(n == safetensors_count(y));
	safetensors_close(x);
	safetensors_close(y);
}

/* Assert that b has tensors of a, where floats may have become F16. */
static void check_words(const char *a, const char *b)
{
	struct safetensors *x, *y;
	assert(safetensors_open_dir(a, &x, &why) == 0);
	assert(safetensors_open_dir(b, &y, &why) == 0);
	for (int i = 0; i < safetensors_count(y); i++) {
		const struct st_tensor *t = safetensors_at(y, i), *s = safetensors_find(x, t->name);
		assert(s && (s->dtype == t->dtype || (is_float(s->dtype) && t->dtype == ST_F16)));
		assert(s->dtype != t->dtype ||
		       (s->bytes == t->bytes && (!s->bytes || memcmp(s->data, t->data, s->bytes) == 0)));
	}
	safetensors_close(x);
	safetensors_close(y);
}

static void from_directory(const uint8_t *data, size_t n)
{
	char src[FOLDER_PATH], name[FOLDER_PATH], dst[FOLDER_PATH], back[FOLDER_PATH];
	const uint8_t *end = memchr(data, 0, n);
	if (!end)
		return;
	folder_name(src, "src");
	mkdir(src, 0700);
	folder_put(folder_name(name, "src/config.json"), data, (size_t)(end - data));
	folder_put(folder_name(name, "src/model.safetensors"), end + 1, n - (size_t)(end + 1 - data));
	const bool loads = read_model(src);
	folder_name(back, "back");
	if (to(WRITER_SAFETENSORS, src, folder_name(dst, "dir"))) {
		check_same(src, dst, true);
		assert(read_model(dst) == loads);
	}
	if (to(WRITER_GGUF, src, folder_name(dst, "m.gguf"))) {
		assert(gguf_is(dst) && read_model(dst));
		assert(to(WRITER_SAFETENSORS, dst, back));
		check_same(src, back, false);
		assert(read_model(back));
	}
	if (to(WRITER_AK48, src, folder_name(dst, "ak"))) {
		folder_name(name, "ak/model.ak48");
		assert(ak48_is(name) && read_model(name));
		assert(to(WRITER_SAFETENSORS, name, back));
		check_words(src, back);
		assert(read_model(back));
	}
}

/* Assert that the copy of a GGUF file has its tensors, and that it is copied to the same bytes. */
static void check_copy(const char *a, const char *b, const char *again)
{
	struct gguf *x, *y;
	char *p, *q;
	size_t n, m;
	assert(gguf_open(a, &x, &why) == 0 && gguf_open(b, &y, &why) == 0);
	assert(gguf_count(x) == gguf_count(y));
	for (int i = 0; i < gguf_count(x); i++) {
		const struct gguf_tensor *s = gguf_at(x, i), *t = gguf_at(y, i);
		assert(strcmp(s->name, t->name) == 0 && s->type == t->type && s->bytes == t->bytes);
		assert(!s->bytes || memcmp(s->data, t->data, s->bytes) == 0);
	}
	gguf_close(x);
	gguf_close(y);
	assert(to(WRITER_GGUF, b, again));
	assert(file_read(b, 1 << 24, &p, &n, &why) == 0 && file_read(again, 1 << 24, &q, &m, &why) == 0);
	assert(n == m && memcmp(p, q, n) == 0);
	free(p);
	free(q);
}

static void from_file(const uint8_t *data, size_t n)
{
	char src[FOLDER_PATH], dst[FOLDER_PATH], back[FOLDER_PATH];
	folder_put(folder_name(src, "model"), data, n);
	if (!gguf_is(src) && !ak48_is(src))
		return;
	const bool loads = read_model(src);
	if (gguf_is(src) && to(WRITER_GGUF, src, folder_name(dst, "copy.gguf"))) {
		assert(read_model(dst));
		check_copy(src, dst, folder_name(back, "again.gguf"));
	}
	if (!to(WRITER_SAFETENSORS, src, folder_name(dst, "dir")))
		return;
	assert(!loads || read_model(dst));
	if (to(WRITER_GGUF, dst, folder_name(back, "m.gguf")))
		assert(read_model(back));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	folder_begin();
	if (n && data[0] == '{')
		from_directory(data, n);
	else
		from_file(data, n);
	return 0;
}
