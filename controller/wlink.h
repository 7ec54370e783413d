/* wlink.h - the controller's end of the worker bus: who is there, is it alive, bytes out and in.
 * Knows the protocol (proto/bus.h), nothing of sequences.  Used by the engine thread only.
 *
 * One worker serves at a time.  A worker that says hello while another one serves is told to
 * stop; so is anybody who speaks without having said hello. */
#ifndef QUERN_CONTROLLER_WLINK_H
#define QUERN_CONTROLLER_WLINK_H

#include "controller/engine.h"
#include "proto/bus.h"

struct wlink;

enum wlink_event { WLINK_NONE, WLINK_READY, WLINK_RESULT, WLINK_LOST, WLINK_FAILED };

/* Binds the ROUTER. */
int wlink_open(void *zmq_context, const struct engine_config *cfg, struct wlink **out, char *why, size_t why_n);
void wlink_close(struct wlink *w);              /* tells the worker to stop; NULL is fine */
void *wlink_socket(struct wlink *w);            /* to poll for input */
const char *wlink_endpoint(const struct wlink *w);

/* Take one message, if one is there.  RESULT: result is filled.  READY: wlink_ready() says what
 * it has.  LOST, FAILED: why says what happened.  NONE: nothing more to read. */
enum wlink_event wlink_recv(struct wlink *w, int64_t now_us, struct result *result, char *why, size_t why_n);
/* Heartbeats; LOST when the worker has been silent for too long. */
enum wlink_event wlink_tick(struct wlink *w, int64_t now_us, char *why, size_t why_n);
/* -EHOSTUNREACH, -EAGAIN: the worker is lost. */
int wlink_send_plan(struct wlink *w, const struct plan *p);
/* Give the worker up: it is told to stop, and whatever it still sends is ignored. */
void wlink_drop(struct wlink *w);

/* The worker that was lost last, if it runs on this host; 0 otherwise. */
int64_t wlink_lost_pid(const struct wlink *w);

bool wlink_serving(const struct wlink *w);
const struct bus_ready *wlink_ready(const struct wlink *w);
uint64_t wlink_epoch(const struct wlink *w);
/* One row for `quern workers`; false: there is none. */
bool wlink_status(const struct wlink *w, struct engine_worker *out);

#endif
