/* queue.h - who waits, and whose turn it is.
 * Pure.  Owns: lanes.  A lane holds the waiting sequences of one user at one priority, by
 * (arrival, output).  The turn goes to the best priority; among its lanes to the one that was
 * served the fewest tokens for its share (virtual token counter: Sheng et al., "Fairness in Serving Large
 * Language Models", OSDI 2024), where what has begun goes before what is new; then to the
 * earliest arrival.  A priority in which somebody has waited longer than the aging limit, since it
 * came or last ran, has the turn, so that nobody waits for ever.
 *
 * What a user leaves unused while nobody lacks it cannot be claimed later, and who took it does not
 * pay for it: a user of whom nothing new waited starts, when something does, with the least served
 * of those of its priority that have something new waiting, or, where none has, with the one that
 * was served the most; less a little (seconds of others' time), if it had something here all the
 * time. */
#ifndef QUERN_CONTROLLER_QUEUE_H
#define QUERN_CONTROLLER_QUEUE_H

#include "controller/seq.h"

#include <stdbool.h>
#include <stdint.h>

struct queue;
struct lane;

struct queue *queue_new(int64_t aging_us);
void queue_free(struct queue *q);               /* not the sequences; NULL is fine */

/* The group belongs to its lane (by g->user, g->priority) from now on, or no more.  Joined before its
 * sequences are pushed: what its user may claim is settled by who waits at that moment.
 * Of two groups the one with the lower order did not arrive later. */
void queue_join(struct queue *q, struct group *g);
void queue_leave(struct queue *q, struct group *g);

/* Sequences of joined groups.  None that waits is of a group that begins (first_run_us) meanwhile:
 * it is removed before. */
void queue_push(struct queue *q, struct seq *s);
void queue_remove(struct queue *q, struct seq *s);
uint32_t queue_n(const struct queue *q);

/* Whether a sequence can be taken now. */
enum queue_ready {
	QUEUE_READY,
	QUEUE_SKIP,     /* not yet; others behind it may go first */
	QUEUE_HOLD,     /* not yet, and nobody of its lane goes before it */
};
/* Whose turn it is; NULL: nobody is ready. */
struct seq *queue_pick(struct queue *q, int64_t now_us,
		       enum queue_ready (*ready)(const struct seq *s, void *user), void *user);

/* Whether it would be a's turn rather than b's. */
bool queue_before(const struct queue *q, const struct seq *a, const struct seq *b, int64_t now_us);

/* A sequence of the group, which waited, is about to run. */
void queue_let_in(struct queue *q, struct group *g, int64_t now_us);
/* It was let in because it had waited longer than the aging limit, and no better priority is to take
 * its place yet: for an eighth of that limit. */
bool queue_keeps(const struct group *g, int64_t now_us);

/* Tokens that were served to the group. */
void queue_charge(struct queue *q, struct group *g, uint32_t tokens);
/* What the group's lane was served by its share, comparable among lanes of a priority. */
uint64_t queue_served(const struct group *g);

#endif
