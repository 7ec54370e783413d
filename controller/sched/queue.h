/* queue.h - the sequences that wait, and which of them is next.
 * Pure: no clock, no I/O.  Owns the accounts and lanes.  One thread: the engine's.
 *
 *   tier: priority 0   account: key 3   served 9100   lane: user 7   served 7000   [job 3] [job 8]
 *                                                     lane: user 2   served 2100   [job 5, output 0]   <-
 * next [job 5, output 1]   of key 3 account: key 1   served 9200   lane: no user  served 9200   [job 4] tier:
 * priority 5   account: key 3   served  100   lane: user 7   served  100   [job 1] [job 6]
 *
 * An account holds what an API key, or an owner of jobs, has waiting at one priority; a lane what one of its
 * users has, by (arrival, output).  `served` is the virtual token counter of each: tokens served, divided by
 * the account's share (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024).  Users are
 * names that a client chooses: they divide their account's service and nothing else.  The next sequence is
 * chosen by
 *
 *   1. priority: the best one (the lowest number); in one admission of QUEUE_AGED_EVERY, that of the earliest
 *      group that has waited longer than the aging limit, since it arrived or last ran: no group starves,
 *      and however many have waited long, better priorities get the other turns;
 *   2. the lowest counter among the accounts of that priority, and then among the account's lanes; a group
 *      that has begun goes before new ones;
 *   3. arrival.
 *
 * Capacity that an account leaves unused while no other lacks it is not saved up, and one that takes it
 * does not pay for it.  So the counter of an account without new jobs in the queue is raised when one
 * arrives; likewise that of a lane, among those of its account:
 *
 *     served  0        4200                 9100                             15000
 *     key 2   |          +---- waits since before key 3 was served             :
 *     key 3   |          :                    +---- waits, served more         :
 *     key 9   +--------->*    :                                                :
 *             arrives: starts with the least served account of its priority that has new jobs waiting
 *     where no new job waits:  --------------------------------------------->  * the most served account,
 *             also of those that are gone
 *
 * less a small credit (seconds of others' tokens) for an account of a key, and for a user that has other
 * jobs here: what a key submits now and then goes before a flood of another's. */
#ifndef QUERN_CONTROLLER_SCHED_QUEUE_H
#define QUERN_CONTROLLER_SCHED_QUEUE_H

#include "controller/sched/seq.h"

#include <stdbool.h>
#include <stdint.h>

struct queue;
struct lane;

/* Of the admissions while better priorities wait, one in so many goes to a group for its age; and of n_slots,
 * one in so many is held by such groups while they are protected. */
enum { QUEUE_AGED_EVERY = 8 };

struct queue *queue_new(int64_t aging_us, uint32_t n_slots);
void queue_free(struct queue *q); /* not the sequences; NULL is fine */

/* The group joins its lane (g->account, g->priority, g->user), or leaves it.  Join before its sequences are
 * pushed: the lane's counter is raised by what waits at that moment.  A lower g->order is an earlier arrival.
 * True: no other new job of its account waits. */
bool queue_join(struct queue *q, struct group *g);
void queue_leave(struct queue *q, struct group *g);

/* Sequences of joined groups.  A group's sequences are removed before it begins (first_run_us). */
void queue_push(struct queue *q, struct seq *s);
void queue_remove(struct queue *q, struct seq *s);
uint32_t queue_n(const struct queue *q);
/* Comparisons made so far to keep the lanes in order. */
uint64_t queue_order_steps(const struct queue *q);

/* Whether a sequence can be admitted now. */
enum queue_ready {
	QUEUE_READY,
	QUEUE_SKIP, /* not yet; others behind it in its lane may go first */
	QUEUE_HOLD, /* not yet, and it holds up its lane */
};
/* The next sequence that is ready; NULL: none.  for_age: it has the turn of its age, a better priority waits;
 * NULL: priorities only. */
struct seq *queue_pick(struct queue *q, int64_t now_us,
		       enum queue_ready (*ready)(const struct seq *s, void *user), void *user, bool *for_age);

/* Whether a goes before b, by priority, counter and arrival. */
bool queue_before(const struct seq *a, const struct seq *b);

/* A waiting sequence of the group is about to run; for_age: as queue_pick() said.  Then no better priority
 * preempts it for an eighth of the aging limit. */
void queue_admitted(struct queue *q, struct group *g, bool for_age, int64_t now_us);
bool queue_is_protected(const struct group *g, int64_t now_us);

/* The group was served this many tokens. */
void queue_charge(struct group *g, uint32_t tokens);
/* Tokens (by share) that a was served more than b, of the same priority: a's account more than b's; in one
 * account, a's lane more than b's. */
int64_t queue_lead(const struct group *a, const struct group *b);
/* The counter of the group's lane. */
uint64_t queue_served(const struct group *g);

#endif
