#include "controller/fleet/worker_link.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/fleet/agree.h"
#include "controller/fleet/model_server.h"
#include "controller/net/conns.h"
#include "controller/net/zap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum {
	/* Messages read per iteration, so that a flood on the bus does not delay a step. */
	READS_MAX = 256,
	/* Largest pool accepted from a worker: tables of this size are allocated here. */
	POOL_MAX = 1 << 24,
	FILES_MAX = 8,         /* chunks of a model sent per iteration, after all plans */
	WARN_US = 1000 * 1000, /* between two warnings caused by any peer */
	/* A lost worker stays visible this long, unless another worker replaces it. */
	LOST_SHOWN_US = 60 * 1000 * 1000,
	LEAVE_US = 2 * 1000 * 1000, /* time for a worker to confirm stop */
	SILENT_US = 2 * 1000 * 1000,
	STUCK_US = 120 * 1000 * 1000,
	/* If silence has no limit, a worker that is silent this long gets no more heartbeats: unread
	 * heartbeats would fill its queue and leave no room for a plan. */
	HELD_US = 5 * 1000 * 1000,
	/* 1/SILENT_PART of the silence limit is reserved for noticing the loss and starting another
	 * worker. */
	SILENT_PART = 5,
	HANDSHAKE_MS = 3000,
	/* At exit, time for workers to confirm stop.  A worker that gets no processor time before the
	 * connection closes loses unread messages (its socket is ZMQ_IMMEDIATE), and waits for its grace
	 * period. */
	STOP_US = 1500 * 1000,
	LINGER_MS = 200, /* enough to send stop */
	STRANGERS = 16,
	WAIT_MS = 100,
	HALF_TRIES = 3, /* to complete a message without its body */
	/* A connection was closed, and the monitor does not name the worker: heartbeats find out which. */
	PROBE_US = 50 * 1000,
	PROBE_MS = 5,
	/* Grace for a peer without hello: after a restart, other messages of a worker may arrive first. */
	STRANGER_US = 1000 * 1000,
	CONNECTIONS_MAX = 4 * ENGINE_WORKERS_MAX, /* includes returning workers, and strangers */
	BACKLOG = 1024,                  /* workers can still connect during a flood of connections */
	HELLO_DUE_US = 10 * 1000 * 1000, /* a connection without hello is closed after this time */
	BAN_US = 1000 * 1000,            /* time for a worker with a revoked key to exit by itself */
};

struct worker_link {
	struct engine_config cfg;
	void *socket;  /* ROUTER */
	void *monitor; /* PAIR: connections opened and closed */
	struct conns *conns;
	struct zap *zap; /* borrowed; NULL: workers need no key */
	int64_t probe_until_us;
	char endpoint[256];
	struct worker_table table;
	struct agree agree; /* the modes chosen for --compute auto */
	int64_t silent_us;  /* limits after which a worker is lost; negative: never */
	int64_t stuck_us;
	uint32_t n_read; /* messages read in this iteration */
	int64_t warned_us;
	struct buf out;
	struct { /* peers that sent a message without hello, and the time of the first */
		uint8_t route[WORKER_ROUTE_MAX];
		size_t route_n;
		int64_t since_us;
	} strangers[STRANGERS];
	uint32_t next_stranger;
};

/* ---- sockets ---- */

static void set_int(void *socket, int option, int value)
{
	zmq_setsockopt(socket, option, &value, sizeof value);
}

static void close_sockets(struct worker_link *w)
{
	zmq_socket_monitor(w->socket, NULL, 0);
	if (w->monitor)
		zmq_close(w->monitor);
	zmq_close(w->socket);
	conns_free(w->conns);
}

