#include "formats/shard.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Vocabularies are cut at multiples of this if they are large enough: AWQ packs 8 outputs. */
enum { VOCAB_UNIT = 8 };

static size_t dtype_bytes(enum config_dtype t)
{
	return t == CONFIG_F32 ? 4 : 2;
}

/* ---- possible cuts ---- */

/* Return whether inputs are cut between groups.  A group of whole rows has one scale per output, and can be
 * cut anywhere. */
static bool groups_whole(const struct weights_linear *l, int n_ranks)
{
	const int k = l->k / n_ranks;
	if (l->kind == WEIGHTS_CODES)
		return n_ranks == 1 || (codes_can_cut(&l->codes, 0, k) && !l->codes.perm);
	return l->kind != WEIGHTS_AWQ || l->group >= l->k || k % l->group == 0;
}

static bool words_whole(const struct weights_linear *l, int n_ranks)
{
	return l->kind != WEIGHTS_AWQ || l->n / n_ranks % 8 == 0;
}

static int refuse_groups(const struct weights_linear *l, int n_ranks, struct why *why)
{
	if (l->kind == WEIGHTS_CODES && l->codes.perm)
		return err_why(why, -ENOTSUP,
			       "%s has its inputs in an order of its own (act-order), which cannot be cut",
			       l->name);
	return err_why(why, -EINVAL,
		       "the %d inputs of %s cannot be cut into %d parts of whole groups of %d%s", l->k,
		       l->name, n_ranks, l->kind == WEIGHTS_CODES ? l->codes.super : l->group,
		       l->kind == WEIGHTS_CODES ? "" : " (AWQ)");
}

/* Return whether KV heads are split evenly, or each is on the same number of ranks. */
static bool kv_even(int n_kv_heads, int n_ranks)
{
	return n_kv_heads % n_ranks == 0 || n_ranks % n_kv_heads == 0;
}

static int check_outputs(const struct weights_linear *l, int n_ranks, struct why *why)
{
	if (words_whole(l, n_ranks))
		return 0;
	return err_why(why, -EINVAL,
		       "the %d outputs of %s cannot be cut into %d parts of whole words of 8 (AWQ)", l->n,
		       l->name, n_ranks);
}

static int check_inputs(const struct weights_linear *l, int n_ranks, struct why *why)
{
	return groups_whole(l, n_ranks) ? 0 : refuse_groups(l, n_ranks, why);
}

/* Check a feed-forward layer; nothing if there is none. */
static int check_ffn(const struct weights_linear *gate, const struct weights_linear *up,
		     const struct weights_linear *down, int n_ranks, struct why *why)
{
	int rc = gate->n ? check_outputs(gate, n_ranks, why) : 0;
	if (!rc && up->n && !(rc = check_outputs(up, n_ranks, why)))
		rc = check_inputs(down, n_ranks, why);
	return rc;
}

static int check_linears(const struct weights *w, int n_ranks, bool ep, struct why *why)
{
	int rc = 0;
	for (int i = 0; !rc && i < w->n_layers; i++) {
		const struct weights_layer *l = &w->layers[i];
		if ((rc = check_outputs(&l->q, n_ranks, why)) || (rc = check_inputs(&l->o, n_ranks, why)) ||
		    (rc = check_ffn(&l->gate, &l->up, &l->down, n_ranks, why)))
			return rc;
		for (int e = 0; !rc && !ep && e < l->n_experts; e++)
			rc = check_ffn(&l->experts[e].gate, &l->experts[e].up, &l->experts[e].down, n_ranks,
				       why);
	}
	return rc;
}

/* Check that a layer's attention and FFN divide evenly. */
static int check_layer(const struct model_config *c, const struct weights *w, int i, int n, struct why *why)
{
	const struct config_layer *l = &c->layers[i];
	if (l->heads % n)
		return err_why(why, -EINVAL, "num_attention_heads is %d, not a multiple of %d", l->heads, n);
	if (!kv_even(l->kv_heads, n))
		return err_why(why, -EINVAL,
			       "num_key_value_heads is %d, neither a multiple nor a divisor of %d",
			       l->kv_heads, n);
	/* If q can be cut, so can k and v, unless a rank's KV heads are not whole words of 8. */
	if (l->dim * (l->kv_heads > n ? l->kv_heads / n : 1) % 8 && w->layers[i].k.kind == WEIGHTS_AWQ)
		return err_why(why, -EINVAL, "head_dim is %d, not a multiple of 8 (AWQ)", l->dim);
	if (l->inter % n)
		return err_why(why, -EINVAL, "%s is %d, not a multiple of %d",
			       l->sparse ? "the shared expert's intermediate size" : "intermediate_size",
			       l->inter, n);
	return 0;
}

