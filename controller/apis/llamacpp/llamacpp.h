/* llamacpp.h - the API of llama.cpp's server: the routes (http.h), the writer of its replies, the shape of
 * its errors.  docs/apis/llamacpp.md lists the supported fields. */
#ifndef QUERN_CONTROLLER_APIS_LLAMACPP_LLAMACPP_H
#define QUERN_CONTROLLER_APIS_LLAMACPP_LLAMACPP_H

#include "base/buf.h"
#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

struct http_failure;

void llamacpp_call_completion(struct exchange *x, const char *rest);
void llamacpp_call_infill(struct exchange *x, const char *rest);
void llamacpp_call_template(struct exchange *x, const char *rest); /* /apply-template */
void llamacpp_call_props(struct exchange *x, const char *rest);
void llamacpp_call_slots(struct exchange *x, const char *rest);

/* Append {"error": {"code": 400, "message", "type"}}; the error shape of the routes (http.h). */
void llamacpp_error(struct buf *b, const struct http_failure *f);

#endif
