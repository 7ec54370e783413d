#include "controller/endpoints/viewers.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "base/err.h"
#include "controller/endpoints/live.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"
#include "controller/http/api_keys.h"
#include "controller/metrics/metrics.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { TICK_US = 1000 * 1000 };
/* A viewer with more unread bytes misses frames, and gets a whole one when it has caught up. */
enum { UNREAD_MAX = 512 << 10 };

struct viewer {
	struct exchange *x;          /* holds a reference */
	bool whole;                  /* the next frame has all sections */
	char owner[APIKEY_NAME_MAX]; /* name of its key, and sees its jobs only; "": jobs without a key */
};

struct viewers {
	struct mailbox *mailbox;
	const struct service *svc;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t change;
	/* Under the lock. */
	bool quit, now;           /* now: the next snapshot is due */
	bool requested, answered; /* a snapshot of the front end; ours when it is answered */
	struct mailbox_snapshot snapshot;
	struct viewer list[VIEWERS_MAX];
	size_t n;
	/* The thread's alone. */
	struct live live;
	struct buf whole, change_text, own; /* frames */
	size_t n_replicas;
};

static int64_t unix_ms(void)
{
	struct timeval t;
	gettimeofday(&t, NULL);
	return (int64_t)t.tv_sec * 1000 + t.tv_usec / 1000;
}

/* On the front end's thread. */
static void on_snapshot(void *user, struct mailbox_snapshot *s)
{
	struct viewers *v = user;
	pthread_mutex_lock(&v->lock);
	v->snapshot = *s;
	s->status = NULL;
	s->jobs = NULL;
	v->answered = true;
	pthread_cond_signal(&v->change);
	pthread_mutex_unlock(&v->lock);
}

/* Under the lock; the monotonic clock, as the condition has it. */
static void wait_until(struct viewers *v, int64_t us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};
	pthread_cond_timedwait(&v->change, &v->lock, &t);
}

static void send_frames(struct viewers *v)
{
	size_t kept = 0;
	buf_clear(&v->whole);
	buf_clear(&v->change_text);
	for (size_t i = 0; i < v->n; i++) {
		struct viewer *w = &v->list[i];
		const char *owner = w->owner[0] ? w->owner : NULL;
		struct buf *text = owner ? &v->own : w->whole ? &v->whole : &v->change_text;
		if (owner)
			buf_clear(text);
		if (!text->len && w->whole)
			live_put_whole(&v->live, owner, text);
		else if (!text->len)
			live_put_change(&v->live, owner, text);
		int rc = exchange_push(w->x, text, UNREAD_MAX);
		w->whole = rc == -EAGAIN;
		if (rc == -EPIPE)
			exchange_unref(w->x);
		else
			v->list[kept++] = *w;
	}
	v->n = kept;
}

/* Under the lock: the snapshot has come. */
static void take_snapshot(struct viewers *v)
{
	struct mailbox_snapshot s = v->snapshot;
	v->snapshot = (struct mailbox_snapshot){0};
	v->requested = v->answered = false;
	live_take(&v->live, v->svc, &s, clock_us(), unix_ms(), metrics_fine(v->svc->metrics, METRIC_TTFT),
		  metrics_fine(v->svc->metrics, METRIC_ITL));
	v->n_replicas = s.status ? s.status->n_replicas : v->n_replicas;
	engine_status_free(s.status);
	json_decref(s.jobs);
	send_frames(v);
}

static uint32_t rows_wanted(const struct viewers *v)
{
	uint32_t rows = v->n ? LIVE_JOBS : 0;
	for (size_t i = 0; i < v->n; i++)
		if (v->list[i].owner[0])
			rows = LIVE_JOBS_ALL;
	return rows;
}

static void *viewers_thread(void *arg)
{
	struct viewers *v = arg;
	int64_t next_us = clock_us();
	pthread_mutex_lock(&v->lock);
	/* An answer that is still to come is stored here, so the thread waits for it. */
	while (!v->quit || v->requested) {
		if (v->answered) {
			take_snapshot(v);
			continue;
		}
		int64_t now = clock_us();
		if (!v->requested && !v->quit && (v->now || now >= next_us)) {
			uint32_t cells = v->n ? live_cells(v->n_replicas) : 0, rows = rows_wanted(v);
			v->requested = true;
			v->now = false;
			next_us = now + TICK_US;
			pthread_mutex_unlock(&v->lock);
			mailbox_snapshot(v->mailbox, cells, rows, on_snapshot, v);
			pthread_mutex_lock(&v->lock);
			continue;
		}
		wait_until(v, v->requested ? now + TICK_US : next_us);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

int viewers_add(struct viewers *v, struct exchange *x)
{
	int rc = -EAGAIN;
	pthread_mutex_lock(&v->lock);
	if (v->n < VIEWERS_MAX && !v->quit) {
		rc = 0;
		exchange_ref(x);
		exchange_stream(x);
		struct viewer *w = &v->list[v->n++];
		uint32_t share;
		*w = (struct viewer){.x = x, .whole = true};
		if (x->key)
			api_key_name(x->key, w->owner, &share);
		/* The first frame has jobs and maps: it needs a snapshot of its own. */
		v->now = true;
		pthread_cond_signal(&v->change);
	}
	pthread_mutex_unlock(&v->lock);
	return rc;
}

int viewers_start(struct mailbox *mailbox, const struct service *svc, struct viewers **out, char *why,
		  size_t why_n)
{
	struct viewers *v = xcalloc(1, sizeof *v);
	pthread_condattr_t attr;
	v->mailbox = mailbox;
	v->svc = svc;
	live_init(&v->live, entropy_u64());
	pthread_mutex_init(&v->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&v->change, &attr);
	pthread_condattr_destroy(&attr);
	int rc = -pthread_create(&v->thread, NULL, viewers_thread, v);
	if (rc) {
		pthread_cond_destroy(&v->change);
		pthread_mutex_destroy(&v->lock);
		live_fini(&v->live);
		free(v);
		return err_why(why, why_n, rc, "HTTP: cannot start the thread of the live stream");
	}
	*out = v;
	return 0;
}

void viewers_stop(struct viewers *v)
{
	if (!v)
		return;
	pthread_mutex_lock(&v->lock);
	v->quit = true;
	pthread_cond_signal(&v->change);
	pthread_mutex_unlock(&v->lock);
	pthread_join(v->thread, NULL);
	for (size_t i = 0; i < v->n; i++)
		exchange_unref(v->list[i].x);
	pthread_cond_destroy(&v->change);
	pthread_mutex_destroy(&v->lock);
	live_fini(&v->live);
	buf_fini(&v->whole);
	buf_fini(&v->change_text);
	buf_fini(&v->own);
	free(v);
}