static int check_experts(const struct model_config *c, int n, bool ep, struct why *why)
{
	bool sparse = false;
	for (int i = 0; i < c->n_layers; i++)
		sparse |= c->layers[i].sparse;
	if (sparse && ep && c->experts.n < n)
		return err_why(why, -EINVAL, "there are only %d experts, and some ranks would have none",
			       c->experts.n);
	if (sparse && !ep && c->experts.intermediate % n)
		return err_why(why, -EINVAL, "an expert's intermediate size is %d, not a multiple of %d",
			       c->experts.intermediate, n);
	return 0;
}

static int check(const struct model_config *c, const struct weights *w, int n, bool ep, struct why *why)
{
	int rc = 0;
	for (int i = 0; !rc && i < c->n_layers; i++)
		rc = check_layer(c, w, i, n, why);
	if (rc || (rc = check_experts(c, n, ep, why)))
		return rc;
	if (c->n_vocab < n)
		return err_why(why, -EINVAL, "vocab_size is %d, less than %d", c->n_vocab, n);
	return check_linears(w, n, ep, why);
}

static void add_possible(const struct model_config *c, const struct weights *w, bool ep, struct why *why)
{
	const char *before = "; possible: --tp ";
	for (int n = 1 + ep; n <= SHARD_RANKS_MAX; n++) {
		if (check(c, w, n, ep, NULL))
			continue;
		err_append(why, 0, "%s%d", before, n);
		before = ", ";
	}
}

/* ---- shards ---- */

static void cut_vocab(struct shard *s, int n_vocab)
{
	const int unit = n_vocab / s->n_ranks >= VOCAB_UNIT ? VOCAB_UNIT : 1;
	for (int r = 0; r < s->n_ranks; r++)
		s->vocab[r] = (int)((int64_t)n_vocab * r / s->n_ranks / unit * unit);
	s->vocab[s->n_ranks] = n_vocab;
	for (int r = 0; r < s->n_ranks; r++)
		s->widths[r] = s->vocab[r + 1] - s->vocab[r];
}

int shard_init(struct shard *s, const struct model_config *c, const struct weights *w,
	       struct shard_rank which, struct why *why)
{
	const int rank = which.rank, n_ranks = which.n_ranks;
	if (which.ep && n_ranks < 2)
		return err_why(
			why, -EINVAL,
			"--ep deals a mixture's experts out between ranks: give --tp N, or leave it out");
	if (which.ep && !c->experts.n)
		return err_why(why, -EINVAL, "--ep: the model is no mixture of experts; leave it out");
	if (n_ranks < 1 || n_ranks > SHARD_RANKS_MAX || rank < 0 || rank >= n_ranks)
		return err_why(why, -EINVAL, "rank %d of %d: at most %d are possible", rank, n_ranks,
			       SHARD_RANKS_MAX);
	int rc = n_ranks > 1 ? check(c, w, n_ranks, which.ep, why) : 0;
	if (rc) {
		err_prefix(why, rc, "--tp %d%s", n_ranks, which.ep ? " --ep" : "");
		add_possible(c, w, which.ep, why);
		return rc;
	}
	*s = (struct shard){.rank = rank, .n_ranks = n_ranks, .ep = which.ep};
	cut_vocab(s, c->n_vocab);
	return 0;
}

struct config_layer shard_layer(const struct shard *s, const struct config_layer *whole)
{
	struct config_layer l = *whole;
	l.heads = whole->heads / s->n_ranks;
	l.head0 = s->rank * l.heads;
	l.kv_heads = whole->kv_heads > s->n_ranks ? whole->kv_heads / s->n_ranks : 1;
	l.kv_head0 = (int)((int64_t)s->rank * whole->kv_heads / s->n_ranks);
	l.inter /= s->n_ranks;
	return l;
}

void shard_config(const struct shard *s, const struct model_config *whole, struct model_config *part)
{
	*part = *whole;
	for (int i = 0; i < whole->n_layers; i++)
		part->layers[i] = shard_layer(s, &whole->layers[i]);
	part->experts.intermediate /= s->ep ? 1 : s->n_ranks;
	part->experts.shared /= s->n_ranks;
}

