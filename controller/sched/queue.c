#include "controller/sched/queue.h"

#include "base/alloc.h"
#include "base/map.h"

#include <assert.h>
#include <stdlib.h>

enum {
	LANES_HASH = 1024, /* a power of two */
	/* Idle lanes kept, so that a user cannot reset its counter by pausing. */
	LANES_IDLE_MAX = 16384,
	/* A group that has begun goes before new ones unless its user is ahead by this many tokens. */
	BEGUN_BONUS = 4096,
	/* Tokens that a user with other jobs here may claim later: a user that submits a little, again and
	 * again, is not to wait behind a flood each time.  Seconds of other users' time, not hours. */
	CREDIT = 32768,
};

/* The lanes of one priority.  Freed with the last of them: counters then start from 0 again. */
struct tier {
	int32_t priority;
	uint32_t n_lanes;
	uint64_t max_served; /* of any lane that it has or had */
	/* The lowest level of its lanes that have new jobs (start_level()); UINT64_MAX: none has. */
	uint64_t least;
	bool least_known;
};

struct lane {
	/* All that choosing the next sequence reads of a lane, in few cache lines. */
	int32_t priority;
	uint32_t n_begun;         /* waiting sequences of groups that have begun */
	uint64_t served;          /* virtual token counter: tokens / share */
	uint64_t first_order;     /* of the first waiting sequence, while n_waiting */
	int64_t first_arrival_us; /* likewise */
	struct tier *tier;
	uint64_t level; /* where the counter started, without credit, when a new job last came to wait */
	uint32_t n_waiting;
	uint32_t at;        /* index in waiting[], while n_waiting */
	uint32_t share;     /* of the group that joined last */
	uint32_t remainder; /* tokens charged, fewer than share, that are not in served yet */
	uint32_t n_groups;
	uint64_t user;
	struct lane *hash_next;
	struct seq head;    /* of the list of its waiting sequences */
	struct seq *pushed; /* the last one put into it; NULL: unknown */
};

struct queue {
	int64_t aging_us;
	uint32_t since_aged; /* admissions since the last one for age, at most QUEUE_AGED_EVERY - 1 */
	/* [n_protected] groups admitted for their age, until their protection ends or they leave. */
	struct group **protected;
	uint32_t n_protected, max_protected;
	/* By (user, priority).  Chains of its own: the 96 bits of the key do not fit a struct map. */
	struct lane *hash[LANES_HASH];
	struct map tiers;      /* by priority */
	struct lane **waiting; /* [n_lanes] lanes with waiting sequences, in no order */
	uint32_t n_lanes, cap_lanes;
	uint32_t n, n_idle;
	uint64_t n_order_steps;
};

struct queue *queue_new(int64_t aging_us, uint32_t n_slots)
{
	struct queue *q = xcalloc(1, sizeof *q);
	q->aging_us = aging_us;
	q->since_aged = QUEUE_AGED_EVERY - 1;
	q->max_protected = n_slots > QUEUE_AGED_EVERY ? n_slots / QUEUE_AGED_EVERY : 1;
	q->protected = xcalloc(q->max_protected, sizeof(struct group *));
	return q;
}

/* The tier of a new lane. */
static struct tier *tier_join(struct queue *q, int32_t priority)
{
	struct tier *t = map_get(&q->tiers, (uint32_t)priority);
	if (!t) {
		t = xcalloc(1, sizeof *t);
		t->priority = priority;
		map_put(&q->tiers, (uint32_t)priority, t);
	}
	t->n_lanes++;
	return t;
}

static void lane_free(struct queue *q, struct lane *l)
{
	struct tier *t = l->tier;
	if (--t->n_lanes == 0) {
		map_remove(&q->tiers, (uint32_t)t->priority);
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
			lane_free(q, l);
		}
	map_fini(&q->tiers);
	free(q->protected);
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
			lane_free(q, l);
		}
	q->n_idle = 0;
}

/* A new job of it waits.  Preempted sequences do not count: they keep their place, however long ago their
 * user's counter was last raised. */
static bool has_new(const struct lane *l)
{
	return l->n_waiting > l->n_begun;
}

static uint64_t without_credit(const struct lane *l)
{
	return l->served > l->level ? l->served : l->level;
}

/* Where the counter of a lane without new jobs starts when one arrives: at the lowest counter of the lanes
 * that have some.  Where none has, at the highest that any lane had.  The lowest of the lanes that run would
 * not do: a user that runs little all the time is far behind, and one that started there would go before all
 * others until it had caught up. */
