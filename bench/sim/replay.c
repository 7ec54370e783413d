#include "bench/sim/replay.h"

#include "controller/sched/pace.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "proto/bus.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Steps between the last admission and the first measured step, in which arrays reach their sizes. */
enum { WARM_STEPS = 64 };
/* Number of the chat that provides the tokens of the shared prefix. */
static const uint64_t shared_chat = UINT64_MAX;

struct request {
	int64_t arrival_us, first_us, last_us; /* first_us 0: no token yet */
	uint64_t chat;
	uint32_t n_prompt, n_output, n_got;
	uint32_t n_computed; /* most positions it has ever had in the cache */
	uint32_t user, turn;
	bool admitted; /* at least once */
};

/* A future arrival.  At equal times, the order is that of the numbers. */
struct event {
	int64_t at_us;
	uint32_t request;
};

/* A plan sent to the device. */
struct flight {
	int64_t finish_us;
	struct result result;
	struct buf bytes;
	double cpu_ns; /* engine CPU time so far */
	uint32_t rows, prompt_rows;
};

/* The device's view of a slot. */
struct slot {
	uint32_t request, index;
	uint64_t given; /* number of the plan that assigned it */
};

struct spent {
	double plan_ns, encode_ns, decode_ns, apply_ns, other_ns;
	uint64_t n_allocs, n_steps;
};

struct replay {
	const struct replay_config *cfg;
	struct replay_report *report;
	struct sched *sched;
	int64_t now_us, free_us; /* free_us: time when the device becomes idle */
	struct request *requests;
	uint32_t n_requests, cap_requests;
	struct event *heap;
	uint32_t n_heap, cap_heap;
	struct slot *slots;
	struct plan plan;
	struct buf plan_bytes;
	struct result decoded;
	struct sched_events events;
	struct flight flight[SCHED_AHEAD]; /* ring */
	uint32_t first_flight, n_flight;
	struct pace pace;
	struct rng think;
	double waiting_area, running_area, held_area; /* integrals over time */
	struct spent spent;
	double clock_ns; /* cost of reading the clock, a system call: not negligible compared with a step */
	double other_ns; /* engine time charged to the next step */
	bool measuring;  /* false: warming up for `running` */
	uint32_t n_warm;
};

/* ---- helpers ---- */

/* Nanoseconds, because steps take few microseconds. */
static double cpu_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* Return the engine's time between two readings of the clock. */
static double spent_ns(const struct replay *r, double from, double to)
{
	return fmax(0, to - from - r->clock_ns);
}

static double clock_cost_ns(void)
{
	struct samples s = {0};
	for (int i = 0; i < 1000; i++) {
		double from = cpu_ns();
		samples_add(&s, cpu_ns() - from);
	}
	double median = samples_percentile(&s, 50);
	samples_fini(&s);
	return median;
}

static uint32_t token_at(const struct replay *r, uint64_t chat, uint32_t position)
{
	if (position < r->cfg->shared_prefix)
		chat = shared_chat;
	struct rng hash = {r->cfg->seed ^ (chat * 0xd6e8feb86659fd93u + position)};
	return (uint32_t)((rng_next(&hash) >> 32) * REPLAY_VOCAB >> 32);
}

static bool event_before(const struct event *a, const struct event *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->request < b->request;
}

