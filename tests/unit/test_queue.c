/* Whose turn it is: shares of users, and where one starts who comes or comes back. */
#include "controller/queue.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static enum queue_ready ready(const struct seq *s, void *user)
{
	(void)s;
	(void)user;
	return QUEUE_READY;
}

/* Of 400 turns of one token each, how many the first of two users gets. */
static int turns(uint32_t share_a, uint32_t share_b)
{
	struct queue *q = queue_new(INT64_MAX);
	struct group g[2] = {{.user = 1, .share = share_a, .order = 1},
			     {.user = 2, .share = share_b, .order = 2}};
	struct seq s[2] = {{.group = &g[0]}, {.group = &g[1]}};
	int n = 0;
	for (int i = 0; i < 2; i++) {
		queue_join(q, &g[i]);
		queue_push(q, &s[i]);
	}
	for (int i = 0; i < 400; i++) {
		struct seq *next = queue_pick(q, 0, ready, NULL);
		n += next == &s[0];
		queue_charge(q, next->group, 1);
	}
	for (int i = 0; i < 2; i++) {
		queue_remove(q, &s[i]);
		queue_leave(q, &g[i]);
	}
	queue_free(q);
	return n;
}

Test(queue, users_of_one_share_are_served_alike)
{
	cr_expect(turns(1, 1) == 200);
	cr_expect(turns(0, 0) == 200, "no share is 1");
	cr_expect(abs(turns(7, 7) - 200) <= 7);
}

Test(queue, a_larger_share_is_served_more)
{
	cr_expect(abs(turns(3, 1) - 300) <= 3, "%d", turns(3, 1));
	cr_expect(abs(turns(1, 9) - 40) <= 9, "%d", turns(1, 9));
}

/* ---- who comes, or comes back ---- */

/* A job of one output. */
struct one {
	struct group g;
	struct seq s;
};

static uint64_t n_jobs;

/* It comes, and waits. */
static void come_at(struct queue *q, struct one *o, uint64_t user, int32_t priority, int64_t now_us)
{
	*o = (struct one){.g = {.user = user,
				.share = 1,
				.priority = priority,
				.order = ++n_jobs,
				.arrival_us = now_us,
				.since_us = now_us}};
	o->s.group = &o->g;
	queue_join(q, &o->g);
	queue_push(q, &o->s);
}

static void come(struct queue *q, struct one *o, uint64_t user, int32_t priority)
{
	come_at(q, o, user, priority, 0);
}

/* It waits no more, but runs, and is served. */
static void serve(struct queue *q, struct one *o, uint32_t tokens)
{
	if (o->s.next)
		queue_remove(q, &o->s);
	o->g.first_run_us = 1;
	queue_charge(q, &o->g, tokens);
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

enum { LOT = 1000000 };

Test(queue, who_comes_while_others_run_starts_where_they_are)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, b;
	come(q, &a, 1, 0);
	serve(q, &a, LOT);
	come(q, &b, 2, 0);
	cr_expect_geq(queue_served(&b.g), LOT);
	leave(q, &a);
	leave(q, &b);
	queue_free(q);
}

Test(queue, who_comes_when_all_have_left_starts_where_they_were)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, b, again;
	come(q, &a, 1, 0);
	serve(q, &a, LOT);
	leave(q, &a);
	come(q, &b, 2, 0);
	cr_expect_geq(queue_served(&b.g), LOT);
	serve(q, &b, 10);
	come(q, &again, 1, 0);
	cr_expect_eq(queue_served(&again.g), LOT + 10, "nor does who was there before lead or lag");
	leave(q, &b);
	leave(q, &again);
	queue_free(q);
}

Test(queue, who_was_away_cannot_claim_what_it_did_not_use)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, waits, b;
	come(q, &b, 2, 0);
	serve(q, &b, 10);
	leave(q, &b);
	come(q, &a, 1, 0);
	serve(q, &a, LOT);
	come(q, &waits, 1, 0);
	come(q, &b, 2, 0);
	cr_expect_eq(queue_served(&b.g), queue_served(&waits.g));
	leave(q, &a);
	leave(q, &waits);
	leave(q, &b);
	queue_free(q);
}

