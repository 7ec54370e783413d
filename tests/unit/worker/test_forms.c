/* The forms of decoder that families of models have, each as a tiny random model: norms, blocks, FFNs,
 * experts, biases, positions and factors.  The decoder's logits are compared with a reference in double
 * precision, in every mode of the CPU, or on the device that QUERN_TEST_DEVICE names. */
#include "base/alloc.h"
#include "worker/model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	LAYERS = 2,
	H = 64,
	HEADS = 4,
	KV_HEADS = 2,
	D = 16,
	I = 96,
	V = 80,
	T = 24,
	CONTEXT = 32,
	BLOCK = 16
};
enum { EXPERTS = 4, CHOSEN = 2, EXPERT_I = 32 };
enum { Q = HEADS * D, KV = KV_HEADS * D, FIRST = 10 /* rows of the first of two steps */ };

/* ---- a random model ---- */

struct tiny {
	struct model_config c;
	struct weights w;
	struct weights_layer layers[LAYERS];
	struct weights_expert experts[LAYERS][EXPERTS];
};

static unsigned seed;

/* Return a number of about -1.7 to 1.7 that BF16 has exactly. */
static float random_number(void)
{
	seed = seed * 1664525u + 1013904223u;
	return (float)((int)(seed >> 24) - 128) * 0x1.bp-7f;
}

static struct weights_vec vec(int n, float center, float spread)
{
	float *f = xmalloc((size_t)n * sizeof *f);
	for (int i = 0; i < n; i++)
		f[i] = center + spread * random_number();
	return (struct weights_vec){f, CONFIG_F32, n};
}

static struct weights_vec maybe(bool there, int n, float center, float spread)
{
	return there ? vec(n, center, spread) : (struct weights_vec){0};
}

static struct weights_linear linear(const char *name, int n, int k, bool bias)
{
	struct weights_linear l = {.n = n, .k = k, .dtype = CONFIG_F32, .bias = maybe(bias, n, 0, 0.3f)};
	l.w = vec(n * k, 0, 1 / sqrtf((float)k)).data;
	strcpy(l.name, name);
	return l;
}

static void make_ffn(const struct model_config *c, struct weights_layer *l)
{
	l->up = linear("up", I, H, c->mlp_bias);
	l->down = linear("down", H, I, c->mlp_bias);
	if (!c->ffn_plain)
		l->gate = linear("gate", I, H, c->mlp_bias);
}

static void make_experts(struct weights_layer *l, struct weights_expert *experts)
{
	l->router = linear("router", EXPERTS, H, false);
	l->experts = experts;
	l->n_experts = EXPERTS;
	for (int e = 0; e < EXPERTS; e++)
		experts[e] = (struct weights_expert){.gate = linear("expert.gate", EXPERT_I, H, false),
						     .up = linear("expert.up", EXPERT_I, H, false),
						     .down = linear("expert.down", H, EXPERT_I, false)};
}

