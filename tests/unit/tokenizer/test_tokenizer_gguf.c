/* Tokenizers from GGUF, compared with llama.cpp's vectors and with the ids of the original tokenizer file
 * (tests/golden/make_gguf_vocab_golden.py). */
#include "base/file.h"
#include "controller/tokenizer/tokenizer_impl.h"
#include "tests/testdata.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(gguf_vocab, .timeout = 120);

#define NEED(x)                                                                                              \
	do {                                                                                                 \
		if (!(x))                                                                                    \
			cr_skip_test("the test data are not there");                                         \
	} while (0)

/* Writes a temporary file, loads it, removes it. */
static int load_bytes(const void *p, size_t n, struct tokenizer **t, struct why *why)
{
	char path[] = "/tmp/quern-vocab-XXXXXX";
	int fd = mkstemp(path);
	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, p, n), (ssize_t)n);
	close(fd);
	int rc = tokenizer_load(path, t, why);
	unlink(path);
	return rc;
}

static struct tokenizer *shared(const char *rel)
{
	struct buf data = {0};
	struct tokenizer *t = NULL;
	struct why why = {""};
	if (!help_read(rel, &data))
		return NULL;
	cr_assert_eq(load_bytes(data.p, data.len, &t, &why), 0, "%s: %s", rel, why.text);
	buf_fini(&data);
	return t;
}

/* ---- llama.cpp's vectors ---- */

static void check_vectors(const char *file, const char *vector)
{
	static const char separator[] = "\n__ggml_vocab_test__\n";
	struct buf in = {0}, out = {0};
	char rel[128];
	size_t n = 0;
	snprintf(rel, sizeof rel, "tokenizers/ggml-vocab/%s", file);
	struct tokenizer *t = shared(rel);
	snprintf(rel, sizeof rel, "tokenizers/ggml-vocab/ggml-vocab-%s.gguf.inp", vector);
	NEED(t && help_read(rel, &in));
	snprintf(rel, sizeof rel, "tokenizers/ggml-vocab/ggml-vocab-%s.gguf.out", vector);
	NEED(help_read(rel, &out));
	char *text = in.p, *line = out.p, *end;
	for (; (end = strstr(text, separator)) != NULL; text = end + strlen(separator), n++) {
		struct buf got = {0};
		char *newline = strchr(line, '\n'), *from = line;
		cr_assert(newline);
		struct token_ids ids = help_encode(t, text, (size_t)(end - text), 0);
		buf_reserve(&got, 1);
		for (size_t i = 0; i < ids.n; i++)
			buf_printf(&got, " %u", ids.ids[i]);
		*newline = 0;
		size_t k = strlen(from);
		while (k && from[k - 1] == ' ')
			from[--k] = 0;
		cr_expect_str_eq(got.p, from, "%s: %.*s", file, (int)(end - text), text);
		line = newline + 1;
		buf_fini(&got);
		token_ids_fini(&ids);
	}
	cr_assert(n > 30);
	tokenizer_free(t);
	buf_fini(&in);
	buf_fini(&out);
}

Test(gguf_vocab, vectors_of_gpt2)
{
	check_vectors("ggml-vocab-gpt-2.gguf.gz", "gpt-2");
}
Test(gguf_vocab, vectors_of_llama3)
{
	check_vectors("ggml-vocab-llama-bpe.gguf.gz", "llama-bpe");
}
Test(gguf_vocab, vectors_of_llama2)
{
	check_vectors("ggml-vocab-llama-spm.gguf", "llama-spm");
}
Test(gguf_vocab, vectors_of_phi3)
{
	check_vectors("ggml-vocab-phi-3.gguf", "phi-3");
}
Test(gguf_vocab, vectors_of_qwen2_by_qwen3)
{
	check_vectors("vocab-qwen3.gguf.gz", "qwen2");
}
Test(gguf_vocab, vectors_of_deepseek_r1_qwen_by_qwen3)
{
	check_vectors("vocab-qwen3.gguf.gz", "deepseek-r1-qwen");
}

/* ---- whole books, by a hash of their ids ---- */

