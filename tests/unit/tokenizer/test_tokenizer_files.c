/* Invalid tokenizer.json files are refused with an error that names the fault. */
#include "base/buf.h"
#include "tests/testdata.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The parts of a minimal file; one part at a time is replaced. */
static const char *const parts[][2] = {
	{"added", "\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}]"},
	{"normalizer", "\"normalizer\":null"},
	{"pre_tokenizer", "\"pre_tokenizer\":null"},
	{"post_processor", "\"post_processor\":null"},
	{"decoder", "\"decoder\":{\"type\":\"Fuse\"}"},
	{"type", "\"type\":\"BPE\""},
	{"options", "\"byte_fallback\":false"},
	{"vocab", "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"abab\":3}"},
	{"merges", "\"merges\":[\"a b\",[\"ab\",\"ab\"]]"},
};

static int load_with(const char *part, const char *text, struct tokenizer **t, struct why *why)
{
	struct buf b = {0};
	buf_puts(&b, "{\"version\":\"1.0\"");
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (strcmp(parts[i][0], "type") == 0)
			buf_puts(&b, ",\"model\":{");
		else
			buf_puts(&b, ",");
		buf_puts(&b, part && strcmp(parts[i][0], part) == 0 ? text : parts[i][1]);
	}
	buf_puts(&b, "}}");
	int rc = help_load_text(b.p, b.len, NULL, t, why);
	buf_fini(&b);
	return rc;
}

struct bad {
	const char *part, *text, *what;
};

static void expect_refused(const struct bad *bad, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct tokenizer *t = NULL;
		struct why why = {""};
		int rc = load_with(bad[i].part, bad[i].text, &t, &why);
		cr_expect_eq(rc, -EINVAL, "%s", bad[i].text);
		cr_expect(strstr(why.text, bad[i].what), "%s: \"%s\" does not contain \"%s\"", bad[i].text,
			  why.text, bad[i].what);
		cr_expect(strstr(why.text, "tokenizer.json"), "%s", why.text);
		if (rc == 0)
			tokenizer_free(t);
	}
}
#define REFUSED(table) expect_refused(table, sizeof table / sizeof *table)

Test(tokenizer_files, the_minimal_file_loads)
{
	struct tokenizer *t;
	struct why why = {""};
	cr_assert_eq(load_with(NULL, NULL, &t, &why), 0, "%s", why.text);
	struct token_ids ids = help_encode(t, "ababa<s>zb", 10, 0);
	cr_assert_eq(ids.n, 4);
	cr_expect(ids.ids[0] == 3 && ids.ids[1] == 0 && ids.ids[2] == 4 && ids.ids[3] == 1);
	token_ids_fini(&ids);
	tokenizer_free(t);
}

Test(tokenizer_files, a_directory_without_a_tokenizer_is_refused)
{
	struct tokenizer *t;
	struct why why = {""};
	cr_expect_eq(tokenizer_load("/nonexistent/model", &t, &why), -ENOENT);
	cr_expect(strstr(why.text, "/nonexistent/model/tokenizer.json"), "%s", why.text);
}

Test(tokenizer_files, bad_vocabularies_are_refused)
{
	static const struct bad bad[] = {
		{"vocab", "\"vocab\":{\"a\":0,\"b\":1,\"ab\":-2}", "\"ab\": an id must be an integer"},
		{"vocab", "\"vocab\":{\"a\":0,\"b\":1,\"ab\":99999999}", "\"ab\": an id is out of range"},
		{"vocab", "\"vocab\":{\"a\":0,\"b\":1,\"ab\":99999999999999999999999}", "out of range"},
		{"vocab", "\"vocab\":{\"a\":0,\"b\":1,\"ab\":1.5}", "\"ab\": an id must be an integer"},
		{"vocab", "\"vocab\":{\"a\":0,\"b\":1,\"ab\":\"2\"}", "\"ab\": an id must be an integer"},
		{"vocab", "\"vocab\":{\"a\":0,\"b\":01}", "leading zero"},
		{"vocab", "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"abab\":3,\"a\":7}",
		 "\"a\" (id 7): duplicate piece or id"},
		{"vocab", "\"vocab\":{\"a\":0,\"b\":0}", "\"b\" (id 0): duplicate piece or id"},
		{"vocab", "\"vocab\":{}", "is not in the vocabulary"},
		{"vocab", "\"vocab\":[[\"a\",0.5]]", "'{' expected"},
		{"vocab", "\"x\":1", "vocab is missing"},
		{"vocab", "\"vocab\":{\"a\":0},\"vocab\":{}", "duplicate key \"vocab\""},
		{"vocab", "\"vocab\":{\"\\ud800\":0}", "lone surrogate"},
		{"vocab", "\"vocab\":{\"\\x\":0}", "unknown escape"},
		{"vocab", "\"vocab\":{\"a\nb\":0}", "control character"},
		{"vocab", "\"vocab\":{\"a\":0,}", "'\"' expected"},
		{"vocab", "\"vocab\":{\"a\" 0}", "':' expected"},
	};
	REFUSED(bad);
}

