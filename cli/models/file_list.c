#include "cli/models/file_list.h"

#include "base/alloc.h"
#include "base/err.h"
#include "cli/terminal/term.h"

#include <ctype.h>
#include <fnmatch.h>
#include <gnutls/crypto.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Files that serving reads in addition to the weights. */
static const char *const companions[] = {
	"config.json",
	"generation_config.json",
	"tokenizer.json",
	"tokenizer_config.json",
	"tokenizer.model",
	"tokenizer.bin",
	"special_tokens_map.json",
	"added_tokens.json",
	"vocab.json",
	"merges.txt",
	"chat_template.jinja",
	"chat_template.json",
	"quantize_config.json",
	"quant_config.json",
	"modules.json",
	"config_sentence_transformers.json",
	"1_Pooling/config.json",
};

void file_list_fini(struct file_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->files[i].path);
		free(l->files[i].url);
	}
	free(l->files);
	*l = (struct file_list){0};
}

bool file_list_hex(const char *text, size_t n, char out[DIGEST_HEX])
{
	if (!text || n >= DIGEST_HEX || strlen(text) != n || strspn(text, "0123456789abcdefABCDEF") != n)
		return false;
	for (size_t i = 0; i <= n; i++)
		out[i] = (char)tolower((unsigned char)text[i]);
	return true;
}

/* Return whether a file is hidden, such as ".gitattributes" or a file in ".github/".  "." and ".." do not
 * count. */
static bool is_hidden(const char *path)
{
	for (const char *p = path, *next = NULL; p; p = next) {
		const size_t n = strcspn(p, "/");
		next = p[n] ? p + n + 1 : NULL;
		if (*p == '.' && n > 1 && !(n == 2 && p[1] == '.'))
			return !strstr(path, "../");
	}
	return false;
}

int file_list_add(struct file_list *l, const struct file_entry *f, struct why *why)
{
	int64_t bytes = 0;
	if (is_hidden(f->path))
		return 0;
	int rc = source_path_check(f->path, why);
	if (rc)
		return rc;
	if (l->n >= FILES_MAX)
		return err_why(why, -E2BIG, "the server lists more than %d files", FILES_MAX);
	if (f->size < 0 || f->size > FILES_BYTES_MAX)
		return err_why(why, -EBADMSG, "%s: the server lists a size of %" PRId64 " bytes", f->path,
			       f->size);
	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->files[i].path, f->path) == 0)
			return err_why(why, -EBADMSG, "the server lists %s twice", f->path);
		bytes += l->files[i].size;
	}
	if (bytes > FILES_BYTES_MAX - f->size)
		return err_why(why, -E2BIG, "the server lists more than 1024 TiB");
	array_grow(l->files, l->cap, l->n + 1);
	l->files[l->n] = *f;
	l->files[l->n].path = xstrdup(f->path);
	l->files[l->n++].url = xstrdup(f->url);
	return 0;
}

int file_list_name(struct file_list *l, const char *url, struct why *why)
{
	struct buf text = {0};
	unsigned char digest[32];
	buf_printf(&text, "%s\n", url);
	for (size_t i = 0; i < l->n; i++)
		buf_printf(&text, "%s %" PRId64 " %s %s\n", l->files[i].path, l->files[i].size,
			   l->files[i].hex, l->files[i].etag);
	int rc = gnutls_hash_fast(GNUTLS_DIG_SHA256, text.p, text.len, digest);
	buf_fini(&text);
	if (rc)
		return err_why(why, -EIO, "SHA-256 is not available: %s", gnutls_strerror(rc));
	for (size_t i = 0; i < 20; i++)
		snprintf(l->commit + 2 * i, 3, "%02x", digest[i]);
	return 0;
}

/* ---- selection ---- */

static bool ends(const char *s, const char *suffix)
{
	const size_t n = strlen(s), m = strlen(suffix);
	return n > m && strcasecmp(s + n - m, suffix) == 0;
}

static bool matches(const char *path, char *const *globs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fnmatch(globs[i], path, 0) == 0)
			return true;
	return false;
}

static bool is_companion(const char *path)
{
	for (size_t i = 0; i < sizeof companions / sizeof *companions; i++)
		if (strcmp(path, companions[i]) == 0)
			return true;
	return ends(path, ".safetensors.index.json") && !strchr(path, '/');
}

enum weights_of { SAFETENSORS, GGUF, BIN, TORCH, N_WEIGHTS };

/* Return the kind of weights in a file; N_WEIGHTS: none.  Files in folders are variants (for other libraries,
 * training or other devices) and count as none. */
