/* link_socket.c - the link's socket: opened, monitored, lent to the beat thread during a load or a step.
 * Owns the ZeroMQ sockets, the beat thread and the stash of messages received meanwhile. */
#include "worker/link_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "worker/tp_group.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
	LINGER_MS = 500,
	HANDSHAKE_MS = 3000,
	DEAD_LINK_MS = 5000, /* the socket's own heartbeat: a connection silent for this long is reopened */
	/* A restarted controller listens within a fraction of a second. */
	RECONNECT_MS = 50,
	RECONNECT_MAX_MS = 200,
	/* a process that did not run for this long was stopped, by a debugger or with its host */
	STOPPED_MS = 2000,
};

static atomic_bool stop_requested, leave_requested; /* set by the signal handler, read by both threads */

void link_stop(void)
{
	atomic_store(&stop_requested, true);
}

bool link_stopping(void)
{
	return atomic_load(&stop_requested);
}

void link_leave(void)
{
	atomic_store(&leave_requested, true);
}

bool link_leaving(void)
{
	return atomic_load(&leave_requested);
}

/* ---- sending ---- */

static int send_now(struct link *l, const struct buf *b)
{
	int rc;
	do
		rc = zmq_send(l->sock, b->p, b->len, ZMQ_DONTWAIT);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : 0;
}

void link_send_answer(struct link *l)
{
	if (!l->answer_due)
		return;
	l->answer_due = false;
	link_read_monitor(l);
	if (!l->welcome)
		return; /* the controller now connected did not send the plan */
	int rc = send_now(l, &l->answer);
	if (rc)
		log_warn("link", "result lost plan=%llu reason=\"%s\"", (unsigned long long)l->answered,
			 zmq_strerror(-rc));
}

/* Send without blocking.  A controller that missed a message requests it again. */
/* Return 0 or -errno; never blocks. */
static int send_bytes(struct link *l, const struct buf *b)
{
	link_send_answer(l);
	return send_now(l, b);
}

int link_send(struct link *l, const struct bus_msg *m)
{
	bus_encode(m, &l->out);
	int rc = send_bytes(l, &l->out);
	if (rc)
		log_warn("link", "message lost type=%d reason=\"%s\"", m->type, zmq_strerror(-rc));
	return rc;
}

/* Open a new meeting place for the ranks of a group; none if this device cannot be in a group. */
static void renew_rendezvous(struct link *l)
{
	struct why why;
	_Static_assert((int)BUS_RENDEZVOUS_SIZE == (int)COLL_RENDEZVOUS_SIZE,
		       "a meeting place fits a message");
	if (l->rendezvous && !l->rendezvous_published)
		return;
	tp_group_rendezvous_free(l->rendezvous);
	l->rendezvous = NULL;
	l->rendezvous_published = false;
	l->rendezvous_text[0] = '\0';
	if (tp_group_rendezvous_new(&l->rendezvous, l->args->device, l->rendezvous_text, &why))
		log_info("link", "worker cannot join a group reason=\"%s\"", why.text);
}

/* Fill in the modes.  A restarted controller has forgotten the modes agreed on, so the hello has those of
 * the loaded model. */
static void put_modes(const struct link *l, struct bus_hello *h)
{
	const bool host_experts = l->args->place && strncmp(l->args->device, "cpu", 3) != 0;
	const char *own = kern_compute_name(kern_auto_compute(l->args->device, l->args->isa));
	const char *experts = kern_compute_name(kern_auto_compute("cpu", l->args->isa));
	h->loaded = l->compute != NULL;
	snprintf(h->compute, sizeof h->compute, "%s", h->loaded ? l->compute : own);
	if (!host_experts || l->args->experts_compute)
		return;
	/* The last model may have had no host experts, and so no mode for them; the next model may have
	 * some. */
	h->experts_loaded = h->loaded && l->experts_compute[0];
	snprintf(h->experts_compute, sizeof h->experts_compute, "%s",
		 h->experts_loaded ? l->experts_compute : experts);
}

