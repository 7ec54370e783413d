/* step.c - executes plans: changes of state, computation, results. */
#include "worker/step_impl.h"
#include "worker/trace.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/numerics.h"
#include "grammar/grammar.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

void step_drain(struct step *s)
{
	if (!s->pending || (!pending_count(s->pending) && !s->broken))
		return;
	s->ops->stream_sync(s->stream);
	pending_clear(s->pending);
}

void step_numerics(const struct step *s, const struct kern_info *info, char *out, size_t n)
{
	char layers[PLACEMENT_TEXT], hot[HOT_TEXT];
	struct numerics c = {
		.device = info->numerics,
		.by_context = s->config.rope == ROPE_DYNAMIC || s->config.rope == ROPE_LONGROPE,
		.context = s->rope_context,
		.grammar = GRAMMAR_VERSION,
		.n_ranks = s->shard.n_ranks,
		.ep = s->shard.ep,
	};
	if (s->host_experts) {
		placement_text(&s->placement, layers);
		hot_text(&s->hot, s->config.n_layers, hot);
		c.layers = layers;
		c.hot = hot;
		c.host = host_experts_table(s->host_experts)->info.numerics;
	}
	numerics_of_worker(&c, out, n);
}

/* Return the device memory that this worker has allocated besides weights and pools, with the driver's
 * memory for its graphs. */
static int64_t scratch_bytes(const struct step *s, const struct kern_info *info)
{
	int64_t pools = s->cache.block_bytes * s->cache.n_blocks;
	if (!info->steps_take_memory) /* the host pool is in the same memory */
		pools += s->cache.block_bytes * s->cache.n_host_blocks;
	int64_t rest = info->bytes_used + graphs_bytes(s->graphs) - model_weights_bytes(s->model) - pools;
	return rest > 0 ? rest : 0;
}

void step_reset(struct step *s, uint64_t epoch, struct bus_ready *ready)
{
	struct kern_info info;
	step_drain(s);
	s->epoch = epoch;
	s->expected = 1;
	s->ended = 0;
	s->broken = false;
	slots_reset(s->slots);
	model_begin_counts(s->model);
	if (s->guide)
		guide_reset(s->guide);
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
		.host_weights_bytes = (uint64_t)model_host_experts_bytes(s->model),
		.host_bytes = (uint64_t)s->cache.block_bytes * s->lim.n_host_blocks,
		.device_used = (uint64_t)(info.bytes_total - info.bytes_free),
		.device_bytes = (uint64_t)info.bytes_total,
		.load_ms = s->load_ms,
		.block_bytes = (uint64_t)s->cache.block_bytes,
		.kinds = s->kinds.kinds,
		.link_bps = s->cache.link_bps,
		.stream_above_rows = (uint32_t)s->stream_above_rows,
		.n_threads = (uint32_t)(s->host_experts ? host_experts_table(s->host_experts)->info.n_threads
							: info.n_threads),
	};
	step_numerics(s, &info, ready->numerics, sizeof ready->numerics);
	snprintf(ready->device_name, sizeof ready->device_name, "%s", info.name);
	snprintf(ready->isa, sizeof ready->isa, "%s", info.isa);
}

/* ---- a plan ---- */

_Static_assert((int)STEP_AHEAD == (int)PENDING_AHEAD && (int)STEP_AHEAD == (int)MODEL_COUNTS,
	       "as many plans as there is memory for");

int step_vocabulary(struct step *s, const struct vocabulary *v, struct why *why)
{
	return s->guide ? guide_vocabulary(s->guide, v, why) : 0;
}

static void run_constraints(struct step *s, const struct plan *p)
{
	for (uint32_t i = 0; s->guide && i < p->n_drop_constraints; i++)
		guide_remove(s->guide, p->drop_constraints[i]);
	for (uint32_t i = 0; s->guide && i < p->n_constraints; i++)
		guide_add(s->guide, p->constraints[i].number, p->constraints[i].constraint);
}

static int run_state(struct step *s, const struct plan *p, struct why *why)
{
	int rc = 0;
	for (uint32_t i = 0; !rc && i < p->n_drop; i++)
		rc = slots_drop(s->slots, p->drop[i], why);
	run_constraints(s, p);
	for (uint32_t i = 0; !rc && i < p->n_seqs; i++)
		rc = slots_set(s->slots, &p->seqs[i], why);
	for (uint32_t i = 0; !rc && i < p->n_sets; i++)
		rc = slots_choose(s->slots, &p->sets[i], why);
	for (uint32_t i = 0; !rc && i < p->n_tables; i++)
		rc = slots_table(s->slots, &p->tables[i], why);
	for (uint32_t i = 0; !rc && i < p->n_forks; i++)
		rc = slots_fork(s->slots, &p->forks[i], why);
	return rc;
}

/* Set the reason: the device's, or the group's. */
static int device_why(const struct step *s, int rc, const char *what, struct why *why)
{
	return err_why(why, rc, "%s", s->group && tp_group_broke(rc) ? tp_group_why(s->group) : what);
}

