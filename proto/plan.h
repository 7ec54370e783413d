/* plan.h - one step: the controller's orders (struct plan) and the worker's reply (struct result).
 * A worker does nothing in a step that is not in that step's plan.
 *
 * Order within a step:  drop, drop_constraints, constraints, seqs, sets, tables, forks | swap_out, swap_in,
 * copies | runs.
 *
 *   drop     slots with sequences that this worker no longer needs
 *   drop_constraints   constraints that this worker no longer needs: no slot uses them
 *   constraints   constraints that are new to this worker, with the numbers by which sequences refer to them
 *   seqs     sequences that are new to the worker, or resent: their whole state
 *   sets     (slot, from, position, token): the slot becomes a copy of slot `from` (if that is another
 *            slot) as that was before this plan's tables; then the token is written at position, which is
 *            the slot's last token or the next one.  For beam search, where the controller chooses the
 *            tokens: the hypothesis that stays in its slot comes after those copied from it, and table
 *            entries then give each hypothesis its own blocks to write
 *   tables   (slot, kind, logical block, physical block): appended or replaced entries of the slot's
 *            table for a kind of layers (base/kinds.h)
 *   forks    the child slot becomes a copy of the parent's state (tokens, table), with another output
 *            index
 *   swaps, copies   (source, destination) physical blocks, which have one size for all kinds
 *   runs     n_rows tokens of a slot from position pos0 on.  The worker holds the slot's tokens (the
 *            prompt, then those it sampled), so a plan can be sent before the last token's id is known.
 *            PLAN_SAMPLE: sample the next token after the run's last row.  A run of 0 rows samples from
 *            the last row of the run of slot `from` in the same plan (a fork's first token).
 *            PLAN_OPEN: an open run, see below.
 *
 * A sequence with params.mirostat has a state, mu, that every token changes.  The worker keeps mu with the
 * slot's tokens (a fork copies it), and returns it with each token, so that `seqs` can restore it.
 *
 * An open run (PLAN_OPEN, with PLAN_SAMPLE) speculates.  It begins at the slot's last token, wherever that is
 * when the plan begins; pos0 is the least position that it can have.  The run has at most n_rows rows: the
 * last token, then up to n_rows - 1 drafts, which are the worker's guesses of the next tokens.  Each row
 * draws the token after it.  A draft is accepted if it equals the token that the row before it drew, and all
 * drafts before it are accepted.  The run returns the drawn tokens up to the first one that is not an
 * accepted draft: exactly the tokens that as many runs of one row would have drawn.  While a plan with an
 * open run is in flight, the slot's next run is open as well.
 *
 *   slot 3 has 49 tokens       plan 8   (3, pos0 48, at most 4 rows, SAMPLE | OPEN)
 *   rows        t48  d49  d50  d51      the last token, and three drafts
 *   drawn       a49  a50  a51  a52      if d49 = a49, d50 = a50, d51 != a51: 3 tokens, a49 a50 a51
 *   plan 9   (3, pos0 49, at most 4 rows, SAMPLE | OPEN)   begins at position 51
 *
 * A sequence with params.pool is not sampled from.  Its result (struct result_pool) is returned with the
 * run that ends its prompt.  For a mean, each run returns the sum of its rows, and the controller adds the
 * sums.
 *
 * Three sequences, block_size 16.  Slot 3 decodes its 49th token, which needs a block.  Slot 5 is new, and
 * computes a first chunk of its prompt.  Slot 7 is preempted, its only block swapped out:
 *
 *   number 8, epoch 2
 *   drop     7
 *   seqs     slot 5: n_prompt 40, tokens [40], blocks 12 4, params
 *   tables   (3, 0, 3, 17)          slot 3, table before: 6 2 9      after: 6 2 9 17
 *   swap_out (30 -> 1)              device block 30 to host block 1
 *   runs     (3, pos0 48, 1 row, SAMPLE)   (5, pos0 0, 32 rows)
 *
 *   rows     | 48 | 0  1  2 ... 15 | 16 ... 31 |      position
 *            | 17 | 12             | 4         |      block that receives K and V
 *              |
 *   result   tokens [1]: slot 3's next; slot 5 samples when its last chunk is computed
 *
 * A slot is a small integer, the controller's name for a sequence on this worker (0 .. max_slots-1).  The
 * worker's state of a slot is a cache: `seqs` can rebuild it at any time.  Plans are numbered from 1 within
 * an epoch; a worker that misses one reports it.  Plans hold block numbers only, never an address or an
 * offset. */
