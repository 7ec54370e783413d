/* Loads tokenizer.json and a model directory's tokenizer_config.json. The vocabulary and the merges, which
 * are nearly the whole file, are read by jscan; the small rest is read by jansson. */
#include "controller/tokenizer/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "controller/tokenizer/jscan.h"
#include "controller/tokenizer/merges.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	FILE_MAX = 256 << 20, /* several times the largest known */
	CONFIG_MAX = 16 << 20,
	SHOWN_MAX = 60, /* bytes of a piece in a message */
};

/* ---- finding the members ---- */

struct members {
	json_t *top;   /* all members except model */
	json_t *model; /* all members of model except vocab and merges */
	struct jscan_text vocab, merges;
	bool has_model;
	bool config; /* reading a configuration, not tokenizer.json: only top is filled */
};

static bool key_is(const struct jscan_text *key, const char *name)
{
	return key->n == strlen(name) && memcmp(key->p, name, key->n) == 0;
}

/* Return true for unused members; in some files they hold integers beyond 64 bits. */
static bool ignored(const struct jscan_text *key)
{
	return key_is(key, "truncation") || key_is(key, "padding") || key_is(key, "model_max_length");
}

static int small_member(struct jscan *j, const struct jscan_text *name, json_t *into)
{
	struct jscan_text span;
	json_t *value;
	const char *key = name->p;
	size_t key_n = name->n;
	int rc = jscan_skip(j, &span);
	if (rc == 0 && ignored(name))
		return 0;
	if (rc == 0)
		rc = json_parse(span.p, span.n, &value, j->why);
	if (rc)
		return err_prefix(j->why, rc, "%.*s", (int)key_n, key);
	if (json_object_getn(into, key, key_n)) {
		json_decref(value);
		return err_why(j->why, -EINVAL, "duplicate key \"%.*s\"", (int)key_n, key);
	}
	json_object_setn_new(into, key, key_n, value);
	return 0;
}

static int scan_object(struct jscan *j, struct members *m, bool top);

static int scan_member(struct jscan *j, struct members *m, bool top, const struct jscan_text *key)
{
	struct jscan_text *large = !top && key_is(key, "vocab")    ? &m->vocab
				   : !top && key_is(key, "merges") ? &m->merges
								   : NULL;
	if (large) {
		if (large->p)
			return err_why(j->why, -EINVAL, "duplicate key \"%.*s\"", (int)key->n, key->p);
		return jscan_skip(j, large);
	}
	if (!top || m->config || !key_is(key, "model"))
		return small_member(j, key, top ? m->top : m->model);
	if (m->has_model)
		return err_why(j->why, -EINVAL, "duplicate key \"model\"");
	m->has_model = true;
	return scan_object(j, m, false);
}

/* Split the file (top), or its model, into members. */
static int scan_object(struct jscan *j, struct members *m, bool top)
{
	struct buf tmp = {0};
	bool more = true;
	int rc = jscan_take(j, '{');
	if (rc == 0 && jscan_peek(j) == '}')
		rc = jscan_more(j, '}', &more);
	while (rc == 0 && more) {
		struct jscan_text key;
		rc = jscan_string(j, &key, &tmp);
		if (rc == 0)
			rc = jscan_take(j, ':');
		if (rc == 0)
			rc = scan_member(j, m, top, &key);
		if (rc == 0)
			rc = jscan_more(j, '}', &more);
	}
	buf_fini(&tmp);
	return rc;
}

/* ---- the vocabulary ---- */

/* A piece in a message, cut to a readable length. */
#define SHOWN(s) (int)((s).n < SHOWN_MAX ? (s).n : SHOWN_MAX), (s).p

static int vocab_error(struct jscan *j, int rc, const struct jscan_text *piece, uint64_t id)
{
	if (rc == -EEXIST)
		return err_why(j->why, -EINVAL, "vocab: \"%.*s\" (id %" PRIu64 "): duplicate piece or id",
			       SHOWN(*piece), id);
	return err_why(j->why, -EINVAL, "vocab: \"%.*s\" (id %" PRIu64 "): too large", SHOWN(*piece), id);
}

