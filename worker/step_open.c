/* step_open.c - opens a worker (sizes, device, weights, pools, graphs) and closes it. */
#include "worker/step_impl.h"
#include "worker/trace.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "formats/place/packed.h"
#include "formats/weights.h"
#include "worker/profile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Defaults, if neither the controller nor the user has chosen. */
enum { BLOCK_SIZE = 16, ROWS = 512, RUNS = 128, SLOTS = 256 };
/* Limits of a plan; they also keep the sizes below within int32. */
enum {
	BLOCK_SIZE_MAX = 256,
	ROWS_MAX = 1 << 16,
	RUNS_MAX = 1 << 14,
	SLOTS_MAX = 1 << 14,
	CONTEXT_MAX = 1 << 24
};
/* Memory for the logits of one call of the head: it takes as many rows as runs, within this limit. */
enum { LOGITS_BYTES = 128 << 20, LOGITS_MIN = 8 };

/* ---- sizes ---- */

static int choose(uint32_t requested, uint32_t otherwise, uint32_t max, const char *what, uint32_t *out,
		  struct why *why)
{
	*out = requested ? requested : otherwise;
	if (*out > max)
		return err_why(why, -EINVAL, "%s is %u, at most %u is possible", what, *out, max);
	return 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Dynamic RoPE extends the model's own context by its factor. */
static uint32_t longest_context(const struct model_config *c)
{
	double n = c->rope == ROPE_DYNAMIC ? c->max_position * c->rope_factor : c->max_position;
	return n < CONTEXT_MAX ? (uint32_t)n : CONTEXT_MAX;
}

static int choose_sizes(struct step *s, struct why *why)
{
	const struct bus_load *l = &s->load;
	struct bus_limits *m = &s->lim;
	const uint32_t context = (uint32_t)s->config.max_position;
	int rc;
	if ((rc = choose(l->block_size, BLOCK_SIZE, BLOCK_SIZE_MAX, "the block size", &s->block_size, why)) ||
	    (rc = choose(l->max_context, context, longest_context(&s->config), "the context", &m->max_context,
			 why)) ||
	    (rc = choose(l->max_rows, ROWS, ROWS_MAX, "the number of rows of a step", &m->max_rows, why)) ||
	    (rc = choose(l->max_slots, SLOTS, SLOTS_MAX, "the number of slots", &m->max_slots, why)) ||
	    (rc = choose(l->max_runs, least(RUNS, m->max_slots), RUNS_MAX, "the number of runs of a step",
			 &m->max_runs, why)))
		return rc;
	if (s->block_size < BLOCK_SIZE || s->block_size & (s->block_size - 1))
		return err_why(why, -EINVAL, "the block size is %u, must be 16, 32, 64, 128 or 256",
			       s->block_size);
	if (!l->max_slots)
		m->max_slots = least(m->max_slots, slots_most(m->max_context));
	if (!l->max_runs)
		m->max_runs = least(m->max_runs, m->max_slots);
	m->n_vocab = (uint32_t)s->config.n_vocab;
	model_config_kinds(&s->part, m->max_context, &s->kinds);
	m->n_kinds = s->kinds.kinds.n;
	int64_t fit = LOGITS_BYTES / (4 * (int64_t)m->n_vocab);
	s->max_logits = (int)least(m->max_runs, (uint32_t)(fit > LOGITS_MIN ? fit : LOGITS_MIN));
	return 0;
}

int step_compute_mode(const char *name, const char *device, const char *isa, enum kern_compute *out,
		      struct why *why)
{
	if (!name[0] || strcmp(name, "auto") == 0) {
		*out = kern_auto_compute(device, isa);
		return 0;
	}
	for (int i = KERN_COMPUTE_F32; i <= KERN_COMPUTE_INT8; i++) {
		if (strcmp(name, kern_compute_name((enum kern_compute)i)) == 0) {
			*out = (enum kern_compute)i;
			return 0;
		}
	}
	return err_why(why, -EINVAL, "compute mode %s is not known (f32, bf16, int16, int8, auto)", name);
}

static int head_type(const char *name, enum kern_head *out, struct why *why)
{
	static const char *const names[] = {"auto", "stored", "int8"};
	if (!name[0])
		name = "auto";
	for (int i = 0; i < 3; i++) {
		if (strcmp(name, names[i]) == 0) {
			*out = (enum kern_head)i;
			return 0;
		}
	}
	return err_why(why, -EINVAL, "head type %s is not known (auto, stored, int8)", name);
}

static int kv_type(const char *name, enum kern_kv_type *out, struct why *why)
{
	static const struct {
		const char *name;
		enum kern_kv_type type;
	} types[] = {{"", KERN_KV_MODE},     {"auto", KERN_KV_MODE},   {"f32", KERN_KV_F32},
		     {"bf16", KERN_KV_BF16}, {"int16", KERN_KV_INT16}, {"int8", KERN_KV_INT8}};
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		if (strcmp(name, types[i].name) == 0) {
			*out = types[i].type;
			return 0;
		}
	}
	return err_why(why, -EINVAL, "KV cache type %s is not known (auto, f32, bf16, int16, int8)", name);
}

