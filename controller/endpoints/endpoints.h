/* endpoints.h - the resources that the service offers over HTTP: the table of routes, and the objects behind
 * them.
 * Owns: the file store, the batches' thread and the live stream.  http_start() and http_stop() start and stop
 * them in order. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_ENDPOINTS_H
#define QUERN_CONTROLLER_ENDPOINTS_ENDPOINTS_H

#include "controller/apis/apis.h"
#include "controller/apis/openai/responses_store.h"
#include "controller/http/exchange.h"
#include "controller/http/http.h"
#include "controller/jobs/file_store.h"

#include <stddef.h>

struct endpoints {
	struct apis apis;               /* must be the first member: apis_of() */
	const struct service *svc;      /* svc->journal NULL: files and batches are not available */
	size_t max_file_bytes;          /* limit of an upload */
	struct file_quota quota;        /* for owners without a quota in their key; set before the server
					 * starts */
	struct responses_limits stored; /* limits of responses and conversations; set before the server
					 * starts */
	struct file_store *files;       /* NULL: no journal */
	struct batches *batches;        /* NULL: no journal */
	struct viewers *viewers;
	struct job_lines *lines; /* NULL: the job socket serves no lines */
};

/* Make the application for http_start().  Fills *e, which outlives the server, as mailbox and svc do.
 * max_file_bytes 0: 200 MB. */
struct http_app endpoints_app(struct endpoints *e, struct mailbox *mailbox, const struct service *svc,
			      size_t max_file_bytes);

/* Make an application with the ROUTE_MONITOR routes only, for a second server.  The server of
 * endpoints_app(e, ...) outlives it. */
struct http_app endpoints_monitor_app(struct endpoints *e);

static inline struct endpoints *endpoints_of(const struct exchange *x)
{
	return x->host->user;
}

/* Return the static table of routes. */
const struct http_route *endpoints_routes(size_t *n);

#endif
