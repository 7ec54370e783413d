/* sched.h - which sequences run in the next step, and what a step's results mean.
 * Pure: no sockets, no clock, no globals; time and results are arguments, the plan and the events are the
 * output.  Owns the groups, their sequences, the block tables and the slots.  One thread: the engine's.
 *
 * queue.h chooses the next waiting sequence.  A step holds at most max_rows tokens: one of every running
 * sequence that decodes, then chunks of prompts (chunked prefill) in turn, as many as fit the time that a
 * step should take, which bounds the latency of running and of new sequences.  When blocks run out, the
 * youngest group of the lowest priority is preempted: swapped to host blocks, or dropped and computed again
 * later, whichever is estimated to cost less.  Plans are sent before the results of earlier ones are back: at
 * most SCHED_AHEAD are under way (sched_impl.h draws two).
 *
 * A beam search (beam.h) is a group; its sequences are the hypotheses.  They run, wait and are preempted
 * like others, but none runs ahead: when all of them have their candidates, in whatever order, hypotheses
 * fork and die.  Its tokens are reported when it is over, all at once.
 *
 * A sequence with params.pool ends with its prompt (sched_pool.c): nothing is sampled.
 *
 * Common prefixes are computed once: full blocks are found by their tokens (prefix.h).  The outputs of a
 * group share the prompt's blocks: the first one computes them, the others fork from it and get copies of
 * blocks that they write into (copy-on-write). */
#ifndef QUERN_CONTROLLER_SCHED_SCHED_H
#define QUERN_CONTROLLER_SCHED_SCHED_H

#include "controller/sched/seq.h"
#include "proto/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCHED_AHEAD = 2 };

struct sched;

enum sched_preempt { SCHED_AUTO, SCHED_SWAP, SCHED_RECOMPUTE };

struct sched_config {
	uint32_t block_size;
	uint32_t max_seqs;     /* sequences on the worker, runs of a step */
	uint32_t max_rows;     /* tokens of a step */
	uint32_t chunk;        /* largest part of a prompt in one step; 0: max_rows */
	bool prefill_separate; /* a step computes prompts or decodes, not both */
	bool no_cache;         /* no prefix cache */
	enum sched_preempt preempt;
	uint64_t seed;   /* of the prefix cache's hashes */
	int64_t step_us; /* a step with prompts takes about this long (sched_step_costs); 0: up to max_rows */
	/* Where its decodes alone take more than half of that: 4 times as long as these up to 100 ms, and at
	 * least twice. */
	bool step_auto;
	uint32_t first_prompt_rows; /* of prompts in a step, while its costs are unknown; 0: 128 */
	/* With step_auto, a step of prompts alone has room for at least this many rows, however long it takes
	 * (sched_mixture_rows); 0: its costs alone count. */
	uint32_t mixture_rows;
	int64_t probe_us; /* how long a new worker serves before suspects run on it (sched_worker_died) */
	int64_t aging_us; /* a group that waits longer has a share of the turns (queue.h); 0: 60 s */
};

enum sched_event_kind { SCHED_TOKEN, SCHED_POOLED, SCHED_OUTPUT_DONE, SCHED_GROUP_DONE, SCHED_GROUP_FAILED };

struct sched_event {
	enum sched_event_kind kind;
	uint64_t job;
	uint32_t index;
	uint32_t token;     /* TOKEN */
	bool stop;          /* TOKEN: it is the stop token that ends its output */
	int32_t mu;         /* TOKEN: of its sequence behind it, with params.mirostat */
	int32_t logprob;    /* TOKEN: index in the result's logprobs, -1: none */
	bool searched;      /* TOKEN: of a beam search; logprob is an index in beam_logprobs */
	size_t value0;      /* POOLED: n_values of the events' values, from this one on */
	uint32_t n_values;  /* POOLED */
	enum finish finish; /* OUTPUT_DONE */
	int64_t stop_token; /* OUTPUT_DONE: -1: none */
	enum code code;     /* GROUP_FAILED */
	const char *why;    /* GROUP_FAILED: NULL: the code's own text.  Static, or of the result's failed */
	int64_t arrival_us, first_run_us, first_token_us; /* GROUP_DONE */
	uint32_t cached_tokens;                           /* GROUP_DONE */
	bool class_changed;                               /* GROUP_DONE */
	uint32_t times; /* GROUP_DONE, GROUP_FAILED: index in the events' times */
};

struct sched_events {
	struct sched_event *v;
	uint32_t n, cap;             /* the consumer sets n to 0 */
	struct result beam_logprobs; /* of tokens of beam searches, which no result of a worker holds */
	float *values;               /* [n_values] of pooled sequences; NaN: the model gave none */
	size_t n_values, cap_values; /* n_values: set to 0 with n */
	struct timeline *times;      /* [n_times] of groups that have ended */
	uint32_t n_times, cap_times; /* n_times: set to 0 with n */
};
void sched_events_fini(struct sched_events *e);

