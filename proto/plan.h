/* plan.h - one step: what the controller orders (struct plan) and what the worker answers (struct result).
 * All that a worker does in a step is in that step's plan.
 *
 * Order within a step:  drop, drop_forms, forms, seqs, sets, tables, forks | swap_out, swap_in, copies |
 * runs.
 *
 *   drop     slots with sequences that this worker no longer needs
 *   drop_forms   forms that this worker no longer needs: no slot has one of them
 *   forms    forms that are new to this worker, with the numbers that its sequences name them by
 *   seqs     sequences that are new to the worker, or sent again: their whole state
 *   sets     (slot, from, position, token): the slot becomes a copy of slot `from` as it was before this
 *            plan's tables (unless it is that slot), and its token at position, its last one or the one
 *            behind, is this one.  A beam search chooses tokens in the controller: the hypothesis that
 *            stays in its slot comes behind those copied from it, and table entries then give each its
 *            own blocks to write
 *   tables   (slot, logical block, physical block): appended or replaced entries
 *   forks    the child slot becomes a copy of the parent's state (tokens, table), with another output
 *            index
 *   swaps, copies   (source, destination) physical blocks
 *   runs     n_rows tokens of a slot from position pos0 on.  The tokens are those that the worker holds
 *            for the slot, the prompt's and then those it sampled, so a plan can be sent before the last
 *            token's id is known.  PLAN_SAMPLE: sample the next token after the run's last row.  A run
 *            of 0 rows samples from the last row of the run of slot `from` in the same plan (a fork's
 *            first token).
 *
 * A sequence with params.mirostat has a state, mu, that every token changes: the worker keeps it with the
 * slot's tokens (a fork copies it), and the result has it beside the token, so that `seqs` can give it back.
 *
 * A sequence with params.pool is not sampled from.  Its result (struct result_pool) comes with the run that
 * ends its prompt; of a mean with every run, since each gives the sum of its own rows, and the controller
 * adds them.
 *
 * Three sequences, block_size 16.  Slot 3 decodes its 49th token, which needs a block.  Slot 5 is new, and
 * computes a first chunk of its prompt.  Slot 7 is preempted, its only block swapped out:
 *
 *   number 8, epoch 2
 *   drop     7
 *   seqs     slot 5: n_prompt 40, tokens [40], blocks 12 4, params
 *   tables   (3, 3, 17)             slot 3, table before: 6 2 9      after: 6 2 9 17
 *   swap_out (30 -> 1)              device block 30 to host block 1
 *   runs     (3, pos0 48, 1 row, SAMPLE)   (5, pos0 0, 32 rows)
 *
 *   rows     | 48 | 0  1  2 ... 15 | 16 ... 31 |      position
 *            | 17 | 12             | 4         |      block that gets K and V
 *              |
 *   result   tokens [1]: slot 3's next; slot 5 samples when its last chunk is computed
 *
 * A slot is a small integer, the controller's name for a sequence on this worker (0 .. max_slots-1).  The
 * worker's state of a slot is a cache: `seqs` can rebuild it at any time.  Plans are numbered from 1 within
 * an epoch; a worker that misses one reports it.  Block numbers only; never an address or an offset. */
#ifndef QUERN_PROTO_PLAN_H
#define QUERN_PROTO_PLAN_H

#include "proto/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLAN_SAMPLE = 1, RESULT_REASON_SIZE = 256 };

/* What outputs must look like.  The controller numbers the forms of an epoch, from 1; a number that was
 * dropped is not used again.  A fork, and a slot set from another, has the form of the one copied. */
struct plan_form {
	uint32_t number;
	struct form *form; /* borrowed: keep it with form_ref() */
};

struct plan_seq {
	uint32_t slot;
	uint64_t seq;      /* the controller's id, for logs */
	uint32_t index;    /* which output of its job */
	uint32_t n_prompt; /* of the tokens */
	uint32_t n_tokens;
	uint32_t n_blocks;
	uint32_t form;               /* number of its form; 0: none */
	int32_t mu;                  /* with params.mirostat: behind its last token */
	const uint32_t *tokens;      /* [n_tokens] prompt, then output so far; borrowed */
	const uint32_t *blocks;      /* [n_blocks] physical block of each logical one; borrowed */
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
};

struct plan_pair {
	uint32_t from;
	uint32_t to;
};

struct plan_run {
	uint32_t slot;
	uint32_t pos0;
	uint32_t n_rows;
	uint16_t flags;    /* PLAN_SAMPLE */
	uint16_t reserved; /* 0 */
	uint32_t from;     /* of a run of 0 rows: the slot with the run to sample from; else = slot */
};