static int load_vocab(struct tokenizer *t, struct jscan j)
{
	struct buf tmp = {0};
	bool more = true;
	int rc = jscan_take(&j, '{');
	if (rc == 0 && jscan_peek(&j) == '}')
		rc = jscan_more(&j, '}', &more);
	while (rc == 0 && more) {
		struct jscan_text piece;
		uint64_t id = 0;
		rc = jscan_string(&j, &piece, &tmp);
		if (rc == 0)
			rc = jscan_take(&j, ':');
		if (rc == 0 && (rc = jscan_uint(&j, VOCAB_ID_MAX, "an id", &id)) != 0)
			err_prefix(j.why, rc, "vocab: \"%.*s\"", SHOWN(piece));
		if (rc == 0 && (rc = vocab_add(&t->vocab, (uint32_t)id, piece.p, piece.n)) != 0)
			rc = vocab_error(&j, rc, &piece, id);
		if (rc == 0)
			rc = jscan_more(&j, '}', &more);
	}
	buf_fini(&tmp);
	return rc;
}

/* ---- merges ---- */

/* Read "left right" (older files) or ["left", "right"]. */
static int read_merge(const struct vocab *v, struct jscan *j, struct merges *ms, struct buf tmp[2])
{
	struct jscan_text l, r;
	int rc;
	if (jscan_peek(j) != '[') {
		rc = jscan_string(j, &l, &tmp[0]);
		return rc ? rc : merges_push_line(v, ms, l.p, l.n, j->why);
	}
	rc = jscan_take(j, '[');
	if (rc == 0)
		rc = jscan_string(j, &l, &tmp[0]);
	if (rc == 0)
		rc = jscan_take(j, ',');
	if (rc == 0)
		rc = jscan_string(j, &r, &tmp[1]);
	if (rc == 0)
		rc = jscan_take(j, ']');
	return rc ? rc : merges_push(v, ms, l.p, l.n, r.p, r.n, j->why);
}

static int load_merges(struct tokenizer *t, struct jscan j)
{
	struct merges ms = {0};
	struct buf tmp[2] = {{0}, {0}};
	bool more = true;
	int rc = jscan_take(&j, '[');
	if (rc == 0 && jscan_peek(&j) == ']')
		rc = jscan_more(&j, ']', &more);
	while (rc == 0 && more) {
		rc = read_merge(&t->vocab, &j, &ms, tmp);
		if (rc == 0)
			rc = jscan_more(&j, ']', &more);
	}
	buf_fini(&tmp[0]);
	buf_fini(&tmp[1]);
	return merges_finish(&ms, &t->bpe, rc, j.why);
}

/* ---- the model's settings ---- */

static int refuse_affix(const json_t *model, const char *key, struct why *why)
{
	const char *text = NULL;
	int rc = json_get_str(model, key, &text, why);
	if (rc == 0 && text && *text)
		rc = err_why(why, -EINVAL, "%s \"%s\" is not supported", key, text);
	return rc;
}

static int check_model(const struct members *m, struct why *why)
{
	const char *type = "BPE";
	double dropout = 0;
	if (!m->has_model)
		return err_why(why, -EINVAL, "model is missing");
	int rc = json_get_str(m->model, "type", &type, why);
	if (rc)
		return rc;
	if (strcmp(type, "BPE") != 0)
		return err_why(why, -EINVAL, "type \"%s\" is not supported, only BPE", type);
	if (!m->vocab.p || !m->merges.p)
		return err_why(why, -EINVAL, "%s is missing", m->vocab.p ? "merges" : "vocab");
	rc = json_get_num(m->model, "dropout", &dropout, why);
	if (rc == 0 && dropout != 0)
		rc = err_why(why, -EINVAL, "dropout is not supported");
	if (rc == 0)
		rc = refuse_affix(m->model, "continuing_subword_prefix", why);
	return rc ? rc : refuse_affix(m->model, "end_of_word_suffix", why);
}

static bool all_bytes_known(const struct bpe *b)
{
	for (int i = 0; i < 256; i++)
		if (b->byte_id[i] == VOCAB_NONE)
			return false;
	return true;
}

