#include "controller/fleet/fleet.h"

#include "base/alloc.h"
#include "base/log.h"
#include "controller/fleet/fleet_impl.h"
#include "proto/counts.h"
#include "controller/metrics/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>

enum {
	TICK_US = 100 * 1000, /* interval of deadline checks, rates and autoscaling */
	/* After a tp_group broke, its ranks send hello one by one.  The rank that has shard 0 loaded is
	 * preferred as rank 0 if its hello arrives within this time. */
	RENDEZVOUS_WAIT_US = 1000 * 1000,
	/* If a tp_group broke within YOUNG_US of its start, none is formed for HOLD_US. */
	YOUNG_US = 2 * 1000 * 1000,
	HOLD_US = 500 * 1000,
};

/* ---- notices and readiness ---- */

void fleet_notice(struct fleet *f, struct engine_notice n)
{
	if (f->cfg->on_notice)
		f->cfg->on_notice(f->cfg->on_notice_user, &n);
}

void fleet_update(struct fleet *f, const char *why)
{
	bool ready = false;
	uint32_t most = 0;
	uint64_t full = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++)
		if (f->replicas[i]->state == REPLICA_SERVING) {
			ready = true;
			if (f->replicas[i]->max_context <= most)
				continue;
			most = f->replicas[i]->max_context;
			full = f->replicas[i]->full_kv_bytes;
		}
	if (!ready)
		most = f->max_context; /* the last known value: a replacement usually has the same size */
	bool turned = ready != f->ready;
	if (!turned && most == f->max_context && !why[0])
		return;
	f->ready = ready;
	f->served = f->served || ready;
	f->max_context = most;
	struct engine_event *ev = emit_event_new(ENGINE_STATE, 0);
	ev->ready = ready;
	ev->max_context = most;
	ev->full_kv_bytes = full;
	snprintf(ev->why, sizeof ev->why, "%s", why);
	emit_event(f->emit, ev);
	if (!turned)
		return;
	emit_flush(f->emit); /* the front end first: a client may act on the notice at once */
	fleet_notice(f, (struct engine_notice){.kind = ready ? ENGINE_NOTICE_READY : ENGINE_NOTICE_UNREADY,
					       .why = why});
}

/* ---- tp_groups ---- */

struct replica *fleet_by_epoch(const struct fleet *f, uint64_t epoch)
{
	for (uint32_t i = 0; epoch && i < f->n_replicas; i++)
		if (f->replicas[i]->epoch == epoch)
			return f->replicas[i];
	return NULL;
}

static void keep_counters(struct fleet *f, const struct replica *r)
{
	struct counts c;
	replica_counts(r, &c);
	counts_add(&f->past, &c, true);
}

void fleet_take_down(struct fleet *f, struct replica *r, int64_t now_us, const char *why)
{
	uint32_t at = 0;
	while (f->replicas[at] != r)
		at++;
	f->replicas[at] = f->replicas[--f->n_replicas];
	/* The reason may be a loss that was logged already. */
	if (why[0] && strcmp(why, f->last_loss.text) != 0)
		log_warn("fleet", "replica ended replica=%llu reason=\"%s\"", (unsigned long long)r->id, why);
	else if (why[0])
		log_info("fleet", "replica ended replica=%llu", (unsigned long long)r->id);
	if (r->n_ranks > 1 && r->started && now_us - r->started_us < YOUNG_US)
		f->form_us = now_us + HOLD_US;
	for (uint32_t i = 0; i < r->n_ranks; i++)
		if (r->ranks[i]->epoch == r->epoch)
			worker_idle(r->ranks[i], now_us);
	sched_clock(r->sched, now_us);
	if (r->started)
		sched_lost(r->sched);
	fleet_move_all(f, r, now_us);
	keep_counters(f, r);
	fleet_update(f, why);
	replica_free(r);
}

static size_t kind_length(const char *device)
{
	return strcspn(device, ":");
}

