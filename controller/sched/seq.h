/* seq.h - sequences, and the groups of a job's outputs.
 * Plain data, owned by the scheduler; fields that other modules write are marked.  One thread: the engine's.
 *
 *                  admitted                  +-- stop token or string     FINISH_STOP ---+
 *   --> WAITING --------------> RUNNING -----+-- max_tokens               FINISH_LENGTH -+-> FINISHED
 *          ^                       |         +-- cancelled                FINISH_ABORT --+
 *          +--- preempted, or -----+         +-- deadline, error: the whole group fails -+
 *               the worker died              (all but max_tokens end a waiting sequence, too)
 *
 *   WAITING with blocks is "swapped": they are host blocks, and the whole group is swapped in again, with its
 *   K and V.  WAITING without blocks: its tokens are recomputed, except those in blocks that it retains.
 *   These stay cached, unless running sequences need them (sched_retain.c).  A sequence that is preempted
 *   while plans in flight choose its tokens has its blocks until the ids of these tokens are known: leaving.
 *
 *   A beam search has a sequence for each place: IDLE until a hypothesis forks into it (then WAITING, or
 *   RUNNING at once in a copy of its parent's slot), and IDLE again when that hypothesis dies.
 *
 * A group waits until a plan has its first run (first_run_us), and has begun from then on.  It has ended when
 * its last output is FINISHED; it is freed when no plan in flight names it (n_inflight). */
#ifndef QUERN_CONTROLLER_SCHED_SEQ_H
#define QUERN_CONTROLLER_SCHED_SEQ_H

#include "controller/sched/blocks.h"
#include "controller/sched/timeline.h"
#include "proto/codes.h"
#include "proto/params.h"

#include <stdbool.h>
#include <stdint.h>

enum seq_state {
	SEQ_WAITING, /* new, or preempted.  In the queue; of a group that has not begun, only the first
			sequence is queued */
	SEQ_RUNNING, /* has a slot on the worker */
	SEQ_FINISHED,
	SEQ_IDLE, /* place of a beam search that has no hypothesis */
};

struct beam;
struct group;
struct lane;

struct seq {
	struct group *group;
	uint32_t index; /* index among the job's outputs; in a beam search, the place of the hypothesis */
	enum seq_state state;
	enum finish finish;
	uint32_t *tokens; /* [n_tokens] prompt, then output; NULL before its first run: see group->prompt */
	uint32_t n_tokens, cap_tokens;
	int32_t mu; /* mu after its last token, with params.mirostat; worker and journal keep it */
	/* Deferral (sched_impl.h draws it): the state after all plans in flight. */
	uint32_t n_pending;  /* tokens that plans in flight choose at least: ids not known yet */
	uint32_t n_slack;    /* further tokens that open runs in flight may choose (sched_impl.h) */
	uint32_t n_computed; /* positions with K and V, including plans in flight, without slack */
	uint32_t n_before;   /* n_computed before the last plan with a run of this sequence */
	uint64_t planned;    /* number of the last plan with a run of this sequence */
	uint64_t entered;    /* number of the plan that gave it its slot, or set its token in that slot */
	uint32_t n_entered;  /* n_tokens at that time */
	struct block_table table; /* device blocks; host blocks while swapped */
	uint32_t n_named;         /* its first rows, which have a node */
	int32_t node;             /* node of the last of these, held; n_named is 0: CONTENTS_NONE */
	/* While waiting: positions whose blocks it retains, 0: none.  `node` is then the node of the last
	 * of these blocks, which may be partly filled, and n_named the number of all. */
	uint32_t n_retained;
	uint32_t n_reached; /* n_computed when it was preempted; rows before it are recomputed */
	uint32_t n_branch;  /* end of the prefix that was cached when it was admitted: others share it */
	bool leaving;       /* preempted; has device blocks until its tokens in flight are known */
	bool queued;        /* is in the queue */
	bool held;          /* running; its last run sat out because its mask is not ready */
	bool set_due;       /* beam search: its last token is chosen but not set in its slot */
	uint32_t slot;      /* slot on the worker, while running */
	uint32_t n_preempted;
	uint32_t backlog; /* while waiting: tokens to recompute, counted in sched_stats.begun_tokens */
	/* Workers lost in a row while this sequence was in flight at the same place, positions
	 * strike_from..strike_end-1; the last loss was in strike_epoch (sched_suspect.c). */
	uint32_t n_strikes, strike_from, strike_end;
	uint64_t strike_epoch;
	uint32_t fork_of;        /* new in a beam search: place of its parent; else SEQ_NO_PLACE */
	struct seq *prev, *next; /* neighbours in the queue, while queued */
};

