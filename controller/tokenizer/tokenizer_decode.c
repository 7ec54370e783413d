#include "controller/tokenizer/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Parse <0xXX> as u8::from_str_radix does, which accepts a leading plus sign. */
static int byte_piece(const char *p, size_t n)
{
	if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
		return -1;
	char s[3] = {p[3], p[4], 0};
	if (!isxdigit((unsigned char)s[1]) || !(isxdigit((unsigned char)s[0]) || s[0] == '+'))
		return -1;
	return (int)strtol(s, NULL, 16);
}

/* Apply the replacements to each piece once, at load. */
int tokenizer_decode_prepare(struct tokenizer *t, struct why *why)
{
	const struct vocab *v = &t->vocab;
	struct norm_text text = {0};
	int rc = 0;
	if (t->decoder.kind != DECODER_PIECES)
		return 0;
	t->decoded = xcalloc(v->n, sizeof(t->decoded[0]));
	for (uint32_t id = 0; id < v->n && rc == 0; id++) {
		norm_run(&t->decoder.replace, vocab_text(v, id), v->pieces[id].len, false, &text);
		int byte = t->decoder.byte_fallback ? byte_piece(text.p, text.n) : -1;
		t->decoded[id] =
			(struct decoded){(uint32_t)t->decoded_text.len, (uint32_t)text.n, (int16_t)byte};
		if (text.n > VOCAB_TEXT_MAX - t->decoded_text.len)
			rc = err_why(why, -EINVAL, "the decoder's replacements make the vocabulary too long");
		else if (byte >= 0) {
			buf_putc(&t->decoded_text, (char)byte);
			t->decoded[id].len = 1;
		} else
			buf_put(&t->decoded_text, text.p, text.n);
	}
	norm_text_fini(&text);
	return rc;
}

struct piece_text tokenizer_decoded(const struct tokenizer *t, uint32_t id)
{
	if (!t->decoded)
		return (struct piece_text){vocab_text(&t->vocab, id), t->vocab.pieces[id].len, -1};
	const struct decoded *d = &t->decoded[id];
	return (struct piece_text){t->decoded_text.p + d->at, d->len, d->byte};
}

void decode_begin(struct decode_state *s, const struct tokenizer *t, bool continues)
{
	*s = (struct decode_state){.t = t, .begun = continues};
	s->strip_left = continues ? 0 : t->decoder.n_strip;
}

void decode_fini(struct decode_state *s)
{
	buf_fini(&s->held);
}

/* Emit valid text; only stripping remains. */
static void emit(struct decode_state *s, const char *p, size_t n, struct buf *out)
{
	for (; n > 0 && s->strip_left > 0; s->strip_left--, p++, n--) {
		if (*p != s->t->decoder.strip) {
			s->strip_left = 0;
			break;
		}
	}
	buf_put(out, p, n);
}

/* End a run of byte-fallback bytes: emit it if it is valid UTF-8 as a whole, else one U+FFFD per byte. */
static void end_run(struct decode_state *s, struct buf *out)
{
	if (s->held.len == 0)
		return;
	if (utf8_valid(s->held.p, s->held.len) == s->held.len) {
		emit(s, s->held.p, s->held.len, out);
	} else {
		for (size_t i = 0; i < s->held.len; i++)
			emit(s, "\xef\xbf\xbd", 3, out);
	}
	buf_clear(&s->held);
}

/* Emit whole characters, hold back an incomplete one. */
static void push_bytes(struct decode_state *s, const char *p, size_t n, struct buf *out)
{
	size_t used;
	if (s->held.len == 0) {
		used = utf8_put_lossy(out, p, n);
		if (used < n)
			buf_put(&s->held, p + used, n - used);
		return;
	}
	buf_put(&s->held, p, n);
	used = utf8_put_lossy(out, s->held.p, s->held.len);
	memmove(s->held.p, s->held.p + used, s->held.len - used);
	s->held.len -= used;
}

/* Emit the first piece without U+2581, as Metaspace's decoder does. */
static void push_first_meta(struct decode_state *s, uint32_t id, struct buf *out)
{
	const struct vocab *v = &s->t->vocab;
	const char *p = vocab_text(v, id), *end = p + v->pieces[id].len;
	size_t k = strlen(s->t->decoder.meta);
	while (p < end) {
		const char *hit = memmem(p, (size_t)(end - p), s->t->decoder.meta, k);
		emit(s, p, (size_t)((hit ? hit : end) - p), out);
		p = hit ? hit + k : end;
	}
}

static void push_piece(struct decode_state *s, uint32_t id, struct buf *out)
{
	struct piece_text text = tokenizer_decoded(s->t, id);
	if (text.byte >= 0) {
		buf_putc(&s->held, (char)text.byte);
		return;
	}
	end_run(s, out);
	if (s->t->decoder.metaspace_first && !s->begun)
		push_first_meta(s, id, out);
	else
		emit(s, text.p, text.n, out);
}

void decode_push(struct decode_state *s, uint32_t id, bool skip_special, struct buf *out)
{
	const struct tokenizer *t = s->t;
	if (id >= t->vocab.n) {
		decode_end(s, out);
		utf8_put_replacement(out);
		return;
	}
	uint8_t flags = t->vocab.pieces[id].flags;
	if (!(flags & PIECE_USED) || (skip_special && flags & PIECE_SPECIAL))
		return;
	switch (t->decoder.kind) {
	case DECODER_BYTE_LEVEL:
		push_bytes(s, vocab_text(&t->vocab, id), t->vocab.pieces[id].len, out);
		break;
	case DECODER_JOIN:
		if (s->begun)
			buf_putc(out, ' ');
		buf_put(out, vocab_text(&t->vocab, id), t->vocab.pieces[id].len);
		break;
	case DECODER_PIECES:
		push_piece(s, id, out);
		break;
	}
	s->begun = true;
}

void decode_end(struct decode_state *s, struct buf *out)
{
	if (s->t->decoder.kind == DECODER_PIECES) {
		end_run(s, out);
		return;
	}
	if (s->held.len)
		utf8_put_replacement(out);
	buf_clear(&s->held);
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
		     struct buf *out)
{
	struct decode_state s;
	for (size_t i = 0; i < n; i++)
		if (ids[i] >= t->vocab.n)
			return -EINVAL;
	decode_begin(&s, t, false);
	for (size_t i = 0; i < n; i++)
		decode_push(&s, ids[i], skip_special, out);
	decode_end(&s, out);
	decode_fini(&s);
	return 0;
}
