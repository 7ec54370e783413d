/* step_experts.c - places a worker's experts: on the GPU, on the CPU, streamed from one to the other. */
#include "worker/step_impl.h"

#include "base/err.h"
#include "base/log.h"
#include "formats/place/packed.h"
#include "formats/weights.h"
#include "worker/experts/prefetch.h"

#include <errno.h>
#include <string.h>

int step_place_experts(struct step *s, const struct step_args *a, struct why *why)
{
	int rc = placement_parse(&s->placement, a->place, a->device, &s->config, why);
	if (rc || (rc = placement_check_ranks(&s->placement, s->shard.n_ranks, why)))
		return rc;
	if (!a->hot)
		return 0;
	if ((rc = hot_check_options(a->hot, a->place, why)))
		return rc;
	return hot_check_placement(a->hot, &s->placement, a->device, why);
}

/* Measure each layer's largest expert on the device, since only the table knows its layouts. */
static int expert_sizes(const struct step *s, const struct weights *w, int64_t *bytes, struct why *why)
{
	const struct model_args m = {.ops = s->ops,
				     .dev = s->dev,
				     .stream = s->stream,
				     .config = &s->part,
				     .shard = &s->shard,
				     .moves = s->moves,
				     .weights = w};
	int rc = 0;
	for (int i = 0; !rc && i < s->config.n_layers; i++)
		if (s->placement.cpu[i])
			rc = model_expert_size(&m, i, &bytes[i], why);
	return rc;
}

int step_choose_hot(struct step *s, const struct step_args *a, const struct weights *w, struct why *why)
{
	int64_t sizes[CONFIG_LAYERS_MAX] = {0};
	struct expert_counts counts;
	struct kern_info info;
	if (!a->hot || !a->hot->given || !s->placement.n_cpu)
		return 0;
	s->ops->info(s->dev, &info);
	if (a->hot->bytes > info.bytes_total)
		return err_why(why, -EINVAL,
			       "--hot-experts is %lld MiB, more than the %lld MiB of the device: give less",
			       (long long)(a->hot->bytes >> 20), (long long)(info.bytes_total >> 20));
	int rc = expert_counts_read(&counts, a->hot->counts, &s->config, why);
	if (rc)
		return rc;
	const struct hot_choice choice = {&counts, sizes, a->hot->bytes};
	const int of = s->placement.n_cpu * counts.n_experts;
	if ((rc = expert_sizes(s, w, sizes, why)))
		err_prefix(why, rc, "--hot-experts has experts on the device (without it: none)");
	else
		rc = hot_choose(&s->hot, &s->placement, &choice, why);
	expert_counts_fini(&counts);
	if (!rc)
		log_info("step", "GPU-resident experts experts=%d total=%d bytes=%lld", s->hot.n, of,
			 (long long)s->hot.bytes);
	return rc;
}

int64_t step_host_experts_stored(const struct step *s, const struct weights *w)
{
	int64_t n = 0;
	for (int i = 0; i < w->n_layers; i++)
		n += s->placement.cpu[i] ? shard_experts_bytes(&w->layers[i], hot_layer(&s->hot, i)) : 0;
	return n;
}

/* Return the bytes of the host experts in the CPU's table. */
static int64_t host_experts_in_memory(const struct step *s, const struct weights *w,
				      enum kern_compute compute)
{
	const enum packed_mode mode = packed_mode(kern_compute_name(compute));
	int64_t n = 0;
	for (int i = 0; i < w->n_layers; i++)
		n += s->placement.cpu[i] ? packed_experts(&w->layers[i], hot_layer(&s->hot, i), mode) : 0;
	return n;
}

/* Return the device bytes of all host experts, and set *each to the mean of one. */
static int64_t packed_bytes(const struct step *s, const int64_t *sizes, double *each)
{
	const int n_experts = s->config.experts.n;
	int64_t bytes = 0, n = 0;
	for (int i = 0; i < s->config.n_layers; i++) {
		const bool *hot = hot_layer(&s->hot, i);
		for (int e = 0; s->placement.cpu[i] && e < n_experts; e++)
			if (!hot || !hot[e]) {
				bytes += sizes[i];
				n++;
			}
	}
	*each = (double)bytes / (double)n;
	return bytes;
}

