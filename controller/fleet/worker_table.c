#include "controller/fleet/worker_table.h"

#include <stdio.h>
#include <string.h>

enum {
	/* Limit of hellos: a worker sends one when its connection or its tp_group broke. */
	HELLOS_MAX = 20, /* per window */
	HELLO_WINDOW_US = 1000 * 1000,
};

/* ---- rows ---- */

bool worker_is_live(const struct worker *k)
{
	return k->state == WORKER_JOINING || k->state == WORKER_LOADING || k->state == WORKER_SERVING;
}

struct worker *worker_table_find(struct worker_table *t, uint64_t id)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++)
		if (worker_is_live(&t->rows[i]) && t->rows[i].id == id)
			return &t->rows[i];
	return NULL;
}

struct worker *worker_table_find_route(struct worker_table *t, const uint8_t *route, size_t n)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct worker *k = &t->rows[i];
		if (k->state != WORKER_FREE && k->route_n == n && memcmp(k->route, route, n) == 0)
			return k;
	}
	return NULL;
}

/* Free the row of the lost worker that h replaces; until now the lost worker stayed visible. */
static void free_replaced(struct worker_table *t, const struct bus_hello *h)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct worker *k = &t->rows[i];
		if (k->state != WORKER_LOST || strcmp(k->hello.host, h->host) != 0 ||
		    strcmp(k->hello.device, h->device) != 0)
			continue;
		k->state = WORKER_FREE;
		return;
	}
}

static struct worker *free_row(struct worker_table *t)
{
	struct worker *oldest = NULL;
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct worker *k = &t->rows[i];
		if (k->state == WORKER_FREE)
			return k;
		if (k->state == WORKER_LOST && (!oldest || k->left_us < oldest->left_us))
			oldest = k;
	}
	return oldest;
}

static void set_joining(struct worker *k, int64_t now_us)
{
	k->state = WORKER_JOINING;
	k->epoch = 0;
	k->idle_us = k->last_seen_us = k->beat_us = now_us;
}

struct worker *worker_table_add(struct worker_table *t, const struct bus_hello *h, const uint8_t *route,
				size_t route_n, int64_t now_us)
{
	free_replaced(t, h);
	struct worker *k = free_row(t);
	if (!k)
		return NULL;
	*k = (struct worker){
		.id = ++t->last_id, .hello = *h, .route_n = route_n, .hello_us = now_us, .n_hellos = 1};
	memcpy(k->route, route, route_n);
	set_joining(k, now_us);
	return k;
}

/* Return the activity as one word; "loading" for all that does not concern the model's files. */
static const char *doing_name(uint32_t doing)
{
	return doing == BUS_DOING_WAIT    ? "waiting"
	       : doing == BUS_DOING_CHECK ? "checking"
	       : doing == BUS_DOING_FETCH ? "fetching"
					  : "loading";
}

void worker_status(const struct worker *k, struct engine_worker *out)
{
	static const char *const names[] = {"", "joining", "loading", "serving", "draining", "lost"};
	*out = (struct engine_worker){
		.id = k->id,
		.rank = k->rank,
		.pid = k->hello.pid,
		.progress = k->state == WORKER_LOADING ? k->progress
			    : k->n_ranks               ? 1000
						       : 0,
		.n_blocks = k->ready.n_blocks,
		.n_host_blocks = k->ready.n_host_blocks,
		.weights_bytes = k->ready.weights_bytes,
		.kv_bytes = k->ready.kv_bytes,
		.stored_bytes = k->ready.stored_bytes,
		.scratch_bytes = k->ready.scratch_bytes,
		.host_bytes = k->ready.host_bytes,
		.host_weights_bytes = k->ready.host_weights_bytes,
		.grammar_bytes = k->grammar_bytes,
		.device_used = k->ready.device_used,
		.device_bytes = k->ready.device_bytes,
		.steps = k->steps,
		.step_us = k->step_us,
		.n_threads = k->ready.n_threads,
	};
	snprintf(out->host, sizeof out->host, "%s", k->hello.host);
	snprintf(out->device, sizeof out->device, "%s", k->hello.device);
	snprintf(out->device_name, sizeof out->device_name, "%s", k->ready.device_name);
	snprintf(out->isa, sizeof out->isa, "%s", k->ready.isa);
	snprintf(out->state, sizeof out->state, "%s", names[k->state]);
	if (k->state == WORKER_LOADING)
		snprintf(out->doing, sizeof out->doing, "%s", doing_name(k->load.doing));
}

/* ---- state changes ---- */

void worker_rejoin(struct worker_table *t, struct worker *k, const struct bus_hello *h, int64_t now_us)
{
	if (k->state == WORKER_LOST) {
		k->id = ++t->last_id;
		k->steps = 0;
	}
	k->hello = *h;
	k->rendezvous_used = false;
	k->broken = k->silent = false;
	k->watchdog = (struct watchdog){0};
	set_joining(k, now_us);
}

void worker_revive(struct worker *k, int64_t now_us)
{
	k->silent = false;
	k->watchdog = (struct watchdog){0};
	set_joining(k, now_us);
}

void worker_load(struct worker *k, uint64_t epoch, uint32_t rank, uint32_t n_ranks, int64_t now_us)
{
	k->state = WORKER_LOADING;
	k->epoch = epoch;
	k->rank = rank;
	k->n_ranks = n_ranks;
	k->progress = 0;
	k->load = (struct bus_beat){0};
	k->load_us = k->load_logged_us = now_us;
	k->counts_before = k->counts;
	k->sent = k->received = 0;
	k->last_seen_us = now_us;
	watchdog_expect(&k->watchdog, now_us);
}

void worker_idle(struct worker *k, int64_t now_us)
{
	/* The worker's next heartbeat from the controller has epoch 0, unless a load is sent first. */
	if (k->state == WORKER_LOADING || k->state == WORKER_SERVING)
		set_joining(k, now_us);
}

static void set_gone(struct worker *k, enum worker_state state, int64_t now_us)
{
	k->state = state;
	k->epoch = 0;
	k->left_us = now_us;
}

void worker_lose(struct worker *k, int64_t now_us)
{
	set_gone(k, WORKER_LOST, now_us);
}

void worker_leave(struct worker *k, int64_t now_us)
{
	set_gone(k, WORKER_LEAVING, now_us);
}

/* ---- progress ---- */

bool worker_hello_flood(struct worker *k, int64_t now_us)
{
	if (now_us - k->hello_us > HELLO_WINDOW_US) {
		k->hello_us = now_us;
		k->n_hellos = 0;
	}
	return ++k->n_hellos > HELLOS_MAX;
}

void worker_plan_sent(struct worker *k, uint64_t number, int64_t now_us)
{
	k->sent = number;
	watchdog_expect(&k->watchdog, now_us);
}

void worker_result_received(struct worker *k, const struct result *r)
{
	k->steps++;
	k->step_us = r->step_us;
	k->received = r->number;
	if (k->received == k->sent)
		watchdog_done(&k->watchdog);
}

void worker_plans_executed(struct worker *k, uint64_t expected, int64_t now_us)
{
	if (expected == 0)
		return;
	uint64_t number = expected - 1;
	if (number > k->received)
		k->steps += number - k->received;
	if (number != k->received)
		watchdog_progress(&k->watchdog, now_us);
	k->received = number;
	if (number == k->sent)
		watchdog_done(&k->watchdog);
}
