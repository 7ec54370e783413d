/* model_experts.c - mixtures of experts in a decoder: loads routers and experts, computes the layer, and
 * counts the experts of each row. */
#include "worker/model_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "formats/place/hot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- load ---- */

/* Load the router; it is whole on every rank, and in floats. */
static int router_load(struct model *m, struct layer *l, const struct weights_layer *w, struct why *why)
{
	const struct weights_linear *parts[] = {&w->router, &w->shared_gate};
	struct kern_linear_src src = {.name = w->router.name,
				      .k = m->c->hidden,
				      .exact = true,
				      .n_parts = w->shared_gate.w ? 2 : 1};
	for (int i = 0; i < src.n_parts; i++)
		src.parts[i] = (struct kern_linear_part){.dtype = dtype_of(parts[i]->dtype),
							 .n = parts[i]->n,
							 .w = parts[i]->w,
							 .bias = parts[i]->bias.data,
							 .bias_dtype = dtype_of(parts[i]->bias.dtype),
							 .name = parts[i]->name,
							 .bytes = shard_linear_bytes(parts[i])};
	int rc = m->ops->linear_load(m->dev, &src, &l->router, why);
	if (rc)
		return err_prefix(why, rc, "%s", src.name);
	m->weights_bytes += m->ops->linear_bytes(l->router);
	return model_vec_load(m, &w->choice_bias, &l->choice_bias, "the bias of a choice", why);
}

/* The device that has a layer's experts. */
struct home {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	const struct kern_info *info;
	int64_t *bytes; /* sum of their bytes there; NULL: a temporary copy, not counted */
};

static struct home home_on_device(struct model *m)
{
	return (struct home){m->ops, m->dev, &m->info, &m->weights_bytes};
}

static struct home home_of(struct model *m, const struct layer *l)
{
	if (!l->host_experts)
		return home_on_device(m);
	const struct host_experts_table *t = host_experts_table(m->host_experts);
	return (struct home){t->ops, t->dev, &t->info, &m->host_experts_bytes};
}

/* Load the norm before a layer with host experts to the CPU, too. */
static int host_experts_norm_load(struct model *m, struct layer *l, const struct weights_vec *v,
				  struct why *why)
{
	const struct host_experts_table *t = l->host_experts ? host_experts_table(m->host_experts) : NULL;
	const size_t bytes = (size_t)v->n * sizeof(float);
	if (!t || !v->data || m->c->norm == CONFIG_NORM_LAYER)
		return 0;
	if (!(l->host_experts_norm = t->ops->mem_new(t->dev, bytes)))
		return err_why(why, -ENOMEM, "out of memory: %zu bytes for a norm on the CPU", bytes);
	float *f = xmalloc(bytes);
	weights_to_f32(v, f);
	for (int i = 0; i < v->n; i++)
		f[i] += m->c->norm_offset;
	int rc = t->ops->upload(t->stream, l->host_experts_norm, f, bytes);
	if (!rc)
		rc = t->ops->stream_sync(t->stream);
	free(f);
	return rc;
}

/* Reads the experts of a layer, one after the other. */
struct experts_reader {
	struct model *m;
	const struct weights_layer *w;
	const struct kern_info *info; /* info of the table that loads them */
	bool unpack;                  /* the table rejected their codes */
	bool codes;                   /* some experts are stored as codes */
	/* another table has loaded them already: do not count their progress twice */
	bool again;
	int64_t added; /* bytes added to the progress */
	int last;      /* the last expert read */
	struct source gateup, down;
};

static void expert_done(struct experts_reader *r)
{
	const int64_t bytes = r->again ? 0 : r->gateup.bytes + r->down.bytes;
	r->added += bytes;
	loading_add(r->m->loading, bytes);
	model_source_fini(&r->gateup);
	model_source_fini(&r->down);
}

static bool has_codes(const struct source *s)
{
	for (int i = 0; i < s->src.n_parts; i++)
		if (s->src.parts[i].dtype == KERN_CODES)
			return true;
	return false;
}

