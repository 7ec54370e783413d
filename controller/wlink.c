#include "controller/wlink.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/conns.h"
#include "controller/zap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum {
	/* Messages of one turn: whoever floods the bus does not hold up a step. */
	TURN_MAX = 256,
	/* Blocks of a pool that are believed: tables for them are allocated here. */
	POOL_MAX = 1 << 24,
	WARN_US = 1000 * 1000, /* between two lines about messages that are none of ours */
	/* A worker that was lost is shown for so long, unless another one takes its place. */
	LOST_SHOWN_US = 60 * 1000 * 1000,
	LEAVE_US = 2 * 1000 * 1000, /* for a worker to say that it ends */
	/* A worker says hello when its connection or its group broke: not more often than this. */
	HELLOS_MAX = 20, /* in a second */
	HELLO_US = 1000 * 1000,
	SILENT_US = 2 * 1000 * 1000,
	STUCK_US = 120 * 1000 * 1000,
	/* With no limit to its silence, one that says nothing for so long gets no more beats: unread, they
	 * would fill the way to it, and leave no room for a plan. */
	HELD_US = 5 * 1000 * 1000,
	/* So much of it is for others: by then the loss is noticed, and another worker started. */
	SILENT_PART = 5,
	HANDSHAKE_MS = 3000,
	STOP_MS = 500,   /* for the workers to say that they stop; a step may be under way */
	LINGER_MS = 200, /* enough for the word to stop */
	STRANGERS = 16,
	WAIT_MS = 100,
	HALF_TRIES = 3, /* to end half a message */
	/* A connection has ended, and it is not said whose: a beat that cannot be sent tells. */
	PROBE_US = 50 * 1000,
	PROBE_MS = 5,
	/* A worker whose controller was started again may speak before its hello is here. */
	STRANGER_US = 1000 * 1000,
	CONNECTIONS_MAX = 4 * ENGINE_WORKERS_MAX, /* workers that come back, and strangers */
	BACKLOG = 1024,                           /* a worker's knock is heard in a flood of others */
	HELLO_DUE_US = 10 * 1000 * 1000,          /* a connection without hello is closed then */
	BAN_US = 1000 * 1000, /* for a worker to end by itself whose key is not listed any more */
};

struct wlink {
	struct engine_config cfg;
	void *socket;  /* ROUTER */
	void *monitor; /* PAIR: connections that come and end */
	struct conns *conns;
	struct zap *zap; /* borrowed; NULL: workers need no key */
	int64_t probe_until_us;
	char endpoint[256];
	struct wlink_worker workers[ENGINE_WORKERS_MAX];
	uint64_t last_id;
	int64_t silent_us; /* after which a worker is given up; negative: never */
	int64_t stuck_us;  /* likewise when it beats, but does not get on */
	uint32_t turn;     /* messages read in this turn */
	int64_t warned_us;
	struct buf out;
	struct { /* who spoke without hello, and since when */
		uint8_t route[WLINK_IDENTITY_MAX];
		size_t route_n;
		int64_t since_us;
	} strangers[STRANGERS];
	uint32_t next_stranger;
};

static void set_int(void *socket, int option, int value)
{
	zmq_setsockopt(socket, option, &value, sizeof value);
}

static void close_sockets(struct wlink *w)
{
	zmq_socket_monitor(w->socket, NULL, 0);
	if (w->monitor)
		zmq_close(w->monitor);
	zmq_close(w->socket);
	conns_free(w->conns);
}