static struct tiny *make(const struct model_config *form)
{
	struct tiny *m = xcalloc(1, sizeof *m);
	struct model_config *c = &m->c;
	seed = 1;
	*c = *form;
	strcpy(c->arch_name, "Tiny");
	c->n_layers = LAYERS;
	c->hidden = H;
	c->n_vocab = V;
	c->intermediate = I;
	c->n_heads = HEADS;
	c->n_kv_heads = KV_HEADS;
	c->head_dim = D;
	c->max_position = CONTEXT;
	c->rms_eps = 1e-5f;
	c->rope_theta = 100;
	c->rope_dim = D;
	c->dtype = CONFIG_BF16;
	if (c->layers[0].sparse)
		c->experts = (struct config_experts){.n = EXPERTS,
						     .n_chosen = CHOSEN,
						     .intermediate = EXPERT_I,
						     .normalize = true,
						     .scale = 1};
	model_config_plan(c);
	const bool bias = c->norm_bias, each = c->qk_norm == QK_NORM_EACH || c->qk_norm == QK_NORM_ROWS;
	const bool pre = c->block != BLOCK_POST, two = pre && c->block != BLOCK_PARALLEL;
	for (int i = 0; i < LAYERS; i++) {
		const int q = each ? Q : D, k = each ? KV : D;
		m->layers[i] = (struct weights_layer){
			.attn_norm = maybe(pre, H, 1, 0.2f),
			.attn_norm_bias = maybe(pre && bias, H, 0, 0.2f),
			.ffn_norm = maybe(two, H, 1, 0.2f),
			.ffn_norm_bias = maybe(two && bias, H, 0, 0.2f),
			.attn_post = maybe(!pre, H, 1, 0.2f),
			.attn_post_bias = maybe(!pre && bias, H, 0, 0.2f),
			.ffn_post = maybe(!pre, H, 1, 0.2f),
			.ffn_post_bias = maybe(!pre && bias, H, 0, 0.2f),
			.q_norm = maybe(c->qk_norm, q, 1, 0.2f),
			.k_norm = maybe(c->qk_norm, k, 1, 0.2f),
			.q_norm_bias = maybe(c->qk_norm_bias, q, 0, 0.2f),
			.k_norm_bias = maybe(c->qk_norm_bias, k, 0, 0.2f),
			.q = linear("q", Q, H, c->qkv_bias),
			.k = linear("k", KV, H, c->qkv_bias),
			.v = linear("v", KV, H, c->qkv_bias),
			.o = linear("o", H, Q, c->o_bias),
		};
		if (c->layers[i].sparse)
			make_experts(&m->layers[i], m->experts[i]);
		else
			make_ffn(c, &m->layers[i]);
		if (c->act == ACT_XIELU) {
			float *args = xmalloc(4 * sizeof *args);
			memcpy(args, (float[]){0.8f + (float)i, 0.9f, 0.5f, -1e-6f}, 4 * sizeof *args);
			m->layers[i].act_args = (struct weights_vec){args, CONFIG_F32, 4};
		}
	}
	m->w = (struct weights){
		.embed = vec(V * H, 0, 1),
		.norm = vec(H, 1, 0.2f),
		.norm_bias = maybe(bias, H, 0, 0.2f),
		.positions = maybe(c->learned, CONTEXT * H, 0, 1),
		.head = linear("head", V, H, c->head_bias),
		.layers = m->layers,
		.n_layers = LAYERS,
	};
	return m;
}

static void drop(struct tiny *m)
{
	for (int i = 0; i < LAYERS; i++) {
		struct weights_layer *l = &m->layers[i];
		struct weights_linear *all[] = {&l->q,    &l->k,  &l->v,    &l->o,
						&l->gate, &l->up, &l->down, &l->router};
		for (int e = 0; e < l->n_experts; e++) {
			free((void *)l->experts[e].gate.w);
			free((void *)l->experts[e].up.w);
			free((void *)l->experts[e].down.w);
		}
		const struct weights_vec vecs[] = {
			l->attn_norm,      l->attn_norm_bias, l->ffn_norm, l->ffn_norm_bias, l->attn_post,
			l->attn_post_bias, l->ffn_post,       l->q_norm,   l->ffn_post_bias, l->k_norm,
			l->q_norm_bias,    l->k_norm_bias,    l->act_args};
		for (size_t j = 0; j < sizeof all / sizeof *all; j++) {
			free((void *)all[j]->w);
			free((void *)all[j]->bias.data);
		}
		for (size_t j = 0; j < sizeof vecs / sizeof *vecs; j++)
			free((void *)vecs[j].data);
	}
	free((void *)m->w.embed.data);
	free((void *)m->w.norm.data);
	free((void *)m->w.norm_bias.data);
	free((void *)m->w.positions.data);
	free((void *)m->w.head.w);
	free((void *)m->w.head.bias.data);
	free(m);
}

/* ---- the reference ---- */

