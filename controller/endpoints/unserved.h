/* unserved.h - paths of other services' APIs that quern does not serve.  Refuses them by name, in the API's
 * error shape, and names an alternative.  A route (http.h). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_UNSERVED_H
#define QUERN_CONTROLLER_ENDPOINTS_UNSERVED_H

#include "controller/http/exchange.h"

void unserved_call(struct exchange *x, const char *rest);

#endif
