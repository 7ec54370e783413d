#include "tests/sim/sched_rig.h"

#include "base/alloc.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { POISON_ALWAYS = 100 };

uint32_t rig_rnd(struct sched_rig *r, uint32_t n)
{
	r->rng = r->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((r->rng >> 33) % n);
}

void rig_fail(const struct sched_rig *r, const char *what)
{
	cr_assert_fail("seed %" PRIu64 ": %s (replay: %s=%" PRIu64 ")", r->seed, what, r->replay, r->seed);
}

void rig_init(struct sched_rig *r, uint64_t seed, const char *replay)
{
	*r = (struct sched_rig){.rng = seed * 0x9e3779b97f4a7c15u + 1,
				.seed = seed,
				.replay = replay,
				.now = 1,
				.kinds = KINDS_ONE};
	for (int i = 0; i < 4; i++)
		rig_rnd(r, 2);
}

void rig_choose_drafts(struct sched_rig *r)
{
	static const uint32_t rights[] = {0, 300, 700, 950, 1000};
	r->cfg.drafts = rig_rnd(r, 3) ? 1 + rig_rnd(r, PLAN_DRAFTS_MAX) : 0;
	r->drafts_right = rights[rig_rnd(r, 5)];
}

void rig_choose_kinds(struct sched_rig *r)
{
	const uint32_t chunk =
		r->cfg.chunk && r->cfg.chunk < r->cfg.max_rows ? r->cfg.chunk : r->cfg.max_rows;
	r->kinds = KINDS_ONE;
	if (rig_rnd(r, 2) || r->n_blocks < 8)
		return;
	r->kinds.n = 1 + rig_rnd(r, 4);
	for (uint32_t k = 0; k < r->kinds.n; k++)
		r->kinds.window[k] = rig_rnd(r, 4) ? 1 + rig_rnd(r, rig_rnd(r, 2) ? 40 : 200) : 0;
	while (kinds_blocks(&r->kinds, r->max_context, r->cfg.block_size, chunk) > r->n_blocks)
		r->max_context--;
}

void rig_open(struct sched_rig *r, uint32_t n_want)
{
	r->n_want = n_want;
	r->jobs = xcalloc(n_want, sizeof *r->jobs);
	r->sched = sched_new(&r->cfg);
}

void rig_close(struct sched_rig *r, struct sched_stats *st)
{
	while (r->n_under_way)
		rig_apply_oldest(r);
	sched_stats(r->sched, st);
	if (st->n_groups || st->n_running || st->n_waiting || st->n_free + st->n_cached != st->n_blocks ||
	    st->n_host_free != st->n_host_blocks || st->n_swapped || st->n_queued || st->queued_tokens)
		rig_fail(r, "something is left behind");
	for (uint32_t i = 0; i < r->n_jobs; i++) {
		free(r->jobs[i].prompt);
		free(r->jobs[i].want);
		params_fini(&r->jobs[i].params);
	}
	free(r->jobs);
	result_fini(&r->result);
	plan_fini(&r->plan);
	sched_events_fini(&r->ev);
	if (r->device)
		device_free(r->device);
	sched_free(r->sched);
}

/* ---- jobs ---- */

struct rig_job *rig_job(struct sched_rig *r)
{
	struct rig_job *j = &r->jobs[r->n_jobs++];
	cr_assert_leq(r->n_jobs, r->n_want);
	params_init(&j->params);
	j->params.stop_ids = xmemdup(&(uint32_t){DEVICE_STOP}, sizeof(uint32_t));
	j->params.n_stop_ids = 1;
	return j;
}

struct group *rig_group(struct sched_rig *r, struct rig_job *j)
{
	const struct params *p = &j->params;
	j->want = xcalloc((size_t)p->n * p->max_tokens, sizeof *j->want);
	if (p->beam_width) {
		uint32_t found =
			device_search(j->prompt, j->n_prompt, p, j->want, p->max_tokens, j->n_want, j->ends);
		if (found != p->n && !device_dries_up(p))
			rig_fail(r, "a search of this device finds enough");
	}
	for (uint32_t i = 0; !p->beam_width && !p->pool && i < p->n; i++)
		j->n_want[i] = device_expect(j->prompt, j->n_prompt, p, i,
					     j->want + (size_t)i * p->max_tokens, p->max_tokens);
	struct params copy;
	params_copy(&copy, p);
	return group_new((uint64_t)(j - r->jobs), xmemdup(j->prompt, j->n_prompt * sizeof *j->prompt),
			 j->n_prompt, &copy);
}

void rig_cancel(struct sched_rig *r, uint32_t job)
{
	r->jobs[job].cancelled = true;
	sched_cancel(r->sched, job, &r->ev);
}

void rig_stop(struct sched_rig *r, uint32_t job, uint32_t index)
{
	r->jobs[job].stopped[index] = true;
	sched_stop(r->sched, job, index, &r->ev);
}

/* ---- events ---- */