static void apply(const struct weights_linear *l, const double *in, double *out)
{
	for (int n = 0; n < l->n; n++) {
		out[n] = l->bias.data ? (double)((const float *)l->bias.data)[n] : 0;
		for (int k = 0; k < l->k; k++)
			out[n] += (double)((const float *)l->w)[n * l->k + k] * in[k];
	}
}

/* Norm n values with the weights from `at` on; out may be in.  Without weights: a copy. */
static void norm(const struct model_config *c, const struct weights_vec *w, const struct weights_vec *b,
		 int at, int n, const double *in, double *out)
{
	const float *weight = w->data, *bias = b->data;
	double mean = 0, squares = 0;
	for (int i = 0; c->norm == CONFIG_NORM_LAYER && i < n; i++)
		mean += in[i] / n;
	for (int i = 0; i < n; i++)
		squares += (in[i] - mean) * (in[i] - mean) / n;
	for (int i = 0; i < n; i++) {
		out[i] = !weight ? in[i]
				 : (in[i] - mean) / sqrt(squares + 1e-5) * (double)weight[at + i] +
					   (bias ? (double)bias[at + i] : 0);
	}
}

static void norm_heads(const struct model_config *c, const struct weights_vec *w, const struct weights_vec *b,
		       int heads, double *x)
{
	if (c->qk_norm == QK_NORM_ROWS)
		norm(c, w, b, 0, heads * D, x, x);
	else
		for (int h = 0; c->qk_norm && h < heads; h++)
			norm(c, w, b, c->qk_norm == QK_NORM_EACH ? h * D : 0, D, x + h * D, x + h * D);
}

static void clip(const struct model_config *c, double *x, int n)
{
	for (int i = 0; c->qkv_clip > 0 && i < n; i++)
		x[i] = fmax(-(double)c->qkv_clip, fmin((double)c->qkv_clip, x[i]));
}

static void rotate(const struct model_config *c, int layer, int pos, int heads, double *x)
{
	for (int h = 0; c->layers[layer].rope != LAYER_ROPE_NONE && h < heads; h++)
		for (int i = 0; i < D / 2; i++) {
			const int a = h * D + (c->rope_pairs ? 2 * i : i),
				  b = h * D + (c->rope_pairs ? 2 * i + 1 : i + D / 2);
			const double angle = (c->rope_reversed ? -pos : pos) / pow(100, 2.0 * i / D),
				     u = x[a], v = x[b];
			x[a] = u * cos(angle) - v * sin(angle);
			x[b] = v * cos(angle) + u * sin(angle);
		}
}

/* Compute q and k of a row: norm, clip and rotation, or the norm last. */
static void place(const struct model_config *c, const struct weights_vec *w, const struct weights_vec *b,
		  int layer, int pos, int heads, double *x)
{
	if (!c->qk_norm_after)
		norm_heads(c, w, b, heads, x);
	clip(c, x, heads * D);
	rotate(c, layer, pos, heads, x);
	if (c->qk_norm_after)
		norm_heads(c, w, b, heads, x);
}

struct kv {
	double k[T][KV], v[T][KV];
};

static void attend(const struct model_config *c, const struct weights_layer *l, int layer, int pos,
		   const double *in, struct kv *kv, double *out)
{
	double q[Q], att[Q];
	const double scale = c->attn_scale > 0 ? (double)c->attn_scale : 1 / sqrt(D);
	apply(&l->q, in, q);
	apply(&l->k, in, kv->k[pos]);
	apply(&l->v, in, kv->v[pos]);
	place(c, &l->q_norm, &l->q_norm_bias, layer, pos, HEADS, q);
	place(c, &l->k_norm, &l->k_norm_bias, layer, pos, KV_HEADS, kv->k[pos]);
	clip(c, kv->v[pos], KV);
	for (int i = 0; c->q_scale_beta > 0 && i < Q; i++)
		q[i] *= 1 + (double)c->q_scale_beta * log(1 + floor((double)pos / c->q_scale_floor));
	for (int h = 0; h < HEADS; h++) {
		const int g = h / (HEADS / KV_HEADS) * D;
		const double slope = c->alibi_max > 0 ? exp2(-(double)c->alibi_max * (h + 1) / HEADS) : 0;
		double score[T], most = -INFINITY, sum = 0;
		for (int t = 0; t <= pos; t++) {
			score[t] = 0;
			for (int i = 0; i < D; i++)
				score[t] += q[h * D + i] * kv->k[t][g + i] * scale;
			score[t] += slope * (t - pos) * (c->alibi_scaled ? scale : 1);
			most = fmax(most, score[t]);
		}
		for (int t = 0; t <= pos; t++)
			sum += score[t] = exp(score[t] - most);
		for (int i = 0; i < D; i++) {
			att[h * D + i] = 0;
			for (int t = 0; t <= pos; t++)
				att[h * D + i] += score[t] / sum * kv->v[t][g + i];
		}
	}
	apply(&l->o, att, out);
}

