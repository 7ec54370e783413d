/* quantize.c - the paths of quern-quantize: models converted to other formats and back, and quantized models.
 * A result that exists, whatever failed, equals the result of an undisturbed run byte for byte. */
#include "base/alloc.h"
#include "base/file.h"
#include "quant/awq_run.h"
#include "quant/convert/ak48_tensors.h"
#include "quant/convert/to_gguf.h"
#include "quant/convert/to_safetensors.h"
#include "quant/round_run.h"
#include "tests/inject/cases.h"
#include "tests/inject/inject.h"
#include "tests/testdata.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 512, SHARD = 8192, CALIBRATION = 64, EXIT_WRONG = 4 };

/* Directory of the sources, and of the results of undisturbed runs. */
static char kept[INJECT_DIR_SIZE];

static const char *join(char out[PATH], const char *dir, const char *name)
{
	if (snprintf(out, PATH, "%s/%s", dir, name) >= PATH)
		abort();
	return out;
}

/* ---- steps: each writes the result `name` below dir ---- */

struct step {
	const char *name, *source; /* source: name in `kept` */
	int (*run)(const char *src, const char *dst, struct why *why);
};

static int gguf(const char *src, const char *dst, struct why *why)
{
	return to_gguf(src, dst, NULL, why);
}

static int safetensors(const char *src, const char *dst, struct why *why)
{
	return to_safetensors(src, dst, SHARD, why);
}

static int nearest(const char *type, const char *src, const char *dst, struct why *why)
{
	return round_run(&(struct quantize_options){.source = src, .dst = dst, .type = type, .n_threads = 1},
			 &(struct round_importance){0}, why);
}

static int q8_0(const char *src, const char *dst, struct why *why)
{
	return nearest("q8_0", src, dst, why);
}

static int int8(const char *src, const char *dst, struct why *why)
{
	return nearest("int8", src, dst, why);
}

static int awq4(const char *src, const char *dst, struct why *why)
{
	char text[PATH];
	const struct quantize_options all = {.source = src, .dst = dst, .type = "awq4", .n_threads = 1};
	return awq_run(
		&(struct awq_options){
			.all = &all, .text = join(text, kept, "text"), .n_tokens = CALIBRATION, .group = 32},
		why);
}

static const struct step conversions[] = {{"m.gguf", "qwen2", gguf},
					  {"back", "m.gguf", safetensors},
					  {"ak48", "awq", to_ak48},
					  {"ak48-back", "ak48/model.ak48", safetensors},
					  {NULL}};
static const struct step quantizations[] = {
	{"q8_0.gguf", "qwen2", q8_0}, {"int8", "qwen2", int8}, {"awq4", "qwen2", awq4}, {NULL}};

/* ---- results ---- */

static bool same_file(const char *a, const char *b)
{
	char *x, *y;
	size_t n, m;
	if (file_read(a, SIZE_MAX / 2, &x, &n, NULL))
		return false;
	bool same = file_read(b, SIZE_MAX / 2, &y, &m, NULL) == 0;
	if (same) {
		same = n == m && memcmp(x, y, n) == 0;
		free(y);
	}
	free(x);
	return same;
}

static int count_files(const char *dir)
{
	int n = 0;
	DIR *d = opendir(dir);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Compare two files, or the files of two directories. */
static bool same_result(const char *a, const char *b)
{
	char x[PATH], y[PATH];
	if (!file_is_dir(a))
		return same_file(a, b);
	bool same = file_is_dir(b) && count_files(a) == count_files(b);
	DIR *d = opendir(a);
	for (const struct dirent *e; d && same && (e = readdir(d));)
		if (e->d_name[0] != '.')
			same = same_file(join(x, a, e->d_name), join(y, b, e->d_name));
	if (d)
		closedir(d);
	return same;
}

static const char *left(const struct step *steps, const char *dir)
{
	static char text[PATH + 32];
	char path[PATH], whole[PATH];
	for (; steps->name; steps++) {
		join(path, dir, steps->name);
		if (!access(path, F_OK) && !same_result(join(whole, kept, steps->name), path)) {
			snprintf(text, sizeof text, "%s is not complete", steps->name);
			return text;
		}
	}
	return NULL;
}

const char *quantize_conversions_left(const char *dir)
{
	return left(conversions, dir);
}

const char *quantize_left(const char *dir)
{
	return left(quantizations, dir);
}

/* ---- sources ---- */

static void put(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(data, 1, n, f) != n || fclose(f)) {
		perror(path);
		exit(2);
	}
}

