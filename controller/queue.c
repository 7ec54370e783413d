#include "controller/queue.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>

enum {
	LANES_HASH = 1024, /* a power of two */
	TIERS_HASH = 64,   /* likewise */
	/* Lanes without groups are kept, so that a user cannot shake off what it was served by
	 * pausing; beyond so many they are forgotten. */
	LANES_IDLE_MAX = 16384,
	/* What has begun goes before what is new unless its user is ahead by so many tokens. */
	BEGUN_BONUS = 4096,
	/* What a user that had something here all the time, but less than its part, may claim later:
	 * who asks for little, again and again, is not to stand behind a flood each time.  Seconds of
	 * others' time, not hours. */
	CREDIT = 32768,
};

/* A priority that has lanes. */
struct tier {
	int32_t priority;
	uint32_t n_lanes;
	uint64_t most; /* served: of any lane that it has or had */
	struct tier *hash_next;
};

struct lane {
	uint64_t user;
	int32_t priority;
	struct tier *tier;
	uint64_t served; /* virtual token counter: tokens by share */
	uint64_t level;  /* where it started, without credit, when something new of it came to wait */
	uint32_t share;  /* as the group that joined last says it */
	uint32_t rest;   /* tokens that do not make up one of served yet */
	uint32_t n_groups;
	struct seq head; /* of the list of its waiting sequences */
	uint32_t n_waiting;
	uint32_t place; /* in waiting[], while n_waiting */
	struct lane *hash_next;
};

struct queue {
	int64_t aging_us;
	struct lane *hash[LANES_HASH];
	struct tier *tiers[TIERS_HASH];
	struct lane **waiting; /* [n_lanes] those with waiting sequences, in no order */
	uint32_t n_lanes, cap_lanes;
	uint32_t n, n_idle;
};

struct queue *queue_new(int64_t aging_us)
{
	struct queue *q = xcalloc(1, sizeof *q);
	q->aging_us = aging_us;
	return q;
}

static struct tier **tier_at(struct queue *q, int32_t priority)
{
	struct tier **at = &q->tiers[(uint32_t)priority & (TIERS_HASH - 1)];
	while (*at && (*at)->priority != priority)
		at = &(*at)->hash_next;
	return at;
}

/* For one lane more. */
static struct tier *enter_tier(struct queue *q, int32_t priority)
{
	struct tier **at = tier_at(q, priority);
	if (!*at) {
		*at = xcalloc(1, sizeof **at);
		(*at)->priority = priority;
	}
	(*at)->n_lanes++;
	return *at;
}

/* With the last lane goes what the priority knows: all begin alike again. */
static void free_lane(struct queue *q, struct lane *l)
{
	struct tier **at = tier_at(q, l->priority), *t = *at;
	if (--t->n_lanes == 0) {
		*at = t->hash_next;
		free(t);
	}
	free(l);
}

void queue_free(struct queue *q)
{
	if (!q)
		return;
	for (int i = 0; i < LANES_HASH; i++)
		while (q->hash[i]) {
			struct lane *l = q->hash[i];
			q->hash[i] = l->hash_next;
			free_lane(q, l);
		}
	free(q->waiting);
	free(q);
}

static struct lane **hash_at(struct queue *q, uint64_t user, int32_t priority)
{
	uint64_t h = (user ^ (uint64_t)(uint32_t)priority << 17) * 0x9e3779b97f4a7c15u;
	return &q->hash[h >> 54 & (LANES_HASH - 1)];
}

static void forget_idle(struct queue *q)
{
	for (int i = 0; i < LANES_HASH; i++)
		for (struct lane **at = &q->hash[i]; *at;) {
			struct lane *l = *at;
			if (l->n_groups) {
				at = &l->hash_next;
				continue;
			}
			*at = l->hash_next;
			free_lane(q, l);
		}
	q->n_idle = 0;
}

/* A job of it that has not begun waits.  Those that were preempted are not counted: they keep their
 * place, however long ago their user was last brought up to the others. */
static bool asks(const struct lane *l)
{
	return l->n_waiting && !l->head.prev->group->first_run_us;
}

/* Where a lane starts that has not asked and does now: with the least served of those that ask
 * already.  Where none does, with the one that was served the most: what somebody leaves unused
 * while nobody lacks it is given to others and cannot be claimed later, nor is who took it to pay
 * for it.  The least served of those that run would not do: one that runs little all the time is
 * far behind, and who starts with it would go before all others until it had caught up. */
static uint64_t start_of(const struct queue *q, const struct lane *to)
{
	uint64_t least = UINT64_MAX;
	for (uint32_t i = 0; i < q->n_lanes; i++) {
		const struct lane *l = q->waiting[i];
		uint64_t without_credit = l->served > l->level ? l->served : l->level;
		if (l->tier == to->tier && without_credit < least && asks(l))
			least = without_credit;
	}
	return least == UINT64_MAX ? to->tier->most : least;
}

