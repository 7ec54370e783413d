/* job_reply.h - replies of the job socket as msgpack (docs/PROTOCOL.md).  Each function appends a complete
 * message.  id: the request's id, as the client encoded it; empty: nil. */
#ifndef QUERN_CONTROLLER_JOBSOCK_JOB_REPLY_H
#define QUERN_CONTROLLER_JOBSOCK_JOB_REPLY_H

#include "base/buf.h"
#include "controller/jobs/lines.h"
#include "controller/message/engine_msg.h"
#include "controller/message/job_event.h"
#include "controller/message/service.h"

#include <jansson.h>

/* Append accepted, delta, done or error. */
void job_reply_event(struct buf *out, const struct buf *id, const struct job_event *e);
/* field: the field of the request that was wrong; "": none, or the request as a whole. */
void job_reply_error(struct buf *out, const struct buf *id, enum code code, const char *field,
		     const char *why);
/* Append ok, with the fields of `keys`; NULL: no fields. */
void job_reply_ok(struct buf *out, const struct buf *id, const json_t *keys);
void job_reply_ok_tokens(struct buf *out, const struct buf *id, const uint32_t *tokens, size_t n);
/* pieces: the text of each token, an array of strings; NULL: not requested. */
void job_reply_ok_text(struct buf *out, const struct buf *id, const char *text, size_t n,
		       const json_t *pieces);

/* Append ok, with the reply of an HTTP route. */
void job_reply_line(struct buf *out, const struct buf *id, const struct line_reply *reply);

/* Return the engine's status as a map; its workers as an array. */
json_t *job_reply_status(const struct service *svc, const struct engine_status *s);
json_t *job_reply_workers(const struct engine_status *s);

#endif
