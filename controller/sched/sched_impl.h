/* sched_impl.h - declarations that the files of the scheduler share, and no other file includes.
 *
 *   sched.c          groups, waiting and running sequences, slots; results
 *   sched_names.c    contents of computed blocks
 *   sched_plan.c     the next plan: rows of running sequences and of prompts
 *   sched_admit.c    admits waiting sequences: slots and blocks; swapping in
 *   sched_preempt.c  preempts running sequences; swapping
 *   sched_retain.c   blocks of preempted sequences in the cache
 *   sched_beam.c     beam searches
 *   sched_suspect.c  sequences that were running when a worker died
 *   sched_move.c     groups that move to another scheduler
 *   sched_pool.c     sequences with pooled rows
 *   sched_held.c     sequences with a run that sat a step out
 *   sched_draft.c    open runs: drafts, and results of several tokens
 *
 * Two plans are in flight.  Plan 8 is sent before the result of plan 7 has arrived, so that the device goes
 * from one step to the next without waiting for the controller:
 *
 *   engine   plan 7   plan 8                    apply 7, plan 9          apply 8, plan 10
 *   worker            [======= step 7 =======][======= step 8 =======][======= step 9 ...
 *
 * A sequence that decodes, with 10 tokens:
 *
 *                     n_tokens  n_pending  n_computed  n_before  planned
 *   before plan 7        10         0           9          8        6
 *   plan 7 made          10         1          10          9        7
 *   plan 8 made          10         2          11         10        8      two tokens with unknown ids
 *   result 7 applied     11         1          11         10        8
 *   plan 9 made          11         2          12         11        9
 *
 * An open run (plan.h) returns 1 to r tokens.  n_pending and n_computed count one token for it, the least,
 * and n_slack the other r - 1, until its result brings the actual number.  So a sequence that decodes
 * satisfies seq_decodes() whatever its runs return.  Only the code that reserves blocks and rows, and the
 * code that applies a result, read n_slack.  Open runs of 4 rows, with 10 tokens:
 *
 *                     n_tokens  n_pending  n_slack  n_computed   positions that its plans may write
 *   plan 7 made          10         1         3         10         9 .. 12
 *   plan 8 made          10         2         6         11        10 .. 16: plan 7 may return 1 to 4 tokens
 *   result 7: 3 tokens   13         1         3         13        12 .. 15
 *
 * Deferred work, and the field that defers it:
 *
 *   n_pending   a preempted sequence is not admitted again while one of its tokens is in flight
 *   planned     a sequence named by the plan being made keeps its slot in this plan ...
 *   entered     ... also if it got its slot or token by this plan; siblings share its blocks in later plans
 *   n_before    a plan copies blocks before its runs: siblings share only what earlier plans compute
 *   later       blocks that a plan in flight may use are freed by its result (struct blocks_later)
 *   leaving     a preempted sequence keeps its blocks until the ids of its tokens in flight are known */
#ifndef QUERN_CONTROLLER_SCHED_SCHED_IMPL_H
#define QUERN_CONTROLLER_SCHED_SCHED_IMPL_H

#include "base/map.h"
#include "controller/sched/queue.h"
#include "controller/sched/sched.h"

/* A run, in a plan in flight, that results in a token. */
struct sample {
	struct seq *seq;
	uint32_t slot;
	uint32_t open_rows; /* most tokens that it may return; 0: one, the run is not open */
};

/* Any run of a plan in flight. */
struct run {
	struct group *group; /* kept alive by its n_inflight */
	struct seq *seq;
	uint32_t slot;
	uint32_t from, end; /* positions that the run computes */
	bool pooled;        /* its result has pooled rows */
};