void queue_join(struct queue *q, struct group *g)
{
	struct lane *l = *hash_at(q, g->user, g->priority);
	while (l && (l->user != g->user || l->priority != g->priority))
		l = l->hash_next;
	if (!l) {
		if (q->n_idle > LANES_IDLE_MAX)
			forget_idle(q);
		struct lane **at = hash_at(q, g->user, g->priority);
		l = xcalloc(1, sizeof *l);
		l->user = g->user;
		l->priority = g->priority;
		l->tier = enter_tier(q, g->priority);
		l->head.prev = l->head.next = &l->head;
		l->hash_next = *at;
		*at = l;
		q->n_idle++;
	}
	if (!asks(l)) {
		uint64_t credit = l->n_groups ? CREDIT : 0;
		l->level = start_of(q, l);
		if (l->level > credit && l->served < l->level - credit)
			l->served = l->level - credit;
	}
	if (l->n_groups++ == 0)
		q->n_idle--;
	l->share = g->share ? g->share : 1;
	g->lane = l;
}

void queue_leave(struct queue *q, struct group *g)
{
	if (--g->lane->n_groups == 0)
		q->n_idle++;
	g->lane = NULL;
}

static bool before(const struct seq *a, const struct seq *b)
{
	if (a->group->order != b->group->order)
		return a->group->order < b->group->order;
	return a->index < b->index;
}

void queue_push(struct queue *q, struct seq *s)
{
	struct lane *l = s->group->lane;
	struct seq *at = &l->head; /* s goes before it */
	/* New ones go to the end, preempted ones to their old place near the front. */
	if (l->n_waiting && before(s, l->head.prev)) {
		at = l->head.next;
		while (before(at, s))
			at = at->next;
	}
	s->prev = at->prev;
	s->next = at;
	at->prev->next = s;
	at->prev = s;
	q->n++;
	if (l->n_waiting++)
		return;
	if (q->n_lanes == q->cap_lanes) {
		q->cap_lanes = q->cap_lanes ? q->cap_lanes * 2 : 16;
		q->waiting = xrealloc(q->waiting, q->cap_lanes, sizeof *q->waiting);
	}
	l->place = q->n_lanes;
	q->waiting[q->n_lanes++] = l;
}

void queue_remove(struct queue *q, struct seq *s)
{
	struct lane *l = s->group->lane;
	assert(s->next);
	s->prev->next = s->next;
	s->next->prev = s->prev;
	s->prev = s->next = NULL;
	q->n--;
	if (--l->n_waiting)
		return;
	q->waiting[l->place] = q->waiting[--q->n_lanes];
	q->waiting[l->place]->place = l->place;
}

uint32_t queue_n(const struct queue *q)
{
	return q->n;
}

/* The first of the lane that can be taken now. */
static struct seq *lane_first(struct lane *l, enum queue_ready (*ready)(const struct seq *s, void *user),
			      void *user)
{
	for (struct seq *s = l->head.next; s != &l->head; s = s->next) {
		enum queue_ready r = ready(s, user);
		if (r == QUEUE_READY)
			return s;
		if (r == QUEUE_HOLD)
			break;
	}
	return NULL;
}

/* Which priority has the turn: that of whoever has waited too long, else the best. */
static bool class_before(const struct queue *q, const struct seq *a, const struct seq *b, int64_t now_us)
{
	bool old_a = now_us - a->group->arrival_us > q->aging_us,
	     old_b = now_us - b->group->arrival_us > q->aging_us;
	const struct lane *la = a->group->lane, *lb = b->group->lane;
	if (old_a != old_b)
		return old_a;
	if (!old_a && la->priority != lb->priority)
		return la->priority < lb->priority;
	return a->group->order < b->group->order;
}

/* Of one priority. */
static bool served_before(const struct seq *a, const struct seq *b)
{
	const struct lane *la = a->group->lane, *lb = b->group->lane;
	int64_t sa = (int64_t)la->served - (a->group->first_run_us ? BEGUN_BONUS : 0);
	int64_t sb = (int64_t)lb->served - (b->group->first_run_us ? BEGUN_BONUS : 0);
	return sa != sb ? sa < sb : a->group->order < b->group->order;
}

bool queue_before(const struct queue *q, const struct seq *a, const struct seq *b, int64_t now_us)
{
	if (a->group->lane->priority != b->group->lane->priority)
		return class_before(q, a, b, now_us);
	return served_before(a, b);
}

struct seq *queue_pick(struct queue *q, int64_t now_us,
		       enum queue_ready (*ready)(const struct seq *s, void *user), void *user)
{
	struct seq *first = NULL, *best = NULL;
	for (uint32_t i = 0; i < q->n_lanes; i++) {
		struct seq *s = lane_first(q->waiting[i], ready, user);
		if (s && (!first || class_before(q, s, first, now_us)))
			first = s;
	}
	for (uint32_t i = 0; first && i < q->n_lanes; i++) {
		if (q->waiting[i]->priority != first->group->priority)
			continue;
		struct seq *s = lane_first(q->waiting[i], ready, user);
		if (s && (!best || served_before(s, best)))
			best = s;
	}
	return best;
}

void queue_charge(struct queue *q, struct group *g, uint32_t tokens)
{
	(void)q;
	struct lane *l = g->lane;
	uint64_t all = (uint64_t)l->rest + tokens;
	l->served += all / l->share;
	l->rest = (uint32_t)(all % l->share);
	if (l->served > l->tier->most)
		l->tier->most = l->served;
}

uint64_t queue_served(const struct group *g)
{
	return g->lane->served;
}
