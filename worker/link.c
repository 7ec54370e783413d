#include "worker/link.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "proto/bus.h"
#include "worker/group.h"
#include "worker/step.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <zmq.h>

enum {
	STASH = 16, /* messages taken while the worker was busy; STEP_AHEAD of them plans at most */
	LINGER_MS = 500,
	HANDSHAKE_MS = 3000,
	DEAD_LINK_MS = 5000, /* the socket's own heartbeat: a link that is silent so long is opened anew */
	/* A controller that is started again is there within a fraction of a second. */
	RECONNECT_MS = 50,
	RECONNECT_MAX_MS = 200,
	HELLO_RETRY_MS = 20,
	/* Between the loss of a group and the next hello: the others see their loss, too, and a group
	 * that cannot come about is not tried in a busy loop. */
	REGROUP_MS = 100,
	STOPPED_MS = 2000, /* a process that has not run for so long was stopped, by a debugger, or with its host */
};

/* The socket belongs to the main thread; while that is busy with a load or a step it is lent to
 * the beat thread, which sends the beats and takes in what comes.  One of them has it at a time. */
struct link {
	const struct link_args *args;
	void *ctx;
	void *sock;        /* DEALER */
	void *monitor;     /* PAIR: the socket's events */
	struct step *step; /* NULL until a model is loaded */
	struct plan plan;
	struct result result;
	struct buf out;      /* of whoever has the socket, as the monitor and what follows */
	bool hello_due;      /* the link is up, and whoever is at its other end does not know us yet */
	int64_t hello_at_us; /* not before */
	struct group_meet *meet; /* where other ranks find this worker; NULL: to be made */
	char meet_text[BUS_MEET_SIZE];
	bool meet_told;      /* in a hello: the next one names another */
	bool welcome;        /* we were told to load since */
	bool stop_passed;    /* a stop came before that */
	bool unknown;        /* the controller does not know our key */
	bool stop;

	pthread_t beater;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t wake;
	bool lent;
	bool loading;
	bool end;
	uint64_t epoch;
	uint64_t ended;    /* plans whose results were taken */
	bool missed;       /* a plan of this epoch will not come any more */
	int64_t next_beat_us;
	int64_t heard_us; /* last message of the controller */
	int64_t looked_us; /* when that was looked at last: several times in a second, by whoever has the socket */
	zmq_msg_t stash[STASH];
	int stash0, n_stash;
	struct buf beat;
	atomic_uint permille; /* of the load */
	atomic_ullong moves;  /* of loads and steps: the beats are no sign of the main thread */
	atomic_int calls;     /* loads and stops in the stash: what is under way is not wanted any more */
	atomic_bool dismissed; /* since the socket was lent, the controller saw us in no group */
};

static volatile sig_atomic_t stop_asked;

void link_stop(void)
{
	stop_asked = 1;
}

/* ---- sending ---- */

/* Never blocks: what a controller that is away does not get, it will ask for again. */
static int send_bytes(struct link *l, const struct buf *b)
{
	int rc;
	do
		rc = zmq_send(l->sock, b->p, b->len, ZMQ_DONTWAIT);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : 0;
}

static int send_msg(struct link *l, const struct bus_msg *m)
{
	bus_encode(m, &l->out);
	int rc = send_bytes(l, &l->out);
	if (rc)
		log_warn("link", "message lost type=%d: %s", m->type, zmq_strerror(-rc));
	return rc;
}

/* A fresh place for the ranks of a group to meet; none where this device knows of no way. */
static void renew_meet(struct link *l)
{
	char why[256];
	_Static_assert((int)BUS_MEET_SIZE == (int)COLL_MEET_SIZE, "a place to meet fits a message");
	if (l->meet && !l->meet_told)
		return;
	group_meet_free(l->meet);
	l->meet = NULL;
	l->meet_told = false;
	l->meet_text[0] = '\0';
	if (group_meet_new(&l->meet, l->args->device, l->meet_text, why, sizeof why))
		log_info("link", "this worker serves alone: %s", why);
}

