#include "controller/model_vocabulary.h"

bool model_vocabulary_ends(const struct tokenizer *t, const struct model_config *c, uint32_t id)
{
	for (int i = 0; i < c->n_eos; i++)
		if (c->eos[i] == id)
			return true;
	return tokenizer_eos(t) == (int64_t)id;
}

void model_vocabulary(const struct tokenizer *t, const struct model_config *c, struct vocabulary *out)
{
	const uint32_t n = (uint32_t)c->n_vocab, known = tokenizer_n_vocab(t);
	struct buf b = {0};
	vocabulary_clear(out);
	for (uint32_t id = 0; id < n; id++) {
		const bool special = id < known && tokenizer_is_special(t, id),
			   end = model_vocabulary_ends(t, c, id);
		buf_clear(&b);
		if (special)
			buf_putc(&b, (char)VOCABULARY_SPECIAL);
		if (id < known)
			tokenizer_piece(t, id, &b);
		const bool text = b.len > special;
		if (special)
			buf_putc(&b, (char)VOCABULARY_SPECIAL_END);
		if (!text || b.len > VOCABULARY_TOKEN_BYTES_MAX)
			buf_clear(&b);
		vocabulary_add(out, b.p, b.len,
			       end     ? VOCABULARY_END
			       : b.len ? VOCABULARY_TEXT
				       : VOCABULARY_CONTROL);
	}
	buf_fini(&b);
}
