#include "controller/endpoints/line_exchange.h"

#include "controller/apis/completion.h"
#include "controller/http/http_error.h"

#include <stdio.h>
#include <string.h>

const struct http_route *line_exchange_route(const struct exchange_host *host, const char *url)
{
	for (size_t i = 0; i < host->n_routes; i++)
		if (host->routes[i].flags & ROUTE_LINE && strcmp(host->routes[i].path, url) == 0)
			return &host->routes[i];
	return NULL;
}

void line_exchange_urls(const struct exchange_host *host, char out[LINE_EXCHANGE_URLS_SIZE])
{
	size_t n_left = 0;
	for (size_t i = 0; i < host->n_routes; i++)
		n_left += (host->routes[i].flags & ROUTE_LINE) != 0;
	snprintf(out, LINE_EXCHANGE_URLS_SIZE, "must be ");
	for (size_t i = 0; i < host->n_routes; i++) {
		const size_t at = strlen(out);
		if (!(host->routes[i].flags & ROUTE_LINE))
			continue;
		n_left--;
		snprintf(out + at, LINE_EXCHANGE_URLS_SIZE - at, "%s%s", host->routes[i].path,
			 n_left > 1    ? ", "
			 : n_left == 1 ? " or "
				       : "");
	}
}

struct exchange *line_exchange_new(struct exchange_host *host, const struct http_route *route,
				   const struct generation_line *line, const char *body, size_t n)
{
	struct exchange *x = exchange_new(host, NULL);
	if (!x)
		return NULL;
	x->route = route;
	x->errors = route->errors;
	x->line = line;
	snprintf(x->method, sizeof x->method, "POST");
	snprintf(x->path, sizeof x->path, "%s", route->path);
	exchange_body_give(x, body, n);
	return x;
}

bool line_exchange_later(const struct exchange *x)
{
	const struct completion *c = completion_of(x);
	const bool begun = c && c->n_accepted == c->n_subs;
	/* A job that has lost its workers too often has ended: under the same key it would fail again. */
	if (begun && strcmp(x->error, http_error_of(E_WORKER_LOST).code) == 0)
		return false;
	return x->dead || !x->status || x->status == MHD_HTTP_TOO_MANY_REQUESTS ||
	       x->status == MHD_HTTP_SERVICE_UNAVAILABLE || (x->status >= 500 && c && !begun);
}
