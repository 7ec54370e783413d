/* link_impl.h - internals of the link: its state, and the functions of link_socket.c (the socket and the
 * beat thread) and link_model.c that link.c uses.
 *
 * The main thread owns the socket.  During a load or a step it lends the socket to the beat thread, which
 * sends the heartbeats and receives messages into the stash:
 *
 *     main thread   | handle | lend |  load or step ............ | reclaim | stash, then the socket |
 *     beat thread            |      | beat, receive | beat, receive |
 *
 * One thread holds the socket at a time.
 *
 * A result waits in `answer` while the next plan is taken up, if the device is otherwise idle: sending
 * wakes other threads, here and in the controller, on cores that the step needs.  The beat thread sends the
 * answer during the step, when it is woken because the device is at work:
 *
 *     main thread   step 7 | answer 7 | take plan 8 | lend | step 8 ......................... | reclaim |
 *     beat thread                                             | send 7 |
 *
 * A waiting answer is sent before any other message: heartbeats name the last plan that was answered. */
#ifndef QUERN_WORKER_LINK_IMPL_H
#define QUERN_WORKER_LINK_IMPL_H

#include "base/buf.h"
#include "base/err.h"
#include "proto/bus.h"
#include "worker/draft.h"
#include "worker/guide.h"
#include "worker/link.h"
#include "worker/experts/expert_load.h"
#include "worker/loading.h"
#include "worker/step.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

enum { STASH = 16 }; /* messages received while the main thread was busy; at most STEP_AHEAD are plans */

/* The files of a loaded model. */
struct model_found {
	char path[PATH_MAX];
	/* set if looked up or fetched by fingerprint; "": found by its path */
	char fingerprint[MANIFEST_FINGERPRINT];
	char quick_fingerprint[BUS_QUICK_FINGERPRINT_SIZE]; /* "": not known */
};

struct link {
	const struct link_args *args;
	void *ctx;
	void *sock;               /* DEALER */
	void *monitor;            /* PAIR: events of the socket */
	struct step *step;        /* NULL until a model is loaded */
	struct model_found found; /* files of the model of step */
	struct plan plan;
	struct result result;
	/* The members from out to stop belong to the thread that holds the socket, as does the monitor. */
	struct buf out;
	struct buf answer; /* the next result to send */
	uint64_t answered; /* plan number of the answer */
	bool answer_due;
	bool hello_due;      /* the connection is up, and its controller has received no hello yet */
	int64_t hello_at_us; /* earliest time of the next hello */
	int64_t rest_at_us;  /* time of the next step_rest() */
	struct tp_group_rendezvous *rendezvous; /* meeting place for other ranks; NULL: not open */
	char rendezvous_text[BUS_RENDEZVOUS_SIZE];
	bool rendezvous_published; /* sent in a hello: the next hello needs a new one */
	bool welcome;              /* a load was received since the connection came up */
	bool stop_passed;          /* a stop was received before that load, and ignored */
	bool unknown;              /* the controller does not accept this worker's key */
	bool reported;             /* the controller was sent the reason why this worker cannot serve */
	bool stop;
	/* modes of the last step, static strings; NULL: no model was loaded yet */
	const char *compute, *experts_compute;

	pthread_t beater;
	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t wake;
	bool lent;
	bool loading;
	bool end;
	uint64_t epoch;
	uint64_t ended; /* plans with results sent */
	bool missed;    /* a plan of this epoch was lost */
	int64_t next_beat_us;
	int64_t last_seen_us;  /* time of the controller's last message */
	int64_t leave_at_us;   /* when link_run() ends after link_leave(), in any case; 0: not leaving */
	int64_t last_check_us; /* last check of last_seen_us, several times a second */
	zmq_msg_t stash[STASH];
	int stash0, n_stash;
	struct buf beat;
	atomic_uint permille; /* progress of the load */
	struct loading progress;
	struct expert_load experts;
	struct guide_report masks;
	struct draft_report drafts;
	struct expert_cursor experts_cursor;
	atomic_ullong moves;   /* progress of loads and steps, sent by the beat thread */
	atomic_int calls;      /* loads and stops in the stash, which cancel the load or step in progress */
	atomic_bool dismissed; /* the controller's heartbeats since the socket was lent name no group */
};

/* True after link_stop(), or link_leave(). */
bool link_stopping(void);
bool link_leaving(void);

int link_open_sockets(struct link *l, struct why *why);
void link_close_sockets(struct link *l); /* drops the stash, too; sockets may be missing */
int link_start_beats(struct link *l, struct why *why);
void link_end_beats(struct link *l);

/* The functions below are for the thread that holds the socket. */
void link_send_answer(struct link *l); /* sends the answer, if one is due */
/* while the socket is lent: makes the beat thread send the answer soon */
void link_wake_sender(void *link);
void link_lend(struct link *l, bool loading);
void link_reclaim(struct link *l); /* also publishes the step's epoch and number for the heartbeats */

int link_send(struct link *l, const struct bus_msg *m);
void link_send_hello(struct link *l);
void link_send_beat(struct link *l); /* holding the lock */
bool link_take(struct link *l, zmq_msg_t *m);
/* the next link_take() returns it; dropped if the stash is full */
void link_put_back(struct link *l, zmq_msg_t *m);
void link_read_monitor(struct link *l);
bool link_grace_over(struct link *l); /* no sign of the controller for the grace period */

/* link_model.c: find the model of a load, on the main thread, which must hold the socket.  -ECANCELED: the
 * load is void, because of the next message or the link's state. */
int link_find_model(struct link *l, const struct bus_load *load, struct model_found *out, struct why *why);
/* True if the files of l->found are those that were loaded, judged by their sketch; also true if the files
 * are gone, or were not compared then. */
bool link_model_unchanged(struct link *l);

#endif