static int load_settings(struct tokenizer *t, const json_t *model, struct why *why)
{
	const char *unk = NULL;
	struct buf tmp = {0};
	int rc = json_get_bool(model, "byte_fallback", &t->bpe.byte_fallback, why);
	if (rc == 0)
		rc = json_get_bool(model, "fuse_unk", &t->bpe.fuse_unk, why);
	if (rc == 0)
		rc = json_get_bool(model, "ignore_merges", &t->bpe.ignore_merges, why);
	if (rc == 0)
		rc = json_get_str(model, "unk_token", &unk, why);
	if (rc)
		return rc;
	if (t->bpe.byte_fallback && t->vocab.byte_level)
		return err_why(why, -EINVAL, "byte_fallback with a ByteLevel pre_tokenizer is not supported");
	bpe_finish(&t->bpe, &t->vocab);
	if (unk)
		t->bpe.unk = vocab_find_spelled(&t->vocab, unk, strlen(unk), &tmp);
	buf_fini(&tmp);
	/* If every byte has a piece, no character is unknown. */
	bool needed = !(t->bpe.byte_fallback || t->vocab.byte_level) || !all_bytes_known(&t->bpe);
	if (unk && t->bpe.unk == VOCAB_NONE && needed)
		return err_why(why, -EINVAL, "unk_token \"%s\" is not in the vocabulary", unk);
	return 0;
}

/* ---- added tokens ---- */

static int token_flags(const json_t *o, struct added_token *tok, struct why *why)
{
	int rc = json_get_bool(o, "special", &tok->special, why);
	tok->normalized = !tok->special;
	if (rc == 0)
		rc = json_get_bool(o, "normalized", &tok->normalized, why);
	if (rc == 0)
		rc = json_get_bool(o, "single_word", &tok->single_word, why);
	if (rc == 0)
		rc = json_get_bool(o, "lstrip", &tok->lstrip, why);
	return rc ? rc : json_get_bool(o, "rstrip", &tok->rstrip, why);
}

static int add_token(struct tokenizer *t, const struct added_token *tok, struct why *why)
{
	struct buf tmp = {0};
	struct jscan_text s = {tok->content, tok->n};
	uint32_t known = vocab_find_spelled(&t->vocab, tok->content, tok->n, &tmp);
	const struct added_token *before = added_find(&t->added, tok->content, tok->n);
	uint8_t flags = tok->special ? PIECE_SPECIAL : 0;
	buf_fini(&tmp);
	if (before)
		known = before->id;
	if (known != VOCAB_NONE && known != tok->id)
		return err_why(why, -EINVAL, "\"%.*s\" has the id %u here, and %u before", SHOWN(s), tok->id,
			       known);
	if (before)
		return err_why(why, -EINVAL, "duplicate token \"%.*s\"", SHOWN(s));
	if (vocab_add_token(&t->vocab, tok->id, tok->content, tok->n, flags))
		return err_why(why, -EINVAL, "\"%.*s\": another piece has its id %u", SHOWN(s), tok->id);
	if (!tok->normalized) {
		added_push(&t->added, tok, tok->content, tok->n);
		return 0;
	}
	struct norm_text text = {0};
	norm_run(&t->norm, tok->content, tok->n, false, &text);
	added_push(&t->added, tok, text.p, text.n);
	norm_text_fini(&text);
	return 0;
}

/* Read content and flags from o, once the id is known.  An empty content is ignored. */
static int read_token(struct tokenizer *t, const json_t *o, struct added_token *tok, bool only_new,
		      struct why *why)
{
	const json_t *content = json_get(o, "content");
	if (!json_is_string(content))
		return err_why(why, -EINVAL, "content must be a string");
	int rc = token_flags(o, tok, why);
	tok->content = (char *)json_string_value(content);
	tok->n = json_string_length(content);
	if (t->spm) /* the model's normalization does not apply to added tokens */
		tok->normalized = false;
	/* The configuration may make a user-defined piece of SentencePiece special. */
	bool special_now = t->spm && tok->special && !added_find(&t->added, tok->content, tok->n);
	if (rc || tok->n == 0 || (only_new && !special_now && tokenizer_id(t, tok->content) >= 0))
		return rc;
	return add_token(t, tok, why);
}

