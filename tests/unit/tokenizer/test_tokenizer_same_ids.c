/* test_tokenizer_same_ids.c - every format of a model's tokenizer (GGUF, SentencePiece's tokenizer.model,
 * llama2.c's tokenizer.bin) gives the ids of its tokenizer.json: on 10 MB of text with
 * QUERN_TEST_LONG=1 (as in `make check-full`), otherwise on 400 KB. */
#include "base/file.h"
#include "controller/tokenizer/tokenizer.h"
#include "tests/testdata.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(same_ids, .timeout = 600);

static const char *const corpora[] = {
	"conformance/blns.txt",
	"text/botchan.txt",
	"text/tinyshakespeare.txt.gz",
	"conformance/utf8_sequence_0-0x10ffff_assigned_printable.txt.gz",
	"text/wagahaiwa_nekodearu.txt.gz",
	"text/war-and-peace.txt.gz",
	"text/wikitext-2-raw/wiki.test.raw.gz",
};
enum { N_CORPORA = sizeof corpora / sizeof *corpora };

/* Make up to `n` bytes of text: books, all printable characters, hostile strings, then random text. */
static void make_text(struct buf *out, size_t n)
{
	uint64_t seed = 2027;
	const size_t share = n / (N_CORPORA + 1);
	const bool whole = n > (8 << 20);
	for (size_t i = 0; i < N_CORPORA; i++) {
		struct buf b = {0};
		if (!help_read(corpora[i], &b))
			cr_skip_test("the test data are not there");
		size_t take = whole || b.len < share ? b.len : share;
		while (take < b.len && take && (b.p[take] & 0xc0) == 0x80)
			take--;
		buf_put(out, b.p, take);
		buf_fini(&b);
	}
	while (out->len < n) {
		struct buf b = {0};
		help_random_text(&seed, &b);
		buf_put(out, b.p ? b.p : "", b.len);
		buf_fini(&b);
	}
}

/* Load one file of the test data, alone in a folder under `name`, as a model's tokenizer. */
static struct tokenizer *load_alone(const char *rel, const char *name)
{
	struct why why = {""};
	char dir[] = "/tmp/quern-same-ids-XXXXXX";
	struct buf data = {0};
	struct tokenizer *t = NULL;
	if (!help_read(rel, &data))
		return NULL;
	cr_assert(mkdtemp(dir));
	char *path = file_join(dir, name);
	FILE *f = fopen(path, "wb");
	cr_assert(f && fwrite(data.p, 1, data.len, f) == data.len && fclose(f) == 0);
	cr_assert_eq(tokenizer_load(path, &t, &why), 0, "%s: %s", rel, why.text);
	unlink(path);
	rmdir(dir);
	free(path);
	buf_fini(&data);
	return t;
}

static void check(const char *model, const char *rel, const char *name)
{
	struct tokenizer *json = help_shared(model), *t = load_alone(rel, name);
	struct buf text = {0};
	if (!json || !t)
		cr_skip_test("the test data are not there");
	make_text(&text, getenv("QUERN_TEST_LONG") ? 10 << 20 : 400 << 10);
	/* Special tokens in the text are plain text, since a tokenizer.bin does not mark them. */
	struct token_ids want = help_encode(json, text.p, text.len, TOKENIZER_NO_SPECIAL);
	struct token_ids have = help_encode(t, text.p, text.len, TOKENIZER_NO_SPECIAL);
	size_t same = 0;
	while (same < want.n && same < have.n && want.ids[same] == have.ids[same])
		same++;
	cr_expect(want.n == have.n && same == want.n,
		  "%s: %zu ids, of tokenizer.json %zu; the first %zu are the same", rel, (size_t)have.n,
		  (size_t)want.n, same);
	cr_expect_gt(want.n, text.len / 8);
	token_ids_fini(&want);
	token_ids_fini(&have);
	tokenizer_free(json);
	tokenizer_free(t);
	buf_fini(&text);
}

Test(same_ids, gguf_of_qwen3)
{
	check("qwen3", "tokenizers/ggml-vocab/vocab-qwen3.gguf.gz", "v.gguf");
}

Test(same_ids, gguf_of_gpt2)
{
	check("gpt2", "tokenizers/ggml-vocab/ggml-vocab-gpt-2.gguf.gz", "v.gguf");
}

Test(same_ids, gguf_of_llama3)
{
	check("llama3", "tokenizers/ggml-vocab/ggml-vocab-llama-bpe.gguf.gz", "v.gguf");
}

Test(same_ids, gguf_of_llama2)
{
	check("llama2", "tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf", "v.gguf");
}

Test(same_ids, gguf_of_phi3)
{
	check("phi-3-mini", "tokenizers/ggml-vocab/ggml-vocab-phi-3.gguf", "v.gguf");
}

Test(same_ids, tokenizer_model_of_llama2)
{
	check("llama2", "tokenizers/llama2/tokenizer.model", "tokenizer.model");
}

Test(same_ids, tokenizer_bin_of_llama2)
{
	check("llama2", "tokenizers/llama2/tokenizer.bin", "tokenizer.bin");
}

Test(same_ids, tokenizer_model_of_mistral)
{
	check("mistral", "tokenizers/mistral/tokenizer.model.v1", "tokenizer.model");
}
