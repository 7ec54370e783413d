/* counts.h - the counters of a replica and of the service: one row each.
 *
 * A new counter is a row and the line that counts.  The scheduler counts in sched.counts; a gauge is set in
 * sched_stats() or replica_counts().  A worker's counter (WORKER) counts since its process began and has a
 * line in link_send_beat().  All else walks the rows: the heartbeat, the sums over replicas and over those
 * that have ended, the job socket's status, the page's live stream, /metrics and `quern status`.
 *
 *   worker --heartbeat--> worker_counts -.
 *                      sched_stats() ----+--> counts of a replica --sum--> counts of the service
 *                                                   |                           |
 *                                               job socket, page         job socket, /metrics */
#ifndef QUERN_PROTO_COUNTS_H
#define QUERN_PROTO_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	COUNT_TOTAL = 1, /* since the start: stays in the sum when its replica has ended */
	COUNT_MEAN = 2,  /* not summed, but averaged with weight n_steps */
};

/* In the order of the job socket's status, where the fields of a map are adjacent. */
/* clang-format off */
#define COUNTS(COUNT, WORKER) \
	COUNT(uint32_t, n_running, .key = "running", .live = "running", \
		.metric = "num_requests_running", .help = "Requests in the running batch.") \
	COUNT(uint32_t, n_waiting, .key = "waiting", .live = "waiting", \
		.metric = "num_requests_waiting", .help = "Requests waiting to run.") \
	COUNT(uint32_t, n_swapped, .key = "swapped", .live = "swapped", \
		.metric = "num_requests_swapped", .help = "Requests swapped out to host memory.") \
	COUNT(uint64_t, queued_tokens, .key = "queued_tokens", .live = "queued_tokens", \
		.metric = "queued_tokens", .help = "Prompt tokens of waiting requests.") \
	COUNT(uint32_t, n_blocks, .map = "blocks", .key = "total", \
		.metric = "kv_blocks", .help = "Blocks of the KV cache.") \
	COUNT(uint32_t, n_free, .map = "blocks", .key = "free") \
	COUNT(uint32_t, n_cached, .map = "blocks", .key = "cached", \
		.metric = "kv_blocks_cached", .help = "Blocks held only by the prefix cache.") \
	COUNT(uint32_t, n_held, .map = "blocks", .key = "held") \
	COUNT(uint32_t, n_retained, .map = "blocks", .key = "retained", \
		.metric = "kv_blocks_retained", .help = "Cached blocks of preempted requests, evicted after all others.") \
	COUNT(uint32_t, n_host_blocks, .map = "host_blocks", .key = "total") \
	COUNT(uint32_t, n_host_free, .map = "host_blocks", .key = "free") \
	COUNT(uint64_t, prefix_queries, .map = "prefix_cache", .key = "queried_tokens", .live = "prefix_queries", \
		.flags = COUNT_TOTAL, .metric = "prefix_cache_queries_total", .help = "Prompt tokens looked up in the prefix cache.") \
	COUNT(uint64_t, prefix_hits, .map = "prefix_cache", .key = "hit_tokens", .live = "prefix_hits", \
		.flags = COUNT_TOTAL, .metric = "prefix_cache_hits_total", .help = "Prompt tokens found in the prefix cache.") \
	COUNT(uint64_t, n_preempted, .key = "preemptions", .live = "preemptions", .flags = COUNT_TOTAL, \
		.metric = "num_preemptions_total", .help = "Requests preempted for lack of blocks.") \
	COUNT(uint64_t, n_swapped_out, .key = "swap_preemptions", .flags = COUNT_TOTAL) \
	COUNT(uint64_t, recomputed_tokens, .key = "recomputed_tokens", .live = "recomputed_tokens", .flags = COUNT_TOTAL, \
		.metric = "recomputed_tokens_total", .help = "Tokens computed again after a preemption.") \
	COUNT(uint64_t, prompt_tokens, .key = "prompt_tokens", .flags = COUNT_TOTAL, .shown = "prompt tokens") \
	COUNT(uint64_t, generated_tokens, .key = "generated_tokens", .flags = COUNT_TOTAL, .shown = "output tokens") \
	COUNT(uint64_t, n_steps, .key = "steps", .flags = COUNT_TOTAL, .shown = "steps") \
	WORKER(expert_rows, .map = "experts", .key = "rows", \
		.metric = "expert_rows_total", .help = "Rows computed by experts of mixtures: each row counts once per expert that it uses.") \
	WORKER(expert_reads, .map = "experts", .key = "reads", \
		.metric = "expert_reads_total", .help = "Experts whose weights were read: per step and layer, those that at least one row uses.") \
	WORKER(expert_busiest, .map = "experts", .key = "busiest_rows", \
		.metric = "expert_busiest_rows_total", \
		.help = "Rows computed by the busiest expert of each step and layer.") \
	COUNT(uint32_t, masks_waiting, .map = "masks", .key = "waiting", \
		.metric = "num_requests_held", \
		.help = "Running requests that wait for the mask of their structured output.") \
	COUNT(uint64_t, masks_held, .map = "masks", .key = "held", .flags = COUNT_TOTAL, \
		.metric = "masks_held_total", \
		.help = "Tokens delayed by a step because the mask of their structured output was not ready.") \
	WORKER(mask_waits, .map = "masks", .key = "waits", \
		.metric = "mask_waits_total", .help = "Masks of structured outputs that a step waited for.") \
	WORKER(draft_runs, .map = "drafts", .key = "runs", \
		.metric = "spec_decode_num_drafts_total", .help = "Steps of a sequence with drafted tokens.") \
	WORKER(draft_tokens, .map = "drafts", .key = "tokens", \
		.metric = "spec_decode_num_draft_tokens_total", .help = "Tokens drafted by speculation.") \
	WORKER(draft_accepted, .map = "drafts", .key = "accepted", \
		.metric = "spec_decode_num_accepted_tokens_total", .help = "Drafted tokens that were accepted.") \
	/* device time of a step, moving average; tokens per second over the last seconds */ \
	COUNT(double, step_us_mean, .key = "step_us", .live = "step_us", .flags = COUNT_MEAN) \
	COUNT(double, prompt_tps, .key = "prompt_tps", .live = "prompt_tps") \
	COUNT(double, decode_tps, .key = "decode_tps", .live = "decode_tps")