bool fleet_same_kind(const struct worker *a, const struct worker *b)
{
	size_t n = kind_length(a->hello.device);
	/* A host name is only declared: ranks on different hosts would wait for each other in vain, or
	 * connect to another host's meeting place. */
	return strcmp(a->hello.host, b->hello.host) == 0 && strcmp(a->address, b->address) == 0 &&
	       n == kind_length(b->hello.device) && strncmp(a->hello.device, b->hello.device, n) == 0;
}

static bool is_idle(const struct fleet *f, const struct worker *k)
{
	return k->state == WORKER_JOINING && !k->broken && (f->tp == 1 || k->hello.rendezvous[0]);
}

/* Choose a rank 0 with an unused meeting place, since the other ranks meet there.  False: there is none for
 * now. */
static bool choose_rank0(const struct fleet *f, struct worker **ranks, int64_t now_us)
{
	if (f->tp == 1 || !ranks[0]->rendezvous_used)
		return true;
	if (now_us - ranks[0]->idle_us < RENDEZVOUS_WAIT_US)
		return false;
	for (uint32_t i = 1; i < f->tp; i++)
		if (!ranks[i]->rendezvous_used) {
			struct worker *first = ranks[i];
			ranks[i] = ranks[0];
			ranks[0] = first;
			return true;
		}
	return false;
}

/* Fill ranks with tp idle workers of the same kind as `like`.  Workers that have a shard loaded keep its
 * rank.  False: too few now. */
static bool choose_ranks(struct fleet *f, const struct worker *like, struct worker **ranks, int64_t now_us)
{
	uint32_t n = 0;
	memset(ranks, 0, f->tp * sizeof *ranks);
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < ENGINE_WORKERS_MAX && n < f->tp; i++) {
			struct worker *k = &f->workers->rows[i];
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
	return n == f->tp && choose_rank0(f, ranks, now_us);
}

static void form_tp_groups(struct fleet *f, int64_t now_us)
{
	struct worker *ranks[BUS_RANKS_MAX];
	if (now_us < f->form_us)
		return;
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX && f->n_replicas < ENGINE_REPLICAS_MAX; i++) {
		struct worker *k = &f->workers->rows[i];
		if (!is_idle(f, k) || !choose_ranks(f, k, ranks, now_us))
			continue;
		struct replica *r = replica_new(f->cfg, ++f->last_replica, ++f->last_epoch, ranks, f->tp);
		f->replicas[f->n_replicas++] = r;
		log_info("fleet", "tp_group formed replica=%llu tp=%u host=%s device=%s worker=%llu",
			 (unsigned long long)r->id, f->tp, k->hello.host, k->hello.device,
			 (unsigned long long)ranks[0]->id);
		worker_link_load(f->link, ranks, f->tp, r->epoch, now_us);
	}
}

uint32_t fleet_numerics_class(struct fleet *f, bool has_constraint, const char *reported)
{
	char numerics[sizeof f->numerics_classes[0].numerics];
	numerics_of_output(has_constraint, reported, numerics, sizeof numerics);
	for (uint32_t i = 0; i < f->n_numerics_classes; i++)
		if (numerics_same(f->numerics_classes[i].numerics, numerics))
			return i + 1;
	f->numerics_classes =
		xrealloc(f->numerics_classes, f->n_numerics_classes + 1, sizeof *f->numerics_classes);
	snprintf(f->numerics_classes[f->n_numerics_classes].numerics, sizeof f->numerics_classes[0].numerics,
		 "%s", numerics);
	return ++f->n_numerics_classes;
}

/* ---- events of workers ---- */

static void apply_ready(struct fleet *f, struct replica *r, int64_t now_us)
{
	uint32_t odd;
	struct why why;
	if (++r->n_ready < r->n_ranks)
		return;
	if (replica_start(r, &odd, &why)) {
		worker_link_drop(f->link, r->ranks[odd], now_us);
		fleet_take_down(f, r, now_us, why.text);
		f->last_loss = why;
		return;
	}
	r->started_us = now_us;
	r->numerics_class = fleet_numerics_class(f, true, r->numerics);
	r->plain_class = fleet_numerics_class(f, false, r->numerics);
	log_info("fleet", "replica serves replica=%llu tp=%u max_context=%u", (unsigned long long)r->id,
		 r->n_ranks, r->max_context);
	if (r->full_kv_bytes)
		log_warn("fleet",
			 "replica's context reduced replica=%llu max_context=%u wanted=%u full_kv_bytes=%llu "
			 "reason=\"its KV pool holds no more; --kv-bytes sets its size\"",
			 (unsigned long long)r->id, r->max_context, f->cfg->model_context,
			 (unsigned long long)r->full_kv_bytes);
	if (!f->served)
		f->max_context = 0; /* until now it was a guess from the model */
	fleet_update(f, "");
	fleet_assign_waiting(f, now_us);
}