/* Log the device's mode, and what the device lacks for it. */
static void log_device(const struct step *s, const char *device)
{
	struct kern_info info;
	s->ops->info(s->dev, &info);
	log_info("step", "device opened device=%s name=\"%s\" mode=\"%s\" numerics=\"%s\"", device, info.name,
		 info.mode, info.numerics);
	if (info.note[0])
		log_warn("step", "slow mode device=%s mode=\"%s\" reason=\"%s\"", device, info.mode,
			 info.note);
	if (s->config.text_only)
		log_warn("step",
			 "only the text part is served architecture=%s reason=\"images are not supported\"",
			 s->config.arch_name);
}

/* ---- loading ---- */

static int open_device(struct step *s, const struct step_args *a, struct why *why)
{
	struct kern_open_args args = {
		.model = s->config.dtype == CONFIG_BF16 ? KERN_BF16 : KERN_F16,
		.n_threads = (int)s->load.n_threads,
		.isa = a->isa,
		.max_rows = (int)s->lim.max_rows,
		.max_seqs = (int)s->lim.max_runs,
		.max_logits = s->max_logits,
		.max_context = (int)s->lim.max_context,
		.max_blocks_per_seq = (int)((s->lim.max_context + s->block_size - 1) / s->block_size),
		.max_tables = (int)s->lim.max_slots,
		.n_kinds = (int)s->kinds.kinds.n,
		.n_vocab = s->config.n_vocab,
		.n_sharing = (int)s->load.n_sharing,
		.fast = s->load.fast,
	};
	int rc = step_compute_mode(s->load.compute, a->device, a->isa, &args.compute, why);
	if (rc || (rc = head_type(s->load.head, &args.head, why)) ||
	    (rc = kv_type(s->load.kv, &args.kv, why)) ||
	    (rc = kern_find(a->device, &s->ops, &args.index, why)))
		return rc;
	if (s->ops->abi != KERN_ABI)
		return err_why(why, -EINVAL, "the kernels of %s are of another build (ABI %d, not %d)",
			       a->device, s->ops->abi, KERN_ABI);
	if ((rc = s->ops->open(&s->dev, &args, why)) ||
	    (args.fast && (rc = tune_use(s->ops, s->dev, &a->tune, why))))
		return rc;
	log_device(s, a->device);
	s->compute = args.compute;
	s->stream = s->ops->stream_new(s->dev);
	return s->stream ? 0 : err_why(why, -EIO, "%s: no stream could be created", a->device);
}

/* ---- cache ---- */