static void check_books(const char *file, const char *key)
{
	struct buf index = {0};
	struct why why;
	char hex[65], rel[128];
	json_t *all, *o;
	const char *text_rel;
	snprintf(rel, sizeof rel, "tokenizers/ggml-vocab/%s", file);
	struct tokenizer *t = shared(rel);
	NEED(t && help_read("tokenizers/vectors/golden-corpora.json", &index));
	cr_assert_eq(json_parse(index.p, index.len, &all, &why), 0, "%s", why.text);
	size_t n = 0;
	json_object_foreach(json_object_get(all, "files"), text_rel, o)
	{
		struct buf text = {0};
		const json_t *want = json_object_get(json_object_get(o, "enc"), key);
		if (!want || !help_read(text_rel, &text))
			continue;
		struct token_ids ids = help_encode(t, text.p, text.len, TOKENIZER_NO_SPECIAL);
		help_sha256(&ids, hex);
		cr_expect_str_eq(hex, json_string_value(json_object_get(want, "sha256")), "%s, %s", file,
				 text_rel);
		token_ids_fini(&ids);
		buf_fini(&text);
		n++;
	}
	cr_expect(n >= 7);
	json_decref(all);
	buf_fini(&index);
	tokenizer_free(t);
}

Test(gguf_vocab, books_by_gpt2)
{
	check_books("ggml-vocab-gpt-2.gguf.gz", "gpt-2");
}
Test(gguf_vocab, books_by_llama3)
{
	check_books("ggml-vocab-llama-bpe.gguf.gz", "llama3");
}
Test(gguf_vocab, books_by_llama2)
{
	check_books("ggml-vocab-llama-spm.gguf", "llama2");
}
Test(gguf_vocab, books_by_qwen3)
{
	check_books("vocab-qwen3.gguf.gz", "qwen3");
}

/* ---- the original tokenizer file ---- */

static struct tokenizer *load(const char *rel)
{
	struct tokenizer *t = NULL;
	struct why why = {""};
	cr_assert_eq(tokenizer_load(repofile(rel), &t, &why), 0, "%s: %s", rel, why.text);
	return t;
}

static void check_same(struct tokenizer *a, struct tokenizer *b, unsigned flags, const char *const *bits,
		       size_t n_bits)
{
	struct buf text = {0};
	uint64_t seed = 31;
	for (int i = 0; i < 2000; i++) {
		help_random_text(&seed, &text);
		if (i % 4 == 0 && n_bits)
			buf_puts(&text, bits[(size_t)i / 4 % n_bits]);
		struct token_ids x = help_encode(a, text.p, text.len, flags);
		struct token_ids y = help_encode(b, text.p, text.len, flags);
		struct buf back_x = {0}, back_y = {0};
		cr_assert(x.n == y.n && (!x.n || memcmp(x.ids, y.ids, x.n * 4) == 0), "%s", text.p);
		tokenizer_decode(a, x.ids, x.n, true, &back_x);
		tokenizer_decode(b, y.ids, y.n, true, &back_y);
		cr_assert(back_x.len == back_y.len &&
				  (!back_x.len || memcmp(back_x.p, back_y.p, back_x.len) == 0),
			  "%s", text.p);
		buf_fini(&back_x);
		buf_fini(&back_y);
		token_ids_fini(&x);
		token_ids_fini(&y);
	}
	buf_fini(&text);
	tokenizer_free(a);
	tokenizer_free(b);
}

static const char *const ends[] = {"<|begin|>x<|end|>", "<|begin|><|begin|>", "the donkey", "and the cat"};

Test(gguf_vocab, bpe_equals_tokenizer_json)
{
	for (unsigned flags = 0; flags < 3; flags++)
		check_same(load("tests/golden/tokenizer/gguf_llama3.gguf"),
			   load("tests/golden/tokenizer/llama3"), flags, ends, 4);
}

Test(gguf_vocab, sentencepiece_bpe_equals_tokenizer_model)
{
	static const char *const bits[] = {"<s>x</s>", "<unk>", "the donkey"};
	for (unsigned flags = 0; flags < 3; flags++)
		check_same(load("tests/golden/tokenizer/gguf_spm.gguf"),
			   load("tests/golden/tokenizer/spm_bpe"), flags, bits, 3);
}

Test(gguf_vocab, unigram_equals_tokenizer_model)
{
	static const char *const bits[] = {"<s>x</s>", "the donkey"};
	for (unsigned flags = 0; flags < 3; flags++)
		check_same(load("tests/golden/tokenizer/gguf_unigram.gguf"),
			   load("tests/golden/tokenizer/spm_unigram_bytes"), flags, bits, 2);
}

Test(gguf_vocab, types_of_tokens_are_read)
{
	struct tokenizer *t = load("tests/golden/tokenizer/gguf_llama3.gguf");
	cr_expect_eq(tokenizer_bos(t), 400);
	cr_expect_eq(tokenizer_eos(t), 401);
	cr_expect(tokenizer_is_special(t, 400) && tokenizer_is_special(t, 401));
	cr_expect_eq(tokenizer_n_vocab(t), 402);
	cr_expect_eq(tokenizer_id(t, "[PAD402]"), -1); /* unused */
	tokenizer_free(t);
}

