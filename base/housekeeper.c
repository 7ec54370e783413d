#include "base/housekeeper.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct slot {
	struct house_part part;
	bool used;
	int64_t due_us;
};

struct housekeeper {
	pthread_t thread;
	int wake;             /* eventfd */
	pthread_mutex_t lock; /* guards the fields below; not held during a call of a part */
	pthread_cond_t called;
	struct slot slots[HOUSEKEEPER_PARTS_MAX];
	int running; /* index of the part being called; -1: none */
	bool quit;
};

static void wake(struct housekeeper *h)
{
	eventfd_write(h->wake, 1); /* EAGAIN: already woken */
}

/* Fill in the descriptors (fds[0] is the housekeeper's own), and return the milliseconds until the first part
 * is due. */
static int prepare(const struct housekeeper *h, struct pollfd fds[1 + HOUSEKEEPER_PARTS_MAX])
{
	int64_t due = INT64_MAX, now = clock_us();
	fds[0] = (struct pollfd){.fd = h->wake, .events = POLLIN};
	for (int i = 0; i < HOUSEKEEPER_PARTS_MAX; i++) {
		const struct slot *s = &h->slots[i];
		fds[1 + i] = (struct pollfd){.fd = s->used ? s->part.fd : -1, .events = POLLIN};
		if (s->used && s->part.tick && s->due_us < due)
			due = s->due_us;
	}
	if (due == INT64_MAX)
		return -1;
	int64_t ms = due > now ? (due - now + 999) / 1000 : 0;
	return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* Call part i if it is ready or due.  Called with the lock held; releases it during the part's functions. */
static void serve(struct housekeeper *h, int i, bool ready)
{
	struct slot *s = &h->slots[i];
	const struct house_part part = s->part;
	int64_t now = clock_us(), next = INT64_MAX;
	bool due = part.tick && s->due_us <= now;
	if (!s->used || !(ready || due))
		return;
	if (due)
		s->due_us = INT64_MAX; /* a wake-up during the call must still count */
	h->running = i;
	pthread_mutex_unlock(&h->lock);
	if (ready)
		part.ready(part.user);
	if (due)
		next = part.tick(part.user, now);
	pthread_mutex_lock(&h->lock);
	h->running = -1;
	if (s->due_us > next)
		s->due_us = next;
	pthread_cond_broadcast(&h->called);
}

static void *house_loop(void *arg)
{
	struct housekeeper *h = arg;
	struct pollfd fds[1 + HOUSEKEEPER_PARTS_MAX];
	eventfd_t ignored;
	pthread_mutex_lock(&h->lock);
	while (!h->quit) {
		int ms = prepare(h, fds);
		pthread_mutex_unlock(&h->lock);
		int n = poll(fds, 1 + HOUSEKEEPER_PARTS_MAX, ms);
		if (n < 0 && errno != EINTR)
			log_error("house", "poll failed reason=\"%s\"", strerror(errno));
		if (n > 0 && fds[0].revents)
			eventfd_read(h->wake, &ignored);
		pthread_mutex_lock(&h->lock);
		for (int i = 0; i < HOUSEKEEPER_PARTS_MAX; i++)
			/* The descriptor may belong to another part by now. */
			serve(h, i, n > 0 && fds[1 + i].revents && h->slots[i].part.fd == fds[1 + i].fd);
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

int housekeeper_start(struct housekeeper **out, struct why *why)
{
	struct housekeeper *h = xcalloc(1, sizeof *h);
	h->running = -1;
	h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int rc = h->wake < 0 ? -errno : 0;
	if (rc) {
		free(h);
		return err_why(why, rc, "eventfd: %s", strerror(-rc));
	}
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->called, NULL);
	rc = -pthread_create(&h->thread, NULL, house_loop, h);
	if (rc) {
		pthread_cond_destroy(&h->called);
		pthread_mutex_destroy(&h->lock);
		close(h->wake);
		free(h);
		return err_why(why, rc, "thread: %s", strerror(-rc));
	}
	*out = h;
	return 0;
}

void housekeeper_stop(struct housekeeper *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->quit = true;
	pthread_mutex_unlock(&h->lock);
	wake(h);
	pthread_join(h->thread, NULL);
	for (int i = 0; i < HOUSEKEEPER_PARTS_MAX; i++)
		assert(!h->slots[i].used);
	pthread_cond_destroy(&h->called);
	pthread_mutex_destroy(&h->lock);
	close(h->wake);
	free(h);
}

int housekeeper_add(struct housekeeper *h, const struct house_part *part)
{
	int i = 0;
	pthread_mutex_lock(&h->lock);
	while (i < HOUSEKEEPER_PARTS_MAX && h->slots[i].used)
		i++;
	assert(i < HOUSEKEEPER_PARTS_MAX);
	h->slots[i] = (struct slot){.part = *part, .used = true};
	pthread_mutex_unlock(&h->lock);
	wake(h);
	return i;
}

void housekeeper_remove(struct housekeeper *h, int part)
{
	pthread_mutex_lock(&h->lock);
	h->slots[part].used = false;
	while (h->running == part)
		pthread_cond_wait(&h->called, &h->lock);
	pthread_mutex_unlock(&h->lock);
	wake(h); /* stop polling its descriptor */
}

void housekeeper_wake(struct housekeeper *h, int part)
{
	pthread_mutex_lock(&h->lock);
	h->slots[part].due_us = 0;
	pthread_mutex_unlock(&h->lock);
	wake(h);
}
