/* apis.h - data shared by the generation APIs (OpenAI's and others, one folder each).  struct apis is the
 * first member of struct endpoints (endpoints.h), to which an exchange refers. */
#ifndef QUERN_CONTROLLER_APIS_APIS_H
#define QUERN_CONTROLLER_APIS_APIS_H

#include "controller/http/exchange.h"

struct mailbox;
struct responses;

struct apis {
	struct mailbox *mailbox;
	struct responses *responses; /* stored responses; NULL: no journal */
};

static inline struct apis *apis_of(const struct exchange *x)
{
	return x->host->user;
}

#endif