static int expert_at(void *arg, int e, struct kern_linear_src *gateup, struct kern_linear_src *down,
		     struct why *why)
{
	struct experts_reader *r = arg;
	struct model *m = r->m;
	const struct weights_expert *x = &r->w->experts[e];
	const enum shard_of cut = shard_of_gateup(m->shard);
	const struct part first[] = {{&x->gate, cut, NULL}, {&x->up, cut, NULL}},
			  last = {&x->down, shard_of_down(m->shard), NULL};
	(void)why;
	expert_done(r);
	if (e <= r->last) { /* the table reads them again */
		loading_add(m->loading, -r->added);
		r->added = 0;
	}
	r->last = e;
	loading_now(m->loading, BUS_DOING_READ);
	model_source_init(m, r->info, &r->gateup, first, 2);
	model_source_init(m, r->info, &r->down, &last, 1);
	r->codes = r->codes || has_codes(&r->gateup) || has_codes(&r->down);
	loading_now(m->loading, BUS_DOING_PACK);
	if (r->unpack) {
		model_source_unpack(m, &r->gateup);
		model_source_unpack(m, &r->down);
	}
	*gateup = r->gateup.src;
	*down = r->down.src;
	progress_bump(m);
	return 0;
}

/* Load the experts selected by `here` (at least one); NULL: all. */
static int experts_to(struct model *m, const struct home *home, const struct weights_layer *w,
		      const bool *here, struct kern_experts **out, struct why *why)
{
	const struct config_experts *x = &m->c->experts;
	struct experts_reader r = {.m = m, .w = w, .info = home->info, .again = !home->bytes, .last = -1};
	const struct kern_experts_src src = {.name = w->experts[0].gate.name,
					     .n_experts = x->n,
					     .n_chosen = x->n_chosen,
					     .hidden = m->c->hidden,
					     .intermediate = x->intermediate,
					     .here = here,
					     .expert = expert_at,
					     .arg = &r};
	int rc = home->ops->experts_load(home->dev, &src, out, why);
	expert_done(&r);
	if (rc == -ENOTSUP && r.codes) {
		r.unpack = true;
		rc = home->ops->experts_load(home->dev, &src, out, why);
		expert_done(&r);
	}
	if (rc)
		return err_prefix(why, rc, "%s", src.name);
	if (home->bytes)
		*home->bytes += home->ops->experts_bytes(*out);
	return 0;
}

static int cannot_come(const struct model *m, int rc, struct why *why)
{
	return err_prefix(why, rc,
			  "cannot stream experts from the CPU to the GPU for steps of more than %d rows "
			  "(--send-experts-above 0 computes them on the CPU)",
			  m->stream_above_rows);
}

/* Load a layer's host experts a second time, packed by the device's table, which holds them only for that
 * time.  A layer that the device's table cannot compute stays on the CPU. */
static int packed_load(struct model *m, struct layer *l, const struct weights_layer *w, const bool *here,
		       struct why *why)
{
	const struct home home = {m->ops, m->dev, &m->info, NULL};
	struct kern_experts *x;
	int rc = experts_to(m, &home, w, here, &x, why);
	if (rc == -ENOTSUP) {
		log_warn("model", "experts not streamed layer=%d reason=\"%s\"", (int)(l - m->layers),
			 why->text);
		return 0;
	}
	if (rc)
		return rc;
	if (!m->prefetch && (rc = prefetch_open(&m->prefetch, m->ops, m->dev, m->c->n_layers, why))) {
		m->ops->experts_free(x);
		return rc;
	}
	rc = prefetch_add(m->prefetch, &x, &l->prefetch_index, why);
	l->streams_experts = !rc;
	return rc;
}

int model_experts_load(struct model *m, struct layer *l, const struct weights_layer *w, struct why *why)
{
	const int n = m->c->experts.n, layer = (int)(l - m->layers);
	const struct home home = home_of(m, l), device = home_on_device(m);
	const bool *hot =
		l->host_experts && m->hot && hot_any(m->hot, layer) ? hot_layer(m->hot, layer) : NULL;
	bool here[KERN_EXPERTS_MAX];
	int rc;
	for (int e = 0; e < n; e++)
		here[e] = shard_has_expert(m->shard, e) && !(hot && hot[e]);
	if ((rc = router_load(m, l, w, why)) ||
	    (rc = host_experts_norm_load(m, l, m->c->block == BLOCK_PARALLEL ? &w->attn_norm : &w->ffn_norm,
					 why)) ||
	    (hot && (rc = experts_to(m, &device, w, hot, &l->hot, why))))
		return rc;
	const bool *const those = hot || m->shard->ep ? here : NULL;
	rc = experts_to(m, &home, w, those, &l->experts, why);
	if (!rc && l->host_experts && m->stream_above_rows && (rc = packed_load(m, l, w, those, why)))
		return cannot_come(m, rc, why);
	return rc;
}

