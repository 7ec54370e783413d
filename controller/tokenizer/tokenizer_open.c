/* Finds and recognizes a tokenizer file: a file by its content, a directory by the names in it. */
#include "controller/tokenizer/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "formats/gguf.h"
#include "formats/model_file.h"
#include "formats/model_kind.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- recognition by content ---- */

enum content {
	CONTENT_JSON,
	CONTENT_SPM,
	CONTENT_LLAMA2C,
	CONTENT_TIKTOKEN,
	CONTENT_OTHER,
};

/* Return true if the data begin with the first piece of a ModelProto, which begins with its text. */
static bool is_spm(const uint8_t *p, size_t n)
{
	return n > 4 && p[0] == 0x0a && p[1] != '{' && p[2] == 0x0a && p[3] + 2u <= p[1];
}

static bool is_json(const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && isspace((unsigned char)p[i]))
		i++;
	return i < n && p[i] == '{';
}

/* Return true for lines of a token in base64, a space and its rank: "IQ== 0". */
static bool is_tiktoken(const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && (isalnum((unsigned char)p[i]) || strchr("+/=", p[i])) && p[i])
		i++;
	return i >= 4 && i % 4 == 0 && i + 1 < n && p[i] == ' ' && isdigit((unsigned char)p[i + 1]);
}

/* Return true for llama2.c's tokenizer. Its checkpoints begin alike, so the whole file must parse or, if it
 * is truncated, the fourth piece must be the first byte's. */
static bool is_llama2c(const void *p, size_t n)
{
	struct piece_table pt;
	piece_table_init(&pt);
	bool is = n <= TOKENIZER_DATA_MAX &&
		  (llama2c_file_read(p, n, &pt, NULL) == 0 ||
		   (pt.n > 3 && pt.rows[3].n == 6 && memcmp(pt.rows[3].p, "<0x00>", 6) == 0));
	piece_table_fini(&pt);
	return is;
}

static enum content content_of(const void *p, size_t n)
{
	if (n == 0)
		return CONTENT_OTHER;
	if (is_spm(p, n))
		return CONTENT_SPM;
	if (is_json(p, n))
		return CONTENT_JSON;
	if (is_tiktoken(p, n))
		return CONTENT_TIKTOKEN;
	return is_llama2c(p, n) ? CONTENT_LLAMA2C : CONTENT_OTHER;
}

static int load_table(struct tokenizer *t, int rc, const struct piece_table *pt, struct why *why)
{
	return rc ? rc : tokenizer_from_table(t, pt, why);
}

static int load_data(struct tokenizer *t, piece_table_reader read, const void *data, size_t n,
		     struct why *why)
{
	struct piece_table pt;
	if (n > TOKENIZER_DATA_MAX)
		return err_why(why, -EFBIG, "%zu bytes, at most %d are possible", n, TOKENIZER_DATA_MAX);
	piece_table_init(&pt);
	int rc = load_table(t, read(data, n, &pt, why), &pt, why);
	piece_table_fini(&pt);
	return rc;
}

int tokenizer_from_data(piece_table_reader read, const void *data, size_t n, struct tokenizer **out,
			struct why *why)
{
	struct tokenizer *t = xcalloc(1, sizeof(*t));
	added_init(&t->added);
	int rc = load_data(t, read, data, n, why);
	if (rc == 0)
		rc = tokenizer_finish(t, why);
	if (rc)
		tokenizer_free(t);
	else
		*out = t;
	return rc;
}

/* path: a file, one shard of a model, or a directory with the shards. */
static int load_gguf(struct tokenizer *t, const char *path, struct why *why)
{
	struct gguf *g;
	struct piece_table pt;
	int rc = gguf_open(path, &g, why);
	if (rc)
		return rc;
	piece_table_init(&pt);
	rc = load_table(t, gguf_vocab_read(g, &pt, why), &pt, why);
	if (rc)
		err_prefix(why, rc, "%s", gguf_path(g));
	piece_table_fini(&pt);
	gguf_close(g);
	return rc;
}

#define CUT "; was the download or copy interrupted?"

static bool has_suffix(const char *path, const char *suffix)
{
	const size_t n = strlen(path), k = strlen(suffix);
	return n >= k && strcmp(path + n - k, suffix) == 0;
}

static int check_pointer(const char *path, struct why *why)
{
	return model_kind_is_pointer(path) ? err_why(why, -EBADMSG,
						     "%s is a git-lfs pointer, not the file itself; run in "
						     "its directory: git lfs "
						     "install && git lfs pull",
						     path)
					   : 0;
}