int wlink_open(void *zmq_context, const struct engine_config *cfg, struct wlink **out, char *why,
	       size_t why_n)
{
	struct wlink *w = xcalloc(1, sizeof *w);
	w->cfg = *cfg;
	w->silent_us = cfg->silent_us ? cfg->silent_us : SILENT_US;
	w->stuck_us = cfg->stuck_us ? cfg->stuck_us : STUCK_US;
	w->silent_us -= w->silent_us / SILENT_PART;
	w->socket = zmq_socket(zmq_context, ZMQ_ROUTER);
	if (!w->socket) {
		free(w);
		return err_why(why, why_n, -errno, "worker bus: %s", zmq_strerror(errno));
	}
	int64_t max = BUS_MESSAGE_MAX;
	zmq_setsockopt(w->socket, ZMQ_MAXMSGSIZE, &max, sizeof max);
	set_int(w->socket, ZMQ_ROUTER_MANDATORY, 1);
	set_int(w->socket, ZMQ_ROUTER_HANDOVER, 0);
	set_int(w->socket, ZMQ_LINGER, LINGER_MS);
	set_int(w->socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
	set_int(w->socket, ZMQ_BACKLOG, BACKLOG);
	char name[64];
	snprintf(name, sizeof name, "inproc://bus-ends-%p", (void *)w);
	w->monitor = zmq_socket(zmq_context, ZMQ_PAIR);
	if (w->monitor) {
		set_int(w->monitor, ZMQ_LINGER, 0);
		set_int(w->monitor, ZMQ_RCVHWM, 0); /* ZeroMQ's threads would wait for us */
	}
	int events = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED;
	if (!w->monitor || zmq_socket_monitor(w->socket, name, events) < 0 ||
	    zmq_connect(w->monitor, name) < 0 ||
	    zap_guard(cfg->zap, w->socket, cfg->bus, ZAP_BUS) || zmq_bind(w->socket, cfg->bus) < 0) {
		int err = errno;
		close_sockets(w);
		free(w);
		return err_why(why, why_n, -err, "worker bus: cannot listen on %s: %s", cfg->bus,
			       zmq_strerror(err));
	}
	size_t n = sizeof w->endpoint;
	zmq_getsockopt(w->socket, ZMQ_LAST_ENDPOINT, w->endpoint, &n);
	w->conns = conns_new(w->endpoint, CONNECTIONS_MAX);
	if (strncmp(cfg->bus, "tcp://", 6) == 0 && zap_has_key(cfg->zap))
		w->zap = cfg->zap;
	*out = w;
	return 0;
}

void wlink_poll(struct wlink *w, void **messages, void **ends)
{
	*messages = w->socket;
	*ends = w->monitor;
}

long wlink_wait_ms(const struct wlink *w, int64_t now_us)
{
	return now_us < w->probe_until_us ? PROBE_MS : WAIT_MS;
}

static void read_monitor(struct wlink *w, int64_t now_us)
{
	zmq_msg_t m;
	zmq_msg_init(&m);
	while (zmq_msg_recv(&m, w->monitor, ZMQ_DONTWAIT) >= 0) {
		uint16_t event = 0;
		int32_t fd = -1;
		if (zmq_msg_size(&m) >= sizeof event + sizeof fd) {
			memcpy(&event, zmq_msg_data(&m), sizeof event);
			memcpy(&fd, (char *)zmq_msg_data(&m) + sizeof event, sizeof fd);
		}
		if (zmq_msg_more(&m))
			zmq_msg_recv(&m, w->monitor, 0); /* the endpoint */
		if (event == ZMQ_EVENT_ACCEPTED && fd >= 0)
			conns_opened(w->conns, fd, now_us + HELLO_DUE_US);
		else if (fd < 0 || conns_closed(w->conns, fd))
			w->probe_until_us = now_us + PROBE_US;
	}
	zmq_msg_close(&m);
}

const char *wlink_endpoint(const struct wlink *w)
{
	return w->endpoint;
}

/* ---- the table ---- */

uint32_t wlink_rows(const struct wlink *w)
{
	(void)w;
	return ENGINE_WORKERS_MAX;
}

struct wlink_worker *wlink_at(struct wlink *w, uint32_t i)
{
	return &w->workers[i];
}

/* A member of the service, or about to be one. */
static bool is_here(const struct wlink_worker *k)
{
	return k->state == WLINK_JOINING || k->state == WLINK_LOADING || k->state == WLINK_SERVING;
}

struct wlink_worker *wlink_find(struct wlink *w, uint64_t id)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++)
		if (is_here(&w->workers[i]) && w->workers[i].id == id)
			return &w->workers[i];
	return NULL;
}

static struct wlink_worker *find_route(struct wlink *w, const uint8_t *route, size_t n)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct wlink_worker *k = &w->workers[i];
		if (k->state != WLINK_FREE && k->route_n == n && memcmp(k->route, route, n) == 0)
			return k;
	}
	return NULL;
}

/* A free row, or that of the worker that was lost first; NULL: all are in use. */
static struct wlink_worker *new_row(struct wlink *w)
{
	struct wlink_worker *oldest = NULL;
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct wlink_worker *k = &w->workers[i];
		if (k->state == WLINK_FREE)
			return k;
		if (k->state == WLINK_LOST && (!oldest || k->left_us < oldest->left_us))
			oldest = k;
	}
	return oldest;
}

static bool on_this_host(const struct wlink_worker *k)
{
	char host[sizeof k->hello.host] = "";
	return gethostname(host, sizeof host - 1) == 0 && strcmp(host, k->hello.host) == 0;
}

