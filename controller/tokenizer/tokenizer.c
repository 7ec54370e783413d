#include "controller/tokenizer/tokenizer.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "controller/tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 30 }; /* positions of symbols are 32 bits */

/* ---- a call of tokenizer_encode() ---- */

struct encode {
	const struct tokenizer *t;
	struct token_ids *out;
	struct bpe_scratch scratch;
	struct norm_text norm;
	struct spm_scratch spm;
	struct pretok_run pretok;
	const struct text_span *plain;
	size_t n_plain;
	bool no_special;
	size_t base;   /* offset in the text of the stretch being normalized */
	size_t base_n; /* length of this stretch */
	struct why *why;
};

/* Return true if a span overlaps [from, to). Spans are ascending: only the first that ends after from can. */
static bool touches_plain(const struct encode *e, size_t from, size_t to)
{
	size_t lo = 0, hi = e->n_plain;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (e->plain[mid].end <= from)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < e->n_plain && e->plain[lo].start < to;
}

static bool allowed_raw(const void *ctx, size_t from, size_t to)
{
	return !touches_plain(ctx, from, to);
}

/* Return true if no plain span overlaps [from, to). These are offsets in the normalized text, mapped back to
 * the input. */
static bool allowed_normalized(const void *ctx, size_t from, size_t to)
{
	const struct encode *e = ctx;
	const size_t *origin = e->norm.origin;
	if (!origin)
		return !touches_plain(e, e->base + from, e->base + to);
	size_t last = origin[to - 1], end = to;
	while (end < e->norm.n && origin[end] == last)
		end++;
	return !touches_plain(e, e->base + origin[from],
			      e->base + (end < e->norm.n ? origin[end] : e->base_n));
}

/* Return true if merging the word gives the piece id. For words that are pieces the answer is nearly always
 * yes; it is computed once and cached. */
static bool is_whole(struct encode *e, uint32_t id, const char *word, size_t n)
{
	const struct tokenizer *t = e->t;
	uint8_t *memo = &t->vocab.pieces[id].whole;
	uint8_t known = __atomic_load_n(memo, __ATOMIC_RELAXED);
	if (known == WHOLE_UNKNOWN) {
		size_t before = e->out->n;
		bpe_encode(&t->bpe, &t->vocab, &e->scratch, word, n, e->out);
		known = e->out->n == before + 1 && e->out->ids[before] == id ? WHOLE_YES : WHOLE_NO;
		e->out->n = before;
		__atomic_store_n(memo, known, __ATOMIC_RELAXED);
	}
	return known == WHOLE_YES;
}

static void encode_word(struct encode *e, const char *word, size_t n)
{
	const struct tokenizer *t = e->t;
	uint32_t id = vocab_find(&t->vocab, word, n);
	if (id != VOCAB_NONE && (t->bpe.ignore_merges || is_whole(e, id, word, n)))
		token_ids_push(e->out, id);
	else
		bpe_encode(&t->bpe, &t->vocab, &e->scratch, word, n, e->out);
}

/* Encode words that begin at runs of U+2581: no merge crosses the beginning of a run (cut_at_meta). */
static void encode_meta_words(struct encode *e, const char *p, size_t n)
{
	static const char meta[] = "\xe2\x96\x81";
	size_t start = 0, i = 0;
	const char *hit;
	while (i < n && (hit = memmem(p + i, n - i, meta, 3)) != NULL) {
		size_t at = (size_t)(hit - p);
		if (at > i) {
			encode_word(e, p + start, at - start);
			start = at;
		}
		i = at + 3;
	}
	if (start < n)
		encode_word(e, p + start, n - start);
}

static void on_word(void *ctx, const char *word, size_t n)
{
	struct encode *e = ctx;
	/* With ignore_merges the whole word is looked up. */
	if (e->t->bpe.cut_at_meta && !e->t->bpe.ignore_merges)
		encode_meta_words(e, word, n);
	else
		encode_word(e, word, n);
}

/* Encode a stretch of normalized text: added tokens searched for there, and the words between them. first:
 * the stretch is at the beginning of the input. */
static int encode_normalized(struct encode *e, const char *p, size_t n, bool first)
{
	struct added_filter f = {.no_special = e->no_special};
	struct added_match m;
	size_t at = 0, done = 0;
	int rc;
	if (e->n_plain) {
		f.allowed = allowed_normalized;
		f.ctx = e;
	}
	while (added_next(&e->t->added, &e->t->added.normalized, p, n, at, done, &f, &m)) {
		if (m.from > done) {
			rc = pretok_run(&e->pretok, p + done, m.from - done, first && done == 0);
			if (rc)
				return rc;
		}
		token_ids_push(e->out, m.token->id);
		at = m.resume;
		done = m.to;
	}
	return done < n ? pretok_run(&e->pretok, p + done, n - done, first && done == 0) : 0;
}

/* Encode a whole stretch with a SentencePiece model. User-defined pieces are matched separately; in Unigram
 * they are among the pieces, with a winning score. */