static struct cache_args cache_args_of(const struct step *s, int64_t weights_bytes)
{
	return (struct cache_args){
		.ops = s->ops,
		.dev = s->dev,
		.model = &s->part,
		.kinds = &s->kinds,
		.block_size = (int)s->block_size,
		.max_context = (int)s->lim.max_context,
		.max_rows = (int)s->lim.max_rows,
		.weights_bytes = weights_bytes,
		.kv_bytes = s->load.kv_bytes,
		.swap_bytes = s->load.swap_bytes,
		.fraction = s->memory_fraction,
		.two_pools = s->two_pools,
	};
}

/* Compute the number of blocks; a default context is reduced to what they hold. */
static int size_cache(struct step *s, const struct cache_args *ca, struct why *why)
{
	int rc = cache_size(&s->cache, ca, why);
	if (rc)
		return rc;
	s->lim.n_blocks = (uint32_t)s->cache.n_blocks;
	s->lim.n_host_blocks = (uint32_t)s->cache.n_host_blocks;
	if (cache_is_one_pool(ca))
		log_info("cache", "one pool blocks=%u bytes=%lld swap_bytes=%llu copies=none",
			 s->lim.n_blocks, (long long)(s->cache.block_bytes * s->cache.n_blocks),
			 (unsigned long long)s->load.swap_bytes);
	const uint32_t holds = kinds_tokens(&s->kinds.kinds, s->lim.n_blocks, s->block_size, s->lim.max_rows);
	if (!s->load.max_context && holds < s->lim.max_context)
		s->lim.max_context = holds;
	s->own_blocks = s->lim.n_blocks;
	s->own_host_blocks = s->lim.n_host_blocks;
	s->own_context = s->lim.max_context;
	return 0;
}

/* Return the device memory that the weights will take: on a CPU, as its table stores them; for a rank, its
 * shard. */
static int64_t planned_bytes(const struct step *s, const struct step_args *a, const struct weights *w)
{
	enum kern_compute compute;
	struct kern_info info;
	s->ops->info(s->dev, &info);
	if (info.steps_take_memory || step_compute_mode(s->load.compute, a->device, a->isa, &compute, NULL))
		return s->stored_bytes - step_host_experts_stored(s, w);
	const int64_t all = packed_weights(w, &s->config, packed_mode(kern_compute_name(compute)),
					   packed_head(s->load.head));
	return (int64_t)((double)all * ((double)s->stored_bytes / (double)w->bytes));
}

/* Before anything is loaded: size the pool if possible, and reject what cannot work. */
static int plan_cache(struct step *s, const struct step_args *a, const struct weights *w, struct why *why)
{
	s->stored_bytes = shard_bytes(&s->shard, &s->config, w);
	loading_begin(s->loading, s->stored_bytes);
	const struct cache_args ca = cache_args_of(s, planned_bytes(s, a, w));
	s->sized_last = cache_sized_last(&ca);
	int rc = s->sized_last ? cache_check(&ca, why) : size_cache(s, &ca, why);
	s->rope_context = s->lim.max_context;
	return rc;
}

int step_profile(struct step *s, struct why *why)
{
	const struct profile_args pa = {
		.ops = s->ops,
		.dev = s->dev,
		.stream = s->stream,
		.model = s->model,
		.group = s->group,
		.config = &s->part,
		.kinds = &s->kinds,
		.lim = &s->lim,
		.block_size = s->block_size,
		.max_logits = s->max_logits,
		.rank = s->shard.rank,
		.tokens = slots_buffer(s->slots),
		.kv = s->cache.kv,
	};
	struct kern_info info;
	s->ops->info(s->dev, &info);
	if (!info.steps_take_memory)
		return 0;
	model_count_experts(s->model, false);
	int rc = profile_run(&pa, why);
	model_count_experts(s->model, true);
	return rc;
}

int step_size_last(struct step *s, struct why *why)
{
	s->lim.max_context = s->rope_context; /* an earlier group may have had a smaller one */
	const struct cache_args ca = cache_args_of(s, 0);
	return size_cache(s, &ca, why);
}

