#include "controller/engine_options.h"

#include "base/entropy.h"
#include "base/err.h"
#include "base/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Return the limit without progress.  --worker-timeout 0, for a debugger, turns it off as well: a stopped
 * worker makes no progress. */
static int64_t stuck_us(const struct opts *o)
{
	int64_t s = opts_int(o, "worker-timeout") ? opts_int(o, "stuck-timeout") : 0;
	return s ? s * 1000000 : -1;
}

/* Return the configuration of autoscale.h; max is 0 without --max-replicas. */
static struct autoscale_config autoscale_of(const struct opts *o)
{
	const int64_t period_us = opts_int(o, "scale-period") * 1000000;
	return (struct autoscale_config){
		.min = (uint32_t)opts_int(o, "min-replicas"),
		.max = (uint32_t)opts_int(o, "max-replicas"),
		.target = opts_number(o, "scale-at"),
		.period_us = period_us,
		.window_us = 2 * period_us,
		.down_us = opts_int(o, "scale-down-after") * 1000000,
	};
}

/* Drafted tokens of a sequence in a step.  On a CPU four rows cost little more than one, eight cost twice as
 * much (docs/performance/cpu.md). */
enum { DRAFTS = 3 };

/* Read the options that need no check. */
static void read_options(const struct opts *o, struct engine_config *c)
{
	*c = (struct engine_config){
		.block_size = (uint32_t)opts_int(o, "block-size"),
		.max_seqs = (uint32_t)opts_int(o, "max-seqs"),
		.max_rows = (uint32_t)opts_int(o, "max-batch-tokens"),
		.chunk = (uint32_t)opts_int(o, "chunk"),
		.step_us = opts_int(o, "max-step-ms") * 1000,
		.step_auto = !opts_has(o, "max-step-ms"),
		.kv_bytes = (uint64_t)opts_int(o, "kv-bytes"),
		.swap_bytes = (uint64_t)opts_int(o, "swap-bytes"),
		.n_threads = (uint32_t)opts_int(o, "threads"),
		.worker_wait_us = opts_int(o, "worker-wait") * 1000000,
		.tp = (uint32_t)opts_int(o, "tp"),
		.ep = opts_flag(o, "ep"),
		.expert_metrics = opts_flag(o, "expert-metrics"),
		.class_change = opts_flag(o, "allow-class-change"),
		.silent_us = opts_int(o, "worker-timeout") ? opts_int(o, "worker-timeout") * 1000000 : -1,
		.stuck_us = stuck_us(o),
		.keep_workers = opts_flag(o, "keep-workers"),
		.autoscale = autoscale_of(o),
	};
	c->prefill_separate = strcmp(opts_text(o, "prefill"), "separate") == 0;
	c->no_prefix_cache = opts_flag(o, "no-prefix-cache");
	snprintf(c->preempt, sizeof c->preempt, "%s", opts_text(o, "preempt"));
	c->drafts = strcmp(opts_text(o, "speculate"), "ngram") == 0 ? DRAFTS : 0;
	c->seed = entropy_u64();
	snprintf(c->bus, sizeof c->bus, "%s", opts_text(o, "bus"));
	snprintf(c->compute, sizeof c->compute, "%s", opts_text(o, "compute"));
	snprintf(c->head, sizeof c->head, "%s", opts_text(o, "head-dtype"));
	snprintf(c->kv, sizeof c->kv, "%s", opts_text(o, "kv-cache-dtype"));
	c->fast = opts_flag(o, "fast");
	/* On the bus 0 lets the worker choose; 1, less than a block, means no swap pool. */
	if (opts_has(o, "swap-bytes") && c->swap_bytes == 0)
		c->swap_bytes = 1;
	if (c->max_rows < c->max_seqs)
		c->max_rows = c->max_seqs;
}

int engine_options(const struct opts *o, struct engine_config *c, struct why *why)
{
	read_options(o, c);
	if (c->block_size < 16 || c->block_size & (c->block_size - 1))
		return err_why(why, -EINVAL, "--block-size %u: must be 16, 32, 64, 128 or 256",
			       c->block_size);
	if (c->ep && c->tp < 2)
		return err_why(
			why, -EINVAL,
			"--ep deals a mixture's experts out between ranks: give --tp N, or leave it out");
	return 0;
}