int64_t wlink_local_pid(const struct wlink_worker *k)
{
	return on_this_host(k) ? k->hello.pid : 0;
}

void wlink_status(const struct wlink_worker *k, struct engine_worker *out)
{
	static const char *const names[] = {"", "joining", "loading", "serving", "draining", "lost"};
	*out = (struct engine_worker){
		.id = k->id,
		.rank = k->rank,
		.pid = k->hello.pid,
		.progress = k->state == WLINK_LOADING ? k->progress
			    : k->n_ranks              ? 1000
						      : 0,
		.n_blocks = k->ready.n_blocks,
		.n_host_blocks = k->ready.n_host_blocks,
		.weights_bytes = k->ready.weights_bytes,
		.kv_bytes = k->ready.kv_bytes,
		.stored_bytes = k->ready.stored_bytes,
		.scratch_bytes = k->ready.scratch_bytes,
		.host_bytes = k->ready.host_bytes,
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
}

/* ---- out ---- */

static int send_route(struct wlink *w, const uint8_t *route, size_t n)
{
	return zmq_send(w->socket, route, n, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ? -errno : 0;
}

/* Half a message is ended, or the next one's receiver would be taken for the rest of it.  An empty one
 * means nothing to a worker. */
static void end_half(struct wlink *w)
{
	for (int i = 0; i < HALF_TRIES && zmq_send(w->socket, "", 0, ZMQ_DONTWAIT) < 0; i++)
		;
}

static int send_bytes(struct wlink *w, const uint8_t *route, size_t n, const struct bus_msg *m)
{
	int rc = send_route(w, route, n);
	if (rc)
		return rc;
	bus_encode(m, &w->out);
	if (zmq_send(w->socket, w->out.p, w->out.len, ZMQ_DONTWAIT) >= 0)
		return 0;
	rc = -errno;
	end_half(w);
	return rc;
}

/* A message that is not sent ends it, at the next tick. */
static void send_msg(struct wlink *w, struct wlink_worker *k, const struct bus_msg *m)
{
	if (send_bytes(w, k->route, k->route_n, m) < 0)
		k->broken = true;
}

static void send_stop(struct wlink *w, const uint8_t *route, size_t n)
{
	send_bytes(w, route, n, &(struct bus_msg){.type = BUS_STOP});
}

void wlink_load(struct wlink *w, struct wlink_worker *const *ranks, uint32_t n, uint64_t epoch,
		int64_t now_us)
{
	for (uint32_t i = 0; i < n; i++) {
		struct wlink_worker *k = ranks[i];
		struct bus_msg m = {.type = BUS_LOAD};
		snprintf(m.load.model, sizeof m.load.model, "%s", w->cfg.model);
		snprintf(m.load.compute, sizeof m.load.compute, "%s", w->cfg.compute);
		m.load.fast = w->cfg.fast;
		m.load.epoch = epoch;
		m.load.block_size = w->cfg.block_size;
		m.load.max_context = w->cfg.model_context;
		m.load.max_rows = w->cfg.max_rows;
		m.load.max_slots = m.load.max_runs = w->cfg.max_seqs;
		m.load.kv_bytes = w->cfg.kv_bytes;
		m.load.swap_bytes = w->cfg.swap_bytes;
		m.load.n_threads = w->cfg.n_threads;
		m.load.n_ranks = n;
		m.load.rank = i;
		snprintf(m.load.meet, sizeof m.load.meet, "%s", ranks[0]->hello.meet);
		k->state = WLINK_LOADING;
		k->epoch = epoch;
		k->rank = i;
		k->n_ranks = n;
		k->progress = 0;
		k->sent = k->received = 0;
		k->heard_us = now_us;
		pace_ask(&k->pace, now_us);
		send_msg(w, k, &m);
	}
	if (n > 1)
		ranks[0]->meet_used = true;
}

void wlink_send_plan(struct wlink *w, struct wlink_worker *const *ranks, uint32_t n, const struct plan *p,
		     int64_t now_us)
{
	zmq_msg_t all, one;
	bus_encode_plan(p, &w->out);
	zmq_msg_init_size(&all, w->out.len);
	memcpy(zmq_msg_data(&all), w->out.p, w->out.len);
	for (uint32_t i = 0; i < n; i++) {
		ranks[i]->sent = p->number;
		pace_ask(&ranks[i]->pace, now_us);
		if (send_route(w, ranks[i]->route, ranks[i]->route_n) < 0) {
			ranks[i]->broken = true;
			continue;
		}
		zmq_msg_init(&one);
		zmq_msg_copy(&one, &all); /* the bytes are shared */
		if (zmq_msg_send(&one, w->socket, ZMQ_DONTWAIT) < 0) {
			ranks[i]->broken = true;
			zmq_msg_close(&one);
			end_half(w);
		}
	}
	zmq_msg_close(&all);
}

/* Says that we live, which group we see the worker in, and how many plans we have sent: what is not
 * there when it reads this was lost. */
static void send_beat(struct wlink *w, struct wlink_worker *k, int64_t now_us)
{
	const struct bus_msg m = {
		.type = BUS_BEAT, .beat = {.epoch = k->epoch, .state = BUS_SERVING, .progress = k->sent}};
	k->beat_us = now_us;
	int rc = send_bytes(w, k->route, k->route_n, &m);
	/* One that a debugger has stopped reads nothing, and may do so for as long as it takes. */
	if (rc < 0 && !(rc == -EAGAIN && w->silent_us < 0))
		k->broken = true;
}

/* A debugger has stopped it, as it seems: it beats when it goes on. */
static bool is_held(const struct wlink *w, const struct wlink_worker *k, int64_t now_us)
{
	return w->silent_us < 0 && k->state != WLINK_JOINING && now_us - k->heard_us > HELD_US;
}

void wlink_idle(struct wlink_worker *k, int64_t now_us)
{
	if (!is_here(k) || k->state == WLINK_JOINING)
		return;
	k->state = WLINK_JOINING;
	k->epoch = 0;
	/* The next beat tells it so, should it not be told to load before. */
	k->idle_us = k->heard_us = k->beat_us = now_us;
}

void wlink_drop(struct wlink *w, struct wlink_worker *k, int64_t now_us)
{
	if (!is_here(k))
		return;
	send_stop(w, k->route, k->route_n);
	k->state = WLINK_LOST;
	k->epoch = 0;
	k->left_us = now_us;
}

void wlink_retire(struct wlink *w, struct wlink_worker *k, int64_t now_us)
{
	if (!is_here(k))
		return;
	send_stop(w, k->route, k->route_n);
	k->state = WLINK_LEAVING;
	k->epoch = 0;
	k->left_us = now_us;
}

/* ---- in ---- */

/* Who sent a message: what ZeroMQ and ZAP say of its connection, nothing that it says itself. */
struct sender {
	const uint8_t *route;
	size_t route_n;
	int fd;          /* -1: unknown */
	const char *key; /* verified; "": none */
};

static struct sender sender_of(struct wlink *w, const uint8_t *route, size_t n, zmq_msg_t *body)
{
	const char *key = w->zap ? zmq_msg_gets(body, "User-Id") : NULL;
	return (struct sender){route, n, zmq_msg_get(body, ZMQ_SRCFD), key ? key : ""};
}

static bool may_join(struct wlink *w, const char *key)
{
	return !w->zap || (zap_roles(w->zap, key) & ZAP_WORKER);
}

/* This row's from now on. */
static void note_sender(struct wlink *w, struct wlink_worker *k, const struct sender *from)
{
	k->fd = from->fd;
	k->conn = conns_keep(w->conns, from->fd);
	k->list = w->zap ? zap_generation(w->zap) : 0;
	snprintf(k->key, sizeof k->key, "%s", from->key);
}

/* One message of exactly two frames: who, what.  0 when there is none.  Whatever else belongs to
 * a message that is none of ours is passed over: no frame of it may be taken for a sender. */
static int recv_frames(struct wlink *w, uint8_t *route, size_t *route_n, zmq_msg_t *body)
{
	int more, frames = 1;
	size_t more_n = sizeof more;
	int n = zmq_recv(w->socket, route, WLINK_IDENTITY_MAX, ZMQ_DONTWAIT);
	if (n < 0)
		return 0;
	*route_n = (size_t)n;
	zmq_msg_init(body);
	zmq_getsockopt(w->socket, ZMQ_RCVMORE, &more, &more_n);
	for (; more; more = zmq_msg_more(body), frames++)
		if (zmq_msg_recv(body, w->socket, 0) < 0)
			return -EBADMSG;
	return frames == 2 && n <= WLINK_IDENTITY_MAX ? 1 : -EBADMSG;
}

static void lose(struct wlink *w, struct wlink_worker *k, int64_t now_us, enum wlink_event_kind kind,
		 const char *text, struct wlink_event *ev)
{
	*ev = (struct wlink_event){.kind = kind, .worker = k, .epoch = k->epoch};
	err_why(ev->why, sizeof ev->why, 0, "worker %lld on %s: %s", (long long)k->hello.pid, k->hello.device,
		text);
	k->state = WLINK_LOST;
	k->epoch = 0;
	k->left_us = now_us;
	conns_release(w->conns, k->fd, k->conn, INT64_MAX);
}

/* ... and will not be taken back: it is told to stop. */
static void lost(struct wlink *w, struct wlink_worker *k, int64_t now_us, enum wlink_event_kind kind,
		 const char *text, struct wlink_event *ev)
{
	lose(w, k, now_us, kind, text, ev);
	send_stop(w, k->route, k->route_n);
}

/* Anybody can send such messages, and as many as they like. */
static bool may_warn(struct wlink *w, int64_t now_us)
{
	if (w->warned_us && now_us - w->warned_us < WARN_US)
		return false;
	w->warned_us = now_us;
	return true;
}

/* A worker that was lost is shown until another one is in its place. */
static void replace_lost(struct wlink *w, const struct bus_hello *h)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct wlink_worker *k = &w->workers[i];
		if (k->state != WLINK_LOST || strcmp(k->hello.host, h->host) != 0 ||
		    strcmp(k->hello.device, h->device) != 0)
			continue;
		k->state = WLINK_FREE;
		return;
	}
}

