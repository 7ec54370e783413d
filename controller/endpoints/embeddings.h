/* embeddings.h - the route (http.h) of /v1/embeddings: each input becomes a pooled job. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_EMBEDDINGS_H
#define QUERN_CONTROLLER_ENDPOINTS_EMBEDDINGS_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

/* Of the request. */
extern const struct field_table embeddings_fields;

void embeddings_call(struct exchange *x, const char *rest);

#endif