/* With --fast: decide the number of rows above which host experts are streamed, from a second copy in
 * pinned memory.  kept: bytes that the CPU's table will take. */
static int plan_sending(struct step *s, const struct step_args *a, const struct weights *w, int64_t kept,
			struct why *why)
{
	const struct config_experts *x = &s->config.experts;
	const struct kern_info *cpu = &host_experts_table(s->host_experts)->info;
	int64_t sizes[CONFIG_LAYERS_MAX] = {0};
	double each;
	if (!s->load.fast || !s->ops->experts_save || a->stream_above_rows < 0)
		return 0;
	int rc = expert_sizes(s, w, sizes, why);
	if (rc == -ENOTSUP)
		log_warn("step", "experts not streamed reason=\"%s\"", why->text);
	if (rc)
		return rc == -ENOTSUP ? 0
				      : err_prefix(why, rc,
						   "cannot stream experts from the CPU to the GPU "
						   "(--send-experts-above 0 computes them on the CPU)");
	const int64_t bytes = packed_bytes(s, sizes, &each);
	const struct prefetch_shape shape = {x->n, x->n_chosen,
					     each / (3.0 * s->config.hidden * x->intermediate),
					     cpu->n_threads, strstr(cpu->mode, " by amx") != NULL};
	const int above = a->stream_above_rows ? a->stream_above_rows : prefetch_crossover(&shape);
	if (above >= (int)s->lim.max_rows) {
		log_info("step",
			 "experts not streamed above_rows=%d max_rows=%u reason=\"no step has so many rows "
			 "(--max-batch-tokens)\"",
			 above, s->lim.max_rows);
		return 0;
	}
	const struct prefetch_room room = {kept, bytes, cpu->bytes_free, above};
	if ((rc = prefetch_check_room(&room, why)))
		return rc;
	log_info("step", "experts streamed above_rows=%d pinned_bytes=%lld", above, (long long)bytes);
	s->stream_above_rows = above;
	return 0;
}

int step_open_host_experts(struct step *s, const struct step_args *a, const struct weights *w,
			   struct why *why)
{
	struct host_experts_args args = {
		.ops = s->ops,
		.dev = s->dev,
		.cpu = {.model = s->config.dtype == CONFIG_BF16 ? KERN_BF16 : KERN_F16,
			.n_threads = (int)s->load.n_threads,
			.isa = a->isa,
			.max_rows = (int)s->lim.max_rows},
		.hidden = s->config.hidden,
		.n_chosen = s->config.experts.n_chosen,
	};
	if (!s->placement.n_cpu)
		return 0;
	int rc = step_compute_mode(s->load.experts_compute, "cpu", a->isa, &args.cpu.compute, why);
	if (rc || (rc = host_experts_open(&s->host_experts, &args, why)))
		return err_prefix(why, rc, "experts on the CPU");
	s->experts_compute = args.cpu.compute;
	const struct kern_info *info = &host_experts_table(s->host_experts)->info;
	const int64_t bytes = host_experts_in_memory(s, w, args.cpu.compute);
	if (bytes > info->bytes_free)
		return err_why(
			why, -ENOMEM,
			"the experts on the CPU take %lld MiB in mode %s, but of the %lld MiB of this "
			"machine "
			"only %lld are free: end what else uses them, leave more layers' experts on the GPU "
			"(--place), or give a smaller --experts-compute",
			(long long)(bytes >> 20), kern_compute_name(args.cpu.compute),
			(long long)(info->bytes_total >> 20), (long long)(info->bytes_free >> 20));
	log_info("step",
		 "experts on the CPU layers=%d total_layers=%d name=\"%s\" mode=\"%s\" threads=%d bytes=%lld",
		 s->placement.n_cpu, s->placement.n_sparse, info->name, info->mode, info->n_threads,
		 (long long)bytes);
	if (info->note[0])
		log_warn("step", "slow mode device=cpu mode=\"%s\" reason=\"%s\"", info->mode, info->note);
	return plan_sending(s, a, w, bytes, why);
}