/* A graph contains a whole step, so a step with layers on the CPU has none. */
static bool wants_graphs(const struct step *s)
{
	return !s->no_graphs && s->ops->graph_begin && !s->host_experts;
}

/* Share of the progress for the layers; the rest is for the graphs. */
enum { LAYERS_PERMILLE = 900 };

struct share {
	const struct step_args *a;
	unsigned from, to;
};

static void share_progress(void *arg, unsigned permille)
{
	const struct share *p = arg;
	if (p->a->progress)
		p->a->progress(p->a->progress_arg, p->from + permille * (p->to - p->from) / 1000);
}

static int load_model(struct step *s, const struct step_args *a, const struct weights *w, struct why *why)
{
	const bool then_graphs =
		wants_graphs(s) && s->shard.n_ranks == 1; /* a group makes its graphs when it forms */
	struct share share = {a, 0, then_graphs ? LAYERS_PERMILLE : 1000};
	const struct model_args m = {
		.ops = s->ops,
		.dev = s->dev,
		.stream = s->stream,
		.config = &s->part,
		.kinds = &s->kinds,
		.shard = &s->shard,
		.weights = w,
		.max_rows = (int)s->lim.max_rows,
		.max_logits = s->max_logits,
		.max_context = (int)s->lim.max_context,
		.progress = share_progress,
		.progress_arg = &share,
		.loading = a->loading,
		.moves = a->moves,
		.at_work = a->at_work,
		.at_work_arg = a->at_work_arg,
		.skew = a->skew,
		.load = a->experts,
		.trace = a->trace,
		.placement = &s->placement,
		.host_experts = s->host_experts,
		.hot = s->hot.n ? &s->hot : NULL,
		.stream_above_rows = s->stream_above_rows,
	};
	return model_load(&s->model, &m, why);
}

/* Choose the shard that this rank computes; without a group, everything. */
static int choose_part(struct step *s, const struct weights *w, struct why *why)
{
	const int n_ranks = s->load.n_ranks ? (int)s->load.n_ranks : 1;
	const struct shard_rank which = {(int)s->load.rank, n_ranks, s->load.ep};
	int rc = shard_init(&s->shard, &s->config, w, which, why);
	if (rc)
		return rc;
	shard_config(&s->shard, &s->config, &s->part);
	return 0;
}

int step_open_graphs(struct step *s, void (*progress)(void *arg, unsigned permille), void *arg,
		     struct why *why)
{
	const struct graphs_args g = {
		.ops = s->ops,
		.dev = s->dev,
		.stream = s->stream,
		.model = s->model,
		.group = s->group,
		.kv = s->cache.kv,
		.tokens = slots_buffer(s->slots),
		.max_rows = (int)least(least(s->lim.max_runs, s->lim.max_rows), (uint32_t)s->max_logits),
		.progress = progress,
		.progress_arg = arg,
	};
	loading_now(s->loading, BUS_DOING_WARM_UP);
	return wants_graphs(s) ? graphs_new(&s->graphs, &g, why) : 0;
}

/* Return the most values of a pooled run: a row, or the logits of `allowed` tokens. */
static uint32_t pool_width(const struct step *s)
{
	return s->config.hidden > PARAMS_POOL_IDS_MAX ? (uint32_t)s->config.hidden : PARAMS_POOL_IDS_MAX;
}

