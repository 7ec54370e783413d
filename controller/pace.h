/* pace.h - whether a worker gets on with what it was asked for.
 * Beats come from a thread of their own, so that they say nothing of the one that loads and computes: what
 * shows that it gets on is an answer, or a beat that tells of more than the one before.  Pure; times in
 * microseconds. */
#ifndef QUERN_CONTROLLER_PACE_H
#define QUERN_CONTROLLER_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
	bool owes;              /* it was asked for something, and has not answered: a load, or plans */
	int64_t since_us;       /* while it owes: when it got on last, or was asked */
	uint64_t moves;         /* that its last beat told of */
};

/* Asked again while it owes, it has had the time since the first one. */
static inline void pace_ask(struct pace *p, int64_t now_us)
{
	if (!p->owes)
		p->since_us = now_us;
	p->owes = true;
}

/* It has answered all of it. */
static inline void pace_done(struct pace *p)
{
	p->owes = false;
}

static inline void pace_move(struct pace *p, int64_t now_us)
{
	p->since_us = now_us;
}

static inline void pace_beat(struct pace *p, uint64_t moves, int64_t now_us)
{
	if (moves != p->moves)
		pace_move(p, now_us);
	p->moves = moves;
}

static inline bool pace_is_stuck(const struct pace *p, int64_t limit_us, int64_t now_us)
{
	return p->owes && now_us - p->since_us > limit_us;
}

#endif