/* A plan in flight. */
struct inflight {
	uint64_t number;
	struct sample *samples;
	uint32_t n_samples, cap_samples;
	uint32_t n_open;     /* samples of open runs */
	uint32_t n_searched; /* samples of beam searches */
	uint32_t n_mirostat; /* samples of sequences with params.mirostat */
	uint32_t n_pooled;   /* runs that result in pooled rows */
	struct run *runs;
	uint32_t n_runs, cap_runs;
	struct blocks_later later[STORES]; /* references released by its result */
};

struct sched {
	struct sched_config cfg;
	struct kinds kinds;        /* kinds of the model's layers */
	struct contents *contents; /* NULL until a worker serves, as the pools */
	struct blocks *blocks;     /* device blocks of the worker: STORE_DEVICE */
	struct blocks *host;       /* its host blocks: STORE_HOST */
	uint64_t epoch;
	uint64_t number;              /* number of the last plan */
	int64_t served_us;            /* when the first plan was requested; 0: not yet */
	uint64_t order;               /* highest order of any group */
	double prefill_tps, link_bps; /* 0: unknown */
	struct sched_costs costs;
	uint64_t block_bytes;
	uint32_t stream_above_rows; /* rows, set by sched_stream_above_rows(); 0: unset */

	struct seq **running; /* [n_running] running sequences by (priority, order, index) */
	uint32_t n_running;
	uint32_t n_held; /* running sequences that are held */
	struct queue *queue;
	uint32_t n_waiting, n_swapped; /* waiting sequences; of these, swapped out */
	uint32_t n_leaving;            /* blocks of leaving sequences */
	uint64_t n_lost;               /* blocks_n_lost() at the last sched_trim_retained() */
	uint32_t *padded;              /* [block_size] tokens of a block that is not full */
	uint32_t *slots;               /* [n_slots] free slots: a stack */
	uint32_t n_slots;
	uint32_t *drops; /* [n_drops] slots to drop in the next plan */
	uint32_t n_drops;
	/* Number of the plan that last looked for a victim for the next waiting sequence, and of the plan
	 * that last found a victim. */
	uint64_t fair_number, victim_number;
	bool newcomer; /* since then a job arrived, and its account has no other waiting job */
	bool starved;  /* a running sequence got no blocks in the last plan */
	/* The sequence that could not be admitted after plan refused_number for lack of blocks, when
	 * refused_free blocks were free and refused_lacks more were needed. */
	const struct seq *refused;
	uint64_t refused_number;
	uint32_t refused_free, refused_lacks;

	struct inflight flight[SCHED_AHEAD]; /* ring, oldest at first_flight */
	uint32_t first_flight, n_flight;

	struct group **decided; /* [n_decided] beam searches with a step for the next plan */
	uint32_t n_decided, cap_decided;

	struct group all;   /* list head, by arrival */
	struct map by_job;  /* struct group */
	struct group *dead; /* ended groups that plans in flight name; by next_dead */
	uint32_t n_groups;
	uint32_t n_suspects;
	int64_t next_deadline; /* INT64_MAX: none */
	struct sched_queued all_queued;
	struct map queued; /* struct sched_queued, by account */
	uint64_t begun_tokens;
	struct counts counts; /* totals; sched_stats() adds the gauges */
	int64_t now_us;       /* the last time passed to the scheduler */
	enum hold held;       /* why the last plan admitted no further group */
	int64_t held_since_us;
	int64_t held_us[HOLDS];                 /* time by reason, since the start */
	uint64_t n_begun;                       /* groups that have begun */
	uint64_t begun_by[TIMELINE_PRIORITIES]; /* groups that have begun, by priority from -8 to 8 */
	/* the group that was last put into the list of all; NULL: unknown */
	struct group *linked;
	uint64_t n_order_steps;
};