static enum weights_of weights_kind(const char *path)
{
	if (strchr(path, '/'))
		return N_WEIGHTS;
	if (ends(path, ".safetensors"))
		return strncmp(path, "adapter_", 8) == 0 ? N_WEIGHTS : SAFETENSORS;
	if (ends(path, ".gguf"))
		return strncasecmp(path, "mmproj", 6) == 0 ? N_WEIGHTS : GGUF;
	if (ends(path, ".pt") || ends(path, ".pth") || (ends(path, ".bin") && strstr(path, "pytorch_model")))
		return TORCH;
	if (ends(path, ".bin") && strcmp(path, "tokenizer.bin") != 0 && !strstr(path, "training_args") &&
	    !strstr(path, "optimizer"))
		return BIN;
	return N_WEIGHTS;
}

/* Return the length of the common prefix of a model's shards: "x-00001-of-00003.gguf" is a shard of "x". */
static size_t set_length(const char *path)
{
	const size_t n = strlen(path);
	int digits = 0;
	for (size_t i = 0; i + 16 <= n; i++)
		if (path[i] == '-' && sscanf(path + i, "-%*5d-of-%*5d.%n", &digits) >= 0 && digits == 16)
			return i;
	return n;
}

static bool same_set(const char *a, const char *b)
{
	const size_t n = set_length(a);
	return n == set_length(b) && strncmp(a, b, n) == 0;
}

/* Mark the only model of a kind; several are an error.  A GGUF or llama2.c file, or a set of shards, is a
 * model. */
static int choose_one(struct file_list *l, enum weights_of kind, struct why *why)
{
	struct buf names = {0};
	const char *first = NULL, *last = NULL;
	int n_sets = 0;
	for (size_t i = 0; i < l->n; i++) {
		const char *path = l->files[i].path;
		if (weights_kind(path) != kind)
			continue;
		l->files[i].chosen = true;
		first = first ? first : path;
		if (last && same_set(last, path))
			continue;
		last = path;
		if (++n_sets <= 12)
			buf_printf(&names, "%s%s", n_sets > 1 ? ", " : "", path);
	}
	int rc = 0;
	if (n_sets > 1)
		rc = err_why(why, -ENOENT,
			     "there are %d models to choose from (%s%s); say which with --include, such as "
			     "--include '%.*s*'",
			     n_sets, names.p, n_sets > 12 ? ", ..." : "", (int)set_length(first), first);
	buf_fini(&names);
	return rc;
}

/* Mark the safetensors files, without those in the publisher's own layout if there are also files in the
 * usual layout. */
static void choose_safetensors(struct file_list *l)
{
	bool usual = false;
	for (size_t i = 0; i < l->n; i++)
		usual = usual || (weights_kind(l->files[i].path) == SAFETENSORS &&
				  strncmp(l->files[i].path, "model", 5) == 0);
	for (size_t i = 0; i < l->n; i++) {
		const char *path = l->files[i].path;
		if (weights_kind(path) == SAFETENSORS)
			l->files[i].chosen = !usual || strncmp(path, "consolidated", 12) != 0;
	}
}

static int choose_weights(struct file_list *l, struct why *why)
{
	int n[N_WEIGHTS + 1] = {0};
	for (size_t i = 0; i < l->n; i++)
		n[weights_kind(l->files[i].path)]++;
	if (n[SAFETENSORS]) {
		choose_safetensors(l);
		return 0;
	}
	if (n[GGUF] || n[BIN])
		return choose_one(l, n[GGUF] ? GGUF : BIN, why);
	if (n[TORCH])
		return err_why(
			why, -ENOENT,
			"the weights are there in PyTorch's format only (*.bin, *.pth), which can hold "
			"programs and is not read; take a repository with *.safetensors or GGUF");
	return err_why(why, -ENOENT,
		       "none of its %zu files has weights that quern reads (*.safetensors, *.gguf, *.bin of "
		       "llama2.c); --include PATTERN fetches others",
		       l->n);
}

int file_list_choose(struct file_list *l, const struct file_globs *g, struct why *why)
{
	int64_t bytes;
	for (size_t i = 0; i < l->n; i++)
		l->files[i].chosen = g->n_include ? matches(l->files[i].path, g->include, g->n_include)
						  : is_companion(l->files[i].path);
	int rc = 0;
	/* Remove excluded files before choosing. */
	for (size_t i = 0; i < l->n;) {
		if (!matches(l->files[i].path, g->exclude, g->n_exclude)) {
			i++;
			continue;
		}
		free(l->files[i].path);
		free(l->files[i].url);
		memmove(l->files + i, l->files + i + 1, (--l->n - i) * sizeof *l->files);
	}
	if (!g->n_include)
		rc = choose_weights(l, why);
	if (!rc && file_list_chosen(l, &bytes) == 0)
		rc = err_why(why, -ENOENT, "no file matches --include and --exclude, of %zu", l->n);
	return rc;
}

size_t file_list_chosen(const struct file_list *l, int64_t *bytes)
{
	size_t n = 0;
	*bytes = 0;
	for (size_t i = 0; i < l->n; i++)
		if (l->files[i].chosen) {
			*bytes += l->files[i].size;
			n++;
		}
	return n;
}