static double activated(const struct model_config *c, const struct weights_layer *l, double g)
{
	const float *a = l->act_args.data;
	switch (c->act) {
	case ACT_SILU:
		return g / (1 + exp(-g));
	case ACT_GELU_TANH:
		return 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g)));
	case ACT_GELU_SIGMOID:
		return g / (1 + exp(-1.702 * g));
	case ACT_GELU:
		return 0.5 * g * (1 + erf(g / sqrt(2)));
	case ACT_RELU:
		return fmax(g, 0);
	case ACT_RELU2:
		return fmax(g, 0) * fmax(g, 0);
	case ACT_XIELU:
		break;
	}
	return g > 0 ? (double)a[0] * g * g + (double)a[2] * g
		     : (double)a[1] * (expm1(fmin(g, (double)a[3])) - g) + (double)a[2] * g;
}

/* The experts with the largest softmax of the router's outputs, weighed by their shares of its sum. */
static void experts(const struct model_config *c, const struct weights_layer *l, const double *in,
		    double *out)
{
	double z[EXPERTS], share[EXPERTS] = {0}, sum = 0;
	apply(&l->router, in, z);
	for (int i = 0; i < CHOSEN; i++) {
		int best = -1;
		for (int e = 0; e < EXPERTS; e++)
			if (share[e] == 0 && (best < 0 || z[e] > z[best]))
				best = e;
		sum += share[best] = exp(z[best]);
	}
	memset(out, 0, H * sizeof *out);
	for (int e = 0; e < EXPERTS; e++) {
		double gate[EXPERT_I], up[EXPERT_I], y[H];
		apply(&l->experts[e].gate, in, gate);
		apply(&l->experts[e].up, in, up);
		for (int i = 0; i < EXPERT_I; i++)
			up[i] *= activated(c, l, gate[i]);
		apply(&l->experts[e].down, up, y);
		for (int i = 0; i < H; i++)
			out[i] += share[e] / sum * y[i];
	}
}

static void feed_forward(const struct model_config *c, const struct weights_layer *l, const double *in,
			 double *out)
{
	double gate[I], up[I];
	if (l->n_experts) {
		experts(c, l, in, out);
		return;
	}
	apply(&l->up, in, up);
	if (!c->ffn_plain)
		apply(&l->gate, in, gate);
	for (int i = 0; i < I; i++)
		up[i] = c->ffn_plain ? activated(c, l, up[i]) : activated(c, l, gate[i]) * up[i];
	apply(&l->down, up, out);
}

static void add(const struct model_config *c, double *x, const double *y)
{
	for (int i = 0; i < H; i++)
		x[i] += y[i] * (c->residual_scale > 0 ? (double)c->residual_scale : 1);
}