int step_open_state(struct step *s, struct why *why)
{
	const struct bus_limits *m = &s->lim;
	const struct slots_limits lim = {
		.max_slots = m->max_slots,
		.max_context = m->max_context,
		.max_blocks = (m->max_context + s->block_size - 1) / s->block_size,
		.block_size = s->block_size,
		.kinds = s->kinds.kinds,
		.n_blocks = m->n_blocks,
		.n_vocab = m->n_vocab,
	};
	int rc;
	s->batch = batch_new(m, s->block_size, s->max_logits);
	if ((rc = slots_new(&s->slots, &lim, s->ops, s->dev, s->stream, why)) ||
	    (rc = pending_new(&s->pending, s->ops, s->dev, s->batch->cap_wants, PARAMS_TOP_MAX, pool_width(s),
			      why)))
		return rc;
	if (s->shard.rank == 0 &&
	    (rc = guide_new(&s->guide,
			    &(struct guide_limits){
				    .max_slots = m->max_slots, .n_vocab = m->n_vocab, .work = s->guide_work},
			    why)))
		return rc;
	slots_follow(s->slots, s->guide);
	s->open.slots = s->slots;
	s->open.max_context = m->max_context;
	const struct sampler_args sa = {
		.ops = s->ops,
		.stream = s->stream,
		.slots = s->slots,
		.pending = s->pending,
		.guide = s->guide,
		.trace = s->trace,
		.moves = s->moves,
		.n_vocab = s->config.n_vocab,
		.max = s->max_logits,
	};
	if ((rc = sampler_new(&s->sampler, &sa, why)))
		return rc;
	s->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return s->fd < 0 ? err_why(why, -errno, "no eventfd: %s", strerror(errno)) : 0;
}

int step_open_pools(struct step *s, struct why *why)
{
	const struct cache_args ca = cache_args_of(s, 0);
	slots_pool(s->slots, s->lim.n_blocks);
	return cache_open(&s->cache, &ca, s->stream, why);
}

/* Open the state and the pools of a worker that serves alone. */
static int open_alone(struct step *s, struct why *why)
{
	loading_now(s->loading, BUS_DOING_WARM_UP);
	int rc = step_open_state(s, why);
	if (!rc && s->sized_last && !(rc = step_profile(s, why)))
		rc = step_size_last(s, why);
	loading_now(s->loading, BUS_DOING_CACHE);
	return rc ? rc : step_open_pools(s, why);
}

/* Write the load's description to the trace: bytes and operations of a step. */
static void describe(const struct step *s)
{
	struct model_config c = s->part;
	struct kern_info info;
	s->ops->info(s->dev, &info);
	c.experts.intermediate = s->config.experts.intermediate / s->shard.n_ranks; /* the mean, with ep */
	trace_load(s->trace, &(struct trace_load){
				     .device = s->ops->name,
				     .mode = info.mode,
				     .isa = info.isa,
				     .n_threads = info.n_threads,
				     .layers_bytes = model_layers_bytes(s->model),
				     .head_bytes = model_head_bytes(s->model),
				     .kv_token_bytes = s->cache.block_bytes * (int64_t)s->cache.kinds.n /
						       (int64_t)s->block_size,
				     .layers_macs = model_config_row_macs(&c),
				     .head_macs = (int64_t)c.hidden * s->shard.widths[s->shard.rank],
				     .experts = model_row_experts(s->model),
				     .expert_bytes = model_expert_bytes(s->model),
			     });
}

static int fill_device(struct step *s, const struct step_args *a, const struct weights *w, struct why *why)
{
	struct share share = {a, LAYERS_PERMILLE, 1000};
	int rc;
	if ((rc = plan_cache(s, a, w, why)) || (rc = load_model(s, a, w, why)) ||
	    (s->shard.n_ranks == 1 &&
	     ((rc = open_alone(s, why)) || (rc = step_open_graphs(s, share_progress, &share, why)))))
		return rc == -ENOMEM && s->hot.n
			       ? err_prefix(why, rc, "%lld MiB of experts are on the device by --hot-experts",
					    (long long)(s->hot.bytes >> 20))
			       : rc;
	return 0;
}

/* Log where the files deviate from config.json. */
static void log_model(const struct step *s, const struct weights *w)
{
	const struct model_config *c = &s->config;
	if (w->untied)
		log_warn("model", "output head not tied head=own reason=\"tie_word_embeddings is true, but "
				  "the head in the files has other values than the embedding\"");
	if (w->n_beyond)
		log_warn("model",
			 "layers not used layers=%d unused_layers=%d reason=\"config.json has fewer than the "
			 "files\"",
			 c->n_layers, w->n_beyond);
	if (model_config_long_factors(c, (int)s->lim.max_context))
		log_info("model",
			 "long RoPE factors rope=longrope factors=long context=%u original=%d remedy=\"for "
			 "prompts within the original context, --context ORIGINAL has the short factors\"",
			 s->lim.max_context, c->rope_original);
}