#ifndef QUERN_PROTO_PLAN_H
#define QUERN_PROTO_PLAN_H

#include "base/kinds.h"
#include "proto/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLAN_SAMPLE = 1, PLAN_OPEN = 2, RESULT_REASON_SIZE = 256 };
enum { PLAN_DRAFTS_MAX = 15, PLAN_OPEN_ROWS = PLAN_DRAFTS_MAX + 1 }; /* of an open run */

/* Constraint of structured outputs.  The controller numbers the constraints of an epoch from 1, and does
 * not reuse the number of a dropped one.  A fork, or a slot set from another slot, inherits the
 * constraint. */
struct plan_constraint {
	uint32_t number;
	struct constraint *constraint; /* borrowed; use constraint_ref() to keep it */
};

struct plan_seq {
	uint32_t slot;
	uint64_t seq;      /* the controller's id, for logs */
	uint32_t index;    /* output index within its job */
	uint32_t n_prompt; /* tokens of the prompt */
	uint32_t n_tokens;
	uint32_t n_blocks;
	uint32_t constraint;         /* number of the constraint; 0: none */
	int32_t mu;                  /* with params.mirostat: mu after the last token */
	const uint32_t *tokens;      /* [n_tokens] prompt, then output so far; borrowed */
	const uint32_t *blocks;      /* [n_blocks][kinds] physical blocks of each logical one; borrowed */
	const struct params *params; /* borrowed */
};

struct plan_fork {
	uint32_t parent;
	uint32_t child;
	uint32_t index; /* output index of the child */
};

struct plan_set {
	uint32_t slot;
	uint32_t from; /* = slot: no copy */
	uint32_t position;
	uint32_t token;
};

struct plan_table {
	uint32_t slot;
	uint32_t logical;
	uint32_t block;
	uint32_t kind; /* kind of layers (base/kinds.h) */
};

/* In a sequence's blocks: one that is before the window of its kind, and not read. */
#define PLAN_NO_BLOCK UINT32_MAX

struct plan_pair {
	uint32_t from;
	uint32_t to;
};

struct plan_run {
	uint32_t slot;
	uint32_t pos0;
	uint32_t n_rows;
	uint16_t flags;    /* PLAN_SAMPLE, PLAN_OPEN */
	uint16_t reserved; /* 0 */
	uint32_t from;     /* run of 0 rows: slot of the run to sample from; else = slot */
};

/* The arrays grow and are reused by the next step, so that a steady state allocates nothing. */
struct plan {
	uint64_t epoch;
	uint64_t number;
	uint32_t n_kinds; /* kinds of layers, each with a block table of its own; 0: one */
	uint32_t *drop;
	uint32_t n_drop, cap_drop;
	uint32_t *drop_constraints;
	uint32_t n_drop_constraints, cap_drop_constraints;
	struct plan_constraint *constraints;
	uint32_t n_constraints, cap_constraints;
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
	uint32_t n_rows;    /* sum over runs */
	uint32_t n_samples; /* runs with PLAN_SAMPLE */
	void *store;        /* memory of a decoded plan that its seqs borrow from (bus_plan.c); else NULL */
};

/* Empty the plan, and keep its memory. */
void plan_reset(struct plan *p);
void plan_fini(struct plan *p);
uint32_t *plan_add_drop(struct plan *p);
uint32_t *plan_add_drop_constraint(struct plan *p);
struct plan_constraint *plan_add_constraint(struct plan *p);
struct plan_seq *plan_add_seq(struct plan *p);
struct plan_fork *plan_add_fork(struct plan *p);
struct plan_set *plan_add_set(struct plan *p);
struct plan_table *plan_add_table(struct plan *p);
struct plan_pair *plan_add_swap_out(struct plan *p);
struct plan_pair *plan_add_swap_in(struct plan *p);
struct plan_pair *plan_add_copy(struct plan *p);
struct plan_run *plan_add_run(struct plan *p);

