/* timeline.h - where a group's time goes: the phases that it passes through, and what its wait was for.
 * Plain data in a fixed size, filled by the scheduler, copied out when the group ends or is asked about.
 *
 *   UNASSIGNED <--> QUEUED --> PREFILL --> DECODE --> (over)
 *        ^             |          |          |
 *        |             |          '----+-----+--> PREEMPTED, SWAPPED --.
 *        |             |               '--> MOVED <--> UNASSIGNED -----+--> RECOMPUTE --> DECODE
 *        '-- no replica takes it --'                                   '--> DECODE: its blocks came back
 *
 * A group is in one phase at a time.  With several outputs it is PREEMPTED, SWAPPED or MOVED when none of
 * them runs. */
#ifndef QUERN_CONTROLLER_SCHED_TIMELINE_H
#define QUERN_CONTROLLER_SCHED_TIMELINE_H

#include <stdint.h>

enum phase {
	PHASE_NONE,
	PHASE_UNASSIGNED, /* no replica takes it */
	PHASE_QUEUED,     /* waits in a replica's queue, and has not begun */
	PHASE_PREFILL,    /* computes its prompt, up to the first token */
	PHASE_DECODE,
	PHASE_PREEMPTED, /* gave its blocks up, and has nothing that is computed */
	PHASE_SWAPPED,   /* its blocks are on the host */
	PHASE_MOVED,     /* had begun on a replica that was lost or drained, and waits on another */
	PHASE_RECOMPUTE, /* computes again what it had, up to the next token */
	PHASES,
};

/* Why no further group was admitted in a plan. */
enum hold {
	HOLD_TURN,   /* no reason: the next plan is not made yet, or others come first */
	HOLD_BLOCKS, /* too few free blocks */
	HOLD_SLOTS,  /* as many sequences run as may (--max-seqs) */
	HOLD_STEP,   /* the step has as many prompt tokens as its time allows */
	HOLD_ALONE,  /* a suspect runs alone */
	HOLDS,
};

enum { TIMELINE_SPANS = 16, TIMELINE_PRIORITIES = 17 };

struct timeline_span {
	enum phase phase;
	int64_t from_us, to_us; /* to_us 0: it lasts */
};

struct timeline {
	struct timeline_span spans[TIMELINE_SPANS]; /* [n_spans], the first ones, in order */
	uint32_t n_spans, n_left_out;
	enum phase phase;   /* now */
	int64_t since_us;   /* when it began */
	int64_t us[PHASES]; /* all that have ended */
	uint32_t times[PHASES];
	int64_t held_us[HOLDS]; /* of the time QUEUED */
	uint32_t n_ahead;       /* groups that had not begun when it came */
	uint32_t n_begun;       /* groups that began while it was queued, */
	uint32_t n_better;      /* of these, of a better priority (beyond 8 and -8: not told apart) */
	uint32_t n_chunks;      /* parts of its prompt that plans had */
	uint64_t n_rows;        /* tokens computed in PREFILL */
	uint64_t n_again;       /* tokens computed in RECOMPUTE */
	uint32_t n_moves;       /* from one replica to another, after it began */
	uint32_t n_seqs_preempted;
	/* The scheduler's counters when it was queued. */
	uint64_t seen_begun, seen_better;
	int64_t seen_held_us[HOLDS];
};

/* "queued" */
const char *timeline_phase_name(enum phase p);
/* "blocks" */
const char *timeline_hold_name(enum hold h);

/* From now on it is in this phase; no effect if it is.  A time before the phase's begin counts as that. */
void timeline_enter(struct timeline *t, enum phase p, int64_t now_us);
/* Closes the last phase. */
void timeline_end(struct timeline *t, int64_t now_us);

#endif
