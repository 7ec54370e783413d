#include "worker/step.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "formats/shard.h"
#include "formats/weights.h"
#include "kernels/kern.h"
#include "worker/batch.h"
#include "worker/cache.h"
#include "worker/graphs.h"
#include "worker/model.h"
#include "worker/pending.h"
#include "worker/profile.h"
#include "worker/sampler.h"
#include "worker/slots.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Where neither the controller nor the user chose. */
enum { BLOCK_SIZE = 16, ROWS = 512, RUNS = 128, SLOTS = 256 };
/* Beyond these a plan is not a plan; sizes below stay within int32. */
enum {
	BLOCK_SIZE_MAX = 256,
	ROWS_MAX = 1 << 16,
	RUNS_MAX = 1 << 14,
	SLOTS_MAX = 1 << 14,
	CONTEXT_MAX = 1 << 24
};
/* Logits of one call of the head: as many rows as runs, within this much memory. */
enum { LOGITS_BYTES = 128 << 20, LOGITS_MIN = 8 };

struct step {
	struct bus_load load; /* as it was asked for */
	char device[32];
	struct model_config config;
	struct shard shard;
	struct model_config part; /* config with the heads and values of this rank; owns nothing */
	struct group *group;      /* NULL: it serves alone, or its group is lost */
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct model *model;
	struct cache cache;
	struct slots *slots;
	struct batch *batch;
	struct sampler *sampler;
	struct graphs *graphs; /* NULL: steps run operation by operation */
	struct pending *pending; /* begun, not ended; NULL until there is state */
	int fd;                  /* readable when one of them is done; -1: none yet */
	int64_t ended_us;        /* when the last was ended */
	struct bus_limits lim;
	uint32_t own_blocks, own_host_blocks, own_context; /* before ranks agree on the least */
	uint32_t rope_context;  /* that the rotations were made for: some are others for a longer one */
	double memory_fraction; /* of the device; 0: as cache.h says */
	int64_t stored_bytes;   /* of this rank's weights, in the model's files */
	bool sized_last;        /* the pool is made of what is left when everything else is there */
	uint32_t block_size;
	int max_logits;
	uint32_t load_ms;
	uint64_t epoch;
	uint64_t expected; /* number of the plan that is due */
	uint64_t ended;    /* of the last whose result was taken */
	uint32_t group0;   /* first want of the last group of logits */
	bool broken;       /* a plan went wrong half-way */
};

/* ---- sizes ---- */

