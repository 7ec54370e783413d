/* Builds the model of a tokenizer, and the steps around it, from a table of pieces. */
#include "controller/tokenizer/piece_table.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "controller/tokenizer/merges.h"
#include "controller/tokenizer/tokenizer_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	PIECE_TEXT_MAX = 1024,     /* bytes of a piece produced from text; several times the longest known */
	TABLE_TEXT_MAX = 32 << 20, /* bytes of all pieces of a SentencePiece model */
	SHOWN_MAX = 60,
};

#define SHOWN(r) (int)((r)->n < SHOWN_MAX ? (r)->n : SHOWN_MAX), (r)->p

void piece_table_init(struct piece_table *pt)
{
	*pt = (struct piece_table){.unk = -1,
				   .bos = -1,
				   .eos = -1,
				   .add_dummy_prefix = true,
				   .remove_extra_whitespaces = true,
				   .escape_whitespaces = true};
}

void piece_table_fini(struct piece_table *pt)
{
	free(pt->rows);
	free(pt->merges);
	buf_fini(&pt->text);
}

void piece_table_add(struct piece_table *pt, const char *p, size_t n, float score, int type)
{
	array_grow(pt->rows, pt->cap, pt->n + 1);
	pt->rows[pt->n++] = (struct piece_row){p, n, score, type, false};
}

/* ---- pieces ---- */

/* Return true if the model itself produces this piece from text. */
static bool from_text(const struct piece_table *pt, const struct piece_row *r)
{
	if (pt->model == TABLE_BYTE_BPE)
		return r->type == ROW_NORMAL || r->type == ROW_USER_DEFINED || r->type == ROW_BYTE;
	return r->type == ROW_NORMAL || r->type == ROW_USER_DEFINED || r->type == ROW_UNUSED;
}

static int row_error(const struct piece_table *pt, const struct piece_row *r, const char *what,
		     struct why *why)
{
	bool shown = utf8_valid(r->p, r->n) == r->n;
	return err_why(why, -EINVAL, "piece %zu (\"%.*s\"): %s", (size_t)(r - pt->rows),
		       shown ? (int)(r->n < SHOWN_MAX ? utf8_valid(r->p, r->n < SHOWN_MAX ? r->n : SHOWN_MAX)
						      : utf8_valid(r->p, SHOWN_MAX))
			     : 0,
		       r->p, what);
}

static int check_row(const struct piece_table *pt, const struct piece_row *r, struct why *why)
{
	if (r->type < ROW_NORMAL || r->type > ROW_BYTE)
		return row_error(pt, r, "its type is not one of 1 to 6", why);
	if (utf8_valid(r->p, r->n) < r->n)
		return row_error(pt, r, "not UTF-8", why);
	if (pt->model == TABLE_BYTE_BPE)
		return 0;
	if (r->n == 0)
		return row_error(pt, r, "it is empty", why);
	if (!isfinite(r->score))
		return row_error(pt, r, "its score is not a number", why);
	if (from_text(pt, r) && r->n > PIECE_TEXT_MAX)
		return row_error(pt, r, "it is longer than 1024 bytes", why);
	return 0;
}

/* Return the byte of "<0xXX>", or -1. */
static int byte_of(const struct piece_row *r)
{
	char *end, text[3] = {0};
	if (r->n != 6 || memcmp(r->p, "<0x", 3) != 0 || r->p[5] != '>')
		return -1;
	memcpy(text, r->p + 3, 2);
	long v = strtol(text, &end, 16);
	return *end || text[0] == '+' || text[0] == '-' || text[0] == ' ' ? -1 : (int)v;
}

/* Write the text to search for a piece: in SentencePiece's models U+2581 is a space of the text. */
static void raw_text(const struct piece_table *pt, const struct piece_row *r, struct buf *out)
{
	bool escaped = pt->model != TABLE_BYTE_BPE;
	for (size_t i = 0; i < r->n; i++) {
		if (escaped && r->n - i >= 3 && memcmp(r->p + i, "\xe2\x96\x81", 3) == 0) {
			buf_putc(out, ' ');
			i += 2;
		} else {
			buf_putc(out, r->p[i]);
		}
	}
}

static int add_special(struct tokenizer *t, const struct piece_table *pt, uint32_t id, struct why *why)
{
	const struct piece_row *r = &pt->rows[id];
	struct buf raw = {0};
	struct added_token tok = {.id = id, .content = (char *)r->p, .n = r->n, .rstrip = r->rstrip};
	tok.special = r->type != ROW_USER_DEFINED;
	if (r->n == 0)
		return 0;
	if (added_find(&t->added, r->p, r->n))
		return row_error(pt, r, "another piece has its text", why);
	raw_text(pt, r, &raw);
	added_push(&t->added, &tok, raw.p, raw.len);
	buf_fini(&raw);
	return 0;
}

