#include "controller/jobs/lines.h"

#include "base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct lines {
	pthread_mutex_t lock;       /* held while the server's functions run */
	struct lines_server server; /* put NULL: no server */
	uint64_t last_tag;
};

void line_request_free(struct line_request *r)
{
	if (!r)
		return;
	free(r->url);
	buf_fini(&r->body);
	free(r);
}

struct lines *lines_new(void)
{
	struct lines *l = xcalloc(1, sizeof *l);
	pthread_mutex_init(&l->lock, NULL);
	return l;
}

void lines_free(struct lines *l)
{
	if (!l)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l);
}

int lines_put(struct lines *l, struct line_request **r, uint64_t *tag)
{
	struct line_request *mine = *r;
	*r = NULL;
	pthread_mutex_lock(&l->lock);
	const bool served = l->server.put != NULL;
	if (served) {
		*tag = ++l->last_tag;
		l->server.put(l->server.user, mine, *tag);
	}
	pthread_mutex_unlock(&l->lock);
	if (served)
		return 0;
	line_request_free(mine);
	return -ENOTCONN;
}

void lines_drop(struct lines *l, uint64_t tag)
{
	pthread_mutex_lock(&l->lock);
	if (l->server.drop)
		l->server.drop(l->server.user, tag);
	pthread_mutex_unlock(&l->lock);
}

void lines_open(struct lines *l, const struct lines_server *server)
{
	pthread_mutex_lock(&l->lock);
	l->server = *server;
	pthread_mutex_unlock(&l->lock);
}

void lines_close(struct lines *l)
{
	lines_open(l, &(struct lines_server){0});
}