static void on_new(struct wlink *w, const struct sender *from, const struct bus_hello *h, int64_t now_us,
		   struct wlink_event *ev)
{
	replace_lost(w, h);
	struct wlink_worker *k = new_row(w);
	if (!k) {
		if (may_warn(w, now_us))
			log_warn("bus", "worker refused pid=%lld device=%s: there are %d already",
				 (long long)h->pid, h->device, ENGINE_WORKERS_MAX);
		send_stop(w, from->route, from->route_n);
		return;
	}
	*k = (struct wlink_worker){
		.state = WLINK_JOINING, .id = ++w->last_id, .hello = *h, .route_n = from->route_n};
	memcpy(k->route, from->route, from->route_n);
	note_sender(w, k, from);
	k->idle_us = k->heard_us = k->beat_us = k->hello_us = now_us;
	k->n_hellos = 1;
	log_info("bus", "worker joins worker=%llu pid=%lld host=%s device=%s", (unsigned long long)k->id,
		 (long long)h->pid, h->host, h->device);
	*ev = (struct wlink_event){.kind = WLINK_HELLO, .worker = k};
}

/* A worker that we have says hello again: its connection broke and came back, and plans under way
 * may be lost; or its group broke.  It need not load again. */
static void on_return(struct wlink *w, struct wlink_worker *k, const struct bus_hello *h, int64_t now_us,
		      struct wlink_event *ev)
{
	if (k->state == WLINK_LEAVING) {
		send_stop(w, k->route, k->route_n);
		return;
	}
	*ev = (struct wlink_event){.kind = WLINK_HELLO, .worker = k, .epoch = k->epoch};
	if (k->state == WLINK_LOST) { /* it was cut off, or stopped, and is back */
		k->id = ++w->last_id;
		k->steps = 0;
	}
	err_why(ev->why, sizeof ev->why, 0, "worker %lld on %s connected anew", (long long)h->pid, h->device);
	k->hello = *h;
	k->meet_used = false;
	k->broken = k->silent = false;
	k->pace = (struct pace){0};
	k->epoch = 0;
	k->state = WLINK_JOINING;
	k->idle_us = k->heard_us = k->beat_us = now_us;
}