/* Log-probability of a sampled token, or of a prompt token with prompt_logprobs. */
struct result_logprob {
	uint32_t slot;
	uint32_t position; /* in the sequence */
	uint32_t token;
	float logprob;
	uint32_t rank; /* 1: most likely */
	uint32_t n_top;
	uint32_t top0; /* index of its first entry in top_ids and top_logprobs */
	bool prompt;   /* a token of the prompt */
};

/* A sequence that cannot continue, because it exceeds a limit of its constraint's grammar.  Other sequences
 * continue.  A token of the failed one in this result is meaningless. */
struct result_failed {
	uint32_t slot;
	char reason[RESULT_REASON_SIZE];
};

/* Values of a run of a sequence with params.pool: n_words words of pool_words, starting with word `at`.
 *
 *   PARAMS_POOL_LAST     [hidden] F32
 *   PARAMS_POOL_LOGITS   [n_allowed] F32
 *   PARAMS_POOL_MEAN     [hidden] int64, low word first: the sum of the run's rows in units of
 *                        1 / RESULT_POOL_ONE, so that the sum of all does not depend on the runs.
 *                        RESULT_POOL_NAN: a value of a row is not a number, or RESULT_POOL_LIMIT or more */
struct result_pool {
	uint32_t slot;
	uint32_t pos0; /* first position of the run */
	uint32_t n_rows;
	uint32_t n_words;
	uint32_t at;
};

/* A value is below 2^13, which is 2^39 units; 2^24 rows of such values fit 63 bits. */
enum { RESULT_POOL_ONE = 1 << 26, RESULT_POOL_LIMIT = 1 << 13 };
#define RESULT_POOL_NAN INT64_MIN

/* A sampling run may sit out a step (held), because the mask of its sequence's constraint is not ready.
 * Then it returns no token, and the slot has as many tokens as before.  A later plan may already contain a
 * run of one row after that token: that run starts one row earlier instead, and samples the missing token.
 * When the mask is ready, the worker sends BUS_AWAKE.
 *
 *   slot 3 has 49 tokens
 *   plan 8     (3, pos0 48, SAMPLE)   its mask is not ready       result 8   held 3
 *   plan 9     (3, pos0 49, SAMPLE)   runs as (3, pos0 48)        result 9   token 49, or held 3 again
 *   after result 8 the controller plans the slot again once it is awake, or has a token */
struct result {
	uint64_t epoch;
	uint64_t number;  /* number of the plan that it answers */
	uint32_t step_us; /* time on the device */
	/* [n_tokens] in the plan's order: one per PLAN_SAMPLE run, or as many as `counts` has for an open
	 * run; meaningless if the run is held. */
	uint32_t *tokens;
	uint32_t n_tokens, cap_tokens;
	/* [n_counts] tokens of each open run, in the plan's order.  0: the sequence already has max_tokens.
	 * */
	uint32_t *counts;
	uint32_t n_counts, cap_counts;
	int32_t *mus; /* [n_mus] mu after these tokens, for the sequences among them with params.mirostat */
	uint32_t n_mus, cap_mus;
	struct result_logprob *logprobs;
	uint32_t n_logprobs, cap_logprobs;
	uint32_t *top_ids;   /* [n_top] */
	float *top_logprobs; /* [n_top] */
	uint32_t n_top, cap_top_ids, cap_top_logprobs;
	struct result_failed *failed;
	uint32_t n_failed, cap_failed;
	uint32_t *held; /* [n_held] slots of PLAN_SAMPLE runs that sat out, in the plan's order */
	uint32_t n_held, cap_held;
	struct result_pool *pools; /* [n_pools] in the order of the plan's runs */
	uint32_t n_pools, cap_pools;
	uint32_t *pool_words; /* [n_pool_words] */
	uint32_t n_pool_words, cap_pool_words;
};

void result_reset(struct result *r);
void result_fini(struct result *r);
void result_add_token(struct result *r, uint32_t token);
void result_add_count(struct result *r, uint32_t n);
void result_add_mu(struct result *r, int32_t mu);
struct result_logprob *result_add_logprob(struct result *r);
void result_add_failed(struct result *r, uint32_t slot, const char *reason);
void result_add_held(struct result *r, uint32_t slot);
void result_add_top(struct result *r, uint32_t id, float logprob);
/* Add a pooled result with n_words words, which the caller fills in. */
struct result_pool *result_add_pool(struct result *r, uint32_t n_words);

#endif