static void encode_spm(struct encode *e, const char *text, size_t n)
{
	const struct spm *s = e->t->spm;
	struct buf *norm = &e->spm.text;
	size_t start = 0, at = 0, used;
	uint32_t id;
	int len;
	buf_clear(norm);
	spm_normalize(s, text, n, norm);
	if (s->model == TABLE_UNIGRAM) {
		spm_unigram(s, &e->spm, norm->p, norm->len, e->out);
		return;
	}
	while (s->user.n_edges && at < norm->len) {
		used = spm_trie_longest(&s->user, norm->p + at, norm->len - at, &id);
		if (used == 0) {
			utf8_at(norm->p + at, &len);
			at += (size_t)len;
			continue;
		}
		if (at > start)
			on_word(e, norm->p + start, at - start);
		token_ids_push(e->out, id);
		start = at += used;
	}
	if (norm->len > start)
		on_word(e, norm->p + start, norm->len - start);
}

/* Encode a stretch of text between added tokens found before normalization. */
static int encode_stretch(struct encode *e, const char *text, size_t from, size_t to)
{
	bool origins = e->n_plain && e->t->added.normalized.n > 1;
	if (e->t->spm) {
		encode_spm(e, text + from, to - from);
		return 0;
	}
	e->base = from;
	e->base_n = to - from;
	norm_run(&e->t->norm, text + from, to - from, origins, &e->norm);
	return encode_normalized(e, e->norm.p, e->norm.n, from == 0);
}

static int encode_text(struct encode *e, const char *text, size_t n)
{
	struct added_filter f = {.no_special = e->no_special};
	struct added_match m;
	size_t at = 0, done = 0;
	if (e->n_plain) {
		f.allowed = allowed_raw;
		f.ctx = e;
	}
	while (added_next(&e->t->added, &e->t->added.raw, text, n, at, done, &f, &m)) {
		if (m.from > done) {
			int rc = encode_stretch(e, text, done, m.from);
			if (rc)
				return rc;
		}
		token_ids_push(e->out, m.token->id);
		at = m.resume;
		done = m.to;
	}
	return done < n ? encode_stretch(e, text, done, n) : 0;
}

static int check_input(const char *text, size_t n, const struct text_span *plain, size_t n_plain,
		       struct why *why)
{
	if (n > TEXT_MAX)
		return err_why(why, -EINVAL, "the text has %zu bytes, at most %d are possible", n, TEXT_MAX);
	size_t valid = utf8_valid(text, n);
	if (valid < n)
		return err_why(why, -EINVAL, "the text is not UTF-8 at byte %zu", valid);
	for (size_t i = 0; i < n_plain; i++)
		if (plain[i].end < plain[i].start || plain[i].end > n ||
		    (i && plain[i].start < plain[i - 1].end))
			return err_why(why, -EINVAL, "span %zu of plain text is out of order or range", i);
	return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
		     const struct text_span *plain, size_t n_plain, struct token_ids *out, struct why *why)
{
	struct encode e = {.t = t,
			   .out = out,
			   .plain = plain,
			   .n_plain = n_plain,
			   .no_special = flags & TOKENIZER_NO_SPECIAL,
			   .pretok = {.pt = &t->pretok, .word = on_word, .why = why}};
	size_t before = out->n;
	int rc = check_input(text, n, plain, n_plain, why);
	if (rc)
		return rc;
	e.pretok.ctx = &e;
	for (size_t i = 0; flags & TOKENIZER_ADD_SPECIAL && i < t->before.n; i++)
		token_ids_push(out, t->before.ids[i]);
	rc = encode_text(&e, text, n);
	for (size_t i = 0; flags & TOKENIZER_ADD_SPECIAL && i < t->behind.n; i++)
		token_ids_push(out, t->behind.ids[i]);
	if (rc)
		out->n = before;
	bpe_scratch_fini(&e.scratch);
	norm_text_fini(&e.norm);
	spm_scratch_fini(&e.spm);
	pretok_run_fini(&e.pretok);
	return rc;
}

/* ---- properties ---- */

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
	return t->vocab.n;
}

size_t tokenizer_max_piece(const struct tokenizer *t)
{
	return t->max_piece;
}

int64_t tokenizer_id(const struct tokenizer *t, const char *piece)
{
	size_t n = strlen(piece);
	struct buf tmp = {0};
	const struct added_token *tok = added_find(&t->added, piece, n);
	if (tok)
		return tok->id;
	uint32_t id = vocab_find_spelled(&t->vocab, piece, n, &tmp);
	buf_fini(&tmp);
	if (id != VOCAB_NONE)
		return id;
	for (id = 0; id < t->vocab.n; id++) { /* rare: pieces outside the table */
		uint8_t flags = t->vocab.pieces[id].flags;
		bool outside = flags & PIECE_LITERAL || (flags & PIECE_USED && !(flags & PIECE_MODEL));
		if (outside && t->vocab.pieces[id].len == n &&
		    memcmp(vocab_text(&t->vocab, id), piece, n) == 0)
			return id;
	}
	return -1;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
	return id < t->vocab.n && t->vocab.pieces[id].flags & PIECE_SPECIAL;
}

void tokenizer_piece(const struct tokenizer *t, uint32_t id, struct buf *out)
{
	if (id >= t->vocab.n)
		return;
	struct piece_text text = tokenizer_decoded(t, id);
	buf_put(out, text.p, text.n);
}

int64_t tokenizer_bos(const struct tokenizer *t)
{
	return t->bos;
}

int64_t tokenizer_eos(const struct tokenizer *t)
{
	return t->eos;
}