/* The job may have killed the worker: strikes are counted against the jobs in flight. */
static void lose_replica(struct fleet *f, struct replica *r, int64_t now_us, const char *why)
{
	if (r->started)
		sched_worker_died(r->sched);
	fleet_take_down(f, r, now_us, why);
}

static void apply_result(struct fleet *f, struct replica *r, int64_t now_us)
{
	emit_prompts(f->emit, r->sched, &f->result);
	uint32_t rows = replica_rows(r, &f->result);
	if (replica_result(r, &f->result, now_us, &f->events)) {
		struct worker *k = r->ranks[0];
		log_error("fleet", "result matches no plan plan=%llu", (unsigned long long)f->result.number);
		worker_link_drop(f->link, k, now_us);
		fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_LOST, .pid = k->local_pid});
		lose_replica(f, r, now_us, "a worker sent a result that matches no plan");
		return;
	}
	metrics_observe(f->cfg->metrics, METRIC_ITERATION_TOKENS, rows);
	fleet_emit_events(f, r, now_us);
}

/* Handle the loss of a worker, which ends its tp_group. */
static void apply_gone(struct fleet *f, const struct link_event *ev, int64_t now_us)
{
	struct replica *r = fleet_by_epoch(f, ev->epoch);
	int64_t pid = ev->worker->local_pid;
	bool failed = ev->kind == LINK_FAILED;
	/* The supervisor ends a service that cannot start, but only for a worker that it started; it prints
	 * why. */
	const bool ends = failed && pid && f->cfg->supervised && !f->served;
	if (ends)
		log_info("fleet", "worker lost worker=%llu reason=\"it cannot serve\"",
			 (unsigned long long)ev->worker->id);
	else
		log_warn("fleet", "worker lost worker=%llu reason=\"%s\"", (unsigned long long)ev->worker->id,
			 ev->why.text);
	f->last_loss = ev->why;
	/* LOST makes the supervisor kill and replace the worker.  It is not sent after LINK_FAILED: the
	 * worker exits by itself, and a retry would fail the same way.  Nor is it sent if silence has no
	 * limit: a debugger may hold the worker, which sends hello again if it is alive. */
	if (!failed && pid && f->cfg->silent_us >= 0)
		fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_LOST, .pid = pid});
	if (r)
		lose_replica(f, r, now_us, ev->why.text);
	if (failed && (pid || !f->cfg->supervised)) {
		fleet_orders_failed(f, ev->why.text);
		fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_FAILED, .why = ev->why.text});
	}
}

bool fleet_receive(struct fleet *f, int64_t now_us)
{
	return worker_link_recv(f->link, now_us, &f->result, &f->event);
}

void fleet_apply(struct fleet *f, int64_t now_us)
{
	const struct link_event *ev = &f->event;
	struct replica *r = fleet_by_epoch(f, ev->epoch);
	switch (ev->kind) {
	case LINK_NONE:
	case LINK_LEFT:
		break;
	case LINK_RESULT:
		if (r)
			apply_result(f, r, now_us);
		break;
	case LINK_AWAKE:
		for (uint32_t i = 0; r && i < f->result.n_held; i++)
			sched_awake(r->sched, f->result.held[i]);
		break;
	case LINK_READY:
		if (r)
			apply_ready(f, r, now_us);
		break;
	case LINK_HELLO:
		/* A rank may report that its tp_group broke before the dead rank is detected. */
		if (r && r->n_ranks > 1)
			lose_replica(f, r, now_us, ev->why.text);
		else if (r)
			fleet_take_down(f, r, now_us, ev->why.text);
		break;
	case LINK_MISSED:
		if (r)
			fleet_take_down(f, r, now_us, ev->why.text);
		break;
	case LINK_LEAVES:
		if (r)
			fleet_leave(f, r, now_us);
		break;
	case LINK_GONE:
	case LINK_FAILED:
		apply_gone(f, ev, now_us);
		break;
	}
}