void link_send_hello(struct link *l)
{
	struct bus_msg m = {.type = BUS_HELLO, .hello.pid = getpid()};
	renew_rendezvous(l);
	snprintf(m.hello.rendezvous, sizeof m.hello.rendezvous, "%s", l->rendezvous_text);
	if (l->args->token)
		snprintf(m.hello.token, sizeof m.hello.token, "%s", l->args->token);
	snprintf(m.hello.device, sizeof m.hello.device, "%s", l->args->device);
	put_modes(l, &m.hello);
	if (gethostname(m.hello.host, sizeof m.hello.host - 1) < 0)
		m.hello.host[0] = '\0';
	bus_encode(&m, &l->out);
	l->hello_due = send_bytes(l, &l->out) != 0;
	l->rendezvous_published = !l->hello_due;
}

/* Add the next range of the experts' cells. */
static void put_cells(struct link *l, struct bus_cells *out)
{
	uint32_t from, n;
	struct expert_cells *c = expert_load_next(&l->experts, &l->experts_cursor, BUS_CELLS, &from, &n);
	if (!c || c->n > BUS_CELLS_MAX)
		return;
	out->n_all = c->n;
	out->n_experts = c->n_experts;
	out->from = from;
	for (out->n = 0; out->n < n; out->n++)
		out->rows[out->n] = atomic_load_explicit(&c->rows[from + out->n], memory_order_relaxed);
}

/* Called by the thread that holds the socket, holding the lock. */
void link_send_beat(struct link *l)
{
	struct bus_msg m = {
		.type = BUS_BEAT,
		.beat =
			{
				.epoch = l->epoch,
				.state = l->loading       ? BUS_LOADING
					 : l->missed      ? BUS_MISSED
					 : link_leaving() ? BUS_LEAVING
							  : BUS_SERVING,
				.progress = l->loading ? atomic_load(&l->permille) : l->ended,
				.expected = l->ended + 1,
				.moves = atomic_load(&l->moves),
				.doing = atomic_load(&l->progress.doing),
				.done = atomic_load(&l->progress.done),
				.total = atomic_load(&l->progress.total),
				.counts.expert_rows = atomic_load(&l->experts.rows),
				.counts.expert_reads = atomic_load(&l->experts.reads),
				.counts.expert_busiest = atomic_load(&l->experts.busiest),
				.counts.draft_runs = atomic_load(&l->drafts.runs),
				.counts.draft_tokens = atomic_load(&l->drafts.drafted),
				.counts.draft_accepted = atomic_load(&l->drafts.accepted),
				.counts.mask_waits = atomic_load(&l->masks.waits),
				.grammar_bytes = atomic_load(&l->masks.bytes),
			},
	};
	if (!l->loading)
		put_cells(l, &m.beat.cells);
	bus_encode(&m, &l->beat);
	send_bytes(l, &l->beat);
	l->next_beat_us = clock_us() + BUS_BEAT_MS * 1000;
}

/* ---- connection events ---- */

/* Send a hello whenever the connection comes up, since the controller may be a new one. */
void link_read_monitor(struct link *l)
{
	unsigned char event[6];
	char where[256];
	while (zmq_recv(l->monitor, event, sizeof event, ZMQ_DONTWAIT) == sizeof event) {
		uint16_t what;
		memcpy(&what, event, sizeof what);
		zmq_recv(l->monitor, where, sizeof where, ZMQ_DONTWAIT);
		if (what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
			log_info("link", "connected bus=%s", l->args->bus);
			l->hello_due = true;
			l->welcome = l->stop_passed = false;
		} else if (what == ZMQ_EVENT_DISCONNECTED) {
			log_warn("link", "disconnected bus=%s", l->args->bus);
			l->hello_due = false;
		} else if (what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
			l->unknown = true;
		}
	}
}

/* ---- the beat thread ---- */

bool link_grace_over(struct link *l)
{
	int64_t now = clock_us(), gap = now - l->last_check_us;
	/* This process itself was stopped, so the silence is not the controller's. */
	if (gap > STOPPED_MS * 1000)
		l->last_seen_us += gap;
	l->last_check_us = now;
	return now - l->last_seen_us > l->args->grace_ms * 1000;
}

