/* Reads the tokenizer from GGUF metadata: the keys tokenizer.ggml.* (ggml-org/ggml, docs/gguf.md; where that
 * is incomplete, as llama.cpp reads them). */
#include "controller/tokenizer/piece_table.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/gguf.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct reader {
	const struct gguf *g;
	struct piece_table *pt;
	struct why *why;
};

#define KEY(name) "tokenizer.ggml." name

static bool is(const struct gguf_string *s, const char *text)
{
	return s->n == strlen(text) && memcmp(s->p, text, s->n) == 0;
}

/* Read an optional value: if the key is absent, return 0 and leave *out unchanged. */
static int get_int(const struct reader *r, const char *key, int64_t *out)
{
	int rc = gguf_find_int(r->g, key, out, r->why);
	return rc == -ENOENT ? 0 : rc;
}

static int get_bool(const struct reader *r, const char *key, bool *out)
{
	int rc = gguf_find_bool(r->g, key, out, r->why);
	return rc == -ENOENT ? 0 : rc;
}

/* Read an optional array of at least n values. */
static int get_array(const struct reader *r, const char *key, size_t n, struct gguf_array *out)
{
	*out = (struct gguf_array){0};
	int rc = gguf_find_array(r->g, key, out, r->why);
	if (rc == -ENOENT)
		return 0;
	if (rc == 0 && out->n < n)
		rc = err_why(r->why, -EINVAL, "%s has %zu values, there are %zu tokens", key, out->n, n);
	return rc;
}

static int get_strings(const struct reader *r, const char *key, struct gguf_array *out)
{
	int rc = gguf_find_array(r->g, key, out, r->why);
	if (rc == 0 && out->type != GGUF_STRING)
		rc = err_why(r->why, -EINVAL, "%s is not an array of strings", key);
	return rc;
}

/* ---- pieces ---- */

/* Return true for tokens that end a turn or a text: some converters write them as ordinary tokens. */
static bool looks_like_control(const struct gguf_string *s)
{
	static const char *const names[] = {"<|eot_id|>",    "<|im_end|>",      "<|end|>",
					    "<end_of_turn>", "<|endoftext|>",   "<|eom_id|>",
					    "<|im_start|>",  "<start_of_turn>", "<|end_of_text|>"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is(s, names[i]))
			return true;
	return false;
}

/* Return the type of a token.  In files without types, byte tokens are recognized by their spelling. */
static int type_of(const struct reader *r, const struct gguf_array *types, size_t i,
		   const struct gguf_string *s)
{
	int64_t type = 0;
	if (types->n && (!gguf_int_at(types, i, &type) || type < 0 || type > ROW_BYTE))
		return -1;
	if ((type == 0 || type == ROW_NORMAL || type == ROW_USER_DEFINED) && looks_like_control(s))
		return ROW_CONTROL;
	if (type == 0 && r->pt->model != TABLE_BYTE_BPE && s->n == 6 && memcmp(s->p, "<0x", 3) == 0)
		return ROW_BYTE;
	return type ? (int)type : ROW_NORMAL;
}

static int read_pieces(const struct reader *r)
{
	struct gguf_array tokens, scores, types;
	int rc = get_strings(r, KEY("tokens"), &tokens);
	size_t n = rc ? 0 : tokens.n;
	if (rc == 0)
		rc = get_array(r, KEY("scores"), n, &scores);
	if (rc == 0)
		rc = get_array(r, KEY("token_type"), n, &types);
	if (rc)
		return rc;
	if (!scores.n && r->pt->model != TABLE_BYTE_BPE)
		return err_why(r->why, -EINVAL, "%s is missing", KEY("scores"));
	for (size_t i = 0; i < n; i++) {
		struct gguf_string s = gguf_next_string(&tokens);
		double score = 0;
		if (scores.n && !gguf_num_at(&scores, i, &score))
			return err_why(r->why, -EINVAL, "%s has values that are no numbers", KEY("scores"));
		piece_table_add(r->pt, s.p, s.n, (float)score, type_of(r, &types, i, &s));
	}
	return 0;
}

static int read_merges(const struct reader *r)
{
	struct piece_table *pt = r->pt;
	struct gguf_array a;
	int rc = get_strings(r, KEY("merges"), &a);
	if (rc)
		return rc;
	pt->merges = xcalloc(a.n, sizeof(pt->merges[0]));
	while (a.n > 0) {
		struct gguf_string s = gguf_next_string(&a);
		pt->merges[pt->n_merges++] = (struct merge_row){s.p, s.n};
	}
	return 0;
}

/* ---- kinds ---- */

static int read_byte_bpe(const struct reader *r)
{
	struct gguf_string pre = {"default", 7};
	int rc = gguf_find_string(r->g, KEY("pre"), &pre, r->why);
	if (rc == 0 || rc == -ENOENT)
		rc = piece_table_set_pre(r->pt, pre.p, pre.n, r->why);
	return rc ? rc : read_merges(r);
}

