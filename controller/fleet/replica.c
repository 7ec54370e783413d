#include "controller/fleet/replica.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PREFILL_ROWS = 64,     /* least prompt rows of a step that measures prefill speed */
	PROBE_US = 250 * 1000, /* after this time, a worker has survived its start */
};

static enum sched_preempt preempt_mode(const char *name)
{
	if (strcmp(name, "swap") == 0)
		return SCHED_SWAP;
	return strcmp(name, "recompute") == 0 ? SCHED_RECOMPUTE : SCHED_AUTO;
}

struct sched *replica_sched_new(const struct engine_config *cfg)
{
	return sched_new(&(struct sched_config){
		.block_size = cfg->block_size,
		.max_seqs = cfg->max_seqs,
		.max_rows = cfg->max_rows,
		.chunk = cfg->chunk,
		.step_us = cfg->step_us,
		.step_auto = cfg->step_auto,
		.mixture_rows = cfg->mixture_rows,
		.probe_us = PROBE_US,
		.prefill_separate = cfg->prefill_separate,
		.no_cache = cfg->no_prefix_cache,
		.preempt = preempt_mode(cfg->preempt),
		.seed = cfg->seed,
		/* The ranks of a group would need the same drafts, and --fast has no bits to keep. */
		.drafts = cfg->tp > 1 || cfg->fast ? 0 : cfg->drafts,
	});
}

struct replica *replica_new(const struct engine_config *cfg, uint64_t id, uint64_t epoch,
			    struct worker *const *ranks, uint32_t n)
{
	struct replica *r = xcalloc(1, sizeof *r);
	r->id = id;
	r->epoch = epoch;
	r->n_ranks = n;
	memcpy(r->ranks, ranks, n * sizeof *ranks);
	r->sched = replica_sched_new(cfg);
	r->constraints = constraints_new(cfg->max_seqs);
	r->block_size = cfg->block_size;
	r->chunk = cfg->chunk && cfg->chunk < cfg->max_rows ? cfg->chunk : cfg->max_rows;
	r->kinds = KINDS_ONE;
	r->model_context = cfg->model_context;
	return r;
}

void replica_free(struct replica *r)
{
	if (!r)
		return;
	sched_free(r->sched);
	constraints_free(r->constraints);
	for (uint32_t i = 0; i < SCHED_AHEAD; i++)
		buf_fini(&r->out[i].bytes);
	free(r);
}

static void update_speed(struct replica *r)
{
	sched_speed(r->sched, r->prefill_tps, (double)r->link_bps, r->block_bytes);
}

int replica_start(struct replica *r, uint32_t *odd, struct why *why)
{
	const struct bus_ready *first = &r->ranks[0]->ready;
	uint32_t n_blocks = first->n_blocks, n_host = first->n_host_blocks;
	r->block_bytes = first->block_bytes;
	r->link_bps = first->link_bps;
	for (uint32_t i = 1; i < r->n_ranks; i++) {
		const struct bus_ready *b = &r->ranks[i]->ready;
		if (!numerics_same(b->numerics, first->numerics)) {
			*odd = i;
			return err_why(why, -EINVAL,
				       "rank %u is of another numerics class than rank 0 (%s, not %s)", i,
				       b->numerics, first->numerics);
		}
		/* All ranks share block numbers: the smallest pool decides. */
		n_blocks = b->n_blocks < n_blocks ? b->n_blocks : n_blocks;
		n_host = b->n_host_blocks < n_host ? b->n_host_blocks : n_host;
		r->block_bytes = b->block_bytes > r->block_bytes ? b->block_bytes : r->block_bytes;
		r->link_bps = b->link_bps < r->link_bps ? b->link_bps : r->link_bps;
	}
	r->kinds = first->kinds.n ? first->kinds : KINDS_ONE;
	const uint32_t pool = kinds_tokens(&r->kinds, n_blocks, r->block_size, r->chunk);
	r->max_context = pool < r->model_context ? pool : r->model_context;
	const uint64_t full = kinds_blocks(&r->kinds, r->model_context, r->block_size, r->chunk);
	r->full_kv_bytes = pool < r->model_context ? full * r->block_bytes : 0;
	snprintf(r->numerics, sizeof r->numerics, "%s", first->numerics);
	sched_set_kinds(r->sched, &r->kinds);
	sched_start(r->sched, n_blocks, n_host, r->epoch);
	r->stream_above_rows = first->stream_above_rows;
	sched_stream_above_rows(r->sched, r->stream_above_rows);
	update_speed(r);
	r->started = true;
	r->state = REPLICA_SERVING;
	return 0;
}

void replica_planned(struct replica *r, const struct plan *p)
{
	uint32_t prompt = 0;
	for (uint32_t i = 0; i < p->n_runs; i++)
		prompt += p->runs[i].n_rows > 1 && !(p->runs[i].flags & PLAN_OPEN) ? p->runs[i].n_rows : 0;
	r->rows[p->number % SCHED_AHEAD] = p->n_rows;
	r->prompt_rows[p->number % SCHED_AHEAD] = prompt;
}