static int load_added(struct tokenizer *t, const json_t *list, struct why *why)
{
	size_t i;
	json_t *o;
	if (!list)
		return 0;
	if (!json_is_array(list))
		return err_why(why, -EINVAL, "added_tokens must be a list");
	json_array_foreach(list, i, o)
	{
		struct added_token tok = {0};
		int64_t id = -1;
		int rc = json_get_int(o, "id", 0, VOCAB_ID_MAX, &id, why);
		if (rc == 0 && id < 0)
			rc = err_why(why, -EINVAL, "id is missing");
		tok.id = (uint32_t)id;
		if (rc == 0)
			rc = read_token(t, o, &tok, false, why);
		if (rc)
			return err_prefix(why, rc, "added_tokens[%zu]", i);
	}
	return 0;
}

/* ---- tokenizer_config.json ---- */

/* Return the id of a token given as a string or as an object with a content; -1: absent or unknown. */
static int64_t config_token(const struct tokenizer *t, const json_t *config, const char *key)
{
	const json_t *v = json_get(config, key);
	if (json_is_object(v))
		v = json_get(v, "content");
	return json_is_string(v) ? tokenizer_id(t, json_string_value(v)) : -1;
}

/* Add tokens that only the configuration has, as transformers does. */
static int config_added(struct tokenizer *t, json_t *config, struct why *why)
{
	const char *key;
	json_t *o;
	json_object_foreach(json_get(config, "added_tokens_decoder"), key, o)
	{
		struct added_token tok = {0};
		char *end;
		unsigned long id = strtoul(key, &end, 10);
		int rc = 0;
		if (*key < '0' || *key > '9' || *end || id > VOCAB_ID_MAX)
			rc = err_why(why, -EINVAL, "not an id in range");
		tok.id = (uint32_t)id;
		if (rc == 0)
			rc = read_token(t, o, &tok, true, why);
		if (rc)
			return err_prefix(why, rc, "added_tokens_decoder: \"%s\"", key);
	}
	return 0;
}

/* Read a configuration.  Many have 1e30 as model_max_length, written as an integer, which jansson refuses. */
static int read_config(const char *path, json_t **out, struct why *why)
{
	struct members m = {.top = json_object(), .config = true};
	char *text;
	size_t n;
	int rc = file_read(path, CONFIG_MAX, &text, &n, why);
	if (rc == 0) {
		struct jscan j = {text, text + n, text, why};
		if (utf8_valid(text, n) < n)
			rc = err_why(why, -EINVAL, "not UTF-8 at byte %zu", utf8_valid(text, n));
		if (rc == 0)
			rc = scan_object(&j, &m, true);
		if (rc == 0 && jscan_peek(&j) >= 0)
			rc = jscan_fail(&j, "more text after the end");
		if (rc)
			err_prefix(why, rc, "%s", path);
		free(text);
	}
	*out = m.top;
	return rc;
}

/* Set BOS and EOS, and whether they are added: for tokenizer.json the post_processor decides that, for other
 * files the configuration. */
static int config_ends(struct tokenizer *t, const json_t *config, struct why *why)
{
	int64_t bos = config_token(t, config, "bos_token"), eos = config_token(t, config, "eos_token");
	bool before = t->before.n > 0, behind = t->behind.n > 0;
	if (bos >= 0 || !t->spm)
		t->bos = bos;
	if (eos >= 0 || !t->spm)
		t->eos = eos;
	if (!t->spm)
		return 0;
	int rc = json_get_bool(config, "add_bos_token", &before, why);
	if (rc == 0)
		rc = json_get_bool(config, "add_eos_token", &behind, why);
	t->before.n = t->behind.n = 0;
	if (before && t->bos >= 0)
		token_ids_push(&t->before, (uint32_t)t->bos);
	if (behind && t->eos >= 0)
		token_ids_push(&t->behind, (uint32_t)t->eos);
	return rc;
}