static void send_hello(struct link *l)
{
	struct bus_msg m = {.type = BUS_HELLO, .hello.pid = getpid()};
	renew_meet(l);
	snprintf(m.hello.meet, sizeof m.hello.meet, "%s", l->meet_text);
	snprintf(m.hello.device, sizeof m.hello.device, "%s", l->args->device);
	if (gethostname(m.hello.host, sizeof m.hello.host - 1) < 0)
		m.hello.host[0] = '\0';
	bus_encode(&m, &l->out);
	l->hello_due = send_bytes(l, &l->out) != 0;
	l->meet_told = !l->hello_due;
}

static void send_failed(struct link *l, uint64_t epoch, const char *why)
{
	struct bus_msg m = {.type = BUS_FAILED, .failed.epoch = epoch};
	snprintf(m.failed.why, sizeof m.failed.why, "%s", why);
	send_msg(l, &m);
}

/* With the lock, by the thread that has the socket. */
static void send_beat(struct link *l)
{
	const struct bus_msg m = {
		.type = BUS_BEAT,
		.beat =
			{
				.epoch = l->epoch,
				.state = l->loading  ? BUS_LOADING
					 : l->missed ? BUS_MISSED
						     : BUS_SERVING,
				.progress = l->loading ? atomic_load(&l->permille) : l->ended,
				.expected = l->ended + 1,
				.moves = atomic_load(&l->moves),
			},
	};
	bus_encode(&m, &l->beat);
	send_bytes(l, &l->beat);
	l->next_beat_us = clock_us() + BUS_BEAT_MS * 1000;
}

/* ---- the link's ups and downs ---- */

/* Each time the link is up (again), whoever is at its other end must be told who this is. */
static void read_monitor(struct link *l)
{
	unsigned char event[6];
	char where[256];
	while (zmq_recv(l->monitor, event, sizeof event, ZMQ_DONTWAIT) == sizeof event) {
		uint16_t what;
		memcpy(&what, event, sizeof what);
		zmq_recv(l->monitor, where, sizeof where, ZMQ_DONTWAIT);
		if (what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
			log_info("link", "connected to %s", l->args->bus);
			l->hello_due = true;
			l->welcome = l->stop_passed = false;
		} else if (what == ZMQ_EVENT_DISCONNECTED) {
			log_warn("link", "the link to %s is down", l->args->bus);
			l->hello_due = false;
		} else if (what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
			l->unknown = true;
		}
	}
}

/* ---- the beat thread ---- */

static bool grace_over(struct link *l)
{
	int64_t now = clock_us(), gap = now - l->looked_us;
	/* Who was stopped heard nothing because of that. */
	if (gap > STOPPED_MS * 1000)
		l->heard_us += gap;
	l->looked_us = now;
	return now - l->heard_us > l->args->grace_ms * 1000;
}

/* Will this message end what the main thread does? */
static bool is_call(zmq_msg_t *m)
{
	int type = bus_peek(zmq_msg_data(m), zmq_msg_size(m), NULL, 0);
	return type == BUS_LOAD || type == BUS_STOP;
}

/* A beat, while the main thread is busy: does the controller still see us in a group? */
static void note_beat(struct link *l, zmq_msg_t *msg)
{
	struct bus_msg m;
	if (bus_decode(zmq_msg_data(msg), zmq_msg_size(msg), &m, NULL, 0) == 0 && m.beat.epoch == 0)
		atomic_store(&l->dismissed, true);
}

/* Take in what has come, so that a sign of the controller is seen while a load or a step takes
 * long.  Its beats say no more than that: they are not kept, or a long load would fill the stash. */