int model_experts_ready(struct model *m, struct why *why)
{
	int rc = m->prefetch ? prefetch_ready(m->prefetch, why) : 0;
	return rc ? cannot_come(m, rc, why) : 0;
}

/* Return the layer's expert with the most bytes in the files. */
static int largest(const struct weights_layer *w)
{
	int64_t most = -1;
	int at = 0;
	for (int e = 0; e < w->n_experts; e++) {
		const struct weights_expert *x = &w->experts[e];
		const int64_t n = shard_linear_bytes(&x->gate) + shard_linear_bytes(&x->up) +
				  shard_linear_bytes(&x->down);
		if (n > most) {
			most = n;
			at = e;
		}
	}
	return at;
}

int model_expert_size(const struct model_args *a, int layer, int64_t *bytes, struct why *why)
{
	struct model m = {.ops = a->ops,
			  .dev = a->dev,
			  .stream = a->stream,
			  .c = a->config,
			  .shard = a->shard,
			  .unread = a->unread,
			  .moves = a->moves,
			  .unpacked = true /* logged when the model is loaded */};
	bool here[KERN_EXPERTS_MAX] = {false};
	const struct home home = home_on_device(&m);
	struct kern_experts *one;
	m.ops->info(m.dev, &m.info);
	here[largest(&a->weights->layers[layer])] = true;
	int rc = experts_to(&m, &home, &a->weights->layers[layer], here, &one, why);
	if (!rc)
		m.ops->experts_free(one);
	*bytes = m.weights_bytes;
	return rc;
}

void model_layer_experts_free(struct model *m, struct layer *l)
{
	if (l->experts)
		home_of(m, l).ops->experts_free(l->experts);
	if (l->hot)
		m->ops->experts_free(l->hot);
	if (l->host_experts_norm) {
		const struct host_experts_table *t = host_experts_table(m->host_experts);
		t->ops->mem_free(t->dev, l->host_experts_norm, (size_t)m->c->hidden * sizeof(float));
	}
}

int64_t model_layer_expert_bytes(const struct model *m, const struct layer *l)
{
	const struct kern_ops *ops = l->host_experts ? host_experts_table(m->host_experts)->ops : m->ops;
	return ops->experts_bytes(l->experts) + (l->hot ? m->ops->experts_bytes(l->hot) : 0);
}

int64_t model_expert_bytes(const struct model *m)
{
	for (int i = 0; i < m->c->n_layers; i++)
		if (m->layers[i].experts)
			return model_layer_expert_bytes(m, &m->layers[i]) /
			       shard_n_experts(m->shard, m->c->experts.n);
	return 0;
}

int64_t model_row_experts(const struct model *m)
{
	int64_t n = 0;
	for (int i = 0; i < m->c->n_layers; i++)
		n += m->layers[i].experts ? m->c->experts.n_chosen : 0;
	return n ? n * shard_n_experts(m->shard, m->c->experts.n) / m->c->experts.n : 0;
}

/* ---- counters ---- */

/* Rows take their random choices from a fixed table in turn: as good as new random numbers, and free. */
enum { CHANCES = 4096 };

struct expert_count {
	bool paused;
	int32_t *chosen; /* [max_rows][n_chosen] of the current layer */
	uint64_t *rows;  /* [n_layers][n] rows per expert */
	uint64_t *most;  /* [n_layers] the largest of these */
	uint64_t *seen;  /* [n] the last call in which the expert had a row */
	uint64_t calls;
	/* [CHANCES][n_chosen] random experts, ascending; NULL: rows get their router's experts */
	int32_t *chances;
	int at; /* next entry of chances */
	/* For a device with graphs; else NULL. */
	uint32_t *device;             /* on the device, [n_layers][n] rows since its start, modulo 2^32 */
	uint32_t *host[MODEL_COUNTS]; /* pinned copies of it, for steps in flight */
	uint32_t *before;             /* the copy taken last, or the values when the epoch began */
};