static void check_token(struct sched_rig *r, struct rig_job *j, const struct sched_event *e)
{
	const uint32_t *want = j->want + (size_t)e->index * j->params.max_tokens;
	uint32_t at = j->n_out[e->index];
	if (j->output_done[e->index])
		rig_fail(r, "a token after the end of its output");
	if (e->stop) {
		if (at != j->n_want[e->index] || e->token != DEVICE_STOP || at < j->params.min_tokens ||
		    (j->params.beam_width && !j->ends[e->index]))
			rig_fail(r, "a token that is not a stop token ends its output");
		return;
	}
	if (at >= j->n_want[e->index] || want[at] != e->token)
		rig_fail(r, "an output differs from the undisturbed one");
	j->n_out[e->index]++;
}

static void check_pooled(struct sched_rig *r, struct rig_job *j, const struct sched_event *e)
{
	float want[DEVICE_POOL_MAX];
	const uint32_t n = device_pool(j->prompt, j->n_prompt, &j->params, want);
	if (j->pooled || !j->params.pool || j->output_done[0])
		rig_fail(r, "pooled twice, or against its parameters");
	if (e->n_values != n || memcmp(want, r->ev.values + e->value0, n * sizeof *want) != 0)
		rig_fail(r, "the pooled rows differ from the undisturbed ones");
	j->pooled = true;
}

static void check_output_done(struct sched_rig *r, struct rig_job *j, uint32_t index, enum finish finish)
{
	bool whole = j->params.pool ? j->pooled : j->n_out[index] == j->n_want[index];
	if (j->output_done[index])
		rig_fail(r, "an output ended twice");
	j->output_done[index] = true;
	j->n_done++;
	if (j->params.beam_width && finish != FINISH_ABORT &&
	    finish != (j->ends[index] ? FINISH_STOP : FINISH_LENGTH))
		rig_fail(r, "a hypothesis ended otherwise");
	if ((finish == FINISH_LENGTH || (finish == FINISH_STOP && !j->stopped[index])) && !whole)
		rig_fail(r, "an output ended too early");
	const bool nothing = j->params.beam_width && j->n_want[index] == 0 && device_dries_up(&j->params);
	if (finish == FINISH_LENGTH && j->n_want[index] != j->params.max_tokens && !nothing)
		rig_fail(r, "an output of fewer than max_tokens ended by length");
	if (finish == FINISH_ABORT && !j->cancelled)
		rig_fail(r, "aborted without a cancel");
}

static void end_job(struct sched_rig *r, struct rig_job *j)
{
	j->done = true;
	r->n_ended++;
}

void rig_take_events(struct sched_rig *r)
{
	for (uint32_t i = 0; i < r->ev.n; i++) {
		const struct sched_event *e = &r->ev.v[i];
		struct rig_job *j = &r->jobs[e->job];
		if (j->done)
			rig_fail(r, "an event after the end of its job");
		switch (e->kind) {
		case SCHED_TOKEN:
			check_token(r, j, e);
			break;
		case SCHED_POOLED:
			check_pooled(r, j, e);
			break;
		case SCHED_OUTPUT_DONE:
			check_output_done(r, j, e->index, e->finish);
			break;
		case SCHED_GROUP_DONE:
			if (j->n_done != j->params.n)
				rig_fail(r, "a job ended before its outputs");
			end_job(r, j);
			break;
		case SCHED_GROUP_FAILED:
			if (e->code == E_DEADLINE
				    ? !j->deadline_us || r->now < j->deadline_us
				    : e->code != E_TOO_LONG ||
					      j->n_prompt + j->params.max_tokens <= r->max_context)
				rig_fail(r, "a job failed without a reason");
			end_job(r, j);
			break;
		}
	}
	r->ev.n = 0;
	r->ev.n_values = 0;
}

/* ---- worker ---- */

void rig_start_worker(struct sched_rig *r)
{
	r->device = device_new(r->cfg.max_seqs, r->n_blocks, r->n_host, r->cfg.block_size, r->max_context);
	device_draft(r->device, r->drafts_right, r->seed + r->epoch);
	device_set_kinds(r->device, &r->kinds);
	sched_set_kinds(r->sched, &r->kinds);
	sched_start(r->sched, r->n_blocks, r->n_host, ++r->epoch);
}

void rig_lose_worker(struct sched_rig *r)
{
	sched_worker_died(r->sched);
	sched_lost(r->sched);
	sched_check(r->sched);
	device_free(r->device);
	r->device = NULL;
	r->n_under_way = 0;
}

/* Overwrite free blocks: they must be free for all plans in flight.  Large pools are poisoned only now and
 * then, to save time. */
static void poison_free(struct sched_rig *r)
{
	if (r->n_blocks + r->n_host < POISON_ALWAYS || r->now % 8 == 0)
		device_poison(r->device, sched_blocks(r->sched, STORE_DEVICE),
			      sched_blocks(r->sched, STORE_HOST));
}

bool rig_plan(struct sched_rig *r)
{
	if (!sched_plan(r->sched, r->now, &r->plan))
		return false;
	if (!r->device)
		rig_fail(r, "a plan without a worker");
	device_submit(r->device, &r->plan);
	r->n_under_way++;
	poison_free(r);
	return true;
}

void rig_apply_oldest(struct sched_rig *r)
{
	poison_free(r);
	device_answer(r->device, &r->result);
	if (sched_apply(r->sched, &r->result, r->now, &r->ev))
		rig_fail(r, "a result was refused");
	r->n_under_way--;
	rig_take_events(r);
}
