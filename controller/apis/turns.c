#include "controller/apis/turns.h"

#include "base/alloc.h"
#include "base/buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct held_token {
	size_t end; /* end of its text in the output's text */
	size_t top; /* index of its first entry in tops */
	struct token_logprob logprob;
};

/* Tokens of an output that have arrived and were not given yet. */
struct held {
	struct buf text;
	struct held_token *tokens; /* [n] owned */
	size_t n, cap, given;
	struct logprob_top *tops; /* [n_tops] owned */
	size_t n_tops, cap_tops;
	bool logprobs, over;
	enum finish finish;
	int64_t stop_token;
	char *stop_string; /* owned, or NULL */
};

struct turns {
	uint32_t n, n_over, at;
	struct held outputs[];
};

struct turns *turns_new(uint32_t n_outputs)
{
	struct turns *t = xcalloc(1, sizeof *t + n_outputs * sizeof t->outputs[0]);
	t->n = n_outputs;
	return t;
}

void turns_free(struct turns *t)
{
	for (uint32_t i = 0; t && i < t->n; i++) {
		struct held *h = &t->outputs[i];
		buf_fini(&h->text);
		free(h->tokens);
		free(h->tops);
		free(h->stop_string);
	}
	free(t);
}

static void put_token(struct held *h, const struct output_view *v, uint32_t i, size_t end)
{
	array_grow(h->tokens, h->cap, h->n + 1);
	struct held_token *k = &h->tokens[h->n++];
	*k = (struct held_token){.end = end, .top = h->n_tops, .logprob = {.token = v->tokens[i]}};
	if (!v->logprobs)
		return;
	const struct token_logprob *l = &v->logprobs[i];
	k->logprob = *l;
	h->logprobs = true;
	array_grow(h->tops, h->cap_tops, h->n_tops + l->n_top);
	if (l->n_top)
		memcpy(h->tops + h->n_tops, l->top, l->n_top * sizeof *l->top);
	h->n_tops += l->n_top;
}

void turns_put(struct turns *t, uint32_t output, const struct output_view *v)
{
	assert(output < t->n);
	struct held *h = &t->outputs[output];
	if (h->given == h->n) {
		h->given = h->n = h->n_tops = 0;
		buf_clear(&h->text);
	}
	const size_t at = h->text.len;
	buf_put(&h->text, v->text, v->text_n);
	for (uint32_t i = 0; i < v->n_tokens; i++) {
		const bool last = i + 1 == v->n_tokens;
		put_token(h, v, i, at + (last ? v->text_n - v->tail : v->starts[i + 1] - v->starts[0]));
	}
	if (v->finish == FINISH_NONE)
		return;
	h->finish = v->finish;
	h->stop_token = v->stop_token;
	h->stop_string = v->stop_string ? xstrdup(v->stop_string) : NULL;
}

/* Give the next token of this output; false: there is none yet. */
static bool give(struct held *h, struct output_view *one)
{
	const size_t from = h->given ? h->tokens[h->given - 1].end : 0;
	*one = (struct output_view){.text = h->text.p ? h->text.p + from : "", .stop_token = -1};
	if (h->given < h->n) {
		struct held_token *k = &h->tokens[h->given++];
		k->logprob.top = h->tops ? h->tops + k->top : NULL;
		one->text_n = k->end - from;
		one->tokens = &k->logprob.token;
		one->n_tokens = 1;
		one->logprobs = h->logprobs ? &k->logprob : NULL;
		return true;
	}
	if (h->finish == FINISH_NONE)
		return false;
	one->text_n = one->tail = h->text.len - from;
	one->finish = h->finish;
	one->stop_token = h->stop_token;
	one->stop_string = h->stop_string;
	h->over = true;
	return true;
}

bool turns_next(struct turns *t, struct output_view *one)
{
	while (!turns_over(t)) {
		struct held *h = &t->outputs[t->at];
		const bool was_over = h->over;
		if (!was_over && !give(h, one))
			return false;
		one->index = t->at;
		t->at = (t->at + 1) % t->n;
		if (was_over)
			continue;
		t->n_over += h->over;
		return true;
	}
	return false;
}

bool turns_over(const struct turns *t)
{
	return t->n_over == t->n;
}
