/* weights_use.c - marks the tensors that a decoder uses, and refuses those that it may not leave out. */
#include "formats/weights.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

void weights_each(const struct weights *w, void (*f)(void *ctx, const struct weights_linear *l, bool head),
		  void *ctx)
{
	for (int i = 0; i < w->n_layers; i++) {
		const struct weights_layer *l = &w->layers[i];
		const struct weights_linear *all[] = {&l->q,  &l->k,    &l->v,      &l->o,          &l->gate,
						      &l->up, &l->down, &l->router, &l->shared_gate};
		for (size_t j = 0; j < sizeof all / sizeof *all; j++)
			if (all[j]->w)
				f(ctx, all[j], false);
		for (int e = 0; e < l->n_experts; e++) {
			f(ctx, &l->experts[e].gate, false);
			f(ctx, &l->experts[e].up, false);
			f(ctx, &l->experts[e].down, false);
		}
	}
	if (w->head.w)
		f(ctx, &w->head, true);
}

void *weights_own(struct weights *w, void *p)
{
	w->owned = xrealloc(w->owned, (size_t)w->n_owned + 1, sizeof *w->owned);
	return w->owned[w->n_owned++] = p;
}

void weights_use(struct weights *w, int i, size_t bytes)
{
	w->bytes += (int64_t)bytes;
	w->n_used += !w->used[i];
	w->used[i] = true;
}

/* ---- unused tensors ---- */

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), k = strlen(end);
	return n >= k && strcmp(s + n - k, end) == 0;
}

static bool is_zero(const struct weights_tensor *t)
{
	const unsigned char *p = t->data;
	for (size_t i = 0; i < t->bytes; i++)
		if (p[i])
			return false;
	return true;
}

/* Return the layer of a tensor; -1: not in a layer. */
static long layer_of(const char *name, const char *layers)
{
	const size_t n = strlen(layers),
		     digits = strncmp(name, layers, n) == 0 ? strspn(name + n, "0123456789") : 0;
	return digits && digits < 6 && name[n + digits] == '.' ? strtol(name + n, NULL, 10) : -1;
}

/* Return whether a tensor affects the computation.  Inverse frequencies, and scales for quantized activations
 * or caches, do not. */
static bool counts(const struct weights_tensor *t)
{
	static const char *const parts[] = {"weight", "qweight", "weight_packed",
					    "sinks",  "_proj",   "_blocks"};
	if (!t->bytes)
		return false;
	/* The causal masks that older programs stored under these names. */
	if (ends_with(t->name, ".masked_bias") || (ends_with(t->name, ".bias") && t->n_dims > 2))
		return false;
	if (ends_with(t->name, "bias"))
		return !is_zero(t);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (ends_with(t->name, parts[i]))
			return true;
	return false;
}

int weights_weigh_unused(struct weights *w, const struct model_config *c, const char *layers,
			 const char *head, struct why *why)
{
	const size_t head_n = strlen(head);
	long beyond = -1;
	w->n_unused = w->files.n_tensors - w->n_used;
	for (int i = 0; i < w->files.n_tensors; i++) {
		struct weights_tensor t;
		if (w->used[i])
			continue;
		w->files.tensor(w->files.at, i, &t);
		const long layer = layer_of(t.name, layers);
		if (layer >= (long)c->n_layers + c->n_predict)
			beyond = layer > beyond ? layer : beyond;
		const bool of_head = strncmp(t.name, head, head_n) == 0 && t.name[head_n] == '.';
		if ((of_head || (layer >= 0 && layer < c->n_layers)) && counts(&t))
			return err_why(why, -ENOTSUP,
				       "tensor %s has no place in %s: without it the answers would be others "
				       "than the "
				       "model's",
				       t.name, c->arch_name);
	}
	w->n_beyond = beyond < 0 ? 0 : (int)(beyond + 1 - c->n_layers - c->n_predict);
	return 0;
}
