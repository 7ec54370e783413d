#include "controller/http/prep.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 16 };

struct task {
	struct task *next;
	struct exchange *x;
	void (*call)(struct exchange *x, const char *rest);
};

struct prep {
	pthread_t threads[THREADS_MAX];
	unsigned n_threads;
	pthread_mutex_t lock; /* guards the fields below */
	pthread_cond_t more;
	struct task *first;
	struct task **last; /* where the next one is linked */
	bool quit;
};

/* The next task; NULL: the end. */
static struct task *take(struct prep *p)
{
	pthread_mutex_lock(&p->lock);
	while (!p->first && !p->quit)
		pthread_cond_wait(&p->more, &p->lock);
	struct task *t = p->quit ? NULL : p->first;
	if (t) {
		p->first = t->next;
		if (!p->first)
			p->last = &p->first;
	}
	pthread_mutex_unlock(&p->lock);
	return t;
}

static void task_free(struct task *t)
{
	exchange_unref(t->x);
	free(t);
}

static void *prep_loop(void *arg)
{
	struct prep *p = arg;
	for (struct task *t; (t = take(p));) {
		t->call(t->x, "");
		task_free(t);
	}
	return NULL;
}

int prep_start(unsigned n_threads, struct prep **out, char *why, size_t why_n)
{
	struct prep *p = xcalloc(1, sizeof *p);
	p->last = &p->first;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->more, NULL);
	for (; p->n_threads < n_threads && p->n_threads < THREADS_MAX; p->n_threads++) {
		int e = pthread_create(&p->threads[p->n_threads], NULL, prep_loop, p);
		if (e) {
			prep_stop(p);
			return err_why(why, why_n, -e, "thread: %s", strerror(e));
		}
	}
	*out = p;
	return 0;
}

void prep_stop(struct prep *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	pthread_cond_broadcast(&p->more);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->n_threads; i++)
		pthread_join(p->threads[i], NULL);
	for (struct task *t; (t = p->first);) {
		p->first = t->next;
		task_free(t);
	}
	pthread_cond_destroy(&p->more);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void prep_put(struct prep *p, struct exchange *x, void (*call)(struct exchange *x, const char *rest))
{
	struct task *t = xcalloc(1, sizeof *t);
	exchange_ref(x);
	t->x = x;
	t->call = call;
	pthread_mutex_lock(&p->lock);
	*p->last = t;
	p->last = &t->next;
	pthread_cond_signal(&p->more);
	pthread_mutex_unlock(&p->lock);
}