/* Whether it says hello again and again: each one takes a group down. */
static bool floods(struct wlink_worker *k, int64_t now_us)
{
	if (now_us - k->hello_us > HELLO_US) {
		k->hello_us = now_us;
		k->n_hellos = 0;
	}
	return ++k->n_hellos > HELLOS_MAX;
}

static void on_hello(struct wlink *w, struct wlink_worker *k, const struct sender *from,
		     const struct bus_hello *h, int64_t now_us, struct wlink_event *ev)
{
	/* Its key was taken from the list since ZAP let it in. */
	if (!may_join(w, from->key)) {
		send_stop(w, from->route, from->route_n);
		conns_release(w->conns, from->fd, conns_keep(w->conns, from->fd), now_us + BAN_US);
		return;
	}
	if (k)
		note_sender(w, k, from);
	if (!k)
		on_new(w, from, h, now_us, ev);
	else if (!floods(k, now_us))
		on_return(w, k, h, now_us, ev);
	else if (is_here(k))
		lost(w, k, now_us, WLINK_GONE, "it says hello again and again", ev);
}

/* It was silent for too long, and speaks again: a host that was cut off, a process that was stopped.
 * Of what it knows, the weights are of use. */
static void revive(struct wlink *w, struct wlink_worker *k, int64_t now_us, struct wlink_event *ev)
{
	log_info("bus", "worker speaks again worker=%llu pid=%lld", (unsigned long long)k->id,
		 (long long)k->hello.pid);
	k->conn = conns_keep(w->conns, k->fd);
	k->silent = false;
	k->pace = (struct pace){0};
	k->state = WLINK_JOINING;
	k->idle_us = k->heard_us = k->beat_us = now_us;
	*ev = (struct wlink_event){.kind = WLINK_HELLO, .worker = k};
}

