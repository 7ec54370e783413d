/* The order of waiting sequences: shares of users, and the initial counter of a new or returning user. */
#include "controller/sched/queue.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static enum queue_ready ready(const struct seq *s, void *user)
{
	(void)s;
	(void)user;
	return QUEUE_READY;
}

/* Of 400 picks of one token each, return how many are of the first of two accounts. */
static int picks(uint32_t share_a, uint32_t share_b)
{
	struct queue *q = queue_new(INT64_MAX, 8);
	struct group g[2] = {{.account = 1, .share = share_a, .order = 1},
			     {.account = 2, .share = share_b, .order = 2}};
	struct seq s[2] = {{.group = &g[0]}, {.group = &g[1]}};
	int n = 0;
	for (int i = 0; i < 2; i++) {
		queue_join(q, &g[i]);
		queue_push(q, &s[i]);
	}
	for (int i = 0; i < 400; i++) {
		struct seq *next = queue_pick(q, 0, ready, NULL, NULL);
		n += next == &s[0];
		queue_charge(next->group, 1);
	}
	for (int i = 0; i < 2; i++) {
		queue_remove(q, &s[i]);
		queue_leave(q, &g[i]);
	}
	queue_free(q);
	return n;
}

Test(queue, accounts_are_served_by_their_shares)
{
	static const struct {
		const char *name;
		uint32_t a, b;
		int picks, tolerance;
	} rows[] = {
		{"equal shares", 1, 1, 200, 0},        {"share 0 counts as 1", 0, 0, 200, 0},
		{"equal shares of 7", 7, 7, 200, 7},   {"three times as much", 3, 1, 300, 3},
		{"a ninth of the other", 1, 9, 40, 9},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int n = picks(rows[i].a, rows[i].b);
		cr_expect_leq(abs(n - rows[i].picks), rows[i].tolerance, "%s: %d of 400", rows[i].name, n);
	}
}

/* ---- new and returning users ---- */

/* A job with one output. */
struct one {
	struct group g;
	struct seq s;
};

static uint64_t n_jobs;

/* Let a job arrive and wait. */
static void arrive_in(struct queue *q, struct one *o, uint64_t account, uint64_t user, int32_t priority,
		      int64_t now_us)
{
	*o = (struct one){.g = {.account = account,
				.user = user,
				.share = 1,
				.priority = priority,
				.order = ++n_jobs,
				.arrival_us = now_us,
				.since_us = now_us}};
	o->s.group = &o->g;
	queue_join(q, &o->g);
	queue_push(q, &o->s);
}

/* Let a job of an account's user arrive. */
static void arrive_of(struct queue *q, struct one *o, uint64_t account, uint64_t user)
{
	arrive_in(q, o, account, user, 0, 0);
}

static void arrive(struct queue *q, struct one *o, uint64_t user, int32_t priority)
{
	arrive_in(q, o, 0, user, priority, 0);
}

/* Let a job run and be charged for tokens. */
static void serve(struct queue *q, struct one *o, uint32_t tokens)
{
	if (o->s.next)
		queue_remove(q, &o->s);
	o->g.first_run_us = 1;
	queue_charge(&o->g, tokens);
}

static void preempt(struct queue *q, struct one *o)
{
	queue_push(q, &o->s);
}

static void leave(struct queue *q, struct one *o)
{
	if (o->s.next)
		queue_remove(q, &o->s);
	queue_leave(q, &o->g);
}

/* ---- users of an account ---- */

/* All users of both accounts have a job waiting. Of 400 picks of one token each, count those of the first
 * account and of its first user. */
static void divide(uint32_t n_users_a, uint32_t n_users_b, int *of_a, int *of_first)
{
	enum { USERS = 49, PICKS = 400 };
	struct queue *q = queue_new(INT64_MAX, 8);
	struct group g[2 * USERS] = {0};
	struct seq s[2 * USERS] = {0};
	uint32_t n = 0;
	for (uint32_t i = 0; i < n_users_a + n_users_b; i++, n++) {
		g[n] = (struct group){.account = i < n_users_a ? 1 : 2, .user = i, .order = n + 1};
		s[n].group = &g[n];
		queue_join(q, &g[n]);
		queue_push(q, &s[n]);
	}
	*of_a = *of_first = 0;
	for (int i = 0; i < PICKS; i++) {
		struct seq *next = queue_pick(q, 0, ready, NULL, NULL);
		*of_a += next->group->account == 1;
		*of_first += next == &s[0];
		queue_charge(next->group, 1);
	}
	for (uint32_t i = 0; i < n; i++) {
		queue_remove(q, &s[i]);
		queue_leave(q, &g[i]);
	}
	queue_free(q);
}

