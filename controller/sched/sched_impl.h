/* sched_impl.h - what the files of the scheduler share, and no other file includes.
 *
 *   sched.c          groups, waiting and running sequences, slots; results
 *   sched_plan.c     the next plan: rows of running sequences and of prompts
 *   sched_admit.c    waiting sequences that get a slot and blocks; swapping in
 *   sched_preempt.c  running sequences that give theirs up; swapping out
 *   sched_beam.c     beam searches
 *   sched_suspect.c  sequences that were running when a worker died
 *   sched_move.c     groups that go to another scheduler
 *   sched_pool.c     sequences with pooled rows
 *
 * Two plans under way.  Plan 8 is sent before the result of plan 7 is back, so that the device goes from one
 * step to the next without the controller:
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
 * What is deferred, and until when:
 *
 *   n_pending   a preempted sequence is not admitted again while one of its tokens is under way
 *   planned     a sequence named by the plan being made keeps its slot in this plan ...
 *   entered     ... also one that got its slot or token by it; siblings share its blocks in later plans
 *   n_before    a plan makes its copies before its runs: siblings share only what earlier plans compute
 *   later       blocks that a plan under way may use are freed by its result (struct blocks_later) */
#ifndef QUERN_CONTROLLER_SCHED_SCHED_IMPL_H
#define QUERN_CONTROLLER_SCHED_SCHED_IMPL_H

#include "base/map.h"
#include "controller/sched/queue.h"
#include "controller/sched/sched.h"

/* A run of a plan under way that brings a token. */
struct sample {
	struct seq *seq;
	uint32_t slot;
};

/* Any run of a plan under way. */
struct run {
	struct group *group; /* kept alive by its n_inflight */
	struct seq *seq;
	uint32_t slot;
	uint32_t from, end; /* positions that it computes */
	bool pooled;        /* it brings pooled rows */
};

/* A plan under way. */
struct inflight {
	uint64_t number;
	struct sample *samples;
	uint32_t n_samples, cap_samples;
	uint32_t n_searched; /* samples of beam searches */
	uint32_t n_mirostat; /* samples of sequences with params.mirostat */
	uint32_t n_pooled;   /* runs that bring pooled rows */
	struct run *runs;
	uint32_t n_runs, cap_runs;
	struct blocks_later later; /* freed by its result */
	struct blocks_later host_later;
};

/* In sched.to_host and to_device, beside block numbers. */
#define SCHED_UNMAPPED UINT32_MAX
#define SCHED_MARKED   (UINT32_MAX - 1)

struct sched {
	struct sched_config cfg;
	struct blocks *blocks; /* NULL until a worker serves */
	struct blocks *host;   /* of the same worker; without a prefix cache */
	/* Scratch of swaps: [n_blocks] the host block of each device block, [n_host_blocks] and vice versa;
	   SCHED_UNMAPPED in between. */
	uint32_t *to_host, *to_device;
	uint64_t epoch;
	uint64_t number;              /* of the last plan */
	int64_t served_us;            /* when the first plan was requested; 0: not yet */
	uint64_t order;               /* highest of any group */
	double prefill_tps, link_bps; /* 0: unknown */
	struct sched_costs costs;
	uint64_t block_bytes;
	uint32_t send_above; /* rows: sched_send_above(); 0: unset */

	struct seq **running; /* [n_running] by (priority, order, index) */
	uint32_t n_running;
	struct queue *queue;
	uint32_t n_waiting, n_swapped; /* waiting sequences; those swapped out */
	uint32_t *slots;               /* [n_slots] free ones: a stack */
	uint32_t n_slots;
	uint32_t *drops; /* [n_drops] slots to drop in the next plan */
	uint32_t n_drops;
	/* Plan that last looked for a victim of the next waiting sequence, and that found one. */
	uint64_t fair_number, victim_number;
	bool newcomer; /* since then a job of an account has arrived of which no other waits */
	bool starved;  /* a running sequence got no blocks in the last plan */
	/* The sequence that could not be admitted for want of blocks, after plan refused_number, when
	   refused_free were free and refused_lacks more were needed. */
	const struct seq *refused;
	uint64_t refused_number;
	uint32_t refused_free, refused_lacks;

