#include "formats/ak48.h"

#include "base/err.h"
#include "formats/family.h"
#include "formats/flat.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAGIC = 0x616b3438,
	VERSION = 5,
	HEADER = 256,
	HEAD_MAX = 1 << 12,
	/* Sizes and token ids of Qwen3's vocabulary. */
	QWEN_VOCAB = 151936,
	QWEN_END_OF_TEXT = 151643,
	QWEN_IM_END = 151645,
};

struct header {
	struct flat_sizes s;
	bool shared;
	int32_t head_dim, group;
};

bool ak48_is(const char *path)
{
	uint32_t magic;
	return flat_header(path, &magic, 4) && magic == MAGIC;
}

static int read_header(const char *path, struct header *h, struct why *why)
{
	unsigned char head[HEADER];
	int32_t version;
	if (!flat_header(path, head, sizeof head))
		return err_why(why, -EINVAL, "%s is shorter than a header of \"ak48\", %d bytes", path,
			       HEADER);
	memcpy(&version, head + 4, 4);
	memcpy(&h->s, head + 8, sizeof h->s);
	h->shared = head[36] == 1;
	memcpy(&h->head_dim, head + 37, 4);
	memcpy(&h->group, head + 41, 4);
	if (version != VERSION)
		return err_why(why, -ENOTSUP, "%s: version %" PRId32 " of \"ak48\"; 5, AWQ, is supported",
			       path, version);
	if (!flat_sizes_valid(&h->s) || head[36] > 1 || h->head_dim <= 0 || h->head_dim > HEAD_MAX ||
	    h->head_dim % 2 || h->group <= 0 || (int64_t)h->s.heads * h->head_dim > INT32_MAX / 2 ||
	    h->s.dim % 8 || h->s.hidden % 8 || h->s.kv_heads * h->head_dim % 8)
		return err_why(why, -EINVAL,
			       "%s: its header has sizes that no model has: dim %" PRId32 ", hidden %" PRId32
			       ", layers %" PRId32 ", heads %" PRId32 " and %" PRId32 " of %" PRId32
			       ", vocabulary %" PRId32 ", context %" PRId32 ", group %" PRId32,
			       path, h->s.dim, h->s.hidden, h->s.layers, h->s.heads, h->s.kv_heads,
			       h->head_dim, h->s.vocab, h->s.context, h->group);
	return 0;
}

int ak48_config(const char *path, struct model_config *c, struct why *why)
{
	struct header h;
	int rc = read_header(path, &h, why);
	if (rc)
		return rc;
	flat_config(&h.s, c);
	c->family = family_find_file("ak48");
	snprintf(c->arch_name, sizeof c->arch_name, "%s", c->family->arch);
	c->head_dim = c->rope_dim = h.head_dim;
	c->rms_eps = 1e-6f;
	c->rope_theta = 1000000;
	c->rope_pairs = false;
	c->tied = h.shared;
	c->qk_norm = true;
	c->dtype = CONFIG_F16;
	c->bos = -1;
	c->n_eos = 0;
	if (h.s.vocab == QWEN_VOCAB) {
		c->eos[0] = QWEN_IM_END;
		c->eos[1] = QWEN_END_OF_TEXT;
		c->n_eos = 2;
	}
	model_config_plan(c);
	return 0;
}

struct reader {
	struct flat *f;
	struct weights *w;
	struct header h;
};

static void take_linears(const struct reader *r, const char *name, int n, int k, size_t offset)
{
	const int group = r->h.group < k ? r->h.group : k, groups = (k + group - 1) / group;
	for (int i = 0; i < r->h.s.layers; i++) {
		struct weights_linear *l = (struct weights_linear *)((char *)&r->w->layers[i] + offset);
		*l = (struct weights_linear){.n = n, .k = k, .kind = WEIGHTS_AWQ, .dtype = CONFIG_F16};
		l->group = group;
		snprintf(l->name, sizeof l->name, "layers.%d.%s", i, name);
		l->w = flat_take(r->f, "I32", 4, k, n / 8, "%s.qweight", l->name);
		l->qzeros = flat_take(r->f, "I32", 4, groups, n / 8, "%s.qzeros", l->name);
		l->scales = flat_take(r->f, "F16", 2, groups, n, "%s.scales", l->name);
	}
}