int step_open(struct step **out, const struct step_args *a, struct bus_ready *ready, struct why *why)
{
	struct step *s = xcalloc(1, sizeof *s);
	struct weights *w = NULL;
	int64_t t0 = clock_us();
	int rc;
	s->fd = -1;
	s->load = *a->load;
	s->memory_fraction = a->memory_fraction;
	s->no_graphs = a->no_graphs;
	s->two_pools = a->two_pools;
	s->loading = a->loading;
	s->trace = a->trace;
	if (a->guide)
		s->guide_work = *a->guide;
	s->least_us = a->least_us;
	s->open.source = a->drafts;
	s->open.report = a->draft_report;
	s->moves = a->moves;
	snprintf(s->device, sizeof s->device, "%s", a->device);
	const char *path = a->path ? a->path : s->load.model;
	if ((rc = model_config_load(path, &s->config, why)) ||
	    (rc = weights_open(path, &s->config, &w, why)) || (rc = choose_part(s, w, why)) ||
	    (rc = step_place_experts(s, a, why)) || (rc = choose_sizes(s, why)) ||
	    (rc = open_device(s, a, why)) || (rc = step_choose_hot(s, a, w, why)) ||
	    (rc = step_open_host_experts(s, a, w, why)) || (rc = fill_device(s, a, w, why))) {
		weights_close(w);
		step_close(s);
		return rc;
	}
	log_model(s, w);
	weights_close(w);
	s->loading = NULL;
	describe(s);
	s->load_ms = (uint32_t)((clock_us() - t0) / 1000);
	if (s->shard.n_ranks == 1)
		step_reset(s, s->load.epoch, ready);
	*out = s;
	return 0;
}

void step_close(struct step *s)
{
	if (!s)
		return;
	step_leave(s);
	step_drain(s);
	graphs_free(s->graphs);
	sampler_free(s->sampler);
	pending_free(s->pending);
	batch_free(s->batch);
	slots_free(s->slots);
	guide_free(s->guide);
	cache_close(&s->cache);
	model_free(s->model);
	hot_fini(&s->hot);
	host_experts_close(s->host_experts);
	if (s->stream)
		s->ops->stream_free(s->stream);
	if (s->dev)
		s->ops->close(s->dev);
	if (s->fd >= 0)
		close(s->fd); /* the device no longer writes to it */
	model_config_fini(&s->config);
	free(s);
}

const char *step_compute(const struct step *s)
{
	return kern_compute_name(s->compute);
}

const char *step_experts_compute(const struct step *s)
{
	return s->host_experts ? kern_compute_name(s->experts_compute) : "";
}

bool step_serves(const struct step *s, const struct bus_load *l)
{
	const struct bus_load *have = &s->load;
	return strcmp(l->model, have->model) == 0 && strcmp(l->compute, have->compute) == 0 &&
	       (!s->host_experts || strcmp(l->experts_compute, have->experts_compute) == 0) &&
	       strcmp(l->head, have->head) == 0 && strcmp(l->kv, have->kv) == 0 && l->fast == have->fast &&
	       l->block_size == have->block_size && l->max_context == have->max_context &&
	       l->max_rows == have->max_rows && l->max_slots == have->max_slots &&
	       l->max_runs == have->max_runs && l->kv_bytes == have->kv_bytes &&
	       l->swap_bytes == have->swap_bytes && l->n_threads == have->n_threads &&
	       (l->n_ranks ? l->n_ranks : 1) == (uint32_t)s->shard.n_ranks &&
	       l->rank == (uint32_t)s->shard.rank && l->ep == s->shard.ep;
}
