/* openapi.h - GET /openapi.json: the service's HTTP API as an OpenAPI 3.1 document
 * (https://spec.openapis.org/oas/v3.1.1).  The fields of requests come from the tables that check them
 * (field_table.h); `x-quern` has the effect of each field. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_OPENAPI_H
#define QUERN_CONTROLLER_ENDPOINTS_OPENAPI_H

#include "controller/http/exchange.h"

#include <jansson.h>

/* Return the document, which the caller owns. */
json_t *openapi_document(void);

/* Route (http.h). */
void openapi_call(struct exchange *x, const char *rest);

#endif
