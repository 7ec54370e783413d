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
	/* What every look for whose turn it is needs, in few cache lines. */
	int32_t priority;
	uint32_t n_begun;         /* of those that wait, of groups that have begun */
	uint64_t served;          /* virtual token counter: tokens by share */
	uint64_t first_order;     /* of the first that waits, while n_waiting */
	int64_t first_arrival_us; /* likewise */
	struct tier *tier;
	uint64_t level; /* where it started, without credit, when something new of it came to wait */
	uint32_t n_waiting;
	uint32_t place; /* in waiting[], while n_waiting */
	uint32_t share; /* as the group that joined last says it */
	uint32_t rest;  /* tokens that do not make up one of served yet */
	uint32_t n_groups;
	uint64_t user;
	struct lane *hash_next;
	struct seq head; /* of the list of its waiting sequences */
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
	return l->n_waiting > l->n_begun;
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

static void note_first(struct lane *l)
{
	if (l->n_waiting == 0)
		return;
	l->first_order = l->head.next->group->order;
	l->first_arrival_us = l->head.next->group->arrival_us;
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
	l->n_begun += s->group->first_run_us != 0;
	l->n_waiting++;
	note_first(l);
	if (l->n_waiting > 1)
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
	assert(l->n_begun >= (s->group->first_run_us != 0));
	l->n_begun -= s->group->first_run_us != 0;
	l->n_waiting--;
	note_first(l);
	if (l->n_waiting)
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

/* What decides whose turn it is. */
struct claim {
	uint64_t order;
	int64_t served;
	int32_t priority;
	bool old;
};

/* It has waited too long. */
static bool is_old(const struct queue *q, const struct group *g, int64_t now_us)
{
	return now_us - g->since_us > q->aging_us;
}

static struct claim claim_of(const struct queue *q, const struct seq *s, int64_t now_us)
{
	const struct group *g = s->group;
	return (struct claim){.order = g->order,
			      .served = (int64_t)g->lane->served - (g->first_run_us ? BEGUN_BONUS : 0),
			      .priority = g->priority,
			      .old = is_old(q, g, now_us)};
}

/* None of the lane's sequences has a better one; it is had without a look at any of them: there may
 * be thousands of lanes.  None of them waits since before the first of them came. */
static struct claim best_claim(const struct queue *q, const struct lane *l, int64_t now_us)
{
	return (struct claim){.order = l->first_order,
			      .served = (int64_t)l->served - (l->n_begun ? BEGUN_BONUS : 0),
			      .priority = l->priority,
			      .old = now_us - l->first_arrival_us > q->aging_us};
}

/* Which priority has the turn: that of whoever has waited too long, else the best. */
static bool class_before(struct claim a, struct claim b)
{
	if (a.old != b.old)
		return a.old;
	if (!a.old && a.priority != b.priority)
		return a.priority < b.priority;
	return a.order < b.order;
}

/* Of one priority. */
static bool served_before(struct claim a, struct claim b)
{
	return a.served != b.served ? a.served < b.served : a.order < b.order;
}

bool queue_before(const struct queue *q, const struct seq *a, const struct seq *b, int64_t now_us)
{
	struct claim ca = claim_of(q, a, now_us), cb = claim_of(q, b, now_us);
	return ca.priority != cb.priority ? class_before(ca, cb) : served_before(ca, cb);
}

/* Who is ready to be taken, and how that is found out. */
struct pick {
	int64_t now_us;
	enum queue_ready (*ready)(const struct seq *s, void *user);
	void *user;
};

static inline bool goes_before(bool by_class, struct claim a, struct claim b)
{
	return by_class ? class_before(a, b) : served_before(a, b);
}

/* Who is ready and before all others; in: of this priority only, NULL: who says which it is. */
static struct seq *best_of(const struct queue *q, const struct pick *p, const int32_t *in)
{
	bool by_class = in == NULL;
	struct seq *best = NULL;
	struct claim claim = {0};
	for (uint32_t i = 0; i < q->n_lanes; i++) {
		struct lane *l = q->waiting[i];
		if ((in && l->priority != *in) ||
		    (best && !goes_before(by_class, best_claim(q, l, p->now_us), claim)))
			continue;
		struct seq *s = lane_first(l, p->ready, p->user);
		if (!s || (best && !goes_before(by_class, claim_of(q, s, p->now_us), claim)))
			continue;
		best = s;
		claim = claim_of(q, s, p->now_us);
	}
	return best;
}

struct seq *queue_pick(struct queue *q, int64_t now_us,
		       enum queue_ready (*ready)(const struct seq *s, void *user), void *user)
{
	struct pick p = {now_us, ready, user};
	const struct seq *first = best_of(q, &p, NULL);
	return first ? best_of(q, &p, &first->group->priority) : NULL;
}

void queue_let_in(struct queue *q, struct group *g, int64_t now_us)
{
	if (is_old(q, g, now_us))
		g->keeps_us = now_us + q->aging_us / 8;
}

bool queue_keeps(const struct group *g, int64_t now_us)
{
	return now_us < g->keeps_us;
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