static int choose(uint32_t asked, uint32_t otherwise, uint32_t max, const char *what, uint32_t *out,
		  char *why, size_t why_n)
{
	*out = asked ? asked : otherwise;
	if (*out > max)
		return err_why(why, why_n, -EINVAL, "%s is %u, at most %u is possible", what, *out, max);
	return 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Dynamic RoPE is made for going beyond the model's own context, by its factor. */
static uint32_t longest_context(const struct model_config *c)
{
	double n = c->rope == ROPE_DYNAMIC ? c->max_position * c->rope_factor : c->max_position;
	return n < CONTEXT_MAX ? (uint32_t)n : CONTEXT_MAX;
}

static int choose_sizes(struct step *s, char *why, size_t why_n)
{
	const struct bus_load *l = &s->load;
	struct bus_limits *m = &s->lim;
	const uint32_t context = (uint32_t)s->config.max_position;
	int rc;
	if ((rc = choose(l->block_size, BLOCK_SIZE, BLOCK_SIZE_MAX, "the block size", &s->block_size, why,
			 why_n)) ||
	    (rc = choose(l->max_context, context, longest_context(&s->config), "the context", &m->max_context,
			 why, why_n)) ||
	    (rc = choose(l->max_rows, ROWS, ROWS_MAX, "rows of a step", &m->max_rows, why, why_n)) ||
	    (rc = choose(l->max_slots, SLOTS, SLOTS_MAX, "slots", &m->max_slots, why, why_n)) ||
	    (rc = choose(l->max_runs, least(RUNS, m->max_slots), RUNS_MAX, "runs of a step", &m->max_runs,
			 why, why_n)))
		return rc;
	if (s->block_size < BLOCK_SIZE || s->block_size & (s->block_size - 1))
		return err_why(why, why_n, -EINVAL, "the block size is %u, must be 16, 32, 64, 128 or 256",
			       s->block_size);
	/* Rows find their tokens by an int32 index. */
	if (!l->max_slots)
		m->max_slots = least(m->max_slots, (uint32_t)(INT32_MAX / ((int64_t)m->max_context + 1)));
	if (!l->max_runs)
		m->max_runs = least(m->max_runs, m->max_slots);
	m->n_vocab = (uint32_t)s->config.n_vocab;
	int64_t fit = LOGITS_BYTES / (4 * (int64_t)m->n_vocab);
	s->max_logits = (int)least(m->max_runs, (uint32_t)(fit > LOGITS_MIN ? fit : LOGITS_MIN));
	return 0;
}

static int compute_mode(const char *name, enum kern_compute *out, char *why, size_t why_n)
{
	static const char *const names[] = {"f32", "bf16", "int8"};
	if (!name[0])
		name = "f32";
	for (int i = 0; i < 3; i++) {
		if (strcmp(name, names[i]) == 0) {
			*out = (enum kern_compute)i;
			return 0;
		}
	}
	return err_why(why, why_n, -EINVAL, "compute mode %s is not known (f32, bf16, int8)", name);
}

/* ---- loading ---- */

static int open_device(struct step *s, const struct step_args *a, char *why, size_t why_n)
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
		.n_vocab = s->config.n_vocab,
		.n_sharing = s->shard.n_ranks,
		.fast = s->load.fast,
	};
	int rc = compute_mode(s->load.compute, &args.compute, why, why_n);
	if (rc || (rc = kern_find(a->device, &s->ops, &args.index, why, why_n)))
		return rc;
	if (s->ops->abi != KERN_ABI)
		return err_why(why, why_n, -EINVAL, "the kernels of %s are of another build (ABI %d, not %d)",
			       a->device, s->ops->abi, KERN_ABI);
	if ((rc = s->ops->open(&s->dev, &args, why, why_n)) ||
	    (args.fast && (rc = tune_use(s->ops, s->dev, &a->tune, why, why_n))))
		return rc;
	s->stream = s->ops->stream_new(s->dev);
	return s->stream ? 0 : err_why(why, why_n, -EIO, "%s gives no stream", a->device);
}

static struct cache_args cache_args_of(const struct step *s, int64_t weights_bytes)
{
	return (struct cache_args){
		.ops = s->ops,
		.dev = s->dev,
		.model = &s->part,
		.block_size = (int)s->block_size,
		.max_context = (int)s->lim.max_context,
		.weights_bytes = weights_bytes,
		.kv_bytes = s->load.kv_bytes,
		.swap_bytes = s->load.swap_bytes,
		.fraction = s->memory_fraction,
	};
}

/* How many blocks there will be; where nobody chose the context, no more than they can hold. */
static int size_cache(struct step *s, const struct cache_args *ca, char *why, size_t why_n)
{
	int rc = cache_size(&s->cache, ca, why, why_n);
	if (rc)
		return rc;
	s->lim.n_blocks = (uint32_t)s->cache.n_blocks;
	s->lim.n_host_blocks = (uint32_t)s->cache.n_host_blocks;
	uint64_t holds = (uint64_t)s->lim.n_blocks * s->block_size;
	if (!s->load.max_context && holds < s->lim.max_context)
		s->lim.max_context = (uint32_t)holds;
	s->own_blocks = s->lim.n_blocks;
	s->own_host_blocks = s->lim.n_host_blocks;
	s->own_context = s->lim.max_context;
	return 0;
}