Test(tokenizer_files, bad_merges_are_refused)
{
	static const struct bad bad[] = {
		{"merges", "\"merges\":[\"a x\"]", "merges[0]: \"x\" is not in the vocabulary"},
		{"merges", "\"merges\":[\"a b\",\"y b\"]", "merges[1]: \"y\" is not in the vocabulary"},
		{"merges", "\"merges\":[\"a b\",\"b a\"]", "merges[1]: \"ba\" is not in the vocabulary"},
		{"merges", "\"merges\":[\"a b\",\"ab ab\",\"a b\"]", "merges[2]: duplicate pair"},
		{"merges", "\"merges\":[\"ab\"]", "merges[0]: \"ab\" is not two pieces"},
		{"merges", "\"merges\":[\"a b c\"]", "merges[0]: \"a b c\" is not two pieces"},
		{"merges", "\"merges\":[[\"a\"]]", "',' expected"},
		{"merges", "\"merges\":[[\"a\",\"b\",\"ab\"]]", "']' expected"},
		{"merges", "\"merges\":[1]", "'\"' expected"},
		{"merges", "\"merges\":{}", "'[' expected"},
		{"merges", "\"nothing\":0", "merges is missing"},
	};
	REFUSED(bad);
}

Test(tokenizer_files, bad_added_tokens_are_refused)
{
	static const struct bad bad[] = {
		{"added", "\"added_tokens\":[{\"id\":-1,\"content\":\"x\"}]", "added_tokens[0]: id is -1"},
		{"added", "\"added_tokens\":[{\"id\":99999999,\"content\":\"x\"}]",
		 "added_tokens[0]: id is 99999999"},
		{"added", "\"added_tokens\":[{\"content\":\"x\"}]", "added_tokens[0]: id is missing"},
		{"added", "\"added_tokens\":[{\"id\":5}]", "added_tokens[0]: content must be a string"},
		{"added", "\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]",
		 "\"x\": another piece has its id 0"},
		{"added", "\"added_tokens\":[{\"id\":9,\"content\":\"ab\"}]",
		 "\"ab\" has the id 9 here, and 2 before"},
		{"added", "\"added_tokens\":[{\"id\":5,\"content\":\"x\"},{\"id\":5,\"content\":\"x\"}]",
		 "added_tokens[1]: duplicate token \"x\""},
		{"added", "\"added_tokens\":[{\"id\":5,\"content\":\"x\",\"lstrip\":1}]",
		 "lstrip must be true or false"},
		{"added", "\"added_tokens\":{}", "added_tokens must be a list"},
	};
	REFUSED(bad);
}

