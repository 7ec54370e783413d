/* sched_move.h - groups that go from one scheduler to another, and what the choice needs.
 * Pure, as sched.h.  A group takes its tokens along and nothing else: what was computed for it is
 * computed again.  Groups of several schedulers are numbered by one counter (sched_adopt), so
 * that who came first is first wherever they meet. */
#ifndef QUERN_CONTROLLER_SCHED_MOVE_H
#define QUERN_CONTROLLER_SCHED_MOVE_H

#include "controller/sched.h"

/* Queue a group that has order and arrival_us set: a new one, or one that was detached elsewhere.
 * Takes it. */
void sched_adopt(struct sched *s, struct group **g);
/* Take a group away, which is then the caller's.  It has no sequence that runs and is in no plan
 * under way: one that has not begun, or any after sched_lost(). */
struct group *sched_detach(struct sched *s, struct group *g);

/* All groups, by arrival.  NULL: the end.  The next is to be asked for before g is detached. */
struct group *sched_first(const struct sched *s);
struct group *sched_next(const struct sched *s, const struct group *g);

/* Whose turn it is of those groups that could be detached now at no loss (they have not begun, or
 * nothing of them runs or is swapped out) and that `want` takes; NULL: none. */
struct group *sched_next_idle(struct sched *s, int64_t now_us, bool (*want)(const struct group *g, void *user),
			      void *user);

/* How many of the first tokens need not be computed, since the cache holds them. */
uint32_t sched_cached(const struct sched *s, const uint32_t *tokens, uint32_t n, uint64_t salt);

/* Nothing is under way. */
bool sched_quiet(const struct sched *s);

#endif
