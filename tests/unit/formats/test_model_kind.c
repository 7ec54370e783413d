/* test_model_kind.c - a path that is not a model is identified, with advice. */
#include "formats/model_kind.h"

#include "base/alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

static struct why why;
static char dir[64];

static void set_up(void)
{
	snprintf(dir, sizeof dir, "/tmp/quern-kind-XXXXXX");
	cr_assert(mkdtemp(dir));
}

static void tear_down(void)
{
	char *command = xasprintf("rm -r %s", dir);
	cr_expect_eq(system(command), 0);
	free(command);
}

TestSuite(model_kind, .init = set_up, .fini = tear_down, .timeout = 20);

static void put(const char *name, const char *text)
{
	char *path = xasprintf("%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	cr_assert(f);
	fputs(text, f);
	fclose(f);
	free(path);
}

static void put_model(void)
{
	put("config.json", "{}");
	put("model-00001-of-00001.safetensors", "x");
	put("tokenizer.json", "{}");
}

/* Expects the error and these words in its reason. */
#define EXPECT(path, rc, ...)                                                                                \
	do {                                                                                                 \
		const char *const words[] = {__VA_ARGS__};                                                   \
		cr_expect_eq(model_kind_check(path, &why), rc, "%s", why.text);                              \
		for (size_t i = 0; i < sizeof words / sizeof *words; i++)                                    \
			cr_expect(strstr(why.text, words[i]), "no \"%s\" in: %s", words[i], why.text);       \
	} while (0)

static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 4096\n";

Test(model_kind, a_model_passes)
{
	put_model();
	cr_expect_eq(model_kind_check(dir, &why), 0, "%s", why.text);
	/* Other files next to it do not matter. */
	put("pytorch_model.bin", pointer);
	put("model.gguf", "GGUF");
	put("adapter_config.json", "{}");
	cr_expect_eq(model_kind_check(dir, &why), 0, "%s", why.text);
}

Test(model_kind, git_lfs_pointers_are_named)
{
	static const char *const names[] = {
		"config.json",    "model-00001-of-00001.safetensors",
		"tokenizer.json", "tokenizer.model",
		"tokenizer.bin",  "chat_template.jinja",
	};
	for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
		put_model();
		put(names[k], pointer);
		EXPECT(dir, -EBADMSG, names[k], "git-lfs pointer", "git lfs pull");
		char *added = xasprintf("%s/%s", dir, names[k]);
		unlink(added);
		free(added);
	}
	char *path = xasprintf("%s/config.json", dir);
	put("config.json", pointer);
	EXPECT(path, -EBADMSG, "git-lfs pointer", "git lfs pull");
	free(path);
}

Test(model_kind, an_adapter_is_named_with_its_base)
{
	put("adapter_config.json", "{\"base_model_name_or_path\": \"org/base-7B\"}");
	put("adapter_model.safetensors", "x");
	put("tokenizer.json", "{}");
	EXPECT(dir, -ENOTSUP, "LoRA adapter of org/base-7B", "merge");
}

Test(model_kind, other_formats_are_named)
{
	char *path = xasprintf("%s/m.gguf", dir);
	put("m.gguf", "<html>");
	EXPECT(path, -ENOTSUP, "GGUF", "Hugging Face layout");
	EXPECT(dir, -ENOTSUP, "GGUF", "m.gguf");
	put("m.gguf", "GGUF\3");
	cr_expect_eq(model_kind_check(path, &why), 0, "%s", why.text);
	cr_expect_eq(model_kind_check(dir, &why), 0, "%s", why.text);
	put("m.gguf", "<html>");
	free(path);
	put("config.json", "{}");
	EXPECT(dir, -ENOTSUP, "GGUF", "*.safetensors");
	put("pytorch_model.bin", "x");
	EXPECT(dir, -ENOTSUP, "PyTorch", "pytorch_model.bin", "*.safetensors");
	put("model.safetensors", "x");
	path = xasprintf("%s/model.safetensors", dir);
	EXPECT(path, -ENOTSUP, "the directory that holds it");
	free(path);
}

Test(model_kind, other_layouts_are_named)
{
	EXPECT(dir, -ENOENT, "is empty", "config.json");
	put("README.md", "x");
	EXPECT(dir, -ENOENT, "holds no config.json");
	put("params.json", "{}");
	EXPECT(dir, -ENOTSUP, "publisher's own layout", "config.json");
	put("model_index.json", "{}");
	EXPECT(dir, -ENOTSUP, "images");
	char *path = xasprintf("%s/snapshots", dir);
	cr_assert_eq(mkdir(path, 0700), 0);
	EXPECT(dir, -ENOENT, "Hugging Face's cache", path);
	free(path);
}

Test(model_kind, missing_parts_are_named)
{
	put("config.json", "{}");
	EXPECT(dir, -ENOENT, "*.safetensors", "interrupted");
	put("model.safetensors", "x");
	EXPECT(dir, -ENOENT, "tokenizer.json", "download it");
	put("vocab.json", "x");
	EXPECT(dir, -ENOENT, "tokenizer.json", "save_pretrained");
	put("tokenizer.model", "x");
	cr_expect_eq(model_kind_check(dir, &why), 0, "%s", why.text);
}

Test(model_kind, a_name_of_hugging_face_is_no_path)
{
	EXPECT("org/no-such-model", -ENOENT, "no such model", "quern pull org/no-such-model");
	EXPECT("/no/such/model", -ENOENT, "no such model");
	cr_expect_null(strstr(why.text, "quern pull"));
	EXPECT("./model", -ENOENT, "no such model");
	cr_expect_null(strstr(why.text, "quern pull"));
}

Test(model_kind, a_pipe_is_not_waited_for)
{
	char *path = xasprintf("%s/x.json", dir);
	cr_assert_eq(mkfifo(path, 0600), 0);
	EXPECT(dir, -ENOENT, "config.json");
	EXPECT(path, -ENOTSUP, "is a file");
	free(path);
}

Test(model_kind, files_that_were_cut_are_named)
{
	char *path = xasprintf("%s/m.gguf", dir);
	put("m.gguf", "");
	EXPECT(path, -ENODATA, "m.gguf is empty; was the download or copy interrupted?");
	put("m.gguf", "GGU");
	EXPECT(path, -ENOTSUP, "m.gguf is a file of no kind that is known", "was it cut?");
	free(path);
}