/* Before anything is loaded: what is known by now, and what can be refused by now. */
static int plan_cache(struct step *s, const struct weights *w, char *why, size_t why_n)
{
	s->stored_bytes = shard_bytes(&s->shard, &s->config, w);
	const struct cache_args ca = cache_args_of(s, s->stored_bytes);
	s->sized_last = cache_sized_last(&ca);
	int rc = s->sized_last ? cache_check(&ca, why, why_n) : size_cache(s, &ca, why, why_n);
	s->rope_context = s->lim.max_context;
	return rc;
}

/* Each kind of step once, where that takes memory. */
static int profile(struct step *s, char *why, size_t why_n)
{
	const struct profile_args pa = {
		.ops = s->ops,
		.dev = s->dev,
		.stream = s->stream,
		.model = s->model,
		.group = s->group,
		.config = &s->part,
		.lim = &s->lim,
		.block_size = s->block_size,
		.max_logits = s->max_logits,
		.rank = s->shard.rank,
		.tokens = slots_buffer(s->slots),
		.kv = s->cache.kv,
	};
	struct kern_info info;
	s->ops->info(s->dev, &info);
	return info.steps_take_memory ? profile_run(&pa, why, why_n) : 0;
}

/* When everything else is on the device: what is left. */
static int size_cache_last(struct step *s, char *why, size_t why_n)
{
	s->lim.max_context = s->rope_context; /* an earlier group may have had less */
	const struct cache_args ca = cache_args_of(s, 0);
	return size_cache(s, &ca, why, why_n);
}

/* Of a worker that serves alone: what ranks exchange is not kept in a graph. */
static bool wants_graphs(const struct step *s, const struct step_args *a)
{
	return !a->no_graphs && s->shard.n_ranks == 1 && s->ops->graph_begin;
}

/* The larger part of the progress is the layers', the rest the graphs'. */
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

static int load_model(struct step *s, const struct step_args *a, const struct weights *w, char *why,
		      size_t why_n)
{
	struct share share = {a, 0, wants_graphs(s, a) ? LAYERS_PERMILLE : 1000};
	const struct model_args m = {
		.ops = s->ops,
		.dev = s->dev,
		.stream = s->stream,
		.config = &s->part,
		.shard = &s->shard,
		.weights = w,
		.max_rows = (int)s->lim.max_rows,
		.max_logits = s->max_logits,
		.max_context = (int)s->lim.max_context,
		.progress = share_progress,
		.progress_arg = &share,
	};
	return model_load(&s->model, &m, why, why_n);
}

/* What one rank of a group computes; of a worker alone, everything. */
static int choose_part(struct step *s, const struct weights *w, char *why, size_t why_n)
{
	const int n_ranks = s->load.n_ranks ? (int)s->load.n_ranks : 1;
	int rc = shard_init(&s->shard, &s->config, w, (int)s->load.rank, n_ranks, why, why_n);
	if (rc)
		return rc;
	s->part = s->config;
	s->part.n_heads = s->shard.n_heads;
	s->part.n_kv_heads = s->shard.n_kv_heads;
	s->part.intermediate = s->shard.intermediate;
	return 0;
}

static int open_graphs(struct step *s, const struct step_args *a, char *why, size_t why_n)
{
	struct share share = {a, LAYERS_PERMILLE, 1000};
	const struct graphs_args g = {
		.ops = s->ops,
		.dev = s->dev,
		.stream = s->stream,
		.model = s->model,
		.kv = s->cache.kv,
		.tokens = slots_buffer(s->slots),
		.max_rows = (int)least(least(s->lim.max_runs, s->lim.max_rows), (uint32_t)s->max_logits),
		.progress = share_progress,
		.progress_arg = &share,
	};
	return wants_graphs(s, a) ? graphs_new(&s->graphs, &g, why, why_n) : 0;
}

