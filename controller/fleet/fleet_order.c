/* fleet_order.c - scale and drain: carries out an operator's orders. */
#include "controller/fleet/fleet_impl.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t wait_default_us = 600 * 1000000LL;
/* Tag of a scale that no client waits for (fleet_scale()). */
static const uint64_t own_tag = UINT64_MAX;

__attribute__((format(printf, 4, 5))) static void answer(struct fleet *f, uint64_t tag, enum code code,
							 const char *fmt, ...)
{
	struct engine_event *ev = emit_event_new(ENGINE_ORDER_DONE, 0);
	va_list ap;
	ev->tag = tag;
	ev->code = code;
	va_start(ap, fmt);
	vsnprintf(ev->why, sizeof ev->why, fmt, ap);
	va_end(ap);
	if (tag != own_tag) {
		emit_event(f->emit, ev);
		return;
	}
	if (code && code != E_OVERLOADED) { /* no warning if the next scale replaces it */
		log_warn("fleet", "scale failed reason=\"%s\"", ev->why);
		f->scale_failed = true;
	}
	engine_event_free(ev);
}

/* ---- replicas and supervised workers ---- */

static uint32_t count(const struct fleet *f, enum replica_state state)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < f->n_replicas; i++)
		n += f->replicas[i]->state == state;
	return n;
}

/* Return whether the process that started the controller also started this worker, and supervises both. */
static bool is_supervised(const struct worker *k)
{
	char path[64], text[512];
	int64_t pid = k->local_pid;
	if (pid <= 0)
		return false;
	snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* format: pid (name, which may contain any character) state parent */
	const char *end = strrchr(text, ')');
	return end && strlen(end) > 4 && strtoll(end + 4, NULL, 10) == getppid();
}

static bool is_device(const struct worker *k, const struct engine_cmd *c)
{
	for (uint32_t i = 0; i < c->n_devices; i++)
		if (strcmp(k->hello.device, c->devices[i]) == 0)
			return true;
	return c->n_devices == 0;
}

/* ---- scale down ---- */

/* Return a replica that does not serve yet, else the least loaded one. */
static struct replica *least_needed(const struct fleet *f)
{
	struct replica *best = NULL;
	uint64_t best_load = UINT64_MAX;
	for (uint32_t i = 0; i < f->n_replicas; i++) {
		struct replica *r = f->replicas[i];
		uint64_t load = r->state == REPLICA_LOADING ? 0 : replica_load(r) + 1;
		if (r->state != REPLICA_DRAINING && load < best_load) {
			best = r;
			best_load = load;
		}
	}
	return best;
}

static void retire_all(struct fleet *f, struct replica *r, int64_t now_us)
{
	for (uint32_t i = 0; i < r->n_ranks; i++)
		if (r->ranks[i]->epoch == r->epoch)
			fleet_retire(f, r->ranks[i], now_us);
	fleet_take_down(f, r, now_us, "");
}

static void drain(struct fleet *f, struct replica *r, int64_t now_us)
{
	log_info("fleet", "replica drains replica=%llu", (unsigned long long)r->id);
	if (r->state == REPLICA_LOADING) {
		retire_all(f, r, now_us);
		return;
	}
	r->state = REPLICA_DRAINING;
	fleet_update(f, "");
}

/* ---- scale up ---- */

/* Request missing workers from the supervisor.  False: there is no supervisor, and the order is answered. */
static bool request_workers(struct fleet *f, const struct engine_cmd *c, uint32_t missing)
{
	uint32_t n = missing;
	if (!f->cfg->supervised) {
		answer(f, c->tag, E_BAD_REQUEST,
		       "this controller does not start workers: start %u more where a device is free: "
		       "quern-worker --bus %s --device DEVICE",
		       missing, fleet_bus(f));
		return false;
	}
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		const struct worker *k = &f->workers->rows[i];
		bool here = k->state == WORKER_JOINING || k->state == WORKER_LOADING ||
			    k->state == WORKER_SERVING;
		n += here && is_device(k, c) && is_supervised(k);
	}
	fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_SCALE,
					       .n_workers = n,
					       .devices = (const char(*)[32])c->devices,
					       .n_devices = c->n_devices,
					       .memory_fraction = c->memory_fraction});
	return true;
}

/* Return whether an idle worker will serve together with workers to be started: any worker with tp 1, else
 * one that can form a tp_group with them. */
static bool is_spare(const struct fleet *f, const struct worker *k, const struct engine_cmd *c)
{
	if (k->state != WORKER_JOINING || k->broken)
		return false;
	return f->tp == 1 || (is_device(k, c) && is_supervised(k));
}