static int read_spm(const struct reader *r)
{
	struct piece_table *pt = r->pt;
	pt->remove_extra_whitespaces = false;
	pt->byte_fallback = true;
	pt->unk = 0;
	pt->bos = 1;
	pt->eos = 2;
	pt->add_bos = true;
	return get_bool(r, KEY("add_space_prefix"), &pt->add_dummy_prefix);
}

static int read_unigram(const struct reader *r)
{
	struct piece_table *pt = r->pt;
	struct gguf_array map = {0};
	pt->byte_fallback = true;
	pt->unk = 2;
	pt->eos = 1;
	pt->add_eos = true;
	int rc = get_bool(r, KEY("add_space_prefix"), &pt->add_dummy_prefix);
	pt->remove_extra_whitespaces = false;
	if (rc == 0)
		rc = get_bool(r, KEY("remove_extra_whitespaces"), &pt->remove_extra_whitespaces);
	if (rc == 0)
		rc = get_array(r, KEY("precompiled_charsmap"), 0, &map);
	if (rc == 0 && map.n && map.type != GGUF_U8 && map.type != GGUF_I8)
		rc = err_why(r->why, -EINVAL, "%s is not an array of bytes", KEY("precompiled_charsmap"));
	pt->charsmap = (const char *)map.at;
	pt->charsmap_n = map.n;
	return rc;
}

static const struct kind {
	const char *name;
	enum table_model model;
	int (*read)(const struct reader *r);
} kinds[] = {
	{"gpt2", TABLE_BYTE_BPE, read_byte_bpe},
	{"llama", TABLE_SCORE_BPE, read_spm},
	{"t5", TABLE_UNIGRAM, read_unigram},
};

/* ---- the whole metadata ---- */

/* Treat ids out of range as absent: some converters write them for tokens that no text has. */
static int read_ends(const struct reader *r)
{
	static const char *const keys[] = {KEY("bos_token_id"), KEY("eos_token_id"), KEY("unknown_token_id")};
	struct piece_table *pt = r->pt;
	int64_t *const ids[] = {&pt->bos, &pt->eos, &pt->unk};
	int rc = 0;
	for (int i = 0; i < 3 && rc == 0; i++) {
		rc = get_int(r, keys[i], ids[i]);
		if (rc == 0 && (*ids[i] < 0 || *ids[i] >= (int64_t)pt->n))
			*ids[i] = -1;
	}
	if (rc == 0)
		rc = get_bool(r, KEY("add_bos_token"), &pt->add_bos);
	return rc ? rc : get_bool(r, KEY("add_eos_token"), &pt->add_eos);
}

/* ---- properties without a key ---- */

static bool has_word(const struct gguf_string *s, const char *word)
{
	const size_t n = strlen(word);
	for (size_t i = 0; i + n <= s->n; i++)
		if (strncasecmp(s->p + i, word, n) == 0)
			return true;
	return false;
}

/* Return true for Phi-3. llama.cpp recognizes it by the model's name; here also by its architecture, if the
 * tokens are SentencePiece's (Phi-4's are not). */
static bool is_phi3(const struct reader *r)
{
	struct gguf_string name = {"", 0}, arch = {"", 0};
	gguf_find_string(r->g, "general.name", &name, NULL);
	gguf_find_string(r->g, "general.architecture", &arch, NULL);
	return has_word(&name, "phi-3") || has_word(&name, "phi3") ||
	       (is(&arch, "phi3") && r->pt->model == TABLE_SCORE_BPE);
}

/* Phi-3's special tokens include the white space after them, except these. */
static void strip_behind(const struct reader *r)
{
	static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
	if (!is_phi3(r))
		return;
	for (size_t i = 0; i < r->pt->n; i++) {
		struct piece_row *row = &r->pt->rows[i];
		const struct gguf_string s = {row->p, row->n};
		row->rstrip = row->type == ROW_CONTROL || row->type == ROW_USER_DEFINED || is(&s, "</s>");
		for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
			row->rstrip = row->rstrip && !is(&s, others[k]);
	}
}

int gguf_vocab_read(const struct gguf *g, struct piece_table *pt, struct why *why)
{
	struct reader r = {g, pt, why};
	const struct kind *kind = NULL;
	struct gguf_string model;
	int rc = gguf_find_string(g, KEY("model"), &model, why);
	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (is(&model, kinds[i].name))
			kind = &kinds[i];
	if (!kind)
		return err_why(
			why, -ENOTSUP,
			"tokenizer.ggml.model \"%.*s\" is not supported, only gpt2, llama and t5: put the "
			"model's tokenizer.json next to the file",
			(int)(model.n < 60 ? model.n : 60), model.p);
	pt->model = kind->model;
	pt->raw_user = true;
	rc = kind->read(&r);
	if (rc == 0)
		rc = read_pieces(&r);
	if (rc == 0)
		strip_behind(&r);
	return rc ? rc : read_ends(&r);
}
