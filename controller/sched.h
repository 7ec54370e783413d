/* sched.h - which sequences run in the next step, and what their results mean.
 * Pure: no sockets, no clock, no globals; time and results are arguments, the plan and the
 * events are the output.  Owns the groups, their sequences, the block tables and the slots.
 *
 * Whose turn it is says queue.h.  A step holds at most max_rows tokens: one of every running
 * sequence that decodes, then parts of prompts (chunked prefill) by turns, as many as fit the
 * time that a step should take: who decodes, and who arrives, waits no longer.  When blocks
 * run out, the youngest group of the lowest priority is preempted: swapped to host blocks, or
 * let go and its tokens computed anew later, whichever is estimated cheaper.  Plans go out
 * before the results of earlier ones are back (docs/ARCHITECTURE.md, "One step ahead"): at
 * most SCHED_AHEAD under way.
 *
 * A beam search (beam.h) is a group whose sequences are its hypotheses.  They run, wait and are
 * preempted like others, but none runs ahead: when each has its candidates, in whatever order, the
 * search goes on, and hypotheses fork and die.  Its tokens are told when it is over, all at once.
 *
 * What prompts have in common is computed once: full blocks are found by their tokens
 * (prefix.h).  The outputs of a group share the prompt's blocks: the first one computes them,
 * the others fork from it and get copies of what they write into (copy-on-write). */
#ifndef QUERN_CONTROLLER_SCHED_H
#define QUERN_CONTROLLER_SCHED_H

#include "controller/seq.h"
#include "proto/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCHED_AHEAD = 2 };

struct sched;

enum sched_preempt { SCHED_AUTO, SCHED_SWAP, SCHED_RECOMPUTE };

struct sched_config {
	uint32_t block_size;
	uint32_t max_seqs;      /* sequences on the worker, runs of a step */
	uint32_t max_rows;      /* tokens of a step */
	uint32_t chunk;         /* largest part of a prompt in one step; 0: max_rows */
	bool prefill_separate;  /* a step computes prompts or decodes, not both */
	bool no_cache;          /* no prefix cache */
	enum sched_preempt preempt;
	uint64_t seed;          /* of the prefix cache's hashes */
	int64_t step_us;        /* prompts get so many rows of a step that they take about as long
	                           (sched_speed); 0: what the budget allows */
	uint32_t min_prompt_rows; /* but so many at least; 0: 128 */
	int64_t probe_us;       /* how long a worker serves without suspects (sched_blame) at first */
	int64_t aging_us;       /* who waits longer goes before any priority; 0: 60 s */
};

enum sched_event_kind { SCHED_TOKEN, SCHED_OUTPUT_DONE, SCHED_GROUP_DONE, SCHED_GROUP_FAILED };

struct sched_event {
	enum sched_event_kind kind;
	uint64_t job;
	uint32_t index;
	uint32_t token;         /* TOKEN */
	bool stop;              /* TOKEN: it is the stop token that ends its output */
	int32_t logprob;        /* TOKEN: index in the result's logprobs, -1: none */
	bool searched;          /* TOKEN: of a beam search; logprob is an index in the events' own */
	enum finish finish;     /* OUTPUT_DONE */
	int64_t stop_token;     /* OUTPUT_DONE: -1: none */
	enum code code;         /* GROUP_FAILED */
	const char *why;        /* GROUP_FAILED: static; NULL: what the code says */
	int64_t arrival_us, first_run_us, first_token_us;       /* GROUP_DONE */
	uint32_t cached_tokens; /* GROUP_DONE */
	bool class_changed;     /* GROUP_DONE */
};

struct sched_events {
	struct sched_event *v;
	uint32_t n, cap;        /* whoever has dealt with them sets n to 0 */
	struct result said;     /* logprobs of what beam searches found: all of it comes at the end */
};
void sched_events_fini(struct sched_events *e);

struct sched *sched_new(const struct sched_config *cfg);
void sched_free(struct sched *s);       /* with all its groups; NULL is fine */

/* A worker serves: this many blocks, everything free.  Plans are numbered from 1. */
void sched_start(struct sched *s, uint32_t n_blocks, uint32_t n_host_blocks, uint64_t epoch);
/* What swapping and recomputing cost on it, for SCHED_AUTO; 0: not known (recompute). */
void sched_speed(struct sched *s, double prefill_tokens_per_s, double link_bytes_per_s, uint64_t block_bytes);
/* Before sched_lost(), where the worker is not known to have been innocent: who was under way may be why.
 * Who was three times in a row, at the same place, and the third time alone (suspects run alone, and on a
 * worker that has served for a while), is guilty from then on: group.guilty.  To be ended by whoever has the schedulers. */
void sched_blame(struct sched *s);
/* The worker is gone: what ran waits, with the tokens it has; plans under way are forgotten. */
void sched_lost(struct sched *s);

/* Queue a group; takes it.  Events of it are reported from now on. */
void sched_add(struct sched *s, struct group **g, int64_t now_us);
struct group *sched_find(struct sched *s, uint64_t job);        /* NULL: none that lives */

/* One output is over (a stop string; of a beam search nothing happens), or all of a group are.
 * Unknown jobs are ignored. */
void sched_stop(struct sched *s, uint64_t job, uint32_t index, struct sched_events *ev);
void sched_cancel(struct sched *s, uint64_t job, struct sched_events *ev);
/* Fail all groups whose deadline has passed. */
void sched_expire(struct sched *s, int64_t now_us, struct sched_events *ev);
/* Fail one group; why as in the event. */
void sched_fail(struct sched *s, struct group *g, enum code code, const char *why, struct sched_events *ev);

/* The next plan; false: nothing to do now (nothing runs, or SCHED_AHEAD are under way). */
bool sched_plan(struct sched *s, int64_t now_us, struct plan *out);
/* The result of the oldest plan under way.  -EPROTO: not that one, or of another shape. */
int sched_apply(struct sched *s, const struct result *r, int64_t now_us, struct sched_events *ev);

/* Whose run slot had in the oldest plan under way; NULL: nobody's, or of a group that is over.
 * Before sched_apply(). */
const struct group *sched_run_of(const struct sched *s, uint32_t slot);

struct sched_stats {
	uint32_t n_running, n_waiting;          /* sequences */
	uint32_t n_groups;
	uint64_t queued_tokens;                 /* prompt tokens of groups that have not begun */
	uint32_t n_queued;                      /* groups that have not begun */
	uint64_t begun_tokens;                  /* tokens of those that have begun, and wait */
	uint32_t n_swapped;                     /* of those that wait */
	uint32_t n_blocks, n_free, n_cached;    /* free + cached + held = n_blocks */
	uint32_t n_host_blocks, n_host_free;
	uint32_t n_inflight;                    /* plans under way */
	uint64_t n_preempted;                   /* sequences, since the start */
	uint64_t n_swapped_out;                 /* of those, by swapping */
	uint64_t prefix_queries, prefix_hits;   /* prompt tokens looked up, found */
	uint64_t prompt_tokens, generated_tokens;
	uint64_t n_plans;
};
/* The pools, to look at; NULL until a worker serves. */
const struct blocks *sched_blocks(const struct sched *s);
const struct blocks *sched_host_blocks(const struct sched *s);
void sched_stats(const struct sched *s, struct sched_stats *out);

/* Invariants; aborts where one is broken. */
void sched_check(const struct sched *s);

#endif
