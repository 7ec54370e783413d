/* queue.h - the waiting sequences, and which of them is next.
 * Pure: no clock, no I/O.  Owns the accounts and lanes.  One thread: the engine's.
 *
 *   tier: priority 0
 *     account: key 3    served 9100
 *       lane: user 7    served 7000   [job 3] [job 8]
 *       lane: user 2    served 2100   [job 5, output 0] [job 5, output 1]   <- next of key 3
 *     account: key 1    served 9200
 *       lane: no user   served 9200   [job 4]
 *   tier: priority 5
 *     account: key 3    served  100
 *       lane: user 7    served  100   [job 1] [job 6]
 *
 * An account holds the waiting sequences of one API key, or one owner of jobs, at one priority.  A lane holds
 * those of one user of that account, by (arrival, output).  `served` is the virtual token counter of each:
 * tokens served, divided by the account's share (Sheng et al., "Fairness in Serving Large Language Models",
 * OSDI 2024).  Users are names that a client chooses: they divide their account's service and nothing else.
 * The next sequence is chosen by
 *
 *   1. priority: the best (lowest number); in one of every QUEUE_AGED_EVERY admissions, the priority of the
 *      earliest group that has waited longer than the aging limit, since it arrived or last ran. So no
 *      group starves, and however many groups have aged, better priorities get the other admissions;
 *   2. the lowest counter among the accounts of that priority, then among the account's lanes; a group
 *      that has begun goes before new groups;
 *   3. arrival.
 *
 * Capacity that an account leaves unused while no other account lacks it is not saved up, and an account that
 * uses such capacity does not pay for it.  So the counter of an account without new jobs in the queue is
 * raised when a job arrives.  The counter of a lane is raised in the same way, among its account's lanes:
 *
 *     served  0        4200                 9100                             15000
 *     key 2   |          +---- waits since before key 3 was served             :
 *     key 3   |          :                    +---- waits, served more         :
 *     key 9   +--------->*    :                                                :
 *             arrives: starts with the least served account of its priority that has new jobs waiting
 *     if no new job waits:  ----------------------------------------------->  * the most served account,
 *             including accounts that are gone
 *
 * less a small credit (seconds of others' tokens) for an account of an API key, and for a user that has other
 * jobs here: occasional jobs of one key go before a flood of another key's jobs. */
#ifndef QUERN_CONTROLLER_SCHED_QUEUE_H
#define QUERN_CONTROLLER_SCHED_QUEUE_H

#include "controller/sched/seq.h"

#include <stdbool.h>
#include <stdint.h>

struct queue;
struct lane;

/* While better priorities wait, one in QUEUE_AGED_EVERY admissions goes to a group for its age; and such
 * groups hold one in QUEUE_AGED_EVERY of the n_slots while they are protected. */
enum { QUEUE_AGED_EVERY = 8 };

struct queue *queue_new(int64_t aging_us, uint32_t n_slots);
void queue_free(struct queue *q); /* does not free the sequences; NULL is fine */

/* Add the group to its lane (g->account, g->priority, g->user), or remove it.  Join before its sequences are
 * pushed: the lane's counter is raised according to what waits at that moment.  A lower g->order is an
 * earlier arrival.  queue_join returns true if no other new job of its account waits. */
bool queue_join(struct queue *q, struct group *g);
void queue_leave(struct queue *q, struct group *g);

/* Add or remove a sequence of a joined group.  A group's sequences are removed before the group begins
 * (first_run_us). */
void queue_push(struct queue *q, struct seq *s);
void queue_remove(struct queue *q, struct seq *s);
uint32_t queue_n(const struct queue *q);
/* Return the number of comparisons made so far to keep the lanes in order. */
uint64_t queue_order_steps(const struct queue *q);

/* Admission state of a waiting sequence. */
enum queue_ready {
	QUEUE_READY,
	QUEUE_SKIP, /* not yet; later sequences of its lane may go first */
	QUEUE_HOLD, /* not yet, and its lane waits with it */
};
/* Return the next sequence that is ready; NULL: none.  *for_age: the sequence was chosen for its age while a
 * better priority waits.  for_age NULL: priorities only. */
struct seq *queue_pick(struct queue *q, int64_t now_us,
		       enum queue_ready (*ready)(const struct seq *s, void *user), void *user, bool *for_age);

/* Return whether a goes before b, by priority, counter and arrival. */
bool queue_before(const struct seq *a, const struct seq *b);

/* Note that a waiting sequence of the group is about to run; for_age: from queue_pick().  If chosen for its
 * age, no better priority preempts the group for an eighth of the aging limit. */
void queue_admitted(struct queue *q, struct group *g, bool for_age, int64_t now_us);
bool queue_is_protected(const struct group *g, int64_t now_us);

/* Charge the group for this many tokens. */
void queue_charge(struct group *g, uint32_t tokens);
/* Return by how many tokens (divided by share) a was served more than b, of the same priority: a's account
 * more than b's account; within one account, a's lane more than b's lane. */
int64_t queue_lead(const struct group *a, const struct group *b);
/* Return the counter of the group's lane. */
uint64_t queue_served(const struct group *g);

#endif