/* Add a row.  Control pieces and unk are found in the text as given, or not at all (TOKENIZER_NO_SPECIAL). */
static int add_row(struct tokenizer *t, const struct piece_table *pt, uint32_t id, struct why *why)
{
	const struct piece_row *r = &pt->rows[id];
	bool special = r->type == ROW_CONTROL || r->type == ROW_UNKNOWN;
	int rc = check_row(pt, r, why);
	if (rc)
		return rc;
	if (pt->model == TABLE_BYTE_BPE && r->type == ROW_UNUSED)
		return 0; /* padding; as in tokenizer.json, there is no such token */
	if (from_text(pt, r) && r->n)
		rc = vocab_add(&t->vocab, id, r->p, r->n);
	else
		rc = vocab_add_token(&t->vocab, id, r->p, r->n, special ? PIECE_SPECIAL : 0);
	if (rc == -EEXIST)
		return row_error(pt, r, "another piece has its text", why);
	if (rc)
		return row_error(pt, r, "too large", why);
	if (special || (r->type == ROW_USER_DEFINED && pt->raw_user))
		return add_special(t, pt, id, why);
	return 0;
}

static int check_size(const struct piece_table *pt, struct why *why)
{
	size_t total = 0;
	if (pt->n == 0)
		return err_why(why, -EINVAL, "the vocabulary is empty");
	if (pt->n > (size_t)VOCAB_ID_MAX + 1)
		return err_why(why, -EINVAL, "%zu pieces, at most %d are possible", pt->n, VOCAB_ID_MAX + 1);
	size_t most = pt->model == TABLE_BYTE_BPE  ? VOCAB_TEXT_MAX
		      : pt->model == TABLE_UNIGRAM ? TABLE_TEXT_MAX / 4 - 1
						   : TABLE_TEXT_MAX;
	for (size_t i = 0; i < pt->n && total <= most; i++)
		total += pt->rows[i].n;
	if (total > most)
		return err_why(why, -EINVAL, "the pieces have more than %zu bytes", most);
	return 0;
}

static int load_rows(struct tokenizer *t, const struct piece_table *pt, struct why *why)
{
	int rc = check_size(pt, why);
	if (rc)
		return rc;
	vocab_init(&t->vocab, pt->model == TABLE_BYTE_BPE);
	for (uint32_t id = 0; id < pt->n && rc == 0; id++)
		rc = add_row(t, pt, id, why);
	return rc;
}

/* ---- byte-level BPE ---- */

static int load_byte_bpe(struct tokenizer *t, const struct piece_table *pt, struct why *why)
{
	struct merges ms = {0};
	struct pretok *p = &t->pretok;
	int rc = 0;
	for (size_t i = 0; i < pt->n_merges && rc == 0; i++) {
		const struct merge_row *m = &pt->merges[i];
		rc = merges_push_line(&t->vocab, &ms, m->p, m->n, why);
	}
	rc = merges_finish(&ms, &t->bpe, rc, why);
	t->bpe.ignore_merges = pt->ignore_merges;
	bpe_finish(&t->bpe, &t->vocab);
	if (pt->nfc)
		t->norm.ops[t->norm.n++] = (struct norm_op){.kind = NORM_NFC};
	for (int i = 0; i < pt->n_splits && rc == 0; i++) {
		struct pretok_op *op = &p->ops[p->n++];
		*op = (struct pretok_op){.kind = PRETOK_SPLIT, .behavior = SPLIT_ISOLATED};
		rc = splitter_init(&op->splitter, true, pt->splits[i], true, why);
	}
	if (pt->prefix_space)
		p->ops[p->n++] = (struct pretok_op){.kind = PRETOK_PREFIX, .text = xstrdup(" ")};
	p->byte_level = true;
	t->decoder.kind = DECODER_BYTE_LEVEL;
	return rc;
}

/* ---- SentencePiece's models ---- */

static void set_decoder(struct tokenizer *t, const struct piece_table *pt, bool bytes)
{
	struct decoder *d = &t->decoder;
	d->kind = DECODER_PIECES;
	d->byte_fallback = bytes;
	d->replace.ops[d->replace.n++] =
		(struct norm_op){NORM_REPLACE, xstrdup("\xe2\x96\x81"), xstrdup(" ")};
	d->strip = ' ';
	d->n_strip = pt->add_dummy_prefix && !pt->whitespace_suffix;
}