/* All but the pools. */
static int open_state(struct step *s, char *why, size_t why_n)
{
	const struct bus_limits *m = &s->lim;
	const struct slots_limits lim = {
		.max_slots = m->max_slots,
		.max_context = m->max_context,
		.max_blocks = (m->max_context + s->block_size - 1) / s->block_size,
		.n_blocks = m->n_blocks,
		.n_vocab = m->n_vocab,
	};
	int rc;
	if ((rc = slots_new(&s->slots, &lim, s->ops, s->dev, s->stream, why, why_n)) ||
	    (rc = batch_new(&s->batch, m, s->block_size, s->max_logits, why, why_n)) ||
	    (rc = pending_new(&s->pending, s->ops, s->dev, s->batch->cap_wants, PARAMS_TOP_MAX, why, why_n)))
		return rc;
	sampler_new(&s->sampler, s->ops, s->stream, s->slots, s->pending, s->config.n_vocab, s->max_logits);
	s->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return s->fd < 0 ? err_why(why, why_n, -errno, "no eventfd: %s", strerror(errno)) : 0;
}

static int open_pools(struct step *s, char *why, size_t why_n)
{
	const struct cache_args ca = cache_args_of(s, 0);
	slots_pool(s->slots, s->lim.n_blocks);
	return cache_open(&s->cache, &ca, s->stream, why, why_n);
}

/* Of a worker that serves alone. */
static int open_alone(struct step *s, char *why, size_t why_n)
{
	int rc = open_state(s, why, why_n);
	if (!rc && s->sized_last && !(rc = profile(s, why, why_n)))
		rc = size_cache_last(s, why, why_n);
	return rc ? rc : open_pools(s, why, why_n);
}

int step_open(struct step **out, const struct step_args *a, struct bus_ready *ready, char *why, size_t why_n)
{
	struct step *s = xcalloc(1, sizeof *s);
	struct weights *w = NULL;
	int64_t t0 = clock_us();
	int rc;
	s->fd = -1;
	s->load = *a->load;
	s->memory_fraction = a->memory_fraction;
	snprintf(s->device, sizeof s->device, "%s", a->device);
	if ((rc = model_config_load(s->load.model, &s->config, why, why_n)) ||
	    (rc = weights_open(s->load.model, &s->config, &w, why, why_n)) ||
	    (rc = choose_part(s, w, why, why_n)) || (rc = choose_sizes(s, why, why_n)) || (rc = open_device(s, a, why, why_n)) ||
	    (rc = plan_cache(s, w, why, why_n)) || (rc = load_model(s, a, w, why, why_n)) ||
	    (s->shard.n_ranks == 1 &&
	     ((rc = open_alone(s, why, why_n)) || (rc = open_graphs(s, a, why, why_n))))) {
		weights_close(w);
		step_close(s);
		return rc;
	}
	weights_close(w);
	s->load_ms = (uint32_t)((clock_us() - t0) / 1000);
	if (s->shard.n_ranks == 1)
		step_reset(s, s->load.epoch, ready);
	*out = s;
	return 0;
}

/* Nothing is under way any more, nobody wants to know what came of it. */
static void drain(struct step *s)
{
	if (!s->pending || (!pending_count(s->pending) && !s->broken))
		return;
	s->ops->stream_sync(s->stream);
	pending_clear(s->pending);
}

void step_close(struct step *s)
{
	if (!s)
		return;
	step_leave(s);
	drain(s);
	graphs_free(s->graphs);
	sampler_free(s->sampler);
	pending_free(s->pending);
	batch_free(s->batch);
	slots_free(s->slots);
	cache_close(&s->cache);
	model_free(s->model);
	if (s->stream)
		s->ops->stream_free(s->stream);
	if (s->dev)
		s->ops->close(s->dev);
	if (s->fd >= 0)
		close(s->fd); /* the device does not write to it any more */
	model_config_fini(&s->config);
	free(s);
}

bool step_serves(const struct step *s, const struct bus_load *l)
{
	const struct bus_load *have = &s->load;
	return strcmp(l->model, have->model) == 0 && strcmp(l->compute, have->compute) == 0 &&
	       l->fast == have->fast &&
	       l->block_size == have->block_size && l->max_context == have->max_context &&
	       l->max_rows == have->max_rows && l->max_slots == have->max_slots &&
	       l->max_runs == have->max_runs && l->kv_bytes == have->kv_bytes &&
	       l->swap_bytes == have->swap_bytes && l->n_threads == have->n_threads &&
	       (l->n_ranks ? l->n_ranks : 1) == (uint32_t)s->shard.n_ranks &&
	       l->rank == (uint32_t)s->shard.rank;
}

