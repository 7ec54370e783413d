/* timeline.h - the timeline of a group: the phases that it passes through, and the reasons for its wait.
 * Plain data of a fixed size, filled by the scheduler, copied out when the group ends or a client asks.
 *
 *   UNASSIGNED <--> QUEUED --> PREFILL --> DECODE --> (end)
 *        ^             |          |          |
 *        |             |          '----+-----+--> PREEMPTED, SWAPPED --.
 *        |             |               '--> MOVED <--> UNASSIGNED -----+--> RECOMPUTE --> DECODE
 *        '-- no replica takes it --'                                   '--> DECODE: swapped in
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
	PHASE_PREFILL,    /* computes its prompt, until the first token */
	PHASE_DECODE,
	PHASE_PREEMPTED, /* gave its blocks up, and has no computed positions */
	PHASE_SWAPPED,   /* its blocks are on the host */
	PHASE_MOVED,     /* had begun on a replica that was lost or drained, and waits on another */
	PHASE_RECOMPUTE, /* computes again the positions it had, until the next token */
	PHASES,
};

/* Why no further group was admitted in a plan. */
enum hold {
	HOLD_TURN,   /* no reason: the next plan is not made yet, or other groups come first */
	HOLD_BLOCKS, /* too few free blocks */
	HOLD_SLOTS,  /* the maximum number of sequences runs (--max-seqs) */
	HOLD_STEP,   /* the step has as many prompt tokens as its target time allows */
	HOLD_ALONE,  /* a suspect runs alone */
	HOLDS,
};

enum { TIMELINE_SPANS = 16, TIMELINE_PRIORITIES = 17 };

struct timeline_span {
	enum phase phase;
	int64_t from_us, to_us; /* to_us 0: it has not ended */
};

struct timeline {
	struct timeline_span spans[TIMELINE_SPANS]; /* [n_spans] the first spans, in order */
	uint32_t n_spans, n_left_out;
	enum phase phase;   /* current phase */
	int64_t since_us;   /* when the current phase began */
	int64_t us[PHASES]; /* total time by phase, of phases that have ended */
	uint32_t times[PHASES];
	int64_t held_us[HOLDS]; /* time QUEUED by reason */
	uint32_t n_ahead;       /* groups that had not begun when this group arrived */
	uint32_t n_begun;       /* groups that began while it was queued, */
	uint32_t n_better;      /* those with a better priority (limited to -8 .. 8) */
	uint32_t n_chunks;      /* chunks of its prompt in plans */
	uint64_t n_rows;        /* tokens computed in PREFILL */
	uint64_t n_again;       /* tokens computed in RECOMPUTE */
	uint32_t n_moves;       /* moves from one replica to another after it began */
	uint32_t n_seqs_preempted;
	/* The scheduler's counters when this group was queued. */
	uint64_t seen_begun, seen_better;
	int64_t seen_held_us[HOLDS];
};

/* Return the name of a phase: "queued". */
const char *timeline_phase_name(enum phase p);
/* Return the name of a hold: "blocks". */
const char *timeline_hold_name(enum hold h);

/* Enter the phase; no effect if it is the current one.  A time before the current phase's begin counts as
 * that begin. */
void timeline_enter(struct timeline *t, enum phase p, int64_t now_us);
/* Close the last phase. */
void timeline_end(struct timeline *t, int64_t now_us);

#endif
