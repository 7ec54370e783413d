#include "controller/sched/queue.h"

#include "base/alloc.h"
#include "base/map.h"

#include <assert.h>
#include <stdlib.h>

enum {
	HASH = 1024, /* hash buckets of lanes, and of accounts: a power of two */
	/* Idle lanes kept, so that a user cannot reset its counter by pausing. */
	LANES_IDLE_MAX = 16384,
	/* A group that has begun goes before new ones unless its user is ahead by this many tokens. */
	BEGUN_BONUS = 4096,
	/* Credit in tokens for a key, or a user with other jobs here: a key that submits a little now and
	 * then must not wait for a flood each time.  It costs others seconds, not hours.  More than the lead
	 * at which a running group is preempted (FAIR_LEAD). */
	CREDIT = 32768,
};

/* Service received by an account or a lane, and its waiting sequences. */
struct counter {
	uint64_t served; /* virtual token counter: tokens / share */
	uint64_t level;  /* starting level, without credit, when a new job last arrived */
	uint32_t share;
	uint32_t remainder; /* tokens charged but not yet in served, fewer than share */
	uint32_t n_groups;
	uint32_t n_waiting, n_begun; /* waiting sequences; of these, of groups that have begun */
	uint32_t at;                 /* index in the array of waiting lanes or accounts, while n_waiting */
};

/* Counters with starting levels that depend on each other: the accounts of a tier, or the lanes of an
 * account. */
struct peers {
	uint64_t max_served; /* highest counter of any present or past member */
	/* Lowest level of the members that have new jobs (peers_level()); UINT64_MAX: none has. */
	uint64_t least;
	bool least_known;
};

/* The accounts of one priority.  Freed with its last account: counters then start from 0 again. */
struct tier {
	int32_t priority;
	uint32_t n_accounts;
	struct peers accounts;
};

struct account {
	struct counter c;
	struct tier *tier;
	uint64_t id;
	struct peers lanes;
	struct lane **waiting; /* [n_waiting] lanes with waiting sequences, in no order */
	uint32_t n_waiting, cap_waiting;
	uint32_t n_lanes;
	struct account *hash_next;
};

struct lane {
	/* The fields that choosing the next sequence reads, kept in few cache lines. */
	struct counter c;
	uint64_t first_order;     /* order of the first waiting sequence, while there is one */
	int64_t first_arrival_us; /* arrival of the first waiting sequence, while there is one */
	struct account *account;
	uint64_t user;
	struct lane *hash_next;
	struct seq head;    /* head of the list of its waiting sequences */
	struct seq *pushed; /* the sequence pushed last; NULL: unknown */
};

struct queue {
	int64_t aging_us;
	uint32_t since_aged; /* admissions since the last one for age, at most QUEUE_AGED_EVERY - 1 */
	/* [n_protected] groups admitted for their age, until their protection ends or they leave. */
	struct group **protected;
	uint32_t n_protected, max_protected;
	/* Hash chains by (account, priority), and by (account, priority, user): these keys do not fit a
	 * struct map. */
	struct account *accounts[HASH];
	struct lane *lanes[HASH];
	struct map tiers;         /* by priority */
	struct account **waiting; /* [n_waiting] accounts with waiting sequences, in no order */
	uint32_t n_waiting, cap_waiting;
	uint32_t n, n_idle; /* waiting sequences; lanes without groups */
	uint64_t n_order_steps;
};

/* ---- lanes and accounts ---- */

struct queue *queue_new(int64_t aging_us, uint32_t n_slots)
{
	struct queue *q = xcalloc(1, sizeof *q);
	q->aging_us = aging_us;
	q->since_aged = QUEUE_AGED_EVERY - 1;
	q->max_protected = n_slots > QUEUE_AGED_EVERY ? n_slots / QUEUE_AGED_EVERY : 1;
	q->protected = xcalloc(q->max_protected, sizeof(struct group *));
	return q;
}

static uint32_t hash_of(uint64_t account, int32_t priority, uint64_t user)
{
	uint64_t h = (account ^ (uint64_t)(uint32_t)priority << 17) * 0x9e3779b97f4a7c15u;
	h = (h ^ h >> 29 ^ user) * 0x9e3779b97f4a7c15u;
	return (uint32_t)(h >> 54) & (HASH - 1);
}

/* Return the tier of a new account. */
static struct tier *tier_join(struct queue *q, int32_t priority)
{
	struct tier *t = map_get(&q->tiers, (uint32_t)priority);
	if (!t) {
		t = xcalloc(1, sizeof *t);
		t->priority = priority;
		map_put(&q->tiers, (uint32_t)priority, t);
	}
	t->n_accounts++;
	return t;
}