int worker_link_open(void *zmq_context, const struct engine_config *cfg, struct worker_link **out,
		     struct why *why)
{
	struct worker_link *w = xcalloc(1, sizeof *w);
	w->cfg = *cfg;
	w->silent_us = cfg->silent_us ? cfg->silent_us : SILENT_US;
	w->stuck_us = cfg->stuck_us ? cfg->stuck_us : STUCK_US;
	w->silent_us -= w->silent_us / SILENT_PART;
	w->socket = zmq_socket(zmq_context, ZMQ_ROUTER);
	if (!w->socket) {
		free(w);
		return err_why(why, -errno, "worker bus: %s", zmq_strerror(errno));
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
		set_int(w->monitor, ZMQ_RCVHWM, 0); /* or ZeroMQ's I/O threads block on a full queue */
	}
	int events = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED;
	if (!w->monitor || zmq_socket_monitor(w->socket, name, events) < 0 ||
	    zmq_connect(w->monitor, name) < 0 || zap_guard(cfg->zap, w->socket, cfg->bus, ZAP_BUS) ||
	    zmq_bind(w->socket, cfg->bus) < 0) {
		int err = errno;
		close_sockets(w);
		free(w);
		return err_why(why, -err, "worker bus: cannot listen on %s: %s", cfg->bus, zmq_strerror(err));
	}
	size_t n = sizeof w->endpoint;
	zmq_getsockopt(w->socket, ZMQ_LAST_ENDPOINT, w->endpoint, &n);
	w->conns = conns_new(w->endpoint, CONNECTIONS_MAX);
	if (strncmp(cfg->bus, "tcp://", 6) == 0 && zap_has_key(cfg->zap))
		w->zap = cfg->zap;
	*out = w;
	return 0;
}

void worker_link_poll(struct worker_link *w, void **messages, void **ends)
{
	*messages = w->socket;
	*ends = w->monitor;
}

long worker_link_wait_ms(const struct worker_link *w, int64_t now_us)
{
	return now_us < w->probe_until_us ? PROBE_MS : WAIT_MS;
}

static void read_monitor(struct worker_link *w, int64_t now_us)
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
			zmq_msg_recv(&m, w->monitor, 0); /* the endpoint's frame */
		if (event == ZMQ_EVENT_ACCEPTED && fd >= 0)
			conns_opened(w->conns, fd, now_us + HELLO_DUE_US);
		else if (fd < 0 || conns_closed(w->conns, fd))
			w->probe_until_us = now_us + PROBE_US;
	}
	zmq_msg_close(&m);
}

const char *worker_link_endpoint(const struct worker_link *w)
{
	return w->endpoint;
}

struct worker_table *worker_link_table(struct worker_link *w)
{
	return &w->table;
}

/* ---- sending ---- */

