#include "controller/fleet.h"

#include "base/alloc.h"
#include "base/log.h"
#include "controller/fleet_impl.h"
#include "controller/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>

enum {
	TICK_US = 100 * 1000, /* deadlines, orders */
	/* The ranks of a group that broke say hello when they notice; rank 0 is to be the one that has
	 * the first shard loaded, if it does so within this time. */
	MEET_US = 1000 * 1000,
	/* A group that breaks so soon is not formed anew at once. */
	YOUNG_US = 2 * 1000 * 1000,
	HOLD_US = 500 * 1000,
};

/* ---- what others are told ---- */

void fleet_notice(struct fleet *f, struct engine_notice n)
{
	if (f->cfg->on_notice)
		f->cfg->on_notice(f->cfg->on_notice_user, &n);
}

void fleet_update(struct fleet *f, const char *why)
{
	bool ready = false;
	uint32_t most = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++)
		if (f->replicas[i]->state == REPLICA_SERVING) {
			ready = true;
			most = f->replicas[i]->max_context > most ? f->replicas[i]->max_context : most;
		}
	if (!ready)
		most = f->max_context; /* what was there last is what can be hoped for */
	bool turned = ready != f->ready;
	if (!turned && most == f->max_context && !why[0])
		return;
	f->ready = ready;
	f->served = f->served || ready;
	f->max_context = most;
	struct engine_event *ev = emit_event_new(ENGINE_STATE, 0);
	ev->ready = ready;
	ev->max_context = most;
	snprintf(ev->why, sizeof ev->why, "%s", why);
	emit_event(f->emit, ev);
	if (turned)
		fleet_notice(
			f, (struct engine_notice){.kind = ready ? ENGINE_NOTICE_READY : ENGINE_NOTICE_UNREADY,
						  .why = why});
}

/* ---- groups ---- */

struct replica *fleet_by_epoch(const struct fleet *f, uint64_t epoch)
{
	for (uint32_t i = 0; epoch && i < f->n_replicas; i++)
		if (f->replicas[i]->epoch == epoch)
			return f->replicas[i];
	return NULL;
}

static void remember(struct fleet *f, const struct replica *r)
{
	struct sched_stats st;
	sched_stats(r->sched, &st);
	f->gone.n_preempted += st.n_preempted;
	f->gone.n_swapped_out += st.n_swapped_out;
	f->gone.prefix_queries += st.prefix_queries;
	f->gone.prefix_hits += st.prefix_hits;
	f->gone.prompt_tokens += st.prompt_tokens;
	f->gone.generated_tokens += st.generated_tokens;
	f->gone.n_plans += st.n_plans;
}

void fleet_take_down(struct fleet *f, struct replica *r, int64_t now_us, const char *why)
{
	uint32_t at = 0;
	while (f->replicas[at] != r)
		at++;
	f->replicas[at] = f->replicas[--f->n_replicas];
	if (why[0])
		log_warn("fleet", "replica=%llu is over: %s", (unsigned long long)r->id, why);
	if (r->n_ranks > 1 && r->started && now_us - r->started_us < YOUNG_US)
		f->form_us = now_us + HOLD_US;
	for (uint32_t i = 0; i < r->n_ranks; i++)
		if (r->ranks[i]->epoch == r->epoch)
			wlink_idle(r->ranks[i], now_us);
	if (r->started)
		sched_lost(r->sched);
	fleet_move_all(f, r, now_us);
	remember(f, r);
	fleet_update(f, why);
	replica_free(r);
}

static size_t kind_length(const char *device)
{
	return strcspn(device, ":");
}

bool fleet_same_kind(const struct wlink_worker *a, const struct wlink_worker *b)
{
	size_t n = kind_length(a->hello.device);
	return strcmp(a->hello.host, b->hello.host) == 0 && n == kind_length(b->hello.device) &&
	       strncmp(a->hello.device, b->hello.device, n) == 0;
}

static bool is_idle(const struct fleet *f, const struct wlink_worker *k)
{
	return k->state == WLINK_JOINING && !k->broken && (f->tp == 1 || k->hello.meet[0]);
}

/* Rank 0 is where the others meet, which must be a place that nobody has used.  False: not yet. */
static bool choose_first(const struct fleet *f, struct wlink_worker **ranks, int64_t now_us)
{
	if (f->tp == 1 || !ranks[0]->meet_used)
		return true;
	if (now_us - ranks[0]->idle_us < MEET_US)
		return false;
	for (uint32_t i = 1; i < f->tp; i++)
		if (!ranks[i]->meet_used) {
			struct wlink_worker *first = ranks[i];
			ranks[i] = ranks[0];
			ranks[0] = first;
			return true;
		}
	return false;
}

/* tp idle workers of the kind of `like`, each at the rank whose shard it has loaded, if it has one.
 * False: there are too few now. */
