/* plan.h - one step: what the controller orders (struct plan) and what the worker answers
 * (struct result).  Everything a worker does in a step stands in that step's plan.
 *
 * Order within a step:  drop, seqs, sets, tables, forks | swap_out, swap_in, copies | runs.
 *
 *   drop     slots whose sequences are over for this worker
 *   seqs     sequences that are new to the worker, or whose state is sent anew: all of it
 *   sets     (slot, from, position, token): the slot becomes a copy of slot `from` as it was before
 *            this plan's tables (unless it is that slot), and its token at position, its last or
 *            the one behind, is this one.  A beam search chooses tokens in the controller: the
 *            hypothesis that stays in its slot comes behind those that are copied from it, and
 *            table entries then say where each goes on writing
 *   tables   (slot, logical block, physical block): appended or replaced entries
 *   forks    child slot becomes a copy of the parent's state (tokens, table), with another
 *            output index
 *   swaps, copies   (source, destination) physical blocks
 *   runs     n_rows tokens of a slot from position pos0 on.  The tokens are those the worker
 *            holds for the slot: the prompt's, then what it sampled itself, so a plan can
 *            leave before the last token's id is known.
 *            PLAN_SAMPLE: choose the next token after the run's last row.  A run of 0 rows
 *            samples from the last row of the run of slot `from` in the same plan (a fork's first token).
 *
 * A slot is a small integer, the controller's name for a sequence on this worker
 * (0 .. max_slots-1).  The worker's per-slot state is a cache: `seqs` can rebuild it at any
 * time.  Plans are numbered from 1 within an epoch; a worker that misses one reports it.
 * Block numbers only; never an address or an offset. */
#ifndef QUERN_PROTO_PLAN_H
#define QUERN_PROTO_PLAN_H

#include "proto/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLAN_SAMPLE = 1 };

struct plan_seq {
	uint32_t slot;
	uint64_t seq;               /* the controller's id, for logs */
	uint32_t index;             /* which output of its job */
	uint32_t n_prompt;          /* of the tokens, so many are the prompt's */
	uint32_t n_tokens;
	uint32_t n_blocks;
	const uint32_t *tokens;     /* [n_tokens] prompt, then output so far; borrowed */
	const uint32_t *blocks;     /* [n_blocks] physical block of each logical one; borrowed */
	const struct params *params; /* borrowed */
};

struct plan_fork {
	uint32_t parent;
	uint32_t child;
	uint32_t index;             /* output index of the child */
};

struct plan_set {
	uint32_t slot;
	uint32_t from;              /* = slot: it goes on itself */
	uint32_t position;
	uint32_t token;
};

struct plan_table {
	uint32_t slot;
	uint32_t logical;
	uint32_t block;
};

struct plan_pair {
	uint32_t from;
	uint32_t to;
};

struct plan_run {
	uint32_t slot;
	uint32_t pos0;
	uint32_t n_rows;
	uint16_t flags;             /* PLAN_SAMPLE */
	uint16_t reserved;          /* 0 */
	uint32_t from;              /* of a run with 0 rows: whose run; else = slot */
};

/* Arrays grow and are kept from step to step: a steady state allocates nothing. */
struct plan {
	uint64_t epoch;
	uint64_t number;
	uint32_t *drop;
	uint32_t n_drop, cap_drop;
	struct plan_seq *seqs;
	uint32_t n_seqs, cap_seqs;
	struct plan_fork *forks;
	uint32_t n_forks, cap_forks;
	struct plan_set *sets;
	uint32_t n_sets, cap_sets;
	struct plan_table *tables;
	uint32_t n_tables, cap_tables;
	struct plan_pair *swap_out, *swap_in, *copies;
	uint32_t n_swap_out, cap_swap_out, n_swap_in, cap_swap_in, n_copies, cap_copies;
	struct plan_run *runs;
	uint32_t n_runs, cap_runs;
	uint32_t n_rows;            /* sum over runs */
	uint32_t n_samples;         /* runs with PLAN_SAMPLE */
	void *store;                /* of a decoded plan: what its seqs borrow from (bus.c); else NULL */
};

/* Empties it, keeps the memory. */
void plan_reset(struct plan *p);
void plan_fini(struct plan *p);
uint32_t *plan_add_drop(struct plan *p);
struct plan_seq *plan_add_seq(struct plan *p);
struct plan_fork *plan_add_fork(struct plan *p);
struct plan_set *plan_add_set(struct plan *p);
struct plan_table *plan_add_table(struct plan *p);
struct plan_pair *plan_add_swap_out(struct plan *p);
struct plan_pair *plan_add_swap_in(struct plan *p);
struct plan_pair *plan_add_copy(struct plan *p);
struct plan_run *plan_add_run(struct plan *p);

/* One chosen token, or one prompt token whose logprob was asked for. */
struct result_logprob {
	uint32_t slot;
	uint32_t position;          /* in the sequence */
	uint32_t token;
	float logprob;
	uint32_t rank;              /* 1: most likely */
	uint32_t n_top;
	uint32_t top0;              /* first of its entries in top_ids, top_logprobs */
	bool prompt;                /* of the prompt */
};

struct result {
	uint64_t epoch;
	uint64_t number;            /* of the plan that it answers */
	uint32_t step_us;           /* how long the device worked */
	uint32_t *tokens;           /* [n_tokens] one per PLAN_SAMPLE run, in the plan's order */
	uint32_t n_tokens, cap_tokens;
	struct result_logprob *logprobs;
	uint32_t n_logprobs, cap_logprobs;
	uint32_t *top_ids;          /* [n_top] */
	float *top_logprobs;        /* [n_top] */
	uint32_t n_top, cap_top_ids, cap_top_logprobs;
};

void result_reset(struct result *r);
void result_fini(struct result *r);
void result_add_token(struct result *r, uint32_t token);
struct result_logprob *result_add_logprob(struct result *r);
void result_add_top(struct result *r, uint32_t id, float logprob);

#endif