/* A plan being made. */
struct planning {
	struct plan *plan;
	struct inflight *flight;
	int64_t now_us;
	uint32_t budget;           /* rows that may still be added */
	uint32_t prompt_budget;    /* rows of prompts that may still be added, within budget */
	uint32_t draft_budget;     /* drafts that may still be added, within budget */
	uint64_t constraint_bytes; /* bytes of structured-output constraints of sequences in this plan */
	bool for_age;              /* the sequence being admitted was chosen for its age */
	bool blocked;              /* a running sequence got no blocks: no sequence is admitted */
	bool refused;              /* a waiting sequence got no blocks */
	bool all_decode;           /* a pass over the running sequences found no prompt */
	const struct group *alone; /* a suspect, the only group that runs; NULL: no suspect runs */
};

/* Weight of an output token in the user's share; a prompt token's is 1. */
enum { SCHED_OUTPUT_WEIGHT = 2 };

/* Sequences are scattered in memory, and a step visits each.  A sequence's cache lines are prefetched
 * SCHED_FAR iterations ahead, and those of its group and last token, found through the sequence, SCHED_NEAR
 * ahead. */
enum { SCHED_FAR = 16, SCHED_NEAR = 8 };
static inline void sched_prefetch(const struct seq *far, const struct seq *near)
{
	if (far)
		for (size_t at = 0; at < sizeof *far; at += 64)
			__builtin_prefetch((const char *)far + at, 1);
	if (near) {
		for (size_t at = 0; at < sizeof *near->group; at += 64)
			__builtin_prefetch((const char *)near->group + at, 1);
		if (near->tokens)
			__builtin_prefetch(near->tokens + near->n_tokens, 1);
	}
}

/* ---- sched_pool.c ---- */

/* Return whether a run of q up to position `end` returns pooled rows. */
bool sched_pool_brings(const struct seq *q, uint32_t end);
/* Return whether the result has the pooled rows that f's runs return. */
bool sched_pool_fits(const struct inflight *f, const struct result *r);
/* Apply the pooled rows: sequences with a complete prompt end. */
void sched_pool_apply(struct sched *s, const struct inflight *f, const struct result *r, int64_t now_us,
		      struct sched_events *ev);

/* ---- sched_held.c ---- */

/* Set or clear `held` of a running sequence. */
void sched_hold(struct sched *s, struct seq *q, bool held);
/* Return whether the held slots in r are slots of f's samples, in the samples' order. */
bool sched_held_fits(const struct inflight *f, const struct result *r);
bool sched_is_held(const struct result *r, uint32_t slot);
/* The sequence's run gave no token: the row before the missing token will be computed again. */
void sched_held_apply(struct sched *s, struct seq *q);

/* ---- sched_draft.c ---- */

/* Return the position after the last one that the runs of q in flight, and one of `rows` rows that follows
 * them, may write. */
uint32_t sched_reach(const struct seq *q, uint32_t rows);
/* Return the number of drafts for the next run of q, which decodes. */
uint32_t sched_drafts(const struct sched *s, const struct planning *p, const struct seq *q);
/* Return whether the result has as many tokens and counts as f's runs may return. */
bool sched_counts_fit(const struct inflight *f, const struct result *r);
/* The run of q that may return open_rows tokens has returned n: end its slack, and count n tokens as pending
 * instead of one.  n 0: it sat out. */
void sched_draft_result(struct seq *q, uint32_t open_rows, uint32_t n);

/* ---- sched_times.c: timelines ---- */

/* The group is now queued here, or no longer queued. */
void sched_times_queue(struct sched *s, struct group *g);
void sched_times_unqueue(struct sched *s, struct group *g);
/* One of the group's sequences has got a slot. */
void sched_times_enter(struct sched *s, const struct seq *q);
/* One of the group's sequences gave its slot up, and waits. */
void sched_times_exit(struct sched *s, const struct seq *q);
/* Count this many further rows of the group in a plan. */
void sched_times_rows(const struct seq *q, uint32_t rows);
static inline void sched_times_phase(struct group *g, enum phase p, int64_t now_us)
{
	if (g->phase == p)
		return;
	g->phase = (uint8_t)p;
	timeline_enter(g->times, p, now_us);
}
/* A plan is made; held: why it admitted no further group. */
void sched_times_plan(struct sched *s, enum hold held);
/* Add the group's timeline to the event of its end. */
void sched_times_end(struct sched *s, struct group *g, struct sched_events *ev, struct sched_event *e);