Test(queue, users_divide_what_their_account_gets)
{
	static const struct {
		uint32_t users_a, users_b;
		int of_a, of_first;
	} rows[] = {{1, 1, 200, 200}, {49, 1, 200, 4}, {4, 1, 200, 50}, {2, 49, 200, 100}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int of_a, of_first;
		divide(rows[i].users_a, rows[i].users_b, &of_a, &of_first);
		cr_expect_leq(abs(of_a - rows[i].of_a), 1, "%zu: account %d of 400", i, of_a);
		cr_expect_leq(abs(of_first - rows[i].of_first), 1, "%zu: user %d of 400", i, of_first);
	}
}

enum { LOT = 1000000, CREDIT = 32768 };

Test(queue, new_account_starts_with_the_least_served_waiting_account)
{
	struct queue *q = queue_new(INT64_MAX, 8);
	struct one a, b, c, d;
	arrive_of(q, &a, 1, 7);
	serve(q, &a, LOT);
	arrive_of(q, &b, 2, 7);
	serve(q, &a, LOT);
	arrive_of(q, &c, 3, 7);
	cr_expect_eq(queue_lead(&c.g, &b.g), 0, "where b is, not where a is");
	arrive_of(q, &d, 1, 8);
	cr_expect_eq(queue_lead(&d.g, &b.g), LOT + CREDIT, "another user of the same account");
	cr_expect_eq(queue_served(&d.g), 2 * LOT, "starts with the others of its account");
	leave(q, &a);
	leave(q, &b);
	leave(q, &c);
	leave(q, &d);
	queue_free(q);
}

enum job { A, B, C, D, E, JOBS };

/* An event, or what must hold after those before it. */
enum act {
	OVER,
	ARRIVES,   /* the user's job */
	RUNS,      /* the job is charged for n tokens */
	PREEMPTED, /* the running job waits again */
	LEAVES,
	SERVED,   /* the counter of the job is n */
	AT_LEAST, /* it is at least n */
	EQUAL,    /* it is the counter of job n */
	BELOW,    /* it is below the counter of job n */
	PICKED,   /* the job is the next */
};

struct event {
	enum act act;
	enum job job;
	int64_t n; /* ARRIVES: the user */
};

static const struct {
	const char *name;
	struct event events[12];
} stories[] = {
	{"a new user starts at the counter of running ones",
	 {{ARRIVES, A, 1}, {RUNS, A, LOT}, {ARRIVES, B, 2}, {AT_LEAST, B, LOT}}},
	{"a new user starts at the counter of users that left; a returning user neither leads nor lags",
	 {{ARRIVES, A, 1},
	  {RUNS, A, LOT},
	  {LEAVES, A, 0},
	  {ARRIVES, B, 2},
	  {AT_LEAST, B, LOT},
	  {RUNS, B, 10},
	  {ARRIVES, C, 1},
	  {SERVED, C, LOT + 10}}},
	{"an absent user saves up nothing",
	 {{ARRIVES, B, 2},
	  {RUNS, B, 10},
	  {LEAVES, B, 0},
	  {ARRIVES, A, 1},
	  {RUNS, A, LOT},
	  {ARRIVES, C, 1},
	  {ARRIVES, B, 2},
	  {EQUAL, B, C}}},
	/* One of user 2's jobs is always present, so the user is never absent.  A running group does not
	 * change counters of others. */
	{"a user of few tokens saves up nothing",
	 {{ARRIVES, B, 2},
	  {RUNS, B, 10},
	  {ARRIVES, A, 1},
	  {RUNS, A, LOT},
	  {SERVED, B, 10},
	  {ARRIVES, C, 2},
	  {AT_LEAST, C, LOT * 9 / 10 + 1}}},
	/* Only users with jobs here have the credit. */
	{"a user of few tokens goes before a flood",
	 {{ARRIVES, B, 2},
	  {RUNS, B, 10},
	  {ARRIVES, A, 1},
	  {RUNS, A, LOT},
	  {ARRIVES, C, 1},
	  {ARRIVES, D, 2},
	  {BELOW, D, C},
	  {PICKED, D, 0},
	  {ARRIVES, E, 3},
	  {EQUAL, E, C}}},
	{"a new user starts with the least served waiting user",
	 {{ARRIVES, A, 1},
	  {RUNS, A, LOT},
	  {ARRIVES, B, 2},
	  {RUNS, A, LOT},
	  {ARRIVES, C, 3},
	  {SERVED, C, LOT}}},
	{"a waiting user keeps its virtual time when it submits more",
	 {{ARRIVES, A, 1}, {ARRIVES, B, 2}, {RUNS, A, LOT}, {ARRIVES, C, 2}, {SERVED, B, 0}, {PICKED, B, 0}}},
	/* A user that was preempted for lack of blocks has no new jobs waiting: other users do not start at
	 * its counter, it keeps its position, and its later jobs gain nothing from it. */
	{"a preempted user keeps its virtual time",
	 {{ARRIVES, B, 3},
	  {RUNS, B, 10},
	  {ARRIVES, A, 1},
	  {RUNS, A, LOT},
	  {PREEMPTED, B, 0},
	  {SERVED, B, 10},
	  {ARRIVES, C, 2},
	  {EQUAL, C, A},
	  {PICKED, B, 0},
	  {ARRIVES, D, 3},
	  {AT_LEAST, D, LOT * 9 / 10 + 1}}},
};

