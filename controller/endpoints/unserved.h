/* unserved.h - paths of other services' APIs that this one does not serve: refused by name, each in its API's
 * shape of errors, with what there is instead.  A route (http.h). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_UNSERVED_H
#define QUERN_CONTROLLER_ENDPOINTS_UNSERVED_H

#include "controller/http/exchange.h"

void unserved_call(struct exchange *x, const char *rest);

#endif