struct shard_cut shard_cut(const struct shard *s, const struct config_layer *plan, enum shard_of of,
			   const struct weights_linear *l)
{
	switch (of) {
	case SHARD_Q:
		return (struct shard_cut){plan->head0 * plan->dim, plan->heads * plan->dim, 0, l->k};
	case SHARD_KV:
		return (struct shard_cut){plan->kv_head0 * plan->dim, plan->kv_heads * plan->dim, 0, l->k};
	case SHARD_O:
		return (struct shard_cut){0, l->n, plan->head0 * plan->dim, plan->heads * plan->dim};
	case SHARD_FFN:
		return (struct shard_cut){s->rank * (l->n / s->n_ranks), l->n / s->n_ranks, 0, l->k};
	case SHARD_DOWN:
		return (struct shard_cut){0, l->n, s->rank * (l->k / s->n_ranks), l->k / s->n_ranks};
	case SHARD_WHOLE:
		return (struct shard_cut){0, l->n, 0, l->k};
	case SHARD_HEAD:
		break;
	}
	return (struct shard_cut){s->vocab[s->rank], s->widths[s->rank], 0, l->k};
}

bool shard_has_expert(const struct shard *s, int e)
{
	return !s->ep || e % s->n_ranks == s->rank;
}

int shard_n_experts(const struct shard *s, int n_experts)
{
	return s->ep ? (n_experts - s->rank + s->n_ranks - 1) / s->n_ranks : n_experts;
}

enum shard_of shard_of_gateup(const struct shard *s)
{
	return s->ep ? SHARD_WHOLE : SHARD_FFN;
}

enum shard_of shard_of_down(const struct shard *s)
{
	return s->ep ? SHARD_WHOLE : SHARD_DOWN;
}

/* ---- size ---- */

static double linear_bytes(const struct weights_linear *l)
{
	const double values = (double)l->n * l->k;
	if (!l->w)
		return 0;
	if (l->kind == WEIGHTS_CODES)
		return (double)l->bytes;
	return l->kind == WEIGHTS_AWQ ? values / 2 + 2.5 * l->n * ((double)l->k / l->group)
				      : values * (double)dtype_bytes(l->dtype);
}

int64_t shard_linear_bytes(const struct weights_linear *l)
{
	return (int64_t)linear_bytes(l);
}

int64_t shard_experts_bytes(const struct weights_layer *l, const bool *but)
{
	int64_t n = 0;
	for (int e = 0; e < l->n_experts; e++)
		if (!but || !but[e])
			n += shard_linear_bytes(&l->experts[e].gate) + shard_linear_bytes(&l->experts[e].up) +
			     shard_linear_bytes(&l->experts[e].down);
	return n;
}

static double part_bytes(const struct weights_linear *l, struct shard_cut c)
{
	return linear_bytes(l) * ((double)c.n / l->n) * ((double)c.k / l->k);
}

/* ---- copying ---- */

/* Copy n_rows rows of `bytes`, `stride` apart, to out; return the end of the copy. */
static unsigned char *copy_rows(unsigned char *out, const void *from, size_t stride, size_t n_rows,
				size_t bytes)
{
	for (size_t i = 0; i < n_rows; i++, out += bytes)
		memcpy(out, (const unsigned char *)from + i * stride, bytes);
	return out;
}

static const void *at(const void *p, size_t bytes)
{
	return (const unsigned char *)p + bytes;
}

/* Cut a dense [n, k]: rows are contiguous, columns are copied. */
static void cut_dense(const struct weights_linear *w, struct shard_cut c, struct weights_linear *out,
		      void **copy)
{
	const size_t es = dtype_bytes(w->dtype), row = (size_t)w->k * es;
	const void *from = at(w->w, (size_t)c.n0 * row + (size_t)c.k0 * es);
	out->w = from;
	if (c.k == w->k)
		return;
	out->w = *copy = xmalloc((size_t)c.n * (size_t)c.k * es);
	copy_rows(*copy, from, row, (size_t)c.n, (size_t)c.k * es);
}

