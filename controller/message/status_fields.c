#include "controller/message/status_fields.h"

#include <assert.h>

#define U32(member)    .type = STATUS_U32, .offset = offsetof(struct engine_counts, member)
#define U64(member)    .type = STATUS_U64, .offset = offsetof(struct engine_counts, member)
#define DOUBLE(member) .type = STATUS_DOUBLE, .offset = offsetof(struct engine_counts, member)

const struct status_field status_fields[] = {
	{.key = "running",
	 .live = "running",
	 .metric = "num_requests_running",
	 .help = "Requests in the running batch.",
	 U32(n_running)},
	{.key = "waiting",
	 .live = "waiting",
	 .metric = "num_requests_waiting",
	 .help = "Requests waiting to run.",
	 U32(n_waiting)},
	{.key = "swapped",
	 .live = "swapped",
	 .metric = "num_requests_swapped",
	 .help = "Requests swapped out to host memory.",
	 U32(n_swapped)},
	{.key = "queued_tokens",
	 .live = "queued_tokens",
	 .metric = "queued_tokens",
	 .help = "Prompt tokens of waiting requests.",
	 U64(queued_tokens)},
	{.map = "blocks",
	 .key = "total",
	 .metric = "kv_blocks",
	 .help = "Blocks of the KV cache.",
	 U32(n_blocks)},
	{.map = "blocks", .key = "free", U32(n_free)},
	{.map = "blocks",
	 .key = "cached",
	 .metric = "kv_blocks_cached",
	 .help = "Blocks held only by the prefix cache.",
	 U32(n_cached)},
	{.map = "blocks", .key = "held", U32(n_held)},
	{.map = "host_blocks", .key = "total", U32(n_host_blocks)},
	{.map = "host_blocks", .key = "free", U32(n_host_free)},
	{.map = "prefix_cache",
	 .key = "queried_tokens",
	 .live = "prefix_queries",
	 .metric = "prefix_cache_queries_total",
	 .help = "Prompt tokens looked up in the prefix cache.",
	 .flags = STATUS_TOTAL,
	 U64(prefix_queries)},
	{.map = "prefix_cache",
	 .key = "hit_tokens",
	 .live = "prefix_hits",
	 .metric = "prefix_cache_hits_total",
	 .help = "Prompt tokens found in the prefix cache.",
	 .flags = STATUS_TOTAL,
	 U64(prefix_hits)},
	{.key = "preemptions",
	 .live = "preemptions",
	 .metric = "num_preemptions_total",
	 .help = "Requests preempted for lack of blocks.",
	 .flags = STATUS_TOTAL,
	 U64(n_preempted)},
	{.key = "swap_preemptions", .flags = STATUS_TOTAL, U64(n_swapped_out)},
	{.key = "prompt_tokens", .flags = STATUS_TOTAL, U64(prompt_tokens)},
	{.key = "generated_tokens", .flags = STATUS_TOTAL, U64(generated_tokens)},
	{.key = "steps", .flags = STATUS_TOTAL, U64(n_steps)},
	{.map = "experts",
	 .key = "rows",
	 .metric = "expert_rows_total",
	 .help = "Rows times the experts that they had, of mixtures.",
	 .flags = STATUS_TOTAL,
	 U64(expert_rows)},
	{.map = "experts",
	 .key = "reads",
	 .metric = "expert_reads_total",
	 .help = "Experts that some row of a step had, over all layers.",
	 .flags = STATUS_TOTAL,
	 U64(expert_reads)},
	{.map = "experts",
	 .key = "busiest_rows",
	 .metric = "expert_busiest_rows_total",
	 .help = "Of the experts' rows, those of the busiest expert of each layer.",
	 .flags = STATUS_TOTAL,
	 U64(expert_busiest)},
	{.map = "masks",
	 .key = "waiting",
	 .metric = "num_requests_held",
	 .help = "Running requests that sit out until the mask of their structured output is made.",
	 U32(masks_waiting)},
	{.map = "masks",
	 .key = "held",
	 .metric = "masks_held_total",
	 .help = "Tokens that sat a step out since the mask of their structured output was not made yet.",
	 .flags = STATUS_TOTAL,
	 U64(masks_held)},
	{.map = "masks",
	 .key = "waits",
	 .metric = "mask_waits_total",
	 .help = "Masks of structured outputs that a step has waited for.",
	 .flags = STATUS_TOTAL,
	 U64(mask_waits)},
	{.key = "step_us", .live = "step_us", .flags = STATUS_MEAN, DOUBLE(step_us_mean)},
	{.key = "prompt_tps", .live = "prompt_tps", DOUBLE(prompt_tps)},
	{.key = "decode_tps", .live = "decode_tps", DOUBLE(decode_tps)},
};
const size_t n_status_fields = sizeof status_fields / sizeof *status_fields;

static const void *at(const struct status_field *f, const struct engine_counts *c)
{
	return (const char *)c + f->offset;
}

uint64_t status_uint(const struct status_field *f, const struct engine_counts *c)
{
	assert(f->type != STATUS_DOUBLE);
	return f->type == STATUS_U32 ? *(const uint32_t *)at(f, c) : *(const uint64_t *)at(f, c);
}

double status_number(const struct status_field *f, const struct engine_counts *c)
{
	return f->type == STATUS_DOUBLE ? *(const double *)at(f, c) : (double)status_uint(f, c);
}

void engine_counts_add(struct engine_counts *sum, const struct engine_counts *c, bool totals_only)
{
	for (const struct status_field *f = status_fields; f < status_fields + n_status_fields; f++) {
		void *to = (char *)sum + f->offset;
		if (f->flags & STATUS_MEAN || (totals_only && !(f->flags & STATUS_TOTAL)))
			continue;
		switch (f->type) {
		case STATUS_U32:
			*(uint32_t *)to += *(const uint32_t *)at(f, c);
			break;
		case STATUS_U64:
			*(uint64_t *)to += *(const uint64_t *)at(f, c);
			break;
		case STATUS_DOUBLE:
			*(double *)to += *(const double *)at(f, c);
			break;
		}
	}
}