static struct account *account_of(struct queue *q, uint64_t id, int32_t priority)
{
	struct account **at = &q->accounts[hash_of(id, priority, 0)], *a = *at;
	while (a && (a->id != id || a->tier->priority != priority))
		a = a->hash_next;
	if (a)
		return a;
	a = xcalloc(1, sizeof *a);
	a->id = id;
	a->tier = tier_join(q, priority);
	a->hash_next = *at;
	return *at = a;
}

static struct lane *lane_of(struct queue *q, struct account *a, uint64_t user)
{
	struct lane **at = &q->lanes[hash_of(a->id, a->tier->priority, user)], *l = *at;
	while (l && (l->account != a || l->user != user))
		l = l->hash_next;
	if (l)
		return l;
	l = xcalloc(1, sizeof *l);
	l->account = a;
	l->user = user;
	l->c.share = 1;
	l->head.prev = l->head.next = &l->head;
	l->hash_next = *at;
	a->n_lanes++;
	q->n_idle++;
	return *at = l;
}

static void account_free(struct queue *q, struct account *a)
{
	struct account **at = &q->accounts[hash_of(a->id, a->tier->priority, 0)];
	struct tier *t = a->tier;
	while (*at != a)
		at = &(*at)->hash_next;
	*at = a->hash_next;
	if (--t->n_accounts == 0) {
		map_remove(&q->tiers, (uint32_t)t->priority);
		free(t);
	}
	free(a->waiting);
	free(a);
}

static void lane_free(struct queue *q, struct lane *l)
{
	if (--l->account->n_lanes == 0)
		account_free(q, l->account);
	free(l);
}

/* Free lanes without groups, or all. */
static void free_lanes(struct queue *q, bool all)
{
	for (int i = 0; i < HASH; i++)
		for (struct lane **at = &q->lanes[i]; *at;) {
			struct lane *l = *at;
			if (l->c.n_groups && !all) {
				at = &l->hash_next;
				continue;
			}
			*at = l->hash_next;
			lane_free(q, l);
		}
	q->n_idle = 0;
}

void queue_free(struct queue *q)
{
	if (!q)
		return;
	free_lanes(q, true);
	map_fini(&q->tiers);
	free(q->protected);
	free(q->waiting);
	free(q);
}

/* ---- counters ---- */

/* Return whether a new job waits.  Preempted sequences do not count: they keep their place, however long ago
 * their user's counter was last raised. */
static bool has_new(const struct counter *c)
{
	return c->n_waiting > c->n_begun;
}

static uint64_t without_credit(const struct counter *c)
{
	return c->served > c->level ? c->served : c->level;
}

static void see_new(struct peers *p, const struct counter *c)
{
	if (has_new(c) && without_credit(c) < p->least)
		p->least = without_credit(c);
}

/* Return the level at which the counter of an account or lane without new jobs starts when one arrives: the
 * lowest counter of its peers with new jobs, or the highest that any peer ever had if none has new jobs.  The
 * lowest counter of running jobs would be unfair: a key that runs a little all the time is far behind, and a
 * newcomer starting there would go before all others until it had caught up. */
static uint64_t peers_level(const struct peers *p)
{
	assert(p->least_known);
	return p->least == UINT64_MAX ? p->max_served : p->least;
}

static uint64_t account_level(struct queue *q, const struct account *of)
{
	struct peers *p = &of->tier->accounts;
	if (!p->least_known) {
		p->least = UINT64_MAX;
		for (uint32_t i = 0; i < q->n_waiting; i++)
			if (q->waiting[i]->tier == of->tier)
				see_new(p, &q->waiting[i]->c);
		p->least_known = true;
		q->n_order_steps += q->n_waiting;
	}
	return peers_level(p);
}

static uint64_t lane_level(struct queue *q, struct account *a)
{
	struct peers *p = &a->lanes;
	if (!p->least_known) {
		p->least = UINT64_MAX;
		for (uint32_t i = 0; i < a->n_waiting; i++)
			see_new(p, &a->waiting[i]->c);
		p->least_known = true;
		q->n_order_steps += a->n_waiting;
	}
	return peers_level(p);
}

/* Raise the counter when its first new job arrives. */
static void start_at(struct counter *c, uint64_t level, bool has_credit)
{
	uint64_t credit = has_credit ? CREDIT : 0;
	c->level = level;
	if (level > credit && c->served < level - credit)
		c->served = level - credit;
}

