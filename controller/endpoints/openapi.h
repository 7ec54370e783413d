/* openapi.h - GET /openapi.json: what the service serves over HTTP, as an OpenAPI 3.1 document
 * (https://spec.openapis.org/oas/v3.1.1).  The fields of requests come from the tables that check them
 * (field_table.h), with what becomes of each as `x-quern`. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_OPENAPI_H
#define QUERN_CONTROLLER_ENDPOINTS_OPENAPI_H

#include "controller/http/exchange.h"

#include <jansson.h>

/* The caller's. */
json_t *openapi_document(void);

/* Route (http.h). */
void openapi_call(struct exchange *x, const char *rest);

#endif