/* Compare the token texts, by which the service identifies a vocabulary. */
static void check_texts(struct tokenizer *a, struct tokenizer *b)
{
	cr_assert_eq(tokenizer_n_vocab(a), tokenizer_n_vocab(b));
	for (uint32_t id = 0; id < tokenizer_n_vocab(a); id++) {
		struct buf x = {0}, y = {0};
		tokenizer_decode(a, &id, 1, false, &x);
		tokenizer_decode(b, &id, 1, false, &y);
		cr_assert(x.len == y.len && (!x.len || memcmp(x.p, y.p, x.len) == 0), "%u", id);
		cr_assert_eq(tokenizer_is_special(a, id), tokenizer_is_special(b, id), "%u", id);
		buf_fini(&x);
		buf_fini(&y);
	}
	tokenizer_free(a);
	tokenizer_free(b);
}

Test(gguf_vocab, texts_of_tokens_are_those_of_the_file_it_comes_from)
{
	check_texts(load("tests/golden/tokenizer/gguf_llama3.gguf"), load("tests/golden/tokenizer/llama3"));
	check_texts(load("tests/golden/tokenizer/gguf_spm.gguf"), load("tests/golden/tokenizer/spm_bpe"));
	struct tokenizer *json = help_shared("qwen3"),
			 *t = shared("tokenizers/ggml-vocab/vocab-qwen3.gguf.gz");
	if (json && t)
		check_texts(t, json);
}

/* Uses the complete file of the test data. */
Test(gguf_vocab, qwen3_equals_its_tokenizer_json)
{
	struct tokenizer *json = help_shared("qwen3"),
			 *t = shared("tokenizers/ggml-vocab/vocab-qwen3.gguf.gz");
	static const char *const bits[] = {"<|im_start|>user\n", "<think>\n</think>", "<tool_call>"};
	NEED(json && t);
	cr_expect_eq(tokenizer_eos(t), 151645);
	check_same(t, json, 0, bits, 3);
}

/* Some tokens strip the white space after them, although no key of the file says so. */
Test(gguf_vocab, phi3_equals_its_tokenizer_json)
{
	struct tokenizer *json = help_shared("phi-3-mini"),
			 *t = shared("tokenizers/ggml-vocab/ggml-vocab-phi-3.gguf");
	static const char *const bits[] = {"<|user|>\n Hello there<|end|> \n\t<|assistant|>\n",
					   "a</s>  b<s>  c", "<|endoftext|> \n<|end|>  x",
					   "<|placeholder1|>\n\n<|system|>  You are"};
	NEED(json && t);
	check_same(t, json, 0, bits, 4);
}

/* ---- split patterns ---- */

static void on_word(void *ctx, const char *word, size_t n)
{
	json_array_append_new(ctx, json_stringn(word, n));
}

static json_t *words_of(const struct pretok *p, const json_t *text)
{
	struct why why = {""};
	json_t *words = json_array();
	struct pretok_run run = {.pt = p, .word = on_word, .ctx = words, .why = &why};
	if (json_string_length(text))
		cr_assert_eq(pretok_run(&run, json_string_value(text), json_string_length(text), true), 0,
			     "%s", why.text);
	pretok_run_fini(&run);
	return words;
}

/* tests/golden/make_pre_golden.py: words from the package tokenizers, with the models' own steps. */
Test(gguf_vocab, names_of_pre_tokenizers_split_as_their_models_do)
{
	struct why why;
	json_t *all, *c;
	size_t i, n = 0;
	cr_assert_eq(json_read(repofile("tests/golden/tokenizer/pre.json"), 1 << 24, &all, &why), 0, "%s",
		     why.text);
	json_array_foreach(all, i, c)
	{
		const char *name = json_string_value(json_object_get(c, "pre"));
		const json_t *text = json_object_get(c, "text");
		struct piece_table pt;
		struct pretok p = {0};
		piece_table_init(&pt);
		cr_assert_eq(piece_table_set_pre(&pt, name, strlen(name), &why), 0, "%s", why.text);
		for (int k = 0; k < pt.n_splits; k++) {
			struct pretok_op *op = &p.ops[p.n++];
			*op = (struct pretok_op){.kind = PRETOK_SPLIT, .behavior = SPLIT_ISOLATED};
			cr_assert_eq(splitter_init(&op->splitter, true, pt.splits[k], true, &why), 0,
				     "%s: %s", name, why.text);
		}
		json_t *words = words_of(&p, text);
		char *got = json_dumps(words, 0), *want = json_dumps(json_object_get(c, "words"), 0);
		cr_expect_str_eq(got, want, "%s", name);
		free(got);
		free(want);
		json_decref(words);
		pretok_fini(&p);
		n++;
	}
	cr_assert(n > 500);
	json_decref(all);
}