int tokenizer_load_config(struct tokenizer *t, const char *dir, struct why *why)
{
	char *path = file_join(dir, "tokenizer_config.json");
	json_t *config = NULL;
	int rc = 0;
	if (file_exists(path))
		rc = read_config(path, &config, why);
	if (rc == 0 && config) {
		rc = config_added(t, config, why);
		if (rc == 0)
			rc = config_ends(t, config, why);
		if (rc)
			err_prefix(why, rc, "%s", path);
	}
	json_decref(config);
	free(path);
	return rc;
}

/* ---- loading ---- */

static void measure(struct tokenizer *t)
{
	for (uint32_t id = 0; id < t->vocab.n; id++) {
		size_t n = t->vocab.pieces[id].len;
		if (n > t->max_piece)
			t->max_piece = n;
	}
}

static int check_template(const struct tokenizer *t, struct why *why)
{
	const struct token_ids *lists[] = {&t->before, &t->behind};
	for (int l = 0; l < 2; l++)
		for (size_t i = 0; i < lists[l]->n; i++)
			if (lists[l]->ids[i] >= t->vocab.n)
				return err_why(why, -EINVAL,
					       "post_processor: id %u is out of range, the largest is %u",
					       lists[l]->ids[i], t->vocab.n - 1);
	return 0;
}

static int load_model(struct tokenizer *t, const struct members *m, struct jscan j)
{
	int rc = check_model(m, j.why);
	if (rc)
		return err_prefix(j.why, rc, "model");
	struct jscan vocab = j, merges = j;
	vocab.p = m->vocab.p;
	merges.p = m->merges.p;
	rc = load_vocab(t, vocab);
	if (rc == 0)
		rc = load_merges(t, merges);
	if (rc == 0)
		rc = load_settings(t, m->model, j.why);
	if (rc)
		return err_prefix(j.why, rc, "model");
	return t->vocab.n ? 0 : err_why(j.why, -EINVAL, "model: the vocabulary is empty");
}

static int load_text(struct tokenizer *t, const char *text, size_t n, struct why *why)
{
	struct jscan j = {text, text + n, text, why};
	struct members m = {.top = json_object(), .model = json_object()};
	size_t valid = utf8_valid(text, n);
	int rc = 0;
	if (valid < n)
		rc = err_why(why, -EINVAL, "not UTF-8 at byte %zu", valid);
	if (rc == 0)
		rc = scan_object(&j, &m, true);
	if (rc == 0 && jscan_peek(&j) >= 0)
		rc = jscan_fail(&j, "more text after the end");
	if (rc == 0)
		rc = tokenizer_load_pipeline(
			t, json_get(m.top, "normalizer"), json_get(m.top, "pre_tokenizer"),
			json_get(m.top, "post_processor"), json_get(m.top, "decoder"), why);
	if (rc == 0) {
		vocab_init(&t->vocab, t->pretok.byte_level);
		rc = load_model(t, &m, j);
	}
	if (rc == 0)
		rc = load_added(t, json_get(m.top, "added_tokens"), why);
	json_decref(m.top);
	json_decref(m.model);
	return rc;
}

int tokenizer_finish(struct tokenizer *t, struct why *why)
{
	int rc = check_template(t, why);
	measure(t);
	return rc ? rc : tokenizer_decode_prepare(t, why);
}

int tokenizer_load_json(struct tokenizer *t, const char *path, struct why *why)
{
	char *text = NULL;
	size_t n;
	t->bos = t->eos = -1;
	int rc = file_read(path, FILE_MAX, &text, &n, why);
	if (rc == 0 && (rc = load_text(t, text, n, why)) != 0)
		err_prefix(why, rc, "%s", path);
	free(text);
	return rc;
}

int tokenizer_from_text(const char *json, size_t n, struct tokenizer **out, struct why *why)
{
	struct tokenizer *t = xcalloc(1, sizeof(*t));
	added_init(&t->added);
	t->bos = t->eos = -1;
	int rc = load_text(t, json, n, why);
	if (rc == 0)
		rc = tokenizer_finish(t, why);
	if (rc)
		tokenizer_free(t);
	else
		*out = t;
	return rc;
}
