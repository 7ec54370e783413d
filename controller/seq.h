/* seq.h - sequences, and the groups that a job's outputs form.
 * Plain data of the scheduler; who changes a field is said beside it. */
#ifndef QUERN_CONTROLLER_SEQ_H
#define QUERN_CONTROLLER_SEQ_H

#include "controller/blocks.h"
#include "proto/codes.h"
#include "proto/params.h"

#include <stdbool.h>
#include <stdint.h>

enum seq_state {
	SEQ_WAITING,            /* new, or preempted: in the queue, except that of a group that has not
	                           begun one stands there for all */
	SEQ_RUNNING,            /* has a slot on the worker */
	SEQ_FINISHED,
	SEQ_IDLE,               /* a place of a beam search where no hypothesis lives now */
};

struct beam;
struct group;
struct lane;

struct seq {
	struct group *group;
	uint32_t index;         /* which output of the job; of a beam search, the place of a hypothesis */
	enum seq_state state;
	enum finish finish;
	uint32_t *tokens;       /* [n_tokens] prompt, then output; NULL until first run (then the group's
	                           prompt is meant) */
	uint32_t n_tokens, cap_tokens;
	uint32_t n_pending;     /* tokens chosen by plans under way, ids not known yet */
	uint32_t n_computed;    /* positions whose K and V are in the cache, or will be by plans under way */
	uint32_t n_before;      /* n_computed before the last plan that has a run of it */
	struct block_table table;
	struct block_table host; /* swapped out: where positions 0..n_computed-1 are; else empty */
	uint32_t n_hashed;      /* blocks of the table that were published, or found so */
	uint64_t chain;         /* behind those (blocks.h) */
	bool queued;            /* in the waiting queue */
	bool set_due;           /* of a beam search: its last token was chosen, its slot does not know */
	uint32_t slot;          /* on the worker, while running */
	uint64_t planned;       /* number of the last plan that has a run of it */
	uint64_t entered;       /* number of the plan that gave it its slot, or set its token there */
	uint32_t n_entered;     /* tokens that it had then */
	uint32_t n_preempted;
	uint32_t waits_with;    /* tokens to compute again, as it counts among those that wait */
	/* Workers that were lost while it was under way (sched_suspect.c): so many in a row at this place,
	   positions lost_from..lost_end-1, last in the group of this epoch. */
	uint32_t n_lost, lost_from, lost_end;
	uint64_t lost_epoch;
	uint32_t fork_of;       /* new in a beam search: the place whose blocks it can share; SEQ_NO_PLACE */
	struct seq *prev, *next; /* waiting queue, while queued */
};

#define SEQ_NO_PLACE UINT32_MAX

/* All outputs of one job. */
struct group {
	uint64_t job;
	uint64_t order;         /* of arrival: the queue's order */
	struct params params;   /* owned.  Of a beam search, logprobs are what it asks the worker for */
	uint32_t *prompt;       /* owned, [n_prompt] */
	uint32_t n_prompt;
	struct seq *seqs;       /* [n_seqs] outputs, or places of a beam search */
	uint32_t n_seqs;
	struct beam *beam;      /* owned; NULL: outputs are sampled */
	bool decided;           /* a beam search whose last step the worker has not been told of */
	uint32_t n_live;        /* not finished; of a beam search 1 until it is over */
	uint32_t n_inflight;    /* runs of it in plans under way */
	bool failed;            /* ended by an error: no further events */
	bool suspect;           /* workers were lost by it, or by what ran beside it: it runs alone */
	bool guilty;            /* by it: it ran alone */
	int64_t deadline_us;    /* 0: none */
	int32_t priority;       /* lower runs first */
	uint64_t user;          /* whose share it is served from */
	uint32_t share;         /* how large that is against others; 0 counts as 1 */
	uint64_t salt;          /* tenant of the prefix cache */
	bool durable;           /* waits for a worker for as long as it takes */
	struct lane *lane;      /* while it lives (queue.h) */
	uint32_t cached_tokens; /* of the prompt, found in the prefix cache when it began */
	int64_t arrival_us, first_run_us, first_token_us;
	int64_t since_us;       /* when a plan last had a run of it, before the first its arrival */
	int64_t keeps_us;       /* until when it keeps the place that it got by waiting long (queue.h) */
	/* Of whoever has several schedulers (fleet.c): */
	uint32_t class;         /* numerics class of the tokens that it has; 0: it has none, or never moved */
	bool class_changed;     /* went on in another one */
	int64_t parked_us;      /* since when it waits for a replica that takes it; 0: it has one */
	bool unsized;           /* taken before any replica's size was known: it may fit none */
	struct group *prev, *next;      /* all groups, by arrival */
	struct group *hash_next;        /* by job */
};

/* Takes prompt and params.  With a beam_width it is a search, and its first place is taken. */
struct group *group_new(uint64_t job, uint32_t *prompt, uint32_t n_prompt, struct params *params);
/* Before it is added: its outputs have these tokens already, one after another, n[i] of them
 * (fewer than max_tokens); UINT32_MAX: that output has ended.  One at least has not. */
void group_resume(struct group *g, const uint32_t *tokens, const uint32_t *n);
void group_free(struct group *g);       /* NULL is fine */

/* Tokens, known and under way. */
static inline uint32_t seq_total(const struct seq *s)
{
	return s->n_tokens + s->n_pending;
}

/* Output tokens that are known. */
static inline uint32_t seq_n_out(const struct seq *s)
{
	return s->n_tokens - s->group->n_prompt;
}

void seq_own_tokens(struct seq *s);     /* its own copy of the prompt, if it has none */
void seq_append(struct seq *s, uint32_t token);
/* to, of the same group, has from's tokens. */
void seq_copy_tokens(struct seq *to, const struct seq *from);

#endif