/* clang-format on */

#define COUNT_NONE(...)
#define COUNT_MEMBER(type, name, ...)  type name;
#define COUNT_WORKER_MEMBER(name, ...) uint64_t name;

struct counts {
	COUNTS(COUNT_MEMBER, COUNT_WORKER_MEMBER)
};

struct worker_counts {
	COUNTS(COUNT_NONE, COUNT_WORKER_MEMBER)
};

struct count_row {
	enum { COUNT_uint32_t, COUNT_uint64_t, COUNT_double } type;
	size_t offset; /* in struct counts */
	unsigned flags;
	const char *map;    /* job socket: key of the enclosing map; NULL: the top level */
	const char *key;    /* job socket */
	const char *live;   /* live stream: key in a replica, or NULL */
	const char *metric; /* /metrics: name without the prefix, or NULL */
	const char *help;   /* /metrics */
	const char *shown;  /* `quern status`: words after the number in the line "so far", or NULL */
};
extern const struct count_row counts_rows[];
extern const size_t n_counts_rows;

uint64_t count_uint(const struct count_row *r, const struct counts *c); /* not a double */
double count_number(const struct count_row *r, const struct counts *c);

/* Add all counters except means; totals_only: only COUNT_TOTAL counters. */
void counts_add(struct counts *sum, const struct counts *c, bool totals_only);

/* Counters of a worker, by index: the key in a heartbeat, and the value. */
extern const char *const worker_count_keys[];
extern const size_t n_worker_counts;
uint64_t *worker_count(struct worker_counts *c, size_t i);

/* Raise each counter of `to` to that of `from`, if it is greater. */
void worker_counts_raise(struct worker_counts *to, const struct worker_counts *from);
/* Set the worker's counters of out to what was counted since `before`. */
void worker_counts_since(const struct worker_counts *now, const struct worker_counts *before,
			 struct counts *out);

#endif