/* Set the rows of the next group of logits.  The device has few buffers for them, and would wait for one
 * without checking for lost ranks; so in a group, wait for all of them first. */
static int set_rows(struct step *s, struct why *why)
{
	int rc = s->group ? tp_group_sync(s->group, s->ops, s->stream) : 0;
	if (!rc)
		rc = s->ops->batch_set(s->stream, &s->batch->kern);
	return rc ? device_why(s, rc, "setting the batch failed", why) : 0;
}

/* Run the head on max_logits rows at a time.  Further rows (prompt log-probabilities) follow in groups, for
 * which the batch is set again with other rows. */
static int run_head(struct step *s, struct pending_plan *f, struct why *why)
{
	struct batch *b = s->batch;
	int rc = 0, n;
	for (uint32_t first = 0; first < b->n_wants; first += (uint32_t)n) {
		n = first ? batch_group(b, first) : b->kern.n_logits;
		if (first && (rc = set_rows(s, why)))
			return rc;
		if (!b->kern.pad_to && (rc = model_head(s->model, n)))
			return device_why(s, rc, "the head failed on the device", why);
		if (s->shard.rank)
			rc = sampler_receive(s->sampler, s->group, b->wants + first, n, f, why);
		else
			rc = sampler_queue(s->sampler, s->group, model_logits(s->model), b->wants + first, n,
					   f, why);
		if (rc)
			return rc;
		s->group0 = first;
		trace_mark(s->trace, TRACE_SAMPLE);
		if ((rc = step_pool_logits(s, f, first, n)))
			return device_why(s, rc, "logits could not be copied off the device", why);
	}
	return 0;
}

static int run_batch(struct step *s, struct pending_plan *f, struct why *why)
{
	struct kern_batch *b = &s->batch->kern;
	int rc;
	s->group0 = 0;
	batch_group(s->batch, 0);
	if (b->n_rows == 0)
		return 0;
	/* A graph contains the head, for all wanted rows or none. */
	b->pad_to = (uint32_t)b->n_logits == s->batch->n_wants ? graphs_pick(s->graphs, b) : 0;
	if ((rc = s->ops->batch_set(s->stream, b)))
		return err_why(why, rc, "setting the batch failed");
	rc = b->pad_to ? graphs_launch(s->graphs, b->pad_to)
		       : model_forward(s->model, s->cache.kv, slots_buffer(s->slots), b->n_rows);
	if (!rc && !(rc = model_queue_counts(s->model, f->number)))
		f->counted = true;
	if (rc)
		return device_why(s, rc, "the model failed on the device", why);
	if ((rc = step_pool_begin(s, f, why)) || (rc = run_head(s, f, why)))
		return rc;
	rc = step_pool_rows(s, f);
	return rc ? device_why(s, rc, "pooling the rows failed", why) : 0;
}

static bool uploads_at_once(const struct plan *p)
{
	uint64_t n = p->n_sets;
	for (uint32_t i = 0; i < p->n_seqs; i++)
		n += p->seqs[i].n_tokens + 1; /* one more for mu */
	return n > SLOTS_STAGE;
}

/* An upload that waits for the device does not check for lost ranks, so wait for the plans in
 * flight first. */
static int run_group(struct step *s, const struct plan *p, struct why *why)
{
	int rc = s->group && uploads_at_once(p) ? tp_group_sync(s->group, s->ops, s->stream) : 0;
	return rc ? device_why(s, rc, "the device failed", why) : 0;
}

static int check_turn(const struct step *s, const struct plan *p, struct why *why)
{
	if (!step_joined(s))
		return err_why(why, -ESTALE, "a plan of epoch %llu: its group is lost",
			       (unsigned long long)p->epoch);
	if (s->broken)
		return err_why(why, -EINVAL, "an earlier plan failed");
	if (p->epoch != s->epoch)
		return err_why(why, -ESTALE, "a plan of epoch %llu, this is %llu",
			       (unsigned long long)p->epoch, (unsigned long long)s->epoch);
	if (p->number != s->expected)
		return err_why(why, -ENXIO, "plan %llu received, plan %llu is due",
			       (unsigned long long)p->number, (unsigned long long)s->expected);
	return 0;
}

/* All work is queued: request a notice when it is done. */
static int run_end(struct step *s, struct pending_plan *f, struct why *why)
{
	int rc = s->ops->event_record(f->done, s->stream);
	if (!rc && !s->ops->event_done(f->done)) {
		s->notified = true;
		rc = s->ops->event_notify(f->done, s->fd);
	}
	return rc ? device_why(s, rc, "the device failed", why) : 0;
}

static void trace_plan(const struct step *s, const struct plan *p)
{
	struct trace_step t = {.number = p->number,
			       .rows = s->batch->kern.n_rows,
			       .seqs = s->batch->kern.n_seqs,
			       .samples = s->batch->n_wants};
	for (uint32_t i = 0; s->trace && i < p->n_runs; i++)
		t.context += p->runs[i].pos0 + p->runs[i].n_rows;
	trace_end(s->trace, &t);
}