static void charge(struct counter *c, uint32_t tokens, struct peers *p)
{
	if (without_credit(c) == p->least)
		p->least_known = false;
	uint64_t all = (uint64_t)c->remainder + tokens;
	c->served += all / c->share;
	c->remainder = (uint32_t)(all % c->share);
	if (c->served > p->max_served)
		p->max_served = c->served;
}

/* ---- groups and sequences ---- */

bool queue_join(struct queue *q, struct group *g)
{
	if (q->n_idle > LANES_IDLE_MAX)
		free_lanes(q, false);
	struct account *a = account_of(q, g->account, g->priority);
	struct lane *l = lane_of(q, a, g->user);
	bool first = !has_new(&a->c);
	/* Users' names are free to invent, accounts are not: a user without other jobs gets no credit. */
	if (first)
		start_at(&a->c, account_level(q, a), a->id || a->c.n_groups);
	if (!has_new(&l->c))
		start_at(&l->c, lane_level(q, a), l->c.n_groups);
	if (l->c.n_groups++ == 0)
		q->n_idle--;
	a->c.n_groups++;
	a->c.share = g->share ? g->share : 1;
	g->lane = l;
	return first;
}

void queue_leave(struct queue *q, struct group *g)
{
	g->lane->account->c.n_groups--;
	if (--g->lane->c.n_groups == 0)
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
	if (l->c.n_waiting == 0)
		return;
	l->first_order = l->head.next->group->order;
	l->first_arrival_us = l->head.next->group->arrival_us;
}

static void add_waiting(struct queue *q, struct lane *l, bool begun)
{
	struct account *a = l->account;
	l->c.n_begun += begun;
	a->c.n_begun += begun;
	if (l->c.n_waiting++ == 0) {
		array_grow(a->waiting, a->cap_waiting, a->n_waiting + 1);
		l->c.at = a->n_waiting;
		a->waiting[a->n_waiting++] = l;
	}
	if (a->c.n_waiting++ == 0) {
		array_grow(q->waiting, q->cap_waiting, q->n_waiting + 1);
		a->c.at = q->n_waiting;
		q->waiting[q->n_waiting++] = a;
	}
	see_new(&a->lanes, &l->c);
	see_new(&a->tier->accounts, &a->c);
}

static void remove_waiting(struct queue *q, struct lane *l, bool begun)
{
	struct account *a = l->account;
	bool lane_had = has_new(&l->c), account_had = has_new(&a->c);
	assert(l->c.n_begun >= begun && a->c.n_begun >= begun);
	l->c.n_begun -= begun;
	a->c.n_begun -= begun;
	if (--l->c.n_waiting == 0) {
		a->waiting[l->c.at] = a->waiting[--a->n_waiting];
		a->waiting[l->c.at]->c.at = l->c.at;
	}
	if (--a->c.n_waiting == 0) {
		q->waiting[a->c.at] = q->waiting[--q->n_waiting];
		q->waiting[a->c.at]->c.at = a->c.at;
	}
	if (lane_had && !has_new(&l->c))
		a->lanes.least_known = false;
	if (account_had && !has_new(&a->c))
		a->tier->accounts.least_known = false;
}

/* Return the sequence of the lane before which s is inserted.  New sequences go to the end.  Preempted ones
 * go near the front, by arrival.  Those of a lost worker arrive in order, each after the sequence inserted
 * last.  So the search runs from the front and from the last insertion at once. */
static struct seq *push_before(struct queue *q, struct lane *l, const struct seq *s)
{
	struct seq *front = l->head.next, *at = l->pushed ? l->pushed : l->head.prev;
	q->n_order_steps++;
	if (l->c.n_waiting == 0 || before(l->head.prev, s))
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
	struct seq *at = push_before(q, l, s); /* s is inserted before `at` */
	s->prev = at->prev;
	s->next = at;
	at->prev->next = s;
	at->prev = s;
	q->n++;
	l->pushed = s;
	add_waiting(q, l, s->group->first_run_us != 0);
	update_first(l);
}

void queue_remove(struct queue *q, struct seq *s)
{
	struct lane *l = s->group->lane;
	assert(s->next);
	if (l->pushed == s)
		l->pushed = s->prev == &l->head ? NULL : s->prev;
	s->prev->next = s->next;
	s->next->prev = s->prev;
	s->prev = s->next = NULL;
	q->n--;
	remove_waiting(q, l, s->group->first_run_us != 0);
	update_first(l);
}

uint32_t queue_n(const struct queue *q)
{
	return q->n;
}