/* Fill in the pieces of bytes.  Return true if all 256 exist. */
static bool find_bytes(const struct piece_table *pt, uint32_t byte_id[256])
{
	bool all = true;
	for (int i = 0; i < 256; i++)
		byte_id[i] = VOCAB_NONE;
	for (uint32_t id = 0; id < pt->n; id++) {
		int byte = pt->rows[id].type == ROW_BYTE ? byte_of(&pt->rows[id]) : -1;
		if (byte >= 0)
			byte_id[byte] = id;
	}
	for (int i = 0; i < 256; i++)
		all = all && byte_id[i] != VOCAB_NONE;
	return all;
}

bool piece_table_has_bytes(const struct piece_table *pt)
{
	uint32_t byte_id[256];
	return find_bytes(pt, byte_id);
}

static void load_scores(struct tokenizer *t, const struct piece_table *pt, const uint32_t byte_id[256])
{
	float *score = xcalloc(pt->n, sizeof(score[0]));
	bool *unused = xcalloc(pt->n, sizeof(unused[0]));
	for (size_t id = 0; id < pt->n; id++) {
		score[id] = pt->rows[id].score;
		unused[id] = pt->rows[id].type == ROW_UNUSED;
	}
	bpe_init_scores(&t->bpe, &t->vocab, score, unused, byte_id);
	free(score);
	free(unused);
}

static void load_unigram(struct spm *s, const struct piece_table *pt)
{
	s->min_score = FLT_MAX;
	s->scores = xcalloc(pt->n, sizeof(s->scores[0]));
	s->user_defined = xcalloc(pt->n, sizeof(s->user_defined[0]));
	for (uint32_t id = 0; id < pt->n; id++) {
		const struct piece_row *r = &pt->rows[id];
		s->scores[id] = r->score;
		s->user_defined[id] = r->type == ROW_USER_DEFINED;
		if (r->type == ROW_NORMAL)
			s->min_score = fminf(s->min_score, r->score);
		if (from_text(pt, r) && r->type != ROW_UNUSED && !(s->user_defined[id] && pt->raw_user))
			spm_trie_add(&s->pieces, r->p, r->n, id);
	}
}

static int load_spm(struct tokenizer *t, const struct piece_table *pt, struct why *why)
{
	struct spm *s = t->spm = xcalloc(1, sizeof(*s));
	uint32_t byte_id[256], unk = pt->unk < 0 ? VOCAB_NONE : (uint32_t)pt->unk;
	bool bytes = find_bytes(pt, byte_id) && pt->byte_fallback;
	int rc = spm_init(s, pt, why);
	if (rc)
		return rc;
	if (pt->model == TABLE_SCORE_BPE)
		load_scores(t, pt, byte_id);
	else
		load_unigram(s, pt);
	memcpy(t->bpe.byte_id, byte_id, sizeof(byte_id));
	t->bpe.byte_fallback = s->byte_fallback = bytes;
	t->bpe.unk = s->unk = unk;
	s->byte_id = t->bpe.byte_id;
	if (pt->model == TABLE_SCORE_BPE)
		bpe_finish(&t->bpe, &t->vocab);
	for (uint32_t id = 0; id < pt->n; id++)
		if (pt->rows[id].type == ROW_USER_DEFINED && !pt->raw_user)
			spm_trie_add(&s->user, pt->rows[id].p, pt->rows[id].n, id);
	spm_finish(s);
	set_decoder(t, pt, bytes);
	return 0;
}

/* ---- the whole table ---- */

static int check_id(const struct piece_table *pt, const char *name, int64_t id, struct why *why)
{
	if (id < -1 || id >= (int64_t)pt->n)
		return err_why(why, -EINVAL, "the id of %s, %lld, is not one of %zu pieces", name,
			       (long long)id, pt->n);
	return 0;
}

int tokenizer_from_table(struct tokenizer *t, const struct piece_table *pt, struct why *why)
{
	int rc = check_id(pt, "bos", pt->bos, why);
	if (rc == 0)
		rc = check_id(pt, "eos", pt->eos, why);
	if (rc == 0)
		rc = check_id(pt, "unk", pt->unk, why);
	if (rc == 0)
		rc = load_rows(t, pt, why);
	if (rc == 0)
		rc = pt->model == TABLE_BYTE_BPE ? load_byte_bpe(t, pt, why) : load_spm(t, pt, why);
	t->bos = pt->bos;
	t->eos = pt->eos;
	if (rc == 0 && pt->add_bos && pt->bos >= 0)
		token_ids_push(&t->before, (uint32_t)pt->bos);
	if (rc == 0 && pt->add_eos && pt->eos >= 0)
		token_ids_push(&t->behind, (uint32_t)pt->eos);
	return rc;
}
