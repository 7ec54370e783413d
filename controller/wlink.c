#include "controller/wlink.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum {
	IDENTITY_MAX = 64,
	/* Messages of one turn: whoever floods the bus does not hold up a step. */
	TURN_MAX = 256,
	/* Blocks of a pool that are believed: tables for them are allocated here. */
	POOL_MAX = 1 << 24,
	WARN_US = 1000 * 1000, /* between two lines about messages that are none of ours */
	/* A worker beats every BUS_BEAT_MS, from a thread of its own; so long without one, it hangs. */
	SILENT_US = 2 * 1000 * 1000,
	/* So long may a successor wait for the end of the worker before it. */
	SPARE_US = SILENT_US + 1000 * 1000,
	HANDSHAKE_MS = 3000,
	STOP_MS = 500,   /* for a worker to say that it stops; a step may be under way */
	LINGER_MS = 200, /* enough for the word to stop */
};

enum state { NOBODY, LOADING, SERVING };

struct wlink {
	struct engine_config cfg;
	void *socket; /* ROUTER */
	char endpoint[256];
	enum state state;
	uint8_t id[IDENTITY_MAX]; /* routing id of the worker */
	size_t id_n;
	uint64_t epoch; /* one per worker that was taken on */
	struct bus_hello hello;
	/* Said hello while another one serves; taken on should that one be lost. */
	struct {
		bool here;
		uint8_t id[IDENTITY_MAX];
		size_t id_n;
		struct bus_hello hello;
		int64_t since_us;
	} spare;
	int64_t lost_pid; /* of the worker that was given up last */
	char lost_host[128];
	struct bus_ready ready;
	struct bus_limits limits; /* of its results */
	uint32_t progress;        /* permille while loading */
	uint64_t steps;
	uint32_t step_us;
	int64_t heard_us, beat_us, warned_us;
	struct buf out;
};

static void set_int(void *socket, int option, int value)
{
	zmq_setsockopt(socket, option, &value, sizeof value);
}

