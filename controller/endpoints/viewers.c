#include "controller/endpoints/viewers.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "base/housekeeper.h"
#include "controller/endpoints/live.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"
#include "controller/http/api_keys.h"
#include "controller/metrics/metrics.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { TICK_US = 1000 * 1000 };
/* A viewer with more unread bytes than this misses frames, and gets a whole frame when it has caught up. */
enum { UNREAD_MAX = 512 << 10 };

struct viewer {
	struct exchange *x;          /* holds a reference */
	bool whole;                  /* the next frame must have all sections */
	char owner[APIKEY_NAME_MAX]; /* name of its key: it sees only this key's jobs; "": jobs without a
				      * key */
};

struct viewers {
	struct mailbox *mailbox;
	const struct service *svc;
	int part; /* id of this module's part in the housekeeper */
	pthread_mutex_t lock;
	pthread_cond_t answer;
	/* Under the lock: */
	bool quit;
	bool requested, answered; /* a snapshot was requested from the front end; `snapshot` has the answer */
	struct mailbox_snapshot snapshot;
	struct viewer list[VIEWERS_MAX];
	size_t n;
	int64_t next_us; /* time of the next snapshot */
	/* Used by the housekeeper only: */
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

/* Store the snapshot.  On the front end's thread. */
static void on_snapshot(void *user, struct mailbox_snapshot *s)
{
	struct viewers *v = user;
	pthread_mutex_lock(&v->lock);
	v->snapshot = *s;
	s->status = NULL;
	s->jobs = NULL;
	v->answered = true;
	if (v->quit)
		pthread_cond_signal(&v->answer);
	else
		housekeeper_wake(v->svc->house, v->part);
	pthread_mutex_unlock(&v->lock);
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

/* Process the snapshot that has arrived.  Under the lock. */
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

/* Process the snapshot if it has arrived, or request the next one when it is due. */
static int64_t tick(void *user, int64_t now)
{
	struct viewers *v = user;
	pthread_mutex_lock(&v->lock);
	if (v->answered)
		take_snapshot(v);
	bool ask = !v->requested && !v->quit && now >= v->next_us;
	uint32_t cells = v->n ? live_cells(v->n_replicas) : 0, rows = rows_wanted(v);
	if (ask) {
		v->requested = true;
		v->next_us = now + TICK_US;
	}
	int64_t next = v->requested ? INT64_MAX : v->next_us; /* the answer wakes the housekeeper */
	pthread_mutex_unlock(&v->lock);
	if (ask)
		mailbox_snapshot(v->mailbox, cells, rows, on_snapshot, v);
	return next;
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
		/* The first frame has jobs and maps, so it needs a new snapshot. */
		v->next_us = 0;
		housekeeper_wake(v->svc->house, v->part);
	}
	pthread_mutex_unlock(&v->lock);
	return rc;
}

struct viewers *viewers_start(struct mailbox *mailbox, const struct service *svc)
{
	struct viewers *v = xcalloc(1, sizeof *v);
	v->mailbox = mailbox;
	v->svc = svc;
	live_init(&v->live, entropy_u64());
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->answer, NULL);
	/* The lock ensures that `part` is set before a snapshot needs it. */
	pthread_mutex_lock(&v->lock);
	v->part = housekeeper_add(svc->house, &(struct house_part){.fd = -1, .tick = tick, .user = v});
	pthread_mutex_unlock(&v->lock);
	return v;
}

void viewers_stop(struct viewers *v)
{
	if (!v)
		return;
	pthread_mutex_lock(&v->lock);
	v->quit = true;
	pthread_mutex_unlock(&v->lock);
	housekeeper_remove(v->svc->house, v->part);
	/* An answer still to come is stored here. */
	pthread_mutex_lock(&v->lock);
	while (v->requested && !v->answered)
		pthread_cond_wait(&v->answer, &v->lock);
	pthread_mutex_unlock(&v->lock);
	engine_status_free(v->snapshot.status);
	json_decref(v->snapshot.jobs);
	for (size_t i = 0; i < v->n; i++)
		exchange_unref(v->list[i].x);
	pthread_cond_destroy(&v->answer);
	pthread_mutex_destroy(&v->lock);
	live_fini(&v->live);
	buf_fini(&v->whole);
	buf_fini(&v->change_text);
	buf_fini(&v->own);
	free(v);
}