	struct inflight flight[SCHED_AHEAD]; /* ring, oldest at first_flight */
	uint32_t first_flight, n_flight;

	struct group **decided; /* [n_decided] beam searches with a step for the next plan */
	uint32_t n_decided, cap_decided;

	struct group all;   /* list head, by arrival */
	struct map by_job;  /* struct group */
	struct group *dead; /* over, but in plans under way; by next_dead */
	uint32_t n_groups;
	uint32_t n_suspects;
	int64_t next_deadline; /* INT64_MAX: none */
	struct sched_queued all_queued;
	struct map queued; /* struct sched_queued, by account */
	uint64_t begun_tokens;
	uint64_t n_preempted, n_swapped_out, prompt_tokens, generated_tokens, n_plans;
	uint64_t prefix_queries, prefix_hits;
	int64_t now_us; /* the last time that it was given */
	enum hold held; /* why the last plan admitted no further group */
	int64_t held_since_us;
	int64_t held_us[HOLDS];                 /* since the start */
	uint64_t n_begun;                       /* groups */
	uint64_t begun_by[TIMELINE_PRIORITIES]; /* of these, by priority from -8 to 8 */
	struct group *linked;                   /* the last one put into the list of all; NULL: unknown */
	uint64_t n_order_steps;
};

/* A plan being made. */
struct planning {
	struct plan *plan;
	struct inflight *flight;
	int64_t now_us;
	uint32_t budget;           /* rows that may still be added */
	uint32_t prompt_budget;    /* of these, rows of prompts */
	uint64_t form_bytes;       /* of the forms of sequences that it brings */
	bool for_age;              /* the sequence being admitted has the turn of its age */
	bool blocked;              /* a running sequence got no blocks: none is admitted */
	bool refused;              /* a waiting one got none */
	bool all_decode;           /* a pass over the running sequences found no prompt */
	const struct group *alone; /* a suspect, the only group that runs; NULL: no suspect runs */
};

/* Sequences are scattered in memory, and a step visits each: this many iterations ahead its cache lines are
 * prefetched, then those of its group and last token, found through them. */
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

/* Whether a run of q up to position `end` brings pooled rows. */
bool sched_pool_brings(const struct seq *q, uint32_t end);
/* The result has what f's runs bring. */
bool sched_pool_fits(const struct inflight *f, const struct result *r);
/* Applies it: sequences with a complete prompt end. */
void sched_pool_apply(struct sched *s, const struct inflight *f, const struct result *r, int64_t now_us,
		      struct sched_events *ev);

/* ---- sched_times.c: timelines ---- */

/* The group is queued here, or no longer. */
void sched_times_queue(struct sched *s, struct group *g);
void sched_times_unqueue(struct sched *s, struct group *g);
/* One of its sequences has a slot. */
void sched_times_enter(struct sched *s, const struct seq *q);
/* One of its sequences gave its slot up, and waits. */
void sched_times_exit(struct sched *s, const struct seq *q);
/* A plan will have that many rows more of it. */
void sched_times_rows(const struct seq *q, uint32_t rows);
static inline void sched_times_phase(struct group *g, enum phase p, int64_t now_us)
{
	if (g->phase == p)
		return;
	g->phase = (uint8_t)p;
	timeline_enter(g->times, p, now_us);
}
/* A plan is made, which admitted no further group for this reason. */
void sched_times_plan(struct sched *s, enum hold held);
/* The event of a group's end gets its timeline. */
void sched_times_end(struct sched *s, struct group *g, struct sched_events *ev, struct sched_event *e);

/* ---- sched.c: groups and sequences ---- */

/* Put a group, of which nothing runs, into every list, or take it out. */
void sched_link(struct sched *s, struct group *g);
void sched_unlink(struct sched *s, struct group *g);

/* Where blocks that are given up now wait until no plan under way can use them; NULL: no plan is under way.
 */
struct blocks_later *sched_later(struct sched *s);
struct blocks_later *sched_host_later(struct sched *s);

struct sched_event *sched_add_event(struct sched_events *ev, enum sched_event_kind kind,
				    const struct group *g);