/* Return how many idle workers need not be started: those of the most frequent kind. */
static uint32_t n_spare(const struct fleet *f, const struct engine_cmd *c)
{
	const struct worker *spare[ENGINE_WORKERS_MAX];
	uint32_t n = 0, most = 0;
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		const struct worker *k = &f->workers->rows[i];
		if (is_spare(f, k, c))
			spare[n++] = k;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t like = 0;
		for (uint32_t j = 0; j < n; j++)
			like += f->tp == 1 || fleet_same_kind(spare[i], spare[j]);
		most = like > most ? like : most;
	}
	return most;
}

/* ---- orders ---- */

static struct order *new_order(struct fleet *f, const struct engine_cmd *c, int64_t now_us)
{
	for (uint32_t i = 0; i < FLEET_ORDERS; i++)
		if (!f->orders[i].used) {
			f->orders[i] = (struct order){
				.used = true,
				.drain = c->kind == ENGINE_DRAIN,
				.tag = c->tag,
				.until_us = now_us + (c->wait_us ? c->wait_us : wait_default_us),
				.n_replicas = c->n_replicas,
			};
			return &f->orders[i];
		}
	answer(f, c->tag, E_OVERLOADED, "too many orders in flight");
	return NULL;
}

static void order_drain(struct fleet *f, const struct engine_cmd *c, int64_t now_us)
{
	struct worker *k = worker_table_find(f->workers, c->worker);
	if (!k) {
		answer(f, c->tag, E_BAD_REQUEST, "there is no worker %llu: quern workers lists them",
		       (unsigned long long)c->worker);
		return;
	}
	struct replica *r = fleet_by_epoch(f, k->epoch);
	struct order *o = new_order(f, c, now_us);
	if (!o)
		return;
	o->n_workers = r ? r->n_ranks : 1;
	for (uint32_t i = 0; i < o->n_workers; i++)
		o->workers[i] = r ? r->ranks[i]->id : k->id;
	if (!r)
		fleet_retire(f, k, now_us);
	else if (r->state != REPLICA_DRAINING)
		drain(f, r, now_us);
}

void fleet_leave(struct fleet *f, struct replica *r, int64_t now_us)
{
	if (r->state != REPLICA_DRAINING)
		drain(f, r, now_us);
}

static void order_scale(struct fleet *f, const struct engine_cmd *c, int64_t now_us)
{
	uint32_t have = count(f, REPLICA_SERVING) + count(f, REPLICA_LOADING);
	if (f->cfg->autoscale.max && c->tag != own_tag) {
		answer(f, c->tag, E_BAD_REQUEST,
		       "the service itself keeps %u to %u replicas, by its load (--replicas, --max-replicas)",
		       f->cfg->autoscale.min, f->cfg->autoscale.max);
		return;
	}
	if ((uint64_t)c->n_replicas * f->tp > ENGINE_WORKERS_MAX) {
		answer(f, c->tag, E_BAD_REQUEST, "%u replicas of %u workers are more than %d workers",
		       c->n_replicas, f->tp, ENGINE_WORKERS_MAX);
		return;
	}
	for (uint32_t i = 0; i < FLEET_ORDERS; i++)
		if (f->orders[i].used && !f->orders[i].drain) {
			f->orders[i].used = false;
			answer(f, f->orders[i].tag, E_OVERLOADED, "another scale (to %u) came after this one",
			       c->n_replicas);
		}
	if (c->n_replicas > have) {
		uint32_t need = (c->n_replicas - have) * f->tp, spare = n_spare(f, c);
		if (need > spare && !request_workers(f, c, need - spare))
			return;
	}
	new_order(f, c, now_us);
}

static void order_forget(struct fleet *f, const struct engine_cmd *c)
{
	for (uint32_t i = 0; i < f->n_replicas; i++)
		sched_forget_prefixes(f->replicas[i]->sched);
	log_info("fleet", "prefix cache emptied replicas=%u", f->n_replicas);
	answer(f, c->tag, CODE_OK, "%s", "");
}

void fleet_order(struct fleet *f, const struct engine_cmd *c, int64_t now_us)
{
	if (c->kind == ENGINE_DRAIN)
		order_drain(f, c, now_us);
	else if (c->kind == ENGINE_FORGET)
		order_forget(f, c);
	else
		order_scale(f, c, now_us);
}

void fleet_scale(struct fleet *f, uint32_t n_replicas, int64_t now_us)
{
	order_scale(f, &(struct engine_cmd){.kind = ENGINE_SCALE, .tag = own_tag, .n_replicas = n_replicas},
		    now_us);
}

bool fleet_scales(const struct fleet *f)
{
	for (uint32_t i = 0; i < FLEET_ORDERS; i++)
		if (f->orders[i].used && !f->orders[i].drain)
			return true;
	return false;
}