/* Let an event happen to a job, or check what must hold. */
static void tell(struct queue *q, struct one jobs[JOBS], const struct event *e, const char *story)
{
	struct one *o = &jobs[e->job];
	const int64_t served = e->act < SERVED ? 0 : (int64_t)queue_served(&o->g);
	const int64_t others = e->act == EQUAL || e->act == BELOW ? (int64_t)queue_served(&jobs[e->n].g) : 0;
	switch (e->act) {
	case ARRIVES:
		arrive(q, o, (uint64_t)e->n, 0);
		break;
	case RUNS:
		serve(q, o, (uint32_t)e->n);
		break;
	case PREEMPTED:
		preempt(q, o);
		break;
	case LEAVES:
		leave(q, o);
		break;
	case SERVED:
		cr_expect_eq(served, e->n, "%s: job %d is at %lld", story, e->job, (long long)served);
		break;
	case AT_LEAST:
		cr_expect_geq(served, e->n, "%s: job %d is at %lld", story, e->job, (long long)served);
		break;
	case EQUAL:
		cr_expect_eq(served, others, "%s: job %d is at %lld", story, e->job, (long long)served);
		break;
	case BELOW:
		cr_expect_lt(served, others, "%s: job %d is at %lld", story, e->job, (long long)served);
		break;
	case PICKED:
		cr_expect(queue_pick(q, 0, ready, NULL, NULL) == &o->s, "%s: not job %d", story, e->job);
		break;
	case OVER:
		break;
	}
}

Test(queue, users_start_where_the_others_are)
{
	for (size_t i = 0; i < sizeof stories / sizeof *stories; i++) {
		struct queue *q = queue_new(INT64_MAX, 8);
		struct one jobs[JOBS];
		bool here[JOBS] = {false};
		for (const struct event *e = stories[i].events; e->act != OVER; e++) {
			tell(q, jobs, e, stories[i].name);
			here[e->job] = e->act != LEAVES;
		}
		for (int k = 0; k < JOBS; k++)
			if (here[k])
				leave(q, &jobs[k]);
		queue_free(q);
	}
}

Test(queue, priorities_have_counters_of_their_own)
{
	struct queue *q = queue_new(INT64_MAX, 8);
	struct one a, b, c;
	arrive(q, &a, 1, 5);
	serve(q, &a, LOT);
	arrive(q, &b, 2, 0);
	cr_expect_eq(queue_served(&b.g), 0);
	arrive(q, &c, 3, 5 + 64);
	cr_expect_eq(queue_served(&c.g), 0);
	leave(q, &a);
	leave(q, &b);
	leave(q, &c);
	queue_free(q);
}

