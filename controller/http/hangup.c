#include "controller/http/hangup.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/housekeeper.h"
#include "base/log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* epoll's data is (generation << 32 | slot + 1), never an address: an event fetched before its watch was
 * deleted finds another generation and is dropped. */
struct slot {
	uint32_t generation;
	int fd; /* -1: free */
	void *user;
	uint32_t next_free; /* slot + 1; 0: end of the list */
};

struct hangup {
	void (*gone)(void *user);
	struct housekeeper *house;
	int part; /* id of this module's part in house */
	int epoll;
	pthread_mutex_t lock; /* guards the fields below; held while gone() is called */
	struct slot *slots;
	uint32_t n_slots;
	uint32_t free_list; /* slot + 1; 0: none */
};

static void notify(struct hangup *h, uint64_t watch)
{
	pthread_mutex_lock(&h->lock);
	uint32_t i = (uint32_t)watch - 1;
	if (i < h->n_slots && h->slots[i].fd >= 0 && h->slots[i].generation == watch >> 32)
		h->gone(h->slots[i].user);
	pthread_mutex_unlock(&h->lock);
}

static void on_ready(void *user)
{
	struct hangup *h = user;
	struct epoll_event ev[64];
	int n = epoll_wait(h->epoll, ev, sizeof ev / sizeof ev[0], 0);
	for (int i = 0; i < n; i++)
		notify(h, ev[i].data.u64);
	if (n < 0 && errno != EINTR)
		log_error("http", "epoll_wait failed reason=\"%s\"", strerror(errno));
}

int hangup_start(struct housekeeper *house, void (*gone)(void *user), struct hangup **out, struct why *why)
{
	struct hangup *h = xcalloc(1, sizeof *h);
	h->gone = gone;
	h->house = house;
	h->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (h->epoll < 0) {
		int rc = err_why(why, -errno, "epoll: %s", strerror(errno));
		free(h);
		return rc;
	}
	pthread_mutex_init(&h->lock, NULL);
	h->part = housekeeper_add(house, &(struct house_part){.fd = h->epoll, .ready = on_ready, .user = h});
	*out = h;
	return 0;
}

void hangup_stop(struct hangup *h)
{
	if (!h)
		return;
	housekeeper_remove(h->house, h->part);
	close(h->epoll);
	pthread_mutex_destroy(&h->lock);
	free(h->slots);
	free(h);
}

/* Return the index of a free slot; grow the array if there is none. */
static uint32_t slot_take(struct hangup *h)
{
	if (!h->free_list) {
		uint32_t more = h->n_slots ? h->n_slots : 64;
		h->slots = xrealloc(h->slots, h->n_slots + more, sizeof *h->slots);
		for (uint32_t i = h->n_slots + more; i-- > h->n_slots;) {
			h->slots[i] = (struct slot){.fd = -1, .next_free = h->free_list};
			h->free_list = i + 1;
		}
		h->n_slots += more;
	}
	uint32_t i = h->free_list - 1;
	h->free_list = h->slots[i].next_free;
	return i;
}

static void slot_give(struct hangup *h, uint32_t i)
{
	struct slot *s = &h->slots[i];
	*s = (struct slot){.generation = s->generation + 1, .fd = -1, .next_free = h->free_list};
	h->free_list = i + 1;
}

uint64_t hangup_add(struct hangup *h, int fd, void *user)
{
	pthread_mutex_lock(&h->lock);
	uint32_t i = slot_take(h);
	struct slot *s = &h->slots[i];
	s->fd = fd;
	s->user = user;
	uint64_t watch = (uint64_t)s->generation << 32 | (i + 1);
	struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = watch};
	if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &ev)) {
		log_warn("http", "connection not watched reason=\"%s\"", strerror(errno));
		slot_give(h, i);
		watch = 0;
	}
	pthread_mutex_unlock(&h->lock);
	return watch;
}

void hangup_del(struct hangup *h, uint64_t watch)
{
	if (!watch)
		return;
	pthread_mutex_lock(&h->lock);
	uint32_t i = (uint32_t)watch - 1;
	if (i < h->n_slots && h->slots[i].fd >= 0 && h->slots[i].generation == watch >> 32) {
		epoll_ctl(h->epoll, EPOLL_CTL_DEL, h->slots[i].fd, NULL);
		slot_give(h, i);
	}
	pthread_mutex_unlock(&h->lock);
}
