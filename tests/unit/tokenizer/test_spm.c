/* SentencePiece's tokenizer.model and llama2.c's tokenizer.bin, compared with the ids of the package
 * sentencepiece (tests/golden/make_spm_golden.py) and of the same model's tokenizer.json. */
#include "base/alloc.h"
#include "base/file.h"
#include "controller/tokenizer/detok.h"
#include "controller/tokenizer/tokenizer_impl.h"
#include "tests/testdata.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(spm, .timeout = 120);

#define NEED(x)                                                                                              \
	do {                                                                                                 \
		if (!(x))                                                                                    \
			cr_skip_test("the test data are not there");                                         \
	} while (0)

static struct tokenizer *load(const char *path)
{
	struct tokenizer *t = NULL;
	struct why why = {""};
	cr_assert_eq(tokenizer_load(path, &t, &why), 0, "%s", why.text);
	return t;
}

static const char *const small[] = {"spm_bpe",           "spm_bpe_user",        "spm_bpe_unused",
				    "spm_bpe_ties",      "spm_bpe_unused_ties", "spm_unigram",
				    "spm_unigram_bytes", "spm_unigram_ties",    "spm_suffix"};
enum { N_SMALL = sizeof small / sizeof *small };

static const char *model_of(const char *name)
{
	char rel[128];
	snprintf(rel, sizeof rel, "tests/golden/tokenizer/%s/tokenizer.model", name);
	return repofile(rel);
}

Test(spm, small_models_give_the_golden_ids)
{
	struct why why;
	json_t *all, *c;
	struct tokenizer *t[N_SMALL];
	size_t i, n = 0;
	cr_assert_eq(json_read(repofile("tests/golden/tokenizer/spm.json"), 1 << 24, &all, &why), 0, "%s",
		     why.text);
	for (i = 0; i < N_SMALL; i++)
		t[i] = load(model_of(small[i]));
	json_array_foreach(all, i, c)
	{
		const char *name = json_string_value(json_object_get(c, "tokenizer"));
		const json_t *text = json_object_get(c, "text");
		size_t k = 0;
		while (k < N_SMALL && strcmp(small[k], name) != 0)
			k++;
		cr_assert(k < N_SMALL, "%s", name);
		struct token_ids ids = help_encode(t[k], json_string_value(text), json_string_length(text),
						   TOKENIZER_NO_SPECIAL);
		help_expect(name, json_string_value(text), &ids, json_object_get(c, "ids"));
		token_ids_fini(&ids);
		n++;
	}
	cr_assert(n > 500);
	for (i = 0; i < N_SMALL; i++)
		tokenizer_free(t[i]);
	json_decref(all);
}

/* A directory and the file in it give the same tokenizer. */
Test(spm, a_directory_or_its_file_may_be_named)
{
	struct tokenizer *a = load(repofile("tests/golden/tokenizer/spm_bpe")),
			 *b = load(model_of("spm_bpe"));
	cr_expect_eq(tokenizer_n_vocab(a), 500);
	cr_expect_eq(tokenizer_n_vocab(b), 500);
	tokenizer_free(a);
	tokenizer_free(b);
}

static void expect_ids(const struct tokenizer *t, const char *text, unsigned flags, const char *want)
{
	struct buf got = {0};
	struct token_ids ids = help_encode(t, text, strlen(text), flags);
	buf_reserve(&got, 1);
	for (size_t i = 0; i < ids.n; i++)
		buf_printf(&got, "%s%u", i ? " " : "", ids.ids[i]);
	cr_expect_str_eq(got.p, want, "%s", text);
	buf_fini(&got);
	token_ids_fini(&ids);
}

