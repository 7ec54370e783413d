/* seq.h - sequences, and the groups that a job's outputs form.
 * Plain data, owned by the scheduler; fields that other modules write are marked.  One thread: the engine's.
 *
 *                  admitted                  +-- stop token or string     FINISH_STOP ---+
 *   --> WAITING --------------> RUNNING -----+-- max_tokens               FINISH_LENGTH -+-> FINISHED
 *          ^                       |         +-- cancelled                FINISH_ABORT --+
 *          +--- preempted, or -----+         +-- deadline, error: the whole group fails -+
 *               the worker died              (all but max_tokens end a waiting one, too)
 *
 *   WAITING with host blocks (host.n > 0) is "swapped": its group comes back as a whole, with its K and V;
 *   without, its tokens are computed again.
 *
 *   A beam search has a sequence for each place: IDLE until a hypothesis forks into it (then WAITING, or
 *   RUNNING at once in a copy of its parent's slot), and IDLE again when that hypothesis dies.
 *
 * A group waits until a plan has its first run (first_run_us), has begun from then on, and is over when its
 * last output is FINISHED; it is freed when no plan under way names it (n_inflight). */
#ifndef QUERN_CONTROLLER_SCHED_SEQ_H
#define QUERN_CONTROLLER_SCHED_SEQ_H

#include "controller/sched/blocks.h"
#include "controller/sched/timeline.h"
#include "proto/codes.h"
#include "proto/params.h"

#include <stdbool.h>
#include <stdint.h>

enum seq_state {
	SEQ_WAITING, /* new, or preempted.  In the queue; of a group that has not begun, only the first is */
	SEQ_RUNNING, /* has a slot on the worker */
	SEQ_FINISHED,
	SEQ_IDLE, /* a place of a beam search without a hypothesis */
};

struct beam;
struct group;
struct lane;

struct seq {
	struct group *group;
	uint32_t index; /* of the job's outputs; of a beam search, the place of a hypothesis */
	enum seq_state state;
	enum finish finish;
	uint32_t *tokens; /* [n_tokens] prompt, then output; NULL until it first runs: the group's prompt */
	uint32_t n_tokens, cap_tokens;
	int32_t mu; /* behind its last token, with params.mirostat; worker and journal keep its value */
	/* Deferral (sched_impl.h draws it): what plans under way will have done. */
	uint32_t n_pending;  /* tokens that plans under way choose: ids not known yet */
	uint32_t n_computed; /* positions with K and V in the cache, counting plans under way */
	uint32_t n_before;   /* n_computed before the last plan that has a run of it */
	uint64_t planned;    /* number of the last plan that has a run of it */
	uint64_t entered;    /* number of the plan that gave it its slot, or set its token there */
	uint32_t n_entered;  /* tokens that it had when it entered */
	struct block_table table;
	struct block_table host; /* swapped out: host blocks of positions 0..n_computed-1; else empty */
	uint32_t n_hashed;       /* blocks of the table that were published, or found in the prefix cache */
	uint64_t chain;          /* of these (blocks.h) */
	bool queued;             /* in the queue */
	bool set_due;  /* of a beam search: its last token is chosen, and its slot does not have it */
	uint32_t slot; /* on the worker, while running */
	uint32_t n_preempted;
	uint32_t backlog; /* while it waits: tokens to compute again, its part of sched_stats.begun_tokens */
	/* Workers lost in a row while it was under way at this place, positions strike_from..strike_end-1;
	   the last one in strike_epoch (sched_suspect.c). */
	uint32_t n_strikes, strike_from, strike_end;
	uint64_t strike_epoch;
	uint32_t fork_of;        /* new in a beam search: the place of its parent; else SEQ_NO_PLACE */
	struct seq *prev, *next; /* in the queue, while queued */
};

#define SEQ_NO_PLACE UINT32_MAX

