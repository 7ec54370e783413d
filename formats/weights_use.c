/* weights_use.c - the tensors of a decoder in use: walks over them, marks them, refuses those that it may not
 * leave out, and frees all. */
#include "formats/weights.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

void weights_close(struct weights *w)
{
	if (!w)
		return;
	if (w->files.at)
		w->files.close(w->files.at);
	for (int i = 0; i < w->n_owned; i++)
		free(w->owned[i]);
	free(w->owned);
	free(w->used);
	free(w->layers);
	free(w);
}

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

/* Return whether a tensor affects the computation.  Inverse frequencies and causal masks do not, nor do
 * scales for quantized activations or caches.  Of a quantized module it is the codes that count. */
static bool counts(const struct weights_tensor *t)
{
	static const char *const harmless[] = {".inv_freq", ".cos_cached", ".sin_cached",   ".masked_bias",
					       "_scale",    "scale_inv",   ".scales",       "_scales",
					       ".qzeros",   ".g_idx",      ".weight_shape", "_zero_point"};
	if (!t->bytes || strncmp(t->name, "rope_", strlen("rope_")) == 0)
		return false;
	/* AutoAWQ's divide the activations, ModelOpt's multiply them. */
	if (ends_with(t->name, ".act.scales") || ends_with(t->name, ".pre_quant_scale"))
		return true;
	for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
		if (ends_with(t->name, harmless[i]))
			return false;
	if (ends_with(t->name, ".bias") && t->n_dims > 2) /* a mask */
		return false;
	return !ends_with(t->name, "bias") || !is_zero(t);
}

int weights_weigh_unused(struct weights *w, const struct model_config *c, const struct weights_place *at,
			 struct why *why)
{
	const size_t head_n = strlen(at->head), text_n = at->text ? strlen(at->text) : 0;
	long beyond = -1;
	w->n_unused = w->files.n_tensors - w->n_used;
	for (int i = 0; i < w->files.n_tensors; i++) {
		struct weights_tensor t;
		if (w->used[i])
			continue;
		w->files.tensor(w->files.at, i, &t);
		const long layer = layer_of(t.name, at->layers);
		if (layer >= (long)c->n_layers + c->n_predict)
			beyond = layer > beyond ? layer : beyond;
		const bool of_head = strncmp(t.name, at->head, head_n) == 0 && t.name[head_n] == '.';
		const bool of_text = at->text && strncmp(t.name, at->text, text_n) == 0 &&
				     strncmp(t.name + text_n, "mtp", 3) != 0;
		if ((layer < 0 ? of_head || of_text : layer < c->n_layers) && counts(&t))
			return err_why(why, -ENOTSUP,
				       "tensor %s has no place in %s: without it the answers would be others "
				       "than the "
				       "model's",
				       t.name, c->arch_name);
	}
	w->n_beyond = beyond < 0 ? 0 : (int)(beyond + 1 - c->n_layers - c->n_predict);
	return 0;
}

void weights_log_unused(const struct model_config *c)
{
	const struct quant *q = &c->quant;
	if (c->unread[0])
		log_info("weights", "keys of the configuration are not read keys=\"%s\"", c->unread);
	if (q->own_activations)
		log_info("weights",
			 "the checkpoint's activation type is not used method=%s type=\"%s\" "
			 "reason=\"activations have the type of --compute\"",
			 q->name, q->activations);
	if (q->own_kv_cache)
		log_info("weights",
			 "kv_cache_scheme is not used method=%s reason=\"the cache has the type of "
			 "--kv-cache-dtype\"",
			 q->name);
}