static bool choose_ranks(struct fleet *f, const struct wlink_worker *like, struct wlink_worker **ranks,
			 int64_t now_us)
{
	uint32_t n = 0;
	memset(ranks, 0, f->tp * sizeof *ranks);
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < wlink_rows(f->link) && n < f->tp; i++) {
			struct wlink_worker *k = wlink_at(f->link, i);
			if (!is_idle(f, k) || !fleet_same_kind(k, like))
				continue;
			bool placed = k->n_ranks == f->tp && ranks[k->rank] == k;
			if (pass == 0 && k->n_ranks == f->tp && !ranks[k->rank]) {
				ranks[k->rank] = k;
				n++;
			} else if (pass == 1 && !placed) {
				uint32_t at = 0;
				while (ranks[at])
					at++;
				ranks[at] = k;
				n++;
			}
		}
	return n == f->tp && choose_first(f, ranks, now_us);
}

static void form_groups(struct fleet *f, int64_t now_us)
{
	struct wlink_worker *ranks[BUS_RANKS_MAX];
	if (now_us < f->form_us)
		return;
	for (uint32_t i = 0; i < wlink_rows(f->link) && f->n_replicas < ENGINE_REPLICAS_MAX; i++) {
		struct wlink_worker *k = wlink_at(f->link, i);
		if (!is_idle(f, k) || !choose_ranks(f, k, ranks, now_us))
			continue;
		struct replica *r = replica_new(f->cfg, ++f->last_replica, ++f->last_epoch, ranks, f->tp);
		f->replicas[f->n_replicas++] = r;
		log_info("fleet", "group replica=%llu tp=%u host=%s device=%s worker=%llu",
			 (unsigned long long)r->id, f->tp, k->hello.host, k->hello.device,
			 (unsigned long long)ranks[0]->id);
		wlink_load(f->link, ranks, f->tp, r->epoch, now_us);
	}
}

uint32_t fleet_class(struct fleet *f, const char *numerics)
{
	for (uint32_t i = 0; i < f->n_classes; i++)
		if (strcmp(f->classes[i].numerics, numerics) == 0)
			return i + 1;
	f->classes = xrealloc(f->classes, f->n_classes + 1, sizeof *f->classes);
	snprintf(f->classes[f->n_classes].numerics, sizeof f->classes[0].numerics, "%s", numerics);
	return ++f->n_classes;
}

/* ---- what workers say ---- */

static void on_ready(struct fleet *f, struct replica *r, int64_t now_us)
{
	uint32_t odd;
	char why[700];
	if (++r->n_ready < r->n_ranks)
		return;
	if (replica_start(r, &odd, why, sizeof why)) {
		snprintf(f->last_why, sizeof f->last_why, "%s", why);
		wlink_drop(f->link, r->ranks[odd], now_us);
		fleet_take_down(f, r, now_us, why);
		return;
	}
	r->started_us = now_us;
	r->class = fleet_class(f, r->numerics);
	log_info("fleet", "replica serves replica=%llu tp=%u max_context=%u", (unsigned long long)r->id,
		 r->n_ranks, r->max_context);
	if (!f->served)
		f->max_context = 0; /* until now it was a guess */
	fleet_update(f, "");
	fleet_empty_lobby(f);
}

/* The replica is over, and what it computed may be why. */
static void break_down(struct fleet *f, struct replica *r, int64_t now_us, const char *why)
{
	if (r->started)
		sched_blame(r->sched);
	fleet_take_down(f, r, now_us, why);
}

static void on_result(struct fleet *f, struct replica *r, int64_t now_us)
{
	emit_prompts(f->emit, r->sched, &f->result);
	uint32_t rows = replica_rows(r, &f->result);
	if (replica_result(r, &f->result, now_us, &f->events)) {
		struct wlink_worker *k = r->ranks[0];
		log_error("fleet", "result number=%llu does not fit its plan",
			  (unsigned long long)f->result.number);
		wlink_drop(f->link, k, now_us);
		fleet_notice(f,
			     (struct engine_notice){.kind = ENGINE_NOTICE_LOST, .pid = wlink_local_pid(k)});
		break_down(f, r, now_us, "a worker sent a result that fits no plan");
		return;
	}
	metrics_observe(f->cfg->metrics, METRIC_ITERATION_TOKENS, rows);
	fleet_flush(f, r, now_us);
}

