/* sched_move.h - moves groups from one scheduler to another, and gives the numbers to choose between them.
 * Pure, as sched.h.  A group keeps its tokens and nothing else: its K and V are recomputed.  One counter
 * numbers the groups of all schedulers (sched_adopt), so that groups keep their order of arrival in any of
 * them. */
#ifndef QUERN_CONTROLLER_SCHED_SCHED_MOVE_H
#define QUERN_CONTROLLER_SCHED_SCHED_MOVE_H

#include "controller/sched/sched.h"

/* Queue a group that has order and arrival_us set: a new group, or a group detached from another scheduler.
 * Takes it. */
void sched_adopt(struct sched *s, struct group **g);
/* Remove a group and return it to the caller.  None of its sequences runs, and no plan in flight names it: it
 * has not begun, or sched_lost() was called. */
struct group *sched_detach(struct sched *s, struct group *g);

/* Iterate over all groups, by arrival; NULL: the end.  Call sched_next() before g is detached. */
struct group *sched_first(const struct sched *s);
struct group *sched_next(const struct sched *s, const struct group *g);

/* Return the next group, in the queue's order, that `want` accepts and that can be detached without loss (it
 * has not begun, or none of its sequences runs or is swapped out); NULL: none. */
struct group *sched_next_idle(struct sched *s, int64_t now_us,
			      bool (*want)(const struct group *g, void *user), void *user);

/* Return whether no plan in flight names the group and none of its sequences runs or is swapped out. */
bool sched_is_idle(const struct group *g);

/* Summary of the running sequences. */
struct sched_ahead {
	uint32_t n_running;
	uint64_t prompt_rest; /* their prompt tokens that no plan has computed yet */
	uint32_t next_end;    /* fewest tokens that any of them may still produce; 0: none runs */
};
void sched_running(const struct sched *s, struct sched_ahead *out);
/* Return how many tokens the sequence may still produce. */
uint32_t sched_left(const struct seq *q);

/* Return how many of the first tokens the prefix cache holds. */
uint32_t sched_cached(const struct sched *s, const uint32_t *tokens, uint32_t n, uint64_t salt);

/* Return whether no plan is in flight. */
bool sched_quiet(const struct sched *s);

#endif