/* Return whether the worker is known and has not exited. */
static bool is_present(const struct fleet *f, uint64_t worker)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		const struct worker *k = &f->workers->rows[i];
		if (k->id == worker && k->state != WORKER_FREE && k->state != WORKER_LOST)
			return true;
	}
	return false;
}

static bool is_drained(const struct fleet *f, const struct order *o)
{
	for (uint32_t i = 0; i < o->n_workers; i++)
		if (is_present(f, o->workers[i]))
			return false;
	return true;
}

static bool is_done(struct fleet *f, const struct order *o, int64_t now_us)
{
	if (o->drain)
		return is_drained(f, o);
	/* Replicas may have joined since the order. */
	struct replica *r;
	while (count(f, REPLICA_SERVING) + count(f, REPLICA_LOADING) > o->n_replicas && (r = least_needed(f)))
		drain(f, r, now_us);
	return count(f, REPLICA_SERVING) == o->n_replicas && count(f, REPLICA_DRAINING) == 0;
}

/* The scale is reached: retire idle workers, and send the supervisor the pids to keep, so that workers that
 * are being restarted or have yet to join do not form further replicas. */
static void settle_scale(struct fleet *f, int64_t now_us)
{
	int64_t pids[ENGINE_WORKERS_MAX];
	uint32_t n = 0;
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct worker *k = &f->workers->rows[i];
		if (k->state == WORKER_JOINING && is_supervised(k))
			fleet_retire(f, k, now_us);
		/* The supervisor has no workers on other hosts. */
		if (worker_is_live(k) && k->local_pid)
			pids[n++] = k->local_pid;
	}
	fleet_notice(f, (struct engine_notice){.kind = ENGINE_NOTICE_KEEP, .pids = pids, .n_pids = n});
}

static void time_out(struct fleet *f, const struct order *o)
{
	uint32_t serving = count(f, REPLICA_SERVING), draining = count(f, REPLICA_DRAINING);
	if (o->drain || draining)
		answer(f, o->tag, E_NOT_READY, "%u replica%s still finish%s jobs that only it can continue",
		       draining, draining == 1 ? "" : "s", draining == 1 ? "es" : "");
	else
		answer(f, o->tag, E_NOT_READY, "%u of %u replicas serve%s%s", serving, o->n_replicas,
		       f->last_loss.text[0] ? "; last loss: " : "", f->last_loss.text);
}

/* Answers at once: a retry would fail the same way. */
void fleet_orders_failed(struct fleet *f, const char *why)
{
	uint32_t serving = count(f, REPLICA_SERVING);
	for (uint32_t i = 0; i < FLEET_ORDERS; i++) {
		struct order *o = &f->orders[i];
		if (!o->used || o->drain || serving + count(f, REPLICA_LOADING) >= o->n_replicas)
			continue;
		answer(f, o->tag, E_NOT_READY, "%u of %u replicas serve; a worker cannot: %s", serving,
		       o->n_replicas, why);
		o->used = false;
	}
}

/* Repeat the drain: the tp_group may have broken since the order, and the worker be idle or in a new
 * group. */
static void drain_again(struct fleet *f, struct worker *k, int64_t now_us)
{
	struct replica *r = fleet_by_epoch(f, k->epoch);
	/* Jobs that only this worker can continue are unassigned now. */
	bool needed = sched_first(f->unassigned) != NULL;
	if (!r && !needed)
		fleet_retire(f, k, now_us);
	else if (r && (r->state == REPLICA_SERVING || (r->state == REPLICA_LOADING && !needed)))
		drain(f, r, now_us);
}

void fleet_reserve_drained(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < FLEET_ORDERS; i++) {
		const struct order *o = &f->orders[i];
		for (uint32_t w = 0; o->used && o->drain && w < o->n_workers; w++) {
			struct worker *k = worker_table_find(f->workers, o->workers[w]);
			if (k)
				drain_again(f, k, now_us);
		}
	}
}

void fleet_orders(struct fleet *f, int64_t now_us)
{
	for (uint32_t i = 0; i < f->n_replicas;) {
		struct replica *r = f->replicas[i];
		if (r->state == REPLICA_DRAINING && !sched_first(r->sched))
			retire_all(f, r, now_us);
		else
			i++;
	}
	for (uint32_t i = 0; i < FLEET_ORDERS; i++) {
		struct order *o = &f->orders[i];
		if (!o->used)
			continue;
		if (is_done(f, o, now_us)) {
			if (!o->drain)
				settle_scale(f, now_us);
			answer(f, o->tag, CODE_OK, "%s", "");
		} else if (now_us >= o->until_us) {
			time_out(f, o);
		} else {
			continue;
		}
		o->used = false;
	}
}