Test(tokenizer_files, unsupported_options_are_named)
{
	static const struct bad bad[] = {
		{"type", "\"type\":\"Unigram\"", "model: type \"Unigram\" is not supported"},
		{"type", "\"type\":\"WordPiece\"", "type \"WordPiece\""},
		{"options", "\"continuing_subword_prefix\":\"##\"", "continuing_subword_prefix \"##\""},
		{"options", "\"end_of_word_suffix\":\"</w>\"", "end_of_word_suffix \"</w>\""},
		{"options", "\"dropout\":0.1", "dropout"},
		{"options", "\"unk_token\":\"[UNK]\"", "unk_token \"[UNK]\" is not in the vocabulary"},
		{"normalizer", "\"normalizer\":{\"type\":\"BertNormalizer\"}",
		 "normalizer: type \"BertNormalizer\""},
		{"normalizer",
		 "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\"}]}",
		 "type \"Precompiled\""},
		{"normalizer",
		 "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},\"content\":\"\"}",
		 "\" +\""},
		{"normalizer",
		 "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}",
		 "pattern"},
		{"normalizer", "\"normalizer\":[]", "normalizer: must be an object"},
		{"normalizer", "\"normalizer\":{}", "normalizer: type is missing"},
		{"pre_tokenizer", "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}",
		 "pre_tokenizer: type \"BertPreTokenizer\""},
		{"pre_tokenizer",
		 "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\","
		 "\"pretokenizers\":[]}]}",
		 "type \"Sequence\""},
		{"pre_tokenizer",
		 "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
		 "\"Isolated\"}",
		 "pattern \"(\""},
		{"pre_tokenizer",
		 "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":"
		 "\"Sideways\"}",
		 "behavior \"Sideways\""},
		{"pre_tokenizer", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}", "ByteLevel must be both"},
		{"post_processor", "\"post_processor\":{\"type\":\"BertProcessing\"}",
		 "post_processor: type \"BertProcessing\""},
		{"post_processor",
		 "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
		 "\"<q>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{}}",
		 "no ids of \"<q>\""},
		{"post_processor",
		 "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
		 "\"q\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"q\":{\"ids\":[4000]}}}",
		 "id 4000 is out of range"},
		{"post_processor",
		 "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[],\"special_tokens\":{}}",
		 "Sequence A once"},
		{"decoder", "\"decoder\":{\"type\":\"WordPiece\"}", "decoder: type \"WordPiece\""},
		{"decoder", "\"decoder\":{\"type\":\"ByteLevel\"}", "ByteLevel must be both"},
		{"decoder", "\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}",
		 "Strip without Fuse"},
		{"decoder",
		 "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
		 "\"ByteFallback\"}]}",
		 "\"ByteFallback\""},
	};
	REFUSED(bad);
}