static void on_ready(struct wlink *w, struct wlink_worker *k, const struct bus_ready *r, int64_t now_us,
		     struct wlink_event *ev)
{
	if (r->n_vocab != w->cfg.n_vocab || r->n_blocks == 0) {
		lost(w, k, now_us, WLINK_GONE, "its model is not the one that was asked for", ev);
		return;
	}
	if (r->n_blocks > POOL_MAX || r->n_host_blocks > POOL_MAX) {
		lost(w, k, now_us, WLINK_GONE, "it claims more blocks than any pool has", ev);
		return;
	}
	k->ready = *r;
	k->state = WLINK_SERVING;
	log_info("bus",
		 "worker ready worker=%llu pid=%lld rank=%u/%u device=\"%s\" isa=%s blocks=%u load_ms=%u "
		 "numerics=%s",
		 (unsigned long long)k->id, (long long)k->hello.pid, k->rank, k->n_ranks, r->device_name,
		 r->isa, r->n_blocks, r->load_ms, r->numerics);
	*ev = (struct wlink_event){.kind = WLINK_READY, .worker = k, .epoch = k->epoch};
}

static void missed(struct wlink_worker *k, const char *what, struct wlink_event *ev)
{
	*ev = (struct wlink_event){.kind = WLINK_MISSED, .worker = k, .epoch = k->epoch};
	err_why(ev->why, sizeof ev->why, 0, "worker %lld on %s: %s was lost on the way",
		(long long)k->hello.pid, k->hello.device, what);
}

static void on_result(struct wlink *w, struct wlink_worker *k, const void *bytes, size_t n, int64_t now_us,
		      struct result *result, struct wlink_event *ev)
{
	char text[256];
	struct bus_limits limits = {
		.max_slots = w->cfg.max_seqs,
		.max_rows = w->cfg.max_rows,
		.max_runs = w->cfg.max_seqs,
		.max_context = w->cfg.model_context,
		.n_blocks = k->ready.n_blocks,
		.n_host_blocks = k->ready.n_host_blocks,
		.n_vocab = w->cfg.n_vocab,
	};
	/* Of the time before its group was over: it has not read our next word yet. */
	if (k->state != WLINK_SERVING)
		return;
	if (bus_decode_result(bytes, n, &limits, result, text, sizeof text)) {
		lost(w, k, now_us, WLINK_GONE, text, ev);
		return;
	}
	if (result->epoch != k->epoch)
		return;
	if (k->rank) {
		lost(w, k, now_us, WLINK_GONE, "it sends a result, which is for rank 0 to send", ev);
		return;
	}
	if (result->number > k->received + 1 && result->number <= k->sent) {
		missed(k, "a result", ev);
		return;
	}
	k->steps++;
	k->step_us = result->step_us;
	k->received = result->number;
	if (k->received == k->sent)
		pace_done(&k->pace);
	*ev = (struct wlink_event){.kind = WLINK_RESULT, .worker = k, .epoch = k->epoch};
}

/* Plans of a rank that sends no results. */
static void note_carried_out(struct wlink_worker *k, uint64_t number, int64_t now_us)
{
	if (number != k->received)
		pace_move(&k->pace, now_us);
	k->received = number;
	if (number == k->sent)
		pace_done(&k->pace);
}

/* What it says comes in the order in which it was said: a result that it has sent was read before
 * this. */
