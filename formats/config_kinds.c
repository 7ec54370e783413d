/* config_kinds.c - cuts the layers of a model into kinds of layers (base/kinds.h).
 *
 * Every block has room for K and V of n_layers layers, so that all kinds share one pool.  Layers with the
 * same window are cut into kinds of that many; the last kind of a window may have fewer, and wastes the rest:
 *
 *   Gemma 3 27B   10 full layers, 52 with a window of 1,024: n_layers 11, 1 + 5 kinds, 4 of 66 places unused
 *   gpt-oss-20b   12 full layers, 12 with a window of 128: n_layers 12, 1 + 1 kinds, none unused */
#include "formats/config.h"

#include <string.h>

/* n_layers is chosen for sequences of this many windows: shorter ones waste more in small kinds, longer ones
 * in kinds of full attention. */
enum { TYPICAL_WINDOWS = 4 };
/* A cut must save at least this part of the memory. */
enum { LEAST_SAVED = 16 };

/* Layers of one window. */
struct group {
	uint32_t window; /* 0: none */
	int n;
};

static uint32_t window_of(const struct config_layer *l, uint32_t max_context)
{
	return l->window > 0 && (uint32_t)l->window < max_context ? (uint32_t)l->window : 0;
}

/* Find the groups, that of full attention first.  Return how many there are, or KINDS_MAX + 1: too many. */
static int find_groups(const struct model_config *c, uint32_t max_context, struct group *g)
{
	int n = 1;
	memset(g, 0, (KINDS_MAX + 1) * sizeof *g);
	for (int i = 0; i < c->n_layers; i++) {
		const uint32_t window = window_of(&c->layers[i], max_context);
		int at = 0;
		while (at < n && g[at].window != window)
			at++;
		if (at == n && n++ == KINDS_MAX)
			return KINDS_MAX + 1;
		g[at].window = window;
		g[at].n++;
	}
	return n;
}

static int kinds_of(const struct group *g, int n_layers)
{
	return (g->n + n_layers - 1) / n_layers;
}

/* Return the layers times positions that a sequence of `typical` tokens keeps; 0: that makes too many
 * kinds. */
static int64_t cost(const struct group *g, int n, int n_layers, uint32_t typical)
{
	int64_t sum = 0;
	int n_kinds = 0;
	for (int i = 0; i < n; i++) {
		n_kinds += kinds_of(&g[i], n_layers);
		sum += (int64_t)kinds_of(&g[i], n_layers) * n_layers * (g[i].window ? g[i].window : typical);
	}
	return n_kinds <= KINDS_MAX ? sum : 0;
}

void model_config_kinds(const struct model_config *c, uint32_t max_context, struct config_kinds *out)
{
	struct group g[KINDS_MAX + 1];
	const int n = find_groups(c, max_context, g);
	uint32_t typical = 0, first[KINDS_MAX + 1] = {0}, seen[KINDS_MAX + 1] = {0};
	memset(out, 0, sizeof *out);
	out->kinds = KINDS_ONE;
	out->n_layers = c->n_layers;
	for (int i = 0; i < c->n_layers; i++)
		out->place[i] = (uint16_t)i;
	for (int i = 0; i < n && n <= KINDS_MAX; i++)
		typical = g[i].window > typical ? g[i].window : typical;
	if (typical == 0)
		return;
	typical = typical < max_context / TYPICAL_WINDOWS ? TYPICAL_WINDOWS * typical : max_context;
	int64_t least = (int64_t)c->n_layers * typical;
	least -= least / LEAST_SAVED;
	int best = 0;
	for (int layers = 1; layers <= c->n_layers; layers++) {
		const int64_t x = cost(g, n, layers, typical);
		if (x && x <= least) {
			least = x;
			best = layers;
		}
	}
	if (best == 0)
		return;
	out->n_layers = best;
	out->kinds.n = 0;
	for (int i = 0; i < n; i++) {
		first[i] = out->kinds.n;
		for (int k = 0; k < kinds_of(&g[i], best); k++)
			out->kinds.window[out->kinds.n++] = g[i].window;
	}
	for (int i = 0; i < c->n_layers; i++) {
		int at = 0;
		while (g[at].window != window_of(&c->layers[i], max_context))
			at++;
		out->kind[i] = (uint8_t)(first[at] + seen[at] / (uint32_t)best);
		out->place[i] = (uint16_t)(seen[at]++ % (uint32_t)best);
	}
}