static void layer(const struct model_config *c, const struct weights_layer *l, int i, int pos, struct kv *kv,
		  double *x)
{
	double y[H], a[H], f[H];
	norm(c, &l->attn_norm, &l->attn_norm_bias, 0, H, x, y);
	attend(c, l, i, pos, y, kv, a);
	if (c->block == BLOCK_PARALLEL_TWO)
		norm(c, &l->ffn_norm, &l->ffn_norm_bias, 0, H, x, y);
	if (c->block == BLOCK_PARALLEL || c->block == BLOCK_PARALLEL_TWO) {
		feed_forward(c, l, y, f);
		add(c, x, a);
		add(c, x, f);
		return;
	}
	add(c, x, a);
	if (c->block == BLOCK_POST)
		norm(c, &l->attn_post, &l->attn_post_bias, 0, H, x, x);
	norm(c, &l->ffn_norm, &l->ffn_norm_bias, 0, H, x, y);
	feed_forward(c, l, y, f);
	add(c, x, f);
	if (c->block == BLOCK_POST)
		norm(c, &l->ffn_post, &l->ffn_post_bias, 0, H, x, x);
}

static void reference(const struct tiny *m, const int32_t *tokens, double (*logits)[V])
{
	const struct model_config *c = &m->c;
	static struct kv kv[LAYERS];
	for (int t = 0; t < T; t++) {
		double x[H];
		for (int i = 0; i < H; i++) {
			x[i] = (double)((const float *)m->w.embed.data)[tokens[t] * H + i];
			x[i] *= c->embed_scale > 0 ? (double)c->embed_scale : 1;
			x[i] += c->learned ? (double)((const float *)m->w.positions.data)[t * H + i] : 0;
		}
		for (int i = 0; i < LAYERS; i++)
			layer(c, &m->layers[i], i, t, &kv[i], x);
		norm(c, &m->w.norm, &m->w.norm_bias, 0, H, x, x);
		apply(&m->w.head, x, logits[t]);
		for (int i = 0; i < V; i++) {
			logits[t][i] *= c->logit_scale > 0 ? (double)c->logit_scale : 1;
			if (c->logit_cap > 0)
				logits[t][i] =
					(double)c->logit_cap * tanh(logits[t][i] / (double)c->logit_cap);
		}
	}
}

/* ---- the decoder ---- */

static bool on_cpu(void)
{
	const char *name = getenv("QUERN_TEST_DEVICE");
	return !name || strncmp(name, "cpu", 3) == 0;
}

struct run {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *s;
	struct kern_kv *kv;
	struct model *model;
	void *tokens;
};

/* Compute rows `first` to end - 1 of the sequence, and their logits. */
static void step(struct run *r, int first, int end, float (*logits)[V])
{
	const int n = end - first;
	int32_t at[T], row0[] = {0, n}, rows[T], table[] = {1, 0};
	for (int i = 0; i < n; i++) {
		at[i] = first + i;
		rows[i] = i;
	}
	const struct kern_batch b = {.n_rows = n,
				     .n_seqs = 1,
				     .token_at = at,
				     .row0 = row0,
				     .pos0 = &first,
				     .tables = table,
				     .table_stride = 2,
				     .n_logits = n,
				     .logits_row = rows};
	cr_assert_eq(r->ops->batch_set(r->s, &b), 0);
	cr_assert_eq(model_forward(r->model, r->kv, r->tokens, n), 0);
	cr_assert_eq(model_head(r->model, n), 0);
	cr_assert_eq(
		r->ops->download(r->s, logits[first], model_logits(r->model), sizeof(float) * V * (size_t)n),
		0);
	cr_assert_eq(r->ops->stream_sync(r->s), 0);
}