/* The numerics class: what two workers must share for their bits to be the same.  RoPE scalings
 * that look at the context make it part of the class. */
static void numerics_text(const struct step *s, const struct kern_info *info, char *out, size_t n)
{
	size_t len = (size_t)snprintf(out, n, "%s", info->numerics);
	if (len < n && (s->config.rope == ROPE_DYNAMIC || s->config.rope == ROPE_LONGROPE))
		len += (size_t)snprintf(out + len, n - len, " ctx=%u", s->rope_context);
	/* Partial rows are added: another number of ranks adds other partial rows. */
	if (len < n && s->shard.n_ranks > 1)
		snprintf(out + len, n - len, " tp=%d", s->shard.n_ranks);
}

/* All that this worker has asked for there, beside weights and pools, and what the driver took for its
 * graphs. */
static int64_t scratch_bytes(const struct step *s, const struct kern_info *info)
{
	int64_t pools = s->cache.block_bytes * s->cache.n_blocks;
	if (!info->steps_take_memory) /* the host pool is there, too */
		pools += s->cache.block_bytes * s->cache.n_host_blocks;
	int64_t rest = info->bytes_used + graphs_bytes(s->graphs) - model_weights_bytes(s->model) - pools;
	return rest > 0 ? rest : 0;
}

void step_reset(struct step *s, uint64_t epoch, struct bus_ready *ready)
{
	struct kern_info info;
	drain(s);
	s->epoch = epoch;
	s->expected = 1;
	s->ended = 0;
	s->broken = false;
	slots_reset(s->slots);
	if (!ready)
		return;
	s->ops->info(s->dev, &info);
	*ready = (struct bus_ready){
		.epoch = epoch,
		.n_blocks = s->lim.n_blocks,
		.n_host_blocks = s->lim.n_host_blocks,
		.n_vocab = s->lim.n_vocab,
		.weights_bytes = (uint64_t)model_weights_bytes(s->model),
		.kv_bytes = (uint64_t)s->cache.block_bytes * s->lim.n_blocks,
		.stored_bytes = (uint64_t)s->stored_bytes,
		.scratch_bytes = (uint64_t)scratch_bytes(s, &info),
		.host_bytes = (uint64_t)s->cache.block_bytes * s->lim.n_host_blocks,
		.device_used = (uint64_t)(info.bytes_total - info.bytes_free),
		.device_bytes = (uint64_t)info.bytes_total,
		.load_ms = s->load_ms,
		.block_bytes = (uint64_t)s->cache.block_bytes,
		.link_bps = s->cache.link_bps,
		.n_threads = (uint32_t)info.n_threads,
	};
	numerics_text(s, &info, ready->numerics, sizeof ready->numerics);
	snprintf(ready->device_name, sizeof ready->device_name, "%s", info.name);
	snprintf(ready->isa, sizeof ready->isa, "%s", info.isa);
}

/* ---- the group ---- */

/* What the ranks must have in common, as a line that a person can read. */
static void same_text(const struct step *s, char *out, size_t n)
{
	struct kern_info info;
	char numerics[256];
	s->ops->info(s->dev, &info);
	numerics_text(s, &info, numerics, sizeof numerics);
	snprintf(out, n, "%s; %s of %d layers, %d x %d, vocabulary %d; block size %u, rows %u, runs %u, slots %u",
		 numerics, s->config.arch_name, s->config.n_layers, s->config.hidden, s->config.intermediate,
		 s->config.n_vocab, s->block_size, s->lim.max_rows, s->lim.max_runs, s->lim.max_slots);
}

