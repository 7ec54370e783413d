/* supervisor.h - lines of JSON to the process that started the controller (`quern serve`), on --ready-fd.
 * Owns: the lines that are not written yet.  A notice from the engine's thread is written at once if the pipe
 * accepts it without blocking, so that the supervisor reads that a worker is retired before that worker
 * exits; the main thread waits for the pipe and writes the rest.  Lines keep their order.
 *
 *   {"jobs": ..., "http": ..., "ready": true, ...}   once a replica serves (written by the main thread)
 *   {"loading": {"workers": n, "doing": what, "done": bytes, "total": bytes, "seconds": s}}   until then
 *   {"alive": true}   every five seconds, while the controller's threads run
 *   {"draining": {"jobs": n, "requests": n, "seconds": s}}   shutting down: waits up to s for these to finish
 *   {"draining": {"seconds": 0}}                             they have finished, or were cut off
 *   {"error": why}   {"failed": why}   {"lost": pid}   {"retire": pid}   {"scale": {...}}
 *   {"keep": [pid, ...]}
 *
 * cli/supervise.h says what the receiver does with each line. */
#ifndef QUERN_CONTROLLER_SUPERVISOR_H
#define QUERN_CONTROLLER_SUPERVISOR_H

#include "controller/message/engine_msg.h"

#include <jansson.h>
#include <stdbool.h>

struct supervisor;

/* out: the pipe to write to; -1: no pipe, lines are dropped.  Never returns NULL. */
struct supervisor *supervisor_new(int out);
/* Called before the first notice.  Returns 0 or -errno. */
int supervisor_open(struct supervisor *s);
void supervisor_free(struct supervisor *s); /* NULL is fine */

/* State of the service once a replica serves. */
struct supervisor_ready {
	uint32_t max_context;   /* tokens */
	uint64_t full_kv_bytes; /* bytes of a worker's KV pool that would hold the whole context; 0: the
				   pool holds it */
};

/* Serve as front_config.on_ready, on the front end's thread.  user: the supervisor. */
void supervisor_on_ready(void *user, uint32_t max_context, uint64_t full_kv_bytes);
/* Serve as engine_config.on_notice, on the engine's thread; never blocks.  user: the supervisor. */
void supervisor_notice(void *user, const struct engine_notice *n);

/* The functions below are for the main thread. */
int supervisor_fd(const struct supervisor *s); /* readable when there are notices */
/* Write all lines that are left.  Return true, and fill *ready, if a replica serves and none served
 * before. */
bool supervisor_flush(struct supervisor *s, struct supervisor_ready *ready);
void supervisor_write(struct supervisor *s, json_t *line);    /* one line; takes it */
void supervisor_error(struct supervisor *s, const char *why); /* why a start failed, in any bytes */
bool supervisor_is_there(const struct supervisor *s);

#endif
