/* sched.h - the choice of the sequences of the next step, and the effects of a result.
 * Pure: no sockets, no clock, no globals; time and results are arguments, the plan and the events are the
 * output.  Owns the groups, their sequences, the block tables and the slots.  One thread: the engine's.
 *
 * queue.h chooses the next waiting sequence.  A step holds at most max_rows tokens: one of every running
 * sequence that decodes, then chunks of prompts (chunked prefill) in turn, as many as fit the target time of
 * a step, which bounds the latency of running and of new sequences.  When blocks run out, the youngest group
 * of the lowest priority is preempted: swapped to host blocks, or dropped and recomputed later, whichever is
 * estimated to cost less.  Plans are sent before the results of earlier plans have arrived: at most
 * SCHED_AHEAD are in flight (sched_impl.h draws two).
 *
 * A beam search (beam.h) is a group; its sequences are the hypotheses.  They run, wait and are preempted like
 * other sequences, but none runs ahead: when all hypotheses have their candidates, in whatever order,
 * hypotheses fork and die.  A search reports its tokens all at once when it has finished.
 *
 * A sequence with params.pool ends with its prompt (sched_pool.c): nothing is sampled.
 *
 * Common prefixes are computed once: full blocks are found by their tokens (contents.h).  The outputs of a
 * group share the prompt's blocks: the first output computes them, the others fork from it and get copies of
 * blocks that they write into (copy-on-write). */
#ifndef QUERN_CONTROLLER_SCHED_SCHED_H
#define QUERN_CONTROLLER_SCHED_SCHED_H

#include "controller/sched/seq.h"
#include "proto/counts.h"
#include "proto/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCHED_AHEAD = 2 };

struct sched;

enum sched_preempt { SCHED_AUTO, SCHED_SWAP, SCHED_RECOMPUTE };

struct sched_config {
	uint32_t block_size;
	uint32_t max_seqs;     /* sequences on the worker, and runs per step */
	uint32_t max_rows;     /* tokens per step */
	uint32_t chunk;        /* largest chunk of a prompt per step; 0: max_rows */
	bool prefill_separate; /* a step computes prompts or decodes, not both */
	bool no_cache;         /* disables the prefix cache */
	enum sched_preempt preempt;
	uint32_t drafts; /* most drafts in a run of a sequence that decodes (plan.h); 0: none */
	uint64_t seed;   /* seed of the prefix cache's hashes */
	int64_t step_us; /* target time of a step with prompts (sched_step_costs); 0: up to max_rows */
	/* If a step's decodes alone take more than half of step_us, the target is 4 times their time, up to
	 * 100 ms, and at least twice their time. */
	bool step_auto;
	uint32_t first_prompt_rows; /* prompt rows of a step while the step costs are unknown; 0: 128 */
	/* With step_auto, a step of prompts alone may have at least this many rows, however long it takes
	 * (sched_mixture_rows); 0: no such minimum. */
	uint32_t mixture_rows;
	int64_t probe_us; /* how long a new worker serves before suspects run on it (sched_worker_died) */
	int64_t aging_us; /* a group that waits longer gets a share of the admissions (queue.h); 0: 60 s */
};

enum sched_event_kind { SCHED_TOKEN, SCHED_POOLED, SCHED_OUTPUT_DONE, SCHED_GROUP_DONE, SCHED_GROUP_FAILED };

struct sched_event {
	enum sched_event_kind kind;
	uint64_t job;
	uint32_t index;
	uint32_t token;     /* TOKEN */
	bool stop;          /* TOKEN: the stop token that ends its output */
	int32_t mu;         /* TOKEN: mu of its sequence after the token, with params.mirostat */
	int32_t logprob;    /* TOKEN: index in the result's logprobs, -1: none */
	bool searched;      /* TOKEN: from a beam search; logprob is an index in beam_logprobs */
	size_t value0;      /* POOLED: index of its n_values in the events' values */
	uint32_t n_values;  /* POOLED */
	enum finish finish; /* OUTPUT_DONE */
	int64_t stop_token; /* OUTPUT_DONE; -1: none */
	enum code code;     /* GROUP_FAILED */
	const char *why;    /* GROUP_FAILED; NULL: the code's own text.  A static string, or owned by the
			       result's failed list */
	int64_t arrival_us, first_run_us, first_token_us; /* GROUP_DONE */
	uint32_t cached_tokens;                           /* GROUP_DONE */
	bool class_changed;                               /* GROUP_DONE */
	uint32_t times; /* GROUP_DONE, GROUP_FAILED: index in the events' times */
};

struct sched_events {
	struct sched_event *v;
	uint32_t n, cap;             /* the consumer sets n to 0 */
	struct result beam_logprobs; /* logprobs of beam searches' tokens, which no worker's result holds */
	float *values;               /* values of pooled sequences; NaN: the model returned none */
	size_t n_values, cap_values; /* n_values: set to 0 with n */
	struct timeline *times;      /* [n_times] timelines of groups that have ended */
	uint32_t n_times, cap_times; /* n_times: set to 0 with n */
};
void sched_events_fini(struct sched_events *e);

struct sched *sched_new(const struct sched_config *cfg);
void sched_free(struct sched *s); /* with all its groups; NULL is fine */