/* All outputs of one job. */
struct group {
	uint64_t job;
	uint64_t order;       /* of arrival */
	struct params params; /* owned.  Of a beam search, logprobs are what it requests of the worker */
	uint32_t *prompt;     /* owned, [n_prompt] */
	uint32_t n_prompt;
	struct seq *seqs; /* [n_seqs] outputs, or places of a beam search */
	uint32_t n_seqs;
	struct beam *beam; /* owned; NULL: outputs are sampled */
	int64_t *sums;     /* owned, [n_sums]: of the rows of positions 0..n_summed-1 (sched_pool.c) */
	uint32_t n_sums, n_summed;
	bool decided;        /* of a beam search: its last step is in no plan yet */
	uint32_t n_live;     /* sequences not finished; of a beam search 1 until it is over */
	uint32_t n_inflight; /* runs of it in plans under way */
	bool failed;         /* ended by an error: no further events */
	bool suspect;        /* was running when two workers died in a row: it is quarantined, runs alone */
	bool poisoned;       /* a third worker died, while it ran alone: its job must fail */
	int64_t deadline_us; /* 0: none */
	int32_t priority;    /* lower runs first */
	uint64_t account;    /* in fair sharing: of its API key or owner; 0: none */
	uint64_t user;       /* of the account; 0: none */
	uint32_t share;      /* the account's, relative to others'; 0 counts as 1 */
	uint64_t salt;       /* tenant of the prefix cache */
	bool durable;        /* waits for a worker without a limit */
	struct lane *lane;   /* while it is in a scheduler (queue.h) */
	uint32_t cached_tokens; /* of the prompt, found in the prefix cache when it began */
	int64_t arrival_us, first_run_us, first_token_us;
	struct timeline *times;     /* owned: where its time goes */
	uint8_t phase;              /* of times, enum phase: a step reads it for each sequence */
	int64_t since_us;           /* when a plan last had a run of it; before the first, its arrival */
	int64_t protected_until_us; /* admitted for its age: not preempted for a better priority before */
	/* Written by the owner of several schedulers (fleet.c): */
	uint32_t numerics_class;   /* of its tokens; 0: it has none, or never moved */
	bool class_changed;        /* continued in another numerics class */
	int64_t parked_us;         /* time since which no replica takes it; 0: a replica has it */
	bool unsized;              /* accepted before the size of any replica was known: it may fit none */
	struct group *prev, *next; /* all groups, by arrival */
	struct group *next_dead;   /* groups that are over, but still in plans under way */
};

/* Takes prompt and params.  With a beam_width it is a beam search, with its first hypothesis at place 0. */
struct group *group_new(uint64_t job, uint32_t *prompt, uint32_t n_prompt, struct params *params);
/* Before it is added to a scheduler: tokens that its outputs have already, one output after another, n[i]
 * of output i (fewer than max_tokens); UINT32_MAX: that output has ended.  At least one has not.  mus[i]: of
 * output i behind its tokens, if it has some; used with params.mirostat only, and may else be NULL. */
void group_resume(struct group *g, const uint32_t *tokens, const uint32_t *n, const int32_t *mus);
void group_free(struct group *g); /* NULL is fine */

/* Tokens, known and under way. */
static inline uint32_t seq_total(const struct seq *s)
{
	return s->n_tokens + s->n_pending;
}

/* All positions but the last have K and V: the next run is one row. */
static inline bool seq_decodes(const struct seq *s)
{
	return seq_total(s) - s->n_computed == 1;
}

/* Output tokens that are known. */
static inline uint32_t seq_n_out(const struct seq *s)
{
	return s->n_tokens - s->group->n_prompt;
}

void seq_own_tokens(struct seq *s); /* copies the prompt, unless it has tokens of its own */
void seq_append(struct seq *s, uint32_t token);
/* Of the same group; replaces to's tokens. */
void seq_copy_tokens(struct seq *to, const struct seq *from);

#endif