static void on_beat(struct wlink_worker *k, const struct bus_beat *b, int64_t now_us, struct wlink_event *ev)
{
	pace_beat(&k->pace, b->moves, now_us);
	/* Loads are not judged: they have parts of which nothing tells how far they are. */
	if (b->state == BUS_LOADING)
		pace_move(&k->pace, now_us);
	if (b->epoch != k->epoch || k->epoch == 0)
		return;
	if (b->state == BUS_LOADING) {
		if (k->state == WLINK_LOADING)
			k->progress = b->progress > 1000 ? 1000 : (uint32_t)b->progress;
		return;
	}
	if (k->state != WLINK_SERVING)
		return;
	if (k->rank)
		k->steps += b->expected > k->received + 1 ? b->expected - 1 - k->received : 0;
	bool result_lost = k->rank == 0 && b->expected > k->received + 1;
	if (k->rank && b->expected)
		note_carried_out(k, b->expected - 1, now_us);
	if (b->state == BUS_MISSED || result_lost)
		missed(k, result_lost ? "a result" : "a plan", ev);
}

/* A message of a worker that we have, other than hello. */
static void on_message(struct wlink *w, struct wlink_worker *k, const void *bytes, size_t n, int type,
		       int64_t now_us, struct result *result, struct wlink_event *ev)
{
	struct bus_msg m;
	char text[256];
	k->heard_us = now_us;
	if (type == BUS_RESULT) {
		pace_move(&k->pace, now_us);
		on_result(w, k, bytes, n, now_us, result, ev);
		return;
	}
	if (bus_decode(bytes, n, &m, text, sizeof text)) {
		lost(w, k, now_us, WLINK_GONE, text, ev);
		return;
	}
	if (m.type == BUS_READY)
		pace_done(&k->pace);
	if (m.type == BUS_READY && k->state == WLINK_LOADING && m.ready.epoch == k->epoch)
		on_ready(w, k, &m.ready, now_us, ev);
	else if (m.type == BUS_FAILED)
		lost(w, k, now_us, WLINK_FAILED, m.failed.why, ev);
	else if (m.type == BUS_STOP)
		lost(w, k, now_us, WLINK_GONE, "it ends", ev);
	else if (m.type == BUS_BEAT)
		on_beat(k, &m.beat, now_us, ev);
}

/* Whether one that never said hello has spoken for long enough to be told to stop. */
static bool stranger_due(struct wlink *w, const uint8_t *route, size_t n, int64_t now_us)
{
	for (uint32_t i = 0; i < STRANGERS; i++)
		if (w->strangers[i].route_n == n && memcmp(w->strangers[i].route, route, n) == 0)
			return now_us - w->strangers[i].since_us > STRANGER_US;
	uint32_t at = w->next_stranger++ % STRANGERS;
	memcpy(w->strangers[at].route, route, n);
	w->strangers[at].route_n = n;
	w->strangers[at].since_us = now_us;
	return false;
}

static void on_frames(struct wlink *w, const struct sender *from, const void *bytes, size_t n,
		      int64_t now_us, struct result *result, struct wlink_event *ev)
{
	char text[256] = "";
	struct bus_msg m;
	struct wlink_worker *k = find_route(w, from->route, from->route_n);
	int type = bus_peek(bytes, n, text, sizeof text);
	if (type == BUS_HELLO && bus_decode(bytes, n, &m, text, sizeof text))
		type = -EBADMSG;
	if (type == BUS_HELLO) {
		on_hello(w, k, from, &m.hello, now_us, ev);
	} else if (k && is_here(k) && type < 0) {
		lost(w, k, now_us, WLINK_GONE, text, ev);
	} else if (k && is_here(k)) {
		on_message(w, k, bytes, n, type, now_us, result, ev);
	} else if (k && k->state == WLINK_LEAVING) {
		if (type == BUS_STOP) {
			k->state = WLINK_FREE;
			*ev = (struct wlink_event){.kind = WLINK_LEFT, .worker = k};
		}
	} else if (type < 0) {
		if (may_warn(w, now_us))
			log_warn("bus", "a message that is none of ours was ignored: %s", text);
	} else if (k && k->silent && type != BUS_STOP && may_join(w, k->key)) {
		revive(w, k, now_us, ev);
	} else if (type != BUS_STOP && (k || stranger_due(w, from->route, from->route_n, now_us))) {
		send_stop(w, from->route, from->route_n); /* one we gave up, or one that never says hello */
	}
}

