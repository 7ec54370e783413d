#include "controller/apis/pieces.h"

#include "base/alloc.h"
#include "controller/tokenizer/detok.h"

#include <stdlib.h>
#include <string.h>

void pieces_init(struct pieces *p, const struct tokenizer *t, bool skip_special)
{
	*p = (struct pieces){.detok = detok_new(t, skip_special, true)};
}

void pieces_fini(struct pieces *p)
{
	detok_free(p->detok);
	buf_fini(&p->scratch);
	buf_fini(&p->text);
	free(p->cuts);
	*p = (struct pieces){0};
}

static void add_cuts(struct pieces *p, const struct output_view *v)
{
	for (uint32_t i = 0; i < v->n_tokens; i++) {
		buf_clear(&p->scratch);
		detok_push(p->detok, v->tokens[i], &p->scratch);
		p->told += p->scratch.len;
		if (!p->scratch.len)
			continue;
		array_grow(p->cuts, p->cap_cuts, p->n_cuts + 1);
		p->cuts[p->n_cuts++] = p->told;
	}
}

void pieces_push(struct pieces *p, const struct output_view *v,
		 void (*piece)(void *user, const char *text, size_t n), void *user)
{
	const bool last = v->finish != FINISH_NONE;
	size_t done = 0, k = 0;
	buf_put(&p->text, v->text, v->text_n);
	add_cuts(p, v);
	for (; k < p->n_cuts && p->cuts[k] <= p->taken + p->text.len; k++) {
		const size_t end = p->cuts[k] - p->taken;
		if (end > done)
			piece(user, p->text.p + done, end - done);
		done = end;
	}
	if (last && p->text.len > done) {
		piece(user, p->text.p + done, p->text.len - done);
		done = p->text.len;
	}
	k = last ? p->n_cuts : k;
	if (k) {
		memmove(p->cuts, p->cuts + k, (p->n_cuts - k) * sizeof *p->cuts);
		p->n_cuts -= k;
	}
	if (done) {
		memmove(p->text.p, p->text.p + done, p->text.len - done);
		p->text.len -= done;
		p->taken += done;
	}
}