static void fill_stash(struct link *l)
{
	while (l->n_stash < STASH) {
		zmq_msg_t *m = &l->stash[(l->stash0 + l->n_stash) % STASH];
		zmq_msg_init(m);
		if (zmq_msg_recv(m, l->sock, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(m);
			return;
		}
		l->heard_us = clock_us();
		if (bus_peek(zmq_msg_data(m), zmq_msg_size(m), NULL, 0) == BUS_BEAT) {
			note_beat(l, m);
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

/* A load or a step that nobody waits for any more is not worth finishing, and cannot be
 * interrupted otherwise; the worker keeps nothing that would be lost. */
static void check_alone(struct link *l)
{
	if (grace_over(l)) {
		log_error("link", "no sign of the controller for %lld ms, giving up",
			  (long long)l->args->grace_ms);
		_exit(1);
	}
	if (stop_asked)
		_exit(0);
}

static void *beat_thread(void *arg)
{
	struct link *l = arg;
	pthread_mutex_lock(&l->lock);
	while (!l->end) {
		struct timespec until = beat_time(l);
		pthread_cond_timedwait(&l->wake, &l->lock, &until);
		if (!l->lent || l->end || clock_us() < l->next_beat_us)
			continue;
		read_monitor(l);
		if (l->hello_due)
			send_hello(l);
		send_beat(l);
		fill_stash(l);
		check_alone(l);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static void lend(struct link *l, bool loading)
{
	pthread_mutex_lock(&l->lock);
	atomic_store(&l->dismissed, false);
	l->lent = true;
	l->loading = loading;
	if (loading)
		pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
}

static void reclaim(struct link *l)
{
	pthread_mutex_lock(&l->lock);
	l->lent = false;
	l->loading = false;
	if (l->step) {
		l->epoch = step_epoch(l->step);
		l->ended = step_ended(l->step);
	}
	pthread_mutex_unlock(&l->lock);
}

/* ---- what the controller says ---- */

static void note_progress(void *arg, unsigned permille)
{
	struct link *l = arg;
	atomic_store(&l->permille, permille);
}

static void send_ready(struct link *l, const struct bus_ready *r)
{
	const struct bus_msg m = {.type = BUS_READY, .ready = *r};
	/* The controller waits for it, and beats do not stand for it: said hello to again, it asks again,
	 * and the weights are here. */
	if (send_msg(l, &m)) {
		l->hello_due = true;
		return;
	}
	log_info("link", "ready epoch=%llu blocks=%u host_blocks=%u load_ms=%u threads=%u isa=%s",
		 (unsigned long long)r->epoch, r->n_blocks, r->n_host_blocks, r->load_ms, r->n_threads,
		 r->isa);
}

/* Asked while a rank waits for another one. */
static bool called_away(void *arg)
{
	struct link *l = arg;
	return atomic_load(&l->calls) > 0 || atomic_load(&l->dismissed) || stop_asked;
}

/* The group is over; this worker is as good as before.  Unless it was told what to do next, it
 * says so. */
static void part(struct link *l, const char *why)
{
	log_warn("link", "the group is lost: %s", why);
	if (atomic_load(&l->calls) > 0 || stop_asked)
		return;
	l->hello_due = true;
	l->hello_at_us = clock_us() + REGROUP_MS * 1000;
}

/* As one rank of a group: meets the others. */
static int join(struct link *l, const struct bus_load *load, struct bus_ready *ready, char *why, size_t why_n)
{
	/* The link may be down and up meanwhile: the hello then names another place. */
	struct group_meet *mine = l->meet;
	const struct step_group g = {.mine = &mine,
				     .timeout_ms = l->args->late_ms,
				     .cancelled = called_away,
				     .cancelled_arg = l};
	l->meet = NULL;
	lend(l, true);
	int rc = step_join(l->step, load, &g, ready, why, why_n);
	reclaim(l);
	group_meet_free(mine);
	return rc;
}

static int open_step(struct link *l, const struct bus_load *load, struct bus_ready *ready, char *why,
		     size_t why_n)
{
	log_info("link", "load model=%s epoch=%llu compute=%s%s rank=%u of=%u", load->model,
		 (unsigned long long)load->epoch, load->compute[0] ? load->compute : "default",
		 load->fast ? ",fast" : "", load->rank,
		 load->n_ranks ? load->n_ranks : 1);
	step_close(l->step);
	l->step = NULL;
	atomic_store(&l->permille, 0);
	lend(l, true);
	const struct step_args a = {
		.device = l->args->device,
		.isa = l->args->isa,
		.memory_fraction = l->args->memory_fraction,
		.no_graphs = l->args->no_graphs,
		.load = load,
		.tune = l->args->tune,
		.progress = note_progress,
		.progress_arg = l,
		.moves = &l->moves,
	};
	int rc = step_open(&l->step, &a, ready, why, why_n);
	reclaim(l);
	return rc;
}

/* ---- results ---- */

/* The first plan that is under way, for which this waits. */
static int finish(struct link *l, char *why, size_t why_n)
{
	lend(l, false);
	int rc = step_end(l->step, &l->result, why, why_n);
	reclaim(l);
	if (rc) {
		send_failed(l, step_epoch(l->step), why);
		return rc;
	}
	if (step_rank(l->step))
		return 0; /* rank 0 answers for the group */
	read_monitor(l);
	if (!l->welcome)
		return 0; /* whoever is at the other end now did not send the plan */
	bus_encode_result(&l->result, &l->out);
	if ((rc = send_bytes(l, &l->out)))
		log_warn("link", "result of plan %llu lost: %s", (unsigned long long)l->result.number,
			 zmq_strerror(-rc));
	return 0;
}

static int under_way(const struct link *l)
{
	return l->step ? step_under_way(l->step) : 0;
}

/* What is done by now. */
static int finish_done(struct link *l, char *why, size_t why_n)
{
	int rc = 0;
	while (!rc && under_way(l) && step_done(l->step))
		rc = finish(l, why, why_n);
	return rc;
}

static int finish_all(struct link *l, char *why, size_t why_n)
{
	int rc = 0;
	while (!rc && under_way(l))
		rc = finish(l, why, why_n);
	return rc;
}

/* ---- loads and plans ---- */

static int handle_load(struct link *l, struct bus_load *load, char *why, size_t why_n)
{
	struct bus_ready ready = {0};
	int rc = finish_all(l, why, why_n); /* for whoever sent these plans: before this one is known */
	if (rc)
		return rc;
	l->welcome = true;
	l->missed = false;
	l->epoch = load->epoch;
	l->ended = 0;
	if (l->args->n_threads)
		load->n_threads = l->args->n_threads;
	if (!l->step || !step_serves(l->step, load)) {
		rc = open_step(l, load, &ready, why, why_n);
	} else if (load->n_ranks <= 1) {
		step_reset(l->step, load->epoch, &ready);
		reclaim(l);
	}
	if (!rc && load->n_ranks > 1)
		rc = join(l, load, &ready, why, why_n);
	if (rc && l->step && group_broke(rc)) {
		part(l, why);
		return 0;
	}
	if (rc)
		send_failed(l, load->epoch, why);
	else
		send_ready(l, &ready);
	return rc;
}

/* A plan is queued behind the one that runs, so that the device finds it there.  One that is done when
 * it was begun, as on the CPU, is answered before the next one is looked at.
 * A plan of another epoch is passed over; one that is not due is answered with the number that
 * is.  A plan that contradicts what the worker holds ends it: it could only guess from there. */
static int handle_plan(struct link *l, const void *bytes, size_t n, char *why, size_t why_n)
{
	if (!l->step || !l->welcome) {
		log_warn("link", "a plan before anything was loaded");
		return 0;
	}
	int rc = 0;
	if (under_way(l) == STEP_AHEAD && (rc = finish(l, why, why_n)))
		return rc;
	if (!(rc = bus_decode_plan(bytes, n, step_limits(l->step), &l->plan, why, why_n))) {
		lend(l, false);
		rc = step_begin(l->step, &l->plan, why, why_n);
		reclaim(l);
	}
	if (rc == -ESTALE || rc == -ENXIO) {
		log_warn("link", "%s", why);
		pthread_mutex_lock(&l->lock);
		l->missed = l->missed || (rc == -ENXIO && l->plan.number > step_expected(l->step));
		send_beat(l);
		pthread_mutex_unlock(&l->lock);
		return 0;
	}
	if (rc && !step_joined(l->step)) {
		part(l, why);
		return 0;
	}
	if (rc) {
		/* Those before it are as good as ever; what is wrong with one of them is told instead. */
		char other[256];
		if (!finish_all(l, other, sizeof other))
			send_failed(l, step_epoch(l->step), why);
		return rc;
	}
	return finish_done(l, why, why_n);
}

/* It says how many plans were sent before it: those that are not here by now were lost; and
 * whether the group is still one. */
static void heed_beat(struct link *l, const struct bus_beat *b)
{
	if (l->step && b->epoch == 0 && step_group_size(l->step) > 1 && step_joined(l->step)) {
		step_leave(l->step);
		part(l, "the controller has ended it");
		return;
	}
	if (!l->step || !l->welcome || b->epoch != l->epoch || b->progress < step_expected(l->step) ||
	    l->missed)
		return;
	log_warn("link", "plan %llu did not come", (unsigned long long)step_expected(l->step));
	pthread_mutex_lock(&l->lock);
	l->missed = true;
	send_beat(l);
	pthread_mutex_unlock(&l->lock);
}

static int handle(struct link *l, const void *bytes, size_t n, char *why, size_t why_n)
{
	struct bus_msg m;
	int type = bus_peek(bytes, n, why, why_n), rc;
	if (type == -EPROTO)
		return type;
	if (type == BUS_PLAN)
		return handle_plan(l, bytes, n, why, why_n);
	rc = type < 0 ? type : type == BUS_RESULT ? -EBADMSG : bus_decode(bytes, n, &m, why, why_n);
	if (rc < 0) {
		log_warn("link", "a message of %zu bytes is not understood: %s", n,
			 type == BUS_RESULT ? "a result" : why);
		return 0;
	}
	switch (m.type) {
	case BUS_LOAD:
		return handle_load(l, &m.load, why, why_n);
	case BUS_STOP:
		/* A controller that was started again says so to whoever speaks before hello, and a
		 * message for the one before it may have been under way. */
		if (l->step && !l->welcome && !l->stop_passed) {
			l->stop_passed = l->hello_due = true;
			return 0;
		}
		if ((rc = finish_all(l, why, why_n)))
			return rc;
		log_info("link", "stop");
		send_msg(l, &(struct bus_msg){.type = BUS_STOP}); /* heard */
		l->stop = true;
		return 0;
	case BUS_BEAT:
		heed_beat(l, &m.beat);
		return 0;
	default:
		log_warn("link", "a message of type %d is not for a worker", m.type);
		return 0;
	}
}

/* ---- the loop ---- */

/* The next message into m, if there is one. */
static bool take(struct link *l, zmq_msg_t *m)
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
	l->heard_us = clock_us();
	return true;
}

static void wait_input(struct link *l)
{
	zmq_pollitem_t items[] = {{l->sock, 0, ZMQ_POLLIN, 0},
				  {l->monitor, 0, ZMQ_POLLIN, 0},
				  {NULL, under_way(l) ? step_fd(l->step) : -1, ZMQ_POLLIN, 0}};
	int64_t ms = (l->next_beat_us - clock_us()) / 1000 + 1;
	if (ms < 0 || ms > BUS_BEAT_MS)
		ms = ms < 0 ? 0 : BUS_BEAT_MS;
	zmq_poll(items, under_way(l) ? 3 : 2, l->hello_due ? HELLO_RETRY_MS : (long)ms);
	if (items[1].revents & ZMQ_POLLIN)
		read_monitor(l);
}

static void keep_beat(struct link *l)
{
	if (clock_us() < l->next_beat_us)
		return;
	pthread_mutex_lock(&l->lock);
	if (l->step)
		send_beat(l);
	else
		l->next_beat_us = clock_us() + BUS_BEAT_MS * 1000;
	pthread_mutex_unlock(&l->lock);
}

static int serve(struct link *l, char *why, size_t why_n)
{
	int rc = 0;
	while (!rc && !l->stop && !stop_asked) {
		zmq_msg_t m;
		zmq_msg_init(&m);
		if (take(l, &m))
			rc = handle(l, zmq_msg_data(&m), zmq_msg_size(&m), why, why_n);
		else
			wait_input(l);
		zmq_msg_close(&m);
		if (!rc)
			rc = finish_done(l, why, why_n);
		if (l->hello_due && clock_us() >= l->hello_at_us)
			send_hello(l);
		keep_beat(l);
		if (!rc && l->unknown)
			rc = err_why(why, why_n, -EACCES,
				     "the controller at %s does not let this worker's key in: a line \"worker "
				     "%s NAME\" in its --allow file does",
				     l->args->bus, l->args->key ? l->args->key->public : "KEY");
		if (!rc && grace_over(l))
			rc = err_why(why, why_n, -ETIMEDOUT, "no sign of a controller at %s for %lld ms%s",
				     l->args->bus, (long long)l->args->grace_ms,
				     l->args->key ? " (or its key is not --server-key)"
						  : " (or it wants a key: --key, --server-key)");
	}
	return rc;
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
	id[0] |= 1; /* identities that begin with zero are ZeroMQ's own */
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

static int open_sockets(struct link *l, char *why, size_t why_n)
{
	const int events = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
			   ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
	l->ctx = zmq_ctx_new();
	if (!l->ctx)
		return err_why(why, why_n, -errno, "no ZeroMQ context: %s", zmq_strerror(errno));
	l->sock = zmq_socket(l->ctx, ZMQ_DEALER);
	l->monitor = zmq_socket(l->ctx, ZMQ_PAIR);
	if (!l->sock || !l->monitor || set_options(l->sock) || set_int(l->monitor, ZMQ_LINGER, 0) ||
	    zmq_socket_monitor(l->sock, "inproc://events", events) ||
	    zmq_connect(l->monitor, "inproc://events"))
		return err_why(why, why_n, -errno, "no socket: %s", zmq_strerror(errno));
	int rc = l->args->key ? curve_client(l->sock, l->args->key, l->args->server_key->public) : 0;
	if (rc)
		return err_why(why, why_n, rc, "CURVE: %s", zmq_strerror(-rc));
	if (zmq_connect(l->sock, l->args->bus))
		return err_why(why, why_n, -errno, "cannot connect to %s: %s", l->args->bus,
			       zmq_strerror(errno));
	return 0;
}

static void close_sockets(struct link *l)
{
	if (l->sock)
		zmq_socket_monitor(l->sock, NULL, 0);
	if (l->monitor)
		zmq_close(l->monitor);
	if (l->sock)
		zmq_close(l->sock);
	if (l->ctx)
		zmq_ctx_term(l->ctx);
}

static int start_beater(struct link *l, char *why, size_t why_n)
{
	pthread_condattr_t attr;
	sigset_t all, before;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->wake, &attr);
	pthread_condattr_destroy(&attr);
	/* Signals are the main thread's: they must interrupt its zmq_poll(). */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&l->beater, NULL, beat_thread, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc ? err_why(why, why_n, -rc, "no thread for the heartbeat: %s", strerror(rc)) : 0;
}

static void end_beater(struct link *l)
{
	pthread_mutex_lock(&l->lock);
	l->end = true;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->beater, NULL);
}

/* What nobody waits for any more, on a device that may hang: the beat thread sees to it that this
 * worker ends. */
static void leave_plans(struct link *l)
{
	if (!under_way(l))
		return;
	lend(l, false);
	step_close(l->step);
	l->step = NULL;
	reclaim(l);
}

int link_run(const struct link_args *a, char *why, size_t why_n)
{
	struct link *l = xcalloc(1, sizeof *l);
	l->args = a;
	l->heard_us = l->looked_us = l->next_beat_us = clock_us();
	int rc = open_sockets(l, why, why_n);
	if (!rc && !(rc = start_beater(l, why, why_n))) {
		rc = serve(l, why, why_n);
		leave_plans(l);
		end_beater(l);
	}
	for (; l->n_stash; l->n_stash--, l->stash0 = (l->stash0 + 1) % STASH)
		zmq_msg_close(&l->stash[l->stash0]);
	close_sockets(l);
	step_close(l->step);
	group_meet_free(l->meet);
	bus_plan_fini(&l->plan);
	result_fini(&l->result);
	buf_fini(&l->out);
	buf_fini(&l->beat);
	free(l);
	return rc;
}