Test(spm, control_pieces_are_special_and_found_in_the_text)
{
	struct tokenizer *t = load(model_of("spm_bpe_user"));
	int64_t im = tokenizer_id(t, "<|im_start|>");
	char want[64];
	cr_assert(im > 0);
	cr_expect(tokenizer_is_special(t, (uint32_t)im));
	cr_expect(tokenizer_is_special(t, 1) && tokenizer_is_special(t, 2));
	cr_expect(!tokenizer_is_special(t, (uint32_t)tokenizer_id(t, "donkey")));
	snprintf(want, sizeof want, "1 %d 2", (int)im);
	expect_ids(t, "<s><|im_start|></s>", 0, want);
	snprintf(want, sizeof want, "1 1 %d 2", (int)im);
	expect_ids(t, "<s><|im_start|></s>", TOKENIZER_ADD_SPECIAL, want);
	cr_expect_eq(tokenizer_bos(t), 1);
	cr_expect_eq(tokenizer_eos(t), 2);
	tokenizer_free(t);
}

Test(spm, names_of_the_ends_come_from_the_trainer)
{
	struct tokenizer *t = load(model_of("spm_suffix"));
	cr_expect_eq(tokenizer_bos(t), tokenizer_id(t, "[B]"));
	cr_expect_eq(tokenizer_eos(t), tokenizer_id(t, "[E]"));
	cr_expect(tokenizer_bos(t) >= 0);
	tokenizer_free(t);
}

Test(spm, decoding_gives_the_text_back)
{
	static const char *const same[] = {"spm_bpe", "spm_unigram_bytes"};
	static const char *const texts[] = {"the donkey  and the cat", " two  spaces ",
					    "\xf0\x9f\xa6\x99 a\nb\t", "\xed\x95\x9c\xea\xb5\xad <s> x"};
	for (size_t k = 0; k < 2; k++) {
		struct tokenizer *t = load(model_of(same[k]));
		for (size_t i = 0; i < 4; i++) {
			struct buf out = {0};
			struct token_ids ids =
				help_encode(t, texts[i], strlen(texts[i]), TOKENIZER_NO_SPECIAL);
			cr_assert_eq(tokenizer_decode(t, ids.ids, ids.n, true, &out), 0);
			cr_expect_str_eq(out.p, texts[i], "%s", same[k]);
			buf_fini(&out);
			token_ids_fini(&ids);
		}
		tokenizer_free(t);
	}
}

/* ---- configuration next to the file ---- */

static struct tokenizer *with_config(const char *name, const char *config, struct why *why)
{
	char dir[] = "/tmp/quern-spm-XXXXXX", *data;
	size_t n;
	struct tokenizer *t = NULL;
	cr_assert(mkdtemp(dir));
	cr_assert_eq(file_read(model_of(name), 1 << 20, &data, &n, why), 0, "%s", why->text);
	char *model = file_join(dir, "tokenizer.model"), *other = file_join(dir, "tokenizer_config.json");
	FILE *f = fopen(model, "w"), *g = fopen(other, "w");
	cr_assert(f && g);
	cr_assert_eq(fwrite(data, 1, n, f), n);
	fputs(config, g);
	fclose(f);
	fclose(g);
	if (tokenizer_load(dir, &t, why))
		t = NULL;
	unlink(model);
	unlink(other);
	rmdir(dir);
	free(model);
	free(other);
	free(data);
	return t;
}

Test(spm, the_configuration_adds_tokens_and_says_what_is_added)
{
	struct why why = {""};
	struct tokenizer *t =
		with_config("spm_bpe",
			    "{\"add_bos_token\":false,\"add_eos_token\":true,\"added_tokens_decoder\":"
			    "{\"500\":{\"content\":\"<|x|>\",\"special\":true}},\"eos_token\":\"<|x|>\"}",
			    &why);
	cr_assert(t, "%s", why.text);
	cr_expect_eq(tokenizer_n_vocab(t), 501);
	cr_expect_eq(tokenizer_eos(t), 500);
	expect_ids(t, "<|x|>", 0, "500");
	expect_ids(t, "<|x|>", TOKENIZER_ADD_SPECIAL, "500 500");
	tokenizer_free(t);
}