#define SEQ_NO_PLACE UINT32_MAX

/* All outputs of one job. */
struct group {
	uint64_t job;
	uint64_t order;       /* order of arrival */
	struct params params; /* owned.  In a beam search, logprobs is the number requested of the worker */
	uint32_t *prompt;     /* owned, [n_prompt] */
	uint32_t n_prompt;
	struct seq *seqs; /* [n_seqs] outputs, or places of a beam search */
	uint32_t n_seqs;
	struct beam *beam; /* owned; NULL: outputs are sampled */
	int64_t *sums;     /* owned, [n_sums]: sums over the rows of positions 0..n_summed-1 (sched_pool.c) */
	uint32_t n_sums, n_summed;
	bool decided;        /* beam search: its last step is in no plan yet */
	uint32_t n_live;     /* sequences that have not finished; in a beam search 1 until its end */
	uint32_t n_inflight; /* its runs in plans in flight */
	bool suspect;  /* was running when two workers died in a row: it is quarantined and runs alone */
	bool poisoned; /* a third worker died, while it ran alone: its job must fail */
	int64_t deadline_us;    /* 0: none */
	int32_t priority;       /* lower runs first */
	uint64_t account;       /* account charged in fair sharing: its API key or owner; 0: none */
	uint64_t user;          /* user within the account; 0: none */
	uint32_t share;         /* weight of the account relative to others; 0 counts as 1 */
	uint64_t salt;          /* tenant of the prefix cache */
	bool durable;           /* waits for a worker without a time limit */
	struct lane *lane;      /* its lane while it is in a scheduler (queue.h) */
	uint32_t cached_tokens; /* prompt tokens found in the prefix cache when it began */
	int64_t arrival_us, first_run_us, first_token_us;
	struct timeline *times;     /* owned: its phases and their times */
	uint8_t phase;              /* current enum phase of times: a step reads it for each sequence */
	int64_t since_us;           /* when a plan last had a run of this group; until then its arrival */
	int64_t protected_until_us; /* admitted for its age: until then not preempted for a better priority */
	/* Written by the owner of several schedulers (fleet.c): */
	uint32_t numerics_class; /* numerics class of its tokens; 0: it has no tokens, or never moved */
	bool class_changed;      /* continued in another numerics class */
	int64_t parked_us;       /* time since which no replica takes it; 0: a replica has it */
	bool unsized; /* accepted before the size of any replica was known: it may fit no replica */
	struct group *prev, *next; /* all groups, by arrival */
	struct group *next_dead;   /* next ended group that is still in plans in flight */
};

/* Create a group; takes prompt and params.  With a beam_width it is a beam search, with its first hypothesis
 * at place 0. */
struct group *group_new(uint64_t job, uint32_t *prompt, uint32_t n_prompt, struct params *params);
/* Set the tokens that the outputs have already; called before the group is added to a scheduler.  tokens
 * holds the outputs one after another, n[i] tokens of output i (fewer than max_tokens); UINT32_MAX: that
 * output has ended.  At least one output has not ended.  mus[i]: mu of output i after its tokens, if it has
 * tokens; used with params.mirostat only, and may else be NULL. */
void group_resume(struct group *g, const uint32_t *tokens, const uint32_t *n, const int32_t *mus);
void group_free(struct group *g); /* NULL is fine */

/* Return the number of tokens, known and in flight. */
static inline uint32_t seq_total(const struct seq *s)
{
	return s->n_tokens + s->n_pending;
}

/* Return whether all positions but the last have K and V: the next run is one row. */
static inline bool seq_decodes(const struct seq *s)
{
	return seq_total(s) - s->n_computed == 1;
}

/* Return whether the sequence is swapped out. */
static inline bool seq_is_swapped(const struct seq *s)
{
	return s->state == SEQ_WAITING && s->table.n > 0 && !s->leaving;
}

/* Return the number of known output tokens. */
static inline uint32_t seq_n_out(const struct seq *s)
{
	return s->n_tokens - s->group->n_prompt;
}

void seq_own_tokens(struct seq *s); /* copies the group's prompt, unless tokens is set */
void seq_append(struct seq *s, uint32_t token);
/* Replace to's tokens by those of `from`, a sequence of the same group. */
void seq_copy_tokens(struct seq *to, const struct seq *from);

#endif
