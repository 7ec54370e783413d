/* apis.h - what the generation APIs (OpenAI's and others, one folder each) need beside the request: the
 * beginning of the endpoints' objects (endpoints.h), which an exchange leads to. */
#ifndef QUERN_CONTROLLER_APIS_APIS_H
#define QUERN_CONTROLLER_APIS_APIS_H

#include "controller/http/exchange.h"

struct mailbox;
struct responses;

struct apis {
	struct mailbox *mailbox;
	struct responses *responses; /* that are stored; NULL: no journal */
};

static inline struct apis *apis_of(const struct exchange *x)
{
	return x->host->user;
}

#endif