Test(spm, the_configuration_may_call_user_defined_pieces_special)
{
	struct why why = {""};
	struct tokenizer *plain = load(model_of("spm_bpe_user"));
	int64_t user = tokenizer_id(plain, "<|user|>");
	char config[256];
	cr_assert(user > 0);
	cr_expect(!tokenizer_is_special(plain, (uint32_t)user));
	snprintf(config, sizeof config,
		 "{\"added_tokens_decoder\":{\"%d\":{\"content\":\"<|user|>\",\"special\":true}}}",
		 (int)user);
	struct tokenizer *t = with_config("spm_bpe_user", config, &why);
	cr_assert(t, "%s", why.text);
	cr_expect(tokenizer_is_special(t, (uint32_t)user));
	tokenizer_free(t);
	tokenizer_free(plain);
}

/* ---- real models ---- */

static void check_books(const char *rel, const char *key)
{
	struct buf index = {0};
	struct why why;
	char hex[65];
	json_t *all, *file;
	const char *text_rel;
	const char *path = testdata(rel);
	NEED(path && help_read("tokenizers/vectors/golden-corpora.json", &index));
	struct tokenizer *t = load(path);
	cr_assert_eq(json_parse(index.p, index.len, &all, &why), 0, "%s", why.text);
	size_t n = 0;
	json_object_foreach(json_object_get(all, "files"), text_rel, file)
	{
		struct buf text = {0};
		const json_t *want = json_object_get(json_object_get(file, "enc"), key);
		if (!want || !help_read(text_rel, &text))
			continue;
		struct token_ids ids = help_encode(t, text.p, text.len, TOKENIZER_NO_SPECIAL);
		cr_expect_eq(ids.n, (size_t)json_integer_value(json_object_get(want, "n")), "%s", text_rel);
		help_sha256(&ids, hex);
		cr_expect_str_eq(hex, json_string_value(json_object_get(want, "sha256")), "%s", text_rel);
		token_ids_fini(&ids);
		buf_fini(&text);
		n++;
	}
	cr_expect(n >= 7);
	json_decref(all);
	buf_fini(&index);
	tokenizer_free(t);
}

Test(spm, books_by_llama2s_tokenizer_model)
{
	check_books("tokenizers/llama2/tokenizer.model", "llama2");
}

Test(spm, books_by_llama2s_tokenizer_bin)
{
	check_books("tokenizers/llama2/tokenizer.bin", "llama2");
}

/* Special tokens within a text are excluded: tokenizer.json searches for them in the normalized text, where
 * it finds them only after a space or at the beginning. */
Test(spm, llama2_equals_its_tokenizer_json)
{
	const char *model = testdata("tokenizers/llama2/tokenizer.model");
	struct tokenizer *json = help_shared("llama2");
	NEED(model && json);
	struct tokenizer *t = load(model);
	struct buf text = {0};
	uint64_t seed = 99;
	for (int i = 0; i < 3000; i++) {
		help_random_text(&seed, &text);
		unsigned flags = i % 2 ? TOKENIZER_ADD_SPECIAL : TOKENIZER_NO_SPECIAL;
		struct token_ids a = help_encode(t, text.p, text.len, flags);
		struct token_ids b = help_encode(json, text.p, text.len, flags);
		cr_assert(a.n == b.n && (!a.n || memcmp(a.ids, b.ids, a.n * 4) == 0), "%s", text.p);
		token_ids_fini(&a);
		token_ids_fini(&b);
	}
	buf_fini(&text);
	tokenizer_free(t);
	tokenizer_free(json);
}

Test(spm, tokenizer_bin_equals_tokenizer_model)
{
	const char *model = testdata("tokenizers/llama2/tokenizer.model");
	const char *bin = testdata("tokenizers/llama2/tokenizer.bin");
	NEED(model && bin);
	struct tokenizer *a = load(model), *b = load(bin);
	cr_assert_eq(tokenizer_n_vocab(a), tokenizer_n_vocab(b));
	for (uint32_t id = 0; id < tokenizer_n_vocab(a); id++) {
		struct buf x = {0}, y = {0};
		tokenizer_piece(a, id, &x);
		tokenizer_piece(b, id, &y);
		cr_expect(x.len == y.len && (!x.len || memcmp(x.p, y.p, x.len) == 0), "%u", id);
		buf_fini(&x);
		buf_fini(&y);
		cr_expect_eq(tokenizer_is_special(a, id), tokenizer_is_special(b, id), "%u", id);
	}
	tokenizer_free(a);
	tokenizer_free(b);
}