static void heap_push(struct replay *r, struct event c)
{
	array_grow(r->heap, r->cap_heap, r->n_heap + 1);
	uint32_t i = r->n_heap++;
	for (; i && event_before(&c, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
		r->heap[i] = r->heap[(i - 1) / 2];
	r->heap[i] = c;
}

static struct event heap_pop(struct replay *r)
{
	struct event top = r->heap[0], last = r->heap[--r->n_heap];
	uint32_t i = 0;
	for (;;) {
		uint32_t k = 2 * i + 1;
		if (k >= r->n_heap)
			break;
		if (k + 1 < r->n_heap && event_before(&r->heap[k + 1], &r->heap[k]))
			k++;
		if (!event_before(&r->heap[k], &last))
			break;
		r->heap[i] = r->heap[k];
		i = k;
	}
	if (r->n_heap)
		r->heap[i] = last;
	return top;
}

int slo_parse(const char *text, struct slo *out, struct why *why)
{
	*out = (struct slo){0};
	for (const char *p = text; *p;) {
		struct {
			const char *name;
			double *at;
		} parts[] = {{"ttft:", &out->ttft_ms}, {"tpot:", &out->tpot_ms}, {"e2el:", &out->e2el_ms}};
		double *at = NULL;
		for (size_t i = 0; i < sizeof parts / sizeof *parts && !at; i++)
			if (strncmp(p, parts[i].name, strlen(parts[i].name)) == 0) {
				at = parts[i].at;
				p += strlen(parts[i].name);
			}
		char *end = NULL;
		if (at)
			*at = strtod(p, &end);
		if (!at || end == p || !isfinite(*at) || *at <= 0 || (*end && *end != ',') ||
		    (*end == ',' && !end[1]))
			return err_why(why, -EINVAL, "\"%.40s\" is not a list of ttft:MS, tpot:MS, e2el:MS",
				       text);
		p = *end ? end + 1 : end;
	}
	return 0;
}

/* ---- requests ---- */

static void add_request(struct replay *r, int64_t at_us, struct request q)
{
	array_grow(r->requests, r->cap_requests, r->n_requests + 1);
	q.arrival_us = at_us;
	r->requests[r->n_requests] = q;
	heap_push(r, (struct event){at_us, r->n_requests++});
	r->report->n_requests++;
}

static void add_trace(struct replay *r, const struct trace *t)
{
	uint64_t n_tokens = 0;
	for (size_t i = 0; i < t->n; i++) {
		add_request(r, t->v[i].at_us,
			    (struct request){.chat = i,
					     .n_prompt = t->v[i].n_prompt + r->cfg->shared_prefix,
					     .n_output = t->v[i].n_output,
					     .user = t->v[i].user});
		n_tokens += t->v[i].n_output;
	}
	samples_reserve(&r->report->itl_ms, n_tokens);
}

/* Return an output length with which no sequence ends before all are admitted and measured. */
static uint64_t running_output(const struct replay_config *c)
{
	uint64_t prompts = (uint64_t)c->running * (c->running_prompt + c->sched.block_size);
	return WARM_STEPS + (uint64_t)c->steps + c->running + 4 * (prompts / c->sched.max_rows + 1) + 16;
}

/* Return the most prompt tokens of a sequence in a step. */
static uint32_t replay_chunk(const struct replay_config *c)
{
	return c->sched.chunk && c->sched.chunk < c->sched.max_rows ? c->sched.chunk : c->sched.max_rows;
}

uint64_t replay_running_tokens(const struct replay_config *c)
{
	return c->shared_prefix + c->running_prompt + c->sched.block_size + running_output(c);
}

uint64_t replay_running_blocks(const struct replay_config *c)
{
	/* Includes the scheduler's admission watermark. */
	uint64_t each = kinds_blocks(costmodel_kinds(&c->cost),
				     (uint32_t)replay_running_tokens(c) + c->sched.block_size,
				     c->sched.block_size, replay_chunk(c)) +
			costmodel_kinds(&c->cost)->n;
	return each * c->running * 17 / 16 + 16;
}

/* Lengths differ by a token, so that not all sequences need a block in the same step. */
static void add_running(struct replay *r)
{
	const struct replay_config *c = r->cfg;
	for (uint32_t i = 0; i < c->running; i++)
		add_request(r, 0,
			    (struct request){.chat = i,
					     .n_prompt = c->shared_prefix + c->running_prompt +
							 i % c->sched.block_size,
					     .n_output = (uint32_t)running_output(c)});
}

static void arrive(struct replay *r, uint32_t id)
{
	const struct request *q = &r->requests[id];
	const uint64_t pool = kinds_tokens(costmodel_kinds(&r->cfg->cost), r->cfg->n_blocks,
					   r->cfg->sched.block_size, replay_chunk(r->cfg));
	uint64_t most = pool < r->cfg->max_context ? pool : r->cfg->max_context;
	if ((uint64_t)q->n_prompt + q->n_output > most) {
		r->report->n_refused++;
		return;
	}
	struct params params;
	params_init(&params);
	params.max_tokens = q->n_output;
	params.ignore_eos = true;
	params.seed = id;
	uint32_t *prompt = xmalloc(q->n_prompt * sizeof *prompt);
	for (uint32_t i = 0; i < q->n_prompt; i++)
		prompt[i] = token_at(r, q->chat, i);
	struct group *g = group_new((uint64_t)id + 1, prompt, q->n_prompt, &params);
	g->user = r->cfg->fcfs ? 0 : q->user + 1;
	double from = cpu_ns();
	sched_add(r->sched, &g, r->now_us);
	r->other_ns += spent_ns(r, from, cpu_ns());
}

/* Add the next turn of a chat: its history, then new text. */
static void next_turn(struct replay *r, const struct request *q)
{
	uint32_t more, n_output;
	lengths_draw(&r->cfg->lengths, &r->think, &more, &n_output);
	int64_t pause_us = (int64_t)(rng_exponential(&r->think) * r->cfg->think_us);
	add_request(r, r->now_us + pause_us,
		    (struct request){.chat = q->chat,
				     .n_prompt = q->n_prompt + q->n_got + more,
				     .n_output = n_output,
				     .user = q->user,
				     .turn = q->turn + 1});
}

static void on_token(struct replay *r, struct request *q)
{
	if (!q->n_got++)
		q->first_us = r->now_us;
	else if (r->measuring)
		samples_add(&r->report->itl_ms, (double)(r->now_us - q->last_us) / 1e3);
	q->last_us = r->now_us;
}

static bool is_good(const struct slo *slo, double ttft_ms, double tpot_ms, double e2el_ms)
{
	return (slo->ttft_ms == 0 || ttft_ms <= slo->ttft_ms) &&
	       (slo->tpot_ms == 0 || tpot_ms <= slo->tpot_ms) &&
	       (slo->e2el_ms == 0 || e2el_ms <= slo->e2el_ms);
}

static void on_done(struct replay *r, uint32_t id)
{
	struct replay_report *out = r->report;
	struct request *q = &r->requests[id];
	struct replay_user *u = &out->users[q->user];
	double ttft = (double)(q->first_us - q->arrival_us) / 1e3;
	double e2el = (double)(q->last_us - q->arrival_us) / 1e3;
	double tpot = q->n_got > 1 ? (double)(q->last_us - q->first_us) / 1e3 / (q->n_got - 1) : 0;
	bool good = is_good(&r->cfg->slo, ttft, tpot, e2el);
	out->n_done++;
	out->n_good += good;
	out->prompt_tokens += q->n_prompt;
	out->output_tokens += q->n_got;
	samples_add(&out->ttft_ms, ttft);
	samples_add(&out->e2el_ms, e2el);
	u->n_done++;
	u->n_good += good;
	u->output_tokens += q->n_got;
	samples_add(&u->ttft_ms, ttft);
	if (q->n_got > 1) {
		samples_add(&out->tpot_ms, tpot);
		samples_add(&u->tpot_ms, tpot);
	}
	if (q->turn + 1 < r->cfg->n_turns)
		next_turn(r, q);
}

static void take_events(struct replay *r)
{
	for (uint32_t i = 0; i < r->events.n; i++) {
		const struct sched_event *e = &r->events.v[i];
		if (e->kind == SCHED_TOKEN)
			on_token(r, &r->requests[e->job - 1]);
		else if (e->kind == SCHED_GROUP_DONE)
			on_done(r, (uint32_t)(e->job - 1));
	}
	r->events.n = 0;
}

/* ---- the device ---- */

/* Count rows of prompt and output.  Positions that were computed before count as recomputed. */
static void count_rows(struct replay *r, const struct plan_run *run, bool has_output)
{
	struct request *q = &r->requests[r->slots[run->slot].request];
	uint32_t end = run->pos0 + run->n_rows, known = end < q->n_computed ? end : q->n_computed;
	if (has_output && !q->admitted) {
		r->report->admitted_tokens += q->n_prompt;
		r->report->cached_tokens += run->pos0;
		q->admitted = true;
	}
	if (known > run->pos0)
		r->report->recomputed_tokens += known - run->pos0;
	if (end > q->n_computed)
		q->n_computed = end;
}

static void device_step(struct replay *r, const struct plan *p, struct result *out)
{
	for (uint32_t i = 0; i < p->n_seqs; i++)
		r->slots[p->seqs[i].slot] =
			(struct slot){(uint32_t)(p->seqs[i].seq - 1), p->seqs[i].index, p->number};
	for (uint32_t i = 0; i < p->n_forks; i++)
		r->slots[p->forks[i].child] =
			(struct slot){r->slots[p->forks[i].parent].request, p->forks[i].index, 0};
	result_reset(out);
	out->epoch = p->epoch;
	out->number = p->number;
	for (uint32_t i = 0; i < p->n_runs; i++) {
		const struct plan_run *run = &p->runs[i];
		const struct slot *s = &r->slots[run->slot];
		count_rows(r, run, s->given == p->number);
		if (run->flags & PLAN_SAMPLE)
			result_add_token(out,
					 token_at(r, r->requests[s->request].chat, run->pos0 + run->n_rows));
	}
	r->report->n_steps++;
	r->report->n_rows += p->n_rows;
	r->report->n_swap_out += p->n_swap_out;
	r->report->n_swap_in += p->n_swap_in;
	r->report->n_copies += p->n_copies;
}

/* ---- time ---- */

/* Send one plan to the device; false: the scheduler has none now. */
static bool plan_one(struct replay *r)
{
	unsigned long allocs = alloc_count();
	double t0 = cpu_ns();
	if (!sched_plan(r->sched, r->now_us, &r->plan)) {
		r->other_ns += spent_ns(r, t0, cpu_ns());
		return false;
	}
	double t1 = cpu_ns();
	bus_encode_plan(&r->plan, &r->plan_bytes);
	double t2 = cpu_ns();
	if (r->measuring)
		r->spent.n_allocs += alloc_count() - allocs;
	struct flight *f = &r->flight[(r->first_flight + r->n_flight++) % SCHED_AHEAD];
	double step_us = costmodel_step_us(&r->cfg->cost, &r->plan, r->cfg->sched.block_size);
	int64_t begin_us = r->free_us > r->now_us ? r->free_us : r->now_us;
	f->finish_us = r->free_us = begin_us + (int64_t)llround(step_us);
	double plan_ns = spent_ns(r, t0, t1), encode_ns = spent_ns(r, t1, t2);
	f->cpu_ns = plan_ns + encode_ns + r->other_ns;
	device_step(r, &r->plan, &f->result);
	f->result.step_us = (uint32_t)fmin(step_us, UINT32_MAX);
	f->rows = r->plan.n_rows;
	f->prompt_rows = 0;
	for (uint32_t i = 0; i < r->plan.n_runs; i++)
		f->prompt_rows += r->plan.runs[i].n_rows > 1 ? r->plan.runs[i].n_rows : 0;
	bus_encode_result(&f->result, &f->bytes);
	if (r->measuring) {
		r->spent.plan_ns += plan_ns;
		r->spent.encode_ns += encode_ns;
		r->spent.other_ns += r->other_ns;
		samples_add(&r->report->plan_bytes, (double)r->plan_bytes.len);
		samples_add(&r->report->step_ms, step_us / 1e3);
		r->report->busy_s += step_us / 1e6;
	}
	r->other_ns = 0;
	return true;
}

static int apply_one(struct replay *r, struct why *why)
{
	const struct replay_config *c = r->cfg;
	const struct bus_limits lim = {
		c->sched.max_seqs, c->sched.max_rows, c->sched.max_seqs, c->max_context,
		c->n_blocks,       c->n_host_blocks,  REPLAY_VOCAB,      1};
	struct flight *f = &r->flight[r->first_flight];
	r->first_flight = (r->first_flight + 1) % SCHED_AHEAD;
	r->n_flight--;
	unsigned long allocs = alloc_count();
	double t0 = cpu_ns();
	int rc = bus_decode_result(f->bytes.p, f->bytes.len, &lim, &r->decoded, why);
	double t1 = cpu_ns();
	if (rc)
		return rc;
	rc = sched_apply(r->sched, &r->decoded, r->now_us, &r->events);
	pace_note(&r->pace, f->rows, f->prompt_rows, r->decoded.step_us);
	sched_step_costs(r->sched, pace_costs(&r->pace));
	double t2 = cpu_ns();
	if (rc)
		return err_why(why, rc, "the scheduler refuses the result of its plan");
	if (r->measuring) {
		r->spent.n_allocs += alloc_count() - allocs;
		double decode_ns = spent_ns(r, t0, t1), apply_ns = spent_ns(r, t1, t2);
		r->spent.decode_ns += decode_ns;
		r->spent.apply_ns += apply_ns;
		r->spent.n_steps++;
		samples_add(&r->report->step_cpu_us, (f->cpu_ns + decode_ns + apply_ns) / 1e3);
	}
	take_events(r);
	return 0;
}

/* Advance the time; queue lengths are constant until then. */
static void advance(struct replay *r, int64_t to_us)
{
	struct sched_stats st;
	struct replay_report *out = r->report;
	sched_stats(r->sched, &st);
	double dt = (double)(to_us - r->now_us), held = 1 - (double)(st.n_free + st.n_cached) / st.n_blocks;
	r->waiting_area += dt * st.n_waiting;
	r->running_area += dt * st.n_running;
	r->held_area += dt * held;
	out->waiting_max = st.n_waiting > out->waiting_max ? st.n_waiting : out->waiting_max;
	out->running_max = st.n_running > out->running_max ? st.n_running : out->running_max;
	out->held_max = fmax(out->held_max, held);
	r->now_us = to_us;
}

/* For `running`: start measuring when all sequences decode.  Returns true when enough steps were measured. */
static bool steady_over(struct replay *r)
{
	if (!r->cfg->running)
		return false;
	if (r->measuring)
		return r->spent.n_steps >= r->cfg->steps;
	bool all = r->plan.n_runs == r->cfg->running && r->plan.n_rows == r->cfg->running;
	r->n_warm = all ? r->n_warm + 1 : 0;
	r->measuring = r->n_warm >= WARM_STEPS;
	return false;
}

static int run(struct replay *r, struct why *why)
{
	for (;;) {
		while (r->n_heap && r->heap[0].at_us <= r->now_us)
			arrive(r, heap_pop(r).request);
		while (r->n_flight < SCHED_AHEAD && plan_one(r))
			;
		if (!r->n_flight && !r->n_heap)
			break;
		int64_t next_us = r->n_flight ? r->flight[r->first_flight].finish_us : INT64_MAX;
		if (r->n_heap && r->heap[0].at_us < next_us)
			next_us = r->heap[0].at_us;
		advance(r, next_us);
		if (r->n_flight && r->flight[r->first_flight].finish_us <= r->now_us) {
			int rc = apply_one(r, why);
			if (rc)
				return rc;
		}
		if (steady_over(r))
			return 0;
	}
	struct sched_stats st;
	sched_stats(r->sched, &st);
	if (st.n_groups)
		return err_why(why, -EDEADLK, "%u requests wait, and the scheduler plans nothing",
			       st.n_groups);
	if (r->cfg->running)
		return err_why(why, -ENOSPC, "%u sequences do not run at once in a pool of %u blocks",
			       r->cfg->running, r->cfg->n_blocks);
	return 0;
}

/* ---- lifecycle ---- */

static void summarize(struct replay *r, double wall_s, double cpu_s)
{
	struct replay_report *out = r->report;
	struct sched_stats st;
	sched_stats(r->sched, &st);
	double n = r->spent.n_steps ? (double)r->spent.n_steps * 1e3 : 1;
	double sim_us = r->now_us > 0 ? (double)r->now_us : 1;
	out->n_preempted = st.n_preempted;
	out->n_preempted_swap = st.n_swapped_out;
	out->plan_cpu_us = r->spent.plan_ns / n;
	out->encode_cpu_us = r->spent.encode_ns / n;
	out->decode_cpu_us = r->spent.decode_ns / n;
	out->apply_cpu_us = r->spent.apply_ns / n;
	out->other_cpu_us = r->spent.other_ns / n;
	out->allocs_per_step = (double)r->spent.n_allocs / (n / 1e3);
	out->sim_s = sim_us / 1e6;
	out->wall_s = wall_s;
	out->cpu_s = cpu_s;
	out->waiting_mean = r->waiting_area / sim_us;
	out->running_mean = r->running_area / sim_us;
	out->held_mean = r->held_area / sim_us;
}

static void replay_fini(struct replay *r)
{
	for (int i = 0; i < SCHED_AHEAD; i++) {
		result_fini(&r->flight[i].result);
		buf_fini(&r->flight[i].bytes);
	}
	result_fini(&r->decoded);
	plan_fini(&r->plan);
	buf_fini(&r->plan_bytes);
	sched_events_fini(&r->events);
	sched_free(r->sched);
	free(r->requests);
	free(r->heap);
	free(r->slots);
}

int replay_run(const struct replay_config *cfg, const struct trace *trace, struct replay_report *out,
	       struct why *why)
{
	struct replay r = {.cfg = cfg, .report = out, .think = {cfg->seed ^ 0x7475726eu}};
	int64_t wall_us = clock_us();
	double cpu = cpu_ns();
	*out = (struct replay_report){.n_users = cfg->n_users ? cfg->n_users : 1};
	out->users = xcalloc(out->n_users, sizeof *out->users);
	r.slots = xcalloc(cfg->sched.max_seqs, sizeof *r.slots);
	r.measuring = !cfg->running;
	r.clock_ns = clock_cost_ns();
	r.sched = sched_new(&cfg->sched);
	sched_set_kinds(r.sched, costmodel_kinds(&cfg->cost));
	sched_start(r.sched, cfg->n_blocks, cfg->n_host_blocks, 1);
	sched_speed(r.sched, cfg->cost.flop_per_s / cfg->cost.flop_per_token, cfg->cost.link_bytes_per_s,
		    (uint64_t)costmodel_block_bytes(&cfg->cost, cfg->sched.block_size));
	if (cfg->running)
		add_running(&r);
	else
		add_trace(&r, trace);
	int rc = run(&r, why);
	summarize(&r, (double)(clock_us() - wall_us) / 1e6, (cpu_ns() - cpu) / 1e9);
	replay_fini(&r);
	if (rc)
		replay_report_fini(out);
	return rc;
}

void replay_report_fini(struct replay_report *r)
{
	samples_fini(&r->ttft_ms);
	samples_fini(&r->tpot_ms);
	samples_fini(&r->itl_ms);
	samples_fini(&r->e2el_ms);
	samples_fini(&r->step_ms);
	samples_fini(&r->step_cpu_us);
	samples_fini(&r->plan_bytes);
	for (uint32_t i = 0; i < r->n_users; i++) {
		samples_fini(&r->users[i].ttft_ms);
		samples_fini(&r->users[i].tpot_ms);
	}
	free(r->users);
	*r = (struct replay_report){0};
}