/* More users come and go than idle lanes are kept. */
Test(queue, forgotten_user_starts_with_the_others)
{
	struct queue *q = queue_new(INT64_MAX, 8);
	struct one a, b;
	arrive(q, &a, 1, 0);
	serve(q, &a, LOT);
	for (uint64_t user = 2; user < 40000; user++) {
		arrive(q, &b, user, user % 2 ? (int32_t)user : 0);
		cr_assert_eq(queue_served(&b.g), user % 2 ? 0 : LOT);
		leave(q, &b);
	}
	arrive(q, &b, 2, 0);
	cr_expect_eq(queue_served(&b.g), LOT);
	leave(q, &a);
	leave(q, &b);
	queue_free(q);
}

/* The last user of a priority is forgotten, and with it the priority's highest counter. */
Test(queue, forgotten_priority_starts_at_zero)
{
	enum { RARE = 50000 };
	struct queue *q = queue_new(INT64_MAX, 8);
	struct one a, b;
	arrive(q, &a, 1, RARE);
	serve(q, &a, LOT);
	leave(q, &a);
	arrive(q, &a, 2, RARE);
	cr_expect_eq(queue_served(&a.g), LOT);
	leave(q, &a);
	for (uint64_t user = 3; user < 20000; user++) {
		arrive(q, &b, user, 0);
		leave(q, &b);
	}
	arrive(q, &a, 1, RARE);
	cr_expect_eq(queue_served(&a.g), 0);
	serve(q, &a, 10);
	arrive(q, &b, 2, RARE);
	cr_expect_eq(queue_served(&b.g), 10);
	leave(q, &a);
	leave(q, &b);
	queue_free(q);
}

/* ---- age ---- */

/* Two old groups of a worse priority, and better ones. With 8 slots, one old group is protected at a time. */
Test(queue, groups_protected_for_their_age_hold_one_slot_in_eight)
{
	enum { LIMIT = 80, NOW = 1000 };
	struct queue *q = queue_new(LIMIT, 8);
	struct one old[2], better;
	bool for_age;
	arrive_in(q, &old[0], 0, 1, 9, 0);
	arrive_in(q, &old[1], 0, 1, 9, 0);
	arrive_in(q, &better, 0, 2, 0, NOW);
	cr_expect(queue_pick(q, NOW, ready, NULL, &for_age) == &old[0].s && for_age);
	queue_admitted(q, &old[0].g, true, NOW);
	serve(q, &old[0], 1);
	for (int i = 0; i < 2 * QUEUE_AGED_EVERY; i++) {
		cr_expect(queue_pick(q, NOW, ready, NULL, &for_age) == &better.s && !for_age);
		queue_admitted(q, &better.g, false, NOW);
	}
	cr_expect(queue_is_protected(&old[0].g, NOW));
	leave(q, &old[0]);
	cr_expect(queue_pick(q, NOW, ready, NULL, &for_age) == &old[1].s && for_age, "its place is free");
	leave(q, &old[1]);
	leave(q, &better);
	queue_free(q);
}

/* ---- the order, by exhaustive search ---- */

enum { ONES = 60, BONUS = 4096, AGING = 40, SLOTS = 17, ACCOUNTS = 3 };

struct crowd {
	struct queue *q;
	struct one ones[ONES];
	bool here[ONES];
	enum queue_ready is[ONES];
	uint64_t rng;
	int64_t now;
	uint32_t since_aged; /* in admissions */
};

static uint32_t rnd(struct crowd *c, uint32_t n)
{
	c->rng = c->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((c->rng >> 33) % n);
}

static enum queue_ready as_chosen(const struct seq *s, void *user)
{
	const struct crowd *c = user;
	return c->is[s->group->job];
}

/* Return whether no earlier sequence of the same user and priority is ready or blocks this one. */
static bool leads(const struct crowd *c, uint32_t i)
{
	const struct group *g = &c->ones[i].g;
	if (!c->here[i] || !c->ones[i].s.next || c->is[i] != QUEUE_READY)
		return false;
	for (uint32_t k = 0; k < ONES; k++) {
		const struct group *o = &c->ones[k].g;
		if (c->here[k] && c->ones[k].s.next && o->account == g->account && o->user == g->user &&
		    o->priority == g->priority && o->order < g->order && c->is[k] != QUEUE_SKIP)
			return false;
	}
	return true;
}

/* Within one priority, return whether g goes before best, which is of another account or user. */
static bool goes_before(const struct group *g, const struct group *best)
{
	int64_t lead = queue_lead(g, best) - (g->first_run_us ? BONUS : 0) + (best->first_run_us ? BONUS : 0);
	return lead != 0 ? lead < 0 : g->order < best->order;
}