static void take_norms(const struct reader *r, const char *name, int n, size_t offset)
{
	for (int i = 0; i < r->h.s.layers; i++)
		*(struct weights_vec *)((char *)&r->w->layers[i] + offset) = (struct weights_vec){
			flat_take(r->f, "F16", 2, 0, n, "layers.%d.%s", i, name), CONFIG_F16, n};
}

/* Refuse scales that are not finite: the products would be NaN. */
static int check_scales(const char *path, const struct weights_linear *l, struct why *why)
{
	const size_t n = (size_t)((l->k + l->group - 1) / l->group) * (size_t)l->n;
	for (size_t i = 0; i < n; i++) {
		uint16_t f16;
		memcpy(&f16, (const char *)l->scales + i * sizeof f16, sizeof f16);
		if ((f16 & 0x7c00) == 0x7c00)
			return err_why(why, -EINVAL, "%s: tensor %s.scales: value %zu is not a finite number",
				       path, l->name, i);
	}
	return 0;
}

static int check_layers(const char *path, const struct weights *w, struct why *why)
{
	int rc = 0;
	for (int i = 0; i < w->n_layers; i++) {
		const struct weights_layer *l = &w->layers[i];
		const struct weights_linear *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
		for (size_t j = 0; !rc && j < sizeof all / sizeof *all; j++)
			rc = check_scales(path, all[j], why);
	}
	return rc;
}

#define OF(field) offsetof(struct weights_layer, field)

int ak48_weights(const char *path, const struct model_config *c, struct weights **out, struct why *why)
{
	struct reader r;
	int rc = read_header(path, &r.h, why);
	if (rc || (rc = flat_check(path, &r.h.s, r.h.head_dim, r.h.shared, c, why)))
		return rc;
	const struct flat_sizes *s = &r.h.s;
	const int dim = s->dim, q = s->heads * r.h.head_dim, kv = s->kv_heads * r.h.head_dim;
	rc = flat_weights(path, HEADER, s->layers, &r.w, &r.f, why);
	if (rc)
		return rc;
	take_norms(&r, "attention_norm", dim, OF(attn_norm));
	take_norms(&r, "ffn_norm", dim, OF(ffn_norm));
	r.w->norm = (struct weights_vec){flat_take(r.f, "F16", 2, 0, dim, "norm"), CONFIG_F16, dim};
	r.w->embed = (struct weights_vec){flat_take(r.f, "F16", 2, s->vocab, dim, "tok_embeddings.weight"),
					  CONFIG_F16, s->vocab * dim};
	take_linears(&r, "wq", q, dim, OF(q));
	take_linears(&r, "wk", kv, dim, OF(k));
	take_linears(&r, "wv", kv, dim, OF(v));
	take_linears(&r, "wo", dim, q, OF(o));
	take_linears(&r, "w1", s->hidden, dim, OF(gate));
	take_linears(&r, "w2", dim, s->hidden, OF(down));
	take_linears(&r, "w3", s->hidden, dim, OF(up));
	if (!r.h.shared) {
		r.w->head = (struct weights_linear){
			.name = "output", .n = s->vocab, .k = dim, .dtype = CONFIG_F16};
		r.w->head.w = flat_take(r.f, "F16", 2, s->vocab, dim, "output.weight");
	}
	take_norms(&r, "q_norm", r.h.head_dim, OF(q_norm));
	take_norms(&r, "k_norm", r.h.head_dim, OF(k_norm));
	struct weights *w = NULL;
	rc = flat_finish(r.w, &w, why);
	if (!rc && (rc = check_layers(path, w, why)))
		weights_close(w);
	else if (!rc)
		*out = w;
	return rc;
}