int wlink_open(void *zmq_context, const struct engine_config *cfg, struct wlink **out, char *why,
	       size_t why_n)
{
	struct wlink *w = xcalloc(1, sizeof *w);
	w->cfg = *cfg;
	w->socket = zmq_socket(zmq_context, ZMQ_ROUTER);
	if (!w->socket) {
		free(w);
		return err_why(why, why_n, -errno, "worker bus: %s", zmq_strerror(errno));
	}
	int64_t max = BUS_MESSAGE_MAX;
	zmq_setsockopt(w->socket, ZMQ_MAXMSGSIZE, &max, sizeof max);
	set_int(w->socket, ZMQ_ROUTER_MANDATORY, 1);
	set_int(w->socket, ZMQ_LINGER, LINGER_MS);
	set_int(w->socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
	if (zmq_bind(w->socket, cfg->bus) < 0) {
		int err = errno;
		zmq_close(w->socket);
		free(w);
		return err_why(why, why_n, -err, "worker bus: cannot listen on %s: %s", cfg->bus,
			       zmq_strerror(err));
	}
	size_t n = sizeof w->endpoint;
	zmq_getsockopt(w->socket, ZMQ_LAST_ENDPOINT, w->endpoint, &n);
	*out = w;
	return 0;
}

static int send_to(struct wlink *w, const uint8_t *id, size_t id_n)
{
	if (zmq_send(w->socket, id, id_n, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
		return -errno;
	return zmq_send(w->socket, w->out.p, w->out.len, ZMQ_DONTWAIT) < 0 ? -errno : 0;
}

static int send_msg(struct wlink *w, const uint8_t *id, size_t id_n, const struct bus_msg *m)
{
	bus_encode(m, &w->out);
	return send_to(w, id, id_n);
}

static void send_stop(struct wlink *w, const uint8_t *id, size_t id_n)
{
	send_msg(w, id, id_n, &(struct bus_msg){.type = BUS_STOP});
}

/* One message of exactly two frames: who, what.  0 when there is none.  Whatever else belongs to
 * a message that is none of ours is passed over: no frame of it may be taken for a sender. */
static int recv_frames(struct wlink *w, uint8_t *id, size_t *id_n, zmq_msg_t *body)
{
	int more, frames = 1;
	size_t more_n = sizeof more;
	int n = zmq_recv(w->socket, id, IDENTITY_MAX, ZMQ_DONTWAIT);
	if (n < 0)
		return 0;
	*id_n = (size_t)n;
	zmq_msg_init(body);
	zmq_getsockopt(w->socket, ZMQ_RCVMORE, &more, &more_n);
	for (; more; more = zmq_msg_more(body), frames++)
		if (zmq_msg_recv(body, w->socket, 0) < 0)
			return -EBADMSG;
	return frames == 2 && n <= IDENTITY_MAX ? 1 : -EBADMSG;
}

void wlink_drop(struct wlink *w)
{
	if (w->state == NOBODY)
		return;
	send_stop(w, w->id, w->id_n);
	w->lost_pid = w->hello.pid;
	snprintf(w->lost_host, sizeof w->lost_host, "%s", w->hello.host);
	w->state = NOBODY;
}

/* The worker answers the word to stop with the same; a socket that is closed at once can lose
 * what the other side has not read yet. */
static void wait_stopped(struct wlink *w)
{
	int64_t until = clock_us() + STOP_MS * 1000;
	for (int64_t left; (left = until - clock_us()) > 0;) {
		zmq_pollitem_t item = {.socket = w->socket, .events = ZMQ_POLLIN};
		uint8_t id[IDENTITY_MAX];
		size_t id_n;
		zmq_msg_t body;
		if (zmq_poll(&item, 1, (long)(left / 1000 + 1)) <= 0)
			return;
		int got = recv_frames(w, id, &id_n, &body);
		if (got == 0)
			continue;
		bool stopped =
			got > 0 && bus_peek(zmq_msg_data(&body), zmq_msg_size(&body), NULL, 0) == BUS_STOP;
		zmq_msg_close(&body);
		if (stopped && id_n == w->id_n && memcmp(id, w->id, id_n) == 0)
			return;
	}
}

void wlink_close(struct wlink *w)
{
	if (!w)
		return;
	if (w->spare.here)
		send_stop(w, w->spare.id, w->spare.id_n);
	if (w->state != NOBODY) {
		wlink_drop(w);
		wait_stopped(w);
	}
	zmq_close(w->socket);
	buf_fini(&w->out);
	free(w);
}

void *wlink_socket(struct wlink *w)
{
	return w->socket;
}

const char *wlink_endpoint(const struct wlink *w)
{
	return w->endpoint;
}

int64_t wlink_lost_pid(const struct wlink *w)
{
	char host[sizeof w->hello.host] = "";
	if (gethostname(host, sizeof host - 1) < 0 || strcmp(host, w->lost_host) != 0)
		return 0;
	return w->lost_pid;
}

bool wlink_serving(const struct wlink *w)
{
	return w->state == SERVING;
}

const struct bus_ready *wlink_ready(const struct wlink *w)
{
	return &w->ready;
}

uint64_t wlink_epoch(const struct wlink *w)
{
	return w->epoch;
}

static enum wlink_event lost(struct wlink *w, char *why, size_t why_n, const char *text)
{
	bool served = w->state != NOBODY;
	err_why(why, why_n, 0, "worker %lld on %s: %s", (long long)w->hello.pid, w->hello.device, text);
	wlink_drop(w);
	return served ? WLINK_LOST : WLINK_NONE;
}

static enum wlink_event tell_alive(struct wlink *w, int64_t now_us, char *why, size_t why_n)
{
	w->beat_us = now_us;
	struct bus_msg m = {.type = BUS_BEAT, .beat = {.epoch = w->epoch, .state = BUS_SERVING}};
	if (send_msg(w, w->id, w->id_n, &m) < 0)
		return lost(w, why, why_n, "its connection is gone");
	return WLINK_NONE;
}

static void take_on(struct wlink *w, const uint8_t *id, size_t id_n, const struct bus_hello *h,
		    int64_t now_us)
{
	memcpy(w->id, id, id_n);
	w->id_n = id_n;
	w->hello = *h;
	w->state = LOADING;
	w->progress = 0;
	w->heard_us = now_us;
	w->epoch++;
	struct bus_msg m = {.type = BUS_LOAD};
	snprintf(m.load.model, sizeof m.load.model, "%s", w->cfg.model);
	snprintf(m.load.compute, sizeof m.load.compute, "%s", w->cfg.compute);
	m.load.epoch = w->epoch;
	m.load.block_size = w->cfg.block_size;
	m.load.max_context = w->cfg.model_context;
	m.load.max_rows = w->cfg.max_rows;
	m.load.max_slots = m.load.max_runs = w->cfg.max_seqs;
	m.load.kv_bytes = w->cfg.kv_bytes;
	m.load.swap_bytes = w->cfg.swap_bytes;
	m.load.n_threads = w->cfg.n_threads;
	log_info("bus", "worker joins pid=%lld host=%s device=%s", (long long)h->pid, h->host, h->device);
	int rc = send_msg(w, id, id_n, &m);
	if (rc < 0) {
		log_warn("bus", "worker pid=%lld cannot be told to load: %s", (long long)h->pid,
			 zmq_strerror(-rc));
		w->state = NOBODY;
	}
}

static void refuse_spare(struct wlink *w)
{
	if (!w->spare.here)
		return;
	log_warn("bus",
		 "worker refused pid=%lld device=%s: another one serves, and replicas are not built yet",
		 (long long)w->spare.hello.pid, w->spare.hello.device);
	send_stop(w, w->spare.id, w->spare.id_n);
	w->spare.here = false;
}

static bool is_spare(const struct wlink *w, const uint8_t *id, size_t id_n)
{
	return w->spare.here && id_n == w->spare.id_n && memcmp(id, w->spare.id, id_n) == 0;
}

/* The successor of one that died may be here before its death is noticed: it waits until the
 * one before it has been silent for too long, or has shown that it is alive. */
static void on_hello(struct wlink *w, const uint8_t *id, size_t id_n, const struct bus_hello *h,
		     int64_t now_us)
{
	if (w->state == NOBODY) {
		take_on(w, id, id_n, h, now_us);
		return;
	}
	if (!is_spare(w, id, id_n))
		refuse_spare(w);
	w->spare.here = true;
	memcpy(w->spare.id, id, id_n);
	w->spare.id_n = id_n;
	w->spare.hello = *h;
	w->spare.since_us = now_us;
}

static void tend_spare(struct wlink *w, int64_t now_us)
{
	if (!w->spare.here)
		return;
	if (w->state == NOBODY) {
		w->spare.here = false;
		take_on(w, w->spare.id, w->spare.id_n, &w->spare.hello, now_us);
	} else if (now_us - w->spare.since_us > SPARE_US) {
		refuse_spare(w);
	}
}

/* Our worker says hello again: its connection broke and came back, and plans under way may be
 * lost.  It is taken on anew, and need not load again. */
static enum wlink_event on_return(struct wlink *w, const uint8_t *id, size_t id_n, const struct bus_hello *h,
				  int64_t now_us, char *why, size_t why_n)
{
	err_why(why, why_n, 0, "worker %lld on %s connected anew", (long long)h->pid, h->device);
	w->state = NOBODY;
	w->lost_pid = 0;
	take_on(w, id, id_n, h, now_us);
	return WLINK_LOST;
}

static enum wlink_event on_ready(struct wlink *w, const struct bus_ready *r, char *why, size_t why_n)
{
	if (r->n_vocab != w->cfg.n_vocab || r->n_blocks == 0)
		return lost(w, why, why_n, "its model is not the one that was asked for");
	if (r->n_blocks > POOL_MAX || r->n_host_blocks > POOL_MAX)
		return lost(w, why, why_n, "it claims more blocks than any pool has");
	w->ready = *r;
	w->limits = (struct bus_limits){
		.max_slots = w->cfg.max_seqs,
		.max_rows = w->cfg.max_rows,
		.max_runs = w->cfg.max_seqs,
		.max_context = w->cfg.model_context,
		.n_blocks = r->n_blocks,
		.n_host_blocks = r->n_host_blocks,
		.n_vocab = r->n_vocab,
	};
	w->state = SERVING;
	log_info("bus", "worker ready pid=%lld device=\"%s\" isa=%s blocks=%u load_ms=%u numerics=%s",
		 (long long)w->hello.pid, r->device_name, r->isa, r->n_blocks, r->load_ms, r->numerics);
	return WLINK_READY;
}

/* A message of the worker that we have. */
static enum wlink_event on_message(struct wlink *w, const void *bytes, size_t n, int type, int64_t now_us,
				   struct result *result, char *why, size_t why_n)
{
	struct bus_msg m;
	char text[256];
	w->heard_us = now_us;
	if (type == BUS_RESULT) {
		/* Of the time before its connection broke: it has not read our word to load again yet. */
		if (w->state != SERVING)
			return WLINK_NONE;
		if (bus_decode_result(bytes, n, &w->limits, result, text, sizeof text))
			return lost(w, why, why_n, text);
		if (result->epoch != w->epoch)
			return WLINK_NONE;
		w->steps++;
		w->step_us = result->step_us;
		return WLINK_RESULT;
	}
	if (bus_decode(bytes, n, &m, text, sizeof text))
		return lost(w, why, why_n, text);
	if (m.type == BUS_READY && w->state == LOADING && m.ready.epoch == w->epoch)
		return on_ready(w, &m.ready, why, why_n);
	if (m.type == BUS_FAILED) {
		lost(w, why, why_n, m.failed.why);
		return WLINK_FAILED;
	}
	if (m.type == BUS_STOP)
		return lost(w, why, why_n, "it ends");
	if (m.type == BUS_BEAT && m.beat.state == BUS_LOADING)
		w->progress = (uint32_t)m.beat.progress;
	return WLINK_NONE;
}

/* Anybody can send such messages, and as many as they like. */
static void warn_ignored(struct wlink *w, int64_t now_us, const char *why)
{
	if (now_us - w->warned_us < WARN_US)
		return;
	w->warned_us = now_us;
	log_warn("bus", "a message that is none of ours was ignored: %s", why);
}

enum wlink_event wlink_recv(struct wlink *w, int64_t now_us, struct result *result, char *why, size_t why_n)
{
	uint8_t id[IDENTITY_MAX];
	size_t id_n;
	zmq_msg_t body;
	enum wlink_event ev = WLINK_NONE;
	int got;
	for (int turn = 0; turn < TURN_MAX && ev == WLINK_NONE; turn++) {
		if ((got = recv_frames(w, id, &id_n, &body)) == 0)
			break;
		char text[256] = "not two frames";
		const void *bytes = zmq_msg_data(&body);
		size_t n = zmq_msg_size(&body);
		bool ours = got > 0 && w->state != NOBODY && id_n == w->id_n && memcmp(id, w->id, id_n) == 0;
		int type = got > 0 ? bus_peek(bytes, n, text, sizeof text) : got;
		struct bus_msg m;
		bool hello = type == BUS_HELLO && (type = bus_decode(bytes, n, &m, text, sizeof text)) == 0;
		if (ours && type > 0 && type != BUS_HELLO)
			ev = on_message(w, bytes, n, type, now_us, result, why, why_n);
		else if (ours && type < 0)
			ev = lost(w, why, why_n, text);
		else if (hello && ours)
			ev = on_return(w, id, id_n, &m.hello, now_us, why, why_n);
		else if (hello)
			on_hello(w, id, id_n, &m.hello, now_us);
		else if (type > 0 && type != BUS_HELLO && type != BUS_STOP && !is_spare(w, id, id_n))
			send_stop(w, id, id_n); /* one we gave up, or one that never said hello */
		else if (type < 0)
			warn_ignored(w, now_us, text);
		zmq_msg_close(&body);
	}
	return ev;
}

enum wlink_event wlink_tick(struct wlink *w, int64_t now_us, char *why, size_t why_n)
{
	tend_spare(w, now_us);
	if (w->state == NOBODY)
		return WLINK_NONE;
	if (now_us - w->heard_us > SILENT_US)
		return lost(w, why, why_n, "silent for 2 s");
	if (now_us - w->beat_us < BUS_BEAT_MS * 1000)
		return WLINK_NONE;
	return tell_alive(w, now_us, why, why_n);
}

int wlink_send_plan(struct wlink *w, const struct plan *p)
{
	bus_encode_plan(p, &w->out);
	return send_to(w, w->id, w->id_n);
}

bool wlink_status(const struct wlink *w, struct engine_worker *out)
{
	static const char *const names[] = {"lost", "loading", "serving"};
	if (w->epoch == 0)
		return false;
	*out = (struct engine_worker){
		.id = w->epoch,
		.replica = w->state == NOBODY ? 0 : w->epoch,
		.pid = w->hello.pid,
		.progress = w->state == SERVING ? 1000 : w->progress,
		.n_blocks = w->ready.n_blocks,
		.n_host_blocks = w->ready.n_host_blocks,
		.weights_bytes = w->ready.weights_bytes,
		.kv_bytes = w->ready.kv_bytes,
		.steps = w->steps,
		.step_us = w->step_us,
		.n_threads = w->ready.n_threads,
	};
	snprintf(out->host, sizeof out->host, "%s", w->hello.host);
	snprintf(out->device, sizeof out->device, "%s", w->hello.device);
	snprintf(out->device_name, sizeof out->device_name, "%s", w->ready.device_name);
	snprintf(out->isa, sizeof out->isa, "%s", w->ready.isa);
	snprintf(out->state, sizeof out->state, "%s", names[w->state]);
	return true;
}
