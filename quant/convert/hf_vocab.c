#include "quant/convert/hf_vocab.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "controller/tokenizer/splitter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MAX = 256 << 20, IDS_MAX = 1 << 24 };

struct reader {
	struct hf_vocab *v;
	const json_t *model, *vocab, *merges, *added;
	struct why *why;
};

static int cannot(const struct reader *r, const char *what)
{
	return err_why(r->why, -ENOTSUP, "tokenizer.json: %s, which the keys of a GGUF file cannot say",
		       what);
}

static const char *text_of(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static bool is_type(const json_t *o, const char *type)
{
	const char *t = text_of(o, "type");
	return t && strcmp(t, type) == 0;
}

static char *own(struct hf_vocab *v, char *text)
{
	array_grow(v->texts, v->cap_texts, v->n_texts + 1);
	return v->texts[v->n_texts++] = text;
}

/* ---- pieces ---- */

static int put_row(const struct reader *r, const char *text, const json_t *id, int type)
{
	struct piece_table *pt = &r->v->table;
	const int64_t n = json_integer_value(id);
	if (!json_is_integer(id) || n < 0 || n >= IDS_MAX)
		return err_why(r->why, -EINVAL, "tokenizer.json: the token \"%.40s\" has no id", text);
	while ((int64_t)pt->n <= n)
		piece_table_add(pt, NULL, 0, 0, ROW_UNUSED);
	pt->rows[n] = (struct piece_row){.p = text, .n = strlen(text), .type = type};
	return 0;
}

static bool is_byte(const char *text)
{
	unsigned b;
	char again[8];
	if (strlen(text) != 6 || sscanf(text, "<0x%2X>", &b) != 1)
		return false;
	snprintf(again, sizeof again, "<0x%02X>", b & 255);
	return strcmp(text, again) == 0;
}

static int read_rows(const struct reader *r)
{
	const bool bytes = r->v->table.byte_fallback;
	const char *unk = text_of(r->model, "unk_token"), *text;
	json_t *id;
	size_t i;
	const json_t *token;
	int rc = 0;
	json_object_foreach((json_t *)r->vocab, text, id) if (!rc) rc =
		put_row(r, text, id, bytes && is_byte(text) ? ROW_BYTE : ROW_NORMAL);
	json_array_foreach(r->added, i, token)
	{
		text = text_of(token, "content");
		if (rc || !text)
			continue;
		const bool special = json_is_true(json_object_get(token, "special"));
		rc = put_row(r, text, json_object_get(token, "id"),
			     unk && bytes && strcmp(text, unk) == 0 ? ROW_UNKNOWN
			     : special                              ? ROW_CONTROL
								    : ROW_USER_DEFINED);
	}
	return rc;
}

/* Name ids without a token. */
static void name_gaps(struct hf_vocab *v)
{
	for (size_t i = 0; i < v->table.n; i++) {
		struct piece_row *row = &v->table.rows[i];
		if (row->p)
			continue;
		row->p = own(v, xasprintf("[PAD%zu]", i));
		row->n = strlen(row->p);
	}
}

/* Return merge i as "left right". */
static const char *merge_text(const struct reader *r, size_t i)
{
	const json_t *m = json_array_get(r->merges, i);
	const char *left = json_string_value(json_array_get(m, 0)),
		   *right = json_string_value(json_array_get(m, 1));
	if (json_is_string(m))
		return json_string_value(m);
	return left && right ? own(r->v, xasprintf("%s %s", left, right)) : NULL;
}

static int read_merges(const struct reader *r)
{
	struct piece_table *pt = &r->v->table;
	const size_t n = json_array_size(r->merges);
	pt->merges = xcalloc(n + 1, sizeof *pt->merges);
	for (size_t i = 0; i < n; i++) {
		const char *text = merge_text(r, i), *space = text ? strchr(text, ' ') : NULL;
		if (!space || strchr(space + 1, ' '))
			return err_why(r->why, -EINVAL, "tokenizer.json: merge %zu is no pair", i);
		pt->merges[pt->n_merges++] = (struct merge_row){text, strlen(text)};
	}
	return 0;
}

/* ---- splits of a byte-level BPE ---- */

static int add_split(const struct reader *r, const char *pattern)
{
	struct piece_table *pt = &r->v->table;
	if (pt->n_splits == TABLE_SPLITS_MAX)
		return cannot(r, "it splits text by too many patterns");
	pt->splits[pt->n_splits++] = pattern;
	return 0;
}

static int read_split(const struct reader *r, const json_t *o)
{
	const char *behavior = text_of(o, "behavior"),
		   *regex = text_of(json_object_get(o, "pattern"), "Regex");
	const json_t *use = json_object_get(o, "use_regex");
	if (is_type(o, "ByteLevel")) {
		if (!json_is_false(json_object_get(o, "add_prefix_space")))
			return cannot(r, "it puts a space before the text");
		return json_is_false(use) ? 0 : add_split(r, splitter_gpt2_pattern);
	}
	if (is_type(o, "Digits"))
		return add_split(r, json_is_true(json_object_get(o, "individual_digits")) ? "\\p{N}"
											  : "\\p{N}+");
	if (is_type(o, "Split") && regex && behavior && strcmp(behavior, "Isolated") == 0 &&
	    !json_is_true(json_object_get(o, "invert")))
		return add_split(r, regex);
	return cannot(r, "its pre_tokenizer has a step other than ByteLevel, Digits and Split that isolates");
}

static int read_byte_level(const struct reader *r, const json_t *root)
{
	struct piece_table *pt = &r->v->table;
	const json_t *pre = json_get(root, "pre_tokenizer"), *normal = json_get(root, "normalizer"), *step;
	const json_t *steps = is_type(pre, "Sequence") ? json_object_get(pre, "pretokenizers") : NULL;
	size_t i;
	int rc = steps ? 0 : read_split(r, pre);
	pt->model = TABLE_BYTE_BPE;
	pt->nfc = is_type(normal, "NFC");
	pt->ignore_merges = json_is_true(json_object_get(r->model, "ignore_merges"));
	if (normal && !pt->nfc)
		return cannot(r, "its normalizer is not NFC");
	json_array_foreach(steps, i, step) if (!rc) rc = read_split(r, step);
	if (!rc && !piece_table_pre_name(pt->splits, pt->n_splits, pt->nfc, pt->ignore_merges, r->v->pre,
					 sizeof r->v->pre))
		rc = cannot(r, "it splits text by patterns that no name of tokenizer.ggml.pre stands for");
	return rc;
}

/* ---- scores of a BPE with byte fallback ---- */

/* Check that each split of a piece into two tokens is a merge.  SentencePiece joins the neighbours that make
 * the piece with the best score, tokenizer.json the pair of the first merge.  Both agree if the merges of a
 * piece are all of its splits and follow one another. */
static int check_parts(const struct reader *r, const json_t *pairs, const char *text, size_t n)
{
	for (size_t at = 0; at < n;) {
		int len;
		utf8_at(text + at, &len);
		at += (size_t)len;
		if (at >= n)
			break;
		char *left = xasprintf("%.*s", (int)at, text);
		char *pair = xasprintf("%s %s", left, text + at);
		const bool bad = json_object_get(r->vocab, left) && json_object_get(r->vocab, text + at) &&
				 !json_object_get(pairs, pair);
		free(left);
		free(pair);
		if (bad)
			return cannot(r,
				      "its merges are not those of SentencePiece's scores (put the model's "
				      "tokenizer.model in place of it)");
	}
	return 0;
}

/* Score the pieces that merges make: -1, -2, .. in the order of the merges. */
static int score_merges(const struct reader *r, json_t *pairs, json_t *scores)
{
	char *last = NULL;
	int rc = 0;
	float score = 0;
	for (size_t i = 0; !rc && i < json_array_size(r->merges); i++) {
		const char *text = merge_text(r, i), *space = text ? strchr(text, ' ') : NULL;
		if (!space) {
			rc = err_why(r->why, -EINVAL, "tokenizer.json: merge %zu is no pair", i);
			break;
		}
		char *whole = xasprintf("%.*s%s", (int)(space - text), text, space + 1);
		json_object_set_new(pairs, text, json_true());
		if (last && strcmp(last, whole) == 0) {
			free(whole);
			continue;
		}
		if (json_object_get(scores, whole))
			rc = cannot(r, "its merges are not those of SentencePiece's scores (put the model's "
				       "tokenizer.model in place of it)");
		json_object_set_new(scores, whole, json_real((double)--score));
		free(last);
		last = whole;
	}
	free(last);
	return rc;
}

static int read_scores(const struct reader *r)
{
	struct piece_table *pt = &r->v->table;
	json_t *pairs = json_object(), *scores = json_object();
	int rc = score_merges(r, pairs, scores);
	const float least = -(float)json_object_size(scores) - 1;
	for (size_t i = 0; !rc && i < pt->n; i++) {
		struct piece_row *row = &pt->rows[i];
		const json_t *s = json_object_get(scores, row->p);
		row->score = row->type != ROW_NORMAL ? 0 : s ? (float)json_real_value(s) : least;
		if (row->type == ROW_NORMAL)
			rc = check_parts(r, pairs, row->p, row->n);
	}
	json_decref(pairs);
	json_decref(scores);
	return rc;
}

/* Read a tokenizer that replaces spaces by U+2581 and may add one before the text. */
static int read_metaspace(const struct reader *r, const json_t *root)
{
	struct piece_table *pt = &r->v->table;
	const json_t *normal = json_get(root, "normalizer"), *pre = json_get(root, "pre_tokenizer"), *step;
	const json_t *steps = is_type(normal, "Sequence") ? json_object_get(normal, "normalizers") : NULL;
	size_t i;
	bool replaced = is_type(normal, "Replace");
	pt->model = TABLE_SCORE_BPE;
	pt->add_dummy_prefix = false;
	json_array_foreach(steps, i, step)
	{
		pt->add_dummy_prefix |= is_type(step, "Prepend");
		replaced |= is_type(step, "Replace");
		if (!is_type(step, "Prepend") && !is_type(step, "Replace"))
			return cannot(r, "its normalizer has a step other than Prepend and Replace");
	}
	if (is_type(pre, "Metaspace")) {
		const char *scheme = text_of(pre, "prepend_scheme");
		pt->add_dummy_prefix = scheme ? strcmp(scheme, "never") != 0
					      : !json_is_false(json_object_get(pre, "add_prefix_space"));
		if (json_is_true(json_object_get(pre, "split")))
			return cannot(r, "its Metaspace splits words");
	} else if (!replaced || (pre && !is_type(pre, "Split"))) {
		return cannot(r, "its spaces do not become U+2581");
	}
	return read_scores(r);
}

/* ---- tokens added to a text ---- */

static void read_template(const struct reader *r, const json_t *post)
{
	struct piece_table *pt = &r->v->table;
	const json_t *single = json_object_get(post, "single"), *steps = json_object_get(post, "processors"),
		     *step;
	const json_t *ids = json_object_get(post, "special_tokens");
	size_t i;
	json_array_foreach(steps, i, step) read_template(r, step);
	json_array_foreach(single, i, step)
	{
		const char *name = text_of(json_object_get(step, "SpecialToken"), "id");
		const json_t *id =
			json_array_get(json_object_get(json_object_get(ids, name ? name : ""), "ids"), 0);
		if (!name || !json_is_integer(id))
			continue;
		if (i == 0) {
			pt->add_bos = true;
			pt->bos = json_integer_value(id);
		} else {
			pt->add_eos = true;
			pt->eos = json_integer_value(id);
		}
	}
}

static int read_json(struct reader *r)
{
	struct piece_table *pt = &r->v->table;
	const json_t *root = r->v->tree;
	r->model = json_object_get(root, "model");
	r->vocab = json_object_get(r->model, "vocab");
	r->merges = json_object_get(r->model, "merges");
	r->added = json_get(root, "added_tokens");
	if (!json_is_object(r->vocab) || !json_is_array(r->merges))
		return cannot(r, "it is no BPE");
	pt->byte_fallback = json_is_true(json_object_get(r->model, "byte_fallback"));
	const char *unk = text_of(r->model, "unk_token");
	const json_t *unk_id = unk ? json_object_get(r->vocab, unk) : NULL;
	pt->unk = json_is_integer(unk_id) ? json_integer_value(unk_id) : -1;
	pt->bos = pt->eos = -1;
	pt->add_bos = pt->add_eos = false;
	int rc = read_rows(r);
	name_gaps(r->v);
	if (!rc)
		rc = pt->byte_fallback ? read_metaspace(r, root) : read_byte_level(r, root);
	if (!rc && !pt->byte_fallback)
		rc = read_merges(r);
	read_template(r, json_get(root, "post_processor"));
	return rc;
}

/* ---- tokenizer.model ---- */

static int check_spm(const struct piece_table *pt, struct why *why)
{
	const bool bpe = pt->model == TABLE_SCORE_BPE;
	const char *what = pt->whitespace_suffix                 ? "puts the space after a word"
			   : !pt->escape_whitespaces             ? "keeps spaces as they are"
			   : bpe && pt->charsmap_n               ? "normalizes text, as a BPE"
			   : bpe && pt->remove_extra_whitespaces ? "removes white space, as a BPE"
			   : !pt->byte_fallback && piece_table_has_bytes(pt)
				   ? "has pieces of all bytes and does not use them"
				   : NULL;
	return what ? err_why(why, -ENOTSUP,
			      "tokenizer.model: it %s, which the keys of a GGUF file cannot say", what)
		    : 0;
}

static int read_spm(struct hf_vocab *v, const char *path, struct why *why)
{
	int rc = file_map(path, &v->mapped, &v->mapped_n, why);
	if (rc)
		return rc;
	rc = spm_file_read(v->mapped, v->mapped_n, &v->table, why);
	return rc ? err_prefix(why, rc, "%s", path) : check_spm(&v->table, why);
}

int hf_vocab_read(const char *dir, struct hf_vocab *v, struct why *why)
{
	struct reader r = {.v = v, .why = why};
	char *json = file_join(dir, "tokenizer.json"), *spm = file_join(dir, "tokenizer.model");
	int rc;
	*v = (struct hf_vocab){0};
	piece_table_init(&v->table);
	if (file_exists(json)) {
		rc = json_read(json, JSON_MAX, &v->tree, why);
		if (!rc)
			rc = read_json(&r);
	} else if (file_exists(spm)) {
		rc = read_spm(v, spm, why);
	} else {
		rc = err_why(why, -ENOENT, "%s has no tokenizer.json or tokenizer.model", dir);
	}
	free(json);
	free(spm);
	return rc;
}

int hf_vocab_flagged(const struct hf_vocab *v, bool rstrip, const char **first)
{
	const json_t *token;
	size_t i;
	int n = 0;
	json_array_foreach(json_get(v->tree, "added_tokens"), i, token)
	{
		const char *text = text_of(token, "content");
		const bool flagged = json_is_true(json_object_get(token, "lstrip")) ||
				     json_is_true(json_object_get(token, "single_word")) ||
				     (!rstrip && json_is_true(json_object_get(token, "rstrip")));
		if (flagged && text && n++ == 0)
			*first = text;
	}
	return n;
}

void hf_vocab_fini(struct hf_vocab *v)
{
	piece_table_fini(&v->table);
	for (size_t i = 0; i < v->n_texts; i++)
		free(v->texts[i]);
	free(v->texts);
	json_decref(v->tree);
	file_unmap(v->mapped, v->mapped_n);
	*v = (struct hf_vocab){0};
}
