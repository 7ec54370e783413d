/* job_reply.h - replies of the job socket as msgpack (docs/PROTOCOL.md).  Each function appends a
 * complete message.  id: the request's, as the client encoded it; empty: nil. */
#ifndef QUERN_CONTROLLER_JOBSOCK_JOB_REPLY_H
#define QUERN_CONTROLLER_JOBSOCK_JOB_REPLY_H

#include "base/buf.h"
#include "controller/message/engine_msg.h"
#include "controller/message/job_event.h"
#include "controller/message/service.h"

#include <jansson.h>

/* accepted, delta, done or error. */
void job_reply_event(struct buf *out, const struct buf *id, const struct job_event *e);
/* field: what was wrong in the request; "": none, or the request as a whole. */
void job_reply_error(struct buf *out, const struct buf *id, enum code code, const char *field,
		     const char *why);
/* ok, with the fields of `keys` added; NULL: none. */
void job_reply_ok(struct buf *out, const struct buf *id, const json_t *keys);
void job_reply_ok_tokens(struct buf *out, const struct buf *id, const uint32_t *tokens, size_t n);
/* pieces: the text of each token, an array of strings; NULL: not asked for. */
void job_reply_ok_text(struct buf *out, const struct buf *id, const char *text, size_t n,
		       const json_t *pieces);

/* The engine's status as a map; its workers as an array. */
json_t *job_reply_status(const struct service *svc, const struct engine_status *s);
json_t *job_reply_workers(const struct engine_status *s);

#endif