/* Cut AWQ: qweight [k, n/8] words, qzeros [groups, n/8] words, scales [groups, n] halves. */
static void cut_awq(const struct weights_linear *w, struct shard_cut c, struct weights_linear *out,
		    void **copy)
{
	const size_t words = (size_t)w->n / 8 * 4, halves = (size_t)w->n * 2;
	const size_t some = (size_t)c.n / 8 * 4, k = (size_t)c.k;
	const bool whole_rows = w->group >= w->k;
	const size_t g0 = whole_rows ? 0 : (size_t)(c.k0 / w->group);
	const size_t groups = whole_rows ? 1 : (k + (size_t)w->group - 1) / (size_t)w->group;
	const void *qw = at(w->w, (size_t)c.k0 * words + (size_t)c.n0 / 8 * 4);
	const void *qz = at(w->qzeros, g0 * words + (size_t)c.n0 / 8 * 4);
	const void *sc = at(w->scales, g0 * halves + (size_t)c.n0 * 2);
	out->group = whole_rows ? c.k : w->group;
	out->w = qw;
	out->qzeros = qz;
	out->scales = sc;
	if (c.n == w->n)
		return; /* rows of all three are contiguous */
	unsigned char *p = *copy = xmalloc((k + groups) * some + groups * (size_t)c.n * 2);
	out->w = p;
	out->qzeros = p = copy_rows(p, qw, words, k, some);
	out->scales = p = copy_rows(p, qz, words, groups, some);
	copy_rows(p, sc, halves, groups, (size_t)c.n * 2);
}

void shard_linear(const struct shard *s, const struct weights_linear *whole, struct shard_cut cut,
		  struct weights_linear *out, void **copy)
{
	assert(cut.n0 >= 0 && cut.n > 0 && cut.n0 + cut.n <= whole->n);
	assert(cut.k0 >= 0 && cut.k > 0 && cut.k0 + cut.k <= whole->k);
	*copy = NULL;
	*out = *whole;
	out->n = cut.n;
	out->k = cut.k;
	out->bytes = (size_t)part_bytes(whole, cut);
	if (whole->kind == WEIGHTS_AWQ)
		cut_awq(whole, cut, out, copy);
	else if (whole->kind == WEIGHTS_CODES)
		codes_cut(&out->codes, &whole->codes, cut.n0, cut.n, cut.k0, cut.k);
	else
		cut_dense(whole, cut, out, copy);
	if (cut.k < whole->k && s->rank > 0)
		out->bias = (struct weights_vec){0};
	if (!out->bias.data)
		return;
	out->bias.data = at(whole->bias.data, (size_t)cut.n0 * dtype_bytes(whole->bias.dtype));
	out->bias.n = cut.n;
}

struct weights_vec shard_embed(const struct shard *s, const struct model_config *c, const struct weights *w)
{
	const size_t row = (size_t)c->hidden * dtype_bytes(w->embed.dtype);
	struct weights_vec v = w->embed;
	v.data = v.data ? at(v.data, (size_t)s->vocab[s->rank] * row) : NULL;
	v.n = s->widths[s->rank] * c->hidden;
	return v;
}

static double cut_bytes(const struct shard *s, const struct config_layer *plan, enum shard_of of,
			const struct weights_linear *l)
{
	return l->w ? part_bytes(l, shard_cut(s, plan, of, l)) : 0;
}

static double layer_bytes(const struct shard *s, const struct config_layer *whole,
			  const struct weights_layer *l)
{
	const struct config_layer plan = shard_layer(s, whole);
	double sum = cut_bytes(s, &plan, SHARD_Q, &l->q) + cut_bytes(s, &plan, SHARD_KV, &l->k) +
		     cut_bytes(s, &plan, SHARD_KV, &l->v) + cut_bytes(s, &plan, SHARD_O, &l->o) +
		     cut_bytes(s, &plan, SHARD_FFN, &l->gate) + cut_bytes(s, &plan, SHARD_FFN, &l->up) +
		     cut_bytes(s, &plan, SHARD_DOWN, &l->down) + linear_bytes(&l->router) +
		     linear_bytes(&l->shared_gate);
	for (int e = 0; e < l->n_experts; e++) {
		const struct weights_expert *x = &l->experts[e];
		if (shard_has_expert(s, e))
			sum += cut_bytes(s, &plan, shard_of_gateup(s), &x->gate) +
			       cut_bytes(s, &plan, shard_of_gateup(s), &x->up) +
			       cut_bytes(s, &plan, shard_of_down(s), &x->down);
	}
	return sum;
}

int64_t shard_bytes(const struct shard *s, const struct model_config *c, const struct weights *w)
{
	if (s->n_ranks == 1)
		return w->bytes;
	double sum = w->embed_codes.w ? cut_bytes(s, NULL, SHARD_HEAD, &w->embed_codes)
				      : (double)w->embed.n * (double)dtype_bytes(w->embed.dtype) *
						s->widths[s->rank] / c->n_vocab;
	if (w->head.w != w->embed_codes.w)
		sum += cut_bytes(s, NULL, SHARD_HEAD, &w->head);
	for (int i = 0; i < w->n_layers; i++)
		sum += layer_bytes(s, &c->layers[i], &w->layers[i]);
	return (int64_t)sum;
}
