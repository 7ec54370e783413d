/* jobmsg.h - replies of the job socket as msgpack (docs/PROTOCOL.md).  Each function appends
 * one whole message.  id: the request's, as the client encoded it; empty: nil. */
#ifndef QUERN_CONTROLLER_JOBMSG_H
#define QUERN_CONTROLLER_JOBMSG_H

#include "base/buf.h"
#include "controller/front.h"

#include <jansson.h>

/* accepted, delta, done or error. */
void jobmsg_event(struct buf *out, const struct buf *id, const struct job_event *e);
void jobmsg_error(struct buf *out, const struct buf *id, enum code code, const char *why);
/* ok with the keys of a map beside it; NULL: none. */
void jobmsg_ok(struct buf *out, const struct buf *id, const json_t *keys);
void jobmsg_ok_tokens(struct buf *out, const struct buf *id, const uint32_t *tokens, size_t n);
void jobmsg_ok_text(struct buf *out, const struct buf *id, const char *text, size_t n);

/* The engine's status as a map; the tables of replicas and of workers as arrays. */
json_t *jobmsg_status(const struct service *svc, const struct engine_status *s);
json_t *jobmsg_replicas(const struct engine_status *s);
json_t *jobmsg_workers(const struct engine_status *s);

#endif