/* Unpack a seed of fuzz_convert: config.json, a zero byte, model.safetensors. */
static void unpack(const char *name)
{
	/* One token for each of the model's 16 ids. */
	static const char tokenizer[] =
		"{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, "
		"\"d\": 3, "
		"\"e\": 4, \"f\": 5, \"g\": 6, \"h\": 7, \"i\": 8, \"j\": 9, \"k\": 10, \"l\": 11, \"m\": "
		"12, "
		"\"n\": 13, \"o\": 14, \"p\": 15}}, \"added_tokens\": [], \"normalizer\": null, "
		"\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": "
		"true}, "
		"\"decoder\": {\"type\": \"ByteLevel\"}}";
	struct why why;
	char *data, path[PATH], dir[PATH];
	char *seed = xasprintf("tests/fuzz/seeds/fuzz_convert/%s.dir", name);
	size_t n;
	if (file_read(repofile(seed), 1 << 20, &data, &n, &why)) {
		fprintf(stderr, "sweep: %s\n", why.text);
		exit(2);
	}
	const size_t head = strlen(data);
	mkdir(join(dir, kept, name), 0700);
	put(join(path, dir, "config.json"), data, head);
	put(join(path, dir, "model.safetensors"), data + head + 1, n - head - 1);
	put(join(path, dir, "tokenizer.json"), tokenizer, sizeof tokenizer - 1);
	free(data);
	free(seed);
}

/* Suppress the output of undisturbed runs, which is not the sweep's. */
static void quiet(bool on)
{
	static int out, err;
	fflush(NULL);
	if (on) {
		const int to = open("/dev/null", O_WRONLY | O_CLOEXEC);
		out = dup(STDOUT_FILENO);
		err = dup(STDERR_FILENO);
		dup2(to, STDOUT_FILENO);
		dup2(to, STDERR_FILENO);
		close(to);
	} else {
		dup2(out, STDOUT_FILENO);
		dup2(err, STDERR_FILENO);
		close(out);
		close(err);
	}
}

static void run_undisturbed(const struct step *s)
{
	char src[PATH], dst[PATH];
	struct why why = {""};
	for (; s->name; s++) {
		quiet(true);
		const int rc = s->run(join(src, kept, s->source), join(dst, kept, s->name), &why);
		quiet(false);
		if (rc) {
			fprintf(stderr, "sweep: %s: %s\n", s->name, why.text);
			exit(2);
		}
	}
}

void quantize_prepare(void)
{
	char text[CALIBRATION], path[PATH], last[INJECT_DIR_SIZE];
	if (kept[0])
		return;
	snprintf(last, sizeof last, "%s", inject_dir());
	inject_dir_new(kept);
	inject_dir_set(last);
	unpack("qwen2");
	unpack("awq");
	for (int i = 0; i < CALIBRATION; i++)
		text[i] = (char)('a' + (i * i + i / 16) % 16);
	put(join(path, kept, "text"), text, sizeof text);
	run_undisturbed(conversions);
	run_undisturbed(quantizations);
}

void quantize_cleanup(void)
{
	if (kept[0])
		inject_dir_free(kept);
}

/* ---- paths ---- */

static void wrong(const char *name, const char *what, const char *why)
{
	fprintf(stderr, "%s %s: %s\n", name, what, why);
	_exit(EXIT_WRONG);
}

static int run(const struct step *s, struct why *why)
{
	int rc = 0;
	for (; !rc && s->name; s++) {
		char src[PATH], dst[PATH], partial[PATH + 16];
		rc = s->run(join(src, kept, s->source), join(dst, inject_dir(), s->name), why);
		snprintf(partial, sizeof partial, "%s.partial", dst);
		if (!access(partial, F_OK))
			wrong(s->name, "leaves an unfinished result", why->text);
		if (!rc && access(dst, F_OK))
			wrong(s->name, "leaves no result, without an error", "");
	}
	return rc;
}

int quantize_conversions(struct why *why)
{
	return run(conversions, why);
}

int quantize_models(struct why *why)
{
	return run(quantizations, why);
}