static int join_group(struct step *s, const struct bus_load *load, const struct step_group *g, char *why,
		      size_t why_n)
{
	int cols = 0;
	for (int r = 0; r < s->shard.n_ranks; r++)
		cols = s->shard.widths[r] > cols ? s->shard.widths[r] : cols;
	const struct group_args a = {
		.device = s->device,
		.dev = s->dev,
		.epoch = load->epoch,
		.rank = s->shard.rank,
		.n_ranks = s->shard.n_ranks,
		.meet = load->meet,
		.mine = g->mine,
		.max_cols = cols,
		.timeout_ms = g->timeout_ms,
		.cancelled = g->cancelled,
		.cancelled_arg = g->cancelled_arg,
	};
	return group_join(&s->group, &a, why, why_n);
}

/* Ranks of other kinds are told apart before they compute together.  Where one has its pool still to make
 * of what is left, all of them run the steps that show it: also those that have theirs from a group
 * before, whose sequences are forgotten by now. */
static int open_rank(struct step *s, const char *same, char *why, size_t why_n)
{
	const bool wants = !s->cache.kv && s->sized_last;
	struct group_pools all = {.n_blocks = !wants};
	int rc = s->slots ? 0 : open_state(s, why, why_n);
	if (rc || (rc = group_agree(s->group, same, &all, why, why_n)))
		return rc;
	if (!all.n_blocks && (rc = profile(s, why, why_n)))
		return rc;
	return wants ? size_cache_last(s, why, why_n) : 0;
}

static int agree(struct step *s, const char *same, char *why, size_t why_n)
{
	struct group_pools pools = {s->own_blocks, s->own_host_blocks, s->own_context};
	int rc = group_agree(s->group, same, &pools, why, why_n);
	if (rc)
		return rc;
	s->lim.n_blocks = pools.n_blocks;
	s->lim.n_host_blocks = pools.n_host_blocks;
	s->lim.max_context = pools.max_context;
	return 0;
}

int step_join(struct step *s, const struct bus_load *load, const struct step_group *g, struct bus_ready *ready,
	      char *why, size_t why_n)
{
	char same[512];
	assert(step_serves(s, load) && s->shard.n_ranks > 1);
	step_leave(s);
	int rc = join_group(s, load, g, why, why_n);
	if (rc)
		return rc;
	model_set_group(s->model, s->group);
	same_text(s, same, sizeof same);
	if ((rc = open_rank(s, same, why, why_n)) || (rc = agree(s, same, why, why_n)))
		goto fail;
	/* Pools are made once; a later group may use less of them, never more. */
	if (!s->cache.kv) {
		s->cache.n_blocks = (int)s->lim.n_blocks;
		s->cache.n_host_blocks = (int)s->lim.n_host_blocks;
		s->own_blocks = s->lim.n_blocks;
		s->own_host_blocks = s->lim.n_host_blocks;
		if ((rc = open_pools(s, why, why_n)))
			goto fail;
	}
	step_reset(s, load->epoch, ready);
	return 0;
fail:
	step_leave(s);
	return rc;
}

void step_leave(struct step *s)
{
	if (!s->group)
		return;
	/* The device may still work on what the group has begun. */
	group_sync(s->group, s->ops, s->stream);
	model_set_group(s->model, NULL);
	group_leave(s->group);
	s->group = NULL;
}

bool step_joined(const struct step *s)
{
	return s->shard.n_ranks == 1 || s->group;
}

int step_rank(const struct step *s)
{
	return s->shard.rank;
}

int step_group_size(const struct step *s)
{
	return s->shard.n_ranks;
}

/* ---- a plan ---- */

_Static_assert((int)STEP_AHEAD == (int)PENDING_AHEAD, "as many plans as there is memory for");

static int run_state(struct step *s, const struct plan *p, char *why, size_t why_n)
{
	int rc = 0;
	for (uint32_t i = 0; !rc && i < p->n_drop; i++)
		rc = slots_drop(s->slots, p->drop[i], why, why_n);
	for (uint32_t i = 0; !rc && i < p->n_seqs; i++)
		rc = slots_set(s->slots, &p->seqs[i], why, why_n);
	for (uint32_t i = 0; !rc && i < p->n_sets; i++)
		rc = slots_choose(s->slots, &p->sets[i], why, why_n);
	for (uint32_t i = 0; !rc && i < p->n_tables; i++)
		rc = slots_table(s->slots, &p->tables[i], why, why_n);
	for (uint32_t i = 0; !rc && i < p->n_forks; i++)
		rc = slots_fork(s->slots, &p->forks[i], why, why_n);
	return rc;
}

