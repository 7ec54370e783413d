#include "controller/jobsock/parser.h"

#include "base/alloc.h"
#include "base/work_pool.h"
#include "controller/jobs/mailbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct item {
	struct work work; /* the first member: an item is its work */
	struct parser *parser;
	struct item *next; /* in the list of parsed items */
	zmq_msg_t message;
	struct job_request req;
	void *user;
};

struct parser {
	const struct service *svc;
	const struct mailbox *mailbox;
	int fd;
	pthread_mutex_t lock; /* protects the following fields */
	pthread_cond_t none;
	struct item *first, **last; /* parsed items, to be taken */
	size_t n_pool;              /* items in the pool */
	bool quit;                  /* items still in the pool are no longer parsed */
};

static void parse(struct work *w)
{
	struct item *it = (struct item *)w;
	struct parser *p = it->parser;
	pthread_mutex_lock(&p->lock);
	bool quit = p->quit;
	pthread_mutex_unlock(&p->lock);
	if (!quit)
		job_request_parse(&it->req, p->svc, mailbox_max_context(p->mailbox),
				  zmq_msg_data(&it->message), zmq_msg_size(&it->message));
	zmq_msg_close(&it->message);
	pthread_mutex_lock(&p->lock);
	it->next = NULL;
	*p->last = it;
	p->last = &it->next;
	p->n_pool--;
	pthread_cond_signal(&p->none);
	eventfd_write(p->fd, 1);
	pthread_mutex_unlock(&p->lock);
}

struct parser *parser_new(const struct service *svc, const struct mailbox *mailbox)
{
	struct parser *p = xcalloc(1, sizeof *p);
	p->svc = svc;
	p->mailbox = mailbox;
	p->last = &p->first;
	p->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (p->fd < 0) {
		free(p);
		return NULL;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->none, NULL);
	return p;
}

static struct item *take(struct parser *p)
{
	struct item *it = p->first;
	if (it && !(p->first = it->next))
		p->last = &p->first;
	return it;
}

void parser_free(struct parser *p, void (*drop)(void *user))
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	while (p->n_pool)
		pthread_cond_wait(&p->none, &p->lock);
	pthread_mutex_unlock(&p->lock);
	for (struct item *it; (it = take(p));) {
		job_request_fini(&it->req);
		drop(it->user);
		free(it);
	}
	pthread_cond_destroy(&p->none);
	pthread_mutex_destroy(&p->lock);
	close(p->fd);
	free(p);
}

int parser_put(struct parser *p, const char *client, zmq_msg_t *message, bool costly, void *user,
	       struct why *why)
{
	struct item *it = xcalloc(1, sizeof *it);
	*it = (struct item){
		.work = {.run = parse, .bytes = zmq_msg_size(message), .costly = costly, .in_order = true},
		.parser = p,
		.user = user};
	zmq_msg_init(&it->message);
	zmq_msg_move(&it->message, message);
	pthread_mutex_lock(&p->lock);
	p->n_pool++;
	pthread_mutex_unlock(&p->lock);
	int rc = work_pool_put(p->svc->pool, client, &it->work, why);
	if (!rc)
		return 0;
	pthread_mutex_lock(&p->lock);
	p->n_pool--;
	pthread_mutex_unlock(&p->lock);
	zmq_msg_move(message, &it->message);
	zmq_msg_close(&it->message);
	free(it);
	return rc;
}

void *parser_take(struct parser *p, struct job_request *req)
{
	eventfd_t ignored;
	eventfd_read(p->fd, &ignored);
	pthread_mutex_lock(&p->lock);
	struct item *it = take(p);
	if (p->first)
		eventfd_write(p->fd, 1);
	pthread_mutex_unlock(&p->lock);
	if (!it)
		return NULL;
	void *user = it->user;
	*req = it->req;
	free(it);
	return user;
}

int parser_fd(const struct parser *p)
{
	return p->fd;
}
