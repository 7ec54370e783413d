/* sched_impl.h - what sched.c (groups, results), sched_plan.c (planning), sched_move.c (moving
 * groups), sched_beam.c (beam searches) and sched_suspect.c (whom workers are lost by) share.  For these only. */
#ifndef QUERN_CONTROLLER_SCHED_IMPL_H
#define QUERN_CONTROLLER_SCHED_IMPL_H

#include "controller/queue.h"
#include "controller/sched.h"

enum { SCHED_HASH = 4096 };     /* jobs; a power of two */

/* One run of a plan under way that will bring a token. */
struct sample {
	struct seq *seq;
	uint32_t slot;
};

/* Any run of a plan under way. */
struct run {
	struct group *group;            /* kept alive by its count n_inflight */
	struct seq *seq;
	uint32_t slot;
	uint32_t from, end;             /* positions that it computes */
};

/* A plan whose result is not back. */
struct inflight {
	uint64_t number;
	struct sample *samples;
	uint32_t n_samples, cap_samples;
	uint32_t n_searched;            /* of those, of beam searches */
	struct run *runs;
	uint32_t n_runs, cap_runs;
	struct blocks_later later;      /* let go of when the result is back */
	struct blocks_later host_later;
};

struct sched {
	struct sched_config cfg;
	struct blocks *blocks;          /* NULL until a worker serves */
	struct blocks *host;            /* of the same worker; holds no cache */
	uint32_t *to_host, *to_device;  /* [n_blocks], [n_host] scratch of swaps: NIL where not mapped */
	uint64_t epoch;
	uint64_t number;                /* of the last plan */
	int64_t served_us;              /* since when the worker serves; 0: nothing was planned */
	uint64_t order;                 /* of the last group */
	double prefill_tps, link_bps;   /* 0: not known */
	uint64_t block_bytes;

	struct seq **running;           /* [n_running] by (priority, order, index) */
	uint32_t n_running;
	struct queue *queue;
	uint32_t n_waiting, n_swapped;  /* sequences that wait; of those, swapped out */
	uint32_t *slots;                /* [n_slots] free ones: a stack */
	uint32_t n_slots;
	uint32_t *drops;                /* [n_drops] slots to name in the next plan */
	uint32_t n_drops;
	uint64_t fair_number;           /* plan that last looked whom to preempt for fairness */
	bool starved;                   /* somebody who runs got no blocks in the last plan */
	const struct seq *refused;      /* could not be let in ... */
	uint64_t refused_number;        /* ... after this plan */
	uint32_t refused_free;          /* ... when so many blocks were free */
	uint32_t refused_lacks;         /* ... and so many more were needed */

	struct inflight flight[SCHED_AHEAD];    /* ring, oldest at first_flight */
	uint32_t first_flight, n_flight;

	struct group **decided;         /* [n_decided] beam searches that the next plan tells of */
	uint32_t n_decided, cap_decided;

	struct group all;               /* list head, by arrival */
	struct group *hash[SCHED_HASH];
	struct group *dead;             /* over, but still in plans under way; by hash_next */
	uint32_t n_groups;
	uint32_t n_suspects;            /* of these */
	int64_t next_deadline;          /* INT64_MAX: none */
	uint32_t n_queued;
	uint64_t queued_tokens, begun_tokens;
	uint64_t n_preempted, n_swapped_out, prompt_tokens, generated_tokens, n_plans;
	uint64_t prefix_queries, prefix_hits;
};

/* Sequences lie all over the memory, and a step visits every one: so many before its turn, its
 * lines are asked for, and then its group's, which its own name. */
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

/* Room for one more element; doubles, so that a steady state stops allocating. */
void *sched_grow(void *array, uint32_t n, uint32_t *cap, size_t size);

/* The group, of which nothing runs, is in every list from now on, or in none. */
void sched_link(struct sched *s, struct group *g);
void sched_unlink(struct sched *s, struct group *g);

/* Where blocks that are let go of now are kept until no plan under way can use them; NULL:
 * nothing is under way. */
struct blocks_later *sched_later(struct sched *s);
struct blocks_later *sched_host_later(struct sched *s);

struct sched_event *sched_add_event(struct sched_events *ev, enum sched_event_kind kind, const struct group *g);

/* The sequence waits, in the queue. */
void sched_wait(struct sched *s, struct seq *q);
/* The sequence ends: it holds nothing any more, and waits for nothing. */
void sched_end(struct sched *s, struct seq *q);
/* All outputs have ended: say so, and take the group out of every list. */
void sched_group_done(struct sched *s, struct group *g, struct sched_events *ev);

/* A waiting sequence gets a slot; a running one gives it up.  Blocks are another matter. */
void sched_enter(struct sched *s, struct seq *q);
void sched_exit(struct sched *s, struct seq *q);
/* The running sequence waits; its blocks go to later (NULL: at once), its tokens are computed anew. */
void sched_recompute(struct sched *s, struct seq *q, struct blocks_later *later);
/* The group has its first run: all of its sequences wait for themselves from now on. */
void sched_begin(struct sched *s, struct group *g, int64_t now_us);
/* Index the full blocks whose tokens are known. */
void sched_publish(struct sched *s, struct seq *q);

/* The suspect whose turn it is to run alone; NULL: there is none, or not yet.  No other suspect runs. */
const struct group *sched_suspect(const struct sched *s, int64_t now_us);
/* Whether others than g are under way. */
bool sched_others_fly(const struct sched *s, const struct group *g);
/* The sequence has got on, or is over: what was lost before does not count. */
void sched_absolve(struct sched *s, struct seq *q);

/* Beam searches.  A hypothesis has its candidates: r's logprobs[logprob].  When it was the last one
 * to wait for, the search goes on or ends. */
void sched_beam_answer(struct sched *s, struct seq *q, const struct result *r, int32_t logprob, int64_t now_us,
		       struct sched_events *ev);
/* It has its candidates, and there is nothing to do for it until others have theirs. */
bool sched_beam_stalled(const struct seq *q);
/* At the beginning of a plan: tokens that were chosen, hypotheses that fork from others. */
void sched_beam_tell(struct sched *s, struct plan *plan);
/* The last stalled hypothesis of g (NULL: of any search) that runs, and that the plan of this number
 * does not name, lets go of its slot and blocks.  False: there is none. */
bool sched_beam_yield(struct sched *s, const struct group *g, uint64_t number);
/* It is over before its end: every output is aborted. */
void sched_beam_abort(struct sched *s, struct group *g, struct sched_events *ev);
/* The group is about to go: nothing is to be told of it. */
void sched_beam_forget(struct sched *s, struct group *g);
void sched_beam_check(const struct group *g);

#endif