static size_t n_counts(const struct model *m)
{
	return (size_t)m->c->n_layers * (size_t)m->c->experts.n;
}

static double next_random(uint64_t *state) /* above 0, below 1 */
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return ((double)(*state >> 32) + 0.5) / 4294967296.0;
}

/* Choose without replacement, by weights: the largest values of log(weight) + Gumbel noise (Kool et al.
 * 2019, arXiv:1903.06059). */
static void choose_by_chance(int32_t *out, int n, int n_chosen, enum experts_skew skew, uint64_t *state)
{
	double score[KERN_EXPERTS_MAX];
	bool chosen[KERN_EXPERTS_MAX] = {false};
	for (int e = 0; e < n; e++)
		score[e] = -log(-log(next_random(state))) - (skew == EXPERTS_ZIPF ? log(e + 1) : 0);
	for (int i = 0; i < n_chosen; i++) {
		int best = -1;
		for (int e = 0; e < n; e++)
			if (!chosen[e] && (best < 0 || score[e] > score[best]))
				best = e;
		chosen[best] = true;
	}
	for (int e = 0; e < n; e++)
		if (chosen[e])
			*out++ = e;
}

static int device_counts_new(struct model *m, struct why *why)
{
	struct expert_count *c = m->count;
	const size_t bytes = n_counts(m) * sizeof *c->device;
	c->before = xcalloc(n_counts(m), sizeof *c->before);
	c->device = m->ops->mem_new(m->dev, bytes);
	for (int i = 0; i < MODEL_COUNTS; i++)
		c->host[i] = m->ops->host_new(m->dev, bytes);
	return c->device && c->host[0] && c->host[1]
		       ? 0
		       : err_why(why, -ENOMEM, "out of memory: %zu bytes for the counters of experts", bytes);
}

static void device_counts_free(struct model *m)
{
	struct expert_count *c = m->count;
	const size_t bytes = n_counts(m) * sizeof *c->device;
	for (int i = 0; i < MODEL_COUNTS; i++)
		if (c->host[i])
			m->ops->host_free(m->dev, c->host[i], bytes);
	if (c->device)
		m->ops->mem_free(m->dev, c->device, bytes);
	free(c->before);
}

int model_experts_init(struct model *m, enum experts_skew skew, struct why *why)
{
	const struct config_experts *x = &m->c->experts;
	const size_t n = (size_t)x->n, chosen = (size_t)x->n_chosen;
	uint64_t state = 1;
	if (skew != EXPERTS_ROUTED && !x->n)
		return err_why(why, -EINVAL, "--experts-skew: the model is no mixture of experts");
	if (skew != EXPERTS_ROUTED && m->ops->graph_begin)
		return err_why(why, -ENOTSUP, "--experts-skew works on the CPU only");
	if (m->load) /* all ranks see the same rows: rank 0 counts for the group */
		expert_load_shape(m->load, x->n && m->shard->rank == 0 ? (uint32_t)m->c->n_layers : 0,
				  (uint32_t)x->n);
	if (!x->n)
		return 0;
	struct expert_count *c = m->count = xcalloc(1, sizeof *c);
	c->chosen = xcalloc((size_t)m->max_rows * chosen, sizeof *c->chosen);
	c->rows = xcalloc((size_t)m->c->n_layers * n, sizeof *c->rows);
	c->most = xcalloc((size_t)m->c->n_layers, sizeof *c->most);
	c->seen = xcalloc(n, sizeof *c->seen);
	if (m->ops->graph_begin)
		return device_counts_new(m, why);
	if (skew == EXPERTS_ROUTED)
		return 0;
	c->chances = xcalloc(CHANCES * chosen, sizeof *c->chances);
	for (size_t i = 0; i < CHANCES; i++)
		choose_by_chance(c->chances + i * chosen, x->n, x->n_chosen, skew, &state);
	return 0;
}