/* ---- the other stages of an iteration ---- */

void fleet_schedule(struct fleet *f, int64_t now_us)
{
	fleet_reserve_drained(f, now_us);
	form_tp_groups(f, now_us);
	fleet_reject_oversized(f, now_us);
	fleet_drain_jobs(f, now_us);
	for (uint32_t i = 0; i < f->n_replicas; i++)
		replica_plan(f->replicas[i], &f->plan, now_us);
	fleet_balance(f, now_us);
}

void fleet_send(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < f->n_replicas; i++)
		replica_send(f->replicas[i], f->link, now_us);
	worker_link_send_files(f->link);
}

void fleet_tick(struct fleet *f, int64_t now_us)
{
	while (worker_link_tick(f->link, now_us, &f->event))
		fleet_apply(f, now_us);
	if (now_us - f->ticked_us >= TICK_US) {
		f->ticked_us = now_us;
		fleet_expire(f, now_us);
		for (uint32_t i = 0; i < f->n_replicas; i++)
			replica_tick(f->replicas[i], now_us);
		fleet_autoscale(f, now_us);
	}
	fleet_report_loading(f, now_us);
	fleet_orders(f, now_us);
}

void fleet_publish(struct fleet *f, int64_t now_us)
{
	struct fleet_queue q = fleet_queue(f);
	struct engine_load *load = f->cfg->load;
	emit_flush(f->emit);
	if (!load)
		return;
	atomic_store_explicit(&load->n_queued, q.n_queued, memory_order_relaxed);
	atomic_store_explicit(&load->queued_tokens, q.queued_tokens, memory_order_relaxed);
	atomic_store_explicit(&load->loop_us, now_us, memory_order_relaxed);
}

void fleet_retire(struct fleet *f, struct worker *k, int64_t now_us)
{
	int64_t pid = k->local_pid;
	if (pid)
		fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_RETIRE, .pid = pid});
	log_info("fleet", "worker retired worker=%llu pid=%lld", (unsigned long long)k->id,
		 (long long)k->hello.pid);
	worker_link_retire(f->link, k, now_us);
}

/* ---- lifecycle ---- */

int fleet_open(void *zmq_context, const struct engine_config *cfg, struct emit *emit, struct fleet **out,
	       struct why *why)
{
	struct fleet *f = xcalloc(1, sizeof *f);
	f->cfg = cfg;
	f->emit = emit;
	f->tp = cfg->tp ? cfg->tp : 1;
	f->max_context = cfg->model_context;
	autoscale_init(&f->autoscale, &cfg->autoscale);
	int rc = worker_link_open(zmq_context, cfg, &f->link, why);
	if (rc) {
		free(f);
		return rc;
	}
	f->workers = worker_link_table(f->link);
	f->unassigned = replica_sched_new(cfg);
	*out = f;
	return 0;
}

void fleet_stop_workers(struct fleet *f)
{
	worker_link_close(f->link);
	f->link = NULL;
}

void fleet_close(struct fleet *f)
{
	if (!f)
		return;
	worker_link_close(f->link);
	for (uint32_t i = 0; i < f->n_replicas; i++)
		replica_free(f->replicas[i]);
	sched_free(f->unassigned);
	free(f->numerics_classes);
	free(f->line);
	sched_events_fini(&f->events);
	plan_fini(&f->plan);
	result_fini(&f->result);
	free(f);
}

void fleet_poll(struct fleet *f, void **messages, void **ends)
{
	worker_link_poll(f->link, messages, ends);
}

long fleet_wait_ms(const struct fleet *f, int64_t now_us)
{
	return worker_link_wait_ms(f->link, now_us);
}

const char *fleet_bus(const struct fleet *f)
{
	return worker_link_endpoint(f->link);
}

uint32_t fleet_max_context(const struct fleet *f)
{
	return f->max_context;
}
