/* anthropic.h - Anthropic's Messages API: the routes (http.h), the writer of its replies, the shape of its
 * errors.  docs/apis/anthropic.md lists the supported fields. */
#ifndef QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_H
#define QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_H

#include "base/buf.h"
#include "controller/http/exchange.h"

#include <stdbool.h>

struct http_failure;

void anthropic_call_messages(struct exchange *x, const char *rest);
void anthropic_call_count(struct exchange *x, const char *rest);

/* Append {"type": "error", "error": {"type", "message"}}; the error shape of the routes (http.h). */
void anthropic_error(struct buf *b, const struct http_failure *f);

/* Return true if the request has the header anthropic-version.  From a route's call only. */
bool anthropic_client(const struct exchange *x);
/* Append the models, or one model, in Anthropic's shape. */
void anthropic_put_models(struct buf *b, const struct exchange *x);
void anthropic_put_model(struct buf *b, const struct exchange *x, const char *name);

#endif