/* Arrays grow and are kept from step to step: a steady state allocates nothing. */
struct plan {
	uint64_t epoch;
	uint64_t number;
	uint32_t *drop;
	uint32_t n_drop, cap_drop;
	uint32_t *drop_forms;
	uint32_t n_drop_forms, cap_drop_forms;
	struct plan_form *forms;
	uint32_t n_forms, cap_forms;
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
	void *store;        /* of a decoded plan: what its seqs borrow from (bus_plan.c); else NULL */
};

/* Empties it, keeps the memory. */
void plan_reset(struct plan *p);
void plan_fini(struct plan *p);
uint32_t *plan_add_drop(struct plan *p);
uint32_t *plan_add_drop_form(struct plan *p);
struct plan_form *plan_add_form(struct plan *p);
struct plan_seq *plan_add_seq(struct plan *p);
struct plan_fork *plan_add_fork(struct plan *p);
struct plan_set *plan_add_set(struct plan *p);
struct plan_table *plan_add_table(struct plan *p);
struct plan_pair *plan_add_swap_out(struct plan *p);
struct plan_pair *plan_add_swap_in(struct plan *p);
struct plan_pair *plan_add_copy(struct plan *p);
struct plan_run *plan_add_run(struct plan *p);

/* A sampled token, or a prompt token with prompt_logprobs. */
struct result_logprob {
	uint32_t slot;
	uint32_t position; /* in the sequence */
	uint32_t token;
	float logprob;
	uint32_t rank; /* 1: most likely */
	uint32_t n_top;
	uint32_t top0; /* first of its entries in top_ids, top_logprobs */
	bool prompt;   /* of the prompt */
};

/* A sequence that cannot go on, while all others do: a bound of its form's grammar is met.  Its token, if it
 * has one in this result, means nothing. */
struct result_failed {
	uint32_t slot;
	char reason[RESULT_REASON_SIZE];
};

/* What a run of a sequence with params.pool gives: n_words words of pool_words from at on.
 *
 *   PARAMS_POOL_LAST     [hidden] F32
 *   PARAMS_POOL_LOGITS   [n_allowed] F32
 *   PARAMS_POOL_MEAN     [hidden] int64, low word first: the sum of the run's rows in units of
 *                        1 / RESULT_POOL_ONE, so that the sum of all does not depend on the runs.
 *                        RESULT_POOL_NAN: a value of a row is not a number, or RESULT_POOL_LIMIT or more */
struct result_pool {
	uint32_t slot;
	uint32_t pos0; /* of the run */
	uint32_t n_rows;
	uint32_t n_words;
	uint32_t at;
};

/* Less than 2^13 each, 2^24 rows of 2^26 units: within 63 bits. */
enum { RESULT_POOL_ONE = 1 << 26, RESULT_POOL_LIMIT = 1 << 13 };
#define RESULT_POOL_NAN INT64_MIN

struct result {
	uint64_t epoch;
	uint64_t number;  /* of the plan that it answers */
	uint32_t step_us; /* time on the device */
	uint32_t *tokens; /* [n_tokens] one per PLAN_SAMPLE run, in the plan's order */
	uint32_t n_tokens, cap_tokens;
	int32_t *mus; /* [n_mus] behind these tokens, one per sequence among them with params.mirostat */
	uint32_t n_mus, cap_mus;
	struct result_logprob *logprobs;
	uint32_t n_logprobs, cap_logprobs;
	uint32_t *top_ids;   /* [n_top] */
	float *top_logprobs; /* [n_top] */
	uint32_t n_top, cap_top_ids, cap_top_logprobs;
	struct result_failed *failed;
	uint32_t n_failed, cap_failed;
	struct result_pool *pools; /* [n_pools] in the order of the plan's runs */
	uint32_t n_pools, cap_pools;
	uint32_t *pool_words; /* [n_pool_words] */
	uint32_t n_pool_words, cap_pool_words;
};

void result_reset(struct result *r);
void result_fini(struct result *r);
void result_add_token(struct result *r, uint32_t token);
void result_add_mu(struct result *r, int32_t mu);
struct result_logprob *result_add_logprob(struct result *r);
void result_add_failed(struct result *r, uint32_t slot, const char *reason);
void result_add_top(struct result *r, uint32_t id, float logprob);
/* With room for n_words, which the caller fills in. */
struct result_pool *result_add_pool(struct result *r, uint32_t n_words);

#endif