/* ---- files made here ---- */

/* A GGUF file that only has keys. */
struct maker {
	struct buf b;
	uint64_t n_keys;
};

static void put_u32(struct maker *m, uint32_t v)
{
	buf_put(&m->b, &v, 4);
}

static void put_u64(struct maker *m, uint64_t v)
{
	buf_put(&m->b, &v, 8);
}

static void put_text(struct maker *m, const char *s)
{
	put_u64(m, strlen(s));
	buf_puts(&m->b, s);
}

static void key(struct maker *m, const char *name, uint32_t type)
{
	if (!m->n_keys) {
		buf_puts(&m->b, "GGUF");
		put_u32(m, 3);
		put_u64(m, 0);
		put_u64(m, 0);
	}
	m->n_keys++;
	memcpy(m->b.p + 16, &m->n_keys, 8);
	put_text(m, name);
	put_u32(m, type);
}

static void text_key(struct maker *m, const char *name, const char *value)
{
	key(m, name, 8);
	put_text(m, value);
}

static void array_key(struct maker *m, const char *name, uint32_t type, size_t n)
{
	key(m, name, 9);
	put_u32(m, type);
	put_u64(m, n);
}

static void texts_key(struct maker *m, const char *name, const char *const *texts, size_t n)
{
	array_key(m, name, 8, n);
	for (size_t i = 0; i < n; i++)
		put_text(m, texts[i]);
}

static void refuse(struct maker *m, int rc, const char *what)
{
	struct tokenizer *t;
	struct why why = {""};
	cr_expect_eq(load_bytes(m->b.p, m->b.len, &t, &why), rc, "%s: %s", what, why.text);
	cr_expect(strstr(why.text, what), "\"%s\" does not contain \"%s\"", why.text, what);
	buf_fini(&m->b);
	m->n_keys = 0;
}

static const char *const letters[] = {"a", "b", "ab", "<x>"}, *const merge[] = {"a b"};

static void put_bpe(struct maker *m, const char *pre)
{
	text_key(m, "tokenizer.ggml.model", "gpt2");
	text_key(m, "tokenizer.ggml.pre", pre);
	texts_key(m, "tokenizer.ggml.tokens", letters, 4);
	texts_key(m, "tokenizer.ggml.merges", merge, 1);
}

Test(gguf_vocab, what_is_not_supported_is_refused_by_name)
{
	struct maker m = {0};
	static const char *const models[] = {"bert", "rwkv", "plamo2", "gemma4", ""};
	for (size_t i = 0; i < 5; i++) {
		char want[64];
		snprintf(want, sizeof want, "tokenizer.ggml.model \"%s\" is not supported", models[i]);
		text_key(&m, "tokenizer.ggml.model", models[i]);
		refuse(&m, -ENOTSUP, want);
	}
	put_bpe(&m, "superbpe");
	refuse(&m, -ENOTSUP, "tokenizer.ggml.pre \"superbpe\" is not known");
	put_bpe(&m, "");
	refuse(&m, -ENOTSUP, "tokenizer.ggml.pre \"\" is not known");
	put_bpe(&m, "llama");
	refuse(&m, -ENOTSUP, "tokenizer.ggml.pre \"llama\" is not known");
	put_bpe(&m, "starcoder refact");
	refuse(&m, -ENOTSUP, "is not known");
}