static void decode(const struct tiny *m, enum kern_compute compute, const int32_t *tokens, float (*logits)[V])
{
	struct run r = {0};
	struct shard shard;
	struct why why = {""};
	struct kern_open_args a = {.compute = compute,
				   .model = compute == KERN_COMPUTE_BF16 ? KERN_BF16 : KERN_F16,
				   .n_threads = 2,
				   .max_rows = T,
				   .max_seqs = 1,
				   .max_logits = T,
				   .max_context = CONTEXT,
				   .max_blocks_per_seq = CONTEXT / BLOCK};
	const char *name = getenv("QUERN_TEST_DEVICE");
	cr_assert_eq(kern_find(name ? name : "cpu", &r.ops, &a.index, &why), 0, "%s", why.text);
	cr_assert_eq(r.ops->open(&r.dev, &a, &why), 0, "%s", why.text);
	r.s = r.ops->stream_new(r.dev);
	r.tokens = r.ops->mem_new(r.dev, T * sizeof *tokens);
	cr_assert_eq(r.ops->upload(r.s, r.tokens, tokens, T * sizeof *tokens), 0);
	cr_assert_eq(shard_init(&shard, &m->c, &m->w, (struct shard_rank){.n_ranks = 1}, &why), 0);
	const struct model_args args = {.ops = r.ops,
					.dev = r.dev,
					.stream = r.s,
					.config = &m->c,
					.shard = &shard,
					.weights = &m->w,
					.max_rows = T,
					.max_logits = T,
					.max_context = CONTEXT};
	cr_assert_eq(model_load(&r.model, &args, &why), 0, "%s", why.text);
	r.kv = r.ops->kv_new(r.dev, LAYERS, KV_HEADS, D, BLOCK, CONTEXT / BLOCK, 0);
	step(&r, 0, FIRST, logits);
	step(&r, FIRST, T, logits);
	r.ops->kv_free(r.kv);
	model_free(r.model);
	r.ops->mem_free(r.dev, r.tokens, T * sizeof *tokens);
	r.ops->stream_free(r.s);
	r.ops->close(r.dev);
}

/* Return the root mean square of the error, in units of the reference's. */
static double error_of(float (*got)[V], double (*want)[V])
{
	double squares = 0, errors = 0;
	for (int t = 0; t < T; t++)
		for (int i = 0; i < V; i++) {
			const double e = (double)got[t][i] - want[t][i];
			squares += want[t][i] * want[t][i];
			errors += e * e;
		}
	return sqrt(errors / squares);
}

/* Check a form in every mode; a mixture of experts in the precise ones only, since an error may change the
 * choice of experts.  The error is relative to the deviation of the logits. */
static void check(const char *name, const struct model_config *form)
{
	static const struct {
		const char *name;
		enum kern_compute compute;
		double most;
	} modes[] = {{"f32", KERN_COMPUTE_F32, 2e-4},
		     {"int16", KERN_COMPUTE_INT16, 3e-3},
		     {"bf16", KERN_COMPUTE_BF16, 0.08},
		     {"int8", KERN_COMPUTE_INT8, 0.2}};
	static double want[T][V];
	static float got[T][V];
	int32_t tokens[T];
	struct tiny *m = make(form);
	for (int t = 0; t < T; t++)
		tokens[t] = (t * t * 7 + t * 13 + 5) % V;
	reference(m, tokens, want);
	for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
		if (!on_cpu() && modes[k].compute != KERN_COMPUTE_F32 &&
		    modes[k].compute != KERN_COMPUTE_BF16)
			continue;
		if (form->layers[0].sparse && modes[k].most > 0.01)
			continue;
		decode(m, modes[k].compute, tokens, got);
		const double off = error_of(got, want);
		const double most = !on_cpu() && k == 0 ? 2e-2 : modes[k].most; /* a GPU: operands of F16 */
		cr_expect(off < most, "%s, %s: the logits are off by %g of their deviation", name,
			  modes[k].name, off);
	}
	drop(m);
}

