/* info.h - identity and health of the service: /health, /ready, /livez, /version, /metrics, /v1/models.
 * Routes (http.h). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_INFO_H
#define QUERN_CONTROLLER_ENDPOINTS_INFO_H

#include "controller/http/exchange.h"

void info_call_health(struct exchange *x, const char *rest);
/* 503 if a thread that every request needs has not run for a minute. */
void info_call_live(struct exchange *x, const char *rest);
void info_call_version(struct exchange *x, const char *rest);
void info_call_explain(struct exchange *x, const char *rest);
void info_call_metrics(struct exchange *x, const char *rest);
void info_call_models(struct exchange *x, const char *rest);
void info_call_model(struct exchange *x, const char *rest);

#endif