/* ---- damage ---- */

static int from_model(const void *p, size_t n, struct tokenizer **t, struct why *why)
{
	return tokenizer_from_data(spm_file_read, p, n, t, why);
}

static void use(struct tokenizer *t)
{
	static const char text[] =
		"The cat <|user|>and \xef\xac\x81 the donkey \xf0\x9f\xa6\x99 <s> A\xcc\x8a 12\n";
	struct token_ids ids = {0};
	struct buf out = {0};
	struct why why;
	cr_expect_eq(tokenizer_encode(t, text, sizeof text - 1, 0, NULL, 0, &ids, &why), 0);
	cr_expect_eq(tokenizer_decode(t, ids.ids, ids.n, true, &out), 0);
	token_ids_fini(&ids);
	buf_fini(&out);
	tokenizer_free(t);
}

/* A file cut before its normalizer_spec is refused. After it, only the trainer's notes are missing. */
Test(spm, truncated_models_are_refused)
{
	struct why why;
	char *data;
	size_t n, loaded = 0;
	for (size_t k = 0; k < N_SMALL; k++) {
		cr_assert_eq(file_read(model_of(small[k]), 1 << 20, &data, &n, &why), 0);
		for (size_t cut = 0; cut < n; cut += 7) {
			struct tokenizer *t;
			why.text[0] = 0;
			char *exact =
				xmemdup(data, cut + !cut); /* lets a sanitizer see a read past the end */
			if (from_model(exact, cut, &t, &why) == 0) {
				use(t);
				loaded++;
			} else {
				cr_expect(why.text[0]);
			}
			free(exact);
		}
		free(data);
	}
	cr_expect(loaded < 10, "%zu", loaded);
}

/* Cut the file at every 1/64 of its length except the first, where no piece identifies the format. */
static void check_cuts(const char *from, const char *name)
{
	struct why why;
	char dir[] = "/tmp/quern-spm-cut-XXXXXX", *data;
	size_t n;
	cr_assert(mkdtemp(dir));
	char *path = file_join(dir, name);
	cr_assert_eq(file_read(from, 1 << 20, &data, &n, &why), 0, "%s", why.text);
	for (size_t i = 1; i < 64; i++) {
		struct tokenizer *t;
		FILE *f = fopen(path, "wb");
		cr_assert(fwrite(data, 1, n * i / 64, f) == n * i / 64 && fclose(f) == 0);
		cr_assert_neq(tokenizer_load(path, &t, &why), 0, "%s cut at %zu", name, n * i / 64);
		cr_expect(strstr(why.text, path) && strstr(why.text, "byte ") && strstr(why.text, "piece") &&
				  strstr(why.text, "interrupted?"),
			  "cut at %zu: %s", n * i / 64, why.text);
	}
	unlink(path);
	rmdir(dir);
	free(path);
	free(data);
}

Test(spm, a_file_that_was_cut_names_the_file_the_piece_and_the_byte)
{
	check_cuts(model_of("spm_bpe"), "tokenizer.model");
	check_cuts(model_of("spm_unigram"), "tokenizer.model");
	const char *bin = testdata("weights/stories260K/tok512.bin");
	if (bin)
		check_cuts(bin, "tokenizer.bin");
}

Test(spm, a_changed_byte_never_crashes_or_hangs)
{
	struct why why;
	char *data;
	size_t n, loaded = 0;
	uint64_t seed = 4711;
	for (size_t k = 0; k < N_SMALL; k++) {
		cr_assert_eq(file_read(model_of(small[k]), 1 << 20, &data, &n, &why), 0);
		for (int i = 0; i < 300; i++) {
			struct tokenizer *t;
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			size_t at = i % 2 ? (seed >> 33) % n : n - 1 - (seed >> 33) % (n / 8);
			char was = data[at];
			data[at] = (char)(seed >> 20);
			if (from_model(data, n, &t, &why) == 0) {
				use(t);
				loaded++;
			}
			data[at] = was;
		}
		free(data);
	}
	cr_expect(loaded > 0);
}

