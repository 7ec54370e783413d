#include "quant/windows.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "controller/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
	TEXT_MAX = 256 << 20,
	BYTES_PER_TOKEN = 16 /* bytes of text to encode per token; if this gives too few tokens, more is
			      * encoded */
};

/* Return the start of a UTF-8 character, at n or before. */
static size_t whole(const char *text, size_t n, size_t all)
{
	while (n < all && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
		n--;
	return n;
}

static int encode(const struct tokenizer *t, const char *text, size_t n, size_t wanted, struct token_ids *ids,
		  struct why *why)
{
	size_t part = wanted * BYTES_PER_TOKEN;
	for (;;) {
		const size_t bytes = part < n ? whole(text, part, n) : n;
		ids->n = 0;
		int rc = tokenizer_encode(t, text, bytes, 0, NULL, 0, ids, why);
		if (rc || bytes == n || ids->n >= wanted)
			return rc;
		part *= 4;
	}
}

static int cut(struct windows *w, const struct token_ids *ids, const struct token_ids *begin, int n_tokens)
{
	size_t from = 0;
	w->tokens = xmalloc((size_t)n_tokens * sizeof *w->tokens);
	while (w->n < n_tokens && from < ids->n) {
		const size_t at = (size_t)w->n % (size_t)w->length;
		w->tokens[w->n++] = at < begin->n ? begin->ids[at] : ids->ids[from++];
	}
	return w->n;
}

int windows_read(struct windows *out, const char *model, const char *path, int length, int n_tokens,
		 int n_vocab, struct why *why)
{
	struct tokenizer *t = NULL;
	struct token_ids ids = {0}, begin = {0};
	char *text = NULL;
	size_t n = 0;
	*out = (struct windows){.length = length};
	int rc = file_read(path, TEXT_MAX, &text, &n, why);
	if (rc || (rc = tokenizer_load(model, &t, why)))
		goto done;
	if ((rc = encode(t, text, n, (size_t)n_tokens, &ids, why)) ||
	    (rc = tokenizer_encode(t, "", 0, TOKENIZER_ADD_SPECIAL, NULL, 0, &begin, why))) {
		err_prefix(why, rc, "%s", path);
		goto done;
	}
	begin.n = begin.n && begin.ids[0] == tokenizer_bos(t); /* drop tokens that end a text */
	cut(out, &ids, &begin, n_tokens);
	for (int i = 0; !rc && i < out->n; i++)
		if (out->tokens[i] >= (uint32_t)n_vocab)
			rc = err_why(why, -EINVAL, "the tokenizer of %s gives token %u, the model has %d",
				     model, out->tokens[i], n_vocab);
	if (!rc && out->n < 2)
		rc = err_why(why, -EINVAL, "%s has no text", path);
	out->hash = XXH3_64bits(out->tokens, (size_t)out->n * sizeof *out->tokens);
done:
	if (rc)
		windows_fini(out);
	token_ids_fini(&ids);
	token_ids_fini(&begin);
	tokenizer_free(t);
	free(text);
	return rc;
}

void windows_fini(struct windows *w)
{
	free(w->tokens);
	*w = (struct windows){0};
}