static int send_route(struct worker_link *w, const uint8_t *route, size_t n)
{
	return zmq_send(w->socket, route, n, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ? -errno : 0;
}

/* Complete a message after its body could not be sent: an empty frame, which workers ignore, takes its place.
 * Otherwise the next message would be taken for the body. */
static void end_half(struct worker_link *w)
{
	for (int i = 0; i < HALF_TRIES && zmq_send(w->socket, "", 0, ZMQ_DONTWAIT) < 0; i++)
		;
}

static int send_bytes(struct worker_link *w, const uint8_t *route, size_t n, const struct bus_msg *m)
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

static void send_stop(struct worker_link *w, const uint8_t *route, size_t n)
{
	send_bytes(w, route, n, &(struct bus_msg){.type = BUS_STOP});
}

/* Return the number of ranks on the cores of rank i: those of its NUMA node, or of the machine. */
static uint32_t count_sharing(struct worker *const *ranks, uint32_t n, uint32_t i)
{
	uint32_t sharing = 0;
	for (uint32_t j = 0; j < n; j++)
		sharing += strcmp(ranks[j]->hello.device, ranks[i]->hello.device) == 0;
	return sharing;
}

/* Send one message to all ranks. */
static void send_all(struct worker_link *w, struct worker *const *ranks, uint32_t n, const struct buf *bytes)
{
	zmq_msg_t all, one;
	zmq_msg_init_size(&all, bytes->len);
	memcpy(zmq_msg_data(&all), bytes->p, bytes->len);
	for (uint32_t i = 0; i < n; i++) {
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

/* Return whether the model's files are offered to workers.  They must not go to any local user: workers have
 * keys, or belong to this user (zap_guard()). */
static bool offers_model(const struct worker_link *w)
{
	return w->cfg.model_server && (w->zap || strncmp(w->cfg.bus, "ipc://", 6) == 0);
}

void worker_link_load(struct worker_link *w, struct worker *const *ranks, uint32_t n, uint64_t epoch,
		      int64_t now_us)
{
	/* Before any load is sent: a later rank may change the mode of all. */
	for (uint32_t i = 0; i < n; i++)
		agree_join(&w->agree, w->cfg.compute, &ranks[i]->hello, ranks[i]->id);
	for (uint32_t i = 0; i < n; i++) {
		struct worker *k = ranks[i];
		struct bus_msg m = {.type = BUS_LOAD};
		snprintf(m.load.model, sizeof m.load.model, "%s", w->cfg.model);
		agree_modes(&w->agree, w->cfg.compute, &k->hello, &k->modes);
		snprintf(m.load.compute, sizeof m.load.compute, "%s", k->modes.compute);
		snprintf(m.load.experts_compute, sizeof m.load.experts_compute, "%s", k->modes.experts);
		snprintf(m.load.head, sizeof m.load.head, "%s", w->cfg.head);
		snprintf(m.load.kv, sizeof m.load.kv, "%s", w->cfg.kv);
		if (w->cfg.model_server) {
			snprintf(m.load.quick_fingerprint, sizeof m.load.quick_fingerprint, "%s",
				 model_server_quick_fingerprint(w->cfg.model_server));
			model_server_fingerprint(w->cfg.model_server, m.load.fingerprint);
			model_server_forget(w->cfg.model_server, k->id);
			m.load.offers = offers_model(w);
		}
		m.load.ep = w->cfg.ep;
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
		m.load.n_sharing = count_sharing(ranks, n, i);
		snprintf(m.load.rendezvous, sizeof m.load.rendezvous, "%s", ranks[0]->hello.rendezvous);
		worker_load(k, epoch, i, n, now_us);
		if (send_bytes(w, k->route, k->route_n, &m) < 0)
			k->broken = true; /* lost at the next worker_link_tick() */
	}
	if (w->cfg.vocabulary)
		send_all(w, ranks, n, w->cfg.vocabulary);
	if (n > 1)
		ranks[0]->rendezvous_used = true;
}

void worker_link_send_plan(struct worker_link *w, struct worker *const *ranks, uint32_t n, uint64_t number,
			   const struct buf *bytes, int64_t now_us)
{
	for (uint32_t i = 0; i < n; i++)
		worker_plan_sent(ranks[i], number, now_us);
	send_all(w, ranks, n, bytes);
}

/* Send a heartbeat, with the worker's tp_group as the controller sees it, and the number of plans sent: a
 * plan that the worker does not have when it reads this was lost. */
static void send_beat(struct worker_link *w, struct worker *k, int64_t now_us)
{
	const struct bus_msg m = {.type = BUS_BEAT,
				  .beat = {.epoch = k->epoch, .state = BUS_SERVING, .progress = k->sent}};
	k->beat_us = now_us;
	int rc = send_bytes(w, k->route, k->route_n, &m);
	/* A worker stopped by a debugger may read nothing for any length of time. */
	if (rc < 0 && !(rc == -EAGAIN && w->silent_us < 0))
		k->broken = true;
}

/* Return whether the worker seems to be stopped by a debugger: its heartbeats resume when it continues. */
static bool is_held(const struct worker_link *w, const struct worker *k, int64_t now_us)
{
	return w->silent_us < 0 && k->state != WORKER_JOINING && now_us - k->last_seen_us > HELD_US;
}

void worker_link_drop(struct worker_link *w, struct worker *k, int64_t now_us)
{
	if (!worker_is_live(k))
		return;
	send_stop(w, k->route, k->route_n);
	worker_lose(k, now_us);
}

void worker_link_retire(struct worker_link *w, struct worker *k, int64_t now_us)
{
	if (!worker_is_live(k))
		return;
	if (send_bytes(w, k->route, k->route_n, &(struct bus_msg){.type = BUS_STOP}))
		k->broken = true; /* no confirmation will arrive */
	worker_leave(k, now_us);
}

/* ---- receiving ---- */

static bool is_on(const struct worker_link *w, const char *transport)
{
	return strncmp(w->cfg.bus, transport, strlen(transport)) == 0;
}

/* The sender of a message, as ZeroMQ and ZAP know its connection, not by its own claims. */
struct sender {
	const uint8_t *route;
	size_t route_n;
	int fd;              /* -1: unknown */
	const char *key;     /* verified key; "": none */
	const char *address; /* address of its host; "": this host */
};

static bool is_loopback(const char *address)
{
	return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ||
	       strncmp(address, "::ffff:127.", 11) == 0;
}

static struct sender sender_of(struct worker_link *w, const uint8_t *route, size_t n, zmq_msg_t *body)
{
	const char *key = w->zap ? zmq_msg_gets(body, "User-Id") : NULL;
	const char *address = is_on(w, "tcp://") ? zmq_msg_gets(body, "Peer-Address") : NULL;
	return (struct sender){route, n, zmq_msg_get(body, ZMQ_SRCFD), key ? key : "",
			       address && !is_loopback(address) ? address : ""};
}

/* Return the pid of the process on this host that sent the hello; 0: not proven.  Proof is needed because
 * notices about a worker make the supervisor kill it, and any peer can declare any host and pid. */
static int64_t proven_pid(const struct worker_link *w, const struct sender *from, const struct bus_hello *h)
{
	if (is_on(w, "tcp://"))
		return local_token_equal(h->token, w->cfg.local_token) ? h->pid : 0;
	if (is_on(w, "ipc://")) {
		struct ucred peer;
		socklen_t n = sizeof peer;
		/* The descriptor may belong to another connection by now: then the pids differ. */
		bool known = from->fd >= 0 && getsockopt(from->fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0;
		return known && peer.pid == h->pid ? h->pid : 0;
	}
	/* inproc://: a peer in this process is trusted. */
	char host[sizeof h->host] = "";
	return gethostname(host, sizeof host - 1) == 0 && strcmp(host, h->host) == 0 ? h->pid : 0;
}

static bool may_join(struct worker_link *w, const char *key)
{
	return !w->zap || (zap_roles(w->zap, key) & ZAP_WORKER);
}

/* Record the connection that the worker uses from now on. */
static void bind_sender(struct worker_link *w, struct worker *k, const struct sender *from,
			const struct bus_hello *h)
{
	k->local_pid = proven_pid(w, from, h);
	snprintf(k->address, sizeof k->address, "%s", from->address);
	k->fd = from->fd;
	k->conn = conns_keep(w->conns, from->fd);
	k->list = w->zap ? zap_generation(w->zap) : 0;
	snprintf(k->key, sizeof k->key, "%s", from->key);
}

/* Receive one message of exactly two frames: routing id, body.  1; 0: none; -EBADMSG: malformed.  All frames
 * of a malformed message are consumed, so that none is taken for a routing id. */
static int recv_frames(struct worker_link *w, uint8_t *route, size_t *route_n, zmq_msg_t *body)
{
	int more, frames = 1;
	size_t more_n = sizeof more;
	int n = zmq_recv(w->socket, route, WORKER_ROUTE_MAX, ZMQ_DONTWAIT);
	if (n < 0)
		return 0;
	*route_n = (size_t)n;
	zmq_msg_init(body);
	zmq_getsockopt(w->socket, ZMQ_RCVMORE, &more, &more_n);
	for (; more; more = zmq_msg_more(body), frames++)
		if (zmq_msg_recv(body, w->socket, 0) < 0)
			return -EBADMSG;
	return frames == 2 && n <= WORKER_ROUTE_MAX ? 1 : -EBADMSG;
}

static void lose_quietly(struct worker_link *w, struct worker *k, int64_t now_us, enum link_event_kind kind,
			 const char *text, struct link_event *ev)
{
	*ev = (struct link_event){.kind = kind, .worker = k, .epoch = k->epoch};
	err_why(&ev->why, 0, "worker %lld on %s: %s", (long long)k->hello.pid, k->hello.device, text);
	worker_lose(k, now_us);
	conns_release(w->conns, k->fd, k->conn, INT64_MAX);
}

/* Lose the worker and send it stop: unlike a silent worker it cannot return. */
static void lose(struct worker_link *w, struct worker *k, int64_t now_us, enum link_event_kind kind,
		 const char *text, struct link_event *ev)
{
	lose_quietly(w, k, now_us, kind, text, ev);
	send_stop(w, k->route, k->route_n);
}

/* Return whether to warn; limits warnings about messages that any peer can send at any rate. */
static bool may_warn(struct worker_link *w, int64_t now_us)
{
	if (w->warned_us && now_us - w->warned_us < WARN_US)
		return false;
	w->warned_us = now_us;
	return true;
}

static void on_new(struct worker_link *w, const struct sender *from, const struct bus_hello *h,
		   int64_t now_us, struct link_event *ev)
{
	struct worker *k = worker_table_add(&w->table, h, from->route, from->route_n, now_us);
	if (!k) {
		if (may_warn(w, now_us))
			log_warn("bus",
				 "worker refused pid=%lld device=%s connected=%d reason=\"no more workers "
				 "are possible\"",
				 (long long)h->pid, h->device, ENGINE_WORKERS_MAX);
		send_stop(w, from->route, from->route_n);
		return;
	}
	bind_sender(w, k, from, h);
	log_info("bus", "worker joins worker=%llu pid=%lld host=%s device=%s", (unsigned long long)k->id,
		 (long long)h->pid, h->host, h->device);
	*ev = (struct link_event){.kind = LINK_HELLO, .worker = k};
}

/* Handle hello from a known worker: its connection was interrupted, and plans in flight may be lost; or its
 * tp_group broke.  Its weights stay loaded. */
static void on_return(struct worker_link *w, struct worker *k, const struct bus_hello *h, int64_t now_us,
		      struct link_event *ev)
{
	if (k->state == WORKER_LEAVING) {
		send_stop(w, k->route, k->route_n);
		return;
	}
	*ev = (struct link_event){.kind = LINK_HELLO, .worker = k, .epoch = k->epoch};
	err_why(&ev->why, 0, "worker %lld on %s connected again", (long long)h->pid, h->device);
	worker_rejoin(&w->table, k, h, now_us);
}

static void on_hello(struct worker_link *w, struct worker *k, const struct sender *from,
		     const struct bus_hello *h, int64_t now_us, struct link_event *ev)
{
	/* The key may have been revoked since ZAP admitted the connection. */
	if (!may_join(w, from->key)) {
		send_stop(w, from->route, from->route_n);
		conns_release(w->conns, from->fd, conns_keep(w->conns, from->fd), now_us + BAN_US);
		return;
	}
	if (k)
		bind_sender(w, k, from, h);
	if (!k)
		on_new(w, from, h, now_us, ev);
	else if (!worker_hello_flood(k, now_us))
		on_return(w, k, h, now_us, ev);
	else if (worker_is_live(k))
		lose(w, k, now_us, LINK_GONE, "it sends hello too often", ev);
}

/* Handle a message from a worker that was lost because of silence: its host was cut off, or the process
 * stopped.  Of its state only the weights are still useful. */
static void revive(struct worker_link *w, struct worker *k, int64_t now_us, struct link_event *ev)
{
	log_info("bus", "worker is back worker=%llu pid=%lld", (unsigned long long)k->id,
		 (long long)k->hello.pid);
	k->conn = conns_keep(w->conns, k->fd);
	worker_revive(k, now_us);
	*ev = (struct link_event){.kind = LINK_HELLO, .worker = k};
}

static void on_ready(struct worker_link *w, struct worker *k, const struct bus_ready *r, int64_t now_us,
		     struct link_event *ev)
{
	if (r->n_vocab != w->cfg.n_vocab || r->n_blocks == 0) {
		lose(w, k, now_us, LINK_GONE, "it loaded another model than requested", ev);
		return;
	}
	if (r->n_blocks > POOL_MAX || r->n_host_blocks > POOL_MAX) {
		lose(w, k, now_us, LINK_GONE, "it claims more blocks than any pool has", ev);
		return;
	}
	if (!agree_decide(&w->agree, w->cfg.compute, &k->hello, &k->modes)) {
		struct agree_modes now;
		agree_modes(&w->agree, w->cfg.compute, &k->hello, &now);
		*ev = (struct link_event){.kind = LINK_HELLO, .worker = k, .epoch = k->epoch};
		err_why(&ev->why, 0,
			"worker %lld on %s loads again: it has loaded compute=%s%s%s, and all take "
			"compute=%s%s%s by now",
			(long long)k->hello.pid, k->hello.device, k->modes.compute,
			k->modes.experts[0] ? " experts_compute=" : "", k->modes.experts, now.compute,
			now.experts[0] ? " experts_compute=" : "", now.experts);
		return;
	}
	k->ready = *r;
	k->state = WORKER_SERVING;
	log_info("bus",
		 "worker ready worker=%llu pid=%lld rank=%u ranks=%u device=\"%s\" isa=%s blocks=%u "
		 "load_ms=%u numerics=\"%s\"",
		 (unsigned long long)k->id, (long long)k->hello.pid, k->rank, k->n_ranks, r->device_name,
		 r->isa, r->n_blocks, r->load_ms, r->numerics);
	*ev = (struct link_event){.kind = LINK_READY, .worker = k, .epoch = k->epoch};
}

static void missed(struct worker *k, const char *what, struct link_event *ev)
{
	*ev = (struct link_event){.kind = LINK_MISSED, .worker = k, .epoch = k->epoch};
	err_why(&ev->why, 0, "worker %lld on %s: %s was lost on the way", (long long)k->hello.pid,
		k->hello.device, what);
}

static void on_result(struct worker_link *w, struct worker *k, const void *bytes, size_t n, int64_t now_us,
		      struct result *result, struct link_event *ev)
{
	struct why text;
	struct bus_limits limits = {
		.max_slots = w->cfg.max_seqs,
		.max_rows = w->cfg.max_rows,
		.max_runs = w->cfg.max_seqs,
		.max_context = w->cfg.model_context,
		.n_blocks = k->ready.n_blocks,
		.n_host_blocks = k->ready.n_host_blocks,
		.n_vocab = w->cfg.n_vocab,
	};
	/* Sent before the worker learned that its tp_group has ended. */
	if (k->state != WORKER_SERVING)
		return;
	if (bus_decode_result(bytes, n, &limits, result, &text)) {
		lose(w, k, now_us, LINK_GONE, text.text, ev);
		return;
	}
	if (result->epoch != k->epoch)
		return;
	if (k->rank) {
		lose(w, k, now_us, LINK_GONE, "it sent a result, which only rank 0 does", ev);
		return;
	}
	if (result->number > k->received + 1 && result->number <= k->sent) {
		missed(k, "a result", ev);
		return;
	}
	worker_result_received(k, result);
	*ev = (struct link_event){.kind = LINK_RESULT, .worker = k, .epoch = k->epoch};
}

/* Messages of a worker arrive in order: a result sent before this heartbeat was read before it. */
static void on_beat(struct worker_link *w, struct worker *k, const struct bus_beat *b, int64_t now_us,
		    struct link_event *ev)
{
	watchdog_beat(&k->watchdog, b->moves, now_us);
	/* A load has no time limit, because some of its phases report no progress. */
	if (b->state == BUS_LOADING)
		watchdog_progress(&k->watchdog, now_us);
	if (b->epoch != k->epoch || k->epoch == 0)
		return;
	if (b->state == BUS_LOADING) {
		if (k->state == WORKER_LOADING) {
			k->progress = b->progress > 1000 ? 1000 : (uint32_t)b->progress;
			k->load = *b;
			if (k->load.done > k->load.total)
				k->load.done = k->load.total;
		}
		return;
	}
	if (k->state != WORKER_SERVING)
		return;
	worker_counts_raise(&k->counts, &b->counts);
	k->grammar_bytes = b->grammar_bytes;
	if (k->rank == 0 && b->cells.n)
		expert_table_add(&w->table.experts, (uint32_t)(k - w->table.rows), k->epoch, &b->cells);
	bool result_lost = k->rank == 0 && b->expected > k->received + 1;
	if (k->rank)
		worker_plans_executed(k, b->expected, now_us);
	if (b->state == BUS_MISSED || result_lost)
		missed(k, result_lost ? "a result" : "a plan", ev);
	else if (b->state == BUS_LEAVING)
		*ev = (struct link_event){.kind = LINK_LEAVES, .worker = k, .epoch = k->epoch};
}

static void on_awake(struct worker *k, const struct bus_awake *a, struct result *result,
		     struct link_event *ev)
{
	if (k->state != WORKER_SERVING || a->epoch != k->epoch || k->rank)
		return;
	result_reset(result);
	for (uint32_t i = 0; i < a->n; i++)
		result_add_held(result, a->slots[i]);
	*ev = (struct link_event){.kind = LINK_AWAKE, .worker = k, .epoch = k->epoch};
}

/* Handle a request for model files from a worker that has been sent its load.  After a dropped request the
 * worker sends it again. */
static void on_want(struct worker_link *w, struct worker *k, const struct bus_want *want, int64_t now_us)
{
	if (!offers_model(w) || k->state != WORKER_LOADING || want->epoch != k->epoch)
		return;
	if (!model_server_request(w->cfg.model_server, k->id, want) && may_warn(w, now_us))
		log_warn("bus", "worker requests too many chunks worker=%llu", (unsigned long long)k->id);
}

/* Send an answer.  A worker requests again what it does not receive; heartbeats detect a lost worker. */
static void send_answer(struct worker_link *w, const struct worker *k, const struct model_answer *a)
{
	zmq_msg_t m;
	zmq_msg_init_data(&m, a->bytes, a->n, a->release, a->hint);
	if (k && k->state == WORKER_LOADING && !send_route(w, k->route, k->route_n) &&
	    zmq_msg_send(&m, w->socket, ZMQ_DONTWAIT) < 0)
		end_half(w);
	zmq_msg_close(&m);
}

void worker_link_send_files(struct worker_link *w)
{
	struct model_answer a;
	for (int i = 0; w->cfg.model_server && i < FILES_MAX; i++) {
		if (!model_server_take(w->cfg.model_server, &a))
			return;
		send_answer(w, worker_table_find(&w->table, a.worker), &a);
	}
}

/* Handle a message of a live worker, other than hello. */
static void on_message(struct worker_link *w, struct worker *k, const void *bytes, size_t n, int type,
		       int64_t now_us, struct result *result, struct link_event *ev)
{
	struct bus_msg m;
	struct why text;
	k->last_seen_us = now_us;
	if (type == BUS_RESULT) {
		watchdog_progress(&k->watchdog, now_us);
		on_result(w, k, bytes, n, now_us, result, ev);
		return;
	}
	if (bus_decode(bytes, n, &m, &text)) {
		lose(w, k, now_us, LINK_GONE, text.text, ev);
		return;
	}
	if (m.type == BUS_READY)
		watchdog_done(&k->watchdog);
	if (m.type == BUS_READY && k->state == WORKER_LOADING && m.ready.epoch == k->epoch)
		on_ready(w, k, &m.ready, now_us, ev);
	else if (m.type == BUS_FAILED)
		lose(w, k, now_us, LINK_FAILED, m.failed.why, ev);
	else if (m.type == BUS_STOP)
		lose(w, k, now_us, LINK_GONE, "it exits", ev);
	else if (m.type == BUS_BEAT)
		on_beat(w, k, &m.beat, now_us, ev);
	else if (m.type == BUS_WANT)
		on_want(w, k, &m.want, now_us);
	else if (m.type == BUS_AWAKE)
		on_awake(k, &m.awake, result, ev);
}

/* Return whether a peer has sent messages without hello for longer than its grace. */
static bool stranger_due(struct worker_link *w, const uint8_t *route, size_t n, int64_t now_us)
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

static void on_frames(struct worker_link *w, const struct sender *from, const void *bytes, size_t n,
		      int64_t now_us, struct result *result, struct link_event *ev)
{
	struct why text = {""};
	struct bus_msg m;
	struct worker *k = worker_table_find_route(&w->table, from->route, from->route_n);
	int type = bus_peek(bytes, n, &text);
	if (type == BUS_HELLO && bus_decode(bytes, n, &m, &text))
		type = -EBADMSG;
	if (type == BUS_HELLO) {
		on_hello(w, k, from, &m.hello, now_us, ev);
	} else if (k && worker_is_live(k) && type < 0) {
		lose(w, k, now_us, LINK_GONE, text.text, ev);
	} else if (k && worker_is_live(k)) {
		on_message(w, k, bytes, n, type, now_us, result, ev);
	} else if (k && k->state == WORKER_LEAVING) {
		if (type == BUS_STOP) {
			k->state = WORKER_FREE;
			*ev = (struct link_event){.kind = LINK_LEFT, .worker = k};
		}
	} else if (type < 0) {
		if (may_warn(w, now_us))
			log_warn("bus", "malformed message ignored reason=\"%s\"", text.text);
	} else if (k && k->silent && type != BUS_STOP && may_join(w, k->key)) {
		revive(w, k, now_us, ev);
	} else if (type != BUS_STOP && (k || stranger_due(w, from->route, from->route_n, now_us))) {
		send_stop(w, from->route, from->route_n); /* a lost worker, or a peer without hello */
	}
}

/* Read messages until one of them is an event. */
static bool recv_event(struct worker_link *w, int64_t now_us, struct result *result, struct link_event *ev)
{
	ev->kind = LINK_NONE;
	read_monitor(w, now_us);
	for (; w->n_read < READS_MAX && ev->kind == LINK_NONE; w->n_read++) {
		uint8_t route[WORKER_ROUTE_MAX];
		size_t route_n;
		zmq_msg_t body;
		int got = recv_frames(w, route, &route_n, &body);
		if (got == 0)
			break;
		/* Again: this message's connection was accepted before the message arrived. */
		read_monitor(w, now_us);
		struct sender from = sender_of(w, route, route_n, &body);
		if (got > 0)
			on_frames(w, &from, zmq_msg_data(&body), zmq_msg_size(&body), now_us, result, ev);
		else if (may_warn(w, now_us))
			log_warn("bus", "malformed message ignored reason=\"not two frames\"");
		zmq_msg_close(&body);
	}
	return ev->kind != LINK_NONE;
}

/* ---- time ---- */

static bool is_banned(struct worker_link *w, struct worker *k)
{
	uint64_t now = w->zap ? zap_generation(w->zap) : 0;
	if (k->list == now)
		return false;
	k->list = now;
	return !may_join(w, k->key);
}

static bool tick_worker(struct worker_link *w, struct worker *k, int64_t now_us, struct link_event *ev)
{
	if (k->state == WORKER_LOST && now_us - k->left_us > LOST_SHOWN_US)
		k->state = WORKER_FREE;
	if (k->state == WORKER_LEAVING && now_us - k->left_us > LEAVE_US) {
		k->state = WORKER_FREE;
		*ev = (struct link_event){.kind = LINK_LEFT, .worker = k};
		return true;
	}
	if (!worker_is_live(k))
		return false;
	if (is_banned(w, k)) {
		lose(w, k, now_us, LINK_GONE, "its key was removed from the list", ev);
		conns_release(w->conns, k->fd, k->conn, now_us + BAN_US);
		return true;
	}
	bool probe = now_us < w->probe_until_us;
	if (now_us - k->beat_us >= (probe ? PROBE_MS : BUS_BEAT_MS) * 1000 &&
	    (probe || !is_held(w, k, now_us)))
		send_beat(w, k, now_us);
	/* An idle worker may be silent: its heartbeats start with a load. */
	bool watched = w->silent_us > 0 && k->state != WORKER_JOINING;
	if (k->broken) {
		lose(w, k, now_us, LINK_GONE, "its connection is gone", ev);
	} else if (watched && now_us - k->last_seen_us > w->silent_us) {
		lose_quietly(w, k, now_us, LINK_GONE, "silent for too long: it hangs, or its host is gone",
			     ev);
		k->silent = true;
	} else if (w->stuck_us > 0 && watchdog_is_stuck(&k->watchdog, w->stuck_us, now_us)) {
		lose(w, k, now_us, LINK_GONE, "heartbeats without progress: a step hangs", ev);
	} else {
		return false;
	}
	return true;
}

bool worker_link_tick(struct worker_link *w, int64_t now_us, struct link_event *ev)
{
	size_t cut = conns_expire(w->conns, now_us);
	if (cut && may_warn(w, now_us))
		log_warn("bus", "connections closed connections=%zu reason=\"no worker said hello on them\"",
			 cut);
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++)
		if (tick_worker(w, &w->table.rows[i], now_us, ev))
			return true;
	return false;
}

bool worker_link_recv(struct worker_link *w, int64_t now_us, struct result *result, struct link_event *ev)
{
	if (w->n_read < READS_MAX && recv_event(w, now_us, result, ev))
		return true;
	w->n_read = READS_MAX; /* no more messages in this iteration */
	if (worker_link_tick(w, now_us, ev))
		return true;
	w->n_read = 0;
	return false;
}

/* ---- shutdown ---- */

/* Wait until n workers have confirmed stop: closing the socket at once could lose messages that they have not
 * read. */
static void wait_stopped(struct worker_link *w, uint32_t n)
{
	int64_t until = clock_us() + (w->cfg.stop_us ? w->cfg.stop_us : STOP_US);
	for (int64_t left; n && (left = until - clock_us()) > 0;) {
		zmq_pollitem_t item = {.socket = w->socket, .events = ZMQ_POLLIN};
		uint8_t route[WORKER_ROUTE_MAX];
		size_t route_n;
		zmq_msg_t body;
		if (zmq_poll(&item, 1, (long)(left / 1000 + 1)) <= 0)
			return;
		int got = recv_frames(w, route, &route_n, &body);
		if (got == 0)
			continue;
		bool stopped =
			got > 0 && bus_peek(zmq_msg_data(&body), zmq_msg_size(&body), NULL) == BUS_STOP;
		zmq_msg_close(&body);
		struct worker *k = stopped ? worker_table_find_route(&w->table, route, route_n) : NULL;
		if (k && k->state == WORKER_LEAVING) {
			k->state = WORKER_FREE;
			n--;
		}
	}
}

void worker_link_close(struct worker_link *w)
{
	uint32_t n = 0;
	if (!w)
		return;
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++) {
		struct worker *k = &w->table.rows[i];
		if (!w->cfg.keep_workers)
			worker_link_retire(w, k, 0);
		n += k->state == WORKER_LEAVING && !k->broken;
	}
	wait_stopped(w, n);
	close_sockets(w);
	buf_fini(&w->out);
	expert_table_fini(&w->table.experts);
	free(w);
}