void model_experts_fini(struct model *m)
{
	struct expert_count *c = m->count;
	prefetch_close(m->prefetch);
	if (!c)
		return;
	device_counts_free(m);
	free(c->chosen);
	free(c->rows);
	free(c->most);
	free(c->seen);
	free(c->chances);
	free(c);
}

/* Replace the router's experts by random ones; the weights stay. */
static int give_by_chance(struct model *m, int n_rows)
{
	struct expert_count *c = m->count;
	const int chosen = m->c->experts.n_chosen;
	for (int r = 0; r < n_rows; r++, c->at = (c->at + 1) % CHANCES)
		memcpy(c->chosen + r * chosen, c->chances + c->at * chosen,
		       (size_t)chosen * sizeof *c->chosen);
	return m->ops->upload(m->stream, m->chosen.p, c->chosen,
			      (size_t)n_rows * (size_t)chosen * sizeof *c->chosen);
}

static void add(atomic_ullong *to, uint64_t n)
{
	atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

static void count_rows(struct model *m, int layer, const int32_t *chosen, int n_rows)
{
	struct expert_count *c = m->count;
	if (c->paused)
		return;
	const int pairs = n_rows * m->c->experts.n_chosen;
	struct expert_cells *cells =
		m->load ? atomic_load_explicit(&m->load->cells, memory_order_relaxed) : NULL;
	uint64_t *rows = c->rows + (size_t)layer * (size_t)m->c->experts.n, read = 0, more = 0;
	int64_t mine = 0; /* experts read by this rank */
	c->calls++;
	for (int i = 0; i < pairs; i++) {
		const int32_t e = chosen[i];
		const bool first = c->seen[e] != c->calls;
		read += first;
		mine += first && shard_has_expert(m->shard, e);
		c->seen[e] = c->calls;
		if (cells)
			expert_load_rows(cells, (uint32_t)layer, (uint32_t)e, 1);
		if (++rows[e] > c->most[layer]) {
			c->most[layer] = rows[e];
			more++;
		}
	}
	trace_experts(m->trace, mine);
	if (m->load) {
		add(&m->load->rows, (uint64_t)pairs);
		add(&m->load->reads, read);
		add(&m->load->busiest, more);
	}
}

/* Count the rows of experts on a CPU device.  Other devices count by themselves (model_queue_counts()),
 * without a wait. */
static int count_own(struct model *m, int layer, int n_rows)
{
	struct expert_count *c = m->count;
	const size_t pairs = (size_t)n_rows * (size_t)m->c->experts.n_chosen;
	if (c->device)
		return 0;
	int rc = m->ops->download(m->stream, c->chosen, m->chosen.p, pairs * sizeof *c->chosen);
	if (!rc && !(rc = m->ops->stream_sync(m->stream)))
		count_rows(m, layer, c->chosen, n_rows);
	return rc;
}

void model_count_experts(struct model *m, bool on)
{
	if (m->count)
		m->count->paused = !on;
}

void model_begin_counts(struct model *m)
{
	if (m->load)
		expert_load_reset(m->load);
	/* Trial steps and dropped plans are in the counters.  A failure shows in the next step. */
	struct expert_count *c = m->count;
	if (c && c->device &&
	    !m->ops->download(m->stream, c->before, c->device, n_counts(m) * sizeof *c->before))
		m->ops->stream_sync(m->stream);
}

int model_queue_counts(struct model *m, uint64_t at)
{
	struct expert_count *c = m->count;
	return c && c->device ? m->ops->download(m->stream, c->host[at % MODEL_COUNTS], c->device,
						 n_counts(m) * sizeof *c->device)
			      : 0;
}

void model_take_counts(struct model *m, uint64_t at)
{
	struct expert_count *c = m->count;
	const size_t n = (size_t)m->c->experts.n;
	uint64_t pairs = 0, reads = 0, more = 0;
	if (!c || !c->device)
		return;
	const uint32_t *now = c->host[at % MODEL_COUNTS];
	struct expert_cells *cells =
		m->load ? atomic_load_explicit(&m->load->cells, memory_order_relaxed) : NULL;
	for (size_t i = 0; i < n_counts(m); i++) {
		const uint32_t rows = now[i] - c->before[i];
		if (!rows)
			continue;
		c->before[i] = now[i];
		pairs += rows;
		reads++;
		if (cells)
			expert_load_rows(cells, (uint32_t)(i / n), (uint32_t)(i % n), rows);
		if ((c->rows[i] += rows) > c->most[i / n]) {
			more += c->rows[i] - c->most[i / n];
			c->most[i / n] = c->rows[i];
		}
	}
	if (m->load) {
		add(&m->load->rows, pairs);
		add(&m->load->reads, reads);
		add(&m->load->busiest, more);
	}
}

/* ---- the step ---- */

/* True if a step of n_rows streams this layer's host experts. */
static bool streams_experts(const struct model *m, const struct layer *l, int n_rows)
{
	return l->streams_experts && n_rows > m->stream_above_rows;
}

int model_experts_begin(struct model *m, int n_rows)
{
	if (!m->prefetch || n_rows <= m->stream_above_rows)
		return 0;
	if (!m->count->paused && !m->n_streamed++)
		log_info("model", "expert streaming begins rows=%d above_rows=%d", n_rows,
			 m->stream_above_rows);
	return prefetch_begin(m->prefetch);
}

/* The rows that the router reads: the residual stream, with the norm before the FFN; or, of models with layer
 * norms, rows that are normed already, with NULL. */
struct routed {
	const void *x, *norm;
};

static int routed_rows(struct model *m, const struct layer *l, int n_rows, struct routed *out)
{
	const struct norm *w = model_ffn_norm(m, l);
	*out = (struct routed){m->x.p, w->weight.p};
	if (m->c->norm != CONFIG_NORM_LAYER || !w->weight.p)
		return 0;
	const size_t bytes = (size_t)n_rows * (size_t)m->c->hidden * sizeof(float);
	const struct kern_layernorm_args a = {NULL,      m->routed.p,  NULL,         w->weight.p,
					      w->bias.p, m->c->hidden, m->c->rms_eps};
	*out = (struct routed){m->routed.p, NULL};
	int rc = m->ops->copy(m->stream, m->routed.p, m->x.p, bytes);
	return rc ? rc : m->ops->layernorm(m->stream, &a, n_rows);
}

static int route(struct model *m, const struct layer *l, const struct routed *rows, int layer, int n_rows)
{
	static const enum kern_score scores[] = {[SCORE_SOFTMAX] = KERN_SCORE_SOFTMAX,
						 [SCORE_SIGMOID] = KERN_SCORE_SIGMOID,
						 [SCORE_SPARSEMIXER] = KERN_SCORE_SPARSEMIXER};
	const struct config_experts *x = &m->c->experts;
	uint32_t *const counts = l->host_experts && !streams_experts(m, l, n_rows) ? NULL : m->count->device;
	const struct kern_route_args a = {
		.expert = m->chosen.p,
		.weight = m->weights.p,
		.shared = m->shared_by.p,
		.counts = counts ? counts + (size_t)layer * (size_t)x->n : NULL,
		.x = rows->x,
		.norm = rows->norm,
		.eps = m->c->rms_eps,
		.router = l->router,
		.choice_bias = l->choice_bias.p,
		.n_experts = x->n,
		.n_chosen = x->n_chosen,
		.hidden = m->c->hidden,
		.n_groups = x->n_groups,
		.groups_chosen = x->groups_chosen,
		.score = scores[x->score],
		.normalize = x->normalize,
		.scale = x->scale,
		.jitter = x->jitter,
	};
	return m->ops->route(m->stream, &a, n_rows);
}

/* Compute the shared expert. */
static int shared_ffn(struct model *m, const struct layer *l, int n_rows)
{
	if (!l->gateup)
		observe(m, MODEL_AT_GATEUP, &m->normed, n_rows);
	observe(m, MODEL_AT_ROUTED, &m->chosen, n_rows);
	const float by = m->c->experts.shared_scale;
	int rc = l->gateup ? model_dense_ffn(m, l, m->shared.p, n_rows) : 0;
	if (!rc && l->gateup && by > 0)
		rc = m->ops->map(m->stream, m->shared.p, n_rows, m->c->hidden, KERN_MAP_SCALE, by);
	return rc;
}

static int device_moe_to(struct model *m, void *out, const void *begin, const struct kern_experts *experts,
			 int n_rows)
{
	const struct kern_moe_args moe = {.out = out,
					  .in = m->normed.p,
					  .expert = m->chosen.p,
					  .weight = m->weights.p,
					  .begin = begin,
					  .begin_by = begin ? m->shared_by.p : NULL};
	return m->ops->moe(m->stream, experts, &moe, n_rows);
}

/* Compute the layer's experts on the device, added to the shared expert. */
static int device_moe(struct model *m, const struct layer *l, const struct kern_experts *experts, int n_rows)
{
	return device_moe_to(m, m->add.p, l->gateup ? m->shared.p : NULL, experts, n_rows);
}

static int own_experts(struct model *m, const struct layer *l, int layer, int n_rows)
{
	int rc = m->count->chances ? give_by_chance(m, n_rows) : 0;
	if (!rc)
		rc = count_own(m, layer, n_rows);
	trace_mark(m->trace, TRACE_ROWS);
	if (!rc)
		rc = shared_ffn(m, l, n_rows);
	return rc ? rc : device_moe(m, l, l->experts, n_rows);
}

/* Add the CPU's sum to the device's: the shared expert, and the GPU-resident experts. */
static int add_host_experts(struct model *m, const struct layer *l, int n_rows)
{
	const int hidden = m->c->hidden;
	struct piece *to = l->hot ? &m->shared : &m->add;
	int rc = host_experts_finish(m->host_experts, m->stream, to->p, n_rows);
	if (rc || !(l->hot || l->gateup))
		return rc;
	return m->ops->add_rows(m->stream, m->add.p, m->shared.p, l->hot ? NULL : m->shared_by.p, n_rows,
				hidden);
}

/* The device computes the shared and the GPU-resident experts while the CPU computes the others. */
static int compute_host_experts(struct model *m, const struct layer *l, const struct routed *rows, int layer,
				int n_rows)
{
	int rc = host_experts_send(m->host_experts, m->stream, rows->x, m->chosen.p, m->weights.p, n_rows);
	trace_mark(m->trace, TRACE_ROWS);
	if (rc || (rc = shared_ffn(m, l, n_rows)) || (l->hot && (rc = device_moe(m, l, l->hot, n_rows))) ||
	    (rc = host_experts_compute(m->host_experts, l->experts, l->host_experts_norm, m->c->rms_eps,
				       n_rows)) ||
	    (rc = add_host_experts(m, l, n_rows)))
		return rc;
	count_rows(m, layer, host_experts_chosen(m->host_experts), n_rows);
	return 0;
}

/* Compute all experts on the device, with the streamed host experts.  GPU-resident experts are summed
 * separately, as in compute_host_experts(). */
static int come_experts(struct model *m, const struct layer *l, int n_rows)
{
	const struct kern_experts *x;
	int rc = shared_ffn(m, l, n_rows);
	if (!rc && l->hot)
		rc = device_moe(m, l, l->hot, n_rows);
	if (rc || (rc = prefetch_take(m->prefetch, m->stream, l->prefetch_index, &x)) ||
	    (rc = l->hot ? device_moe_to(m, m->shared.p, NULL, x, n_rows) : device_moe(m, l, x, n_rows)) ||
	    (rc = prefetch_give(m->prefetch, m->stream, l->prefetch_index)) || !l->hot)
		return rc;
	return m->ops->add_rows(m->stream, m->add.p, m->shared.p, NULL, n_rows, m->c->hidden);
}

int model_experts_ffn(struct model *m, const struct layer *l, int layer, int n_rows)
{
	struct routed rows;
	int rc = routed_rows(m, l, n_rows, &rows);
	if (rc || (rc = route(m, l, &rows, layer, n_rows)))
		return rc;
	if (streams_experts(m, l, n_rows))
		return come_experts(m, l, n_rows);
	return l->host_experts ? compute_host_experts(m, l, &rows, layer, n_rows)
			       : own_experts(m, l, layer, n_rows);
}
