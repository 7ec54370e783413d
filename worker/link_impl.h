/* link_impl.h - inside of the link: its state, and what link.c (messages and what they cause) uses of
 * link_socket.c (the socket and the beat thread).
 *
 * The socket belongs to the main thread.  While that is busy with a load or a step, the socket is lent to
 * the beat thread, which sends the beats and receives into the stash:
 *
 *     main thread   | handle | lend |  load or step ............ | reclaim | stash, then the socket |
 *     beat thread            |      | beat, receive | beat, receive |
 *
 * One thread holds it at a time.
 *
 * A result waits in `answer` while the next plan is taken up, where the device has nothing else to do:
 * sending it wakes other threads, here and in the controller, on cores that the step needs.  The beat thread
 * sends it beside the step, woken when the device is at work:
 *
 *     main thread   step 7 | answer 7 | take plan 8 | lend | step 8 ......................... | reclaim |
 *     beat thread                                             | send 7 |
 *
 * Whatever is sent, an answer that waits goes first: beats name the last plan that was answered. */
#ifndef QUERN_WORKER_LINK_IMPL_H
#define QUERN_WORKER_LINK_IMPL_H

#include "base/buf.h"
#include "proto/bus.h"
#include "worker/link.h"
#include "worker/experts/expert_load.h"
#include "worker/loading.h"
#include "worker/step.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

enum { STASH = 16 }; /* messages received while the main thread was busy; at most STEP_AHEAD are plans */

/* Where a model was found. */
struct model_found {
	char path[PATH_MAX];
	char fingerprint[MANIFEST_FINGERPRINT]; /* of one that was looked up or fetched; "": by its path */
	char sketch[BUS_SKETCH_SIZE];           /* "": not known */
};

struct link {
	const struct link_args *args;
	void *ctx;
	void *sock;               /* DEALER */
	void *monitor;            /* PAIR: the socket's events */
	struct step *step;        /* NULL until a model is loaded */
	struct model_found found; /* the model of step */
	struct plan plan;
	struct result result;
	/* from here to `stop`: of the thread that holds the socket, as the monitor */
	struct buf out;
	struct buf answer; /* the result that is to be sent next */
	uint64_t answered; /* its number */
	bool answer_due;
	bool hello_due;             /* the link is up, and its controller has no hello yet */
	int64_t hello_at_us;        /* not before */
	struct tp_group_meet *meet; /* where other ranks find this worker; NULL: none yet */
	char meet_text[BUS_MEET_SIZE];
	bool meet_published; /* in a hello: the next hello has another */
	bool welcome;        /* a load has come since the link came up */
	bool stop_passed;    /* a stop came before that load, and was ignored */
	bool unknown;        /* the controller does not accept this worker's key */
	bool reported;       /* the controller was told why this worker cannot serve */
	bool stop;
	const char *compute, *experts_compute; /* of the last step, static; NULL: none was loaded yet */

	pthread_t beater;
	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t wake;
	bool lent;
	bool loading;
	bool end;
	uint64_t epoch;
	uint64_t ended; /* plans with results sent */
	bool missed;    /* a plan of this epoch was lost */
	int64_t next_beat_us;
	int64_t last_seen_us;  /* last message of the controller */
	int64_t leave_at_us;   /* the end after link_leave(), whatever runs; 0: not asked to */
	int64_t last_check_us; /* last check of last_seen_us, several times a second */
	zmq_msg_t stash[STASH];
	int stash0, n_stash;
	struct buf beat;
	atomic_uint permille; /* of the load */
	struct loading progress;
	struct expert_load experts;
	struct expert_turn turn;
	atomic_ullong moves;   /* progress of loads and steps: beats come from another thread */
	atomic_int calls;      /* loads and stops in the stash, which end the load or step in progress */
	atomic_bool dismissed; /* the controller's beats since the socket was lent name no group */
};

/* link_stop() was called. */
bool link_stopping(void);
bool link_leaving(void);

int link_open_sockets(struct link *l, char *why, size_t why_n);
void link_close_sockets(struct link *l); /* with the stash; sockets may be missing */
int link_start_beats(struct link *l, char *why, size_t why_n);
void link_end_beats(struct link *l);

/* The rest is for the thread that holds the socket. */
void link_send_answer(struct link *l); /* where one is due */
void link_wake_sender(void *link);     /* while the socket is lent: the beat thread sends it, soon */
void link_lend(struct link *l, bool loading);
void link_reclaim(struct link *l); /* also publishes the step's epoch and number in the beats */

int link_send_bytes(struct link *l, const struct buf *b); /* 0, -errno; never blocks */
int link_send(struct link *l, const struct bus_msg *m);
void link_send_hello(struct link *l);
void link_send_beat(struct link *l); /* under the lock */
bool link_take(struct link *l, zmq_msg_t *m);
void link_put_back(struct link *l, zmq_msg_t *m); /* it is taken next; dropped where the stash is full */
void link_read_monitor(struct link *l);
bool link_grace_over(struct link *l); /* no sign of the controller for the grace period */

/* link_model.c: finds the model of a load, on the main thread with the socket its own.  -ECANCELED: the load
 * is void, by what the next message or the link's state says. */
int link_find_model(struct link *l, const struct bus_load *load, struct model_found *out, char *why,
		    size_t why_n);
/* Whether the files of l->found still are those that were loaded, as far as their sketch tells; true where
 * they are gone, or were not compared then. */
bool link_model_unchanged(struct link *l);

#endif