/* ---- sched.c: groups and sequences ---- */

/* Add a group to every list, or remove it; none of its sequences runs. */
void sched_link(struct sched *s, struct group *g);
void sched_unlink(struct sched *s, struct group *g);

/* Return the list that holds blocks which are given up now until no plan in flight can use them; NULL: no
 * plan is in flight. */
struct blocks_later *sched_later(struct sched *s, enum contents_store store);

/* Abort with a message unless ok: an invariant is broken. */
void sched_ensure(bool ok, const char *what);

struct sched_event *sched_add_event(struct sched_events *ev, enum sched_event_kind kind,
				    const struct group *g);

/* Return the root of the group's contents. */
struct contents_root sched_root(const struct sched *s, const struct group *g);
/* The first n blocks of q have names, the last of them that of this node, which q holds from now on. */
void sched_name(struct sched *s, struct seq *q, uint32_t n, int32_t node);
/* Give up the blocks of q, retained ones as well, and with them all computed positions. */
void sched_forget(struct sched *s, struct seq *q);

/* Return the most blocks that a sequence holds while it grows to n tokens. */
uint32_t sched_blocks_of(const struct sched *s, uint32_t n);

/* Put the sequence into the queue, as waiting. */
void sched_wait(struct sched *s, struct seq *q);
/* End the sequence: it gives up all it holds, and leaves the queue. */
void sched_end(struct sched *s, struct seq *q);
/* All outputs have ended: report it, and take the group out of every list. */
void sched_group_done(struct sched *s, struct group *g, struct sched_events *ev);
/* End one output, and with the last output its group: g may be freed. */
void sched_finish(struct sched *s, struct seq *q, enum finish finish, int64_t stop_token,
		  struct sched_events *ev);

/* Give a waiting sequence a slot, or take a running sequence's slot away.  The caller handles the blocks. */
void sched_enter(struct sched *s, struct seq *q);
void sched_exit(struct sched *s, struct seq *q);
/* Preempt without swapping: its blocks are released to the cache (sched_retain.c). */
void sched_recompute(struct sched *s, struct seq *q);
/* The group has its first run: from now on all of its waiting sequences are in the queue. */
void sched_begin(struct sched *s, struct group *g, int64_t now_us);
/* Name the full blocks with known tokens, so that they are found by their tokens. */
void sched_publish(struct sched *s, struct seq *q);

/* ---- sched_plan.c ---- */

/* Return whether the group may run in this plan; false if a suspect prevents it. */
bool sched_may_run(const struct planning *p, const struct group *g);
/* Add rows of q to this step, with their blocks and copies.  whole_table: its table is sent as a whole, so
 * changed entries are not listed.  False: it gets no rows. */
bool sched_run_seq(struct sched *s, struct planning *p, struct seq *q, bool whole_table);

/* ---- sched_admit.c ---- */

/* Callback for queue_pick(); user: struct planning. */
enum queue_ready sched_is_ready(const struct seq *q, void *user);
/* Admit a waiting sequence, with its first rows; if swapped, together with all swapped sequences of its
 * group.  False: not now. */
bool sched_admit(struct sched *s, struct planning *p, struct seq *q);
/* Return whether q can be admitted now.  If not, *lacks is the number of further blocks needed; 0: a slot is
 * missing. */
bool sched_can_admit(struct sched *s, struct planning *p, struct seq *q, uint32_t *lacks);

/* ---- sched_preempt.c ---- */

/* Return whether swapping this block of a table takes a free or cached block of the other store.  count: how
 * often a survey of the tables to swap has counted it; a content is swapped once. */
