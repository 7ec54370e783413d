#include "controller/http/prep.h"

#include "base/alloc.h"
#include "controller/http/api_keys.h"
#include "controller/http/http.h"
#include "controller/message/service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NETWORK_BYTES = 8 /* bytes of an IPv6 address that identify a client */ };

struct task {
	struct work work; /* must be the first member: a task is its work */
	struct exchange *x;
	char *rest; /* owned: the path after the route's */
};

static void run(struct work *w)
{
	struct task *t = (struct task *)w;
	if (!exchange_is_over(t->x))
		t->x->route->call(t->x, t->rest);
	exchange_unref(t->x);
	free(t->rest);
	free(t);
}

void prep_client(const struct exchange *x, char out[WORK_CLIENT_SIZE])
{
	char name[APIKEY_NAME_MAX];
	struct in6_addr a;
	uint32_t share;
	if (x->key) {
		api_key_name(x->key, name, &share);
		snprintf(out, WORK_CLIENT_SIZE, "key %s", name);
	} else if (inet_pton(AF_INET6, x->remote, &a) == 1 && !IN6_IS_ADDR_V4MAPPED(&a)) {
		char network[INET6_ADDRSTRLEN];
		memset(a.s6_addr + NETWORK_BYTES, 0, sizeof a.s6_addr - NETWORK_BYTES);
		inet_ntop(AF_INET6, &a, network, sizeof network);
		snprintf(out, WORK_CLIENT_SIZE, "address %s/64", network);
	} else {
		snprintf(out, WORK_CLIENT_SIZE, "address %s", x->remote);
	}
}

void prep_put(struct exchange *x, const char *rest, bool costly)
{
	struct task *t = xcalloc(1, sizeof *t);
	struct why why;
	char client[WORK_CLIENT_SIZE];
	exchange_ref(x);
	*t = (struct task){
		.work = {.run = run, .bytes = x->body.len, .costly = costly}, .x = x, .rest = xstrdup(rest)};
	prep_client(x, client);
	int rc = work_pool_put(x->host->svc->pool, client, &t->work, &why);
	if (!rc)
		return;
	exchange_body_free(x);
	if (rc == -EAGAIN)
		exchange_error(x, MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_error", NULL, "too_many_preparing",
			       "%s", why.text);
	else
		exchange_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "server_error", NULL, "overloaded", "%s",
			       why.text);
	exchange_unref(x);
	free(t->rest);
	free(t);
}
