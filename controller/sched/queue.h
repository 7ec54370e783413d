/* queue.h - the sequences that wait, and which of them is next.
 * Pure: no clock, no I/O.  Owns the lanes.  One thread: the engine's.
 *
 *   tier: priority 0    lane: user 7   served 9100   [job 3, output 0] [job 3, output 1] [job 8]
 *                       lane: user 2   served 4200   [job 5]                     <- next
 *   tier: priority 5    lane: user 7   served  100   [job 1] [job 6]
 *
 * A lane holds the waiting sequences of one user at one priority, by (arrival, output).  `served` is its
 * virtual token counter: tokens served, divided by the user's share (Sheng et al., "Fairness in Serving Large
 * Language Models", OSDI 2024).  The next sequence is chosen by
 *
 *   1. priority: the best one (the lowest number); in one admission of QUEUE_AGED_EVERY, that of the earliest
 *      group that has waited longer than the aging limit, since it arrived or last ran: no group starves,
 *      and however many have waited long, better priorities get the other turns;
 *   2. the lowest counter among the lanes of that priority; a group that has begun goes before new ones;
 *   3. arrival.
 *
 * Capacity that a user leaves unused while no other user lacks it is not saved up, and a user that takes it
 * does not pay for it.  So the counter of a user without new jobs in the queue is raised when one arrives:
 *
 *     served  0        4200                 9100                             15000
 *     user 2  |          +---- waits since before user 7 was served            :
 *     user 7  |          :                    +---- waits, served more         :
 *     user 9  +--------->*                    :                                :
 *             arrives: starts with the least served lane of its priority that has new jobs waiting
 *     where no new job waits:  --------------------------------------------->  * the most served lane,
 *             also of lanes that are gone
 *
 * less a small credit (seconds of other users' tokens) for a user that has other jobs here. */
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

/* The group joins its lane (g->user, g->priority), or leaves it.  Join before its sequences are pushed: the
 * lane's counter is raised by what waits at that moment.  A lower g->order is an earlier arrival. */
void queue_join(struct queue *q, struct group *g);
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
void queue_charge(struct queue *q, struct group *g, uint32_t tokens);
/* The counter of the group's lane; comparable among lanes of one priority. */
uint64_t queue_served(const struct group *g);

#endif