/* There is always something of it, so that it never is away. */
Test(queue, who_asked_for_little_cannot_claim_what_it_did_not_use)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, little, next;
	come(q, &little, 2, 0);
	serve(q, &little, 10);
	come(q, &a, 1, 0);
	serve(q, &a, LOT);
	cr_expect_eq(queue_served(&little.g), 10, "what runs costs nobody anything");
	come(q, &next, 2, 0);
	cr_expect_gt(queue_served(&next.g), LOT * 9 / 10);
	leave(q, &a);
	leave(q, &little);
	leave(q, &next);
	queue_free(q);
}

Test(queue, who_asks_for_little_goes_before_a_flood)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, flood, little, next, c;
	come(q, &little, 2, 0);
	serve(q, &little, 10);
	come(q, &a, 1, 0);
	serve(q, &a, LOT);
	come(q, &flood, 1, 0);
	come(q, &next, 2, 0);
	cr_expect_lt(queue_served(&next.g), queue_served(&flood.g));
	cr_expect(queue_pick(q, 0, ready, NULL) == &next.s);
	come(q, &c, 3, 0);
	cr_expect_eq(queue_served(&c.g), queue_served(&flood.g), "that is for nobody else");
	leave(q, &a);
	leave(q, &flood);
	leave(q, &little);
	leave(q, &next);
	leave(q, &c);
	queue_free(q);
}

Test(queue, who_comes_starts_with_the_least_served_of_those_that_wait)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, b, c;
	come(q, &a, 1, 0);
	serve(q, &a, LOT);
	come(q, &b, 2, 0);
	serve(q, &a, LOT);
	come(q, &c, 3, 0);
	cr_expect_eq(queue_served(&c.g), LOT, "where b is, not where a is");
	leave(q, &a);
	leave(q, &b);
	leave(q, &c);
	queue_free(q);
}

Test(queue, who_waits_keeps_its_place_when_more_of_it_comes)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, b, more;
	come(q, &a, 1, 0);
	come(q, &b, 2, 0);
	serve(q, &a, LOT);
	come(q, &more, 2, 0);
	cr_expect_eq(queue_served(&b.g), 0, "it waits since before a was served");
	cr_expect(queue_pick(q, 0, ready, NULL) == &b.s);
	leave(q, &a);
	leave(q, &b);
	leave(q, &more);
	queue_free(q);
}

/* Of a user that was preempted for want of blocks nothing new waits: it is no measure for others,
 * keeps its own place, and claims nothing for what comes later. */
Test(queue, who_is_preempted_keeps_its_place_and_gives_it_to_nobody)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, little, b, next;
	come(q, &little, 3, 0);
	serve(q, &little, 10);
	come(q, &a, 1, 0);
	serve(q, &a, LOT);
	preempt(q, &little);
	cr_expect_eq(queue_served(&little.g), 10);
	come(q, &b, 2, 0);
	cr_expect_eq(queue_served(&b.g), queue_served(&a.g));
	cr_expect(queue_pick(q, 0, ready, NULL) == &little.s);
	come(q, &next, 3, 0);
	cr_expect_gt(queue_served(&next.g), LOT * 9 / 10);
	leave(q, &a);
	leave(q, &little);
	leave(q, &b);
	leave(q, &next);
	queue_free(q);
}

Test(queue, priorities_are_served_apart)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, b, c;
	come(q, &a, 1, 5);
	serve(q, &a, LOT);
	come(q, &b, 2, 0);
	cr_expect_eq(queue_served(&b.g), 0);
	come(q, &c, 3, 5 + 64);
	cr_expect_eq(queue_served(&c.g), 0);
	leave(q, &a);
	leave(q, &b);
	leave(q, &c);
	queue_free(q);
}