uint64_t queue_order_steps(const struct queue *q)
{
	return q->n_order_steps;
}

/* Return the first ready sequence of the lane. */
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

static bool is_aged(const struct queue *q, const struct group *g, int64_t now_us)
{
	return now_us - g->since_us > q->aging_us;
}

/* The values that order two sequences of an account, or two accounts. */
struct claim {
	int64_t served;
	uint64_t order;
};

static struct claim claim_of(const struct counter *c, const struct seq *s)
{
	return (struct claim){(int64_t)c->served - (s->group->first_run_us ? BEGUN_BONUS : 0),
			      s->group->order};
}

/* Return a bound: no sequence of the lane or account has a better claim.  Reads no sequence, because there
 * may be thousands of lanes. */
static struct claim claim_bound(const struct counter *c, uint64_t first_order)
{
	return (struct claim){(int64_t)c->served - (c->n_begun ? BEGUN_BONUS : 0), first_order};
}

static bool claim_before(struct claim a, struct claim b)
{
	return a.served != b.served ? a.served < b.served : a.order < b.order;
}

bool queue_before(const struct seq *a, const struct seq *b)
{
	const struct lane *la = a->group->lane, *lb = b->group->lane;
	if (a->group->priority != b->group->priority)
		return a->group->priority < b->group->priority;
	if (la->account != lb->account)
		return claim_before(claim_of(&la->account->c, a), claim_of(&lb->account->c, b));
	return claim_before(claim_of(&la->c, a), claim_of(&lb->c, b));
}

struct pick {
	int64_t now_us;
	enum queue_ready (*ready)(const struct seq *s, void *user);
	void *user;
};

/* Return the ready sequence that is next within the account. */
static struct seq *account_next(const struct account *a, const struct pick *p)
{
	struct seq *best = NULL;
	struct claim claim = {0};
	for (uint32_t i = 0; i < a->n_waiting; i++) {
		struct lane *l = a->waiting[i];
		if (best && !claim_before(claim_bound(&l->c, l->first_order), claim))
			continue;
		struct seq *s = lane_first(l, p->ready, p->user);
		if (!s || (best && !claim_before(claim_of(&l->c, s), claim)))
			continue;
		best = s;
		claim = claim_of(&l->c, s);
	}
	return best;
}

/* Return the best ready sequence; prio: of this priority only; NULL: of the best priority. */
static struct seq *best_ready(const struct queue *q, const struct pick *p, const int32_t *prio)
{
	struct seq *best = NULL;
	struct claim claim = {0};
	int32_t priority = 0; /* priority of best */
	for (uint32_t i = 0; i < q->n_waiting; i++) {
		const struct account *a = q->waiting[i];
		int32_t its = a->tier->priority;
		if ((prio && its != *prio) || (best && its > priority) ||
		    (best && its == priority && !claim_before(claim_bound(&a->c, 0), claim)))
			continue;
		struct seq *s = account_next(a, p);
		if (!s || (best && its == priority && !claim_before(claim_of(&a->c, s), claim)))
			continue;
		best = s;
		claim = claim_of(&a->c, s);
		priority = its;
	}
	return best;
}

/* Return the earliest ready sequence that has waited longer than the aging limit.  No sequence of a lane has
 * waited longer than the lane's first arrival. */
static struct seq *earliest_aged(const struct queue *q, const struct pick *p)
{
	struct seq *best = NULL;
	for (uint32_t i = 0; i < q->n_waiting; i++)
		for (uint32_t k = 0; k < q->waiting[i]->n_waiting; k++) {
			struct lane *l = q->waiting[i]->waiting[k];
			if (p->now_us - l->first_arrival_us <= q->aging_us ||
			    (best && l->first_order > best->group->order))
				continue;
			struct seq *s = lane_first(l, p->ready, p->user);
			if (s && is_aged(q, s->group, p->now_us) && (!best || before(s, best)))
				best = s;
		}
	return best;
}

/* Return whether the next admission may be for age. */
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

void queue_charge(struct group *g, uint32_t tokens)
{
	struct account *a = g->lane->account;
	charge(&g->lane->c, tokens, &a->lanes);
	charge(&a->c, tokens, &a->tier->accounts);
}

int64_t queue_lead(const struct group *a, const struct group *b)
{
	const struct account *of_a = a->lane->account, *of_b = b->lane->account;
	if (of_a != of_b)
		return (int64_t)(of_a->c.served - of_b->c.served);
	return (int64_t)(a->lane->c.served - b->lane->c.served);
}

uint64_t queue_served(const struct group *g)
{
	return g->lane->c.served;
}