/* What went wrong: the device, or the group. */
static int device_why(const struct step *s, int rc, const char *what, char *why, size_t why_n)
{
	return err_why(why, why_n, rc, "%s", s->group && group_broke(rc) ? group_why(s->group) : what);
}

/* The head takes max_logits rows at a time; further ones (prompt log-probabilities) follow in
 * groups, for which the batch is set again with other rows. */
static int run_head(struct step *s, struct pending_plan *f, char *why, size_t why_n)
{
	struct batch *b = s->batch;
	int rc = 0, n;
	for (uint32_t first = 0; first < b->n_wants; first += (uint32_t)n) {
		n = first ? batch_group(b, first) : b->kern.n_logits;
		if (first && (rc = s->ops->batch_set(s->stream, &b->kern)))
			return err_why(why, why_n, rc, "setting the batch failed");
		if (!b->kern.pad_to && (rc = model_head(s->model, n)))
			return device_why(s, rc, "the head failed on the device", why, why_n);
		if (s->shard.rank)
			rc = sampler_hear(s->sampler, s->group, b->wants + first, n, f, why, why_n);
		else
			rc = sampler_queue(s->sampler, s->group, model_logits(s->model), b->wants + first, n,
					   f, why, why_n);
		if (rc)
			return rc;
		s->group0 = first;
	}
	return 0;
}

static int run_batch(struct step *s, struct pending_plan *f, char *why, size_t why_n)
{
	struct kern_batch *b = &s->batch->kern;
	int rc;
	s->group0 = 0;
	batch_group(s->batch, 0);
	if (b->n_rows == 0)
		return 0;
	/* A graph has the head in it: of all that is wanted, or of nothing. */
	b->pad_to = (uint32_t)b->n_logits == s->batch->n_wants ? graphs_pick(s->graphs, b) : 0;
	if ((rc = s->ops->batch_set(s->stream, b)))
		return err_why(why, why_n, rc, "setting the batch failed");
	rc = b->pad_to ? graphs_launch(s->graphs, b->pad_to)
		       : model_forward(s->model, s->cache.kv, slots_buffer(s->slots), b->n_rows);
	if (rc)
		return device_why(s, rc, "the model failed on the device", why, why_n);
	return run_head(s, f, why, why_n);
}

static int check_turn(const struct step *s, const struct plan *p, char *why, size_t why_n)
{
	if (!step_joined(s))
		return err_why(why, why_n, -ESTALE, "a plan of epoch %llu, whose group is lost",
			       (unsigned long long)p->epoch);
	if (s->broken)
		return err_why(why, why_n, -EINVAL, "an earlier plan went wrong");
	if (p->epoch != s->epoch)
		return err_why(why, why_n, -ESTALE, "a plan of epoch %llu, this is %llu",
			       (unsigned long long)p->epoch, (unsigned long long)s->epoch);
	if (p->number != s->expected)
		return err_why(why, why_n, -ENXIO, "plan %llu came where %llu was due",
			       (unsigned long long)p->number, (unsigned long long)s->expected);
	return 0;
}

/* All is queued: say when it is done.  The ranks of a group wait for each other, and see the loss of
 * one, only here. */
static int run_end(struct step *s, struct pending_plan *f, char *why, size_t why_n)
{
	int rc = s->group ? group_sync(s->group, s->ops, s->stream) : 0;
	if (!rc)
		rc = s->ops->event_record(f->done, s->stream);
	if (!rc)
		rc = s->ops->event_notify(f->done, s->fd);
	return rc ? device_why(s, rc, "the device failed", why, why_n) : 0;
}