/* Return the best group of an account at one priority. */
static const struct group *best_of(const struct crowd *c, uint64_t account, int32_t priority)
{
	const struct group *best = NULL;
	for (uint32_t i = 0; i < ONES; i++) {
		const struct group *g = &c->ones[i].g;
		if (leads(c, i) && g->account == account && g->priority == priority &&
		    (!best || goes_before(g, best)))
			best = g;
	}
	return best;
}

static bool age_has_turn(const struct crowd *c)
{
	uint32_t n_protected = 0;
	for (uint32_t i = 0; i < ONES; i++)
		n_protected += c->here[i] && queue_is_protected(&c->ones[i].g, c->now);
	return c->since_aged >= QUEUE_AGED_EVERY - 1 && n_protected < SLOTS / QUEUE_AGED_EVERY;
}

static const struct seq *search(const struct crowd *c, bool *for_age)
{
	const struct group *old = NULL, *urgent = NULL, *best = NULL;
	for (uint32_t i = 0; i < ONES; i++) {
		const struct group *g = &c->ones[i].g;
		if (!leads(c, i))
			continue;
		if (c->now - g->since_us > AGING && (!old || g->order < old->order))
			old = g;
		if (!urgent || g->priority < urgent->priority)
			urgent = g;
	}
	if (!urgent)
		return NULL;
	*for_age = age_has_turn(c) && old && old->priority > urgent->priority;
	int32_t priority = *for_age ? old->priority : urgent->priority;
	for (uint64_t account = 0; account < ACCOUNTS; account++) {
		const struct group *g = best_of(c, account, priority);
		if (g && (!best || goes_before(g, best)))
			best = g;
	}
	return &c->ones[best->job].s;
}

static void arrive_or_change(struct crowd *c, uint32_t i)
{
	struct one *o = &c->ones[i];
	if (!c->here[i]) {
		arrive_in(c->q, o, rnd(c, ACCOUNTS), rnd(c, 3), (int32_t)rnd(c, 3), c->now);
		o->g.job = i;
		c->here[i] = true;
	} else if (!o->s.next) {
		queue_charge(&o->g, rnd(c, 3000));
		o->g.since_us = c->now;
		if (rnd(c, 4) == 0)
			preempt(c->q, o);
	} else if (rnd(c, 3)) {
		serve(c->q, o, rnd(c, 3000));
		o->g.since_us = c->now;
	} else {
		leave(c->q, o);
		c->here[i] = false;
	}
	c->is[i] = rnd(c, 2) ? QUEUE_READY : rnd(c, 3) ? QUEUE_SKIP : QUEUE_HOLD;
}

static void admit(struct crowd *c, struct one *o, bool for_age)
{
	queue_admitted(c->q, &o->g, for_age, c->now);
	c->since_aged = for_age ? 0 : c->since_aged + 1;
	serve(c->q, o, rnd(c, 3000));
	o->g.since_us = c->now;
}

Test(queue, pick_agrees_with_an_exhaustive_search)
{
	struct crowd *c = calloc(1, sizeof *c);
	uint32_t n_found = 0, n_aged = 0, n_late = 0;
	cr_assert(c);
	c->q = queue_new(AGING, SLOTS);
	c->since_aged = QUEUE_AGED_EVERY - 1;
	for (uint32_t step = 0; step < 20000; step++) {
		c->now = step;
		arrive_or_change(c, rnd(c, ONES));
		bool for_age = false, expected = false;
		const struct seq *s = queue_pick(c->q, c->now, as_chosen, c, &for_age);
		cr_assert_eq(s, search(c, &expected), "step %u", step);
		cr_assert_eq(for_age, expected, "step %u", step);
		n_found += s != NULL;
		n_aged += for_age;
		n_late += s && c->now - s->group->since_us > AGING;
		if (s && rnd(c, 16) == 0)
			admit(c, &c->ones[s->group->job], for_age);
	}
	cr_expect_gt(n_found, 10000);
	cr_expect(n_aged > 300 && n_late > 1000 && n_late < n_found - 1000, "%u for age, %u late, of %u",
		  n_aged, n_late, n_found);
	for (uint32_t i = 0; i < ONES; i++)
		if (c->here[i])
			leave(c->q, &c->ones[i]);
	queue_free(c->q);
	free(c);
}
