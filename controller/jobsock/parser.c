#include "controller/jobsock/parser.h"

#include "base/alloc.h"
#include "controller/jobs/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
	BYTES_MAX = 64 << 20, /* waiting; a single request is always accepted */
	COUNT_MAX = 1024,
};

struct item {
	struct item *next;
	zmq_msg_t message;
	struct job_request req;
	void *user;
};

struct queue {
	struct item *first, **last;
};

struct parser {
	const struct service *svc;
	const struct mailbox *mailbox;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t work;
	struct queue in, out;
	size_t bytes;   /* of messages not yet parsed */
	unsigned count; /* requests not yet taken */
	bool quit;
	int fd;
};

static void queue_put(struct queue *q, struct item *it)
{
	it->next = NULL;
	*q->last = it;
	q->last = &it->next;
}

static struct item *queue_take(struct queue *q)
{
	struct item *it = q->first;
	if (it && !(q->first = it->next))
		q->last = &q->first;
	return it;
}

static void *parser_thread(void *arg)
{
	struct parser *p = arg;
	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct item *it;
		while (!p->quit && !p->in.first)
			pthread_cond_wait(&p->work, &p->lock);
		if (p->quit)
			break;
		it = queue_take(&p->in);
		pthread_mutex_unlock(&p->lock);
		size_t n = zmq_msg_size(&it->message);
		job_request_parse(&it->req, p->svc, mailbox_max_context(p->mailbox),
				  zmq_msg_data(&it->message), n);
		zmq_msg_close(&it->message);
		pthread_mutex_lock(&p->lock);
		p->bytes -= n;
		queue_put(&p->out, it);
		eventfd_write(p->fd, 1);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

struct parser *parser_start(const struct service *svc, const struct mailbox *mailbox)
{
	struct parser *p = xcalloc(1, sizeof *p);
	p->svc = svc;
	p->mailbox = mailbox;
	p->in.last = &p->in.first;
	p->out.last = &p->out.first;
	p->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	if (p->fd < 0 || pthread_create(&p->thread, NULL, parser_thread, p)) {
		if (p->fd >= 0)
			close(p->fd);
		free(p);
		return NULL;
	}
	return p;
}

void parser_stop(struct parser *p, void (*drop)(void *user))
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	struct item *it;
	while ((it = queue_take(&p->in))) {
		zmq_msg_close(&it->message);
		drop(it->user);
		free(it);
	}
	while ((it = queue_take(&p->out))) {
		job_request_fini(&it->req);
		drop(it->user);
		free(it);
	}
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	close(p->fd);
	free(p);
}

int parser_put(struct parser *p, zmq_msg_t *message, void *user)
{
	size_t n = zmq_msg_size(message);
	pthread_mutex_lock(&p->lock);
	bool full = p->count >= COUNT_MAX || (p->bytes && p->bytes + n > BYTES_MAX);
	if (!full) {
		struct item *it = xcalloc(1, sizeof *it);
		zmq_msg_init(&it->message);
		zmq_msg_move(&it->message, message);
		it->user = user;
		p->bytes += n;
		p->count++;
		queue_put(&p->in, it);
		pthread_cond_signal(&p->work);
	}
	pthread_mutex_unlock(&p->lock);
	return full ? -EAGAIN : 0;
}

void *parser_take(struct parser *p, struct job_request *req)
{
	eventfd_t ignored;
	eventfd_read(p->fd, &ignored);
	pthread_mutex_lock(&p->lock);
	struct item *it = queue_take(&p->out);
	if (it)
		p->count--;
	if (p->out.first)
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
