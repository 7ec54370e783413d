#include "formats/model_kind.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "formats/model_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYOUT "a directory in Hugging Face layout (config.json, tokenizer.json, *.safetensors)"
#define CONVERT                                                                                              \
	"python3 -c 'from transformers import AutoTokenizer as T; "                                          \
	"T.from_pretrained(\"DIR\").save_pretrained("                                                        \
	"\"DIR\")'"

/* Content of a directory. */
struct holding {
	size_t n; /* number of entries */
	bool config, adapter, tokenizer, vocab, snapshots, diffusers, original;
	char weights[256];          /* *.safetensors other than an adapter's; "": none */
	char gguf[256], torch[256]; /* files of other formats */
	char pointer[256];          /* a git-lfs pointer */
};

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), k = strlen(end);
	return n >= k && strcmp(s + n - k, end) == 0;
}

static bool begins_with(const char *s, const char *start)
{
	return strncmp(s, start, strlen(start)) == 0;
}

/* Read the first bytes of a file, NUL-terminated; "" if it cannot be read. */
static void read_head(const char *path, char head[64])
{
	const int fd =
		open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* do not wait on a pipe without a writer */
	const ssize_t n = fd >= 0 ? read(fd, head, 63) : 0;
	head[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

static bool is_pointer(const char *head)
{
	return begins_with(head, "version https://git-lfs.github.com/spec/");
}

bool model_kind_is_pointer(const char *path)
{
	char head[64];
	read_head(path, head);
	return is_pointer(head);
}

static void look_at(struct holding *h, const char *dir, const char *name)
{
	char head[64];
	h->n++;
	h->config |= strcmp(name, "config.json") == 0;
	h->adapter |= strcmp(name, "adapter_config.json") == 0;
	h->tokenizer |= strcmp(name, "tokenizer.json") == 0 || strcmp(name, "tokenizer.model") == 0 ||
			strcmp(name, "tokenizer.bin") == 0;
	h->vocab |= strcmp(name, "vocab.json") == 0;
	h->snapshots |= strcmp(name, "snapshots") == 0;
	h->diffusers |= strcmp(name, "model_index.json") == 0;
	h->original |= strcmp(name, "params.json") == 0 || begins_with(name, "consolidated.");
	const bool safetensors = ends_with(name, ".safetensors");
	const bool torch = ends_with(name, ".bin") || ends_with(name, ".pth") || ends_with(name, ".pt");
	if (safetensors && !begins_with(name, "adapter_"))
		snprintf(h->weights, sizeof h->weights, "%s", name);
	if (ends_with(name, ".gguf"))
		snprintf(h->gguf, sizeof h->gguf, "%s", name);
	if (torch)
		snprintf(h->torch, sizeof h->torch, "%s", name);
	const bool text = ends_with(name, ".json") || ends_with(name, ".jinja") || ends_with(name, ".model");
	const bool tokenizer = strcmp(name, "tokenizer.bin") == 0;
	if (!safetensors && !text && !torch && !ends_with(name, ".gguf"))
		return;
	char *path = file_join(dir, name);
	read_head(path, head);
	free(path);
	/* Pointers to weights of another format do not matter. */
	if (is_pointer(head) && (!torch || tokenizer) && !ends_with(name, ".gguf"))
		snprintf(h->pointer, sizeof h->pointer, "%s", name);
}

static int read_holding(const char *dir, struct holding *h, struct why *why)
{
	DIR *d = opendir(dir);
	*h = (struct holding){0};
	if (!d)
		return err_why(why, -errno, "%s: %s", dir, strerror(errno));
	for (const struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			look_at(h, dir, e->d_name);
	closedir(d);
	return 0;
}

static bool is_empty(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
}

static int check_file(const char *path, struct why *why)
{
	char head[64];
	if (model_file_of(path))
		return 0;
	read_head(path, head);
	if (is_empty(path))
		return err_why(why, -ENODATA, "%s is empty; was the download or copy interrupted?", path);
	if (is_pointer(head))
		return err_why(why, -EBADMSG,
			       "%s is a git-lfs pointer, not the file itself; run in its directory: git lfs "
			       "pull",
			       path);
	if (ends_with(path, ".safetensors"))
		return err_why(why, -ENOTSUP,
			       "%s is one file of a model; MODEL is the directory that holds it, with its "
			       "config.json and tokenizer.json",
			       path);
	return err_why(
		why, -ENOTSUP,
		"%s is a file of no kind that is known (GGUF, llama2.c, KuiperLLama, ak48): was it cut? "
		"Or use " LAYOUT,
		path);
}

/* Read the base model that an adapter names, as " of NAME"; "" if it names none. */
static void read_base(const char *dir, char *out, size_t n)
{
	json_t *root = NULL;
	char *path = file_join(dir, "adapter_config.json");
	out[0] = '\0';
	if (json_read(path, 1 << 20, &root, NULL) == 0) {
		const char *base = json_string_value(json_object_get(root, "base_model_name_or_path"));
		if (base)
			snprintf(out, n, " of %.150s", base);
	}
	json_decref(root);
	free(path);
}

/* Describe a directory without config.json. */
static int name_layout(const char *dir, const struct holding *h, struct why *why)
{
	char base[200];
	if (!h->n)
		return err_why(why, -ENOENT, "%s is empty; MODEL is " LAYOUT, dir);
	if (h->adapter) {
		read_base(dir, base, sizeof base);
		return err_why(why, -ENOTSUP,
			       "%s is a LoRA adapter%s, which is not a model; merge it into its base (peft: "
			       "merge_and_unload) and serve the result",
			       dir, base);
	}
	if (h->gguf[0])
		return err_why(
			why, -ENOTSUP,
			"%s holds %s, which does not begin as a GGUF file does; was it cut? Or use " LAYOUT,
			dir, h->gguf);
	if (h->snapshots)
		return err_why(why, -ENOENT,
			       "%s is an entry of Hugging Face's cache; the model is a directory below "
			       "%s/snapshots/, which has its config.json",
			       dir, dir);
	if (h->diffusers)
		return err_why(why, -ENOTSUP,
			       "%s makes images (model_index.json is of diffusers); config.json is missing, "
			       "which a language model has",
			       dir);
	if (h->original)
		return err_why(why, -ENOTSUP,
			       "%s has its publisher's own layout (params.json, consolidated.*), without "
			       "config.json; download the variant of it that is " LAYOUT,
			       dir);
	return err_why(why, -ENOENT, "%s holds no config.json; MODEL is " LAYOUT, dir);
}

static int check_dir(const char *dir, struct why *why)
{
	struct holding h;
	int rc = read_holding(dir, &h, why);
	if (rc)
		return rc;
	if (!h.weights[0] && gguf_is(dir))
		return 0;
	if (h.pointer[0])
		return err_why(
			why, -EBADMSG,
			"%s/%s is a git-lfs pointer, not the file itself; run in %s: git lfs install && "
			"git lfs pull",
			dir, h.pointer, dir);
	if (!h.config)
		return name_layout(dir, &h, why);
	if (!h.weights[0] && h.torch[0])
		return err_why(
			why, -ENOTSUP,
			"%s has its weights in PyTorch's format only (%s), which can hold programs and "
			"is not read; download or convert the model as *.safetensors",
			dir, h.torch);
	if (!h.weights[0] && h.gguf[0])
		return err_why(why, -ENOTSUP,
			       "%s has its weights in %s only, which does not begin as a GGUF file does; was "
			       "it cut? Or download the model as *.safetensors",
			       dir, h.gguf);
	if (!h.weights[0])
		return err_why(why, -ENOENT,
			       "%s holds no *.safetensors, the weights; was the download interrupted?", dir);
	if (!h.tokenizer)
		return err_why(why, -ENOENT, "%s holds no tokenizer.json; %s", dir,
			       h.vocab ? "make it from the older files that are there: " CONVERT
				       : "download it with the model");
	return 0;
}

int model_kind_check(const char *path, struct why *why)
{
	if (file_is_dir(path))
		return check_dir(path, why);
	if (file_exists(path))
		return check_file(path, why);
	const char *slash = strchr(path, '/');
	if (slash && slash != path && *path != '.' && slash[1] && !strchr(slash + 1, '/'))
		return err_why(
			why, -ENOENT,
			"%s: no such model on this machine; if that is its name at Hugging Face: quern "
			"pull %s",
			path, path);
	return err_why(why, -ENOENT, "%s: no such model; MODEL is " LAYOUT, path);
}