/* A worker is lost, and its group with it. */
static void on_gone(struct fleet *f, const struct wlink_event *ev, int64_t now_us)
{
	struct replica *r = fleet_by_epoch(f, ev->epoch);
	int64_t pid = wlink_local_pid(ev->worker);
	bool failed = ev->kind == WLINK_FAILED;
	log_warn("fleet", "worker=%llu lost: %s", (unsigned long long)ev->worker->id, ev->why);
	snprintf(f->last_why, sizeof f->last_why, "%s", ev->why);
	/* One that says itself that it cannot serve ends by itself, and another try would end alike.  One that a
	 * debugger holds is not killed under his hands: if it lives, it says hello again. */
	if (!failed && pid && f->cfg->silent_us >= 0)
		fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_LOST, .pid = pid});
	if (r)
		break_down(f, r, now_us, ev->why);
	if (failed) {
		fleet_orders_failed(f, ev->why);
		fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_FAILED, .why = ev->why});
	}
}

static void on_event(struct fleet *f, const struct wlink_event *ev, int64_t now_us)
{
	struct replica *r = fleet_by_epoch(f, ev->epoch);
	switch (ev->kind) {
	case WLINK_NONE:
	case WLINK_LEFT:
		break;
	case WLINK_HELLO:
		/* A rank may tell that its group broke before it is seen which one died. */
		if (r && r->n_ranks > 1)
			break_down(f, r, now_us, ev->why);
		else if (r)
			fleet_take_down(f, r, now_us, ev->why);
		break;
	case WLINK_MISSED:
		if (r)
			fleet_take_down(f, r, now_us, ev->why);
		break;
	case WLINK_READY:
		if (r)
			on_ready(f, r, now_us);
		break;
	case WLINK_RESULT:
		if (r)
			on_result(f, r, now_us);
		break;
	case WLINK_GONE:
	case WLINK_FAILED:
		on_gone(f, ev, now_us);
		break;
	}
}

static void tick_workers(struct fleet *f, int64_t now_us)
{
	struct wlink_event ev;
	while (wlink_tick(f->link, now_us, &ev))
		on_event(f, &ev, now_us);
}

void fleet_receive(struct fleet *f, int64_t now_us)
{
	struct wlink_event ev;
	while (wlink_recv(f->link, now_us, &f->result, &ev))
		on_event(f, &ev, now_us);
	tick_workers(f, now_us);
}

static void send_plans(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < f->n_replicas; i++)
		replica_plan(f->replicas[i], f->link, &f->plan, now_us);
}

void fleet_turn(struct fleet *f, int64_t now_us)
{
	fleet_insist(f, now_us);
	form_groups(f, now_us);
	fleet_judge_unsized(f, now_us);
	fleet_drain_jobs(f, now_us);
	send_plans(f, now_us);
	fleet_balance(f, now_us);
	tick_workers(f, now_us);
	if (now_us - f->looked_us >= TICK_US) {
		f->looked_us = now_us;
		fleet_expire(f, now_us);
		for (uint32_t i = 0; i < f->n_replicas; i++)
			replica_tick(f->replicas[i], now_us);
	}
	fleet_orders(f, now_us);
}

void fleet_retire(struct fleet *f, struct wlink_worker *k, int64_t now_us)
{
	int64_t pid = wlink_local_pid(k);
	if (pid)
		fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_RETIRE, .pid = pid});
	log_info("fleet", "worker=%llu ends pid=%lld", (unsigned long long)k->id, (long long)k->hello.pid);
	wlink_retire(f->link, k, now_us);
}

/* ---- lifecycle ---- */

int fleet_open(void *zmq_context, const struct engine_config *cfg, struct emit *emit, struct fleet **out,
	       char *why, size_t why_n)
{
	struct fleet *f = xcalloc(1, sizeof *f);
	f->cfg = cfg;
	f->emit = emit;
	f->tp = cfg->tp ? cfg->tp : 1;
	f->max_context = cfg->model_context;
	int rc = wlink_open(zmq_context, cfg, &f->link, why, why_n);
	if (rc) {
		free(f);
		return rc;
	}
	f->lobby = replica_sched_new(cfg);
	*out = f;
	return 0;
}

void fleet_tell_stop(struct fleet *f)
{
	wlink_close(f->link);
	f->link = NULL;
}

void fleet_close(struct fleet *f)
{
	if (!f)
		return;
	wlink_close(f->link);
	for (uint32_t i = 0; i < f->n_replicas; i++)
		replica_free(f->replicas[i]);
	sched_free(f->lobby);
	free(f->classes);
	sched_events_fini(&f->events);
	plan_fini(&f->plan);
	result_fini(&f->result);
	free(f);
}

void fleet_poll(struct fleet *f, void **messages, void **ends)
{
	wlink_poll(f->link, messages, ends);
}

long fleet_wait_ms(const struct fleet *f, int64_t now_us)
{
	return wlink_wait_ms(f->link, now_us);
}

const char *fleet_bus(const struct fleet *f)
{
	return wlink_endpoint(f->link);
}

uint32_t fleet_max_context(const struct fleet *f)
{
	return f->max_context;
}