static uint64_t start_level(struct queue *q, const struct lane *of)
{
	struct tier *t = of->tier;
	if (!t->least_known) {
		t->least = UINT64_MAX;
		for (uint32_t i = 0; i < q->n_lanes; i++) {
			const struct lane *l = q->waiting[i];
			if (l->tier == t && has_new(l) && without_credit(l) < t->least)
				t->least = without_credit(l);
		}
		t->least_known = true;
		q->n_order_steps += q->n_lanes;
	}
	return t->least == UINT64_MAX ? t->max_served : t->least;
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
		l->tier = tier_join(q, g->priority);
		l->head.prev = l->head.next = &l->head;
		l->hash_next = *at;
		*at = l;
		q->n_idle++;
	}
	if (!has_new(l)) {
		uint64_t credit = l->n_groups ? CREDIT : 0;
		l->level = start_level(q, l);
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
	for (uint32_t i = 0; i < q->n_protected; i++)
		if (q->protected[i] == g)
			q->protected[i] = q->protected[--q->n_protected];
}

static bool before(const struct seq *a, const struct seq *b)
{
	if (a->group->order != b->group->order)
		return a->group->order < b->group->order;
	return a->index < b->index;
}

static void update_first(struct lane *l)
{
	if (l->n_waiting == 0)
		return;
	l->first_order = l->head.next->group->order;
	l->first_arrival_us = l->head.next->group->arrival_us;
}

/* The sequence of the lane that s goes before.  New ones go to the end, preempted ones to their place by
 * arrival, near the front, and those of a lost worker, which come in their order, behind the one that was put
 * there last: the search goes on from both places at once. */
static struct seq *push_before(struct queue *q, struct lane *l, const struct seq *s)
{
	struct seq *front = l->head.next, *at = l->pushed ? l->pushed : l->head.prev;
	q->n_order_steps++;
	if (l->n_waiting == 0 || before(l->head.prev, s))
		return &l->head;
	bool down = before(s, at);
	for (;;) {
		q->n_order_steps++;
		if (!before(front, s))
			return front;
		front = front->next;
		if (down && (at->prev == &l->head || before(at->prev, s)))
			return at;
		at = down ? at->prev : at->next;
		if (!down && before(s, at))
			return at;
	}
}

void queue_push(struct queue *q, struct seq *s)
{
	struct lane *l = s->group->lane;
	struct seq *at = push_before(q, l, s); /* s is inserted before it */
	s->prev = at->prev;
	s->next = at;
	at->prev->next = s;
	at->prev = s;
	q->n++;
	l->n_begun += s->group->first_run_us != 0;
	l->n_waiting++;
	l->pushed = s;
	if (has_new(l) && without_credit(l) < l->tier->least)
		l->tier->least = without_credit(l);
	update_first(l);
	if (l->n_waiting > 1)
		return;
	array_grow(q->waiting, q->cap_lanes, q->n_lanes + 1);
	l->at = q->n_lanes;
	q->waiting[q->n_lanes++] = l;
}

void queue_remove(struct queue *q, struct seq *s)
{
	struct lane *l = s->group->lane;
	bool had_new = has_new(l);
	assert(s->next);
	if (l->pushed == s)
		l->pushed = s->prev == &l->head ? NULL : s->prev;
	s->prev->next = s->next;
	s->next->prev = s->prev;
	s->prev = s->next = NULL;
	q->n--;
	assert(l->n_begun >= (s->group->first_run_us != 0));
	l->n_begun -= s->group->first_run_us != 0;
	l->n_waiting--;
	if (had_new && !has_new(l))
		l->tier->least_known = false;
	update_first(l);
	if (l->n_waiting)
		return;
	q->waiting[l->at] = q->waiting[--q->n_lanes];
	q->waiting[l->at]->at = l->at;
}

uint32_t queue_n(const struct queue *q)
{
	return q->n;
}

uint64_t queue_order_steps(const struct queue *q)
{
	return q->n_order_steps;
}

/* The first ready sequence of the lane. */
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

/* What the order of two sequences depends on. */
struct claim {
	uint64_t order;
	int64_t served;
	int32_t priority;
};

static bool is_aged(const struct queue *q, const struct group *g, int64_t now_us)
{
	return now_us - g->since_us > q->aging_us;
}