int step_begin(struct step *s, const struct plan *p, char *why, size_t why_n)
{
	const int64_t t0 = clock_us();
	int rc = check_turn(s, p, why, why_n);
	if (rc)
		return rc;
	struct pending_plan *f = pending_add(s->pending);
	f->epoch = p->epoch;
	f->number = p->number;
	f->begin_us = t0;
	slots_begin(s->slots);
	if ((rc = run_state(s, p, why, why_n)) || (rc = cache_run(&s->cache, s->stream, p, why, why_n)) ||
	    (rc = batch_build(s->batch, s->slots, p, &s->lim, why, why_n)) ||
	    (rc = cache_settle(&s->cache, s->stream, &s->batch->kern, why, why_n)) ||
	    (rc = run_batch(s, f, why, why_n)) || (rc = run_end(s, f, why, why_n))) {
		s->broken = true;
		pending_undo(s->pending);
		if (s->group && group_broke(rc))
			step_leave(s);
		return err_prefix(why, why_n, rc, "plan %llu", (unsigned long long)p->number);
	}
	s->expected++;
	return 0;
}

int step_end(struct step *s, struct result *r, char *why, size_t why_n)
{
	const struct pending_plan *f = pending_first(s->pending);
	assert(f);
	result_reset(r);
	r->epoch = f->epoch;
	r->number = f->number;
	int rc = s->ops->event_sync(f->done);
	if (rc)
		err_why(why, why_n, rc, "the device failed");
	else if (s->shard.rank == 0)
		rc = sampler_take(s->sampler, f, r, why, why_n);
	/* It worked on the one before until that was ended. */
	const int64_t now = clock_us(), since = f->begin_us > s->ended_us ? f->begin_us : s->ended_us;
	r->step_us = (uint32_t)(now - since);
	s->ended_us = now;
	s->broken |= rc != 0;
	s->ended = f->number;
	pending_drop(s->pending);
	return rc ? err_prefix(why, why_n, rc, "plan %llu", (unsigned long long)r->number) : 0;
}

int step_under_way(const struct step *s)
{
	return s->pending ? pending_count(s->pending) : 0;
}

bool step_done(struct step *s)
{
	eventfd_t told;
	const struct pending_plan *f = s->pending ? pending_first(s->pending) : NULL;
	if (!f)
		return false;
	/* Read first: what is told after that is about what is looked at later. */
	eventfd_read(s->fd, &told);
	return s->ops->event_done(f->done);
}

int step_fd(const struct step *s)
{
	return s->fd;
}

int step_run(struct step *s, const struct plan *p, struct result *r, char *why, size_t why_n)
{
	assert(step_under_way(s) == 0);
	int rc = step_begin(s, p, why, why_n);
	return rc ? rc : step_end(s, r, why, why_n);
}

/* ---- look up ---- */

uint64_t step_expected(const struct step *s)
{
	return s->expected;
}

uint64_t step_ended(const struct step *s)
{
	return s->ended;
}

uint64_t step_epoch(const struct step *s)
{
	return s->epoch;
}

const struct bus_limits *step_limits(const struct step *s)
{
	return &s->lim;
}

uint32_t step_block_size(const struct step *s)
{
	return s->block_size;
}

const struct model_config *step_config(const struct step *s)
{
	return &s->config;
}

uint64_t step_replayed(const struct step *s)
{
	return graphs_launched(s->graphs);
}

int step_logits(struct step *s, uint32_t i, float *out)
{
	const struct batch *b = s->batch;
	const size_t bytes = (size_t)s->config.n_vocab * sizeof(float);
	for (uint32_t w = 0, seen = 0; w < b->n_wants; w++) {
		if (b->wants[w].forced >= 0 || seen++ != i)
			continue;
		if (w < s->group0 || s->shard.rank)
			return -ENOENT;
		const char *from = (const char *)model_logits(s->model) + (size_t)(w - s->group0) * bytes;
		int rc = s->ops->download(s->stream, out, from, bytes);
		return rc ? rc : s->ops->stream_sync(s->stream);
	}
	return -ENOENT;
}