struct sched *sched_new(const struct sched_config *cfg);
void sched_free(struct sched *s); /* with all its groups; NULL is fine */

/* A worker serves, with all these blocks free.  Plans are numbered from 1. */
void sched_start(struct sched *s, uint32_t n_blocks, uint32_t n_host_blocks, uint64_t epoch);
/* How long a step takes, to size the parts of prompts. */
struct sched_costs {
	double fixed_us;  /* whatever the rows */
	double row_us;    /* and for each row of a prompt; 0: unknown */
	double decode_us; /* and for each sequence that decodes */
};
void sched_step_costs(struct sched *s, struct sched_costs c);

/* Rows that give each of n experts, of which a row has n_chosen, as many as kernels work on at once: with
 * fewer, each further row of a step has experts read for itself, so that rows seem dear however many would
 * be cheap.  0: not a mixture. */
uint32_t sched_mixture_rows(uint32_t n_experts, uint32_t n_chosen);
/* A step of more rows has weights sent to the device, and takes about as long whatever its rows: with
 * step_auto one of prompts alone has as many as it may, and others have their prompts in parts that are not
 * sent for, unless decodes leave hardly any rows for these.  0: none has. */
void sched_send_above(struct sched *s, uint32_t rows);
/* The costs of swapping and recomputing on it, for SCHED_AUTO; 0: unknown (recompute). */
void sched_speed(struct sched *s, double prefill_tokens_per_s, double link_bytes_per_s, uint64_t block_bytes);
/* Call before sched_lost(), unless the worker was ended on purpose: every sequence under way gets a strike.
 * With two strikes in a row at the same place its group is a suspect: it runs alone, on a worker that has
 * served for a while.  With a third strike, alone, the group is poisoned (group.poisoned), and the owner of
 * the schedulers fails it. */
void sched_worker_died(struct sched *s);
/* The worker is gone: running sequences wait, with the tokens they have; plans under way are void. */
void sched_lost(struct sched *s);

/* The time of what follows without a time of its own (sched_lost, sched_adopt, the ends of groups). */
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
/* Fail one group; code and why as in the event. */
void sched_fail(struct sched *s, struct group *g, enum code code, const char *why, struct sched_events *ev);

/* The next plan; false: nothing to do now (nothing can run, or SCHED_AHEAD plans are under way). */
bool sched_plan(struct sched *s, int64_t now_us, struct plan *out);
/* Apply the result of the oldest plan under way.  -EPROTO: it is of another plan, or of another shape. */
int sched_apply(struct sched *s, const struct result *r, int64_t now_us, struct sched_events *ev);

/* The group with a run in this slot in the oldest plan under way; NULL: none, or it is over.  Call before
 * sched_apply(). */
const struct group *sched_run_of(const struct sched *s, uint32_t slot);

/* Where the time of a live group went, as if it ended now. */
void sched_times(struct sched *s, const struct group *g, int64_t now_us, struct timeline *out);

struct sched_stats {
	uint32_t n_running, n_waiting; /* sequences */
	uint32_t n_groups;
	uint64_t queued_tokens; /* prompt tokens of groups that have not begun */
	uint32_t n_queued;      /* groups that have not begun */
	uint64_t begun_tokens;  /* to compute again, of waiting sequences of groups that have begun */
	uint32_t n_swapped;     /* waiting sequences that are swapped out */
	uint32_t n_blocks, n_free, n_cached; /* free + cached + held = n_blocks */
	uint32_t n_host_blocks, n_host_free;
	uint32_t n_inflight;                  /* plans under way */
	uint64_t n_preempted;                 /* sequences, since the start */
	uint64_t n_swapped_out;               /* of those, by swapping */
	uint64_t prefix_queries, prefix_hits; /* prompt tokens looked up, found */
	uint64_t prompt_tokens, generated_tokens;
	uint64_t n_plans;
	uint64_t n_order_steps; /* comparisons made to keep its lists in order: what a move of groups costs */
};
/* Groups that have not begun, and the tokens of their prompts. */
struct sched_queued {
	uint32_t n;
	uint64_t tokens;
};
struct sched_queued sched_queued(const struct sched *s, uint64_t account);
/* The pools, to read; NULL until a worker serves. */
const struct blocks *sched_blocks(const struct sched *s);
const struct blocks *sched_host_blocks(const struct sched *s);
void sched_stats(const struct sched *s, struct sched_stats *out);

/* Aborts where an invariant is broken. */
void sched_check(const struct sched *s);

#endif