bool wlink_recv(struct wlink *w, int64_t now_us, struct result *result, struct wlink_event *ev)
{
	ev->kind = WLINK_NONE;
	read_monitor(w, now_us);
	for (; w->turn < TURN_MAX && ev->kind == WLINK_NONE; w->turn++) {
		uint8_t route[WLINK_IDENTITY_MAX];
		size_t route_n;
		zmq_msg_t body;
		int got = recv_frames(w, route, &route_n, &body);
		if (got == 0)
			break;
		read_monitor(w, now_us); /* its connection was accepted before it could send */
		struct sender from = sender_of(w, route, route_n, &body);
		if (got > 0)
			on_frames(w, &from, zmq_msg_data(&body), zmq_msg_size(&body), now_us, result, ev);
		else if (may_warn(w, now_us))
			log_warn("bus", "a message that is none of ours was ignored: not two frames");
		zmq_msg_close(&body);
	}
	if (ev->kind != WLINK_NONE)
		return true;
	w->turn = 0;
	return false;
}

/* ---- time ---- */

/* Its key was taken from the list. */
static bool is_banned(struct wlink *w, struct wlink_worker *k)
{
	uint64_t now = w->zap ? zap_generation(w->zap) : 0;
	if (k->list == now)
		return false;
	k->list = now;
	return !may_join(w, k->key);
}

static bool tick_worker(struct wlink *w, struct wlink_worker *k, int64_t now_us, struct wlink_event *ev)
{
	if (k->state == WLINK_LOST && now_us - k->left_us > LOST_SHOWN_US)
		k->state = WLINK_FREE;
	if (k->state == WLINK_LEAVING && now_us - k->left_us > LEAVE_US) {
		k->state = WLINK_FREE;
		*ev = (struct wlink_event){.kind = WLINK_LEFT, .worker = k};
		return true;
	}
	if (!is_here(k))
		return false;
	if (is_banned(w, k)) {
		lost(w, k, now_us, WLINK_GONE, "its key is not in the list any more", ev);
		conns_release(w->conns, k->fd, k->conn, now_us + BAN_US);
		return true;
	}
	bool probe = now_us < w->probe_until_us;
	if (now_us - k->beat_us >= (probe ? PROBE_MS : BUS_BEAT_MS) * 1000 && (probe || !is_held(w, k, now_us)))
		send_beat(w, k, now_us);
	/* One that has nothing to do may be silent: it beats when it was told to load. */
	bool watched = w->silent_us > 0 && k->state != WLINK_JOINING;
	if (k->broken) {
		lost(w, k, now_us, WLINK_GONE, "its connection is gone", ev);
	} else if (watched && now_us - k->heard_us > w->silent_us) {
		lose(w, k, now_us, WLINK_GONE, "silent for too long: it hangs, or its host is gone", ev);
		k->silent = true;
	} else if (w->stuck_us > 0 && pace_is_stuck(&k->pace, w->stuck_us, now_us)) {
		lost(w, k, now_us, WLINK_GONE, "it beats, but does not get on: a step of it hangs", ev);
	} else {
		return false;
	}
	return true;
}

bool wlink_tick(struct wlink *w, int64_t now_us, struct wlink_event *ev)
{
	size_t cut = conns_expire(w->conns, now_us);
	if (cut && may_warn(w, now_us))
		log_warn("bus", "connections closed, no worker's: n=%zu", cut);
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++)
		if (tick_worker(w, &w->workers[i], now_us, ev))
			return true;
	return false;
}

/* ---- the end ---- */

/* A worker answers the word to stop with the same; a socket that is closed at once can lose
 * what the other side has not read yet. */
static void wait_stopped(struct wlink *w, uint32_t n)
{
	int64_t until = clock_us() + STOP_MS * 1000;
	for (int64_t left; n && (left = until - clock_us()) > 0;) {
		zmq_pollitem_t item = {.socket = w->socket, .events = ZMQ_POLLIN};
		uint8_t route[WLINK_IDENTITY_MAX];
		size_t route_n;
		zmq_msg_t body;
		if (zmq_poll(&item, 1, (long)(left / 1000 + 1)) <= 0)
			return;
		int got = recv_frames(w, route, &route_n, &body);
		if (got == 0)
			continue;
		bool stopped =
			got > 0 && bus_peek(zmq_msg_data(&body), zmq_msg_size(&body), NULL, 0) == BUS_STOP;
		zmq_msg_close(&body);
		struct wlink_worker *k = stopped ? find_route(w, route, route_n) : NULL;
		if (k && k->state == WLINK_LEAVING) {
			k->state = WLINK_FREE;
			n--;
		}
	}
}

void wlink_close(struct wlink *w)
{
	uint32_t n = 0;
	if (!w)
		return;
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct wlink_worker *k = &w->workers[i];
		wlink_retire(w, k, 0);
		n += k->state == WLINK_LEAVING && !k->broken;
	}
	wait_stopped(w, n);
	close_sockets(w);
	buf_fini(&w->out);
	free(w);
}
