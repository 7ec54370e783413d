#include "formats/llama2c.h"

#include "base/err.h"
#include "formats/flat.h"
#include "formats/kuiper.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x616b3432, HEADER = 256, HEADER0 = sizeof(struct flat_sizes) };

struct header {
	int version;
	struct flat_sizes s;
	bool shared; /* the head is the embedding */
	int group;
};

/* Read the header.  -EINVAL: it has the magic number, but an unknown version or impossible sizes; -ENOENT:
 * not such a file. */
static int read_header(const char *path, struct header *h, struct why *why)
{
	unsigned char head[HEADER];
	uint32_t magic;
	int32_t version;
	*h = (struct header){0};
	if (!flat_header(path, &magic, 4))
		return err_why(why, -ENOENT, "%s is not a file of llama2.c", path);
	if (magic != MAGIC) {
		if (!flat_header(path, &h->s, HEADER0))
			return err_why(why, -ENOENT, "%s is not a file of llama2.c", path);
		h->shared = h->s.vocab > 0;
		if (h->s.vocab < 0 && h->s.vocab > INT32_MIN)
			h->s.vocab = -h->s.vocab;
	} else {
		if (!flat_header(path, head, HEADER))
			return err_why(why, -EINVAL, "%s is shorter than a header of llama2.c, %d bytes",
				       path, HEADER);
		memcpy(&version, head + 4, 4);
		memcpy(&h->s, head + 8, sizeof h->s);
		h->version = version;
		h->shared = head[36] == 1;
		memcpy(&h->group, head + 37, 4);
		if (version != 1 && version != 2)
			return err_why(why, -ENOTSUP,
				       "%s: version %" PRId32
				       " of \"ak42\"; 1 and 2, of llama2.c, are supported",
				       path, version);
		if (head[36] > 1 || (version == 2 && (h->group <= 0 || h->group > h->s.dim)))
			return err_why(why, -EINVAL, "%s: its header has a flag of %d and groups of %d", path,
				       head[36], h->group);
	}
	if (!flat_sizes_valid(&h->s) || h->s.dim % h->s.heads || h->s.dim / h->s.heads % 2)
		return err_why(why, -EINVAL,
			       "%s: its header has sizes that no model has: dim %" PRId32 ", hidden %" PRId32
			       ", layers %" PRId32 ", heads %" PRId32 " and %" PRId32 ", vocabulary %" PRId32
			       ", context %" PRId32,
			       path, h->s.dim, h->s.hidden, h->s.layers, h->s.heads, h->s.kv_heads,
			       h->s.vocab, h->s.context);
	return 0;
}

bool llama2c_is(const char *path)
{
	struct header h;
	uint32_t magic;
	if (flat_header(path, &magic, 4) && magic == MAGIC)
		return true;
	return read_header(path, &h, NULL) == 0 && !kuiper_is(path);
}

int llama2c_config(const char *path, struct model_config *out, struct why *why)
{
	struct header h;
	int rc = read_header(path, &h, why);
	if (rc)
		return rc;
	flat_config(&h.s, out);
	out->tied = h.shared;
	model_config_plan(out);
	return 0;
}

/* ---- tensors ---- */

struct reader {
	struct flat *f;
	struct weights *w;
	const struct header *h;
};

/* Take the linear layers of a kind, in the order of the file. */
static void take_linears(const struct reader *r, const char *name, int n, int k, size_t offset)
{
	for (int i = 0; i < r->h->s.layers; i++) {
		struct weights_linear *l = (struct weights_linear *)((char *)&r->w->layers[i] + offset);
		char full[64];
		snprintf(full, sizeof full, "layers.%d.%s", i, name);
		if (r->h->version == 2) {
			struct flat_q8 q;
			if (!flat_take_q8(r->f, n, k, r->h->group, &q, full))
				flat_linear_q8(r->w, l, &q, n, k, r->h->group, full);
			continue;
		}
		*l = (struct weights_linear){.n = n, .k = k, .dtype = CONFIG_F32};
		snprintf(l->name, sizeof l->name, "%s", full);
		l->w = flat_take(r->f, "F32", 4, n, k, "%s.weight", full);
	}
}

static void take_vec(const struct reader *r, struct weights_vec *v, const char *name)
{
	const int n = r->h->s.dim;
	*v = (struct weights_vec){flat_take(r->f, "F32", 4, 0, n, "%s", name), CONFIG_F32, n};
}

