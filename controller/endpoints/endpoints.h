/* endpoints.h - the resources that the service offers over HTTP: the table of routes, and the objects
 * behind them.
 * Owns: the file store, the batches' thread and the live stream, from http_start() to
 * http_stop(), which start and stop them in their turn. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_ENDPOINTS_H
#define QUERN_CONTROLLER_ENDPOINTS_ENDPOINTS_H

#include "controller/apis/apis.h"
#include "controller/apis/openai/responses_store.h"
#include "controller/http/exchange.h"
#include "controller/http/http.h"
#include "controller/jobs/file_store.h"

#include <stddef.h>

struct endpoints {
	struct apis apis;               /* the first: apis_of() */
	const struct service *svc;      /* svc->journal NULL: no files and batches */
	size_t max_file_bytes;          /* of an upload */
	struct file_quota quota;        /* of an owner whose key has none; set before the server starts */
	struct responses_limits stored; /* of responses and conversations; set before the server starts */
	struct file_store *files;       /* NULL: no journal */
	struct batches *batches;        /* NULL: no journal */
	struct viewers *viewers;
};

/* For http_start().  Fills *e, which outlives the server, as mailbox and svc do.  max_file_bytes 0: 200 MB.
 */
struct http_app endpoints_app(struct endpoints *e, struct mailbox *mailbox, const struct service *svc,
			      size_t max_file_bytes);

static inline struct endpoints *endpoints_of(const struct exchange *x)
{
	return x->host->user;
}

/* The table of what is served, static. */
const struct http_route *endpoints_routes(size_t *n);

#endif