/* So many come and go that those who are away are forgotten. */
Test(queue, who_is_forgotten_starts_where_the_others_are)
{
	struct queue *q = queue_new(INT64_MAX);
	struct one a, b;
	come(q, &a, 1, 0);
	serve(q, &a, LOT);
	for (uint64_t user = 2; user < 40000; user++) {
		come(q, &b, user, user % 2 ? (int32_t)user : 0);
		cr_assert_eq(queue_served(&b.g), user % 2 ? 0 : LOT);
		leave(q, &b);
	}
	come(q, &b, 2, 0);
	cr_expect_eq(queue_served(&b.g), LOT);
	leave(q, &a);
	leave(q, &b);
	queue_free(q);
}

/* ---- whose turn, said plainly ---- */

enum { ONES = 60, BONUS = 4096, AGING = 40 };

struct crowd {
	struct queue *q;
	struct one ones[ONES];
	bool here[ONES];
	enum queue_ready is[ONES];
	uint64_t rng;
	int64_t now;
};

static uint32_t rnd(struct crowd *c, uint32_t n)
{
	c->rng = c->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((c->rng >> 33) % n);
}

static enum queue_ready as_told(const struct seq *s, void *user)
{
	const struct crowd *c = user;
	return c->is[s->group->job];
}

/* Nobody of its user and priority who is ready, or holds it up, came before it. */
static bool leads(const struct crowd *c, uint32_t i)
{
	const struct group *g = &c->ones[i].g;
	if (!c->here[i] || !c->ones[i].s.next || c->is[i] != QUEUE_READY)
		return false;
	for (uint32_t k = 0; k < ONES; k++) {
		const struct group *o = &c->ones[k].g;
		if (c->here[k] && c->ones[k].s.next && o->user == g->user && o->priority == g->priority &&
		    o->order < g->order && c->is[k] != QUEUE_SKIP)
			return false;
	}
	return true;
}

static int64_t debt(const struct group *g)
{
	return (int64_t)queue_served(g) - (g->first_run_us ? BONUS : 0);
}

static const struct seq *plainly(const struct crowd *c)
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
	int32_t priority = old ? old->priority : urgent->priority;
	for (uint32_t i = 0; i < ONES; i++) {
		const struct group *g = &c->ones[i].g;
		if (leads(c, i) && g->priority == priority &&
		    (!best || debt(g) < debt(best) || (debt(g) == debt(best) && g->order < best->order)))
			best = g;
	}
	return &c->ones[best->job].s;
}

static void come_or_change(struct crowd *c, uint32_t i)
{
	struct one *o = &c->ones[i];
	if (!c->here[i]) {
		come_at(c->q, o, rnd(c, 6), (int32_t)rnd(c, 3), c->now);
		o->g.job = i;
		c->here[i] = true;
	} else if (!o->s.next) {
		queue_charge(c->q, &o->g, rnd(c, 3000));
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

Test(queue, the_turn_is_what_a_look_at_everybody_finds)
{
	struct crowd *c = calloc(1, sizeof *c);
	uint32_t n_found = 0, n_aged = 0;
	cr_assert(c);
	c->q = queue_new(AGING);
	for (uint32_t step = 0; step < 20000; step++) {
		c->now = step;
		come_or_change(c, rnd(c, ONES));
		const struct seq *s = queue_pick(c->q, c->now, as_told, c);
		cr_assert_eq(s, plainly(c), "step %u", step);
		n_found += s != NULL;
		n_aged += s && c->now - s->group->since_us > AGING;
	}
	cr_expect_gt(n_found, 10000);
	cr_expect(n_aged > 1000 && n_aged < n_found - 1000, "%u of %u", n_aged, n_found);
	for (uint32_t i = 0; i < ONES; i++)
		if (c->here[i])
			leave(c->q, &c->ones[i]);
	queue_free(c->q);
	free(c);
}