static void take_norms(const struct reader *r, const char *name, size_t offset)
{
	for (int i = 0; i < r->h->s.layers; i++) {
		char full[64];
		snprintf(full, sizeof full, "layers.%d.%s", i, name);
		take_vec(r, (struct weights_vec *)((char *)&r->w->layers[i] + offset), full);
	}
}

#define OF(field) offsetof(struct weights_layer, field)

static void take_attention(const struct reader *r)
{
	const int dim = r->h->s.dim, kv = dim / r->h->s.heads * r->h->s.kv_heads;
	take_linears(r, "wq", dim, dim, OF(q));
	take_linears(r, "wk", kv, dim, OF(k));
	take_linears(r, "wv", kv, dim, OF(v));
	take_linears(r, "wo", dim, dim, OF(o));
}

static void take_ffn(const struct reader *r)
{
	const int dim = r->h->s.dim, hidden = r->h->s.hidden;
	take_linears(r, "w1", hidden, dim, OF(gate));
	take_linears(r, "w2", dim, hidden, OF(down));
	take_linears(r, "w3", hidden, dim, OF(up));
}

/* Take the embedding.  If it is also the head and is Q8_0, the head reads the codes. */
static void take_embedding(const struct reader *r)
{
	const int dim = r->h->s.dim, vocab = r->h->s.vocab;
	r->w->embed = (struct weights_vec){.dtype = CONFIG_F32, .n = vocab * dim};
	if (r->h->version != 2) {
		r->w->embed.data = flat_take(r->f, "F32", 4, vocab, dim, "tok_embeddings.weight");
		return;
	}
	struct flat_q8 q;
	if (flat_take_q8(r->f, vocab, dim, r->h->group, &q, "tok_embeddings"))
		return;
	r->w->embed.data = flat_floats_q8(r->w, &q, vocab, dim, r->h->group);
	if (r->h->shared && dim % r->h->group == 0)
		flat_linear_q8(r->w, &r->w->head, &q, vocab, dim, r->h->group, "tok_embeddings");
}

static void take_head(const struct reader *r)
{
	const int dim = r->h->s.dim, vocab = r->h->s.vocab;
	struct weights_linear *l = &r->w->head;
	struct flat_q8 q;
	if (r->h->shared)
		return;
	if (r->h->version == 2) {
		if (!flat_take_q8(r->f, vocab, dim, r->h->group, &q, "output"))
			flat_linear_q8(r->w, l, &q, vocab, dim, r->h->group, "output");
		return;
	}
	*l = (struct weights_linear){.name = "output", .n = vocab, .k = dim, .dtype = CONFIG_F32};
	l->w = flat_take(r->f, "F32", 4, vocab, dim, "output.weight");
}

static void take_version0(const struct reader *r)
{
	const struct flat_sizes *s = &r->h->s;
	take_embedding(r);
	take_norms(r, "attention_norm", OF(attn_norm));
	take_attention(r);
	take_norms(r, "ffn_norm", OF(ffn_norm));
	take_ffn(r);
	take_vec(r, &r->w->norm, "norm");
	flat_skip(r->f, "F32", 4, s->context, s->dim / s->heads / 2, "freqs_cos");
	flat_skip(r->f, "F32", 4, s->context, s->dim / s->heads / 2, "freqs_sin");
	take_head(r);
}

static void take_version1(const struct reader *r)
{
	take_norms(r, "attention_norm", OF(attn_norm));
	take_norms(r, "ffn_norm", OF(ffn_norm));
	take_vec(r, &r->w->norm, "norm");
	take_embedding(r);
	take_attention(r);
	take_ffn(r);
	take_head(r);
}

int llama2c_weights(const char *path, const struct model_config *c, struct weights **out, struct why *why)
{
	struct header h;
	int rc = read_header(path, &h, why);
	if (rc || (rc = flat_check(path, &h.s, h.s.dim / h.s.heads, h.shared, c, why)))
		return rc;
	struct reader r = {.h = &h};
	rc = flat_weights(path, h.version ? HEADER : HEADER0, h.s.layers, &r.w, &r.f, why);
	if (rc)
		return rc;
	if (h.version)
		take_version1(&r);
	else
		take_version0(&r);
	return flat_finish(r.w, out, why);
}