#define FORM(name, ...)                                                                                      \
	Test(forms, name)                                                                                    \
	{                                                                                                    \
		static const struct model_config form = {__VA_ARGS__};                                       \
		check(#name, &form);                                                                         \
	}

FORM(llama, .act = ACT_SILU)
FORM(multipliers, .embed_scale = 12, .residual_scale = 0.22f, .attn_scale = 0.4f, .logit_scale = 0.125f)
FORM(logits_are_scaled_before_the_cap, .logit_scale = 4, .logit_cap = 3)
FORM(layers_without_rotation, .layers = {{.rope = LAYER_ROPE_NONE}})
FORM(rotation_by_the_negative_angles, .rope_reversed = true)
FORM(norm_of_q_and_k_after_the_rotation, .qk_norm = QK_NORM_HEADS, .qk_norm_after = true)
FORM(layer_norms, .norm = CONFIG_NORM_LAYER)
FORM(layer_norms_with_biases, .norm = CONFIG_NORM_LAYER, .norm_bias = true)
FORM(layer_norms_of_heads, .norm = CONFIG_NORM_LAYER, .norm_bias = true, .qk_norm = QK_NORM_HEADS,
     .qk_norm_bias = true)
FORM(layer_norms_of_each_head, .norm = CONFIG_NORM_LAYER, .qk_norm = QK_NORM_EACH, .rope_pairs = true)
FORM(parallel_block, .norm = CONFIG_NORM_LAYER, .block = BLOCK_PARALLEL)
FORM(parallel_block_of_rms_norms, .block = BLOCK_PARALLEL, .residual_scale = 0.5f)
FORM(parallel_block_of_two_norms, .norm = CONFIG_NORM_LAYER, .norm_bias = true, .block = BLOCK_PARALLEL_TWO,
     .mlp_bias = true, .o_bias = true)
FORM(norms_after_the_sum, .norm = CONFIG_NORM_LAYER, .norm_bias = true, .block = BLOCK_POST,
     .ffn_plain = true, .act = ACT_GELU)
FORM(ffn_of_relu_squared, .ffn_plain = true, .act = ACT_RELU2)
FORM(ffn_of_relu, .ffn_plain = true, .act = ACT_RELU, .mlp_bias = true)
FORM(ffn_of_gelu, .ffn_plain = true, .act = ACT_GELU)
FORM(ffn_of_gelu_by_tanh, .ffn_plain = true, .act = ACT_GELU_TANH, .mlp_bias = true, .qkv_bias = true)
FORM(ffn_of_gelu_by_sigmoid, .ffn_plain = true, .act = ACT_GELU_SIGMOID)
FORM(ffn_of_silu, .ffn_plain = true, .act = ACT_SILU)
FORM(ffn_of_xielu, .ffn_plain = true, .act = ACT_XIELU)
FORM(head_with_a_bias, .head_bias = true)
FORM(queries_scaled_by_position, .q_scale_beta = 0.3f, .q_scale_floor = 5)
FORM(learned_positions, .learned = true, .norm = CONFIG_NORM_LAYER, .norm_bias = true, .qkv_bias = true,
     .o_bias = true, .mlp_bias = true, .ffn_plain = true, .act = ACT_GELU_TANH,
     .layers = {{.rope = LAYER_ROPE_NONE}, {.rope = LAYER_ROPE_NONE}})
FORM(scores_that_fall_with_the_distance, .alibi_max = 8,
     .layers = {{.rope = LAYER_ROPE_NONE}, {.rope = LAYER_ROPE_NONE}})
FORM(scores_that_fall_with_the_scaled_distance, .alibi_max = 4, .alibi_scaled = true, .attn_scale = 0.5f,
     .layers = {{.rope = LAYER_ROPE_NONE}, {.rope = LAYER_ROPE_NONE}})
FORM(clipped_q_k_and_v, .qkv_clip = 0.7f)
FORM(clipped_after_a_norm, .qkv_clip = 0.7f, .qk_norm = QK_NORM_ROWS)
FORM(experts_after_rms_norms, .layers = {{.sparse = true}, {.sparse = true}})
FORM(experts_after_layer_norms, .norm = CONFIG_NORM_LAYER, .norm_bias = true,
     .layers = {{.sparse = true}, {.sparse = true}})
FORM(experts_parallel_to_attention, .block = BLOCK_PARALLEL, .layers = {{.sparse = true}, {.sparse = true}})
FORM(experts_parallel_to_attention_with_layer_norms, .norm = CONFIG_NORM_LAYER, .block = BLOCK_PARALLEL,
     .layers = {{.sparse = true}, {.sparse = true}})