/* Load a file.  -ENOENT: not a known kind. */
static int load_file(struct tokenizer *t, const char *path, struct why *why)
{
	const void *data;
	size_t n;
	if (gguf_is(path))
		return load_gguf(t, path, why);
	int rc = check_pointer(path, why);
	if (!rc)
		rc = file_map(path, &data, &n, why);
	if (rc)
		return rc;
	if (n == 0)
		return err_why(why, -EINVAL, "%s: not a tokenizer: the file is empty" CUT, path);
	if (has_suffix(path, ".gguf")) {
		file_unmap(data, n);
		return err_why(why, -EINVAL, "%s does not begin as a GGUF file does" CUT, path);
	}
	enum content kind = content_of(data, n);
	if (kind == CONTENT_SPM)
		rc = load_data(t, spm_file_read, data, n, why);
	else if (kind == CONTENT_LLAMA2C)
		rc = load_data(t, llama2c_file_read, data, n, why);
	else if (kind == CONTENT_TIKTOKEN)
		rc = err_why(
			why, -EINVAL,
			"ranks in tiktoken's format: they lack the split pattern and the special tokens, "
			"a tokenizer.json of the same model has them");
	else if (kind == CONTENT_OTHER)
		rc = err_why(why, -ENOENT,
			     "not a tokenizer: neither tokenizer.json, nor SentencePiece's tokenizer.model, "
			     "nor llama2.c's tokenizer.bin, nor GGUF; put the model's next to it, or name it "
			     "by --tokenizer PATH");
	file_unmap(data, n);
	if (rc)
		return err_prefix(why, rc, "%s", path);
	return kind == CONTENT_JSON ? tokenizer_load_json(t, path, why) : 0;
}

/* ---- search by name ---- */

static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tokenizer.bin"};

/* Return the path of the first of the names in dir, which the caller frees, or NULL. */
static char *file_in(const char *dir)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = file_join(dir, names[i]);
		if (file_exists(path))
			return path;
		free(path);
	}
	return NULL;
}

static char *dir_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = xstrdup(slash ? path : ".");
	if (slash)
		dir[slash == path ? 1 : slash - path] = 0;
	return dir;
}

static int finish(struct tokenizer *t, const char *path, struct why *why)
{
	int rc = tokenizer_finish(t, why);
	return rc ? err_prefix(why, rc, "%s", path) : 0;
}

static int load_from_dir(struct tokenizer *t, const char *dir, struct why *why)
{
	char *path = file_in(dir);
	int rc;
	if (!path && gguf_is(dir)) {
		rc = load_gguf(t, dir, why);
		return rc ? rc : finish(t, dir, why);
	}
	if (!path) /* opening it reports what is missing */
		path = file_join(dir, names[0]);
	rc = check_pointer(path, why);
	if (rc == 0 && has_suffix(path, ".json"))
		rc = tokenizer_load_json(t, path, why);
	else if (rc == 0)
		rc = load_file(t, path, why);
	if (rc == 0)
		rc = tokenizer_load_config(t, dir, why);
	if (rc == 0)
		rc = finish(t, path, why);
	free(path);
	return rc;
}

/* Load from a file.  A file without a supported tokenizer may be a model with its tokenizer next to it. */
static int load_from_file(struct tokenizer *t, const char *path, struct why *why)
{
	char *dir = dir_of(path), *parent = file_in(dir);
	int rc = load_file(t, path, why);
	if ((rc == -ENOENT || rc == -ENOTSUP) && parent && strcmp(parent, path) != 0) {
		rc = load_from_dir(t, dir, why);
	} else if (rc == -ENOENT && model_file_of(path) && !gguf_is(path)) {
		rc = err_why(why, rc,
			     "%s has no tokenizer inside, and none of tokenizer.json, tokenizer.model and "
			     "tokenizer.bin is next to it: name its tokenizer by --tokenizer FILE",
			     path);
	} else if (rc == 0) {
		if (!gguf_is(path)) /* a GGUF file is self-contained */
			rc = tokenizer_load_config(t, dir, why);
		if (rc == 0)
			rc = finish(t, path, why);
	}
	free(parent);
	free(dir);
	return rc;
}

int tokenizer_load(const char *path, struct tokenizer **out, struct why *why)
{
	struct tokenizer *t = xcalloc(1, sizeof(*t));
	added_init(&t->added);
	int rc = file_exists(path) && !file_is_dir(path) ? load_from_file(t, path, why)
							 : load_from_dir(t, path, why);
	if (rc)
		tokenizer_free(t);
	else
		*out = t;
	return rc;
}

void tokenizer_free(struct tokenizer *t)
{
	if (!t)
		return;
	vocab_fini(&t->vocab);
	bpe_fini(&t->bpe);
	added_fini(&t->added);
	norm_fini(&t->norm);
	pretok_fini(&t->pretok);
	spm_free(t->spm);
	norm_fini(&t->decoder.replace);
	free(t->decoder.meta);
	free(t->decoded);
	buf_fini(&t->decoded_text);
	token_ids_fini(&t->before);
	token_ids_fini(&t->behind);
	free(t);
}
