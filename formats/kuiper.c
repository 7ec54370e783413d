#include "formats/kuiper.h"

#include "base/err.h"
#include "formats/flat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_MAX = 1 << 14 };

struct header {
	struct flat_sizes s;
	int32_t group;
};

static bool read_header(const char *path, struct header *h, bool *shared)
{
	if (!flat_header(path, h, sizeof *h))
		return false;
	*shared = h->s.vocab > 0;
	if (h->s.vocab < 0 && h->s.vocab > INT32_MIN)
		h->s.vocab = -h->s.vocab;
	return flat_sizes_valid(&h->s) && h->s.dim % h->s.heads == 0 && h->s.dim / h->s.heads % 2 == 0 &&
	       h->group > 0 && h->group <= GROUP_MAX;
}

bool kuiper_is(const char *path)
{
	struct header h;
	bool shared;
	return read_header(path, &h, &shared);
}

int kuiper_config(const char *path, struct model_config *out, struct why *why)
{
	struct header h;
	bool shared;
	if (!read_header(path, &h, &shared))
		return err_why(why, -EINVAL, "%s is not an INT8 file of KuiperLLama", path);
	flat_config(&h.s, out);
	out->tied = shared;
	model_config_plan(out);
	return 0;
}

struct reader {
	struct flat *f;
	struct weights *w;
	struct header h;
};

static void take_linears(const struct reader *r, const char *name, int n, int k, size_t offset)
{
	for (int i = 0; i < r->h.s.layers; i++) {
		struct weights_linear *l = (struct weights_linear *)((char *)&r->w->layers[i] + offset);
		struct flat_q8 q;
		char full[64];
		snprintf(full, sizeof full, "layers.%d.%s", i, name);
		if (!flat_take_q8(r->f, n, k, r->h.group, &q, full))
			flat_linear_q8(r->w, l, &q, n, k, r->h.group, full);
	}
}

static void take_norms(const struct reader *r, const char *name, size_t offset)
{
	const int n = r->h.s.dim;
	for (int i = 0; i < r->h.s.layers; i++)
		*(struct weights_vec *)((char *)&r->w->layers[i] + offset) = (struct weights_vec){
			flat_take(r->f, "F32", 4, 0, n, "layers.%d.%s", i, name), CONFIG_F32, n};
}

#define OF(field) offsetof(struct weights_layer, field)

int kuiper_weights(const char *path, const struct model_config *c, struct weights **out, struct why *why)
{
	struct reader r;
	struct flat_q8 q;
	bool shared;
	if (!read_header(path, &r.h, &shared))
		return err_why(why, -EINVAL, "%s is not an INT8 file of KuiperLLama", path);
	const struct flat_sizes *s = &r.h.s;
	const int dim = s->dim, kv = dim / s->heads * s->kv_heads;
	int rc = flat_check(path, s, dim / s->heads, shared, c, why);
	if (rc || (rc = flat_weights(path, sizeof r.h, s->layers, &r.w, &r.f, why)))
		return rc;
	take_linears(&r, "wq", dim, dim, OF(q));
	take_linears(&r, "wk", kv, dim, OF(k));
	take_linears(&r, "wv", kv, dim, OF(v));
	take_linears(&r, "wo", dim, dim, OF(o));
	take_linears(&r, "w1", s->hidden, dim, OF(gate));
	take_linears(&r, "w2", dim, s->hidden, OF(down));
	take_linears(&r, "w3", s->hidden, dim, OF(up));
	if (!shared && !flat_take_q8(r.f, s->vocab, dim, r.h.group, &q, "output"))
		flat_linear_q8(r.w, &r.w->head, &q, s->vocab, dim, r.h.group, "output");
	r.w->embed = (struct weights_vec){flat_take(r.f, "F32", 4, s->vocab, dim, "tok_embeddings.weight"),
					  CONFIG_F32, s->vocab * dim};
	take_norms(&r, "attention_norm", OF(attn_norm));
	take_norms(&r, "ffn_norm", OF(ffn_norm));
	r.w->norm = (struct weights_vec){flat_take(r.f, "F32", 4, 0, dim, "norm"), CONFIG_F32, dim};
	return flat_finish(r.w, out, why);
}