static struct claim claim_of(const struct seq *s)
{
	const struct group *g = s->group;
	return (struct claim){.order = g->order,
			      .served = (int64_t)g->lane->served - (g->first_run_us ? BEGUN_BONUS : 0),
			      .priority = g->priority};
}

/* At least as good as the claim of any sequence of the lane, without a look at the sequences: there may be
 * thousands of lanes. */
static struct claim claim_bound(const struct lane *l)
{
	return (struct claim){.order = l->first_order,
			      .served = (int64_t)l->served - (l->n_begun ? BEGUN_BONUS : 0),
			      .priority = l->priority};
}

static bool claim_before(struct claim a, struct claim b)
{
	if (a.priority != b.priority)
		return a.priority < b.priority;
	return a.served != b.served ? a.served < b.served : a.order < b.order;
}

bool queue_before(const struct seq *a, const struct seq *b)
{
	return claim_before(claim_of(a), claim_of(b));
}

struct pick {
	int64_t now_us;
	enum queue_ready (*ready)(const struct seq *s, void *user);
	void *user;
};

/* Best ready sequence; prio: restrict to this priority, or NULL for all. */
static struct seq *best_ready(const struct queue *q, const struct pick *p, const int32_t *prio)
{
	struct seq *best = NULL;
	struct claim claim = {0};
	for (uint32_t i = 0; i < q->n_lanes; i++) {
		struct lane *l = q->waiting[i];
		if ((prio && l->priority != *prio) || (best && !claim_before(claim_bound(l), claim)))
			continue;
		struct seq *s = lane_first(l, p->ready, p->user);
		if (!s || (best && !claim_before(claim_of(s), claim)))
			continue;
		best = s;
		claim = claim_of(s);
	}
	return best;
}

/* The earliest ready sequence that has waited longer than the aging limit.  None of a lane waits since before
 * the lane's first arrival. */
static struct seq *earliest_aged(const struct queue *q, const struct pick *p)
{
	struct seq *best = NULL;
	for (uint32_t i = 0; i < q->n_lanes; i++) {
		struct lane *l = q->waiting[i];
		if (p->now_us - l->first_arrival_us <= q->aging_us ||
		    (best && l->first_order > best->group->order))
			continue;
		struct seq *s = lane_first(l, p->ready, p->user);
		if (s && is_aged(q, s->group, p->now_us) && (!best || before(s, best)))
			best = s;
	}
	return best;
}

/* Whether the next admission may be one for age. */
static bool age_has_turn(struct queue *q, int64_t now_us)
{
	for (uint32_t i = 0; i < q->n_protected;)
		if (queue_is_protected(q->protected[i], now_us))
			i++;
		else
			q->protected[i] = q->protected[--q->n_protected];
	return q->since_aged == QUEUE_AGED_EVERY - 1 && q->n_protected < q->max_protected;
}

struct seq *queue_pick(struct queue *q, int64_t now_us,
		       enum queue_ready (*ready)(const struct seq *s, void *user), void *user, bool *for_age)
{
	struct pick p = {now_us, ready, user};
	struct seq *best = best_ready(q, &p, NULL);
	if (for_age)
		*for_age = false;
	if (!for_age || !best || !age_has_turn(q, now_us))
		return best;
	const struct seq *aged = earliest_aged(q, &p);
	if (!aged || aged->group->priority == best->group->priority)
		return best;
	*for_age = true;
	return best_ready(q, &p, &aged->group->priority);
}

void queue_admitted(struct queue *q, struct group *g, bool for_age, int64_t now_us)
{
	if (!for_age) {
		q->since_aged += q->since_aged < QUEUE_AGED_EVERY - 1;
		return;
	}
	q->since_aged = 0;
	if (!queue_is_protected(g, now_us)) {
		assert(q->n_protected < q->max_protected);
		q->protected[q->n_protected++] = g;
	}
	g->protected_until_us = now_us + q->aging_us / 8;
}

bool queue_is_protected(const struct group *g, int64_t now_us)
{
	return now_us < g->protected_until_us;
}

void queue_charge(struct queue *q, struct group *g, uint32_t tokens)
{
	(void)q;
	struct lane *l = g->lane;
	if (without_credit(l) == l->tier->least)
		l->tier->least_known = false;
	uint64_t all = (uint64_t)l->remainder + tokens;
	l->served += all / l->share;
	l->remainder = (uint32_t)(all % l->share);
	if (l->served > l->tier->max_served)
		l->tier->max_served = l->served;
}

uint64_t queue_served(const struct group *g)
{
	return g->lane->served;
}
