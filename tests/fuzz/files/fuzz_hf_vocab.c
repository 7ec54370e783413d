/* fuzz_hf_vocab.c - arbitrary bytes as the tokenizer's files of a Hugging Face directory: refused with a
 * reason, or a tokenizer that encodes and decodes.  Converted to the keys of a GGUF file, or from these back
 * to files, it can be loaded and gives the same ids.  Bytes that begin with a brace are tokenizer.json up to
 * a zero byte, then tokenizer_config.json; others are SentencePiece's tokenizer.model.
 *
 *   make fuzz FUZZ=fuzz_hf_vocab; seeds: tests/fuzz/files/make_seeds.py */
#include "controller/tokenizer/tokenizer.h"
#include "formats/family.h"
#include "formats/gguf.h"
#include "quant/convert/gguf_keys.h"
#include "quant/convert/hf_vocab.h"
#include "quant/convert/hf_files.h"
#include "tests/fuzz/files/folder.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct why why;

static const char text[] =
	"The cat's <|im_start|> A\xcc\x8a \xf0\x9f\xa6\x99  \xe2\x96\x81 12345\n\n <s>donkey<|end|> "
	"<mask>  \xef\xac\x81 x ";

struct encoded {
	bool loaded;
	uint32_t n_vocab;
	int rc; /* result of encoding */
	struct token_ids ids;
};

static void encoded_fini(struct encoded *e)
{
	token_ids_fini(&e->ids);
}

/* Encode the text with the tokenizer of a path. */
static struct encoded encode(const char *path)
{
	struct encoded e = {0};
	struct tokenizer *t;
	struct buf out = {0};
	why.text[0] = '\0';
	if (tokenizer_load(path, &t, &why)) {
		assert(why.text[0]);
		return e;
	}
	e.loaded = true;
	e.n_vocab = tokenizer_n_vocab(t);
	e.rc = tokenizer_encode(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL, NULL, 0, &e.ids, &why);
	for (size_t i = 0; !e.rc && i < e.ids.n; i++)
		assert(e.ids.ids[i] < e.n_vocab);
	assert(e.rc || tokenizer_decode(t, e.ids.ids, e.ids.n, false, &out) == 0);
	buf_fini(&out);
	tokenizer_free(t);
	return e;
}

static void check_same(const struct encoded *a, const struct encoded *b, bool said, const char *of)
{
	if (b->loaded && !said)
		return;
	if (b->loaded && a->rc == b->rc && a->ids.n == b->ids.n &&
	    (!a->ids.n || memcmp(a->ids.ids, b->ids.ids, a->ids.n * sizeof *a->ids.ids) == 0))
		return;
	fprintf(stderr, "%s: %s; %d and %d, ids:\n", of, why.text, a->rc, b->rc);
	for (size_t i = 0; i < a->ids.n || i < b->ids.n; i++)
		fprintf(stderr, " %d/%d", i < a->ids.n ? (int)a->ids.ids[i] : -1,
			i < b->ids.n ? (int)b->ids.ids[i] : -1);
	abort();
}

/* Finish the result; assert that it is complete, or absent with a reason. */
static bool finish(struct writer *w, int rc, const char *dst)
{
	if (!rc)
		rc = writer_begin(w, &why);
	if (!rc)
		rc = writer_commit(&w, &why);
	writer_abort(&w);
	assert(rc ? why.text[0] && access(dst, F_OK) : !access(dst, F_OK));
	return !rc;
}

static bool to_keys(const char *dir, const struct model_config *c, const char *dst)
{
	struct writer *w;
	folder_remove(dst);
	why.text[0] = '\0';
	if (writer_new(dst, WRITER_GGUF, &w, &why))
		abort();
	writer_meta_str(w, "general.architecture", "llama");
	return finish(w, gguf_keys_vocab(w, c, dir, &why), dst);
}

/* Write files from the keys alone, without the stored tokenizer.json. */
static bool to_files(const char *file, const struct model_config *c, const char *dst)
{
	struct writer *w;
	struct gguf *g;
	folder_remove(dst);
	why.text[0] = '\0';
	assert(gguf_open(file, &g, &why) == 0);
	if (writer_new(dst, WRITER_SAFETENSORS, &w, &why))
		abort();
	const bool done = finish(w, hf_vocab_files(w, g, c, &why), dst);
	gguf_close(g);
	return done;
}

/* Return whether conversion to keys loses nothing.  Keys lack flags of added tokens, user-defined pieces of
 * normalized text, and tokens of tokenizer_config.json. */
static bool is_said(const struct hf_vocab *v, const char *config)
{
	static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
	const json_t *added = json_object_get(v->tree, "added_tokens"), *token;
	bool said = access(config, F_OK) != 0;
	size_t i;
	json_array_foreach(added, i, token) for (int k = 0; k < 4; k++) said &=
		!json_is_true(json_object_get(token, flags[k]));
	for (i = 0; !v->tree && i < v->table.n; i++)
		said &= v->table.rows[i].type != ROW_USER_DEFINED;
	return said;
}

static void check(const char *dir)
{
	char file[FOLDER_PATH], back[FOLDER_PATH];
	static struct model_config c;
	struct hf_vocab v;
	struct encoded a = encode(dir);
	const bool read = hf_vocab_read(dir, &v, &why) == 0;
	const bool said = read && is_said(&v, folder_name(file, "hf/tokenizer_config.json"));
	assert(read || why.text[0]);
	hf_vocab_fini(&v);
	folder_name(file, "vocab.gguf");
	folder_name(back, "back");
	c = (struct model_config){.family = family_find(NULL, "llama"), .n_vocab = (int)a.n_vocab, .bos = -1};
	if (a.loaded && read) {
		assert(to_keys(dir, &c, file));
		struct encoded b = encode(file);
		check_same(&a, &b, said, "the keys");
		encoded_fini(&b);
		if (to_files(file, &c, back)) {
			b = encode(back);
			check_same(&a, &b, said, "files of the keys");
			encoded_fini(&b);
		}
	}
	encoded_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char dir[FOLDER_PATH], path[FOLDER_PATH];
	const bool json = n && data[0] == '{';
	const uint8_t *end = json ? memchr(data, 0, n) : NULL;
	folder_begin();
	folder_remove(folder_name(dir, "hf"));
	mkdir(dir, 0700);
	folder_put(folder_name(path, json ? "hf/tokenizer.json" : "hf/tokenizer.model"), data,
		   end ? (size_t)(end - data) : n);
	if (end)
		folder_put(folder_name(path, "hf/tokenizer_config.json"), end + 1,
			   n - (size_t)(end + 1 - data));
	check(dir);
	return 0;
}