/* True if this message ends the load or step in progress. */
static bool is_call(zmq_msg_t *m)
{
	int type = bus_peek(zmq_msg_data(m), zmq_msg_size(m), NULL);
	return type == BUS_LOAD || type == BUS_STOP;
}

/* Read a heartbeat while the main thread is busy: epoch 0 means that this worker is in no group any more. */
static void stash_beat(struct link *l, zmq_msg_t *msg)
{
	struct bus_msg m;
	if (bus_decode(zmq_msg_data(msg), zmq_msg_size(msg), &m, NULL) == 0 && m.beat.epoch == 0)
		atomic_store(&l->dismissed, true);
}

/* Receive messages, so that the controller is seen alive during a long load or step.  Heartbeats carry
 * nothing else and are not kept: during a long load they would fill the stash. */
static void fill_stash(struct link *l)
{
	while (l->n_stash < STASH) {
		zmq_msg_t *m = &l->stash[(l->stash0 + l->n_stash) % STASH];
		zmq_msg_init(m);
		if (zmq_msg_recv(m, l->sock, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(m);
			return;
		}
		l->last_seen_us = clock_us();
		if (bus_peek(zmq_msg_data(m), zmq_msg_size(m), NULL) == BUS_BEAT) {
			stash_beat(l, m);
			zmq_msg_close(m);
		} else {
			l->n_stash++;
			atomic_fetch_add(&l->calls, is_call(m));
		}
	}
}

static struct timespec beat_time(const struct link *l)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	int64_t wait = l->next_beat_us - clock_us();
	if (!l->lent || wait < 0)
		wait = BUS_BEAT_MS * 1000;
	int64_t ns = ts.tv_nsec + wait * 1000;
	ts.tv_sec += ns / 1000000000;
	ts.tv_nsec = ns % 1000000000;
	return ts;
}

/* End the process if the controller is gone or a stop is requested.  Then the load or step in progress is
 * useless and cannot be interrupted otherwise; a worker has no state to save. */
static void check_alone(struct link *l)
{
	if (link_grace_over(l)) {
		log_error("link", "no message from the controller, exiting ms=%lld",
			  (long long)l->args->grace_ms);
		_exit(1);
	}
	if (link_stopping() || (link_leaving() && l->loading))
		_exit(0);
}

