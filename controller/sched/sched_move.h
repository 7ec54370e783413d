/* sched_move.h - groups that go from one scheduler to another, and what the choice needs.
 * Pure, as sched.h.  A group takes its tokens along and nothing else: its K and V are computed again.  One
 * counter numbers the groups of all schedulers (sched_adopt), so that they keep their order of arrival in
 * any of them. */
#ifndef QUERN_CONTROLLER_SCHED_SCHED_MOVE_H
#define QUERN_CONTROLLER_SCHED_SCHED_MOVE_H

#include "controller/sched/sched.h"

/* Queue a group with order and arrival_us set: a new one, or one detached from another scheduler.  Takes it.
 */
void sched_adopt(struct sched *s, struct group **g);
/* Remove a group, which is then the caller's.  None of its sequences runs, and no plan under way names it: it
 * has not begun, or sched_lost() was called. */
struct group *sched_detach(struct sched *s, struct group *g);

/* All groups, by arrival.  NULL: the end.  Call sched_next() before g is detached. */
struct group *sched_first(const struct sched *s);
struct group *sched_next(const struct sched *s, const struct group *g);

/* The next group, in the queue's order, that can be detached without loss (it has not begun, or none of its
 * sequences runs or is swapped out) and that `want` accepts; NULL: none. */
struct group *sched_next_idle(struct sched *s, int64_t now_us,
			      bool (*want)(const struct group *g, void *user), void *user);

/* None of its sequences runs or is swapped out, and no plan under way names it. */
bool sched_is_idle(const struct group *g);

/* The running sequences. */
struct sched_ahead {
	uint32_t n_running;
	uint64_t prompt_rest; /* tokens of their prompts that no plan has computed yet */
	uint32_t next_end;    /* fewest tokens that one of them may still produce; 0: none runs */
};
void sched_running(const struct sched *s, struct sched_ahead *out);
/* Tokens that the sequence may still produce. */
uint32_t sched_left(const struct seq *q);

/* How many of the first tokens the prefix cache holds. */
uint32_t sched_cached(const struct sched *s, const uint32_t *tokens, uint32_t n, uint64_t salt);

/* No plan is under way. */
bool sched_quiet(const struct sched *s);

#endif