static void refuse(const void *p, size_t n, piece_table_reader read, const char *what)
{
	struct tokenizer *t;
	struct why why = {""};
	cr_expect_eq(tokenizer_from_data(read, p, n, &t, &why), -EINVAL, "%s", what);
	cr_expect(strstr(why.text, what), "\"%s\" does not contain \"%s\"", why.text, what);
}
#define REFUSE(bytes, what) refuse(bytes, sizeof(bytes) - 1, spm_file_read, what)

/* A vocabulary piece: its text, and further fields of ModelProto.SentencePiece. */
#define UNK "\x0a\x09\x0a\x05<unk>\x18\x02"
#define PIECE_A                                                                                              \
	"\x0a\x03\x0a\x01"                                                                                   \
	"a"
#define END "\x1a\x00" /* a normalizer_spec, which files have after their pieces */

Test(spm, bad_models_are_refused)
{
	REFUSE("", "no pieces");
	refuse(NULL, 0, spm_file_read, "no pieces"); /* an empty file, mapped */
	REFUSE("\x12\x02\x18\x03" UNK, "WORD");
	REFUSE("\x12\x02\x18\x04" UNK, "CHAR");
	REFUSE("\x12\x02\x18\x09" UNK, "an unknown kind of model");
	REFUSE(PIECE_A, "no piece is the unknown one");
	REFUSE(UNK "\x0a\x09\x0a\x05<UNK>\x18\x02", "pieces 0 and 1 are both the unknown one");
	REFUSE(UNK PIECE_A PIECE_A END, "piece 2 (\"a\"): another piece has its text");
	REFUSE(UNK "\x0a\x02\x0a\x00" END, "piece 1 (\"\"): it is empty");
	REFUSE(UNK "\x0a\x03\x0a\x01\xff" END, "piece 1 (\"\"): not UTF-8");
	REFUSE(UNK "\x0a\x08\x0a\x01"
		   "a\x15\x00\x00\xc0\x7f" END,
	       "piece 1 (\"a\"): its score is not a number");
	REFUSE(UNK "\x0a\x05\x0a\x01"
		   "a\x18\x07" END,
	       "piece 1 (\"a\"): its type");
	REFUSE(UNK "\x0a\x7f\x0a\x01"
		   "a",
	       "after piece 0: byte 13: a field reaches beyond the end of the file");
	REFUSE(UNK "\x0a\x03\x0a\x09"
		   "a" END,
	       "a field reaches beyond its message");
	REFUSE(UNK "\x0b", "not a field of a protocol buffer");
	REFUSE(UNK "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "a number is longer than 64 bits");
	REFUSE(UNK PIECE_A, "byte 16: the file ends after its pieces");
	REFUSE(UNK "\x1a\x05\x12\x03"
		   "abc",
	       "precompiled_charsmap has 3 bytes");
	REFUSE(UNK "\x1a\x07\x12\x05\xff\xff\xff\x7f"
		   "a",
	       "precompiled_charsmap: a trie of");
}

Test(spm, a_long_piece_is_refused)
{
	struct buf b = {0};
	buf_put(&b, UNK, sizeof UNK - 1);
	buf_put(&b, "\x0a\x84\x08\x0a\x81\x08", 6); /* 1025 bytes */
	for (int i = 0; i < 1025; i++)
		buf_putc(&b, 'a');
	buf_put(&b, END, 2);
	refuse(b.p, b.len, spm_file_read, "longer than 1024 bytes");
	buf_fini(&b);
}

/* ---- tokenizer.bin ---- */

static void put_row(struct buf *b, float score, const char *text, int length)
{
	buf_put(b, &score, 4);
	buf_put(b, &length, 4);
	buf_puts(b, text);
}

static void put_vocab(struct buf *b, int longest)
{
	char name[8];
	buf_put(b, &longest, 4);
	put_row(b, 0, "<unk>", 5);
	put_row(b, 0, "\n<s>\n", 5);
	put_row(b, 0, "\n</s>\n", 6);
	for (unsigned i = 0; i < 256; i++) {
		snprintf(name, sizeof name, "<0x%02X>", i);
		put_row(b, 0, name, 6);
	}
	put_row(b, -1, "a", 1);
	put_row(b, -2, " ", 1);
	put_row(b, -3, " a", 2);
}

Test(spm, tokenizer_bin_is_read)
{
	struct buf b = {0};
	struct tokenizer *t;
	struct why why = {""};
	put_vocab(&b, 6);
	cr_assert_eq(tokenizer_from_data(llama2c_file_read, b.p, b.len, &t, &why), 0, "%s", why.text);
	expect_ids(t, "a a", TOKENIZER_ADD_SPECIAL, "1 261 261");
	expect_ids(t, "b", 0, "260 101");
	expect_ids(t, "<s>a", 0, "1 261");
	tokenizer_free(t);
	buf_fini(&b);
}

Test(spm, bad_tokenizer_bins_are_refused)
{
	struct buf b = {0};
	put_vocab(&b, 6);
	for (size_t cut = 0; cut < b.len; cut++) {
		struct tokenizer *t;
		struct why why = {""};
		char *exact = xmemdup(b.p, cut + !cut);
		int rc = tokenizer_from_data(llama2c_file_read, exact, cut, &t, &why);
		if (rc == 0)
			tokenizer_free(t);
		else
			cr_expect(strstr(why.text, "byte") || strstr(why.text, "pieces"), "%zu: %s", cut,
				  why.text);
		cr_expect(rc || cut > 4 + 3 * 8 + 256 * 14);
		free(exact);
	}
	buf_fini(&b);
	put_vocab(&b, 7);
	refuse(b.p, b.len, llama2c_file_read, "no piece is as long as the longest");
	buf_fini(&b);
	put_vocab(&b, 5);
	refuse(b.p, b.len, llama2c_file_read, "a piece is longer than the longest");
	buf_fini(&b);
}

/* ---- other files ---- */

Test(spm, files_without_a_tokenizer_are_named)
{
	static const char *const cases[][2] = {{"abc", "not a tokenizer"},
					       {"", "not a tokenizer"},
					       {"IQ== 0\nIg== 1\n", "tiktoken"},
					       {"{", "byte 1"}};
	char path[] = "/tmp/quern-spm-file-XXXXXX";
	close(mkstemp(path));
	for (size_t i = 0; i < 4; i++) {
		struct tokenizer *t;
		struct why why = {""};
		FILE *f = fopen(path, "w");
		fputs(cases[i][0], f);
		fclose(f);
		cr_expect_neq(tokenizer_load(path, &t, &why), 0);
		cr_expect(strstr(why.text, path) && strstr(why.text, cases[i][1]), "%s", why.text);
	}
	unlink(path);
}

/* A llama2.c checkpoint has its tokenizer next to it. */
Test(spm, a_models_file_finds_the_tokenizer_beside_it)
{
	struct why why = {""};
	char dir[] = "/tmp/quern-spm-XXXXXX";
	struct buf b = {0};
	struct tokenizer *t;
	cr_assert(mkdtemp(dir));
	char *bin = file_join(dir, "tokenizer.bin"), *model = file_join(dir, "model.bin");
	put_vocab(&b, 6);
	FILE *f = fopen(bin, "w"), *g = fopen(model, "w");
	fwrite(b.p, 1, b.len, f);
	fwrite("\x40\0\0\0\x10\0\0\0\5\0\0\0weights", 1, 19, g);
	fclose(f);
	fclose(g);
	cr_expect_eq(tokenizer_load(model, &t, &why), 0, "%s", why.text);
	cr_expect_eq(tokenizer_n_vocab(t), 262);
	tokenizer_free(t);
	unlink(bin);
	cr_expect_eq(tokenizer_load(model, &t, &why), -ENOENT);
	cr_expect(strstr(why.text, "model.bin: not a tokenizer") && strstr(why.text, "--tokenizer PATH"),
		  "%s", why.text);
	unlink(model);
	rmdir(dir);
	free(bin);
	free(model);
	buf_fini(&b);
}
