/* supervisor.h - lines of JSON to the process that started the controller (`quern serve`), on --ready-fd.
 * Owns: the notices that are not written yet.  The engine's and the front end's threads add notices, the
 * main thread writes them.
 *
 *   {"jobs": ..., "http": ..., "ready": true, ...}   once a replica serves (the main thread's line)
 *   {"loading": {"workers": n, "doing": what, "done": bytes, "total": bytes, "seconds": s}}   until then
 *   {"alive": true}   every five seconds, while its threads run
 *   {"draining": {"jobs": n, "requests": n, "seconds": s}}   ending, once these have finished or after s
 *   {"draining": {"seconds": 0}}                             they have finished, or are cut
 *   {"error": why}   {"failed": why}   {"lost": pid}   {"scale": {...}}   {"keep": [pid, ...]}   {"retire":
 * pid} */
#ifndef QUERN_CONTROLLER_SUPERVISOR_H
#define QUERN_CONTROLLER_SUPERVISOR_H

#include "controller/message/engine_msg.h"

#include <jansson.h>
#include <stdbool.h>

struct supervisor;

/* out: descriptor to write to; -1: none, lines are dropped.  Never NULL. */
struct supervisor *supervisor_new(int out);
/* Before the first notice.  0 or -errno. */
int supervisor_open(struct supervisor *s);
void supervisor_free(struct supervisor *s); /* NULL is fine */

/* The service as it is once a replica serves. */
struct supervisor_ready {
	uint32_t max_context;   /* tokens */
	uint64_t full_kv_bytes; /* of a worker's KV pool that would hold the whole context; 0: it does */
};

/* front_config.on_ready, on the front end's thread.  user: the supervisor. */
void supervisor_on_ready(void *user, uint32_t max_context, uint64_t full_kv_bytes);
/* engine_config.on_notice, on the engine's thread.  user: the supervisor. */
void supervisor_notice(void *user, const struct engine_notice *n);

/* The main thread. */
int supervisor_fd(const struct supervisor *s); /* readable when there are notices */
/* Writes the lines of all notices.  True: a replica serves and none did before, see *ready. */
bool supervisor_flush(struct supervisor *s, struct supervisor_ready *ready);
void supervisor_write(const struct supervisor *s, json_t *line); /* one line; takes it */
bool supervisor_is_there(const struct supervisor *s);

#endif