/* Settle the open runs of the plan before f, which its own open runs continue. */
static int settle_before(struct step *s, const struct plan *p, const struct pending_plan *f, struct why *why)
{
	struct pending_plan *before = pending_first(s->pending);
	if (before == f || before->settled || !open_any(p))
		return 0;
	int rc = tp_group_wait(s->group, s->ops, before->done, clock_us());
	return rc ? device_why(s, rc, "the device failed", why) : open_settle(&s->open, before, why);
}

/* The batch is built: f gets its open runs. */
static void note_open(const struct batch *b, struct pending_plan *f)
{
	for (uint32_t i = 0; i < b->n_open; i++)
		f->open[f->n_open++] =
			(struct pending_open){b->open[i].slot, b->open[i].want, b->open[i].n, 0};
}

int step_begin(struct step *s, const struct plan *p, struct why *why)
{
	const int64_t t0 = clock_us();
	int rc = check_turn(s, p, why);
	if (rc)
		return rc;
	struct pending_plan *f = pending_add(s->pending);
	f->epoch = p->epoch;
	f->number = p->number;
	f->begin_us = t0;
	slots_begin(s->slots);
	if ((rc = settle_before(s, p, f, why)) || (rc = run_group(s, p, why)) ||
	    (rc = run_state(s, p, why)) || (rc = cache_run(&s->cache, s->stream, p, why)) ||
	    (rc = open_begin(&s->open, p, why)) || (rc = batch_build(s->batch, s->slots, p, &s->lim, why)) ||
	    (rc = cache_settle(&s->cache, s->stream, &s->batch->kern, why)) || (rc = run_batch(s, f, why)) ||
	    (rc = run_end(s, f, why))) {
		s->broken = true;
		pending_undo(s->pending);
		if (s->group && tp_group_broke(rc))
			step_leave(s);
		return err_prefix(why, rc, "plan %llu", (unsigned long long)p->number);
	}
	note_open(s->batch, f);
	f->computes = s->batch->kern.n_rows > 0;
	trace_plan(s, p);
	s->expected++;
	const int64_t left_us = s->least_us ? t0 + s->least_us - clock_us() : 0;
	if (left_us > 0)
		usleep((useconds_t)left_us);
	return 0;
}

/* Return the time since when the device works on f, and on no earlier plan. */
static int64_t at_work_since(const struct step *s, const struct pending_plan *f)
{
	return f->begin_us > s->ended_us ? f->begin_us : s->ended_us;
}

int step_end(struct step *s, struct result *r, struct why *why)
{
	struct pending_plan *f = pending_first(s->pending);
	assert(f);
	result_reset(r);
	r->epoch = f->epoch;
	r->number = f->number;
	const int64_t since = at_work_since(s, f);
	int rc = tp_group_wait(s->group, s->ops, f->done, since);
	if (rc)
		device_why(s, rc, "the device failed", why);
	else if (s->shard.rank == 0 && !(rc = open_settle(&s->open, f, why)))
		rc = sampler_take(s->sampler, f, r, why);
	if (!rc)
		step_pool_take(s, f, r);
	if (!rc && f->counted)
		model_take_counts(s->model, f->number);
	if (!rc && f->computes)
		tp_group_warmed_up(s->group);
	s->ended_us = clock_us();
	r->step_us = (uint32_t)(s->ended_us - since);
	s->broken |= rc != 0;
	s->ended = f->number;
	pending_drop(s->pending);
	if (s->group && tp_group_broke(rc))
		step_leave(s);
	return rc ? err_prefix(why, rc, "plan %llu", (unsigned long long)r->number) : 0;
}

bool step_waits(const struct step *s)
{
	return s->host_experts;
}

int step_in_flight(const struct step *s)
{
	return s->pending ? pending_count(s->pending) : 0;
}

bool step_done(struct step *s)
{
	eventfd_t notices;
	const struct pending_plan *f = s->pending ? pending_first(s->pending) : NULL;
	if (!f)
		return false;
	/* Read before the events are checked: a later notice belongs to an event that is checked later. */
	if (s->notified)
		eventfd_read(s->fd, &notices);
	return s->ops->event_done(f->done) || tp_group_look(s->group, at_work_since(s, f));
}

int step_fd(const struct step *s)
{
	return s->fd;
}

bool step_awake(struct step *s, uint32_t *slot)
{
	return s->guide && guide_awake(s->guide, s->ended, slot);
}

void step_rest(struct step *s, int64_t now_us)
{
	if (s->guide)
		guide_rest(s->guide, now_us);
}

int step_awake_fd(const struct step *s)
{
	return s->guide ? guide_fd(s->guide) : -1;
}

int step_run(struct step *s, const struct plan *p, struct result *r, struct why *why)
{
	assert(step_in_flight(s) == 0);
	int rc = step_begin(s, p, why);
	return rc ? rc : step_end(s, r, why);
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

uint64_t step_sent(const struct step *s)
{
	return model_sent(s->model);
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