bool sched_swap_takes(const struct sched *s, enum contents_store from, uint32_t id, uint32_t count);
/* Replace *id, a block of a table, by the copy in the other store, or by a new block there, to which the plan
 * copies it. */
void sched_swap_block(struct sched *s, struct planning *p, enum contents_store from, uint32_t *id);

/* Return whether copying this many blocks between the pools is estimated to cost less than computing the
 * tokens. */
bool sched_copying_pays(const struct sched *s, uint32_t n_copies, double tokens);

/* Make room for positions of q up to `end`; preempts sequences after q if necessary.  False: not now. */
bool sched_make_room(struct sched *s, struct planning *p, struct seq *q, uint32_t end);
/* If the next waiting sequence cannot be admitted, preempt the youngest group of the lowest priority, or a
 * group of a user of its priority that is far ahead.  Called before anything else is planned. */
void sched_preempt_for_next(struct sched *s, struct planning *p);

/* ---- sched_retain.c ---- */

/* Give the blocks of a preempted sequence to the cache, or note that it is leaving. */
void sched_leave(struct sched *s, struct seq *q);
/* A result with a token of q is applied.  If q was leaving, and all its tokens are known now, it has left. */
void sched_left_at(struct sched *s, struct seq *q);
/* Stop retaining blocks. */
void sched_unretain(struct sched *s, struct seq *q);
/* Return the free and cached blocks that q may use, its retained blocks among them.  Without a host pool, a
 * part of the pool is left to other preempted sequences, unless nothing runs. */
uint32_t sched_available(const struct sched *s, const struct seq *q);
/* Find the retained blocks of q that are still cached: ids [q->n_named][kinds].  Return the number of
 * positions from which q can continue; 0: none. */
uint32_t sched_retained(const struct sched *s, const struct seq *q, uint32_t *ids);
/* Return whether q continues from a copy of its last block of a kind, which is partly filled: others use it
 * as well. */
bool sched_copies_last(const struct sched *s, const struct seq *q, uint32_t kind, uint32_t id);
/* Continue q from the first n positions, found by sched_retained() in the ids of q's table. */
void sched_take_retained(struct sched *s, struct planning *p, struct seq *q, uint32_t n);
/* Before a plan: sequences give up the nodes of blocks that were evicted, if there are many. */
void sched_trim_retained(struct sched *s);

/* ---- sched_suspect.c ---- */

/* Return the suspect that is to run alone now; NULL: none, or not yet.  No other suspect runs. */
const struct group *sched_next_suspect(const struct sched *s, int64_t now_us);
/* Return whether plans in flight have runs of groups other than g. */
bool sched_others_in_flight(const struct sched *s, const struct group *g);
/* The sequence has made progress, or has ended: forget earlier losses. */
void sched_clear_strikes(struct sched *s, struct seq *q);

/* ---- sched_beam.c ---- */

/* Pass a hypothesis its candidates: r's logprobs[logprob].  When all hypotheses have candidates, the search
 * takes its next step, or ends. */
void sched_beam_apply(struct sched *s, struct seq *q, const struct result *r, int32_t logprob, int64_t now_us,
		      struct sched_events *ev);
/* Return whether the sequence has its candidates and waits for those of the other hypotheses. */
bool sched_beam_stalled(const struct seq *q);
/* At the beginning of a plan: add the tokens and forks that searches have decided since the last plan. */
void sched_beam_plan(struct sched *s, struct plan *plan);
/* Take slot and blocks from the last stalled running hypothesis of g (NULL: of any search) that plan `number`
 * does not name.  False: there is none. */
bool sched_beam_yield(struct sched *s, const struct group *g, uint64_t number);
/* Abort every output of a cancelled search. */
void sched_beam_abort(struct sched *s, struct group *g, struct sched_events *ev);
/* The group leaves the scheduler: its last step goes into no plan. */
void sched_beam_forget(struct sched *s, struct group *g);
void sched_beam_check(const struct group *g);

#endif