void replica_plan(struct replica *r, struct plan *scratch, int64_t now_us)
{
	while (r->started && !r->paused && sched_plan(r->sched, now_us, scratch)) {
		constraints_number(r->constraints, scratch);
		replica_planned(r, scratch);
		assert(r->n_out < SCHED_AHEAD);
		bus_encode_plan(scratch, &r->out[r->n_out].bytes);
		r->out[r->n_out++].number = scratch->number;
	}
}

void replica_send(struct replica *r, struct worker_link *link, int64_t now_us)
{
	for (uint32_t i = 0; i < r->n_out; i++)
		worker_link_send_plan(link, r->ranks, r->n_ranks, r->out[i].number, &r->out[i].bytes, now_us);
	r->n_out = 0;
}

uint32_t replica_rows(const struct replica *r, const struct result *result)
{
	return r->rows[result->number % SCHED_AHEAD];
}

static void measure_prefill(struct replica *r, const struct result *result)
{
	uint32_t rows = replica_rows(r, result), prompt = r->prompt_rows[result->number % SCHED_AHEAD];
	/* A decode row costs far more: a step of mostly decodes does not measure prompts. */
	if (prompt < PREFILL_ROWS || prompt < rows - prompt || result->step_us == 0)
		return;
	double tps = rows * 1e6 / result->step_us;
	r->prefill_tps = r->prefill_tps == 0 ? tps : 0.9 * r->prefill_tps + 0.1 * tps;
	update_speed(r);
}

static void measure_decode(struct replica *r, const struct result *result)
{
	if (replica_rows(r, result) == 0 || r->prompt_rows[result->number % SCHED_AHEAD] ||
	    result->step_us == 0)
		return;
	r->decode_us = r->decode_us == 0 ? result->step_us : 0.9 * r->decode_us + 0.1 * result->step_us;
}

/* Steps that stream weights to the device do not show the cost of rows in other steps. */
static void measure_pace(struct replica *r, const struct result *result)
{
	if (r->stream_above_rows && replica_rows(r, result) > r->stream_above_rows)
		return;
	pace_note(&r->pace, replica_rows(r, result), r->prompt_rows[result->number % SCHED_AHEAD],
		  result->step_us);
	sched_step_costs(r->sched, pace_costs(&r->pace));
}

int replica_result(struct replica *r, const struct result *result, int64_t now_us, struct sched_events *ev)
{
	int rc = sched_apply(r->sched, result, now_us, ev);
	if (rc)
		return rc;
	measure_prefill(r, result);
	measure_decode(r, result);
	measure_pace(r, result);
	r->step_us_mean =
		r->step_us_mean == 0 ? result->step_us : 0.95 * r->step_us_mean + 0.05 * result->step_us;
	return 0;
}

void replica_tick(struct replica *r, int64_t now_us)
{
	int64_t second = now_us / 1000000;
	int at = (int)(second % REPLICA_RATE_SECONDS);
	if (r->rate[at].second == second)
		return;
	struct sched_stats st;
	sched_stats(r->sched, &st);
	r->rate[at].second = second;
	r->rate[at].prompt = st.prompt_tokens;
	r->rate[at].generated = st.generated_tokens;
}

uint64_t replica_load(const struct replica *r)
{
	struct sched_stats st;
	sched_stats(r->sched, &st);
	uint64_t held = st.n_blocks - st.n_free - st.n_cached;
	return st.queued_tokens + st.begun_tokens + held * r->block_size / r->kinds.n;
}

static void rates(const struct replica *r, int64_t now_us, struct counts *c)
{
	int64_t oldest = INT64_MAX;
	int at = -1;
	for (int i = 0; i < REPLICA_RATE_SECONDS; i++)
		if (r->rate[i].second && r->rate[i].second > now_us / 1000000 - REPLICA_RATE_SECONDS &&
		    r->rate[i].second < oldest) {
			oldest = r->rate[i].second;
			at = i;
		}
	if (at < 0)
		return;
	double span = (double)(now_us - oldest * 1000000) / 1e6;
	if (span < 0.5)
		return;
	c->prompt_tps = (double)(c->prompt_tokens - r->rate[at].prompt) / span;
	c->decode_tps = (double)(c->generated_tokens - r->rate[at].generated) / span;
}

void replica_counts(const struct replica *r, struct counts *out)
{
	struct sched_stats st;
	sched_stats(r->sched, &st);
	*out = st.counts;
	out->step_us_mean = r->step_us_mean;
	if (r->n_ranks)
		worker_counts_since(&r->ranks[0]->counts, &r->ranks[0]->counts_before, out);
}

void replica_status(const struct replica *r, int64_t now_us, struct engine_replica *out)
{
	static const char *const names[] = {"loading", "serving", "draining"};
	*out = (struct engine_replica){
		.id = r->id,
		.tp = r->n_ranks,
		.n_workers = r->n_ranks,
		.max_context = r->max_context,
	};
	replica_counts(r, &out->counts);
	for (uint32_t i = 0; i < r->n_ranks; i++)
		out->workers[i] = r->ranks[i]->id;
	snprintf(out->state, sizeof out->state, "%s", names[r->state]);
	snprintf(out->numerics, sizeof out->numerics, "%s", r->numerics);
	rates(r, now_us, &out->counts);
}