/* Set the kinds of the model's layers, for the next sched_start(); the default is one without a window. */
void sched_set_kinds(struct sched *s, const struct kinds *kinds);
/* Start serving: a worker is ready, with all these blocks free.  Plans are numbered from 1. */
void sched_start(struct sched *s, uint32_t n_blocks, uint32_t n_host_blocks, uint64_t epoch);
/* Cost of a step, used to size the chunks of prompts. */
struct sched_costs {
	double fixed_us;  /* per step, independent of its rows */
	double row_us;    /* per prompt row; 0: unknown */
	double decode_us; /* per sequence that decodes */
};
void sched_step_costs(struct sched *s, struct sched_costs c);

/* Return the number of rows that give each of n experts, of which a row uses n_chosen, as many rows as
 * kernels compute at once.  With fewer rows, each further row of a step reads experts for itself alone, so
 * that rows seem dear although many would be cheap.  0: not a mixture of experts. */
uint32_t sched_mixture_rows(uint32_t n_experts, uint32_t n_chosen);
/* Set the number of rows above which a step streams weights to the device; 0: no step does.  Such a step
 * takes about as long whatever its rows.  So with step_auto a step of prompts alone gets as many rows as
 * allowed, and other steps get chunks that stay below the limit, unless decodes leave hardly any rows for
 * prompts. */
void sched_stream_above_rows(struct sched *s, uint32_t rows);
/* Set the speeds of the worker, which give SCHED_AUTO the costs of swapping and recomputing; 0: unknown
 * (recompute). */
void sched_speed(struct sched *s, double prefill_tokens_per_s, double link_bytes_per_s, uint64_t block_bytes);
/* Call before sched_lost(), unless the worker was ended on purpose: every sequence in flight gets a strike.
 * After two strikes in a row at the same place, its group is a suspect: it runs alone, on a worker that has
 * served for a while.  After a third strike, alone, the group is poisoned (group.poisoned), and the owner of
 * the schedulers fails it. */
void sched_worker_died(struct sched *s);
/* The worker is gone: running sequences wait, with the tokens they have; plans in flight are void. */
void sched_lost(struct sched *s);

/* Set the time for the following calls that take no time (sched_lost, sched_adopt, the ends of groups). */
void sched_clock(struct sched *s, int64_t now_us);

/* Queue a group; takes it.  Its events are reported from now on. */
void sched_add(struct sched *s, struct group **g, int64_t now_us);
struct group *sched_find(struct sched *s, uint64_t job); /* NULL: no live group */

/* End one output (at a stop string; no-op for a beam search), or all outputs of a job.  Unknown jobs are
 * ignored. */
void sched_stop(struct sched *s, uint64_t job, uint32_t index, struct sched_events *ev);
void sched_cancel(struct sched *s, uint64_t job, struct sched_events *ev);
/* Fail all groups with a deadline in the past. */
void sched_expire(struct sched *s, int64_t now_us, struct sched_events *ev);
/* Fail one group.  code, why: as in struct sched_event. */
void sched_fail(struct sched *s, struct group *g, enum code code, const char *why, struct sched_events *ev);

/* Make the next plan.  False: nothing to do now (nothing can run, or SCHED_AHEAD plans are in flight). */
bool sched_plan(struct sched *s, int64_t now_us, struct plan *out);
/* Apply the result of the oldest plan in flight.  -EPROTO: it belongs to another plan, or has another
 * shape. */
int sched_apply(struct sched *s, const struct result *r, int64_t now_us, struct sched_events *ev);

/* The mask for which the sequence in this slot sat out (struct result) is ready: the sequence runs again. */
void sched_awake(struct sched *s, uint32_t slot);

/* Return the group that has a run in this slot in the oldest plan in flight; NULL: none, or the group has
 * ended.  Call before sched_apply(). */
const struct group *sched_run_of(const struct sched *s, uint32_t slot);

/* Return the timeline of a live group, as if the group ended now. */
void sched_times(struct sched *s, const struct group *g, int64_t now_us, struct timeline *out);

struct sched_stats {
	union {
		struct counts counts; /* all that the scheduler knows */
		struct {              /* the same members, by name */
			COUNTS(COUNT_MEMBER, COUNT_WORKER_MEMBER)
		};
	};
	uint32_t n_groups;
	uint32_t n_queued;      /* groups that have not begun */
	uint64_t begun_tokens;  /* tokens to recompute, of waiting sequences of groups that have begun */
	uint32_t n_inflight;    /* plans in flight */
	uint64_t n_order_steps; /* comparisons made to keep the lists in order: the cost of moving groups */
};
/* Groups of an account that have not begun, and the tokens of their prompts. */
struct sched_queued {
	uint32_t n;
	uint64_t tokens;
};
struct sched_queued sched_queued(const struct sched *s, uint64_t account);
/* Return a block pool; NULL until a worker serves.  Only the scheduler changes it. */
struct blocks *sched_blocks(const struct sched *s, enum contents_store store);
void sched_stats(const struct sched *s, struct sched_stats *out);
/* Empty the prefix cache.  Running sequences continue; blocks computed earlier are not found again. */
void sched_forget_prefixes(struct sched *s);

/* Abort if an invariant is broken. */
void sched_check(const struct sched *s);

#endif