static void *beat_thread(void *arg)
{
	struct link *l = arg;
	pthread_mutex_lock(&l->lock);
	while (!l->end) {
		struct timespec until = beat_time(l);
		pthread_cond_timedwait(&l->wake, &l->lock, &until);
		if (!l->lent || l->end)
			continue;
		link_send_answer(l);
		if (clock_us() < l->next_beat_us)
			continue;
		link_read_monitor(l);
		if (l->hello_due)
			link_send_hello(l);
		link_send_beat(l);
		fill_stash(l);
		check_alone(l);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

void link_lend(struct link *l, bool loading)
{
	pthread_mutex_lock(&l->lock);
	atomic_store(&l->dismissed, false);
	l->lent = true;
	l->loading = loading;
	if (loading)
		pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
}

void link_wake_sender(void *link)
{
	struct link *l = link;
	pthread_mutex_lock(&l->lock);
	const bool due = l->answer_due;
	pthread_mutex_unlock(&l->lock);
	if (due)
		pthread_cond_signal(&l->wake);
}

void link_reclaim(struct link *l)
{
	pthread_mutex_lock(&l->lock);
	l->lent = false;
	l->loading = false;
	if (l->step) {
		l->epoch = step_epoch(l->step);
		l->ended = step_ended(l->step);
		l->compute = step_compute(l->step);
		l->experts_compute = step_experts_compute(l->step);
	}
	pthread_mutex_unlock(&l->lock);
}

/* ---- receiving ---- */

/* Move the next message into m; false: none. */
bool link_take(struct link *l, zmq_msg_t *m)
{
	if (l->n_stash) {
		zmq_msg_move(m, &l->stash[l->stash0]);
		zmq_msg_close(&l->stash[l->stash0]);
		l->stash0 = (l->stash0 + 1) % STASH;
		l->n_stash--;
		atomic_fetch_sub(&l->calls, is_call(m));
		return true;
	}
	if (zmq_msg_recv(m, l->sock, ZMQ_DONTWAIT) < 0)
		return false;
	l->last_seen_us = clock_us();
	return true;
}

void link_put_back(struct link *l, zmq_msg_t *m)
{
	if (l->n_stash == STASH) {
		log_warn("link", "message dropped waiting=%d", STASH);
		return;
	}
	l->stash0 = (l->stash0 + STASH - 1) % STASH;
	l->n_stash++;
	atomic_fetch_add(&l->calls, is_call(m));
	zmq_msg_init(&l->stash[l->stash0]);
	zmq_msg_move(&l->stash[l->stash0], m);
}

/* ---- set-up ---- */

static int set_int(void *sock, int option, int value)
{
	return zmq_setsockopt(sock, option, &value, sizeof value);
}

static int set_options(void *sock)
{
	unsigned char id[16];
	int64_t max = BUS_MESSAGE_MAX;
	if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
		return -1;
	id[0] |= 1; /* ZeroMQ reserves identities that begin with zero */
	return zmq_setsockopt(sock, ZMQ_ROUTING_ID, id, sizeof id) ||
			       zmq_setsockopt(sock, ZMQ_MAXMSGSIZE, &max, sizeof max) ||
			       set_int(sock, ZMQ_LINGER, LINGER_MS) || set_int(sock, ZMQ_IMMEDIATE, 1) ||
			       set_int(sock, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) ||
			       set_int(sock, ZMQ_HEARTBEAT_IVL, DEAD_LINK_MS / 2) ||
			       set_int(sock, ZMQ_HEARTBEAT_TIMEOUT, DEAD_LINK_MS) ||
			       set_int(sock, ZMQ_RECONNECT_IVL, RECONNECT_MS) ||
			       set_int(sock, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
		       ? -1
		       : 0;
}

int link_open_sockets(struct link *l, struct why *why)
{
	const int events =
		ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
	l->ctx = zmq_ctx_new();
	if (!l->ctx)
		return err_why(why, -errno, "no ZeroMQ context: %s", zmq_strerror(errno));
	l->sock = zmq_socket(l->ctx, ZMQ_DEALER);
	l->monitor = zmq_socket(l->ctx, ZMQ_PAIR);
	if (!l->sock || !l->monitor || set_options(l->sock) || set_int(l->monitor, ZMQ_LINGER, 0) ||
	    zmq_socket_monitor(l->sock, "inproc://events", events) ||
	    zmq_connect(l->monitor, "inproc://events"))
		return err_why(why, -errno, "no socket: %s", zmq_strerror(errno));
	int rc = l->args->key ? curve_client(l->sock, l->args->key, l->args->server_key->public) : 0;
	if (rc)
		return err_why(why, rc, "CURVE: %s", zmq_strerror(-rc));
	if (zmq_connect(l->sock, l->args->bus))
		return err_why(why, -errno, "cannot connect to %s: %s", l->args->bus, zmq_strerror(errno));
	return 0;
}

void link_close_sockets(struct link *l)
{
	for (; l->n_stash; l->n_stash--, l->stash0 = (l->stash0 + 1) % STASH)
		zmq_msg_close(&l->stash[l->stash0]);
	if (l->sock)
		zmq_socket_monitor(l->sock, NULL, 0);
	if (l->monitor)
		zmq_close(l->monitor);
	if (l->sock)
		zmq_close(l->sock);
	if (l->ctx)
		zmq_ctx_term(l->ctx);
}

int link_start_beats(struct link *l, struct why *why)
{
	pthread_condattr_t attr;
	sigset_t all, before;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->wake, &attr);
	pthread_condattr_destroy(&attr);
	/* Only the main thread handles signals: they must interrupt its zmq_poll(). */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&l->beater, NULL, beat_thread, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc ? err_why(why, -rc, "no thread for the heartbeat: %s", strerror(rc)) : 0;
}

void link_end_beats(struct link *l)
{
	pthread_mutex_lock(&l->lock);
	l->end = true;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->beater, NULL);
}