/* The sequence waits, in the queue. */
void sched_wait(struct sched *s, struct seq *q);
/* The sequence ends: it gives up all it holds, and leaves the queue. */
void sched_end(struct sched *s, struct seq *q);
/* All outputs have ended: report it, and take the group out of every list. */
void sched_group_done(struct sched *s, struct group *g, struct sched_events *ev);
/* Ends one output, and with the last one its group: g may be gone. */
void sched_finish(struct sched *s, struct seq *q, enum finish finish, int64_t stop_token,
		  struct sched_events *ev);

/* A waiting sequence gets a slot; a running one gives it up.  Blocks are the caller's business. */
void sched_enter(struct sched *s, struct seq *q);
void sched_exit(struct sched *s, struct seq *q);
/* Preempt by recomputation: blocks go to later (NULL: at once), and the tokens are computed again. */
void sched_recompute(struct sched *s, struct seq *q, struct blocks_later *later);
/* The group has its first run: from now on each of its waiting sequences is in the queue. */
void sched_begin(struct sched *s, struct group *g, int64_t now_us);
/* Publish the full blocks of known tokens. */
void sched_publish(struct sched *s, struct seq *q);

/* ---- sched_plan.c ---- */

/* Whether the group may run in this plan, or a suspect keeps it from it. */
bool sched_may_run(const struct planning *p, const struct group *g);
/* Rows of q for this step, with their blocks and copies; whole_table: its table is sent as a whole, changed
 * entries are not listed.  False: it gets none. */
bool sched_run_seq(struct sched *s, struct planning *p, struct seq *q, bool whole_table);

/* ---- sched_admit.c ---- */

/* For queue_pick(); user: struct planning. */
enum queue_ready sched_is_ready(const struct seq *q, void *user);
/* Admit a waiting sequence, with its first rows; of a swapped one, all swapped sequences of its group. False:
 * not now. */
bool sched_admit(struct sched *s, struct planning *p, struct seq *q);
/* Whether q can be admitted now.  False: *lacks blocks more are needed, or, when that is 0, a slot. */
bool sched_can_admit(struct sched *s, struct planning *p, struct seq *q, uint32_t *lacks);

/* ---- sched_preempt.c ---- */

/* Blocks for `rows` more tokens of q, preempting sequences behind it if need be.  False: not now. */
bool sched_make_room(struct sched *s, struct planning *p, struct seq *q, uint32_t rows);
/* If the next sequence cannot be admitted, the youngest group of the lowest priority is preempted, or one of
 * a user of its priority that is far ahead.  Before anything else of the plan. */
void sched_preempt_for_next(struct sched *s, struct planning *p);

/* ---- sched_suspect.c ---- */

/* The suspect that is to run alone now; NULL: there is none, or not yet.  No other suspect runs. */
const struct group *sched_next_suspect(const struct sched *s, int64_t now_us);
/* Whether plans under way have runs of other groups than g. */
bool sched_others_in_flight(const struct sched *s, const struct group *g);
/* The sequence has made progress, or is over: earlier losses do not count. */
void sched_clear_strikes(struct sched *s, struct seq *q);

/* ---- sched_beam.c ---- */

/* A hypothesis has its candidates: r's logprobs[logprob].  With the last one of the search its next step is
 * taken, or it ends. */
void sched_beam_apply(struct sched *s, struct seq *q, const struct result *r, int32_t logprob, int64_t now_us,
		      struct sched_events *ev);
/* It has its candidates, and waits for those of the other hypotheses. */
bool sched_beam_stalled(const struct seq *q);
/* At the beginning of a plan: add the tokens and forks that searches have decided since the last. */
void sched_beam_plan(struct sched *s, struct plan *plan);
/* The last stalled running hypothesis of g (NULL: of any search) that plan `number` does not name gives up
 * its slot and blocks.  False: there is none. */
bool sched_beam_yield(struct sched *s, const struct group *g, uint64_t number);
/* Cancelled: every output is aborted. */
void sched_beam_abort(struct sched *s, struct group *g, struct sched_events *ev);
/* The group leaves the scheduler: no plan gets its last step. */
void sched_beam_forget(struct sched *s, struct group *g);
void sched_beam_check(const struct group *g);

#endif