Test(tokenizer_files, invalid_json_is_refused)
{
	static const struct {
		const char *text;
		size_t n;
		const char *what;
	} bad[] = {
		{"", 0, "ends too early"},
		{"{", 1, "ends too early"},
		{"[]", 2, "'{' expected"},
		{"{}", 2, "model is missing"},
		{"{\"model\":{\"vocab\":{},\"merges\":[]}} x", 36, "more text after the end"},
		{"{\"model\":{\"type\":7,\"vocab\":{},\"merges\":[]}}", 43, "type must be a string"},
		{"{\"a\":\"\xff\"}", 9, "not UTF-8 at byte 6"},
		{"{\"a\":tru}", 9, "a: not valid JSON"},
		{"{\"a\":1,\"a\":2}", 13, "duplicate key \"a\""},
		{"{\"a\":\"x", 7, "string without end"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct tokenizer *t;
		struct why why = {""};
		cr_expect_eq(help_load_text(bad[i].text, bad[i].n, NULL, &t, &why), -EINVAL, "%s",
			     bad[i].text);
		cr_expect(strstr(why.text, bad[i].what), "%s: %s", bad[i].text, why.text);
	}
}

Test(tokenizer_files, deep_nesting_is_refused)
{
	struct buf b = {0};
	struct tokenizer *t;
	struct why why = {""};
	buf_puts(&b, "{\"x\":");
	for (int i = 0; i < 1000000; i++)
		buf_putc(&b, '[');
	cr_expect_eq(help_load_text(b.p, b.len, NULL, &t, &why), -EINVAL);
	cr_expect(strstr(why.text, "deep"), "%s", why.text);
	buf_fini(&b);
}

Test(tokenizer_files, every_truncation_is_refused)
{
	struct why why;
	struct tokenizer *t;
	char *text = help_golden_text("qwen");
	size_t n = strlen(text);
	for (size_t k = 0; k < n; k += 31)
		cr_expect_eq(help_load_text(text, k, NULL, &t, &why), -EINVAL, "cut at %zu", k);
	free(text);
}

/* A file with a changed byte may still be valid; encoding must then terminate. */
Test(tokenizer_files, a_changed_byte_never_crashes_or_hangs)
{
	static const char *const names[] = {"qwen", "llama2", "metaspace_first"};
	uint64_t seed = 12345;
	size_t loaded = 0;
	for (size_t k = 0; k < 3; k++) {
		char *text = help_golden_text(names[k]);
		size_t n = strlen(text);
		for (int i = 0; i < 400; i++) {
			struct tokenizer *t;
			struct why why;
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			size_t at = (seed >> 33) % n;
			char was = text[at];
			text[at] = "\"0a{}[],: \\9-x"[seed >> 20 & 13];
			if (help_load_text(text, n, NULL, &t, &why) == 0) {
				struct token_ids ids = {0};
				struct buf out = {0};
				static const char s[] =
					"The cat <|im_start|>and e\xcc\x81 the donkey <s> 12\n";
				tokenizer_encode(t, s, sizeof s - 1, TOKENIZER_ADD_SPECIAL, NULL, 0, &ids,
						 &why);
				tokenizer_decode(t, ids.ids, ids.n, true, &out);
				buf_fini(&out);
				token_ids_fini(&ids);
				tokenizer_free(t);
				loaded++;
			}
			text[at] = was;
		}
		free(text);
	}
	cr_expect(loaded > 0);
}

Test(tokenizer_files, missing_flags_are_false)
{
	struct buf json = {0};
	struct tokenizer *t;
	struct why why = {""};
	if (!help_read("tokenizers/tiny/mini_llama.json", &json))
		cr_skip_test("the test data are not there");
	cr_assert_eq(help_load_text(json.p, json.len, NULL, &t, &why), 0, "%s", why.text);
	struct token_ids ids = help_encode(t, "<|begin_of_text|>the", 20, 0);
	cr_expect_eq(ids.ids[0], 128000);
	cr_expect_eq(tokenizer_n_vocab(t), 128002);
	token_ids_fini(&ids);
	tokenizer_free(t);
	buf_fini(&json);
}

Test(tokenizer_files, config_may_add_tokens_and_name_bos)
{
	static const char config[] =
		"{\"added_tokens_decoder\":{\"700\":{\"content\":\"<new>\",\"special\":true}},"
		"\"bos_token\":{\"content\":\"<new>\"},\"eos_token\":\"<|im_end|>\","
		"\"model_max_length\":1000000000000000019884624838656}";
	struct tokenizer *t;
	struct why why = {""};
	char *text = help_golden_text("qwen");
	cr_assert_eq(help_load_text(text, strlen(text), config, &t, &why), 0, "%s", why.text);
	struct token_ids ids = help_encode(t, "<new>", 5, 0);
	cr_expect(ids.n == 1 && ids.ids[0] == 700);
	cr_expect_eq(tokenizer_bos(t), 700);
	cr_expect_eq(tokenizer_eos(t), tokenizer_id(t, "<|im_end|>"));
	cr_expect_eq(tokenizer_n_vocab(t), 701);
	token_ids_fini(&ids);
	tokenizer_free(t);
	cr_expect_eq(help_load_text(text, strlen(text), "{\"bos_token\":", &t, &why), -EINVAL);
	cr_expect(strstr(why.text, "tokenizer_config.json"), "%s", why.text);
	free(text);
}

Test(tokenizer_files, a_git_lfs_pointer_and_a_model_without_a_tokenizer_are_named)
{
	static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
	static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tokenizer.bin"};
	struct why why;
	char dir[] = "/tmp/quern-lfs-XXXXXX", path[128];
	struct tokenizer *t;
	cr_assert(mkdtemp(dir));
	for (size_t i = 0; i < 3; i++)
		for (int whole = 0; whole < 2; whole++) {
			snprintf(path, sizeof path, "%s/%s", dir, names[i]);
			FILE *f = fopen(path, "w");
			fputs(pointer, f);
			fclose(f);
			cr_expect_eq(tokenizer_load(whole ? dir : path, &t, &why), -EBADMSG, "%s", path);
			cr_expect(strstr(why.text, names[i]) && strstr(why.text, "git lfs pull"), "%s",
				  why.text);
			unlink(path);
		}
	/* llama2.c's header: seven integers, then floats. */
	snprintf(path, sizeof path, "%s/model.bin", dir);
	const int32_t header[7] = {8, 16, 1, 1, 1, 4, 8};
	static const float zeros[1200];
	FILE *f = fopen(path, "w");
	fwrite(header, sizeof header, 1, f);
	fwrite(zeros, sizeof zeros, 1, f);
	fclose(f);
	int rc = tokenizer_load(path, &t, &why);
	cr_expect_eq(rc, -ENOENT, "%d %s", rc, why.text);
	cr_expect(strstr(why.text, "model.bin") && strstr(why.text, "--tokenizer"), "%s", why.text);
	unlink(path);
	rmdir(dir);
}