Test(gguf_vocab, bad_vocabularies_are_refused)
{
	static const char *const twice[] = {"a", "a"}, *const unknown[] = {"a z"}, *const one[] = {"ab"};
	struct maker m = {0};
	text_key(&m, "general.architecture", "llama");
	refuse(&m, -ENOENT, "tokenizer.ggml.model");
	text_key(&m, "tokenizer.ggml.model", "gpt2");
	texts_key(&m, "tokenizer.ggml.tokens", letters, 4);
	refuse(&m, -ENOENT, "tokenizer.ggml.merges");
	text_key(&m, "tokenizer.ggml.model", "llama");
	texts_key(&m, "tokenizer.ggml.tokens", letters, 4);
	refuse(&m, -EINVAL, "tokenizer.ggml.scores is missing");
	text_key(&m, "tokenizer.ggml.model", "gpt2");
	texts_key(&m, "tokenizer.ggml.tokens", twice, 2);
	texts_key(&m, "tokenizer.ggml.merges", merge, 0);
	refuse(&m, -EINVAL, "piece 1 (\"a\"): another piece has its text");
	text_key(&m, "tokenizer.ggml.model", "gpt2");
	texts_key(&m, "tokenizer.ggml.tokens", letters, 4);
	texts_key(&m, "tokenizer.ggml.merges", unknown, 1);
	refuse(&m, -EINVAL, "merges[0]: \"z\" is not in the vocabulary");
	text_key(&m, "tokenizer.ggml.model", "gpt2");
	texts_key(&m, "tokenizer.ggml.tokens", letters, 4);
	texts_key(&m, "tokenizer.ggml.merges", one, 1);
	refuse(&m, -EINVAL, "merges[0]: \"ab\" is not two pieces");
	put_bpe(&m, "gpt-2");
	array_key(&m, "tokenizer.ggml.token_type", 5, 2);
	put_u64(&m, 1);
	refuse(&m, -EINVAL, "tokenizer.ggml.token_type has 2 values, there are 4 tokens");
	put_bpe(&m, "gpt-2");
	array_key(&m, "tokenizer.ggml.token_type", 5, 4);
	put_u64(&m, 1);
	put_u64(&m, 1);
	m.b.p[m.b.len - 8] = 9;
	refuse(&m, -EINVAL, "piece 2 (\"ab\"): its type");
}

Test(gguf_vocab, a_minimal_vocabulary_is_read)
{
	struct maker m = {0};
	struct tokenizer *t = NULL;
	struct why why = {""};
	put_bpe(&m, "gpt-2");
	array_key(&m, "tokenizer.ggml.token_type", 5, 4);
	put_u64(&m, 1ull << 32 | 1);
	put_u64(&m, 4ull << 32 | 1);
	key(&m, "tokenizer.ggml.bos_token_id", 4);
	put_u32(&m, 99); /* out of range: treated as absent */
	cr_assert_eq(load_bytes(m.b.p, m.b.len, &t, &why), 0, "%s", why.text);
	struct token_ids ids = help_encode(t, "aba<x>", 6, TOKENIZER_NO_SPECIAL);
	cr_assert_eq(ids.n, 3);
	cr_expect(ids.ids[0] == 2 && ids.ids[1] == 0 && ids.ids[2] == 3);
	cr_expect_eq(tokenizer_bos(t), -1);
	cr_expect(!tokenizer_is_special(t, 3));
	token_ids_fini(&ids);
	tokenizer_free(t);
	buf_fini(&m.b);
}

Test(gguf_vocab, truncated_files_are_refused)
{
	static const char *const files[] = {"llama3", "spm", "unigram"};
	struct why why;
	char rel[64], *data;
	size_t n;
	for (size_t k = 0; k < 3; k++) {
		snprintf(rel, sizeof rel, "tests/golden/tokenizer/gguf_%s.gguf", files[k]);
		cr_assert_eq(file_read(repofile(rel), 1 << 20, &data, &n, &why), 0, "%s", why.text);
		for (size_t i = 0; i < 64; i++) {
			struct tokenizer *t;
			why.text[0] = 0;
			cr_expect_neq(load_bytes(data, n * i / 64, &t, &why), 0, "%zu", i);
			cr_expect(strstr(why.text, "/tmp/quern-vocab"), "%s", why.text);
		}
		free(data);
	}
}

/* If the file's own tokenizer is unsupported, the tokenizer.json next to it is used. */
Test(gguf_vocab, a_tokenizer_beside_serves_where_the_files_own_does_not)
{
	struct why why = {""};
	char dir[] = "/tmp/quern-vocab-XXXXXX";
	struct maker m = {0};
	struct tokenizer *t;
	cr_assert(mkdtemp(dir));
	char *model = file_join(dir, "model.gguf"), *json = file_join(dir, "tokenizer.json");
	FILE *f = fopen(model, "w"), *g = fopen(json, "w");
	char *text = help_golden_text("llama3");
	put_bpe(&m, "superbpe");
	fwrite(m.b.p, 1, m.b.len, f);
	fputs(text, g);
	fclose(f);
	fclose(g);
	cr_expect_eq(tokenizer_load(model, &t, &why), 0, "%s", why.text);
	cr_expect_eq(tokenizer_n_vocab(t), 402);
	tokenizer_free(t);
	unlink(json);
	cr_expect_eq(tokenizer_load(model, &t, &why), -ENOTSUP);
	cr_expect_eq(tokenizer_load(dir, &t, &why), -ENOTSUP);
	cr_expect(strstr(why.text, "superbpe") && strstr(why.text, "tokenizer.json next to"), "%s", why.text);
	unlink(model);
	rmdir(dir);
	free(text);
	free(model);
	free(json);
	buf_fini(&m.b);
}
